// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/cli/setup"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// findings are all that doctor tries, in the order in which they are read.
func (a *app) findings() []machine.Finding {
	dir, vendors, found := descriptions()
	if dir == "" {
		return append(machine.Kernel(), found)
	}
	said := answers(vendors)
	m := machine.Look(vendors)
	out := slices.Concat(machine.Kernel(), []machine.Finding{found, machine.Disk()}, m.Versions(dir), m.Units(said.vendors()),
		m.Sockets(), m.Keys(), said.findings, policyInForce(dir, said), pageInForce(configDir),
		sparesInForce(configDir, said), cellsArmed(said), agentsInside())
	l, err := machine.Listen()
	if err != nil {
		return append(out, machine.Not("wall", "walls: %v", err))
	}
	defer l.Close()
	return slices.Concat(out, m.Walls(l), m.Payloads(), cellWalls(said, l))
}

// agentsInside says whether what setup took into the cell is outside of it again.
func agentsInside() []machine.Finding {
	const check = "setup.agents"
	if os.Geteuid() != 0 {
		return nil // the journal is root's
	}
	again, set, err := setup.Outside()
	switch {
	case err != nil:
		return []machine.Finding{machine.Bad(check, "doorward setup", "what setup has done: %s", machine.Detail(err.Error()))}
	case !set:
		return nil
	case len(again) > 0:
		return []machine.Finding{machine.Bad(check, "rename settings that were made anew, then: doorward setup",
			"outside of the cell again: %s", machine.Detail(strings.Join(again, ", ")))}
	}
	return []machine.Finding{machine.Ok(check, "agents start in the cell, and their settings are there")}
}

// descriptions are the vendors that have one that can be read, and the folder of those, empty where there is none.
func descriptions() (dir string, vendors []string, f machine.Finding) {
	const check = "connectors"
	dir, err := describe.Dir()
	if err != nil {
		return "", nil, machine.Bad(check, "reinstall doorward", "%s", machine.Detail(err.Error()))
	}
	var names []string
	for _, name := range installed(dir) {
		d, err := describe.Load(dir, name)
		if err != nil {
			return dir, vendors, machine.Bad(check, "reinstall doorward", "description of %s: %s", name, machine.Detail(err.Error()))
		}
		vendors = append(vendors, d.Vendor)
		names = append(names, fmt.Sprintf("%s (%d methods)", d.Vendor, len(d.Methods)))
	}
	if len(names) == 0 {
		return dir, nil, machine.Bad(check, "reinstall doorward", "no connector is installed in %s", machine.Detail(dir))
	}
	return dir, vendors, machine.Ok(check, "connectors: %s", strings.Join(names, ", "))
}

// answered is what the daemons said to a person.
type answered struct {
	installed []string // vendors that have a description
	findings  []machine.Finding
	sentinel  bool // it answers
	accounts  []wire.Account
	cells     []wire.CellState
	hasCells  bool
}

// vendors are those of the accounts, but of custom ones, which are for no worker.
func (d *answered) vendors() []string {
	var out []string
	for _, acc := range d.accounts {
		if acc.Vendor != customVendor {
			out = append(out, acc.Vendor)
		}
	}
	return out
}

// vendor is the name of a connector that a daemon says. One that is not installed may be anything.
func (d *answered) vendor(name string) any {
	if slices.Contains(d.installed, name) || name == customVendor {
		return name
	}
	return machine.Name(name)
}

// soon bounds a first answer: one that hangs is down.
const soon = 20 * time.Second

// answers asks each daemon that a person may ask.
func answers(installed []string) *answered {
	d := &answered{installed: installed}
	if err := machine.Person(); err != nil {
		for _, name := range []string{"sentinel", "authd", "cells"} {
			f := machine.Not("answers."+name, "whether %s answers: %s; it takes persons in a login session only", name,
				machine.Detail(err.Error()))
			if machine.Booted() { // else that is said already
				f.Next = "run it from a login session, or as systemd-run --pipe --slice=user-0.slice doorward doctor"
			}
			d.findings = append(d.findings, f)
		}
		return d
	}
	_, err := askWithin[wire.PendingResp](soon, wire.PathApprove, "pending", &wire.ListFrom{})
	d.sentinel = d.heard("sentinel", err)
	if r, err := askWithin[wire.AccountsResp](soon, wire.PathAuthdAdmin, "list", &wire.Empty{}); d.heard("authd", err) {
		d.accounts = r.Accounts
		if d.sentinel { // it knows what their vendors last answered
			if all, err := accounts(); err == nil {
				d.accounts = all
			}
		}
	}
	_, err = askWithin[wire.CellsResp](soon, wire.PathCellsPerson, "list", &wire.ListFrom{})
	var e *wire.Error
	if errors.As(err, &e) && e.Code == wire.CodeUnavailable && !machine.Booted() {
		// Cells are started by other means where systemd does not run the machine.
		d.findings = append(d.findings, machine.Not("answers.cells", "whether cells answers: systemd does not run this machine"))
	} else if d.hasCells = d.heard("cells", err); d.hasCells {
		d.cells, _ = cells()
	}
	d.health()
	d.record()
	return d
}

