// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// viewVerbs are those of the further views. What they show is theirs to set before a window is opened.
func (s *standIn) viewVerbs() []daemon.Verb {
	return []daemon.Verb{
		answer(s, "accounts", func(*wire.ListFrom) (*wire.AccountsView, error) { return &s.views.accounts, nil }),
		answer(s, "settings", func(q *wire.SettingsReq) (*wire.SettingsView, error) {
			r := s.views.settings
			if len(q.Lines) == 0 {
				return &r, nil
			}
			if q.From != r.Policy {
				return nil, wire.Refuse(wire.CodeConflict, "another policy is in force", "")
			}
			for _, l := range q.Lines {
				switch l.Value {
				case "dont-ask":
					r.Card, r.Lines = "w1", []string{"widens: x"}
					return &r, nil
				case "read":
					r.Problems = []string{"policy.toml:3:1: an address cannot be read"}
					return &r, nil
				}
			}
			r.Policy += "'"
			s.views.settings = r
			return &r, nil
		}),
		answer(s, "labels", func(*wire.ListFrom) (*wire.LabelsView, error) { return &s.views.labels, nil }),
		answer(s, "taint", func(q *wire.TaintReq) (*wire.TaintResp, error) { return &wire.TaintResp{Widening: "w1"}, nil }),
		answer(s, "find", func(q *wire.FindReq) (*wire.FindResp, error) {
			r := &wire.FindResp{Looked: 4000, Back: 1900000000}
			for _, c := range s.views.past {
				if (q.State == "" || q.State == c.State) && strings.Contains(strings.ToLower(c.Title), strings.ToLower(q.Words)) && (q.Before == "" || c.ID < q.Before) {
					if len(r.Cards) == 2 {
						r.Next = r.Cards[1].ID
						break
					}
					r.Cards = append(r.Cards, c)
				}
			}
			return r, nil
		}),
	}
}

type viewData struct {
	accounts wire.AccountsView
	settings wire.SettingsView
	labels   wire.LabelsView
	past     []wire.Card
	grants   []wire.Grant
}

// someViews are views with something of everything in them; say is put where others choose the words.
func someViews(say string) viewData {
	day := time.Now().Add(-24 * time.Hour).Unix()
	past := func(id, title string, state wire.State) wire.Card {
		c := card(id)
		c.Title, c.State, c.Bodies, c.Made, c.Alike = title+say, state, nil, day, 0
		c.Became = &wire.Became{Unix: day, By: "passkey:ada" + say, Object: "ada/engine#4" + say}
		return c
	}
	done := past("p4", "Open an issue", wire.StateDone)
	done.Became.Link = "https://github.com/ada/engine/issues/4"
	denied := past("p3", "Invite people to lunch", wire.StateDenied)
	denied.Became.Object, denied.Became.By = "", ""
	denied.Err = wire.Refuse(wire.CodeDenied, "not today"+say, "")
	lying := past("p2", "Comment", wire.StateDone)
	lying.Became.Link = "javascript:alert(1)"
	return viewData{
		accounts: wire.AccountsView{Health: []string{"stopped: play" + say}, Accounts: []wire.AccountView{
			{Name: "home", Vendor: "dav", Title: "Calendar and contacts", At: "https://dav.example.org:443/", Owner: "ada@example.org" + say, Since: day, Used: 1},
			{Name: "work", Vendor: "github", Title: "GitHub", At: "https://api.github.com:443", Health: wire.CodeReconnectRequired, Scopes: []string{"issues" + say, "contents"}},
			{Name: "fresh", Vendor: "github", Title: "GitHub", At: "https://api.github.com:443", Health: wire.CodeNotConnected, Card: "c1"}}},
		settings: wire.SettingsView{Policy: "p", Card: "c1", Notes: []string{"policy.toml:7:1: github gist-create = \"off\"" + say},
			Connectors: []wire.ConnectorSetting{
				{Name: "dav", Title: "Calendar and contacts", Now: "ask-before-changes", Methods: []wire.MethodSetting{
					{Name: "event-create", Summary: "put an event into a calendar" + say, Class: "write", Now: "ask", Asks: "what reaches named people"},
					{Name: "event-delete", Summary: "delete an event", Class: "destructive", Now: "ask", Asks: "all"},
					{Name: "events", Summary: "list events", Class: "read", Now: "allow"}}},
				{Name: "github", Title: "GitHub", Said: "dont-ask", Now: "ask-before-changes", Methods: []wire.MethodSetting{
					{Name: "gist-create", Summary: "make a gist", Class: "write", Said: "off", Now: "off", Held: "limits.toml:4 gist-create = \"off\"" + say},
					{Name: "issue-create", Summary: "open an issue", Class: "write", Said: "ask", Now: "ask"}}}},
			Sites: []wire.SiteSetting{{Site: "example.org" + say, Said: "allow"}, {Site: "*.example.org", Said: "ask", Held: "held back to ask by limits.toml:3" + say},
				{Site: "debian", Set: true, Said: "read"}, {Site: "*", Said: "ask"}},
			Denied: []wire.DeniedSite{{Cell: "work" + say, Site: "evil.example:443" + say, Card: "p3", Until: time.Now().Add(20 * time.Hour).Unix()}}},
		labels: wire.LabelsView{Cells: []wire.CellLabels{{Cell: "work" + say, Runs: true, Labels: []wire.Cause{{Label: "untrusted", Why: "github issue-list, call c0" + say, Unix: day},
			{Label: "private", Why: "dav events, call c9", Unix: day}}}, {Cell: "play", Stopped: true}}},
		past: []wire.Card{done, denied, lying, past("p1", "Open an older issue", wire.StateExpired)},
		grants: []wire.Grant{
			{ID: "g1", Connector: "github", Method: "issue-create", Cell: "work", Kind: "until", Until: time.Now().Add(time.Hour).Unix(), Used: 2, Count: 5, LastUse: day,
				Sentence: "cell work may issue-create with github" + say, By: "passkey:ada", Made: day, Limits: []wire.Limit{{Field: "repo", Values: []string{"ada/engine" + say}}, {Field: "amount", Max: 3}}},
			{ID: "g2", Connector: "site", Method: "connect", Account: "docs.example:443", Cell: "work", Kind: "session", Session: "run-1",
				Sentence: "programs of cell work may connect to docs.example:443", By: "passkey:ada", Made: day}},
	}
}

