// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	overflowUID = 65534   // what the kernel shows for a uid that the reader's user namespace has no name for
	maxCgroups  = 1024    // cgroups remembered, to bound memory; each is small
	maxProcFile = 8 << 10 // bytes read of one file of /proc; longer is refused
)

// Kernel identifies processes of this machine. It is safe for concurrent use.
type Kernel struct {
	proc    int  // directory of proc(5)
	cgroup  int  // root of the cgroup2 mount
	getInfo bool // PIDFD_GET_INFO is there

	// between runs after the pidfd was asked and before /proc is read. Only tests set it.
	between func()

	mu sync.Mutex
	// known maps a cgroup id to whom its path named, once proved the long way. That stays true: cgroup2 has no rename,
	// the kernel gives an id to one cgroup ever, and a live process that is in it proves that it still exists.
	known map[uint64]Identity
}

// Open finds /proc and the cgroup2 mount and tries whether the kernel has PIDFD_GET_INFO. Errors wrap ErrUnsupported.
func Open() (*Kernel, error) {
	k, err := open("/proc")
	if err != nil {
		return nil, err
	}
	if k.getInfo, err = hasGetInfo(); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

func open(proc string) (*Kernel, error) {
	procFD, err := unix.Open(proc, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w: %w", proc, err, ErrUnsupported)
	}
	text, err := os.ReadFile(proc + "/self/mountinfo")
	if err != nil {
		unix.Close(procFD)
		return nil, fmt.Errorf("find the cgroup2 mount: %w: %w", err, ErrUnsupported)
	}
	for _, dir := range cgroupMounts(string(text)) {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var st unix.Statfs_t
		if unix.Fstatfs(fd, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return &Kernel{proc: procFD, cgroup: fd, known: map[uint64]Identity{}}, nil
		}
		unix.Close(fd)
	}
	unix.Close(procFD)
	return nil, fmt.Errorf("find the cgroup2 mount of this cgroup namespace: none: %w", ErrUnsupported)
}

// Close releases the two directories. Nothing else may use k afterwards.
func (k *Kernel) Close() {
	unix.Close(k.proc)
	unix.Close(k.cgroup)
}

// Cgroup opens the directory of a cgroup by its path from the root, as Identify reads it. The caller closes it.
func (k *Kernel) Cgroup(path string) (*os.File, error) {
	fd, err := unix.Openat2(k.cgroup, "."+path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// cgroupMounts lists where cgroup2 is mounted with the root of the reader's cgroup namespace as its root, newest first,
// from the text of /proc/self/mountinfo (proc_pid_mountinfo(5)). A mount with any other root would shift every path.
func cgroupMounts(text string) []string {
	var dirs []string
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if !ok || len(f) < 6 || f[3] != "/" || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		if strings.Contains(f[4], `\`) {
			continue // a mount point with a space or the like; nobody makes one, so do not decode it
		}
		dirs = append([]string{f[4]}, dirs...)
	}
	return dirs
}

// hasGetInfo asks the kernel about this very process.
func hasGetInfo() (bool, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false, fmt.Errorf("open a pidfd of this process: %w: %w", err, ErrUnsupported)
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: wantInfo}
	err = unix.IoctlPidfdInfo(fd, &info)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL):
		return false, nil
	}
	return false, fmt.Errorf("ask the kernel about this process: %w: %w", err, ErrUnsupported)
}

const wantInfo = unix.PIDFD_INFO_PID | unix.PIDFD_INFO_CGROUPID

// Identify proves who connected. conn is a *net.UnixConn, the accepting end. See the package comment for what holds
// afterwards.
func (k *Kernel) Identify(conn net.Conn) (Identity, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return Identity{}, fmt.Errorf("identify the peer of a %T: not a Unix socket: %w", conn, ErrUnsupported)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return Identity{}, fmt.Errorf("identify the peer: %w", err)
	}
	var id Identity
	var idErr error
	if err := raw.Control(func(fd uintptr) { id, idErr = k.identify(int(fd)) }); err != nil {
		return Identity{}, fmt.Errorf("identify the peer: %w", err)
	}
	if idErr != nil {
		return Identity{}, fmt.Errorf("identify the peer: %w", idErr)
	}
	return id, nil
}

// identify proves who connected to the socket fd.
func (k *Kernel) identify(fd int) (Identity, error) {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		if errors.Is(err, unix.ENOPROTOOPT) {
			return Identity{}, fmt.Errorf("get the peer's pidfd: %w: %w", err, ErrUnsupported)
		}
		return Identity{}, fmt.Errorf("get the peer's pidfd: %w: %w", err, ErrGone)
	}
	defer unix.Close(pidfd)

	var id Identity
	if k.getInfo {
		id, err = k.byInfo(pidfd)
	} else {
		id, err = k.byProc(pidfd)
	}
	if err != nil {
		return Identity{}, err
	}
	if id.Kind == Person {
		if id, err = person(id, fd); err != nil {
			return Identity{}, err
		}
	}
	// Last of all: after an exit everything above still answers, and the number may be another's.
	if err := alive(pidfd); err != nil {
		return Identity{}, err
	}
	return id, nil
}

// byInfo identifies where the kernel answers about a pidfd itself.
func (k *Kernel) byInfo(pidfd int) (Identity, error) {
	info := unix.PidfdInfo{Mask: wantInfo}
	if err := unix.IoctlPidfdInfo(pidfd, &info); err != nil {
		if gone := alive(pidfd); gone != nil {
			return Identity{}, gone
		}
		// ESRCH for one that lives: a process of another pid namespace.
		return Identity{}, fmt.Errorf("ask the kernel about the caller: %w: %w", err, ErrUnknown)
	}
	if info.Mask&wantInfo != wantInfo || info.Cgroupid == 0 || info.Tgid == 0 {
		return Identity{}, fmt.Errorf("ask the kernel about the caller: it filled %#x: %w", info.Mask, ErrUnsupported)
	}
	if k.between != nil {
		k.between()
	}
	k.mu.Lock()
	id, ok := k.known[info.Cgroupid]
	k.mu.Unlock()
	if ok {
		return id, nil
	}
	id, path, err := k.read(info.Tgid)
	if err != nil {
		return Identity{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(k.cgroup, path[1:], &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Identity{}, fmt.Errorf("look at cgroup %q: %w: %w", path, err, ErrMismatch)
	}
	if st.Ino != info.Cgroupid {
		return Identity{}, fmt.Errorf("cgroup %q is %d, the caller is in %d: %w", path, st.Ino, info.Cgroupid, ErrMismatch)
	}
	k.mu.Lock()
	if len(k.known) >= maxCgroups {
		clear(k.known)
	}
	k.known[info.Cgroupid] = id
	k.mu.Unlock()
	return id, nil
}

// byProc identifies on kernels before 6.13: the number comes from the pidfd's fdinfo.
func (k *Kernel) byProc(pidfd int) (Identity, error) {
	var buf [maxProcFile]byte
	text, err := k.readFile("self/fdinfo/"+utoa(uint32(pidfd)), buf[:])
	if err != nil {
		return Identity{}, err
	}
	pid, err := pidLine(text)
	if err != nil {
		return Identity{}, err
	}
	if k.between != nil {
		k.between()
	}
	id, _, err := k.read(pid)
	return id, err
}

// pidLine finds the pid in the text of /proc/self/fdinfo/<pidfd>. The kernel writes -1 for a process that was reaped
// and 0 for one outside the reader's pid namespace.
func pidLine(text string) (uint32, error) {
	for line := range strings.Lines(text) {
		v, ok := strings.CutPrefix(line, "Pid:")
		if !ok {
			continue
		}
		v = strings.Trim(v, "\t\n ")
		if v == "-1" {
			return 0, ErrGone
		}
		if v == "0" {
			return 0, fmt.Errorf("the caller is in another pid namespace: %w", ErrUnknown)
		}
		pid, ok := pidNumber(v)
		if !ok {
			return 0, fmt.Errorf("read fdinfo of the caller: pid %q: %w", v, ErrMismatch)
		}
		return pid, nil
	}
	return 0, fmt.Errorf("read fdinfo of the caller: no pid: %w", ErrUnsupported)
}

// read reads and parses the cgroup of a process by its number.
func (k *Kernel) read(pid uint32) (Identity, string, error) {
	var buf [maxProcFile]byte
	text, err := k.readFile(utoa(pid)+"/cgroup", buf[:])
	if err != nil {
		return Identity{}, "", err
	}
	path, err := unified(text)
	if err != nil {
		return Identity{}, "", err
	}
	id, err := Parse(path)
	if err != nil {
		return Identity{}, "", err
	}
	if id.Kind == Cell {
		var st unix.Stat_t
		session := cellsSlice + id.Unit + "/" + id.Session
		if err := unix.Fstatat(k.cgroup, session[1:], &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return Identity{}, "", fmt.Errorf("look at cgroup %q: %w: %w", session, err, ErrMismatch)
		}
		id.Start = st.Ino
	}
	return id, path, nil
}

// readFile reads a whole file below /proc into buf. A file that does not fit is refused.
func (k *Kernel) readFile(name string, buf []byte) (string, error) {
	fd, err := unix.Openat(k.proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w: %w", name, err, ErrGone)
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("read %s: %w: %w", name, err, ErrGone)
		}
		if m == 0 {
			return string(buf[:n]), nil
		}
		n += m
	}
	return "", fmt.Errorf("read %s: longer than %d bytes: %w", name, len(buf), ErrUnknown)
}

// person holds a person to the uid with which the process connected. That is SO_PEERCRED and not what the process is
// now: it could have run a set-uid program since. With PrivateUsers= the reader sees only root and itself; everybody
// else reads as the overflow uid, and then the slice alone names the person.
func person(id Identity, fd int) (Identity, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Identity{}, fmt.Errorf("get the peer's credentials: %w: %w", err, ErrGone)
	}
	switch cred.Uid {
	case 0:
		id.Admin = true
	case id.UID, overflowUID:
	default:
		return Identity{}, fmt.Errorf("uid %d in the slice of user %d: %w", cred.Uid, id.UID, ErrUnknown)
	}
	return id, nil
}

// alive says whether the process of a pidfd has not ended: a pidfd polls readable from the exit on, reaped or not.
func alive(pidfd int) error {
	fds := [1]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("poll the caller's pidfd: %w: %w", err, ErrUnsupported)
		case n != 0:
			return ErrGone
		}
		return nil
	}
}

func pidNumber(s string) (uint32, bool) {
	var n uint32
	if len(s) < 1 || len(s) > 7 { // PID_MAX_LIMIT is 2^22
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + uint32(s[i]-'0')
	}
	return n, n > 0
}
