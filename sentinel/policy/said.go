// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// Connectors says of every method of every connector what is set and what is in force.
func (s *Set) Connectors() []wire.ConnectorSetting {
	var out []wire.ConnectorSetting
	for _, c := range s.descs {
		v := wire.ConnectorSetting{Name: c.Vendor, Title: c.Title, Now: s.Setting(c.Vendor)}
		o := s.settings.connectors[c.Vendor]
		if o != nil {
			v.Said = o.setting
		}
		for i := range c.Methods {
			m := &c.Methods[i]
			l := s.levels[c.Vendor][m.Name]
			w := wire.MethodSetting{Name: m.Name, Summary: m.Summary, Class: m.Class, Now: l.level.String()}
			if o != nil {
				if x, ok := o.methods[m.Name]; ok {
					w.Said = x.level.String()
				}
			}
			if l.capped {
				w.Held = l.by.String()
			}
			if words := uncovered(m); alwaysSensitive(m) {
				w.Asks = "all"
			} else if words != "" {
				w.Asks = strings.TrimSuffix(words, " and")
			}
			v.Methods = append(v.Methods, w)
		}
		out = append(out, v)
	}
	return out
}

// Sites are the lines about sites, the closest first, sets behind them, and last what no line names.
func (s *Set) Sites() []wire.SiteSetting {
	var single, sets, other []wire.SiteSetting
	for _, r := range s.settings.sites.all() {
		v := wire.SiteSetting{Site: r.pattern.String(), Said: r.level.String(), Held: strings.Join(s.held(r), "; ")}
		switch {
		case r.set != "":
			v.Site, v.Set = r.set, true
			sets = append(sets, v)
		case r == &s.settings.sites.other:
			v.Site = OtherSites
			other = append(other, v)
		default:
			single = append(single, v)
		}
	}
	return slices.Concat(single, sets, other)
}
