// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/doorward/doorward/bpf"
	"github.com/doorward/doorward/cellnet/openers"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

// A canary is an attempt that a wall has to refuse, made where a cell would make it: by a process below the slice of cells. It
// proves of this kernel, today, that the programs run and refuse. That they are attached is not enough: a program may load and
// attach and never run.
type canary struct {
	name string
	why  string // what the gate counts for it
	try  func() error
}

// canaries are tried in a network of their own that is made as a cell's is.
var canaries = []canary{
	{"a socket of Multipath TCP or UDP-Lite", "socket", func() error {
		err := closed(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP))
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ENOPROTOOPT) { // built without it, or switched off
			err = closed(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE))
		}
		return err
	}},
	{"UDP to port 443", "udp", func() error { return udpTo(netip.MustParseAddrPort("198.18.0.9:443"), nil) }},
	{"UDP of IPv6 to port 443", "udp", func() error { return udpTo(netip.MustParseAddrPort("[2001:db8::9]:443"), nil) }},
	{"a source route", "option", func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("make a socket: %v", err) // of TCP, which is no refusal that is wanted
		}
		defer unix.Close(s)
		return unix.SetsockoptString(s, unix.SOL_IP, unix.IP_OPTIONS, string(looseRoute))
	}},
	{"an option with a message", "header", func() error { return udpTo(netip.MustParseAddrPort("127.0.0.1:53"), recordRoute) }},
}

// looseRoute is a source route by 198.18.0.9 and recordRoute has room for one address (RFC 791, options 131 and 7), each behind a
// no-operation so that it ends at a word. With a message, the kernel gives the first to nobody without CAP_NET_RAW (seen on 6.18).
// The canary's unit has it, so that not the kernel itself refuses what the gate is to refuse.
var (
	looseRoute  = []byte{1, 131, 7, 4, 198, 18, 0, 9}
	recordRoute = []byte{1, 7, 7, 4, 0, 0, 0, 0}
)

func closed(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// udpTo sends one message without connect, with IP options where there are any.
func udpTo(to netip.AddrPort, options []byte) error {
	family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	s, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %v", err)
	}
	defer unix.Close(s)
	var oob []byte
	if options != nil {
		oob = ancillary(unix.SOL_IP, unix.IP_RETOPTS, options)
	}
	return unix.Sendmsg(s, []byte("canary"), oob, at, 0)
}

// untried: the canary could not try what it was to try, for want of something that a machine under load may want.
type untried struct{ error }

func (u untried) Unwrap() error { return u.error }

// Canary tries the walls, and freezes every cell where they do not hold. Where that cannot be told, because it could not be tried
// or because the canary was ended (see Report), cells are frozen when it fails so the second time in a row. A cell that was frozen
// so is not let go by anybody: sockets that it opened meanwhile may be behind no wall. It is stopped and started again.
func (p Paths) Canary() error {
	k, err := peer.Open()
	if err != nil {
		return err
	}
	defer k.Close()
	id, unit, err := ownCgroup(k, p.Slice)
	if err != nil {
		return err
	}
	return p.sing(markTrying, unit, "cells", func() error { return p.canary(id, unit) })
}

// sing has a canary try, counted by a mark of its own.
func (p Paths) sing(mark string, unit uint64, around string, try func() error) error {
	times, err := p.begin(mark, unit)
	if err == nil {
		err = try()
	}
	if err == nil {
		return p.mark(mark, "")
	}
	if errors.As(err, new(untried)) && times < failures {
		return fmt.Errorf("the walls around %s could not be tried; if that fails again all cells are frozen: %w", around, err)
	}
	err = fmt.Errorf("the walls around %s do not hold, so all cells are frozen: %w", around, err)
	return errors.Join(err, p.freezeCells(), p.mark(markSaid, err.Error()))
}

// failures in a row freeze the cells, where the canary could not tell.
const failures = 2

// Marks at the slice of cells, which are gone with it.
const (
	markTrying        = "trusted.doorward.trying" // how many canaries in a row have begun and not said that the walls hold
	markTryingWorkers = "trusted.doorward.trying-workers"
	markSaid          = "trusted.doorward.said" // what the last one said that froze the cells, until Report has told it
	markOwn           = "trusted.doorward.own"  // cgroups of canaries since the last Report, whose refusals are nobody's
	maxMark           = wire.MaxWallReason      // bytes of each
)

// begin counts the canary that begins, in the unit whose cgroup has that id.
func (p Paths) begin(mark string, unit uint64) (times int, err error) {
	own, err := p.marked(markOwn)
	if err != nil {
		return failures, err
	}
	if own = strings.TrimSpace(own + " " + strconv.FormatUint(unit, 10)); len(own) <= maxMark {
		if err := p.mark(markOwn, own); err != nil {
			return failures, err
		}
	}
	s, err := p.marked(mark)
	if err != nil {
		return failures, err
	}
	if s != "" {
		if times, err = strconv.Atoi(s); err != nil {
			return failures, err
		}
	}
	times = min(times+1, failures)
	return times, p.mark(mark, strconv.Itoa(times))
}

