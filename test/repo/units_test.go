// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// unitFile is a unit's settings by `[Section]Key`, in order.
type unitFile map[string][]string

func readUnit(t *testing.T, name string) unitFile {
	t.Helper()
	b, err := os.ReadFile("../../units/" + name)
	if err != nil {
		t.Fatal(err)
	}
	u, section := unitFile{}, ""
	for line := range strings.Lines(strings.ReplaceAll(string(b), "\\\n", "")) {
		line = strings.TrimSpace(line)
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = line
		case !ok:
			t.Errorf("%s: %q is no setting", name, line)
		default:
			u[section+key] = append(u[section+key], value)
		}
	}
	return u
}

// words are all words of a setting that may stand several times.
func (u unitFile) words(key string) []string {
	return strings.Fields(strings.Join(u[key], " "))
}

// group is the group of those who dial, as the installation names it.
func group(from string) string {
	switch from {
	case "connector":
		return "root" // open to all behind root's own directory
	case "worker":
		return "doorward-workers"
	case "doorward":
		return "doorward"
	}
	return "doorward-" + from
}

// service is the unit of a daemon.
func service(daemon string) string {
	if daemon == "worker" {
		return "doorward-worker@%i.service"
	}
	return "doorward-" + daemon + ".service"
}

// socketUnits are the socket units that the table of who may talk to whom asks for.
func socketUnits() map[string]unitFile {
	out := map[string]unitFile{}
	for _, e := range wire.Graph() {
		unit, name, path := "doorward-"+e.Name+".socket", e.Name, wire.RunDir+e.Socket
		if rest, ok := strings.CutPrefix(e.Socket, "cell/"); ok {
			path = wire.CellDir + rest
		}
		if e.To == "worker" { // one for each vendor
			unit = map[string]string{"worker-sentinel": "doorward-worker@.socket", "cell-worker": "doorward-cell-worker@.socket"}[e.Name]
			path = strings.ReplaceAll(path, "*", "%i")
			if e.Name == "cell-worker" {
				name = "cell-%i"
			}
		}
		of := service(e.To)
		if e.Name == "egress-cell" { // one for each cell
			unit, path, of = "doorward-egress-cell-sentinel@.socket", strings.ReplaceAll(path, "*", "%i"), "doorward-egress@%i.service"
		}
		out[unit] = unitFile{
			"[Socket]ListenStream":       {path},
			"[Socket]FileDescriptorName": {name},
			"[Socket]SocketUser":         {"root"},
			"[Socket]SocketGroup":        {group(e.From)},
			"[Socket]SocketMode":         {fmt.Sprintf("%04o", e.Mode)},
			"[Socket]Service":            {of},
		}
	}
	return out
}

// netUnits are the socket units in a cell's network. Nobody has a row there: who reaches them is steered to them.
var netUnits = map[string]unitFile{
	"doorward-egress-cell@.socket": {
		"[Socket]ListenStream":         {"[::]:15001"},
		"[Socket]BindIPv6Only":         {"both"},
		"[Socket]NetworkNamespacePath": {"/run/netns/doorward-%i"},
		"[Socket]FileDescriptorName":   {"cell-tcp"},
		"[Socket]Service":              {"doorward-egress@%i.service"},
	},
	"doorward-egress-cell-dns@.socket": {
		"[Socket]ListenDatagram":       {"[::]:53"},
		"[Socket]BindIPv6Only":         {"both"},
		"[Socket]NetworkNamespacePath": {"/run/netns/doorward-%i"},
		"[Socket]FileDescriptorName":   {"cell-dns"},
		"[Socket]Service":              {"doorward-egress@%i.service"},
	},
}

// webUnits are the sockets that browsers reach. Nobody has a row there, and only root says on which address.
var webUnits = map[string]unitFile{
	"doorward-page.socket":     webUnit("page", "127.0.0.1:8440"),
	"doorward-page-api.socket": webUnit("page-api", "127.0.0.1:8441"),
}

func webUnit(name, address string) unitFile {
	return unitFile{
		"[Socket]ListenStream":       {address},
		"[Socket]BindIPv6Only":       {"both"},
		"[Socket]FileDescriptorName": {name},
		"[Socket]Service":            {"doorward-page.service"},
	}
}

