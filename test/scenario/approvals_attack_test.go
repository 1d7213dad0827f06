// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/chromium"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

// replaced is a machine on which the programs of test/attacks that are named stand in the places of daemons of their names, and what tells
// approvals what to do.
func replaced(t *testing.T, names ...string) (r *rig, attack func(words ...string)) {
	t.Helper()
	ground.Need(t)
	dir, err := os.MkdirTemp(ground.Dir, "attack")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := map[string]string{}
	for _, name := range names {
		if binary[name], err = world.BuildTest("./test/attacks/"+name, dir); err != nil {
			t.Fatal(err)
		}
	}
	r = newRig(t, world.Options{Page: true, Binary: binary})
	return r, func(words ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(r.Config(), "attack"), []byte(strings.Join(words, " ")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Somebody has taken approvals over, and a person who suspects nothing decides in a real browser, before the real sentinel. Nothing runs
// but what was on the screen when the passkey confirmed, and nobody joins. After each attack the control: the same program does its work.
func TestATakenOverApprovals(t *testing.T) {
	browser := browserFor(t)
	r, attack := replaced(t, "approvals")
	logged := func(want ...string) {
		t.Helper()
		log := r.Daemon("approvals").Log()
		for _, w := range want {
			if !strings.Contains(log, w) {
				t.Errorf("the attack did not come to %q:\n%s", w, log)
			}
		}
	}
	res, err := r.Person(0).Doorward(r.ctx(), "", "approver", "add", "ada")
	if err != nil || res.Code != 0 {
		t.Fatalf("%v %v", res, err)
	}

	attack("enrol")
	w := browser.Open(t, 1280, 900, strings.TrimSpace(res.Stdout))
	w.Press("Make a passkey")
	w.Sees("not what Doorward's core signed") // what was answered is the answer to another question
	logged(`"what":"enrol enrol","status":403`)
	attack()
	w.Press("Make a passkey") // control
	w.Press("Sign in with a passkey")
	w.Sees("Nothing waits.")

	ran := 0
	open := func(c *wire.Card) {
		t.Helper()
		w.Eval(`location.hash = "#card=`+c.ID+`"`, new(string))
	}
	for _, a := range []struct {
		name  string
		words func(other *wire.Card) []string
		does  func(mine, other *wire.Card)
		logs  []string
		once  bool // what the person decided counts
	}{
		{"another card for the one that is opened", func(o *wire.Card) []string { return []string{"swap", o.ID} }, func(mine, _ *wire.Card) {
			open(mine)
			w.Sees("This is not shown")
		}, nil, false},
		{"an altered card", func(*wire.Card) []string { return []string{"alter", "Mine", "Eves"} }, func(mine, _ *wire.Card) {
			open(mine)
			w.Sees("This is not shown")
		}, nil, false},
		{"what was signed of one, for the other", func(o *wire.Card) []string {
			return []string{"believe", o.ID, base64.StdEncoding.EncodeToString(o.Hash)}
		}, func(mine, _ *wire.Card) {
			open(mine)
			w.Press("Approve once")
			w.Sees("not what Doorward's core signed")
		}, []string{`"what":"believe decide","status":409`}, false},
		{"a no as a yes", func(*wire.Card) []string { return []string{"flip"} }, func(mine, _ *wire.Card) {
			open(mine)
			w.Press("Deny")
			w.Sees("not what Doorward's core signed")
		}, []string{`"what":"flip decide","status":403`}, false},
		{"a yes twice, and for another", func(o *wire.Card) []string { return []string{"again", o.ID} }, func(mine, _ *wire.Card) {
			open(mine)
			w.Press("Approve once")
			w.Sees("Approved.")
		}, []string{`"what":"again decide","status":409`}, true},
		{"a decision of its own", func(o *wire.Card) []string { return []string{"own", o.ID} }, func(mine, _ *wire.Card) {
			w.Press("Sign out")
			w.Press("Sign in with a passkey")
			w.Sees("Waiting for you")
		}, []string{`"what":"own decide","status":403`, `"what":"own login","refused":false`, `"what":"own approvers","refused":true`, `"what":"own policy","refused":true`,
			`"what":"own surrogate","refused":true`}, false},
	} {
		mine, other := r.park(r.work, issue("ada/site", "Mine, "+a.name)...), r.park(r.work, issue("ada/site", "Other, "+a.name)...)
		attack(a.words(&other)...)
		a.does(&mine, &other)
		attack()
		logged(a.logs...)
		if a.once {
			ran++
			if s := r.ended(mine.ID); s != wire.StateDone {
				t.Errorf("%s: what was approved is %s", a.name, s)
			}
			mine = other
		}
		r.sum("an issue, after "+a.name, r.issues(), ran)
		w.Eval(`location.hash = "#pending"`, new(string))
		w.Sees("Waiting for you")
		open(&mine) // the control
		w.Press("Approve once")
		w.Sees("Approved.")
		if s := r.ended(mine.ID); s != wire.StateDone {
			t.Errorf("control: %s: it is %s", a.name, s)
		}
		ran++
		r.sum("an issue, after the control of "+a.name, r.issues(), ran)
	}
	res, err = r.Person(0).Doorward(r.ctx(), "", "--json", "approver", "list")
	if err != nil || strings.Count(res.Stdout, `"name"`) != 1 || strings.Contains(res.Stdout, "eve") {
		t.Errorf("%+v, %v", res, err)
	}
}

// The control of the signature over answers: before a script that does not verify it, an altered card is shown, approved, and what runs
// is another than the one on the screen.
func TestAScriptThatVerifiesNothingIsLiedTo(t *testing.T) {
	browser := browserFor(t)
	r, attack := replaced(t, "approvals", "page")
	res, err := r.Person(0).Doorward(r.ctx(), "", "approver", "add", "ada")
	if err != nil || res.Code != 0 {
		t.Fatalf("%v %v", res, err)
	}
	w := browser.Open(t, 1280, 900, strings.TrimSpace(res.Stdout))
	w.Press("Make a passkey")
	w.Press("Sign in with a passkey")
	w.Sees("Nothing waits.")
	mine := r.park(r.work, issue("ada/site", "Mine, altered")...)
	attack("alter", "Mine", "Eves")
	w.Eval(`location.hash = "#card=`+mine.ID+`"`, new(string))
	w.Sees("Eves, altered")
	if strings.Contains(w.Text(), "Mine, altered") {
		t.Errorf("the card is shown as it is:\n%s", w.Text())
	}
	w.Press("Approve once")
	w.Sees("Approved.")
	if s := r.ended(mine.ID); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
	r.sum("an issue that was not on the screen", r.issues(), 1)
}

// Two people decide one card at once, each in a browser of their own: one wins, the other is told who did, and it runs once.
func TestTwoBrowsersDecideAtOnce(t *testing.T) {
	browser := browserFor(t)
	r := newRig(t, world.Options{Page: true})
	var both []*chromium.Window
	for _, name := range []string{"ada", "bob"} {
		res, err := r.Person(0).Doorward(r.ctx(), "", "approver", "add", name)
		if err != nil || res.Code != 0 {
			t.Fatalf("%v %v", res, err)
		}
		w := browser.Open(t, 1280, 900, strings.TrimSpace(res.Stdout))
		w.Press("Make a passkey")
		w.Press("Sign in with a passkey")
		w.Sees("Nothing waits.")
		both = append(both, w)
	}
	card := r.park(r.work, issue("ada/site", "It stalls")...)
	for _, w := range both {
		w.Eval(`location.hash = "#card=`+card.ID+`"`, new(string))
		w.Sees("Approve once")
	}
	var all sync.WaitGroup
	for _, w := range both {
		all.Go(func() {
			w.Eval(`[...document.querySelectorAll("button")].find((e) => e.innerText === "Approve once").click()`, nil)
		})
	}
	all.Wait()
	if s := r.ended(card.ID); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
	won := 0
	for _, w := range both {
		w.Until(`/Approved\.|approved already, by passkey:|is (approved|executing|done) now/.test(document.body.innerText)`, "it is told what became of it")
		if strings.Contains(w.Text(), "Approved.") {
			won++
		}
	}
	if won != 1 {
		t.Errorf("%d have won", won)
	}
	r.sum("an issue", r.issues(), 1)
}
