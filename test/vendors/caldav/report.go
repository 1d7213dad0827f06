// SPDX-License-Identifier: Apache-2.0

package caldav

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-ical"
)

const utcBasic = "20060102T150405Z"

func (c *call) report() {
	root, err := parse(c.body)
	if err != nil {
		c.violate("a REPORT body that is none: %v", err)
		c.refuse(http.StatusBadRequest, "")
		return
	}
	collection, rest := c.s.store.split(c.r.URL.Path)
	if collection == nil || rest != "" {
		c.refuse(http.StatusNotFound, "")
		return
	}
	c.note.Operation = "REPORT " + root.name.Local
	isCalendar := collection.kind == kindCalendar
	switch {
	case root.name == name{Space: nsDAV, Local: "sync-collection"}:
		c.syncCollection(root, collection)
	case root.name == name{Space: nsCal, Local: "calendar-query"} && isCalendar:
		c.calendarQuery(root, collection)
	case root.name == name{Space: nsCal, Local: "free-busy-query"} && isCalendar:
		c.freeBusy(root, collection)
	case root.name == name{Space: nsCal, Local: "calendar-multiget"} && isCalendar,
		root.name == name{Space: nsCard, Local: "addressbook-multiget"} && !isCalendar:
		c.multiget(root, collection)
	case root.name == name{Space: nsCard, Local: "addressbook-query"} && !isCalendar:
		c.cardQuery(root, collection)
	default:
		c.refuse(http.StatusForbidden, "D:supported-report")
	}
}

// wanted lists the properties that a report asks for, and the element that asks for an object's data.
func wanted(root *node) (names []xml.Name, data *node) {
	prop := root.child(nsDAV, "prop")
	if prop == nil {
		return nil, nil
	}
	for _, p := range prop.children {
		names = append(names, p.name)
		if p.name.Local == "calendar-data" {
			data = p
		}
	}
	return names, data
}

// timeRange reads start and end of an element; a missing bound is far away.
func timeRange(n *node) (from, to time.Time, err error) {
	from, to = time.Unix(0, 0).AddDate(-500, 0, 0), time.Unix(0, 0).AddDate(500, 0, 0)
	if text, ok := n.attrs["start"]; ok {
		if from, err = time.Parse(utcBasic, text); err != nil {
			return from, to, fmt.Errorf("start: %w", err)
		}
	}
	if text, ok := n.attrs["end"]; ok {
		if to, err = time.Parse(utcBasic, text); err != nil {
			return from, to, fmt.Errorf("end: %w", err)
		}
	}
	return from, to, nil
}

