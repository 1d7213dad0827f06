// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/doorward/doorward/cellnet/listener"
	"golang.org/x/sys/unix"
)

// Whatever address and port a cell connects to, egress accepts it, and reads there what the cell wanted (EG-11: IPv6 too).
func TestEG11EveryConnectionArrivesAtEgress(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ln := egress(t, p, "work", ns)
	n := uint64(0)
	for _, to := range []string{
		"1.1.1.1:443", "198.18.0.7:80", "10.0.0.1:22", "192.168.1.1:1", "169.254.169.254:80", "100.64.0.1:65535",
		"8.8.8.8:53", "8.8.8.8:853", "240.0.0.1:15001", "126.255.255.255:7", "128.0.0.0:7",
		"[2606:4700::1111]:443", "[fd00:d00d::9]:443", "[::2]:7", "[64:ff9b::7f00:1]:80", "[2002:7f00:1::]:80",
		"[::127.0.0.1]:80", "[::ffff:9.9.9.9]:443",
	} {
		have, err := accepts(t, ns, ln, "tcp", to)
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		n++
		if want := netip.MustParseAddrPort(to); netip.AddrPortFrom(netip.MustParseAddrPort(have).Addr().Unmap(), want.Port()) !=
			netip.AddrPortFrom(want.Addr().Unmap(), want.Port()) {
			t.Errorf("%s arrives as %s", to, have)
		}
	}
	wantSteered(t, p, "work", map[string]uint64{"listener": n})
}

// A socket of IPv6 that connects to an address of IPv4 is steered as well.
func TestAMappedAddressArrivesAtEgress(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ln := egress(t, p, "work", ns)
	_, err := in(t, ns, func() (struct{}, error) {
		s, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
		if err != nil {
			return struct{}{}, err
		}
		t.Cleanup(func() { unix.Close(s) })
		to := netip.MustParseAddr("::ffff:9.9.9.9").As16()
		return struct{}{}, unix.Connect(s, &unix.SockaddrInet6{Port: 443, Addr: to})
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if at := c.LocalAddr().(*net.TCPAddr); !at.IP.Equal(net.IPv4(9, 9, 9, 9)) || at.Port != 443 {
		t.Errorf("it arrives as %v", at)
	}
}

// The whole of loopback stays the cell's own, in every spelling; where the cell has no listener there is none (BP-01).
func TestBP01LoopbackIsTheCellsOwn(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ln := egress(t, p, "work", ns)
	own := listen(t, ns, "tcp", "[::]:8080")
	n := uint64(0)
	for _, to := range []string{"127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:127.1.2.3", "0.0.0.0", "::"} {
		if _, err := accepts(t, ns, own, "tcp", net.JoinHostPort(to, "8080")); err != nil {
			t.Errorf("%s: %v", to, err)
		}
		if _, err := dial(t, ns, "tcp", net.JoinHostPort(to, "8081")); !refused(err) {
			t.Errorf("%s, where nobody listens: %v", to, err)
		}
		n += 2
	}
	// Control: the same listener is bound to every address, and gets none but these.
	if _, err := accepts(t, ns, ln, "tcp", "1.1.1.1:8080"); err != nil {
		t.Error(err)
	}
	wantSteered(t, p, "work", map[string]uint64{"own": n, "listener": 1})
}

// While egress is not there, restarts, or was killed, every connection is refused at once, also to a port at which somebody in
// the cell listens on every address (EG-16). Control: with the slot filled it is egress that gets it, before and after.
func TestEG16AnEmptySlotDrops(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	squatter := listen(t, ns, "tcp", "[::]:443")
	try := func(when string) {
		t.Helper()
		for _, to := range []string{"1.1.1.1:443", "[fd00:d00d::9]:443", "1.1.1.1:15001"} {
			if _, err := dial(t, ns, "tcp", to); !refused(err) {
				t.Errorf("%s, %s: %v", when, to, err)
			}
		}
	}
	try("before egress's start")
	for range 2 {
		ln := egress(t, p, "work", ns)
		if _, err := accepts(t, ns, ln, "tcp", "1.1.1.1:443"); err != nil {
			t.Error("control: ", err)
		}
		ln.Close()
		own := listen(t, ns, "tcp", "[::]:15001") // egress's port is free now, and somebody in the cell has it
		try("behind egress's end")
		own.Close()
	}
	wantSteered(t, p, "work", map[string]uint64{"listener": 2, "empty": 9})
	// Control: without steering, it is the squatter that gets the connection.
	unsteer(t, p, "work")
	if _, err := accepts(t, ns, squatter, "tcp", "1.1.1.1:443"); err != nil {
		t.Error("control without steering: ", err)
	}
}

// UDP is for names: port 53 at every address is egress's resolver, and its answer comes back to a socket that is not connected.
// All else fails at once, so that a client of QUIC goes on to TCP (EG-12).
func TestEG12UDPIsForNamesAlone(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	resolver := packets(t, ns, "[::]:53")
	squatter := packets(t, ns, "[::]:443")
	for _, to := range []string{"198.18.0.1:53", "8.8.8.8:53", "[2606:4700::1111]:53"} {
		client := packets(t, ns, "[::]:0")
		at := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))
		if _, err := client.WriteTo([]byte("name?"), at); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 16)
		n, from, err := resolver.ReadFrom(b)
		if err != nil || string(b[:n]) != "name?" {
			t.Fatalf("%s: the resolver reads %q, %v", to, b[:n], err)
		}
		if _, err := resolver.WriteTo([]byte("here"), from); err != nil {
			t.Fatal(err)
		}
		if n, _, err = client.ReadFrom(b); err != nil || string(b[:n]) != "here" {
			t.Errorf("%s: the client reads %q, %v", to, b[:n], err)
		}
	}
	quic := func(to string) error {
		c, err := dial(t, ns, "udp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1)) // the kernel's answer, or never
		return err
	}
	for _, to := range []string{"1.1.1.1:443", "[2606:4700::1111]:443", "1.1.1.1:5353"} {
		if err := quic(to); !refused(err) {
			t.Errorf("%s: %v", to, err)
		}
	}
	wantSteered(t, p, "work", map[string]uint64{"dns": 6, "udp": 3})
	// Control: without steering the cell's own socket at that port reads it.
	unsteer(t, p, "work")
	c, err := dial(t, ns, "udp", "1.1.1.1:443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if n, _, err := squatter.ReadFrom(b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("control: %q, %v", b[:n], err)
	}
}

