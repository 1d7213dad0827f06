// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/chromium"
	"github.com/doorward/doorward/test/world"
)

// enrolled is the page in a browser, with a new approver signed in.
func (r *rig) enrolled(b *chromium.Browser, name string, width, height int64) *chromium.Window {
	r.t.Helper()
	res, err := r.Person(0).Doorward(r.ctx(), "", "approver", "add", name)
	if err != nil || res.Code != 0 {
		r.t.Fatalf("%v %v", res, err)
	}
	w := b.Open(r.t, width, height, strings.TrimSpace(res.Stdout))
	w.Press("Make a passkey")
	w.Press("Sign in with a passkey")
	w.Sees("Waiting for you")
	return w
}

// From the phone a person turns a method off and on again, takes a cell's label away and looks back. Off holds at once; on, and the
// label, only once a passkey said so.
func TestAPersonSetsRulesAndLooksBackInABrowser(t *testing.T) {
	b := browserFor(t)
	r := newRig(t, world.Options{Page: true})
	w := r.enrolled(b, "ada", 390, 844)
	read := []string{"github", "issues", "--repo", "ada/site", "--json"}
	goes := func(fragment, heading string) {
		t.Helper()
		w.Eval(fmt.Sprintf("location.hash = %q", fragment), nil)
		w.Until(fmt.Sprintf(`document.querySelector("h1")?.textContent === %q`, heading), heading)
	}
	set := func(method, value string) {
		t.Helper()
		goes("rules", "Rules")
		w.Until(fmt.Sprintf(`(() => { const e = document.querySelector('select[aria-label=%q]'); if (e) e.value = %q; return e?.value === %q; })()`,
			method, value, value), method+" is set")
		w.Press("Save")
	}
	r.connector(r.work, wire.ExitDone, read...)

	set("github issues", "off")
	w.Sees("Saved. It is in force.")
	if res := r.connector(r.work, wire.ExitUsage, read...); !strings.Contains(res.Stdout+res.Stderr, string(wire.CodeUnknownMethod)) {
		t.Errorf("%+v", res)
	}
	set("github issues", "")
	w.Sees("widens: github issues: off, now allow")
	r.connector(r.work, wire.ExitUsage, read...) // until it is decided
	w.Press("Allow this")
	w.Sees("Approved.")
	r.connector(r.work, wire.ExitDone, read...)

	goes("cells", "Cells")
	w.Sees("github issues, call")
	w.Press("Let it count as having read nothing")
	w.Press("Allow this")
	w.Sees("Approved.")
	goes("cells", "Cells")
	w.Sees("It has read nothing of others, and nothing private.")

	card := r.park(r.work, issue("ada/site", "A needle")...)
	goes("history&words=needle", "Past")
	w.Sees(card.Title)
	w.Until(`document.querySelectorAll("main ul.plain > li").length === 1`, "one is found")
	goes("accounts", "Accounts")
	w.Sees("well")
	if c := w.Complaints(); len(c) > 0 {
		t.Errorf("the console: %q", c)
	}
}
