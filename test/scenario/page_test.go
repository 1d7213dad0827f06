// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/chromium"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

// browserFor is a browser for the page; without one, or where there is no page, the test is skipped.
func browserFor(t testing.TB) *chromium.Browser {
	t.Helper()
	if ground.Systemd() {
		t.Skip("there is no page on this ground")
	}
	b, end, err := chromium.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	if b == nil {
		t.Skip(chromium.Missing)
	}
	return b
}

// A person enrols by the link, and decides a cell's call in a browser: what runs is what was shown, once.
func TestAPersonDecidesInABrowser(t *testing.T) {
	browser := browserFor(t)
	r := newRig(t, world.Options{Page: true})
	res, err := r.Person(0).Doorward(r.ctx(), "", "approver", "add", "ada")
	if err != nil || res.Code != 0 {
		t.Fatalf("%v %v", res, err)
	}
	w := browser.Open(t, 1280, 900, strings.TrimSpace(res.Stdout))
	w.Press("Make a passkey")
	w.Press("Sign in with a passkey")
	w.Sees("Nothing waits.")
	card := r.park(r.work, issue("ada/site", "It stalls")...)
	w.Sees("Something new waits for you.")
	w.Press(card.Title)
	w.Sees("ada/site")
	w.Sees("It stalls")
	w.Press("Approve once")
	w.Sees("Approved.")
	if s := r.ended(card.ID); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
	r.sum("an issue", r.issues(), 1)

	denied := r.park(r.work, issue("ada/site", "It stalls again")...)
	w.Press(denied.Title)
	w.Sees("It stalls again")
	w.Press("Deny")
	w.Sees("Denied.")
	if s := r.ended(denied.ID); s != wire.StateDenied {
		t.Errorf("it is %s", s)
	}
	granted := r.park(r.work, issue("ada/site", "A third")...)
	w.Press(granted.Title)
	w.Press("Approve, and the like of it too")
	w.Sees("only where repo is ada/site and title is")
	w.Eval(`[...document.querySelectorAll("fieldset fieldset")].find((f) => f.querySelector("legend").textContent === "title")
		.querySelector(":scope > label.tick input").click()`, nil)
	w.Sees("whatever title is")
	w.Press("Approve, and allow this ahead")
	w.Sees("Approved, and allowed ahead.")
	if s := r.ended(granted.ID); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
	r.connector(r.work, wire.ExitDone, append(issue("ada/site", "A fourth"), "--json")...)
	r.sum("an issue", r.issues(), 3)
	w.Press("Allowed ahead")
	w.Sees("Used once")
}
