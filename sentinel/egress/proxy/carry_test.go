// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
)

// readRequest reads one request of a raw vendor.
func readRequest(br *bufio.Reader) (*http.Request, error) {
	r, err := http.ReadRequest(br)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return r, err
}

func TestNothingIsSentTwice(t *testing.T) {
	c := newCA(t)
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PROPFIND", "POST", "PUT", "DELETE"} {
		for name, f := range map[string]func(*tls.Conn, *bufio.Reader){
			"closed without an answer": func(*tls.Conn, *bufio.Reader) {},
			"half an answer": func(conn *tls.Conn, _ *bufio.Reader) {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
			},
			"nonsense":    func(conn *tls.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, secret+" is no answer\r\n\r\n") },
			"half a head": func(conn *tls.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: ") },
		} {
			var count atomic.Int32
			addr := rawVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(conn *tls.Conn, br *bufio.Reader) {
				for i := 0; ; i++ {
					r, err := readRequest(br)
					if err != nil {
						return
					}
					if r.URL.Path == "/first" { // so that the second comes on a connection that was in use
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
						continue
					}
					count.Add(1)
					f(conn, br)
					return
				}
			})
			w := newWorld(t)
			w.grant("g", c, addr, func(r *wire.ResolveResp) { r.Entry.Path = "/first" })
			w.grant("g", c, addr, func(r *wire.ResolveResp) {
				r.Entry.Method = method
				r.Entry.Header = []wire.Match{{Name: "Idempotency-Key", Values: []string{"1"}}}
			})
			host := fmt.Sprintf("vendor-a.test:%d", addr.Port())
			for range 2 {
				if _, _, err := w.do(w.request("GET", host, "/first", "g", 0, nil)); err != nil {
					t.Fatal(err)
				}
			}
			req := w.request(method, host, "/a", "g", 1, nil)
			req.Header.Set("Idempotency-Key", "1") // what makes Go's own transport repeat it
			if method == "HEAD" && name == "half an answer" {
				continue
			}
			// The raw connection, for Go's client repeats on its own side too.
			conn, br := w.dial()
			fmt.Fprint(conn, rawHead(method, host, "/a", "g", 1, "Idempotency-Key: 1\r\n"))
			resp, err := http.ReadResponse(br, req)
			var s wire.SentReq
			for _, r := range w.sent(3) {
				if r.Entry == "e1" {
					s = r
				}
			}
			if n := count.Load(); n != 1 {
				t.Errorf("%s, %s: sent %d times", method, name, n)
			}
			if s.Complete || !s.Left || s.Err == nil {
				t.Errorf("%s, %s: report %+v", method, name, s)
			}
			if name == "half an answer" {
				if err == nil {
					_, err = io.ReadAll(resp.Body)
				}
				if err == nil && resp.StatusCode == 200 {
					t.Errorf("%s: half an answer passes for a whole one", method)
				}
				continue
			}
			if err != nil || resp.StatusCode != 502 || resp.Header.Get(ErrorHeader) != string(wire.CodeUnknown) {
				t.Errorf("%s, %s: %v, %+v", method, name, err, resp)
				continue
			}
			b, _ := io.ReadAll(resp.Body)
			noSecret(t, string(b), w.log(), fmt.Sprint(s.Err))
		}
	}
}

func TestStaleConnectionsAreNotUsed(t *testing.T) {
	c := newCA(t)
	var conns, asked atomic.Int32
	ended := make(chan struct{}, 10)
	addr := rawVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(conn *tls.Conn, br *bufio.Reader) {
		conns.Add(1)
		if _, err := readRequest(br); err == nil { // one request, then the server closes without a word
			asked.Add(1)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
		_ = conn.Close()
		ended <- struct{}{}
	})
	w := newWorld(t)
	w.grant("g", c, addr, func(r *wire.ResolveResp) { r.Entry.Method = "POST" })
	for range 5 {
		if _, body, err := w.do(w.request("POST", fmt.Sprintf("vendor-a.test:%d", addr.Port()), "/a", "g", 0,
			nil)); err != nil || body != "ok" {
			t.Fatalf("%v, %q", err, body)
		}
		<-ended
		time.Sleep(5 * time.Millisecond) // for the end to reach our side of the loopback
	}
	if conns.Load() != 5 || asked.Load() != 5 {
		t.Errorf("%d connections, %d requests", conns.Load(), asked.Load())
	}
}

