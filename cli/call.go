// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Bounds on waiting.
const (
	askTimeout   = 2 * time.Minute // for any answer of sentinel; it may renew a login or read before it decides
	callTimeout  = 5 * time.Minute // for the answer of a worker
	waitChunk    = time.Minute     // of one wait
	waitTerminal = 2 * time.Minute // for approval, on a terminal
	waitPipe     = 8 * time.Second // for approval, elsewhere
	waitRunning  = 5 * time.Minute // for the end of a call that runs
)

// call asks sentinel, has the worker do what is allowed, and prints the answer.
func (a *app) call(k *call, o *options) *wire.Error {
	to, err := target(o.out)
	if err != nil {
		return err
	}
	defer to.drop()
	s, err := dial(wire.PathCellSentinel, "sentinel", askTimeout)
	if err != nil {
		return err
	}
	defer s.Close()
	var d wire.DecideResp
	if _, e := s.Call("decide", &wire.DecideReq{Frame: k.frame}, &d, k.fds...); e != nil {
		return broken("sentinel", e, k.m.Class != describe.Read)
	}
	switch d.Verdict {
	case wire.Allow:
		return a.worker(s, k, &d, to, o)
	case wire.Deny:
		if d.Err == nil {
			return wire.Refuse(wire.CodeNotAllowed, "refused", "connector inbox")
		}
		return d.Err
	case wire.Run:
		if d.Joined {
			a.note("the same call runs already, and this is that one: " + d.Call)
		}
		return a.await(s, d.Call, waitRunning, to, o)
	case wire.Parked:
		return a.parked(s, &d, to, o)
	default:
		return wire.Refuse(wire.CodeInternal, "sentinel answered "+quote(string(d.Verdict)), "")
	}
}

// worker hands an allowed call to the vendor's worker.
func (a *app) worker(s *wire.Conn, k *call, d *wire.DecideResp, to *sink, o *options) *wire.Error {
	w, err := dial(wire.PathCellWorker(k.c.Vendor), "the worker of "+k.c.Vendor, callTimeout)
	if err != nil {
		return err // nothing was asked of it, and the grant lapses
	}
	defer w.Close()
	var out wire.Output
	fds, e := w.Call("call", &wire.CallReq{Grant: d.Grant, Frame: k.frame}, &out, k.fds...)
	if e == nil {
		return a.emit(&out, fds, to, o, cursor(k.m))
	}
	var refused *wire.Error
	if errors.As(e, &refused) || k.m.Class == describe.Read {
		return broken("the worker of "+k.c.Vendor, e, false)
	}
	// A write whose worker went away may have run. Sentinel ends it, and knows or will know.
	var r wire.Result
	rfds, e2 := s.Call("cancel", &wire.CallRef{Call: d.Call}, &r)
	if e2 != nil && !errors.As(e2, &refused) { // it ends connections that were idle meanwhile
		if again, err := dial(wire.PathCellSentinel, "sentinel", askTimeout); err == nil {
			defer again.Close()
			rfds, e2 = again.Call("cancel", &wire.CallRef{Call: d.Call}, &r)
		}
	}
	if e2 == nil && r.State != wire.StateExecuting && r.State != wire.StateApproved {
		return a.result(&r, rfds, to, o, "")
	}
	return wire.Refuse(wire.CodeUnknown, "the worker of "+k.c.Vendor+" went away: the call may have run",
		"look before you repeat it; later: connector result "+d.Call)
}

// dial connects; who is named in the refusal where nobody listens.
func dial(path, who string, timeout time.Duration) (*wire.Conn, *wire.Error) {
	c, err := wire.Dial(path, timeout)
	if err == nil {
		return c, nil
	}
	reason := who + " does not answer; nothing ran"
	switch {
	case errors.Is(err, unix.ENOENT):
		reason = who + " is not here (" + path + " does not exist); nothing ran"
	case errors.Is(err, unix.EACCES):
		reason = who + " may not be asked from here (" + path + "); nothing ran"
	}
	return nil, wire.Refuse(wire.CodeUnavailable, reason,
		"try again later; if it stays so, tell the person: doorward doctor")
}

