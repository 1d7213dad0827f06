// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/envelope"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/head"
	"github.com/doorward/doorward/sentinel/egress/swap"
)

// Headers by which a worker names what a request belongs to. They are taken off before anything is sent.
const (
	HeaderGrant     = "Doorward-Grant"
	HeaderEntry     = "Doorward-Entry"
	HeaderSurrogate = "Doorward-Surrogate"
)

// blockSize is how much is read from a server or worker at once.
const blockSize = 32 << 10

// worker is one connection of a worker.
type worker struct {
	s    *Server
	c    *peer.Conn
	br   *bufio.Reader
	out  []byte // what is written in one go
	text []byte // of an answer's body, scrubbed and not yet written
	buf  []byte // blockSize

	readEnd, writeEnd time.Time // deadlines as they are set
}

// readBy and writeBy bound what follows. A bound that has more than half of its time left is let stand: setting one
// costs as much as a short read.
func (w *worker) readBy(d time.Duration) {
	if now := time.Now(); w.readEnd.Sub(now) < d/2 || w.readEnd.Sub(now) > d {
		w.readEnd = now.Add(d)
		_ = w.c.SetReadDeadline(w.readEnd)
	}
}

func (w *worker) writeBy(d time.Duration) {
	if now := time.Now(); w.writeEnd.Sub(now) < d/2 {
		w.writeEnd = now.Add(d)
		_ = w.c.SetWriteDeadline(w.writeEnd)
	}
}

// noReadBy forgets a bound that somebody else has changed.
func (w *worker) noReadBy() { w.readEnd = time.Time{} }

// serve answers the requests of one connection, one after the other, each judged alone.
func (s *Server) serve(ctx context.Context, c *peer.Conn) {
	defer c.Close()
	if !peer.Workers(c.Peer) {
		s.Log.Warn("refused a stranger", daemon.KeySocket, "egress-worker", daemon.KeyPeer, c.Peer.String())
		return
	}
	if !s.admit(c.Peer.Name, 1) {
		s.Log.Warn("refused: too many connections", daemon.KeyPeer, c.Peer.String())
		return
	}
	defer s.admit(c.Peer.Name, -1)
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	w := &worker{s: s, c: c, br: bufio.NewReaderSize(c, head.MaxBytes), buf: make([]byte, blockSize)}
	for {
		w.readBy(idleWorker)
		if ctx.Err() != nil { // it may have ended before that deadline was set
			return
		}
		r, err := head.Read(w.br)
		if err != nil {
			if errors.Is(err, head.ErrMalformed) || errors.Is(err, head.ErrTooLarge) {
				ref := classify(err)
				s.Report(wire.SentReq{Worker: c.Peer.Name, Err: ref.err})
				w.log(nil, &wire.SentReq{}, ref)
				w.refuse(ref, true, false)
				w.drain()
			}
			return
		}
		if !w.one(ctx, r) {
			return
		}
	}
}

// exchange is one request and what is known of it.
type exchange struct {
	*worker
	r        *head.Request
	body     *workerBody
	a        *active
	resolved *wire.ResolveResp
	entry    *wire.Entry
	sent     wire.SentReq
	owed     bool // a report is owed
	closing  bool // the worker's connection ends with this request
	to       guard.Authority
	part     *partition
	scrub    *swap.Scrubber
	repl     string // what stands where the credential was
	location *guard.URL
	release  func() // gives the upstream connection back; its answer has been read
}

// one carries one request and says whether the connection can serve another.
func (w *worker) one(ctx context.Context, r *head.Request) bool {
	x := &exchange{worker: w, r: r, body: newBody(w.br, r.Length), closing: r.Close}
	x.sent.Worker, x.sent.Method = w.c.Peer.Name, r.Method
	err := x.run(ctx)
	if x.a != nil {
		defer x.a.done()
	}
	if err == nil {
		x.report()
		w.log(r, &x.sent, nil)
		if !x.body.done { // answered before it was all there
			w.drain()
			return false
		}
		return !x.closing
	}
	ref := classify(err)
	if x.a != nil && x.a.isCut() {
		ref = cutOff(x.sent.Left)
	}
	x.sent.Err = ref.err
	x.report()
	w.log(r, &x.sent, ref)
	if x.sent.Status != 0 && errors.Is(err, errBegun) {
		return false // part of the answer is out; only the end of the connection says that it is not whole
	}
	if !x.body.done && !x.finishBody() {
		x.closing = true
	}
	w.refuse(ref, x.closing, r.Method == http.MethodHead)
	if x.closing && !x.body.done {
		w.drain()
	}
	return !x.closing
}