var views = []struct{ name, heading string }{
	{"pending", "Waiting for you"}, {"history", "Past"}, {"grants", "Allowed ahead"}, {"rules", "Rules"}, {"sites", "Sites"}, {"accounts", "Accounts"},
	{"cells", "Cells"}, {"notices", "Notices"}, {"sessions", "Sessions"}, {"stop", "Stop"}, {"card=c1", "Open an issue"}, {"card=p4", "Open an issue"},
}

// goes opens a view and waits for its heading.
func (b *tab) goes(fragment, heading string) {
	b.T.Helper()
	b.Eval(fmt.Sprintf(`location.hash = %q`, "#"+fragment), nil)
	b.Until(fmt.Sprintf(`document.querySelector("h1")?.textContent === %q`, heading), heading+" is open")
}

func newViews(t *testing.T, say string) *rig {
	t.Helper()
	r := newRig(t)
	r.views = someViews(say)
	site := wire.Card{ID: "c2", Kind: "widening", State: wire.StateParked, Method: "site", Title: "connect to files.example:443" + say, Cell: "work",
		Fields: []wire.Field{{Label: "Site", Values: []string{"files.example:443"}, Main: true}}, Hash: make([]byte, 32), Made: time.Now().Unix(),
		Expires: time.Now().Add(time.Hour).Unix()}
	r.cards = append([]wire.Card{card("c1"), site}, r.views.past...)
	return r
}

// asks says whether a request went out that has all of these in it.
func (r *rig) asks(parts ...string) (yes bool) {
	r.with(func() {
		yes = slices.ContainsFunc(r.asked, func(a string) bool {
			return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(a, p) })
		})
	})
	return yes
}

func TestAccountsSayWhatTheyNeed(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newViews(t, "")
		b := r.enrolled(t, w, h)
		b.press("Accounts")
		for _, s := range []string{"stopped: play", "Calendar and contacts at https://dav.example.org:443/, of ada@example.org", "The vendor refused its credential.",
			"Nobody has decided on it yet."} {
			b.Sees(s)
		}
		fits(t, b)
		b.press("Decide on it")
		b.Sees("Approve once")
		b.press("Accounts")
		b.press("Use it no more")
		b.Sees("is revoked")
		if !r.asks(`revoke {"account":"home"}`) {
			t.Errorf("%q", r.asked)
		}
	})
}

func choose(b *tab, label, value string) {
	b.T.Helper()
	b.Until(fmt.Sprintf(`(() => { const e = document.querySelector('select[aria-label=%q]:not(:disabled)'); if (!e) return false; e.value = %q;
		return e.value === %q; })()`, label, value, value), label+" can be "+value)
}

