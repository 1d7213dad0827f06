// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

const chatManifest = `
about = "a chat"
hosts = ["chat.example", "*.chat.example"]
setting = "ask-before-changes"
[placement]
kind = "header"
name = "Authorization"
prefix = "Bot "
[[route]]
name = "look"
methods = ["GET"]
path = "/api/**"
class = "read"
reach = "none"
[[route]]
name = "send"
methods = ["POST"]
path = "/api/channels/{channel}/messages"
class = "write"
reach = "people"
[[route]]
name = "note"
methods = ["PUT"]
path = "/api/notes/{note}"
class = "write"
reach = "none"
[[route]]
name = "drop"
methods = ["DELETE"]
path = "/api/channels/{channel}"
class = "destructive"
reach = "people"
`

// authdThat is authd as far as surrogates go: it keeps what it is asked.
type authdThat struct {
	mu    sync.Mutex
	asked []wire.Msg
	away  bool // it answers nothing
}

func (s *Sentinel) authdThat(t *testing.T) *authdThat {
	t.Helper()
	a := new(authdThat)
	s.authd = peerThat(t, func(m *wire.Msg) any {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.away {
			return nil
		}
		a.asked = append(a.asked, *m)
		if m.Verb == "mint" {
			return &wire.MintResp{Value: []byte("a-surrogate")}
		}
		return &wire.Empty{}
	})
	return a
}

func (a *authdThat) setAway(away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
}

// grants are those that it was given.
func (a *authdThat) of(t *testing.T, verb string) []wire.Msg {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []wire.Msg
	for _, m := range a.asked {
		if m.Verb == verb {
			out = append(out, m)
		}
	}
	return out
}

func (a *authdThat) revoked(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range a.of(t, "revoke") {
		var ref wire.GrantRef
		if err := wire.Unmarshal(m.Body, &ref); err != nil {
			t.Fatal(err)
		}
		out = append(out, ref.Grant)
	}
	return out
}

func (s *Sentinel) chatAccount(t *testing.T, name string) wire.Account {
	t.Helper()
	a := wire.Account{Name: name, Vendor: customVendor, Generation: 3, Digest: wire.Digest{7},
		Base: wire.Base{Scheme: "https", Host: "chat.example", Port: 443}, Also: []string{"*.chat.example:443"},
		Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bot "}}
	s.accounts[name] = a
	if err := s.ledger.PutSetting(t.Context(), "account/"+name, []byte(accountValue(&a)), "person:1000", nil); err != nil {
		t.Fatal(err)
	}
	return a
}

// issued issues chat into the cell work, as a person would.
func (s *Sentinel) issueChat(t *testing.T, cell string) *issued {
	t.Helper()
	return s.issueBy(t, cell, chatManifest)
}

func (s *Sentinel) issueBy(t *testing.T, cell, manifest string) *issued {
	t.Helper()
	r, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "add", Name: "chat", Cell: cell, Manifest: []byte(manifest)})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := s.show(t.Context(), ada(), &wire.CallRef{Call: r.Widening})
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: r.Widening, Hash: shown.Card.Hash, Approve: true})
	if err != nil || d.State != wire.StateDone {
		t.Fatalf("%+v, %v", d, err)
	}
	is := s.issueNamed(cell, "chat")
	if is == nil {
		t.Fatal("nothing is issued")
	}
	return is
}

// rig is a cell with a surrogate for chat.example, a session, and a connection there.
func chatRig(t *testing.T, toml string) (*Sentinel, *authdThat, *cuts, func(method, path string, fn ...func(*wire.RequestReq)) (*wire.RequestResp, *wire.Error)) {
	t.Helper()
	s := newSentinel(t)
	a, k := s.authdThat(t), s.egressOfCell(t, "work")
	s.usePolicy(t, toml, "")
	s.begin(t, "work", 7)
	s.chatAccount(t, "chat")
	s.issueChat(t, "work")
	conn, e := s.connects(t, "work", site("chat.example"))
	if e != nil {
		t.Fatal(e)
	}
	return s, a, k, func(method, path string, fn ...func(*wire.RequestReq)) (*wire.RequestResp, *wire.Error) {
		req := &wire.RequestReq{Conn: conn.ID, Name: "chat.example", Port: 443, Method: method, Path: path, Surrogate: true,
			Task: wire.Task{Cgroup: 7, PID: 41, Program: "bot"}}
		for _, f := range fn {
			f(req)
		}
		return s.requests(t, "work", req)
	}
}

