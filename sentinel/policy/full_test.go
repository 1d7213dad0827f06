// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"iter"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/doorward/doorward/internal/describe"
)

// whole is all rules of a set, with their scopes.
type whole []*rule

func (w whole) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, r := range w {
			if !yield(r.key, r.policy) {
				return
			}
		}
	}
}

// verdictInFull decides without any of the short cuts: every policy of the set in its own words, every fact.
func verdictInFull(t testing.TB, s *Set, c *Call) Verdict {
	t.Helper()
	ents := types.EntityMap{}
	for _, d := range s.descs {
		group := cedar.NewEntityUID("Action", types.String(d.Vendor))
		ents[group] = types.Entity{UID: group}
		for _, m := range methodNames(d) {
			a := cedar.NewEntityUID("Action", types.String(d.Vendor+"."+m))
			ents[a] = types.Entity{UID: a, Parents: types.NewEntityUIDSet(group)}
		}
	}
	con := cedar.NewEntityUID("Connector", types.String(c.Connector.Vendor))
	acc := cedar.NewEntityUID("Account", types.String(c.Connector.Vendor+"/"+c.Account))
	ents[acc] = types.Entity{UID: acc, Parents: types.NewEntityUIDSet(con)}
	var all []*describe.Arg
	for i := range c.Method.Args {
		all = append(all, &c.Method.Args[i])
	}
	run := func(approved bool) (allow, plain bool) {
		m := types.RecordMap{"arguments": arguments(c, all), "approved": types.Boolean(approved)}
		for _, f := range facts() {
			m[types.String(f.name)] = f.of(s, c)
		}
		yes, diag := cedar.Authorize(whole(s.rules), ents, cedar.Request{
			Principal: cedar.NewEntityUID("Cell", types.String(c.Cell)),
			Action:    cedar.NewEntityUID("Action", types.String(c.Connector.Vendor+"."+c.Method.Name)),
			Resource:  acc, Context: types.NewRecord(m)})
		for _, r := range diag.Reasons {
			for _, x := range s.rules {
				plain = plain || x.key == r.PolicyID && !x.ask
			}
		}
		return bool(yes) && len(diag.Errors) == 0, plain || len(diag.Errors) > 0
	}
	if yes, plain := run(false); yes {
		return Allow
	} else if plain {
		return Deny
	}
	if yes, _ := run(true); yes {
		return Ask
	}
	return Deny
}
