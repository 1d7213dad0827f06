// SPDX-License-Identifier: Apache-2.0

// Package proxy carries the requests of workers to the vendors' servers and the answers back. It is where the surrogate
// becomes the credential, so a worker that was taken over will try everything here: a request that was not allowed, a
// second request behind an allowed one on the same connection, a redirect that carries the credential elsewhere, an
// answer that shows it. Every request is judged alone, by what authd and sentinel say of its grant; what does not fit
// is refused before a byte leaves. Nothing is ever sent twice.
//
// It holds the credentials of requests in flight, and for a few seconds after the last one the forms of it that answers
// are searched for.
package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

// Bounds. Times are for one request unless they say otherwise.
const (
	resolveTimeout = 10 * time.Second
	headTimeout    = 2 * time.Minute  // from the request's end to the answer's head
	silence        = 10 * time.Minute // between two bytes of an answer's body
	idleWorker     = 5 * time.Minute  // a worker's connection between requests
	workerTimeout  = 30 * time.Second // for a worker to send the rest of what it began, or to take what it asked for
	maxWorkerConns = 512              // of one worker
	defaultMaxIn   = 64 << 20         // bytes of an answer where the entry says nothing
	maxBuffered    = 192 << 20        // bytes of request bodies that wait to be checked, of all requests together
	userAgent      = "doorward/1"
)

// Listener gives proved connections; *peer.Listener is one.
type Listener interface {
	Accept() (*peer.Conn, error)
	Close() error
}

// Server serves workers. Its exported fields are set before Serve.
type Server struct {
	Listener Listener
	// Resolve asks authd what a grant's surrogate stands for. An answer means that the use is counted and recorded.
	Resolve func(context.Context, *wire.ResolveReq) (*wire.ResolveResp, error)
	// Report takes what became of a request; exactly one for each that was resolved. It does not block. Full says that
	// no more can be taken: then nothing is let through.
	Report func(wire.SentReq)
	Full   func() bool
	Dialer *guard.Dialer
	Log    *slog.Logger
	// H2After is how many HTTP/1.1 connections to one server are in use before HTTP/2 is offered too; 0 means 16,
	// negative from the start.
	H2After int

	once    sync.Once
	pools   pools
	live    live
	follow  follow
	waiting atomic.Int64 // bytes of bodies that are read and not yet checked
	mu      sync.Mutex   // guards workers
	workers map[string]int
}

// Serve accepts until ctx ends, and returns when the last request has.
func (s *Server) Serve(ctx context.Context) error {
	s.setUp()
	stop := context.AfterFunc(ctx, func() {
		_ = s.Listener.Close()
		s.live.cut(&wire.GrantRef{All: true})
	})
	defer stop()
	var conns sync.WaitGroup
	conns.Go(func() { s.janitor(ctx) })
	defer s.pools.close()
	defer conns.Wait()
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			var ne net.Error
			if errors.As(err, &ne) && !errors.Is(err, net.ErrClosed) { // out of descriptors
				s.Log.Error("cannot accept", daemon.KeyErr, err.Error())
				time.Sleep(50 * time.Millisecond)
				continue
			}
			return err
		}
		conns.Go(func() { s.serve(ctx, c) })
	}
}

func (s *Server) setUp() {
	s.once.Do(func() {
		if s.H2After == 0 {
			s.H2After = 16
		}
		s.pools = pools{dialer: s.Dialer, h2After: max(0, s.H2After), parts: map[partKey]*partition{}}
		s.live.init()
		s.follow.init()
		s.workers = map[string]int{}
	})
}

// Cut ends live traffic: of a grant, a cell, an account, or all. It is the handler of sentinel's verb.
func (s *Server) Cut(_ context.Context, _ *daemon.Call, ref *wire.GrantRef) (*wire.Empty, error) {
	s.setUp()
	n := s.live.cut(ref)
	s.follow.forget(ref)
	s.Log.Info("cut", daemon.KeyGrant, ref.Grant, daemon.KeyCell, ref.Cell, daemon.KeyAccount, ref.Account,
		"all", ref.All, daemon.KeyCount, n)
	return &wire.Empty{}, nil
}

func (s *Server) janitor(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.live.watch(now)
			s.pools.prune(now)
			s.follow.prune(now)
		}
	}
}

// admit counts a worker's connections.
func (s *Server) admit(worker string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.workers[worker] >= maxWorkerConns {
		return false
	}
	if s.workers[worker] += n; s.workers[worker] == 0 {
		delete(s.workers, worker)
	}
	return true
}
