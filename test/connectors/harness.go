// SPDX-License-Identifier: Apache-2.0

// Package connectors runs a connector's methods against a vendor, one call at a time: the worker's framework and
// egress's proxy are the real ones, in one process; authd and sentinel are played by a few lines that fill the envelope
// as sentinel does and hold the surrogate as authd does. So a test sees whether each method stays within what it
// declares, and whether it declares more than it needs.
//
// Nothing here proves who is calling: that is what the worlds of package world are for.
package connectors

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/proxy"
	"github.com/doorward/doorward/sentinel/prepared"
	"github.com/doorward/doorward/workers"
)

// Options of a bench.
type Options struct {
	Connector *workers.Connector
	Base      string   // the vendor's address
	Also      []string // second hosts, as URLs
	CA        []byte   // PEM
	Placement wire.Placement
	Secret    string   // the credential
	Scrub     []string // forms of it that answers are searched for; Secret when empty
	Owner     string
}

// A Bench runs calls of one connector.
type Bench struct {
	t       testing.TB
	o       Options
	base    wire.Base
	permit  []string
	also    []string
	trial   workers.Trial
	mu      sync.Mutex // guards what follows
	calls   int
	grants  map[string]*grant
	reports []wire.SentReq
}

type grant struct {
	entries   []wire.Entry
	used      []int
	surrogate string
	mark      string
	finish    *wire.FinishReq
}

// An Outcome is what became of one call.
type Outcome struct {
	Output  *wire.Output
	Err     error
	Finish  wire.FinishReq
	Entries []wire.Entry   // the envelope as it was filled
	Used    []int          // how often each entry was resolved
	Sent    []wire.SentReq // what egress reported
	Mark    string
}

// Code is the reason of a refusal, "" for a success.
func (o *Outcome) Code() wire.Code {
	if refusal, ok := o.Err.(*wire.Error); ok {
		return refusal.Code
	}
	if o.Err != nil {
		return "not a refusal: " + wire.Code(o.Err.Error())
	}
	return ""
}

// JSON decodes the answer.
func (o *Outcome) JSON(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if o.Err != nil {
		t.Fatalf("refused: %v", o.Err)
	}
	if err := json.Unmarshal(o.Output.JSON, &v); err != nil {
		t.Fatalf("answer is no JSON object: %v: %.200s", err, o.Output.JSON)
	}
	return v
}

// Start makes a bench; it ends with the test.
func Start(t testing.TB, o Options) *Bench {
	t.Helper()
	b := &Bench{t: t, o: o, grants: map[string]*grant{}}
	if len(o.Scrub) == 0 {
		b.o.Scrub = []string{o.Secret}
	}
	at, err := url.Parse(o.Base)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatalf("the vendor's address %s: %v", o.Base, err)
	}
	b.base = wire.Base{Scheme: at.Scheme, Host: at.Hostname(), Port: port, Path: strings.TrimSuffix(at.Path, "/")}
	b.permit = []string{at.Host}
	for _, also := range o.Also {
		second, err := url.Parse(also)
		if err != nil {
			t.Fatal(err)
		}
		b.also, b.permit = append(b.also, second.Host), append(b.permit, second.Host)
	}
	socket := filepath.Join(t.TempDir(), "egress.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	vendor := o.Connector.Describe.Vendor
	egress := &proxy.Server{
		Listener: peer.NewListener(listener, peertest.Worker(vendor), nil), Resolve: b.resolve, Report: b.report,
		Full: func() bool { return false }, Log: slog.New(slog.DiscardHandler),
		Dialer: &guard.Dialer{Own: func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- egress.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("egress: %v", err)
		}
	})
	b.trial = workers.Trial{Connector: o.Connector, Egress: socket, Borrow: b.borrow, Finish: b.finish}
	return b
}

// Args are a call's arguments.
type Args map[string][]string

// A File is a file argument.
type File struct {
	Arg, Name string
	Content   []byte
}

// Call runs one call as an allowed one and holds it to its envelope: every entry must have been used.
func (b *Bench) Call(method string, args Args, files ...File) *Outcome {
	b.t.Helper()
	o := b.Try(method, args, files...)
	for i, entry := range o.Entries {
		if o.Used[i] == 0 && o.Err == nil {
			b.t.Errorf("%s: entry %s was not used", method, entry.Name)
		}
	}
	for _, sent := range o.Sent {
		if sent.Err != nil && sent.Err.Code == wire.CodeBadEnvelope {
			b.t.Errorf("%s: a wider envelope would have been needed: %v", method, sent.Err)
		}
	}
	return o
}

