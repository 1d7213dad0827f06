// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/mint"
	"github.com/doorward/doorward/sentinel/egress/swap"
)

const (
	surrogateA = "ghp_DoorWard0123456789abcdefghijABCDEFGHIJ"
	realA      = "ghp_realREALrealREALrealREALrealREAL0001"
)

var bearerPlace = wire.Placement{Kind: swap.Header, Name: "Authorization", Prefix: "Bearer "}

// reader is a world in which requests are read. Sentinel's and authd's answers to them are functions of the test.
type reader struct {
	*world
	root *x509.CertPool // the cell's CA

	mu        sync.Mutex
	requests  []wire.RequestReq
	decide    func(*wire.RequestReq) error
	secret    string
	scrub     []string
	account   string
	accountCA []byte
	refuse    error // of authd
}

func newReader(t testing.TB) *reader {
	t.Helper()
	w := newWorld(t)
	r := &reader{world: w, secret: realA, account: "acme"}
	w.read = map[string]wire.ConnectResp{}
	dir := t.TempDir()
	var err error
	if w.s.CA, err = mint.Open(dir); err != nil {
		t.Fatal(err)
	}
	r.bundle = filepath.Join(dir, "ca.pem") // what curl trusts
	pem, err := os.ReadFile(r.bundle)
	if err != nil {
		t.Fatal(err)
	}
	r.root = x509.NewCertPool()
	r.root.AppendCertsFromPEM(pem)
	w.s.Roots = x509.NewCertPool()
	w.s.Roots.AddCert(w.ca)
	w.s.Facts = &Facts{
		Path: func(raw string) (string, error) {
			for _, bad := range []string{"%2F", "%2f", "%2e", "%2E", "//", ";", "\\", "/../"} {
				if strings.Contains(raw, bad) {
					return "", errors.New("ambiguous")
				}
			}
			return raw, nil
		},
		Match: func(pattern, path string) bool { return pattern == path },
		Read: func(as, method, path, query, media string, body []byte) ([]string, *wire.ModelUse) {
			return []string{fmt.Sprintf("%s %s %s %d", as, method, media, len(body))}, nil
		},
		Override: func(name string) bool { return strings.EqualFold(name, "X-HTTP-Method-Override") },
		Git: func(method, path, _, _ string, start []byte, _ bool) ([]string, int) {
			if method != "POST" || !strings.HasSuffix(path, "/git-receive-pack") {
				return nil, 0
			}
			if len(start) < 4 {
				return nil, 4
			}
			return []string{"git push " + string(start[:4])}, 0
		},
	}
	n := 0
	w.s.Request = func(_ context.Context, q *wire.RequestReq) (*wire.RequestResp, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, *q)
		n++
		if r.decide != nil {
			if err := r.decide(q); err != nil {
				return nil, err
			}
		}
		resp := &wire.RequestResp{ID: fmt.Sprint("r", n)}
		if q.Surrogate {
			resp.Grant, resp.Under = fmt.Sprint("g", n), []string{"issue-1"}
		}
		return resp, nil
	}
	w.s.Resolve = func(_ context.Context, q *wire.ResolveReq) (*wire.ResolveResp, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.refuse != nil {
			return nil, r.refuse
		}
		last := r.requests[len(r.requests)-1]
		if q.Surrogate != surrogateA || !strings.HasPrefix(q.Grant, "g") {
			return nil, wire.Refuse(wire.CodeBadSurrogate, "not the surrogate of this grant", "")
		}
		return &wire.ResolveResp{Secret: r.secret, Scrub: append([]string{r.secret}, r.scrub...), Placement: *w.read[last.Name].Credential, Account: r.account,
			Generation: 1, CA: r.accountCA, Entry: wire.Entry{Scheme: "https", Host: last.Name, Port: int(last.Port)}}, nil
	}
	return r
}

// reads has a name's requests read, with a credential in that place, if any.
func (r *reader) reads(name string, p *wire.Placement, more ...func(*wire.ConnectResp)) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	resp := wire.ConnectResp{How: wire.HowIntercept, Credential: p}
	for _, f := range more {
		f(&resp)
	}
	r.read[name] = resp
}

func (r *reader) judged() []wire.RequestReq {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// client is one in the cell that trusts the cell's CA and no other.
func (r *reader) client(h2 bool) *http.Client {
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.root}, Protocols: new(http.Protocols), DisableCompression: true,
		MaxIdleConnsPerHost: 64,
		DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(to)
			if err != nil {
				return nil, err
			}
			var p int
			_, _ = fmt.Sscan(port, &p)
			return r.world.dial(r.addr(host, p)), nil
		}}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(h2)
	r.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// tls connects from the cell and shakes hands.
func (r *reader) tls(name string, port int, protocols ...string) *tls.Conn {
	r.t.Helper()
	c := tls.Client(r.world.dial(r.addr(name, port)), &tls.Config{RootCAs: r.root, ServerName: name, NextProtos: protocols})
	if err := c.Handshake(); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// get is one request and its answer.
func get(t testing.TB, c *http.Client, method, url string, body io.Reader, fields ...string) (int, string, http.Header) {
	t.Helper()
	q, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		q.Header.Set(fields[i], fields[i+1])
	}
	resp, err := c.Do(q)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: the answer: %v", method, url, err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func site(name string, port int) string { return fmt.Sprintf("https://%s:%d", name, port) }

// requestReport waits for the report of the request number n.
func (r *reader) requestReport(id string) wire.SentReq {
	r.t.Helper()
	for range 500 {
		r.world.mu.Lock()
		for _, s := range r.reports {
			if s.Conn == id {
				r.world.mu.Unlock()
				return s
			}
		}
		r.world.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("no report of %s", id)
	return wire.SentReq{}
}

// judgedReports are those of a host, of requests and connections.
func (r *reader) judgedReports(host string) (out []wire.SentReq) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	for _, s := range r.reports {
		if s.Host == host {
			out = append(out, s)
		}
	}
	return out
}
