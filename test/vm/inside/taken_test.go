// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

const probe = "/usr/libexec/doorward/probe"

// outcome is what went through, by the names of package probe.
type outcome []string

// probed reads what a probe said.
func probed(t *testing.T, said string) outcome {
	t.Helper()
	if !strings.Contains(said, "probe: end") {
		t.Fatalf("the probe did not end:\n%s", said)
	}
	var o outcome
	for line := range strings.Lines(said) {
		if name, ok := strings.CutSuffix(strings.TrimSpace(line), ": through"); ok {
			o = append(o, strings.TrimPrefix(name, "probe: "))
		}
	}
	slices.Sort(o)
	return o
}

// prepareProbe installs the probe and returns its arguments, which are good until authd or a worker is restarted.
func prepareProbe(t *testing.T) []string {
	t.Helper()
	ready(t)
	b, err := os.ReadFile(bench + "/probe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(probe, b, 0o755); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(dav.Base())
	if err != nil {
		t.Fatal(err)
	}
	return []string{u.Host, fmt.Sprint(mainPID(t, "doorward-authd.service")),
		fmt.Sprint(mainPID(t, "doorward-worker@github.service"))}
}

// asRoot is what goes through for root outside of every wall: an attempt that fails there proves nothing elsewhere.
func asRoot(t *testing.T, args []string) outcome {
	t.Helper()
	r, err := do(exec.Command("systemd-run", append([]string{"--quiet", "--pipe", "--wait", "--collect", probe}, args...)...), "")
	if err != nil {
		t.Fatal(err)
	}
	return probed(t, r.stdout)
}

// inUnit runs the probe in the place of a daemon, with what the drop-in says besides.
func inUnit(t *testing.T, unit string, args []string, more string) outcome {
	t.Helper()
	undo := dropIn(t, unit, "Type=oneshot\nWatchdogSec=0\nRestart=no\nExecStart=\nExecStart="+probe+" "+strings.Join(args, " ")+"\n"+more)
	start := time.Now()
	time.Sleep(time.Second) // the journal is asked by seconds
	out, err := run("systemctl", "restart", unit)
	said := since(t, unit, start.Add(time.Second))
	if err != nil {
		t.Fatalf("%s%s\n%s", out, err, said)
	}
	undo()
	must(t, "systemctl", "restart", unit)
	return probed(t, said)
}

// daemonsMay is what goes through in the place of each daemon: its rows, what is its own, and what every process may see.
var daemonsMay = map[string]outcome{
	"doorward-worker@dav.service": {"see", "socket authd-worker", "socket egress-worker", "socket sentinel-worker"},
	"doorward-egress.service":     {"abstract", "elsewhere", "see", "socket authd-egress", "socket sentinel-egress", "tcp", "udp"},
	"doorward-sentinel.service": {"ledger", "proc-sys", "see", "socket authd-sentinel", "socket cells-sentinel", "socket egress-sentinel",
		"socket worker-sentinel"},
	"doorward-authd.service":     {"authd-store", "credentials"}, // it sees no authd in its own place
	"doorward-page.service":      {"socket approvals-page"},      // what it accepts was made before it
	"doorward-approvals.service": {"see", "socket sentinel-web"},
}

func TestATakenOverDaemonReachesOnlyItsRows(t *testing.T) {
	args := stage(t)
	root := asRoot(t, args)
	t.Logf("root, outside of all: %q", root)
	for unit, may := range daemonsMay {
		t.Run(unit, func(t *testing.T) {
			if have := inUnit(t, unit, prepareProbe(t), ""); !slices.Equal(have, may) {
				t.Errorf("what went through: %q, want %q", have, may)
			}
		})
	}
	// Control: outside of every wall, and with them taken away in the unit; one by one they are TestFullEachWallOfADaemon's.
	open := try(t, []trial{{name: "none", text: "ExecStart=" + probe + " " + strings.Join(prepareProbe(t), " ") + "\n"}})["none"]
	for _, w := range daemonWalls {
		for _, name := range w.stops {
			if !slices.Contains(root, name) || !slices.Contains(open, name) {
				t.Errorf("control: root does not get through with %s", name)
			}
		}
	}
}

// The payload of a cell, and what a person runs in it, both as its root. Wall by wall it is TestFullEachWallOfACell's and
// TestFullEachWallOfARun's.
func TestRootOfTheCellReachesNothing(t *testing.T) {
	args := stage(t)
	if err := makeTree("/var/lib/doorward/cells/probe"); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	all := func(wall) bool { return true }
	text := only(t, unitLines(t, "doorward-cell@.service", "work"), cellWalls, all) +
		nspawned(cellCommand(t), args, func(string) bool { return true })
	if have := try(t, []trial{{name: "all", text: text}})["all"]; !slices.Equal(have, cellMay) {
		t.Errorf("the payload: what went through: %q, want %q", have, cellMay)
	}
	if have := probed(t, person(t, "", append([]string{"run", "work", "--", probe}, args...)...).stdout); !slices.Equal(have, runMay) {
		t.Errorf("a run: what went through: %q, want %q", have, runMay)
	}
	root := asRoot(t, args)
	for _, w := range cellWalls {
		for _, name := range w.stops {
			if !slices.Contains(root, name) {
				t.Errorf("control: root does not get through with %s", name)
			}
		}
	}
}

// cellMay is what root of a cell may, all of it within the cell: its hostname is its own, a namespace or a set-uid program
// has no more than its users. A run cannot name the cell anew.
var (
	cellMay = outcome{"hostname", "namespace", "proc-sys", "program", "set-uid", "write-and-execute"}
	runMay  = outcome{"namespace", "proc-sys", "program", "set-uid", "write-and-execute"}
)

// A run has the filters of the daemon of cells. Each taken away, what it stops goes through.
func TestFullEachWallOfARun(t *testing.T) {
	args := stage(t)
	const unit = "doorward-cells.service"
	for key, through := range map[string][]string{
		"RestrictAddressFamilies": {"vsock", "alg"}, "SystemCallFilter": {"uring"}, "SystemCallArchitectures": {"int80"},
	} {
		undo, back := dropIn(t, unit, key+"=\n"), func() {}
		if key == "RestrictAddressFamilies" {
			back = withoutModule(t) // which refuses the same
		}
		must(t, "systemctl", "restart", unit)
		have := probed(t, person(t, "", append([]string{"run", "work", "--", probe}, args...)...).stdout)
		t.Logf("without %s: %q", key, have)
		for _, name := range through {
			if !slices.Contains(have, name) {
				t.Errorf("control: without %s %s does not go through", key, name)
			}
		}
		undo()
		back()
		must(t, "systemctl", "restart", unit)
	}
}
