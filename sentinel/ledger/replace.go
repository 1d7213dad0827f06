// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"time"
)

// Replace takes back the parked call old, of that approval hash, and has c approved in its place: what a person made of it. Both
// happen or neither. a is the yes to c. Of two at once one wins, as with Approve. ErrChanged: old is another by now; ErrExpired: its
// time is over; ErrEqual: there is a call equal to c, so it would run twice.
func (l *Ledger) Replace(ctx context.Context, old, hash string, c Call, a Approval) (was, got Call, err error) {
	var late bool
	err = l.do(ctx, func(t *txn) (err error) {
		late = false
		if was, _, err = t.call(old, Revoked); err != nil {
			return err
		}
		switch {
		case was.State != Parked:
			return &StateError{ID: old, Have: was.State, Want: Revoked, By: was.By, At: was.Changed}
		case t.now.Reached(was.Deadline):
			late = true
			was, err = t.expire(old)
			return err
		case was.Approval != hash || hash == "" || a.ID != c.ID || c.Cell != was.Cell:
			return fmt.Errorf("%w: call %s is %.16s; look at it again", ErrChanged, old, was.Approval)
		}
		other, state, err := t.equal(&c)
		if err != nil {
			return err
		}
		if other != "" && (state.Live() || state == Unknown) {
			return fmt.Errorf("%w: call %s", ErrEqual, other)
		}
		was, err = t.move(old, Revoked, EvRevoke, a.By, func(k *Call, d *moveDetails) error {
			k.Outcome, k.Why, k.NotRun, k.Successor = "revoked", "a person changed it: call "+c.ID+" is in its place", true, c.ID
			d.Code, d.Why, d.NotRun = k.Outcome, k.Why, true
			return nil
		})
		if err != nil {
			return err
		}
		got = c
		got.Progress = Progress{Inbox: true}
		if err := t.enter(&got, Parked, EvPark, a.By); err != nil {
			return err
		}
		got, err = t.approve(&a)
		return err
	})
	if err == nil && late {
		return was, Call{}, fmt.Errorf("call %s: %w at %s", old, ErrExpired, was.Deadline.Time().Format(time.RFC3339))
	}
	return was, got, err
}
