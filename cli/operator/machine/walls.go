// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// wall is one thing that is tried of a daemon. try returns nil where it is as it must be, else what is wrong.
type wall struct {
	check string
	holds string // what is so where it holds
	of    func(daemon string) bool
	try   func(*look) error
}

// look is one daemon being tried.
type look struct {
	m      *Machine
	daemon string // of the table: authd, sentinel, egress, cells, worker
	vendor string // of a worker
	unit   string
	p      *process
	l      *Listener
}

func all(string) bool          { return true }
func butEgress(d string) bool  { return d != "egress" }
func onlyEgress(d string) bool { return d == "egress" }
func butCells(d string) bool   { return d != "cells" } // it is root, to make cells

// walls are tried of every daemon, as root. Each is a canary: it tries the thing that must fail, or must work.
var walls = []wall{
	{"wall.network", "it reaches nothing over the network", butEgress, noNetwork},
	{"path.network", "it reaches the network", onlyEgress, hasNetwork},
	{"wall.run", "of /run it sees its own rows and no other socket", all, onlyRows},
	{"path.rows", "it can open the sockets of its rows", all, opensRows},
	{"wall.files", "it cannot read what others keep", butCells, noFiles},
	{"wall.memory", "it cannot read other daemons' memory, and nobody but root its own", butCells, noMemory},
	{"wall.program", "it cannot start programs of this machine", butCells, noProgram},
	{"wall.privilege", "it has no privilege, can gain none, and its system calls are filtered", all, noPrivilege},
	{"wall.cgroup", "it cannot move itself to another cgroup", butCells, noCgroup},
}

// Walls tries every wall of every daemon that runs.
func (m *Machine) Walls(l *Listener) []Finding {
	if m.err != nil {
		return []Finding{Not("wall", "walls of the daemons: %s", Detail(words(m.err)))}
	}
	if m.idle() {
		return []Finding{Not("wall", "walls of the daemons: nothing is started")}
	}
	if os.Geteuid() != 0 {
		return []Finding{rootOnly("wall", "walls of the daemons: only root can try what they may")}
	}
	var out []Finding
	for _, unit := range m.services() {
		u := m.units[unit]
		pid, _ := strconv.Atoi(u["MainPID"])
		if !u.active() || pid == 0 {
			out = append(out, Not("wall", "walls of %s: it does not run", unit))
			continue
		}
		out = append(out, m.wallsOf(unit, pid, l)...)
	}
	return out
}

func (m *Machine) wallsOf(unit string, pid int, l *Listener) []Finding {
	p, err := openProcess(pid)
	if err != nil {
		return []Finding{Not("wall", "walls of %s: its process cannot be looked at (%v)", unit, err)}
	}
	// What follows enters its namespaces: by now the number may be another's, even one's of a cell.
	if group, err := cgroupOf(strconv.Itoa(pid)); err != nil || group != expectedGroup(unit) {
		return []Finding{Not("wall", "walls of %s: its process is not in its cgroup", unit)}
	}
	k := &look{m: m, unit: unit, p: p, l: l, daemon: strings.TrimSuffix(strings.TrimPrefix(unit, "doorward-"), ".service")}
	if v, ok := strings.CutPrefix(k.daemon, "worker@"); ok {
		k.daemon, k.vendor = "worker", v
	}
	var out []Finding
	for _, w := range walls {
		if !w.of(k.daemon) {
			continue
		}
		f := Ok(w.check, "%s: %s", unit, w.holds)
		switch err := w.try(k); {
		case errors.Is(err, errUntried):
			f = Not(w.check, "%s: %s: %s", unit, w.holds, words(err))
		case err != nil:
			f = Bad(w.check, "systemctl cat "+unit+" shows what changed it; then systemctl restart "+unit,
				"%s: does not hold: %s (%s)", unit, w.holds, Detail(err.Error()))
		}
		f.Of = Name(unit)
		out = append(out, f)
	}
	return out
}

// within runs f in the daemon's place; f returns what is wrong.
func (k *look) within(f func() error) error {
	var found error
	if err := k.p.inside(func() { found = f() }); err != nil {
		return cannot(err.Error())
	}
	return found
}

