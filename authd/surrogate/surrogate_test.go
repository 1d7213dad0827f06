// SPDX-License-Identifier: Apache-2.0

package surrogate

import (
	"bytes"
	"crypto/rand"
	"errors"
	"math"
	"strings"
	"testing"
)

// Samples that scanners publish as well-formed; none is a live token.
var publishedGitHub = []string{
	"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", // has a leading zero in its checksum
	"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",
	"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",
}

func TestPublishedTokensHoldTheirChecksum(t *testing.T) {
	for _, token := range publishedGitHub {
		if !checksumHolds([]byte(token)) {
			t.Errorf("%s: checksum does not hold", token)
		}
		changed := []byte(token)
		changed[10] ^= 1
		if checksumHolds(changed) {
			t.Errorf("%s: checksum holds although a character was changed", changed)
		}
	}
	for _, bad := range []string{"", "ghp_", "ghp_abcdef", "abcdefghijklmnop",
		"ghp_M7H4jxUDDWHP4kZ6A4dxlQYsQIWJuq11T4V/"} {
		if checksumHolds([]byte(bad)) {
			t.Errorf("%q: checksum holds", bad)
		}
	}
}

func TestShapes(t *testing.T) {
	tests := []struct {
		name, credential string
		prefix, alphabet string
		length           int
		checksum         bool
	}{
		{"classic github", publishedGitHub[0], "ghp_", "base62", 40, true},
		{"github oauth", "gho_" + publishedGitHub[0][4:], "gho_", "base62", 40, true},
		{"github server", "ghs_" + publishedGitHub[0][4:], "ghs_", "base62", 40, true},
		{"github fine-grained", "github_pat_" + strings.Repeat("a", 22) + "_" + strings.Repeat("B", 59),
			"github_pat_", "base62", 93, true},
		{"github fine-grained of another length", "github_pat_" + strings.Repeat("a", 60), "github_pat_",
			"hex", 60 + 11, false},
		{"long ghs", "ghs_123_" + strings.Repeat("aZ", 40), "ghs_", "base64url", 88, false},
		{"npm", "npm_" + strings.Repeat("aZ", 18), "npm_", "base62", 40, true},
		{"gitlab", "glpat-" + strings.Repeat("x9", 10), "glpat-", "base36", 6 + 8 + 25, false},
		{"slack", "xoxb-123456789012-1234567890123-abcdefABCDEFabcdefABCDEF", "xoxb-", "base64url", 56, false},
		{"hex of 40", strings.Repeat("0a", 20), "", "hex", 40, false},
		{"short hex grows", "deadbeef", "", "hex", 40, false},
		{"capital hex", strings.Repeat("0A", 20), "", "HEX", 40, false},
		{"digits", "1234", "", "decimal", 8 + 39, false},
		{"base64 with padding", strings.Repeat("a+/Z", 12) + "==", "", "base64", 50, false},
		{"a passphrase keeps no part of itself", "correct-horse-battery-staple", "", "base64url", 30, false},
		{"a password with a space", "correct horse", "", "other", 30, false},
		{"empty", "", "", "other", 30, false},
		{"very long", strings.Repeat("aZ", 4000), "", "base62", MaxLength, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			shape := ShapeOf([]byte(test.credential))
			value, err := shape.Mint(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(value), test.prefix) || shape.prefix != test.prefix {
				t.Errorf("prefix %q, want %q", shape.prefix, test.prefix)
			}
			if shape.alphabet.name != test.alphabet {
				t.Errorf("alphabet %s, want %s", shape.alphabet.name, test.alphabet)
			}
			if len(value) != test.length {
				t.Errorf("length %d, want %d", len(value), test.length)
			}
			if test.checksum && !checksumHolds(value) {
				t.Errorf("%s: the vendor's check refuses it", value)
			}
			if !Marked(value) {
				t.Errorf("%s is not marked", value)
			}
			if test.credential != "" && Marked([]byte(test.credential)) {
				t.Error("the credential is taken for a surrogate")
			}
		})
	}
}

