// SPDX-License-Identifier: Apache-2.0

// Package envelope holds one request to one entry of the envelope that sentinel filled in for an allowed call. A worker
// that was taken over may send any bytes it likes; what the entry does not list, it must not get out: another method,
// path, query parameter, header, field or body. Everything here is a pure function, and every miss is a refusal.
package envelope

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/head"
)

// Errors. ErrAuthority is a Host other than the entry's; ErrOutside everything else that the entry does not list.
var (
	ErrOutside   = errors.New("outside the envelope")
	ErrAuthority = errors.New("another authority than the envelope's")
)

func outside(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrOutside, fmt.Sprintf(format, args...))
}

// neutral headers need no entry: they change neither what is asked for nor what is done. Content-Type is held to the
// body; egress sets User-Agent and Accept-Encoding itself.
var neutral = []string{"Accept", "Accept-Encoding", "Accept-Language", "User-Agent"}

// never are headers that no entry opens: they change the method, the connection or where the request goes, or name a
// caller that nobody checked. Names that end in '-' are prefixes. Cookie is here because a credential that is placed
// there has been taken out before.
var never = []string{
	"Connection", "Content-Encoding", "Content-Length", "Cookie", "Doorward-", "Expect", "Forwarded", "Host",
	"Http2-Settings", "Keep-Alive", "Proxy-", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Via",
	"X-Forwarded-", "X-Http-Method", "X-Http-Method-Override", "X-Method", "X-Method-Override", "X-Original-Url",
	"X-Real-Ip", "X-Rewrite-Url",
}

// maxOpen is the longest value of an Any match, and of a neutral header, in bytes.
const maxOpen = 2 << 10

// Head holds r, from which the swap has taken the surrogate, to e. For a Follow entry location is the very address that
// this grant was answered with; else it is nil. r's query is rewritten from its parts, so that the server cannot
// read it in another way than it was read here, and r's neutral headers that egress sets itself are dropped.
func Head(e *wire.Entry, r *head.Request, location *guard.URL) error {
	if err := authority(e, r, location); err != nil {
		return err
	}
	if r.Method != e.Method {
		return outside("method %s, not %s", r.Method, e.Method)
	}
	if err := target(e, r, location); err != nil {
		return err
	}
	return headers(e, r)
}

// Authority is where the entry's request goes.
func Authority(e *wire.Entry, location *guard.URL) (guard.Authority, error) {
	if location != nil {
		return location.Authority, nil
	}
	h, err := guard.ParseHost(e.Host)
	if err != nil {
		return guard.Authority{}, err
	}
	if e.Port < 1 || e.Port > 65535 {
		return guard.Authority{}, outside("port %d", e.Port)
	}
	return guard.Authority{Host: h, Port: uint16(e.Port)}, nil
}

func authority(e *wire.Entry, r *head.Request, location *guard.URL) error {
	if (e.Follow != "") != (location != nil) {
		return outside("no Location to follow was received under this grant")
	}
	want, err := Authority(e, location)
	if err != nil {
		return err
	}
	def := uint16(443)
	if e.Scheme == "http" && location == nil {
		def = 80
	} else if e.Scheme != "https" {
		return outside("scheme")
	}
	got, err := guard.ParseAuthority(r.Host, def)
	if err != nil || got != want {
		return fmt.Errorf("%w: the request names %.80q", ErrAuthority, r.Host)
	}
	if location != nil && !MayFollow(e, location) {
		return outside("the Location's host is not one that may be followed")
	}
	return nil
}

// MayFollow says whether e lets a redirect to u be followed. With the credential only to exactly the entry's own host
// and port, which authd holds to the account's: a credential is never carried to another authority.
func MayFollow(e *wire.Entry, u *guard.URL) bool {
	if e.Follow == "" {
		return false
	}
	host := u.Host.String()
	suffix, wild := strings.CutPrefix(e.Host, "*.")
	if int(u.Port) == e.Port {
		if !wild && host == e.Host {
			return true
		}
		if wild && !e.Credential && !u.Host.Addr().IsValid() && strings.HasSuffix(host, "."+suffix) {
			return true
		}
	}
	return !e.Credential && slices.Contains(e.Also, u.Authority.String())
}

func target(e *wire.Entry, r *head.Request, location *guard.URL) error {
	if location != nil {
		if r.Path != location.Path || r.Query != location.Query || r.HasQuery != location.HasQuery {
			return outside("not the Location that was received")
		}
		return nil
	}
	if err := canonicalPath(r.Path, e.AnyPath); err != nil {
		return err
	}
	rest, ok := strings.CutPrefix(r.Path, e.Path)
	switch {
	case !ok || e.Path == "":
		return outside("path")
	case rest != "" && !e.AnyPath:
		return outside("path")
	case rest != "" && !strings.HasSuffix(e.Path, "/") && rest[0] != '/':
		return outside("path")
	}
	return query(e, r)
}

