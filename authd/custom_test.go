// SPDX-License-Identifier: Apache-2.0

package authd

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/authd/store"
	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

var (
	workEgressID = peer.Identity{Kind: peer.Unit, Unit: "doorward-egress@work.service", Name: "egress", Of: "work"}
	playEgressID = peer.Identity{Kind: peer.Unit, Unit: "doorward-egress@play.service", Name: "egress", Of: "play"}
)

const botToken = "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"

func customAccount(name string) store.Settings {
	return store.Settings{
		Name: name, Vendor: store.Custom, Also: []string{"*.discord.com:443"},
		Base:      wire.Base{Scheme: "https", Host: "discord.com", Port: 443},
		Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bot "},
	}
}

// withBots is start with the custom accounts "bot" and "bot2".
func withBots(t *testing.T) *world {
	w := start(t)
	for _, name := range []string{"bot", "bot2"} {
		if err := w.authd.store.Add(customAccount(name), []byte(botToken), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) mintReq(issue, cell, name string) *wire.MintReq {
	w.t.Helper()
	a, ok := w.authd.store.Account(name)
	if !ok {
		w.t.Fatal("no account")
	}
	return &wire.MintReq{Issue: issue, Cell: cell, Account: name, Generation: a.Generation, Digest: a.Digest}
}

// minted has a surrogate made.
func (w *world) minted(s *sentinel, issue, cell, name string) string {
	w.t.Helper()
	resp, err := ask[wire.MintResp](s.Link, "mint", w.mintReq(issue, cell, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(resp.Value)
}

// issued is a grant for one request of a cell.
func (w *world) issued(id, issue, cell, name string) wire.GrantReq {
	m := w.mintReq(issue, cell, name)
	return wire.GrantReq{
		Grant: "grant-0123456789-" + id, Call: "request-" + id, Issue: issue, Cell: cell, Account: name, Generation: m.Generation,
		Digest: m.Digest, Unix: time.Now().Add(time.Minute).Unix(),
		Entries: []wire.Entry{{Name: "request", Scheme: "https", Host: "gateway.discord.com", Port: 443, Method: "GET",
			Path: "/api/v10/users/@me", Uses: 1, Credential: true}},
	}
}

func (w *world) give(s *sentinel, g wire.GrantReq) {
	w.t.Helper()
	if _, err := ask[wire.Empty](s.Link, "grant", &g); err != nil {
		w.t.Fatal(err)
	}
}

func TestACellsRequestGetsItsCredentialOnlyInItsEgress(t *testing.T) {
	w := withBots(t)
	s := w.sentinel()
	value := w.minted(s, "issue-1", "work", "bot")
	egress := w.dial("authd-egress", workEgressID)
	g := w.issued("a", "issue-1", "work", "bot")
	w.give(s, g)
	req := &wire.ResolveReq{Grant: g.Grant, Surrogate: value}
	got, err := ask[wire.ResolveResp](egress, "resolve", req)
	if err != nil || got.Secret != botToken || !slices.Equal(got.Scrub, []string{botToken}) || got.Call != "request-a" ||
		got.Placement.Prefix != "Bot " || got.Entry.Host != "gateway.discord.com" || got.Cell != "work" {
		t.Fatalf("secret right: %v; %v", got.Secret == botToken, err)
	}
	if r := receive(t, s.released); r.Grant != g.Grant || r.Cell != "work" || r.Worker != "" || r.Account != "bot" || r.Call != "request-a" {
		t.Errorf("%+v", r)
	}
	if _, err := ask[wire.ResolveResp](egress, "resolve", req); code(err) != wire.CodeBadGrant {
		t.Errorf("the grant again: %v", err)
	}
	recorded(t, s, "resolve", wire.CodeBadGrant, "no live grant of that name")
	// The same surrogate, under a grant of its own, goes on.
	g = w.issued("b", "issue-1", "work", "bot")
	w.give(s, g)
	if _, err := ask[wire.ResolveResp](egress, "resolve", &wire.ResolveReq{Grant: g.Grant, Surrogate: value}); err != nil {
		t.Error(err)
	}
}

// SW-05, CL-01 and their like at authd: whatever of a presented surrogate is another's. Each is refused and recorded, takes nothing
// away, and the honest request right behind it is the control.
func TestACustomSurrogateIsWorthNothingElsewhere(t *testing.T) {
	w := withBots(t)
	s := w.sentinel()
	own := w.minted(s, "issue-1", "work", "bot")
	values := map[string]string{
		"own": own, "other cell": w.minted(s, "issue-2", "play", "bot"), "other issue": w.minted(s, "issue-3", "work", "bot"),
		"other account": w.minted(s, "issue-4", "work", "bot2"), "credential": botToken, "none": "",
	}
	expired := w.mintReq("issue-1", "work", "bot")
	expired.Unix = time.Now().Unix() + 2
	resp, err := ask[wire.MintResp](s.Link, "mint", expired)
	if err != nil {
		t.Fatal(err)
	}
	values["expired"] = string(resp.Value)
	ended := w.minted(s, "issue-5", "work", "bot")
	if _, err := ask[wire.RevokeResp](s.Link, "revoke", &wire.GrantRef{Grant: "issue-5"}); err != nil {
		t.Fatal(err)
	}
	work, play := w.dial("authd-egress", workEgressID), w.dial("authd-egress", playEgressID)
	workers := w.dial("authd-egress", egressID)
	lent := w.borrowed(s, w.dial("authd-worker", githubID), "lent")

	for i, test := range []struct {
		name   string
		from   *daemon.Link
		change func(*wire.GrantReq, *wire.ResolveReq)
		want   wire.Code
		why    string
	}{
		{"another cell's surrogate", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Surrogate = values["other cell"] },
			wire.CodeBadSurrogate, "not a live surrogate of this issue, cell and account"},
		{"of another issue", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Surrogate = values["other issue"] },
			wire.CodeBadSurrogate, "not a live surrogate of this issue, cell and account"},
		{"of another account", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Surrogate = values["other account"] },
			wire.CodeBadSurrogate, "not a live surrogate of this issue, cell and account"},
		{"revoked", work, func(g *wire.GrantReq, r *wire.ResolveReq) { g.Issue, r.Surrogate = "issue-5", ended },
			wire.CodeBadSurrogate, "not a live surrogate of this issue, cell and account"},
		{"the credential itself", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Surrogate = botToken },
			wire.CodeBadSurrogate, "not a live surrogate of this issue, cell and account"},
		{"none", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Surrogate = "" },
			wire.CodeBadSurrogate, "not a live surrogate of this issue, cell and account"},
		{"a worker's surrogate", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Surrogate = lent.Surrogate },
			wire.CodeBadSurrogate, "not a live surrogate of this issue, cell and account"},
		{"another entry", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Entry = 1 }, wire.CodeBadEnvelope, "the grant has no such entry"},
		{"from another cell's egress", play, func(*wire.GrantReq, *wire.ResolveReq) {}, wire.CodeBadGrant,
			"the grant is another cell's, or no cell's"},
		{"from the egress of workers", workers, func(*wire.GrantReq, *wire.ResolveReq) {}, wire.CodeBadGrant, "the grant is another worker's"},
		{"from the egress of workers, as a worker", workers, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Worker = "github" },
			wire.CodeBadGrant, "the grant is another worker's"},
		{"from its egress, as a worker's", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Worker = "github" }, wire.CodeBadGrant,
			"the grant is another cell's, or no cell's"},
		{"a worker's grant", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { r.Grant, r.Surrogate = lent.Grant, lent.Surrogate },
			wire.CodeBadGrant, "the grant is another cell's, or no cell's"},
		{"a worker's grant, as that worker", work, func(_ *wire.GrantReq, r *wire.ResolveReq) { *r = lent },
			wire.CodeBadGrant, "the grant is another cell's, or no cell's"},
	} {
		g := w.issued("x"+string(rune('a'+i)), "issue-1", "work", "bot")
		req := wire.ResolveReq{Grant: g.Grant, Surrogate: own}
		test.change(&g, &req)
		w.give(s, g)
		if got, err := ask[wire.ResolveResp](test.from, "resolve", &req); code(err) != test.want || got.Secret != "" {
			t.Errorf("%s: %v", test.name, err)
		}
		recorded(t, s, "resolve", test.want, test.why)
		again := w.issued("control-"+string(rune('a'+i)), "issue-1", "work", "bot") // what is refused may have ended its grant
		w.give(s, again)
		if got, err := ask[wire.ResolveResp](work, "resolve", &wire.ResolveReq{Grant: again.Grant, Surrogate: own}); err != nil || got.Secret != botToken {
			t.Errorf("%s: control: %v", test.name, err)
		}
	}
	if _, err := ask[wire.ResolveResp](workers, "resolve", &lent); err != nil {
		t.Errorf("control: a worker's own: %v", err)
	}

	t.Run("expired", func(t *testing.T) {
		g := w.issued("expired", "issue-1", "work", "bot")
		w.give(s, g)
		w.ahead.Store(int64(3 * time.Second))
		defer w.ahead.Store(0)
		if _, err := ask[wire.ResolveResp](work, "resolve", &wire.ResolveReq{Grant: g.Grant, Surrogate: values["expired"]}); code(err) != wire.CodeBadSurrogate {
			t.Errorf("%v", err)
		}
		again := w.issued("lasting", "issue-1", "work", "bot")
		w.give(s, again)
		if _, err := ask[wire.ResolveResp](work, "resolve", &wire.ResolveReq{Grant: again.Grant, Surrogate: own}); err != nil {
			t.Errorf("control: %v", err)
		}
	})
	t.Run("another host", func(t *testing.T) {
		g := w.issued("host", "issue-1", "work", "bot")
		for _, host := range []string{"evil.test", "discord.com.evil.test", "xdiscord.com", "*.discord.com"} {
			g.Entries[0].Host = host
			if _, err := ask[wire.Empty](s.Link, "grant", &g); code(err) != wire.CodeBadTarget {
				t.Errorf("%s: %v", host, err)
			}
		}
		g.Entries[0].Host = "discord.com"
		w.give(s, g)
	})
}

