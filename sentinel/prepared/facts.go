// SPDX-License-Identifier: Apache-2.0

package prepared

import (
	"slices"
	"strings"
)

// Facts are what a card and the policy want to know of an object.
type Facts struct {
	Title     string // of the event, or the contact's name; a text that others may have written
	Start     string // as it stands
	Recurs    bool
	People    []string // addresses of guests and organizers, domains in lower case, sorted, none twice
	Organizer string   // of the first event
}

// Lines are the facts as a card shows them.
func (f *Facts) Lines() []string {
	out := []string{f.Title}
	if f.Start != "" {
		out = append(out, "starts "+f.Start)
	}
	if f.Recurs {
		out = append(out, "recurs")
	}
	for _, p := range f.People {
		out = append(out, "with "+p)
	}
	return out
}

// Look reads facts out of an object, as the server holds it or as it was rendered.
func Look(b []byte) (Facts, error) {
	var f Facts
	top, err := read(b, false)
	if err != nil {
		return Facts{}, err
	}
	if top.name == "VCARD" {
		if p := top.get("FN"); p != nil {
			f.Title = outText(p.value)
		}
		return f, nil
	}
	o, err := eventsOf(b)
	if err != nil {
		return Facts{}, err
	}
	one := o.all()[0]
	if p := one.get("SUMMARY"); p != nil {
		f.Title = outText(p.value)
	}
	if p := one.get("DTSTART"); p != nil {
		f.Start = p.value
	}
	if p := one.get("ORGANIZER"); p != nil {
		f.Organizer = addressOf(p.value)
	}
	f.Recurs = o.master == nil || len(o.parts) > 0 || one.get("RRULE") != nil || one.get("RDATE") != nil
	for _, ev := range o.all() {
		for _, p := range ev.props {
			if p.name == "ATTENDEE" || p.name == "ORGANIZER" {
				f.People = append(f.People, addressOf(p.value))
			}
		}
	}
	slices.Sort(f.People)
	f.People = slices.Compact(f.People)
	return f, nil
}

// Recipients are the addresses of all whom an object names: guests and organizers. An object that cannot be read has
// none; Verify refuses it.
func Recipients(b []byte) []string {
	f, err := Look(b)
	if err != nil {
		return nil
	}
	return f.People
}

// addressOf is the address of a calendar user; where it is no mail address, the value as it is.
func addressOf(v string) string {
	if len(v) > 7 && strings.EqualFold(v[:7], "mailto:") {
		v = v[7:]
	}
	if i := strings.LastIndexByte(v, '@'); i >= 0 {
		v = v[:i] + strings.ToLower(v[i:])
	}
	return v
}
