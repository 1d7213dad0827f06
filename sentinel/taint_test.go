// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// cuts is the egress of a cell, as far as sentinel asks it to cut.
type cuts struct {
	mu  sync.Mutex
	got []wire.GrantRef
}

func (k *cuts) all() []wire.GrantRef {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]wire.GrantRef(nil), k.got...)
}

// egressOfCell puts one in the place of a cell's.
func (s *Sentinel) egressOfCell(t *testing.T, cell string) *cuts {
	t.Helper()
	k := new(cuts)
	s.egresses[cell] = peerThat(t, func(m *wire.Msg) any {
		var ref wire.GrantRef
		if m.Verb != "cut" || wire.Unmarshal(m.Body, &ref) != nil {
			return nil
		}
		k.mu.Lock()
		k.got = append(k.got, ref)
		k.mu.Unlock()
		return &wire.Empty{}
	})
	return k
}

// TestWhatWasOpenBeforeTheLabelIsCut: when a cell first counts as having read what others wrote, its connections end before the
// answer is let out; later answers end none, and after a person cleared the label the next one does again. Control: with the
// cell taken for one that was cut, they go on.
func TestWhatWasOpenBeforeTheLabelIsCut(t *testing.T) {
	for _, wall := range []bool{true, false} {
		s := newSentinel(t)
		k := s.egressOfCell(t, "work")
		other := s.egressOfCell(t, "home")
		s.authd = peerThat(t, func(*wire.Msg) any { return &wire.Empty{} })
		read := func() error {
			c := ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Cell: "work", Session: "work/payload", Connector: "demo",
				Account: "home", Method: "items", Class: "read", Decision: "allow", Canonical: []byte("{}"), Labels: []string{wire.LabelUntrusted}}}
			c.Pass = s.newPass()
			l := s.enliven(c, &s.vendors["demo"].Methods[1], s.ledger.Start(t.Context(), c, "cell:work"))
			defer s.end(t.Context(), l, ledger.Outcome{State: ledger.Done})
			return s.give(t.Context(), l, &wire.GrantReq{Grant: c.Pass})
		}
		s.tainted["work"] = !wall
		for range 3 {
			if err := read(); err != nil {
				t.Fatal(err)
			}
		}
		switch got := k.all(); {
		case !wall && len(got) != 0:
			t.Errorf("control: %+v", got)
		case wall && (len(got) != 1 || got[0].Cell != "work"):
			t.Errorf("cut: %+v", got)
		}
		if !wall {
			continue
		}
		if len(other.all()) != 0 {
			t.Errorf("another cell was cut")
		}
		if err := s.clearLabels(t.Context(), "work", "person:1000", nil); err != nil {
			t.Fatal(err)
		}
		if err := read(); err != nil {
			t.Fatal(err)
		}
		if got := k.all(); len(got) != 2 {
			t.Errorf("after the label was cleared: %+v", got)
		}
	}
}

// TestAnAnswerWaitsForTheCut: where egress does not end the connections, what would taint the cell is not let out.
func TestAnAnswerWaitsForTheCut(t *testing.T) {
	s := newSentinel(t)
	was := switchFor
	switchFor = 100 * 1e6
	t.Cleanup(func() { switchFor = was })
	s.egresses["work"] = peerThat(t, func(*wire.Msg) any { return nil })
	label := func() {
		if err := s.ledger.AddLabels(t.Context(), "work", []string{wire.LabelUntrusted}, ledger.Cause{}, "sentinel"); err != nil {
			t.Fatal(err)
		}
	}
	label()
	for range 2 {
		if err := s.cutTainted(t.Context(), "work"); codeOf(err) != wire.CodeUnavailable {
			t.Fatalf("%v", err)
		}
	}
	k := s.egressOfCell(t, "work")
	if err := s.cutTainted(t.Context(), "work"); err != nil || len(k.all()) != 1 {
		t.Errorf("%v, %+v", err, k.all())
	}
	s.tainted = map[string]bool{}
	s.rememberTainted()
	if err := s.cutTainted(t.Context(), "work"); err != nil || len(k.all()) != 1 {
		t.Errorf("after a start: %v, %+v", err, k.all())
	}
}

// TestAConnectionThatWasDecidedBeforeTheLabel: one whose decision a label overtakes does not go.
func TestAConnectionThatWasDecidedBeforeTheLabel(t *testing.T) {
	s := newSentinel(t)
	w := &wanted{cell: "work", labels: s.labels("work")}
	if w.outdated(s) {
		t.Error("control: nothing has changed")
	}
	if err := s.ledger.AddLabels(t.Context(), "work", []string{wire.LabelUntrusted}, ledger.Cause{}, "sentinel"); err != nil {
		t.Fatal(err)
	}
	if !w.outdated(s) {
		t.Error("a label overtook it")
	}
}
