// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// egressOf is the egress of a cell as a caller.
func egressOf(cell string) *daemon.Call {
	return &daemon.Call{Peer: peer.Identity{Kind: peer.Unit, Unit: "doorward-egress@" + cell + ".service", Name: "egress", Of: cell}}
}

// begin begins a session of a cell whose cgroup has that id.
func (s *Sentinel) begin(t *testing.T, cell string, cgroup uint64) {
	t.Helper()
	call := &daemon.Call{Peer: peer.Identity{Kind: peer.Unit, Name: "cells"}}
	req := &wire.CellSessionReq{Cell: cell, Session: "run-" + strconv.FormatUint(cgroup, 10), Start: cgroup, By: "ada", Attended: true}
	if _, err := s.cellSession(t.Context(), call, req); err != nil {
		t.Fatal(err)
	}
}

func site(name string) *wire.ConnectReq {
	return &wire.ConnectReq{Name: name, Port: 443, Begins: wire.BeginsTLS, Task: wire.Task{Cgroup: 7, PID: 41, Program: "curl"}}
}

func (s *Sentinel) connects(t *testing.T, cell string, req *wire.ConnectReq) (*wire.ConnectResp, *wire.Error) {
	t.Helper()
	resp, err := s.connect(t.Context(), egressOf(cell), req)
	if err == nil {
		return resp, nil
	}
	var e *wire.Error
	if !errors.As(err, &e) {
		t.Fatalf("no refusal: %v", err)
	}
	return nil, e
}

// lines are the entries of the record of one type.
func (s *Sentinel) lines(t *testing.T, typ string) []string {
	t.Helper()
	got, err := s.ledger.Entries(t.Context(), ledger.Query{Types: []string{typ}})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range got {
		out = append(out, string(e.Line()))
	}
	return out
}

func (s *Sentinel) approve(t *testing.T, id string, g *wire.Grant) string {
	t.Helper()
	shown, err := s.show(t.Context(), ada(), &wire.CallRef{Call: id})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: id, Hash: shown.Card.Hash, Approve: true, Grant: g})
	if err != nil {
		t.Fatal(err)
	}
	if r.State != wire.StateDone || r.Grant == "" {
		t.Fatalf("%+v", r)
	}
	return r.Grant
}

