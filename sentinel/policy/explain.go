// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Explain says in lines for a person what would become of a call and what decides it.
func (s *Set) Explain(c *Call, grants []wire.Grant) []string {
	d := s.Decide(c, grants)
	what := fmt.Sprintf("%s %s, account %s", c.Connector.Vendor, c.Method.Name, c.Account)
	switch {
	case c.site != nil && c.site.request != nil:
		r := c.site.request
		what = fmt.Sprintf("%s %s%s, which is %s %s", r.Method, c.Account, r.Path, c.Connector.Vendor, c.Method.Name)
	case c.site != nil:
		what = "a connection to " + c.Account
	}
	out := []string{fmt.Sprintf("%s, for cell %s: %s", what, c.Cell, verdictWords(d.Verdict))}
	kind := fmt.Sprintf("it is a %s that reaches %s", c.Method.Class, reachWords(c.reach()))
	if c.sensitive() {
		kind += ", so it is sensitive"
	}
	switch {
	case c.site == nil || c.site.request != nil:
	case c.site.intercepted:
		kind = "it is intercepted: each of its requests is decided by itself"
		if c.site.surrogate != "" {
			kind += ", and carries the surrogate " + c.site.surrogate
		}
	default:
		kind = "it is carried unread, and counts as a read"
		if c.untrusted() {
			kind = "it is carried unread, and counts as a write that everyone sees, since the cell has read what others wrote"
		}
	}
	out = append(out, kind)
	if len(c.Labels) > 0 {
		out = append(out, "the caller carries the labels "+strings.Join(c.Labels, ", "))
	}
	for _, p := range d.Policies {
		out = append(out, "decided by "+p)
	}
	if len(d.Policies) == 0 {
		out = append(out, "decided by nothing: "+d.Reason)
	}
	l := s.levels[c.Connector.Vendor][c.Method.Name]
	if c.site != nil {
		l = s.siteLevel(c.site.Target)
	}
	if l.capped {
		out = append(out, fmt.Sprintf("%s would give more, but %s is the admin's limit", l.said, l.by))
	}
	for _, m := range d.Misses {
		out = append(out, fmt.Sprintf("grant %s does not cover it: %s", m.Grant, m.Why))
	}
	return out
}

func verdictWords(v Verdict) string {
	switch v {
	case Allow:
		return "goes"
	case Ask:
		return "asks a person"
	default:
		return "is denied"
	}
}

// reachWords says who sees what a call does; what is not known is everyone.
func reachWords(reach string) string {
	switch reach {
	case describe.ReachNone:
		return "nobody but the owner"
	case describe.ReachPeople:
		return "named people"
	case describe.ReachSpace:
		return "the members of a space"
	default:
		return "everyone"
	}
}

// List says for every method of a connector that is not off what a call by this caller would come to now, whatever
// its arguments: the method's worst case. Of c only the caller's side is used. Where it hangs on arguments, it is
// ask.
func (s *Set) List(vendor string, c Call, grants []wire.Grant) []wire.ListMethod {
	desc := (&form{descs: s.descs}).connector(vendor)
	if desc == nil {
		return nil
	}
	var out []wire.ListMethod
	for i := range desc.Methods {
		m := &desc.Methods[i]
		if s.Off(vendor, m.Name) {
			continue
		}
		c.Connector, c.Method, c.Values, c.Reach, c.Sensitive = desc, m, describe.Values{}, m.Reach, false
		out = append(out, wire.ListMethod{Name: m.Name, Ask: string(s.foresee(&c, grants))})
	}
	return out
}

// foresee is Decide for a call whose arguments are not there yet: a policy that needs one counts as asking, and so
// does a grant's limit that they may or may not be within.
func (s *Set) foresee(c *Call, grants []wire.Grant) Verdict {
	ms := s.slices[c.Connector.Vendor][c.Method.Name]
	if ms == nil {
		return Deny
	}
	facts := s.context(ms, c)
	first, by := s.evaluate(ms, c, facts, false)
	if first == Ask {
		first, by = s.evaluate(ms, c, facts, true)
		if first == Allow {
			first = Ask
		}
	}
	if first == Deny && len(by) > 0 && by[0].err != "" {
		return Ask
	}
	if first != Ask {
		return first
	}
	for i := range grants {
		g := grants[i]
		if len(g.Limits) == 0 {
			if ok, _ := s.Covers(&g, c); ok {
				return Allow
			}
		}
	}
	return first
}
