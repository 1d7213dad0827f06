// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/vendors/github"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

const token = "ghp_BenchBenchBenchBenchBenchBenc0Fm7gO"

// rig is a whole installation with the load worker, an origin, and what the benchmarks run in its places.
type rig struct {
	ctx    context.Context
	w      *world.World
	cell   *world.Actor // it reads
	clean  *world.Actor // it writes, and never reads what others wrote
	person *world.Actor
	gh     *github.Server
	origin *origin
	prefix string
	client *http.Client // warm, straight to the stand-in
	echo   net.Conn     // to an echoing process
}

func calls(ctx context.Context, t *table, root, nginx string) error {
	names := []string{"call/read", "call/read-vs-bare", "call/write-durable", "call/deny", "cli/start", "worker/cold",
		"proxy/warm-uds", "proxy/rps16-worker", "proxy/cold-uds", "idle/rss", "soak/leak"}
	any := false
	for _, n := range names {
		any = any || t.wants(n)
	}
	if !any {
		return nil
	}
	r, err := newRig(ctx, root)
	if err != nil {
		return err
	}
	defer r.close()
	for _, part := range []struct {
		names string
		run   func(*table) error
	}{
		{"idle/rss", r.idle},
		{"call/read call/read-vs-bare call/write-durable call/deny cli/start", r.execs},
		{"proxy/warm-uds proxy/cold-uds proxy/rps16-worker", func(t *table) error { return r.proxies(t, nginx) }},
		{"worker/cold", r.cold},
		{"soak/leak", r.soak},
	} {
		wanted := false
		for _, n := range strings.Fields(part.names) {
			wanted = wanted || t.wants(n)
		}
		if wanted {
			if err := part.run(t); err != nil {
				return fmt.Errorf("%s: %w", part.names, err)
			}
		}
	}
	return nil
}

