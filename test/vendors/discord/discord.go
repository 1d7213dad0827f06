// SPDX-License-Identifier: Apache-2.0

// Package discord is a stand-in for the part of Discord's HTTP interface (v10) that a bot in one server uses: itself, the
// channels and the messages. It lets in one bot's token, said as `Bot TOKEN`, and answers everybody else with 401. Where
// Discord's own description is at hand, requests and answers are held to it.
package discord

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/doorward/doorward/test/vendors/github"
	"github.com/doorward/doorward/test/vendors/standin"
)

// What there is from the beginning.
const (
	Bot     = "1180000000000000009" // the bot's own user
	Ada     = "1180000000000000008" // another
	Guild   = "1180000000000000005"
	General = "1180000000000000001" // a channel
	Secret  = "1180000000000000002" // another
	Hello   = "1180000000000000101" // a message of Ada's in General
)

// API is the path that every other begins with.
const API = "/api/v10"

// Options of a stand-in.
type Options struct {
	Token       string   // of the bot
	Listen      string   // address; a free port of 127.0.0.1 when empty
	Names       []string // further names of its certificate
	NoHTTP2     bool
	Description string // path of Discord's description; requests are not held to it when empty
}

// Message is one as it lies there.
type Message struct{ ID, Channel, Author, Content string }

// A Server is a running stand-in.
type Server struct {
	*standin.Server
	At string // host:port

	doc *openapi3.T // nil: not held to the description

	mu       sync.Mutex // guards what follows
	messages []Message
	next     int
}

// Description returns the path of Discord's description in the repository around the working directory.
func Description() (string, error) {
	root, err := github.Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "specs", "vendor-descriptions", "discord.openapi.json")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the description of Discord is absent; run make specs: %w", err)
	}
	return path, nil
}

// New starts a stand-in.
func New(o Options) (*Server, error) {
	base, err := standin.New()
	if err != nil {
		return nil, err
	}
	s := &Server{Server: base, next: 200, messages: []Message{{Hello, General, Ada, "Hello, bot."}}}
	if o.Description != "" {
		if s.doc, err = openapi3.NewLoader().LoadFromFile(o.Description); err != nil {
			return nil, fmt.Errorf("load the description of Discord: %w", err)
		}
	}
	who := bot(o.Token)
	s.At, err = s.Open(standin.Options{Listener: "api", Listen: o.Listen, Names: o.Names, NoHTTP2: o.NoHTTP2, Classify: who,
		Vendor: func(w http.ResponseWriter, r *http.Request, body []byte, note *standin.Note) {
			if who(r) != "real" {
				fail(w, note, http.StatusUnauthorized, 0, "401: Unauthorized")
				return
			}
			s.serve(w, r, body, note)
		}})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// bot classifies requests by a bot's token, which Discord takes in one spelling only.
func bot(token string) func(*http.Request) string {
	return func(r *http.Request) string {
		switch values := r.Header.Values("Authorization"); {
		case len(values) == 0:
			return "none"
		case token != "" && len(values) == 1 && values[0] == "Bot "+token:
			return "real"
		}
		return "other"
	}
}

// Messages are those of a channel, the oldest first.
func (s *Server) Messages(channel string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.messages), func(m Message) bool { return m.Channel != channel })
}

// Put has somebody write a message, and returns its name.
func (s *Server) Put(channel, author, content string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(channel, author, content).ID
}

// put is Put. Precondition: s.mu is held.
func (s *Server) put(channel, author, content string) Message {
	s.next++
	m := Message{"1180000000000000" + strconv.Itoa(s.next), channel, author, content}
	s.messages = append(s.messages, m)
	return m
}

// fail answers as Discord does (its ErrorResponse).
func fail(w http.ResponseWriter, note *standin.Note, status, code int, message string) {
	note.Refused = true
	say(w, status, map[string]any{"code": code, "message": message})
}

