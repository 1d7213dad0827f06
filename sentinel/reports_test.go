// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/sentinel/ledger"
)

func release(pass string, seq int64) ledger.Told {
	return ledger.Told{Release: &ledger.Release{Pass: pass, Seq: seq, Entry: "0"}}
}

func answered(pass, report string) ledger.Told {
	return ledger.Told{Sent: &ledger.Sent{Pass: pass, Method: "GET", Status: 200, In: 10, Report: report}}
}

// beginRead is a read that runs.
func beginRead(t *testing.T, s *Sentinel) *live {
	t.Helper()
	c := ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Cell: "work", Session: "work/payload", Connector: "demo",
		Account: "home", Method: "items", Class: describe.Read, Decision: "allow", Canonical: []byte("{}")}}
	c.Pass = s.newPass()
	return s.enliven(c, &s.vendors["demo"].Methods[1], s.ledger.Start(t.Context(), c, "cell:work"))
}

func (s *Sentinel) entries(t *testing.T, types ...string) []ledger.Entry {
	t.Helper()
	es, err := s.ledger.Entries(t.Context(), ledger.Query{Types: types})
	if err != nil {
		t.Fatal(err)
	}
	return es
}

// What is told of a live call stands on the record when who told it is answered: at the call's end, or soon, or when there
// is much of it; and never before the call itself.
func TestWhatIsToldIsWrittenTogether(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		end  bool
	}{{"with the end", 2, true}, {"soon", 2, false}, {"much of it", reportsMost, false}} {
		t.Run(c.name, func(t *testing.T) {
			s := newSentinel(t)
			l := beginRead(t, s)
			var waits []func(context.Context) error
			for i := range c.n {
				waits = append(waits, s.say(l, release(l.call.Pass, int64(i+1))), s.say(l, answered(l.call.Pass, fmt.Sprint(i))))
			}
			if n := len(s.entries(t, ledger.EvReleased)); c.n < reportsMost && n != 0 {
				t.Errorf("%d releases were written one by one", n)
			}
			if c.end {
				s.end(t.Context(), l, ledger.Outcome{State: ledger.Done})
			}
			for _, wait := range waits {
				if err := wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			all := s.entries(t)
			started := len(all)
			released := 0
			for i, e := range all {
				switch e.Type {
				case ledger.EvStart:
					started = i
				case ledger.EvReleased:
					released++
					if i < started {
						t.Error("a release stands before its call")
					}
				}
			}
			got, err := s.ledger.Call(t.Context(), l.call.ID)
			if err != nil || released != c.n || len(got.Releases) != c.n || got.In != int64(10*c.n) {
				t.Errorf("%d releases on the record, the call has %d and %d bytes: %v", released, len(got.Releases), got.In, err)
			}
			if want := (ledger.ReadCount{Count: 1, Bytes: int64(10 * c.n)}); s.ledger.Reads("work/payload", "demo") != want {
				t.Errorf("%+v is read, want %+v", s.ledger.Reads("work/payload", "demo"), want)
			}
		})
	}
}

// What is told of a call that has ended, or that the record never got, is recorded and answered: else it would be told
// again for ever.
func TestWhatIsToldTooLate(t *testing.T) {
	s := newSentinel(t)
	l := beginRead(t, s)
	s.end(t.Context(), l, ledger.Outcome{State: ledger.Done})
	if err := s.say(l, answered(l.call.Pass, "late"))(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := s.ledger.Call(t.Context(), l.call.ID); err != nil || got.In != 10 || got.State != ledger.Done {
		t.Errorf("%v, %d bytes: %v", got.State, got.In, err)
	}
	// One whose end is refused, as it has ended already, keeps what was told.
	said := s.say(l, answered(l.call.Pass, "later"))
	s.end(t.Context(), l, ledger.Outcome{State: ledger.Failed})
	if err := said(t.Context()); err != nil {
		t.Error(err)
	}
	nobody := &live{call: ledger.Call{Progress: ledger.Progress{Pass: "nobody's"}}}
	if err := s.say(nobody, release("nobody's", 9))(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(s.entries(t, ledger.EvReleased)); n != 1 {
		t.Errorf("%d releases of nobody's grant are on the record", n)
	}
	if n := len(s.entries(t, ledger.EvSent)); n != 2 {
		t.Errorf("%d reports are on the record, want 2", n)
	}
}

// A refusal under a read that runs names its call, though the record of that call has not begun.
func TestARefusalNamesTheCallThatRuns(t *testing.T) {
	s := newSentinel(t)
	l := beginRead(t, s)
	s.refused("egress", "worker:demo", l.call.Pass, "bad_surrogate", "no surrogate")
	all := s.entries(t)
	last := all[len(all)-1]
	if last.Call != l.call.ID || last.Cell != "work" {
		t.Errorf("the refusal is of call %q in cell %q", last.Call, last.Cell)
	}
	if before := all[len(all)-2]; before.Type != ledger.EvStart || before.Call != l.call.ID {
		t.Errorf("before it stands %s of %q", before.Type, before.Call)
	}
}