// newRig copies the installation and adds the load worker, the probe and the bare program to the copy.
func newRig(ctx context.Context, root string) (*rig, error) {
	r := &rig{ctx: ctx}
	built := filepath.Join(root, "build") // `make bench` has made it
	var err error
	if r.prefix, err = os.MkdirTemp("/srv", "bench-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(r.prefix, 0o755); err != nil {
		return nil, err
	}
	for _, dir := range []string{"bin", "libexec", "share"} {
		if err := os.CopyFS(filepath.Join(r.prefix, dir), os.DirFS(filepath.Join(built, dir))); err != nil {
			return nil, err
		}
	}
	for pkg, to := range map[string]string{"hello": "bin/hello", "probe": "bin/probe", "bare": "bin/bare", "load": "libexec/doorward/worker-load"} {
		made := filepath.Join(r.prefix, "made")
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", made, "./test/bench/"+pkg)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
		// Copied, as the rest of the prefix is and as every installation is: a file as the linker leaves it starts slower.
		b, err := os.ReadFile(made)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(r.prefix, to), b, 0o755); err != nil {
			return nil, err
		}
	}
	desc, err := exec.CommandContext(ctx, filepath.Join(r.prefix, "libexec/doorward/worker-load"), "describe").Output()
	if err != nil {
		return nil, fmt.Errorf("describe the load worker: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.prefix, "share/doorward/load.desc"), desc, 0o644); err != nil {
		return nil, err
	}
	if err := os.Setenv("DOORWARD_PREFIX", r.prefix); err != nil {
		return nil, err
	}
	if r.gh, err = github.New(github.Options{Credentials: []string{token}}); err != nil {
		return nil, err
	}
	if r.origin, err = newOrigin(token); err != nil {
		return nil, err
	}
	if r.w, err = world.Open(world.Options{Workers: []string{"dav", "github", "load"}}); err != nil {
		return nil, err
	}
	c, err := r.w.Cell("bench")
	if err != nil {
		return nil, err
	}
	c2, err := r.w.Cell("clean")
	if err != nil {
		return nil, err
	}
	r.cell, r.clean, r.person = c.Actor(), c2.Actor(), r.w.Person(1000)
	for _, a := range []struct {
		vendor, base string
		ca           []byte
	}{{"github", r.gh.Base(), r.gh.CAPEM()}, {"load", r.origin.base, r.origin.ca}} {
		if err := r.add(a.vendor, a.base, a.ca); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{"policy.toml": "bulk-reads = 1000000\nbulk-bytes = 1000000000000\n",
		"deny.cedar": "@id(\"no-trees\")\nforbid (principal, action == Action::\"github.tree\", resource);\n"} {
		if err := os.WriteFile(filepath.Join(r.w.Dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if _, err := r.doorward("", "policy", "load", "--yes", filepath.Join(r.w.Dir, "policy.toml"), filepath.Join(r.w.Dir, "deny.cedar")); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.gh.CAPEM())
	r.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	sock := filepath.Join(r.w.Dir, "echo")
	echo := exec.CommandContext(ctx, filepath.Join(r.prefix, "bin/probe"), "echo", sock)
	ready, err := echo.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := echo.Start(); err != nil {
		return nil, err
	}
	if _, err := ready.Read(make([]byte, 16)); err != nil {
		return nil, err
	}
	r.echo, err = net.Dial("unix", sock)
	return r, err
}

func (r *rig) close() {
	_ = r.w.Close()
	r.gh.Close()
	r.origin.server.Close()
	_ = os.RemoveAll(r.prefix)
}

func (r *rig) doorward(stdin string, args ...string) (world.Result, error) {
	res, err := r.person.Doorward(r.ctx, stdin, args...)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("doorward %v: %v", args, res)
	}
	return res, err
}

func (r *rig) add(vendor, base string, ca []byte) error {
	file := filepath.Join(r.w.Dir, vendor+".pem")
	if err := os.WriteFile(file, ca, 0o644); err != nil {
		return err
	}
	u, err := url.Parse(base)
	if err != nil {
		return err
	}
	_, err = r.doorward(token, "account", "add", vendor, vendor, "--base", base, "--ca", file, "--permit", u.Host,
		"--secret-stdin", "--yes")
	return err
}

// connector runs the command in the cell and returns what it printed.
func (r *rig) connector(args ...string) (string, error) {
	res, err := r.cell.Connector(r.ctx, args...)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("connector %v: %v", args, res)
	}
	return res.Stdout, err
}

// probe times starts of programs at a place, see the probe's own text: a line a round, a column a command. between, which
// may be nil, runs after each round.
func (r *rig) probe(at *world.Actor, n int, between func() error, cmds ...[]string) ([][]float64, error) {
	args := []string{filepath.Join(r.prefix, "bin/probe"), "exec", strconv.Itoa(n)}
	for _, c := range cmds {
		args = append(append(args, "--"), c...)
	}
	in, ask, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ask.Close()
	told, out, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer told.Close()
	p, err := at.Start(world.Cmd{Args: args, StdinFile: in, StdoutFile: out})
	in.Close()
	out.Close()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(told)
	var rows [][]float64
	for range n {
		if _, err := ask.Write([]byte{'.'}); err != nil || !lines.Scan() {
			break // its own words say why
		}
		var row []float64
		for _, f := range strings.Fields(lines.Text()) {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return nil, fmt.Errorf("probe printed %q", lines.Text())
			}
			row = append(row, v)
		}
		rows = append(rows, row)
		if between != nil {
			if err := between(); err != nil {
				p.Kill()
				return nil, err
			}
		}
	}
	res, err := p.Wait()
	if err != nil {
		return nil, err
	}
	if res.Code != 0 || len(rows) != n {
		return nil, fmt.Errorf("probe: %d of %d rounds, %v", len(rows), n, res)
	}
	return rows, nil
}

// floor is what a call cannot do without, besides its start: hops over a Unix socket to another process of plain Go, a
// warm request straight to the stand-in, a pwrite and fdatasync into a file that is there, where the ledger is. Each is
// done once between two starts, and so as cold as a start leaves it.
type floor struct {
	hops        int
	https, sync bool

	r    *rig
	file *os.File
	took []float64 // ns, one for each round
}

func (f *floor) measure() error {
	buf := make([]byte, 64)
	start := time.Now()
	for range f.hops {
		if _, err := f.r.echo.Write(buf); err != nil {
			return err
		}
		if _, err := io.ReadFull(f.r.echo, buf); err != nil {
			return err
		}
	}
	if f.https {
		if _, err := get(f.r.ctx, f.r.client, f.r.gh.Base()+"/user/repos?per_page=30&page=1&visibility=all", token); err != nil {
			return err
		}
	}
	if f.sync {
		if _, err := f.file.WriteAt(make([]byte, 512), int64(len(f.took)%2048*512)); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.file.Fd())); err != nil {
			return err
		}
	}
	f.took = append(f.took, float64(time.Since(start).Nanoseconds()))
	return nil
}

// floor makes one. Its file is removed with the world.
func (r *rig) floor(hops int, https, sync bool) (*floor, error) {
	f := &floor{hops: hops, https: https, sync: sync, r: r}
	if !sync {
		return f, nil
	}
	var err error
	if f.file, err = os.Create(filepath.Join(r.w.State("sentinel"), "floor")); err != nil {
		return nil, err
	}
	if _, err := f.file.Write(make([]byte, 1<<20)); err != nil {
		return nil, err
	}
	return f, f.file.Sync()
}

