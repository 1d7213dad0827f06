// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// made is a certificate and its key, both in PEM.
func made(t testing.TB, name pkix.Name, ca bool) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: name, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: ca, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// What an egress puts in the place of its root is one certificate of an authority, or the cell does not start.
func TestRootIsOneCertificateOfAnAuthority(t *testing.T) {
	ca, key := made(t, pkix.Name{CommonName: "Doorward cell work"}, true)
	leaf, _ := made(t, pkix.Name{CommonName: "leaf"}, false)
	for name, text := range map[string][]byte{
		"empty":                        {},
		"no PEM":                       []byte("root"),
		"a key":                        key,
		"a key behind it":              slices.Concat(ca, key),
		"a key before it":              slices.Concat(key, ca),
		"two":                          slices.Concat(ca, ca),
		"words before it":              slices.Concat([]byte("x\n"), ca),
		"no authority":                 leaf,
		"more than a root has":         slices.Concat(ca, bytes.Repeat([]byte("\n"), maxRoot)),
		"a certificate that is broken": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{0x30, 0}}),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := Root(dir); err == nil || c != nil {
			t.Errorf("%s is taken", name)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, File)
	if _, err := Root(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	if err := os.WriteFile(path+".real", ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".real", path); err != nil {
		t.Fatal(err)
	}
	if _, err := Root(dir); err == nil {
		t.Error("a link is followed")
	}
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Root(dir); err == nil { // and does not wait for a writer
		t.Error("a pipe is read")
	}
	if err := errors.Join(os.Remove(path), os.Rename(path+".real", path)); err != nil {
		t.Fatal(err)
	}
	if c, err := Root(dir); err != nil || c.Subject.CommonName != "Doorward cell work" {
		t.Errorf("control: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	ca, key := made(f, pkix.Name{CommonName: "Doorward cell work"}, true)
	f.Add(ca)
	f.Add(slices.Concat(ca, key))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := parse(in)
		if (err == nil) != (c != nil) {
			t.Fatalf("%v with %v", c, err)
		}
		if c == nil {
			return
		}
		all, err := files(c, in)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(all["root.pem"]), "KEY") {
			t.Fatal("a key goes on")
		}
		if again, err := parse(all["root.pem"]); err != nil || !bytes.Equal(again.Raw, c.Raw) {
			t.Fatalf("what is written is not read again: %v", err)
		}
	})
}

// What is made is the tree's own with the root behind it, readable to all and writable to nobody; made again it is the new one.
func TestMakeAddsTheRootToWhatTheTreeTrusts(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	dir, state := filepath.Join(t.TempDir(), "ca", "work"), t.TempDir()
	first, _ := made(t, pkix.Name{CommonName: "one"}, true)
	second, _ := made(t, pkix.Name{CommonName: "two"}, true)
	tree, _ := made(t, pkix.Name{CommonName: "of the tree"}, true)
	for _, root := range [][]byte{first, second} {
		if err := os.WriteFile(filepath.Join(state, File), root, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Root(state)
		if err != nil {
			t.Fatal(err)
		}
		if err := Make(dir, c, bytes.TrimSpace(tree)); err != nil {
			t.Fatal(err)
		}
		bundle, err := os.ReadFile(filepath.Join(dir, "bundle.pem"))
		if err != nil || string(bundle) != string(tree)+string(root) {
			t.Errorf("%v, %s", err, bundle)
		}
		if all := certificates(bundle); len(all) != 2 {
			t.Errorf("%d certificates", len(all))
		}
	}
	found, err := os.ReadDir(dir)
	if err != nil || len(found) != 4 {
		t.Errorf("%v, %v", found, err)
	}
	for _, e := range found {
		if info, err := e.Info(); err != nil || info.Mode() != 0o644 {
			t.Errorf("%s is %v", e.Name(), info.Mode())
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Error("the folder is not for all to read")
	}
	c, _ := Root(state)
	if err := Make(dir, c, make([]byte, MaxBundle+1)); err == nil {
		t.Error("a bundle without bounds is taken")
	}
}

// Where a program has no store of its own nothing is put over it.
func TestBindsPutNothingWhereNothingIs(t *testing.T) {
	ca, _ := made(t, pkix.Name{CommonName: "Doorward cell work"}, true)
	c, err := parse(ca)
	if err != nil {
		t.Fatal(err)
	}
	to := func(has ...string) string {
		var list []string
		for _, b := range Binds("/run/x", "/run/doorward/ca/", "/etc/ssl/certs/ca-certificates.crt", c,
			func(p string) bool { return slices.Contains(has, p) }) {
			list = append(list, b.From+" "+b.To)
		}
		return strings.Join(list, "\n")
	}
	least := "/run/x /run/doorward/ca\n/run/x/bundle.pem /etc/ssl/certs/ca-certificates.crt\n/run/x/root.pem /etc/ssl/certs/" +
		subjectHash(c) + ".0"
	if got := to(); got != least {
		t.Errorf("%s", got)
	}
	want := least + "\n/run/x/cacerts /etc/ssl/certs/java/cacerts\n/run/x/chromium.json /etc/chromium/policies/managed/doorward.json"
	if got := to("/etc/ssl/certs/java/cacerts", "/usr/bin/chromium"); got != want {
		t.Errorf("%s", got)
	}
}

// The name by which OpenSSL looks a root up is what OpenSSL says it is.
func TestTheNameOfARootIsOpenSSLs(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	for _, name := range []pkix.Name{
		{CommonName: "Doorward cell work"},
		{CommonName: "  Two   Spaces ", Organization: []string{"Ünï Örg", "second"}, Country: []string{"DE"}},
	} {
		ca, _ := made(t, name, true)
		c, err := parse(ca)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(openssl, "x509", "-noout", "-subject_hash", "-fingerprint", "-sha256")
		cmd.Stdin = bytes.NewReader(ca)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		hash, print, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if hash != subjectHash(c) {
			t.Errorf("%v: %s, want %s", name, subjectHash(c), hash)
		}
		if _, hex, _ := strings.Cut(print, "="); strings.ToLower(strings.ReplaceAll(hex, ":", "")) != Fingerprint(c) {
			t.Errorf("%s, want %s", Fingerprint(c), print)
		}
	}
}

// Java's own keytool reads the store, with its password and without one.
func TestJavaReadsItsStore(t *testing.T) {
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Skip("keytool is not installed")
	}
	ca, _ := made(t, pkix.Name{CommonName: "Doorward cell work"}, true)
	c, err := parse(ca)
	if err != nil {
		t.Fatal(err)
	}
	tree, _ := made(t, pkix.Name{CommonName: "of the tree"}, true)
	path := filepath.Join(t.TempDir(), "cacerts")
	if err := os.WriteFile(path, jks(c, certificates(tree)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"changeit", ""} {
		cmd := exec.Command(keytool, "-J-Xint", "-list", "-keystore", path)
		cmd.Stdin = strings.NewReader(password + "\n")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "2 entries") || !strings.Contains(string(out), "doorward, ") {
			t.Errorf("with password %q: %v: %s", password, err, out)
		}
	}
}
