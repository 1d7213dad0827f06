// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"golang.org/x/sys/unix"
)

// netns is a network like a cell's: lo alone, and every address local. Without a program in the kernel that steers, a
// connection finds a listener only on its own port, so the world listens on each that a test uses.
type netns struct {
	path string
	do   chan func()
}

func newNetns(t testing.TB) *netns {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespace skipped: needs root")
	}
	n := &netns{do: make(chan func())}
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			ready <- err
			return
		}
		n.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		for _, words := range []string{"link set lo up", "route add local default dev lo", "-6 route add local default dev lo"} {
			if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
				ready <- fmt.Errorf("ip %s: %w: %s", words, err, out)
				return
			}
		}
		ready <- nil
		for f := range n.do {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Skip("network namespace skipped: ", err)
	}
	t.Cleanup(func() { close(n.do) })
	return n
}

// within runs f in the namespace.
func (n *netns) within(f func()) {
	done := make(chan struct{})
	n.do <- func() { defer close(done); f() }
	<-done
}

// world is the way out of a cell with a network of its own; sentinel is a server on the other end of a real wire, and
// names beyond it are scripted.
type world struct {
	t       testing.TB
	ns      *netns
	s       *Server
	dir     string
	resolv  string
	bundle  string // of the servers' CA
	ca      *x509.Certificate
	key     *ecdsa.PrivateKey
	mu      sync.Mutex
	asked   []wire.ConnectReq
	reports []wire.SentReq
	policy  map[string]error // by name or address; what is not there is not allowed
	permit  []string
	under   string
	read    map[string]wire.ConnectResp // how the sites are reached whose requests are read, by name
	dns     map[string]netip.Addr
	logs    bytes.Buffer
	ports   []int
	tasks   sync.WaitGroup
	run     func(func(context.Context) error)
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, ns: newNetns(t), dir: t.TempDir(), policy: map[string]error{}, dns: map[string]netip.Addr{}}
	w.newCA()
	w.resolv = filepath.Join(w.dir, "resolv.conf")
	if err := os.WriteFile(w.resolv, []byte("nameserver 198.18.0.1\noptions timeout:2 attempts:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	client := w.sentinel()
	w.s = &Server{Cell: "work", Names: openNames(t, t.TempDir()),
		Log: slog.New(slog.NewTextHandler(&locked{w: &w.logs}, nil)),
		Ask: func(ctx context.Context, r *wire.ConnectReq) (*wire.ConnectResp, error) {
			resp := new(wire.ConnectResp)
			return resp, client.Call(ctx, "connect", r, resp)
		},
		Report: func(r wire.SentReq) { w.mu.Lock(); defer w.mu.Unlock(); w.reports = append(w.reports, r) },
		Full:   func() bool { return false },
		Opener: func(c *net.TCPConn) (wire.Task, error) {
			return wire.Task{PID: uint32(c.RemoteAddr().(*net.TCPAddr).Port), Program: "test"}, nil
		},
		Dialer: &guard.Dialer{Resolver: w, Own: func() ([]netip.Addr, error) { return nil, nil }},
	}
	var err error
	w.ns.within(func() { w.s.DNS, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6zero, Port: 53}) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.s.live = map[*conn]struct{}{}
	w.run = func(f func(context.Context) error) {
		w.tasks.Go(func() {
			if err := f(ctx); err != nil {
				t.Errorf("serve: %v", err)
			}
		})
	}
	w.run(w.s.serveUDP)
	w.run(w.s.sweep)
	w.open(53, 80, 443, 3128)
	t.Cleanup(func() {
		cancel()
		w.s.end(func(*conn) bool { return true })
		w.tasks.Wait()
		if t.Failed() {
			t.Log(w.logs.String())
		}
	})
	return w
}

// open has the cell's listener at ports too, where steering would have put it.
func (w *world) open(ports ...int) {
	w.t.Helper()
	for _, port := range ports {
		var ln net.Listener
		var err error
		w.ns.within(func() {
			var cfg net.ListenConfig
			cfg.SetMultipathTCP(false)
			ln, err = cfg.Listen(context.Background(), "tcp", fmt.Sprintf("[::]:%d", port))
		})
		if err != nil {
			w.t.Fatal(err)
		}
		w.run(func(ctx context.Context) error { return w.s.accept(ctx, ln.(*net.TCPListener)) })
	}
}

type locked struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// sentinel serves verb connect by the world's policy.
func (w *world) sentinel() *daemon.Client {
	w.t.Helper()
	path := filepath.Join(w.dir, "sentinel")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		w.t.Fatal(err)
	}
	who := peertest.As{Kind: peer.Unit, Unit: "doorward-egress@work.service", Name: "egress", Of: "work"}
	n := 0
	s := &daemon.Server{Name: "sentinel-egress", Listener: peer.NewListener(ln, who, nil), Log: quiet, Verbs: []daemon.Verb{
		daemon.On("connect", peer.CellEgress, func(_ context.Context, _ *daemon.Call, r *wire.ConnectReq) (*wire.ConnectResp, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, *r)
			err, ok := w.policy[r.Name+r.Addr]
			if !ok {
				err = wire.Refuse(wire.CodeNotAllowed, "policy names no site "+r.Name+r.Addr, "ask the person to add it")
			}
			n++
			resp := w.read[r.Name]
			if resp.How == "" {
				resp.How = wire.HowSplice
			}
			resp.ID, resp.Permit, resp.Under = fmt.Sprint("c", n), w.permit, w.under
			return &resp, err
		})}}
	ctx, cancel := context.WithCancel(context.Background())
	client := &daemon.Client{Path: path, Log: quiet}
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = s.Serve(ctx) })
	w.t.Cleanup(func() { client.Close(); cancel(); tasks.Wait() })
	return client
}

