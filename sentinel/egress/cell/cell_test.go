// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// serveTLS is a real server for names; h2 and HTTP/1.1.
func (w *world) serveTLS(h http.Handler, names ...string) int {
	w.t.Helper()
	ln := w.beyond()
	srv := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{w.leaf(names...)}}, ErrorLog: quietLog()}
	go func() { _ = srv.ServeTLS(ln, "", "") }()
	w.t.Cleanup(func() { _ = srv.Close() })
	port := 0
	for _, n := range names {
		port = w.site(n, ln.Addr())
	}
	return port
}

func (w *world) serveHTTP(h http.Handler, names ...string) int {
	w.t.Helper()
	ln := w.beyond()
	srv := &http.Server{Handler: h, ErrorLog: quietLog()}
	go func() { _ = srv.Serve(ln) }()
	w.t.Cleanup(func() { _ = srv.Close() })
	port := 0
	for _, n := range names {
		port = w.site(n, ln.Addr())
	}
	return port
}

// beyond listens outside of the cell.
func (w *world) beyond() net.Listener {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func echo(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%s %s %s %s %d\n", r.Proto, r.Method, r.Host, r.RequestURI, n)
}

func TestCurlReachesWhatIsAllowed(t *testing.T) {
	w := newWorld(t)
	port := w.serveTLS(http.HandlerFunc(echo), "vendor-a.test")
	url := fmt.Sprintf("https://vendor-a.test:%d/a?b=c", port)
	for want, args := range map[string][]string{
		"HTTP/2.0 GET":  {"--http2", url},
		"HTTP/1.1 GET":  {"--http1.1", url},
		"HTTP/1.1 POST": {"--http1.1", "-d", "x", url},
		"HTTP/2.0 PUT":  {"-6", "-X", "PUT", url},
	} {
		out, err := w.curl(args...)
		if err != nil || !strings.HasPrefix(out, want+" vendor-a.test:"+strconv.Itoa(port)+" /a?b=c") {
			t.Errorf("%s: %v, %s", want, err, out)
		}
	}
	for i, s := range w.sent(4) {
		if s.Conn == "" || s.Host != "vendor-a.test" || !s.Left || s.Err != nil || s.Out == 0 || s.In == 0 {
			t.Errorf("report %d: %+v, %v", i, s, s.Err)
		}
	}
	for _, q := range w.questions() {
		if q.Name != "vendor-a.test" || q.Addr != "" || q.Begins != wire.BeginsTLS || int(q.Port) != port || q.Task.Program != "test" ||
			q.Task.PID == 0 {
			t.Errorf("asked %+v", q)
		}
	}
}

func TestARefusalIsSaidInWordsThatTheClientReads(t *testing.T) {
	w := newWorld(t)
	var body struct{ Code, Reason, Next string }
	out, err := w.curl("-w", "%{http_code}", "http://evil.test/")
	if jerr := json.Unmarshal([]byte(strings.TrimSuffix(out, "403")), &body); err != nil || jerr != nil || !strings.HasSuffix(out, "403") ||
		body.Code != string(wire.CodeNotAllowed) || !strings.Contains(body.Reason, "evil.test") || body.Next == "" {
		t.Errorf("HTTP: %v, %s", err, out)
	}
	out, err = w.curl("https://evil.test/")
	if err == nil || !strings.Contains(out, "access denied") {
		t.Errorf("TLS: %v, %s", err, out)
	}
	out, err = w.curl("http://198.18.0.1/")
	var list []Refused
	if jerr := json.Unmarshal([]byte(out), &list); err != nil || jerr != nil || len(list) != 2 || list[0].To != "evil.test:443" ||
		list[0].Code != wire.CodeNotAllowed || list[1].To != "evil.test:80" {
		t.Errorf("the gate's list: %v, %s", err, out)
	}
	out, err = w.curl("-x", "http://198.18.0.1:3128", "http://evil.test/a")
	if err != nil || !strings.Contains(out, "policy names no site evil.test") {
		t.Errorf("by proxy: %v, %s", err, out)
	}
	if w.mu.Lock(); len(w.reports) > 0 {
		t.Errorf("reports of what was refused: %+v", w.reports)
	}
	w.mu.Unlock()
}

func TestCL01ProxyVariablesComeToTheSame(t *testing.T) {
	w := newWorld(t)
	tlsPort := w.serveTLS(http.HandlerFunc(echo), "vendor-a.test")
	port := w.serveHTTP(http.HandlerFunc(echo), "vendor-b.test", "vendor-c.test")
	const proxy = "http://198.18.0.1:3128"
	out, err := w.curl("-x", proxy, fmt.Sprintf("https://vendor-a.test:%d/a", tlsPort))
	if err != nil || !strings.HasPrefix(out, "HTTP/2.0 GET") {
		t.Errorf("CONNECT: %v, %s", err, out)
	}
	if out, err := w.curl("-x", proxy, "https://evil.test/a"); err == nil || !strings.Contains(out, "access denied") {
		t.Errorf("CONNECT to what is not allowed: %v, %s", err, out)
	}
	// One connection to the proxy for two hosts.
	out, err = w.curl("-x", proxy, fmt.Sprintf("http://vendor-b.test:%d/b", port), fmt.Sprintf("http://vendor-c.test:%d/c", port))
	if want := fmt.Sprintf("HTTP/1.1 GET vendor-b.test:%d /b 0\nHTTP/1.1 GET vendor-c.test:%d /c 0\n", port, port); err != nil || out != want {
		t.Errorf("absolute form: %v, %s", err, out)
	}
	var names []string
	for _, q := range w.questions() {
		names = append(names, q.Name)
	}
	if got := strings.Join(names, " "); got != "vendor-a.test evil.test vendor-b.test vendor-c.test" {
		t.Errorf("asked for %s", got)
	}
	// The other names of a tunnel must be its own.
	c := w.dial("198.18.0.1:3128")
	fmt.Fprintf(c, "CONNECT vendor-a.test:%d HTTP/1.1\r\nHost: vendor-a.test:%d\r\n\r\n", tlsPort, tlsPort)
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("CONNECT: %v", err)
	}
	err = tls.Client(c, &tls.Config{ServerName: "evil.test", InsecureSkipVerify: true}).Handshake()
	if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("another name in the tunnel: %v", err)
	}
}

