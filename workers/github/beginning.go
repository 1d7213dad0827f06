// SPDX-License-Identifier: Apache-2.0

package github

import (
	"errors"
	"io"
)

// beginning reads the first bytes of r, and where it leaves some out, ends at a whole character. It holds one piece at
// a time, so a large file costs no memory here.
type beginning struct {
	r     io.Reader
	left  int64
	piece []byte
	ready []byte // of piece: what may go out
	held  []byte // of piece, behind ready: at most 3 bytes that may be the beginning of a character
	cut   bool
	err   error
}

// Note says what was left out.
func (b *beginning) Note() string {
	if b.cut {
		return "only the beginning; ask for more with --max-bytes"
	}
	return ""
}

func (b *beginning) Read(p []byte) (int, error) {
	for len(b.ready) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.fill()
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

func (b *beginning) fill() {
	if b.piece == nil {
		b.piece = make([]byte, 32<<10)
	}
	n := copy(b.piece, b.held)
	got, err := b.r.Read(b.piece[n:min(int64(len(b.piece)), int64(n)+b.left)])
	b.left -= int64(got)
	n += got
	if err == nil && b.left == 0 {
		err = b.more()
	}
	keep := 0
	switch {
	case err == nil:
		keep = min(n, 3)
	case !errors.Is(err, io.EOF):
		n = 0 // what broke off is not shown
	case b.cut:
		n = len(whole(b.piece[:n]))
	}
	b.ready, b.held, b.err = b.piece[:n-keep], b.piece[n-keep:n], err
}

// more ends the reading: with what follows left out, if anything does.
func (b *beginning) more() error {
	var one [1]byte
	n, err := io.ReadFull(b.r, one[:])
	if n > 0 {
		b.cut = true
		return io.EOF
	}
	return err
}

// whole drops the beginning of a character at the end of b.
func whole(b []byte) []byte {
	for i := 1; i <= 3 && i <= len(b); i++ {
		c := b[len(b)-i]
		switch {
		case c&0xc0 == 0x80:
			continue
		case c >= 0xf0 && i < 4, c >= 0xe0 && i < 3, c >= 0xc0 && i < 2:
			return b[:len(b)-i]
		}
		break
	}
	return b
}
