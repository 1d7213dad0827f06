// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
)

// BenchmarkWarm is one short GET over a kept connection: through the proxy, and straight over TLS for comparison.
func BenchmarkWarm(b *testing.B) {
	c := newCA(b)
	v := startVendor(b, c.leaf(b, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secret {
			w.WriteHeader(401)
			return
		}
		_, _ = w.Write(make([]byte, 1024))
	}, "http/1.1")
	v.forget = true
	read := func(b *testing.B, br *bufio.Reader) {
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != 200 {
			b.Fatal(err, resp)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("direct", func(b *testing.B) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(c.pem)
		conn, err := tls.Dial("tcp", v.addr.String(), &tls.Config{RootCAs: roots, ServerName: "vendor-a.test"})
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		br := bufio.NewReader(conn)
		b.ReportAllocs()
		for b.Loop() {
			fmt.Fprintf(conn, "GET /a HTTP/1.1\r\nHost: vendor-a.test\r\nAuthorization: Bearer %s\r\n\r\n", secret)
			read(b, br)
		}
	})
	b.Run("proxy", func(b *testing.B) {
		w := newWorld(b, func(s *Server) { s.Log = slog.New(slog.DiscardHandler) })
		w.grant("g", c, v.addr)
		conn, br := w.dial()
		raw := rawHead("GET", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", "g", 0, "")
		b.ReportAllocs()
		for b.Loop() {
			if _, err := io.WriteString(conn, raw); err != nil {
				b.Fatal(err)
			}
			read(b, br)
			if len(w.reports) > 1000 {
				w.reports = w.reports[:0]
			}
		}
	})
}
