// SPDX-License-Identifier: Apache-2.0

// Package leaks looks for known secrets where they must not be: in the memory, environment, arguments and open files
// of processes, and in files.
//
// It is how Doorward tests its own promise, in the tests and as `doorward doctor --leaks`. It finds a secret as it is
// and in the forms that programs usually give it; it does not find one that was encrypted, compressed, split or hashed,
// so a clean report is evidence and no proof. What it could not read it says. It needs the secrets, and so is itself
// worth attacking: it never prints one, and looks only at what it is told to.
package leaks

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"unicode/utf16"
)

// MinSecret is the shortest secret that is looked for, in bytes: a shorter one is found everywhere by chance.
const MinSecret = 8

// minPattern is the shortest form that is looked for.
const minPattern = 8

// Secret is what is looked for, and what a report calls it.
type Secret struct {
	Name  string
	Value []byte
}

// Finding is one place where a secret was found.
type Finding struct {
	Where  string // as given, or what of which process
	Offset int64  // in bytes; in memory the address
	Secret string // its name
	Form   string // in which form, such as "base64"
}

func (f Finding) String() string {
	return fmt.Sprintf("%s at %#x: %s as %s", f.Where, f.Offset, f.Secret, f.Form)
}

// pattern is one form of one secret.
type pattern struct {
	secret, form string
	bytes        []byte
}

// Scanner looks for a list of secrets. It may be used side by side.
//
// All memory of a machine's processes is looked through for a hundred forms, so each byte must cost little: only every
// stride-th word is looked at, and one bit says whether a word stands in any pattern where such a look would fall.
type Scanner struct {
	patterns []pattern
	longest  int
	bits     [1 << 10]uint64      // of the hashes of the words in places
	places   map[uint32][]placing // by word
}

// stride is the distance between two looks; minPattern leaves room for a word at each offset below it.
const stride = minPattern - 3

// placing says that a word stands in a pattern at an offset.
type placing struct{ pattern, offset int }

