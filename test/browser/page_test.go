// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/visible"
	"github.com/doorward/doorward/internal/wire"
)

// sizes are those that the page has to be good at.
var sizes = map[string][2]int64{"desktop": {1280, 900}, "phone": {390, 844}}

func onBoth(t *testing.T, f func(t *testing.T, width, height int64)) {
	for name, s := range sizes {
		t.Run(name, func(t *testing.T) { f(t, s[0], s[1]) })
	}
}

func TestThePageLoadsUnderItsPolicy(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newRig(t)
		b := r.keyed(t, w, h)
		fits(t, b)
		if c := b.Complaints(); len(c) > 0 {
			t.Errorf("the console: %q", c)
		}
		// What the policy forbids does not happen, and the console says so: else nobody would hear of it above.
		var ran bool
		b.Eval(`(() => { const s = document.createElement("script"); try { s.text = "window.ran = true"; } catch { }
			document.head.append(s); const l = document.createElement("div");
			try { l.innerHTML = "<img src=x onerror='window.ran = true'>"; document.body.append(l); } catch { }
			return fetch("http://localhost:1/").catch(() => Boolean(window.ran)); })()`, &ran)
		if ran {
			t.Error("a script of another's making runs")
		}
		if len(b.Complaints()) == 0 {
			t.Error("control: the console says nothing of what was forbidden")
		}
	})
}

// fits holds the page to the width of the window.
func fits(t *testing.T, b *tab) {
	t.Helper()
	var wide float64
	b.Eval(`document.documentElement.scrollWidth - window.innerWidth`, &wide)
	if wide > 0 {
		t.Errorf("the page is %v pixels wider than the window:\n%s", wide, b.Text())
	}
}

// The name of a script's error type is part of what the page goes by.
const refused = `try { await m.%s; return "taken"; } catch (e) { return e instanceof m.Refused ? "refused" : "fault " + e; }`

