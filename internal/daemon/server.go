// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/peer"
)

// FaultKind says what a peer did wrong.
type FaultKind uint8

// Faults. Each ends the connection.
const (
	FaultMalformed   FaultKind = iota // bytes that are no message
	FaultUnknownVerb                  // a verb that is not in the table
	FaultNotAllowed                   // a verb that is another's to ask, or a socket
	FaultSlow                         // a frame that did not begin or end in time
	FaultTooMany                      // more connections than one caller may have
	faultKinds
)

func (k FaultKind) String() string {
	return [...]string{"malformed", "unknown verb", "not allowed", "slow", "too many connections"}[k]
}

// Fault is one connection that was ended for what its peer did.
type Fault struct {
	Kind FaultKind
	Peer peer.Identity
	Verb string // of the table; empty where it never came to one
	Err  error
}

// Server serves one socket by one table.
type Server struct {
	Name     string // FileDescriptorName of the socket
	Listener *peer.Listener
	Log      *slog.Logger
	Verbs    []Verb
	// Concurrent is how many handlers of one connection run at once; 0 is 64. Further frames wait unread.
	Concurrent int
	// PerCaller is how many handlers run at once for one cell or person, over all its connections; 0 is 256. A unit has
	// only the bound of each connection.
	PerCaller int
	// PerPeer is how many connections one caller (a unit, a cell, a person) may have at once; 0 is 256.
	PerPeer int
	// Idle ends a connection on which nothing is asked and nothing pending for so long. 0 is a minute for cells and
	// persons and no bound for units.
	Idle time.Duration
	// OnFault, which may be nil, is told of each fault besides the log, for the record. It must not block.
	OnFault func(Fault)
	// OnLink, which may be nil, is told of each connection before its first frame is read; the server can ask on it.
	// It must not block. Link.Done says when it is over.
	OnLink func(*Link)

	faults [faultKinds]atomic.Uint64
	brake  brake
	mu     sync.Mutex // guards what follows
	count  map[peer.Identity]int
	slots  map[peer.Identity]chan struct{} // of callers that have a connection
}

// Faults counts the connections that were ended for a kind of fault.
func (s *Server) Faults(k FaultKind) uint64 { return s.faults[k].Load() }

// Serve accepts until ctx ends, then waits for the handlers that run; their context is ended too. It is a task for
// Process.Run.
func (s *Server) Serve(ctx context.Context) error {
	verbs, err := table(s.Verbs, false)
	if err != nil {
		return fmt.Errorf("serve %s: %w", s.Name, err)
	}
	if s.Concurrent == 0 {
		s.Concurrent = 64
	}
	if s.PerPeer == 0 {
		s.PerPeer = 256
	}
	if s.PerCaller == 0 {
		s.PerCaller = 256
	}
	s.count, s.slots = map[peer.Identity]int{}, map[peer.Identity]chan struct{}{}
	stop := context.AfterFunc(ctx, func() { _ = s.Listener.Close() })
	defer stop()
	var links sync.WaitGroup
	defer links.Wait()
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if temporary(err) { // out of descriptors: connections that end give some back
				s.Log.Error("cannot accept", KeySocket, s.Name, KeyErr, err.Error())
				time.Sleep(50 * time.Millisecond)
				continue
			}
			return fmt.Errorf("accept on %s: %w", s.Name, err)
		}
		links.Go(func() { s.one(ctx, c, verbs) })
	}
}

func temporary(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && !errors.Is(err, net.ErrClosed)
}

// one serves one connection to its end.
func (s *Server) one(ctx context.Context, c *peer.Conn, verbs map[string]*Verb) {
	defer c.Close()
	who := c.Peer
	who.Session, who.Start = "", 0 // a cell has one allowance
	if !s.admit(who, 1) {
		s.fault(Fault{Kind: FaultTooMany, Peer: c.Peer, Err: fmt.Errorf("more than %d connections", s.PerPeer)})
		return
	}
	defer s.admit(who, -1)
	l := newLink(c.UnixConn, c.Peer.String(), s.Log, verbs, s.Concurrent)
	l.Peer, l.fault = c.Peer, s.fault
	if c.Peer.Kind != peer.Unit {
		l.shared = s.slotsOf(who)
	}
	if !s.anyFor(c.Peer, verbs) {
		// No row is this caller's: say so now rather than after it has sent something.
		s.fault(Fault{Kind: FaultNotAllowed, Peer: c.Peer, Err: fmt.Errorf("%s may ask nothing here", c.Peer)})
		return
	}
	l.t.idle = s.Idle
	if l.t.idle == 0 && c.Peer.Kind != peer.Unit {
		l.t.idle = time.Minute
	}
	if c.Peer.Kind == peer.Unit { // its Client waits for a process to be there
		l.wmu.Lock()
		err := l.conn.Greet()
		l.wmu.Unlock()
		if err != nil {
			return
		}
	}
	if s.OnLink != nil {
		s.OnLink(l)
	}
	if err := l.serve(ctx); err != nil && ctx.Err() == nil && s.brake.ok() {
		s.Log.Warn("a connection ended", KeySocket, s.Name, KeyPeer, c.Peer.String(), KeyReason, err.Error())
	}
}

func (s *Server) anyFor(id peer.Identity, verbs map[string]*Verb) bool {
	for _, v := range verbs {
		if v.who(id) {
			return true
		}
	}
	return len(verbs) == 0 // a socket on which only this end asks
}

func (s *Server) admit(who peer.Identity, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.count[who] >= s.PerPeer {
		return false
	}
	if s.count[who] += n; s.count[who] == 0 {
		delete(s.count, who)
		delete(s.slots, who)
	}
	return true
}

// slotsOf is what the handlers of a caller take a place in. It has a connection, so the place stays.
func (s *Server) slotsOf(who peer.Identity) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[who] == nil {
		s.slots[who] = make(chan struct{}, s.PerCaller)
	}
	return s.slots[who]
}

func (s *Server) fault(f Fault) {
	s.faults[f.Kind].Add(1)
	if s.brake.ok() {
		s.Log.Warn("ended a connection", KeySocket, s.Name, KeyPeer, f.Peer.String(), KeyVerb, f.Verb,
			KeyReason, f.Kind.String(), KeyErr, f.Err.Error())
	}
	if s.OnFault != nil {
		s.OnFault(f)
	}
}