// A custom account is for no worker, and a worker's for no cell.
func TestNoWorkerGetsACustomAccount(t *testing.T) {
	w := withBots(t)
	s := w.sentinel()
	person := w.person()
	set := customAccount("third")
	add := &wire.AddReq{Name: "third", Vendor: set.Vendor, Base: set.Base, Placement: set.Placement, Also: set.Also, Secret: []byte(botToken),
		Workers: []string{"github"}}
	if _, err := ask[wire.AccountsResp](person, "add", add); code(err) != wire.CodeBadArgument {
		t.Errorf("with a worker: %v", err)
	}
	add.Workers, add.Secret = nil, []byte(botToken)
	added, err := ask[wire.AccountsResp](person, "add", add)
	if err != nil || len(added.Accounts) != 1 || len(added.Accounts[0].Workers) != 0 || !slices.Equal(added.Accounts[0].Also, set.Also) {
		t.Fatalf("%+v, %v", added, err)
	}
	for _, worker := range []string{"github", "custom"} {
		g := w.issued("w"+worker, "", "work", "third")
		g.Worker, g.Session = worker, "run-1"
		if _, err := ask[wire.Empty](s.Link, "grant", &g); code(err) != wire.CodeNotAllowed {
			t.Errorf("a grant for the worker %s: %v", worker, err)
		}
	}
	g := w.issued("other", "issue-1", "work", "work")
	g.Entries[0].Host = "api.github.com"
	if _, err := ask[wire.Empty](s.Link, "grant", &g); code(err) != wire.CodeNotAllowed {
		t.Errorf("an issue of a worker's account: %v", err)
	}
	if _, err := ask[wire.MintResp](s.Link, "mint", w.mintReq("issue-1", "work", "work")); code(err) != wire.CodeNotConnected {
		t.Errorf("a surrogate of a worker's account: %v", err)
	}
	// A worker with the very grant of a cell borrows nothing.
	g = w.issued("cells", "issue-1", "work", "third")
	w.give(s, g)
	for _, id := range []peer.Identity{githubID, {Kind: peer.Unit, Unit: "doorward-worker@custom.service", Name: "custom", Worker: true}} {
		if _, err := ask[wire.BorrowResp](w.dial("authd-worker", id), "borrow", ptr(borrowOf(g))); code(err) != wire.CodeBadGrant {
			t.Errorf("%s borrows: %v", id, err)
		}
	}
}

