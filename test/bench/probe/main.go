// SPDX-License-Identifier: Apache-2.0

// Command probe is what the benchmarks run where their own program cannot be: it times starts of other programs inside
// a cell, and echoes bytes over a Unix socket.
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "probe: exec N -- EXIT COMMAND..., or echo SOCKET")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(what string, args []string) error {
	switch what {
	case "exec":
		return execs(args)
	case "echo":
		return echo(args[0])
	}
	return fmt.Errorf("no such thing as %q", what)
}

// execs starts each of the commands (separated by "--", each led by the exit code it must end with) n times, in turn
// and turned round every second time, and prints nanoseconds: a line a round, a column a command. It waits for a byte on
// standard input before each round, so that who asks can measure something else between two.
func execs(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var cmds [][]string
	for _, a := range args[1:] {
		if a == "--" {
			cmds = append(cmds, nil)
			continue
		}
		cmds[len(cmds)-1] = append(cmds[len(cmds)-1], a)
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	attr := &syscall.ProcAttr{Env: []string{"PATH=/usr/bin:/bin", "HOME=/"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}}
	took := make([]int64, len(cmds))
	for round := range n {
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			return err
		}
		for i := range cmds {
			k := (i + round) % len(cmds)
			want, err := strconv.Atoi(cmds[k][0])
			if err != nil {
				return err
			}
			argv := make([]string, 0, len(cmds[k]))
			for _, a := range cmds[k][1:] {
				if a == "{round}" {
					a = strconv.Itoa(round) + "-" + strconv.Itoa(os.Getpid())
				}
				argv = append(argv, a)
			}
			pidfd := -1
			attr.Sys = &syscall.SysProcAttr{PidFD: &pidfd}
			start := time.Now()
			pid, err := syscall.ForkExec(argv[0], argv, attr)
			if err != nil {
				return fmt.Errorf("start %s: %w", argv[0], err)
			}
			st, err := wait(pid, pidfd)
			took[k] = time.Since(start).Nanoseconds()
			if err != nil || st.ExitStatus() != want {
				return fmt.Errorf("%v ended with %d, want %d: %v", argv, st.ExitStatus(), want, err)
			}
		}
		for _, t := range took {
			fmt.Print(t, " ")
		}
		fmt.Println()
	}
	return nil
}

// wait waits for a child in the poller. A goroutine that waits in the system call itself has the runtime's monitor thread
// wake every 20 µs meanwhile, on a processor that the processes under measurement need.
func wait(pid, pidfd int) (syscall.WaitStatus, error) {
	var st syscall.WaitStatus
	if err := syscall.SetNonblock(pidfd, true); err != nil {
		return st, err
	}
	f := os.NewFile(uintptr(pidfd), "pidfd")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return st, err
	}
	var werr error
	err = raw.Read(func(uintptr) bool {
		var got int
		got, werr = syscall.Wait4(pid, &st, syscall.WNOHANG, nil)
		return werr != nil || got == pid
	})
	if err == nil {
		err = werr
	}
	return st, err
}

func echo(path string) error {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 4096)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if _, err := c.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}
