// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// TestIssuingIsAWidening: nothing is issued before a person approved the card, which shows cell, hosts, routes and end; then a
// cell's connections to those hosts are cut, and only those.
func TestIssuingIsAWidening(t *testing.T) {
	s := newSentinel(t)
	a, k := s.authdThat(t), s.egressOfCell(t, "work")
	s.usePolicy(t, "[site.\"chat.example\"]\nsetting = \"allow\"\n[site.\"other.example\"]\nsetting = \"allow\"\n", "")
	s.begin(t, "work", 7)
	s.chatAccount(t, "chat")
	conn, e := s.connects(t, "work", site("chat.example"))
	if e != nil || conn.How != wire.HowSplice {
		t.Fatalf("%+v, %v", conn, e)
	}
	other, e := s.connects(t, "work", site("other.example"))
	if e != nil {
		t.Fatal(e)
	}
	until := time.Now().Add(24 * time.Hour).Unix()
	r, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "add", Name: "chat", Cell: "work",
		Manifest: []byte(chatManifest), Until: until})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.surrogate(t.Context(), inCell("work"), &wire.SurrogateReq{Name: "chat"}); codeOf(err) != wire.CodeNeedsApproval {
		t.Errorf("before it is approved: %v", err)
	}
	shown, err := s.show(t.Context(), ada(), &wire.CallRef{Call: r.Widening})
	if err != nil {
		t.Fatal(err)
	}
	facts := strings.Join(shown.Card.Facts, "\n")
	for _, want := range []string{"cell work", "chat.example", "every name below it", "Bot ", "drop", "send", "look", "until " + time.Unix(until, 0).UTC().Format("2006-01-02")} {
		if !strings.Contains(facts, want) {
			t.Errorf("the card does not say %q: %s", want, facts)
		}
	}
	if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: r.Widening, Hash: shown.Card.Hash, Approve: true}); err != nil {
		t.Fatal(err)
	}
	cut := func(id string) bool {
		return slices.ContainsFunc(k.all(), func(r wire.GrantRef) bool { return r.Grant == id })
	}
	if !cut(conn.ID) || cut(other.ID) {
		t.Errorf("cut: %+v", k.all())
	}
	got, err := s.surrogate(t.Context(), inCell("work"), &wire.SurrogateReq{Name: "chat"})
	if err != nil || string(got.Value) != "a-surrogate" || got.Unix != until {
		t.Fatalf("%+v, %v", got, err)
	}
	var m wire.MintReq
	if err := wire.Unmarshal(a.of(t, "mint")[0].Body, &m); err != nil {
		t.Fatal(err)
	}
	is := s.issueNamed("work", "chat")
	if m.Issue != is.ID || m.Cell != "work" || m.Account != "chat" || m.Generation != 3 || m.Unix != until {
		t.Errorf("%+v", m)
	}
	if got := s.lines(t, ledger.EvMint); len(got) != 1 || strings.Contains(got[0], "a-surrogate") || !strings.Contains(got[0], is.ID) {
		t.Errorf("%q", got)
	}
	if _, err := s.surrogate(t.Context(), inCell("home"), &wire.SurrogateReq{Name: "chat"}); codeOf(err) != wire.CodeNotFound {
		t.Errorf("another cell: %v", err)
	}
	list, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "list"})
	if err != nil || len(list.Issued) != 1 || list.Issued[0].Issue != is.ID || !slices.Equal(list.Issued[0].Hosts, []string{"chat.example:443", "*.chat.example:443"}) {
		t.Errorf("%+v, %v", list, err)
	}
	s.issues.Store(nil) // as at a start
	s.loadSurrogates()
	if again := s.issueNamed("work", "chat"); again == nil || again.ID != is.ID {
		t.Error("it does not survive a restart")
	}
}

