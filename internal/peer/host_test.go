// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// The cgroups of the tests below, relative to the ground's root.
const (
	cellWork = "/doorward.slice/doorward-cells.slice/doorward-cell@work.service/payload"
	cellHome = "/doorward.slice/doorward-cells.slice/doorward-cell@home.service/payload"
	workerA  = "/doorward.slice/doorward-workers.slice/doorward-worker@a.service"
	authd    = "/doorward.slice/doorward-authd.service"
	ada      = "/user.slice/user-1000.slice/session-1.scope"
	rootsOwn = "/user.slice/user-0.slice/session-2.scope"
)

func TestMain(m *testing.M) {
	switch os.Getenv("PEER_TEST_HELPER") {
	case "client":
		client()
		return
	case "server":
		server()
		return
	}
	ground.Main(m)
}

// client connects to the socket named by its argument, says so, and does what its input says.
func client() {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: os.Args[1], Net: "unix"})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("connected")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch word, arg, _ := strings.Cut(in.Text(), " "); word {
		case "pass": // hand the connection to the process that listens at arg
			to, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: arg, Net: "unix"})
			if err == nil {
				var f *os.File
				if f, err = conn.File(); err == nil {
					_, _, err = to.WriteMsgUnix([]byte("x"), unix.UnixRights(int(f.Fd())), nil)
				}
			}
			fmt.Println("passed", err)
		case "self":
			b, err := os.ReadFile("/proc/self/cgroup")
			fmt.Println(strings.ReplaceAll(string(b), "\n", " "), err)
		case "mkdir": // make a cgroup through a mount of its own
			err := errors.Join(unix.Mount("cgroup2", "/mnt", "cgroup2", 0, ""), os.MkdirAll("/mnt"+arg, 0o755),
				os.WriteFile("/mnt"+arg+"/cgroup.procs", []byte("0"), 0))
			fmt.Println("made", err)
		case "exit":
			return
		}
	}
}

// server identifies one caller with namespaces of its own and prints the answer, once with and once without
// PIDFD_GET_INFO.
func server() {
	if os.Geteuid() == 0 {
		err := errors.Join(unix.Mount("proc", "/proc", "proc", 0, ""), unix.Mount("cgroup2", "/mnt", "cgroup2", 0, ""))
		if err != nil {
			fmt.Println("error", err)
			return
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil { // as daemons are
		fmt.Println("error", err)
		return
	}
	k, err := Open()
	if err != nil {
		fmt.Println("error", err)
		return
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: os.Args[1], Net: "unix"})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("listening")
	conn, err := ln.AcceptUnix()
	if err != nil {
		fmt.Println("error", err)
		return
	}
	for _, getInfo := range []bool{true, false} {
		if getInfo && !k.getInfo {
			fmt.Println("absent")
			continue
		}
		k.getInfo = getInfo
		id, err := k.Identify(conn)
		fmt.Printf("%v admin=%v %v\n", id, id.Admin, err)
	}
}

// helper is a process of a test.
type helper struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t *testing.T, kind, cgroup, socket string, attr syscall.SysProcAttr) *helper {
	t.Helper()
	dir := ground.Cgroup + cgroup
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cg, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer cg.Close()
	attr.UseCgroupFD, attr.CgroupFD = true, int(cg.Fd())
	cmd := exec.Command("/proc/self/exe", socket)
	cmd.Env = append(os.Environ(), "PEER_TEST_HELPER="+kind)
	cmd.SysProcAttr = &attr
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a process in %s: %v", cgroup, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &helper{cmd, in, bufio.NewScanner(out)}
}

func (h *helper) say(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(h.in, line); err != nil {
		t.Fatal(err)
	}
}

func (h *helper) expect(t *testing.T, want string) string {
	t.Helper()
	if !h.out.Scan() {
		t.Fatalf("helper ended; wanted %q", want)
	}
	if !strings.HasPrefix(h.out.Text(), want) {
		t.Fatalf("helper said %q, wanted %q", h.out.Text(), want)
	}
	return h.out.Text()
}

