// SPDX-License-Identifier: Apache-2.0

// Package wire is every message that Doorward's processes exchange, their framing, and the table of who may talk to
// whom. It is data and codec only: it decides nothing and imports nothing of the project.
//
// A frame is a big-endian u32 length (at most MaxFrame, checked before anything is allocated) and that many bytes of
// MessagePack. Before the decoder sees them, Check walks the whole frame: nesting, counts against the bytes that are
// left, duplicate keys, and types that no message has. That matters because five bytes can make the decoder reserve
// gigabytes when it meets a count first. The decoder then fills typed structs only; unknown fields and trailing bytes
// are refused. What an attacker can still do with a well-formed message is the receiver's business: identity comes
// from the kernel (package peer), never from here.
package wire

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// Version is the protocol version, the first thing each end says. Ends of different versions refuse each other.
//
//	1  2026-11-30  first form
const Version = 1

const (
	// MaxFrame is the largest frame in bytes, without its length prefix.
	MaxFrame = 1 << 20
	// MaxInline is the largest answer that travels inside a frame, in bytes; a larger one travels as a sealed memfd.
	MaxInline = 256 << 10
	// MaxFiles is the largest number of descriptors that may accompany one frame.
	MaxFiles = 16
	// MaxFile is the largest file that a call may carry, in bytes.
	MaxFile = 64 << 20
)

// Errors of this package. ErrMalformed covers every byte sequence that is no message of this protocol.
var (
	ErrTooLarge  = errors.New("frame too large")
	ErrMalformed = errors.New("malformed frame")
	ErrVersion   = errors.New("the other end speaks another protocol version")
)

// Marshal encodes one message body. Encoding is deterministic: equal values give equal bytes.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(&buf)
	e.UseCompactInts(true)
	e.SetOmitEmpty(true)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return buf.Bytes(), nil
}

// Unmarshal checks b as a whole and decodes it into v, a pointer to a struct. On error v is not to be used.
func Unmarshal(b []byte, v any) error {
	if err := Check(b); err != nil {
		return err
	}
	return decode(b, v)
}

// Decode is Unmarshal for the Body of a Msg that Read returned: the whole frame has passed Check.
func Decode(body msgpack.RawMessage, v any) error { return decode(body, v) }

// decode is Unmarshal for bytes that Check has passed.
func decode(b []byte, v any) error {
	r := bytes.NewReader(b)
	d := msgpack.GetDecoder()
	defer msgpack.PutDecoder(d)
	d.Reset(r)
	d.DisallowUnknownFields(true)
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	if r.Len() != 0 {
		return fmt.Errorf("%w: %d trailing bytes", ErrMalformed, r.Len())
	}
	return nil
}

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// Sum is the digest of b.
func Sum(b []byte) Digest { return sha256.Sum256(b) }
