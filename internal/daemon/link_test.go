// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

type echoReq struct {
	Text string        `msgpack:"t"`
	Wait time.Duration `msgpack:"w,omitempty"`
}
type echoResp struct {
	Text string `msgpack:"t"`
	From string `msgpack:"f,omitempty"`
}

func echo(ctx context.Context, c *Call, req *echoReq) (*echoResp, error) {
	if req.Wait > 0 {
		select {
		case <-time.After(req.Wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &echoResp{req.Text, c.Peer.String()}, nil
}

func refuse(context.Context, *Call, *echoReq) (*echoResp, error) {
	return nil, wire.Refuse(wire.CodeBadGrant, "no such grant", "")
}

func fail(context.Context, *Call, *echoReq) (*echoResp, error) {
	return nil, errors.New("the password is hunter2")
}

// rig is a server on a socket of its own.
type rig struct {
	*Server
	path string
	stop func()
	log  *strings.Builder
}

func serve(t *testing.T, as peertest.As, verbs []Verb, change ...func(*Server)) *rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{path: path, log: &strings.Builder{}}
	r.Server = &Server{Name: "test", Listener: peer.NewListener(ln, as, nil), Verbs: verbs,
		Log: slog.New(slog.NewTextHandler(&locked{w: r.log}, nil))}
	for _, f := range change {
		f(r.Server)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (r *rig) client(t *testing.T) *Client {
	t.Helper()
	c := &Client{Path: r.path, Name: "echo", Log: r.Log}
	t.Cleanup(c.Close)
	return c
}

func (r *rig) raw(t *testing.T) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ends waits until the server closes c, having said nothing but its version.
func ends(t *testing.T, c *net.UnixConn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the connection did not end: %v", err)
	}
	if len(b) > 16 {
		t.Errorf("the server answered %d bytes", len(b))
	}
}

func frames(t *testing.T, ms ...*wire.Msg) []byte {
	t.Helper()
	var out []byte
	for _, m := range ms {
		b, err := wire.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		out = binary.BigEndian.AppendUint32(out, uint32(len(b)))
		out = append(out, b...)
	}
	return out
}

var worker = peertest.Worker("github")

func table1() []Verb {
	return []Verb{
		On("echo", peer.Workers, echo), On("refuse", peer.Workers, refuse), On("fail", peer.Workers, fail),
		On("others", peer.Cells, echo),
	}
}

func TestACallIsAnswered(t *testing.T) {
	r := serve(t, worker, table1())
	c := r.client(t)
	var resp echoResp
	if err := c.Call(t.Context(), "echo", &echoReq{Text: "x"}, &resp); err != nil {
		t.Fatal(err)
	}
	if resp.Text != "x" || resp.From != "doorward-worker@github.service" {
		t.Errorf("got %+v", resp)
	}
}

func TestCallsArePipelined(t *testing.T) {
	r := serve(t, worker, table1())
	c := r.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	slow := make(chan error, 1)
	l, err := c.Link(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Send("echo", &echoReq{Text: "slow", Wait: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := p.Wait(ctx, &echoResp{})
		slow <- err
	}()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			var resp echoResp
			want := strings.Repeat("x", i)
			if err := c.Call(t.Context(), "echo", &echoReq{Text: want}, &resp); err != nil || resp.Text != want {
				t.Errorf("call %d: %v %v", i, resp.Text, err)
			}
		})
	}
	wg.Wait() // all overtook the slow one
	cancel()
	if err := <-slow; !errors.Is(err, ErrSent) || !isCode(err, wire.CodeUnavailable) {
		t.Errorf("the call that was given up: %v", err)
	}
}

func isCode(err error, code wire.Code) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Code == code
}

func TestRefusalsAndFaultsOfHandlers(t *testing.T) {
	r := serve(t, worker, table1())
	c := r.client(t)
	err := c.Call(t.Context(), "refuse", &echoReq{}, &echoResp{})
	if !isCode(err, wire.CodeBadGrant) || errors.Is(err, ErrSent) {
		t.Errorf("a refusal came as %v", err)
	}
	err = c.Call(t.Context(), "fail", &echoReq{}, &echoResp{})
	if !isCode(err, wire.CodeInternal) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a failure came as %v", err)
	}
	r.stop()
	if !strings.Contains(r.log.String(), "hunter2") {
		t.Error("the failure is not in the log")
	}
}

