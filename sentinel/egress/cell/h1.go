// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/head"
	"github.com/doorward/doorward/sentinel/egress/swap"
)

// h1 serves HTTP/1 to a client in the cell, one request after the other. What it writes to the server is what the client wrote,
// line by line, apart from the swap and what is of one hop only.
type h1 struct {
	s    *session
	down net.Conn
	src  *source // reads down
	from target  // in the clear: where the connection was opened to
}

// lateBody is how long a client may go on with a body whose answer is complete.
const lateBody = time.Second

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, manyBytes) }}

func writerTo(w io.Writer) *bufio.Writer {
	bw := writers.Get().(*bufio.Writer)
	bw.Reset(w)
	return bw
}

func giveBack(bw *bufio.Writer) {
	bw.Reset(nil)
	writers.Put(bw)
}

// serve goes on until the client ends, or, in the clear, names another host: again is true then. h is a head that is read
// already.
func (x *h1) serve(a agreed, h *httpHead) (again bool) {
	for {
		if h == nil {
			f, err := x.src.front(true)
			if err != nil {
				x.unread(err)
				return false
			}
			if f.http == nil {
				x.unread(fmt.Errorf("HTTP was agreed on, and something else came: %w", errHTTP))
				return false
			}
			h = f.http
			next, refused := x.agree(f)
			switch {
			case refused != nil && x.s.clear: // decided, and refused, anew
				return true
			case refused != nil:
				x.answer(h, x.s.local(requestOf(h), refuse(refused)), true)
				return false
			case x.s.clear && (next.to != a.to || next.connect || next.page):
				return true
			}
			a = next
		}
		if !x.one(a, h) {
			return false
		}
		h = nil
	}
}

// agree holds what a request names against its connection.
func (x *h1) agree(f front) (agreed, *wire.Error) {
	if x.s.clear {
		return agree(x.from, f)
	}
	a, h := agreed{to: x.s.to, begins: wire.BeginsTLS}, f.http
	if !strings.HasPrefix(h.Target, "/") {
		return a, wire.Refuse(wire.CodeUsage, "the target is no path", "")
	}
	if h.Host == "" { // HTTP/1.0 may lack it; a server of many names would take it for another's
		return a, wire.Refuse(wire.CodeUsage, "the request has no Host", "send it with that, or by HTTP/1.1")
	}
	said, err := guard.ParseAuthority(h.Host, x.s.to.port)
	return a, same(x.s.to, "Host", said, err)
}

// requestOf is a head as it is judged.
func requestOf(h *httpHead) *request {
	r := &request{method: h.Method, upgrade: h.Upgrade != ""}
	r.Path, r.Query, _ = strings.Cut(h.Target, "?")
	r.Fields = make([]head.Field, 0, len(h.lines)-1)
	for _, line := range h.lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		r.Fields = append(r.Fields, head.Field{Name: name, Value: strings.Trim(value, " \t")})
	}
	return r
}

// hops are the options of Connection that go on; what else it may name is not known to be of one hop.
var hops = []string{"close", "keep-alive", "upgrade", "te", "http2-settings", "proxy-connection"}

// one judges and carries one request. It is true where the connection goes on.
func (x *h1) one(a agreed, h *httpHead) (keep bool) {
	x.src.take(h.size)
	b := newBody(x.src, h.Length)
	b.refuses = x.s.late
	defer b.over()
	target := h.Target
	if a.rewrite != "" {
		target = a.rewrite
	}
	if _, rest, absolute := strings.Cut(target, "://"); absolute && !strings.HasPrefix(target, "/") {
		_, path, _ := strings.Cut(rest, "/")
		target = "/" + path
	}
	r := requestOf(h)
	r.Path, r.Query, _ = strings.Cut(target, "?")
	expects, told := strings.EqualFold(r.get("Expect"), "100-continue"), false
	r.start = func(n int) ([]byte, bool, error) {
		if expects && !told {
			told = true
			if _, err := io.WriteString(x.down, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return nil, false, err
			}
		}
		return b.start(n)
	}
	var ref *refusal
	var v *verdict
	switch {
	case !onlyHops(r):
		ref = x.s.local(r, refuse(wire.Refuse(wire.CodeUsage, "Connection names a field that is not of one hop", "")))
	case !strings.HasPrefix(r.Path, "/"):
		ref = x.s.local(r, refuse(wire.Refuse(wire.CodeUsage, "the target is no path", "")))
	case r.upgrade && h.Length != 0: // its end and the first frame could be taken for one another
		ref = x.s.local(r, refuse(wire.Refuse(wire.CodeUsage, "a request for WebSocket has no body", "send it without")))
	case h.Method == http.MethodConnect:
		ref = x.s.local(r, refuse(wire.Refuse(wire.CodeUsage, "CONNECT is no request of a site", "")))
	default:
		v, ref = x.s.judge(x.s.k.ctx, r)
	}
	if ref != nil {
		return x.refuse(h, b, ref, expects && !told)
	}
	defer x.s.settle(v)
	return x.carry(h, r, v, b, strings.Contains(target, "?"), told)
}

