// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/peer"
)

// FloorSystemd is the oldest systemd that Doorward runs on; the oldest kernel is peer.Floor.
const FloorSystemd = 255

// Feature is one thing that the kernel, or systemd, has to have or should have. docs/kernel.md is this table.
type Feature struct {
	Check   string
	Since   string // version of the kernel, or empty
	For     string // what it is for
	Without string // what is then, in the words that doctor says
	Need    bool   // without it Doorward is refused; else something holds less
	// try returns what there is, in words. An error wraps errUntried where it could not be tried, and says why.
	try func() (string, error)
}

// errUntried marks what could not be tried, which is neither there nor missing.
var errUntried = errors.New("not tried")

func cannot(why string) error { return fmt.Errorf("%w: %s", errUntried, why) }

// Features is the table, the floor first.
func Features() []Feature {
	return []Feature{
		{"kernel.version", peer.Floor, "the floor: callers are proved by what the kernel says of a connection",
			"refused: cells do not start, and no caller is known", true, tryVersion},
		{"kernel.peerpidfd", "6.5", "SO_PEERPIDFD, which names the process that connected",
			"refused: no caller is known, so no daemon answers anybody", true, tryPeerPidfd},
		{"kernel.pidfdinfo", "6.13", "PIDFD_GET_INFO, which gives the caller's cgroup without /proc",
			"degraded: the cgroup is read from /proc under the pidfd", false, tryPidfdInfo},
		{"kernel.hidepid", "", "/proc that shows every process, since callers' cgroups are read there",
			"refused: callers of other users are nobody", true, tryHidepid},
		{"kernel.cgroup2", "", "one cgroup per unit, cell and run, by which callers are told apart",
			"refused: no caller is known", true, tryCgroup2},
		{"kernel.cgrouponly", "", "cgroup v2 alone, so that limits of cells and the delegation to them hold",
			"degraded: memory and process limits of cells are not in force", false, tryCgroupOnly},
		{"kernel.freeze", "5.14", "cgroup.freeze and cgroup.kill, with which `doorward stop` makes a cell stand still",
			"refused: a cell could not be stopped", true, tryFreeze},
		{"kernel.namespaces", "", "user, mount, pid, net, ipc, uts and cgroup namespaces, which a cell is made of",
			"refused: no cell can be made", true, tryNamespaces},
		{"kernel.seccomp", "", "filters of system calls of daemons, cells and runs",
			"refused: a cell could make sockets of any kind, load programs into the kernel and use io_uring", true, trySeccomp},
		{"kernel.memfd", "", "sealed memfds, in which files and large answers travel",
			"refused: no call with a file and no large answer goes through", true, tryMemfd},
		{"kernel.secret", "5.14", "memfd_secret, which takes credentials out of the kernel's own map",
			"degraded: they are in locked memory, which root can read", false, trySecret},
		{"kernel.openat2", "5.6", "openat2, with which files of a cell's tree are opened without leaving it",
			"refused: no cell is entered", true, tryOpenat2},
		{"kernel.idmap", "5.12", "mounts with other owners, for project folders in a cell",
			"degraded: a cell with project folders does not start", false, tryIdmap},
		{"kernel.bpflsm", "5.7", "`bpf` in the list of security modules, which lets BPF programs refuse",
			"degraded: sockets that were made outside and passed into a cell are not refused", false, inLSM("bpf")},
		{"kernel.btf", "5.4", "the kernel's own types in /sys/kernel/btf, by which BPF programs fit it",
			"refused: the walls around cells cannot be loaded, and no cell starts", true, tryBTF},
		{"kernel.landlock", "5.13", "`landlock` in that list: agents that confine their own programs use it",
			"degraded: an agent in a cell cannot confine what it starts; no wall of Doorward is made of it", false, inLSM("landlock")},
		{"kernel.lockdown", "5.4", "`lockdown` in that list: it keeps even root from changing the running kernel",
			"degraded: root of this machine can change the kernel; no wall of Doorward is made of it", false, inLSM("lockdown")},
		{"systemd.version", "", "units as they are written: systemd " + strconv.Itoa(FloorSystemd) + " or newer",
			"refused: settings that an older one does not know are passed over, and walls are missing", true, trySystemd},
	}
}

