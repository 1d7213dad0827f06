// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{}`, `[1,-0.5e+3,true,false,null,"a\u00e9\ud83d\ude00\n"]`, `{"a":{"b":[{"c":"d"}]}}`,
		`"\ud800x"`, strings.Repeat("2", 400),
		`{"a":1,"a":2}`, `01`, `"` + "\x7f" + `"`, ` [ ] `, strings.Repeat("[", 70)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, ok := parse(in)
		if !ok {
			if v != nil {
				t.Fatal("value returned with refusal")
			}
			return
		}
		if !json.Valid(in) {
			t.Fatalf("took %q, which is no JSON", in)
		}
		var x any
		d := json.NewDecoder(bytes.NewReader(in))
		d.UseNumber() // a number of any length is JSON
		if err := d.Decode(&x); err != nil {
			t.Fatal(err)
		}
		if s, ok := x.(string); ok && text(v.raw) != s {
			t.Fatalf("read %q as %q, want %q", in, text(v.raw), s)
		}
		if out := jsonSafe(v.append(nil)); !json.Valid(out) {
			t.Fatalf("escaped %q to %q, which is no JSON", in, out)
		}
		p := painter{most: 1 << 20, safe: true}
		p.top(v)
		for _, r := range string(p.b) {
			if r != '\n' && hidden(r) {
				t.Fatalf("%q shows %U to a terminal", in, r)
			}
		}
	})
}

func TestParseTakesAllJSONButTwiceTheSameKeyAndTooDeep(t *testing.T) {
	for _, s := range []string{`0`, `-0`, `1.5E-7`, `"\/\b\f"`, "\t[ ]\n", `{"a":[]}`,
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1}`} {
		if _, ok := parse([]byte(s)); !ok {
			t.Errorf("%s: refused", s)
		}
	}
	for _, s := range []string{``, `{`, `[1,]`, `{"a"}`, `{"a":}`, `01`, `1.`, `+1`, `"a`, `"\x"`, `"\u12"`, "\"\n\"",
		`tru`, `{"a":1,"a":1}`, "\"\xff\"", `1 2`,
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"a":1}`, strings.Repeat("[", 66) + strings.Repeat("]", 66)} {
		if _, ok := parse([]byte(s)); ok {
			t.Errorf("%s: taken", s)
		}
	}
}

func TestChoice(t *testing.T) {
	for _, c := range []struct{ in, fields, want string }{
		{`{"a":1,"b":{"c":2,"d":3}}`, "b.c,a", `{"b.c":2,"a":1}`},
		{`{"items":[{"a":1,"b":2},{"a":3}],"total":2}`, "a", `{"items":[{"a":1},{"a":3}]}`},
		{`[{"a":1,"b":2},{"b":3}]`, "a", `[{"a":1},{}]`},
		{`{"people":[{"name":"x"},{"name":"y"}]}`, "people.name", `{"people.name":["x","y"]}`},
		{`{"a.b":1}`, "a.b", `{"a.b":1}`},
	} {
		v, ok := parse([]byte(c.in))
		if !ok {
			t.Fatal(c.in)
		}
		if got := string(choice(v, &options{fields: strings.Split(c.fields, ",")}).append(nil)); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.fields, c.in, got, c.want)
		}
	}
}

func TestVisibleLeavesNothingForATerminalToObey(t *testing.T) {
	for in, want := range map[string]string{
		"plain – ✓ 日本":   "plain – ✓ 日本",
		"\x1b[2J":        `\u{1b}[2J`,
		"a\u202eb":       `a\u{202e}b`,
		"a\u200bb":       `a\u{200b}b`,
		"\U000e0041":     `\u{e0041}`,
		"\U000e0100":     `\u{e0100}`,
		"a\u2028b\u0085": `a\u{2028}b\u{85}`,
		"a\r\nb":         `a\u{d}\u{a}b`,
		"a\u00a0b":       `a\u{a0}b`,
		"\xff":           `\x{ff}`,
		"\u3164":         `\u{3164}`,
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCutEndsAtAWholeRuneOrLine(t *testing.T) {
	b := []byte(strings.Repeat("✓", 100))
	for n := range 300 {
		if c := cut(b, n); len(c) > n || n-len(c) > 2 || !utf8.Valid(c) {
			t.Errorf("cut at %d: %d bytes", n, len(c))
		}
	}
	if got := string(cut([]byte("line by line\nx more"), 14)); got != "line by line\n" {
		t.Errorf("%q", got)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"title", "body", "body-file", "label", "assignee"}
	for in, want := range map[string]string{"titel": "title", "boddy": "body", "lable": "label", "xyz": "", "t": "",
		"assign": "assignee", "bodyfile": "body-file"} {
		if got := nearest(in, names); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