// mark sets a mark at the slice, or takes it away.
func (p Paths) mark(name, value string) error {
	dir, _, err := p.slice()
	if err != nil {
		return err
	}
	defer dir.Close()
	if value == "" {
		if err := unix.Fremovexattr(int(dir.Fd()), name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("take the mark %s from the slice of cells: %w", name, err)
		}
		return nil
	}
	if err := unix.Fsetxattr(int(dir.Fd()), name, []byte(value[:min(len(value), maxMark)]), 0); err != nil {
		return fmt.Errorf("set the mark %s at the slice of cells: %w", name, err)
	}
	return nil
}

// marked reads a mark; empty where there is none.
func (p Paths) marked(name string) (string, error) {
	dir, _, err := p.slice()
	if err != nil {
		return "", err
	}
	defer dir.Close()
	b := make([]byte, maxMark)
	n, err := unix.Fgetxattr(int(dir.Fd()), name, b)
	if errors.Is(err, unix.ENODATA) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the mark %s of the slice of cells: %w", name, err)
	}
	return string(b[:n]), nil
}

func (p Paths) canary(id, unit uint64) error {
	if err := p.gateHolds(); err != nil {
		return err
	}
	if err := p.steeringHolds(); err != nil {
		return err
	}
	if lsmRuns() {
		if err := p.lsmHolds(); err != nil {
			return err
		}
		if id == unit { // which is no session's place, where nothing is refused
			return untried{errors.New("it runs in its unit's own cgroup, and is to run one below (DelegateSubgroup=)")}
		}
		for _, c := range lsmCanaries {
			if err := refuses(c, p.Foreign); err != nil {
				return err
			}
		}
	}
	host := canary{"a socket in the machine's own network", "host", func() error {
		return closed(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	}}
	if err := refuses(host, p.Gated); err != nil {
		return err
	}
	ns, err := openNamespace(p.netns(canaryNet))
	if err != nil {
		return untried{fmt.Errorf("open the canaries' network, which doorward-bpf.service makes: %w", err)}
	}
	defer ns.Close()
	return within(ns, func() error {
		if err := configure(); err != nil {
			return untried{err}
		}
		for _, c := range canaries {
			if err := refuses(c, p.Gated); err != nil {
				return err
			}
		}
		return p.steersAndTells(id)
	})
}

// refuses tries one canary, whose refusal counted is to tell.
func refuses(c canary, counted func() (map[string]uint64, error)) error {
	before, err := counted()
	if err != nil {
		return err
	}
	err = c.try()
	for _, wants := range []error{unix.ENOMEM, unix.ENOBUFS, unix.EMFILE, unix.ENFILE, unix.EAGAIN} {
		if errors.Is(err, wants) {
			return untried{fmt.Errorf("try %s: %w", c.name, err)}
		}
	}
	if !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%s got through (%v)", c.name, err)
	}
	after, err := counted()
	if err != nil {
		return err
	}
	if after[c.why] == before[c.why] {
		return fmt.Errorf("%s was refused, but not by the gate", c.name)
	}
	return nil
}

// steersAndTells is what has to work: in the network of the thread a connection comes to the listener in the slot, as what it was
// to, and is known to be of this process's cgroup.
func (p Paths) steersAndTells(cgroup uint64) error {
	spec, err := bpf.LoadSteer()
	if err != nil {
		return untried{err}
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return untried{fmt.Errorf("load steering: %w", err)}
	}
	defer coll.Close()
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return untried{err}
	}
	defer ns.Close()
	l, err := link.AttachNetNs(int(ns.Fd()), coll.Programs[bpf.SteerProgSteer])
	if err != nil {
		return untried{fmt.Errorf("steer the canaries' network: %w", err)}
	}
	defer l.Close()
	who, err := openers.Open(p.BPF + canaryPin)
	if err != nil {
		return err
	}
	defer who.Close()
	ln, err := listenInThread()
	if err != nil {
		return untried{fmt.Errorf("listen in the canaries' network: %w", err)}
	}
	defer ln.Close()
	raw, err := ln.SyscallConn()
	if err != nil {
		return err
	}
	var put error
	err = raw.Control(func(fd uintptr) { put = coll.Maps[bpf.SteerMapListener].Put(uint32(0), uint64(fd)) })
	if err = errors.Join(err, put); err != nil {
		return untried{fmt.Errorf("put the canaries' listener into its slot: %w", err)}
	}
	before, err := p.Gated()
	if err != nil {
		return err
	}
	for _, to := range []string{"198.18.0.9:443", "[2001:db8::9]:443"} {
		if err := arrives(ln, who, netip.MustParseAddrPort(to), cgroup); err != nil {
			err = fmt.Errorf("connect to %s: %w", to, err)
			// A machine without memory is no wall that is gone; the counters are all cells', so twice in a row it is none either.
			after, bad := p.Gated()
			if bad == nil && after["no-storage"] != before["no-storage"] {
				return untried{err}
			}
			return err
		}
	}
	return nil
}

