// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

// Bounds of the names of one cell. Whoever runs in it chooses the names, and none is taken away as long as its network is
// there, so that an address never comes to stand for another name.
const (
	maxNames      = 1 << 16 // in all
	maxNameBytes  = 4 << 20 // of all names together
	namesAMinute  = 300     // new ones; so many may come at once
	namesInterval = time.Minute / namesAMinute
)

// The pool. 198.18.0.0/15 is for benchmarks between networks (RFC 2544), so no server has such an address, and
// fd00:d00d::/64 is a local prefix (RFC 4193). Both number the same names; the first two of each are no name's.
var (
	pool4 = netip.MustParsePrefix("198.18.0.0/15")
	pool6 = netip.MustParsePrefix("fd00:d00d::/64")
	Gate4 = netip.MustParseAddr(wire.Gate4)
	Gate6 = netip.MustParseAddr(wire.Gate6)
)

const firstName = 2 // number of the first name's address in its pool

var (
	errTooManyNames = errors.New("the cell has asked for more names than it may")
	errTooFast      = errors.New("the cell asks for new names faster than it may")
)

// Names is the table of one cell's names and the addresses that stand for them. It is safe for concurrent use.
type Names struct {
	mu    sync.Mutex // guards what follows
	file  *namesFile
	list  []string
	index map[string]uint32
	bytes int
	allow bucket
	log   *slog.Logger
	said  bool // that the table is full
}

// OpenNames reads the table of the state directory dir, or begins one. network is the cookie of the cell's network namespace
// (SO_NETNS_COOKIE, socket(7)): a table of another one is dropped, since nobody in this one was told of it. A file that no run
// of this program left is an error: the table would give old addresses to other names.
func OpenNames(dir string, network uint64, log *slog.Logger) (*Names, error) {
	file, list, err := openNamesFile(dir, network)
	if err != nil {
		return nil, err
	}
	n := &Names{file: file, list: list, index: make(map[string]uint32, len(list)), log: log,
		allow: bucket{most: namesAMinute, every: namesInterval}}
	for i, name := range list {
		n.index[name] = uint32(i)
		n.bytes += len(name)
	}
	return n, nil
}

// Close closes the file.
func (n *Names) Close() error { return n.file.close() }

// Of gives the addresses of a name, which must be canonical; one that is new is written down before. Errors: errTooFast,
// errTooManyNames, and what writing says.
func (n *Names) Of(name guard.Host) (v4, v6 netip.Addr, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := name.String()
	i, known := n.index[s]
	if !known {
		switch {
		case name.IsZero() || name.Addr().IsValid():
			return v4, v6, fmt.Errorf("give a name its address: %q is no name", s)
		case len(n.list) >= maxNames || n.bytes+len(s) > maxNameBytes:
			if !n.said {
				n.log.Error("a cell has used up its names; new ones get no address until its network is made anew",
					daemon.KeyCount, len(n.list))
				n.said = true
			}
			return v4, v6, errTooManyNames
		case !n.allow.take(time.Now()):
			return v4, v6, errTooFast
		}
		if err := n.file.add(s); err != nil {
			return v4, v6, err
		}
		i = uint32(len(n.list))
		n.list = append(n.list, s)
		n.index[s] = i
		n.bytes += len(s)
	}
	return nth(pool4, i+firstName), nth(pool6, i+firstName), nil
}

// Allow has as many new names a minute as a budget says, where it says so.
func (n *Names) Allow(b *wire.Budget) {
	most := namesAMinute
	if b != nil && b.Cell.Names > 0 {
		most = int(min(b.Cell.Names, namesAMinute))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.allow.most, n.allow.every = most, time.Minute/time.Duration(most)
}

// Name is the name that an address stands for.
func (n *Names) Name(a netip.Addr) (string, bool) {
	i, ok := number(a.Unmap())
	if !ok || i < firstName {
		return "", false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if i -= firstName; int64(i) >= int64(len(n.list)) {
		return "", false
	}
	return n.list[i], true
}

// InPool says that an address is one of those that stand for names, whether or not a name has it.
func InPool(a netip.Addr) bool {
	a = a.Unmap()
	return pool4.Contains(a) || pool6.Contains(a)
}

// nth is the address number i of a pool. Preconditions: i < 2^17.
func nth(pool netip.Prefix, i uint32) netip.Addr {
	b := pool.Addr().AsSlice()
	k := len(b)
	b[k-1] |= byte(i)
	b[k-2] |= byte(i >> 8)
	b[k-3] |= byte(i >> 16)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// number is the other way round.
func number(a netip.Addr) (uint32, bool) {
	switch {
	case pool4.Contains(a):
		b := a.As4()
		return uint32(b[1]&1)<<16 | uint32(b[2])<<8 | uint32(b[3]), true
	case pool6.Contains(a):
		b := a.As16()
		for _, x := range b[8:13] {
			if x != 0 {
				return 0, false
			}
		}
		return uint32(b[13])<<16 | uint32(b[14])<<8 | uint32(b[15]), true
	}
	return 0, false
}

// bucket lets most things happen at once, and one more every so often.
type bucket struct {
	most  int
	every time.Duration
	used  int
	since time.Time // when used was counted down last
}

func (b *bucket) take(now time.Time) bool {
	if back := int(now.Sub(b.since) / b.every); b.used > 0 && back > 0 {
		b.used = max(0, b.used-back)
		b.since = b.since.Add(time.Duration(back) * b.every)
	}
	if b.used == 0 {
		b.since = now
	}
	if b.used >= b.most {
		return false
	}
	b.used++
	return true
}
