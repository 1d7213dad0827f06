// SPDX-License-Identifier: Apache-2.0

package inside

import (
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

// prepareProbe installs the probe and returns its arguments.
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
	return []string{u.Host, fmt.Sprint(mainPID(t, "doorward-authd.service"))}
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

// open takes the walls of a unit away that are not its user.
const open = `TemporaryFileSystem=
PrivateNetwork=no
RestrictAddressFamilies=
IPAddressDeny=
NoExecPaths=
RestrictNamespaces=no
SystemCallFilter=
PrivateUsers=no
`

func TestATakenOverDaemonReachesOnlyItsRows(t *testing.T) {
	args := prepareProbe(t)
	root := asRoot(t, args)
	t.Logf("root, outside of all: %q", root)
	for unit, may := range map[string]outcome{
		"doorward-worker@dav.service": {"socket authd-worker", "socket egress-worker", "socket sentinel-worker"},
		"doorward-egress.service":     {"socket authd-egress", "socket sentinel-egress", "tcp"},
		"doorward-sentinel.service":   {"ledger", "socket authd-sentinel", "socket cells-sentinel", "socket egress-sentinel", "socket worker-sentinel"},
		"doorward-authd.service":      {"authd-store", "credentials"},
	} {
		t.Run(unit, func(t *testing.T) {
			have := inUnit(t, unit, args, "")
			slices.Sort(may)
			if !slices.Equal(have, may) {
				t.Errorf("what went through: %q, want %q", have, may)
			}
			control := inUnit(t, unit, args, open)
			t.Logf("control, with the walls taken away that are not its user: %q", control)
			for _, name := range []string{"tcp", "vsock", "dbus", "journal", "program", "namespace", "uring"} {
				if !slices.Contains(control, name) {
					t.Errorf("control: %s does not go through without the wall", name)
				}
			}
		})
	}
	// What only its user keeps from it.
	for _, name := range []string{"systemd", "authd-store", "ledger", "sealed-key", "shadow", "memory", "root-of-init", "signal",
		"disk", "cgroup", "packet", "alg", "bpf", "module", "socket approve", "socket authd-admin", "socket cell-sentinel"} {
		if !slices.Contains(root, name) {
			t.Errorf("control: root does not get through with %s", name)
		}
	}
}

// The payload of a cell, as its root. What enters a cell later has the walls of the namespaces and of the cgroup; the
// filters of system calls and socket families are the unit's, and come by descent alone: a run has those of the daemon of cells.
func TestRootOfTheCellReachesNothing(t *testing.T) {
	args := prepareProbe(t)
	if err := makeTree("/var/lib/doorward/cells/probe"); err != nil {
		t.Fatal(err)
	}
	// What the unit becomes stands in the command line of a cell that runs.
	ready(t)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", mainPID(t, "doorward-cell@work.service")))
	if err != nil {
		t.Fatal(err)
	}
	start, ok := strings.CutSuffix(strings.ReplaceAll(strings.TrimSuffix(string(b), "\x00"), "\x00", " "), "sleep infinity")
	if !ok || !strings.Contains(start, "--console=passive") || strings.Count(start, "work") != 2 {
		t.Fatalf("the cell's unit became another command: %q", start)
	}
	start = strings.ReplaceAll(start, "work", "probe") // its name and its folder
	start = strings.Replace(start, "--console=passive", "--console=pipe", 1) + probe + " " + strings.Join(args, " ")
	const unit = "doorward-cell@probe.service"
	in := func(more string) outcome {
		undo := dropIn(t, unit, "Type=oneshot\nExecStart=\nExecStart="+start+"\n"+more)
		defer undo()
		from := time.Now()
		time.Sleep(time.Second)
		out, err := run("systemctl", "restart", unit)
		said := since(t, unit, from.Add(time.Second))
		if err != nil {
			t.Fatalf("%s%s\n%s", out, err, said)
		}
		return probed(t, said)
	}
	if have, want := in(""), (outcome{"namespace", "program"}); !slices.Equal(have, want) {
		t.Errorf("what went through: %q, want %q", have, want)
	}
	control := in("RestrictAddressFamilies=\nSystemCallFilter=\n")
	t.Logf("control, without the unit's filters: %q", control)
	if !slices.Contains(control, "vsock") && !slices.Contains(control, "uring") {
		t.Errorf("control: neither vsock nor io_uring goes through without the unit's filters")
	}
	root := asRoot(t, args)
	for _, name := range []string{"tcp", "packet", "dbus", "systemd", "authd-store", "shadow", "memory", "signal", "disk", "cgroup", "bpf",
		"module", "socket approve"} {
		if !slices.Contains(root, name) {
			t.Errorf("control: root does not get through with %s", name)
		}
	}
}