// TestWhatIsNotIssued: each differs in one thing from what is. Control: that.
func TestWhatIsNotIssued(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   func(*Sentinel, *wire.PersonSurrogateReq)
		want wire.Code
	}{
		{"control", func(*Sentinel, *wire.PersonSurrogateReq) {}, ""},
		{"a manifest that is none", func(_ *Sentinel, r *wire.PersonSurrogateReq) { r.Manifest = []byte("x") }, wire.CodeBadArgument},
		{"a cell of no name", func(_ *Sentinel, r *wire.PersonSurrogateReq) { r.Cell = "" }, wire.CodeBadArgument},
		{"a cell of another name", func(_ *Sentinel, r *wire.PersonSurrogateReq) { r.Cell = "work/chat" }, wire.CodeBadArgument},
		{"a connector's name", func(s *Sentinel, r *wire.PersonSurrogateReq) { r.Name = "demo" }, wire.CodeBadArgument},
		{"the name of sites", func(s *Sentinel, r *wire.PersonSurrogateReq) { r.Name = "site" }, wire.CodeBadArgument},
		{"no account", func(s *Sentinel, _ *wire.PersonSurrogateReq) { delete(s.accounts, "chat") }, wire.CodeNotConfigured},
		{"an end that is over", func(_ *Sentinel, r *wire.PersonSurrogateReq) { r.Until = 7 }, wire.CodeBadArgument},
		{"an account of another vendor", func(s *Sentinel, _ *wire.PersonSurrogateReq) {
			a := s.accounts["chat"]
			a.Vendor = "demo"
			s.accounts["chat"] = a
		}, wire.CodeBadArgument},
		{"an account for another host", func(s *Sentinel, _ *wire.PersonSurrogateReq) {
			a := s.accounts["chat"]
			a.Base.Host = "evil.example"
			s.accounts["chat"] = a
		}, wire.CodeBadArgument},
		{"an account for a host more", func(s *Sentinel, _ *wire.PersonSurrogateReq) {
			a := s.accounts["chat"]
			a.Also = append(a.Also, "evil.example:443")
			s.accounts["chat"] = a
		}, wire.CodeBadArgument},
		{"an account with another place", func(s *Sentinel, _ *wire.PersonSurrogateReq) {
			a := s.accounts["chat"]
			a.Placement.Prefix = ""
			s.accounts["chat"] = a
		}, wire.CodeBadArgument},
	} {
		s := newSentinel(t)
		s.chatAccount(t, "chat")
		req := &wire.PersonSurrogateReq{Op: "add", Name: "chat", Cell: "work", Manifest: []byte(chatManifest)}
		c.fn(s, req)
		if r, err := s.personSurrogate(t.Context(), ada(), req); (c.want == "") != (err == nil) || err != nil && codeOf(err) != c.want {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
}

// TestAnAccountThatIsNotDecided: an approval issues nothing of it, and of one that changed since nothing is minted or sent.
func TestAnAccountThatIsNotDecided(t *testing.T) {
	s, _, _, send := chatRig(t, "")
	is := s.issueNamed("work", "chat")
	a := s.accounts["chat"]
	for name, fn := range map[string]func(*wire.Account){
		"another login": func(a *wire.Account) { a.Generation++ },
		"another place": func(a *wire.Account) { a.Digest[0]++ },
	} {
		b := a
		fn(&b)
		s.accounts["chat"] = b
		for _, decided := range []bool{false, true} { // also where a person decided it as it is now: it is not what was issued
			if decided {
				if err := s.ledger.PutSetting(t.Context(), "account/chat", []byte(accountValue(&b)), "person:1000", nil); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.surrogate(t.Context(), inCell("work"), &wire.SurrogateReq{Name: "chat"}); codeOf(err) != wire.CodeNotConnected {
				t.Errorf("%s, decided %t: %v", name, decided, err)
			}
			if _, e := send("GET", "/api/users/me"); e == nil || e.Code != wire.CodeNotConnected {
				t.Errorf("%s, decided %t: %v", name, decided, e)
			}
		}
		s.accounts["chat"] = a
		if err := s.ledger.PutSetting(t.Context(), "account/chat", []byte(accountValue(&a)), "person:1000", nil); err != nil {
			t.Fatal(err)
		}
		if _, e := send("GET", "/api/users/me"); e != nil {
			t.Errorf("control: %v", e)
		}
	}
	if err := s.ledger.PutSetting(t.Context(), "account/chat", nil, "person:1000", nil); err != nil {
		t.Fatal(err)
	}
	other := &issued{issue{Name: "chat", Cell: "home", Generation: is.Generation, Digest: is.Digest}, is.manifest}
	if err := s.mayIssue(other, true); codeOf(err) != wire.CodeNotConnected {
		t.Errorf("%v", err)
	}
}

// TestTheAccountComesFirst: of the two cards of a new surrogate the account's is decided first. Until then the other one cannot be
// approved and waits on; a no to the account is said wherever it matters, and adding again puts its card up once more.
func TestTheAccountComesFirst(t *testing.T) {
	s := newSentinel(t)
	s.authdThat(t)
	s.egressOfCell(t, "work")
	s.usePolicy(t, "", "")
	a := s.chatAccount(t, "chat")
	if err := s.ledger.PutSetting(t.Context(), "account/chat", nil, "person:1000", nil); err != nil {
		t.Fatal(err)
	}
	add := func() (account, issue string) {
		t.Helper()
		r, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "add", Name: "chat", Cell: "work",
			Manifest: []byte(chatManifest)})
		if err != nil {
			t.Fatal(err)
		}
		return s.waitsFor(widenAccount, "chat"), r.Widening
	}
	decide := func(id string, yes bool) (*wire.DecideCardResp, error) {
		t.Helper()
		k := s.cardNamed(t, id)
		return s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: id, Hash: k.Hash, Approve: yes})
	}
	notYet := func(what, id, says, next string) {
		t.Helper()
		_, err := decide(id, true)
		if codeOf(err) != wire.CodeNotConnected || !strings.Contains(reasonOf(err), says) || !strings.Contains(nextOf(err), next) {
			t.Errorf("%s: %v; next: %s", what, err, nextOf(err))
		}
		if k := s.cardNamed(t, id); k.State != wire.StateParked {
			t.Errorf("%s: the card is %s", what, k.State)
		}
	}
	unwell := func() string {
		t.Helper()
		out, err := s.check(t.Context(), ada(), &wire.CheckReq{})
		if err != nil {
			t.Fatal(err)
		}
		return string(out.JSON)
	}
	account, issue := add()
	if account == "" {
		t.Fatal("nobody is asked about the account")
	}
	facts := strings.Join(s.cardNamed(t, account).Facts, "\n")
	if !strings.Contains(facts, "no worker uses it") || !strings.Contains(facts, `the header Authorization, behind "Bot "`) ||
		strings.Contains(facts, "[]") {
		t.Errorf("the account's card: %s", facts)
	}
	if facts := strings.Join(s.cardNamed(t, issue).Facts, "\n"); !strings.Contains(facts, "no program ran in a cell of that name") {
		t.Errorf("of a cell that nobody has seen: %s", facts)
	}
	notYet("the account waits", issue, "chat waits for a person's decision", "doorward approve "+account)
	if got := unwell(); !strings.Contains(got, `"account":"chat","login":3,"health":"not_connected"`) {
		t.Error(got)
	}
	if _, err := s.surrogate(t.Context(), inCell("work"), &wire.SurrogateReq{Name: "chat"}); codeOf(err) != wire.CodeNeedsApproval ||
		!strings.Contains(nextOf(err), "doorward pending") {
		t.Errorf("a value: %v", err)
	}
	if _, err := decide(account, false); err != nil {
		t.Fatal(err)
	}
	notYet("the account is denied", issue, "chat was denied", "doorward surrogate add chat")
	if got := unwell(); !strings.Contains(got, `"health":"denied"`) {
		t.Error(got)
	}
	again, issue := add()
	if again == "" || again == account {
		t.Fatalf("added again: account %q after %q", again, account)
	}
	for _, id := range []string{again, issue} {
		if r, err := decide(id, true); err != nil || r.State != wire.StateDone || r.Err != nil {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if got := unwell(); strings.Contains(got, "chat") || s.issueNamed("work", "chat") == nil {
		t.Errorf("%s, %v", got, s.allIssued())
	}
	if s.standing(&a) != wire.CodeNotConnected { // a yes takes the no before it back
		t.Error("it is still said to be denied")
	}
}

// TestWhatDidNotComeOfAYes: who approves what cannot be done any more hears that, why and what to do, and so does the card.
func TestWhatDidNotComeOfAYes(t *testing.T) {
	s := newSentinel(t)
	id, err := s.widen(t.Context(), widening{Kind: widenPolicy, About: "policy", From: "another"}, "a policy", "person:1000")
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: id, Hash: s.cardNamed(t, id).Hash, Approve: true})
	if err != nil || r.State != wire.StateFailed || r.Err == nil || r.Err.Code != wire.CodeConflict ||
		r.Err.Next != "doorward policy load" {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, e := range []*wire.Error{r.Err, s.cardNamed(t, id).Err} {
		if !strings.HasPrefix(e.Reason, "another policy") || strings.Contains(e.Reason, string(wire.CodeConflict)) {
			t.Errorf("%q", e.Reason)
		}
	}
}

