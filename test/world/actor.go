// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Actor starts commands somewhere: in a session of a cell, or as a person.
type Actor struct {
	Name  string
	w     *World
	uid   int      // of commands that name none
	env   []string // of its commands besides the usual
	start func(*Cmd, []*os.File) error
}

// Cmd is a command.
type Cmd struct {
	Args  []string // Args[0] is a path
	Env   []string // besides a short usual one
	UID   int      // in a cell; 0 is its root
	Stdin string
	// StdinFile, StdoutFile and StderrFile, where set, are used instead of collecting.
	StdinFile, StdoutFile, StderrFile *os.File
}

// Result is how a command ended. A command that was killed by a signal has code 128 and the signal's number.
type Result struct {
	Code           int
	Stdout, Stderr string
}

func (r Result) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.Code, r.Stdout, r.Stderr)
}

// Proc is a command that runs.
type Proc struct {
	end      *os.File
	out, err *collector
	once     sync.Once
	result   Result
	fail     error
}

type collector struct {
	done chan struct{}
	b    bytes.Buffer
}

// collect reads everything that is written to the other end.
func collect() (*os.File, *collector, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c := &collector{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer r.Close()
		_, _ = io.Copy(&c.b, r)
	}()
	return w, c, nil
}

func (c *collector) String() string {
	if c == nil {
		return ""
	}
	<-c.done
	return c.b.String()
}

// Start starts a command.
func (a *Actor) Start(c Cmd) (*Proc, error) {
	var mine []*os.File // to be closed here once the command has them
	defer func() {
		for _, f := range mine {
			_ = f.Close()
		}
	}()
	p := &Proc{}
	files := []*os.File{c.StdinFile, c.StdoutFile, c.StderrFile}
	if files[0] == nil {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		mine = append(mine, r)
		files[0] = r
		go func() {
			defer w.Close()
			_, _ = io.WriteString(w, c.Stdin)
		}()
	}
	for i, to := range []**collector{&p.out, &p.err} {
		if files[i+1] == nil {
			w, col, err := collect()
			if err != nil {
				return nil, err
			}
			mine = append(mine, w)
			files[i+1], *to = w, col
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	p.end = os.NewFile(uintptr(pair[0]), "end")
	theirs := os.NewFile(uintptr(pair[1]), "end")
	mine = append(mine, theirs)
	c.Env = slices.Concat(cellEnv(a.w.Prefix), a.env, c.Env)
	if c.UID == 0 {
		c.UID = a.uid
	}
	if err := a.start(&c, append(files, theirs)); err != nil {
		_ = p.end.Close()
		return nil, fmt.Errorf("start %s as %s: %w", c.Args[0], a.Name, err)
	}
	return p, nil
}

// Kill kills the command and its process group.
func (p *Proc) Kill() { p.Signal(unix.SIGKILL) }

// Signal sends a signal to the command and its process group.
func (p *Proc) Signal(s syscall.Signal) { _, _ = p.end.Write([]byte{byte(s)}) }

// Wait waits for the end.
func (p *Proc) Wait() (Result, error) {
	p.once.Do(func() {
		b, err := io.ReadAll(p.end)
		_ = p.end.Close()
		code, convErr := strconv.Atoi(string(b))
		if err != nil || convErr != nil {
			p.fail = fmt.Errorf("wait for a command: its cell ended: %w", errors.Join(err, convErr))
			return
		}
		p.result = Result{code, p.out.String(), p.err.String()}
	})
	return p.result, p.fail
}

// Do starts a command and waits for it; it is killed when ctx ends.
func (a *Actor) Do(ctx context.Context, c Cmd) (Result, error) {
	p, err := a.Start(c)
	if err != nil {
		return Result{}, err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	return p.Wait()
}

// Run is Do for a program and its arguments.
func (a *Actor) Run(ctx context.Context, args ...string) (Result, error) {
	return a.Do(ctx, Cmd{Args: args})
}

// Connector runs the cell's command as the agent's user.
func (a *Actor) Connector(ctx context.Context, args ...string) (Result, error) {
	return a.Do(ctx, Cmd{Args: append([]string{filepath.Join(a.w.Prefix, "bin/connector")}, args...), UID: 1000})
}

// Doorward runs the person's command. stdin is what it reads.
func (a *Actor) Doorward(ctx context.Context, stdin string, args ...string) (Result, error) {
	return a.Do(ctx, Cmd{Args: append([]string{filepath.Join(a.w.Prefix, "bin/doorward")}, args...), Stdin: stdin})
}

// Person acts as a person of group doorward in a login session; uid 0 is the admin.
func (w *World) Person(uid int) *Actor { return w.local(uid, true) }

// Local acts as another user of this machine, who is not in the group.
func (w *World) Local(uid int) *Actor { return w.local(uid, false) }

func (w *World) local(uid int, person bool) *Actor {
	a := &Actor{Name: "user " + strconv.Itoa(uid), w: w, uid: uid}
	a.start = func(c *Cmd, files []*os.File) error {
		var groups []uint32
		if person {
			gid, err := w.on.persons()
			if err != nil {
				return err
			}
			groups = []uint32{uint32(gid)}
		}
		return w.run(c, files, fmt.Sprintf("/user.slice/user-%d.slice/session-1.scope", uid), c.UID, c.UID, groups)
	}
	return a
}

// Inside acts within the unit of a daemon: its uid, groups and cgroup, and the whole /run. It is for attacks by
// something that is in a unit, and for controls.
func (w *World) Inside(name string) *Actor {
	d := w.daemons[name]
	a := &Actor{Name: "inside " + name, w: w}
	a.start = func(c *Cmd, files []*os.File) error {
		if d == nil {
			return fmt.Errorf("no daemon %s", name)
		}
		uid, gid, groups, err := d.unit.user()
		if err != nil {
			return err
		}
		return w.run(c, files, d.Cgroup(), uid, gid, groups)
	}
	return a
}

// InsideEgress is a place where the egress of a cell would be, of a cell that needs none: its user, its group and its cgroup.
func (w *World) InsideEgress(cell string) *Actor {
	return &Actor{Name: "inside the egress of " + cell, w: w, start: func(c *Cmd, files []*os.File) error {
		cgroup := "/doorward.slice/doorward-egress@" + cell + ".service"
		return w.run(c, files, cgroup, uidCellEgress, uidCellEgress, []uint32{uidEgress})
	}}
}

// run starts a command outside every cell, in a cgroup and as somebody, and reports its end to files[3].
func (w *World) run(c *Cmd, files []*os.File, cgroup string, uid, gid int, groups []uint32) error {
	cg, err := cgroupDir(cgroup)
	if err != nil {
		return err
	}
	defer cg.Close()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir = c.Env, "/tmp"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(cg.Fd()), Setpgid: true,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: groups},
	}
	fd, err := unix.FcntlInt(files[3].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	end := os.NewFile(uintptr(fd), "end")
	if err := cmd.Start(); err != nil {
		_ = end.Close()
		return err
	}
	go func() {
		b := make([]byte, 1)
		for n, _ := end.Read(b); n == 1; n, _ = end.Read(b) {
			_ = unix.Kill(-cmd.Process.Pid, syscall.Signal(b[0]))
		}
	}()
	go func() {
		code := codeOf(cmd.Wait())
		_, _ = end.WriteString(strconv.Itoa(code))
		_ = unix.Shutdown(int(end.Fd()), unix.SHUT_RDWR) // wakes the reader
		_ = end.Close()
	}()
	return nil
}
