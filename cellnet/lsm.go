// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/doorward/doorward/bpf"
	"golang.org/x/sys/unix"
)

// lsmHooks are the programs of the BPF security module (bpf/lsm.c). They are on the whole machine, and look whose the task is.
var lsmHooks = []hook{
	{program: bpf.LsmProgForeignCreate, pin: "lsm-create"},
	{program: bpf.LsmProgForeignConnect, pin: "lsm-connect"},
	{program: bpf.LsmProgForeignSend, pin: "lsm-send"},
	{program: bpf.LsmProgForeignReceive, pin: "lsm-receive"},
	{program: bpf.LsmProgForeignListen, pin: "lsm-listen"},
	{program: bpf.LsmProgForeignAccept, pin: "lsm-accept"},
	{program: bpf.LsmProgForeignFile, pin: "lsm-file"},
	{program: bpf.LsmProgForeignUnix, pin: "lsm-unix"},
	{program: bpf.LsmProgForeignDatagram, pin: "lsm-datagram"},
}

// foreigns are what they count, in the order of enum foreign of bpf/lsm.c.
var foreigns = []string{"family", "connect", "send", "receive", "listen", "accept", "file", "unix", "no-read", "unlogged"}

const lsmCounts = "lsm-counts"

// modules is where the kernel lists its security modules.
const modules = "/sys/kernel/security/lsm"

// lsmRuns says whether programs of the BPF security module run on this kernel; without, they load and are never asked.
func lsmRuns() bool {
	b, err := os.ReadFile(modules)
	return err == nil && slices.Contains(strings.Split(strings.TrimSpace(string(b)), ","), "bpf")
}

// lsm attaches them where they run. A link of theirs takes no other program, so each run makes new ones, and pins them in place of the
// old ones, which go then: at no time is there none.
func (p Paths) lsm() error {
	if !lsmRuns() {
		return nil // `doorward doctor` says it
	}
	spec, err := p.lsmSpec()
	if err != nil {
		return err
	}
	pins := map[string]string{bpf.LsmMapForeign: p.BPF + lsmCounts, bpf.LsmMapRefusals: p.BPF + refusalsPin}
	return load(spec, pins, func(coll *ebpf.Collection) error {
		for _, h := range lsmHooks {
			prog := coll.Programs[h.program]
			err := hold(p.BPF+h.pin, prog, func(*link.Info) bool { return false }, func() (link.Link, error) {
				return link.AttachLSM(link.LSMOptions{Program: prog})
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// lsmSpec is what is loaded, for the slice that is there now.
func (p Paths) lsmSpec() (*ebpf.CollectionSpec, error) {
	slice, id, err := p.slice()
	if err != nil {
		return nil, err
	}
	_ = slice.Close()
	spec, err := bpf.LoadLsm()
	if err != nil {
		return nil, err
	}
	return spec, spec.Variables[bpf.LsmVarSlice].Set(id)
}

// lsmHolds says whether they are there. That they refuse, a canary says.
func (p Paths) lsmHolds() error {
	for _, h := range lsmHooks {
		l, err := link.LoadPinnedLink(p.BPF+h.pin, nil)
		if err != nil {
			return untried{fmt.Errorf("the program %s is not there; restart doorward-bpf.service: %w", h.pin, err)}
		}
		_ = l.Close()
	}
	return nil
}

// Foreign reads how often sessions of cells were refused what by the security module, by the name of the reason, on all processors.
func (p Paths) Foreign() (map[string]uint64, error) { return counts(p.BPF+lsmCounts, foreigns) }

// lsmCanaries are tried by a process of a session. Of sockets from outside it has none.
var lsmCanaries = []canary{
	{"a socket to the machine that this one may run on", "family", func() error {
		return closed(unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	}},
	{"a socket of netlink for others than routing", "family", func() error {
		return closed(unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT))
	}},
}
