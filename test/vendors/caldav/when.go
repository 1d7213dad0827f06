// SPDX-License-Identifier: Apache-2.0

package caldav

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-ical"
	"github.com/teambition/rrule-go"
)

// maxOccurrences bounds the expansion of one component.
const maxOccurrences = 5000

// An occurrence is one instance of an event.
type occurrence struct {
	start, end time.Time
	component  *ical.Component
	id         time.Time // what RECURRENCE-ID would say
	recurring  bool
}

// bounds returns when a component starts and how long it is, RFC 5545 section 3.6.1.
func bounds(component *ical.Component) (start time.Time, length time.Duration, err error) {
	prop := component.Props.Get(ical.PropDateTimeStart)
	if prop == nil {
		return start, 0, fmt.Errorf("event without DTSTART")
	}
	if start, err = prop.DateTime(time.UTC); err != nil {
		return start, 0, fmt.Errorf("read DTSTART: %w", err)
	}
	if end := component.Props.Get(ical.PropDateTimeEnd); end != nil {
		until, err := end.DateTime(time.UTC)
		if err != nil || until.Before(start) {
			return start, 0, fmt.Errorf("read DTEND %q: %w", end.Value, err)
		}
		return start, until.Sub(start), nil
	}
	if duration := component.Props.Get(ical.PropDuration); duration != nil {
		length, err = duration.Duration()
		if err != nil {
			return start, 0, fmt.Errorf("read DURATION: %w", err)
		}
		return start, length, nil
	}
	if len(prop.Value) == len("20060102") {
		return start, 24 * time.Hour, nil
	}
	return start, 0, nil
}

// times reads every value of a list of dates.
func times(props []ical.Prop) []time.Time {
	var out []time.Time
	for _, prop := range props {
		for _, value := range strings.Split(prop.Value, ",") {
			one := prop
			one.Value = value
			if t, err := one.DateTime(time.UTC); err == nil {
				out = append(out, t)
			}
		}
	}
	return out
}

// occurrences returns the instances of a calendar object's events that overlap from..to, in order.
func occurrences(cal *ical.Calendar, from, to time.Time) ([]occurrence, error) {
	overridden := map[int64]bool{}
	var out []occurrence
	add := func(o occurrence) {
		// RFC 4791 section 9.9: an event without length overlaps when it starts within the range.
		overlaps := o.start.Before(to) && (o.end.After(from) || (o.start.Equal(o.end) && !o.start.Before(from)))
		if overlaps {
			out = append(out, o)
		}
	}
	for _, component := range cal.Children {
		prop := component.Props.Get(ical.PropRecurrenceID)
		if component.Name != ical.CompEvent || prop == nil {
			continue
		}
		id, err := prop.DateTime(time.UTC)
		if err != nil {
			return nil, fmt.Errorf("read RECURRENCE-ID: %w", err)
		}
		start, length, err := bounds(component)
		if err != nil {
			return nil, err
		}
		overridden[id.Unix()] = true
		add(occurrence{start: start, end: start.Add(length), component: component, id: id, recurring: true})
	}
	for _, component := range cal.Children {
		if component.Name != ical.CompEvent || component.Props.Get(ical.PropRecurrenceID) != nil {
			continue
		}
		start, length, err := bounds(component)
		if err != nil {
			return nil, err
		}
		starts, err := recurrence(component, start, from.Add(-length), to)
		if err != nil {
			return nil, err
		}
		gone := times(component.Props.Values(ical.PropExceptionDates))
		recurring := component.Props.Get(ical.PropRecurrenceRule) != nil
		for _, at := range starts {
			dropped := overridden[at.Unix()] ||
				slices.ContainsFunc(gone, func(t time.Time) bool { return t.Equal(at) })
			if !dropped {
				add(occurrence{start: at, end: at.Add(length), component: component, id: at, recurring: recurring})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b occurrence) int { return a.start.Compare(b.start) })
	return out, nil
}

// recurrence lists the starts of a component between two times.
func recurrence(component *ical.Component, start, from, to time.Time) ([]time.Time, error) {
	starts := []time.Time{start}
	option, err := component.Props.RecurrenceRule()
	if err != nil {
		return nil, fmt.Errorf("read RRULE: %w", err)
	}
	if option != nil {
		option.Dtstart = start
		rule, err := rrule.NewRRule(*option)
		if err != nil {
			return nil, fmt.Errorf("read RRULE: %w", err)
		}
		starts = starts[:0]
		next := rule.Iterator()
		for len(starts) < maxOccurrences {
			at, ok := next()
			if !ok || at.After(to) {
				break
			}
			if !at.Before(from) {
				starts = append(starts, at)
			}
		}
	}
	for _, at := range times(component.Props.Values(ical.PropRecurrenceDates)) {
		if !slices.ContainsFunc(starts, func(t time.Time) bool { return t.Equal(at) }) {
			starts = append(starts, at)
		}
	}
	return starts, nil
}

// expand writes an object's occurrences in a range as single events in UTC, RFC 4791 section 9.6.5.
func expand(cal *ical.Calendar, from, to time.Time) (*ical.Calendar, error) {
	list, err := occurrences(cal, from, to)
	if err != nil {
		return nil, err
	}
	out := ical.NewCalendar()
	out.Props = cal.Props
	for _, o := range list {
		one := ical.NewComponent(ical.CompEvent)
		allDay := len(o.component.Props.Get(ical.PropDateTimeStart).Value) == len("20060102")
		for name, props := range o.component.Props {
			switch name {
			case ical.PropRecurrenceRule, ical.PropExceptionDates, ical.PropRecurrenceDates, ical.PropDateTimeStart,
				ical.PropDateTimeEnd, ical.PropDuration, ical.PropRecurrenceID:
			default:
				one.Props[name] = props
			}
		}
		set := func(name string, t time.Time) {
			prop := ical.NewProp(name)
			if allDay {
				prop.SetDate(t)
			} else {
				prop.SetDateTime(t.UTC())
			}
			one.Props.Set(prop)
		}
		set(ical.PropDateTimeStart, o.start)
		set(ical.PropDateTimeEnd, o.end)
		if o.recurring {
			set(ical.PropRecurrenceID, o.id)
		}
		out.Children = append(out.Children, one)
	}
	return out, nil
}
