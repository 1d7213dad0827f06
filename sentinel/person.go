// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"sort"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// pending lists what waits, oldest first, without bodies. Alike ones say how many there are.
func (s *Sentinel) pending(ctx context.Context, _ *daemon.Call, req *wire.ListFrom) (*wire.PendingResp, error) {
	waiting, alike := s.waitlist.list(s.ledger)
	r := &wire.PendingResp{Total: len(waiting)}
	if len(waiting) > 0 {
		r.Newest = waiting[len(waiting)-1].ID
	}
	from := sort.Search(len(waiting), func(i int) bool { return waiting[i].ID > req.After })
	size := 0
	for i := from; i < len(waiting); i++ {
		if req.Limit > 0 && len(r.Cards) >= req.Limit { // nothing is read of what is not asked for
			r.Next = r.Cards[len(r.Cards)-1].ID
			return r, nil
		}
		b, err := s.briefOf(ctx, waiting[i].ID)
		if err != nil {
			return nil, err
		}
		if b.size == 0 {
			continue
		}
		if size += b.size; size > pageBytes && len(r.Cards) > 0 {
			r.Next = r.Cards[len(r.Cards)-1].ID
			return r, nil
		}
		b.card.Alike = alike[i]
		r.Cards = append(r.Cards, b.card)
	}
	return r, nil
}

// Bounds of a card in a list.
const (
	briefValues = 6    // of a field, and of the facts
	briefText   = 120  // bytes of one of them
	briefGrant  = 1024 // bytes of the grant that is offered
)

