// SPDX-License-Identifier: Apache-2.0

// Package old is run within a machine of test/vm that is below the floor: Debian 12 with its own kernel, 6.1, and its own
// systemd, 252. What docs/kernel.md says of it is held here: the package does not install, doctor says why, and what is put
// there by hand answers nobody.
package old

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/peer"
)

const deb = "/bench/doorward.deb"

func need(t *testing.T) {
	t.Helper()
	if os.Getenv("DOORWARD_IN_VM") == "" {
		t.Skip("VM ground: `make vm-test-full` runs it, in a machine of its own")
	}
}

// dpkg refuses in words, and nothing of Doorward runs or will.
func TestFullTheOldDebianTakesNoPackage(t *testing.T) {
	need(t)
	out, err := exec.Command("dpkg", "-i", deb).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "doorward depends on systemd (>= 255)") {
		t.Errorf("dpkg -i: %v\n%s", err, out)
	}
	out, _ = exec.Command("dpkg-query", "-W", "-f", "${Status}", "doorward").Output()
	if strings.Contains(string(out), "ok installed") {
		t.Errorf("it is installed: %s", out)
	}
	out, _ = exec.Command("systemctl", "list-units", "--plain", "--no-legend", "doorward*").Output()
	if len(out) > 0 {
		t.Errorf("these units are there:\n%s", out)
	}
	enabled, _ := filepath.Glob("/etc/systemd/system/*.wants/doorward*")
	if len(enabled) > 0 {
		t.Errorf("these units would start with the machine: %q", enabled)
	}
}

// doctor, from the package taken apart, names each missing wall and what to do.
func TestFullTheOldDebianIsRefusedByDoctor(t *testing.T) {
	need(t)
	dir := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "-x", deb, dir).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	cmd := exec.Command(filepath.Join(dir, "usr/bin/doorward"), "doctor", "--json")
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("doctor: want exit code 1: %v\n%s", err, out)
	}
	var said struct {
		Items []struct{ Check, State, What, Next string }
	}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	have := map[string]string{}
	for _, f := range said.Items {
		t.Logf("%s: %s: %s; next: %s", f.Check, f.State, f.What, f.Next)
		have[f.Check] = f.State
		if f.State == "wrong" && f.Next == "" {
			t.Errorf("%s: nothing is said of what to do", f.Check)
		}
	}
	for check, want := range map[string]string{
		"kernel.version": "wrong", "kernel.peerpidfd": "wrong", "systemd.version": "wrong", // refused
		"kernel.pidfdinfo": "weak", // degraded
		"kernel.cgroup2":   "ok", "kernel.namespaces": "ok", "kernel.seccomp": "ok",
	} {
		if have[check] != want {
			t.Errorf("doctor says of %s %q, want %q", check, have[check], want)
		}
	}
}

// Who calls is not known here, so nobody is answered.
func TestFullTheOldKernelProvesNobody(t *testing.T) {
	need(t)
	k, err := peer.Open()
	if err != nil {
		t.Logf("no look is taken at all: %v", err)
		return
	}
	defer k.Close()
	at := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	caller, err := net.Dial("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if id, err := k.Identify(c); err == nil || id != (peer.Identity{}) {
		t.Errorf("the caller is %v", id)
	} else {
		t.Log(err)
	}
}
