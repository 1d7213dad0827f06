// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// TestWhatIsIssuedIsListed: a cell learns names, hosts and places of its own, without a value, and why one cannot be used.
func TestWhatIsIssuedIsListed(t *testing.T) {
	s, a, _, _ := chatRig(t, "")
	list := func(cell string) []wire.IssuedHere {
		t.Helper()
		r, err := s.surrogate(t.Context(), inCell(cell), &wire.SurrogateReq{})
		if err != nil || len(r.Value) > 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Issued
	}
	all := list("work")
	if len(all) != 1 || all[0].Name != "chat" || !slices.Equal(all[0].Hosts, []string{"chat.example:443", "*.chat.example:443"}) ||
		all[0].Place != `the header Authorization, behind "Bot "` || all[0].Err != nil {
		t.Fatalf("%+v", all)
	}
	if got := list("home"); len(got) > 0 {
		t.Errorf("another cell: %+v", got)
	}
	if n := len(a.of(t, "mint")); n > 0 || len(s.lines(t, ledger.EvMint)) > 0 {
		t.Errorf("%d were minted", n)
	}
	delete(s.accounts, "chat")
	if all := list("work"); len(all) != 1 || all[0].Err == nil || all[0].Place != `the header Authorization, behind "Bot "` {
		t.Errorf("without its account: %+v", all)
	}
}

// TestAnIssuedHostInTheClear: a connection without TLS to a host that a surrogate was issued for asks nobody, at whatever port; over
// TLS another port asks, and so does another cell, and another host. What the policy allows goes.
func TestAnIssuedHostInTheClear(t *testing.T) {
	s, _, _, _ := chatRig(t, "")
	s.begin(t, "home", 8)
	clear := func(name string, port uint16) *wire.ConnectReq {
		return &wire.ConnectReq{Name: name, Port: port, Begins: wire.BeginsHTTP}
	}
	for _, req := range []*wire.ConnectReq{clear("chat.example", 80), clear("a.chat.example", 80), clear("chat.example", 8080)} {
		if _, e := s.connects(t, "work", req); e == nil || e.Code != wire.CodeBadTarget || e.Next != "use https" ||
			!strings.Contains(e.Reason, "surrogate chat") {
			t.Errorf("%s:%d: %v", req.Name, req.Port, e)
		}
	}
	if all := s.cards(t); len(all) > 0 {
		t.Errorf("%d cards", len(all))
	}
	for name, ask := range map[string]func() *wire.Error{
		"over TLS": func() *wire.Error {
			_, e := s.connects(t, "work", &wire.ConnectReq{Name: "chat.example", Port: 8443, Begins: wire.BeginsTLS})
			return e
		},
		"another cell": func() *wire.Error { _, e := s.connects(t, "home", clear("chat.example", 80)); return e },
		"another host": func() *wire.Error { _, e := s.connects(t, "work", clear("other.example", 80)); return e },
	} {
		if e := ask(); e == nil || e.Code != wire.CodeNeedsApproval {
			t.Errorf("%s: %v", name, e)
		}
	}
	s.usePolicy(t, "[site.\"chat.example:80\"]\nsetting = \"allow\"\n", "")
	if _, e := s.connects(t, "work", clear("chat.example", 80)); e != nil {
		t.Errorf("a person allowed it: %v", e)
	}
}

// TestWhatIsNotKept: of a request or connection that a person allows nothing ran, and the cell is never told that it did.
func TestWhatIsNotKept(t *testing.T) {
	s, _, _, send := chatRig(t, "")
	if _, e := send("POST", "/api/channels/1/messages"); e == nil || !strings.Contains(e.Next, "it is not kept") {
		t.Errorf("%v", e)
	}
	if _, e := s.connects(t, "work", site("new.example")); e == nil || !strings.Contains(e.Next, "it is not kept") {
		t.Errorf("%v", e)
	}
	titles := []string{"POST chat.example/api/channels/1/messages", "connect to new.example:443"}
	for _, k := range s.cards(t) {
		i := slices.Index(titles, k.Title)
		if i < 0 {
			t.Fatalf("a card %q", k.Title)
		}
		r, err := s.resultVerb(t.Context(), inCell("work"), &wire.CallRef{Call: k.ID})
		if err != nil || r.Title != titles[i] || r.Err == nil || strings.Contains(r.Err.Error()+r.Err.Next, "collect") ||
			!strings.Contains(r.Err.Next, "send it again") {
			t.Errorf("%s, parked: %+v, %v", k.Title, r, err)
		}
		s.approve(t, k.ID, nil)
		in, err := s.inbox(t.Context(), inCell("work"), nil)
		if err != nil || !slices.ContainsFunc(in.Items, func(it wire.InboxItem) bool { return it.Call == k.ID && it.Title == titles[i] }) {
			t.Errorf("%s: %+v, %v", k.Title, in, err)
		}
		if r, err = s.wait(t.Context(), inCell("work"), &wire.WaitReq{Call: k.ID}); err != nil || r.Title != titles[i] || r.Output != nil {
			t.Errorf("%s, approved: %+v, %v", k.Title, r, err)
		}
	}
	f := s.call("create", wire.Arg{Name: "title", Values: []string{"x"}}, wire.Arg{Name: "to", Values: []string{"eve@example.org"}})
	d, err := s.decide(t.Context(), inCell("work"), &wire.DecideReq{Frame: *f})
	if err != nil || d.Verdict != wire.Parked {
		t.Fatalf("%+v, %v", d, err)
	}
	if r, err := s.resultVerb(t.Context(), inCell("work"), &wire.CallRef{Call: d.Call}); err != nil || r.Title != "" {
		t.Errorf("a call of a method, which is kept: %+v, %v", r, err)
	}
}
