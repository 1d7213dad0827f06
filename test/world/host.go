// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// Numeric ids, as sysusers.d and DynamicUser= would give them.
const (
	uidAuthd     = 990
	uidSentinel  = 991
	uidEgress    = 992
	uidPage      = 994
	uidApprovals = 995
	uidWorker    = 61184 // of the first worker; each has its own

	uidCellEgress = 61284 // of the first cell's egress; each has its own

	gidDoorward = 980 // persons that may use doorward
	gidWorkers  = 981 // workers' static supplementary group
)

// host is a ground of our own, where this process does what systemd would.
type host struct {
	w     *World
	units map[string]*hostUnit
	cells map[string]*exec.Cmd // what holds each
	bases int                  // how many cells have users

	net      bool
	egresses int    // how many cells have an egress
	hosts    string // a file
}

func (h *host) dirs() dirs { return dirs{state: h.w.path("state"), config: h.w.path("etc")} }

func (h *host) persons() (int, error) { return gidDoorward, nil }

// lay lays out directories, credentials, sockets and the daemons.
func (h *host) lay(w *World, o Options) error {
	h.w, h.units, h.cells = w, map[string]*hostUnit{}, map[string]*exec.Cmd{}
	prefix, err := Build()
	if err != nil {
		return err
	}
	if w.Prefix, err = reach(prefix); err != nil {
		return err
	}
	t := tree{}
	t.dir(w.path("notify"), 0o755, 0)
	t.dir(w.path("log"), 0o700, 0)
	// /run/doorward as tmpfiles.d makes it: private is root's alone, so that a cell's sockets have one way in.
	t.dir(strings.TrimSuffix(wire.RunDir, "/"), 0o755, 0)
	t.dir(wire.RunDir+"private", 0o700, 0)
	t.dir(strings.TrimSuffix(wire.CellDir, "/"), 0o755, 0)
	t.dir(wire.RunDir+"egress-cell", 0o755, 0)
	if h.net = o.Net; h.net {
		h.hosts = w.path("hosts")
		t.file(h.hosts, strings.Join(append([]string{"127.0.0.1 localhost"}, o.Hosts...), "\n")+"\n", 0o644, 0)
		t.file(w.path("resolv.conf"), "nameserver "+resolver+"\n", 0o644, 0)
	}
	h.add("authd", uidAuthd, true)
	h.add("sentinel", uidSentinel, true)
	h.add("egress", uidEgress, false)
	h.add("cells", 0, true)
	for i, vendor := range w.Workers {
		h.add("worker-"+vendor, uidWorker+i, true)
		h.units["worker-"+vendor].groups = []uint32{gidWorkers}
	}
	config := "CONFIGURATION_DIRECTORY=" + w.Config()
	h.units["cells"].env = []string{config}
	for _, name := range []string{"authd", "sentinel"} {
		u := h.units[name]
		u.env = []string{"STATE_DIRECTORY=" + w.State(name), "CREDENTIALS_DIRECTORY=" + w.path("credentials", name), config}
		t.dir(w.State(name), 0o700, u.uid)
		t.dir(w.path("credentials", name), 0o700, u.uid)
	}
	if !o.NoStoreKey {
		t.file(w.path("credentials", "authd", "store-key"), key(o.StoreKey), 0o400, uidAuthd)
	}
	t.file(w.path("credentials", "sentinel", "checkpoint-key"), key(o.CheckpointKey), 0o400, uidSentinel)
	t.given(w, o, func(name string) int { return h.units[name].uid })
	if o.Page {
		if err := h.addPage(&t); err != nil {
			return err
		}
	}
	for name, binary := range o.Binary {
		h.units[name].binary = binary
	}
	return errors.Join(t.err, h.listen())
}

// addPage adds approvals, and page with both ports of localhost, each one that is free.
func (h *host) addPage(t *tree) error {
	w := h.w
	w.Place = &approver.Place{Host: "localhost"}
	for name, uid := range map[string]int{"page": uidPage, "approvals": uidApprovals} {
		h.add(name, uid, true)
		h.units[name].env = []string{"CONFIGURATION_DIRECTORY=" + w.Config()}
	}
	for name, port := range map[string]*uint16{"page": &w.Place.Page, "page-api": &w.Place.API} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		*port = uint16(ln.Addr().(*net.TCPAddr).Port)
		file, err := ln.(*net.TCPListener).File()
		_ = ln.Close() // the other descriptor of it stays open
		if err != nil {
			return err
		}
		h.units["page"].sockets = append(h.units["page"].sockets, socket{name, file})
	}
	t.file(filepath.Join(w.Config(), approver.File), fmt.Sprintf("host = \"localhost\"\npage = %d\napi = %d\n", w.Place.Page, w.Place.API), 0o644, 0)
	return nil
}

func (h *host) add(name string, uid int, private bool) {
	d := h.w.daemons[name]
	h.units[name] = &hostUnit{d: d, w: h.w, uid: uid, privateNet: private,
		binary: filepath.Join(h.w.Prefix, "libexec/doorward", name)}
	d.unit = h.units[name]
}

