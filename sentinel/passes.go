// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/policy"
)

// Bounds of what authd is asked ahead for one surrogate at one host. Each request that is allowed takes one use of a grant at
// authd. While requests follow each other within passFor, the next grant has twice the uses, so that a busy program costs one
// question to authd for many requests and a single request still has a grant of one use. What goes under a person's grant has
// one of its own.
//
// Whoever holds a cell's egress could use up what is left of a grant, within seconds, without asking here. It gains nothing by
// that: the credential is what it got with the first.
const (
	passFor = 10 * time.Second // how long after it was made a grant is given out
	maxKept = 256              // grants that are remembered; those that are not given out any more go first
)

type passKey struct {
	cell, issue string
	target      policy.Target
}

// pass is a grant at authd, of which uses are left.
type pass struct {
	void atomic.Bool // authd has ended it

	mu       sync.Mutex // guards what follows, and is held while authd is asked
	grant    string
	left     int
	uses     int       // that it had
	made     time.Time // zero: never
	account  string    // as it was decided (accountValue)
	instance string    // of authd
}

// passes are those of all cells.
type passes struct {
	mu   sync.Mutex // guards list
	list map[passKey]*pass
}

func (p *passes) of(k passKey) *pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) >= maxKept {
		for k, x := range p.list {
			if x.mu.TryLock() { // who holds it is using it
				if time.Since(x.made) > passFor {
					delete(p.list, k)
				}
				x.mu.Unlock()
			}
		}
	}
	if p.list == nil {
		p.list = map[passKey]*pass{}
	}
	x := p.list[k]
	if x == nil {
		x = new(pass)
		if len(p.list) < maxKept { // else nobody else is given of it
			p.list[k] = x
		}
	}
	return x
}

// forget drops the grants of a cell, or of all: authd has ended them.
func (p *passes) forget(cell string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, x := range p.list {
		if cell == "" || k.cell == cell {
			x.void.Store(true)
			delete(p.list, k)
		}
	}
}

// passTo returns a grant at authd of which one use is this request's, for what was issued for its target. With alone it has no other.
func (s *Sentinel) passTo(ctx context.Context, is *issued, target policy.Target, alone bool) (string, error) {
	acc, err := s.usable(is)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	instance := s.instance
	s.mu.Unlock()
	p := new(pass)
	if !alone {
		p = s.passes.of(passKey{is.Cell, is.ID, target})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	again := time.Since(p.made) < passFor
	if p.left > 0 && again && !p.void.Load() && p.account == accountValue(&acc) && p.instance == instance {
		p.left--
		return p.grant, nil
	}
	uses := 1
	if again {
		uses = min(2*p.uses, wire.MaxIssuedUses)
	}
	grant := s.newPass()
	if err := s.authd.Call(ctx, "grant", &wire.GrantReq{Grant: grant, Call: is.ID, Issue: is.ID, Cell: is.Cell, Account: acc.Name,
		Generation: acc.Generation, Digest: acc.Digest, Unix: time.Now().Add(requestFor).Unix(),
		Entries: []wire.Entry{{Name: "requests", Scheme: "https", Host: target.Name, Port: int(target.Port), Uses: uses,
			Credential: true}}}, &wire.Empty{}); err != nil {
		p.left, p.made = 0, time.Time{}
		return "", err
	}
	p.grant, p.left, p.uses, p.made, p.account, p.instance = grant, uses-1, uses, time.Now(), accountValue(&acc), instance
	return grant, nil
}