// brief leaves of a card what a list shows: without bodies, and nothing that a cell could make long.
func brief(k *wire.Card) {
	few := func(values []string) []string {
		more := len(values) - briefValues
		values = values[:min(len(values), briefValues)]
		for i := range values {
			values[i] = clip(values[i], briefText)
		}
		if more > 0 {
			values = append(values, fmt.Sprintf("and %d more", more))
		}
		return values
	}
	k.Bodies = nil
	k.Title, k.Reason = clip(k.Title, briefText), clip(k.Reason, briefText)
	k.Facts, k.Policies = few(k.Facts), few(k.Policies)
	for i := range k.Fields {
		k.Fields[i].Values = few(k.Fields[i].Values)
	}
	if g, err := wire.Marshal(k.Grantable); k.Grantable != nil && (err != nil || len(g) > briefGrant) {
		k.Grantable = nil
	}
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// show is one card in full.
func (s *Sentinel) show(ctx context.Context, _ *daemon.Call, req *wire.CallRef) (*wire.ShowResp, error) {
	c, err := s.ledger.Call(ctx, req.Call)
	if err != nil {
		return nil, s.ledgerError(err)
	}
	k, err := cardOf(&c)
	if err != nil {
		return nil, err
	}
	s.seen(ctx, c.ID)
	return &wire.ShowResp{Card: k}, nil
}

// decideCard is a person's yes or no at a terminal.
func (s *Sentinel) decideCard(ctx context.Context, c *daemon.Call, req *wire.DecideCardReq) (*wire.DecideCardResp, error) {
	if req.Approve && !s.policy.Load().Limits().TerminalApprovals {
		return nil, wire.Refuse(wire.CodeNotAllowed, "limits.toml switches approvals at a terminal off", "")
	}
	return s.decideAs(ctx, c, req, nil)
}

// decideAs does what a person decided, at a terminal or by a passkey. A yes is over the hash of what was shown; the bytes that run are
// those the hash is over. evidence, which may be nil, goes into the record of a yes.
func (s *Sentinel) decideAs(ctx context.Context, c *daemon.Call, req *wire.DecideCardReq, evidence map[string]string,
) (*wire.DecideCardResp, error) {
	by := actor(c.Peer)
	if !req.Approve {
		var got ledger.Call
		err := s.whileApprover(c.Peer, evidence, func() (err error) {
			got, err = s.ledger.Deny(ctx, req.ID, by, req.Why)
			return err
		})
		if err != nil {
			return nil, s.lateError(ctx, req.ID, err)
		}
		s.forget(got.Spool)
		s.changed(got)
		if err := s.keepNo(ctx, &got, by); err != nil {
			return nil, s.ledgerError(err)
		}
		if req.Stop && got.Session != "" {
			_, err := s.revoke(ctx, c, &wire.PersonRevokeReq{Session: got.Session})
			if err != nil && codeOf(err) != wire.CodeNotFound { // it may have ended by itself
				return nil, err
			}
		}
		return &wire.DecideCardResp{State: wire.State(got.State)}, nil
	}
	set := s.policy.Load()
	call, err := s.ledger.Call(ctx, req.ID)
	if err != nil {
		return nil, s.ledgerError(err)
	}
	if req.Grant != nil {
		if k, err := cardOf(&call); err != nil || k.Grantable == nil {
			return nil, wire.Refuse(wire.CodeNotAllowed, "its card offers no grant, so none can be made of it", "approve it once")
		}
	}
	details := maps.Clone(evidence)
	a := ledger.Approval{ID: req.ID, By: by, Hash: hex.EncodeToString(req.Hash), Scope: ledger.KindOnce}
	switch {
	case call.Connector == self && call.Method == widenSurrogate && call.State == ledger.Parked:
		if err := s.mayApprove(&call); err != nil {
			return nil, err // and the card waits on
		}
	case call.Connector == self && asksFirst(call.Method):
		approved := s.approvedSite
		if call.Method == widenRequest {
			approved = s.approvedRequest
		}
		if a.Grant, err = approved(&call, req.Grant); err != nil {
			return nil, err
		}
		a.Scope = a.Grant.Kind
	case req.Grant != nil:
		g := *req.Grant
		if g.Connector != call.Connector || g.Method != call.Method || g.Account != call.Account || g.Cell != call.Cell {
			return nil, wire.Refuse(wire.CodeBadArgument, "the grant is for another connector, method, account or cell than the call", "")
		}
		// The card and its limits are of the method as it was then.
		if call.Meaning == "" || call.Meaning != s.meaning(call.Connector, call.Method) {
			return nil, wire.Refuse(wire.CodeWrongDescription, "the method has changed since it was asked", "deny it; the cell asks again")
		}
		if g, err = set.Validate(g, call.Sensitive, time.Now()); err != nil {
			return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "doorward show "+req.ID+" has the limits prefilled")
		}
		if a.Grant, err = asKept(&g, call.Login, call.Meaning, call.Sensitive, s.ledger.Now()); err != nil {
			return nil, err
		}
		if a.Scope = g.Kind; details == nil {
			details = map[string]string{}
		}
		details["grant"] = g.Sentence
	}
	if details != nil {
		a.Details = details
	}
	var got ledger.Call
	err = s.whileApprover(c.Peer, evidence, func() (err error) {
		got, err = s.ledger.Approve(ctx, a)
		return err
	})
	if err != nil {
		return nil, s.lateError(ctx, req.ID, err)
	}
	s.changed(got)
	r := &wire.DecideCardResp{State: wire.StateApproved}
	if a.Grant != nil {
		r.Grant = a.Grant.ID
	}
	if got.Connector == self {
		if err := s.run(context.WithoutCancel(ctx), got); err != nil {
			r.Err = wire.Refuse(codeOf(err), reasonOf(err), orElse(nextOf(err), "doorward show "+got.ID))
		}
		if now, err := s.ledger.Call(ctx, got.ID); err == nil {
			r.State = wire.State(now.State)
		}
		return r, nil
	}
	go s.run(s.lifetime, got)
	return r, nil
}

// lateError is ledgerError that tells who comes late who was there before.
func (s *Sentinel) lateError(ctx context.Context, id string, err error) error {
	if errors.Is(err, ledger.ErrState) {
		if now, nerr := s.ledger.Call(ctx, id); nerr == nil && now.Approver != "" {
			return wire.Refuse(stateCode(now.State), "it was approved already, by "+now.Approver+", and is "+string(now.State), "")
		}
	}
	return s.ledgerError(err)
}

// grantsVerb lists the grants that live.
func (s *Sentinel) grantsVerb(_ context.Context, _ *daemon.Call, req *wire.ListFrom) (*wire.GrantsResp, error) {
	var all []wire.Grant
	for _, g := range s.ledger.Grants(ledger.GrantFilter{}) {
		if g.State == ledger.GrantLive || g.State == ledger.GrantUnconfirmed {
			all = append(all, s.asGrant(&g))
		}
	}
	r := new(wire.GrantsResp)
	var err error
	r.Grants, r.Next, err = page(all, req.After, func(g *wire.Grant) string { return g.ID })
	return r, err
}