func (s *Sentinel) requests(t *testing.T, cell string, req *wire.RequestReq) (*wire.RequestResp, *wire.Error) {
	t.Helper()
	resp, err := s.request(t.Context(), egressOf(cell), req)
	if err == nil {
		return resp, nil
	}
	var e *wire.Error
	if !errors.As(err, &e) {
		t.Fatalf("no refusal: %v", err)
	}
	return nil, e
}

// TestASurrogatesConnection: it is intercepted, and egress is told where the surrogate stands; in the clear there is none.
func TestASurrogatesConnection(t *testing.T) {
	s, _, _, _ := chatRig(t, "[budget]\nrequests = 60\n")
	is := s.issueNamed("work", "chat")
	r, e := s.connects(t, "work", site("a.chat.example"))
	if e != nil || r.How != wire.HowIntercept || r.Credential == nil || r.Credential.Prefix != "Bot " || r.Surrogate != "chat" || r.Budget == nil || r.Budget.Cell.Requests != 60 {
		t.Errorf("%+v, %v", r, e)
	}
	if got := s.lines(t, ledger.EvConnect); !strings.Contains(got[len(got)-1], `"how":"intercept"`) || !strings.Contains(got[len(got)-1], is.ID) {
		t.Errorf("%q", got)
	}
	other := site("chat.example")
	other.Begins = wire.BeginsOther
	if _, e := s.connects(t, "work", other); e == nil || e.Code != wire.CodeBadTarget {
		t.Errorf("what begins with neither: %v", e)
	}
	clear := site("chat.example")
	clear.Begins = wire.BeginsHTTP
	if r, e := s.connects(t, "work", clear); e != nil || r.How != wire.HowIntercept || r.Credential != nil {
		t.Errorf("in the clear: %+v, %v", r, e)
	}
	s.begin(t, "home", 8)
	if r, e := s.connects(t, "home", site("chat.example")); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Errorf("another cell: %+v, %v", r, e)
	}
}

// TestRequestsWithASurrogate: a read goes with a use of a grant at authd; a change asks, once, and goes once when it is approved, with
// a grant at authd of its own; what no route names is refused.
func TestRequestsWithASurrogate(t *testing.T) {
	s, a, _, send := chatRig(t, "")
	is := s.issueNamed("work", "chat")
	r, e := send("GET", "/api/users/me")
	if e != nil || r.ID == "" || r.Grant == "" || !slices.Equal(r.Under, []string{is.ID}) {
		t.Fatalf("%+v, %v", r, e)
	}
	var g wire.GrantReq
	if err := wire.Unmarshal(a.of(t, "grant")[0].Body, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Entries) != 1 || g.Grant != r.Grant || g.Issue != is.ID || g.Cell != "work" || g.Account != "chat" || g.Generation != 3 || g.Worker != "" {
		t.Fatalf("%+v", g)
	}
	if x := g.Entries[0]; x.Scheme != "https" || x.Host != "chat.example" || x.Port != 443 || !x.Credential || x.Uses != 1 || x.AnyPath || x.Follow != "" {
		t.Errorf("%+v", x)
	}
	again, e := send("GET", "/api/users/me")
	if e != nil || again.ID != r.ID || again.Grant == r.Grant {
		t.Errorf("an alike one: %+v, %v", again, e)
	}
	if _, e := send("POST", "/api/other"); e == nil || e.Code != wire.CodeNotAllowed || !strings.Contains(e.Reason, "no route") {
		t.Errorf("no route: %v", e)
	}
	for range 3 {
		if _, e := send("POST", "/api/channels/1/messages"); e == nil || e.Code != wire.CodeNeedsApproval || !strings.Contains(e.Next, "doorward approve ") {
			t.Fatalf("%v", e)
		}
	}
	all := s.cards(t)
	if len(all) != 1 {
		t.Fatalf("%d cards", len(all))
	}
	k := all[0]
	if k.Title != "POST chat.example/api/channels/1/messages" || k.Class != describe.Write || k.Reach != describe.ReachPeople || !k.Sensitive ||
		k.Grantable == nil || k.Grantable.Count != 1 || !strings.Contains(strings.Join(k.Facts, "\n"), "what is sent is not read by anybody") {
		t.Errorf("%+v", k)
	}
	before := len(a.of(t, "grant"))
	grant := s.approve(t, k.ID, nil)
	if _, e := send("POST", "/api/channels/2/messages"); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Errorf("another path: %v", e)
	}
	r, e = send("POST", "/api/channels/1/messages")
	if e != nil || !slices.Equal(r.Under, []string{is.ID, grant}) || r.Grant == "" {
		t.Fatalf("%+v, %v", r, e)
	}
	if n := len(a.of(t, "grant")); n != before+1 {
		t.Errorf("%d grants at authd", n)
	}
	if _, e := send("POST", "/api/channels/1/messages"); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Errorf("a second time: %v", e)
	}
	got := s.lines(t, ledger.EvRequest)
	if len(got) != 2 || !strings.Contains(got[1], `"path":"/api/channels/1/messages"`) || !strings.Contains(got[1], `"surrogate":"chat"`) ||
		!strings.Contains(got[1], grant) {
		t.Errorf("%q", got)
	}
	why, err := s.why(t.Context(), ada(), &wire.WhyReq{About: "chat.example"})
	if err != nil || len(why.Lines) == 0 || !strings.Contains(string(slices.Concat(why.Lines...)), "POST /api/other, port 443") {
		t.Errorf("why: %s, %v", why.Lines, err)
	}
	if v, err := s.ledger.Verify(t.Context(), nil); err != nil || len(v.Findings) > 0 {
		t.Errorf("the record is not whole: %+v, %v", v, err)
	}
}

