// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

var (
	types = []string{TypeString, TypeText, TypeInt, TypeBool, TypeEnum, TypeTime, TypeDate, TypeWhen, TypeZone,
		TypeEmail, TypeRepo, TypePath, TypeHref, TypeFolder, TypeHex, TypeName, TypeFile, TypeCursor}
	classes = []string{Read, Write, Destructive}
	reaches = []string{ReachNone, ReachPeople, ReachSpace, ReachPublic}
	roles   = []string{"", "recipient", "amount", "destination", "content"}
	verbs   = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "PROPFIND", "REPORT"}
	labels  = []string{wire.LabelUntrusted, wire.LabelPrivate}
)

func vendorName(s string) bool { return word(s, "") }
func methodName(s string) bool { return word(s, "-") }

// word says whether s is 1 to 32 of a-z, 0-9 and extra.
func word(s, extra string) bool {
	if len(s) == 0 || len(s) > 32 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte(extra, c) >= 0) {
			return false
		}
	}
	return true
}

// verify holds a description to its own rules: every name it uses is declared, every choice is one there is.
func (c *Connector) verify() error {
	fail := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrDescription, c.Vendor, fmt.Sprintf(format, a...))
	}
	if c.Format != Format {
		return fail("format %d, this version reads %d", c.Format, Format)
	}
	if !vendorName(c.Vendor) {
		return fail("vendor name %q", c.Vendor)
	}
	last := ""
	for i := range c.Methods {
		m := &c.Methods[i]
		if !methodName(m.Name) || m.Name <= last {
			return fail("method %q: names are [a-z0-9-]{1,32}, sorted, none twice", m.Name)
		}
		last = m.Name
		if err := m.verify(c); err != nil {
			return fail("%s: %s", m.Name, err)
		}
	}
	if m, ok := c.Method(c.Check); !ok || m.Class != Read {
		return fail("check %q is no read of it", c.Check)
	}
	return nil
}

func (m *Method) verify(c *Connector) error {
	if !slices.Contains(classes, m.Class) || !slices.Contains(reaches, m.Reach) {
		return fmt.Errorf("class %q, reach %q", m.Class, m.Reach)
	}
	if m.Summary == "" || strings.ContainsAny(m.Summary, "\r\n") {
		return fmt.Errorf("no one-line summary")
	}
	seen := map[string]bool{}
	for i := range m.Args {
		a := &m.Args[i]
		switch {
		case !methodName(a.Name) || seen[a.Name]:
			return fmt.Errorf("argument %q: names are [a-z0-9-]{1,32}, none twice", a.Name)
		case !slices.Contains(types, a.Type) || !slices.Contains(roles, a.Role):
			return fmt.Errorf("argument %s: type %q, role %q", a.Name, a.Type, a.Role)
		case (a.Type == TypeEnum) != (len(a.Enum) > 0):
			return fmt.Errorf("argument %s: an enum has values, and nothing else has", a.Name)
		case a.Label == "" || a.Help == "":
			return fmt.Errorf("argument %s: no label or help", a.Name)
		case a.Repeat < 0 || a.Min < 0 || a.Max < 0:
			return fmt.Errorf("argument %s: a bound is negative", a.Name)
		case a.Required && a.Default != "":
			return fmt.Errorf("argument %s: required and with a default", a.Name)
		}
		if a.Default != "" {
			if _, err := a.canon(a.Default); err != nil {
				return fmt.Errorf("argument %s: default: %w", a.Name, err)
			}
		}
		seen[a.Name] = true
	}
	for _, l := range m.Lower {
		if !slices.Contains(reaches, l.To) {
			return fmt.Errorf("lower to %q", l.To)
		}
		for _, n := range l.Empty {
			if !seen[n] {
				return fmt.Errorf("lower: no argument %q", n)
			}
		}
		if l.Private != "" && !seen[l.Private] {
			return fmt.Errorf("lower: no argument %q", l.Private)
		}
		if err := l.When.verify(seen); err != nil {
			return fmt.Errorf("lower: %w", err)
		}
	}
	for _, n := range m.Grant {
		if !seen[n] {
			return fmt.Errorf("grant field: no argument %q", n)
		}
	}
	for _, l := range m.Labels {
		if !slices.Contains(labels, l) {
			return fmt.Errorf("label %q", l)
		}
	}
	if len(m.Entries) == 0 {
		return fmt.Errorf("no entries")
	}
	names := map[string]bool{}
	for i := range m.Entries {
		e := &m.Entries[i]
		if !methodName(e.Name) || names[e.Name] {
			return fmt.Errorf("entry %q: names are [a-z0-9-]{1,32}, none twice", e.Name)
		}
		if err := e.verify(m, seen, names); err != nil {
			return fmt.Errorf("entry %s: %w", e.Name, err)
		}
		names[e.Name] = true
	}
	if p := m.Prepare; p != nil {
		if p.Kind != "icalendar" && p.Kind != "vcard" {
			return fmt.Errorf("prepare: kind %q", p.Kind)
		}
		if err := p.When.verify(seen); err != nil {
			return err
		}
		if p.Base != "" {
			b, ok := c.Method(p.Base)
			if !ok || b.Class != Read {
				return fmt.Errorf("prepare: base %q is no read", p.Base)
			}
			for _, pair := range p.Args {
				if _, ok := b.Arg(pair.From); !ok || !seen[pair.To] {
					return fmt.Errorf("prepare: argument %q from %q", pair.From, pair.To)
				}
			}
		}
	}
	if s := m.Settle; s != nil {
		r, ok := c.Method(s.Method)
		if !ok || r.Class != Read {
			return fmt.Errorf("settle: %q is no read", s.Method)
		}
		for _, a := range s.Args {
			if _, ok := r.Arg(a.Name); !ok {
				return fmt.Errorf("settle: %s has no argument %q", s.Method, a.Name)
			}
			if err := a.Bind.verify(seen); err != nil {
				return fmt.Errorf("settle: %w", err)
			}
		}
	}
	return nil
}