func TestWritesGetAFreshConnection(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(http.ResponseWriter, *http.Request) {})
	w := newWorld(t)
	w.grant("g", c, v.addr)
	w.grant("g", c, v.addr, func(r *wire.ResolveResp) { r.Entry.Method = "POST" })
	host := fmt.Sprintf("vendor-a.test:%d", v.addr.Port())
	ask := func(method string, entry int) {
		t.Helper()
		if _, _, err := w.do(w.request(method, host, "/a", "g", entry, nil)); err != nil {
			t.Fatal(err)
		}
	}
	ask("GET", 0)
	ask("POST", 1)
	if v.conns() != 1 {
		t.Errorf("a connection that was in use a moment ago was not used: %d", v.conns())
	}
	w.s.pools.mu.Lock()
	for _, p := range w.s.pools.parts {
		p.mu.Lock()
		for _, c := range p.idle {
			c.since = c.since.Add(-idleWrite - time.Second) // as if it had rested
		}
		p.mu.Unlock()
	}
	w.s.pools.mu.Unlock()
	ask("POST", 1)
	if v.conns() != 2 {
		t.Errorf("a write went over a connection that had rested: %d", v.conns())
	}
}

func TestServerThatSpeaksOnlyHTTP2(t *testing.T) {
	c := newCA(t)
	cert := c.leaf(t, hour(), "vendor-a.test")
	// Go's server takes a client without h2 as one that never heard of it; others send no_application_protocol.
	v := startVendor(t, cert, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		fmt.Fprint(w, "ok")
		w.Header().Set("Grpc-Status", "0")
	}, "h2")
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skipf("loopback skipped: %v", err)
	}
	defer front.Close()
	var refused atomic.Int32
	go func() {
		for {
			conn, err := front.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				hello := make([]byte, 16<<10)
				n, err := conn.Read(hello)
				if err != nil {
					return
				}
				if !bytes.Contains(hello[:n], []byte("\x02h2")) {
					refused.Add(1)
					_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, 120})
					return
				}
				back, err := net.Dial("tcp", v.addr.String())
				if err != nil {
					return
				}
				defer back.Close()
				_, _ = back.Write(hello[:n])
				go func() { _, _ = io.Copy(conn, back) }()
				_, _ = io.Copy(back, conn)
			}()
		}
	}()
	w := newWorld(t)
	addr := front.Addr().(*net.TCPAddr).AddrPort()
	w.grant("g", c, addr)
	for range 3 {
		resp, body, err := w.get(addr, "/a", "g")
		if err != nil || body != "ok" || resp.Trailer.Get("Grpc-Status") != "0" {
			t.Fatalf("%v, %q, %v", err, body, resp)
		}
	}
	if refused.Load() != 1 || v.conns() != 1 {
		t.Errorf("%d refused handshakes, %d connections", refused.Load(), v.conns())
	}
	for _, s := range v.seen() {
		if s.Proto != "HTTP/2.0" {
			t.Errorf("over %s", s.Proto)
		}
	}
}

func TestManyAtOnceMoveToHTTP2(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(50 * time.Millisecond)
	})
	w := newWorld(t, func(s *Server) { s.H2After = 4 })
	w.grant("g", c, v.addr)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if _, _, err := w.get(v.addr, "/a", "g"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	protos := map[string]int{}
	for _, s := range v.seen() {
		protos[s.Proto]++
	}
	if protos["HTTP/1.1"] == 0 || protos["HTTP/2.0"] == 0 || v.conns() > 40 {
		t.Errorf("%v over %d connections", protos, v.conns())
	}
	w.sent(40)
}

