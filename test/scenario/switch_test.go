// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// The switch: what waits is dropped, what runs is cut and reported, nothing new goes, and only a person's decision turns
// it on again. Another cell notices nothing.
func TestTheSwitch(t *testing.T) {
	r := newRig(t, world.Options{})
	work, home := r.work.Actor(), r.home.Actor()
	r.grant(r.asks(work, issue("ada/site", "granted")...), nil)
	r.grant(r.asks(work, r.event("granted")...), nil)
	r.grant(r.asks(home, issue("ada/site", "granted to home")...), nil)
	parked, other := r.asks(work, issue("ada/notes", "parked")...), r.asks(home, issue("ada/notes", "parked")...)

	// A slow read, a slow write of the cell's and a slow one that sentinel executes for it are on their way; so is one of
	// another cell.
	const long = 60_000
	r.github.Faults.Add(standin.Fault{Method: "GET", Path: "/repos/ada/site/issues", Times: 1, DelayMS: long})
	r.github.Faults.Add(standin.Fault{Method: "POST", Path: "/repos/ada/site/issues", Times: 1, DelayMS: long})
	r.dav.Faults.Add(standin.Fault{Method: "PUT", Times: 1, DelayMS: long})
	write := r.inFlight(r.github.Rec, work, issue("ada/site", "in flight")...)
	executed := r.inFlight(r.dav.Rec, work, r.event("in flight")...)
	read := r.inFlight(r.github.Rec, work, "github", "issues", "--repo", "ada/site")
	r.github.Faults.Add(standin.Fault{Method: "GET", Path: "/repos/ada/notes/issues", Times: 1, DelayMS: 4000})
	elsewhere := r.inFlight(r.github.Rec, home, "github", "issues", "--repo", "ada/notes", "--json")

	report := r.doorward(0, "stop", "work").Stdout
	for name, p := range map[string]*world.Proc{"read": read, "write": write, "executed write": executed} {
		if res, err := p.Wait(); err != nil || res.Code == 0 || strings.Contains(res.Stdout, "bug") {
			t.Errorf("the %s in flight: %v, %v", name, res, err)
		}
	}
	r.has(report, "no new grants", "voided", "cut the live traffic", "parked calls dropped: 1", "not frozen")
	r.has(report, "issue-create", "event-create")
	if n := strings.Count(report, "may have run:"); n != 2 {
		t.Errorf("%d calls may have run, want the two writes:\n%s", n, report)
	}
	if res, err := elsewhere.Wait(); err != nil || res.Code != 0 {
		t.Errorf("another cell's read was cut: %v, %v", res, err)
	}

	// Nothing of the cell goes, whatever it was granted.
	if s := r.ended(parked.ID); s != wire.StateRevoked {
		t.Errorf("what waited is %s", s)
	}
	r.connector(r.work, wire.ExitExpired, "result", parked.ID)
	before := len(r.github.Rec.All()) + len(r.dav.Rec.All())
	for _, args := range [][]string{
		{"dav", "calendars"}, {"github", "issues", "--repo", "ada/site"}, issue("ada/site", "granted"), contact("Stopped"),
		r.event("granted"),
	} {
		r.has(r.connector(r.work, wire.ExitDenied, args...).Stderr, "stopped")
	}
	if n := len(r.github.Rec.All()) + len(r.dav.Rec.All()); n != before {
		t.Errorf("%d requests of a stopped cell reached the vendors", n-before)
	}
	r.asksOnly(home, issue("ada/site", "home goes on, and has read by now")...)
	if s := r.approve(other); s != wire.StateDone {
		t.Errorf("another cell's call is %s", s)
	}

	// A restart does not turn it on; a person's decision does, and only that.
	if err := r.Daemon("sentinel").Restart(); err != nil {
		t.Fatal(err)
	}
	r.connector(r.work, wire.ExitDenied, "dav", "calendars")
	resume := func(cell ...string) wire.Card {
		r.doorward(0, append([]string{"stop", "--resume"}, cell...)...)
		card := r.waitPending(1)[0]
		if card.Kind != "widening" || card.Method != "resume" {
			t.Fatalf("resuming makes %+v", card)
		}
		return card
	}
	card := resume("work")
	r.connector(r.work, wire.ExitDenied, "dav", "calendars")
	r.decide(card, false)
	r.connector(r.work, wire.ExitDenied, "dav", "calendars")
	r.decide(resume("work"), true)
	r.connector(r.work, 0, "dav", "calendars")

	// All cells at once. What waits for a decision about an account is asked again.
	r.doorward(0, "revoke", "--account", "code")
	account := r.waitPending(1)[0]
	r.doorward(0, "stop")
	r.connector(r.work, wire.ExitDenied, "dav", "calendars")
	r.connector(r.home, wire.ExitDenied, "dav", "calendars")
	r.eventually("the account is asked again", func() bool {
		cards := r.pending()
		return len(cards) == 1 && cards[0].ID != account.ID && cards[0].Title == account.Title
	})
	r.decide(r.pending()[0], true)
	r.decide(resume(), true)
	r.connector(r.work, 0, "dav", "calendars")
	r.connector(r.home, 0, "github", "issues", "--repo", "ada/site")

	// What was cut is looked up, now that it may be: at most once each, and the record says what the vendors saw.
	r.github.Faults.Clear()
	r.dav.Faults.Clear()
	r.settle(0)
	r.hold(0)
}