func word(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

func hash(w uint32) (int, uint64) {
	h := (w * 0x9e3779b1) >> 16
	return int(h >> 6), 1 << (h & 63)
}

// New makes a scanner for secrets.
func New(secrets ...Secret) (*Scanner, error) {
	if len(secrets) == 0 {
		return nil, errors.New("look for leaks: no secret was given")
	}
	s := &Scanner{places: map[uint32][]placing{}}
	for _, secret := range secrets {
		if len(secret.Value) < MinSecret {
			return nil, fmt.Errorf("look for leaks: %s is shorter than %d bytes and would be found by chance",
				secret.Name, MinSecret)
		}
		for _, f := range Forms(secret.Value) {
			for offset := stride - 1; offset >= 0; offset-- { // the earliest place of a pattern is tried first
				w := word(f.Bytes[offset:])
				i, bit := hash(w)
				s.bits[i] |= bit
				s.places[w] = append(s.places[w], placing{len(s.patterns), offset})
			}
			s.patterns = append(s.patterns, pattern{secret.Name, f.Name, f.Bytes})
			s.longest = max(s.longest, len(f.Bytes))
		}
	}
	return s, nil
}

// Form is one way in which a secret may stand somewhere.
type Form struct {
	Name  string
	Bytes []byte
}

// Forms returns the usual encodings of a secret, itself first, none twice and none shorter than a chance hit.
func Forms(secret []byte) []Form {
	text := string(secret)
	forms := []Form{{"itself", slices.Clone(secret)}}
	add := func(name string, b []byte) {
		if len(b) >= minPattern && !slices.ContainsFunc(forms, func(f Form) bool { return bytes.Equal(f.Bytes, b) }) {
			forms = append(forms, Form{name, b})
		}
	}
	for offset := range 3 {
		add("base64", base64At(base64.StdEncoding, secret, offset))
		add("base64url", base64At(base64.URLEncoding, secret, offset))
	}
	lower := hex.EncodeToString(secret)
	add("hex", []byte(lower))
	add("hex", []byte(strings.ToUpper(lower)))
	for _, keep := range percentKept {
		add("percent", percent(text, keep, upperHex))
		add("percent", percent(text, keep, lowerHex))
	}
	add("percent", bytes.ReplaceAll(percent(text, unreserved, upperHex), []byte("%20"), []byte("+")))
	for _, escape := range []bool{true, false} {
		add("JSON", jsonString(text, escape))
	}
	add("JSON", bytes.ReplaceAll(jsonString(text, false), []byte("/"), []byte(`\/`)))
	add("HTML", []byte(html.EscapeString(text)))
	add("HTML", []byte(htmlNames.Replace(text)))
	wide := utf16.Encode([]rune(text))
	little, big := make([]byte, 0, 2*len(wide)), make([]byte, 0, 2*len(wide))
	for _, u := range wide {
		little = append(little, byte(u), byte(u>>8))
		big = append(big, byte(u>>8), byte(u))
	}
	add("UTF-16", little)
	add("UTF-16", big)
	return forms
}

// percentKept are the sets of characters that encoders leave as they are: RFC 3986's unreserved, browsers'
// encodeURIComponent and encodeURI, Go's for path segments, RFC 3986's for whole paths and queries, and none.
var percentKept = [...]string{
	unreserved, unreserved + "!*'()", unreserved + "!*'();/?:@&=+$,#", unreserved + "$&+=:@",
	unreserved + "!$&'()*+,;=:@", unreserved + "!$&'()*+,;=:@/", unreserved + "!$&'()*+,;=:@/?", "",
}

const (
	unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
	upperHex   = "0123456789ABCDEF"
	lowerHex   = "0123456789abcdef"
)

var htmlNames = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;")

// base64At is what of the base64 of any text around the secret depends on the secret alone, where it begins offset
// bytes after a multiple of three.
func base64At(e *base64.Encoding, secret []byte, offset int) []byte {
	out := []byte(e.WithPadding(base64.NoPadding).EncodeToString(append(make([]byte, offset), secret...)))
	first := (8*offset + 5) / 6            // characters that hold bits of what stands before
	last := 8 * (offset + len(secret)) / 6 // characters without bits of what stands behind
	return out[first:min(last, len(out))]
}

func percent(text, keep, digits string) []byte {
	var out []byte
	for _, c := range []byte(text) {
		if strings.IndexByte(keep, c) >= 0 {
			out = append(out, c)
		} else {
			out = append(out, '%', digits[c>>4], digits[c&15])
		}
	}
	return out
}

func jsonString(text string, escapeHTML bool) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(escapeHTML)
	if err := e.Encode(text); err != nil {
		return nil
	}
	return bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(b.Bytes()), []byte(`"`)), []byte(`"`))
}

// Bytes looks through b, which where names. Of each form it reports the first place.
func (s *Scanner) Bytes(where string, b []byte) []Finding { return s.at(where, 0, b) }

func (s *Scanner) at(where string, base int64, b []byte) []Finding {
	var found []Finding
	var seen map[int]bool // patterns
	for i := 0; i+4 <= len(b); i += stride {
		w := word(b[i:])
		if at, bit := hash(w); s.bits[at]&bit == 0 {
			continue
		}
		for _, place := range s.places[w] {
			p := &s.patterns[place.pattern]
			from := i - place.offset
			if from < 0 || seen[place.pattern] || !bytes.HasPrefix(b[from:], p.bytes) {
				continue
			}
			if seen == nil {
				seen = map[int]bool{}
			}
			seen[place.pattern] = true
			found = append(found, Finding{where, base + int64(from), p.secret, p.form})
		}
	}
	return found
}

// window is how much is looked at at once, in bytes.
const window = 1 << 20

// Reader looks through all that r gives. Of each form it reports the first place.
func (s *Scanner) Reader(where string, r io.Reader) ([]Finding, error) {
	buf := make([]byte, 0, window+s.longest)
	defer clear(buf[:cap(buf)])
	var found []Finding
	var base int64
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		found = merge(found, s.at(where, base, buf))
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return found, nil
			}
			return found, fmt.Errorf("look through %s: %w", where, err)
		}
		keep := min(s.longest-1, len(buf)) // a secret may lie across the border
		base += int64(len(buf) - keep)
		copy(buf, buf[len(buf)-keep:])
		buf = buf[:keep]
	}
}

// merge adds what is new: another place, secret or form.
func merge(found, more []Finding) []Finding {
	for _, f := range more {
		if !slices.ContainsFunc(found, func(g Finding) bool {
			return g.Where == f.Where && g.Secret == f.Secret && g.Form == f.Form
		}) {
			found = append(found, f)
		}
	}
	return found
}