// finishBody reads a short rest of a refused request, so that the connection can go on.
func (x *exchange) finishBody() bool {
	if x.body.left > blockSize {
		return false
	}
	x.readBy(workerTimeout)
	n, err := io.CopyBuffer(io.Discard, io.LimitReader(struct{ io.Reader }{x.body}, blockSize), nil)
	return err == nil && n <= blockSize && x.body.done
}

// drain reads what the worker still sends, for a moment: a Unix socket that is closed with unread bytes in it loses the
// answer that was written, and a worker that is still writing may not look for one.
func (w *worker) drain() {
	_ = w.c.CloseWrite()
	_ = w.c.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.CopyN(io.Discard, w.br, wire.MaxFile)
}

func (w *worker) refuse(ref *refusal, closing, noBody bool) {
	w.out = appendRefusal(w.out[:0], ref, closing, noBody)
	w.writeBy(workerTimeout)
	_, _ = w.c.Write(w.out)
}

// report pays what is owed, once.
func (x *exchange) report() {
	if x.owed {
		x.owed = false
		x.s.Report(x.sent)
	}
}

// run carries the request up to the end of its answer. Its error is what the worker is told.
func (x *exchange) run(ctx context.Context) error {
	if err := x.resolve(ctx); err != nil {
		return err
	}
	plan, limit, err := x.judge()
	if err != nil {
		return err
	}
	var whole []byte
	if plan == envelope.Whole {
		hold := limit
		if x.r.Length >= 0 {
			hold = x.r.Length
		}
		if x.s.waiting.Add(hold) > maxBuffered {
			x.s.waiting.Add(-hold)
			return refuse(http.StatusServiceUnavailable, wire.CodeUnavailable, nextTry,
				errors.New("too many large requests at once"))
		}
		defer x.s.waiting.Add(-hold)
		x.readBy(workerTimeout)
		if whole, err = x.body.whole(limit); err != nil {
			return err
		}
		if err := envelope.Check(&x.entry.Body, whole); err != nil {
			return err
		}
	}
	if x.entry.Credential {
		if err := swap.Put(x.r, x.resolved.Placement, x.resolved.Secret); err != nil {
			return err
		}
	}
	x.setHeaders()
	up := x.part.idleConn(isWrite(x.r.Method))
	if up == (upConn{}) {
		if up, err = x.part.dial(x.a.within(ctx)); err != nil {
			return err
		}
	}
	if up.h2 != nil {
		return x.viaH2(x.a.within(ctx), up.h2, plan, whole)
	}
	return x.viaH1(up.h1, plan, whole)
}

// resolve asks authd, and from then on owes a report.
func (x *exchange) resolve(ctx context.Context) error {
	x.owed = true
	grant, err := x.r.Take(HeaderGrant)
	if err != nil {
		return err
	}
	index, err := x.r.Take(HeaderEntry)
	if err != nil {
		return err
	}
	surrogate, err := x.r.Take(HeaderSurrogate)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(index, 10, 16)
	if grant == "" || len(grant) > 128 || err != nil {
		return refuse(http.StatusForbidden, wire.CodeBadGrant, nextBug, errors.New("the request names no grant and entry"))
	}
	if x.s.Full() {
		return refuse(http.StatusServiceUnavailable, wire.CodeUnavailable, nextTry,
			errors.New("the record is behind; nothing is let through"))
	}
	x.sent.Grant = grant
	x.a = x.s.live.begin(grant, x.c)
	resp, err := x.s.Resolve(ctx, &wire.ResolveReq{Grant: grant, Surrogate: surrogate, Worker: x.c.Peer.Name,
		Entry: int(n)})
	if err != nil {
		x.owed = errors.Is(err, daemon.ErrSent) // else authd has it on record, and nothing was released
		return err
	}
	x.resolved, x.entry, x.repl = resp, &resp.Entry, surrogate
	x.sent.Entry, x.sent.Host = resp.Entry.Name, resp.Entry.Host
	if !x.a.name(resp.Cell, resp.Account) {
		return cutOff(false)
	}
	if x.entry.Credential != (surrogate != "") || x.entry.Credential && resp.Secret == "" {
		return refuse(http.StatusForbidden, wire.CodeBadSurrogate, nextBug,
			errors.New("a surrogate must be named exactly where the credential goes along"))
	}
	if x.repl == "" {
		x.repl = "[credential]"
	}
	return nil
}

