// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/github"
	"github.com/doorward/doorward/test/vendors/standin"
)

// The vendor of this test outlives a cut of the power: its certificate and its log are files, and each line of the log is
// on the disk before the vendor acts, or answers.
const (
	vendorDir = "/var/lib/bench"
	vendorAt  = "127.0.0.1:4443"
	behind    = "127.0.0.1:4444"
	outlives  = "outlives" // a file that is synced before the cut, and one that is not
)

// lasting is a vendor in front of the stand-in.
type lasting struct {
	log *os.File // O_SYNC; path and body of each issue that was opened, a line

	mu    sync.Mutex
	seen  map[string]int // by title: how often the vendor acted, in all boots
	holds map[string]chan struct{}
}

func (v *lasting) acted(title string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen[title]
}

// hold keeps the answer about an issue back until the channel is closed; by then the vendor has acted.
func (v *lasting) hold(title string) chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.holds[title] = make(chan struct{})
	return v.holds[title]
}

func titleOf(body []byte) string {
	var issue struct{ Title string }
	_ = json.Unmarshal(body, &issue) // what is no issue has no title
	return issue.Title
}

// kept is a file of the vendor's, made in the first boot.
func kept(t *testing.T, name string, made func() []byte) []byte {
	t.Helper()
	path := filepath.Join(vendorDir, name)
	if b, err := os.ReadFile(path); err == nil {
		return b
	}
	b := made()
	if err := errors.Join(os.MkdirAll(vendorDir, 0o700), os.WriteFile(path, b, 0o600)); err != nil {
		t.Fatal(err)
	}
	return b
}

// certificate is the vendor's, the same in each boot, and that of its authority.
func certificate(t *testing.T) (cert tls.Certificate, ca []byte) {
	t.Helper()
	var certPEM, keyPEM []byte
	ca = kept(t, "ca.pem", func() []byte {
		authority, err := standin.NewCA()
		if err != nil {
			t.Fatal(err)
		}
		cert, err := authority.Issue(standin.Leaf{Names: []string{"127.0.0.1"}})
		if err == nil {
			certPEM, keyPEM, err = standin.PEMPair(cert)
		}
		if err != nil {
			t.Fatal(err)
		}
		return authority.PEM()
	})
	certPEM = kept(t, "cert.pem", func() []byte { return certPEM })
	keyPEM = kept(t, "key.pem", func() []byte { return keyPEM })
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return cert, ca
}

// vendor starts the lasting vendor, and has it do again what it did in the boots before.
func vendor(t *testing.T) (v *lasting, token string, ca []byte) {
	t.Helper()
	token = string(kept(t, "token", func() []byte { return []byte(githubToken) }))
	cert, ca := certificate(t)
	g, err := github.New(github.Options{Credentials: []string{token}, Base: "https://" + vendorAt, Listen: behind})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	real := &url.URL{Scheme: "https", Host: behind}
	v = &lasting{seen: map[string]int{}, holds: map[string]chan struct{}{}}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: g.CA.Pool()}}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(real) }}
	path := filepath.Join(vendorDir, "log")
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(before)); lines.Scan(); {
		place, body, _ := strings.Cut(lines.Text(), " ")
		q, err := http.NewRequest(http.MethodPost, real.String()+place, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+token)
		r, err := (&http.Client{Transport: transport}).Do(q)
		if err != nil || r.StatusCode != http.StatusCreated {
			t.Fatalf("do %s again: %v %v", lines.Text(), r, err)
		}
		r.Body.Close()
		v.seen[titleOf([]byte(body))]++
	}
	if v.log, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|os.O_SYNC, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", vendorAt)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: v.serve(t, proxy), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
	go func() { _ = server.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { server.Close() })
	return v, token, ca
}

func (v *lasting) serve(t *testing.T, proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			proxy.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || !json.Valid(body) {
			panic(http.ErrAbortHandler) // not whole, so not acted on
		}
		title := titleOf(body)
		line := bytes.NewBufferString(r.URL.Path + " ")
		_ = json.Compact(line, body) // it is valid
		v.mu.Lock()
		if _, err := v.log.Write(append(line.Bytes(), '\n')); err != nil {
			t.Errorf("the vendor's log: %v", err)
		}
		v.seen[title]++
		hold := v.holds[title]
		v.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		if hold != nil {
			<-hold
		}
		proxy.ServeHTTP(w, r)
	})
}

// titles are those of calls by id: they do not change.
var titles = map[string]string{}

