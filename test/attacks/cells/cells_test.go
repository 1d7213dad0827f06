// SPDX-License-Identifier: Apache-2.0

// Package cells tries the daemon of cells on real processes: what a person can do with a cell, and what something in a
// cell, or in another daemon's place, can not.
package cells

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "hold" {
		if err := hold(os.Args[2], os.Args[3]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	world.Main(m)
}

// hold starts a run, leaves its terminal open in another process, says its name and goes.
func hold(cell, script string) error {
	conn, err := wire.Dial(wire.PathCellsPerson, time.Minute)
	if err != nil {
		return err
	}
	var began wire.RunResp
	fds, err := conn.Call("run", &wire.RunReq{Start: &wire.RunStart{Cell: cell, Args: []string{"/bin/sh", "-c", script}}}, &began)
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sleep", "100")
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(fds[0]), "terminal")}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println(began.Session)
	time.Sleep(500 * time.Millisecond) // it runs
	return nil
}

type scene struct {
	*testing.T
	w          *world.World
	work, home *world.Cell // home is called work2
	ada        *world.Actor
}

func start(t *testing.T, config map[string]string) *scene {
	t.Helper()
	s := &scene{T: t, w: world.Start(t, world.Options{Cells: true, Config: config})}
	for name, to := range map[string]**world.Cell{"work": &s.work, "work2": &s.home} {
		c, err := s.w.Cell(name)
		if err != nil {
			t.Fatal(err)
		}
		*to = c
	}
	s.ada = s.w.Person(1000)
	return s
}

func (s *scene) doorward(code int, args ...string) world.Result {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	r, err := s.ada.Doorward(ctx, "", args...)
	if err != nil || r.Code != code {
		s.Fatalf("doorward %q: %v, want exit code %d: %v", args, err, code, r)
	}
	return r
}

// begin starts a run of a shell script that says "up" first, and returns it with its session's name.
func (s *scene) begin(cell, script string) (p *world.Proc, out io.ReadCloser, session string) {
	s.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	keep, hold, err := os.Pipe() // a stdin without an end
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { keep.Close(); hold.Close(); r.Close() })
	p, err = s.ada.Start(world.Cmd{Args: []string{filepath.Join(s.w.Prefix, "bin/doorward"), "run", cell, "--", "/bin/sh", "-c",
		"grep ^0:: /proc/self/cgroup; echo up; " + script}, StdinFile: keep, StdoutFile: w})
	w.Close()
	if err != nil {
		s.Fatal(err)
	}
	var said strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(said.String(), "up\n") {
		n, err := r.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			res, _ := p.Wait()
			s.Fatalf("a run in %s: %q, %v", cell, said.String(), res)
		}
	}
	path := strings.TrimPrefix(strings.SplitN(said.String(), "\n", 2)[0], "0::")
	session = filepath.Base(path)
	if want := "/doorward.slice/doorward-cells.slice/doorward-cell@" + cell + ".service/" + session; path != want ||
		!strings.HasPrefix(session, "run-") {
		s.Fatalf("the run is in cgroup %s, want %s", path, want)
	}
	return p, r, session
}

// sessions are the live ones by name, without the number of their start.
func (s *scene) sessions() map[string]bool {
	s.Helper()
	var got struct {
		Items []struct {
			Name     string
			Attended bool
		}
	}
	if err := json.Unmarshal([]byte(s.doorward(0, "session", "--json").Stdout), &got); err != nil {
		s.Fatal(err)
	}
	out := map[string]bool{}
	for _, x := range got.Items {
		name, _, _ := strings.Cut(x.Name, ".")
		out[name] = x.Attended
	}
	return out
}

func (s *scene) cgroup(cell *world.Cell, session string) string {
	return filepath.Join(ground.Cgroup, cell.Cgroup(session))
}

func (s *scene) eventually(what string, f func() bool) {
	s.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s: not within 20 s", what)
		}
	}
}

func (s *scene) gone(cell *world.Cell, session string) {
	s.Helper()
	s.eventually("the cgroup of "+session+" is removed", func() bool {
		_, err := os.Stat(s.cgroup(cell, session))
		return errors.Is(err, os.ErrNotExist)
	})
	name := cell.Name + "/" + session
	s.eventually("sentinel knows that "+name+" is over", func() bool {
		_, live := s.sessions()[name]
		return !live
	})
}

