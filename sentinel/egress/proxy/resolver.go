// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// Resolver asks authd. Each question has a connection to itself, taken from a few that are kept: the goroutine that
// asks reads the answer, which costs two changes of thread less than a shared connection would, on the path of every
// request.
type Resolver struct {
	Path string // of authd's socket

	mu   sync.Mutex // guards what follows
	idle []*authdConn
	turn chan struct{} // one for each question under way
}

// maxResolvers is how many connections there are at most; further questions wait for their turn.
const maxResolvers = 128

// justNow is how long a connection may have rested to be trusted without a look whether authd is still there.
const justNow = 10 * time.Millisecond

// Resolve asks once. Where the question may have reached authd and no answer came, the error is daemon.ErrSent too:
// authd may have counted a use.
func (r *Resolver) Resolve(ctx context.Context, req *wire.ResolveReq) (*wire.ResolveResp, error) {
	turn := r.turns()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", authdAway(), context.Cause(ctx))
	}
	c, err := r.get()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", authdAway(), err)
	}
	c.until(resolveTimeout)
	resp := new(wire.ResolveResp)
	_, err = c.conn.Call("resolve", req, resp)
	var refusal *wire.Error
	switch {
	case err == nil:
		r.put(c)
		return resp, nil
	case errors.As(err, &refusal):
		r.put(c)
		return nil, refusal
	}
	_ = c.conn.Close()
	r.flush() // the others are to the same authd, which is gone or out of step
	return nil, fmt.Errorf("%w: ask resolve: %w: %w", authdAway(), err, daemon.ErrSent)
}

func (r *Resolver) turns() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn == nil {
		r.turn = make(chan struct{}, maxResolvers)
	}
	return r.turn
}

func authdAway() *wire.Error {
	return wire.Refuse(wire.CodeUnavailable, "authd does not answer", nextTry)
}

// get takes a kept connection that is still open, or dials.
func (r *Resolver) get() (*authdConn, error) {
	for {
		r.mu.Lock()
		if len(r.idle) == 0 {
			r.mu.Unlock()
			break
		}
		c := r.idle[len(r.idle)-1]
		r.idle = r.idle[:len(r.idle)-1]
		r.mu.Unlock()
		if time.Since(c.since) < justNow || c.open() {
			return c, nil
		}
		_ = c.conn.Close()
	}
	uc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.Path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	c := &authdConn{uc: uc}
	c.conn = wire.NewConn(c)
	c.until(resolveTimeout)
	err = c.conn.Greet()
	if err == nil {
		err = c.conn.Meet() // the socket is there before its daemon; nothing is asked until that is too
	}
	if err != nil {
		_ = c.conn.Close()
		return nil, err
	}
	return c, nil
}

func (r *Resolver) put(c *authdConn) {
	c.since = time.Now()
	r.mu.Lock()
	r.idle = append(r.idle, c)
	r.mu.Unlock()
}

func (r *Resolver) flush() {
	r.mu.Lock()
	idle := r.idle
	r.idle = nil
	r.mu.Unlock()
	for _, c := range idle {
		_ = c.conn.Close()
	}
}

// authdConn is a wire.Transport over a connection on which no descriptors travel.
type authdConn struct {
	uc       *net.UnixConn
	conn     *wire.Conn
	deadline time.Time
	since    time.Time // when it came to rest
}

// until bounds what follows. A bound that has more than half of its time left is let stand: setting one costs as much
// as a short read.
func (c *authdConn) until(d time.Duration) {
	now := time.Now()
	if c.deadline.Sub(now) < d/2 {
		c.deadline = now.Add(d)
		_ = c.uc.SetDeadline(c.deadline)
	}
}

// open says whether authd's end is open and silent.
func (c *authdConn) open() bool {
	raw, err := c.uc.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		open = errors.Is(err, unix.EAGAIN)
	})
	return err == nil && open
}

func (c *authdConn) ReadMsg(p []byte) (int, []int, error) {
	n, err := c.uc.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.deadline = time.Time{}
	}
	return n, nil, err
}

func (c *authdConn) WriteMsg(p []byte, fds []int) error {
	if len(fds) > 0 {
		return errors.New("no descriptors go this way")
	}
	_, err := c.uc.Write(p)
	return err
}

func (c *authdConn) CloseFD(fd int) { _ = unix.Close(fd) }
func (c *authdConn) Close() error   { return c.uc.Close() }
