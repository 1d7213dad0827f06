// SPDX-License-Identifier: Apache-2.0

// Command vm is `make vm-test` and `make vm-shell`: it boots a Debian 13 under QEMU, without KVM, in which systemd is
// process 1, installs this build's package in it, and runs the tests of test/vm/inside there. What they print
// comes back over a serial port, the journal and what else they leave on a disk. It fails unless every result is a pass.
//
// The base is made once by mmdebstrap and kept in DOORWARD_VM_CACHE, or build/vm; no run changes it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/doorward/doorward/test/world"
	"golang.org/x/sys/unix"
)

// errSkipped wraps what this machine lacks.
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
	full := flag.Bool("full", false, "run every suite, and of each every test")
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
		m, err := prepare(ctx, suites[0], root, out, *deb, true)
		if err != nil {
			return err
		}
		return m.person(ctx)
	}
	chosen, err := choose(ctx, root, out, *only, *full)
	if err != nil {
		return err
	}
	passed, errs := 0, []error(nil)
	for _, s := range chosen {
		fmt.Printf("== suite %s\n", s.name)
		r, err := try(ctx, s, root, filepath.Join(out, s.name), *deb, *limit)
		passed += r.passed
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Printf("VM ground: %d passed\n", passed)
	return nil
}

// try runs one suite.
func try(ctx context.Context, s suite, root, dir, deb string, limit time.Duration) (results, error) {
	m, err := prepare(ctx, s, root, dir, deb, false)
	if err != nil {
		return results{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return m.boot(ctx)
}

// prepare has everything in place for the machine of a suite.
func prepare(ctx context.Context, s suite, root, dir, deb string, shell bool) (*machine, error) {
	cache := os.Getenv("DOORWARD_VM_CACHE")
	if cache == "" {
		cache = filepath.Join(root, "build", "vm")
	}
	if err := errors.Join(os.MkdirAll(cache, 0o755), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(cache, ".lock"), os.O_CREATE|os.O_RDWR, 0o644) // others may use the same cache
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("wait for another who makes the base: %w", err)
	}
	b, err := makeBase(ctx, cache, s.base)
	if err != nil {
		return nil, err
	}
	m := &machine{suite: s, disks: b, dir: dir, shell: shell}
	return m, m.load(ctx, root, deb)
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
