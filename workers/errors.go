// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

const (
	maxRefusal = 16 << 10 // bytes of a refusal by egress
	maxDepth   = 64       // nesting of a vendor's JSON
	maxWait    = 24 * time.Hour
)

// egressError reads a refusal by egress: the code of its header, the words of its body.
func egressError(code string, body io.Reader) *wire.Error {
	refusal := wire.Error{Code: wire.Code(code)}
	b, err := io.ReadAll(io.LimitReader(body, maxRefusal))
	if err == nil && json.Unmarshal(b, &refusal) == nil {
		refusal.Code = wire.Code(code)
	}
	if refusal.Reason == "" {
		refusal.Reason = "egress refused the request"
	}
	return &refusal
}

// Refused turns an answer that is no success into the one refusal that callers know, in Doorward's own words. It
// returns nil for a success. next says what a person or agent can do where that depends on the vendor.
func (r *Response) Refused(next string) error {
	say := func(code wire.Code, reason, next string) error {
		return wire.Refuse(code, reason+" (HTTP "+strconv.Itoa(r.Status)+")", next)
	}
	switch s := r.Status; {
	case s/100 == 2:
		return nil
	case s == http.StatusUnauthorized:
		return say(wire.CodeReconnectRequired, "the server does not take the account's credential", next)
	case s == http.StatusTooManyRequests || s == http.StatusForbidden && r.Header.Get("Retry-After") != "":
		return say(wire.CodeRateLimited, "the server asks to wait", r.wait())
	case s == http.StatusConflict || s == http.StatusPreconditionFailed:
		return say(wire.CodeConflict, "it changed at the server, or exists already", "read it again, then decide anew")
	case s == http.StatusRequestEntityTooLarge || s == http.StatusInsufficientStorage:
		return say(wire.CodeTooLarge, "the server finds it too large", next)
	case s/100 == 4, s == http.StatusNotImplemented:
		return say(wire.CodeVendorRefused, "the server refused", next)
	case s/100 == 3:
		return say(wire.CodeVendorRefused, "the server redirects elsewhere, which is not followed", next)
	case r.write:
		return say(wire.CodeUnknown, "the server failed; it may have run", "look before repeating it")
	default:
		return say(wire.CodeVendorDown, "the server failed", "try again later")
	}
}

// wait says how long the server asks to wait. Both forms of Retry-After (RFC 9110 section 10.2.3) are read.
func (r *Response) wait() string {
	v := r.Header.Get("Retry-After")
	d := time.Minute
	if n, err := strconv.ParseInt(v, 10, 32); err == nil && n >= 0 {
		d = time.Duration(n) * time.Second
	} else if t, err := http.ParseTime(v); err == nil {
		d = time.Until(t).Round(time.Second)
	}
	return fmt.Sprintf("try again in %s", min(max(d, time.Second), maxWait))
}

// JSON reads the whole body into v, a pointer. A body that nests deeper than 64 is refused before it is decoded.
func (r *Response) JSON(v any) error {
	b, err := r.Bytes()
	if err != nil {
		return err
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !strings.HasSuffix(strings.TrimSpace(media), "json") {
		return wire.Refuse(wire.CodeVendorDown, "the server answered something that is no JSON", "try again later")
	}
	if !shallow(b, maxDepth) {
		return wire.Refuse(wire.CodeTooLarge, "the server's answer nests too deep", "")
	}
	if err := json.Unmarshal(b, v); err != nil {
		return wire.Refuse(wire.CodeVendorDown, "the server's answer is not what its description says", "")
	}
	return nil
}

// shallow says whether JSON text nests at most limit deep.
func shallow(b []byte, limit int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return true
}