// TestCardsNameTheUser: of a password the cards of account and surrogate name whose it is, where only the account says so.
func TestCardsNameTheUser(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, "", "")
	a := s.chatAccount(t, "chat")
	a.Placement = wire.Placement{Kind: "basic", User: "ada"}
	a.Generation++
	s.accounts["chat"] = a
	basic := strings.Replace(chatManifest, "kind = \"header\"\nname = \"Authorization\"\nprefix = \"Bot \"\n", "kind = \"basic\"\n", 1)
	r, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "add", Name: "chat", Cell: "work",
		Manifest: []byte(basic)})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{s.waitsFor(widenAccount, "chat"), r.Widening} {
		if facts := strings.Join(s.cardNamed(t, id).Facts, "\n"); !strings.Contains(facts, `the password of user "ada"`) {
			t.Errorf("%s", facts)
		}
	}
	home := s.accounts["home"]
	home.Placement.User, home.Workers = "ada", []string{"demo", "dav"}
	id, err := s.askAccount(home)
	if err != nil {
		t.Fatal(err)
	}
	facts := strings.Join(s.cardNamed(t, id).Facts, "\n")
	if !strings.Contains(facts, `user "ada"`) || !strings.Contains(facts, "the worker of demo, dav") {
		t.Errorf("%s", facts)
	}
	if _, err := s.check(t.Context(), ada(), &wire.CheckReq{Account: "chat"}); codeOf(err) != wire.CodeNotConfigured ||
		!strings.Contains(reasonOf(err), "no test read") || nextOf(err) == "" {
		t.Errorf("its test: %v", err)
	}
}

