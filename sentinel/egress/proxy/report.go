// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// Bounds of what waits for sentinel. At reportFull nothing more is let through.
const (
	reportFull = 2048
	reportTick = 50 * time.Millisecond // how often answers are looked for while some are owed
)

// Reporter tells sentinel what became of each request, until it has answered: a report whose answer did not come is
// sent again. Sentinel knows a repeated one by its sequence number.
//
// A report is written by the goroutine that carried the request, and its answer looked for now and then: on the path of
// every request, nothing is woken.
type Reporter struct {
	Client   *daemon.Client
	Log      *slog.Logger
	Instance string // of this run of egress

	seq     atomic.Uint64
	owed    atomic.Int64
	dropped atomic.Uint64
	mu      sync.Mutex // guards list
	list    []*owedReport
	some    chan struct{} // has room for one: list is no longer empty
}

// owedReport is a report that sentinel has not answered.
type owedReport struct {
	req     wire.SentReq
	pending *daemon.Pending // nil: not sent, or to be sent again
}

// NewReporter makes one; Run is its task.
func NewReporter(c *daemon.Client, log *slog.Logger, instance string) *Reporter {
	return &Reporter{Client: c, Log: log, Instance: instance, some: make(chan struct{}, 1)}
}

// Report sends one report if sentinel is there, and keeps it until it is answered.
func (r *Reporter) Report(s wire.SentReq) {
	if s.Grant == "" && s.Conn == "" && r.owed.Load() >= reportFull/4 {
		// Nonsense of a worker must not use up the room that the others' requests need.
		if n := r.dropped.Add(1); n&(n-1) == 0 {
			r.Log.Error("reports of requests without a grant are dropped", daemon.KeyCount, n, daemon.KeyVendor, s.Worker)
		}
		return
	}
	s.Instance, s.Seq = r.Instance, r.seq.Add(1)
	o := &owedReport{req: s}
	r.owed.Add(1)
	r.send(context.Background(), o)
	r.mu.Lock()
	r.list = append(r.list, o)
	first := len(r.list) == 1
	r.mu.Unlock()
	if first {
		select {
		case r.some <- struct{}{}:
		default:
		}
	}
}

func (r *Reporter) send(ctx context.Context, o *owedReport) {
	l, err := r.Client.Link(ctx)
	if err != nil {
		return
	}
	o.pending, err = l.Send("sent", &o.req)
	if err != nil {
		o.pending = nil
	}
}

// Full says that sentinel is too far behind.
func (r *Reporter) Full() bool { return r.owed.Load() >= reportFull }

// Run takes the answers until ctx ends. What is owed then is lost: sentinel knows from authd what was released, and
// takes a release without a report for one whose end is unknown.
func (r *Reporter) Run(ctx context.Context) error {
	tick := time.NewTicker(reportTick)
	tick.Stop()
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.some:
			tick.Reset(reportTick)
		case <-tick.C:
			if r.sweep(ctx) == 0 {
				tick.Stop()
			}
		}
	}
}

// sweep drops what is answered, sends again what must be, and says how many are still owed.
func (r *Reporter) sweep(ctx context.Context) int {
	r.mu.Lock()
	list := r.list
	r.list = nil
	r.mu.Unlock()
	kept := list[:0]
	for _, o := range list {
		if o.pending != nil && o.pending.Ready() {
			_, err := o.pending.Wait(ctx, &wire.Empty{})
			o.pending = nil
			var refusal *wire.Error
			switch {
			case err == nil:
				r.owed.Add(-1)
				continue
			case errors.As(err, &refusal) && refusal.Code != wire.CodeUnavailable && refusal.Code != wire.CodeFull:
				// Sentinel has it and does not want it; asking again changes nothing.
				r.Log.Error("sentinel refused a report", daemon.KeyGrant, o.req.Grant, daemon.KeyErr, err.Error())
				r.owed.Add(-1)
				continue
			}
		}
		if o.pending == nil {
			r.send(ctx, o)
		}
		kept = append(kept, o)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(kept, r.list...)
	return len(r.list)
}