// execs are the rows that start the command.
func (r *rig) execs(t *table) error {
	hello := []string{"0", filepath.Join(r.prefix, "bin/hello")}
	connector := filepath.Join(r.prefix, "bin/connector")
	if _, err := r.connector("github", "repos"); err != nil { // warm: pools, workers, the session
		return err
	}
	if err := r.grantIssues(); err != nil {
		return err
	}
	read := []string{"0", connector, "github", "repos"}
	deny := []string{"3", connector, "github", "tree", "--repo", "ada/site", "--ref", "main"}
	write := []string{"0", connector, "github", "issue-create", "--repo", "ada/site", "--title", "{round}"}
	version, wrong := []string{"0", connector, "version"}, []string{"2", connector, "github", "repos", "--maxx", "3"}
	bare := []string{"0", filepath.Join(r.prefix, "bin/bare"), r.gh.Base() + "/user/repos?per_page=30&page=1&visibility=all",
		filepath.Join(r.w.Dir, "github.pem"), token}
	type one struct {
		row, target, note string
		run               func() (float64, error)
	}
	against := func(at *world.Actor, cmd []string, hops int, https, sync bool) func() (float64, error) {
		return func() (float64, error) {
			f, err := r.floor(hops, https, sync)
			if err != nil {
				return 0, err
			}
			rows, err := r.probe(at, 31, f.measure, cmd, hello)
			if err != nil {
				return 0, err
			}
			took, start, rest := median(column(rows, 0)), median(column(rows, 1)), median(f.took)
			if *verbose {
				fmt.Fprintf(os.Stderr, "%.2f ms; a start %.2f, the rest of the floor %.2f\n", took/1e6, start/1e6, rest/1e6)
			}
			return took / (start + rest), nil
		}
	}
	for _, o := range []one{
		{"cli/start", "<= 1.15", "start of the plainest Go program; `connector version` and a typing error, the slower of the two",
			func() (float64, error) {
				rows, err := r.probe(r.cell, 61, nil, version, hello, wrong)
				if err != nil {
					return 0, err
				}
				return max(median(column(rows, 0)), median(column(rows, 2))) / median(column(rows, 1)), nil
			}},
		{"call/deny", "<= 1.2", "that start and 2 socket hops", against(r.cell, deny, 2, false, false)},
		{"call/read", "<= 1.7", "that start, 3 socket hops and a warm HTTPS request", against(r.cell, read, 3, true, false)},
		{"call/write-durable", "<= 1.8", "the same and one fdatasync", against(r.clean, write, 3, true, true)},
		{"call/read-vs-bare", "<= 0.65", "a Go program with the token that makes its own cold HTTPS request", func() (float64, error) {
			a, err := r.probe(r.cell, 21, nil, read)
			if err != nil {
				return 0, err
			}
			b, err := r.probe(r.w.Local(1001), 21, nil, bare)
			if err != nil {
				return 0, err
			}
			a2, err := r.probe(r.cell, 21, nil, read)
			if err != nil {
				return 0, err
			}
			return median(append(column(a, 0), column(a2, 0)...)) / median(column(b, 0)), nil
		}},
	} {
		if !t.wants(o.row) {
			continue
		}
		ratios, err := quiet(o.run)
		if err != nil {
			return fmt.Errorf("%s: %w", o.row, err)
		}
		t.add(o.row, o.target, o.note, ratios)
	}
	return nil
}

// grantIssues has the person approve an issue, and the like of it for the session.
func (r *rig) grantIssues() error {
	res, err := r.clean.Connector(r.ctx, "github", "issue-create", "--repo", "ada/site", "--title", "first", "--wait", "100ms")
	if err != nil {
		return err
	}
	if res.Code != 4 {
		return fmt.Errorf("an issue did not wait for approval: %v", res)
	}
	p, err := r.doorward("", "pending", "--json")
	if err != nil {
		return err
	}
	var list struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(p.Stdout), &list); err != nil || len(list.Items) != 1 {
		return fmt.Errorf("pending: %v, %v", p, err)
	}
	if _, err := r.doorward("", "approve", list.Items[0].ID, "--yes", "--grant", "session", "--any", "title,body"); err != nil {
		return err
	}
	res, err = r.clean.Connector(r.ctx, "wait", list.Items[0].ID)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("the approved issue: %v", res)
	}
	return err
}

