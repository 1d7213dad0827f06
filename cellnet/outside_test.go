// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// outside is a network behind a pair of interfaces, and a sniffer in it: what leaves by dw0, which the tests of walls give to a
// network so that there is something to reach.
type outside struct {
	t       *testing.T
	out     *os.File
	sniffer int // socket of packet(7) in the network outside
	marker  int // the same inside
	dw0     int
}

const (
	marking  = 0x88b5 // ethertype for local experiments, IEEE Std 802
	etherAll = 0x0300 // ETH_P_ALL in the order of the network
	outMAC   = "02:00:00:00:00:02"
)

// network is a network namespace with a name, and nothing else.
func network(t testing.TB, p Paths, name string) *os.File {
	t.Helper()
	ns, _, err := p.namespace(name)
	if err == nil {
		err = p.name(name, ns)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ns.Close()
		_ = p.unname(name)
	})
	return ns
}

// newOutside gives the network ns a way out, to a router that answers nothing and is known without asking.
func newOutside(t *testing.T, p Paths, ns *os.File) *outside {
	t.Helper()
	out := network(t, p, "outside")
	o := &outside{t: t, out: out}
	ip(t, ns, "link add dw0 address 02:00:00:00:00:01 type veth peer name dw1 address "+outMAC)
	ip(t, ns, "link set dw1 netns "+p.netns("outside"))
	ip(t, out, "link set dw1 up")
	for _, words := range []string{"link set dw0 up", "addr add 203.0.113.1/24 dev dw0", "addr add 2001:db8::1/64 dev dw0 nodad",
		"neigh replace 203.0.113.2 lladdr " + outMAC + " dev dw0", "neigh replace 2001:db8::2 lladdr " + outMAC + " dev dw0",
		"route add default via 203.0.113.2", "-6 route add default via 2001:db8::2"} {
		ip(t, ns, words)
	}
	socket := func() (int, error) {
		return unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, etherAll)
	}
	var err error
	if o.sniffer, err = in(t, out, socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(o.sniffer) })
	if o.marker, err = in(t, ns, socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(o.marker) })
	o.dw0, err = in(t, ns, func() (int, error) {
		i, err := net.InterfaceByName("dw0")
		if err != nil {
			return 0, err
		}
		return i.Index, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// left lists what left since it was asked last: protocol and destination. It sends a frame of its own and reads up to it, so
// that it waits for nothing. What the kernel itself sends about neighbours and groups is not listed.
func (o *outside) left() []string {
	o.t.Helper()
	mark := slices.Concat([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}, binary.BigEndian.AppendUint16(nil, marking), make([]byte, 46))
	if err := unix.Sendto(o.marker, mark, 0, &unix.SockaddrLinklayer{Ifindex: o.dw0, Halen: 6}); err != nil {
		o.t.Fatal("mark: ", err)
	}
	var out []string
	frame := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(o.sniffer, frame, 0)
		if err != nil {
			o.t.Fatal("sniff: ", err)
		}
		switch f := frame[:n]; {
		case n < 14+20:
		case binary.BigEndian.Uint16(f[12:]) == marking:
			return out
		case f[14]>>4 == 4:
			dst, _ := netip.AddrFromSlice(f[14+16 : 14+20])
			if !dst.IsMulticast() {
				out = append(out, fmt.Sprintf("%d %v", f[14+9], dst))
			}
		case f[14]>>4 == 6 && n >= 14+40:
			dst, _ := netip.AddrFromSlice(f[14+24 : 14+40])
			if !dst.IsMulticast() {
				out = append(out, fmt.Sprintf("%d %v", f[14+6], dst))
			}
		}
	}
}

// knocks are the plain ways to send something out, each with what the sniffer is to see of it.
var knocks = []struct {
	name string
	kind int
	prot int
	to   string
	seen string
}{
	{"TCP", unix.SOCK_STREAM, 0, "1.1.1.1:443", "6 1.1.1.1"},
	{"TCP of IPv6", unix.SOCK_STREAM, 0, "[2606:4700::1111]:443", "6 2606:4700::1111"},
	{"Multipath TCP", unix.SOCK_STREAM, unix.IPPROTO_MPTCP, "1.1.1.2:443", "6 1.1.1.2"},
	{"UDP", unix.SOCK_DGRAM, 0, "8.8.8.8:53", "17 8.8.8.8"},
	{"UDP of IPv6", unix.SOCK_DGRAM, 0, "[2606:4700::1111]:53", "17 2606:4700::1111"},
	{"UDP-Lite", unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, "8.8.4.4:53", "136 8.8.4.4"},
	{"raw", unix.SOCK_RAW, 253, "1.1.1.3:0", "253 1.1.1.3"},
	{"ICMP", unix.SOCK_RAW, unix.IPPROTO_ICMP, "1.1.1.4:0", "1 1.1.1.4"},
}

// knock sends one packet to an address, by connect and write, and waits for nothing.
func knock(kind, prot int, to string) error {
	family, at := sockaddr(to)
	s, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, prot)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(s)
	if err := unix.Connect(s, at); err != nil && err != unix.EINPROGRESS {
		return fmt.Errorf("connect: %w", err)
	}
	if kind == unix.SOCK_STREAM {
		return nil
	}
	if _, err := unix.Write(s, []byte("knock knock knock")); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func sockaddr(to string) (int, unix.Sockaddr) {
	at := netip.MustParseAddrPort(to)
	if at.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}

// Nothing leaves the network of a cell, not even where somebody gave it an interface and a way out: what is sent to any address
// is for the cell itself. Control: without those routes, everything leaves, TCP too, in spite of steering, which is about what
// arrives.
func TestNothingLeavesTheNetwork(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	egress(t, p, "work", ns)
	o := newOutside(t, p, ns)
	all := func() {
		t.Helper()
		for _, k := range knocks {
			if _, err := in(t, ns, func() (struct{}, error) { return struct{}{}, knock(k.kind, k.prot, k.to) }); err != nil {
				t.Logf("%s: %v", k.name, err)
			}
		}
	}
	all()
	if left := o.left(); len(left) > 0 {
		t.Errorf("these left: %q", left)
	}
	ip(t, ns, "route del local default dev lo table local")
	ip(t, ns, "-6 route del local default dev lo table local")
	all()
	left := o.left()
	for _, k := range knocks {
		if !slices.Contains(left, k.seen) {
			t.Errorf("control: %s did not leave; these did: %q", k.name, left)
		}
	}
}
