// SPDX-License-Identifier: Apache-2.0

package ledger

import "context"

// SetResult notes where the answer of a call is kept that has ended already: the worker reports the end before it
// answers. A call that was collected meanwhile keeps the reference too; the spool's own time ends it.
func (l *Ledger) SetResult(ctx context.Context, id, ref string) error {
	return l.do(ctx, func(t *txn) error {
		c, frame, err := t.call(id, None)
		if err != nil {
			return err
		}
		if !c.State.Final() && c.State != Unknown {
			return &StateError{ID: id, Have: c.State, Want: c.State, By: c.By, At: c.Changed}
		}
		c.Result = ref
		if err := t.putCall(&c, frame); err != nil {
			return err
		}
		return t.emit(Event{Type: EvResult, Actor: sentinel, Cell: c.Cell, Session: c.Session, Call: id})
	})
}
