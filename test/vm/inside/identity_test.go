// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

const (
	cgroups    = "/sys/fs/cgroup"
	cellsSlice = "/doorward.slice/doorward-cells.slice"
	workCell   = cellsSlice + "/doorward-cell@work.service"
	cellSocket = wire.CellDir + "sentinel.sock"
)

// whoServes puts `probe who` into sentinel's place: its unit, its walls and its sockets, with internal/peer behind them.
func whoServes(t *testing.T, more string) {
	t.Helper()
	prepareProbe(t)
	const unit = "doorward-sentinel.service"
	undo := dropIn(t, unit, "WatchdogSec=0\nExecStart=\nExecStart="+probe+" who\n"+more)
	must(t, "systemctl", "restart", unit)
	t.Cleanup(func() {
		undo()
		must(t, "systemctl", "restart", unit)
		eventually(t, "a read", func() error { return reads(t) })
	})
}

// actor is a process of the probe in a cgroup.
type actor struct {
	*exec.Cmd
	out *bufio.Scanner
}

// begin starts the probe in a cgroup, which it makes if it is not there.
func begin(t *testing.T, cgroup string, attr syscall.SysProcAttr, args ...string) *actor {
	t.Helper()
	return beginWith(t, nil, cgroup, attr, args...)
}

// beginWith is begin; those files it has from descriptor 3 on.
func beginWith(t *testing.T, files []*os.File, cgroup string, attr syscall.SysProcAttr, args ...string) *actor {
	t.Helper()
	dir := cgroups + cgroup
	var made []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil {
			break
		}
		made = append(made, d)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cg, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer cg.Close()
	attr.UseCgroupFD, attr.CgroupFD = true, int(cg.Fd())
	cmd := exec.Command(probe, args...)
	cmd.SysProcAttr, cmd.Stderr, cmd.ExtraFiles = &attr, os.Stderr, files
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
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for _, d := range made { // the innermost first; one that is in use by now stays
			_ = os.Remove(d)
		}
	})
	return &actor{cmd, bufio.NewScanner(out)}
}

// line is the next line that the process says.
func (a *actor) line(t *testing.T) string {
	t.Helper()
	if !a.out.Scan() {
		t.Fatalf("%q ended: %v", a.Args, a.out.Err())
	}
	return a.out.Text()
}

func (a *actor) kill(t *testing.T) {
	t.Helper()
	if err := a.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = a.Process.Wait() // not Cmd.Wait, which closes what its child still writes to
}

// called is whom the one in sentinel's place takes a process of that cgroup for.
func called(t *testing.T, at, cgroup string, attr syscall.SysProcAttr) string {
	t.Helper()
	return begin(t, cgroup, attr, "call", at).line(t)
}

// isGone says whether the answer is the refusal of a caller that has ended, and no other.
func isGone(answer string) bool {
	return strings.HasPrefix(answer, "nobody (") && strings.HasSuffix(answer, peer.ErrGone.Error()+")")
}

