// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// offered asks sentinel what this cell may ask for, of one connector or of all.
func (a *app) offered(vendor string) ([]wire.ListConnector, *wire.Error) {
	var r wire.ListResp
	err := ask("list", &wire.ListReq{Connector: vendor}, &r)
	return r.Connectors, err
}

// ask asks sentinel one thing that changes nothing.
func ask(verb string, req, resp any) *wire.Error {
	s, err := dial(wire.PathCellSentinel, "sentinel", askTimeout)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, e := s.Call(verb, req, resp); e != nil {
		return broken("sentinel", e, false)
	}
	return nil
}

// list prints connectors, their accounts, and what each method would meet.
func (a *app) list(args []string) *wire.Error {
	o, words, err := plain("list", args)
	if err != nil {
		return err
	}
	if len(words) > 1 {
		return usage("list takes one connector at most", "connector help")
	}
	vendor := strings.Join(words, "")
	if vendor != "" {
		if _, err := a.load(vendor); err != nil {
			return err
		}
	}
	all, err := a.offered(vendor)
	if err != nil {
		return err
	}
	if o.json {
		return a.print(append(listJSON(nil, all), '\n'))
	}
	var b []byte
	for i := range all {
		c := &all[i]
		if i > 0 {
			b = append(b, '\n')
		}
		b = append(b, c.Name+"  ("+c.Setting+")\n"...)
		for _, acc := range c.Accounts {
			b = append(b, "  account "+oneLine(acc.Name)+": "+health(acc.Health)+"\n"...)
		}
		if len(c.Accounts) == 0 {
			b = append(b, "  no account: not_configured; ask the person to run: doorward account add "+c.Name+" NAME\n"...)
		}
		d, _ := a.load(c.Name)
		for _, m := range c.Methods {
			line := "  " + pad(m.Name, 18) + pad(wouldBe(m.Ask), 8)
			if d != nil {
				if dm, ok := d.Method(m.Name); ok {
					line += dm.Summary
				}
			}
			b = append(b, strings.TrimRight(line, " ")+"\n"...)
		}
	}
	if len(all) == 0 {
		b = append(b, "no connectors are offered here\n"...)
	}
	return a.print(b)
}

func health(c wire.Code) string {
	switch c {
	case "":
		return "well"
	case wire.CodeNotConnected:
		return "not_connected; a person has to decide on it"
	case wire.CodeDenied:
		return "denied; a person said no to it"
	case wire.CodeReconnectRequired:
		return "reconnect_required; a person has to give a new credential"
	default:
		return string(c)
	}
}

// wouldBe says what a call meets now.
func wouldBe(ask string) string {
	switch ask {
	case "allow":
		return "goes"
	case "ask":
		return "asks"
	case "deny":
		return "denied"
	default:
		return oneLine(ask)
	}
}

func pad(s string, n int) string {
	if len(s) < n {
		return s + strings.Repeat(" ", n-len(s))
	}
	return s + " "
}

func listJSON(b []byte, all []wire.ListConnector) []byte {
	b = append(b, `{"items":[`...)
	for i, c := range all {
		b = append(members(comma(b, i), "connector", c.Name, "setting", c.Setting), `,"accounts":[`...)
		for j, acc := range c.Accounts {
			b = append(members(comma(b, j), "name", acc.Name, "health", string(acc.Health)), '}')
		}
		b = append(b, `],"methods":[`...)
		for j, m := range c.Methods {
			b = append(members(comma(b, j), "name", m.Name, "now", m.Ask), '}')
		}
		b = append(b, `]}`...)
	}
	return append(b, `]}`...)
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// members begins an object with members of text: name, value, name, value.
func members(b []byte, pairs ...string) []byte {
	b = append(b, '{')
	for i := 0; i < len(pairs); i += 2 {
		b = member(comma(b, i), pairs[i], pairs[i+1])
	}
	return b
}

func member(b []byte, k, v string) []byte {
	return jsonString(append(jsonString(b, k, true), ':'), v, true)
}

// inbox prints the calls of this cell that wait or have an answer that nobody took.
func (a *app) inbox(args []string) *wire.Error {
	o, words, err := plain("inbox", args)
	if err != nil {
		return err
	}
	if len(words) > 0 {
		return usage("inbox takes no words", "connector help")
	}
	var r wire.InboxResp
	if err := ask("inbox", &wire.Empty{}, &r); err != nil {
		return err
	}
	if o.limit > 0 && len(r.Items) > o.limit {
		r.Items = r.Items[:o.limit]
	}
	var b []byte
	if o.json {
		b = append(b, `{"items":[`...)
		for i, it := range r.Items {
			b = members(comma(b, i), "call", it.Call, "state", string(stateOf(it.State, it.Title)), "connector", it.Connector,
				"method", it.Method, "time", stamp(it.Unix))
			if it.Title != "" {
				b = member(append(member(append(b, ','), "title", it.Title), ','), "next", unkept(it.Call, stateOf(it.State, it.Title)))
			}
			b = append(b, `,"collected":`+strconv.FormatBool(it.Collected)+`}`...)
		}
		return a.print(append(b, "]}\n"...))
	}
	for _, it := range r.Items {
		state, what := stateOf(it.State, it.Title), it.Title
		if what == "" {
			what = it.Connector + " " + it.Method
		}
		l := it.Call + "  " + pad(string(state), 10) + pad(what, 24) + stamp(it.Unix)
		if it.Title != "" {
			l += "  " + unkept(it.Call, state)
		} else if it.Collected {
			l += "  collected"
		} else if ended(it.State) {
			l += "  collect it with: connector result " + it.Call
		}
		b = append(append(b, oneLine(l)...), '\n')
	}
	if len(r.Items) == 0 {
		b = append(b, "nothing waits\n"...)
	}
	return a.print(b)
}

func stamp(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

// shown are the methods of c that are not off, and whether sentinel said so; where it cannot be asked, all are shown.
func (a *app) shown(c *describe.Connector) (names []string, known bool) {
	all, err := a.offered(c.Vendor)
	if err != nil {
		return methods(c), false
	}
	for i := range all {
		if all[i].Name == c.Vendor {
			for _, m := range all[i].Methods {
				if _, ok := c.Method(m.Name); ok {
					names = append(names, m.Name)
				}
			}
		}
	}
	return names, true
}
