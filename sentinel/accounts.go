// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// accountsPushed is authd's word of its accounts, at connect and at each change. At connect it tells whether sentinel's
// own ledger is the newest, and lets the calls be settled that were running when sentinel or the link ended.
func (s *Sentinel) accountsPushed(ctx context.Context, c *daemon.Call, req *wire.AccountsReq) (*wire.Empty, error) {
	s.mu.Lock()
	fresh := s.instance == ""
	s.mu.Unlock()
	var unknown []ledger.Call
	if fresh { // before anything can run on this link
		unknown = s.compare(ctx, req.Checkpoint)
	}
	s.mu.Lock()
	s.instance, s.locked = req.Instance, req.Locked
	s.accounts = make(map[string]wire.Account, len(req.Accounts))
	for _, a := range req.Accounts {
		s.accounts[a.Name] = a
	}
	orphans := s.orphans
	if fresh {
		s.orphans = nil
	}
	s.mu.Unlock()
	if s.told != nil {
		s.told()
	}
	if fresh {
		// authd repeats what was not acknowledged on this link before it answers anything, and handlers of released run
		// in order; an answer to revoke is behind all of them.
		ctx := context.WithoutCancel(ctx)
		go s.connected(ctx, req, orphans)
		for _, c := range unknown {
			go func() {
				_ = s.cut(ctx, wire.GrantRef{Grant: c.Pass}) // what may be on its way ends before it is looked for
				s.settle(ctx, c)
			}()
		}
	}
	c.Later(func(context.Context) error { // who adds an account hears when its card is there
		s.askAccounts()
		return nil
	})
	return &wire.Empty{}, nil
}

// askAccounts has a person decide every account that is not decided as it is.
func (s *Sentinel) askAccounts() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.accounts))
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b wire.Account) int { return strings.Compare(a.Name, b.Name) })
	for _, a := range all {
		if s.decided(&a) {
			continue
		}
		if _, err := s.askAccount(a); err != nil && s.lifetime.Err() == nil {
			s.log.Error("an account cannot be put up for decision", "account", a.Name, "err", err.Error())
		}
	}
}

// compare holds the ledger to the checkpoint that authd keeps. Where it does not fit, what an older ledger would say of
// approvals and grants does not count. That is done once for each checkpoint, which authd keeps until the record has
// outgrown it. It returns the calls that may have run and are to be looked up.
func (s *Sentinel) compare(ctx context.Context, checkpoint []byte) (unknown []ledger.Call) {
	if len(checkpoint) == 0 {
		return nil
	}
	err := s.ledger.Against(ctx, checkpoint)
	switch {
	case err == nil:
		return nil
	case s.ledger.Rewound(checkpoint):
		s.log.Warn("the ledger is still shorter than the checkpoint that authd keeps; that was dealt with", "err", err.Error())
		return nil
	}
	s.log.Error("the ledger does not fit the checkpoint that authd keeps; approved calls are void", "err", err.Error())
	calls, _, err := s.ledger.Rewind(ctx, err.Error(), checkpoint)
	if err != nil {
		s.log.Error("the ledger is not put right", "err", err.Error())
		return nil
	}
	s.voidSurrogates(ctx, "the record was put back")
	s.voidApprovers(ctx, "the record was put back")
	for _, c := range calls {
		s.changed(c)
		if c.State == ledger.Unknown {
			unknown = append(unknown, c)
		} else {
			s.forget(c.Spool)
		}
	}
	return unknown
}

// connected does what waits for authd: settle what was running, and leave the newest checkpoint. A person is asked about
// the grants that an older ledger left unconfirmed.
func (s *Sentinel) connected(ctx context.Context, req *wire.AccountsReq, orphans []ledger.Call) {
	for _, c := range orphans {
		if err := s.voidGrant(ctx, c.Pass); err != nil {
			s.log.Warn("a grant could not be voided", "call", c.ID, "err", err.Error())
		}
		s.endOrphan(ctx, c.ID, req.Instance)
	}
	s.endIssues(ctx)
	if note, err := s.ledger.Checkpoint(ctx); err == nil {
		s.giveCheckpoint(note)
	}
	s.askUnconfirmed(ctx)
}

// askUnconfirmed has a person decide every grant that an older ledger left unconfirmed.
func (s *Sentinel) askUnconfirmed(ctx context.Context) {
	for _, g := range s.ledger.Grants(ledger.GrantFilter{}) {
		if g.State != ledger.GrantUnconfirmed {
			continue
		}
		_, err := s.widen(ctx, widening{Kind: widenConfirm, About: g.ID, Lines: []string{s.asGrant(&g).Sentence}},
			"keep a grant from before the record was put back", "sentinel")
		if err != nil {
			s.log.Error("a grant cannot be put up for decision", "grant", g.ID, "err", err.Error())
		}
	}
}

