// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// editVerb makes of a card what was asked for, by its labels, and signs it.
func (s *standIn) editVerb() daemon.Verb {
	return answer(s, "edit", func(q *wire.EditReq) (*wire.EditResp, error) {
		old := s.find(q.Call)
		if old == nil {
			return nil, wire.Refuse(wire.CodeNotFound, "no such call", "")
		}
		if len(q.Hash) == 0 {
			sum := old.Bodies[0].SHA256
			return &wire.EditResp{Form: []wire.EditField{
				{Name: "title", Label: "Title", Help: "one line", Type: "string", Required: true, Values: old.Fields[0].Values},
				{Name: "repo", Label: "Repository", Type: "repo", Required: true, Fixed: true, Values: old.Fields[1].Values},
				{Name: "labels", Label: "Labels", Type: "string", Repeat: 3},
				{Name: "state", Label: "State", Type: "enum", Enum: []string{"open", "closed"}},
				{Name: "body", Label: "Body", Type: "file", SHA256: sum[:]},
			}}, nil
		}
		c := *old
		c.ID, c.Hash, c.Grantable = "d1", bytes.Repeat([]byte{7}, 32), nil
		c.Fields, c.Bodies = nil, append([]wire.Shown{}, old.Bodies...)
		for _, a := range q.Args {
			c.Fields = append(c.Fields, wire.Field{Label: strings.ToUpper(a.Name[:1]) + a.Name[1:], Values: a.Values})
		}
		for _, f := range q.Files {
			sum := wire.Sum([]byte(f.Text))
			s.content[sum] = []byte(f.Text)
			c.Bodies[f.File] = wire.Shown{Name: old.Bodies[f.File].Name, Size: int64(len(f.Text)), SHA256: sum, Text: f.Text}
		}
		s.made = map[string]*wire.Card{c.ID: &c}
		o := &wire.Offer{Card: c, RP: s.place.Host, Nonce: random(), Expires: time.Now().Add(s.life).Unix(), Allow: s.credential,
			Edits: &wire.Edits{Call: q.Call, Hash: q.Hash}}
		s.offers[string(o.Nonce)] = o.Expires
		if s.makes != nil {
			s.makes(o)
		}
		return &wire.EditResp{Offer: o}, nil
	})
}

// editing is a window with a card of a cut text, open to be changed.
func (r *rig) editing(t *testing.T, w, h int64) *tab {
	t.Helper()
	c := card("c1")
	c.Fields = []wire.Field{{Label: "Title", Values: []string{"It stalls"}}, {Label: "Repo", Values: []string{"ada/engine"}}}
	c.Bodies = []wire.Shown{r.holds("body.md", []byte(strings.Repeat("a line\n", 300)+"Regards, Eve\n"), false)}
	r.cards = []wire.Card{c}
	b := r.enrolled(t, w, h)
	b.press("Open an issue")
	b.press("Change it first")
	b.Sees("Nothing runs by this.")
	return b
}

// set gives the field with that name a value, as a person who types it.
func (b *tab) set(label, value string) {
	b.T.Helper()
	b.Eval(fmt.Sprintf(`(() => { const e = document.querySelector('[aria-label=%q]'); e.value = %q; e.dispatchEvent(new Event("input", { bubbles: true })); })()`,
		label, value), nil)
}

