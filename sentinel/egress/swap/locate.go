// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/head"
)

// A worker's request is written by its framework, and Find knows the surrogate beforehand. A cell's request is written by
// whatever runs there: Locate looks in the declared place for what has the form of a surrogate, and leaves all else as it was.

// ErrNone is a request that carries no surrogate anywhere.
var ErrNone = fmt.Errorf("no surrogate on this request: %w", ErrSurrogate)

// ErrSigned is a request that carries a signature over what would be swapped.
var ErrSigned = fmt.Errorf("signing is not supported here: %w", ErrSurrogate)

// Head is what of a request a surrogate can stand in. Path and Query are as written, Query without '?'; names are as written
// too.
type Head struct {
	Path, Query string
	Fields      []head.Field
}

// Located is a surrogate in its place.
type Located struct {
	Surrogate string

	place     wire.Placement
	field     int // of Fields; -1: not there
	pre, post string
	encode    func(string) string
}

func plain(s string) string { return s }

// Locate finds the surrogate in the declared place of h, once and nowhere else in h. Whatever else may stand in the place, an
// attacker's own key for one, is none.
func Locate(h Head, p wire.Placement) (*Located, error) {
	if Signed(h) {
		return nil, ErrSigned
	}
	l := &Located{place: p, field: -1}
	var err error
	switch p.Kind {
	case Header, Basic:
		err = l.inField(h)
	case Query:
		err = l.inQuery(h)
	case Path:
		err = l.inPath(h)
	default:
		err = l.bad("unknown kind")
	}
	if err != nil {
		return nil, err
	}
	if l.Surrogate == "" {
		if Elsewhere(h) {
			return nil, l.bad("it stands elsewhere")
		}
		return nil, ErrNone
	}
	rest := Head{h.Path, h.Query, slices.Clone(h.Fields)}
	l.write(&rest, wire.SurrogateMark)
	if l.field >= 0 {
		rest.Fields = slices.Delete(rest.Fields, l.field, l.field+1)
	}
	if Elsewhere(rest) {
		return nil, l.bad("it also stands elsewhere")
	}
	if name := l.beside(rest); name != "" {
		return nil, l.bad("beside it there is " + name)
	}
	return l, nil
}

// keyFields and keyParams are where vendors take a credential, by wire.Spelling. Beside the surrogate there must be none: which of the
// two a server takes nobody here knows, and an attacker's own would have it act, and keep what it is sent, for the attacker.
var (
	keyFields = []string{"authorization", "proxy-authorization", "api-key", "apikey", "x-api-key", "x-apikey", "x-goog-api-key",
		"x-auth-key", "x-auth-token", "x-access-token", "private-token", "job-token", "deploy-token"}
	keyParams = []string{"access-token", "api-key", "apikey", "auth-token", "oauth-token", "private-token", "job-token", "x-api-key",
		"x-goog-api-key"}
)

// Key says that a field of that name may be another credential than the one whose place is p.
func Key(field string, p wire.Placement) bool {
	name := wire.Spelling(field)
	return slices.Contains(keyFields, name) || p.Kind == Header && name == wire.Spelling(p.Name)
}

// beside names what may be another credential in what is left of a head, or is "".
func (l *Located) beside(rest Head) string {
	own := ""
	if l.place.Kind == Query {
		own = wire.Spelling(l.place.Name)
	}
	for _, f := range rest.Fields {
		if Key(f.Name, l.place) {
			return f.Name
		}
	}
	for pair := range strings.FieldsFuncSeq(rest.Query, func(r rune) bool { return r == '&' || r == ';' }) {
		raw, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(raw)
		if l.place.Kind == Query && name == l.place.Name && value == wire.SurrogateMark {
			continue
		}
		if err != nil {
			return "a parameter that cannot be read"
		}
		if name = wire.Spelling(name); slices.Contains(keyParams, name) || l.place.Kind == Query && name == own {
			return "the parameter " + raw
		}
	}
	return ""
}

func (l *Located) bad(why string) error {
	return fmt.Errorf("%w: %s", ErrSurrogate, why)
}