// Two surrogates of one shape share their prefix, lead, marker and joint, and nothing else is fixed.
func TestRandomBits(t *testing.T) {
	for _, credential := range append(publishedGitHub, "1234", "deadbeef", "xY_", "",
		"github_pat_"+strings.Repeat("a", 22)+"_"+strings.Repeat("B", 59)) {
		shape := ShapeOf([]byte(credential))
		free := shape.length - len(shape.prefix) - len(shape.lead) - len(shape.alphabet.marker)
		if shape.sum {
			free -= checksumLength
		}
		if shape.joint > 0 {
			free--
		}
		if got := float64(free) * math.Log2(float64(len(shape.alphabet.chars))); got < MinBits {
			t.Errorf("%+v: %.1f random bits", shape, got)
		}
		seen := map[string]bool{}
		for range 200 {
			value, err := shape.Mint(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			if seen[string(value)] {
				t.Fatalf("%s: minted twice", value)
			}
			seen[string(value)] = true
		}
	}
}

func TestEveryCharacterIsDrawn(t *testing.T) {
	for _, a := range alphabets {
		out := make([]byte, 20000)
		if err := a.fill(out, rand.Reader); err != nil {
			t.Fatal(err)
		}
		for _, c := range []byte(a.chars) {
			if !bytes.ContainsRune(out, rune(c)) {
				t.Errorf("%s: %q is never drawn", a.name, c)
			}
		}
		if !a.holds(out) {
			t.Errorf("%s: a character outside the alphabet was drawn", a.name)
		}
	}
}

func TestMarkersAreTheirAlphabets(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range alphabets {
		if !a.holds([]byte(a.marker)) || len(a.marker) != 8 || seen[a.marker] {
			t.Errorf("%s: marker %q", a.name, a.marker)
		}
		seen[a.marker] = true
	}
}

func TestUnmarked(t *testing.T) {
	for _, value := range append(publishedGitHub, "", "DoorWard", "ghp_DoorWard", "d00dda2d", strings.Repeat("x", 5000),
		"github_pat_11", "xDoorWard0123456789012345678901") {
		if Marked([]byte(value)) {
			t.Errorf("%q is taken for a surrogate", value)
		}
	}
}

func TestNoRandomNoSurrogate(t *testing.T) {
	broken := errors.New("broken")
	value, err := ShapeOf([]byte("x")).Mint(failing{broken})
	if !errors.Is(err, broken) || value != nil {
		t.Fatalf("%q, %v", value, err)
	}
	if value, err := (Shape{}).Mint(rand.Reader); err == nil || value != nil {
		t.Fatalf("%q minted without a shape", value)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestDigest(t *testing.T) {
	a, b := DigestOf([]byte("a")), DigestOf([]byte("b"))
	if !a.Equal(a) || a.Equal(b) {
		t.Fatal("digests compare wrongly")
	}
}

// Whatever the credential: its surrogate is marked, of its prefix, not longer than bounded, and carries none of it.
func FuzzShape(f *testing.F) {
	for _, seed := range append(publishedGitHub, "", "1234", "glpat-abc", "correct-horse-battery-staple", "\x00\xff") {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, credential []byte) {
		shape := ShapeOf(credential)
		value, err := shape.Mint(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if !Marked(value) {
			t.Fatalf("%q is not marked", value)
		}
		if !bytes.HasPrefix(credential, []byte(shape.prefix)) || len(value) > MaxLength {
			t.Fatalf("%q for %q", value, credential)
		}
		if rest := credential[len(shape.prefix):]; len(rest) >= 12 && bytes.Contains(value, rest) {
			t.Fatalf("%q carries its credential", value)
		}
		if shape.sum && !checksumHolds(value) {
			t.Fatalf("%q: wrong checksum", value)
		}
	})
}

func BenchmarkMint(b *testing.B) {
	shape := ShapeOf([]byte(publishedGitHub[0]))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := shape.Mint(rand.Reader); err != nil {
			b.Fatal(err)
		}
	}
}

// checksumHolds says whether the last six characters of a token are the checksum of what stands between its last "_"
// and them, as GitHub's and npm's format checks ask.
func checksumHolds(token []byte) bool {
	start := 0
	for i, c := range token {
		if c == '_' {
			start = i + 1
		}
	}
	part := token[start:]
	if start == 0 || len(part) <= checksumLength || !base62.holds(part) {
		return false
	}
	body := part[:len(part)-checksumLength]
	return string(appendChecksum(nil, body)) == string(part[len(body):])
}
