// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// live is every request that has begun and not ended.
type live struct {
	mu  sync.Mutex // guards all and every active's fields
	all map[*active]struct{}
}

// active is one request. grant is known from its head; cell and account once authd has answered.
type active struct {
	live *live
	down *peer.Conn // of the worker

	grant, cell, account string
	resolved, over       bool
	cuts                 []wire.GrantRef    // that came before authd's answer
	ctx                  context.Context    // of look-up, dial, handshake and HTTP/2; nil where there is none of it
	cancel               context.CancelFunc // of ctx
	up                   io.Closer
	waits                time.Time     // since when an answer is waited for; zero where not
	watched              chan struct{} // closed when the watch over the worker's end is over; nil where there is none
}

// watchAfter is how long an answer is waited for before anybody looks whether the worker is still there: a look costs
// as much as a short request.
const watchAfter = time.Second

func (l *live) init() { l.all = map[*active]struct{}{} }

func (l *live) begin(grant string, down *peer.Conn) *active {
	a := &active{live: l, grant: grant, down: down}
	l.mu.Lock()
	l.all[a] = struct{}{}
	l.mu.Unlock()
	return a
}

// name says whose request it is, after authd's answer. It is false where that has been cut meanwhile.
func (a *active) name(cell, account string) bool {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	a.cell, a.account, a.resolved = cell, account, true
	for i := range a.cuts {
		if a.hit(&a.cuts[i]) {
			a.over = true
		}
	}
	a.cuts = nil
	return !a.over
}

// uses gives the request an upstream connection that a cut closes, or with nil takes it back. It is false where the
// request has been cut.
func (a *active) uses(up io.Closer) bool {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	a.up = up
	if a.over {
		a.up = nil
	}
	return !a.over
}

// within gives what is to be done a context that a cut ends.
func (a *active) within(ctx context.Context) context.Context {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	if a.cancel == nil {
		a.ctx, a.cancel = context.WithCancel(ctx)
	}
	if a.over {
		a.cancel()
	}
	return a.ctx
}

// wait says that from now on an answer is waited for, and nobody reads the worker's connection.
func (a *active) wait() {
	now := time.Now()
	a.live.mu.Lock()
	a.waits = now
	a.live.mu.Unlock()
}

// waited ends that, and says whether it has changed the connection's read deadline.
func (a *active) waited() bool {
	a.live.mu.Lock()
	a.waits = time.Time{}
	watched := a.watched
	a.watched = nil
	a.live.mu.Unlock()
	if watched != nil {
		_ = a.down.SetReadDeadline(time.Unix(1, 0)) // ends the look
		<-watched
	}
	return watched != nil
}

// watch looks after the workers of requests that take long, and ends a request whose worker has gone.
func (l *live) watch(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a := range l.all {
		if a.waits.IsZero() || now.Sub(a.waits) < watchAfter || a.watched != nil {
			continue
		}
		a.watched = make(chan struct{})
		go func(done chan struct{}) {
			defer close(done)
			if hungUp(a.down) {
				a.stop()
			}
		}(a.watched)
	}
}

// isCut says that the request was ended by sentinel or by shutdown.
func (a *active) isCut() bool {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	return a.over
}

// stop ends the request: its connections are closed, so whatever waits fails.
func (a *active) stop() {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	a.end()
}

// end: preconditions: live.mu is held.
func (a *active) end() {
	a.over = true
	if a.cancel != nil {
		a.cancel()
	}
	if a.up != nil {
		_ = a.up.Close()
	}
}

func (a *active) done() {
	a.live.mu.Lock()
	delete(a.live.all, a)
	a.up = nil
	cancel := a.cancel
	a.live.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (a *active) hit(ref *wire.GrantRef) bool {
	switch {
	case ref.All:
		return true
	case ref.Grant != "":
		return ref.Grant == a.grant
	case ref.Cell != "":
		return ref.Cell == a.cell
	case ref.Account != "":
		return ref.Account == a.account
	}
	return false
}

// cut ends what ref names and says how many requests that were. One that authd has not answered for yet is ended when
// its answer shows that it is meant.
func (l *live) cut(ref *wire.GrantRef) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for a := range l.all {
		switch {
		case a.hit(ref):
			a.end()
			n++
		case !a.resolved:
			a.cuts = append(a.cuts, *ref)
		}
	}
	return n
}