// The script takes what sentinel answered to its very question, and nothing else.
func TestAnAlteredAnswerIsRefusedByTheScript(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	type heard struct {
		Verb        string
		Nonce, Body []byte
		Refused     bool
		Answer, Sig []byte
	}
	nonce, body := random(), []byte(`{"call":"c1"}`)
	said := func(key *ecdsa.PrivateKey, verb string, err error) *heard {
		a, e := respond(key, verb, &wire.WebReq{Nonce: nonce, Body: body}, card("c1"), err)
		if e != nil {
			t.Fatal(e)
		}
		return &heard{verb, nonce, body, err != nil, a.Body, a.Signature}
	}
	for _, c := range []struct {
		name   string
		change func(*heard)
		want   string
	}{
		{"as it was signed", func(*heard) {}, "taken"},
		{"a refusal as it was signed", func(h *heard) { *h = *said(r.key, "show", notSignedIn) }, "taken"},
		{"one word is another", func(h *heard) { h.Answer = bytes.Replace(h.Answer, []byte("ada/engine"), []byte("eve/engine"), 1) }, "refused"},
		{"one byte more", func(h *heard) { h.Answer = append(h.Answer, ' ') }, "refused"},
		{"a short signature", func(h *heard) { h.Sig = h.Sig[:63] }, "refused"},
		{"a signature of zeros", func(h *heard) { h.Sig = make([]byte, 64) }, "refused"},
		{"no signature", func(h *heard) { h.Sig = nil }, "refused"},
		{"by another key", func(h *heard) { *h = *said(other, "show", nil) }, "refused"},
		{"to another verb", func(h *heard) { h.Verb = "pending" }, "refused"},
		{"to an earlier question", func(h *heard) { h.Nonce = random() }, "refused"},
		{"to a question about another", func(h *heard) { h.Body = []byte(`{"call":"c2"}`) }, "refused"},
		{"a refusal for an answer", func(h *heard) { *h = *said(r.key, "show", notSignedIn); h.Refused = false }, "refused"},
		{"an answer for a refusal", func(h *heard) { h.Refused = true }, "refused"},
	} {
		h := said(r.key, "show", nil)
		c.change(h)
		var got string
		b.Call("verify.js", fmt.Sprintf(refused, `genuine(await m.answerKey(args[0]), args[1].Verb, m.bytes(args[1].Nonce), m.bytes(args[1].Body),
			args[1].Refused, m.bytes(args[1].Answer), args[1].Sig)`), &got, r.keyText(), h)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Of what is signed too, the script signs nothing but an offer of the card that was opened, for this page.
func TestAnOfferOfAnotherCardIsRefusedByTheScript(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	for _, c := range []struct {
		name   string
		change func(*wire.Offer)
		want   string
	}{
		{"as it is", func(*wire.Offer) {}, "taken"},
		{"another card", func(o *wire.Offer) { o.Card.ID = "c2" }, "refused"},
		{"for another page", func(o *wire.Offer) { o.RP = "evil.example" }, "refused"},
		{"a short nonce", func(o *wire.Offer) { o.Nonce = []byte{1} }, "refused"},
		{"a short hash", func(o *wire.Offer) { o.Card.Hash = []byte{1} }, "refused"},
		{"one that waits no more", func(o *wire.Offer) { o.Card.State, o.Nonce, o.Allow = wire.StateDone, nil, nil }, "taken"},
	} {
		o := &wire.Offer{Card: card("c1"), Nonce: random(), Expires: time.Now().Add(time.Hour).Unix(), RP: "localhost", Allow: [][]byte{{1}}}
		c.change(o)
		var got string
		b.Call("verify.js", fmt.Sprintf(refused, `offered(args[0], "c1", "localhost")`), &got, o)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTheScriptsChallengesAreThoseOfWire(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	random := mathrand.New(mathrand.NewPCG(1, 2))
	some := func(n int) []byte {
		x := make([]byte, n)
		for i := range x {
			x[i] = byte(random.Uint32())
		}
		return x
	}
	for i := range 20 {
		var items []wire.WebDecision
		var ends []int64
		var in []map[string]any
		for range i % 5 {
			d := wire.WebDecision{Nonce: some(32), Decision: some(random.IntN(300))}
			end := []int64{0, 1900000000, 1<<53 - 1, 1 << 32}[random.IntN(4)]
			items, ends = append(items, d), append(ends, end)
			in = append(in, map[string]any{"nonce": d.Nonce, "decision": d.Decision, "expires": end})
		}
		want := wire.Challenge(items, ends)
		var got string
		b.Call("verify.js", `return m.base64(await m.challenge((args[0] || []).map((i) => ({ nonce: m.bytes(i.nonce), decision: m.bytes(i.decision), expires: i.expires }))))`,
			&got, in)
		if got != base64.StdEncoding.EncodeToString(want[:]) {
			t.Errorf("%d decisions: %s, want %x", len(items), got, want)
		}
		nonce, code, credential := some(32), some(32), some(200)
		login := wire.LoginChallenge(nonce)
		b.Call("verify.js", `return m.base64(await m.loginChallenge(m.bytes(args[0])))`, &got, nonce)
		if got != base64.StdEncoding.EncodeToString(login[:]) {
			t.Errorf("a login: %s, want %x", got, login)
		}
		b.Call("verify.js", `return m.base64(await m.enrolMAC(m.bytes(args[0]), m.bytes(args[1])))`, &got, code, credential)
		if got != base64.StdEncoding.EncodeToString(approver.EnrolMAC(code, credential)) {
			t.Errorf("an enrolment: %s", got)
		}
	}
}

// What the script signs is what sentinel reads: the text of a decision is wire.Decision, whole.
func TestADecisionsTextIsThatOfWire(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	c := card("c1")
	for _, want := range []wire.Decision{
		{Hash: c.Hash, Approve: true}, {Hash: c.Hash}, {Hash: c.Hash, Stop: true, Why: "no \u202e <b>"}, {Hash: c.Hash, Approve: true, Grant: c.Grantable},
	} {
		var text string
		b.Call("verify.js", `return new TextDecoder().decode(m.decision({ card: { hash: args[0].hash } }, args[0]))`, &text, want)
		var got wire.Decision
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil {
			t.Fatal(err)
		}
		x, _ := json.Marshal(got)
		y, _ := json.Marshal(want)
		if !bytes.Equal(x, y) {
			t.Errorf("%s, want %s", x, y)
		}
	}
}

var marks = regexp.MustCompile(`⟨U\+([0-9A-F]+)⟩`)

// asTerminal writes the page's marks as the terminal's.
func asTerminal(s string) string {
	return marks.ReplaceAllStringFunc(s, func(m string) string {
		n, _ := strconv.ParseUint(marks.FindStringSubmatch(m)[1], 16, 32)
		return fmt.Sprintf(`\u{%x}`, n)
	})
}

// The texts of case AP-02, and others: the page shows what the terminal shows.
func TestAP02ThePageShowsWhatIsThere(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	texts := []string{"", "Lunch at 12 – café, 日本, Ünal ✓", "invoice\u202efdp.exe", "a\u2066b\u2069", "pay\u200bpal", "a\u200db", "x\U000e0041\U000e0042",
		"x\U000e0100", "x\ufe0f", "\u2764\ufe0f", "a\u2028b", "a\u0085b", "a\x1b[2Kb", "\x1b]8;;http://evil.example\x07x", "a\u009b2Kb", "safe\revil",
		"a\nb", "a" + strings.Repeat("\u00a0", 400) + "b", "a" + strings.Repeat(" ", 400) + "b", "a    b", " x ", "a\u3164b", "a\u2800b", "a\U00016fe4b", "a\U0001d159b", "pay\u00adpal",
		"a\ue000b", "e\u0301\u0301\u0301\u0301\u0301", "\t", "[x](http://evil.example)", "⟨U+202E⟩", strings.Repeat("\u202e", 9), "\u115f\u1160"}
	random := mathrand.New(mathrand.NewPCG(3, 4))
	pool := []rune("ab \u202e\u200b\u0301\ufe0f❤\u00a0\n\t\u3164日я\U000e0041́ \u2029")
	for range 200 {
		var s strings.Builder
		for range random.IntN(24) {
			s.WriteRune(pool[random.IntN(len(pool))])
		}
		texts = append(texts, s.String())
	}
	var lines, blocks []string
	b.Call("visible.js", `return args[0].map((s) => m.line(s).map((p) => p.text).join(""))`, &lines, texts)
	b.Call("visible.js", `return args[0].map((s) => m.block(s).map((l) => l.map((p) => p.text).join("")).join("\n"))`, &blocks, texts)
	for i, s := range texts {
		if got, want := asTerminal(lines[i]), asTerminal(visible.Line(s)); got != want {
			t.Errorf("%+q: %+q, want %+q", s, got, want)
		}
		if got, want := asTerminal(blocks[i]), asTerminal(strings.Join(visible.Block(s), "\n")); got != want {
			t.Errorf("%+q as a block: %+q, want %+q", s, got, want)
		}
	}
	var odd []bool // what is written in place of something stands in a style of its own, and what was there itself does not
	b.Call("visible.js", `return args.map((s) => m.line(s).some((p) => p.odd))`, &odd, "a\u202eb", "⟨U+202E⟩", "a")
	if fmt.Sprint(odd) != "[true false false]" {
		t.Errorf("marked: %v", odd)
	}
}

func TestAP02ThePageWarnsAsTheTerminalDoes(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 1280, 900)
	texts := []string{"ada@example.test", "pаypal.com", "https://рау.com/", "https://ɡoogle.com/", "müller@grün.de", "paypaⅼ.com", "gοogle.com",
		"ada@xn--pypal-4ve.com", "xn--aaaaaaaa-0.com", "ｐaypal", "𝐩aypal", "example。org", "Привет, мир", "日本.jp", "xn--mnchen-3ya.de", "xn--e1afmkfd.xn--p1ai",
		"xn--", "xn---", "xn--a", "see http://рау.com and xn--pypal-4ve.com", strings.Repeat("pаypal.com x", 20), "\u202ea.b", "XN--PYPAL-4VE.com"}
	var got [][]string
	b.Call("visible.js", `return args[0].map(m.warnings)`, &got, texts)
	for i, s := range texts {
		want := visible.Warnings(s)
		if have, want := asTerminal(strings.Join(got[i], "; ")), strings.Join(want, "; "); have != want {
			t.Errorf("%+q: %q, want %q", s, have, want)
		}
	}
}

// card is one with something of everything.
func card(id string) wire.Card {
	hash := bytes.Repeat([]byte{2}, 32)
	return wire.Card{ID: id, Kind: "call", State: wire.StateParked, Title: "Open an issue", Connector: "github", Method: "issue-create", Account: "me",
		Class: "write", Reach: "public", Sensitive: true, Cell: "work", Session: "work/run-1", Attended: true,
		Labels: []wire.Cause{{Label: "untrusted", Why: "github issue-list, call c0", Unix: 1900000000}},
		Fields: []wire.Field{{Label: "Title", Values: []string{"It stalls"}}, {Label: "Repository", Values: []string{"ada/engine"}, Main: true}},
		Bodies: []wire.Shown{{Name: "body.md", Media: "text/markdown", Size: 12, SHA256: wire.Sum([]byte("x")), Text: "first\nsecond \u202e line"}},
		Facts:  []string{"reaches ada/engine", "first time you write to ada/engine"}, Reason: "the method is sensitive", Policies: []string{"ask-changes"},
		Grantable: &wire.Grant{Connector: "github", Method: "issue-create", Account: "me", Cell: "work", Session: "run-1", Kind: "session",
			Limits: []wire.Limit{{Field: "repo", Values: []string{"ada/engine"}}}},
		Mark: "abc", Hash: hash, Made: time.Now().Unix(), Expires: time.Now().Add(24 * time.Hour).Unix(), Alike: 2}
}

// enrolled is a window in which a passkey was made by the link, and that is signed in.
// keyed is a window that has the card key, in which nobody is signed in.
func (r *rig) keyed(t *testing.T, width, height int64) *tab {
	t.Helper()
	b := r.open(t, width, height, "#key="+r.keyText())
	b.press("It is the same")
	b.Sees("Sign in with a passkey")
	return b
}

func (r *rig) enrolled(t *testing.T, width, height int64) *tab {
	t.Helper()
	b := r.open(t, width, height, r.link())
	b.press("Make a passkey")
	b.press("Sign in with a passkey")
	b.Sees("Waiting for you")
	return b
}

// From the link to what runs, with each kind of answer, and no word of it from anywhere but what was signed.
func TestFromTheLinkToADecision(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newRig(t)
		for _, id := range []string{"c1", "c2", "c3", "c4"} {
			c := card(id)
			c.Title = "Open an issue, " + id
			r.cards = append(r.cards, c)
		}
		b := r.enrolled(t, w, h)
		fits(t, b)
		b.press("Open an issue, c1")
		for _, s := range []string{"ada/engine", "It stalls", "first time you write to ada/engine", "Anyone may see it.", "work/run-1", "somebody sits at it",
			"It has read what others wrote, who may have told it what to do: github issue-list, call c0", "You are asked because the method is sensitive"} {
			b.Sees(s)
		}
		var order bool
		b.Eval(`document.body.innerText.indexOf("ada/engine") < document.body.innerText.indexOf("It stalls")`, &order)
		if !order {
			t.Error("the destination does not come first")
		}
		if strings.Contains(b.Text(), "second") {
			t.Error("the content is open before anybody asked")
		}
		b.press("body.md (12 bytes, text/markdown)")
		b.Sees("second ⟨U+202E⟩ line")
		fits(t, b)
		b.press("Approve once")
		b.Sees("Waiting for you")
		b.Sees("Approved.")

		b.press("Open an issue, c2")
		b.press("Approve, and the like of it too")
		b.Sees("Cell work may use github issue-create with account me, until session run-1 ends, as often as it asks; only where repo is ada/engine; " +
			"not after the cell has read what others wrote.")
		b.Eval(`(() => { const set = (id, v) => { const e = document.getElementById(id); e.value = v; e.dispatchEvent(new Event("input", { bubbles: true })); };
			set("kind", "until"); set("count", "3"); return true; })()`, new(bool))
		b.Sees("3 times at most")
		fits(t, b)
		b.press("Approve, and allow this ahead")
		b.Sees("Approved, and allowed ahead.")

		b.press("Open an issue, c3")
		b.press("Deny")
		b.Sees("Denied.")
		b.press("Open an issue, c4")
		b.press("Deny and stop the session")
		b.Sees("Denied, and the session is stopped.")
		b.Sees("Nothing waits.")
		if c := b.Complaints(); len(c) > 0 {
			t.Errorf("the console: %q", c)
		}
		r.with(func() {
			if len(r.decided) != 4 {
				t.Fatalf("%d decisions: %q", len(r.decided), r.asked)
			}
			g := r.decided[1].Grant
			if d := r.decided[0]; !d.Approve || d.Grant != nil || d.Stop {
				t.Errorf("once: %+v", d)
			}
			if g == nil || g.Kind != "until" || g.Count != 3 || g.Session != "" || g.Tainted || g.Sentence != "" ||
				g.Until < time.Now().Add(20*time.Hour).Unix() || g.Until > time.Now().Add(7*24*time.Hour).Unix() ||
				len(g.Limits) != 1 || fmt.Sprint(g.Limits[0].Values) != "[ada/engine]" {
				t.Errorf("with a grant: %+v", g)
			}
			if d := r.decided[2]; d.Approve || d.Stop {
				t.Errorf("a no: %+v", d)
			}
			if d := r.decided[3]; d.Approve || !d.Stop {
				t.Errorf("a no that stops: %+v", d)
			}
		})
	})
}

// The code is in no place where a browser, a screenshot or the next visitor has it, and no request carries it.
func TestTheCodeOfTheLinkStaysOut(t *testing.T) {
	r := newRig(t)
	b := r.open(t, 390, 844, r.link())
	b.Sees("Make a passkey")
	code := base64.RawURLEncoding.EncodeToString(r.code)
	var where string
	b.Eval(`location.href + document.documentElement.outerHTML + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.referrer + history.length`, &where)
	if strings.Contains(where, code) || strings.Contains(where, "enrol=") {
		t.Error("the code is still there:", where)
	}
	b.press("Make a passkey")
	b.press("Sign in with a passkey")
	b.Sees("Waiting for you")
	r.with(func() {
		for _, a := range r.asked {
			if strings.Contains(a, code) || strings.Contains(a, base64.StdEncoding.EncodeToString(r.code)) || strings.Contains(a, hex.EncodeToString(r.code)) {
				t.Error("the code was sent:", a)
			}
		}
	})
	var kept string
	b.Eval(`localStorage.getItem("doorward-card-key")`, &kept)
	if kept != r.keyText() {
		t.Errorf("the card key is kept as %q", kept)
	}
}

// What a taken-over approvals can put before a person: no word of a card, no list without what waits, no deed that was not done.
func TestATakenOverApprovalsSaysNothing(t *testing.T) {
	r := newRig(t)
	r.cards = []wire.Card{card("c1"), card("c2")}
	r.cards[1].Title = "Pay eve"
	b := r.enrolled(t, 1280, 900)
	old := map[string]*wire.WebResp{} // what it has heard
	r.with(func() {
		r.alter = func(verb string, a *wire.WebResp) { old[verb] = &wire.WebResp{Body: a.Body, Signature: a.Signature} }
	})
	b.Eval(`location.hash = "#card=c2"`, new(string))
	b.Sees("Approve once")
	b.Eval(`location.hash = "#stop"`, new(string))
	b.press("Stop work")
	b.Sees("no new grants for work")
	eve, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for _, c := range []struct {
		name, at, press string
		alter           func(verb string, a *wire.WebResp)
		control         string
	}{
		{"a word of a card", "#card=c1", "", func(_ string, a *wire.WebResp) {
			a.Body = bytes.Replace(a.Body, []byte("It stalls"), []byte("Eve pays"), 1)
		}, "Approve once"},
		{"a signature", "#card=c1", "", func(_ string, a *wire.WebResp) { a.Signature[7] ^= 1 }, "Approve once"},
		{"no signature", "#card=c1", "", func(_ string, a *wire.WebResp) { a.Signature = nil }, "Approve once"},
		{"another card, which was signed before", "#card=c1", "", func(verb string, a *wire.WebResp) { *a = *old[verb] }, "Approve once"},
		{"no JSON", "#card=c1", "", func(_ string, a *wire.WebResp) { a.Body = []byte("x") }, "Approve once"},
		{"that nothing waits", "#pending", "", func(_ string, a *wire.WebResp) { a.Body = []byte(`{"cards":[]}`) }, "Pay eve"},
		{"that nothing is allowed ahead", "#grants", "", func(verb string, a *wire.WebResp) {
			b, err := respond(eve, verb, &wire.WebReq{Nonce: random()}, &wire.GrantsResp{}, nil)
			if err != nil {
				t.Error(err)
			}
			*a = *b
		}, "Used 2 times"},
		{"that it is stopped", "#stop", "Stop work", func(verb string, a *wire.WebResp) { *a = *old[verb] }, "no new grants for work"},
		{"a refusal of its own", "#grants", "", func(_ string, a *wire.WebResp) {
			*a = wire.WebResp{Code: wire.CodeNotAllowed, Body: []byte(`{"code":"not_allowed","reason":"call eve at once"}`)}
		}, "Used 2 times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.Eval(`location.hash = "#history"`, new(string))
			b.Sees("The record, entry by entry")
			r.with(func() { r.alter = nil })
			if c.press != "" { // so that the view is there
				b.Eval(fmt.Sprintf(`location.hash = %q`, c.at), new(string))
				b.Sees(c.press)
			}
			r.with(func() { r.alter = c.alter })
			if c.press != "" {
				b.press(c.press)
				b.Sees("not what Doorward's core signed")
			} else {
				b.Eval(fmt.Sprintf(`location.hash = %q`, c.at), new(string))
				b.Sees("Try again")
			}
			for _, s := range []string{"ada/engine", "Eve pays", "Pay eve", "Approve once", "Nothing waits", "Nothing is allowed", "no new grants", "call eve"} {
				if strings.Contains(b.Text(), s) {
					t.Errorf("%q is shown in\n%s", s, b.Text())
				}
			}
			r.with(func() { r.alter = nil })
			if c.press == "" {
				c.press = "Try again"
			}
			b.press(c.press)
			b.Sees(c.control)
		})
	}
}

