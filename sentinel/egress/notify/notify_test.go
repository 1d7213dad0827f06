// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

// names answers every look-up with one address.
type names netip.Addr

func (n names) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.Addr(n)}, nil
}

// server is one on loopback that counts what arrives, with a channel for it.
func server(t *testing.T, h http.HandlerFunc) (*Sender, *wire.NotifyReq, *atomic.Int32) {
	t.Helper()
	got := new(atomic.Int32)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Add(1)
		h(w, r)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	d := &guard.Dialer{Resolver: names(netip.MustParseAddr("127.0.0.1")), Own: func() ([]netip.Addr, error) { return nil, nil }}
	return New(d), &wire.NotifyReq{URL: s.URL + "/topic", CA: ca, Permit: []string{s.Listener.Addr().String()},
		Header: []wire.NoticeHeader{{Name: "Authorization", Value: "Bearer tk"}}, Body: []byte("text")}, got
}

func TestANoticeIsPosted(t *testing.T) {
	s, req, got := server(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != "/topic" || string(b) != "text" || r.Header.Get("Authorization") != "Bearer tk" {
			t.Errorf("%s %s %q %v", r.Method, r.URL, b, r.Header)
		}
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	r, err := s.Notify(t.Context(), nil, req)
	if err != nil || r.Status != http.StatusTooManyRequests || r.Retry != maxRetry || got.Load() != 1 {
		t.Errorf("%+v, %v, %d times", r, err, got.Load())
	}
}

// Nobody reaches what is not public by a notice. Each attempt is made again with that one address opened, and arrives.
func TestANoticeGoesNowhereInside(t *testing.T) {
	for name, change := range map[string]func(*wire.NotifyReq){
		"loopback": func(*wire.NotifyReq) {},
		"a name that leads there": func(r *wire.NotifyReq) {
			r.URL = strings.Replace(r.URL, "127.0.0.1", "example.com", 1) // the certificate of httptest is for it
		},
		"mapped into IPv6": func(r *wire.NotifyReq) { r.URL = strings.Replace(r.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s, req, got := server(t, func(http.ResponseWriter, *http.Request) {})
			change(req)
			permit := req.Permit
			req.Permit = nil
			var refused *wire.Error
			if r, err := s.Notify(t.Context(), nil, req); !errors.As(err, &refused) || refused.Code != wire.CodeNotAllowed || r != nil {
				t.Errorf("without a permit: %v, %v", r, err)
			}
			req.Permit = []string{"127.0.0.1:1"}
			if _, err := s.Notify(t.Context(), nil, req); err == nil || got.Load() != 0 {
				t.Errorf("with another's: %v; %d arrived", err, got.Load())
			}
			req.Permit = permit
			if r, err := s.Notify(t.Context(), nil, req); err != nil || r.Status != http.StatusOK || got.Load() != 1 {
				t.Errorf("control: %v, %v", r, err)
			}
		})
	}
}

// A redirect leads nowhere, also to where a permit would let it.
func TestARedirectIsAnAnswer(t *testing.T) {
	_, other, reached := server(t, func(http.ResponseWriter, *http.Request) {})
	s, req, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	req.Permit = append(req.Permit, other.Permit...)
	if r, err := s.Notify(t.Context(), nil, req); err != nil || r.Status != http.StatusTemporaryRedirect || reached.Load() != 0 {
		t.Errorf("%v, %v; %d came there", r, err, reached.Load())
	}
}

func TestWhatIsNoNotice(t *testing.T) {
	for name, change := range map[string]func(*wire.NotifyReq){
		"plain http":            func(r *wire.NotifyReq) { r.URL = strings.Replace(r.URL, "https", "http", 1) },
		"another scheme":        func(r *wire.NotifyReq) { r.URL = "file:///etc/passwd" },
		"a user":                func(r *wire.NotifyReq) { r.URL = strings.Replace(r.URL, "https://", "https://u:p@", 1) },
		"a line in a value":     func(r *wire.NotifyReq) { r.Header[0].Value = "a\r\nHost: b" },
		"another host":          func(r *wire.NotifyReq) { r.Header[0].Name = "Host" },
		"a length":              func(r *wire.NotifyReq) { r.Header[0].Name = "Content-Length" },
		"one twice":             func(r *wire.NotifyReq) { r.Header = append(r.Header, r.Header[0]) },
		"too long":              func(r *wire.NotifyReq) { r.Body = make([]byte, wire.MaxNotice+1) },
		"a permit that is none": func(r *wire.NotifyReq) { r.Permit = []string{"127.0.0.0/8"} },
		"a CA that is none":     func(r *wire.NotifyReq) { r.CA = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			s, req, got := server(t, func(http.ResponseWriter, *http.Request) {})
			change(req)
			var refused *wire.Error
			if _, err := s.Notify(t.Context(), nil, req); !errors.As(err, &refused) || refused.Code != wire.CodeNotAllowed || got.Load() != 0 {
				t.Errorf("%v; %d arrived", err, got.Load())
			}
		})
	}
}

// Who answers without end, or not by the CA that was named, keeps nobody.
func TestServersThatMisbehave(t *testing.T) {
	t.Run("a body without end", func(t *testing.T) {
		s, req, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
			for b := make([]byte, 1<<16); r.Context().Err() == nil; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		})
		if r, err := s.Notify(t.Context(), nil, req); err != nil || r.Status != http.StatusOK {
			t.Errorf("%v, %v", r, err)
		}
	})
	t.Run("a head that is too long", func(t *testing.T) {
		s, req, _ := server(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 2*maxHead)) })
		if r, err := s.Notify(t.Context(), nil, req); err == nil {
			t.Errorf("%v", r)
		}
	})
	t.Run("another's certificate", func(t *testing.T) {
		s, req, got := server(t, func(http.ResponseWriter, *http.Request) {})
		req.CA = nil
		if _, err := s.Notify(t.Context(), nil, req); err == nil || got.Load() != 0 {
			t.Errorf("%v; %d arrived", err, got.Load())
		}
	})
	t.Run("nobody", func(t *testing.T) {
		s, req, _ := server(t, func(http.ResponseWriter, *http.Request) {})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = ln.Close()
		req.URL, req.Permit = "https://"+ln.Addr().String()+"/", []string{ln.Addr().String()}
		var refused *wire.Error
		if _, err := s.Notify(t.Context(), nil, req); !errors.As(err, &refused) || refused.Code != wire.CodeUnavailable {
			t.Error(err)
		}
	})
}
