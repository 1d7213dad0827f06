// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// The committed objects and what Go reads of them are, byte for byte, what the sources make. It takes the one compiler that they
// are made with; another writes other code.
func TestTheObjectsAreWhatTheSourcesMake(t *testing.T) {
	version, err := exec.Command("clang", "--version").Output()
	if err != nil || !regexp.MustCompile(`version 14\.`).Match(version) {
		t.Skip("generate-check skipped: needs clang 14")
	}
	for _, needs := range []string{"/usr/include/bpf/bpf_helpers.h", "/usr/bin/llvm-strip"} {
		if _, err := os.Stat(needs); err != nil {
			t.Skip("generate-check skipped: needs llvm and libbpf-dev")
		}
	}
	src, err := os.ReadFile("bpf.go")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`(?m)^//go:generate -command cc go (.*) -cflags "(.*)"$`).FindSubmatch(src)
	if flags == nil {
		t.Fatal("bpf.go does not say how to compile")
	}
	dir, made := t.TempDir(), 0
	for _, m := range regexp.MustCompile(`(?m)^//go:generate cc (.*)$`).FindAllSubmatch(src, -1) {
		args := append(strings.Fields(string(flags[1])), "-output-dir", dir, "-cflags", string(flags[2]))
		cmd := exec.Command("go", append(args, strings.Fields(string(m[1]))...)...)
		cmd.Env = append(os.Environ(), "GOPACKAGE=bpf")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	committed, err := filepath.Glob("*_bpfel.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range committed {
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("no source makes %s", name)
			continue
		}
		if made++; !bytes.Equal(have, want) {
			t.Errorf("%s is not what its source makes: make generate, and commit it", name)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != made || made == 0 {
		t.Errorf("%d files are committed, the sources make %d (%v)", made, len(all), err)
	}
}

// Every program has the names that this module finds it by, and its licence is one that the kernel gives its helpers to.
func TestTheObjectsLoadIntoGo(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"steer": LoadSteer, "gate": LoadGate, "worker": LoadWorker, "lsm": LoadLsm} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		if len(spec.Programs) == 0 || len(spec.Maps) == 0 {
			t.Errorf("%s has %d programs and %d maps", name, len(spec.Programs), len(spec.Maps))
		}
		for _, p := range spec.Programs {
			if p.License != "GPL" {
				t.Errorf("%s: the licence of %s is %q", name, p.Name, p.License)
			}
		}
	}
}
