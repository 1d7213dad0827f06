// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/doorward/doorward/bpf"
	"github.com/doorward/doorward/cellnet/listener"
	"github.com/doorward/doorward/cellnet/openers"
	"github.com/doorward/doorward/cellnet/pinned"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

const (
	ip4, ip6    = unix.AF_INET, unix.AF_INET6
	stream      = unix.SOCK_STREAM
	dgram       = unix.SOCK_DGRAM
	refusedByUs = unix.EPERM
)

// attempts are the lines of the list of bypasses that a test without BPF LSM can try. Each goes to an address of its own, so
// that the sniffer tells one from the other. Those whose errno is 0 the gate lets go as far as the packet: a cell's way there is
// that every address is local.
var attempts = []attempt{
	{name: "TCP", try: open(ip4, stream, 0, "9.0.0.1:443"), seen: "6 9.0.0.1", why: "out"},
	{name: "TCP of IPv6", try: open(ip6, stream, 0, "[2001:db8:f::1]:443"), seen: "6 2001:db8:f::1", why: "out"},
	{name: "TCP Fast Open by sendto", try: send(ip4, stream, 0, unix.MSG_FASTOPEN, raw4(ip4, "9.0.0.2:443")), seen: "6 9.0.0.2", why: "out"},
	{name: "TCP_FASTOPEN_CONNECT", try: fastOpenConnect("9.0.0.3:443"), seen: "6 9.0.0.3", why: "out"},
	{name: "io_uring", try: uring(0, "9.0.0.21:443"), seen: "6 9.0.0.21", why: "out", absent: []syscall.Errno{unix.ENOSYS}},
	{name: "io_uring by a thread of the kernel", try: uring(setupSQPoll, "9.0.0.22:443"), seen: "6 9.0.0.22", why: "out",
		absent: []syscall.Errno{unix.ENOSYS}},
	{name: "connect again", try: again("127.0.0.1:9", "9.0.0.4:443"), seen: "6 9.0.0.4", why: "out"},
	{name: "TCP to a mapped address", try: open(ip6, stream, 0, "[::ffff:9.0.0.5]:443"), seen: "6 9.0.0.5", why: "out"},
	{name: "Multipath TCP", try: open(ip4, stream, unix.IPPROTO_MPTCP, "9.0.0.6:443"), seen: "6 9.0.0.6", why: "socket",
		errno: refusedByUs, absent: []syscall.Errno{unix.EPROTONOSUPPORT, unix.ENOPROTOOPT}},
	{name: "UDP", try: open(ip4, dgram, 0, "9.0.0.7:443"), seen: "17 9.0.0.7", why: "udp", errno: refusedByUs},
	{name: "UDP of IPv6", try: open(ip6, dgram, 0, "[2001:db8:f::2]:443"), seen: "17 2001:db8:f::2", why: "udp", errno: refusedByUs},
	{name: "UDP without connect", try: send(ip4, dgram, 0, 0, raw4(ip4, "9.0.0.8:443")), seen: "17 9.0.0.8", why: "udp", errno: refusedByUs},
	{name: "UDP of IPv6 without connect", try: send(ip6, dgram, 0, 0, raw6("[2001:db8:f::3]:443")), seen: "17 2001:db8:f::3", why: "udp",
		errno: refusedByUs},
	{name: "UDP with an address of no family", try: send(ip4, dgram, 0, 0, raw4(unix.AF_UNSPEC, "9.0.0.9:443")), seen: "17 9.0.0.9",
		why: "udp", errno: refusedByUs},
	{name: "UDP of IPv6 to an address of IPv4", try: send(ip6, dgram, 0, 0, raw4(ip4, "9.0.0.10:443")), seen: "17 9.0.0.10", why: "udp",
		errno: refusedByUs},
	{name: "UDP to a mapped address", try: send(ip6, dgram, 0, 0, raw6("[::ffff:9.0.0.11]:443")), seen: "17 9.0.0.11", why: "udp",
		errno: refusedByUs},
	{name: "UDP to port 53", try: open(ip4, dgram, 0, "9.0.0.12:53"), seen: "17 9.0.0.12", why: "out", errno: refusedByUs},
	{name: "UDP-Lite", try: open(ip4, dgram, unix.IPPROTO_UDPLITE, "9.0.0.13:53"), seen: "136 9.0.0.13", why: "socket", errno: refusedByUs,
		absent: []syscall.Errno{unix.EPROTONOSUPPORT}},
	{name: "SCTP", try: open(ip4, stream, unix.IPPROTO_SCTP, "9.0.0.14:443"), seen: "132 9.0.0.14", why: "socket", errno: refusedByUs,
		absent: []syscall.Errno{unix.EPROTONOSUPPORT}},
	{name: "raw", try: open(ip4, unix.SOCK_RAW, 253, "9.0.0.15:0"), seen: "253 9.0.0.15", why: "socket", errno: refusedByUs},
	{name: "raw of IPv6", try: open(ip6, unix.SOCK_RAW, 253, "[2001:db8:f::4]:0"), seen: "253 2001:db8:f::4", why: "socket", errno: refusedByUs},
	{name: "ping", try: open(ip4, dgram, unix.IPPROTO_ICMP, "9.0.0.16:0"), seen: "1 9.0.0.16", why: "socket", errno: refusedByUs},
	{name: "L2TP", try: open(ip4, dgram, 115, "9.0.0.17:0"), seen: "115 9.0.0.17", why: "socket", errno: refusedByUs,
		absent: []syscall.Errno{unix.EPROTONOSUPPORT}},
	{name: "source route, TCP", try: withOption(ip4, stream, unix.SOL_IP, unix.IP_OPTIONS, sourceRoute("9.0.0.18"), "127.0.0.1:443"),
		seen: "6 9.0.0.18", why: "option", errno: refusedByUs},
	{name: "source route with a message", try: withMessage(ip4, unix.SOL_IP, unix.IP_RETOPTS, sourceRoute("9.0.0.19"), "127.0.0.1:53"),
		seen: "17 9.0.0.19", why: "out", errno: refusedByUs},
	{name: "routing header", try: withOption(ip6, dgram, unix.SOL_IPV6, unix.IPV6_RTHDR, routing, "[2001:db8:f::9]:53"),
		seen: "43 2001:db8:f::9", why: "option", errno: refusedByUs},
	{name: "routing header with a message", try: withMessage(ip6, unix.SOL_IPV6, unix.IPV6_RTHDR, homeward, "[2001:db8:f::9]:53"),
		seen: "43 2001:db8:f::9", why: "out", errno: refusedByUs, absent: []syscall.Errno{unix.EINVAL}}, // without CONFIG_IPV6_MIP6
	{name: "hop-by-hop options", try: withOption(ip6, stream, unix.SOL_IPV6, unix.IPV6_HOPOPTS, padding, "[2001:db8:f::6]:443"),
		seen: "0 2001:db8:f::6", why: "option", errno: refusedByUs},
	{name: "hop-by-hop options with a message", try: withMessage(ip6, unix.SOL_IPV6, unix.IPV6_HOPOPTS, padding, "[2001:db8:f::7]:53"),
		seen: "0 2001:db8:f::7", why: "out", errno: refusedByUs},
	{name: "destination options", try: withOption(ip6, dgram, unix.SOL_IPV6, unix.IPV6_DSTOPTS, padding, "[2001:db8:f::8]:53"),
		seen: "60 2001:db8:f::8", why: "option", errno: refusedByUs},
	{name: "destination options with a message", try: withMessage(ip6, unix.SOL_IPV6, unix.IPV6_DSTOPTS, padding, "[2001:db8:f::a]:53"),
		seen: "60 2001:db8:f::a", why: "out", errno: refusedByUs},
	{name: "an option that is not listed", try: withOption(ip4, stream, unix.SOL_IP, unix.IP_TRANSPARENT, []byte{1, 0, 0, 0}, "9.0.0.20:443"),
		seen: "6 9.0.0.20", why: "option", errno: refusedByUs},
}

