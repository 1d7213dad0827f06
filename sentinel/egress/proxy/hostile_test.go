// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// frame writes one frame of HTTP/2 (RFC 9113, section 4.1).
func frame(w io.Writer, kind, flags byte, stream uint32, body []byte) error {
	b := make([]byte, 9, 9+len(body))
	binary.BigEndian.PutUint32(b, uint32(len(body))<<8)
	b[3], b[4] = kind, flags
	binary.BigEndian.PutUint32(b[5:], stream)
	_, err := w.Write(append(b, body...))
	return err
}

// rawH2 serves connections of HTTP/2 by serve, which gets each behind the client's preface.
func rawH2(t *testing.T, c *ca, serve func(net.Conn)) netip.AddrPort {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{c.leaf(t, hour(), "vendor-a.test")},
		NextProtos: []string{"h2"}})
	if err != nil {
		t.Skipf("loopback skipped: %v", err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.CopyN(io.Discard, conn, 24)
				serve(conn)
			}()
		}
	}()
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// A server that sends frames without end that are no answer is dropped with the request that was given up: it does not
// keep egress reading, and the next request is not put on the same connection.
func TestAnHTTP2FloodEndsWithItsRequest(t *testing.T) {
	c := newCA(t)
	var flood atomic.Bool
	begun, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	serve := func(conn net.Conn) {
		_ = frame(conn, 4, 0, 0, nil)
		var head [9]byte
		for {
			if _, err := io.ReadFull(conn, head[:]); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[:])>>8)); err != nil {
				return
			}
			if head[3] != 1 { // HEADERS
				continue
			}
			stream := binary.BigEndian.Uint32(head[5:])
			if !flood.Load() {
				_ = frame(conn, 1, 5, stream, []byte{0x88}) // 200, and the end
				continue
			}
			_ = frame(conn, 1, 0, stream, []byte{0x88})
			begun <- struct{}{}
			for frame(conn, 9, 0, stream, nil) == nil { // CONTINUATION
			}
			ended <- struct{}{}
			return
		}
	}
	addr := rawH2(t, c, serve)
	w := newWorld(t, func(s *Server) { s.H2After = -1 })
	w.grant("g", c, addr)
	w.grant("flood", c, addr)
	if resp, _, err := w.get(addr, "/a", "g"); err != nil || resp.StatusCode != 200 { // control
		t.Fatalf("control: %v, %+v", err, resp)
	}
	flood.Store(true)
	done := make(chan error, 1)
	go func() {
		_, _, err := w.get(addr, "/a", "flood")
		done <- err
	}()
	<-begun
	flood.Store(false)
	if _, err := w.s.Cut(t.Context(), nil, &wire.GrantRef{Grant: "flood"}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the flood passed for an answer")
	}
	if resp, _, err := w.get(addr, "/a", "g"); err != nil || resp.StatusCode != 200 {
		t.Errorf("the next request: %v, %+v", err, resp)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the server still floods")
	}
}

// A compressed answer of which nothing comes out is read only so far.
func TestAnAnswerOfNothingEnds(t *testing.T) {
	c := newCA(t)
	var empty bytes.Buffer
	_ = gzip.NewWriter(&empty).Close()
	many := bytes.Repeat(empty.Bytes(), 1000)
	full := func(more int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			for i := 0; more < 0 || i < more; i++ {
				if _, err := w.Write(many); err != nil {
					return
				}
			}
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, "whole")
			_ = z.Close()
		}
	}
	get := func(more int) (string, wire.SentReq, error) {
		v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), full(more))
		w := newWorld(t)
		w.grant("g", c, v.addr, func(r *wire.ResolveResp) { r.Entry.MaxIn = 100 << 10 })
		_, body, err := w.get(v.addr, "/a", "g")
		return body, w.sent(1)[0], err
	}
	if body, s, err := get(1); err != nil || body != "whole" || !s.Complete { // control: some of it is well
		t.Errorf("control: %q, %v, %+v", body, err, s)
	}
	if body, s, err := get(-1); err == nil || s.Err == nil || s.Err.Code != wire.CodeTooLarge {
		t.Errorf("%q, %v, %+v", body, err, s)
	}
}

