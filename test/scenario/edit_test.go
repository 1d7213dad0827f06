// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// A person changes the title of an event before they approve it: what is at the server then is the changed one, once; the old call
// never runs, and the agent is told where to look.
func TestAnEventIsChangedBeforeItIsApproved(t *testing.T) {
	browser := browserFor(t)
	r, v := withRadicaleAnd(t, world.Options{Page: true})
	res, err := r.Person(0).Doorward(r.ctx(), "", "approver", "add", "ada")
	if err != nil || res.Code != 0 {
		t.Fatalf("%v %v", res, err)
	}
	w := browser.Open(t, 390, 844, strings.TrimSpace(res.Stdout))
	w.Press("Make a passkey")
	w.Press("Sign in with a passkey")
	w.Sees("Nothing waits.")
	puts := func() int { return v.Rec.Handled("PUT", "/") }
	card := r.park(r.work, "dav", "event-create", "--account", "rad", "--calendar", v.Calendar(), "--title", "Meet teh team",
		"--start", "2030-03-04T09:00:00", "--end", "2030-03-04T10:00:00", "--tz", "Europe/Berlin", "--notify", "none")
	w.Press(card.Title)
	w.Press("Change it first")
	w.Sees("Nothing runs by this.")
	w.Eval(`(() => { const e = [...document.querySelectorAll("input")].find((e) => e.value === "Meet teh team"); e.value = "Meet the team"; })()`, nil)
	w.Press("Look at the change")
	w.Sees("is now: Meet the team")
	w.Sees("is now: SUMMARY:Meet the team") // of the body, as the worker rendered it anew and sentinel read it back
	if n := puts(); n != 0 || len(r.pending()) != 1 {
		t.Fatalf("looking at it wrote %d times, and %d wait", n, len(r.pending()))
	}
	w.Press("Approve what I changed")
	w.Sees("Approved.")
	r.eventually("it is written", func() bool { return puts() == 1 && len(r.pending()) == 0 })
	told, err := r.work.Actor().Connector(r.ctx(), "result", card.ID, "--json")
	if err != nil || told.Code == wire.ExitDone {
		t.Fatalf("%v %v", told, err)
	}
	refused := refusal(t, told)
	at := strings.LastIndexByte(refused.Next, ' ') + 1
	if refused.Code != wire.CodeRevoked || !strings.Contains(refused.Reason, "a person changed it") || at == 0 {
		t.Fatalf("%+v", refused)
	}
	if s := r.ended(refused.Next[at:]); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
	made := answer(t, r.connector(r.work, wire.ExitDone, "result", refused.Next[at:], "--json"))
	path, _ := made["event"].(string)
	if b, ok := v.Object(path); !ok || !strings.Contains(string(b), "SUMMARY:Meet the team") {
		t.Errorf("at the server: %s", b)
	}
	// The old one, approved by the hash that was shown: refused, and nothing more is written.
	if _, err := r.tryDecide(card, true); code(err) != wire.CodeRevoked {
		t.Errorf("the old one: %v", err)
	}
	if n := puts(); n != 1 {
		t.Errorf("%d writes reached the server", n)
	}
}
