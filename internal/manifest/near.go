// SPDX-License-Identifier: Apache-2.0

package manifest

import "strings"

// meant completes a message about a wrong word: the nearest right one, or all of them where none is near.
func meant(got string, words []string) string {
	best, at := "", len(got)/3+2
	for _, w := range words {
		if d := distance(got, w); d < at {
			best, at = w, d
		}
	}
	if best != "" {
		return "; did you mean \"" + best + "\"?"
	}
	return "; there are " + strings.Join(words, ", ")
}

// distance is how many letters to insert, drop or change (Levenshtein).
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
