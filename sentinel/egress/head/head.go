// SPDX-License-Identifier: Apache-2.0

// Package head reads the head of one HTTP/1.1 request from a worker, strictly. A worker may be taken over; where two
// readers of one head disagree (two lengths, a bare line feed, a folded line, an absolute target), the one that judges
// and the one that sends would see different requests. So whatever RFC 9112 lets a server tolerate is refused here,
// the head is parsed once, and everything after works on its parts.
package head

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"strings"
)

// Limits of a head.
const (
	MaxBytes  = 16 << 10 // the reader's buffer must be as large
	MaxFields = 64
)

// ErrMalformed is wrapped by every refusal of bytes; ErrTooLarge by a head above MaxBytes.
var (
	ErrMalformed = errors.New("malformed request")
	ErrTooLarge  = errors.New("request head too large")
)

// Field is one header line; Name is in canonical form (Content-Type), Value without outer blanks.
type Field struct{ Name, Value string }

// Request is a head taken apart.
type Request struct {
	Method   string
	Path     string // begins with '/', percent-encoding as written
	Query    string // without '?', as written
	HasQuery bool
	Host     string // of the one Host header, as written
	Length   int64  // of the body; -1 is chunked
	Close    bool   // the worker ends the connection after this request
	// Fields are the others, without Host, Content-Length, Transfer-Encoding and Connection.
	Fields []Field
}

// Canonical is the form of a header name that Fields have.
func Canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// Get is the value of the first field of that canonical name.
func (r *Request) Get(name string) (string, bool) {
	for _, f := range r.Fields {
		if f.Name == name {
			return f.Value, true
		}
	}
	return "", false
}

// Take removes every field of that canonical name and returns its value. Two of them are an error.
func (r *Request) Take(name string) (string, error) {
	value, n, kept := "", 0, r.Fields[:0]
	for _, f := range r.Fields {
		if f.Name == name {
			value, n = f.Value, n+1
			continue
		}
		kept = append(kept, f)
	}
	r.Fields = kept
	if n > 1 {
		return "", fmt.Errorf("%w: %s twice", ErrMalformed, name)
	}
	return value, nil
}

// Read reads one head from br, whose buffer must hold MaxBytes. io.EOF means that the worker closed between requests.
func Read(br *bufio.Reader) (*Request, error) {
	raw, err := next(br)
	if err != nil {
		return nil, err
	}
	return Parse(raw)
}

// next takes the bytes of one head, final empty line included, off br.
func next(br *bufio.Reader) (string, error) {
	seen := 0
	for {
		b, err := br.Peek(seen + 1)
		if err != nil {
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				return "", fmt.Errorf("%w: above %d bytes", ErrTooLarge, br.Size())
			case errors.Is(err, io.EOF) && len(b) > 0:
				return "", fmt.Errorf("%w: ends inside the head", ErrMalformed)
			}
			return "", err
		}
		b, _ = br.Peek(br.Buffered())
		if i := bytes.Index(b[max(0, seen-3):], []byte("\r\n\r\n")); i >= 0 {
			n := max(0, seen-3) + i + 4
			if n > MaxBytes {
				return "", fmt.Errorf("%w: above %d bytes", ErrTooLarge, MaxBytes)
			}
			raw := string(b[:n])
			_, err := br.Discard(n)
			return raw, err
		}
		if len(b) >= MaxBytes {
			return "", fmt.Errorf("%w: above %d bytes", ErrTooLarge, MaxBytes)
		}
		seen = len(b)
	}
}

// Parse reads a whole head: request line, fields, empty line.
func Parse(raw string) (*Request, error) {
	bad := func(why string) (*Request, error) { return nil, fmt.Errorf("%w: %s", ErrMalformed, why) }
	line, rest, ok := strings.Cut(raw, "\r\n")
	if !ok {
		return bad("no request line")
	}
	r := new(Request)
	method, line, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(line, " ")
	switch {
	case !ok || !ok2 || version != "HTTP/1.1":
		return bad("request line is not METHOD target HTTP/1.1")
	case !isMethod(method):
		return bad("method")
	case !isTarget(target):
		return bad("target is not an absolute path in visible ASCII")
	}
	r.Method = method
	r.Path, r.Query, r.HasQuery = strings.Cut(target, "?")
	r.Fields = make([]Field, 0, 12)
	var hosts, lengths, codings, conns int
	for {
		line, rest, ok = strings.Cut(rest, "\r\n")
		if !ok {
			return bad("no empty line")
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !IsToken(name) {
			return bad("field name")
		}
		value = strings.Trim(value, " \t")
		if !IsValue(value) {
			return bad("field value of " + name)
		}
		switch name = textproto.CanonicalMIMEHeaderKey(name); name {
		case "Host":
			r.Host = value
			hosts++
		case "Content-Length":
			n, ok := parseLength(value)
			if !ok {
				return bad("Content-Length")
			}
			r.Length = n
			lengths++
		case "Transfer-Encoding":
			if value != "chunked" {
				return bad("Transfer-Encoding other than chunked")
			}
			r.Length = -1
			codings++
		case "Connection":
			switch strings.ToLower(value) {
			case "close":
				r.Close = true
			case "keep-alive":
			default:
				return bad("Connection other than close or keep-alive")
			}
			conns++
		default:
			if len(r.Fields) == MaxFields {
				return nil, fmt.Errorf("%w: more than %d fields", ErrTooLarge, MaxFields)
			}
			r.Fields = append(r.Fields, Field{name, value})
		}
	}
	switch {
	case rest != "":
		return bad("bytes after the head")
	case hosts != 1:
		return bad("must have one Host")
	case lengths+codings > 1 || conns > 1:
		return bad("framing said twice")
	}
	return r, nil
}

// parseLength reads decimal digits without sign, up to 2^53.
func parseLength(s string) (int64, bool) {
	if len(s) < 1 || len(s) > 15 || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	var n int64
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

func isMethod(s string) bool {
	for i := 0; i < len(s); i++ {
		if (s[i] < 'A' || s[i] > 'Z') && s[i] != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 20
}

func isTarget(s string) bool {
	if s == "" || s[0] != '/' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// IsToken says that s is a token of RFC 9110 5.6.2.
func IsToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') &&
			strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// IsValue says that s may be a field value: visible ASCII, blanks and tabs.
func IsValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}
