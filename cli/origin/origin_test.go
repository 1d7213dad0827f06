// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/page"
)

func TestWhatRootMayAnswer(t *testing.T) {
	const cert, key = "/etc/doorward/tls/cert.pem", "/etc/doorward/tls/key.pem"
	tunnel := Options{Host: Tunnel, Page: 8440, API: 8441}
	named := Options{Host: "ward.example.org", Certificate: cert, Key: key, Page: 443, API: 8443}
	with := func(o Options, listen string) Options { o.Listen = listen; return o }
	for _, c := range []struct {
		name   string
		o      Options
		listen string
		wrong  string
	}{
		{"a tunnel", tunnel, "127.0.0.1", ""},
		{"a tunnel that ends on IPv6", with(tunnel, "::1"), "::1", ""},
		{"a name", named, "127.0.0.1", ""},
		{"a name on an address", with(named, "100.64.0.7"), "100.64.0.7", ""},
		{"on all addresses", with(named, "::"), "::", ""},
		{"mapped", with(named, "::ffff:192.0.2.7"), "192.0.2.7", ""},
		{"a tunnel that is open to others", with(tunnel, "192.0.2.7"), "", "everybody on the way"},
		{"a tunnel on all addresses", with(tunnel, "0.0.0.0"), "", "everybody on the way"},
		{"a name to listen on", with(named, "ward.example.org"), "", "is no address"},
		{"a port with it", with(named, "192.0.2.7:443"), "", "is no address"},
		{"a zone", with(named, "fe80::1%eth0"), "", "is no address"},
		{"a name without a certificate", Options{Host: "ward.example.org", Page: 8440, API: 8441}, "", "needs a certificate"},
		{"one port", Options{Host: Tunnel, Page: 8440, API: 8440}, "", "two different ports"},
		{"an address for a name", Options{Host: "192.0.2.7", Certificate: cert, Key: key, Page: 1, API: 2}, "", "is an address"},
		{"a file from here", Options{Host: "ward.example.org", Certificate: "cert.pem", Key: key, Page: 1, API: 2}, "", "absolute"},
		{"nothing", Options{}, "", "host is missing"},
	} {
		s, err := Choose(c.o)
		switch {
		case c.wrong != "" && (s != nil || err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v, %v", c.name, s, err)
		case c.wrong == "" && (err != nil || s.Listen.String() != c.listen):
			t.Errorf("%s: %v, %v", c.name, s, err)
		}
	}
}

// machine is one on which nothing is changed.
type machine struct {
	Calls
	ran    []string
	refuse string // the command that systemctl refuses
}

func newMachine(t *testing.T) *machine {
	m := &machine{}
	m.Calls = Calls{Config: t.TempDir(), Units: t.TempDir(), Now: time.Now, Dial: net.Dial,
		Readable: func(string) error { return nil }, Mine: func(netip.Addr) bool { return true },
		Run: func(args ...string) error {
			m.ran = append(m.ran, strings.Join(args, " "))
			if strings.HasPrefix(strings.Join(args, " "), m.refuse) && m.refuse != "" {
				return errors.New("refused")
			}
			return nil
		}}
	return m
}

// certified makes files for a host in a place that page sees.
func certified(t *testing.T, host string, ends time.Time) (certificate, key string) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "doorward-origin-test-")
	if err != nil {
		t.Skip("host ground skipped: needs a directory that page's unit shows: " + err.Error())
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, b := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(b), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// What page could not use is refused before anything is written.
func TestTheFilesOfACertificate(t *testing.T) {
	const host = "ward.example.org"
	year := time.Now().Add(365 * 24 * time.Hour)
	certificate, key := certified(t, host, year)
	_, another := certified(t, host, year)
	old, oldKey := certified(t, host, time.Now().Add(-time.Hour))
	late, lateKey := certified(t, host, time.Now().Add(48*time.Hour))
	loose, looseKey := certified(t, host, year)
	if err := os.Chmod(looseKey, 0o644); err != nil {
		t.Fatal(err)
	}
	hidden := t.TempDir() // below /tmp
	link := filepath.Join(filepath.Dir(certificate), "link.pem")
	for from, to := range map[string]string{certificate: filepath.Join(hidden, "cert.pem")} {
		b, _ := os.ReadFile(from)
		if err := errors.Join(os.WriteFile(to, b, 0o640), os.Symlink(to, link)); err != nil {
			t.Fatal(err)
		}
	}
	may := func(string) error { return nil }
	for _, c := range []struct {
		name, certificate, key, host string
		readable                     func(string) error
		wrong, note                  string
	}{
		{"right ones", certificate, key, host, may, "", ""},
		{"another's key", certificate, another, host, may, "does not match", ""},
		{"for another host", certificate, key, "other.example.org", may, "is for others", "a certificate for other.example.org"},
		{"ended", old, oldKey, host, may, "ended", "run the ACME client"},
		{"ends soon", late, lateKey, host, may, "", "see that it is renewed"},
		{"open to all", loose, looseKey, host, may, "", "every user"},
		{"not there", certificate + "x", key, host, may, "no such file", ""},
		{"page may not read the key", certificate, key, host, func(f string) error {
			if f == key {
				return os.ErrPermission
			}
			return nil
		}, "page may not read " + key, ""},
		{"below /tmp", filepath.Join(hidden, "cert.pem"), key, host, may, "hides /tmp/", ""},
		{"a link to below /tmp", link, key, host, may, "hides /tmp/", ""},
	} {
		m := newMachine(t)
		m.Readable = c.readable
		s := &Setup{Place: approver.Place{Host: c.host, Page: 1, API: 2, Certificate: c.certificate, Key: c.key}}
		notes, err := s.Check(m.Calls)
		switch said := strings.Join(notes, "\n"); {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v", c.name, err)
			}
			if e := (*wire.Error)(nil); !errors.As(err, &e) || !strings.Contains(e.Next, c.note) {
				t.Errorf("%s: what next is not in %+v", c.name, err)
			}
		case err != nil || (c.note == "") != (said == "") || !strings.Contains(said, c.note):
			t.Errorf("%s: %q, %v", c.name, said, err)
		}
	}
}

