// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// Bounds of what the page's views ask at once.
const (
	maxSettings = 200 // lines of one change
	maxDenied   = 200 // sites that are listed
)

// webAccounts lists the accounts with what they need, and says what of Doorward itself is not well. Nothing is sent for it.
func (s *Sentinel) webAccounts(_ context.Context, _ *daemon.Call, req *wire.ListFrom) (*wire.AccountsView, error) {
	s.mu.Lock()
	accounts := slices.Collect(maps.Values(s.accounts))
	up, locked := s.instance != "", s.locked
	s.mu.Unlock()
	slices.SortFunc(accounts, func(a, b wire.Account) int { return strings.Compare(a.Name, b.Name) })
	live := map[string]int64{}
	for _, g := range s.ledger.Grants(ledger.GrantFilter{Live: true}) {
		live[g.Account]++
	}
	var all []wire.AccountView
	for i := range accounts {
		a := &accounts[i]
		v := wire.AccountView{Name: a.Name, Vendor: a.Vendor, At: baseURL(a.Base), Owner: a.Owner, Scopes: a.Scopes, Since: a.Unix,
			Health: s.healthOf(a), Card: s.waitsFor(widenAccount, a.Name), Used: live[a.Name]}
		if c := s.vendors[a.Vendor]; c != nil {
			v.Title = c.Title
		}
		if !s.decided(a) {
			v.Health = s.standing(a)
		}
		all = append(all, v)
	}
	r := new(wire.AccountsView)
	var err error
	if r.Accounts, r.Next, err = page(all, req.After, func(a *wire.AccountView) string { return a.Name }); err != nil {
		return nil, err
	}
	switch {
	case !up:
		r.Health = append(r.Health, "authd is down: no account can be used until it runs again")
	case locked:
		r.Health = append(r.Health, "authd waits for its passphrase: doorward unlock, on the machine")
	}
	if since, err := s.ledger.Health(); err != nil {
		r.Health = append(r.Health, fmt.Sprintf("the record cannot be written since %s, so nothing is let through: %v",
			since.Time().UTC().Format(time.RFC3339), s.ledgerError(err)))
	}
	cells, every := s.halts()
	switch {
	case every:
		r.Health = append(r.Health, "everything is stopped")
	case len(cells) > 0:
		r.Health = append(r.Health, "stopped: "+strings.Join(few(cells, "doorward session"), ", "))
	}
	return r, nil
}

// webSettings shows what the policy says, or changes lines of it as a person's `doorward policy load` of the changed file would: a
// session may narrow, and what widens is a card, of which a passkey decides. The files in the policy folder stay as they are.
func (s *Sentinel) webSettings(ctx context.Context, c *daemon.Call, req *wire.SettingsReq) (*wire.SettingsView, error) {
	if len(req.Lines) > maxSettings {
		return nil, wire.Refuse(wire.CodeTooMany, fmt.Sprintf("%d settings at once; %d can be changed", len(req.Lines), maxSettings), "")
	}
	if len(req.Lines) == 0 {
		return s.settingsView(ctx), nil
	}
	s.web.rules.Lock()
	defer s.web.rules.Unlock()
	if req.From != s.comparedWith() {
		return nil, wire.Refuse(wire.CodeConflict, "the policy is another than the one that was shown",
			"look at it again, and change it then")
	}
	files, err := s.decidedPolicy(ctx)
	if err != nil {
		return nil, err
	}
	lines := make([]policy.Line, len(req.Lines))
	for i, l := range req.Lines {
		lines[i] = policy.Line{Connector: l.Connector, Method: l.Method, Site: l.Site, Value: l.Value}
	}
	text, err := policy.Edit(files[policy.PolicyFile], lines...)
	if err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, "change the policy: "+err.Error(), "doorward policy load, on the machine")
	}
	files[policy.PolicyFile] = text
	size := 0
	for _, f := range files {
		size += len(f)
	}
	if !s.mayRecord(pageAllowance(c.Peer.Name), 2*size) { // a card has it, and the record the card
		return nil, tooMuchRecorded
	}
	changed, err := s.consider(ctx, asList(files), "load", actor(c.Peer))
	if err != nil {
		return nil, err
	}
	r := s.settingsView(ctx)
	r.Lines, r.Problems = changed.Lines, changed.Problems
	r.Card = orElse(changed.Widening, r.Card)
	return r, nil
}

