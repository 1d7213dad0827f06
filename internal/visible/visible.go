// SPDX-License-Identifier: Apache-2.0

// Package visible writes text that an agent, a vendor or a stranger chose so that a person sees what is there. Cards,
// lists, notices and the record's viewer all go through it. Without it such text could move the cursor, reorder or hide
// what stands beside it, or name a domain that only looks like the one the person knows. It changes what is shown,
// never what runs.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxRun is how many spaces, or equal escapes, stand one after the other before they are counted instead.
const maxRun = 8

// maxMarks is how many combining marks one letter may carry.
const maxMarks = 3

// Line is s on one line: control, bidirectional, invisible and other characters that show nothing, line ends included,
// stand as \u{202e}, bytes that are no UTF-8 as \x{ff}. A long run of one of them, or of spaces, is counted:
// \u{a0}×400.
func Line(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	marks := 0
	var last rune
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		what := ""
		switch {
		case r == utf8.RuneError && n == 1:
			what = fmt.Sprintf(`\x{%x}`, s[i])
		case r == ' ':
			what = " "
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc) && !hidden(r):
			if marks++; marks > maxMarks {
				what = escape(r)
			}
		case r == 0xfe0f && unicode.Is(unicode.So, last): // asks for the coloured form of a symbol
		case hidden(r):
			what = escape(r)
		}
		if what == "" {
			if !unicode.Is(unicode.M, r) {
				marks = 0
			}
			b.WriteRune(r)
			last = r
			i += n
			continue
		}
		run, step := 1, s[i:i+n]
		for strings.HasPrefix(s[i+run*n:], step) {
			run++
		}
		switch {
		case run <= maxRun:
			b.WriteString(strings.Repeat(what, run))
		case r == ' ':
			fmt.Fprintf(&b, `\u{20}×%d`, run)
		default:
			fmt.Fprintf(&b, "%s×%d", what, run)
		}
		i += run * n
		last = 0
	}
	return b.String()
}

// Block is s line by line, each as Line writes it. Lines end at LF or CR LF; tabs become spaces.
func Block(s string) []string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i, l := range lines {
		l = strings.TrimSuffix(l, "\r")
		indent := len(l) - len(strings.TrimLeft(l, " \t"))
		head := strings.ReplaceAll(l[:indent], "\t", "    ")
		if len(head) > 40 {
			head = Line(head)
		}
		lines[i] = head + Line(strings.ReplaceAll(l[indent:], "\t", "    "))
	}
	return lines
}

// Source is Block for text of a person's own, as a file of theirs is shown to them: runs of spaces stay, which columns are made of.
func Source(s string) []string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i, l := range lines {
		words := strings.Split(strings.ReplaceAll(strings.TrimSuffix(l, "\r"), "\t", "    "), " ")
		for j := range words {
			words[j] = Line(words[j])
		}
		lines[i] = strings.Join(words, " ")
	}
	return lines
}

// plain says whether s is printable ASCII without long runs of spaces: most of what there is.
func plain(s string) bool {
	spaces := 0
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
		if spaces++; s[i] != ' ' {
			spaces = 0
		}
		if spaces > maxRun {
			return false
		}
	}
	return true
}

func escape(r rune) string { return fmt.Sprintf(`\u{%x}`, r) }

// hidden says whether a character shows nothing of its own, or changes how others are shown.
func hidden(r rune) bool {
	switch {
	case r == ' ':
		return false
	case !unicode.IsPrint(r): // control, format (bidi, tags, zero width), private, unassigned, spaces other than ' '
		return true
	case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef, r >= 0x180b && r <= 0x180f: // variation selectors
		return true
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x3164, r == 0xffa0, r == 0x2800,
		r == 0x16fe4, r == 0x1d159:
		return true // joiner, fillers, the blank Braille pattern, Khitan filler, the note without a head
	}
	return false
}
