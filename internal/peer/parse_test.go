// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	n32 := strings.Repeat("a", 32)
	cell := func(name, session string) Identity {
		return Identity{Kind: Cell, Unit: "doorward-cell@" + name + ".service", Name: name, Session: session}
	}
	worker := func(v string) Identity {
		return Identity{Kind: Unit, Unit: "doorward-worker@" + v + ".service", Name: v, Worker: true}
	}
	daemon := func(n string) Identity { return Identity{Kind: Unit, Unit: "doorward-" + n + ".service", Name: n} }
	const cells, workers = "/doorward.slice/doorward-cells.slice", "/doorward.slice/doorward-workers.slice"
	tests := []struct {
		name, path string
		want       Identity // zero: refused
	}{
		{"a daemon", "/doorward.slice/doorward-authd.service", daemon("authd")},
		{"a worker", workers + "/doorward-worker@github.service", worker("github")},
		{"the longest name", workers + "/doorward-worker@" + n32 + ".service", worker(n32)},
		{"a cell's payload", cells + "/doorward-cell@work.service/payload", cell("work", "payload")},
		{"a run in a cell", cells + "/doorward-cell@work.service/run-7f3a", cell("work", "run-7f3a")},
		{"below a cell's payload", cells + "/doorward-cell@work.service/payload/init.scope", cell("work", "payload")},
		{"another cell of which the name begins the same", cells + "/doorward-cell@work2.service/payload",
			cell("work2", "payload")},
		{"a cell that builds the tree again below itself",
			cells + "/doorward-cell@work.service/payload/doorward.slice/doorward-authd.service", cell("work", "payload")},
		{"a cell that builds a person's slice below itself",
			cells + "/doorward-cell@work.service/payload/user.slice/user-0.slice/a", cell("work", "payload")},
		{"an escape below a cell is text", cells + `/doorward-cell@work.service/payload/a\x2fb`, cell("work", "payload")},
		{"a person's session", "/user.slice/user-1000.slice/session-3.scope", Identity{Kind: Person, UID: 1000}},
		{"a person's own unit", "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service",
			Identity{Kind: Person, UID: 1000}},
		{"root's session", "/user.slice/user-0.slice/session-1.scope", Identity{Kind: Person}},
		{"a person that builds the tree again below itself",
			"/user.slice/user-1000.slice/user@1000.service/doorward.slice/doorward-authd.service",
			Identity{Kind: Person, UID: 1000}},

		{"empty", "", Identity{}},
		{"the root", "/", Identity{}},
		{"relative", "doorward.slice/doorward-authd.service", Identity{}},
		{"two slashes before", "//doorward.slice/doorward-authd.service", Identity{}},
		{"two slashes within", "/doorward.slice//doorward-authd.service", Identity{}},
		{"a slash behind", "/doorward.slice/doorward-authd.service/", Identity{}},
		{"a dot", "/doorward.slice/./doorward-authd.service", Identity{}},
		{"outside the namespace's root", "/../doorward.slice/doorward-authd.service", Identity{}},
		{"further outside", "/../../doorward.slice/doorward-authd.service", Identity{}},
		{"back up within", cells + "/doorward-cell@work.service/payload/../../../doorward-authd.service", Identity{}},
		{"only the slice", "/doorward.slice", Identity{}},
		{"below a daemon", "/doorward.slice/doorward-authd.service/sub", Identity{}},
		{"the egress of a cell", "/doorward.slice/doorward-egress@work.service", Identity{Kind: Unit,
			Unit: "doorward-egress@work.service", Name: "egress", Of: "work"}},
		{"the egress of a cell without a name", "/doorward.slice/doorward-egress@.service", Identity{}},
		{"the egress of a cell with another name", "/doorward.slice/doorward-egress@work-2.service", Identity{}},
		{"the egress of a cell in the cells' slice", cells + "/doorward-egress@work.service/payload", Identity{}},
		{"another daemon of a cell", "/doorward.slice/doorward-authd@work.service", Identity{}},
		{"below a worker", workers + "/doorward-worker@github.service/sub", Identity{}},
		{"a daemon deeper", "/system.slice/doorward.slice/doorward-authd.service", Identity{}},
		{"a daemon in another slice", "/system.slice/doorward-authd.service", Identity{}},
		{"a daemon in the cells' slice", cells + "/doorward-authd.service", Identity{}},
		{"a worker in the cells' slice", cells + "/doorward-worker@github.service", Identity{}},
		{"a worker in the cells' slice with a session", cells + "/doorward-worker@github.service/payload", Identity{}},
		{"a cell in the workers' slice", workers + "/doorward-cell@work.service/payload", Identity{}},
		{"a worker as a daemon", "/doorward.slice/doorward-worker@github.service", Identity{}},
		{"a slice that nests at the dash", "/doorward.slice/doorward-cells.slice/doorward-cells-x.slice/" +
			"doorward-cell@work.service/payload", Identity{}},
		{"a slice whose name goes on", "/doorward.slice/doorward-workers2.slice/doorward-worker@a.service", Identity{}},
		{"a slice's name with something before", "/xdoorward.slice/doorward-authd.service", Identity{}},
		{"a scope", "/doorward.slice/doorward-authd.scope", Identity{}},
		{"a cell without session", cells + "/doorward-cell@work.service", Identity{}},
		{"nspawn's supervisor", cells + "/doorward-cell@work.service/supervisor", Identity{}},
		{"a session with no id", cells + "/doorward-cell@work.service/run-", Identity{}},
		{"a session with two dashes", cells + "/doorward-cell@work.service/run-a-b", Identity{}},
		{"a session that goes on", cells + "/doorward-cell@work.service/payload2", Identity{}},
		{"a name too long", workers + "/doorward-worker@" + n32 + "a.service", Identity{}},
		{"no name", workers + "/doorward-worker@.service", Identity{}},
		{"no daemon name", "/doorward.slice/doorward-.service", Identity{}},
		{"a name with a dash", cells + "/doorward-cell@work-2.service/payload", Identity{}},
		{"a name with a capital", cells + "/doorward-cell@Work.service/payload", Identity{}},
		{"a name with an escape", cells + `/doorward-cell@work\x2d2.service/payload`, Identity{}},
		{"a name with systemd's underscore", cells + "/_doorward-cell@work.service/payload", Identity{}},
		{"a name with a suffix inside", cells + "/doorward-cell@work.service.service/payload", Identity{}},
		{"a name outside ASCII", cells + "/doorward-cell@wörk.service/payload", Identity{}},
		{"a name with a Cyrillic letter", cells + "/doorward-cell@w\u043erk.service/payload", Identity{}},
		{"a name with a NUL", cells + "/doorward-cell@work\x00.service/payload", Identity{}},
		{"a newline at the end", "/doorward.slice/doorward-authd.service\n", Identity{}},
		{"a newline below a cell", cells + "/doorward-cell@work.service/payload/a\n0::/x", Identity{}},
		{"a removed daemon", "/doorward.slice/doorward-authd.service (deleted)", Identity{}},
		{"a removed session", cells + "/doorward-cell@work.service/payload (deleted)", Identity{}},
		{"a removed cgroup below a cell", cells + "/doorward-cell@work.service/payload/a (deleted)", Identity{}},
		{"a person's slice itself", "/user.slice/user-1000.slice", Identity{}},
		{"a person with a leading zero", "/user.slice/user-01000.slice/a", Identity{}},
		{"a person with a sign", "/user.slice/user-+1000.slice/a", Identity{}},
		{"a person with a negative uid", "/user.slice/user--1.slice/a", Identity{}},
		{"a person beyond 32 bits", "/user.slice/user-4294968296.slice/a", Identity{}},
		{"the uid that is nobody", "/user.slice/user-65534.slice/a", Identity{}},
		{"the uid that is none", "/user.slice/user-4294967295.slice/a", Identity{}},
		{"a person without a number", "/user.slice/user-.slice/a", Identity{}},
		{"a person's slice that nests", "/user.slice/user-1000-x.slice/a", Identity{}},
		{"a person deeper", "/system.slice/user.slice/user-1000.slice/a", Identity{}},
		{"longer than a path can be", cells + "/doorward-cell@work.service/payload/" + strings.Repeat("a/", 2100) + "a",
			Identity{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.path)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if (err != nil) != (tt.want == Identity{}) {
				t.Errorf("error %v", err)
			}
			if err != nil && !errors.Is(err, ErrUnknown) {
				t.Errorf("error %v is not ErrUnknown", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"/doorward.slice/doorward-authd.service",
		"/doorward.slice/doorward-workers.slice/doorward-worker@github.service",
		"/doorward.slice/doorward-cells.slice/doorward-cell@work.service/payload/x",
		"/doorward.slice/doorward-cells.slice/doorward-cell@work2.service/run-1",
		"/user.slice/user-1000.slice/session-1.scope", "/../x", "/user.slice/user-01.slice/a", "/a (deleted)", "//", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		id, err := Parse(path)
		if err != nil {
			if id != (Identity{}) {
				t.Fatalf("%q: an identity came with an error: %+v", path, id)
			}
			return
		}
		// An identity is taken back to the one path that it can have come from.
		var exact, below string
		switch id.Kind {
		case Unit:
			exact = "/doorward.slice/doorward-" + id.Name + ".service"
			if id.Worker {
				exact = "/doorward.slice/doorward-workers.slice/doorward-worker@" + id.Name + ".service"
			}
		case Cell:
			exact = "/doorward.slice/doorward-cells.slice/doorward-cell@" + id.Name + ".service/" + id.Session
			below = exact + "/"
		case Person:
			below = "/user.slice/user-" + utoa(id.UID) + ".slice/"
		default:
			t.Fatalf("%q: no kind", path)
		}
		if path != exact && (below == "" || !strings.HasPrefix(path, below)) {
			t.Fatalf("%q became %+v", path, id)
		}
		if id.Admin || strings.Contains(path, "/..") && strings.Contains(path+"/", "/../") || strings.Contains(path, "\n") {
			t.Fatalf("%q became %+v", path, id)
		}
	})
}

func TestUnified(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"one line", "0::/a\n", "/a"},
		{"after version 1 lines", "2:cpu:/x\n1:name=systemd:/y\n0::/a\n", "/a"},
		{"a version 1 hierarchy that looks alike", "10::/x\n0::/a\n", "/a"},
		{"none", "1:name=systemd:/y\n", ""},
		{"two", "0::/a\n0::/b\n", ""},
		{"cut off", "0::/a", ""},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := unified(tt.text)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestPidLine(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       uint32
		err        error
	}{
		{"alive", "pos:\t0\nflags:\t02000002\nPid:\t4242\nNSpid:\t4242\n", 4242, nil},
		{"reaped", "pos:\t0\nPid:\t-1\nNSpid:\t-1\n", 0, ErrGone},
		{"of another pid namespace", "pos:\t0\nPid:\t0\n", 0, ErrUnknown},
		{"not a pidfd", "pos:\t0\nflags:\t02\n", 0, ErrUnsupported},
		{"no number", "Pid:\t12a\n", 0, ErrMismatch},
		{"beyond the kernel's bound", "Pid:\t99999999\n", 0, ErrMismatch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := pidLine(tt.text)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}

func TestCgroupMounts(t *testing.T) {
	const text = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n" +
		"31 24 0:26 /../.. /old rw - cgroup2 cgroup2 rw\n" +
		"32 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
		"33 24 0:26 / /with\\040space rw - cgroup2 cgroup2 rw\n" +
		"34 24 0:26 / /newer rw - cgroup2 none rw\n" +
		"35 24 0:26 / /fake rw - tmpfs cgroup2 rw\n" +
		"broken line - cgroup2\n"
	got := strings.Join(cgroupMounts(text), " ")
	if got != "/newer /sys/fs/cgroup" {
		t.Errorf("got %s", got)
	}
}

func TestWho(t *testing.T) {
	ids := []Identity{
		{}, {Kind: Unit, Unit: "doorward-authd.service", Name: "authd"},
		{Kind: Unit, Unit: "doorward-worker@authd.service", Name: "authd", Worker: true},
		{Kind: Cell, Unit: "doorward-cell@authd.service", Name: "authd", Session: "payload"},
		{Kind: Person, UID: 1000}, {Kind: Person, Admin: true},
	}
	for _, tt := range []struct {
		name string
		who  Who
		want string
	}{
		{"Daemon", Daemon("authd"), "010000"}, {"Workers", Workers, "001000"},
		{"Cells", Cells, "000100"}, {"Persons", Persons, "000011"},
		{"another daemon", Daemon("sentinel"), "000000"},
	} {
		got := ""
		for _, id := range ids {
			if tt.who(id) {
				got += "1"
			} else {
				got += "0"
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