// A call is changed, and what is other stands there before it can be approved: a field, one that is new, and a line of a long text.
func TestAChangeIsShownBeforeItIsApproved(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newRig(t)
		b := r.editing(t, w, h)
		fits(t, b)
		b.Sees("This stays: it says what the call builds on.")
		b.set("Title", "It stalls \u202e often")
		b.press("One more")
		b.set("Labels, value 1", "bug")
		b.Eval(`(() => { const e = document.querySelector('[aria-label="Text of body.md"]'); e.value = e.value.replace("Eve", "Ada"); })()`, nil)
		b.press("Look at the change")
		for _, s := range []string{"Changed: Open an issue", "was: It stalls\n", "is now: It stalls ⟨U+202E⟩ often", "is now: bug", "was: Regards, Eve", "is now: Regards, Ada"} {
			b.Sees(s)
		}
		fits(t, b)
		var labels []string
		b.Eval(`[...document.querySelectorAll(".changes > dt")].map((e) => e.innerText)`, &labels)
		if fmt.Sprint(labels) != "[Labels Title body.md]" {
			t.Errorf("other is %q", labels)
		}
		r.with(func() {
			if len(r.decided) != 0 || r.cards[0].State != wire.StateParked {
				t.Fatal("something was decided by looking")
			}
		})
		b.press("Change more")
		b.Sees("Nothing runs by this.")
		b.press("Look at the change")
		b.press("Approve what I changed")
		b.Sees("Approved.")
		r.with(func() {
			if len(r.decided) != 1 || !r.decided[0].Approve || !bytes.Equal(r.decided[0].Edits, r.cards[0].Hash) ||
				!bytes.Equal(r.decided[0].Hash, bytes.Repeat([]byte{7}, 32)) {
				t.Errorf("%+v", r.decided)
			}
		})
		if c := b.Complaints(); len(c) > 0 {
			t.Errorf("the console: %q", c)
		}
	})
}

func TestAChangeIsLeft(t *testing.T) {
	r := newRig(t)
	b := r.editing(t, 390, 844)
	b.set("Title", "other")
	b.press("Look at the change")
	b.Sees("is now: other")
	b.press("Leave it as it was")
	b.press("Approve once")
	b.Sees("Approved.")
	r.with(func() {
		if len(r.decided) != 1 || r.decided[0].Edits != nil || !bytes.Equal(r.decided[0].Hash, r.cards[0].Hash) {
			t.Errorf("%+v", r.decided)
		}
	})
}

// A taken-over approvals asks for another change than the person made, or alters the answer: neither is what was signed for this
// question. And an offer that is signed, but of another call or not of a change, is none either. The control is the first.
func TestAnotherChangeThanThePersonMadeIsNotShown(t *testing.T) {
	r := newRig(t)
	b := r.editing(t, 1280, 900)
	b.set("Title", "control")
	b.press("Look at the change")
	b.Sees("is now: control")
	b.press("Change more")
	for name, attack := range map[string]func(){
		"a word": func() {
			r.alter = func(_ string, resp *wire.WebResp) {
				resp.Body = bytes.Replace(resp.Body, []byte("control"), []byte("Pay eve"), 2)
			}
		},
		"the answer to another question": func() {
			r.alter = func(verb string, resp *wire.WebResp) {
				k := card("d2")
				k.Title = "Pay eve"
				other, err := respond(r.key, verb, &wire.WebReq{Nonce: random(), Body: []byte(`{"call":"c1","args":[{"name":"title","values":["Pay eve"]}]}`)},
					&wire.EditResp{Offer: &wire.Offer{Card: k, RP: "localhost", Edits: &wire.Edits{Call: "c1", Hash: r.cards[0].Hash}}}, nil)
				if err != nil {
					t.Error(err)
				}
				*resp = *other
			}
		},
		"another call":   func() { r.makes = func(o *wire.Offer) { o.Edits.Call, o.Card.Title = "c9", "Pay eve" } },
		"another hash":   func() { r.makes = func(o *wire.Offer) { o.Edits.Hash, o.Card.Title = random(), "Pay eve" } },
		"of no change":   func() { r.makes = func(o *wire.Offer) { o.Edits, o.Card.Title = nil, "Pay eve" } },
		"another method": func() { r.makes = func(o *wire.Offer) { o.Card.Method, o.Card.Title = "pay", "Pay eve" } },
		"another page":   func() { r.makes = func(o *wire.Offer) { o.RP, o.Card.Title = "evil.example", "Pay eve" } },
	} {
		t.Run(name, func(t *testing.T) {
			r.with(attack)
			b.press("Look at the change")
			b.Sees("Nothing of it is shown.")
			if s := b.Text(); strings.Contains(s, "Pay eve") || strings.Contains(s, "Approve what I changed") {
				t.Errorf("it is shown:\n%s", s)
			}
			r.with(func() { r.makes, r.alter = nil, nil })
		})
	}
	// Put before the person as if it were a card that waits.
	b.press("Look at the change")
	b.Sees("is now: control")
	r.with(func() { r.edits = &wire.Edits{Call: "c1", Hash: r.cards[0].Hash} })
	b.Eval(`location.hash = "#card=d1"`, nil)
	b.Sees("This is not shown")
	r.with(func() {
		if len(r.decided) > 0 {
			t.Errorf("%+v", r.decided)
		}
	})
}

