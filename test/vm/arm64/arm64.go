// SPDX-License-Identifier: Apache-2.0

// Package arm64 has what the units' filters are held to of the other architecture, which no machine of the tests has: the
// system calls that Go's runtime makes there. A test runs a program for arm64 by emulation and holds the list to it; the
// machine's tests hold each unit's filter to the list.
package arm64

// Calls are those of program, by name.
func Calls() []string {
	return []string{
		"clock_gettime", "clone", "close", "dup3", "epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "execve", "exit",
		"exit_group", "fcntl", "futex", "getpid", "gettid", "madvise", "mmap", "munmap", "nanosleep", "openat", "pidfd_open",
		"pidfd_send_signal", "pipe2", "prctl", "pread64", "prlimit64", "read", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
		"sched_getaffinity", "sched_yield", "sigaltstack", "tgkill", "wait4", "waitid", "write",
	}
}
