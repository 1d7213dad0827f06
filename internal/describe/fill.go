// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// Call is what templates are filled from.
type Call struct {
	Values   Values
	Files    []wire.File
	Base     wire.Base
	Also     []string    // the account's second hosts
	Mark     string      // random, unique to the call; stands in what it makes
	ETag     string      // of the base read, with its quotes
	Prepared wire.Digest // of the prepared body
	Unix     int64       // seconds: when the call was allowed; a Settle looks from then on
}

// Mark forms the text that a "marked" binding appends to a value: an HTML comment, which Markdown does not show.
func Mark(mark string) string { return "\n\n<!-- doorward:" + mark + " -->" }

// Fill makes the requests that a call of m may send. sentinel fills an envelope with it and the worker its requests,
// so that they are equal to the byte unless the worker wants otherwise. Entries whose condition does not hold are
// left out.
func (m *Method) Fill(c *Call) ([]wire.Entry, error) {
	var out []wire.Entry
	for i := range m.Entries {
		e := &m.Entries[i]
		if !e.When.holds(c.Values) {
			continue
		}
		w, err := e.fill(m, c)
		if err != nil {
			return nil, fmt.Errorf("fill %s of %s: %w", e.Name, m.Name, err)
		}
		out = append(out, *w)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("fill %s: no request fits these arguments", m.Name)
	}
	return out, nil
}

func (c *Cond) holds(v Values) bool {
	switch {
	case c == nil:
		return true
	case c.Is != "":
		return v.One(c.Arg) == c.Is
	default:
		return (len(v[c.Arg]) > 0) == c.Has
	}
}

// NeedsBase says whether p's base must be read for these values.
func (p *Prepare) NeedsBase(v Values) bool { return p.Base != "" && p.When.holds(v) }

func (e *Entry) fill(m *Method, c *Call) (*wire.Entry, error) {
	w := &wire.Entry{Name: e.Name, Method: e.Method, AnyPath: e.AnyPath, Uses: max(1, e.Uses),
		Credential: e.Credential, Follow: e.Follow, MaxIn: e.MaxIn,
		Scheme: c.Base.Scheme, Host: c.Base.Host, Port: c.Base.Port}
	if e.Follow != "" {
		w.Also = c.Also
	}
	if e.Host != "" {
		w.Scheme, w.Host, w.Port = "https", e.Host, 443
	}
	var err error
	if e.Follow == "" {
		if w.Path, err = m.path(e.Path, c); err != nil {
			return nil, err
		}
	}
	if w.Query, err = m.matches(e.Query, c); err != nil {
		return nil, err
	}
	if w.Header, err = m.matches(e.Header, c); err != nil {
		return nil, err
	}
	if e.Body == nil {
		return w, nil
	}
	w.Body.Media = e.Body.Media
	switch b := e.Body; {
	case b.Prepared:
		w.Body.SHA256 = c.Prepared
	case b.XML != "":
		x, err := m.XML(b.XML, c)
		if err != nil {
			return nil, err
		}
		w.Body.SHA256 = wire.Sum([]byte(x))
	case b.File != "":
		f, err := c.file(b.File)
		if err != nil {
			return nil, err
		}
		w.Body.File = f
	default:
		w.Body.JSON = []wire.Leaf{}
		for _, l := range b.JSON {
			leaves, err := m.leaves(l, c)
			if err != nil {
				return nil, err
			}
			w.Body.JSON = append(w.Body.JSON, leaves...)
		}
	}
	return w, nil
}

func (c *Call) file(arg string) (*wire.FileBody, error) {
	for _, f := range c.Files {
		if f.Arg == arg {
			return &wire.FileBody{SHA256: f.SHA256, Size: f.Size}, nil
		}
	}
	return nil, fmt.Errorf("no file for %s", arg)
}

// path fills a path template and percent-encodes what its arguments bring.
func (m *Method) path(t string, c *Call) (string, error) {
	var s strings.Builder
	err := expand(t, func(name, _ string) error {
		switch name {
		case "base":
			s.WriteString(c.Base.Path)
			return nil
		case "mark":
			s.WriteString(c.Mark)
			return nil
		}
		a, _ := m.Arg(name)
		v := c.Values.One(name)
		if v == "" {
			return fmt.Errorf("--%s: missing", name)
		}
		paths := []string{TypeRepo, TypePath, TypeHref, TypeFolder}
		if !slices.Contains(paths, a.Type) && strings.ContainsAny(v, `/\%;`) {
			return &ArgError{name, "may not hold / \\ % or ;"}
		}
		s.WriteString(EscapePath(v))
		return nil
	}, func(text string) { s.WriteString(text) })
	return s.String(), err
}