// A run is a process of the cell, with a short fixed environment and the exit code of its command.
func TestARunIsInTheCell(t *testing.T) {
	s := start(t, nil)
	r := s.doorward(0, "run", "work", "--", "/bin/sh", "-c", "id -u; pwd; env; ls /run /run/doorward; readlink /proc/self/ns/user; ls /proc/self/fd; umask")
	for _, want := range []string{"0\n/\n", "HOME=/root\n", "USER=root\n", "PATH=/usr/local/bin:", "doorward\n", "cell\n", "0022\n"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("no %q in\n%s", want, r.Stdout)
		}
	}
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil || strings.Contains(r.Stdout, own) {
		t.Errorf("it is in this machine's user namespace %s: %v", own, err)
	}
	for _, bad := range []string{"\r", "LISTEN_", "NOTIFY_SOCKET", "CONFIGURATION_DIRECTORY", "DOORWARD", "cells\n", "\n4\n"} {
		if strings.Contains(r.Stdout, bad) {
			t.Errorf("%q in\n%s", bad, r.Stdout)
		}
	}
	s.doorward(7, "run", "work", "--", "/bin/sh", "-c", "exit 7")
	s.doorward(128+9, "run", "work", "/bin/sh", "-c", "kill -9 $$")
	s.doorward(127, "run", "work", "/no-such-program")
	r, err = s.ada.Doorward(t.Context(), "one\ntwo", "run", "work", "cat")
	if err != nil || r.Code != 0 || r.Stdout != "one\ntwo" {
		t.Errorf("its input: %v %v", err, r)
	}
	// Nothing that it starts outlives it.
	s.doorward(0, "run", "work", "/bin/sh", "-c", "setsid sleep 7531 & sleep 0.1")
	if n := ps(t, "sleep 7531"); n != 0 {
		t.Errorf("%d processes of a run outlived it", n)
	}
	if got := s.sessions(); len(got) != 0 {
		t.Errorf("sessions live on: %v", got)
	}
	for _, bad := range [][]string{{"run", "other", "true"}, {"run", "work3", "--", "true"}, {"run", "../work", "true"}, {"run", "wor", "true"}} {
		if r, err := s.ada.Doorward(t.Context(), "", bad...); err != nil || r.Code == 0 || !strings.Contains(r.Stderr, "next: doorward cell") {
			t.Errorf("%q: %v %v", bad, err, r)
		}
	}
}

// Where the cell's own start runs something, sentinel knows of that, which nobody attends, before a run begins beside it.
func TestWhatTheCellRunsByItselfIsKnown(t *testing.T) {
	s := start(t, map[string]string{"cells/work.toml": "command = [\"agent\"]\n"})
	s.begin("work2", "sleep 1000")
	if got := s.sessions(); len(got) != 1 {
		t.Errorf("control: %v", got)
	}
	s.begin("work", "sleep 1000")
	if attended, known := s.sessions()["work/payload"]; !known || attended {
		t.Errorf("sessions: %v", s.sessions())
	}
}

// ps counts the processes whose command line is that.
func ps(t *testing.T, command string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if strings.TrimRight(strings.ReplaceAll(string(b), "\x00", " "), " ") == command {
			n++
		}
	}
	return n
}

