// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

func renderUpdate(r *workers.Rendering) ([]byte, string, error) {
	o, err := objectOf(r.Base)
	if err != nil {
		return nil, "", err
	}
	scope, err := o.scope(r.Values)
	if err != nil {
		return nil, "", err
	}
	targets := o.events()
	if scope == "one" || scope == "following" {
		p, err := o.occurrence(r.Values.One("instance"))
		if err != nil {
			return nil, "", err
		}
		if scope == "following" {
			p.get("RECURRENCE-ID").setParam("RANGE", "THISANDFUTURE")
		}
		targets = []*block{p}
	}
	changed := 0
	for _, name := range []string{"title", "location", "description", "start", "end", "attendee", "remove-attendee"} {
		changed += len(r.Values[name])
	}
	if changed == 0 && r.Values.One("notify") == "" {
		return nil, "", usage("nothing is to be changed; name a field")
	}
	for _, g := range r.Values["remove-attendee"] {
		if !slices.ContainsFunc(targets, func(b *block) bool { return b.invites(g) }) {
			return nil, "", usage("--remove-attendee: %s is no guest of it", g)
		}
	}
	for _, ev := range targets {
		v := r.Values
		ev.setText("SUMMARY", v["title"])
		ev.setText("LOCATION", v["location"])
		ev.setText("DESCRIPTION", v["description"])
		if err := ev.guests(v, r.Owner); err != nil {
			return nil, "", err
		}
		if err := ev.revise(r.Unix); err != nil {
			return nil, "", err
		}
	}
	if err := o.reschedule(targets, scope, r.Values); err != nil {
		return nil, "", err
	}
	return o.bytes(), mediaCalendar, nil
}

// guests adds and removes guests, and says for each whether the server may tell them.
func (b *block) guests(v describe.Values, owner string) error {
	add, remove, notify := v["attendee"], v["remove-attendee"], v.One("notify")
	if org := b.get("ORGANIZER"); org != nil && !org.at(owner) {
		if len(add)+len(remove) > 0 {
			return usage("--attendee: the event is another's; only its organizer says who is a guest")
		}
		return nil
	}
	for _, g := range remove {
		b.lines = slices.DeleteFunc(b.lines, func(l line) bool { return l.name == "ATTENDEE" && l.at(g) })
	}
	if len(add) > 0 {
		if owner == "" {
			return noOwner()
		}
		if !b.has("ORGANIZER") {
			b.lines = append(b.lines, plainLine("ORGANIZER", "mailto:"+owner))
		}
		if err := b.invite(add, owner, notify); err != nil {
			return err
		}
	}
	return b.tell(owner, notify)
}

// tell sets for each guest but the owner whether the server may mail them.
func (b *block) tell(owner, notify string) error {
	for i := range b.lines {
		l := &b.lines[i]
		if l.name != "ATTENDEE" || l.at(owner) {
			continue
		}
		if notify == "" {
			return usage("--notify: the event has guests; say whom the server may tell")
		}
		guest := l.value
		if isMail(guest) {
			guest = guest[len("mailto:"):]
		}
		l.setParam("SCHEDULE-AGENT", agent(guest, owner, notify))
	}
	return nil
}

// reschedule sets the times that arguments name.
func (o *object) reschedule(targets []*block, scope string, v describe.Values) error {
	if len(v["start"]) == 0 && len(v["end"]) == 0 {
		if v.One("tz") != "" {
			return usage("--tz: it goes with --start or --end")
		}
		return nil
	}
	ev := targets[0]
	if scope == "all" {
		if o.master == nil || len(o.parts) > 0 || o.master.has("EXDATE") || o.master.has("RDATE") {
			return usage("--start: some occurrences were changed or removed; use --scope=one for each, or --scope=following")
		}
		ev = o.master
	}
	var w [2]when
	for i, name := range []string{"start", "end"} {
		prop := []string{"DTSTART", "DTEND"}[i]
		arg := v.One(name)
		if arg == "" {
			continue
		}
		x, err := whenOf(name, arg, v.One("tz"))
		if err != nil {
			return err
		}
		if !x.date && x.tz == "" && v.One("tz") == "" && (scope == "all" || scope == "following") {
			return usage("--tz: a series needs a time zone, or it moves when clocks change")
		}
		w[i] = x
		if name == "end" {
			ev.drop("DURATION")
			x = x.exclusive()
		}
		ev.set(x.line(prop))
	}
	start, err := o.moment(ev.get("DTSTART"))
	if err != nil {
		return wire.Refuse(wire.CodeVendorRefused, "the event's time cannot be read", "name both --start and --end")
	}
	if l := ev.get("DTEND"); l != nil {
		end, err := o.moment(l)
		switch {
		case err != nil:
			return wire.Refuse(wire.CodeVendorRefused, "the event's time cannot be read", "name both --start and --end")
		case end.date != start.date:
			return usage("--end: both --start and --end are days, or neither is")
		case !end.t.After(start.t):
			return usage("--end: it is not after the start")
		}
	}
	zone := w[0]
	if zone.tz == "" {
		zone = w[1]
	}
	if zone.tz == "" {
		return nil
	}
	years := 0
	if scope == "all" || scope == "following" {
		years = seriesYears
	}
	last := zone
	if w[1].tz != "" {
		last = w[1]
	}
	o.kids = slices.DeleteFunc(o.kids, func(k *block) bool { return k.name == "VTIMEZONE" && k.is("TZID", zone.tz) })
	o.kids = slices.Insert(o.kids, 0, zone.vtimezone(last, years))
	return nil
}

