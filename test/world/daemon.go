// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// readyTimeout bounds a daemon's start; a busy machine needs a part of it.
const readyTimeout = 60 * time.Second

// Daemon is one unit of the world. Its methods may be called from several goroutines, but not Start beside Start.
type Daemon struct {
	Name string
	// Ahead is how much later than the machine's the clock that counts since boot is for the daemon when it starts next,
	// in a time namespace of its own (time_namespaces(7)). The wall clock is the machine's.
	Ahead time.Duration

	w          *World
	binary     string
	uid        int
	groups     []uint32
	env        []string
	args       []string
	privateNet bool
	sockets    []socket

	mu   sync.Mutex // guards what follows
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
	err  error         // of the end
}

// Unit is the name of the daemon's unit.
func (d *Daemon) Unit() string {
	if vendor, ok := strings.CutPrefix(d.Name, "worker-"); ok {
		return "doorward-worker@" + vendor + ".service"
	}
	return "doorward-" + d.Name + ".service"
}

// Cgroup is the daemon's cgroup, from the ground's root.
func (d *Daemon) Cgroup() string {
	if strings.HasPrefix(d.Name, "worker-") {
		return "/doorward.slice/doorward-workers.slice/" + d.Unit()
	}
	return "/doorward.slice/" + d.Unit()
}

// Start starts the daemon and waits until it says that it is ready.
func (d *Daemon) Start() error {
	d.mu.Lock()
	running := d.cmd != nil
	d.mu.Unlock()
	if running {
		return fmt.Errorf("start %s: it runs", d.Name)
	}
	notify, err := d.notifySocket()
	if err != nil {
		return err
	}
	defer notify.Close()
	logFile, err := os.OpenFile(d.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	cg, err := cgroupDir(d.Cgroup())
	if err != nil {
		return err
	}
	defer cg.Close()

	env := append([]string{"NOTIFY_SOCKET=" + d.notifyPath()}, d.env...)
	var names []string
	cmd := exec.Command("/proc/self/exe", "world-daemon")
	if d.Ahead != 0 {
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		// It executes the program without a fork, which is in the namespace from then on.
		cmd = exec.Command("unshare", "--time", "--boottime", strconv.Itoa(int(d.Ahead.Seconds())), exe, "world-daemon")
	}
	for _, s := range d.sockets {
		names = append(names, s.name)
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.file)
	}
	env = append(env, "LISTEN_FDS="+strconv.Itoa(len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	s := spec{Binary: d.binary, Args: d.args, Env: env, UID: d.uid, Binds: rows(d.Name)}
	for _, g := range d.groups {
		s.Groups = append(s.Groups, int(g))
	}
	cmd.Env = []string{s.env()}
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cg.Fd()), Unshareflags: unix.CLONE_NEWNS}
	if d.privateNet {
		cmd.SysProcAttr.Unshareflags |= unix.CLONE_NEWNET
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", d.Name, err)
	}
	done := make(chan struct{})
	d.mu.Lock()
	d.cmd, d.done = cmd, done
	d.mu.Unlock()
	go func() {
		err := cmd.Wait()
		d.mu.Lock()
		d.cmd, d.err = nil, err
		d.mu.Unlock()
		close(done)
		_ = notify.SetReadDeadline(time.Now())
	}()
	if err := d.ready(notify, done); err != nil {
		_ = cmd.Process.Kill()
		<-done
		return fmt.Errorf("start %s: %w; it said:\n%s", d.Name, err, d.Log())
	}
	return nil
}

func (d *Daemon) ready(notify *net.UnixConn, done chan struct{}) error {
	_ = notify.SetReadDeadline(time.Now().Add(readyTimeout))
	select {
	case <-done: // it ended before the deadline was set
		_ = notify.SetReadDeadline(time.Now())
	default:
	}
	b := make([]byte, 4096)
	for {
		n, err := notify.Read(b)
		if err != nil {
			select {
			case <-done:
				return fmt.Errorf("it ended: %v", d.Err())
			default:
			}
			return fmt.Errorf("wait until it is ready: %w", err)
		}
		for line := range strings.Lines(string(b[:n])) {
			if strings.TrimSpace(line) == "READY=1" {
				return nil
			}
		}
	}
}