func TestAnswersThatCannotBeScrubbedAreRefused(t *testing.T) {
	c := newCA(t)
	zip := func(s string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, s)
		_ = z.Close()
		return b.Bytes()
	}
	for name, x := range map[string]struct {
		h    func(http.ResponseWriter)
		code wire.Code
	}{
		"br": {func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "br"); fmt.Fprint(w, "x") },
			wire.CodeUnknown},
		"deflate": {func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "deflate"); fmt.Fprint(w, "x") },
			wire.CodeUnknown},
		"gzip twice": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip, gzip")
			_, _ = w.Write(zip(string(zip(secret))))
		}, wire.CodeUnknown},
		"says gzip": {func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "gzip"); fmt.Fprint(w, "x") },
			wire.CodeUnknown},
		"a part of gzip": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(206)
			_, _ = w.Write(zip(secret)[5:])
		}, wire.CodeUnknown},
		"too large": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "2000")
			_, _ = w.Write(make([]byte, 2000))
		}, wire.CodeTooLarge},
		"too large when unpacked": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			b := zip(strings.Repeat("x", 2000))
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			_, _ = w.Write(b)
		}, wire.CodeTooLarge},
	} {
		v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) { x.h(w) })
		for _, h2 := range []int{16, -1} {
			w := newWorld(t, func(s *Server) { s.H2After = h2 })
			w.grant("g", c, v.addr, func(r *wire.ResolveResp) { r.Entry.MaxIn = 1000 })
			resp, body, err := w.get(v.addr, "/a", "g")
			if h2 == 16 || name != "too large when unpacked" { // over HTTP/2 its head may be out already
				w.wantRefusal(err, x.code, 502, resp)
			} else if err == nil {
				t.Errorf("%s: passed", name)
			}
			if len(body) > 500 {
				t.Errorf("%s: %d bytes came through", name, len(body))
			}
			if s := w.sent(1)[0]; s.Complete || !s.Left || s.Err == nil {
				t.Errorf("%s: report %+v", name, s)
			}
		}
	}
}

func TestLargeAnswersStreamInConstantMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("200 MB each way; skipped in short mode")
	}
	c := newCA(t)
	size := int64(200 << 20)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = io.Copy(w, struct{ io.Reader }{&endless{size}})
	})
	for _, h2 := range []int{16, -1} {
		if h2 < 0 {
			size = 30 << 20
		}
		w := newWorld(t, func(s *Server) { s.H2After = h2 })
		w.grant("g", c, v.addr, func(r *wire.ResolveResp) { r.Entry.MaxIn = size })
		resp, err := w.client.Do(w.request("GET", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", "g", 0, nil))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n, err := io.Copy(io.Discard, resp.Body)
		runtime.ReadMemStats(&after)
		_ = resp.Body.Close()
		if err != nil || n != size {
			t.Errorf("%d bytes, %v", n, err)
		}
		if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 16<<20 {
			t.Errorf("%d bytes were allocated", grown)
		}
		if s := w.sent(1)[0]; s.In != size || !s.Complete {
			t.Errorf("report %+v", s)
		}
	}
}

func TestCutEndsWhatItNames(t *testing.T) {
	c := newCA(t)
	arrived := make(chan struct{}, 10)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "begun\n")
			_ = http.NewResponseController(w).Flush()
		}
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	for _, h2 := range []int{16, -1} {
		for name, ref := range map[string]wire.GrantRef{
			"grant": {Grant: "g"}, "cell": {Cell: "work"}, "account": {Account: "acct"}, "all": {All: true},
		} {
			for _, path := range []string{"/wait", "/stream"} {
				w := newWorld(t, func(s *Server) { s.H2After = h2 })
				w.grant("g", c, v.addr, func(r *wire.ResolveResp) { r.Entry.Path = path })
				w.s.follow.remember("g", "work", "acct", "e0", mustURL(t, "https://vendor-a.test/"))
				ended := make(chan error, 1)
				go func() {
					resp, body, err := w.get(v.addr, path, "g")
					if path == "/wait" {
						w.wantRefusal(err, wire.CodeUnknown, 403, resp)
					} else if err == nil {
						t.Errorf("%s: the stream ended as if whole: %q", name, body)
					}
					ended <- err
				}()
				<-arrived
				// Others are not touched.
				for _, other := range []wire.GrantRef{{Grant: "g2"}, {Cell: "home"}, {Account: "other"}, {}} {
					if _, err := w.s.Cut(t.Context(), nil, &other); err != nil {
						t.Fatal(err)
					}
				}
				select {
				case err := <-ended:
					t.Fatalf("%s: ended by another's cut: %v", name, err)
				case <-time.After(20 * time.Millisecond):
				}
				if _, err := w.s.Cut(t.Context(), nil, &ref); err != nil {
					t.Fatal(err)
				}
				<-ended
				if s := w.sent(1)[0]; s.Complete || !s.Left || s.Err == nil || s.Err.Code != wire.CodeUnknown {
					t.Errorf("%s: report %+v", name, s)
				}
				if w.s.follow.find("g", "e0", "vendor-a.test", "/", "") != nil {
					t.Errorf("%s: a Location of it is still followed", name)
				}
			}
		}
	}
}