// Try runs one call as an allowed one, whatever comes of it.
func (b *Bench) Try(method string, args Args, files ...File) *Outcome {
	b.t.Helper()
	return b.run(method, args, files, how{})
}

// Raw runs a read and answers the vendor's own bytes, as sentinel does where a decision or a settlement builds on it.
func (b *Bench) Raw(method string, args Args) *Outcome {
	b.t.Helper()
	return b.run(method, args, nil, how{raw: true})
}

// how a call is run, besides its arguments.
type how struct {
	raw      bool
	prepared bool
	body     []byte
	etag     string
	mark     string // the bench's choice when empty
}

// Write runs a method with a prepared body as sentinel does: it has the base read, the body rendered, reads it back,
// and executes the call with it. Every entry must be used.
func (b *Bench) Write(method string, args Args) *Outcome {
	b.t.Helper()
	o := b.TryWrite(method, args, nil)
	for i, entry := range o.Entries {
		if o.Used[i] == 0 && o.Err == nil {
			b.t.Errorf("%s: entry %s was not used", method, entry.Name)
		}
	}
	return o
}

// TryWrite is Write, whatever comes of it. between, which may be nil, runs after the base was read.
func (b *Bench) TryWrite(method string, args Args, between func()) *Outcome {
	b.t.Helper()
	frame, m := b.frame(method, args)
	values, err := m.Decode(&frame)
	if err != nil {
		return &Outcome{Err: wire.Refuse(wire.CodeBadArgument, err.Error(), "")}
	}
	b.mu.Lock()
	h := how{prepared: true, mark: "m4rk0fcallwr1tten" + strconv.Itoa(b.calls)}
	b.mu.Unlock()
	var base []byte
	if m.Prepare.NeedsBase(values) {
		read := Args{}
		for _, pair := range m.Prepare.Args {
			read[pair.From] = values[pair.To]
		}
		o := b.Raw(m.Prepare.Base, read)
		if o.Err != nil {
			return o
		}
		base, h.etag = o.Output.JSON, o.Output.Object
	}
	if between != nil {
		between()
	}
	now := time.Now().Unix()
	resp, err := b.trial.Prepare(&wire.PrepareReq{Frame: frame, Mark: h.mark, Unix: now, Owner: b.o.Owner, Base: base})
	if err != nil {
		return &Outcome{Err: err}
	}
	if err := prepared.Verify(m.Prepare.Kind, m, values, h.mark, now, b.o.Owner, base, resp.Body); err != nil {
		b.t.Errorf("%s: sentinel's reader refuses what was rendered: %v\n%s", method, err, resp.Body)
		return &Outcome{Err: err}
	}
	h.body = resp.Body
	return b.run(method, args, nil, h)
}

// frame makes the frame of a call.
func (b *Bench) frame(method string, args Args) (wire.Frame, *describe.Method) {
	b.t.Helper()
	if _, err := b.o.Connector.Describe.Seal(); err != nil {
		b.t.Fatal(err)
	}
	m, ok := b.o.Connector.Describe.Method(method)
	if !ok {
		b.t.Fatalf("no method %s", method)
	}
	frame := wire.Frame{
		Connector: b.o.Connector.Describe.Vendor, Description: b.o.Connector.Describe.Digest(), Method: method,
	}
	names := make([]string, 0, len(args))
	for name := range args {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		frame.Args = append(frame.Args, wire.Arg{Name: name, Values: args[name]})
	}
	return frame, m
}

