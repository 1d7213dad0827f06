// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// target reads "example.org:443" or an address as egress tells it.
func target(t testing.TB, s string) Target {
	t.Helper()
	x, err := ParseSite(s)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestEG05_APatternMeetsAtTheBordersOfLabels: `*` stands for one label or more, and for whole ones.
func TestEG05_APatternMeetsAtTheBordersOfLabels(t *testing.T) {
	for _, c := range []struct {
		name, pattern, site string
		want                bool
	}{
		{"the host itself", "example.org", "example.org:443", true},
		{"in the clear", "example.org", "example.org:80", true},
		{"another port", "example.org", "example.org:8443", false},
		{"the port that is named", "example.org:8443", "example.org:8443", true},
		{"a port, and the usual one", "example.org:8443", "example.org:443", false},
		{"443 named is not 80", "example.org:443", "example.org:80", false},
		{"a pattern in upper case", "Example.ORG", "example.org:443", true},
		{"a name below", "example.org", "www.example.org:443", false},
		{"a name that ends like it", "example.org", "badexample.org:443", false},
		{"a name that begins like it", "example.org", "example.org.evil.net:443", false},
		{"below", "*.example.org", "www.example.org:443", true},
		{"far below", "*.example.org", "a.b.example.org:443", true},
		{"the apex is not below", "*.example.org", "example.org:443", false},
		{"an ending without its dot", "*.example.org", "badexample.org:443", false},
		{"below, another port", "*.example.org", "www.example.org:22", false},
		{"a look-alike in other letters", "example.org", "xn--xample-9uf.org:443", false},
		{"A-labels", "xn--bcher-kva.example", "xn--bcher-kva.example:443", true},
		{"an address", "192.0.2.7", "192.0.2.7:443", true},
		{"another address", "192.0.2.7", "192.0.2.77:443", false},
		{"an IPv6 address, written long", "2001:DB8:0:0::1", "[2001:db8::1]:443", true},
		{"an IPv6 address with a port", "[2001:db8::1]:8443", "[2001:db8::1]:8443", true},
		{"all names are no address", "*.example.org", "192.0.2.7:443", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := parsePattern(c.pattern)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.matches(target(t, c.site)); got != c.want {
				t.Errorf("%s meets %s: %t", c.pattern, c.site, got)
			}
		})
	}
}

// TestEG04_OneSpellingOfAName: of one name there is one spelling; a spelling of an address is no name, and nothing is converted.
func TestEG04_OneSpellingOfAName(t *testing.T) {
	for _, name := range []string{"", "Example.org", "example.org.", ".example.org", "example..org", "example", "localhost",
		"bücher.example", "example.org\x00.evil.net", "example.org:443", "user@example.org", "example.org/", "exa mple.org",
		"*.example.org", "1.2.3.4", "0x7f.1", "127.1", "2130706433", "0177.0.0.1", "1.2.3.0x4", "example.0x7f", "::1", "[::1]",
		"example.org%00", "-a.org", "a-.org", "a_b.org", strings.Repeat("a", 64) + ".org", strings.Repeat("a.", 127) + "org"} {
		if x, err := ParseTarget(name, "", 443); err == nil {
			t.Errorf("%q is taken as %v", name, x)
		}
	}
	for _, addr := range []string{"::ffff:192.0.2.7", "192.0.2.07", "fe80::1%lo", "2001:DB8::1", "2001:db8:0::1", "example.org", "1.2.3"} {
		if x, err := ParseTarget("", addr, 443); err == nil {
			t.Errorf("%q is taken as %v", addr, x)
		}
	}
	for _, both := range [][2]string{{"", ""}, {"example.org", "192.0.2.7"}} {
		if _, err := ParseTarget(both[0], both[1], 443); err == nil {
			t.Errorf("%q is taken", both)
		}
	}
	if _, err := ParseTarget("example.org", "", 0); err == nil {
		t.Error("port 0 is taken")
	}
	for _, pattern := range []string{"*", "*.", "*.org", "org", "a.*.org", "**.example.org", "*example.org", "*.*.example.org", "",
		"example.org:", "example.org:0", "example.org:65536", "example.org:https", "example.org:0443", "example.org.", "bücher.example",
		"https://example.org", "example.org/x", "1.2.3", "0x7f.1", "::ffff:1.2.3.4", "fe80::1%lo", "1.2.3.4:0", "*.1.2.3.4", "[::1]"} {
		if p, err := parsePattern(pattern); err == nil {
			t.Errorf("pattern %q is taken as %v", pattern, p)
		}
	}
}

