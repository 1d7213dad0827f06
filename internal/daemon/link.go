// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// ErrSent is wrapped beside a CodeUnavailable when the request had left before the connection ended or the caller gave
// up: it may have been done.
var ErrSent = errors.New("the request had been sent and was not answered")

// Link is one connection, on which both ends may ask. It is safe for concurrent use.
type Link struct {
	// Peer is the other end, where it dialled; nobody where this end did.
	Peer peer.Identity

	name  string // of the other end or socket, for messages
	log   *slog.Logger
	conn  *wire.Conn
	t     *transport
	verbs map[string]*Verb
	slots chan struct{} // one for each handler that runs
	// shared, which may be nil, is slots for all connections of the caller.
	shared chan struct{}
	ended  chan struct{} // closed when the link is over
	fault  func(Fault)   // told of what the other end did wrong; may be nil

	wmu sync.Mutex // held while a frame is written

	mu      sync.Mutex // guards what follows
	last    uint64
	pending map[uint64]chan answer
	over    bool
}

type answer struct {
	m   *wire.Msg
	fds []int
}

func newLink(uc *net.UnixConn, name string, log *slog.Logger, verbs map[string]*Verb, concurrent int) *Link {
	t := newTransport(uc)
	l := &Link{
		name: name, log: log, conn: wire.NewConn(t), t: t, verbs: verbs, slots: make(chan struct{}, concurrent),
		ended: make(chan struct{}), pending: map[uint64]chan answer{},
	}
	t.busy = l.busy
	return l
}

func (l *Link) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// busy says whether an answer is owed, by either end.
func (l *Link) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.slots) > 0 || len(l.pending) > 0
}

// Done is closed when the link is over.
func (l *Link) Done() <-chan struct{} { return l.ended }

// Call asks the other end and waits for the answer, which it decodes into resp. A refusal is a *wire.Error. When the
// link ends or ctx does, the error is a *wire.Error with CodeUnavailable that wraps ErrSent too.
func (l *Link) Call(ctx context.Context, verb string, req, resp any) error {
	files, err := l.Exchange(ctx, verb, req, resp)
	closeFiles(files)
	return err
}

// Exchange is Call with descriptors: files are sent and stay the caller's; those returned came with the answer and are
// the caller's too.
func (l *Link) Exchange(ctx context.Context, verb string, req, resp any, files ...*os.File) ([]*os.File, error) {
	p, err := l.Send(verb, req, files...)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx, resp)
}

// Pending is a request whose answer has not been taken.
type Pending struct {
	l    *Link
	verb string
	id   uint64
	ch   chan answer
}

// Send writes a request. When it returns without error, the request stands on the link before everything that is
// written afterwards. Wait must be called, or Drop.
func (l *Link) Send(verb string, req any, files ...*os.File) (*Pending, error) {
	body, err := wire.Marshal(req)
	if err != nil {
		return nil, err
	}
	p := &Pending{l: l, verb: verb, ch: make(chan answer, 1)}
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return nil, unavailable(l.name)
	}
	l.last++
	p.id = l.last
	l.pending[p.id] = p.ch
	l.mu.Unlock()
	if err := l.write(&wire.Msg{ID: p.id, Verb: verb, Body: body}, files); err != nil {
		p.Drop()
		if errors.Is(err, wire.ErrTooLarge) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w: %w", unavailable(l.name), err, ErrSent)
	}
	return p, nil
}

// Wait waits for the answer and decodes it into resp.
func (p *Pending) Wait(ctx context.Context, resp any) ([]*os.File, error) {
	var a answer
	var ok bool
	select {
	case a, ok = <-p.ch:
	case <-ctx.Done():
		p.Drop()
		return nil, fmt.Errorf("%w: ask %s: %w: %w", unavailable(p.l.name), p.verb, context.Cause(ctx), ErrSent)
	}
	if !ok {
		return nil, fmt.Errorf("%w: ask %s: %w", unavailable(p.l.name), p.verb, ErrSent)
	}
	if a.m.Err != nil {
		closeFDs(a.fds)
		return nil, a.m.Err
	}
	if err := wire.Decode(a.m.Body, resp); err != nil {
		closeFDs(a.fds)
		p.l.abort(Fault{Kind: FaultMalformed, Verb: p.verb, Err: err})
		return nil, fmt.Errorf("read the answer of %s to %s: %w", p.l.name, p.verb, err)
	}
	return newFiles(a.fds), nil
}

