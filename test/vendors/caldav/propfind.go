// SPDX-License-Identifier: Apache-2.0

package caldav

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A resource is anything that has properties.
type resource struct {
	path       string
	kind       string // "root", "principal", "home", "collection" or "item"
	collection *collection
	item       *item
}

// resources lists the resource of a path and, with depth 1, its children.
func (c *call) resources(path string, deep bool) []resource {
	s := c.s
	collections := func(home string) []resource {
		out := []resource{{path: home, kind: "home"}}
		for _, one := range s.store.collections {
			if deep && strings.HasPrefix(one.path, home) {
				out = append(out, resource{path: one.path, kind: "collection", collection: one})
			}
		}
		return out
	}
	with := strings.TrimSuffix(path, "/") + "/"
	switch with {
	case "/":
		return []resource{{path: "/", kind: "root"}}
	case s.principal():
		return []resource{{path: with, kind: "principal"}}
	case s.calendarHome(), s.bookHome():
		return collections(with)
	}
	collection, name := s.store.split(path)
	switch {
	case collection == nil:
		return nil
	case name != "":
		if it := collection.items[name]; it != nil {
			return []resource{{path: path, kind: "item", collection: collection, item: it}}
		}
		return nil
	}
	out := []resource{{path: collection.path, kind: "collection", collection: collection}}
	if deep {
		for _, name := range collection.names() {
			it := collection.items[name]
			out = append(out, resource{path: collection.path + name, kind: "item", collection: collection, item: it})
		}
	}
	return out
}