func (h *host) close(w *World) error {
	var errs []error
	for _, slice := range []string{"doorward.slice", "user.slice"} {
		if err := ground.KillCgroup("/" + slice); err != nil {
			errs = append(errs, fmt.Errorf("close the world: %w", err))
		}
	}
	for _, c := range w.takeCells() {
		c.forget()
	}
	for _, cmd := range h.cells {
		_ = cmd.Wait()
	}
	for name, u := range h.units {
		w.daemons[name].Kill()
		for _, s := range u.sockets {
			_ = s.file.Close()
		}
	}
	if h.net {
		errs = append(errs, h.closeNetworks())
	}
	for _, slice := range []string{"doorward.slice", "user.slice"} {
		errs = append(errs, ground.RemoveCgroup("/"+slice))
	}
	errs = append(errs, os.RemoveAll(strings.TrimSuffix(wire.RunDir, "/")))
	if w.Prefix != "" {
		errs = append(errs, unreach(w.Prefix))
	}
	return errors.Join(errs...)
}

// reach mounts the installation, read-only, where every user may come: it may lie below a home that others may not enter.
func reach(prefix string) (string, error) {
	at, err := os.MkdirTemp(ground.Dir, "prefix-")
	if err != nil {
		return "", err
	}
	err = errors.Join(os.Chmod(at, 0o755), unix.Mount(prefix, at, "", unix.MS_BIND, ""),
		unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if err != nil {
		return "", fmt.Errorf("mount the installation: %w", errors.Join(err, unreach(at)))
	}
	return at, nil
}

// unreach takes the mount away. What is below it is never removed: it is the installation itself.
func unreach(at string) error {
	if err := unix.Unmount(at, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount the installation: %w", err)
	}
	return os.Remove(at)
}

// A cell's users: 65536 from a base of its own, as --private-users gives them.
const (
	cellUIDs  = 1 << 16
	firstBase = 0x10000 * 16
)

// startCell makes user, mount, pid, network, IPC and UTS namespaces, in which only `lo` is up and /run holds nothing but
// /run/doorward/cell. The rest of the file system is the machine's, seen by users that own nothing of it.
func (h *host) startCell(c *Cell) (int, *net1, error) {
	base := firstBase + h.bases*cellUIDs
	h.bases++
	s := spec{Base: base}
	if h.net {
		var err error
		if s.Netns, err = h.network(c); err != nil {
			return 0, nil, err
		}
		s.Resolv = h.w.path("resolv.conf")
		if s.Trust, err = h.trust(c.Name); err != nil {
			return 0, nil, err
		}
	}
	cg, err := cgroupDir(c.Cgroup("supervisor"))
	if err != nil {
		return 0, nil, err
	}
	defer cg.Close()
	payload, err := cgroupDir(c.Cgroup(Payload))
	if err != nil {
		return 0, nil, err
	}
	defer payload.Close()
	// nspawn delegates the payload to the cell's root.
	for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(payload.Name(), f), base, base); err != nil {
			return 0, nil, err
		}
	}
	mine, theirs, err := seqpacket()
	if err != nil {
		return 0, nil, err
	}
	defer theirs.Close()
	pidR, pidW, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer pidR.Close()
	cmd := exec.Command("/proc/self/exe", "world-supervisor")
	cmd.Env = append(os.Environ(), s.env())
	cmd.ExtraFiles = []*os.File{theirs, pidW, payload}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cg.Fd()), Unshareflags: unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	pidW.Close()
	first := 0
	b, err := io.ReadAll(pidR)
	if err == nil {
		first, err = strconv.Atoi(string(b))
	}
	if err != nil {
		_ = cmd.Wait()
		return 0, nil, fmt.Errorf("its first process did not start: %w", err)
	}
	h.cells[c.Name] = cmd
	return first, &net1{mine}, nil
}

func (h *host) stopCell(c *Cell) error {
	err := ground.KillCgroup(c.Cgroup(""))
	if cmd := h.cells[c.Name]; cmd != nil {
		_ = cmd.Wait()
		delete(h.cells, c.Name)
	}
	return errors.Join(err, ground.RemoveCgroup(c.Cgroup("")))
}

// supervisor is what nspawn's own process does: it mounts, starts the cell's first process and waits for it.
func supervisor(s spec) error {
	for fd := 3; fd <= 5; fd++ {
		syscall.CloseOnExec(fd)
	}
	flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if s.Netns == "" {
		flags |= unix.CLONE_NEWNET
	} else { // it is root's, as systemd makes it: the cell's root has no right to it
		runtime.LockOSThread() // which starts the cell
		if err := enterNet(s.Netns); err != nil {
			return fmt.Errorf("enter the cell's network: %w", err)
		}
		if err := unix.Mount(s.Resolv, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount the cell's resolv.conf: %w", err)
		}
	}
	from, to := []string{wire.CellDir}, []string{wire.CellRun}
	for _, b := range s.Trust {
		if strings.HasPrefix(b.To, wire.RunDir) {
			from, to = append(from, b.From), append(to, b.To)
			continue
		}
		if err := readOnly(b.From, b.To); err != nil {
			return fmt.Errorf("mount what the cell trusts: %w", err)
		}
	}
	if err := onlyBinds(from, to); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", "world-spawner")
	cmd.Env = append(os.Environ(), spec{Base: s.Base, Netns: s.Netns}.env())
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "socket")}
	cmd.Stderr = os.Stderr
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: s.Base, Size: cellUIDs}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  flags,
		UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Credential:  &syscall.Credential{Uid: 0, Gid: 0},
		UseCgroupFD: true, CgroupFD: 5,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := os.NewFile(4, "pid")
	_, _ = pid.WriteString(strconv.Itoa(cmd.Process.Pid))
	_ = pid.Close()
	_ = unix.Close(3)
	_ = cmd.Wait()
	return nil
}
