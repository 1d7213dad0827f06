// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A cell whose user is in a group that makes more of it, or whose unit has more in its environment than systemd puts
// there, starts by no way, and nothing runs in it. What is refused names the group or the variable. The control of each
// is the same cell without it.
func TestACellThatIsNotArmedStartsByNoWay(t *testing.T) {
	denned(t)
	const unit = "doorward-cell@" + den + ".service"
	group := filepath.Join("/var/lib/doorward/cells", den, "etc/group")
	before, err := os.ReadFile(group)
	if err != nil {
		t.Fatal(err)
	}
	set := func(more string) {
		t.Helper()
		if err := os.WriteFile(group, append(before[:len(before):len(before)], more...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set("") })
	control := func(what string) {
		t.Helper()
		must(t, "systemctl", "reset-failed", unit)
		want(t, person(t, "", "cell", "start", den), 0, "control, "+what+": start")
		want(t, person(t, "", "run", den, "--", "true"), 0, "control, "+what+": a run")
		want(t, person(t, "", "cell", "stop", den), 0, "control, "+what+": stop")
		must(t, "systemctl", "start", unit)
		must(t, "systemctl", "stop", unit)
	}
	refused := func(what, name string) {
		t.Helper()
		r := person(t, "", "cell", "start", den)
		if r.code != 3 || !strings.Contains(r.stderr, name) || !strings.Contains(r.stderr, "next: ") {
			t.Errorf("%s: doorward cell start: %v", what, r)
		}
		must(t, "systemctl", "reset-failed", unit)
		start := time.Now()
		if out, err := run("systemctl", "start", unit); err == nil {
			t.Errorf("%s: systemctl starts it: %s", what, out)
			must(t, "systemctl", "stop", unit)
		}
		if said := since(t, unit, start); !strings.Contains(said, name) {
			t.Errorf("%s: the unit does not say %q:\n%s", what, name, said)
		}
		if s := property(t, unit, "StatusText"); !strings.Contains(s, name) {
			t.Errorf("%s: the unit's status is %q", what, s)
		}
		must(t, "systemctl", "reset-failed", unit)
	}
	// Of a cell that runs, nothing more is started in it.
	set("sudo:x:27:agent\n")
	r := person(t, "", "run", den, "--", "true")
	if r.code != 3 || !strings.Contains(r.stderr, "the group sudo") {
		t.Errorf("a run of a user in sudo: %v", r)
	}
	want(t, person(t, "", "cell", "stop", den), 0, "stop")
	for _, name := range []string{"sudo", "docker", "lxd", "doorward"} {
		set(fmt.Sprintf("%s:x:901:agent\n", name))
		refused(name, "the group "+name)
	}
	if s := denState(t); !strings.Contains(s, "the group doorward") || !strings.Contains(s, "stopped") {
		t.Errorf("doorward cell show: %s", s)
	}
	set("")
	control("without the groups")

	undo := dropIn(t, unit, "Environment=SYSTEMD_NSPAWN_TMPFS_TMP=0\n")
	refused("a drop-in", "SYSTEMD_NSPAWN_TMPFS_TMP")
	undo()
	control("without the drop-in")
	must(t, "systemctl", "set-environment", "http_proxy=http://127.0.0.1:1")
	t.Cleanup(func() { must(t, "systemctl", "unset-environment", "http_proxy") })
	refused("the manager's environment", "http_proxy")
	must(t, "systemctl", "unset-environment", "http_proxy")
	control("without the variable")
}
