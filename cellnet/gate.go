// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/doorward/doorward/bpf"
	"github.com/doorward/doorward/internal/peer"
	"golang.org/x/sys/unix"
)

// hook is where a program is attached, and the name that its link is pinned by.
type hook struct {
	program, pin string
	at           ebpf.AttachType
}

// hooks are the programs of the gate and where they are attached. Their links are pinned below the names of the programs with
// dashes, which no cell's name has.
var hooks = []hook{
	{bpf.GateProgGateSocket, "gate-socket", ebpf.AttachCGroupInetSockCreate},
	{bpf.GateProgGateConnect4, "gate-connect4", ebpf.AttachCGroupInet4Connect},
	{bpf.GateProgGateConnect6, "gate-connect6", ebpf.AttachCGroupInet6Connect},
	{bpf.GateProgGateSend4, "gate-send4", ebpf.AttachCGroupUDP4Sendmsg},
	{bpf.GateProgGateSend6, "gate-send6", ebpf.AttachCGroupUDP6Sendmsg},
	{bpf.GateProgGateOpened, "gate-opened", ebpf.AttachCGroupSockOps},
	{bpf.GateProgGateOption, "gate-option", ebpf.AttachCGroupSetsockopt},
	{bpf.GateProgGateOut, "gate-out", ebpf.AttachCGroupInetEgress},
	{bpf.GateProgGateIn, "gate-in", ebpf.AttachCGroupInetIngress},
}

// reasons are what the gate counts, in the order of enum gate of bpf/gate.c.
var reasons = []string{"tcp", "dns", "own", "socket", "host", "connect", "udp", "option", "out", "in", "header", "protocol",
	"no-storage", "no-packet", "no-entry", "unlogged"}

// Gate mounts the file system of the pins and attaches the gate to the slice of all cells.
//
// Preconditions: the slice is there, and stays: links die with their cgroup, and one that is made again has none. Cell refuses
// then.
func (p Paths) Gate() error {
	if err := p.gate(); err != nil {
		return fmt.Errorf("attach the gate to the slice of cells: %w", err)
	}
	return nil
}

func (p Paths) gate() error {
	slice, id, err := p.slice()
	if err != nil {
		return err
	}
	defer slice.Close()
	if err := p.mountPins(); err != nil {
		return err
	}
	spec, err := bpf.LoadGate()
	if err != nil {
		return err
	}
	host, err := cookie() // of the unit, which has none of its own
	if err != nil {
		return fmt.Errorf("tell the machine's own network from cells': %w", err)
	}
	if err := errors.Join(spec.Variables[bpf.GateVarHost].Set(host), spec.Variables[bpf.GateVarSlice].Set(id)); err != nil {
		return err
	}
	pins := map[string]string{bpf.GateMapOpeners: p.BPF + openersPin, bpf.GateMapOpening: p.BPF + "gate-opening",
		bpf.GateMapGated: p.BPF + "gate-counts", bpf.GateMapRefusals: p.BPF + refusalsPin}
	if err := load(spec, pins, func(coll *ebpf.Collection) error { return p.hang(hooks, coll, slice, id) }); err != nil {
		return err
	}
	if err := p.workers(); err != nil {
		return fmt.Errorf("leave workers no network: %w", err)
	}
	if err := p.lsm(); err != nil {
		return fmt.Errorf("refuse what sessions of cells may not: %w", err)
	}
	if err := p.sweep(pins); err != nil {
		return err
	}
	return p.canaryNetwork()
}

