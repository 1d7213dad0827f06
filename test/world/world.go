// SPDX-License-Identifier: Apache-2.0

// Package world runs the real binaries of Doorward. On a ground of their own (package ground) it does as systemd would:
// each daemon in its cgroup, under its own uid, in its own mount and network namespace with only its rows' directories
// below /run; sockets that stay open over restarts; cells with private users; persons in their slices. In the machine of
// test/vm systemd itself does it, by the units of the package that is installed there. A test sees no difference.
//
// Nothing in it is a stand-in for a part of Doorward, and no binary knows that it is not on an installed machine.
//
// It is for tests and the demo.
package world

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// Options say what stands in a world. The zero value is every daemon and both workers, as built.
type Options struct {
	// Workers are the vendors whose workers run; nil is dav and github.
	Workers []string
	// Binary replaces the binary of a daemon (`worker-dav`), for instance with a taken-over worker.
	Binary map[string]string
	// Config are files of /etc/doorward by name.
	Config map[string]string
	// State are files put into a daemon's state directory before its first start, by `daemon/path`.
	State map[string]string
	// Dir holds state and logs; empty is a new directory in memory. One that is given is kept by Close.
	Dir string
	// StoreKey and CheckpointKey, 32 bytes each, are the credentials of authd and sentinel; nil is a random one. With
	// NoStoreKey authd gets none and waits to be unlocked.
	StoreKey, CheckpointKey []byte
	NoStoreKey              bool
	// Cells starts the daemon of cells too: it freezes what a person stops, and runs what they start.
	Cells bool
	// Net gives cells a network with a way out, and each an egress of its own: Daemon("egress@NAME"), which starts before its
	// cell. Without it a cell's network has lo alone.
	Net bool
	// Hosts are lines of /etc/hosts that cells' egresses see, and nobody else: `127.0.0.1 site.example`.
	Hosts []string
	// Page starts page and approvals, behind ports of their own on localhost, which Place says. On the host ground only.
	Page bool
	// Later leaves the daemons unstarted.
	Later bool
}

// World is a running installation.
type World struct {
	Dir     string // state, config, credentials, logs
	Prefix  string // installation: bin, libexec, share
	Workers []string
	Place   *approver.Place // of Options.Page

	on      platform
	keepDir bool
	order   []string
	daemons map[string]*Daemon
	mu      sync.Mutex // guards cells
	cells   map[string]*Cell
}

// Main is TestMain for a package that starts worlds. It does not return.
func Main(m *testing.M) {
	shim()
	ground.Main(m)
}

// Enter is what a program that opens worlds does first: it runs itself again on a ground of its own. It goes on where
// inside is true, and ends with code where it is not.
func Enter() (inside bool, code int, err error) {
	shim()
	return ground.Enter()
}

// Start opens a world for a test and closes it behind it. When the test fails, it logs what the daemons logged. It
// skips the test where the host ground is missing.
func Start(t testing.TB, o Options) *World {
	t.Helper()
	ground.Need(t)
	w, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range w.order {
				t.Logf("log of %s:\n%s", name, w.daemons[name].Log())
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Open builds what is missing, makes the sockets and starts the daemons. There is one world at a time on a ground.
func Open(o Options) (*World, error) {
	if !ground.Inside() {
		return nil, errors.New("open a world: no ground of its own; needs root and cgroup2")
	}
	unix.Umask(0o022)
	w := &World{Dir: o.Dir, Workers: o.Workers, keepDir: o.Dir != "", daemons: map[string]*Daemon{}, cells: map[string]*Cell{},
		on: &host{}}
	if ground.Systemd() {
		w.on = &machine{}
	}
	if w.Workers == nil {
		w.Workers = []string{"dav", "github"}
	}
	if err := w.open(o); err != nil {
		return nil, errors.Join(fmt.Errorf("open a world: %w", err), w.Close())
	}
	return w, nil
}

func (w *World) open(o Options) error {
	var err error
	if w.Dir == "" {
		if w.Dir, err = os.MkdirTemp(ground.Dir, "world-"); err != nil {
			return err
		}
	}
	if err := errors.Join(os.MkdirAll(w.Dir, 0o755), os.Chmod(w.Dir, 0o755)); err != nil {
		return err
	}
	for _, name := range []string{"authd", "sentinel", "egress", "cells"} {
		w.add(name)
	}
	for _, vendor := range w.Workers {
		w.add("worker-" + vendor)
	}
	if o.Page {
		if ground.Systemd() {
			return errors.New("there is no page on this ground")
		}
		w.add("approvals")
		w.add("page")
	}
	if !o.Cells { // its sockets are there, and nobody accepts
		w.order = slices.DeleteFunc(w.order, func(name string) bool { return name == "cells" })
	}
	for name := range o.Binary {
		if w.daemons[name] == nil {
			return fmt.Errorf("Binary names %q, which does not run", name)
		}
	}
	for path := range o.State {
		if name, rest, _ := strings.Cut(path, "/"); w.daemons[name] == nil || rest == "" {
			return fmt.Errorf("State names %q, which is no daemon's", path)
		}
	}
	if err := w.on.lay(w, o); err != nil || o.Later {
		return err
	}
	for _, name := range w.order {
		if err := w.daemons[name].Start(); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) add(name string) {
	w.order = append(w.order, name)
	w.daemons[name] = &Daemon{Name: name}
}

func (w *World) path(elem ...string) string {
	return filepath.Join(append([]string{w.Dir}, elem...)...)
}

// State is the state directory of a daemon.
func (w *World) State(daemon string) string { return filepath.Join(w.on.dirs().state, daemon) }

// Config is the configuration directory.
func (w *World) Config() string { return w.on.dirs().config }

// Kept are the directories in which anything of this world is kept: state, configuration, and its own.
func (w *World) Kept() []string { return append(w.on.dirs().more, w.Dir) }

// User is the numeric user id that a daemon runs under. It has to run: a worker's may be drawn for each start.
func (w *World) User(daemon string) (int, error) {
	uid, _, _, err := w.daemons[daemon].unit.user()
	return uid, err
}

// Daemon is one of `authd`, `sentinel`, `egress`, `cells`, `worker-<vendor>`. It is nil for another name.
func (w *World) Daemon(name string) *Daemon { return w.daemons[name] }

// Daemons are all of them, in the order in which they start.
func (w *World) Daemons() []*Daemon {
	var out []*Daemon
	for _, name := range w.order {
		out = append(out, w.daemons[name])
	}
	return out
}

// Logs is everything that the daemons wrote, by daemon.
func (w *World) Logs() map[string]string {
	out := map[string]string{}
	for name, d := range w.daemons {
		out[name] = d.Log()
	}
	return out
}

// Close kills everything that runs in the world and removes it.
func (w *World) Close() error {
	err := w.on.close(w)
	if !w.keepDir {
		err = errors.Join(err, os.RemoveAll(w.Dir))
	}
	return err
}

// takeCells forgets the cells.
func (w *World) takeCells() map[string]*Cell {
	w.mu.Lock()
	defer w.mu.Unlock()
	cells := w.cells
	w.cells = map[string]*Cell{}
	return cells
}