// canonicalPath refuses a path that two readers could take for different ones. In a path that is not known beforehand
// (open) it refuses what would turn into such a one when decoded twice, too. A path keeps swap.PathMark, so braces
// pass.
func canonicalPath(p string, open bool) error {
	if p == "" || p[0] != '/' {
		return outside("path does not begin with '/'")
	}
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '/':
			rest := p[i+1:]
			if seg, _, more := strings.Cut(rest, "/"); seg == "." || seg == ".." || seg == "" && more {
				return outside("path with an empty or dot segment")
			}
		case c == '%':
			if i+2 >= len(p) || !isUpperHex(p[i+1]) || !isUpperHex(p[i+2]) {
				return outside("path with a percent sequence that is not two upper-case hex digits")
			}
			v := unhex(p[i+1])<<4 | unhex(p[i+2])
			if v < ' ' || v == 0x7f || v == '/' || v == '\\' || isUnreserved(v) {
				return outside("path with %%%s, which is ambiguous", p[i+1:i+3])
			}
			if v == '%' && open && i+4 < len(p) && isHex(p[i+3]) && isHex(p[i+4]) {
				return outside("path with a percent sequence encoded twice")
			}
			i += 2
		case !isUnreserved(c) && strings.IndexByte("!$&'()*+,=:@{}", c) < 0:
			return outside("path with a byte that must be percent-encoded")
		}
	}
	return nil
}

// pair is one query parameter, decoded.
type pair struct{ name, value string }

// maxParams is how many query parameters are read.
const maxParams = 64

func query(e *wire.Entry, r *head.Request) error {
	var got []pair
	if r.HasQuery {
		for kv := range strings.SplitSeq(r.Query, "&") {
			name, value, ok := strings.Cut(kv, "=")
			n, err := decodeQuery(name)
			v, err2 := decodeQuery(value)
			if !ok || n == "" || err != nil || err2 != nil {
				return outside("query parameter that is not name=value in percent-encoding")
			}
			if len(got) == maxParams {
				return outside("more than %d query parameters", maxParams)
			}
			got = append(got, pair{n, v})
		}
	}
	if err := match(e.Query, got, "query parameter"); err != nil {
		return err
	}
	var b strings.Builder
	for i, p := range got {
		if i > 0 {
			b.WriteByte('&')
		}
		encodeQuery(&b, p.name)
		b.WriteByte('=')
		encodeQuery(&b, p.value)
	}
	r.Query, r.HasQuery = b.String(), len(got) > 0
	return nil
}

// match holds pairs to matches: each name of want with exactly its values in order, and no other name.
func match(want []wire.Match, got []pair, what string) error {
	used := 0
	for i, m := range want {
		if slices.ContainsFunc(want[:i], func(o wire.Match) bool { return o.Name == m.Name }) {
			return outside("%s %.40q is listed twice", what, m.Name)
		}
		var values []string
		for _, p := range got {
			if p.name == m.Name {
				values = append(values, p.value)
			}
		}
		used += len(values)
		switch {
		case len(values) == 0 && m.Optional:
		case m.Any:
			if len(values) != 1 || len(values[0]) > maxOpen {
				return outside("%s %.40q: must be there once, with at most %d bytes", what, m.Name, maxOpen)
			}
		case !slices.Equal(values, m.Values):
			return outside("%s %.40q: not the values that were allowed", what, m.Name)
		}
	}
	if used != len(got) {
		for _, p := range got {
			if !slices.ContainsFunc(want, func(m wire.Match) bool { return m.Name == p.name }) {
				return outside("%s %.40q is not listed", what, p.name)
			}
		}
	}
	return nil
}

// headers holds the fields to the entry. Content-Type is the body's business.
func headers(e *wire.Entry, r *head.Request) error {
	want := make([]wire.Match, len(e.Header))
	for i, m := range e.Header {
		m.Name = head.Canonical(m.Name)
		if isNever(m.Name) {
			return outside("header %s is never let through", m.Name)
		}
		want[i] = m
	}
	listed := func(name string) bool {
		return slices.ContainsFunc(want, func(m wire.Match) bool { return m.Name == name })
	}
	got, kept := make([]pair, 0, len(r.Fields)), r.Fields[:0]
	var once []string // neutral ones that were seen: two of a kind are read as the first by one server, as the last by another
	for _, f := range r.Fields {
		if isNever(f.Name) {
			return outside("header %.40q is never let through", f.Name)
		}
		isNeutral := slices.Contains(neutral, f.Name)
		if isNeutral || f.Name == "Content-Type" {
			if slices.Contains(once, f.Name) {
				return outside("header %s stands twice", f.Name)
			}
			once = append(once, f.Name)
		}
		switch {
		case listed(f.Name):
		case f.Name == "Content-Type":
			kept = append(kept, f)
			continue
		case isNeutral:
			if len(f.Value) > maxOpen {
				return outside("header %s is too long", f.Name)
			}
			if f.Name != "User-Agent" {
				kept = append(kept, f)
			}
			continue
		}
		got = append(got, pair{f.Name, f.Value})
		kept = append(kept, f)
	}
	r.Fields = kept
	return match(want, got, "header")
}

func isNever(name string) bool {
	for _, n := range never {
		if name == n || strings.HasSuffix(n, "-") && strings.HasPrefix(name, n) {
			return true
		}
	}
	return false
}

// decodeQuery reads application/x-www-form-urlencoded strictly.
func decodeQuery(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, badQuery(s)
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '+':
			b = append(b, ' ')
		case '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return "", ErrOutside
			}
			b = append(b, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		default:
			b = append(b, s[i])
		}
	}
	return string(b), badQuery(s)
}

// badQuery refuses what servers split or read differently when it is not encoded.
func badQuery(raw string) error {
	if strings.ContainsAny(raw, ";\\#\"<>[]^`{|}") {
		return ErrOutside
	}
	return nil
}

func encodeQuery(b *strings.Builder, s string) {
	const hexDigits = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		if c := s[i]; isUnreserved(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' ||
		c == '~'
}

func isUpperHex(c byte) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'F' }

func isHex(c byte) bool { return isUpperHex(c) || 'a' <= c && c <= 'f' }

// unhex is the value of one hex digit.
func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}