// TestPasses: requests in a row cost authd fewer and fewer questions, and each has a use of a grant all the same. What ends a grant
// there has the next request ask anew.
func TestPasses(t *testing.T) {
	s, a, _, send := chatRig(t, "")
	uses, given := map[string]int{}, map[string]int{}
	read := func() string {
		t.Helper()
		r, e := send("GET", "/api/users/me")
		if e != nil {
			t.Fatal(e)
		}
		given[r.Grant]++
		return r.Grant
	}
	for range 200 {
		read()
	}
	asked := a.of(t, "grant")
	for _, m := range asked {
		var g wire.GrantReq
		if err := wire.Unmarshal(m.Body, &g); err != nil {
			t.Fatal(err)
		}
		uses[g.Grant] = g.Entries[0].Uses
	}
	if len(asked) != 9 { // 1, 2, 4 ... 64, 64, 64
		t.Errorf("authd was asked %d times for 200 requests: %v", len(asked), uses)
	}
	for g, n := range given {
		if n > uses[g] {
			t.Errorf("a grant of %d uses was given %d times", uses[g], n)
		}
	}
	is := s.issueNamed("work", "chat")
	for what, end := range map[string]func(){
		"its time": func() {
			s.passes.of(passKey{"work", is.ID, policy.Target{Name: "chat.example", Port: 443}}).made = time.Now().Add(-passFor)
		},
		"a stop and a start": func() {
			_, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work"})
			if err != nil {
				t.Fatal(err)
			}
			if _, e := send("GET", "/api/users/me"); e == nil || e.Code != wire.CodeStopped {
				t.Errorf("while it is stopped: %v", e)
			}
			r, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work", Resume: true})
			if err != nil {
				t.Fatal(err)
			}
			shown, err := s.show(t.Context(), ada(), &wire.CallRef{Call: r.Widening})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: r.Widening, Hash: shown.Card.Hash, Approve: true}); err != nil {
				t.Fatal(err)
			}
		},
		"another authd": func() { s.instance = "another" },
		"a link that broke": func() {
			instance := s.instance
			s.authdGone()
			s.instance = instance
		},
	} {
		old := read()
		end()
		if now := read(); now == old {
			t.Errorf("after %s the same grant is given", what)
		}
	}
}

// TestAReportThatIsNotWritten counts as not told: whoever told it hears so, tells it again, and it is in another line then. Until its
// line is durable, and after, a repeat waits for that very line.
func TestAReportThatIsNotWritten(t *testing.T) {
	c, k := newConnections(), toldKey{"authd", "work", "issue"}
	sums := 0
	tell := func() *told { return c.tell(k, "1", func(*told) {}, func(*told, bool) { sums++ }) }
	end := func(x *told, err error) {
		delete(c.told, k)
		x.err = err
		close(x.done)
	}
	first := tell()
	delete(c.told, k) // it is being written
	if again := tell(); again != first || sums != 1 {
		t.Errorf("a repeat while it is written is in another line, or counted: %d", sums)
	}
	end(first, errors.New("the disk is full"))
	second := tell()
	if second == first || sums != 2 {
		t.Errorf("what could not be written is not counted anew: %d", sums)
	}
	end(second, nil)
	if again := tell(); again != second || sums != 2 || !c.toldBefore(k, "1") {
		t.Errorf("what is written is counted again: %d", sums)
	}
}

