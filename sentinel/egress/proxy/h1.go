// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/sentinel/egress/head"
)

// maxHead is the largest head of an answer, in bytes.
const maxHead = 256 << 10

// h1conn is one HTTP/1.1 connection to a server. One goroutine uses it at a time; nothing reads it while it rests.
type h1conn struct {
	net.Conn
	sock  net.Conn // below TLS
	raw   syscall.RawConn
	br    *bufio.Reader
	bw    *bufio.Writer
	lim   *limiter
	since time.Time     // when it came to rest
	rest  time.Duration // how long the server said it may rest
	end   time.Time     // its deadline as it is set
}

// readBy bounds what follows, reads and writes alike. A bound that has more than half of its time left, and not much
// more than was asked for, is let stand: setting one costs as much as a short read.
func (c *h1conn) readBy(d time.Duration) {
	if now := time.Now(); c.end.Sub(now) < d/2 || c.end.Sub(now) > d+d/2 {
		c.end = now.Add(d)
		_ = c.SetDeadline(c.end)
	}
}

// limiter bounds what one head may be; the body has its own bounds.
type limiter struct {
	r    io.Reader
	left int64
}

func (l *limiter) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("answer's head is above %d bytes", maxHead)
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	return n, err
}

// newH1 makes a connection of c, whose socket is sock.
func newH1(c, sock net.Conn) *h1conn {
	h := &h1conn{Conn: c, sock: sock, lim: &limiter{r: c}, bw: bufio.NewWriterSize(c, 16<<10), rest: idleRead}
	h.br = bufio.NewReaderSize(h.lim, 16<<10)
	if s, ok := sock.(syscall.Conn); ok {
		h.raw, _ = s.SyscallConn()
	}
	return h
}

// Close ends the connection at once. TLS would say goodbye first, and what the server answers to that could still be
// read by who waits.
func (c *h1conn) Close() error { return c.sock.Close() }

// alive looks, without waiting, whether a resting connection is still open and silent. A byte that came unasked is as
// bad as an end: whose answer would it be?
func (c *h1conn) alive() bool {
	if c.raw == nil || c.br.Buffered() > 0 {
		return false
	}
	alive := false
	err := c.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		alive = errors.Is(err, unix.EAGAIN)
		return true
	})
	return err == nil && alive
}

// writeHead puts the request's head into the buffer. length is -1 where no body is announced.
func (c *h1conn) writeHead(r *head.Request, host string, length int64) {
	w := c.bw
	w.WriteString(r.Method)
	w.WriteByte(' ')
	w.WriteString(r.Path)
	if r.HasQuery {
		w.WriteByte('?')
		w.WriteString(r.Query)
	}
	w.WriteString(" HTTP/1.1\r\nHost: ")
	w.WriteString(host)
	w.WriteString("\r\n")
	for _, f := range r.Fields {
		w.WriteString(f.Name)
		w.WriteString(": ")
		w.WriteString(f.Value)
		w.WriteString("\r\n")
	}
	if length >= 0 {
		w.WriteString("Content-Length: ")
		w.Write(strconv.AppendInt(w.AvailableBuffer(), length, 10))
		w.WriteString("\r\n")
	}
	w.WriteString("\r\n")
}

// readAnswer reads the head of the final answer; interim ones are passed over.
func (c *h1conn) readAnswer(req *http.Request) (*http.Response, error) {
	for range 16 {
		c.lim.left = maxHead
		resp, err := http.ReadResponse(c.br, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			c.lim.left = 1 << 62
			return resp, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("answer switches protocols")
		}
	}
	return nil, errors.New("too many interim answers")
}

// reusable says whether the connection may serve again after resp, whose body has been read to its end.
func (c *h1conn) reusable(resp *http.Response) bool {
	if resp.Close || resp.ProtoMajor != 1 || resp.ProtoMinor != 1 || c.br.Buffered() > 0 {
		return false
	}
	c.rest = idleRead
	for _, v := range resp.Header["Keep-Alive"] {
		for p := range strings.SplitSeq(v, ",") {
			if s, ok := strings.CutPrefix(strings.TrimSpace(p), "timeout="); ok {
				n, err := strconv.Atoi(s)
				if err != nil || n < 2 {
					return false
				}
				c.rest = min(idleRead, time.Duration(n-1)*time.Second)
			}
		}
	}
	return true
}