func (h *helper) kill(t *testing.T) {
	t.Helper()
	if err := h.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.Wait()
}

// move puts the helper into another cgroup, as root could.
func (h *helper) move(t *testing.T, cgroup string) {
	t.Helper()
	dir := ground.Cgroup + cgroup
	err := errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(h.Process.Pid)), 0))
	if err != nil {
		t.Fatal(err)
	}
}

type rig struct {
	*Kernel
	ln     *net.UnixListener
	socket string
}

// eachWay runs f once with PIDFD_GET_INFO and once the way of older kernels.
func eachWay(t *testing.T, f func(t *testing.T, r *rig)) {
	ground.Need(t)
	for _, getInfo := range []bool{true, false} {
		name := "by PIDFD_GET_INFO"
		if !getInfo {
			name = "by fdinfo"
		}
		t.Run(name, func(t *testing.T) {
			k, err := Open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(k.Close)
			if getInfo && !k.getInfo {
				t.Skip("skipped: the kernel has no PIDFD_GET_INFO; needs 6.13")
			}
			k.getInfo = getInfo
			socket := filepath.Join(t.TempDir(), "s")
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
			if err := errors.Join(os.Chmod(socket, 0o666), os.Chmod(filepath.Dir(socket), 0o755),
				os.Chmod(filepath.Dir(filepath.Dir(socket)), 0o755)); err != nil {
				t.Fatal(err)
			}
			f(t, &rig{k, ln, socket})
		})
	}
}

// dialFrom has a process of the cgroup connect and returns it with the accepted end.
func (r *rig) dialFrom(t *testing.T, cgroup string, attr syscall.SysProcAttr) (*helper, *net.UnixConn) {
	t.Helper()
	h := start(t, "client", cgroup, r.socket, attr)
	h.expect(t, "connected")
	_ = r.ln.SetDeadline(time.Now().Add(10 * time.Second))
	c, err := r.ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return h, c
}

func (r *rig) want(t *testing.T, c *net.UnixConn, want Identity) {
	t.Helper()
	for i := range 2 { // the second answer may come from memory
		got, err := r.Identify(c)
		if err != nil || got != want {
			t.Errorf("answer %d: got %+v, %v; want %+v", i, got, err, want)
		}
	}
}

func (r *rig) refused(t *testing.T, c *net.UnixConn, want error) {
	t.Helper()
	got, err := r.Identify(c)
	if !errors.Is(err, want) || got != (Identity{}) {
		t.Errorf("got %+v, %v; want %v", got, err, want)
	}
}

func mustParse(t *testing.T, path string) Identity {
	t.Helper()
	id, err := Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	if id.Kind == Cell {
		var st unix.Stat_t
		if err := unix.Stat(ground.Cgroup+cellsSlice+id.Unit+"/"+id.Session, &st); err != nil {
			t.Fatal(err)
		}
		id.Start = st.Ino
	}
	return id
}

func TestIdentifyEveryKind(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		for _, path := range []string{cellWork, workerA, authd, cellWork + "/deeper/still"} {
			_, c := r.dialFrom(t, path, syscall.SysProcAttr{})
			r.want(t, c, mustParse(t, path))
		}
		_, c := r.dialFrom(t, ada, syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}})
		r.want(t, c, Identity{Kind: Person, UID: 1000})
		_, c = r.dialFrom(t, rootsOwn, syscall.SysProcAttr{})
		r.want(t, c, Identity{Kind: Person, UID: 0, Admin: true})
		_, c = r.dialFrom(t, ada, syscall.SysProcAttr{})
		r.want(t, c, Identity{Kind: Person, UID: 1000, Admin: true}) // she became root by sudo
		_, c = r.dialFrom(t, ada, syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1001, Gid: 1001}})
		r.refused(t, c, ErrUnknown)
		for _, path := range []string{"", "/system.slice/cron.service", "/doorward.slice"} {
			_, c := r.dialFrom(t, path, syscall.SysProcAttr{})
			r.refused(t, c, ErrUnknown)
		}
	})
}