// TestReleasesOfACell: each credential that goes out is counted on the record, in one line for many, and in none twice.
func TestReleasesOfACell(t *testing.T) {
	s, _, _, send := chatRig(t, "")
	r, e := send("GET", "/api/users/me")
	if e != nil {
		t.Fatal(e)
	}
	is := s.issueNamed("work", "chat")
	var wait []func(context.Context) error
	for _, seq := range []uint64{1, 2, 3, 2} {
		wait = append(wait, s.issueReleased(&wire.ReleasedReq{Seq: seq, Grant: r.Grant, Call: is.ID, Cell: "work", Account: "chat"}))
	}
	if _, err := s.released(t.Context(), new(daemon.Call), &wire.ReleasedReq{Seq: 4, Grant: r.Grant, Call: is.ID, Cell: "work",
		Account: "chat"}); err != nil {
		t.Fatal(err)
	}
	for _, durable := range wait {
		if err := durable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := s.lines(t, ledger.EvReleased)
	if len(got) != 1 || !strings.Contains(got[0], `"releases":4`) || !strings.Contains(got[0], is.ID) {
		t.Errorf("%q", got)
	}
}

// TestRequestsThatMustNot: each differs from one that goes in one thing. Control: that one.
func TestRequestsThatMustNot(t *testing.T) {
	s, _, _, send := chatRig(t, "[site.\"read.example\"]\nsetting = \"read\"\n")
	read, e := s.connects(t, "work", site("read.example"))
	if e != nil {
		t.Fatal(e)
	}
	s.begin(t, "home", 8)
	homes, e := s.connects(t, "home", site("read.example"))
	if e != nil {
		t.Fatal(e)
	}
	if _, e := send("GET", "/api/users/me"); e != nil {
		t.Fatalf("control: %v", e)
	}
	for _, c := range []struct {
		name string
		fn   func(*wire.RequestReq)
		want wire.Code
	}{
		{"no connection", func(r *wire.RequestReq) { r.Conn = "" }, wire.CodeBadGrant},
		{"a connection that there is not", func(r *wire.RequestReq) { r.Conn = ledger.NewID() }, wire.CodeBadGrant},
		{"the connection to another host", func(r *wire.RequestReq) { r.Conn = read.ID }, wire.CodeBadGrant},
		{"the connection of another cell", func(r *wire.RequestReq) { r.Conn, r.Name = homes.ID, "read.example" }, wire.CodeBadGrant},
		{"another host on that connection", func(r *wire.RequestReq) { r.Name = "a.chat.example" }, wire.CodeBadGrant},
		{"another port on it", func(r *wire.RequestReq) { r.Port = 8443 }, wire.CodeBadGrant},
		{"a host in other letters", func(r *wire.RequestReq) { r.Name = "Chat.example" }, wire.CodeBadTarget},
		{"without the surrogate", func(r *wire.RequestReq) { r.Surrogate = false }, wire.CodeBadSurrogate},
		{"in the clear", func(r *wire.RequestReq) { r.Clear = true }, wire.CodeBadTarget},
		{"a path with two readings", func(r *wire.RequestReq) { r.Path = "/api/../drop" }, wire.CodeUsage},
		{"a path outside of its routes", func(r *wire.RequestReq) { r.Path = "/admin" }, wire.CodeNotAllowed},
		{"a method outside of its routes", func(r *wire.RequestReq) { r.Method = "PATCH" }, wire.CodeNotAllowed},
		{"a surrogate where none is issued", func(r *wire.RequestReq) { r.Conn, r.Name = read.ID, "read.example" }, wire.CodeBadSurrogate},
		{"a change at a site that is read", func(r *wire.RequestReq) {
			r.Conn, r.Name, r.Method, r.Surrogate = read.ID, "read.example", "POST", false
		}, wire.CodeNeedsApproval},
	} {
		if _, e := send("GET", "/api/users/me", c.fn); e == nil || e.Code != c.want || e.Reason == "" {
			t.Errorf("%s: %v, want %s", c.name, e, c.want)
		}
	}
	if r, e := send("GET", "/a", func(r *wire.RequestReq) { r.Conn, r.Name, r.Surrogate = read.ID, "read.example", false }); e != nil || r.Grant != "" {
		t.Errorf("a read of a site that is read: %+v, %v", r, e)
	}
	spliced, e := s.connects(t, "work", site("deb.debian.org"))
	if e == nil {
		t.Errorf("a site that asks: %+v", spliced)
	}
}

// TestASplicedConnectionHasNoRequests: egress does not read it, and sentinel takes none for it.
func TestASplicedConnectionHasNoRequests(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, sitesToml, "")
	s.begin(t, "work", 7)
	r, e := s.connects(t, "work", site("a.allowed.example"))
	if e != nil || r.How != wire.HowSplice {
		t.Fatalf("%+v, %v", r, e)
	}
	req := &wire.RequestReq{Conn: r.ID, Name: "a.allowed.example", Port: 443, Method: "GET", Path: "/", Task: wire.Task{Cgroup: 7}}
	if _, e := s.requests(t, "work", req); e == nil || e.Code != wire.CodeBadGrant {
		t.Errorf("%v", e)
	}
}

