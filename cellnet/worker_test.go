// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A worker makes no socket but Unix ones, in no network: not in the machine's own, and not in one that is a cell's. Control: the
// same beside the slice, and below it a Unix socket. With that program put aside the next ones hold.
func TestAWorkerHasNoNetwork(t *testing.T) {
	p := paths(t)
	ns := network(t, p, "bare")
	ip(t, ns, "link set lo up")
	o := newOutside(t, p, ns)
	worker := p.Workers + "/doorward-worker@github.service"
	refused := func(name, why string) {
		t.Helper()
		free := probeIn(t, p.beside(), ns, name)
		free.end()
		o.left()
		if free.Errno != 0 {
			t.Fatalf("control, %s: %v (%s)", name, free.Errno, free.Where)
		}
		before, err := p.Denied()
		if err != nil {
			t.Fatal(err)
		}
		c := probeIn(t, worker, ns, name)
		c.end()
		after, err := p.Denied()
		if err != nil || after[why] == before[why] || c.Errno != refusedByUs && why != "out" {
			t.Errorf("%s: %v (%s); %v, %v", name, c.Errno, c.Where, after, err)
		}
		if left := o.left(); len(left) > 0 {
			t.Errorf("%s: it left: %q", name, left)
		}
	}
	for _, name := range []string{"TCP", "TCP of IPv6", "UDP", "UDP of IPv6", "raw", "Multipath TCP"} {
		refused(name, "socket")
	}
	if c := probeIn(t, worker, ns, "a Unix socket"); c.Errno != 0 {
		t.Errorf("control: a Unix socket: %v", c.Errno)
	}
	hollow(t, p, "worker-socket", ebpf.AttachCGroupInetSockCreate)
	refused("TCP", "connect")
	refused("TCP of IPv6", "connect")
	refused("UDP without connect", "send")
	refused("UDP of IPv6 without connect", "send")
	refused("listen", "bind")
	hollow(t, p, "worker-connect4", ebpf.AttachCGroupInet4Connect)
	refused("TCP", "out")
	refused("UDP", "out")
}

// A worker's socket that gets through freezes the cells, and so does a wall around workers that is gone.
func TestTheCanaryOfWorkers(t *testing.T) {
	p := paths(t)
	frozen, thaw := aCell(t, p)
	host, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	sings := func(cgroup string) string {
		t.Helper()
		c := probeAs(t, cgroup, host, "canary of workers", nil, p.BPF, p.Slice, p.Workers)
		c.end()
		return c.Where
	}
	canary := p.Workers + "/doorward-canary-workers.service"
	if said := sings(canary); said != "" || frozen() {
		t.Fatalf("control: it says %q; frozen: %v", said, frozen())
	}
	if said := sings(p.beside()); said != errNotInSlice.Error() || frozen() {
		t.Errorf("elsewhere it says %q; frozen: %v", said, frozen())
	}
	hollow(t, p, "worker-socket", ebpf.AttachCGroupInetSockCreate)
	if said := sings(canary); !strings.Contains(said, "a socket of TCP got through") || !frozen() {
		t.Errorf("it says %q; frozen: %v", said, frozen())
	}
	thaw()
	if err := unix.Unlink(p.BPF + "worker-out"); err != nil {
		t.Fatal(err)
	}
	if said := sings(canary); !strings.Contains(said, "worker-out is not there") || !frozen() { // the second in a row
		t.Errorf("it says %q; frozen: %v", said, frozen())
	}
	thaw()
	if err := p.Gate(); err != nil {
		t.Fatal(err)
	}
	if said := sings(canary); said != "" || frozen() {
		t.Errorf("control: it says %q; frozen: %v", said, frozen())
	}
}
