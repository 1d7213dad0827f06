// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// goes and asks hold a call to what becomes of it: it runs at once, or it waits and nothing was done.
func (r *rig) goes(from *world.Actor, args ...string) {
	r.t.Helper()
	before := r.issues() + r.puts()
	res, err := from.Connector(r.ctx(), args...)
	if err != nil || res.Code != 0 {
		r.t.Errorf("%s: want it to go: %v, %v", strings.Join(args, " "), res, err)
	}
	r.sum("a write", r.issues()+r.puts(), before+1)
}

func (r *rig) asks(from *world.Actor, args ...string) wire.Card {
	r.t.Helper()
	before := len(r.acted())
	res, err := from.Connector(r.ctx(), append(args, "--json", "--wait", "0s")...)
	if err != nil || res.Code != wire.ExitWaiting {
		r.t.Fatalf("%s: want it to wait: %v, %v", strings.Join(args, " "), res, err)
	}
	r.sum("a write", len(r.acted()), before)
	return r.card(callOf(r.t, res))
}

// asksOnly is asks, and then the person says no.
func (r *rig) asksOnly(from *world.Actor, args ...string) {
	r.t.Helper()
	r.decide(r.asks(from, args...), false)
}

// inFlight starts a command and waits until its request is at a vendor, which answers later by the fault that the test
// has put there.
func (r *rig) inFlight(rec *standin.Recorder, from *world.Actor, args ...string) *world.Proc {
	r.t.Helper()
	before := len(rec.All())
	p, err := from.Start(world.Cmd{Args: append([]string{filepath.Join(r.Prefix, "bin", "connector")}, args...), UID: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	over := make(chan struct{})
	go func() { defer close(over); _, _ = p.Wait() }()
	r.eventually("the request is at the vendor", func() bool {
		select {
		case <-over:
			res, err := p.Wait()
			r.t.Fatalf("connector %s ended before its request was at the vendor: %v, %v", strings.Join(args, " "), res, err)
		default:
		}
		return len(rec.All()) > before
	})
	return p
}

func TestGrants(t *testing.T) {
	r := newRig(t, world.Options{})
	work, home := r.work.Actor(), r.home.Actor()
	const guest = "eve@example.test"
	invite := func(title string, guests ...string) []string {
		args := append(r.event(title), "--notify", "none")
		for _, g := range guests {
			args = append(args, "--attendee", g)
		}
		return args
	}
	end := func(id string) { // of a grant
		if id != "" {
			r.doorward(0, "revoke", id)
		}
	}

	t.Run("AP-03 nothing beyond what was shown", func(t *testing.T) {
		r := r.with(t)
		id := r.grant(r.asks(work, issue("ada/site", "shown")...), nil)
		r.has(r.doorward(0, "grants").Stdout, id, "ada/site", "cell work", "session")
		r.goes(work, issue("ada/site", "the like of it")...)
		r.goes(work, issue("ADA/Site", "the same repository")...)
		r.asksOnly(work, issue("ada/notes", "another repository")...)
		r.asksOnly(work, append(issue("ada/site", "to somebody"), "--assignee", "mallory")...)
		r.asksOnly(work, "github", "comment", "--repo", "ada/site", "--number", "1", "--body", "another method")
		r.asksOnly(home, issue("ada/site", "another cell")...)
		r.asksOnly(r.work.Session("run-1"), issue("ada/site", "another session")...)
		end(id)
		r.asksOnly(work, issue("ada/site", "revoked")...)
	})

	t.Run("recipients", func(t *testing.T) {
		r := r.with(t)
		card := r.asks(work, invite("to one", guest)...)
		r.has(strings.Join(card.Facts, "\n"), "first time you write to "+guest)
		if len(card.Fields) == 0 || !card.Fields[0].Main || card.Fields[0].Values[0] != guest {
			t.Errorf("the recipient is not the first thing on the card: %+v", card.Fields)
		}
		id := r.grant(card, nil)
		r.goes(work, invite("to the same", guest)...)
		r.goes(work, invite("domains are the same in any case", "eve@EXAMPLE.test")...)
		other := r.asks(work, invite("to another", "mallory@evil.test")...)
		r.has(strings.Join(other.Facts, "\n"), "first time you write to mallory@evil.test")
		r.decide(other, false)
		both := r.asks(work, invite("to both", guest, "mallory@evil.test")...)
		if facts := strings.Join(both.Facts, "\n"); strings.Contains(facts, "first time you write to "+guest) {
			t.Errorf("she was written to before: %s", facts)
		}
		r.decide(both, false)
		r.asksOnly(work, r.event("to nobody")...)
		r.asksOnly(work, append(r.event("and mail goes out"), "--attendee", guest, "--notify", "all")...)
		end(id)
	})

	t.Run("count, once", func(t *testing.T) {
		r := r.with(t)
		card := r.asks(work, issue("ada/site", "counted")...)
		r.doorward(0, "approve", card.ID, "--yes", "--grant", "session", "--count", "2")
		r.ended(card.ID)
		r.goes(work, issue("ada/site", "one")...)
		r.goes(work, issue("ada/site", "two")...)
		r.asksOnly(work, issue("ada/site", "three")...)

		card = r.asks(work, issue("ada/site", "once more")...)
		r.doorward(0, "approve", card.ID, "--yes", "--grant", "once")
		r.ended(card.ID)
		r.github.Faults.Add(standin.Fault{Method: "POST", Times: 1, Status: 422, Body: `{"message":"Validation Failed"}`})
		r.connector(r.work, wire.ExitVendor, issue("ada/site", "the vendor refuses, and the use is spent")...)
		r.asksOnly(work, issue("ada/site", "after once")...)
		if s := r.doorward(0, "grants").Stdout; !strings.Contains(s, "no grants") {
			t.Errorf("used up grants are listed:\n%s", s)
		}
	})

	t.Run("the use of a call that did not run is given back", func(t *testing.T) {
		r := r.with(t)
		card := r.asks(work, issue("ada/site", "given back")...)
		r.doorward(0, "approve", card.ID, "--yes", "--grant", "session", "--count", "1")
		r.ended(card.ID)
		before, from := r.issues(), r.end()
		r.Daemon("egress").Kill()
		p, err := work.Start(world.Cmd{UID: 1000, Args: append([]string{filepath.Join(r.Prefix, "bin", "connector")},
			issue("ada/site", "egress is down")...)})
		if err != nil {
			t.Fatal(err)
		}
		r.eventually("the call runs", func() bool {
			for id, h := range r.writes(from) {
				if h.state == wire.StateExecuting {
					_, err := work.Connector(r.ctx(), "cancel", id)
					return err == nil
				}
			}
			return false
		})
		p.Kill()
		if err := r.Daemon("egress").Start(); err != nil {
			t.Fatal(err)
		}
		r.sum("an issue", r.issues(), before)
		r.goes(work, issue("ada/site", "egress is up")...)
		r.asksOnly(work, issue("ada/site", "and now it is spent")...)
	})

	t.Run("ceilings in words", func(t *testing.T) {
		r := r.with(t)
		day := func(n int) int64 { return time.Now().Add(time.Duration(n) * 24 * time.Hour).Unix() }
		sensitive := r.asks(work, issue("ada/site", "ceilings")...)
		plain := r.asks(work, contact("Ceil Ing")...)
		without := func(field string) func(*wire.Grant) {
			return func(g *wire.Grant) {
				var left []wire.Limit
				for _, l := range g.Limits {
					if l.Field != field {
						left = append(left, l)
					}
				}
				g.Limits = left
			}
		}
		for _, c := range []struct {
			card   wire.Card
			change func(*wire.Grant)
			says   string
		}{
			{sensitive, func(g *wire.Grant) { g.Kind, g.Session, g.Until = "standing", "", day(30) }, "no standing one"},
			{sensitive, func(g *wire.Grant) { g.Kind, g.Session, g.Until = "until", "", day(8) }, "at most 7 days"},
			{sensitive, func(g *wire.Grant) { g.Tainted = true }, "after it has read what others wrote"},
			{sensitive, func(g *wire.Grant) { g.Limits = nil }, "limits nothing"},
			{sensitive, without("assignee"), "does not limit assignee"},
			{sensitive, func(g *wire.Grant) { g.Limits[0].Field = "repos" }, `did you mean "repo"`},
			{sensitive, func(g *wire.Grant) { g.Cell = "home" }, "another"},
			{sensitive, func(g *wire.Grant) { g.Method = "comment" }, "another"},
			{sensitive, func(g *wire.Grant) { g.Kind = "forever" }, "forever"},
			{plain, func(g *wire.Grant) { g.Kind, g.Session, g.Until = "standing", "", day(91) }, "at most 90 days"},
			{plain, func(g *wire.Grant) { g.Kind, g.Session, g.Until = "until", "", day(-1) }, "is over"},
		} {
			_, err := r.tryGrant(c.card, c.change)
			if code(err) != wire.CodeBadArgument || !strings.Contains(err.Error(), c.says) {
				t.Errorf("want it refused with %q: %v", c.says, err)
			}
		}
		if r.card(sensitive.ID).State != wire.StateParked {
			t.Error("a refused grant decided the call")
		}
		until := r.grant(sensitive, func(g *wire.Grant) { g.Kind, g.Session, g.Until = "until", "", day(7)-60 })
		standing := r.grant(plain, func(g *wire.Grant) { g.Kind, g.Session, g.Until = "standing", "", day(90)-60 })
		fresh := r.work.Session("run-2") // these outlive their session
		r.goes(fresh, issue("ada/site", "until")...)
		r.goes(fresh, contact("Stan Ding")...)
		r.asksOnly(home, contact("Stan Elsewhere")...)
		end(until)
		end(standing)
	})

	t.Run("a session's grant ends with it", func(t *testing.T) {
		r := r.with(t)
		c, err := r.Cell("third")
		if err != nil {
			t.Fatal(err)
		}
		id := r.grant(r.asks(c.Actor(), issue("ada/site", "session")...), nil)
		r.goes(c.Actor(), issue("ada/site", "in the session")...)
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		if c, err = r.Cell("third"); err != nil {
			t.Fatal(err)
		}
		r.asksOnly(c.Actor(), issue("ada/site", "the cell started again")...)

		run := c.Session("run-7")
		r.grant(r.asks(run, issue("ada/site", "a run")...), nil)
		r.goes(run, issue("ada/site", "in the run")...)
		if err := c.EndSession("run-7"); err != nil {
			t.Fatal(err)
		}
		r.asksOnly(c.Session("run-7"), issue("ada/site", "a run of the same name")...)

		payload := c.Actor()
		r.grant(r.asks(payload, issue("ada/site", "ended by the person")...), nil)
		var sessions wire.SessionResp
		if err := r.ada.Ask(r.ctx(), wire.PathApprove, "session", &wire.SessionReq{}, &sessions); err != nil {
			t.Fatal(err)
		}
		waiting := r.asks(payload, issue("ada/notes", "waits")...)
		r.doorward(0, "revoke", "--session", "third/"+waiting.Session)
		if s := r.ended(waiting.ID); s != wire.StateRevoked {
			t.Errorf("what waited in the session is %s", s)
		}
		r.has(r.connector(c, wire.ExitExpired, issue("ada/site", "in the ended session")...).Stderr, "session")
		r.asksOnly(c.Session("run-8"), issue("ada/site", "another session of the cell")...)
		_ = id
	})

	t.Run("revoked while it runs", func(t *testing.T) {
		r := r.with(t)
		from := r.end()
		id := r.grant(r.asks(work, issue("ada/site", "to be cut")...), nil)
		r.github.Faults.Add(standin.Fault{Method: "POST", Times: 1, DelayMS: 60_000})
		p := r.inFlight(r.github.Rec, work, append(issue("ada/site", "cut"), "--json")...)
		report := r.doorward(0, "revoke", id).Stdout
		res, err := p.Wait()
		if err != nil || res.Code == 0 {
			t.Errorf("the call that was cut: %v, %v", res, err)
		}
		r.has(report, "is revoked", "may have run", "issue-create")
		r.asksOnly(work, issue("ada/site", "after the cut")...)
		r.github.Faults.Clear()
		r.settle(from) // the vendor never acted on it, as its own list shows
		r.hold(from)

		// A grant whose last use runs is used up already, and still names the call.
		card := r.asks(work, issue("ada/site", "the last use")...)
		id = r.grant(card, func(g *wire.Grant) { g.Count = 1 })
		r.github.Faults.Add(standin.Fault{Method: "POST", Times: 1, DelayMS: 60_000})
		p = r.inFlight(r.github.Rec, work, append(issue("ada/site", "the last use, cut"), "--json")...)
		r.has(r.doorward(0, "revoke", id).Stdout, "may have run")
		if res, err := p.Wait(); err != nil || res.Code == 0 {
			t.Errorf("the last use that was cut: %v, %v", res, err)
		}
		r.github.Faults.Clear()
	})

	t.Run("revoke an account", func(t *testing.T) {
		r := r.with(t)
		id := r.grant(r.asks(home, issue("ada/site", "account")...), nil)
		waiting := r.asks(home, issue("ada/notes", "account")...)
		r.has(r.doorward(0, "revoke", "--account", "code").Stdout, id, waiting.ID, "not used any more")
		if s := r.ended(waiting.ID); s != wire.StateRevoked {
			t.Errorf("what waited is %s", s)
		}
		r.connector(r.home, wire.ExitAccount, "github", "issues", "--repo", "ada/site")
		r.connector(r.home, 0, "dav", "calendars") // the control: the other account
		card := r.waitPending(1)[0]
		if card.Kind != "widening" {
			t.Fatalf("the account's card: %+v", card)
		}
		r.decide(card, true)
		r.connector(r.home, 0, "github", "issues", "--repo", "ada/site")
		r.asksOnly(home, issue("ada/site", "its grants do not come back")...)
	})

	t.Run("another login of the same account", func(t *testing.T) {
		r := r.with(t)
		card := r.asks(home, contact("Log In")...)
		if card.Grantable == nil {
			t.Fatal("no grant is offered")
		}
		r.decide(card, false)
		third := r.work.Session("run-9")
		id := r.grant(r.asks(third, issue("ada/site", "login")...), nil)
		r.goes(third, issue("ada/site", "the same login")...)
		var resp wire.AccountsResp
		if err := r.Person(0).Ask(r.ctx(), wire.PathAuthdAdmin, "list", &wire.Empty{}, &resp); err != nil {
			t.Fatal(err)
		}
		for _, a := range resp.Accounts {
			if a.Name != "code" {
				continue
			}
			req := wire.AddReq{Name: a.Name, Vendor: a.Vendor, Base: a.Base, Placement: a.Placement, Owner: a.Owner,
				Secret: []byte(r.githubToken), CA: r.github.CAPEM(), Permit: a.Permit, Also: a.Also, Replace: true}
			if err := r.Person(0).Ask(r.ctx(), wire.PathAuthdAdmin, "add", &req, &wire.AccountsResp{}); err != nil {
				t.Fatal(err)
			}
		}
		r.decide(r.waitPending(1)[0], true)
		if s := r.doorward(0, "grants").Stdout; strings.Contains(s, id) {
			t.Errorf("a grant for the login before lives on:\n%s", s)
		}
		r.asksOnly(third, issue("ada/site", "another login")...)
	})
	r.settle(0)
	r.hold(0)
}

// Labels: who has read what others wrote asks before every change, whatever was granted to it before, over every
// restart, until a person decides otherwise.
func TestLabels(t *testing.T) {
	r := newRig(t, world.Options{})
	home := r.home.Actor()
	labels := func(cell string) string { return r.doorward(0, "taint", cell).Stdout }

	r.grant(r.asks(home, contact("One")...), nil)
	r.goes(home, contact("Two")...)
	if s := labels("home"); strings.Contains(s, "untrusted") {
		t.Fatalf("a cell that has read nothing of others: %s", s)
	}

	// The label is there before the answer is.
	r.github.Faults.Add(standin.Fault{Method: "GET", Times: 1, DelayMS: 60_000})
	reading := r.inFlight(r.github.Rec, home, "github", "issues", "--repo", "ada/site")
	r.has(labels("home"), "untrusted", "private", "github issues")
	waiting := r.asks(home, contact("Three")...)
	reading.Kill()
	if res, _ := reading.Wait(); strings.Contains(res.Stdout, "bug") {
		t.Error("the read was not held")
	}
	r.github.Faults.Clear()
	r.connector(r.home, 0, "github", "issues", "--repo", "ada/site") // the control: it answers what others wrote

	// A grant for callers that have read holds for them; the one for those that have not does not.
	r.has(strings.Join(labelsOf(waiting), "\n"), "github issues")
	r.grant(waiting, func(g *wire.Grant) { g.Tainted = true })
	r.goes(home, contact("Four")...)
	r.asksOnly(r.home.Session("run-x"), contact("Another Session")...)
	r.asksOnly(home, issue("ada/site", "sensitive")...)

	// They survive sentinel and the cell.
	if err := r.Daemon("sentinel").Restart(); err != nil {
		t.Fatal(err)
	}
	r.has(labels("home"), "untrusted", "github issues")
	r.goes(home, contact("Five")...)
	if err := r.home.Stop(); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.home, err = r.Cell("home"); err != nil {
		t.Fatal(err)
	}
	home = r.home.Actor()
	r.has(labels("home"), "untrusted")
	plain := r.grant(r.asks(home, contact("Six")...), nil) // without "also after reading" it is for nothing now
	r.asksOnly(home, contact("Seven")...)

	// Clearing them is decided like a call.
	card := r.clear("home")
	r.asksOnly(home, contact("Not Yet")...)
	r.decide(card, false)
	r.asksOnly(home, contact("She Said No")...)
	r.decide(r.clear("home"), true)
	if s := labels("home"); strings.Contains(s, "untrusted") {
		t.Errorf("after clearing: %s", s)
	}
	r.goes(home, contact("Eight")...)
	r.has(r.doorward(0, "grants").Stdout, plain)

	// What is still on its way to the cell labels it again.
	r.github.Faults.Add(standin.Fault{Method: "GET", Times: 1, DelayMS: 3000})
	reading = r.inFlight(r.github.Rec, home, "github", "issues", "--repo", "ada/site")
	r.decide(r.clear("home"), true)
	r.has(labels("home"), "untrusted")
	if res, err := reading.Wait(); err != nil || !strings.Contains(res.Stdout, "bug") {
		t.Errorf("the read that was on its way: %v, %v", res, err)
	}
	r.asksOnly(home, contact("Nine")...)

	// A read that the policy asks about labels the cell when its answer is handed out.
	file := r.policyFile("[connector.github.method]\nissues = \"ask\"\n")
	r.doorward(0, "policy", "load", file)
	c, err := r.Cell("fresh")
	if err != nil {
		t.Fatal(err)
	}
	parked := r.asks(c.Actor(), "github", "issues", "--repo", "ada/site")
	if s := labels("fresh"); strings.Contains(s, "untrusted") {
		t.Errorf("a read that waits: %s", s)
	}
	if s := r.approve(parked); s != wire.StateDone {
		t.Errorf("the read is %s", s)
	}
	r.decide(r.clear("fresh"), true) // it ran, and its answer is not collected yet
	if res := r.connector(c, 0, "result", parked.ID); !strings.Contains(res.Stdout, "bug") {
		t.Errorf("the answer: %v", res)
	}
	r.has(labels("fresh"), "untrusted", "github issues")
	if res := r.connector(r.home, wire.ExitUsage, "result", parked.ID); strings.Contains(res.Stdout, "bug") {
		t.Error("another cell collects it")
	}
}

// clear asks for a cell's labels to be taken away, and returns the card.
func (r *rig) clear(cell string) wire.Card {
	r.t.Helper()
	var resp wire.TaintResp
	if err := r.ada.Ask(r.ctx(), wire.PathApprove, "taint", &wire.TaintReq{Cell: cell, Clear: true}, &resp); err != nil {
		r.t.Fatal(err)
	}
	card := r.card(resp.Widening)
	if card.Kind != "widening" || card.State != wire.StateParked {
		r.t.Fatalf("clearing labels makes %+v", card)
	}
	return card
}

func labelsOf(card wire.Card) []string {
	var out []string
	for _, l := range card.Labels {
		out = append(out, l.Label+": "+l.Why)
	}
	return out
}

// policyFile writes a policy.toml where the person can read it.
func (r *rig) policyFile(text string) string {
	r.t.Helper()
	dir, err := os.MkdirTemp("", "doorward-policy-")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(dir, "policy.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return path
}
