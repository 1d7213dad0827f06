// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/wire"
)

// ErrPath is wrapped by every refusal of a path.
var ErrPath = errors.New("a path that can be read in more than one way")

// Bounds of a path.
const (
	MaxPath  = 8 << 10 // bytes, as it was written and in its one form
	maxParts = 256     // segments
)

// Path brings the path of a request, as it was written and without query, into its one form (RFC 3986 6.2.2): unreserved
// bytes stand as they are, others in percent-encoding with upper-case digits. Refused is what servers are known to read in
// different ways: `.` and `..` segments in any spelling, `//`, encoded slashes, `;`, backslashes, control bytes and NUL,
// bytes outside ASCII, encoded bytes that are no UTF-8, percent-encoding of percent-encoding, and a `%` without its digits.
//
// One encoded slash passes: in a segment `@scope%2Fname`, as npm writes the names of scoped packages. Match judges such
// a path in both readings.
func Path(raw string) (string, error) {
	bad := func(why string) (string, error) { return "", fmt.Errorf("%s: %w", why, ErrPath) }
	switch {
	case raw == "" || raw[0] != '/':
		return bad("it does not begin with /")
	case len(raw) > MaxPath:
		return bad(fmt.Sprintf("more than %d bytes", MaxPath))
	case strings.Count(raw, "/") > maxParts:
		return bad(fmt.Sprintf("more than %d segments", maxParts))
	}
	parts := strings.Split(raw[1:], "/")
	var out strings.Builder
	out.Grow(len(raw))
	for i, part := range parts {
		s, why := segment(part)
		switch {
		case why != "":
			return bad(why)
		case s == "" && i < len(parts)-1:
			return bad("an empty segment (//)")
		}
		out.WriteByte('/')
		out.WriteString(s)
	}
	if out.Len() > MaxPath { // what is encoded here grows to three bytes
		return bad(fmt.Sprintf("more than %d bytes in its one form", MaxPath))
	}
	return out.String(), nil
}

// segment is the one form of a path's segment, or why there is none.
func segment(s string) (canon, why string) {
	var out, plain strings.Builder // plain is what the segment stands for
	for i := 0; i < len(s); i++ {
		c, encoded := s[i], false
		if c == '%' {
			if i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0 {
				return "", "a % without two hexadecimal digits"
			}
			c, encoded = byte(unhex(s[i+1])<<4|unhex(s[i+2])), true
			i += 2
		}
		switch {
		case c < ' ' || c == 0x7f:
			return "", "a control byte"
		case c == '\\':
			return "", "a backslash"
		case c == ';':
			return "", "a semicolon"
		case unreserved(c) || !encoded && delimiter(c):
			out.WriteByte(c)
		case !encoded && (c == '[' || c == ']' || c == '|'): // browsers send these as they are
			fmt.Fprintf(&out, "%%%02X", c)
		case !encoded && c >= 0x80:
			return "", "a byte outside ASCII that is not percent-encoded"
		case !encoded:
			return "", fmt.Sprintf("%q that is not percent-encoded", c)
		default:
			fmt.Fprintf(&out, "%%%02X", c)
		}
		plain.WriteByte(c)
	}
	canon, text := out.String(), plain.String()
	switch {
	case text == "." || text == "..":
		return "", "a dot segment"
	case !utf8.ValidString(text):
		return "", "percent-encoded bytes that are no UTF-8"
	case strings.Contains(text, "/") && !scoped(text):
		return "", "an encoded slash"
	case hasEscape(text):
		return "", "percent-encoding of percent-encoding"
	}
	return canon, ""
}

// scoped says that a decoded segment is @scope/name of npm.
func scoped(s string) bool {
	scope, name, _ := strings.Cut(s, "/")
	return len(scope) > 1 && scope[0] == '@' && name != "" && !strings.Contains(name, "/") && scope[1] != '.' && name[0] != '.'
}

func hasEscape(s string) bool {
	for i := 0; i+2 < len(s); i++ {
		if s[i] == '%' && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0 {
			return true
		}
	}
	return false
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// delimiter: what else of ASCII stands in a path as it is. The semicolon would be one too.
func delimiter(c byte) bool { return strings.IndexByte("!$&'()*+,=:@", c) >= 0 }

// canonical holds a path to what Path returns, wire.SurrogateMark aside.
func canonical(p string) error {
	c, err := Path(strings.Replace(p, wire.SurrogateMark, "x", 1))
	if err == nil && c != strings.Replace(p, wire.SurrogateMark, "x", 1) {
		err = fmt.Errorf("it is not in its canonical form: %w", ErrPath)
	}
	return err
}

// readings are the forms in which servers may take a canonical path: as it stands; with delimiters that are
// percent-encoded taken for what they stand for; and with the slash of a scoped name taken for one.
func readings(p string) []string {
	out := []string{p}
	if !strings.Contains(p, "%") {
		return out
	}
	add := func(s string) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if p[i] == '%' && i+2 < len(p) {
			if c := byte(unhex(p[i+1])<<4 | unhex(p[i+2])); delimiter(c) {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(p[i])
	}
	add(b.String())
	for _, s := range slices.Clone(out) {
		add(strings.ReplaceAll(s, "%2F", "/"))
	}
	return out
}

// MatchPath says whether a canonical path, in one of the ways that it can be read, is one that the pattern stands for.
func MatchPath(pattern, path string) bool {
	return slices.ContainsFunc(readings(path), func(p string) bool { return fits(pattern, p) })
}

// fits matches one reading of a path. A trailing slash is a segment of its own.
func fits(pattern, path string) bool {
	if pattern == "" || path == "" || pattern[0] != '/' || path[0] != '/' {
		return false
	}
	pattern, path = pattern[1:], path[1:]
	for {
		want, wantRest, wantMore := strings.Cut(pattern, "/")
		if want == "**" && !wantMore {
			return true
		}
		got, gotRest, gotMore := strings.Cut(path, "/")
		if !fitsSegment(want, got) || wantMore != gotMore {
			return false
		}
		if !wantMore {
			return true
		}
		pattern, path = wantRest, gotRest
	}
}

// fitsSegment: a pattern's segment has at most one `{x}`, with text before and behind it. The surrogate's mark stands for
// itself alone, and nothing else stands for it.
func fitsSegment(want, got string) bool {
	before, rest, hole := strings.Cut(want, "{")
	if !hole || strings.Contains(want, wire.SurrogateMark) {
		return want == got
	}
	_, behind, _ := strings.Cut(rest, "}")
	return len(got) > len(before)+len(behind) && strings.HasPrefix(got, before) && strings.HasSuffix(got, behind) &&
		!strings.Contains(got, wire.SurrogateMark)
}