// No address is listened on but the one that was named, and who may knock there is said before.
func TestThePlanSaysWhoMayKnock(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1": "only this machine", "::1": "only this machine", "0.0.0.0": "every address",
		"::": "every address", "10.1.2.3": "in that network", "100.64.0.7": "in that network", "fd00::7": "in that network",
		"192.0.2.7": "which is public", "2001:db8::7": "which is public"} {
		m := newMachine(t)
		s := &Setup{Place: approver.Place{Host: "a.example.org", Page: 443, API: 8443, Certificate: "/c", Key: "/k"}, Listen: netip.MustParseAddr(listen)}
		plan := strings.Join(s.Plan(m.Calls, nil), "\n")
		if !strings.Contains(plan, want) || strings.Contains(plan, "does not have") {
			t.Errorf("%s: %s", listen, plan)
		}
		m.Mine = func(netip.Addr) bool { return false }
		here := s.Listen.IsLoopback() || s.Listen.IsUnspecified()
		if plan := strings.Join(s.Plan(m.Calls, nil), "\n"); strings.Contains(plan, "does not have") == here {
			t.Errorf("%s, which it has not: %s", listen, plan)
		}
		other, same := &approver.Place{Host: "b.example.org"}, &approver.Place{Host: "a.example.org"}
		if plan := strings.Join(s.Plan(m.Calls, other), "\n"); !strings.Contains(plan, "those of b.example.org are worth nothing") {
			t.Errorf("another name: %s", plan)
		}
		if plan := strings.Join(s.Plan(m.Calls, same), "\n"); strings.Contains(plan, "worth nothing") {
			t.Errorf("the same name: %s", plan)
		}
	}
}