// Ready says whether the answer is there, or never will be: Wait then returns at once.
func (p *Pending) Ready() bool {
	select {
	case <-p.l.ended:
		return true
	default:
		return len(p.ch) > 0
	}
}

// Drop gives the answer up.
func (p *Pending) Drop() {
	p.l.mu.Lock()
	delete(p.l.pending, p.id)
	p.l.mu.Unlock()
	select {
	case a, ok := <-p.ch:
		if ok {
			closeFDs(a.fds)
		}
	default:
	}
}

func unavailable(name string) *wire.Error {
	return wire.Refuse(wire.CodeUnavailable, name+" does not answer", "try again in a moment")
}

// write sends one frame. A link that cannot be written to is over.
func (l *Link) write(m *wire.Msg, files []*os.File) error {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	l.wmu.Lock()
	err := l.conn.Write(m, fds...)
	l.wmu.Unlock()
	runtime.KeepAlive(files)
	if err != nil && !errors.Is(err, wire.ErrTooLarge) {
		l.Close()
	}
	return err
}

// Close ends the link; serve then returns.
func (l *Link) Close() { _ = l.t.uc.Close() }

// abort ends the link for what the other end did.
func (l *Link) abort(f Fault) {
	f.Peer = l.Peer
	if l.fault != nil {
		l.fault(f)
	}
	l.Close()
}

// serve reads until the link ends, and returns when every handler has: they may still answer when this end stops, but
// their context is over. The error is nil where the other end closed between frames, or this end did.
func (l *Link) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = l.t.uc.CloseRead() })
	var handlers sync.WaitGroup
	err := l.read(ctx, &handlers)
	stop()
	cancel()
	l.mu.Lock()
	l.over = true
	for id, ch := range l.pending {
		close(ch)
		delete(l.pending, id)
	}
	l.mu.Unlock()
	handlers.Wait()
	_ = l.conn.Close()
	close(l.ended)
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// read takes frames in until one is refused or the connection ends.
func (l *Link) read(ctx context.Context, handlers *sync.WaitGroup) error {
	l.t.mid = true // the version must come in time, and then silence is fine
	if err := l.conn.Meet(); err != nil {
		return l.broken(err)
	}
	for {
		l.t.mid = l.conn.Buffered() > 0 // the next frame has begun, or the next byte begins one
		m, fds, err := l.conn.Read()
		if err != nil {
			return l.broken(err)
		}
		if m.Verb == "" {
			if err := l.answered(m, fds); err != nil {
				l.abort(Fault{Kind: FaultMalformed, Err: err})
				return err
			}
			continue
		}
		v := l.verbs[m.Verb]
		if v == nil || m.ID == 0 || m.Err != nil {
			closeFDs(fds)
			err := fmt.Errorf("asked for a verb that is not in the table: %.40q", m.Verb)
			l.abort(Fault{Kind: FaultUnknownVerb, Err: err})
			return err
		}
		if v.who != nil && !v.who(l.Peer) {
			closeFDs(fds)
			err := fmt.Errorf("%s may not ask %s here", l.Peer, v.Name)
			l.abort(Fault{Kind: FaultNotAllowed, Verb: v.Name, Err: err})
			return err
		}
		if v.ordered {
			if rest := l.begin(ctx, v, m, fds); rest != nil {
				handlers.Go(rest)
			}
			continue
		}
		if err := l.place(ctx); err != nil {
			closeFDs(fds)
			return err
		}
		handlers.Go(func() {
			if rest := l.begin(ctx, v, m, fds); rest != nil {
				rest()
			}
			if l.shared != nil {
				<-l.shared
			}
			<-l.slots
		})
	}
}

