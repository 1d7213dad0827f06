// SPDX-License-Identifier: Apache-2.0

package github

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

const (
	maxRefusal = 64 << 10 // bytes of a refusal that are read
	maxMessage = 300      // bytes of GitHub's words that are passed on
	maxWait    = 24 * time.Hour
)

// refused is nil for a success, and else the one error that callers know. GitHub says "slow down" in two ways: a 403 or
// 429 with retry-after, and one with nothing remaining; both become rate_limited with a wait.
func refused(c *workers.Call, r *workers.Response) error {
	next := ""
	switch r.Status {
	case http.StatusNotFound:
		next = "check the names; the account's token may also not reach it"
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		next = "the repository has another name now; find it with repos"
	}
	err := r.Refused(next)
	var refusal *wire.Error
	if !errors.As(err, &refusal) || refusal.Code == wire.CodeUnknown || refusal.Code == wire.CodeVendorDown {
		return err
	}
	limited := r.Status == http.StatusForbidden || r.Status == http.StatusTooManyRequests
	if limited && r.Header.Get("Retry-After") == "" && r.Header.Get("X-Ratelimit-Remaining") == "0" {
		return wire.Refuse(wire.CodeRateLimited, "GitHub's limit for this account is used up", untilReset(r, time.Now()))
	}
	if refusal.Code == wire.CodeRateLimited {
		return refusal
	}
	said, readErr := message(r.Body)
	if readErr != nil {
		said = "" // the status alone has to do
	}
	if r.Status == http.StatusForbidden && strings.Contains(said, "not accessible by") {
		return wire.Refuse(wire.CodeMissingScope, "the account's token may not do this (HTTP 403)",
			"it needs: "+strings.Join(c.Method.Scopes, ", "))
	}
	if said != "" {
		refusal.Reason += "; GitHub says: " + strconv.Quote(said)
	}
	return refusal
}

// untilReset says when GitHub's limit starts anew.
func untilReset(r *workers.Response, now time.Time) string {
	wait := time.Minute
	if n, err := strconv.ParseInt(r.Header.Get("X-Ratelimit-Reset"), 10, 64); err == nil && n > 0 && n < 1<<40 {
		wait = time.Unix(n, 0).Sub(now).Round(time.Second)
	}
	return "try again in " + min(max(wait, time.Second), maxWait).String()
}

// message reads what GitHub says of a refusal: its sentence and the fields it complains of. The words are the
// server's, so they are bounded and printable, and stand in quotes.
func message(body io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(body, maxRefusal))
	if err != nil {
		return "", err
	}
	return parseMessage(b), nil
}

func parseMessage(b []byte) string {
	var said struct {
		Message string            `json:"message"`
		Errors  []json.RawMessage `json:"errors"`
	}
	if json.Unmarshal(b, &said) != nil {
		return ""
	}
	out := said.Message
	for i, raw := range said.Errors {
		var one struct {
			Resource string `json:"resource"`
			Field    string `json:"field"`
			Code     string `json:"code"`
			Message  string `json:"message"`
		}
		if i == 5 || json.Unmarshal(raw, &one) != nil {
			break
		}
		out += "; " + strings.Join(strings.Fields(one.Resource+" "+one.Field+" "+one.Code+" "+one.Message), " ")
	}
	out = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, out)
	return workers.Cut(strings.Join(strings.Fields(out), " "), maxMessage)
}