// A process makes itself a cgroup namespace and a mount in which its cgroup reads as a daemon's.
func TestForgedCgroupPathByNamespaceAndMount(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		h, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP})
		h.say(t, "mkdir "+authd)
		h.expect(t, "made <nil>")
		h.say(t, "self")
		if got := h.expect(t, ""); !strings.Contains(got, "0::"+authd+" ") { // the control: the forgery is good
			t.Fatalf("the forged path reads %q in the forger's own eyes", got)
		}
		r.want(t, c, mustParse(t, cellWork))
	})
}

// The reader's own /proc lies, as when something else was mounted over it. Only the cgroup id finds that out, so the
// older way is the control.
func TestForgedCgroupPathInProc(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		h, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		if err := os.MkdirAll(ground.Cgroup+authd, 0o755); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		pid := strconv.Itoa(h.Process.Pid)
		if err := errors.Join(os.Mkdir(filepath.Join(dir, pid), 0o755),
			os.Symlink("/proc/self", filepath.Join(dir, "self")),
			os.WriteFile(filepath.Join(dir, pid, "cgroup"), []byte("0::"+authd+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(r.proc)
		r.proc = fd
		if r.getInfo {
			r.refused(t, c, ErrMismatch)
			return
		}
		r.want(t, c, mustParse(t, authd))
	})
}

// A path that leads out of the reader's cgroup namespace is nobody's, whatever it ends in.
func TestCallerOutsideTheCgroupNamespace(t *testing.T) {
	ground.Need(t)
	socket := filepath.Join(t.TempDir(), "s")
	inner := "/inner.slice/doorward-sentinel.service"
	s := start(t, "server", inner, socket, syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP})
	s.expect(t, "listening")
	c := start(t, "client", authd, socket, syscall.SysProcAttr{})
	c.expect(t, "connected")
	for range 2 {
		if got := s.expect(t, "nobody"); !strings.Contains(got, "/../") || !strings.Contains(got, ErrUnknown.Error()) {
			t.Errorf("said %q", got)
		}
	}
}

func TestCallerThatExited(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		h, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		r.want(t, c, mustParse(t, cellWork)) // also puts the cgroup into the memory
		h.kill(t)
		r.refused(t, c, ErrGone)
	})
}

func TestCallerThatIsAZombie(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		h, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		h.say(t, "exit")
		// Ended, and nobody has collected it.
		if err := unix.Waitid(unix.P_PID, h.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		// The control: /proc still tells of it.
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", h.Process.Pid))
		if !strings.Contains(string(b), "0::"+cellWork) {
			t.Fatalf("/proc says %q, %v", b, err)
		}
		r.refused(t, c, ErrGone)
	})
}

// SO-01: the caller ends and its number is given to a process of another unit.
func TestSO01RecycledPid(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		h, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		h.kill(t)
		r.recycle(t, h.Process.Pid)
		// The control: the number alone names the other unit.
		if id, _, err := r.read(peerPid(t, c)); err != nil || id != mustParse(t, workerA) {
			t.Fatalf("the bare pid names %+v, %v", id, err)
		}
		r.refused(t, c, ErrGone)
	})
}