// TestEG13_ARuleMeansItsPortAndProtocol: a host without a port is TLS at 443 and HTTP at 80, a host of a set TLS at 443 only,
// and a grant is for what the approved connection began with.
func TestEG13_ARuleMeansItsPortAndProtocol(t *testing.T) {
	s := mustSet(t, "sites = [\"github-read\"]\nother-sites = \"off\"\n[site.\"*.vendor-a.example\"]\nsetting = \"allow\"\n"+
		"[site.\"git.example:22\"]\nsetting = \"allow\"\n")
	for _, c := range []struct {
		site, begins string
		want         Verdict
	}{
		{"www.vendor-a.example:443", wire.BeginsTLS, Allow},
		{"www.vendor-a.example:80", wire.BeginsHTTP, Allow},
		{"ssh.vendor-a.example:443", wire.BeginsOther, Deny},
		{"www.vendor-a.example:443", wire.BeginsHTTP, Deny},
		{"www.vendor-a.example:80", wire.BeginsTLS, Deny},
		{"www.vendor-a.example:25", wire.BeginsOther, Deny},
		{"www.vendor-a.example:8443", wire.BeginsTLS, Deny},
		{"github.com:443", wire.BeginsTLS, Allow},
		{"github.com:443", wire.BeginsOther, Deny},
		{"github.com:80", wire.BeginsHTTP, Deny},
		{"git.example:22", wire.BeginsOther, Allow},
		{"git.example:443", wire.BeginsTLS, Deny},
	} {
		d := s.Decide(s.ConnectCall(&Connect{Target: target(t, c.site), Begins: c.begins, Cell: "dev", Now: testNow}), nil)
		if d.Verdict != c.want {
			t.Errorf("%s that begins with %s: %+v", c.site, c.begins, d)
		}
	}
	s = mustSet(t, "")
	call := func(begins string) *Call {
		return s.ConnectCall(&Connect{Target: target(t, "git.example:443"), Begins: begins, Cell: "dev", Session: "run-1", Now: testNow})
	}
	g := s.PrefillSite(call(wire.BeginsTLS))
	g.Made = testNow.Unix()
	if d := s.Decide(call(wire.BeginsTLS), []wire.Grant{g}); d.Verdict != Allow {
		t.Errorf("%+v", d)
	}
	if d := s.Decide(call(wire.BeginsOther), []wire.Grant{g}); d.Verdict != Ask {
		t.Errorf("SSH under a grant for TLS: %+v", d)
	}
}

func FuzzSite(f *testing.F) {
	for _, s := range []string{"example.org", "*.example.org", "EXAMPLE.org:8443", "192.0.2.7", "[2001:db8::1]:1", "xn--bcher-kva.example",
		"0x7f.1", "1.2.3.4.", "a.b.0xff", "::ffff:1.2.3.4"} {
		f.Add(s, "www.example.org")
		f.Add("*.example.org", s)
	}
	f.Fuzz(func(t *testing.T, pat, name string) {
		p, perr := parsePattern(pat)
		if perr != nil && p != (pattern{}) {
			t.Fatal("a pattern with an error")
		}
		x, err := ParseTarget(name, "", 443)
		if err != nil {
			if x != (Target{}) {
				t.Fatal("a target with an error")
			}
			return
		}
		if back, err := ParseSite(x.String()); err != nil || back != x {
			t.Fatalf("%s reads back as %v, %v", x, back, err)
		}
		if _, err := netip.ParseAddr(name); err == nil || strings.ToLower(name) != name || strings.HasSuffix(name, ".") {
			t.Fatalf("%q is a name", name)
		}
		if perr != nil || !p.matches(x) {
			return
		}
		again, err := parsePattern(p.String())
		if err != nil || again != p {
			t.Fatalf("%s reads back as %v, %v", p.String(), again, err)
		}
		if p.addr.IsValid() || p.below && x.Name == p.host || !p.below && x.Name != p.host || !strings.HasSuffix(x.Name, p.host) {
			t.Fatalf("%s meets %s", p.String(), x)
		}
	})
}

const someSites = `
sites = ["debian", "npm"]
[site."example.org"]
setting = "allow"
[site."*.example.org"]
setting = "ask"
[site."bad.example.org"]
setting = "off"
[site."registry.npmjs.org"]
setting = "ask"
[site."example.net:8443"]
setting = "allow"
[site."192.0.2.7"]
setting = "allow"
`

const readSite = "[site.\"read.example\"]\nsetting = \"read\"\n"

