// SPDX-License-Identifier: Apache-2.0

// Package standin is what all stand-ins for vendors share: a TLS server under a CA of its own, a recorder of the exact
// requests that arrived, scripted faults, and a control socket for tests in other processes.
//
// The recorder is a side channel: what it holds is never sent back to whoever called the vendor, so a test can tell
// what the vendor saw from what a caller was told. It sees real credentials; they are made up for the test.
package standin

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options of one listener.
type Options struct {
	Listener string           // name in the record
	Listen   string           // address; "127.0.0.1:0" when empty
	Names    []string         // further names of the certificate
	Cert     *tls.Certificate // instead of a right one
	NoHTTP2  bool
	Classify func(*http.Request) string // "real", "other" or "none"
	Vendor   Vendor
}

// A Server is a vendor: one CA, recorder and list of faults over one or more listeners.
type Server struct {
	CA     *CA
	Rec    *Recorder
	Faults *Faults

	mu      sync.Mutex // guards closers
	closers []func()
}

// New makes a server without listeners.
func New() (*Server, error) {
	ca, err := NewCA()
	if err != nil {
		return nil, err
	}
	return &Server{CA: ca, Rec: &Recorder{}, Faults: &Faults{}}, nil
}

// CAPEM returns the certificate that clients must trust.
func (s *Server) CAPEM() []byte { return s.CA.PEM() }

// Open starts a listener and returns its address as host:port.
func (s *Server) Open(o Options) (string, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return "", fmt.Errorf("listen for the stand-in: %w", err)
	}
	cert := o.Cert
	if cert == nil {
		host, _, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return "", errors.Join(fmt.Errorf("read the stand-in's address: %w", err), listener.Close())
		}
		leaf, err := s.CA.Issue(Leaf{Names: append([]string{host, "127.0.0.1", "::1", "localhost"}, o.Names...)})
		if err != nil {
			return "", errors.Join(err, listener.Close())
		}
		cert = &leaf
	}
	if o.Classify == nil {
		o.Classify = func(*http.Request) string { return "none" }
	}
	server := &http.Server{
		Handler: &recording{
			listener: o.Listener, rec: s.Rec, faults: s.Faults, classify: o.Classify, vendor: o.Vendor,
		},
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    1 << 20,
		ErrorLog:          log.New(io.Discard, "", 0), // faults and refused handshakes are what tests ask for
	}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(!o.NoHTTP2)
	s.spawn(func() { _ = server.ServeTLS(listener, "", "") }, func() { _ = server.Close() })
	return listener.Addr().String(), nil
}

// spawn runs serve until Close calls stop.
func (s *Server) spawn(serve, stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve()
	}()
	s.OnClose(func() {
		stop()
		<-done
	})
}

// OnClose adds to what Close does.
func (s *Server) OnClose(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, f)
}

// Close ends all listeners and connections.
func (s *Server) Close() {
	s.mu.Lock()
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()
	for i := len(closers) - 1; i >= 0; i-- {
		closers[i]()
	}
}

// Client returns an HTTP client that trusts only this server's CA and follows no redirect.
func (s *Server) Client() *http.Client {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: s.CA.Pool(), MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
		DialContext:       (&net.Dialer{}).DialContext,
	}
	s.OnClose(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Bearer classifies requests by the token of an Authorization header.
func Bearer(tokens ...string) func(*http.Request) string {
	return func(r *http.Request) string {
		values := r.Header.Values("Authorization")
		if len(values) == 0 {
			return "none"
		}
		scheme, value, _ := strings.Cut(values[0], " ")
		known := strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token")
		for _, token := range tokens {
			if len(values) == 1 && known && subtle.ConstantTimeCompare([]byte(token), []byte(value)) == 1 {
				return "real"
			}
		}
		return "other"
	}
}

// Basic classifies requests by a user and password.
func Basic(user, password string) func(*http.Request) string {
	return func(r *http.Request) string {
		values := r.Header.Values("Authorization")
		if len(values) == 0 {
			return "none"
		}
		u, p, ok := r.BasicAuth()
		if ok && len(values) == 1 && u == user && p == password {
			return "real"
		}
		return "other"
	}
}

// Run serves until the context ends.
func (s *Server) Run(ctx context.Context) {
	<-ctx.Done()
	s.Close()
}