// With real connections. The control is the same server by its own name.
func TestEG07_AnAllowedNameOpensNoOther(t *testing.T) {
	w := newWorld(t)
	port := w.serveTLS(http.HandlerFunc(echo), "vendor-a.test", "vendor-b.test")
	handshake := func(to, name string) error {
		c := tls.Client(w.dial(to), &tls.Config{ServerName: name, RootCAs: w.roots()})
		defer c.Close()
		return c.Handshake()
	}
	a, b := w.addr("vendor-a.test", port), w.addr("vendor-b.test", port)
	if err := handshake(a, "vendor-a.test"); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := handshake(b, "vendor-b.test"); err != nil {
		t.Errorf("control: %v", err)
	}
	asked := len(w.questions())
	for _, c := range [][2]string{{a, "vendor-b.test"}, {b, "vendor-a.test"}, {a, "evil.test"},
		{fmt.Sprintf("93.184.215.14:%d", port), "vendor-a.test"}, {fmt.Sprintf("198.18.77.7:%d", port), "vendor-a.test"}} {
		if err := handshake(c[0], c[1]); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s as %s: %v", c[0], c[1], err)
		}
	}
	if n := len(w.questions()); n != asked {
		t.Errorf("sentinel was asked %d times about names that disagree", n-asked)
	}
	for _, s := range w.sent(7) { // those of the controls among them
		if (s.Conn == "") != (s.Err != nil) || s.Left != (s.Err == nil) {
			t.Errorf("report: %+v", s)
		}
	}
}

// EG-08: a hosts file in the cell, or curl's --resolve, sends an allowed name to an address of the attacker's.
func TestEG08_AnAddressOfTheClientsChoiceIsNotTheNames(t *testing.T) {
	w := newWorld(t)
	var evil atomic.Int64
	ln := w.beyond()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			evil.Add(1)
			_ = c.Close()
		}
	}()
	port := w.serveTLS(http.HandlerFunc(echo), "vendor-a.test")
	w.site("192.0.2.9", ln.Addr()) // policy allows even that address
	w.open(4443)
	for _, to := range []string{"192.0.2.9", "[2606:4700::9]"} {
		out, err := w.curl("--resolve", "vendor-a.test:4443:"+to, "https://vendor-a.test:4443/")
		if err == nil || !strings.Contains(out, "unrecognized name") || evil.Load() != 0 {
			t.Errorf("%s: %v, %s; %d connections", to, err, out, evil.Load())
		}
	}
	if out, err := w.curl(fmt.Sprintf("https://vendor-a.test:%d/", port)); err != nil {
		t.Errorf("control: %v, %s", err, out)
	}
}

// A client that waits for leave to send a body gets it from the server, and a refusal without sending.
func TestABodyThatIsAskedForFirst(t *testing.T) {
	w := newWorld(t)
	port := w.serveHTTP(http.HandlerFunc(echo), "vendor-a.test")
	for name, want := range map[string]int{"vendor-a.test": 200, "evil.test": 403} {
		c := w.dial(w.addr(name, port))
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s:%d\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", name, port)
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, nil)
		if err == nil && resp.StatusCode == 100 {
			_, _ = io.WriteString(c, "hello")
			resp, err = http.ReadResponse(r, nil)
		}
		if err != nil || resp.StatusCode != want {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
	}
}

// EG-04: however a host is written, sentinel is asked for one form of it, or not at all.
func TestEG04_OneFormOfAName(t *testing.T) {
	w := newWorld(t)
	at := w.addr("bad.test", 80)
	for written, want := range map[string]int{"bad.test": 1, "BAD.test": 1, "bad.test.": 1, "bad.test:80": 1, "bad.test..": 0, "bad.test:": 0,
		"bad.test:443": 0, ".bad.test": 0, "bad%2etest": 0} {
		before := len(w.questions())
		c := w.dial(at)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", written)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != map[int]int{1: 403, 0: 421}[want] {
			t.Errorf("%s: %+v, %v", written, resp, err)
		}
		q := w.questions()[before:]
		if len(q) != want || want == 1 && q[0].Name != "bad.test" {
			t.Errorf("%s: asked %+v", written, q)
		}
	}
}

