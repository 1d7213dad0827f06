// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/describe"
)

// LimitsFile is the name of the admin's ceiling, below /etc/doorward.
const LimitsFile = "limits.toml"

// Limits is what limits.toml says besides connectors and methods. No limit is wider than the design's own.
type Limits struct {
	TerminalApprovals  bool  // a person may decide at a terminal of this machine
	Pending            int64 // calls of one cell that may wait, at most 50
	GrantDays          int64 // of a standing grant, at most 90; 0: no standing grants
	SensitiveGrantDays int64 // of a grant until a time for sensitive calls, at most 7; 0: none until a time
	BulkReads          int64 // reads per session and connector before one asks
	BulkBytes          int64
}

// limits is limits.toml.
type limits struct {
	Limits
	connectors []string // the only ones; with all set, every one
	all        bool
	onlyMark   mark
	always     map[string]mark // class to where it is said
	settings   map[string]methodLimit
	methods    map[string]methodLimit // "vendor method"
	only       siteRules              // of `sites`: what is not in it is off
	onlySites  mark                   // empty without that line
	sites      siteRules
	surrogates surrogateRules
	budgets    budgets
	empty      []*Problem  // tables that say nothing
	changed    []*siteRule // sets that are not what they were when the policy was decided
}

type methodLimit struct {
	setting string
	level   level
	mark    mark
}

func noLimits() *limits {
	return &limits{Limits: Limits{TerminalApprovals: true, Pending: 50, GrantDays: 90, SensitiveGrantDays: 7,
		BulkReads: 1 << 20, BulkBytes: 1 << 40}, all: true, always: map[string]mark{},
		settings: map[string]methodLimit{}, methods: map[string]methodLimit{}, surrogates: surrogateRules{}}
}

// parseLimits reads limits.toml.
func parseLimits(b []byte, descs []*describe.Connector) (*limits, error) {
	items, err := readTOML(LimitsFile, b)
	if err != nil {
		return nil, err
	}
	l := noLimits()
	f := l.form(descs)
	if err := f.walk(items); err != nil {
		return nil, err
	}
	l.empty = empty(items)
	return l, nil
}

// form is what limits.toml may hold, read into l.
func (l *limits) form(descs []*describe.Connector) form {
	number := func(to *int64, most int64) func(word, *value) error {
		return func(_ word, v *value) (err error) { *to, err = v.wantNumber(most); return }
	}
	f := form{descs: descs}
	f.top = map[string]func(word, *value) error{
		"connectors": func(key word, v *value) error {
			l.all = false
			err := v.eachText(func(w word) error {
				if f.connector(w.text) == nil {
					return w.problem("no connector %q is installed%s", w.text, meant(w.text, f.vendors()))
				}
				l.connectors = append(l.connectors, w.text)
				return nil
			})
			l.onlyMark = mark{key.place, fmt.Sprintf("connectors = [%s]", strings.Join(l.connectors, ", "))}
			return err
		},
		"always-ask": func(_ word, v *value) error {
			classes := []string{describe.Read, describe.Write, describe.Destructive}
			return v.eachText(func(w word) error {
				if !slices.Contains(classes, w.text) {
					return w.problem("%q is no class%s", w.text, meant(w.text, classes))
				}
				l.always[w.text] = mark{w.place, fmt.Sprintf("always-ask %q", w.text)}
				return nil
			})
		},
		"sites": func(key word, v *value) error {
			var names []string
			err := v.eachText(func(w word) error {
				names = append(names, w.text)
				if setOfName(w.text) != nil {
					l.only.sets = append(l.only.sets, siteRule{set: w.text, mark: mark{w.place, "sites"}})
					return nil
				}
				p, err := parsePattern(w.text)
				if err != nil {
					return w.problem("no set of sites %q%s; nor a site: %v", w.text, meant(w.text, setNames()), err)
				}
				return l.only.add(siteRule{pattern: p, mark: mark{w.place, "sites"}})
			})
			l.onlySites = mark{key.place, fmt.Sprintf("sites = [%s]", strings.Join(names, ", "))}
			return err
		},
		"other-sites": func(key word, v *value) (err error) {
			l.sites.other, err = otherSites(key, v)
			return err
		},
		"terminal-approvals":   func(_ word, v *value) (err error) { l.TerminalApprovals, err = v.wantBool(); return },
		"pending":              number(&l.Pending, 50),
		"grant-days":           number(&l.GrantDays, 90),
		"sensitive-grant-days": number(&l.SensitiveGrantDays, 7),
		"bulk-reads":           number(&l.BulkReads, 1<<20),
		"bulk-bytes":           number(&l.BulkBytes, 1<<40),
	}
	f.site = func(p pattern, key word, v *value) error {
		x, err := v.choose("read", "ask", "off")
		if err == nil {
			err = p.readable(key, x)
		}
		if err != nil {
			return err
		}
		return l.sites.add(siteRule{pattern: p, level: levelOf(x), mark: mark{key.place, fmt.Sprintf("site %s = %q", p.String(), x)}})
	}
	f.surrogate = func(name, route string, key word, v *value) error {
		return l.surrogates.read(name, route, key, v, "ask", "off")
	}
	f.budgets = &l.budgets
	f.setting = func(c *describe.Connector, key word, v *value) error {
		x, err := v.choose(AskEveryTime, AskBeforeChanges, DontAsk)
		if err != nil {
			return err
		}
		l.settings[c.Vendor] = methodLimit{x, 0, mark{key.place, fmt.Sprintf("%s setting = %q", c.Vendor, x)}}
		return nil
	}
	f.method = func(c *describe.Connector, m *describe.Method, key word, v *value) error {
		x, err := v.choose("ask", "off")
		if err != nil {
			return err
		}
		l.methods[c.Vendor+" "+m.Name] = methodLimit{"", levelOf(x),
			mark{key.place, fmt.Sprintf("%s %s = %q", c.Vendor, m.Name, x)}}
		return nil
	}
	return f
}

// of is the widest level that l leaves a method, and what says so; allow where nothing narrows.
func (l *limits) of(c *describe.Connector, m *describe.Method) (level, mark) {
	if !l.all && !slices.Contains(l.connectors, c.Vendor) {
		return off, l.onlyMark
	}
	lv, by := allow, mark{}
	narrow := func(to level, m mark) {
		if to < lv {
			lv, by = to, m
		}
	}
	if x, ok := l.methods[c.Vendor+" "+m.Name]; ok {
		narrow(x.level, x.mark)
	}
	if x, ok := l.settings[c.Vendor]; ok {
		narrow(settingLevel(x.setting, m.Class), x.mark)
	}
	if x, ok := l.always[m.Class]; ok {
		narrow(ask, x)
	}
	return lv, by
}

// meet is the narrower of each.
func (l Limits) meet(o Limits) Limits {
	return Limits{
		TerminalApprovals:  l.TerminalApprovals && o.TerminalApprovals,
		Pending:            min(l.Pending, o.Pending),
		GrantDays:          min(l.GrantDays, o.GrantDays),
		SensitiveGrantDays: min(l.SensitiveGrantDays, o.SensitiveGrantDays),
		BulkReads:          min(l.BulkReads, o.BulkReads),
		BulkBytes:          min(l.BulkBytes, o.BulkBytes),
	}
}
