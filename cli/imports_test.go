// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The binary links what is in testdata/imports.txt and nothing else: each package more is start time and trust. Delete
// lines freely; a new line needs a reason.
func TestBinaryLinksOnlyWhatIsListed(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "github.com/doorward/doorward/cmd/connector")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	file, err := os.ReadFile("testdata/imports.txt")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for l := range strings.Lines(string(file)) {
		if l = strings.TrimSpace(l); l != "" && l[0] != '#' {
			listed = append(listed, l)
		}
	}
	got := strings.Fields(string(out))
	for _, p := range got {
		if internal(p) {
			continue // of the standard library: its own affair, and changes with the toolchain
		}
		if !slices.Contains(listed, p) {
			t.Errorf("%s is linked and not listed", p)
		}
	}
	for _, p := range listed {
		if !slices.Contains(got, p) {
			t.Errorf("%s is listed and not linked", p)
		}
	}
}

func internal(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".") && (first == "internal" || strings.Contains(p, "/internal/"))
}