func (l *Located) inField(h Head) error {
	name := "Authorization"
	if l.place.Kind == Header {
		if name = head.Canonical(l.place.Name); wire.NeverHeader(name) {
			return l.bad("never a place for a credential")
		}
	}
	for i, f := range h.Fields {
		if head.Canonical(f.Name) != name {
			continue
		}
		if l.field >= 0 {
			return l.bad("more than one " + name)
		}
		l.field = i
	}
	if l.field < 0 {
		return nil
	}
	value := h.Fields[l.field].Value
	if l.place.Kind == Header {
		// Schemes are compared as HTTP does, and kept as they are written.
		if n := len(l.place.Prefix); len(value) > n && strings.EqualFold(value[:n], l.place.Prefix) && isSurrogate(value[n:]) {
			l.pre, l.Surrogate, l.encode = value[:n], value[n:], plain
		}
		return nil
	}
	user, password, ok := strings.Cut(decodeBasic(value), ":")
	if !ok {
		return nil
	}
	declared := l.place.User
	switch {
	case isSurrogate(password): // of any user; the one that is declared is what the server gets
		l.Surrogate = password
		if declared != "" {
			user = declared
		}
		l.encode = func(s string) string { return encodeBasic(user + ":" + s) }
	case isSurrogate(user) && password == "":
		l.Surrogate = user
		l.encode = func(s string) string {
			if declared != "" {
				return encodeBasic(declared + ":" + s)
			}
			return encodeBasic(s + ":")
		}
	}
	return nil
}

func encodeBasic(pair string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair))
}

func (l *Located) inQuery(h Head) error {
	from, n := 0, 0
	for kv := range strings.SplitSeq(h.Query, "&") {
		name, value, ok := strings.Cut(kv, "=")
		if got, err := url.QueryUnescape(name); err == nil && got == l.place.Name {
			n++
			v, err := url.QueryUnescape(value)
			if ok && err == nil && isSurrogate(v) {
				at := from + len(name) + 1
				l.pre, l.Surrogate, l.post, l.encode = h.Query[:at], v, h.Query[at+len(value):], escape
			}
		}
		from += len(kv) + 1
	}
	if n > 1 { // servers differ in which of them they take
		return l.bad("the parameter is there more than once")
	}
	return nil
}

func (l *Located) inPath(h Head) error {
	from, n := 0, 0
	for segment := range strings.SplitSeq(h.Path, "/") {
		if v, ok := strings.CutPrefix(segment, l.place.Prefix); ok && isSurrogate(v) {
			n++
			at := from + len(l.place.Prefix)
			l.pre, l.Surrogate, l.post, l.encode = h.Path[:at], v, h.Path[at+len(v):], escape
		}
		from += len(segment) + 1
	}
	if n > 1 {
		return l.bad("it is in more than one segment")
	}
	return nil
}

func (l *Located) write(h *Head, s string) {
	s = l.pre + s + l.post
	switch {
	case l.field >= 0:
		h.Fields[l.field].Value = s
	case l.place.Kind == Query:
		h.Query = s
	default:
		h.Path = s
	}
}

// Mask puts wire.SurrogateMark in the surrogate's place of h.
func (l *Located) Mask(h *Head) { l.write(h, wire.SurrogateMark) }

// Put places the credential in h, which is the head that Locate saw.
func (l *Located) Put(h *Head, secret string) error {
	if err := CheckPlace(l.place, secret); err != nil {
		return err
	}
	l.write(h, l.encode(secret))
	return nil
}

// isSurrogate says that s, whole, has a surrogate's form.
func isSurrogate(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return surrogate.Marked([]byte(s))
}

// Elsewhere says whether what may be a surrogate stands anywhere in h, as it is, percent-encoded or inside Basic.
func Elsewhere(h Head) bool {
	for _, s := range []string{h.Path, h.Query} {
		if surrogate.Within(s) > 0 {
			return true
		}
		if strings.Contains(s, "%") {
			if u, err := url.PathUnescape(s); err == nil && surrogate.Within(u) > 0 {
				return true
			}
		}
	}
	for _, f := range h.Fields {
		if surrogate.Within(f.Value) > 0 || surrogate.Within(f.Name) > 0 || surrogate.Within(decodeBasic(f.Value)) > 0 {
			return true
		}
	}
	return false
}

// signedSchemes begin an Authorization that is computed over the request, a key, or both.
var signedSchemes = []string{"aws4-", "aws ", "goog4-", "google4-", "oss4-", "digest ", "oauth ", "signature ", "hawk ", "hmac",
	"sharedkey", "mac ", "tc3-", "acs3-", "bce-auth-"}

// Signed says that a request is signed over what a swap would change: the server would get a swapped key beside a signature that
// was made with the surrogate.
func Signed(h Head) bool {
	for _, f := range h.Fields {
		switch name := strings.ToLower(f.Name); name {
		case "authorization":
			value := strings.ToLower(f.Value)
			for _, s := range signedSchemes {
				if strings.HasPrefix(value, s) {
					return true
				}
			}
		case "signature", "signature-input":
			return true
		default:
			if strings.HasPrefix(name, "x-hub-signature") {
				return true
			}
		}
	}
	for kv := range strings.SplitSeq(h.Query, "&") {
		switch name, _, _ := strings.Cut(kv, "="); strings.ToLower(name) {
		case "x-amz-signature", "x-goog-signature", "x-oss-signature", "oauth_signature":
			return true
		}
	}
	return false
}