func (s *Sentinel) settingsView(ctx context.Context) *wire.SettingsView {
	now := s.policy.Load()
	return &wire.SettingsView{Policy: s.comparedWith(), Connectors: now.Connectors(), Sites: now.Sites(), Denied: s.deniedSites(ctx),
		Notes: few(s.notesNow(now), "doorward policy check"), Card: s.waitsFor(widenPolicy, policy.PolicyFile)}
}

// deniedSites are those that a person said no to lately, the newest first.
func (s *Sentinel) deniedSites(ctx context.Context) []wire.DeniedSite {
	now := s.ledger.Now()
	all := slices.DeleteFunc(s.ledger.Settings(deniedPrefix), func(v ledger.Setting) bool {
		return len(v.Value) == 0 || now.Reached(v.At.Add(deniedFor))
	})
	slices.SortFunc(all, func(a, b ledger.Setting) int { return strings.Compare(string(b.Value), string(a.Value)) })
	var out []wire.DeniedSite
	for _, v := range all[:min(len(all), maxDenied)] {
		c, err := s.ledger.Call(ctx, string(v.Value))
		if err != nil {
			continue // a setting without its card says nothing that a person could read
		}
		out = append(out, wire.DeniedSite{Cell: c.Cell, Site: c.Account, Card: c.ID, Until: v.At.Add(deniedFor).Time().Unix()})
	}
	return out
}

// webLabels lists what every cell that is known has read.
func (s *Sentinel) webLabels(_ context.Context, _ *daemon.Call, req *wire.ListFrom) (*wire.LabelsView, error) {
	runs := map[string]bool{}
	for _, x := range s.ledger.Sessions("") {
		runs[x.Cell] = runs[x.Cell] || x.Ended.IsZero()
	}
	stopped, every := s.halts()
	cells := slices.Concat(slices.Collect(maps.Keys(runs)), stopped, s.ledger.Labelled(wire.LabelUntrusted),
		s.ledger.Labelled(wire.LabelPrivate))
	slices.Sort(cells)
	var all []wire.CellLabels
	for _, c := range slices.Compact(cells) {
		all = append(all, wire.CellLabels{Cell: c, Labels: s.causes(c), Runs: runs[c], Stopped: every || slices.Contains(stopped, c)})
	}
	r := new(wire.LabelsView)
	var err error
	r.Cells, r.Next, err = page(all, req.After, func(c *wire.CellLabels) string { return c.Cell })
	return r, err
}

// Bounds of one answer to a search.
const (
	findCards = 50
	findCalls = 20_000                 // that are looked at
	findFor   = 400 * time.Millisecond // after which it says how far it came
	findWords = 8
	findText  = 200 // bytes of them
)

// plainWord has the letters that JSON writes as they are.
const plainWord = "abcdefghijklmnopqrstuvwxyz0123456789-_.:/@#+"