func (d *Daemon) notifyPath() string { return d.w.path("notify", d.Name) }
func (d *Daemon) logPath() string    { return d.w.path("log", d.Name) }

func (d *Daemon) notifySocket() (*net.UnixConn, error) {
	_ = os.Remove(d.notifyPath())
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: d.notifyPath(), Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	return c, os.Chmod(d.notifyPath(), 0o777)
}

// PID is the daemon's process, on the ground; 0 while it does not run.
func (d *Daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

// Err is how the daemon ended last; nil is success.
func (d *Daemon) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Done is closed when the daemon that runs has ended; it is closed already where none runs.
func (d *Daemon) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		c := make(chan struct{})
		close(c)
		return c
	}
	return d.done
}

// Signal sends a signal to the daemon.
func (d *Daemon) Signal(s syscall.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return fmt.Errorf("signal %s: it does not run", d.Name)
	}
	return d.cmd.Process.Signal(s)
}

// Freeze stops every thread of the daemon and returns when all stand still. A frozen daemon can be killed.
func (d *Daemon) Freeze() error {
	group, err := ground.MakeCgroup(d.Cgroup())
	if err == nil {
		err = group.Freeze()
	}
	if err != nil {
		return fmt.Errorf("freeze %s: %w", d.Name, err)
	}
	// The library does not wait for the threads.
	events := filepath.Join(ground.Cgroup, d.Cgroup(), "cgroup.events")
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(events)
		if err != nil {
			return fmt.Errorf("freeze %s: %w", d.Name, err)
		}
		if strings.Contains(string(b), "frozen 1") {
			return nil
		}
	}
	return fmt.Errorf("freeze %s: it does not stand still", d.Name)
}

// Thaw lets a frozen daemon go on; another is left alone.
func (d *Daemon) Thaw() error {
	group, err := ground.MakeCgroup(d.Cgroup())
	if err == nil {
		err = group.Thaw()
	}
	if err != nil {
		return fmt.Errorf("thaw %s: %w", d.Name, err)
	}
	return nil
}

// Stat is what the kernel counts of the daemon's cgroup; which controllers count depends on the machine.
func (d *Daemon) Stat() (*stats.Metrics, error) {
	group, err := ground.MakeCgroup(d.Cgroup())
	if err != nil {
		return nil, err
	}
	return group.StatFiltered(cgroup2.StatCPU)
}

// Kill kills the daemon as `kill -9` does and waits for its end. One that does not run is left alone.
func (d *Daemon) Kill() {
	done := d.Done()
	_ = d.Signal(syscall.SIGKILL)
	<-done
}

// Stop ends the daemon as systemd does, and returns how it ended.
func (d *Daemon) Stop() error {
	done := d.Done()
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-done:
		return d.Err()
	case <-time.After(readyTimeout):
		d.Kill()
		return fmt.Errorf("stop %s: it did not end in %v", d.Name, readyTimeout)
	}
}

// Restart is Stop and Start.
func (d *Daemon) Restart() error {
	if err := d.Stop(); err != nil {
		return err
	}
	return d.Start()
}

// Log is everything that the daemon wrote since the world was opened.
func (d *Daemon) Log() string {
	b, _ := os.ReadFile(d.logPath())
	return string(b)
}

func (d *Daemon) close() {
	d.Kill()
	for _, s := range d.sockets {
		_ = s.file.Close()
	}
}

// cgroupDir makes a cgroup with its parents and opens it.
func cgroupDir(path string) (*os.File, error) {
	if _, err := ground.MakeCgroup(path); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(ground.Cgroup, path))
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", path, err)
	}
	return f, nil
}

var errNoShim = errors.New("this program does not begin with world.Main or world.Enter")