// What strangers reach starts only where root has said where it is, listens on this machine alone until root says more, and reaches
// nothing but its row. Page alone has a port, and is in the group that reads the certificate's key.
func TestTheServicesOfThePageReachNothingElse(t *testing.T) {
	target := readUnit(t, "doorward.target").words("[Unit]Wants")
	for name, its := range map[string]struct{ binds, sockets, groups []string }{
		"page": {[]string{"/run/systemd/notify", filepath.Dir(wire.PathApprovalsPage)},
			[]string{"doorward-page.socket", "doorward-page-api.socket"}, []string{"doorward-tls"}},
		"approvals": {[]string{"/run/systemd/notify", filepath.Dir(wire.PathSentinelWeb)}, []string{"doorward-approvals-page.socket"}, nil},
	} {
		service := readUnit(t, "doorward-"+name+".service")
		starts := map[string]unitFile{name: service}
		for _, socket := range its.sockets {
			if starts[socket] = readUnit(t, socket); !slices.Contains(target, socket) {
				t.Errorf("doorward.target does not start %s", socket)
			}
		}
		for what, u := range starts {
			if c := u["[Unit]ConditionPathExists"]; !slices.Equal(c, []string{"/etc/doorward/approver.toml"}) {
				t.Errorf("%s starts on %q", what, c)
			}
		}
		for key, want := range map[string][]string{
			"BindReadOnlyPaths": its.binds, "BindPaths": nil, "TemporaryFileSystem": {"/run:ro"}, "PrivateNetwork": {"yes"},
			"RestrictAddressFamilies": {"AF_UNIX"}, "IPAddressDeny": {"any"}, "SocketBindDeny": {"any"}, "CapabilityBoundingSet": nil,
			"Sockets": its.sockets, "SupplementaryGroups": its.groups, // whose files the certificate's key is in
			"User": {"doorward-" + name}, "Slice": {"doorward.slice"},
		} {
			if have := service.words("[Service]" + key); !slices.Equal(have, want) {
				t.Errorf("%s: %s is %q, want %q", name, key, have, want)
			}
		}
		// What sentinel denies itself is denied to those who read strangers' bytes too.
		for key, value := range readUnit(t, "doorward-sentinel.service") {
			if strings.HasPrefix(key, "[Service]Protect") || strings.HasPrefix(key, "[Service]Private") || strings.HasPrefix(key, "[Service]System") ||
				strings.HasPrefix(key, "[Service]Restrict") || strings.HasPrefix(key, "[Service]NoExec") || strings.HasPrefix(key, "[Service]Exec") {
				if key != "[Service]ExecStart" && !slices.Equal(service[key], value) {
					t.Errorf("%s: %s is %q, and sentinel's %q", name, key, service[key], value)
				}
			}
		}
	}
}

func TestTheSocketUnitsAreTheTable(t *testing.T) {
	want := socketUnits()
	maps.Copy(want, netUnits)
	maps.Copy(want, webUnits)
	files, err := filepath.Glob("../../units/*.socket")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if want[filepath.Base(f)] == nil && cellSockets[filepath.Base(f)] == nil {
			t.Errorf("%s is not in the table", filepath.Base(f))
		}
	}
	for name, settings := range want {
		have := readUnit(t, name)
		for key, value := range settings {
			if !slices.Equal(have[key], value) {
				t.Errorf("%s: %s is %q, want %q", name, key, have[key], value)
			}
		}
		for key := range have {
			// Whatever else a socket unit could say changes who can reach it.
			if settings[key] == nil && strings.HasPrefix(key, "[Socket]") && key != "[Socket]Slice" {
				t.Errorf("%s: %s is set", name, key)
			}
		}
	}
}

// cellSockets are those that are made in a cell's network, which no daemon dials.
var cellSockets = map[string]unitFile{
	"doorward-egress-cell@.socket":     {"[Socket]ListenStream": {"[::]:15001"}, "[Socket]FileDescriptorName": {"cell-tcp"}},
	"doorward-egress-cell-dns@.socket": {"[Socket]ListenDatagram": {"[::]:53"}, "[Socket]FileDescriptorName": {"cell-dns"}},
}

// They are in the network of their cell and nowhere else, of both families, and go with it.
func TestTheSocketsInACellsNetwork(t *testing.T) {
	for name, settings := range cellSockets {
		for key, value := range map[string]string{"[Socket]NetworkNamespacePath": "/run/netns/doorward-%i", "[Socket]BindIPv6Only": "both",
			"[Socket]Service": "doorward-egress@%i.service", "[Socket]Slice": "doorward.slice",
			"[Unit]BindsTo": "doorward-cellnet@%i.service", "[Unit]After": "doorward-cellnet@%i.service"} {
			settings[key] = []string{value}
		}
		have := readUnit(t, name)
		for key := range have {
			if settings[key] == nil && strings.HasPrefix(key, "[Socket]") {
				t.Errorf("%s: %s is set", name, key)
			}
		}
		for key, value := range settings {
			if !slices.Equal(have[key], value) {
				t.Errorf("%s: %s is %q, want %q", name, key, have[key], value)
			}
		}
	}
}