// Who is the same at the same place is known; a name of somebody else's at any other place, or one that contains it, is
// not. The places are systemd's own where it makes them, and else made as root could.
func TestANameCountsAtItsPlaceOnly(t *testing.T) {
	whoServes(t, "")
	if err := makeTree("/var/lib/doorward/cells/work2"); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	must(t, "systemctl", "start", "doorward-cell@work2")
	t.Cleanup(func() { must(t, "systemctl", "stop", "doorward-cell@work2") })
	const nobody = "nobody"
	for path, want := range map[string]string{
		// Controls: everybody at their own place.
		workCell + "/payload": "doorward-cell@work.service/payload",
		workCell + "/run-7":   "doorward-cell@work.service/run-7",
		"/doorward.slice/doorward-workers.slice/doorward-worker@dav.service": "doorward-worker@dav.service",
		"/doorward.slice/doorward-authd.service":                             "doorward-authd.service",
		"/user.slice/user-0.slice/session-9.scope":                           "admin of user-0",
		// Names that contain another's.
		cellsSlice + "/doorward-cell@work2.service/payload":                   "doorward-cell@work2.service/payload",
		"/doorward.slice/doorward-workers.slice/doorward-worker@dav2.service": "doorward-worker@dav2.service",
		"/doorward.slice/doorward-authd2.service":                             "doorward-authd2.service",
		"/doorward.slice/doorward-authd.service.service":                      nobody,
		"/doorward.slice/doorward-authd@work.service":                         nobody,
		"/doorward.slice/xdoorward-authd.service":                             nobody,
		cellsSlice + "/doorward-cell@work-2.service/payload":                  nobody,
		cellsSlice + "/doorward-cell@work.service2/payload":                   nobody,
		// The same names elsewhere.
		"/doorward-authd.service":                                       nobody,
		"/system.slice/doorward-authd.service":                          nobody,
		"/system.slice/doorward.slice/doorward-authd.service":           nobody,
		"/doorward.slice/doorward-workers.slice/doorward-authd.service": nobody,
		"/doorward.slice/doorward-worker@dav.service":                   nobody,
		"/doorward-cells.slice/doorward-cell@work.service/payload":      nobody,
		"/doorward.slice/doorward-cell@work.service/payload":            nobody,
		workCell + "/supervisor":                                        nobody,
		workCell + "/payload-1":                                         nobody,
		"/doorward.slice/user.slice/user-0.slice/session-9.scope":       nobody,
		"/user.slice/user-00.slice/session-9.scope":                     nobody,
		// Nested: below its own place one is oneself, whatever one calls what one makes there; a daemon makes nothing there.
		workCell + "/payload/doorward.slice/doorward-authd.service":             "doorward-cell@work.service/payload",
		workCell + "/payload/a/b/c/d/e/f":                                       "doorward-cell@work.service/payload",
		"/user.slice/user-0.slice/doorward.slice/doorward-authd.service":        "admin of user-0",
		"/doorward.slice/doorward-authd.service/doorward-sentinel.service":      nobody,
		"/doorward.slice/doorward-workers.slice/doorward-worker@dav.service/in": nobody,
	} {
		if have := called(t, cellSocket, path, syscall.SysProcAttr{}); have != want && !strings.HasPrefix(have, want+" (") {
			t.Errorf("a process in %s is %s, want %s", path, have, want)
		}
	}
	// Root in a person's slice is an admin; who else may come to this socket at all is in a cell.
	if have := called(t, cellSocket, "/user.slice/user-1000.slice/session-9.scope", syscall.SysProcAttr{}); have != "admin of user-1000" {
		t.Errorf("root in the slice of 1000 is %s", have)
	}
}

// The calls of a cell are not those of another whose name contains it: by the real sentinel.
func TestCellsWorkAndWork2AreTwo(t *testing.T) {
	ready(t)
	if err := makeTree("/var/lib/doorward/cells/work2"); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	must(t, "systemctl", "start", "doorward-cell@work2")
	t.Cleanup(func() { must(t, "systemctl", "stop", "doorward-cell@work2") })
	id := parks(t, "Of work alone")
	work, err := exec.Command("cat", cellUnit+"/payload/cgroup.procs").Output()
	two, err2 := exec.Command("cat", cgroups+cellsSlice+"/doorward-cell@work2.service/payload/cgroup.procs").Output()
	if err := errors.Join(err, err2); err != nil || string(work) == string(two) {
		t.Fatalf("the cells' processes: %q, %q, %v", work, two, err)
	}
	other := enter(t, "work2", 1000, "run-1", "/usr/bin/connector", "result", id)
	if other.code == 4 || other.code == 0 {
		t.Errorf("another cell is told of the call: %v", other)
	}
	if r := enter(t, "work2", 1000, "run-1", "/usr/bin/connector", "inbox"); strings.Contains(r.stdout, id) {
		t.Errorf("another cell has the call in its inbox: %v", r)
	}
	want(t, connector(t, "result", id), 4, "control: the cell itself")
	if r := connector(t, "inbox"); !strings.Contains(r.stdout, id) {
		t.Errorf("control: the cell's own inbox: %v", r)
	}
	want(t, person(t, "", "deny", id), 0, "deny")
}

// pause stops the one in sentinel's place, so that callers can come and go before they are looked at.
func pause(t *testing.T) (goOn func()) {
	t.Helper()
	pid := mainPID(t, "doorward-sentinel.service")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(goOn)
	return goOn
}

// left has a process of the cell connect and leave its connection to a child.
func left(t *testing.T) *actor {
	t.Helper()
	a := begin(t, workCell+"/run-7", syscall.SysProcAttr{}, "leave", cellSocket)
	if said := a.line(t); said != "connected" {
		t.Fatal(said)
	}
	return a
}

