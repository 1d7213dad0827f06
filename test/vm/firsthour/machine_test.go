// SPDX-License-Identifier: Apache-2.0

package firsthour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// result is how a command ended; out is what it said on both.
type result struct {
	code int
	out  string
}

func (r result) String() string { return fmt.Sprintf("exit code %d:\n%s", r.code, r.out) }

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, b)
	}
	return string(b)
}

// login is a command of ada's in her slice, which is where a login puts it. Each is a new login: groups are as they are.
func login(args []string) *exec.Cmd {
	return exec.Command("systemd-run", append([]string{"--quiet", "--pipe", "--wait", "--collect", "--slice=user-1000.slice",
		"--uid=ada", "--setenv=HOME=" + home, "--setenv=TERM=dumb", "--"}, args...)...)
}

func as(t *testing.T, args ...string) result {
	t.Helper()
	b, err := login(args).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := result{out: string(b)}
	if exit != nil {
		r.code = exit.ExitCode()
	}
	return r
}

// terminal is a command at a real terminal.
type terminal struct {
	mine *os.File
	cmd  *exec.Cmd
	said strings.Builder
	from int // of what was said, what was waited for before
}

func open(t *testing.T, args ...string) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200})); err != nil {
		t.Fatal(err)
	}
	tty := fmt.Sprintf("/dev/pts/%d", n)
	theirs, err := os.OpenFile(tty, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(tty, 1000, 5); err != nil {
		t.Fatal(err)
	}
	x := &terminal{mine: os.NewFile(uintptr(fd), "terminal"), cmd: login(args)} // systemd makes it the session's
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = theirs, theirs, theirs
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() { x.mine.Close() })
	return x
}

// until reads until something new is said.
func (x *terminal) until(t *testing.T, what string) {
	t.Helper()
	buf := make([]byte, 4096)
	for end := time.Now().Add(5 * time.Minute); ; {
		if i := strings.Index(x.said.String()[x.from:], what); i >= 0 {
			x.from += i + len(what)
			return
		}
		_ = x.mine.SetReadDeadline(end)
		n, err := x.mine.Read(buf)
		x.said.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v before %q:\n%s", err, what, x.said.String())
		}
	}
}

func (x *terminal) keys(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(x.mine, keys); err != nil {
		t.Fatal(err)
	}
}

// end reads to the end. It returns all that was said and the exit code.
func (x *terminal) end(t *testing.T) (string, int) {
	t.Helper()
	_ = x.mine.SetReadDeadline(time.Now().Add(10 * time.Minute))
	_, _ = io.Copy(&x.said, x.mine) // EIO: nobody has the other end any more
	err := x.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return x.said.String(), x.cmd.ProcessState.ExitCode()
}