// HT-04: HTTP/2 as gRPC uses it: ALPN is between client and server, and trailers arrive. In the clear it is no HTTP/1.
func TestHT04_HTTP2AndTrailers(t *testing.T) {
	w := newWorld(t)
	port := w.serveTLS(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Trailer", "Grpc-Status")
		rw.Header().Set("Content-Type", "application/grpc")
		if r.URL.Path == "/stream" {
			_, _ = io.Copy(rw, r.Body)
		}
		rw.Header().Set("Grpc-Status", "7")
	}), "vendor-a.test")
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: w.roots()},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return w.dial(w.addr("vendor-a.test", port)), nil
		}}
	defer tr.CloseIdleConnections()
	for _, path := range []string{"/unary", "/stream"} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("https://vendor-a.test:%d%s", port, path), strings.NewReader("message"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.ProtoMajor != 2 || resp.Trailer.Get("Grpc-Status") != "7" || path == "/stream" && string(body) != "message" {
			t.Errorf("%s: %+v, %q, %v", path, resp, body, err)
		}
	}
	c := w.dial(w.addr("vendor-b.test", 80))
	_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("HTTP/2 in the clear is answered by %q, %v", b, err)
	}
	if q := w.questions(); q[len(q)-1].Begins != wire.BeginsOther {
		t.Errorf("asked %+v", q[len(q)-1])
	}
}

// EG-12: UDP that is no DNS finds nobody, and is told so at once.
func TestEG12_QUICFallsBackAtOnce(t *testing.T) {
	w := newWorld(t)
	for _, to := range []string{w.addr("vendor-a.test", 443), "[2606:4700::9]:443", "93.184.215.14:4433"} {
		var c net.Conn
		var err error
		w.ns.within(func() { c, err = net.Dial("udp", to) })
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Write([]byte("\xc0\x00\x00\x00\x01"))
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", to, err)
		}
		_ = c.Close()
	}
}

// EG-13: what is spoken is part of the question, so that a rule for TLS need not let SSH through on the same port.
func TestEG13_SentinelIsToldWhatIsSpoken(t *testing.T) {
	w := newWorld(t)
	at := w.addr("ssh.vendor-a.test", 443)
	for i, c := range []struct{ send, want string }{
		{"SSH-2.0-OpenSSH_9.2\r\n", wire.BeginsOther}, {string(clientHello(t, "ssh.vendor-a.test")), wire.BeginsTLS},
		{"GET / HTTP/1.1\r\nHost: ssh.vendor-a.test\r\n\r\n", wire.BeginsHTTP},
	} {
		conn := w.dial(at)
		_, _ = io.WriteString(conn, c.send)
		_, _ = io.Copy(io.Discard, conn)
		if q := w.questions(); len(q) != i+1 || q[i].Begins != c.want || q[i].Port != 443 {
			t.Errorf("%q: asked %+v", c.send, q)
		}
	}
}

// EG-17: each connection is decided by name and resolved anew.
func TestEG17_AServersAddressMayChange(t *testing.T) {
	w := newWorld(t)
	serve := func(ip, word string) string {
		ln, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(w.ports[0])))
		if err != nil {
			t.Skip("a second loopback address skipped: ", err)
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, word)
				_ = c.Close()
			}
		}()
		t.Cleanup(func() { _ = ln.Close() })
		return ln.Addr().String()
	}
	port := w.serveHTTP(http.HandlerFunc(echo), "vendor-a.test")
	other := serve("127.0.0.9", "the other server")
	w.mu.Lock()
	w.permit = append(w.permit, other)
	w.mu.Unlock()
	ask := func() string {
		c := w.dial(w.addr("vendor-a.test", port))
		_, _ = io.WriteString(c, "\x00\r\n\r\n")
		b, _ := io.ReadAll(c)
		return string(b)
	}
	if got := ask(); !strings.Contains(got, "400") { // Go's own server
		t.Errorf("first %q", got)
	}
	w.mu.Lock()
	w.dns["vendor-a.test"] = netip.MustParseAddr("127.0.0.9")
	w.mu.Unlock()
	if got := ask(); got != "the other server" {
		t.Errorf("then %q", got)
	}
	out, err := w.curl(fmt.Sprintf("http://evil.test:%d/", port)) // at the same address
	if err != nil || !strings.Contains(out, "names no site evil.test") {
		t.Errorf("another name at a shared address: %v, %s", err, out)
	}
}