// SO-01: the same, with the number recycled in the middle of the look.
func TestSO01PidRecycledInTheMiddle(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		h, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		r.between = func() {
			h.kill(t)
			r.recycle(t, h.Process.Pid)
			if id, _, err := r.read(uint32(h.Process.Pid)); err != nil || id != mustParse(t, workerA) {
				t.Fatalf("the bare pid names %+v, %v", id, err)
			}
		}
		got, err := r.Identify(c)
		if got != (Identity{}) || !errors.Is(err, ErrGone) && !errors.Is(err, ErrMismatch) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// recycle starts processes in a worker's unit until one has the number.
func (r *rig) recycle(t *testing.T, pid int) {
	t.Helper()
	for range 200 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skipf("skipped: cannot choose the next pid: %v; needs CONFIG_CHECKPOINT_RESTORE", err)
		}
		h := start(t, "client", workerA, "/nowhere", syscall.SysProcAttr{})
		if h.Process.Pid == pid {
			return
		}
		h.kill(t)
	}
	t.Fatalf("pid %d did not come back", pid)
}

func peerPid(t *testing.T, c *net.UnixConn) uint32 {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var cred *unix.Ucred
	_ = raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		t.Fatal(err)
	}
	return uint32(cred.Pid)
}

func TestCallerThatMovedBefore(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		h, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		r.want(t, c, mustParse(t, cellWork))
		h.move(t, cellHome)
		r.want(t, c, mustParse(t, cellHome))
		h.move(t, "/system.slice/other.service")
		r.refused(t, c, ErrUnknown)
	})
}

// A caller that moves in the middle of the look is one of the two, or nobody; never a mixture.
func TestCallerThatMovesInTheMiddle(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		h, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		r.between = func() { h.move(t, cellHome) }
		got, err := r.Identify(c)
		if r.getInfo {
			if !errors.Is(err, ErrMismatch) || got != (Identity{}) {
				t.Errorf("got %+v, %v; want %v", got, err, ErrMismatch)
			}
		} else if err != nil || got != mustParse(t, cellHome) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// The cgroup of a caller is removed and made again under the same name: the memory must not answer for the new one.
func TestCgroupMadeAnew(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		path := "/doorward.slice/doorward-cells.slice/doorward-cell@anew.service/payload"
		h, c := r.dialFrom(t, path, syscall.SysProcAttr{})
		first := mustParse(t, path)
		r.want(t, c, first)
		h.kill(t)
		if err := unix.Rmdir(ground.Cgroup + path); err != nil {
			t.Fatal(err)
		}
		r.refused(t, c, ErrGone)
		_, c = r.dialFrom(t, path, syscall.SysProcAttr{})
		second := mustParse(t, path)
		r.want(t, c, second)
		if second.Start == first.Start {
			t.Error("two starts of a session have one number")
		}
	})
}

// The connection speaks for who opened it; once that one is gone, for nobody, although another still holds it.
func TestDescriptorPassedOn(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		h, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		other, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.socket + "2", Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		h.say(t, "pass "+r.socket+"2")
		to, err := other.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		h.expect(t, "passed <nil>")
		buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := to.ReadMsgUnix(buf, oob)
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil || len(msgs) != 1 {
			t.Fatal(msgs, err)
		}
		fds, err := unix.ParseUnixRights(&msgs[0])
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[0])
		r.want(t, c, mustParse(t, cellWork))
		h.kill(t)
		// The control: the connection still works in the hands of this process.
		if _, err := unix.Write(fds[0], []byte("y")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil || buf[0] != 'y' {
			t.Fatal(err)
		}
		r.refused(t, c, ErrGone)
	})
}

// SO-02: the caller has no number in the reader's pid namespace.
func TestSO02OtherPidNamespace(t *testing.T) {
	ground.Need(t)
	socket := filepath.Join(t.TempDir(), "s")
	s := start(t, "server", "/doorward.slice/doorward-sentinel.service", socket,
		syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS})
	s.expect(t, "listening")
	c := start(t, "client", authd, socket, syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID})
	c.expect(t, "connected")
	for range 2 {
		if got := s.expect(t, ""); got != "absent" && !strings.HasPrefix(got, "nobody admin=false") {
			t.Errorf("said %q", got)
		}
	}
}

