// SPDX-License-Identifier: Apache-2.0

package mint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/sentinel/egress/guard"
)

func hostOf(t testing.TB, s string) guard.Host {
	t.Helper()
	h, err := guard.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func open(t testing.TB, dir string) *Authority {
	t.Helper()
	a, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// long is a name of 200 bytes.
var long = strings.Repeat(strings.Repeat("a", 49)+".", 3) + strings.Repeat("b", 45) + ".test"

var names = []string{"vendor-a.test", long, "xn--bcher-kva.test", "198.51.100.7", "2001:db8::7", "under_score.test"}

func TestRootIsMadeOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	for name, want := range map[string]os.FileMode{rootFile: 0o644, keyFile: 0o600} {
		if i, err := os.Stat(filepath.Join(dir, name)); err != nil || i.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %v", name, i, err, want)
		}
	}
	if again := open(t, dir); !again.root.Equal(first.root) || !again.key.Equal(first.key) {
		t.Error("another authority after a restart")
	}
	if other := open(t, t.TempDir()); other.root.Equal(first.root) || other.root.Subject.String() == first.root.Subject.String() {
		t.Error("two cells have one authority")
	}
	if got := Root("work"); got != "/var/lib/doorward/egress-cell/work/ca.pem" {
		t.Errorf("the root is at %s", got)
	}
	// Between the two writes power was lost.
	if err := os.Remove(filepath.Join(dir, rootFile)); err != nil {
		t.Fatal(err)
	}
	if again := open(t, dir); !again.key.Equal(first.key) {
		t.Error("another key after a root was lost")
	}
}

func TestDamagedStateStops(t *testing.T) {
	other := t.TempDir()
	open(t, other)
	foreign, _ := os.ReadFile(filepath.Join(other, rootFile))
	for what, damage := range map[string]func(dir string) error{
		"key gone":       func(dir string) error { return os.Remove(filepath.Join(dir, keyFile)) },
		"key cut":        func(dir string) error { return os.Truncate(filepath.Join(dir, keyFile), 40) },
		"root cut":       func(dir string) error { return os.Truncate(filepath.Join(dir, rootFile), 40) },
		"root another's": func(dir string) error { return os.WriteFile(filepath.Join(dir, rootFile), foreign, 0o644) },
	} {
		dir := t.TempDir()
		open(t, dir)
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil {
			t.Errorf("%s: opened all the same", what)
		}
	}
}

// HT-07: what strict verifiers look at.
func TestHT07Certificates(t *testing.T) {
	a := open(t, t.TempDir())
	r := a.root
	if !r.IsCA || !r.BasicConstraintsValid || r.KeyUsage&x509.KeyUsageCertSign == 0 || len(r.SubjectKeyId) == 0 ||
		r.NotAfter.Sub(r.NotBefore) < 9*365*24*time.Hour {
		t.Errorf("root %+v", r)
	}
	for _, e := range r.Extensions {
		if e.Id.String() == "2.5.29.19" && !e.Critical {
			t.Error("basicConstraints is not critical")
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(r)
	for _, name := range names {
		cert, err := a.Leaf(hostOf(t, name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(c.DNSNames)+len(c.IPAddresses) != 1 || string(c.AuthorityKeyId) != string(r.SubjectKeyId) || len(c.SubjectKeyId) == 0 ||
			len(c.ExtKeyUsage) != 1 || c.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth || c.IsCA ||
			c.NotAfter.Sub(c.NotBefore) > 7*24*time.Hour || time.Since(c.NotBefore) < 23*time.Hour || c.SerialNumber.Sign() <= 0 {
			t.Errorf("%s: leaf %+v", name, c)
		}
		if _, err := c.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Verify(x509.VerifyOptions{Roots: pool, DNSName: "other.test"}); err == nil {
			t.Errorf("%s: good for another name too", name)
		}
	}
}

// HT-07: the verifiers themselves, against a real server.
func TestHT07Verifiers(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	root := filepath.Join(dir, rootFile)
	for _, name := range names {
		host := hostOf(t, name)
		cert, err := a.Leaf(host)
		if err != nil {
			t.Fatal(err)
		}
		leaf := filepath.Join(t.TempDir(), "leaf.pem")
		b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
		if err := os.WriteFile(leaf, b, 0o600); err != nil {
			t.Fatal(err)
		}
		verify := []string{"verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", root}
		if host.Addr().IsValid() {
			verify = append(verify, "-verify_ip", name)
		} else {
			verify = append(verify, "-verify_hostname", name)
		}
		run(t, name, "openssl", append(verify, leaf)...)

		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*cert}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = c.Write([]byte("hello")); _ = c.Close() }()
			}
		}()
		port := ln.Addr().(*net.TCPAddr).Port
		run(t, name, "python3", "-c", fmt.Sprintf(`
import socket, ssl
c = ssl.create_default_context(cafile=%q)
c.verify_flags |= ssl.VERIFY_X509_STRICT
s = c.wrap_socket(socket.create_connection(("127.0.0.1", %d)), server_hostname=%q)
assert s.recv(5) == b"hello"`, root, port, name))
		_ = ln.Close()
	}
}