// Sentinel takes a call from a run as that run's, and cells of alike names are two.
func TestARunIsASessionOfItsOwn(t *testing.T) {
	s := start(t, nil)
	connector := filepath.Join(s.w.Prefix, "bin/connector")
	a, _, first := s.begin("work", connector+" inbox; sleep 1000")
	b, _, second := s.begin("work2", connector+" inbox; sleep 1000")
	got := s.sessions()
	for _, name := range []string{"work/" + first, "work2/" + second} {
		if attended, ok := got[name]; !ok || attended {
			t.Errorf("session %s: live %v, attended %v: %v", name, ok, attended, got)
		}
	}
	if len(got) != 2 {
		t.Errorf("sessions: %v", got)
	}
	// No process of a run is root of this machine, not even the one that waits outside of the cell for its end.
	procs, err := os.ReadFile(s.cgroup(s.work, first) + "/cgroup.procs")
	if pids := strings.Fields(string(procs)); err != nil || len(pids) < 2 {
		t.Errorf("processes of the run: %q %v", pids, err)
	}
	for _, pid := range strings.Fields(string(procs)) {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil || !strings.Contains(string(status), "\nUid:\t1") || strings.Contains(string(status), "\nGroups:\t0") {
			t.Errorf("process %s: %v\n%s", pid, err, status)
		}
	}
	list := s.doorward(0, "cell", "list").Stdout
	for _, want := range []string{first, second, "running"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	// Who started it goes away: so does the run, and no other.
	a.Kill()
	if _, err := a.Wait(); err != nil {
		t.Fatal(err)
	}
	s.gone(s.work, first)
	if _, ok := s.sessions()["work2/"+second]; !ok {
		t.Error("the run of the other cell has ended too")
	}
	// The daemon goes away: the same, at its next start at the latest.
	s.w.Daemon("cells").Kill()
	b.Kill()
	_, _ = b.Wait()
	if _, err := os.Stat(s.cgroup(s.home, second)); err != nil {
		t.Errorf("control: %v", err)
	}
	if r := s.doorward(0, "stop", "work2"); !strings.Contains(r.Stdout, "not frozen") {
		t.Errorf("without cells: %v", r)
	}
	if err := s.w.Daemon("cells").Start(); err != nil {
		t.Fatal(err)
	}
	s.gone(s.home, second)
	s.eventually("what was stopped meanwhile is frozen", func() bool {
		return strings.Contains(s.doorward(0, "cell", "show", "work2").Stdout, "frozen by the switch")
	})
}

// A run ends with the connection, also where its terminal is still open somewhere and it does not hear that it is to end.
func TestARunEndsWithItsConnection(t *testing.T) {
	s := start(t, nil)
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.w.Dir, "test-bin")
	program := filepath.Join(dir, "hold")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755), os.WriteFile(program, b, 0o755)); err != nil {
		t.Fatal(err)
	}
	r, err := s.ada.Run(t.Context(), program, "hold", "work", "trap '' HUP TERM INT; while :; do sleep 1; done")
	session := strings.TrimSpace(r.Stdout)
	if err != nil || r.Code != 0 || !strings.HasPrefix(session, "run-") {
		t.Fatalf("%v %v", err, r)
	}
	s.gone(s.work, session)
}

// With a terminal at hand the session is attended, keys and the terminal's size reach the command, and ^C does not end
// the one outside.
func TestAtATerminal(t *testing.T) {
	s := start(t, nil)
	mine, theirs := terminal(t)
	p, err := s.ada.Start(world.Cmd{Args: []string{filepath.Join(s.w.Prefix, "bin/doorward"), "shell", "work"}, StdinFile: theirs,
		StdoutFile: theirs, StderrFile: theirs, Env: []string{"TERM=vt100"}})
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	until := func(what string) {
		t.Helper()
		buf := make([]byte, 4096)
		for end := time.Now().Add(20 * time.Second); !strings.Contains(said.String(), what); {
			_ = mine.SetReadDeadline(end)
			n, err := mine.Read(buf)
			said.Write(buf[:n])
			if err != nil {
				t.Fatalf("%v before %q:\n%s", err, what, said.String())
			}
		}
	}
	send := func(keys string) {
		t.Helper()
		if _, err := io.WriteString(mine, keys); err != nil {
			t.Fatal(err)
		}
	}
	send("stty size; tty; echo $TERM; echo u''p\n")
	until("up\r\n")
	for _, want := range []string{"40 120\r\n", "/dev/pts/", "vt100\r\n"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %q in\n%s", want, said.String())
		}
	}
	attended := 0
	for name, yes := range s.sessions() {
		if strings.HasPrefix(name, "work/run-") && yes {
			attended++
		}
	}
	if attended != 1 {
		t.Errorf("attended sessions: %v", s.sessions())
	}
	if err := unix.IoctlSetWinsize(int(mine.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}); err != nil {
		t.Fatal(err)
	}
	_ = unix.SetNonblock(int(mine.Fd()), true)
	p.Signal(unix.SIGWINCH)
	time.Sleep(200 * time.Millisecond)
	send("stty size; echo siz''ed\n")
	until("sized\r\n")
	if !strings.Contains(said.String(), "33 77\r\n") {
		t.Errorf("its size is not followed:\n%s", said.String())
	}
	send("sleep 1000; echo not''yet\n")
	time.Sleep(300 * time.Millisecond)
	send("\x03")
	time.Sleep(300 * time.Millisecond)
	send("exit 5\n")
	if r, err := p.Wait(); err != nil || r.Code != 5 {
		t.Errorf("it ends: %v %v\n%s", err, r, said.String())
	}
}

