// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

func rootOf(t *testing.T) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Doorward cell work"}, IsCA: true,
		BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A cell gets what its tree trusts and the root; of a tree that leads elsewhere it gets nothing, and does not start.
func TestACellTrustsItsTreesRootsAndItsEgresss(t *testing.T) {
	root, tree, dir := rootOf(t), t.TempDir(), filepath.Join(t.TempDir(), "ca", "work")
	certs := filepath.Join(tree, "etc/ssl/certs")
	if err := os.MkdirAll(filepath.Join(certs, "java"), 0o755); err != nil {
		t.Fatal(err)
	}
	conf := &config{Root: tree, Usr: "own"}
	made := func() (string, error) {
		t.Helper()
		if _, err := conf.store("work", dir, root); err != nil {
			return "", err
		}
		b, err := os.ReadFile(filepath.Join(dir, wire.CABundle))
		return string(b), err
	}
	if b, err := made(); err != nil || strings.Count(b, "BEGIN CERTIFICATE") != 1 {
		t.Errorf("a tree without a bundle: %v, %s", err, b)
	}
	path := filepath.Join(tree, wire.SystemBundle)
	if err := os.WriteFile(path, []byte("# of the tree\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := made(); err != nil || !strings.HasPrefix(b, "# of the tree\n-----BEGIN CERTIFICATE") {
		t.Errorf("%v, %s", err, b)
	}
	binds, err := conf.store("work", dir, root)
	if err != nil || len(binds) != 3 {
		t.Errorf("%v, %v", binds, err)
	}
	if err := os.WriteFile(filepath.Join(certs, "java/cacerts"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if binds, err = conf.store("work", dir, root); err != nil || len(binds) != 4 || binds[3].To != "/etc/ssl/certs/java/cacerts" {
		t.Errorf("%v, %v", binds, err)
	}

	secret := filepath.Join(t.TempDir(), "key")
	if err := errors.Join(os.WriteFile(secret, []byte("of this machine"), 0o600), os.Remove(path), os.Symlink(secret, path)); err != nil {
		t.Fatal(err)
	}
	if b, err := made(); err != nil || strings.Contains(b, "of this machine") { // it leads to nothing in the tree
		t.Errorf("a link out of the tree: %v, %s", err, b)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	if b, err := made(); err == nil {
		t.Errorf("a folder: %s", b)
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o644), os.Truncate(path, 5<<20)); err != nil {
		t.Fatal(err)
	}
	var refused *wire.Error
	if b, err := made(); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "more than") {
		t.Errorf("a bundle of 5 MiB: %v, %s", err, b)
	}
}

// Without the root of its egress a cell is not started, and it is said why, and what to do.
func TestACellWithoutTheRootOfItsEgressIsNotStarted(t *testing.T) {
	err := refusedRoot("work", &fs.PathError{Op: "open", Path: "ca.pem", Err: fs.ErrNotExist})
	var refused *wire.Error
	if !errors.As(err, &refused) || refused.Code != wire.CodeUnavailable || !strings.Contains(refused.Reason, "has not made the root") ||
		!strings.Contains(refused.Next, "doorward-egress@work") {
		t.Errorf("%v", err)
	}
	if err := refusedRoot("work", errors.New("it is no regular file")); !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("%v", err)
	}
	conf := &config{Root: t.TempDir()}
	if binds, err := conf.trusted("nosuchcell"); binds != nil || !errors.As(err, &refused) {
		t.Errorf("%v, %v", binds, err)
	}
}
