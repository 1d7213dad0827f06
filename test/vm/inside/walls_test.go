// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"

	"golang.org/x/sys/unix"
)

// A wall is what some lines of a unit do against who has taken its process over.
type wall struct {
	name  string
	lines []string // the keys that make it
	// stops are the attempts of package probe that it keeps from going through by itself, with every other wall away.
	stops []string
}

// daemonWalls are those of the daemons' units. Whatever a unit has that is not here or in noWall fails the test.
var daemonWalls = []wall{
	{"user", []string{"DynamicUser", "User", "Group", "SupplementaryGroups"}, []string{"authd-store", "ledger", "credentials",
		"sealed-key", "shadow", "memory", "memory-of-worker", "ptrace", "signal", "disk", "disk-node", "disk-mounted", "cgroup",
		"cgroup-mounted", "packet", "bpf", "module", "systemd", "cron", "usr", "tunable", "hostname", "socket approve",
		"socket authd-admin", "socket cell-worker"}},
	// Not the daemons' memory: who has the uid that made their user namespaces, root, has all capabilities over them.
	{"capabilities", []string{"CapabilityBoundingSet", "AmbientCapabilities"}, []string{"authd-store", "ledger", "root-of-init",
		"disk-node", "disk-mounted", "cgroup-mounted", "packet", "bpf", "module", "hostname"}},
	{"users", []string{"PrivateUsers"}, []string{"memory", "memory-of-worker", "ptrace", "disk-mounted", "bpf", "module", "hostname"}},
	{"run", []string{"TemporaryFileSystem", "BindReadOnlyPaths"}, []string{"dbus", "systemd", "journal", "resolved", "docker",
		"agent",
		"socket approve", "socket authd-admin", "socket cell-worker", "socket worker-sentinel"}},
	{"network", []string{"PrivateNetwork"}, []string{"tcp", "elsewhere", "udp", "abstract"}},
	// What is attached to the slice of workers (package cellnet). Egress's has nothing, and it does these things.
	{"slice", []string{"Slice"}, []string{"tcp", "elsewhere", "udp"}},
	{"families", []string{"RestrictAddressFamilies"}, []string{"tcp", "elsewhere", "udp", "vsock", "packet", "alg"}},
	{"addresses", []string{"IPAddressDeny"}, []string{"tcp", "elsewhere", "udp"}},
	{"programs", []string{"NoExecPaths", "ExecPaths"}, []string{"program"}},
	{"namespaces", []string{"RestrictNamespaces"}, []string{"namespace"}},
	{"calls", []string{"SystemCallFilter", "SystemCallErrorNumber"}, []string{"uring", "bpf", "module", "ptrace", "disk-mounted",
		"hostname"}},
	{"architectures", []string{"SystemCallArchitectures"}, []string{"int80"}},
	{"devices", []string{"PrivateDevices"}, []string{"disk", "disk-node", "kernel-log"}},
	{"system", []string{"ProtectSystem", "StateDirectory", "StateDirectoryMode", "ConfigurationDirectory"}, []string{"usr", "cron"}},
	{"home", []string{"ProtectHome"}, []string{"home"}},
	{"tmp", []string{"PrivateTmp"}, []string{"tmp"}},
	{"ipc", []string{"PrivateIPC"}, []string{"shared-memory"}},
	{"cgroups", []string{"ProtectControlGroups"}, []string{"cgroup"}},
	{"tunables", []string{"ProtectKernelTunables"}, []string{"tunable"}},
	{"modules", []string{"ProtectKernelModules"}, []string{"module"}},
	{"log", []string{"ProtectKernelLogs"}, []string{"kernel-log"}},
	{"hostname", []string{"ProtectHostname"}, []string{"hostname"}},
	{"proc", []string{"ProcSubset"}, []string{"proc-sys"}},
	{"memory", []string{"MemoryDenyWriteExecute"}, []string{"write-and-execute"}},
	{"personality", []string{"LockPersonality"}, []string{"personality"}},
	{"realtime", []string{"RestrictRealtime"}, []string{"realtime"}},
	{"set-uid", []string{"RestrictSUIDSGID"}, []string{"set-uid"}},
}