func TestSites(t *testing.T) {
	night := "forbid (principal, action, resource) when { context.hour < 15 };"
	only := "sites = [\"npm\", \"example.org\"]\n[site.\"example.org\"]\nsetting = \"ask\"\n"
	for _, c := range []struct {
		name, toml string
		more       []string
		site       string
		change     change
		want       Verdict
		by         string // stands in what decided
	}{
		{"a site that is allowed", someSites, nil, "example.org:443", nil, Allow, `policy.toml:4 site example.org = "allow"`},
		{"a site that asks", someSites, nil, "www.example.org:443", nil, Ask, `site *.example.org = "ask"`},
		{"a site that is off", someSites, nil, "bad.example.org:443", nil, Deny, `site bad.example.org = "off"`},
		{"below what is off", someSites, nil, "a.bad.example.org:443", nil, Ask, `*.example.org`},
		{"a site with its port", someSites, nil, "example.net:8443", nil, Allow, "example.net:8443"},
		{"a site on another port", someSites, nil, "example.net:443", nil, Ask, `other-sites = "ask"`},
		{"a host of a set", someSites, nil, "deb.debian.org:443", nil, Allow, `policy.toml:2 sites "debian"`},
		{"a host of a set in the clear", someSites, nil, "deb.debian.org:80", nil, Ask, "other-sites"},
		{"a host of another set", someSites, nil, "pypi.org:443", nil, Ask, "other-sites"},
		{"a single site stands before a set", someSites, nil, "registry.npmjs.org:443", nil, Ask, "site registry.npmjs.org"},
		{"a site that no line names", "", nil, "example.com:443", nil, Ask, `default other-sites = "ask"`},
		{"other sites are off", "other-sites = \"off\"\n", nil, "example.com:443", nil, Deny, `other-sites = "off"`},
		{"an address that is named", someSites, nil, "192.0.2.7:443", nil, Allow, "site 192.0.2.7"},
		{"an address", someSites, nil, "192.0.2.8:443", nil, Deny, ""},
		{"an IPv6 address", someSites, nil, "[2001:db8::1]:443", nil, Deny, ""},
		{"the cell has read what others wrote", someSites, nil, "example.org:443", labels(wire.LabelUntrusted), Ask, "base.cedar"},
		{"a label that nobody knows", someSites, nil, "example.org:443", labels("odd"), Ask, "base.cedar"},
		{"tainted, and it is read", someSites, nil, "deb.debian.org:443", labels(wire.LabelUntrusted), Allow, `sites "debian"`},
		{"a site that is read", readSite, nil, "read.example:443", labels(wire.LabelUntrusted), Allow, `site read.example = "read"`},
		{"the limits have a read one ask", readSite, []string{LimitsFile, "[site.\"read.example\"]\nsetting = \"ask\"\n"}, "read.example:443", nil, Ask, "limits.toml:2"},
		{"and then it is spliced, so a tainted cell asks", readSite, []string{LimitsFile, "[site.\"read.example\"]\nsetting = \"ask\"\n"}, "read.example:443", labels(wire.LabelUntrusted), Ask, "base.cedar"},
		{"the limits have an allowed one be read", someSites, []string{LimitsFile, "[site.\"example.org\"]\nsetting = \"read\"\n"}, "example.org:443", labels(wire.LabelUntrusted), Allow, `site example.org = "allow"`},
		{"a provider is spliced, so a tainted cell asks", "sites = [\"anthropic\"]\n", nil, "api.anthropic.com:443", labels(wire.LabelUntrusted), Ask, "base.cedar"},
		{"a rule about what is intercepted", readSite, []string{"own.cedar", `forbid (principal, action == Action::"connect", resource) when { context.intercepted };`}, "read.example:443", nil, Deny, "own.cedar"},
		{"the cell has read what is private", someSites, nil, "example.org:443", labels(wire.LabelPrivate), Allow, ""},
		{"tainted, and off", someSites, nil, "bad.example.org:443", labels(wire.LabelUntrusted), Deny, ""},
		{"the limits leave it", someSites, []string{LimitsFile, only}, "registry.npmjs.org:443", nil, Ask, ""},
		{"the limits have it ask", someSites, []string{LimitsFile, only}, "example.org:443", nil, Ask, `limits.toml:3 site example.org = "ask"`},
		{"the limits name it not", someSites, []string{LimitsFile, only}, "deb.debian.org:443", nil, Deny, "limits.toml:1 sites = [npm, example.org]"},
		{"nor others", someSites, []string{LimitsFile, only}, "example.com:443", nil, Deny, "limits.toml"},
		{"nor addresses", someSites, []string{LimitsFile, only}, "192.0.2.7:443", nil, Deny, "limits.toml"},
		{"limits: others are off", someSites, []string{LimitsFile, "other-sites = \"off\"\n"}, "example.com:443", nil, Deny, "limits.toml:1"},
		{"limits: others are off, named ones go", someSites, []string{LimitsFile, "other-sites = \"off\"\n"}, "example.org:443", nil, Allow, ""},
		{"a rule about everything", someSites, []string{"own.cedar", night}, "example.org:443", nil, Deny, "own.cedar"},
		{"a permit of everything opens no network", "other-sites = \"off\"\n", []string{"own.cedar", "permit (principal, action, resource);"},
			"192.0.2.7:443", nil, Deny, ""},
		{"a permit that names connections", "", []string{"own.cedar",
			`permit (principal, action == Action::"connect", resource == Site::"192.0.2.7:22");`}, "192.0.2.7:22", nil, Allow, "own.cedar"},
		{"a permit cannot pass what is off", someSites, []string{"own.cedar",
			`permit (principal, action == Action::"connect", resource);`}, "bad.example.org:443", nil, Deny, ""},
		{"a rule about a set", someSites, []string{"own.cedar",
			`forbid (principal, action == Action::"connect", resource in SiteSet::"debian");`}, "deb.debian.org:443", nil, Deny, "own.cedar"},
		{"a rule about a name", someSites, []string{"own.cedar",
			`forbid (principal, action == Action::"connect", resource) when { context.name like "*.org" && context.port == 443 };`},
			"example.org:443", nil, Deny, "own.cedar"},
		{"a rule about what is in the clear", someSites, []string{"own.cedar",
			`forbid (principal, action == Action::"connect", resource) unless { context.begins == "tls" };`}, "example.org:443", nil, Allow, ""},
		{"a rule that cannot be evaluated", someSites, []string{"own.cedar",
			`forbid (principal, action == Action::"connect", resource) when { context.port * 9223372036854775807 > 1 };`},
			"example.org:443", nil, Deny, "cannot be evaluated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustSet(t, c.toml, c.more...)
			call := connectOf(s, target(t, c.site))
			if c.change != nil {
				c.change(call)
				again := Connect{Target: target(t, c.site), Begins: wire.BeginsTLS, Cell: "dev", Session: "run-1", Labels: call.Labels, Now: testNow}
				call = s.ConnectCall(&again)
			}
			d := s.Decide(call, nil)
			if d.Verdict != c.want || !strings.Contains(strings.Join(d.Policies, "\n"), c.by) {
				t.Errorf("%+v, want %s by %q", d, c.want, c.by)
			}
			if d.Verdict != Allow && (d.Reason == "" || d.Code == "") {
				t.Errorf("not said why: %+v", d)
			}
			if lines := s.Explain(call, nil); !strings.HasPrefix(lines[0], "a connection to "+c.site+", for cell dev: ") {
				t.Errorf("%q", lines)
			}
		})
	}
}

