// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// event is what the tests read of one entry of the record.
type event struct {
	N       int64  `json:"n"`
	Type    string `json:"type"`
	Actor   string `json:"actor"`
	Cell    string `json:"cell"`
	Call    string `json:"call"`
	Details struct {
		Connector string `json:"connector"`
		Method    string `json:"method"`
		Class     string `json:"class"`
		From      string `json:"from"`
		To        string `json:"to"`
		Why       string `json:"why"`
		Code      string `json:"code"`
		Reason    string `json:"reason"`
		Peer      string `json:"peer"`
		Verb      string `json:"verb"`
	} `json:"details"`
	Raw string `json:"-"`
}

// events is the whole record, from entry number from on.
func (r *rig) events(from int64) []event {
	r.t.Helper()
	var out []event
	for {
		var resp wire.AuditResp
		err := r.ada.Ask(r.ctx(), wire.PathApprove, "audit", &wire.AuditReq{Op: "export", After: from}, &resp)
		if err != nil {
			r.t.Fatalf("export the record: %v", err)
		}
		for _, line := range resp.Lines {
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				r.t.Fatalf("read the record: %v in %s", err, line)
			}
			e.Raw = string(line)
			out = append(out, e)
		}
		if len(resp.Lines) == 0 {
			return out
		}
		from = resp.Last
	}
}

// end is the number of the entry that comes next.
func (r *rig) end() int64 {
	events := r.events(0)
	if len(events) == 0 {
		return 0
	}
	return events[len(events)-1].N + 1
}

// history is what the record says of one call.
type history struct {
	id, connector, method string
	state                 wire.State
	released, unknown     bool // ever
	events                []event
}

// writes are the calls of the record that are writes at a vendor, by id.
func (r *rig) writes(from int64) map[string]*history {
	out := map[string]*history{}
	for _, e := range r.events(from) {
		if e.Call == "" {
			continue
		}
		h := out[e.Call]
		if h == nil {
			h = &history{id: e.Call}
			out[e.Call] = h
		}
		h.events = append(h.events, e)
		if e.Details.Connector != "" {
			h.connector, h.method = e.Details.Connector, e.Details.Method
		}
		switch {
		case e.Type == "park":
			h.state = wire.StateParked
		case e.Type == "start":
			h.state = wire.StateExecuting
		case e.Type == "deny" && h.state == "":
			h.state = wire.StateDenied
		case e.Type == "released":
			h.released = true
		}
		if e.Details.To != "" {
			h.state = wire.State(e.Details.To)
		}
		h.unknown = h.unknown || h.state == wire.StateUnknown
	}
	for id, h := range out {
		if h.connector == "doorward" || !writeMethods[h.method] {
			delete(out, id)
		}
	}
	return out
}

// writeMethods are the writes that these tests make.
var writeMethods = map[string]bool{"issue-create": true, "event-create": true, "contact-put": true}

// card shows a call.
func (r *rig) card(id string) wire.Card {
	r.t.Helper()
	var resp wire.ShowResp
	if err := r.ada.Ask(r.ctx(), wire.PathApprove, "show", &wire.CallRef{Call: id}, &resp); err != nil {
		r.t.Fatalf("show %s: %v", id, err)
	}
	return resp.Card
}

// acted are the requests that the vendors acted on and that could change something.
func (r *rig) acted() []standin.Request {
	var out []standin.Request
	for _, rec := range []*standin.Recorder{r.github.Rec, r.dav.Rec} {
		for _, q := range rec.All() {
			if q.Handled && (q.Method == "POST" || q.Method == "PUT" || q.Method == "PATCH" || q.Method == "DELETE") {
				out = append(out, q)
			}
		}
	}
	return out
}

// carries says whether a request is that of the call with this mark.
func carries(q standin.Request, mark string) bool {
	return mark != "" && (strings.Contains(q.Path, mark) || bytes.Contains(q.Body, []byte(mark)))
}