// Every attempt is made with the gate as the only wall: in a network with a way out and neither steering nor local
// routes. Nothing leaves, and the gate counts why. Control: the same attempt by a process outside of the slice leaves.
func TestBP01NothingPassesTheGate(t *testing.T) {
	p := paths(t)
	ns := network(t, p, "bare")
	ip(t, ns, "link set lo up")
	// As systemd sets it: everybody may have ping sockets. What /proc/sys shows of networks is the reader's own.
	if _, err := in(t, ns, func() (struct{}, error) {
		return struct{}{}, os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0)
	}); err != nil {
		t.Fatal(err)
	}
	o := newOutside(t, p, ns)
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			free := probeIn(t, p.beside(), ns, a.name)
			free.end()
			if slices.Contains(a.absent, free.Errno) {
				t.Skipf("this kernel has no %s", a.name)
			}
			if left := o.left(); free.Errno != 0 || !slices.Contains(left, a.seen) {
				t.Fatalf("control: %v (%s); left: %q, want %s", free.Errno, free.Where, left, a.seen)
			}
			before, err := p.Gated()
			if err != nil {
				t.Fatal(err)
			}
			held := probeIn(t, p.within(), ns, a.name)
			held.end()
			if held.Errno != a.errno {
				t.Errorf("%v (%s), want %v", held.Errno, held.Where, a.errno)
			}
			if left := o.left(); len(left) > 0 {
				t.Errorf("it left: %q", left)
			}
			after, err := p.Gated()
			if err != nil {
				t.Fatal(err)
			}
			if after[a.why] == before[a.why] {
				t.Errorf("it is not counted as %s: %v", a.why, after)
			}
		})
	}
}

