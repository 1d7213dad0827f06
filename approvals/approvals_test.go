// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/google/go-cmp/cmp"
)

// rig is approvals before a table that stands in for sentinel's: it decides nothing and verifies nothing. It is for what approvals
// does by itself, which is HTTP; what sentinel makes of it is tried with sentinel.
type rig struct {
	*httptest.Server
	place *approver.Place
	asked atomic.Int64 // verbs that reached the other end
	mu    sync.Mutex   // guards what follows
	last  *wire.WebReq // what was asked last
	reply func(verb string) (*wire.WebResp, error)
	log   *bytes.Buffer
}

func (r *rig) stand(name string) daemon.Verb {
	return daemon.On(name, peer.Daemon("approvals"), func(_ context.Context, _ *daemon.Call, req *wire.WebReq) (*wire.WebResp, error) {
		if name != "events" { // by which a session is looked up too
			r.asked.Add(1)
		}
		r.mu.Lock()
		r.last = req
		reply := r.reply
		r.mu.Unlock()
		if reply == nil {
			return &wire.WebResp{Body: []byte("{}")}, nil
		}
		return reply(name)
	})
}

// says is what the other end answers from now on; nil is nothing.
func (r *rig) says(reply func(verb string) (*wire.WebResp, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reply = reply
}

func newRig(t *testing.T, place *approver.Place) *rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{place: place, log: new(bytes.Buffer)}
	log := slog.New(slog.NewTextHandler(&locked{w: r.log}, nil))
	s := &daemon.Server{Name: "sentinel-web", Log: log, Listener: peer.NewListener(ln, peertest.Daemon("approvals"), nil)}
	for _, name := range slices.Concat(strangers, verbs, []string{"events"}) {
		s.Verbs = append(s.Verbs, r.stand(name))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	one := &daemon.Client{Path: path, Name: "sentinel", Log: log}
	two := &daemon.Client{Path: path, Name: "sentinel", Log: log}
	r.Server = httptest.NewServer(New(place, one, two, log))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Server.Close()
		one.Close()
		two.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func tunnel() *approver.Place { return &approver.Place{Host: "localhost", Page: 8440, API: 8441} }

var session = strings.Repeat("A", 43) // 32 zero bytes

// page is a request as the page's script sends it; change may spoil it.
func (r *rig) page(t *testing.T, verb, body string, change ...func(*http.Request)) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequest("POST", r.URL+"/v1/"+verb, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = r.place.APIHost()
	req.Header.Set("Origin", r.place.PageOrigin())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Cookie", "doorward="+session)
	req.Header.Set("Doorward-Nonce", strings.Repeat("A", 43)+"=")
	for _, f := range change {
		f(req)
	}
	resp, err := r.Client().Transport.RoundTrip(req) // follows nothing
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// What a browser sends reaches sentinel, and what sentinel answers the browser, byte for byte: the signature is over both.
func TestEachVerbIsCarriedBothWays(t *testing.T) {
	r := newRig(t, tunnel())
	nonce := bytes.Repeat([]byte{5}, wire.WebNonce)
	for i, verb := range slices.Concat(strangers, verbs) {
		body, reply := fmt.Sprintf(` {"a":%d, "b":"<\u0041>"}`+"\n", i), fmt.Sprintf(`{"x": [%d]}`, i)
		code, refused := 200, wire.Code("")
		if i%2 == 1 {
			code, refused = 409, wire.CodeConflict
		}
		r.says(func(string) (*wire.WebResp, error) {
			return &wire.WebResp{Body: []byte(reply), Code: refused, Signature: []byte{byte(i), 255}}, nil
		})
		got, answer, h := r.page(t, verb, body, func(q *http.Request) {
			q.Header.Set("Doorward-Nonce", base64.StdEncoding.EncodeToString(nonce))
		})
		if got != code || answer != reply {
			t.Errorf("%s: %d %s, want %d %s", verb, got, answer, code, reply)
		}
		if diff := cmp.Diff(&wire.WebReq{Session: make([]byte, sessionSize), Nonce: nonce, Body: []byte(body)}, r.last); diff != "" {
			t.Errorf("%s: sentinel is asked: %s", verb, diff)
		}
		for k, want := range map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
			"Access-Control-Allow-Origin": "http://localhost:8440", "Access-Control-Allow-Credentials": "true", "Vary": "Origin",
			"Access-Control-Expose-Headers": "Doorward-Signature",
			"Doorward-Signature":            base64.StdEncoding.EncodeToString([]byte{byte(i), 255}),
			"Cross-Origin-Resource-Policy":  "same-origin",
			"Content-Security-Policy":       "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"} {
			if h.Get(k) != want {
				t.Errorf("%s: %s is %q, want %q", verb, k, h.Get(k), want)
			}
		}
	}
}

// Another site that the person has open, a name that was made to point here, a form, a program that only knows the port: none is
// answered, and sentinel hears of none.
func TestAP08OnlyThePageMayAsk(t *testing.T) {
	r := newRig(t, tunnel())
	header := func(k string, v ...string) func(*http.Request) {
		return func(q *http.Request) {
			if q.Header.Del(k); len(v) > 0 {
				q.Header[k] = v
			}
		}
	}
	host := func(h string) func(*http.Request) { return func(q *http.Request) { q.Host = h } }
	method := func(m string) func(*http.Request) { return func(q *http.Request) { q.Method = m } }
	for _, c := range []struct {
		name   string
		change func(*http.Request)
		code   int
	}{
		{"another site", header("Origin", "https://evil.example"), 403},
		{"a sandboxed frame", header("Origin", "null"), 403},
		{"no origin", header("Origin"), 403},
		{"another port", header("Origin", "http://localhost:8442"), 403},
		{"its own port", header("Origin", "http://localhost:8441"), 403},
		{"another scheme", header("Origin", "https://localhost:8440"), 403},
		{"another spelling", header("Origin", "http://LOCALHOST:8440"), 403},
		{"a longer one", header("Origin", "http://localhost:8440.evil.example"), 403},
		{"two origins", header("Origin", "http://localhost:8440", "https://evil.example"), 403},
		{"a name that was made to point here", host("evil.example:8441"), 421},
		{"the address", host("127.0.0.1:8441"), 421},
		{"the page's port", host("localhost:8440"), 421},
		{"a form", header("Content-Type", "text/plain"), 415},
		{"a form that says JSON besides", header("Content-Type", "text/plain; application/json"), 415},
		{"JSON in other letters", header("Content-Type", "application/json; charset=utf-16"), 415},
		{"no type", header("Content-Type"), 415},
		{"compressed", header("Content-Encoding", "gzip"), 415},
		{"GET", method("GET"), 405},
		{"PUT", method("PUT"), 405},
		{"a verb that there is none of", func(q *http.Request) { q.URL.Path = "/v1/policy" }, 404},
		{"a verb of events by POST", func(q *http.Request) { q.URL.Path = "/v1/events" }, 405},
		{"a query", func(q *http.Request) { q.URL.RawQuery = "x=1" }, 404},
		{"a path", func(q *http.Request) { q.URL.Path = "/v1/../v1/pending" }, 404},
		{"nothing", func(q *http.Request) { q.URL.Path = "/" }, 404},
		{"no nonce", header("Doorward-Nonce"), 400},
		{"a short nonce", header("Doorward-Nonce", "AAAA"), 400},
		{"no base64", header("Doorward-Nonce", strings.Repeat("-", 44)), 400},
		{"two nonces", header("Doorward-Nonce", strings.Repeat("A", 43)+"=", strings.Repeat("B", 43)+"="), 400},
		{"no cookie", header("Cookie"), 401},
		{"a short session", header("Cookie", "doorward=AAAA"), 401},
		{"two sessions", header("Cookie", "doorward="+session+"; doorward="+session), 401},
		{"another name", header("Cookie", "__Host-doorward="+session), 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := r.asked.Load()
			code, body, h := r.page(t, "pending", "{}", c.change)
			if code != c.code || !strings.HasPrefix(body, `{"code":"`) || h.Get("Location") != "" {
				t.Errorf("%d %s, want %d", code, body, c.code)
			}
			if h.Get("Access-Control-Allow-Origin") != "" && (code == 403 || code == 421) {
				t.Error("a stranger may read the answer")
			}
			if r.asked.Load() != before {
				t.Error("sentinel was asked")
			}
			if code, _, _ := r.page(t, "pending", "{}"); code != 200 {
				t.Errorf("control: the page gets %d", code)
			}
		})
	}
}

func TestABrowserMayAskWhetherItMay(t *testing.T) {
	r := newRig(t, tunnel())
	ask := func(origin, path string) (int, http.Header) {
		code, _, h := r.page(t, "pending", "", func(q *http.Request) {
			q.Method, q.URL.Path = "OPTIONS", path
			q.Header.Set("Origin", origin)
			q.Header.Del("Cookie")
		})
		return code, h
	}
	code, h := ask("http://localhost:8440", "/v1/decide")
	if code != 204 || h.Get("Access-Control-Allow-Methods") != "POST" || h.Get("Access-Control-Allow-Headers") != "Content-Type, Doorward-Nonce" ||
		h.Get("Access-Control-Max-Age") != "7200" || h.Get("Access-Control-Allow-Origin") != "http://localhost:8440" {
		t.Errorf("%d %v", code, h)
	}
	if code, h := ask("https://evil.example", "/v1/decide"); code != 403 || h.Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("another site: %d %v", code, h)
	}
	if r.asked.Load() != 0 {
		t.Error("sentinel was asked")
	}
}

