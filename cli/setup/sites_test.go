// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/sentinel/policy"
)

// TestSetsAreThoseOfThePolicy: setup offers what policy knows, and chooses of that.
func TestSetsAreThoseOfThePolicy(t *testing.T) {
	var known []string
	for key := range policy.SiteSets() {
		known = append(known, strings.TrimPrefix(key, "sites "))
	}
	slices.Sort(known)
	if !slices.Equal(known, siteSets) {
		t.Errorf("policy knows %q, setup %q", known, siteSets)
	}
	for _, a := range agents {
		if a.model != "" && !slices.Contains(known, a.model) {
			t.Errorf("%s: no set %s", a.name, a.model)
		}
	}
	for _, r := range registries {
		if !slices.Contains(known, r.set) {
			t.Errorf("%s: no set %s", r.program, r.set)
		}
	}
	files := policy.Files{policy.PolicyFile: []byte("[connector]\n")}
	if _, err := policy.Compile(files, nil); err != nil {
		t.Fatalf("control: %v", err)
	}
	files[policy.PolicyFile] = []byte(sitesLine(siteSets) + "[connector]\n")
	if _, err := policy.Compile(files, nil); err != nil {
		t.Errorf("what setup writes: %v", err)
	}
}

// TestSitesThatAreChosen: by the agent, and by the programs that fetch packages.
func TestSitesThatAreChosen(t *testing.T) {
	for _, c := range []struct {
		name, tree, answer string
		agents, programs   []string
		want               []string
	}{
		{name: "an agent of one provider", agents: []string{"codex"}, want: []string{"openai"}},
		{name: "one that takes any", agents: []string{"opencode"}, want: nil},
		{name: "two, with package programs", agents: []string{"claude", "codex"}, programs: []string{"npm", "pip3", "uv", "cargo"},
			want: []string{"anthropic", "crates", "npm", "openai", "pypi"}},
		{name: "a Debian of its own", tree: "mmdebstrap", programs: []string{"npm"}, want: []string{"debian"}},
		{name: "nothing there", want: nil},
		{name: "another answer", agents: []string{"codex"}, answer: "npm, github-read", want: []string{"npm", "github-read"}},
		{name: "none", agents: []string{"codex"}, answer: "-", want: nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := machine(t, t.TempDir())
			for _, p := range c.programs {
				write(t, r.top+"/usr/local/bin/"+p, "#!/bin/sh\n", 0o755)
			}
			r.j.Config.Tree = c.tree
			for _, a := range c.agents {
				r.j.Found = append(r.j.Found, Found{Name: a})
			}
			r.Question = func(string) (string, error) { return c.answer, nil }
			if err := r.askSites(); err != nil || !slices.Equal(r.j.Config.Sites, c.want) {
				t.Errorf("%q, %v; want %q", r.j.Config.Sites, err, c.want)
			}
		})
	}
	r := machine(t, t.TempDir())
	r.Question = func(string) (string, error) { return "npn", nil }
	if err := r.askSites(); err == nil || !strings.Contains(err.Error(), "none of anthropic, crates") {
		t.Errorf("a set there is not: %v", err)
	}
	write(t, r.policy(), "sites = []\n", 0o644)
	r.Question = func(string) (string, error) { return "", errors.New("a question") }
	if err := r.askSites(); err != nil {
		t.Errorf("a policy that says so itself: %v", err)
	}
}

// TestThePolicyIsThePersons: a line is written where it is missing and the file is otherwise left; undoing takes the line, and
// the file where nobody but setup wrote it. What nobody has decided yet is not decided by setup.
func TestThePolicyIsThePersons(t *testing.T) {
	const line = "sites = [\"npm\", \"openai\"]\n"
	for _, c := range []struct {
		name, was, other string // other: a second file of the folder
		want             string // after setup; "" is the package's remarks and the line
		loads            int
		edit             func(string) string // by the person, before the undoing
		left             string              // after the undoing; "" is no file
		says             string
	}{
		{name: "no policy", loads: 1},
		{name: "no policy, edited since", loads: 1, edit: func(s string) string { return s + "other-sites = \"off\"\n" },
			left: "# remarks\n\n# By doorward setup:\nother-sites = \"off\"\n", says: "was changed since setup made it"},
		{name: "no policy, its line edited since", loads: 1, edit: func(s string) string { return strings.Replace(s, "npm", "go", 1) },
			left: "# remarks\n\n# By doorward setup:\nsites = [\"go\", \"openai\"]\n"},
		{name: "no policy, but rules", other: "own.cedar", says: "doorward policy load"},
		{name: "one without the line", was: "# mine\n[connector.dav]\nsetting = \"dont-ask\"\n",
			want: line + "# mine\n[connector.dav]\nsetting = \"dont-ask\"\n", left: "# mine\n[connector.dav]\nsetting = \"dont-ask\"\n",
			says: "doorward policy load"},
		{name: "one with it", was: "sites = [\"go\"]\n", want: "sites = [\"go\"]\n", left: "sites = [\"go\"]\n",
			says: "stays as it is"},
		{name: "one that cannot be read", was: "sites = [\n", want: "sites = [\n", left: "sites = [\n", says: "cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := inMemory(t)
			populate(t, top)
			r := machine(t, top)
			if c.was != "" {
				write(t, r.policy(), c.was, 0o644)
			}
			if c.other != "" {
				write(t, filepath.Join(filepath.Dir(r.policy()), c.other), "// mine\n", 0o644)
			}
			if err := r.setUp(false); err != nil {
				t.Fatal(err)
			}
			want := c.want
			if want == "" {
				want = "# remarks\n\n# By doorward setup:\n" + line
			}
			b, err := os.ReadFile(r.policy())
			if err != nil || string(b) != want || r.loads != c.loads {
				t.Fatalf("%q, %v; loaded %d times; want %q", b, err, r.loads, want)
			}
			if c.edit != nil {
				write(t, r.policy(), c.edit(string(b)), 0o644)
			}
			u := machine(t, top)
			if err := u.undoAll(); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(r.policy()); string(b) != c.left || (c.left == "") != errors.Is(err, os.ErrNotExist) {
				t.Errorf("undone it is %q, %v; want %q", b, err, c.left)
			}
			if said := strings.Join(append(r.said, u.said...), "\n"); !strings.Contains(said, c.says) {
				t.Errorf("no %q in\n%s", c.says, said)
			}
		})
	}
}