// What narrows is saved; what widens leads to its card; what is wrong is said; and of all settings only those that were changed are sent.
func TestRulesAreChangedWithinTheSession(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newViews(t, "")
		b := r.enrolled(t, w, h)
		b.press("Rules")
		b.Sees("The admin's limits hold it at ask-before-changes.")
		b.press("3 methods")
		b.Sees("delete an event. Always asks.")
		b.Sees("Always asks: what reaches named people.")
		fits(t, b)
		b.press("Save")
		b.Sees("Nothing is changed.")
		choose(b, "dav event-create", "off")
		b.press("Save")
		b.Sees("Saved. It is in force.")
		if !r.asks(`settings {"from":"p","lines":[{"connector":"dav","method":"event-create","value":"off"}]}`) {
			t.Errorf("%q", r.asked)
		}
		choose(b, "dav: all of it", "dont-ask")
		b.press("Save")
		b.Sees("so it waits for your decision")
		b.Until(`location.hash === "#card=w1"`, "the card is open")
		b.press("Sites")
		choose(b, "*.example.org", "read")
		b.press("Save")
		b.Sees("an address cannot be read")
		b.Eval(`document.getElementById("site").value = " new.example "`, nil)
		choose(b, "*.example.org", "ask")
		choose(b, "example.org", "")
		b.press("Save")
		b.Sees("Saved. It is in force.")
		if !r.asks(`settings {"from":"p'","lines":[{"site":"example.org","value":""},{"site":"new.example","value":"ask"}]}`) {
			t.Errorf("%q", r.asked)
		}
	})
}

func TestSitesAreThoseThatWaitAreAllowedAndRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newViews(t, "")
		b := r.enrolled(t, w, h)
		b.press("Sites")
		for _, s := range []string{"connect to files.example:443", "programs of cell work may connect to docs.example:443", "a named set, from policy.toml",
			"held back to ask by limits.toml:3", "evil.example:443", "it may ask again in 20 hours"} {
			b.Sees(s)
		}
		if strings.Contains(b.Text(), "issue-create") {
			t.Error("a grant of something else is among the sites")
		}
		fits(t, b)
		b.press("Take it back")
		b.Sees("grant g2 is revoked")
	})
}

func TestCellsSayWhatTheyHaveRead(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newViews(t, "")
		b := r.enrolled(t, w, h)
		b.press("Cells")
		b.Sees("github issue-list, call c0")
		b.Sees("It has read nothing of others, and nothing private.")
		fits(t, b)
		b.press("Let it count as having read nothing")
		b.Until(`location.hash === "#card=w1"`, "the card is open")
		if !r.asks(`taint {"cell":"work","clear":true}`) {
			t.Errorf("%q", r.asked)
		}
	})
}

func TestThePastIsSearched(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newViews(t, "")
		b := r.enrolled(t, w, h)
		b.press("Past")
		b.Sees("Approved by ada, with a passkey")
		b.Sees("At the vendor: ada/engine#4 (github.com)")
		b.Sees("not today")
		b.Sees("4000 calls were looked at, back to")
		fits(t, b)
		b.press("Look further back")
		b.Sees("Open an older issue")
		b.Sees("8000 calls were looked at: that is all of them.")
		var links []string
		b.Eval(`[...document.querySelectorAll("main a")].map((a) => a.href).filter((h) => !h.startsWith(location.origin))`, &links)
		if fmt.Sprint(links) != "[https://github.com/ada/engine/issues/4]" {
			t.Errorf("links out of the page: %q", links)
		}
		b.Eval(`document.getElementById("words").value = "LUNCH"`, nil)
		b.press("Only some")
		b.Eval(`(() => { document.getElementById("state").value = "denied"; document.getElementById("from").value = "2026-01-02"; })()`, nil)
		b.press("Search")
		b.Until(`document.querySelectorAll("main ul.plain > li").length === 1`, "one is found")
		b.Sees("Invite people to lunch")
		if !r.asks(`"words":"LUNCH"`, `"state":"denied"`, `"from":17`) {
			t.Errorf("%q", r.asked)
		}
		b.press("The record, entry by entry")
		b.Sees("approve")
		b.press("Invite people to lunch")
		b.Sees("It does not run, and the agent is told so. There is nothing to decide any more.")
		b.Eval(`history.back()`, nil)
		b.Sees("4000 calls were looked at: that is all of them.")
	})
}

// A card that is past says what became of it.
func TestAPastCardSaysWhatBecameOfIt(t *testing.T) {
	r := newViews(t, "")
	b := r.enrolled(t, 390, 844)
	b.goes("card=p4", "Open an issue")
	b.Sees("This is done, since")
	b.Sees("Approved by ada, with a passkey")
	b.Sees("At the vendor: ada/engine#4 (github.com)")
	b.goes("card=p2", "Comment")
	b.Sees("At the vendor: ada/engine#4")
	var links float64
	if b.Eval(`document.querySelectorAll("main a[target]").length`, &links); links != 0 {
		t.Error("a script is a link")
	}
}