func TestTheSessionIsTheBrowsersAlone(t *testing.T) {
	for name, place := range map[string]*approver.Place{"doorward": tunnel(),
		"__Host-doorward": {Host: "ward.example.org", Page: 8440, API: 8441, Certificate: "/c", Key: "/k"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, place)
			secret := bytes.Repeat([]byte{7}, sessionSize)
			r.says(func(string) (*wire.WebResp, error) {
				return &wire.WebResp{Session: secret, Until: time.Now().Add(24 * time.Hour).Unix(), Body: []byte(`{"name":"ada"}`)}, nil
			})
			code, body, h := r.page(t, "login", "{}", func(q *http.Request) { q.Header.Del("Cookie") })
			set := h.Get("Set-Cookie")
			secure := map[bool]string{true: "; Secure"}[place.Certificate != ""]
			const value = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"
			if want := name + "=" + value + "; Path=/; Max-Age=43200; HttpOnly" + secure + "; SameSite=Strict"; code != 200 || set != want {
				t.Errorf("%d, %q, want %q", code, set, want)
			}
			if strings.Contains(body, value) || strings.Contains(body, "session") || !strings.Contains(body, `"name":"ada"`) {
				t.Errorf("a script gets %s", body)
			}
			r.says(nil)
			if code, _, _ := r.page(t, "pending", "{}", func(q *http.Request) { q.Header.Set("Cookie", name+"="+value) }); code != 200 {
				t.Error(code)
			}
			if got := r.last.Session; !bytes.Equal(got, secret) {
				t.Errorf("sentinel gets %x", got)
			}
			// Signing out takes the cookie away whatever sentinel says, which is told whose session it is.
			for _, says := range []func(string) (*wire.WebResp, error){nil, func(string) (*wire.WebResp, error) { return nil, errors.New("down") }} {
				r.says(says)
				_, _, h = r.page(t, "logout", "{}", func(q *http.Request) { q.Header.Set("Cookie", name+"="+value) })
				if set := h.Get("Set-Cookie"); !strings.HasPrefix(set, name+"=; Path=/; Max-Age=0; HttpOnly") {
					t.Errorf("signed out with %q", set)
				}
				if !bytes.Equal(r.last.Session, secret) {
					t.Errorf("sentinel gets %x", r.last.Session)
				}
			}
		})
	}
}

