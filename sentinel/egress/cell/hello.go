// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"errors"
	"fmt"

	"golang.org/x/crypto/cryptobyte"
)

// Bounds of a ClientHello. Real ones have up to 2 KiB (key shares against quantum computers), rarely more.
const (
	maxFront   = 32 << 10 // bytes of what a connection begins with, of TLS or HTTP
	maxRecords = 64       // over which a ClientHello may be split
	maxRecord  = 1 << 14  // bytes of a plaintext record (RFC 8446 5.1)
)

// errHello is wrapped by every refusal of bytes that begin like TLS.
var errHello = errors.New("not a TLS ClientHello")

// hello is what counts of a ClientHello.
type hello struct {
	// Name is the server name as written, of the outer ClientHello where it is encrypted; empty where there is none.
	Name string
	// ECH says that there is an encrypted_client_hello extension. Many clients send one that means nothing.
	ECH bool
}

// isTLS says that bytes begin as a TLS handshake does, or may still.
func isTLS(b []byte) bool { return len(b) > 0 && b[0] == 22 && (len(b) < 2 || b[1] == 3) }

// parseHello reads a ClientHello (RFC 8446 4.1.2) from the records that b begins with. need, where it is not 0, is how
// many bytes b must have before there is more to say. What stands behind the ClientHello's last record is not looked at;
// what stands behind it in that record is an error.
func parseHello(b []byte) (h hello, need int, err error) {
	bad := func(why string) (hello, int, error) { return hello{}, 0, fmt.Errorf("%s: %w", why, errHello) }
	var msg []byte
	for off, records := 0, 0; ; records++ {
		if len(b) < off+5 {
			return hello{}, off + 5, nil
		}
		n := int(b[off+3])<<8 | int(b[off+4])
		switch {
		case b[off] != 22 || b[off+1] != 3:
			return bad("a record of another kind")
		case n == 0 || n > maxRecord || records == maxRecords:
			return bad("records of a wrong size, or too many")
		}
		if len(b) < off+5+n {
			return hello{}, off + 5 + n, nil
		}
		msg = append(msg, b[off+5:off+5+n]...)
		off += 5 + n
		if msg[0] != 1 {
			return bad("another message")
		}
		if len(msg) < 4 {
			continue
		}
		switch size := 4 + (int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3])); {
		case size > maxFront:
			return bad("too long")
		case len(msg) > size:
			return bad("bytes behind it")
		case len(msg) == size:
			h, err := readHello(msg[4:])
			return h, 0, err
		}
	}
}

// readHello reads the message's body.
func readHello(b []byte) (hello, error) {
	bad := func(why string) (hello, error) { return hello{}, fmt.Errorf("%s: %w", why, errHello) }
	s := cryptobyte.String(b)
	var version uint16
	var id, suites, compression, extensions cryptobyte.String
	if !s.ReadUint16(&version) || !s.Skip(32) || !s.ReadUint8LengthPrefixed(&id) || !s.ReadUint16LengthPrefixed(&suites) ||
		!s.ReadUint8LengthPrefixed(&compression) || version>>8 != 3 || len(id) > 32 || len(suites)%2 != 0 || len(suites) == 0 ||
		len(compression) == 0 {
		return bad("its fixed part")
	}
	var h hello
	if s.Empty() {
		return h, nil
	}
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return bad("its extensions")
	}
	seen := map[uint16]bool{}
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) || seen[kind] {
			return bad("its extensions")
		}
		seen[kind] = true
		switch kind {
		case 0: // server_name, RFC 6066 3: one name of one kind
			var list, name cryptobyte.String
			var of uint8
			if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || !list.ReadUint8(&of) || of != 0 ||
				!list.ReadUint16LengthPrefixed(&name) || !list.Empty() || len(name) == 0 {
				return bad("its server name")
			}
			h.Name = string(name)
		case 0xfe0d: // encrypted_client_hello
			h.ECH = true
		}
	}
	return h, nil
}
