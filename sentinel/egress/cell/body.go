// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// What comes next of a body (RFC 9112 6, 7.1).
type bodyPart int

const (
	partDone bodyPart = iota
	partExact
	partSize
	partData
	partCRLF
	partTrailer
	partToEnd // until the connection ends
)

// Sizes of what is read at a time: little while little comes, since a connection that rests keeps its buffer.
const (
	fewBytes  = 512
	manyBytes = 16 << 10 // a TLS record
)

var many = sync.Pool{New: func() any { return new([manyBytes]byte) }}

// reading is a buffer that grows while it is filled, and is given back when it is not.
type reading struct {
	few  []byte
	full *[manyBytes]byte
}

func (r *reading) buf() []byte {
	if r.full != nil {
		return r.full[:]
	}
	if r.few == nil {
		r.few = make([]byte, fewBytes)
	}
	return r.few
}

func (r *reading) was(n int) {
	switch {
	case r.full == nil && n == fewBytes:
		r.full, r.few = many.Get().(*[manyBytes]byte), nil
	case r.full != nil && n < fewBytes:
		r.over()
	}
}

func (r *reading) over() {
	if r.full != nil {
		many.Put(r.full)
		r.full = nil
	}
}

// body reads one of HTTP/1, by its framing, and keeps that as it is written.
type body struct {
	src     *source
	next    bodyPart
	left    int64                     // bytes of this part
	trailer int                       // bytes of the trailers so far
	refuses func(trailer string) bool // nil: none
	reading
	held    []framed // read ahead, oldest first
	heldLen int      // bytes of content in held
	heldRaw int      // what held costs, about
}

// Of what is read ahead: what a piece costs besides its bytes, and how much there may be beyond some times its content, in bytes.
const (
	framedCost = 64
	maxHeldRaw = 256 << 10
)

// framed is bytes as they are framed, and which of them are content.
type framed struct{ raw, content []byte }

// newBody is of a length in bytes, or chunked where that is -1, or until the end where it is -2.
func newBody(src *source, length int64) *body {
	b := &body{src: src, left: length}
	switch {
	case length > 0:
		b.next = partExact
	case length == -1:
		b.next = partSize
	case length == -2:
		b.next = partToEnd
	}
	return b
}

func (b *body) done() bool { return b.next == partDone && len(b.held) == 0 }

// waits says that to read more is to wait for the connection, as far as that is known. While much comes the kernel is asked, so that
// what is passed on goes in whole records.
func (b *body) waits() bool {
	return len(b.held) == 0 && len(b.src.b) == 0 && (b.full == nil || !b.src.comes())
}

// read gives what comes next: raw as it is framed, of which content is what it says. Both are good until the next call, or over,
// which gives the buffer back.
func (b *body) read() (raw, content []byte, err error) {
	if len(b.held) > 0 {
		p := b.held[0]
		b.held = b.held[1:]
		b.heldLen -= len(p.content)
		return p.raw, p.content, nil
	}
	return b.more()
}

func (b *body) more() (raw, content []byte, err error) {
	switch b.next {
	case partExact, partData:
		p, err := b.bytes(b.left)
		if err != nil {
			return nil, nil, err
		}
		if b.left -= int64(len(p)); b.left == 0 {
			if b.next == partExact {
				b.next = partDone
			} else {
				b.next = partCRLF
			}
		}
		return p, p, nil
	case partToEnd:
		p, err := b.bytes(manyBytes)
		if errors.Is(err, io.EOF) {
			b.next = partDone
			return nil, nil, nil
		}
		return p, p, err
	case partSize:
		line, err := b.src.line(maxChunkLine)
		if err != nil {
			return nil, nil, cutShort(err)
		}
		size, ok := chunkSize(line)
		if !ok {
			return nil, nil, fmt.Errorf("the size of a chunk: %w", errHTTP)
		}
		b.left, b.next = size, partData
		if size == 0 {
			b.next = partTrailer
		}
		return line, nil, nil
	case partCRLF:
		line, err := b.src.line(len("\r\n"))
		b.next = partSize
		return line, nil, cutShort(err)
	case partTrailer:
		line, err := b.src.line(maxTrailer)
		if err != nil {
			return nil, nil, cutShort(err)
		}
		if b.trailer += len(line); b.trailer > maxTrailer {
			return nil, nil, fmt.Errorf("trailers: %w", errTooLarge)
		}
		if len(line) == 2 {
			b.next = partDone
		} else if name, _, ok := cutField(strings.TrimSuffix(string(line), "\r\n")); !ok || b.refuses != nil && b.refuses(name) {
			return nil, nil, fmt.Errorf("a trailer: %w", errHTTP)
		}
		return line, nil, nil
	}
	return nil, nil, nil
}