// Line 8: authd is killed and started again, and sentinel with it: surrogates go on, grants do not.
func TestSurrogatesKeepWorkingOverARestart(t *testing.T) {
	w := withBots(t)
	s := w.sentinel()
	kept, ended := w.minted(s, "issue-1", "work", "bot"), w.minted(s, "issue-2", "work", "bot2")
	old := w.issued("old", "issue-1", "work", "bot")
	w.give(s, old)
	if _, err := ask[wire.RevokeResp](s.Link, "revoke", &wire.GrantRef{Grant: "issue-2"}); err != nil {
		t.Fatal(err)
	}
	s.Close() // sentinel alone: its grants are void, the surrogates stay
	eventually(t, func() bool { return w.authd.current() == nil })
	s = w.sentinel()
	egress := w.dial("authd-egress", workEgressID)
	if _, err := ask[wire.ResolveResp](egress, "resolve", &wire.ResolveReq{Grant: old.Grant, Surrogate: kept}); code(err) != wire.CodeBadGrant {
		t.Errorf("a grant outlives sentinel: %v", err)
	}
	use := func(id, issue, name, value string) wire.Code {
		g := w.issued(id, issue, "work", name)
		w.give(s, g)
		_, err := ask[wire.ResolveResp](egress, "resolve", &wire.ResolveReq{Grant: g.Grant, Surrogate: value})
		return code(err)
	}
	if c := use("a", "issue-1", "bot", kept); c != "" {
		t.Errorf("sentinel restarted: %s", c)
	}
	w.stop()
	w = at(t, w.dir)
	s = w.sentinel()
	egress = w.dial("authd-egress", workEgressID)
	if c := use("b", "issue-1", "bot", kept); c != "" {
		t.Errorf("authd restarted: %s", c)
	}
	if c := use("c", "issue-2", "bot2", ended); c != wire.CodeBadSurrogate {
		t.Errorf("one that was revoked came back: %q", c)
	}
}

