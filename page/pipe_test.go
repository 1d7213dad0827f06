// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/front"
)

// behind stands in approvals' place: it believes whoever connects, and reads the address that stands before the bytes.
type behind struct {
	*net.UnixListener
	n atomic.Int64 // connections
}

type from struct {
	*net.UnixConn
	who net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.who }

func (b *behind) Accept() (net.Conn, error) {
	c, err := b.AcceptUnix()
	if err != nil {
		return nil, err
	}
	b.n.Add(1)
	head := make([]byte, front.FromSize)
	if _, err := io.ReadFull(c, head); err != nil {
		return nil, err
	}
	at, err := front.ParseFrom(head)
	return from{c, net.TCPAddrFromAddrPort(at)}, err
}

// carrying is a pipe with its two ends.
type carrying struct {
	*behind
	addr string // of the port
	stop func() // waits until it has ended
}

func carry(t *testing.T, secure *tls.Config) *carrying {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Pipe{Listener: front.NewBounded(ln, front.Conns, front.OfAddress), TLS: secure, Path: path, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx) }()
	c := &carrying{behind: &behind{UnixListener: unix}, addr: ln.Addr().String()}
	c.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(func() {
		c.stop()
		unix.Close()
	})
	return c
}

// serve has the far end answer HTTP.
func (c *carrying) serve(t *testing.T, h http.HandlerFunc) {
	t.Helper()
	s := &front.Server{Listener: c.behind, Handler: h, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (c *carrying) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn.(*net.TCPConn)
}

// certified is a place with a certificate, and what its clients trust.
func certified(t *testing.T) (*approver.Place, *tls.Config, *x509.CertPool) {
	t.Helper()
	p := place(t)
	issue(t, p, p.Host, 1, time.Now().Add(time.Hour))
	secure, err := TLS(p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	b, _ := os.ReadFile(p.Certificate)
	roots.AppendCertsFromPEM(b)
	return p, secure, roots
}

var protocols = map[string]func(*http.Protocols){"HTTP/1.1": func(x *http.Protocols) { x.SetHTTP1(true) },
	"HTTP/2.0": func(x *http.Protocols) { x.SetHTTP2(true) }}

// get asks by one protocol, and returns what was answered, and from where it was asked.
func get(t *testing.T, url, proto string, conf *tls.Config) (answer, where string) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: conf.Clone(), Protocols: new(http.Protocols)} // which it changes
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			where = c.LocalAddr().String()
		}
		return c, err
	}
	protocols[proto](tr.Protocols)
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b), where
}

// Both ports speak TLS 1.3 and both versions of HTTP; behind the pipe, where there is no key, the address is the browser's.
func TestTLSOfBothPorts(t *testing.T) {
	p, secure, roots := certified(t)
	conf := &tls.Config{RootCAs: roots, ServerName: p.Host}
	c := carry(t, secure)
	said := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if front.Conn(r.Context()) == nil {
			t.Error("the connection of a request is not known")
		}
		_, _ = io.WriteString(w, r.Proto+" "+r.RemoteAddr)
	})
	c.serve(t, said)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &front.Server{Listener: front.NewBounded(ln, front.Conns, front.OfAddress), TLS: secure, Handler: said, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	defer func() { cancel(); <-done }()
	for port, addr := range map[string]string{"the page's": ln.Addr().String(), "the API's": c.addr} {
		for proto := range protocols {
			if answer, where := get(t, "https://"+addr+"/", proto, conf); answer != proto+" "+where {
				t.Errorf("%s port: %s, want %s %s", port, answer, proto, where)
			}
		}
		old := conf.Clone()
		old.MaxVersion = tls.VersionTLS12
		if c, err := tls.Dial("tcp", addr, old); err == nil {
			c.Close()
			t.Errorf("%s port: TLS 1.2 is taken", port)
		}
	}
}

// Without a certificate, which is on localhost only.
func TestThePipeWithoutTLS(t *testing.T) {
	c := carry(t, nil)
	c.serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto+" "+r.RemoteAddr) })
	if answer, where := get(t, "http://"+c.addr+"/", "HTTP/1.1", nil); answer != "HTTP/1.1 "+where {
		t.Errorf("%s from %s", answer, where)
	}
}

