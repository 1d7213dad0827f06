// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// unit is what systemd says of one of its units, systemd.unit(5); keys are properties.
type unit map[string]string

func (u unit) active() bool { return u["ActiveState"] == "active" }

// Machine is one look at the units of this machine.
type Machine struct {
	vendors []string // with a description
	page    bool     // a person's page is set up
	units   map[string]unit
	err     error // why there is none
}

// daemons are the services that are there once, pageDaemons those that are there with the person's page, and pagePorts the sockets
// on which browsers come.
var (
	daemons     = []string{"authd", "sentinel", "egress", "cells"}
	pageDaemons = []string{"page", "approvals"}
	pagePorts   = []string{"doorward-page.socket", "doorward-page-api.socket"}
)

// pageFile says where the page is, and by being there that one is set up.
const pageFile = "/etc/doorward/approver.toml"

// wallsUnit is the unit of what is in the kernel around all cells.
const wallsUnit = "doorward-bpf.service"

// cellSocket begins the name of the unit of the socket on which a cell's egress takes sentinel.
const cellSocket = "doorward-egress-cell-sentinel@"

const properties = "Id,LoadState,ActiveState,SubState,Result,MainPID,ControlGroup,NeedDaemonReload,DropInPaths,NRestarts,Listen"

// Look asks systemd for every unit of Doorward. vendors are those that have a description.
func Look(vendors []string) *Machine {
	m := &Machine{vendors: vendors, units: map[string]unit{}}
	if _, err := os.Stat(pageFile); err == nil {
		m.page = true
	}
	if !Booted() {
		m.err = cannot("systemd does not run this machine")
		return m
	}
	ask := []string{"show", "--property=" + properties, "--", "doorward.target", "doorward-worker@*.service",
		"doorward-cell@*.service", "doorward-cellnet@*.service", cellSocket + "*.socket", wallsUnit}
	for _, d := range slices.Concat(daemons, pageDaemons) {
		ask = append(ask, service(d))
	}
	ask = append(ask, pagePorts...)
	for _, s := range m.sockets() {
		ask = append(ask, s.unit)
	}
	for _, v := range vendors {
		ask = append(ask, "doorward-worker@"+v+".service")
	}
	out, err := run("systemctl", ask...)
	if err != nil {
		m.err = err
		return m
	}
	for _, block := range strings.Split(out, "\n\n") {
		u := unit{}
		for line := range strings.Lines(block) {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				u[k] = v
			}
		}
		if u["Id"] != "" {
			m.units[u["Id"]] = u
		}
	}
	return m
}

func service(daemon string) string { return "doorward-" + daemon + ".service" }

// used says whether a vendor's worker is there to be used: it, or one of its sockets, is up or has been tried.
func (m *Machine) used(vendor string) bool {
	for _, name := range []string{"doorward-worker@" + vendor + ".service", "doorward-worker@" + vendor + ".socket",
		"doorward-cell-worker@" + vendor + ".socket"} {
		if s := m.units[name]["ActiveState"]; s != "" && s != "inactive" {
			return true
		}
	}
	return false
}

// idle says that nothing runs and nothing failed: an installation starts nothing.
func (m *Machine) idle() bool {
	for _, u := range m.units {
		if s := u["ActiveState"]; s != "inactive" && s != "" {
			return false
		}
	}
	return true
}

// services are the services that must run.
func (m *Machine) services() []string {
	var out []string
	for _, d := range daemons {
		out = append(out, service(d))
	}
	if m.page {
		for _, d := range pageDaemons {
			out = append(out, service(d))
		}
	}
	for _, v := range m.vendors {
		if m.used(v) {
			out = append(out, "doorward-worker@"+v+".service")
		}
	}
	return out
}

// Cells are the cells whose units run.
func (m *Machine) Cells() []string {
	var out []string
	for name, u := range m.units {
		if cell, ok := cellOf(name); ok && u.active() {
			out = append(out, cell)
		}
	}
	slices.Sort(out)
	return out
}

func cellOf(unit string) (string, bool) {
	name, ok := strings.CutPrefix(unit, "doorward-cell@")
	return strings.TrimSuffix(name, ".service"), ok
}

