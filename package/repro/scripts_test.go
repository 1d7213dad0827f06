// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The maintainer scripts are POSIX sh, as far as a shell without extensions reads them, and end where a command fails.
func TestTheScriptsAreForAnyShell(t *testing.T) {
	for _, name := range []string{"preinst", "postinst", "prerm", "postrm"} {
		file := "../" + name
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(b), "#!/bin/sh\n") || !strings.Contains(string(b), "\nset -e\n") {
			t.Errorf("%s does not begin with #!/bin/sh and set -e", name)
		}
		for _, shell := range []string{"dash", "sh"} {
			if _, err := exec.LookPath(shell); err != nil {
				continue
			}
			if said, err := exec.Command(shell, "-n", file).CombinedOutput(); err != nil {
				t.Errorf("%s -n %s: %v\n%s", shell, name, err, said)
			}
		}
	}
}

// stand is where a script finds a systemctl that writes down what it is told, and a machine of files alone: /run, the
// units and the cgroups are its own.
type stand struct {
	t              *testing.T
	bin, root, log string
}

const cellGroup = "doorward.slice/doorward-cells.slice/doorward-cell@work.service"

func newStand(t *testing.T) *stand {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a mount namespace needs root")
	}
	s := &stand{t, t.TempDir(), t.TempDir(), ""}
	s.log = filepath.Join(s.root, "run", "log")
	for _, dir := range []string{"run/systemd/system", "units", "cgroup/" + cellGroup + "/run-1"} {
		if err := os.MkdirAll(filepath.Join(s.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.program("systemctl", `echo "$*" >> /run/log
case "$*" in
list-units*.socket) printf 'doorward-approve.socket loaded active\ndoorward-gone.socket loaded active\ndoorward-cells-person.socket loaded active\n' ;;
list-units*) printf 'doorward-authd.service loaded active\ndoorward-cells.service loaded active\ndoorward-cell@work.service loaded active\n' ;;
show*gone*) echo not-found ;;
show*) echo loaded ;;
esac
case "$1" in "$FAILS"*) [ -z "$FAILS" ] || exit 1 ;; esac`)
	for _, name := range []string{"systemd-sysusers", "systemd-tmpfiles", "doorward", "sleep"} {
		s.program(name, "exit 0")
	}
	s.file("units/doorward-approve.socket", "as it is")
	return s
}

func (s *stand) program(name, script string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) file(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.root, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a script with a systemctl that fails for the word that is given, and returns its end, what it said, and what
// systemctl was told.
func (s *stand) run(fails, script string, args ...string) (ok bool, said string, told []string) {
	s.t.Helper()
	if err := os.WriteFile(s.log, nil, 0o644); err != nil {
		s.t.Fatal(err)
	}
	file, err := filepath.Abs("../" + script)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-ec", `mount --bind "$ROOT/run" /run
mount --bind "$ROOT/units" /usr/lib/systemd/system
mount --bind "$ROOT/cgroup" /sys/fs/cgroup
PATH="$BIN:$PATH" exec sh "$@"`, "sh", file}, args...)...)
	cmd.Env = append(os.Environ(), "ROOT="+s.root, "BIN="+s.bin, "FAILS="+fails)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	log, _ := os.ReadFile(s.log)
	return err == nil, string(b), strings.Split(strings.TrimSpace(string(log)), "\n")
}

func (s *stand) want(told []string, wants ...string) {
	s.t.Helper()
	told = append([]string(nil), told...)
	for i := len(told) - 1; i >= 0; i-- { // questions change nothing
		if strings.HasPrefix(told[i], "list-units") || strings.HasPrefix(told[i], "show") {
			told = append(told[:i], told[i+1:]...)
		}
	}
	if strings.Join(told, "\n") != strings.Join(wants, "\n") {
		s.t.Errorf("systemctl was told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(wants, "\n"))
	}
}

// An installation starts nothing; an upgrade restarts what ran, opens sockets anew only where one has changed, and lets
// runs be.
func TestWhatAnUpgradeRestarts(t *testing.T) {
	s := newStand(t)
	_, _, told := s.run("", "postinst", "configure", "")
	s.want(told, "daemon-reload")

	// The walls around cells, which run on: what an older version did not have, and programs replaced in place.
	const started, replaced = "start doorward-bpf.service doorward-canary.timer", "reload doorward-cellnet@*.service"
	upgrade := func(fails string) (bool, string, []string) {
		t.Helper()
		return s.run(fails, "postinst", "configure", "0.0.9")
	}
	s.run("", "preinst", "upgrade", "0.0.9")
	s.run("", "postrm", "upgrade", "0.1.0")
	_, _, told = upgrade("")
	s.want(told, "daemon-reload", "restart doorward-authd.service doorward-cells.service", "-q is-active doorward.target", started, replaced)

	ok, said, told := upgrade("restart")
	s.want(told, "daemon-reload", "restart doorward-authd.service doorward-cells.service", "-q is-active doorward.target", started, replaced)
	if !ok || !strings.Contains(said, "not all daemons are up again") {
		t.Errorf("a daemon does not come up: %t %s", ok, said)
	}

	unpack := func() { // the old package's postrm comes between the new one's scripts
		s.run("", "prerm", "upgrade", "0.1.0")
		s.run("", "preinst", "upgrade", "0.0.9")
		s.run("", "postrm", "upgrade", "0.1.0")
	}
	unpack()
	s.file("units/doorward-approve.socket", "another one")
	s.file("cgroup/"+cellGroup+"/run-1/cgroup.events", "populated 1\nfrozen 0\n")
	_, said, told = upgrade("")
	s.want(told, "daemon-reload", "stop doorward-approve.socket doorward-gone.socket", "stop doorward-authd.service",
		"start doorward-approve.socket", "start doorward-authd.service", "-q is-active doorward.target", started, replaced)
	if !strings.Contains(said, "systemctl restart doorward-cells.service") {
		t.Errorf("nothing is said of the run: %s", said)
	}
	if _, err := os.Stat(filepath.Join(s.root, "run/doorward-upgrade")); err == nil {
		t.Error("what preinst kept is left")
	}
}

// A removal stops cells before what decides for them, kills those that systemd does not stop, and is refused while one
// lives; the controls are a cell that ends, and an upgrade, which stops nothing.
func TestARemovalLeavesNoCell(t *testing.T) {
	s := newStand(t)
	events := "cgroup/" + cellGroup + "/cgroup.events"
	killed := filepath.Join(s.root, "cgroup", cellGroup, "cgroup.kill")
	first := []string{"stop doorward-cells-person.socket doorward-cells-sentinel.socket", "stop doorward-cells.service",
		"stop doorward-cell@*.service"}
	for _, fails := range []string{"", "stop"} {
		s.file(events, "populated 1\nfrozen 1\n") // a file: whatever is written to cgroup.kill, it lives on
		ok, said, told := s.run(fails, "prerm", "remove")
		s.want(told, first...)
		if ok || !strings.Contains(said, "nothing is removed") {
			t.Errorf("a cell lives, and the removal goes on: %s", said)
		}
		if b, err := os.ReadFile(killed); err != nil || string(b) != "1\n" {
			t.Errorf("it was not killed: %q %v", b, err)
		}
	}
	s.file(events, "populated 0\nfrozen 0\n")
	ok, _, told := s.run("", "prerm", "remove")
	s.want(told, append(first, "stop doorward-*.timer", "stop doorward-*.socket", "disable --now doorward.target", "stop doorward-*.service")...)
	if !ok {
		t.Error("control: no cell lives, and the removal is refused")
	}
	if ok, said, told := s.run("disable", "prerm", "remove"); ok {
		t.Errorf("what decides cannot be stopped, and is removed: %s %s", said, told)
	}
	_, _, told = s.run("", "prerm", "upgrade", "1.0")
	s.want(told, "")
}
