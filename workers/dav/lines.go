// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// The libraries read for display. For a change they would not do: written back, their cards and calendars lose the
// order, the escapes or the parameters of what they do not know. So a body that builds on another is edited line by
// line, and every line that no argument names stays as it is.

// block is a component: its lines in their order, and those within it.
type block struct {
	name  string
	lines []line
	kids  []*block
}

// line is one content line (RFC 5545 section 3.1, RFC 6350 section 3.3).
type line struct {
	name   string // upper case, with the group of a vCard in front
	params []param
	value  string // as it stands
}

type param struct {
	name   string // upper case
	values []string
}

var errLines = errors.New("what the server holds has a line that cannot be kept as it is")

// readLines reads one component that fills b.
func readLines(b []byte) (*block, error) {
	if !measured(b) || !utf8.Valid(b) {
		return nil, errLines
	}
	var flat []string
	for raw := range bytes.Lines(bytes.TrimPrefix(b, []byte("\ufeff"))) {
		s := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
		switch {
		case s == "":
		case s[0] == ' ' || s[0] == '\t':
			if len(flat) == 0 {
				return nil, errLines
			}
			flat[len(flat)-1] += s[1:]
		default:
			flat = append(flat, s)
		}
	}
	top := &block{}
	open := []*block{top}
	for _, s := range flat {
		l, err := readLine(s)
		if err != nil {
			return nil, err
		}
		in := open[len(open)-1]
		switch l.name {
		case "BEGIN":
			if in == top && len(top.kids) > 0 {
				return nil, errLines
			}
			k := &block{name: strings.ToUpper(l.value)}
			in.kids = append(in.kids, k)
			open = append(open, k)
		case "END":
			if in == top || in.name != strings.ToUpper(l.value) {
				return nil, errLines
			}
			open = open[:len(open)-1]
		default:
			if in == top {
				return nil, errLines
			}
			in.lines = append(in.lines, l)
		}
	}
	if len(open) != 1 || len(top.kids) != 1 {
		return nil, errLines
	}
	return top.kids[0], nil
}

func readLine(s string) (line, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return line{}, errLines
	}
	i := strings.IndexAny(s, ";:")
	if i <= 0 {
		return line{}, errLines
	}
	l := line{name: strings.ToUpper(s[:i])}
	s = s[i:]
	for s[0] == ';' {
		eq := strings.IndexByte(s, '=')
		if eq < 2 || strings.ContainsAny(s[1:eq], `;:,"`) {
			return line{}, errLines
		}
		p := param{name: strings.ToUpper(s[1:eq])}
		s = s[eq+1:]
		for {
			var v string
			if strings.HasPrefix(s, `"`) {
				end := strings.IndexByte(s[1:], '"')
				if end < 0 {
					return line{}, errLines
				}
				v, s = s[1:1+end], s[2+end:]
			} else {
				end := strings.IndexAny(s, `;:,"`)
				if end < 0 {
					return line{}, errLines
				}
				v, s = s[:end], s[end:]
			}
			p.values = append(p.values, v)
			if !strings.HasPrefix(s, ",") {
				break
			}
			s = s[1:]
		}
		l.params = append(l.params, p)
		if s == "" {
			return line{}, errLines
		}
	}
	if s[0] != ':' {
		return line{}, errLines
	}
	l.value = s[1:]
	return l, nil
}

// foldAt is how long a written line is at most, in bytes.
const foldAt = 75

func (b *block) write(w *bytes.Buffer) {
	fold(w, "BEGIN:"+b.name)
	for i := range b.lines {
		fold(w, b.lines[i].String())
	}
	for _, k := range b.kids {
		k.write(w)
	}
	fold(w, "END:"+b.name)
}

func (b *block) bytes() []byte {
	var w bytes.Buffer
	b.write(&w)
	return w.Bytes()
}

func (l *line) String() string {
	var s strings.Builder
	s.WriteString(l.name)
	for _, p := range l.params {
		s.WriteString(";" + p.name + "=")
		for i, v := range p.values {
			if i > 0 {
				s.WriteByte(',')
			}
			if strings.ContainsAny(v, ";:,") {
				v = `"` + v + `"`
			}
			s.WriteString(v)
		}
	}
	s.WriteString(":" + l.value)
	return s.String()
}

// fold writes a line in pieces, never within a character.
func fold(w *bytes.Buffer, s string) {
	room := foldAt
	for len(s) > room {
		n := room
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		w.WriteString(s[:n] + "\r\n ")
		s, room = s[n:], foldAt-1
	}
	w.WriteString(s + "\r\n")
}

// get is the first line of that name.
func (b *block) get(name string) *line {
	for i := range b.lines {
		if b.lines[i].name == name {
			return &b.lines[i]
		}
	}
	return nil
}

func (b *block) has(name string) bool { return b.get(name) != nil }

func (b *block) drop(names ...string) {
	b.lines = slices.DeleteFunc(b.lines, func(l line) bool { return slices.Contains(names, l.name) })
}

// set puts l where the first line of its name stands, or at the end, and drops others of that name.
func (b *block) set(l line) {
	i := slices.IndexFunc(b.lines, func(x line) bool { return x.name == l.name })
	if i < 0 {
		b.lines = append(b.lines, l)
		return
	}
	b.lines[i] = l
	rest := slices.DeleteFunc(slices.Clone(b.lines[i+1:]), func(x line) bool { return x.name == l.name })
	b.lines = append(b.lines[:i+1], rest...)
}

func (l *line) param(name string) string {
	for _, p := range l.params {
		if p.name == name && len(p.values) > 0 {
			return p.values[0]
		}
	}
	return ""
}

func (l *line) setParam(name, value string) {
	l.params = slices.DeleteFunc(slices.Clone(l.params), func(p param) bool { return p.name == name })
	l.params = append(l.params, param{name, []string{value}})
}

func (b *block) clone() *block {
	c := &block{name: b.name}
	for _, l := range b.lines {
		l.params = slices.Clone(l.params)
		c.lines = append(c.lines, l)
	}
	for _, k := range b.kids {
		c.kids = append(c.kids, k.clone())
	}
	return c
}

// plainLine is a line without parameters.
func plainLine(name, value string) line { return line{name: name, value: value} }

// textLine is a line that holds a text.
func textLine(name, text string) line { return plainLine(name, escapeText(text)) }

var textEscapes = strings.NewReplacer("\r\n", `\n`, "\r", `\n`, "\n", `\n`, `\`, `\\`, ";", `\;`, ",", `\,`)

func escapeText(s string) string { return textEscapes.Replace(s) }
