// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

const (
	sur    = "ghp_SURROGATE-0123456789"
	secret = "ghp_REAL-CREDENTIAL-0123456789-abcdefghij"
)

var bearer = wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "}

// ca is a certificate authority of one test.
type ca struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newCA(t testing.TB) *ca {
	t.Helper()
	c := new(ca)
	var err error
	if c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &c.key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	c.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return c
}

// leaf makes a server's certificate; until may be in the past.
func (c *ca) leaf(t testing.TB, until time.Time, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// seen is one request as a vendor's server got it.
type seen struct {
	Proto, Method, Target, Host string
	Header                      http.Header
	Body                        []byte
	Err                         error
}

// vendor is a TLS server that records.
type vendor struct {
	addr netip.AddrPort
	mu   sync.Mutex
	all  []seen
	conn int

	forget bool // keep no record
}

func (v *vendor) seen() []seen {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]seen(nil), v.all...)
}

func (v *vendor) conns() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.conn
}

// startVendor serves h with cert on a loopback address. Bodies above 1 MiB are counted, not kept.
func startVendor(t testing.TB, cert tls.Certificate, h http.HandlerFunc, protos ...string) *vendor {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skipf("loopback skipped: %v", err)
	}
	v := &vendor{addr: ln.Addr().(*net.TCPAddr).AddrPort()}
	srv := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), ReadHeaderTimeout: time.Minute,
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				v.mu.Lock()
				v.conn++
				v.mu.Unlock()
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if v.forget {
				h(w, r)
				return
			}
			s := seen{Proto: r.Proto, Method: r.Method, Target: r.RequestURI, Host: r.Host, Header: r.Header.Clone()}
			if r.ContentLength <= 1<<20 {
				s.Body, s.Err = io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(s.Body))
			}
			v.mu.Lock()
			v.all = append(v.all, s)
			v.mu.Unlock()
			h(w, r)
		})}
	if len(protos) == 0 {
		protos = []string{"h2", "http/1.1"}
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protos}
	srv.TLSConfig = cfg
	go func() { _ = srv.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = srv.Close() })
	return v
}

// rawVendor answers each connection with f, for answers that no server would give.
func rawVendor(t testing.TB, cert tls.Certificate, f func(*tls.Conn, *bufio.Reader)) netip.AddrPort {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Skipf("loopback skipped: %v", err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c.(*tls.Conn), bufio.NewReader(c))
			}()
		}
	}()
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// names is a scripted resolver.
type names map[string][]netip.Addr

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if a := n[host]; a != nil {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// world is a proxy with a stand-in for authd and sentinel.
type world struct {
	t       testing.TB
	s       *Server
	sock    string
	dns     names
	mu      sync.Mutex
	grants  map[string][]wire.ResolveResp
	reports []wire.SentReq
	down    error // what authd says instead
	full    bool
	logs    bytes.Buffer
	client  *http.Client
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func newWorld(t testing.TB, change ...func(*Server)) *world {
	t.Helper()
	w := &world{t: t, grants: map[string][]wire.ResolveResp{}, dns: names{}}
	w.sock = filepath.Join(t.TempDir(), "sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.sock})
	if err != nil {
		t.Fatal(err)
	}
	w.s = &Server{
		Listener: peer.NewListener(ln, peertest.Worker("vendora"), nil), Resolve: w.resolve, Report: w.report,
		Full: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.full },
		Dialer: &guard.Dialer{Resolver: w.dns, Own: func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}},
		Log: slog.New(slog.NewJSONHandler(lockedWriter{&w.mu, &w.logs}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(w.s)
	}
	w.s.setUp()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.s.Serve(ctx) }()
	w.client = &http.Client{
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", w.sock)
			}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       time.Minute,
	}
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("serve does not end")
		}
	})
	return w
}

