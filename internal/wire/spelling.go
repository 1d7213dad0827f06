// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// Spelling is what servers are known to make one name of, of a header field or a query parameter: CGI and its heirs take any sign of a
// field for an underscore; PHP a dot, blank or bracket of a parameter, whose blanks before and index behind it drops. So it has letters
// in lower case and a hyphen for any sign. What is compared by it is refused, never let through.
func Spelling(name string) string {
	name = strings.TrimLeft(strings.ToLower(name), " ")
	if i := strings.IndexByte(name, '['); i > 0 {
		name = name[:i]
	}
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r > 0x7f {
			return r
		}
		return '-'
	}, name)
}
