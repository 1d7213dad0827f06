// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"golang.org/x/sys/unix"
)

// Bounds of the connections to servers of intercepted sites. One that changes something gets a connection that was in use a
// moment ago, or a new one: servers end idle ones without a word, and a write that meets that moment would have an unknown end.
const (
	maxIdle       = 64               // connections kept for one key
	maxKeys       = 512              // keys kept
	idleRead      = 90 * time.Second // longest rest of a connection that a read may get
	idleWrite     = 2 * time.Second  // and one that a write may get
	keyTime       = 10 * time.Minute // a key nobody used for so long is dropped
	dialTime      = 20 * time.Second // look-up, connect and handshake together
	maxAnswerHead = 256 << 10        // bytes of an answer's head
	speaksTime    = time.Hour        // that a server is believed to speak what it spoke
	maxSpeaks     = 4096
	// What of answers over HTTP/2 waits here for clients that do not read: of a request, and of all over one connection to a server.
	// The first comes once in a round trip, so it bounds how fast a download is; the second is so much more that few unread ones do
	// not hold up the others.
	answerWindow  = 1 << 20
	answersWindow = 32 << 20
	protocolH1    = "http/1.1"
	protocolH2    = "h2"
	sessionsKept  = 16 // TLS sessions of a key
)

// poolKey separates connections: by whom they reach, by every setting that decides that, and by the credential that went over
// them. Neither they nor their TLS sessions are shared across it.
type poolKey struct {
	to         guard.Authority
	clear      bool
	account    string // of authd; empty without a credential
	generation int64
	ca         [sha256.Size]byte // of the PEM; zero is the system's roots
	permits    string
}

// server is one key's connections.
type server struct {
	key     poolKey
	permits []netip.AddrPort
	tls     *tls.Config
	dialer  *guard.Dialer
	feigns  atomic.Bool // an answer of it said that it was messages, and was not

	mu   sync.Mutex // guards what follows
	idle []*upstream
	h2   []*streams
	busy int
	used time.Time
	gone bool
}

// upstream is an HTTP/1.1 connection to a server. One request uses it at a time.
type upstream struct {
	net.Conn
	sock    *net.TCPConn // below TLS
	src     source
	since   time.Time // when it came to rest
	carried bool      // a request went over it
}

// streams is an HTTP/2 one.
type streams struct {
	*http.ClientConn
	uses    int // guarded by its server's mu
	leave   bool
	carried bool
}

// servers is all of them.
type servers struct {
	mu     sync.Mutex // guards what follows
	list   map[poolKey]*server
	speaks map[guard.Authority]spoke
}

// spoke is what a server agreed to last.
type spoke struct {
	h2   bool
	when time.Time
}

var errFull = errors.New("connections to more servers than a cell may have")

// server gives a key's connections. ca is PEM, nil for the roots of all.
func (s *Server) server(key poolKey, permits []netip.AddrPort, ca []byte) (*server, error) {
	return s.servers.of(key, permits, ca, s.Dialer, s.Roots)
}

func (p *servers) of(key poolKey, permits []netip.AddrPort, ca []byte, dialer *guard.Dialer, roots *x509.CertPool) (*server, error) {
	if len(ca) > 0 {
		key.ca = sha256.Sum256(ca)
	}
	var all []string
	for _, a := range permits {
		all = append(all, a.String())
	}
	slices.Sort(all)
	key.permits = strings.Join(all, " ")
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.list[key]; s != nil {
		s.mu.Lock()
		s.used = time.Now()
		s.mu.Unlock()
		return s, nil
	}
	if len(p.list) >= maxKeys && !p.evict() {
		return nil, errFull
	}
	s := &server{key: key, permits: permits, dialer: dialer, used: time.Now()}
	if !key.clear {
		s.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: key.to.Host.String(), RootCAs: roots,
			ClientSessionCache: tls.NewLRUClientSessionCache(sessionsKept)}
		if len(ca) > 0 {
			s.tls.RootCAs = x509.NewCertPool()
			if !s.tls.RootCAs.AppendCertsFromPEM(ca) {
				return nil, errors.New("read the account's CA: no certificate in it")
			}
		}
	}
	if p.list == nil {
		p.list = map[poolKey]*server{}
	}
	p.list[key] = s
	return s, nil
}

// evict drops the key that rests the longest. Precondition: p.mu is held.
func (p *servers) evict() bool {
	var oldest *server
	for _, s := range p.list {
		s.mu.Lock()
		if s.resting() && (oldest == nil || s.used.Before(oldest.used)) {
			oldest = s
		}
		s.mu.Unlock()
	}
	if oldest == nil {
		return false
	}
	oldest.mu.Lock()
	oldest.close()
	oldest.mu.Unlock()
	delete(p.list, oldest.key)
	return true
}

// resting says that no request uses it. Precondition: s.mu is held.
func (s *server) resting() bool {
	for _, c := range s.h2 {
		if c.uses > 0 {
			return false
		}
	}
	return s.busy == 0
}

