// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// sing runs the canary as its unit does, in a cgroup below the slice, and returns what it said; empty where the walls hold.
func sing(t *testing.T, p Paths, cgroup string) string {
	t.Helper()
	host, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	c := probeAs(t, cgroup, host, "canary", nil, p.Netns, p.BPF, p.Slice)
	c.end()
	return c.Where
}

// aCell is the cgroup of a cell that runs; thaw lets it go on.
func aCell(t *testing.T, p Paths) (frozen func() bool, thaw func()) {
	t.Helper()
	unit := p.Slice + "/doorward-cell@work.service"
	if _, err := ground.MakeCgroup(unit + "/payload"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(ground.Cgroup, unit, "cgroup.freeze")
	frozen = func() bool {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n, err := unix.Getxattr(filepath.Dir(file), canaryMark, nil)
		if is := strings.TrimSpace(string(b)) == "1"; is == (err == nil && n == 1) {
			return is
		}
		t.Errorf("it is frozen: %s, and marked: %v", b, err)
		return false
	}
	return frozen, func() {
		t.Helper()
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.Removexattr(filepath.Dir(file), canaryMark); err != nil {
			t.Fatal(err)
		}
	}
}

// Where each program is there but lets everything pass, a canary gets through, and the cells stand still. So would it be where
// one loads, is attached and never runs. gate-in is not among them: to try it takes something outside that comes in.
func TestACanaryThatGetsThroughFreezesTheCells(t *testing.T) {
	p := paths(t)
	cell(t, p, "work")
	frozen, thaw := aCell(t, p)
	canary := p.Slice + "/doorward-canary.service/payload"
	if said := sing(t, p, canary); said != "" || frozen() {
		t.Fatalf("control: with all walls it says %q; frozen: %v", said, frozen())
	}
	says := map[string]string{"gate-socket": "the machine's own network got through",
		"gate-connect4": "198.18.0.9:443", "gate-connect6": "2001:db8::9", "gate-send4": "UDP to port 443 got through", "gate-send6": "UDP of IPv6 to port 443 got through", "gate-opened": "has not written down",
		"gate-option": "a source route got through", "gate-out": "an option with a message got through"}
	for _, h := range hooks {
		if says[h.pin] == "" {
			continue
		}
		t.Run(h.pin, func(t *testing.T) {
			hollow(t, p, h.pin, h.at)
			if said := sing(t, p, canary); !strings.Contains(said, says[h.pin]) || !frozen() {
				t.Errorf("it says %q; frozen: %v", said, frozen())
			}
			thaw()
			if err := p.Gate(); err != nil { // the real one again
				t.Fatal(err)
			}
			if said := sing(t, p, canary); said != "" || frozen() {
				t.Errorf("behind that it says %q; frozen: %v", said, frozen())
			}
		})
	}
}

// hollow has a program that lets everything pass run in place of one of the gate's.
func hollow(t *testing.T, p Paths, pin string, at ebpf.AttachType) {
	t.Helper()
	l, err := link.LoadPinnedLink(p.BPF+pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	kinds := map[ebpf.AttachType]ebpf.ProgramType{ebpf.AttachCGroupInetSockCreate: ebpf.CGroupSock, ebpf.AttachCGroupSockOps: ebpf.SockOps,
		ebpf.AttachCGroupSetsockopt: ebpf.CGroupSockopt, ebpf.AttachCGroupInetEgress: ebpf.CGroupSKB}
	kind, ok := kinds[at]
	if !ok {
		kind = ebpf.CGroupSockAddr
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, AttachType: at, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	if err := l.Update(prog); err != nil {
		t.Fatal(err)
	}
}

// A wall that is not attached, and a cell that is not steered, freeze them too. Somebody who starts the canary elsewhere freezes
// nothing.
func TestWallsThatAreGoneFreezeTheCells(t *testing.T) {
	p := paths(t)
	cell(t, p, "work")
	frozen, thaw := aCell(t, p)
	canary := p.Slice + "/doorward-canary.service/payload"
	if said := sing(t, p, p.beside()); said != errNotInSlice.Error() || frozen() {
		t.Errorf("elsewhere it says %q; frozen: %v", said, frozen())
	}
	unsteer(t, p, "work")
	if said := sing(t, p, canary); !strings.Contains(said, "cell work is not steered") || !frozen() {
		t.Errorf("without steering it says %q; frozen: %v", said, frozen())
	}
	thaw()
	if err := p.Cell("work"); err != nil {
		t.Fatal(err)
	}
	l, err := link.LoadPinnedLink(p.BPF+"gate-in", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		t.Fatal(err)
	}
	if said := sing(t, p, canary); !strings.Contains(said, "gate-in") || !frozen() {
		t.Errorf("without a wall it says %q; frozen: %v", said, frozen())
	}
	thaw()
	if err := p.Gate(); err != nil {
		t.Fatal(err)
	}
	if said := sing(t, p, canary); said != "" || frozen() {
		t.Errorf("control: with all walls it says %q; frozen: %v", said, frozen())
	}
}

// nobody is told what a canary says.
func nobody(*wire.CanaryReq) error { return nil }

// What froze the cells is told until it was heard, and so is what the walls refused a cell, added up; what they refused a canary is
// not. A refusal that was told is not told again.
func TestWhatIsRefusedIsTold(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	canary := p.Slice + "/doorward-canary.service/payload"
	tell := func(err error) (heard *wire.CanaryReq) {
		t.Helper()
		if got := p.Report(func(req *wire.CanaryReq) error { heard = req; return err }); !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
		return heard
	}
	if said := sing(t, p, canary); said != "" {
		t.Fatal(said)
	}
	if heard := tell(nil); heard != nil {
		t.Errorf("of a canary that sang: %+v", heard)
	}
	for _, name := range []string{"UDP", "UDP", "source route, TCP"} {
		probeIn(t, p.within(), ns, name).end() // before the cell is frozen
	}
	probeIn(t, p.Workers+"/doorward-worker@github.service", ns, "TCP").end()
	want := []wire.WallRefusal{
		{Worker: "github", Why: "worker-socket", Family: ip4, Type: stream, Proto: unix.IPPROTO_TCP, Count: 1},
		{Cell: "work", Why: "option", Type: unix.SOL_IP, Proto: unix.IP_OPTIONS, Count: 1},
		{Cell: "work", Why: "udp", Family: ip4, Type: dgram, Proto: unix.IPPROTO_UDP, Port: 443, Count: 2},
	}
	if heard := tell(nil); heard == nil || !slices.Equal(heard.Refused, want) || heard.Failed != "" || heard.Unlisted != 0 {
		t.Errorf("%+v", heard)
	}
	if heard := tell(nil); heard != nil {
		t.Errorf("again: %+v", heard)
	}
	hollow(t, p, "gate-send4", ebpf.AttachCGroupUDP4Sendmsg)
	if said := sing(t, p, canary); said == "" {
		t.Fatal("control: it sings")
	}
	gone := errors.New("sentinel is away")
	for _, err := range []error{gone, nil} {
		if heard := tell(err); heard == nil || !strings.Contains(heard.Failed, "UDP to port 443 got through") {
			t.Errorf("%+v", heard)
		}
	}
	if heard := tell(nil); heard != nil {
		t.Errorf("again: %+v", heard)
	}
}

// A canary that could not try, or was ended before it could say anything, freezes the cells when that happens the second time in a
// row. One between them that sings begins the count anew.
func TestACanaryThatCannotTryFreezesTheSecondTime(t *testing.T) {
	p := paths(t)
	frozen, thaw := aCell(t, p)
	canary := p.Slice + "/doorward-canary.service/payload"
	fails := func(want bool, when string) {
		t.Helper()
		if said := sing(t, p, canary); !strings.Contains(said, "the canaries' network") || frozen() != want {
			t.Errorf("%s it says %q; frozen: %v", when, said, frozen())
		}
		if err := p.Report(nobody); err != nil || frozen() != want {
			t.Errorf("%s, behind it: %v; frozen: %v", when, err, frozen())
		}
	}
	ended := func(want bool, when string) {
		t.Helper()
		if _, err := p.begin(markTrying, 7); err != nil { // and then it is killed
			t.Fatal(err)
		}
		if err := p.Report(nobody); err != nil || frozen() != want {
			t.Errorf("%s: %v; frozen: %v", when, err, frozen())
		}
	}
	sings := func() {
		t.Helper()
		if err := p.Gate(); err != nil {
			t.Fatal(err)
		}
		if said := sing(t, p, canary); said != "" || frozen() {
			t.Errorf("control: it says %q; frozen: %v", said, frozen())
		}
		if err := p.Report(nobody); err != nil || frozen() {
			t.Errorf("control: %v; frozen: %v", err, frozen())
		}
	}
	if err := p.unname(canaryNet); err != nil {
		t.Fatal(err)
	}
	fails(false, "at first")
	sings()
	if err := p.unname(canaryNet); err != nil {
		t.Fatal(err)
	}
	fails(false, "at first again")
	fails(true, "the second time")
	thaw()
	sings()
	ended(false, "one is ended")
	ended(true, "two are ended")
	thaw()
	sings()
}

// The canary's network is there before it, and the same each time: a cell that uses up how many networks there may be keeps none from
// singing.
func TestTheCanaryMakesNoNetwork(t *testing.T) {
	p := paths(t)
	number := func() uint64 {
		t.Helper()
		ns, err := openNamespace(p.netns(canaryNet))
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(ns.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	before := number()
	for range 2 {
		if said := sing(t, p, p.Slice+"/doorward-canary.service/payload"); said != "" {
			t.Error(said)
		}
		if err := p.Gate(); err != nil || number() != before {
			t.Errorf("%v; it was network %d and is %d", err, before, number())
		}
	}
}

// A cell that is being started or stopped is no wall that is gone.
func TestACanaryBesideStartsAndStops(t *testing.T) {
	p := paths(t)
	frozen, _ := aCell(t, p)
	ended := make(chan error, 1)
	go func() {
		for range 100 {
			if err := errors.Join(p.Cell("play"), p.StopCell("play")); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	if said := sing(t, p, p.Slice+"/doorward-canary.service/payload"); said != "" || frozen() {
		t.Errorf("it says %q; frozen: %v", said, frozen())
	}
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			if err := p.steeringHolds(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
