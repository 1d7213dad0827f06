// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"
)

// start is what the machine runs; what is chosen stands before it, as shell variables. The third disk takes a tar file as
// it is.
const start = `
# Without a size of its own the terminal makes programs wrap.
stty -F /dev/ttyS1 raw -echo
echo "bench: the machine runs"
export DOORWARD_IN_VM=1 HOME=/root TERM=dumb OUT=/run/out GOTRACEBACK=all
mkdir -p $OUT
cd /tmp
# The clock passes over every wait, one for the disk too: what is read while a time limit runs is to be in memory by then.
find /bench /etc /usr/bin /usr/sbin /usr/lib/systemd /usr/lib/x86_64-linux-gnu -xdev -type f -exec cat {} + >/dev/null
echo "bench: its files are read"
if [ -n "$installed" ]; then
	mkdir -p /etc/sysusers.d
	printf 'u ada 1000 -\nm ada doorward\nu eve 1001 -\n' >/etc/sysusers.d/bench.conf
	dpkg -i /bench/doorward.deb && systemd-sysusers || { echo "bench: no package"; exit 1; }
fi
if [ -n "$cover" ]; then
	# What a daemon ran is written at its end, by itself. Not for cells and their network, which stay as they are.
	mkdir -m 1777 /cover
	for unit in authd sentinel egress cells worker@; do
		mkdir -p /etc/systemd/system/doorward-$unit.service.d
		printf '[Service]\nEnvironment=GOCOVERDIR=/cover\nReadWritePaths=/cover\n' \
			>/etc/systemd/system/doorward-$unit.service.d/cover.conf
	done
	systemctl daemon-reload
fi
if [ -n "$shell" ]; then
	/bench/tests -test.run '^$'
	echo "Doorward is installed and runs. ` + "`exit`" + ` ends the machine."
	stty -F /dev/ttyS1 sane
	exec setsid --ctty --wait bash -l </dev/ttyS1
fi
/bench/tests -test.v -test.timeout=4h -test.run "$run" -test.skip "$skip"
echo "bench: end $?"
systemctl stop 'doorward*.service' 2>/dev/null
[ -z "$cover" ] || tar -C / -cf - cover | gzip -1 >$OUT/cover.tar.gz
journalctl --no-pager -o short-monotonic > $OUT/journal.txt
dmesg > $OUT/dmesg.txt
tar -C $OUT -cf /dev/vdc .
sync
`

// outSize bounds in bytes what a run may bring back.
const outSize = 1 << 30

// machine is what one suite runs in.
type machine struct {
	suite
	disks base
	dir   string // for disks, console and what comes back
	shell bool
	cover bool // the daemons say what of them ran
	begun time.Time
}

// say prints a line of this machine's, with the seconds of the host's clock since it began: others run beside it.
func (m *machine) say(line string) {
	if m.begun.IsZero() {
		m.begun = time.Now()
	}
	fmt.Printf("%s %4.0f  %s\n", m.name, time.Since(m.begun).Seconds(), line)
}

// load makes the second disk: the package, the tests, and what they need.
func (m *machine) load(ctx context.Context, root, deb, cache string) error {
	tree := filepath.Join(m.dir, "bench")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return err
	}
	var err error
	if !m.cover {
		err = os.Link(deb, filepath.Join(tree, "doorward.deb"))
	} else {
		err = coverPackage(ctx, root, deb, filepath.Join(tree, "doorward.deb"))
	}
	if err != nil {
		return fmt.Errorf("take the package: %w; `make deb` makes it", err)
	}
	err = build(ctx, root, "test", "-c", "-o", filepath.Join(tree, "tests"), m.pkg)
	for program, pkg := range programs {
		err = errors.Join(err, build(ctx, root, "build", "-o", filepath.Join(tree, program), pkg))
	}
	if err := errors.Join(err, os.WriteFile(filepath.Join(tree, "start"), []byte(m.script()), 0o755)); err != nil {
		return err
	}
	if m.bring != nil {
		if err := m.bring(ctx, cache, tree); err != nil {
			return err
		}
	}
	if err := makeDisk(ctx, filepath.Join(m.dir, "bench.img"), tree, 512<<20); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(m.dir, "out.tar"))
	if err != nil {
		return err
	}
	return errors.Join(out.Truncate(outSize), out.Close(), os.RemoveAll(tree))
}

