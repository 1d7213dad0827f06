// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
)

// Transport moves bytes and descriptors over a Unix stream socket. Descriptors it returns belong to the caller.
type Transport interface {
	// ReadMsg reads up to len(p) bytes, and the descriptors that came with them. At the end it returns io.EOF.
	ReadMsg(p []byte) (n int, fds []int, err error)
	// WriteMsg writes all of p, and fds with its first byte. The caller keeps fds.
	WriteMsg(p []byte, fds []int) error
	// CloseFD closes one descriptor that ReadMsg returned.
	CloseFD(fd int)
	Close() error
}

// Msg is one frame: a request (Verb set) or an answer (Verb empty) with the id of its request. The first frame of
// each direction is a Msg with only Hello set.
type Msg struct {
	Hello int                `msgpack:"h,omitempty"` // protocol version; the first frame only
	ID    uint64             `msgpack:"i,omitempty"` // chosen by the asking side, answered in any order
	Verb  string             `msgpack:"v,omitempty"`
	Body  msgpack.RawMessage `msgpack:"b,omitempty"`
	Err   *Error             `msgpack:"e,omitempty"`
	Files int                `msgpack:"f,omitempty"` // how many descriptors accompany this frame
}

// Conn frames messages on a Transport. One goroutine may read while another writes; each alone needs no lock, two
// writers do.
type Conn struct {
	t       Transport
	in      []byte // bytes read and not yet consumed
	fds     []int  // descriptors read and not yet claimed by a frame
	out     []byte
	greeted bool // our hello is out
	met     bool // their hello is in
}

// NewConn frames on t.
func NewConn(t Transport) *Conn { return &Conn{t: t} }

// Buffered is how many bytes have been read of what comes next.
func (c *Conn) Buffered() int { return len(c.in) }

// Close closes the transport and every descriptor that no message claimed. It must not run beside a Read.
func (c *Conn) Close() error {
	for _, fd := range c.fds {
		c.t.CloseFD(fd)
	}
	c.fds = nil
	return c.t.Close()
}

// Write sends m with the descriptors fds, which stay the caller's. The version goes out with the first message, so
// greeting costs no round trip.
func (c *Conn) Write(m *Msg, fds ...int) error {
	if len(fds) > MaxFiles {
		return fmt.Errorf("send %s: %w: %d descriptors", m.Verb, ErrTooLarge, len(fds))
	}
	m.Files = len(fds)
	c.out = c.out[:0]
	if !c.greeted {
		c.greeted = true
		if err := c.frame(&Msg{Hello: Version}); err != nil {
			return err
		}
		if len(fds) > 0 { // descriptors travel with the first byte of their own frame
			if err := c.t.WriteMsg(c.out, nil); err != nil {
				return err
			}
			c.out = c.out[:0]
		}
	}
	if err := c.frame(m); err != nil {
		return err
	}
	return c.t.WriteMsg(c.out, fds)
}

// Greet sends the version now rather than with the first message, so that the other end's Meet returns.
func (c *Conn) Greet() error {
	if c.greeted {
		return nil
	}
	c.greeted = true
	c.out = c.out[:0]
	if err := c.frame(&Msg{Hello: Version}); err != nil {
		return err
	}
	return c.t.WriteMsg(c.out, nil)
}

// Meet waits for the version of the other end, which proves that a process of this protocol is there.
func (c *Conn) Meet() error {
	if c.met {
		return nil
	}
	m, err := c.next()
	if err != nil {
		return err
	}
	if m.Hello == 0 {
		return fmt.Errorf("%w: no version first", ErrMalformed)
	}
	if m.Hello != Version {
		return fmt.Errorf("%w: %d, here %d", ErrVersion, m.Hello, Version)
	}
	c.met = true
	return nil
}

func (c *Conn) frame(m *Msg) error {
	b, err := Marshal(m)
	if err != nil {
		return err
	}
	c.out, err = AppendFrame(c.out, b)
	return err
}

