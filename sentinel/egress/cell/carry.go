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
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// handOver is how long a server has to finish its answers, after the client went on to another one.
const handOver = 10 * time.Second

// carriage is the bytes of one connection on their way to one server.
type carriage struct {
	k       *conn
	up      *net.TCPConn
	site    string
	spent   atomic.Pointer[wire.Error] // that the site's budget of bytes is
	out, in atomic.Int64               // bytes
	moves   atomic.Bool                // the client goes on to another server: its connection outlives this one

	once   sync.Once
	broken bool // by the server, or by us; where the client breaks off it just has what it wanted
}

func (c *carriage) sent(n int) {
	c.out.Add(int64(n))
	c.k.touch()
	if e := c.k.s.budget.send(c.site, int64(n)); e != nil && c.spent.CompareAndSwap(nil, e) {
		c.abort(c.up)
	}
}

func (c *carriage) got(n int) { c.in.Add(int64(n)); c.k.touch() }

// send writes bytes that were read ahead.
func (c *carriage) send(b []byte) error {
	n, err := c.up.Write(b)
	c.sent(n)
	return err
}

// abort ends both so that neither takes what it has for the whole. by is the one that broke off first.
func (c *carriage) abort(by *net.TCPConn) {
	c.once.Do(func() { c.broken = by != c.k.down })
	reset(c.k.down)
	reset(c.up)
}

// back carries the server's bytes to the client, and the end after them.
func (c *carriage) back() error {
	by, err := pump(c.k.down, c.up, c.got)
	if err != nil {
		c.abort(by)
		return err
	}
	if !c.moves.Load() {
		_ = c.k.down.CloseWrite()
	}
	return nil
}

// forth is the other way, from what was read ahead on.
func (c *carriage) forth() error {
	by, err := c.up, c.send(c.k.src.take(len(c.k.src.b)))
	if err == nil && !errors.Is(c.k.src.err, io.EOF) {
		by, err = pump(c.up, c.k.down, c.sent)
	}
	if err != nil {
		c.abort(by)
		return err
	}
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
		by := c.up
		if errors.Is(err, errClient) {
			by = c.k.down
		}
		c.abort(by)
		return false, errors.Join(err, <-back)
	}
	c.moves.Store(again)
	_ = c.up.CloseWrite()
	if again {
		_ = c.up.SetReadDeadline(time.Now().Add(handOver))
	}
	return again, <-back
}

// errClient is wrapped by what is the client's doing.
var errClient = errors.New("the client broke off, or is not understood")

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
	if err != nil {
		c.abort(c.k.down)
	}
	return bytes.HasPrefix(answer.b, switching), err
}

// follow carries requests, the first without its head, until the client ends or goes elsewhere.
func (c *carriage) follow(t target, a agreed, h *httpHead) (again bool, err error) {
	for {
		if err := c.body(h); err != nil {
			return false, err
		}
		f, err := c.k.src.front(true)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil { // to be refused, behind the answers that are still to come
			if errors.Is(err, errHTTP) || errors.Is(err, errHello) || errors.Is(err, errTooLarge) || errors.Is(err, errSilent) {
				return true, nil
			}
			return false, fmt.Errorf("%w: %w", errClient, err)
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

func (c *carriage) head(a agreed, h *httpHead) error {
	return c.send(h.write(c.k.src.take(h.size), a.rewrite))
}

// body carries one, by the framing that its head says.
func (c *carriage) body(h *httpHead) error {
	if h.Length >= 0 {
		return c.exactly(h.Length)
	}
	for { // RFC 9112 7.1
		line, err := c.line(maxChunkLine)
		if err != nil {
			return err
		}
		size, ok := chunkSize(line)
		if !ok {
			return fmt.Errorf("the size of a chunk: %w: %w", errClient, errHTTP)
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
		if line, err = c.line(len("\r\n")); err != nil {
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
		line, err := c.line(maxTrailer)
		if err != nil {
			return err
		}
		if _, _, ok := cutField(strings.TrimSuffix(string(line), "\r\n")); !ok && len(line) > 2 {
			return fmt.Errorf("a trailer: %w: %w", errClient, errHTTP)
		}
		if err := c.send(line); err != nil || len(line) == 2 {
			return err
		}
		total += len(line)
	}
	return fmt.Errorf("trailers: %w: %w", errClient, errTooLarge)
}

// line reads one of a body's framing.
func (c *carriage) line(most int) ([]byte, error) {
	b, err := c.k.src.line(most)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errClient, err)
	}
	return b, nil
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
		return errors.Join(errClient, c.k.src.err)
	}
	for n > 0 {
		buf, k, err := piece(c.k.down, n)
		if err != nil || k == 0 {
			return errors.Join(errClient, io.ErrUnexpectedEOF, err)
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