// Kernel tries every feature.
func Kernel() []Finding {
	var out []Finding
	for _, f := range Features() {
		out = append(out, f.finding())
	}
	return out
}

func (f *Feature) finding() Finding {
	what, err := f.try()
	switch {
	case err == nil:
		return Ok(f.Check, "%s", what)
	case errors.Is(err, errUntried):
		g := Not(f.Check, "%s: %s", f.For, words(err))
		if os.Geteuid() != 0 && strings.Contains(err.Error(), "root") {
			g.Next = onlyRoot
		}
		return g
	}
	next := "/usr/share/doc/doorward/kernel.md says what it is for"
	switch {
	case f.Check == "systemd.version" && !Booted():
		next = "boot this machine with systemd as process 1; a container has none"
	case f.Check == "systemd.version":
		next = "install systemd " + strconv.Itoa(FloorSystemd) + " or newer: Debian 13 has it"
	case f.Since != "" && f.Need:
		next = "boot a kernel of " + peer.Floor + " or newer: Debian 13 has one"
	case strings.HasSuffix(f.Check, "lsm") || f.Check == "kernel.landlock" || f.Check == "kernel.lockdown":
		next = "boot with lsm= that has it, in the list of /sys/kernel/security/lsm"
	}
	if f.Need {
		return Bad(f.Check, next, "%s: %s", err.Error(), f.Without)
	}
	return Less(f.Check, next, "%s: %s", err.Error(), f.Without)
}

// Release is the running kernel's.
func Release() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

func tryVersion() (string, error) {
	r, err := Release()
	if err != nil {
		return "", err
	}
	if !peer.AtLeast(r, peer.Floor) {
		return "", fmt.Errorf("kernel %s is below %s", r, peer.Floor)
	}
	return "kernel " + r, nil
}

func tryPeerPidfd() (string, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	fd, err := unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return "", fmt.Errorf("no SO_PEERPIDFD (%w)", err)
	}
	return "SO_PEERPIDFD names who connected", unix.Close(fd)
}

func tryPidfdInfo() (string, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return "", fmt.Errorf("no pidfd (%w)", err)
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_CGROUPID}
	if err := unix.IoctlPidfdInfo(fd, &info); err != nil {
		return "", fmt.Errorf("no PIDFD_GET_INFO (%w)", err)
	}
	return "PIDFD_GET_INFO gives a caller's cgroup", nil
}

func tryHidepid() (string, error) {
	all, err := mounts()
	if err != nil {
		return "", cannot(err.Error())
	}
	for _, m := range slices.Backward(all) {
		if m.place != "/proc" || m.kind != "proc" {
			continue
		}
		for o := range strings.SplitSeq(m.options, ",") {
			if v, ok := strings.CutPrefix(o, "hidepid="); ok && v != "0" && v != "off" {
				return "", fmt.Errorf("/proc is mounted with %s", o)
			}
		}
		return "/proc shows every process", nil
	}
	return "", errors.New("/proc is not mounted")
}

// mount is one line of proc_pid_mountinfo(5).
type mount struct{ root, place, kind, options string }

func mounts() ([]mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []mount
	for l := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(strings.TrimSpace(l), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if ok && len(f) > 4 && len(g) > 2 {
			out = append(out, mount{f[3], f[4], g[0], g[2]})
		}
	}
	return out, nil
}

// CgroupRoot is where cgroup2 is mounted, or "".
func CgroupRoot() string {
	all, _ := mounts()
	for _, m := range slices.Backward(all) { // the newest mount covers older ones
		if m.kind == "cgroup2" && m.root == "/" {
			return m.place
		}
	}
	return ""
}

func tryCgroup2() (string, error) {
	if CgroupRoot() == "" {
		return "", errors.New("cgroup v2 is not mounted")
	}
	return "cgroup v2 is mounted", nil
}

func tryCgroupOnly() (string, error) {
	all, err := mounts()
	if err != nil {
		return "", cannot(err.Error())
	}
	for _, m := range all {
		if m.kind == "cgroup" {
			return "", errors.New("cgroup v1 is mounted too") // somewhere, which may be a path of the person's
		}
	}
	return "cgroup v2 alone", nil
}

