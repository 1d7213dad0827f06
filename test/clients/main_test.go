// SPDX-License-Identifier: Apache-2.0

// Package clients runs programs that nobody has changed in a cell, against real servers on the machine, and compares what those
// saw with what they see when the same program runs outside: bytes, framing, answers.
package clients

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cells/trust"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

// A mode is what policy says of the sites: the same programs run in each.
type mode struct {
	domain  string // the servers' second-level name, of one length
	setting string
}

var (
	spliced = mode{"s.example", "allow"}
	read    = mode{"i.example", "read"}
	modes   = []mode{spliced, read}
	// outside is the name by which the machine itself, without Doorward, reaches the same servers.
	outside = "d.example"
)

// rig is one world for all tests: it is long in the making.
type rig struct {
	*world.World
	dir     string // that everybody may read, with the tests' own files
	root    *authority
	bundle  string // what the machine trusts, and root
	servers map[string]*server
	ada     *world.Actor
	work    *world.Cell
	file    []byte
}

var (
	one     = sync.OnceValues(open)
	closing []func()
)

func TestMain(m *testing.M) {
	inside, code, err := world.Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "host ground:", err)
		os.Exit(1)
	}
	if inside {
		code = m.Run()
		for _, f := range slices.Backward(closing) {
			f()
		}
	}
	os.Exit(code)
}

func need(t *testing.T) *rig {
	t.Helper()
	ground.Need(t)
	if ground.Systemd() {
		t.Skip("the clients are of the host ground")
	}
	r, err := one()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range []string{"egress@work", "sentinel"} {
				log := r.Daemon(name).Log()
				t.Logf("log of %s:\n%s", name, log[max(0, len(log)-4000):])
			}
		}
	})
	return r
}

const javaStore = "/etc/ssl/certs/java/cacerts"

