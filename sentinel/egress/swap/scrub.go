// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/base64"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Scrubber finds the forms of a set of secrets in a stream of bytes: as they are, in base64 (standard and URL alphabet,
// all three alignments, the characters that the secret alone decides), and either of these with any byte written in
// percent-encoding, as a JSON or JavaScript escape, or as an HTML character reference, mixed as it may be. It is
// immutable and may be shared.
//
// It is no automaton over the encodings: it skips to a byte that may begin a form and compares from there, reading one
// byte or one escape at a time. Nearly all positions are left at the first or second byte.
type Scrubber struct {
	forms []string
	// longest is how many bytes a form may be written in at most.
	longest int
	first   [256]uint8      // 1 + the last form that begins with this byte; 0 is none
	next    []uint8         // 1 + the form before this one that begins with the same byte
	skip    [256]bool       // a form cannot begin at this byte
	pairs   [1 << 10]uint64 // a bit for each two bytes that a form, its first byte plain, can begin with
}

// maxForms keeps indexes in one byte.
const maxForms = 250

// maxUnit is the longest spelling of one character: the longest HTML name, or a number with padding zeros.
const maxUnit = 34

// minForm is the shortest encoded form searched for; below that ordinary text would match.
const minForm = 6

// NewScrubber compiles the forms of the secrets, in about a microsecond: it is made for one answer and dropped with it.
// A secret outside MinSecret to MaxSecret+256 bytes is an error: the caller refuses the request, for its answer could
// not be scrubbed.
func NewScrubber(secrets ...string) (*Scrubber, error) {
	s := &Scrubber{forms: make([]string, 0, 7*len(secrets)), next: make([]uint8, 0, 7*len(secrets))}
	for _, secret := range secrets {
		if len(secret) < MinSecret || len(secret) > MaxSecret+256 {
			return nil, fmt.Errorf("scrub a credential of %d bytes: %w", len(secret), ErrPlace)
		}
		if len(s.forms)+7 > maxForms {
			return nil, fmt.Errorf("scrub %d credentials: too many: %w", len(secrets), ErrPlace)
		}
		s.add(secret)
		for align := range 3 {
			f := aligned(secret, align)
			if len(f) < minForm {
				continue
			}
			s.add(f)
			if strings.ContainsAny(f, "+/") {
				s.add(urlAlphabet.Replace(f))
			}
		}
	}
	for c := range 256 {
		s.skip[c] = s.first[c] == 0
	}
	// Escapes begin with these; what they escape decides.
	for _, intro := range "%\\&" {
		s.skip[intro] = len(s.forms) == 0
	}
	if s.first[' '] != 0 {
		s.skip['+'] = false
	}
	return s, nil
}

func (s *Scrubber) add(form string) {
	if slices.Contains(s.forms, form) {
		return
	}
	s.forms = append(s.forms, form)
	s.longest = max(s.longest, len(form)*maxUnit)
	s.next = append(s.next, s.first[form[0]])
	s.first[form[0]] = uint8(len(s.forms))
	s.pair(form[0], form[1])
	for _, intro := range []byte("%\\&") {
		s.pair(form[0], intro)
	}
	if form[1] == ' ' {
		s.pair(form[0], '+')
	}
}

func (s *Scrubber) pair(a, b byte) {
	i := uint(a)<<8 | uint(b)
	s.pairs[i/64] |= 1 << (i % 64)
}

var urlAlphabet = strings.NewReplacer("+", "-", "/", "_")

// aligned is the part of base64(align bytes + secret + more) that depends on the secret alone.
func aligned(secret string, align int) string {
	all := base64.StdEncoding.EncodeToString([]byte("\x00\x00"[:align] + secret))
	from := (8*align + 5) / 6
	to := 8 * (align + len(secret)) / 6
	return all[from:to]
}

// found is what find says of data from an offset on.
type found struct {
	at, end int  // data[at:end] is a form; at = end = len(data) where there is none
	hold    bool // data[at:] may be the beginning of one
}