func tryFreeze() (string, error) {
	root := CgroupRoot()
	if root == "" {
		return "", errors.New("cgroup v2 is not mounted")
	}
	below, err := os.ReadDir(root)
	if err != nil {
		return "", cannot(err.Error())
	}
	for _, d := range below {
		if !d.IsDir() {
			continue
		}
		for _, file := range []string{"/cgroup.freeze", "/cgroup.kill"} {
			if _, err := os.Stat(root + "/" + d.Name() + file); err != nil {
				return "", errors.New("no " + file[1:])
			}
		}
		return "cgroups can be frozen and killed", nil
	}
	return "", cannot("there is no cgroup to look at")
}

// namespaces of a cell.
const cellNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

func tryNamespaces() (string, error) {
	for _, kind := range namespaces {
		if _, err := os.Stat("/proc/self/ns/" + kind); err != nil {
			return "", errors.New("no " + kind + " namespaces")
		}
		b, err := os.ReadFile("/proc/sys/user/max_" + kind + "_namespaces")
		if err == nil && strings.TrimSpace(string(b)) == "0" {
			return "", errors.New("user.max_" + kind + "_namespaces is 0")
		}
	}
	if os.Geteuid() != 0 {
		return "", cannot("only root may make them all")
	}
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: cellNamespaces,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("a process in namespaces of its own does not start (%w)", err)
	}
	return "a process in namespaces of its own runs", nil
}

func trySeccomp() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil {
		return "", fmt.Errorf("no filters of system calls (%w)", errors.Unwrap(err))
	}
	if !slices.Contains(strings.Fields(string(b)), "errno") {
		return "", errors.New("filters cannot refuse")
	}
	return "filters of system calls", nil
}

func tryMemfd() (string, error) {
	fd, err := unix.MemfdCreate("doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return "", fmt.Errorf("no memfd (%w)", err)
	}
	defer unix.Close(fd)
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return "", fmt.Errorf("a memfd cannot be sealed (%w)", err)
	}
	if n, err := unix.Write(fd, []byte("x")); err == nil {
		return "", fmt.Errorf("a sealed memfd takes %d bytes", n)
	}
	return "memfds can be sealed", nil
}

func trySecret() (string, error) {
	fd, err := unix.MemfdSecret(0)
	if err != nil {
		return "", fmt.Errorf("no memfd_secret (%w)", err)
	}
	return "memfd_secret", unix.Close(fd)
}

func tryOpenat2() (string, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return "", fmt.Errorf("no openat2 (%w)", err)
	}
	return "openat2", unix.Close(fd)
}

// tryIdmap asks for a change of no mount: a kernel that knows the call, with which owners came, refuses it otherwise.
func tryIdmap() (string, error) {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &attr); errors.Is(err, unix.ENOSYS) {
		return "", fmt.Errorf("no mounts with other owners (%w)", err)
	}
	return "mounts with other owners; whether a file system can is tried with a cell that has projects", nil
}

// LSMs is the list of security modules that are active, in order.
func LSMs() ([]string, error) {
	b, err := os.ReadFile("/sys/kernel/security/lsm")
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(b)), ","), nil
}

func inLSM(name string) func() (string, error) {
	return func() (string, error) {
		list, err := LSMs()
		if err != nil {
			return "", cannot("the list of security modules cannot be read; mount securityfs at /sys/kernel/security")
		}
		if !slices.Contains(list, name) {
			return "", fmt.Errorf("%s is not among the security modules (%s)", name, strings.Join(list, ","))
		}
		return name + " is among the security modules", nil
	}
}

func tryBTF() (string, error) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return "", errors.New("no /sys/kernel/btf/vmlinux")
	}
	return "the kernel has its types", nil
}

// Booted says whether systemd is process 1, sd_booted(3).
func Booted() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

func trySystemd() (string, error) {
	if !Booted() {
		return "", errors.New("systemd does not run this machine")
	}
	out, err := run("systemctl", "--version")
	if err != nil {
		return "", cannot("systemctl does not say")
	}
	f := strings.Fields(out)
	if len(f) < 2 || f[0] != "systemd" || !peer.AtLeast(f[1], strconv.Itoa(FloorSystemd)) {
		line, _, _ := strings.Cut(out, "\n")
		return "", fmt.Errorf("%s is below %d", line, FloorSystemd)
	}
	return "systemd " + f[1], nil
}
