// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2 is what a client of HTTP/2 sends: the settings, and each request's fields on a stream of its own, with a body.
func h2(t testing.TB, body string, requests ...[]string) []byte {
	t.Helper()
	var b, block bytes.Buffer
	fr, enc := http2.NewFramer(&b, nil), hpack.NewEncoder(&block)
	err := fr.WriteSettings()
	for i, fields := range requests {
		block.Reset()
		for j := 0; j < len(fields); j += 2 {
			err = firstOf(err, enc.WriteField(hpack.HeaderField{Name: fields[j], Value: fields[j+1]}))
		}
		id := uint32(2*i + 1)
		err = firstOf(err, fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: body == ""}))
		if body != "" {
			err = firstOf(err, fr.WriteData(id, true, []byte(body)))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// streamed has a server like serveH2's read those bytes, and gives what would go on to vendor-a.test. Without TLS, which changes nothing of
// what is read. The client waits for the end of n streams, or where that
// is 0 until all was read, and goes.
func streamed(t testing.TB, send []byte, n int, wait time.Duration) (out []*http.Request) {
	t.Helper()
	client, down := net.Pipe()
	s := &session{k: &conn{s: new(Server)}, to: target{host: host(t, "vendor-a.test"), port: 443}}
	s.k.ctx, s.k.cancel = context.WithCancel(context.Background())
	defer s.k.cancel()
	var mu sync.Mutex
	var handlers sync.WaitGroup
	ln := &oneConn{c: down, over: make(chan struct{})}
	srv := s.server(ln, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		r, hasQuery := readH2(q)
		if s.stands(q, r) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if q, e := s.outH2(q, r, new(verdict), hasQuery, &held{from: q.Body}); e == nil {
			out = append(out, q)
		}
	}))
	srv.Protocols.SetUnencryptedHTTP2(true)
	_ = client.SetDeadline(time.Now().Add(wait)) // what a server does not take it does not read
	ended := make(chan struct{})
	go func() {
		_, _ = io.WriteString(client, http2.ClientPreface)
		_, _ = client.Write(send)
		_ = http2.NewFramer(client, nil).WritePing(false, [8]byte{})
		select {
		case <-ended:
		case <-time.After(wait):
		}
		_ = client.Close()
		ln.end() // the server itself stays for a second behind what it does not take
	}()
	go func() {
		defer close(ended)
		fr := http2.NewFramer(nil, client)
		for left := n; ; {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			_, reset := f.(*http2.RSTStreamFrame)
			if reset || f.Header().Type == http2.FrameHeaders && f.Header().Flags.Has(http2.FlagHeadersEndStream) {
				left--
			}
			_, away := f.(*http2.GoAwayFrame)
			if _, pong := f.(*http2.PingFrame); away || left == 0 && (pong || n > 0) {
				return
			}
		}
	}()
	_ = srv.Serve(ln)
	time.Sleep(100 * time.Microsecond) // for a handler that has not begun; one that is missed here is another time's
	handlers.Wait()
	mu.Lock()
	defer mu.Unlock()
	return out
}

func TestAStreamNamesItsConnectionsHost(t *testing.T) {
	get := func(more ...string) []string {
		return append([]string{":method", "GET", ":scheme", "https", ":path", "/a?b"}, more...)
	}
	for _, c := range []struct {
		what   string
		fields []string
		want   int
	}{
		{"its own", get(":authority", "vendor-a.test"), 1},
		{"its own, with the port", get(":authority", "vendor-a.test:443"), 1},
		{"another", get(":authority", "evil.test"), 0},
		{"another port", get(":authority", "vendor-a.test:80"), 0},
		{"a Host besides", get(":authority", "vendor-a.test", "host", "evil.test"), 0},
		{"user info", get(":authority", "vendor-a.test@evil.test"), 0},
		{"none", get(), 0},
		{"CONNECT", []string{":method", "CONNECT", ":authority", "vendor-a.test:443"}, 0},
		{"no path", []string{":method", "GET", ":scheme", "https", ":path", "*", ":authority", "vendor-a.test"}, 0},
		{"a whole URL for a path", []string{":method", "GET", ":scheme", "https", ":path", "https://evil.test/", ":authority", "vendor-a.test"}, 0},
	} {
		if got := streamed(t, h2(t, "", c.fields), 1, time.Minute); len(got) != c.want {
			t.Errorf("%s: %d go on", c.what, len(got))
		}
	}
}

// FuzzH2: whatever a client says in HTTP/2, what goes on is for the connection's own host, with a path, in fields that HTTP/1.1 has too.
func FuzzH2(f *testing.F) {
	get := []string{":method", "GET", ":scheme", "https", ":path", "/a?b", ":authority", "vendor-a.test"}
	f.Add(h2(f, "", get, get))
	f.Add(h2(f, "hello", append(get, "trailer", "x-t", "te", "trailers", "cookie", "a=b")))
	f.Add(h2(f, "", append(get, "host", "evil.test", "connection", "x")))
	f.Add(h2(f, "", append(get[:6:6], ":authority", "evil.test"), []string{":method", "CONNECT", ":protocol", "websocket", ":authority", "vendor-a.test"}))
	f.Fuzz(func(t *testing.T, send []byte) {
		if len(send) > 8<<10 {
			return
		}
		for _, q := range streamed(t, send, 0, 5*time.Millisecond) {
			name, _, _ := strings.Cut(strings.ToLower(q.Host), ":")
			if strings.TrimSuffix(name, ".") != "vendor-a.test" || q.URL.Host != "vendor-a.test:443" || !strings.HasPrefix(q.URL.Opaque, "/") || q.Method == http.MethodConnect {
				t.Fatalf("%x goes on as %s %s %s", send, q.Method, q.Host, q.URL)
			}
			for field, values := range q.Header {
				for _, v := range values {
					if !httpguts.ValidHeaderFieldName(field) || !httpguts.ValidHeaderFieldValue(v) || field == "Host" || field == "Connection" {
						t.Fatalf("%x goes on with %q: %q", send, field, v)
					}
				}
			}
		}
	})
}
