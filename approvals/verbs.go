// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"bytes"
	"context"
	"net/http"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// verb is one that the page may ask.
type verb struct {
	open  bool // without a session
	carry func(ctx context.Context, sentinel *daemon.Client, session, body []byte) (any, error)
}

// verbs are all but events, which waits, and logout, which asks nobody.
var verbs = map[string]*verb{
	"login":   open(carry[wire.LoginReq, wire.LoginResp]("login")),
	"enrol":   open(carry[wire.EnrolReq, wire.EnrolResp]("enrol")),
	"pending": carry[wire.ListFrom, wire.PendingResp]("pending"),
	"show":    carry[wire.CallRef, wire.WebShown]("show"),
	"body":    carry[wire.BodyReq, wire.BodyResp]("body"),
	"decide":  carry[wire.WebDecideReq, wire.WebDecided]("decide"),
	"history": carry[wire.AuditReq, wire.AuditResp]("history"),
	"grants":  carry[wire.ListFrom, wire.GrantsResp]("grants"),
	"revoke":  carry[wire.PersonRevokeReq, wire.Report]("revoke"),
	"stop":    carry[wire.StopReq, wire.Report]("stop"),
	"session": carry[wire.SessionReq, wire.SessionResp]("session"),
}

func open(v *verb) *verb {
	v.open = true
	return v
}

// carry is the verb whose body is a Req of package wire and whose answer a Resp, each in JSON by their tags.
func carry[Req, Resp any](name string) *verb {
	return &verb{carry: func(ctx context.Context, sentinel *daemon.Client, session, body []byte) (any, error) {
		req := &wire.WebReq[Req]{Session: session}
		if err := decode(body, &req.Body); err != nil {
			return nil, wire.Refuse(wire.CodeUsage, "read the request: "+err.Error(), "docs/protocol.md says what "+name+" takes")
		}
		resp := new(Resp)
		if err := sentinel.Call(ctx, name, req, resp); err != nil {
			return nil, err
		}
		return resp, nil
	}}
}

// decode reads one JSON object into a struct: names by case, none twice, none that is unknown, text that is UTF-8, nothing behind
// it. Two readers of one text must not read two things.
func decode[T any](body []byte, v *T) error {
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return errNoObject
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		*v = *new(T)
		return err
	}
	return nil
}

var errNoObject = wire.Refuse(wire.CodeUsage, "it is no JSON object", "")

func encode(v any) ([]byte, error) {
	return json.Marshal(v, jsonv1.OmitEmptyWithLegacySemantics(true))
}

func answer(w http.ResponseWriter, code int, v any) {
	b, err := encode(v)
	if err != nil {
		code, b = http.StatusInternalServerError, []byte(`{"code":"internal","reason":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(b)
}

func refuse(w http.ResponseWriter, code int, e *wire.Error) { answer(w, code, e) }

// status is that of HTTP for a reason. The page goes by the reason.
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
