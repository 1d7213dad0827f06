// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/swap"
)

// Bounds of the pools. A request that changes something gets a connection that was in use a moment ago, or a new one:
// servers close idle connections without a word, and a write that meets that moment would have an unknown end.
const (
	maxIdle      = 128              // connections kept for one partition
	idleRead     = 90 * time.Second // longest rest of a connection that a read may get
	idleWrite    = 2 * time.Second  // and one that a write may get
	maxPartition = 256              // partitions kept
	idlePart     = 10 * time.Minute // a partition nobody used for so long is dropped
	keepForms    = 3 * time.Second  // and the forms of its credential after so long
	dialTimeout  = 20 * time.Second // look-up, connect and handshake together
)

// partKey separates pools: by account, login and authority, and by every setting that decides whom a connection
// reaches. Connections, TLS sessions and scrubbers are never shared across it.
type partKey struct {
	account    string
	generation int64
	credential bool
	plain      bool
	to         guard.Authority
	ca         string // PEM
	permits    string
	pin        netip.AddrPort
}

// partition is one pool.
type partition struct {
	key     partKey
	permits []netip.AddrPort
	tls     *tls.Config
	dialer  *guard.Dialer
	h2After int

	mu     sync.Mutex // guards what follows
	idle   []*h1conn  // the last used is the last
	busy   int        // HTTP/1.1 connections in use
	h2     []*h2conn
	h2only bool // the server refused HTTP/1.1
	used   time.Time
	gone   bool // dropped: what comes back is closed
	scrub  *swap.Scrubber
	forms  []string // what scrub was made of
}

func newPartition(key partKey, permits []netip.AddrPort, dialer *guard.Dialer, h2After int) (*partition, error) {
	p := &partition{key: key, permits: permits, dialer: dialer, h2After: h2After}
	if key.plain {
		return p, nil
	}
	p.tls = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         key.to.Host.String(),
		ClientSessionCache: tls.NewLRUClientSessionCache(16),
	}
	if key.ca != "" {
		p.tls.RootCAs = x509.NewCertPool()
		if !p.tls.RootCAs.AppendCertsFromPEM([]byte(key.ca)) {
			return nil, errors.New("read the account's CA: no certificate in it")
		}
	}
	return p, nil
}

// scrubber compiles the secrets once.
func (p *partition) scrubber(secrets []string) (*swap.Scrubber, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = time.Now()
	if p.scrub != nil && equal(p.forms, secrets) {
		return p.scrub, nil
	}
	s, err := swap.NewScrubber(secrets...)
	if err != nil {
		return nil, err
	}
	p.scrub, p.forms = s, append([]string(nil), secrets...)
	return s, nil
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// h2conn is one HTTP/2 connection. Its count of uses is guarded by its partition; net/http's own count may wait for the
// server.
type h2conn struct {
	*http.ClientConn
	uses  int
	leave bool // gets no more requests, and is closed when the last has ended
}

// upConn is a connection for one request: exactly one of its fields is set. For h2 a slot is reserved.
type upConn struct {
	h1 *h1conn
	h2 *h2conn
}

// idleConn takes a connection that is there, if one is good enough.
func (p *partition) idleConn(write bool) upConn {
	rest := idleRead
	if write {
		rest = idleWrite
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = time.Now()
	for i := len(p.h2) - 1; i >= 0; i-- {
		if cc := p.h2[i]; cc.Err() != nil {
			p.h2 = append(p.h2[:i], p.h2[i+1:]...)
		} else if cc.Reserve() == nil {
			cc.uses++
			return upConn{h2: cc}
		}
	}
	for len(p.idle) > 0 {
		c := p.idle[len(p.idle)-1]
		age := p.used.Sub(c.since)
		if age > rest && age <= c.rest {
			break // good enough for a read; the others have rested longer
		}
		p.idle = p.idle[:len(p.idle)-1]
		if age <= c.rest && c.alive() {
			p.busy++
			return upConn{h1: c}
		}
		_ = c.Close()
	}
	return upConn{}
}

// dial makes a connection. Nothing has been written to it.
func (p *partition) dial(ctx context.Context) (upConn, error) {
	p.mu.Lock()
	alpn := []string{"http/1.1"}
	switch {
	case p.h2only:
		alpn = []string{"h2"}
	case p.busy >= p.h2After: // so many at once: streams of one connection cost less than handshakes
		alpn = []string{"h2", "http/1.1"}
	}
	p.busy++
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	u, err := p.connect(ctx, alpn)
	if err != nil || u.h1 == nil {
		p.mu.Lock()
		p.busy--
		p.mu.Unlock()
	}
	return u, err
}

func (p *partition) connect(ctx context.Context, alpn []string) (upConn, error) {
	to := p.key.to
	if p.key.pin.IsValid() {
		host, err := guard.ParseHost(p.key.pin.Addr().String())
		if err != nil {
			return upConn{}, err
		}
		to.Host = host
	}
	raw, err := p.dialer.Dial(ctx, to, p.permits)
	if err != nil {
		return upConn{}, err
	}
	if p.tls == nil {
		if a, ok := raw.RemoteAddr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
			_ = raw.Close()
			return upConn{}, fmt.Errorf("plain http beyond this machine: %w", guard.ErrRefused)
		}
		return upConn{h1: newH1(raw, raw)}, nil
	}
	cfg := p.tls.Clone()
	cfg.NextProtos = alpn
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		if alpn[0] != "h2" && alert(err) == "tls: no application protocol" {
			p.mu.Lock()
			p.h2only = true
			p.mu.Unlock()
			return p.connect(ctx, []string{"h2"})
		}
		return upConn{}, fmt.Errorf("TLS with %s: %w", p.key.to, err)
	}
	if c.ConnectionState().NegotiatedProtocol != "h2" {
		return upConn{h1: newH1(c, raw)}, nil
	}
	cc, err := newH2(ctx, c, p.key.to.String())
	if err != nil {
		_ = c.Close()
		return upConn{}, fmt.Errorf("HTTP/2 with %s: %w", p.key.to, err)
	}
	if err := cc.Reserve(); err != nil {
		_ = cc.Close()
		return upConn{}, fmt.Errorf("HTTP/2 with %s: %w", p.key.to, err)
	}
	h := &h2conn{ClientConn: cc, uses: 1}
	p.mu.Lock()
	p.h2 = append(p.h2, h)
	p.mu.Unlock()
	return upConn{h2: h}, nil
}

