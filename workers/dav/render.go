// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

const product = "-//Doorward//dav//EN"

// Rules of an event's body, which sentinel's reader knows too, from the same words and with other code:
//
//   - What no argument names stays. SEQUENCE goes up by one, DTSTAMP becomes the given time, and LAST-MODIFIED where
//     there is one.
//   - Times: a day is VALUE=DATE, its end one day behind the last. A local time stands with TZID and a VTIMEZONE of the
//     database's own data; a time with zone and no --tz stands in UTC.
//   - Guests: SCHEDULE-AGENT says for each whether the server may mail them; that is the owner's choice (--notify)
//     where the owner is the organizer. Their answers stay.
//   - One occurrence is a VEVENT of its own with RECURRENCE-ID, taken from the series; this and the following is one
//     with RANGE=THISANDFUTURE (RFC 5545 section 3.2.13).

func usage(format string, a ...any) error {
	return wire.Refuse(wire.CodeBadArgument, fmt.Sprintf(format, a...), "")
}

func stamp(unix int64) string { return time.Unix(unix, 0).UTC().Format(formUTC) }

func renderCreate(r *workers.Rendering) ([]byte, string, error) {
	v := r.Values
	ev := &block{name: "VEVENT", lines: []line{plainLine("UID", r.Mark), plainLine("DTSTAMP", stamp(r.Unix))}}
	cal := &block{name: "VCALENDAR", lines: []line{plainLine("VERSION", "2.0"), plainLine("PRODID", product)}}
	start, err := whenOf("start", v.One("start"), v.One("tz"))
	if err != nil {
		return nil, "", err
	}
	end, err := whenOf("end", v.One("end"), v.One("tz"))
	if err != nil {
		return nil, "", err
	}
	if err := ordered(start, end); err != nil {
		return nil, "", err
	}
	ev.lines = append(ev.lines, start.line("DTSTART"), end.exclusive().line("DTEND"))
	ev.setText("SUMMARY", v["title"])
	ev.setText("LOCATION", v["location"])
	ev.setText("DESCRIPTION", v["description"])
	if len(v["attendee"]) > 0 {
		if r.Owner == "" {
			return nil, "", noOwner()
		}
		ev.lines = append(ev.lines, plainLine("ORGANIZER", "mailto:"+r.Owner))
		if err := ev.invite(v["attendee"], r.Owner, v.One("notify")); err != nil {
			return nil, "", err
		}
	}
	ev.lines = append(ev.lines, plainLine("SEQUENCE", "0"))
	if z := start.vtimezone(end, 0); z != nil {
		cal.kids = append(cal.kids, z)
	}
	cal.kids = append(cal.kids, ev)
	return cal.bytes(), mediaCalendar, nil
}

func noOwner() error {
	return wire.Refuse(wire.CodeNotConfigured, "the account does not say whose it is, and guests must know who asks",
		"give the account an owner address")
}

// setText replaces a text where an argument names it; an empty one takes it off.
func (b *block) setText(name string, values []string) {
	switch {
	case len(values) == 0:
	case values[0] == "":
		b.drop(name)
	default:
		b.set(textLine(name, values[0]))
	}
}

// invite adds guests that are not there yet.
func (b *block) invite(guests []string, owner, notify string) error {
	if notify == "" {
		return usage("--notify: say whom the server may tell: all, external or none")
	}
	for _, g := range guests {
		if b.invites(g) {
			continue
		}
		b.lines = append(b.lines, line{name: "ATTENDEE", value: "mailto:" + g, params: []param{
			{"PARTSTAT", []string{"NEEDS-ACTION"}}, {"RSVP", []string{"TRUE"}},
			{"SCHEDULE-AGENT", []string{agent(g, owner, notify)}}}})
	}
	return nil
}

func (b *block) invites(guest string) bool {
	return slices.ContainsFunc(b.lines, func(l line) bool { return l.name == "ATTENDEE" && l.at(guest) })
}

// agent says who tells a guest: SERVER, or NONE for nobody.
func agent(guest, owner, notify string) string {
	if notify == "all" || notify == "external" && !strings.EqualFold(domain(guest), domain(owner)) {
		return "SERVER"
	}
	return "NONE"
}

