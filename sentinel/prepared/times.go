// SPDX-License-Identifier: Apache-2.0

package prepared

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the same zones on every machine
)

// Forms of RFC 5545 sections 3.3.4 and 3.3.5, and of arguments.
const (
	basicDay   = "20060102"
	basicLocal = "20060102T150405"
	basicUTC   = basicLocal + "Z"
	argLocal   = "2006-01-02T15:04:05"
)

// moment is a day, a time on a clock without zone, or an instant in a zone.
type moment struct {
	t        time.Time
	day      bool
	floating bool
	zone     string // name, for an instant that an argument gives as local
}

var errMoment = errors.New("a time of the event cannot be read")

// zone finds a time zone of the database by its TZID. Names of a calendar's own are not read: what they mean would be
// the base's word.
func zone(id string) (*time.Location, error) {
	id = strings.TrimPrefix(id, "/")
	if id == "" || id == "Local" || len(id) > 64 {
		return nil, errMoment
	}
	l, err := time.LoadLocation(id)
	if err != nil {
		return nil, errMoment
	}
	return l, nil
}

// momentOf reads DTSTART and its like.
func momentOf(p *property) (moment, error) {
	if p == nil {
		return moment{}, errMoment
	}
	value := p.param("VALUE")
	switch {
	case len(p.value) == len(basicDay) && (value == "DATE" || value == ""):
		t, err := time.Parse(basicDay, p.value)
		return moment{t: t, day: true}, plausible(t, err)
	case value != "" && value != "DATE-TIME":
	case len(p.value) == len(basicUTC):
		t, err := time.Parse(basicUTC, p.value)
		return moment{t: t}, plausible(t, err)
	case len(p.value) == len(basicLocal) && p.param("TZID") == "":
		t, err := time.Parse(basicLocal, p.value)
		return moment{t: t, floating: true}, plausible(t, err)
	case len(p.value) == len(basicLocal):
		l, err := zone(p.param("TZID"))
		if err != nil {
			return moment{}, err
		}
		t, err := time.ParseInLocation(basicLocal, p.value, l)
		return moment{t: t}, plausible(t, err)
	}
	return moment{}, errMoment
}

func plausible(t time.Time, err error) error {
	if err != nil || t.Year() < 1 || t.Year() > 9990 {
		return errMoment
	}
	return nil
}

// like writes m the way the value of p is written.
func (m moment) like(p *property) string {
	switch {
	case m.day:
		return m.t.Format(basicDay)
	case strings.HasSuffix(p.value, "Z"):
		return m.t.UTC().Format(basicUTC)
	default:
		return m.t.Format(basicLocal)
	}
}

// named says whether the argument --instance names m.
func (m moment) named(arg string) bool {
	switch {
	case m.day:
		return m.t.Format(time.DateOnly) == arg
	case m.floating:
		return m.t.Format(argLocal) == arg
	}
	t, err := time.Parse(time.RFC3339, arg)
	return err == nil && t.Equal(m.t)
}

// of is the occurrence that --instance names, of a series that begins at m.
func (m moment) of(arg string) (moment, error) {
	layout := time.RFC3339
	switch {
	case m.day:
		layout = time.DateOnly
	case m.floating:
		layout = argLocal
	}
	t, err := time.Parse(layout, arg)
	if err != nil {
		return moment{}, usage("--instance: not of the form that the event's own times have")
	}
	m.t = t.In(m.t.Location())
	return m, nil
}

// argument reads --start or --end: a day; a local time, which --tz places; or an instant, which --tz only says how to
// write. Nothing that a zone's clocks skip or show twice is taken.
func argument(name, arg, tz string) (moment, error) {
	if t, err := time.Parse(time.DateOnly, arg); err == nil {
		return moment{t: t, day: true}, nil
	}
	instant, err := time.Parse(time.RFC3339, arg)
	if tz == "" || tz == "UTC" {
		if err != nil && tz == "UTC" {
			instant, err = time.Parse(argLocal, arg)
		}
		if err != nil {
			return moment{}, usage("--%s: no time with a zone", name)
		}
		return moment{t: instant.UTC()}, nil
	}
	l, zoneErr := zone(tz)
	if zoneErr != nil || strings.HasPrefix(tz, "/") {
		return moment{}, usage("--tz: no time zone of that name")
	}
	if err != nil {
		if instant, err = time.ParseInLocation(argLocal, arg, l); err != nil {
			return moment{}, usage("--%s: no time", name)
		}
		if instant.Format(argLocal) != arg {
			return moment{}, usage("--%s: the clocks of %s skip it", name, tz)
		}
	}
	instant = instant.In(l)
	again, err := time.ParseInLocation(basicLocal, instant.Format(basicLocal), l)
	if err != nil || !again.Equal(instant) {
		return moment{}, usage("--%s: the clocks of %s show it twice", name, tz)
	}
	return moment{t: instant, zone: tz}, nil
}

