// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/doorward/doorward/sentinel/ledger"
)

// testName is a test that a document names, with the word before it, which may be its package. With "…" it is how the
// names of some begin.
var testName = regexp.MustCompile("([A-Za-z/]*) ?`(Test[A-Z0-9_][A-Za-z0-9_]*)(…?)`")

// Every test that the documents name is there, in the package that they name.
func TestTheTestsOfTheDocumentsAreThere(t *testing.T) {
	have := map[string][]string{} // package's folder, tests
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "build" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel("../..", filepath.Dir(path))
		for _, m := range declared.FindAllStringSubmatch(string(b), -1) {
			have[dir] = append(have[dir], m[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	find := func(word, name string, prefix bool) bool {
		within := func(dir string) bool { return dir == word || strings.HasSuffix(dir, "/"+word) }
		named := false
		for dir := range have {
			named = named || within(dir)
		}
		for dir, tests := range have {
			if named && !within(dir) {
				continue
			}
			for _, test := range tests {
				if test == name || prefix && strings.HasPrefix(test, name) {
					return true
				}
			}
		}
		return false
	}
	if find("", "TestThatIsNotThere", true) || find("scenario", "TestTheTestsOfTheDocumentsAreThere", false) {
		t.Error("control: a test that is not there is found")
	}
	var files []string
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/decisions/*.md"} {
		some, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	n := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testName.FindAllStringSubmatch(string(b), -1) {
			n++
			if !find(m[1], m[2], m[3] != "") {
				t.Errorf("%s names %s %s%s, which is not there", file, m[1], m[2], m[3])
			}
		}
	}
	if n < 5 {
		t.Errorf("only %d names are found", n)
	}
}

// What the README has one install is what the tests are run with elsewhere.
func TestThePrerequisitesAgree(t *testing.T) {
	packages := func(file, pattern string) string {
		b, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(pattern).FindStringSubmatch(string(b))
		if m == nil {
			t.Fatalf("%s has no such line", file)
		}
		return m[1]
	}
	readme := packages("README.md", `apt-get install -y (make .*)`)
	ci := packages(".ci/run", `packages="(make [^"]*)"`) + packages(".ci/run", `packages\+="( golang-go)"`)
	if readme != ci {
		t.Errorf("README.md: %s\n.ci/run:   %s", readme, ci)
	}
	machine := packages(".ci/run", `--no-install-recommends (qemu[a-z0-9 -]*[a-z0-9])`)
	for _, file := range []string{"README.md", "docs/vm.md"} {
		if has := packages(file, `--no-install-recommends (qemu[a-z0-9 -]*[a-z0-9])`); has != machine {
			t.Errorf("for the virtual machine %s has %q, and .ci/run %q", file, has, machine)
		}
	}
}

// The states that the protocol page lists are those of the ledger, and each of them goes to no others.
func TestTheStatesOfTheDocumentsAreThose(t *testing.T) {
	b, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| (?:`([a-z]+)`|\\(new\\)) \\| (`.*) \\|$")
	names := regexp.MustCompile("`([a-z]+)`")
	rows := 0
	for _, m := range row.FindAllStringSubmatch(string(b), -1) {
		rows++
		to := map[ledger.State]bool{}
		for _, n := range names.FindAllStringSubmatch(m[2], -1) {
			to[ledger.State(n[1])] = true
		}
		for _, s := range ledger.States() {
			if ledger.May(ledger.State(m[1]), s) != to[s] {
				t.Errorf("%q to %q: the page says %v", m[1], s, to[s])
			}
		}
	}
	if rows != 5 {
		t.Errorf("%d rows, want 5", rows)
	}
}