// record says whether the record can be read. That it can be written is shown by every call; without room it is Disk's.
func (d *answered) record() {
	const check = "record"
	if !d.sentinel {
		return
	}
	r, err := askWithin[wire.AuditResp](soon, wire.PathApprove, "audit", &wire.AuditReq{Op: "list", Limit: 1})
	var e *wire.Error
	switch {
	case err == nil && r.Err == nil:
		d.findings = append(d.findings, machine.Ok(check, "the record can be read"))
	case errors.As(err, &e):
		d.findings = append(d.findings, machine.Bad(check, "journalctl -u doorward-sentinel", "the record: %s: %s", known(string(e.Code)),
			machine.Detail(e.Reason)))
	default:
		d.findings = append(d.findings, machine.Bad(check, "doorward audit verify", "the record cannot be read"))
	}
}

// heard adds what an answer, or none, says of a daemon.
func (d *answered) heard(name string, err error) bool {
	check := "answers." + name
	var e *wire.Error
	switch {
	case err == nil:
		d.findings = append(d.findings, machine.Ok(check, "%s answers", name))
		return true
	case !errors.As(err, &e):
		d.findings = append(d.findings, machine.Bad(check, "journalctl -u doorward-"+name, "%s: %v", name, machine.Detail(err.Error())))
	case e.Code == wire.CodeNotAllowed:
		f := machine.Not(check, "whether %s answers: you may not ask it", name)
		f.Next = e.Next
		d.findings = append(d.findings, f)
	default:
		next := e.Next
		if next == "doorward doctor" || e.Code == wire.CodeUnavailable {
			next = "start it: systemctl start doorward-" + name + "; journalctl -u doorward-" + name + " says why it is down"
		}
		if e.Code == wire.CodeLocked {
			next = "doorward unlock"
		}
		d.findings = append(d.findings, machine.Bad(check, next, "%s: %s: %s", name, known(string(e.Code)), machine.Detail(e.Reason)))
	}
	return false
}

// health adds the accounts, and which of them cannot be used.
func (d *answered) health() {
	for _, acc := range d.accounts {
		vendor := d.vendor(acc.Vendor)
		switch acc.Health {
		case "":
			d.findings = append(d.findings, machine.Ok("account", "account %s of %s", machine.Name(acc.Name), vendor))
		case wire.CodeNotConnected:
			d.findings = append(d.findings, machine.Bad("account", "doorward pending; then doorward approve",
				"account %s of %s: no person has decided on it", machine.Name(acc.Name), vendor))
		case wire.CodeDenied:
			d.findings = append(d.findings, machine.Bad("account", "to be asked again: "+askAgain("NAME", acc.Vendor)+
				"; else doorward account remove NAME", "account %s of %s: denied", machine.Name(acc.Name), vendor))
		default:
			d.findings = append(d.findings, machine.Bad("account", "doorward account test NAME; then doorward account add "+acc.Vendor+
				" NAME --replace", "account %s of %s: %s", machine.Name(acc.Name), vendor, known(string(acc.Health))))
		}
	}
}

// policyInForce holds sentinel's descriptions to the installed ones, and says what of changes goes unasked.
func policyInForce(dir string, d *answered) []machine.Finding {
	const check = "policy"
	if !d.sentinel {
		return []machine.Finding{machine.Not(check, "the policy in force: sentinel does not answer")}
	}
	r, err := ask[wire.PolicyResp](wire.PathApprove, "policy", &wire.PolicyReq{Op: "state"})
	if err != nil {
		return []machine.Finding{machine.Not(check, "the policy in force: %s", machine.Detail(err.Error()))}
	}
	var out []machine.Finding
	judged := map[string]string{}
	for _, l := range r.Lines {
		f := strings.SplitN(l, " ", 5)
		switch {
		case f[0] == "policy" && len(f) == 2:
			out = append(out, machine.Ok(check, "the policy in force is %s", f[1]))
		case f[0] == "connector" && len(f) == 3:
			judged[f[1]] = f[2]
		case f[0] == "dont-ask" && len(f) > 2:
			out = append(out, machine.Less("policy.dontask", "doorward policy show", "%s is set to dont-ask (%s)", d.vendor(f[1]),
				machine.Detail(strings.Join(f[2:], " "))))
		case f[0] == "unasked" && len(f) == 5:
			out = append(out, machine.Less("policy.unasked", "doorward policy show", "%s %s goes without asking, a %s (%s)", d.vendor(f[1]),
				known(f[2]), known(f[3]), machine.Detail(f[4])))
		}
	}
	for _, vendor := range installed(dir) {
		c, err := describe.Load(dir, vendor)
		if err != nil {
			continue // said above
		}
		digest := c.Digest()
		switch judged[vendor] {
		case hex.EncodeToString(digest[:]):
		case "":
			out = append(out, machine.Bad("version.judged", "systemctl restart doorward-sentinel.service",
				"sentinel does not know connector %s, which is installed", vendor))
		default:
			out = append(out, machine.Bad("version.judged", "systemctl restart doorward-sentinel.service",
				"sentinel judges %s by another description than the installed one", vendor))
		}
	}
	return out
}

