// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/doorward/doorward/bpf"
	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

// steer attaches steering to a cell's namespace, with the maps that are pinned already. See wire.BPFDir for what is where.
func (p Paths) steer(cell string, ns *os.File) error {
	dir := p.BPF + cell + "/"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	spec, err := bpf.LoadSteer()
	if err != nil {
		return err
	}
	pins := map[string]string{bpf.SteerMapListener: dir + "listener", bpf.SteerMapSteered: dir + "steered"}
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil {
		return err
	}
	// On this very namespace, by its number: one that was made again under the name has another, and the link of the old one
	// has none any more.
	on := func(i *link.Info) bool { return i.NetNs() != nil && uint64(i.NetNs().NetnsInode) == st.Ino }
	// Maps are pinned behind it: whoever can open the slot finds it steered.
	err = load(spec, pins, func(coll *ebpf.Collection) error {
		prog := coll.Programs[bpf.SteerProgSteer]
		return hold(dir+"steer", prog, on, func() (link.Link, error) { return link.AttachNetNs(int(ns.Fd()), prog) })
	})
	if err != nil {
		return err
	}
	if err := p.share(dir+"listener", 0o660); err != nil {
		return err
	}
	return p.share(dir, 0o750)
}

// forget removes the pins of a cell, and with them its steering.
func (p Paths) forget(cell string) error {
	if err := p.unattribute(p.BPF + cell + "/openers"); err != nil {
		return fmt.Errorf("have it told no more who connects in cell %s: %w", cell, err)
	}
	if err := os.RemoveAll(p.BPF + cell); err != nil {
		return fmt.Errorf("remove the pins of cell %s: %w", cell, err)
	}
	return nil
}

// Steered reads how often steering decided what in a cell, by the name of the reason as bpf/steer.c has it, on all processors.
func (p Paths) Steered(cell string) (map[string]uint64, error) {
	if err := wire.CellName(cell); err != nil {
		return nil, err
	}
	return counts(p.BPF+cell+"/steered", []string{"listener", "own", "dns", "empty", "failed", "udp", "other"})
}

// counts reads a map of counters.
func counts(path string, names []string) (map[string]uint64, error) {
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open the counters %s: %w", path, err)
	}
	defer m.Close()
	if int(m.MaxEntries()) != len(names) {
		return nil, fmt.Errorf("read the counters %s: it has %d, this program knows %d", path, m.MaxEntries(), len(names))
	}
	out := map[string]uint64{}
	for i, name := range names {
		var each []uint64 // by processor
		if err := m.Lookup(uint32(i), &each); err != nil {
			return nil, fmt.Errorf("read the counters %s: %w", path, err)
		}
		for _, n := range each {
			out[name] += n
		}
	}
	return out, nil
}
