// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

const (
	stateDir  = "/var/lib/doorward"
	configDir = "/etc/doorward"
	sealedDir = "/etc/credstore.encrypted"
	unitDir   = "/run/systemd/system"
	gateDir   = "/var/lib/doorward-gates" // not below /run, of which a unit sees its own part even as it starts
)

// machine is the machine of test/vm: the package is installed, and systemd starts the daemons and the cells by its units.
// What a world adds to a unit stands in a drop-in of it: it waits at a gate before it starts, so that a daemon that was
// killed stays down until the world starts it again, while systemd restarts it and its sockets queue as they do anywhere.
type machine struct {
	bus    *dbus.Conn
	cursor string // the journal's end as the world began
	shared string // what cells see of the machine besides /usr
}

func (m *machine) dirs() dirs {
	return dirs{state: stateDir, config: configDir, more: []string{stateDir, configDir}}
}

func (m *machine) persons() (int, error) {
	g, err := user.LookupGroup("doorward")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}

// lay brings the machine from whatever an earlier world left to what an admin has behind an installation.
func (m *machine) lay(w *World, o Options) error {
	if o.Net {
		return errors.New("Net is for the host ground")
	}
	// It empties the installation. Nobody's real one may be that.
	if b, err := os.ReadFile("/proc/cmdline"); err != nil || !strings.Contains(string(b), "doorward.boot=") {
		return fmt.Errorf("this is not the machine that test/vm boots: %v", err)
	}
	if w.keepDir {
		return errors.New("Dir is for the host ground")
	}
	var err error
	if m.bus, err = dbus.NewSystemdConnectionContext(context.Background()); err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	w.Prefix, m.shared = "/usr", ground.Dir
	if err := m.clear(); err != nil {
		return err
	}
	owners := map[string]int{}
	for _, name := range []string{"authd", "sentinel"} {
		u, err := user.Lookup("doorward-" + name)
		if err == nil {
			owners[name], err = strconv.Atoi(u.Uid)
		}
		if err != nil {
			return err
		}
	}
	t := tree{}
	t.dir(stateDir, 0o755, 0)
	for name, uid := range owners {
		t.dir(w.State(name), 0o700, uid)
	}
	t.given(w, o, func(name string) int { return owners[name] })
	t.dir(gateDir, 0o700, 0)
	t.dir(sealedDir, 0o700, 0)
	for name, d := range w.daemons {
		d.unit = &machineUnit{m: m, d: d}
		drop := "[Service]\nTimeoutStartSec=infinity\nExecStartPre=+/bin/sh -c 'read go <" + gate(name) + "'\n"
		if binary := o.Binary[name]; binary != "" {
			drop += "ExecStart=\nExecStart=" + binary + "\nExecPaths=" + binary + "\n"
		}
		dir := filepath.Join(unitDir, d.Unit()+".d")
		t.dir(dir, 0o755, 0)
		t.file(filepath.Join(dir, "world.conf"), drop, 0o644, 0)
		if t.err == nil {
			t.err = unix.Mkfifo(gate(name), 0o600)
		}
	}
	if t.err != nil {
		return t.err
	}
	if !o.NoStoreKey {
		err = seal("store-key", key(o.StoreKey))
	}
	if err := errors.Join(err, seal("checkpoint-key", key(o.CheckpointKey)), run("systemd-tmpfiles", "--create", "doorward.conf"),
		m.bus.ReloadContext(context.Background()), m.mark()); err != nil {
		return err
	}
	sockets, err := m.sockets(w.Workers)
	if err != nil {
		return err
	}
	return run("systemctl", append([]string{"start"}, sockets...)...)
}

func gate(name string) string { return filepath.Join(gateDir, name) }

// seal has a key sealed as an admin does, so that only its unit gets it.
func seal(name, key string) error {
	cmd := exec.Command("systemd-creds", "encrypt", "--name="+name, "-", filepath.Join(sealedDir, "doorward."+name))
	cmd.Stdin = strings.NewReader(key)
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("seal %s: %w\n%s", name, err, b)
	}
	return nil
}

// sockets are the socket units of the package, the workers' own included.
func (m *machine) sockets(workers []string) ([]string, error) {
	found, err := filepath.Glob("/usr/lib/systemd/system/doorward-*.socket")
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("the package is not installed: no socket units: %v", err)
	}
	var out []string
	for _, path := range found {
		unit := filepath.Base(path)
		if before, after, ok := strings.Cut(unit, "@"); ok {
			for _, vendor := range workers {
				out = append(out, before+"@"+vendor+after)
			}
			continue
		}
		out = append(out, unit)
	}
	return out, nil
}

