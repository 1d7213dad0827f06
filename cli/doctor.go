// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// finding is one line of connector doctor.
type finding struct {
	check, what, next string
	wrong             bool
}

// state is wrong, ok, or note: of what was refused, which may be as it should be.
func (f finding) state() string {
	switch {
	case f.wrong:
		return "wrong"
	case f.check == checkGate:
		return "note"
	}
	return "ok"
}

// doctor says what an agent can find out from inside its cell, and mend or ask its person for. It says nothing of the
// policy but what list says, and changes nothing.
func (a *app) doctor(args []string) *wire.Error {
	o, words, err := plain("doctor", args)
	if err != nil {
		return err
	}
	if len(words) > 0 {
		return usage("doctor takes no words", "connector help")
	}
	all := a.findings()
	wrong := 0
	for _, f := range all {
		if f.wrong {
			wrong++
		}
	}
	b := findingsText(all)
	if o.json {
		b = findingsJSON(all, wrong)
	}
	if err := a.print(b); err != nil {
		return err
	}
	if wrong > 0 {
		a.told = true // each with its next step
		return wire.Refuse(wire.CodeInternal, strconv.Itoa(wrong)+" wrong", "")
	}
	return nil
}

func findingsText(all []finding) []byte {
	var b []byte
	for _, f := range all {
		word := f.state()
		if f.wrong {
			word = "WRONG"
		}
		b = append(b, pad(word, 7)+oneLine(f.what)+"\n"...)
		if f.next != "" {
			b = append(b, "       next: "+oneLine(f.next)+"\n"...)
		}
	}
	return b
}

func findingsJSON(all []finding, wrong int) []byte {
	b := []byte(`{"items":[`)
	for i, f := range all {
		b = append(members(comma(b, i), "check", f.check, "state", f.state(), "what", f.what, "next", f.next), '}')
	}
	return append(b, `],"wrong":`+strconv.Itoa(wrong)+"}\n"...)
}

func (a *app) findings() []finding {
	descs, out := a.described()
	all, err := a.offered("")
	if err != nil {
		out = append(out, finding{"sentinel", "sentinel: " + string(err.Code) + ": " + err.Reason, err.Next, true})
		return append(append(out, realTrust.findings()...), realTrust.gateFindings()...)
	}
	out = append(out, finding{check: "sentinel", what: "sentinel answers this cell"})
	for i := range all {
		out = append(out, connectorFindings(&all[i], descs[all[i].Name])...)
		delete(descs, all[i].Name)
	}
	for _, name := range a.vendors() {
		if descs[name] != nil {
			out = append(out, finding{"connector", name + ": every method is off, or sentinel does not know it",
				"ask the person, if you need it", false})
		}
	}
	out = append(append(out, issuedFindings()...), a.inboxFinding()...)
	return append(append(out, realTrust.findings()...), realTrust.gateFindings()...)
}

// described reads every description that is installed.
func (a *app) described() (map[string]*describe.Connector, []finding) {
	descs := map[string]*describe.Connector{}
	var out []finding
	if err := a.find(); err != nil {
		return descs, []finding{{"description", err.Reason, err.Next, true}}
	}
	for _, name := range a.vendors() {
		c, err := a.load(name)
		if err != nil {
			out = append(out, finding{"description", err.Reason, "tell the person: " + err.Next, true})
			continue
		}
		descs[name] = c
	}
	if len(descs) == 0 && len(out) == 0 {
		out = append(out, finding{"description", "no connector is installed", "tell the person: reinstall doorward", true})
	}
	return descs, out
}

// connectorFindings are those of one connector that sentinel offers; d is what is installed here, or nil.
func connectorFindings(c *wire.ListConnector, d *describe.Connector) []finding {
	var out []finding
	switch {
	case d == nil:
		out = append(out, finding{"description", c.Name + ": sentinel offers it, and no description of it is installed here",
			"tell the person: reinstall doorward", true})
	case d.Digest() != c.Description:
		out = append(out, finding{"description", c.Name + ": sentinel judges by another version of its description",
			"tell the person: doorward doctor", true})
	}
	if len(c.Accounts) == 0 { // then its worker need not be there
		return append(out, finding{"account", c.Name + ": no account", "if you need it, ask the person to run: doorward account add " +
			c.Name + " NAME", false})
	}
	w, err := dial(wire.PathCellWorker(c.Name), "the worker of "+c.Name, askTimeout)
	if err != nil {
		out = append(out, finding{"worker", err.Reason, "tell the person: systemctl enable --now doorward-worker@" + c.Name, true})
	} else {
		w.Close()
	}
	for _, acc := range c.Accounts {
		f := finding{check: "account", what: c.Name + ": account " + acc.Name + " is connected"}
		if acc.Health != "" {
			f.what, f.wrong = c.Name+": account "+acc.Name+": "+health(acc.Health), true
			f.next = "ask the person to run: doorward account test " + acc.Name
			if acc.Health == wire.CodeNotConnected {
				f.next = "ask the person to decide on it: doorward pending"
			}
		}
		out = append(out, f)
	}
	return out
}

// inboxFinding says what waits for the person, or for the agent to collect.
func (a *app) inboxFinding() []finding {
	var r wire.InboxResp
	if err := ask("inbox", &wire.Empty{}, &r); err != nil {
		return []finding{{"inbox", "the inbox: " + string(err.Code) + ": " + err.Reason, err.Next, true}}
	}
	waits, ready, again := 0, 0, 0
	for _, it := range r.Items {
		switch {
		case it.State == wire.StateParked:
			waits++
		case it.Title != "":
			if !it.Collected && stateOf(it.State, it.Title) == wire.StateApproved {
				again++
			}
		case !it.Collected && ended(it.State):
			ready++
		}
	}
	f := finding{check: "inbox", what: strconv.Itoa(waits) + " calls wait for the person, " + strconv.Itoa(ready) +
		" answers wait to be collected"}
	if again > 0 {
		f.what += ", " + strconv.Itoa(again) + " are approved and to be sent again"
	}
	if waits+ready+again > 0 {
		f.next = "connector inbox"
	}
	return []finding{f}
}
