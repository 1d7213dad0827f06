// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What a program that was built for it says of itself comes back as the start script packs it, and is merged.
func TestWhatRanComesBack(t *testing.T) {
	dir, root := t.TempDir(), "../.."
	program, said := filepath.Join(dir, "hello"), filepath.Join(dir, "in/cover")
	if err := os.MkdirAll(said, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := build(t.Context(), root, "build", "-cover", "-o", program, "./test/bench/hello"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = []string{"GOCOVERDIR=" + said}
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if err := command(t.Context(), "tar", "-C", filepath.Dir(said), "-czf", filepath.Join(dir, "cover.tar.gz"), "cover"); err != nil {
		t.Fatal(err)
	}
	got, err := unpackCover(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := mergeCover(t.Context(), root, dir, []string{got}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"coverage.txt": "test/bench/hello", "coverage.out": "mode: "} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v\n%s", name, err, b)
		}
	}
}
