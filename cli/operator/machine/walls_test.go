// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The capabilities that doctor lets the daemon of cells have are those of its unit, and no other daemon's unit has any.
func TestTheDaemonOfCellsHasWhatItsUnitHas(t *testing.T) {
	names := map[uint]string{unix.CAP_SYS_ADMIN: "CAP_SYS_ADMIN", unix.CAP_SYS_CHROOT: "CAP_SYS_CHROOT", unix.CAP_SYS_PTRACE: "CAP_SYS_PTRACE",
		unix.CAP_DAC_READ_SEARCH: "CAP_DAC_READ_SEARCH", unix.CAP_SETUID: "CAP_SETUID", unix.CAP_SETGID: "CAP_SETGID", unix.CAP_CHOWN: "CAP_CHOWN"}
	var want []string
	for _, c := range mayCap {
		want = append(want, names[c])
	}
	for _, d := range []string{"authd", "sentinel", "egress", "cells", "page", "approvals", "worker@"} {
		b, err := os.ReadFile("../../../units/doorward-" + d + ".service")
		if err != nil {
			t.Fatal(err)
		}
		line := "CapabilityBoundingSet="
		if d == "cells" {
			line += strings.Join(want, " ")
		}
		if !strings.Contains(string(b), "\n"+line+"\n") {
			t.Errorf("the unit of %s has no line %q", d, line)
		}
	}
}

// A process is entered on a thread of its own: what this process is stays as it was.
func TestEnteringAProcessChangesNothingHere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("host ground: entering another's namespaces needs root")
	}
	before, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{pid: os.Getpid(), uid: 65534, gid: 65534}
	for range 20 { // so that the first thread comes into it
		var asNobody, uid error
		if err := p.inside(func() {
			asNobody = openFile(secret)
			if unix.Getuid() != 65534 {
				uid = fmt.Errorf("it is user %d", unix.Getuid())
			}
		}); err != nil {
			t.Fatal(err)
		}
		if asNobody == nil || uid != nil {
			t.Fatalf("nobody opens root's file: %v, %v", asNobody, uid)
		}
		if err := openFile(secret); err != nil || os.Geteuid() != 0 {
			t.Fatalf("control: root here opens it: %v, user %d", err, os.Geteuid())
		}
	}
	if after, _ := os.Readlink("/proc/self/ns/mnt"); after != before {
		t.Errorf("this process is in %s, was in %s", after, before)
	}
}

// The canary's connection goes through where nothing stands in its way.
func TestTheListenerIsReachedWithoutAWall(t *testing.T) {
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range l.Addrs {
		if err := dialTCP(a); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	l.Close()
	for _, a := range l.Addrs {
		if err := dialTCP(a); err == nil {
			t.Errorf("%s: closed, and it goes through", a)
		}
	}
}

// stayInCgroup puts this process back where it is: a canary that can moves itself away.
func stayInCgroup(t *testing.T) {
	t.Helper()
	path, err := cgroupOf("self")
	if err != nil {
		return // nor can it be moved
	}
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(CgroupRoot(), path, "cgroup.procs"), []byte("0"), 0) // one that it may not is none that it left
	})
}

// A process around which no wall stands, root and in this machine's namespaces: doctor says of each wall that it is gone,
// and of each path that it is, once what it leads to is.
func TestWallsThatAreNotThereAreFoundGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("host ground: entering another's namespaces needs root")
	}
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other := exec.Command("sleep", "infinity")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	p, err := openProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{vendors: []string{"dav"}, units: map[string]unit{
		"doorward-authd.service":      {"MainPID": strconv.Itoa(other.Process.Pid), "ActiveState": "active"},
		"doorward-worker@dav.service": {"MainPID": strconv.Itoa(p.pid), "ActiveState": "active"}}}
	for _, daemon := range []string{"worker", "egress"} {
		k := &look{m: m, daemon: daemon, vendor: "dav", unit: "doorward-worker@dav.service", p: p, l: l}
		for _, w := range walls {
			if !w.of(daemon) || w.check == "path.network" {
				continue
			}
			switch err := w.try(k); {
			case errors.Is(err, errUntried) && w.check == "wall.cgroup":
				t.Log(err) // no cgroup may be written to here
			case err == nil || errors.Is(err, errUntried):
				t.Errorf("%s of %s: %v", w.check, daemon, err)
			}
		}
		p := *p
		p.uid, p.gid, p.status = 65534, 0, map[string]string{"CapEff": "0", "CapPrm": "0", "CapInh": "0", "CapAmb": "0", "CapBnd": "0",
			"NoNewPrivs": "1", "Seccomp": "2"}
		k.p = &p
		if err := noPrivilege(k); err == nil {
			t.Errorf("%s: root's group is no privilege", daemon)
		}
		if p.gid = 65534; noPrivilege(k) != nil {
			t.Errorf("control: %s: %v", daemon, noPrivilege(k))
		}
	}
	k := &look{m: m, daemon: "egress", p: p, l: l}
	if err := hasNetwork(k); err != nil {
		t.Errorf("control: %v", err)
	}
	l.Close()
	if err := hasNetwork(k); err == nil || errors.Is(err, errUntried) {
		t.Errorf("path.network: nobody listens, and it says %v", err)
	}
}