func (s *Sentinel) cardNamed(t *testing.T, id string) wire.Card {
	t.Helper()
	shown, err := s.show(t.Context(), ada(), &wire.CallRef{Call: id})
	if err != nil {
		t.Fatal(err)
	}
	return shown.Card
}

// TestOneSurrogateForAHost: in one cell a second one for the same host and port is refused in words; another cell may have it.
func TestOneSurrogateForAHost(t *testing.T) {
	s, _, _, _ := chatRig(t, "")
	add := func(name, cell string) error {
		_, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "add", Name: name, Cell: cell, Manifest: []byte(chatManifest)})
		return err
	}
	s.chatAccount(t, "bot")
	if err := add("bot", "work"); codeOf(err) != wire.CodeConflict || !strings.Contains(err.Error(), "chat") {
		t.Errorf("another name: %v", err)
	}
	if err := add("chat", "work"); codeOf(err) != wire.CodeConflict {
		t.Errorf("the same again: %v", err)
	}
	if err := add("bot", "home"); err != nil {
		t.Errorf("another cell: %v", err)
	}
	h := func(name string, below bool, port uint16) manifest.Host {
		return manifest.Host{Name: name, Below: below, Port: port}
	}
	for _, c := range []struct {
		a, b manifest.Host
		want bool
	}{
		{h("a.example", false, 443), h("a.example", false, 443), true},
		{h("a.example", false, 443), h("a.example", false, 8443), false},
		{h("a.example", false, 443), h("b.example", false, 443), false},
		{h("a.example", false, 443), h("a.example", true, 443), false},
		{h("x.a.example", false, 443), h("a.example", true, 443), true},
		{h("xa.example", false, 443), h("a.example", true, 443), false},
		{h("b.a.example", true, 443), h("a.example", true, 443), true},
		{h("a.example", true, 443), h("a.example", true, 443), true},
		{h("a.example", true, 443), h("b.example", true, 443), false},
	} {
		if overlap(c.a, c.b) != c.want || overlap(c.b, c.a) != c.want {
			t.Errorf("%s and %s", c.a, c.b)
		}
	}
}

