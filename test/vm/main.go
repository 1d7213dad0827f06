// SPDX-License-Identifier: Apache-2.0

// Command vm is `make vm-test` and `make vm-shell`: it boots a Debian 13 under QEMU, without KVM, in which systemd is
// process 1, installs this build's package in it, and runs the tests of test/vm/inside there. What they print
// comes back over a serial port, the journal and what else they leave on a disk. It fails unless every result is a pass.
//
// The base is made once by mmdebstrap and kept in DOORWARD_VM_CACHE, or build/vm; no run changes it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/doorward/doorward/test/world"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// errSkipped wraps what this machine lacks: for all suites, or for one.
var errSkipped = errors.New("VM ground skipped")

func main() {
	err := run()
	switch {
	case errors.Is(err, errSkipped):
		fmt.Println(err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

func run() error {
	shell := flag.Bool("shell", false, "boot with the build installed and give a root shell; its end is the machine's")
	deb := flag.String("deb", "", "the package `FILE` to install, as `make deb` makes it")
	only := flag.String("run", "", "run only the tests that match this `PATTERN`, as go test -run does, of any suite")
	which := flag.String("suite", "", "run only the suites whose names match this `PATTERN`")
	full := flag.Bool("full", false, "run every suite, and of each every test")
	booted := flag.String("base", "", "boot this `BASE` for the suites that name none; backports has a newer kernel")
	cover := flag.Bool("cover", false, "have the daemons say what of them ran")
	limit := flag.Duration("timeout", 30*time.Minute, "kill a machine after so long")
	flag.Parse()
	if err := lacking(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := world.Root()
	if err != nil {
		return err
	}
	out := filepath.Join(root, "build", "vm-last") // of this run; the next one's overwrites it
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	if *shell {
		m := &machine{suite: suites[0], dir: out, shell: true}
		if err := m.prepare(ctx, root, *deb); err != nil {
			return err
		}
		return m.person(ctx)
	}
	chosen, err := choose(ctx, root, out, *which, *only, *full)
	if err != nil {
		return err
	}
	all := tally{started: time.Now()}
	var mu sync.Mutex // of all
	var machines errgroup.Group
	machines.SetLimit(min(runtime.NumCPU(), 4)) // each takes one processor and 3 GiB
	for _, s := range chosen {
		if s.base == "" {
			s.base = *booted
		}
		m := &machine{suite: s, dir: filepath.Join(out, s.name), cover: *cover && s.covers}
		machines.Go(func() error {
			r, err := m.try(ctx, root, *deb, *limit)
			mu.Lock()
			defer mu.Unlock()
			all.take(m, r, err)
			return nil // what went wrong is counted, and stops no other
		})
	}
	_ = machines.Wait()
	if len(all.covered) > 0 {
		if err := mergeCover(ctx, root, out, all.covered); err != nil {
			all.Failed = append(all.Failed, err.Error())
		}
		fmt.Println("what of the daemons ran:", filepath.Join(out, "coverage.txt"))
	}
	return all.say(chosen, out)
}

// take counts how a suite ended. One that this machine cannot give leaves what the others gave as it is.
func (t *tally) take(m *machine, r results, err error) {
	if errors.Is(err, errSkipped) {
		t.Skipped = append(t.Skipped, m.name+": "+strings.TrimPrefix(err.Error(), errSkipped.Error()+": "))
		return
	}
	t.Passed += r.passed
	for _, name := range r.bad {
		t.Failed = append(t.Failed, m.name+" "+name)
	}
	if m.cover {
		dir, bad := unpackCover(m.dir)
		if bad == nil {
			t.covered = append(t.covered, dir)
		}
		err = errors.Join(err, bad)
	}
	if err != nil {
		t.Failed = append(t.Failed, m.name+": "+err.Error())
	}
}

// try runs one suite.
func (m *machine) try(ctx context.Context, root, deb string, limit time.Duration) (results, error) {
	m.say("suite " + m.pkg)
	if err := m.prepare(ctx, root, deb); err != nil {
		return results{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return m.boot(ctx)
}

// tally is what came of a whole run; `make test` reads it.
type tally struct {
	Passed  int
	Failed  []string
	Skipped []string // suites, and why
	started time.Time
	covered []string // folders of what the daemons ran
}

// say writes the results down, and says them; the last lines are for who reads only those. What failed is an error, and so
// is that nothing passed: errSkipped where that is this machine's doing.
func (t *tally) say(chosen []suite, out string) error {
	b, err := json.Marshal(t)
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "results.json"), b, 0o644)
	}
	if err != nil {
		return err
	}
	for _, s := range chosen {
		for _, name := range slices.Sorted(maps.Keys(s.without)) {
			fmt.Printf("%s without %s: %s\n", s.name, name, s.without[name])
		}
	}
	switch {
	case len(t.Failed) > 0:
		err = fmt.Errorf("VM ground: %d passed, %d did not:\n  %s", t.Passed, len(t.Failed), strings.Join(t.Failed, "\n  "))
	case t.Passed == 0 && len(t.Skipped) > 0:
		return fmt.Errorf("%w: %s", errSkipped, strings.Join(t.Skipped, "; "))
	case t.Passed == 0:
		return errors.New("VM ground: no test ran")
	}
	for _, why := range t.Skipped {
		fmt.Println("VM ground skipped in part:", why)
	}
	if err != nil {
		return err
	}
	fmt.Printf("VM ground: %d passed in %.0f s\n", t.Passed, time.Since(t.started).Seconds())
	return nil
}

// prepare has everything in place for the machine.
func (m *machine) prepare(ctx context.Context, root, deb string) error {
	cache := os.Getenv("DOORWARD_VM_CACHE")
	if cache == "" {
		cache = filepath.Join(root, "build", "vm")
	}
	err := errors.Join(os.MkdirAll(cache, 0o755), os.MkdirAll(m.dir, 0o755))
	if err != nil {
		return err
	}
	if m.disks, err = takeBase(ctx, cache, m.base); err != nil {
		return err
	}
	return m.load(ctx, root, deb, cache)
}

// takeBase takes a base from the cache, or makes it there. Others may use the same cache.
func takeBase(ctx context.Context, cache, name string) (base, error) {
	lock, err := os.OpenFile(filepath.Join(cache, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return base{}, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return base{}, fmt.Errorf("wait for another who makes the base: %w", err)
	}
	return makeBase(ctx, cache, name)
}

// lacking says what this machine has to have and has not.
func lacking() error {
	var missing []string
	for program, pkg := range map[string]string{
		"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs",
	} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: apt-get install -y --no-install-recommends %s", errSkipped, strings.Join(missing, " "))
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: the disk's files have owners, so making it needs root", errSkipped)
	}
	return nil
}

// command runs a program and says all that it said if it fails.
func command(ctx context.Context, name string, args ...string) error {
	if b, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, b)
	}
	return nil
}