func terminal(t *testing.T) (mine, theirs *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = errors.Join(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
			unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}))
	}
	if err != nil {
		t.Fatal(err)
	}
	mine = os.NewFile(uintptr(fd), "terminal")
	t.Cleanup(func() { mine.Close() })
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return mine, theirs
}

// A frozen cell stands still until who froze it lets it go on; a person does not undo the switch this way.
func TestFreezing(t *testing.T) {
	s := start(t, nil)
	file := filepath.Join(s.w.Dir, "ticks")
	if err := errors.Join(os.Chmod(s.w.Dir, 0o755), os.WriteFile(file, nil, 0o666), os.Chmod(file, 0o666)); err != nil {
		t.Fatal(err)
	}
	s.begin("work", "while :; do echo >> "+file+"; sleep 0.02; done")
	moves := func() bool {
		size := func() int64 {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		before := size()
		time.Sleep(300 * time.Millisecond)
		return size() != before
	}
	hold := func(what string, want bool) {
		t.Helper()
		if got := moves(); got != want {
			t.Errorf("%s: it moves: %v", what, got)
		}
	}
	hold("control", true)
	s.doorward(0, "cell", "freeze", "work")
	hold("frozen", false)
	if r := s.doorward(0, "cell", "list").Stdout; !strings.Contains(r, "frozen") || !strings.Contains(r, "running") {
		t.Errorf("one is frozen, one runs:\n%s", r)
	}
	if r := s.doorward(wire.ExitDenied, "run", "work", "true"); !strings.Contains(r.Stderr, "doorward cell thaw work") {
		t.Errorf("run in a frozen cell: %v", r)
	}
	s.doorward(0, "run", "work2", "true")
	s.doorward(0, "cell", "thaw", "work")
	hold("thawed", true)

	if r := s.doorward(0, "stop", "work"); !strings.Contains(r.Stdout, "frozen: work") {
		t.Errorf("the switch: %v", r)
	}
	hold("stopped", false)
	if r := s.doorward(wire.ExitDenied, "cell", "thaw", "work"); !strings.Contains(r.Stderr, "doorward stop --resume work") {
		t.Errorf("thaw what the switch froze: %v", r)
	}
	hold("still stopped", false)
	if err := s.w.Daemon("cells").Restart(); err != nil {
		t.Fatal(err)
	}
	s.doorward(wire.ExitDenied, "cell", "thaw", "work")
	s.doorward(0, "stop", "--resume", "work", "--yes")
	s.eventually("it is thawed", func() bool { return !strings.Contains(s.doorward(0, "cell", "list").Stdout, "frozen") })

	// The switch for all, and of one within it.
	s.doorward(0, "stop", "work2")
	if r := s.doorward(0, "stop"); !strings.Contains(r.Stdout, "frozen: work, work2") {
		t.Errorf("all: %v", r)
	}
	s.doorward(0, "stop", "--resume", "--yes")
	s.eventually("one is thawed, the other stays", func() bool {
		r := s.doorward(0, "cell", "list").Stdout
		return strings.Count(r, "frozen by the switch") == 1 && strings.Contains(r, "running")
	})
	s.doorward(wire.ExitDenied, "run", "work2", "true")
	s.doorward(0, "run", "work", "true")

	// What a canary froze goes on by nobody's word; see package cellnet, which sets this mark.
	unit := ground.Cgroup + "/doorward.slice/doorward-cells.slice/doorward-cell@work.service"
	if err := errors.Join(unix.Setxattr(unit, "trusted.doorward.canary", []byte("1"), 0), os.WriteFile(unit+"/cgroup.freeze", []byte("1"), 0)); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"cell", "thaw", "work"}, {"run", "work", "true"}} {
		if r := s.doorward(wire.ExitDenied, words...); !strings.Contains(r.Stderr, "did not hold") {
			t.Errorf("%q behind a canary: %v", words, r)
		}
	}
	s.doorward(0, "stop", "work")
	s.doorward(0, "stop", "--resume", "work", "--yes")
	hold("a canary's, resumed", false)
}

