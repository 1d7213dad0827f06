// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// News comes by itself, and what was decided elsewhere is not left open to be decided here.
func TestNewsComesByItself(t *testing.T) {
	r := newRig(t)
	b := r.enrolled(t, 1280, 900)
	b.Sees("Nothing waits.")
	r.with(func() { r.cards = []wire.Card{card("c1")} })
	r.tell(wire.Event{ID: "c1", State: wire.StateParked})
	b.Sees("Something new waits for you.")
	b.press("Open an issue")
	b.Sees("Approve once")
	asked := func() (n int) {
		r.with(func() {
			for _, a := range r.asked {
				if strings.HasPrefix(a, "show ") {
					n++
				}
			}
		})
		return n
	}
	before := asked()
	r.tell(wire.Event{ID: "c1", State: wire.StateDenied}) // which is not so
	for asked() == before {
		time.Sleep(10 * time.Millisecond)
	}
	r.with(func() { r.cards[0].State = wire.StateDone })
	r.tell(wire.Event{ID: "c1", State: wire.StateDenied})
	b.Sees("What you have open is done now.") // as sentinel says, not the stream
	if strings.Contains(b.Text(), "Approve once") {
		t.Error("it can still be decided")
	}
}

// What happens before the stream stands is told by nobody: it is asked for when the stream stands. Here that is held up until a card
// came, and another that is open was decided.
func TestNothingIsLostBeforeTheStreamStands(t *testing.T) {
	for _, open := range []bool{false, true} {
		r := newRig(t)
		stall := make(chan struct{})
		r.stall = map[string]chan struct{}{"events": stall}
		r.cards = []wire.Card{card("c1")}
		b := r.enrolled(t, 1280, 900)
		b.Sees("Open an issue")
		if open {
			b.press("Open an issue")
			b.Sees("Approve once")
		}
		r.with(func() {
			other := card("c2")
			other.Title = "Open another"
			r.cards = append(r.cards, other)
			r.cards[0].State = wire.StateDenied
		})
		r.tell(wire.Event{ID: "c2", State: wire.StateParked})
		r.tell(wire.Event{ID: "c1", State: wire.StateDenied})
		if strings.Contains(b.Text(), "Open another") || open && !strings.Contains(b.Text(), "Approve once") {
			t.Error("control: it is known before anybody told")
		}
		close(stall)
		if open {
			b.Sees("What you have open is denied now.")
		} else {
			b.Sees("Open another")
		}
	}
}

// What is new is told of also where more waits than is listed, and how much waits.
func TestNewsBeyondTheList(t *testing.T) {
	r := newRig(t)
	add := func(n int) {
		r.with(func() {
			for range n {
				r.cards = append(r.cards, card(fmt.Sprintf("c%03d", len(r.cards))))
			}
		})
	}
	add(60)
	b := r.enrolled(t, 390, 844)
	b.Sees("60 wait; these are the oldest.")
	var rows, badge int
	b.Eval(`document.querySelectorAll("main a[href^='#card=']").length`, &rows)
	b.Eval(`Number(document.getElementById("waiting").textContent)`, &badge)
	if rows != 50 || badge != 60 || strings.Contains(b.Text(), "Something new") {
		t.Errorf("%d rows, %d wait: %s", rows, badge, b.Text())
	}
	add(1)
	r.tell(wire.Event{ID: "c060", State: wire.StateParked})
	b.Sees("Something new waits for you.")
	b.Sees("61 wait; these are the oldest.")
}

// A stream that is refused is asked for again until it stands, and no longer than the session lasts.
func TestTheStreamComesBackUntilTheSessionIsOver(t *testing.T) {
	r := newRig(t)
	r.broken = true
	b := r.enrolled(t, 1280, 900)
	b.Sees("Nothing waits.")
	b.Until(`performance.getEntriesByType("resource").filter((e) => e.name.includes("/v1/events")).length > 1`, "it is asked for again")
	r.with(func() { r.broken, r.cards = false, []wire.Card{card("c1")} })
	b.Sees("Something new waits for you.")
	r.with(func() { r.session = nil })
	r.tell(wire.Event{}) // which wakes the stream
	b.Sees("Sign in with a passkey")
}
