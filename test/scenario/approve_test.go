// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// with is the rig for a subtest: what fails in it fails there.
func (r *rig) with(t *testing.T) *rig {
	c := *r
	c.t = t
	return &c
}

// park has a cell make a call that waits, and returns its card.
func (r *rig) park(cell *world.Cell, args ...string) wire.Card {
	r.t.Helper()
	return r.card(callOf(r.t, r.connector(cell, wire.ExitWaiting, append(args, "--json", "--wait", "0s")...)))
}

// issue is the words of a write that is sensitive, and so asks unless a grant with limits covers it.
func issue(repo, title string) []string {
	return []string{"github", "issue-create", "--repo", repo, "--title", title}
}

// contact is the words of a write that nobody else sees; its body is a prepared one.
func contact(name string) []string {
	return []string{"dav", "contact-put", "--book", "/contacts/ada/people/", "--name", name, "--email",
		strings.ToLower(strings.ReplaceAll(name, " ", ".")) + "@example.test"}
}

// event is the words of a write whose body is a prepared one.
func (r *rig) event(title string) []string {
	return []string{"dav", "event-create", "--calendar", r.dav.Calendar(), "--title", title, "--start", "2030-03-10T10:00:00",
		"--end", "2030-03-10T11:00:00", "--tz", "Europe/Berlin"}
}

// issues and puts count what the vendors were made to do.
func (r *rig) issues() int { return r.github.Rec.Handled("POST", "/repos/") }
func (r *rig) puts() int   { return r.dav.Rec.Handled("PUT", "/") }

// sum holds what a vendor did to a number.
func (r *rig) sum(what string, have, want int) {
	r.t.Helper()
	if have != want {
		r.t.Errorf("the vendor's recorder saw %s %d times, want %d", what, have, want)
	}
}

// ended waits until a call has ended and returns its state.
func (r *rig) ended(id string) wire.State {
	r.t.Helper()
	var s wire.State
	r.eventually("call "+id+" ends", func() bool {
		s = r.card(id).State
		return s != wire.StateParked && s != wire.StateApproved && s != wire.StateExecuting
	})
	return s
}

// approve says yes to a card and waits for the end.
func (r *rig) approve(card wire.Card) wire.State {
	r.t.Helper()
	r.decide(card, true)
	return r.ended(card.ID)
}

// grant says yes to a card and to the grant that it offers, changed by change, and waits for the end of the call.
func (r *rig) grant(card wire.Card, change func(*wire.Grant)) string {
	r.t.Helper()
	id, err := r.tryGrant(card, change)
	if err != nil {
		r.t.Fatalf("approve %s with a grant: %v", card.ID, err)
	}
	if s := r.ended(card.ID); s != wire.StateDone {
		r.t.Fatalf("approved with a grant, and it is %s: %v", s, r.card(card.ID).Err)
	}
	return id
}

func (r *rig) tryGrant(card wire.Card, change func(*wire.Grant)) (string, error) {
	r.t.Helper()
	if card.Grantable == nil {
		r.t.Fatalf("the card of %s %s offers no grant", card.Connector, card.Method)
	}
	g := *card.Grantable
	g.Limits = textsOpen(g.Limits)
	if change != nil {
		change(&g)
	}
	var resp wire.DecideCardResp
	err := r.ada.Ask(r.ctx(), wire.PathApprove, "decide",
		&wire.DecideCardReq{ID: card.ID, Hash: card.Hash, Approve: true, Grant: &g}, &resp)
	return resp.Grant, err
}

// textsOpen are a grant's limits, with what a call says left open, as a person may for a session.
func textsOpen(limits []wire.Limit) []wire.Limit {
	limits = slices.Clone(limits)
	for i, l := range limits {
		if l.Field == "title" || l.Field == "body" {
			limits[i] = wire.Limit{Field: l.Field, Any: true}
		}
	}
	return limits
}

// doorward runs the person's command and expects a code.
func (r *rig) doorward(code int, args ...string) world.Result {
	r.t.Helper()
	res, err := r.ada.Doorward(r.ctx(), "", args...)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.Code != code {
		r.t.Fatalf("doorward %s: want exit code %d, got %v", strings.Join(args, " "), code, res)
	}
	return res
}

// has holds a text to what it must say.
func (r *rig) has(text string, words ...string) {
	r.t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			r.t.Errorf("it does not say %q:\n%s", w, text)
		}
	}
}