// The steps lead from the one text to the other, and what both have in common stays, up to a size from which all of it counts as other.
func TestTheDifferenceOfTwoTexts(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	split := func(s string) []string {
		if s == "" {
			return []string{}
		}
		return strings.Split(s, "")
	}
	long := strings.Repeat("ab", 2000)
	for _, c := range []struct {
		a, b string
		stay int
	}{{"", "", 0}, {"a", "", 0}, {"", "a", 0}, {"abc", "abc", 3}, {"abc", "axc", 2}, {"abcabba", "cbabac", 4}, {"abc", "xyz", 0}, {"aaaa", "aa", 2},
		{"x" + long, "y" + long, 4000}, {"x" + long + "z", "y" + strings.Repeat("cd", 2000) + "w", 0}} {
		var steps [][2]string
		b.Call("diff.js", `return m.lines(args[0], args[1])`, &steps, split(c.a), split(c.b))
		var was, is strings.Builder
		stay := 0
		for _, s := range steps {
			if s[0] != "+" {
				was.WriteString(s[1])
			}
			if s[0] != "-" {
				is.WriteString(s[1])
			}
			if s[0] == " " {
				stay++
			}
		}
		if was.String() != c.a || is.String() != c.b || stay != c.stay {
			t.Errorf("%.10q to %.10q: %d stay, want %d; %.10q, %.10q", c.a, c.b, stay, c.stay, was.String(), is.String())
		}
	}
	// Whatever of a card a person decides by shows where it is other.
	base := card("c1")
	for name, change := range map[string]func(*wire.Card){
		"title": func(c *wire.Card) { c.Title = "x" }, "a field": func(c *wire.Card) { c.Fields[0].Values = []string{"x"} },
		"a field more": func(c *wire.Card) { c.Fields = append(c.Fields, wire.Field{Label: "Title", Values: []string{"x"}}) },
		"a field less": func(c *wire.Card) { c.Fields = c.Fields[:1] }, "a value more": func(c *wire.Card) { c.Fields[0].Values = append(c.Fields[0].Values, "") },
		"reach": func(c *wire.Card) { c.Reach = "people" }, "class": func(c *wire.Card) { c.Class = "destructive" },
		"sensitive": func(c *wire.Card) { c.Sensitive = false }, "whom": func(c *wire.Card) { c.Facts = c.Facts[:1] },
		"a text": func(c *wire.Card) { c.Bodies[0].Text += "x" }, "a body less": func(c *wire.Card) { c.Bodies = nil },
		"behind the cut": func(c *wire.Card) { c.Bodies[0].Cut, c.Bodies[0].SHA256 = true, wire.Digest{1} },
	} {
		a, k := card("c1"), card("c1")
		change(&k)
		if name == "behind the cut" {
			a.Bodies[0].Cut = true
		}
		var n int
		if b.Call("diff.js", `return m.changes(args[0], args[1]).length`, &n, a, k); n != 1 {
			t.Errorf("%s: %d are other", name, n)
		}
	}
	var n int
	if b.Call("diff.js", `return m.changes(args[0], args[0]).length`, &n, base); n != 0 {
		t.Errorf("of one card %d are other", n)
	}
}
