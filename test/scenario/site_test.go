// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

// siteRig is a world in which cells have a way out, and a server on the machine that answers to several names.
type siteRig struct {
	*rig
	server *siteServer
}

var siteNames = []string{"allowed.example", "asks.example", "off.example", "other.example", "new.example"}

// siteServer is a real HTTPS server. What it saw is the truth.
type siteServer struct {
	*httptest.Server
	port int
	at   string // ip:port
	ca   []byte

	mu   sync.Mutex // guards what follows
	seen []seen
}

type seen struct {
	name, path string // the server name of TLS
	sum        string // of the body, hex
}

func newSiteServer(t *testing.T, ip string) *siteServer {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &siteServer{at: ln.Addr().String(), port: ln.Addr().(*net.TCPAddr).Port}
	cert, ca := siteCert(t, ip)
	s.ca = ca
	s.Server = &httptest.Server{Listener: ln, Config: &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)},
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// siteCert is a certificate for every name of the tests, and for ip, that proves itself.
func siteCert(t *testing.T, ip string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "sites"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: siteNames, IPAddresses: []net.IP{net.ParseIP(ip)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// ServeHTTP answers /echo with the body it got, and /hang with a byte every so often, until the client is gone.
func (s *siteServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	sum := sha256.Sum256(body)
	s.mu.Lock()
	s.seen = append(s.seen, seen{r.TLS.ServerName, r.URL.Path, hex.EncodeToString(sum[:])})
	s.mu.Unlock()
	if r.URL.Path != "/hang" {
		_, _ = w.Write(body)
		return
	}
	for r.Context().Err() == nil {
		if _, err := w.Write([]byte("x\n")); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// requests are how many came for a name, and to a path where that is not empty.
func (s *siteServer) requests(name, path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, x := range s.seen {
		if x.name == name && (path == "" || x.path == path) {
			n++
		}
	}
	return n
}

func newSiteRig(t *testing.T) *siteRig {
	t.Helper()
	if ground.Systemd() {
		t.Skip("a cell of the machine has no network with a way out yet")
	}
	ground.Need(t)
	s := newSiteServer(t, "127.0.0.1")
	r := &siteRig{rig: &rig{t: t}, server: s}
	r.World = world.Start(t, world.Options{Workers: []string{"dav"}, Net: true, Hosts: []string{"127.0.0.1 " + strings.Join(siteNames, " ")}})
	r.ada = r.Person(1000)
	var err error
	if r.work, err = r.Cell("work"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.ca(), s.ca, 0o644); err != nil {
		t.Fatal(err)
	}
	r.connector(r.work, 0, "list") // from here on sentinel knows the session
	return r
}

func (r *siteRig) ca() string { return filepath.Join(r.Dir, "ca.pem") }

// load takes up a policy, decided by the person.
func (r *siteRig) load(text string) {
	r.t.Helper()
	req := &wire.PolicyReq{Op: "load", Files: []wire.PolicyFile{{Name: "policy.toml", Body: []byte(text)}}}
	var resp wire.PolicyResp
	if err := r.ada.Ask(r.ctx(), wire.PathApprove, "policy", req, &resp); err != nil || len(resp.Problems) > 0 {
		r.t.Fatalf("load: %v, %q", err, resp.Problems)
	}
	if resp.Widening != "" {
		if s := r.approve(r.card(resp.Widening)); s != wire.StateDone {
			r.t.Fatalf("the policy is %s", s)
		}
	}
}

// line is a site of policy.toml with its server on this machine.
func (r *siteRig) line(name, setting string) string {
	return fmt.Sprintf("[site.\"%s:%d\"]\nsetting = %q\npermit = [%q]\n", name, r.server.port, setting, r.server.at)
}

func (r *siteRig) url(name, path string) string {
	return fmt.Sprintf("https://%s:%d%s", name, r.server.port, path)
}

// curl runs an ordinary client in the cell. Its own environment names no proxy.
func (r *siteRig) curl(args ...string) world.Result {
	r.t.Helper()
	res, err := r.work.Actor().Do(r.ctx(), world.Cmd{UID: 1000, Args: append([]string{"/usr/bin/curl", "--disable", "--silent",
		"--show-error", "--noproxy", "*", "--max-time", "60", "--cacert", r.ca()}, args...)})
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// goes has a request arrive, its bytes whole in both directions.
func (r *siteRig) goes(name string) {
	r.t.Helper()
	before := r.server.requests(name, "")
	res := r.curl("--data-binary", "what is sent to "+name, r.url(name, "/echo"))
	if res.Code != 0 || res.Stdout != "what is sent to "+name || r.server.requests(name, "") != before+1 {
		r.t.Errorf("%s does not go: %v", name, res)
	}
}

// stays has a request refused, and no byte of it at the server. It returns what the client said.
func (r *siteRig) stays(name string) string {
	r.t.Helper()
	before := len(r.server.all())
	res := r.curl("--data-binary", "nothing", r.url(name, "/echo"))
	if res.Code == 0 || len(r.server.all()) != before {
		r.t.Errorf("%s goes: %v", name, res)
	}
	return res.Stderr
}

func (s *siteServer) all() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.seen...)
}

// TestAClientOfTheCellReachesAnAllowedSite: the path as a whole, from curl in the cell to a server on the machine: a name
// that policy allows, by its own certificate, with 4 MiB each way unchanged, and on the record.
func TestAClientOfTheCellReachesAnAllowedSite(t *testing.T) {
	r := newSiteRig(t)
	r.load(r.line("allowed.example", "allow"))
	body := make([]byte, 4<<20)
	_, _ = rand.Read(body)
	file := filepath.Join(r.Dir, "body")
	if err := os.WriteFile(file, body, 0o644); err != nil {
		t.Fatal(err)
	}
	res := r.curl("--data-binary", "@"+file, "--header", "Expect:", r.url("allowed.example", "/echo"))
	sum := sha256.Sum256(body)
	got := r.server.all()
	if res.Code != 0 || !bytes.Equal([]byte(res.Stdout), body) || len(got) != 1 || got[0].sum != hex.EncodeToString(sum[:]) ||
		got[0].name != "allowed.example" {
		t.Errorf("curl ended with %d: %s; it got %d bytes; the server saw %v", res.Code, res.Stderr, len(res.Stdout), got)
	}
	r.eventually("what left is on the record", func() bool {
		lines := r.doorward(0, "audit", "list", "--about", "allowed.example", "--json").Stdout
		return strings.Contains(lines, `"type":"connect"`) && strings.Contains(lines, `"type":"sent"`) &&
			strings.Contains(lines, `"program":"curl"`)
	})
	r.has(r.doorward(0, "policy", "explain", "site", fmt.Sprintf("allowed.example:%d", r.server.port)).Stdout, "goes", "policy.toml:2 site allowed.example")
}

// TestASiteThatAsks: it is refused at once, in words; a person approves it, and the same request goes, until the grant is
// taken back, which ends what is open.
func TestASiteThatAsks(t *testing.T) {
	r := newSiteRig(t)
	r.load(r.line("asks.example", "ask") + r.line("off.example", "off"))
	r.stays("asks.example")
	cards := r.waitPending(1)
	if len(cards) != 1 || cards[0].Kind != "widening" || !strings.Contains(cards[0].Title, "asks.example") ||
		!strings.HasPrefix(cards[0].Session, "payload.") || cards[0].Grantable.Kind != "session" { // the kernel says who opened it
		t.Fatalf("%+v", cards)
	}
	r.stays("asks.example")
	if n := len(r.pending()); n != 1 {
		t.Errorf("%d cards of one site", n)
	}
	// A refusal by TLS is one byte; its words are at the gate. In the clear they are the answer.
	r.has(r.curl("http://198.18.0.1/").Stdout, "needs_approval", "doorward approve "+cards[0].ID, "asks.example")
	r.has(r.curl("--include", fmt.Sprintf("http://asks.example:%d/", r.server.port)).Stdout, "403", "needs_approval",
		"doorward approve "+cards[0].ID)
	r.has(r.connector(r.work, 0, "inbox").Stdout, "connect to asks.example", "not kept")
	doctor, err := r.work.Actor().Connector(r.ctx(), "doctor") // how it ends hangs on what else there is
	if err != nil {
		t.Fatal(err)
	}
	r.has(doctor.Stdout, "refused asks.example", "needs_approval", "doorward approve "+cards[0].ID)
	r.has(r.doorward(0, "show", cards[0].ID).Stdout, "connect to asks.example", "curl", "--grant until=7d", "not read by anybody")
	res := r.doorward(0, "approve", cards[0].ID, "--yes")
	r.has(res.Stdout, "is done", "grant ")
	r.has(r.connector(r.work, 0, "result", cards[0].ID).Stderr, "connect to asks.example", "nothing was sent and nothing is kept")
	r.goes("asks.example")

	hang := r.hangs("asks.example")
	grants := r.doorward(0, "grants", "--json").Stdout
	id := cut(t, grants, `"id":"`, `"`)
	r.has(r.doorward(0, "revoke", id).Stdout, "grant "+id+" of site connect is revoked")
	r.ends(hang)
	r.stays("asks.example")
}

// cut is what stands between two texts.
func cut(t *testing.T, s, before, after string) string {
	t.Helper()
	_, s, ok := strings.Cut(strings.ReplaceAll(s, `": "`, `":"`), before)
	s, _, end := strings.Cut(s, after)
	if !ok || !end {
		t.Fatalf("no %s in it", before)
	}
	return s
}

// hangs begins a request whose answer has no end, and returns when it has begun.
func (r *siteRig) hangs(name string) *world.Proc {
	r.t.Helper()
	before := r.server.requests(name, "/hang")
	p, err := r.work.Actor().Start(world.Cmd{UID: 1000, Args: []string{"/usr/bin/curl", "--disable", "--silent", "--show-error", "--no-buffer",
		"--noproxy", "*", "--cacert", r.ca(), "--output", "/dev/null", r.url(name, "/hang")}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Kill)
	r.eventually(name+" is being read", func() bool { return r.server.requests(name, "/hang") > before })
	return p
}

// ends waits until a request that would never end does, not by its own time.
func (r *siteRig) ends(p *world.Proc) {
	r.t.Helper()
	done := make(chan world.Result, 1)
	go func() {
		res, _ := p.Wait()
		done <- res
	}()
	select {
	case res := <-done:
		if res.Code == 0 {
			r.t.Errorf("it came to its end: %v", res)
		}
	case <-r.ctx().Done():
		r.t.Error("it goes on")
		p.Kill()
	}
}

// TestWhatIsNotAllowedStays: a site that is off, one that no line names, one whose name the client hides from the resolver,
// and an address. Control: the same requests go once policy allows them.
func TestWhatIsNotAllowedStays(t *testing.T) {
	r := newSiteRig(t)
	var mine *siteServer
	if ip := privateIP(t); ip != "" {
		mine = newSiteServer(t, ip)
	}
	address := func() world.Result {
		return r.curl("--insecure", "--data-binary", "nothing", "https://"+mine.at+"/echo")
	}
	r.load(r.line("allowed.example", "allow") + r.line("off.example", "off"))
	r.stays("off.example")
	r.stays("other.example")
	// The resolver was asked for one name, the server's is another.
	lying := []string{"--connect-to", fmt.Sprintf("off.example:%d:allowed.example:%d", r.server.port, r.server.port), "--data-binary", "nothing",
		r.url("off.example", "/echo")}
	if res := r.curl(lying...); res.Code == 0 || r.server.requests("off.example", "") != 0 {
		t.Errorf("by the name of another: %v", res)
	}
	if mine != nil {
		if res := address(); res.Code == 0 || len(mine.all()) != 0 {
			t.Errorf("an address: %v", res)
		}
	}
	r.has(r.doorward(0, "why", "off.example").Stdout, "off.example", "not_allowed")
	if n := len(r.pending()); n != 1 { // other.example
		t.Errorf("%d cards", n)
	}

	text := r.line("allowed.example", "allow") + r.line("off.example", "allow") + r.line("other.example", "allow")
	if mine != nil {
		text += fmt.Sprintf("[site.%q]\nsetting = \"allow\"\npermit = [%q]\n", mine.at, mine.at)
	}
	r.load(text)
	r.goes("off.example")
	r.goes("other.example")
	if mine != nil {
		if res := address(); res.Code != 0 || len(mine.all()) != 1 {
			t.Errorf("control: an address that policy names: %v", res)
		}
	}
}

// privateIP is a private address of this machine, or empty.
func privateIP(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsPrivate() { // guard opens no other that is not public
			return n.IP.String()
		}
	}
	t.Log("this machine has no private address, so no address is tried")
	return ""
}

// TestSentinelGoneNothingNewLeaves: while sentinel is away a connection is refused, and goes again when it is back.
func TestSentinelGoneNothingNewLeaves(t *testing.T) {
	r := newSiteRig(t)
	r.load(r.line("allowed.example", "allow"))
	r.goes("allowed.example")
	r.Daemon("sentinel").Kill()
	r.stays("allowed.example")
	if err := r.Daemon("sentinel").Start(); err != nil {
		t.Fatal(err)
	}
	r.eventually("it goes again", func() bool { return r.curl(r.url("allowed.example", "/echo")).Code == 0 })
}

// TestEgressGoneItsNamesStay: while the cell's egress is away nothing leaves; when it is back, the addresses that the cell
// was told for names are those of the same names.
func TestEgressGoneItsNamesStay(t *testing.T) {
	r := newSiteRig(t)
	r.load(r.line("allowed.example", "allow") + r.line("asks.example", "ask"))
	r.goes("allowed.example")
	ask := func(name string) string {
		res, err := r.work.Actor().Run(r.ctx(), "/usr/bin/getent", "ahostsv4", name)
		if err != nil || res.Code != 0 {
			t.Fatalf("%s: %v, %v", name, res, err)
		}
		return strings.Fields(res.Stdout)[0]
	}
	was := ask("allowed.example")
	other := ask("asks.example")
	if !strings.HasPrefix(was, "198.18.") && !strings.HasPrefix(was, "198.19.") || was == other {
		t.Errorf("%s and %s", was, other)
	}
	d := r.Daemon("egress@work")
	d.Kill()
	byAddress := []string{"--resolve", fmt.Sprintf("allowed.example:%d:%s", r.server.port, was), r.url("allowed.example", "/echo")}
	before := len(r.server.all())
	// Its listener is its socket unit's and stays: what connects waits there for the next egress.
	if res := r.curl(append(byAddress, "--max-time", "2")...); res.Code == 0 || len(r.server.all()) != before {
		t.Errorf("without its egress: %v", res)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	r.eventually("it goes again, to the address of before", func() bool { return r.curl(byAddress...).Code == 0 })
	if now := ask("asks.example"); now != other {
		t.Errorf("asks.example was %s, and is %s", other, now)
	}
	if now := ask("allowed.example"); now != was {
		t.Errorf("allowed.example was %s, and is %s", was, now)
	}
}

// TestTheSwitchEndsTraffic: stopping a cell ends what its programs have open, and nothing new goes. Control: another cell's
// goes on.
func TestTheSwitchEndsTraffic(t *testing.T) {
	r := newSiteRig(t)
	r.load(r.line("allowed.example", "allow"))
	var err error
	if r.home, err = r.Cell("home"); err != nil {
		t.Fatal(err)
	}
	r.connector(r.home, 0, "list")
	work := r.hangs("allowed.example")
	r.work, r.home = r.home, r.work
	home := r.hangs("allowed.example")
	r.work, r.home = r.home, r.work
	r.has(r.doorward(0, "stop", "work").Stdout, "the connections of cell work are cut")
	r.ends(work)
	r.stays("allowed.example")
	home.Kill()
	if res, err := home.Wait(); err != nil || res.Code != 128+9 {
		t.Errorf("control: another cell's connection ended by itself: %v, %v", res, err)
	}
}

// TestEG16_NothingLeavesUnjudged: while sentinel and the cell's egress are killed and started, and policies are loaded, wrong
// ones too, a cell that tries without end reaches what is allowed again each time, and never what is not. Control: once that is
// allowed, the same loop reaches it.
func TestEG16_NothingLeavesUnjudged(t *testing.T) {
	r := newSiteRig(t)
	r.load(r.line("allowed.example", "allow") + r.line("off.example", "off"))
	curl := "/usr/bin/curl --disable --silent --noproxy '*' --max-time 5 --output /dev/null --cacert " + r.ca() + " "
	loop, err := r.work.Actor().Start(world.Cmd{UID: 1000, Args: []string{"/bin/sh", "-c", "while :; do " + curl + r.url("allowed.example", "/echo") +
		"; " + curl + r.url("off.example", "/echo") + "; done"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loop.Kill)
	goesOn := func(behind string) {
		t.Helper()
		before := r.server.requests("allowed.example", "")
		r.eventually("what is allowed goes on behind "+behind, func() bool { return r.server.requests("allowed.example", "") > before+3 })
	}
	goesOn("the start")
	for _, name := range []string{"sentinel", "egress@work", "sentinel"} {
		r.Daemon(name).Kill()
		if err := r.Daemon(name).Start(); err != nil {
			t.Fatal(err)
		}
		goesOn("a kill of " + name)
	}
	wrong := &wire.PolicyReq{Op: "load", Files: []wire.PolicyFile{{Name: "policy.toml", Body: []byte("[site.\"off.example\"]\nsetting = \"alow\"\n")}}}
	var resp wire.PolicyResp
	if err := r.ada.Ask(r.ctx(), wire.PathApprove, "policy", wrong, &resp); err != nil || len(resp.Problems) == 0 {
		t.Errorf("a policy with a fault: %+v, %v", resp, err)
	}
	goesOn("a policy with a fault")
	r.load(r.line("allowed.example", "allow") + r.line("off.example", "off"))
	goesOn("a policy")
	if n := r.server.requests("off.example", ""); n != 0 {
		t.Errorf("%d requests reached a site that is off", n)
	}
	r.load(r.line("allowed.example", "allow") + r.line("off.example", "allow"))
	r.eventually("control: it goes once it is allowed", func() bool { return r.server.requests("off.example", "") > 0 })
}