// packets is a UDP socket in the namespace.
func packets(t *testing.T, ns *os.File, at string) net.PacketConn {
	t.Helper()
	c, err := in(t, ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", at) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Run again, over a cell at work, it replaces the program in the link that is there: the listener stays in its slot.
func TestASecondRunReplacesInPlace(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ln := egress(t, p, "work", ns)
	before := steering(t, p, "work")
	if err := p.Cell("work"); err != nil {
		t.Fatal(err)
	}
	after := steering(t, p, "work")
	if before.ID != after.ID || before.Program == after.Program {
		t.Errorf("link %d with program %d became link %d with program %d", before.ID, before.Program, after.ID, after.Program)
	}
	if _, err := accepts(t, ns, ln, "tcp", "1.1.1.1:443"); err != nil {
		t.Error(err)
	}
	wantSteered(t, p, "work", map[string]uint64{"listener": 1})
}

// A network that was made anew under the cell's name is steered too.
func TestANewNetworkUnderTheNameIsSteered(t *testing.T) {
	p := paths(t)
	cell(t, p, "work")
	before := steering(t, p, "work")
	if err := p.unname("work"); err != nil {
		t.Fatal(err)
	}
	ns := cell(t, p, "work")
	if after := steering(t, p, "work"); before.ID == after.ID {
		t.Error("the link is that of the old network")
	}
	ln := egress(t, p, "work", ns)
	if _, err := accepts(t, ns, ln, "tcp", "1.1.1.1:443"); err != nil {
		t.Error(err)
	}
}

// unsteer takes steering away, for a control.
func unsteer(t *testing.T, p Paths, name string) {
	t.Helper()
	l, err := link.LoadPinnedLink(p.BPF+name+"/steer", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		t.Fatal(err)
	}
}

func steering(t *testing.T, p Paths, name string) *link.Info {
	t.Helper()
	l, err := link.LoadPinnedLink(p.BPF+name+"/steer", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// Two cells have nothing of each other: each connection goes to its own cell's egress.
func TestCellsAreSteeredApart(t *testing.T) {
	p := paths(t)
	work, play := cell(t, p, "work"), cell(t, p, "play")
	a, b := egress(t, p, "work", work), egress(t, p, "play", play)
	for range 2 {
		if _, err := accepts(t, work, a, "tcp", "1.1.1.1:443"); err != nil {
			t.Error(err)
		}
		if _, err := accepts(t, play, b, "tcp", "1.1.1.1:443"); err != nil {
			t.Error(err)
		}
	}
	wantSteered(t, p, "work", map[string]uint64{"listener": 2})
	wantSteered(t, p, "play", map[string]uint64{"listener": 2})
}

// Behind --stop there is neither name nor pin, and a second one finds nothing to do.
func TestStopRemovesNameAndPins(t *testing.T) {
	p := paths(t)
	cell(t, p, "work")
	for range 2 {
		if err := p.StopCell("work"); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{p.netns("work"), p.BPF + "work"} {
			if _, err := os.Lstat(path); !os.IsNotExist(err) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// A file at the name that is no namespace, as a reboot leaves it, is taken over; one with another way out is not.
func TestTheNetworkHasNoWayButLo(t *testing.T) {
	p := paths(t)
	if err := os.MkdirAll(p.Netns, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.netns("work"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ns := cell(t, p, "work")
	ip(t, ns, "link add dw0 type veth peer name dw1")
	if err := p.Cell("work"); err != nil {
		t.Error("control: an interface that is down leads nowhere: ", err)
	}
	ip(t, ns, "link set dw0 up")
	if err := p.Cell("work"); err == nil || !strings.Contains(err.Error(), `"dw0"`) {
		t.Errorf("an interface is up: %v", err)
	}
}

// A program that asks for addresses of one family where the machine has one itself gets them (AI_ADDRCONFIG, as `getent ahostsv4`
// has it). Control: with loopback's addresses alone it gets none.
func TestBothFamiliesAreThereForWhoAsks(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	has := func(database string) error {
		_, err := in(t, ns, func() (struct{}, error) { return struct{}{}, exec.Command("getent", database, "localhost").Run() })
		return err
	}
	for _, database := range []string{"ahostsv4", "ahostsv6"} {
		if err := has(database); err != nil {
			t.Errorf("%s: %v", database, err)
		}
	}
	ip(t, ns, "addr del 198.18.0.1/32 dev lo")
	ip(t, ns, "addr del fd00:d00d::1/128 dev lo")
	if err := has("ahostsv4"); err == nil {
		t.Error("control: getent finds an address")
	}
}

// What is no listener, or not of TCP without Multipath, does not go into the slot, nor into another map.
func TestTheSlotTakesAListenerAlone(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ln := listen(t, ns, "tcp", "[::]:15001")
	if err := listener.Put(p.BPF+"work/steered", ln); err == nil {
		t.Error("another map took it")
	}
	if err := listener.Put(p.BPF+"play/listener", ln); err == nil {
		t.Error("a map that is not there took it")
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	multi, err := in(t, ns, func() (net.Listener, error) { return lc.Listen(context.Background(), "tcp", "[::]:15002") })
	if err != nil {
		t.Fatal(err)
	}
	defer multi.Close()
	if err := listener.Put(p.BPF+"work/listener", multi.(*net.TCPListener)); err == nil {
		t.Error("a listener of Multipath TCP went in")
	}
	if err := listener.Put(p.BPF+"work/listener", ln); err != nil {
		t.Error("control: ", err)
	}
}