// TestDontAsk: what only the person sees goes under dont-ask, and asks in a cell that has read what others wrote; what deletes
// asks always.
func TestDontAskRequests(t *testing.T) {
	s, _, _, send := chatRig(t, "[surrogate.chat]\nsetting = \"dont-ask\"\n")
	for _, c := range []struct {
		method, path string
		want         wire.Code
	}{{"PUT", "/api/notes/1", ""}, {"POST", "/api/channels/1/messages", wire.CodeNeedsApproval}, {"DELETE", "/api/channels/1", wire.CodeNeedsApproval}} {
		if _, e := send(c.method, c.path); (e == nil) != (c.want == "") || e != nil && e.Code != c.want {
			t.Errorf("%s: %v", c.method, e)
		}
	}
	if err := s.ledger.AddLabels(t.Context(), "work", []string{wire.LabelUntrusted}, ledger.Cause{}, "sentinel"); err != nil {
		t.Fatal(err)
	}
	if _, e := send("PUT", "/api/notes/1"); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Errorf("tainted: %v", e)
	}
	if _, e := send("GET", "/api/users/me"); e != nil {
		t.Errorf("a read, tainted: %v", e)
	}
	for _, k := range s.cards(t) {
		if k.Title == "DELETE chat.example/api/channels/1" && k.Expires-k.Made > int64(destructiveExpiry/time.Second) {
			t.Errorf("what deletes waits %d s", k.Expires-k.Made)
		}
	}
}

// TestADeniedRequest: a no holds for a day for that route and path, and for no other.
func TestADeniedRequest(t *testing.T) {
	s, _, _, send := chatRig(t, "")
	send("POST", "/api/channels/1/messages")
	if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: s.cards(t)[0].ID}); err != nil {
		t.Fatal(err)
	}
	if _, e := send("POST", "/api/channels/1/messages"); e == nil || e.Code != wire.CodeDenied {
		t.Errorf("%v", e)
	}
	if _, e := send("POST", "/api/channels/2/messages"); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Errorf("another path: %v", e)
	}
	if _, e := send("GET", "/api/channels/1/messages"); e != nil {
		t.Errorf("a read of it: %v", e)
	}
}

// TestHowOftenAGrantOfARequestIsGood: a yes alone is for one request, and so is once; for a time, or the session, it is any number.
func TestHowOftenAGrantOfARequestIsGood(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   func(*wire.Grant) // nil: a yes alone
		good int               // requests, of four
		says string
	}{
		{"a yes alone", nil, 1, ", once; "},
		{"once", func(g *wire.Grant) { g.Kind, g.Session = policy.Once, "" }, 1, ", once; "},
		{"three times", func(g *wire.Grant) { g.Count = 3 }, 3, ", 3 times at most; "},
		{"in the session", func(g *wire.Grant) { g.Count = 0 }, 4, ", any number of times, in session "},
		{"for a day", func(g *wire.Grant) {
			g.Kind, g.Session, g.Count, g.Until = policy.Until, "", 0, time.Now().Add(24*time.Hour-time.Minute).Unix()
		}, 4, ", any number of times, until "},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _, _, send := chatRig(t, "")
			send("POST", "/api/channels/1/messages")
			card := s.cards(t)[0]
			var want *wire.Grant
			if c.fn != nil {
				g := *card.Grantable
				c.fn(&g)
				want = &g
			}
			id := s.approve(t, card.ID, want)
			if got := s.ledger.Grants(ledger.GrantFilter{ID: id}); len(got) != 1 || !strings.Contains(s.asGrant(&got[0]).Sentence, c.says) {
				t.Errorf("it says %+v", got)
			}
			good := 0
			for range 4 {
				if _, e := send("POST", "/api/channels/1/messages"); e == nil {
					good++
				}
			}
			if good != c.good {
				t.Errorf("%d requests went, want %d", good, c.good)
			}
		})
	}
}