// TestRevokedSurrogate: it narrows at once; authd and egress are told, authd again when it was away; its grants end, and one
// that is issued anew inherits none.
func TestRevokedSurrogate(t *testing.T) {
	was := switchFor
	switchFor = 300 * time.Millisecond
	t.Cleanup(func() { switchFor = was })
	for _, away := range []bool{false, true} {
		s, a, k, send := chatRig(t, "")
		is := s.issueNamed("work", "chat")
		send("POST", "/api/channels/1/messages")
		grant := s.approve(t, s.cards(t)[0].ID, nil)
		a.setAway(away)
		r, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "revoke", Name: "chat", Cell: "work"})
		if err != nil || !strings.Contains(strings.Join(r.Lines, "\n"), "surrogate chat of cell work is revoked") || !strings.Contains(strings.Join(r.Lines, "\n"), grant) {
			t.Fatalf("%+v, %v", r, err)
		}
		if _, e := send("GET", "/api/users/me"); e == nil || e.Code != wire.CodeRevoked {
			t.Errorf("a request: %v", e)
		}
		if _, err := s.surrogate(t.Context(), inCell("work"), &wire.SurrogateReq{Name: "chat"}); codeOf(err) != wire.CodeNotFound {
			t.Errorf("a value: %v", err)
		}
		if !slices.ContainsFunc(k.all(), func(r wire.GrantRef) bool { return r.Grant == is.ID }) {
			t.Errorf("cut: %+v", k.all())
		}
		if told := slices.Contains(a.revoked(t), is.ID); told == away {
			t.Errorf("authd is away %t, and was told %t", away, told)
		}
		a.setAway(false)
		s.endIssues(t.Context())
		s.endIssues(t.Context())
		n := 0
		for _, id := range a.revoked(t) {
			if id == is.ID {
				n++
			}
		}
		if n != 1 {
			t.Errorf("authd was told %d times", n)
		}
		if again := s.issueChat(t, "work"); again.ID == is.ID {
			t.Error("an issue that ended is issued again")
		}
		if g := s.grants("work", "chat", "send"); len(g) != 0 {
			t.Errorf("it inherits %+v", g)
		}
	}
}

// TestASurrogateThatIsOver ends by itself, and one of an older record ends when that is found out.
func TestASurrogateThatIsOver(t *testing.T) {
	s, a, _, send := chatRig(t, "")
	is := *s.issueNamed("work", "chat")
	is.Until = time.Now().Unix() - 1
	s.issues.Store(&map[string]*issued{"work/chat": &is})
	if _, e := send("GET", "/api/users/me"); e == nil {
		t.Error("a request after its end")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.expire(ctx) // which looks once a second
	}()
	over := func() bool { return len(s.allIssued()) == 0 && slices.Contains(a.revoked(t), is.ID) }
	for end := time.Now().Add(time.Minute); !over() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	<-ended
	if !slices.Contains(a.revoked(t), is.ID) || len(s.allIssued()) != 0 {
		t.Errorf("%v, %v", a.revoked(t), s.allIssued())
	}
	again := s.issueChat(t, "work")
	s.voidSurrogates(t.Context(), "the record was put back")
	if slices.Contains(a.revoked(t), again.ID) {
		t.Error("authd was told in the middle of what it tells")
	}
	s.endIssues(t.Context())
	if !slices.Contains(a.revoked(t), again.ID) || s.issuedFor("work", policy.Target{Name: "chat.example", Port: 443}) != nil {
		t.Error("one of an older record lives")
	}
}

// TestMintingIsBounded: a cell that asks for ever gets some, and again later.
func TestMintingIsBounded(t *testing.T) {
	s := newSentinel(t)
	now := time.Now()
	n := 0
	for range 2 * mintBurst {
		if s.mayMint("work", now) {
			n++
		}
	}
	if n != mintBurst || !s.mayMint("home", now) || s.mayMint("work", now.Add(mintEvery/2)) || !s.mayMint("work", now.Add(mintEvery)) {
		t.Errorf("%d at once", n)
	}
}

// TestALineOfNoSurrogate: a line about a surrogate that no cell has is said, when it is checked and when it is shown.
func TestALineOfNoSurrogate(t *testing.T) {
	s, _, _, _ := chatRig(t, "[surrogate.chat]\nsetting = \"dont-ask\"\n[surrogate.chta.route]\nsend = \"off\"\n"+
		"[surrogate.chat.route]\nsned = \"off\"\n")
	for _, op := range []string{"check", "show"} {
		req := &wire.PolicyReq{Op: op}
		if op == "check" {
			req.Files = asList(s.policy.Load().Files())
		}
		r, err := s.policyVerb(t.Context(), ada(), req)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(r.Notes, "\n")
		if got, _, _ = strings.Cut(got, "\ndigest "); got != `policy.toml:4:1: surrogate chta send = "off": no surrogate of that name is issued into any cell; did you mean "chat"?`+"\n"+
			`policy.toml:6:1: surrogate chat sned = "off": no manifest issued as chat has a route sned; did you mean "send"?` {
			t.Errorf("%s: %s", op, got)
		}
	}
	// What is said of such a one is told as no narrowing, and as a widening all the same: it may be issued yet.
	r, err := s.policyVerb(t.Context(), ada(), &wire.PolicyReq{Op: "check", Files: []wire.PolicyFile{{Name: policy.PolicyFile,
		Body: []byte("[surrogate.chat.route]\nsned = \"off\"\nnote = \"off\"\n[surrogate.chta]\nsetting = \"dont-ask\"\n")}}})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(r.Lines, "\n")
	if strings.Contains(got, "sned") || !strings.Contains(got, "narrows: surrogate chat note changes: ") ||
		!strings.Contains(got, "widens: surrogate chta changes: ") {
		t.Errorf("%s", got)
	}
}

