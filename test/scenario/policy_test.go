// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
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
		r.doorward(0, "approve", card.ID, "--yes", "--grant", "session", "--any", "title", "--count", "2")
		r.ended(card.ID)
		r.goes(work, issue("ada/site", "one")...)
		r.goes(work, issue("ada/site", "two")...)
		r.asksOnly(work, issue("ada/site", "three")...)

		card = r.asks(work, issue("ada/site", "once more")...)
		r.doorward(0, "approve", card.ID, "--yes", "--grant", "once", "--any", "title")
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
		r.doorward(0, "approve", card.ID, "--yes", "--grant", "session", "--any", "title", "--count", "1")
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
			{sensitive, func(g *wire.Grant) { g.Kind, g.Session, g.Until = "until", "", day(7)-60 }, "leaves title open"},
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
		until := r.grant(sensitive, func(g *wire.Grant) {
			g.Kind, g.Session, g.Until, g.Limits = "until", "", day(7)-60, sensitive.Grantable.Limits
		})
		standing := r.grant(plain, func(g *wire.Grant) { g.Kind, g.Session, g.Until = "standing", "", day(90)-60 })
		fresh := r.work.Session("run-2") // these outlive their session
		r.goes(fresh, issue("ada/site", "ceilings")...)
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
		if s := r.doorward(0, "grants").Stdout; strings.Contains(s, waiting.Session) {
			t.Errorf("a grant of the ended session lives:\n%s", s)
		}
		r.doorward(wire.ExitUsage, "revoke", "--session", "third/"+waiting.Session)
		r.doorward(wire.ExitUsage, "revoke", id+"x")
		r.doorward(wire.ExitUsage, "revoke", "--account", "cod")

		run = c.Session("run-10") // no, and no more of this
		one, two := r.asks(run, issue("ada/site", "no")...), r.asks(run, issue("ada/site", "no more")...)
		r.doorward(0, "deny", one.ID, "--stop")
		if s := r.ended(two.ID); s != wire.StateRevoked {
			t.Errorf("what else waited in the stopped session is %s", s)
		}
		res, err := run.Connector(r.ctx(), "dav", "calendars")
		if err != nil || res.Code != wire.ExitExpired {
			t.Errorf("the stopped session asks on: %v, %v", res, err)
		}
		r.asksOnly(c.Session("run-11"), issue("ada/site", "another run")...)
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
	t.Run("another account", func(t *testing.T) {
		r := r.with(t)
		run := r.work.Session("run-12")
		r.grant(r.asks(run, issue("ada/site", "account")...), nil)
		r.goes(run, append(issue("ada/site", "the same account"), "--account", "code")...)
		req := wire.AddReq{Name: "spare", Vendor: "github", Base: base(t, r.github.Base()), Secret: []byte(r.githubToken),
			CA: r.github.CAPEM(), Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "}, Owner: "ada",
			Permit: []string{host(t, r.github.Base())}}
		if err := r.Person(0).Ask(r.ctx(), wire.PathAuthdAdmin, "add", &req, &wire.AccountsResp{}); err != nil {
			t.Fatal(err)
		}
		res, err := run.Connector(r.ctx(), append(issue("ada/site", "not decided yet"), "--account", "spare")...)
		if err != nil || res.Code != wire.ExitAccount {
			t.Errorf("an account that nobody decided: %v, %v", res, err)
		}
		r.decide(r.waitPending(1)[0], true)
		r.asksOnly(run, append(issue("ada/site", "another account"), "--account", "spare")...)
		r.goes(run, append(issue("ada/site", "the control"), "--account", "code")...)
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

// policy asks sentinel about its policy, as the person.
func (r *rig) policy(op string) wire.PolicyResp {
	r.t.Helper()
	var resp wire.PolicyResp
	if err := r.ada.Ask(r.ctx(), wire.PathApprove, "policy", &wire.PolicyReq{Op: op}, &resp); err != nil {
		r.t.Fatalf("policy %s: %v", op, err)
	}
	return resp
}

// inForce is what tells one policy from another.
func (r *rig) inForce() string {
	r.t.Helper()
	notes := r.policy("show").Notes
	return notes[len(notes)-1]
}

// widened loads a policy that widens and returns the card.
func (r *rig) widened(text string) wire.Card {
	r.t.Helper()
	before := r.inForce()
	res := r.doorward(0, "policy", "load", r.policyFile(text), "--json")
	var out struct{ Widening string }
	if err := json.Unmarshal([]byte(res.Stdout), &out); err != nil || out.Widening == "" {
		r.t.Fatalf("what widens is decided at once: %v, %v", res, err)
	}
	card := r.card(out.Widening)
	if card.Kind != "widening" || card.State != wire.StateParked || r.inForce() != before {
		r.t.Fatalf("what widens is %s: %+v", card.State, card)
	}
	return card
}

// A policy is loaded by the person: what narrows at once, what widens as decided, with a fault not at all, and never by
// itself.
func TestPolicyLoad(t *testing.T) {
	r := newRig(t, world.Options{})
	work := r.work.Actor()
	const closed = "[connector.github.method]\nissue-create = \"off\"\n"

	for _, c := range []struct{ text, says string }{
		{"[connector.github.method]\nisue-create = \"ask\"\n",
			`policy.toml:2:1: github has no method "isue-create"; did you mean "issue-create"?`},
		{"[connector.githib]\nsetting = \"ask-every-time\"\n", `did you mean "github"`},
		{"\n\n[connector.github]\nsettings = \"ask-every-time\"\n", `policy.toml:4:1`},
		{"[connector.github]\nsetting = \"dontask\"\n", `did you mean "dont-ask"`},
		{"[connector.github.method]\nissue-create = \"of\"\n", `did you mean "off"`},
		{"[connector.github.method\n", "policy.toml:1:"},
		{closed + "bulk_reads = 5\n", "policy.toml:3:"},
	} {
		before := r.inForce()
		file := r.policyFile(c.text)
		r.has(r.doorward(1, "policy", "check", file).Stderr, c.says)
		r.has(r.doorward(1, "policy", "load", file).Stderr, c.says, "nothing is changed")
		if r.inForce() != before {
			t.Errorf("a faulty policy is in force:\n%s", c.text)
		}
	}

	// Narrowing applies at once, also to what waits.
	waiting := r.asks(work, issue("ada/site", "waits")...)
	r.has(r.connector(r.work, 0, "list", "github").Stdout, "issue-create")
	r.has(r.connector(r.work, 0, "__complete", "--", "github", "issue-").Stdout, "issue-create")
	r.has(r.doorward(0, "policy", "load", r.policyFile(closed)).Stdout, "narrows:", "issue-create", "the policy is in force")
	for _, args := range [][]string{
		{"list", "github"}, {"list", "--json"}, {"describe", "github"}, {"github", "--help"}, {"__complete", "--", "github", "issue-"},
	} {
		if out := r.connector(r.work, 0, args...); strings.Contains(out.Stdout, "issue-create") {
			t.Errorf("connector %s shows what is off:\n%s", strings.Join(args, " "), out.Stdout)
		}
	}
	from, before := r.end(), r.issues()
	res, err := work.Connector(r.ctx(), issue("ada/site", "off")...)
	if err != nil || res.Code == 0 || res.Code == wire.ExitWaiting {
		t.Errorf("what is off: %v, %v", res, err)
	}
	var denied bool
	for _, e := range r.events(from) {
		denied = denied || e.Type == "deny" && e.Details.Method == "issue-create" && e.Details.Reason == string(wire.CodeUnknownMethod)
	}
	if !denied {
		t.Error("the refusal is not in the record")
	}
	r.decide(waiting, true)
	if s := r.ended(waiting.ID); s != wire.StateFailed {
		t.Errorf("what waited and is off by now is %s", s)
	}
	r.has(r.connector(r.work, wire.ExitUsage, "result", waiting.ID).Stderr, "did not run")
	r.sum("an issue", r.issues(), before)
	r.asksOnly(work, "github", "comment", "--repo", "ada/site", "--number", "1", "--body", "the control") // another method

	// An edited file does nothing by itself, nor at a restart.
	folder := filepath.Join(r.Config(), "policy")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	open := "[connector.github.method]\nissue-create = \"allow\"\n[connector.dav]\nsetting = \"dont-ask\"\n"
	if err := os.WriteFile(filepath.Join(folder, "policy.toml"), []byte(open), 0o644); err != nil {
		t.Fatal(err)
	}
	inForce := r.inForce()
	if err := r.Daemon("sentinel").Restart(); err != nil {
		t.Fatal(err)
	}
	if r.inForce() != inForce {
		t.Error("a restart takes up a policy that nobody decided")
	}
	r.asksOnly(work, contact("Asked")...)
	r.has(r.doorward(0, "policy", "check").Stdout, "widens:")
	if r.inForce() != inForce {
		t.Error("checking takes it up")
	}

	// Widening is a card; a sensitive method is covered by no setting.
	res = r.doorward(0, "policy", "load", "--json") // of the folder
	var out struct {
		Widening string
		Notes    []string
	}
	if err := json.Unmarshal([]byte(res.Stdout), &out); err != nil {
		t.Fatalf("%v: %v", err, res)
	}
	r.has(strings.Join(out.Notes, "\n"), "policy.toml:2", "issue-create", "sensitive")
	card := r.card(out.Widening)
	r.has(strings.Join(card.Facts, "\n"), "widens:", "issue-create", "dont-ask")
	r.decide(card, false)
	if r.inForce() != inForce {
		t.Error("what was denied is in force")
	}
	r.asksOnly(work, contact("Asked Still")...)
	if s := r.decide(r.widened(open), true); s != wire.StateDone {
		t.Errorf("the approved policy is %s", s)
	}
	r.goes(work, contact("Not Asked")...)
	r.asksOnly(work, issue("ada/site", "allowed, and sensitive")...)
	if err := r.Daemon("sentinel").Restart(); err != nil {
		t.Fatal(err)
	}
	r.goes(work, contact("Not Asked Either")...)

	// A card is over the difference that it shows. Another policy meanwhile, and it is over nothing.
	stale := r.widened(open + "[connector.dav.private]\ncalendar = [\"" + r.dav.Calendar() + "\"]\n")
	r.doorward(0, "policy", "load", r.policyFile(closed))
	narrow := r.inForce()
	r.decide(stale, true)
	if s := r.ended(stale.ID); s != wire.StateFailed || r.inForce() != narrow {
		t.Errorf("a card from before the policy changed is %s", s)
	}
	r.asksOnly(work, contact("Asked Again")...)

	// It is the person's: a cell reaches none of it.
	var resp wire.PolicyResp
	req := &wire.PolicyReq{Op: "load", Files: []wire.PolicyFile{{Name: "policy.toml", Body: []byte(open)}}}
	if err := work.Ask(r.ctx(), wire.PathApprove, "policy", req, &resp); err == nil {
		t.Error("a cell loads a policy")
	}
	if err := work.Ask(r.ctx(), wire.PathCellSentinel, "policy", req, &resp); err == nil {
		t.Error("a cell loads a policy on its own socket")
	}
}

// The admin's limits.toml is a ceiling over every policy, grant and approval; with a fault in it nothing goes at all.
func TestCase_EG16_LimitsAreACeilingAndBrokenOnesCloseEverything(t *testing.T) {
	const limits = "pending = 2\nsensitive-grant-days = 0\ngrant-days = 30\nbulk-reads = 3\n" +
		"[connector.github.method]\ngist-create = \"off\"\n"
	r := newRig(t, world.Options{Config: map[string]string{"limits.toml": limits}})
	work := r.work.Actor()
	admin := func(text string) {
		if err := os.WriteFile(filepath.Join(r.Config(), "limits.toml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	day := func(n int) int64 { return time.Now().Add(time.Duration(n) * 24 * time.Hour).Unix() }

	policy := "[connector.github.method]\ngist-create = \"ask\"\n[connector.dav]\nsetting = \"dont-ask\"\n"
	card := r.widened(policy)
	r.decide(card, true)
	r.has(strings.Join(r.policy("show").Notes, "\n"), "gist-create", "limits.toml")
	if out := r.connector(r.work, 0, "list", "github"); strings.Contains(out.Stdout, "gist-create") {
		t.Error("a policy turns on what the limits have off")
	}
	r.goes(work, contact("The Control")...)

	one := r.asks(work, issue("ada/site", "one")...)
	two := r.asks(work, issue("ada/site", "two")...)
	r.has(r.connector(r.work, wire.ExitLimits, issue("ada/site", "three")...).Stderr, "2 calls of this cell wait")
	if again := r.asks(work, issue("ada/site", "two")...); again.ID != two.ID {
		t.Error("an equal call is not joined where no more may wait")
	}
	r.asksOnly(r.home.Actor(), issue("ada/site", "another cell")...)
	for _, c := range []struct {
		change func(*wire.Grant)
		says   string
	}{
		{func(g *wire.Grant) { g.Kind, g.Session, g.Until = "until", "", day(1) }, "no until one"},
		{func(g *wire.Grant) { g.Kind, g.Session, g.Until = "standing", "", day(1) }, "no standing one"},
	} {
		if _, err := r.tryGrant(one, c.change); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("over the ceiling: %v", err)
		}
	}
	r.decide(two, false)

	admin(limits + "[connector.dav.method]\ncontact-put = \"off\"\n") // taken up with the policy that is decided already
	r.goes(work, contact("Before It Is Loaded")...)
	r.doorward(0, "policy", "load", r.policyFile(policy))
	res, err := work.Connector(r.ctx(), contact("Off By The Admin")...)
	if err != nil || res.Code == 0 || res.Code == wire.ExitWaiting {
		t.Errorf("what the admin has turned off: %v, %v", res, err)
	}

	admin("terminal-approvals = false\n" + limits)
	r.doorward(0, "policy", "load", r.policyFile(policy))
	if _, err := r.tryDecide(one, true); code(err) != wire.CodeNotAllowed || !strings.Contains(err.Error(), "limits.toml") {
		t.Errorf("an approval where none is to be given at a terminal: %v", err)
	}

	admin(limits)
	r.doorward(0, "policy", "load", r.policyFile(policy))
	reader, err := r.Cell("reader")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.connector(reader, 0, "github", "repos")
	}
	bulk := r.connector(reader, wire.ExitWaiting, "github", "repos", "--json", "--wait", "0s")
	r.has(bulk.Stderr, "bulk_read")
	r.connector(reader, 0, "dav", "calendars") // another connector has its own count
	r.decide(r.card(callOf(t, bulk)), false)

	// A fault in it, and sentinel starts, says so, and lets nothing through.
	admin(strings.Replace(limits, "pending", "pendin", 1))
	if err := r.Daemon("sentinel").Restart(); err != nil {
		t.Fatal(err)
	}
	r.has(r.Daemon("sentinel").Log(), `"level":"ERROR"`, "everything is denied", "limits.toml:1:1", `did you mean \"pending\"`)
	seen := func() int { return len(r.github.Rec.All()) + len(r.dav.Rec.All()) }
	before := seen()
	r.has(r.connector(r.work, wire.ExitDenied, "dav", "calendars").Stderr, "the policy on this machine has a fault")
	r.connector(r.work, wire.ExitDenied, "github", "issues", "--repo", "ada/site")
	r.connector(r.work, wire.ExitDenied, contact("Closed")...)
	r.connector(r.work, wire.ExitDenied, issue("ada/site", "closed")...)
	r.decide(one, true)
	if s := r.ended(one.ID); s != wire.StateFailed {
		t.Errorf("what waited is %s", s)
	}
	if err := r.ada.Ask(r.ctx(), wire.PathApprove, "check", &wire.CheckReq{Account: "code"}, &wire.Output{}); err == nil {
		t.Error("an account is tested where everything is denied")
	}
	r.has(r.doorward(1, "policy", "load", r.policyFile(policy)).Stderr, "limits.toml:1:1", "nothing is changed")
	if n := seen() - before; n != 0 {
		t.Errorf("%d requests reached the vendors", n)
	}
	admin(limits)
	r.doorward(0, "policy", "load", r.policyFile(policy))
	r.connector(r.work, 0, "dav", "calendars")
	r.hold(0)
}
