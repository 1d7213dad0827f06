// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-ical"
	"github.com/teambition/rrule-go"
)

// Bounds of an expansion. A rule is written by a stranger, and may ask for every second of ten thousand years.
const (
	ruleSteps   = 60_000 // occurrences that are walked: daily, since 1900
	ruleBytes   = 1024
	ruleNumbers = 400 // values of BY parts together
	extraDates  = 1000
	firstYear   = 1900
)

// errRule says that a rule is not expanded.
var errRule = errors.New("the recurrence rule is not one that is expanded")

// occurrences lists when a rule beginning at start recurs before end, start's own zone counting, at most limit times.
// whole says that start is a day. The first is start itself only where the rule gives it.
func occurrences(rule string, start, end time.Time, whole bool, limit int) (out []time.Time, err error) {
	defer func() {
		if recover() != nil { // the library indexes with what the rule says
			out, err = nil, errRule
		}
	}()
	r, err := readRule(rule, start, whole)
	if err != nil {
		return nil, err
	}
	next := r.Iterator()
	for range ruleSteps {
		t, ok := next()
		if !ok || !t.Before(end) || len(out) >= limit {
			return out, nil
		}
		out = append(out, t)
	}
	return out, nil
}

// readRule takes a rule whose expansion is bounded: nothing finer than an hour, and no combination of parts that the
// library would search ten thousand years for in small steps.
func readRule(rule string, start time.Time, whole bool) (*rrule.RRule, error) {
	if len(rule) > ruleBytes || start.Year() < firstYear || start.Year() > 9000 {
		return nil, errRule
	}
	o, err := rrule.StrToROptionInLocation(rule, start.Location())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRule, err)
	}
	n := 0
	for _, by := range [][]int{o.Bysetpos, o.Bymonth, o.Bymonthday, o.Byyearday, o.Byweekno, o.Byhour, o.Byminute,
		o.Bysecond} {
		n += len(by)
	}
	coarse := len(o.Bymonthday) + len(o.Byyearday) + len(o.Byweekno) + len(o.Bysetpos)
	switch {
	case n+len(o.Byweekday) > ruleNumbers || len(o.Byeaster) > 0 || o.Count < 0 || o.Interval < 0 || o.Interval > 10_000:
		return nil, errRule
	case len(o.Byhour)*len(o.Byminute)*len(o.Bysecond) > 1:
		return nil, errRule
	case o.Freq == rrule.SECONDLY || o.Freq == rrule.MINUTELY:
		return nil, errRule
	case o.Freq == rrule.HOURLY && n+len(o.Byweekday) > 0, o.Freq == rrule.DAILY && coarse > 0:
		return nil, errRule
	}
	if !o.Until.IsZero() && !whole && dateOnly(rule) { // the day itself counts
		o.Until = o.Until.Add(24*time.Hour - time.Second)
	}
	o.Dtstart = start
	return rrule.NewRRule(*o)
}

// dateOnly says whether a rule's UNTIL is a date.
func dateOnly(rule string) bool {
	_, u, ok := strings.Cut(strings.ToUpper(rule), "UNTIL=")
	u, _, _ = strings.Cut(u, ";")
	return ok && !strings.Contains(u, "T")
}

// instance is one occurrence of an event.
type instance struct {
	comp       *ical.Component // what it looks like: the series, or its own exception
	start, end moment
	id         moment // which occurrence of the series; zero where it does not recur
	recurring  bool
}

// series is one calendar object: an event with its exceptions.
type series struct {
	zones  *zones
	master *ical.Component   // nil where only some occurrences are known
	parts  []*ical.Component // with RECURRENCE-ID
}