// The walls are there before a cell's network, that before the cell, and neither is in a mount namespace, in which what they
// make would be seen by nobody else.
func TestTheWallsComeBeforeTheCell(t *testing.T) {
	cell, net, walls := readUnit(t, "doorward-cell@.service"), readUnit(t, "doorward-cellnet@.service"), readUnit(t, "doorward-bpf.service")
	canary := readUnit(t, "doorward-canary.service")
	if !slices.Equal(canary["[Service]Slice"], []string{"doorward-cells.slice"}) || len(canary["[Service]IPAddressDeny"]) > 0 {
		t.Error("the canary is not where the walls are tried, or behind a wall of its own")
	}
	// What freezes for a canary that was ended is neither in the slice that it freezes nor behind what failed.
	report := readUnit(t, "doorward-walls.service")
	if s := report["[Service]Slice"]; !slices.Equal(s, []string{"doorward.slice"}) || len(report.words("[Unit]Requires"))+len(report.words("[Unit]BindsTo")) > 0 {
		t.Errorf("doorward-walls.service is in %q, or does not start without another unit", s)
	}
	for _, when := range []string{"OnSuccess", "OnFailure"} {
		if on := canary["[Unit]"+when]; !slices.Equal(on, []string{"doorward-walls.service"}) {
			t.Errorf("%s of the canary is %q", when, on)
		}
	}
	for _, order := range []struct {
		u          unitFile
		how, after string
	}{
		{cell, "BindsTo", "doorward-cellnet@%i.service"},
		{net, "Wants", "doorward-bpf.service"}, // an upgrade restarts that one, and Requires= would end cells; cellnet looks itself
		{net, "Requires", "doorward-canary.service"},
		{canary, "Wants", "doorward-bpf.service"},
		{walls, "BindsTo", "doorward-cells.slice"},
		{walls, "BindsTo", "doorward-workers.slice"},
	} {
		if !slices.Contains(order.u.words("[Unit]"+order.how), order.after) || !slices.Contains(order.u.words("[Unit]After"), order.after) {
			t.Errorf("%s is not behind %s", order.u["[Unit]Description"], order.after)
		}
	}
	for name, u := range map[string]unitFile{"doorward-cellnet@.service": net, "doorward-bpf.service": walls} {
		for key := range u {
			for _, mounts := range []string{"Protect", "Private", "Bind", "ReadOnly", "ReadWrite", "Inaccessible", "TemporaryFileSystem", "Root", "NoExec"} {
				if strings.HasPrefix(key, "[Service]"+mounts) {
					t.Errorf("%s: %s is set", name, key)
				}
			}
		}
		for _, key := range []string{"ExecStopPost", "Restart"} {
			if len(u["[Service]"+key]) > 0 {
				t.Errorf("%s: %s is set", name, key)
			}
		}
	}
	if len(walls["[Service]ExecStop"]) > 0 {
		t.Error("the walls are taken down when their unit stops")
	}
}