// close ends what rests. Precondition: s.mu is held.
func (s *server) close() {
	for _, c := range s.idle {
		_ = c.sock.Close()
	}
	for _, c := range s.h2 {
		_ = c.Close()
	}
	s.idle, s.h2, s.gone = nil, nil, true
}

// prune ends what has rested for too long.
func (p *servers) prune(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.list {
		s.mu.Lock()
		s.idle = slices.DeleteFunc(s.idle, func(c *upstream) bool {
			old := now.Sub(c.since) > idleRead
			if old {
				_ = c.sock.Close()
			}
			return old
		})
		if now.Sub(s.used) > keyTime && s.resting() {
			s.close()
			delete(p.list, key)
		}
		s.mu.Unlock()
	}
}

// end closes all, at the end.
func (p *servers) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.list {
		s.mu.Lock()
		s.close()
		s.mu.Unlock()
		delete(p.list, key)
	}
}

// knows says whether a server speaks HTTP/2, where that was learnt lately.
func (p *servers) knows(to guard.Authority) (h2, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.speaks[to]
	return s.h2, ok && time.Since(s.when) < speaksTime
}

func (p *servers) learn(to guard.Authority, h2 bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.speaks == nil || len(p.speaks) >= maxSpeaks {
		p.speaks = map[guard.Authority]spoke{}
	}
	p.speaks[to] = spoke{h2, time.Now()}
}

// forget has the server asked again what it speaks.
func (p *servers) forget(to guard.Authority) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.speaks, to)
}

// probe connects to learn what the server speaks, and keeps the connection for the first request.
func (p *servers) probe(ctx context.Context, s *server) (h2 bool, err error) {
	c, cc, err := s.dial(ctx, protocolH2, protocolH1)
	if err != nil {
		return false, err
	}
	p.learn(s.key.to, cc != nil)
	if cc != nil {
		s.mu.Lock()
		s.h2 = append(s.h2, cc)
		s.mu.Unlock()
		return true, nil
	}
	s.mu.Lock()
	s.busy++
	s.mu.Unlock()
	s.put(c, true)
	return false, nil
}

// dial connects and agrees on a protocol; one of the two connections is not nil.
func (s *server) dial(ctx context.Context, protocols ...string) (*upstream, *streams, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	raw, err := s.dialer.Dial(ctx, s.key.to, s.permits)
	if err != nil {
		return nil, nil, err
	}
	sock, ok := raw.(*net.TCPConn)
	if !ok {
		_ = raw.Close()
		return nil, nil, errors.New("dial: not TCP")
	}
	if s.tls == nil {
		return newUpstream(sock, sock), nil, nil
	}
	cfg := s.tls.Clone()
	cfg.NextProtos = protocols
	c := tls.Client(sock, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = sock.Close()
		return nil, nil, fmt.Errorf("TLS with %s: %w", s.key.to, err)
	}
	if c.ConnectionState().NegotiatedProtocol != protocolH2 {
		return newUpstream(c, sock), nil, nil
	}
	t := &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return c, nil },
		Protocols:      new(http.Protocols),
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, MaxReceiveBufferPerStream: answerWindow,
			MaxReceiveBufferPerConnection: answersWindow},
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHead,
	}
	t.Protocols.SetHTTP2(true)
	cc, err := t.NewClientConn(ctx, "https", s.key.to.String()) // which never repeats a request
	if err != nil {
		_ = sock.Close()
		return nil, nil, fmt.Errorf("HTTP/2 with %s: %w", s.key.to, err)
	}
	return nil, &streams{ClientConn: cc}, nil
}

func newUpstream(c net.Conn, sock *net.TCPConn) *upstream {
	return &upstream{Conn: c, sock: sock, src: source{c: c, most: maxAnswerHead, sock: sock}}
}

// CloseWrite ends our half.
func (c *upstream) CloseWrite() error { return closeWrite(c.Conn) }

// h1 takes a connection that rests, or makes one. fresh, where it is not nil, may have one that no request went over yet.
func (s *server) h1(ctx context.Context, fresh *server, write bool) (*upstream, error) {
	rest := idleRead
	if write {
		rest = idleWrite
	}
	s.mu.Lock()
	s.used = time.Now()
	s.busy++
	for len(s.idle) > 0 {
		c := s.idle[len(s.idle)-1]
		age := s.used.Sub(c.since)
		if age > rest && age <= idleRead {
			break // good enough for a read; the others have rested longer
		}
		s.idle = s.idle[:len(s.idle)-1]
		if age <= rest && c.alive() {
			s.mu.Unlock()
			return c, nil
		}
		_ = c.sock.Close()
	}
	s.mu.Unlock()
	if c := fresh.unused(); c != nil {
		return c, nil
	}
	c, _, err := s.dial(ctx, protocolH1)
	if err != nil {
		s.mu.Lock()
		s.busy--
		s.mu.Unlock()
	}
	return c, err
}

// unused takes one that no request went over. It is its new server's then.
func (s *server) unused() *upstream {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.idle {
		if !c.carried {
			s.idle = slices.Delete(s.idle, i, i+1)
			if c.alive() && time.Since(c.since) < idleWrite {
				return c
			}
			_ = c.sock.Close()
			return nil
		}
	}
	return nil
}

