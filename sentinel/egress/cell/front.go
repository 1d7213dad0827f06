// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
)

// frontTime is how long a connection may take to show what it is, from its first byte, or from being opened.
const frontTime = 10 * time.Second

var (
	errSilent   = errors.New("the connection said nothing, or too little, in time")
	errTooLarge = errors.New("what the connection begins with is too long")
)

// front is what a connection begins with.
type front struct {
	begins string // of package wire
	hello  hello
	http   *httpHead // where it is HTTP
}

// classify says what b begins with. Where that cannot be said yet, need is how many bytes b must have before it is asked
// again, or -1: one more line. end says that no byte will follow.
func classify(b []byte, end bool) (f front, need int, err error) {
	more := func(need int) (front, int, error) {
		if end {
			return front{}, 0, io.ErrUnexpectedEOF
		}
		return front{}, need, nil
	}
	switch {
	case len(b) == 0:
		return more(1)
	case isTLS(b):
		h, need, err := parseHello(b)
		if err != nil {
			return front{}, 0, err
		}
		if need > 0 {
			return more(need)
		}
		return front{begins: wire.BeginsTLS, hello: h}, 0, nil
	}
	switch says := isHTTP(b); {
	case says == httpYes:
		h, incomplete, err := parseHTTP(b)
		if err != nil {
			return front{}, 0, err
		}
		if incomplete {
			return more(-1)
		}
		return front{begins: wire.BeginsHTTP, http: h}, 0, nil
	case says == httpMaybe && !end && len(b) <= maxMethod:
		return more(len(b) + 1)
	case says == httpMaybe && !end:
		return more(-1)
	}
	return front{begins: wire.BeginsOther}, 0, nil
}

// source reads a connection, and keeps what was read ahead of its use.
type source struct {
	c    net.Conn
	most int          // bytes that b may have; 0 is maxFront
	b    []byte       // read and not used
	err  error        // of the last read
	used func()       // told of each read that gave bytes
	sock *net.TCPConn // below c; nil: it is not known
}

// comes says that bytes are there which were not read yet. Of TLS it may be a part of a record, the rest of which is on its way.
func (s *source) comes() bool {
	if s.sock == nil {
		return false
	}
	raw, err := s.sock.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // SIOCINQ of tcp(7)
	return err == nil && n > 0
}

// front reads until it is clear what comes next. io.EOF: nothing does. With wait, the time begins with the first byte.
func (s *source) front(wait bool) (front, error) {
	for {
		if !wait || len(s.b) > 0 {
			_ = s.c.SetReadDeadline(time.Now().Add(frontTime))
			break
		}
		if s.err != nil {
			return front{}, s.err
		}
		s.read()
	}
	defer func() { _ = s.c.SetReadDeadline(time.Time{}) }()
	for {
		f, need, err := classify(s.b, errors.Is(s.err, io.EOF))
		switch {
		case err != nil && len(s.b) == 0:
			return front{}, io.EOF
		case err != nil || need == 0:
			return f, err
		case need > maxFront || len(s.b) >= maxFront:
			return front{}, errTooLarge
		}
		for from := len(s.b); len(s.b) < need || need < 0 && bytes.IndexByte(s.b[from:], '\n') < 0; {
			var late net.Error
			switch {
			case errors.Is(s.err, io.EOF):
			case errors.As(s.err, &late) && late.Timeout():
				return front{}, errSilent
			case s.err != nil:
				return front{}, s.err
			case len(s.b) >= maxFront:
				return front{}, errTooLarge
			default:
				s.read()
				continue
			}
			break // the end: it is what it is
		}
	}
}

func (s *source) limit() int {
	if s.most == 0 {
		return maxFront
	}
	return s.most
}

// read reads what is there, at least one byte, behind what is there already. Preconditions: s.b is below its limit.
func (s *source) read() {
	if cap(s.b)-len(s.b) < 512 {
		s.b = append(make([]byte, 0, min(s.limit(), max(2048, 2*cap(s.b)+512))), s.b...)
	}
	n, err := s.c.Read(s.b[len(s.b):cap(s.b)])
	s.b, s.err = s.b[:len(s.b)+n], err
	if n > 0 && s.used != nil {
		s.used()
	}
}

// take uses n bytes. Preconditions: they are there.
func (s *source) take(n int) []byte {
	b := s.b[:n]
	if s.b = s.b[n:]; len(s.b) == 0 {
		s.b = nil
	}
	return b
}

// line uses one line that ends in CRLF, of at most most bytes with it.
func (s *source) line(most int) ([]byte, error) {
	for {
		if i := bytes.IndexByte(s.b, '\n'); i >= 0 || len(s.b) >= most {
			if i < 1 || i >= most || s.b[i-1] != '\r' {
				return nil, fmt.Errorf("a line of a body: %w", errHTTP)
			}
			return s.take(i + 1), nil
		}
		if s.err != nil {
			return nil, s.err
		}
		s.read()
	}
}
