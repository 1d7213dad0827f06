// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// probeEnv has this program be a probe: a process in a cell that tries the attempt of that name, waits until its standard input
// ends, and ends. What came of the attempt is its first line.
const probeEnv = "DOORWARD_CELLNET_PROBE"

// said is what a probe says.
type said struct {
	Errno syscall.Errno
	Where string // what failed
	Took  time.Duration
}

// attempt is one way to send something.
type attempt struct {
	name string
	try  func() error
	seen string // what a sniffer sees of it where there is no wall: protocol and destination; see outside.left
	// errno is what the gate answers; 0 where it lets the call through and drops the packet.
	errno syscall.Errno
	// why is what the gate counts.
	why string
	// absent are answers of a kernel that has no such thing, where the attempt is nothing.
	absent []syscall.Errno
}

// probe is TestMain of a probe.
func probe(name string) {
	runtime.LockOSThread()
	var s said
	var err error
	if os.Geteuid() == 0 {
		err = unix.Setns(3, unix.CLONE_NEWNET)
	}
	if err == nil {
		err = fmt.Errorf("there is no attempt %q", name)
		for _, a := range slices.Concat(attempts, others) {
			if a.name == name {
				begun := time.Now()
				err = a.try()
				s.Took = time.Since(begun)
			}
		}
	}
	if err != nil {
		s.Where = err.Error()
		if !errors.As(err, &s.Errno) {
			s.Errno = unix.ENOTRECOVERABLE
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(s)
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// child is a probe that runs.
type child struct {
	said
	cmd    *exec.Cmd
	stdin  *os.File
	cgroup uint64
}

// end has the probe end; until then its sockets stay.
func (c *child) end() {
	_ = c.stdin.Close()
	_ = c.cmd.Wait()
}

// probeIn starts a probe in a cgroup and a network namespace, and waits for what it says.
func probeIn(t testing.TB, cgroup string, ns *os.File, name string) *child {
	t.Helper()
	return probeAs(t, cgroup, ns, name, nil)
}

// probeAs starts it as another user, with no capability. words are for the attempt.
func probeAs(t testing.TB, cgroup string, ns *os.File, name string, as *syscall.Credential, words ...string) *child {
	t.Helper()
	if _, err := ground.MakeCgroup(cgroup); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(filepath.Join(ground.Cgroup, cgroup))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := &child{cmd: exec.Command("/proc/self/exe"), stdin: w, cgroup: st.Ino}
	c.cmd.Env = append(os.Environ(), probeEnv+"="+name)
	c.cmd.Args = append(c.cmd.Args, words...)
	c.cmd.Stdin, c.cmd.Stderr, c.cmd.ExtraFiles = r, os.Stderr, []*os.File{ns}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Credential: as}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	if err := json.NewDecoder(out).Decode(&c.said); err != nil {
		t.Fatalf("the probe %s says nothing: %v", name, err)
	}
	return c
}

// ---- the attempts ----

func socket(family, kind, proto int) (int, error) {
	s, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	return s, nil // and it stays open until the probe ends
}

func connect(s int, to string) error {
	_, at := sockaddr(to)
	if err := unix.Connect(s, at); err != nil && err != unix.EINPROGRESS {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// open is the plain way: socket, connect and, but for a stream, write.
func open(family, kind, proto int, to string) func() error {
	return func() error {
		s, err := socket(family, kind, proto)
		if err != nil {
			return err
		}
		if err := connect(s, to); err != nil || kind == unix.SOCK_STREAM {
			return err
		}
		return write(s)
	}
}

func write(s int) error {
	if _, err := unix.Write(s, []byte{8, 0, 0, 0, 0, 0, 0, 0, 'd', 'w'}); err != nil { // an echo request, where it is ICMP
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// send is sendto(2) on a new socket, to an address of which every byte can be chosen.
func send(family, kind, proto, flags int, raw []byte) func() error {
	return func() error {
		s, err := socket(family, kind, proto)
		if err != nil {
			return err
		}
		data := []byte("hello")
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(s), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(flags),
			uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw)))
		if errno != 0 && errno != unix.EINPROGRESS {
			return fmt.Errorf("sendto: %w", errno)
		}
		return nil
	}
}

// raw4 and raw6 are struct sockaddr_in and sockaddr_in6, with any family.
func raw4(family uint16, to string) []byte {
	at := netip.MustParseAddrPort(to)
	b := binary.NativeEndian.AppendUint16(nil, family)
	b = binary.BigEndian.AppendUint16(b, at.Port())
	b = append(b, at.Addr().AsSlice()...)
	return append(b, make([]byte, 8)...)
}

func raw6(to string) []byte {
	at := netip.MustParseAddrPort(to)
	a := at.Addr().As16()
	b := binary.NativeEndian.AppendUint16(nil, unix.AF_INET6)
	b = binary.BigEndian.AppendUint16(b, at.Port())
	b = append(b, 0, 0, 0, 0)
	b = append(b, a[:]...)
	return append(b, 0, 0, 0, 0)
}

// fastOpenConnect is TCP_FASTOPEN_CONNECT: connect only notes where to, the first write sends.
func fastOpenConnect(to string) func() error {
	return func() error {
		s, err := socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(s, unix.SOL_TCP, unix.TCP_FASTOPEN_CONNECT, 1); err != nil {
			return fmt.Errorf("setsockopt: %w", err)
		}
		if err := connect(s, to); err != nil {
			return err
		}
		if err := write(s); err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
		return nil
	}
}

const setupSQPoll = 1 << 1 // IORING_SETUP_SQPOLL: a thread of the kernel submits

// uring connects by io_uring (io_uring_setup(2), io_uring_enter(2)): no system call connect is made.
func uring(flags uint32, to string) func() error {
	return func() error {
		s, err := socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		// struct io_uring_params: sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd, resv[3], and the
		// offsets of the two rings, ten words each.
		var p [30]uint32
		p[2] = flags
		ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p[0])), 0)
		if errno != 0 {
			return fmt.Errorf("io_uring_setup: %w", errno)
		}
		sq, err := unix.Mmap(int(ring), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return fmt.Errorf("map the ring: %w", err)
		}
		sqe, err := unix.Mmap(int(ring), 0x10000000, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return fmt.Errorf("map the entries: %w", err)
		}
		at := raw4(unix.AF_INET, to)
		var pin runtime.Pinner // the kernel reads it later
		pin.Pin(&at[0])
		sqe[0] = 16                                                                      // IORING_OP_CONNECT
		binary.NativeEndian.PutUint32(sqe[4:], uint32(s))                                // fd
		binary.NativeEndian.PutUint64(sqe[8:], uint64(len(at)))                          // off: the address's length
		binary.NativeEndian.PutUint64(sqe[16:], uint64(uintptr(unsafe.Pointer(&at[0])))) // addr
		word := func(i int) *uint32 { return (*uint32)(unsafe.Pointer(&sq[p[i]])) }
		*word(10 + 6) = 0                 // sq_off.array
		atomic.StoreUint32(word(10+1), 1) // sq_off.tail
		const wakeUp, submitted = 2, 1    // IORING_ENTER_SQ_WAKEUP
		enter := uintptr(0)
		if flags&setupSQPoll != 0 {
			enter = wakeUp
		}
		if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, ring, submitted, 0, enter, 0, 0); errno != 0 {
			return fmt.Errorf("io_uring_enter: %w", errno)
		}
		for atomic.LoadUint32(word(10)) == 0 { // sq_off.head: until it is taken
			runtime.Gosched()
		}
		return nil
	}
}