func (e *Entry) verify(m *Method, args, before map[string]bool) error {
	if !slices.Contains(verbs, e.Method) {
		return fmt.Errorf("HTTP method %q", e.Method)
	}
	if e.Uses < 0 || e.MaxIn < 0 {
		return fmt.Errorf("a bound is negative")
	}
	if e.Follow != "" && !before[e.Follow] {
		return fmt.Errorf("follows %q, which is no entry before it", e.Follow)
	}
	if e.Follow == "" && !strings.HasPrefix(e.Path, "/") && !strings.HasPrefix(e.Path, "{") {
		return fmt.Errorf("path %q", e.Path)
	}
	if e.Host != "" && e.Credential {
		return fmt.Errorf("a host other than the account's gets no credential")
	}
	if err := e.When.verify(args); err != nil {
		return err
	}
	if err := placeholders(e.Path, args); err != nil {
		return err
	}
	for _, q := range slices.Concat(e.Query, e.Header) {
		if q.Name == "" {
			return fmt.Errorf("a field without a name")
		}
		if err := q.Bind.verify(args); err != nil {
			return fmt.Errorf("%s: %w", q.Name, err)
		}
	}
	if b := e.Body; b != nil {
		n := 0
		for _, set := range []bool{b.XML != "", b.JSON != nil, b.File != "", b.Prepared} {
			if set {
				n++
			}
		}
		if n != 1 || b.Media == "" {
			return fmt.Errorf("a body has a media type and one form")
		}
		if b.Prepared && m.Prepare == nil {
			return fmt.Errorf("a prepared body in a method that prepares none")
		}
		if b.File != "" {
			if a, ok := m.Arg(b.File); !ok || a.Type != TypeFile {
				return fmt.Errorf("body: %q is no file argument", b.File)
			}
		}
		if err := placeholders(b.XML, args); err != nil {
			return err
		}
		for _, l := range b.JSON {
			if !strings.HasPrefix(l.Pointer, "/") {
				return fmt.Errorf("pointer %q", l.Pointer)
			}
			if err := l.Bind.verify(args); err != nil {
				return fmt.Errorf("%s: %w", l.Pointer, err)
			}
		}
	}
	return nil
}

func (c *Cond) verify(args map[string]bool) error {
	if c != nil && !args[c.Arg] {
		return fmt.Errorf("condition: no argument %q", c.Arg)
	}
	return nil
}

func (b *Bind) verify(args map[string]bool) error {
	n := 0
	for _, set := range []bool{b.Arg != "", b.ETag, b.Tmpl != "", b.Const != "", b.Since} {
		if set {
			n++
		}
	}
	if n > 1 {
		return fmt.Errorf("bound to more than one thing")
	}
	if b.Arg != "" && !args[b.Arg] {
		return fmt.Errorf("no argument %q", b.Arg)
	}
	if !slices.Contains([]string{"", "marked", "join"}, b.Format) {
		return fmt.Errorf("format %q", b.Format)
	}
	if !slices.Contains([]string{"", "string", "int", "bool", "list", "base64", "map", "texts"}, b.As) {
		return fmt.Errorf("as %q", b.As)
	}
	return placeholders(b.Tmpl, args)
}

// placeholders checks that every {x} of a template is an argument, base or mark.
func placeholders(t string, args map[string]bool) error {
	return expand(t, func(name, format string) error {
		if name != "base" && name != "mark" && !args[name] {
			return fmt.Errorf("template: no argument %q", name)
		}
		if format != "" && format != "ical" {
			return fmt.Errorf("template: format %q", format)
		}
		return nil
	}, nil)
}

// expand walks a template: hole is called for each {name} or {name:format}, text for what stands between.
func expand(t string, hole func(name, format string) error, text func(string)) error {
	for {
		i := strings.IndexByte(t, '{')
		if i < 0 {
			if text != nil {
				text(t)
			}
			return nil
		}
		j := strings.IndexByte(t[i:], '}')
		if j < 0 {
			return fmt.Errorf("template: { without }")
		}
		if text != nil {
			text(t[:i])
		}
		name, format, _ := strings.Cut(t[i+1:i+j], ":")
		if err := hole(name, format); err != nil {
			return err
		}
		t = t[i+j+1:]
	}
}