func onlyHops(r *request) bool {
	for _, f := range r.Fields {
		if !strings.EqualFold(f.Name, "Connection") {
			continue
		}
		for t := range strings.SplitSeq(f.Value, ",") {
			if t = strings.ToLower(strings.TrimSpace(t)); t != "" && !slices.Contains(hops, t) {
				return false
			}
		}
	}
	return true
}

// refuse answers a request ourselves, and reads its body so far as that is short, so that the connection goes on.
func (x *h1) refuse(h *httpHead, b *body, ref *refusal, unasked bool) (keep bool) {
	drain := !unasked && (h.Length >= 0 && h.Length <= lingerBytes || h.Length < 0)
	ends := !drain || h.closes() || ref.status == http.StatusMisdirectedRequest || ref.Code == wire.CodeRevoked
	x.answer(h, ref, ends)
	if ends {
		return false
	}
	_ = x.down.SetReadDeadline(time.Now().Add(lingerTime))
	n := 0
	for !b.done() && n <= lingerBytes {
		raw, _, err := b.read()
		if err != nil {
			return false
		}
		n += len(raw)
	}
	if !b.done() {
		x.finish(nil)
		return false
	}
	_ = x.down.SetReadDeadline(time.Time{})
	return true
}

// closes says that the client ends the connection after this request.
func (h *httpHead) closes() bool {
	if h.Version == "HTTP/1.0" {
		return true
	}
	for _, line := range h.lines[1:] {
		if name, value, _ := cutField(line); name == "connection" && hasToken(value, "close") {
			return true
		}
	}
	return false
}

// answer writes a refusal; ends says that the connection does.
func (x *h1) answer(h *httpHead, ref *refusal, ends bool) {
	media, text := x.s.text(ref)
	b := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nCache-Control: no-store\r\n%s: %s\r\n",
		ref.status, http.StatusText(ref.status), media, len(text), ErrorHeader, ref.Code)
	if ref.challenge != "" {
		b = fmt.Appendf(b, "WWW-Authenticate: %s\r\n", ref.challenge)
	}
	if ends {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(b, "\r\n"...)
	if h == nil || h.Method != http.MethodHead {
		b = append(b, text...)
	}
	if !ends {
		_, _ = x.down.Write(b)
		return
	}
	x.finish(b)
}

// finish writes last bytes and lets the client read them.
func (x *h1) finish(b []byte) {
	_ = x.down.SetDeadline(time.Now().Add(lingerTime))
	var err error
	if len(b) > 0 {
		_, err = x.down.Write(b)
	}
	if err == nil && closeWrite(x.down) == nil {
		linger(x.down)
	}
	_ = x.down.Close()
}

// closeWrite ends one direction, of TLS with its own word for it.
func closeWrite(c net.Conn) error {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.New("end one direction: it has none")
}

// unread ends a connection on what cannot be read.
func (x *h1) unread(err error) {
	e := wire.Refuse(wire.CodeUsage, err.Error(), "")
	switch {
	case errors.Is(err, errTooLarge):
		e.Code = wire.CodeTooLarge
	case errors.Is(err, errHTTP), errors.Is(err, errHello), errors.Is(err, errSilent):
	default: // the client is gone
		return
	}
	x.answer(nil, x.s.local(&request{}, refuse(e)), true)
}