// EscapePath percent-encodes what may not stand in a path (RFC 3986 section 3.3) and leaves slashes.
func EscapePath(p string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,=:@/"
	var s strings.Builder
	for i := range len(p) {
		if strings.IndexByte(plain, p[i]) >= 0 {
			s.WriteByte(p[i])
		} else {
			fmt.Fprintf(&s, "%%%02X", p[i])
		}
	}
	return s.String()
}

func (m *Method) matches(in []Match, c *Call) ([]wire.Match, error) {
	var out []wire.Match
	for _, q := range in {
		v, ok, err := m.bound(q.Bind, c)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, wire.Match{Name: q.Name, Values: v})
		}
	}
	return out, nil
}

// bound is the text that a binding stands for; not ok where its argument has no value.
func (m *Method) bound(b Bind, c *Call) ([]string, bool, error) {
	switch {
	case b.Since:
		return []string{time.Unix(c.Unix, 0).Add(-sinceBefore).UTC().Format(time.RFC3339)}, true, nil
	case b.ETag:
		if !isETag(c.ETag) { // "*" would let the change through whatever stands there now
			return nil, false, fmt.Errorf("the server gave no ETag to hold the change to")
		}
		return []string{c.ETag}, true, nil
	case b.Tmpl != "":
		missing := false
		var s strings.Builder
		err := expand(b.Tmpl, func(name, format string) error {
			switch name {
			case "base":
				s.WriteString(c.Base.Path)
			case "mark":
				s.WriteString(c.Mark)
			default:
				v := c.Values.One(name)
				missing = missing || v == ""
				v, err := formatted(v, format)
				s.WriteString(v)
				return err
			}
			return nil
		}, func(t string) { s.WriteString(t) })
		return []string{s.String()}, !missing, err
	case b.Arg == "":
		return []string{b.Const}, true, nil
	}
	v := slices.Clone(c.Values[b.Arg])
	if len(v) == 0 {
		if b.Format == "marked" { // the mark goes along even where the text is empty
			return []string{Mark(c.Mark)}, true, nil
		}
		return nil, false, nil
	}
	if b.Map != nil {
		for _, p := range b.Map {
			if p.From == v[0] {
				return []string{p.To}, true, nil
			}
		}
		return nil, false, nil
	}
	switch b.Format {
	case "marked":
		return []string{v[0] + Mark(c.Mark)}, true, nil
	case "join":
		return []string{strings.Join(v, ",")}, true, nil
	}
	return v, true, nil
}

// isETag says whether s is one entity tag (RFC 9110 section 8.8.3).
func isETag(s string) bool {
	in, ok := strings.CutPrefix(strings.TrimPrefix(s, "W/"), `"`)
	in, end := strings.CutSuffix(in, `"`)
	return ok && end && !strings.ContainsFunc(in, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' })
}

// formatted writes a time or date in UTC basic form (RFC 5545 section 3.3.5) for format "ical".
func formatted(v, format string) (string, error) {
	if format == "" || v == "" {
		return v, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC().Format("20060102T150405Z"), nil
		}
	}
	return "", fmt.Errorf("%q is no time", v)
}

// XML fills a body template; values are escaped, so they stay text.
func (m *Method) XML(t string, c *Call) (string, error) {
	var s strings.Builder
	err := expand(t, func(name, format string) error {
		v := c.Values.One(name)
		if name == "mark" {
			v = c.Mark
		}
		v, err := formatted(v, format)
		if err != nil {
			return err
		}
		xmlEscape.WriteString(&s, v)
		return nil
	}, func(text string) { s.WriteString(text) })
	return s.String(), err
}

var xmlEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;", "\r", "&#13;")

// sinceBefore makes up for clocks that differ.
const sinceBefore = 5 * time.Minute

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1") // RFC 6901 section 3