// What is no HTTP at all passes unchanged, in both directions, and each ends by itself: page reads nothing of it.
func TestThePipeReadsNothing(t *testing.T) {
	c := carry(t, nil)
	up, down := make([]byte, 1<<20), make([]byte, 1<<20)
	_, _ = rand.Read(up)
	_, _ = rand.Read(down)
	done := make(chan []byte, 1)
	go func() {
		far, err := c.behind.Accept()
		if err != nil {
			t.Error(err)
			done <- nil
			return
		}
		defer far.Close()
		got, _ := io.ReadAll(far)
		_, _ = far.Write(down) // behind the other's end
		done <- got
	}()
	near := c.dial(t)
	_, _ = near.Write(up)
	_ = near.CloseWrite()
	got, err := io.ReadAll(near)
	if err != nil || !bytes.Equal(got, down) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if there := <-done; !bytes.Equal(there, up) {
		t.Errorf("%d bytes arrived", len(there))
	}
}

// Who is refused while it still sends reads why: no reset takes the answer away.
func TestARefusalArrivesWhileTheBrowserSends(t *testing.T) {
	p, secure, roots := certified(t)
	for name, conf := range map[string]*tls.Config{"TLS": secure, "no TLS": nil} {
		t.Run(name, func(t *testing.T) {
			c := carry(t, conf)
			c.serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<10))
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			})
			var near net.Conn = c.dial(t)
			if conf != nil {
				near = tls.Client(near, &tls.Config{RootCAs: roots, ServerName: p.Host})
			}
			go func() {
				_, _ = io.WriteString(near, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\n\r\n")
				_, _ = near.Write(make([]byte, 10<<20))
			}()
			head := make([]byte, len("HTTP/1.1 413"))
			if _, err := io.ReadFull(near, head); err != nil || string(head) != "HTTP/1.1 413" {
				t.Errorf("%q, %v", head, err)
			}
		})
	}
}

// Who does not finish TLS does not reach approvals, nor who wants another name.
func TestApprovalsSeesNobodyBeforeTLS(t *testing.T) {
	p, secure, roots := certified(t)
	c := carry(t, secure)
	c.serve(t, func(w http.ResponseWriter, _ *http.Request) {})
	_, _ = io.WriteString(c.dial(t), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if conn, err := tls.Dial("tcp", c.addr, &tls.Config{RootCAs: roots, ServerName: "other.example.org"}); err == nil {
		conn.Close()
		t.Error("another name is served")
	}
	silent := c.dial(t)
	if n := c.n.Load(); n != 0 {
		t.Errorf("%d connections reached it", n)
	}
	get(t, "https://"+c.addr+"/", "HTTP/1.1", &tls.Config{RootCAs: roots, ServerName: p.Host})
	if n := c.n.Load(); n != 1 {
		t.Errorf("control: %d connections reached it, want 1", n)
	}
	silent.Close()
}

// Who connects and does not finish TLS keeps nobody of its address out.
func TestWhoDoesNotFinishTLSGivesWay(t *testing.T) {
	p, secure, roots := certified(t)
	c := carry(t, secure)
	c.serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })
	for range 2 * front.OfAddress {
		c.dial(t)
	}
	if answer, _ := get(t, "https://"+c.addr+"/", "HTTP/2.0", &tls.Config{RootCAs: roots, ServerName: p.Host}); answer != "in" {
		t.Error(answer)
	}
}

// Either end's end is the other's, approvals that is not there closes, and all end with the daemon.
func TestThePipeEnds(t *testing.T) {
	c := carry(t, nil)
	over := func(what string, conn net.Conn) {
		t.Helper()
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || os.IsTimeout(err) {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	near := c.dial(t)
	far, err := c.behind.Accept()
	if err != nil {
		t.Fatal(err)
	}
	far.Close()
	over("approvals closed", near)

	near = c.dial(t)
	if far, err = c.behind.Accept(); err != nil {
		t.Fatal(err)
	}
	near.Close()
	_ = far.SetDeadline(time.Now().Add(time.Minute))
	over("the browser closed", far)

	near = c.dial(t)
	if far, err = c.behind.Accept(); err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	_ = far.SetDeadline(time.Now().Add(time.Minute))
	c.stop()
	over("page stops, the browser", near)
	over("page stops, approvals", far)

	log := new(bytes.Buffer)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := &Pipe{Listener: ln, Path: filepath.Join(t.TempDir(), "none"), Log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- gone.Serve(ctx) }()
	near = (&carrying{addr: ln.Addr().String()}).dial(t)
	over("no approvals", near)
	cancel()
	if err := <-done; err != nil || !strings.Contains(log.String(), "cannot carry to approvals") {
		t.Errorf("%v, %s", err, log)
	}
}