func connectOf(s *Set, x Target) *Call {
	return s.ConnectCall(&Connect{Target: x, Begins: wire.BeginsTLS, Cell: "dev", Session: "run-1", Attended: true, Now: testNow})
}

// TestWrongSites: what is misspelt is refused with its place.
func TestWrongSites(t *testing.T) {
	for _, c := range []struct{ name, toml, limits, cedar, want string }{
		{"a set", `sites = ["debain"]`, "", "", `policy.toml:1:10: no set of sites "debain"; did you mean "debian"?; a single one stands in [site."debain"]`},
		{"a key of a site", "[site.\"example.org\"]\nseting = \"allow\"", "", "", `policy.toml:2:1: unknown key "seting"; did you mean "setting"?`},
		{"a choice", "[site.\"example.org\"]\nsetting = \"alow\"", "", "", `policy.toml:2:11: "alow" is no choice; did you mean "allow"?`},
		{"without quotes", "[site.example.org]\nsetting = \"allow\"", "", "", `policy.toml:1:7: no site "example": its name stands in quotes`},
		{"no name", "[site.\"exa_mple.org\"]\nsetting = \"allow\"", "", "", `policy.toml:1:7: site "exa_mple.org" is no host`},
		{"a port", "[site.\"example.org:https\"]\nsetting = \"allow\"", "", "", `policy.toml:1:7: site "example.org:https" has no port of 1 to 65535`},
		{"an address of the web", "[site.\"https://example.org\"]\nsetting = \"allow\"", "", "", `policy.toml:1:7: site "https://example.org" is more than a host: leave scheme`},
		{"a path", "[site.\"example.org/x\"]\nsetting = \"allow\"", "", "", `policy.toml:1:7: site "example.org/x" is more than a host`},
		{"a user", "[site.\"ada@example.org:443\"]\nsetting = \"allow\"", "", "", `policy.toml:1:7: site "ada@example.org:443" is more than a host`},
		{"an address of the web in limits", "", `sites = ["https://example.org"]`, "", `nor a site: "https://example.org" is more than a host`},
		{"twice", "[site.\"example.org\"]\nsetting = \"allow\"\n[site.\"EXAMPLE.org\"]\nsetting = \"off\"", "", "", `site "example.org" stands twice, see line 2`},
		{"a permit alone", "[site.\"example.org\"]\npermit = [\"192.168.7.5:443\"]", "", "", `site "example.org" has a permit and no setting`},
		{"a permit of a name", "[site.\"example.org\"]\nsetting = \"ask\"\npermit = [\"example.org:443\"]", "", "", `"example.org:443" is no address with its port`},
		{"a permit without a port", "[site.\"example.org\"]\nsetting = \"ask\"\npermit = [\"192.168.7.5\"]", "", "", `is no address with its port`},
		{"a permit in limits", "", "[site.\"example.org\"]\npermit = [\"192.168.7.5:443\"]", "", `limits.toml:2:1: unknown key "permit"`},
		{"an address that is read", "[site.\"192.0.2.7\"]\nsetting = \"read\"", "", "", `policy.toml:2:1: an address cannot be read`},
		{"an address that limits read", "", "[site.\"192.0.2.7\"]\nsetting = \"read\"", "", `limits.toml:2:1: an address cannot be read`},
		{"a budget of nothing", "[budget]\nrequests = 0", "", "", `policy.toml:2:12: 0 is no budget`},
		{"a key of a budget", "[budget]\nrequest = 1", "", "", `policy.toml:2:1: unknown key "request"; did you mean "requests"?`},
		{"names of a site", "[site.\"example.org\".budget]\nnames = 1", "", "", `unknown key "names"`},
		{"a budget that is none", "budget = 7", "", "", `budget is a table`},
		{"a key of a surrogate", "[surrogate.chat]\nseting = \"dont-ask\"", "", "", `policy.toml:2:1: unknown key "seting"; did you mean "setting"?`},
		{"a setting of a surrogate", "[surrogate.chat]\nsetting = \"allow\"", "", "", `policy.toml:2:11: "allow" is no choice`},
		{"a level of a route", "[surrogate.chat.route]\nsend = \"dont-ask\"", "", "", `policy.toml:2:8: "dont-ask" is no choice`},
		{"a limit of a route that widens", "", "[surrogate.chat.route]\nsend = \"allow\"", "", `limits.toml:2:8: "allow" is no choice`},
		{"a name of a surrogate", "[surrogate.\"Chat x\"]\nsetting = \"dont-ask\"", "", "", `no surrogate can be called "Chat x"`},
		{"a fact of requests elsewhere", "", "", `forbid (principal, action == Action::"connect", resource) when { context.path == "/" };`, `no fact "path"`},
		{"others", `other-sites = "allow"`, "", "", `policy.toml:1:15: "allow" is no choice`},
		{"a key", `other-site = "ask"`, "", "", `did you mean "other-sites"?`},
		{"a limit that widens", "", "[site.\"example.org\"]\nsetting = \"allow\"", "", `limits.toml:2:11: "allow" is no choice`},
		{"a set in limits", "", `sites = ["pipy"]`, "", `limits.toml:1:10: no set of sites "pipy"; did you mean "pypi"?`},
		{"a set in a rule", "", "", `forbid (principal, action == Action::"connect", resource in SiteSet::"pipy");`, `no set of sites "pipy"`},
		{"a site in a rule", "", "", `forbid (principal, action == Action::"connect", resource == Site::"Example.org");`, `a site is Site::"example.org:443"`},
		{"a name in a rule", "", "", `forbid (principal, action == Action::"connect", resource) when { context.name == "Example.org" };`, `is never met`},
		{"a fact of connections elsewhere", "", "", `forbid (principal, action in Action::"github", resource) when { context.port == 1 };`, `no fact "port"`},
		{"the line of a file", "", "", `forbid (principal, action == Action::"connect", resource in SiteRule::"x");`, `no entity type SiteRule`},
	} {
		t.Run(c.name, func(t *testing.T) {
			more := []string{LimitsFile, c.limits}
			if c.cedar != "" {
				more = append(more, "own.cedar", c.cedar)
			}
			s, err := compileTest(t, c.toml, more...)
			if err == nil || s != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestSiteDiff(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		want           []string
	}{
		{"a set more", "", `sites = ["go"]`, []string{`+connect proxy.golang.org, sum.golang.org: ask, now read (policy.toml:1 sites "go")`}},
		{"a set less", `sites = ["go"]`, "", []string{`-connect proxy.golang.org, sum.golang.org: read, now ask (default other-sites = "ask")`}},
		{"others off", "", `other-sites = "off"`, []string{`-connect other sites (other ports), other sites (port 80), other sites: ask, now off (policy.toml:1 other-sites = "off")`}},
		{"below, but for one", "", "[site.\"*.example.org\"]\nsetting=\"allow\"\n[site.\"a.example.org\"]\nsetting=\"off\"", []string{
			`+connect *.example.org (port 80), *.example.org: ask, now allow`, `-connect a.example.org (port 80), a.example.org: ask, now off`}},
		{"what was off below", "[site.\"*.example.org\"]\nsetting=\"allow\"\n[site.\"a.example.org\"]\nsetting=\"off\"",
			"[site.\"*.example.org\"]\nsetting=\"allow\"", []string{`+connect a.example.org (port 80), a.example.org: off, now allow`}},
		{"a port", "", "[site.\"example.org:8443\"]\nsetting=\"allow\"", []string{`+connect example.org (port 8443): ask, now allow`}},
		{"its own server", "[site.\"example.org:443\"]\nsetting=\"ask\"",
			"[site.\"example.org:443\"]\npermit = [\"192.168.7.5:443\"]\nsetting=\"ask\"",
			[]string{"+connect example.org: may be dialled at 192.168.7.5:443, which is not public"}},
		{"an address", "", "[site.\"192.0.2.7\"]\nsetting=\"ask\"", []string{`+connect 192.0.2.7 (port 80), 192.0.2.7: off, now ask`}},
		{"a set's host by its port", `sites = ["npm"]`, "[site.\"registry.npmjs.org:443\"]\nsetting=\"allow\"", []string{
			`+connect registry.npmjs.org: read, now allow (policy.toml:2 site registry.npmjs.org:443 = "allow")`,
			`+connect registry.npmjs.org by HTTP in the clear, registry.npmjs.org by what is neither TLS nor HTTP: ask, now allow`}},
		{"read in place of ask", "[site.\"example.org\"]\nsetting=\"ask\"", "[site.\"example.org\"]\nsetting=\"read\"", []string{
			`+connect example.org (port 80), example.org: ask, now read`}},
		{"a budget", "", "[budget]\nrequests = 60\n[site.\"example.org\".budget]\nbytes-out = 1000\n[site.\"example.org\"]\nsetting=\"ask\"\n", []string{
			"-budget of a cell: 60 requests a minute", "-budget of example.org: 1000 bytes sent an hour", "-budget of example.org (port 80): 1000 bytes sent an hour"}},
		{"a budget that grows", "[budget]\nrequests = 60\n", "[budget]\nrequests = 61\n", []string{"+budget of a cell: 61 requests a minute, was 60"}},
		{"a budget that goes", "[budget]\nnames = 60\n", "", []string{"+budget of a cell: no bound on new names a minute, was 60"}},
		{"a surrogate", "", "[surrogate.chat]\nsetting = \"dont-ask\"\n[surrogate.chat.route]\nsend = \"off\"\nlook = \"allow\"\n", []string{
			"+surrogate chat reads: as its manifest says, now allow", "+surrogate chat changes: as its manifest says, now allow",
			"-surrogate chat send reads: as its manifest says, now off", "-surrogate chat send changes: as its manifest says, now off",
			"+surrogate chat look reads: as its manifest says, now allow", "+surrogate chat look changes: as its manifest says, now allow"}},
		{"a surrogate, narrower", "", "[surrogate.chat]\nsetting = \"ask-every-time\"\n", []string{
			"-surrogate chat reads: as its manifest says, now ask", "-surrogate chat changes: as its manifest says, now ask"}},
		{"a surrogate of which nothing is said any more", "[surrogate.chat]\nsetting = \"ask-every-time\"\n", "", []string{
			"+surrogate chat reads: ask, now as its manifest says", "+surrogate chat changes: ask, now as its manifest says"}},
		{"the same in other words", "[site.\"Example.org\"]\nsetting=\"allow\"", "[site]\n[site.\"example.org\"]\nsetting='allow'", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, x := range Diff(mustSet(t, c.from), mustSet(t, c.to)) {
				got = append(got, map[bool]string{true: "+", false: "-"}[x.Widens]+x.Text)
			}
			if len(got) != len(c.want) || slices.ContainsFunc(c.want, func(w string) bool {
				return !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) })
			}) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if w := Widens(nil, mustSet(t, `sites = ["go"]`)); !slices.ContainsFunc(w, func(s string) bool { return strings.Contains(s, "sum.golang.org") }) {
		t.Errorf("against nothing at all: %q", w)
	}
}

// TestIdle: lines about what no cell has are noted, with what was probably meant; a change of those alone narrows nothing.
func TestIdle(t *testing.T) {
	issued := Issued{"bot": {"message-post", "messages"}, "mail": {"send"}}
	for _, c := range []struct{ name, toml, limits, want string }{
		{"a route", "[surrogate.bot.route]\nmesage-post = \"off\"\nmessages = \"ask\"\n", "",
			`policy.toml:2:1: surrogate bot mesage-post = "off": no manifest issued as bot has a route mesage-post; did you mean "message-post"?`},
		{"a route like none", "[surrogate.bot.route]\nx = \"off\"\n", "",
			`policy.toml:2:1: surrogate bot x = "off": no manifest issued as bot has a route x; there are message-post, messages`},
		{"a name", "[surrogate.bto.route]\nx = \"off\"\ny = \"off\"\n", "",
			`policy.toml:2:1: surrogate bto x = "off": no surrogate of that name is issued into any cell; did you mean "bot"?`},
		{"a name like none", "[surrogate.telephone]\nsetting = \"dont-ask\"\n", "",
			`policy.toml:2:1: surrogate telephone setting = "dont-ask": no surrogate of that name is issued into any cell`},
		{"in the limits", "", "[surrogate.bot.route]\nmesages = \"off\"\n",
			`limits.toml:2:1: surrogate bot mesages = "off": no manifest issued as bot has a route mesages; did you mean "messages"?`},
		{"those that there are", "[surrogate.mail]\nsetting = \"dont-ask\"\n[surrogate.mail.route]\nsend = \"off\"\n", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			s := mustSet(t, c.toml, LimitsFile, c.limits)
			for _, p := range s.Idle(issued) {
				got = append(got, p.Error())
			}
			if strings.Join(got, "\n") != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			for _, ch := range Diff(mustSet(t, ""), s) {
				if known := c.name == "those that there are"; issued.Meets(&ch) != (known || ch.Route == "messages" || ch.Route == "" && ch.Surrogate == "bot") {
					t.Errorf("%+v", ch)
				}
			}
		})
	}
	if !(Issued{}).Meets(&Change{}) {
		t.Error("a change of something else is about nothing")
	}
}

// TestChangedSet: a set that holds other hosts than when the policy was decided asks, until it is decided again.
func TestChangedSet(t *testing.T) {
	files := Files{PolicyFile: []byte(`sites = ["go", "npm"]`)}
	s, err := Undecided(files, testDescs(t), []string{"sites go"})
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Decide(connectOf(s, target(t, "sum.golang.org:443")), nil); d.Verdict != Ask {
		t.Errorf("a changed set: %+v", d)
	}
	if d := s.Decide(connectOf(s, target(t, "registry.npmjs.org:443")), nil); d.Verdict != Allow {
		t.Errorf("another set: %+v", d)
	}
	if w := Widens(s, mustSet(t, `sites = ["go", "npm"]`)); len(w) != 1 {
		t.Errorf("deciding it again is a widening: %q", w)
	}
}

func TestSiteGrants(t *testing.T) {
	s := mustSet(t, "")
	site := target(t, "example.org:443")
	clean := connectOf(s, site)
	tainted := s.ConnectCall(&Connect{Target: site, Begins: wire.BeginsTLS, Cell: "dev", Session: "run-1", Labels: []string{wire.LabelUntrusted}, Now: testNow})
	now := testNow.Unix()
	grant := func(ch func(*wire.Grant)) wire.Grant {
		g := s.PrefillSite(clean)
		g.Made = now - 60
		if ch != nil {
			ch(&g)
		}
		return g
	}
	for _, c := range []struct {
		name  string
		grant wire.Grant
		call  *Call
		want  bool
	}{
		{"this session", grant(nil), clean, true},
		{"another session", grant(func(g *wire.Grant) { g.Session = "run-2" }), clean, false},
		{"another cell", grant(func(g *wire.Grant) { g.Cell = "home" }), clean, false},
		{"another port", grant(func(g *wire.Grant) { g.Account = "example.org:80" }), clean, false},
		{"another site", grant(func(g *wire.Grant) { g.Account = "www.example.org:443" }), clean, false},
		{"a call's", grant(func(g *wire.Grant) { g.Connector, g.Method = "github", "issues" }), clean, false},
		{"revoked", grant(func(g *wire.Grant) { g.Revoked = now }), clean, false},
		{"over", grant(func(g *wire.Grant) { g.Kind, g.Until = Until, now-1 }), clean, false},
		{"until a time", grant(func(g *wire.Grant) { g.Kind, g.Until = Until, now+3600 }), clean, true},
		{"standing", grant(func(g *wire.Grant) { g.Kind, g.Until = Standing, now+80*86400 }), clean, true},
		{"standing for too long", grant(func(g *wire.Grant) { g.Kind, g.Until = Standing, now+91*86400 }), clean, false},
		{"the cell has read since", grant(nil), tainted, false},
		{"for a cell that has read", grant(func(g *wire.Grant) { g.Tainted = true }), tainted, true},
		{"standing, for a cell that has read", grant(func(g *wire.Grant) { g.Kind, g.Until, g.Tainted = Standing, now+86400, true }), tainted, false},
		{"a month, for a cell that has read", grant(func(g *wire.Grant) { g.Kind, g.Until, g.Tainted = Until, now+30*86400, true }), tainted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := s.Decide(c.call, []wire.Grant{c.grant})
			if (d.Verdict == Allow) != c.want || c.want != (d.Grant == c.grant.ID && d.Verdict == Allow) {
				t.Errorf("%+v", d)
			}
		})
	}
	off := mustSet(t, "other-sites = \"off\"\n")
	if d := off.Decide(connectOf(off, site), []wire.Grant{grant(nil)}); d.Verdict != Deny {
		t.Errorf("a grant passes what is off: %+v", d)
	}
	if g := s.PrefillSite(tainted); !g.Tainted || g.Kind != Session {
		t.Errorf("asked after it has read: %+v", g)
	}
	nowhere := s.PrefillSite(s.ConnectCall(&Connect{Target: site, Cell: "dev", Now: testNow}))
	if nowhere.Kind != Until || nowhere.Until != now+12*3600 {
		t.Errorf("asked from no session that is known: %+v", nowhere)
	}
}

