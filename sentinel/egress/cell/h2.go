// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/head"
)

// Bounds of one HTTP/2 connection of the cell.
const (
	maxStreams      = 100
	streamWindow    = 256 << 10
	connWindow      = 1 << 20
	grpcDenied      = "7"  // PERMISSION_DENIED
	grpcUnavailable = "14" // UNAVAILABLE
)

// serveH2 serves HTTP/2, each stream judged by itself, until the connection ends. WebSocket over it (RFC 8441) is not offered;
// clients make a connection of HTTP/1 for that.
func (s *session) serveH2(c *tls.Conn) {
	ln := &oneConn{c: c, over: make(chan struct{})}
	_ = s.server(ln, http.HandlerFunc(s.stream)).Serve(ln)
	_ = c.Close()
}

func (s *session) server(ln *oneConn, h http.Handler) *http.Server {
	srv := &http.Server{
		Handler:           h,
		Protocols:         new(http.Protocols),
		MaxHeaderBytes:    maxFront,
		ReadHeaderTimeout: frontTime,
		IdleTimeout:       idleTime,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, 0),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamWindow,
			MaxReceiveBufferPerConnection: connWindow},
		BaseContext: func(net.Listener) context.Context { return s.k.ctx }, // so that a cut ends each stream before it returns
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				ln.end()
			}
		},
	}
	srv.Protocols.SetHTTP2(true)
	return srv
}

// oneConn is a listener that has one connection, and ends with it.
type oneConn struct {
	c     net.Conn
	over  chan struct{}
	given bool
	once  sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return l.c, nil
	}
	<-l.over
	return nil, net.ErrClosed
}

func (l *oneConn) end()           { l.once.Do(func() { close(l.over) }) }
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.c.LocalAddr() }

// stream is one request.
func (s *session) stream(w http.ResponseWriter, q *http.Request) {
	s.k.touch()
	body := &held{from: q.Body}
	r, hasQuery := readH2(q)
	r.start = body.start
	if ref := s.stands(q, r); ref != nil {
		s.refuseH2(w, r, s.local(r, ref))
		return
	}
	v, ref := s.judge(q.Context(), r)
	if ref != nil {
		s.refuseH2(w, r, ref)
		return
	}
	defer s.settle(v)
	up, err := v.server.stream(q.Context(), v.fresh)
	if err != nil {
		e := notReached(v.server.key.to, err)
		if errors.Is(err, errNoH2) {
			s.k.s.servers.forget(v.server.key.to)
			e = wire.Refuse(wire.CodeVendorDown, "the server "+s.to.host.String()+" does not speak HTTP/2 any more", "connect again")
		}
		v.sent.Err = e
		s.refuseH2(w, r, refuse(e))
		return
	}
	gaveUp := false
	defer func() { v.server.done(up, gaveUp) }()
	out, e := s.outH2(q, r, v, hasQuery, body)
	if e == nil && s.k.isCut() {
		e = wire.Refuse(wire.CodeRevoked, "the request was cut", "")
	}
	if e != nil {
		up.Release()
		v.sent.Err = e
		s.refuseH2(w, r, refuse(e))
		return
	}
	// A cut from here on cancels the context, which is looked at again before the first byte is written. What comes before the answer
	// (103) goes nowhere: it would be passed on by the goroutine that reads for all streams of the server's connection.
	gaveUp = true
	resp, err := up.RoundTrip(out.WithContext(q.Context()))
	v.sent.Left = true
	if err != nil {
		v.sent.Out = body.count()
		gaveUp = q.Context().Err() == nil // a stream that the client ended is no fault of the server's
		if e := body.over(); e != nil {
			v.sent.Err = e
			s.refuseH2(w, r, refuse(e))
			return
		}
		v.sent.Err = s.noAnswer()
		if q.Context().Err() != nil {
			panic(http.ErrAbortHandler)
		}
		s.refuseH2(w, r, refuse(v.sent.Err))
		return
	}
	defer resp.Body.Close()
	v.sent.Status = resp.StatusCode
	err = s.backH2(w, resp, v, r)
	v.sent.Out = body.count()
	var own *wire.Error
	switch {
	case err == nil:
		gaveUp = false
		v.sent.Complete = true
	case errors.As(err, &own): // nothing of the answer is out
		v.sent.Err = own
		s.refuseH2(w, r, refuse(own))
	default:
		gaveUp = q.Context().Err() == nil
		v.sent.Err = wire.Refuse(wire.CodeVendorDown, "the answer ended before its end", "")
		if errors.Is(err, errMessage) {
			v.sent.Err = unsearchable("a message in it is compressed or none, which")
			v.server.feigns.Store(true)
		}
		panic(http.ErrAbortHandler) // resets the stream
	}
}

