// SPDX-License-Identifier: Apache-2.0

package cli

import "strings"

// nearest is the name that s was probably meant to be, or "". At most a third of the letters may be wrong; their case
// does not count.
func nearest(s string, names []string) string {
	s = strings.ToLower(s)
	best, least := "", max(1, len(s)/3)+1
	if len(s) > 64 {
		return ""
	}
	for _, n := range names {
		if d := distance(s, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is how many letters are to be put in, taken out, changed or swapped with their neighbour to come from a
// to b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