// headOf is the head as it goes to the server: the client's own lines, but for what was swapped, and what is for one hop.
func headOf(h *httpHead, r *request, v *verdict, hasQuery, told bool) []byte {
	target := r.Path
	if hasQuery {
		target += "?" + r.Query
	}
	out := append(make([]byte, 0, h.size+256), h.Method+" "+target+" "+h.Version+"\r\n"...)
	accepts := false
	for i, line := range h.lines[1:] {
		f := r.Fields[i]
		name, value, _ := cutField(line)
		switch {
		case v.scrub != nil && name == "accept-charset",
			name == "proxy-connection", name == "proxy-authorization", name == "proxy-authenticate",
			h.strip && (name == "upgrade" || name == "http2-settings"), told && name == "expect":
			continue
		case name == "connection" && h.strip:
			var kept []string
			for t := range strings.SplitSeq(value, ",") {
				if t = strings.TrimSpace(t); t != "" && !strings.EqualFold(t, "upgrade") && !strings.EqualFold(t, "http2-settings") {
					kept = append(kept, t)
				}
			}
			if len(kept) == 0 {
				continue
			}
			line = f.Name + ": " + strings.Join(kept, ", ")
		case name == "accept-encoding" && v.scrub != nil:
			if accepts {
				continue
			}
			accepts = true
			line = f.Name + ": " + narrowed(value)
		case compressesMessages(name) && v.scrub != nil:
			line = f.Name + ": identity"
		case name == "accept" && v.scrub != nil:
			line = f.Name + ": " + uncharted(f.Value)
		case f.Value != value:
			line = f.Name + ": " + f.Value
		}
		out = append(append(out, line...), "\r\n"...)
	}
	return append(out, "\r\n"...)
}

// carry sends the request and brings the answer.
func (x *h1) carry(h *httpHead, r *request, v *verdict, b *body, hasQuery, told bool) (keep bool) {
	up, err := v.server.h1(x.s.k.ctx, v.fresh, isWrite(h.Method) || r.upgrade)
	if err != nil {
		e := notReached(v.server.key.to, err)
		v.sent.Err = e
		return x.refuse(h, b, refuse(e), false)
	}
	good := false
	defer func() { x.s.k.uses(nil); v.server.put(up, good) }()
	if !x.s.k.uses(up.sock) {
		v.sent.Err = wire.Refuse(wire.CodeRevoked, "the request was cut", "")
		return false
	}
	up.carried = true
	up.src.used = x.s.k.touch
	end := x.exchange(up, h, r, v, b, headOf(h, r, v, hasQuery, told), told)
	good = end.good
	return end.keep
}

// exchanged is how a request ended: whether the server's connection and the client's are good for another.
type exchanged struct{ good, keep bool }

