// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/policy"
)

// Two grants that let through other things are told in other words, by the page before one is signed and by sentinel in the list of
// what there is: no value can be chosen so that one passes for the other.
func TestNoTwoGrantsReadTheSame(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	limit := func(field string, values ...string) wire.Limit { return wire.Limit{Field: field, Values: values} }
	grant := func(change func(*wire.Grant)) *wire.Grant {
		g := &wire.Grant{Connector: "dav", Method: "event-create", Account: "me", Cell: "work", Kind: policy.Until, Until: 1900000000,
			Limits: []wire.Limit{limit("attendee", "bob@example.org"), limit("title", "Lunch")}}
		change(g)
		return g
	}
	limits := func(l ...wire.Limit) func(*wire.Grant) { return func(g *wire.Grant) { g.Limits = l } }
	to := limit("attendee", "bob@example.org")
	all := []*wire.Grant{
		grant(func(*wire.Grant) {}),
		grant(func(g *wire.Grant) { g.Connector = "github" }),
		grant(func(g *wire.Grant) { g.Method = "event-update" }),
		grant(func(g *wire.Grant) { g.Account = "other" }),
		grant(func(g *wire.Grant) { g.Cell = "work2" }),
		grant(func(g *wire.Grant) { g.Until += 60 }),
		grant(func(g *wire.Grant) { g.Kind, g.Until = policy.Once, 0 }),
		grant(func(g *wire.Grant) { g.Kind, g.Until, g.Session = policy.Session, 0, "run-1" }),
		grant(func(g *wire.Grant) { g.Kind, g.Until, g.Session = policy.Session, 0, "run-2" }),
		grant(func(g *wire.Grant) { g.Count = 1 }),
		grant(func(g *wire.Grant) { g.Count = 2 }),
		grant(func(g *wire.Grant) { g.Tainted = true }),
		grant(limits()),
		grant(limits(to)),
		grant(limits(to, wire.Limit{Field: "title", Any: true})),
		grant(limits(wire.Limit{Field: "attendee", Any: true}, wire.Limit{Field: "title", Any: true})),
		grant(limits(to, limit("title"))),
		grant(limits(to, limit("title", ""))),
		grant(limits(to, limit("title", "lunch"))),
		grant(limits(to, limit("title", "Lunch "))),
		grant(limits(to, limit("title", "Lunch\u200b"))),
		grant(limits(to, limit("title", "Lunch\n"))),
		grant(limits(to, limit("title", `Lunch"`))),
		grant(limits(to, limit("title", "Lunch, Dinner"))),
		grant(limits(to, limit("title", "Lunch", "Dinner"))),
		grant(limits(to, limit("title", `Lunch", "Dinner`))),
		grant(limits(to, wire.Limit{Field: "title", Values: []string{"Lunch", "Dinner"}, All: true})),
		grant(limits(to, limit("title", "Lunch and place is Rome"))),
		grant(limits(to, limit("title", "Lunch"), limit("place", "Rome"))),
		grant(limits(to, limit("title", "Lunch; whatever place is"))),
		grant(limits(to, limit("title", "Lunch"), wire.Limit{Field: "place", Any: true})),
		grant(limits(to, limit("title", "is not given"))),
		grant(limits(to, wire.Limit{Field: "title", Max: 5})),
		grant(limits(to, wire.Limit{Field: "title", Max: 50})),
		grant(limits(to, limit("title", "at most 5"))),
		grant(limits(to, limit("title", "5"))),
		grant(limits(limit("attendee", "bob@example.org."), limit("title", "Lunch"))),
		grant(limits(limit("attendee", "b\u043eb@example.org"), limit("title", "Lunch"))),
		grant(limits(limit("attendee", "bob@example.org", "eve@example.org"), limit("title", "Lunch"))),
	}
	var page []string
	b.Call("grantform.js", `const { line } = await import("/visible.js");
		return args[0].map((g) => line(m.sentence(g)).map((p) => p.text).join(""))`, &page, all)
	if len(page) != len(all) {
		t.Fatalf("%d sentences of %d grants", len(page), len(all))
	}
	for i := range all {
		for j := range i {
			if page[i] == page[j] {
				t.Errorf("the page says the same of two grants: %s\n%+v\n%+v", page[i], *all[i], *all[j])
			}
			if s := policy.Sentence(all[i], nil); s == policy.Sentence(all[j], nil) {
				t.Errorf("sentinel says the same of two grants: %s\n%+v\n%+v", s, *all[i], *all[j])
			}
		}
	}
}
