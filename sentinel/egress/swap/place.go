// SPDX-License-Identifier: Apache-2.0

// Package swap puts a credential in the place of its surrogate on the way out, and takes every form of it out of
// answers on the way back. A taken-over worker tries to have the credential put where it comes back readable (a
// negotiation header, a path that is logged, a hash over it), and a hostile or careless vendor quotes it in an answer.
// So the swap happens in exactly one declared place, and the scrubber knows the usual encodings.
package swap

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/head"
)

// Kinds of wire.Placement.
const (
	Header = "header"
	Basic  = "basic"
	Query  = "query"
	Path   = "path"
)

// PathMark stands in the path of an envelope entry where a path placement has the credential.
const PathMark = "{credential}"

// Errors. ErrPlace: the declaration or the credential cannot be used; ErrSurrogate: the request does not have the
// surrogate in exactly its place.
var (
	ErrPlace     = errors.New("credential cannot be placed")
	ErrSurrogate = errors.New("surrogate not in its place")
)

// MaxSecret is the longest credential in bytes, MinSecret the shortest: what is shorter cannot be told from ordinary
// text in answers.
const (
	MinSecret = 4
	MaxSecret = 4 << 10
)

// CheckPlace refuses a declaration that is no swap position, and a credential that would not stay in it: control
// bytes anywhere (they would add a header), blanks at the ends, and outside ASCII where the place is a header.
func CheckPlace(p wire.Placement, secret string) error {
	bad := func(why string) error { return fmt.Errorf("place credential in %s: %s: %w", p.Kind, why, ErrPlace) }
	if len(secret) < MinSecret || len(secret) > MaxSecret {
		return bad(fmt.Sprintf("it has %d bytes, must have %d to %d", len(secret), MinSecret, MaxSecret))
	}
	for i := 0; i < len(secret); i++ {
		if c := secret[i]; c < ' ' || c == 0x7f {
			return bad("it has a control byte")
		}
	}
	if !utf8.ValidString(secret) {
		return bad("it is not UTF-8")
	}
	if strings.Trim(secret, " ") != secret {
		return bad("it begins or ends with a blank")
	}
	if strings.ContainsFunc(p.Prefix, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return bad("its prefix has a byte that is not visible ASCII")
	}
	switch p.Kind {
	case Header:
		switch {
		case !head.IsToken(p.Name):
			return bad("no header name")
		case wire.NeverHeader(head.Canonical(p.Name)):
			return bad(head.Canonical(p.Name) + " is never a place for a credential")
		case !head.IsValue(secret):
			return bad("it has a byte that is not visible ASCII")
		}
	case Basic:
		if strings.Contains(p.User, ":") || strings.ContainsFunc(p.User, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return bad("the user name has a colon or control byte")
		}
		if p.User == "" && strings.Contains(secret, ":") {
			return bad("as a user name it must not have a colon")
		}
	case Query:
		if p.Name == "" {
			return bad("no parameter name")
		}
	case Path:
		if strings.ContainsAny(p.Prefix, "/?#%;\\ ") {
			return bad("prefix is not part of one path segment")
		}
	default:
		return bad("not header, basic, query or path")
	}
	return nil
}

// Find checks that the surrogate stands in the declared place of r, once and nowhere else in the head, and takes the
// place out of r, so that what is left can be held to the envelope. A path keeps PathMark in the surrogate's place.
func Find(r *head.Request, p wire.Placement, surrogate string) error {
	bad := func(why string) error { return fmt.Errorf("find surrogate in %s: %s: %w", p.Kind, why, ErrSurrogate) }
	if len(surrogate) < MinSecret {
		return bad("no surrogate")
	}
	switch p.Kind {
	case Header, Basic:
		name, want := head.Canonical(p.Name), p.Prefix+surrogate
		if p.Kind == Basic {
			name = "Authorization"
		} else if wire.NeverHeader(name) {
			return bad("never a place for a credential")
		}
		got, err := r.Take(name)
		if err != nil {
			return bad("more than one " + name)
		}
		if p.Kind == Basic {
			got, want = decodeBasic(got), pair(p, surrogate)
		}
		if got != want {
			return bad(name + " is not exactly what was declared")
		}
	case Query:
		kept, n := "", 0
		for _, kv := range strings.Split(r.Query, "&") {
			if name, value, ok := strings.Cut(kv, "="); ok && name == escape(p.Name) && value == escape(surrogate) {
				n++
				continue
			}
			if kept != "" {
				kept += "&"
			}
			kept += kv
		}
		if n != 1 {
			return bad("must be there once")
		}
		r.Query, r.HasQuery = kept, kept != ""
	case Path:
		segments, n := strings.Split(r.Path, "/"), 0
		for i, s := range segments {
			if s == p.Prefix+surrogate {
				segments[i] = p.Prefix + PathMark
				n++
			}
		}
		if n != 1 {
			return bad("must be one whole segment")
		}
		r.Path = strings.Join(segments, "/")
	default:
		return bad("unknown kind")
	}
	if strings.Contains(r.Path, surrogate) || strings.Contains(r.Query, surrogate) {
		return bad("it also stands elsewhere in the target")
	}
	for _, f := range r.Fields {
		if strings.Contains(f.Value, surrogate) {
			return bad("it also stands in " + f.Name)
		}
	}
	return nil
}

// Put places the credential in r, after Find took the surrogate out and the envelope allowed the rest.
func Put(r *head.Request, p wire.Placement, secret string) error {
	if err := CheckPlace(p, secret); err != nil {
		return err
	}
	switch p.Kind {
	case Header:
		r.Fields = append(r.Fields, head.Field{Name: head.Canonical(p.Name), Value: p.Prefix + secret})
	case Basic:
		v := "Basic " + base64.StdEncoding.EncodeToString([]byte(pair(p, secret)))
		r.Fields = append(r.Fields, head.Field{Name: "Authorization", Value: v})
	case Query:
		kv := escape(p.Name) + "=" + escape(secret)
		if r.Query != "" {
			kv = r.Query + "&" + kv
		}
		r.Query, r.HasQuery = kv, true
	case Path:
		r.Path = strings.Replace(r.Path, p.Prefix+PathMark, p.Prefix+escape(secret), 1)
	}
	return nil
}

// pair is the user-pass of Basic. Without a declared user the credential is the user and the password is empty, as
// vendors that take a token by Basic want it.
func pair(p wire.Placement, secret string) string {
	if p.User == "" {
		return secret + ":"
	}
	return p.User + ":" + secret
}

// decodeBasic reads the value of a Basic Authorization strictly: one blank, standard alphabet, padded, canonical.
// Anything else is "".
func decodeBasic(v string) string {
	const scheme = "Basic "
	if len(v) < len(scheme) || !strings.EqualFold(v[:len(scheme)], scheme) {
		return ""
	}
	b, err := base64.StdEncoding.Strict().DecodeString(v[len(scheme):])
	if err != nil || base64.StdEncoding.EncodeToString(b) != v[len(scheme):] {
		return ""
	}
	return string(b)
}

// escape keeps only unreserved bytes (RFC 3986 2.3), so that a credential stays one parameter or one segment.
func escape(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}