func (w *world) resolve(_ context.Context, req *wire.ResolveReq) (*wire.ResolveResp, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return nil, w.down
	}
	list := w.grants[req.Grant]
	if req.Entry >= len(list) || req.Worker != "vendora" {
		return nil, wire.Refuse(wire.CodeBadGrant, "no such grant", "")
	}
	resp := list[req.Entry]
	if resp.Entry.Credential && req.Surrogate != sur {
		return nil, wire.Refuse(wire.CodeBadSurrogate, "not the surrogate of this grant", "")
	}
	return &resp, nil
}

func (w *world) report(s wire.SentReq) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, s)
}

// sent waits for n reports and returns them all.
func (w *world) sent(n int) []wire.SentReq {
	w.t.Helper()
	for range 500 {
		w.mu.Lock()
		got := append([]wire.SentReq(nil), w.reports...)
		w.mu.Unlock()
		if len(got) >= n {
			if len(got) > n {
				w.t.Errorf("%d reports, want %d: %+v", len(got), n, got)
			}
			return got
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("fewer than %d reports: %+v", n, w.reports)
	return nil
}

func (w *world) log() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs.String()
}

// grant makes an entry of a grant for a server at v, with the credential as a bearer token. change may alter it.
func (w *world) grant(name string, c *ca, v netip.AddrPort, change ...func(*wire.ResolveResp)) {
	r := wire.ResolveResp{Secret: secret, Placement: bearer, Scrub: []string{secret}, CA: c.pem,
		Permit: []string{v.String()},
		Call:   "call", Cell: "work", Account: "acct", Generation: 1,
		Entry: wire.Entry{Name: "e" + strconv.Itoa(len(w.grants[name])), Scheme: "https", Host: "vendor-a.test",
			Port: int(v.Port()), Method: "GET",
			Path: "/a", Credential: true, Uses: 1}}
	for _, f := range change {
		f(&r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants[name] = append(w.grants[name], r)
}

// request makes one for entry of grant, with the surrogate in its place.
func (w *world) request(method, host, target, grant string, entry int, body io.Reader) *http.Request {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+host+target, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set(HeaderGrant, grant)
	req.Header.Set(HeaderEntry, strconv.Itoa(entry))
	req.Header.Set(HeaderSurrogate, sur)
	req.Header.Set("Authorization", "Bearer "+sur)
	return req
}

// do sends and reads the whole answer. A refusal comes back as *wire.Error.
func (w *world) do(req *http.Request) (*http.Response, string, error) {
	w.t.Helper()
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if code := resp.Header.Get(ErrorHeader); code != "" {
		refusal := new(wire.Error)
		if jerr := json.Unmarshal(b, refusal); jerr != nil || string(refusal.Code) != code {
			w.t.Errorf("refusal %s with body %q", code, b)
		}
		return resp, string(b), refusal
	}
	return resp, string(b), err
}

// get is do for a GET of target on vendor-a.test.
func (w *world) get(v netip.AddrPort, target, grant string) (*http.Response, string, error) {
	w.t.Helper()
	return w.do(w.request("GET", fmt.Sprintf("vendor-a.test:%d", v.Port()), target, grant, 0, nil))
}

func (w *world) wantRefusal(err error, code wire.Code, status int, resp *http.Response) {
	w.t.Helper()
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code != code || resp.StatusCode != status {
		w.t.Errorf("%v, %+v, want %s and %d", err, resp, code, status)
	}
}

// dial opens a raw connection to the proxy.
func (w *world) dial() (net.Conn, *bufio.Reader) {
	w.t.Helper()
	c, err := net.Dial("unix", w.sock)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c, bufio.NewReader(c)
}

// head is a raw request with the usual headers; more are lines that end in \r\n.
func rawHead(method, host, target, grant string, entry int, more string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s: %s\r\n%s: %d\r\n%s: %s\r\nAuthorization: Bearer %s\r\n%s\r\n",
		method, target, host, HeaderGrant, grant, HeaderEntry, entry, HeaderSurrogate, sur, sur, more)
}

// noSecret fails where any of the texts shows the credential.
func noSecret(t testing.TB, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if strings.Contains(s, secret) {
			t.Errorf("shows the credential: %.200q", s)
		}
	}
}