// waiting are the cards that wait.
func (s *Sentinel) cards(t *testing.T) []wire.Card {
	t.Helper()
	r, err := s.pending(t.Context(), ada(), &wire.ListFrom{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Cards
}

const sitesToml = "sites = [\"debian\"]\n[site.\"off.example\"]\nsetting = \"off\"\n[site.\"*.allowed.example\"]\nsetting = \"allow\"\n"

func TestConnect(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, sitesToml, "")
	if _, e := s.connects(t, "work", site("deb.debian.org")); e == nil || e.Code != wire.CodeExpired {
		t.Errorf("a cell of which nothing is known: %v", e)
	}
	s.begin(t, "work", 7)
	for _, c := range []struct {
		name string
		req  *wire.ConnectReq
		want wire.Code // empty: it goes
	}{
		{"a host of a set", site("deb.debian.org"), ""},
		{"below what is allowed", site("a.allowed.example"), ""},
		{"its apex", site("allowed.example"), wire.CodeNeedsApproval},
		{"what is off", site("off.example"), wire.CodeNotAllowed},
		{"in another case", site("Deb.debian.org"), wire.CodeBadTarget},
		{"with a dot", site("deb.debian.org."), wire.CodeBadTarget},
		{"an address as a name", site("192.0.2.7"), wire.CodeBadTarget},
		{"an address", &wire.ConnectReq{Addr: "192.0.2.7", Port: 443, Begins: wire.BeginsTLS}, wire.CodeNotAllowed},
		{"an address and a name", &wire.ConnectReq{Name: "deb.debian.org", Addr: "192.0.2.7", Port: 443, Begins: wire.BeginsTLS}, wire.CodeBadTarget},
		{"another port", &wire.ConnectReq{Name: "deb.debian.org", Port: 22, Begins: wire.BeginsOther}, wire.CodeNeedsApproval},
		{"no port", &wire.ConnectReq{Name: "deb.debian.org", Begins: wire.BeginsTLS}, wire.CodeBadTarget},
		{"it begins with nothing there is", &wire.ConnectReq{Name: "deb.debian.org", Port: 443, Begins: "ssh"}, wire.CodeBadArgument},
		{"a task of another cell", &wire.ConnectReq{Name: "deb.debian.org", Port: 443, Begins: wire.BeginsTLS, Task: wire.Task{Cgroup: 99}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, e := s.connects(t, "work", c.req)
			switch {
			case c.want == "" && (e != nil || r.ID == "" || (r.How == wire.HowIntercept) != (c.req.Name == "deb.debian.org")):
				t.Errorf("%+v, %v", r, e)
			case c.want != "" && (e == nil || e.Code != c.want || e.Reason == ""):
				t.Errorf("%+v, %v", r, e)
			}
		})
	}
	if _, e := s.connects(t, "home", site("deb.debian.org")); e == nil || e.Code != wire.CodeExpired {
		t.Errorf("another cell: %v", e)
	}
	if _, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work"}); err != nil {
		t.Fatal(err)
	}
	if _, e := s.connects(t, "work", site("deb.debian.org")); e == nil || e.Code != wire.CodeStopped {
		t.Errorf("a cell that a person stopped: %v", e)
	}
	why, err := s.why(t.Context(), ada(), &wire.WhyReq{About: "off.example"})
	if err != nil || len(why.Lines) != 1 || !strings.Contains(string(why.Lines[0]), `site off.example = \"off\"`) {
		t.Errorf("why: %s, %v", why.Lines, err)
	}
}

// TestEndedSession: what is over cannot connect, and nothing goes in its name.
func TestEndedSession(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, sitesToml, "")
	s.begin(t, "work", 7)
	if _, e := s.connects(t, "work", site("deb.debian.org")); e != nil {
		t.Fatal(e)
	}
	if _, err := s.revoke(t.Context(), ada(), &wire.PersonRevokeReq{Session: "work/" + "run-7.7" + boot()}); err != nil {
		t.Fatal(err)
	}
	if _, e := s.connects(t, "work", site("deb.debian.org")); e == nil || e.Code != wire.CodeExpired {
		t.Errorf("%v", e)
	}
}

