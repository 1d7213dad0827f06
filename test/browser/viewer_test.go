// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"strings"
	"testing"

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
