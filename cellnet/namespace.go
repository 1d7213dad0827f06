// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

// namespace opens the network namespace of a cell, and makes one, which has no name yet, where there is none of the name.
func (p Paths) namespace(cell string) (ns *os.File, named bool, err error) {
	ns, err = openNamespace(p.netns(cell))
	if !errors.Is(err, errNoNamespace) {
		return ns, true, err
	}
	err = inThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return ns, false, err
}

// name gives a network namespace a cell's name: a mount of it on a file, as `ip netns add` makes it (ip-netns(8)), which is what
// NetworkNamespacePath= of units takes. It is the last step: what has the name is whole.
func (p Paths) name(cell string, ns *os.File) error {
	if err := os.MkdirAll(p.Netns, 0o755); err != nil {
		return err
	}
	name := p.netns(cell)
	// A file that is no namespace is what a run that was interrupted left, or a reboot.
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDONLY|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return err
	}
	_ = f.Close()
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()), name, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("name it %s: %w", name, err)
	}
	return nil
}

var errNoNamespace = errors.New("no network namespace has that name")

// openNamespace opens a network namespace by its name. Anything else under it is errNoNamespace.
func openNamespace(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNoNamespace
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.NSFS_MAGIC {
		_ = f.Close()
		return nil, errors.Join(errNoNamespace, err)
	}
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		_ = f.Close()
		return nil, fmt.Errorf("%s is a namespace of another kind (%#x): %w", name, kind, errors.Join(err, os.ErrInvalid))
	}
	return f, nil
}

// unname takes the name of a cell's namespace away.
func (p Paths) unname(cell string) error {
	name := p.netns(cell)
	// Once is not enough where two runs mounted one over the other.
	for {
		err := unix.Unmount(name, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // it is no mount, or nothing
			break
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", name, err)
		}
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// inThread runs f in a thread of its own, which ends with it: a thread that was in another namespace is of no use to others.
func inThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- f()
	}()
	return <-done
}

// within runs f in a network namespace.
func within(ns *os.File, f func() error) error {
	return inThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// configure makes the namespace that the thread is in a cell's: lo is up and has addresses, every address of both families is
// local, and there is no other way. A way that somebody else made is an error; it would lead past steering.
func configure() error {
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	for _, l := range links {
		// Modules of tunnels make an interface in each new namespace, down; with no right to change it that leads nowhere.
		if l.Name != "lo" && l.Flags&net.FlagUp != 0 {
			return fmt.Errorf("the network has the interface %q up, and must have none but lo: end what made it, and the cell", l.Name)
		}
	}
	if err := loUp(); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	for _, a := range ownAddresses {
		if err := address(a); err != nil {
			return fmt.Errorf("give lo the address %v: %w", a, err)
		}
	}
	if err := localRoute(unix.AF_INET); err != nil {
		return fmt.Errorf("make every address of IPv4 local: %w", err)
	}
	if err := localRoute(unix.AF_INET6); err != nil {
		return fmt.Errorf("make every address of IPv6 local: %w", err)
	}
	return nil
}

const loIndex = 1 // in every network namespace

// ownAddresses are lo's, besides those of loopback: programs that ask for addresses of a family only where the machine has one
// itself (AI_ADDRCONFIG of getaddrinfo(3)) do not count loopback's, and would get none. They are the first of the two ranges of
// which names get addresses, and no name's.
var ownAddresses = []netip.Addr{netip.MustParseAddr(wire.Gate4), netip.MustParseAddr(wire.Gate6)}

// loUp is `ip link set lo up` (rtnetlink(7), struct ifinfomsg).
func loUp() error {
	body := []byte{unix.AF_UNSPEC, 0, 0, 0}                            // family, padding, type
	for _, word := range []uint32{loIndex, unix.IFF_UP, unix.IFF_UP} { // flags, and which of them change
		body = binary.NativeEndian.AppendUint32(body, word)
	}
	return rtnetlink(unix.RTM_NEWLINK, 0, body)
}

// address is `ip address add A dev lo nodad` (struct ifaddrmsg); one that is there already is what was wanted.
func address(a netip.Addr) error {
	family := uint8(unix.AF_INET6)
	if a.Is4() {
		family = unix.AF_INET
	}
	body := []byte{family, uint8(a.BitLen()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	body = binary.NativeEndian.AppendUint32(body, loIndex)
	for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		body = binary.NativeEndian.AppendUint16(body, uint16(4+a.BitLen()/8))
		body = binary.NativeEndian.AppendUint16(body, kind)
		body = append(body, a.AsSlice()...)
	}
	return unlessThere(rtnetlink(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body))
}

func unlessThere(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// localRoute is `ip route add local default dev lo` (struct rtmsg); a route that is there already is what was wanted.
func localRoute(family uint8) error {
	// family, lengths of destination and source, TOS, table, protocol, scope, type, flags
	body := []byte{family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	body = binary.NativeEndian.AppendUint16(body, 8)
	body = binary.NativeEndian.AppendUint16(body, unix.RTA_OIF)
	body = binary.NativeEndian.AppendUint32(body, loIndex)
	return unlessThere(rtnetlink(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body))
}

// rtnetlink asks the kernel for one change in the namespace of the thread (netlink(7)), and waits for its answer.
func rtnetlink(kind, flags uint16, body []byte) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	msg = binary.NativeEndian.AppendUint64(msg, 0) // sequence and port
	if err := unix.Sendto(s, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer is no acknowledgement")
	}
	if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:]))); errno != 0 {
		return errno
	}
	return nil
}
