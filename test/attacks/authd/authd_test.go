// SPDX-License-Identifier: Apache-2.0

// Package authd attacks the real authd from the places an attacker can be in, with the kernel's word for who calls.
package authd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

func TestMain(m *testing.M) { world.Main(m) }

const (
	token    = "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"
	password = "correct horse battery 3f9b2c71"
)

// scene is a world in which authd alone runs; the test is its sentinel.
type scene struct {
	t     *testing.T
	w     *world.World
	actor string // the program
}

func start(t *testing.T) *scene {
	t.Helper()
	ground.Need(t)
	prefix, err := os.MkdirTemp(ground.Dir, "authd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(prefix) })
	bin := filepath.Join(prefix, "libexec", "doorward")
	for _, dir := range []string{prefix, filepath.Join(prefix, "libexec"), bin} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := world.BuildTest("./cmd/authd", bin); err != nil {
		t.Fatal(err)
	}
	actor, err := world.BuildTest("./test/attacks/authd/actor", bin)
	if err != nil {
		t.Fatal(err)
	}
	old := world.Build
	world.Build = func() (string, error) { return prefix, nil }
	t.Cleanup(func() { world.Build = old })
	w := world.Start(t, world.Options{Later: true})
	if err := w.Daemon("authd").Start(); err != nil {
		t.Fatal(err)
	}
	s := &scene{t, w, actor}
	for _, add := range []wire.AddReq{
		{Name: "work", Vendor: "github", Base: wire.Base{Scheme: "https", Host: "api.github.com", Port: 443},
			Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "}, Secret: []byte(token)},
		{Name: "cal", Vendor: "dav", Base: wire.Base{Scheme: "https", Host: "dav.example.org", Port: 443},
			Placement: wire.Placement{Kind: "basic", User: "alice"}, Secret: []byte(password)},
	} {
		if got := s.ask(w.Person(1000), wire.PathAuthdAdmin, "add", add); got.Code != "" {
			t.Fatalf("add %s: %+v", add.Name, got)
		}
	}
	return s
}

// line is what the actor prints.
type line struct {
	Event, Code string
	Body        json.RawMessage
}

// ask asks one thing as somebody, on a connection of its own. Where there is none the event is "error".
func (s *scene) ask(as *world.Actor, path, verb string, body any) line {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	b, err := json.Marshal(map[string]any{"verb": verb, "body": body})
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := as.Do(ctx, world.Cmd{Args: []string{s.actor, "plain", path}, Stdin: string(b) + "\n"})
	if err != nil {
		s.t.Fatal(err)
	}
	var last line
	for text := range strings.Lines(r.Stdout) {
		if err := json.Unmarshal([]byte(text), &last); err != nil {
			s.t.Fatalf("as %s: %v: %v", as.Name, err, r)
		}
	}
	if last.Event == "" || last.Event == "connected" {
		s.t.Fatalf("as %s: no answer: %v", as.Name, r)
	}
	return last
}

// sentinel is the test in the place of sentinel.
type sentinel struct {
	s      *scene
	proc   *world.Proc
	stdin  *os.File
	events map[string]chan line // by kind; authd's answers and what it pushes come in no fixed order
	first  wire.AccountsReq
}

func (s *scene) sentinel() *sentinel {
	s.t.Helper()
	r, in, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	from, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := s.w.Inside("sentinel").Start(world.Cmd{
		Args: []string{s.actor, "sentinel", wire.PathAuthdSentinel}, StdinFile: r, StdoutFile: w,
	})
	r.Close()
	w.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	n := &sentinel{s: s, proc: p, stdin: in, events: map[string]chan line{}}
	for _, kind := range []string{"answer", "accounts", "released", "refused", "gone", "connected", "error"} {
		n.events[kind] = make(chan line, 1024)
	}
	go func() {
		defer from.Close()
		lines := bufio.NewScanner(from)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var l line
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				l = line{Event: "error", Code: err.Error()}
			}
			n.events[l.Event] <- l
		}
	}()
	s.t.Cleanup(n.end)
	n.next("accounts", &n.first)
	return n
}

