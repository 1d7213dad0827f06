// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bufio"
	"bytes"
	"compress/gzip"
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

// EG-14: what git's reader is given is the body as its server reads it: all of it and no more, in its media type, also where it is
// compressed. What that leaves room for beside the body is not read, and told as unreadable.
func TestEG14BodyOfAFetch(t *testing.T) {
	r := newReader(t)
	type asked struct {
		media, body string
		all         bool
	}
	var last atomic.Pointer[asked]
	r.s.Facts.Git = func(method, _, _, media string, start []byte, all bool) ([]string, int) {
		last.Store(&asked{media, string(start), all})
		switch {
		case method != "POST":
			return nil, 0
		case !all:
			return nil, len(start) + 1
		}
		return []string{"git fetch"}, 0
	}
	port := r.serveTLS(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) }), "vendor-a.test")
	r.reads("vendor-a.test", nil)
	const media = "application/x-git-upload-pack-request"
	packed := func(s string, of func(*gzip.Writer)) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		of(z)
		_, _ = io.WriteString(z, s)
		_ = z.Close()
		return b.String()
	}
	plain := func(*gzip.Writer) {}
	body := strings.Repeat("0032want "+strings.Repeat("a", 40)+"\n", 3000)
	zeros := strings.Repeat("0", 2*wire.MaxRead)
	for name, c := range map[string]struct {
		coding, body, plain string
	}{
		"as it is":                     {"", body, body},
		"of four bytes":                {"", "0000", "0000"},
		"compressed":                   {"gzip", packed(body, plain), body},
		"compressed, as some write it": {"x-gzip", packed("0000", plain), "0000"},
		"too long":                     {"", zeros, ""},
		"too long when inflated":       {"gzip", packed(zeros, plain), ""},
		"in another coding":            {"br", body, ""},
		"broken off":                   {"gzip", packed(body, plain)[:100], ""},
		"not compressed":               {"gzip", body, ""},
		"with more behind":             {"gzip", packed(body, plain) + "mail", ""},
		"of two members":               {"gzip", packed(body, plain) + packed("mail", plain), ""},
		"with a name":                  {"gzip", packed(body, func(z *gzip.Writer) { z.Name = "mail" }), ""},
		"with a comment":               {"gzip", packed(body, func(z *gzip.Writer) { z.Comment = "mail" }), ""},
		"with more in its head":        {"gzip", packed(body, func(z *gzip.Writer) { z.Extra = []byte("mail") }), ""},
	} {
		for _, h2 := range []bool{false, true} {
			fields := []string{"Content-Type", media}
			if c.coding != "" {
				fields = append(fields, "Content-Encoding", c.coding)
			}
			get(t, r.client(h2), "POST", site("vendor-a.test", port)+"/git-upload-pack", strings.NewReader(c.body), fields...)
			all := r.judged()
			does, saw := all[len(all)-1].Does, last.Load()
			if saw.media != media {
				t.Errorf("h2 %v, %s: it is of the media type %q", h2, name, saw.media)
			}
			want := []string{"git fetch"}
			if c.plain == "" {
				want = []string{wire.Unreadable}
			}
			if !slices.Equal(does, want) || c.plain != "" && (saw.body != c.plain || !saw.all) {
				t.Errorf("h2 %v, %s does %q, want %q; %d bytes were read, all %v", h2, name, does, want, len(saw.body), saw.all)
			}
		}
	}
}

// What has to be read of a body line by line is read a few times, not once for each line; a few bytes that inflate to many would cost
// a second otherwise. The control is that every line is found.
func TestABodyOfManyLinesIsReadAFewTimes(t *testing.T) {
	r := newReader(t)
	const lines, size = 240, 1000
	var calls, read atomic.Int64
	r.s.Facts.Git = func(method, _, _, _ string, start []byte, _ bool) ([]string, int) {
		if method != "POST" {
			return nil, 0
		}
		calls.Add(1)
		read.Add(int64(len(start)))
		if n := len(start) / size; n < lines {
			return nil, (n + 1) * size
		}
		return []string{fmt.Sprint("git push ", bytes.Count(start[:lines*size], []byte("\n")))}, 0
	}
	port := r.serveTLS(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body) }), "vendor-a.test")
	r.reads("vendor-a.test", nil)
	body := strings.Repeat(strings.Repeat("a", size-1)+"\n", lines)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = io.WriteString(w, body)
	_ = w.Close()
	for _, h2 := range []bool{false, true} {
		for name, c := range map[string]struct {
			body   string
			fields []string
		}{"as it is": {body, nil}, "compressed": {z.String(), []string{"Content-Encoding", "gzip"}}} {
			calls.Store(0)
			read.Store(0)
			get(t, r.client(h2), "POST", site("vendor-a.test", port)+"/git-receive-pack", strings.NewReader(c.body), c.fields...)
			all := r.judged()
			if does := all[len(all)-1].Does; !slices.Equal(does, []string{fmt.Sprint("git push ", lines)}) {
				t.Errorf("h2 %v, %s does %q", h2, name, does)
			}
			if calls.Load() > 12 || read.Load() > 3*lines*size {
				t.Errorf("h2 %v, %s: read %d times, %d bytes of %d", h2, name, calls.Load(), read.Load(), lines*size)
			}
		}
	}
}