// property writes an argument's moment.
func (m moment) property(name string) property {
	switch {
	case m.day:
		return property{name, []parameter{{"VALUE", []string{"DATE"}}}, m.t.Format(basicDay)}
	case m.zone != "":
		return property{name, []parameter{{"TZID", []string{m.zone}}}, m.t.Format(basicLocal)}
	default:
		return simple(name, m.t.UTC().Format(basicUTC))
	}
}

// behind is the end that stands in an event: of days the one behind the last.
func (m moment) behind() moment {
	if m.day {
		m.t = m.t.AddDate(0, 0, 1)
	}
	return m
}

// horizon is for how many years a series' time zone is told.
const horizon = 30

// takeZone takes the VTIMEZONE of tz out of cal, where there is exactly one and it says what the database says, from
// the last change before start to years after end.
func takeZone(cal *component, tz string, start, end moment, years int) error {
	var z *component
	var rest []*component
	for _, s := range cal.subs {
		p := s.get("TZID")
		if s.name != "VTIMEZONE" || p == nil || p.value != tz {
			rest = append(rest, s)
			continue
		}
		if z != nil {
			return fmt.Errorf("the time zone %s stands twice", quoted(tz))
		}
		z = s
	}
	if z == nil {
		return fmt.Errorf("the time zone %s is missing", quoted(tz))
	}
	want := changesOf(start.t, end.t.AddDate(years, 0, 0))
	if len(z.props) != 1 || len(z.props[0].params) > 0 {
		return errors.New("the time zone says more than its name")
	}
	for _, o := range z.subs {
		got, err := observance(o)
		if err != nil {
			return err
		}
		for _, x := range got {
			if !want[x] {
				return fmt.Errorf("the time zone %s is not what the database says", quoted(tz))
			}
			delete(want, x)
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("the time zone %s lacks a change", quoted(tz))
	}
	cal.subs = rest
	return nil
}

// onset is one change of a zone's clocks.
type onset struct {
	local    string // on the clock before it
	from, to string // offsets
	name     string
	summer   bool
}

// changesOf are the changes of t's zone from the last one at or before t (looked for five years back) to until. Weeks
// are compared, and a week in which the clock changes is halved to the second: Time.ZoneBounds also stops at ends of
// years, which are no changes.
func changesOf(t, until time.Time) map[onset]bool {
	out := map[onset]bool{}
	const week = 7 * 24 * time.Hour
	type clock struct {
		name   string
		offset int
		summer bool
	}
	stands := func(t time.Time) clock {
		name, o := t.Zone()
		return clock{name, o, t.IsDST()}
	}
	told := func(c clock) onset { return onset{to: offset(c.offset), name: c.name, summer: c.summer} }
	add := func(before, at time.Time) {
		for at.Sub(before) > time.Second {
			mid := before.Add(at.Sub(before) / 2).Truncate(time.Second)
			if stands(mid) == stands(at) {
				at = mid
			} else {
				before = mid
			}
		}
		if at.After(until) {
			return
		}
		x := told(stands(at))
		_, o := before.Zone()
		x.from, x.local = offset(o), at.In(time.FixedZone("", o)).Format(basicLocal)
		out[x] = true
	}
	at, back := t, 5*53
	for ; back > 0 && stands(at.Add(-week)) == stands(at); back-- {
		at = at.Add(-week)
	}
	if back > 0 {
		add(at.Add(-week), at)
	} else {
		x := told(stands(t))
		x.from, x.local = x.to, "19700101T000000"
		out[x] = true
	}
	for at = t; !at.After(until); at = at.Add(week) {
		if stands(at.Add(week)) != stands(at) {
			add(at, at.Add(week))
		}
	}
	return out
}

func offset(s int) string {
	sign := "+"
	if s < 0 {
		sign, s = "-", -s
	}
	pad := func(n int) string {
		if n < 10 {
			return "0" + strconv.Itoa(n)
		}
		return strconv.Itoa(n)
	}
	o := sign + pad(s/3600) + pad(s/60%60)
	if s%60 != 0 {
		o += pad(s % 60)
	}
	return o
}

// observance reads one STANDARD or DAYLIGHT of the form that a renderer may write: single changes, no rule.
func observance(o *component) ([]onset, error) {
	if o.name != "STANDARD" && o.name != "DAYLIGHT" || len(o.subs) > 0 {
		return nil, errors.New("a time zone has a part that is neither STANDARD nor DAYLIGHT")
	}
	x := onset{summer: o.name == "DAYLIGHT"}
	var at []string
	seen := map[string]bool{}
	for _, p := range o.props {
		if len(p.params) > 0 || p.name != "RDATE" && seen[p.name] {
			return nil, errors.New("a time zone says more than it may")
		}
		seen[p.name] = true
		switch p.name {
		case "DTSTART", "RDATE":
			at = append(at, p.value)
		case "TZOFFSETFROM":
			x.from = p.value
		case "TZOFFSETTO":
			x.to = p.value
		case "TZNAME":
			x.name = p.value
		default:
			return nil, errors.New("a time zone says more than it may")
		}
	}
	if !seen["DTSTART"] {
		return nil, errors.New("a time zone lacks its begin")
	}
	var out []onset
	for _, v := range at {
		x.local = v
		out = append(out, x)
	}
	return out, nil
}
