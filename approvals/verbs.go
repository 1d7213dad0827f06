// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"net/http"
	"slices"

	"github.com/doorward/doorward/internal/wire"
	"github.com/go-json-experiment/json"
)

// strangers are the verbs that are carried without a session, verbs all others but events, which waits.
var (
	strangers = []string{"login", "logout", "enrol"}
	verbs     = []string{"pending", "show", "body", "edit", "decide", "history", "grants", "revoke", "stop", "session", "push",
		"seen", "accounts", "settings", "labels", "taint", "find"}
)

func known(verb string) bool { return slices.Contains(strangers, verb) || slices.Contains(verbs, verb) }

// refuse answers in this program's own name: nothing signs it, and the page goes by the status alone.
func refuse(w http.ResponseWriter, code int, e *wire.Error) {
	b, err := json.Marshal(e)
	if err != nil {
		code, b = http.StatusInternalServerError, []byte(`{"code":"internal","reason":"the answer cannot be written as JSON"}`)
	}
	answer(w, code, b)
}

func answer(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// status is that of HTTP for a reason.
func status(c wire.Code) int {
	switch c {
	case wire.CodeNoSession:
		return http.StatusUnauthorized
	case wire.CodeUsage, wire.CodeBadArgument, wire.CodeWrongDescription, wire.CodeAmbiguousAccount, wire.CodeUnknownConnector,
		wire.CodeUnknownMethod:
		return http.StatusBadRequest
	case wire.CodeNotFound:
		return http.StatusNotFound
	case wire.CodeNotAllowed, wire.CodeDenied, wire.CodeStopped:
		return http.StatusForbidden
	case wire.CodeConflict, wire.CodeExpired, wire.CodeRevoked, wire.CodeUnknown:
		return http.StatusConflict
	case wire.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case wire.CodeTooMany, wire.CodeRateLimited:
		return http.StatusTooManyRequests
	case wire.CodeUnavailable, wire.CodeLocked, wire.CodeFull:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