// A sign-in for another page is not signed, and what is signed is never a challenge that came.
func TestASignInIsOfThisPage(t *testing.T) {
	r := newRig(t)
	b := r.enrolled(t, 1280, 900)
	b.press("Sign out")
	b.Sees("Signed out.")
	host := r.place.Host
	r.with(func() {
		if r.session != nil {
			t.Error("the session lives on")
		}
		r.place.Host = "evil.example"
	})
	b.press("Sign in with a passkey")
	b.Sees("for another page")
	r.with(func() { r.place.Host = host })
	b.press("Sign in with a passkey")
	b.Sees("Waiting for you") // the control
}

func TestAnotherCardKeyIsAsked(t *testing.T) {
	r := newRig(t)
	b := r.enrolled(t, 390, 844)
	old := r.keyText()
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	r.with(func() { r.key, r.credential = other, nil })
	kept := func(want string) {
		t.Helper()
		var have string
		if b.Eval(`localStorage.getItem("doorward-card-key")`, &have); have != want {
			t.Errorf("kept is %s, want %s", have, want)
		}
	}
	b.Eval(`location.hash = `+strconv.Quote(r.link()), new(string))
	b.Sees("This link comes with another card key")
	fits(t, b)
	b.press("Keep the one here")
	b.Sees("not what Doorward's core signed") // it has the other key now
	kept(old)
	b.Eval(`location.hash = `+strconv.Quote(r.link()), new(string))
	b.press("Take the new one")
	b.Sees("Decide from this device")
	kept(old) // until there is a passkey for it
	b.press("Make a passkey")
	b.Sees("Sign in")
	b.Sees("Your passkey is made.")
	kept(r.keyText())
}

