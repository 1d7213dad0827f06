// SPDX-License-Identifier: Apache-2.0

package sentinel

import "fmt"

// pageBytes is what one answer of a list holds, about: a frame has wire.MaxFrame, and one item more must fit.
const pageBytes = 512 << 10

// page cuts what follows after out of a list that is sorted by id, and returns it with where the next page begins,
// empty for nowhere.
func page[T any](all []T, after string, id func(*T) string) (out []T, next string, err error) {
	size := 0
	for i := range all {
		if id(&all[i]) <= after {
			continue
		}
		b, err := writeJSON(&all[i]) // in which text is never shorter
		if err != nil {
			return nil, "", err
		}
		if size += len(b); size > pageBytes && len(out) > 0 {
			return out, id(&out[len(out)-1]), nil
		}
		out = append(out, all[i])
	}
	return out, "", nil
}

// pageLines cuts a page out of lines of text, from the one numbered first.
func pageLines(all []string, first int) (out []string, next int) {
	first = min(max(first, 0), len(all))
	size := 0
	for i, l := range all[first:] {
		if size += len(l) + 8; size > pageBytes && i > 0 {
			return all[first : first+i], first + i
		}
	}
	return all[first:], 0
}

// few leaves of the lines of a report what one answer holds beside others of its like, and says how many more there are
// and where to see them.
func few(lines []string, where string) []string {
	size := 0
	for i, l := range lines {
		if size += len(l) + 8; size > pageBytes/4 && i > 0 {
			return append(lines[:i:i], fmt.Sprintf("and %d more, see: %s", len(lines)-i, where))
		}
	}
	return lines
}
