// SPDX-License-Identifier: Apache-2.0

// Package front is how page and approvals stand before strangers: HTTP/1.1 and 2, and bounds on everything that a stranger could
// hold on to. Whoever reaches a port may be anybody; what an attacker can do here is use up the connections of one network address,
// and read what is the same for all.
package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounds. A tunnel's people all come from 127.0.0.1, so one address has room for several browsers.
const (
	maxConns      = 256
	maxOfAddress  = 32
	maxStreams    = 8 // of one HTTP/2 connection, at once
	maxHeader     = 16 << 10
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second // head and body
	writeTimeout  = time.Minute      // from the request's head to the answer's end
	idleTimeout   = 2 * time.Minute
	pingAfter     = 30 * time.Second // of silence on HTTP/2: a phone that went away says nothing
	lastWords     = 3 * time.Second  // for what is being answered when the daemon stops
)

// Server serves a handler to whoever connects.
type Server struct {
	Listener net.Listener
	TLS      *tls.Config // nil without TLS, or where somebody else ended it; HTTP/2 is then known by how it begins
	Handler  http.Handler
	Log      *slog.Logger
}

// Serve accepts until ctx ends, and with it the contexts of its handlers. It is a task for daemon.Process.Run.
func (s *Server) Serve(ctx context.Context) error {
	srv := &http.Server{
		Handler:                      s.Handler,
		ReadHeaderTimeout:            headerTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(faults{s.Log}, "", 0),
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter},
		Protocols:                    new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	serve := func() error { return srv.Serve(s.Listener) }
	if s.TLS != nil {
		srv.Protocols.SetHTTP2(true)
		srv.TLSConfig = s.TLS
		serve = func() error { return srv.ServeTLS(s.Listener, "", "") }
	} else {
		srv.Protocols.SetUnencryptedHTTP2(true)
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		if srv.Shutdown(last) != nil {
			_ = srv.Close()
		}
	})
	defer stop()
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		_ = srv.Close()
		return fmt.Errorf("serve %s: %w", s.Listener.Addr(), err)
	}
	<-over // nothing else ends it in that way
	return nil
}

// Safe sets what every answer has, with the policy of its content.
func Safe(h http.Header, policy string) {
	for k, v := range map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		h.Set(k, v)
	}
}

// faults passes on what of net/http's log is ours to repair. The rest, such as each failed handshake, strangers cause at will.
type faults struct{ log *slog.Logger }

func (f faults) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http: panic")) || bytes.HasPrefix(line, []byte("http: Accept error")) {
		f.log.Error("net/http complains", "err", string(line))
	}
	return len(line), nil
}

// Bounded closes connections beyond 256, and beyond 32 of one address, before a byte of them is read.
func Bounded(ln net.Listener) net.Listener { return &bounded{Listener: ln, of: map[netip.Prefix]int{}} }

type bounded struct {
	net.Listener
	mu  sync.Mutex // guards what follows
	all int
	of  map[netip.Prefix]int
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who := network(c.RemoteAddr())
		if b.admit(who) {
			return &conn{Conn: c, done: sync.OnceFunc(func() { b.leave(who) })}, nil
		}
		_ = c.Close()
	}
}

func (b *bounded) admit(who netip.Prefix) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= maxConns || b.of[who] >= maxOfAddress {
		return false
	}
	b.all++
	b.of[who]++
	return true
}

func (b *bounded) leave(who netip.Prefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.of[who]--; b.of[who] == 0 {
		delete(b.of, who)
	}
}

// network is what counts as one address: with IPv6 the /64, all of which one host may use.
func network(a net.Addr) netip.Prefix {
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

type conn struct {
	net.Conn
	done func()
}

// CloseWrite is that of TCP: what is still to be read keeps the end of an answer from being lost to a reset.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c *conn) Close() error {
	c.done()
	return c.Conn.Close()
}