// put gives a connection back, or ends it.
func (s *server) put(c *upstream, good bool) {
	s.mu.Lock()
	s.busy--
	if good && !s.gone && len(s.idle) < maxIdle && len(c.src.b) == 0 {
		c.since = time.Now()
		s.idle = append(s.idle, c)
		c = nil
	}
	s.mu.Unlock()
	if c != nil {
		_ = c.sock.Close()
	}
}

// stream reserves a stream of a connection that is there, or of a new one. Where the server does not speak HTTP/2 any more,
// that is errNoH2.
func (s *server) stream(ctx context.Context, fresh *server) (*streams, error) {
	if c := s.reserve(false); c != nil {
		return c, nil
	}
	if fresh != nil {
		if c := fresh.reserve(true); c != nil {
			s.mu.Lock()
			s.h2 = append(s.h2, c)
			s.mu.Unlock()
			return c, nil
		}
	}
	h1, c, err := s.dial(ctx, protocolH2, protocolH1)
	switch {
	case err != nil:
		return nil, err
	case h1 != nil:
		_ = h1.sock.Close()
		return nil, errNoH2
	}
	if err := c.Reserve(); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("HTTP/2 with %s: %w", s.key.to, err)
	}
	c.uses, c.carried = 1, true
	s.mu.Lock()
	s.h2 = append(s.h2, c)
	s.mu.Unlock()
	return c, nil
}

var errNoH2 = errors.New("the server does not speak HTTP/2 any more")

// reserve takes a stream; of one that nothing went over, with its connection.
func (s *server) reserve(unused bool) *streams {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	for i := len(s.h2) - 1; i >= 0; i-- {
		c := s.h2[i]
		switch {
		case c.Err() != nil:
			s.h2 = slices.Delete(s.h2, i, i+1)
		case unused && c.carried:
		case c.Reserve() == nil:
			if unused {
				s.h2 = slices.Delete(s.h2, i, i+1)
			}
			c.uses++
			c.carried = true
			return c
		}
	}
	return nil
}

// done ends a stream's use. Where its answer was given up, no other request gets the connection: the server may be sending
// without end what is no answer, and that stops only when the connection is closed.
func (s *server) done(c *streams, gaveUp bool) {
	s.mu.Lock()
	c.uses--
	if gaveUp || s.gone {
		c.leave = true
		s.h2 = slices.DeleteFunc(s.h2, func(x *streams) bool { return x == c })
	}
	over := c.leave && c.uses == 0
	s.mu.Unlock()
	if over {
		_ = c.Close()
	}
}

// alive looks, without waiting, whether a resting connection is still open and silent. A byte that came unasked is as bad as an
// end: whose answer would it be? Before the first request it is what TLS says behind its handshake (tickets, RFC 8446 4.6.1).
func (c *upstream) alive() bool {
	if len(c.src.b) > 0 {
		return false
	}
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		alive = errors.Is(err, unix.EAGAIN) || !c.carried && err == nil && n > 0
		return true
	})
	return err == nil && alive
}

// notReached says what is wrong with a server, so that nobody takes it for a fault of the cell's own CA.
func notReached(to guard.Authority, err error) *wire.Error {
	var (
		cert    *tls.CertificateVerificationError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		root    x509.UnknownAuthorityError
		unknown *net.DNSError
		op      *net.OpError
		tooLate net.Error
	)
	refuse := func(code wire.Code, why, next string) *wire.Error {
		return wire.Refuse(code, "the server "+to.Host.String()+" "+why, next)
	}
	const look = "this is about the server's own certificate, not the cell's CA; whoever runs the server has to look at it"
	switch {
	case errors.Is(err, guard.ErrRefused):
		return refuse(wire.CodeNotAllowed, "has an address that must not be reached from here",
			"the person permits a server on a private network with its address: doorward surrogate add "+
				"--permit IP:PORT, or permit of the site in policy.toml")
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return refuse(wire.CodeVendorDown, "does not exist", "")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return refuse(wire.CodeVendorDown, "shows a certificate that has expired or is not valid yet", look)
	case errors.As(err, &name):
		return refuse(wire.CodeVendorDown, "shows a certificate for another name", look)
	case errors.As(err, &root):
		return refuse(wire.CodeVendorDown, "shows a certificate of an authority that this machine does not trust", look)
	case errors.As(err, &cert):
		return refuse(wire.CodeVendorDown, "shows a certificate that is not acceptable", look)
	case errors.As(err, &op) && op.Op == "remote error", errors.Is(err, syscall.ECONNRESET) && strings.Contains(err.Error(), "TLS with"):
		return refuse(wire.CodeVendorDown, "refuses interception: it ended the TLS handshake with this machine",
			"have the person let the site through unread, without a surrogate")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &tooLate) && tooLate.Timeout():
		return refuse(wire.CodeVendorDown, "did not answer in time", "try again later")
	}
	return refuse(wire.CodeVendorDown, "cannot be reached", "try again later")
}
