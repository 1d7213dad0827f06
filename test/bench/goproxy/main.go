// SPDX-License-Identifier: Apache-2.0

// Command goproxy is a peer of the bench: github.com/elazarl/goproxy as it is used to put a credential into requests. It keeps
// the certificates that it makes and its connections to the server, and sets one header. It is a module of its own, so that
// Doorward's has nothing of it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/elazarl/goproxy"
)

var (
	listen = flag.String("listen", "", "IP:PORT")
	to     = flag.String("to", "", "IP:PORT of the server")
	roots  = flag.String("roots", "", "file of its roots")
	ca     = flag.String("ca", "", "file of the certificate and key that leaves are made of")
	token  = flag.String("token", "", "the credential")
)

type store struct {
	mu   sync.Mutex
	list map[string]*tls.Certificate
}

func (s *store) Fetch(host string, make func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.list[host]; c != nil {
		return c, nil
	}
	c, err := make()
	if err == nil {
		s.list[host] = c
	}
	return c, err
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "goproxy:", err)
		os.Exit(1)
	}
}

func run() error {
	pem, err := os.ReadFile(*roots)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(*ca, *ca)
	if err != nil {
		return err
	}
	p := goproxy.NewProxyHttpServer()
	p.Logger = log.New(io.Discard, "", 0)
	p.CertStore = &store{list: map[string]*tls.Certificate{}}
	p.Tr = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, *to)
		}}
	mitm := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&pair)}
	p.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) { return mitm, host })
	p.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		r.Header.Set("Authorization", "Bearer "+*token)
		return r, nil
	})
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return http.Serve(ln, p)
}
