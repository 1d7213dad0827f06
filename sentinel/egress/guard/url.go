// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"strings"
)

// URL is an absolute https address taken apart once. It is passed on as parts and never parsed again, so that no two
// parsers can disagree about it.
type URL struct {
	Authority
	Path  string // begins with '/', percent-encoding as written
	Query string // without '?', as written
	// HasQuery tells "/p?" from "/p".
	HasQuery bool
}

// String rebuilds the address from its parts.
func (u URL) String() string { return "https://" + u.Header() + u.Target() }

// Target is the origin-form: path and query.
func (u URL) Target() string {
	if u.HasQuery {
		return u.Path + "?" + u.Query
	}
	return u.Path
}

// MaxURL is the longest address read, in bytes.
const MaxURL = 8 << 10

// ParseURL reads an absolute https URL of at most MaxURL bytes. Refused are other schemes, userinfo, backslash, control
// bytes, blanks, bytes outside ASCII, a fragment, an empty host, and a broken percent sequence.
func ParseURL(s string) (URL, error) {
	bad := func(why string) (URL, error) {
		return URL{}, fmt.Errorf("read address %.80q: %s: %w", s, why, ErrHost)
	}
	if len(s) > MaxURL {
		return bad("too long")
	}
	const scheme = "https://"
	if len(s) < len(scheme) || !strings.EqualFold(s[:len(scheme)], scheme) {
		return bad("must begin with https://")
	}
	rest := s[len(scheme):]
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, target := rest[:end], rest[end:]
	if strings.ContainsRune(authority, '@') {
		return bad("userinfo")
	}
	a, err := ParseAuthority(authority, 443)
	if err != nil {
		return URL{}, err
	}
	if target == "" || target[0] == '?' {
		target = "/" + target
	}
	u := URL{Authority: a}
	u.Path, u.Query, u.HasQuery = strings.Cut(target, "?")
	if why := badTarget(target); why != "" {
		return bad(why)
	}
	return u, nil
}

// badTarget says what is wrong with an origin-form target by RFC 3986 alone; "" is well.
func badTarget(t string) string {
	for i := 0; i < len(t); i++ {
		c := t[i]
		switch {
		case c <= ' ' || c >= 0x7f:
			return "control byte, blank or byte outside ASCII"
		case strings.IndexByte("\\\"<>^`{|}", c) >= 0:
			return "a byte that must be percent-encoded"
		case c == '#':
			return "fragment"
		case c == '%' && (i+2 >= len(t) || !isHex(t[i+1]) || !isHex(t[i+2])):
			return "broken percent-encoding"
		}
	}
	return ""
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