// giveCheckpoint leaves a checkpoint with authd. Failure is no loss: the next one covers more.
func (s *Sentinel) giveCheckpoint(note []byte) {
	var size int64
	if _, err := fmt.Sscanf(string(note), ledger.Origin+"\n%d\n", &size); err != nil {
		s.log.Error("a checkpoint does not say its size", "err", err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(s.lifetime, 5*time.Second)
	defer cancel()
	if err := s.authd.Call(ctx, "checkpoint", &wire.CheckpointReq{Note: note, Size: size}, &wire.Empty{}); err != nil {
		s.log.Debug("a checkpoint is not with authd", "err", err.Error())
	}
}

// authdGone: the link is down, so authd has voided every grant. What was released is known here, since authd writes it
// on the link before it answers egress.
func (s *Sentinel) authdGone() {
	s.passes.forget("")
	s.mu.Lock()
	s.instance = ""
	var all []*live
	for _, l := range s.live {
		all = append(all, l)
	}
	s.mu.Unlock()
	for _, l := range all {
		l.mu.Lock()
		released := len(l.released)
		l.mu.Unlock()
		if released == 0 {
			go s.abandon(s.lifetime, l, wire.CodeUnavailable, "authd went away before the credential was released")
		}
	}
}

// authdRefused puts a refusal of authd into the record.
func (s *Sentinel) authdRefused(_ context.Context, _ *daemon.Call, req *wire.RefusedReq) (*wire.Empty, error) {
	s.refused("authd", req.Peer, req.Grant, req.Code, req.Verb+": "+req.Detail)
	return &wire.Empty{}, nil
}

// startFor bounds how long calls that came while sentinel was away wait, after its start, for what authd tells.
const startFor = 2 * time.Second

// account picks the account of a call: the named one, or the only one.
func (s *Sentinel) account(vendor, name string) (wire.Account, error) {
	if s.starting != nil {
		<-s.starting.Done()
	}
	s.mu.Lock()
	up, locked := s.instance != "", s.locked
	s.mu.Unlock()
	switch {
	case !up:
		return wire.Account{}, wire.Refuse(wire.CodeUnavailable, "authd is down, so no account can be used", "try again later")
	case locked:
		return wire.Account{}, wire.Refuse(wire.CodeLocked, "authd waits for its passphrase", "the person runs: doorward unlock")
	}
	all := s.accountsOf(vendor)
	var fit []wire.Account
	for _, a := range all {
		if name == "" || a.Name == name {
			fit = append(fit, a)
		}
	}
	switch {
	case len(all) == 0:
		return wire.Account{}, wire.Refuse(wire.CodeNotConfigured, "no account of "+vendor,
			"the person runs: doorward account add "+vendor+" NAME")
	case len(fit) == 0:
		return wire.Account{}, wire.Refuse(wire.CodeNotFound, "no account "+quote(name)+" of "+vendor,
			"connector list "+vendor+" shows them")
	case len(fit) > 1:
		names := make([]string, len(fit))
		for i := range fit {
			names[i] = fit[i].Name
		}
		return wire.Account{}, wire.Refuse(wire.CodeAmbiguousAccount, "more than one account of "+vendor+": "+strings.Join(names, ", "),
			"name one with --account")
	case !s.decided(&fit[0]):
		return wire.Account{}, s.refuseUndecided(&fit[0])
	case fit[0].Health != "":
		return wire.Account{}, wire.Refuse(fit[0].Health, "the account needs attention",
			"the person runs: doorward account show "+fit[0].Name)
	}
	return fit[0], nil
}

// accountsOf are a vendor's accounts by name.
func (s *Sentinel) accountsOf(vendor string) []wire.Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []wire.Account
	for _, a := range s.accounts {
		if a.Vendor == vendor {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b wire.Account) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// decided says whether a person has decided this account as it is now: where it lives and who may use it. A new secret
// for the same place raises its generation, which is decided anew too: it may be another person's login.
func (s *Sentinel) decided(a *wire.Account) bool {
	v, ok := s.ledger.Setting("account/" + a.Name)
	return ok && string(v.Value) == accountValue(a)
}

func accountValue(a *wire.Account) string {
	return fmt.Sprintf("%s/%d", hex.EncodeToString(a.Digest[:]), a.Generation)
}

// accountDeniedKey is before the name of an account that a person said no to: as it was then, like accountValue.
const accountDeniedKey = "account-denied/"

// standing says of an account that no person has decided as it is whether one said no to it: denied, or else not_connected.
func (s *Sentinel) standing(a *wire.Account) wire.Code {
	v, _ := s.ledger.Setting(accountDeniedKey + a.Name)
	if string(v.Value) == accountValue(a) && s.waitsFor(widenAccount, a.Name) == "" {
		return wire.CodeDenied
	}
	return wire.CodeNotConnected
}

// refuseUndecided refuses the use of an account that no person has decided as it is.
func (s *Sentinel) refuseUndecided(a *wire.Account) error {
	again := "the person has it asked again: doorward account add " + a.Vendor + " " + a.Name + " --replace"
	if a.Vendor == customVendor {
		again = "the person has it asked again: doorward surrogate add " + a.Name + " --cell CELL --manifest FILE"
	}
	card := s.waitsFor(widenAccount, a.Name)
	switch {
	case card != "":
		return wire.Refuse(wire.CodeNotConnected, "the account "+a.Name+" waits for a person's decision",
			"the person decides on it first: doorward approve "+card)
	case s.standing(a) == wire.CodeDenied:
		return wire.Refuse(wire.CodeNotConnected, "the account "+a.Name+" was denied: a person said no to it", again)
	}
	return wire.Refuse(wire.CodeNotConnected, "nobody has decided on the account "+a.Name+", and no card of it waits", again)
}

// waitsFor is the id of the card of that kind about something, or "" where none waits.
func (s *Sentinel) waitsFor(kind, about string) string {
	for _, w := range s.ledger.Waiting() {
		if w.Connector == self && w.Method == kind && w.Account == about && w.State == ledger.Parked {
			return w.ID
		}
	}
	return ""
}