// TestSiteAsks: one card for a cell and a site, however often and by whatever program; once it is approved the same
// connection goes, under the grant, and no other.
func TestSiteAsks(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, sitesToml, "")
	s.begin(t, "work", 7)
	s.begin(t, "home", 8)
	for i := range 5 {
		req := site("new.example")
		req.Task.Program = fmt.Sprint("p", i)
		if _, e := s.connects(t, "work", req); e == nil || e.Code != wire.CodeNeedsApproval || !strings.Contains(e.Next, "doorward approve ") {
			t.Fatalf("%v", e)
		}
	}
	all := s.cards(t)
	if len(all) != 1 {
		t.Fatalf("%d cards", len(all))
	}
	k := all[0]
	if k.Kind != "widening" || k.Cell != "work" || k.Fields[0].Values[0] != "new.example:443" || k.Grantable == nil ||
		k.Grantable.Session != "run-7.7"+boot() || !strings.Contains(strings.Join(k.Facts, "\n"), "not read by anybody") {
		t.Errorf("%+v", k)
	}
	grant := s.approve(t, k.ID, nil)
	r, e := s.connects(t, "work", site("new.example"))
	if e != nil || r.Under != grant {
		t.Fatalf("%+v, %v", r, e)
	}
	for name, try := range map[string]func() *wire.Error{
		"another site": func() *wire.Error { _, e := s.connects(t, "work", site("other.example")); return e },
		"another port": func() *wire.Error {
			_, e := s.connects(t, "work", &wire.ConnectReq{Name: "new.example", Port: 8443, Begins: wire.BeginsTLS})
			return e
		},
		"another cell": func() *wire.Error { _, e := s.connects(t, "home", site("new.example")); return e },
		"another session of the cell": func() *wire.Error {
			req := site("new.example")
			req.Task.Cgroup = 70
			_, e := s.connects(t, "work", req)
			return e
		},
		"after it has read what others wrote": func() *wire.Error {
			if err := s.ledger.AddLabels(t.Context(), "work", []string{wire.LabelUntrusted}, ledger.Cause{}, "sentinel"); err != nil {
				t.Fatal(err)
			}
			_, e := s.connects(t, "work", site("new.example"))
			return e
		},
	} {
		if e := try(); e == nil || e.Code != wire.CodeNeedsApproval {
			t.Errorf("%s: %v", name, e)
		}
	}
	list, err := s.grantsVerb(t.Context(), ada(), &wire.ListFrom{})
	if err != nil || len(list.Grants) != 1 || list.Grants[0].Account != "new.example:443" || list.Grants[0].Used != 1 || list.Grants[0].LastUse == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if v, err := s.ledger.Verify(t.Context(), nil); err != nil || len(v.Findings) > 0 {
		t.Errorf("the record is not whole: %+v, %v", v, err)
	}
	rep, err := s.revoke(t.Context(), ada(), &wire.PersonRevokeReq{Grant: grant})
	if err != nil || !strings.Contains(strings.Join(rep.Lines, "\n"), "grant "+grant+" of site connect is revoked") {
		t.Errorf("%+v, %v", rep, err)
	}
	if err := s.clearLabels(t.Context(), "work", "person:1000", nil); err != nil {
		t.Fatal(err)
	}
	if _, e := s.connects(t, "work", site("new.example")); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Errorf("after it was revoked: %v", e)
	}
}

// TestTaintedSite: a cell that has read what others wrote asks also where a site is allowed; the approval holds for it then.
func TestTaintedSite(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, sitesToml, "")
	s.begin(t, "work", 7)
	if err := s.ledger.AddLabels(t.Context(), "work", []string{wire.LabelUntrusted}, ledger.Cause{}, "sentinel"); err != nil {
		t.Fatal(err)
	}
	if _, e := s.connects(t, "work", site("a.allowed.example")); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Fatalf("%v", e)
	}
	k := s.cards(t)[0]
	if !k.Grantable.Tainted || !strings.Contains(strings.Join(k.Facts, "\n"), "may have worded what is sent") {
		t.Errorf("%+v", k)
	}
	long := *k.Grantable
	long.Kind, long.Session, long.Until = policy.Standing, "", time.Now().Add(30*24*time.Hour).Unix()
	shown, _ := s.show(t.Context(), ada(), &wire.CallRef{Call: k.ID})
	if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: k.ID, Hash: shown.Card.Hash, Approve: true, Grant: &long}); err == nil {
		t.Error("a standing grant for a cell that has read what others wrote")
	}
	s.approve(t, k.ID, nil)
	if _, e := s.connects(t, "work", site("a.allowed.example")); e != nil {
		t.Errorf("%v", e)
	}
}

// TestDeniedSite: after a no there is no other card for a day, and other sites ask as before.
func TestDeniedSite(t *testing.T) {
	s := newSentinel(t)
	s.begin(t, "work", 7)
	s.connects(t, "work", site("new.example"))
	k := s.cards(t)[0]
	if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: k.ID}); err != nil {
		t.Fatal(err)
	}
	if _, e := s.connects(t, "work", site("new.example")); e == nil || e.Code != wire.CodeDenied {
		t.Errorf("%v", e)
	}
	if n := len(s.cards(t)); n != 0 {
		t.Errorf("%d cards", n)
	}
	s.usePolicy(t, "[site.\"new.example\"]\nsetting = \"allow\"\n", "")
	if _, e := s.connects(t, "work", site("new.example")); e != nil {
		t.Errorf("a person allowed it since: %v", e)
	}
}

