// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/approver/front"
)

// The certificate is renewed as an ACME client does, by links that are turned one behind the other, while browsers connect to both
// ports: each of them is served, by the old one or the new, and then by the new.
func TestARenewalUnderLoad(t *testing.T) {
	p := place(t)
	dir := filepath.Dir(p.Certificate)
	live := *p // what the files lie as
	renew := func(serial int64) {
		to := *p
		to.Certificate, to.Key = filepath.Join(dir, time.Now().Format("c150405.000000000")), filepath.Join(dir, time.Now().Format("k150405.000000000"))
		issue(t, &to, p.Host, serial, time.Now().Add(time.Hour))
		for link, file := range map[string]string{live.Certificate: to.Certificate, live.Key: to.Key} {
			if err := os.Symlink(file, link+".new"); err != nil {
				t.Error(err)
			}
			if err := os.Rename(link+".new", link); err != nil {
				t.Error(err)
			}
		}
	}
	renew(1)
	secure, err := TLS(p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })
	c := carry(t, secure)
	c.serve(t, answer)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &front.Server{Listener: front.NewBounded(ln, front.Conns, front.OfAddress), TLS: secure, Handler: answer, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	defer func() { cancel(); <-done }()

	var browsers sync.WaitGroup
	var served, failed, newest atomic.Int64
	over := make(chan struct{})
	for _, addr := range []string{ln.Addr().String(), c.addr, ln.Addr().String(), c.addr} {
		browsers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				serial, err := once(addr, p.Host)
				if err != nil {
					failed.Add(1)
					t.Errorf("%s: %v", addr, err)
					return
				}
				served.Add(1)
				for have := newest.Load(); serial > have && !newest.CompareAndSwap(have, serial); have = newest.Load() {
				}
			}
		})
	}
	for serial := int64(2); serial <= 3; serial++ {
		renew(serial)
		for end := time.Now().Add(time.Minute); newest.Load() < serial && failed.Load() == 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("certificate %d is not served", serial)
			}
		}
	}
	close(over)
	browsers.Wait()
	if served.Load() < 8 {
		t.Errorf("only %d connections were served", served.Load())
	}
}

// once connects, asks, and returns the serial number of what it was shown. Whose word the certificate is does not matter here.
func once(addr, host string) (int64, error) {
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, ServerName: host})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200"))); err != nil {
		return 0, err
	}
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}
