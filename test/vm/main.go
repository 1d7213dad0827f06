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
	only := flag.String("run", "", "run only the tests that match this `PATTERN`, as go test -run does")
	limit := flag.Duration("timeout", 20*time.Minute, "kill the machine after so long")
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
	cache := os.Getenv("DOORWARD_VM_CACHE")
	if cache == "" {
		cache = filepath.Join(root, "build", "vm")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	b, err := makeBase(ctx, cache)
	if err != nil {
		return err
	}
	out := filepath.Join(root, "build", "vm-last") // of this run; the next one's overwrites it
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	m := &machine{base: b, dir: out, shell: *shell}
	if err := m.load(ctx, root, *deb, *only); err != nil {
		return err
	}
	if !*shell {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *limit)
		defer cancel()
	}
	return m.boot(ctx)
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
