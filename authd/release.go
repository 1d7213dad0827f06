// SPDX-License-Identifier: Apache-2.0

package authd

import (
	"context"

	"github.com/doorward/doorward/authd/grants"
	"github.com/doorward/doorward/authd/store"
	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// borrow gives a worker the surrogate of a grant. The worker's name is the kernel's word.
func (a *Authd) borrow(_ context.Context, c *daemon.Call, req *wire.BorrowReq) (*wire.BorrowResp, error) {
	if a.store.Locked() {
		return nil, a.refused(c, req.Grant, store.ErrLocked)
	}
	now, err := a.clock()
	if err != nil {
		return nil, a.refused(c, req.Grant, err)
	}
	resp, err := a.table.Borrow(now, c.Peer.Name, *req, a.account(a.table.Account(req.Grant)), a.random)
	if err != nil {
		return nil, a.refused(c, req.Grant, err)
	}
	return &resp, nil
}

// resolve gives egress what one request needs, after sentinel's link has been told of it.
func (a *Authd) resolve(_ context.Context, c *daemon.Call, req *wire.ResolveReq) (*wire.ResolveResp, error) {
	if a.store.Locked() {
		return nil, a.refused(c, req.Grant, store.ErrLocked)
	}
	resp, err := a.release(c.Peer.Of, req)
	if err != nil {
		return nil, a.refused(c, req.Grant, err)
	}
	return resp, nil
}

// release is resolve for the egress of a cell, or where cell is empty that of workers.
func (a *Authd) release(cell string, req *wire.ResolveReq) (*wire.ResolveResp, error) {
	now, err := a.clock()
	if err != nil {
		return nil, err
	}
	account := a.account(a.table.Account(req.Grant))
	a.order.RLock()
	defer a.order.RUnlock()
	var resp wire.ResolveResp
	wants := true
	if cell == "" {
		resp, wants, err = a.table.Resolve(now, *req, account)
	} else {
		resp, err = a.table.ResolveIssued(now, cell, *req, account, func(is *store.Issue, digest surrogate.Digest) bool {
			return a.store.Minted(is, digest, now.Wall)
		})
	}
	if err != nil {
		return nil, err
	}
	if wants && !reveal(&resp, account) {
		return nil, wire.Refuse(wire.CodeNotConnected, "the account was changed this very moment", "ask sentinel again")
	}
	if err := a.announce(now, wire.ReleasedReq{Grant: req.Grant, Entry: req.Entry, Call: resp.Call, Cell: resp.Cell,
		Worker: req.Worker, Account: resp.Account}); err != nil {
		return nil, err
	}
	return &resp, nil
}

// announce puts a release on sentinel's link. It does not wait for the answer, but nothing is released that is not
// written there.
func (a *Authd) announce(now grants.Now, r wire.ReleasedReq) error {
	n := a.current()
	if n == nil {
		return wire.Refuse(wire.CodeUnavailable, "sentinel is not there", "try again in a moment")
	}
	r, err := a.outbox.Put(now, r)
	if err != nil {
		return err
	}
	p, err := n.Send("released", &r)
	if err != nil {
		a.outbox.Acknowledge(r.Seq) // it is not released, so nobody is to hear of it
		return wire.Refuse(wire.CodeUnavailable, "sentinel is not there", "try again in a moment")
	}
	n.releases <- sent{r.Seq, p}
	return nil
}

// reveal puts the credential into the answer to egress. It is false where the account has just been changed or
// removed: its pages are gone then.
func reveal(resp *wire.ResolveResp, account *store.Account) bool {
	account.Secret.Use(func(b []byte) { resp.Secret = string(b) })
	if resp.Secret == "" {
		return false
	}
	resp.Scrub = []string{resp.Secret}
	if account.Placement.Kind == "basic" {
		resp.Scrub = append(resp.Scrub, account.Placement.User+":"+resp.Secret)
	}
	return true
}
