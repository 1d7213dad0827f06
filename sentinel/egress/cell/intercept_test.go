// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestInterceptedRequest(t *testing.T) {
	r := newReader(t)
	port := r.serveTLS(http.HandlerFunc(echo), "vendor-a.test")
	r.reads("vendor-a.test", nil)
	for _, h2 := range []bool{false, true} {
		status, body, _ := get(t, r.client(h2), "POST", site("vendor-a.test", port)+"/a/b?c=d", strings.NewReader("hello"))
		want := fmt.Sprintf("HTTP/%s POST vendor-a.test:%d /a/b?c=d 5\n", map[bool]string{false: "1.1", true: "2.0"}[h2], port)
		if status != 200 || body != want {
			t.Errorf("h2 %v: %d %q, want %q", h2, status, body, want)
		}
	}
	for i, q := range r.judged() {
		if q.Method != "POST" || q.Path != "/a/b" || q.Query != "c=d" || q.Name != "vendor-a.test" || int(q.Port) != port || q.Conn == "" || q.Surrogate || q.Clear {
			t.Errorf("%d: judged %+v", i, q)
		}
	}
	s := r.requestReport("r1")
	if s.Status != 200 || s.Out != 5 || s.In == 0 || !s.Left || !s.Complete || s.Method != "POST" || s.Host != "vendor-a.test" {
		t.Errorf("reported %+v", s)
	}
}

func TestInterceptedSwap(t *testing.T) {
	r := newReader(t)
	port := r.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		fmt.Fprintf(w, "got %v\n", q.Header.Get("Authorization") == "Bearer "+realA)
	}), "vendor-a.test")
	r.reads("vendor-a.test", &bearerPlace)
	for _, h2 := range []bool{false, true} {
		c := r.client(h2)
		for range 3 {
			status, body, _ := get(t, c, "GET", site("vendor-a.test", port)+"/", nil, "Authorization", "Bearer "+surrogateA)
			if status != 200 || body != "got true\n" {
				t.Errorf("h2 %v: %d %q", h2, status, body)
			}
		}
		status, body, header := get(t, c, "GET", site("vendor-a.test", port)+"/", nil)
		if status != 401 || !strings.Contains(body, "no surrogate on this request") || header.Get(ErrorHeader) != "bad_surrogate" ||
			header.Get("WWW-Authenticate") != `Bearer realm="doorward"` {
			t.Errorf("h2 %v: without: %d %q %v", h2, status, body, header)
		}
	}
}