// TestSiteCardsAreBounded: a cell that asks for ever new names gets no more cards than a cell may have, and takes none of
// another's.
func TestSiteCardsAreBounded(t *testing.T) {
	s := newSentinel(t)
	s.begin(t, "work", 7)
	s.begin(t, "home", 8)
	var last *wire.Error
	for i := range ledger.MaxParked + 5 {
		_, last = s.connects(t, "work", site(fmt.Sprintf("n%d.example", i)))
	}
	if last == nil || last.Code != wire.CodeTooMany {
		t.Errorf("%v", last)
	}
	if n := len(s.cards(t)); n != ledger.MaxParked {
		t.Errorf("%d cards", n)
	}
	if _, e := s.connects(t, "home", site("new.example")); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Errorf("another cell: %v", e)
	}
}

// TestSiteCardsByProgram: in the list the sites that one program asks for are alike, and those of another are not.
func TestSiteCardsByProgram(t *testing.T) {
	s := newSentinel(t)
	s.begin(t, "work", 7)
	for name, program := range map[string]string{"a.example": "curl", "b.example": "curl", "c.example": "curl", "d.example": "git"} {
		req := site(name)
		req.Task.Program = program
		s.connects(t, "work", req)
	}
	for _, k := range s.cards(t) {
		want := 2
		if k.Fields[0].Values[0] == "d.example:443" {
			want = 0
		}
		if k.Alike != want {
			t.Errorf("%v: %d alike", k.Fields[0].Values, k.Alike)
		}
	}
}

// TestOverSession: the card of a session that is over makes room for one of the session that asks now.
func TestOverSession(t *testing.T) {
	s := newSentinel(t)
	s.begin(t, "work", 7)
	s.begin(t, "work", 9)
	s.connects(t, "work", site("new.example"))
	old := s.cards(t)[0]
	if _, err := s.ledger.EndSession(t.Context(), "work/run-7.7"+boot(), "it is over", "cells"); err != nil {
		t.Fatal(err)
	}
	shown, _ := s.show(t.Context(), ada(), &wire.CallRef{Call: old.ID})
	if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: old.ID, Hash: shown.Card.Hash, Approve: true}); codeOf(err) != wire.CodeExpired {
		t.Errorf("a grant for a session that is over: %v", err)
	}
	req := site("new.example")
	req.Task.Cgroup = 9
	s.connects(t, "work", req)
	all := s.cards(t)
	if len(all) != 1 || all[0].ID == old.ID || !strings.HasPrefix(all[0].Session, "run-9.") {
		t.Fatalf("%+v", all)
	}
	s.approve(t, all[0].ID, nil)
	if _, e := s.connects(t, "work", req); e != nil {
		t.Error(e)
	}
}