func (n *sentinel) end() {
	n.stdin.Close()
	n.proc.Kill()
	_, _ = n.proc.Wait()
}

// next waits for the next event of a kind and decodes it.
func (n *sentinel) next(event string, into any) line {
	n.s.t.Helper()
	select {
	case l := <-n.events[event]:
		if into != nil {
			if err := json.Unmarshal(l.Body, into); err != nil {
				n.s.t.Fatal(err)
			}
		}
		return l
	case l := <-n.events["error"]:
		n.s.t.Fatalf("sentinel: %+v", l)
	case <-time.After(30 * time.Second):
		n.s.t.Fatalf("no %s in 30 s", event)
	}
	panic("unreachable")
}

func (n *sentinel) ask(verb string, body any) line {
	n.s.t.Helper()
	if err := json.NewEncoder(n.stdin).Encode(map[string]any{"verb": verb, "body": body}); err != nil {
		n.s.t.Fatal(err)
	}
	return n.next("answer", nil)
}

// grant is a grant for the account of a name as it is now.
func (n *sentinel) grant(id, account string) wire.GrantReq {
	n.s.t.Helper()
	i := slices.IndexFunc(n.first.Accounts, func(a wire.Account) bool { return a.Name == account })
	if i < 0 {
		n.s.t.Fatalf("no account %s", account)
	}
	a := n.first.Accounts[i]
	return wire.GrantReq{
		Grant: "grant-0123456789-" + id, Call: "call-" + id, Worker: a.Vendor, Cell: "work", Session: "run-1",
		Frame: wire.Sum([]byte(id)), Account: a.Name, Generation: a.Generation, Digest: a.Digest,
		Unix: time.Now().Add(5 * time.Minute).Unix(),
		Entries: []wire.Entry{{Name: "call", Scheme: "https", Host: a.Base.Host, Port: 443, Method: "GET", Path: "/user",
			Uses: 2, Credential: true}},
	}
}

func borrowOf(g wire.GrantReq) wire.BorrowReq {
	return wire.BorrowReq{Grant: g.Grant, Cell: g.Cell, Session: g.Session, Frame: g.Frame}
}

// refusedAs waits for authd to report a refusal of somebody's.
func (n *sentinel) refusedAs(peer, detail string) {
	n.s.t.Helper()
	var r wire.RefusedReq
	n.next("refused", &r)
	if r.Peer != peer || !strings.Contains(r.Detail, detail) {
		n.s.t.Errorf("recorded %+v, want %s, %q", r, peer, detail)
	}
}