func TestCutBetweenResolveAndConnect(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(http.ResponseWriter, *http.Request) {})
	w := newWorld(t)
	w.grant("g", c, v.addr)
	inner := w.s.Resolve
	w.s.Resolve = func(ctx context.Context, req *wire.ResolveReq) (*wire.ResolveResp, error) {
		resp, err := inner(ctx, req)
		_, _ = w.s.Cut(ctx, nil, &wire.GrantRef{Cell: "work"}) // while authd's answer is on its way
		return resp, err
	}
	resp, _, err := w.get(v.addr, "/a", "g")
	w.wantRefusal(err, wire.CodeRevoked, 403, resp)
	if v.conns() != 0 {
		t.Error("it left")
	}
}

func TestWorkerThatGoesAwayEndsItsRequest(t *testing.T) {
	c := newCA(t)
	gone := make(chan struct{})
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(gone)
	})
	w := newWorld(t)
	w.grant("g", c, v.addr)
	conn, _ := w.dial()
	fmt.Fprint(conn, rawHead("GET", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", "g", 0, ""))
	for len(v.seen()) == 0 {
		time.Sleep(time.Millisecond)
	}
	_ = conn.Close()
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Error("the request goes on without anybody to answer to")
	}
	if s := w.sent(1)[0]; !s.Left || s.Complete {
		t.Errorf("report %+v", s)
	}
}

func TestServerThatAnswersBeforeItHasReadAll(t *testing.T) {
	c := newCA(t)
	for _, closes := range []bool{true, false} {
		addr := rawVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(conn *tls.Conn, br *bufio.Reader) {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, r.Body, 1000)
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
			if !closes {
				time.Sleep(3 * time.Second) // it reads no further, and does not close either
			}
		})
		w := newWorld(t)
		const size = 40 << 20
		w.grant("g", c, addr, func(r *wire.ResolveResp) {
			r.Entry.Method, r.Entry.Body = "PUT", wire.Body{Media: "text/plain", File: &wire.FileBody{Size: size}}
		})
		req := w.request("PUT", fmt.Sprintf("vendor-a.test:%d", addr.Port()), "/a", "g", 0, &endless{size})
		req.ContentLength = size
		req.Header.Set("Content-Type", "text/plain")
		resp, body, err := w.do(req)
		if closes {
			// A reset may overtake the answer; then the end is unknown, and said so.
			if s := w.sent(1)[0]; !s.Left || err == nil && (resp.StatusCode != 413 || body != "no!") {
				t.Errorf("%v, %+v, report %+v", err, resp, s)
			}
		} else if err != nil || resp.StatusCode != 413 || body != "no!" {
			t.Errorf("%v, %+v, %q", err, resp, body)
		}
	}
}

// A server that answers 200 before it has the body vouches for nothing: a body that is another, or breaks off, ends in an
// error, over both versions of HTTP.
func TestServerThatAnswersWellBeforeTheBody(t *testing.T) {
	c := newCA(t)
	for _, proto := range []string{"http/1.1", "h2"} {
		v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.WriteHeader(200)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(io.Discard, r.Body)
		}, proto)
		v.forget = true
		w := newWorld(t)
		file := bytes.Repeat([]byte("x"), 900<<10)
		w.grant("g", c, v.addr, func(r *wire.ResolveResp) {
			r.Entry.Method = "PUT"
			r.Entry.Body = wire.Body{Media: "text/plain", File: &wire.FileBody{SHA256: wire.Sum(file), Size: int64(len(file))}}
		})
		other := append(bytes.Repeat([]byte("x"), len(file)-1), 'y')
		for i, body := range [][]byte{file, other, file} {
			req := w.request("PUT", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", "g", 0, bytes.NewReader(body))
			req.ContentLength = int64(len(body))
			req.Header.Set("Content-Type", "text/plain")
			resp, _, err := w.do(req)
			s := w.sent(i + 1)[i]
			if good := i != 1; good != (err == nil && resp.StatusCode == 200 && resp.Header.Get("Doorward-Error") == "") || good != (s.Err == nil) {
				t.Errorf("%s, body %d: %v, %v, report %+v", proto, i, err, resp, s)
			}
		}
	}
}

