// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// A grant of so many reads lets no more be allowed, also where none of them has begun yet: a cell that asks many times
// first, and calls then, would else read as often as it asked, and of what it read the record would know no call.
func TestACountedGrantOfReadsIsNotExceededByAskingFirst(t *testing.T) {
	for _, c := range []struct {
		name  string
		grant ledger.Grant
		want  int
	}{
		{"once", ledger.Grant{Kind: ledger.KindOnce}, 1},
		{"twice", ledger.Grant{Kind: ledger.KindUntil, Uses: 2}, 2},
		{"control: without a count", ledger.Grant{Kind: ledger.KindUntil}, 4},
	} {
		s := newSentinel(t)
		s.usePolicy(t, "[connector.demo]\nsetting = \"ask-every-time\"\n", "")
		s.authd = peerThat(t, func(*wire.Msg) any { return &wire.Empty{} })
		g := c.grant
		g.Cell, g.Connector, g.Method, g.Account, g.Login = "work", "demo", "items", "home", 1
		g.Meaning = s.meaning("demo", "items")
		g.Limits, g.Tainted, g.Until = []byte(`{}`), true, s.ledger.Now().Add(3600e9)
		if _, err := s.ledger.AddGrant(t.Context(), g, "person:1000"); err != nil {
			t.Fatal(err)
		}
		allowed := 0
		for range 4 {
			r, err := s.decide(t.Context(), &daemon.Call{Peer: cell("work", "s1")}, &wire.DecideReq{Frame: *s.call("items")})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case r.Verdict == wire.Allow:
				allowed++
			case r.Verdict != wire.Parked:
				t.Errorf("%s: %+v", c.name, r)
			}
		}
		if allowed != c.want {
			t.Errorf("%s: %d of 4 reads were allowed, want %d", c.name, allowed, c.want)
		}
		for _, l := range s.live {
			s.drop(l)
		}
	}
}

// A cell that repeats a write that runs already has a line of the record each time, within what it may have written.
func TestRepeatingAWriteThatRunsDoesNotFillTheRecord(t *testing.T) {
	s := newSentinel(t)
	s.authd = peerThat(t, func(*wire.Msg) any { return &wire.Empty{} })
	if _, err := s.ledger.AddGrant(t.Context(), ledger.Grant{Cell: "work", Connector: "demo", Method: "create", Account: "home",
		Login: 1, Meaning: s.meaning("demo", "create"), Kind: ledger.KindUntil,
		Limits: []byte(`{"limits":[{"field":"to","values":["bob@example.org"]}]}`), Until: s.ledger.Now().Add(3600e9)}, "person:1000"); err != nil {
		t.Fatal(err)
	}
	ask := func() (*wire.DecideResp, error) {
		return s.decide(t.Context(), &daemon.Call{Peer: cell("work", "s1")}, &wire.DecideReq{Frame: *s.call("create",
			wire.Arg{Name: "title", Values: []string{"T"}}, wire.Arg{Name: "to", Values: []string{"bob@example.org"}})})
	}
	for _, joined := range []bool{false, true, true} { // controls: it runs, and is joined
		if r, err := ask(); err != nil || r.Joined != joined || r.Verdict == wire.Parked {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	s.allowance("work").left = 10
	if r, err := ask(); codeOf(err) != wire.CodeTooMany {
		t.Errorf("%+v, %v", r, err)
	}
	for _, l := range s.live {
		s.drop(l)
	}
}

// Of reads that are asked for at once no more go unasked than of those one after the other.
func TestReadsAtOnceAreAllCounted(t *testing.T) {
	s := newSentinel(t)
	s.usePolicy(t, "bulk-reads = 3\n[connector.demo]\nsetting = \"dont-ask\"\n", "")
	s.authd = peerThat(t, func(*wire.Msg) any { return &wire.Empty{} })
	who := cell("work", "s1")
	if _, _, err := s.session(who); err != nil {
		t.Fatal(err)
	}
	var allowed, asked atomic.Int32
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			r, err := s.decide(t.Context(), &daemon.Call{Peer: who}, &wire.DecideReq{Frame: *s.call("items")})
			switch {
			case err != nil:
				t.Error(err)
			case r.Verdict == wire.Allow:
				allowed.Add(1)
			default:
				asked.Add(1)
			}
		})
	}
	wg.Wait()
	if allowed.Load() > 3 || asked.Load() == 0 {
		t.Errorf("%d of 3 went, %d asked", allowed.Load(), asked.Load())
	}
	// Two that are looked at side by side, before either begins.
	s = newSentinel(t)
	s.usePolicy(t, "bulk-reads = 1\n[connector.demo]\nsetting = \"dont-ask\"\n", "")
	one, err := s.judge(t.Context(), who, s.call("items"), nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.judge(t.Context(), who, s.call("items"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if one.decision.Verdict != policy.Allow || two.decision.Verdict != policy.Ask { // the first is the control
		t.Errorf("%s, %s", one.decision.Verdict, two.decision.Verdict)
	}
	for _, l := range s.live {
		s.drop(l)
	}
}