// Revoking an issue ends its surrogates and the live grants under it, and nothing else; removing the account does too.
func TestWhatIsRevokedEndsAtOnce(t *testing.T) {
	w := withBots(t)
	s := w.sentinel()
	person := w.person()
	egress := w.dial("authd-egress", workEgressID)
	values := map[string]string{"issue-1": w.minted(s, "issue-1", "work", "bot"), "issue-2": w.minted(s, "issue-2", "work", "bot2")}
	one, two := w.issued("one", "issue-1", "work", "bot"), w.issued("two", "issue-2", "work", "bot2")
	w.give(s, one)
	w.give(s, two)
	resp, err := ask[wire.RevokeResp](s.Link, "revoke", &wire.GrantRef{Grant: "issue-1"})
	if err != nil || !slices.Equal(resp.Grants, []string{one.Grant}) {
		t.Fatalf("%+v, %v", resp, err)
	}
	resolve := func(g wire.GrantReq) wire.Code {
		_, err := ask[wire.ResolveResp](egress, "resolve", &wire.ResolveReq{Grant: g.Grant, Surrogate: values[g.Issue]})
		return code(err)
	}
	if c := resolve(one); c != wire.CodeBadGrant {
		t.Errorf("its live grant: %q", c)
	}
	again := w.issued("again", "issue-1", "work", "bot")
	w.give(s, again)
	if c := resolve(again); c != wire.CodeBadSurrogate {
		t.Errorf("its surrogate: %q", c)
	}
	if c := resolve(two); c != "" {
		t.Errorf("control: another issue: %q", c)
	}
	// A stop of the cell ends grants; what was issued is the person's to take back.
	w.give(s, w.issued("three", "issue-2", "work", "bot2"))
	if resp, err = ask[wire.RevokeResp](s.Link, "revoke", &wire.GrantRef{Cell: "work"}); err != nil || len(resp.Grants) != 1 {
		t.Errorf("%+v, %v", resp, err)
	}
	four := w.issued("four", "issue-2", "work", "bot2")
	w.give(s, four)
	if c := resolve(four); c != "" {
		t.Errorf("after a stop: %q", c)
	}
	five := w.issued("five", "issue-2", "work", "bot2")
	w.give(s, five)
	if _, err := ask[wire.Empty](person, "remove", &wire.AccountRef{Name: "bot2"}); err != nil {
		t.Fatal(err)
	}
	if c := resolve(five); c != wire.CodeBadGrant {
		t.Errorf("the account is removed: %q", c)
	}
	if err := w.authd.store.Add(customAccount("bot2"), []byte(botToken), time.Now()); err != nil {
		t.Fatal(err)
	}
	six := w.issued("six", "issue-2", "work", "bot2")
	w.give(s, six)
	if c := resolve(six); c != wire.CodeBadSurrogate {
		t.Errorf("it came back with another account of that name: %q", c)
	}
}