// Must-hold 5: of everything that can come between a question and its answer, a call runs once or not at all, and who
// comes late is told what became of it.
func TestApproval(t *testing.T) {
	r := newRig(t, world.Options{})
	late := func(r *rig, card wire.Card, want wire.Code) {
		r.t.Helper()
		before := r.issues() + r.puts()
		_, err := r.tryDecide(card, true)
		if code(err) != want {
			r.t.Errorf("a late approval is answered %v, want %s", err, want)
		}
		r.doorward(wire.ExitUsage, "approve", card.ID, "--yes")
		r.sum("a write", r.issues()+r.puts(), before)
	}

	t.Run("two at once", func(t *testing.T) {
		r := r.with(t)
		for i := range 3 {
			before := r.issues()
			card := r.park(r.work, issue("ada/site", fmt.Sprintf("two at once %d", i))...)
			errs := make([]error, 4)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { _, errs[i] = r.tryDecide(card, true) })
			}
			wg.Wait()
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
					continue
				}
				if code(err) != wire.CodeConflict || !strings.Contains(err.Error(), "person:1000") {
					t.Errorf("the one that lost is told %v", err)
				}
			}
			if won != 1 || r.ended(card.ID) != wire.StateDone {
				t.Errorf("%d approvals won, the call is %s", won, r.card(card.ID).State)
			}
			r.sum("an issue", r.issues(), before+1)
		}
	})

	t.Run("yes and no at once", func(t *testing.T) {
		r := r.with(t)
		before := r.issues()
		card := r.park(r.work, issue("ada/site", "yes and no")...)
		var yes, no error
		var wg sync.WaitGroup
		wg.Go(func() { _, yes = r.tryDecide(card, true) })
		wg.Go(func() { _, no = r.tryDecide(card, false) })
		wg.Wait()
		if (yes == nil) == (no == nil) {
			t.Fatalf("yes is answered %v, no %v", yes, no)
		}
		if s := r.ended(card.ID); (s == wire.StateDone) != (yes == nil) {
			t.Errorf("it is %s; yes is answered %v", s, yes)
		} else if s == wire.StateDone {
			before++
		}
		r.sum("an issue", r.issues(), before)
	})

	t.Run("of something else", func(t *testing.T) {
		r := r.with(t)
		before := r.issues()
		one, two := r.park(r.work, issue("ada/site", "one")...), r.park(r.work, issue("ada/site", "two")...)
		for _, hash := range [][]byte{two.Hash, nil, make([]byte, 32), one.Hash[:16]} {
			wrong := one
			wrong.Hash = hash
			if _, err := r.tryDecide(wrong, true); code(err) != wire.CodeConflict {
				t.Errorf("the approval of hash %x is answered %v", hash, err)
			}
		}
		r.sum("an issue", r.issues(), before)
		if s := r.approve(one); s != wire.StateDone { // the control
			t.Errorf("with its own hash it is %s", s)
		}
		r.sum("an issue", r.issues(), before+1)
		r.decide(two, false)
	})

	t.Run("after denial", func(t *testing.T) {
		r := r.with(t)
		card := r.park(r.work, issue("ada/site", "after denial")...)
		r.doorward(0, "deny", card.ID, "--why", "not now")
		late(r, card, wire.CodeDenied)
		r.has(r.connector(r.work, wire.ExitDenied, "result", card.ID).Stderr, "not now")
	})

	t.Run("after the cell took it back", func(t *testing.T) {
		r := r.with(t)
		card := r.park(r.work, issue("ada/site", "cancelled")...)
		r.connector(r.home, wire.ExitUsage, "cancel", card.ID) // another cell's call does not exist
		r.connector(r.work, 0, "cancel", card.ID)
		late(r, card, wire.CodeRevoked)
		r.connector(r.work, wire.ExitExpired, "result", card.ID)
	})

	t.Run("after revocation", func(t *testing.T) {
		r := r.with(t)
		mine, other := r.park(r.work, issue("ada/site", "revoked")...), r.park(r.home, issue("ada/site", "not revoked")...)
		r.has(r.doorward(0, "revoke", "--cell", "work").Stdout, mine.ID)
		late(r, mine, wire.CodeRevoked)
		if s := r.approve(other); s != wire.StateDone {
			t.Errorf("the other cell's call is %s", s)
		}
	})

	t.Run("after done", func(t *testing.T) {
		r := r.with(t)
		card := r.park(r.work, issue("ada/site", "after done")...)
		r.approve(card)
		late(r, card, wire.CodeConflict)
	})

	t.Run("by a cell", func(t *testing.T) {
		r := r.with(t)
		before := r.issues()
		card := r.park(r.work, issue("ada/site", "by a cell")...)
		req := &wire.DecideCardReq{ID: card.ID, Hash: card.Hash, Approve: true}
		var resp wire.DecideCardResp
		if err := r.work.Actor().Ask(r.ctx(), wire.PathApprove, "decide", req, &resp); err == nil {
			t.Error("a cell reaches the socket of approvals")
		}
		if err := r.work.Actor().Ask(r.ctx(), wire.PathCellSentinel, "decide", req, &resp); err == nil {
			t.Error("a cell approves on its own socket")
		}
		if err := r.Local(1001).Ask(r.ctx(), wire.PathApprove, "decide", req, &resp); err == nil {
			t.Error("a user who is not of the group approves")
		}
		r.sum("an issue", r.issues(), before)
		if s := r.approve(card); s != wire.StateDone {
			t.Errorf("the person's own approval: it is %s", s)
		}
	})

	t.Run("identical calls at once under a grant", func(t *testing.T) {
		r := r.with(t)
		args := issue("ada/site", "at once")
		r.grant(r.park(r.home, args...), nil)
		before := r.issues()
		r.github.Faults.Add(standin.Fault{Method: "POST", Times: 1, DelayMS: 1500})
		results := make([]world.Result, 4)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { results[i], _ = r.home.Actor().Connector(r.ctx(), args...) })
		}
		wg.Wait()
		joined := 0
		for _, res := range results {
			if res.Code != 0 {
				t.Errorf("%v", res)
			}
			if strings.Contains(res.Stderr, "the same call runs already") {
				joined++
			}
		}
		if joined != len(results)-1 {
			t.Errorf("%d answers say joined, want %d: %v", joined, len(results)-1, results)
		}
		r.sum("an issue", r.issues(), before+1)
		r.connector(r.home, 0, args...) // later it is another call, and the grant covers it
		r.sum("an issue", r.issues(), before+2)
	})

	t.Run("after the switch", func(t *testing.T) {
		r := r.with(t)
		card := r.park(r.work, issue("ada/site", "after stop")...)
		r.doorward(0, "stop", "work")
		late(r, card, wire.CodeRevoked)
		r.connector(r.work, wire.ExitExpired, "result", card.ID)
	})
}