func TestWhatIsWritten(t *testing.T) {
	m := newMachine(t)
	apply := func(o Options) {
		t.Helper()
		s, err := Choose(o)
		if err != nil {
			t.Fatal(err)
		}
		m.ran = nil
		if err := s.Apply(m.Calls); err != nil {
			t.Fatal(err)
		}
		have, err := approver.Load(m.Config)
		if err != nil || *have != s.Place {
			t.Errorf("%v is read, %v", have, err)
		}
	}
	dropIns := func() (out []string) {
		files, _ := filepath.Glob(filepath.Join(m.Units, "*", "*"))
		for _, f := range files {
			b, _ := os.ReadFile(f)
			out = append(out, strings.TrimPrefix(f, m.Units)+": "+strings.Join(strings.Split(string(b), "\n")[1:], "|"))
		}
		return out
	}
	tunnel := Options{Host: Tunnel, Page: 8440, API: 8441}
	apply(tunnel)
	if d := dropIns(); len(d) > 0 {
		t.Errorf("on the units' own addresses there are drop-ins: %q", d)
	}
	if want := []string{"daemon-reload", "stop doorward-page.socket doorward-page-api.socket doorward-approvals-page.socket",
		"stop doorward-page.service doorward-approvals.service",
		"start doorward-approvals-page.socket doorward-page.socket doorward-page-api.socket",
		"start doorward-approvals.service doorward-page.service"}; !slices.Equal(m.ran, want) {
		t.Errorf("systemctl %q", m.ran)
	}
	apply(Options{Host: "ward.example.org", Certificate: "/c", Key: "/k", Page: 443, API: 8441, Listen: "2001:db8::7"})
	if d, want := dropIns(), []string{"/doorward-page-api.socket.d/50-doorward-approver.conf: [Socket]|ListenStream=|ListenStream=[2001:db8::7]:8441|FreeBind=yes|",
		"/doorward-page.socket.d/50-doorward-approver.conf: [Socket]|ListenStream=|ListenStream=[2001:db8::7]:443|FreeBind=yes|"}; !slices.Equal(d, want) {
		t.Errorf("%q", d)
	}
	apply(Options{Host: Tunnel, Page: 9440, API: 8441})
	if d, want := dropIns(), []string{"/doorward-page.socket.d/50-doorward-approver.conf: [Socket]|ListenStream=|ListenStream=127.0.0.1:9440|FreeBind=yes|"}; !slices.Equal(d, want) {
		t.Errorf("back on this machine, on another port: %q", d)
	}
	apply(tunnel)
	if d := dropIns(); len(d) > 0 {
		t.Errorf("what was listened on is not taken back: %q", d)
	}
	if left, _ := filepath.Glob(filepath.Join(m.Config, ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	s, _ := Choose(tunnel)
	m.refuse = "start doorward-approvals.service"
	if err := s.Apply(m.Calls); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a daemon that does not start: %v", err)
	}
	m.Config = filepath.Join(m.Config, "none")
	m.ran = nil
	if err := s.Apply(m.Calls); err == nil || len(m.ran) > 0 {
		t.Errorf("what cannot be written: %v, then %q", err, m.ran)
	}
}

// Both ports are asked as a browser would ask; what stands there instead of one of them is found.
func TestBothPortsAnswer(t *testing.T) {
	certificate, key := certified(t, "ward.example.org", time.Now().Add(time.Hour))
	for name, p := range map[string]approver.Place{"a tunnel": {Host: Tunnel}, "a certificate": {Host: "ward.example.org", Certificate: certificate, Key: key}} {
		t.Run(name, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			listen := func() (net.Listener, uint16) {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				return ln, uint16(ln.Addr().(*net.TCPAddr).Port)
			}
			one, onePort := listen()
			two, twoPort := listen()
			p.Page, p.API = onePort, twoPort
			s := &Setup{Place: p, Listen: loopback}
			files, err := page.New(&p)
			if err != nil {
				t.Fatal(err)
			}
			api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Host != p.APIHost() || r.Header.Get("Origin") != p.PageOrigin() {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				w.WriteHeader(http.StatusUnauthorized)
			})
			first, second := &front.Server{Listener: one, Handler: files, Log: log}, &front.Server{Listener: two, Handler: api, Log: log}
			if p.Certificate != "" {
				if first.TLS, err = page.TLS(&p, log); err != nil {
					t.Fatal(err)
				}
				second.TLS = first.TLS
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go first.Serve(ctx)
			go second.Serve(ctx)
			calls := newMachine(t).Calls
			notes, err := s.Answers(calls)
			if err != nil {
				t.Fatal(err)
			}
			// It is signed by nobody.
			if trusted := !strings.Contains(strings.Join(notes, " "), "does not trust"); trusted != (p.Certificate == "") {
				t.Errorf("%q", notes)
			}
			swapped := *s
			swapped.Page, swapped.API = s.API, s.Page
			if _, err := swapped.Answers(calls); err == nil || !strings.Contains(err.Error(), "page does not answer") {
				t.Errorf("the ports the other way round: %v", err)
			}
			other, otherPort := listen()
			go func() {
				for {
					c, err := other.Accept()
					if err != nil {
						return
					}
					_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
					c.Close()
				}
			}()
			defer other.Close()
			strange := *s
			strange.Page = otherPort
			if _, err := strange.Answers(calls); err == nil {
				t.Error("what is no page passes")
			}
		})
	}
}

// A code is square, has its three corners, and stands in its quiet zone.
func TestTheCodeForATerminal(t *testing.T) {
	link := "https://ward.example.org:8440/#enrol=" + strings.Repeat("a", 22) + "&code=" + strings.Repeat("b", 43) + "&key=" + strings.Repeat("c", 87)
	lines, width, err := Code(link)
	if err != nil {
		t.Fatal(err)
	}
	var dark [][]bool
	for _, l := range lines {
		l, ok := strings.CutPrefix(l, "\x1b[38;5;16;48;5;231m")
		l, ok2 := strings.CutSuffix(l, "\x1b[0m")
		var up, down []bool
		for _, r := range l {
			up, down = append(up, r == '█' || r == '▀'), append(down, r == '█' || r == '▄')
		}
		if dark = append(dark, up, down); !ok || !ok2 || len(up) != width {
			t.Errorf("a line of %d columns, want %d", len(up), width)
		}
	}
	size := width - 2*quiet
	for y, row := range dark {
		for x, is := range row {
			out := x < quiet || y < quiet || x >= quiet+size || y >= quiet+size
			if out && is {
				t.Errorf("%d,%d is dark", x, y)
			}
		}
	}
	for _, corner := range [][2]int{{quiet, quiet}, {quiet + size - 7, quiet}, {quiet, quiet + size - 7}} {
		for i := range 7 {
			if !dark[corner[1]][corner[0]+i] || !dark[corner[1]+i][corner[0]] || !dark[corner[1]+3][corner[0]+3] {
				t.Fatalf("no corner at %v", corner)
			}
		}
	}
	if width > 80 {
		t.Errorf("it has %d columns", width)
	}
	t.Logf("%d bytes are %d by %d", len(link), width, len(lines))
	if _, _, err := Code(strings.Repeat("x", 4000)); err == nil {
		t.Error("what has no room passes")
	}
}
