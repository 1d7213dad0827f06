// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
)

// serveVerb serves one verb on sock until the function it returns is called.
func serveVerb(t *testing.T, sock string, verb daemon.Verb) (stop func()) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock})
	if err != nil {
		t.Fatal(err)
	}
	s := &daemon.Server{Name: "test", Listener: peer.NewListener(ln, peertest.Daemon("egress"), nil),
		Log: slog.New(slog.DiscardHandler), Verbs: []daemon.Verb{verb}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ctx)
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(stop)
	return stop
}

func TestReportsArriveWhateverHappensToSentinel(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "sock")
	log := slog.New(slog.DiscardHandler)
	client := &daemon.Client{Path: sock, Log: log}
	r := NewReporter(client, log, "run1")
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = client.Run(ctx) })
	tasks.Go(func() { _ = r.Run(ctx) })
	defer tasks.Wait()
	defer cancel()

	var mu sync.Mutex
	got := map[uint64]int{}
	var answer error
	verb := daemon.On("sent", peer.Daemon("egress"), func(_ context.Context, _ *daemon.Call,
		s *wire.SentReq) (*wire.Empty, error) {
		mu.Lock()
		defer mu.Unlock()
		got[s.Seq]++
		if s.Instance != "run1" {
			t.Errorf("instance %q", s.Instance)
		}
		return &wire.Empty{}, answer
	})
	settled := func(n int) {
		t.Helper()
		for range 1000 {
			mu.Lock()
			k := len(got)
			mu.Unlock()
			if k == n && r.owed.Load() == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d reports arrived, want %d; %d owed", len(got), n, r.owed.Load())
	}
	report := func(n int) {
		for range n {
			r.Report(wire.SentReq{Grant: "g"})
		}
	}
	report(10) // sentinel is not there yet
	stop := serveVerb(t, sock, verb)
	settled(10)
	report(10)
	settled(20)
	stop()
	report(10)
	mu.Lock()
	answer = wire.Refuse(wire.CodeFull, "the disk is full", "")
	mu.Unlock()
	stop = serveVerb(t, sock, verb)
	time.Sleep(300 * time.Millisecond)
	if r.owed.Load() != 10 {
		t.Errorf("%d owed while sentinel cannot write them down", r.owed.Load())
	}
	mu.Lock()
	answer = nil
	mu.Unlock()
	settled(30)
	mu.Lock()
	for seq := uint64(1); seq <= 20; seq++ {
		if got[seq] != 1 {
			t.Errorf("report %d came %d times", seq, got[seq])
		}
	}
	answer = wire.Refuse(wire.CodeNotFound, "no such grant", "") // a refusal that stays is not asked again
	mu.Unlock()
	report(1)
	settled(31)
	stop()
	if r.Full() {
		t.Error("full")
	}
	for range reportFull { // nonsense alone does not fill it
		r.Report(wire.SentReq{})
	}
	if r.Full() || r.owed.Load() > reportFull/4 {
		t.Errorf("%d owed for requests without a grant", r.owed.Load())
	}
	report(reportFull)
	if !r.Full() {
		t.Error("not full")
	}
}

func TestResolverAsksOnceAndSaysWhatItKnows(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "sock")
	r := &Resolver{Path: sock}
	ask := func() (*wire.ResolveResp, error) {
		return r.Resolve(context.Background(), &wire.ResolveReq{Grant: "g", Worker: "vendora", Entry: 1})
	}
	var refusal *wire.Error
	if resp, err := ask(); resp != nil || !errors.As(err, &refusal) || refusal.Code != wire.CodeUnavailable ||
		errors.Is(err, daemon.ErrSent) {
		t.Errorf("without authd: %v, %v", resp, err)
	}
	var mu sync.Mutex
	asked := 0
	hang := make(chan struct{})
	verb := daemon.On("resolve", peer.Daemon("egress"), func(ctx context.Context, _ *daemon.Call,
		req *wire.ResolveReq) (*wire.ResolveResp, error) {
		mu.Lock()
		asked++
		mu.Unlock()
		switch req.Grant {
		case "bad":
			return nil, wire.Refuse(wire.CodeBadGrant, "no", "")
		case "hang":
			close(hang)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &wire.ResolveResp{Call: req.Grant, Entry: wire.Entry{Name: req.Worker}}, nil
	})
	stop := serveVerb(t, sock, verb)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if resp, err := ask(); err != nil || resp.Call != "g" || resp.Entry.Name != "vendora" {
				t.Errorf("%+v, %v", resp, err)
			}
		})
	}
	wg.Wait()
	if n := len(r.idle); n == 0 || n > maxResolvers {
		t.Errorf("%d connections are kept", n)
	}
	if _, err := r.Resolve(t.Context(), &wire.ResolveReq{Grant: "bad"}); !errors.As(err, &refusal) ||
		refusal.Code != wire.CodeBadGrant ||
		errors.Is(err, daemon.ErrSent) {
		t.Errorf("refused: %v", err)
	}
	// authd goes in the middle of a question: it may have counted.
	stopped := make(chan struct{})
	go func(stop func()) { <-hang; stop(); close(stopped) }(stop)
	if _, err := r.Resolve(t.Context(), &wire.ResolveReq{Grant: "hang"}); !errors.As(err, &refusal) ||
		refusal.Code != wire.CodeUnavailable ||
		!errors.Is(err, daemon.ErrSent) {
		t.Errorf("gone midway: %v", err)
	}
	if len(r.idle) != 0 {
		t.Errorf("%d connections to an authd that is gone are kept", len(r.idle))
	}
	<-stopped
	count := func() int { mu.Lock(); defer mu.Unlock(); return asked }
	before := count()
	if _, err := ask(); err == nil || count() != before {
		t.Errorf("after it has gone: %v", err)
	}
	// Another authd: kept connections to the old one are not used.
	stop = serveVerb(t, sock, verb)
	if _, err := ask(); err != nil {
		t.Fatal(err)
	}
	stop()
	serveVerb(t, sock, verb)
	time.Sleep(2 * justNow)
	if _, err := ask(); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
