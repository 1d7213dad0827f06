// SPDX-License-Identifier: Apache-2.0

// Package ground gives a program a machine of its own to stand on: a private pid, mount and cgroup namespace, with an
// empty /run and /srv, and cgroup paths that begin at a cgroup of its own. So the real binaries, with their fixed
// socket paths and cgroup names, run many times side by side on one machine, touch nothing of it, and none is left when
// the program ends, however it ends: the kernel kills a pid namespace with its first process. It needs root and cgroup
// v2.
//
// It is for tests and the demo. No binary that is installed links it; an attacker gains nothing from it without being
// root already.
package ground

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// stage tells the program, in its environment, how far in it is. It stays set, so that its own children do not enter
// once more.
const (
	stage       = "DOORWARD_GROUND"
	stageInit   = "init"
	stageInside = "inside"
	stageAbsent = "absent"
	// The bench of test/vm says it: the machine itself is the ground, and systemd its process 1.
	stageSystemd = "systemd"
)

const prefix = "doorward-test-"

// Cgroup is where cgroup2 is mounted inside.
const Cgroup = "/sys/fs/cgroup"

// Dir is an empty directory inside that is gone with the ground.
const Dir = "/srv"

// Main is TestMain for a package with tests on the host ground. It does not return. Where the ground is missing the
// tests run all the same, and those that call Need skip.
func Main(m *testing.M) {
	inside, code, err := Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "host ground:", err)
		os.Exit(1)
	}
	if inside {
		code = m.Run()
	}
	os.Exit(code)
}

// Need skips a test where the ground is missing, and says so.
func Need(t testing.TB) {
	t.Helper()
	if !Inside() {
		t.Skip("host ground skipped: needs root and cgroup2")
	}
}

// Inside says whether this process stands on a ground of its own.
func Inside() bool { return os.Getenv(stage) == stageInside || Systemd() }

// Systemd says whether that ground is the machine of test/vm, all of it, where systemd is process 1.
func Systemd() bool { return os.Getenv(stage) == stageSystemd }

// Enter runs this program again on a ground of its own and waits for it. It returns inside=true in the program that is
// to go on: the one on the ground, or this one where the ground is missing (then Inside is false). Otherwise the
// program has run inside, and code is its exit code.
func Enter() (inside bool, code int, err error) {
	switch os.Getenv(stage) {
	case stageInside, stageAbsent, stageSystemd:
		return true, 0, nil
	case stageInit:
		code, err := first()
		return false, code, err
	}
	mount := cgroup2Mount()
	if os.Geteuid() != 0 || mount == "" {
		return true, 0, os.Setenv(stage, stageAbsent)
	}
	code, err = outer(mount)
	return false, code, err
}

// outer is the program as it was started: it makes the cgroup, waits, and removes the cgroup again.
func outer(mount string) (int, error) {
	sweep(mount)
	name := "/" + prefix + strconv.Itoa(os.Getpid())
	group, err := cgroup2.NewManager(mount, name, &cgroup2.Resources{})
	if err != nil {
		return 1, fmt.Errorf("make a cgroup: %w", err)
	}
	defer func() { _ = remove(group) }()
	cg, err := os.Open(mount + name)
	if err != nil {
		return 1, fmt.Errorf("open the cgroup: %w", err)
	}
	defer cg.Close()

	// Interrupts reach the inside too (one process group); it ends by them, and this one must live to clean up.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	cmd := self(stageInit)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(cg.Fd()),
		// The pid namespace comes with the clone; the others after it, when the process is in its cgroup already.
		Cloneflags:   unix.CLONE_NEWPID,
		Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP,
		Pdeathsig:    syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start in new namespaces: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			return exitCode(err)
		case s := <-signals:
			_ = cmd.Process.Signal(s)
			time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		}
	}
}

// first is process 1 of the pid namespace: it mounts, starts the program, reaps whatever is left to it, and ends with
// the program's code; everything else dies with it.
func first() (int, error) {
	if err := mounts(); err != nil {
		return 1, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	cmd := self(stageInside)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start inside: %w", err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 1, fmt.Errorf("wait: %w", err)
		}
		if pid == cmd.Process.Pid && ws.Exited() {
			return ws.ExitStatus(), nil
		}
		if pid == cmd.Process.Pid && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
	}
}

func mounts() error {
	for _, m := range []struct {
		kind, on, data string
		flags          uintptr
	}{
		{"proc", "/proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"tmpfs", "/run", "mode=0755", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", Dir, "mode=0755", unix.MS_NOSUID | unix.MS_NODEV},
		{"cgroup2", Cgroup, "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if err := unix.Mount(m.kind, m.on, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.on, err)
		}
	}
	return nil
}

// self is this program again with the same arguments and files, at another stage.
func self(to string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stage+"="+to)
	return cmd
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if c := exit.ExitCode(); c >= 0 {
			return c, nil
		}
		return 1, fmt.Errorf("ended by: %w", err)
	}
	return 0, err
}

// cgroup2Mount is where cgroup2 is mounted outside, or empty.
func cgroup2Mount() string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	found := ""
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		if f := strings.Fields(before); len(f) > 4 && strings.HasPrefix(after, "cgroup2 ") && f[3] == "/" {
			found = f[4]
		}
	}
	return found
}

// sweep removes the cgroups of programs that were killed before they could clean up.
func sweep(mount string) {
	dirs, _ := filepath.Glob(filepath.Join(mount, prefix+"*"))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), prefix))
		if err != nil || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		if group, err := cgroup2.Load("/"+filepath.Base(dir), cgroup2.WithMountpoint(mount)); err == nil {
			_ = remove(group)
		}
	}
}

// remove kills what is left in a cgroup that this package made and removes it with everything below.
func remove(group *cgroup2.Manager) error {
	err := group.Kill()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for range 100 { // a killed process leaves its cgroup a moment later
		if err = group.Delete(); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// MakeCgroup makes a cgroup with its parents, or finds it. The path is from the ground's root.
func MakeCgroup(path string) (*cgroup2.Manager, error) {
	group, err := cgroup2.NewManager(Cgroup, path, &cgroup2.Resources{})
	if err != nil {
		return nil, fmt.Errorf("make cgroup %s: %w", path, err)
	}
	return group, nil
}

// KillCgroup kills every process in a cgroup, named from the ground's root. One that is not there is left alone.
func KillCgroup(path string) error {
	if _, err := os.Stat(filepath.Join(Cgroup, path)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	group, err := cgroup2.Load(path, cgroup2.WithMountpoint(Cgroup))
	if err != nil {
		return err
	}
	return group.Kill()
}

// RemoveCgroup kills every process in a cgroup, named from the ground's root, and removes it with everything below.
func RemoveCgroup(path string) error {
	if _, err := os.Stat(filepath.Join(Cgroup, path)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	group, err := cgroup2.Load(path, cgroup2.WithMountpoint(Cgroup))
	if err != nil {
		return err
	}
	if err := remove(group); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}
