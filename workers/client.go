// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	idleConns  = 32               // kept for the next call
	idleTime   = 60 * time.Second // less than what egress keeps them
	maxHead    = 1 << 20          // bytes of an answer's head
	headBuffer = 16 << 10
)

// client sends HTTP/1.1 to egress over its Unix socket. Package net/http's own client would send some requests again
// when a kept connection turns out closed; this one looks before it sends, and sends once.
type client struct {
	path string

	mu   sync.Mutex
	idle []*hop
}

// hop is one connection to egress. It carries one request at a time.
type hop struct {
	conn  *net.UnixConn
	limit *io.LimitedReader // bounds the head
	in    *bufio.Reader
	since time.Time
}

// errNotSent says that nothing of the request left this process.
var errNotSent = errors.New("nothing was sent")

// roundTrip sends r and returns the head of the answer; its body ends the use of the connection. An error wraps
// errNotSent where nothing was sent.
func (c *client) roundTrip(ctx context.Context, r *http.Request) (*http.Response, error) {
	h, err := c.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	stop := context.AfterFunc(ctx, func() { h.conn.SetDeadline(time.Unix(1, 0)) })
	resp, err := h.send(r)
	if err != nil {
		stop()
		h.conn.Close()
		return nil, err
	}
	resp.Body = &hopBody{ReadCloser: resp.Body, h: h, c: c, stop: stop, reuse: !resp.Close}
	return resp, nil
}

func (h *hop) send(r *http.Request) (*http.Response, error) {
	// A refusal may come before the body was read to its end; then writing fails, and the answer says why.
	werr := r.Write(h.conn)
	h.limit.N = maxHead
	for range 4 {
		resp, err := http.ReadResponse(h.in, r)
		switch {
		case err != nil && werr != nil:
			return nil, fmt.Errorf("send a request to egress: %w", werr)
		case err != nil:
			return nil, fmt.Errorf("read egress's answer: %w", err)
		case resp.StatusCode < 200:
			continue
		}
		if werr != nil {
			resp.Close = true
		}
		if resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && r.Method != http.MethodHead {
			return nil, errors.New("read egress's answer: its length is not told, so its end could not be known")
		}
		h.limit.N = 1 << 62
		return resp, nil
	}
	return nil, errors.New("read egress's answer: only interim ones came")
}

// get takes a kept connection that is still open and silent, or dials.
func (c *client) get(ctx context.Context) (*hop, error) {
	for {
		c.mu.Lock()
		n := len(c.idle)
		if n == 0 {
			c.mu.Unlock()
			break
		}
		h := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		if time.Since(h.since) < idleTime && h.in.Buffered() == 0 && h.silent() {
			return h, nil
		}
		h.conn.Close()
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.path)
	if err != nil {
		return nil, err
	}
	limit := &io.LimitedReader{R: conn, N: maxHead}
	return &hop{conn: conn.(*net.UnixConn), limit: limit, in: bufio.NewReaderSize(limit, headBuffer)}, nil
}

// silent says whether the other end has neither closed nor spoken.
func (h *hop) silent() bool {
	raw, err := h.conn.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(err, unix.EAGAIN)
		return true
	})
	return err == nil && quiet
}

func (c *client) put(h *hop) {
	h.since = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) >= idleConns {
		h.conn.Close()
		return
	}
	c.idle = append(c.idle, h)
}

// hopBody gives the connection back when the answer came to its end.
type hopBody struct {
	io.ReadCloser
	h     *hop
	c     *client
	stop  func() bool
	reuse bool
	ended bool
}

func (b *hopBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end(err == io.EOF && b.reuse)
	}
	return n, err
}

func (b *hopBody) Close() error {
	b.end(false)
	return nil
}

func (b *hopBody) end(keep bool) {
	if b.ended {
		return
	}
	b.ended = true
	if b.stop() && keep {
		b.c.put(b.h)
		return
	}
	b.h.conn.Close()
}