// webFind looks for calls in the ledger, newest first, for as long as a person waits for an answer; what follows is asked for with
// Before. Bodies are not searched.
func (s *Sentinel) webFind(ctx context.Context, _ *daemon.Call, req *wire.FindReq) (*wire.FindResp, error) {
	words := strings.Fields(strings.ToLower(req.Words))
	if len(words) > findWords || len(req.Words) > findText {
		return nil, wire.Refuse(wire.CodeTooLarge, fmt.Sprintf("a search has at most %d words and %d bytes", findWords, findText),
			"look for less")
	}
	f := ledger.Filter{Cell: req.Cell, Before: req.Before, Limit: findCalls}
	if req.State != "" {
		if !slices.Contains(ledger.States(), ledger.State(req.State)) {
			return nil, wire.Refuse(wire.CodeBadArgument, "there is no state "+quote(string(req.State)), "")
		}
		f.States = []ledger.State{ledger.State(req.State)}
	}
	if req.From > 0 {
		f.Since = time.Unix(req.From, 0)
	}
	if req.To > 0 {
		f.Until = time.Unix(req.To, 0)
	}
	select {
	case s.web.finding <- struct{}{}:
		defer func() { <-s.web.finding }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var plain [][]byte // a call whose rows have none of them need not be decoded
	for _, w := range words {
		if strings.Trim(w, plainWord) == "" {
			plain = append(plain, []byte(w))
		}
	}
	r := new(wire.FindResp)
	size := 0
	began := time.Now()
	last := ""
	f.Peek = func(id string, rows ...[]byte) (bool, error) {
		if r.Looked > 0 && (len(r.Cards) == findCards || size > pageBytes || time.Since(began) > findFor) {
			return false, errEnough
		}
		last = id
		r.Looked++
		if len(plain) == 0 {
			return true, nil
		}
		all := bytes.ToLower(bytes.Join(rows, nil))
		return !slices.ContainsFunc(plain, func(w []byte) bool { return !bytes.Contains(all, w) }), nil
	}
	err := s.ledger.EachCall(ctx, f, func(c *ledger.Call) error {
		if req.Connector != "" && c.Connector != req.Connector {
			return nil
		}
		k, err := cardOf(c)
		if err != nil || !mentions(c, &k, words) {
			return err
		}
		brief(&k)
		k.Grantable = nil
		k.Became = s.became(c)
		b, err := wire.Marshal(&k)
		size += len(b)
		r.Cards = append(r.Cards, k)
		return err
	})
	if err == nil && r.Looked == findCalls {
		err = errEnough
	}
	switch {
	case errors.Is(err, errEnough):
		r.Next = last
		if c, err := s.ledger.Call(ctx, last); err == nil {
			r.Back = c.Created.Time().Unix()
		}
	case err != nil:
		return nil, s.ledgerError(err)
	}
	return r, nil
}

// mentions says whether each of the words, in lower case, stands somewhere in what names a call.
func mentions(c *ledger.Call, k *wire.Card, words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := []string{c.ID, c.Cell, c.Session, c.Connector, c.Method, c.Account, c.Mark, c.Object, c.Approver, string(c.State), k.Title}
	for _, f := range k.Fields {
		text = append(append(text, f.Label), f.Values...)
	}
	text = append(text, k.Facts...)
	all := strings.ToLower(strings.Join(text, "\n"))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
}

// became is what a call that waits no more came to; nil of one that does.
func (s *Sentinel) became(c *ledger.Call) *wire.Became {
	if c.State == ledger.Parked {
		return nil
	}
	return &wire.Became{Unix: c.Changed.Time().Unix(), By: c.Approver, Object: clip(c.Object, briefText), Link: s.madeAt(c)}
}

// madeAt is where a person finds what a call made; empty where that cannot be known.
func (s *Sentinel) madeAt(c *ledger.Call) string {
	s.mu.Lock()
	a := s.accounts[c.Account]
	s.mu.Unlock()
	if a.Vendor != c.Connector {
		return ""
	}
	return objectLink(&a, c.Object)
}

// objectLink is where a person finds at the vendor what a worker named, https; empty where that cannot be known. The name is a
// worker's word, so of it only what can be nothing but a name is taken.
func objectLink(a *wire.Account, object string) string {
	repo, number, ok := strings.Cut(object, "#")
	owner, name, two := strings.Cut(repo, "/")
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	plain := func(s, of string) bool {
		return s != "" && len(s) <= 100 && strings.Trim(s, of) == "" && s != "." && s != ".."
	}
	if a.Vendor != "github" || a.Base.Scheme != "https" || a.Base.Host != "api.github.com" || !two ||
		!plain(owner, letters) || !plain(name, letters+"._") || ok && !plain(number, "0123456789") {
		return ""
	}
	if !ok {
		return "https://github.com/" + owner + "/" + name
	}
	return "https://github.com/" + owner + "/" + name + "/issues/" + number // of a pull request, GitHub leads on to it
}
