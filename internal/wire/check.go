// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
)

const (
	maxDepth = 16  // nesting of the deepest message, with room
	maxPairs = 128 // keys of the widest struct, with room
)

// Check walks one MessagePack value and reports whether it is a value that a message of this protocol can hold: it
// fills b exactly; nests at most 16 deep; every count fits into the bytes that are left; maps have at most 128 string
// keys, none twice; there is no float, no extension type and no reserved byte. It
// allocates for maps of more than 16 keys and on error only.
func Check(b []byte) error {
	rest, err := skip(b, 0)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: %d trailing bytes", ErrMalformed, len(rest))
	}
	return nil
}

// skip returns what follows the first value of b.
func skip(b []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: nested deeper than %d", ErrMalformed, maxDepth)
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: cut short", ErrMalformed)
	}
	c := b[0]
	b = b[1:]
	switch {
	case c <= 0x7f, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3: // fixint, nil, bool
		return b, nil
	case c <= 0x8f:
		return skipMap(b, uint64(c&0x0f), depth)
	case c <= 0x9f:
		return skipArray(b, uint64(c&0x0f), depth)
	case c <= 0xbf:
		return drop(b, uint64(c&0x1f))
	}
	width := 0
	switch {
	case c >= 0xcc && c <= 0xd3: // uint and int of 8 to 64 bits
		return drop(b, 1<<(c&3))
	case c >= 0xc4 && c <= 0xc6: // bin8, 16, 32
		width = 1 << (c - 0xc4)
	case c >= 0xd9 && c <= 0xdb: // str8, 16, 32
		width = 1 << (c - 0xd9)
	case c >= 0xdc && c <= 0xdf: // array16, 32, map16, 32
		width = 2 << (c & 1)
	default:
		return nil, fmt.Errorf("%w: type byte %#x", ErrMalformed, c)
	}
	if len(b) < width {
		return nil, fmt.Errorf("%w: cut short", ErrMalformed)
	}
	n := uint64(0)
	for _, d := range b[:width] {
		n = n<<8 | uint64(d)
	}
	switch b = b[width:]; {
	case c >= 0xde:
		return skipMap(b, n, depth)
	case c >= 0xdc:
		return skipArray(b, n, depth)
	}
	return drop(b, n)
}

func drop(b []byte, n uint64) ([]byte, error) {
	if n > uint64(len(b)) {
		return nil, fmt.Errorf("%w: says %d bytes, has %d", ErrMalformed, n, len(b))
	}
	return b[n:], nil
}

func skipArray(b []byte, n uint64, depth int) ([]byte, error) {
	if n > uint64(len(b)) { // each element takes a byte at least
		return nil, fmt.Errorf("%w: says %d elements, has %d bytes", ErrMalformed, n, len(b))
	}
	var err error
	for range n {
		if b, err = skip(b, depth+1); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func skipMap(b []byte, n uint64, depth int) ([]byte, error) {
	if n > maxPairs || 2*n > uint64(len(b)) {
		return nil, fmt.Errorf("%w: says %d pairs, has %d bytes", ErrMalformed, n, len(b))
	}
	var few [16][]byte // on the stack, at each level of nesting
	keys := few[:0]
	for range n {
		if len(b) == 0 || (b[0]&0xe0 != 0xa0 && b[0] != 0xd9) {
			return nil, fmt.Errorf("%w: a map key is no short string", ErrMalformed)
		}
		rest, err := skip(b, depth+1)
		if err != nil {
			return nil, err
		}
		head := 1
		if b[0] == 0xd9 {
			head = 2
		}
		key := b[head : len(b)-len(rest)]
		for _, k := range keys {
			if bytes.Equal(k, key) {
				return nil, fmt.Errorf("%w: a map key stands twice", ErrMalformed)
			}
		}
		keys = append(keys, key)
		if b, err = skip(rest, depth+1); err != nil {
			return nil, err
		}
	}
	return b, nil
}
