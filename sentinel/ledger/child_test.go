// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childEnv names what a second process of the test binary does; its folder is the first argument after "--".
const childEnv = "LEDGER_TEST_CHILD"

// children are what a second process can do. Each reports on its standard output.
var children = map[string]func(dir string) error{
	"write":   childWrite,
	"hold":    childHold,
	"open":    childOpen,
	"locks":   childNoLocks,
	"small":   childSmall,
	"migrate": childMigrate,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		go func() { // the test is gone when its end of the pipe is
			_, _ = os.Stdin.Read(make([]byte, 1))
			os.Exit(1)
		}()
		if err := children[name](os.Args[len(os.Args)-1]); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is a second process, killed at the end of the test.
type child struct {
	*exec.Cmd
	out *bufio.Scanner
}

func startChild(t *testing.T, name, dir string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "--", dir)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, bufio.NewScanner(out)}
	t.Cleanup(c.kill)
	return c
}

// kill is kill -9. Calling it again does nothing.
func (c *child) kill() {
	if c.ProcessState == nil {
		_ = c.Process.Kill()
		_ = c.Wait() // killed is how it should end
	}
}

// line reads the child's next line, in time or not at all: the test binary's own limit ends a wait.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.out.Scan() {
		t.Fatal("the second process said nothing more")
	}
	return c.out.Text()
}

// needRoot skips what needs mounts of its own.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("host ground skipped: needs root for a mount namespace")
	}
}

func pathOf(dir string) string { return filepath.Join(dir, dbName) }

// childNoLocks is childOpen where no file can be locked, neither whole nor in parts, as on some network file systems: the
// kernel refuses flock(2), or fcntl(2)'s locks if the folder's name ends in "parts".
func childNoLocks(dir string) error {
	call, arg := uint32(unix.SYS_FLOCK), uint32(0)
	if strings.HasSuffix(dir, "parts") {
		call, arg = unix.SYS_FCNTL, unix.F_SETLK
	}
	load := uint16(unix.BPF_LD | unix.BPF_W | unix.BPF_ABS)
	equal := uint16(unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K)
	ret := uint16(unix.BPF_RET | unix.BPF_K)
	prog := []unix.SockFilter{
		{Code: load, K: 0}, {Code: equal, K: call, Jf: 4},
		{Code: load, K: 24}, {Code: equal, K: arg, Jt: 1}, // the second argument
		{Code: equal, K: uint32(unix.LOCK_EX | unix.LOCK_NB), Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOLCK)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return childOpen(dir)
}