func TestInterimAnswersAndKeepAliveHints(t *testing.T) {
	c := newCA(t)
	var conns atomic.Int32
	addr := rawVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(conn *tls.Conn, br *bufio.Reader) {
		conns.Add(1)
		for {
			if _, err := readRequest(br); err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: "+secret+"\r\n\r\n"+
				"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	w := newWorld(t)
	w.grant("g", c, addr)
	for range 3 {
		if resp, body, err := w.get(addr, "/a", "g"); err != nil || body != "ok" || resp.Header.Get("Keep-Alive") != "" {
			t.Fatalf("%v, %q", err, body)
		}
	}
	if conns.Load() != 3 {
		t.Errorf("%d connections: the server's own limit was not kept", conns.Load())
	}
}

func TestHeadAndEmptyAnswers(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.Header().Set("ETag", `"x"`)
			w.WriteHeader(304)
		default:
			w.Header().Set("Content-Length", "1234")
		}
	})
	for _, h2 := range []int{16, -1} {
		w := newWorld(t, func(s *Server) { s.H2After = h2 })
		conn, br := w.dial()
		for i, x := range []struct{ method, path, length string }{{"HEAD", "/a", "1234"}, {"GET", "/204", ""}, {"GET",
			"/304", ""}} {
			w.grant("g", c, v.addr, func(r *wire.ResolveResp) { r.Entry.Method, r.Entry.Path = x.method, x.path })
			fmt.Fprint(conn, rawHead(x.method, fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), x.path, "g", i, ""))
			resp, err := http.ReadResponse(br, &http.Request{Method: x.method})
			if err != nil || resp.Header.Get("Content-Length") != x.length {
				t.Fatalf("%s %s: %v, %+v", x.method, x.path, err, resp)
			}
			if b, err := io.ReadAll(resp.Body); len(b) > 0 || err != nil {
				t.Errorf("%s %s: %q, %v", x.method, x.path, b, err)
			}
		}
	}
}

func TestPlainHTTPOnlyToAPermittedLoopback(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skipf("loopback skipped: %v", err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }),
		ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	addr := ln.Addr().(*net.TCPAddr).AddrPort()
	w := newWorld(t)
	plain := func(permits ...string) func(*wire.ResolveResp) {
		return func(r *wire.ResolveResp) { r.Entry.Scheme, r.Entry.Host, r.Permit = "http", "127.0.0.1", permits }
	}
	w.grant("ok", newCA(t), addr, plain(addr.String()))
	if _, body, err := w.do(w.request("GET", addr.String(), "/a", "ok", 0, nil)); err != nil || body != addr.String() {
		t.Errorf("%v, %q", err, body)
	}
	w.grant("no", newCA(t), addr, plain())
	resp, _, err := w.do(w.request("GET", addr.String(), "/a", "no", 0, nil))
	w.wantRefusal(err, wire.CodeBadTarget, 502, resp)
}

func TestOnlyWorkersAreServed(t *testing.T) {
	for name, who := range map[string]peertest.As{"cell": peertest.Cell("work", "payload"),
		"person":   peertest.Person(1000),
		"sentinel": peertest.Daemon("sentinel"), "nobody": {}} {
		w := newWorld(t, func(s *Server) {
			l := s.Listener.(*peer.Listener)
			s.Listener = &relabel{l, peer.Identity(who)}
		})
		conn, br := w.dial()
		fmt.Fprint(conn, rawHead("GET", "vendor-a.test", "/a", "g", 0, ""))
		if b, _ := io.ReadAll(br); len(b) > 0 {
			t.Errorf("%s got an answer: %q", name, b)
		}
	}
}

// relabel gives another identity to every connection.
type relabel struct {
	*peer.Listener
	who peer.Identity
}

func (r *relabel) Accept() (*peer.Conn, error) {
	c, err := r.Listener.Accept()
	if err == nil {
		c.Peer = r.who
	}
	return c, err
}

func TestManyHostsDoNotKeepOthersOut(t *testing.T) {
	ps := pools{parts: map[partKey]*partition{}}
	for i := range maxPartition + 10 {
		p, err := ps.get(partKey{account: fmt.Sprint(i), plain: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		p.used = time.Unix(int64(i), 0)
		if i == 3 {
			p.busy++ // a request uses it
		}
		p.mu.Unlock()
	}
	if len(ps.parts) != maxPartition || ps.parts[partKey{account: "3", plain: true}] == nil ||
		ps.parts[partKey{account: "0", plain: true}] != nil {
		t.Errorf("%d partitions", len(ps.parts))
	}
}
