// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// methodLevel is what the settings and limits together say of a method.
type methodLevel struct {
	said   mark // by policy.toml, or its default
	by     mark // what decided: said, or a limit
	level  level
	capped bool // by is a limit, narrower than what was said
}

// levelFor is the narrower of what the settings say and what the limits leave.
func levelFor(s *settings, ls []*limits, c *describe.Connector, m *describe.Method) methodLevel {
	o := methodLevel{}
	setting := AskBeforeChanges
	o.said = mark{place{file: "default"}, fmt.Sprintf("%s setting = %q", c.Vendor, setting)}
	if x := s.connectors[c.Vendor]; x != nil {
		if x.setting != "" {
			setting, o.said = x.setting, x.mark
		}
	}
	o.level = settingLevel(setting, m.Class)
	if x := s.connectors[c.Vendor]; x != nil {
		if y, ok := x.methods[m.Name]; ok {
			o.level, o.said = y.level, y.mark
		}
	}
	o.by = o.said
	for _, l := range ls {
		if lv, by := l.of(c, m); lv < o.level {
			o.level, o.by, o.capped = lv, by, true
		}
	}
	return o
}

// compile writes one connector's settings as Cedar. Every method that is not off gets a permit in the name of what
// set it; what asks or is off gets a forbid in the name of what decided it.
func compile(c *describe.Connector, level func(*describe.Method) methodLevel) string {
	type group struct {
		by   mark
		kind string // permit, ask, off
		list []string
	}
	var groups []*group
	add := func(by mark, kind, method string) {
		for _, g := range groups {
			if g.by == by && g.kind == kind {
				g.list = append(g.list, method)
				return
			}
		}
		groups = append(groups, &group{by, kind, []string{method}})
	}
	for i := range c.Methods {
		m := &c.Methods[i]
		l := level(m)
		if l.level != off {
			add(l.said, "permit", m.Name)
		}
		switch l.level {
		case off:
			add(l.by, "off", m.Name)
		case ask:
			add(l.by, "ask", m.Name)
		}
	}
	var s strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&s, "@id(%s)\n@reason(%s)\n", quote(g.by.id()), quote(g.by.text))
		effect, tail := "permit", ";\n\n"
		switch g.kind {
		case "ask":
			s.WriteString("@decision(\"ask\")\n")
			effect, tail = "forbid", "\nunless { context.approved };\n\n"
		case "off":
			fmt.Fprintf(&s, "@code(%s)\n", quote(string(wire.CodeUnknownMethod)))
			effect = "forbid"
		}
		for i, m := range g.list {
			g.list[i] = typeAction + "::" + quote(actionName(c.Vendor, m))
		}
		fmt.Fprintf(&s, "%s (principal, action in [%s], resource)%s", effect, strings.Join(g.list, ", "), tail)
	}
	return s.String()
}
