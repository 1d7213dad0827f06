// SPDX-License-Identifier: Apache-2.0

package discord

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const token = "standin.bot.token-for-tests"

func start(t *testing.T) *Server {
	t.Helper()
	description, err := Description()
	if err != nil {
		t.Skip("vendor-description ground skipped: ", err)
	}
	s, err := New(Options{Token: token, Description: description})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (s *Server) do(t *testing.T, auth, method, path, body string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+s.At+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

// Each operation answers as Discord's description says, and what a bot wrote it alone may change.
func TestAnswersAreAsDescribed(t *testing.T) {
	s := start(t)
	const channels = API + "/channels/" + General
	own := s.Put(General, Bot, "mine")
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", API + "/users/@me", "", 200},
		{"GET", API + "/users/@me/guilds", "", 200},
		{"GET", API + "/guilds/" + Guild + "/channels", "", 200},
		{"GET", channels, "", 200},
		{"GET", channels + "/messages?limit=50", "", 200},
		{"GET", channels + "/messages/" + Hello, "", 200},
		{"POST", channels + "/messages", `{"content":"hi"}`, 200},
		{"PATCH", channels + "/messages/" + own, `{"content":"changed"}`, 200},
		{"PATCH", channels + "/messages/" + Hello, `{"content":"changed"}`, 403},
		{"DELETE", channels + "/messages/" + Hello, "", 403},
		{"DELETE", channels + "/messages/" + own, "", 204},
		{"GET", channels + "/messages/" + own, "", 404},
		{"GET", API + "/channels/42", "", 404},
	} {
		status, body := s.do(t, "Bot "+token, c.method, c.path, c.body)
		all := s.Rec.All()
		last := all[len(all)-1]
		if status != c.status || len(last.Violations) > 0 {
			t.Errorf("%s %s: %d %s, %q", c.method, c.path, status, body, last.Violations)
		}
		if err := s.Answer(last.Operation, status, body); err != nil {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
	}
	if m := s.Messages(General); len(m) != 2 || m[1].Content != "hi" {
		t.Errorf("%v", m)
	}
}

func TestWhatIsNotDescribedIsRefused(t *testing.T) {
	s := start(t)
	const messages = API + "/channels/" + General + "/messages"
	for _, c := range [][3]string{
		{"GET", messages + "?colour=red", ""},
		{"GET", API + "/channels/general/messages", ""},
		{"POST", messages, `{"content":5}`},
		{"POST", messages, `{"content":"x","colour":"red"}`},
		{"POST", messages, ""},
		{"PUT", messages, `{"content":"x"}`},
		{"GET", API + "/users/" + Ada, ""},
	} {
		if status, body := s.do(t, "Bot "+token, c[0], c[1], c[2]); status != 400 {
			t.Errorf("%q: %d %s", c, status, body)
		}
	}
	if got := s.Rec.Handled("", "/"); got != 0 {
		t.Errorf("%d requests were acted on", got)
	}
}

func TestOnlyTheBotIsLetIn(t *testing.T) {
	s := start(t)
	for auth, want := range map[string]int{"Bot " + token: 200, "": 401, "Bearer " + token: 401, token: 401, "bot " + token: 401,
		"Bot  " + token: 401, "Bot other": 401, "Bot " + token + "x": 401} {
		if status, body := s.do(t, auth, "GET", API+"/users/@me", ""); status != want {
			t.Errorf("%q: %d %s", auth, status, body)
		}
	}
}
