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

// reportQueue is how many reports may wait for sentinel; at reportFull of them nothing more is let through, which leaves
// room for what is in flight.
const (
	reportQueue = 4096
	reportFull  = reportQueue / 2
	reportAck   = 30 * time.Second
)

// Reporter tells sentinel what became of each request until it has answered: a report whose answer did not
// come is sent again. Sentinel knows a repeated one by its sequence number.
type Reporter struct {
	Client   *daemon.Client
	Log      *slog.Logger
	Instance string // of this run of egress

	queue chan wire.SentReq
	seq   atomic.Uint64
}

// reporters is how many reports are under way at once.
const reporters = 16

// NewReporter makes one with room; Run is its task.
func NewReporter(c *daemon.Client, log *slog.Logger, instance string) *Reporter {
	return &Reporter{Client: c, Log: log, Instance: instance, queue: make(chan wire.SentReq, reportQueue)}
}

// Report queues one report. It blocks only when the queue is full, which Full prevents.
func (r *Reporter) Report(s wire.SentReq) {
	s.Instance, s.Seq = r.Instance, r.seq.Add(1)
	r.queue <- s
}

// Full says that sentinel is too far behind.
func (r *Reporter) Full() bool { return len(r.queue) >= reportFull }

// Run sends what is queued until ctx ends. What is left then is lost: sentinel knows from authd what was released, and
// takes a release without a report for one whose end is unknown.
func (r *Reporter) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range reporters {
		wg.Go(func() {
			for {
				select {
				case s := <-r.queue:
					r.deliver(ctx, &s)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// deliver sends one report until it is answered or ctx ends.
func (r *Reporter) deliver(ctx context.Context, s *wire.SentReq) {
	for wait := 20 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 2*time.Second) {
		call, cancel := context.WithTimeout(ctx, reportAck)
		err := r.Client.Call(call, "sent", s, &wire.Empty{})
		cancel()
		var refusal *wire.Error
		if err == nil {
			return
		}
		if errors.As(err, &refusal) && refusal.Code != wire.CodeUnavailable && refusal.Code != wire.CodeFull {
			// Sentinel has it and does not want it; asking again changes nothing.
			r.Log.Error("sentinel refused a report", daemon.KeyGrant, s.Grant, daemon.KeyErr, err.Error())
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