// readH2 is what a stream says. Its authority is held against the connection by stands.
func readH2(q *http.Request) (r *request, hasQuery bool) {
	r = &request{method: q.Method}
	for name, values := range q.Header {
		if name == "Host" {
			continue
		}
		for _, v := range values {
			r.Fields = append(r.Fields, head.Field{Name: name, Value: v})
		}
	}
	r.Path, r.Query, hasQuery = strings.Cut(q.RequestURI, "?")
	return r, hasQuery
}

// stands holds what a stream names against its connection.
func (s *session) stands(q *http.Request, r *request) *refusal {
	if q.Method == http.MethodConnect {
		return refuse(wire.Refuse(wire.CodeUsage, "CONNECT is no request of a site", "use a connection of HTTP/1.1 for WebSocket"))
	}
	names := append([]string{q.Host}, q.Header["Host"]...)
	for _, name := range names {
		said, err := guard.ParseAuthority(name, s.to.port)
		if e := same(s.to, ":authority", said, err); e != nil {
			return refuse(e)
		}
	}
	if !strings.HasPrefix(r.Path, "/") {
		return refuse(wire.Refuse(wire.CodeUsage, "the target is no path", ""))
	}
	for name := range q.Trailer { // others than these net/http lets go by
		if s.late(name) {
			return refuse(wire.Refuse(wire.CodeUsage, name+" is no field for behind the body", ""))
		}
	}
	return nil
}

// outH2 is the request as it goes to the server, its head counted as spent.
func (s *session) outH2(q *http.Request, r *request, v *verdict, hasQuery bool, body *held) (out *http.Request, spent *wire.Error) {
	out = &http.Request{Method: q.Method, Host: q.Host, Header: http.Header{}, ContentLength: q.ContentLength, Trailer: q.Trailer,
		URL: &url.URL{Scheme: "https", Host: s.to.String(), Opaque: r.Path, RawQuery: r.Query, ForceQuery: hasQuery}}
	for _, f := range r.Fields {
		out.Header[f.Name] = append(out.Header[f.Name], f.Value)
	}
	delete(out.Header, "Expect") // answered by the server's half of us
	delete(out.Header, "Content-Length")
	for _, name := range []string{"Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate"} { // meant for us, if for anybody
		delete(out.Header, name)
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{""} // or it would be said to be ours
	}
	if accept, ok := out.Header["Accept-Encoding"]; ok && v.scrub != nil {
		out.Header["Accept-Encoding"] = []string{narrowed(strings.Join(accept, ","))}
	}
	if v.scrub != nil {
		delete(out.Header, "Accept-Charset")
		for i, accept := range out.Header["Accept"] {
			out.Header["Accept"][i] = uncharted(accept)
		}
		for name := range out.Header {
			if compressesMessages(name) {
				out.Header[name] = []string{"identity"}
			}
		}
	}
	body.spend = s.spend
	body.touch = s.k.touch
	if out.Body = io.NopCloser(body); q.ContentLength == 0 {
		out.Body = http.NoBody
	}
	n := len(r.Path) + len(r.Query)
	for _, f := range r.Fields {
		n += len(f.Name) + len(f.Value)
	}
	if e := s.spend(n); e != nil {
		return nil, e
	}
	return out, nil
}

// copyHeader gives an answer's fields to the client. searched says that its body was searched.
func copyHeader(to, from http.Header, v *verdict, searched bool) {
	for name, values := range from {
		if ours(name) || searched && (untrue(name) || name == "Content-Encoding") || name == "Trailer" {
			continue
		}
		for _, value := range values {
			as := name
			if v.scrub != nil {
				var n, m int
				as, n = v.scrub.Text(name, "X-Scrubbed")
				value, m = v.scrub.Text(value, v.shown)
				v.sent.Swapped += n + m
			}
			to[as] = append(to[as], value)
		}
	}
}

