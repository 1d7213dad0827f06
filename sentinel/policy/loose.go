// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/doorward/doorward/internal/describe"

// Loose is a method of which calls may go without a person, though they change something.
type Loose struct {
	Connector, Method, Class string
	By                       string // where that was said: file, line and words
}

// Loose lists every method that is no read and goes unasked by the settings, sorted. What always asks whatever the
// settings say (sensitive calls, callers that have read what others wrote) asks all the same.
func (s *Set) Loose() []Loose {
	var out []Loose
	for _, c := range s.descs {
		for i := range c.Methods {
			m := &c.Methods[i]
			if l := s.levels[c.Vendor][m.Name]; l.level == allow && m.Class != describe.Read {
				out = append(out, Loose{c.Vendor, m.Name, m.Class, l.by.String()})
			}
		}
	}
	return out
}

// DontAsk lists every connector whose setting in force is dont-ask, and where that was said.
func (s *Set) DontAsk() []Loose {
	var out []Loose
	for _, c := range s.descs {
		if x := s.settings.connectors[c.Vendor]; x != nil && s.Setting(c.Vendor) == DontAsk {
			out = append(out, Loose{Connector: c.Vendor, By: x.mark.String()})
		}
	}
	return out
}
