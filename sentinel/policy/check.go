// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/describe"
)

// Check says, setting by setting, where a valid set does less than its words might promise: what does not cover
// sensitive methods, what the admin's limits hold back, and tables that say nothing. Each note has its place.
func (s *Set) Check() []*Problem {
	var out []*Problem
	for _, c := range s.descs {
		o := s.settings.connectors[c.Vendor]
		if o == nil {
			continue
		}
		if o.setting == DontAsk {
			out = append(out, s.dontAsk(c, o)...)
		}
		for i := range c.Methods {
			m := &c.Methods[i]
			x, ok := o.methods[m.Name]
			if !ok {
				continue
			}
			if x.level == allow {
				if words := uncovered(m); words != "" {
					out = append(out, note(x.mark, "does not cover sensitive calls: "+words+" asks all the same"))
				}
			}
			if l := s.levels[c.Vendor][m.Name]; l.capped {
				out = append(out, note(x.mark, fmt.Sprintf("held back to %s by %s", l.level, l.by)))
			}
		}
		if x := s.Setting(c.Vendor); o.setting != "" && x != o.setting {
			out = append(out, note(o.mark, fmt.Sprintf("held back to %q by %s", x, LimitsFile)))
		}
	}
	out = append(append(out, s.checkSites()...), s.settings.empty...)
	for _, l := range s.limits {
		out = append(out, l.empty...)
	}
	return out
}

// checkSites says where a line about sites is held back by the limits, as a whole or for some of its hosts.
func (s *Set) checkSites() []*Problem {
	var out []*Problem
	for _, r := range s.settings.sites.all() {
		for _, text := range s.held(r) {
			out = append(out, note(r.mark, text))
		}
	}
	return out
}

// held says of which hosts of a line the limits leave less than it says.
func (s *Set) held(r *siteRule) []string {
	if r.set == "" && r.host == "" && !r.addr.IsValid() {
		return nil
	}
	patterns := compiled[r.set]
	if r.set == "" {
		patterns = []pattern{r.pattern}
	}
	var out []string
	for _, p := range patterns {
		t := Target{Name: p.host, Addr: p.addr, Port: p.port}
		if p.port == 0 {
			t.Port = 443
		}
		if p.below {
			t.Name = "any." + p.host
		}
		if l := s.siteLevel(t); l.capped && s.settings.sites.of(t) == r {
			out = append(out, fmt.Sprintf("%s is held back to %s by %s", p.String(), l.level, l.by))
		}
	}
	return out
}

func (s *Set) dontAsk(c *describe.Connector, o *connectorSettings) []*Problem {
	var always, worst []string
	for i := range c.Methods {
		m := &c.Methods[i]
		if _, ok := o.methods[m.Name]; ok || uncovered(m) == "" {
			continue
		}
		if alwaysSensitive(m) {
			always = append(always, m.Name)
		} else {
			worst = append(worst, m.Name)
		}
	}
	var out []*Problem
	if len(always) > 0 {
		out = append(out, note(o.mark, "does not cover sensitive methods: "+strings.Join(always, ", ")+
			" ask all the same"))
	}
	if len(worst) > 0 {
		out = append(out, note(o.mark, "covers "+strings.Join(worst, ", ")+" only where nobody else sees it"))
	}
	return out
}

// uncovered says in words which calls of m are sensitive, or "".
func uncovered(m *describe.Method) string {
	switch {
	case !m.SensitiveAt(m.Reach):
		return ""
	case m.Class == describe.Destructive:
		return "it is destructive and"
	case m.Always:
		return "it pays, changes access or runs code and"
	case alwaysSensitive(m):
		return "it reaches " + reachWords(m.Reach) + " and"
	default:
		return "what reaches " + reachWords(m.Reach)
	}
}

// alwaysSensitive says whether no arguments make a call of m less than sensitive.
func alwaysSensitive(m *describe.Method) bool {
	for _, l := range m.Lower {
		if !m.SensitiveAt(l.To) {
			return false
		}
	}
	return m.SensitiveAt(m.Reach)
}

func note(m mark, text string) *Problem {
	return &Problem{m.file, m.line, m.col, m.text + " " + text}
}
