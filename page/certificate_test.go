// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
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