func (x *h1) exchange(up *upstream, h *httpHead, r *request, v *verdict, b *body, first []byte, told bool) (end exchanged) {
	var out atomic.Int64
	var over atomic.Pointer[wire.Error]
	sent := make(chan error, 1)
	if e := x.s.spend(len(first)); e != nil {
		v.sent.Err = e
		x.answer(h, refuse(e), true)
		return exchanged{}
	}
	v.sent.Left = true
	send := func() error {
		bw := writerTo(up)
		defer giveBack(bw)
		if _, err := bw.Write(first); err != nil {
			return err
		}
		for !b.done() {
			if b.waits() {
				if err := bw.Flush(); err != nil {
					return err
				}
			}
			raw, content, err := b.read()
			if err != nil {
				return fmt.Errorf("%w: %w", errClient, err)
			}
			if e := x.s.spend(len(raw)); e != nil {
				over.Store(e)
				return e
			}
			out.Add(int64(len(content)))
			if _, err := bw.Write(raw); err != nil {
				return err
			}
		}
		return bw.Flush()
	}
	whole := b.done() || b.next == partExact && int64(len(b.src.b)) >= b.left || len(b.held) > 0 && b.next == partDone
	if whole {
		sent <- send()
	} else {
		go func() {
			err := send()
			if err != nil {
				reset(up.sock) // so that the server does not take what it has for the whole
			}
			sent <- err
		}()
	}
	x.s.k.waits.Store(true)
	res := x.back(up, h, r, v, told)
	x.s.k.waits.Store(false)
	var bodyErr error
	select {
	case bodyErr = <-sent:
	default:
		if res.err == nil && !res.switched { // the answer came before the body's end
			_ = x.down.SetReadDeadline(time.Now().Add(lateBody))
		} else {
			reset(up.sock)
			_ = x.down.SetReadDeadline(time.Now())
		}
		bodyErr = <-sent
		_ = x.down.SetReadDeadline(time.Time{})
	}
	v.sent.Out = out.Load() + res.out
	v.sent.Complete = res.err == nil
	switch e := over.Load(); {
	case e != nil:
		v.sent.Err, v.sent.Complete = e, false
		if !res.begun {
			x.answer(h, refuse(e), true)
		} else {
			x.abort()
		}
		return exchanged{}
	case res.refused != nil:
		v.sent.Err = res.refused
		if !res.begun {
			x.answer(h, refuse(res.refused), true)
		} else {
			x.abort()
		}
		return exchanged{}
	case errors.Is(bodyErr, errClient) && res.err != nil, errors.Is(res.err, errClient):
		v.sent.Err = wire.Refuse(wire.CodeUsage, "the client broke off", "")
		x.abort()
		return exchanged{}
	case x.s.k.gone.Load():
		v.sent.Err, v.sent.Complete = wire.Refuse(wire.CodeUsage, "the client went before its answer had ended", ""), false
		x.abort()
		return exchanged{}
	case res.err != nil && !res.begun && !x.s.k.isCut():
		e := x.s.noAnswer()
		v.sent.Err = e
		x.answer(h, refuse(e), true)
		return exchanged{}
	case errors.Is(res.err, errMessage):
		v.sent.Err = unsearchable("a message in it is compressed or none, which")
		x.abort()
		return exchanged{}
	case res.err != nil:
		v.sent.Err = wire.Refuse(wire.CodeVendorDown, "the server broke off inside its answer", "")
		x.abort()
		return exchanged{}
	case res.switched:
		x.s.k.uses(nil)
		return exchanged{}
	}
	if res.close || h.closes() || bodyErr != nil {
		x.finish(nil)
		return exchanged{good: res.good && bodyErr == nil}
	}
	return exchanged{good: res.good, keep: true}
}

// abort ends the client's connection so that it does not take what it has for the whole.
func (x *h1) abort() { reset(x.s.k.down) }

// came is how an answer came.
type came struct {
	err      error
	refused  *wire.Error
	begun    bool // the client has something of it
	close    bool // the client's connection ends with it
	good     bool // the server's goes on
	switched bool // to WebSocket, which has ended
	out      int64
}

// back brings the answer to the client, with those before it (RFC 9110 15.2).
func (x *h1) back(up *upstream, h *httpHead, r *request, v *verdict, told bool) (res came) {
	for {
		a, err := nextAnswer(&up.src)
		if err != nil {
			res.err = err
			return res
		}
		up.src.take(a.size)
		v.sent.Status = a.status
		if a.status >= 200 || a.status == http.StatusSwitchingProtocols {
			res.begun = false
			return x.final(up, h, r, v, a)
		}
		if a.status == http.StatusContinue && told || h.Version == "HTTP/1.0" {
			continue
		}
		text, n := a.text(v, false, "")
		v.sent.Swapped += n
		if _, err := x.down.Write(text); err != nil {
			res.err = fmt.Errorf("%w: %w", errClient, err)
			return res
		}
	}
}

