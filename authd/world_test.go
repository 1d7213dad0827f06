// SPDX-License-Identifier: Apache-2.0

package authd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/authd/grants"
	"github.com/doorward/doorward/authd/store"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

const token = "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"

var (
	sentinelID = peer.Identity{Kind: peer.Unit, Unit: "doorward-sentinel.service", Name: "sentinel"}
	egressID   = peer.Identity{Kind: peer.Unit, Unit: "doorward-egress.service", Name: "egress"}
	githubID   = peer.Identity{Kind: peer.Unit, Unit: "doorward-worker@github.service", Name: "github", Worker: true}
	davID      = peer.Identity{Kind: peer.Unit, Unit: "doorward-worker@dav.service", Name: "dav", Worker: true}
	cellID     = peer.Identity{Kind: peer.Cell, Unit: "doorward-cell@work.service", Name: "work", Session: "run-1"}
	personID   = peer.Identity{Kind: peer.Person, UID: 1000}
)

// world is an authd on real sockets. Only who calls is the test's word: proving that is package peer's, and the
// scenario tests try it with the kernel.
type world struct {
	t      testing.TB
	dir    string // of the store
	run    string // of the sockets
	authd  *Authd
	log    *lockedBuffer
	as     *pretender
	stop   context.CancelFunc
	ended  chan struct{}
	ahead  atomic.Int64 // nanoseconds that authd's wall clock is set forward
	mu     sync.Mutex   // guards fatals
	fatals []error
}

// pretender names each caller as the test last said.
type pretender struct {
	dial sync.Mutex // held from saying who until the connection stands
	mu   sync.Mutex
	id   peer.Identity
	seen int
}

