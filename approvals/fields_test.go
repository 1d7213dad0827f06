// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/internal/wire/wiretest"
)

// splits is what would end a head, begin another, and be a script behind it; the last byte is no UTF-8.
func splits(path string) string {
	return path + "\r\nX-Injected: 1\r\nSet-Cookie: doorward=x\r\n\r\n<script>\n\ndata: {\"events\":[]}\n\n\u2028\x00\xff"
}

// Whatever sentinel answers, no field of it becomes a header, and the body arrives byte for byte: signatures are over it.
func TestNoFieldIsAHeader(t *testing.T) {
	r := newRig(t, tunnel())
	for _, refuses := range []bool{false, true} {
		want := new(wire.WebResp)
		wiretest.Fill(want, 1, splits)
		want.Body, want.Signature, want.Session = []byte(splits("body")), []byte(splits("signature")), []byte(splits("")[:sessionSize])
		want.Until = time.Now().Add(time.Hour).Unix()
		if !refuses {
			want.Code = ""
		}
		r.says(func(string) (*wire.WebResp, error) { return want, nil })
		for _, name := range slices.Concat(strangers, verbs) {
			head, body := r.raw(t, name)
			if extra := unknownHeader(head); extra != "" {
				t.Errorf("%s, refusal %v: a header %s", name, refuses, extra)
			}
			if string(body) != string(want.Body) {
				t.Errorf("%s, refusal %v: %q arrives, %q was said", name, refuses, body, want.Body)
			}
		}
	}
	r.says(func(string) (*wire.WebResp, error) {
		e := new(wire.Error)
		wiretest.Fill(e, 1, func(p string) string { return strings.ToValidUTF8(splits(p), "") })
		return nil, e
	})
	head, body := r.raw(t, "pending")
	if extra := unknownHeader(head); extra != "" || !json.Valid(body) {
		t.Errorf("a refusal of its own: a header %s, %q", extra, body)
	}
}

// raw asks as the page does, and returns the head and the body as they came over the wire.
func (r *rig) raw(t *testing.T, name string) (head []string, body []byte) {
	t.Helper()
	c, err := net.Dial("tcp", r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /v1/%s HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nContent-Type: application/json\r\nCookie: doorward=%s\r\n"+
		"Doorward-Nonce: "+strings.Repeat("A", 43)+"=\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", name, r.place.APIHost(), r.place.PageOrigin(), session)
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	top, _, ok := bytes.Cut(all, []byte("\r\n\r\n"))
	if !ok {
		t.Fatalf("%s: no answer but %q", name, all)
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(all)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(top), "\r\n")[1:], body
}

// unknownHeader is the first line of a head that approvals does not make by itself.
func unknownHeader(head []string) string {
	for _, line := range head {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "Access-Control-Allow-Credentials", "Access-Control-Allow-Origin", "Cache-Control", "Content-Security-Policy",
			"Content-Type", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Referrer-Policy", "Vary",
			"X-Content-Type-Options", "Access-Control-Expose-Headers", "Doorward-Signature", "Date", "Content-Length", "Connection", "Transfer-Encoding":
		case "Set-Cookie":
			if strings.HasPrefix(value, "doorward=x") {
				return line
			}
		default:
			return line
		}
	}
	return ""
}

// Ten MiB are refused, whether their length is said or not, without being kept: approvals takes a request of 1 MiB at most. Smaller ones
// are answered meanwhile.
func TestATenMiBBody(t *testing.T) {
	r := newRig(t, tunnel())
	body := `{"after":"` + strings.Repeat("a", 10<<20) + `"}`
	for _, said := range []bool{true, false} {
		code, answer, _ := r.page(t, "pending", body, func(q *http.Request) {
			if !said {
				q.ContentLength = -1
			}
		})
		if code != http.StatusRequestEntityTooLarge || !strings.Contains(answer, `"too_large"`) {
			t.Errorf("length said: %v: %d %.100s", said, code, answer)
		}
		if n := r.asked.Load(); n != 0 {
			t.Errorf("sentinel was asked %d times", n)
		}
	}
	before := allocated()
	for range 20 {
		r.page(t, "pending", body)
	}
	// A buffer that grows to 1 MiB is some 5 MiB of allocation; ten MiB kept whole would be fifty.
	if each := (allocated() - before) / 20; each > 16<<20 {
		t.Errorf("a request of 10 MiB makes approvals allocate %d bytes", each)
	}
	if code, _, _ := r.page(t, "pending", `{"after":"`+strings.Repeat("a", 900<<10)+`"}`); code != http.StatusOK {
		t.Errorf("control: one below the limit gets %d", code)
	}
}

// allocated is what this process has allocated so far, in bytes.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