// Units says of every unit whether it runs, and where. needed are the vendors that have accounts.
func (m *Machine) Units(needed []string) []Finding {
	const check = "unit"
	if m.err != nil {
		return []Finding{Not(check, "units: %s", Detail(words(m.err)))}
	}
	if m.idle() {
		return []Finding{Bad(check, "sudo doorward setup; or, where that is done, systemctl enable --now doorward.target",
			"nothing of Doorward is started")}
	}
	var out []Finding
	if u := m.units["doorward.target"]; u.active() {
		out = append(out, Ok(check, "doorward.target is active"))
	} else {
		out = append(out, Bad(check, "systemctl enable --now doorward.target", "doorward.target is %s", state(u)))
	}
	for _, name := range m.services() {
		out = append(out, m.service(name)...)
	}
	for _, v := range m.vendors {
		switch {
		case m.used(v):
		case slices.Contains(needed, v):
			out = append(out, Bad(check, "systemctl enable --now doorward-worker@"+v,
				"connector %s has an account, and its worker is not started", v))
		default:
			out = append(out, Ok(check, "connector %s is not in use: its worker is not started", v))
		}
	}
	var cells []string
	for name := range m.units {
		if _, ok := cellOf(name); ok {
			cells = append(cells, name)
		}
	}
	slices.Sort(cells)
	out = append(out, m.changed(wallsUnit)...)
	for _, name := range cells {
		u := m.units[name]
		if u["ActiveState"] == "inactive" {
			continue
		}
		if w := m.units[wallsUnit]; u.active() && !w.active() {
			out = append(out, Bad(check, "systemctl start "+wallsUnit+"; journalctl -u "+wallsUnit+" says why it failed",
				"%s runs, and %s, the walls around it, is %s", Name(name), wallsUnit, state(w)))
		}
		out = append(out, m.service(name)...)
		net := strings.Replace(name, "doorward-cell@", "doorward-cellnet@", 1)
		out = append(out, m.changed(net)...)
		if n := m.units[net]; u.active() && !n.active() {
			out = append(out, Bad(check, "doorward cell stop CELL; doorward cell start CELL", "%s runs, and its network's unit %s is %s",
				Name(name), Name(net), state(n)))
		}
	}
	return out
}

// words are an error's without the mark of what was not tried.
func words(err error) string { return strings.TrimPrefix(err.Error(), errUntried.Error()+": ") }