func TestWithoutACardKeyNothingIsDecided(t *testing.T) {
	r := newRig(t)
	r.cards = []wire.Card{card("c1")}
	b := r.enrolled(t, 390, 844)
	b.Eval(`localStorage.removeItem("doorward-card-key"); location.hash = "#card=c1"`, new(string))
	b.Sees("This browser has no card key")
	b.Sees("doorward approver link")
	if strings.Contains(b.Text(), "Approve") || strings.Contains(b.Text(), "ada/engine") {
		t.Error("a card is shown all the same")
	}
	var kept string
	b.Eval(`location.hash = "#key=`+r.keyText()+`"`, new(string))
	sum := sha256.Sum256(r.public())
	b.Sees(fmt.Sprintf("% x", sum[:8])) // as doorward approver list prints it
	if b.Eval(`localStorage.getItem("doorward-card-key") || ""`, &kept); kept != "" {
		t.Error("it is taken before anybody compared it")
	}
	b.press("It is the same") // the control
	b.press("Open an issue")
	b.Sees("ada/engine")
}

// What others wrote is text, in every field of a card, in lists and in the record.
func TestWhatOthersWroteIsNeverMarkup(t *testing.T) {
	r := newRig(t)
	c := card("c1")
	evil := "<img src=x onerror=\"window.ran=1\"><script>window.ran=1</script>\"'&lt;\r\nX: y"
	c.Title, c.Account, c.Cell, c.Session, c.Reason, c.Mark, c.Connector, c.Method = evil, evil, evil, evil, evil, evil, evil, evil
	c.Fields = []wire.Field{{Label: evil, Values: []string{evil, evil}, Main: true}, {Label: evil, Values: []string{evil}}}
	c.Facts, c.Policies, c.Labels = []string{evil, "first time you write to " + evil}, []string{evil}, []wire.Cause{{Label: evil, Why: evil}}
	c.Bodies = []wire.Shown{{Name: evil, Media: evil, Size: 1, Text: evil}}
	c.Grantable.Limits = []wire.Limit{{Field: evil, Values: []string{evil}}}
	c.Err = wire.Refuse(wire.Code(evil), evil, evil)
	r.cards = []wire.Card{c}
	b := r.enrolled(t, 390, 844)
	b.Eval(`location.hash = "#card=c1"`, new(string))
	b.Sees("Approve once")
	b.Eval(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`, nil)
	b.Sees("SHA-256")
	b.Eval(`location.hash = "#history"`, new(string))
	b.Sees("Past")
	b.Eval(`location.hash = "#card=c1"`, new(string))
	b.Sees("Approve once")
	fits(t, b)
	var ran, images float64
	b.Eval(`Number(window.ran || 0)`, &ran)
	b.Eval(`document.querySelectorAll("main img, main script").length`, &images)
	if ran != 0 || images != 0 {
		t.Errorf("it ran: %v, elements: %v", ran, images)
	}
	if c := b.Complaints(); len(c) > 0 {
		t.Errorf("the console: %q", c)
	}
}

func TestTheOtherViewsAndWhatTheyNarrow(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newRig(t)
		b := r.enrolled(t, w, h)
		b.press("Allowed ahead")
		b.Sees("cell work may issue-create with github")
		b.Sees("Used 2 times of 5")
		fits(t, b)
		b.press("Take it back")
		b.Sees("grant g1 is revoked")
		b.press("Sessions")
		b.Sees("work/run-1")
		b.press("End it")
		b.Sees("The session is ended.")
		b.press("Past")
		b.press("The record, entry by entry")
		b.Sees("approve")
		fits(t, b)
		b.press("Stop")
		b.press("Stop work")
		b.Sees("no new grants for work")
		b.Sees("May have run: c9")
		b.press("Let work go on")
		b.Sees("Decide on it")
		fits(t, b)
		r.with(func() {
			all := strings.Join(r.asked, "\n")
			for _, want := range []string{`revoke {"grant":"g1"}`, `session {"end":"work/run-1"}`, `stop {"cell":"work"}`, `stop {"cell":"work","resume":true}`} {
				if !strings.Contains(all, want) {
					t.Errorf("%s was not asked: %s", want, all)
				}
			}
		})
		b.press("Sign out")
		b.Sees("Sign in with a passkey")
		if c := b.Complaints(); len(c) > 0 {
			t.Errorf("the console: %q", c)
		}
	})
}

// An offer that is over is asked for again, and counts only where the card is still the one that was read.
func TestWhatChangedIsReadAgain(t *testing.T) {
	r := newRig(t)
	r.cards, r.life = []wire.Card{card("c1")}, time.Second
	b := r.enrolled(t, 1280, 900)
	b.press("Open an issue")
	b.Sees("Approve once")
	r.with(func() {
		r.cards[0].Hash, r.cards[0].Title, r.life = bytes.Repeat([]byte{9}, 32), "Open another issue", time.Minute
	})
	b.press("Approve once")
	b.Sees("It has changed since you opened it.")
	b.Sees("Open another issue")
	r.with(func() {
		if len(r.decided) > 0 {
			t.Errorf("%+v", r.decided)
		}
	})
	b.press("Approve once")
	b.Sees("Approved.")
	r.with(func() {
		if len(r.decided) != 1 || !bytes.Equal(r.decided[0].Hash, bytes.Repeat([]byte{9}, 32)) {
			t.Errorf("%+v", r.decided)
		}
	})
}

// A decision ends with the view that it was pressed in: an offer that is held back until another call is on the screen has nothing
// signed. Control: the same, with the view still there, is decided.
func TestADecisionEndsWithItsView(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		r := newRig(t)
		other := card("c2")
		other.Title = "Open another issue"
		r.cards, r.life = []wire.Card{card("c1"), other}, time.Second // so it is asked for again
		b := r.enrolled(t, 1280, 900)
		b.press("Open an issue")
		b.Sees("Approve once")
		stall := make(chan struct{})
		r.with(func() { r.life, r.stall = time.Minute, map[string]chan struct{}{"show": stall} })
		b.press("Approve once")
		for waiting := true; waiting; time.Sleep(10 * time.Millisecond) {
			r.with(func() { waiting = r.stall["show"] != nil })
		}
		if leaves {
			b.Eval(`location.hash = "#card=c2"`, nil)
			b.Sees("Open another issue")
			close(stall)
			b.Sees("You have left what this was about.")
		} else {
			close(stall)
			b.Sees("Approved.")
		}
		r.with(func() {
			if (len(r.decided) == 0) != leaves {
				t.Errorf("it was left %t: %+v", leaves, r.decided)
			}
		})
	}
}

// With a keyboard alone, and for who hears the page: the focus goes to what is new, everything that can be used has a name.
func TestByKeyboardAndScreenReader(t *testing.T) {
	r := newRig(t)
	r.cards = []wire.Card{card("c1")}
	b := r.enrolled(t, 1280, 900)
	focus := func() string {
		t.Helper()
		var s string
		b.Eval(`document.activeElement.tagName + " " + document.activeElement.innerText`, &s)
		return s
	}
	if f := focus(); f != "H1 Waiting for you" {
		t.Errorf("the focus is on %q", f)
	}
	b.Run(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"))
	b.Sees("Approve once")
	if f := focus(); f != "H1 Open an issue" {
		t.Errorf("the focus is on %q", f)
	}
	var unnamed []string
	b.Eval(`document.querySelectorAll("details").forEach((d) => { d.open = true; });
		[...document.querySelectorAll("button, input, select, a, summary")].filter((e) => !(e.innerText || e.getAttribute("aria-label") ||
			[...(e.labels || [])].map((l) => l.innerText).join("")).trim()).map((e) => e.outerHTML)`, &unnamed)
	if len(unnamed) > 0 {
		t.Errorf("without a name: %q", unnamed)
	}
	var landmarks string
	b.Eval(`[document.querySelectorAll("main").length, document.querySelectorAll("nav[aria-label]").length, document.querySelectorAll("h1").length,
		document.querySelectorAll("[role=status][aria-live]").length, document.documentElement.lang].join()`, &landmarks)
	if landmarks != "1,1,1,1,en" {
		t.Errorf("landmarks: %s", landmarks)
	}
	for range 40 {
		b.Run(chromedp.KeyEvent("\t"))
		if focus() == "BUTTON Approve once" {
			break
		}
	}
	b.Run(chromedp.KeyEvent("\r"))
	b.Sees("Approved.")
}
