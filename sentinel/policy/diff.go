// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Change is one difference between two sets.
type Change struct {
	Text   string
	Widens bool // it lets something through that asked or was denied, or nobody can tell
	// Surrogate and Route are what it is about, empty of all else; Route is empty where it is about all of them.
	Surrogate, Route string
}

// Diff lists what takes effect otherwise under new than under old; old may be nil, the set that denies all. What
// cannot be compared counts as widening.
func Diff(old, new *Set) []Change {
	if old == nil {
		old = &Set{settings: &settings{}, levels: map[string]map[string]methodLevel{}}
	}
	var out []Change
	of := func(surrogate, route string) adder {
		return func(widens bool, format string, a ...any) {
			out = append(out, Change{fmt.Sprintf(format, a...), widens, surrogate, route})
		}
	}
	add := of("", "")
	for _, vendor := range union(old.levels, new.levels) {
		was, is := old.levels[vendor], new.levels[vendor]
		for _, m := range union(was, is) {
			if a, b := was[m].level, is[m].level; a != b { // what a set does not know is off
				add(b > a, "%s %s: %s, now %s%s", vendor, m, a, b, because(is[m]))
			}
		}
		diffPrivate(vendor, old.settings.connectors[vendor], new.settings.connectors[vendor], add)
		diffClass(vendor, old, new, add)
	}
	diffSites(old, new, add)
	diffSurrogates(old, new, of)
	diffSpend("a cell", old.budget(Target{}).Cell, new.budget(Target{}).Cell, add)
	diffNumbers(old, new, add)
	for _, d := range union(setOf(old.settings.organisation), setOf(new.settings.organisation)) {
		switch a, b := slices.Contains(old.settings.organisation, d), slices.Contains(new.settings.organisation, d); {
		case !a:
			add(true, "organisation: %s counts as inside", d)
		case !b: // a rule about what stays inside could be one that denies it
			add(len(ownRules(old))+len(ownRules(new)) > 0, "organisation: %s no longer counts as inside", d)
		}
	}
	diffOwn(old, new, add)
	return out
}

// Widens is the text of the changes that widen; empty means that new may take effect without a decision.
func Widens(old, new *Set) []string {
	var out []string
	for _, c := range Diff(old, new) {
		if c.Widens {
			out = append(out, c.Text)
		}
	}
	return out
}

type adder func(widens bool, format string, a ...any)

func because(l methodLevel) string {
	if l.by.text == "" {
		return ""
	}
	return " (" + l.by.String() + ")"
}

// diffClass compares what the descriptions say of a method, where the two sets were made from different ones.
func diffClass(vendor string, old, new *Set, add adder) {
	a, b := (&form{descs: old.descs}).connector(vendor), (&form{descs: new.descs}).connector(vendor)
	if a == nil || b == nil || a == b || a.Digest() == b.Digest() {
		return
	}
	for i := range b.Methods {
		m := &b.Methods[i]
		o, ok := a.Method(m.Name)
		if !ok {
			continue
		}
		switch {
		case rank(m) < rank(o):
			add(true, "%s %s: its description makes it less than it was", vendor, m.Name)
		case rank(m) > rank(o):
			add(false, "%s %s: its description makes it more than it was", vendor, m.Name)
		case !reflect.DeepEqual(m.Lower, o.Lower):
			add(true, "%s %s: its description tells its reach otherwise", vendor, m.Name)
		}
	}
}

// rank orders methods from harmless to not.
func rank(m *describe.Method) int {
	n := slices.Index([]string{describe.ReachNone, describe.ReachPeople, describe.ReachSpace, describe.ReachPublic},
		m.Reach)
	n += 4 * slices.Index([]string{describe.Read, describe.Write, describe.Destructive}, m.Class)
	if m.Always {
		n += 12
	}
	return n
}

func diffPrivate(vendor string, old, new *connectorSettings, add adder) {
	of := func(c *connectorSettings) map[string]bool {
		out := map[string]bool{}
		if c != nil {
			for account, things := range c.private {
				for _, t := range things {
					out[account+" "+t] = true
				}
			}
		}
		return out
	}
	a, b := of(old), of(new)
	for _, t := range union(a, b) {
		switch {
		case !a[t]:
			add(true, "%s private: %s counts as private", vendor, t)
		case !b[t]:
			add(false, "%s private: %s no longer counts as private", vendor, t)
		}
	}
}

// diffSites compares how far connections go. Between the names and ports that lines of either set speak of nothing
// changes, so one of each kind is enough: every host that is named, one below each `*.`, and one that no line names.
func diffSites(old, new *Set, add adder) {
	hosts, ports, other := probes(old, new)
	var order []string
	groups := map[string][]string{}
	widens := map[string]bool{}
	note := func(words string, a level, b methodLevel) {
		key := fmt.Sprintf("%s, now %s%s", a, b.level, because(b))
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], words)
		widens[key] = b.level > a
	}
	for _, h := range hosts {
		for _, port := range ports {
			words := h.words + portWords(port, other)
			usual := Target{Name: h.Name, Addr: h.Addr, Port: port}
			diffSpend(words, old.budget(usual).Site, new.budget(usual).Site, add)
			diffPermits(words, old.permits(usual), new.permits(usual), add)
			var changes []siteChange
			for _, begins := range []string{wire.BeginsTLS, wire.BeginsHTTP, wire.BeginsOther} {
				t := Target{h.Name, h.Addr, port, begins}
				if a, b := old.siteLevel(t).level, new.siteLevel(t); a != b.level {
					changes = append(changes, siteChange{begins, a, b})
				}
			}
			for i, c := range changes {
				switch same := len(changes) == 3 && c.like(&changes[0]) && changes[1].like(&changes[2]); {
				case same && i > 0:
				case same, port == 443 && c.begins == wire.BeginsTLS, port == 80 && c.begins == wire.BeginsHTTP:
					note(words, c.from, c.to)
				default:
					note(words+" by "+beginsWords(c.begins), c.from, c.to)
				}
			}
		}
	}
	for _, key := range order {
		add(widens[key], "connect %s: %s", strings.Join(groups[key], ", "), key)
	}
}