// AppendFrame appends the frame of body to dst.
func AppendFrame(dst, body []byte) ([]byte, error) {
	if len(body) > MaxFrame {
		return nil, fmt.Errorf("send: %w: %d bytes, at most %d", ErrTooLarge, len(body), MaxFrame)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(body)))
	return append(dst, body...), nil
}

// Read returns the next message and its descriptors, which are then the caller's. After an error the connection is
// good for nothing but Close. io.EOF means that the other end closed between messages.
func (c *Conn) Read() (*Msg, []int, error) {
	if err := c.Meet(); err != nil {
		return nil, nil, err
	}
	m, err := c.next()
	if err != nil {
		return nil, nil, err
	}
	if m.Hello != 0 {
		return nil, nil, fmt.Errorf("%w: version twice", ErrMalformed)
	}
	if m.Files < 0 || m.Files > len(c.fds) {
		return nil, nil, fmt.Errorf("%w: says %d descriptors, %d came", ErrMalformed, m.Files, len(c.fds))
	}
	fds := c.fds[:m.Files:m.Files]
	c.fds = c.fds[m.Files:]
	if len(fds) == 0 {
		fds = nil
	}
	return m, fds, nil
}

func (c *Conn) next() (*Msg, error) {
	if err := c.fill(4); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(c.in)
	if n > MaxFrame { // before anything is allocated
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, MaxFrame)
	}
	if err := c.fill(4 + int(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: cut short", ErrMalformed)
		}
		return nil, err
	}
	body := c.in[4 : 4+n]
	c.in = c.in[4+n:]
	m := new(Msg)
	if err := Unmarshal(body, m); err != nil {
		return nil, err
	}
	return m, nil
}

// fill reads until n bytes wait in c.in. It reads past n where bytes are there already, as pipelined peers send them.
// The buffer grows with what came, never with what was promised.
func (c *Conn) fill(n int) error {
	for len(c.in) < n {
		if cap(c.in)-len(c.in) < 4096 {
			grown := make([]byte, len(c.in), max(8192, 2*len(c.in)))
			copy(grown, c.in)
			c.in = grown
		}
		k, fds, err := c.t.ReadMsg(c.in[len(c.in):cap(c.in)])
		c.fds = append(c.fds, fds...)
		if len(c.fds) > 2*MaxFiles {
			return fmt.Errorf("%w: %d descriptors", ErrTooLarge, len(c.fds))
		}
		c.in = c.in[:len(c.in)+k]
		if err != nil {
			if errors.Is(err, io.EOF) && len(c.in) > 0 && len(c.in) < n {
				return fmt.Errorf("%w: cut short", ErrMalformed)
			}
			return err
		}
	}
	return nil
}

// Call sends one request and reads its answer; nothing else may use the connection meanwhile. A refusal by the other
// end is an *Error. Descriptors in files are sent; those returned are the caller's.
func (c *Conn) Call(verb string, req, resp any, files ...int) ([]int, error) {
	b, err := Marshal(req)
	if err != nil {
		return nil, err
	}
	if err := c.Write(&Msg{ID: 1, Verb: verb, Body: b}, files...); err != nil {
		return nil, err
	}
	m, fds, err := c.Read()
	if err != nil {
		return nil, err
	}
	if m.Err != nil {
		c.closeAll(fds)
		return nil, m.Err
	}
	if m.ID != 1 || m.Verb != "" {
		c.closeAll(fds)
		return nil, fmt.Errorf("%w: not the answer to %s", ErrMalformed, verb)
	}
	if err := decode(m.Body, resp); err != nil {
		c.closeAll(fds)
		return nil, err
	}
	return fds, nil
}

func (c *Conn) closeAll(fds []int) {
	for _, fd := range fds {
		c.t.CloseFD(fd)
	}
}

// CutFrame splits the first frame off b.
func CutFrame(b []byte) (body, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, fmt.Errorf("%w: cut short", ErrMalformed)
	}
	n := binary.BigEndian.Uint32(b)
	if n > MaxFrame || int(n) > len(b)-4 {
		return nil, nil, fmt.Errorf("%w: says %d bytes, has %d", ErrMalformed, n, len(b)-4)
	}
	return b[4 : 4+n], b[4+n:], nil
}
