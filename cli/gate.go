// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
)

// The cell's gate has the words of its refusals, of which a program by TLS got one byte. It is asked by hand: package net/http costs
// this command more than all the rest of it. What it answers is read with bounds, and as text.

// gate is where it is asked: port 80 of wire.Gate4. Tests have another.
var gate = unix.SockaddrInet4{Port: 80, Addr: [4]byte{198, 18, 0, 1}}

const (
	gateTime    = 2 * time.Second
	gateMost    = 256 << 10 // of its answer, in bytes
	gateShown   = 5         // refusals that differ
	checkGate   = "refused"
	gateSilence = "the cell's gate does not say what it refused: "
)

// gateFindings are the newest refusals of the cell's egress. A cell without the root of one has no egress, and its gate's address would
// be a stranger's.
func (p trustPlaces) gateFindings() []finding {
	if _, err := os.Stat(p.root); err != nil {
		return nil
	}
	b, err := askGate()
	if err != nil {
		return []finding{{checkGate, gateSilence + err.Error(), "tell the person: doorward doctor", true}}
	}
	v, ok := parse(b)
	if !ok || v.kind != '[' && v.kind != 'n' {
		return []finding{{checkGate, gateSilence + "its answer is no list", "tell the person: doorward doctor", true}}
	}
	var out []finding
	var seen []string
	for _, r := range v.vals {
		what := "refused " + r.str("to") + ": " + r.str("code") + ": " + r.str("reason")
		if len(out) < gateShown && !slices.Contains(seen, what) {
			seen = append(seen, what)
			out = append(out, finding{check: checkGate, what: r.str("time") + " " + what, next: r.str("next")})
		}
	}
	return out
}

// askGate gets the list of refusals.
func askGate() ([]byte, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	tv := unix.NsecToTimeval(int64(gateTime))
	for _, opt := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} { // connect waits by the first
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &tv); err != nil {
			return nil, err
		}
	}
	end := time.Now().Add(gateTime)
	if err := unix.Connect(fd, &gate); err != nil {
		return nil, err
	}
	if err := writeAll(fd, []byte("GET / HTTP/1.0\r\nHost: "+wire.Gate4+"\r\n\r\n")); err != nil {
		return nil, err
	}
	var b []byte
	for buf := make([]byte, 16<<10); ; {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n == 0:
			return httpBody(b)
		case len(b)+n > gateMost || time.Now().After(end):
			return nil, errors.New("its answer is too long")
		default:
			b = append(b, buf[:n]...)
		}
	}
}

// httpBody is the body of an answer that ends with its connection.
func httpBody(b []byte) ([]byte, error) {
	head, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok || !bytes.HasPrefix(head, []byte("HTTP/1.")) || !bytes.HasPrefix(head[min(8, len(head)):], []byte(" 200 ")) {
		return nil, errors.New("its answer is none of HTTP")
	}
	return body, nil
}