// TestARevokedAccountOfASurrogate: what is open with it is cut, and nothing goes until it is decided again.
func TestARevokedAccountOfASurrogate(t *testing.T) {
	s, _, k, send := chatRig(t, "")
	is := s.issueNamed("work", "chat")
	if _, err := s.revoke(t.Context(), ada(), &wire.PersonRevokeReq{Account: "chat"}); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(k.all(), func(r wire.GrantRef) bool { return r.Grant == is.ID }) {
		t.Errorf("cut: %+v", k.all())
	}
	if _, e := send("GET", "/api/users/me"); e == nil || e.Code != wire.CodeNotConnected {
		t.Errorf("%v", e)
	}
}

// TestOneCellsEgressHoldsUpNobody: however many connections a cell has open to the hosts of its surrogate, they are ended at once,
// all of the cell's where they are many; and while its egress does not answer, another cell's surrogates are issued and revoked.
func TestOneCellsEgressHoldsUpNobody(t *testing.T) {
	was := switchFor
	switchFor = time.Second
	t.Cleanup(func() { switchFor = was })
	s, _, k, _ := chatRig(t, "")
	for range maxCuts + 8 {
		s.conns.gave("work", ledger.NewID(), given{target: policy.Target{Name: "chat.example", Port: 443}})
	}
	before := len(k.all())
	revoke := func(cell string) []string {
		r, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "revoke", Name: "chat", Cell: cell})
		if err != nil {
			t.Error(err)
			return nil
		}
		return r.Lines
	}
	revoke("work")
	if got := k.all()[before:]; len(got) != 2 || !slices.Contains(got, wire.GrantRef{Cell: "work"}) {
		t.Errorf("cut: %+v", got)
	}

	s.issueChat(t, "work")
	asked := make(chan bool, 100)
	s.egresses["work"] = peerThat(t, func(*wire.Msg) any { asked <- true; return nil }) // it hangs
	s.egressOfCell(t, "home")
	over := make(chan []string)
	go func() { over <- revoke("work") }()
	<-asked
	if !s.issuing.TryLock() {
		t.Error("nobody can issue while an egress hangs")
	} else {
		s.issuing.Unlock()
	}
	if lines := strings.Join(<-over, "\n"); !strings.Contains(lines, "could not be ended") {
		t.Errorf("%s", lines)
	}
	if n := len(asked); n > 2 {
		t.Errorf("an egress that does not answer is asked %d times more", n)
	}
}

// TestCheckBeforeASecret: what add would refuse check does, without an account, and it changes nothing.
func TestCheckBeforeASecret(t *testing.T) {
	s, _, _, _ := chatRig(t, "")
	ask := func(name, cell, text string) error {
		_, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "check", Name: name, Cell: cell, Manifest: []byte(text)})
		return err
	}
	if err := ask("other", "play", chatManifest); err != nil {
		t.Errorf("what could be issued: %v", err)
	}
	for want, err := range map[string]error{
		"has a surrogate for chat.example:443 already": ask("other", "work", chatManifest),
		"has the surrogate chat already":               ask("chat", "work", chatManifest),
		"no surrogate can be called":                   ask("a-", "play", chatManifest),
		"no cell can be called":                        ask("other", "Play", chatManifest),
		"is no place for a credential":                 ask("other", "play", strings.Replace(chatManifest, "Authorization", "Host", 1)),
		"about says":                                   ask("other", "play", ""),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if s.issueNamed("play", "other") != nil {
		t.Error("it is issued")
	}
}
