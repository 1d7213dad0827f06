// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

// tcpPair is the two ends of a connection.
func tcpPair(t testing.TB) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); _ = s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// forwarded is what a server of vendor-a.test gets of what a client in the cell sends, in HTTP; nil where sentinel is not even
// asked.
func forwarded(t testing.TB, send []byte) []byte {
	t.Helper()
	client, down := tcpPair(t)
	up, server := tcpPair(t)
	k := &conn{s: new(Server), down: down, src: source{c: down}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	defer k.cancel()
	go func() { _, _ = client.Write(send); _ = client.CloseWrite(); _, _ = io.Copy(io.Discard, client) }()
	f, err := k.src.front(false)
	if err != nil || f.begins != wire.BeginsHTTP {
		return nil
	}
	to := target{port: 80}
	if to.host, err = guard.ParseHost("vendor-a.test"); err != nil {
		t.Fatal(err)
	}
	a, refusal := agree(to, f)
	if refusal != nil || a.page || a.connect {
		return nil
	}
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(server)
		_ = server.Close()
		got <- b
	}()
	c := carriage{k: k, up: up}
	if f.http.Upgrade != "" { // whose answer is waited for
		return nil
	}
	if _, err := c.requests(to, a, f.http); err != nil {
		c.abort(up)
	}
	_ = up.Close()
	return <-got
}

// FuzzRequests: whatever a client sends on one connection, another reader of HTTP finds in what goes on no request that is for
// another host, and none that we did not see.
func FuzzRequests(f *testing.F) {
	const get = "GET / HTTP/1.1\r\nHost: vendor-a.test\r\n"
	for _, s := range []string{
		get + "\r\n" + get + "\r\n",
		get + "\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		get + "Content-Length: 5\r\n\r\nhello" + get + "\r\n",
		get + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: x\r\n\r\n" + get + "\r\n",
		get + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		get + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		get + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		get + "Content-Length: 40\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"POST http://vendor-a.test/ HTTP/1.1\r\nHost: vendor-a.test\r\nContent-Length: 0\r\n\r\n" + get + "\r\n",
		"GET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, send []byte) {
		if len(send) > 8<<10 {
			return
		}
		got := forwarded(t, send)
		r := bufio.NewReader(bytes.NewReader(got))
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			name, _, _ := strings.Cut(strings.ToLower(req.Host), ":")
			if name = strings.TrimSuffix(name, "."); name != "vendor-a.test" && (name != "" || req.ProtoMinor > 0) {
				t.Fatalf("%q goes on as %q, with a request for %q", send, got, req.Host)
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
		}
	})
}
