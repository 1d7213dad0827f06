// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// beginRun begins a write of cell work, under a grant.
func (s *Sentinel) beginRun(t *testing.T, method string) *live {
	t.Helper()
	m, _ := s.vendors["demo"].Method(method)
	c := ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Cell: "work", Connector: "demo", Account: "home", Method: method,
		Class: m.Class}}
	c.Pass = s.newPass()
	if _, _, err := s.ledger.Begin(t.Context(), c, "cell:work"); err != nil {
		t.Fatal(err)
	}
	l := s.enliven(c, m, nil)
	t.Cleanup(func() { s.drop(l) })
	return l
}

// A daemon that hangs holds the switch up for a moment; egress is told all the same.
func TestTheSwitchDoesNotWaitForADaemonThatHangs(t *testing.T) {
	long := switchFor
	switchFor = 200 * time.Millisecond
	t.Cleanup(func() { switchFor = long })
	s := newSentinel(t)
	cuts := make(chan wire.GrantRef, 8)
	s.authd = peerThat(t, func(*wire.Msg) any { return nil })
	s.egress = peerThat(t, func(m *wire.Msg) any {
		var ref wire.GrantRef
		if err := wire.Decode(m.Body, &ref); err == nil {
			cuts <- ref
		}
		return &wire.Empty{}
	})
	l := s.beginRun(t, "create")
	began := time.Now()
	r, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work"})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if all := strings.Join(append(r.Lines, r.MayHaveRun...), "\n"); !strings.Contains(all, "authd did not answer") ||
		!strings.Contains(all, l.call.ID) {
		t.Error(all)
	}
	for _, want := range []wire.GrantRef{{Cell: "work"}, {Grant: l.call.Pass}} {
		if got := <-cuts; got != want {
			t.Errorf("egress was told %+v, want %+v", got, want)
		}
	}
	if codeOf(s.stopped("work")) != wire.CodeStopped || s.stopped("home") != nil {
		t.Error("stopped are others than the one")
	}
}

// Where the record cannot be written the switch works all the same, and goes on record as soon as it can.
func TestTheSwitchNeedsNoRecord(t *testing.T) {
	s := newSentinel(t)
	s.authd = peerThat(t, func(*wire.Msg) any { return &wire.RevokeResp{} })
	s.egress = peerThat(t, func(*wire.Msg) any { return &wire.Empty{} })
	good := s.ledger
	other := newSentinel(t)
	if err := other.ledger.Close(); err != nil {
		t.Fatal(err)
	}
	s.ledger = other.ledger // nothing can be written there
	r, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work"})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(r.Lines, "\n")
	for _, want := range []string{"not on record yet", "authd voided", "egress cut", "not dropped yet"} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q: %s", want, all)
		}
	}
	if s.recordHalts(t.Context()); codeOf(s.stopped("work")) != wire.CodeStopped || s.stopped("home") != nil {
		t.Fatal("stopped are others than the one")
	}

	s.ledger = good
	c := ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Cell: "work", Connector: "demo", Method: "create", Class: "write"}}
	if _, _, err := s.ledger.Park(t.Context(), c, "cell:work"); err != nil {
		t.Fatal(err)
	}
	s.recordHalts(t.Context())
	if v, ok := s.ledger.Setting(stopKey("work")); !ok || string(v.Value) != "person:1000" || s.halted.Load() != nil {
		t.Errorf("on record is %+v, in memory %v", v, s.halted.Load())
	}
	if got, err := s.ledger.Call(t.Context(), c.ID); err != nil || got.State != ledger.Revoked {
		t.Errorf("what waited is %s, %v", got.State, err)
	}

	// Only a person's decision turns it on again, and that ends what is in memory too.
	s.halt(stopKey("work"), "person:1000")
	r, err = s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work", Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	if codeOf(s.stopped("work")) != wire.CodeStopped {
		t.Error("asking was enough")
	}
	k, err := s.show(t.Context(), ada(), &wire.CallRef{Call: r.Widening})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: k.Card.ID, Hash: k.Card.Hash, Approve: true}); err != nil ||
		d.State != wire.StateDone || s.stopped("work") != nil {
		t.Errorf("%+v, %v, %v", d, err, s.stopped("work"))
	}
}
