// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/doorward/doorward/internal/wire"
)

// siteBudget is what a site may take, as one table of a file says.
type siteBudget struct {
	pattern
	spend wire.Spend
}

// budgets are those of one file.
type budgets struct {
	cell  wire.Spend
	sites []siteBudget // the closest first
}

// spendKeys are the keys of a budget, the most that each may say, and whether a site has it.
var spendKeys = []struct {
	name string
	most int64
	site bool
	of   func(*wire.Spend) *int64
	unit string
}{
	{"connections", 1 << 16, true, func(s *wire.Spend) *int64 { return &s.Conns }, "connections at once"},
	{"requests", 1 << 20, true, func(s *wire.Spend) *int64 { return &s.Requests }, "requests a minute"},
	{"bytes-out", 1 << 50, true, func(s *wire.Spend) *int64 { return &s.Out }, "bytes sent an hour"},
	{"names", 1 << 16, false, func(s *wire.Spend) *int64 { return &s.Names }, "new names a minute"},
}

// read takes one key of a budget into to.
func readSpend(to *wire.Spend, site bool, key word, v *value) error {
	var known []string
	for _, k := range spendKeys {
		if site && !k.site {
			continue
		}
		known = append(known, k.name)
		if k.name != key.text {
			continue
		}
		n, err := v.wantNumber(k.most)
		if err == nil && n == 0 {
			err = v.problem("0 is no budget; leave the line out, or switch the site off")
		}
		*k.of(to) = n
		return err
	}
	return key.problem("unknown key %q%s", key.text, meant(key.text, known))
}

// ofSite is the table of a pattern.
func (b *budgets) ofSite(p pattern) *wire.Spend {
	i := slices.IndexFunc(b.sites, func(x siteBudget) bool { return x.pattern == p })
	if i < 0 {
		b.sites = append(b.sites, siteBudget{pattern: p})
		slices.SortStableFunc(b.sites, func(x, y siteBudget) int { return closer(&x.pattern, &y.pattern) })
		i = slices.IndexFunc(b.sites, func(x siteBudget) bool { return x.pattern == p })
	}
	return &b.sites[i].spend
}

// of is what the closest table says of a site.
func (b *budgets) of(t Target) wire.Spend {
	t.begins = ""
	for i := range b.sites {
		if b.sites[i].matches(t) {
			return b.sites[i].spend
		}
	}
	return wire.Spend{}
}

// within is the narrower of each; 0 is no bound.
func within(a, b wire.Spend) wire.Spend {
	for _, k := range spendKeys {
		if x, y := k.of(&a), *k.of(&b); y != 0 && (*x == 0 || y < *x) {
			*x = y
		}
	}
	return a
}

// Budget is what a cell may use in all, and at a site, by the settings and the limits; nil where nothing is said.
func (s *Set) Budget(t Target) *wire.Budget {
	b := wire.Budget{Site: s.settings.budgets.of(t), Cell: s.settings.budgets.cell}
	for _, l := range s.limits {
		b.Site, b.Cell = within(b.Site, l.budgets.of(t)), within(b.Cell, l.budgets.cell)
	}
	if b == (wire.Budget{}) {
		return nil
	}
	return &b
}

// patternsOf are the sites that a table of a file names.
func (s *Set) budgetPatterns() []pattern {
	var out []pattern
	for _, x := range s.settings.budgets.sites {
		out = append(out, x.pattern)
	}
	for _, l := range s.limits {
		for _, x := range l.budgets.sites {
			out = append(out, x.pattern)
		}
	}
	return out
}

// diffSpend compares two budgets; less, or one where there was none, narrows.
func diffSpend(words string, a, b wire.Spend, add adder) {
	for _, k := range spendKeys {
		x, y := *k.of(&a), *k.of(&b)
		switch {
		case x == y:
		case x == 0:
			add(false, "budget of %s: %d %s", words, y, k.unit)
		case y == 0:
			add(true, "budget of %s: no bound on %s, was %d", words, k.unit, x)
		default:
			add(y > x, "budget of %s: %d %s, was %d", words, y, k.unit, x)
		}
	}
}

func (s *Set) budget(t Target) wire.Budget {
	if b := s.Budget(t); b != nil {
		return *b
	}
	return wire.Budget{}
}
