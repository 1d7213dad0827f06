// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Request is one request of a cell on a connection that is intercepted. Which route it is on says who classified it; everything
// else is as the cell's egress read it, and what is in its body only as far as Does says.
type Request struct {
	Target
	Clear     bool   // without TLS
	Surrogate string // name of the custom surrogate that was issued for its host; empty: a site that is read
	Setting   string // of the manifest that the surrogate was issued with; empty is AskBeforeChanges
	Route     string
	Class     string // describe.Read and its like
	Reach     string
	Method    string // of HTTP
	Path      string // canonical
	Query     string // as written
	Upgrade   bool   // it asks for WebSocket
	Does      []string
	Model     string // what model it asks for, where it asks for one
	Cell      string
	Session   string // empty where it is not known
	Attended  bool
	By        string
	Labels    []string
	Now       time.Time
}

// RequestCall is the request as a call, to be decided and explained like one: of the connector that the surrogate's name is, or
// SiteConnector, and the method that the route is.
func (s *Set) RequestCall(r *Request) *Call {
	of := *r
	r = &of
	r.Target.begins = wire.BeginsTLS
	if r.Clear {
		r.Target.begins = wire.BeginsHTTP
	}
	connector := r.Surrogate
	if connector == "" {
		connector = SiteConnector
		r.Target.begins = "" // a host that is read is read, see Reads
	}
	m := &describe.Method{Name: r.Route, Class: r.Class, Reach: r.Reach}
	call := &Call{Connector: &describe.Connector{Vendor: connector}, Method: m, Values: describe.Values{},
		Account: r.Target.String(), Cell: r.Cell, Session: r.Session, Attended: r.Attended, By: r.By, Labels: r.Labels, Now: r.Now,
		site: &site{Target: r.Target, intercepted: true, surrogate: r.Surrogate, request: r}}
	var lines []mark
	if r.Surrogate != "" {
		lines = s.surrogateLines(r.Surrogate, r.Route, r.Setting)
	}
	call.site.parent = s.siteEntities(r.Target, lines...)
	return call
}

func (r *Request) begins() string {
	if r.Clear {
		return wire.BeginsHTTP
	}
	return wire.BeginsTLS
}

// requestFacts are what the context of a request has besides facts: that of a connection, and what is asked for.
func requestFacts() []fact {
	text := func(of func(*Request) string) func(*Set, *Call) types.Value {
		return func(_ *Set, c *Call) types.Value { return types.String(of(c.site.request)) }
	}
	out := connectFacts()
	for i := range out {
		if out[i].name == factBegins {
			out[i].of = text((*Request).begins)
		}
	}
	return append(out,
		fact{"does", "Set<String>", func(_ *Set, c *Call) types.Value {
			var all []types.Value
			for _, d := range c.site.request.Does {
				all = append(all, types.String(d))
			}
			return types.NewSet(all...)
		}},
		fact{"model", "String", text(func(r *Request) string { return r.Model })},
		fact{"path", "String", text(func(r *Request) string { return r.Path })},
		fact{"query", "String", text(func(r *Request) string { return r.Query })},
		fact{"route", "String", text(func(r *Request) string { return r.Route })},
		fact{"upgrade", "Bool", func(_ *Set, c *Call) types.Value { return types.Boolean(c.site.request.Upgrade) }},
	)
}

// Words under which a grant of requests is held to one of them.
const (
	LimitMethod = "method"
	LimitPath   = "path"
	LimitQuery  = "query"
	LimitDoes   = "does"
	LimitModel  = "model"
)

// limitsOf are all limits of a grant of requests, in their order: exactly these, or it covers nothing.
func (r *Request) limitsOf() []wire.Limit {
	of := func(field, value string) wire.Limit {
		if value == "" {
			return wire.Limit{Field: field}
		}
		return wire.Limit{Field: field, Values: []string{value}}
	}
	method := r.Method
	if r.Upgrade {
		method += " and WebSocket"
	}
	does := slices.Clone(r.Does)
	slices.Sort(does)
	return []wire.Limit{of(factBegins, r.begins()), of(LimitMethod, method), of(LimitPath, r.Path), of(LimitQuery, r.Query),
		{Field: LimitDoes, Values: slices.Compact(does)}, of(LimitModel, r.Model)}
}

// requestLimits says why a request is outside the limits of a grant, or "". Every limit has to stand there, and equal what the
// request has: of a route that many methods and paths are on, a grant is for one.
func requestLimits(g *wire.Grant, r *Request) string {
	want := r.limitsOf()
	if len(g.Limits) != len(want) {
		return "it does not say for which request it is"
	}
	for i, l := range g.Limits {
		switch {
		case l.Field != want[i].Field || l.Max != 0:
			return "it does not say for which request it is"
		case !slices.Equal(l.Values, want[i].Values):
			return fmt.Sprintf("it is for %s %s", l.Field, orNone(l.Values))
		}
	}
	return ""
}

