// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

func (s *Sentinel) parkedOf(kind string) (out []ledger.Waiting) {
	for _, w := range s.ledger.Waiting() {
		if w.Method == kind && w.State == ledger.Parked {
			out = append(out, w)
		}
	}
	return out
}

// Whatever fills the list of cards, a person can start a cell again, clear labels and load a policy.
func TestNothingTakesTheRoomOfWhatAPersonAsks(t *testing.T) {
	s := newSentinel(t)
	account := func(i int) wire.Account {
		return wire.Account{Name: fmt.Sprintf("a%03d", i), Vendor: "demo", Generation: 1}
	}
	for i := range maxWidenings + 3 {
		a := account(i)
		s.accounts[a.Name] = a
	}
	s.askAccounts()
	if n := len(s.parkedOf(widenAccount)); n != maxWidenings {
		t.Fatalf("%d cards of accounts wait, want %d", n, maxWidenings)
	}

	var resumed []string
	for i := range maxWidenings + 2 {
		r, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: fmt.Sprintf("c%d", i), Resume: true})
		if err != nil || r.Widening == "" {
			t.Fatalf("resume %d: %+v, %v", i, r, err)
		}
		resumed = append(resumed, r.Widening)
	}
	if n := len(s.parkedOf(widenResume)); n != maxWidenings {
		t.Errorf("%d wait, want %d: a list that a person fills is bounded too", n, maxWidenings)
	}
	r, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: fmt.Sprintf("c%d", maxWidenings+1), Resume: true})
	if err != nil || r.Widening != resumed[maxWidenings+1] {
		t.Errorf("an equal one is joined: %+v, %v", r, err)
	}
	if c, err := s.ledger.Call(t.Context(), r.Widening); err != nil || c.State != ledger.Parked {
		t.Errorf("the newest: %+v, %v", c.State, err)
	}
	if tr, err := s.taint(t.Context(), ada(), &wire.TaintReq{Cell: "work", Clear: true}); err != nil || tr.Widening == "" {
		t.Errorf("clear: %+v, %v", tr, err)
	}

	// The rest of the accounts comes when there is room.
	k, err := s.show(t.Context(), ada(), &wire.CallRef{Call: s.parkedOf(widenAccount)[0].ID})
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: k.Card.ID, Hash: k.Card.Hash, Approve: true})
	if err != nil || d.State != wire.StateDone {
		t.Fatalf("%+v, %v", d, err)
	}
	if n := len(s.parkedOf(widenAccount)); n != maxWidenings {
		t.Errorf("%d cards of accounts wait, want %d again", n, maxWidenings)
	}
}

// Of two widenings about the same thing the newer is the one that waits.
func TestANewerWideningTakesTheOlderOnesPlace(t *testing.T) {
	s := newSentinel(t)
	load := func(toml string) string {
		t.Helper()
		r, err := s.policyVerb(t.Context(), ada(), &wire.PolicyReq{Op: "load",
			Files: []wire.PolicyFile{{Name: "policy.toml", Body: []byte(toml)}}})
		if err != nil || r.Widening == "" {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Widening
	}
	older := load("bulk-reads = 100\n[connector.demo]\nsetting = \"dont-ask\"")
	newer := load("bulk-reads = 99\n[connector.demo]\nsetting = \"dont-ask\"")
	if w := s.parkedOf(widenPolicy); len(w) != 1 || w[0].ID != newer {
		t.Errorf("%+v", w)
	}
	c, err := s.ledger.Call(t.Context(), older)
	if err != nil || c.State != ledger.Revoked || !strings.Contains(c.Why, "newer") {
		t.Errorf("the older one is %s (%q), %v", c.State, c.Why, err)
	}
}

// What widens so much that no card can show it is refused, not put up blindly.
func TestAWideningThatNobodyCouldReadIsRefused(t *testing.T) {
	s := newSentinel(t)
	_, err := s.widen(t.Context(), widening{Kind: widenPolicy, About: "x", Lines: []string{strings.Repeat("x", wire.MaxFrame)}},
		"t", "person:1000")
	if codeOf(err) != wire.CodeTooLarge || len(s.ledger.Waiting()) != 0 {
		t.Error(err)
	}
}

// However many calls came after it, a call that waits keeps its files over a restart; what no call has goes.
func TestARestartKeepsWhatWaitingCallsHave(t *testing.T) {
	s := newSentinel(t)
	ctx := t.Context()
	waiting := ledger.NewID()
	park := func(n int, refs ...string) {
		c := ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Cell: fmt.Sprintf("c%d", n/50), Connector: "demo",
			Method: "create", Class: "write", Dedup: fmt.Sprint(n), Spool: refs}}
		if len(refs) > 0 {
			c.ID = waiting
		}
		if _, _, err := s.ledger.Park(ctx, c, "cell"); err != nil {
			t.Error(err)
		}
	}
	kept, err := s.put(ctx, []byte("body"), waiting)
	if err != nil {
		t.Fatal(err)
	}
	lost, err := s.put(ctx, []byte("body"), ledger.NewID())
	if err != nil {
		t.Fatal(err)
	}
	park(0, kept)
	var all sync.WaitGroup
	for k := range 100 { // together, or each waits for the disk
		all.Go(func() {
			for i := range 50 {
				park(50*(k+1) + i)
			}
		})
	}
	all.Wait()
	if err := s.resume(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.get(kept); err != nil {
		t.Error("what a call that waits is to send is gone:", err)
	}
	if _, err := s.get(lost); err == nil {
		t.Error("what no call has is kept")
	}
}
