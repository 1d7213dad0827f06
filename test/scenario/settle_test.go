// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// A write whose answer is lost is unknown, not failed; it is sent by nobody again; asking for the same asks a person,
// though a grant covers it; and its mark at the vendor says later what became of it. AP-05.
func TestCase_AP05_LostAnswersAreUnknownAndThenSettled(t *testing.T) {
	r := newRig(t, world.Options{})
	for _, repo := range []string{"ada/site", "ada/notes"} {
		r.grant(r.asks(r.work.Actor(), issue(repo, "granted")...), nil)
	}
	r.grant(r.asks(r.work.Actor(), r.event("granted")...), nil)
	// A look that the vendor does not answer says nothing.
	r.github.Faults.Add(standin.Fault{Method: "GET", Times: 1, Status: 503})
	r.dav.Faults.Add(standin.Fault{Method: "GET", Times: 1, Status: 503})
	type lost struct {
		name  string
		fault standin.Fault
		args  []string
		acted bool
		id    string
	}
	cases := []*lost{
		{name: "issue, dropped after", fault: standin.Fault{Method: "POST", Path: "/repos/ada/site/", Times: 1, Drop: standin.DropAfter},
			args: issue("ada/site", "dropped after"), acted: true},
		{name: "issue, dropped before", fault: standin.Fault{Method: "POST", Path: "/repos/ada/site/", Times: 1, Drop: standin.DropBefore},
			args: issue("ada/site", "dropped before")},
		{name: "issue, 502 after", fault: standin.Fault{Method: "POST", Path: "/repos/ada/notes/", Times: 1, Act: true, Status: 502},
			args: issue("ada/notes", "502 after"), acted: true},
		{name: "issue, 500 before", fault: standin.Fault{Method: "POST", Path: "/repos/ada/notes/", Times: 1, Status: 500},
			args: issue("ada/notes", "500 before")},
		{name: "event, dropped after", fault: standin.Fault{Method: "PUT", Times: 1, Drop: standin.DropAfter},
			args: r.event("dropped after"), acted: true},
		{name: "event, dropped before", fault: standin.Fault{Method: "PUT", Times: 1, Drop: standin.DropBefore},
			args: r.event("dropped before")},
	}
	for _, c := range cases {
		rec, faults := r.github.Rec, r.github.Faults
		if c.args[0] == "dav" {
			rec, faults = r.dav.Rec, r.dav.Faults
		}
		faults.Add(c.fault)
		from, before := r.end(), len(rec.Find(c.fault.Method, "/"))
		res, err := r.work.Actor().Connector(r.ctx(), append(c.args, "--json")...)
		if err != nil || res.Code == 0 || refusal(t, res).Code != wire.CodeUnknown {
			t.Errorf("%s: the caller is told %v, %v", c.name, res, err)
		}
		for id := range r.writes(from) {
			c.id = id
		}
		if s := r.card(c.id).State; s != wire.StateUnknown {
			t.Errorf("%s: it is %s", c.name, s)
		}
		if n := len(rec.Find(c.fault.Method, "/")) - before; n != 1 {
			t.Errorf("%s: %d requests were sent", c.name, n)
		}
	}

	// The same again, while it is unknown, asks; the card says why.
	last := cases[len(cases)-1]
	again := r.asks(r.work.Actor(), last.args...)
	r.has(again.Reason+" "+strings.Join(again.Facts, "\n"), "may have run already", last.id)
	r.decide(again, false)
	r.has(r.connector(r.work, wire.ExitVendor, "result", last.id).Stderr, "look at the vendor's side")

	var wg sync.WaitGroup
	for _, c := range cases {
		wg.Go(func() {
			want := wire.StateFailed
			if c.acted {
				want = wire.StateDone
			}
			r.eventually(c.name+" is settled", func() bool { return r.card(c.id).State != wire.StateUnknown })
			if s := r.card(c.id).State; s != want {
				t.Errorf("%s: it is settled as %s, want %s: %v", c.name, s, want, r.card(c.id).Err)
			}
		})
	}
	wg.Wait()
	r.hold(0)
	if s := r.doorward(0, "taint", "work").Stdout; strings.Contains(s, "untrusted") {
		t.Errorf("looking for marks labelled the cell:\n%s", s)
	}
	r.goes(r.work.Actor(), last.args...) // settled, so it is an ordinary call again
}

// One record joins a call from its question to what the vendor made of it, and every refusal says why and what to do.
func TestTheRecordJoinsACall(t *testing.T) {
	r := newRig(t, world.Options{})
	work := r.work.Actor()
	card := r.asks(work, issue("ada/site", "on the record")...)
	r.doorward(0, "approve", card.ID, "--yes", "--grant", "session", "--any", "title")
	r.ended(card.ID)
	r.connector(r.work, 0, "result", card.ID)
	from := r.end()
	r.goes(work, issue("ada/site", "under the grant")...)
	var under string
	for id := range r.writes(from) {
		under = id
	}

	lines := func(id string) (types []string, all string) {
		for line := range strings.Lines(r.doorward(0, "audit", "show", id, "--json").Stdout) {
			var e event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			types = append(types, e.Type)
			all += line
		}
		return types, all
	}
	has := func(types []string, want ...string) {
		t.Helper()
		for _, w := range want {
			found := false
			for _, have := range types {
				found = found || have == w
			}
			if !found {
				t.Errorf("no %s among %v", w, types)
			}
		}
	}
	types, all := lines(card.ID)
	has(types, "park", "approve", "grant", "execute", "released", "sent", "finish", "collect")
	r.has(all, "person:1000", `"actor":"authd"`, `"actor":"egress"`, `"status":201`, "ada/site#", "127.0.0.1")
	var grant string
	if err := r.ada.Ask(r.ctx(), wire.PathApprove, "grants", &wire.Empty{}, new(wire.GrantsResp)); err != nil {
		t.Fatal(err)
	}
	var grants wire.GrantsResp
	_ = r.ada.Ask(r.ctx(), wire.PathApprove, "grants", &wire.Empty{}, &grants)
	grant = grants.Grants[0].ID
	types, all = lines(under)
	has(types, "start", "released", "sent", "finish")
	r.has(all, grant, "ada/site#")
	for _, secret := range []string{r.githubToken, r.davPassword, "on the record"} {
		if strings.Contains(all, secret) {
			t.Errorf("the record holds %q", secret)
		}
	}

	// Refusals: by the policy, by a person, by the vendor, by the switch.
	r.doorward(0, "policy", "load", r.policyFile("[connector.github.method]\ngist-create = \"off\"\n"))
	file := put(t, readable(t), "f", []byte("x"), 0o644)
	if res, err := work.Connector(r.ctx(), "github", "gist-create", "--file", file); err != nil || res.Code == 0 {
		t.Errorf("%v, %v", res, err)
	}
	no := r.asks(work, issue("ada/notes", "refused")...)
	r.doorward(0, "deny", no.ID, "--why", "not in that repository")
	r.has(r.doorward(0, "why", "--json").Stdout, "gist-create", "unknown_method", no.ID)
	r.has(r.doorward(0, "why", no.ID, "--json").Stdout, "not in that repository", "person:1000")
	r.has(r.doorward(0, "why", no.ID).Stdout, "not in that repository")
	r.has(r.doorward(0, "policy", "explain", card.ID).Stdout, "policy", "issue-create")
	r.has(r.doorward(0, "policy", "explain", "--cell", "work", "github", "issue-create", "--repo", "ada/notes", "--title",
		"x").Stdout, "ask", grant)
	r.has(r.doorward(0, "audit", "verify").Stdout, "whole")
}
