// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// live is a call under a grant at authd. What is known of it (released, sent, finished) comes from three processes in
// any order; end joins it.
type live struct {
	call   ledger.Call
	method *describe.Method
	ticket *ledger.Ticket // of a read: durable before its answer is released
	silent bool           // its answer goes to no cell, so no label comes of it
	timer  *time.Timer    // ends it when nobody does

	mu       sync.Mutex      // guards what follows
	released map[uint64]bool // the times the credential went out under it, by authd's number
	sent     []wire.SentReq
	sentIDs  map[string]bool // which reports of egress are in sent
	unsaid   *reports        // what the record does not have yet; nil where it has all
	ended    bool
	news     chan struct{} // closed and replaced at each change
}

// joinFor is how long the end of a write waits for egress to report what left.
const joinFor = 3 * time.Second

// enliven begins to watch a call that may now run.
func (s *Sentinel) enliven(c ledger.Call, m *describe.Method, t *ledger.Ticket) *live {
	l := &live{call: c, method: m, ticket: t, released: map[uint64]bool{}, sentIDs: map[string]bool{},
		news: make(chan struct{})}
	l.timer = time.AfterFunc(runFor, func() { // nobody finished it: the worker or the cell is gone
		s.abandon(s.lifetime, l, wire.CodeExpired, "the grant ran out before the call had ended")
	})
	s.mu.Lock()
	s.live[c.Pass] = l
	s.mu.Unlock()
	return l
}

// give puts a call's grant into authd's hands. The switch, or who else ends calls, finds this one since enliven; what it
// voids before authd had the grant is voided here.
func (s *Sentinel) give(ctx context.Context, l *live, g *wire.GrantReq) error {
	if err := s.takenBack(l); err != nil {
		return err
	}
	if !l.silent {
		if err := s.cutTainted(ctx, l.call.Cell); err != nil {
			return err
		}
	}
	if err := s.authd.Call(ctx, "grant", g, &wire.Empty{}); err != nil {
		return err
	}
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if !ended {
		return nil
	}
	if err := s.voidGrant(context.WithoutCancel(ctx), g.Grant); err != nil {
		s.log.Warn("a grant could not be voided", "call", l.call.ID, "err", err.Error())
	}
	return wire.Refuse(wire.CodeRevoked, "it was ended before it began", "")
}

// takenBack says whether what a call runs under was taken back since it was decided on: who takes it back writes that
// first, and then looks for what runs.
func (s *Sentinel) takenBack(l *live) error {
	if err := s.stopped(l.call.Cell); err != nil {
		return err
	}
	if l.silent {
		return nil
	}
	refuse := func(why string) error { return wire.Refuse(wire.CodeRevoked, why, "ask again") }
	if v, ok := s.ledger.Setting("account/" + l.call.Account); !ok || len(v.Value) == 0 {
		return refuse("the account was revoked")
	}
	x, ok := s.ledger.Session(l.call.Session)
	if ok && !x.Ended.IsZero() && (l.call.Approver == "" || x.Why == endedByPerson) {
		return refuse("the session has ended") // what a person approved may outlive its session's 12 hours
	}
	for _, g := range s.ledger.Grants(ledger.GrantFilter{ID: l.call.Under}) {
		if l.call.Under != "" && g.State == ledger.GrantRevoked {
			return refuse("the grant that covered it was revoked")
		}
	}
	return nil
}

// liveOf is the live call of a grant, or nil.
func (s *Sentinel) liveOf(grant string) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[grant]
}

func (l *live) tell(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.news)
	l.news = make(chan struct{})
}

// claim makes the caller the one that ends the call. Of a finish, a timeout and a broken link one wins.
func (l *live) claim() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	won := !l.ended
	l.ended = true
	return won
}

