// SPDX-License-Identifier: Apache-2.0

package visible

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The texts of case AP-02, in turn.
func TestAP02LineShowsWhatIsThere(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain text is as it is", "Lunch at 12 – café, 日本, Ünal ✓", "Lunch at 12 – café, 日本, Ünal ✓"},
		{"right-to-left override", "invoice\u202efdp.exe", `invoice\u{202e}fdp.exe`},
		{"isolates", "a\u2066b\u2069", `a\u{2066}b\u{2069}`},
		{"zero width space", "pay\u200bpal", `pay\u{200b}pal`},
		{"zero width joiner", "a\u200db", `a\u{200d}b`},
		{"tag characters", "x\U000e0041\U000e0042", `x\u{e0041}\u{e0042}`},
		{"variation selectors beyond the first", "x\U000e0100", `x\u{e0100}`},
		{"variation selector on a letter", "x\ufe0f", `x\u{fe0f}`},
		{"variation selector on a symbol stays", "\u2764\ufe0f", "\u2764\ufe0f"},
		{"line separator", "a\u2028b", `a\u{2028}b`},
		{"next line", "a\u0085b", `a\u{85}b`},
		{"erase the line", "a\x1b[2Kb", `a\u{1b}[2Kb`},
		{"a terminal's link", "\x1b]8;;http://evil.example\x07x", `\u{1b}]8;;http://evil.example\u{7}x`},
		{"8-bit control sequence", "a\u009b2Kb", `a\u{9b}2Kb`},
		{"carriage return", "safe\revil", `safe\u{d}evil`},
		{"line feed", "a\nb", `a\u{a}b`},
		{"400 no-break spaces", "a" + strings.Repeat("\u00a0", 400) + "b", `a\u{a0}×400b`},
		{"400 spaces", "a" + strings.Repeat(" ", 400) + "b", `a\u{20}×400b`},
		{"some spaces", "a    b", "a    b"},
		{"Hangul filler", "a\u3164b", `a\u{3164}b`},
		{"blank Braille", "a\u2800b", `a\u{2800}b`},
		{"Khitan filler", "a\U00016fe4b", `a\u{16fe4}b`},
		{"a note without a head", "a\U0001d159b", `a\u{1d159}b`},
		{"soft hyphen", "pay\u00adpal", `pay\u{ad}pal`},
		{"no UTF-8", "a\xff\xfeb", `a\x{ff}\x{fe}b`},
		{"private use", "a\ue000b", `a\u{e000}b`},
		{"many marks", "e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301\u0301" + `\u{301}\u{301}`},
		{"a markdown link is text", "[ok](http://evil.example)", "[ok](http://evil.example)"},
		{"delete", "a\x7fb", `a\u{7f}b`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Line(c.in); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestBlockKeepsLinesAndNothingElse(t *testing.T) {
	got := strings.Join(Block("one\r\n\ttwo\x1b[1A\n\n    three\u2028four\n"), "|")
	if want := `one|    two\u{1b}[1A||    three\u{2028}four`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAP02WarningsNameLookAlikes(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"ASCII", "ada@example.org https://example.org/x?y=z", ""},
		{"another script alone", "Привет мир, γειά σου, 日本語テキスト", ""},
		{"a domain in another script", "президент.рф", ""},
		{"one Cyrillic letter in a word", "pаypal", "mixes Latin and Cyrillic letters"},
		{"one Cyrillic letter in a domain", "ada@pаypal.com", "“pаypal.com” mixes Latin and Cyrillic letters"},
		{"a domain all of look-alikes", "https://рау.com/", "only look like a to z"},
		{"a Latin letter that looks like another", "https://ɡoogle.com/", "only look like a to z"},
		{"an accent", "müller@grün.de", ""},
		{"a Roman numeral", "paypaⅼ.com", "fancy forms"},
		{"Greek", "gοogle.com", "mixes Latin and Greek letters"},
		{"an international label", "ada@xn--pypal-4ve.com", "stands for “pаypal”"},
		{"not an international label", "xn--aaaaaaaa-0.com", "international"},
		{"full width", "ｐaypal", "fancy forms"},
		{"mathematical", "𝐩aypal", "fancy forms"},
		{"other dots", "example。org", "dots that are not the usual one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(Warnings(c.in), "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{"a", "\u202e\x1b", "\xff", strings.Repeat("\u00a0", 30), "\u2764\ufe0f\u200d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := Line(s)
		if !utf8.ValidString(out) {
			t.Fatalf("%q is no UTF-8", out)
		}
		var last rune
		for _, r := range out {
			if (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || hidden(r)) && !(r == 0xfe0f && unicode.Is(unicode.So,
				last)) {
				t.Fatalf("%q leaves %U", s, r)
			}
			last = r
		}
		for _, l := range Block(s) {
			if strings.ContainsAny(l, "\n\r\t") {
				t.Fatalf("%q: a line has an end within", s)
			}
		}
		Warnings(s)
	})
}

// Columns of a file stay as they are, and what shows nothing is made visible all the same.
func TestSourceKeepsColumns(t *testing.T) {
	for in, want := range map[string]string{
		"a = 1" + strings.Repeat(" ", 30) + "# b\n": "a = 1" + strings.Repeat(" ", 30) + "# b",
		strings.Repeat(" ", 60) + "x\ty\r\n":        strings.Repeat(" ", 60) + "x    y",
		"a \u202eb\u200b":                           `a \u{202e}b\u{200b}`,
		"a\x1b[2J" + strings.Repeat("\u00a0", 400):  `a\u{1b}[2J\u{a0}×400`,
	} {
		if got := strings.Join(Source(in), "|"); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
	if got := Source("a\n\nb"); len(got) != 3 {
		t.Errorf("%q", got)
	}
}
