// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// Hosts of the server: where requests are read and a surrogate is swapped, the same under many names, and where bytes are carried
// untouched.
const (
	swapped = "api.bench.example"
	many    = "h%d.many.bench.example"
	carried = "plain.bench.example"
	manyMax = 400
)

// cellRig is a world whose cell has a network: the agent program in it, the real egress of the cell with sentinel and authd behind it,
// and the server in a process of its own.
type cellRig struct {
	ctx       context.Context
	w         *world.World
	dir       string // that everybody may read
	cell      *world.Actor
	out       *world.Actor // the same machine, without Doorward
	surrogate string
	addr      string // of the server
	server    *exec.Cmd
	peers     []*exec.Cmd
	next      int // number of the next host of many
}

var cellRows = []string{"proxy/warm-latency", "proxy/rps16", "proxy/rps16-goproxy", "proxy/rps4-64", "proxy/cpu", "proxy/cold-tls",
	"proxy/first-host", "proxy/mint-herd", "proxy/download", "proxy/download-spliced", "proxy/sse", "proxy/fair", "proxy/websockets"}

func cellNet(ctx context.Context, t *table, root, nginx, tokenizer string) error {
	if !slices.ContainsFunc(cellRows, t.wants) {
		return nil
	}
	r := &cellRig{ctx: ctx}
	defer r.close()
	if err := r.open(root); err != nil {
		return fmt.Errorf("a cell with a network: %w", err)
	}
	for _, part := range []struct {
		names string
		run   func() error
	}{
		{"proxy/websockets", func() error { return r.websockets(t) }}, // first: it is about memory
		{"proxy/warm-latency", func() error { return r.warm(t, nginx) }},
		{"proxy/rps16 proxy/rps16-goproxy proxy/rps4-64 proxy/cpu", func() error { return r.rates(t, root, tokenizer) }},
		{"proxy/cold-tls proxy/first-host", func() error { return r.colds(t) }},
		{"proxy/mint-herd", func() error { return r.herd(t) }},
		{"proxy/download proxy/download-spliced", func() error { return r.downloads(t) }},
		{"proxy/sse", func() error { return r.sse(t) }},
		{"proxy/fair", func() error { return r.fair(t) }},
	} {
		if slices.ContainsFunc(strings.Fields(part.names), t.wants) {
			if err := part.run(); err != nil {
				return fmt.Errorf("%s: %w\n%s", part.names, err, r.log())
			}
		}
	}
	return nil
}

func (r *cellRig) log() string {
	s := r.w.Daemon("egress@bench").Log()
	return s[max(0, len(s)-2000):]
}

func (r *cellRig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *cellRig) open(root string) error {
	if err := os.Setenv("DOORWARD_PREFIX", filepath.Join(root, "build")); err != nil {
		return err
	}
	var err error
	if r.dir, err = os.MkdirTemp("/srv", "bench-"); err != nil {
		return err
	}
	if err := os.Chmod(r.dir, 0o755); err != nil {
		return err
	}
	if err := r.build(root, r.path("agent"), "./test/bench/agent"); err != nil {
		return err
	}
	block := make([]byte, 2) // other runs on this machine have addresses of their own
	_, _ = rand.Read(block)
	ip := fmt.Sprintf("127.%d.%d.9", 64+block[0]%128, block[1])
	r.addr = ip + ":443"
	if err := r.pair("server", swapped, carried, "*.many.bench.example"); err != nil {
		return err
	}
	if r.server, err = r.start(r.path("agent"), "-mode=serve", "-to="+r.addr, "-ca="+r.path("server.pem"), "-token="+token); err != nil {
		return err
	}
	hosts := []string{ip + " " + swapped, ip + " " + carried}
	for i := range manyMax {
		hosts = append(hosts, ip+" "+fmt.Sprintf(many, i))
	}
	if r.w, err = world.Open(world.Options{Workers: []string{"dav"}, Net: true, Hosts: hosts}); err != nil {
		return err
	}
	c, err := r.w.Cell("bench")
	if err != nil {
		return err
	}
	r.cell, r.out = c.Actor(), r.w.Local(1001)
	if res, err := r.cell.Connector(r.ctx, "list"); err != nil || res.Code != 0 {
		return fmt.Errorf("connector list: %v: %w", res, err)
	}
	for name, text := range map[string]string{
		"policy.toml": fmt.Sprintf("[site.%q]\nsetting = \"allow\"\npermit = [%q]\n", carried+":443", r.addr),
		"manifest.toml": fmt.Sprintf(`about = "the server of the benchmarks"
hosts = [%q, "*.many.bench.example"]
setting = "dont-ask"

[placement]
kind = "header"
name = "Authorization"
prefix = "Bearer "
`, swapped) + route("small", "read", "") + route("bulk", "read", "") + route("events", "read", "") +
			route("socket", "write", "websocket = true\nreach = \"none\"\n"),
	} {
		if err := os.WriteFile(r.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"policy", "load", "--yes", r.path("policy.toml")},
		{"surrogate", "add", "bench", "--cell", "bench", "--manifest", r.path("manifest.toml"), "--ca", r.path("server.ca"),
			"--permit", r.addr, "--secret-stdin", "--yes"}} {
		if res, err := r.w.Person(1000).Doorward(r.ctx, token, args...); err != nil || res.Code != 0 {
			return fmt.Errorf("doorward %v: %v: %w", args, res, err)
		}
	}
	res, err := r.cell.Connector(r.ctx, "surrogate", "bench")
	if err != nil || res.Code != 0 {
		return fmt.Errorf("connector surrogate: %v: %w", res, err)
	}
	r.surrogate = strings.TrimSpace(res.Stdout)
	return nil
}

