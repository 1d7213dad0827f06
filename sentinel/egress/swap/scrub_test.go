// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

const replacement = "SURROGATE"

// scrub runs in through a Stream in pieces of the sizes given, the last one repeated.
func scrub(t testing.TB, s *Scrubber, in []byte, sizes ...int) (string, int) {
	t.Helper()
	var out bytes.Buffer
	x := NewStream(&out, s, replacement)
	for i := 0; len(in) > 0; i++ {
		n := min(len(in), max(1, sizes[min(i, len(sizes)-1)]))
		piece := bytes.Clone(in[:n])
		if _, err := x.Write(piece); err != nil {
			t.Fatal(err)
		}
		clear(piece) // the stream must not keep it
		in = in[n:]
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String(), x.Hits
}

// spell writes secret with each byte in a form that pick chooses.
func spell(secret string, pick func(i int) int) string {
	var b strings.Builder
	for i := 0; i < len(secret); i++ {
		c := secret[i]
		if r, n := utf8.DecodeRuneInString(secret[i:]); n > 1 {
			switch pick(i) % 3 {
			case 0:
				b.WriteString(secret[i : i+n])
			case 1:
				fmt.Fprintf(&b, "&#%d;", r)
			default:
				q := strconv.QuoteToASCII(string(r))
				if r > 0xffff {
					hi, lo := utf16.EncodeRune(r)
					q = fmt.Sprintf(`"\u%04x\u%04X"`, hi, lo)
				}
				b.WriteString(q[1 : len(q)-1])
			}
			i += n - 1
			continue
		}
		switch pick(i) % 13 {
		case 1:
			fmt.Fprintf(&b, "%%%02X", c)
		case 2:
			fmt.Fprintf(&b, "%%%02x", c)
		case 3:
			fmt.Fprintf(&b, `\u%04x`, c)
		case 4:
			fmt.Fprintf(&b, `\u%04X`, c)
		case 5:
			fmt.Fprintf(&b, "&#%d;", c)
		case 6:
			fmt.Fprintf(&b, "&#x%x;", c)
		case 7:
			fmt.Fprintf(&b, "&#X%04X;", c)
		case 8:
			fmt.Fprintf(&b, "&#%05d;", c)
		case 9:
			fmt.Fprintf(&b, `\x%02x`, c)
		case 10:
			if strings.IndexByte("/\"\\'", c) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		case 11:
			b.WriteString(html.EscapeString(string([]byte{c})))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

var secrets = []string{
	"ghp_16C7e42F292c6912E7710c838347Ae178B4a", "pass word/with \"quotes\" & <more>=+", "abcdefgh", "a%2Fb%25c%%",
	`back\slash\\`, "aaaaaaaaaaaaab", "s3cret", "p\u00e4ssw\u00f6rt",
}

func TestEveryFormIsFound(t *testing.T) {
	for _, secret := range secrets {
		s, err := NewScrubber(secret)
		if err != nil {
			t.Fatal(err)
		}
		forms := map[string]string{
			"plain": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret), "html": html.EscapeString(secret),
			"lower percent": strings.ToLower(url.QueryEscape(strings.ToLower(secret))),
		}
		if strings.ToLower(secret) != secret {
			delete(forms, "lower percent")
		}
		j, _ := json.Marshal(secret)
		forms["json"] = string(j[1 : len(j)-1])
		forms["html names"] = strings.NewReplacer("\u00e4", "&auml;", "\u00f6", "&ouml;", "_", "&lowbar;", "/", "&sol;",
			"=", "&equals;", "+", "&plus;", "%", "&percnt;", "\\", "&bsol;", "&", "&amp", "\"", "&quot;").Replace(secret)
		if secret != "s3cret" { // too short: its aligned base64 would match ordinary text
			for align := range 3 {
				all := append([]byte("xyz"[:align]), secret...)
				forms[fmt.Sprint("base64 at ", align)] = base64.StdEncoding.EncodeToString(all)
				forms[fmt.Sprint("base64url at ", align)] = base64.RawURLEncoding.EncodeToString(append(all, "tail"...))
				forms[fmt.Sprint("base64 in json at ", align)] = strings.ReplaceAll(base64.StdEncoding.EncodeToString(all), "/",
					`\/`)
				forms[fmt.Sprint("base64 in query at ", align)] = url.QueryEscape(base64.StdEncoding.EncodeToString(all))
			}
		}
		for i := range 13 {
			forms[fmt.Sprint("spelling ", i)] = spell(secret, func(int) int { return i })
			forms[fmt.Sprint("mixed ", i)] = spell(secret, func(k int) int { return i + k })
		}
		for name, form := range forms {
			for _, size := range []int{1, 2, 3, 7, 1000} {
				in := "{\"before\": \"" + form + "\", \"after\": 1}\n" + form
				out, hits := scrub(t, s, []byte(in), size)
				if hits != 2 || strings.Count(out, replacement) != 2 {
					t.Errorf("%q as %s in pieces of %d: %d hits: %q", secret, name, size, hits, out)
				}
				if !strings.HasPrefix(out, `{"before": "`) || !strings.Contains(out, `", "after": 1}`) {
					t.Errorf("%q as %s: text around it changed: %q", secret, name, out)
				}
			}
			if out, n := s.Text("Bearer "+form+", x", replacement); n != 1 || strings.Contains(out, secret) {
				t.Errorf("%q as %s in a header: %q", secret, name, out)
			}
		}
	}
}

func TestOrdinaryTextPasses(t *testing.T) {
	s, err := NewScrubber(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{
		"", "g", "gh", "ghp_", "ghp_16C7e42F292c6912E7710c838347Ae178B4", "% %2 %zz \\ \\u \\u00 & &# &#x &amp &amp; a+b",
		"abcdefg hgfedcba", "100% &nbsp; \\n", strings.Repeat("g", 5000), strings.Repeat("%67", 500),
		strings.Repeat("&#1", 300),
		"&" + strings.Repeat("a", 100), "&#" + strings.Repeat("0", 100), "\\u0067\\u0068p",
	} {
		for _, size := range []int{1, 2, 5, 1000} {
			if out, hits := scrub(t, s, []byte(in), size); out != in || hits != 0 {
				t.Errorf("%.60q in pieces of %d: %.60q, %d hits", in, size, out, hits)
			}
		}
	}
}

// What is passed on before more comes tells nothing of the credential. Who writes into what the vendor stores would else
// learn it letter by letter: where his guess stands at the end of a piece, and is right, the piece comes shorter.
func TestStreamHoldsBackWhateverTheCredentialIs(t *testing.T) {
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	s, err := NewScrubber(token)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.StdEncoding.EncodeToString([]byte(token))
	passed := func(pieces ...string) (lens []int) {
		t.Helper()
		var out bytes.Buffer
		x := NewStream(&out, s, replacement)
		for _, p := range pieces {
			if _, err := x.Write([]byte(p)); err != nil {
				t.Fatal(err)
			}
			lens = append(lens, out.Len())
		}
		if err := x.Close(); err != nil || out.String() != strings.Join(pieces, "") {
			t.Errorf("at the end %q, %v", out.String(), err)
		}
		return lens
	}
	for _, before := range []string{"", "data: hello\n\n", "a line\nand ", strings.Repeat("long ", 2000)} {
		for _, c := range []struct{ right, wrong string }{
			{"g", "h"}, {"ghp_16", "ghp_17"}, {token[:len(token)-1], "x" + token[:len(token)-2]}, {b64[:7], "zzzzzzz"},
			{"%67h", "%66h"}, {"&#103;h&#x", "&#104;h&#x"}, {`\u0067h`, `\u0068h`},
			{"&#0000000000000000000000000000103", "&#0000000000000000000000000000104"},
		} {
			got, other := passed(before+c.right, ".", "."), passed(before+c.wrong, ".", ".")
			if !slices.Equal(got, other) {
				t.Errorf("behind %.20q: %v passed on after %q, %v after %q", before, got, c.right, other, c.wrong)
			}
		}
	}
	// An event does not wait, and neither does a long text but for its end.
	if got := passed("data: g\n\n", ": keep-alive\n\n"); got[0] != 9 || got[1] != 9+14 {
		t.Errorf("of events %v were passed on", got)
	}
	if got := passed(strings.Repeat("g", 100_000)); got[0] < 100_000-s.longest {
		t.Errorf("of 100000 bytes %v were passed on", got)
	}
}

func TestShortAndLongSecretsAreRefused(t *testing.T) {
	for _, n := range []int{0, 1, MinSecret - 1, MaxSecret + 257} {
		if s, err := NewScrubber(strings.Repeat("x", n)); err == nil || s != nil {
			t.Errorf("%d bytes: accepted", n)
		}
	}
	s, err := NewScrubber()
	if err != nil {
		t.Fatal(err)
	}
	if out, n := s.Text("% & \\ anything", replacement); out != "% & \\ anything" || n != 0 {
		t.Errorf("without secrets: %q", out)
	}
}

// FuzzScrub: any split gives the same output, and no form of the secret survives.
func FuzzScrub(f *testing.F) {
	for i, secret := range secrets {
		f.Add(secret, []byte("a"+spell(secret, func(k int) int { return k })+"b"), uint64(i))
		f.Add(secret, []byte(secret[:len(secret)-1]+secret+"%"), uint64(i))
	}
	f.Fuzz(func(t *testing.T, secret string, noise []byte, seed uint64) {
		if strings.ContainsAny(secret, replacement) || len(secret) > 100 || len(noise) > 2048 || !utf8.ValidString(secret) {
			return
		}
		s, err := NewScrubber(secret)
		if err != nil {
			return
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		in := bytes.Clone(noise)
		in = append(in, spell(secret, func(int) int { return rnd.IntN(13) })...)
		in = append(in, noise...)
		whole, hits := scrub(t, s, in, len(in))
		if hits == 0 {
			// Only where the noise swallows the beginning as part of another reading may it differ; then cut it off.
			if _, alone := scrub(t, s, in[len(noise):], len(in)); alone == 0 {
				t.Fatalf("%q in %q: not found", secret, in)
			}
		}
		sizes := make([]int, 1+rnd.IntN(20))
		for i := range sizes {
			sizes[i] = 1 + rnd.IntN(9)
		}
		if split, n := scrub(t, s, in, sizes...); split != whole || n != hits {
			t.Fatalf("%q in %q: whole %q, in pieces %v %q", secret, in, whole, sizes, split)
		}
		if strings.Contains(whole, secret) {
			t.Fatalf("%q survives in %q", secret, whole)
		}
	})
}

func BenchmarkNewScrubber(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewScrubber("ghp_16C7e42F292c6912E7710c838347Ae178B4a"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScrubNoMatch(b *testing.B) {
	s, err := NewScrubber("ghp_16C7e42F292c6912E7710c838347Ae178B4a")
	if err != nil {
		b.Fatal(err)
	}
	text := []byte(strings.Repeat(`{"id":1296269,"node_id":"MDEwOlJlcG9zaXRvcnkxMjk2MjY5","name":"Hello-World","full_name":`+
		`"octocat/Hello-World","html_url":"https:\/\/api.test\/octocat?x=1&y=%20","description":"a \"quoted\" thing\n"},`,
		150))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		x := NewStream(io.Discard, s, replacement)
		_, _ = x.Write(text)
		_ = x.Close()
	}
}
