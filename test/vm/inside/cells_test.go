// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	den     = "den"
	denUnit = "/sys/fs/cgroup/doorward.slice/doorward-cells.slice/doorward-cell@den.service"
)

// denned makes a cell with a configuration of its own, and has the person start it.
func denned(t *testing.T) {
	t.Helper()
	tree, project := "/var/lib/doorward/cells/"+den, "/srv/project"
	if _, err := os.Stat(tree); err != nil {
		if err := errors.Join(makeTree(tree), os.MkdirAll(project, 0o755), os.Chown(project, 1000, 1000),
			os.MkdirAll(filepath.Join(tree, project), 0o755), os.Chown(filepath.Join(tree, project), 1000, 1000),
			os.MkdirAll("/etc/doorward/cells", 0o755),
			os.WriteFile("/etc/doorward/cells/"+den+".toml", []byte("user = \"agent\"\nprojects = [\""+project+"\"]\n"+
				"[limits]\nmemory = \"512M\"\ntasks = 99\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want(t, person(t, "", "cell", "start", den), 0, "start a cell")
	t.Cleanup(func() { person(t, "", "cell", "stop", den) })
}

func denState(t *testing.T) string {
	t.Helper()
	r := person(t, "", "cell", "show", den)
	want(t, r, 0, "show a cell")
	return r.stdout
}

// A person starts a cell, runs a command in it as its user, and stops it with all that runs there.
func TestAPersonStartsRunsAndStops(t *testing.T) {
	denned(t)
	if s := denState(t); !strings.Contains(s, "running") || !strings.Contains(s, "payload") {
		t.Errorf("the cell:\n%s", s)
	}
	limited := func() {
		t.Helper()
		for name, want := range map[string]string{"MemoryMax": "536870912", "TasksMax": "99"} {
			if v := property(t, "doorward-cell@"+den, name); v != want {
				t.Errorf("%s is %s, want %s", name, v, want)
			}
		}
	}
	limited()
	r := person(t, "", "run", den, "--", "sh", "-c",
		"id -u; id -g; pwd; ls /sys/class/net; ls /run/doorward; echo $HOME $USER; touch made; stat -c %u made; tty; connector inbox; ls /proc/self/fd; exit 3")
	want(t, r, 3, "a run")
	for _, line := range []string{"1000\n1000\n/srv/project\nlo\nca  cell\n/home/agent agent\n1000\n/dev/pts/"} {
		if !strings.Contains(r.stdout, line) {
			t.Errorf("no %q in %v", line, r)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat("/srv/project/made", &st); err != nil || st.Uid != 1000 {
		t.Errorf("what it made in a project folder is %d's: %v", st.Uid, err)
	}
	r = person(t, "", "run", den, "--", "sh", "-c", "cat /proc/self/status; for i in 1 2 3; do echo > /proc/sys/kernel/core_pattern; done 2>&1; "+
		"echo 0 > /sys/fs/cgroup/cgroup.procs; ls /proc/1/root/run; unshare -U true && echo nested; python3 -c 1; dmesg 2>&1 | head -1")
	for _, line := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n", "Uid:\t1000\t1000\t1000\t1000\n", "CapEff:\t0000000000000000\n"} {
		if !strings.Contains(r.stdout, line) {
			t.Errorf("no %q in %v", line, r)
		}
	}
	if dirs, _ := filepath.Glob(denUnit + "/run-*"); len(dirs) > 0 {
		t.Errorf("runs that ended left %q", dirs)
	}
	want(t, person(t, "", "cell", "stop", den), 0, "stop a cell")
	eventually(t, "it is stopped", func() error {
		if s := denState(t); !strings.Contains(s, "stopped") {
			return errors.New(s)
		}
		return nil
	})
	r = person(t, "", "run", den, "true")
	want(t, r, 1, "a run in a cell that does not run")
	if !strings.Contains(r.stderr, "doorward cell start "+den) {
		t.Errorf("no next step: %v", r)
	}
	r = as(t, "eve", "user-1001.slice", "", "/usr/bin/doorward", "cell", "list")
	want(t, r, 3, "someone who is not in the group")
	// The limits are the unit's own to set, as where it starts with the machine.
	must(t, "systemctl", "revert", "doorward-cell@"+den)
	if v := property(t, "doorward-cell@"+den, "TasksMax"); v == "99" {
		t.Error("control: the limits are still set")
	}
	must(t, "systemctl", "start", "doorward-cell@"+den)
	limited()
}

// A person's shell at a terminal is attended; it ends with them.
func TestAShellAtATerminal(t *testing.T) {
	denned(t)
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 31, Col: 99})); err != nil {
		t.Fatal(err)
	}
	mine := os.NewFile(uintptr(fd), "terminal")
	defer mine.Close()
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const unit = "shell-of-ada"
	cmd := exec.Command("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--slice=user-1000.slice", "--uid=ada",
		"--unit="+unit, "--setenv=TERM=vt100", "--", "/usr/bin/doorward", "shell", den)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	var said strings.Builder
	until := func(keys, what string) {
		t.Helper()
		if _, err := io.WriteString(mine, keys); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		for end := time.Now().Add(90 * time.Second); !strings.Contains(said.String(), what); {
			_ = mine.SetReadDeadline(end)
			n, err := mine.Read(buf)
			said.Write(buf[:n])
			if err != nil {
				t.Fatalf("%v before %q:\n%s", err, what, said.String())
			}
		}
	}
	until("stty size; echo $TERM; test -O $(tty) && echo m''ine; connector inbox; echo u''p\n", "up\r\n")
	for _, what := range []string{"31 99\r\n", "vt100\r\n", "mine\r\n"} {
		if !strings.Contains(said.String(), what) {
			t.Errorf("no %q in\n%s", what, said.String())
		}
	}
	r := person(t, "", "session")
	if want(t, r, 0, "sessions"); !strings.Contains(r.stdout, den+"/run-") || !strings.Contains(r.stdout, "yes") {
		t.Errorf("it is not attended: %v", r)
	}
	until("sleep 1000\n", "sleep 1000\r\n")
	must(t, "systemctl", "kill", "-s", "KILL", unit+".service")
	_ = cmd.Wait()
	eventually(t, "the run ends with who started it", func() error {
		if dirs, _ := filepath.Glob(denUnit + "/run-*"); len(dirs) > 0 {
			return fmt.Errorf("%q", dirs)
		}
		return nil
	})
	eventually(t, "sentinel knows", func() error {
		if r := person(t, "", "session"); strings.Contains(r.stdout, den+"/run-") {
			return errors.New(r.stdout)
		}
		return nil
	})
}

// A frozen cell stands still, by the person or the switch, and can be stopped.
func TestAFrozenCell(t *testing.T) {
	denned(t)
	still := func() bool {
		b, err := os.ReadFile(denUnit + "/cgroup.events")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(b), "frozen 1")
	}
	hold := func(what string, want bool) {
		t.Helper()
		if still() != want {
			t.Errorf("%s: frozen is %v", what, !want)
		}
	}
	hold("control", false)
	want(t, person(t, "", "cell", "freeze", den), 0, "freeze")
	hold("frozen", true)
	want(t, person(t, "", "cell", "thaw", den), 0, "thaw")
	hold("thawed", false)
	r := person(t, "", "stop", den)
	if want(t, r, 0, "the switch"); !strings.Contains(r.stdout, "frozen: "+den) {
		t.Errorf("the switch: %v", r)
	}
	hold("stopped", true)
	want(t, person(t, "", "cell", "thaw", den), 3, "thaw what the switch froze")
	must(t, "systemctl", "restart", "doorward-cells.service")
	hold("stopped, and cells started anew", true)
	want(t, person(t, "", "stop", "--resume", den, "--yes"), 0, "resume")
	eventually(t, "it goes on", func() error {
		if still() {
			return errors.New("it is frozen")
		}
		return nil
	})
	want(t, person(t, "", "cell", "freeze", den), 0, "freeze")
	want(t, person(t, "", "cell", "stop", den), 0, "stop a frozen cell")
	if s := denState(t); !strings.Contains(s, "stopped") {
		t.Errorf("the cell:\n%s", s)
	}
}

// A cell with a system of its own has nothing of the machine's /usr but the agent's command and what doctor tries with.
func TestFullACellWithASystemOfItsOwn(t *testing.T) {
	ready(t)
	const name, tree = "apart", "/var/lib/doorward/cells/apart"
	if err := errors.Join(makeTree(tree), os.MkdirAll("/etc/doorward/cells", 0o755),
		os.WriteFile("/etc/doorward/cells/"+name+".toml", []byte("user = \"agent\"\nusr = \"own\"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		person(t, "", "cell", "stop", name)
		_ = errors.Join(os.RemoveAll(tree), os.Remove("/etc/doorward/cells/"+name+".toml"))
	})
	must(t, "sh", "-ec", `mkdir -p $0/usr/bin $0/usr/lib64 $0/usr/lib/x86_64-linux-gnu
	for p in sh sleep cat ls id; do
		for f in /usr/bin/$p $(ldd /usr/bin/$p | grep -o '/[^ ]*'); do cp -L $f $0$f; done
	done`, tree)
	want(t, person(t, "", "cell", "start", name), 0, "start a cell with a system of its own")
	r := person(t, "", "run", name, "--", "sh", "-c", "id -u; ls -1 /usr/bin /usr/share; connector inbox")
	want(t, r, 0, "a run in it")
	const all = "1000\n/usr/bin:\ncat\nconnector\ndoorward\nid\nls\nsh\nsleep\n\n/usr/share:\ndoorward\n"
	if !strings.HasPrefix(r.stdout, all) {
		t.Errorf("its /usr is another than %q: %v", all, r)
	}
	if r := person(t, "", "run", "work", "--", "ls", "/usr/bin"); !strings.Contains(r.stdout, "systemctl") {
		t.Errorf("control: a cell with the machine's /usr: %v", r)
	}
	found := doctor(t)
	tell(t, found, "wrong")
	good := in(found, "ok")
	for _, wall := range []string{"cell.network", "cell.sentinel", "cell.kernel", "cell.processes", "cell.cgroup", "cell.payload"} {
		if !slices.Contains(good, wall+" "+name) {
			t.Errorf("doctor does not try %s of it", wall)
		}
	}
}