// Who opened a connection is what egress learns of it, however it was opened. Control: of a process that is not below the slice
// nobody knows.
func TestWhoOpenedAConnection(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ln := egress(t, p, "work", ns)
	who, err := openers.Open(p.BPF + "work/openers")
	if err != nil {
		t.Fatal(err)
	}
	defer who.Close()
	for _, a := range attempts {
		if !strings.HasPrefix(a.seen, "6 ") || a.errno != 0 {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			c := probeIn(t, p.within(), ns, a.name)
			if c.Errno != 0 {
				t.Fatal(c.Where)
			}
			conn, err := ln.AcceptTCP()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			task, err := who.Of(conn)
			if err != nil {
				t.Fatal(err)
			}
			if task.Cgroup != c.cgroup || task.PID == 0 || task.Start/10_000_000 != ticks(t, c.cmd.Process.Pid) || task.Program != "exe" {
				t.Errorf("%+v, want cgroup %d, start %d0 ms", task, c.cgroup, ticks(t, c.cmd.Process.Pid))
			}
			free := probeIn(t, p.beside(), ns, a.name)
			other, err := ln.AcceptTCP()
			if err != nil || free.Errno != 0 {
				t.Fatal(err, free.Where)
			}
			defer other.Close()
			if task, err := who.Of(other); !errors.Is(err, openers.ErrUnknown) {
				t.Errorf("control: %+v, %v", task, err)
			}
		})
	}
}

// A hundred thousand connections of one process are all let through to egress and fill nothing: of the next one, by another process,
// it is known who opened it.
func TestManyConnectionsFillNothing(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ln := egress(t, p, "work", ns)
	who, err := openers.Open(p.BPF + "work/openers")
	if err != nil {
		t.Fatal(err)
	}
	defer who.Close()
	accepted := make(chan int)
	go func() {
		n := 0
		for ; n < many; n++ {
			c, err := ln.AcceptTCP()
			if err != nil {
				break
			}
			_ = c.Close()
		}
		accepted <- n
	}()
	if c := probeIn(t, p.within(), ns, "many connections"); c.Errno != 0 {
		t.Fatal(c.Where)
	}
	if n := <-accepted; n != many {
		t.Errorf("%d arrive", n)
	}
	c := probeIn(t, p.within(), ns, "TCP")
	conn, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if task, err := who.Of(conn); err != nil || task.Cgroup != c.cgroup || task.Start/10_000_000 != ticks(t, c.cmd.Process.Pid) {
		t.Errorf("%+v, %v", task, err)
	}
	if n, err := p.Gated(); err != nil || n["tcp"] != many+1 || n["no-entry"]+n["no-storage"] != 0 {
		t.Errorf("%v, %v", n, err)
	}
}