func (p *pretender) Identify(net.Conn) (peer.Identity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	if p.id == (peer.Identity{}) {
		return peer.Identity{}, peer.ErrUnknown
	}
	return p.id, nil
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs an authd with an open store that holds the account "work" of github and "cal" of dav.
func start(t testing.TB) *world {
	w := at(t, filepath.Join(t.TempDir(), "store"))
	for _, account := range []struct {
		set    store.Settings
		secret string
	}{
		{githubAccount("work"), token}, {davAccount("cal"), "correct horse battery"},
	} {
		if err := w.authd.store.Add(account.set, []byte(account.secret), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func githubAccount(name string) store.Settings {
	return store.Settings{
		Name: name, Vendor: "github", Workers: []string{"github"}, Owner: "octocat",
		Base:      wire.Base{Scheme: "https", Host: "api.github.com", Port: 443},
		Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "},
	}
}

func davAccount(name string) store.Settings {
	return store.Settings{
		Name: name, Vendor: "dav", Workers: []string{"dav"},
		Base:      wire.Base{Scheme: "https", Host: "dav.example.org", Port: 443, Path: "/cal"},
		Placement: wire.Placement{Kind: "basic", User: "alice"},
	}
}

// at runs an authd on the store in dir, which it unlocks.
func at(t testing.TB, dir string) *world {
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.UnlockCredential(bytes.Repeat([]byte{7}, store.RootSize)); err != nil {
		t.Fatal(err)
	}
	return on(t, dir, s)
}

func on(t testing.TB, dir string, s *store.Store) *world {
	w := &world{t: t, dir: dir, run: t.TempDir(), log: &lockedBuffer{}, as: &pretender{}, ended: make(chan struct{})}
	log := slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	w.authd, err = New(s, log, func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fatals = append(w.fatals, err)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.authd.clock = func() (grants.Now, error) {
		now, err := clock()
		now.Wall = now.Wall.Add(time.Duration(w.ahead.Load()))
		return now, err
	}
	servers, err := w.authd.servers(func(name string) (*peer.Listener, error) {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.path(name), Net: "unix"})
		if err != nil {
			return nil, err
		}
		return peer.NewListener(ln, w.as, nil), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for _, server := range servers {
		tasks.Go(func() {
			if err := server.Serve(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for _, task := range []func(context.Context) error{w.authd.Sweep, w.authd.Report} {
		tasks.Go(func() {
			if err := task(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	w.stop = func() {
		cancel()
		tasks.Wait()
		s.Close()
	}
	w.stop = sync.OnceFunc(w.stop)
	t.Cleanup(w.stop)
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.run, name) }

// dial connects to a socket as who.
func (w *world) dial(name string, who peer.Identity, pushed ...daemon.Verb) *daemon.Link {
	w.t.Helper()
	l, err := w.try(name, who, pushed...)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) try(name string, who peer.Identity, pushed ...daemon.Verb) (*daemon.Link, error) {
	w.as.dial.Lock()
	defer w.as.dial.Unlock()
	w.as.mu.Lock()
	w.as.id = who
	w.as.mu.Unlock()
	c := &daemon.Client{Path: w.path(name), Name: name, Log: slog.New(slog.DiscardHandler), Pushed: pushed}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := c.Link(ctx)
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(l.Close)
	return l, nil
}

// plain connects as one who is not greeted: a cell or a person.
func (w *world) plain(name string, who peer.Identity) *wire.Conn {
	w.t.Helper()
	w.as.dial.Lock()
	defer w.as.dial.Unlock()
	w.as.mu.Lock()
	w.as.id = who
	seen := w.as.seen
	w.as.mu.Unlock()
	c, err := wire.Dial(w.path(name), time.Minute)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	eventually(w.t, func() bool {
		w.as.mu.Lock()
		defer w.as.mu.Unlock()
		return w.as.seen > seen
	})
	return c
}

func eventually(t testing.TB, is func() bool) {
	t.Helper()
	for range 60000 {
		if is() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("not within a minute")
}

// sentinel is a sentinel that writes down what authd tells it.
type sentinel struct {
	*daemon.Link
	w        *world
	accounts chan wire.AccountsReq
	released chan wire.ReleasedReq
	refused  chan wire.RefusedReq
	deaf     chan struct{} // closed: released is answered
}

// sentinel connects one and waits for its accounts.
func (w *world) sentinel() *sentinel {
	w.t.Helper()
	s := w.connectSentinel(true)
	s.heard()
	return s
}

func (w *world) connectSentinel(answers bool) *sentinel {
	w.t.Helper()
	s := &sentinel{
		w: w, accounts: make(chan wire.AccountsReq, 64), released: make(chan wire.ReleasedReq, 1<<16),
		refused: make(chan wire.RefusedReq, 1024), deaf: make(chan struct{}),
	}
	if answers {
		close(s.deaf)
	}
	s.Link = w.dial("authd-sentinel", sentinelID,
		daemon.Pushed("accounts", func(_ context.Context, _ *daemon.Call, r *wire.AccountsReq) (*wire.Empty, error) {
			s.accounts <- *r
			return &wire.Empty{}, nil
		}),
		daemon.Pushed("released", func(ctx context.Context, _ *daemon.Call, r *wire.ReleasedReq) (*wire.Empty, error) {
			s.released <- *r
			select {
			case <-s.deaf:
				return &wire.Empty{}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}),
		daemon.Pushed("refused", func(_ context.Context, _ *daemon.Call, r *wire.RefusedReq) (*wire.Empty, error) {
			s.refused <- *r
			return &wire.Empty{}, nil
		}))
	return s
}

// heard is the next accounts message.
func (s *sentinel) heard() wire.AccountsReq {
	s.w.t.Helper()
	return receive(s.w.t, s.accounts)
}

func receive[T any](t testing.TB, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(5 * time.Second):
		t.Fatal("nothing came in a minute")
		panic("unreachable")
	}
}

// ask is Call with the answer as its result.
func ask[Resp any](on asker, verb string, req any) (Resp, error) {
	var resp Resp
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := on.Call(ctx, verb, req, &resp)
	return resp, err
}

type asker interface {
	Call(ctx context.Context, verb string, req, resp any) error
}

// person is one at a terminal.
type person struct{ *wire.Conn }

func (p person) Call(_ context.Context, verb string, req, resp any) error {
	_, err := p.Conn.Call(verb, req, resp)
	return err
}

func (w *world) person() person {
	w.t.Helper()
	return person{w.plain("authd-admin", personID)}
}

func code(err error) wire.Code {
	var refusal *wire.Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	if err != nil {
		return wire.Code(fmt.Sprintf("(%v)", err))
	}
	return ""
}

// grantFor is a grant for one call to the account "work", as it is now.
func (w *world) grantFor(id string) wire.GrantReq {
	w.t.Helper()
	account, ok := w.authd.store.Account("work")
	if !ok {
		w.t.Fatal("no account")
	}
	return wire.GrantReq{
		Grant: "grant-0123456789-" + id, Call: "call-" + id, Worker: "github", Cell: "work", Session: "run-1",
		Frame: wire.Sum([]byte(id)), Account: "work", Generation: account.Generation, Digest: account.Digest,
		Unix: time.Now().Add(time.Minute).Unix(), Mark: "mark-" + id,
		Entries: []wire.Entry{
			{Name: "call", Scheme: "https", Host: "api.github.com", Port: 443, Method: "GET", Path: "/user", Uses: 2,
				Credential: true},
			{Name: "log", Scheme: "https", Host: "logs.example.org", Port: 443, Method: "GET", Follow: "call", Uses: 1},
		},
	}
}

func borrowOf(g wire.GrantReq) wire.BorrowReq {
	return wire.BorrowReq{Grant: g.Grant, Cell: g.Cell, Session: g.Session, Frame: g.Frame}
}

// borrowed grants, borrows, and returns what resolves.
func (w *world) borrowed(s *sentinel, worker *daemon.Link, id string) wire.ResolveReq {
	w.t.Helper()
	g := w.grantFor(id)
	if _, err := ask[wire.Empty](s.Link, "grant", &g); err != nil {
		w.t.Fatal(err)
	}
	b := borrowOf(g)
	resp, err := ask[wire.BorrowResp](worker, "borrow", &b)
	if err != nil {
		w.t.Fatal(err)
	}
	return wire.ResolveReq{Grant: g.Grant, Surrogate: resp.Surrogate, Worker: "github"}
}