// find looks for the first form at or after from. eof: nothing follows data.
func (s *Scrubber) find(data []byte, from int, eof bool) found {
	for i := from; i < len(data); i++ {
		c := data[i]
		if s.skip[c] {
			continue
		}
		if i+1 < len(data) && c != '%' && c != '\\' && c != '&' && c != '+' {
			if j := uint(c)<<8 | uint(data[i+1]); s.pairs[j/64]&(1<<(j%64)) == 0 {
				continue
			}
		}
		if end, more := s.match(data[i:], eof); end > 0 {
			return found{at: i, end: i + end}
		} else if more {
			return found{at: i, end: len(data), hold: true}
		}
	}
	return found{at: len(data), end: len(data)}
}

// match says how long the shortest form at the beginning of d is; 0 and more: it may become one.
func (s *Scrubber) match(d []byte, eof bool) (end int, more bool) {
	var units [2]unit
	n, pending := spellings(d, eof, &units)
	more = pending
	for _, u := range units[:n] {
		for f := s.first[u.s[0]]; f != 0; f = s.next[f-1] {
			e, m := matchForm(d, s.forms[f-1], eof)
			if e > 0 && (end == 0 || e < end) {
				end = e
			}
			more = more || m
		}
	}
	return end, more && end == 0
}

// width is how many readings of one text are followed at once. They differ only where a secret has '%', '\' or '&'.
const width = 16

// maxSpelt is how many bytes one written unit can stand for (an HTML name of two characters), and more.
const maxSpelt = 16

// matchForm follows form through d. A reading is a position in d, and how many of the bytes of the unit there are used.
func matchForm(d []byte, form string, eof bool) (end int, more bool) {
	var a, b [width]int
	cur, next := a[:1], b[:0]
	for j := 0; j < len(form); j++ {
		for _, at := range cur {
			p, k := at/maxSpelt, at%maxSpelt
			// The plain byte, by far the most common.
			if c := form[j]; k == 0 && p < len(d) && d[p] == c && c != '%' && c != '\\' && c != '&' {
				next = insert(next, (p+1)*maxSpelt)
				continue
			}
			var units [2]unit
			n, pending := spellings(d[p:], eof, &units)
			more = more || pending
			for _, u := range units[:n] {
				switch {
				case k >= len(u.s) || u.s[k] != form[j]:
				case k+1 == len(u.s):
					next = insert(next, (p+u.n)*maxSpelt)
				default:
					next = insert(next, at+1)
				}
			}
		}
		if len(next) == 0 {
			return 0, more
		}
		cur, next = next, cur[:0]
	}
	for _, at := range cur {
		if at%maxSpelt == 0 {
			return at / maxSpelt, false
		}
	}
	return 0, more
}

// insert keeps the set sorted and small.
func insert(set []int, p int) []int {
	i, ok := slices.BinarySearch(set, p)
	if ok || len(set) == width {
		return set
	}
	return slices.Insert(set, i, p)
}

// unit is one reading of the beginning of a text: the bytes that stand there, and how long they are written.
type unit struct {
	s string
	n int
}

// spellings gives the one or two readings of d's beginning. pending: more bytes could make another one.
func spellings(d []byte, eof bool, out *[2]unit) (n int, pending bool) {
	if len(d) == 0 {
		return 0, !eof
	}
	out[0] = unit{string(d[:1]), 1}
	var u unit
	switch d[0] {
	case '%':
		u, pending = hexByte(d, 1)
	case '\\':
		u, pending = backslash(d)
	case '&':
		u, pending = reference(d, eof)
	case '+':
		u = unit{" ", 1}
	}
	if u.n > 0 {
		out[1] = u
		return 2, false
	}
	return 1, pending && !eof
}

// hexDigits reads exactly n hex digits at d[from:]; -1 where there are none, pending where d ends before.
func hexDigits(d []byte, from, n int) (v rune, pending bool) {
	for i := from; i < from+n; i++ {
		if i >= len(d) {
			return -1, true
		}
		h := unhex(d[i])
		if h < 0 {
			return -1, false
		}
		v = v<<4 | rune(h)
	}
	return v, false
}