// TestRevokedGrantOfARequest: a grant that is taken back lets nothing through, and what goes under it is cut.
func TestRevokedGrantOfARequest(t *testing.T) {
	s, _, k, send := chatRig(t, "")
	send("POST", "/api/channels/1/messages")
	card := s.cards(t)[0]
	many := *card.Grantable
	many.Count = 0
	grant := s.approve(t, card.ID, &many)
	for range 2 {
		if _, e := send("POST", "/api/channels/1/messages"); e != nil {
			t.Fatal(e)
		}
	}
	if _, err := s.revoke(t.Context(), ada(), &wire.PersonRevokeReq{Grant: grant}); err != nil {
		t.Fatal(err)
	}
	if _, e := send("POST", "/api/channels/1/messages"); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Errorf("%v", e)
	}
	if !slices.ContainsFunc(k.all(), func(r wire.GrantRef) bool { return r.Grant == grant }) {
		t.Errorf("cut: %+v", k.all())
	}
}

// TestStoppedCell: a cell that a person stopped sends nothing and gets no surrogate.
func TestStoppedCellSendsNothing(t *testing.T) {
	s, _, _, send := chatRig(t, "")
	if _, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work"}); err != nil {
		t.Fatal(err)
	}
	if _, e := send("GET", "/api/users/me"); e == nil || e.Code != wire.CodeStopped {
		t.Errorf("%v", e)
	}
	if _, err := s.surrogate(t.Context(), inCell("work"), &wire.SurrogateReq{Name: "chat"}); codeOf(err) != wire.CodeStopped {
		t.Errorf("%v", err)
	}
}

func inCell(name string) *daemon.Call {
	return &daemon.Call{Peer: peer.Identity{Kind: peer.Cell, Name: name, Session: "run-7", Start: 7}}
}

// TestExplainRequest says what would become of a request, without making it.
func TestExplainRequest(t *testing.T) {
	s, a, _, _ := chatRig(t, "[site.\"read.example\"]\nsetting = \"read\"\n")
	explain := func(method, host, path string) string {
		r, err := s.policyVerb(t.Context(), ada(), &wire.PolicyReq{Op: "explain", Cell: "work",
			Request: &wire.RequestReq{Name: host, Port: 443, Method: method, Path: path}})
		if err != nil {
			return err.Error()
		}
		return strings.Join(r.Lines, "\n")
	}
	for _, c := range [][4]string{
		{"GET", "chat.example", "/api/x", "which is chat look, for cell work: goes"},
		{"POST", "chat.example", "/api/channels/1/messages", "for cell work: asks a person"},
		{"POST", "chat.example", "/x", "is denied before the policy is asked"},
		{"GET", "read.example", "/x", "which is site read, for cell work: goes"},
		{"POST", "read.example", "/x", "for cell work: asks a person"},
		{"GET", "other.example", "/x", "not seen"},
	} {
		if got := explain(c[0], c[1], c[2]); !strings.Contains(got, c[3]) {
			t.Errorf("%v: %s", c, got)
		}
	}
	if n := len(a.of(t, "grant")); n != 0 || len(s.cards(t)) != 0 {
		t.Errorf("it was made: %d grants", n)
	}
	r, err := s.policyVerb(t.Context(), ada(), &wire.PolicyReq{Op: "intercepted", Cell: "work"})
	if want := []string{"*.chat.example:443 surrogate chat", "chat.example:443 surrogate chat"}; err != nil || len(r.Lines) != 3 ||
		!slices.Equal(r.Lines[:2], want) || !strings.HasPrefix(r.Lines[2], `read.example:443 policy.toml:2 site read.example = "read"`) {
		t.Errorf("%q, %v", r.Lines, err)
	}
}

