// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/internal/wire/wiretest"
)

// evils are what somebody would have in every field: markup, an address that is a script, and characters that are not seen or that
// reorder what is. Each has the field's path in it, so that it is known where it stands.
var evils = map[string]func(path string) string{
	"markup": func(path string) string {
		return "q" + path + "<img src=x onerror=\"window.ran=1\"><script>window.ran=1</script>\"'&lt;\r\nX: y"
	},
	"addresses": func(path string) string { return "javascript:window.ran=1//q" + path },
	"odd": func(path string) string {
		return "q" + path + "\u202e\u200b\u2066\u00ad\ufeff\u0007\u001b[2J\U000e0041end"
	},
	"long":  func(path string) string { return "q" + path + strings.Repeat("W", 300) },
	"words": func(path string) string { return "q" + path + strings.Repeat(" a long word", 30) },
}

// raw finds odd characters that stand as they are in what a person is shown or a screen reader reads, elements that no view makes, and
// what makes a page scroll sideways.
const raw = `(() => {
	const odd = /[\u202a-\u202e\u2066-\u2069\u200b-\u200f\u00ad\ufeff\u0007\u001b]|\u{e0041}/u;
	const found = [];
	const note = (what, text) => found.push(what + ": " + JSON.stringify(text.slice(0, 160)));
	if (odd.test(document.title)) note("title", document.title);
	for (const e of document.querySelectorAll("body, body *")) {
		if (/^(IMG|SCRIPT|IFRAME|OBJECT|EMBED|STYLE|LINK|META|BASE)$/.test(e.tagName) && e.getAttribute("src") !== "/icon.svg") note("element", e.outerHTML);
		for (const a of e.attributes) {
			if (/^on/.test(a.name)) note("listener", e.outerHTML);
			if (/^(title|alt|label|placeholder|aria-.*)$/.test(a.name) && odd.test(a.value)) note(a.name, a.value);
		}
		for (const n of e.childNodes) if (n.nodeType === 3 && odd.test(n.data)) note("text in " + (e.parentElement?.tagName || "") + " " + e.tagName, n.data);
		if (e.tagName === "A" && !/^(#|https:\/\/)/.test(e.getAttribute("href") || "")) note("link", e.outerHTML);
	}
	if (window.ran) note("script", "it ran");
	const root = document.documentElement;
	if (root.scrollWidth > root.clientWidth) {
		for (const e of document.querySelectorAll("body *")) {
			if (e.getBoundingClientRect().right > root.clientWidth + 1) note("wider than the screen", e.outerHTML);
		}
		note("wide", root.scrollWidth + " of " + root.clientWidth);
	}
	return found;
})()`

// What others wrote is text, in every field of every message that a view is made of, and what cannot be seen in it is made visible.
// The messages are filled as package wire declares them.
func TestNoFieldIsMarkup(t *testing.T) {
	for kind, evil := range evils {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t)
			b := r.enrolled(t, 390, 844)
			c := filled(evil)
			line, err := json.Marshal(map[string]any{"n": 1, "time": "2030-01-01T00:00:00Z", "type": evil("type"), "actor": evil("actor"),
				"cell": evil("cell"), "session": evil("session"), "call": evil("call"), "subject": evil("subject"),
				"details": map[string]any{evil("key"): []any{evil("value"), map[string]string{evil("k"): evil("v")}}}})
			if err != nil {
				t.Fatal(err)
			}
			r.with(func() {
				r.cards = []wire.Card{c}
				r.spoil = func(resp any) {
					switch m := resp.(type) {
					case *wire.Offer, *wire.LoginResp, *wire.EnrolResp, *wire.WebDecided: // of one that is filled already, or no view is made of it
					case *wire.AuditResp:
						m.Lines = [][]byte{line, line}
					default:
						wiretest.Fill(resp, time.Now().Unix(), evil)
						once(m)
					}
				}
			})
			var views []string
			b.Eval(`[...document.querySelectorAll("nav a")].map((a) => a.hash)`, &views)
			card, _ := json.Marshal(c.ID)
			views = append(views, "#card="+string(card))
			for _, view := range views {
				b.Eval(`document.querySelector("main").replaceChildren()`, nil)
				if name, id, ok := strings.Cut(view, "="); ok {
					b.Eval(fmt.Sprintf(`location.hash = %q + encodeURIComponent(%s)`, name+"=", id), nil)
				} else {
					b.Eval(fmt.Sprintf(`(location.hash = "#none", location.hash = %q)`, view), nil)
				}
				b.Until(`Boolean(document.querySelector("main h1"))`, view+" is shown")
				var has bool
				if b.Eval(`/q([A-Z]|type)/.test(document.querySelector("main").textContent)`, &has); !has && view != "#notices" { // which is of this browser
					t.Errorf("%s shows none of the fields", view)
				}
				b.Until(`(() => { const shut = [...document.querySelectorAll("details:not([open])")]; shut.forEach((d) => { d.open = true; }); return !shut.length; })()`,
					"all is open")
				var found []string
				if b.Eval(raw, &found); len(found) > 0 {
					t.Errorf("%s: %s", view, strings.Join(found, "\n"))
				}
			}
			if c := b.Complaints(); len(c) > 0 {
				t.Errorf("the console: %q", c)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		b := newRig(t).enrolled(t, 390, 844)
		var found []string
		b.Eval(`(() => { const i = document.createElement("img"); i.title = "\u202e"; document.body.append(i, "a\u200bb"); })()`, nil)
		if b.Eval(raw, &found); len(found) != 3 {
			t.Errorf("of three faults these are found: %q", found)
		}
		b.Eval(`(() => { const p = document.createElement("p"); document.body.append(p);
			p.textContent = "W".repeat(300); p.style.whiteSpace = "nowrap"; p.style.overflowWrap = "normal"; })()`, nil)
		if b.Eval(raw, &found); len(found) != 4 {
			t.Errorf("of these and a wide one these are found: %q", found)
		}
	})
}

// filled is a card that waits, with all else of it evil.
func filled(evil func(string) string) wire.Card {
	var c wire.Card
	wiretest.Fill(&c, time.Now().Add(time.Hour).Unix(), func(p string) string { return evil("Card." + p) })
	c.State, c.Kind = wire.StateParked, "call"
	return c
}

// once ends a list: its next page is none.
func once(v any) {
	switch m := v.(type) {
	case *wire.PendingResp:
		m.Next = ""
	case *wire.GrantsResp:
		m.Next, m.Grants[0].Revoked, m.Grants[1].Revoked = "", 0, 0
	case *wire.SessionResp:
		m.Next = ""
	}
}
