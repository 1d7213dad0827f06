// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"os"
	"strings"
	"testing"
)

func leader(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(cellUnit + "/payload/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return first
}

// The package over itself does what an upgrade does: dpkg calls its scripts alike.
func TestAnUpgradeKeepsTheParkedCallAndTheCell(t *testing.T) {
	ready(t)
	must(t, "systemctl", "stop", "doorward-worker@github.service")
	before, cell := issues(), leader(t)
	pids := map[string]int{}
	id := parks(t, "Upgraded")
	for _, unit := range services {
		if unit != "doorward-worker@github.service" {
			pids[unit] = mainPID(t, unit)
		}
	}
	must(t, "dpkg", "-i", bench+"/doorward.deb")
	for unit, pid := range pids {
		if mainPID(t, unit) == pid {
			t.Errorf("%s still is process %d", unit, pid)
		}
	}
	if state := property(t, "doorward-worker@github.service", "ActiveState"); state != "inactive" {
		t.Errorf("a worker that was stopped is %s", state)
	}
	if now := leader(t); now != cell {
		t.Errorf("the cell's first process was %s and is %s", cell, now)
	}
	want(t, person(t, "", "approve", id, "--yes"), 0, "approve")
	want(t, connector(t, "wait", id), 0, "wait for what was approved")
	if n := issues() - before; n != 1 {
		t.Errorf("the vendor saw %d issues, want one", n)
	}
}

// It is the last test: after it nothing is there.
func TestRemovingStopsAllAndKeepsData(t *testing.T) {
	ready(t)
	must(t, "dpkg", "-r", "doorward")
	if said := must(t, "systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,failed", "doorward*.service",
		"doorward*.socket", "doorward.target"); strings.TrimSpace(said) != "" {
		t.Errorf("these units are left:\n%s", said)
	}
	if _, err := os.Stat(cellUnit); err == nil {
		t.Error("the cell's cgroup is left")
	}
	if said := must(t, "ip", "netns", "list"); strings.Contains(said, "doorward") {
		t.Errorf("a cell's network is left: %s", said)
	}
	for _, kept := range []string{"/var/lib/doorward/authd/store", "/var/lib/doorward/sentinel/ledger", "/var/lib/doorward/cells/work/home/agent",
		"/etc/credstore.encrypted/doorward.store-key"} {
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("after removing: %v", err)
		}
	}
	if said := must(t, "dpkg", "-P", "doorward"); !strings.Contains(said, "revoke them there") {
		t.Errorf("purging says nothing of the accounts that still work: %s", said)
	}
	for _, gone := range []string{"/var/lib/doorward", "/etc/doorward", "/etc/credstore.encrypted/doorward.store-key"} {
		if _, err := os.Stat(gone); err == nil {
			t.Errorf("%s is left after purging", gone)
		}
	}
}