func TestFilesTravelBothWaysAndNoneIsLeft(t *testing.T) {
	kept := make(chan *os.File, 1)
	files := func(_ context.Context, c *Call, req *echoReq) (*echoResp, error) {
		var out string
		for _, f := range c.Files {
			b, _ := io.ReadAll(io.NewSectionReader(f, 0, 100))
			out += string(b) + ";"
		}
		if req.Text == "keep" {
			kept <- c.Files[0]
			c.Files[0] = nil
		}
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			return nil, err
		}
		if _, err := f.WriteString("back"); err != nil {
			return nil, err
		}
		c.Attach(f)
		if req.Text == "refuse" {
			return nil, wire.Refuse(wire.CodeDenied, "no", "")
		}
		return &echoResp{Text: out}, nil
	}
	r := serve(t, worker, []Verb{On("files", peer.Workers, files)})
	c := r.client(t)
	var mine []*os.File
	for _, s := range []string{"one", "two"} {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
		mine = append(mine, f)
	}
	call := func(text string) (string, []*os.File, error) {
		var resp echoResp
		got, err := c.Exchange(t.Context(), "files", &echoReq{Text: text}, &resp, mine...)
		return resp.Text, got, err
	}
	if _, got, err := call(""); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	} else {
		closeFiles(got)
	}
	before := descriptors(t)
	for range 20 {
		text, got, err := call("")
		if err != nil || text != "one;two;" || len(got) != 1 {
			t.Fatal(text, got, err)
		}
		b, _ := io.ReadAll(io.NewSectionReader(got[0], 0, 100))
		if string(b) != "back" {
			t.Fatalf("got %q back", b)
		}
		closeFiles(got)
		if _, got, err := call("refuse"); len(got) != 0 || !isCode(err, wire.CodeDenied) {
			t.Fatal(got, err)
		}
	}
	text, got, err := call("keep")
	if err != nil || text != "one;two;" {
		t.Fatal(text, err)
	}
	closeFiles(got)
	k := <-kept
	if b, _ := io.ReadAll(io.NewSectionReader(k, 0, 100)); string(b) != "one" {
		t.Errorf("the kept file holds %q", b)
	}
	k.Close()
	settles(t, "descriptors", before, func() int { return descriptors(t) })
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// settles waits until a count is at most what it was.
func settles(t *testing.T, what string, before int, count func() int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.Gosched()
		n := count()
		if n <= before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d before, %d now", what, before, n)
		}
	}
}

// A stranger's bytes end the stranger's connection, are counted, and nothing else happens.
func TestBadBytesEndThatConnectionOnly(t *testing.T) {
	r := serve(t, worker, table1())
	c := r.client(t)
	if err := c.Call(t.Context(), "echo", &echoReq{}, &echoResp{}); err != nil {
		t.Fatal(err)
	}
	body := func(v any) []byte {
		b, err := wire.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	hello := frames(t, &wire.Msg{Hello: wire.Version})
	with := func(ms ...*wire.Msg) []byte { return append(append([]byte{}, hello...), frames(t, ms...)...) }
	for name, tt := range map[string]struct {
		bytes []byte
		kind  FaultKind
	}{
		"no version":          {frames(t, &wire.Msg{ID: 1, Verb: "echo", Body: body(&echoReq{})}), FaultMalformed},
		"another version":     {frames(t, &wire.Msg{Hello: wire.Version + 1}), FaultMalformed},
		"an oversized frame":  {append(append([]byte{}, hello...), 0x7f, 0xff, 0xff, 0xff), FaultMalformed},
		"not messagepack":     {append(append([]byte{}, hello...), 0, 0, 0, 4, 0xc1, 0xc1, 0xc1, 0xc1), FaultMalformed},
		"HTTP":                {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), FaultMalformed},
		"an unknown verb":     {with(&wire.Msg{ID: 1, Verb: "resolve", Body: body(&echoReq{})}), FaultUnknownVerb},
		"a verb of another":   {with(&wire.Msg{ID: 1, Verb: "others", Body: body(&echoReq{})}), FaultNotAllowed},
		"a wrong body":        {with(&wire.Msg{ID: 1, Verb: "echo", Body: body(&wire.CallRef{Call: "x"})}), FaultMalformed},
		"no body":             {with(&wire.Msg{ID: 1, Verb: "echo"}), FaultMalformed},
		"no id":               {with(&wire.Msg{Verb: "echo", Body: body(&echoReq{})}), FaultUnknownVerb},
		"a request and error": {with(&wire.Msg{ID: 1, Verb: "echo", Err: &wire.Error{Code: "x"}}), FaultUnknownVerb},
		"an answer unasked":   {with(&wire.Msg{ID: 7, Body: body(&echoReq{})}), FaultMalformed},
		"an answer to 0":      {with(&wire.Msg{Body: body(&echoReq{})}), FaultMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.Faults(tt.kind)
			raw := r.raw(t)
			if _, err := raw.Write(tt.bytes); err != nil {
				t.Fatal(err)
			}
			ends(t, raw)
			if n := r.Faults(tt.kind); n != before+1 {
				t.Errorf("counted %d times as %s", n-before, tt.kind)
			}
			if err := c.Call(t.Context(), "echo", &echoReq{}, &echoResp{}); err != nil {
				t.Errorf("another connection suffered: %v", err)
			}
		})
	}
}

