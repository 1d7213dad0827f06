// SPDX-License-Identifier: Apache-2.0

// Package openers says which task of a cell opened a connection: the kernel's programs write it down at connect, before the
// first packet (bpf/gate.c), and the cell's egress asks when it accepts.
//
// What an attacker in the cell could do: choose the program's name, which is its comm; connect in one process and use the
// connection in another, which is then not the one that is told of; or open so many connections at once that an older entry
// of its own cell gives way to a newer, and the answer is that nobody knows. So it tells a person which program it was,
// and names a session, whose grants are the cell's to use by whichever of its programs anyway.
package openers

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/doorward/doorward/cellnet/pinned"
	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

// ErrUnknown: nobody wrote down who opened that connection.
var ErrUnknown = errors.New("the kernel has not written down who opened this connection")

// Key is the map's key, struct opener_key of bpf/gate.c: the connection as its client has it.
type Key struct {
	Addr [16]byte // the client's address, that of IPv4 as ::ffff:a.b.c.d
	Port uint16
	_    [6]byte
}

// Opener is the map's value, struct opener of bpf/gate.c.
type Opener struct {
	Cgroup uint64 // id of the cgroup of the process's session
	Start  uint64 // nanoseconds since boot, those asleep too
	TGID   uint32 // as the machine numbers it
	Comm   [16]byte
	_      [4]byte
}

// Openers is the open map. It is safe for concurrent use.
type Openers struct{ m *pinned.Map }

// Open opens the map of a cell that is pinned at path (wire.BPFDir, the cell's name and "openers"), for reading, which is all that
// the file's mode has to permit. It needs no capability.
func Open(path string) (*Openers, error) {
	m, err := pinned.Open(path, pinned.Kind{Type: unix.BPF_MAP_TYPE_LRU_HASH, Key: keySize, Value: openerSize, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open who opened which connection, which `cellnet cell NAME` makes: %w", err)
	}
	return &Openers{m}, nil
}

// Close closes the map.
func (o *Openers) Close() { o.m.Close() }

// Of says who opened the connection that conn, in the cell's network, is the accepted end of. What is not written down is
// ErrUnknown, and the zero Task.
func (o *Openers) Of(conn *net.TCPConn) (wire.Task, error) {
	k, err := keyOf(conn)
	if err != nil {
		return wire.Task{}, fmt.Errorf("look up who opened a connection: %w", err)
	}
	var v Opener
	switch err := pinned.Lookup(o.m, &k, &v); {
	case errors.Is(err, pinned.ErrNone):
		return wire.Task{}, ErrUnknown
	case err != nil:
		return wire.Task{}, fmt.Errorf("look up who opened a connection: %w", err)
	}
	comm, _, _ := bytes.Cut(v.Comm[:], []byte{0})
	return wire.Task{Cgroup: v.Cgroup, PID: v.TGID, Start: v.Start, Program: strings.ToValidUTF8(string(comm), "\uFFFD")}, nil
}

// keyOf is the key of the connection that conn is the accepted end of.
func keyOf(conn *net.TCPConn) (Key, error) {
	from, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return Key{}, errors.New("it has no address")
	}
	at, ok := netip.AddrFromSlice(from.IP)
	if !ok {
		return Key{}, errors.New("its client has no address")
	}
	return Key{Addr: at.As16(), Port: uint16(from.Port)}, nil
}

// Sizes of the structs in bytes, as the kernel has them.
const (
	keySize    = 24
	openerSize = 40
)