// noWall are the other keys: how a unit runs, and what keeps nobody from anything that is tried here.
var noWall = []string{"Type", "ExecStart", "Sockets", "WatchdogSec", "WatchdogSignal", "TimeoutStopSec", "Restart",
	"RestartSec", "RestartSteps", "RestartMaxDelaySec", "LoadCredentialEncrypted",
	"NoNewPrivileges", // no program can be executed that would gain any
	"LimitCORE",       // a core would be systemd-coredump's to keep
	"UMask", "KeyringMode", "RemoveIPC", "ProtectClock",
	"RestrictNetworkInterfaces", // all that is tried is on lo
	"Delegate", "KillMode", "SuccessExitStatus"}

// stage is what the attempts need on this machine: something that answers, or lies there, for whoever is not kept out.
func stage(t *testing.T) (args []string) {
	t.Helper()
	args = prepareProbe(t)
	for _, at := range []string{"/run/systemd/resolve/io.systemd.Resolve", "/run/docker.sock", "/run/ssh-agent/agent.1", "@doorward-bench"} {
		if at[0] == '/' {
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		ln, err := listen(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
	}
	udp, err := net.ListenPacket("udp", args[0]) // beside the vendor's TCP port
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	go func() {
		b := make([]byte, 16)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(b[:n], from)
		}
	}()
	must(t, "ip", "address", "add", "192.0.2.1/32", "dev", "lo")
	t.Cleanup(func() { must(t, "ip", "address", "delete", "192.0.2.1/32", "dev", "lo") })
	elsewhere, err := net.Listen("tcp", "192.0.2.1:4445")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { elsewhere.Close() })
	go func() { // it says something: in a cell's network egress would take the connection, and wait for the client's first word
		for {
			c, err := elsewhere.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("x"))
			c.Close()
		}
	}()
	id, err := unix.SysvShmGet(0x646f6f72, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	err = errors.Join(os.MkdirAll("/home/ada", 0o755), os.WriteFile("/home/ada/diary", nil, 0o644), os.MkdirAll("/etc/cron.d", 0o755),
		os.WriteFile("/tmp/doorward-bench", nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = run("modprobe", "-a", "vsock", "vsock_loopback", "af_alg", "algif_hash", "af_packet") // what is not there, its control says
	return args
}

// trial is a unit that is made to try a set of walls.
type trial struct{ name, text string }

func (tr trial) out() string { return "/run/trial/" + tr.name + ".out" }

// try runs trials, one behind the other, and returns what went through in each.
func try(t *testing.T, trials []trial) map[string]outcome {
	t.Helper()
	if err := os.MkdirAll("/run/trial", 0o700); err != nil {
		t.Fatal(err)
	}
	var units []string
	for _, tr := range trials {
		unit := "trial-" + tr.name + ".service"
		text := "[Service]\nType=oneshot\nTimeoutStartSec=5min\nStandardOutput=truncate:" + tr.out() + "\nStandardError=inherit\n" + tr.text
		path := "/run/systemd/system/" + unit
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(path) })
		units = append(units, unit)
	}
	must(t, "systemctl", "daemon-reload")
	have := map[string]outcome{}
	for i, tr := range trials {
		_ = os.Remove(tr.out()) // of an earlier trial of that name
		said, failed := run("systemctl", "start", units[i])
		b, err := os.ReadFile(tr.out())
		if err != nil || !strings.Contains(string(b), "probe: end") {
			t.Fatalf("trial %s did not end: %v %v\n%s\n%s\n%s", tr.name, err, failed, said, b, tr.text)
		}
		have[tr.name] = probed(t, string(b))
		if err := os.WriteFile(filepath.Join(os.Getenv("OUT"), "trial-"+tr.name+".txt"), b, 0o644); err != nil {
			t.Error(err)
		}
	}
	return have
}