func say(w http.ResponseWriter, status int, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		status, b = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// serve answers the bot.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, body []byte, note *standin.Note) {
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), API+"/")
	if !ok {
		fail(w, note, http.StatusNotFound, 0, "404: Not Found")
		return
	}
	parts := strings.Split(path, "/")
	note.Operation, note.Violations = s.check(r, parts, body)
	if len(note.Violations) > 0 {
		fail(w, note, http.StatusBadRequest, 50035, "Invalid Form Body: "+strings.Join(note.Violations, "; "))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if parts[0] == "channels" && len(parts) > 1 && parts[1] != General && parts[1] != Secret {
		fail(w, note, http.StatusNotFound, 10003, "Unknown Channel")
		return
	}
	switch what := r.Method + " " + parts[0]; {
	case what == "GET users" && path == "users/@me":
		say(w, 200, user(Bot))
	case what == "GET users" && path == "users/@me/guilds":
		say(w, 200, []any{map[string]any{"id": Guild, "name": "notes", "icon": nil, "banner": nil, "owner": false, "permissions": "0",
			"features": []string{}}})
	case what == "GET guilds" && path == "guilds/"+Guild+"/channels":
		say(w, 200, []any{channel(General, 0), channel(Secret, 1)})
	case what == "GET channels" && len(parts) == 2:
		say(w, 200, channel(parts[1], 0))
	case what == "DELETE channels" && len(parts) == 2:
		say(w, 200, channel(parts[1], 0))
	case len(parts) >= 3 && parts[2] == "messages":
		s.onMessages(w, r, parts, body, note)
	default:
		fail(w, note, http.StatusNotFound, 0, "404: Not Found")
	}
}

// onMessages answers channels/{channel}/messages and below. Precondition: s.mu is held.
func (s *Server) onMessages(w http.ResponseWriter, r *http.Request, parts []string, body []byte, note *standin.Note) {
	var in struct {
		Content *string `json:"content"`
	}
	if len(body) > 0 && json.Unmarshal(body, &in) != nil {
		fail(w, note, http.StatusBadRequest, 50109, "The request body contains invalid JSON.")
		return
	}
	if len(parts) == 3 {
		switch r.Method {
		case http.MethodGet:
			list := []any{} // the newest first
			for _, m := range slices.Backward(s.messages) {
				if m.Channel == parts[1] {
					list = append(list, message(m))
				}
			}
			say(w, 200, list)
		case http.MethodPost:
			if in.Content == nil || *in.Content == "" {
				fail(w, note, http.StatusBadRequest, 50006, "Cannot send an empty message")
				return
			}
			say(w, 200, message(s.put(parts[1], Bot, *in.Content)))
		default:
			fail(w, note, http.StatusMethodNotAllowed, 0, "405: Method Not Allowed")
		}
		return
	}
	i := slices.IndexFunc(s.messages, func(m Message) bool { return m.Channel == parts[1] && m.ID == parts[3] })
	switch {
	case len(parts) > 4:
		fail(w, note, http.StatusNotFound, 0, "404: Not Found")
	case i < 0:
		fail(w, note, http.StatusNotFound, 10008, "Unknown Message")
	case r.Method == http.MethodGet:
		say(w, 200, message(s.messages[i]))
	case s.messages[i].Author != Bot:
		fail(w, note, http.StatusForbidden, 50005, "Cannot edit a message authored by another user")
	case r.Method == http.MethodPatch && in.Content != nil:
		s.messages[i].Content = *in.Content
		say(w, 200, message(s.messages[i]))
	case r.Method == http.MethodDelete:
		s.messages = slices.Delete(s.messages, i, i+1)
		w.WriteHeader(http.StatusNoContent)
	default:
		fail(w, note, http.StatusMethodNotAllowed, 0, "405: Method Not Allowed")
	}
}

func user(id string) map[string]any {
	u := map[string]any{"id": id, "username": "ada", "avatar": nil, "discriminator": "0", "public_flags": 0, "flags": 0,
		"global_name": nil, "primary_guild": nil}
	if id == Bot {
		u["username"], u["bot"], u["mfa_enabled"], u["locale"] = "helper", true, false, "en-GB"
	}
	return u
}

