// SPDX-License-Identifier: Apache-2.0

// Package world runs the real binaries of Doorward as systemd would run them, on a ground of their own (package
// ground): each daemon in its cgroup, under its own uid, in its own mount and network namespace with only its rows'
// directories below /run; sockets that stay open over restarts; cells with private users; persons in their slices.
// Nothing in it is a stand-in for a part of Doorward, and no binary knows that it is not on an installed machine.
//
// It is for tests and the demo.
package world

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// Numeric ids, as sysusers.d and DynamicUser= would give them.
const (
	UIDAuthd    = 990
	UIDSentinel = 991
	UIDEgress   = 992
	uidWorker   = 61184 // of the first worker; each has its own

	GIDDoorward = 980 // persons that may use doorward
	GIDWorkers  = 981 // workers' static supplementary group
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
	// Later leaves the daemons unstarted.
	Later bool
}

// World is a running installation.
type World struct {
	Dir     string // state, config, credentials, logs
	Prefix  string // installation: bin, libexec, share
	Workers []string

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
	prefix, err := Build()
	if err != nil {
		return nil, err
	}
	at, err := reach(prefix)
	if err != nil {
		return nil, err
	}
	w := &World{Dir: o.Dir, Prefix: at, Workers: o.Workers, keepDir: o.Dir != "",
		daemons: map[string]*Daemon{}, cells: map[string]*Cell{}}
	if w.Workers == nil {
		w.Workers = []string{"dav", "github"}
	}
	if w.Dir == "" {
		if w.Dir, err = os.MkdirTemp(ground.Dir, "world-"); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	if err := w.make(o); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if o.Later {
		return w, nil
	}
	for _, name := range w.order {
		if err := w.daemons[name].Start(); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	return w, nil
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

// make lays out directories, credentials, sockets and the daemons.
func (w *World) make(o Options) error {
	var errs []error
	dir := func(path string, mode os.FileMode, uid, gid int) {
		errs = append(errs, os.MkdirAll(path, 0o755), os.Chmod(path, mode), os.Chown(path, uid, gid))
	}
	file := func(path, content string, mode os.FileMode, uid, gid int) {
		errs = append(errs, os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode), os.Chown(path, uid, gid))
	}
	dir(w.Dir, 0o755, 0, 0)
	dir(w.path("notify"), 0o755, 0, 0)
	dir(w.path("log"), 0o700, 0, 0)
	dir(w.path("etc"), 0o755, 0, 0)
	for name, content := range o.Config {
		dir(filepath.Dir(w.path("etc", name)), 0o755, 0, 0)
		file(w.path("etc", name), content, 0o644, 0, 0)
	}
	// /run/doorward as tmpfiles.d makes it: private is root's alone, so that a cell's sockets have one way in.
	dir(strings.TrimSuffix(wire.RunDir, "/"), 0o755, 0, 0)
	dir(wire.RunDir+"private", 0o700, 0, 0)
	dir(strings.TrimSuffix(wire.CellDir, "/"), 0o755, 0, 0)
	if err := errors.Join(errs...); err != nil {
		return err
	}

	key := func(b []byte) string {
		if b == nil {
			b = make([]byte, 32)
			_, _ = rand.Read(b)
		}
		return string(b)
	}
	w.add("authd", UIDAuthd, true)
	w.add("sentinel", UIDSentinel, true)
	w.add("egress", UIDEgress, false)
	w.add("cells", 0, true)
	w.daemons["cells"].env = []string{"CONFIGURATION_DIRECTORY=" + w.path("etc")}
	if !o.Cells { // its sockets are there, and nobody accepts
		w.order = slices.DeleteFunc(w.order, func(name string) bool { return name == "cells" })
	}
	for i, vendor := range w.Workers {
		w.add("worker-"+vendor, uidWorker+i, true)
		w.daemons["worker-"+vendor].groups = []uint32{GIDWorkers}
	}
	for name, binary := range o.Binary {
		if w.daemons[name] == nil {
			return fmt.Errorf("open a world: Binary names %q, which does not run", name)
		}
		w.daemons[name].binary = binary
	}
	for _, name := range w.order {
		d := w.daemons[name]
		if strings.HasPrefix(name, "worker-") || name == "egress" || name == "cells" {
			continue // no state, no credentials
		}
		d.env = append(d.env, "STATE_DIRECTORY="+w.State(name), "CREDENTIALS_DIRECTORY="+w.path("credentials", name),
			"CONFIGURATION_DIRECTORY="+w.path("etc"))
		dir(w.State(name), 0o700, d.uid, d.uid)
		dir(w.path("credentials", name), 0o700, d.uid, d.uid)
	}
	if !o.NoStoreKey {
		file(w.path("credentials", "authd", "store-key"), key(o.StoreKey), 0o400, UIDAuthd, UIDAuthd)
	}
	file(w.path("credentials", "sentinel", "checkpoint-key"), key(o.CheckpointKey), 0o400, UIDSentinel, UIDSentinel)
	for path, content := range o.State {
		name, rest, _ := strings.Cut(path, "/")
		d := w.daemons[name]
		if d == nil || rest == "" {
			return fmt.Errorf("open a world: State names %q, which is no daemon's", path)
		}
		for parent := filepath.Dir(rest); parent != "."; parent = filepath.Dir(parent) {
			dir(filepath.Join(w.State(name), parent), 0o700, d.uid, d.uid)
		}
		file(filepath.Join(w.State(name), rest), content, 0o600, d.uid, d.uid)
	}
	return errors.Join(append(errs, w.listen())...)
}

func (w *World) add(name string, uid int, private bool) {
	w.order = append(w.order, name)
	w.daemons[name] = &Daemon{w: w, Name: name, uid: uid, privateNet: private,
		binary: filepath.Join(w.Prefix, "libexec/doorward", name)}
}

func (w *World) path(elem ...string) string {
	return filepath.Join(append([]string{w.Dir}, elem...)...)
}

// State is the state directory of a daemon.
func (w *World) State(daemon string) string { return w.path("state", daemon) }

// Config is the configuration directory.
func (w *World) Config() string { return w.path("etc") }

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
	var errs []error
	w.mu.Lock()
	cells := w.cells
	w.cells = map[string]*Cell{}
	w.mu.Unlock()
	for _, slice := range []string{"doorward.slice", "user.slice"} {
		if err := ground.KillCgroup("/" + slice); err != nil {
			errs = append(errs, fmt.Errorf("close the world: %w", err))
		}
	}
	for _, c := range cells {
		c.wait()
	}
	for _, d := range w.daemons {
		d.close()
	}
	for _, slice := range []string{"doorward.slice", "user.slice"} {
		if err := ground.RemoveCgroup("/" + slice); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, os.RemoveAll(strings.TrimSuffix(wire.RunDir, "/")), unreach(w.Prefix))
	if !w.keepDir {
		errs = append(errs, os.RemoveAll(w.Dir))
	}
	return errors.Join(errs...)
}

// spec is what a shim reads from its environment.
type spec struct {
	Binary string   `json:",omitempty"`
	Args   []string `json:",omitempty"`
	Env    []string `json:",omitempty"`
	UID    int      `json:",omitempty"`
	Groups []int    `json:",omitempty"`
	Binds  []string `json:",omitempty"` // directories below /run that stay
	Base   int      `json:",omitempty"` // first host uid of a cell's users
	Cgroup string   `json:",omitempty"`
}

const specEnv = "DOORWARD_WORLD_SPEC"

func (s spec) env() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers
	}
	return specEnv + "=" + string(b)
}
