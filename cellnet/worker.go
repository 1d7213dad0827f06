// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/doorward/doorward/bpf"
	"github.com/doorward/doorward/internal/peer"
	"golang.org/x/sys/unix"
)

// workerHooks are the programs that leave workers no network, attached to their slice.
var workerHooks = []hook{
	{bpf.WorkerProgWorkerSocket, "worker-socket", ebpf.AttachCGroupInetSockCreate},
	{bpf.WorkerProgWorkerConnect4, "worker-connect4", ebpf.AttachCGroupInet4Connect},
	{bpf.WorkerProgWorkerConnect6, "worker-connect6", ebpf.AttachCGroupInet6Connect},
	{bpf.WorkerProgWorkerSend4, "worker-send4", ebpf.AttachCGroupUDP4Sendmsg},
	{bpf.WorkerProgWorkerSend6, "worker-send6", ebpf.AttachCGroupUDP6Sendmsg},
	{bpf.WorkerProgWorkerBind4, "worker-bind4", ebpf.AttachCGroupInet4Bind},
	{bpf.WorkerProgWorkerBind6, "worker-bind6", ebpf.AttachCGroupInet6Bind},
	{bpf.WorkerProgWorkerOut, "worker-out", ebpf.AttachCGroupInetEgress},
	{bpf.WorkerProgWorkerIn, "worker-in", ebpf.AttachCGroupInetIngress},
}

// denials are what they count, in the order of enum denied of bpf/worker.c.
var denials = []string{"socket", "connect", "send", "bind", "out", "in", "unlogged"}

const workerCounts = "worker-counts"

// workers attaches them. Preconditions: the file system of the pins is mounted.
func (p Paths) workers() error {
	slice, id, err := openSlice(p.Workers)
	if err != nil {
		return err
	}
	defer slice.Close()
	spec, err := bpf.LoadWorker()
	if err != nil {
		return err
	}
	pins := map[string]string{bpf.WorkerMapDenied: p.BPF + workerCounts, bpf.WorkerMapRefusals: p.BPF + refusalsPin}
	return load(spec, pins, func(coll *ebpf.Collection) error { return p.hang(workerHooks, coll, slice, id) })
}

// Denied reads how often workers were refused what, by the name of the reason, on all processors.
func (p Paths) Denied() (map[string]uint64, error) { return counts(p.BPF+workerCounts, denials) }

// workerCanaries are what no worker may. Other things take a socket first.
var workerCanaries = []canary{
	{"a socket of TCP", "socket", func() error { return closed(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)) }},
	{"a socket of UDP", "socket", func() error { return closed(unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)) }},
}

// CanaryOfWorkers tries the walls around workers, below their slice, and freezes every cell where they do not hold: it is cells
// that have workers do something.
func (p Paths) CanaryOfWorkers() error {
	k, err := peer.Open()
	if err != nil {
		return err
	}
	defer k.Close()
	_, unit, err := ownCgroup(k, p.Workers)
	if err != nil {
		return err
	}
	return p.sing(markTryingWorkers, unit, "workers", func() error {
		if err := p.needPins(); err != nil {
			return untried{err}
		}
		if err := p.hangs(workerHooks, p.Workers); err != nil {
			return err
		}
		for _, c := range workerCanaries {
			if err := refuses(c, p.Denied); err != nil {
				return err
			}
		}
		return nil
	})
}

// errNotInSlice: the canary was started elsewhere, where it proves nothing and no wall is to hold it.
var errNotInSlice = errors.New("it is tried below its slice only: systemctl start doorward-canary.service")