// finish is the worker's word of how its call ended. Its answer lets the worker release the result, so it comes when
// the record is durable and the grant is void.
func (s *Sentinel) finish(ctx context.Context, c *daemon.Call, req *wire.FinishReq) (*wire.Empty, error) {
	l := s.liveOf(req.Grant)
	if l == nil || l.call.Connector != c.Peer.Name {
		s.refused("sentinel", c.Peer.String(), req.Grant, wire.CodeBadGrant, "finish of a grant that is not its own or not live")
		if l == nil {
			s.late(ctx, req, c.Peer.Name)
		}
		return nil, wire.Refuse(wire.CodeBadGrant, "no live grant of that name", "")
	}
	if !l.claim() {
		return nil, wire.Refuse(wire.CodeBadGrant, "the call has ended", "")
	}
	ctx = context.WithoutCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.voidGrant(ctx, req.Grant) }()
	var err, cut error
	if l.ticket != nil {
		err = l.ticket.Wait(ctx)
	}
	if verr := <-done; verr != nil {
		s.log.Warn("a grant may outlive its call", "err", verr.Error()) // its link is down: then authd voids it itself
	}
	if more := l.further(req.Labels); err == nil && len(more) > 0 {
		err = s.ledger.AddLabels(ctx, l.call.Cell, more, ledger.Cause{Call: l.call.ID,
			Connector: l.call.Connector, Method: l.call.Method}, "worker:"+l.call.Connector)
	}
	if err == nil && !l.silent {
		cut = s.cutTainted(ctx, l.call.Cell)
	}
	switch {
	case l.ticket != nil:
		go func() { // the call's start is durable; its end may follow, with what egress still reports
			l.settled(ctx)
			s.end(ctx, l, readOutcome(req))
		}()
	case l.method.Class == describe.Read:
		s.end(ctx, l, readOutcome(req))
	default:
		s.end(ctx, l, l.outcome(ctx, req))
	}
	if err != nil {
		return nil, s.ledgerError(err)
	}
	if cut != nil {
		return nil, cut
	}
	return &wire.Empty{}, nil
}

// further are the labels that a worker names beyond those its method declares, which the cell has already. One that
// there is not counts as every one.
func (l *live) further(named []string) []string {
	if l.silent {
		return nil
	}
	all := []string{wire.LabelUntrusted, wire.LabelPrivate}
	if slices.ContainsFunc(named, func(n string) bool { return !slices.Contains(all, n) }) {
		named = all
	}
	return slices.DeleteFunc(slices.Clone(named), func(n string) bool { return slices.Contains(l.call.Labels, n) })
}

func readOutcome(req *wire.FinishReq) ledger.Outcome {
	o := ledger.Outcome{State: ledger.Done, Object: req.Object, In: req.Bytes}
	if req.Outcome != wire.OutcomeDone {
		o.State, o.Code, o.Why = ledger.Failed, string(wire.CodeInternal), "the worker reported no reason"
		if req.Err != nil {
			o.Code, o.Why = string(req.Err.Code), req.Err.Reason
		}
	}
	return o
}

// outcome joins the worker's word with what authd and egress saw. Egress is the witness: where the two differ, the
// outcome is unknown.
func (l *live) outcome(ctx context.Context, req *wire.FinishReq) ledger.Outcome {
	released, sent := l.settled(ctx)
	seen := witness(released, sent)
	seen.Object, seen.In = req.Object, req.Bytes
	claims := req.Outcome == wire.OutcomeDone
	switch {
	case seen.State == ledger.Done && claims:
	case seen.State == ledger.Failed && !claims:
		if req.Err != nil {
			seen.Code, seen.Why = string(req.Err.Code), req.Err.Reason
		}
	case seen.State == ledger.Unknown:
	default:
		seen = ledger.Outcome{State: ledger.Unknown, Code: string(wire.CodeUnknown), Status: seen.Status, Object: req.Object,
			Why: fmt.Sprintf("the worker says %s, the requests that left say %s", req.Outcome, seen.State)}
	}
	return seen
}

// settled waits until every release of the credential has its report from egress, at most joinFor.
func (l *live) settled(ctx context.Context) (int, []wire.SentReq) {
	timeout := time.NewTimer(joinFor)
	defer timeout.Stop()
	for {
		l.mu.Lock()
		released, sent, news := len(l.released), append([]wire.SentReq(nil), l.sent...), l.news
		l.mu.Unlock()
		if len(sent) >= released {
			return released, sent
		}
		select {
		case <-news:
		case <-timeout.C:
			return released, sent
		case <-ctx.Done():
			return released, sent
		}
	}
}