// HT-07: Java looks at what the others let pass.
func TestHT07Java(t *testing.T) {
	for _, p := range []string{"java", "keytool"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip(p, " skipped: not installed")
		}
	}
	dir := t.TempDir()
	a := open(t, dir)
	store := filepath.Join(dir, "trust.p12")
	run(t, "store", "keytool", "-importcert", "-noprompt", "-alias", "cell", "-file", filepath.Join(dir, rootFile),
		"-keystore", store, "-storepass", "changeit", "-storetype", "PKCS12")
	src := filepath.Join(dir, "Get.java")
	if err := os.WriteFile(src, []byte(`
import javax.net.ssl.*;
public class Get {
  public static void main(String[] a) throws Exception {
    for (int i = 0; i < a.length; i += 2) {
      SSLSocketFactory f = (SSLSocketFactory) SSLSocketFactory.getDefault();
      java.net.Socket raw = new java.net.Socket("127.0.0.1", Integer.parseInt(a[i+1]));
      SSLSocket s = (SSLSocket) f.createSocket(raw, a[i], Integer.parseInt(a[i+1]), true);
      SSLParameters p = s.getSSLParameters();
      p.setEndpointIdentificationAlgorithm("HTTPS");
      s.setSSLParameters(p);
      s.startHandshake();
      s.close();
    }
  }
}`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-Djavax.net.ssl.trustStore=" + store, "-Djavax.net.ssl.trustStorePassword=changeit", src}
	for _, name := range names {
		if name == "under_score.test" { // its own parser takes no such name
			continue
		}
		cert, err := a.Leaf(hostOf(t, name))
		if err != nil {
			t.Fatal(err)
		}
		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*cert}})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() { _ = c.(*tls.Conn).Handshake(); _ = c.Close() }()
			}
		}()
		args = append(args, name, fmt.Sprint(ln.Addr().(*net.TCPAddr).Port))
	}
	run(t, "java", "java", args...)
}

func run(t *testing.T, what, program string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(program, " skipped: not installed")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		t.Errorf("%s: %s: %v\n%s", what, program, err, out)
	}
}

func TestOneMintForAHerd(t *testing.T) {
	a := open(t, t.TempDir())
	h := hostOf(t, "vendor-a.test")
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if _, err := a.Leaf(h); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if a.Made() != 1 {
		t.Errorf("%d leaves for one name", a.Made())
	}
}

func TestLeavesAreBoundedAndRenewed(t *testing.T) {
	a := open(t, t.TempDir())
	h := hostOf(t, "vendor-a.test")
	first, err := a.Leaf(h)
	if err != nil {
		t.Fatal(err)
	}
	a.leaves["vendor-a.test"].born = time.Now().Add(-keepLeaf - time.Minute)
	if second, err := a.Leaf(h); err != nil || second == first || a.Made() != 2 {
		t.Errorf("an old leaf is given out still: %v", err)
	}
	for i := range maxLeaf + 10 {
		if _, err := a.Leaf(hostOf(t, fmt.Sprint("x", i, ".test"))); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.leaves) > maxLeaf || len(a.order) != len(a.leaves) {
		t.Errorf("%d leaves are kept, %d in order", len(a.leaves), len(a.order))
	}
}

func TestNoLeafForNoHost(t *testing.T) {
	a := open(t, t.TempDir())
	if _, err := a.Leaf(guard.Host{}); err == nil {
		t.Error("a leaf for no host")
	}
}
