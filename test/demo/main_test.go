// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the demo prints can be pasted into a shell.
func TestACommandIsQuoted(t *testing.T) {
	args := []string{"--title", "The page is slow", "--body", `it's "$HOME" \`, "--repo", "ada/site", "", "a;b", "*", "~"}
	line := `printf "%s\n"`
	for _, a := range args {
		line += " " + quoted(a)
	}
	out, err := exec.Command("/bin/sh", "-c", line).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"); !slices.Equal(got, args) {
		t.Errorf("%s is read back as %q", line, got)
	}
	if got := quoted("ada/site"); got != "ada/site" {
		t.Errorf("quoted without need: %s", got)
	}
}

func TestTheDemoSaysWhyItCannotBeShown(t *testing.T) {
	dir := t.TempDir()
	if err := fit(dir, 0); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("a wrong prefix: %v", err)
	}
	for _, file := range []string{"bin/connector", "bin/doorward", "libexec/doorward/sentinel", "share/doorward/github.desc"} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := fit(dir, 1000); err == nil || !strings.Contains(err.Error(), "sudo make demo") {
		t.Errorf("not root: %v", err)
	}
	if err := fit(dir, 0); err != nil {
		t.Error(err)
	}
}
