// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// clientHello is what Go's client sends for a server name, as one record.
func clientHello(t testing.TB, name string, change ...func(*tls.Config)) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer b.Close()
	cfg := &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}
	for _, f := range change {
		f(cfg)
	}
	go func() { _ = tls.Client(a, cfg).Handshake(); _ = a.Close() }()
	var head [5]byte
	if _, err := io.ReadFull(b, head[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	return append(head[:], body...)
}

// records splits a ClientHello of one record over more, each of at most n bytes.
func records(hello []byte, n int) []byte {
	var out []byte
	for body := hello[5:]; len(body) > 0; {
		k := min(n, len(body))
		out = append(out, 22, 3, 1, byte(k>>8), byte(k))
		out = append(out, body[:k]...)
		body = body[k:]
	}
	return out
}

// withExtension is a minimal ClientHello with those extensions.
func withExtensions(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	all := bytes.Join(extensions, nil)
	body = append(append(body, byte(len(all)>>8), byte(len(all))), all...)
	msg := append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	return records(append(make([]byte, 5), msg...), maxRecord)
}

func extension(kind uint16, data ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, kind)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
}

func sni(name string) []byte {
	n := len(name)
	return extension(0, append([]byte{byte((n + 3) >> 8), byte(n + 3), 0, byte(n >> 8), byte(n)}, name...)...)
}

