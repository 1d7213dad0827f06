// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

const (
	maxStranger = 16 << 10                 // bytes that are read of who has no session
	maxAnswer   = wire.MaxFrame - maxSlack // bytes of an answer in JSON
)

// webHandler answers what a browser asks; the verb is the call's.
type webHandler = func(context.Context, *daemon.Call, *wire.WebReq) (*wire.WebResp, error)

// viewed is a verb for browsers that have a session. h, which is the person's own verb where there is one, finds the approver as the
// caller. Of who has no session nothing is read.
func viewed[Req, Resp any](s *Sentinel, h func(context.Context, *daemon.Call, *Req) (*Resp, error)) webHandler {
	return func(ctx context.Context, c *daemon.Call, req *wire.WebReq) (*wire.WebResp, error) {
		return signed(ctx, s, c, req, func() (*Resp, error) {
			name, viewer, ok := s.sessionOf(req.Session)
			if !ok {
				return nil, wire.Refuse(wire.CodeNoSession, "this browser is not signed in, or not any more", "sign in with your passkey")
			}
			c.Peer = byPasskey(name)
			q := new(Req)
			if err := readJSON(c.Verb, req.Body, q); err != nil {
				return nil, err
			}
			if may := forViewers[c.Verb]; viewer && (may == nil || !may(q)) {
				s.refused("sentinel", actor(c.Peer), c.Verb, wire.CodeNotAllowed, "a viewer does nothing")
				return nil, wire.Refuse(wire.CodeNotAllowed, name+" may see, and do nothing", "somebody who may approve has to do it")
			}
			if records(c.Verb, q) && !s.mayRecord(pageAllowance(name), refusalCost) {
				return nil, tooMuchRecorded
			}
			return h(ctx, c, q)
		})
	}
}

// records says whether a request of a session alone may have something written into the record, each time anew. Without a bound on that
// who holds approvals, and a session that goes by, could fill the disk, and with it stop everything for longer than it is there.
func records(verb string, q any) bool {
	if p, ok := q.(*wire.WebPushReq); ok {
		return p.Off || len(p.Public) > 0
	}
	may := forViewers[verb]
	return verb != "decide" && (may == nil || !may(q)) // a decision is signed, and of equal refusals the record has one
}

// pageAllowance is where it stands what an approver's sessions may still have written. No cell has such a name.
func pageAllowance(name string) string { return "page/" + name }

var tooMuchRecorded = wire.Refuse(wire.CodeTooMany, "too much was asked from the page lately that stands in the record",
	"wait some minutes, or do it on the machine: man doorward")

// open is a verb for whoever asks; h gets the session, which may be one or not.
func open[Req, Resp any](s *Sentinel, h func(ctx context.Context, session []byte, q *Req) (*Resp, error)) webHandler {
	return func(ctx context.Context, c *daemon.Call, req *wire.WebReq) (*wire.WebResp, error) {
		return signed(ctx, s, c, req, func() (*Resp, error) {
			if len(req.Body) > maxStranger {
				return nil, wire.Refuse(wire.CodeTooLarge, fmt.Sprintf("%s has at most %d bytes", c.Verb, maxStranger), "")
			}
			q := new(Req)
			if err := readJSON(c.Verb, req.Body, q); err != nil {
				return nil, err
			}
			return h(ctx, req.Session, q)
		})
	}
}

// signed signs what f answers, a refusal too: what says that nothing waits, that a session is stopped, or that somebody else was
// quicker, is sentinel's word and answers this very question.
func signed[Resp any](ctx context.Context, s *Sentinel, c *daemon.Call, req *wire.WebReq, f func() (*Resp, error)) (*wire.WebResp, error) {
	if len(req.Nonce) != wire.WebNonce {
		return nil, wire.Refuse(wire.CodeUsage, fmt.Sprintf("a nonce of %d bytes, want %d", len(req.Nonce), wire.WebNonce), "")
	}
	out := new(wire.WebResp)
	v, err := f()
	if err != nil && ctx.Err() != nil {
		return nil, err // nobody is there to be told
	}
	if err == nil {
		out.Body, err = writeJSON(v)
	}
	if err == nil && len(out.Body) > maxAnswer {
		err = wire.Refuse(wire.CodeTooLarge, "the answer is too large for a browser", "look at a terminal: man doorward")
	}
	if err != nil {
		e := asError(s.log, err)
		if out.Code, out.Body = e.Code, nil; e.Code == "" {
			out.Code = wire.CodeInternal
		}
		if out.Body, err = writeJSON(e); err != nil {
			return nil, err
		}
	}
	if l, ok := any(v).(*wire.LoginResp); ok && l != nil && out.Code == "" {
		out.Session, out.Until = l.Session, l.Until
	}
	digest := sha256.Sum256(wire.Answered(c.Verb, req, out))
	r, t, err := ecdsa.Sign(rand.Reader, s.web.card, digest[:])
	if err != nil {
		return nil, fmt.Errorf("sign the answer to %s: %w", c.Verb, err)
	}
	out.Signature = make([]byte, 64)
	r.FillBytes(out.Signature[:32])
	t.FillBytes(out.Signature[32:])
	return out, nil
}

// readJSON reads one JSON object into a struct: names by case, none twice, none that is unknown, text that is UTF-8, nothing behind
// it. Two readers of one text must not read two things. On an error nothing of it is left in v.
func readJSON[T any](verb string, text []byte, v *T) error {
	err := errNoObject
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		err = json.Unmarshal(text, v, json.RejectUnknownMembers(true))
	}
	if err != nil {
		*v = *new(T)
		return wire.Refuse(wire.CodeUsage, "read what "+verb+" is asked: "+err.Error(), "docs/protocol.md says what it takes")
	}
	return nil
}

var errNoObject = fmt.Errorf("it is no JSON object")

// writeJSON writes what is no UTF-8 with marks in its place: what cells wrote must not make an answer fail.
func writeJSON(v any) ([]byte, error) {
	return json.Marshal(v, jsonv1.OmitEmptyWithLegacySemantics(true), jsontext.AllowInvalidUTF8(true))
}
