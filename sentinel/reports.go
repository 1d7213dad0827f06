// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// sentReport is egress's word of one request. It counts at once; it is acknowledged when it is durable.
func (s *Sentinel) sentReport(ctx context.Context, c *daemon.Call, req *wire.SentReq) (*wire.Empty, error) {
	id := fmt.Sprintf("%s/%d", req.Instance, req.Seq)
	l := s.liveOf(req.Grant)
	if l != nil {
		l.tell(func() {
			if !l.sentIDs[id] { // egress repeats a report until it is answered
				l.sentIDs[id] = true
				l.sent = append(l.sent, *req)
			}
		})
		s.heed(&l.call, req)
	}
	left := req.Status != 0 || req.Err == nil || req.Left
	told := ledger.Told{Sent: &ledger.Sent{Pass: req.Grant, Host: req.Host, Method: req.Method, Path: req.Entry,
		Status: req.Status, Out: req.Out, In: req.In, Err: errorCode(req.Err), Report: id}}
	write := func(ctx context.Context) error { return s.sentLate(ctx, req, told) }
	if left && l != nil {
		write = s.say(l, told)
	}
	c.Later(func(ctx context.Context) error {
		if req.Err != nil {
			s.refused("egress", "worker:"+req.Worker, req.Grant, req.Err.Code, req.Err.Reason)
		}
		if !left {
			return nil
		}
		return write(ctx)
	})
	return &wire.Empty{}, nil
}

// sentLate records a request of a call that is not live; an unknown one it may settle.
func (s *Sentinel) sentLate(ctx context.Context, req *wire.SentReq, told ledger.Told) error {
	call, err := s.tell(ctx, told.Sent.Pass, told)
	if err != nil {
		return s.ledgerError(err)
	}
	s.heed(&call, req)
	if call.State == ledger.Unknown {
		if o := s.witnessed(ctx, &call); o.State != ledger.Unknown && !o.NotRun {
			s.settled(ctx, call, o)
		}
	}
	return nil
}

// released is authd's word that a credential went out. It counts at once, before a later answer on the link is read;
// it is acknowledged when it is durable, and authd repeats it until then. Of a call that an earlier run of sentinel
// began only the record counts, so there it is durable before a later answer is read.
func (s *Sentinel) released(ctx context.Context, c *daemon.Call, req *wire.ReleasedReq) (*wire.Empty, error) {
	if req.Worker == "" { // nobody settles a cell's own request by it
		c.Later(s.issueReleased(req))
		return &wire.Empty{}, nil
	}
	told := ledger.Told{Release: &ledger.Release{Pass: req.Grant, Seq: int64(req.Seq), Entry: fmt.Sprint(req.Entry),
		Call: req.Call, Cell: req.Cell, Worker: req.Worker, Account: req.Account}}
	l := s.liveOf(req.Grant)
	if l == nil {
		if _, err := s.tell(ctx, req.Grant, told); err != nil {
			return nil, s.ledgerError(err)
		}
		return &wire.Empty{}, nil
	}
	l.tell(func() { l.released[req.Seq] = true })
	if l.ticket != nil {
		l.ticket.Go()
	}
	c.Later(s.say(l, told))
	return &wire.Empty{}, nil
}

// reports are what was told of one live call and the record does not have yet. They are written in one transaction: with
// the call's end, or when there are reportsMost or the first is reportsWait old. Who told them is answered then, and
// tells them again until it is: so nothing is lost when sentinel ends meanwhile.
type reports struct {
	list  []ledger.Told
	timer *time.Timer
	done  chan struct{} // closed when err says whether they are durable
	err   error
}

const (
	reportsMost = 64
	reportsWait = 50 * time.Millisecond
)

func (r *reports) written(err error) {
	r.err = err
	if r.done != nil {
		close(r.done)
	}
}

// say has a report of a live call written, and returns what waits until it is.
func (s *Sentinel) say(l *live, told ledger.Told) func(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.unsaid
	if r == nil {
		r = &reports{done: make(chan struct{})}
		r.timer = time.AfterFunc(reportsWait, func() { s.write(l, r) })
		l.unsaid = r
	}
	if r.list = append(r.list, told); len(r.list) == reportsMost {
		r.timer.Reset(0)
	}
	return func(ctx context.Context) error {
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if r.err != nil {
			return s.ledgerError(r.err)
		}
		return nil
	}
}

// take is what is to be written of the call, if that still is of (nil is any): whoever takes it writes it.
func (l *live) take(of *reports) *reports {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.unsaid
	if r == nil || of != nil && r != of {
		return new(reports)
	}
	l.unsaid = nil
	r.timer.Stop()
	return r
}

// write writes what of the call is to be written, if that still is of.
func (s *Sentinel) write(l *live, of *reports) {
	s.writeReports(context.WithoutCancel(s.lifetime), l, l.take(of))
}

func (s *Sentinel) writeReports(ctx context.Context, l *live, r *reports) {
	if len(r.list) == 0 {
		return
	}
	if l.ticket != nil {
		l.ticket.Go() // the call comes before what is told of it
	}
	_, err := s.tell(ctx, l.call.Pass, r.list...)
	r.written(err)
}

// tell records what was told of a grant. Where no call has it the record says so, and that is no error: who told it would
// tell it again for ever.
func (s *Sentinel) tell(ctx context.Context, pass string, list ...ledger.Told) (ledger.Call, error) {
	c, err := s.ledger.Tell(ctx, pass, list...)
	if errors.Is(err, ledger.ErrNotFound) {
		err = nil
	}
	return c, err
}
