// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// ErrQuery is wrapped by every refusal of a query.
var ErrQuery = errors.New("a query that can be read in more than one way")

// overrides are headers and query parameters by which frameworks let a request have another method, path or host than it says,
// as wire.Spelling has them.
var overrides = []string{"-method", "-httpmethod", "x-http-method", "x-http-method-override", "x-method-override", "x-method",
	"x-http-verb-override", "x-tunneled-method", "x-http-host-override", "x-host"}

// forwards begin headers by which a proxy tells what a request was before it; servers behind one believe them. Those of harmless say
// who asked, and how.
var (
	forwards = []string{"x-forwarded-", "x-original-", "x-rewrite-", "x-envoy-original-"}
	harmless = []string{"x-forwarded-for", "x-forwarded-proto", "x-forwarded-port"}
)

// Override says that a header of that name gives a request another method, path or host than its own in servers that know it. A request
// with such a header must not leave.
func Override(header string) bool {
	name := wire.Spelling(header)
	return name == "forwarded" || overriding(name)
}

func overriding(name string) bool {
	return slices.Contains(overrides, name) || !slices.Contains(harmless, name) &&
		slices.ContainsFunc(forwards, func(begin string) bool { return strings.HasPrefix(name, begin) })
}

// Match finds the route of a request: of several, the one whose class is the worst, and nil where it is none that the
// manifest names. The error is of a request that servers could read in different ways, which must not leave either.
func (m *Manifest) Match(q *wire.RequestReq) (*Route, error) {
	if err := canonical(q.Path); err != nil {
		return nil, err
	}
	params, err := parseQuery(q.Query)
	if err != nil {
		return nil, err
	}
	if !m.Covers(q.Name, q.Port) || q.Clear && !m.rest {
		return nil, nil // a credential never goes in the clear
	}
	var worst *Route
	for _, path := range readings(q.Path) {
		r, err := m.matchOne(q, path, params)
		if err != nil {
			return nil, err
		}
		if r == nil && m.rest {
			r = change(q.Method)
		}
		if r == nil {
			return nil, nil
		}
		if worst == nil || worse(r, worst) {
			worst = r
		}
	}
	return worst, nil
}

// matchOne is Match of one reading of the path.
func (m *Manifest) matchOne(q *wire.RequestReq, path string, params []param) (*Route, error) {
	if slices.Contains(q.Does, wire.Unreadable) {
		return nil, nil
	}
	named := make([]bool, len(q.Does))
	// A server that knows no case in paths, or takes one with a last slash for the same, may have this one for near.
	var worst, near *Route
	for i := range m.Routes {
		r := &m.Routes[i]
		exact := fits(r.Path, path)
		if !slices.Contains(r.Methods, q.Method) || r.WebSocket != q.Upgrade || !exact && !fits(loose(r.Path), loose(path)) {
			continue
		}
		best, about := &worst, func() bool { return r.Model == (q.Model != nil) && r.names(q.Does, named) }
		if !exact { // what it does was not read: it may be what the route is about
			best, about = &near, func() bool { return true }
		}
		ok, err := r.queryFits(params, m.Placement.Name)
		if err != nil {
			return nil, err
		}
		if !ok || !about() || r.Class == Read && r.GraphQL == "" && mutates(params) {
			continue
		}
		if *best == nil || worse(r, *best) {
			*best = r
		}
	}
	if slices.Contains(named, false) {
		return nil, nil // an operation that no route names
	}
	if worst != nil && near != nil && worse(near, worst) {
		return near, nil
	}
	return worst, nil
}

// loose is a path or pattern as the servers with the fewest differences have it.
func loose(path string) string {
	if path = strings.ToLower(path); len(path) > 1 {
		return strings.TrimSuffix(path, "/")
	}
	return path
}

// names says whether the route is about what the request does, and marks what it names of that.
func (r *Route) names(does []string, named []bool) bool {
	if r.GraphQL == "" && r.JSONRPC == nil && r.Git == "" {
		return true
	}
	found := false
	for i, d := range does {
		if r.namesOne(d) {
			found, named[i] = true, true
		}
	}
	return found
}

