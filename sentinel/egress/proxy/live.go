// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"io"
	"sync"

	"github.com/doorward/doorward/internal/wire"
)

// live is every request that has begun and not ended.
type live struct {
	mu  sync.Mutex // guards all and every active's fields
	all map[*active]struct{}
}

// active is one request. grant is known from its head; cell and account once authd has answered.
type active struct {
	live   *live
	cancel context.CancelFunc // ends look-up, dial, handshake and HTTP/2

	grant, cell, account string
	resolved, over       bool
	cuts                 []wire.GrantRef // that came before authd's answer
	up                   io.Closer
}

func (l *live) init() { l.all = map[*active]struct{}{} }

func (l *live) begin(grant string, cancel context.CancelFunc) *active {
	a := &active{live: l, grant: grant, cancel: cancel}
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
	a.cancel()
	if a.up != nil {
		_ = a.up.Close()
	}
}

func (a *active) done() {
	a.live.mu.Lock()
	delete(a.live.all, a)
	a.up = nil
	a.live.mu.Unlock()
	a.cancel()
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