func TestALargeRequestIsRefused(t *testing.T) {
	r := newRig(t, tunnel())
	if code, got, _ := r.page(t, "decide", `{"items":[],"assertion":"`+strings.Repeat("A", 10<<20)+`"}`); code != 413 {
		t.Errorf("10 MiB: %d %s", code, got)
	}
	if r.asked.Load() != 0 {
		t.Error("sentinel was asked")
	}
	if code, got, _ := r.page(t, "decide", `{"items":[],"assertion":"`+strings.Repeat("A", 900<<10)+`"}`); code != 200 || r.asked.Load() != 1 {
		t.Errorf("control: 900 KiB: %d %s", code, got)
	}
}

// A refusal of sentinel's comes as it wrote it, with the status for its reason. What goes wrong here says nothing of what it was, and
// nothing of it looks signed.
func TestRefusalsKeepTheirReasonAndFaultsTheirSecret(t *testing.T) {
	r := newRig(t, tunnel())
	for code, want := range map[wire.Code]int{wire.CodeNoSession: 401, wire.CodeNotFound: 404, wire.CodeBadArgument: 400, wire.CodeNotAllowed: 403,
		wire.CodeConflict: 409, wire.CodeExpired: 409, wire.CodeTooMany: 429, wire.CodeTooLarge: 413, wire.CodeUnavailable: 503,
		wire.CodeFull: 503, wire.CodeInternal: 500} {
		r.says(func(string) (*wire.WebResp, error) {
			return &wire.WebResp{Code: code, Body: []byte(`{"reason": "because"}`), Signature: []byte{1}}, nil
		})
		if got, body, h := r.page(t, "show", `{}`); got != want || body != `{"reason": "because"}` || h.Get("Doorward-Signature") != "AQ==" {
			t.Errorf("%s: %d %s, want %d", code, got, body, want)
		}
	}
	r.says(func(string) (*wire.WebResp, error) { return nil, errors.New("the password is hunter2") })
	if got, body, h := r.page(t, "show", `{}`); got != 500 || strings.Contains(body, "hunter2") || h.Get("Doorward-Signature") != "" {
		t.Errorf("%d %s", got, body)
	}
	away := New(tunnel(), &daemon.Client{Path: filepath.Join(t.TempDir(), "none"), Name: "sentinel", Log: slog.New(slog.DiscardHandler)}, nil,
		slog.New(slog.DiscardHandler))
	q := httptest.NewRequest("POST", "/v1/pending", strings.NewReader("{}"))
	q.Host = "localhost:8441"
	q.Header.Set("Origin", "http://localhost:8440")
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Cookie", "doorward="+session)
	q.Header.Set("Doorward-Nonce", strings.Repeat("A", 43)+"=")
	w := httptest.NewRecorder()
	away.ServeHTTP(w, q)
	if w.Code != 503 || !strings.Contains(w.Body.String(), `"code":"unavailable"`) {
		t.Errorf("without sentinel: %d %s", w.Code, w.Body)
	}
}

