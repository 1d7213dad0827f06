// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a server says before its answer (RFC 8297) goes to a client of HTTP/1.1 and to none of HTTP/2; that a body may come is said to
// both.
func TestHints(t *testing.T) {
	r := newReader(t)
	port := r.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		n, _ := io.Copy(io.Discard, q.Body)
		fmt.Fprint(w, n)
	}), "vendor-a.test")
	r.reads("vendor-a.test", nil)
	for _, h2 := range []bool{false, true} {
		c := r.client(h2)
		c.Transport.(*http.Transport).ExpectContinueTimeout = 30 * time.Second
		hints, mayGo := 0, false
		q, _ := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			Got100Continue: func() { mayGo = true },
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				if code == http.StatusEarlyHints {
					hints++
				}
				return nil
			},
		}), "POST", site("vendor-a.test", port)+"/", strings.NewReader("hello"))
		q.Header.Set("Expect", "100-continue")
		begun := time.Now()
		resp, err := c.Do(q)
		if err != nil {
			t.Fatal(h2, err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(b) != "5" || resp.Header.Get("Link") != "" || time.Since(begun) > 20*time.Second {
			t.Errorf("h2 %v: %q, %v, %v after %s", h2, b, err, resp.Header, time.Since(begun))
		}
		if hints != map[bool]int{false: 1, true: 0}[h2] || !mayGo {
			t.Errorf("h2 %v: %d hints, 100-continue %v", h2, hints, mayGo)
		}
	}
}

// A server that hints without end to a client that reads nothing holds nobody else up.
func TestHintsWithoutEndHoldNobodyUp(t *testing.T) {
	r := newReader(t)
	port := r.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/early" {
			return
		}
		for i := range 400 {
			w.Header().Set(fmt.Sprintf("X-Early-%d", i), strings.Repeat("y", 100))
		}
		for q.Context().Err() == nil {
			w.WriteHeader(http.StatusEarlyHints)
		}
	}), "vendor-a.test")
	r.reads("vendor-a.test", nil)
	get(t, r.client(true), "GET", site("vendor-a.test", port)+"/", nil) // control
	deaf := r.tls("vendor-a.test", port, protocolH2)
	_, _ = io.WriteString(deaf, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	_, _ = deaf.Write(h2(t, "", []string{":method", "GET", ":scheme", "https", ":path", "/early",
		":authority", fmt.Sprintf("vendor-a.test:%d", port)}))
	time.Sleep(time.Second)
	other := r.client(true)
	other.Timeout = 15 * time.Second
	get(t, other, "GET", site("vendor-a.test", port)+"/", nil)
}

// A server that hints while it is sent a body, and resets its connection, ends that request and no more: a panic on the goroutine
// that reads its connection would be the end of all of egress.
func TestHintsAndAResetEndOneRequest(t *testing.T) {
	r := newReader(t)
	ln := r.beyond()
	var conns sync.Map
	srv := &http.Server{ErrorLog: quietLog(), Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == "GET" {
			return
		}
		for i := range 1500 {
			w.Header().Set(fmt.Sprintf("X-Early-%d", i), "https://vendor-a.test/%41%42%43&amp;"+fmt.Sprint(i))
		}
		for end := time.Now().Add(10 * time.Millisecond); q.Context().Err() == nil && time.Now().Before(end); {
			w.WriteHeader(http.StatusEarlyHints)
		}
		if c, ok := conns.Load(q.RemoteAddr); ok {
			reset(c.(*net.TCPConn))
		}
	})}
	srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{r.leaf("vendor-a.test")}}
	go func() { _ = srv.ServeTLS(keeping{ln, &conns}, "", "") }()
	t.Cleanup(func() { _ = srv.Close() })
	port := r.site("vendor-a.test", ln.Addr())
	r.reads("vendor-a.test", &bearerPlace)
	stop := time.Now().Add(2 * time.Second)
	var tasks sync.WaitGroup
	for range 4 {
		c := r.client(true)
		c.Timeout = 3 * time.Second
		for range 4 {
			tasks.Go(func() {
				for time.Now().Before(stop) {
					q, _ := http.NewRequest("POST", site("vendor-a.test", port)+"/", io.MultiReader(endless{}))
					q.Header.Set("Authorization", "Bearer "+surrogateA)
					if resp, err := c.Do(q); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				}
			})
		}
	}
	tasks.Wait()
	status, _, _ := get(t, r.client(true), "GET", site("vendor-a.test", port)+"/", nil, "Authorization", "Bearer "+surrogateA)
	if status != 200 {
		t.Errorf("a request after it: %d", status)
	}
}

// keeping knows the connections it gave out, by the address of the other side.
type keeping struct {
	net.Listener
	all *sync.Map
}

func (k keeping) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.all.Store(c.RemoteAddr().String(), c)
	}
	return c, err
}