// What a daemon finds of /run is what it dials in, and its sockets are those that it serves.
func TestTheServicesSeeOnlyTheirRows(t *testing.T) {
	for _, daemon := range []string{"authd", "sentinel", "egress", "egress of a cell", "worker", "cells"} {
		unit, ofCell := service(daemon), daemon == "egress of a cell"
		if ofCell {
			daemon, unit = "egress", "doorward-egress@%i.service"
		}
		name := strings.Replace(unit, "%i", "", 1)
		have := readUnit(t, name)
		binds, sockets := []string{"/run/systemd/notify"}, []string{}
		if daemon == "egress" {
			binds = append(binds, "-/run/systemd/resolve/stub-resolv.conf") // no socket
		}
		if daemon == "cells" {
			binds[0] = "/run/systemd:/run/systemd:norbind" // it has systemd start and stop cells, which is all of root's power anyway
		}
		if ofCell {
			binds = append(binds, "/run/doorward/bpf/%i") // of the kernel's maps
			sockets = []string{"doorward-egress-cell@%i.socket", "doorward-egress-cell-dns@%i.socket"}
		}
		for _, e := range wire.Graph() {
			if e.From == daemon {
				dir := filepath.Dir(wire.RunDir + e.Socket)
				if before, _, ok := strings.Cut(e.Socket, "/*"); ok {
					dir = wire.RunDir + before
				}
				binds = append(binds, dir)
			}
		}
		for socket, settings := range socketUnits() {
			if settings["[Socket]Service"][0] == unit {
				sockets = append(sockets, strings.Replace(socket, "@.", "@%i.", 1))
			}
		}
		for key, want := range map[string][]string{"[Service]BindReadOnlyPaths": binds, "[Service]Sockets": sockets} {
			got := have.words(key)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
		if len(have["[Service]BindPaths"]) > 0 || !slices.Equal(have["[Service]TemporaryFileSystem"], []string{"/run:ro"}) {
			t.Errorf("%s: /run is not covered", name)
		}
		for _, key := range []string{"ProtectProc", "PrivatePIDs"} { // either would hide who calls
			if len(have["[Service]"+key]) > 0 {
				t.Errorf("%s: %s is set", name, key)
			}
		}
		if slice := map[bool]string{true: "doorward-workers.slice", false: "doorward.slice"}[daemon == "worker"]; !slices.Equal(have["[Service]Slice"], []string{slice}) {
			t.Errorf("%s: slice is %q, want %s", name, have["[Service]Slice"], slice)
		}
		if private := len(have["[Service]PrivateNetwork"]) > 0; private == (daemon == "egress") {
			t.Errorf("%s: PrivateNetwork is %v", name, private)
		}
	}
}

// Every directory of a socket is made before its unit starts, and the target starts each that is there once.
func TestEverySocketHasItsDirectoryAndIsStarted(t *testing.T) {
	b, err := os.ReadFile("../../units/tmpfiles.d/doorward.conf")
	if err != nil {
		t.Fatal(err)
	}
	mode := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 5 && f[0] == "d" && f[3] == "root" && f[4] == "root" {
			mode[f[1]] = f[2]
		}
	}
	want := map[string]string{"/etc/doorward": "0755", "/run/doorward": "0755", "/run/doorward/private": "0700"}
	wants := readUnit(t, "doorward.target").words("[Unit]Wants")
	n := 0
	for unit, settings := range socketUnits() {
		dir := filepath.Dir(settings["[Socket]ListenStream"][0])
		if strings.Contains(dir, "%i") {
			dir = filepath.Dir(dir) // below it the unit makes one for each vendor
		}
		for ; dir != "/run/doorward"; dir = filepath.Dir(dir) {
			if want[dir] == "" {
				want[dir] = "0755"
			}
		}
		if strings.Contains(unit, "@") {
			continue
		}
		n++
		if !slices.Contains(wants, unit) {
			t.Errorf("doorward.target does not start %s", unit)
		}
	}
	for dir, m := range want {
		if mode[dir] != m {
			t.Errorf("tmpfiles.d: %s is %q, want %s", dir, mode[dir], m)
		}
	}
	if len(mode) != len(want) {
		t.Errorf("tmpfiles.d makes %d directories, want %d", len(mode), len(want))
	}
	n += len(webUnits)
	if have := len(slices.DeleteFunc(wants, func(u string) bool { return !strings.HasSuffix(u, ".socket") })); have != n {
		t.Errorf("doorward.target starts %d sockets, want %d", have, n)
	}
}

// A run in a cell is started by the daemon of cells and keeps its filters, which forbid what the cell's unit forbids.
func TestARunMayNoMoreThanItsCell(t *testing.T) {
	cell, daemon := readUnit(t, "doorward-cell@.service"), readUnit(t, "doorward-cells.service")
	forbidden := func(u unitFile) []string {
		var out []string
		for _, line := range u["[Service]SystemCallFilter"] {
			list, ok := strings.CutPrefix(line, "~")
			if !ok {
				t.Errorf("a list of what is allowed: %s", line)
			}
			out = append(out, strings.Fields(list)...)
		}
		return out
	}
	have := forbidden(daemon)
	if len(have) < 10 {
		t.Errorf("the daemon forbids only %q", have)
	}
	for _, call := range forbidden(cell) {
		if !slices.Contains(have, call) {
			t.Errorf("the cell's unit forbids %s, its runs may do it", call)
		}
	}
	families := func(u unitFile) []string { return u.words("[Service]RestrictAddressFamilies") }
	for _, f := range families(daemon) {
		if of := families(cell); len(of) > 0 && !slices.Contains(of, f) {
			t.Errorf("runs may use %s, the cell's unit forbids it", f)
		}
	}
	for _, key := range []string{"NoNewPrivileges", "SystemCallArchitectures", "LimitCORE"} {
		if of, own := cell["[Service]"+key], daemon["[Service]"+key]; len(own) == 0 || len(of) > 0 && !slices.Equal(of, own) {
			t.Errorf("%s: the cell has %q, runs %q", key, of, own)
		}
	}
}

// A removal stops sockets in a step of their own, before daemons: else one daemon that still dials another has systemd
// start that one again, which cancels the stop of its sockets, and dpkg stops half-way.
func TestARemovalStopsSocketsFirst(t *testing.T) {
	for _, file := range []string{"package/prerm", "cli/setup/undo.go"} {
		b, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		sockets, target := strings.Index(string(b), "doorward-*.socket"), strings.Index(string(b), "doorward.target")
		services := strings.Index(string(b), "doorward-*.service")
		line, _, _ := strings.Cut(string(b[max(sockets, 0):]), "}")
		line, _, _ = strings.Cut(line, "\n")
		if sockets < 0 || target < sockets || services < sockets || strings.Contains(line, ".service") {
			t.Errorf("%s does not stop sockets first, by themselves", file)
		}
	}
}
