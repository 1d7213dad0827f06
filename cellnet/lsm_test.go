// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/doorward/doorward/bpf"
	"golang.org/x/sys/unix"
)

// judge has the program that looks at new sockets say what it makes of one of this process: words are the slice, the family and the
// protocol. It runs as a tracepoint's, since not every machine takes programs of the security module; test/vm/inside has them
// attached.
func judge() error {
	p := Paths{Slice: os.Args[1]}
	family, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	proto, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	spec, err := p.lsmSpec()
	if err != nil {
		return err
	}
	for _, prog := range spec.Programs { // each passes the kernel's check
		prog.Type, prog.AttachType, prog.AttachTo = ebpf.RawTracepoint, 0, ""
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer coll.Close()
	said, err := coll.Programs[bpf.LsmProgForeignCreate].Run(&ebpf.RunOptions{Context: []uint64{uint64(family), unix.SOCK_STREAM, uint64(proto), 0, 0}})
	if err != nil {
		return fmt.Errorf("run: %v", err)
	}
	if errno := syscall.Errno(-int32(said)); errno != 0 {
		return errno
	}
	return nil
}

// A session of a cell makes sockets of Unix, IPv4, IPv6 and netlink's routing, however deep below it the process is. Control: systemd's
// own process in the unit, and who is not below the slice, make others.
func TestASessionMakesNoSocketOfAnotherFamily(t *testing.T) {
	p := paths(t)
	host, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	unit := p.Slice + "/doorward-cell@work.service"
	const vsock, alg, packet, audit, route = unix.AF_VSOCK, unix.AF_ALG, unix.AF_PACKET, unix.NETLINK_AUDIT, unix.NETLINK_ROUTE
	for _, tt := range []struct {
		cgroup        string
		family, proto int
		want          syscall.Errno
	}{
		{unit + "/payload", vsock, 0, unix.EPERM},
		{unit + "/payload", alg, 0, unix.EPERM},
		{unit + "/payload", packet, 0, unix.EPERM},
		{unit + "/payload", unix.AF_NETLINK, audit, unix.EPERM},
		{unit + "/payload/supervisor", vsock, 0, unix.EPERM},
		{unit + "/run-7/a/b", vsock, 0, unix.EPERM},
		{unit + "/supervisors", vsock, 0, unix.EPERM},
		{unit + "/super", vsock, 0, unix.EPERM},
		{unit + "/payload", unix.AF_UNIX, 0, 0},
		{unit + "/payload", ip4, unix.IPPROTO_TCP, 0},
		{unit + "/payload", ip6, unix.IPPROTO_UDP, 0},
		{unit + "/payload", unix.AF_NETLINK, route, 0},
		{unit + "/supervisor", vsock, 0, 0},
		{unit, vsock, 0, 0},
		{p.beside() + "/payload/x", vsock, 0, 0},
		{p.Workers + "/doorward-worker@dav.service/payload", vsock, 0, 0},
	} {
		c := probeAs(t, tt.cgroup, host, "the security module", nil, p.Slice, strconv.Itoa(tt.family), strconv.Itoa(tt.proto))
		c.end()
		if c.Errno != tt.want {
			t.Errorf("in %s, family %d, protocol %d: %v (%s), want %v", tt.cgroup, tt.family, tt.proto, c.Errno, c.Where, tt.want)
		}
	}
}
