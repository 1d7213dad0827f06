// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
)

// State is where a call stands. The zero State is a call that is not in the ledger yet.
type State string

// The states of a call.
const (
	None      State = ""
	Parked    State = "parked"    // waits for a person
	Approved  State = "approved"  // a person said yes; nothing has left
	Executing State = "executing" // durable before the first byte leaves
	Done      State = "done"      // the vendor did it
	Failed    State = "failed"    // it did not happen
	Unknown   State = "unknown"   // it may have happened; never sent again
	Denied    State = "denied"    // by policy or by a person
	Expired   State = "expired"   // nobody answered in time
	Revoked   State = "revoked"   // taken back before it ran
)

// States lists every state, None first.
func States() []State {
	return []State{None, Parked, Approved, Executing, Done, Failed, Unknown, Denied, Expired, Revoked}
}

// next is the whole machine. What is not here does not exist.
var next = map[State][]State{
	None:      {Parked, Executing, Denied},
	Parked:    {Approved, Denied, Expired, Revoked},
	Approved:  {Executing, Failed, Expired, Revoked},
	Executing: {Done, Failed, Unknown},
	Unknown:   {Done, Failed},
}

// May says whether a call may go from one state to the other.
func May(from, to State) bool {
	for _, s := range next[from] {
		if s == to {
			return true
		}
	}
	return false
}

// Final says whether nothing can happen to the call any more. An unknown one can still be settled.
func (s State) Final() bool {
	switch s {
	case Done, Failed, Denied, Expired, Revoked:
		return true
	case None, Parked, Approved, Executing, Unknown:
	}
	return false
}

// Live says whether the call is on its way: an equal call joins it.
func (s State) Live() bool { return s == Parked || s == Approved || s == Executing }

// ErrState is what a StateError is.
var ErrState = errors.New("the call is not in a state for that")

// StateError tells the loser of a race, or one who comes late, what the call is instead and by whom.
type StateError struct {
	ID   string
	Have State  // what it is
	Want State  // what was asked for
	By   string // who made it so
	At   Moment // when
}

func (e *StateError) Error() string {
	if e.Have == None {
		return fmt.Sprintf("call %s: no such call", e.ID)
	}
	return fmt.Sprintf("call %s cannot become %s: it is %s since %s, by %s",
		e.ID, e.Want, e.Have, e.At.Time().Format("2006-01-02 15:04:05Z"), e.By)
}

// Is makes errors.Is(err, ErrState) hold, and ErrNotFound for a call that does not exist.
func (e *StateError) Is(target error) bool {
	return target == ErrState || (target == ErrNotFound && e.Have == None)
}
