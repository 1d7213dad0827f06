// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Dial connects to a Unix stream socket without package net, so that the cell's command starts fast. timeout bounds
// every single wait for the other end; 0 is no bound.
//
// A client cannot ask the kernel who listens: with socket activation that is systemd. It trusts the path, a
// root-owned directory.
func Dial(path string, timeout time.Duration) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	if timeout > 0 {
		tv := unix.NsecToTimeval(int64(timeout))
		if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv); err == nil {
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
		}
	}
	for err == nil {
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != unix.EINTR {
			break
		}
		err = nil
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return NewConn(rawSocket(fd)), nil
}

// rawSocket is a Transport over a blocking descriptor.
type rawSocket int

func (s rawSocket) ReadMsg(p []byte) (int, []int, error) {
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(int(s), p, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, nil, fmt.Errorf("receive: %w", err)
		}
		fds, err := ParseRights(oob[:oobn], flags)
		if err != nil {
			return 0, nil, err
		}
		if n == 0 && len(p) > 0 {
			return 0, fds, io.EOF
		}
		return n, fds, nil
	}
}

// ParseRights takes the descriptors out of received ancillary data. Where some did not fit (MSG_CTRUNC) it closes
// those that came and fails: the sender must not choose which of its descriptors arrive.
func ParseRights(oob []byte, flags int) ([]int, error) {
	if len(oob) == 0 && flags&unix.MSG_CTRUNC == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: ancillary data: %v", ErrMalformed, err)
	}
	var fds []int
	for _, m := range msgs {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_RIGHTS {
			got, err := unix.ParseUnixRights(&m)
			if err != nil {
				return nil, fmt.Errorf("%w: ancillary data: %v", ErrMalformed, err)
			}
			fds = append(fds, got...)
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("%w: more than %d descriptors at once", ErrTooLarge, MaxFiles)
	}
	return fds, nil
}

func (s rawSocket) WriteMsg(p []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for len(p) > 0 {
		n, err := unix.SendmsgN(int(s), p, oob, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		p, oob = p[n:], nil
	}
	return nil
}

func (s rawSocket) CloseFD(fd int) { unix.Close(fd) }
func (s rawSocket) Close() error   { return unix.Close(int(s)) }