// broken turns an error of an exchange into a refusal. With maybe, what was asked may yet run.
func broken(who string, err error, maybe bool) *wire.Error {
	var refused *wire.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, wire.ErrVersion):
		return wire.Refuse(wire.CodeInternal, who+" speaks another protocol version: "+err.Error(),
			"tell the person: doorward and the cell's connector are of different versions")
	case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrTooLarge):
		return wire.Refuse(wire.CodeInternal, who+" answered what is no answer: "+err.Error(),
			"tell the person: doorward doctor")
	}
	next := "try again later"
	if maybe {
		next = "look before you repeat it: connector inbox"
	}
	if errors.Is(err, unix.EAGAIN) {
		return wire.Refuse(wire.CodeUnavailable, who+" did not answer in time", next)
	}
	return wire.Refuse(wire.CodeUnavailable, who+" went away: "+err.Error(), next)
}

// parked tells that a person is asked, waits a little, and says how to collect the answer.
func (a *app) parked(s *wire.Conn, d *wire.DecideResp, to *sink, o *options) *wire.Error {
	notice := waiting(d.Call)
	if d.Err != nil {
		notice.Code = d.Err.Code
		if d.Err.Code != wire.CodeNeedsApproval && d.Err.Reason != "" {
			notice.Reason = d.Err.Reason + ": " + notice.Reason
		}
	}
	if d.Joined {
		notice.Reason = "the same call is already there, and this is that one: " + notice.Reason
	}
	a.report(notice, d.Call)
	patience := o.wait
	if patience < 0 {
		patience = waitPipe
		if terminal(2) {
			patience = waitTerminal
		}
	}
	err := a.await(s, d.Call, patience, to, o)
	if err != nil && err.Code == wire.CodeNeedsApproval {
		if !a.json {
			line("still waiting; call " + d.Call + " is kept and runs once when it is approved")
		}
		a.told = true
		return notice
	}
	return err
}

// waiting is what there is to say of a parked call.
func waiting(id string) *wire.Error {
	return wire.Refuse(wire.CodeNeedsApproval, "waiting for a person's approval; the call is kept as "+id,
		"do not repeat the call or look for another way; collect its answer with: connector result "+id)
}

// await waits for a call to end, d at most, and prints its answer.
func (a *app) await(s *wire.Conn, id string, d time.Duration, to *sink, o *options) *wire.Error {
	end := time.Now().Add(d)
	running := false
	for {
		verb, left := "wait", min(time.Until(end), waitChunk)
		var r wire.Result
		var fds []int
		var e error
		if left <= 0 {
			verb = "result"
			fds, e = s.Call(verb, &wire.CallRef{Call: id}, &r)
		} else {
			fds, e = s.Call(verb, &wire.WaitReq{Call: id, Timeout: left}, &r)
		}
		if e != nil {
			err := broken("sentinel", e, false)
			if err.Code == wire.CodeUnavailable {
				err.Next = "the call is kept; later: connector result " + id
			}
			return err
		}
		if (r.State == wire.StateApproved || r.State == wire.StateExecuting) && !running {
			running = true
			end = time.Now().Add(waitRunning)
		} else if left > 0 && !ended(r.State) {
			continue
		} else {
			return a.result(&r, fds, to, o, "")
		}
	}
}

func ended(s wire.State) bool {
	return s != wire.StateParked && s != wire.StateApproved && s != wire.StateExecuting
}