// Only sentinel mints, on its one link; only an egress resolves.
func TestWhoMintsAndResolves(t *testing.T) {
	w := withBots(t)
	s := w.sentinel()
	req := w.mintReq("issue-1", "work", "bot")
	for _, id := range []peer.Identity{egressID, workEgressID, githubID, {Kind: peer.Unit, Unit: "doorward-cells.service", Name: "cells"}} {
		if l, err := w.try("authd-sentinel", id); err == nil {
			if _, err := ask[wire.MintResp](l, "mint", req); err == nil {
				t.Errorf("%s mints", id)
			}
		}
	}
	for _, id := range []peer.Identity{cellID, personID} {
		if _, err := w.plain("authd-sentinel", id).Call("mint", req, new(wire.MintResp)); err == nil {
			t.Errorf("%s mints", id)
		}
		if _, err := w.plain("authd-egress", id).Call("resolve", &wire.ResolveReq{}, new(wire.ResolveResp)); err == nil {
			t.Errorf("%s resolves", id)
		}
	}
	value := w.minted(s, "issue-1", "work", "bot") // the control
	g := w.issued("a", "issue-1", "work", "bot")
	w.give(s, g)
	for _, id := range []peer.Identity{githubID, sentinelID, {Kind: peer.Unit, Unit: "doorward-cells.service", Name: "cells"}} {
		if l, err := w.try("authd-egress", id); err == nil {
			if _, err := ask[wire.ResolveResp](l, "resolve", &wire.ResolveReq{Grant: g.Grant, Surrogate: value}); err == nil {
				t.Errorf("%s resolves", id)
			}
		}
	}
	if _, err := ask[wire.ResolveResp](w.dial("authd-egress", workEgressID), "resolve", &wire.ResolveReq{Grant: g.Grant, Surrogate: value}); err != nil {
		t.Errorf("control: %v", err)
	}
}