// again connects to one address, takes it back with AF_UNSPEC, and connects the same socket to another.
func again(first, second string) func() error {
	return func() error {
		s, err := socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := connect(s, first); err != nil {
			return err
		}
		none := make([]byte, 16)
		if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(s), uintptr(unsafe.Pointer(&none[0])), 16); errno != 0 {
			return fmt.Errorf("disconnect: %w", errno)
		}
		return connect(s, second)
	}
}

// withOption sets an option, then connects, and writes where it is UDP.
func withOption(family, kind, level, name int, value []byte, to string) func() error {
	return func() error {
		s, err := socket(family, kind, 0)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptString(s, level, name, string(value)); err != nil {
			return fmt.Errorf("setsockopt: %w", err)
		}
		if err := connect(s, to); err != nil || kind == unix.SOCK_STREAM {
			return err
		}
		return write(s)
	}
}

// withMessage gives the same option with one message of UDP.
func withMessage(family, level, name int, value []byte, to string) func() error {
	return func() error {
		s, err := socket(family, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		oob := make([]byte, unix.CmsgSpace(len(value)))
		h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
		h.Level, h.Type = int32(level), int32(name)
		h.SetLen(unix.CmsgLen(len(value)))
		copy(oob[unix.CmsgLen(0):], value)
		_, at := sockaddr(to)
		if err := unix.Sendmsg(s, []byte("hello"), oob, at, 0); err != nil {
			return fmt.Errorf("sendmsg: %w", err)
		}
		return nil
	}
}

// sourceRoute is the option "loose source and record route" of RFC 791, by way of a router: the packet goes there first.
func sourceRoute(by string) []byte {
	hop := netip.MustParseAddr(by).As4()
	return append([]byte{1, 131, 7, 4}, hop[:]...) // no operation, so that it ends at a word
}

// routing is a routing header for segments (RFC 8754), homeward one of type 2 (RFC 6275), the one kind that Linux takes with a
// message; padding is an extension header with nothing but padding in it.
var (
	routing  = bytes.Join([][]byte{{0, 2, 4, 0, 0, 0, 0, 0}, netip.MustParseAddr("2001:db8:f::9").AsSlice()}, nil)
	homeward = bytes.Join([][]byte{{0, 2, 2, 1, 0, 0, 0, 0}, netip.MustParseAddr("2001:db8:f::9").AsSlice()}, nil)
	padding  = []byte{0, 0, 1, 4, 0, 0, 0, 0}
)