// matchComponent applies a comp-filter, RFC 4791 section 9.7.1.
func matchComponent(filter *node, component *ical.Component, cal *ical.Calendar) (bool, error) {
	for _, one := range filter.children {
		ok := false
		switch one.name.Local {
		case "is-not-defined":
			return false, nil // the component is there
		case "time-range":
			from, to, err := timeRange(one)
			if err != nil {
				return false, err
			}
			list, err := occurrences(cal, from, to)
			if err != nil {
				return false, err
			}
			ok = component.Name != ical.CompEvent ||
				slices.ContainsFunc(list, func(o occurrence) bool { return o.component == component })
		case "comp-filter":
			absent := one.child(nsCal, "is-not-defined") != nil
			for _, child := range component.Children {
				if child.Name != one.attrs["name"] {
					continue
				}
				match, err := matchComponent(one, child, cal)
				if err != nil {
					return false, err
				}
				if absent {
					return false, nil
				}
				ok = ok || match
			}
			ok = ok || absent
		case "prop-filter":
			ok = matchText(one, values(component, one.attrs["name"]), nsCal)
		default:
			return false, fmt.Errorf("filter %s", one.name.Local)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

func values(component *ical.Component, property string) []string {
	var out []string
	for _, prop := range component.Props.Values(property) {
		out = append(out, prop.Value)
	}
	return out
}

// matchText applies a prop-filter to the values of its property.
func matchText(filter *node, have []string, space string) bool {
	if filter.child(space, "is-not-defined") != nil {
		return len(have) == 0
	}
	match := filter.child(space, "text-match")
	if match == nil {
		return len(have) > 0
	}
	want := strings.ToLower(match.text)
	found := slices.ContainsFunc(have, func(value string) bool {
		value = strings.ToLower(value)
		switch match.attrs["match-type"] {
		case "equals":
			return value == want
		case "starts-with":
			return strings.HasPrefix(value, want)
		case "ends-with":
			return strings.HasSuffix(value, want)
		}
		return strings.Contains(value, want)
	})
	return found != (match.attrs["negate-condition"] == "yes")
}

func (c *call) calendarQuery(root *node, collection *collection) {
	filter := root.child(nsCal, "filter").child(nsCal, "comp-filter")
	if filter == nil || filter.attrs["name"] != ical.CompCalendar {
		c.refuse(http.StatusForbidden, "C:valid-filter")
		return
	}
	names, data := wanted(root)
	var b strings.Builder
	for _, name := range collection.names() {
		it := collection.items[name]
		match, err := matchComponent(filter, it.cal.Component, it.cal)
		if err != nil {
			c.violate("filter: %v", err)
			c.refuse(http.StatusForbidden, "C:supported-filter")
			return
		}
		if !match {
			continue
		}
		override, err := calendarData(data, it)
		if err != nil {
			c.violate("calendar-data: %v", err)
			c.refuse(http.StatusForbidden, "C:supported-calendar-data")
			return
		}
		r := resource{path: collection.path + name, kind: "item", collection: collection, item: it}
		b.WriteString(c.response(r, names, override))
	}
	c.multistatus(b.String())
}

// calendarData expands an object where the request asks for it.
func calendarData(data *node, it *item) (map[xml.Name]string, error) {
	want := data.child(nsCal, "expand")
	if want == nil {
		return nil, nil
	}
	from, to, err := timeRange(want)
	if err != nil {
		return nil, err
	}
	if want.attrs["start"] == "" || want.attrs["end"] == "" {
		return nil, fmt.Errorf("expand without start or end")
	}
	cal, err := expand(it.cal, from, to)
	if err != nil {
		return nil, err
	}
	if len(cal.Children) == 0 {
		cal = it.cal
	}
	var b bytes.Buffer
	if err := ical.NewEncoder(&b).Encode(cal); err != nil {
		return nil, fmt.Errorf("write the expansion: %w", err)
	}
	return map[xml.Name]string{{Space: nsCal, Local: "calendar-data"}: escape(b.String())}, nil
}

func (c *call) freeBusy(root *node, collection *collection) {
	r := root.child(nsCal, "time-range")
	if r == nil {
		c.refuse(http.StatusBadRequest, "")
		return
	}
	from, to, err := timeRange(r)
	if err != nil {
		c.violate("free-busy: %v", err)
		c.refuse(http.StatusBadRequest, "")
		return
	}
	var b strings.Builder
	b.WriteString("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//example//calendar//EN\r\nBEGIN:VFREEBUSY\r\n" +
		"DTSTART:" + from.UTC().Format(utcBasic) + "\r\nDTEND:" + to.UTC().Format(utcBasic) + "\r\n")
	for _, name := range collection.names() {
		list, err := occurrences(collection.items[name].cal, from, to)
		if err != nil {
			c.refuse(http.StatusInternalServerError, "")
			return
		}
		for _, o := range list {
			if p := o.component.Props.Get(ical.PropTransparency); p != nil && p.Value == "TRANSPARENT" {
				continue
			}
			start, end := o.start.UTC(), o.end.UTC()
			if start.Before(from) {
				start = from
			}
			if end.After(to) {
				end = to
			}
			b.WriteString("FREEBUSY:" + start.Format(utcBasic) + "/" + end.Format(utcBasic) + "\r\n")
		}
	}
	b.WriteString("END:VFREEBUSY\r\nEND:VCALENDAR\r\n")
	c.w.Header().Set("Content-Type", "text/calendar; charset=utf-8")
	_, _ = c.w.Write([]byte(b.String()))
}

func (c *call) multiget(root *node, collection *collection) {
	names, data := wanted(root)
	var b strings.Builder
	for _, one := range root.children {
		if one.name != (name{Space: nsDAV, Local: "href"}) {
			continue
		}
		target, err := url.Parse(strings.TrimSpace(one.text))
		path := ""
		if err == nil && target.Host == "" {
			path = target.Path
		}
		it := c.s.store.item(path)
		if it == nil || !strings.HasPrefix(path, collection.path) {
			b.WriteString("<D:response>" + href(path) + "<D:status>HTTP/1.1 404 Not Found</D:status></D:response>\n")
			continue
		}
		override, err := calendarData(data, it)
		if err != nil {
			c.refuse(http.StatusForbidden, "C:supported-calendar-data")
			return
		}
		r := resource{path: path, kind: "item", collection: collection, item: it}
		b.WriteString(c.response(r, names, override))
	}
	c.multistatus(b.String())
}

func (c *call) cardQuery(root *node, collection *collection) {
	names, _ := wanted(root)
	filter := root.child(nsCard, "filter")
	limit := c.s.maxCard
	if n := root.child(nsCard, "limit").child(nsCard, "nresults"); n != nil {
		asked, err := strconv.Atoi(strings.TrimSpace(n.text))
		if err != nil || asked < 1 {
			c.violate("limit %q", n.text)
			c.refuse(http.StatusBadRequest, "")
			return
		}
		if limit == 0 || asked < limit {
			limit = asked
		}
	}
	var b strings.Builder
	count := 0
	for _, name := range collection.names() {
		it := collection.items[name]
		if filter != nil && len(filter.children) > 0 && !matchCard(filter, it) {
			continue
		}
		if limit > 0 && count == limit { // RFC 6352 section 8.6.2
			b.WriteString("<D:response>" + href(collection.path) + "<D:status>HTTP/1.1 507 Insufficient Storage" +
				"</D:status><D:error><D:number-of-matches-within-limits/></D:error></D:response>\n")
			break
		}
		count++
		r := resource{path: collection.path + name, kind: "item", collection: collection, item: it}
		b.WriteString(c.response(r, names, nil))
	}
	c.multistatus(b.String())
}

func matchCard(filter *node, it *item) bool {
	all := filter.attrs["test"] == "allof"
	result := all
	for _, one := range filter.children {
		var have []string
		for _, field := range it.card[strings.ToUpper(one.attrs["name"])] {
			have = append(have, field.Value)
		}
		match := one.name.Local == "prop-filter" && matchText(one, have, nsCard)
		if match != all {
			result = !all
		}
	}
	return result
}

// syncCollection answers what changed since a token, RFC 6578.
func (c *call) syncCollection(root *node, collection *collection) {
	names, _ := wanted(root)
	if level := root.child(nsDAV, "sync-level"); level == nil || strings.TrimSpace(level.text) != "1" {
		c.violate("sync-level is missing or not 1")
		c.refuse(http.StatusBadRequest, "")
		return
	}
	since, first := 0, true
	if token := root.child(nsDAV, "sync-token"); token != nil && strings.TrimSpace(token.text) != "" {
		first = false
		prefix := strings.TrimSuffix(collection.token(), strconv.Itoa(collection.rev))
		number, ok := strings.CutPrefix(strings.TrimSpace(token.text), prefix)
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n > collection.rev || n < collection.oldest {
			c.refuse(http.StatusForbidden, "D:valid-sync-token")
			return
		}
		since = n
	}
	var b strings.Builder
	for _, name := range collection.names() {
		it := collection.items[name]
		if first || it.rev > since {
			r := resource{path: collection.path + name, kind: "item", collection: collection, item: it}
			b.WriteString(c.response(r, names, nil))
		}
	}
	for name, rev := range collection.gone {
		if !first && rev > since {
			b.WriteString("<D:response>" + href(collection.path+name) +
				"<D:status>HTTP/1.1 404 Not Found</D:status></D:response>\n")
		}
	}
	b.WriteString("<D:sync-token>" + escape(collection.token()) + "</D:sync-token>\n")
	c.multistatus(b.String())
}
