// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
)

func TestMain(m *testing.M) { Main(m) }

// probes is a world in which the probe stands in every unit.
func probes(t *testing.T) (*World, string) {
	t.Helper()
	ground.Need(t)
	dir, err := os.MkdirTemp(ground.Dir, "probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	probe, err := BuildTest("./test/world/probe", dir)
	if err != nil {
		t.Fatal(err)
	}
	old := Build
	Build = func() (string, error) { return dir, nil }
	t.Cleanup(func() { Build = old })
	w := Start(t, Options{Later: true})
	for _, d := range w.Daemons() {
		u := d.unit.(*hostUnit)
		u.binary = probe
		for _, s := range u.sockets {
			u.args = append(u.args, s.name)
		}
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
	}
	return w, probe
}

func ask(t *testing.T, a *Actor, probe string, paths ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := a.Run(ctx, append([]string{probe, "ask"}, paths...)...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Code != 0 {
		t.Fatalf("as %s: %v", a.Name, r)
	}
	return r.Stdout
}

func TestEveryoneIsWhoTheyAre(t *testing.T) {
	w, probe := probes(t)
	work, err := w.Cell("work")
	if err != nil {
		t.Fatal(err)
	}
	home, err := w.Cell("home")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		as   *Actor
		path string
		want string
	}{
		{work.Actor(), wire.PathCellSentinel, "doorward-cell@work.service/payload"},
		{work.Session("run-1a"), wire.PathCellSentinel, "doorward-cell@work.service/run-1a"},
		{home.Actor(), wire.PathCellWorker("dav"), "doorward-cell@home.service/payload"},
		{w.Person(1000), wire.PathApprove, "user-1000"},
		{w.Person(0), wire.PathAuthdAdmin, "admin of user-0"},
		{w.Local(1001), wire.PathApprove, "permission denied"},
		{w.Local(1001), wire.PathAuthdSentinel, "permission denied"},
		{w.Local(1001), wire.CellDir + "sentinel.sock", "permission denied"},
		{w.Inside("worker-dav"), wire.PathAuthdWorker, "doorward-worker@dav.service"},
		{w.Inside("worker-dav"), wire.PathAuthdEgress, "permission denied"},
		{w.Inside("egress"), wire.PathAuthdEgress, "doorward-egress.service"},
		{w.Inside("sentinel"), wire.PathAuthdSentinel, "doorward-sentinel.service"},
		{w.Inside("sentinel"), wire.PathWorkerSentinel("github"), "doorward-sentinel.service"},
		{w.Inside("authd"), wire.PathAuthdSentinel, "permission denied"},
	} {
		if got := ask(t, tt.as, probe, tt.path); !strings.Contains(got, tt.want) {
			t.Errorf("%s at %s: %q, want %q", tt.as.Name, tt.path, got, tt.want)
		}
	}
}

// A cell sees its sockets and nothing else below /run, its own processes and lo.
func TestACellSeesOnlyItsOwn(t *testing.T) {
	w, probe := probes(t)
	c, err := w.Cell("work")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if got := ask(t, w.Local(1001), probe, "tcp:"+ln.Addr().String()); !strings.Contains(got, "connected") {
		t.Fatalf("control: nobody can connect: %s", got)
	}
	if got := ask(t, c.Actor(), probe, "tcp:"+ln.Addr().String()); !strings.Contains(got, "refused") {
		t.Errorf("a cell reached the machine's loopback: %s", got)
	}
	for _, path := range []string{wire.PathAuthdSentinel, wire.PathApprove, wire.PathEgressWorker,
		wire.CellDir + "sentinel.sock"} {
		if got := ask(t, c.Actor(), probe, path); !strings.Contains(got, "no such file") {
			t.Errorf("a cell reached %s: %s", path, got)
		}
	}
	r, err := c.Actor().Run(t.Context(), "/bin/sh", "-c", "find /run -not -type d; ls /proc | grep -c '^[0-9]'; id -u; "+
		"cat "+filepath.Join(w.path("credentials", "authd"), "store-key"))
	if err != nil {
		t.Fatal(err)
	}
	want := "/run/doorward/cell/dav.sock\n/run/doorward/cell/github.sock\n/run/doorward/cell/sentinel.sock\n"
	lines := strings.SplitAfter(r.Stdout, "\n")
	if len(lines) < 5 {
		t.Fatal(r)
	}
	found := map[string]bool{lines[0]: true, lines[1]: true, lines[2]: true}
	for line := range strings.Lines(want) {
		if !found[line] {
			t.Errorf("%q is not in %q", line, r.Stdout)
		}
	}
	if lines[4] != "0\n" || !strings.Contains(r.Stderr, "Permission denied") {
		t.Error(r)
	}
}

// Sockets stay over kill and restart: a client that connects meanwhile is served by the next process.
func TestSocketsStayOverRestarts(t *testing.T) {
	w, probe := probes(t)
	d := w.Daemon("sentinel")
	d.Kill()
	if d.PID() != 0 || d.Err() == nil {
		t.Errorf("after kill: pid %d, %v", d.PID(), d.Err())
	}
	p, err := w.Person(1000).Start(Cmd{Args: []string{probe, "ask", wire.PathApprove}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if err != nil || !strings.Contains(r.Stdout, "user-1000") {
		t.Errorf("%v %v", r, err)
	}
	if err := d.Restart(); err != nil {
		t.Error(err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// A daemon sees the directories of its own rows and runs under its own uid.
func TestADaemonSeesItsRowsOnly(t *testing.T) {
	w, _ := probes(t)
	for name, want := range map[string][2]string{
		"authd":      {"[]", `"uid":990`},
		"sentinel":   {"[d authd/ d cells/ d egress/ d egress-cell/ d worker/]", `"uid":991`},
		"egress":     {"[d authd/ d sentinel/]", `"uid":992`},
		"worker-dav": {"[d authd/ d egress/ d sentinel/]", `"uid":61184`},
	} {
		log := w.Daemon(name).Log()
		if !strings.Contains(log, want[0]) || !strings.Contains(log, want[1]) {
			t.Errorf("%s: want %q in %s", name, want, log)
		}
	}
}

func TestACommandIsKilled(t *testing.T) {
	w, _ := probes(t)
	c, err := w.Cell("work")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []*Actor{c.Actor(), c.Session("run-x"), w.Person(1000)} {
		ctx, cancel := context.WithCancel(t.Context())
		p, err := a.Start(Cmd{Args: []string{"/bin/sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(ctx, p.Kill)
		cancel()
		if r, err := p.Wait(); err != nil || r.Code != 137 {
			t.Errorf("%s: %v %v", a.Name, r, err)
		}
	}
	if err := c.EndSession("run-x"); err != nil {
		t.Error(err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if c, err = w.Cell("work"); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Actor().Do(t.Context(), Cmd{Args: []string{"/bin/cat"}, Stdin: "again", UID: 1000}); err != nil ||
		r.Stdout != "again" {
		t.Error(r, err)
	}
}

func TestAFrozenDaemonStandsStillAndCanBeKilled(t *testing.T) {
	w, probe := probes(t)
	d := w.Daemon("sentinel")
	if err := d.Freeze(); err != nil {
		t.Fatal(err)
	}
	p, err := w.Person(1000).Start(Cmd{Args: []string{probe, "ask", wire.PathApprove}})
	if err != nil {
		t.Fatal(err)
	}
	before, err := d.Stat()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	after, err := d.Stat()
	if err != nil || after.GetCPU().GetUserUsec() != before.GetCPU().GetUserUsec() {
		t.Errorf("it ran: %v, then %v, %v", before.GetCPU(), after.GetCPU(), err)
	}
	d.Kill()
	if err := d.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(); err != nil || !strings.Contains(r.Stdout, "user-1000") {
		t.Error(r, err)
	}
}

// TestACellsNetworkIsRoots: in a cell with a network root of the cell has no right to it: no interface, route, address or
// raw socket. Control: in a network that the cell made itself it has.
func TestACellsNetworkIsRoots(t *testing.T) {
	if ground.Systemd() {
		t.Skip("a cell of the machine has no network of this kind")
	}
	w := Start(t, Options{Workers: []string{"dav"}, Net: true})
	c, err := w.Cell("work")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"link add dw0 type dummy", "link set lo down", "addr add 10.0.0.1/32 dev lo",
		"route add 10.0.0.0/8 dev lo"} {
		ip := append([]string{"ip"}, strings.Fields(words)...)
		res, err := c.Actor().Run(t.Context(), ip...)
		if err != nil || res.Code == 0 || !strings.Contains(res.Stderr, "Operation not permitted") {
			t.Errorf("ip %s: %v, %v", words, res, err)
		}
	}
	own := []string{"unshare", "--user", "--map-root-user", "--net", "ip", "link", "set", "lo", "up"}
	if res, err := c.Actor().Run(t.Context(), own...); err != nil || res.Code != 0 {
		t.Errorf("control: %v, %v", res, err)
	}
}
