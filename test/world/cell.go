// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"fmt"
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

// Cell is a started cell.
type Cell struct {
	Name string

	w     *World
	first int // a process of the cell's own start, as the ground numbers it

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
	c := &Cell{Name: name, w: w, sessions: map[string]*net1{}}
	first, payload, err := w.on.startCell(c)
	if err != nil {
		return nil, fmt.Errorf("start cell %s: %w", name, err)
	}
	c.first = first
	if payload != nil {
		c.sessions[Payload] = payload
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
	err := c.w.on.stopCell(c)
	c.forget()
	return err
}

// forget closes the connections into a cell that is gone.
func (c *Cell) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.sessions {
		_ = n.sock.Close()
	}
	c.sessions = map[string]*net1{}
}

// trustEnv is what a cell that has the root of its egress has in its environment.
func (c *Cell) trustEnv() []string {
	var env []string
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root%s%s", c.first, wire.CellCA, wire.CARoot)); err == nil {
		for name, value := range wire.TrustEnv() {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Actor runs commands in the cell's payload.
func (c *Cell) Actor() *Actor { return c.Session(Payload) }

// Session runs commands in a session of the cell: `payload`, or `run-` and an id, which begins when first used.
func (c *Cell) Session(name string) *Actor {
	return &Actor{Name: c.Name + "/" + name, w: c.w, env: c.trustEnv(), start: func(cmd *Cmd, files []*os.File) error {
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
