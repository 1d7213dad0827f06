// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

func hour() time.Time { return time.Now().Add(time.Hour) }

func TestCarriesARequestAndItsAnswer(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			c := newCA(t)
			v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Answer", "yes")
				w.Header().Set("Set-Cookie", "a=b")
				w.Header().Set("Doorward-Error", "internal")
				w.Header().Set("Alt-Svc", "h3")
				fmt.Fprintf(w, "hello %s", r.URL.Query().Get("q"))
			})
			w := newWorld(t, func(s *Server) {
				if proto == "HTTP/2.0" {
					s.H2After = -1
				}
			})
			w.grant("g1", c, v.addr, func(r *wire.ResolveResp) {
				r.Entry.Query = []wire.Match{{Name: "q", Values: []string{"a b&c"}}}
				r.Entry.Header = []wire.Match{{Name: "X-Api", Values: []string{"1"}}}
			})
			for range 3 {
				req := w.request("GET", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a?q=a+b%26c", "g1", 0, nil)
				req.Header.Set("X-Api", "1")
				req.Header.Set("Accept", "text/plain")
				resp, body, err := w.do(req)
				if err != nil || resp.StatusCode != 200 || body != "hello a b&c" || resp.Header.Get("X-Answer") != "yes" {
					t.Fatalf("%v, %+v, %q", err, resp, body)
				}
				for _, h := range []string{"Set-Cookie", "Doorward-Error", "Alt-Svc"} {
					if resp.Header.Get(h) != "" {
						t.Errorf("%s came through", h)
					}
				}
			}
			all := v.seen()
			if len(all) != 3 || v.conns() != 1 {
				t.Fatalf("%d requests over %d connections", len(all), v.conns())
			}
			got := all[0]
			if got.Proto != proto || got.Target != "/a?q=a%20b%26c" || got.Host != fmt.Sprintf("vendor-a.test:%d",
				v.addr.Port()) {
				t.Errorf("got %+v", got)
			}
			want := map[string]string{"Authorization": "Bearer " + secret, "X-Api": "1", "Accept": "text/plain",
				"Accept-Encoding": "identity", "User-Agent": userAgent}
			for name := range got.Header {
				if got.Header.Get(name) != want[name] {
					t.Errorf("header %s: %q, want %q", name, got.Header.Get(name), want[name])
				}
				delete(want, name)
			}
			if len(want) > 0 {
				t.Errorf("missing %v", want)
			}
			for _, s := range w.sent(3) {
				if s.Grant != "g1" || s.Worker != "vendora" || s.Entry != "e0" || s.Status != 200 || !s.Complete || !s.Left ||
					s.In != int64(len("hello a b&c")) || s.Err != nil || s.Host != "vendor-a.test" || s.Method != "GET" {
					t.Errorf("report %+v", s)
				}
			}
			noSecret(t, w.log())
		})
	}
}

func TestOutsideTheEnvelopeNothingLeaves(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {})
	w := newWorld(t)
	w.grant("g", c, v.addr)
	host := fmt.Sprintf("vendor-a.test:%d", v.addr.Port())
	for name, x := range map[string]struct {
		change func(*http.Request)
		code   wire.Code
		status int
	}{
		"other path":   {func(r *http.Request) { r.URL.Path = "/b" }, wire.CodeBadEnvelope, 403},
		"other method": {func(r *http.Request) { r.Method = "DELETE" }, wire.CodeBadEnvelope, 403},
		"query":        {func(r *http.Request) { r.URL.RawQuery = "x=1" }, wire.CodeBadEnvelope, 403},
		"override": {func(r *http.Request) { r.Header.Set("X-HTTP-Method-Override", "DELETE") },
			wire.CodeBadEnvelope, 403},
		"body": {func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")),
				1
		}, wire.CodeBadEnvelope, 403},
		"other host":   {func(r *http.Request) { r.Host = "evil.test" }, wire.CodeBadEnvelope, 421},
		"no surrogate": {func(r *http.Request) { r.Header.Del("Authorization") }, wire.CodeBadSurrogate, 403},
		"other surrogate": {func(r *http.Request) { r.Header.Set(HeaderSurrogate, "ghp_other") },
			wire.CodeBadSurrogate, 403},
		"other place": {func(r *http.Request) { r.Header.Set("Authorization", "token "+sur) },
			wire.CodeBadSurrogate, 403},
		"unknown grant":      {func(r *http.Request) { r.Header.Set(HeaderGrant, "g2") }, wire.CodeBadGrant, 403},
		"other entry":        {func(r *http.Request) { r.Header.Set(HeaderEntry, "1") }, wire.CodeBadGrant, 403},
		"entry is no number": {func(r *http.Request) { r.Header.Set(HeaderEntry, "-1") }, wire.CodeBadGrant, 403},
		"no grant":           {func(r *http.Request) { r.Header.Del(HeaderGrant) }, wire.CodeBadGrant, 403},
		"grant twice":        {func(r *http.Request) { r.Header.Add(HeaderGrant, "g") }, wire.CodeBadEnvelope, 400},
		"expect":             {func(r *http.Request) { r.Header.Set("Expect", "100-continue") }, wire.CodeBadEnvelope, 403},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			req := w.request("GET", host, "/a", "g", 0, nil)
			x.change(req)
			resp, _, err := w.do(req)
			w.wantRefusal(err, x.code, x.status, resp)
		})
	}
	w.t = t
	if got := v.seen(); len(got) != 0 || v.conns() != 0 {
		t.Errorf("the vendor saw %+v over %d connections", got, v.conns())
	}
	// Control: the request as allowed gets there.
	if resp, _, err := w.get(v.addr, "/a", "g"); err != nil || resp.StatusCode != 200 {
		t.Errorf("control: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.reports[:len(w.reports)-1] {
		if s.Left || s.Err == nil || s.Status != 0 {
			t.Errorf("report of a refusal %+v", s)
		}
	}
}

func mustURL(t *testing.T, s string) guard.URL {
	t.Helper()
	u, err := guard.ParseURL(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