func orNone(values []string) string {
	if len(values) == 0 {
		return "none"
	}
	return strings.Join(values, ", ")
}

// PrefillRequest is the grant that an approval gives unless a person says another: that very request, once, in this session, or
// where that is not known for 12 hours; and while the caller has read what others wrote, for such a caller.
func (s *Set) PrefillRequest(c *Call) wire.Grant {
	g := wire.Grant{Connector: c.Connector.Vendor, Method: c.Method.Name, Account: c.Account, Cell: c.Cell, Session: c.Session,
		Kind: Session, Count: 1, Tainted: c.untrusted(), Limits: c.site.request.limitsOf()}
	if c.Session == "" {
		g.Kind, g.Until = Until, c.Now.Add(s.longest(Session, false)).Unix()
	}
	g.Sentence = RequestSentence(&g)
	return g
}

// ValidateRequest is Validate for a grant of requests: own is that of the card. How long it holds and for how many may be
// another; what it is for may not.
func (s *Set) ValidateRequest(g, own wire.Grant, sensitive bool, now time.Time) (wire.Grant, error) {
	fail := func(format string, a ...any) (wire.Grant, error) {
		return wire.Grant{}, fmt.Errorf("grant: "+format, a...)
	}
	same := len(g.Limits) == len(own.Limits)
	for i := 0; same && i < len(own.Limits); i++ {
		same = g.Limits[i].Field == own.Limits[i].Field && g.Limits[i].Max == 0 && slices.Equal(g.Limits[i].Values, own.Limits[i].Values)
	}
	switch {
	case g.Connector != own.Connector || g.Method != own.Method || g.Account != own.Account || g.Cell != own.Cell:
		return fail("it is for another request than the card")
	case !same || len(own.Limits) == 0:
		return fail("it is for the request of the card, whose limits stay as they are")
	case !nameOK(g.Cell):
		return fail("cell %q", g.Cell)
	case g.Count < 0 || g.Count > maxGrantCount:
		return fail("a count from 0, which is no limit, to %d", maxGrantCount)
	case g.Used != 0 || g.LastUse != 0 || g.Revoked != 0:
		return fail("a new one has not been used or revoked")
	}
	if err := s.validTime(&g, sensitive || g.Tainted, now); err != nil {
		return fail("%w", err)
	}
	g.Made = now.Unix()
	g.Sentence = RequestSentence(&g)
	return g, nil
}

// isRequest says whether a grant is one of requests: no connector's method has a limit of that name beside begins.
func isRequest(g *wire.Grant) bool {
	return len(g.Limits) > 2 && g.Limits[0].Field == factBegins && g.Limits[1].Field == LimitMethod
}

// RequestSentence is Sentence of a grant of requests.
func RequestSentence(g *wire.Grant) string {
	one := func(field string) string {
		for _, l := range g.Limits {
			if l.Field == field {
				return strings.Join(l.Values, ", ")
			}
		}
		return ""
	}
	var s strings.Builder
	path := one(LimitPath)
	if q := one(LimitQuery); q != "" {
		path += "?" + q
	}
	fmt.Fprintf(&s, "programs of cell %s may send %s %s%s", g.Cell, visible(one(LimitMethod)), visible(g.Account), visiblePath(path))
	if g.Connector != SiteConnector {
		fmt.Fprintf(&s, " with the surrogate %s", visible(g.Connector))
	}
	if one(factBegins) == wire.BeginsHTTP {
		s.WriteString(" in the clear")
	}
	if d := one(LimitDoes); d != "" {
		fmt.Fprintf(&s, ", which does %s", visible(d))
	}
	if m := one(LimitModel); m != "" {
		fmt.Fprintf(&s, ", of the model %s", visible(m))
	}
	switch { // a yes to a request is a grant of it, so there is none before that the grant would be one more than
	case g.Kind == Once:
		s.WriteString(", once")
	case g.Count == 0:
		s.WriteString(", any number of times")
		fallthrough
	default:
		writeKind(&s, g)
	}
	s.WriteString("; whatever is in it")
	if g.Tainted {
		s.WriteString("; also after it has read what others wrote")
	}
	return s.String()
}

func visiblePath(p string) string {
	if strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~@/+:=?&%!$'()*,") == "" {
		return p
	}
	return " " + fmt.Sprintf("%+q", p)
}
