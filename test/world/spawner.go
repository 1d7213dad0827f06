// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// request asks a spawner for a command. Three descriptors for its standard files come along, and a fourth to which its
// end is reported; each byte that is written to that is a signal for it.
type request struct {
	Args []string
	Env  []string
	UID  int
}

// spawner runs in a cell, as process 1 or in a session of its own, and starts commands for the world outside.
func spawner(s spec) error {
	if s.Base != 0 { // process 1
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
		if s.Netns == "" {
			if err := loopbackUp(); err != nil {
				return fmt.Errorf("bring lo up: %w", err)
			}
		}
	}
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	buf, oob := make([]byte, 256<<10), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(3, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err // the world outside closed
		}
		var r request
		if err := json.Unmarshal(buf[:n], &r); err != nil {
			return err
		}
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(msgs) != 1 {
			return fmt.Errorf("read a request: no files: %w", err)
		}
		fds, err := unix.ParseUnixRights(&msgs[0])
		if err != nil || len(fds) != 4 {
			return fmt.Errorf("read a request: %d files: %w", len(fds), err)
		}
		go r.run(fds)
	}
}

func (r *request) run(fds []int) {
	var files [4]*os.File
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), "")
		defer files[i].Close()
	}
	cmd := exec.Command(r.Args[0], r.Args[1:]...)
	cmd.Env = r.Env
	cmd.Dir = "/tmp"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(r.UID), Gid: uint32(r.UID)},
		Setpgid:    true,
	}
	code := 127
	if err := cmd.Start(); err != nil {
		_, _ = files[2].WriteString(err.Error() + "\n")
	} else {
		go func() { // the other end closes only behind the report
			b := make([]byte, 1)
			for n, _ := files[3].Read(b); n == 1; n, _ = files[3].Read(b) {
				_ = unix.Kill(-cmd.Process.Pid, syscall.Signal(b[0]))
			}
		}()
		code = codeOf(cmd.Wait())
	}
	for _, f := range files[:3] {
		_ = f.Close()
	}
	_, _ = files[3].WriteString(strconv.Itoa(code))
	_ = unix.Shutdown(int(files[3].Fd()), unix.SHUT_RDWR) // wakes the reader
}

func codeOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	if err != nil {
		return 126
	}
	return 0
}

// loopbackUp sets lo up by one rtnetlink(7) message.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	m := make([]byte, 32) // struct nlmsghdr, struct ifinfomsg
	binary.NativeEndian.PutUint32(m, 32)
	binary.NativeEndian.PutUint16(m[4:], unix.RTM_NEWLINK)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	binary.NativeEndian.PutUint32(m[8:], 1)
	binary.NativeEndian.PutUint32(m[20:], 1) // index of lo
	binary.NativeEndian.PutUint32(m[24:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(m[28:], unix.IFF_UP)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return err
	}
	if n < 20 {
		return errors.New("short answer")
	}
	if code := int32(binary.NativeEndian.Uint32(b[16:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