// result prints how a call ended, or says where it stands.
func (a *app) result(r *wire.Result, fds []int, to *sink, o *options, cursor string) *wire.Error {
	refusal := func(code wire.Code, reason, next string) *wire.Error {
		if r.Err != nil {
			return r.Err
		}
		return wire.Refuse(code, reason, next)
	}
	if r.Title != "" {
		return a.unkeptResult(r)
	}
	switch r.State {
	case wire.StateDone:
		if r.Output == nil {
			why := "done; its answer was collected before, or is another caller's"
			if r.Err != nil {
				why = r.Err.Reason
			}
			a.note(why)
			return a.stands(r.Call, r.State)
		}
		return a.emit(r.Output, fds, to, o, cursor)
	case wire.StateParked:
		return waiting(r.Call)
	case wire.StateApproved, wire.StateExecuting:
		return wire.Refuse(wire.CodeNeedsApproval, "approved and running; the call is kept as "+r.Call,
			"do not repeat the call; collect its answer with: connector result "+r.Call)
	case wire.StateFailed:
		return refusal(wire.CodeInternal, "the call failed and did nothing", "")
	case wire.StateUnknown:
		return refusal(wire.CodeUnknown, "the call may have run", "look before you repeat it")
	case wire.StateDenied:
		return refusal(wire.CodeDenied, "a person said no", "do something else, or ask the person why")
	case wire.StateExpired:
		return refusal(wire.CodeExpired, "nobody decided in time; it did not run", "ask the person, then call again")
	case wire.StateRevoked:
		return refusal(wire.CodeRevoked, "a person took it back; it did not run", "ask the person")
	default:
		return wire.Refuse(wire.CodeInternal, "sentinel says that the call is "+quote(string(r.State)), "")
	}
}

// stands says with --json how a call that is well has ended and that has no answer to print.
func (a *app) stands(id string, state wire.State) *wire.Error {
	if !a.json {
		return nil
	}
	b := append(member([]byte{'{'}, "call", id), ',')
	return a.print(append(member(b, "state", string(state)), '}', '\n'))
}

// cursor is the flag that takes what an answer gave as next.
func cursor(m *describe.Method) string {
	for i := range m.Args {
		if m.Args[i].Type == describe.TypeCursor {
			return "--" + m.Args[i].Name
		}
	}
	return "--page"
}

// collect runs result, wait and cancel.
func (a *app) collect(verb string, args []string) *wire.Error {
	o, words, err := plain(verb, args)
	if err != nil {
		return err
	}
	if len(words) != 1 {
		return usage(verb+" takes the id of one call", "connector inbox")
	}
	id := words[0]
	to, err := target(o.out)
	if err != nil {
		return err
	}
	defer to.drop()
	s, err := dial(wire.PathCellSentinel, "sentinel", askTimeout)
	if err != nil {
		return err
	}
	defer s.Close()
	var r wire.Result
	switch verb {
	case "wait":
		d := o.wait
		if d < 0 {
			d = waitTerminal
		}
		return a.await(s, id, d, to, o)
	case "cancel":
		_, e := s.Call("cancel", &wire.CallRef{Call: id}, &r)
		if e != nil {
			return broken("sentinel", e, false)
		}
		if r.State == wire.StateRevoked || r.State == "" {
			a.note("call " + id + " is cancelled and will not run")
			return a.stands(id, wire.StateRevoked)
		}
		return wire.Refuse(wire.CodeNotFound, "call "+id+" is "+string(stateOf(r.State, r.Title))+" and cannot be cancelled",
			"connector result "+id)
	default:
		fds, e := s.Call("result", &wire.CallRef{Call: id}, &r)
		if e != nil {
			return broken("sentinel", e, false)
		}
		return a.result(&r, fds, to, o, "")
	}
}

// plain parses the flags of a built-in command.
func plain(command string, args []string) (*options, []string, *wire.Error) {
	o := &options{wait: -1}
	var words []string
	for i := 0; i < len(args); i++ {
		s := args[i]
		if s == "-h" {
			s = "--help"
		}
		if len(s) < 2 || s[0] != '-' {
			words = append(words, s)
			continue
		}
		name, value, given := flag(s)
		for _, c := range common {
			if c.name != name || given {
				continue
			}
			if c.value == "" {
				value = "true"
			} else if i+1 < len(args) {
				i++
				value = args[i]
			} else {
				return nil, nil, usage("--"+name+" needs a value", "connector help")
			}
		}
		ok, err := o.set(name, value)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			var names []string
			for _, c := range common {
				names = append(names, c.name)
			}
			return nil, nil, unknown(wire.CodeUsage, "no flag "+oneLine(s)+" of connector "+command,
				dashed(nearest(name, names)), "connector help")
		}
	}
	return o, words, nil
}