// Must hold 1, with the kernel's identities.
func TestAWorkerGetsNothingThatIsNotItsOwn(t *testing.T) {
	s := start(t)
	n := s.sentinel()
	github, dav, egress := s.w.Inside("worker-github"), s.w.Inside("worker-dav"), s.w.Inside("egress")
	const githubUnit, davUnit = "doorward-worker@github.service", "doorward-worker@dav.service"
	g := n.grant("a", "work")
	if got := n.ask("grant", g); got.Code != "" {
		t.Fatalf("%+v", got)
	}
	borrow := func(as *world.Actor, change func(*wire.BorrowReq)) line {
		b := borrowOf(g)
		change(&b)
		return s.ask(as, wire.PathAuthdWorker, "borrow", b)
	}
	same := func(*wire.BorrowReq) {}

	if got := borrow(dav, same); got.Code != string(wire.CodeBadGrant) {
		t.Errorf("another worker's grant: %+v", got)
	}
	n.refusedAs(davUnit, "another worker's")
	if got := borrow(github, func(b *wire.BorrowReq) { b.Frame[0]++ }); got.Code != string(wire.CodeBadGrant) {
		t.Errorf("another frame: %+v", got)
	}
	n.refusedAs(githubUnit, "another frame")
	if got := borrow(github, func(b *wire.BorrowReq) { b.Session = "run-2" }); got.Code != string(wire.CodeBadGrant) {
		t.Errorf("another session: %+v", got)
	}
	n.refusedAs(githubUnit, "another caller's")

	foreign := n.grant("b", "work")
	foreign.Worker = "dav"
	if got := n.ask("grant", foreign); got.Code != string(wire.CodeNotAllowed) {
		t.Errorf("another's credential: %+v", got)
	}
	n.refusedAs("doorward-sentinel.service", "not on the account's list")

	got := borrow(github, same)
	var lent wire.BorrowResp
	if err := json.Unmarshal(got.Body, &lent); got.Code != "" || err != nil || lent.Surrogate == "" {
		t.Fatalf("control: the honest worker is refused: %+v, %v", got, err)
	}
	if lent.Surrogate == token {
		t.Fatal("the worker got the credential itself")
	}
	if got := borrow(github, same); got.Code != string(wire.CodeBadGrant) {
		t.Errorf("a second borrow: %+v", got)
	}
	n.refusedAs(githubUnit, "borrowed already")

	req := wire.ResolveReq{Grant: g.Grant, Surrogate: lent.Surrogate, Worker: "github"}
	resolve := func() (line, string) {
		got := s.ask(egress, wire.PathAuthdEgress, "resolve", req)
		var resp wire.ResolveResp
		if got.Code == "" {
			if err := json.Unmarshal(got.Body, &resp); err != nil {
				t.Fatal(err)
			}
		}
		return got, resp.Secret
	}
	if got, secret := resolve(); secret != token {
		t.Fatalf("control: egress does not get it: %s", got.Code)
	}
	var released wire.ReleasedReq
	if n.next("released", &released); released.Grant != g.Grant {
		t.Errorf("%+v", released)
	}

	t.Run("a surrogate after authd restarted", func(t *testing.T) {
		if err := s.w.Daemon("authd").Restart(); err != nil {
			t.Fatal(err)
		}
		n.next("gone", nil)
		n.end()
		n = s.sentinel()
		if got, secret := resolve(); got.Code != string(wire.CodeBadGrant) || secret != "" {
			t.Errorf("%s", got.Code)
		}
		n.refusedAs("doorward-egress.service", "no live grant")
		if got := borrow(github, same); got.Code != string(wire.CodeBadGrant) {
			t.Errorf("%+v", got)
		}
		n.refusedAs(githubUnit, "no live grant")
	})
	t.Run("a surrogate after sentinel restarted", func(t *testing.T) {
		g = n.grant("c", "work")
		if got := n.ask("grant", g); got.Code != "" {
			t.Fatalf("%+v", got)
		}
		got := borrow(github, same)
		if err := json.Unmarshal(got.Body, &lent); got.Code != "" || err != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		req = wire.ResolveReq{Grant: g.Grant, Surrogate: lent.Surrogate, Worker: "github"}
		if got, secret := resolve(); secret != token {
			t.Fatalf("control: %s", got.Code)
		}
		n.end() // killed
		n = s.sentinel()
		if got, secret := resolve(); got.Code != string(wire.CodeBadGrant) || secret != "" {
			t.Errorf("%s", got.Code)
		}
		n.refusedAs("doorward-egress.service", "no live grant")
	})
}

