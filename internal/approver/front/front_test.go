// SPDX-License-Identifier: Apache-2.0

package front

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/approver"
)

// issue writes a certificate for a host with a serial number, and its key.
func issue(t *testing.T, p *approver.Place, host string, serial int64, ends time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, p.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	put(t, p.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

func put(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func place(t *testing.T) *approver.Place {
	dir := t.TempDir()
	return &approver.Place{Host: "ward.example.org", Page: 8440, API: 8441, Certificate: filepath.Join(dir, "cert.pem"),
		Key: filepath.Join(dir, "key.pem")}
}

func TestACertificateIsReadAgainWhenItChanges(t *testing.T) {
	p, log := place(t), new(bytes.Buffer)
	year := time.Now().Add(365 * 24 * time.Hour)
	if _, err := NewCertificate(p, slog.New(slog.NewTextHandler(log, nil))); err == nil {
		t.Fatal("without files there is a certificate")
	}
	issue(t, p, p.Host, 1, year)
	c, err := NewCertificate(p, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 {
		t.Helper()
		c.mu.Lock()
		c.looked = time.Time{} // a second is over
		c.mu.Unlock()
		got, err := c.Get(&tls.ClientHelloInfo{ServerName: p.Host})
		if err != nil {
			t.Fatal(err)
		}
		return got.Leaf.SerialNumber.Int64()
	}
	said := func() int { return strings.Count(log.String(), "level=ERROR") }
	if serial() != 1 {
		t.Error("not the one that is there")
	}
	issue(t, p, p.Host, 2, year)
	if serial() != 2 {
		t.Error("a new one is not seen")
	}
	for name, spoil := range map[string]func(){
		"half of a file": func() { put(t, p.Certificate, []byte("-----BEGIN CERTIFICATE-----\n")) },
		"another's key": func() {
			kept, _ := os.ReadFile(p.Certificate)
			issue(t, p, p.Host, 3, year)
			put(t, p.Certificate, kept)
		},
		"another host's": func() { issue(t, p, "other.example.org", 4, year) },
		"one that ended": func() { issue(t, p, p.Host, 5, time.Now().Add(-time.Hour)) },
		"no file":        func() { _ = os.Remove(p.Key) },
	} {
		t.Run(name, func(t *testing.T) {
			before := said()
			spoil()
			for range 3 {
				if serial() != 2 {
					t.Error("it is in use")
				}
			}
			if said() != before+1 {
				t.Errorf("said %d times, want once", said()-before)
			}
		})
		issue(t, p, p.Host, 2, year)
		if serial() != 2 {
			t.Error("control: a right one is not taken again")
		}
	}
	for _, name := range []string{"", "other.example.org", "WARD.example.org", "127.0.0.1"} {
		if got, err := c.Get(&tls.ClientHelloInfo{ServerName: name}); got != nil || err == nil {
			t.Errorf("who asks for %q gets a certificate", name)
		}
	}
}

// run serves a handler on a TCP socket of its own until the test ends.
func run(t *testing.T, p *approver.Place, h http.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(p, ln, h, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func TestTLSWithBothVersionsOfHTTP(t *testing.T) {
	p := place(t)
	issue(t, p, p.Host, 1, time.Now().Add(time.Hour))
	addr := run(t, p, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	roots := x509.NewCertPool()
	b, _ := os.ReadFile(p.Certificate)
	roots.AppendCertsFromPEM(b)
	for proto, protocols := range map[string]func(*http.Protocols){"HTTP/1.1": func(x *http.Protocols) { x.SetHTTP1(true) },
		"HTTP/2.0": func(x *http.Protocols) { x.SetHTTP2(true) }} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: p.Host}, Protocols: new(http.Protocols)}
		protocols(tr.Protocols)
		resp, err := (&http.Client{Transport: tr}).Get("https://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != proto {
			t.Errorf("%s, want %s", got, proto)
		}
		tr.CloseIdleConnections()
	}
	old := &tls.Config{RootCAs: roots, ServerName: p.Host, MaxVersion: tls.VersionTLS12}
	if c, err := tls.Dial("tcp", addr, old); err == nil {
		c.Close()
		t.Error("TLS 1.2 is taken")
	}
}

// One address has so many connections and no more, and gets them back as they end.
func TestOneAddressDoesNotTakeAllConnections(t *testing.T) {
	p := &approver.Place{Host: "localhost", Page: 8440, API: 8441}
	addr := run(t, p, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	ask := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost:8440\r\n\r\n"); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 204")))
		return err
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	var all []net.Conn
	for range maxOfAddress {
		c := dial()
		if err := ask(c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if ask(dial()) == nil {
		t.Error("one more is answered")
	}
	all[0].Close()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if ask(dial()) == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the place of one that ended is not given back")
		}
	}
}

func TestAllConnectionsTogetherAreBounded(t *testing.T) {
	b := &bounded{of: map[netip.Prefix]int{}}
	n := 0
	for i := range 2 * maxConns {
		a := netip.AddrFrom16([16]byte{0x20, 1, byte(i >> 8), byte(i)})
		if b.admit(network(&net.TCPAddr{IP: a.AsSlice(), Port: 1})) {
			n++
		}
	}
	if n != maxConns {
		t.Errorf("%d, want %d", n, maxConns)
	}
	one, two := &net.TCPAddr{IP: net.ParseIP("2001:db8::1")}, &net.TCPAddr{IP: net.ParseIP("2001:db8::ffff:2")}
	if network(one) != network(two) {
		t.Error("one host's /64 counts as many addresses")
	}
	if network(&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1")}) != network(&net.TCPAddr{IP: net.ParseIP("192.0.2.1").To4()}) {
		t.Error("a mapped address is another")
	}
	if network(&net.TCPAddr{IP: net.ParseIP("192.0.2.1")}) == network(&net.TCPAddr{IP: net.ParseIP("192.0.2.2")}) {
		t.Error("two hosts are one")
	}
}

// When the daemon stops, what waits for events does not hold it up.
func TestServeEndsWithItsContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var in sync.WaitGroup
	in.Add(1)
	s, err := New(&approver.Place{Host: "localhost"}, ln, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		in.Done()
		<-r.Context().Done()
	}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	in.Wait()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
}
