// SPDX-License-Identifier: Apache-2.0

// Package cell is the way out of one cell. In the cell's network every address is local, and the kernel steers each TCP
// connection to the one listener here; so a connection's local address is what its client wanted. The resolver here gives
// each name an address of its own, and asks nobody: a look-up carries nothing out. What a connection begins with is read,
// bounded in bytes and time, and the names that it says are held against each other. Then sentinel is asked, and what it
// allows is dialled by package guard and carried untouched.
//
// Everything that is read here an attacker in the cell wrote. What it can do is use up what is its own: its names, its
// connections, its bytes. The parsers return nothing on error, and every miss is a refusal; sentinel away, nothing leaves.
// What it cannot be kept from here: whatever is carried untouched goes to the server of the name that was allowed, and that
// server may be one for many names, which TLS tells apart where nobody sees it.
package cell

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/mint"
)

// Bounds of one cell's traffic.
const (
	maxConns  = 2048             // at once
	idleTime  = 30 * time.Minute // without a byte either way ends a connection
	askTime   = 10 * time.Second // that sentinel may take
	idleSweep = 30 * time.Second // between looks for idle ones
	leftSweep = time.Second      // and for those whose client has gone
)

// Server is the way out of one cell. All fields are set before Serve.
type Server struct {
	Cell     string
	Listener *net.TCPListener // in the cell's network
	DNS      *net.UDPConn     // there, port 53 of every address
	Names    *Names
	// Ask asks sentinel; a *wire.Error is a refusal that the cell may read.
	Ask func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error)
	// Where requests are read: Request asks sentinel for one, Resolve has authd put its credential for the surrogate, CA makes the
	// certificates that the cell is shown, and Roots, nil for the system's, are what servers are held to. Without one of the
	// first four no site whose requests have to be read is reached.
	Request func(context.Context, *wire.RequestReq) (*wire.RequestResp, error)
	Resolve func(context.Context, *wire.ResolveReq) (*wire.ResolveResp, error)
	CA      *mint.Authority
	Facts   *Facts
	Roots   *x509.CertPool
	// Opener says who opened an accepted connection; where nobody knows, that is an error, and sentinel is asked without it.
	Opener func(*net.TCPConn) (wire.Task, error)
	// Report tells sentinel what became of a connection that it allowed; Full says that it is too far behind.
	Report func(wire.SentReq)
	Full   func() bool
	Dialer *guard.Dialer
	Log    *slog.Logger

	refused refusals
	budget  budgets
	servers servers
	brake   brake      // of the log
	tells   brake      // of refusals on the record
	mu      sync.Mutex // guards what follows
	live    map[*conn]struct{}
}

// Serve serves the cell until ctx ends; it is a task for Process.Run.
func (s *Server) Serve(ctx context.Context) error {
	s.mu.Lock()
	s.live = map[*conn]struct{}{}
	s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var tasks sync.WaitGroup
	for _, task := range []func(context.Context) error{s.serveUDP, s.sweep,
		func(ctx context.Context) error { return s.accept(ctx, s.Listener) }} {
		tasks.Go(func() {
			if err := task(ctx); err != nil {
				cancel(err)
			}
		})
	}
	<-ctx.Done()
	s.end(func(*conn) bool { return true })
	tasks.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (s *Server) accept(ctx context.Context, ln *net.TCPListener) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		c, err := ln.AcceptTCP()
		var temporary net.Error
		switch {
		case ctx.Err() != nil:
			reset(c)
			return nil
		case err != nil && errors.As(err, &temporary) && !errors.Is(err, net.ErrClosed): // out of descriptors
			s.warn("cannot accept", daemon.KeyErr, err.Error())
			time.Sleep(50 * time.Millisecond)
			continue
		case err != nil:
			return fmt.Errorf("accept the cell's connections: %w", err)
		}
		k := &conn{s: s, down: c, src: source{c: c}}
		if !s.begin(ctx, k) {
			reset(c)
			s.warn("a cell has more connections than it may", daemon.KeyCount, maxConns)
			continue
		}
		conns.Go(k.serve)
	}
}

// begin counts a connection in; it is false where there are too many.
func (s *Server) begin(ctx context.Context, k *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.live) >= maxConns || ctx.Err() != nil {
		return false
	}
	k.ctx, k.cancel = context.WithCancel(ctx)
	k.touch()
	s.live[k] = struct{}{}
	return true
}

// over counts it out.
func (s *Server) over(k *conn) {
	s.mu.Lock()
	delete(s.live, k)
	s.mu.Unlock()
	k.cancel()
}

// end ends the connections that which picks, and says how many.
func (s *Server) end(which func(*conn) bool) int {
	s.mu.Lock()
	var list []*conn
	for k := range s.live {
		if which(k) {
			list = append(list, k)
		}
	}
	s.mu.Unlock()
	for _, k := range list {
		k.cut()
	}
	return len(list)
}

// sweep ends idle connections.
func (s *Server) sweep(ctx context.Context) error {
	tick := time.NewTicker(idleSweep)
	defer tick.Stop()
	look := time.NewTicker(leftSweep)
	defer look.Stop()
	defer s.servers.end()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			s.endIdle(now)
			s.servers.prune(now)
		case <-look.C:
			s.endLeft()
		}
	}
}

// endLeft ends intercepted requests whose client has gone: their servers would go on, with events for one, for nobody.
func (s *Server) endLeft() {
	s.mu.Lock()
	var list []*conn
	for k := range s.live {
		if k.waits.Load() && closed(k.down) {
			list = append(list, k)
		}
	}
	s.mu.Unlock()
	for _, k := range list {
		k.leave()
	}
}

func (s *Server) endIdle(now time.Time) { s.end(func(k *conn) bool { return k.idle(now) > idleTime }) }

// Cut handles verb cut of sentinel: it ends the connections that ref names, those too that are still being decided. A grant
// is the ID or the Under of a ConnectResp; all, or the cell, is every connection.
func (s *Server) Cut(_ context.Context, _ *daemon.Call, ref *wire.GrantRef) (*wire.Empty, error) {
	n := s.end(func(k *conn) bool {
		return ref.All || ref.Cell != "" && ref.Cell == s.Cell || ref.Grant != "" && k.has(ref.Grant)
	})
	s.Log.Info("cut", daemon.KeyCell, s.Cell, daemon.KeyGrant, ref.Grant, "all", ref.All, daemon.KeyCount, n)
	return &wire.Empty{}, nil
}

// refusedHere puts a refusal on the record of which sentinel knows nothing, as far as a flood of them lets it.
func (s *Server) refusedHere(host string, e *wire.Error) {
	if s.tells.ok() {
		s.Report(wire.SentReq{Host: host, Err: e})
	}
}

func (s *Server) warn(msg string, args ...any) {
	if s.brake.ok() {
		s.Log.Warn(msg, append([]any{daemon.KeyCell, s.Cell}, args...)...)
	}
}

// brake lets 20 things through at once, and one more each half second.
type brake struct {
	mu sync.Mutex
	b  bucket
}

func (b *brake) ok() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.most, b.b.every = 20, 500*time.Millisecond
	return b.b.take(time.Now())
}