func TestACallerOfNoRowIsTurnedAwayAtOnce(t *testing.T) {
	var faults atomic.Int64
	r := serve(t, peertest.Person(1000), table1(), func(s *Server) {
		s.OnFault = func(f Fault) {
			if f.Kind == FaultNotAllowed && f.Peer.Kind == peer.Person {
				faults.Add(1)
			}
		}
	})
	ends(t, r.raw(t))
	if faults.Load() != 1 || r.Faults(FaultNotAllowed) != 1 {
		t.Errorf("told %d, counted %d", faults.Load(), r.Faults(FaultNotAllowed))
	}
}

// Descriptors that strangers send along with nonsense are closed.
func TestDescriptorsOfStrangersAreClosed(t *testing.T) {
	r := serve(t, worker, table1())
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := descriptors(t)
	fds := func(n int) []byte {
		out := make([]int, n)
		for i := range out {
			out[i] = int(f.Fd())
		}
		return unix.UnixRights(out...)
	}
	hello := frames(t, &wire.Msg{Hello: wire.Version})
	for _, tt := range []struct {
		name string
		n    int
		b    []byte
	}{
		{"with an unknown verb", 3, append(hello, frames(t, &wire.Msg{ID: 1, Verb: "x", Files: 3})...)},
		{"with a wrong body", 3, append(hello, frames(t, &wire.Msg{ID: 1, Verb: "echo", Files: 3})...)},
		{"unclaimed", 3, hello},
		{"too many", 100, hello},
	} {
		raw := r.raw(t)
		if _, _, err := raw.WriteMsgUnix(tt.b, fds(tt.n), nil); err != nil {
			t.Fatal(tt.name, err)
		}
		raw.CloseWrite()
		ends(t, raw)
		raw.Close()
	}
	settles(t, "descriptors", before, func() int { return descriptors(t) })
}

// A caller may not have more connections than its share, and others are not held up by it.
func TestConnectionsOfOneCallerAreBounded(t *testing.T) {
	r := serve(t, peertest.Cell("work", "payload"), []Verb{On("echo", peer.Cells, echo)},
		func(s *Server) { s.PerPeer = 4 })
	var open []*net.UnixConn
	for range 4 {
		open = append(open, r.raw(t))
	}
	settles(t, "free places", 0, func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return 4 - r.count[peer.Identity(peertest.Cell("work", ""))]
	})
	ends(t, r.raw(t))
	if n := r.Faults(FaultTooMany); n != 1 {
		t.Errorf("counted %d", n)
	}
	for _, c := range open {
		c.Close()
	}
	settles(t, "connections", 0, func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.count)
	})
	c, err := wire.Dial(r.path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Call("echo", &echoReq{Text: "x"}, &echoResp{}); err != nil {
		t.Errorf("after they closed: %v", err)
	}
}

func TestSlowClientsAreCutOff(t *testing.T) {
	r := serve(t, peertest.Cell("work", "payload"), []Verb{On("echo", peer.Cells, echo)},
		func(s *Server) { s.Idle = 50 * time.Millisecond })
	silent := r.raw(t)
	if _, err := silent.Write(frames(t, &wire.Msg{Hello: wire.Version})); err != nil {
		t.Fatal(err)
	}
	ends(t, silent)
	settles(t, "uncounted", 0, func() int { return 1 - int(r.Faults(FaultSlow)) })

	// One whose call takes longer than that is not idle.
	c, err := wire.Dial(r.path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Call("echo", &echoReq{Text: "x", Wait: 300 * time.Millisecond}, &echoResp{}); err != nil {
		t.Errorf("a call longer than the idle bound: %v", err)
	}
}

func TestAFrameThatDoesNotEndIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: waits for the frame's deadline")
	}
	t.Parallel()
	r := serve(t, worker, table1())
	raw := r.raw(t)
	if _, err := raw.Write(append(frames(t, &wire.Msg{Hello: wire.Version}), 0, 0, 0, 100, 0x81)); err != nil {
		t.Fatal(err)
	}
	ends(t, raw)
	if r.Faults(FaultSlow) != 1 {
		t.Error("not counted as slow")
	}
}

