// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
)

// mine is the one session that sentinel's stand-in knows here; forged has the form of one.
var mine, forged = bytes.Repeat([]byte{1}, sessionSize), bytes.Repeat([]byte{2}, sessionSize)

// port is approvals on a port as it stands there, before a stand-in that knows one session.
type port struct {
	*Server
	addr  string
	hangs chan struct{} // what login waits for
}

// stand answers who has that session, and a login after it has waited.
func (p *port) stand(name string) daemon.Verb {
	return daemon.On(name, peer.Daemon("approvals"), func(ctx context.Context, _ *daemon.Call, req *wire.WebReq) (*wire.WebResp, error) {
		switch {
		case name == "login":
			select {
			case <-p.hangs:
			case <-ctx.Done():
			}
		case !bytes.Equal(req.Session, mine):
			return &wire.WebResp{Code: wire.CodeNoSession, Body: []byte(`{"code":"no_session","reason":"it is not known"}`)}, nil
		}
		return &wire.WebResp{Body: []byte("{}")}, nil
	})
}

func newPort(t *testing.T) *port {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	p := &port{addr: ln.Addr().String(), hangs: make(chan struct{})}
	sentinel := &daemon.Server{Name: "sentinel-web", Log: log, Listener: peer.NewListener(unix, peertest.Daemon("approvals"), nil),
		Verbs: []daemon.Verb{p.stand("login"), p.stand("pending"), p.stand("decide"), p.stand("events")}}
	one, two := &daemon.Client{Path: path, Name: "sentinel", Log: log}, &daemon.Client{Path: path, Name: "sentinel", Log: log}
	p.Server = New(tunnel(), one, two, log)
	web := &front.Server{Listener: front.NewBounded(ln, front.Conns, front.OfAddress), Handler: p.Server, Log: log}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- sentinel.Serve(ctx) }()
	go func() { done <- web.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		one.Close()
		two.Close()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// begin sends the head of a request of so many bytes, and of the body what there is.
func (p *port) begin(t *testing.T, verb string, session []byte, length int, body string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	p.send(c, verb, session, length, body)
	return c
}

func (p *port) send(c net.Conn, verb string, session []byte, length int, body string) {
	cookie := ""
	if session != nil {
		cookie = "Cookie: doorward=" + base64.RawURLEncoding.EncodeToString(session) + "\r\n"
	}
	fmt.Fprintf(c, "POST /v1/%s HTTP/1.1\r\nHost: localhost:8441\r\nOrigin: http://localhost:8440\r\nContent-Type: application/json\r\n%s"+
		"Doorward-Nonce: "+base64.StdEncoding.EncodeToString(make([]byte, wire.WebNonce))+"\r\nContent-Length: %d\r\n\r\n%s", verb, cookie, length, body)
}

// answered reads an answer's status.
func answered(t *testing.T, c net.Conn) string {
	t.Helper()
	b := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Errorf("no answer: %v", err)
	}
	return strings.TrimPrefix(string(b), "HTTP/1.1 ")
}

const largeBody = 512 << 10

// A body that is large is waited for only where sentinel knows the session; else the answer comes before it.
func TestALargeBodyNeedsASession(t *testing.T) {
	p := newPort(t)
	for name, session := range map[string][]byte{"no cookie": nil, "one of the right form": forged} {
		if got := answered(t, p.begin(t, "decide", session, largeBody, "")); got != "401" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := answered(t, p.begin(t, "login", nil, largeBody, "")); got != "401" {
		t.Errorf("to sign in: %s", got)
	}
	body := `{"items":[],"assertion":"` + strings.Repeat("A", largeBody) + `"}`
	if got := answered(t, p.begin(t, "decide", mine, len(body), body)); got != "200" {
		t.Errorf("control: with a session: %s", got)
	}
}

// Strangers who send large bodies slowly take no place. Control: with a session they do, and one more is told to wait.
func TestSlowLargeBodiesHoldNobodyUp(t *testing.T) {
	p := newPort(t)
	body := `{"items":[],"assertion":"` + strings.Repeat("A", largeBody) + `"}`
	for range 2 * maxLarge {
		p.begin(t, "decide", forged, len(body), body[:100])
		p.begin(t, "decide", nil, len(body), body[:100])
	}
	if got := answered(t, p.begin(t, "decide", mine, len(body), body)); got != "200" {
		t.Errorf("behind strangers: %s", got)
	}
	for range maxLarge {
		p.begin(t, "decide", mine, len(body), body[:100])
	}
	for end := time.Now().Add(time.Minute); len(p.large) < maxLarge; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d places are taken", len(p.large))
		}
	}
	if got := answered(t, p.begin(t, "decide", mine, len(body), body)); got != "429" {
		t.Errorf("control: behind others with a session: %s", got)
	}
}

// While sentinel is slow to answer strangers, they wait in half of the places. Control: who is not known waits behind them.
func TestStrangersLeavePlaces(t *testing.T) {
	p := newPort(t)
	person := p.begin(t, "pending", mine, 2, "{}")
	if got := answered(t, person); got != "200" {
		t.Fatal(got)
	}
	for range maxStrange + 4 {
		p.begin(t, "login", nil, 2, "{}")
	}
	for end := time.Now().Add(time.Minute); len(p.strange) < maxStrange; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d places are taken", len(p.strange))
		}
	}
	if n := len(p.asked); n > maxStrange {
		t.Errorf("strangers have %d of %d places", n, maxAsked)
	}
	rest := make([]byte, 4<<10)
	if n, err := person.Read(rest); err != nil || n == 0 { // of the answer before
		t.Fatal(err)
	}
	p.send(person, "pending", mine, 2, "{}")
	if got := answered(t, person); got != "200" {
		t.Errorf("who is signed in: %s", got)
	}
	if got := answered(t, p.begin(t, "login", nil, 2, "{}")); got != "429" {
		t.Errorf("control: one more stranger: %s", got)
	}
	close(p.hangs)
}

// A cookie of the right form makes nobody known, nor does what answers everybody.
func TestWhoIsKnown(t *testing.T) {
	p := newPort(t)
	close(p.hangs)
	for _, c := range []struct {
		name, verb string
		session    []byte
		kept       bool
	}{{"a forged cookie", "pending", forged, false}, {"a forged cookie at login", "login", forged, false}, {"no cookie", "login", nil, false},
		{"a session", "pending", mine, true}} {
		kept := make(chan bool, 1)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		web := &front.Server{Listener: front.NewBounded(ln, 1, 1), Log: slog.New(slog.DiscardHandler),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				p.ServeHTTP(w, r)
				kept <- front.Kept(front.Conn(r.Context()))
			})}
		done := make(chan error, 1)
		go func() { done <- web.Serve(ctx) }()
		(&port{addr: ln.Addr().String()}).begin(t, c.verb, c.session, 2, "{}")
		if got := <-kept; got != c.kept {
			t.Errorf("%s: %t", c.name, got)
		}
		cancel()
		<-done
	}
}
