// SPDX-License-Identifier: Apache-2.0

// Package cellnet makes the network of a cell: a network namespace with nothing in it but lo, where every address is local, and
// the programs in the kernel that say which socket takes what arrives there (bpf/steer.c), who opened a connection, and what
// nobody in a cell may (bpf/gate.c). It is what `cellnet` runs, once for all cells and once for each; after that nothing of it
// runs, and what it made holds without it.
//
// All of it may be run again, over what is there. A program is replaced in place by one call of the kernel, never taken away
// first, and its maps stay, so that connections and egress's listener outlive an upgrade. What fails ends the run with an error
// and leaves what held before; a cell starts only behind a run without an error.
//
// What an attacker could do. In the cell: nothing to what this made; it has no capability in the namespace's owner, and sees
// neither the names in /run/netns nor the file system of the pins. As egress of a cell, taken over: put another listener into
// the slot of its own cell, whose connections it has anyway. As root outside: everything, as with every other part.
package cellnet

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

// Paths are where this machine has what is made. Those of Machine are the only ones that units and other parts know.
type Paths struct {
	Netns string // names of network namespaces, as ip-netns(8) has them; ends with a slash
	BPF   string // the file system of the pins; ends with a slash
	Slice string // cgroup of all cells, from the root
	// Workers is the cgroup of all workers.
	Workers string
	Group   string // who reads the pins that egress needs, besides root; none where there is no such group
}

// Machine is the machine's own.
var Machine = Paths{Netns: "/run/netns/", BPF: wire.BPFDir, Slice: "/doorward.slice/doorward-cells.slice",
	Workers: "/doorward.slice/doorward-workers.slice", Group: "doorward-egress"}

// Main runs `cellnet` with the words behind its name, and returns its exit code: 0, 1 with one line that says what failed, or 2
// for words that it does not know.
func Main(args []string, stdout, stderr io.Writer) int {
	unix.Umask(0o022) // a name in /run/netns is for all to see; pins have their mode from the kernel, and from share
	var err error
	switch {
	case len(args) == 1 && args[0] == "bpf":
		err = Machine.Gate()
	case len(args) == 1 && args[0] == "canary":
		err = Machine.Canary()
	case len(args) == 2 && args[0] == "canary" && args[1] == "workers":
		err = Machine.CanaryOfWorkers()
	case len(args) == 1 && args[0] == "report":
		err = Machine.Report(tellSentinel)
	case len(args) == 1 && args[0] == "counts":
		err = Machine.Counts(stdout)
	case len(args) == 2 && args[0] == "cell":
		err = Machine.Cell(args[1])
	case len(args) == 3 && args[0] == "cell" && args[2] == "--stop":
		err = Machine.StopCell(args[1])
	default:
		fmt.Fprintln(stderr, "usage: cellnet bpf | canary [workers] | report | counts | cell NAME [--stop]\n"+
			"Systemd runs it, see: man doorward")
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, "cellnet:", err)
		return 1
	}
	return 0
}

// Cell makes the network of a cell, or brings the one that is there to what this program would make.
//
// Preconditions: the gate is attached to the slice of cells; where it is not, nothing is made.
// Postconditions: the namespace has its name, lo alone is up in it, every address is local, and steering is attached to this very
// namespace. The listener's slot is as it was, and empty where there was none.
func (p Paths) Cell(name string) error {
	if err := wire.CellName(name); err != nil {
		return err
	}
	if err := p.gateHolds(); err != nil {
		return fmt.Errorf("make no network for cell %s without its walls: %w", name, err)
	}
	ns, named, err := p.namespace(name)
	if err != nil {
		return fmt.Errorf("make the network of cell %s: %w", name, err)
	}
	defer ns.Close()
	if err := within(ns, configure); err != nil {
		return fmt.Errorf("make the network of cell %s: %w", name, err)
	}
	if err := p.steer(name, ns); err != nil {
		return fmt.Errorf("steer the network of cell %s: %w", name, err)
	}
	if err := p.attribute(p.BPF+name+"/openers", ns); err != nil {
		return fmt.Errorf("have it told who connects in cell %s: %w", name, err)
	}
	if named {
		return nil
	}
	if err := p.name(name, ns); err != nil {
		return fmt.Errorf("make the network of cell %s: %w", name, err)
	}
	return nil
}

// StopCell takes the name of a cell's network away, and its pins. What still runs in the network keeps it, with lo alone and
// without steering, so that all it reaches is itself. What is gone already is no error.
func (p Paths) StopCell(name string) error {
	if err := wire.CellName(name); err != nil {
		return err
	}
	err := errors.Join(p.unname(name), p.forget(name)) // in this order: what has the name is steered, as canaries look
	if err != nil {
		return fmt.Errorf("remove the network of cell %s: %w", name, err)
	}
	return nil
}

// Counts writes what the programs have counted since the machine's start, and those of a cell since its own: one line each, of the
// gate or the cell, the reason and how often; see bpf/gate.c and bpf/steer.c.
func (p Paths) Counts(w io.Writer) error {
	gated, err := p.Gated()
	if err != nil {
		return err
	}
	if err := writeCounts(w, "gate", gated); err != nil {
		return err
	}
	denied, err := p.Denied()
	if err != nil {
		return err
	}
	if err := writeCounts(w, "workers", denied); err != nil {
		return err
	}
	if lsmRuns() {
		foreign, err := p.Foreign()
		if err != nil {
			return err
		}
		if err := writeCounts(w, "sessions", foreign); err != nil {
			return err
		}
	}
	cells, err := filepath.Glob(p.BPF + "*/steered")
	if err != nil {
		return err
	}
	for _, pin := range cells {
		cell := filepath.Base(filepath.Dir(pin))
		steered, err := p.Steered(cell)
		if err != nil {
			return err
		}
		if err := writeCounts(w, "cell "+cell, steered); err != nil {
			return err
		}
	}
	return nil
}

func writeCounts(w io.Writer, of string, counts map[string]uint64) error {
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		if _, err := fmt.Fprintf(w, "%s %s %d\n", of, reason, counts[reason]); err != nil {
			return err
		}
	}
	return nil
}

// netns is the name of a cell's network namespace.
func (p Paths) netns(cell string) string { return p.Netns + "doorward-" + cell }

// gid is the group of the pins' readers, or root's where this machine has none: then root alone reads them.
func (p Paths) gid() (int, error) {
	if p.Group == "" {
		return 0, nil
	}
	g, err := user.LookupGroup(p.Group)
	if errors.As(err, new(user.UnknownGroupError)) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look up the group %s: %w", p.Group, err)
	}
	return strconv.Atoi(g.Gid)
}

// share makes a path root's and the readers' group's, with that mode.
func (p Paths) share(path string, mode os.FileMode) error {
	gid, err := p.gid()
	if err != nil {
		return err
	}
	// The owner first: a mode is for whom the file is then.
	return errors.Join(os.Chown(path, 0, gid), os.Chmod(path, mode))
}
