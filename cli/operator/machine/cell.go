// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
)

// A cell's walls are tried by this very program, run in the cell as `doorward run` runs things there. It says one line
// for each, which the doctor outside reads back. What a cell says of itself proves nothing against a cell that lies: a
// process of the same user can take a canary over. It finds walls that are gone, not agents that hide that.

// Canary is what the doctor outside gives the one in the cell.
type Canary struct {
	Addrs      []string          // of its listener
	Namespaces map[string]string // its own, by kind, as /proc has them
}

// NewCanary takes the doctor's own namespaces.
func NewCanary(l *Listener) Canary {
	c := Canary{Addrs: l.Addrs, Namespaces: map[string]string{}}
	for _, kind := range namespaces {
		if ns, err := os.Readlink("/proc/self/ns/" + kind); err == nil {
			c.Namespaces[kind] = ns
		}
	}
	return c
}

var namespaces = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}

// Args are the words that bring it into the cell, and readCanary reads them there.
func (c Canary) Args() []string {
	out := []string{strings.Join(c.Addrs, ",")}
	for _, kind := range namespaces {
		out = append(out, kind+"="+c.Namespaces[kind])
	}
	return out
}

func readCanary(args []string) (Canary, error) {
	c := Canary{Namespaces: map[string]string{}}
	if len(args) != 1+len(namespaces) {
		return c, errors.New("the words of a canary are its addresses and namespaces")
	}
	c.Addrs = strings.Split(args[0], ",")
	for _, a := range args[1:] {
		kind, ns, ok := strings.Cut(a, "=")
		if !ok || !slices.Contains(namespaces, kind) {
			return c, fmt.Errorf("%q is no namespace", a)
		}
		c.Namespaces[kind] = ns
	}
	return c, nil
}

// cellWall is one thing that is tried from within. try returns what is wrong.
type cellWall struct {
	check, holds string
	try          func(Canary) error
}

var cellWalls = []cellWall{
	{"cell.network", "it has lo only, and reaches nothing over the network", cellNetwork},
	{"cell.run", "of Doorward's sockets it sees its own, and of this machine's none of those that give the machine away", cellRun},
	{"cell.sentinel", "sentinel answers it", cellSentinel},
	{"cell.sockets", "sockets of other kinds are refused: vsock, packet, raw, crypto, bluetooth, xdp", cellSockets},
	{"cell.kernel", "bpf, io_uring, userfaultfd, perf events and modules are refused", cellKernel},
	{"cell.cgroup", "it cannot leave its session's cgroup", cellCgroup},
	{"cell.processes", "it sees no process and no namespace of this machine", cellProcesses},
	{"cell.privilege", "what runs in it can gain no privilege, and its system calls are filtered", cellPrivilege},
	{"cell.environment", "what runs in it has the short fixed environment", cellEnvironment},
}

// InCell tries every wall from where it runs and says a line for each: check, state, detail.
func InCell(args []string, say func(check string, state State, detail string)) error {
	c, err := readCanary(args)
	if err != nil {
		return err
	}
	for _, w := range cellWalls {
		switch err := w.try(c); {
		case errors.Is(err, errUntried):
			say(w.check, Untried, words(err))
		case err != nil:
			say(w.check, Wrong, err.Error())
		default:
			say(w.check, OK, "")
		}
	}
	return nil
}

// FromCell reads what InCell said in a cell. Lines are tab-separated; what is none of its lines is passed over, and what
// it did not say was not tried.
func FromCell(cell, said string) []Finding {
	found := map[string][2]string{}
	for line := range strings.Lines(said) {
		f := strings.SplitN(strings.TrimRight(line, "\r\n"), "\t", 3)
		if len(f) == 3 && found[f[0]] == [2]string{} {
			found[f[0]] = [2]string{f[1], f[2]}
		}
	}
	var out []Finding
	for _, w := range cellWalls {
		f := Ok(w.check, "cell %s: %s", Name(cell), w.holds)
		switch r := found[w.check]; State(r[0]) {
		case OK:
		case Wrong:
			f = Bad(w.check, "doorward cell stop CELL; then systemctl cat of its unit shows what changed it",
				"cell %s: does not hold: %s (%s)", Name(cell), w.holds, Detail(r[1]))
		default:
			f = Not(w.check, "cell %s: %s: %s", Name(cell), w.holds, Detail(orElse(r[1], "its canary did not say")))
		}
		f.Of = Name(cell)
		out = append(out, f)
	}
	return out
}

// NotInCell is what is said of a cell in which nothing can be run now.
func NotInCell(cell, why string) Finding {
	f := Not("cell", "walls of cell %s: %s", Name(cell), Detail(why))
	f.Of = Name(cell)
	return f
}

func cellNetwork(c Canary) error {
	if err := onlyLo("/proc/net/dev"); err != nil {
		return err
	}
	for _, a := range c.Addrs {
		if dialTCP(a) == nil {
			return errors.New("a TCP connection to this machine's loopback goes through")
		}
	}
	return nil
}

// hostSockets are those of this machine that a cell would like best.
var hostSockets = []string{"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify",
	"/run/systemd/journal/stdout", "/run/systemd/resolve/io.systemd.Resolve", "/run/docker.sock", "/run/containerd/containerd.sock",
	"/run/podman/podman.sock", "/run/lxd/unix.socket", "/run/incus/unix.socket", "/run/libvirt/libvirt-sock", "/run/snapd.socket",
	"/run/cups/cups.sock", "/run/pcscd/pcscd.comm"}

