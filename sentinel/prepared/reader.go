// SPDX-License-Identifier: Apache-2.0

package prepared

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of one object.
const (
	maxBytes  = 1 << 20
	maxLines  = 20_000
	maxDepth  = 4
	maxParams = 32 // of one line
	maxLine   = 75 // bytes, RFC 5545 section 3.1
)

// component is BEGIN to END.
type component struct {
	name  string
	props []property
	subs  []*component
}

// property is one content line, unfolded.
type property struct {
	name   string // upper case; of a card with its group in front
	params []parameter
	value  string // raw: escapes are not resolved
}

type parameter struct {
	name   string // upper case
	values []string
}

var errNotOne = errors.New("it is not one component from its first to its last line")

// read reads the one component that fills b. strict is for what a worker rendered: every line ends in CR LF and has at
// most 75 bytes, a fold is one space, names are in upper case, no line is empty. What a server holds may be looser, as
// long as it has one reading.
func read(b []byte, strict bool) (*component, error) {
	if len(b) > maxBytes {
		return nil, fmt.Errorf("%d bytes, at most %d", len(b), maxBytes)
	}
	if !utf8.Valid(b) {
		return nil, errors.New("not UTF-8")
	}
	lines, err := unfold(string(b), strict)
	if err != nil {
		return nil, err
	}
	var root *component
	var open []*component
	for _, s := range lines {
		p, err := parseLine(s, strict)
		if err != nil {
			return nil, err
		}
		switch {
		case p.name == "BEGIN":
			c := &component{name: strings.ToUpper(p.value)}
			if strict && c.name != p.value || len(p.params) > 0 || len(open) == maxDepth || root != nil && len(open) == 0 {
				return nil, errNotOne
			}
			if root == nil {
				root = c
			} else {
				in := open[len(open)-1]
				in.subs = append(in.subs, c)
			}
			open = append(open, c)
		case len(open) == 0:
			return nil, errNotOne
		case p.name == "END":
			if open[len(open)-1].name != strings.ToUpper(p.value) || strict && strings.ToUpper(p.value) != p.value ||
				len(p.params) > 0 {
				return nil, errNotOne
			}
			open = open[:len(open)-1]
		default:
			in := open[len(open)-1]
			in.props = append(in.props, p)
		}
	}
	if root == nil || len(open) > 0 {
		return nil, errNotOne
	}
	return root, nil
}

// unfold joins folded lines.
func unfold(s string, strict bool) ([]string, error) {
	var out []string
	if !strict {
		s = strings.TrimPrefix(s, "\ufeff")
	}
	for n := 0; s != ""; n++ {
		if n > maxLines {
			return nil, fmt.Errorf("more than %d lines", maxLines)
		}
		line, rest, ok := strings.Cut(s, "\n")
		if !ok && strict {
			return nil, errors.New("its last line does not end")
		}
		s = rest
		if strings.HasSuffix(line, "\r") {
			line = line[:len(line)-1]
		} else if strict {
			return nil, errors.New("a line does not end in CR LF")
		}
		if strict && (line == "" || len(line) > maxLine || line[0] == '\t' || !utf8.ValidString(line)) {
			return nil, errors.New("a line is empty, too long, or folded within a character")
		}
		switch {
		case line == "":
		case line[0] == ' ' || line[0] == '\t':
			if len(out) == 0 || strict && len(line) == 1 {
				return nil, errors.New("a fold continues nothing")
			}
			out[len(out)-1] += line[1:]
		default:
			out = append(out, line)
		}
	}
	return out, nil
}

// parseLine reads name *(";" param "=" value *("," value)) ":" value.
func parseLine(s string, strict bool) (property, error) {
	bad := func(what string) (property, error) { return property{}, fmt.Errorf("%s: %s", quoted(s), what) }
	for _, r := range s {
		if r < ' ' && r != '\t' || r == 0x7f || r == 0x2028 || r == 0x2029 || r == 0x85 {
			return bad("it has a control character")
		}
	}
	name, i := token(s, 0, true)
	if name == "" {
		return bad("it has no name")
	}
	p := property{name: strings.ToUpper(name)}
	if strict && p.name != name {
		return bad("its name is not in upper case")
	}
	for i < len(s) && s[i] == ';' {
		var q parameter
		q.name, i = token(s, i+1, false)
		if q.name == "" || i == len(s) || s[i] != '=' || len(p.params) == maxParams {
			return bad("a parameter cannot be read")
		}
		upper := strings.ToUpper(q.name)
		if strict && upper != q.name || slices.ContainsFunc(p.params, func(x parameter) bool { return x.name == upper }) {
			return bad("a parameter stands twice, or not in upper case")
		}
		q.name = upper
		for {
			i++ // = or ,
			end := i
			if i < len(s) && s[i] == '"' {
				n := strings.IndexByte(s[i+1:], '"')
				if n < 0 {
					return bad("a quote does not end")
				}
				q.values = append(q.values, s[i+1:i+1+n])
				end = i + n + 2
			} else {
				for end < len(s) && !strings.ContainsRune(`;:,"`, rune(s[end])) {
					end++
				}
				q.values = append(q.values, s[i:end])
			}
			i = end
			if i == len(s) || s[i] != ',' {
				break
			}
		}
		p.params = append(p.params, q)
	}
	if i == len(s) || s[i] != ':' {
		return bad("it has no value")
	}
	p.value = s[i+1:]
	return p, nil
}