// cellsArmed says of each configured cell whether it would start.
func cellsArmed(d *answered) []machine.Finding {
	const check = "cell.armed"
	if !d.hasCells {
		return []machine.Finding{machine.Not(check, "which cells may start: the daemon of cells does not answer")}
	}
	var out []machine.Finding
	for _, c := range d.cells {
		f := machine.Ok(check, "cell %s is %s, and armed", machine.Name(c.Name), known(c.State))
		if c.Problem != "" {
			f = machine.Bad(check, "doorward cell start CELL says what to do", "cell %s: %s", machine.Name(c.Name),
				machine.Detail(c.Problem))
		}
		f.Of = machine.Name(c.Name)
		out = append(out, f)
	}
	return out
}

// cellWalls tries the walls of each cell that runs, from within.
func cellWalls(d *answered, l *machine.Listener) []machine.Finding {
	var out []machine.Finding
	args := append([]string{"/usr/bin/doorward", "canary"}, machine.NewCanary(l).Args()...)
	for _, c := range d.cells {
		if c.State != wire.CellRunning {
			if c.State == wire.CellFrozen {
				out = append(out, machine.NotInCell(c.Name, "it is frozen"))
			}
			continue
		}
		said, err := runQuietly(c.Name, args)
		if err != nil {
			out = append(out, machine.NotInCell(c.Name, err.Error()))
			continue
		}
		out = append(out, machine.FromCell(c.Name, said)...)
	}
	return out
}

// saidMax bounds in bytes what is read of a canary, and canaryFor how long: a process of the cell can stop it, or keep its
// terminal open behind it.
const (
	saidMax   = 64 << 10
	canaryFor = 2 * time.Minute
)

// runQuietly runs a command in a cell to its end, which nobody attends, and returns what it said.
func runQuietly(cell string, args []string) (string, error) {
	conn, err := wire.Dial(wire.PathCellsPerson, askTimeout)
	if err != nil {
		return "", absent("cells", wire.PathCellsPerson, err)
	}
	defer conn.Close()
	var began wire.RunResp
	fds, err := conn.Call("run", &wire.RunReq{Start: &wire.RunStart{Cell: cell, Args: args, Plain: true}}, &began)
	if err != nil {
		return "", broken("cells", err)
	}
	if len(fds) != 1 {
		return "", wire.Refuse(wire.CodeInternal, fmt.Sprintf("cells sent %d terminals", len(fds)), "")
	}
	said, err := readSaid(fds[0], canaryFor)
	if err != nil {
		return "", err // the run ends with the connection
	}
	var ended wire.RunResp
	if _, err := conn.Call("run", &wire.RunReq{Wait: began.Session}, &ended); err != nil {
		return "", broken("cells", err)
	}
	return said, nil
}

// readSaid reads a canary's terminal to its end and closes it.
func readSaid(fd int, within time.Duration) (string, error) {
	err := unix.SetNonblock(fd, true) // or it has no deadline
	master := os.NewFile(uintptr(fd), "terminal")
	defer master.Close()
	if err = errors.Join(err, master.SetReadDeadline(time.Now().Add(within))); err != nil {
		return "", err
	}
	var said bytes.Buffer
	_, err = io.Copy(&said, io.LimitReader(master, saidMax)) // ends with EIO when nobody has the other end any more
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", wire.Refuse(wire.CodeUnavailable, "its canary does not end, or something in the cell holds its terminal", "")
	}
	return said.String(), nil
}

// canaryCmd is what doctor runs in a cell.
func (a *app) canaryCmd() *cobra.Command {
	return &cobra.Command{Use: "canary ...", Short: "try the walls of the cell that this runs in, for doorward doctor", Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			err := machine.InCell(args, func(check string, state machine.State, detail string) {
				fmt.Fprintf(a.out, "%s\t%s\t%s\n", check, state, oneLine(detail))
			})
			if err != nil {
				return wire.Refuse(wire.CodeUsage, err.Error(), "doorward doctor runs it")
			}
			return nil
		}}
}
