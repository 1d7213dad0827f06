// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// These are the last tests: after them nothing is there.

func leader(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(cellUnit + "/payload/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return first
}

// previous makes a package of an older version from the one under test: with other words in a unit, a socket of another
// name and mode, a connector whose methods reach further, and one that describes itself in other words.
func previous(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	must(t, "dpkg-deb", "-R", bench+"/doorward.deb", dir)
	edit := func(file, old, now string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !bytes.Contains(b, []byte(old)) {
			t.Fatalf("%s has no %q: %v", file, old, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), bytes.ReplaceAll(b, []byte(old), []byte(now)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edit("DEBIAN/control", "\nVersion: ", "\nVersion: 0.0.0~")
	edit("usr/lib/systemd/system/doorward-egress.service", "Description=Doorward:", "Description=Older:")
	const units = "usr/lib/systemd/system/"
	edit(units+"doorward-egress-sentinel.socket", "SocketMode=0660", "SocketMode=0666")
	edit(units+"doorward-egress.service", "doorward-egress-sentinel.socket", "doorward-egress-older.socket")
	edit(units+"doorward.target", "doorward-egress-sentinel.socket", "doorward-egress-older.socket")
	if err := os.Rename(filepath.Join(dir, units+"doorward-egress-sentinel.socket"), filepath.Join(dir, units+"doorward-egress-older.socket")); err != nil {
		t.Fatal(err)
	}
	edit("usr/share/doorward/dav.desc", "\xa6people", "\xa6public")          // a reach, in MessagePack
	edit("usr/share/doorward/github.desc", "open an issue", "0pen an issue") // in other words
	must(t, "sh", "-c", "cd "+dir+" && find usr -type f -exec md5sum {} + > DEBIAN/md5sums")
	deb := filepath.Join(filepath.Dir(dir), "previous.deb")
	must(t, "dpkg-deb", "-Znone", "-b", dir, deb)
	return deb
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()
}

// The package over itself does what an upgrade does: dpkg calls its scripts alike. What waits goes on, and so does the cell;
// the daemons that ran run anew. What the new programs do not take is said, and does not stop the upgrade.
func TestFullAnUpgradeKeepsTheParkedCallAndTheCell(t *testing.T) {
	ready(t)
	must(t, "systemctl", "stop", "doorward-worker@github.service")
	before, cell := issues(), leader(t)
	id := parks(t, "Upgraded")
	pids := map[string]int{}
	for _, unit := range append([]string{"doorward-cells.service"}, services...) {
		if unit != "doorward-worker@github.service" {
			pids[unit] = mainPID(t, unit)
		}
	}
	wrong := map[string]string{"/etc/doorward/cells/bad.toml": "odd = 1\n", "/etc/doorward/policy/policy.toml": "even = 2\n"}
	defer os.Remove("/etc/doorward/policy") // behind its file
	for file, text := range wrong {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(file)
	}
	r := as(t, "root", "user-0.slice", "", "/usr/bin/dpkg", "-i", bench+"/doorward.deb")
	want(t, r, 0, "an upgrade")
	for _, what := range []string{`there is no key "odd"`, "do not start until", `"even"`, "have faults"} {
		if !strings.Contains(r.stderr, what) {
			t.Errorf("the upgrade does not say %q: %v", what, r)
		}
	}
	for unit, pid := range pids {
		if mainPID(t, unit) == pid {
			t.Errorf("%s still is process %d", unit, pid)
		}
	}
	if state := property(t, "doorward-worker@github.service", "ActiveState"); state != "inactive" {
		t.Errorf("a worker that was stopped is %s", state)
	}
	if now := leader(t); now != cell {
		t.Errorf("the cell's first process was %s and is %s", cell, now)
	}
	want(t, person(t, "", "approve", id, "--yes"), 0, "approve")
	want(t, connector(t, "wait", id), 0, "wait for what was approved")
	if n := issues() - before; n != 1 {
		t.Errorf("the vendor saw %d issues, want one", n)
	}
}

// An upgrade from another version: what waits goes on, and so do a cell and what a person runs in it; a daemon that was
// stopped and one that has failed stay so; units, sockets and descriptions are the new ones.
func TestFullAnUpgradeFromAnotherVersion(t *testing.T) {
	ready(t)
	must(t, "dpkg", "-i", previous(t))
	const socket = "/run/doorward/egress/sentinel/sock"
	if m := mode(t, socket); m != 0o666 {
		t.Errorf("the older version's socket has mode %o", m)
	}
	if d := property(t, "doorward-egress", "Description"); !strings.HasPrefix(d, "Older:") {
		t.Errorf("the older version's unit is %q", d)
	}
	if r := person(t, "", "policy", "show"); !strings.Contains(r.stdout+r.stderr, "dav event-create") {
		t.Errorf("methods are described otherwise than when the policy was decided, and nothing says so: %v", r)
	}

	must(t, "systemctl", "stop", "doorward-worker@github.service")
	failed := failedUnit(t)
	before, cell := issues(), leader(t)
	id := parks(t, "Upgraded")
	live := startRun(t, "work", "while :; do echo on; sleep 1; done")
	pids := map[string]int{}
	for _, unit := range append([]string{"doorward-cells.service"}, services...) {
		if unit != "doorward-worker@github.service" {
			pids[unit] = mainPID(t, unit)
		}
	}
	said := must(t, "dpkg", "-i", bench+"/doorward.deb")
	if !strings.Contains(said, "doorward-cells.service goes on as the older program") {
		t.Errorf("the upgrade says nothing of the run: %s", said)
	}
	for unit, pid := range pids {
		if same := mainPID(t, unit) == pid; same != (unit == "doorward-cells.service") {
			t.Errorf("%s: the same process: %t", unit, same)
		}
	}
	for unit, want := range map[string]string{"doorward-worker@github.service": "inactive", failed: "failed"} {
		if state := property(t, unit, "ActiveState"); state != want {
			t.Errorf("%s was %s and is %s", unit, want, state)
		}
	}
	if m := mode(t, socket); m != 0o660 {
		t.Errorf("the socket still has mode %o", m)
	}
	if d := property(t, "doorward-egress", "Description"); !strings.HasPrefix(d, "Doorward:") {
		t.Errorf("the unit still is %q", d)
	}
	for unit, want := range map[string]string{"doorward-egress-sentinel.socket": "active", "doorward-egress-older.socket": "inactive"} {
		if s := property(t, unit, "ActiveState"); s != want {
			t.Errorf("%s is %s, want %s", unit, s, want)
		}
	}
	if r := person(t, "", "policy", "show"); strings.Contains(r.stdout+r.stderr, "dav event-create") {
		t.Errorf("the methods are those that were decided, and still ask: %v", r)
	}
	if now := leader(t); now != cell {
		t.Errorf("the cell's first process was %s and is %s", cell, now)
	}
	if !live.alive() {
		t.Errorf("the run ended with the upgrade: %s", live)
	}
	want(t, person(t, "", "approve", id, "--yes"), 0, "approve")
	want(t, connector(t, "wait", id), 0, "wait for what was approved")
	if n := issues() - before; n != 1 {
		t.Errorf("the vendor saw %d issues, want one", n)
	}
	version, _, _ := strings.Cut(must(t, "dpkg-query", "-W", "-f", "${Version}", "doorward"), "+") // before the time of the build
	for command, r := range map[string]result{"doorward": person(t, "", "version"), "connector": connector(t, "version")} {
		if !strings.HasPrefix(r.stdout, command+" "+version+"-") {
			t.Errorf("%s of package %s: %v", command, version, r)
		}
	}
	live.end(t)
	pid := mainPID(t, "doorward-cells.service")
	must(t, "systemctl", "restart", "doorward-cells.service")
	if mainPID(t, "doorward-cells.service") == pid {
		t.Error("the daemon of cells is not restarted by what the upgrade said")
	}
}

// failedUnit is a daemon that has failed and that systemd does not start again.
func failedUnit(t *testing.T) string {
	t.Helper()
	const unit = "doorward-worker@none.service"
	dropIn := "/run/systemd/system/" + unit + ".d"
	if err := errors.Join(os.MkdirAll(dropIn, 0o755), os.WriteFile(dropIn+"/once.conf", []byte("[Service]\nRestart=no\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.RemoveAll(dropIn)
		_, _ = run("systemctl", "stop", "doorward-worker@none.socket", "doorward-cell-worker@none.socket")
		_, _ = run("systemctl", "daemon-reload")
		_, _ = run("systemctl", "reset-failed", unit)
	})
	must(t, "systemctl", "daemon-reload")
	if said, err := run("systemctl", "start", unit); err == nil {
		t.Fatalf("a daemon without a program runs: %s", said)
	}
	return unit
}

// aRun is a command that a person has started in a cell.
type aRun struct {
	cmd  *exec.Cmd
	said *bytes.Buffer
	over chan struct{}
}

func (r *aRun) String() string { return r.said.String() }

func startRun(t *testing.T, cell, script string) *aRun {
	t.Helper()
	r := &aRun{said: new(bytes.Buffer), over: make(chan struct{})}
	r.cmd = exec.Command("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--slice=user-1000.slice", "--uid=ada", "--unit=run-of-ada",
		"--", "/usr/bin/doorward", "run", cell, "--", "sh", "-c", script)
	r.cmd.Stdout, r.cmd.Stderr = r.said, r.said
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.over) }()
	eventually(t, "the run lives", func() error {
		return runs(1)
	})
	return r
}

// runs says whether n runs live in cells.
func runs(n int) error {
	live := 0
	files, _ := filepath.Glob("/sys/fs/cgroup/doorward.slice/doorward-cells.slice/doorward-cell@*.service/run-*/cgroup.events")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "populated 1") {
			live++
		}
	}
	if live != n {
		return fmt.Errorf("%d runs live, want %d", live, n)
	}
	return nil
}

func (r *aRun) alive() bool {
	select {
	case <-r.over:
		return false
	default:
		return runs(1) == nil
	}
}

func (r *aRun) end(t *testing.T) {
	t.Helper()
	_, _ = run("systemctl", "stop", "run-of-ada.service")
	<-r.over
	eventually(t, "the run is over", func() error { return runs(0) })
}

// withSystemctl has the admin, logged in, run dpkg with a systemctl that refuses what matches; the rest is the real one's.
func withSystemctl(t *testing.T, refuses string, args ...string) result {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in\n" + refuses + ") echo 'no systemd today' >&2; exit 1;;\nesac\nexec /usr/bin/systemctl \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return as(t, "root", "user-0.slice", "", append([]string{"/usr/bin/env", "PATH=" + dir + ":/usr/sbin:/usr/bin:/sbin:/bin", "dpkg"}, args...)...)
}

