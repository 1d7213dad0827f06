// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strings"
	"testing"
)

func TestGuideIsOneTextOf60LinesAtMost(t *testing.T) {
	if n := strings.Count(Guide, "\n"); n > 60 {
		t.Errorf("%d lines, at most 60", n)
	}
	agents, err := os.ReadFile("guide/AGENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(agents) != Guide {
		t.Error("AGENTS.md is not what the command prints")
	}
	skill, err := os.ReadFile("guide/connector/SKILL.md")
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := strings.Cut(strings.TrimPrefix(string(skill), "---\n"), "---\n\n")
	if !ok || !strings.Contains(head, "name: connector\n") || !strings.Contains(head, "description: ") {
		t.Errorf("SKILL.md has no head with name and description: %q", head)
	}
	if body != Guide {
		t.Error("the body of SKILL.md is not what the command prints")
	}
}