// HT-01: an event is at the client before the server goes on.
func TestHT01_EventsAreNotHeldBack(t *testing.T) {
	w := newWorld(t)
	next := make(chan bool)
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(rw, "data: %d\n\n", i)
			rw.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})
	for _, url := range []string{fmt.Sprintf("http://vendor-a.test:%d/", w.serveHTTP(h, "vendor-a.test")),
		fmt.Sprintf("https://vendor-b.test:%d/", w.serveTLS(h, "vendor-b.test"))} {
		cmd := w.command("curl", "-sSN", "--max-time", "60", "--cacert", w.bundle, url)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(out)
		for i := range 5 {
			line, err := r.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", i) {
				t.Fatalf("%s: event %d: %q, %v", url, i, line, err)
			}
			_, _ = r.ReadString('\n')
			next <- true
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// CL-01, CL-02: clients without a word about a proxy, and with a root of their own where they have one.
func TestCL01_OrdinaryClients(t *testing.T) {
	w := newWorld(t)
	port := w.serveTLS(http.HandlerFunc(echo), "vendor-a.test")
	url := fmt.Sprintf("https://vendor-a.test:%d/x", port)
	for _, client := range [][]string{
		{"python3", "-c", "import sys,ssl,urllib.request as u; print(u.urlopen(sys.argv[1],context=ssl.create_default_context(cafile=sys.argv[2])).read().decode())"},
		{"node", "-e", "const [,u,ca]=process.argv; require('https').get(u,{ca:require('fs').readFileSync(ca)},r=>r.pipe(process.stdout))"},
		{"git", "ls-remote"},
		{"env", "NODE_EXTRA_CA_CERTS=" + w.bundle, "node", "-e", "fetch(process.argv[1]).then(r=>r.text()).then(console.log)"},
	} {
		t.Run(client[0], func(t *testing.T) {
			program := client[0]
			if program == "env" {
				program = client[2]
			}
			if _, err := exec.LookPath(program); err != nil {
				t.Skipf("%s skipped: not installed", program)
			}
			args := append(client[1:], url, w.bundle)
			if client[0] == "git" {
				args = []string{"-c", "http.sslCAInfo=" + w.bundle, "ls-remote", url}
			}
			before := len(w.questions())
			out, err := w.program(client[0], args...)
			q := w.questions()
			if len(q) <= before || q[len(q)-1].Name != "vendor-a.test" {
				t.Errorf("asked %+v", q)
			}
			want := "GET vendor-a.test"
			if client[0] == "git" { // whose server this is not
				want, err = "not valid: is this a git repository", nil
			}
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// A real server of another make: downloads in parts, and an answer for a name that it does not have.
func TestNginxBehindTheGate(t *testing.T) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx skipped: not installed")
	}
	w := newWorld(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ln := w.beyond()
	port := ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	leaf := w.leaf("vendor-a.test")
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	for name, b := range map[string][]byte{
		"leaf.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}),
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		"file":     file,
		"nginx.conf": fmt.Appendf(nil, `daemon off; master_process off; pid %[1]s/pid; error_log stderr; user root;
events {} http { access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s;
scgi_temp_path %[1]s; server { listen 127.0.0.1:%[2]d ssl http2; ssl_certificate %[1]s/leaf.pem; ssl_certificate_key %[1]s/key.pem;
root %[1]s; } }`, dir, port),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(nginx, "-p", dir, "-e", "stderr", "-c", filepath.Join(dir, "nginx.conf"))
	var said bytes.Buffer
	cmd.Stderr = &locked{w: &said}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	up := false
	for range 500 {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if up = err == nil; up {
			_ = c.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !up {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("nginx does not start: %s", said.String())
	}
	w.site("vendor-a.test", ln.Addr())
	url := fmt.Sprintf("https://vendor-a.test:%d/file", port)
	for _, how := range []string{"--http1.1", "--http2"} {
		down := filepath.Join(dir, "down")
		if err := os.WriteFile(down, file[:1<<20], 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := w.curl(how, "-C", "-", "-o", down, url) // goes on behind the first MiB
		got, rerr := os.ReadFile(down)
		if err != nil || rerr != nil || !bytes.Equal(got, file) {
			t.Errorf("%s: %v, %v, %d bytes; %s", how, err, rerr, len(got), out)
		}
	}
	if out, err := w.curl("-o", "/dev/null", "-w", "%{http_code} %{http_version}", url+"/none"); err != nil || out != "404 2" {
		t.Errorf("%v, %s", err, out)
	}
}

func (w *world) roots() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(w.ca)
	return p
}

// EG-01, EG-02: what policy allows by name still must not be on this machine or its network.
func TestEG01_AnAllowedNameDoesNotReachWhatIsNotPublic(t *testing.T) {
	w := newWorld(t)
	port := w.serveTLS(http.HandlerFunc(echo), "vendor-a.test")
	url := fmt.Sprintf("https://vendor-a.test:%d/", port)
	if out, err := w.curl(url); err != nil {
		t.Errorf("control, permitted: %v, %s", err, out)
	}
	w.mu.Lock()
	w.permit = nil
	w.mu.Unlock()
	if out, err := w.curl(url); err == nil || !strings.Contains(out, "access denied") {
		t.Errorf("not permitted: %v, %s", err, out)
	}
	for _, a := range []string{"169.254.169.254", "10.0.0.1", "198.18.0.5", "::1", "64:ff9b::7f00:1"} {
		w.mu.Lock()
		w.dns["vendor-a.test"] = netip.MustParseAddr(a)
		w.mu.Unlock()
		if out, err := w.curl(url); err == nil || !strings.Contains(out, "access denied") {
			t.Errorf("%s: %v, %s", a, err, out)
		}
	}
	if s := w.sent(7)[6]; s.Left || s.Err == nil {
		t.Errorf("report: %+v", s)
	}
}

// HT-05: one connection, and each request is judged.
func TestHT05_ASecondRequestIsJudged(t *testing.T) {
	w := newWorld(t)
	var hosts []string
	var mu sync.Mutex
	port := w.serveHTTP(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hosts = append(hosts, r.Host+r.URL.Path)
		mu.Unlock()
		echo(rw, r)
	}), "vendor-a.test")
	host := "vendor-a.test:" + strconv.Itoa(port)
	get := func(host, path string) string { return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	post := "POST /p HTTP/1.1\r\nHost: " + host + "\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: r\r\n\r\n"
	for _, c := range []struct {
		what, send string
		want       []int
	}{
		{"control: the same host", get(host, "/1") + get(host, "/2") + post + get(host, "/3"), []int{200, 200, 200, 200}},
		{"another host", get(host, "/1") + get("evil.test", "/2"), []int{200, 421}},
		{"another host behind a body", post + get("evil.test", "/2"), []int{200, 421}},
		{"no head", get(host, "/1") + "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", []int{200, 400}},
		{"TLS behind", get(host, "/1") + string(clientHello(t, "evil.test")), []int{200}},
		{"something else behind", get(host, "/1") + "\x00\x01\x02", []int{200}},
	} {
		conn := w.dial(w.addr("vendor-a.test", port))
		if _, err := conn.Write([]byte(c.send)); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(conn)
		for i, want := range c.want {
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%s: answer %d: %+v, %v", c.what, i, resp, err)
				break
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		if c.want[len(c.want)-1] != 200 {
			if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
				t.Errorf("%s: then %q, %v", c.what, rest, err)
			}
		}
		_ = conn.Close()
	}
	for _, h := range hosts {
		if !strings.HasPrefix(h, host) {
			t.Errorf("the server saw %s", h)
		}
	}
}

func TestHT02_AWebSocketIsCarriedAsItIs(t *testing.T) {
	w := newWorld(t)
	ln := w.beyond()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				req, err := http.ReadRequest(r)
				if err != nil || req.Header.Get("Upgrade") != "websocket" {
					return
				}
				if req.URL.Path == "/no" {
					_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
					if req, err = http.ReadRequest(r); err == nil {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"+req.URL.Path)
					}
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst")
				b, _ := io.ReadAll(r) // until the client closes its side
				_, _ = c.Write(append([]byte("last after "), b...))
			}()
		}
	}()
	port := w.site("vendor-a.test", ln.Addr())
	ask := func(path string) (net.Conn, *bufio.Reader, *http.Response) {
		c := w.dial(w.addr("vendor-a.test", port))
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: vendor-a.test:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", path, port)
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c, r, resp
	}
	c, r, resp := ask("/yes")
	first := make([]byte, 5)
	if _, err := io.ReadFull(r, first); err != nil || resp.StatusCode != 101 || string(first) != "first" || resp.TransferEncoding != nil {
		t.Errorf("%+v, %q, %v", resp, first, err)
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n") // no HTTP any more
	_ = c.(*net.TCPConn).CloseWrite()
	if last, err := io.ReadAll(r); err != nil || !bytes.HasPrefix(last, []byte("last after GET")) {
		t.Errorf("%q, %v", last, err)
	}
	c, r, resp = ask("/no")
	_, _ = io.Copy(io.Discard, resp.Body)
	fmt.Fprintf(c, "GET /on HTTP/1.1\r\nHost: vendor-a.test:%d\r\n\r\n", port)
	if resp2, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 403 || resp2.StatusCode != 200 {
		t.Errorf("an upgrade that was refused: %+v, %+v, %v", resp, resp2, err)
	}
}

// sum reads n bytes of a pattern and gives their digest.
type pattern struct {
	left int64
	h    hash.Hash
}

func (p *pattern) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), p.left))
	for i := range n {
		b[i] = byte(p.left - int64(i))
	}
	p.left -= int64(n)
	p.h.Write(b[:n])
	return n, nil
}

// HT-03: large bodies both ways, in constant memory, TLS and not.
func TestHT03_LargeBodiesInConstantMemory(t *testing.T) {
	w := newWorld(t)
	const size = 64 << 20
	var got, sent atomic.Value
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			p := &pattern{size, sha256.New()}
			rw.Header().Set("Content-Length", strconv.Itoa(size))
			_, _ = io.Copy(rw, p)
			sent.Store(p.h.Sum(nil))
			return
		}
		d := sha256.New()
		n, err := io.Copy(d, r.Body)
		got.Store(d.Sum(nil))
		fmt.Fprint(rw, n, err)
	})
	up := filepath.Join(t.TempDir(), "up")
	f, err := os.Create(up)
	if err != nil {
		t.Fatal(err)
	}
	p := &pattern{size, sha256.New()}
	if _, err := io.Copy(f, p); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	want := p.h.Sum(nil)
	tlsPort, port := w.serveTLS(h, "vendor-a.test"), w.serveHTTP(h, "vendor-b.test")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, url := range []string{fmt.Sprintf("https://vendor-a.test:%d/", tlsPort), fmt.Sprintf("http://vendor-b.test:%d/", port)} {
		for _, how := range []string{"", "Transfer-Encoding: chunked"} {
			out, err := w.curl("--http1.1", "-H", how, "-H", "Expect:", "-T", up, url)
			if err != nil || out != strconv.Itoa(size)+" <nil>" || !bytes.Equal(got.Load().([]byte), want) {
				t.Errorf("upload to %s %s: %v, %s", url, how, err, out)
			}
		}
		down := filepath.Join(t.TempDir(), "down")
		if out, err := w.curl("-o", down, url); err != nil {
			t.Errorf("download from %s: %v, %s", url, err, out)
		}
		f, err := os.Open(down)
		if err != nil {
			t.Fatal(err)
		}
		d := sha256.New()
		n, _ := io.Copy(d, f)
		_ = f.Close()
		if n != size || !bytes.Equal(d.Sum(nil), sent.Load().([]byte)) {
			t.Errorf("download from %s: %d bytes, or others", url, n)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grew := int64(after.Sys) - int64(before.Sys); grew > 32<<20 { // client's and server's own among it
		t.Errorf("%d MiB more memory", grew>>20)
	}
	for _, s := range w.sent(6) {
		if s.Out < size && s.In < size || s.Err != nil { // how a client of TLS ends is its own affair
			t.Errorf("report: %+v, %v", s, s.Err)
		}
	}
}

func TestEachSideMayEndFirst(t *testing.T) {
	w := newWorld(t)
	ln := w.beyond()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, err := io.ReadAll(c)
				if err == nil {
					_, _ = c.Write(append([]byte("after your end: "), b...))
				}
			}()
		}
	}()
	port := w.site("vendor-a.test", ln.Addr())
	c := w.dial(w.addr("vendor-a.test", port))
	_, _ = c.Write([]byte("\x00hello"))
	_ = c.CloseWrite()
	if b, err := io.ReadAll(c); err != nil || string(b) != "after your end: \x00hello" {
		t.Errorf("%q, %v", b, err)
	}
	// The server first.
	ln2 := w.beyond()
	gotAfter := make(chan string, 1)
	go func() {
		c, err := ln2.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte("bye"))
		_ = c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		gotAfter <- string(b)
	}()
	c = w.dial(w.addr("vendor-b.test", w.site("vendor-b.test", ln2.Addr())))
	_, _ = c.Write([]byte("\x00one "))
	if b, err := io.ReadAll(c); err != nil || string(b) != "bye" {
		t.Errorf("%q, %v", b, err)
	}
	_, _ = c.Write([]byte("two"))
	_ = c.CloseWrite()
	if b := <-gotAfter; b != "\x00one two" {
		t.Errorf("the server got %q", b)
	}
}

