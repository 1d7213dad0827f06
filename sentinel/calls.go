// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"errors"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// maxWait is the longest that one wait lasts.
const maxWait = 10 * time.Minute

// own finds a call of the caller's cell. Another cell's call does not exist for it.
func (s *Sentinel) own(ctx context.Context, c *daemon.Call, id string) (ledger.Call, error) {
	got, err := s.ledger.Call(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) || err == nil && got.Cell != c.Peer.Name {
		return ledger.Call{}, wire.Refuse(wire.CodeNotFound, "no call of that id in this cell", "connector inbox lists them")
	}
	if err != nil {
		return ledger.Call{}, s.ledgerError(err)
	}
	return got, nil
}

// wait answers when the call has ended, or the time is over, or its caller hung up. Hanging up cancels nothing.
func (s *Sentinel) wait(ctx context.Context, c *daemon.Call, req *wire.WaitReq) (*wire.Result, error) {
	deadline := time.NewTimer(min(max(req.Timeout, 0), maxWait))
	defer deadline.Stop()
	for {
		news, done := s.watch(req.Call)
		runs := s.awaited(req.Call) // before the record is read: the answer is kept before it no longer runs
		call, err := s.own(ctx, c, req.Call)
		late := false
		if err == nil && !over(&call, runs) {
			select {
			case <-news:
				done()
				continue
			case <-deadline.C:
			case <-ctx.Done():
				late = true
			}
		}
		done()
		switch {
		case err != nil:
			return nil, err
		case late:
			return nil, ctx.Err()
		}
		return s.answer(ctx, c, call)
	}
}

// over says whether waiting longer brings nothing: the call ended and, where sentinel ran it, its answer is kept. runs
// says that sentinel still ran it before c was read.
func over(c *ledger.Call, runs bool) bool {
	if c.State != ledger.Unknown && !c.State.Final() {
		return false
	}
	return c.State != ledger.Done || !c.Inbox || c.Result != "" || !runs
}

func (s *Sentinel) resultVerb(ctx context.Context, c *daemon.Call, req *wire.CallRef) (*wire.Result, error) {
	call, err := s.own(ctx, c, req.Call)
	if err != nil {
		return nil, err
	}
	return s.answer(ctx, c, call)
}

// answer says where a call stands and hands out what it answered, its labels on the cell first.
func (s *Sentinel) answer(ctx context.Context, c *daemon.Call, call ledger.Call) (*wire.Result, error) {
	r := &wire.Result{Call: call.ID, State: wire.State(call.State), Err: stateError(&call), Title: titleOf(&call)}
	if !call.State.Final() && call.State != ledger.Unknown {
		return r, nil
	}
	if _, err := s.ledger.Collect(ctx, call.ID, c.Peer.Name); err != nil {
		return nil, s.ledgerError(err)
	}
	if err := s.cutTainted(ctx, c.Peer.Name); err != nil {
		return nil, err
	}
	if call.Result == "" {
		return r, nil
	}
	out, err := s.result(call.Result)
	if err != nil {
		s.log.Warn("a result is gone", "call", call.ID, "err", err.Error())
		r.Err = wire.Refuse(wire.CodeExpired, "the call is "+string(call.State)+"; its answer was kept for 24 hours", "")
		return r, nil
	}
	if len(out.JSON) > wire.MaxInline {
		f, err := sealed(out.JSON)
		if err != nil {
			return nil, err
		}
		c.Attach(f)
		out.JSON, out.File = nil, true
	}
	r.Output = out
	return r, nil
}

// unkept says whether a call is a card that a cell's own program brought up: what it sent was refused, and is not kept.
func unkept(c *ledger.Call) bool { return c.Connector == self && asksFirst(c.Method) }

// titleOf is the title of such a card, or "".
func titleOf(c *ledger.Call) string {
	if !unkept(c) {
		return ""
	}
	if k, err := cardOf(c); err == nil && k.Title != "" {
		return k.Title
	}
	return c.Method + " " + c.Account
}

// stateError is what a state means for who asked.
func stateError(c *ledger.Call) *wire.Error {
	why := c.Why
	switch c.State {
	case ledger.Parked:
		if unkept(c) {
			return wire.Refuse(wire.CodeNeedsApproval, "it waits for a person's decision, and is not kept",
				"send it again once it is approved")
		}
		return wire.Refuse(wire.CodeNeedsApproval, "it waits for a person's decision",
			"do not repeat it; collect it with: connector result "+c.ID)
	case ledger.Approved, ledger.Executing:
		if unkept(c) {
			return nil // in a moment it is done
		}
		return wire.Refuse(wire.CodeNeedsApproval, "it runs", "collect it with: connector result "+c.ID)
	case ledger.Denied:
		if why == "" {
			why = "a person said no"
		}
		return wire.Refuse(wire.CodeDenied, why, "do not ask for the same again; tell the person what you need instead")
	case ledger.Expired:
		return wire.Refuse(wire.CodeExpired, "nobody decided in time; it did not run", "ask again if it is still wanted")
	case ledger.Revoked:
		next := ""
		if c.Successor != "" {
			next = "do not ask again; collect what became of it with: connector result " + c.Successor
		}
		return wire.Refuse(wire.CodeRevoked, orElse(why, "it was taken back; it did not run"), next)
	case ledger.Unknown:
		return wire.Refuse(wire.CodeUnknown, orElse(why, "it may have run"),
			"look at the vendor's side before repeating it; connector result "+c.ID+" tells if it is settled")
	case ledger.Failed:
		code := wire.Code(c.Outcome)
		if code == "" {
			code = wire.CodeInternal
		}
		if c.NotRun {
			why = orElse(why, "it failed") + "; it did not run"
		}
		return wire.Refuse(code, orElse(why, "it failed"), "")
	}
	return nil
}