func TestEG09_WhatAConnectionBeginsWith(t *testing.T) {
	plain := clientHello(t, "vendor-a.test")
	padding := extension(21, make([]byte, 20000)...)
	for _, c := range []struct {
		what   string
		b      []byte
		begins string // empty: an error
		name   string
		err    error
	}{
		{"TLS", plain, wire.BeginsTLS, "vendor-a.test", nil},
		{"TLS without a name", clientHello(t, ""), wire.BeginsTLS, "", nil},
		{"TLS with early data behind", append(bytes.Clone(plain), 23, 3, 3, 0, 1, 0), wire.BeginsTLS, "vendor-a.test", nil},
		{"TLS 1.2", clientHello(t, "vendor-a.test", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), wire.BeginsTLS, "vendor-a.test", nil},
		{"TLS over records of 100 bytes", records(plain, 100), wire.BeginsTLS, "vendor-a.test", nil},
		{"TLS of 20 KB", withExtensions(padding, sni("vendor-a.test")), wire.BeginsTLS, "vendor-a.test", nil},
		{"ECH", withExtensions(sni("outer.test"), extension(0xfe0d, 0, 1, 2)), wire.BeginsTLS, "outer.test", nil},
		{"TLS over records of a byte", records(plain, 1), "", "", errHello},
		{"an empty record", append([]byte{22, 3, 1, 0, 0}, plain...), "", "", errHello},
		{"a record too long", append([]byte{22, 3, 1, 0x40, 1}, make([]byte, 0x4001)...), "", "", errHello},
		{"TLS of 64 KB", []byte{22, 3, 1, 0, 4, 1, 1, 0, 0}, "", "", errHello},
		{"another handshake message", []byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, "", "", errHello},
		{"an alert among the records", append(records(plain, 100)[:105], 21, 3, 3, 0, 2, 2, 0), "", "", errHello},
		{"two names", withExtensions(extension(0, 0, 16, 0, 0, 5, 'a', '.', 'c', 'o', 'm', 0, 0, 5, 'b', '.', 'c', 'o', 'm')), "", "", errHello},
		{"two server_name extensions", withExtensions(sni("a.test"), sni("b.test")), "", "", errHello},
		{"a name of another kind", withExtensions(extension(0, 0, 4, 1, 0, 1, 'a')), "", "", errHello},
		{"an empty name", withExtensions(extension(0, 0, 3, 0, 0, 0)), "", "", errHello},
		{"a half extension", withExtensions([]byte{0}), "", "", errHello},
		{"bytes behind it in its record", func() []byte {
			b := append(bytes.Clone(plain), 0)
			binary.BigEndian.PutUint16(b[3:], uint16(len(b)-5))
			return b
		}(), "", "", errHello},
		{"16 random bytes", []byte("\x8f\x03\x01\xa0\xff\x00\x11\x92k1l2m3\x01"), wire.BeginsOther, "", nil},
		{"SSLv2", []byte{0x80, 0x2e, 1, 0, 2}, wire.BeginsOther, "", nil},
		{"SSH", []byte("SSH-2.0-OpenSSH_9.2p1\r\n"), wire.BeginsOther, "", nil},
		{"SMTP", []byte("EHLO work\r\n"), wire.BeginsOther, "", nil},
		{"HTTP/2 in the clear", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), wire.BeginsOther, "", nil},
		{"HTTP/0.9", []byte("GET /\r\n"), wire.BeginsOther, "", nil},
		{"git", []byte("0032git-upload-pack /a\x00host=vendor-a.test\x00"), wire.BeginsOther, "", nil},
		{"a method in lower case", []byte("get / HTTP/1.1\r\nHost: a.test\r\n\r\n"), wire.BeginsOther, "", nil},
		{"HTTP/1.1", []byte("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), wire.BeginsHTTP, "", nil},
		{"HTTP/1.0", []byte("GET / HTTP/1.0\r\n\r\n"), wire.BeginsHTTP, "", nil},
		{"HTTP with a body behind", []byte("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc"), wire.BeginsHTTP, "", nil},
		{"HTTP with a bare line feed", []byte("GET / HTTP/1.1\r\nHost: a.test\nHost: b.test\r\n\r\n"), "", "", errHTTP},
	} {
		f, need, err := classify(c.b, false)
		if !errors.Is(err, c.err) || need != 0 || f.begins != c.begins || f.hello.Name != c.name {
			t.Errorf("%s: %+v, %d, %v", c.what, f, need, err)
		}
		if c.begins == "" && f != (front{}) {
			t.Errorf("%s: an error with %+v", c.what, f)
		}
		// In pieces it is the same, and no piece before says something else.
		for i := range min(len(c.b), 2000) {
			g, need, err := classify(c.b[:i], false)
			if err != nil && c.err == nil || err == nil && need == 0 && g.begins != c.begins {
				t.Errorf("%s: of %d bytes: %+v, %v", c.what, i, g, err)
			}
			if need > 0 && need <= i {
				t.Errorf("%s: of %d bytes: needs %d", c.what, i, need)
			}
			if need != 0 && c.begins == wire.BeginsTLS && need > len(c.b) {
				t.Errorf("%s: of %d bytes: needs %d, there are %d", c.what, i, need, len(c.b))
			}
		}
	}
}

func TestWhatEndsBeforeItIsClear(t *testing.T) {
	for b, want := range map[string]string{"\x16\x03": "", "GET / HTTP/1.1\r\nHo": "", "HELO": wire.BeginsOther, "QUIT\r\n": wire.BeginsOther} {
		f, need, err := classify([]byte(b), true)
		if f.begins != want || need != 0 || (err == nil) != (want != "") {
			t.Errorf("%q: %+v, %d, %v", b, f, need, err)
		}
	}
}

func TestHeadsThatCanBeReadInTwoWaysAreRefused(t *testing.T) {
	for _, c := range []struct {
		what, head string
		ok         bool
	}{
		{"a usual one", "GET /a?b=c HTTP/1.1\r\nHost: a.test\r\nUser-Agent: x (y)\r\nAccept: */*\r\n\r\n", true},
		{"bytes above ASCII in a value", "GET / HTTP/1.1\r\nHost: a.test\r\nX: caf\xc3\xa9\r\n\r\n", true},
		{"a list", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n", true},
		{"no Host", "GET / HTTP/1.1\r\nX: y\r\n\r\n", false},
		{"no Host in 1.0", "GET / HTTP/1.0\r\nX: y\r\n\r\n", true},
		{"two Hosts", "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", false},
		{"two Hosts, differently written", "GET / HTTP/1.1\r\nHost: a.test\r\nhOST: b.test\r\n\r\n", false},
		{"an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", false},
		{"a blank before the colon", "GET / HTTP/1.1\r\nHost : a.test\r\nHost: a.test\r\n\r\n", false},
		{"a folded line", "GET / HTTP/1.1\r\nHost: a.test\r\n b.test\r\n\r\n", false},
		{"a NUL", "GET / HTTP/1.1\r\nHost: a.test\x00.b.test\r\n\r\n", false},
		{"a carriage return", "GET / HTTP/1.1\r\nHost: a.test\rHost: b.test\r\n\r\n", false},
		{"two blanks", "GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
		{"a tab in the first line", "GET /\ta HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
		{"bytes above ASCII in the target", "GET /\xc3\xa9 HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
		{"no colon", "GET / HTTP/1.1\r\nHost: a.test\r\nX\r\n\r\n", false},
		{"two lengths", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", false},
		{"a length and chunks", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", false},
		{"a coding besides", "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", false},
		{"a length with a sign", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +1\r\n\r\n", false},
		{"a list of lengths", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1, 1\r\n\r\n", false},
		{"an enormous length", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000000000000\r\n\r\n", false},
		{"chunks in 1.0", "POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n", false},
		{"two upgrades", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n", false},
		{"very many lines", "GET / HTTP/1.1\r\nHost: a.test\r\n" + strings.Repeat("a: b\r\n", maxLines) + "\r\n", false},
	} {
		h, more, err := parseHTTP([]byte(c.head))
		if more || (err == nil) != c.ok || (h == nil) != (err != nil) || err != nil && !errors.Is(err, errHTTP) {
			t.Errorf("%s: %+v, %v, %v", c.what, h, more, err)
		}
		if h != nil && string(h.write([]byte(c.head), "")) != c.head {
			t.Errorf("%s: goes on as %q", c.what, h.write([]byte(c.head), ""))
		}
	}
}

func TestWhatIsForAProxyDoesNotGoOn(t *testing.T) {
	for _, c := range []struct{ target, in, out string }{
		{"/a", "GET http://a.test/a HTTP/1.1\r\nHost: a.test\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\nX: y\r\n\r\n",
			"GET /a HTTP/1.1\r\nHost: a.test\r\nX: y\r\n\r\n"},
		{"/a", "GET http://a.test/a HTTP/1.1\r\nHost: a.test\r\nConnection: close, Proxy-Connection\r\n\r\n",
			"GET /a HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"},
		{"", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"},
		{"", "GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: h2c\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"},
		{"", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n"},
	} {
		h, _, err := parseHTTP([]byte(c.in))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(h.write([]byte(c.in), c.target)); got != c.out {
			t.Errorf("%q goes on as %q", c.in, got)
		}
	}
}

func TestTheSizeOfAChunk(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "a": 10, "fF": 255, "00010": 16, "5;a=b": 5, "5 ;a": 5, "": -1, ";a": -1, "-1": -1,
		"+1": -1, "0x5": -1, " 5": -1, "5 5": -1, "7fffffffffff": 0x7fffffffffff, "800000000000": -1, "5;a\x01": -1, "g": -1, "1_0": -1} {
		n, ok := chunkSize([]byte(s + "\r\n"))
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d, %v", s, n, ok)
		}
	}
}

func FuzzFront(f *testing.F) {
	f.Add(clientHello(f, "vendor-a.test"))
	f.Add(records(clientHello(f, "vendor-a.test"), 50))
	f.Add(withExtensions(sni("a.test"), extension(0xfe0d, 0)))
	f.Add([]byte("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, need, err := classify(b, false)
		if (err != nil || need != 0) && g != (front{}) {
			t.Fatalf("%x: %+v beside %d, %v", b, g, need, err)
		}
		if need > 0 && need <= len(b) || err == nil && need == 0 && g.begins == "" {
			t.Fatalf("%x: needs %d, %+v", b, need, g)
		}
		if err == nil && need == 0 {
			if more, _, err := classify(append(bytes.Clone(b), "\r\n\r\nGET / HTTP/1.1"...), false); err != nil && g.begins != "other" || more.begins != g.begins {
				t.Fatalf("%x: %+v, and %+v, %v with more behind", b, g, more, err)
			}
		}
		if g.http != nil {
			out := g.http.write(b, "/x")
			h, more, err := parseHTTP(out)
			if more || err != nil || h.Host != g.http.Host || h.Length != g.http.Length || h.Target != "/x" || h.size != len(out) {
				t.Fatalf("%q goes on as %q: %+v, %v", b, out, h, err)
			}
		}
		for _, at := range []target{{}, {host: host(t, "a.test"), port: 80}} {
			if need == 0 && err == nil {
				a, refusal := agree(at, g)
				if refusal != nil && a != (agreed{}) {
					t.Fatalf("%q is refused and goes to %+v", b, a)
				}
				if refusal == nil && !at.gate() && a.to != at {
					t.Fatalf("%q goes to %+v", b, a)
				}
			}
		}
	})
}

// What a server may read as HTTP/1, and we would not, is not carried unread as something else.
func TestWhatIsNearlyHTTPIsRefused(t *testing.T) {
	for _, b := range []string{
		"\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"GET / HTTP/1.1\nHost: evil.test\n\n", "GET\t/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"GET /\tHTTP/1.1\r\nHost: evil.test\r\n\r\n", "GET / HTTP/1.1 \r\nHost: evil.test\r\n\r\n",
	} {
		if f, need, err := classify([]byte(b), true); err == nil || need != 0 || f.begins != "" {
			t.Errorf("%q: begins %q, needs %d more, %v", b, f.begins, need, err)
		}
	}
	for _, b := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "SSH-2.0-x\r\n", "EHLO a\r\n"} { // control
		if f, _, err := classify([]byte(b), true); err != nil || f.begins != wire.BeginsOther {
			t.Errorf("%q: begins %q, %v", b, f.begins, err)
		}
	}
}