// What breaks off must not look like an end.
func TestABrokenConnectionIsNoEnd(t *testing.T) {
	w := newWorld(t)
	ln := w.beyond()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_, _ = c.Write([]byte("half"))
			time.Sleep(50 * time.Millisecond) // the half before the reset
			reset(c.(*net.TCPConn))
		}
	}()
	c := w.dial(w.addr("vendor-a.test", w.site("vendor-a.test", ln.Addr())))
	_, _ = c.Write([]byte("\x00"))
	if b, err := io.ReadAll(c); err == nil {
		t.Errorf("%q looks whole", b)
	}
	if s := w.sent(1)[0]; s.Complete || s.Err == nil || !s.Left {
		t.Errorf("report: %+v", s)
	}
}

// EG-09: a client that says nothing, or too slowly, or too much, and one that takes its time within bounds.
func TestEG09_WhatIsNotClearInTimeIsRefused(t *testing.T) {
	w := newWorld(t)
	port := w.serveTLS(http.HandlerFunc(echo), "vendor-a.test")
	at := w.addr("vendor-a.test", port)
	var wg sync.WaitGroup
	for what, first := range map[string]string{"nothing": "", "half a record": "\x16\x03\x01\x02\x00\x01", "half a head": "GET / HTTP/1.1\r\nHost"} {
		c := w.dial(at)
		_, _ = io.WriteString(c, first)
		wg.Go(func() {
			b, err := io.ReadAll(c)
			if err != nil || first == "" && len(b) > 0 || first != "" && len(b) == 0 {
				t.Errorf("%s: %q, %v", what, b, err)
			}
		})
	}
	c := w.dial(at)
	_, _ = c.Write(append([]byte("GET / HTTP/1.1\r\nX: "), bytes.Repeat([]byte("x"), maxFront)...))
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 431 {
		t.Errorf("too much: %+v, %v", resp, err)
	}
	c = w.dial(at)
	_ = c.SetNoDelay(true)
	for _, b := range clientHello(t, "vendor-a.test") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	answer := make([]byte, 6)
	if _, err := io.ReadFull(c, answer); err != nil || answer[0] != 22 || answer[5] != 2 {
		t.Errorf("a ClientHello byte by byte is answered by %x, %v", answer, err)
	}
	wg.Wait()
	if n := len(w.questions()); n != 1 {
		t.Errorf("sentinel was asked %d times", n)
	}
}