func state(u unit) string {
	if u["LoadState"] != "loaded" {
		return "not there (" + orElse(u["LoadState"], "unknown") + ")"
	}
	s := u["ActiveState"] + " (" + u["SubState"]
	if r := u["Result"]; r != "" && r != "success" {
		s += ", " + r
	}
	return s + ")"
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// expectedGroup is where package peer looks for a service.
func expectedGroup(name string) string {
	switch {
	case strings.HasPrefix(name, "doorward-cell@"):
		return "/doorward.slice/doorward-cells.slice/" + name
	case strings.HasPrefix(name, "doorward-worker@"):
		return "/doorward.slice/doorward-workers.slice/" + name
	}
	return "/doorward.slice/" + name
}

// shown is a unit's name: a cell's is a person's word.
func shown(name string) any {
	if _, ok := cellOf(name); ok || strings.HasPrefix(name, "doorward-cellnet@") {
		return Name(name)
	}
	return name
}

// service says how one service is.
func (m *Machine) service(name string) []Finding {
	const check = "unit"
	u := m.units[name]
	next := "systemctl start " + name + "; journalctl -u " + name + " says why it is down"
	if _, ok := cellOf(name); ok {
		next = "journalctl of its unit says why"
	}
	if !u.active() {
		return []Finding{Bad(check, next, "%s is %s", shown(name), state(u))}
	}
	out := m.changed(name)
	if n, _ := strconv.Atoi(u["NRestarts"]); n > 3 {
		out = append(out, Less("unit.restarts", "journalctl -u "+name, "%s was restarted %d times", shown(name), n))
	}
	want := expectedGroup(name)
	if u["ControlGroup"] != want {
		return append(out, Bad("unit.cgroup", "take Slice= out of its drop-ins, and restart it",
			"%s is in %s, and callers are looked for in %s", shown(name), Detail(u["ControlGroup"]), Detail(want)))
	}
	if err := m.isWho(name, u); err != nil {
		return append(out, Bad("unit.cgroup", next, "%s is not taken for what it is: %v", shown(name), Detail(err.Error())))
	}
	return append(out, Ok(check, "%s is active, in its cgroup", shown(name)))
}

// changed says whether a unit is another than the package's, or runs by an older file.
func (m *Machine) changed(name string) []Finding {
	var out []Finding
	u := m.units[name]
	if u["NeedDaemonReload"] == "yes" {
		out = append(out, Bad("unit.files", "systemctl daemon-reload, then restart it", "%s runs by files that have changed since",
			shown(name)))
	}
	if list := dropIns(name, u["DropInPaths"]); len(list) > 0 {
		out = append(out, Less("unit.dropin", "systemctl cat shows it; what it takes away of a service is tried below",
			"%s is changed by %s", shown(name), Detail(strings.Join(list, " "))))
	}
	return out
}

// dropIns are those of a unit that are not the limits that the daemon of cells sets.
func dropIns(name, list string) []string {
	var out []string
	for _, p := range strings.Fields(list) {
		base := path.Base(p)
		if _, cell := cellOf(name); cell && path.Dir(p) == "/run/systemd/system.control/"+name+".d" &&
			(base == "50-MemoryMax.conf" || base == "50-TasksMax.conf") {
			continue
		}
		out = append(out, p)
	}
	return out
}

// isWho reads the cgroup of a service's process as a daemon that it calls does.
func (m *Machine) isWho(name string, u unit) error {
	pid := u["MainPID"]
	if cell, ok := cellOf(name); ok {
		root := CgroupRoot() + expectedGroup(name)
		b, err := os.ReadFile(root + "/payload/cgroup.procs")
		if err != nil {
			return err
		}
		if len(strings.Fields(string(b))) == 0 {
			// nspawn and the cell may have made groups below it
			if b, err := os.ReadFile(root + "/payload/cgroup.events"); err != nil || !strings.Contains(string(b), "populated 1") {
				return fmt.Errorf("nothing runs in its payload")
			}
			return nil
		}
		pid = strings.Fields(string(b))[0]
		name = cell
	}
	line, err := cgroupOf(pid)
	if err != nil {
		return err
	}
	id, err := peer.Parse(line)
	if err != nil {
		return err
	}
	if id.Kind == peer.Cell && id.Name == name || id.Kind == peer.Unit && id.Unit == name {
		return nil
	}
	return fmt.Errorf("its process is in %s", line)
}

// socket is one row of the table of who may talk to whom, for one vendor.
type socket struct {
	unit, path, group, from, to string
	mode                        uint32
	vendor                      string
}

// sockets are the rows, one for each vendor where there is one for each.
func (m *Machine) sockets() []socket {
	var out []socket
	for _, e := range wire.Graph() {
		s := socket{unit: "doorward-" + e.Name + ".socket", path: wire.RunDir + e.Socket, group: "doorward-" + e.From,
			from: e.From, to: e.To, mode: e.Mode}
		switch e.From {
		case "connector":
			s.group = "root" // open to all behind root's own directory
		case "worker":
			s.group = "doorward-workers"
		case "doorward":
			s.group = "doorward"
		}
		if rest, ok := strings.CutPrefix(e.Socket, "cell/"); ok {
			s.path = wire.CellDir + rest
		}
		if e.Name == "egress-cell" { // there is one for each cell, from its first start on
			for unit, u := range m.units {
				if cell, ok := strings.CutPrefix(unit, cellSocket); ok && u.active() {
					of := s
					of.unit, of.path = unit, wire.PathEgressCell(strings.TrimSuffix(cell, ".socket"))
					out = append(out, of)
				}
			}
			continue
		}
		if e.To != "worker" {
			out = append(out, s)
			continue
		}
		name := map[string]string{"worker-sentinel": "doorward-worker@", "cell-worker": "doorward-cell-worker@"}[e.Name]
		for _, v := range m.vendors {
			of := s
			of.unit, of.vendor, of.path = name+v+".socket", v, strings.Replace(s.path, "*", v, 1)
			out = append(out, of)
		}
	}
	return out
}

// Person says whether the daemons take this process for a person's, and if not, why.
func Person() error {
	path, err := cgroupOf("self")
	if err != nil {
		return err
	}
	if id, err := peer.Parse(path); err != nil || id.Kind != peer.Person {
		return fmt.Errorf("this process is in no person's session (cgroup %.200s)", path)
	}
	return nil
}

// cgroupOf is the cgroup of a process, proc_pid_cgroup(5).
func cgroupOf(pid string) (string, error) {
	b, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return "", err
	}
	for l := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(l), "0::"); ok {
			return path, nil
		}
	}
	return "", fmt.Errorf("process %s has no cgroup of version 2", pid)
}
