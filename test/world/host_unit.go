// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hostUnit is a daemon that this process starts, as systemd would.
type hostUnit struct {
	d          *Daemon
	w          *World
	binary     string
	uid        int
	groups     []uint32
	env        []string
	args       []string
	privateNet bool
	hosts      string // in place of /etc/hosts
	sockets    []socket
}

func (u *hostUnit) start(ahead time.Duration, began func(*process)) error {
	notify, err := u.notifySocket()
	if err != nil {
		return err
	}
	defer notify.Close()
	logFile, err := os.OpenFile(u.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	cg, err := cgroupDir(u.d.Cgroup())
	if err != nil {
		return err
	}
	defer cg.Close()

	env := append([]string{"NOTIFY_SOCKET=" + u.notifyPath()}, u.env...)
	var names []string
	cmd := exec.Command("/proc/self/exe", "world-daemon")
	if ahead != 0 {
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		// It executes the program without a fork, which is in the namespace from then on.
		cmd = exec.Command("unshare", "--time", "--boottime", strconv.Itoa(int(ahead.Seconds())), exe, "world-daemon")
	}
	for _, s := range u.sockets {
		names = append(names, s.name)
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.file)
	}
	env = append(env, "LISTEN_FDS="+strconv.Itoa(len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	s := spec{Binary: u.binary, Args: u.args, Env: env, UID: u.uid, Binds: rows(u.d.Name), Hosts: u.hosts}
	for _, g := range u.groups {
		s.Groups = append(s.Groups, int(g))
	}
	cmd.Env = []string{s.env()}
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cg.Fd()), Unshareflags: unix.CLONE_NEWNS}
	if u.privateNet {
		cmd.SysProcAttr.Unshareflags |= unix.CLONE_NEWNET
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{pid: cmd.Process.Pid, signal: func(s syscall.Signal) error { return cmd.Process.Signal(s) },
		done: make(chan struct{})}
	began(p)
	go func() {
		p.err = cmd.Wait()
		close(p.done)
		_ = notify.SetReadDeadline(time.Now())
	}()
	if err := p.ready(notify); err != nil {
		_ = cmd.Process.Kill()
		<-p.done
		return err
	}
	return nil
}

func (p *process) ready(notify *net.UnixConn) error {
	_ = notify.SetReadDeadline(time.Now().Add(readyTimeout))
	select {
	case <-p.done: // it ended before the deadline was set
		_ = notify.SetReadDeadline(time.Now())
	default:
	}
	b := make([]byte, 4096)
	for {
		n, err := notify.Read(b)
		if err != nil {
			select {
			case <-p.done:
				return fmt.Errorf("it ended: %v", p.err)
			default:
			}
			return fmt.Errorf("wait until it is ready: %w", err)
		}
		for line := range strings.Lines(string(b[:n])) {
			if strings.TrimSpace(line) == "READY=1" {
				return nil
			}
		}
	}
}

func (u *hostUnit) notifyPath() string { return u.w.path("notify", u.d.Name) }
func (u *hostUnit) logPath() string    { return u.w.path("log", u.d.Name) }

func (u *hostUnit) notifySocket() (*net.UnixConn, error) {
	_ = os.Remove(u.notifyPath())
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: u.notifyPath(), Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	return c, os.Chmod(u.notifyPath(), 0o777)
}

func (u *hostUnit) log() string {
	b, _ := os.ReadFile(u.logPath())
	return string(b)
}

func (u *hostUnit) user() (uid, gid int, groups []uint32, err error) {
	return u.uid, u.uid, u.groups, nil
}