// again begins a process with that number in the cgroup and says whether it could.
func again(t *testing.T, pid int, cgroup string) bool {
	t.Helper()
	for range 20 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		b := begin(t, cgroup, syscall.SysProcAttr{}, "wait")
		if b.Process.Pid == pid {
			return true
		}
		b.kill(t)
	}
	return false
}

// SO-01: the caller has ended and its number is another's by the time it is looked at: a person's, root at that.
func TestSO01ARecycledNumberIsNobody(t *testing.T) {
	whoServes(t, "")
	const of = "/user.slice/user-0.slice/session-9.scope"
	goOn := pause(t)
	a := left(t)
	a.kill(t)
	for tries := 1; !again(t, a.Process.Pid, of); tries++ {
		// Something that stays has the number, be it a thread: another caller is as good.
		if tries == 20 {
			t.Fatal("no number came back")
		}
		a = left(t)
		a.kill(t)
	}
	goOn()
	if have := a.line(t); !isGone(have) {
		t.Errorf("the caller is %s, want nobody, since it has ended", have)
	}
	if have := a.line(t); have != "number: 0::"+of { // control: the number alone is root's
		t.Errorf("control: %s, want %s", have, of)
	}
}

// A caller that has ended, or is a zombie, is nobody; one that lives is known, also where another reads.
func TestACallerThatEndedIsNobody(t *testing.T) {
	whoServes(t, "")
	for _, end := range []string{"exited", "zombie", "control: lives"} {
		t.Run(end, func(t *testing.T) {
			goOn := pause(t)
			a := left(t)
			want, number := "nobody", "none"
			switch end {
			case "exited":
				a.kill(t)
			case "zombie":
				if err := a.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := unix.Waitid(unix.P_PID, a.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
					t.Fatal(err)
				}
				number = "0::" + workCell + "/run-7" // /proc still tells of it
			default:
				want, number = "doorward-cell@work.service/run-7", "0::"+workCell+"/run-7"
			}
			goOn()
			if have := a.line(t); have != want && (want != "nobody" || !isGone(have)) {
				t.Errorf("the caller is %s, want %s", have, want)
			}
			if have := a.line(t); have != "number: "+number {
				t.Errorf("%s, want %s", have, number)
			}
		})
	}
}

// A connection that is handed on stays the one's who opened it.
func TestADescriptorHandedOnStaysTheOpeners(t *testing.T) {
	whoServes(t, "")
	const admin = "/user.slice/user-0.slice/session-9.scope"
	for from, c := range map[string]struct{ to, want string }{
		workCell + "/run-7":           {admin, "doorward-cell@work.service/run-7"},
		admin:                         {workCell + "/run-7", "admin of user-0"},
		"/system.slice/bench-1.scope": {"/doorward.slice/doorward-workers.slice/doorward-worker@dav.service", "nobody"},
	} {
		// A pair, since no session of a cell connects to a socket of somebody outside.
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends := []*os.File{os.NewFile(uintptr(pair[0]), "pair"), os.NewFile(uintptr(pair[1]), "pair")}
		take := beginWith(t, ends[:1], c.to, syscall.SysProcAttr{}, "take")
		beginWith(t, ends[1:], from, syscall.SysProcAttr{}, "pass", cellSocket)
		for _, f := range ends {
			_ = f.Close()
		}
		if have := take.line(t); have != c.want && !strings.HasPrefix(have, c.want+" (") {
			t.Errorf("from %s to %s: %s, want %s", from, c.to, have, c.want)
		}
		if have := called(t, cellSocket, c.to, syscall.SysProcAttr{}); have == c.want {
			t.Errorf("control: %s by itself is %s too", c.to, have)
		}
	}
}

// SO-02: root of a user namespace is not root, and a caller without a number in the daemon's own is nobody.
func TestSO02RootInsideIsNotRootOutside(t *testing.T) {
	whoServes(t, "")
	const session = "/user.slice/user-1000.slice/session-9.scope"
	group, err := user.LookupGroup("doorward")
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.Atoi(group.Gid)
	if err != nil {
		t.Fatal(err)
	}
	inside := syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}}
	// The directory before a cell's sockets is root's, so here it is the person's.
	if have, want := called(t, wire.PathApprove, session, inside), "user-1000"; have != want {
		t.Errorf("a person's root of a namespace is %s, want %s", have, want)
	}
	if have, want := called(t, wire.PathApprove, session, syscall.SysProcAttr{}), "admin of user-1000"; have != want {
		t.Errorf("control: root in a person's slice is %s, want %s", have, want)
	}
	r := inCellAs(t, 0, "run-1", probe, "call", wire.CellRun+"sentinel.sock")
	if have, _, _ := strings.Cut(r.stdout, "\n"); have != "doorward-cell@work.service/run-1" {
		t.Errorf("root of a cell is %s: %v", have, r)
	}
}

