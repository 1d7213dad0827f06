// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/describe"
)

// PolicyFile is the name of the person's settings.
const PolicyFile = "policy.toml"

// Settings of a connector.
const (
	AskEveryTime     = "ask-every-time"
	AskBeforeChanges = "ask-before-changes" // where nothing is said
	DontAsk          = "dont-ask"
)

// level is what happens to a method or a site by the settings alone, from narrow to wide.
type level int

const (
	off level = iota
	ask
	read // of sites only: connections are intercepted, reads go and changes ask
	allow
)

func (l level) String() string { return [...]string{"off", "ask", "read", "allow"}[l] }

// mark is where a setting was made and how it reads: `policy.toml:12`, `github issue-create = "ask"`.
type mark struct {
	place
	text string
}

func (m mark) id() string {
	if m.line == 0 {
		return m.file
	}
	return fmt.Sprintf("%s:%d", m.file, m.line)
}

func (m mark) String() string { return m.id() + " " + m.text }

// ceilings of reads that go unasked, per session and connector.
const (
	defaultBulkReads = 200
	defaultBulkBytes = 64 << 20
)

// settings is policy.toml.
type settings struct {
	organisation []string // domains, lower case, sorted
	bulkReads    int64
	bulkBytes    int64
	connectors   map[string]*connectorSettings
	sites        siteRules
	surrogates   surrogateRules
	budgets      budgets
	empty        []*Problem // tables that say nothing
}

type connectorSettings struct {
	setting string // empty: not said
	mark    mark
	methods map[string]methodSetting
	private map[string][]string // account to things, as the file has them
}

type methodSetting struct {
	level level
	mark  mark
}

func (s *settings) of(vendor string) *connectorSettings {
	c := s.connectors[vendor]
	if c == nil {
		c = &connectorSettings{methods: map[string]methodSetting{}, private: map[string][]string{}}
		s.connectors[vendor] = c
	}
	return c
}

// parseSettings reads policy.toml. Every name in it must be one there is: what is misspelt would else be unsaid, and
// what is unsaid may be wider than what was meant.
func parseSettings(b []byte, descs []*describe.Connector) (*settings, error) {
	items, err := readTOML(PolicyFile, b)
	if err != nil {
		return nil, err
	}
	s := &settings{bulkReads: defaultBulkReads, bulkBytes: defaultBulkBytes,
		connectors: map[string]*connectorSettings{}, surrogates: surrogateRules{}}
	s.sites.other = siteRule{level: ask, mark: mark{place{file: "default"}, `other-sites = "ask"`}}
	f := s.form(descs)
	if err := f.walk(items); err != nil {
		return nil, err
	}
	if err := s.sites.whole(); err != nil {
		return nil, err
	}
	s.empty = empty(items)
	return s, nil
}

// form is what policy.toml may hold, read into s.
func (s *settings) form(descs []*describe.Connector) form {
	f := form{descs: descs}
	f.top = map[string]func(word, *value) error{
		"organisation": func(_ word, v *value) error {
			err := v.eachText(func(w word) error {
				d := strings.ToLower(w.text)
				if !domainOK(d) {
					return w.problem("%q is no domain, as example.org", w.text)
				}
				s.organisation = append(s.organisation, d)
				return nil
			})
			slices.Sort(s.organisation)
			s.organisation = slices.Compact(s.organisation)
			return err
		},
		"bulk-reads": func(_ word, v *value) (err error) { s.bulkReads, err = v.wantNumber(1 << 20); return },
		"bulk-bytes": func(_ word, v *value) (err error) { s.bulkBytes, err = v.wantNumber(1 << 40); return },
		"sites": func(_ word, v *value) error {
			return v.eachText(func(w word) error {
				if setOfName(w.text) == nil {
					return w.problem("no set of sites %q%s; a single one stands in [site.%q]", w.text, meant(w.text, setNames()), w.text)
				}
				m := mark{w.place, fmt.Sprintf("sites %q", w.text)}
				s.sites.sets = append(s.sites.sets, siteRule{set: w.text, level: setOfName(w.text).level(), mark: m})
				return nil
			})
		},
		"other-sites": func(key word, v *value) (err error) {
			s.sites.other, err = otherSites(key, v)
			return err
		},
	}
	f.site = func(p pattern, key word, v *value) error {
		x, err := v.choose("allow", "read", "ask", "off")
		if err == nil {
			err = p.readable(key, x)
		}
		if err != nil {
			return err
		}
		return s.sites.add(siteRule{pattern: p, level: levelOf(x), mark: mark{key.place, fmt.Sprintf("site %s = %q", p.String(), x)}})
	}
	f.surrogate = func(name, route string, key word, v *value) error {
		return s.surrogates.read(name, route, key, v, "allow", "ask", "off")
	}
	f.budgets = &s.budgets
	f.permit = func(p pattern, key word, v *value) error {
		list, err := readPermit(v)
		if err != nil {
			return err
		}
		return s.sites.add(siteRule{pattern: p, level: unsaid, permit: list, mark: mark{place: key.place}})
	}
	f.setting = func(c *describe.Connector, key word, v *value) error {
		x, err := v.choose(AskEveryTime, AskBeforeChanges, DontAsk)
		if err != nil {
			return err
		}
		o := s.of(c.Vendor)
		o.setting, o.mark = x, mark{key.place, fmt.Sprintf("%s setting = %q", c.Vendor, x)}
		return nil
	}
	f.method = func(c *describe.Connector, m *describe.Method, key word, v *value) error {
		x, err := v.choose("allow", "ask", "off")
		if err != nil {
			return err
		}
		s.of(c.Vendor).methods[m.Name] = methodSetting{levelOf(x),
			mark{key.place, fmt.Sprintf("%s %s = %q", c.Vendor, m.Name, x)}}
		return nil
	}
	f.private = func(c *describe.Connector, account word, v *value) error {
		return v.eachText(func(w word) error {
			if !privateOK(w.text) {
				return w.problem("%q is no thing of one place: name a path, a repository, a list", w.text)
			}
			s.of(c.Vendor).private[account.text] = append(s.of(c.Vendor).private[account.text], w.text)
			return nil
		})
	}
	return f
}

// otherSites is what becomes of names that no line names.
func otherSites(key word, v *value) (siteRule, error) {
	x, err := v.choose("ask", "off")
	if err != nil {
		return siteRule{}, err
	}
	return siteRule{level: levelOf(x), mark: mark{key.place, fmt.Sprintf("other-sites = %q", x)}}, nil
}

func levelOf(s string) level {
	switch s {
	case "allow":
		return allow
	case "ask":
		return ask
	case "read":
		return read
	default:
		return off
	}
}

// settingLevel is what a connector's setting says of a class.
func settingLevel(setting, class string) level {
	switch {
	case setting == DontAsk, setting == AskBeforeChanges && class == describe.Read:
		return allow
	default:
		return ask
	}
}

// privateOK refuses what would stand for more than one thing, such as the root of a server or a pattern.
func privateOK(s string) bool {
	return s != "" && s != "/" && len(s) <= 1024 && !strings.ContainsAny(s, "*?\\%;\x00\r\n") &&
		!strings.Contains(s, "//") && !slices.ContainsFunc(strings.Split(s, "/"), func(p string) bool {
		return p == "." || p == ".."
	})
}

func domainOK(s string) bool {
	labels := strings.Split(s, ".")
	if len(labels) < 2 || len(s) > 253 {
		return false
	}
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' ||
			strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}