func TestValidateSite(t *testing.T) {
	s := mustSet(t, "")
	good := s.PrefillSite(connectOf(s, target(t, "example.org:443")))
	if g, err := s.ValidateSite(good, testNow); err != nil || g.Made != testNow.Unix() || g.Sentence != good.Sentence ||
		!strings.HasPrefix(g.Sentence, "programs of cell dev may connect to example.org:443 by TLS, in session run-1") {
		t.Errorf("%+v, %v", g, err)
	}
	for name, ch := range map[string]func(*wire.Grant){
		"another method":         func(g *wire.Grant) { g.Method = "x" },
		"no site":                func(g *wire.Grant) { g.Account = "home" },
		"a site in other words":  func(g *wire.Grant) { g.Account = "Example.org" },
		"more than one site":     func(g *wire.Grant) { g.Account = "*.example.org:443" },
		"no cell":                func(g *wire.Grant) { g.Cell = "" },
		"once":                   func(g *wire.Grant) { g.Kind = Once },
		"a count":                func(g *wire.Grant) { g.Count = 3 },
		"another limit":          func(g *wire.Grant) { g.Limits = []wire.Limit{{Field: "repo"}} },
		"no limit":               func(g *wire.Grant) { g.Limits = nil },
		"a limit of two values":  func(g *wire.Grant) { g.Limits = []wire.Limit{{Field: "begins", Values: []string{"tls", "other"}}} },
		"too long":               func(g *wire.Grant) { g.Kind, g.Until = Standing, testNow.Unix()+91*86400 },
		"tainted and standing":   func(g *wire.Grant) { g.Kind, g.Until, g.Tainted = Standing, testNow.Unix()+86400, true },
		"tainted for two weeks":  func(g *wire.Grant) { g.Kind, g.Until, g.Tainted = Until, testNow.Unix()+14*86400, true },
		"an end that has passed": func(g *wire.Grant) { g.Kind, g.Until = Until, testNow.Unix()-1 },
	} {
		g := good
		ch(&g)
		if _, err := s.ValidateSite(g, testNow); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestSetsAreHosts: every set's hosts are hosts, each with its reason, and none is in two.
func TestSetsAreHosts(t *testing.T) {
	seen := map[string]string{}
	for _, s := range siteSets() {
		if s.about == "" || len(s.hosts) == 0 || len(compiled[s.name]) != len(s.hosts) {
			t.Errorf("set %s is empty, or says not what it is", s.name)
		}
		for _, h := range s.hosts {
			if h.why == "" || seen[h.host] != "" {
				t.Errorf("%s of set %s has no reason, or is in %q too", h.host, s.name, seen[h.host])
			}
			seen[h.host] = s.name
		}
	}
}
