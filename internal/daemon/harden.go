// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kept are the environment variables that a daemon reads; all come from the service manager.
var kept = []string{
	"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
	"STATE_DIRECTORY", "CONFIGURATION_DIRECTORY", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM",
}

// harmless are those that systemd.exec(5) sets besides. They are forgotten, but do not matter before that.
var harmless = []string{
	"PATH", "LANG", "USER", "LOGNAME", "HOME", "SHELL", "INVOCATION_ID", "SYSTEMD_EXEC_PID",
	"MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "RUNTIME_DIRECTORY", "LISTEN_PIDFDID", "TRIGGER_UNIT",
	"TRIGGER_PATH", "TRIGGER_TIMER_REALTIME_USEC", "TRIGGER_TIMER_MONOTONIC_USEC",
}

// harden leaves the process with nothing that whoever started it slipped in, and keeps its memory to itself. It
// returns the environment variables that are kept. A variable that is not on a list above (GODEBUG, SSL_CERT_FILE,
// LD_PRELOAD, somebody's key) makes it execute itself once more without it: the runtime has looked at some already,
// and /proc/<pid>/environ shows what a process began with.
func harden() (map[string]string, error) {
	if err := private(); err != nil {
		return nil, err
	}
	env := map[string]string{}
	var clean []string
	foreign := false
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case slices.Contains(kept, name):
			env[name] = value
			clean = append(clean, kv)
		case !slices.Contains(harmless, name):
			foreign = true
		}
	}
	if foreign {
		err := syscall.Exec("/proc/self/exe", os.Args, clean)
		return nil, fmt.Errorf("execute again without foreign environment variables: %w", err)
	}
	os.Clearenv()
	for name, value := range env { // libraries read them
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return env, closeInherited(passed(env))
}

// private forbids core files, dumps and reading by ptrace (prctl(2)), and makes files private.
func private() error {
	unix.Umask(0o077)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process undumpable: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return nil
}

// passed is how many descriptors the service manager passes, from 3 on (sd_listen_fds(3)).
func passed(env map[string]string) int {
	n, err := strconv.Atoi(env["LISTEN_FDS"])
	if err != nil || n < 0 || env["LISTEN_PID"] != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return n
}

// closeInherited closes every descriptor from 3+n on that was inherited. Those of the Go runtime close on exec and
// inherited ones cannot.
func closeInherited(n int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list inherited descriptors: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3+n {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