// hang attaches programs to a slice, of that id.
func (p Paths) hang(hooks []hook, coll *ebpf.Collection, slice *os.File, id uint64) error {
	for _, h := range hooks {
		prog := coll.Programs[h.program]
		on := func(i *link.Info) bool { return i.Cgroup() != nil && i.Cgroup().CgroupId == id }
		err := hold(p.BPF+h.pin, prog, on, func() (link.Link, error) {
			dir := "/proc/self/fd/" + strconv.Itoa(int(slice.Fd()))
			return link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: h.at, Program: prog})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep takes away what another version of Doorward pinned for all cells and this one does not have: its programs are replaced.
func (p Paths) sweep(pins map[string]string) error {
	ours := map[string]bool{canaryPin: true, workerCounts: true, lsmCounts: true}
	for _, h := range slices.Concat(hooks, workerHooks, lsmHooks) {
		ours[h.pin] = true
	}
	for _, path := range pins {
		ours[filepath.Base(path)] = true
	}
	all, err := os.ReadDir(p.BPF)
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.IsDir() || ours[e.Name()] || strings.Contains(e.Name(), ".") { // the kernel's own there have a dot
			continue
		}
		if err := os.Remove(p.BPF + e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// The canary's network, which stays, so that nobody keeps it from having one; and its own map of who opened what. No cell has a
// name that begins with a dash.
const (
	canaryNet = "-canary"
	canaryPin = "gate-canary"
)

// canaryNetwork makes the network in which the walls are tried, as a cell's is.
func (p Paths) canaryNetwork() error {
	ns, named, err := p.namespace(canaryNet)
	if err != nil {
		return fmt.Errorf("make the network of the canary: %w", err)
	}
	defer ns.Close()
	if err := errors.Join(within(ns, configure), p.attribute(p.BPF+canaryPin, ns)); err != nil {
		return fmt.Errorf("make the network of the canary: %w", err)
	}
	if named {
		return nil
	}
	return p.name(canaryNet, ns)
}

// gateHolds says whether every program of the gate is attached to the slice that is there now.
func (p Paths) gateHolds() error {
	if err := p.needPins(); err != nil {
		return err
	}
	return p.hangs(hooks, p.Slice)
}

// hangs says whether programs are attached to the slice that is there now.
func (p Paths) hangs(hooks []hook, cgroup string) error {
	slice, id, err := openSlice(cgroup)
	if err != nil {
		return err
	}
	_ = slice.Close()
	for _, h := range hooks {
		l, err := link.LoadPinnedLink(p.BPF+h.pin, nil)
		if errors.Is(err, os.ErrNotExist) { // as at an upgrade, until that unit has restarted
			return untried{fmt.Errorf("the program %s is not there; restart doorward-bpf.service: %w", h.pin, err)}
		}
		if err != nil {
			return fmt.Errorf("open the program %s: %w", h.pin, err)
		}
		info, err := l.Info()
		_ = l.Close()
		if err != nil {
			return fmt.Errorf("look at the program %s: %w", h.pin, err)
		}
		if c := info.Cgroup(); c == nil || c.CgroupId != id || uint32(c.AttachType) != uint32(h.at) {
			return fmt.Errorf("the program %s is not on its slice, which was made again: restart doorward-bpf.service", h.pin)
		}
	}
	return nil
}

// slice opens the cgroup of the slice of cells and tells its id.
func (p Paths) slice() (*os.File, uint64, error) { return openSlice(p.Slice) }

func openSlice(cgroup string) (*os.File, uint64, error) {
	k, err := peer.Open() // it finds the mount of cgroup2
	if err != nil {
		return nil, 0, err
	}
	defer k.Close()
	dir, err := k.Cgroup(cgroup)
	if err != nil {
		return nil, 0, fmt.Errorf("open the cgroup %s; start %s: %w", cgroup, path.Base(cgroup), err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		_ = dir.Close()
		return nil, 0, err
	}
	return dir, st.Ino, nil
}

// cookie is the number of the network namespace that the thread is in. It asks a socket of netlink: the one family that all
// units which get here may use.
func cookie() (uint64, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	return unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
}

// openersPin is the map of maps by which the gate finds, for a network, where to write down who opens connections in it.
const openersPin = "gate-openers"

// attribute has the gate write down who opens connections in the network ns, in a map pinned at pin, which the readers' group may
// read and nobody may write but the gate.
func (p Paths) attribute(pin string, ns *os.File) error {
	spec, err := bpf.LoadGate()
	if err != nil {
		return err
	}
	net := uint64(0)
	if err := within(ns, func() (err error) { net, err = cookie(); return err }); err != nil {
		return fmt.Errorf("ask for the network's number: %w", err)
	}
	all, err := ebpf.LoadPinnedMap(p.BPF+openersPin, nil)
	if err != nil {
		return fmt.Errorf("open the gate's map; restart doorward-bpf.service: %w", err)
	}
	defer all.Close()
	m, err := shaped(spec.Maps[bpf.GateMapOpeners].InnerMap, pin)
	if err != nil {
		return err
	}
	fresh := m == nil
	if fresh {
		if m, err = ebpf.NewMap(spec.Maps[bpf.GateMapOpeners].InnerMap); err != nil {
			return err
		}
	}
	defer m.Close()
	if err := freeze(m); err != nil {
		return err
	}
	if err := all.Put(net, m); err != nil {
		return fmt.Errorf("name it to the gate: %w", err)
	}
	if fresh {
		if err := pinOver(m, pin); err != nil {
			return err
		}
	}
	return p.share(pin, 0o640) // root opens it for writing, which freeze forbids, to run again
}

// unattribute has the gate forget the map that is pinned at pin, whichever network it was of.
func (p Paths) unattribute(pin string) error {
	m, err := ebpf.LoadPinnedMap(pin, &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return err
	}
	id, ok := info.ID()
	if !ok {
		return errors.New("the kernel does not number maps")
	}
	all, err := ebpf.LoadPinnedMap(p.BPF+openersPin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer all.Close()
	var net uint64
	var of uint32
	for i := all.Iterate(); i.Next(&net, &of); {
		if of != uint32(id) {
			continue
		}
		if err := all.Delete(net); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		return nil
	}
	return nil
}

// freeze has the kernel take no more writes to a map but those of programs: nobody who may read it can make entries up.
func freeze(m *ebpf.Map) error {
	info, err := m.Info()
	if err != nil {
		return err
	}
	if info.Frozen() {
		return nil
	}
	if err := m.Freeze(); err != nil {
		return fmt.Errorf("make the map %s read-only: %w", info.Name, err)
	}
	return nil
}

// Gated reads how often the gate passed and refused what, by the name of the reason, on all processors.
func (p Paths) Gated() (map[string]uint64, error) { return counts(p.BPF+"gate-counts", reasons) }

// refusalsPin is the log of all programs' refusals.
const refusalsPin = "refusals"

// Refusal is one line of the log.
type Refusal struct {
	Boot    time.Duration // since boot
	Why     string        // one of those of Gated, of Denied behind "worker-", or of Foreign behind "foreign-"
	Unit    uint64        // cgroup of the unit of the cell or worker, or 0
	PID     uint32        // of the task, as the machine numbers it; 0 for a packet
	Program string        // its comm, which the cell chooses; empty for a packet
	Family  uint16        // AF_, or 0 for an option
	To      netip.AddrPort
	Type    uint16 // SOCK_, or the level of an option
	Proto   uint32 // IPPROTO_, or the option's number
}

// Refusals reads the log.
type Refusals struct{ r *ringbuf.Reader }

// OpenRefusals opens the log. Each line is read once, by one reader; with two, each gets some.
func (p Paths) OpenRefusals() (*Refusals, error) {
	m, err := ebpf.LoadPinnedMap(p.BPF+refusalsPin, nil)
	if err != nil {
		return nil, fmt.Errorf("open the log of refusals: %w", err)
	}
	defer m.Close() // the reader has it too
	r, err := ringbuf.NewReader(m)
	if err != nil {
		return nil, fmt.Errorf("open the log of refusals: %w", err)
	}
	return &Refusals{r}, nil
}

// Close ends Next.
func (r *Refusals) Close() error { return r.r.Close() }

// Next waits for a line. Behind Close it is io.EOF.
func (r *Refusals) Next() (Refusal, error) {
	rec, err := r.r.Read()
	if errors.Is(err, ringbuf.ErrClosed) {
		return Refusal{}, io.EOF
	}
	if err != nil {
		return Refusal{}, fmt.Errorf("read the log of refusals: %w", err)
	}
	return parseRefusal(rec.RawSample)
}

// walls are whose refusals are logged, in the order of enum wall of bpf/headers/refusals.h.
var walls = []struct {
	name    string
	reasons []string
}{{"", reasons}, {"worker-", denials}, {"foreign-", foreigns}}

// parseRefusal reads struct refusal of bpf/headers/refusals.h.
func parseRefusal(b []byte) (Refusal, error) {
	var raw bpf.GateRefusal
	if n, err := binary.Decode(b, binary.NativeEndian, &raw); err != nil || n != len(b) || int(raw.Wall) >= len(walls) ||
		int(raw.Why) >= len(walls[raw.Wall].reasons) {
		return Refusal{}, fmt.Errorf("read the log of refusals: a line of %d bytes that this program does not know", len(b))
	}
	comm := make([]byte, 0, len(raw.Comm))
	for _, c := range raw.Comm {
		comm = append(comm, byte(c))
	}
	comm, _, _ = bytes.Cut(comm, []byte{0})
	wall := walls[raw.Wall]
	out := Refusal{Boot: time.Duration(raw.When), Why: wall.name + wall.reasons[raw.Why], Unit: raw.Unit, PID: raw.Tgid,
		Program: string(bytes.ToValidUTF8(comm, []byte("\uFFFD"))), Family: raw.Family, Type: raw.Type, Proto: raw.Proto}
	if at := netip.AddrFrom16(raw.Addr).Unmap(); !at.IsUnspecified() || raw.Port != 0 {
		out.To = netip.AddrPortFrom(at, raw.Port)
	}
	return out, nil
}