// hexByte reads two hex digits at d[from:] as one byte.
func hexByte(d []byte, from int) (unit, bool) {
	v, pending := hexDigits(d, from, 2)
	if v < 0 {
		return unit{}, pending
	}
	return unit{string([]byte{byte(v)}), from + 2}, false
}

// backslash reads an escape of JSON or JavaScript, surrogate pairs included.
func backslash(d []byte) (unit, bool) {
	if len(d) < 2 {
		return unit{}, true
	}
	switch d[1] {
	case 'u':
		v, pending := hexDigits(d, 2, 4)
		if v < 0 || !utf16.IsSurrogate(v) {
			return runeUnit(v, 6), pending
		}
		if tail := d[6:]; len(tail) < 2 && strings.HasPrefix(`\u`, string(tail)) {
			return unit{}, true
		} else if string(tail[:2]) != `\u` {
			return unit{}, false
		}
		w, pending := hexDigits(d, 8, 4)
		if r := utf16.DecodeRune(v, w); w >= 0 && r != utf8.RuneError {
			return runeUnit(r, 12), false
		}
		return unit{}, pending
	case 'x':
		return hexByte(d, 2)
	case '/', '"', '\\', '\'', '`':
		return unit{string(d[1:2]), 2}, false
	}
	return unit{}, false
}

// runeUnit is a character that is written in n bytes; a negative one is none.
func runeUnit(r rune, n int) unit {
	if r < 0 {
		return unit{}
	}
	return unit{string(r), n}
}

// legacy names are read without their semicolon too.
func legacy(name string) string {
	switch name {
	case "amp", "AMP":
		return "&"
	case "lt", "LT":
		return "<"
	case "gt", "GT":
		return ">"
	case "quot", "QUOT":
		return `"`
	}
	return ""
}

// reference reads an HTML character reference. A numeric or legacy one may lack its semicolon.
func reference(d []byte, eof bool) (unit, bool) {
	if len(d) < 2 {
		return unit{}, true
	}
	i := 1
	if d[1] != '#' {
		for i < len(d) && i < maxUnit && isAlnum(d[i]) {
			i++
		}
		switch name := string(d[1:i]); {
		case i == len(d) && !eof:
			return unit{}, i < maxUnit
		case i < len(d) && d[i] == ';':
			text := string(d[:i+1])
			if s := html.UnescapeString(text); s != text && len(s) < maxSpelt {
				return unit{s, i + 1}, false
			}
		case legacy(name) != "":
			return unit{legacy(name), i}, false
		}
		return unit{}, false
	}
	base, i := rune(10), 2
	if i < len(d) && (d[i] == 'x' || d[i] == 'X') {
		base, i = 16, 3
	}
	start, v := i, rune(0)
	for ; i < len(d) && i < maxUnit; i++ {
		h := rune(unhex(d[i]))
		if h < 0 || h >= base {
			break
		}
		v = min(v*base+h, unicode.MaxRune+1)
	}
	switch {
	case i == len(d) && !eof && i < maxUnit:
		return unit{}, true // another digit or the semicolon may follow
	case i == start || v > unicode.MaxRune:
		return unit{}, false
	case i < len(d) && d[i] == ';':
		i++
	}
	return runeUnit(v, i), false
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
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

// In says whether a whole text holds a form.
func (s *Scrubber) In(text []byte) bool { return s.find(text, 0, true).at < len(text) }

// Text scrubs one whole text, such as a header value, and says how often.
func (s *Scrubber) Text(text, replacement string) (string, int) {
	d := []byte(text)
	f := s.find(d, 0, true)
	if f.at == len(d) {
		return text, 0
	}
	var b strings.Builder
	from, n := 0, 0
	for ; f.at < len(d); f = s.find(d, from, true) {
		b.Write(d[from:f.at])
		b.WriteString(replacement)
		from, n = f.end, n+1
	}
	b.Write(d[from:])
	return b.String(), n
}