// Where the beginning of an answer is out already, the worker learns that it is too large by getting more than it may
// have. What may be the beginning of the credential does not go out with it.
func TestTooLargeIsToldByOneBlockMore(t *testing.T) {
	c := newCA(t)
	const limit = 100 << 10
	for _, at := range []int{1, len(secret) / 2, len(secret) - 1} { // of the credential before the block's end
		text := strings.Repeat(".", limit)
		v := rawVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w *tls.Conn, br *bufio.Reader) {
			if _, err := readRequest(br); err != nil {
				return
			}
			fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", limit, text)
			time.Sleep(50 * time.Millisecond)
			part := "..." + secret[:at]
			fmt.Fprintf(w, "%x\r\n%s\r\n", len(part), part)
			time.Sleep(50 * time.Millisecond)
			fmt.Fprintf(w, "%x\r\n%s\r\n0\r\n\r\n", len(secret)-at, secret[at:])
		})
		w := newWorld(t)
		w.grant("g", c, v, func(r *wire.ResolveResp) { r.Entry.MaxIn = limit })
		_, body, err := w.get(v, "/a", "g")
		if err == nil || len(body) <= limit || len(body) > limit+blockSize {
			t.Errorf("%d bytes of at most %d came through, %v", len(body), limit, err)
		}
		if strings.Contains(body, secret[:at]) {
			t.Errorf("the first %d bytes of the credential came through", at)
		}
		if s := w.sent(1)[0]; s.Err == nil || s.Err.Code != wire.CodeTooLarge {
			t.Errorf("report %+v", s)
		}
	}
}

// A server that ends its answer before it has the body, and reads on, vouches for nothing: a body that turns out another
// ends in an error.
func TestAnHTTP2AnswerThatEndsBeforeTheBody(t *testing.T) {
	c := newCA(t)
	serve := func(conn net.Conn) {
		_ = frame(conn, 4, 0, 0, []byte{0, 4, 0x7f, 0xff, 0xff, 0xff}) // as much of a body as it likes
		_ = frame(conn, 8, 0, 0, []byte{0x7f, 0, 0, 0})
		var head [9]byte
		for {
			if _, err := io.ReadFull(conn, head[:]); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[:])>>8)); err != nil {
				return
			}
			if head[3] == 1 { // HEADERS: 200, and the end
				_ = frame(conn, 1, 5, binary.BigEndian.Uint32(head[5:]), []byte{0x88})
			}
		}
	}
	addr := rawH2(t, c, serve)
	w := newWorld(t, func(s *Server) { s.H2After = -1 })
	file := bytes.Repeat([]byte("x"), 900<<10)
	w.grant("g", c, addr, func(r *wire.ResolveResp) {
		r.Entry.Method = "PUT"
		r.Entry.Body = wire.Body{Media: "text/plain", File: &wire.FileBody{SHA256: wire.Sum(file), Size: int64(len(file))}}
	})
	for i, last := range []string{"x", "y"} {
		body := io.MultiReader(bytes.NewReader(file[1:]), &late{last})
		req := w.request("PUT", fmt.Sprintf("vendor-a.test:%d", addr.Port()), "/a", "g", 0, body)
		req.ContentLength = int64(len(file))
		req.Header.Set("Content-Type", "text/plain")
		resp, _, err := w.do(req)
		s := w.sent(i + 1)[i]
		good := err == nil && resp.StatusCode == 200 && resp.Header.Get("Doorward-Error") == "" && s.Err == nil
		if good != (last == "x") {
			t.Errorf("last byte %s: %v, %+v, report %+v", last, err, resp, s)
		}
	}
}

// late is read a while after what came before it.
type late struct{ s string }