func (b *Bench) run(method string, args Args, files []File, h how) *Outcome {
	b.t.Helper()
	frame, m := b.frame(method, args)
	var fds []*os.File
	for _, f := range files {
		fd, size, sum, err := wire.SealFile(bytes.NewReader(f.Content), wire.MaxFile)
		if err != nil {
			b.t.Fatal(err)
		}
		fds = append(fds, os.NewFile(uintptr(fd), f.Name))
		frame.Files = append(frame.Files, wire.File{Arg: f.Arg, Name: f.Name, Size: size, SHA256: sum})
	}
	if h.prepared {
		fd, _, _, err := wire.SealFile(bytes.NewReader(h.body), wire.MaxFile)
		if err != nil {
			b.t.Fatal(err)
		}
		fds = append(fds, os.NewFile(uintptr(fd), "prepared"))
	}
	defer func() {
		for _, fd := range fds {
			_ = fd.Close()
		}
	}()
	values, err := m.Decode(&frame)
	if err != nil {
		return &Outcome{Err: wire.Refuse(wire.CodeBadArgument, err.Error(), "")}
	}
	b.mu.Lock()
	b.calls++
	n := strconv.Itoa(b.calls)
	b.mu.Unlock()
	g := &grant{surrogate: "ghp_surrogateOfCall0000000000000000000" + n, mark: "m4rk0fca11" + n}
	if h.mark != "" {
		g.mark = h.mark
	}
	g.entries, err = m.Fill(&describe.Call{
		Values: values, Files: frame.Files, Base: b.base, Also: b.also, Mark: g.mark, Unix: time.Now().Unix(),
		ETag: h.etag, Prepared: wire.Sum(h.body),
	})
	if err != nil {
		return &Outcome{Err: wire.Refuse(wire.CodeBadArgument, err.Error(), "")}
	}
	g.used = make([]int, len(g.entries))
	id := "grant-" + n
	b.mu.Lock()
	b.grants[id] = g
	reported := len(b.reports)
	b.mu.Unlock()
	out, err := b.trial.Run(b.t.Context(), &wire.CallReq{Grant: id, Frame: frame, Raw: h.raw, Prepared: h.prepared,
		ETag: h.etag}, fds...)
	resolved := 0
	b.mu.Lock()
	for _, n := range g.used {
		resolved += n
	}
	b.mu.Unlock()
	o := &Outcome{Output: out, Err: err, Entries: g.entries, Sent: b.await(reported, resolved), Mark: g.mark}
	b.mu.Lock()
	defer b.mu.Unlock()
	o.Used = slices.Clone(g.used)
	if g.finish != nil {
		o.Finish = *g.finish
	}
	return o
}

// await waits until egress has reported on every request that was resolved.
func (b *Bench) await(from, n int) []wire.SentReq {
	b.t.Helper()
	for range 1000 {
		b.mu.Lock()
		got := slices.Clone(b.reports[from:])
		b.mu.Unlock()
		if len(got) >= n {
			return got
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatalf("egress reported on fewer than %d requests", n)
	return nil
}

// borrow plays authd for the worker.
func (b *Bench) borrow(req *wire.BorrowReq) (*wire.BorrowResp, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.grants[req.Grant]
	if g == nil {
		return nil, wire.Refuse(wire.CodeBadGrant, "no such grant", "")
	}
	return &wire.BorrowResp{
		Surrogate: g.surrogate, Placement: b.o.Placement, Base: b.base, Account: "test", Owner: b.o.Owner, Mark: g.mark,
	}, nil
}

// resolve plays authd for egress.
func (b *Bench) resolve(_ context.Context, req *wire.ResolveReq) (*wire.ResolveResp, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.grants[req.Grant]
	if g == nil || req.Entry < 0 || req.Entry >= len(g.entries) || g.finish != nil {
		return nil, wire.Refuse(wire.CodeBadGrant, "no live grant of that name", "")
	}
	entry := g.entries[req.Entry]
	if g.used[req.Entry]++; g.used[req.Entry] > entry.Uses {
		return nil, wire.Refuse(wire.CodeBadGrant, "the entry's uses are spent", "")
	}
	resp := &wire.ResolveResp{
		Entry: entry, CA: b.o.CA, Permit: b.permit, Call: req.Grant, Account: "test", Generation: 1,
		Placement: b.o.Placement, Scrub: b.o.Scrub,
	}
	if entry.Credential {
		if req.Surrogate != g.surrogate {
			return nil, wire.Refuse(wire.CodeBadSurrogate, "not the surrogate of this grant", "")
		}
		resp.Secret = b.o.Secret
	}
	return resp, nil
}

func (b *Bench) report(s wire.SentReq) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reports = append(b.reports, s)
}

// finish plays sentinel.
func (b *Bench) finish(req *wire.FinishReq) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.grants[req.Grant]
	if g == nil || g.finish != nil {
		return wire.Refuse(wire.CodeBadGrant, "no live grant of that name", "")
	}
	g.finish = req
	return nil
}
