// SPDX-License-Identifier: Apache-2.0

package authd

import (
	"bytes"
	"context"
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

func TestACallGetsItsCredentialOnlyInEgress(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	worker, egress := w.dial("authd-worker", githubID), w.dial("authd-egress", egressID)
	g := w.grantFor("a")
	if _, err := ask[wire.Empty](s.Link, "grant", &g); err != nil {
		t.Fatal(err)
	}
	b := borrowOf(g)
	lent, err := ask[wire.BorrowResp](worker, "borrow", &b)
	if err != nil {
		t.Fatal(err)
	}
	stand := []byte(lent.Surrogate)
	if !surrogate.Marked(stand) || len(lent.Surrogate) != len(token) || lent.Mark != "mark-a" || lent.Account != "work" || lent.Owner != "octocat" {
		t.Errorf("%+v", lent)
	}
	req := wire.ResolveReq{Grant: g.Grant, Surrogate: lent.Surrogate, Worker: "github"}
	got, err := ask[wire.ResolveResp](egress, "resolve", &req)
	if err != nil {
		t.Fatal(err)
	}
	if got.Secret != token || !slices.Equal(got.Scrub, []string{token}) || got.Call != "call-a" ||
		got.Entry.Name != "call" {
		t.Errorf("secret right: %v; entry %+v", got.Secret == token, got.Entry)
	}
	if r := receive(t, s.released); r.Grant != g.Grant || r.Seq != 1 || r.Entry != 0 {
		t.Errorf("%+v", r)
	}
	// An entry that takes no credential gets none, and is told of too.
	req.Entry, req.Surrogate = 1, ""
	got, err = ask[wire.ResolveResp](egress, "resolve", &req)
	if err != nil || got.Secret != "" || got.Scrub != nil || got.Entry.Name != "log" {
		t.Errorf("%+v, %v", got.Entry, err)
	}
	if r := receive(t, s.released); r.Entry != 1 || r.Seq != 2 {
		t.Errorf("%+v", r)
	}
}

func TestBasicIsScrubbedAsAPairToo(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	worker, egress := w.dial("authd-worker", davID), w.dial("authd-egress", egressID)
	account, _ := w.authd.store.Account("cal")
	g := w.grantFor("b")
	g.Worker, g.Account, g.Generation, g.Digest = "dav", "cal", account.Generation, account.Digest
	g.Entries = []wire.Entry{{Name: "call", Scheme: "https", Host: "dav.example.org", Port: 443, Method: "PROPFIND",
		Path: "/cal/alice", Uses: 1, Credential: true}}
	if _, err := ask[wire.Empty](s.Link, "grant", &g); err != nil {
		t.Fatal(err)
	}
	b := borrowOf(g)
	lent, err := ask[wire.BorrowResp](worker, "borrow", &b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ask[wire.ResolveResp](egress, "resolve",
		&wire.ResolveReq{Grant: g.Grant, Surrogate: lent.Surrogate, Worker: "dav"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Scrub, []string{"correct horse battery", "alice:correct horse battery"}) ||
		got.Placement.User != "alice" {
		t.Error("the scrub list or the placement is wrong")
	}
}

// Must hold 1: a worker asks for another's credential, borrows another worker's or an old grant, or with another frame;
// a second borrow. Each is refused and recorded, and the honest worker is the control.
func TestAWorkerGetsNothingThatIsNotItsOwn(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	github, dav := w.dial("authd-worker", githubID), w.dial("authd-worker", davID)

	t.Run("a grant for another's credential", func(t *testing.T) {
		g := w.grantFor("another")
		g.Worker = "dav" // the allowlist of "work" has only github
		if _, err := ask[wire.Empty](s.Link, "grant", &g); code(err) != wire.CodeNotAllowed {
			t.Fatal(err)
		}
		recorded(t, s, "grant", wire.CodeNotAllowed, "the worker is not on the account's list")
		b := borrowOf(g)
		if _, err := ask[wire.BorrowResp](dav, "borrow", &b); code(err) != wire.CodeBadGrant {
			t.Fatal(err)
		}
		recorded(t, s, "borrow", wire.CodeBadGrant, "no live grant of that name")
	})

	g := w.grantFor("own")
	if _, err := ask[wire.Empty](s.Link, "grant", &g); err != nil {
		t.Fatal(err)
	}
	attacks := []struct {
		name   string
		asker  interface{ Close() }
		change func(*wire.BorrowReq)
		why    string
	}{
		{"another worker's grant", dav, func(*wire.BorrowReq) {}, "the grant is another worker's"},
		{"another frame", github, func(b *wire.BorrowReq) { b.Frame[0]++ }, "the grant is for another frame"},
		{"another cell", github, func(b *wire.BorrowReq) { b.Cell = "play" }, "the grant is another caller's"},
		{"another session", github, func(b *wire.BorrowReq) { b.Session = "run-2" }, "the grant is another caller's"},
		{"as if sentinel executed", github, func(b *wire.BorrowReq) { b.Cell, b.Session = "", "" },
			"the grant is another caller's"},
		{"a guessed name", github, func(b *wire.BorrowReq) { b.Grant += "x" }, "no live grant of that name"},
	}
	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			b := borrowOf(g)
			attack.change(&b)
			asker := github
			if attack.asker == dav {
				asker = dav
			}
			resp, err := ask[wire.BorrowResp](asker, "borrow", &b)
			if code(err) != wire.CodeBadGrant || resp.Surrogate != "" {
				t.Fatalf("%q, %v", resp.Surrogate, err)
			}
			recorded(t, s, "borrow", wire.CodeBadGrant, attack.why)
		})
	}
	b := borrowOf(g)
	lent, err := ask[wire.BorrowResp](github, "borrow", &b)
	if err != nil || lent.Surrogate == "" {
		t.Fatalf("control: the honest worker is refused: %v", err)
	}
	t.Run("a second borrow", func(t *testing.T) {
		if _, err := ask[wire.BorrowResp](github, "borrow", &b); code(err) != wire.CodeBadGrant {
			t.Fatal(err)
		}
		recorded(t, s, "borrow", wire.CodeBadGrant, "the grant was borrowed already")
	})
	t.Run("an old grant", func(t *testing.T) {
		ended, err := ask[wire.RevokeResp](s.Link, "revoke", &wire.GrantRef{Grant: g.Grant})
		if err != nil || !slices.Equal(ended.Grants, []string{g.Grant}) {
			t.Fatal(ended, err)
		}
		if _, err := ask[wire.BorrowResp](github, "borrow", &b); code(err) != wire.CodeBadGrant {
			t.Fatal(err)
		}
		recorded(t, s, "borrow", wire.CodeBadGrant, "no live grant of that name")
		egress := w.dial("authd-egress", egressID)
		req := wire.ResolveReq{Grant: g.Grant, Surrogate: lent.Surrogate, Worker: "github"}
		got, err := ask[wire.ResolveResp](egress, "resolve", &req)
		if code(err) != wire.CodeBadGrant || got.Secret != "" {
			t.Fatal(err)
		}
		recorded(t, s, "resolve", wire.CodeBadGrant, "no live grant of that name")
	})
}