// calls are the writes of the record by title, with their states.
func calls(t *testing.T) (map[string]wire.State, error) {
	t.Helper()
	r := person(t, "", "audit", "export")
	if r.code != 0 {
		return nil, fmt.Errorf("export the record: %v", r)
	}
	states, creates := map[string]wire.State{}, map[string]bool{}
	for line := range strings.Lines(r.stdout) {
		var e struct {
			Type, Call string
			Details    struct{ Method, To string }
		}
		if json.Unmarshal([]byte(line), &e) != nil || e.Call == "" {
			continue
		}
		creates[e.Call] = creates[e.Call] || e.Details.Method == "issue-create"
		switch {
		case e.Details.To != "":
			states[e.Call] = wire.State(e.Details.To)
		case e.Type == "park":
			states[e.Call] = wire.StateParked
		case e.Type == "start":
			states[e.Call] = wire.StateExecuting
		}
	}
	out := map[string]wire.State{}
	allowed := []string{"acted", "answered", "done", "granted", "approved"} // as everyState begins them; ids are in order
	for _, id := range slices.Sorted(maps.Keys(creates)) {
		if creates[id] && titles[id] == "" {
			r := person(t, "", "show", id, "--json")
			var card struct{ Fields []struct{ Values []string } }
			if err := json.Unmarshal([]byte(r.stdout), &card); err != nil {
				return nil, fmt.Errorf("show: %w: %v", err, r)
			}
			titles[id] = "?"
			if len(card.Fields) == 0 {
				titles[id] = "allowed" // no card was ever made of it
			}
			for _, f := range card.Fields {
				for _, value := range f.Values {
					if strings.HasPrefix(value, "Cut ") {
						titles[id] = value
					}
				}
			}
		}
		title := titles[id]
		if title == "allowed" && len(allowed) > 0 {
			title, allowed = "Cut allowed "+allowed[0], allowed[1:]
		}
		if strings.HasPrefix(title, "Cut ") {
			out[title] = states[id]
		}
	}
	return out, nil
}

// cuts are the moments of a write at which the power goes, and what a state may be afterwards: never one that the vendor's
// log belies, and of those before the first byte none in which the vendor acted.
var cuts = []struct {
	name  string
	times int          // how often the vendor acts, in the end
	ends  []wire.State // in which it ends once the machine is up again
}{
	{"parked", 0, []wire.State{wire.StateParked}},
	{"approved", 0, []wire.State{wire.StateDone, wire.StateFailed}}, // authd has not heard of it: it may run, once
	{"granted", 0, []wire.State{wire.StateFailed}},
	{"acted", 1, []wire.State{wire.StateDone}},
	{"answered", 1, []wire.State{wire.StateDone}},
	{"done", 1, []wire.State{wire.StateDone}},
}

// TestFullPowerCut is run anew at each boot. It brings writes, parked ones and allowed ones, into every state at once and
// cuts the power; the next boot holds the record to the vendor's log. The second boot cuts it again while Doorward is
// putting things right.
func TestFullPowerCut(t *testing.T) {
	boot := os.Getenv("DOORWARD_BOOT")
	v, token, ca := vendor(t)
	switch boot {
	case "1":
		account(t, "github", "code", "https://"+vendorAt, ca, token)
		must(t, "systemctl", "start", "doorward-cell@work")
		syscall.Sync() // how the machine was set up is no matter of Doorward's
		v.everyState(t)
		v.cut(t)
	case "2":
		eventually(t, "sentinel is up again", func() error {
			_, err := run("systemctl", "is-active", "doorward-sentinel.service")
			return err
		})
		cut()
	case "3":
		must(t, "systemctl", "start", "doorward-cell@work")
		v.afterwards(t)
	default:
		t.Fatalf("boot %q", boot)
	}
}

