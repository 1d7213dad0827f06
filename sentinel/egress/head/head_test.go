// SPDX-License-Identifier: Apache-2.0

package head

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestReadTakesTheHeadApart(t *testing.T) {
	raw := "POST /a/b%20c?x=1&y HTTP/1.1\r\nHost: v.test\r\ncontent-type:  text/plain \r\nContent-Length: 3\r\n" +
		"Connection: close\r\nX-A: 1\r\nx-a: 2\r\n\r\nabcGET / HTTP/1.1\r\nHost: v\r\n\r\n"
	br := bufio.NewReaderSize(strings.NewReader(raw), MaxBytes)
	r, err := Read(br)
	if err != nil {
		t.Fatal(err)
	}
	want := Request{Method: "POST", Path: "/a/b%20c", Query: "x=1&y", HasQuery: true, Host: "v.test", Length: 3,
		Close:  true,
		Fields: []Field{{"Content-Type", "text/plain"}, {"X-A", "1"}, {"X-A", "2"}}}
	if fmt.Sprint(*r) != fmt.Sprint(want) {
		t.Errorf("got %+v\nwant %+v", *r, want)
	}
	if _, err := r.Take("X-A"); !errors.Is(err, ErrMalformed) || len(r.Fields) != 1 {
		t.Errorf("a field twice: %v, %v", err, r.Fields)
	}
	if _, err := br.Discard(3); err != nil {
		t.Fatal(err)
	}
	if r, err = Read(br); err != nil || r.Method != "GET" || r.Length != 0 {
		t.Errorf("second request: %+v, %v", r, err)
	}
	if _, err = Read(br); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	const ok = "Host: v\r\n"
	for _, raw := range []string{
		"GET / HTTP/1.0\r\n" + ok + "\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + ok + "\r\n",
		"GET http://v/ HTTP/1.1\r\n" + ok + "\r\n",
		"CONNECT v:443 HTTP/1.1\r\n" + ok + "\r\n",
		"OPTIONS * HTTP/1.1\r\n" + ok + "\r\n",
		"GET  / HTTP/1.1\r\n" + ok + "\r\n",
		"GET /a b HTTP/1.1\r\n" + ok + "\r\n",
		"GET /\t HTTP/1.1\r\n" + ok + "\r\n",
		"GET /\u00e4 HTTP/1.1\r\n" + ok + "\r\n",
		"get / HTTP/1.1\r\n" + ok + "\r\n",
		"G(T / HTTP/1.1\r\n" + ok + "\r\n",
		"GET / HTTP/1.1\n" + ok + "\r\n",
		"GET / HTTP/1.1\r\nHost: v\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "A: b\n C: d\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "A: b\r\n c\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "A : b\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + ": b\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "A\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "A: b\x00\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "A: b\rc\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "A: \u00e4\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Content-Length: +1\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Content-Length: 01\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Content-Length: 1,1\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Content-Length: 9999999999999999\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: gzip, chunked\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: Chunked\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "Connection: upgrade\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "Connection: keep-alive, authorization\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + strings.Repeat("A: b\r\n", MaxFields+1) + "\r\n",
		"GET /" + strings.Repeat("a", MaxBytes) + " HTTP/1.1\r\n" + ok + "\r\n",
		"GET / HTTP/1.1\r\nHost: v\r\n",
	} {
		r, err := Read(bufio.NewReaderSize(strings.NewReader(raw), MaxBytes))
		if err == nil || r != nil || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%.60q: %+v, %v, want refusal", raw, r, err)
		}
	}
}

func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: v\r\n\r\n", "POST /a?b HTTP/1.1\r\nHost: v\r\nContent-Length: 1\r\n\r\nx",
		"POST / HTTP/1.1\r\nHost: v\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n0\r\n\r\n", "GET / HTTP/1.1\n\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Read(bufio.NewReaderSize(strings.NewReader(s), MaxBytes))
		if err != nil {
			if r != nil {
				t.Fatal("value returned with error")
			}
			return
		}
		// The standard library, which tolerates more, must see the same request.
		q, err := http.ReadRequest(bufio.NewReader(strings.NewReader(s)))
		if err != nil {
			return // stricter than we are, about the URL
		}
		if q.Method != r.Method || q.Host != r.Host || q.ContentLength != r.Length {
			t.Fatalf("%q: %s %s %d here, %s %s %d there", s, r.Method, r.Host, r.Length, q.Method, q.Host, q.ContentLength)
		}
		if want := r.Path + map[bool]string{true: "?" + r.Query}[r.HasQuery]; q.RequestURI != want {
			t.Fatalf("%q: target %q here, %q there", s, want, q.RequestURI)
		}
		for _, g := range r.Fields {
			found := false
			for _, v := range q.Header[g.Name] {
				found = found || v == g.Value
			}
			if !found && g.Name != "Trailer" {
				t.Fatalf("%q: %s: %q here only", s, g.Name, g.Value)
			}
		}
	})
}
