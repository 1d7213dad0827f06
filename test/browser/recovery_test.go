// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/approver"
)

// types puts text where the code goes, as a keyboard does.
func (b *tab) types(text string) {
	b.T.Helper()
	b.Until(`document.getElementById("code") !== null`, "the field of the code")
	b.Call("view.js", `document.getElementById("code").value = args[0]; return true`, new(bool), text)
}

func (s *standIn) enrolments() (out []string) {
	s.with(func() {
		for _, a := range s.asked {
			if strings.HasPrefix(a, "enrol ") {
				out = append(out, a)
			}
		}
	})
	return out
}

// Who has lost a passkey types the code as it comes, is told of a wrong letter before anything is sent, and has a new one. The code
// itself is never sent.
func TestARecoveryCodeIsTyped(t *testing.T) {
	onBoth(t, func(t *testing.T, w, h int64) {
		r := newRig(t)
		code := bytes.Repeat([]byte{5}, approver.RecoverySize)
		r.code, r.id = code, approver.RecoveryID(code)
		text := approver.RecoveryText(code)
		b := r.keyed(t, w, h)
		b.press("Use a recovery code")
		b.Sees("The one you had does not count any more then")
		fits(t, b)
		for typed, want := range map[string]string{
			strings.Replace(text, "A", "B", 1): "A letter of this code is wrong",
			text[1:]:                           "these are 31",
			text + "0":                         "these are 33",
			"":                                 "these are 0",
			strings.Replace(text, "A", "U", 1): "the letter “U”",
		} {
			b.types(typed)
			b.press("Go on")
			b.Sees(want)
			b.Sees("Nothing was sent.")
		}
		if sent := r.enrolments(); len(sent) > 0 {
			t.Fatalf("sent: %q", sent)
		}
		b.types("  " + strings.ReplaceAll(strings.NewReplacer("0", "o", "1", "l").Replace(strings.ToLower(text)), "-", "  "))
		b.press("Go on")
		b.Sees("The one you had ends by that")
		fits(t, b)
		b.press("Make a passkey")
		b.Sees("Your passkey is made.")
		b.press("Sign in with a passkey")
		b.Sees("Waiting for you")
		sent := r.enrolments()
		if len(sent) != 2 {
			t.Fatalf("%q", sent)
		}
		for _, s := range sent {
			for _, secret := range []string{text, strings.ReplaceAll(text, "-", ""), "BQUFBQUF"} { // the last as base64
				if strings.Contains(strings.ToUpper(s), strings.ToUpper(secret)) {
					t.Errorf("the code is sent: %s", s)
				}
			}
		}
		if c := b.Complaints(); len(c) > 0 {
			t.Errorf("the console: %q", c)
		}
	})
}

// A code that nobody has is refused in sentinel's words, and can be typed again.
func TestARecoveryCodeThatDoesNotCount(t *testing.T) {
	r := newRig(t)
	b := r.keyed(t, 390, 844)
	b.press("Use a recovery code")
	b.types(approver.RecoveryText(bytes.Repeat([]byte{6}, approver.RecoverySize)))
	b.press("Go on")
	b.press("Make a passkey")
	b.Sees("no such invitation")
	b.press("Not now")
	b.press("Use a recovery code")
	b.Sees("The code, as it was printed")
}

// Without a card key nobody could tell who takes the code: the link that was printed beside it comes first.
func TestARecoveryCodeNeedsTheCardKey(t *testing.T) {
	r := newRig(t)
	b := r.open(t, 390, 844, "")
	b.Sees("Beside a recovery code one is printed too: open that first.")
	b.Call("recovery.js", `m.recovery(); return true`, new(bool), "")
	b.Sees("This browser has no card key")
	var field bool
	if b.Eval(`document.getElementById("code") !== null`, &field); field {
		t.Error("it asks for the code")
	}
}
