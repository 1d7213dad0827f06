// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// Target is what a connection goes to: a name, or an address that no name stands for. It is made by ParseTarget only.
type Target struct {
	Name string     // canonical: lower case, A-labels, at least two of them, no final dot, no spelling of an address
	Addr netip.Addr // valid where Name is empty
	Port uint16

	begins string // of a Connect; empty: with what is usual at its port
}

// ParseTarget holds what a cell's egress tells to its canonical form. It does not convert: two spellings of one name are
// two chances to be decided on otherwise, so there is one, and the error of any other names what is wrong with it.
func ParseTarget(name, addr string, port uint16) (Target, error) {
	switch {
	case port == 0:
		return Target{}, fmt.Errorf("a connection to port 0")
	case (name == "") == (addr == ""):
		return Target{}, fmt.Errorf("a connection goes to a name or to an address")
	case name != "":
		if !hostOK(name) {
			return Target{}, fmt.Errorf("%q is no canonical name, as example.org", clipped(name))
		}
		return Target{Name: name, Port: port}, nil
	}
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" || a.Is4In6() || a.String() != addr {
		return Target{}, fmt.Errorf("%q is no canonical address", clipped(addr))
	}
	return Target{Addr: a, Port: port}, nil
}

// String is `example.org:443` or `[2001:db8::1]:443`; ParseSite reads it back.
func (t Target) String() string {
	if t.Name == "" {
		return netip.AddrPortFrom(t.Addr, t.Port).String()
	}
	return t.Name + ":" + strconv.Itoa(int(t.Port))
}

// Host is the name or the address; empty of the zero Target.
func (t Target) Host() string {
	if t.Name == "" && t.Addr.IsValid() {
		return t.Addr.String()
	}
	return t.Name
}

// ParseSite reads what String wrote; without a port it is 443.
func ParseSite(s string) (Target, error) {
	p, err := parsePattern(s)
	switch {
	case err != nil:
		return Target{}, err
	case p.below:
		return Target{}, fmt.Errorf("%q stands for more than one name", clipped(s))
	}
	t := Target{Name: p.host, Addr: p.addr, Port: p.port}
	if t.Port == 0 {
		t.Port = 443
	}
	return t, nil
}

// pattern is what a rule about sites names: a host, all names below one, or an address.
type pattern struct {
	host  string     // canonical; empty for an address
	below bool       // `*.` before host: every name below it, not host itself
	addr  netip.Addr // only ever met by a connection to that very address
	port  uint16     // 0: TLS at 443 and HTTP at 80
	tls   bool       // TLS at 443 only: a host of a set
}

// parsePattern reads `example.org`, `*.example.org`, an address, and each with `:port`. Letters may be in any case.
func parsePattern(s string) (pattern, error) {
	wrong := func(why string) (pattern, error) { return pattern{}, fmt.Errorf("%q %s", clipped(s), why) }
	host, p := strings.ToLower(s), pattern{}
	if strings.ContainsAny(s, "/@?#") {
		return wrong("is more than a host: leave scheme, user and path out")
	}
	if a, err := netip.ParseAddr(host); err == nil { // an IPv6 address has colons of its own
		host, p.addr = "", a
	} else if a, err := netip.ParseAddrPort(host); err == nil {
		host, p.addr, p.port = "", a.Addr(), a.Port()
		if p.port == 0 {
			return wrong("has port 0")
		}
	} else if before, digits, ok := strings.Cut(host, ":"); ok {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 || digits != strconv.FormatUint(n, 10) {
			return wrong("has no port of 1 to 65535 behind its colon")
		}
		host, p.port = before, uint16(n)
	}
	if p.addr.IsValid() {
		if p.addr.Zone() != "" || p.addr.Is4In6() {
			return wrong("is no address that a connection goes to: write it plain")
		}
		return p, nil
	}
	p.host, p.below = strings.CutPrefix(host, "*.")
	switch {
	case strings.HasSuffix(p.host, "."):
		return wrong("ends in a dot: write it without")
	case strings.Contains(p.host, "*"):
		return wrong("has a * elsewhere than alone before the first dot, as in *.example.org")
	case strings.ContainsFunc(p.host, func(r rune) bool { return r > 127 }):
		return wrong("has letters other than a-z: write the name as it is in the DNS, with xn--")
	case !hostOK(p.host):
		return wrong("is no host, as example.org, *.example.org or example.org:8443")
	}
	return p, nil
}

