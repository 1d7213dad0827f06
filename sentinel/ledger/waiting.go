// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"maps"
	"slices"
)

// Waiting is what is kept in memory of a call that waits for a person (Parked), or that a person approved and that does
// not run yet (Approved). The rest of such a call, its card above all, may be large and is read when it is asked for.
type Waiting struct {
	ID, Cell, Session, Connector, Method, Account, Dedup string
	State                                                State
	Deadline                                             Moment
}

func waits(s State) bool { return s == Parked || s == Approved }

// waiting keeps c if it waits, and forgets it otherwise.
func (v *view) waiting(c *Call) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waited++
	if !waits(c.State) {
		delete(v.waits, c.ID)
		return
	}
	v.waits[c.ID] = Waiting{ID: c.ID, Cell: c.Cell, Session: c.Session, Connector: c.Connector, Method: c.Method,
		Account: c.Account, Dedup: c.Dedup, State: c.State, Deadline: c.Deadline}
}

// Waiting returns every call that waits, oldest first.
func (l *Ledger) Waiting() []Waiting {
	out, _ := l.WaitingAfter(0)
	return out
}

// WaitingAfter returns the same and the version of it, which is never 0; nothing else where that is still known.
func (l *Ledger) WaitingAfter(known uint64) ([]Waiting, uint64) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	if known == l.view.waited {
		return nil, known
	}
	out := make([]Waiting, 0, len(l.view.waits))
	for _, id := range slices.Sorted(maps.Keys(l.view.waits)) { // of thousands, sorting what is large takes most of the time
		out = append(out, l.view.waits[id])
	}
	return out, l.view.waited
}

// due are the ids of the calls that wait and whose deadline has come by now.
func (v *view) due(now Moment) []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var out []string
	for id, w := range v.waits {
		if now.Reached(w.Deadline) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// loadWaiting reads what waited when the ledger was closed.
func (l *Ledger) loadWaiting(ctx context.Context) error {
	return l.eachCall(ctx, l.view.waiting, isLive+" AND state IN ('parked', 'approved')")
}
