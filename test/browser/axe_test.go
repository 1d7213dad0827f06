// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// axe is what `make specs` fetched; without it the test is skipped.
func axe(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../specs/tools/axe.min.js")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no axe-core: make specs (needs npm)")
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// faults are what axe-core finds serious or critical in what is open, with where it is.
func (b *tab) faults(program string) (found []string) {
	b.T.Helper()
	var there bool
	if b.Eval(`typeof axe !== "undefined"`, &there); !there {
		b.Eval(program+"\n;true", nil)
	}
	b.Eval(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.filter((v) => ["serious", "critical"].includes(v.impact))
		.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html + " " + n.failureSummary).join(" | ")))`, &found)
	return found
}

// Nothing in any view is serious or critical by axe-core's rules, in both sizes and schemes, with everything opened.
func TestNothingKeepsPeopleOut(t *testing.T) {
	program := axe(t)
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newViews(t, "")
		b := r.open(t, w, h, r.link())
		look := func(name string) {
			t.Helper()
			b.Eval(`document.querySelectorAll("main details").forEach((d) => { d.open = true; })`, nil)
			for _, scheme := range []string{"light", "dark"} {
				b.Scheme(scheme)
				for _, f := range b.faults(program) {
					t.Errorf("%s, %s: %s", name, scheme, f)
				}
			}
		}
		b.Sees("Make a passkey")
		look("enrolment")
		b.press("Make a passkey")
		b.Sees("Sign in with a passkey")
		look("sign-in")
		b.press("Use a recovery code")
		b.Sees("The code, as it was printed")
		look("recovery")
		b.press("Back")
		b.press("Sign in with a passkey")
		b.Sees("Waiting for you")
		for _, v := range views {
			b.goes(v.name, v.heading)
			look(v.name)
		}
		b.Eval(`document.getElementById("more").click()`, nil)
		look("the rest of the views")
		b.goes("card=none", "That did not work")
		look("a fault")

		b.Eval(`(() => { const e = document.createElement("button"); e.style = "color: #777; background: #888"; document.querySelector("main").append(e);
			const p = e.cloneNode(); p.textContent = "pale"; document.querySelector("main").append(p); })()`, nil)
		if all := strings.Join(b.faults(program), "\n"); !strings.Contains(all, "button-name") || !strings.Contains(all, "color-contrast") {
			t.Errorf("control: %s", all)
		}
	})
}