// unitLines are the lines of a unit's [Service], without what only a daemon needs.
func unitLines(t *testing.T, file, instance string) (lines []string) {
	t.Helper()
	b, err := os.ReadFile("/usr/lib/systemd/system/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, service, _ := strings.Cut(string(b), "\n[Service]\n")
	service, _, _ = strings.Cut(service, "\n[")
	for line := range strings.Lines(service) {
		line = strings.ReplaceAll(strings.TrimSpace(line), "%i", instance)
		if line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// only are the lines of those walls, or of all, and the plain ones.
func only(t *testing.T, lines []string, walls []wall, keep func(wall) bool) string {
	t.Helper()
	var text strings.Builder
	for _, line := range lines {
		key, _, _ := strings.Cut(line, "=")
		i := slices.IndexFunc(walls, func(w wall) bool { return slices.Contains(w.lines, key) })
		switch {
		case i >= 0 && keep(walls[i]), i < 0 && (key == "Slice" || key == "LoadCredentialEncrypted" || key == "Delegate"):
			text.WriteString(line + "\n")
		case i < 0 && !slices.Contains(noWall, key):
			t.Errorf("%s: no wall of the table", line)
		}
	}
	return text.String()
}

// hold holds what went through behind each wall to what it is there for, and the trial without walls to all of it.
// What the unit is there to do no wall of it stops.
func hold(t *testing.T, have map[string]outcome, walls []wall, has func(wall) bool, does ...string) {
	t.Helper()
	open := have["open"]
	t.Logf("without a wall: %q", open)
	for _, w := range walls {
		if !has(w) {
			continue
		}
		var stopped []string
		for _, a := range open {
			if !slices.Contains(have[w.name], a) {
				stopped = append(stopped, a)
			}
		}
		t.Logf("%s alone stops %q", w.name, stopped)
		for _, a := range w.stops {
			switch {
			case slices.Contains(does, a):
			case !slices.Contains(open, a):
				t.Errorf("control: %s does not go through without %s", a, w.name)
			case slices.Contains(have[w.name], a):
				t.Errorf("%s goes through behind %s alone", a, w.name)
			}
		}
	}
}

// Each wall of a worker's and of egress's unit by itself, and none: the attempt is the same program, and the wall is all
// that differs.
func TestFullEachWallOfADaemon(t *testing.T) {
	args := stage(t)
	for _, d := range []struct {
		file, instance, unit string
		does                 []string
	}{
		{"doorward-worker@.service", "dav", "doorward-worker@dav.service", nil},
		{"doorward-egress.service", "", "doorward-egress.service", []string{"tcp", "elsewhere", "udp"}},
	} {
		t.Run(d.file, func(t *testing.T) {
			lines := unitLines(t, d.file, d.instance)
			has := func(w wall) bool {
				return slices.ContainsFunc(lines, func(l string) bool {
					key, _, _ := strings.Cut(l, "=")
					return slices.Contains(w.lines, key)
				})
			}
			start := "ExecStart=" + probe + " " + strings.Join(args, " ") + "\n"
			trials := []trial{
				{name: "all", text: start + only(t, lines, daemonWalls, func(wall) bool { return true })},
				{name: "open", text: start + only(t, lines, daemonWalls, func(wall) bool { return false })},
			}
			for _, w := range daemonWalls {
				if has(w) {
					alone := only(t, lines, daemonWalls, func(o wall) bool { return o.name == w.name })
					trials = append(trials, trial{name: w.name, text: start + alone})
				}
			}
			have := try(t, trials)
			if got, may := have["all"], daemonsMay[d.unit]; !slices.Equal(got, may) {
				t.Errorf("behind all walls went through: %q, want %q", got, may)
			}
			hold(t, have, daemonWalls, has, d.does...)
		})
	}
}

// cellWalls are those of the cell's unit, and those that nspawn makes by the options and the environment it is started with.
var cellWalls = []wall{
	{"network", []string{"NetworkNamespacePath"}, []string{"tcp", "elsewhere", "udp", "abstract"}},
	// What is attached to the slice of cells (package cellnet): no socket in the machine's own network.
	{"gate", []string{"Slice"}, []string{"tcp", "elsewhere", "udp"}},
	{"bounding", []string{"CapabilityBoundingSet"}, []string{"module"}},
	{"devices", []string{"DevicePolicy"}, []string{"disk-node"}},
	{"personality", []string{"LockPersonality"}, []string{"personality"}},
	{"realtime", []string{"RestrictRealtime"}, []string{"realtime"}},
	{"families", []string{"RestrictAddressFamilies"}, []string{"vsock", "alg", "packet"}},
	{"calls", []string{"SystemCallFilter", "SystemCallErrorNumber"}, []string{"uring", "bpf", "module"}},
	{"architectures", []string{"SystemCallArchitectures"}, []string{"int80"}},
	{"users", nil, []string{"authd-store", "ledger", "sealed-key", "disk-node", "disk-mounted", "packet", "bpf", "module", "systemd",
		"socket approve", "socket authd-admin"}},
	{"capabilities", nil, []string{"module"}},
	{"mounts", nil, []string{"authd-store", "ledger", "sealed-key", "dbus", "systemd", "journal", "docker", "resolved", "agent",
		"home",
		"socket approve", "socket authd-admin", "socket authd-worker"}},
	{"pids", nil, []string{"see", "memory", "memory-of-worker", "ptrace", "signal"}},
	{"cgroups", nil, []string{"cgroup-mounted"}},
	{"ipc", nil, []string{"shared-memory"}},
}

// bound is what the machine has and a cell's mounts have not, brought in where that wall is taken away.
var bound = []string{"/run/dbus", "/run/systemd/private", "/run/systemd/journal", "/run/systemd/resolve", "/run/docker.sock",
	"/run/ssh-agent",
	"/run/doorward/approve", "/run/doorward/authd", "/var/lib/doorward/authd", "/var/lib/doorward/sentinel", "/etc/credstore.encrypted",
	"/etc/cron.d", "/home/ada"}

// nspawned is a unit's text that runs the probe in a tree with those walls alone. base is the command that the cell's unit
// becomes, up to what runs in the cell.
func nspawned(base []string, args []string, keep func(name string) bool) string {
	var env []string
	tree := "probe"
	line := slices.Clone(base)
	drop := func(option string) {
		line = slices.DeleteFunc(line, func(a string) bool { return a == option || strings.HasPrefix(a, option+"=") })
	}
	add := func(options ...string) { line = append(line, options...) }
	drop("--console")
	add("--console=pipe")
	if !keep("users") {
		drop("--private-users")
		drop("--private-users-ownership")
		tree = "bare" // its files have the machine's ids
	}
	if !keep("capabilities") {
		add("--capability=all")
	}
	if !keep("mounts") {
		for _, b := range bound {
			add("--bind=" + b)
		}
	}
	// In a user namespace of its own a cell needs its own of these too, or it cannot mount what shows them.
	if !keep("pids") && !keep("users") {
		env = append(env, "SYSTEMD_NSPAWN_SHARE_NS_PID=1")
		drop("--as-pid2")
	}
	if !keep("cgroups") && !keep("users") {
		env = append(env, "SYSTEMD_NSPAWN_USE_CGNS=0")
	}
	if !keep("ipc") && !keep("users") {
		env = append(env, "SYSTEMD_NSPAWN_SHARE_NS_IPC=1")
	}
	if !keep("all") {
		add("--system-call-filter=@known") // nspawn's own list is not relied on; it is away in every trial but that of all
	}
	for i := range line {
		line[i] = strings.ReplaceAll(line[i], "work", tree)
	}
	line = append(append(line, "--", probe), args...)
	return "Environment=" + strings.Join(env, " ") + "\nExecStart=" + strings.Join(line, " ") + "\n"
}

// Each wall of a cell by itself, for root in it.
func TestFullEachWallOfACell(t *testing.T) {
	args := stage(t)
	for _, tree := range []string{"probe", "bare"} {
		if err := makeTree("/var/lib/doorward/cells/" + tree); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	base := cellCommand(t)
	lines := unitLines(t, "doorward-cell@.service", "work")
	all := func(wall) bool { return true }
	trials := []trial{
		{name: "all", text: only(t, lines, cellWalls, all) + nspawned(base, args, func(string) bool { return true })},
		{name: "open", text: only(t, lines, cellWalls, func(wall) bool { return false }) +
			nspawned(base, args, func(string) bool { return false })},
	}
	for _, w := range cellWalls {
		trials = append(trials, trial{name: w.name, text: only(t, lines, cellWalls, func(o wall) bool { return o.name == w.name }) +
			nspawned(base, args, func(name string) bool { return name == w.name })})
	}
	have := try(t, trials)
	if got := have["all"]; !slices.Equal(got, cellMay) {
		t.Errorf("behind all walls went through: %q, want %q", got, cellMay)
	}
	hold(t, have, cellWalls, all)
}

// cellCommand is the command that the cell's unit became, without what runs in the cell.
func cellCommand(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", mainPID(t, "doorward-cell@work.service")))
	if err != nil {
		t.Fatal(err)
	}
	command, _, ok := strings.Cut(strings.ReplaceAll(strings.TrimSuffix(string(b), "\x00"), "\x00", " "), " -- ")
	var kept []string
	for _, word := range strings.Fields(command) {
		if !strings.HasPrefix(word, "--bind-ro="+wire.CADir) { // what it trusts is no wall
			kept = append(kept, word)
		}
	}
	command = strings.Join(kept, " ")
	if !ok || !strings.HasPrefix(command, "systemd-nspawn ") || strings.Count(command, "work") != 2 { // its name and its folder
		t.Fatalf("the cell's unit became another command: %q", b)
	}
	return strings.Fields("/usr/bin/" + command)
}