// midst does something in the midst of a cell's writes: granted ones that the cell sends, granted ones that sentinel
// executes, and asked ones that the person approves. Once it is done, no request may reach a vendor any more but one that
// was on its way already, and of that the record says that it may have run.
func (r *rig) midst(name string, from *world.Actor, do func()) {
	r.t.Helper()
	var over atomic.Bool
	var wg sync.WaitGroup
	for i, args := range [][]string{issue("ada/site", ""), issue("ada/site", ""), r.event("")} {
		wg.Go(func() {
			for n := 0; !over.Load(); n++ {
				words := slices.Clone(args)
				words[slices.Index(words, "--title")+1] = fmt.Sprintf("%s, %d %d", name, i, n)
				_, _ = from.Connector(r.ctx(), append(words, "--wait", "0s")...)
			}
		})
	}
	wg.Go(func() {
		for n := 0; !over.Load(); n++ {
			_, _ = from.Connector(r.ctx(), append(issue("ada/notes", fmt.Sprintf("%s, %d", name, n)), "--wait", "0s")...)
			for _, card := range r.pending() {
				_, _ = r.tryDecide(card, true)
			}
		}
	})
	before := len(r.acted())
	r.eventually("writes go", func() bool { return len(r.acted()) > before+3 })
	do()
	after := [2]int{len(r.github.Rec.All()), len(r.dav.Rec.All())}
	time.Sleep(200 * time.Millisecond) // what would come, comes now
	over.Store(true)
	wg.Wait()
	r.quiet(0)
	late := append(r.github.Rec.All()[after[0]:], r.dav.Rec.All()[after[1]:]...)
	late = slices.DeleteFunc(late, func(q standin.Request) bool { return q.Method == "GET" }) // sentinel looks marks up
	if len(late) > 0 {
		for id, h := range r.writes(0) {
			mark := r.card(id).Mark
			late = slices.DeleteFunc(late, func(q standin.Request) bool { return h.unknown && carries(q, mark) })
		}
	}
	for _, q := range late { // it was not on its way, or nobody was told that it may have run
		r.t.Errorf("%s: afterwards a vendor was reached by %s %s %s", name, q.Method, q.Path, q.Body)
	}
}

// Stopped or revoked in the midst of everything: once that has answered, nothing reaches a vendor any more, whatever was
// being asked, approved, granted or sent at that moment; and the record says of each call what the vendor saw.
func TestStoppedAndRevokedInTheMidst(t *testing.T) {
	r := newRig(t, world.Options{})
	work := r.work.Actor()
	granted := func(a *world.Actor) {
		r.grant(r.asks(a, issue("ada/site", "granted to "+a.Name)...), nil)
		r.grant(r.asks(a, r.event("granted to "+a.Name)...), nil)
	}
	granted(work)
	var report wire.Report
	for round := range 5 {
		r.midst(fmt.Sprintf("stop %d", round), work, func() {
			if err := r.ada.Ask(r.ctx(), wire.PathApprove, "stop", &wire.StopReq{Cell: "work"}, &report); err != nil {
				t.Fatal(err)
			}
		})
		if err := r.ada.Ask(r.ctx(), wire.PathApprove, "stop", &wire.StopReq{Cell: "work", Resume: true}, &report); err != nil {
			t.Fatal(err)
		}
		r.decide(r.card(report.Widening), true)
	}
	for round := range 5 {
		run := r.home.Session(fmt.Sprintf("run-%d", round))
		session := "home/" + r.asks(run, issue("ada/notes", run.Name)...).Session
		granted(run)
		r.midst(fmt.Sprintf("revoke %d", round), run, func() {
			if err := r.ada.Ask(r.ctx(), wire.PathApprove, "revoke", &wire.PersonRevokeReq{Session: session}, &report); err != nil {
				t.Fatal(err)
			}
		})
	}
	r.settle(0)
	t.Logf("in the end: %v", r.hold(0))
}
