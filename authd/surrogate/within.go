// SPDX-License-Identifier: Apache-2.0

package surrogate

import "strings"

// Within counts what may be surrogates anywhere in a text: markers with as many characters of their alphabet behind them as a
// surrogate has. Whoever wrote the text may have hidden one by some encoding; a surrogate where it is of no use is refused so
// that a mistake is told, and for nothing else.
func Within(text string) int {
	n := 0
	for _, a := range alphabets {
		for rest := text; ; {
			i := strings.Index(rest, a.marker)
			if i < 0 {
				break
			}
			rest = rest[i+len(a.marker):]
			run := 0
			for run < len(rest) && run < a.randomLeast() && a.has(rest[run]) {
				run++
			}
			if run == a.randomLeast() {
				n++
			}
		}
	}
	return n
}