// place waits until one more handler may run.
func (l *Link) place(ctx context.Context) error {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.shared == nil {
		return nil
	}
	select {
	case l.shared <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-l.slots
		return ctx.Err()
	}
}

// broken counts what was the other end's fault when reading failed.
func (l *Link) broken(err error) error {
	switch {
	case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrTooLarge), errors.Is(err, wire.ErrVersion):
		l.abort(Fault{Kind: FaultMalformed, Err: err})
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.abort(Fault{Kind: FaultSlow, Err: err})
	}
	return err
}

// answered gives an answer to who waits for it. One that nobody waits for any more is dropped; one to a question that
// was never asked is a fault.
func (l *Link) answered(m *wire.Msg, fds []int) error {
	l.mu.Lock()
	ch := l.pending[m.ID]
	delete(l.pending, m.ID)
	asked := m.ID != 0 && m.ID <= l.last
	if ch != nil {
		ch <- answer{m, fds} // it has room; Drop takes it out under no lock but after the delete
	}
	l.mu.Unlock()
	if ch == nil {
		closeFDs(fds)
		if !asked {
			return fmt.Errorf("%w: an answer to nothing", wire.ErrMalformed)
		}
	}
	return nil
}

// begin runs one handler and writes its answer, or, where the handler left something for later, returns that and the
// answer as one function.
func (l *Link) begin(ctx context.Context, v *Verb, m *wire.Msg, fds []int) (rest func()) {
	c := &Call{Peer: l.Peer, Link: l, Verb: v.Name, Files: newFiles(fds)}
	resp, err := v.handle(ctx, c, m.Body)
	closeFiles(c.Files)
	if err == nil && c.later != nil {
		return func() {
			err := c.later(ctx)
			l.reply(ctx, v, m, c, resp, err)
		}
	}
	l.reply(ctx, v, m, c, resp, err)
	return nil
}

// reply writes the answer of a handler.
func (l *Link) reply(ctx context.Context, v *Verb, m *wire.Msg, c *Call, resp any, err error) {
	defer closeFiles(c.attached)
	out := &wire.Msg{ID: m.ID}
	files := c.attached
	var bad *badBody
	var refusal *wire.Error
	switch {
	case errors.As(err, &bad):
		l.abort(Fault{Kind: FaultMalformed, Verb: v.Name, Err: bad.err})
		return
	case errors.As(err, &refusal) && refusal != nil:
		out.Err, files = refusal, nil
	case err != nil && ctx.Err() != nil:
		return // nobody is there to be told
	case err != nil:
		l.log.Error("a request failed", KeyVerb, v.Name, KeyPeer, l.Peer.String(), KeyErr, err.Error())
		out.Err, files = internal(), nil
	default:
		if out.Body, err = wire.Marshal(resp); err != nil {
			l.log.Error("an answer could not be encoded", KeyVerb, v.Name, KeyErr, err.Error())
			out.Body, out.Err, files = nil, internal(), nil
		}
	}
	err = l.write(out, files)
	if errors.Is(err, wire.ErrTooLarge) {
		l.log.Error("an answer is too large", KeyVerb, v.Name, KeyErr, err.Error())
		_ = l.write(&wire.Msg{ID: m.ID, Err: internal()}, nil)
	}
}

func internal() *wire.Error {
	return wire.Refuse(wire.CodeInternal, "a fault inside Doorward", "the daemon's log has the detail")
}

func newFiles(fds []int) []*os.File {
	if len(fds) == 0 {
		return nil
	}
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), "received")
	}
	return files
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func closeFDs(fds []int) { closeFiles(newFiles(fds)) }

// brake lets through at most 20 events in 10 seconds, so that a stranger cannot flood the log.
type brake struct {
	mu    sync.Mutex
	since time.Time
	n     int
}

func (b *brake) ok() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.since) > 10*time.Second {
		b.since, b.n = now, 0
	}
	b.n++
	return b.n <= 20
}
