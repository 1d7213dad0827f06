// SPDX-License-Identifier: Apache-2.0

package page

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/keypair"
)

const lookEvery = time.Second // at most, and only when somebody connects

// Certificate is a place's, read from its files again when they have changed: whoever renews them has nobody to tell. New files
// that are wrong, or half written, are said once and change nothing.
type Certificate struct {
	place *approver.Place
	log   *slog.Logger

	mu     sync.Mutex // guards what follows
	cert   *tls.Certificate
	tried  [2]stamp // of the files that were read last, whatever came of it
	looked time.Time
}

// stamp tells a file from what it was before; nil is of one that is not there.
type stamp struct{ os.FileInfo }

func (s stamp) same(o stamp) bool {
	if s.FileInfo == nil || o.FileInfo == nil {
		return s == o
	}
	return os.SameFile(s.FileInfo, o.FileInfo) && s.ModTime().Equal(o.ModTime()) && s.Size() == o.Size()
}

// NewCertificate reads the place's files. They have to be a key and a certificate for the place's host.
func NewCertificate(place *approver.Place, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{place: place, log: log}
	c.look(time.Now())
	if c.cert == nil {
		return nil, fmt.Errorf("no certificate for %s; the line before says why", place.Host)
	}
	return c, nil
}

// TLS is what both ports are served with.
func TLS(place *approver.Place, log *slog.Logger) (*tls.Config, error) {
	c, err := NewCertificate(place, log)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: c.Get, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// Get is tls.Config.GetCertificate. Who does not say the place's name gets none, so a scan of addresses learns no name here.
func (c *Certificate) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if hello.ServerName != c.place.Host {
		return nil, errors.New("the client wants another name")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= lookEvery {
		c.look(now)
	}
	return c.cert, nil
}

// look reads files that have changed. The stamps are taken before, so a change meanwhile is seen the next time. c.mu is held, or
// nobody else has c yet.
func (c *Certificate) look(now time.Time) {
	c.looked = now
	var s [2]stamp
	for i, name := range []string{c.place.Certificate, c.place.Key} {
		if info, err := os.Stat(name); err == nil {
			s[i] = stamp{info}
		}
	}
	if c.cert != nil && s[0].same(c.tried[0]) && s[1].same(c.tried[1]) {
		return
	}
	c.tried = s
	cert, err := keypair.Load(c.place, now)
	if err != nil {
		c.log.Error("the certificate cannot be used; an earlier one stays in use where there was one. See certificate and key of "+
			approver.File+", and who may read those files", "err", err.Error())
		return
	}
	if c.cert != nil {
		c.log.Info("the certificate is a new one", "until", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	c.cert = cert
}