// witness says what the requests that left prove. Reads on the way (GET) prove nothing about a write, so only requests
// that may change something count; a server's 5xx leaves it open whether it acted.
func witness(released int, sent []wire.SentReq) ledger.Outcome {
	if released == 0 {
		return notRun(wire.CodeUnavailable, "nothing was sent")
	}
	o := ledger.Outcome{State: ledger.Unknown, Code: string(wire.CodeUnknown), Why: "it may have run; look before repeating it"}
	if len(sent) < released {
		return o
	}
	left, took, refused := false, false, false // a byte left; the vendor took, or refused, what may change something
	for _, r := range sent {
		if r.Err != nil && r.Status == 0 && !r.Left {
			continue // refused before the first byte
		}
		left = true
		if r.Method == "GET" || r.Method == "PROPFIND" || r.Method == "REPORT" {
			continue
		}
		o.Status = r.Status
		switch {
		case r.Status >= 200 && r.Status < 400:
			took = true
			o.State, o.Code, o.Why = ledger.Done, "", ""
		case r.Status >= 400 && r.Status < 500:
			refused = true
			o.State, o.Code, o.Why = ledger.Failed, string(wire.CodeVendorRefused), fmt.Sprintf("the vendor answered %d", r.Status)
		default:
			return ledger.Outcome{State: ledger.Unknown, Code: string(wire.CodeUnknown), Status: r.Status,
				Why: "the vendor gave no clear answer; look before repeating it"}
		}
	}
	switch {
	case took && refused:
		o = ledger.Outcome{State: ledger.Unknown, Code: string(wire.CodeUnknown), Status: o.Status,
			Why: "the vendor took a part of it and refused another; look before repeating it"}
	case !left:
		o = ledger.Outcome{State: ledger.Failed, Code: string(wire.CodeUnavailable), Why: "nothing left the machine"}
	case !took && !refused:
		o = ledger.Outcome{State: ledger.Failed, Code: string(wire.CodeUnavailable), Why: "only reads left the machine"}
	}
	return o
}

func notRun(code wire.Code, why string) ledger.Outcome {
	return ledger.Outcome{State: ledger.Failed, Code: string(code), Why: why, NotRun: true}
}

// abandon ends a call that nobody will finish: its grant is voided first, so that no release can follow; then what has
// been released and sent says how it ended.
func (s *Sentinel) abandon(ctx context.Context, l *live, code wire.Code, why string) {
	if !l.claim() {
		return
	}
	if err := s.voidGrant(ctx, l.call.Pass); err != nil {
		s.log.Warn("a grant could not be voided", "call", l.call.ID, "err", err.Error())
	}
	if l.method.Class == describe.Read {
		s.end(ctx, l, ledger.Outcome{State: ledger.Failed, Code: string(code), Why: why})
		return
	}
	l.mu.Lock()
	released := len(l.released)
	l.mu.Unlock()
	o := notRun(code, why)
	if released > 0 {
		released, sent := l.settled(ctx)
		if o = witness(released, sent); o.State == ledger.Unknown {
			s.cut(ctx, wire.GrantRef{Grant: l.call.Pass})
		}
	}
	s.end(ctx, l, o)
}

// end writes how a call ended and tells who waits for it.
func (s *Sentinel) end(ctx context.Context, l *live, o ledger.Outcome) {
	l.mu.Lock()
	l.ended = true
	if o.NotRun && len(l.released) > 0 {
		o.NotRun = false
	}
	l.mu.Unlock()
	if l.ticket != nil {
		if err := l.ticket.Wait(ctx); err != nil {
			s.drop(l)
			return // its start never became durable; there is nothing to end
		}
	}
	r := l.take(nil)
	o.Told = r.list
	c, err := s.ledger.Finish(ctx, l.call.ID, o, "sentinel")
	if err != nil && !errors.Is(err, ledger.ErrState) {
		s.log.Error("the end of a call is not recorded", "call", l.call.ID, "err", err.Error())
	}
	s.drop(l)
	if err == nil {
		r.written(nil)
	} else { // it has ended already, or could not: what was told of it is recorded all the same
		s.writeReports(ctx, l, r)
	}
	if err == nil {
		s.changed(c)
		s.remember(&c)
		if c.State == ledger.Unknown {
			go s.settle(context.WithoutCancel(ctx), c)
		}
	}
}

