// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// upgrade is a start with another description of demo.
func (s *Sentinel) upgrade(t *testing.T, change func(*describe.Connector)) {
	t.Helper()
	d := demo()
	change(d)
	if _, err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	s.vendors[d.Vendor], s.sorted = d, []*describe.Connector{d}
	if err := s.compareMeanings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.loadPolicy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// goes says whether the policy lets a call of demo go without a grant.
func (s *Sentinel) goes(t *testing.T, method string) bool {
	t.Helper()
	m, _ := s.vendors["demo"].Method(method)
	d := s.policy.Load().Decide(&policy.Call{Connector: s.vendors["demo"], Method: m, Values: describe.Values{"title": {"x"}},
		Account: "home", Reach: describe.ReachNone, Cell: "work"}, nil)
	if d.Verdict == policy.Deny {
		t.Fatalf("%s is denied: %s", method, d.Reason)
	}
	return d.Verdict == policy.Allow
}

func same(*describe.Connector) {}

func TestAChangedMethodLosesWhatWasAllowed(t *testing.T) {
	const dontAsk = "[connector.demo]\nsetting = \"dont-ask\"\n"
	for _, c := range []struct {
		what    string
		change  func(*describe.Connector)
		changed string // the method that asks afterwards; the other goes on
	}{
		{"control: the same description", same, ""},
		{"control: other words", func(d *describe.Connector) {
			d.Title, d.Methods[0].Summary, d.Methods[0].Args[0].Help = "Demo 2", "makes a thing", "a line"
		}, ""},
		{"reach", func(d *describe.Connector) { d.Methods[0].Reach = describe.ReachSpace }, "create"},
		{"class", func(d *describe.Connector) { d.Methods[0].Class = describe.Read }, "create"},
		{"the request", func(d *describe.Connector) {
			d.Methods[1].Entries = []describe.Entry{{Name: "it", Method: "GET", Path: "{base}/others", Credential: true}}
		}, "items"},
		{"grant fields", func(d *describe.Connector) { d.Methods[0].Grant = nil }, "create"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newSentinel(t)
			s.upgrade(t, same) // the first start
			if err := s.adopt(t.Context(), fileList(t, dontAsk), "person:1000", nil); err != nil {
				t.Fatal(err)
			}
			ids := map[string]string{}
			for _, m := range []string{"create", "items"} {
				g, err := s.ledger.AddGrant(t.Context(), ledger.Grant{Cell: "work", Connector: "demo", Method: m, Account: "home",
					Kind: ledger.KindStanding, Meaning: s.meaning("demo", m)}, "person:1000")
				if err != nil {
					t.Fatal(err)
				}
				ids[m] = g.ID
			}
			s.upgrade(t, c.change)
			for m, id := range ids {
				g := s.ledger.Grants(ledger.GrantFilter{ID: id})[0]
				want := ledger.GrantLive
				if m == c.changed {
					want = ledger.GrantRevoked
				}
				if g.State != want {
					t.Errorf("the grant of %s is %s, want %s", m, g.State, want)
				}
				if goes := s.goes(t, m); goes != (m != c.changed) {
					t.Errorf("%s goes: %t", m, goes)
				}
			}
			s.upgrade(t, c.change) // another start changes nothing
			if c.changed == "" {
				return
			}
			if s.goes(t, c.changed) {
				t.Error("after another start it goes")
			}

			// The same files are decided again, by a person, and shown before.
			r, err := s.policyVerb(t.Context(), ada(), &wire.PolicyReq{Op: "load", Files: []wire.PolicyFile{{Name: policy.PolicyFile, Body: []byte(dontAsk)}}})
			if err != nil || r.Widening == "" || !strings.Contains(strings.Join(r.Lines, "\n"), "demo "+c.changed+": ask, now allow") {
				t.Fatalf("%+v, %v", r, err)
			}
			if s.goes(t, c.changed) {
				t.Error("it goes before it is decided")
			}
			k, err := s.show(t.Context(), ada(), &wire.CallRef{Call: r.Widening})
			if err != nil {
				t.Fatal(err)
			}
			d, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: k.Card.ID, Hash: k.Card.Hash, Approve: true})
			if err != nil || d.State != wire.StateDone {
				t.Fatalf("%+v, %v", d, err)
			}
			s.upgrade(t, c.change)
			if !s.goes(t, c.changed) {
				t.Error("it was decided and asks all the same")
			}
		})
	}
}