// SW-08: a custom surrogate has the prefix, the alphabet and the length of its credential, carries nothing else of it, is never the
// same twice, and is no credential that could be added.
func TestSW08CustomSurrogatesLookLikeTheirCredential(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	person := w.person()
	for name, test := range map[string]struct{ secret, prefix, alphabet string }{
		"github":  {token, "ghp_", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"},
		"openai":  {"sk-" + strings.Repeat("aB3", 16), "sk-", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"},
		"hex":     {strings.Repeat("0a", 32), "", "0123456789abcdef"},
		"discord": {botToken, "", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"},
	} {
		set := customAccount(name)
		add := &wire.AddReq{Name: name, Vendor: set.Vendor, Base: set.Base, Placement: set.Placement, Secret: []byte(test.secret)}
		if _, err := ask[wire.AccountsResp](person, "add", add); err != nil {
			t.Fatal(name, err)
		}
		one, two := w.minted(s, "issue-"+name, "work", name), w.minted(s, "issue-"+name, "work", name)
		rest, ok := strings.CutPrefix(one, test.prefix)
		if !ok || strings.Trim(rest, test.alphabet) != "" || len(one) != len(test.secret) || one == two || !surrogate.Marked([]byte(one)) {
			t.Errorf("%s: %q and %q", name, one, two)
		}
		if strings.Contains(one, strings.TrimPrefix(test.secret, test.prefix)[:12]) {
			t.Errorf("%s: %q carries its credential", name, one)
		}
		add.Name, add.Secret = name+"2", []byte(one)
		if _, err := ask[wire.AccountsResp](person, "add", add); code(err) != wire.CodeBadCredential {
			t.Errorf("%s: a surrogate is taken for a credential: %v", name, err)
		}
	}
}

// A disk that takes nothing gives nobody a surrogate.
func TestNoSurrogateThatIsNotKept(t *testing.T) {
	w := withBots(t)
	s := w.sentinel()
	first := w.minted(s, "issue-1", "work", "bot")
	block := filepath.Join(w.dir, "minted.new", "x")
	if err := os.MkdirAll(block, 0o700); err != nil {
		t.Fatal(err)
	}
	resp, err := ask[wire.MintResp](s.Link, "mint", w.mintReq("issue-1", "work", "bot"))
	if code(err) != wire.CodeInternal || resp.Value != nil {
		t.Errorf("given although not kept: %v", err)
	}
	// A revoke that cannot be kept says so, and holds until the next start all the same.
	if _, err := ask[wire.RevokeResp](s.Link, "revoke", &wire.GrantRef{Grant: "issue-1"}); code(err) != wire.CodeInternal {
		t.Errorf("revoked although not kept: %v", err)
	}
	g := w.issued("a", "issue-1", "work", "bot")
	w.give(s, g)
	egress := w.dial("authd-egress", workEgressID)
	if _, err := ask[wire.ResolveResp](egress, "resolve", &wire.ResolveReq{Grant: g.Grant, Surrogate: first}); code(err) != wire.CodeBadSurrogate {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(filepath.Dir(block)); err != nil {
		t.Fatal(err)
	}
	if value := w.minted(s, "issue-1", "work", "bot"); value == "" {
		t.Error("nothing is minted once there is room again")
	}
}

// LK-07 for surrogates: neither they nor their credential are in a log, a file or any answer but the one that is for them.
func TestLK07NoSurrogateInLogsAnswersOrFiles(t *testing.T) {
	w := withBots(t)
	s := w.sentinel()
	value := w.minted(s, "issue-1", "work", "bot")
	egress := w.dial("authd-egress", workEgressID)
	var answers bytes.Buffer
	note := func(v any, err error) {
		at := reflect.New(reflect.TypeOf(v))
		at.Elem().Set(reflect.ValueOf(v))
		b, merr := wire.Marshal(at.Interface())
		if merr != nil {
			t.Fatal(merr)
		}
		answers.Write(b)
		if err != nil {
			answers.WriteString(err.Error())
		}
	}
	for i, wrong := range []string{botToken, value + "x"} { // each ends its grant
		g := w.issued("wrong-"+string(rune('a'+i)), "issue-1", "work", "bot")
		w.give(s, g)
		note(ask[wire.ResolveResp](egress, "resolve", &wire.ResolveReq{Grant: g.Grant, Surrogate: wrong}))
	}
	g := w.issued("a", "issue-1", "work", "bot")
	w.give(s, g)
	got, err := ask[wire.ResolveResp](egress, "resolve", &wire.ResolveReq{Grant: g.Grant, Surrogate: value})
	if err != nil {
		t.Fatal(err)
	}
	note(ask[wire.AccountsResp](w.person(), "list", &wire.Empty{}))
	note(receive(t, s.released), nil)
	look, err := leaks.New(leaks.Secret{Name: "the credential", Value: []byte(botToken)}, leaks.Secret{Name: "the surrogate", Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	if len(look.Bytes("control", []byte(got.Secret+" "+value))) < 2 {
		t.Fatal("control: the scanner does not find them")
	}
	if found := look.Bytes("the log", []byte(w.log.String())); len(found) > 0 {
		t.Errorf("%v:\n%s", found, w.log.String())
	}
	if found := look.Bytes("the answers", answers.Bytes()); len(found) > 0 {
		t.Error(found)
	}
	if r := look.Files(w.dir); !r.Clean() || r.Bytes == 0 {
		t.Errorf("%+v", r)
	}
}
