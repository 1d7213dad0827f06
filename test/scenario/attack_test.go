// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// program builds a program of test/attacks where every actor can run it.
func (r *rig) program(name string) string {
	r.t.Helper()
	dir := filepath.Join(r.Dir, "attack-bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	path, err := world.BuildTest("./test/attacks/"+name, dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return path
}

// resident is how much memory a daemon has, in MiB.
func (r *rig) resident(daemon string) int {
	r.t.Helper()
	return r.memory(daemon, "VmRSS:")
}

// hasRead is how many bytes a daemon has read, from whatever it was.
func (r *rig) hasRead(daemon string) int64 {
	r.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", r.Daemon(daemon).PID()))
	var n int64
	if err == nil {
		_, err = fmt.Sscanf(string(b), "rchar: %d", &n)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// memory is one line of /proc/PID/status, in MiB.
func (r *rig) memory(daemon, line string) int {
	r.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Daemon(daemon).PID()))
	if err != nil {
		r.t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(l, line); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				r.t.Fatal(err)
			}
			return n >> 10
		}
	}
	r.t.Fatalf("no %s", line)
	return 0
}

// A cell that asks for more than there is, in every way that its sockets leave it, harms nobody but itself: the daemons
// stay, another cell and the person are served meanwhile and afterwards, and memory does not stay taken.
func TestACellCannotWearADaemonDown(t *testing.T) {
	r := newRig(t, world.Options{})
	flood := r.program("flood")
	const sentinel, worker = "/run/doorward/cell/sentinel.sock", "/run/doorward/cell/github.sock"
	pids := map[string]int{}
	for _, d := range r.Daemons() {
		pids[d.Name] = d.PID()
	}
	served := func(t *testing.T, when string) {
		t.Helper()
		r := r.with(t)
		began := time.Now()
		r.connector(r.home, 0, "list", "--json")
		r.connector(r.home, 0, "github", "issues", "--repo", "ada/site", "--json")
		r.pending()
		t.Logf("%s: others were served in %s; sentinel has %d MiB, the worker %d", when, time.Since(began).Round(time.Millisecond),
			r.resident("sentinel"), r.resident("worker-github"))
	}
	served(t, "before")
	before := map[string]int{"sentinel": r.resident("sentinel"), "worker-github": r.resident("worker-github")}
	for _, mode := range []string{"names", "connections", "descriptors", "deaf"} {
		for _, socket := range []string{sentinel, worker} {
			t.Run(mode+" at "+filepath.Base(socket), func(t *testing.T) {
				if mode == "names" && socket == worker {
					t.Skip("a worker has no verb that takes a name alone")
				}
				p, err := r.work.Actor().Start(world.Cmd{Args: []string{flood, mode, socket}, UID: 1000})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				served(t, "meanwhile")
				res, err := p.Wait()
				if err != nil || res.Code != 0 {
					t.Fatalf("%v, %v", res, err)
				}
				t.Log(strings.TrimSpace(res.Stdout))
				served(t, "afterwards")
			})
		}
	}
	// The most that one call can bring: 16 files of 64 MiB, said as they are, or said to be of what the method takes. They
	// are refused before they are read.
	for _, socket := range []string{sentinel, worker} {
		for _, size := range []string{"67108864", "1048576"} {
			t.Run("16 files of 64 MiB at "+filepath.Base(socket)+", said to be of "+size, func(t *testing.T) {
				for name := range before {
					r.resetPeak(name)
				}
				reader := map[string]string{sentinel: "sentinel", worker: "worker-github"}[socket]
				read := r.hasRead(reader)
				res, err := r.work.Actor().Do(r.ctx(), world.Cmd{UID: 1000,
					Args: []string{flood, "files", socket, filepath.Join(r.Prefix, "share/doorward"), size}})
				if err != nil || res.Code != 0 || !strings.HasPrefix(res.Stdout, "10 times: bad_argument") {
					t.Errorf("%v, %v", res, err)
				}
				if read = r.hasRead(reader) - read; read > wire.MaxFile {
					t.Errorf("%s read %d bytes of files that it refuses", reader, read)
				}
				for name, was := range before {
					if got := r.peak(name); got > was+160 {
						t.Errorf("%s had %d MiB and took up to %d", name, was, got)
					}
				}
				t.Log(strings.TrimSpace(res.Stdout))
				served(t, "afterwards")
			})
		}
	}
	for name, was := range before {
		r.eventually(name+" gives its memory back", func() bool { return r.resident(name) < was+96 })
	}
	for _, d := range r.Daemons() {
		if d.PID() != pids[d.Name] {
			t.Errorf("%s was started again", d.Name)
		}
	}

	t.Run("bytes that are no message", func(t *testing.T) {
		hello := func() []byte { b, _ := wire.AppendFrame(nil, []byte{0x81, 0xa1, 'h', wire.Version}); return b }
		for name, b := range map[string][]byte{
			"a length of 4 GiB":              {0xff, 0xff, 0xff, 0xff},
			"a length of 1 MiB + 1":          {0, 0x10, 0, 1},
			"no version first":               append([]byte{0, 0, 0, 1}, 0x80),
			"a version twice":                append(hello(), hello()...),
			"a float":                        append(hello(), 0, 0, 0, 9, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0),
			"an array of 4 thousand million": append(hello(), 0, 0, 0, 5, 0xdd, 0xff, 0xff, 0xff, 0xff),
			"nested":                         append(hello(), append([]byte{0, 0, 1, 0}, []byte(strings.Repeat("\x91", 256))...)...),
			"text":                           []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
		} {
			for _, socket := range []string{sentinel, worker} {
				res, err := r.work.Actor().Do(r.ctx(), world.Cmd{Args: []string{flood, "bytes", socket, fmt.Sprintf("%x", b)}, UID: 1000})
				if err != nil || res.Code != 0 || !strings.Contains(res.Stdout, "closed after") {
					t.Errorf("%s at %s: %v, %v", name, socket, res, err)
				}
			}
		}
		served(t, "afterwards")
	})
}

// A cell whose calls are as large as they may be, as many as may wait, does not keep the person from seeing them: the list
// of what waits fits, each can be shown whole and decided.
func TestManyLargeCardsCanBeSeen(t *testing.T) {
	r := newRig(t, world.Options{})
	var ids []string
	for i := range 30 {
		args := append(r.event(fmt.Sprintf("large %d", i)), "--notify", "all")
		for g := range 50 {
			args = append(args, "--attendee", fmt.Sprintf("guest%d@%s.example.test", g, strings.Repeat(strings.Repeat("x", 60)+".", 3)+"a"))
		}
		ids = append(ids, callOf(t, r.connector(r.work, wire.ExitWaiting, append(args, "--json", "--wait", "0s")...)))
	}
	cards := r.pending()
	if len(cards) != len(ids) {
		t.Errorf("%d cards are listed, %d calls wait", len(cards), len(ids))
	}
	for _, c := range cards {
		if len(c.Bodies) > 0 || len(c.Hash) == 0 || c.Title == "" {
			t.Fatalf("a listed card is %+v", c)
		}
	}
	whole := r.card(ids[0])
	if len(whole.Bodies) != 1 || !strings.Contains(strings.ReplaceAll(whole.Bodies[0].Text, "\r\n ", ""), "guest49@") {
		t.Errorf("shown whole it has %d bodies", len(whole.Bodies))
	}
	r.doorward(0, "pending")
	if s := r.decide(whole, false); s != wire.StateDenied {
		t.Errorf("it is %s", s)
	}
}