// hostOK takes canonical names. What a system could read as an address is none: a last label of digits, or 0x and digits
// (URL Standard, "ends in a number").
func hostOK(s string) bool {
	if !domainOK(s) {
		return false
	}
	last := s[strings.LastIndexByte(s, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok && strings.Trim(hex, "0123456789abcdef") == "" {
		return false
	}
	return strings.Trim(last, "0123456789") != ""
}

// readable refuses `read` for an address: no certificate is made for one, so nothing there can be read.
func (p *pattern) readable(key word, setting string) error {
	if setting == read.String() && p.addr.IsValid() {
		return key.problem("an address cannot be read, only a name: \"ask\" or \"allow\" it")
	}
	return nil
}

// matches says whether a connection is one that the pattern names. A name is never met by an address, nor the reverse.
func (p *pattern) matches(t Target) bool {
	usual := t.Port == 443 && (t.begins == "" || t.begins == wire.BeginsTLS) ||
		t.Port == 80 && (t.begins == "" || t.begins == wire.BeginsHTTP)
	if p.port == 0 && (!usual || p.tls && t.Port != 443) || p.port != 0 && p.port != t.Port {
		return false
	}
	if p.host == "" || t.Name == "" {
		return p.host == "" && t.Name == "" && p.addr == t.Addr
	}
	if p.below {
		return len(t.Name) > len(p.host)+1 && strings.HasSuffix(t.Name, p.host) && t.Name[len(t.Name)-len(p.host)-1] == '.'
	}
	return t.Name == p.host
}

// closer orders patterns that meet one connection: the one that says more comes first.
func closer(a, b *pattern) int {
	no := func(x bool) int {
		if x {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(no(a.below), no(b.below)), cmp.Compare(len(b.host), len(a.host)),
		cmp.Compare(no(a.port == 0), no(b.port == 0)))
}

func (p *pattern) String() string {
	s := p.host
	if p.below {
		s = "*." + s
	}
	switch {
	case p.addr.IsValid() && p.port != 0:
		return netip.AddrPortFrom(p.addr, p.port).String()
	case p.addr.IsValid():
		return p.addr.String()
	case p.port != 0:
		s += ":" + strconv.Itoa(int(p.port))
	}
	return s
}

func clipped(s string) string { return s[:min(len(s), 80)] }

// siteRule is one line about sites: what it names, how far it lets that go, and where it stands.
type siteRule struct {
	pattern // of a single site
	set     string
	level   level
	mark    mark
	permit  []string // ip:port, not public, that may be dialled for it
}

// siteRules is what one file says of sites.
type siteRules struct {
	sets   []siteRule // named sets
	single []siteRule // the closest first
	other  siteRule   // names that nothing else says anything of
}

// unsaid is the level of a single site of which a permit was read and no setting yet.
const unsaid level = -1

func (r *siteRules) add(x siteRule) error {
	for i := range r.single {
		switch y := &r.single[i]; {
		case y.pattern != x.pattern:
		case y.level == unsaid && x.level != unsaid:
			x.permit = y.permit
			*y = x
			return nil
		case x.level == unsaid && y.permit == nil:
			y.permit = x.permit
			return nil
		default:
			return x.mark.problem("site %q stands twice, see line %d", x.pattern.String(), y.mark.line)
		}
	}
	r.single = append(r.single, x)
	slices.SortStableFunc(r.single, func(a, b siteRule) int { return closer(&a.pattern, &b.pattern) })
	return nil
}

// of finds what says how far a connection goes: a single site before a set, among single ones the closest, then what is
// said of all others. nil where nothing is: of an address that no line names there never is.
func (r *siteRules) of(t Target) *siteRule {
	for i := range r.single {
		if r.single[i].matches(t) {
			return &r.single[i]
		}
	}
	for i := range r.sets {
		if inSet(r.sets[i].set, t) {
			return &r.sets[i]
		}
	}
	if t.Name == "" || r.other.mark.text == "" {
		return nil
	}
	return &r.other
}

// whole refuses a site that only says where it may be dialled.
func (r *siteRules) whole() error {
	for i := range r.single {
		if x := &r.single[i]; x.level == unsaid {
			return x.mark.problem("site %q has a permit and no setting", x.pattern.String())
		}
	}
	return nil
}

// readPermit reads the addresses of a person's own servers.
func readPermit(v *value) ([]string, error) {
	var out []string
	err := v.eachText(func(w word) error {
		a, err := netip.ParseAddrPort(w.text)
		if err != nil || a.String() != w.text || a.Addr().Zone() != "" || a.Addr().Is4In6() || a.Port() == 0 {
			return w.problem("%q is no address with its port, as 192.168.7.5:8443 or [fd00::5]:8443", clipped(w.text))
		}
		out = append(out, w.text)
		return nil
	})
	slices.Sort(out)
	return slices.Compact(out), err
}

// Permits are the addresses that may be dialled for a connection (of ConnectCall) though they are not public.
func (s *Set) Permits(c *Call) []string { return s.permits(c.site.Target) }

func (s *Set) permits(t Target) []string {
	if r := s.settings.sites.of(t); r != nil {
		return slices.Clone(r.permit)
	}
	return nil
}

// all lists every rule once.
func (r *siteRules) all() []*siteRule {
	var out []*siteRule
	for _, list := range [][]siteRule{r.sets, r.single} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	if r.other.mark.text != "" {
		out = append(out, &r.other)
	}
	return out
}

// siteLevel is what the settings and limits together say of a connection.
func (s *Set) siteLevel(t Target) methodLevel {
	o := methodLevel{level: off, said: mark{text: "no line names that address"}}
	if r := s.settings.sites.of(t); r != nil {
		o.level, o.said = r.level, r.mark
	}
	o.by = o.said
	for _, c := range s.siteCaps(t) {
		if c.level < o.level {
			o.level, o.by, o.capped = c.level, c.mark, true
		}
	}
	return o
}

// Reads says whether connections to a host are intercepted because the line that is closest to it, and the limits, let it be
// read. What a connection begins with makes no difference: a host that is read is read, or not spoken to.
func (s *Set) Reads(t Target) bool {
	t.begins = ""
	return t.Name != "" && s.siteLevel(t).level == read
}

// Intercepted says in a line for a person why connections to t are intercepted, or "".
func (s *Set) Intercepted(t Target) string {
	t.begins = ""
	if !s.Reads(t) {
		return ""
	}
	return s.siteLevel(t).by.String()
}

// ReadHosts are the hosts, and with `*.` the names below, of which a line says that they are read, with their port and the line.
// Only those where it is in force are in it.
func (s *Set) ReadHosts() [][2]string {
	var out [][2]string
	for _, r := range s.siteLines() {
		patterns := compiled[r.set]
		if r.set == "" {
			if r.host == "" {
				continue
			}
			patterns = []pattern{r.pattern}
		}
		for _, p := range patterns {
			t := Target{Name: p.host, Port: p.port}
			if t.Port == 0 {
				t.Port = 443
			}
			if p.below {
				t.Name = "any." + p.host
			}
			p.port = t.Port
			if why := s.Intercepted(t); why != "" && why == r.mark.String() {
				out = append(out, [2]string{p.String(), why})
			}
		}
	}
	return out
}

// siteLines are all lines of all files that speak of sites.
func (s *Set) siteLines() []*siteRule {
	out := s.settings.sites.all()
	for _, l := range s.limits {
		out = append(out, l.sites.all()...)
		out = append(out, l.only.all()...)
		out = append(out, l.changed...)
	}
	return out
}

// siteCaps are the lines of the limits that narrow a connection.
func (s *Set) siteCaps(t Target) []*siteRule {
	other := s.settings.sites.of(t) == &s.settings.sites.other
	var out []*siteRule
	for _, l := range s.limits {
		if r := l.ofSite(t, other); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// ofSite is the line of l that narrows a connection most, nil where none does. What l says of other sites is about those
// that no line of policy.toml names.
func (l *limits) ofSite(t Target, other bool) *siteRule {
	if l.onlySites.text != "" && l.only.of(t) == nil {
		return &siteRule{level: off, mark: l.onlySites}
	}
	r := l.sites.of(t)
	if r == &l.sites.other && !other {
		r = nil
	}
	for _, c := range l.changed {
		if inSet(c.set, t) && (r == nil || c.level < r.level) {
			r = c
		}
	}
	return r
}

// ruleName names a rule as an entity.
func (m mark) ruleName() string { return m.String() }

// siteParents are the entities that a site is in: its sets, and the lines that speak of it.
func (s *Set) siteParents(t Target) (sets, rules []string) {
	for name := range compiled {
		if inSet(name, t) {
			sets = append(sets, name)
		}
	}
	if r := s.settings.sites.of(t); r != nil {
		rules = append(rules, r.mark.ruleName())
	}
	for _, r := range s.siteCaps(t) {
		rules = append(rules, r.mark.ruleName())
	}
	return sets, rules
}

// compileSites writes what is said of sites as Cedar. Which line speaks of a site is the entity that it is in, so each
// line is one policy, or two where it asks.
func (s *Set) compileSites() string {
	var w lineWriter
	const (
		both     = typeAction + "::\"" + actionConnect + "\", " + typeAction + "::\"" + actionRequest + "\""
		connects = typeAction + "::\"" + actionConnect + "\""
		requests = typeAction + "::\"" + actionRequest + "\""
		// A person issued the surrogate for that host, and each of its requests is judged by the line of its own.
		notIssued = "when { !context.surrogate }\n"
		changes   = "when { !context.surrogate && context.class != \"read\" }\n"
	)
	for _, r := range s.settings.sites.all() {
		switch r.level {
		case off:
			w.forbid(r.mark, both, "")
		case ask:
			w.permit(r.mark, both, "")
			w.ask(r.mark, both, notIssued)
		case read, allow:
			w.permit(r.mark, both, "")
			w.ask(r.mark, requests, changes)
		}
	}
	for _, l := range s.limits {
		if l.onlySites.text != "" {
			w.forbid(l.onlySites, both, "")
		}
		for _, r := range append(l.sites.all(), l.changed...) {
			switch r.level {
			case off:
				w.forbid(r.mark, both, "")
			case ask:
				w.ask(r.mark, connects, "")
				w.ask(r.mark, requests, "when { !context.surrogate }\n")
			}
		}
		for _, class := range slices.Sorted(maps.Keys(l.always)) {
			w.always(l.always[class], class)
		}
	}
	return w.b.String()
}

// lineWriter writes the policies of a line about sites. The entity that a line is has the sites that it speaks of in it.
type lineWriter struct{ b strings.Builder }

func (w *lineWriter) write(m mark, head, effect, actions, when, tail string) {
	fmt.Fprintf(&w.b, "@id(%s)\n@reason(%s)\n%s%s (principal, action in [%s], resource in %s::%s)\n%s%s;\n\n", quote(m.id()), quote(m.text),
		head, effect, actions, typeSiteRule, quote(m.ruleName()), when, tail)
}

func (w *lineWriter) permit(m mark, actions, when string) {
	w.write(m, "", "permit", actions, when, "")
}

func (w *lineWriter) forbid(m mark, actions, when string) {
	w.write(m, "", "forbid", actions, when, "")
}

func (w *lineWriter) ask(m mark, actions, when string) {
	w.write(m, "@decision(\"ask\")\n", "forbid", actions, when, "unless { context.approved }")
}

// always has the requests of a class ask, wherever they go.
func (w *lineWriter) always(m mark, class string) {
	fmt.Fprintf(&w.b, "@id(%s)\n@reason(%s)\n@decision(\"ask\")\nforbid (principal, action == %s::%s, resource)\n"+
		"when { context.class == %s }\nunless { context.approved };\n\n", quote(m.id()), quote(m.text), typeAction, quote(actionRequest),
		quote(class))
}