func TestEventsAreStreamed(t *testing.T) {
	r := newRig(t, tunnel())
	news := make(chan string, 8)
	r.says(func(string) (*wire.WebResp, error) {
		if text := <-news; text != "" {
			return &wire.WebResp{Body: []byte(text)}, nil
		}
		return &wire.WebResp{Code: wire.CodeNoSession, Body: []byte(`{"code":"no_session","reason":"over"}`)}, nil
	})
	news <- `{"last":0}` // by which the session is looked up
	news <- `{"last":4}`
	news <- `{"events":[{"id":"c","state":"parked","summary":"a\nb","unix":9}],"last":5}`
	req, _ := http.NewRequest("GET", r.URL+"/v1/events?after=-1", nil)
	req.Host = "localhost:8441"
	req.Header.Set("Origin", "http://localhost:8440")
	req.Header.Set("Cookie", "doorward="+session)
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := r.Client().Do(req.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"retry: 3000", "id: 4", `data: {"last":4}`, "", "id: 5",
		`data: {"events":[{"id":"c","state":"parked","summary":"a\nb","unix":9}],"last":5}`, ""} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
	}
	cancel()
	close(news)
	r.says(nil)
	for _, c := range []struct {
		query, last, cookie string
		code                int
	}{
		{"after=x", "", session, 400}, {"after=-2", "", session, 400}, {"after=1&after=2", "", session, 400}, {"x=1", "", session, 400},
		{"after=1", "x", session, 400}, {"after=1", "", "", 401},
	} {
		code, body, _ := r.page(t, "events", "", func(q *http.Request) {
			q.Method, q.URL.RawQuery = "GET", c.query
			q.Header.Set("Last-Event-ID", c.last)
			q.Header.Set("Cookie", "doorward="+c.cookie)
		})
		if code != c.code {
			t.Errorf("%+v: %d %s", c, code, body)
		}
	}
	if n, err := begin("after=3", "7"); n != 7 || err != nil {
		t.Errorf("a browser that connects again goes on at %d, %v", n, err)
	}
}

// So many browsers wait for events and no more, and so few large requests are read at once; neither is what others ask by.
func TestWhoWaitsHoldsUpNobody(t *testing.T) {
	r := newRig(t, tunnel())
	r.says(nil)
	s := r.Config.Handler.(*Server)
	for range maxStreams {
		s.streams <- struct{}{}
	}
	code, _, _ := r.page(t, "events", "", func(q *http.Request) { q.Method = "GET" })
	if code != 429 {
		t.Errorf("one more waits: %d", code)
	}
	for range maxLarge {
		s.large <- struct{}{}
	}
	large := `{"items":[],"assertion":"` + strings.Repeat("A", smallBody) + `"}`
	if code, _, _ := r.page(t, "decide", large); code != 429 {
		t.Errorf("one more large request: %d", code)
	}
	if code, _, _ := r.page(t, "pending", "{}"); code != 200 {
		t.Errorf("another is held up: %d", code)
	}
	<-s.large
	if code, _, _ := r.page(t, "decide", large); code != 200 {
		t.Errorf("control: a large request with a place: %d", code)
	}
}