// cutShort is an end where none may be.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// bytes reads at most so many.
func (b *body) bytes(most int64) ([]byte, error) {
	if n := min(most, int64(len(b.src.b))); n > 0 {
		return b.src.take(int(n)), nil
	}
	if b.src.err == nil {
		buf := b.buf()
		room := min(most, int64(len(buf)))
		if b.next == partExact && room < int64(len(buf)) {
			room++ // for what comes behind it, which the connection would keep unseen
		}
		n, err := b.src.c.Read(buf[:room])
		if int64(n) > most {
			b.src.b = append([]byte(nil), buf[most:n]...)
			n = int(most)
		}
		if n > 0 && b.src.used != nil {
			b.src.used()
		}
		b.src.err = err
		if n > 0 {
			p := buf[:n]
			if b.full != nil && n < fewBytes { // the buffer goes back, so not with what it holds
				p = append([]byte(nil), p...)
			}
			b.was(n)
			return p, nil
		}
	}
	if b.next == partToEnd {
		return nil, b.src.err
	}
	return nil, cutShort(b.src.err)
}

// start reads the content's beginning, at most n bytes, and holds it so that read gives it as if for the first time. whole says
// that it is all of it.
func (b *body) start(n int) (content []byte, whole bool, err error) {
	for b.heldLen < n+1 && b.next != partDone {
		if b.heldRaw > 4*n+maxHeldRaw { // a byte in each chunk: its framing would take many times what it says
			return nil, false, fmt.Errorf("chunks of so few bytes: %w", errTooLarge)
		}
		raw, content, err := b.more()
		if err != nil {
			return nil, false, err
		}
		b.heldLen += len(content)
		b.heldRaw += len(raw)
		if last := len(b.held) - 1; last >= 0 && (len(b.held[last].content) > 0) == (len(content) > 0) {
			b.held[last].raw = append(b.held[last].raw, raw...)
		} else {
			b.heldRaw += framedCost
			b.held = append(b.held, framed{raw: append([]byte(nil), raw...)})
		}
		if len(content) > 0 { // content is all of raw then
			p := &b.held[len(b.held)-1]
			p.content = p.raw
		}
	}
	for _, p := range b.held {
		content = append(content, p.content...)
	}
	if len(content) > n {
		return content[:n], false, nil
	}
	return content, b.next == partDone, nil
}

// contents reads a body's content alone. Before it waits for more it calls idle. tail are trailers' lines.
type contents struct {
	b    *body
	idle func() error
	p    []byte
	tail [][]byte
}

func (c *contents) Read(p []byte) (int, error) {
	for len(c.p) == 0 {
		if c.b.done() {
			return 0, io.EOF
		}
		if c.b.waits() {
			if err := c.idle(); err != nil {
				return 0, fmt.Errorf("%w: %w", errClient, err)
			}
		}
		trailers := c.b.next == partTrailer && len(c.b.held) == 0
		raw, content, err := c.b.read()
		if err != nil {
			return 0, err
		}
		if trailers && len(raw) > 2 {
			c.tail = append(c.tail, append([]byte(nil), raw...))
		}
		c.p = content
	}
	n := copy(p, c.p)
	c.p = c.p[n:]
	return n, nil
}