// needFiles skips where one process may not have as many descriptors.
func needFiles(t *testing.T, n uint64) {
	t.Helper()
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || lim.Cur < n {
		t.Skipf("many connections skipped: needs %d descriptors, may have %d", n, lim.Cur)
	}
}

func TestAThousandConnectionsAtOnce(t *testing.T) {
	needFiles(t, 5000)
	w := newWorld(t)
	ln := w.beyond()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	at := w.addr("vendor-a.test", w.site("vendor-a.test", ln.Addr()))
	conns := make([]*net.TCPConn, 1000)
	for i := range conns {
		conns[i] = w.dial(at)
		fmt.Fprintf(conns[i], "\x00%05d", i)
	}
	buf := make([]byte, 6)
	for i, c := range conns {
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != fmt.Sprintf("\x00%05d", i) {
			t.Fatalf("connection %d: %q, %v", i, buf, err)
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
	w.sent(1000)
}

func TestMoreConnectionsThanACellMayHave(t *testing.T) {
	needFiles(t, 3*maxConns)
	w := newWorld(t)
	at := w.addr("vendor-a.test", 443)
	for range maxConns {
		w.dial(at)
	}
	var c net.Conn
	var err error
	w.ns.within(func() { c, err = net.Dial("tcp", at) })
	if err == nil { // it may be reset as soon as that
		var b []byte
		if b, err = io.ReadAll(c); err == nil {
			t.Errorf("one too many is answered by %q", b)
		}
		_ = c.Close()
	}
}

func TestCutEndsWhatItNames(t *testing.T) {
	w := newWorld(t)
	ln := w.beyond()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	at := w.addr("vendor-a.test", w.site("vendor-a.test", ln.Addr()))
	open := func(under string) *net.TCPConn {
		t.Helper()
		w.mu.Lock()
		w.under = under
		w.mu.Unlock()
		c := w.dial(at)
		_, _ = c.Write([]byte("\x00x"))
		if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	alive := func(c *net.TCPConn) bool {
		_, err := c.Write([]byte("y"))
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		return err == nil
	}
	cut := func(ref wire.GrantRef) {
		t.Helper()
		if _, err := w.s.Cut(context.Background(), nil, &ref); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := open("g1"), open("g2"), open("") // c1, c2, c3
	for _, ref := range []wire.GrantRef{{Grant: "g3"}, {Cell: "other"}, {Account: "x"}, {}} {
		cut(ref)
	}
	if !alive(a) || !alive(b) || !alive(c) {
		t.Error("a cut of others ended one")
	}
	cut(wire.GrantRef{Grant: "g1"})
	if alive(a) || !alive(b) || !alive(c) {
		t.Error("a cut of a grant")
	}
	cut(wire.GrantRef{Grant: "c3"})
	if !alive(b) || alive(c) {
		t.Error("a cut of a decision")
	}
	cut(wire.GrantRef{Cell: "work"})
	if alive(b) {
		t.Error("a cut of the cell")
	}
	for _, s := range w.sent(3) {
		if s.Err == nil || s.Err.Code != wire.CodeRevoked || s.Complete {
			t.Errorf("report: %+v, %v", s, s.Err)
		}
	}
	// What is cut while sentinel's answer is on its way does not go on.
	asked, answer := make(chan bool), make(chan bool)
	w.s.Ask = func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error) {
		asked <- true
		<-answer
		return &wire.ConnectResp{ID: "late", How: wire.HowSplice, Permit: w.permit}, nil
	}
	d := w.dial(at)
	_, _ = d.Write([]byte("\x00x"))
	<-asked
	cut(wire.GrantRef{Grant: "late"})
	answer <- true
	if b, err := io.ReadAll(d); len(b) > 0 {
		t.Errorf("it went on: %q, %v", b, err)
	}
}

func TestAnIdleConnectionEnds(t *testing.T) {
	w := newWorld(t)
	ln := w.beyond()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	c := w.dial(w.addr("vendor-a.test", w.site("vendor-a.test", ln.Addr())))
	echo := func() error {
		_, err := c.Write([]byte("\x00"))
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	w.s.endIdle(time.Now().Add(idleTime - time.Minute))
	if err := echo(); err != nil {
		t.Errorf("within the time: %v", err)
	}
	w.s.endIdle(time.Now().Add(idleTime + time.Minute))
	if err := echo(); err == nil {
		t.Error("it goes on")
	}
}

func TestEG16_WithoutSentinelNothingLeaves(t *testing.T) {
	w := newWorld(t)
	port := w.serveHTTP(http.HandlerFunc(echo), "vendor-a.test")
	url := fmt.Sprintf("http://vendor-a.test:%d/", port)
	for what, ask := range map[string]func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error){
		"gone": func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error) { return nil, errors.New("gone") },
		"unavailable": func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error) {
			return nil, wire.Refuse(wire.CodeUnavailable, "x", "")
		},
		"no answer":    func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error) { return nil, nil },
		"an empty one": func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error) { return &wire.ConnectResp{}, nil },
		"to intercept": func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error) {
			return &wire.ConnectResp{ID: "x", How: wire.HowIntercept, Permit: w.permit}, nil
		},
		"a permit that is none": func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error) {
			return &wire.ConnectResp{ID: "x", How: wire.HowSplice, Permit: append([]string{"x"}, w.permit...)}, nil
		},
	} {
		w.s.Ask = ask
		out, err := w.curl("-o", "/dev/stderr", "-w", "%{http_code}", url)
		if err != nil || !strings.Contains(out, `"code":`) || strings.Contains(out, "HTTP/1.1 GET") {
			t.Errorf("%s: %v, %s", what, err, out)
		}
	}
	w.s.Ask = func(context.Context, *wire.ConnectReq) (*wire.ConnectResp, error) {
		return &wire.ConnectResp{ID: "x", How: wire.HowSplice, Permit: w.permit}, nil
	}
	w.s.Full = func() bool { return true }
	if out, err := w.curl(url); err != nil || !strings.Contains(out, "behind") {
		t.Errorf("full: %v, %s", err, out)
	}
	w.s.Full = func() bool { return false }
	if out, err := w.curl(url); err != nil || !strings.HasPrefix(out, "HTTP/1.1 GET") {
		t.Errorf("control: %v, %s", err, out)
	}
}

