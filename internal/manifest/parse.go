// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/doorward/doorward/internal/wire"
)

// Problem is one fault of a manifest.
type Problem struct {
	Line, Col int // from 1; 0 where the fault is of the file as a whole
	Text      string
}

func (p *Problem) Error() string { return p.In("manifest") }

// In is Error with the name of the file.
func (p *Problem) In(file string) string {
	if p.Line == 0 {
		return file + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", file, p.Line, p.Col, p.Text)
}

// file is a manifest as TOML has it.
type file struct {
	About     string   `toml:"about"`
	Hosts     []string `toml:"hosts"`
	Setting   string   `toml:"setting"`
	Placement struct {
		Kind   string `toml:"kind"`
		Name   string `toml:"name"`
		Prefix string `toml:"prefix"`
		User   string `toml:"user"`
	} `toml:"placement"`
	Route []fileRoute `toml:"route"`
	Model *struct {
		Models      []string `toml:"models"`
		MaxTokens   int64    `toml:"max-tokens"`
		ServerTools []string `toml:"server-tools"`
		Refusal     string   `toml:"refusal"`
	} `toml:"model"`
}

type fileRoute struct {
	Name      string            `toml:"name"`
	Methods   []string          `toml:"methods"`
	Path      string            `toml:"path"`
	Query     map[string]string `toml:"query"`
	QueryOnly bool              `toml:"query-only"`
	GraphQL   string            `toml:"graphql"`
	JSONRPC   []string          `toml:"jsonrpc"`
	Git       string            `toml:"git"`
	WebSocket bool              `toml:"websocket"`
	Model     bool              `toml:"model"`
	Class     string            `toml:"class"`
	Reach     string            `toml:"reach"`
}

// keys are those of each table. TOML's decoder takes a key in any case of its letters; here there is one spelling of each, so
// that nothing stands in a file that is not in force.
var keys = map[string][]string{
	"":          {"about", "hosts", "setting", "placement", "route", "model"},
	"placement": {"kind", "name", "prefix", "user"},
	"route": {"name", "methods", "path", "query", "query-only", "graphql", "jsonrpc", "git", "websocket", "model",
		"class", "reach"},
	"model": {"models", "max-tokens", "server-tools", "refusal"},
}

// kindOf has the kinds of the values that are not text, by key.
var kindOf = map[string]unstable.Kind{
	"hosts": unstable.Array, "route.methods": unstable.Array, "route.jsonrpc": unstable.Array,
	"model.models": unstable.Array, "model.server-tools": unstable.Array,
	"route.query-only": unstable.Bool, "route.websocket": unstable.Bool, "route.model": unstable.Bool,
	"model.max-tokens": unstable.Integer,
	"placement":        unstable.InlineTable, "model": unstable.InlineTable,
	"route": unstable.InlineTable, "route.query": unstable.InlineTable,
}

// inWords is what a value of a kind is called.
var inWords = map[unstable.Kind]string{unstable.String: "text in quotes", unstable.Array: "a list of text, as [\"a\", \"b\"]",
	unstable.Bool: "true or false", unstable.Integer: "a whole number", unstable.InlineTable: "a table"}

const (
	maxOpen = 32  // brackets open at once
	maxWord = 200 // runes of any text
)

// Parse reads a manifest of at most MaxBytes. The error, a *Problem, says where and what is wrong, and there is no manifest
// then.
func Parse(b []byte) (*Manifest, error) {
	if err := shallow(b); err != nil {
		return nil, err
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some editors begin a file with it
	var whole map[string]any                  // finds what is no TOML, before locate tells of keys and kinds
	if err := decode(b, &whole); err != nil {
		return nil, err
	}
	at, err := locate(b)
	if err != nil {
		return nil, err
	}
	var f file
	if err := decode(b, &f); err != nil {
		return nil, err
	}
	m, err := f.manifest(at)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func decode(b []byte, to any) error {
	err := toml.Unmarshal(b, to)
	var d *toml.DecodeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &d):
		line, col := d.Position()
		return &Problem{line, col, strings.TrimPrefix(d.Error(), "toml: ")}
	}
	return &Problem{Text: err.Error()}
}

// shallow refuses text that is too long, no UTF-8, or would drive a recursive parser deep. It counts brackets in strings and
// comments too, so it may refuse what would be harmless, never the reverse.
func shallow(b []byte) error {
	switch {
	case len(b) > MaxBytes:
		return &Problem{Text: fmt.Sprintf("%d bytes, at most %d", len(b), MaxBytes)}
	case !utf8.Valid(b):
		return &Problem{Text: "it is not UTF-8"}
	}
	open := 0
	for i, c := range b {
		switch c {
		case '[', '{':
			if open++; open > maxOpen {
				return &Problem{bytes.Count(b[:i], []byte("\n")) + 1, 1, fmt.Sprintf("more than %d open brackets", maxOpen)}
			}
		case ']', '}':
			open = max(0, open-1)
		}
	}
	return nil
}

// places is where each key stands, by its path: `placement.kind`, `route 3.path`. A table stands at its header.
type places map[string]unstable.Position

func (at places) problem(path, format string, a ...any) error {
	// What is missing is told where its table begins.
	p, ok := at[path]
	for !ok && path != "" {
		path, _, _ = cutLast(path)
		p, ok = at[path]
	}
	return &Problem{p.Line, p.Column, fmt.Sprintf(format, a...)}
}

func cutLast(path string) (before, last string, found bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// locate finds every key of a file that decodes, and refuses those that a manifest does not have.
func locate(b []byte) (places, error) {
	l := locator{at: places{}}
	l.p.Reset(b)
	for l.p.NextExpression() {
		e := l.p.Expression()
		var err error
		switch e.Kind {
		case unstable.ArrayTable:
			if words, _ := l.words(e.Key()); len(words) == 1 && words[0] == "route" {
				l.routes++
			}
			err = l.header(e)
		case unstable.Table:
			err = l.header(e)
		case unstable.KeyValue:
			err = l.key(l.table, e)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := l.p.Error(); err != nil {
		return nil, &Problem{Text: err.Error()}
	}
	return l.at, nil
}

type locator struct {
	p      unstable.Parser
	table  []string
	routes int
	at     places
}

func (l *locator) words(it unstable.Iterator) (words []string, first unstable.Position) {
	for it.Next() {
		n := it.Node()
		if words == nil {
			first = l.p.Shape(n.Raw).Start
		}
		words = append(words, string(n.Data))
	}
	return words, first
}

func (l *locator) header(e *unstable.Node) error {
	words, at := l.words(e.Key())
	l.table = words
	if err := l.note(words, at); err != nil {
		return err
	}
	name := strings.Join(words, ".")
	if e.Kind == unstable.ArrayTable && name != "route" {
		return &Problem{at.Line, at.Column, fmt.Sprintf("[[%s]]: write one [%s]", name, name)}
	}
	return kindIs(words, unstable.InlineTable, at)
}

// kindIs refuses a value of another kind than its key has.
func kindIs(path []string, kind unstable.Kind, at unstable.Position) error {
	want, ok := kindOf[strings.Join(path, ".")]
	if !ok {
		want = unstable.String
	}
	if kind == want {
		return nil
	}
	return &Problem{at.Line, at.Column, clip(path[len(path)-1]) + " wants " + inWords[want]}
}

func (l *locator) key(table []string, e *unstable.Node) error {
	words, at := l.words(e.Key())
	path := append(append([]string{}, table...), words...)
	if err := l.note(path, at); err != nil {
		return err
	}
	v := e.Value()
	if len(path) == 1 && path[0] == "route" {
		return &Problem{at.Line, at.Column, "write each route as [[route]]"}
	}
	if v.Raw.Length > 0 {
		at = l.p.Shape(v.Raw).Start
	}
	if err := kindIs(path, v.Kind, at); err != nil {
		return err
	}
	if v.Kind == unstable.Array {
		for it := v.Children(); it.Next(); {
			if it.Node().Kind != unstable.String {
				return kindIs(path, unstable.Invalid, at)
			}
		}
	}
	if v.Kind == unstable.InlineTable {
		for it := v.Children(); it.Next(); {
			if err := l.key(path, it.Node()); err != nil {
				return err
			}
		}
	}
	return nil
}

// note writes down where a key stands, once it is one that there is.
func (l *locator) note(path []string, at unstable.Position) error {
	table := ""
	name := ""
	for i, w := range path {
		known, ok := keys[table]
		if !ok || i > 1 { // below route.query names are free
			break
		}
		if !contains(known, w) {
			return &Problem{at.Line, at.Column, fmt.Sprintf("there is no key %q here%s", clip(w), meant(w, known))}
		}
		if table = w; i == 0 {
			name = w
			if w == "route" {
				name = fmt.Sprintf("route %d", max(l.routes-1, 0))
			}
		}
	}
	if len(path) > 2 && (path[0] != "route" || path[1] != "query") {
		return &Problem{at.Line, at.Column, fmt.Sprintf("there is no key %q here", clip(path[2]))}
	}
	if len(path) > 1 {
		name += "." + strings.Join(path[1:], ".")
	}
	if _, ok := l.at[name]; !ok {
		l.at[name] = at
	}
	return nil
}

func contains(list []string, s string) bool { return rank(list, s) >= 0 }

// manifest holds what was decoded to what a manifest may say.
func (f *file) manifest(at places) (*Manifest, error) {
	m := &Manifest{About: f.About, Setting: cmp.Or(f.Setting, settings[1])}
	if f.About == "" || !isText(f.About) {
		return nil, at.problem("about", "about says in %d letters at most, on one line, what this is for", maxWord)
	}
	if !contains(settings, m.Setting) {
		return nil, at.problem("setting", "no setting %q%s", clip(m.Setting), meant(m.Setting, settings))
	}
	if len(f.Hosts) == 0 || len(f.Hosts) > MaxHosts {
		return nil, at.problem("hosts", "hosts names 1 to %d hosts that the credential may go to", MaxHosts)
	}
	for i, s := range f.Hosts {
		h, why := parseHost(s)
		switch {
		case why != "":
			return nil, at.problem("hosts", "%q %s", clip(s), why)
		case i == 0 && h.Below:
			return nil, at.problem("hosts", "%q stands first: the first host is one by its whole name, where the account lives", clip(s))
		}
		for _, o := range m.Hosts {
			if o == h {
				return nil, at.problem("hosts", "%q twice", clip(s))
			}
		}
		m.Hosts = append(m.Hosts, h)
	}
	p := f.Placement
	m.Placement = wire.Placement{Kind: p.Kind, Name: p.Name, Prefix: p.Prefix, User: p.User}
	if why := checkPlacement(&m.Placement); why != "" {
		return nil, at.problem("placement", "%s", why)
	}
	if f.Model != nil {
		m.Model = &Model{Models: f.Model.Models, MaxTokens: f.Model.MaxTokens, ServerTools: f.Model.ServerTools, Refusal: f.Model.Refusal}
		if key, why := m.Model.check(); why != "" {
			return nil, at.problem("model."+key, "%s", why)
		}
	}
	if len(f.Route) == 0 || len(f.Route) > MaxRoutes {
		return nil, at.problem("", "a manifest has 1 to %d routes", MaxRoutes)
	}
	for i := range f.Route {
		r := Route(f.Route[i])
		if key, why := r.check(m); why != "" {
			return nil, at.problem(fmt.Sprintf("route %d.%s", i, key), "%s", why)
		}
		for j := range m.Routes {
			if m.Routes[j].Name == r.Name {
				return nil, at.problem(fmt.Sprintf("route %d.name", i), "a second route %q", r.Name)
			}
		}
		m.Routes = append(m.Routes, r)
	}
	return m, nil
}

// isText says that s is printable, on one line, and not too long: it stands on a person's card.
func isText(s string) bool {
	return utf8.RuneCountInString(s) <= maxWord && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