// ticks is when a process began, in hundredths of a second since boot (proc_pid_stat(5), field 22).
func ticks(t *testing.T, pid int) uint64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	n, err := strconv.ParseUint(strings.Fields(rest)[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// others are attempts of single tests.
var others = []attempt{
	{name: "a socket", try: func() error { _, err := socket(ip4, stream, 0); return err }},
	{name: "UDP to loopback", try: open(ip4, dgram, 0, "127.8.9.1:9999")},
	{name: "UDP to loopback of IPv6", try: send(ip6, dgram, 0, 0, raw6("[::1]:9999"))},
	{name: "the security module", try: judge},
	{name: "a Unix socket", try: func() error { _, err := socket(unix.AF_UNIX, stream, 0); return err }},
	{name: "listen", try: func() error {
		s, err := socket(ip6, stream, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Bind(s, &unix.SockaddrInet6{Port: 7000}), unix.Listen(s, 8))
	}},
	{name: "a map by its number", try: byID(unix.BPF_MAP_GET_FD_BY_ID)},
	{name: "a program by its number", try: byID(unix.BPF_PROG_GET_FD_BY_ID)},
	{name: "a link by its number", try: byID(unix.BPF_LINK_GET_FD_BY_ID)},
	{name: "the slot by its name", try: func() error {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false)
		ln, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		return listener.Put(os.Args[1], ln.(*net.TCPListener))
	}},
	{name: "openers by its name", try: func() error { _, err := openers.Open(os.Args[1]); return err }},
	{name: "steering by its name", try: func() error {
		l, err := link.LoadPinnedLink(os.Args[1], nil)
		if err != nil {
			return err
		}
		return l.Detach()
	}},
	{name: "canary", try: func() error { return Paths{Netns: os.Args[1], BPF: os.Args[2], Slice: os.Args[3]}.Canary() }},
	{name: "canary of workers", try: func() error { return Paths{BPF: os.Args[1], Slice: os.Args[2], Workers: os.Args[3]}.CanaryOfWorkers() }},
	{name: "a network of its own", try: func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		for _, words := range []string{"link set lo up", "link add v0 type veth peer name v1", "link set v0 up", "link set v1 up",
			"addr add 203.0.113.1/24 dev v0", "neigh replace 203.0.113.2 lladdr " + outMAC + " dev v0", "route add default via 203.0.113.2"} {
			if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %s", words, out)
			}
		}
		return open(ip4, dgram, 0, "9.0.0.1:53")()
	}},
	{name: "a user namespace and a network of its own", try: func() error {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), probeEnv+"=a network of its own")
		one := func(id int) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: 1000, HostID: id, Size: 1}}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: one(os.Geteuid()), GidMappings: one(os.Getegid()),
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}}
		b, err := cmd.Output()
		if err != nil {
			return err
		}
		var s said
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		if s.Errno != 0 {
			return fmt.Errorf("%s: %w", s.Where, s.Errno)
		}
		return nil
	}},
	{name: "a large upload", try: func() error { return upload(ip4, "9.0.0.1:443") }},
	{name: "a large upload over IPv6", try: func() error { return upload(ip6, "[2001:db8::1]:443") }},
	{name: "many connections", try: func() error { return connections(many) }},
	{name: "some connections", try: func() error { return connections(some) }},
	{name: "more connections than a map holds", try: func() error { return connections(fill) }},
	{name: "flood", try: func() error {
		for range flood - 1 {
			_ = send(ip4, dgram, 0, 0, raw4(ip4, "9.0.0.99:443"))()
		}
		return send(ip4, dgram, 0, 0, raw4(ip4, "9.0.0.99:443"))()
	}},
}

const (
	flood = 800
	some  = 4000
	many  = 100_000
	fill  = 30_000 // more than a map of who opened what holds
)

// large is so much, in bytes, that the kernel makes segments of more than 64 KiB of it.
const large = 64 << 20