// script is start with what is chosen.
func (m *machine) script() string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	set := func(name, value string) {
		fmt.Fprintf(&b, "%s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	set("run", m.run)
	set("skip", m.skip)
	flag := func(name string, on bool) {
		if on {
			set(name, "yes")
		}
	}
	flag("shell", m.shell)
	flag("installed", m.installed)
	flag("cover", m.cover)
	for _, e := range m.env {
		name, value, _ := strings.Cut(e, "=")
		set(name, value)
		b.WriteString("export " + name + "\n")
	}
	// Which boot it is stands in the kernel's command line, which no cut of the power takes back.
	b.WriteString("export DOORWARD_BOOT=$(sed 's/.*doorward.boot=//; s/ .*//' /proc/cmdline)\n" + start)
	return b.String()
}

// qemu is the machine's command, for its nth boot.
func (m *machine) qemu(ctx context.Context, n int) *exec.Cmd {
	drive := func(path, more string) string { return "file=" + path + ",if=virtio,format=raw" + more }
	root := drive(m.disks.disk, ",snapshot=on")
	if m.boots > 1 { // what is synced is on it when the machine is reset, and what is not is not
		root = drive(filepath.Join(m.dir, "disk.img"), ",cache=writethrough")
	}
	return exec.CommandContext(ctx, "nice", "-n", "5", "qemu-system-x86_64",
		// The machine's clock counts its instructions, and passes over what it would sleep: on a busy host it is slow, and
		// does not notice. By the host's clock it measures its CPU wrong, and every time limit in it is hit. That takes one
		// CPU; two have also been seen to die of code that one patches while the other runs it.
		"-accel", "tcg", "-icount", "shift=1,sleep=off", "-rtc", "clock=vm", "-cpu", "max", "-smp", "1",
		"-m", "3072", "-display", "none", "-monitor", "none",
		"-no-reboot", "-nic", "none", "-serial", fmt.Sprintf("file:%s", m.console(n)),
		"-chardev", "stdio,id=out,signal=off", "-serial", "chardev:out",
		"-drive", root,
		"-drive", drive(filepath.Join(m.dir, "bench.img"), ",readonly=on"),
		"-drive", drive(filepath.Join(m.dir, "out.tar"), ""),
		"-kernel", m.disks.kernel, "-initrd", m.disks.initrd,
		// A console is a port of one byte: what is said there takes its time. The journal has the rest.
		"-append", strings.TrimSpace(fmt.Sprintf("root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off audit=0 loglevel=5 systemd.show_status=no doorward.boot=%d %s", n, m.kernel)))
}

func (m *machine) console(n int) string {
	if n == 1 {
		return filepath.Join(m.dir, "console.log")
	}
	return filepath.Join(m.dir, fmt.Sprintf("console-%d.log", n))
}

// boot runs the machine to its end, as often as its suite says, and takes what came back apart.
func (m *machine) boot(ctx context.Context) (results, error) {
	var r results
	defer os.Remove(filepath.Join(m.dir, "bench.img"))
	if m.boots > 1 {
		copied := filepath.Join(m.dir, "disk.img")
		if err := command(ctx, "cp", "--sparse=always", "--reflink=auto", m.disks.disk, copied); err != nil {
			return r, err
		}
		defer os.Remove(copied)
	}
	for n := 1; n <= max(m.boots, 1) && !r.ended; n++ {
		r.passed = 0 // the tests begin again, and what passes counts once
		if err := m.once(ctx, n, &r); err != nil {
			return r, fmt.Errorf("%w; its console: %s", err, m.console(n))
		}
	}
	m.say("the machine has ended; journal and more: " + m.dir)
	if err := errors.Join(m.unpack(), r.err()); err != nil {
		return r, fmt.Errorf("%w; its console: %s", err, m.console(1))
	}
	return r, nil
}

func (m *machine) once(ctx context.Context, n int, r *results) error {
	cmd := m.qemu(ctx, n)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		m.say(line)
		r.take(line)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("the machine was killed: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("qemu: %w", err)
	}
	return nil
}

// person gives the terminal to the machine.
func (m *machine) person(ctx context.Context) error {
	cmd := m.qemu(ctx, 1)
	if term.IsTerminal(int(os.Stdin.Fd())) {
		old, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(int(os.Stdin.Fd()), old) }()
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// results are what the tests said.
type results struct {
	passed int
	bad    []string // failed or skipped
	ended  bool
	well   bool
}

func (r *results) take(line string) {
	trimmed := strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(trimmed, "--- PASS:"):
		r.passed++
	case strings.HasPrefix(trimmed, "--- FAIL:"), strings.HasPrefix(trimmed, "--- SKIP:"):
		r.bad = append(r.bad, strings.TrimPrefix(trimmed, "--- "))
	case strings.HasPrefix(line, "bench: end "):
		r.ended, r.well = true, line == "bench: end 0"
	}
}

// err is what went wrong besides tests.
func (r *results) err() error {
	switch {
	case !r.ended:
		return errors.New("the machine ended before the tests did")
	case !r.well && len(r.bad) == 0:
		return errors.New("the tests did not end well")
	case r.passed == 0 && len(r.bad) == 0:
		return errors.New("no test ran")
	}
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
	return files(f, m.dir)
}