// What a person saw of one description is no decision about the next.
func TestADecisionAboutOlderMethodsComesTooLate(t *testing.T) {
	const dontAsk = "[connector.demo]\nsetting = \"dont-ask\"\n"
	s := newSentinel(t)
	s.upgrade(t, same)
	r, err := s.policyVerb(t.Context(), ada(), &wire.PolicyReq{Op: "load", Files: []wire.PolicyFile{{Name: policy.PolicyFile, Body: []byte(dontAsk)}}})
	if err != nil || r.Widening == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	s.upgrade(t, func(d *describe.Connector) { d.Methods[1].Reach = describe.ReachSpace })
	k, err := s.show(t.Context(), ada(), &wire.CallRef{Call: r.Widening})
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: k.Card.ID, Hash: k.Card.Hash, Approve: true})
	if err != nil || d.State != wire.StateFailed {
		t.Errorf("%+v, %v", d, err)
	}
}

// A method that an upgrade brings to a connector that was decided asks; a connector that is new has no account yet.
func TestWhatAnUpgradeBringsAsks(t *testing.T) {
	s := newSentinel(t)
	s.upgrade(t, func(d *describe.Connector) { d.Methods = d.Methods[1:] })
	s.upgrade(t, same)
	if got := strings.Join(s.changedMethods(), ","); got != "demo create" {
		t.Errorf("changed: %q", got)
	}
	s.upgrade(t, func(d *describe.Connector) { d.Vendor = "other" })
	if got := strings.Join(s.changedMethods(), ","); got != "" {
		t.Errorf("of a new connector these are changed: %q", got)
	}
	s.upgrade(t, same) // what was gone is back, and is held to what it was
	if got := strings.Join(s.changedMethods(), ","); got != "demo create" {
		t.Errorf("changed: %q", got)
	}
}

// A grant of which nobody can tell what it was given for ends.
func TestAGrantWithoutAMeaningEnds(t *testing.T) {
	s := newSentinel(t)
	g, err := s.ledger.AddGrant(t.Context(), ledger.Grant{Cell: "work", Connector: "demo", Method: "create", Kind: ledger.KindStanding}, "person:1000")
	if err != nil {
		t.Fatal(err)
	}
	s.upgrade(t, same)
	if g = s.ledger.Grants(ledger.GrantFilter{ID: g.ID})[0]; g.State != ledger.GrantRevoked {
		t.Errorf("it is %s", g.State)
	}
}

func fileList(t *testing.T, toml string) []byte {
	t.Helper()
	b, err := json.Marshal([]wire.PolicyFile{{Name: policy.PolicyFile, Body: []byte(toml)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A package with another default policy changes nothing on a machine whose person has decided none.
func TestAnotherDefaultPolicyIsNotTakenUp(t *testing.T) {
	s := newSentinel(t)
	s.upgrade(t, same)
	if s.goes(t, "create") {
		t.Fatal("the default lets a write go")
	}
	v, ok := s.ledger.Setting(defaultKey)
	if !ok || !bytes.Contains(v.Value, []byte(policy.PolicyFile)) {
		t.Fatalf("the default of the first start is not kept: %s", v.Value)
	}
	// As if the first start had been of a package whose default was another.
	if err := s.ledger.PutSetting(t.Context(), defaultKey, fileList(t, "[connector.demo.method]\nitems = \"ask\"\n"), "sentinel", nil); err != nil {
		t.Fatal(err)
	}
	s.upgrade(t, same)
	if s.goes(t, "items") {
		t.Error("the default of this package took the place of the first one")
	}
	r, err := s.policyVerb(t.Context(), ada(), &wire.PolicyReq{Op: "load"})
	if err != nil || r.Widening == "" {
		t.Errorf("it is not put up for decision: %+v, %v", r, err)
	}
}
