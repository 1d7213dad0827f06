// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/emersion/go-ical"
)

// Bounds of one object before the library sees it.
const (
	objectLines = 20_000
	objectLine  = 64 << 10 // bytes of a line, unfolded
	objectDepth = 4        // components within components
)

var errObject = errors.New("it is no calendar object")

// readCalendar reads one iCalendar stream.
func readCalendar(b []byte) (*ical.Calendar, error) {
	return decoded(b, func(r io.Reader) (*ical.Calendar, error) { return ical.NewDecoder(r).Decode() })
}

// decoded reads one object with a library, which recurses as deep as the text says and panics on some texts: so the text
// is measured first and a panic is an error.
func decoded[T any](b []byte, decode func(io.Reader) (T, error)) (out T, err error) {
	var none T
	if !measured(b) {
		return none, errObject
	}
	defer func() {
		if recover() != nil {
			out, err = none, errObject
		}
	}()
	if out, err = decode(bytes.NewReader(b)); err != nil {
		return none, errObject
	}
	return out, nil
}

// measured says whether text is within the bounds of one object.
func measured(b []byte) bool {
	if len(b) > maxObject {
		return false
	}
	depth, lines, length := 0, 0, 0
	for line := range bytes.Lines(b) {
		lines++
		if line[0] == ' ' || line[0] == '\t' {
			length += len(line)
		} else {
			length = len(line)
		}
		if length > objectLine || lines > objectLines {
			return false
		}
		switch {
		case len(line) > 6 && bytes.EqualFold(line[:6], []byte("BEGIN:")):
			depth++
		case len(line) > 4 && bytes.EqualFold(line[:4], []byte("END:")):
			depth--
		}
		if depth > objectDepth {
			return false
		}
	}
	return true
}

// readSeries reads the events of one calendar object. They share a UID (RFC 4791 section 4.1).
func readSeries(b []byte) (*series, error) {
	cal, err := readCalendar(b)
	if err != nil {
		return nil, err
	}
	s := &series{zones: zonesOf(cal)}
	for _, c := range cal.Children {
		switch {
		case c.Name != ical.CompEvent:
		case c.Props.Get(ical.PropRecurrenceID) != nil:
			s.parts = append(s.parts, c)
		case s.master == nil:
			s.master = c
		default:
			return nil, errObject
		}
	}
	if s.master == nil && len(s.parts) == 0 {
		return nil, errObject
	}
	return s, nil
}

// first is the event itself, or the first of its known occurrences.
func (s *series) first() *ical.Component {
	if s.master != nil {
		return s.master
	}
	return s.parts[0]
}

// text is the value of a text property with its escapes resolved (RFC 5545 section 3.3.11).
func text(c *ical.Component, name string) string {
	p := c.Props.Get(name)
	if p == nil {
		return ""
	}
	return unescape(p.Value)
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n', 'N':
			b.WriteByte('\n')
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// address is the e-mail address of a calendar user (RFC 5545 section 3.3.3), or "" where it has none.
func address(p *ical.Prop) string {
	if len(p.Value) < 8 || !strings.EqualFold(p.Value[:7], "mailto:") {
		return ""
	}
	return p.Value[7:]
}

func is(c *ical.Component, name, value string) bool {
	p := c.Props.Get(name)
	return p != nil && strings.EqualFold(p.Value, value)
}

// has says whether one of the attendees of c is at an address with a participation status.
func has(c *ical.Component, owner, status string) bool {
	return slices.ContainsFunc(c.Props.Values(ical.PropAttendee), func(p ical.Prop) bool {
		return owner != "" && strings.EqualFold(address(&p), owner) &&
			strings.EqualFold(p.Params.Get(ical.ParamParticipationStatus), status)
	})
}
