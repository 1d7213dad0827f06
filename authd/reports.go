// SPDX-License-Identifier: Apache-2.0

package authd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// maxReports bounds the refusals that wait for sentinel. Beyond it the oldest are dropped and counted: a hostile worker
// can make refusals as fast as it asks, and must not fill authd's memory with them.
const maxReports = 256

// reports are refusals on their way to sentinel's record.
type reports struct {
	some chan struct{} // has an element while there is something to do

	mu      sync.Mutex // guards what follows
	waiting []wire.RefusedReq
	dropped int
	since   time.Time // of what lines counts
	lines   int
}

// At most maxLines refusals are logged in each span of linesSpan.
const (
	maxLines  = 50
	linesSpan = 10 * time.Second
)

func newReports() *reports { return &reports{some: make(chan struct{}, 1)} }

func (r *reports) put(req wire.RefusedReq) {
	r.mu.Lock()
	if len(r.waiting) >= maxReports {
		r.waiting = r.waiting[1:]
		r.dropped++
	}
	r.waiting = append(r.waiting, req)
	r.mu.Unlock()
	r.wake()
}

// loud says whether one more refusal may be logged.
func (r *reports) loud(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since) > linesSpan {
		r.since, r.lines = now, 0
	}
	r.lines++
	return r.lines <= maxLines
}

func (r *reports) wake() {
	select {
	case r.some <- struct{}{}:
	default:
	}
}

// take returns the oldest, and says in it how many were dropped before.
func (r *reports) take() (wire.RefusedReq, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return wire.RefusedReq{}, false
	}
	req := r.waiting[0]
	r.waiting = r.waiting[1:]
	if r.dropped > 0 {
		req.Detail += fmt.Sprintf(" (and %d more before it)", r.dropped)
		r.dropped = 0
	}
	return req, true
}

// putBack returns what could not be sent.
func (r *reports) putBack(req wire.RefusedReq) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) < maxReports {
		r.waiting = append([]wire.RefusedReq{req}, r.waiting...)
	} else {
		r.dropped++
	}
}

// report sends what waits, each after the one before it is answered, while there is a link.
func (a *Authd) report(ctx context.Context) {
	n := a.current()
	if n == nil {
		return // attach wakes it
	}
	for {
		req, some := a.reports.take()
		if !some || ctx.Err() != nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, heard)
		err := n.Call(ctx, "refused", &req, &wire.Empty{})
		cancel()
		if err != nil {
			a.reports.putBack(req)
			a.log.Warn("a refusal could not be reported", daemon.KeyErr, err.Error())
			time.AfterFunc(heard, a.reports.wake)
			return
		}
	}
}
