// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// pageAnswers waits until a browser would get the page from one port, and from the other approvals' word through page.
func pageAnswers(t *testing.T) {
	t.Helper()
	for url, want := range map[string]int{"http://localhost:8440/": http.StatusOK, "http://localhost:8441/v1/pending": http.StatusUnauthorized} {
		eventually(t, url+" answers", func() error {
			req, err := http.NewRequest(http.MethodPost, url, http.NoBody)
			if err != nil {
				return err
			}
			if want == http.StatusOK {
				req.Method = http.MethodGet
			}
			req.Header.Set("Origin", "http://localhost:8440")
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Doorward-Nonce", base64.StdEncoding.EncodeToString(make([]byte, wire.WebNonce)))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != want {
				return fmt.Errorf("status %d, want %d", resp.StatusCode, want)
			}
			return nil
		})
	}
}

// Under systemd the page is served, and what it asks reaches approvals by page alone.
func TestThePageAnswers(t *testing.T) {
	ready(t)
	pageAnswers(t)
}

// Root sets the page up anew: with a certificate, on an address of its own, and back. The key that page may not read is refused before
// anything is changed, and no port listens where nobody named an address.
func TestApproverSetup(t *testing.T) {
	ready(t)
	setUp := func(args ...string) result {
		t.Helper()
		return as(t, "root", "user-0.slice", "", append([]string{"/usr/bin/doorward", "approver", "setup"}, args...)...)
	}
	const host, dir = "ward.example.org", "/etc/doorward/tls"
	t.Cleanup(func() {
		want(t, setUp("--tunnel", "--host", "localhost", "--yes"), 0, "back to localhost")
		pageAnswers(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	g, err := user.LookupGroup("doorward-tls")
	if err != nil {
		t.Fatal(err)
	}
	gid, _ := strconv.Atoi(g.Gid)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := errors.Join(os.MkdirAll(dir, 0o750), os.Chown(dir, 0, gid),
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
	args := []string{"--host", host, "--certificate", certFile, "--key", keyFile, "--listen", "127.0.0.2", "--yes"}
	if r := setUp(args...); r.code == 0 || !strings.Contains(r.stderr, "page may not read "+keyFile) {
		t.Errorf("a key that root alone may read: %v", r)
	}
	pageAnswers(t) // nothing was changed
	if err := errors.Join(os.Chown(keyFile, 0, gid), os.Chmod(keyFile, 0o640)); err != nil {
		t.Fatal(err)
	}
	want(t, setUp(args...), 0, "with a certificate")
	for _, port := range []string{"8440", "8441"} {
		conn, err := tls.Dial("tcp", "127.0.0.2:"+port, &tls.Config{ServerName: host, InsecureSkipVerify: true})
		if err != nil {
			t.Errorf("port %s: %v", port, err)
			continue
		}
		conn.Close()
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			t.Errorf("port %s listens on another address too", port)
		}
	}
}
