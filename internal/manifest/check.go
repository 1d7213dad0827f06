// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// Each check returns what is wrong in words for the person who writes a manifest, and "" where nothing is.

// parseHost reads `example.org`, `*.example.org`, each with `:port` behind it or without, which is 443. Letters may be in any case.
func parseHost(s string) (Host, string) {
	if strings.ContainsAny(s, "/@?#") {
		return Host{}, "is more than a host: leave scheme, user and path out"
	}
	name, digits, ported := strings.Cut(s, ":")
	h := Host{Port: 443}
	if ported {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 || digits != strconv.FormatUint(n, 10) {
			return Host{}, "has no port of 1 to 65535 behind its colon"
		}
		h.Port = uint16(n)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }) {
		return Host{}, "has letters outside of ASCII; write it as it stands in the DNS, as xn--…"
	}
	h.Name, h.Below = strings.CutPrefix(strings.ToLower(name), "*.")
	labels := strings.Split(h.Name, ".")
	last := labels[len(labels)-1]
	_, ip := netip.ParseAddr(h.Name)
	switch {
	case strings.Contains(h.Name, "*"):
		return Host{}, "has a * that is not the whole first label, as in *.example.org"
	case ip == nil || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x"):
		return Host{}, "is an address; a credential goes to a name"
	case len(labels) < 2:
		return Host{}, "is not a whole name, as example.org"
	case len(h.Name) > 253:
		return Host{}, "is longer than 253 bytes"
	}
	for _, l := range labels {
		for i := 0; i < len(l); i++ {
			if c := l[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return Host{}, fmt.Sprintf("has %q; a host is of a-z, 0-9, - and dots, without a final dot", c)
			}
		}
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return Host{}, "has a label that is empty, too long, or begins or ends with -"
		}
	}
	return h, ""
}

var kinds = []string{"header", "basic", "query", "path"}

// checkPlacement refuses what cannot be meant. Which headers are never a place for a credential authd and egress hold to.
func checkPlacement(p *wire.Placement) string {
	token := func(s string) bool {
		return s != "" && len(s) <= 64 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
	}
	switch {
	case p.Kind == "":
		return "[placement] says by kind where the credential stands: " + strings.Join(kinds, ", ")
	case !contains(kinds, p.Kind):
		return fmt.Sprintf("no kind of placement %q%s", clip(p.Kind), meant(p.Kind, kinds))
	case (p.Kind == "header" || p.Kind == "query") && !token(p.Name):
		return "name is that of the " + map[string]string{"header": "header", "query": "parameter"}[p.Kind] +
			" that carries the credential, of letters, digits, -, _ and dots"
	case p.Name != "" && p.Kind != "header" && p.Kind != "query":
		return "name belongs to the placements header and query"
	case p.Prefix != "" && p.Kind != "header" && p.Kind != "path":
		return "prefix belongs to the placements header and path"
	case p.User != "" && p.Kind != "basic":
		return "user belongs to the placement basic"
	case strings.Contains(p.User, ":") || !isText(p.User): // empty: it is named with the account
		return "user is the user name that goes before the credential, of printable text without a colon"
	}
	for i := 0; i < len(p.Prefix); i++ {
		if c := p.Prefix[i]; c < ' ' || c >= 0x7f || len(p.Prefix) > 64 || p.Kind == "path" && !unreserved(c) {
			return "prefix is what stands before the credential, as \"Bearer \", in ASCII"
		}
	}
	return ""
}

func (o *Model) check() (key, why string) {
	if len(o.Models) == 0 || len(o.Models) > 64 {
		return "models", "models names 1 to 64 models that may be asked, each whole or with a * at its end"
	}
	for _, s := range o.Models {
		if s == "" || !isText(s) || strings.Contains(s[:len(s)-1], "*") {
			return "models", fmt.Sprintf("no model is %q: a * stands at the end", clip(s))
		}
	}
	if o.MaxTokens < 0 || o.MaxTokens > 1<<40 {
		return "max-tokens", "max-tokens is a number of tokens, 0 for as many as the provider has"
	}
	for _, s := range o.ServerTools {
		if s == "" || !isText(s) || len(o.ServerTools) > 64 {
			return "server-tools", "server-tools names at most 64 tools by their types at the provider"
		}
	}
	if known := []string{"anthropic", "openai", "google"}; o.Refusal != "" && !contains(known, o.Refusal) {
		return "refusal", fmt.Sprintf("no shape of refusals %q%s", clip(o.Refusal), meant(o.Refusal, known))
	}
	return "", ""
}

var methods = []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"}