// judge holds the head to the entry and finds the pool.
func (x *exchange) judge() (envelope.Kind, int64, error) {
	if x.entry.Credential {
		if err := swap.Find(x.r, x.resolved.Placement, x.repl); err != nil {
			return envelope.None, 0, err
		}
	}
	if x.entry.Follow != "" {
		x.location = x.s.follow.find(x.sent.Grant, x.entry.Follow, x.r.Host, x.r.Path, x.r.Query)
	}
	if err := envelope.Head(x.entry, x.r, x.location); err != nil {
		return envelope.None, 0, err
	}
	plan, limit, err := envelope.Plan(&x.entry.Body, x.r)
	if err != nil {
		return envelope.None, 0, err
	}
	if x.to, err = envelope.Authority(x.entry, x.location); err != nil {
		return envelope.None, 0, err
	}
	x.sent.Host = x.to.Host.String()
	permits := make([]netip.AddrPort, 0, len(x.resolved.Permit))
	for _, p := range x.resolved.Permit {
		a, err := netip.ParseAddrPort(p)
		if err != nil {
			return envelope.None, 0, refuse(http.StatusBadGateway, wire.CodeBadTarget, nextSrv,
				errors.New("a permitted address of the account is not ip:port"))
		}
		permits = append(permits, a)
	}
	key := partKey{account: x.resolved.Account, generation: x.resolved.Generation, credential: x.entry.Credential,
		plain: x.entry.Scheme == "http", to: x.to, ca: string(x.resolved.CA), permits: strings.Join(x.resolved.Permit, " ")}
	if x.entry.Credential && !x.to.Host.Addr().IsValid() {
		// The account's own server by name: where the operator permitted its address, that is where it is. No look-up
		// can then say otherwise.
		for _, a := range permits {
			if a.Port() == x.to.Port {
				key.pin = a
				break
			}
		}
	}
	if x.part, err = x.s.pools.get(key, permits); err != nil {
		return envelope.None, 0, err
	}
	forms := x.resolved.Scrub
	if s := x.resolved.Secret; s != "" && !slices.Contains(forms, s) {
		forms = append(slices.Clone(forms), s)
	}
	x.scrub, err = x.part.scrubber(forms)
	return plan, limit, err
}

// setHeaders sets what egress says itself.
func (x *exchange) setHeaders() {
	fields := x.r.Fields[:0]
	encoding := "identity"
	for _, f := range x.r.Fields {
		if f.Name == "Accept-Encoding" {
			for part := range strings.SplitSeq(f.Value, ",") {
				if strings.TrimSpace(part) == "gzip" {
					encoding = "gzip" // what can be scrubbed
				}
			}
			continue
		}
		fields = append(fields, f)
	}
	x.r.Fields = append(fields, head.Field{Name: "Accept-Encoding", Value: encoding},
		head.Field{Name: "User-Agent", Value: userAgent})
}

// isWrite: what is not one of these may change something.
func isWrite(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "PROPFIND", "REPORT", "SEARCH":
		return false
	}
	return true
}

// hasBody says that a method is sent with a Content-Length even where there is no body.
func hasBody(method string) bool {
	switch method {
	case "POST", "PUT", "PATCH":
		return true
	}
	return false
}

// log writes the access log: names, never values, and no path, for vendors put keys there.
func (w *worker) log(r *head.Request, s *wire.SentReq, ref *refusal) {
	attrs := []any{daemon.KeyVendor, w.c.Peer.Name, daemon.KeyGrant, s.Grant, "entry", s.Entry, "method", s.Method,
		"host", s.Host, "status", s.Status, "out", s.Out, "in", s.In, "swapped", s.Swapped}
	if ref != nil {
		w.s.Log.Warn("refused a request", append(attrs, "code", string(ref.err.Code), daemon.KeyReason, clip(ref.detail))...)
		return
	}
	if w.s.Log.Enabled(context.Background(), -4) {
		var names []string
		for _, f := range r.Fields {
			names = append(names, f.Name)
		}
		w.s.Log.Debug("carried a request", append(attrs, "headers", strings.Join(names, " "))...)
	}
}

func clip(s string) string {
	if len(s) > 400 {
		return s[:400] + "…"
	}
	return s
}

var errBegun = errors.New("the answer had begun")

// isTimeout tells a deadline from other faults of a connection.
func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
