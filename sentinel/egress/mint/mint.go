// SPDX-License-Identifier: Apache-2.0

// Package mint is the certificate authority of one cell. Its root is trusted in that cell alone, so what an attacker with its
// key gains is to answer that cell's own connections, which stay in the machine; it is a key of no use elsewhere. Leaves are
// made when they are needed, live a week, and share one key that is never written down.
package mint

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/sentinel/egress/guard"
)

// Files of the state directory. The root is for the cell to read, the key for nobody.
const (
	rootFile = "ca.pem"
	keyFile  = "ca.key"
)

// Root is the path of a cell's root certificate, PEM, on a machine with the package's units: what is bound into the cell. It is
// there from its egress's first start on.
func Root(cell string) string { return "/var/lib/doorward/egress-cell/" + cell + "/" + rootFile }

const (
	rootLife = 10 * 365 * 24 * time.Hour
	backDate = 24 * time.Hour     // clocks of clients may be behind
	leafLife = 6 * 24 * time.Hour // from now on
	keepLeaf = 3 * 24 * time.Hour // then a new one is made
	maxLeaf  = 2048               // leaves kept
	maxCN    = 64                 // bytes of a common name (RFC 5280 A.1)
)

// Authority makes leaves. It is safe for concurrent use.
type Authority struct {
	root    *x509.Certificate
	key     *ecdsa.PrivateKey
	leafKey *ecdsa.PrivateKey
	keyID   []byte // of leafKey
	made    atomic.Int64

	mu     sync.Mutex // guards what follows
	leaves map[string]*leaf
	order  []string // of leaves, oldest first
}

type leaf struct {
	once sync.Once
	cert *tls.Certificate
	err  error
	born time.Time
}

// Open reads the authority of the state directory dir, or makes one. Files that no run of this program left are an error: a new
// root in their place would be one that no client in the cell trusts, without a word why.
func Open(dir string) (*Authority, error) {
	key, err := openKey(filepath.Join(dir, keyFile), filepath.Join(dir, rootFile))
	if err != nil {
		return nil, err
	}
	root, err := openRoot(filepath.Join(dir, rootFile), key)
	if err != nil {
		return nil, err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of leaves: %w", err)
	}
	id, err := keyID(&leafKey.PublicKey)
	if err != nil {
		return nil, err
	}
	return &Authority{root: root, key: key, leafKey: leafKey, keyID: id, leaves: map[string]*leaf{}}, nil
}

// openKey reads the root's key or makes one. It is written before the root, so a root without its key is a loss.
func openKey(path, root string) (*ecdsa.PrivateKey, error) {
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		p, rest := pem.Decode(b)
		if p == nil || p.Type != "PRIVATE KEY" || len(rest) > 0 {
			return nil, damaged(path, errors.New("not one PEM private key"))
		}
		k, err := x509.ParsePKCS8PrivateKey(p.Bytes)
		if err != nil {
			return nil, damaged(path, err)
		}
		key, ok := k.(*ecdsa.PrivateKey)
		if !ok || key.Curve != elliptic.P256() {
			return nil, damaged(path, errors.New("not a P-256 key"))
		}
		return key, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("read the key of the cell's CA: %w", err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
		return nil, damaged(path, errors.New("it is gone, and the root is there"))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the cell's CA: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make the key of the cell's CA: %w", err)
	}
	return key, put(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

func openRoot(path string, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		p, rest := pem.Decode(b)
		if p == nil || p.Type != "CERTIFICATE" || len(rest) > 0 {
			return nil, damaged(path, errors.New("not one PEM certificate"))
		}
		root, err := x509.ParseCertificate(p.Bytes)
		if err != nil {
			return nil, damaged(path, err)
		}
		if !key.PublicKey.Equal(root.PublicKey) || !root.IsCA {
			return nil, damaged(path, errors.New("it is not of the key beside it"))
		}
		return root, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("read the root of the cell's CA: %w", err)
	}
	id, err := keyID(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		// The name is told apart by the key: a cell that was made anew may still have the old one in some store.
		Subject:      pkix.Name{Organization: []string{"Doorward"}, CommonName: fmt.Sprintf("Doorward cell CA %x", id[:4])},
		SerialNumber: serial(), SubjectKeyId: id, AuthorityKeyId: id, IsCA: true, BasicConstraintsValid: true,
		MaxPathLen: 0, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		NotBefore: now.Add(-backDate), NotAfter: now.Add(rootLife),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make the root of the cell's CA: %w", err)
	}
	if err := put(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Leaf is a certificate for a host, made once however many wait for it.
func (a *Authority) Leaf(h guard.Host) (*tls.Certificate, error) {
	now, name := time.Now(), h.String()
	a.mu.Lock()
	l := a.leaves[name]
	if l == nil || now.Sub(l.born) > keepLeaf || now.Before(l.born.Add(-time.Hour)) { // or the clock was set back
		if l == nil {
			if len(a.order) >= maxLeaf {
				delete(a.leaves, a.order[0])
				a.order = a.order[1:]
			}
			a.order = append(a.order, name)
		}
		l = &leaf{born: now}
		a.leaves[name] = l
	}
	a.mu.Unlock()
	l.once.Do(func() { l.cert, l.err = a.mint(h, now) })
	if l.err != nil { // not for ever
		a.mu.Lock()
		if a.leaves[name] == l {
			l.born = time.Time{}
		}
		a.mu.Unlock()
	}
	return l.cert, l.err
}

// Made counts the leaves that were made.
func (a *Authority) Made() int64 { return a.made.Load() }

func (a *Authority) mint(h guard.Host, now time.Time) (*tls.Certificate, error) {
	if h.IsZero() {
		return nil, errors.New("make a leaf: for no host")
	}
	a.made.Add(1)
	tmpl := &x509.Certificate{
		Subject:      pkix.Name{Organization: []string{"Doorward"}},
		SerialNumber: serial(), SubjectKeyId: a.keyID, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: now.Add(-backDate), NotAfter: now.Add(leafLife),
	}
	if name := h.String(); len(name) <= maxCN {
		tmpl.Subject.CommonName = name
	}
	if addr := h.Addr(); addr.IsValid() {
		tmpl.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		tmpl.DNSNames = []string{h.String()}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.root, &a.leafKey.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("make a leaf for %s: %w", h, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: crypto.PrivateKey(a.leafKey)}, nil
}

// keyID is the identifier of a key: the leftmost 160 bits of the SHA-256 of its bits (RFC 7093 2).
func keyID(key *ecdsa.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	var spki struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if err == nil {
		_, err = asn1.Unmarshal(der, &spki)
	}
	if err != nil {
		return nil, fmt.Errorf("name a key: %w", err)
	}
	sum := sha256.Sum256(spki.Key.Bytes)
	return sum[:20], nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[0] = b[0]&0x7f | 0x40 // positive, and always of the same length
	return new(big.Int).SetBytes(b)
}

func damaged(path string, err error) error {
	return fmt.Errorf("read the cell's CA: %s: %w; remove both of its files to have a new one, which cells trust from their next start on",
		path, err)
}

// put writes a file whole, or not at all, so that it is there after a loss of power too.
func put(path string, b []byte, mode os.FileMode) error {
	fail := func(err error) error { return fmt.Errorf("write the cell's CA: %w", err) }
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fail(err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return fail(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fail(err)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fail(err)
	}
	return nil
}
