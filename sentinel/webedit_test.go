// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

func (b *browser) edit(req wire.EditReq) (*wire.EditResp, error) {
	b.t.Helper()
	return answerTo(b, "edit", b.s.webEdit, req)
}

// changes is the offer of what becomes of o with other arguments and files.
func (b *browser) changes(o *wire.Offer, args []wire.EditValue, files ...wire.EditFile) wire.Offer {
	b.t.Helper()
	r, err := b.edit(wire.EditReq{Call: o.Card.ID, Hash: o.Card.Hash, Args: args, Files: files})
	if err != nil {
		b.t.Fatal(err)
	}
	return *r.Offer
}

// approves has a passkey sign a yes to what was made of a call.
func (b *browser) approves(made *wire.Offer) *wire.WebDecideReq {
	b.t.Helper()
	return b.signs([]wire.WebDecision{b.item(made, wire.Decision{Approve: true, Edits: made.Edits.Hash})}, []int64{made.Expires})
}

func titled(title, to string) []wire.EditValue {
	return []wire.EditValue{{Name: "title", Values: []string{title}}, {Name: "to", Values: []string{to}}}
}

func (s *Sentinel) asksTitled(t *testing.T, title string) string {
	t.Helper()
	return s.asksWith(t, "create", []wire.Arg{{Name: "title", Values: []string{title}}, {Name: "to", Values: []string{"bob@example.org"}}})
}

// settledOf waits until a call has ended.
func (s *Sentinel) settledOf(t *testing.T, id string) ledger.State {
	t.Helper()
	for {
		if st := s.stateOf(t, id); st != ledger.Approved && st != ledger.Executing {
			return st
		}
		time.Sleep(time.Millisecond)
	}
}

// A person changes a call: nothing is changed until a passkey has signed what became of it; then that runs, once, and the old one
// never does. The agent is told.
func TestACallIsChangedBeforeItIsApproved(t *testing.T) {
	s := newWard(t)
	s.soon(t)
	s.worksLike(t, 200, "[]")
	b := s.signedIn(t, "ada")
	id := s.asksTitled(t, "teh plan")
	o := b.show(id)
	form, err := b.edit(wire.EditReq{Call: id})
	if err != nil || len(form.Form) != 2 || form.Form[0].Name != "title" || form.Form[0].Values[0] != "teh plan" || !form.Form[0].Required ||
		form.Form[1].Type != describe.TypeEmail || form.Form[1].Repeat != 3 || form.Offer != nil {
		t.Fatalf("%+v, %v", form, err)
	}
	made := b.changes(&o, titled("the plan", "carol@example.org"))
	if made.Card.ID == id || bytes.Equal(made.Card.Hash, o.Card.Hash) || made.Card.Grantable != nil || made.Edits.Call != id ||
		!bytes.Equal(made.Edits.Hash, o.Card.Hash) || made.Card.Mark == o.Card.Mark ||
		!slices.Contains(made.Card.Facts, "first time you write to carol@example.org") {
		t.Errorf("%+v", made)
	}
	if s.stateOf(t, id) != ledger.Parked || len(s.ledger.Waiting()) != 1 {
		t.Fatal("something was changed by looking")
	}
	if _, err := s.ledger.Call(t.Context(), made.Card.ID); err == nil {
		t.Fatal("it is on record before anybody approved it")
	}
	r, err := b.decide(b.approves(&made))
	if err != nil || r.Outcomes[0].Err != nil || r.Outcomes[0].State != wire.StateApproved {
		t.Fatalf("%+v, %v", r, err)
	}
	end := s.settledOf(t, made.Card.ID) // failed: what stands in for egress here saw no write
	if text := s.details(t, ledger.EvExecute); strings.Count(text, `"type":"execute"`) != 1 || !strings.Contains(text, made.Card.ID) {
		t.Errorf("what ran: %s", text)
	}
	got, err := s.ledger.Call(t.Context(), made.Card.ID)
	if err != nil || got.Approver != "passkey:ada" || !strings.Contains(string(got.Canonical), "the plan") || got.Cell != "work" {
		t.Errorf("%+v, %v", got, err)
	}
	// The old one: over, for the person and for the agent, which learns where to look.
	if _, err := s.decideAs(t.Context(), ada(), &wire.DecideCardReq{ID: id, Hash: o.Card.Hash, Approve: true}, nil); codeOf(err) != wire.CodeRevoked {
		t.Errorf("the old one was approved: %v", err)
	}
	item := b.item(&o, wire.Decision{Approve: true})
	if r, err := b.decide(b.signs([]wire.WebDecision{item}, []int64{o.Expires})); err != nil || r.Outcomes[0].Err == nil {
		t.Errorf("the old one was approved: %+v, %v", r, err)
	}
	for _, of := range []struct {
		id   string
		want wire.State
	}{{id, wire.StateRevoked}, {made.Card.ID, wire.State(end)}} {
		a, err := s.resultVerb(t.Context(), &daemon.Call{Peer: cell("work", "s1")}, &wire.CallRef{Call: of.id})
		if err != nil || a.State != of.want {
			t.Errorf("%+v, %v", a, err)
		}
		if of.want == wire.StateRevoked && !strings.Contains(a.Err.Next, "connector result "+made.Card.ID) {
			t.Errorf("%+v", a.Err)
		}
	}
	if text := s.details(t, ledger.EvApprove); strings.Count(text, `"type":"approve"`) != 1 || !strings.Contains(text, `\"edits\":`) {
		t.Errorf("the record: %s", text)
	}
	if text := s.details(t, ledger.EvRevoke); !strings.Contains(text, "passkey:ada") || !strings.Contains(text, made.Card.ID) {
		t.Errorf("the record: %s", text)
	}
}

