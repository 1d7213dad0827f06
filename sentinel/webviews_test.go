// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

func TestTheViewsWantASession(t *testing.T) {
	s := newWard(t)
	b := s.enrolled(t, "ada") // who has not signed in
	b.session = make([]byte, 32)
	for name, ask := range map[string]func() error{
		"accounts": func() error { _, err := answerTo(b, "accounts", s.webAccounts, wire.ListFrom{}); return err },
		"settings": func() error { _, err := answerTo(b, "settings", s.webSettings, wire.SettingsReq{}); return err },
		"labels":   func() error { _, err := answerTo(b, "labels", s.webLabels, wire.ListFrom{}); return err },
		"taint": func() error {
			_, err := answerTo(b, "taint", s.taint, wire.TaintReq{Cell: "work", Clear: true})
			return err
		},
		"find": func() error { _, err := answerTo(b, "find", s.webFind, wire.FindReq{}); return err },
	} {
		if err := ask(); codeOf(err) != wire.CodeNoSession {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(s.ledger.Waiting()); n > 0 {
		t.Errorf("%d cards wait", n)
	}
}

func TestTheAccountsAndWhatTheyNeed(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	s.addAccount(t, "refused")
	a := s.accounts["refused"]
	a.Generation = 7
	s.accounts["refused"] = a
	if err := s.ledger.PutSetting(t.Context(), "account/refused", []byte(accountValue(&a)), "person:1000", nil); err != nil {
		t.Fatal(err)
	}
	s.health.heard(7, unauthorized)
	s.accounts["new"] = wire.Account{Name: "new", Vendor: "demo", Generation: 9, Base: wire.Base{Scheme: "https", Host: "api.example.org", Port: 443}}
	s.askAccounts()
	r, err := answerTo(b, "accounts", s.webAccounts, wire.ListFrom{})
	if err != nil || len(r.Accounts) != 3 || len(r.Health) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	home, fresh, refused := r.Accounts[0], r.Accounts[1], r.Accounts[2]
	if home.Name != "home" || home.Health != "" || home.Owner != "ada@example.org" || home.Title != "Demo" || home.At != "https://api.example.org:443" {
		t.Errorf("%+v", home)
	}
	if fresh.Health != wire.CodeNotConnected || fresh.Card == "" || fresh.Card != s.waitsFor(widenAccount, "new") {
		t.Errorf("%+v", fresh)
	}
	if refused.Health != wire.CodeReconnectRequired {
		t.Errorf("%+v", refused)
	}
	s.locked = true
	if _, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work"}); err != nil {
		t.Fatal(err)
	}
	r, err = answerTo(b, "accounts", s.webAccounts, wire.ListFrom{After: "home"})
	if all := strings.Join(r.Health, "; "); err != nil || len(r.Accounts) != 2 || !strings.Contains(all, "passphrase") || !strings.Contains(all, "stopped: work") {
		t.Errorf("%+v, %v", r, err)
	}
}

// usesPolicy makes a text the decided policy.
func (s *Sentinel) usesPolicy(t *testing.T, toml string) {
	t.Helper()
	value, err := json.Marshal([]wire.PolicyFile{{Name: policy.PolicyFile, Body: []byte(toml)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.adopt(t.Context(), value, "person:1000", nil); err != nil {
		t.Fatal(err)
	}
}

func (s *Sentinel) toml() string { return string(s.policy.Load().Files()[policy.PolicyFile]) }

// What narrows takes effect at once, what widens when a passkey says so, and what was written about it stays as it was.
func TestSettingsNarrowAtOnceAndWidenByAPasskey(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	const before = "# mine\n[connector.demo]\nsetting = \"ask-before-changes\" # so far\n"
	s.usesPolicy(t, before)
	r, err := answerTo(b, "settings", s.webSettings, wire.SettingsReq{})
	if err != nil || len(r.Connectors) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	c := r.Connectors[0]
	if c.Said != policy.AskBeforeChanges || c.Now != policy.AskBeforeChanges || len(c.Methods) != 2 {
		t.Fatalf("%+v", c)
	}
	if m := c.Methods[0]; m.Name != "create" || m.Said != "" || m.Now != "ask" || m.Asks != "all" || m.Class != describe.Write {
		t.Errorf("%+v", m)
	}
	if m := c.Methods[1]; m.Now != "allow" || m.Asks != "" {
		t.Errorf("%+v", m)
	}

	change := func(from string, lines ...wire.SettingLine) (*wire.SettingsView, error) {
		t.Helper()
		return answerTo(b, "settings", s.webSettings, wire.SettingsReq{From: from, Lines: lines})
	}
	narrower, err := change(r.Policy, wire.SettingLine{Connector: "demo", Method: "items", Value: "off"}, wire.SettingLine{Site: "example.org", Value: "off"})
	if err != nil || narrower.Card != "" || len(narrower.Problems) > 0 || !s.policy.Load().Off("demo", "items") || narrower.Policy == r.Policy {
		t.Fatalf("%+v, %v", narrower, err)
	}
	if !strings.HasPrefix(s.toml(), before) || narrower.Sites[0].Site != "example.org" || narrower.Sites[0].Said != "off" {
		t.Errorf("%s\n%+v", s.toml(), narrower.Sites)
	}
	if _, err := change(r.Policy, wire.SettingLine{Connector: "demo", Method: "items"}); codeOf(err) != wire.CodeConflict {
		t.Errorf("over what was shown earlier: %v", err)
	}

	wide, err := change(narrower.Policy, wire.SettingLine{Connector: "demo", Method: "items"}, wire.SettingLine{Connector: "demo", Value: policy.DontAsk})
	if err != nil || wide.Card == "" || wide.Policy != narrower.Policy || len(wide.Lines) == 0 || !s.policy.Load().Off("demo", "items") {
		t.Fatalf("%+v, %v", wide, err)
	}
	if again, err := answerTo(b, "settings", s.webSettings, wire.SettingsReq{}); err != nil || again.Card != wide.Card {
		t.Errorf("the card that waits: %+v, %v", again, err)
	}
	if k := b.show(wide.Card).Card; !slices.ContainsFunc(k.Facts, func(f string) bool { return strings.Contains(f, "widens: demo items: off, now allow") }) {
		t.Errorf("%q", k.Facts)
	}
	if d, err := b.yes(wide.Card); err != nil || d.Outcomes[0].State != wire.StateDone {
		t.Fatalf("%+v, %v", d, err)
	}
	if s.policy.Load().Off("demo", "items") || s.policy.Load().Setting("demo") != policy.DontAsk || !strings.Contains(s.toml(), "# so far") {
		t.Errorf("%s", s.toml())
	}
}

func TestWrongSettingsChangeNothing(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	s.usesPolicy(t, "[connector.demo]\nsetting = \"ask-before-changes\"\n")
	from, was := s.comparedWith(), s.toml()
	for name, l := range map[string]wire.SettingLine{
		"a value":              {Connector: "demo", Value: "always"},
		"a method":             {Connector: "demo", Method: "itmes", Value: "off"},
		"a connector":          {Connector: "dmeo", Value: policy.DontAsk},
		"a site":               {Site: "exa mple.org", Value: "off"},
		"an address's reading": {Site: "192.0.2.1", Value: "read"},
		"nothing":              {},
		"a line that breaks":   {Connector: "demo\"]\nx=\"", Value: policy.DontAsk},
	} {
		r, err := answerTo(b, "settings", s.webSettings, wire.SettingsReq{From: from, Lines: []wire.SettingLine{l}})
		if err == nil && len(r.Problems) == 0 || err != nil && codeOf(err) != wire.CodeBadArgument {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if _, err := answerTo(b, "settings", s.webSettings, wire.SettingsReq{From: from, Lines: make([]wire.SettingLine, maxSettings+1)}); codeOf(err) != wire.CodeTooMany {
		t.Error(err)
	}
	if s.toml() != was || s.comparedWith() != from || len(s.ledger.Waiting()) > 0 {
		t.Errorf("%s", s.toml())
	}
}

func TestWhatEachCellHasReadAndItsClearing(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	if err := s.ledger.AddLabels(t.Context(), "work", []string{wire.LabelUntrusted}, ledger.Cause{Call: "c0", Connector: "demo", Method: "items"}, "sentinel"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ledger.BeginSession(t.Context(), ledger.Session{ID: "play/run-1", Cell: "play"}, "cells"); err != nil {
		t.Fatal(err)
	}
	r, err := answerTo(b, "labels", s.webLabels, wire.ListFrom{})
	if err != nil || len(r.Cells) != 2 || r.Cells[0].Cell != "play" || !r.Cells[0].Runs || len(r.Cells[0].Labels) > 0 ||
		r.Cells[1].Cell != "work" || r.Cells[1].Runs || len(r.Cells[1].Labels) != 1 || !strings.Contains(r.Cells[1].Labels[0].Why, "demo items, call c0") {
		t.Fatalf("%+v, %v", r, err)
	}
	cleared, err := answerTo(b, "taint", s.taint, wire.TaintReq{Cell: "work", Clear: true})
	if err != nil || cleared.Widening == "" || len(s.labels("work")) != 1 {
		t.Fatalf("%+v, %v", cleared, err)
	}
	if d, err := b.yes(cleared.Widening); err != nil || d.Outcomes[0].State != wire.StateDone || len(s.labels("work")) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

// was puts a call into the ledger that has come to an end.
func (s *Sentinel) was(t *testing.T, cell, title string, state ledger.State) string {
	t.Helper()
	id := ledger.NewID()
	card, err := json.Marshal(&wire.Card{ID: id, Kind: "call", Title: "make a thing", Connector: "demo", Method: "create", Account: "home", Cell: cell,
		Fields: []wire.Field{{Label: "Title", Values: []string{title}}}, Bodies: []wire.Shown{{Text: "hidden"}}})
	if err != nil {
		t.Fatal(err)
	}
	now := s.ledger.Now()
	c := ledger.Call{Frame: ledger.Frame{ID: id, Cell: cell, Connector: "demo", Method: "create", Account: "home", Class: "write", Dedup: id,
		Approval: strings.Repeat("00", 32), Card: card, Created: now, Deadline: now.Add(time.Hour)}}
	if _, _, err := s.ledger.Park(t.Context(), c, "cell:"+cell); err != nil {
		t.Fatal(err)
	}
	switch state {
	case ledger.Denied:
		_, err = s.ledger.Deny(t.Context(), id, "passkey:ada", "no")
	case ledger.Done:
		if _, err = s.ledger.Approve(t.Context(), ledger.Approval{ID: id, By: "passkey:ada", Hash: c.Approval, Scope: ledger.KindOnce}); err == nil {
			if _, err = s.ledger.Execute(t.Context(), id, ledger.NewID()); err == nil {
				_, err = s.ledger.Finish(t.Context(), id, ledger.Outcome{State: ledger.Done, Object: "ada/site#4"}, "sentinel")
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestPastCallsAreFound(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	a := s.was(t, "work", "Lunch in the Garden", ledger.Done)
	c := s.was(t, "play", "lunch elsewhere", ledger.Denied)
	d := s.was(t, "work", "dinner", ledger.Parked)
	for _, k := range []struct {
		name string
		req  wire.FindReq
		want []string
	}{
		{"all, newest first", wire.FindReq{}, []string{d, c, a}},
		{"a word in any case", wire.FindReq{Words: "LUNCH"}, []string{c, a}},
		{"every word", wire.FindReq{Words: "garden lunch"}, []string{a}},
		{"not the bodies", wire.FindReq{Words: "hidden"}, nil},
		{"who said yes", wire.FindReq{Words: "passkey:ada"}, []string{a}},
		{"a cell", wire.FindReq{Cell: "work"}, []string{d, a}},
		{"a state", wire.FindReq{State: wire.StateDenied}, []string{c}},
		{"a connector", wire.FindReq{Connector: "github"}, nil},
		{"a time that is over", wire.FindReq{To: time.Now().Add(-time.Hour).Unix()}, nil},
		{"a time", wire.FindReq{From: time.Now().Add(-time.Hour).Unix(), To: time.Now().Add(time.Hour).Unix()}, []string{d, c, a}},
		{"what follows", wire.FindReq{Before: d}, []string{c, a}},
		{"by its number", wire.FindReq{Words: a}, []string{a}},
	} {
		r, err := answerTo(b, "find", s.webFind, k.req)
		if err != nil {
			t.Fatal(k.name, err)
		}
		var got []string
		for _, x := range r.Cards {
			got = append(got, x.ID)
		}
		if !slices.Equal(got, k.want) || r.Next != "" {
			t.Errorf("%s: %v, want %v, next %q", k.name, got, k.want, r.Next)
		}
	}
	for _, req := range []wire.FindReq{{State: "x"}, {Words: strings.Repeat("x", findText+1)}, {Words: strings.Repeat("x ", findWords+1)}} {
		if _, err := answerTo(b, "find", s.webFind, req); err == nil {
			t.Errorf("%+v", req)
		}
	}
	r, err := answerTo(b, "find", s.webFind, wire.FindReq{Words: "garden"})
	if err != nil || r.Cards[0].State != wire.StateDone || r.Cards[0].Became == nil || r.Cards[0].Became.By != "passkey:ada" ||
		r.Cards[0].Became.Object != "ada/site#4" || r.Cards[0].Became.Link != "" || len(r.Cards[0].Bodies) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if k := b.show(a).Card; k.Became == nil || k.Became.Object != "ada/site#4" {
		t.Errorf("%+v", k.Became)
	}
	if k := b.show(d).Card; k.Became != nil {
		t.Errorf("%+v", k.Became)
	}
}

// Pages meet every call once, also where none of those that were looked at fits.
func TestASearchGoesOnWhereItStopped(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	want := map[string]bool{}
	for i := range findCards*2 + 7 {
		want[s.was(t, fmt.Sprintf("c%d", i), "a thing", ledger.Denied)] = true
	}
	req := wire.FindReq{Words: "thing"}
	for pages := 0; ; pages++ {
		r, err := answerTo(b, "find", s.webFind, req)
		if err != nil || len(r.Cards) > findCards || pages > 10 {
			t.Fatalf("%d pages, %v", pages, err)
		}
		for _, k := range r.Cards {
			if !want[k.ID] {
				t.Errorf("%s comes twice or is none", k.ID)
			}
			delete(want, k.ID)
		}
		if req.Before = r.Next; req.Before == "" {
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("%d were not met", len(want))
	}
}

// A link leads to the vendor and nowhere else, whatever a worker calls what it made.
func TestALinkLeadsToTheVendor(t *testing.T) {
	gh := wire.Account{Vendor: "github", Base: wire.Base{Scheme: "https", Host: "api.github.com", Port: 443}}
	own := wire.Account{Vendor: "github", Base: wire.Base{Scheme: "https", Host: "git.example.org", Port: 443}}
	for object, want := range map[string]string{
		"ada/site#4": "https://github.com/ada/site/issues/4", "ada/site": "https://github.com/ada/site", "a-b/c.d_e#12": "https://github.com/a-b/c.d_e/issues/12",
		"": "", "ada": "", "ada/site#": "", "ada/site#x": "", "ada/site#4/../..": "", "ada/..": "", "../x": "", "ada/site/evil#4": "", "ada/site?x#4": "",
		"@evil.example/x#1": "", "ada//#1": "", "ada/s\u202eite#4": "", "/calendars/ada/1.ics": "", "javascript:alert(1)//x": "", "ada/" + strings.Repeat("x", 101): "",
	} {
		if got := objectLink(&gh, object); got != want {
			t.Errorf("%q: %q, want %q", object, got, want)
		}
		if got := objectLink(&own, object); got != "" {
			t.Errorf("%q at another server: %q", object, got)
		}
	}
}
