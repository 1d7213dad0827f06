// SPDX-License-Identifier: Apache-2.0

// Package keypair reads the certificate of a person's page and its key. What sets them up and what serves them hold them to the same:
// a chain and its key, for the place's host, not over.
package keypair

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/doorward/doorward/internal/approver"
)

// What a certificate cannot be used for though it is one.
var (
	ErrHost = errors.New("is for others")
	ErrOver = errors.New("ended")
)

const maxPEM = 1 << 20 // bytes of a file

// Load reads both files of a place at a time. What cannot be used is an error.
func Load(place *approver.Place, now time.Time) (*tls.Certificate, error) {
	chain, err := read(place.Certificate)
	if err != nil {
		return nil, err
	}
	key, err := read(place.Key)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("read %s and %s: %w", place.Certificate, place.Key, err)
	}
	if cert.Leaf == nil { // GODEBUG only
		if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return nil, err
		}
	}
	if err := cert.Leaf.VerifyHostname(place.Host); err != nil {
		return nil, fmt.Errorf("%s %w: %w", place.Certificate, ErrHost, err)
	}
	if now.After(cert.Leaf.NotAfter) {
		return nil, fmt.Errorf("%s %w %s; renew it", place.Certificate, ErrOver, cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return &cert, nil
}

func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err == nil && len(b) > maxPEM {
		err = fmt.Errorf("longer than %d bytes", maxPEM)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}