// check holds a route to what it may say, and fills in its reach.
func (r *Route) check(m *Manifest) (key, why string) {
	if r.Name == "" || len(r.Name) > 64 || strings.Trim(r.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "name", "a route has a name of 1 to 64 of a-z, 0-9 and -"
	}
	wrong := func(key, format string, a ...any) (string, string) {
		return key, "route " + r.Name + ": " + fmt.Sprintf(format, a...)
	}
	if len(r.Methods) == 0 || len(r.Methods) > len(methods) {
		return wrong("methods", "methods lists HTTP's methods, as [\"GET\"]")
	}
	for _, s := range r.Methods {
		if !contains(methods, s) {
			return wrong("methods", "no method %q%s", clip(s), meant(strings.ToUpper(s), methods))
		}
	}
	if why := checkPattern(r.Path, m.Placement.Kind == "path", m.Placement.Prefix); why != "" {
		return wrong("path", "path %q: %s", clip(r.Path), why)
	}
	for k, v := range r.Query {
		if k == "" || !isText(k) || !isText(v) || strings.ContainsAny(k+v, "[;") || Override(k) || len(r.Query) > 16 ||
			m.Placement.Kind == "query" && strings.EqualFold(k, m.Placement.Name) {
			return wrong("query", "the parameter %q cannot be held to a value", clip(k))
		}
		for o := range r.Query {
			if o != k && strings.EqualFold(o, k) {
				return wrong("query", "the parameters %q and %q are one to some servers", k, o)
			}
		}
	}
	if key, why := r.checkOperation(m); why != "" {
		return wrong(key, "%s", why)
	}
	if !contains(classes, r.Class) {
		return wrong("class", "no class %q%s", clip(r.Class), meant(r.Class, classes))
	}
	if r.Reach == "" {
		if r.Reach = "public"; r.Class == Read {
			r.Reach = "none"
		}
	}
	if !contains(reaches, r.Reach) {
		return wrong("reach", "no reach %q%s", clip(r.Reach), meant(r.Reach, reaches))
	}
	return r.checkClass()
}

// checkOperation: at most one thing says what the request must do besides, with the methods that it comes by.
func (r *Route) checkOperation(m *Manifest) (key, why string) {
	by := methods
	n := 0
	has := func(yes bool, name string, with ...string) {
		if yes {
			n++
			key, by = name, with
		}
	}
	has(r.GraphQL != "", "graphql", "GET", "HEAD", "POST")
	has(r.JSONRPC != nil, "jsonrpc", "POST")
	has(r.Git != "", "git", "GET", "POST")
	has(r.WebSocket, "websocket", "GET")
	has(r.Model, "model", "POST")
	graphql, git := []string{"query", "mutation", "subscription"}, []string{"fetch", "push", "delete"}
	switch {
	case n > 1:
		return key, "only one of graphql, jsonrpc, git, websocket and model says what a route is about"
	case r.GraphQL != "" && !contains(graphql, r.GraphQL):
		return key, fmt.Sprintf("no operation of GraphQL %q%s", clip(r.GraphQL), meant(r.GraphQL, graphql))
	case r.Git != "" && !contains(git, r.Git):
		return key, fmt.Sprintf("git does no %q%s", clip(r.Git), meant(r.Git, git))
	case r.JSONRPC != nil && (len(r.JSONRPC) == 0 || len(r.JSONRPC) > 256):
		return key, "jsonrpc lists 1 to 256 methods"
	case r.Model && m.Model == nil:
		return key, "there is no [model] that says what may be asked for"
	}
	for _, s := range r.JSONRPC {
		if s == "" || !isText(s) {
			return key, fmt.Sprintf("no method of JSON-RPC is %q", clip(s))
		}
	}
	for _, s := range r.Methods {
		if !slices.Contains(by, s) {
			return "methods", s + " is no method that " + key + " comes by; there are " + strings.Join(by, ", ")
		}
	}
	return "", ""
}

// checkClass refuses a class that cannot be meant: a slip there would let changes go unasked.
func (r *Route) checkClass() (key, why string) {
	what := ""
	switch {
	case r.GraphQL == "mutation", r.GraphQL == "subscription" && slices.Contains(r.Methods, "GET"):
		what = "a " + r.GraphQL
	case r.Git == "push" || r.Git == "delete":
		what = "git's " + r.Git
	case r.WebSocket:
		what = "a WebSocket, which sends what nobody reads,"
	default:
		for _, s := range r.Methods {
			if s == "PUT" || s == "PATCH" || s == "DELETE" {
				what = s
			}
		}
	}
	if what != "" && r.Class == Read {
		return "class", "route " + r.Name + ": " + what + " is no read"
	}
	if r.Git == "delete" && r.Class != Destructive {
		return "class", "route " + r.Name + ": deleting a ref is destructive"
	}
	return "", ""
}

// checkPattern holds a route's path to its one form. With a placement in the path the surrogate stands in it, once.
func checkPattern(p string, placed bool, prefix string) string {
	plain := p
	if strings.Contains(p, "?") {
		return "a query does not stand in path but in query, as query = {state = \"open\"}"
	}
	if placed {
		if strings.Count(p, wire.SurrogateMark) != 1 || !slices.Contains(strings.Split(p, "/"), prefix+wire.SurrogateMark) {
			return "the credential stands in the path, so the route has one segment " + prefix + wire.SurrogateMark
		}
		plain = strings.Replace(plain, wire.SurrogateMark, "x", 1)
	}
	parts := strings.Split(plain, "/")
	for i, part := range parts {
		before, rest, hole := strings.Cut(part, "{")
		if !hole {
			if strings.Contains(part, "*") && (part != "**" || i != len(parts)-1) {
				return "a * stands for nothing but as the last segment **; one segment is {x}"
			}
			continue
		}
		name, behind, closed := strings.Cut(rest, "}")
		if !closed || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" || strings.Contains(behind, "{") {
			return "a segment has one {x} at most, with a name of a-z, 0-9, - and _"
		}
		if name == "surrogate" {
			return "{surrogate} stands in the path where the placement is path"
		}
		parts[i] = before + "x" + behind
	}
	plain = strings.Join(parts, "/")
	c, err := Path(plain)
	if err != nil {
		return err.Error()
	}
	if c != plain || strings.Contains(plain, "%2F") {
		return "it is not in its canonical form, which would be " + c
	}
	return ""
}