func route(name, class, more string) string {
	return fmt.Sprintf("\n[[route]]\nname = %q\nmethods = [\"GET\"]\npath = \"/%s\"\nclass = %q\n%s", name, name, class, more)
}

func (r *cellRig) close() {
	for _, c := range append(r.peers, r.server) {
		if c != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	if r.w != nil {
		_ = r.w.Close()
	}
	_ = os.RemoveAll(r.dir)
}

func (r *cellRig) build(dir, to, pkg string) error {
	cmd := exec.CommandContext(r.ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// pair writes NAME.pem, a certificate for names with its key, and NAME.ca, its root.
func (r *cellRig) pair(name string, names ...string) error {
	ca, err := standin.NewCA()
	if err != nil {
		return err
	}
	leaf, err := ca.Issue(standin.Leaf{Names: names})
	if err != nil {
		return err
	}
	cert, key, err := standin.PEMPair(leaf)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(r.path(name+".pem"), slices.Concat(cert, key), 0o644), os.WriteFile(r.path(name+".ca"), ca.PEM(), 0o644))
}

// start starts a server on the machine, which says that it is ready.
func (r *cellRig) start(args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(r.ctx, args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("start %s: %q: %w", args[0], line, err)
	}
	return cmd, nil
}

type took struct {
	Wall   float64
	NS     []float64
	Leaves int
}

func (v *took) rate() float64 { return float64(len(v.NS)) / v.Wall }

// agent runs the program at a place.
func (r *cellRig) agent(at *world.Actor, args ...string) (*took, error) {
	res, err := at.Do(r.ctx, world.Cmd{UID: 1000, Args: append([]string{r.path("agent")}, args...)})
	if err != nil || res.Code != 0 {
		return nil, fmt.Errorf("agent %v: %v: %w", args, res, err)
	}
	v := new(took)
	return v, json.Unmarshal([]byte(res.Stdout), v)
}

// through is what the agent does by way of Doorward, with the surrogate.
func (r *cellRig) through(mode string, args ...string) (*took, error) {
	return r.agent(r.cell, append([]string{"-mode=" + mode, "-host=" + swapped, "-token=" + r.surrogate}, args...)...)
}

// straight is the same without Doorward, with the credential.
func (r *cellRig) straight(mode string, args ...string) (*took, error) {
	return r.agent(r.out, append([]string{"-mode=" + mode, "-host=" + swapped, "-to=" + r.addr, "-ca=" + r.path("server.ca"),
		"-token=" + token}, args...)...)
}

// warm is proxy/warm-latency.
func (r *cellRig) warm(t *table, nginx string) error {
	const row, target = "proxy/warm-latency", "<= 1.25"
	if _, err := os.Stat(nginx); err != nil {
		t.absent(row, target, "no nginx at "+nginx)
		return nil
	}
	at, err := r.nginx(nginx)
	if err != nil {
		return err
	}
	load := []string{"-n=800", "-warm=100"}
	ratios, err := quiet(func() (float64, error) {
		ours, err := r.through("get", load...)
		if err != nil {
			return 0, err
		}
		peer, err := r.agent(r.out, append([]string{"-mode=get", "-host=" + swapped, "-to=" + at, "-ca=" + r.path("nginx.ca")}, load...)...)
		if err != nil {
			return 0, err
		}
		return median(ours.NS) / median(peer.NS), nil
	})
	if err != nil {
		return err
	}
	t.add(row, target, "nginx that re-encrypts, one kept connection each", ratios)
	return nil
}

func (r *cellRig) nginx(path string) (addr string, err error) {
	if err := r.pair("nginx", swapped); err != nil {
		return "", err
	}
	b, err := os.ReadFile(r.path("nginx.pem"))
	if err != nil {
		return "", err
	}
	ca, err := os.ReadFile(r.path("server.ca"))
	if err != nil {
		return "", err
	}
	p, err := startNginx(r.ctx, path, filepath.Join(r.dir, "nginx"), nginxFiles{cert: b, key: b, originCA: ca, origin: r.addr,
		host: swapped, name: swapped})
	if err != nil {
		return "", err
	}
	r.peers = append(r.peers, p.cmd)
	return strings.TrimPrefix(p.base, "https://"), nil
}

// goproxy starts that peer, where its module is to be had.
func (r *cellRig) goproxy(root string) (url string, err error) {
	if err := r.build(filepath.Join(root, "test/bench/goproxy"), r.path("goproxy"), "."); err != nil {
		return "", err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "peer"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return "", err
	}
	cert, private, err := standin.PEMPair(tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(r.path("goproxy.pem"), slices.Concat(cert, private), 0o644),
		os.WriteFile(r.path("goproxy.ca"), cert, 0o644)); err != nil {
		return "", err
	}
	addr, err := free()
	if err != nil {
		return "", err
	}
	p, err := r.start(r.path("goproxy"), "-listen="+addr, "-to="+r.addr, "-roots="+r.path("server.ca"), "-ca="+r.path("goproxy.pem"),
		"-token="+token)
	r.peers = append(r.peers, p)
	return "http://" + addr, err
}

// rates are requests a second over several connections, and what they cost.
func (r *cellRig) rates(t *table, root, tokenizer string) error {
	why := "superfly/tokenizer's module cannot be had, and no -tokenizer is given"
	if tokenizer != "" {
		why = "this version cannot seal a secret for " + tokenizer
	}
	t.absent("proxy/rps16", ">= 12", why)
	peer, perr := r.goproxy(root)
	if perr != nil {
		fmt.Fprintln(os.Stderr, perr)
	}
	const n = 4800
	load := func(k int) []string { return []string{fmt.Sprint("-conns=", k), fmt.Sprint("-n=", n/k), "-warm=5"} }
	rows, err := quietRows(func() ([]float64, error) {
		var rate [3]float64
		var cost []float64
		for i, k := range []int{4, 16, 64} {
			before, err := r.cpu()
			if err != nil {
				return nil, err
			}
			v, err := r.through("get", load(k)...)
			if err != nil {
				return nil, err
			}
			after, err := r.cpu()
			if err != nil {
				return nil, err
			}
			rate[i] = v.rate()
			if k == 16 {
				cost = []float64{after[0] - before[0], after[1] - before[1]}
			}
		}
		before, err := cpu(r.server.Process.Pid)
		if err != nil {
			return nil, err
		}
		d, err := r.straight("get", load(16)...)
		if err != nil {
			return nil, err
		}
		after, err := cpu(r.server.Process.Pid)
		if err != nil {
			return nil, err
		}
		other := rate[1]
		if perr == nil {
			v, err := r.agent(r.out, append([]string{"-mode=get", "-host=" + swapped, "-ca=" + r.path("goproxy.ca"), "-proxy=" + peer}, load(16)...)...)
			if err != nil {
				return nil, err
			}
			other = v.rate()
		}
		origin := after - before
		return []float64{rate[1] / other, rate[2] / rate[0], (cost[0] + cost[1]) / origin, cost[0] / origin, rate[1] / d.rate()}, nil
	})
	if err != nil {
		return err
	}
	if perr != nil {
		t.absent("proxy/rps16-goproxy", ">= 1", "goproxy could not be built")
	} else {
		t.add("proxy/rps16-goproxy", ">= 1", "requests/s of goproxy that swaps a header and asks nobody, 16 connections", column(rows, 0))
	}
	t.add("proxy/rps4-64", ">= 1", "requests/s over 64 connections by those over 4", column(rows, 1))
	t.add("proxy/cpu", "<= 2.8", "the server's CPU for a request that comes straight; egress, sentinel and authd together", column(rows, 2))
	t.add("proxy/cpu-egress", "report", "the same; egress alone", column(rows, 3))
	t.add("proxy/rps16-straight", "report", "requests/s straight to the server, 16 connections", column(rows, 4))
	return nil
}

// cpu is the time in ns that egress, and that sentinel and authd, have taken.
func (r *cellRig) cpu() (out [2]float64, err error) {
	for name, i := range map[string]int{"egress@bench": 0, "sentinel": 1, "authd": 1} {
		v, err := cpu(r.w.Daemon(name).PID())
		if err != nil {
			return out, err
		}
		out[i] += v
	}
	return out, nil
}

// cpu is the time in ns that a process's threads have taken; a Go program's do not end.
func cpu(pid int) (float64, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("process %d has no schedstat: %w", pid, err)
	}
	var sum float64
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(b), " ")
		v, err := strconv.ParseFloat(first, 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// colds are new connections: to a host that is known, and to one that nobody has asked for.
func (r *cellRig) colds(t *table) error {
	const n = 20
	mint, err := mintTime()
	if err != nil {
		return err
	}
	rows, err := quietRows(func() ([]float64, error) {
		ours, err := r.through("get", "-cold", "-warm=3", fmt.Sprint("-n=", 2*n))
		if err != nil {
			return nil, err
		}
		d, err := r.straight("get", "-cold", "-warm=3", fmt.Sprint("-n=", 2*n))
		if err != nil {
			return nil, err
		}
		cold, direct := median(ours.NS), median(d.NS)
		v, err := r.agent(r.cell, "-mode=get", "-host="+many, "-token="+r.surrogate, "-cold", fmt.Sprint("-from=", r.next), fmt.Sprint("-n=", n))
		if err != nil {
			return nil, err
		}
		r.next += n
		first := median(v.NS)
		return []float64{cold / direct, first / (cold + mint), first / (cold + mint + direct)}, nil
	})
	if err != nil {
		return err
	}
	t.add("proxy/cold-tls", "<= 1.1", "a cold HTTPS request of plain Go straight to the server", column(rows, 0))
	t.add("proxy/first-host", "<= 1.1", "the time of proxy/cold-tls and of one leaf; the server is connected to for the first time, too", column(rows, 1))
	t.add("proxy/first-host-both", "report", "the same and one cold HTTPS request straight to the server", column(rows, 2))
	return nil
}

// mintTime is how long the making of one leaf takes with a key that is there, in ns.
func mintTime() (float64, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return 0, err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example"}, NotAfter: time.Now().Add(time.Hour)}
	var all []float64
	for range 200 {
		start := time.Now()
		if _, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key); err != nil {
			return 0, err
		}
		all = append(all, float64(time.Since(start)))
	}
	return median(all), nil
}

// herd is 64 first connections at once to a host that nobody has asked for; each shows the leaf that it got.
func (r *cellRig) herd(t *table) error {
	ratios, err := quiet(func() (float64, error) {
		v, err := r.agent(r.cell, "-mode=get", fmt.Sprintf("-host="+many, r.next), "-token="+r.surrogate, "-conns=64")
		if err != nil {
			return 0, err
		}
		r.next++
		return float64(v.Leaves), nil
	})
	if err != nil {
		return err
	}
	t.add("proxy/mint-herd", "<= 1", "1; leaves that 64 connections at once to a new host are shown", ratios)
	return nil
}

func (r *cellRig) downloads(t *table) error {
	rows, err := quietRows(func() ([]float64, error) {
		d, err := r.straight("download")
		if err != nil {
			return nil, err
		}
		read, err := r.through("download")
		if err != nil {
			return nil, err
		}
		whole, err := r.agent(r.cell, "-mode=download", "-host="+carried, "-token="+token, "-ca="+r.path("server.ca"))
		if err != nil {
			return nil, err
		}
		return []float64{d.Wall / read.Wall, d.Wall / whole.Wall}, nil
	})
	if err != nil {
		return err
	}
	t.add("proxy/download", ">= 0.55", "speed of 64 MiB straight; intercepted, and searched for the credential", column(rows, 0))
	t.add("proxy/download-spliced", ">= 0.8", "the same; carried untouched", column(rows, 1))
	return nil
}

func (r *cellRig) sse(t *table) error {
	ratios, err := quiet(func() (float64, error) {
		d, err := r.straight("events", "-n=300")
		if err != nil {
			return 0, err
		}
		v, err := r.through("events", "-n=300")
		if err != nil {
			return 0, err
		}
		return at(v.NS, 0.9) / at(d.NS, 0.9), nil
	})
	if err != nil {
		return err
	}
	t.add("proxy/sse", "<= 2", "the delay of an event straight from the server; p90", ratios)
	return nil
}

// at is a quantile.
func at(v []float64, q float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[int(q*float64(len(v)-1))]
}

// fair is small reads beside two downloads without end.
func (r *cellRig) fair(t *table) error {
	small := func(f func(string, ...string) (*took, error)) (float64, error) {
		v, err := f("get", "-n=600", "-warm=50")
		if err != nil {
			return 0, err
		}
		return at(v.NS, 0.99), nil
	}
	// beside measures while two streams run there.
	beside := func(f func(string, ...string) (*took, error), where *world.Actor, args ...string) (float64, error) {
		for range 2 {
			p, err := where.Start(world.Cmd{UID: 1000, Args: append([]string{r.path("agent"), "-mode=download", "-host=" + swapped,
				fmt.Sprint("-size=", int64(1)<<40)}, args...)})
			if err != nil {
				return 0, err
			}
			defer func() { p.Kill(); _, _ = p.Wait() }()
		}
		time.Sleep(300 * time.Millisecond)
		return small(f)
	}
	rows, err := quietRows(func() ([]float64, error) {
		idle, err := small(r.through)
		if err != nil {
			return nil, err
		}
		loaded, err := beside(r.through, r.cell, "-token="+r.surrogate)
		if err != nil {
			return nil, err
		}
		didle, err := small(r.straight)
		if err != nil {
			return nil, err
		}
		dloaded, err := beside(r.straight, r.out, "-token="+token, "-to="+r.addr, "-ca="+r.path("server.ca"))
		if err != nil {
			return nil, err
		}
		return []float64{loaded / idle, dloaded / didle}, nil
	})
	if err != nil {
		return err
	}
	t.add("proxy/fair", "<= 4", "p99 of small reads with nothing else; with two downloads beside them", column(rows, 0))
	t.add("proxy/fair-straight", "report", "the same straight to the server", column(rows, 1))
	return nil
}

// websockets is how much memory a thousand WebSockets take that rest.
func (r *cellRig) websockets(t *table) error {
	const n = 1000
	if _, err := r.through("get", "-conns=8", "-n=50"); err != nil {
		return err
	}
	pid := r.w.Daemon("egress@bench").PID()
	time.Sleep(time.Second)
	before, err := rss(pid)
	if err != nil {
		return err
	}
	in, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	told, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer told.Close()
	p, err := r.cell.Start(world.Cmd{UID: 1000, Args: []string{r.path("agent"), "-mode=rest", "-host=" + swapped, "-token=" + r.surrogate,
		fmt.Sprint("-n=", n)}, StdinFile: in, StdoutFile: out})
	in.Close()
	out.Close()
	if err != nil {
		hold.Close()
		return err
	}
	line, rerr := bufio.NewReader(told).ReadString('\n')
	time.Sleep(3 * time.Second)
	after, err := rss(pid)
	hold.Close()
	if res, werr := p.Wait(); werr != nil || res.Code != 0 || err != nil || line != "resting\n" {
		return fmt.Errorf("%q, %v: %w", line, res, errors.Join(rerr, werr, err))
	}
	t.add("proxy/websockets", "<= 40", "MiB of memory that egress has more with a thousand intercepted WebSockets at rest (no ratio)",
		[]float64{(after - before) / 1024})
	return nil
}
