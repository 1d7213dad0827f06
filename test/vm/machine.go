// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"
)

// start is what the machine runs. The third disk takes a tar file as it is.
const start = `#!/bin/sh
# Without a size of its own the terminal makes programs wrap.
stty -F /dev/ttyS1 raw -echo
export DOORWARD_IN_VM=1 HOME=/root TERM=dumb OUT=/run/out GOTRACEBACK=all
mkdir -p $OUT
cd /tmp
if [ -e /bench/shell ]; then
	/bench/inside.test -test.run '^$'
	echo "Doorward is installed and runs. ` + "`exit`" + ` ends the machine."
	stty -F /dev/ttyS1 sane
	exec setsid --ctty --wait bash -l </dev/ttyS1
fi
/bench/inside.test -test.v -test.timeout=60m -test.run "$(cat /bench/only)"
echo "bench: end $?"
journalctl --no-pager -o short-monotonic > $OUT/journal.txt
dmesg > $OUT/dmesg.txt
tar -C $OUT -cf /dev/vdc .
sync
`

// outSize bounds in bytes what a run may bring back.
const outSize = 256 << 20

type machine struct {
	base  base
	dir   string // for disks, console and what comes back
	shell bool
}

// load makes the second disk: the package, the tests, and what they need.
func (m *machine) load(ctx context.Context, root, deb, only string) error {
	tree := filepath.Join(m.dir, "bench")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return err
	}
	if err := os.Link(deb, filepath.Join(tree, "doorward.deb")); err != nil {
		return fmt.Errorf("take the package: %w; `make deb` makes it", err)
	}
	for _, args := range [][]string{
		{"test", "-c", "-o", filepath.Join(tree, "inside.test"), "./test/vm/inside"},
		{"build", "-o", filepath.Join(tree, "ask"), "./test/world/ask"},
		{"build", "-o", filepath.Join(tree, "probe"), "./test/vm/inside/probe"},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if b, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, b)
		}
	}
	err := errors.Join(os.WriteFile(filepath.Join(tree, "start"), []byte(start), 0o755),
		os.WriteFile(filepath.Join(tree, "only"), []byte(only), 0o644))
	if m.shell {
		err = errors.Join(err, os.WriteFile(filepath.Join(tree, "shell"), nil, 0o644))
	}
	if err != nil {
		return err
	}
	if err := makeDisk(ctx, filepath.Join(m.dir, "bench.img"), tree, 256<<20); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(m.dir, "out.tar"))
	if err != nil {
		return err
	}
	return errors.Join(out.Truncate(outSize), out.Close(), os.RemoveAll(tree))
}

// boot runs the machine to its end.
func (m *machine) boot(ctx context.Context) error {
	console := filepath.Join(m.dir, "console.log")
	drive := func(path, more string) string { return "file=" + path + ",if=virtio,format=raw" + more }
	cmd := exec.CommandContext(ctx, "nice", "-n", "5", "qemu-system-x86_64",
		// The machine's clock counts its instructions, and passes over what it would sleep: on a busy host it is slow, and
		// does not notice. By the host's clock it measures its CPU wrong, and every time limit in it is hit. That takes one
		// CPU; two have also been seen to die of code that one patches while the other runs it.
		"-accel", "tcg", "-icount", "shift=1,sleep=off", "-rtc", "clock=vm", "-cpu", "max", "-smp", "1",
		"-m", "3072", "-display", "none", "-monitor", "none",
		"-no-reboot", "-nic", "none", "-serial", "file:"+console,
		"-chardev", "stdio,id=out,signal=off", "-serial", "chardev:out",
		"-drive", drive(m.base.disk, ",snapshot=on"),
		"-drive", drive(filepath.Join(m.dir, "bench.img"), ",readonly=on"),
		"-drive", drive(filepath.Join(m.dir, "out.tar"), ""),
		"-kernel", m.base.kernel, "-initrd", m.base.initrd,
		"-append", "root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off")
	cmd.Stderr = os.Stderr
	if m.shell {
		if term.IsTerminal(int(os.Stdin.Fd())) {
			old, err := term.MakeRaw(int(os.Stdin.Fd()))
			if err != nil {
				return err
			}
			defer func() { _ = term.Restore(int(os.Stdin.Fd()), old) }()
		}
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		return cmd.Run()
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	var r results
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		fmt.Println(line)
		r.take(line)
	}
	err = cmd.Wait()
	fmt.Printf("the machine ran for %.0f s; journal and more: %s\n", time.Since(begin).Seconds(), m.dir)
	if ctx.Err() != nil {
		return fmt.Errorf("the machine was killed: %w; its console: %s", ctx.Err(), console)
	}
	if err != nil {
		return fmt.Errorf("qemu: %w", err)
	}
	if err := errors.Join(m.unpack(), r.err()); err != nil {
		return fmt.Errorf("%w; its console: %s", err, console)
	}
	return nil
}

// results are what the tests said.
type results struct {
	passed   int
	bad      []string // failed or skipped
	finished bool
}

func (r *results) take(line string) {
	trimmed := strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(trimmed, "--- PASS:"):
		r.passed++
	case strings.HasPrefix(trimmed, "--- FAIL:"), strings.HasPrefix(trimmed, "--- SKIP:"):
		r.bad = append(r.bad, strings.TrimPrefix(trimmed, "--- "))
	case line == "bench: end 0":
		r.finished = true
	}
}

func (r *results) err() error {
	switch {
	case len(r.bad) > 0:
		return fmt.Errorf("%d passed, %d did not:\n  %s", r.passed, len(r.bad), strings.Join(r.bad, "\n  "))
	case !r.finished:
		return errors.New("the tests did not end well")
	case r.passed == 0:
		return errors.New("no test ran")
	}
	fmt.Printf("VM ground: %d passed\n", r.passed)
	return nil
}

// unpack takes what came back apart.
func (m *machine) unpack() error {
	path := filepath.Join(m.dir, "out.tar")
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer f.Close()
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what came back: %w", err)
		}
		// The machine ran what we test; a name of its own choosing is not to be a path of ours.
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(t, outSize))
		if err != nil {
			return fmt.Errorf("read what came back: %w", err)
		}
		if err := os.WriteFile(filepath.Join(m.dir, filepath.Base(h.Name)), b, 0o644); err != nil {
			return err
		}
	}
}