// cancel takes back a call of the cell's own. One that runs already is abandoned: its grant is voided, and what has
// left says whether it ran.
func (s *Sentinel) cancel(ctx context.Context, c *daemon.Call, req *wire.CallRef) (*wire.Result, error) {
	call, err := s.own(ctx, c, req.Call)
	if err != nil {
		return nil, err
	}
	switch call.State {
	case ledger.Parked, ledger.Approved:
		got, err := s.ledger.Revoke(ctx, call.ID, actor(c.Peer), string(wire.CodeRevoked), "the caller cancelled it")
		if err != nil && !errors.Is(err, ledger.ErrState) {
			return nil, s.ledgerError(err)
		}
		if err == nil {
			s.forget(got.Spool)
			s.changed(got)
		}
	case ledger.Executing:
		if l := s.liveOf(call.Pass); l != nil {
			s.abandon(context.WithoutCancel(ctx), l, wire.CodeUnavailable, "its caller gave it up before it had ended")
		}
	}
	if call, err = s.own(ctx, c, req.Call); err != nil {
		return nil, err
	}
	return s.answer(ctx, c, call)
}

// inbox lists the cell's calls that wait or have an answer to collect.
func (s *Sentinel) inbox(ctx context.Context, c *daemon.Call, _ *wire.Empty) (*wire.InboxResp, error) {
	calls, err := s.ledger.Calls(ctx, ledger.Filter{Cell: c.Peer.Name, Inbox: true, Limit: 200})
	if err != nil {
		return nil, s.ledgerError(err)
	}
	r := new(wire.InboxResp)
	for _, k := range calls {
		it := wire.InboxItem{Call: k.ID, State: wire.State(k.State), Connector: k.Connector, Method: k.Method,
			Unix: k.Created.Time().Unix(), Collected: !k.Collected.IsZero(), Title: titleOf(&k)}
		if k.Connector == self && k.Method == widenSite { // a connection that asks, by what it goes to
			it.Connector, it.Method = siteConnector, k.Account
		}
		r.Items = append(r.Items, it)
	}
	return r, nil
}

// list says what the cell may ask for, and what would be asked of the person.
func (s *Sentinel) list(_ context.Context, c *daemon.Call, req *wire.ListReq) (*wire.ListResp, error) {
	defer s.turn(c.Peer.Name)()
	set := s.policy.Load()
	r := new(wire.ListResp)
	_, attended, err := s.session(c.Peer)
	if err != nil {
		return nil, s.ledgerError(err)
	}
	for _, v := range s.sorted {
		if req.Connector != "" && req.Connector != v.Vendor {
			continue
		}
		lc := wire.ListConnector{Name: v.Vendor, Setting: set.Setting(v.Vendor), Description: v.Digest()}
		for _, a := range s.accountsOf(v.Vendor) {
			health := s.healthOf(&a)
			if !s.decided(&a) {
				health = s.standing(&a)
			}
			lc.Accounts = append(lc.Accounts, wire.ListAccount{Name: a.Name, Health: health})
		}
		lc.Methods = set.List(v.Vendor, policy.Call{Cell: c.Peer.Name, Session: sessionName(c.Peer), Attended: attended,
			Labels: s.labels(c.Peer.Name), Now: time.Now()}, s.grants(c.Peer.Name, v.Vendor, ""))
		r.Connectors = append(r.Connectors, lc)
	}
	if req.Connector != "" && len(r.Connectors) == 0 {
		return nil, wire.Refuse(wire.CodeUnknownConnector, "no connector "+quote(req.Connector), "connector list shows them")
	}
	return r, nil
}

// waiting is who waits for one call to change.
type waiting struct {
	news chan struct{} // closed at the change
	n    int
}

// watch returns a channel that is closed when something about the call changes next. done is called when nobody waits
// on it any more: a cell that waits for ids it makes up leaves nothing behind.
func (s *Sentinel) watch(call string) (news <-chan struct{}, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.news[call]
	if w == nil {
		w = &waiting{news: make(chan struct{})}
		s.news[call] = w
	}
	w.n++
	return w.news, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.n--; w.n == 0 && s.news[call] == w {
			delete(s.news, call)
		}
	}
}

// changed tells who waits for a call that it changed, and who watches all.
func (s *Sentinel) changed(c ledger.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.news[c.ID]; w != nil {
		close(w.news)
		delete(s.news, c.ID)
	}
	close(s.eventNews)
	s.eventNews = make(chan struct{})
}