func (s *Sentinel) drop(l *live) {
	l.timer.Stop() // else it would keep l until it fires
	s.mu.Lock()
	delete(s.live, l.call.Pass)
	s.mu.Unlock()
}

// late takes a finish that came after its call had ended as unknown.
func (s *Sentinel) late(ctx context.Context, req *wire.FinishReq, worker string) {
	c, err := s.ledger.CallOf(ctx, req.Grant)
	if err != nil || c.State != ledger.Unknown || c.Connector != worker {
		return
	}
	if req.Outcome == wire.OutcomeDone && c.Status >= 200 && c.Status < 400 {
		s.settled(ctx, c, ledger.Outcome{State: ledger.Done, Object: req.Object})
	}
}

// execute has the worker run a call that sentinel itself holds the grant of: an approved one, or one with a prepared
// body. The worker reports by finish, like for any call, before it answers.
func (s *Sentinel) execute(ctx context.Context, l *live, o *order) {
	s.await(l.call.ID, true)
	defer s.await(l.call.ID, false)
	defer closeAll(o.files)
	out, err := s.runWorker(ctx, l, o)
	if err != nil {
		s.log.Info("an execution failed", "call", l.call.ID, "err", err.Error())
		return
	}
	ref, err := s.keepResult(ctx, l.call.ID, out)
	if err == nil {
		err = s.ledger.SetResult(ctx, l.call.ID, ref)
	}
	if err != nil {
		s.log.Error("a result is not kept", "call", l.call.ID, "err", err.Error())
	}
	s.await(l.call.ID, false)
	if c, err := s.ledger.Call(ctx, l.call.ID); err == nil {
		s.changed(c)
	}
}

// runWorker has the worker run a call and returns its answer. The call has ended then, by the worker's word or here.
func (s *Sentinel) runWorker(ctx context.Context, l *live, o *order) (*wire.Output, error) {
	out, err := s.ask(ctx, l, o)
	if err != nil {
		s.abandon(context.WithoutCancel(ctx), l, codeOf(err), err.Error())
		return nil, err
	}
	s.abandon(context.WithoutCancel(ctx), l, wire.CodeInternal, "the worker answered without reporting how it ended")
	return out, nil
}

// ask gives the grant to authd and the call to the worker, and returns the worker's answer, its memfd read.
func (s *Sentinel) ask(ctx context.Context, l *live, o *order) (*wire.Output, error) {
	ctx, cancel := context.WithTimeout(ctx, runFor)
	defer cancel()
	g, err := o.grant(&l.call, "", "")
	if err != nil {
		return nil, err
	}
	if err := s.give(ctx, l, g); err != nil {
		return nil, err
	}
	req := &wire.CallReq{Grant: g.Grant, Frame: o.Frame, Mark: g.Mark, ETag: o.ETag, Raw: o.raw}
	files := o.files
	if o.body != nil {
		f, err := sealed(o.body)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		files = append(files[:len(files):len(files)], f)
		req.Prepared = true
	}
	var out wire.Output
	got, err := s.worker(l.call.Connector).Exchange(ctx, "execute", req, &out, files...)
	defer closeAll(got)
	if err != nil {
		return nil, err
	}
	if out.File {
		if len(got) != 1 {
			return nil, fmt.Errorf("execute: the worker sent %d files", len(got))
		}
		if out.JSON, err = wire.ReadFile(int(got[0].Fd()), wire.MaxFile); err != nil {
			return nil, err
		}
		out.File = false
	}
	return &out, nil
}

// runRead runs a read that a decision or a settlement builds on. The live call, nil where none began, has what egress
// saw of it.
func (s *Sentinel) runRead(ctx context.Context, j *judged, raw bool) (*wire.Output, *live, error) {
	c, err := s.record(j)
	if err != nil {
		return nil, nil, err
	}
	c.Pass, c.Data = s.newPass(), nil // it is never read back
	t, err := s.startRead(ctx, c, j)
	switch {
	case errors.Is(err, ledger.ErrSpent):
		return nil, nil, wire.Refuse(wire.CodeNotAllowed, whySpent, "ask again")
	case err != nil:
		return nil, nil, s.ledgerError(err)
	}
	l := s.enliven(c, j.method, t)
	l.silent = j.silent
	o := j.order()
	o.raw = raw
	out, err := s.runWorker(ctx, l, o)
	return out, l, err
}
