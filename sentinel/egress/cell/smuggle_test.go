// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// EG-14: what goes along in the body of a GET is read by nobody, and by some servers acted on: it is told as unreadable, which no
// route calls a read. The control is the same without a body.
func TestEG14BodyOfARead(t *testing.T) {
	r := newReader(t)
	port := r.serveTLS(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) }), "vendor-a.test")
	r.reads("vendor-a.test", nil)
	last := func() []string {
		all := r.judged()
		return all[len(all)-1].Does
	}
	for _, h2 := range []bool{false, true} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			for name, body := range map[string]io.Reader{"of a known length": strings.NewReader("secret"),
				"in chunks": io.MultiReader(strings.NewReader("secret"))} {
				get(t, r.client(h2), method, site("vendor-a.test", port)+"/", body)
				if got := last(); !slices.Equal(got, []string{wire.Unreadable}) {
					t.Errorf("h2 %v, %s with a body %s does %q", h2, method, name, got)
				}
			}
			get(t, r.client(h2), method, site("vendor-a.test", port)+"/", nil)
			if got := last(); len(got) > 0 {
				t.Errorf("h2 %v, %s without a body does %q", h2, method, got)
			}
		}
		get(t, r.client(h2), "GET", site("vendor-a.test", port)+"/", io.MultiReader()) // chunked, and nothing in it
		if got := last(); len(got) > 0 {
			t.Errorf("h2 %v, a GET with an empty body does %q", h2, got)
		}
	}
}

// EG-14, EG-07: a head of which two servers read two things is refused, and no byte of it leaves. The control is each with one
// reading.
func TestEG14FieldsOfTwoReadings(t *testing.T) {
	r := newReader(t)
	var hits atomic.Int32
	port := r.serveTLS(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }), "vendor-a.test")
	r.reads("vendor-a.test", nil)
	send := func(method, fields, body string) int {
		c := r.tls("vendor-a.test", port, protocolH1)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(c, "%s / HTTP/1.1\r\nHost: vendor-a.test:%d\r\n%sConnection: close\r\n\r\n%s", method, port, fields, body)
		resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q: %v", fields, err)
		}
		return resp.StatusCode
	}
	const length = "Content-Length: 2\r\n"
	for _, fields := range []string{
		"Content-Type: application/json\r\nContent-Type: application/x-www-form-urlencoded\r\n" + length,
		"Content-Type: application/json\r\ncontent_type: application/x-www-form-urlencoded\r\n" + length,
		"Content.Type: application/x-www-form-urlencoded\r\n" + length,
		"Content-Encoding: identity\r\nContent-Encoding: deflate\r\n" + length,
		"Content_Length: 0\r\n" + length,
		"Transfer_Encoding: chunked\r\n" + length,
		"Authorization: a\r\nAuthorization: b\r\n" + length,
		"Authorization_: a\r\nHOST_: evil.test\r\nhost_: evil.test\r\nContent_Type: x\r\n" + length,
	} {
		if status := send("POST", fields, "{}"); status != 400 {
			t.Errorf("%q: %d", fields, status)
		}
	}
	if status := send("GET", "Upgrade: websocket\r\nConnection: upgrade\r\n"+length, "{}"); status != 400 {
		t.Errorf("a WebSocket with a body: %d", status)
	}
	if hits.Load() > 0 || len(r.judged()) > 0 {
		t.Fatalf("%d arrived, %d were asked about", hits.Load(), len(r.judged()))
	}
	for _, fields := range []string{"Content-Type: application/json\r\nX_Request_Id: 7\r\n" + length, "Content-Encoding: gzip\r\n" + length,
		"Authorization: a\r\nAccept: a\r\nAccept: b\r\n" + length} {
		if status := send("POST", fields, "{}"); status != 200 {
			t.Errorf("control: %q: %d", fields, status)
		}
	}
	for _, fields := range [][]string{{"Content_Type", "text/plain"}, {"Content_Length", "0"}} {
		if status, _, _ := get(t, r.client(true), "POST", site("vendor-a.test", port)+"/", strings.NewReader("{}"), fields...); status != 400 {
			t.Errorf("h2, %q: %d", fields, status)
		}
	}
}

// EG-14: what comes behind a body some servers put among the fields of the head. The control is a trailer of no such name.
func TestEG14Trailers(t *testing.T) {
	r := newReader(t)
	var whole atomic.Int32
	port := r.serveTLS(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		if _, err := io.Copy(io.Discard, q.Body); err == nil {
			whole.Add(1)
		}
	}), "vendor-a.test")
	r.reads("vendor-a.test", nil)
	for _, h2 := range []bool{false, true} {
		send := func(name string) int {
			q, _ := http.NewRequest("POST", site("vendor-a.test", port)+"/", io.MultiReader(strings.NewReader("{}")))
			q.Trailer = http.Header{name: {"x"}}
			resp, err := r.client(h2).Do(q)
			if err != nil {
				return 0
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		for _, name := range []string{"Authorization", "X-Http-Method-Override", "Content_type", "Content-Encoding"} {
			if status := send(name); status == 200 || whole.Load() > 0 {
				t.Errorf("h2 %v, %s behind the body: %d, %d arrived", h2, name, status, whole.Load())
			}
		}
		if status := send("X-Checksum"); status != 200 || whole.Swap(0) != 1 {
			t.Errorf("h2 %v, control: %d", h2, status)
		}
	}
}

// Chunks of a byte each would take a hundred times of what they say while a body is read ahead: they are refused before that. The
// control is the same body in usual chunks.
func TestABodyOfTinyChunks(t *testing.T) {
	r := newReader(t)
	port := r.serveTLS(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) }), "vendor-a.test")
	r.reads("vendor-a.test", nil, func(c *wire.ConnectResp) {
		c.Read = []wire.Reading{{Methods: []string{"POST"}, Path: "/graphql", As: wire.ReadGraphQL}}
	})
	send := func(size, n int) int {
		c := r.tls("vendor-a.test", port, protocolH1)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		go func() {
			w := bufio.NewWriterSize(c, 64<<10)
			fmt.Fprintf(w, "POST /graphql HTTP/1.1\r\nHost: vendor-a.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n", port)
			chunk := fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("x", size))
			for range n {
				if _, err := w.WriteString(chunk); err != nil {
					return
				}
			}
			_, _ = w.WriteString("0\r\n\r\n")
			_ = w.Flush()
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0
		}
		return resp.StatusCode
	}
	if status := send(1, 1<<20); status == 200 || len(r.judged()) > 0 {
		t.Errorf("a MiB in chunks of a byte: %d, judged %v", status, r.judged())
	}
	if status := send(1024, 1024); status != 200 || len(r.judged()) != 1 {
		t.Errorf("control: a MiB in chunks of a KiB: %d, judged %v", status, r.judged())
	}
}
