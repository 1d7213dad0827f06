// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/cellnet/listener"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(probeEnv); name != "" {
		probe(name)
		return
	}
	ground.Main(m)
}

// bare are the paths of a machine that has nothing yet but the file system of the pins.
func bare(t testing.TB) Paths {
	t.Helper()
	ground.Need(t)
	dir := t.TempDir() + "/"
	p := Paths{Netns: dir + "netns/", BPF: dir + "bpf/", Slice: "/" + strings.ReplaceAll(t.Name(), "/", "-")}
	p.Workers = p.Slice + "-workers"
	if err := p.mountPins(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(p.unname(canaryNet), unix.Unmount(p.BPF, unix.MNT_DETACH), ground.RemoveCgroup(p.Slice), ground.RemoveCgroup(p.Workers), ground.RemoveCgroup(p.beside()))
		if err != nil {
			t.Error(err)
		}
	})
	return p
}

// paths are those of a machine whose slice of cells has the gate.
func paths(t testing.TB) Paths {
	t.Helper()
	p := bare(t)
	makeSlices(t, p)
	if err := p.Gate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// makeSlices makes the slices of cells and workers.
func makeSlices(t testing.TB, p Paths) {
	t.Helper()
	for _, slice := range []string{p.Slice, p.Workers} {
		if _, err := ground.MakeCgroup(slice); err != nil {
			t.Fatal(err)
		}
	}
}

// within is the cgroup of a process in a cell, and beside that of one that is in none, for controls.
func (p Paths) within() string { return p.Slice + "/doorward-cell@work.service/payload" }
func (p Paths) beside() string { return p.Slice + "-beside" }

// cell makes the network of a cell.
func cell(t testing.TB, p Paths, name string) *os.File {
	t.Helper()
	if err := p.Cell(name); err != nil {
		t.Fatal(err)
	}
	ns, err := openNamespace(p.netns(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ns.Close()
		if err := p.StopCell(name); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// in runs f in a network namespace; what f makes there stays in it.
func in[T any](t testing.TB, ns *os.File, f func() (T, error)) (out T, err error) {
	t.Helper()
	err = within(ns, func() error { out, err = f(); return err })
	return out, err
}

// listen is a listener in the namespace that can go into the slot, as systemd makes it.
func listen(t testing.TB, ns *os.File, network, at string) *net.TCPListener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	ln, err := in(t, ns, func() (net.Listener, error) { return lc.Listen(context.Background(), network, at) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener)
}

// egress is what egress@CELL does at its start: it has the listener in its slot.
func egress(t testing.TB, p Paths, name string, ns *os.File) *net.TCPListener {
	t.Helper()
	ln := listen(t, ns, "tcp", "[::]:15001")
	if err := listener.Put(p.BPF+name+"/listener", ln); err != nil {
		t.Fatal(err)
	}
	return ln
}

// dial connects from inside of a namespace. It takes no name and no list, which net.Dial would try in other threads.
func dial(t testing.TB, ns *os.File, network, to string) (net.Conn, error) {
	t.Helper()
	at := netip.MustParseAddrPort(to)
	return in(t, ns, func() (net.Conn, error) {
		if network == "udp" {
			return net.DialUDP(network, nil, net.UDPAddrFromAddrPort(at))
		}
		return net.DialTCP(network, nil, net.TCPAddrFromAddrPort(at))
	})
}

// accepts says whether a connection from inside arrives at ln, and as which local address.
func accepts(t testing.TB, ns *os.File, ln *net.TCPListener, network, to string) (string, error) {
	t.Helper()
	c, err := dial(t, ns, network, to)
	if err != nil {
		return "", err
	}
	defer c.Close()
	s, err := ln.Accept()
	if err != nil {
		return "", err
	}
	defer s.Close()
	if s.RemoteAddr().String() != c.LocalAddr().String() {
		t.Errorf("to %s: %v was accepted, want %v", to, s.RemoteAddr(), c.LocalAddr())
	}
	return s.LocalAddr().String(), nil
}

// wantSteered holds the counters of a cell to what they are to be; what is not named is to be zero.
func wantSteered(t testing.TB, p Paths, name string, want map[string]uint64) {
	t.Helper()
	have, err := p.Steered(name)
	if err != nil {
		t.Fatal(err)
	}
	for reason, n := range have {
		if n != want[reason] {
			t.Errorf("%s is counted %d times, want %d", reason, n, want[reason])
		}
	}
}

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// ip runs ip(8) in a namespace.
func ip(t testing.TB, ns *os.File, words string) {
	t.Helper()
	_, err := in(t, ns, func() (struct{}, error) {
		out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput()
		if err != nil {
			err = errors.New(string(out))
		}
		return struct{}{}, err
	})
	if err != nil {
		t.Fatalf("ip %s: %v", words, err)
	}
}