func (b *block) is(name, value string) bool {
	l := b.get(name)
	return l != nil && l.value == value
}

func renderRespond(r *workers.Rendering) ([]byte, string, error) {
	o, err := objectOf(r.Base)
	if err != nil {
		return nil, "", err
	}
	if r.Owner == "" {
		return nil, "", wire.Refuse(wire.CodeNotConfigured,
			"the account does not say whose it is, so which guest answers is unknown", "give the account an owner address")
	}
	scope, err := o.scope(r.Values)
	if err != nil {
		return nil, "", err
	}
	targets := o.events()
	if scope == "one" {
		p, err := o.occurrence(r.Values.One("instance"))
		if err != nil {
			return nil, "", err
		}
		targets = []*block{p}
	}
	answers := 0
	for _, ev := range targets {
		mine := false
		for i := range ev.lines {
			l := &ev.lines[i]
			if l.name == "ATTENDEE" && l.at(r.Owner) {
				l.setParam("PARTSTAT", strings.ToUpper(r.Values.One("answer")))
				mine = true
			}
		}
		if !mine {
			continue
		}
		answers++
		if org := ev.get("ORGANIZER"); org != nil {
			org.setParam("SCHEDULE-AGENT", agent("", "", r.Values.One("notify")))
		}
		ev.touch(r.Unix)
	}
	if answers == 0 {
		return nil, "", usage("--event: %s is not invited to it", r.Owner)
	}
	return o.bytes(), mediaCalendar, nil
}

// renderDelete makes the body of an event that loses some occurrences. A whole delete has no body, but it is held to
// the same: what recurs needs a scope, and guests need a choice.
func renderDelete(r *workers.Rendering) ([]byte, string, error) {
	o, err := objectOf(r.Base)
	if err != nil {
		return nil, "", err
	}
	scope, err := o.scope(r.Values)
	if err != nil {
		return nil, "", err
	}
	notify := r.Values.One("notify")
	if scope == "" || scope == "all" {
		for _, ev := range o.events() {
			if err := ev.mayVanish(r.Owner, notify); err != nil {
				return nil, "", err
			}
		}
		return nil, "", nil
	}
	if o.master == nil || !o.master.has("RRULE") && scope == "following" {
		return nil, "", usage("--scope: only single occurrences of the series stand there; use --scope=all")
	}
	start, err := o.moment(o.master.get("DTSTART"))
	if err != nil {
		return nil, "", wire.Refuse(wire.CodeVendorRefused, "the event's time cannot be read", "change it in another program")
	}
	at, err := o.instance(start, r.Values.One("instance"))
	if err != nil {
		return nil, "", err
	}
	gone := func(m moment) bool { return m.key() == at.key() }
	if scope == "following" {
		if !at.t.After(start.t) {
			return nil, "", usage("--scope: that is the whole series; use --scope=all")
		}
		if o.master.has("RDATE") {
			return nil, "", usage("--scope: the series has single dates besides its rule; delete one by one")
		}
		gone = func(m moment) bool { return !m.t.Before(at.t) }
		o.master.get("RRULE").until(at)
	} else {
		l := *o.master.get("DTSTART")
		l.name, l.value, l.params = "EXDATE", at.value(&l), slices.Clone(l.params)
		o.master.lines = append(o.master.lines, l)
	}
	o.kids = slices.DeleteFunc(o.kids, func(k *block) bool {
		if k.name != "VEVENT" || k == o.master {
			return false
		}
		m, err := o.moment(k.get("RECURRENCE-ID"))
		return err == nil && gone(m)
	})
	if org := o.master.get("ORGANIZER"); org == nil || org.at(r.Owner) {
		if err := o.master.tell(r.Owner, notify); err != nil {
			return nil, "", err
		}
	}
	if err := o.master.revise(r.Unix); err != nil {
		return nil, "", err
	}
	return o.bytes(), mediaCalendar, nil
}

// mayVanish says whether a deletion does what --notify says. A server mails guests on its own when the organizer's
// event goes (RFC 6638 section 3.2.1.3), and no header of the request stops that.
func (b *block) mayVanish(owner, notify string) error {
	if !b.has("ATTENDEE") {
		return nil
	}
	if notify == "" {
		return usage("--notify: the event has guests; say whether the server may tell them")
	}
	if org := b.get("ORGANIZER"); notify == "all" || org != nil && !org.at(owner) {
		return nil
	}
	for i := range b.lines {
		l := &b.lines[i]
		a := strings.ToUpper(l.param("SCHEDULE-AGENT"))
		if l.name == "ATTENDEE" && !l.at(owner) && a != "NONE" && a != "CLIENT" {
			return usage("--notify: the server tells guests of a deletion by itself; first use event-update --notify=none")
		}
	}
	return nil
}

// until ends a rule before at.
func (l *line) until(at moment) {
	var parts []string
	for _, p := range strings.Split(l.value, ";") {
		name, _, _ := strings.Cut(strings.ToUpper(p), "=")
		if name != "UNTIL" && name != "COUNT" {
			parts = append(parts, p)
		}
	}
	var end string
	switch {
	case at.date:
		end = at.t.AddDate(0, 0, -1).Format(formDate)
	case at.floating:
		end = at.t.Add(-time.Second).Format(formLocal)
	default:
		end = at.t.Add(-time.Second).UTC().Format(formUTC)
	}
	l.value = strings.Join(append(parts, "UNTIL="+end), ";")
}
