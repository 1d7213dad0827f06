// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// Lines say in words for a person's card what a manifest lets a cell do: who may get the credential, where it stands, and each
// route with its class, those that change something first. Whoever shows them makes strange letters visible.
func (m *Manifest) Lines() []string {
	var hosts []string
	for _, h := range m.Hosts {
		s := strings.TrimSuffix(h.String(), ":443")
		if h.Below {
			s += " (every name below it)"
		}
		hosts = append(hosts, s)
	}
	out := []string{"for: " + m.About, "the credential goes to: " + strings.Join(hosts, ", "), "it stands in: " + Place(m.Placement),
		"setting: " + m.Setting}
	if o := m.Model; o != nil {
		out = append(out, "models: "+strings.Join(o.Models, ", "),
			"tokens of an answer: "+orElse(o.MaxTokens, "as many as the provider has"),
			"tools that the provider runs itself: "+orNone(o.ServerTools))
	}
	for _, class := range []string{Destructive, Write, Read} {
		for i := range m.Routes {
			if r := &m.Routes[i]; r.Class == class {
				out = append(out, r.line())
			}
		}
	}
	if m.rest {
		return append(out, "all else is a "+Change+", a write")
	}
	return append(out, "all else is refused")
}

func orElse(n int64, none string) string {
	if n == 0 {
		return none
	}
	return fmt.Sprint("at most ", n)
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// Place says where a credential stands, as: the header Authorization, behind "Bot ".
func Place(p wire.Placement) string {
	behind := ""
	if p.Prefix != "" {
		behind = fmt.Sprintf(", behind %q", p.Prefix)
	}
	switch p.Kind {
	case "header":
		return "the header " + p.Name + behind
	case "basic":
		if p.User == "" {
			return "the header Authorization, as the password of a user that the account names"
		}
		return fmt.Sprintf("the header Authorization, as the password of user %q", p.User)
	case "query":
		return "the query parameter " + p.Name
	case "path":
		return "a segment of the path" + behind
	}
	return "no request"
}

// line is one route, as: write, seen by the public: message-post: POST /channels/{channel}/messages.
func (r *Route) line() string {
	var b strings.Builder
	b.WriteString(r.Class)
	if r.Class != Read || r.Reach != "none" {
		b.WriteString(", " + map[string]string{"none": "seen by nobody else", "people": "seen by people named in it",
			"space": "seen by members of a space", "public": "seen by anybody"}[r.Reach])
	}
	fmt.Fprintf(&b, ": %s: %s %s", r.Name, strings.Join(r.Methods, "/"), r.Path)
	var keys []string
	for k := range r.Query {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		fmt.Fprintf(&b, "%s%s=%s", map[bool]string{true: "?", false: "&"}[i == 0], k, r.Query[k])
	}
	if r.QueryOnly {
		b.WriteString(", no other parameter")
	}
	switch {
	case r.GraphQL != "":
		b.WriteString(", GraphQL " + r.GraphQL)
	case r.JSONRPC != nil:
		b.WriteString(", JSON-RPC " + strings.Join(r.JSONRPC, ", "))
	case r.Git != "":
		b.WriteString(", git " + r.Git)
	case r.WebSocket:
		b.WriteString(", a WebSocket")
	case r.Model:
		b.WriteString(", a question to a model")
	}
	return b.String()
}