func (r *Route) namesOne(does string) bool {
	kind, what, _ := strings.Cut(does, " ")
	switch {
	case kind == "graphql" && r.GraphQL != "":
		return what == r.GraphQL
	case kind == "jsonrpc" && r.JSONRPC != nil:
		return slices.Contains(r.JSONRPC, what)
	case kind == "git" && r.Git != "":
		switch {
		case what == "fetch":
			return r.Git == "fetch"
		case strings.HasPrefix(what, "push create "), strings.HasPrefix(what, "push update "):
			return r.Git == "push"
		case strings.HasPrefix(what, "push delete "):
			return r.Git == "delete"
		}
	}
	return false
}

// param is one parameter of a query, decoded.
type param struct{ name, value string }

// parseQuery reads a query as HTML forms write it. An empty one has none.
func parseQuery(q string) ([]param, error) {
	if q == "" {
		return nil, nil
	}
	if len(q) > MaxPath {
		return nil, fmt.Errorf("more than %d bytes: %w", MaxPath, ErrQuery)
	}
	var out []param
	for _, pair := range strings.Split(q, "&") {
		for i := 0; i < len(pair); i++ {
			if c := pair[i]; c <= ' ' || c >= 0x7f || c == '#' {
				return nil, fmt.Errorf("a byte that must be percent-encoded: %w", ErrQuery)
			}
		}
		k, v, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(k)
		if err != nil {
			return nil, fmt.Errorf("a %% without two hexadecimal digits: %w", ErrQuery)
		}
		value, err := url.QueryUnescape(v)
		if err != nil {
			return nil, fmt.Errorf("a %% without two hexadecimal digits: %w", ErrQuery)
		}
		if by := overridden(name, pair); by != "" {
			return nil, fmt.Errorf("the parameter %q gives it another method or address in some servers: %w", clip(by), ErrQuery)
		}
		out = append(out, param{name, value})
	}
	return out, nil
}

// overridden is what of a parameter gives its request another method or address, also where a server parts parameters at a semicolon.
func overridden(name, pair string) string {
	if overriding(wire.Spelling(name)) {
		return name
	}
	for part := range strings.SplitSeq(pair, ";") {
		k, _, _ := strings.Cut(part, "=")
		if k, err := url.QueryUnescape(k); err == nil && overriding(wire.Spelling(k)) {
			return k
		}
	}
	return ""
}

// queryFits holds a query to what the route says of it. A parameter that a route names must stand there once and in one
// spelling: which of two a server takes is not known, nor whether it parts them by a semicolon.
func (r *Route) queryFits(params []param, credential string) (bool, error) {
	if len(r.Query) == 0 && !r.QueryOnly {
		return true, nil
	}
	seen := map[string]string{}
	for _, p := range params {
		if strings.Contains(p.name, ";") || strings.Contains(p.value, ";") {
			return false, fmt.Errorf("a semicolon: %w", ErrQuery)
		}
		bare, _, _ := strings.Cut(strings.ToLower(p.name), "[") // a[]=1 and A=1 are a to some
		name := ""
		for k := range r.Query {
			if strings.ToLower(k) == bare {
				name = k
			}
		}
		if name == "" {
			if r.QueryOnly && (p.name != credential || p.value != wire.SurrogateMark) {
				return false, nil
			}
			continue
		}
		if _, twice := seen[name]; twice || p.name != name {
			return false, fmt.Errorf("the parameter %q twice or in another spelling: %w", name, ErrQuery)
		}
		seen[name] = p.value
	}
	for k, v := range r.Query {
		if got, ok := seen[k]; !ok || got != v {
			return false, nil
		}
	}
	return true, nil
}

// mutates says that a query may be a GraphQL document that is no query. The words cannot be written otherwise there, so
// that it looks for no more than them errs to one side.
func mutates(params []param) bool {
	for _, p := range params {
		if strings.EqualFold(p.name, "query") && strings.Contains(p.value, "{") &&
			(strings.Contains(p.value, "mutation") || strings.Contains(p.value, "subscription")) {
			return true
		}
	}
	return false
}
