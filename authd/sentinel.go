// SPDX-License-Identifier: Apache-2.0

package authd

import (
	"context"
	"errors"
	"time"

	"github.com/doorward/doorward/authd/grants"
	"github.com/doorward/doorward/authd/store"
	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// takeOver is how long a new link of sentinel's waits for the old one to be known dead. The kernel ends a dead
// process's connections at once, so a link that lives longer has a living owner.
const takeOver = 2 * time.Second

// heard is how long a change waits until sentinel has heard of it.
const heard = 2 * time.Second

// link is sentinel's one connection.
type link struct {
	*daemon.Link
	releases chan sent     // written to the link, in order; with room for all that the outbox holds
	detached chan struct{} // closed when the link is over and its grants are void
}

// sent is a release that stands on the link and is not acknowledged yet.
type sent struct {
	seq     uint64
	pending *daemon.Pending
}

// adopt makes a new connection sentinel's link, unless one lives. Grants that come before are refused.
func (a *Authd) adopt(l *daemon.Link) {
	go func() {
		a.mu.Lock()
		old := a.link
		a.mu.Unlock()
		if old != nil {
			select {
			case <-old.detached:
			case <-l.Done():
				return
			case <-time.After(takeOver):
				a.log.Error("a second sentinel was refused", daemon.KeyPeer, l.Peer.String())
				a.reports.put(wire.RefusedReq{
					Peer: l.Peer.String(), Code: wire.CodeNotAllowed, Detail: "a second connection while one lives",
				})
				l.Close()
				return
			}
		}
		a.attach(l)
	}()
}

// attach makes l sentinel's link, greets it with the accounts and the newest checkpoint, and repeats the releases that
// were not acknowledged. It returns when the link is over.
func (a *Authd) attach(l *daemon.Link) {
	n := &link{
		Link: l, releases: make(chan sent, 2*grants.MaxWaiting), detached: make(chan struct{}),
	}
	go a.acknowledge(n)
	err := a.greet(n)
	if errors.Is(err, errTaken) {
		close(n.releases)
		l.Close()
		return
	}
	if err != nil {
		a.log.Error("sentinel could not be greeted", daemon.KeyErr, err.Error())
		l.Close()
	} else {
		a.log.Info("sentinel connected")
		a.reports.wake()
	}
	<-l.Done()
	a.detach(n)
}

// errTaken: another connection that waited for the same old link was faster.
var errTaken = errors.New("another connection is sentinel's link")

// greet makes n the link and writes the first words on it. Until it returns no grant is taken and no revoke answered:
// whatever was released under an older link stands on this one before any answer.
func (a *Authd) greet(n *link) error {
	a.push.Lock()
	defer a.push.Unlock()
	a.order.Lock()
	defer a.order.Unlock()
	a.mu.Lock()
	taken := a.link != nil
	if !taken {
		a.link = n
	}
	a.mu.Unlock()
	if taken {
		return errTaken
	}
	pending, err := n.Send("accounts", a.accounts())
	if err != nil {
		return err
	}
	pending.Drop()
	for _, r := range a.outbox.Waiting() {
		p, err := n.Send("released", &r)
		if err != nil {
			return err
		}
		n.releases <- sent{r.Seq, p}
	}
	return nil
}

// detach voids every grant: sentinel has gone, and with it the right to use anything. When it returns nothing is
// written to n any more.
func (a *Authd) detach(n *link) {
	a.order.Lock()
	ended := a.table.Void()
	a.mu.Lock()
	a.link = nil
	a.mu.Unlock()
	close(n.releases)
	a.order.Unlock()
	close(n.detached)
	a.log.Warn("sentinel gone, grants void", daemon.KeyCount, len(ended))
}

// acknowledge takes sentinel's answers to releases. What the link takes with it stays in the outbox for the next one; what
// sentinel answers it cannot record (a full disk) is said again, or the outbox would fill and nothing be released any more.
func (a *Authd) acknowledge(n *link) {
	for s := range n.releases {
		var nothing wire.Empty
		_, err := s.pending.Wait(context.Background(), &nothing)
		var refusal *wire.Error
		switch {
		case err == nil:
			a.outbox.Acknowledge(s.seq)
		case errors.As(err, &refusal) && !errors.Is(err, daemon.ErrSent): // answered, not broken off
			time.AfterFunc(repeatAfter, func() { a.repeat(n, s.seq) })
		}
	}
}

// repeatAfter is when a release is said again that sentinel could not record.
const repeatAfter = time.Second

// repeat writes a release on the link again, where that still is sentinel's.
func (a *Authd) repeat(n *link, seq uint64) {
	a.order.RLock()
	defer a.order.RUnlock()
	if a.current() != n {
		return
	}
	for _, r := range a.outbox.Waiting() {
		if r.Seq != seq {
			continue
		}
		if p, err := n.Send("released", &r); err == nil {
			n.releases <- sent{seq, p}
		}
		return
	}
}

// current is sentinel's link, nil where there is none.
func (a *Authd) current() *link {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.link
}

// owns says whether a request came on sentinel's one link.
func (a *Authd) owns(c *daemon.Call) error {
	if n := a.current(); n == nil || n.Link != c.Link {
		return wire.Refuse(wire.CodeUnavailable, "this connection is not sentinel's link yet", "wait for `accounts` on it")
	}
	return nil
}

// accounts is what sentinel may know. Preconditions: a.push is held.
func (a *Authd) accounts() *wire.AccountsReq {
	req := &wire.AccountsReq{Instance: a.instance, Locked: a.store.Locked()}
	for _, account := range a.store.Accounts() {
		req.Accounts = append(req.Accounts, account.Public())
	}
	req.Checkpoint, _ = a.store.Checkpoint()
	return req
}

// tell sends sentinel the accounts after a change, and waits a moment until it has heard.
func (a *Authd) tell(ctx context.Context) {
	a.push.Lock()
	n := a.current()
	if n == nil {
		a.push.Unlock()
		return // it hears them when it connects
	}
	pending, err := n.Send("accounts", a.accounts())
	a.push.Unlock()
	if err == nil {
		var nothing wire.Empty
		ctx, cancel := context.WithTimeout(ctx, heard)
		defer cancel()
		_, err = pending.Wait(ctx, &nothing)
	}
	if err != nil {
		a.log.Warn("sentinel did not take the accounts", daemon.KeyErr, err.Error())
	}
}

// grant takes a grant in.
func (a *Authd) grant(_ context.Context, c *daemon.Call, req *wire.GrantReq) (*wire.Empty, error) {
	a.order.RLock()
	defer a.order.RUnlock()
	if err := a.owns(c); err != nil {
		return nil, err
	}
	if a.store.Locked() {
		return nil, a.refused(c, req.Grant, store.ErrLocked)
	}
	now, err := a.clock()
	if err == nil {
		err = a.table.Add(now, *req, a.account(req.Account))
	}
	if err != nil {
		return nil, a.refused(c, req.Grant, err)
	}
	return &wire.Empty{}, nil
}

// revoke ends grants, and with the name of an issue its surrogates. When it is answered, no release of theirs follows. An error
// about surrogates leaves the grants ended: it is to be asked again.
func (a *Authd) revoke(_ context.Context, c *daemon.Call, req *wire.GrantRef) (*wire.RevokeResp, error) {
	a.order.Lock()
	defer a.order.Unlock()
	if err := a.owns(c); err != nil {
		return nil, err
	}
	resp := &wire.RevokeResp{Grants: a.table.Revoke(*req)}
	if req.Grant == "" {
		return resp, nil
	}
	minted, err := a.store.EndIssue(req.Grant)
	if err != nil {
		return nil, a.refused(c, req.Grant, err)
	}
	if minted {
		c.Later(func(context.Context) error { return a.saved(c, req.Grant, a.store.SaveMinted) })
	}
	return resp, nil
}

// mint makes a custom surrogate, which is in the answer and nowhere else: the store has its digest.
func (a *Authd) mint(_ context.Context, c *daemon.Call, req *wire.MintReq) (*wire.MintResp, error) {
	if err := a.owns(c); err != nil {
		return nil, err
	}
	now, err := a.clock()
	if err != nil {
		return nil, a.refused(c, req.Issue, err)
	}
	account := a.account(req.Account)
	switch {
	case a.store.Locked():
		return nil, a.refused(c, req.Issue, store.ErrLocked)
	case account == nil:
		return nil, a.refused(c, req.Issue, wire.Refuse(wire.CodeNotConfigured, "there is no account of that name",
			"see `doorward account list`"))
	}
	value, err := account.Shape.Mint(a.random)
	if err != nil {
		return nil, a.refused(c, req.Issue, err)
	}
	is := store.Issue{ID: req.Issue, Cell: req.Cell, Account: req.Account, Generation: req.Generation, Digest: req.Digest}
	save, err := a.store.Mint(is, surrogate.DigestOf(value), req.Unix, now.Wall)
	if err != nil {
		return nil, a.refused(c, req.Issue, err)
	}
	c.Later(func(context.Context) error { return a.saved(c, req.Issue, save) })
	return &wire.MintResp{Value: value}, nil
}

// saved is what a handler answers that has left the disk for later: the connection's next frames do not wait for it.
func (a *Authd) saved(c *daemon.Call, issue string, save func() error) error {
	if err := save(); err != nil {
		return a.refused(c, issue, err)
	}
	return nil
}

// checkpoint keeps sentinel's newest checkpoint.
func (a *Authd) checkpoint(_ context.Context, c *daemon.Call, req *wire.CheckpointReq) (*wire.Empty, error) {
	if err := a.owns(c); err != nil {
		return nil, err
	}
	if err := a.store.KeepCheckpoint(req.Note, req.Size); err != nil {
		return nil, a.refused(c, "", err)
	}
	return &wire.Empty{}, nil
}
