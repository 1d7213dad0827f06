// SPDX-License-Identifier: Apache-2.0

package authd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/doorward/doorward/authd/store"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// unlock opens the store with a passphrase, or makes a new one.
func (a *Authd) unlock(ctx context.Context, c *daemon.Call, req *wire.UnlockReq) (*wire.Empty, error) {
	defer clear(req.Passphrase)
	if !a.store.Locked() {
		return nil, a.refused(c, "", wire.Refuse(wire.CodeUsage, "the store is open already",
			"nothing needs to be done"))
	}
	err := a.store.UnlockPassphrase(req.Passphrase)
	freeMemory()
	if errors.Is(err, store.ErrWrongKey) {
		err = wire.Refuse(wire.CodeBadCredential, "this passphrase does not open the store",
			"try again; if header.json was restored or changed, restore the one this store was made with")
	}
	if err != nil {
		return nil, a.refused(c, "", err)
	}
	a.log.Info("store unlocked", daemon.KeyPeer, c.Peer.String(), "kept", string(a.store.Kept()),
		daemon.KeyCount, len(a.store.Accounts()))
	a.tell(ctx)
	return &wire.Empty{}, nil
}

// add puts an account in, or changes one. Sentinel hears of it before the answer, and has it decided.
func (a *Authd) add(ctx context.Context, c *daemon.Call, req *wire.AddReq) (*wire.AccountsResp, error) {
	defer clear(req.Secret)
	set := store.Settings{
		Name: req.Name, Vendor: req.Vendor, Base: req.Base, Placement: req.Placement, CA: string(req.CA),
		Permit: req.Permit, Also: req.Also, Workers: req.Workers, Scopes: req.Scopes, Owner: req.Owner,
	}
	if len(set.Workers) == 0 && req.Vendor != store.Custom {
		set.Workers = []string{req.Vendor}
	}
	slices.Sort(set.Workers)
	set.Workers = slices.Compact(set.Workers)
	change := a.store.Add
	if req.Replace {
		change = a.store.Replace
	}
	if err := change(set, req.Secret, time.Now()); err != nil {
		return nil, a.refused(c, "", err)
	}
	a.changed(ctx, c, req.Name)
	account, ok := a.store.Account(req.Name)
	if !ok {
		return nil, a.refused(c, "", fmt.Errorf("account %s was removed at once", req.Name))
	}
	return &wire.AccountsResp{Accounts: []wire.Account{account.Public()}}, nil
}

// list shows the accounts, without their credentials.
func (a *Authd) list(_ context.Context, c *daemon.Call, _ *wire.Empty) (*wire.AccountsResp, error) {
	if a.store.Locked() {
		return nil, a.refused(c, "", store.ErrLocked)
	}
	resp := &wire.AccountsResp{}
	for _, account := range a.store.Accounts() {
		resp.Accounts = append(resp.Accounts, account.Public())
	}
	return resp, nil
}

// rename gives an account another name, which a person decides on anew: decisions name accounts.
func (a *Authd) rename(ctx context.Context, c *daemon.Call, req *wire.RenameReq) (*wire.Empty, error) {
	if err := a.store.Rename(req.From, req.To, time.Now()); err != nil {
		return nil, a.refused(c, "", err)
	}
	a.changed(ctx, c, req.From)
	return &wire.Empty{}, nil
}

// remove deletes an account, with what is kept of its surrogates, and ends its grants.
func (a *Authd) remove(ctx context.Context, c *daemon.Call, req *wire.AccountRef) (*wire.Empty, error) {
	if err := a.store.Remove(req.Name); err != nil {
		return nil, a.refused(c, "", err)
	}
	a.changed(ctx, c, req.Name)
	return &wire.Empty{}, nil
}

// changed ends the grants of an account that is no longer what it was, and tells sentinel.
func (a *Authd) changed(ctx context.Context, c *daemon.Call, name string) {
	a.order.Lock()
	ended := a.table.Revoke(wire.GrantRef{Account: name})
	a.order.Unlock()
	a.log.Info("account changed", daemon.KeyVerb, c.Verb, daemon.KeyPeer, c.Peer.String(), daemon.KeyAccount, name,
		daemon.KeyCount, len(ended))
	a.tell(ctx)
}
