// SPDX-License-Identifier: Apache-2.0

package caldav

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/doorward/doorward/test/vendors/standin"
)

// A call is one request at its handler, which runs under the store's lock.
type call struct {
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	note *standin.Note
	s    *Server
}

func (c *call) serve() {
	switch c.r.Method {
	case http.MethodOptions:
		c.w.Header().Set("Allow", "OPTIONS, GET, HEAD, PUT, DELETE, PROPFIND, REPORT, MKCALENDAR, MKCOL")
		c.w.WriteHeader(http.StatusOK)
	case http.MethodGet, http.MethodHead:
		c.get()
	case http.MethodPut:
		c.put()
	case http.MethodDelete:
		c.delete()
	case "PROPFIND":
		c.propfind()
	case "REPORT":
		c.report()
	case "MKCALENDAR":
		c.make(kindCalendar)
	case "MKCOL":
		c.make(kindBook)
	default:
		c.refuse(http.StatusMethodNotAllowed, "")
	}
}

// refuse answers without having acted; condition names the precondition that failed, with its prefix.
func (c *call) refuse(status int, condition string) {
	c.note.Refused = true
	if condition == "" {
		c.w.WriteHeader(status)
		return
	}
	c.w.Header().Set("Content-Type", "application/xml; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = fmt.Fprintf(c.w, `<?xml version="1.0" encoding="utf-8"?>`+"\n<D:error%s><%s/></D:error>\n", namespaces,
		condition)
}

func (c *call) violate(format string, args ...any) {
	c.note.Violations = append(c.note.Violations, fmt.Sprintf(format, args...))
}

// matches checks If-Match and If-None-Match of a write, RFC 9110 section 13.
func (c *call) matches(it *item) bool {
	if want := c.r.Header.Get("If-Match"); want != "" {
		if it == nil || (want != "*" && !listed(want, it.etag)) {
			return false
		}
	}
	if not := c.r.Header.Get("If-None-Match"); not != "" {
		if it != nil && (not == "*" || listed(not, it.etag)) {
			return false
		}
	}
	return true
}

func listed(header, etag string) bool {
	for _, one := range strings.Split(header, ",") {
		if strings.TrimSpace(one) == etag {
			return true
		}
	}
	return false
}

func (c *call) get() {
	it := c.s.store.item(c.r.URL.Path)
	if it == nil {
		c.refuse(http.StatusNotFound, "")
		return
	}
	c.w.Header().Set("ETag", it.etag)
	if c.r.Header.Get("If-None-Match") == it.etag {
		c.w.WriteHeader(http.StatusNotModified)
		return
	}
	c.w.Header().Set("Content-Type", it.contentType())
	_, _ = c.w.Write(it.body)
}

func (it *item) contentType() string {
	if it.cal != nil {
		return "text/calendar; charset=utf-8"
	}
	return "text/vcard; charset=utf-8"
}

func (c *call) put() {
	path := c.r.URL.Path
	collection, name := c.s.store.split(path)
	if collection == nil || name == "" {
		c.refuse(http.StatusConflict, "")
		return
	}
	want := map[kind]string{kindCalendar: "text/calendar", kindBook: "text/vcard"}[collection.kind]
	if media, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || media != want {
		c.violate("Content-Type %q of an object in %s", c.r.Header.Get("Content-Type"), collection.path)
		c.refuse(http.StatusUnsupportedMediaType, "")
		return
	}
	if !c.matches(collection.items[name]) {
		c.refuse(http.StatusPreconditionFailed, "")
		return
	}
	it, old, problem := c.s.store.put(path, c.body)
	if problem != "" {
		c.refuse(http.StatusForbidden, problem)
		return
	}
	c.s.store.schedule(old, it)
	c.w.Header().Set("ETag", it.etag)
	if old != nil {
		c.w.WriteHeader(http.StatusNoContent)
		return
	}
	c.w.WriteHeader(http.StatusCreated)
}

func (c *call) delete() {
	it := c.s.store.item(c.r.URL.Path)
	if it == nil {
		if c.r.Header.Get("If-Match") != "" {
			c.refuse(http.StatusPreconditionFailed, "")
			return
		}
		c.refuse(http.StatusNotFound, "")
		return
	}
	if !c.matches(it) {
		c.refuse(http.StatusPreconditionFailed, "")
		return
	}
	c.s.store.remove(c.r.URL.Path)
	c.s.store.schedule(it, nil)
	c.w.WriteHeader(http.StatusNoContent)
}

// make adds a collection below the homes.
func (c *call) make(k kind) {
	path := strings.TrimSuffix(c.r.URL.Path, "/") + "/"
	home := map[kind]string{kindCalendar: c.s.calendarHome(), kindBook: c.s.bookHome()}[k]
	name, ok := strings.CutPrefix(path, home)
	if !ok || name == "" || strings.Count(name, "/") != 1 {
		c.refuse(http.StatusForbidden, "")
		return
	}
	for _, have := range c.s.store.collections {
		if have.path == path {
			c.refuse(http.StatusMethodNotAllowed, "D:resource-must-be-null")
			return
		}
	}
	title := strings.TrimSuffix(name, "/")
	var asked struct {
		Title string `xml:"DAV: set>prop>displayname"`
	}
	if len(c.body) > 0 && xml.Unmarshal(c.body, &asked) == nil && asked.Title != "" {
		title = asked.Title
	}
	c.s.store.collections = append(c.s.store.collections, newCollection(path, k, title))
	c.w.WriteHeader(http.StatusCreated)
}

// A name is an element's name with its namespace.
type name = xml.Name

const (
	nsDAV  = "DAV:"
	nsCal  = "urn:ietf:params:xml:ns:caldav"
	nsCard = "urn:ietf:params:xml:ns:carddav"
	nsCS   = "http://calendarserver.org/ns/"
)

const namespaces = ` xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"` +
	` xmlns:CR="urn:ietf:params:xml:ns:carddav" xmlns:CS="http://calendarserver.org/ns/"`

// A node is an element of a request; the server reads the tree by hand to see what it does not know.
type node struct {
	name     name
	attrs    map[string]string
	children []*node
	text     string
}

func (n *node) child(space, local string) *node {
	if n == nil {
		return nil
	}
	for _, one := range n.children {
		if one.name.Space == space && one.name.Local == local {
			return one
		}
	}
	return nil
}

// parse reads a request body; documents with declarations or deep nesting are refused.
func parse(body []byte) (*node, error) {
	decoder := xml.NewDecoder(strings.NewReader(string(body)))
	var stack []*node
	var root *node
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		switch token := token.(type) {
		case xml.Directive:
			return nil, fmt.Errorf("read the request: a declaration")
		case xml.StartElement:
			n := &node{name: token.Name, attrs: map[string]string{}}
			for _, attr := range token.Attr {
				n.attrs[attr.Name.Local] = attr.Value
			}
			switch {
			case len(stack) > 32:
				return nil, fmt.Errorf("read the request: nested too deep")
			case len(stack) > 0:
				parent := stack[len(stack)-1]
				parent.children = append(parent.children, n)
			case root != nil:
				return nil, fmt.Errorf("read the request: two roots")
			default:
				root = n
			}
			stack = append(stack, n)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			if len(stack) > 0 {
				stack[len(stack)-1].text += string(token)
			}
		}
	}
	if root == nil {
		return nil, fmt.Errorf("read the request: no element")
	}
	return root, nil
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // into memory: cannot fail
	return b.String()
}

func href(path string) string {
	return "<D:href>" + escape((&url.URL{Path: path}).EscapedPath()) + "</D:href>"
}
