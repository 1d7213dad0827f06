// SPDX-License-Identifier: Apache-2.0

// Package manifest reads the manifest of a custom connector: the hosts that a credential may go to, where it stands in a
// request, and the routes that may be asked for with it, each with the class that policy decides by. What no route names is
// refused. It also has the routes by which requests are read where no credential is: Sites.
//
// The agent in the cell chooses the request, and wants a write to pass for a read. So a request is matched only after
// everything in it that two servers could read in two ways is refused, a path that has two readings left must be allowed
// in both, and where several routes fit, the worst class counts. All of it is pure.
package manifest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// Classes of a route.
const (
	Read        = "read"
	Write       = "write"
	Destructive = "destructive"
)

// Bounds of a manifest.
const (
	MaxBytes  = 64 << 10
	MaxRoutes = 256
	MaxHosts  = 16
)

// Manifest is what a person issues a surrogate by. It is made by Parse and Sites only, and not changed then.
type Manifest struct {
	About     string
	Hosts     []Host
	Setting   string // ask-every-time, ask-before-changes or dont-ask
	Placement wire.Placement
	Routes    []Route
	Model     *Model

	rest bool // of Sites: what no route names is a change, not refused
}

// Host is a name and port that the credential may go to.
type Host struct {
	Name  string // canonical
	Below bool   // every name below Name, at any depth, and not Name itself
	Port  uint16
}

// Route is one kind of request.
type Route struct {
	Name    string
	Methods []string // empty in what Match returns for Sites' change
	// Path is a canonical pattern: `{x}` within a segment stands for one or more bytes of it, a last segment `**` for any rest.
	Path string
	// Query are parameters that must stand in the query once, with that value; others are free unless QueryOnly.
	Query     map[string]string
	QueryOnly bool
	// At most one of these says what the request must do besides.
	GraphQL   string   // query, mutation, subscription
	JSONRPC   []string // methods
	Git       string   // fetch; push creates and updates refs; delete is a push that deletes them
	WebSocket bool     // it is an upgrade
	Model     bool     // it asks a model, within Manifest.Model

	Class string
	Reach string // none, people, space, public: for the card
}

// Model bounds what may be asked of a model's provider.
type Model struct {
	Models      []string // exact, or with one * at the end
	MaxTokens   int64    // of one answer; 0: not bounded
	ServerTools []string // that the provider runs itself and that may be used, by its types
	Refusal     string   // whose error shape refusals have: anthropic, openai, google or empty
}

// String is the host as a manifest writes it, always with its port.
func (h Host) String() string {
	s := h.Name + ":" + strconv.Itoa(int(h.Port))
	if h.Below {
		return "*." + s
	}
	return s
}

func (h Host) covers(host string, port uint16) bool {
	if h.Port != port {
		return false
	}
	if h.Below {
		return len(host) > len(h.Name)+1 && strings.HasSuffix(host, "."+h.Name)
	}
	return host == h.Name
}

// Covers says whether the manifest is about that host, in its canonical form, and port.
func (m *Manifest) Covers(host string, port uint16) bool {
	return slices.ContainsFunc(m.Hosts, func(h Host) bool { return h.covers(host, port) })
}

// Base is where the account of this manifest lives: its first host, which is never a pattern.
func (m *Manifest) Base() wire.Base {
	return wire.Base{Scheme: "https", Host: m.Hosts[0].Name, Port: int(m.Hosts[0].Port)}
}

// Also are the further hosts, each as host:port or *.host:port.
func (m *Manifest) Also() []string {
	var out []string
	for _, h := range m.Hosts[1:] {
		out = append(out, h.String())
	}
	return out
}

// Account reads a manifest for the account that it needs: the hosts of the credential, each as host:port or *.host:port and the
// first no pattern, and the credential's place.
func Account(b []byte) (hosts []string, p wire.Placement, err error) {
	m, err := Parse(b)
	if err != nil {
		return nil, wire.Placement{}, err
	}
	return append([]string{m.Hosts[0].String()}, m.Also()...), m.Placement, nil
}

// Reads are the bodies that must be read before a request can be matched.
func (m *Manifest) Reads() []wire.Reading {
	var out []wire.Reading
	for i := range m.Routes {
		r := &m.Routes[i]
		as := ""
		switch {
		case r.GraphQL != "":
			as = wire.ReadGraphQL
		case r.JSONRPC != nil:
			as = wire.ReadJSONRPC
		case r.Model:
			as = wire.ReadModel
		default:
			continue
		}
		same := func(x wire.Reading) bool { return x.As == as && x.Path == r.Path && slices.Equal(x.Methods, r.Methods) }
		if !slices.ContainsFunc(out, same) {
			out = append(out, wire.Reading{Methods: slices.Clone(r.Methods), Path: r.Path, As: as})
		}
	}
	return out
}

// CheckModel holds what a request asks of a model's provider to the manifest. It returns nil where all of it may be.
func (m *Manifest) CheckModel(u *wire.ModelUse) *wire.Error {
	refuse := func(reason, next string) *wire.Error { return wire.Refuse(wire.CodeNotAllowed, reason, next) }
	const person = ", or ask the person to issue it with that in its manifest"
	switch {
	case m.Model == nil || u == nil:
		return refuse("what this request asks of a model could not be read", "send it as JSON, as the provider documents it")
	case !slices.ContainsFunc(m.Model.Models, func(p string) bool { return modelFits(p, u.Model) }):
		return refuse("the model "+strconv.Quote(clip(u.Model))+" is not among "+strings.Join(m.Model.Models, ", "),
			"ask for one of those"+person)
	case m.Model.MaxTokens > 0 && u.Most == 0:
		return refuse("the request does not say how many tokens its answer may have",
			"say at most "+strconv.FormatInt(m.Model.MaxTokens, 10)+person)
	case m.Model.MaxTokens > 0 && u.Most > m.Model.MaxTokens:
		return refuse("an answer of "+strconv.FormatInt(u.Most, 10)+" tokens is more than "+strconv.FormatInt(m.Model.MaxTokens, 10),
			"ask for less"+person)
	}
	for _, t := range u.Tools {
		if !slices.Contains(m.Model.ServerTools, t) {
			return refuse("the provider would run "+strconv.Quote(clip(t))+" itself, where nothing holds it back",
				"leave it out and use a tool of your own"+person)
		}
	}
	return nil
}

func modelFits(pattern, model string) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return len(model) > 0 && strings.HasPrefix(model, start)
	}
	return model == pattern
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

// Digest is of what the manifest means: of two that differ in comments and order of keys alone it is the same.
func (m *Manifest) Digest() wire.Digest {
	b, err := json.Marshal(m) // keys of maps come sorted
	if err != nil {
		panic("manifest: " + err.Error()) // it holds text, numbers and lists
	}
	return wire.Sum(append([]byte("doorward manifest 1\n"), b...))
}

// worse orders classes and reaches.
func worse(a, b *Route) bool {
	if x, y := rank(classes, a.Class), rank(classes, b.Class); x != y {
		return x > y
	}
	return rank(reaches, a.Reach) > rank(reaches, b.Reach)
}

var (
	classes  = []string{Read, Write, Destructive}
	reaches  = []string{"none", "people", "space", "public"}
	settings = []string{"ask-every-time", "ask-before-changes", "dont-ask"}
)

func rank(list []string, s string) int { return slices.Index(list, s) }
