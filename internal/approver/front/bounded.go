// SPDX-License-Identifier: Apache-2.0

package front

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Conns and OfAddress bound the connections of one port: all, and those of one network address. A tunnel's people all come from
// 127.0.0.1, so one address has room for several browsers.
const (
	Conns     = 256
	OfAddress = 32
)

// Bounded bounds connections. Beyond a bound the oldest that is not kept gives way to a new one, so who holds connections without
// being known keeps nobody out; where all are kept, the new one is closed before a byte of it is read.
type Bounded struct {
	net.Listener
	most, ofAddress int

	mu  sync.Mutex // guards what follows, and kept of each
	all []*conn    // oldest first
}

// NewBounded bounds the connections of ln.
func NewBounded(ln net.Listener, most, ofAddress int) *Bounded {
	return &Bounded{Listener: ln, most: most, ofAddress: ofAddress}
}

// Accept waits for the next connection that there is room for.
func (b *Bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		n := &conn{Conn: c, of: b, who: Network(c.RemoteAddr())}
		old, ok := b.admit(n)
		if old != nil {
			_ = old.Conn.Close() // whoever reads it closes it too
		}
		if ok {
			return n, nil
		}
		_ = c.Close()
	}
}

// admit takes a connection in, and says which has to give way to it.
func (b *Bounded) admit(n *conn) (old *conn, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	its := 0
	for _, c := range b.all {
		if c.who == n.who {
			its++
		}
	}
	if full := its >= b.ofAddress; full || len(b.all) >= b.most {
		i := slices.IndexFunc(b.all, func(c *conn) bool { return !c.kept && (!full || c.who == n.who) })
		if i < 0 {
			return nil, false
		}
		old = b.all[i]
		b.all = slices.Delete(b.all, i, i+1)
	}
	b.all = append(b.all, n)
	return old, true
}

// Network is what counts as one address: with IPv6 the /64, all of which one host may use.
func Network(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{} // all that have none share one allowance
	}
	addr, bits := at.Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}

type connKey struct{}

// Conn is the connection that a request came on, nil where no Server of this package took it.
func Conn(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}

// Keep has a bounded connection give way to no other from now on: whoever is at its other end is known.
func Keep(c net.Conn) {
	if c, ok := c.(*conn); ok {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.kept = true
	}
}

// Kept says whether Keep was called.
func Kept(c net.Conn) bool {
	k, ok := c.(*conn)
	if !ok {
		return false
	}
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	return k.kept
}

type conn struct {
	net.Conn
	of   *Bounded
	who  netip.Prefix
	kept bool
}

// CloseWrite is that of TCP: what is still to be read keeps the end of an answer from being lost to a reset.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	if i := slices.Index(c.of.all, c); i >= 0 {
		c.of.all = slices.Delete(c.of.all, i, i+1)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