func (c *collection) names() []string {
	names := make([]string, 0, len(c.items))
	for name := range c.items {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// token is the sync token of a collection now.
func (c *collection) token() string {
	return fmt.Sprintf("https://calendar.example.test/sync%s%d", c.path, c.rev)
}

// property returns the inner XML of a property, and whether the resource has it.
func (c *call) property(r resource, p xml.Name) (string, bool) {
	s := c.s
	isCollection := r.kind == "collection"
	isCalendar := isCollection && r.collection.kind == kindCalendar
	switch p {
	case name{Space: nsDAV, Local: "resourcetype"}:
		switch {
		case isCalendar:
			return "<D:collection/><C:calendar/>", true
		case isCollection:
			return "<D:collection/><CR:addressbook/>", true
		case r.kind == "principal":
			return "<D:collection/><D:principal/>", true
		case r.kind == "item":
			return "", true
		}
		return "<D:collection/>", true
	case name{Space: nsDAV, Local: "current-user-principal"}, name{Space: nsDAV, Local: "owner"}:
		return href(s.principal()), true
	case name{Space: nsDAV, Local: "principal-URL"}:
		return href(s.principal()), r.kind == "principal"
	case name{Space: nsCal, Local: "calendar-home-set"}:
		return href(s.calendarHome()), r.kind == "principal"
	case name{Space: nsCard, Local: "addressbook-home-set"}:
		return href(s.bookHome()), r.kind == "principal"
	case name{Space: nsCal, Local: "calendar-user-address-set"}:
		return "<D:href>mailto:" + escape(s.user) + "@example.test</D:href>", r.kind == "principal"
	case name{Space: nsDAV, Local: "displayname"}:
		if isCollection {
			return escape(r.collection.title), true
		}
		return escape(s.user), r.kind == "principal"
	case name{Space: nsCS, Local: "getctag"}, name{Space: nsDAV, Local: "sync-token"}:
		if !isCollection {
			return "", false
		}
		return escape(r.collection.token()), true
	case name{Space: nsCal, Local: "supported-calendar-component-set"}:
		return `<C:comp name="VEVENT"/><C:comp name="VTODO"/>`, isCalendar
	case name{Space: nsDAV, Local: "supported-report-set"}:
		if !isCollection {
			return "", false
		}
		names := []string{"D:sync-collection", "CR:addressbook-query", "CR:addressbook-multiget"}
		if isCalendar {
			names = []string{"D:sync-collection", "C:calendar-query", "C:calendar-multiget", "C:free-busy-query"}
		}
		var b strings.Builder
		for _, one := range names {
			b.WriteString("<D:supported-report><D:report><" + one + "/></D:report></D:supported-report>")
		}
		return b.String(), true
	case name{Space: nsDAV, Local: "current-user-privilege-set"}:
		return "<D:privilege><D:read/></D:privilege><D:privilege><D:write/></D:privilege>", true
	}
	if r.item == nil {
		return "", false
	}
	switch p {
	case name{Space: nsDAV, Local: "getetag"}:
		return escape(r.item.etag), true
	case name{Space: nsDAV, Local: "getcontenttype"}:
		return escape(r.item.contentType()), true
	case name{Space: nsDAV, Local: "getcontentlength"}:
		return strconv.Itoa(len(r.item.body)), true
	case name{Space: nsCal, Local: "calendar-data"}:
		return escape(string(r.item.body)), r.item.cal != nil
	case name{Space: nsCard, Local: "address-data"}:
		return escape(string(r.item.body)), r.item.card != nil
	}
	return "", false
}

var prefixes = map[string]string{nsDAV: "D:", nsCal: "C:", nsCard: "CR:", nsCS: "CS:"}

// element writes an element with a name that may be in a namespace the server does not know.
func element(p xml.Name, inner string) string {
	if prefix, ok := prefixes[p.Space]; ok {
		return "<" + prefix + p.Local + ">" + inner + "</" + prefix + p.Local + ">"
	}
	return "<" + p.Local + ` xmlns="` + escape(p.Space) + `">` + inner + "</" + p.Local + ">"
}

// response writes the answer for one resource.
func (c *call) response(r resource, wanted []xml.Name, override map[xml.Name]string) string {
	var have, missing strings.Builder
	for _, p := range wanted {
		inner, ok := override[p]
		if !ok {
			inner, ok = c.property(r, p)
		}
		if ok {
			have.WriteString(element(p, inner))
		} else {
			missing.WriteString(element(p, ""))
		}
	}
	out := "<D:response>" + href(r.path)
	if have.Len() > 0 || missing.Len() == 0 {
		out += "<D:propstat><D:prop>" + have.String() + "</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>"
	}
	if missing.Len() > 0 {
		out += "<D:propstat><D:prop>" + missing.String() +
			"</D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>"
	}
	return out + "</D:response>\n"
}

func (c *call) multistatus(inner string) {
	c.w.Header().Set("Content-Type", "application/xml; charset=utf-8")
	c.w.WriteHeader(http.StatusMultiStatus)
	_, _ = c.w.Write([]byte(`<?xml version="1.0" encoding="utf-8"?>` + "\n<D:multistatus" + namespaces + ">\n" +
		inner + "</D:multistatus>\n"))
}

// usual is what allprop answers, RFC 4918 section 9.1.
var usual = []string{"resourcetype", "displayname", "getetag", "getcontenttype", "getcontentlength"}

func (c *call) propfind() {
	depth := c.r.Header.Get("Depth")
	if depth != "0" && depth != "1" {
		c.refuse(http.StatusForbidden, "D:propfind-finite-depth")
		return
	}
	var wanted []xml.Name
	if len(c.body) == 0 {
		c.body = []byte(`<propfind xmlns="DAV:"><allprop/></propfind>`)
	}
	root, err := parse(c.body)
	if err != nil || root.name != (name{Space: nsDAV, Local: "propfind"}) {
		c.violate("a PROPFIND body that is none: %v", err)
		c.refuse(http.StatusBadRequest, "")
		return
	}
	if prop := root.child(nsDAV, "prop"); prop != nil {
		for _, p := range prop.children {
			wanted = append(wanted, p.name)
		}
	} else {
		for _, local := range usual {
			wanted = append(wanted, name{Space: nsDAV, Local: local})
		}
	}
	list := c.resources(c.r.URL.Path, depth == "1")
	if list == nil {
		c.refuse(http.StatusNotFound, "")
		return
	}
	var b strings.Builder
	for _, r := range list {
		b.WriteString(c.response(r, wanted, nil))
	}
	c.multistatus(b.String())
}
