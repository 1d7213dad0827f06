// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"errors"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// worksLike makes a worker of demo that answers every call so, after a request that egress saw answered with status; 0 is
// without one.
func (s *Sentinel) worksLike(t *testing.T, status int, answer string) {
	t.Helper()
	s.workers["demo"] = peerThat(t, func(m *wire.Msg) any {
		var req wire.CallReq
		if err := wire.Decode(m.Body, &req); err != nil {
			t.Error(err)
		}
		if l := s.liveOf(req.Grant); l != nil && status != 0 {
			l.tell(func() {
				l.released[1] = true
				seen := request("GET", status)
				seen.Complete, seen.Body = true, wire.Sum([]byte(strings.Replace(answer, "hidden", "", 1)))
				l.sent = append(l.sent, seen)
			})
		}
		return &wire.Output{JSON: []byte(answer)}
	})
}

// What a worker says of an unknown call counts only where egress saw the vendor answer so: a taken-over one would have a
// write repeated that has run.
func TestALookIsBorneOutByEgress(t *testing.T) {
	for _, c := range []struct {
		name   string
		marked bool // the worker's answer holds the mark
		status int  // that egress saw; 0 is no request at all
		found  bool
		unseen bool
	}{
		{"control: it is there", true, 200, true, false},
		{"control: it is not", false, 200, false, false},
		{"it is there, and nothing was asked", true, 0, false, true},
		{"it is not, and nothing was asked", false, 0, false, true},
		{"it is not, and the vendor refused", false, 403, false, true},
		{"hidden", false, 200, false, true},
	} {
		s := newSentinel(t)
		r, err := s.decide(t.Context(), &daemon.Call{Peer: cell("work", "s1")}, &wire.DecideReq{Frame: *s.call("create",
			wire.Arg{Name: "title", Values: []string{"T"}}, wire.Arg{Name: "to", Values: []string{"bob@example.org"}})})
		if err != nil {
			t.Fatal(err)
		}
		call, err := s.ledger.Call(t.Context(), r.Call)
		if err != nil {
			t.Fatal(err)
		}
		s.authd = peerThat(t, func(m *wire.Msg) any {
			if m.Verb == "revoke" {
				return &wire.RevokeResp{}
			}
			return &wire.Empty{}
		})
		answer := "[]"
		if c.marked {
			answer = `["` + call.Mark + `"]`
		}
		if c.name == "hidden" { // the worker's answer is not the vendor's
			answer = `["hidden"]`
		}
		s.worksLike(t, c.status, answer)
		m, _ := s.vendors["demo"].Method("create")
		method := *m
		method.Settle = &describe.Settle{Method: "items"}
		found, err := s.look(t.Context(), s.vendors["demo"], &method, &call)
		if found != c.found || errors.Is(err, errUnseen) != c.unseen || !c.unseen && err != nil {
			t.Errorf("%s: %v, %v", c.name, found, err)
		}
	}
}