// Nobody but the one in the table reaches a socket of authd's, or is served on it.
func TestNobodyElseReachesAuthd(t *testing.T) {
	s := start(t)
	n := s.sentinel()
	cell, err := s.w.Cell("work")
	if err != nil {
		t.Fatal(err)
	}
	sockets := map[string]string{
		wire.PathAuthdSentinel: "grant", wire.PathAuthdWorker: "borrow", wire.PathAuthdEgress: "resolve",
		wire.PathAuthdAdmin: "list",
	}
	served := map[string]string{ // by whom each is served
		wire.PathAuthdSentinel: "sentinel", wire.PathAuthdWorker: "worker-github", wire.PathAuthdEgress: "egress",
	}
	places := map[string]*world.Actor{
		"the cell": cell.Actor(), "a run in the cell": cell.Session("run-1"), "another user": s.w.Local(1001),
		"sentinel": s.w.Inside("sentinel"), "worker-github": s.w.Inside("worker-github"),
		"egress": s.w.Inside("egress"), "authd": s.w.Inside("authd"), "a person": s.w.Person(1000),
	}
	for path, verb := range sockets {
		for name, as := range places {
			if served[path] == name || path == wire.PathAuthdAdmin && name == "a person" {
				continue
			}
			if got := s.ask(as, path, verb, struct{}{}); got.Event != "error" {
				t.Errorf("%s was answered at %s: %+v", name, path, got)
			}
		}
		// Root opens every socket; then who calls decides. As a person root may do what persons may.
		root := s.ask(s.w.Person(0), path, verb, struct{}{})
		if path == wire.PathAuthdAdmin {
			if root.Code != "" {
				t.Errorf("control: root as a person is refused: %+v", root)
			}
			continue
		}
		if root.Code != "broken" {
			t.Errorf("root was answered at %s: %+v", path, root)
		}
		n.refusedAs("admin of user-0", "not allowed")
	}
	if got := s.ask(s.w.Person(1000), wire.PathAuthdAdmin, "list", struct{}{}); got.Code != "" {
		t.Errorf("control: a person is refused: %+v", got)
	}
}

// Must hold 8, as far as authd goes: its files and its log hold no credential, and its memory is nobody's to read.
func TestAuthdKeepsCredentialsToItself(t *testing.T) {
	s := start(t)
	n := s.sentinel()
	g := n.grant("a", "cal")
	if got := n.ask("grant", g); got.Code != "" {
		t.Fatalf("%+v", got)
	}
	got := s.ask(s.w.Inside("worker-dav"), wire.PathAuthdWorker, "borrow", borrowOf(g))
	var lent wire.BorrowResp
	if err := json.Unmarshal(got.Body, &lent); got.Code != "" || err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := s.ask(s.w.Inside("egress"), wire.PathAuthdEgress, "resolve",
		wire.ResolveReq{Grant: g.Grant, Surrogate: lent.Surrogate, Worker: "dav"}); got.Code != "" {
		t.Fatalf("%+v", got)
	}
	look, err := leaks.New(leaks.Secret{Name: "token", Value: []byte(token)},
		leaks.Secret{Name: "password", Value: []byte(password)})
	if err != nil {
		t.Fatal(err)
	}
	if r := look.Files(s.w.State("authd"), filepath.Join(s.w.Dir, "log")); !r.Clean() || r.Bytes == 0 {
		t.Errorf("%+v", r)
	}
	pid := s.w.Daemon("authd").PID()
	// Control: a process of the same user whose memory is not protected, looked at from the same place.
	sleeper, err := s.w.Inside("authd").Start(world.Cmd{Args: []string{"/bin/sh", "-c", "echo $$; exec /bin/sleep 60"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { sleeper.Kill(); _, _ = sleeper.Wait() }()
	read := func(as *world.Actor, pid string) string {
		r, err := as.Run(t.Context(), "/bin/sh", "-c", "cat /proc/"+pid+"/environ >/dev/null && echo read")
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout
	}
	if got := read(s.w.Inside("authd"), fmt.Sprint(pid)); got != "" {
		t.Error("a process of authd's own user reads its environment")
	}
	if got := read(s.w.Inside("authd"), "self"); got != "read\n" {
		t.Errorf("control: nothing is readable that way: %q", got)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil || !strings.Contains(string(limits), "Max core file size        0                    0") {
		t.Errorf("authd may leave a core: %v", err)
	}
}