// TestWhatIsEscapedIsCharged: a cell's part of the record is counted as it is written there, where some bytes take six.
func TestWhatIsEscapedIsCharged(t *testing.T) {
	for text, want := range map[string]int{"": 2, "abc": 5, "<>&": 20, "\"": 4, "\xff": 8, "\u2028": 8, "é": 4} {
		if got := recorded(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	d := connectDetails{Path: "/", Query: strings.Repeat("<", 400)}
	if got := d.cost(); got < connectCost+2400 {
		t.Errorf("cost %d", got)
	}
}

// TestAConnectionIsKnownBeforeItIsLookedAt: what was taken back while the line of a connection was written refuses that connection,
// and finds it among those to cut. Looked at first and known later, one between the two would be neither refused nor cut.
func TestAConnectionIsKnownBeforeItIsLookedAt(t *testing.T) {
	s := newSentinel(t)
	s.begin(t, "work", 7)
	w := &wanted{cell: "work", target: policy.Target{Name: "chat.example", Port: 443}, begins: wire.BeginsTLS, issue: "over"}
	_, err := s.letConnect(t.Context(), w, &policy.Decision{Verdict: policy.Allow}, &wire.ConnectResp{How: wire.HowIntercept})
	if codeOf(err) != wire.CodeRevoked {
		t.Errorf("under an issue that is over: %v", err)
	}
	if known := s.conns.to("work", func(policy.Target) bool { return true }); len(known) != 1 {
		t.Errorf("to cut: %q", known)
	}
}

// TestConnectRecord: alike connections share one line, its id and what is told of them; what a cell writes is bounded.
func TestConnectRecord(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, sitesToml, "")
	s.begin(t, "work", 7)
	ids := map[string]bool{}
	for range 20 {
		r, e := s.connects(t, "work", site("deb.debian.org"))
		if e != nil {
			t.Fatal(e)
		}
		ids[r.ID] = true
	}
	if got := s.lines(t, ledger.EvConnect); len(got) != 1 || len(ids) != 1 || !strings.Contains(got[0], `"subject":"deb.debian.org"`) ||
		!strings.Contains(got[0], `"program":"curl"`) || !strings.Contains(got[0], `sites \"debian\"`) {
		t.Errorf("%d ids, %q", len(ids), got)
	}
	for _, g := range s.conns.open {
		s.endAlike(g)
	}
	if err := s.ledger.Record(t.Context(), ledger.Event{Type: "x"}); err != nil { // what was queued before it is written
		t.Fatal(err)
	}
	if got := s.lines(t, ledger.EvConnect); len(got) != 2 || !strings.Contains(got[1], `"times":19`) {
		t.Errorf("%q", got)
	}
	var id string
	for id = range ids {
	}
	report := func(cell string, req wire.SentReq) error {
		durable, err := s.connSent(cell, &req)
		if err != nil {
			return err
		}
		return durable(t.Context())
	}
	for range 2 { // told twice, counted once
		if err := report("work", wire.SentReq{Instance: "a", Seq: 1, Conn: id, Host: "deb.debian.org", Out: 100, In: 2000, Left: true}); err != nil {
			t.Fatal(err)
		}
	}
	got := s.lines(t, ledger.EvSent)
	if len(got) != 1 || !strings.Contains(got[0], `"out":100,"in":2000`) || !strings.Contains(got[0], `"call":"`+id) || !strings.Contains(got[0], `"cell":"work"`) {
		t.Errorf("%q", got)
	}
	for name, req := range map[string]wire.SentReq{
		"of a grant":     {Grant: "x", Conn: id},
		"of nothing":     {Host: "deb.debian.org"},
		"of a long name": {Conn: strings.Repeat("x", 65)},
	} {
		if err := report("work", req); codeOf(err) != wire.CodeBadArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := report("work", wire.SentReq{Instance: "a", Seq: 2, Host: "new.example", Err: wire.Refuse(wire.CodeBadTarget, "its names differ", "")}); err != nil {
		t.Error(err)
	}
	if got := s.lines(t, ledger.EvRefused); len(got) != 1 || !strings.Contains(got[0], "its names differ") {
		t.Errorf("%q", got)
	}
}

// TestWhyKnowsWhatEgressRefused: what a cell's egress refuses by itself under a decision of sentinel's, such as a request without
// its surrogate, is among the refusals, once, by its host and by that decision. What broke on its way, or was cut, is not.
func TestWhyKnowsWhatEgressRefused(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, sitesToml, "")
	s.begin(t, "work", 7)
	conn, e := s.connects(t, "work", site("notes.allowed.example"))
	if e != nil {
		t.Fatal(e)
	}
	seq := uint64(0)
	report := func(again int, req wire.SentReq) {
		t.Helper()
		seq++
		req.Instance, req.Seq, req.Conn, req.Host = "a", seq, conn.ID, "notes.allowed.example"
		for range again {
			durable, err := s.connSent("work", &req)
			if err == nil {
				err = durable(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	why := func(about string) string {
		t.Helper()
		r, err := s.why(t.Context(), ada(), &wire.WhyReq{About: about})
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.Join(r.Lines, []byte("\n")))
	}
	report(1, wire.SentReq{Method: "GET", Left: true, Err: wire.Refuse(wire.CodeVendorDown, "the server broke off", "")})
	report(1, wire.SentReq{Method: "PUT", Left: true, Err: wire.Refuse(wire.CodeUsage, "the client broke off", "")})
	report(1, wire.SentReq{Err: wire.Refuse(wire.CodeRevoked, "the connection was cut", "")})
	report(1, wire.SentReq{Method: "GET", Left: true, Complete: true, Status: 200})
	if got := why(""); got != "" {
		t.Errorf("refused: %s", got)
	}
	report(2, wire.SentReq{Method: "POST", Err: wire.Refuse(wire.CodeBadSurrogate, "no surrogate on this request", "send it")})
	report(1, wire.SentReq{Err: wire.Refuse(wire.CodeNotAllowed, "notes.allowed.example has an address that must not be reached", "")})
	for _, about := range []string{"", "notes.allowed.example", conn.ID} {
		got := why(about)
		words := `"reason":"bad_surrogate","next":"send it","detail":"POST: no surrogate`
		if strings.Count(got, "\n") != 1 || !strings.Contains(got, words) || !strings.Contains(got, "must not be reached") ||
			!strings.Contains(got, `"cell":"work"`) {
			t.Errorf("about %q: %s", about, got)
		}
	}
	// However many of its own decisions a program is refused under, it takes one place of its cell's, and another's is still named.
	for i := range 3 * maxNamed {
		seq++
		durable, err := s.connSent("work", &wire.SentReq{Instance: "a", Seq: seq, Conn: fmt.Sprint("c", i), Host: "notes.allowed.example",
			Err: wire.Refuse(wire.CodeUsage, "the path cannot be read in one way only", "")})
		if err == nil && i == 3*maxNamed-1 {
			err = durable(t.Context())
		} else if err == nil {
			go durable(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.lines(t, ledger.EvRefused)); n != 3 {
		t.Errorf("%d lines", n)
	}
	seq++
	durable, err := s.connSent("work", &wire.SentReq{Instance: "a", Seq: seq, Conn: "d", Host: "other.allowed.example",
		Err: wire.Refuse(wire.CodeUsage, "the path cannot be read in one way only", "")})
	if err == nil {
		err = durable(t.Context())
	}
	if got := why("other.allowed.example"); err != nil || !strings.Contains(got, "in one way only") {
		t.Errorf("%v, %s", err, got)
	}
}

// TestConnectsCannotFillTheDisk: a cell that has used up what it may have written opens no new kind of connection, its
// refusals are counted only, and its calls are not the poorer. Control: before that they are listed one by one.
func TestConnectsCannotFillTheDisk(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, sitesToml, "")
	s.begin(t, "work", 7)
	off := func(i int) *wire.ConnectReq {
		return &wire.ConnectReq{Addr: fmt.Sprintf("192.0.2.%d", i), Port: 443, Begins: wire.BeginsTLS}
	}
	for i := range 5 {
		s.connects(t, "work", off(i))
	}
	if n := len(s.lines(t, ledger.EvRefused)); n != 5 {
		t.Errorf("control: %d lines of 5 refusals", n)
	}
	for i := range 100 { // it does not take all the room that there is for sums
		s.connects(t, "home", off(i))
	}
	if n := len(s.lines(t, ledger.EvRefused)); n > 5+maxNamed+1 {
		t.Errorf("%d lines of 105 refusals", n)
	}
	s.conns.since = time.Time{}
	s.spend(netAllowance("work"), 2*recordBurst)
	for i := range 50 {
		s.connects(t, "work", off(100+i))
	}
	if n := len(s.lines(t, ledger.EvRefused)); n > 5+maxNamed+3 {
		t.Errorf("%d lines", n)
	}
	if _, e := s.connects(t, "work", site("deb.debian.org")); e == nil || e.Code != wire.CodeTooMany {
		t.Errorf("%v", e)
	}
	if !s.mayRecord("work", refusalCost) {
		t.Error("the cell's calls have no record left")
	}
}