func channel(id string, position int) map[string]any {
	return map[string]any{"id": id, "type": 0, "flags": 0, "guild_id": Guild, "name": "channel-" + id, "position": position}
}

func message(m Message) map[string]any {
	none := []any{}
	return map[string]any{"id": m.ID, "channel_id": m.Channel, "type": 0, "content": m.Content, "author": user(m.Author), "mentions": none,
		"mention_roles": none, "attachments": none, "embeds": none, "components": none, "timestamp": "2026-01-01T00:00:00+00:00",
		"edited_timestamp": nil, "flags": 0, "pinned": false, "mention_everyone": false, "tts": false}
}

// check is the name of a request's operation, and what the request has against the description.
func (s *Server) check(r *http.Request, parts []string, body []byte) (operation string, faults []string) {
	if s.doc == nil {
		return "", nil
	}
	complain := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	var op *openapi3.Operation
	var item *openapi3.PathItem
	for pattern, i := range s.doc.Paths.Map() {
		if o := i.GetOperation(r.Method); o != nil && fits(strings.Split(pattern, "/")[1:], parts) && (op == nil || !strings.Contains(pattern, "{")) {
			op, item = o, i
		}
	}
	if op == nil {
		return "", []string{"no such operation is described"}
	}
	for name, values := range r.URL.Query() {
		if len(values) != 1 || !slices.ContainsFunc(slices.Concat(op.Parameters, item.Parameters), func(p *openapi3.ParameterRef) bool {
			return p.Value.In == openapi3.ParameterInQuery && p.Value.Name == name
		}) {
			complain("query parameter %q is not described, or came more than once", name)
		}
	}
	switch {
	case len(body) == 0 && op.RequestBody != nil && op.RequestBody.Value.Required:
		complain("no body")
	case len(body) > 0 && op.RequestBody == nil:
		complain("a body came that is not described")
	case len(body) > 0:
		media := op.RequestBody.Value.Content.Get("application/json")
		var value map[string]any
		switch {
		case r.Header.Get("Content-Type") != "application/json" || media == nil:
			complain("Content-Type %q is not application/json", r.Header.Get("Content-Type"))
		case json.Unmarshal(body, &value) != nil:
			complain("the body is no JSON object")
		default:
			for name := range value {
				if media.Schema.Value.Properties[name] == nil {
					complain("field %q is not described", name)
				}
			}
			if err := media.Schema.Value.VisitJSON(value, openapi3.EnableJSONSchema2020()); err != nil {
				text, _, _ := strings.Cut(err.Error(), "\n")
				complain("%s", text)
			}
		}
	}
	return op.OperationID, faults
}

// fits says whether a path is one of a pattern's. What stands for an id is a snowflake; @me is none.
func fits(pattern, path []string) bool {
	return slices.EqualFunc(pattern, path, func(p, s string) bool {
		if !strings.HasPrefix(p, "{") {
			return p == s
		}
		n, err := strconv.ParseUint(s, 10, 64)
		return err == nil && strconv.FormatUint(n, 10) == s
	})
}

// Answer says what an answer to an operation has against the description; nil where there is none at hand.
func (s *Server) Answer(operation string, status int, body []byte) error {
	if s.doc == nil {
		return nil
	}
	for _, item := range s.doc.Paths.Map() {
		for _, op := range item.Operations() {
			if op.OperationID != operation {
				continue
			}
			answer := op.Responses.Status(status)
			if answer == nil {
				return fmt.Errorf("%s: status %d is not described", operation, status)
			}
			media := answer.Value.Content.Get("application/json")
			if media == nil {
				if len(bytes.TrimSpace(body)) > 0 {
					return fmt.Errorf("%s: a body that is not described", operation)
				}
				return nil
			}
			var value any
			if err := json.Unmarshal(body, &value); err != nil {
				return fmt.Errorf("%s: %w", operation, err)
			}
			return media.Schema.Value.VisitJSON(value, openapi3.EnableJSONSchema2020())
		}
	}
	return fmt.Errorf("no operation %s", operation)
}
