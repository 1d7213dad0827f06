// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Names under which a connection stands where a call has its connector and method: in grants, in the record.
const (
	SiteConnector = "site"
	SiteMethod    = "connect"
)

const (
	actionConnect = "connect"
	actionRequest = "request" // one request on a connection that is intercepted
	factBegins    = "begins"  // also the one field that a grant of a site limits
)

// Connect is a connection that a cell wants. Who opened it the kernel says; the name is what the cell asked the resolver
// for, and what the connection begins with was read by the cell's egress.
type Connect struct {
	Target
	Begins   string // wire.BeginsTLS and its like
	Cell     string
	Session  string // empty where it is not known
	Attended bool
	By       string
	Labels   []string
	Now      time.Time
	// Surrogate is the custom surrogate that was issued into the cell for that host; empty: none. Its connections are
	// intercepted.
	Surrogate string
}

// site is what a Call is about that is a connection.
type site struct {
	Target
	parent      types.EntityUIDSet
	intercepted bool
	surrogate   string
	request     *Request // nil: a connection
}

// ConnectCall is the connection as a call, to be decided and explained like one. A spliced connection may carry anything,
// so for a caller that has read what others wrote it is a write that everyone may get to see; for others it is a read. So it is
// where connections are intercepted: what they carry is judged request by request.
func (s *Set) ConnectCall(c *Connect) *Call {
	of := *c
	c = &of
	c.Target.begins = c.Begins
	intercepted := c.Surrogate != "" || s.Reads(c.Target)
	m := &describe.Method{Name: SiteMethod, Class: describe.Read, Reach: describe.ReachNone}
	call := &Call{Connector: &describe.Connector{Vendor: SiteConnector}, Method: m, Values: describe.Values{},
		Account: c.Target.String(), Cell: c.Cell, Session: c.Session, Attended: c.Attended, By: c.By, Labels: c.Labels,
		Now: c.Now, site: &site{Target: c.Target, intercepted: intercepted, surrogate: c.Surrogate}}
	if call.untrusted() && !intercepted {
		m.Class, m.Reach = describe.Write, describe.ReachPublic
	}
	call.site.parent = s.siteEntities(c.Target)
	return call
}

// Intercepts says whether a connection (of ConnectCall) is intercepted where it is allowed.
func (c *Call) Intercepts() bool { return c.site.intercepted }

// siteEntities are what a site is in: its sets, the lines that speak of it, and further ones.
func (s *Set) siteEntities(t Target, lines ...mark) types.EntityUIDSet {
	sets, rules := s.siteParents(t)
	for _, m := range lines {
		rules = append(rules, m.ruleName())
	}
	var parents []types.EntityUID
	for _, name := range sets {
		parents = append(parents, cedar.NewEntityUID(typeSiteSet, types.String(name)))
	}
	for _, name := range rules {
		parents = append(parents, cedar.NewEntityUID(typeSiteRule, types.String(name)))
	}
	return types.NewEntityUIDSet(parents...)
}

// PrefillSite is the grant that an approval gives unless a person says another: this session, or where that is not known
// 12 hours, for this site and protocol; and while the caller has read what others wrote, for such a caller.
func (s *Set) PrefillSite(c *Call) wire.Grant {
	g := wire.Grant{Connector: SiteConnector, Method: SiteMethod, Account: c.Account, Cell: c.Cell, Session: c.Session,
		Kind: Session, Tainted: c.untrusted(), Limits: []wire.Limit{{Field: factBegins, Values: []string{c.site.begins}}}}
	if c.Session == "" {
		g.Kind, g.Until = Until, c.Now.Add(s.longest(Session, false)).Unix()
	}
	g.Sentence = Sentence(&g, nil)
	return g
}

// connectFacts are what the context of a connection has besides facts.
func connectFacts() []fact {
	text := func(of func(*site) string) func(*Set, *Call) types.Value {
		return func(_ *Set, c *Call) types.Value { return types.String(of(c.site)) }
	}
	yes := func(of func(*site) bool) func(*Set, *Call) types.Value {
		return func(_ *Set, c *Call) types.Value { return types.Boolean(of(c.site)) }
	}
	return []fact{
		{"address", "String", text(func(x *site) string {
			if x.Name != "" {
				return ""
			}
			return x.Addr.String()
		})},
		{factBegins, "String", text(func(x *site) string { return x.begins })},
		{"intercepted", "Bool", yes(func(x *site) bool { return x.intercepted })},
		{"name", "String", text(func(x *site) string { return x.Name })},
		{"port", "Long", func(_ *Set, c *Call) types.Value { return types.Long(c.site.Port) }},
		{"surrogate", "Bool", yes(func(x *site) bool { return x.surrogate != "" })},
	}
}

// appliesSite says whether a rule can decide on connections, or on requests. A forbid that names no action does; a permit has to
// name this one, so that none that was meant for calls opens the network.
func (r *rule) appliesSite(action string) bool {
	is := func(e types.EntityUID) bool { return e.Type == typeAction && string(e.ID) == action }
	switch a := r.policy.AST().Action.(type) {
	case ast.ScopeTypeEq:
		return is(a.Entity)
	case ast.ScopeTypeIn:
		return is(a.Entity)
	case ast.ScopeTypeInSet:
		return slices.ContainsFunc(a.Entities, is)
	default:
		return r.forbid()
	}
}

// cutSite makes the slice that connections, or requests, are judged by.
func (s *Set) cutSite(action string, facts []fact) *methodSlice {
	ms := &methodSlice{action: cedar.NewEntityUID(typeAction, types.String(action)), arguments: []*describe.Arg{}}
	ms.entities = types.EntityMap{ms.action: {UID: ms.action}}
	need := needs{facts: map[string]bool{}, arguments: map[string]bool{}}
	for _, r := range s.rules {
		if r.appliesSite(action) {
			ms.rules = append(ms.rules, r.sliced())
			need.of((*ast.Policy)(r.policy.AST()))
		}
	}
	for _, f := range facts {
		if need.facts[f.name] {
			ms.facts = append(ms.facts, f)
		}
	}
	return ms
}
