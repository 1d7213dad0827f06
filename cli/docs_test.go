// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/cli/clitest"
	"github.com/doorward/doorward/internal/describe"
)

// Every call that the documents show is one that the connectors take.
func TestCommandsOfTheDocuments(t *testing.T) {
	known := map[string]*describe.Connector{}
	for _, vendor := range []string{"dav", "github"} {
		file, err := exec.Command("go", "run", "../cmd/worker-"+vendor, "describe").Output()
		if err != nil {
			t.Fatalf("describe %s: %v", vendor, err)
		}
		if known[vendor], err = describe.Parse(file); err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	for _, shown := range clitest.Documents(t, "..", "connector") {
		args := shown.Args
		if len(args) == 0 {
			continue // the name alone
		}
		if slices.Contains(builtin[:], args[0]) {
			if o, _, err := plain(args[0], args[1:]); err != nil || o == nil {
				t.Errorf("%s: connector %s: %v", shown.Where, strings.Join(args, " "), err)
			}
			if args[0] != "describe" || len(args) < 2 || clitest.Placeholder(args[1]) {
				continue
			}
			args = args[1:]
			shown.Whole = false
		}
		c := known[args[0]]
		if c == nil {
			t.Errorf("%s: there is no connector %s", shown.Where, args[0])
			continue
		}
		if len(args) == 1 {
			continue
		}
		m, err := method(c, args[1])
		if err != nil {
			t.Errorf("%s: %v", shown.Where, err)
			continue
		}
		p := parser{c: c, m: m}
		if err := p.parse(args[2:]); err != nil {
			t.Errorf("%s: %v", shown.Where, err)
		}
		if shown.Whole {
			calls++
			if err := p.missing(); err != nil {
				t.Errorf("%s: %v", shown.Where, err)
			}
		}
	}
	if calls < 3 {
		t.Errorf("only %d calls are found", calls)
	}
}
