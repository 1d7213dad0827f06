// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// three has two calls that are alike, and one that is not.
func (r *rig) three() {
	for i, title := range []string{"Open the first", "Open the second", "Pay"} {
		c := card("c" + string(rune('1'+i)))
		c.Title, c.Hash = title, bytes.Repeat([]byte{byte(i + 1)}, 32)
		c.Fields = []wire.Field{{Label: "Repository", Values: []string{"ada/" + c.ID}, Main: true}, {Label: "Title", Values: []string{"of " + c.ID}}}
		if title == "Pay" {
			c.Method = "pay"
		}
		r.cards = append(r.cards, c)
	}
}

// Several are opened, shown, and decided by one passkey's answer, each by itself: of one that was decided meanwhile it is said.
func TestSeveralAreDecidedTogether(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newRig(t)
		r.three()
		b := r.enrolled(t, w, h)
		b.Sees("Tick these 2, which are alike")
		fits(t, b)
		if strings.Contains(b.Text(), "Decide on") {
			t.Error("there is something to decide on before anything is ticked")
		}
		b.press("Tick these 2, which are alike")
		b.press("Decide on 2 together")
		for _, s := range []string{"Decide on 2 together", "Open the first", "ada/c1", "first time you write to ada/engine", "Open the second", "ada/c2", "Anyone may see it."} {
			b.Sees(s)
		}
		if s := b.Text(); strings.Contains(s, "Pay") || strings.Contains(s, "of c1") {
			t.Errorf("more is shown than was ticked:\n%s", s)
		}
		fits(t, b)
		r.with(func() { r.cards[1].State = wire.StateDenied })
		b.press("Approve those ticked, once each")
		b.Sees("Approved.")
		b.Sees("it was decided already")
		fits(t, b)
		r.with(func() {
			if len(r.decided) != 1 || !bytes.Equal(r.decided[0].Hash, r.cards[0].Hash) {
				t.Errorf("%+v", r.decided)
			}
			if n := strings.Count(strings.Join(r.asked, "\n"), "decide {"); n != 1 {
				t.Errorf("%d answers of the passkey", n)
			}
		})
		if c := b.Complaints(); len(c) > 0 {
			t.Errorf("the console: %q", c)
		}
	})
}

// What cannot be shown is not among what is signed, and neither is what a person takes the tick from.
func TestOnlyWhatIsShownAndTickedIsSigned(t *testing.T) {
	r := newRig(t)
	r.three()
	b := r.enrolled(t, 1280, 900)
	r.with(func() {
		r.alter = func(_ string, resp *wire.WebResp) {
			resp.Body = bytes.Replace(resp.Body, []byte("ada/c2"), []byte("eve/c2"), 1)
		}
	})
	b.Eval(`location.hash = "#review=c1,c2,c3,c1"`, nil)
	b.Sees("Decide on 2 together")
	b.Sees("One that is not shown")
	if s := b.Text(); strings.Contains(s, "eve/c2") || strings.Contains(s, "Open the second") {
		t.Errorf("it is shown:\n%s", s)
	}
	b.Eval(`document.querySelectorAll("main input[type=checkbox]")[1].click()`, nil)
	b.Eval(`(() => { const e = document.getElementById("why"); e.value = "not now"; })()`, nil)
	b.press("Deny those ticked")
	b.Sees("Denied.")
	r.with(func() {
		if len(r.decided) != 1 || !bytes.Equal(r.decided[0].Hash, r.cards[0].Hash) || r.decided[0].Approve || r.decided[0].Why != "not now" {
			t.Errorf("%+v", r.decided)
		}
	})
	b.press("Deny those ticked")
	b.Sees("None is ticked.")
}

// What a widening allows stands in its lines, whatever its fields say: it is on the screen before it is signed among others, and so is
// what else a call's card says beside its fields.
func TestAWideningAmongSeveralIsShownWhole(t *testing.T) {
	r := newRig(t)
	r.three()
	r.cards[1] = wire.Card{ID: "c2", Kind: "widening", State: wire.StateParked, Method: "policy", Title: "a policy that allows more",
		Hash: bytes.Repeat([]byte{2}, 32), Expires: r.cards[0].Expires, Fields: []wire.Field{{Label: "policy", Values: []string{"policy.toml"}, Main: true}},
		Facts: []string{"widens: demo send goes unasked"}}
	r.cards[0].Facts = append(r.cards[0].Facts, "it goes to somebody outside")
	r.cards[0].Labels = []wire.Cause{{Label: "untrusted", Why: "an issue of a stranger"}}
	b := r.enrolled(t, 1280, 900)
	b.Eval(`location.hash = "#review=c1,c2"`, nil)
	b.Sees("Decide on 2 together")
	for _, s := range []string{"widens: demo send goes unasked", "it goes to somebody outside", "an issue of a stranger"} {
		b.Sees(s)
	}
	if strings.Contains(b.Text(), "of c1") { // control: what is folded would not be found
		t.Error("a call's other fields are open")
	}
}