// SO-02: the reader is in a pid namespace of its own, as a sandbox may have it: nobody has a number there.
func TestSO02WithoutANumberACallerIsNobody(t *testing.T) {
	whoServes(t, "PrivatePIDs=yes\n")
	if have := called(t, cellSocket, workCell+"/run-7", syscall.SysProcAttr{}); !strings.HasPrefix(have, "nobody (") {
		t.Errorf("a caller in another pid namespace is %s", have)
	}
}

const (
	trialSocket  = "trial.socket"
	trialService = "trial.service"
	trialPath    = wire.RunDir + "approve/trial"
)

// trialUnits are the person's socket but for its place, since the daemon behind that one comes back with every call. The
// function that is returned writes the unit, and has systemd read it; text is what the unit is.
func trialUnits(t *testing.T) (text string, install func(text string)) {
	t.Helper()
	b, err := os.ReadFile("/usr/lib/systemd/system/doorward-approve.socket")
	if err != nil {
		t.Fatal(err)
	}
	text = strings.NewReplacer(wire.PathApprove, trialPath, "doorward-sentinel.service", trialService,
		"doorward.target", "").Replace(string(b))
	if !strings.Contains(text, trialPath) || !strings.Contains(text, trialService) {
		t.Fatalf("the unit is another:\n%s", text)
	}
	const dir = "/run/systemd/system/"
	t.Cleanup(func() {
		_, _ = run("systemctl", "stop", trialSocket, trialService)
		_ = errors.Join(os.Remove(dir+trialSocket), os.Remove(dir+trialService), os.RemoveAll(trialPath))
		must(t, "systemctl", "daemon-reload")
	})
	return text, func(text string) {
		if err := errors.Join(os.WriteFile(dir+trialSocket, []byte(text), 0o644),
			os.WriteFile(dir+trialService, []byte("[Service]\nExecStart=sleep infinity\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		must(t, "systemctl", "daemon-reload")
	}
}

// SO-03: systemd binds a socket with its mode and owner, so there is no moment in which it is open to others.
func TestSO03ASocketIsNeverOpenToOthers(t *testing.T) {
	ready(t)
	text, install := trialUnits(t)
	// someone connects in a loop as somebody who is not in the group, while the socket is made anew ten times.
	someone := func() (got, tries int) {
		end, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-end:
					return
				default:
				}
				tries++
				time.Sleep(time.Millisecond) // the machine has one CPU
				if c, err := connectAs(1001, trialPath); err == nil {
					unix.Close(c)
					got++
				}
			}
		}()
		for range 10 {
			must(t, "systemctl", "stop", trialSocket, trialService)
			must(t, "systemctl", "start", trialSocket)
		}
		close(end)
		<-done
		return got, tries
	}
	install(text)
	got, tries := someone()
	t.Logf("%d connections of %d tries", got, tries)
	if got > 0 || tries < 100 {
		t.Errorf("somebody who is not in the group connected %d times of %d", got, tries)
	}
	install(strings.Replace(text, "SocketMode=0660", "SocketMode=0666", 1))
	if got, tries := someone(); got == 0 {
		t.Errorf("control: with mode 0666 nobody connected either, of %d tries", tries)
	}
}