// Each way in which what became of a call may not be had or approved. None of them changes anything: the old one waits, or ended as it
// did, and nothing ran but what the control of the test before runs.
func TestAChangeThatDoesNotHold(t *testing.T) {
	for _, c := range []struct {
		name string
		want wire.Code
		does func(s *Sentinel, b *browser, o *wire.Offer) error
	}{
		{"of another hash", wire.CodeConflict, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			_, err := b.edit(wire.EditReq{Call: o.Card.ID, Hash: make([]byte, 32), Args: titled("x", "bob@example.org")})
			return err
		}},
		{"nothing is other", wire.CodeBadArgument, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			_, err := b.edit(wire.EditReq{Call: o.Card.ID, Hash: o.Card.Hash, Args: titled("a", "bob@example.org")})
			return err
		}},
		{"what the decoder refuses", wire.CodeBadArgument, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			_, err := b.edit(wire.EditReq{Call: o.Card.ID, Hash: o.Card.Hash, Args: titled("x\ny", "bob@example.org")})
			return err
		}},
		{"an argument that there is not", wire.CodeBadArgument, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			_, err := b.edit(wire.EditReq{Call: o.Card.ID, Hash: o.Card.Hash, Args: []wire.EditValue{{Name: "bcc", Values: []string{"x"}}}})
			return err
		}},
		{"an argument twice", wire.CodeBadArgument, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			_, err := b.edit(wire.EditReq{Call: o.Card.ID, Hash: o.Card.Hash, Args: append(titled("x", "b@example.org"), titled("y", "b@example.org")...)})
			return err
		}},
		{"a file of none", wire.CodeBadArgument, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			_, err := b.edit(wire.EditReq{Call: o.Card.ID, Hash: o.Card.Hash, Args: titled("x", "b@example.org"), Files: []wire.EditFile{{Text: "x"}}})
			return err
		}},
		{"what the policy denies", wire.CodeNotAllowed, func(s *Sentinel, b *browser, o *wire.Offer) error {
			s.usePolicy(b.t, "", `@reason("no") forbid(principal, action, resource) when { context.arguments has "title" && context.arguments.title == "x" };`)
			_, err := b.edit(wire.EditReq{Call: o.Card.ID, Hash: o.Card.Hash, Args: titled("x", "bob@example.org")})
			return err
		}},
		{"approved as if it took nobody's place", wire.CodeConflict, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			made := b.changes(o, titled("x", "bob@example.org"))
			return decided(b.decide(b.signs([]wire.WebDecision{b.item(&made, wire.Decision{Approve: true})}, []int64{made.Expires})))
		}},
		{"the old one approved as if it were changed", wire.CodeConflict, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			return decided(b.decide(b.signs([]wire.WebDecision{b.item(o, wire.Decision{Approve: true, Edits: o.Card.Hash})}, []int64{o.Expires})))
		}},
		{"with a grant", wire.CodeBadArgument, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			made := b.changes(o, titled("x", "bob@example.org"))
			return decided(b.decide(b.signs([]wire.WebDecision{b.item(&made, wire.Decision{Approve: true, Edits: made.Edits.Hash,
				Grant: o.Card.Grantable})}, []int64{made.Expires})))
		}},
		{"the old one denied meanwhile", wire.CodeDenied, func(s *Sentinel, b *browser, o *wire.Offer) error {
			made := b.changes(o, titled("x", "bob@example.org"))
			if _, err := s.decideAs(b.t.Context(), ada(), &wire.DecideCardReq{ID: o.Card.ID}, nil); err != nil {
				return err
			}
			return decided(b.decide(b.approves(&made)))
		}},
		{"approved twice", wire.CodeExpired, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			made := b.changes(o, titled("x", "bob@example.org"))
			req := b.signs([]wire.WebDecision{b.item(&made, wire.Decision{Edits: made.Edits.Hash})}, []int64{made.Expires}) // a no, which is none
			if err := decided(b.decide(req)); codeOf(err) != wire.CodeBadArgument {
				return err
			}
			return decided(b.decide(b.approves(&made)))
		}},
		{"too late", wire.CodeExpired, func(s *Sentinel, b *browser, o *wire.Offer) error {
			made := b.changes(o, titled("x", "bob@example.org"))
			for k, v := range s.web.offers.all {
				v.until = s.ledger.Now()
				s.web.offers.all[k] = v
			}
			return decided(b.decide(b.approves(&made)))
		}},
		{"an approver who came meanwhile", wire.CodeExpired, func(s *Sentinel, b *browser, o *wire.Offer) error {
			made := b.changes(o, titled("x", "bob@example.org"))
			s.enrolled(b.t, "bea")
			return decided(b.decide(b.approves(&made)))
		}},
		{"its like waits already", wire.CodeConflict, func(s *Sentinel, b *browser, o *wire.Offer) error {
			made := b.changes(o, titled("x", "bob@example.org"))
			s.asksTitled(b.t, "x")
			return decided(b.decide(b.approves(&made)))
		}},
		{"the cell is stopped", wire.CodeStopped, func(s *Sentinel, b *browser, o *wire.Offer) error {
			if err := s.ledger.PutSetting(b.t.Context(), stopKey("work"), []byte("1"), "person:1000", nil); err != nil {
				return err
			}
			_, err := b.edit(wire.EditReq{Call: o.Card.ID, Hash: o.Card.Hash, Args: titled("x", "bob@example.org")})
			return err
		}},
		{"without a session", wire.CodeNoSession, func(_ *Sentinel, b *browser, o *wire.Offer) error {
			b.session = nil
			_, err := b.edit(wire.EditReq{Call: o.Card.ID})
			return err
		}},
		{"a widening", wire.CodeNotAllowed, func(s *Sentinel, b *browser, _ *wire.Offer) error {
			_, err := b.edit(wire.EditReq{Call: s.asks(b.t, "home")})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newWard(t)
			s.soon(t)
			s.worksLike(t, 200, "[]")
			b := s.signedIn(t, "ada")
			o := b.show(s.asksTitled(t, "a"))
			if err := c.does(s, b, &o); codeOf(err) != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
			if st := s.stateOf(t, o.Card.ID); st != ledger.Parked && c.want != wire.CodeDenied {
				t.Errorf("the old one is %s", st)
			}
			if n := strings.Count(s.details(t, ledger.EvApprove)+s.details(t, ledger.EvExecute), "\n"); n > 0 {
				t.Errorf("%d calls were approved or ran", n)
			}
		})
	}
}

