// SPDX-License-Identifier: Apache-2.0

package arm64

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var called = regexp.MustCompile(`(?m)\b([a-z][a-z0-9_]+)\(`)

// What Go calls on arm64 is in the list, as the emulator of Debian's qemu-user-static tells it.
func TestSD02TheCallsOfArm64AreListed(t *testing.T) {
	const emulator = "qemu-aarch64-static"
	if _, err := exec.LookPath(emulator); err != nil {
		t.Skipf("%s is not installed: system calls of arm64 are not looked at", emulator)
	}
	binary := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", binary, "./program")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build for arm64: %v\n%s", err, b)
	}
	b, err := exec.Command(emulator, "-strace", binary, "helper").CombinedOutput() // as its own helper, since this machine executes none of arm64
	if err != nil {
		t.Fatalf("run it: %v\n%s", err, b)
	}
	whole, _ := exec.Command(emulator, "-strace", binary).CombinedOutput() // its helper cannot be executed here: it ends in 1
	seen := map[string]bool{}
	for _, m := range called.FindAllStringSubmatch(string(b)+string(whole), -1) {
		seen[m[1]] = true
	}
	if !seen["mmap"] || !seen["clone"] || !seen["wait4"] && !seen["waitid"] {
		t.Fatalf("the emulator told too little: %v\n%.2000s", seen, whole)
	}
	for name := range seen {
		if !slices.Contains(Calls(), name) {
			t.Errorf("Go calls %s on arm64; add it to Calls, and see whether the units' filters have it", name)
		}
	}
}