// A process that is not where the daemon has to be is not entered.
func TestAnothersProcessIsNotEntered(t *testing.T) {
	m := &Machine{units: map[string]unit{}}
	for _, f := range m.wallsOf("doorward-authd.service", os.Getpid(), nil) { // with no listener, whatever is tried would panic
		if f.State != Untried || !strings.Contains(f.What.String(), "not in its cgroup") {
			t.Errorf("%s %s", f.State, f.What)
		}
	}
}

// A folder that others may enter and not list is none that keeps anything from them. The control is one that is closed.
func TestAFolderThatOthersEnterIsOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("host ground: being another user needs root")
	}
	p, err := openProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p.uid, p.gid, p.groups = 65534, 65534, nil
	old, dir := kept, t.TempDir()
	t.Cleanup(func() { kept = old })
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	kept = append(kept[:0:0], kept[0])
	kept[0].path = dir
	for mode, open := range map[os.FileMode]bool{0o700: false, 0o711: true, 0o744: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := noFiles(&look{daemon: "worker", p: p}); (err != nil) != open || errors.Is(err, errUntried) {
			t.Errorf("%o: %v", mode, err)
		}
	}
}

// Here, where there is no cell, the canary finds the walls gone: it does not say that all is well where nothing is.
func TestTheCanaryFindsWallsGoneWhereThereIsNoCell(t *testing.T) {
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	stayInCgroup(t)
	var said strings.Builder
	err = InCell(NewCanary(l).Args(), func(check string, state State, detail string) {
		fmt.Fprintf(&said, "%s\t%s\t%s\r\n", check, state, detail)
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]State{}
	for _, f := range FromCell("work", "noise\n"+said.String()) {
		got[f.Check] = f.State
		t.Logf("%s %s", f.State, f.What)
	}
	for _, check := range []string{"cell.network", "cell.sentinel", "cell.kernel", "cell.processes", "cell.privilege", "cell.environment"} {
		if got[check] != Wrong {
			t.Errorf("%s: %s", check, got[check])
		}
	}
	for _, bad := range [][]string{nil, {"x"}, append(NewCanary(l).Args()[:7:7], "none=1")} {
		if InCell(bad, nil) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	// What a cell does not say was not tried, and its first word on a wall counts.
	for _, f := range FromCell("work", "cell.network\twrong\ta\ncell.network\tok\t\ncell.run\tfine\t\nother\tok\t\n") {
		want := map[string]State{"cell.network": Wrong}[f.Check]
		if want == "" {
			want = Untried
		}
		if f.State != want {
			t.Errorf("%s is %s", f.Check, f.State)
		}
	}
}

// A call that the kernel refuses by itself to those without privilege says nothing of a filter: without one, of these calls
// those that no other wall refuses are found, also by a user who has nothing.
func TestTheCanaryFindsCallsThatNoFilterRefuses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("host ground: being another user needs root")
	}
	p, err := openProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if p.status["Seccomp"] != "0" {
		t.Skip("host ground: system calls are filtered here")
	}
	p.uid, p.gid, p.groups = 65534, 65534, nil
	var found error
	if err := p.inside(func() { found = cellKernel(Canary{}) }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bpf", "userfaultfd"} {
		if found == nil || !strings.Contains(found.Error(), name) {
			t.Errorf("no filter refuses %s, and it says %v", name, found)
		}
	}
}

// What was not seen is not said to be well: a cell's root can take its processes out of the payload's own cgroup.
func TestAPayloadThatIsNotSeenIsUntried(t *testing.T) {
	group := t.TempDir()
	if err := payload(group); err == nil || errors.Is(err, errUntried) {
		t.Errorf("no cgroup: %v", err)
	}
	// This process is nobody's first.
	for _, procs := range []string{"", "0x\n", fmt.Sprintln(os.Getpid())} {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(procs), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := payload(group); err == nil {
			t.Errorf("with %q in it all is well", procs)
		} else if procs == "" && !errors.Is(err, errUntried) {
			t.Errorf("nothing in it: %v", err)
		}
	}
}