// In every view what others wrote is text, and the window is wide enough for it.
func TestNoViewIsMarkup(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newViews(t, "<img src=x onerror=\"window.ran=1\"><script>window.ran=1</script>\"'&lt;\u202e"+strings.Repeat("x", 300))
		b := r.enrolled(t, w, h)
		for _, v := range views {
			b.Eval(fmt.Sprintf(`location.hash = %q`, "#"+v.name), nil)
			b.Until(fmt.Sprintf(`document.querySelector("h1")?.textContent.startsWith(%q)`, v.heading), v.heading)
			b.Eval(`document.querySelectorAll("main details").forEach((d) => { d.open = true; })`, nil)
			fits(t, b)
			if s := b.Text(); strings.Contains(s, "[object") || strings.Contains(s, "undefined") {
				t.Errorf("%s: what is no text stands in\n%s", v.name, s)
			}
			var ran float64
			if b.Eval(`Number(window.ran || 0) + document.querySelectorAll("main img, main script").length`, &ran); ran != 0 {
				t.Errorf("%s: it is markup", v.name)
			}
		}
		if c := b.Complaints(); len(c) > 0 {
			t.Errorf("the console: %q", c)
		}
	})
}

// Every view can be reached and left by the keyboard, on a phone too, and the focus is always to be seen.
func TestTheViewsByKeyboard(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newViews(t, "")
		b := r.enrolled(t, w, h)
		for _, v := range views[:10] {
			b.goes(v.name, v.heading)
			seen := 0
			for ; seen < 200; seen++ { // to the end
				b.Key("\t")
				var at struct {
					Name, Outline string
					Body, Within  bool
				}
				b.Eval(`(() => { const e = document.activeElement; const s = getComputedStyle(e); const b = e.getBoundingClientRect();
					return { name: e.tagName + " " + (e.getAttribute("aria-label") || e.textContent || e.id).trim(), body: e === document.body,
						outline: s.outlineStyle, within: e.checkVisibility() && b.width > 0 && b.right > 0 && b.left < innerWidth }; })()`, &at)
				if at.Body {
					break
				}
				if (at.Outline == "none" && !strings.HasPrefix(at.Name, "H1 ")) || !at.Within { // a heading gets it when a list is there anew
					t.Errorf("%s: the focus is on %q, and not to be seen", v.name, at.Name)
				}
			}
			var all int
			b.Eval(`[...document.querySelectorAll("main :is(a, button, input, select, summary)")].filter((e) => e.checkVisibility()).length`, &all)
			if seen < all || all == 0 || seen == 200 {
				t.Errorf("%s: the focus was on %d things; there are %d", v.name, seen, all)
			}
		}
		b.goes("pending", "Waiting for you")
		b.Eval(`document.getElementById("skip").focus()`, nil)
		b.Key("\r")
		b.Until(`document.activeElement.id === "main" && document.querySelector("h1").textContent === "Waiting for you"`, "the content has the focus")
		if w < 600 {
			b.Eval(`document.getElementById("more").focus()`, nil)
			b.Key("\r")
			b.Until(`document.getElementById("rest").checkVisibility() && document.getElementById("more").getAttribute("aria-expanded") === "true"`, "the rest is open")
			b.Key("\u001b")
			b.Until(`!document.getElementById("rest").checkVisibility() && document.activeElement.id === "more"`, "the rest is closed")
		}
	})
}

// With DOORWARD_SHOTS each view is left there as a picture, in both sizes and schemes.
func TestPicturesOfTheViews(t *testing.T) {
	dir := os.Getenv("DOORWARD_SHOTS")
	if dir == "" {
		t.Skip("DOORWARD_SHOTS names no folder for them")
	}
	for size, s := range sizes {
		r := newViews(t, "")
		b := r.open(t, s[0], s[1], r.link())
		b.Sees("Make a passkey")
		shot := func(name string) {
			for _, scheme := range []string{"light", "dark"} {
				b.Scheme(scheme)
				if err := os.WriteFile(filepath.Join(dir, name+"-"+size+"-"+scheme+".png"), b.Picture(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		shot("enrol")
		b.press("Make a passkey")
		b.Sees("Sign in with a passkey")
		shot("signin")
		b.press("Sign in with a passkey")
		b.Sees("Waiting for you")
		for i, v := range views {
			b.goes(v.name, v.heading)
			shot(fmt.Sprintf("%02d-%s", i, v.heading))
		}
	}
}