// Links between daemons are silent for long; only a frame that began must end.
func TestASilentLinkStays(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: waits longer than the frame's deadline")
	}
	t.Parallel()
	r := serve(t, worker, table1())
	c := r.client(t)
	l, err := c.Link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Done():
		t.Error("it ended")
	case <-time.After(frameTimeout + time.Second):
	}
	if err := c.Call(t.Context(), "echo", &echoReq{Text: "x"}, &echoResp{}); err != nil {
		t.Error(err)
	}
	if again, err := c.Link(t.Context()); err != nil || again != l {
		t.Error("it is another link", err)
	}
}

// A peer that half-closes, or goes away in the middle of its call, ends its handlers.
func TestAHalfOpenClientEndsItsHandlers(t *testing.T) {
	started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	block := func(ctx context.Context, _ *Call, _ *echoReq) (*echoResp, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	}
	r := serve(t, worker, []Verb{On("block", peer.Workers, block)})
	b, err := wire.Marshal(&echoReq{})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(*net.UnixConn) error{(*net.UnixConn).CloseWrite, (*net.UnixConn).Close} {
		raw := r.raw(t)
		_, err := raw.Write(frames(t, &wire.Msg{Hello: wire.Version}, &wire.Msg{ID: 1, Verb: "block", Body: b}))
		if err != nil {
			t.Fatal(err)
		}
		<-started
		if err := end(raw); err != nil {
			t.Fatal(err)
		}
		<-ended
	}
}

// A peer that does not read does not hold up a handler for ever, nor others.
func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: waits for the write deadline")
	}
	t.Parallel()
	r := serve(t, worker, table1())
	raw := r.raw(t)
	b, err := wire.Marshal(&echoReq{Text: strings.Repeat("x", 1<<19)})
	if err != nil {
		t.Fatal(err)
	}
	out := frames(t, &wire.Msg{Hello: wire.Version})
	one := frames(t, &wire.Msg{ID: 1, Verb: "echo", Body: b})
	_ = raw.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := raw.Write(out); err != nil {
		t.Fatal(err)
	}
	for range 1000 { // until the server stops taking, and then ends it
		if _, err := raw.Write(one); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the server let it hang")
			}
			return
		}
	}
	t.Fatal("the server took everything")
}

// Both ends ask on one connection, and what was written first is seen first.
func TestServerAsksItsClientInOrder(t *testing.T) {
	links := make(chan *Link, 1)
	var order []string
	var mu sync.Mutex
	note := func(s string) {
		mu.Lock()
		order = append(order, s)
		mu.Unlock()
	}
	var l *Link
	revoke := func(ctx context.Context, c *Call, req *echoReq) (*echoResp, error) {
		p, err := c.Link.Send("released", &echoReq{Text: "released"})
		if err != nil {
			return nil, err
		}
		go func() { _, _ = p.Wait(context.WithoutCancel(ctx), &echoResp{}) }()
		return &echoResp{Text: "revoked"}, nil
	}
	r := serve(t, peertest.Daemon("sentinel"), []Verb{On("revoke", peer.Daemon("sentinel"), revoke)},
		func(s *Server) { s.OnLink = func(l *Link) { links <- l } })
	c := r.client(t)
	c.Pushed = []Verb{
		Pushed("accounts", func(_ context.Context, _ *Call, req *echoReq) (*echoResp, error) {
			return &echoResp{Text: "got " + req.Text}, nil
		}),
		Pushed("released", func(_ context.Context, _ *Call, req *echoReq) (*echoResp, error) {
			time.Sleep(time.Millisecond)
			note(req.Text)
			return &echoResp{}, nil
		}).InOrder(),
	}
	for range 50 {
		order = nil
		if err := c.Call(t.Context(), "revoke", &echoReq{}, &echoResp{}); err != nil {
			t.Fatal(err)
		}
		note("revoked")
		if strings.Join(order, " ") != "released revoked" {
			t.Fatalf("order %v", order)
		}
	}
	l = <-links
	if l.Peer.Name != "sentinel" {
		t.Errorf("link of %v", l.Peer)
	}
	var resp echoResp
	if err := l.Call(t.Context(), "accounts", &echoReq{Text: "2"}, &resp); err != nil || resp.Text != "got 2" {
		t.Errorf("pushed: %v %v", resp, err)
	}
	// A server cannot ask what the client does not list.
	if err := l.Call(t.Context(), "grant", &echoReq{}, &resp); !isCode(err, wire.CodeUnavailable) {
		t.Errorf("a verb that the client does not list: %v", err)
	}
}