// upload sends that as fast as it goes.
func upload(family int, to string) error {
	s, err := unix.Socket(family, stream|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	_, at := sockaddr(to)
	if err := unix.Connect(s, at); err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for left := large; left > 0; {
		n, err := unix.Write(s, b[:min(left, len(b))])
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// A large upload is refused nothing, over IPv6 neither: there the kernel gives segments above 64 KiB a header hop by hop, and one
// that the gate drops is sent again later and in small pieces.
func TestALargeUploadIsRefusedNothing(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ln := egress(t, p, "work", ns)
	for _, how := range []string{"a large upload", "a large upload over IPv6"} {
		got := make(chan int64, 1)
		go func() {
			c, err := ln.AcceptTCP()
			if err != nil {
				got <- -1
				return
			}
			defer c.Close()
			n, _ := io.Copy(io.Discard, struct{ io.Reader }{c})
			got <- n
		}()
		if c := probeIn(t, p.within(), ns, how); c.Errno != 0 {
			t.Fatal(c.Where)
		}
		if n := <-got; n != large {
			t.Errorf("%s: %d bytes arrive", how, n)
		}
	}
	if n, err := p.Gated(); err != nil || n["header"] != 0 {
		t.Errorf("%v, %v", n, err)
	}
}

// connections opens and closes so many connections, one behind the other.
func connections(n int) error {
	for i := range n {
		s, err := unix.Socket(ip4, stream|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("socket %d: %w", i, err)
		}
		_ = unix.SetsockoptLinger(s, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // and so no port waits
		_, at := sockaddr(fmt.Sprintf("198.18.%d.%d:443", 1+i>>8&63, i&255))                  // ports are counted by destination
		if err := unix.Connect(s, at); err != nil {
			return fmt.Errorf("connect %d: %w", i, err)
		}
		_ = unix.Close(s)
	}
	return nil
}

// byID asks for what the kernel has loaded by its number, of which it has some among the first.
func byID(call int) func() error {
	return func() error {
		attr := struct{ id, next, flags uint32 }{} // of BPF_MAP_GET_FD_BY_ID and the like
		for {
			// What is behind this number; without the right to ask, the answer is EPERM from the first on.
			attr.id++
			_, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(call), uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
			if errno == 0 {
				return nil
			}
			if errno != unix.ENOENT {
				return errno
			}
		}
	}
}

// Loopback is the cell's own for UDP too, and a program in a cell that opens a socket in the machine's own network gets none.
// Control: one beside the slice gets it.
func TestTheGateKeepsTheMachinesNetwork(t *testing.T) {
	p := paths(t)
	host, err := os.Open("/proc/thread-self/ns/net") // the process's first thread may have been in a cell's
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if c := probeIn(t, p.within(), host, "a socket"); c.Errno != refusedByUs {
		t.Errorf("in the machine's network: %v", c.Errno)
	}
	if c := probeIn(t, p.beside(), host, "a socket"); c.Errno != 0 {
		t.Errorf("control: %v", c.Errno)
	}
	ns := cell(t, p, "work")
	packets(t, ns, "[::]:9999")
	for _, name := range []string{"a socket", "UDP to loopback", "UDP to loopback of IPv6"} {
		if c := probeIn(t, p.within(), ns, name); c.Errno != 0 {
			t.Errorf("%s in the cell's own: %v (%s)", name, c.Errno, c.Where)
		}
	}
	if n, err := p.Gated(); err != nil || n["host"] != 1 || n["own"] != 2 {
		t.Errorf("%v, %v", n, err)
	}
}

// A packet with extension headers is refused also where it would stay in the cell. Control: egress's resolver reads it.
func TestAPacketWithExtensionHeadersIsRefusedOnLo(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	resolver := packets(t, ns, "[::]:53")
	for _, name := range []string{"hop-by-hop options with a message", "destination options with a message"} {
		if c := probeIn(t, p.within(), ns, name); c.Errno != refusedByUs {
			t.Errorf("%s: %v", name, c.Errno)
		}
		if c := probeIn(t, p.beside(), ns, name); c.Errno != 0 {
			t.Fatalf("control: %v (%s)", c.Errno, c.Where)
		}
		if _, _, err := resolver.ReadFrom(make([]byte, 16)); err != nil {
			t.Error("control: ", err)
		}
	}
	if n, err := p.Gated(); err != nil || n["header"] != 2 {
		t.Errorf("%v, %v", n, err)
	}
}

// In a network that a program of a cell makes itself, also in a user namespace of its own, with an interface and a way, the gate holds
// as well. Control: beside the slice
// the packet goes.
func TestTheGateHoldsInANetworkOfACellsOwn(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	for i, way := range []string{"a network of its own", "a user namespace and a network of its own"} {
		if c := probeIn(t, p.within(), ns, way); c.Errno != refusedByUs {
			t.Errorf("%s: %v (%s)", way, c.Errno, c.Where)
		}
		if n, err := p.Gated(); err != nil || n["out"] <= uint64(i) {
			t.Errorf("%s: %v, %v", way, n, err)
		}
		if c := probeIn(t, p.beside(), ns, way); c.Errno != 0 {
			t.Errorf("control: %s: %v (%s)", way, c.Errno, c.Where)
		}
	}
}

// Nobody comes in from outside to somebody who listens in a cell, where its network has an interface. Control: to a process
// beside the slice they do.
func TestNobodyComesIn(t *testing.T) {
	p := paths(t)
	ns := network(t, p, "bare")
	o := newOutside(t, p, ns)
	ip(t, o.out, "addr add 203.0.113.2/24 dev dw1")
	free := probeIn(t, p.beside(), ns, "listen")
	c, err := dial(t, o.out, "tcp", "203.0.113.1:7000")
	if err != nil {
		t.Fatal("control: ", err)
	}
	c.Close()
	free.end()
	probeIn(t, p.within(), ns, "listen")
	s, err := in(t, o.out, func() (int, error) { return socket(ip4, stream, 0) })
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	if err := connect(s, "203.0.113.1:7000"); err != nil {
		t.Fatal(err)
	}
	for n := uint64(0); n == 0; { // until the first packet has come in
		have, err := p.Gated()
		if err != nil {
			t.Fatal(err)
		}
		n = have["in"]
	}
	const synSent = 2 // include/net/tcp_states.h
	if info, err := unix.GetsockoptTCPInfo(s, unix.SOL_TCP, unix.TCP_INFO); err != nil || info.State != synSent {
		t.Errorf("it is in state %d (%v)", info.State, err)
	}
}

// A refusal can be read: why, who, where to. What one cell can write into the log is bounded, and what is not written is counted.
func TestTheLogOfRefusals(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	log, err := p.OpenRefusals()
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	probeIn(t, p.within(), ns, "UDP to a mapped address")
	have, err := log.Next()
	if err != nil {
		t.Fatal(err)
	}
	want := Refusal{Boot: have.Boot, Why: "udp", Unit: inode(t, filepath.Dir(p.within())), PID: have.PID, Program: "exe", Family: ip6,
		To: netip.MustParseAddrPort("9.0.0.11:443"), Type: dgram, Proto: unix.IPPROTO_UDP}
	if have != want || have.PID == 0 || have.Boot == 0 {
		t.Errorf("%+v, want %+v", have, want)
	}
	probeIn(t, p.within(), ns, "source route, TCP")
	if have, err = log.Next(); err != nil || have.Why != "option" || have.Type != unix.SOL_IP || have.Proto != unix.IP_OPTIONS {
		t.Errorf("%+v, %v", have, err)
	}
	probeIn(t, p.within(), ns, "flood").end()
	n, err := p.Gated()
	if err != nil {
		t.Fatal(err)
	}
	if n["udp"] != flood+1 || n["unlogged"] == 0 {
		t.Errorf("%v", n)
	}
	for range flood - n["unlogged"] {
		if have, err = log.Next(); err != nil || have.To.Port() != 443 {
			t.Fatal(have, err)
		}
	}
}

func FuzzParseRefusal(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRefusal(b); err != nil && r != (Refusal{}) {
			t.Errorf("%+v with an error", r)
		}
	})
}

// Run again, it replaces each program in its link, and the maps stay.
func TestTheGateIsReplacedInPlace(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ids := func() map[string]link.Info {
		out := map[string]link.Info{}
		for _, h := range hooks {
			l, err := link.LoadPinnedLink(p.BPF+h.pin, nil)
			if err != nil {
				t.Fatal(err)
			}
			info, err := l.Info()
			l.Close()
			if err != nil {
				t.Fatal(err)
			}
			out[h.pin] = *info
		}
		return out
	}
	before := ids()
	probeIn(t, p.within(), ns, "UDP")
	if err := p.Gate(); err != nil {
		t.Fatal(err)
	}
	for pin, after := range ids() {
		if after.ID != before[pin].ID || after.Program == before[pin].Program {
			t.Errorf("%s: link %d with program %d became link %d with %d", pin, before[pin].ID, before[pin].Program, after.ID, after.Program)
		}
	}
	probeIn(t, p.within(), ns, "UDP")
	if n, err := p.Gated(); err != nil || n["udp"] != 2 {
		t.Errorf("%v, %v", n, err)
	}
}

// A unit's cgroup that is made again is below the gate. The slice's own is not, until the gate is attached again: which is why
// it is to stay.
func TestACgroupThatIsMadeAgain(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	try := func(want syscall.Errno, when string) {
		t.Helper()
		c := probeIn(t, p.within(), ns, "UDP")
		c.end()
		if c.Errno != want {
			t.Errorf("%s: %v, want %v", when, c.Errno, want)
		}
	}
	try(refusedByUs, "at first")
	if err := ground.RemoveCgroup(filepath.Dir(p.within())); err != nil {
		t.Fatal(err)
	}
	try(refusedByUs, "the unit's cgroup is new")
	if err := ground.RemoveCgroup(p.Slice); err != nil {
		t.Fatal(err)
	}
	try(0, "control: the slice is new")
	if err := p.Cell("work"); err == nil || !strings.Contains(err.Error(), "made again") {
		t.Errorf("a cell in a slice without the gate: %v", err)
	}
	if err := p.Gate(); err != nil {
		t.Fatal(err)
	}
	try(refusedByUs, "and the gate is attached again")
}

// What cannot be is refused with what it was, and nothing is attached (BP-02).
func TestBP02WhatTheGateCannotUseIsNamed(t *testing.T) {
	p := bare(t)
	if err := p.Gate(); err == nil || !strings.Contains(err.Error(), "start "+p.Slice[1:]) {
		t.Errorf("without the slice: %v", err)
	}
	makeSlices(t, p)
	if err := p.Cell("work"); err == nil || !strings.Contains(err.Error(), "gate-socket") {
		t.Errorf("a cell without the gate: %v", err)
	}
	elsewhere := p
	elsewhere.BPF = t.TempDir() + "/"
	if err := elsewhere.Cell("work"); err == nil || !strings.Contains(err.Error(), "doorward-bpf.service") {
		t.Errorf("without the file system: %v", err)
	}
	for _, there := range []string{p.netns("work"), p.BPF + "work"} {
		if _, err := os.Lstat(there); !os.IsNotExist(err) {
			t.Errorf("%s is made all the same (%v)", there, err)
		}
	}
	if err := errors.Join(p.Gate(), p.Cell("work"), p.StopCell("work")); err != nil {
		t.Error("control: ", err)
	}
}

// A map that another version made with another shape, or meant otherwise and so named otherwise, is made anew, and so nothing of it
// is misread; the programs are replaced in their links all the same. What that version had and this one has not is taken away.
func TestAnotherVersionsMapsAreMadeAnew(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	probeIn(t, p.within(), ns, "UDP").end()
	older := func(spec ebpf.MapSpec, pins ...string) {
		t.Helper()
		for _, pin := range pins {
			_ = os.Remove(p.BPF + pin)
			m, err := ebpf.NewMap(&spec)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := m.Pin(p.BPF + pin); err != nil {
				t.Fatal(err)
			}
		}
	}
	older(ebpf.MapSpec{Name: "gated", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 3}, "gate-counts", "work/openers", "openers")
	counters := func() uint32 {
		t.Helper()
		m, err := ebpf.LoadPinnedMap(p.BPF+"gate-counts", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return m.MaxEntries()
	}
	if _, err := p.Gated(); err == nil || counters() != 3 {
		t.Fatal("control: it is read")
	}
	if err := errors.Join(p.Gate(), p.Cell("work")); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Gated(); err != nil || n["udp"] != 0 || counters() != uint32(len(reasons)) {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := os.Lstat(p.BPF + "openers"); !os.IsNotExist(err) {
		t.Errorf("what nobody has any more: %v", err)
	}
	renamed := ebpf.MapSpec{Name: "meant", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: uint32(len(reasons))}
	older(renamed, "gate-counts")
	if err := p.Gate(); err != nil {
		t.Fatal(err)
	}
	probeIn(t, p.within(), ns, "UDP").end()
	if n, err := p.Gated(); err != nil || n["udp"] != 1 {
		t.Errorf("of another name: %v, %v", n, err)
	}
	ln := egress(t, p, "work", ns)
	c := probeIn(t, p.within(), ns, "TCP")
	if task := opener(t, p, ln); task.Cgroup != c.cgroup {
		t.Errorf("%+v, want cgroup %d", task, c.cgroup)
	}
}

// inode is the id of a cgroup.
func inode(t *testing.T, cgroup string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(ground.Cgroup, cgroup), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// opener accepts a connection of the cell work, and says who opened it.
func opener(t *testing.T, p Paths, ln *net.TCPListener) wire.Task {
	t.Helper()
	who, err := openers.Open(p.BPF + "work/openers")
	if err != nil {
		t.Fatal(err)
	}
	defer who.Close()
	conn, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	task, err := who.Of(conn)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// A process in a cgroup that the cell made below its session, however deep, is of that session; another session is another one.
// Control: who is in no session is of the unit.
func TestAConnectionIsOfTheSession(t *testing.T) {
	p := paths(t)
	ns := cell(t, p, "work")
	ln := egress(t, p, "work", ns)
	unit := filepath.Dir(p.within())
	for cgroup, session := range map[string]string{
		unit + "/payload":               unit + "/payload",
		unit + "/payload/init":          unit + "/payload",
		unit + "/payload/a/b/c/d/e/f/g": unit + "/payload",
		unit + "/run-7/inner":           unit + "/run-7",
	} {
		c := probeIn(t, cgroup, ns, "TCP")
		if c.Errno != 0 {
			t.Fatal(c.Where)
		}
		if task := opener(t, p, ln); task.Cgroup != inode(t, session) {
			t.Errorf("in %s it is of cgroup %d, want %d", cgroup, task.Cgroup, inode(t, session))
		}
	}
	other := p.Slice + "/doorward-cell@none.service"
	probeIn(t, other, ns, "TCP")
	if task := opener(t, p, ln); task.Cgroup != inode(t, other) {
		t.Errorf("control: %+v, want %d", task, inode(t, other))
	}
}

// As many connections as one cell likes push out no entry of another's: of one that waits to be accepted it is still known who opened
// it. Control: as many of its own do.
func TestACellPushesOutNothingOfAnothers(t *testing.T) {
	p := paths(t)
	work, play := cell(t, p, "work"), cell(t, p, "play")
	ln := egress(t, p, "work", work)
	spins := egress(t, p, "play", play)
	drain := func(ln *net.TCPListener) {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}
	go drain(spins)
	waits := probeIn(t, p.within(), work, "TCP")
	if c := probeIn(t, p.Slice+"/doorward-cell@play.service/payload", play, "more connections than a map holds"); c.Errno != 0 {
		t.Fatal(c.Where)
	}
	who, err := openers.Open(p.BPF + "work/openers")
	if err != nil {
		t.Fatal(err)
	}
	defer who.Close()
	conn, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if task, err := who.Of(conn); err != nil || task.Cgroup != waits.cgroup {
		t.Errorf("%+v, %v", task, err)
	}
	go drain(ln)
	for range 5 { // what was looked up lately is spared at first
		if c := probeIn(t, p.within(), work, "more connections than a map holds"); c.Errno != 0 {
			t.Fatal(c.Where)
		}
		if _, err = who.Of(conn); err != nil {
			break
		}
	}
	if !errors.Is(err, openers.ErrUnknown) {
		t.Errorf("control: its own entries are kept: %v", err)
	}
}

// Egress of a cell, with its group and no capability, has what it needs and nothing else: the listener's slot and who opened
// what, to read; no program. Anybody else, as root of a cell is to the machine, has nothing of it, by name or by number. Control:
// with the machine's root each attempt works.
func TestWhoGetsAtThePins(t *testing.T) {
	p := bare(t)
	p.Group = "daemon" // any group that every machine has
	makeSlices(t, p)
	if err := p.Gate(); err != nil {
		t.Fatal(err)
	}
	ns := cell(t, p, "work")
	for dir := filepath.Dir(filepath.Clean(p.BPF)); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gid, err := p.gid()
	if err != nil || gid == 0 {
		t.Fatal(gid, err)
	}
	// As the unit of egress has it: of one cell alone, and bound read-only, which is no matter to the kernel's maps.
	bound := t.TempDir()
	if err := errors.Join(unix.Mount(p.BPF+"work", bound, "", unix.MS_BIND, ""),
		unix.Mount("", bound, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(bound, unix.MNT_DETACH)
	egress := &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{uint32(gid)}}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	for _, tt := range []struct {
		name, path     string
		egress, nobody syscall.Errno
	}{
		{"the slot by its name", p.BPF + "work/listener", 0, unix.EACCES},
		{"the slot by its name", bound + "/listener", 0, unix.EACCES},
		{"openers by its name", p.BPF + "work/openers", 0, unix.EACCES},
		{"a map by its number", "", unix.EPERM, unix.EPERM},
		{"a program by its number", "", unix.EPERM, unix.EPERM},
		{"a link by its number", "", unix.EPERM, unix.EPERM},
		{"steering by its name", p.BPF + "work/steer", unix.EACCES, unix.EACCES},
	} {
		if c := probeAs(t, p.beside(), ns, tt.name, egress, tt.path); c.Errno != tt.egress {
			t.Errorf("egress, %s: %v (%s), want %v", tt.name, c.Errno, c.Where, tt.egress)
		}
		if c := probeAs(t, p.beside(), ns, tt.name, nobody, tt.path); c.Errno != tt.nobody {
			t.Errorf("nobody, %s: %v (%s), want %v", tt.name, c.Errno, c.Where, tt.nobody)
		}
		if c := probeAs(t, p.beside(), ns, tt.name, nil, tt.path); c.Errno != 0 {
			t.Errorf("control, %s: %v (%s)", tt.name, c.Errno, c.Where)
		}
	}
}

// Who opened what can be made up by nobody who reads it, not by root either.
func TestWhoOpenedWhatIsReadOnly(t *testing.T) {
	p := paths(t)
	cell(t, p, "work")
	m, err := pinned.Open(p.BPF+"work/openers", pinned.Kind{Type: unix.BPF_MAP_TYPE_LRU_HASH, Key: 24, Value: 40})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := pinned.Put(m, &openers.Key{}, &openers.Opener{}); !errors.Is(err, unix.EPERM) {
		t.Errorf("a forged entry: %v", err)
	}
	if err := pinned.Lookup(m, &openers.Key{}, &openers.Opener{}); !errors.Is(err, pinned.ErrNone) {
		t.Errorf("control, reading: %v", err)
	}
}

// The structs that Go reads are those of the objects.
func TestTheStructsAreTheKernels(t *testing.T) {
	for _, pair := range [][2]any{{openers.Key{}, bpf.GateOpenerKey{}}, {openers.Opener{}, bpf.GateOpener{}}} {
		ours, theirs := reflect.TypeOf(pair[0]), reflect.TypeOf(pair[1])
		if ours.Size() != theirs.Size() || binary.Size(pair[0]) != int(ours.Size()) {
			t.Errorf("%v has %d bytes, %v has %d", ours, ours.Size(), theirs, theirs.Size())
		}
		for i := range ours.NumField() {
			f := ours.Field(i)
			if f.Name == "_" {
				continue
			}
			name := strings.ToUpper(f.Name[:1]) + strings.ToLower(f.Name[1:])
			g, ok := theirs.FieldByName(name)
			if !ok || f.Offset != g.Offset || f.Type.Size() != g.Type.Size() {
				t.Errorf("%v: %s is at %d, in the object at %d (%v)", ours, f.Name, f.Offset, g.Offset, ok)
			}
		}
	}
	if unsafe.Sizeof(bpf.GateRefusal{}) != 64 {
		t.Error("a line of the log has holes")
	}
}