// TestGivenIsBounded: what is remembered of a cell's connections has an end, and what is used stays.
func TestGivenIsBounded(t *testing.T) {
	c := newConnections()
	c.gave("work", "first", given{target: policy.Target{Name: "a.example", Port: 443}})
	for range maxGiven + 10 {
		c.gave("work", ledger.NewID(), given{})
		c.of("work", "first")
	}
	if _, ok := c.of("work", "first"); !ok || len(c.given["work"]) != maxGiven {
		t.Errorf("%d are kept", len(c.given["work"]))
	}
	if _, ok := c.of("home", "first"); ok {
		t.Error("of another cell")
	}
}

// TestModelUse: a model's key is held to its manifest, which ships; what that does not have is refused with the reason.
func TestModelUse(t *testing.T) {
	s := newSentinel(t)
	a := s.authdThat(t)
	s.egressOfCell(t, "work")
	s.begin(t, "work", 7)
	text, err := os.ReadFile("../package/connectors/anthropic.toml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	acc := wire.Account{Name: "model", Vendor: customVendor, Generation: 1, Digest: wire.Digest{9}, Base: m.Base(), Also: m.Also(), Placement: m.Placement}
	s.accounts["model"] = acc
	if err := s.ledger.PutSetting(t.Context(), "account/model", []byte(accountValue(&acc)), "person:1000", nil); err != nil {
		t.Fatal(err)
	}
	r, err := s.personSurrogate(t.Context(), ada(), &wire.PersonSurrogateReq{Op: "add", Name: "model", Cell: "work", Manifest: text})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := s.show(t.Context(), ada(), &wire.CallRef{Call: r.Widening})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: r.Widening, Hash: shown.Card.Hash, Approve: true}); err != nil {
		t.Fatal(err)
	}
	conn, e := s.connects(t, "work", site("api.anthropic.com"))
	if e != nil || len(conn.Read) == 0 || conn.Read[0].As != wire.ReadModel {
		t.Fatalf("%+v, %v", conn, e)
	}
	for _, c := range []struct {
		name string
		use  *wire.ModelUse
		does []string
		want string // stands in the reason; empty: it goes
	}{
		{"what it has", &wire.ModelUse{Model: "claude-x", Most: 100}, nil, ""},
		{"another model", &wire.ModelUse{Model: "other", Most: 100}, nil, "is not among"},
		{"more tokens", &wire.ModelUse{Model: "claude-x", Most: 1 << 30}, nil, "more than"},
		{"no bound of tokens", &wire.ModelUse{Model: "claude-x"}, nil, "how many tokens"},
		{"a tool that the provider runs", &wire.ModelUse{Model: "claude-x", Most: 100, Tools: []string{"web_search_20250305"}}, nil, "web_search"},
		{"a body that could not be read", nil, []string{wire.Unreadable}, "no route"},
		{"nothing of a model", nil, nil, "no route"},
	} {
		req := &wire.RequestReq{Conn: conn.ID, Name: "api.anthropic.com", Port: 443, Method: "POST", Path: "/v1/messages", Surrogate: true,
			Model: c.use, Does: c.does, Task: wire.Task{Cgroup: 7}}
		_, e := s.requests(t, "work", req)
		if (e == nil) != (c.want == "") || e != nil && (e.Code != wire.CodeNotAllowed || !strings.Contains(e.Reason, c.want)) {
			t.Errorf("%s: %v", c.name, e)
		}
	}
	if n := len(a.of(t, "grant")); n != 1 {
		t.Errorf("authd has %d grants", n)
	}
}