// A connection that somebody took and is silent on is not waited for without end: the client makes another.
func TestClientGivesUpASilentConnection(t *testing.T) {
	defer func(d time.Duration) { meetTimeout = d }(meetTimeout)
	meetTimeout = 100 * time.Millisecond
	path := t.TempDir() + "/s"
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{Path: path, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	silent, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := &Server{Name: "s", Listener: peer.NewListener(ln, peertest.Worker("a"), nil), Log: c.Log,
		Verbs: []Verb{On("echo", peer.Workers, echo)}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	defer func() {
		cancel()
		<-ran
		<-served
	}()
	for range 300 {
		if err = c.Call(ctx, "echo", &echoReq{Text: "x"}, &echoResp{}); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("still no connection:", err)
}

func TestClientReconnectsAndFailsAtOnceWhileDown(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	var ups, downs atomic.Int64
	c := &Client{Path: path, Log: slog.New(slog.DiscardHandler),
		OnConnect: func(ctx context.Context, l *Link) error {
			err := l.Call(ctx, "echo", &echoReq{Text: "first"}, &echoResp{})
			if err == nil {
				ups.Add(1)
			}
			return err
		},
		OnDisconnect: func() { downs.Add(1) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	c.mu.Lock()
	for !c.running {
		c.mu.Unlock()
		time.Sleep(time.Millisecond)
		c.mu.Lock()
	}
	c.mu.Unlock()
	call := func() error { return c.Call(ctx, "echo", &echoReq{Text: "x"}, &echoResp{}) }
	if err := call(); !isCode(err, wire.CodeUnavailable) || errors.Is(err, ErrSent) {
		t.Fatalf("nobody there: %v", err)
	}
	// A socket that somebody keeps open while no process serves it, as systemd does, is not a server.
	keep, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	keep.SetUnlinkOnClose(false)
	for round := range 3 {
		if err := call(); !isCode(err, wire.CodeUnavailable) || errors.Is(err, ErrSent) {
			t.Fatalf("only a socket there: %v", err)
		}
		f, err := keep.File()
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.FileListener(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		srv := &Server{Name: "x", Listener: peer.NewListener(ln.(*net.UnixListener), worker, nil), Verbs: table1(),
			Log: slog.New(slog.DiscardHandler)}
		sctx, stop := context.WithCancel(ctx)
		served := make(chan struct{})
		go func() { defer close(served); _ = srv.Serve(sctx) }()
		settles(t, "failures", 0, func() int {
			if call() != nil {
				return 1
			}
			return 0
		})
		stop()
		<-served
		settles(t, "connections", 0, func() int { return round + 1 - int(downs.Load()) })
	}
	keep.Close()
	if ups.Load() != 3 || downs.Load() != 3 {
		t.Errorf("%d connects, %d disconnects", ups.Load(), downs.Load())
	}
}

// A call that comes before Run makes a connection. Run goes on with that one: a second beside it would be a second client
// to the server.
func TestRunGoesOnWithTheConnectionOfACall(t *testing.T) {
	var links atomic.Int64
	var first atomic.Pointer[Link]
	r := serve(t, worker, table1(), func(s *Server) {
		s.OnLink = func(l *Link) {
			links.Add(1)
			first.CompareAndSwap(nil, l)
		}
	})
	var downs atomic.Int64
	var late atomic.Bool
	c := &Client{Path: r.path, Log: r.Log, OnDisconnect: func() { downs.Add(1); late.Store(links.Load() > 1) }}
	call := func() error { return c.Call(t.Context(), "echo", &echoReq{Text: "x"}, &echoResp{}) }
	if err := call(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	for range 100 {
		if err := call(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if n := links.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	first.Load().Close()
	settles(t, "failures", 0, func() int {
		if call() != nil {
			return 1
		}
		return 0
	})
	if n := links.Load(); n != 2 || downs.Load() != 1 || late.Load() {
		t.Errorf("%d connections, %d disconnects, told of it behind the next: %v", n, downs.Load(), late.Load())
	}
	cancel()
	<-done
	settles(t, "connections", 0, func() int { return 2 - int(downs.Load()) })
}

// Calls in flight when the server dies end at once, and say that they may have been done.
func TestCallsInFlightEndWithTheServer(t *testing.T) {
	r := serve(t, worker, table1())
	c := r.client(t)
	errs := make(chan error, 10)
	for range 10 {
		go func() { errs <- c.Call(t.Context(), "echo", &echoReq{Wait: time.Hour}, &echoResp{}) }()
	}
	settles(t, "calls not there", 0, func() int {
		l, err := c.Link(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return 10 - len(l.pending)
	})
	r.stop()
	for range 10 {
		if err := <-errs; !isCode(err, wire.CodeUnavailable) || !errors.Is(err, ErrSent) {
			t.Errorf("got %v", err)
		}
	}
}

func TestNothingLeaks(t *testing.T) {
	r := serve(t, worker, table1())
	c := r.client(t)
	use := func() {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				raw := r.raw(t)
				_, _ = raw.Write([]byte("nonsense, and more of it"))
				raw.Close()
			})
			wg.Go(func() { _ = c.Call(t.Context(), "echo", &echoReq{Text: "x"}, &echoResp{}) })
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_ = c.Call(ctx, "echo", &echoReq{Wait: 5 * time.Millisecond}, &echoResp{})
			})
		}
		wg.Wait()
	}
	use()
	c.Close()
	settles(t, "connections", 0, func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.count)
	})
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	for range 10 {
		use()
	}
	c.Close()
	settles(t, "goroutines", goroutines+1, runtime.NumGoroutine)
	settles(t, "descriptors", fds, func() int { return descriptors(t) })
}

func TestTablesAreChecked(t *testing.T) {
	good := On("a", peer.Workers, echo)
	for name, tt := range map[string]struct {
		verbs  []Verb
		pushed bool
	}{
		"twice":              {[]Verb{good, good}, false},
		"empty":              {[]Verb{{}}, false},
		"nobody may":         {[]Verb{On("a", nil, echo)}, false},
		"pushed in server":   {[]Verb{Pushed("a", echo)}, false},
		"unpushed in client": {[]Verb{good}, true},
	} {
		if _, err := table(tt.verbs, tt.pushed); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := table([]Verb{good, Pushed("b", echo)}[:1], false); err != nil {
		t.Error(err)
	}
}

func FuzzLink(f *testing.F) {
	b, _ := wire.Marshal(&echoReq{Text: "x"})
	var t testing.T
	hello := frames(&t, &wire.Msg{Hello: wire.Version})
	f.Add(append(hello, frames(&t, &wire.Msg{ID: 1, Verb: "echo", Body: b})...))
	f.Add(append(hello, frames(&t, &wire.Msg{ID: 1, Body: b})...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(append(hello, 0xff, 0xff, 0xff, 0xff))
	verbs, err := table(table1(), false)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Skip("skipped: no socket pair to be had: ", err)
		}
		var ends [2]*net.UnixConn
		for i, fd := range fds {
			file := os.NewFile(uintptr(fd), "")
			c, err := net.FileConn(file)
			file.Close()
			if err != nil {
				t.Skip("skipped: no socket pair to be had: ", err)
			}
			ends[i] = c.(*net.UnixConn)
		}
		l := newLink(ends[0], "fuzz", slog.New(slog.DiscardHandler), verbs, 4)
		l.Peer = peer.Identity(worker)
		done := make(chan struct{})
		go func() { defer close(done); _ = l.serve(t.Context()) }()
		_, _ = ends[1].Write(in)
		_ = ends[1].CloseWrite()
		_, _ = io.Copy(io.Discard, ends[1])
		ends[1].Close()
		<-done
	})
}

// Who has greeted and asks nothing for longer than a frame may take is no slow client: daemons keep such links.
func TestAClientThatGreetsAndIsQuietStays(t *testing.T) {
	t.Parallel()
	r := serve(t, worker, table1())
	c := r.client(t)
	l, err := c.Link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Done():
		t.Fatalf("the link ended: %s", r.log)
	case <-time.After(frameTimeout + time.Second):
	}
	var got echoResp
	if err := l.Call(t.Context(), "echo", &echoReq{Text: "late"}, &got); err != nil || got.Text != "late" {
		t.Fatalf("got %+v, %v", got, err)
	}
}
