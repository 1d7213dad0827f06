// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// handOver is how long a server has to finish its answers, after the client went on to another one.
const handOver = 10 * time.Second

// carriage is the bytes of one connection on their way to one server.
type carriage struct {
	k       *conn
	up      *net.TCPConn
	out, in atomic.Int64 // bytes
	ended   atomic.Bool  // the client has sent its last byte
	moves   atomic.Bool  // the client goes on to another server: its connection outlives this one
}

func (c *carriage) sent(n int) { c.out.Add(int64(n)); c.k.touch() }
func (c *carriage) got(n int)  { c.in.Add(int64(n)); c.k.touch() }

// send writes bytes that were read ahead.
func (c *carriage) send(b []byte) error {
	n, err := c.up.Write(b)
	c.sent(n)
	return err
}

// abort ends both so that neither takes what it has for the whole.
func (c *carriage) abort() {
	reset(c.k.down)
	reset(c.up)
}

// back carries the server's bytes to the client, and the end after them.
func (c *carriage) back() error {
	lost, err := pump(c.k.down, c.up, c.got)
	if err != nil {
		c.abort()
		if lost && c.ended.Load() { // most clients end without waiting for the server's last words
			return nil
		}
		return err
	}
	if !c.moves.Load() {
		_ = c.k.down.CloseWrite()
	}
	return nil
}

// forth is the other way, from what was read ahead on.
func (c *carriage) forth() error {
	err := c.send(c.k.src.take(len(c.k.src.b)))
	if err == nil && !errors.Is(c.k.src.err, io.EOF) {
		_, err = pump(c.up, c.k.down, c.sent)
	}
	if err != nil {
		c.abort()
		return err
	}
	c.ended.Store(true)
	_ = c.up.CloseWrite()
	return nil
}

// splice carries both ways, untouched, until both have ended.
func (c *carriage) splice() error {
	back := make(chan error, 1)
	go func() { back <- c.back() }()
	return errors.Join(c.forth(), <-back)
}

// requests carries HTTP/1 in the clear. Each request is read as far as its head and its end, since a connection that was
// opened to one host may go on with another's, which has to be decided anew: again is true then, and what was read is where
// it was. Answers are carried untouched.
func (c *carriage) requests(t target, a agreed, h *httpHead) (again bool, err error) {
	if err := c.head(a, h); err != nil {
		return false, err
	}
	if h.Upgrade == "websocket" {
		if switched, err := c.switched(); err != nil {
			return false, err
		} else if switched {
			return false, c.splice()
		}
	}
	back := make(chan error, 1)
	go func() { back <- c.back() }()
	again, err = c.follow(t, a, h)
	if err != nil {
		c.abort()
		return false, errors.Join(err, <-back)
	}
	c.moves.Store(again)
	c.ended.Store(!again)
	_ = c.up.CloseWrite()
	if again {
		_ = c.up.SetReadDeadline(time.Now().Add(handOver))
	}
	return again, <-back
}

var switching = []byte("HTTP/1.1 101 ")

// switched waits for the first bytes of the answer to a request for WebSocket, and hands them on. Only when the server has
// switched is what follows no HTTP any more.
func (c *carriage) switched() (bool, error) {
	answer := source{c: c.up, used: c.k.touch}
	for len(answer.b) < len(switching) && answer.err == nil {
		answer.read()
	}
	n, err := c.k.down.Write(answer.b)
	c.got(n)
	return bytes.HasPrefix(answer.b, switching), err
}

// follow carries requests, the first without its head, until the client ends or goes elsewhere.
func (c *carriage) follow(t target, a agreed, h *httpHead) (again bool, err error) {
	for {
		if err := c.body(h); err != nil {
			return false, fmt.Errorf("carry a body: %w", err)
		}
		f, err := c.k.src.front(true)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil { // to be refused, behind the answers that are still to come
			return isMalformed(err), ignoreMalformed(err)
		}
		next, refusal := agree(t, f)
		if refusal != nil || f.http == nil || next.to != a.to || next.connect || next.page || f.http.Upgrade == "websocket" {
			return true, nil
		}
		a, h = next, f.http
		if err := c.head(a, h); err != nil {
			return false, err
		}
	}
}

func isMalformed(err error) bool {
	return errors.Is(err, errHTTP) || errors.Is(err, errHello) || errors.Is(err, errTooLarge) || errors.Is(err, errSilent)
}

func ignoreMalformed(err error) error {
	if isMalformed(err) {
		return nil
	}
	return err
}

func (c *carriage) head(a agreed, h *httpHead) error {
	return c.send(h.write(c.k.src.take(h.size), a.rewrite))
}

// body carries one, by the framing that its head says.
func (c *carriage) body(h *httpHead) error {
	if h.Length >= 0 {
		return c.exactly(h.Length)
	}
	for { // RFC 9112 7.1
		line, err := c.k.src.line(maxChunkLine)
		if err != nil {
			return err
		}
		size, ok := chunkSize(line)
		if !ok {
			return fmt.Errorf("the size of a chunk: %w", errHTTP)
		}
		if err := c.send(line); err != nil {
			return err
		}
		if size == 0 {
			return c.trailer()
		}
		if err := c.exactly(size); err != nil {
			return err
		}
		if line, err = c.k.src.line(2); err != nil {
			return err
		}
		if err := c.send(line); err != nil {
			return err
		}
	}
}

const (
	maxChunkLine = 256 // bytes
	maxTrailer   = 16 << 10
)

func (c *carriage) trailer() error {
	for total := 0; total < maxTrailer; {
		line, err := c.k.src.line(maxTrailer)
		if err != nil {
			return err
		}
		if _, _, ok := cutField(strings.TrimSuffix(string(line), "\r\n")); !ok && len(line) > 2 {
			return fmt.Errorf("a trailer: %w", errHTTP)
		}
		if err := c.send(line); err != nil || len(line) == 2 {
			return err
		}
		total += len(line)
	}
	return fmt.Errorf("trailers: %w", errTooLarge)
}

// chunkSize reads a chunk's first line: hex digits, and an extension that is not looked at but for control bytes.
func chunkSize(line []byte) (int64, bool) {
	s := strings.TrimSuffix(string(line), "\r\n")
	size, ext, _ := strings.Cut(s, ";")
	for i := range len(ext) {
		if ext[i] < ' ' && ext[i] != '\t' || ext[i] == 0x7f {
			return 0, false
		}
	}
	if size = strings.TrimRight(size, " \t"); size == "" || strings.Trim(size, "0123456789abcdefABCDEF") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(size, 16, 48)
	return n, err == nil
}

// exactly carries n bytes.
func (c *carriage) exactly(n int64) error {
	if k := min(n, int64(len(c.k.src.b))); k > 0 {
		if err := c.send(c.k.src.take(int(k))); err != nil {
			return err
		}
		n -= k
	}
	if n == 0 {
		return nil
	}
	if c.k.src.err != nil {
		return io.ErrUnexpectedEOF
	}
	for n > 0 {
		buf, k, err := piece(c.k.down, n)
		if err != nil || k == 0 {
			return errors.Join(io.ErrUnexpectedEOF, err)
		}
		err = c.send(buf[:k])
		buffers.Put(buf)
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}