func (l *late) Read(p []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	n := copy(p, l.s)
	if l.s = l.s[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// A taken-over worker sees where an answer is broken into pieces, and who may write something at the vendor decides what
// it says. The two together must not learn the credential letter by letter: a piece that ends like the credential begins
// comes just as any other.
func TestPiecesTellNothingOfTheCredential(t *testing.T) {
	c := newCA(t)
	var stored atomic.Value
	v := rawVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w *tls.Conn, br *bufio.Reader) {
		for {
			if _, err := readRequest(br); err != nil {
				return
			}
			text, _ := stored.Load().(string)
			fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(text), text)
			time.Sleep(20 * time.Millisecond)
			fmt.Fprint(w, "1\r\n.\r\n0\r\n\r\n")
		}
	})
	w := newWorld(t)
	w.grant("g", c, v)
	first := func(guess string) string { // the size of the first piece of a text that ends in guess
		t.Helper()
		stored.Store(strings.Repeat(".", 20000) + guess)
		conn, br := w.dial()
		defer conn.Close()
		_, _ = io.WriteString(conn, rawHead("GET", fmt.Sprintf("vendor-a.test:%d", v.Port()), "/a", "g", 0, ""))
		for line := "-"; line != "\r\n"; {
			var err error
			if line, err = br.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		size, err := br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(size)
	}
	for _, n := range []int{1, 6, 20, len(secret) - 1} {
		right, wrong := first(secret[:n]), first(strings.Repeat("!", n))
		if right != wrong {
			t.Errorf("the credential's first %d letters: a piece of 0x%s, other letters: 0x%s", n, right, wrong)
		}
	}
	// Control: the worker does see what differs. The credential as a whole is taken out, and that it may see.
	if got := first(secret); got == first(strings.Repeat("!", len(secret))) {
		t.Errorf("control: the credential and other text both come in a piece of 0x%s", got)
	}
}

// A control byte in a header's value reaches the worker as a blank, so what is searched for the credential is that.
func TestAPasswordWithABlankDoesNotComeWithATab(t *testing.T) {
	c := newCA(t)
	const password = "abcd efgh ijkl mnop"
	tabs := strings.ReplaceAll(password, " ", "\t")
	v := rawVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w *tls.Conn, br *bufio.Reader) {
		if _, err := readRequest(br); err != nil {
			return
		}
		fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nX-Plain: %s\r\nX-Echo: %s\r\nX-Other: a\tb\r\nTransfer-Encoding: chunked\r\n"+
			"Trailer: X-After\r\n\r\n0\r\nX-After: %s\r\n\r\n", password, tabs, tabs)
	})
	w := newWorld(t)
	w.grant("g", c, v, func(r *wire.ResolveResp) { r.Scrub = []string{password} })
	resp, _, err := w.get(v, "/a", "g")
	if err != nil {
		t.Fatal(err)
	}
	if all := fmt.Sprint(resp.Header, resp.Trailer); strings.Contains(all, password) || strings.Count(all, sur) != 3 ||
		resp.Header.Get("X-Other") != "a b" { // control: another such value comes through
		t.Error(all)
	}
}

// Egress bears witness to what the worker got: digest and ETag of the answer, after scrubbing, and none of one too long.
func TestTheReportBearsWitnessToTheAnswer(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+secret+`"`)
		size := len("x")
		switch r.URL.Path {
		case "/long":
			size = wire.MaxWitness + 1
		case "/longest":
			size = wire.MaxWitness - len(secret)
		}
		if r.URL.Path == "/zipped" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			fmt.Fprint(z, "before "+secret+" after")
			_ = z.Close()
			return
		}
		fmt.Fprint(w, secret+strings.Repeat("x", size-1)+"!")
	})
	w := newWorld(t)
	for i, path := range []string{"/a", "/zipped", "/longest", "/long"} {
		w.grant(path, c, v.addr, func(r *wire.ResolveResp) { r.Entry.Path, r.Entry.MaxIn = path, 2*wire.MaxWitness })
		resp, body, err := w.get(v.addr, path, path)
		if err != nil {
			t.Fatal(path, err)
		}
		s := w.sent(i + 1)[i]
		want := wire.Sum([]byte(body))
		if path == "/long" {
			want = wire.Digest{}
		}
		if s.Body != want || s.ETag != resp.Header.Get("ETag") || strings.Contains(body+s.ETag, secret) {
			t.Errorf("%s: %d bytes %x, ETag %s; the report %x, %s", path, len(body), want, resp.Header.Get("ETag"), s.Body, s.ETag)
		}
	}
}
