// SPDX-License-Identifier: Apache-2.0

package visible

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// scripts are those whose letters are taken for one another.
var scripts = [...]struct {
	name  string
	table *unicode.RangeTable
}{
	{"Latin", unicode.Latin}, {"Cyrillic", unicode.Cyrillic}, {"Greek", unicode.Greek}, {"Armenian", unicode.Armenian},
	{"Cherokee", unicode.Cherokee}, {"Coptic", unicode.Coptic}, {"Georgian", unicode.Georgian}, {"Lisu", unicode.Lisu},
	{"Hebrew", unicode.Hebrew}, {"Arabic", unicode.Arabic}, {"Devanagari", unicode.Devanagari}, {"Thai", unicode.Thai},
}

// likeLatin are letters, most of other scripts, that look like a to z in common fonts.
const likeLatin = "ɑɡıȷʟʀʏᴠᴡᴢᴏᴄᴍᴋᴛавсԁеһіјӏкмпорԛѕтухԝуАВСЕНІЈКМОРЅТХҮΑΒΕΖΗΙΚΜΝΟΡΤΥΧανοριυօոսցհ"

// Warnings says what of s may be taken for something else, in words, none twice: words that mix scripts, letters that
// are fancy forms of a to z, and domains (where a dot or @ stands) that are written in, or stand for, letters that look
// like Latin ones. It finds what usually deceives; nothing found is no proof.
func Warnings(s string) []string {
	var out []string
	add := func(w string) {
		if !slices.Contains(out, w) && len(out) < 8 {
			out = append(out, w)
		}
	}
	for _, w := range strings.FieldsFunc(s, unicode.IsSpace) {
		if fancy(w) {
			add(quote(w) + " has letters that are fancy forms of a to z")
		}
		for _, word := range strings.FieldsFunc(w, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			if names := mixed(word); names != "" {
				add(quote(word) + " mixes " + names + " letters")
			}
		}
		for _, d := range domains(w) {
			domain(d, add)
		}
	}
	return out
}

func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return "“" + Line(s) + "”"
}

// mixed names the scripts of a word that has more than one, or "".
func mixed(word string) string {
	var names []string
	for _, r := range word {
		if r < 0x80 && !unicode.IsLetter(r) {
			continue
		}
		for _, s := range scripts {
			if unicode.Is(s.table, r) && !slices.Contains(names, s.name) {
				names = append(names, s.name)
			}
		}
	}
	if len(names) < 2 {
		return ""
	}
	return strings.Join(names, " and ")
}

// fancy says whether a word has full-width or mathematical letters or digits, or Roman numerals of one character.
func fancy(w string) bool {
	return strings.ContainsFunc(w, func(r rune) bool {
		return r >= 0xff10 && r <= 0xff5a || r >= 0x1d400 && r <= 0x1d7ff || r >= 0x24b6 && r <= 0x24e9 ||
			r >= 0x2160 && r <= 0x217f || r >= 0x1f130 && r <= 0x1f189
	})
}

// domains are the parts of a word that are, or may be read as, a domain.
func domains(w string) []string {
	var out []string
	for _, p := range strings.FieldsFunc(w, func(r rune) bool {
		return strings.ContainsRune("@/:<>()[]{},;\"'`?#=&|\\",
			r)
	}) {
		p = strings.Trim(p, ".。．｡")
		if strings.ContainsAny(p, ".。．｡") {
			out = append(out, p)
		}
	}
	return out
}

func domain(d string, add func(string)) {
	if strings.ContainsAny(d, "。．｡") {
		add(quote(d) + " has dots that are not the usual one")
	}
	for _, label := range strings.FieldsFunc(d, func(r rune) bool { return strings.ContainsRune(".。．｡", r) }) {
		shown := label
		if strings.HasPrefix(strings.ToLower(label), "xn--") {
			u, err := idna.Punycode.ToUnicode(strings.ToLower(label))
			if err != nil || u == label {
				add(quote(d) + " has a label that says it is international and is not")
				continue
			}
			shown = u
			add(quote(d) + " stands for " + quote(u))
		}
		if names := mixed(shown); names != "" {
			add(quote(d) + " mixes " + names + " letters")
		} else if latinLooking(shown) {
			add(quote(d) + " is written in letters that only look like a to z")
		}
	}
}

// latinLooking says whether a word has letters that are not Latin, and all of them look it.
func latinLooking(w string) bool {
	other := false
	for _, r := range w {
		if r < 0x80 || !unicode.IsLetter(r) {
			continue
		}
		if !strings.ContainsRune(likeLatin, r) {
			return false
		}
		other = true
	}
	return other
}
