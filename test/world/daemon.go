// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/doorward/doorward/test/ground"
)

// readyTimeout bounds a daemon's start; a busy machine needs a part of it.
const readyTimeout = 60 * time.Second

// Daemon is one unit of the world. Its methods may be called from several goroutines, but not Start beside Start.
type Daemon struct {
	Name string
	// Ahead is how much later than the machine's the clock that counts since boot is for the daemon when it starts next,
	// in a time namespace of its own (time_namespaces(7)). The wall clock is the machine's. On the host ground only.
	Ahead time.Duration

	unit unit

	mu   sync.Mutex // guards what follows
	proc *process   // the one that runs, or ran last
}

// process is a daemon that runs or ran.
type process struct {
	pid    int
	signal func(syscall.Signal) error
	done   chan struct{} // closed at its end, behind err
	err    error         // of the end; nil is success
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
	if d.PID() != 0 {
		return fmt.Errorf("start %s: it runs", d.Name)
	}
	err := d.unit.start(d.Ahead, func(p *process) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.proc = p
	})
	if err != nil {
		return fmt.Errorf("start %s: %w; it said:\n%s", d.Name, err, d.Log())
	}
	return nil
}

// last is the process that runs or ran last, and whether it runs.
func (d *Daemon) last() (p *process, runs bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proc == nil {
		return &process{done: closed}, false
	}
	select {
	case <-d.proc.done:
		return d.proc, false
	default:
		return d.proc, true
	}
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// PID is the daemon's process, on the ground; 0 while it does not run.
func (d *Daemon) PID() int {
	if p, runs := d.last(); runs {
		return p.pid
	}
	return 0
}

// Err is how the daemon ended last; nil is success.
func (d *Daemon) Err() error {
	if p, runs := d.last(); !runs {
		return p.err
	}
	return nil
}

// Done is closed when the daemon that runs has ended; it is closed already where none runs.
func (d *Daemon) Done() <-chan struct{} {
	p, _ := d.last()
	return p.done
}

// Signal sends a signal to the daemon.
func (d *Daemon) Signal(s syscall.Signal) error {
	p, runs := d.last()
	if !runs {
		return fmt.Errorf("signal %s: it does not run", d.Name)
	}
	return p.signal(s)
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
func (d *Daemon) Log() string { return d.unit.log() }

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