// token is the name that begins at i: letters, digits and dashes, with one dot for a card's group.
func token(s string, i int, group bool) (string, int) {
	from := i
	for ; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			continue
		case c == '.' && group && i > from:
			group = false
			continue
		}
		break
	}
	return s[from:i], i
}

// key is what a property says, so that two that say the same have the same.
func (p *property) key() string {
	params := slices.Clone(p.params)
	slices.SortFunc(params, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	var s strings.Builder
	s.WriteString(p.name)
	for _, q := range params {
		s.WriteString(";" + q.name + "=\"" + strings.Join(q.values, `","`) + `"`)
	}
	s.WriteString(":" + p.value)
	return s.String()
}

// canon is all that a component says, the order of lines and of parts aside: two that say the same have the same.
func (c *component) canon() string {
	rows := make([]string, 0, len(c.props)+len(c.subs))
	for i := range c.props {
		rows = append(rows, c.props[i].key())
	}
	for _, s := range c.subs {
		rows = append(rows, "BEGIN:"+s.canon()) // no property has that name
	}
	slices.Sort(rows)
	return c.name + "\n" + strings.Join(rows, "\n") + "\nEND"
}

// parts counts a component and those within it.
func (c *component) parts() int {
	n := 1
	for _, s := range c.subs {
		n += s.parts()
	}
	return n
}

// id tells components of one name apart: events by their occurrence, zones by their name.
func (c *component) id() string {
	for _, name := range []string{"RECURRENCE-ID", "TZID"} {
		if p := c.get(name); p != nil {
			return p.value
		}
	}
	return ""
}

func (c *component) get(name string) *property {
	for i := range c.props {
		if c.props[i].name == name {
			return &c.props[i]
		}
	}
	return nil
}

// once is the only property of that name; nil where there is none, an error where there are more.
func (c *component) once(name string) (*property, error) {
	n := 0
	for i := range c.props {
		if c.props[i].name == name {
			n++
		}
	}
	if n > 1 {
		return nil, fmt.Errorf("%s has %s more than once", c.name, name)
	}
	return c.get(name), nil
}

func (c *component) remove(names ...string) {
	c.props = slices.DeleteFunc(c.props, func(p property) bool { return slices.Contains(names, p.name) })
}

// put makes p the only property of its name.
func (c *component) put(p property) {
	c.remove(p.name)
	c.props = append(c.props, p)
}

func (c *component) clone() *component {
	d := &component{name: c.name}
	for _, p := range c.props {
		p.params = slices.Clone(p.params)
		d.props = append(d.props, p)
	}
	for _, s := range c.subs {
		d.subs = append(d.subs, s.clone())
	}
	return d
}

func (p *property) param(name string) string {
	for _, q := range p.params {
		if q.name == name && len(q.values) == 1 {
			return q.values[0]
		}
	}
	return ""
}

func (p *property) with(name, value string) {
	p.params = slices.DeleteFunc(p.params, func(q parameter) bool { return q.name == name })
	p.params = append(p.params, parameter{name, []string{value}})
}

func simple(name, value string) property { return property{name: name, value: value} }

// inText writes a text as RFC 5545 section 3.3.11 and RFC 6350 section 3.4 do. Every kind of line break is one.
func inText(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\r':
			if i+1 < len(s) && s[i+1] == '\n' {
				i++
			}
			b.WriteString(`\n`)
		case '\n':
			b.WriteString(`\n`)
		case '\\', ';', ',':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// outText resolves the escapes of a text.
func outText(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			if s[i] == 'n' || s[i] == 'N' {
				b.WriteByte('\n')
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