// mark remembers where the journal ends.
func (m *machine) mark() error {
	out, err := exec.Command("journalctl", "--quiet", "-n", "1", "-o", "cat", "--show-cursor").Output()
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	_, m.cursor, _ = strings.Cut(strings.TrimSpace(string(out)), "-- cursor: ")
	if m.cursor == "" {
		return fmt.Errorf("read the journal: no cursor in %q", out)
	}
	return nil
}

// clear ends everything of Doorward on the machine, and takes away what it and an earlier world left.
func (m *machine) clear() error {
	// As a removal of the package does: cells, then what tries their walls now and again, then sockets, which a daemon that dials another would start that one by,
	// then the daemons, one that waits at its gate too.
	var errs []error
	for _, units := range []string{"doorward-cell@*.service", "doorward*.timer", "doorward*.socket", "doorward*.service"} {
		errs = append(errs, run("systemctl", "stop", units))
	}
	errs = append(errs, run("systemctl", "reset-failed", "doorward*"))
	gone := []string{gateDir, filepath.Join(sealedDir, "doorward.store-key"), filepath.Join(sealedDir, "doorward.checkpoint-key")}
	for _, pattern := range []string{stateDir + "/*", configDir + "/*", unitDir + "/doorward*.d/world.conf"} {
		found, err := filepath.Glob(pattern)
		errs, gone = append(errs, err), append(gone, found...)
	}
	for _, path := range gone {
		errs = append(errs, os.RemoveAll(path))
	}
	persons, err := filepath.Glob(ground.Cgroup + "/user.slice/user-*.slice/session-1.scope")
	for _, dir := range persons {
		errs = append(errs, ground.RemoveCgroup(strings.TrimPrefix(dir, ground.Cgroup)))
	}
	return errors.Join(append(errs, err)...)
}

func (m *machine) close(w *World) error {
	if m.bus == nil {
		return nil
	}
	err := m.clear()
	for _, c := range w.takeCells() {
		c.forget()
	}
	for _, d := range w.daemons {
		if d.unit != nil {
			<-d.Done()
		}
	}
	m.bus.Close()
	return err
}

// startCell makes the cell's tree and has systemd start it. What the tests share with it is mounted into it afterwards,
// as the rest of the machine's file system is there for the host ground's cells: seen by users that own nothing of it.
func (m *machine) startCell(c *Cell) (int, *net1, error) {
	root := filepath.Join(stateDir, "cells", c.Name)
	if err := errors.Join(cellTree(root, m.shared), run("systemctl", "start", c.Unit())); err != nil {
		return 0, nil, err
	}
	b, err := os.ReadFile(filepath.Join(ground.Cgroup, c.Cgroup(Payload), "cgroup.procs"))
	word, _, _ := strings.Cut(string(b), "\n")
	if err != nil {
		return 0, nil, err
	}
	first, err := strconv.Atoi(word)
	if err != nil {
		return 0, nil, fmt.Errorf("it has no process: %w", err)
	}
	return first, nil, share(first, m.shared)
}

func (m *machine) stopCell(c *Cell) error { return run("systemctl", "stop", c.Unit()) }

// cellTree makes a cell's root: its own but for /usr, which is the machine's, and the folder that is mounted into it.
func cellTree(root, shared string) error {
	if _, err := os.Stat(root); err == nil {
		return nil
	}
	t := tree{}
	for _, dir := range []string{"usr", "etc", "tmp", "run", "proc", "sys", "dev", "var/tmp", "root", "home/agent", shared} {
		t.dir(filepath.Join(root, dir), 0o755, 0)
	}
	t.dir(filepath.Join(root, "home/agent"), 0o755, 1000)
	t.file(filepath.Join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n", 0o644, 0)
	t.file(filepath.Join(root, "etc/group"), "root:x:0:\nagent:x:1000:\n", 0o644, 0)
	t.file(filepath.Join(root, "etc/os-release"), "ID=doorward-cell\n", 0o644, 0)
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if t.err == nil {
			t.err = os.Symlink("usr/"+name, filepath.Join(root, name))
		}
	}
	return t.err
}

// share mounts a folder of this machine at the same place in a cell, whose user namespace owns nothing of it.
func share(pid int, dir string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	defer unix.Close(tree)
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is of the cell from here, and ends with this function
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
				return err
			}
			return unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}()
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("share %s with a cell: %w", dir, err)
	}
	return nil
}

// run runs a command of systemd's.
func run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*readyTimeout)
	defer cancel()
	if b, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, b)
	}
	return nil
}
