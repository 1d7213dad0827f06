// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// authority is a root and what it signs.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

// leaf is a certificate for names and addresses.
func (a *authority) leaf(names []string, ips ...net.IP) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(12 * time.Hour), DNSNames: names, IPAddresses: ips, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}, err
}

// server is a real HTTPS server at port 443 of an address of its own. What it saw is the truth.
type server struct {
	name    string // the first label
	ip      string
	handler http.Handler

	mu    sync.Mutex // guards what follows
	conns []*bytes.Buffer
	taken int // how often
	seen  []string
}

// serve serves with HTTP/1.1 alone, and records each byte that came; or with h2 beside it, and records each request as its
// handler has it: what HTTP/2 puts on a connection its two ends choose.
func (s *server) serve(ctx context.Context, cert tls.Certificate, h2 bool) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(s.ip, "443"))
	if err != nil {
		return err
	}
	conf := &tls.Config{Certificates: []tls.Certificate{cert}}
	hs := &http.Server{Handler: s.handler, ErrorLog: log.New(io.Discard, "", 0)}
	context.AfterFunc(ctx, func() { _ = hs.Close() })
	if h2 {
		hs.TLSConfig = conf
		hs.Handler = http.HandlerFunc(s.record)
		go func() { _ = hs.ServeTLS(ln, "", "") }()
		return nil
	}
	conf.NextProtos = []string{"http/1.1"}
	go func() { _ = hs.Serve(&tap{ln, conf, s}) }()
	return nil
}

// tap accepts connections that record what is read from them.
type tap struct {
	net.Listener
	conf *tls.Config
	s    *server
}

func (t *tap) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: tls.Server(c, t.conf), s: t.s}, nil
}

type tapped struct {
	*tls.Conn
	s     *server
	b     *bytes.Buffer
	taken int // when b began
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if (c.b == nil || c.taken != c.s.taken) && n > 0 {
		c.b, c.taken = new(bytes.Buffer), c.s.taken
		c.s.conns = append(c.s.conns, c.b)
	}
	if n > 0 {
		c.b.Write(b[:n])
	}
	return n, err
}

// record writes down a request of HTTP/2.
func (s *server) record(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	line := fmt.Sprintf("%s %s %s %s %x", r.Proto, r.Method, r.Host, r.RequestURI, sha256.Sum256(body))
	for _, k := range slices.Sorted(maps.Keys(r.Header)) {
		line += "\n" + k + ": " + strings.Join(r.Header[k], ", ")
	}
	for _, k := range slices.Sorted(maps.Keys(r.Trailer)) {
		line += "\ntrailer " + k + ": " + strings.Join(r.Trailer[k], ", ")
	}
	s.mu.Lock()
	s.seen = append(s.seen, line)
	s.mu.Unlock()
	s.handler.ServeHTTP(w, r)
}

// take are the requests that came since it was last asked, as they stood on their connections, in an order of their own. Which
// go on one connection is its two ends' affair.
func (s *server) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.seen
	for _, b := range s.conns {
		out = append(out, requests(b.Bytes())...)
	}
	s.conns, s.seen = nil, nil
	s.taken++
	slices.Sort(out)
	return out
}

// requests cuts what came on a connection behind each request. What is none stays with the one before it.
func requests(b []byte) (out []string) {
	for len(b) > 0 {
		from := bytes.NewReader(b)
		r := bufio.NewReaderSize(from, 16)
		q, err := http.ReadRequest(r)
		if err == nil && q.Header.Get("Upgrade") == "" {
			_, err = io.Copy(io.Discard, q.Body)
		}
		n := len(b) - from.Len() - r.Buffered()
		if err != nil || q.Header.Get("Upgrade") != "" {
			n = len(b)
		}
		out, b = append(out, string(b[:n])), b[n:]
	}
	return out
}

// stream is a recorded answer of a model, in the events of its provider.
var stream = []string{
	"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"role\":\"assistant\"}}\n\n",
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hel\"}}\n\n",
	"event: ping\ndata: {\"type\":\"ping\"}\n\n",
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"lo\"}}\n\n",
	"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
}

// web answers what the clients of the table ask.
func web(file []byte) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { // in parts, with a trailer
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		half := len(body) / 2
		_, _ = w.Write(body[:half])
		w.(http.Flusher).Flush()
		_, _ = w.Write(body[half:])
		w.Header().Set("X-Sum", fmt.Sprintf("%x", sha256.Sum256(body)))
	})
	mux.HandleFunc("/sum", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, _ := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x\n", n, h.Sum(nil))
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Etag", `"one"`)
		http.ServeContent(w, r, "", time.Unix(1700000000, 0), bytes.NewReader(file))
	})
	// The rest of a stream comes when its client says that it has the beginning: whoever holds it back waits for ever.
	began := make(chan struct{}, 16)
	mux.HandleFunc("/v1/messages", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for len(began) > 0 { // of a client that was refused
			<-began
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i, event := range stream {
			if i == 1 {
				select {
				case <-began:
				case <-r.Context().Done():
					return
				}
			}
			_, _ = io.WriteString(w, event)
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/began", func(w http.ResponseWriter, _ *http.Request) {
		began <- struct{}{}
		_, _ = io.WriteString(w, "yes")
	})
	// The server speaks first, which is in the same segment as the end of the handshake; then it echoes.
	mux.Handle("/ws", websocket.Server{Handler: func(c *websocket.Conn) {
		_ = websocket.Message.Send(c, "welcome")
		for {
			var text string
			if websocket.Message.Receive(c, &text) != nil || websocket.Message.Send(c, "echo "+text) != nil {
				return
			}
		}
	}})
	return mux
}

// health is a server of gRPC that answers by name: up, three (a stream of three), and none.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (health) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if r.Service != "up" {
		return nil, status.Error(codes.NotFound, "no such service: "+r.Service)
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (health) Watch(_ *grpc_health_v1.HealthCheckRequest, s grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	for i := range 3 {
		if err := s.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_ServingStatus(i)}); err != nil {
			return err
		}
	}
	s.SetTrailer(metadata.Pairs("x-sum", "three"))
	return nil
}

func serveGRPC(ctx context.Context, ip string, cert tls.Certificate) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "443"))
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	grpc_health_v1.RegisterHealthServer(s, health{})
	context.AfterFunc(ctx, s.Stop)
	go func() { _ = s.Serve(ln) }()
	return nil
}

// putPair writes a certificate with its chain and key into one file, which tests alone have keys in.
func (r *rig) putPair(name string, cert tls.Certificate) error {
	var b []byte
	for _, der := range cert.Certificate {
		b = append(b, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	return r.put(name, append(b, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...))
}