func cellRun(Canary) error {
	paths := slices.Clone(hostSockets)
	for _, e := range wire.Graph() {
		if !strings.HasPrefix(e.Socket, "cell/") {
			paths = append(paths, wire.RunDir+e.Socket)
		}
	}
	for _, p := range append(paths, strings.TrimSuffix(wire.RunDir+"private", "/")) {
		if _, err := os.Lstat(p); err == nil {
			return fmt.Errorf("%s is there", p)
		}
	}
	below, err := os.ReadDir(wire.RunDir)
	if err != nil {
		return err
	}
	for _, d := range below {
		if path := wire.RunDir + d.Name() + "/"; path != wire.CellRun && path != wire.CellCA {
			return fmt.Errorf("%s%s is there", wire.RunDir, d.Name())
		}
	}
	files, err := os.ReadDir(wire.CellCA)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		if !f.Type().IsRegular() {
			return fmt.Errorf("%s%s is no file", wire.CellCA, f.Name())
		}
	}
	return err
}

func cellSentinel(Canary) error {
	c, err := wire.Dial(wire.PathCellSentinel, dialFor)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Call("list", &wire.ListReq{}, &wire.ListResp{})
	return err
}

func cellSockets(Canary) error {
	for _, s := range []struct {
		name                string
		family, kind, proto int
	}{
		{"AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0}, {"AF_PACKET", unix.AF_PACKET, unix.SOCK_RAW, 0},
		{"AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, {"a raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP},
		{"AF_BLUETOOTH", unix.AF_BLUETOOTH, unix.SOCK_STREAM, 0}, {"AF_XDP", unix.AF_XDP, unix.SOCK_RAW, 0},
	} {
		fd, err := unix.Socket(s.family, s.kind|unix.SOCK_CLOEXEC, s.proto)
		if err == nil {
			_ = unix.Close(fd)
			return fmt.Errorf("%s socket is made", s.name)
		}
	}
	return nil
}

// kernelCalls are calls that a cell's filter refuses. They are made with nothing where attributes stand, so that one that is
// let through to the kernel fails by that. userfaultfd takes none: with 0 the kernel itself refuses it to those without
// privilege, so it is asked for what the kernel gives to all (UFFD_USER_MODE_ONLY).
var kernelCalls = []struct {
	name      string
	call, arg uintptr
}{
	{"bpf", unix.SYS_BPF, 0}, {"io_uring", unix.SYS_IO_URING_SETUP, 0}, {"userfaultfd", unix.SYS_USERFAULTFD, 1},
	{"perf events", unix.SYS_PERF_EVENT_OPEN, 0}, {"modules", unix.SYS_INIT_MODULE, 0},
}

func cellKernel(Canary) error {
	var gone []string
	for _, s := range kernelCalls {
		fd, _, no := unix.Syscall(s.call, s.arg, 0, 0)
		if no == 0 {
			_ = unix.Close(int(fd))
		}
		if no != unix.EPERM && no != unix.ENOSYS {
			gone = append(gone, s.name)
		}
	}
	if len(gone) > 0 {
		return fmt.Errorf("not refused: %s", strings.Join(gone, ", "))
	}
	return nil
}

// cellCgroup tries to move itself into the cell's payload, and to what is above, by every file that it can see.
func cellCgroup(Canary) error {
	all, err := mounts()
	if err != nil {
		return cannot(err.Error())
	}
	for _, m := range all {
		if m.kind != "cgroup2" {
			continue
		}
		for _, dir := range []string{"", "/payload", "/..", "/doorward.slice"} {
			fd, err := unix.Open(m.place+dir+"/cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			_, err = unix.Write(fd, []byte("0"))
			_ = unix.Close(fd)
			if err == nil {
				return fmt.Errorf("it has moved itself by %s%s/cgroup.procs", m.place, dir)
			}
		}
	}
	return nil
}

func cellProcesses(c Canary) error {
	for _, kind := range namespaces {
		own, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return cannot(err.Error())
		}
		if own == c.Namespaces[kind] {
			return fmt.Errorf("its %s namespace is this machine's", kind)
		}
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return errors.New("its /proc is of other processes than its own")
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return cannot(err.Error())
	}
	if f := strings.Fields(string(b)); len(f) < 3 || f[1] == "0" {
		return errors.New("its root is root of this machine")
	}
	return nil
}

func cellPrivilege(Canary) error {
	p, err := openProcess(os.Getpid())
	if err != nil {
		return cannot(err.Error())
	}
	switch {
	case p.status["NoNewPrivs"] != "1":
		return fmt.Errorf("NoNewPrivs is %s", p.status["NoNewPrivs"])
	case p.status["Seccomp"] != "2":
		return fmt.Errorf("seccomp is %s", p.status["Seccomp"])
	case p.uid != 0 && strings.Trim(p.status["CapEff"], "0") != "":
		return fmt.Errorf("its user has the capabilities %s", p.status["CapEff"])
	case len(p.groups) > 0:
		return fmt.Errorf("it has supplementary groups: %s", p.status["Groups"])
	}
	return nil
}

// cellEnv is what a run has in its environment besides wire.TrustEnv; package cells sets it.
var cellEnv = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM"}

func cellEnvironment(Canary) error {
	trust := wire.TrustEnv()
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		switch want, ok := trust[name]; {
		case ok && value != want:
			return fmt.Errorf("%q leads to other roots than the cell's", name)
		case !ok && !slices.Contains(cellEnv, name):
			return fmt.Errorf("%q is in it", name)
		}
	}
	return nil
}
