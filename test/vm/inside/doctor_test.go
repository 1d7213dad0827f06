// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/internal/wire"
)

// A cell whose user is in a group that makes more of it, or whose unit has more in its environment than systemd puts
// there, starts by no way, and nothing runs in it. What is refused names the group or the variable. The control of each
// is the same cell without it.
func TestFullACellThatIsNotArmedStartsByNoWay(t *testing.T) {
	denned(t)
	const unit = "doorward-cell@" + den + ".service"
	group := filepath.Join("/var/lib/doorward/cells", den, "etc/group")
	before, err := os.ReadFile(group)
	if err != nil {
		t.Fatal(err)
	}
	set := func(more string) {
		t.Helper()
		if err := os.WriteFile(group, append(before[:len(before):len(before)], more...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set("") })
	forget := func() { _, _ = run("systemctl", "reset-failed", unit) } // systemd may not know it any more
	control := func(what string) {
		t.Helper()
		forget()
		want(t, person(t, "", "cell", "start", den), 0, "control, "+what+": start")
		want(t, person(t, "", "run", den, "--", "true"), 0, "control, "+what+": a run")
		want(t, person(t, "", "cell", "stop", den), 0, "control, "+what+": stop")
		must(t, "systemctl", "start", unit)
		must(t, "systemctl", "stop", unit)
	}
	refused := func(what, name string) {
		t.Helper()
		r := person(t, "", "cell", "start", den)
		if r.code != 3 || !strings.Contains(r.stderr, name) || !strings.Contains(r.stderr, "next: ") {
			t.Errorf("%s: doorward cell start: %v", what, r)
		}
		forget()
		start := time.Now()
		if out, err := run("systemctl", "start", unit); err == nil {
			t.Errorf("%s: systemctl starts it: %s", what, out)
			must(t, "systemctl", "stop", unit)
		}
		if said := since(t, unit, start); !strings.Contains(said, name) {
			t.Errorf("%s: the unit does not say %q:\n%s", what, name, said)
		}
		if s := property(t, unit, "StatusText"); !strings.Contains(s, name) {
			t.Errorf("%s: the unit's status is %q", what, s)
		}
		forget()
	}
	// Of a cell that runs, nothing more is started in it.
	set("sudo:x:27:agent\n")
	r := person(t, "", "run", den, "--", "true")
	if r.code != 3 || !strings.Contains(r.stderr, "the group sudo") {
		t.Errorf("a run of a user in sudo: %v", r)
	}
	want(t, person(t, "", "cell", "stop", den), 0, "stop")
	for _, name := range []string{"sudo", "doorward"} {
		set(fmt.Sprintf("%s:x:901:agent\n", name))
		refused(name, "the group "+name)
	}
	if s := denState(t); !strings.Contains(s, "the group doorward") || !strings.Contains(s, "stopped") {
		t.Errorf("doorward cell show: %s", s)
	}
	set("")
	control("without the groups")

	undo := dropIn(t, unit, "Environment=SYSTEMD_NSPAWN_TMPFS_TMP=0\n")
	refused("a drop-in", "SYSTEMD_NSPAWN_TMPFS_TMP")
	undo()
	control("without the drop-in")
	must(t, "systemctl", "set-environment", "http_proxy=http://127.0.0.1:1")
	t.Cleanup(func() { must(t, "systemctl", "unset-environment", "http_proxy") })
	refused("the manager's environment", "http_proxy")
	must(t, "systemctl", "unset-environment", "http_proxy")
	control("without the variable")
}

// said is one finding of doctor.
type said struct{ Check, Of, State, What, Next string }

// doctor runs it as root, who is in a person's session, and returns what it found.
func doctor(t *testing.T) []said {
	t.Helper()
	return found(t, as(t, "root", "user-0.slice", "", "/usr/bin/doorward", "doctor", "--json"))
}

func found(t *testing.T, r result) []said {
	t.Helper()
	var all struct{ Items []said }
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil || len(all.Items) < 20 {
		t.Fatalf("doctor: %v: %v", err, r)
	}
	bad := in(all.Items, "wrong")
	if (r.code != 0) != (len(bad) > 0) || r.code > 1 {
		t.Errorf("doctor ends with %d and found %q", r.code, bad)
	}
	return all.Items
}

// in are the findings of a state, as "check" or "check of".
func in(all []said, state string) []string {
	var out []string
	for _, f := range all {
		if f.State == state {
			out = append(out, strings.TrimSpace(f.Check+" "+f.Of))
			if state == "wrong" && f.Next == "" {
				out = append(out, "(no next step: "+f.What+")")
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func tell(t *testing.T, all []said, state string) {
	t.Helper()
	for _, f := range all {
		if f.State == state {
			t.Logf("%s %s: %s", state, f.Check, f.What)
		}
	}
}

// On the machine as it is installed nothing is wrong and nothing is left untried.
func TestDoctorFindsNothingWrong(t *testing.T) {
	ready(t)
	denned(t)
	all := doctor(t)
	for _, state := range []string{"wrong", "untried"} {
		tell(t, all, state)
		if bad := in(all, state); len(bad) > 0 {
			t.Errorf("on the machine as it is installed: %s: %q", state, bad)
		}
	}
	tell(t, all, "weak")
	good := in(all, "ok")
	for _, check := range []string{"record", "answers.cells", "policy", "disk", "version.files", "version.package", "socket.others"} {
		if !slices.Contains(good, check) {
			t.Errorf("not tried: %s", check)
		}
	}
	for _, unit := range append([]string{"doorward-cells.service"}, services...) {
		for _, wall := range []string{"wall.network", "wall.run", "path.rows", "wall.privilege"} {
			if name := wall + " " + unit; wall+unit != "wall.networkdoorward-egress.service" && !slices.Contains(good, name) {
				t.Errorf("not tried: %s", name)
			}
		}
	}
	for _, cell := range []string{"work", den} {
		for _, wall := range []string{"cell.network", "cell.sentinel", "cell.kernel", "cell.processes", "cell.cgroup", "cell.payload"} {
			if !slices.Contains(good, wall+" "+cell) {
				t.Errorf("not tried: %s of %s", wall, cell)
			}
		}
	}
}

// One wall at a time is taken away, and doctor names that one. The control of each is the machine before and after.
func TestFullDoctorNamesTheWallThatIsGone(t *testing.T) {
	ready(t)
	denned(t)
	if have := in(doctor(t), "wrong"); len(have) > 0 {
		t.Fatalf("control: before anything is taken away, doctor says %q", have)
	}
	names := func(what string, want ...string) {
		t.Helper()
		all := doctor(t)
		slices.Sort(want)
		if have := in(all, "wrong"); !slices.Equal(have, want) {
			t.Errorf("%s: doctor says %q, want %q", what, have, want)
		}
		tell(t, all, "wrong")
	}
	worker, egress := "doorward-worker@dav.service", "doorward-egress.service"
	undo := dropIn(t, worker, "PrivateNetwork=no\n")
	must(t, "systemctl", "restart", worker)
	names("a worker in the machine's network", "wall.network "+worker)
	undo()
	must(t, "systemctl", "restart", worker)

	undo = dropIn(t, egress, "BindReadOnlyPaths=/run/dbus/system_bus_socket\n")
	must(t, "systemctl", "restart", egress)
	names("egress sees D-Bus", "wall.run "+egress)
	undo()
	must(t, "systemctl", "restart", egress)

	const cellsUnit = "doorward-cells.service"
	undo = dropIn(t, cellsUnit, "SystemCallFilter=\n")
	must(t, "systemctl", "restart", cellsUnit)
	names("runs without the filter", "cell.kernel "+den, "cell.kernel work")
	undo()
	must(t, "systemctl", "restart", cellsUnit)

	set := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	set(wire.PathApprove, 0o666)
	names("a socket that is open to all", "socket")
	set(wire.PathApprove, 0o660)

	set("/var/lib/doorward/authd", 0o755)
	names("authd's folder is open", "wall.files doorward-egress.service", "wall.files doorward-sentinel.service",
		"wall.files doorward-worker@dav.service", "wall.files doorward-worker@github.service")
	set("/var/lib/doorward/authd", 0o700)

	set("/var/lib/systemd/credential.secret", 0o640)
	names("SD-03: a credential's source that a group may read", "key")
	set("/var/lib/systemd/credential.secret", 0o400)

	restore := replaced(t, "/usr/libexec/doorward/egress")
	names("another program than the one that runs", "version.files", "version.running")
	restore()

	group := filepath.Join("/var/lib/doorward/cells", den, "etc/group")
	before, err := os.ReadFile(group)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(group, append(before[:len(before):len(before)], "sudo:x:27:agent\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	names("a cell's user in sudo", "cell.armed "+den)
	if err := os.WriteFile(group, before, 0o644); err != nil {
		t.Fatal(err)
	}
	if have := in(doctor(t), "wrong"); len(have) > 0 {
		t.Errorf("when all is put back, doctor says %q", have)
	}
}

// docs/kernel.md: without user namespaces doctor says so, and no daemon starts; nor does a cell.
func TestFullDoctorWithoutUserNamespaces(t *testing.T) {
	ready(t)
	const sysctl, worker = "/proc/sys/user/max_user_namespaces", "doorward-worker@dav.service"
	if have := in(doctor(t), "wrong"); len(have) > 0 {
		t.Fatalf("control: with them, doctor says %q", have)
	}
	most, err := os.ReadFile(sysctl)
	if err := errors.Join(err, os.WriteFile(sysctl, []byte("0"), 0)); err != nil {
		t.Fatal(err)
	}
	have := in(doctor(t), "wrong")
	out, restarted := run("systemctl", "restart", worker)
	if err := os.WriteFile(sysctl, most, 0); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(have, []string{"kernel.namespaces"}) {
		t.Errorf("doctor says %q", have)
	}
	if restarted == nil {
		t.Errorf("a worker starts without user namespaces: %s", out)
	}
	must(t, "systemctl", "restart", worker)
	eventually(t, "a read", func() error { return reads(t) })
}

// replaced puts another program in the place of one that runs.
func replaced(t *testing.T, path string) (restore func()) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(path, path+".before"), os.WriteFile(path, append(b, 0), 0o755)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Rename(path+".before", path); err != nil {
			t.Fatal(err)
		}
	}
}

// What goes without asking is said, and is nothing wrong. What only root can try, a person is told.
func TestDoctorSaysWhatGoesUnaskedAndWhatOnlyRootCanTry(t *testing.T) {
	ready(t)
	file := "/etc/doorward/policy/policy.toml"
	before, had := os.ReadFile(file)
	load := func(text []byte) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644)); err != nil {
			t.Fatal(err)
		}
		want(t, person(t, "", "policy", "load", "--yes"), 0, "load a policy")
	}
	if weak := in(found(t, person(t, "", "doctor", "--json")), "weak"); slices.Contains(weak, "policy.dontask") {
		t.Fatalf("control: before the policy is loaded doctor says %q", weak)
	}
	load([]byte("[connector.dav]\nsetting = \"dont-ask\"\n[connector.github.method]\ncomment = \"allow\"\n"))
	all := found(t, person(t, "", "doctor", "--json"))
	for _, want := range []string{"dav is set to dont-ask (policy.toml:2", "dav event-create goes without asking, a write",
		"github comment goes without asking, a write (policy.toml:4"} {
		if !slices.ContainsFunc(all, func(f said) bool { return f.State == "weak" && strings.Contains(f.What, want) }) {
			t.Errorf("doctor does not say %q", want)
			tell(t, all, "weak")
		}
	}
	for _, check := range []string{"wall", "socket", "version.running", "version.files"} {
		if !slices.ContainsFunc(all, func(f said) bool {
			return f.Check == check && f.State == "untried" && f.Next == "sudo doorward doctor"
		}) {
			t.Errorf("a person is not told that only root can try %s", check)
		}
	}
	if bad := in(all, "wrong"); len(bad) > 0 {
		t.Errorf("to a person doctor says %q", bad)
	}
	if had != nil {
		before = nil
	}
	load(before)
	// Who is not in the group is told so, and nothing else.
	r := as(t, "eve", "user-1001.slice", "", "/usr/bin/doorward", "doctor", "--json")
	if bad := in(found(t, r), "wrong"); len(bad) > 0 {
		t.Errorf("to a stranger doctor says %q", bad)
	}
}

// From inside, an agent learns whether it is served, and by which accounts.
func TestTheAgentsOwnDoctor(t *testing.T) {
	ready(t)
	eventually(t, "a read", func() error { return reads(t) })
	r := connector(t, "doctor")
	want(t, r, 0, "connector doctor")
	for _, line := range []string{"sentinel answers this cell", "dav: account diary is connected", "github: account code is connected"} {
		if !strings.Contains(r.stdout, "ok     "+line) {
			t.Errorf("it does not say %q: %v", line, r)
		}
	}
	must(t, "systemctl", "stop", "doorward-cell-worker@dav.socket", "doorward-worker@dav.socket", "doorward-worker@dav.service")
	r = connector(t, "doctor")
	if r.code != 1 || !strings.Contains(r.stdout, "tell the person: systemctl enable --now doorward-worker@dav") {
		t.Errorf("without a worker: %v", r)
	}
	must(t, "systemctl", "start", "doorward-cell-worker@dav.socket", "doorward-worker@dav.socket", "doorward-worker@dav.service")
	eventually(t, "a read", func() error { return reads(t) })
}

// A report of a machine that was used has no credential in it, and nothing that the person or the agent wrote. The
// control: what it is made of has.
func TestFullAReportOfTheMachine(t *testing.T) {
	ready(t)
	title := "Dinner with the neighbours"
	id := parks(t, title)
	shown := person(t, "", "show", id).stdout
	want(t, person(t, "", "deny", id), 0, "deny")
	var secrets []leaks.Secret
	for name, v := range map[string]string{"password": davPassword, "token": githubToken, "title": title, "owner": "ada@example.test",
		"server": strings.TrimPrefix(dav.Base(), "https://"), "calendar": "/calendars/ada"} {
		secrets = append(secrets, leaks.Secret{Name: name, Value: []byte(v)})
	}
	look, err := leaks.New(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	said := shown + person(t, "", "account", "show", "diary", "--json").stdout
	for _, name := range []string{"title", "owner"} {
		if !slices.ContainsFunc(look.Bytes("what is shown", []byte(said)), func(f leaks.Finding) bool { return f.Secret == name }) {
			t.Errorf("control: %s is not found in what doorward shows", name)
		}
	}
	for user, slice := range map[string]string{"root": "user-0.slice", "ada": "user-1000.slice"} {
		path := "/tmp/report-of-" + user
		want(t, as(t, user, slice, "", "/usr/bin/doorward", "report", path), 0, "a report of "+user)
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Mode&0o7777 != 0o600 || st.Uid != map[string]uint32{"root": 0, "ada": 1000}[user] {
			t.Errorf("%s: mode %o of %d, %v", path, st.Mode, st.Uid, err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range look.Bytes(path, b) {
			t.Errorf("%s", f)
		}
		var r struct {
			Findings, Units, Journal []map[string]any
			Accounts                 map[string]int
			Record                   struct {
				Verified bool
				Entries  int
			}
		}
		if err := json.Unmarshal(b, &r); err != nil || len(r.Findings) < 30 || len(r.Units) < 15 || r.Accounts["dav well"] != 1 ||
			!r.Record.Verified || r.Record.Entries == 0 || user == "root" && len(r.Journal) == 0 {
			t.Errorf("%s says little: %v: %d findings, %d units, %d lines, %v, %+v", path, err, len(r.Findings), len(r.Units),
				len(r.Journal), r.Accounts, r.Record)
		}
		if r := as(t, user, slice, "", "/usr/bin/doorward", "report", path); r.code != 2 {
			t.Errorf("a file that is there is taken: %v", r)
		}
	}
}
