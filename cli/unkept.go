// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/doorward/doorward/internal/wire"
)

// What a program of the cell sent, and what had to be approved first, was refused and is not kept: a call with a title is of that
// (wire.InboxItem). There is nothing to collect of it, and to send it again is right.

// stateOf is where such a call stands, in a word that does not say that it ran; of others their own state.
func stateOf(s wire.State, title string) wire.State {
	if title != "" && (s == wire.StateDone || s == wire.StateExecuting) {
		return wire.StateApproved
	}
	return s
}

// unkept says what to do about a call with a title; s is of stateOf.
func unkept(id string, s wire.State) string {
	switch s {
	case wire.StateParked:
		return "not kept: send it again once it is approved"
	case wire.StateApproved:
		return "nothing was sent and nothing is kept: send the same again"
	}
	return "why: connector result " + id
}

// unkeptResult is result for a call with a title.
func (a *app) unkeptResult(r *wire.Result) *wire.Error {
	switch s := stateOf(r.State, r.Title); {
	case s == wire.StateParked:
		return wire.Refuse(wire.CodeNeedsApproval, r.Title+" waits for a person's approval, and is not kept",
			"send it again once it is approved: connector wait "+r.Call)
	case s == wire.StateApproved:
		a.note(r.Title + ": approved; " + unkept(r.Call, s))
		if !a.json {
			return nil
		}
		b := members(nil, "call", r.Call, "state", string(s), "title", r.Title, "next", unkept(r.Call, s))
		return a.print(append(b, '}', '\n'))
	case r.Err == nil:
		return wire.Refuse(wire.CodeInternal, r.Title+" is "+quote(string(s)), "")
	default:
		return wire.Refuse(r.Err.Code, r.Title+": "+r.Err.Reason, r.Err.Next)
	}
}