// There is no systemd here, which is said.
func TestStartAndStopNeedSystemd(t *testing.T) {
	s := start(t, map[string]string{"cells/odd.toml": "uzer = \"agent\"\n", "cells/plain.toml": "user = \"nobody\"\n[limits]\nmemory = \"1G\"\n"})
	for _, args := range [][]string{{"start", "plain"}, {"stop", "work"}} {
		if r := s.doorward(1, append([]string{"cell"}, args...)...); !strings.Contains(r.Stderr, "systemd does not run this machine") {
			t.Errorf("%q: %v", args, r)
		}
	}
	if r := s.doorward(2, "cell", "start", "odd"); !strings.Contains(r.Stderr, `odd.toml:1:1: there is no key "uzer"`) {
		t.Errorf("a wrong key: %v", r)
	}
	if r := s.doorward(0, "cell", "show", "plain").Stdout; !strings.Contains(r, "stopped") || !strings.Contains(r, "1073741824 bytes") {
		t.Errorf("show:\n%s", r)
	}
	if r := s.doorward(0, "cell", "list", "--json").Stdout; !strings.Contains(r, `there is no key`) {
		t.Errorf("list:\n%s", r)
	}
}

// As root in a cell: no socket of cells, and no cgroup outside of what is delegated. Each has its control.
func TestACellReachesNothingOfCells(t *testing.T) {
	s := start(t, nil)
	_, _, session := s.begin("work", "sleep 1000")
	in := s.work.Actor()
	for _, path := range []string{wire.PathCellsPerson, wire.PathCellsSentinel, wire.PathSentinelCells} {
		if err := in.Ask(t.Context(), path, "list", &wire.ListFrom{}, &wire.CellsResp{}); !errors.Is(err, world.ErrNoAnswer) {
			t.Errorf("%s from a cell: %v", path, err)
		}
	}
	if err := in.Ask(t.Context(), wire.PathCellSentinel, "inbox", &wire.ListFrom{}, &wire.InboxResp{}); err != nil {
		t.Errorf("control: %v", err)
	}
	// The mode keeps other users of this machine out; the kernel's word, who is root but no person and no sentinel.
	for name, a := range map[string]*world.Actor{"eve": s.w.Local(1001), "egress": s.w.Inside("egress"), "a worker": s.w.Inside("worker-dav")} {
		if err := a.Ask(t.Context(), wire.PathCellsPerson, "list", &wire.ListFrom{}, &wire.CellsResp{}); !errors.Is(err, world.ErrNoAnswer) {
			t.Errorf("cells' socket from %s: %v", name, err)
		}
	}
	if err := s.ada.Ask(t.Context(), wire.PathCellsPerson, "list", &wire.ListFrom{}, &wire.CellsResp{}); err != nil {
		t.Errorf("control: %v", err)
	}
	root := s.w.Person(0)
	for path, verb := range map[string]string{wire.PathCellsSentinel: "thaw", wire.PathSentinelCells: "session"} {
		if err := root.Ask(t.Context(), path, verb, &wire.FreezeReq{}, &wire.FreezeResp{}); !errors.Is(err, world.ErrNoAnswer) {
			t.Errorf("%s of %s from a person who is root: %v", verb, path, err)
		}
	}
	if err := s.w.Inside("sentinel").Ask(t.Context(), wire.PathCellsSentinel, "thaw", &wire.FreezeReq{}, &wire.FreezeResp{}); err != nil {
		t.Errorf("control: %v", err)
	}

	move := func(a *world.Actor, to string) world.Result {
		r, err := a.Run(t.Context(), "/bin/sh", "-c", "echo 0 > "+to+"/cgroup.procs && cat /proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, to := range []string{s.cgroup(s.work, session), s.cgroup(s.work, ""), s.cgroup(s.work, "supervisor")} {
		if r := move(in, to); r.Code == 0 {
			t.Errorf("the cell's root moved to %s: %v", to, r)
		}
	}
	if r := move(in, s.cgroup(s.work, "payload")); r.Code != 0 {
		t.Errorf("control: %v", r)
	}
	for _, file := range []string{"cgroup.freeze", "cgroup.kill"} {
		for _, dir := range []string{s.cgroup(s.work, session), s.cgroup(s.work, "")} {
			if r, err := in.Run(t.Context(), "/bin/sh", "-c", "echo 0 > "+dir+"/"+file); err != nil || r.Code == 0 {
				t.Errorf("the cell's root wrote %s of %s: %v %v", file, dir, err, r)
			}
		}
	}
	if err := os.WriteFile(s.cgroup(s.work, session)+"/cgroup.freeze", []byte("0"), 0); err != nil {
		t.Errorf("control: %v", err)
	}
}