// TestARecordSaysWhatEachRequestDid: requests that do different things share no line of the record, though their path is one.
// Control: two that do the same do.
func TestARecordSaysWhatEachRequestDid(t *testing.T) {
	s, _, _, _ := chatRig(t, "")
	s.begin(t, "home", 8)
	s.issueBy(t, "home", strings.Replace(chatManifest, "ask-before-changes", "dont-ask", 1)+`
[[route]]
name = "push"
methods = ["POST"]
path = "/git/**"
git = "push"
class = "write"
reach = "none"
`)
	conn, e := s.connects(t, "home", site("chat.example"))
	if e != nil {
		t.Fatal(e)
	}
	push := func(ref string) string {
		t.Helper()
		r, e := s.requests(t, "home", &wire.RequestReq{Conn: conn.ID, Name: "chat.example", Port: 443, Method: "POST", Surrogate: true,
			Path: "/git/r/git-receive-pack", Does: []string{"git push update " + ref}, Task: wire.Task{Cgroup: 8, PID: 41, Program: "git"}})
		if e != nil {
			t.Fatal(e)
		}
		return r.ID
	}
	one, two, again := push("refs/heads/draft"), push("refs/heads/main"), push("refs/heads/draft")
	if one == two || one != again {
		t.Errorf("decisions %s, %s, %s", one, two, again)
	}
	if got := strings.Join(s.lines(t, ledger.EvRequest), "\n"); !strings.Contains(got, "refs/heads/main") || !strings.Contains(got, "refs/heads/draft") {
		t.Errorf("%s", got)
	}
	// What a query says goes out too.
	look := func(query string) string {
		t.Helper()
		r, e := s.requests(t, "home", &wire.RequestReq{Conn: conn.ID, Name: "chat.example", Port: 443, Method: "GET", Surrogate: true,
			Path: "/api/users/me", Query: query, Task: wire.Task{Cgroup: 8, PID: 41, Program: "curl"}})
		if e != nil {
			t.Fatal(e)
		}
		return r.ID
	}
	if a, b := look("q=one"), look("q=two"); a == b {
		t.Error("two queries share a line")
	}
	if got := strings.Join(s.lines(t, ledger.EvRequest), "\n"); !strings.Contains(got, `"query":"q=one"`) || !strings.Contains(got, `"query":"q=two"`) {
		t.Errorf("%s", got)
	}
}

// What could not be put on the record is refused and forgotten at once, so that a cell that asks for ever fills no memory.
func TestWhatIsNotRecordedIsForgotten(t *testing.T) {
	s, _, _, send := chatRig(t, "")
	s.spend(netAllowance("work"), 1<<30)
	open := len(s.conns.open)
	for i := range 50 {
		if _, e := send("GET", fmt.Sprint("/api/", i)); e == nil || e.Code != wire.CodeTooMany {
			t.Fatalf("%v", e)
		}
	}
	if n := len(s.conns.open) - open; n != 0 {
		t.Errorf("%d are kept", n)
	}
}

// A card is of exactly what its approval lets go: another query or another ref has one of its own. A person's no is about the request
// whatever its query, and about no other ref.
func TestEachRequestThatDiffersHasItsCard(t *testing.T) {
	s, _, _, _ := chatRig(t, "")
	s.begin(t, "home", 8)
	s.issueBy(t, "home", chatManifest+`
[[route]]
name = "push"
methods = ["POST"]
path = "/git/**"
git = "push"
class = "write"
reach = "none"
`)
	conn, e := s.connects(t, "home", site("chat.example"))
	if e != nil {
		t.Fatal(e)
	}
	asks := func(path, query string, does ...string) *wire.Error {
		t.Helper()
		_, e := s.requests(t, "home", &wire.RequestReq{Conn: conn.ID, Name: "chat.example", Port: 443, Method: "POST", Surrogate: true,
			Path: path, Query: query, Does: does, Task: wire.Task{Cgroup: 8, PID: 41, Program: "git"}})
		if e == nil {
			t.Fatalf("%s?%s %v goes", path, query, does)
		}
		return e
	}
	const messages, repository = "/api/channels/1/messages", "/git/r/git-receive-pack"
	cards := map[string]bool{}
	for _, e := range []*wire.Error{asks(messages, ""), asks(messages, "to=ada"), asks(messages, ""),
		asks(repository, "", "git push update refs/heads/draft"), asks(repository, "", "git push update refs/heads/main")} {
		if e.Code != wire.CodeNeedsApproval {
			t.Fatal(e)
		}
		cards[e.Next] = true
	}
	if len(cards) != 4 || len(s.cards(t)) != 4 {
		t.Errorf("%d cards are named, %d wait", len(cards), len(s.cards(t)))
	}
	for _, k := range s.cards(t) {
		if text := fmt.Sprint(k.Fields); strings.Contains(text, "draft") || strings.Contains(text, "to=ada") {
			if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: k.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for query, want := range map[string]wire.Code{"to=ada": wire.CodeDenied, "to=eve": wire.CodeDenied} {
		if e := asks(messages, query); e.Code != want {
			t.Errorf("%s: %v", query, e)
		}
	}
	if e := asks(repository, "", "git push update refs/heads/draft"); e.Code != wire.CodeDenied {
		t.Errorf("the ref that was denied: %v", e)
	}
	if e := asks(repository, "", "git push update refs/heads/main"); e.Code != wire.CodeNeedsApproval {
		t.Errorf("another ref: %v", e)
	}
}
