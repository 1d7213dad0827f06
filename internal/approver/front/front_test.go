// SPDX-License-Identifier: Apache-2.0

package front

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// run serves a handler on a TCP socket of its own until the test ends.
func run(t *testing.T, h http.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Listener: Bounded(ln), Handler: h, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// One address has so many connections and no more, and gets them back as they end.
func TestOneAddressDoesNotTakeAllConnections(t *testing.T) {
	addr := run(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	ask := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost:8440\r\n\r\n"); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 204")))
		return err
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	var all []net.Conn
	for range maxOfAddress {
		c := dial()
		if err := ask(c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if ask(dial()) == nil {
		t.Error("one more is answered")
	}
	all[0].Close()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if ask(dial()) == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the place of one that ended is not given back")
		}
	}
}

func TestAllConnectionsTogetherAreBounded(t *testing.T) {
	b := &bounded{of: map[netip.Prefix]int{}}
	n := 0
	for i := range 2 * maxConns {
		a := netip.AddrFrom16([16]byte{0x20, 1, byte(i >> 8), byte(i)})
		if b.admit(network(&net.TCPAddr{IP: a.AsSlice(), Port: 1})) {
			n++
		}
	}
	if n != maxConns {
		t.Errorf("%d, want %d", n, maxConns)
	}
	one, two := &net.TCPAddr{IP: net.ParseIP("2001:db8::1")}, &net.TCPAddr{IP: net.ParseIP("2001:db8::ffff:2")}
	if network(one) != network(two) {
		t.Error("one host's /64 counts as many addresses")
	}
	if network(&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1")}) != network(&net.TCPAddr{IP: net.ParseIP("192.0.2.1").To4()}) {
		t.Error("a mapped address is another")
	}
	if network(&net.TCPAddr{IP: net.ParseIP("192.0.2.1")}) == network(&net.TCPAddr{IP: net.ParseIP("192.0.2.2")}) {
		t.Error("two hosts are one")
	}
}

// When the daemon stops, what waits for events does not hold it up.
func TestServeEndsWithItsContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var in sync.WaitGroup
	in.Add(1)
	s := &Server{Listener: ln, Log: slog.New(slog.DiscardHandler), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		in.Done()
		<-r.Context().Done()
	})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	in.Wait()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
}