// alert is the text of the alert that the server ended a handshake with, as crypto/tls words it; "" is none.
func alert(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return op.Err.Error()
	}
	return ""
}

// newH2 speaks HTTP/2 on a connection that is made already. http.ClientConn never repeats a request.
func newH2(ctx context.Context, c *tls.Conn, address string) (*http.ClientConn, error) {
	t := &http.Transport{
		DialTLSContext:         func(context.Context, string, string) (net.Conn, error) { return c, nil },
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second},
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHead,
	}
	t.Protocols.SetHTTP2(true)
	return t.NewClientConn(ctx, "https", address)
}

// done ends a request's use of an HTTP/2 connection. Where its answer was given up, no other request gets the connection:
// the server may be sending without end what is no answer (CONTINUATION frames, for one), and that stops only when the
// connection is closed.
func (p *partition) done(c *h2conn, gaveUp bool) {
	p.mu.Lock()
	c.uses--
	if gaveUp {
		c.leave = true
		p.h2 = slices.DeleteFunc(p.h2, func(x *h2conn) bool { return x == c })
	}
	over := c.leave && c.uses == 0
	p.mu.Unlock()
	if over {
		_ = c.Close()
	}
}

// put gives an HTTP/1.1 connection back, or closes it.
func (p *partition) put(c *h1conn, reusable bool) {
	p.mu.Lock()
	p.busy--
	if reusable && !p.gone && len(p.idle) < maxIdle {
		c.since = time.Now()
		p.idle = append(p.idle, c)
		c = nil
	}
	p.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

// prune closes what has rested too long and says whether the partition is of no more use.
func (p *partition) prune(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.used) > keepForms {
		p.scrub, p.forms = nil, nil
	}
	kept := p.idle[:0]
	for _, c := range p.idle {
		if age := now.Sub(c.since); age > idleRead || age > c.rest {
			_ = c.Close()
		} else {
			kept = append(kept, c)
		}
	}
	clear(p.idle[len(kept):])
	p.idle = kept
	if now.Sub(p.used) < idlePart || !p.resting() {
		return false
	}
	p.close()
	return true
}

// resting says that no request uses the partition. Precondition: p.mu is held.
func (p *partition) resting() bool {
	for _, cc := range p.h2 {
		if cc.uses > 0 {
			return false
		}
	}
	return p.busy == 0
}

// close ends every connection that rests. Precondition: p.mu is held.
func (p *partition) close() {
	for _, c := range p.idle {
		_ = c.Close()
	}
	for _, cc := range p.h2 {
		_ = cc.Close()
	}
	p.idle, p.h2, p.scrub, p.forms, p.gone = nil, nil, nil, nil, true
}

// pools is all partitions.
type pools struct {
	dialer  *guard.Dialer
	h2After int

	mu    sync.Mutex // guards parts
	parts map[partKey]*partition
}

func (ps *pools) get(key partKey, permits []netip.AddrPort) (*partition, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.parts[key]; p != nil {
		p.mu.Lock()
		p.used = time.Now()
		p.mu.Unlock()
		return p, nil
	}
	if len(ps.parts) >= maxPartition && !ps.evict() {
		return nil, errors.New("too many accounts and hosts at once")
	}
	p, err := newPartition(key, permits, ps.dialer, ps.h2After)
	if err != nil {
		return nil, err
	}
	p.used = time.Now()
	ps.parts[key] = p
	return p, nil
}

// evict drops the partition that was used the longest ago of those that rest, so that one vendor with many names cannot
// keep the others out. Precondition: ps.mu is held.
func (ps *pools) evict() bool {
	var oldest *partition
	for _, p := range ps.parts {
		p.mu.Lock()
		if p.resting() && (oldest == nil || p.used.Before(oldest.used)) {
			oldest = p
		}
		p.mu.Unlock()
	}
	if oldest == nil {
		return false
	}
	oldest.mu.Lock()
	oldest.close()
	oldest.mu.Unlock()
	delete(ps.parts, oldest.key)
	return true
}

func (ps *pools) prune(now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for k, p := range ps.parts {
		if p.prune(now) {
			delete(ps.parts, k)
		}
	}
}

func (ps *pools) close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.parts {
		p.mu.Lock()
		p.close()
		p.mu.Unlock()
	}
}
