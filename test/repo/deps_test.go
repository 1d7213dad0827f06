// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"os/exec"
	"strings"
	"testing"
)

// deps lists what a binary links. The result of `go list` is cached by nothing here: the test is run with -count=1.
func deps(t *testing.T, bin string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "./"+bin)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", bin, err)
	}
	return strings.Fields(string(out))
}
