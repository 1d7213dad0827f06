// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// meant completes a message about a wrong name: the nearest right one, or all of them where none is near.
func meant(got string, names []string) string {
	if s := near(got, names); s != "" {
		return s
	}
	if len(names) == 0 || len(names) > 12 {
		return ""
	}
	s := "; there are"
	if len(names) == 1 {
		s = "; there is"
	}
	for i, n := range slices.Sorted(slices.Values(names)) {
		if i > 0 {
			s += ","
		}
		s += " " + n
	}
	return s
}

// near is the nearest right name, or "".
func near(got string, names []string) string {
	best, at := "", len(got)/3+2
	for _, n := range names {
		if d := distance(got, n); d < at {
			best, at = n, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean \"" + best + "\"?"
}

// distance is how many letters to insert, drop, change or swap with the next (optimal string alignment).
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var before, row, next [65]int
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(next[j]+1, row[j+1]+1, row[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