func diffPermits(words string, old, new []string, add adder) {
	for _, a := range union(setOf(old), setOf(new)) {
		switch was, is := slices.Contains(old, a), slices.Contains(new, a); {
		case !was:
			add(true, "connect %s: may be dialled at %s, which is not public", words, a)
		case !is:
			add(false, "connect %s: may no longer be dialled at %s", words, a)
		}
	}
}

// siteChange is a change of what begins in one way at one port of one host.
type siteChange struct {
	begins string
	from   level
	to     methodLevel
}

func (c *siteChange) like(o *siteChange) bool { return c.from == o.from && c.to == o.to }

func beginsWords(b string) string {
	switch b {
	case wire.BeginsTLS:
		return "TLS"
	case wire.BeginsHTTP:
		return "HTTP in the clear"
	default:
		return "what is neither TLS nor HTTP"
	}
}

// probe stands for all connections that are alike.
type probe struct {
	Target
	words string
}

func portWords(port, other uint16) string {
	switch port {
	case 443:
		return ""
	case other:
		return " (other ports)"
	default:
		return fmt.Sprintf(" (port %d)", port)
	}
}

// probes are the hosts and ports to be compared; other is the one that stands for every port that no line names.
func probes(sets ...*Set) (list []probe, at []uint16, other uint16) {
	ports := map[uint16]bool{443: true, 80: true}
	hosts := map[string]probe{}
	const fresh = "any-name-that-no-line-has" // a label
	see := func(p pattern) {
		if p.port != 0 {
			ports[p.port] = true
		}
		p.port = 0
		t := Target{Name: p.host, Addr: p.addr}
		if p.below {
			t.Name = fresh + "." + p.host
		}
		hosts[p.String()] = probe{t, p.String()}
	}
	for _, s := range sets {
		for _, p := range s.budgetPatterns() {
			see(p)
		}
		for _, r := range s.siteLines() {
			if r.set == "" && r.host == "" && !r.addr.IsValid() {
				continue
			}
			if r.set == "" {
				see(r.pattern)
			}
			for _, p := range compiled[r.set] {
				see(p)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		list = append(list, hosts[name])
	}
	list = append(list, probe{Target{Name: fresh + ".invalid"}, "other sites"})
	for other = 1; ports[other]; other++ {
	}
	ports[other] = true
	return list, slices.Sorted(maps.Keys(ports)), other
}

func diffNumbers(old, new *Set, add adder) {
	a, b := old.ceiling, new.ceiling
	for _, n := range []struct {
		name   string
		was    int64
		is     int64
		widens bool
	}{
		{"reads before one asks", a.BulkReads, b.BulkReads, true},
		{"bytes read before a read asks", a.BulkBytes, b.BulkBytes, true},
		{"days of a standing grant", a.GrantDays, b.GrantDays, true},
		{"days of a grant for sensitive calls", a.SensitiveGrantDays, b.SensitiveGrantDays, true},
		{"calls that may wait", a.Pending, b.Pending, false},
	} {
		if n.was != n.is {
			add(n.widens && n.is > n.was, "%s: %d, now %d", n.name, n.was, n.is)
		}
	}
	if a.TerminalApprovals != b.TerminalApprovals {
		add(b.TerminalApprovals, "approvals at a terminal: %t, now %t", a.TerminalApprovals, b.TerminalApprovals)
	}
}

// diffOwn compares the person's .cedar policies by their text. One more forbid narrows; one less widens; so does any
// change in what permits, and a changed policy is one less and one more.
func diffOwn(old, new *Set, add adder) {
	a, b := ownRules(old), ownRules(new)
	for _, t := range union(a, b) {
		switch x, y := a[t], b[t]; {
		case len(x) > len(y):
			add(x[0].forbid(), "gone: %s", x[0])
		case len(x) < len(y):
			add(!y[0].forbid(), "new: %s", y[0])
		}
	}
}

func ownRules(s *Set) map[string][]*rule {
	out := map[string][]*rule{}
	for _, r := range s.rules {
		if r.own {
			t := string(r.policy.MarshalCedar())
			out[t] = append(out[t], r)
		}
	}
	return out
}

func setOf(list []string) map[string]bool {
	out := map[string]bool{}
	for _, x := range list {
		out[x] = true
	}
	return out
}

// union is the sorted keys of both.
func union[A, B any](a map[string]A, b map[string]B) []string {
	return slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for k := range maps.Keys(a) {
			if !yield(k) {
				return
			}
		}
		for k := range maps.Keys(b) {
			if !yield(k) {
				return
			}
		}
	}))
}
