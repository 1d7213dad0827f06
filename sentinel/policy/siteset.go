// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// siteSet is a list of hosts that one line of policy.toml lets a cell reach, on port 443.
type siteSet struct {
	name  string
	about string
	hosts []setHost
	// spliced says why its connections are carried unread; empty: they are intercepted, reads go, and publishing asks.
	spliced string
}

// level is what a line that names the set gives its hosts.
func (s *siteSet) level() level {
	if s.spliced != "" {
		return allow
	}
	return read
}

// ownLogin is why the sets of model providers are spliced.
const ownLogin = "an agent's own login goes there, which Doorward does not hold and has no business to read; and each question to a " +
	"model is a POST, so it would ask"

// setHost is one host and why it is there.
type setHost struct{ host, why string }

// siteSets are the named sets. What is in one may be read; publishing there asks, since connections are intercepted. Where they
// are spliced the set says why: a spliced connection shows nothing but the name. No host is in a set whose only use is to
// publish, and none on which anybody can put up a server of their own.
//
// A host more is a widening: SiteSets tells sentinel, which has a person decide it.
func siteSets() []siteSet {
	return []siteSet{
		{"anthropic", "the model provider Anthropic", []setHost{
			{"api.anthropic.com", "the only host of its interface"},
		}, ownLogin},
		{"crates", "Rust's packages", []setHost{
			{"index.crates.io", "the index that cargo reads"},
			{"static.crates.io", "the packages; crates.io itself is left out, since publishing goes there"},
		}, ""},
		{"debian", "Debian's packages, by https", []setHost{
			{"deb.debian.org", "the archive, and its security updates"},
			{"security.debian.org", "security updates, in sources that name it"},
		}, ""},
		{"github-read", "what is public on GitHub", []setHost{
			{"github.com", "git over https, and releases"},
			{"codeload.github.com", "archives that github.com redirects to"},
			{"objects.githubusercontent.com", "files of releases that github.com redirects to"},
			{"raw.githubusercontent.com", "single files"},
			{"release-assets.githubusercontent.com", "files of releases that github.com redirects to"},
		}, ""},
		{"go", "Go's modules", []setHost{
			{"proxy.golang.org", "modules and toolchains"},
			{"sum.golang.org", "the log that their checksums are in"},
		}, ""},
		{"google-ai", "the model provider Google", []setHost{
			{"generativelanguage.googleapis.com", "the only host of its Gemini interface"},
		}, ownLogin},
		{"npm", "packages of npm", []setHost{
			{"registry.npmjs.org", "the index and the packages; npm publish goes there too, and asks"},
		}, ""},
		{"openai", "the model provider OpenAI", []setHost{
			{"api.openai.com", "the only host of its interface"},
		}, ownLogin},
		{"openrouter", "the model provider OpenRouter", []setHost{
			{"openrouter.ai", "its interface is below it"},
		}, ownLogin},
		{"pypi", "Python's packages", []setHost{
			{"pypi.org", "the index"},
			{"files.pythonhosted.org", "the packages; upload.pypi.org is left out, since publishing goes there"},
		}, ""},
	}
}

func setNames() []string {
	var out []string
	for _, s := range siteSets() {
		out = append(out, s.name)
	}
	return out
}

func setOfName(name string) *siteSet {
	sets := siteSets()
	for i := range sets {
		if sets[i].name == name {
			return &sets[i]
		}
	}
	return nil
}

// patterns are the hosts of a set. A table that names something else is a fault of the program.
func (s *siteSet) patterns() []pattern {
	var out []pattern
	for _, h := range s.hosts {
		p, err := parsePattern(h.host)
		if err != nil || p.addr.IsValid() || p.port != 0 {
			panic(fmt.Sprintf("set %s of sites: %q is no host", s.name, h.host))
		}
		p.tls = true
		out = append(out, p)
	}
	return out
}

// compiled are the patterns of every set, by name.
var compiled = func() map[string][]pattern {
	out := map[string][]pattern{}
	sets := siteSets()
	for i := range sets {
		out[sets[i].name] = sets[i].patterns()
	}
	return out
}()

func inSet(name string, t Target) bool {
	return slices.ContainsFunc(compiled[name], func(p pattern) bool { return p.matches(t) })
}

// SiteSets names, for each set, what it holds: a digest that changes with its hosts. The key is as Undecided takes it.
func SiteSets() map[string]string {
	out := map[string]string{}
	for _, s := range siteSets() {
		var hosts []string
		for _, h := range s.hosts {
			hosts = append(hosts, h.host)
		}
		slices.Sort(hosts)
		sum := wire.Sum([]byte(strings.Join(hosts, "\n")))
		out[setKey+" "+s.name] = hex.EncodeToString(sum[:])
	}
	return out
}

// setKey is what stands before a set's name where a connector's stands before a method's.
const setKey = "sites"

// SetLines says in lines for a person which sets there are and what is in them.
func SetLines() []string {
	var out []string
	for _, s := range siteSets() {
		how := "intercepted: reads go, publishing asks"
		if s.spliced != "" {
			how = "spliced: " + s.spliced
		}
		out = append(out, fmt.Sprintf("%s: %s; %s", s.name, s.about, how))
		for _, h := range s.hosts {
			out = append(out, fmt.Sprintf("  %s: %s", h.host, h.why))
		}
	}
	return out
}
