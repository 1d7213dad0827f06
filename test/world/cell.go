// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// Payload is the session that a cell's start makes.
const Payload = "payload"

// A cell's users: 65536 from a base of its own, as --private-users gives them.
const (
	cellUIDs  = 1 << 16
	firstBase = 0x10000 * 16
)

// Cell is a started cell: user, mount, pid, network, IPC and UTS namespaces of its own, in which only `lo` is up and
// /run holds nothing but /run/doorward/cell. The rest of the file system is the machine's, seen by users that own
// nothing of it.
type Cell struct {
	Name string

	w          *World
	base       int
	supervisor *exec.Cmd
	first      int // process 1 of the cell, as the ground numbers it

	mu       sync.Mutex // guards sessions
	sessions map[string]*net1
}

// net1 is the connection to one spawner.
type net1 struct{ sock *os.File }

// Cell starts the cell of that name, or returns the one that runs.
func (w *World) Cell(name string) (*Cell, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.cells[name]; c != nil {
		return c, nil
	}
	c := &Cell{Name: name, w: w, base: firstBase + len(w.cells)*cellUIDs, sessions: map[string]*net1{}}
	if err := c.start(); err != nil {
		return nil, fmt.Errorf("start cell %s: %w", name, err)
	}
	w.cells[name] = c
	return c, nil
}

// Unit is the cell's unit.
func (c *Cell) Unit() string { return "doorward-cell@" + c.Name + ".service" }

// Cgroup is the cgroup of a session, from the ground's root; of the whole cell for an empty one.
func (c *Cell) Cgroup(session string) string {
	return filepath.Join("/doorward.slice/doorward-cells.slice", c.Unit(), session)
}

func (c *Cell) start() error {
	cg, err := cgroupDir(c.Cgroup("supervisor"))
	if err != nil {
		return err
	}
	defer cg.Close()
	payload, err := cgroupDir(c.Cgroup(Payload))
	if err != nil {
		return err
	}
	defer payload.Close()
	// nspawn delegates the payload to the cell's root.
	for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(payload.Name(), f), c.base, c.base); err != nil {
			return err
		}
	}
	mine, theirs, err := seqpacket()
	if err != nil {
		return err
	}
	defer theirs.Close()
	pidR, pidW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pidR.Close()
	cmd := exec.Command("/proc/self/exe", "world-supervisor")
	cmd.Env = append(os.Environ(), spec{Base: c.base}.env())
	cmd.ExtraFiles = []*os.File{theirs, pidW, payload}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cg.Fd()), Unshareflags: unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return err
	}
	pidW.Close()
	b, err := io.ReadAll(pidR)
	if err == nil {
		c.first, err = strconv.Atoi(string(b))
	}
	if err != nil {
		_ = cmd.Wait()
		return fmt.Errorf("its first process did not start: %w", err)
	}
	c.supervisor = cmd
	c.sessions[Payload] = &net1{mine}
	return nil
}

// supervisor is what nspawn's own process does: it mounts, starts the cell's first process and waits for it.
func supervisor(s spec) error {
	for fd := 3; fd <= 5; fd++ {
		syscall.CloseOnExec(fd)
	}
	if err := onlyBinds([]string{wire.CellDir}, []string{wire.CellRun}); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", "world-spawner")
	cmd.Env = append(os.Environ(), spec{Base: s.Base}.env())
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "socket")}
	cmd.Stderr = os.Stderr
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: s.Base, Size: cellUIDs}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS,
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

// session returns the spawner of a session, and begins the session where it is new: as `doorward run` does, in a
// cgroup beside the payload and in the cell's namespaces.
func (c *Cell) session(name string) (*net1, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.sessions[name]; n != nil {
		return n, nil
	}
	cg, err := cgroupDir(c.Cgroup(name))
	if err != nil {
		return nil, err
	}
	defer cg.Close()
	mine, theirs, err := seqpacket()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	cmd := exec.Command("nsenter", "--user", "--mount", "--pid", "--net", "--ipc", "--uts", "--target",
		strconv.Itoa(c.first), "--setuid", "0", "--setgid", "0", "--", "/proc/self/fd/4", "world-spawner")
	cmd.Env = append(os.Environ(), spec{}.env())
	cmd.ExtraFiles = []*os.File{theirs, exe}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cg.Fd())}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait() }()
	n := &net1{mine}
	c.sessions[name] = n
	return n, nil
}

// EndSession kills everything in a session other than the payload and forgets it.
func (c *Cell) EndSession(name string) error {
	c.mu.Lock()
	n := c.sessions[name]
	delete(c.sessions, name)
	c.mu.Unlock()
	if n == nil || name == Payload {
		return fmt.Errorf("end session %s: no such run", name)
	}
	_ = n.sock.Close()
	return ground.RemoveCgroup(c.Cgroup(name))
}

// Stop kills the cell and everything in it. World.Cell of the same name starts it anew.
func (c *Cell) Stop() error {
	c.w.mu.Lock()
	delete(c.w.cells, c.Name)
	c.w.mu.Unlock()
	err := ground.KillCgroup(c.Cgroup(""))
	c.wait()
	return errors.Join(err, ground.RemoveCgroup(c.Cgroup("")))
}

func (c *Cell) wait() {
	if c.supervisor != nil {
		_ = c.supervisor.Wait()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.sessions {
		_ = n.sock.Close()
	}
	c.sessions = map[string]*net1{}
}

// Actor runs commands in the cell's payload.
func (c *Cell) Actor() *Actor { return c.Session(Payload) }

// Session runs commands in a session of the cell: `payload`, or `run-` and an id, which begins when first used.
func (c *Cell) Session(name string) *Actor {
	return &Actor{Name: c.Name + "/" + name, w: c.w, start: func(cmd *Cmd, files []*os.File) error {
		n, err := c.session(name)
		if err != nil {
			return err
		}
		b, err := json.Marshal(request{cmd.Args, cmd.Env, cmd.UID})
		if err != nil {
			return err
		}
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		_, err = unix.SendmsgN(int(n.sock.Fd()), b, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		return err
	}}
}

func seqpacket() (mine, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "spawner"), os.NewFile(uintptr(fds[1]), "spawner"), nil
}

// cellEnv is what a command in a cell finds in its environment besides what the caller adds.
func cellEnv(prefix string) []string {
	return []string{"PATH=" + strings.Join([]string{filepath.Join(prefix, "bin"), "/usr/bin", "/bin"}, ":"), "HOME=/tmp",
		"LANG=C.UTF-8", "TERM=dumb"}
}
