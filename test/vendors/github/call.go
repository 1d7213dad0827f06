// SPDX-License-Identifier: Apache-2.0

package github

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/doorward/doorward/test/vendors/standin"
)

// A call is one request at its handler, which runs under the state's lock.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	m     match
	query url.Values
	body  object
	repo  *Repo // of paths below /repos/{owner}/{repo}
	note  *standin.Note
}

// api answers the API's listener.
func (s *Server) api(classify func(*http.Request) string) standin.Vendor {
	return func(w http.ResponseWriter, r *http.Request, body []byte, note *standin.Note) {
		c := &call{w: w, r: r, query: r.URL.Query(), note: note}
		s.usual(w.Header())
		if classify(r) != "real" {
			c.refuse(http.StatusUnauthorized, "Bad credentials")
			return
		}
		m, ok := find(r.Method, r.URL.EscapedPath())
		if !ok {
			note.Violations = append(note.Violations, "no such operation")
			c.refuse(http.StatusNotFound, "Not Found")
			return
		}
		c.m = m
		note.Operation = m.route.verb + " " + m.route.path
		if s.check != nil {
			if note.Violations = s.check.request(r, m, body); len(note.Violations) > 0 {
				c.refuse(http.StatusBadRequest, "not as GitHub describes it: "+strings.Join(note.Violations, "; "))
				return
			}
		}
		if len(body) > 0 {
			if err := json.Unmarshal(body, &c.body); err != nil {
				c.refuse(http.StatusBadRequest, "Problems parsing JSON")
				return
			}
		}
		s.State.mu.Lock()
		defer s.State.mu.Unlock()
		if owner := m.params["owner"]; owner != "" {
			c.repo = s.State.repo(owner, m.params["repo"])
			if c.repo == nil {
				c.refuse(http.StatusNotFound, "Not Found")
				return
			}
		}
		m.route.handle(s, c)
	}
}

// usual sets the headers that every answer of GitHub carries.
func (s *Server) usual(h http.Header) {
	h.Set("Server", "github.com")
	h.Set("X-Github-Media-Type", "github.v3; format=json")
	h.Set("X-Github-Request-Id", "0000:0000:0:0:0")
	h.Set("X-Ratelimit-Limit", "5000")
	h.Set("X-Ratelimit-Remaining", "4987")
	h.Set("X-Ratelimit-Used", "13")
	h.Set("X-Ratelimit-Resource", "core")
	h.Set("X-Ratelimit-Reset", strconv.FormatInt(s.State.now().Unix()+3600, 10))
}

// refuse answers without having acted.
func (c *call) refuse(status int, message string) {
	c.note.Refused = true
	c.json(status, object{
		"message": message, "documentation_url": "https://docs.github.com/rest", "status": strconv.Itoa(status),
	})
}

// invalid is GitHub's answer to a well-formed request that it will not do.
func (c *call) invalid(resource, field, code, message string) {
	c.note.Refused = true
	c.json(http.StatusUnprocessableEntity, object{
		"message":           "Validation Failed",
		"errors":            []any{object{"resource": resource, "field": field, "code": code, "message": message}},
		"documentation_url": "https://docs.github.com/rest", "status": "422",
	})
}

func (c *call) json(status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("stand-in cannot encode its answer: %v", err)) // a fault of the stand-in itself
	}
	c.bytes(status, "application/json; charset=utf-8", text)
}

// bytes answers; a GET carries an ETag and is 304 when the client has it.
func (c *call) bytes(status int, kind string, text []byte) {
	if c.r.Method == http.MethodGet && status == http.StatusOK {
		sum := sha256.Sum256(text)
		etag := `W/"` + hex.EncodeToString(sum[:]) + `"`
		c.w.Header().Set("Etag", etag)
		if c.r.Header.Get("If-None-Match") == etag {
			c.w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	c.w.Header().Set("Content-Type", kind)
	c.w.WriteHeader(status)
	_, _ = c.w.Write(text)
}

// answer lays what the stand-in knows over the described shape.
func (s *Server) answer(c *call, status int, known any) { c.json(status, s.shape(c.m, status, known)) }

// page cuts a list as per_page and page say and sets the Link header.
func (s *Server) page(c *call, all []any) []any {
	size := number(c.query.Get("per_page"), 30)
	size = min(max(size, 1), 100)
	page := max(number(c.query.Get("page"), 1), 1)
	last := max((len(all)+size-1)/size, 1)
	link := func(n int, rel string) string {
		query := c.r.URL.Query()
		query.Set("page", strconv.Itoa(n))
		return fmt.Sprintf(`<%s%s?%s>; rel="%s"`, s.base, c.r.URL.EscapedPath(), query.Encode(), rel)
	}
	var links []string
	if page > 1 {
		links = append(links, link(page-1, "prev"))
	}
	if page < last {
		links = append(links, link(page+1, "next"), link(last, "last"))
	}
	if page > 1 {
		links = append(links, link(1, "first"))
	}
	if len(links) > 0 {
		c.w.Header().Set("Link", strings.Join(links, ", "))
	}
	from := min((page-1)*size, len(all))
	return all[from:min(from+size, len(all))]
}

func number(text string, otherwise int) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return otherwise
	}
	return n
}

// text returns a field of the body as text.
func (c *call) text(field string) string {
	v, _ := c.body[field].(string)
	return v
}

func (c *call) texts(field string) []string {
	list, _ := c.body[field].([]any)
	out := make([]string, 0, len(list))
	for _, one := range list {
		switch one := one.(type) {
		case string:
			out = append(out, one)
		case object:
			if name, ok := one["name"].(string); ok {
				out = append(out, name)
			}
		}
	}
	return out
}

func (c *call) flag(field string) bool {
	v, _ := c.body[field].(bool)
	return v
}