// listenInThread is a listener in the network of the thread, as systemd makes egress's.
func listenInThread() (*net.TCPListener, error) {
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(s), "canary")
	defer f.Close() // FileListener has its own
	if err := errors.Join(unix.SetsockoptInt(s, unix.SOL_IPV6, unix.IPV6_V6ONLY, 0), unix.Listen(s, 8)); err != nil {
		return nil, err
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil
}

func arrives(ln *net.TCPListener, who *openers.Openers, to netip.AddrPort, cgroup uint64) error {
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to)) // an address, so in this thread
	if err != nil {
		return err
	}
	defer c.Close()
	if err := ln.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	s, err := ln.AcceptTCP()
	if err != nil {
		return untried{err}
	}
	defer s.Close()
	have := s.LocalAddr().(*net.TCPAddr).AddrPort()
	if have = netip.AddrPortFrom(have.Addr().Unmap(), have.Port()); have != to {
		return fmt.Errorf("it arrives as %v", have)
	}
	task, err := who.Of(s)
	if err != nil {
		return err
	}
	if task.Cgroup != cgroup {
		return fmt.Errorf("it is told to be of cgroup %d, and is of %d", task.Cgroup, cgroup)
	}
	return nil
}

// ownCgroup is the id of the cgroup that this process is in, which has to be below slice, and that of its unit's, the first below.
func ownCgroup(k *peer.Kernel, slice string) (own, unit uint64, err error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok || !strings.HasPrefix(path, slice+"/") {
			continue
		}
		if own, err = cgroupID(k, path); err != nil {
			return 0, 0, err
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(path, slice+"/"), "/")
		unit, err = cgroupID(k, slice+"/"+first)
		return own, unit, err
	}
	return 0, 0, errNotInSlice
}

func cgroupID(k *peer.Kernel, path string) (uint64, error) {
	dir, err := k.Cgroup(path)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	var st unix.Stat_t
	err = unix.Fstat(int(dir.Fd()), &st)
	return st.Ino, err
}

// steeringHolds says whether steering is attached to each cell's network that has a name.
func (p Paths) steeringHolds() error {
	names, err := filepath.Glob(p.netns("*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		cell := strings.TrimPrefix(name, p.netns(""))
		if wire.CellName(cell) != nil {
			continue // of somebody else
		}
		ns, err := openNamespace(name)
		if errors.Is(err, errNoNamespace) {
			continue // it is being taken away
		}
		if err != nil {
			return err
		}
		var st unix.Stat_t
		err = unix.Fstat(int(ns.Fd()), &st)
		_ = ns.Close()
		if err != nil {
			return err
		}
		if err := attachedTo(p.BPF+cell+"/steer", st.Ino); err != nil {
			if _, gone := openNamespace(name); errors.Is(gone, errNoNamespace) {
				continue
			}
			return fmt.Errorf("cell %s is not steered: %w", cell, err)
		}
	}
	return nil
}

func attachedTo(pin string, netns uint64) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return err
	}
	if n := info.NetNs(); n == nil || uint64(n.NetnsInode) != netns {
		return errors.New("its program is on another network")
	}
	return nil
}

// canaryMark is at the cgroup of a cell that was frozen by a canary; see package cells for those of others.
const canaryMark = "trusted.doorward.canary"

// freezeCells freezes every cell there is, and goes on where one fails.
func (p Paths) freezeCells() error {
	slice, _, err := p.slice()
	if errors.Is(err, os.ErrNotExist) {
		return nil // and so no cell
	}
	if err != nil {
		return err
	}
	defer slice.Close()
	units, err := slice.Readdirnames(-1)
	for _, unit := range units {
		if !strings.HasPrefix(unit, "doorward-cell@") {
			continue
		}
		if bad := freezeUnit(slice, unit); bad != nil && !errors.Is(bad, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("freeze %s: %w", unit, bad))
		}
	}
	return err
}

func freezeUnit(slice *os.File, unit string) error {
	dir, err := unix.Openat(int(slice.Fd()), unit, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	marked := unix.Fsetxattr(dir, canaryMark, []byte("1"), 0)
	f, err := unix.Openat(dir, "cgroup.freeze", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(marked, err)
	}
	defer unix.Close(f)
	_, err = unix.Write(f, []byte("1"))
	return errors.Join(marked, err)
}

// ancillary is one control message (cmsg(3)).
func ancillary(level, kind int32, data []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(len(data)))
	copy(b[unix.CmsgLen(0):], data)
	return b
}
