// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is the main process of a daemon, with what proc_pid_status(5) says of it.
type process struct {
	pid    int
	uid    int
	gid    int
	groups []int
	status map[string]string
}

func openProcess(pid int) (*process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	p := &process{pid: pid, status: map[string]string{}}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			p.status[k] = strings.TrimSpace(v)
		}
	}
	id := func(key string) (int, error) {
		f := strings.Fields(p.status[key])
		if len(f) != 4 {
			return 0, fmt.Errorf("no %s in its status", key)
		}
		return strconv.Atoi(f[1]) // the effective one
	}
	var err1, err2 error
	p.uid, err1 = id("Uid")
	p.gid, err2 = id("Gid")
	for _, g := range strings.Fields(p.status["Groups"]) {
		n, err := strconv.Atoi(g)
		if err != nil {
			return nil, err
		}
		p.groups = append(p.groups, n)
	}
	return p, errors.Join(err1, err2)
}

// inside runs f in the network and mount namespaces of a process, as its user and groups, with no capability where that
// user is not root. What f is not held by is the process's filter of system calls, which nothing but descent gives.
//
// f runs on a thread of its own that ends with it. It must start nothing and leave no goroutine. A daemon that was taken over
// has that thread's user, and still may not look into this process: it is undumpable (prctl(2)). It may send it signals.
func (p *process) inside(f func()) error {
	done := make(chan error, 1)
	go offMain(func() {
		err := p.enter()
		if err == nil {
			f()
		}
		done <- err
	})
	return <-done
}

// offMain calls f on a thread that is not the first, by which /proc/self is answered. The thread ends with f.
func offMain(f func()) {
	runtime.LockOSThread() // and never unlocked
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	again := make(chan struct{})
	go func() {
		defer close(again)
		runtime.LockOSThread()
		f()
	}()
	<-again
	runtime.UnlockOSThread()
}

func (p *process) enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // or the mount namespace could not be another than the process's
		return fmt.Errorf("unshare: %w", err)
	}
	var fds []int
	for _, kind := range []string{"net", "mnt"} {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", p.pid, kind), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open its %s namespace: %w", kind, err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		if err := unix.Setns(fd, 0); err != nil {
			return fmt.Errorf("enter its namespaces: %w", err)
		}
	}
	if err := unix.Setgroups(p.groups); err != nil {
		return fmt.Errorf("take its groups: %w", err)
	}
	// The calls of package unix would change every thread of this process.
	if _, _, no := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(p.gid), uintptr(p.gid), uintptr(p.gid)); no != 0 {
		return fmt.Errorf("take its group: %w", no)
	}
	if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(p.uid), uintptr(p.uid), uintptr(p.uid)); no != 0 {
		return fmt.Errorf("take its user: %w", no)
	}
	// Changing the user does this too, but where fs.suid_dumpable says otherwise.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep others out of this process: %w", err)
	}
	return nil
}

// Listener is what a wall must keep others from: a server on this machine, on its loopback.
type Listener struct {
	ln    []net.Listener
	Addrs []string // HOST:PORT
}

// Listen opens it.
func Listen() (*Listener, error) {
	l := &Listener{}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			continue // a machine without IPv6
		}
		l.ln = append(l.ln, ln)
		l.Addrs = append(l.Addrs, ln.Addr().String())
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
	}
	if len(l.ln) == 0 {
		return nil, errors.New("no port of the loopback can be listened on")
	}
	return l, nil
}

// Close ends it.
func (l *Listener) Close() {
	for _, ln := range l.ln {
		_ = ln.Close()
	}
}

const dialFor = 5 * time.Second

// dialTCP connects from the calling thread, whose network namespace it is.
func dialTCP(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	var to unix.Sockaddr
	family := unix.AF_INET
	if ip := net.ParseIP(host); ip == nil {
		return fmt.Errorf("%s is no address", host)
	} else if v4 := ip.To4(); v4 != nil {
		to = &unix.SockaddrInet4{Port: n, Addr: [4]byte(v4)}
	} else {
		family = unix.AF_INET6
		to = &unix.SockaddrInet6{Port: n, Addr: [16]byte(ip)}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, to)
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for end := time.Now().Add(dialFor); ; {
		left := time.Until(end)
		if left <= 0 {
			return unix.ETIMEDOUT
		}
		k, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if errors.Is(err, unix.EINTR) || err == nil && k == 0 {
			continue
		}
		if err != nil {
			return err
		}
		no, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			return err
		}
		if no != 0 {
			return unix.Errno(no)
		}
		return nil
	}
}

// openFile opens a file for reading, or a directory.
func openFile(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