// LookupNetIP is the resolver beyond.
func (w *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, ok := w.dns[strings.TrimSuffix(host, ".")]; ok {
		return []netip.Addr{a}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// site allows a name that is served at an address of this machine, and gives the port.
func (w *world) site(name string, at net.Addr) int {
	w.t.Helper()
	to := at.(*net.TCPAddr).AddrPort()
	if !slices.Contains(w.ports, int(to.Port())) {
		w.ports = append(w.ports, int(to.Port()))
		w.open(int(to.Port()))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policy[name] = nil
	w.dns[name] = to.Addr().Unmap()
	w.permit = append(w.permit, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()).String())
	return int(to.Port())
}

func (w *world) questions() []wire.ConnectReq {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]wire.ConnectReq(nil), w.asked...)
}

// sent waits for n reports.
func (w *world) sent(n int) []wire.SentReq {
	w.t.Helper()
	for range 1000 {
		w.mu.Lock()
		got := append([]wire.SentReq(nil), w.reports...)
		w.mu.Unlock()
		if len(got) >= n {
			return got
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("fewer than %d reports", n)
	return nil
}

// command is a program in the cell's network, with its resolver.
func (w *world) command(name string, args ...string) *exec.Cmd {
	script := fmt.Sprintf("mount --bind %s /etc/resolv.conf && exec \"$0\" \"$@\"", w.resolv)
	words := append([]string{"--net=" + w.ns.path, "unshare", "-m", "sh", "-c", script, name}, args...)
	cmd := exec.Command("timeout", append([]string{"-k", "1", "90", "nsenter"}, words...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C"}
	return cmd
}

// program runs one in the cell; out is all that it wrote.
func (w *world) program(name string, args ...string) (out string, err error) {
	w.t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		w.t.Skipf("%s skipped: not installed", name)
	}
	b, err := w.command(name, args...).CombinedOutput()
	return string(b), err
}

func (w *world) curl(args ...string) (string, error) {
	w.t.Helper()
	return w.program("curl", append([]string{"-sS", "--max-time", "60", "--cacert", w.bundle}, args...)...)
}

// dial connects from the cell to one address.
func (w *world) dial(to string) *net.TCPConn {
	w.t.Helper()
	var c net.Conn
	var err error
	w.ns.within(func() { c, err = net.Dial("tcp", to) })
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

// addr is the address of a name in the cell, with a port.
func (w *world) addr(name string, port int) string {
	w.t.Helper()
	v4, _, err := w.s.Names.Of(host(w.t, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return netip.AddrPortFrom(v4, uint16(port)).String()
}

func (w *world) newCA() {
	var err error
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		w.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &w.key.PublicKey, w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	w.ca, err = x509.ParseCertificate(der)
	w.bundle = filepath.Join(w.dir, "ca.pem")
	if err = errors.Join(err, os.WriteFile(w.bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

// leaf is a server's certificate.
func (w *world) leaf(names ...string) tls.Certificate {
	w.t.Helper()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: names}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, w.ca, &w.key.PublicKey, w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: w.key}
}

func quietLog() *log.Logger { return slog.NewLogLogger(slog.DiscardHandler, 0) }