func domain(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// at says whether a calendar user's line is for that address.
func (l *line) at(address string) bool {
	return address != "" && strings.EqualFold(l.value, "mailto:"+address)
}

// touch marks an event as changed at the given time.
func (b *block) touch(unix int64) {
	b.set(plainLine("DTSTAMP", stamp(unix)))
	if b.has("LAST-MODIFIED") {
		b.set(plainLine("LAST-MODIFIED", stamp(unix)))
	}
}

// revise is touch for a change of the event itself.
func (b *block) revise(unix int64) error {
	n := int64(0)
	if l := b.get("SEQUENCE"); l != nil {
		var err error
		if n, err = strconv.ParseInt(l.value, 10, 32); err != nil || n < 0 {
			return errLines
		}
	}
	b.touch(unix)
	b.set(plainLine("SEQUENCE", strconv.FormatInt(n+1, 10)))
	return nil
}

// object is the calendar object that a change builds on.
type object struct {
	*block
	zones  *zones
	master *block
	parts  []*block
}

func objectOf(base []byte) (*object, error) {
	top, err := readLines(base)
	if err != nil {
		return nil, wire.Refuse(wire.CodeVendorRefused, err.Error(), "change it in another program")
	}
	cal, err := readCalendar(base)
	if err != nil || top.name != "VCALENDAR" {
		return nil, wire.Refuse(wire.CodeVendorRefused, "what stands there is no event", "look the path up again")
	}
	o := &object{block: top, zones: zonesOf(cal)}
	for _, k := range top.kids {
		switch {
		case k.name != "VEVENT":
		case k.has("RECURRENCE-ID"):
			o.parts = append(o.parts, k)
		case o.master == nil:
			o.master = k
		default:
			return nil, wire.Refuse(wire.CodeVendorRefused, "two events stand there as one", "")
		}
	}
	if o.master == nil && len(o.parts) == 0 {
		return nil, wire.Refuse(wire.CodeVendorRefused, "what stands there is no event", "look the path up again")
	}
	return o, nil
}

func (o *object) recurring() bool {
	return len(o.parts) > 0 || o.master.has("RRULE") || o.master.has("RDATE")
}

func (o *object) events() []*block {
	if o.master == nil {
		return o.parts
	}
	return append([]*block{o.master}, o.parts...)
}

// scope is which occurrences the call is about: "" for an event that does not recur.
func (o *object) scope(v map[string][]string) (string, error) {
	scope, instance := first(v["scope"]), first(v["instance"])
	switch {
	case !o.recurring() && (scope == "one" || scope == "following" || instance != ""):
		return "", usage("--scope: the event does not recur")
	case !o.recurring():
		return "", nil
	case scope == "":
		return "", usage("--scope: the event recurs; say which of it: one, following or all")
	case scope == "all" && instance != "":
		return "", usage("--instance: with --scope=all there is none")
	case scope != "all" && instance == "":
		return "", usage("--instance: say which occurrence, as events shows it")
	}
	return scope, nil
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// moment reads a line that holds a time.
func (o *object) moment(l *line) (moment, error) {
	if l == nil {
		return moment{}, errTime
	}
	return o.zones.at(l.prop())
}

// occurrence finds the VEVENT of one occurrence, or makes it from the series. It returns it as part of the object.
func (o *object) occurrence(instance string) (*block, error) {
	for _, p := range o.parts {
		m, err := o.moment(p.get("RECURRENCE-ID"))
		if err == nil && m.is(instance) {
			return p, nil
		}
	}
	if o.master == nil {
		return nil, usage("--instance: the event has no such occurrence")
	}
	start, err := o.moment(o.master.get("DTSTART"))
	if err != nil {
		return nil, wire.Refuse(wire.CodeVendorRefused, "the event's time cannot be read", "change it in another program")
	}
	at, err := o.instance(start, instance)
	if err != nil {
		return nil, err
	}
	p := o.master.clone()
	p.drop("RRULE", "RDATE", "EXDATE", "EXRULE")
	if err := o.move(p, start, at); err != nil {
		return nil, err
	}
	id := *o.master.get("DTSTART")
	id.name, id.value, id.params = "RECURRENCE-ID", at.value(&id), slices.Clone(id.params)
	p.lines = append(p.lines, id)
	o.parts = append(o.parts, p)
	o.kids = append(o.kids, p)
	return p, nil
}

// instance is the occurrence of the series that an argument names. One that the rule does not give is refused.
func (o *object) instance(start moment, arg string) (moment, error) {
	m := start
	switch {
	case start.date:
		t, err := time.Parse(time.DateOnly, arg)
		if err != nil {
			return m, usage("--instance: the event is of whole days; name a day")
		}
		m.t = t
	case start.floating:
		t, err := time.Parse(showLocal, arg)
		if err != nil {
			return m, usage("--instance: the event has local times without zone; name one")
		}
		m.t = t
	default:
		t, err := time.Parse(time.RFC3339, arg)
		if err != nil {
			return m, usage("--instance: name a time with its zone, as events shows it")
		}
		m.t = t.In(start.t.Location())
	}
	for _, p := range o.parts {
		if id, err := o.moment(p.get("RECURRENCE-ID")); err == nil && id.key() == m.key() {
			return m, nil
		}
	}
	s, err := readSeries(o.bytes())
	if err != nil {
		return m, err
	}
	list, _ := s.expand(m.t.Add(-time.Second), m.t.Add(time.Second), ruleSteps)
	if !slices.ContainsFunc(list, func(i instance) bool { return i.id.key() == m.key() }) {
		return m, usage("--instance: the event has no such occurrence")
	}
	return m, nil
}

// move sets the times of a copy of the series to one occurrence.
func (o *object) move(p *block, from, to moment) error {
	for _, name := range []string{"DTSTART", "DTEND"} {
		l := p.get(name)
		if l == nil {
			continue
		}
		m, err := o.moment(l)
		if err != nil {
			return wire.Refuse(wire.CodeVendorRefused, "the event's time cannot be read", "change it in another program")
		}
		// to has the place of from on the same clock; what lies between stays as long as it was.
		x := moment{to.t.Add(m.t.Sub(from.t)), m.date, m.floating}
		x.t = x.t.In(m.t.Location())
		l.value = x.value(l)
	}
	return nil
}

// value writes a moment in the form that stands on a line already.
func (m moment) value(like *line) string {
	switch {
	case m.date:
		return m.t.Format(formDate)
	case strings.HasSuffix(like.value, "Z"):
		return m.t.UTC().Format(formUTC)
	default:
		return m.t.Format(formLocal)
	}
}

// is says whether an argument names this moment.
func (m moment) is(arg string) bool {
	if m.date || m.floating {
		return m.show() == arg
	}
	t, err := time.Parse(time.RFC3339, arg)
	return err == nil && t.Equal(m.t)
}

// held says of a fault that is no refusal yet that it is about what the server holds: the arguments have been checked.
func held(render workers.Renderer) workers.Renderer {
	return func(r *workers.Rendering) ([]byte, string, error) {
		body, media, err := render(r)
		var refusal *wire.Error
		if err != nil && !errors.As(err, &refusal) {
			err = wire.Refuse(wire.CodeVendorRefused, "what the server holds there cannot be changed: "+err.Error(),
				"change it in another program")
		}
		return body, media, err
	}
}