// leaves fills a template that may stand for several fields.
func (m *Method) leaves(l Leaf, c *Call) ([]wire.Leaf, error) {
	var out []wire.Leaf
	seen := map[string]bool{}
	below := func(name string) (string, error) {
		if name == "" || seen[name] {
			return "", &ArgError{l.Bind.Arg, fmt.Sprintf("the name %q is empty or stands twice", name)}
		}
		seen[name] = true
		return l.Pointer + "/" + pointerEscape.Replace(name), nil
	}
	switch l.Bind.As {
	case "map":
		for _, pair := range c.Values[l.Bind.Arg] {
			name, value, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, &ArgError{l.Bind.Arg, "write it as name=value"}
			}
			p, err := below(name)
			if err != nil {
				return nil, err
			}
			out = append(out, wire.Leaf{Pointer: p, Value: AppendString(nil, value)})
		}
		return out, nil
	case "texts":
		for _, f := range c.Files {
			if f.Arg != l.Bind.Arg {
				continue
			}
			p, err := below(f.Name)
			if err != nil {
				return nil, err
			}
			text := &wire.FileBody{SHA256: f.SHA256, Size: f.Size}
			out = append(out, wire.Leaf{Pointer: p + "/content", Text: text})
		}
		return out, nil
	}
	leaf, ok, err := m.leaf(l, c)
	if err != nil || !ok {
		return nil, err
	}
	return []wire.Leaf{leaf}, nil
}

func (m *Method) leaf(l Leaf, c *Call) (wire.Leaf, bool, error) {
	if l.Bind.As == "base64" {
		f, err := c.file(l.Bind.Arg)
		return wire.Leaf{Pointer: l.Pointer, Base64: f}, err == nil, err
	}
	v, ok, err := m.bound(l.Bind, c)
	if err != nil || !ok {
		return wire.Leaf{}, false, err
	}
	w := wire.Leaf{Pointer: l.Pointer}
	switch l.Bind.As {
	case "int", "bool":
		if v[0] != "true" && v[0] != "false" && (v[0] == "" || strings.Trim(v[0], "0123456789") != "") {
			return wire.Leaf{}, false, fmt.Errorf("%s: %q is no %s", l.Pointer, v[0], l.Bind.As)
		}
		w.Value = []byte(v[0]) // canonical text is canonical JSON
	case "list":
		w.Value = append(w.Value, '[')
		for i, s := range v {
			if i > 0 {
				w.Value = append(w.Value, ',')
			}
			w.Value = AppendString(w.Value, s)
		}
		w.Value = append(w.Value, ']')
	default:
		w.Value = AppendString(nil, v[0])
	}
	return w, true, nil
}

// Canonical is the form that approvals are over, RFC 8785 JSON of the whole call. Keys stand in their order; int
// arguments within 2^53 are numbers, bools are booleans, all else is text.
func (m *Method) Canonical(c *Connector, account string, generation int64, v Values) []byte {
	b := []byte(`{"account":`)
	b = AppendString(b, account)
	b = append(b, `,"arguments":{`...)
	names := make([]string, 0, len(v))
	for n := range v {
		names = append(names, n)
	}
	slices.Sort(names)
	for i, n := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(AppendString(b, n), ':')
		a, _ := m.Arg(n)
		if a.Repeat > 1 {
			b = append(b, '[')
		}
		for j, s := range v[n] {
			if j > 0 {
				b = append(b, ',')
			}
			if a.Type == TypeBool || a.Type == TypeInt && len(s) <= 15 {
				b = append(b, s...)
			} else {
				b = AppendString(b, s)
			}
		}
		if a.Repeat > 1 {
			b = append(b, ']')
		}
	}
	b = append(b, `},"connector":`...)
	b = AppendString(b, c.Vendor)
	b = append(b, `,"description":"`...)
	b = hex.AppendEncode(b, c.digest[:])
	b = append(b, `","generation":`...)
	b = fmt.Appendf(b, "%d", generation)
	b = append(b, `,"method":`...)
	b = AppendString(b, m.Name)
	return append(b, '}')
}

// AppendString appends s as a JSON string in the one form of RFC 8785 section 3.2.2.2. s is valid UTF-8.
func AppendString(b []byte, s string) []byte {
	const hexes = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c < 0x20:
			b = append(b, `\u00`...)
			b = append(b, hexes[c>>4], hexes[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// SettleArgs are the arguments of the read that finds out whether a call of m ran, sorted by name.
func (m *Method) SettleArgs(c *Call) ([]wire.Arg, error) {
	if m.Settle == nil {
		return nil, fmt.Errorf("%s: nothing says how to find out whether it ran", m.Name)
	}
	var out []wire.Arg
	for _, a := range m.Settle.Args {
		v, ok, err := m.bound(a.Bind, c)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, wire.Arg{Name: a.Name, Values: v})
		}
	}
	slices.SortFunc(out, func(a, b wire.Arg) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