// Whatever a cell's resolv.conf says, its own tree's or none, the question comes here.
func TestAnyResolvConfWillDo(t *testing.T) {
	w := newWorld(t)
	if _, err := exec.LookPath("getent"); err != nil {
		t.Skip("getent skipped: not installed")
	}
	for what, conf := range map[string]string{
		"none":               "",
		"a router's":         "search lan\nnameserver 192.168.7.1\nnameserver fe80::1%lo\n",
		"systemd-resolved's": "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n",
		"public, by TCP":     "nameserver 8.8.8.8\noptions use-vc\n",
		"public, by IPv6":    "nameserver 2001:4860:4860::8888\n",
	} {
		if err := os.WriteFile(w.resolv, []byte(conf), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := w.program("getent", "ahosts", "vendor-a.test")
		if err != nil || !strings.Contains(out, "198.18.0.2") || !strings.Contains(out, "fd00:d00d::2") {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
}

// EG-10: by UDP and TCP, IPv4 and IPv6, and any server that the client thinks it asks.
func TestEG10_TheResolverIsEveryAddress(t *testing.T) {
	w := newWorld(t)
	for _, network := range []string{"udp", "tcp"} {
		for _, server := range []string{"198.18.0.1:53", "[fd00:d00d::1]:53", "8.8.8.8:53", "[2001:4860:4860::8888]:53", "127.0.0.1:53"} {
			var c net.Conn
			var err error
			w.ns.within(func() { c, err = net.Dial(network, server) }) // connected: takes only what comes from there
			if err != nil {
				t.Errorf("%s %s: %v", network, server, err)
				continue
			}
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			msg := question(t, "4a6f.evil.test.", dnsmessage.TypeA)
			if network == "tcp" {
				msg = append([]byte{0, byte(len(msg))}, msg...)
			}
			buf := make([]byte, 600)
			_, _ = c.Write(msg)
			n, err := c.Read(buf)
			if network == "tcp" && n > 2 {
				buf, n = buf[2:], n-2
			}
			var m dnsmessage.Message
			if uerr := m.Unpack(buf[:n]); err != nil || uerr != nil || len(m.Answers) != 1 {
				t.Errorf("%s %s: %v, %v, %+v", network, server, err, uerr, m)
			}
			_ = c.Close()
		}
	}
	for _, client := range [][]string{
		{"getent", "ahosts", "vendor-a.test"},
		{"python3", "-c", "import socket; print(socket.getaddrinfo('vendor-a.test', 443))"},
		{"node", "-e", "require('dns').lookup('vendor-a.test',{all:true},(e,a)=>console.log(e,JSON.stringify(a)))"},
	} {
		t.Run(client[0], func(t *testing.T) {
			out, err := w.program(client[0], client[1:]...)
			if err != nil || !strings.Contains(out, "198.18.0.") || !strings.Contains(out, "fd00:d00d::") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	r := &net.Resolver{PreferGo: true, Dial: func(_ context.Context, network, _ string) (c net.Conn, err error) {
		w.ns.within(func() { c, err = net.Dial(network, "198.18.0.1:53") })
		return c, err
	}}
	if a, err := r.LookupNetIP(t.Context(), "ip", "vendor-a.test."); err != nil || len(a) != 2 {
		t.Errorf("Go's resolver: %v, %v", a, err)
	}
	if txt, err := r.LookupTXT(t.Context(), "vendor-a.test."); err == nil {
		t.Errorf("Go's resolver: TXT %q", txt)
	}
	if n := len(w.questions()); n != 0 {
		t.Errorf("sentinel was asked %d times by look-ups", n)
	}
}
