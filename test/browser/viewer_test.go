// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/doorward/doorward/internal/wire"
)

// Who may only see is shown the card, whole, and nothing to decide with. Control: who may decide is.
func TestAViewerSeesACardAndDecidesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newRig(t)
		r.cards = []wire.Card{card("c1")}
		b := r.enrolled(t, w, h)
		b.press("Open an issue")
		b.Sees("Approve once")
		b.Eval(`location.hash = "#pending"`, new(string))
		b.Sees("Waiting for you")
		r.with(func() { r.viewer = true })
		b.press("Open an issue")
		b.Sees("Who may approve decides.")
		b.Sees("It stalls")
		if s := b.Text(); strings.Contains(s, "Approve") || strings.Contains(s, "Deny") {
			t.Errorf("there is something to decide with in\n%s", s)
		}
		fits(t, b)
	})
}

// doing are the buttons and fields that one role has in every view, without those that only look.
func doing(t *testing.T, viewer bool) (out []string) {
	t.Helper()
	r := newViews(t, "")
	r.viewer = viewer
	b := r.enrolled(t, 1280, 900)
	for _, reload := range []bool{false, true} { // sentinel says whose session it is with the sign-in, and when it is asked later
		out = nil
		if reload {
			b.Run(chromedp.Reload())
		}
		for _, v := range views {
			b.goes(v.name, v.heading)
			var has []string
			b.Eval(`[...document.querySelectorAll("#main button, #main select, #main [type=checkbox], #main a.button, #nav a.halt")].filter((e) => !e.disabled &&
				!e.hidden && e.checkVisibility()).map((e) => (e.closest("label") || e).textContent.trim())`, &has)
			for _, h := range has {
				out = append(out, v.name+": "+h)
			}
		}
		fits(t, b)
	}
	return out
}

// A viewer's views have nothing to do with but to look, and to be told. Control: who may approve has each of these.
func TestAViewerHasNothingToDoWith(t *testing.T) {
	yes, no := strings.Join(doing(t, false), "\n"), doing(t, true)
	for _, want := range []string{"pending: Together with others", "pending: Stop", "grants: Take it back", "rules: Save", "rules: Ask every time",
		"sites: Save", "accounts: Use it no more", "cells: Let it count as having read nothing", "cells: Stop it", "sessions: End it",
		"stop: Stop everything", "card=c1: Approve once", "card=c1: Deny", "pending: Seen; do not tell me again"} {
		if !strings.Contains(yes, want) {
			t.Errorf("control: who may approve has no %q in\n%s", want, yes)
		}
	}
	may := []string{"notices: Tell me on this device", "history: Search", "history: Look further back"}
	for _, has := range no {
		if !slices.Contains(may, has) {
			t.Errorf("a viewer has %q", has)
		}
	}
	if !slices.Contains(no, may[0]) {
		t.Errorf("a viewer has no %q: %q", may[0], no)
	}
}

// Who may approve, and has seen that a card waits, says so without opening it.
func TestACardIsDismissed(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newRig(t)
		r.cards = []wire.Card{card("c1"), card("c2")}
		b := r.enrolled(t, w, h)
		b.Eval(`document.querySelector("[data-id='seen c2']").click()`, nil)
		b.Sees("Nobody is told again that this waits")
		if !r.asks("seen", `{"call":"c2"}`) || r.asks("seen", "c1") || r.asks("show") {
			t.Error("not just c2 is dismissed")
		}
		fits(t, b)
	})
}
