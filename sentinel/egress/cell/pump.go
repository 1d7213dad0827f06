// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// pumpBytes is how much is carried at a time. A direction has such a buffer only while bytes are on their way.
const pumpBytes = 32 << 10

var buffers = sync.Pool{New: func() any { return new([pumpBytes]byte) }}

// pump carries bytes from one connection to the other until the first ends; the end itself it leaves to the caller. tell is
// told of each piece. by is the one whose error it is. It is no slower than splice(2), see BenchmarkCarry, which would take a
// pipe for each direction.
func pump(to, from *net.TCPConn, tell func(int)) (by *net.TCPConn, err error) {
	for {
		buf, n, err := piece(from, pumpBytes)
		if n == 0 || err != nil {
			return from, err
		}
		_, err = to.Write(buf[:n])
		buffers.Put(buf)
		tell(n)
		if err != nil {
			return to, fmt.Errorf("write: %w", err)
		}
	}
}

// piece waits for bytes and reads at most so many of them; none is the end. The buffer, where there are bytes, goes back to
// buffers.
func piece(from *net.TCPConn, most int64) (buf *[pumpBytes]byte, n int, err error) {
	raw, err := from.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	rerr := raw.Read(func(fd uintptr) bool { // asked again when there is something to read
		buf = buffers.Get().(*[pumpBytes]byte)
		for {
			n, err = unix.Read(int(fd), buf[:min(most, pumpBytes)])
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if n <= 0 {
			buffers.Put(buf)
			n, buf = 0, nil
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	if err = errors.Join(rerr, err); err != nil {
		return nil, 0, fmt.Errorf("read: %w", err)
	}
	return buf, n, nil
}

// reset ends a connection so that the other side cannot take it for a proper end.
func reset(c *net.TCPConn) {
	if c != nil {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// closed says that the other side has ended its half, whether or not there are bytes to read before that.
func closed(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	const closeWait, closing = 8, 7 // of include/net/tcp_states.h
	ended := false
	err = raw.Control(func(fd uintptr) {
		i, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
		ended = err == nil && (i.State == closeWait || i.State == closing)
	})
	return err == nil && ended
}