func (x *h1) final(up *upstream, h *httpHead, r *request, v *verdict, a *answerHead) (res came) {
	switch {
	case a.status == http.StatusSwitchingProtocols && !r.upgrade:
		res.refused = wire.Refuse(wire.CodeVendorDown, "the server switched protocols unasked", "")
		return res
	case a.status == http.StatusSwitchingProtocols:
		h.lines, r.Head = nil, swap.Head{} // it may rest for long
		return x.switched(up, v, a)
	}
	length := a.length
	if h.Method == http.MethodHead || a.status == http.StatusNoContent || a.status == http.StatusNotModified {
		length = 0
	}
	b := newBody(&up.src, length)
	defer b.over()
	res.close = length == -2 || a.close
	res.good = length != -2 && !a.close && a.Version == "HTTP/1.1"
	if v.scrub != nil && length != 0 {
		return x.scrubbed(b, h, v, a, res)
	}
	text, n := a.text(v, length != 0, "")
	v.sent.Swapped += n
	bw := writerTo(x.down)
	defer giveBack(bw)
	_, err := bw.Write(text)
	for err == nil && !b.done() {
		if b.waits() {
			res.begun = true
			if err = bw.Flush(); err != nil {
				break
			}
		}
		raw, content, rerr := b.read()
		if rerr != nil {
			_ = bw.Flush()
			res.begun, res.err = true, rerr
			return res
		}
		v.sent.In += int64(len(content))
		_, err = bw.Write(raw)
	}
	res.begun = true
	if err == nil {
		err = bw.Flush()
	}
	if err != nil {
		res.err = fmt.Errorf("%w: %w", errClient, err)
	}
	return res
}

// scrubbed brings an answer to a request that carried the credential, and takes that out of it. Its length is not known
// beforehand then, so it goes in chunks.
func (x *h1) scrubbed(b *body, h *httpHead, v *verdict, a *answerHead, res came) came {
	zipped, e := searchable(a.coding, a.media, a.inner, a.status)
	if e != nil {
		res.refused = e
		return res
	}
	chunked := h.Version != "HTTP/1.0"
	framing := "Connection: close\r\n"
	if chunked {
		framing = "Transfer-Encoding: chunked\r\n"
	} else {
		res.close = true
	}
	text, n := a.text(v, true, framing)
	v.sent.Swapped += n
	bw := writerTo(x.down)
	defer giveBack(bw)
	_, err := bw.Write(text)
	src := &contents{b: b, idle: bw.Flush}
	in := searched{from: src, v: v, zipped: zipped, flags: a.flags(), write: func(p []byte) error {
		if !chunked {
			_, err := bw.Write(p)
			return err
		}
		fmt.Fprintf(bw, "%x\r\n", len(p))
		_, _ = bw.Write(p)
		_, err := bw.WriteString("\r\n")
		return err
	}}
	res.begun = true
	if err == nil {
		err = in.copy()
	}
	if err == nil && chunked {
		_, _ = bw.WriteString("0\r\n")
		for _, line := range src.tail {
			name, value, _ := cutField(strings.TrimSuffix(string(line), "\r\n"))
			if ours(name) {
				continue
			}
			name, n := v.scrub.Text(name, "x-scrubbed")
			value, m := v.scrub.Text(value, v.shown)
			v.sent.Swapped += n + m
			_, _ = bw.WriteString(name + ": " + value + "\r\n")
		}
		_, err = bw.WriteString("\r\n")
	}
	if err == nil {
		err = bw.Flush()
	}
	if err != nil {
		_ = bw.Flush()
		res.err = err
	}
	return res
}

// switched carries a WebSocket, each direction until it ends.
func (x *h1) switched(up *upstream, v *verdict, a *answerHead) (res came) {
	res.switched, res.begun, res.close = true, true, true
	x.s.k.waits.Store(false) // a half that ends is no client that goes
	text, n := a.text(v, false, "")
	v.sent.Swapped += n
	v.scrub = nil // what frames say is not searched, and it may rest for long
	if _, err := x.down.Write(text); err != nil {
		res.err = fmt.Errorf("%w: %w", errClient, err)
		return res
	}
	back := make(chan error, 1)
	var out, in atomic.Int64
	go func() {
		err := flow(x.down, &up.src, func(n int) *wire.Error { in.Add(int64(n)); return nil })
		if err != nil {
			reset(up.sock)
			x.abort()
		}
		back <- err
	}()
	err := flow(up, x.src, func(n int) *wire.Error { out.Add(int64(n)); return x.s.spend(n) })
	if err != nil {
		reset(up.sock)
		x.abort()
	}
	err = errors.Join(err, <-back)
	res.out = out.Load()
	v.sent.In += in.Load()
	var spent *wire.Error
	if errors.As(err, &spent) {
		res.refused = spent
	}
	res.err = err
	if err == nil {
		_ = x.down.Close()
	}
	return res
}