// everyState brings one parked and one allowed write into each state.
func (v *lasting) everyState(t *testing.T) {
	t.Helper()
	create := func(title string) []string {
		return []string{"/usr/bin/connector", "github", "issue-create", "--repo", "ada/site", "--title", title, "--json", "--wait", "0s"}
	}
	want(t, person(t, "", "approve", park(t, "First"), "--yes", "--grant", "session", "--any", "title"), 0, "approve with a grant")
	for _, unit := range []string{"doorward-worker@github.service", "doorward-authd.service"} { // they are stopped below
		dropIn(t, unit, "WatchdogSec=0\n")
		must(t, "systemctl", "restart", unit)
	}
	ids := map[string]string{}
	for _, c := range cuts {
		// More than the grant allows parks; so the allowed ones go to its repository, and these to another.
		r := connector(t, "github", "issue-create", "--repo", "ada/notes", "--title", "Cut parked "+c.name, "--json", "--wait", "0s")
		want(t, r, 4, "a write")
		ids[c.name] = parkedAs(t, r)
	}
	approve := func(name string) { go func() { _ = person(t, "", "approve", ids[name], "--yes") }() }
	allowed := func(name string) {
		go func() { _, _ = entered("work", 1000, "run-1", create("Cut allowed "+name)...) }()
	}
	worker, authd := mainPID(t, "doorward-worker@github.service"), mainPID(t, "doorward-authd.service")
	both := func(name string) (release func()) {
		a, b := v.hold("Cut parked "+name), v.hold("Cut allowed "+name)
		approve(name)
		allowed(name)
		for _, kind := range []string{"parked", "allowed"} {
			eventually(t, "the vendor acts", func() error {
				if n := v.acted("Cut " + kind + " " + name); n != 1 {
					return fmt.Errorf("%s %s: %d times", kind, name, n)
				}
				return nil
			})
		}
		return func() { close(a); close(b) }
	}
	both("acted")
	answer := both("answered")
	// Done, and the caller has it.
	want(t, person(t, "", "approve", ids["done"], "--yes"), 0, "approve")
	want(t, connector(t, "wait", ids["done"]), 0, "wait")
	r, err := entered("work", 1000, "run-1", create("Cut allowed done")...)
	if err != nil {
		t.Fatal(err)
	}
	want(t, r, 0, "an allowed write")
	if _, err := calls(t); err != nil { // which is whose: below, a grant that nobody takes up ends after 30 s
		t.Fatal(err)
	}
	// The answer comes, and the worker does not read it; what is granted meanwhile it does not begin.
	if err := syscall.Kill(worker, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	answer()
	approve("granted")
	allowed("granted")
	eventually(t, "all are where they are to be", func() error {
		return areIn(t, map[string]wire.State{
			"Cut parked granted": wire.StateExecuting, "Cut allowed granted": wire.StateExecuting})
	})
	if err := syscall.Kill(authd, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	approve("approved")
	allowed("approved")
	eventually(t, "all are where they are to be", func() error {
		return areIn(t, map[string]wire.State{
			"Cut parked approved": wire.StateExecuting, "Cut parked acted": wire.StateExecuting, "Cut allowed acted": wire.StateExecuting,
			"Cut parked answered": wire.StateExecuting, "Cut allowed answered": wire.StateExecuting,
			"Cut parked done": wire.StateDone, "Cut allowed done": wire.StateDone, "Cut parked parked": wire.StateParked})
	})
}

// areIn says whether calls are in those states.
func areIn(t *testing.T, want map[string]wire.State) error {
	have, err := calls(t)
	if err != nil {
		return err
	}
	for title, state := range want {
		if have[title] != state {
			return fmt.Errorf("%s is %q, want %s; all: %v", title, have[title], state, have)
		}
	}
	return nil
}

// cut leaves a file that is synced and one that is not, and ends the machine as a cut of the power does.
func (v *lasting) cut(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(vendorDir, outlives), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(vendorDir)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(f.Sync(), dir.Sync(), os.WriteFile(filepath.Join(vendorDir, "not-"+outlives), []byte("x"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cut()
}

func cut() {
	fmt.Println("the power is cut")
	_ = os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0) // returns, if at all, to nobody
	select {}
}

// afterwards holds what is said of each call to what the vendor did.
func (v *lasting) afterwards(t *testing.T) {
	t.Helper()
	_, err := os.Stat(filepath.Join(vendorDir, outlives))
	_, lost := os.Stat(filepath.Join(vendorDir, "not-"+outlives))
	if err != nil || !errors.Is(lost, os.ErrNotExist) {
		t.Errorf("control: what was synced is there: %v; what was not: %v", err, lost)
	}
	eventually(t, "every call is at its end", func() error {
		have, err := calls(t)
		if err != nil {
			return err
		}
		for _, c := range cuts {
			for _, kind := range []string{"parked", "allowed"} {
				if kind == "allowed" && (c.name == "parked" || c.name == "approved") {
					continue
				}
				if state := have["Cut "+kind+" "+c.name]; !slices.Contains(c.ends, state) {
					return fmt.Errorf("%s is %q, want one of %v; all: %v", "Cut "+kind+" "+c.name, state, c.ends, have)
				}
			}
		}
		return nil
	})
	have, err := calls(t)
	if err != nil {
		t.Fatal(err)
	}
	for title, state := range have {
		n := v.acted(title)
		t.Logf("%s: %s, and the vendor acted %d times", title, state, n)
		switch {
		case state == wire.StateDone && n != 1, state != wire.StateDone && n != 0:
			t.Errorf("%s is %s, and the vendor acted %d times", title, state, n)
		}
	}
	for _, c := range cuts {
		for _, kind := range []string{"parked", "allowed"} {
			if n := v.acted("Cut " + kind + " " + c.name); c.name != "approved" && n != c.times {
				t.Errorf("%s: the vendor acted %d times, want %d", "Cut "+kind+" "+c.name, n, c.times)
			}
		}
	}
	// What waited waits on, and runs once.
	var id string
	r := person(t, "", "pending", "--json")
	var p struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil || len(p.Items) != 1 {
		t.Fatalf("doorward pending: %v %v", err, r)
	}
	id = p.Items[0].ID
	want(t, person(t, "", "approve", id, "--yes"), 0, "approve")
	want(t, connector(t, "wait", id), 0, "wait for what was approved")
	if n := v.acted("Cut parked parked"); n != 1 {
		t.Errorf("the vendor acted %d times on what was parked", n)
	}
	want(t, person(t, "", "audit", "verify"), 0, "verify the record")
}
