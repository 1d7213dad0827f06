// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"github.com/emersion/go-ical"
)

// Bounds of a time zone that an event brings along.
const (
	zoneFirst   = 1970
	zoneLast    = 2100
	zoneParts   = 64 // observances
	zoneChanges = 2000
)

// zones are the time zones of one calendar object. A name of the IANA database means what the database says, whatever
// the object claims; other names mean what the object's own VTIMEZONE says.
type zones struct {
	own   map[string]*ical.Component
	known map[string]*time.Location
}

func zonesOf(cal *ical.Calendar) *zones {
	z := &zones{map[string]*ical.Component{}, map[string]*time.Location{}}
	for _, c := range cal.Children {
		if c.Name == ical.CompTimezone {
			if id := c.Props.Get(ical.PropTimezoneID); id != nil {
				z.own[id.Value] = c
			}
		}
	}
	return z
}

// of finds a zone by its TZID.
func (z *zones) of(id string) (*time.Location, error) {
	if l := z.known[id]; l != nil {
		return l, nil
	}
	l, err := iana(strings.TrimPrefix(id, "/"))
	if err != nil {
		c := z.own[id]
		if c == nil {
			return nil, fmt.Errorf("time zone %.40q is not known", id)
		}
		if lic := c.Props.Get("X-LIC-LOCATION"); lic != nil {
			l, err = iana(lic.Value)
		}
		if err != nil {
			if l, err = compile(id, c); err != nil {
				return nil, err
			}
		}
	}
	z.known[id] = l
	return l, nil
}

// iana finds a zone of the database. "Local" is none: it would be this machine's.
func iana(name string) (*time.Location, error) {
	if name == "" || name == "Local" || len(name) > 64 {
		return nil, fmt.Errorf("no time zone of that name")
	}
	return time.LoadLocation(name)
}

// compile makes a location of a VTIMEZONE (RFC 5545 section 3.6.5), by expanding its observances within bounds into the
// file format that package time reads (RFC 8536).
func compile(id string, c *ical.Component) (*time.Location, error) {
	type change struct {
		at     int64
		offset int
		dst    bool
	}
	var all []change
	last := time.Date(zoneLast, 1, 1, 0, 0, 0, 0, time.UTC)
	first := 0
	if len(c.Children) == 0 || len(c.Children) > zoneParts {
		return nil, fmt.Errorf("time zone %.40q has %d parts", id, len(c.Children))
	}
	for i, o := range c.Children {
		from, err1 := offset(o, ical.PropTimezoneOffsetFrom)
		to, err2 := offset(o, ical.PropTimezoneOffsetTo)
		start := o.Props.Get(ical.PropDateTimeStart)
		if err1 != nil || err2 != nil || start == nil {
			return nil, fmt.Errorf("time zone %.40q cannot be read", id)
		}
		at, err := time.Parse("20060102T150405", start.Value)
		if err != nil {
			return nil, fmt.Errorf("time zone %.40q cannot be read", id)
		}
		if i == 0 || o.Name == ical.CompTimezoneStandard {
			first = from
		}
		local := []time.Time{at}
		if r := o.Props.Get(ical.PropRecurrenceRule); r != nil {
			if local, err = occurrences(r.Value, at, last, false, zoneChanges); err != nil {
				return nil, err
			}
		}
		for _, d := range o.Props.Values(ical.PropRecurrenceDates) {
			for _, v := range strings.Split(d.Value, ",") {
				if t, err := time.Parse("20060102T150405", v); err == nil && len(local) < zoneChanges {
					local = append(local, t)
				}
			}
		}
		for _, t := range local {
			if y := t.Year(); y >= zoneFirst-70 && y <= zoneLast && len(all) < zoneChanges {
				all = append(all, change{t.Unix() - int64(from), to, o.Name == ical.CompTimezoneDaylight})
			}
		}
	}
	slices.SortFunc(all, func(a, b change) int { return int(max(-1, min(1, a.at-b.at))) })

	// TZif version 2: an empty version 1 block, then 64-bit transitions. Type 0 is before all of them.
	var b bytes.Buffer
	head := func(times, kinds, chars int) {
		b.WriteString("TZif2")
		b.Write(make([]byte, 15))
		for _, n := range []int{0, 0, 0, times, kinds, chars} {
			_ = binary.Write(&b, binary.BigEndian, uint32(n))
		}
	}
	type kind struct {
		offset int
		dst    bool
	}
	kinds := []kind{{first, false}}
	var index []byte
	for _, x := range all {
		k := kind{x.offset, x.dst}
		i := slices.Index(kinds, k)
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, k)
		}
		if i > 254 {
			return nil, fmt.Errorf("time zone %.40q has too many offsets", id)
		}
		index = append(index, byte(i))
	}
	head(0, 1, 1)
	b.Write([]byte{0, 0, 0, 0, 0, 0, 0})
	head(len(all), len(kinds), 1)
	for _, x := range all {
		_ = binary.Write(&b, binary.BigEndian, x.at)
	}
	b.Write(index)
	for _, k := range kinds {
		_ = binary.Write(&b, binary.BigEndian, int32(k.offset))
		dst := byte(0)
		if k.dst {
			dst = 1
		}
		b.Write([]byte{dst, 0})
	}
	b.WriteByte(0)        // the one abbreviation: none
	b.WriteString("\n\n") // no rule for what comes after
	return time.LoadLocationFromTZData(id, b.Bytes())
}

// offset reads a UTC offset of RFC 5545 section 3.3.14 in seconds.
func offset(c *ical.Component, name string) (int, error) {
	p := c.Props.Get(name)
	if p == nil || len(p.Value) != 5 && len(p.Value) != 7 || p.Value[0] != '+' && p.Value[0] != '-' {
		return 0, fmt.Errorf("no offset")
	}
	n, err := strconv.Atoi(p.Value[1:])
	if err != nil || n < 0 {
		return 0, fmt.Errorf("no offset")
	}
	if len(p.Value) == 5 {
		n *= 100
	}
	s := n/10000*3600 + n/100%100*60 + n%100
	if s > 26*3600 {
		return 0, fmt.Errorf("no offset")
	}
	if p.Value[0] == '-' {
		s = -s
	}
	return s, nil
}