func populated(unit string) bool {
	b, err := os.ReadFile(unit + "/cgroup.events")
	return err == nil && strings.Contains(string(b), "populated 1")
}

// A store of a newer version is refused by the daemon that owns it, in words that systemctl status shows, and is left as it
// is; with the store as it was it starts.
func TestFullAStoreOfANewerVersionIsRefusedInWords(t *testing.T) {
	ready(t)
	for _, c := range []struct {
		unit, file string
		change     func([]byte) []byte
		says       string
	}{
		{"doorward-authd.service", "/var/lib/doorward/authd/store/header.json", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"version":2,`), []byte(`"version":9,`), 1)
		}, "it has version 9, this program knows 2"},
		{"doorward-sentinel.service", "/var/lib/doorward/sentinel/ledger/ledger.db", func(b []byte) []byte {
			b = bytes.Clone(b)
			b[63] = 9 // user_version, sqlite.org/fileformat2.html
			return b
		}, "it has version 9, this program knows 1"},
	} {
		// With its sockets, or who dials it has it started again at once.
		units := append(strings.Fields(property(t, c.unit, "TriggeredBy")), c.unit)
		stop := func() { must(t, "systemctl", append([]string{"stop"}, units...)...) }
		stop()
		was, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		newer := c.change(was)
		if bytes.Equal(newer, was) {
			t.Fatalf("%s is not changed", c.file)
		}
		put := func(b []byte) { // in the file that is there: owner and mode stay
			if err := os.WriteFile(c.file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put(newer)
		if said, err := run("systemctl", "start", c.unit); err == nil {
			t.Errorf("%s starts: %s", c.unit, said)
		}
		eventually(t, "its status says why", func() error {
			said, _ := run("systemctl", "status", "--no-pager", "--full", c.unit)
			if !strings.Contains(said, c.says) || !strings.Contains(said, "install the newer program again") {
				return errors.New(said)
			}
			return nil
		})
		stop()
		if b, err := os.ReadFile(c.file); err != nil || !bytes.Equal(b, newer) {
			t.Errorf("%s was changed by who refused it: %v", c.file, err)
		}
		put(was)
		must(t, "systemctl", append([]string{"start"}, units...)...)
	}
	eventually(t, "all goes on", func() error { return reads(t) })
}

// What cannot be stopped is not removed, and a cell is never what is left. Systemd answers nothing here, so it is the
// kernel that ends the cell.
func TestARemovalThatFailsLeavesNoCell(t *testing.T) {
	ready(t)
	must(t, "systemctl", "start", "doorward-cell@work")
	if r := withSystemctl(t, "stop*|disable*", "-r", "doorward"); r.code == 0 || !strings.Contains(r.stderr, "they are killed") {
		t.Errorf("nothing could be stopped: %v", r)
	}
	if populated(cellUnit) {
		t.Error("the cell lives on")
	}
	if s := strings.TrimSpace(must(t, "dpkg-query", "-W", "-f", "${db:Status-Status}", "doorward")); s != "installed" {
		t.Errorf("the package is %s", s)
	}
	mainPID(t, "doorward-sentinel.service") // what decides for cells is there
	// It can be tried again, and everything goes on.
	_, _ = run("systemctl", "reset-failed", "doorward-cell@work")
	must(t, "systemctl", "restart", "doorward-cell@work")
	must(t, "systemctl", "start", "doorward.target")
	if err := reads(t); err != nil {
		t.Error(err)
	}
}

// A cell that is frozen and one in which a command runs end with a removal, also where systemd does not stop them. What
// was kept is there until it is purged.
func TestRemovingStopsAllAndKeepsData(t *testing.T) {
	ready(t)
	denned(t)
	startRun(t, "work", "while :; do sleep 1; done")
	want(t, person(t, "", "cell", "freeze", den), 0, "freeze a cell")
	if r := withSystemctl(t, "'stop doorward-cell@'*", "-r", "doorward"); r.code != 0 || !strings.Contains(r.stderr, "they are killed") {
		t.Fatalf("remove: %v", r)
	}
	eventually(t, "no unit is left", func() error {
		said := must(t, "systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,failed", "doorward*.service",
			"doorward*.socket", "doorward.target")
		if strings.TrimSpace(said) != "" {
			return errors.New("these units are left:\n" + said)
		}
		return nil
	})
	for _, unit := range []string{cellUnit, denUnit} {
		if _, err := os.Stat(unit); err == nil {
			t.Errorf("%s is left", unit)
		}
	}
	if said := must(t, "ip", "netns", "list"); strings.Contains(said, "doorward") {
		t.Errorf("a cell's network is left: %s", said)
	}
	for _, kept := range []string{"/var/lib/doorward/authd/store", "/var/lib/doorward/sentinel/ledger", "/var/lib/doorward/cells/work/home/agent",
		"/etc/doorward/cells/den.toml", "/etc/credstore.encrypted/doorward.store-key"} {
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("after removing: %v", err)
		}
	}
	// Somebody's folder that is mounted below a cell's tree is not the package's to delete.
	const below, theirs = "/var/lib/doorward/cells/work/home/agent", "/var/lib/theirs"
	if err := errors.Join(os.MkdirAll(theirs, 0o755), os.WriteFile(theirs+"/file", []byte("mine"), 0o644)); err != nil {
		t.Fatal(err)
	}
	must(t, "mount", "--bind", theirs, below) // of the same file system, which rm does not know from another
	if said, err := run("dpkg", "-P", "doorward"); err == nil || !strings.Contains(said, below) {
		t.Errorf("purged with a mount below: %v: %s", err, said)
	}
	if _, err := os.Stat("/var/lib/doorward/authd/store"); err != nil {
		t.Errorf("what is refused is done in part: %v", err)
	}
	must(t, "umount", below)
	said := must(t, "dpkg", "-P", "doorward")
	for _, what := range []string{"2 credentials were kept here", "revoke them there", "github", "code", "dav", "diary"} {
		if !strings.Contains(said, what) {
			t.Errorf("purging does not say %q: %s", what, said)
		}
	}
	if b, err := os.ReadFile(theirs + "/file"); err != nil || string(b) != "mine" {
		t.Errorf("what was mounted is gone: %v", err)
	}
	for _, gone := range []string{"/var/lib/doorward/authd", "/etc/doorward", "/etc/credstore.encrypted/doorward.store-key",
		"/etc/systemd/system/doorward.target.wants", "/usr/share/doorward"} {
		if _, err := os.Stat(gone); err == nil {
			t.Errorf("%s is left after purging", gone)
		}
	}
}