// backH2 brings the answer. A *wire.Error is one of which nothing has gone to the client.
func (s *session) backH2(w http.ResponseWriter, resp *http.Response, v *verdict, r *request) error {
	hasBody := r.method != http.MethodHead && resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusNotModified &&
		resp.ContentLength != 0
	zipped := false
	if v.scrub != nil && hasBody {
		var e *wire.Error
		inner := slices.Concat(resp.Header["Grpc-Encoding"], resp.Header["Connect-Content-Encoding"])
		if zipped, e = searchable(strings.Join(resp.Header["Content-Encoding"], ","), strings.Join(resp.Header["Content-Type"], ","),
			strings.Join(inner, ","), resp.StatusCode); e != nil {
			return e
		}
	}
	h := w.Header()
	copyHeader(h, resp.Header, v, v.scrub != nil && hasBody)
	for _, name := range []string{"Date", "Content-Type"} { // or they would be made up
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
	w.WriteHeader(resp.StatusCode)
	flush := func() error { return http.NewResponseController(w).Flush() }
	if !hasBody {
		if len(resp.Trailer) == 0 {
			return nil
		}
	} else if err := flush(); err != nil { // an answer may let wait for its first byte
		return err
	}
	write := func(p []byte) error {
		s.k.touch()
		if _, err := w.Write(p); err != nil {
			return err
		}
		return flush()
	}
	if v.scrub != nil {
		in := searched{from: resp.Body, v: v, zipped: zipped, write: write}
		if resp.StatusCode == http.StatusOK {
			in.flags = messageFlags(resp.Header.Get("Content-Type"))
			in.rests = messageFlags(r.get("Content-Type")) != "" && resp.ContentLength < 0 && !v.server.feigns.Load()
		}
		if err := in.copy(); err != nil {
			return err
		}
	} else {
		buf := many.Get().(*[manyBytes]byte)
		defer many.Put(buf)
		for {
			n, err := resp.Body.Read(buf[:])
			v.sent.In += int64(n)
			if n > 0 {
				if err := write(buf[:n]); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
		}
	}
	trailers := http.Header{}
	copyHeader(trailers, resp.Trailer, v, false)
	for name, values := range trailers {
		h[http.TrailerPrefix+name] = values
	}
	return nil
}

// refuseH2 answers a stream ourselves; gRPC in its own words, without which a client only says that the status is odd.
func (s *session) refuseH2(w http.ResponseWriter, r *request, ref *refusal) {
	h := w.Header()
	clear(h)
	h.Set(ErrorHeader, string(ref.Code))
	h.Set("Cache-Control", "no-store")
	if r.grpc() {
		h.Set("Content-Type", "application/grpc")
		code := grpcDenied
		if ref.status >= 500 {
			code = grpcUnavailable
		}
		h.Set("Grpc-Status", code)
		h.Set("Grpc-Message", grpcMessage(ref.Error.Error()))
		w.WriteHeader(http.StatusOK)
		return
	}
	media, text := s.text(ref)
	h.Set("Content-Type", media)
	if ref.challenge != "" {
		h.Set("WWW-Authenticate", ref.challenge)
	}
	w.WriteHeader(ref.status)
	if r.method != http.MethodHead {
		_, _ = w.Write(text)
	}
}

// grpcMessage writes a text as grpc-message has it: percent-encoded but for visible ASCII.
func grpcMessage(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// held is a request's body whose beginning may be read before it is decided.
type held struct {
	from  io.ReadCloser
	ahead []byte
	end   error // behind ahead
	spend func(int) *wire.Error
	touch func()

	mu    sync.Mutex // guards what follows: net/http reads on another goroutine
	n     int64
	spent *wire.Error
}

func (b *held) start(n int) ([]byte, bool, error) {
	for len(b.ahead) <= n && b.end == nil {
		p := make([]byte, min(n+1-len(b.ahead), 64<<10))
		var k int
		k, b.end = b.from.Read(p)
		b.ahead = append(b.ahead, p[:k]...)
	}
	if b.end != nil && !errors.Is(b.end, io.EOF) {
		return nil, false, b.end
	}
	if len(b.ahead) > n {
		return b.ahead[:n], false, nil
	}
	return b.ahead, errors.Is(b.end, io.EOF), nil
}

func (b *held) Read(p []byte) (n int, err error) {
	if len(b.ahead) > 0 {
		n = copy(p, b.ahead)
		b.ahead = b.ahead[n:]
	} else if err = b.end; err == nil {
		n, err = b.from.Read(p)
	}
	b.touch()
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.spend(n); e != nil && n > 0 {
		b.spent = e
		return 0, e
	}
	b.n += int64(n)
	return n, err
}

func (b *held) count() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

func (b *held) over() *wire.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}
