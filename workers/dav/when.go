// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-ical"
)

// when is a time that an argument names.
type when struct {
	t    time.Time // days in UTC
	date bool
	tz   string // where the time is local to a zone
}

// whenOf reads the argument name: a date, a local time in zone, or a time with an offset.
func whenOf(name, arg, zone string) (when, error) {
	if t, err := time.Parse(time.DateOnly, arg); err == nil {
		return when{t: t, date: true}, nil
	}
	if zone == "" {
		t, err := time.Parse(time.RFC3339, arg)
		if err != nil {
			return when{}, usage("--%s: it has no zone; name one with --tz", name)
		}
		return when{t: t.UTC()}, nil
	}
	l, err := iana(zone)
	if err != nil {
		return when{}, usage("--tz: no time zone of that name")
	}
	t, err := time.Parse(time.RFC3339, arg)
	if err != nil {
		if t, err = time.ParseInLocation(showLocal, arg, l); err != nil {
			return when{}, usage("--%s: it cannot be read", name)
		}
		if t.Format(showLocal) != arg {
			return when{}, usage("--%s: there is no such time in %s, its clocks skip it", name, zone)
		}
	}
	if l.String() == "UTC" {
		return when{t: t.UTC()}, nil
	}
	t = t.In(l)
	if again, err := time.ParseInLocation(formLocal, t.Format(formLocal), l); err != nil || !again.Equal(t) {
		return when{}, usage("--%s: clocks in %s show this time twice; leave --tz out", name, zone)
	}
	return when{t: t, tz: zone}, nil
}

func ordered(start, end when) error {
	switch {
	case start.date != end.date:
		return usage("--end: both --start and --end are days, or neither is")
	case start.date && end.t.Before(start.t):
		return usage("--end: it is before --start")
	case !start.date && !end.t.After(start.t):
		return usage("--end: it is not after --start")
	}
	return nil
}

// exclusive is the end as RFC 5545 writes it: of days the one behind the last.
func (w when) exclusive() when {
	if w.date {
		w.t = w.t.AddDate(0, 0, 1)
	}
	return w
}

func (w when) line(name string) line {
	switch {
	case w.date:
		return line{name: name, params: []param{{"VALUE", []string{"DATE"}}}, value: w.t.Format(formDate)}
	case w.tz != "":
		return line{name: name, params: []param{{"TZID", []string{w.tz}}}, value: w.t.Format(formLocal)}
	default:
		return plainLine(name, w.t.UTC().Format(formUTC))
	}
}

// seriesYears is how far a time zone's data goes in an event that recurs.
const seriesYears = 30

// vtimezone is the VTIMEZONE of a time's zone: the changes of the database from the last before it to some years after
// end, each as it is. It is nil for a time without zone.
func (w when) vtimezone(end when, years int) *block {
	if w.tz == "" {
		return nil
	}
	z := &block{name: "VTIMEZONE", lines: []line{plainLine("TZID", w.tz)}}
	until := end.t.AddDate(years, 0, 0)
	groups := map[string]*block{}
	add := func(at time.Time, onset string, from int) {
		abbr, to := at.Zone()
		kind := "STANDARD"
		if at.IsDST() {
			kind = "DAYLIGHT"
		}
		key := fmt.Sprint(kind, from, to, abbr)
		if g := groups[key]; g != nil {
			g.lines = append(g.lines, plainLine("RDATE", onset))
			return
		}
		g := &block{name: kind, lines: []line{plainLine("DTSTART", onset), plainLine("TZOFFSETFROM", offsetText(from)),
			plainLine("TZOFFSETTO", offsetText(to)), plainLine("TZNAME", abbr)}}
		groups[key] = g
		z.kids = append(z.kids, g)
	}
	change := func(at time.Time) {
		_, from := at.Add(-time.Second).Zone()
		add(at, at.UTC().Add(time.Duration(from)*time.Second).Format(formLocal), from)
	}
	if at, ok := lastChange(w.t); ok {
		change(at)
	} else {
		_, now := w.t.Zone()
		add(w.t, "19700101T000000", now)
	}
	for t := w.t; ; {
		at, ok := nextChange(t, until)
		if !ok {
			return z
		}
		change(at)
		t = at
	}
}

// week is how far apart clocks are compared: no zone changes twice in one.
const week = 7 * 24 * time.Hour

// zoneBack is how far back the last change of a zone's clocks is looked for.
const zoneBack = 5 * 53 // weeks

// lastChange is when the clocks of t's zone last changed, t included.
func lastChange(t time.Time) (time.Time, bool) {
	for range zoneBack {
		before := t.Add(-week)
		if clock(before) != clock(t) {
			return bisect(before, t), true
		}
		t = before
	}
	return time.Time{}, false
}

// nextChange is when they change next, until included. Time.ZoneBounds would do, but beyond a zone's list of changes it
// also stops at years, and in leap years does not get past their end.
func nextChange(t, until time.Time) (time.Time, bool) {
	for !t.After(until) {
		next := t.Add(week)
		if clock(next) != clock(t) {
			at := bisect(t, next)
			return at, !at.After(until)
		}
		t = next
	}
	return time.Time{}, false
}

// bisect is the first second of the clock that stands at b, where another stands at a.
func bisect(a, b time.Time) time.Time {
	for b.Sub(a) > time.Second {
		mid := a.Add(b.Sub(a) / 2).Truncate(time.Second)
		if clock(mid) == clock(b) {
			b = mid
		} else {
			a = mid
		}
	}
	return b
}

type clockOf struct {
	name   string
	offset int
	dst    bool
}

func clock(t time.Time) clockOf {
	n, o := t.Zone()
	return clockOf{n, o, t.IsDST()}
}

func offsetText(s int) string {
	sign := '+'
	if s < 0 {
		sign, s = '-', -s
	}
	text := fmt.Sprintf("%c%02d%02d", sign, s/3600, s/60%60)
	if s%60 != 0 {
		text += fmt.Sprintf("%02d", s%60)
	}
	return text
}

// prop is a line as the library has it.
func (l *line) prop() *ical.Prop {
	p := ical.NewProp(l.name)
	p.Value = l.value
	for _, x := range l.params {
		p.Params[x.name] = slices.Clone(x.values)
	}
	return p
}

func isMail(s string) bool { return len(s) > 7 && strings.EqualFold(s[:7], "mailto:") }