// flow carries bytes until the end, which it hands on. tell is told of each piece before it goes, and may stop it.
func flow(to net.Conn, from *source, tell func(int) *wire.Error) error {
	b := newBody(from, -2)
	defer b.over()
	for {
		p, _, err := b.read()
		switch {
		case err != nil:
			return err
		case len(p) == 0 && b.done():
			return closeWrite(to)
		case len(p) == 0:
			continue
		}
		if e := tell(len(p)); e != nil {
			return e
		}
		if _, err := to.Write(p); err != nil {
			return err
		}
	}
}

// messageRest is how long the end of a message waits for what may come behind it. That is a time, for every message, and not what
// stands there: one that is held only where it may begin the credential tells whoever wrote into it that it does.
const messageRest = 200 * time.Millisecond

// errMessage is of an answer that says it is messages, and has one that is compressed or is none.
var errMessage = errors.New("a message that cannot be searched")

// searched copies the body of an answer that is searched for the credential.
type searched struct {
	from   io.Reader
	v      *verdict
	zipped bool
	flags  string // of messages, where it is made of those
	rests  bool   // a message is passed on whole when nothing comes behind it: it may be waited for
	write  func([]byte) error
}

func (s *searched) copy() error {
	src := io.Reader(&counted{s.from, &s.v.sent.In})
	if s.zipped {
		z, err := unzip(src)
		if err != nil {
			return err
		}
		src = z
	}
	var mu sync.Mutex // guards what follows, for a timer
	stream := swap.NewStream(writerFunc(s.write), s.v.scrub, s.v.shown)
	at := messages{flags: s.flags}
	var whole time.Time // when a message ended behind which nothing has come
	var timer *time.Timer
	rest := func() {
		mu.Lock()
		defer mu.Unlock()
		if !whole.IsZero() && time.Since(whole) >= messageRest {
			whole = time.Time{}
			_ = stream.Flush() // the next write fails too
		}
	}
	pass := func(p []byte) error {
		mu.Lock()
		defer mu.Unlock()
		whole = time.Time{}
		for ends := false; len(p) > 0; {
			piece := p
			if s.flags != "" {
				if piece, ends = at.next(p); at.bad {
					return errMessage
				}
			}
			if _, err := stream.Write(piece); err != nil {
				return fmt.Errorf("%w: %w", errClient, err)
			}
			if p = p[len(piece):]; len(p) == 0 && ends && s.rests {
				if whole = time.Now(); timer == nil {
					timer = time.AfterFunc(messageRest, rest)
				} else {
					timer.Reset(messageRest)
				}
			}
		}
		return nil
	}
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		whole = time.Time{} // nothing is written after
		s.v.sent.Swapped += stream.Hits
	}()
	buf := many.Get().(*[manyBytes]byte)
	defer many.Put(buf)
	for {
		n, err := src.Read(buf[:])
		if n > 0 {
			if err := pass(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			mu.Lock()
			defer mu.Unlock()
			return stream.Close()
		}
		if err != nil {
			return err
		}
	}
}

// messages finds where those of gRPC and its like end, each behind a byte of flags and its length in four. bad is one with other flags.
type messages struct {
	flags string
	bad   bool
	head  [5]byte
	have  int    // of head
	left  uint32 // of the message
}

// next is the beginning of p that is of one message, and whether that ends there.
func (m *messages) next(p []byte) (piece []byte, ends bool) {
	n := 0
	if m.have < len(m.head) {
		n = copy(m.head[m.have:], p)
		m.bad = m.bad || strings.IndexByte(m.flags, m.head[0]) < 0
		if m.have += n; m.have < len(m.head) {
			return p[:n], false
		}
		m.left = binary.BigEndian.Uint32(m.head[1:])
	}
	more := min(uint64(len(p)-n), uint64(m.left))
	m.left -= uint32(more)
	if n += int(more); m.left == 0 {
		m.have = 0
		return p[:n], true
	}
	return p[:n], false
}