// recorded waits for sentinel to be told of a refusal.
func recorded(t *testing.T, s *sentinel, verb string, want wire.Code, why string) {
	t.Helper()
	r := receive(t, s.refused)
	if r.Verb != verb || r.Code != want || !strings.HasPrefix(r.Detail, why) {
		t.Errorf("recorded %+v, want %s, %s, %q", r, verb, want, why)
	}
}

func identities() map[string]peer.Identity {
	return map[string]peer.Identity{
		"sentinel": sentinelID, "egress": egressID, "github": githubID, "dav": davID, "cell": cellID, "person": personID,
	}
}

// Whoever is not the one that a socket is for is cut off before it can ask, and that is recorded.
func TestStrangersAtEachSocket(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	everyone := map[string]struct {
		allowed []string
	}{
		"authd-sentinel": {[]string{"sentinel"}},
		"authd-worker":   {[]string{"github", "dav"}},
		"authd-egress":   {[]string{"egress"}},
		"authd-admin":    {[]string{"person"}},
	}
	for socket, row := range everyone {
		for name, id := range identities() {
			if slices.Contains(row.allowed, name) {
				continue
			}
			l := person{w.plain(socket, id)} // one who waits for no greeting
			for _, verb := range []string{"grant", "borrow", "resolve", "list", "unlock"} {
				if _, err := ask[wire.Empty](l, verb, &wire.Empty{}); err == nil {
					t.Errorf("%s asked %s on %s", name, verb, socket)
				}
			}
			r := receive(t, s.refused)
			if r.Code != wire.CodeNotAllowed || r.Peer != id.String() {
				t.Errorf("%s on %s: recorded %+v", name, socket, r)
			}
		}
	}
	t.Run("control", func(t *testing.T) {
		if _, err := ask[wire.AccountsResp](w.person(), "list", &wire.Empty{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("a verb of another socket", func(t *testing.T) {
		worker := w.dial("authd-worker", githubID)
		if _, err := ask[wire.ResolveResp](worker, "resolve", &wire.ResolveReq{}); code(err) != wire.CodeUnavailable {
			t.Error(err)
		}
		if r := receive(t, s.refused); r.Peer != githubID.String() || !strings.Contains(r.Detail, "unknown verb") {
			t.Errorf("recorded %+v", r)
		}
	})
}

func TestARestartOfAuthdVoidsGrants(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	w := at(t, dir)
	if err := w.authd.store.Add(githubAccount("work"), []byte(token), time.Now()); err != nil {
		t.Fatal(err)
	}
	s := w.connectSentinel(true)
	first := s.heard()
	req := w.borrowed(s, w.dial("authd-worker", githubID), "a")
	unborrowed := w.grantFor("b")
	if _, err := ask[wire.Empty](s.Link, "grant", &unborrowed); err != nil {
		t.Fatal(err)
	}
	w.stop()

	w = at(t, dir)
	s = w.connectSentinel(true)
	if second := s.heard(); second.Instance == first.Instance || len(second.Accounts) != 1 {
		t.Errorf("%+v", second)
	}
	_, err := ask[wire.ResolveResp](w.dial("authd-egress", egressID), "resolve", &req)
	if code(err) != wire.CodeBadGrant {
		t.Errorf("an old surrogate: %v", err)
	}
	recorded(t, s, "resolve", wire.CodeBadGrant, "no live grant of that name")
	worker, b := w.dial("authd-worker", githubID), borrowOf(unborrowed)
	if _, err := ask[wire.BorrowResp](worker, "borrow", &b); code(err) != wire.CodeBadGrant {
		t.Errorf("an old grant: %v", err)
	}
	recorded(t, s, "borrow", wire.CodeBadGrant, "no live grant of that name")
	// The control: the same, granted in this run.
	again := w.borrowed(s, worker, "a")
	if _, err := ask[wire.ResolveResp](w.dial("authd-egress", egressID), "resolve", &again); err != nil {
		t.Errorf("control: %v", err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestARestartOfSentinelVoidsGrants(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	worker, egress := w.dial("authd-worker", githubID), w.dial("authd-egress", egressID)
	req := w.borrowed(s, worker, "a")
	if _, err := ask[wire.ResolveResp](egress, "resolve", &req); err != nil {
		t.Fatalf("control: %v", err)
	}
	s.Close()
	<-s.Done()
	eventually(t, func() bool { return w.authd.current() == nil })
	if _, err := ask[wire.ResolveResp](egress, "resolve", &req); code(err) != wire.CodeBadGrant {
		t.Errorf("with sentinel gone: %v", err)
	}
	s = w.sentinel()
	recorded(t, s, "resolve", wire.CodeBadGrant, "no live grant of that name") // kept until there was a link
	if _, err := ask[wire.ResolveResp](egress, "resolve", &req); code(err) != wire.CodeBadGrant {
		t.Errorf("with a new sentinel: %v", err)
	}
	if _, err := ask[wire.ResolveResp](egress, "resolve", ptr(w.borrowed(s, worker, "b"))); err != nil {
		t.Errorf("control: %v", err)
	}
}

func TestASecondSentinelIsRefusedWhileOneLives(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	second := w.connectSentinel(true)
	select {
	case <-second.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the second connection lives")
	}
	if r := receive(t, s.refused); !strings.Contains(r.Detail, "second connection") {
		t.Errorf("%+v", r)
	}
	g := w.grantFor("a")
	if _, err := ask[wire.Empty](s.Link, "grant", &g); err != nil {
		t.Errorf("control: the first is refused: %v", err)
	}
	third := w.connectSentinel(true)
	if _, err := ask[wire.Empty](third.Link, "grant", ptr(w.grantFor("b"))); code(err) != wire.CodeUnavailable {
		t.Errorf("a grant on a second link: %v", err)
	}
	s.Close() // the third comes in as soon as the first is gone
	if got := third.heard(); len(got.Accounts) != 2 {
		t.Errorf("%+v", got)
	}
	if _, err := ask[wire.Empty](third.Link, "grant", ptr(w.grantFor("b"))); err != nil {
		t.Error(err)
	}
}

func TestReleasesAreRepeatedUntilAcknowledged(t *testing.T) {
	w := start(t)
	s := w.connectSentinel(false)
	s.heard()
	worker, egress := w.dial("authd-worker", githubID), w.dial("authd-egress", egressID)
	req := w.borrowed(s, worker, "a")
	for range 2 {
		if _, err := ask[wire.ResolveResp](egress, "resolve", &req); err != nil {
			t.Fatal(err)
		}
	}
	first, second := receive(t, s.released), receive(t, s.released)
	s.Close()
	<-s.Done()
	s = w.connectSentinel(true)
	s.heard()
	again := []wire.ReleasedReq{receive(t, s.released), receive(t, s.released)}
	slices.SortFunc(again, func(a, b wire.ReleasedReq) int { return int(a.Seq) - int(b.Seq) })
	if first.Seq > second.Seq {
		first, second = second, first
	}
	if first.Call != "call-a" || first.Cell == "" || first.Worker != "github" || first.Account == "" {
		t.Errorf("whose it was is not told: %+v", first)
	}
	if again[0] != first || again[1] != second {
		t.Errorf("repeated %+v, want %+v and %+v", again, first, second)
	}
	eventually(t, func() bool { return len(w.authd.outbox.Waiting()) == 0 })
	s.Close()
	<-s.Done()
	s = w.sentinel()
	select {
	case r := <-s.released:
		t.Errorf("repeated although acknowledged: %+v", r)
	case <-time.After(100 * time.Millisecond):
	}
}

// Without a link nothing is released, not even on a grant that would be live.
func TestNothingIsReleasedUnheard(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	req := w.borrowed(s, w.dial("authd-worker", githubID), "a")
	w.authd.mu.Lock()
	kept := w.authd.link
	w.authd.link = nil
	w.authd.mu.Unlock()
	egress := w.dial("authd-egress", egressID)
	got, err := ask[wire.ResolveResp](egress, "resolve", &req)
	if code(err) != wire.CodeUnavailable || got.Secret != "" {
		t.Errorf("%v", err)
	}
	w.authd.mu.Lock()
	w.authd.link = kept
	w.authd.mu.Unlock()
	if _, err := ask[wire.ResolveResp](egress, "resolve", &req); err != nil {
		t.Errorf("control: %v", err)
	}
}

// Once a revoke is answered, no release of what it ended comes on the link any more.
func TestNoReleaseAfterTheAnswerToRevoke(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	worker := w.dial("authd-worker", githubID)
	for i := range 20 {
		req := w.borrowed(s, worker, string(rune('a'+i)))
		done := make(chan int)
		for range 2 {
			l := w.dial("authd-egress", egressID)
			go func() {
				n := 0
				if _, err := ask[wire.ResolveResp](l, "resolve", &req); err == nil {
					n = 1
				}
				done <- n
			}()
		}
		if _, err := ask[wire.RevokeResp](s.Link, "revoke", &wire.GrantRef{Grant: req.Grant}); err != nil {
			t.Fatal(err)
		}
		// What was released before the answer stands before it on the link; the handlers run side by side, so only
		// the numbers are compared.
		resolved := <-done + <-done
		eventually(t, func() bool { return len(w.authd.outbox.Waiting()) == 0 })
		if len(s.released) != resolved {
			t.Fatalf("%d releases told of, %d resolved", len(s.released), resolved)
		}
		for range resolved {
			<-s.released
		}
		_, err := ask[wire.ResolveResp](w.dial("authd-egress", egressID), "resolve", &req)
		if code(err) != wire.CodeBadGrant {
			t.Fatal(err)
		}
	}
}

func TestPersonsChangeAccountsAndSentinelHears(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	person := w.person()
	set := githubAccount("second")
	add := &wire.AddReq{Name: set.Name, Vendor: set.Vendor, Base: set.Base, Placement: set.Placement,
		Secret: []byte("another-token"), Scopes: []string{"Issues: read"}}
	added, err := ask[wire.AccountsResp](person, "add", add)
	if err != nil || len(added.Accounts) != 1 || added.Accounts[0].Name != "second" {
		t.Fatal(added, err)
	}
	heard := s.heard()
	if len(heard.Accounts) != 3 || heard.Instance == "" {
		t.Fatalf("%+v", heard)
	}
	if _, err := ask[wire.AccountsResp](person, "add", add); code(err) != wire.CodeBadArgument {
		t.Errorf("a name twice: %v", err)
	}

	// A change ends the live grants of the account.
	worker, egress := w.dial("authd-worker", githubID), w.dial("authd-egress", egressID)
	req := w.borrowed(s, worker, "a")
	set = githubAccount("work")
	if _, err := ask[wire.AccountsResp](person, "add", &wire.AddReq{Name: set.Name, Vendor: set.Vendor, Base: set.Base,
		Placement: set.Placement, Secret: []byte("a-newer-token"), Replace: true}); err != nil {
		t.Fatal(err)
	}
	if g := s.heard().Accounts; g[2].Name != "work" || g[2].Generation != 4 {
		t.Errorf("%+v", g)
	}
	if _, err := ask[wire.ResolveResp](egress, "resolve", &req); code(err) != wire.CodeBadGrant {
		t.Errorf("a grant from before the change: %v", err)
	}
	got, err := ask[wire.ResolveResp](egress, "resolve", ptr(w.borrowed(s, worker, "b")))
	if err != nil || got.Secret != "a-newer-token" {
		t.Errorf("%v", err)
	}

	stale := w.grantFor("c")
	if _, err := ask[wire.Empty](person, "rename", &wire.RenameReq{From: "work", To: "job"}); err != nil {
		t.Fatal(err)
	}
	if g := s.heard().Accounts; g[1].Name != "job" {
		t.Errorf("%+v", g)
	}
	if _, err := ask[wire.Empty](s.Link, "grant", &stale); code(err) != wire.CodeNotConfigured {
		t.Errorf("a grant on the old name: %v", err)
	}
	if _, err := ask[wire.Empty](person, "remove", &wire.AccountRef{Name: "job"}); err != nil {
		t.Fatal(err)
	}
	if g := s.heard().Accounts; len(g) != 2 {
		t.Errorf("%+v", g)
	}
	if _, err := ask[wire.Empty](person, "remove", &wire.AccountRef{Name: "job"}); code(err) != wire.CodeNotFound {
		t.Errorf("%v", err)
	}
	list, err := ask[wire.AccountsResp](person, "list", &wire.Empty{})
	if err != nil || len(list.Accounts) != 2 || list.Accounts[0].Name != "cal" || list.Accounts[1].Name != "second" {
		t.Errorf("%+v, %v", list, err)
	}
}

// A new account, or one whose base, CA or allowlist changed, is unusable until a person has decided on what it is now.
func TestAnUndecidedAccountIsUnusable(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	decided := w.grantFor("a")
	if _, err := ask[wire.Empty](s.Link, "grant", &decided); err != nil {
		t.Fatalf("control: %v", err)
	}
	person := w.person()
	set := githubAccount("work")
	changes := map[string]wire.AddReq{
		"base":      {Base: wire.Base{Scheme: "https", Host: "evil.test", Port: 443}},
		"allowlist": {Base: set.Base, Workers: []string{"dav", "github"}},
		"permit":    {Base: set.Base, Permit: []string{"10.0.0.1:443"}},
		"also":      {Base: set.Base, Also: []string{"evil.test:443"}},
	}
	for name, add := range changes {
		add.Name, add.Vendor, add.Placement, add.Replace = set.Name, set.Vendor, set.Placement, true
		add.Secret = []byte(token)
		if _, err := ask[wire.AccountsResp](person, "add", &add); err != nil {
			t.Fatal(name, err)
		}
		g := decided
		g.Grant += name
		if _, err := ask[wire.Empty](s.Link, "grant", &g); code(err) != wire.CodeNotConnected {
			t.Errorf("%s changed: %v", name, err)
		}
		g = w.grantFor("b" + name) // the same for the account as it is now: what sentinel sends once it is decided
		g.Entries[0].Host = add.Base.Host
		if _, err := ask[wire.Empty](s.Link, "grant", &g); err != nil {
			t.Errorf("control: %s decided: %v", name, err)
		}
	}
}

func TestLockedAnswersLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s0, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := on(t, dir, s0)
	s := w.connectSentinel(true)
	if heard := s.heard(); !heard.Locked || heard.Accounts != nil {
		t.Errorf("%+v", heard)
	}
	person := w.person()
	worker, egress := w.dial("authd-worker", githubID), w.dial("authd-egress", egressID)
	answers := map[string]error{}
	_, answers["grant"] = ask[wire.Empty](s.Link, "grant", &wire.GrantReq{Grant: "grant-0123456789"})
	_, answers["mint"] = ask[wire.MintResp](s.Link, "mint", &wire.MintReq{Issue: "i", Cell: "work", Account: "a"})
	_, answers["revoke of an issue"] = ask[wire.RevokeResp](s.Link, "revoke", &wire.GrantRef{Grant: "i"})
	_, answers["resolve for a cell"] = ask[wire.ResolveResp](w.dial("authd-egress", workEgressID), "resolve", &wire.ResolveReq{Grant: "g"})
	_, answers["checkpoint"] = ask[wire.Empty](s.Link, "checkpoint", &wire.CheckpointReq{Note: []byte("n"), Size: 1})
	_, answers["borrow"] = ask[wire.BorrowResp](worker, "borrow", &wire.BorrowReq{Grant: "g"})
	_, answers["resolve"] = ask[wire.ResolveResp](egress, "resolve", &wire.ResolveReq{Grant: "g"})
	_, answers["list"] = ask[wire.AccountsResp](person, "list", &wire.Empty{})
	_, answers["add"] = ask[wire.AccountsResp](person, "add", &wire.AddReq{Name: "a", Secret: []byte("abcdefgh")})
	_, answers["rename"] = ask[wire.Empty](person, "rename", &wire.RenameReq{From: "a", To: "b"})
	_, answers["remove"] = ask[wire.Empty](person, "remove", &wire.AccountRef{Name: "a"})
	for verb, err := range answers {
		if code(err) != wire.CodeLocked {
			t.Errorf("%s: %v", verb, err)
		}
	}
	unlock := func(passphrase string) error {
		_, err := ask[wire.Empty](person, "unlock", &wire.UnlockReq{Passphrase: []byte(passphrase)})
		return err
	}
	if err := unlock("correct horse battery"); err != nil {
		t.Fatal(err)
	}
	if heard := s.heard(); heard.Locked {
		t.Error("sentinel hears that it is still locked")
	}
	if err := unlock("correct horse battery"); code(err) != wire.CodeUsage {
		t.Errorf("a second unlock: %v", err)
	}
	if _, err := ask[wire.AccountsResp](person, "list", &wire.Empty{}); err != nil {
		t.Error(err)
	}
	w.stop()

	if s0, err = store.Open(dir); err != nil {
		t.Fatal(err)
	}
	w = on(t, dir, s0)
	person = w.person()
	if err := unlock("correct horse batterz"); code(err) != wire.CodeBadCredential {
		t.Errorf("a wrong passphrase: %v", err)
	}
	if !w.authd.store.Locked() {
		t.Error("open after a wrong passphrase")
	}
	if err := unlock("correct horse battery"); err != nil {
		t.Error(err)
	}
}

// Bytes in our own state that are not ours end the daemon, loudly; the caller learns no detail.
func TestDamagedStateEndsTheDaemon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.UnlockPassphrase([]byte("correct horse battery")); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(githubAccount("work"), []byte(token), time.Now()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	names, err := filepath.Glob(dir + "/accounts/*")
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(names[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(dir); err != nil {
		t.Fatal(err)
	}
	w := on(t, dir, s)
	person := w.person()
	_, err = ask[wire.Empty](person, "unlock", &wire.UnlockReq{Passphrase: []byte("correct horse battery")})
	if code(err) != wire.CodeInternal {
		t.Errorf("%v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fatals) != 1 || !w.authd.store.Locked() {
		t.Errorf("%v", w.fatals)
	}
}

func TestTheNewestCheckpointComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	w := at(t, dir)
	s := w.connectSentinel(true)
	if heard := s.heard(); heard.Checkpoint != nil {
		t.Errorf("%q", heard.Checkpoint)
	}
	keep := func(note string, size int64) wire.Code {
		_, err := ask[wire.Empty](s.Link, "checkpoint", &wire.CheckpointReq{Note: []byte(note), Size: size})
		return code(err)
	}
	if got := []wire.Code{keep("one", 1), keep("two", 2), keep("old", 1), keep("other", 2)}; !slices.Equal(got,
		[]wire.Code{"", "", wire.CodeBadArgument, wire.CodeBadArgument}) {
		t.Errorf("%q", got)
	}
	w.stop()
	s = at(t, dir).connectSentinel(true)
	if heard := s.heard(); string(heard.Checkpoint) != "two" {
		t.Errorf("%q", heard.Checkpoint)
	}
}

// LK-07: after an account was added, borrowed from, resolved and misused, no file, log line or answer but
// egress's holds the credential in any usual form.
func TestLK07NoCredentialInLogsAnswersOrFiles(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	person := w.person()
	worker, egress := w.dial("authd-worker", githubID), w.dial("authd-egress", egressID)
	const secret = `pa"ss&w%rd-3f9b2c71`
	var answers bytes.Buffer
	note := func(v any, err error) {
		at := reflect.New(reflect.TypeOf(v)) // some messages encode only where they can be addressed
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
	set := githubAccount("leak")
	add := &wire.AddReq{
		Name: "leak", Vendor: set.Vendor, Base: set.Base, Placement: set.Placement, Secret: []byte(secret),
	}
	added, err := ask[wire.AccountsResp](person, "add", add)
	note(added, err)
	if err != nil {
		t.Fatal(err)
	}
	note(ask[wire.AccountsResp](person, "add", add))
	for _, bad := range []string{secret + "\n", "\x00" + secret, secret + " " + secret} {
		broken := *add
		broken.Name, broken.Secret = "broken", []byte(bad)
		note(ask[wire.AccountsResp](person, "add", &broken))
	}
	note(ask[wire.Empty](person, "unlock", &wire.UnlockReq{Passphrase: []byte(secret)}))
	account, _ := w.authd.store.Account("leak")
	g := w.grantFor("a")
	g.Account, g.Generation, g.Digest = "leak", account.Generation, account.Digest
	note(ask[wire.Empty](s.Link, "grant", &g))
	lent, err := ask[wire.BorrowResp](worker, "borrow", ptr(borrowOf(g)))
	note(lent, err)
	got, err := ask[wire.ResolveResp](egress, "resolve",
		&wire.ResolveReq{Grant: g.Grant, Surrogate: lent.Surrogate, Worker: "github"})
	if err != nil || got.Secret != secret {
		t.Fatalf("control: egress does not get it: %v", err)
	}
	note(ask[wire.ResolveResp](egress, "resolve",
		&wire.ResolveReq{Grant: g.Grant, Surrogate: secret, Worker: "github"}))
	note(ask[wire.AccountsResp](person, "list", &wire.Empty{}))
	for len(s.accounts) > 0 {
		note(<-s.accounts, nil)
	}
	note(receive(t, s.released), nil)
	look, err := leaks.New(leaks.Secret{Name: "the credential", Value: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	if found := look.Bytes("egress's answer", []byte(got.Secret)); len(found) == 0 {
		t.Fatal("control: the scanner does not find it where it is")
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

// Both clocks count: a wall clock set forward ends grants although no time has passed.
func TestTheWallClockCounts(t *testing.T) {
	now, err := clock()
	if err != nil {
		t.Fatal(err)
	}
	later, err := clock()
	if err != nil || later.Boot < now.Boot || now.Boot <= 0 {
		t.Fatal(now, later, err)
	}
	if now.Wall != now.Wall.Round(0) {
		t.Error("the wall reading carries a monotonic one, and comparing would ignore the wall")
	}
	w := start(t)
	s := w.sentinel()
	worker, egress := w.dial("authd-worker", githubID), w.dial("authd-egress", egressID)
	req := w.borrowed(s, worker, "a")
	if _, err := ask[wire.ResolveResp](egress, "resolve", &req); err != nil {
		t.Fatalf("control: %v", err)
	}
	w.ahead.Store(int64(2 * time.Minute))
	_, err = ask[wire.ResolveResp](egress, "resolve", &req)
	if c := code(err); c != wire.CodeExpired && c != wire.CodeBadGrant { // or swept already
		t.Errorf("%v", err)
	}
}

// A release that sentinel could not record, on a full disk say, is said again on the same link: otherwise the outbox
// would fill, and nothing be released any more although there is room again.
func TestAReleaseThatCouldNotBeRecordedIsSaidAgain(t *testing.T) {
	w := start(t)
	heard, known := make(chan wire.ReleasedReq, 16), make(chan struct{}, 16)
	said := 0
	link := w.dial("authd-sentinel", sentinelID,
		daemon.Pushed("accounts", func(context.Context, *daemon.Call, *wire.AccountsReq) (*wire.Empty, error) {
			known <- struct{}{}
			return &wire.Empty{}, nil
		}),
		daemon.Pushed("refused", func(context.Context, *daemon.Call, *wire.RefusedReq) (*wire.Empty, error) {
			return &wire.Empty{}, nil
		}),
		daemon.Pushed("released", func(_ context.Context, _ *daemon.Call, r *wire.ReleasedReq) (*wire.Empty, error) {
			heard <- *r
			if said++; said == 1 {
				return nil, wire.Refuse(wire.CodeFull, "the disk is full", "")
			}
			return &wire.Empty{}, nil
		}).InOrder())
	receive(t, known) // until then it is not sentinel's link
	s := &sentinel{Link: link, w: w}
	worker, egress := w.dial("authd-worker", githubID), w.dial("authd-egress", egressID)
	req := w.borrowed(s, worker, "a")
	if _, err := ask[wire.ResolveResp](egress, "resolve", &req); err != nil {
		t.Fatal(err)
	}
	if first, again := receive(t, heard), receive(t, heard); first != again {
		t.Errorf("said %+v, then %+v", first, again)
	}
	eventually(t, func() bool { return len(w.authd.outbox.Waiting()) == 0 })
}

// A release that could not be written on the link did not happen, and is not told later: its call surely did not run.
func TestWhatWasNotReleasedIsNotTold(t *testing.T) {
	w := start(t)
	s := w.sentinel()
	req := w.borrowed(s, w.dial("authd-worker", githubID), "a")
	w.authd.mu.Lock()
	n := w.authd.link
	w.authd.mu.Unlock()
	n.Close()
	<-n.detached
	put := func(l *link) {
		w.authd.mu.Lock()
		defer w.authd.mu.Unlock()
		w.authd.link = l
	}
	put(n) // the moment in which the link has broken and authd has not noticed yet
	defer put(nil)
	now, err := w.authd.clock()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.authd.announce(now, wire.ReleasedReq{Grant: req.Grant, Entry: req.Entry}); code(err) != wire.CodeUnavailable {
		t.Fatalf("announced on a link that is over: %v", err)
	}
	if waiting := w.authd.outbox.Waiting(); len(waiting) != 0 {
		t.Errorf("kept to be told: %+v", waiting)
	}
}
