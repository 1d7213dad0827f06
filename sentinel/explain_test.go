// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

const unasked = "[connector.demo]\nsetting = \"dont-ask\"\n"

// forbidden is a rule that denies where cond holds.
func forbidden(cond string) string {
	return "forbid (principal, action, resource) when { " + cond + " };"
}

func to(addresses ...string) []wire.Arg {
	return []wire.Arg{{Name: "title", Values: []string{"t"}}, {Name: "to", Values: addresses}}
}

// verdict is what explain says would become of a call.
func verdict(t *testing.T, lines []string) policy.Verdict {
	t.Helper()
	all := strings.Join(lines, "\n")
	switch {
	case strings.Contains(all, ": goes"):
		return policy.Allow
	case strings.Contains(all, ": asks a person"):
		return policy.Ask
	case strings.Contains(all, ": is denied"):
		return policy.Deny
	}
	t.Fatalf("no verdict in %s", all)
	return ""
}

// What explain says of a call is what decide does with it: both see the same facts.
func TestExplainSaysWhatDecideDoes(t *testing.T) {
	title := wire.Arg{Name: "title", Values: []string{"t"}}
	yes := true
	for _, c := range []struct {
		name  string
		toml  string
		cedar string // denies where the fact is what it really is
		begin bool   // the session is there, attended
		setup func(*testing.T, *Sentinel)
		frame func(*Sentinel) *wire.Frame
		// other is a supposition under which the rule does not hold.
		other func(*wire.PolicyReq)
	}{
		{name: "account", cedar: forbidden(`context.account == "home"`)},
		{name: "recipients", cedar: forbidden(`context.recipients.contains("bob@example.net")`)},
		{name: "not the owner", cedar: forbidden(`!context.recipients.contains("ada@example.org") && context.recipientDomains.contains("example.net")`)},
		{name: "outside", toml: "organisation = [\"example.org\"]\n", cedar: forbidden(`context.outsideOrganisation`)},
		{name: "first time", cedar: forbidden(`context.firstTime.contains("bob@example.net")`)},
		{name: "not the first time", cedar: forbidden(`context.firstTime.isEmpty()`),
			setup: func(t *testing.T, s *Sentinel) {
				if err := s.ledger.PutSetting(t.Context(), "wrote/bob@example.net", []byte("c"), "sentinel", nil); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "unattended", cedar: forbidden(`!context.attended`), other: func(r *wire.PolicyReq) { r.Attended = &yes }},
		{name: "attended", cedar: forbidden(`context.attended`), begin: true,
			other: func(r *wire.PolicyReq) { r.Attended = new(bool) }},
		{name: "by", cedar: forbidden(`context.by == "cron.service"`), other: func(r *wire.PolicyReq) { r.By = "at.service" }},
		{name: "session", cedar: forbidden(`context.session == "s1"`), other: func(r *wire.PolicyReq) { r.Session = "s2" }},
		{name: "reads", cedar: forbidden(`context.reads >= 3`),
			frame: func(s *Sentinel) *wire.Frame { return s.call("items") }, setup: readThrice,
			other: func(r *wire.PolicyReq) { r.Reads = new(int64) }},
		{name: "bulk", toml: "bulk-reads = 3\n", frame: func(s *Sentinel) *wire.Frame { return s.call("items") }, setup: readThrice,
			other: func(r *wire.PolicyReq) { r.Reads = new(int64) }},
		{name: "labels", cedar: forbidden(`context.untrusted`), setup: func(t *testing.T, s *Sentinel) {
			if err := s.ledger.AddLabels(t.Context(), "work", []string{wire.LabelUntrusted}, ledger.Cause{}, "sentinel"); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "off", toml: "[connector.demo.method]\ncreate = \"off\"\n"},
		{name: "sensitive", toml: unasked},
		{name: "nothing said", frame: func(s *Sentinel) *wire.Frame { return s.call("create", title) }},
		{name: "a read", frame: func(s *Sentinel) *wire.Frame { return s.call("items") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSentinel(t)
			s.usePolicy(t, c.toml, c.cedar)
			who := cell("work", "s1")
			if _, err := s.ledger.BeginSession(t.Context(), ledger.Session{ID: sessionID(who), Cell: "work", Run: who.Unit,
				Attended: c.begin, Until: s.ledger.Now().Add(sessionFor)}, "test"); err != nil {
				t.Fatal(err)
			}
			if c.setup != nil {
				c.setup(t, s)
			}
			f := s.call("create", to("ada@example.org", "bob@example.net")...)
			if c.frame != nil {
				f = c.frame(s)
			}
			want := policy.Deny
			j, err := s.judge(t.Context(), who, f, nil)
			if err == nil {
				want = j.decision.Verdict
			} else if codeOf(err) != wire.CodeUnknownMethod {
				t.Fatal(err)
			}
			if c.cedar != "" && want != policy.Deny {
				t.Fatalf("the case does not hold: %s", want)
			}
			req := &wire.PolicyReq{Op: "explain", Frame: f, Cell: "work"}
			explain := func() policy.Verdict {
				t.Helper()
				r, err := s.policyVerb(t.Context(), ada(), req)
				if err != nil {
					t.Fatal(err)
				}
				return verdict(t, r.Lines)
			}
			if got := explain(); got != want {
				t.Errorf("explain says %s, decide %s", got, want)
			}
			req.Cell = "" // there is only one
			if got := explain(); got != want {
				t.Errorf("without a cell explain says %s, decide %s", got, want)
			}
			if c.other != nil {
				if c.other(req); explain() == want {
					t.Errorf("%s too where another is supposed", want)
				}
			}
		})
	}
}

func readThrice(t *testing.T, s *Sentinel) {
	who := cell("work", "s1")
	for range 3 {
		c := ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Cell: "work", Session: sessionID(who), Connector: "demo",
			Method: "items", Class: describe.Read}}
		if err := s.ledger.Start(t.Context(), c, "cell:work").Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// What decide refuses before it asks the policy, explain says too; and it says what it cannot know.
func TestExplainSaysWhatIsRefusedBefore(t *testing.T) {
	s := newSentinel(t)
	lines := func(f *wire.Frame) string {
		t.Helper()
		got, err := s.explain(s.policy.Load(), &wire.PolicyReq{Frame: f, Cell: "work"})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(got, "\n")
	}
	read := s.call("items")
	if got := lines(read); strings.Contains(got, "as things stand") || !strings.Contains(got, "account home") ||
		!strings.Contains(got, "a new session of cell work") || !strings.Contains(got, "unattended") {
		t.Error(got)
	}
	s.addAccount(t, "office")
	if got := lines(read); !strings.HasPrefix(got, "as things stand it is refused before the policy is asked: ambiguous_account") {
		t.Error(got)
	}
	read.Account = "office"
	if got := lines(read); strings.Contains(got, "as things stand") || !strings.Contains(got, "account office") {
		t.Error(got)
	}
	if err := s.ledger.PutSetting(t.Context(), stopKey("work"), []byte("x"), "person:1000", nil); err != nil {
		t.Fatal(err)
	}
	if got := lines(read); !strings.Contains(got, "asked: stopped") {
		t.Error(got)
	}
	if _, ok := s.ledger.Session(sessionID(peer.Identity{Name: "work"})); ok || len(s.ledger.Sessions("")) != 0 {
		t.Error("explaining began a session")
	}
}

// A body that builds on what the vendor holds needs that read to go unasked, and may reach whom it names.
func TestExplainOfWhatBuildsOnARead(t *testing.T) {
	s := newSentinel(t)
	d := demo()
	d.Methods = append(d.Methods, describe.Method{Name: "update", Summary: "change a thing", Class: describe.Write,
		Reach: describe.ReachPeople, Prepare: &describe.Prepare{Kind: "icalendar", Base: "items"},
		Lower:   []describe.Lower{{To: describe.ReachNone}},
		Entries: []describe.Entry{{Name: "it", Method: "PUT", Path: "{base}/it", Credential: true, Body: &describe.Body{Media: "text/calendar", Prepared: true}}}})
	if _, err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	s.vendors["demo"], s.sorted = d, []*describe.Connector{d}
	explain := func(toml string) string {
		t.Helper()
		s.usePolicy(t, toml, "")
		got, err := s.explain(s.policy.Load(), &wire.PolicyReq{Frame: s.call("update"), Cell: "work"})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(got, "\n")
	}
	got := explain(unasked)
	if verdict(t, strings.Split(got, "\n")) != policy.Allow || !strings.Contains(got, "where that names people, the verdict is ask") {
		t.Error(got)
	}
	got = explain("[connector.demo.method]\nitems = \"ask\"\nupdate = \"allow\"\n")
	if !strings.Contains(got, "refused before the policy is asked: not_allowed: the call builds on items") {
		t.Error(got)
	}
}

// doctor learns by which descriptions calls are judged, and what goes unasked.
func TestTheStateOfThePolicy(t *testing.T) {
	s := newSentinel(t)
	r, err := s.policyVerb(t.Context(), ada(), &wire.PolicyReq{Op: "state"})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range s.sorted {
		digest := d.Digest()
		if want := fmt.Sprintf("connector %s %x", d.Vendor, digest[:]); !slices.Contains(r.Lines, want) {
			t.Errorf("no %q in %q", want, r.Lines)
		}
	}
	now := s.policy.Load().Digest()
	if want := fmt.Sprintf("policy %x", now[:8]); r.Lines[0] != want {
		t.Errorf("%q, want %q", r.Lines[0], want)
	}
}