// hold holds every write of the record to what the vendors saw: done = 1; failed, denied, expired, revoked = 0; what is
// unknown ran at most once and had been released. Nothing may be left running, and nothing at the vendor is without
// its call.
func (r *rig) hold(from int64) (states map[wire.State]int) {
	r.t.Helper()
	states = map[wire.State]int{}
	acted := r.acted()
	known := map[int]bool{}
	for id, h := range r.writes(from) {
		mark := r.card(id).Mark
		n := 0
		for i, q := range acted {
			if carries(q, mark) {
				known[i] = true
				n++
			}
		}
		states[h.state]++
		ok := false
		switch h.state {
		case wire.StateDone:
			ok = n == 1
		case wire.StateFailed, wire.StateDenied, wire.StateExpired, wire.StateRevoked, wire.StateParked:
			ok = n == 0
		case wire.StateUnknown:
			ok = n <= 1 && h.released
		}
		if !ok || mark == "" && h.state != wire.StateDenied {
			r.t.Errorf("call %s (mark %q) is %s, and the vendor acted %d times", id, mark, h.state, n)
			for _, e := range h.events {
				r.t.Log(e.Raw)
			}
		}
	}
	if from == 0 {
		for i, q := range acted {
			if !known[i] {
				r.t.Errorf("the vendor acted on a request of no call: %s %s %s", q.Method, q.Path, q.Body)
			}
		}
	}
	return states
}

// settle waits until no write is running or unknown: at both vendors a mark can be looked up.
func (r *rig) settle(from int64) {
	r.t.Helper()
	r.none(from, "every write is settled", wire.StateApproved, wire.StateExecuting, wire.StateUnknown)
}

// none waits until no write is in one of the states.
func (r *rig) none(from int64, what string, states ...wire.State) {
	r.t.Helper()
	var left *history
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left = nil
		for _, h := range r.writes(from) {
			if slices.Contains(states, h.state) {
				left = h
			}
		}
		if left == nil {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	for _, e := range left.events {
		r.t.Log(e.Raw)
	}
	r.t.Fatalf("did not come about: %s: call %s is %s", what, left.id, left.state)
}

// allow lets a write of the cell go without asking for the rest of its session: by one call that is approved with the
// grant that its card offers.
func (r *rig) allow(cell *world.Cell, args ...string) {
	r.t.Helper()
	r.allowWider(cell, nil, args...)
}

// allowWider is allow with further repositories in the grant.
func (r *rig) allowWider(cell *world.Cell, repos []string, args ...string) {
	r.t.Helper()
	res, err := cell.Actor().Connector(r.ctx(), append(args, "--json", "--wait", "0s")...)
	if err != nil {
		r.t.Fatal(err)
	}
	id := callOf(r.t, res)
	card := r.card(id)
	card.Grantable.Limits = textsOpen(card.Grantable.Limits)
	for i, l := range card.Grantable.Limits {
		if l.Field == "repo" {
			card.Grantable.Limits[i].Values = append(l.Values, repos...)
		}
	}
	var resp wire.DecideCardResp
	err = r.ada.Ask(r.ctx(), wire.PathApprove, "decide",
		&wire.DecideCardReq{ID: id, Hash: card.Hash, Approve: true, Grant: card.Grantable}, &resp)
	if err != nil {
		r.t.Fatalf("approve with a grant: %v", err)
	}
	r.connector(cell, 0, "wait", id, "--json")
}

// callOf is the id in the error object of a parked call.
func callOf(t testing.TB, res world.Result) string {
	t.Helper()
	id, err := callIn(res)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func callIn(res world.Result) (string, error) {
	for line := range strings.Lines(res.Stderr) {
		var v struct {
			Call string `json:"call"`
		}
		if json.Unmarshal([]byte(line), &v) == nil && v.Call != "" {
			return v.Call, nil
		}
	}
	return "", errors.New("no call in " + res.String())
}