// cold is worker/cold: the first call to a worker that does not run, against a call/read of the same. systemd would start
// it at the connection; here it is started beside the command.
func (r *rig) cold(t *table) error {
	read := []string{"0", filepath.Join(r.prefix, "bin/connector"), "github", "repos"}
	ratios, err := quiet(func() (float64, error) {
		warm, err := r.probe(r.cell, 11, nil, read)
		if err != nil {
			return 0, err
		}
		var cold []float64
		for range 3 {
			d := r.w.Daemon("worker-github")
			if err := d.Stop(); err != nil {
				return 0, err
			}
			started := make(chan error, 1)
			go func() { started <- d.Start() }()
			c, err := r.probe(r.cell, 1, nil, read)
			if serr := <-started; err == nil {
				err = serr
			}
			if err != nil {
				return 0, err
			}
			cold = append(cold, c[0][0])
		}
		return median(cold) / median(column(warm, 0)), nil
	})
	if err != nil {
		return err
	}
	t.add("worker/cold", "<= 3", "call/read with the worker running", ratios)
	return nil
}

// idle is idle/rss: the largest resident set of a daemon at rest, against an empty net/http server.
func (r *rig) idle(t *table) error {
	time.Sleep(2 * time.Second)
	server := filepath.Join(r.prefix, "bin/empty")
	src := filepath.Join(r.w.Dir, "empty.go")
	text := "package main\n\nimport (\n\t\"net/http\"\n)\n\nfunc main() { panic(http.ListenAndServe(\"127.0.0.1:0\", nil)) }\n"
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		return err
	}
	if out, err := exec.CommandContext(r.ctx, "go", "build", "-ldflags=-s -w", "-o", server, src).CombinedOutput(); err != nil {
		return fmt.Errorf("build an empty server: %w\n%s", err, out)
	}
	empty := exec.CommandContext(r.ctx, server)
	if err := empty.Start(); err != nil {
		return err
	}
	defer func() { _ = empty.Process.Kill(); _ = empty.Wait() }()
	time.Sleep(time.Second)
	floor, err := rss(empty.Process.Pid)
	if err != nil {
		return err
	}
	var ratios []float64
	worst := ""
	for _, d := range r.w.Daemons() {
		v, err := rss(d.PID())
		if err != nil {
			return err
		}
		if len(ratios) == 0 || v/floor > ratios[0] {
			ratios, worst = []float64{v / floor}, d.Name
		}
	}
	t.add("idle/rss", "<= 3", "resident set of an empty net/http server; the largest is "+worst, ratios)
	return nil
}

// rss is a process's resident set in KiB.
func rss(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := bytes.Cut(b, []byte("VmRSS:"))
	f := bytes.Fields(rest)
	if !ok || len(f) == 0 {
		return 0, fmt.Errorf("process %d has no VmRSS", pid)
	}
	return strconv.ParseFloat(string(f[0]), 64)
}

// soak is soak/leak: resident sets and descriptors after many requests, against those after the first of them.
func (r *rig) soak(t *table) error {
	measure := func() (map[string][2]float64, error) {
		time.Sleep(3 * time.Second)
		out := map[string][2]float64{}
		for _, d := range r.w.Daemons() {
			m, err := rss(d.PID())
			if err != nil {
				return nil, err
			}
			fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID()))
			if err != nil {
				return nil, err
			}
			out[d.Name] = [2]float64{m, float64(len(fds))}
		}
		return out, nil
	}
	load := func(times int) error {
		for range times {
			if _, err := r.connector("load", "run", "--conns", "8", "--requests", "4000"); err != nil {
				return err
			}
			if _, err := r.probe(r.cell, 200, nil, []string{"0", filepath.Join(r.prefix, "bin/connector"), "github", "repos"}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := load(2); err != nil {
		return err
	}
	before, err := measure()
	if err != nil {
		return err
	}
	if err := load(20); err != nil {
		return err
	}
	after, err := measure()
	if err != nil {
		return err
	}
	worst, what := 0.0, ""
	for name, a := range after {
		for k, unit := range []string{"memory", "descriptors"} {
			if x := a[k] / before[name][k]; x > worst {
				worst, what = x, unit+" of "+name
			}
		}
	}
	t.add("soak/leak", "<= 1.1", "the same daemons after a tenth of 80,000 requests and 4,000 calls; most: "+what, []float64{worst})
	return nil
}

// origin is a plain TLS server: 1 KiB to who has the credential, 401 to anybody else.
type origin struct {
	server *http.Server
	base   string
	ca     []byte
	roots  *x509.CertPool
}

func newOrigin(token string) (*origin, error) {
	ca, err := standin.NewCA()
	if err != nil {
		return nil, err
	}
	cert, err := ca.Issue(standin.Leaf{Names: []string{"127.0.0.1", "localhost"}})
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	body := bytes.Repeat([]byte("x"), 1024)
	h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(body)
	})
	o := &origin{ca: ca.PEM(), base: "https://" + ln.Addr().String(), roots: x509.NewCertPool()}
	o.roots.AppendCertsFromPEM(o.ca)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	o.server = &http.Server{Handler: h, Protocols: protocols, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
	go func() { _ = o.server.ServeTLS(ln, "", "") }()
	return o, nil
}
