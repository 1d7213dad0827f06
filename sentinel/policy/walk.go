// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/doorward/doorward/internal/describe"
)

// form is what keys a policy file may have and what is done with each. A key that is not of the form is refused.
type form struct {
	descs   []*describe.Connector
	top     map[string]func(key word, v *value) error
	setting func(c *describe.Connector, key word, v *value) error
	method  func(c *describe.Connector, m *describe.Method, key word, v *value) error
	private func(c *describe.Connector, account word, v *value) error // nil: the file has no such table
	site    func(p pattern, key word, v *value) error
	permit  func(p pattern, key word, v *value) error // nil: a site has no such key
	// surrogate is the line of one, with route empty of all its routes.
	surrogate func(name, route string, key word, v *value) error
	budgets   *budgets
}

// walk hands every key to its place in the form and returns all faults together.
func (f *form) walk(items []item) error {
	var faults []error
	for _, it := range items {
		if err := f.one(it); err != nil {
			var p *Problem
			if !errors.As(err, &p) {
				last := it.path[len(it.path)-1]
				err = last.problem("%s %v", last.text, err)
			}
			if !slices.ContainsFunc(faults, func(f error) bool { return f.Error() == err.Error() }) {
				faults = append(faults, err)
			}
		}
	}
	return errors.Join(faults...)
}

// empty notes the tables of a connector, a site or a surrogate in which nothing is said.
func empty(items []item) []*Problem {
	var out []*Problem
	for _, it := range items {
		if len(it.path) != 2 || it.val != nil {
			continue
		}
		table, name := it.path[0], it.path[1]
		if !slices.ContainsFunc(items, func(x item) bool {
			return x.val != nil && len(x.path) > 2 && x.path[0].text == table.text && x.path[1].text == name.text
		}) {
			out = append(out, &Problem{name.file, name.line, name.col,
				fmt.Sprintf("[%s.%q] says nothing, so it changes nothing: it has no setting", table.text, clipped(name.text))})
		}
	}
	return out
}

func (f *form) one(it item) error {
	key := it.path[0]
	if set, ok := f.top[key.text]; ok {
		if len(it.path) > 1 {
			return it.path[1].problem("unknown key %q: %s is no table", it.path[1].text, key.text)
		}
		return set(key, it.val)
	}
	switch key.text {
	case "site":
		return f.ofSite(it)
	case "surrogate":
		return f.ofSurrogate(it)
	case "budget":
		switch len(it.path) {
		case 1:
			return header(key, it.val)
		case 2:
			return readSpend(&f.budgets.cell, false, it.path[1], it.val)
		}
		return it.path[2].problem("unknown key %q: %s is no table", it.path[2].text, it.path[1].text)
	}
	if key.text != "connector" {
		return f.unknownTop(key)
	}
	if len(it.path) == 1 {
		return header(key, it.val)
	}
	vendor := it.path[1]
	c := f.connector(vendor.text)
	if c == nil {
		return vendor.problem("no connector %q is installed%s", vendor.text, meant(vendor.text, f.vendors()))
	}
	if len(it.path) == 2 {
		return header(vendor, it.val)
	}
	return f.ofConnector(c, it)
}

func (f *form) ofConnector(c *describe.Connector, it item) error {
	key := it.path[2]
	known := []string{"setting", "method"}
	if f.private != nil {
		known = append(known, "private")
	}
	switch {
	case key.text == "setting" && len(it.path) == 3:
		return f.setting(c, key, it.val)
	case key.text == "setting":
		return it.path[3].problem("unknown key %q: setting is no table", it.path[3].text)
	case !slices.Contains(known, key.text):
		if _, ok := c.Method(key.text); ok {
			return key.problem("unknown key %q; a method stands in [connector.%s.method]", key.text, c.Vendor)
		}
		return key.problem("unknown key %q%s", key.text, meant(key.text, known))
	case len(it.path) == 3:
		return header(key, it.val)
	case len(it.path) > 4:
		return it.path[4].problem("unknown key %q: %s is no table", it.path[4].text, it.path[3].text)
	case key.text == "private":
		return f.private(c, it.path[3], it.val)
	}
	name := it.path[3]
	m, ok := c.Method(name.text)
	if !ok {
		return name.problem("%s has no method %q%s", c.Vendor, name.text, meant(name.text, methodNames(c)))
	}
	return f.method(c, m, name, it.val)
}

// ofSite is [site."example.org"] with its keys.
func (f *form) ofSite(it item) error {
	if len(it.path) == 1 {
		return header(it.path[0], it.val)
	}
	host := it.path[1]
	p, err := parsePattern(host.text)
	known := []string{"setting", "budget"}
	if f.permit != nil {
		known = append(known, "permit")
	}
	if err != nil && len(it.path) > 2 && !slices.Contains(known, it.path[2].text) {
		return host.problem("no site %q: its name stands in quotes, as [site.\"example.org\"]", host.text)
	}
	if err != nil {
		return host.problem("site %v", err)
	}
	switch {
	case len(it.path) == 2:
		return header(host, it.val)
	case !slices.Contains(known, it.path[2].text):
		return it.path[2].problem("unknown key %q%s", it.path[2].text, meant(it.path[2].text, known))
	case it.path[2].text == "budget" && len(it.path) == 3:
		return header(it.path[2], it.val)
	case it.path[2].text == "budget" && len(it.path) == 4:
		return readSpend(f.budgets.ofSite(p), true, it.path[3], it.val)
	case len(it.path) > 3:
		return it.path[3].problem("unknown key %q: %s is no table", it.path[3].text, it.path[2].text)
	case it.path[2].text == "permit":
		return f.permit(p, it.path[2], it.val)
	}
	return f.site(p, it.path[2], it.val)
}

func (f *form) unknownTop(key word) error {
	if f.connector(key.text) != nil {
		return key.problem("unknown key %q; a connector stands in [connector.%s]", key.text, key.text)
	}
	known := slices.Sorted(maps.Keys(f.top))
	return key.problem("unknown key %q%s", key.text, meant(key.text, append(known, "budget", "connector", "site", "surrogate")))
}

// header is a table's own line: it has no value.
func header(key word, v *value) error {
	if v != nil {
		return v.problem("%s is a table, not a value", key.text)
	}
	return nil
}

func (f *form) connector(vendor string) *describe.Connector {
	for _, c := range f.descs {
		if c.Vendor == vendor {
			return c
		}
	}
	return nil
}

func (f *form) vendors() []string {
	var out []string
	for _, c := range f.descs {
		out = append(out, c.Vendor)
	}
	return out
}

func methodNames(c *describe.Connector) []string {
	var out []string
	for i := range c.Methods {
		out = append(out, c.Methods[i].Name)
	}
	return out
}

// choose takes one of names.
func (v *value) choose(names ...string) (string, error) {
	s, err := v.wantText()
	if err != nil {
		return "", err
	}
	if !slices.Contains(names, s) {
		return "", v.problem("%q is no choice%s", s, meant(s, names))
	}
	return s, nil
}
