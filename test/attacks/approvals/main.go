// SPDX-License-Identifier: Apache-2.0

// Command approvals stands in approvals' place and does what whoever has taken that over can do: it knows every request and answer, has
// the sessions that go by, and asks sentinel on its own. What it does is in the file "attack" beside approver.toml: a word and its
// arguments, none for the honest one. What came of what it asked by itself it logs.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/doorward/doorward/approvals"
	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

func main() { daemon.Main("approvals", run) }

func run(ctx context.Context, p *daemon.Process) error {
	place, err := approver.Load(p.Dirs.Config)
	if err != nil {
		return err
	}
	ln, err := p.Listener("approvals-page")
	if err != nil {
		return err
	}
	dial := func() *daemon.Client { return &daemon.Client{Path: wire.PathSentinelWeb, Name: "sentinel", Log: p.Log} }
	one, two := dial(), dial()
	h := &hostile{honest: approvals.New(place, one, two, p.Log), dial: dial, file: filepath.Join(p.Dirs.Config, "attack"), log: p.Log}
	s := &front.Server{Listener: approvals.NewCarried(ln, p.Log), Handler: h, Log: p.Log}
	return p.Run(ctx, s.Serve, one.Run, two.Run)
}

type hostile struct {
	honest http.Handler
	dial   func() *daemon.Client
	file   string
	log    *slog.Logger

	mu    sync.Mutex // guards login
	login []byte     // an assertion that somebody signed in with
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := os.ReadFile(h.file)
	attack := strings.Fields(string(text))
	verb := strings.TrimPrefix(r.URL.Path, "/v1/")
	if len(attack) == 0 || r.Method != http.MethodPost {
		h.honest.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch name := attack[0] + " " + verb; name {
	case "swap show": // another card for the one that is opened: swap ID
		body = fmt.Appendf(nil, `{"call":%q}`, attack[1])
	case "believe decide": // what was signed of one card as if of another: believe ID HASH
		var q wire.WebDecideReq
		_ = json.Unmarshal(body, &q)
		q.Items[0].ID = attack[1]
		var d wire.Decision
		_ = json.Unmarshal(q.Items[0].Decision, &d)
		q.Items[0].Decision = bytes.Replace(q.Items[0].Decision, []byte(base64.StdEncoding.EncodeToString(d.Hash)), []byte(attack[2]), 1)
		body, _ = json.Marshal(&q)
		h.tell(name, h.ask(r, verb, body))
	case "flip decide": // a no as a yes
		var q wire.WebDecideReq
		_ = json.Unmarshal(body, &q)
		q.Items[0].Decision = bytes.Replace(q.Items[0].Decision, []byte(`"approve":false`), []byte(`"approve":true`), 1)
		body, _ = json.Marshal(&q)
		h.tell(name, h.ask(r, verb, body))
	case "enrol enrol": // a passkey of its own, under the MAC of the person's
		var q wire.EnrolReq
		if _ = json.Unmarshal(body, &q); len(q.Credential) > 0 {
			q.Credential = append([]byte(" "), q.Credential...)
			body, _ = json.Marshal(&q)
			h.tell(name, h.ask(r, verb, body))
		}
	}
	answer := h.ask(r, verb, body)
	switch name := attack[0] + " " + verb; name {
	case "alter show": // a word of the card: alter OLD NEW
		answer.Body = bytes.NewBuffer(bytes.ReplaceAll(answer.Body.Bytes(), []byte(attack[1]), []byte(attack[2])))
	case "again decide": // the same once more, and for another card: again ID
		h.tell(name, h.ask(r, verb, body))
		var q wire.WebDecideReq
		_ = json.Unmarshal(body, &q)
		q.Items[0].ID = attack[1]
		body, _ = json.Marshal(&q)
		h.tell(name, h.ask(r, verb, body))
	case "own login": // keeps what somebody signs in with
		var q wire.LoginReq
		_ = json.Unmarshal(body, &q)
		h.mu.Lock()
		h.login = append(h.login[:0], q.Assertion...)
		h.mu.Unlock()
	case "own pending": // with a session that goes by, a decision of its own, and what is not its to ask: own ID
		h.own(r, attack[1])
	}
	for k, v := range answer.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// own approves a card with the session of a request: with no assertion, and with that of a login.
func (h *hostile) own(r *http.Request, id string) {
	h.mu.Lock()
	login := bytes.Clone(h.login)
	h.mu.Unlock()
	for _, assertion := range [][]byte{nil, login} {
		shown := h.ask(r, "show", fmt.Appendf(nil, `{"call":%q}`, id))
		var raw struct {
			Card  struct{ Hash []byte }
			Nonce []byte
		}
		_ = json.Unmarshal(shown.Body.Bytes(), &raw)
		d, _ := json.Marshal(&wire.Decision{Hash: raw.Card.Hash, Approve: true})
		q, _ := json.Marshal(&wire.WebDecideReq{Items: []wire.WebDecision{{ID: id, Nonce: raw.Nonce, Decision: d}}, Assertion: assertion})
		h.tell("own decide", h.ask(r, "decide", q))
	}
	for _, verb := range []string{"login", "approvers", "policy", "surrogate"} { // the first, which is its to ask, is the control
		c := h.dial()
		q := &wire.WebReq{Nonce: make([]byte, wire.WebNonce), Body: []byte("{}")}
		err := c.Call(r.Context(), verb, q, new(wire.WebResp))
		c.Close()
		h.log.Warn("attack", "what", "own "+verb, "refused", err != nil)
	}
}

// ask asks sentinel as the honest program does, in the name of r.
func (h *hostile) ask(r *http.Request, verb string, body []byte) *httptest.ResponseRecorder {
	q := r.Clone(r.Context())
	q.URL.Path, q.RequestURI = "/v1/"+verb, "/v1/"+verb
	q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	w := httptest.NewRecorder()
	h.honest.ServeHTTP(w, q)
	return w
}

func (h *hostile) tell(what string, a *httptest.ResponseRecorder) {
	h.log.Warn("attack", "what", what, "status", a.Code, "answer", a.Body.String())
}