// SO-03: what lies in a socket's place is no way to be bound elsewhere. Only root can put it there.
func TestSO03WhatLiesInASocketsPlaceIsNotFollowed(t *testing.T) {
	ready(t)
	text, install := trialUnits(t)
	install(text)
	fi, err := os.Stat(filepath.Dir(trialPath))
	if err != nil || fi.Mode().Perm()&0o022 != 0 || fi.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Fatalf("others may write beside the socket: %v %v", fi, err)
	}
	victim := filepath.Join(t.TempDir(), "victim")
	for what, put := range map[string]func() error{
		"a stale socket": func() error { return unix.Mknod(trialPath, unix.S_IFSOCK|0o666, 0) },
		"a symlink":      func() error { return os.Symlink(victim, trialPath) },
		"a directory": func() error {
			return errors.Join(os.Mkdir(trialPath, 0o777), os.WriteFile(trialPath+"/in", nil, 0o666))
		},
	} {
		must(t, "systemctl", "stop", trialSocket, trialService)
		if err := errors.Join(os.RemoveAll(trialPath), put()); err != nil {
			t.Fatal(err)
		}
		_, err := run("systemctl", "start", trialSocket)
		fi, serr := os.Lstat(trialPath)
		if serr != nil {
			t.Fatalf("%s: %v", what, serr)
		}
		t.Logf("%s: started: %v, then %v", what, err == nil, fi.Mode())
		if err == nil && fi.Mode() != os.ModeSocket|0o660 {
			t.Errorf("%s: systemd listens, and there is %v", what, fi.Mode())
		}
		if err != nil && property(t, trialSocket, "ActiveState") != "failed" {
			t.Errorf("%s: it did not start and is not failed: %v", what, err)
		}
		if _, err := os.Lstat(victim); err == nil {
			t.Errorf("%s: it was followed", what)
		}
		_, _ = run("systemctl", "reset-failed", trialSocket)
	}
}

// connectAs connects as another user of this machine, by this thread's file system ids alone.
func connectAs(uid int, path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: its ids are another's, and it ends with this function
		err := errors.Join(unix.Setfsgid(uid), unix.Setfsuid(uid))
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		done <- err
	}()
	if err := <-done; err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// SO-04: what listens on this machine outside of the cell's own folder does not exist for the real cell.
func TestSO04TheMachinesSocketsAreOutOfReach(t *testing.T) {
	prepareProbe(t)
	own := []string{"@/tmp/.X11-unix/X0", "/run/docker.sock", "/run/ssh-agent/agent.1", "/tmp/ssh-agent.2", "/var/spool/cron.sock"}
	for _, at := range own {
		if at[0] == '/' {
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		ln, err := listen(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
	}
	all := append([]string{"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/journal/stdout",
		wire.PathApprove, wire.PathAuthdAdmin, wire.PathAuthdWorker, wire.PathEgressWorker}, own...)
	list := must(t, "cat", "/proc/net/unix")
	inside := inCellAs(t, 0, "run-1", "cat", "/proc/net/unix")
	if inside.code != 0 {
		t.Fatal(inside)
	}
	from := map[string]string{}
	for _, uid := range []int{0, 1000} {
		from[fmt.Sprintf("uid %d of a cell", uid)] = inCellAs(t, uid, "run-1", append([]string{probe, "reach"}, all...)...).stdout
	}
	outside, err := run(probe, append([]string{"reach"}, all...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range all {
		if !strings.Contains(list, at) {
			t.Errorf("control: there is no %s on this machine", at)
		}
		if strings.Contains(inside.stdout, at) {
			t.Errorf("a cell sees %s", at)
		}
		for who, said := range from {
			if !strings.Contains(said, at+": refused\n") {
				t.Errorf("%s reaches %s", who, at)
			}
		}
		if !strings.Contains(outside, at+": reached\n") {
			t.Errorf("control: root does not reach %s", at)
		}
	}
	r := inCellAs(t, 0, "run-1", "find", "/", "-type", "s", "-not", "-path", "/proc/*")
	// Two are nspawn's: one by which a cell's first process may say that it is ready, and one that leads nowhere.
	const nspawn = "/run/host/notify\n/run/host/inaccessible/sock\n"
	want := fmt.Sprintf("%[1]sdav.sock\n%[1]sgithub.sock\n%[1]ssentinel.sock\n", wire.CellRun) + nspawn
	if !slices.Equal(sorted(r.stdout), sorted(want)) {
		t.Errorf("sockets in the cell's mounts:\n%s, want\n%s", r.stdout, want)
	}
	// A read-only mount keeps nobody from a socket: there the security module does.
	ln, err := listen("/usr/lib/bench.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	reached := func() bool {
		return strings.Contains(inCellAs(t, 0, "run-1", probe, "reach", "/usr/lib/bench.sock").stdout, ": reached\n")
	}
	if reached() {
		t.Error("a cell reaches a socket on a read-only mount")
	}
	t.Cleanup(withoutModule(t))
	eventually(t, "control: without the security module it reaches that", func() error {
		if !reached() {
			return errors.New("refused")
		}
		return nil
	})
}

func listen(at string) (*net.UnixListener, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err == nil && at[0] == '/' {
		err = os.Chmod(at, 0o666)
	}
	return ln, err
}

func sorted(lines string) []string { return slices.Sorted(strings.Lines(lines)) }