// SO-02: a pid namespace below the reader's own is a cell's usual one.
func TestSO02PidNamespaceBelow(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		_, c := r.dialFrom(t, cellWork, syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID})
		r.want(t, c, mustParse(t, cellWork))
	})
}

// SO-02: root inside a user namespace is not root outside.
func TestSO02OtherUserNamespace(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		ns := func(outside int) syscall.SysProcAttr {
			return syscall.SysProcAttr{
				Cloneflags:  unix.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: outside, Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: outside, Size: 1}},
				Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
			}
		}
		_, c := r.dialFrom(t, ada, ns(1000))
		r.want(t, c, Identity{Kind: Person, UID: 1000})
		_, c = r.dialFrom(t, rootsOwn, ns(70000))
		r.refused(t, c, ErrUnknown)
		_, c = r.dialFrom(t, cellWork, ns(70000))
		r.want(t, c, mustParse(t, cellWork))
	})
}

// SO-02: a reader with PrivateUsers= sees other uids as 65534: the slice names the person and only root is the admin.
func TestSO02ReaderWithPrivateUsers(t *testing.T) {
	ground.Need(t)
	private := syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1},
			{ContainerID: 991, HostID: 991, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1},
			{ContainerID: 991, HostID: 991, Size: 1}},
		Credential: &syscall.Credential{Uid: 991, Gid: 991, NoSetGroups: true},
	}
	as := func(uid uint32) syscall.SysProcAttr {
		return syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	for _, tt := range []struct {
		name, cgroup string
		attr         syscall.SysProcAttr
		want         string
	}{
		{"a person", ada, as(1000), "user-1000 admin=false <nil>"},
		{"root", rootsOwn, as(0), "admin of user-0 admin=true <nil>"},
		{"another in root's slice", rootsOwn, as(1001), "user-0 admin=false <nil>"},
		{"the reader's own uid", ada, as(991), "nobody admin=false"},
		{"a cell", cellWork, as(1000), "doorward-cell@work.service/payload admin=false <nil>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/run", "peer")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			socket := dir + "/s"
			s := start(t, "server", "/doorward.slice/doorward-sentinel.service", socket, private)
			s.expect(t, "listening")
			if err := os.Chmod(socket, 0o666); err != nil {
				t.Fatal(err)
			}
			c := start(t, "client", tt.cgroup, socket, tt.attr)
			c.expect(t, "connected")
			for range 2 {
				if got := s.expect(t, ""); got != "absent" && !strings.HasPrefix(got, tt.want) {
					t.Errorf("said %q, want %q", got, tt.want)
				}
			}
		})
	}
}

// A listener closes and counts whom it cannot prove, and goes on.
func TestListenerClosesAndCounts(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		var told []error
		l := NewListener(r.ln, r, func(err error) { told = append(told, err) })
		stranger := start(t, "client", "/system.slice/x.service", r.socket, syscall.SysProcAttr{})
		stranger.expect(t, "connected")
		start(t, "client", authd, r.socket, syscall.SysProcAttr{}).expect(t, "connected")
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if c.Peer != mustParse(t, authd) || l.Refused() != 1 || len(told) != 1 || !errors.Is(told[0], ErrUnknown) {
			t.Errorf("got %+v, refused %d, told %v", c.Peer, l.Refused(), told)
		}
	})
}

// No look leaves a descriptor behind, whatever its outcome.
func TestNoDescriptorIsLeft(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		_, good := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		_, bad := r.dialFrom(t, "/system.slice/x.service", syscall.SysProcAttr{})
		h, gone := r.dialFrom(t, cellWork, syscall.SysProcAttr{})
		h.kill(t)
		count := func() int {
			fds, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(fds)
		}
		before := count()
		for range 100 {
			clear(r.known)
			for _, c := range []*net.UnixConn{good, bad, gone} {
				_, _ = r.Identify(c)
			}
		}
		if after := count(); after != before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
}