// revoke ends one grant, or all of an account, a session or a cell, and what runs under them.
func (s *Sentinel) revoke(ctx context.Context, c *daemon.Call, req *wire.PersonRevokeReq) (*wire.Report, error) {
	f := ledger.GrantFilter{ID: req.Grant, Account: req.Account, Session: req.Session, Cell: req.Cell}
	set := 0
	for _, x := range []string{req.Grant, req.Account, req.Session, req.Cell} {
		if x != "" {
			set++
		}
	}
	if set != 1 {
		return nil, wire.Refuse(wire.CodeBadArgument, "name one grant, account, session or cell", "")
	}
	ctx = context.WithoutCancel(ctx) // a person who hangs up does not stop it halfway
	by := actor(c.Peer)
	named := func(c *ledger.Call) bool { // the calls that are taken back whatever they run under
		return (c.Connector != self || asksFirst(c.Method)) && (req.Account != "" && c.Account == req.Account ||
			req.Cell != "" && c.Cell == req.Cell || req.Session != "" && c.Session == req.Session)
	}
	gone, err := s.ledger.RevokeGrants(ctx, f, by, "a person revoked it")
	if err != nil {
		return nil, s.ledgerError(err)
	}
	r := new(wire.Report)
	for _, g := range gone {
		r.Lines = append(r.Lines, "grant "+g.ID+" of "+g.Connector+" "+g.Method+" is revoked")
	}
	if req.Account != "" { // the account is usable again only after a new decision
		if _, known := s.ledger.Setting("account/" + req.Account); !known {
			return nil, wire.Refuse(wire.CodeNotFound, "no account "+quote(req.Account)+" was ever decided",
				"doorward account list shows them")
		}
		if err := s.ledger.PutSetting(ctx, "account/"+req.Account, nil, by, nil); err != nil {
			return nil, s.ledgerError(err)
		}
		r.Lines = append(r.Lines, "account "+req.Account+" is not used any more until it is decided again")
		r.Lines = append(r.Lines, s.cutAccount(ctx, req.Account)...)
	}
	if req.Session != "" {
		if _, err := s.ledger.EndSession(ctx, req.Session, endedByPerson, by); err != nil {
			return nil, s.ledgerError(err)
		}
		r.Lines = append(r.Lines, "session "+req.Session+" is ended")
	}
	s.mu.Lock() // what begins from here on finds that it was taken back
	var under []*live
	for _, l := range s.live {
		hit := named(&l.call) || req.Grant != "" && l.call.Under == req.Grant // a grant's last use may be running
		for _, g := range gone {
			hit = hit || l.call.Under == g.ID
		}
		if hit {
			under = append(under, l)
		}
	}
	s.mu.Unlock()
	r.Lines = append(r.Lines, s.cutSites(ctx, gone)...)
	r.Lines = append(r.Lines, s.endAll(ctx, under, wire.CodeRevoked, "a person revoked it")...)
	for _, l := range under {
		r.MayHaveRun = append(r.MayHaveRun, s.mayHaveRun(ctx, l)...)
		r.Lines = append(r.Lines, fmt.Sprintf("%s %s %s, which ran, is cut", l.call.ID, l.call.Connector, l.call.Method))
	}
	dropped, err := s.dropParked(ctx, named, by)
	if err != nil {
		return nil, err
	}
	for _, d := range dropped {
		r.Lines = append(r.Lines, fmt.Sprintf("%s %s %s, which waited, is revoked", d.ID, d.Connector, d.Method))
	}
	if req.Account != "" {
		go s.askAccounts()
	}
	r.Lines, r.MayHaveRun = few(r.Lines, "doorward audit list"), few(r.MayHaveRun, "doorward audit list")
	if len(r.Lines) == 0 && len(r.MayHaveRun) == 0 {
		return nil, wire.Refuse(wire.CodeNotFound, "nothing of that name lives", "doorward grants lists what does")
	}
	return r, nil
}

// endedByPerson is why a session ended that did not end by itself.
const endedByPerson = "a person ended it"

