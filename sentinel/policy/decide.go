// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/doorward/doorward/internal/wire"
)

// Verdict is what a decision comes to.
type Verdict string

// Verdicts. The words are also those of wire.ListMethod.
const (
	Allow Verdict = "allow"
	Ask   Verdict = "ask"
	Deny  Verdict = "deny"
)

// Decision is the answer to a call.
type Decision struct {
	Verdict  Verdict
	Code     wire.Code // with ask and deny
	Reason   string    // one clause, without the names of files: it may go to the caller
	Next     string    // with ask and deny: what the caller can do
	Policies []string  // what decided, with its place: `policy.toml:12 github issue-create = "ask"`; for persons
	Grant    string    // id of the grant that turned ask into allow; its use is to be counted
	Misses   []Miss    // with ask: grants of this connector and method that do not cover the call, and why
}

// Miss is a grant that was looked at and does not fit.
type Miss struct {
	Grant string
	Why   string
}

// Decide judges a call: by the policies alone first; where they ask, by the policies with approval, since what would
// be denied even then is denied now; and where that would be allowed, by the grants.
func (s *Set) Decide(c *Call, grants []wire.Grant) Decision {
	d := s.judge(c)
	if d.Verdict != Ask {
		return d
	}
	for _, pass := range []bool{false, true} { // one that is used up by this call only where no other covers it
		for i := range grants {
			g := &grants[i]
			if g.Connector != c.Connector.Vendor || g.Method != c.Method.Name || counted(g) != pass {
				continue
			}
			ok, why := s.Covers(g, c)
			if ok {
				return Decision{Verdict: Allow, Grant: g.ID, Reason: "a grant covers it",
					Policies: append([]string{"grant " + g.ID + " " + Sentence(g, c.Method)}, d.Policies...)}
			}
			d.Misses = append(d.Misses, Miss{g.ID, why})
		}
	}
	return d
}

// judge is Decide by the policies alone.
func (s *Set) judge(c *Call) Decision {
	if c.Connector == nil || c.Method == nil {
		return deny(wire.CodeUnknownMethod, "no such method")
	}
	ms := s.slices[c.Connector.Vendor][c.Method.Name]
	switch {
	case c.site != nil && c.site.request != nil:
		ms = s.request
	case c.site != nil:
		ms = s.connect
	}
	if ms == nil {
		return deny(wire.CodeUnknownMethod, "no such method is installed")
	}
	facts := s.context(ms, c)
	verdict, by := s.evaluate(ms, c, facts, false)
	if verdict != Ask {
		return s.decision(c, verdict, by)
	}
	if again, last := s.evaluate(ms, c, facts, true); again != Allow {
		if again == Ask { // an ask that approval does not answer
			again = Deny
		}
		return s.decision(c, again, last)
	}
	return s.decision(c, Ask, by)
}

// evaluate runs the engine once and returns the policies that decided. A policy that could not be evaluated decides
// for deny, whatever the others say.
func (s *Set) evaluate(ms *methodSlice, c *Call, facts types.RecordMap, approved bool) (Verdict, []outcome) {
	facts[factApproved] = types.Boolean(approved)
	account := cedar.NewEntityUID(typeAccount, types.String(c.Connector.Vendor+"/"+c.Account))
	parents := types.NewEntityUIDSet(cedar.NewEntityUID(typeConnector, types.String(c.Connector.Vendor)))
	if c.site != nil {
		account, parents = cedar.NewEntityUID(typeSite, types.String(c.Account)), c.site.parent
	}
	yes, diag := cedar.Authorize(ms.rules, &world{ms.entities, account, parents}, cedar.Request{
		Principal: cedar.NewEntityUID(typeCell, types.String(c.Cell)),
		Action:    ms.action,
		Resource:  account,
		Context:   types.NewRecord(facts),
	})
	if len(diag.Errors) > 0 {
		var by []outcome
		for _, e := range diag.Errors {
			by = append(by, outcome{ms.rules.find(e.PolicyID), e.Message})
		}
		return Deny, by
	}
	verdict := Ask
	var by, plain []outcome
	for _, r := range diag.Reasons {
		o := outcome{rule: ms.rules.find(r.PolicyID)}
		by = append(by, o)
		if !o.rule.ask {
			plain = append(plain, o)
		}
	}
	switch {
	case bool(yes):
		verdict = Allow
	case len(by) == 0 || len(plain) > 0:
		verdict, by = Deny, plain
	}
	return verdict, by
}

// outcome is a policy that decided, or that could not be evaluated.
type outcome struct {
	rule *rule
	err  string
}

// world is the entities of one call: the action and its group, made at load, and the account in its connector, or the site
// in its sets.
type world struct {
	actions types.EntityMap
	account types.EntityUID
	parents types.EntityUIDSet
}

// Get makes world a types.EntityGetter.
func (w *world) Get(uid types.EntityUID) (types.Entity, bool) {
	if e, ok := w.actions[uid]; ok {
		return e, true
	}
	if uid == w.account {
		return types.Entity{UID: uid, Parents: w.parents}, true
	}
	return types.Entity{}, false
}

// decision puts what the engine found into words.
func (s *Set) decision(c *Call, v Verdict, by []outcome) Decision {
	d := Decision{Verdict: v}
	var why []string
	for _, o := range by {
		d.Policies = append(d.Policies, o.rule.String())
		switch {
		case o.err != "":
			d.Policies[len(d.Policies)-1] += ": cannot be evaluated: " + o.err
			why = append(why, "a policy cannot be evaluated for these arguments")
		default:
			why = append(why, o.rule.says)
		}
		if v != Allow && (d.Code == "" || o.rule.code != wire.CodeNeedsApproval) {
			d.Code = o.rule.code
		}
		if o.err != "" {
			d.Code = wire.CodeNotAllowed
		}
	}
	d.Reason = strings.Join(why, "; ")
	switch v {
	case Ask:
		d.Next = "wait for a person to decide"
	case Deny:
		if len(by) == 0 {
			d.Code, d.Reason = wire.CodeNotAllowed, "no policy permits it"
			if c.site != nil && c.site.Name == "" {
				d.Reason = "it is an address, and only names are asked about"
			}
		}
		d.Next = "do something else; a person can change the policy"
	}
	return d
}

func deny(code wire.Code, reason string) Decision {
	return Decision{Verdict: Deny, Code: code, Reason: reason, Next: "see connector list"}
}