// over lays a file on another, for this ground alone.
func over(path string, text []byte) error {
	f, err := os.CreateTemp(ground.Dir, "over-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	closing = append(closing, func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return unix.Mount(f.Name(), path, "", unix.MS_BIND, "")
}

func open() (*rig, error) {
	ctx, cancel := context.WithCancel(context.Background())
	closing = append(closing, cancel)
	dir, err := os.MkdirTemp(ground.Dir, "clients-")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir, servers: map[string]*server{}, file: make([]byte, 3<<20)}
	_, _ = rand.Read(r.file)
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(r.path("file"), r.file, 0o644)); err != nil {
		return nil, err
	}
	if r.root, err = newAuthority("the servers of the tests"); err != nil {
		return nil, err
	}
	system, err := os.ReadFile(wire.SystemBundle)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(over(wire.SystemBundle, slices.Concat(system, []byte("\n"), r.root.pem)), r.put("root.pem", r.root.pem)); err != nil {
		return nil, err
	}
	// Java has a store of its own, which is made as a cell's is.
	if err := trust.Make(r.path("trust"), r.root.cert, nil); err != nil {
		return nil, err
	}
	java, err := os.ReadFile(r.path("trust/cacerts"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(javaStore); err == nil {
		if err := over(javaStore, java); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat("/usr/bin/chromium"); err == nil { // which has no place for policies until somebody makes it
		const etc = "/etc/chromium"
		closing = append(closing, func() { _ = unix.Unmount(etc, unix.MNT_DETACH) })
		managed := filepath.Join(etc, "policies/managed")
		if err := errors.Join(unix.Mount("tmpfs", etc, "tmpfs", 0, "mode=0755"), os.MkdirAll(managed, 0o755),
			os.WriteFile(filepath.Join(managed, "doorward.json"), nil, 0o644)); err != nil {
			return nil, err
		}
	}
	block := make([]byte, 2) // other tests of this machine have addresses of their own
	_, _ = rand.Read(block)
	var names []string
	for _, domain := range []string{outside, spliced.domain, read.domain} {
		names = append(names, "*."+domain)
	}
	names = append(names, odd...)
	cert, err := r.root.leaf(names)
	if err != nil {
		return nil, err
	}
	var hosts []string
	policy, local := "", "127.0.0.1 localhost\n"
	for i, s := range []struct {
		name    string
		h2      bool
		handler http.Handler
	}{{"web", false, web(r.file)}, {"two", true, web(r.file)}, {"git", false, r.git()}, {"reg", false, r.registries()},
		{"hub", false, http.HandlerFunc(hub)}, {"grpc", true, nil}, {"off", false, web(nil)}} {
		ip := fmt.Sprintf("127.%d.%d.%d", 64+block[0]%128, block[1], 10+i)
		r.servers[s.name] = &server{name: s.name, ip: ip, handler: s.handler}
		if s.handler == nil {
			err = serveGRPC(ctx, ip, cert)
		} else {
			err = r.servers[s.name].serve(ctx, cert, s.h2)
		}
		if err != nil {
			return nil, err
		}
		local += ip + " " + s.name + "." + outside + "\n"
		for _, m := range modes {
			hosts = append(hosts, ip+" "+s.name+"."+m.domain)
			setting := m.setting
			if s.name == "off" {
				setting = "off"
			}
			policy += site(s.name+"."+m.domain, setting, ip)
		}
	}
	for _, name := range odd {
		hosts = append(hosts, r.servers["web"].ip+" "+name)
		policy += site(name, read.setting, r.servers["web"].ip)
	}
	if err := over("/etc/hosts", []byte(local)); err != nil {
		return nil, err
	}
	if err := r.programs(); err != nil {
		return nil, err
	}
	if r.World, err = world.Open(world.Options{Workers: []string{"dav"}, Net: true, Hosts: hosts}); err != nil {
		return nil, err
	}
	closing = append(closing, func() { _ = r.Close() })
	if r.work, err = r.Cell("work"); err != nil {
		return nil, err
	}
	r.ada = r.Person(1000)
	if res, err := r.work.Actor().Connector(ctx, "list"); err != nil || res.Code != 0 { // from here on sentinel knows the session
		return nil, fmt.Errorf("connector list: %v: %v", err, res)
	}
	return r, r.load(ctx, policy)
}

func site(name, setting, ip string) string {
	return fmt.Sprintf("[site.%q]\nsetting = %q\npermit = [%q]\n", name+":443", setting, ip+":443")
}

// load takes up a policy, decided by the person.
func (r *rig) load(ctx context.Context, text string) error {
	req := &wire.PolicyReq{Op: "load", Files: []wire.PolicyFile{{Name: "policy.toml", Body: []byte(text)}}}
	var resp wire.PolicyResp
	if err := r.ada.Ask(ctx, wire.PathApprove, "policy", req, &resp); err != nil || len(resp.Problems) > 0 {
		return fmt.Errorf("load: %v, %q", err, resp.Problems)
	}
	if resp.Widening == "" {
		return nil
	}
	res, err := r.ada.Doorward(ctx, "", "approve", resp.Widening, "--yes")
	if err != nil || res.Code != 0 {
		return fmt.Errorf("approve the policy: %v: %v", err, res)
	}
	return nil
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// put writes a file that every user may read.
func (r *rig) put(name string, text []byte) error {
	return errors.Join(os.WriteFile(r.path(name), text, 0o644), os.Chmod(r.path(name), 0o644))
}

// scratch is a folder for a client, that anybody may write in.
func (r *rig) scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(r.dir, "scratch-")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// installed skips a test where a program is not there, by its name.
func installed(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("client skipped: " + p + " is not installed")
		}
	}
}

// python skips a test where Debian's Python has not a module.
func python(t *testing.T, modules ...string) {
	t.Helper()
	installed(t, "/usr/bin/python3")
	for _, m := range modules {
		if exec.Command("/usr/bin/python3", "-c", "import "+m).Run() != nil {
			t.Skip("client skipped: Python has no module " + m)
		}
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// inCell runs a program as the cell's user, in the environment that a cell has.
func (r *rig) inCell(t *testing.T, dir string, args ...string) world.Result {
	t.Helper()
	res, err := r.work.Actor().Do(within(t, 2*time.Minute), world.Cmd{UID: 1000, Args: shell(dir, args), Env: []string{"HOME=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// asks runs it until a person has approved each request that asks, for a day. Where a site is spliced none does.
func (r *rig) asks(t *testing.T, m mode, run func() world.Result) world.Result {
	t.Helper()
	for range 4 {
		res := run()
		if m != read {
			return res
		}
		ids := r.waiting(t)
		if len(ids) == 0 {
			return res
		}
		for _, id := range ids {
			res, err := r.ada.Doorward(within(t, time.Minute), "", "approve", id, "--yes", "--grant", "until=1d")
			if err != nil || res.Code != 0 {
				t.Fatalf("approve: %v, %v", err, res)
			}
		}
	}
	return run()
}

// waiting are the requests that wait for a person, by the names of their cards.
func (r *rig) waiting(t *testing.T) (ids []string) {
	t.Helper()
	var pending wire.PendingResp
	if err := r.ada.Ask(within(t, time.Minute), wire.PathApprove, "pending", &wire.Empty{}, &pending); err != nil {
		t.Fatal(err)
	}
	for _, card := range pending.Cards {
		if card.Method == "request" {
			ids = append(ids, card.ID)
		}
	}
	return ids
}

// without runs it on the machine itself, where nothing is between it and the server.
func (r *rig) without(t *testing.T, dir string, args ...string) world.Result {
	t.Helper()
	env := []string{"HOME=" + dir}
	for name, value := range wire.TrustEnv() {
		env = append(env, name+"="+value)
	}
	res, err := r.Local(1000).Do(within(t, 2*time.Minute), world.Cmd{Args: shell(dir, args), Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// shell starts a program in a folder.
func shell(dir string, args []string) []string {
	return append([]string{"/bin/sh", "-c", `cd "$1" && shift && exec "$@"`, "sh", dir}, args...)
}

// programs writes and compiles those of the tests.
func (r *rig) programs() error {
	var errs []error
	for name, text := range scripts {
		errs = append(errs, r.put(name, []byte(text)))
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", r.path("goclient"), "./goclient")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		errs = append(errs, fmt.Errorf("build goclient: %w: %s", err, out))
	}
	if _, err := exec.LookPath("javac"); err == nil {
		if out, err := exec.Command("javac", "-d", r.dir, r.path("Client.java"), r.path("Lookup.java")).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("javac: %w: %s", err, out))
		}
	}
	return errors.Join(errs...)
}

// same puts one word in the place of what the two runs differ in by themselves.
func same(s, domain string) string { return strings.ReplaceAll(s, domain, "DOMAIN") }

func diff(a, b []string) string {
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			n := 0
			for n < min(len(x), len(y)) && x[n] == y[n] {
				n++
			}
			from := max(0, n-100)
			return fmt.Sprintf("%d and %d; number %d differs at byte %d:\n%q\n%q", len(a), len(b), i, n, cut(x[from:]), cut(y[from:]))
		}
	}
	return ""
}

func cut(s string) string { return s[:min(len(s), 400)] }