// dropParked takes back the calls that wait, or were approved and do not run yet, and that which says.
func (s *Sentinel) dropParked(ctx context.Context, which func(*ledger.Call) bool, by string) ([]ledger.Call, error) {
	waiting, err := s.ledger.Calls(ctx, ledger.Filter{States: []ledger.State{ledger.Parked, ledger.Approved}})
	if err != nil {
		return nil, s.ledgerError(err)
	}
	var out []ledger.Call
	for i := range waiting {
		if !which(&waiting[i]) {
			continue
		}
		got, err := s.ledger.Revoke(ctx, waiting[i].ID, by, string(wire.CodeRevoked), "a person revoked it")
		if errors.Is(err, ledger.ErrState) {
			continue // somebody was faster
		}
		if err != nil {
			return out, s.ledgerError(err)
		}
		s.forget(got.Spool)
		s.changed(got)
		out = append(out, got)
	}
	return out, nil
}

// mayHaveRun says of a write that was cut what the record says of it now, unless it surely did not run.
func (s *Sentinel) mayHaveRun(ctx context.Context, l *live) []string {
	now, err := s.ledger.Call(ctx, l.call.ID)
	if err != nil || now.State == ledger.Failed || now.Class == describe.Read {
		return nil
	}
	return []string{fmt.Sprintf("%s %s %s is %s", now.ID, now.Connector, now.Method, now.State)}
}

// sessionVerb lists the sessions that live, or ends one.
func (s *Sentinel) sessionVerb(ctx context.Context, c *daemon.Call, req *wire.SessionReq) (*wire.SessionResp, error) {
	if req.End != "" {
		if _, err := s.revoke(ctx, c, &wire.PersonRevokeReq{Session: req.End}); err != nil {
			return nil, err
		}
	}
	r := new(wire.SessionResp)
	var all []wire.Session
	for _, x := range s.ledger.Sessions("") {
		if x.Ended.IsZero() {
			all = append(all, wire.Session{Cell: x.Cell, Name: x.ID, Attended: x.Attended, By: orElse(x.By, x.Run),
				Began: x.Began.Time().Unix()})
		}
	}
	var err error
	r.Sessions, r.Next, err = page(all, req.After, func(x *wire.Session) string { return x.Name })
	return r, err
}

// taint shows a cell's labels; taking them away is a widening.
func (s *Sentinel) taint(ctx context.Context, c *daemon.Call, req *wire.TaintReq) (*wire.TaintResp, error) {
	r := &wire.TaintResp{Labels: s.causes(req.Cell)}
	if req.Clear {
		if err := wire.CellName(req.Cell); err != nil { // see stop
			return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "doorward cell list")
		}
		id, err := s.widen(ctx, widening{Kind: widenClear, About: req.Cell,
			Lines: []string{"the cell counts as if it had read nothing of others and nothing private"}},
			"clear the labels of "+req.Cell, actor(c.Peer))
		if err != nil {
			return nil, err
		}
		r.Widening = id
	}
	return r, nil
}

// check runs an account's declared read as an ordinary call of nobody's cell, on the record. Without a name it asks no
// vendor, but says which accounts need attention by what the vendors answered last.
func (s *Sentinel) check(ctx context.Context, c *daemon.Call, req *wire.CheckReq) (*wire.Output, error) {
	if req.Account == "" {
		return s.unwell()
	}
	s.mu.Lock()
	a, ok := s.accounts[req.Account]
	s.mu.Unlock()
	if !ok {
		return nil, wire.Refuse(wire.CodeNotFound, "no account "+quote(req.Account), "doorward account list shows them")
	}
	vendor, ok := s.vendors[a.Vendor]
	switch {
	case a.Vendor == customVendor:
		return nil, wire.Refuse(wire.CodeNotConfigured, "the account "+a.Name+" has no test read: it is for the programs of cells",
			"doorward surrogate list shows which cells have it; try it in one of them, and see: doorward why "+a.Base.Host)
	case !ok:
		return nil, wire.Refuse(wire.CodeUnknownConnector, "no connector "+quote(a.Vendor)+" is installed",
			"install it again; or doorward account remove "+a.Name)
	}
	who := peer.Identity{Kind: peer.Person, UID: c.Peer.UID, Name: "", Session: actor(c.Peer)}
	f := wire.Frame{Connector: a.Vendor, Description: vendor.Digest(), Account: a.Name, Method: vendor.Check}
	j, err := s.judgeSilent(ctx, who, &f)
	if err != nil {
		return nil, err
	}
	out, _, err := s.runRead(ctx, j, false)
	if err != nil {
		return nil, err
	}
	out.JSON = []byte(clip(string(out.JSON), wire.MaxInline/2))
	return out, nil
}
