// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// BenchmarkGate is the rows bpf/run, bpf/scale and bpf/connect of test/bench, each as a ratio:
//
//	run      the kernel's time in the program of connect, by one that allows everything
//	scale    the same with a hundred cells, by that with one
//	connect  connections of a cell, with all programs, by those of a process in a network of its own with none
func BenchmarkGate(b *testing.B) {
	p := paths(b)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	ns := cell(b, p, "work")
	go drain(egress(b, p, "work", ns))
	bare := network(b, p, "bare")
	if err := within(bare, configure); err != nil {
		b.Fatal(err)
	}
	go drain(listen(b, bare, "tcp", "[::]:443"))
	floor := allows(b, p)
	// Once, however often the benchmark is to run: each of its figures is of some thousand connections.
	free := connects(b, p.beside(), bare)
	b.ReportMetric(float64(connects(b, p.within(), ns))/float64(free), "connect")
	gate := gateConnect(b, p)
	one, none := perRun(b, gate), perRun(b, floor)
	b.ReportMetric(one/none, "run")
	for i := 1; i < 100; i++ {
		cell(b, p, "more"+strconv.Itoa(i))
	}
	before, runs := ran(b, gate)
	connects(b, p.within(), ns)
	after, more := ran(b, gate)
	b.ReportMetric(float64(after-before)/float64(more-runs)/one, "scale")
}

func drain(ln *net.TCPListener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_ = c.Close()
	}
}

// connects is how long some connections take.
func connects(b *testing.B, cgroup string, ns *os.File) time.Duration {
	b.Helper()
	c := probeIn(b, cgroup, ns, "some connections")
	c.end()
	if c.Errno != 0 {
		b.Fatal(c.Where)
	}
	return c.Took
}

// allows is a program that allows everything, on the cgroup beside the slice.
func allows(b *testing.B, p Paths) *ebpf.Program {
	b.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := ground.MakeCgroup(p.beside()); err != nil {
		b.Fatal(err)
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: filepath.Join(ground.Cgroup, p.beside()), Attach: ebpf.AttachCGroupInet4Connect, Program: prog})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close(); prog.Close() })
	return prog
}

// gateConnect is the program that the gate has at connect of IPv4.
func gateConnect(b *testing.B, p Paths) *ebpf.Program {
	b.Helper()
	l, err := link.LoadPinnedLink(p.BPF+"gate-connect4", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		b.Fatal(err)
	}
	prog, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { prog.Close() })
	return prog
}

// ran is how long a program ran in all, and how often.
func ran(b *testing.B, prog *ebpf.Program) (time.Duration, uint64) {
	b.Helper()
	s, err := prog.Stats()
	if err != nil {
		b.Fatal(err)
	}
	return s.Runtime, s.RunCount
}

func perRun(b *testing.B, prog *ebpf.Program) float64 {
	b.Helper()
	t, n := ran(b, prog)
	if n == 0 {
		b.Fatal("it did not run")
	}
	return float64(t) / float64(n)
}