// Silence is denial: what nobody decided in time does not run, on either clock, and a grant, a session and a result end
// too. Sentinel is started again with its boot clock a day and an hour ahead.
func TestSilenceIsDenial(t *testing.T) {
	r := newRig(t, world.Options{})
	control := r.park(r.work, issue("ada/site", "in time")...)
	write, prepared := r.park(r.work, issue("ada/site", "too late")...), r.park(r.work, r.event("too late")...)
	granted := r.park(r.work, issue("ada/site", "with a grant")...)
	if s := r.approve(control); s != wire.StateDone {
		t.Fatalf("in time it is %s", s)
	}
	grant := r.grant(granted, func(g *wire.Grant) {
		g.Kind, g.Until, g.Limits = "until", time.Now().Add(24*time.Hour).Unix(), granted.Grantable.Limits
	})
	r.connector(r.work, 0, issue("ada/site", "with a grant")...)
	before := r.issues() + r.puts()

	sentinel := r.Daemon("sentinel")
	sentinel.Ahead = 25 * time.Hour
	if err := sentinel.Restart(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []wire.Card{write, prepared} {
		if _, err := r.tryDecide(c, true); code(err) != wire.CodeExpired {
			t.Errorf("an approval after a day is answered %v", err)
		}
		if s := r.ended(c.ID); s != wire.StateExpired {
			t.Errorf("it is %s", s)
		}
		r.has(r.connector(r.work, wire.ExitExpired, "result", c.ID).Stderr, "nobody decided in time")
	}
	r.has(r.connector(r.work, wire.ExitExpired, issue("ada/site", "the session is over")...).Stderr, "session")
	r.eventually("the grant ends", func() bool {
		return !strings.Contains(r.doorward(0, "grants").Stdout, grant)
	})
	r.sum("a write", r.issues()+r.puts(), before)
	other := r.park(r.home, issue("ada/site", "a cell that is new")...) // time goes on: what is asked now can be decided
	if s := r.approve(other); s != wire.StateDone {
		t.Errorf("what was asked later is %s", s)
	}
	r.hold(0)
}
