// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
)

func TestHelpIsNoWiderThanAPage(t *testing.T) {
	many := strings.Split("completed cancelled failure neutral skipped stale success queued requested waiting pending", " ")
	got := methodHelp(&describe.Connector{Vendor: "demo"}, &describe.Method{Name: "runs", Class: describe.Read, Summary: "list runs",
		Args: []describe.Arg{
			{Name: "status", Type: describe.TypeEnum, Enum: many, Help: "only runs of this status"},
			{Name: "branch", Type: describe.TypePath, Help: strings.Repeat("words ", 40)},
			{Name: "path", Type: describe.TypePath, Help: "file in the repository"},
			{Name: "ref", Type: describe.TypeName, Help: "where it begins"},
			{Name: "assignee", Type: describe.TypeName, Repeat: 10, Help: "whom to assign, at most 10"},
			{Name: "number", Type: describe.TypeInt, Min: 1, Max: 1 << 52, Help: "which one"},
			{Name: "label", Type: describe.TypeString, Repeat: 20, Help: "a label"},
		}})
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > columns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"[--status STATUS]", "(one of completed, cancelled, ", "--branch          REF ", "--path            PATH ",
		"--ref             REF ", "--assignee        NAME ", "whom to assign, at most 10\n", "which one (from 1)\n",
		"a label (up to 20 times)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestMidnightIsOfferedWhereATimeIsWanted(t *testing.T) {
	a := &describe.Arg{Name: "from", Type: describe.TypeTime}
	p := parser{c: &describe.Connector{Vendor: "demo"}, m: &describe.Method{Name: "events", Args: []describe.Arg{*a}}}
	for _, value := range []string{"yesterday", "2030-13-40"} {
		err := p.add(a, value)
		if want := `--from "` + value + `": must be a date as 2030-03-10`; err == nil || !strings.HasPrefix(err.Reason, want) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
