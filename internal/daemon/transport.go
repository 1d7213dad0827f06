// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

// Bounds on waiting for the other end of a connection.
const (
	frameTimeout = 10 * time.Second // for its version, and for the rest of a frame that began
	writeTimeout = 10 * time.Second // for it to take a frame
)

// transport is a wire.Transport over a connection with deadlines. One goroutine reads, one at a time writes.
type transport struct {
	uc   *net.UnixConn
	oob  []byte
	idle time.Duration // longest wait for the next frame to begin; 0 is for ever
	busy func() bool   // whether something is pending, so that the other end may be silent; nil is no
	mid  bool          // a frame has begun
	set  bool          // a read deadline is set
}

func newTransport(uc *net.UnixConn) *transport {
	return &transport{uc: uc, oob: make([]byte, unix.CmsgSpace(4*wire.MaxFiles))}
}

func (t *transport) ReadMsg(p []byte) (int, []int, error) {
	for {
		wait := t.idle
		if t.mid {
			wait = frameTimeout
		}
		// A frame that came whole, on a connection that may idle, costs no deadline.
		if wait > 0 || t.set {
			var by time.Time
			if wait > 0 {
				by = time.Now().Add(wait)
			}
			if err := t.uc.SetReadDeadline(by); err != nil {
				return 0, nil, err
			}
			t.set = wait > 0
		}
		n, oobn, flags, _, err := t.uc.ReadMsgUnix(p, t.oob)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && !t.mid && t.busy != nil && t.busy() {
				continue
			}
			return 0, nil, err
		}
		t.mid = true
		fds, err := wire.ParseRights(t.oob[:oobn], flags)
		return n, fds, err
	}
}

func (t *transport) WriteMsg(p []byte, fds []int) error {
	if err := t.uc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if len(fds) == 0 {
		_, err := t.uc.Write(p)
		return err
	}
	n, _, err := t.uc.WriteMsgUnix(p, unix.UnixRights(fds...), nil)
	if err != nil {
		return err
	}
	_, err = t.uc.Write(p[n:])
	return err
}

func (t *transport) CloseFD(fd int) { _ = unix.Close(fd) }
func (t *transport) Close() error   { return t.uc.Close() }