// decided is what went wrong with one decision.
func decided(r *wire.WebDecided, err error) error {
	if err == nil && r.Outcomes[0].Err != nil {
		return r.Outcomes[0].Err
	}
	return err
}

// One approves the old call while another approves what became of it: one of the two runs.
func TestTheOldCallAndTheChangedOneAtOnce(t *testing.T) {
	for range 8 {
		s := newWard(t)
		s.soon(t)
		s.worksLike(t, 200, "[]")
		b := s.signedIn(t, "ada")
		o := b.show(s.asksTitled(t, "a"))
		made := b.changes(&o, titled("x", "bob@example.org"))
		old := b.signs([]wire.WebDecision{b.item(&o, wire.Decision{Approve: true})}, []int64{o.Expires})
		changed := b.approves(&made)
		var all sync.WaitGroup
		var errs [2]error
		for i, req := range []*wire.WebDecideReq{old, changed} {
			all.Go(func() { errs[i] = decided(b.decide(req)) })
		}
		all.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("%v", errs)
		}
		if n := strings.Count(s.details(t, ledger.EvApprove), `"type":"approve"`); n != 1 {
			t.Fatalf("%d were approved", n)
		}
	}
}

// A file's text is changed, the other file stays, and both are what runs.
func TestATextOfACallIsChanged(t *testing.T) {
	s := newWard(t)
	s.sends(t)
	s.soon(t)
	b := s.signedIn(t, "ada")
	id := s.asksWith(t, "send", nil, []byte("stays"), []byte("Dear Bob, I hate you"))
	o := b.show(id)
	made := b.changes(&o, nil, wire.EditFile{File: 1, Text: "Dear Bob"})
	if len(made.Card.Bodies) != 2 || made.Card.Bodies[0].Text != "stays" || made.Card.Bodies[1].Text != "Dear Bob" {
		t.Fatalf("%+v", made.Card.Bodies)
	}
	for i, want := range []string{"stays", "Dear Bob"} { // also of what is not on record yet
		sum := made.Card.Bodies[i].SHA256
		if p, err := b.part(made.Card.ID, sum[:], 0); err != nil || string(p) != want {
			t.Errorf("%q, %v", p, err)
		}
	}
	// No worker is there, so it fails; until then it is kept as it runs.
	d := s.draftOf(made.Card.ID)
	old, err := s.ledger.Call(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	call := d.call
	if err := s.keepEdit(t.Context(), &old, &call, d); err != nil {
		t.Fatal(err)
	}
	run, err := s.recall(&call)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(run.files)
	for i, want := range []string{"stays", "Dear Bob"} {
		if got, err := wire.ReadFile(int(run.files[i].Fd()), 100); err != nil || string(got) != want {
			t.Errorf("file %d: %q, %v", i, got, err)
		}
	}
}

// What the call builds on is read anew, and so stays what it was: else a session alone could have anything of the account shown.
func TestAChangeBuildsOnTheSame(t *testing.T) {
	p := &describe.Prepare{Kind: "icalendar", Base: "event", Args: []describe.Pair{{From: "event", To: "event"}}}
	was := describe.Values{"event": {"/a.ics"}, "title": {"a"}}
	for _, c := range []struct {
		name string
		now  describe.Values
		base string
		want wire.Code
	}{
		{"another title", describe.Values{"event": {"/a.ics"}, "title": {"b"}}, "event", ""},
		{"another event", describe.Values{"event": {"/b.ics"}, "title": {"a"}}, "event", wire.CodeBadArgument},
		{"two events", describe.Values{"event": {"/a.ics", "/b.ics"}, "title": {"a"}}, "event", wire.CodeBadArgument},
		{"none", describe.Values{"title": {"a"}}, "event", wire.CodeBadArgument},
		{"what built on nothing", describe.Values{"event": {"/a.ics"}}, "", wire.CodeBadArgument},
	} {
		q := *p
		q.Base = c.base
		j := &judged{method: &describe.Method{Prepare: &q}, was: was, values: c.now}
		if err := j.sameBase(); codeOf(err) != c.want && (err != nil || c.want != "") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if m := (&describe.Method{Prepare: p}); !fixed(m, "event") || fixed(m, "title") || fixed(&describe.Method{}, "event") {
		t.Error("what the form leaves open is not what is read")
	}
}