func noNetwork(k *look) error {
	for _, a := range k.l.Addrs { // the control: without the wall it goes through
		if err := dialTCP(a); err != nil {
			return cannot("the listener is not reached from here either: " + err.Error())
		}
	}
	err := k.within(func() error {
		for _, a := range k.l.Addrs {
			if err := dialTCP(a); err == nil {
				return errors.New("from its network namespace a TCP connection to this machine's loopback goes through; only its filter " +
					"of system calls is left")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return onlyLo(fmt.Sprintf("/proc/%d/net/dev", k.p.pid)) // of this /proc: a daemon's own may show it nobody, not even itself
}

// onlyLo reads the interfaces of a network namespace from its net/dev in /proc.
func onlyLo(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return cannot(err.Error())
	}
	for line := range strings.Lines(string(b)) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.Contains(name, "|") && name != "lo" {
			return fmt.Errorf("its network namespace has the interface %s", name)
		}
	}
	return nil
}

func hasNetwork(k *look) error {
	return k.within(func() error {
		for _, a := range k.l.Addrs {
			if err := dialTCP(a); err != nil {
				return fmt.Errorf("a TCP connection to this machine's loopback does not go through: %w", err)
			}
		}
		return nil
	})
}

// rows are the sockets that the daemon dials.
func (k *look) rows() []socket {
	var out []socket
	for _, s := range k.m.sockets() {
		if s.from == k.daemon && (s.vendor == "" || k.m.used(s.vendor)) {
			out = append(out, s)
		}
	}
	return out
}

// onlyRows walks the daemon's own /run, through its root.
func onlyRows(k *look) error {
	may := map[string]bool{"/run/systemd/notify": true}
	for _, s := range k.m.sockets() { // those of vendors that are not in use may be there
		if s.from == k.daemon {
			may[s.path] = true
		}
	}
	root := fmt.Sprintf("/proc/%d/root", k.p.pid)
	seen := 0
	err := filepath.WalkDir(root+"/run", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info() // the directory itself knows the file that a mount covers
		if err != nil {
			return nil // it is gone
		}
		path = strings.TrimPrefix(path, root)
		switch {
		case info.Mode().Type() != fs.ModeSocket:
		case may[path]:
			seen++
		case k.daemon == "cells" && strings.HasPrefix(path, "/run/systemd/"): // it has systemd start cells
		default:
			return fmt.Errorf("it sees the socket %s", path)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case seen == 0:
		return fmt.Errorf("it sees not even its own")
	}
	return nil
}

func opensRows(k *look) error {
	return k.within(func() error {
		for _, s := range k.rows() {
			if err := unix.Faccessat(unix.AT_FDCWD, s.path, unix.W_OK, 0); err != nil {
				return fmt.Errorf("%s: %w", s.path, err)
			}
		}
		return nil
	})
}

// kept are the places that nobody but their daemon, or nobody but root, may read. Workers and egress keep nothing.
var kept = []struct{ path, owner string }{
	{"/var/lib/doorward/authd", "authd"}, {"/var/lib/doorward/sentinel", "sentinel"},
	{"/run/credentials/doorward-authd.service", "authd"}, {"/run/credentials/doorward-sentinel.service", "sentinel"},
	{"/etc/credstore.encrypted", ""}, {"/etc/shadow", ""}, {"/var/lib/systemd/credential.secret", ""},
}

func noFiles(k *look) error {
	tried := 0
	check := func() error {
		for _, p := range kept {
			// Who may enter a folder opens what it knows the name of.
			if p.owner != k.daemon && (openFile(p.path) == nil || unix.Faccessat(unix.AT_FDCWD, p.path, unix.X_OK, 0) == nil) {
				return fmt.Errorf("it can open %s", p.path)
			}
		}
		return nil
	}
	for _, p := range kept {
		if openFile(p.path) == nil { // the control: it is there, and root opens it
			tried++
		}
	}
	if tried == 0 {
		return cannot("none of what it must not read is there")
	}
	if err := k.within(check); err != nil {
		return err
	}
	// Its mode alone has to do, without the mounts.
	alone := *k
	alone.p = &process{pid: os.Getpid(), uid: k.p.uid, gid: k.p.gid, groups: k.p.groups}
	return alone.within(check)
}

func noMemory(k *look) error {
	info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", k.p.pid))
	if err != nil {
		return cannot(err.Error())
	}
	if info.Sys().(*syscall.Stat_t).Uid != 0 { // proc(5): of what is not dumpable the files are root's
		return fmt.Errorf("it is dumpable: its own user may read its memory, and a core may be written")
	}
	var others []string
	for _, other := range k.m.services() {
		if other != k.unit && openFile("/proc/"+k.m.units[other]["MainPID"]+"/mem") == nil { // the control: root opens it
			others = append(others, other)
		}
	}
	if len(others) == 0 {
		return cannot("no other daemon's memory is opened from here either")
	}
	return k.within(func() error {
		for _, other := range others {
			if openFile("/proc/"+k.m.units[other]["MainPID"]+"/mem") == nil {
				return fmt.Errorf("it can open the memory of %s", other)
			}
		}
		return nil
	})
}

func noProgram(k *look) error {
	return k.within(func() error {
		for _, p := range []string{"/bin/sh", "/usr/bin/true", "/usr/bin/doorward"} {
			if unix.Faccessat(unix.AT_FDCWD, p, unix.X_OK, 0) == nil {
				return fmt.Errorf("it may execute %s", p)
			}
		}
		return nil
	})
}

// mayCap are the capabilities that the daemon of cells may have, as its unit has them.
var mayCap = []uint{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_SETUID,
	unix.CAP_SETGID, unix.CAP_CHOWN}

func noPrivilege(k *look) error {
	var may uint64
	if k.daemon == "cells" {
		for _, c := range mayCap {
			may |= 1 << c
		}
	} else if k.p.uid == 0 {
		return fmt.Errorf("it is root")
	}
	for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"} {
		have, err := strconv.ParseUint(k.p.status[set], 16, 64)
		if err != nil {
			return cannot("no " + set + " in its status")
		}
		if more := have &^ may; more != 0 {
			return fmt.Errorf("%s has %x beyond what it may", set, more)
		}
	}
	switch {
	case k.p.status["NoNewPrivs"] != "1":
		return fmt.Errorf("it may gain privileges (NoNewPrivs %s)", k.p.status["NoNewPrivs"])
	case k.p.status["Seccomp"] != "2":
		return fmt.Errorf("its system calls are not filtered (Seccomp %s)", k.p.status["Seccomp"])
	case k.daemon != "cells" && (k.p.gid == 0 || slices.Contains(k.p.groups, 0)):
		return fmt.Errorf("it is in root's group")
	}
	return nil
}

func noCgroup(k *look) error {
	root := CgroupRoot()
	writes := func(dir string) bool {
		fd, err := unix.Open(root+dir+"/cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err == nil
	}
	if root == "" || !writes("") { // the control
		return cannot("cgroups cannot be written to from here either")
	}
	return k.within(func() error {
		for _, dir := range []string{"", "/doorward.slice", "/doorward.slice/doorward-cells.slice", "/user.slice"} {
			if writes(dir) {
				return fmt.Errorf("it may write to %s", root+dir)
			}
		}
		return nil
	})
}
