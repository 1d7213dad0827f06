// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/emersion/go-ical"
)

// Forms of RFC 5545 sections 3.3.4 and 3.3.5, and of answers.
const (
	formDate  = "20060102"
	formLocal = "20060102T150405"
	formUTC   = "20060102T150405Z"
	showLocal = "2006-01-02T15:04:05"
)

// moment is a time of an event: a whole day, a time in a zone, or a time on whatever clock hangs there (floating).
// Days and floating times stand in UTC; they are compared as if they were.
type moment struct {
	t              time.Time
	date, floating bool
}

var errTime = errors.New("the time cannot be read")

// at reads a property that holds a time.
func (z *zones) at(p *ical.Prop) (moment, error) {
	if p == nil {
		return moment{}, errTime
	}
	switch len(p.Value) {
	case len(formDate):
		t, err := time.Parse(formDate, p.Value)
		return moment{t: t, date: true}, bounded(t, err)
	case len(formUTC):
		t, err := time.Parse(formUTC, p.Value)
		return moment{t: t}, bounded(t, err)
	case len(formLocal):
		id := p.Params.Get(ical.ParamTimezoneID)
		if id == "" {
			t, err := time.Parse(formLocal, p.Value)
			return moment{t: t, floating: true}, bounded(t, err)
		}
		l, err := z.of(id)
		if err != nil {
			return moment{}, err
		}
		t, err := time.ParseInLocation(formLocal, p.Value, l)
		return moment{t: t}, bounded(t, err)
	}
	return moment{}, errTime
}

func bounded(t time.Time, err error) error {
	if err != nil || t.Year() < 1 || t.Year() > 9990 {
		return errTime
	}
	return nil
}

// key names a moment among the occurrences of one series.
func (m moment) key() string {
	if m.date {
		return m.t.Format(time.DateOnly)
	}
	return strconv.FormatInt(m.t.Unix(), 10)
}

func (m moment) add(d time.Duration) moment {
	if m.date { // days are days
		m.t = m.t.AddDate(0, 0, int(d/(24*time.Hour)))
		return m
	}
	m.t = m.t.Add(d)
	return m
}

// show is how answers write a moment; --instance takes it back.
func (m moment) show() string {
	switch {
	case m.date:
		return m.t.Format(time.DateOnly)
	case m.floating:
		return m.t.Format(showLocal)
	default:
		return m.t.Format(time.RFC3339)
	}
}

// span is when an event begins and ends; the end is not included.
func (s *series) span(c *ical.Component) (start, end moment, err error) {
	if start, err = s.zones.at(c.Props.Get(ical.PropDateTimeStart)); err != nil {
		return moment{}, moment{}, err
	}
	if p := c.Props.Get(ical.PropDateTimeEnd); p != nil {
		if end, err = s.zones.at(p); err != nil {
			return moment{}, moment{}, err
		}
		if end.date != start.date || end.t.Before(start.t) {
			return moment{}, moment{}, fmt.Errorf("%w: it ends before it begins", errTime)
		}
		return start, end, nil
	}
	end = start
	if p := c.Props.Get(ical.PropDuration); p != nil {
		d, err := p.Duration()
		if err != nil || d < 0 || d > 10*366*24*time.Hour {
			return moment{}, moment{}, errTime
		}
		return start, start.add(d), nil
	}
	if start.date {
		end = start.add(24 * time.Hour)
	}
	return start, end, nil
}