func TestDropInsOfLimitsAreTheDaemons(t *testing.T) {
	const unit = "doorward-cell@work.service"
	of := "/run/systemd/system.control/" + unit + ".d/"
	if got := dropIns(unit, of+"50-MemoryMax.conf "+of+"50-TasksMax.conf"); len(got) > 0 {
		t.Errorf("%q", got)
	}
	for _, p := range []string{of + "50-Other.conf", "/etc/systemd/system/" + unit + ".d/50-MemoryMax.conf"} {
		if got := dropIns(unit, p); len(got) != 1 {
			t.Errorf("%s is passed over", p)
		}
	}
}

// What systemd says of units becomes findings: a machine where nothing is started has one, one where a part is down names it.
func TestUnitsAreHeldToWhatPeerExpects(t *testing.T) {
	up := func(name string) unit {
		return unit{"Id": name, "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "ControlGroup": expectedGroup(name),
			"MainPID": "1", "NeedDaemonReload": "no"}
	}
	machine := func() *Machine {
		m := &Machine{vendors: []string{"dav", "github"}, units: map[string]unit{"doorward.target": up("doorward.target")}}
		for _, name := range []string{"doorward-authd.service", "doorward-sentinel.service", "doorward-egress.service", "doorward-cells.service",
			"doorward-worker@dav.service"} {
			m.units[name] = up(name)
		}
		return m
	}
	bad := func(m *Machine, needed ...string) (out []string) {
		for _, f := range m.Units(needed) {
			// Process 1 is none of these, so every one is another than it should be where nothing else is wrong.
			if f.State == Wrong && !strings.Contains(f.What.String(), "is not taken for what it is") {
				out = append(out, f.Check+" "+f.What.String())
			}
		}
		return out
	}
	if got := bad(machine()); len(got) > 0 {
		t.Errorf("control: %q", got)
	}
	for want, change := range map[string]func(m *Machine){
		"unit nothing of Doorward is started": func(m *Machine) { m.units = map[string]unit{} },
		"unit doorward-egress.service is failed (failed, exit-code)": func(m *Machine) {
			m.units["doorward-egress.service"] = unit{"LoadState": "loaded", "ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}
		},
		"unit doorward-authd.service is not there (not-found)": func(m *Machine) { m.units["doorward-authd.service"] = unit{"LoadState": "not-found"} },
		"unit doorward.target is inactive (dead)": func(m *Machine) {
			m.units["doorward.target"] = unit{"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead"}
		},
		"unit.files doorward-cells.service runs by files that have changed since": func(m *Machine) {
			m.units["doorward-cells.service"]["NeedDaemonReload"] = "yes"
		},
		"unit.cgroup doorward-worker@dav.service is in /system.slice/x, and callers are looked for in " +
			"/doorward.slice/doorward-workers.slice/doorward-worker@dav.service": func(m *Machine) {
			m.units["doorward-worker@dav.service"]["ControlGroup"] = "/system.slice/x"
		},
	} {
		m := machine()
		change(m)
		if got := bad(m); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := bad(machine(), "github"); len(got) != 1 || !strings.Contains(got[0], "github has an account") {
		t.Errorf("%q", got)
	}
	m := machine()
	m.units["doorward-worker@dav.service"]["DropInPaths"] = "/etc/systemd/system/doorward-worker@dav.service.d/x.conf"
	found := false
	for _, f := range m.Units(nil) {
		found = found || f.Check == "unit.dropin" && f.State == Weak
	}
	if !found {
		t.Error("a drop-in is not said")
	}
	m.units["doorward-approve.socket"] = unit{"ActiveState": "active", "DropInPaths": "/etc/systemd/system/doorward-approve.socket.d/x.conf"}
	if !slices.ContainsFunc(m.Sockets(), func(f Finding) bool { return f.Check == "unit.dropin" && f.State == Weak }) {
		t.Error("a drop-in of a socket is not said")
	}
}

// SD-03: systemd loads a credential whatever the mode of its file is, so doctor looks.
func TestSD03AKeyThatOthersMayReadIsWrong(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a file of root's is needed")
	}
	dir := filepath.Join(t.TempDir(), "of-keys")
	path := filepath.Join(dir, "key")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if f := keyFile(path); f.State != OK {
		t.Errorf("in a directory that nobody else may enter: %s", f.What)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if f := keyFile(path); f.State != OK {
		t.Errorf("control: %s", f.What)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if f := keyFile(path); f.State != Wrong || f.Next == "" {
			t.Errorf("%o: %s: %s", mode, f.State, f.What)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1234, 0); err != nil {
		t.Fatal(err)
	}
	if f := keyFile(path); f.State != Wrong {
		t.Errorf("of another user: %s: %s", f.State, f.What)
	}
}