// expand lists the instances that overlap the range, at most limit of them, unsorted. Where something cannot be
// expanded, the event is shown once, and note says so.
func (s *series) expand(from, to time.Time, limit int) (out []instance, note string) {
	type exception struct {
		comp       *ical.Component
		id         moment
		start, end moment
		onwards    bool
	}
	var parts []exception
	taken := map[string]bool{}
	for _, c := range s.parts {
		p := c.Props.Get(ical.PropRecurrenceID)
		id, err := s.zones.at(p)
		start, end, err2 := s.span(c)
		if err != nil || err2 != nil {
			note = "an occurrence has a time that cannot be read"
			continue
		}
		parts = append(parts, exception{c, id, start, end, strings.EqualFold(p.Params.Get("RANGE"), "THISANDFUTURE")})
		taken[id.key()] = true
	}
	slices.SortFunc(parts, func(a, b exception) int { return a.id.t.Compare(b.id.t) })
	add := func(i instance) bool {
		if i.overlaps(from, to) && !cancelled(i.comp) {
			out = append(out, i)
		}
		return len(out) < limit
	}
	for _, p := range parts {
		if !add(instance{p.comp, p.start, p.end, p.id, true}) {
			return out, note
		}
	}
	if s.master == nil {
		return out, note
	}
	start, end, err := s.span(s.master)
	if err != nil {
		return out, "an event has a time that cannot be read"
	}
	if !recurs(s.master) {
		add(instance{comp: s.master, start: start, end: end})
		return out, note
	}
	length := end.t.Sub(start.t)
	starts := []time.Time{start.t}
	if r := s.master.Props.Get(ical.PropRecurrenceRule); r != nil {
		if starts, err = occurrences(r.Value, start.t, to, start.date, ruleSteps); err != nil {
			note = "a recurrence rule is not expanded: only its first occurrence is shown"
			starts = nil
		}
		if len(starts) == 0 || !starts[0].Equal(start.t) { // the first counts, whatever the rule
			starts = append([]time.Time{start.t}, starts...)
		}
	}
	for _, m := range s.dates(s.master, ical.PropRecurrenceDates) {
		starts = append(starts, m.t)
	}
	gone := map[string]bool{}
	for _, m := range s.dates(s.master, ical.PropExceptionDates) {
		gone[m.key()] = true
	}
	slices.SortFunc(starts, time.Time.Compare)
	for _, t := range slices.CompactFunc(starts, time.Time.Equal) {
		id := moment{t, start.date, start.floating}
		if taken[id.key()] || gone[id.key()] || gone[t.Format(time.DateOnly)] {
			continue
		}
		i := instance{s.master, id, id.add(length), id, true}
		for _, p := range parts { // the last one before it that changed all that follow
			if p.onwards && p.id.t.Before(t) {
				shifted := id.add(p.start.t.Sub(p.id.t))
				i = instance{p.comp, shifted, shifted.add(p.end.t.Sub(p.start.t)), id, true}
			}
		}
		if !add(i) {
			break
		}
	}
	return out, note
}

func (i *instance) overlaps(from, to time.Time) bool {
	if i.start.t.Equal(i.end.t) {
		return !i.start.t.Before(from) && i.start.t.Before(to)
	}
	return i.start.t.Before(to) && i.end.t.After(from)
}

func cancelled(c *ical.Component) bool {
	p := c.Props.Get(ical.PropStatus)
	return p != nil && strings.EqualFold(p.Value, "CANCELLED")
}

func recurs(c *ical.Component) bool {
	return c.Props.Get(ical.PropRecurrenceRule) != nil || c.Props.Get(ical.PropRecurrenceDates) != nil
}

// dates are the values of RDATE or EXDATE that can be read, at most extraDates.
func (s *series) dates(c *ical.Component, name string) []moment {
	var out []moment
	for _, p := range c.Props.Values(name) {
		for _, v := range strings.Split(p.Value, ",") {
			v, _, _ = strings.Cut(v, "/") // of a period its begin
			one := ical.Prop{Name: p.Name, Params: p.Params, Value: v}
			if m, err := s.zones.at(&one); err == nil && len(out) < extraDates {
				out = append(out, m)
			}
		}
	}
	return out
}
