// SPDX-License-Identifier: Apache-2.0

// Package prepared holds the two ends of a prepared body to each other: what an honest worker renders, sentinel's
// reader takes; what a worker alters, it refuses. Neither end may import the other, so the test stands here.
package prepared

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/prepared"
	"github.com/doorward/doorward/workers"
	"github.com/doorward/doorward/workers/dav"
)

const (
	mark  = "abcdefghijklmnopqrstuvwxyz"
	unix  = 1_900_000_000 // 2030-03-17T17:46:40Z
	owner = "ada@example.test"
)

// lines is an object of these lines, as a server would hold it.
func lines(s ...string) []byte { return []byte(strings.Join(s, "\r\n") + "\r\n") }

var (
	single = lines("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Other//EN", "BEGIN:VEVENT", "UID:u1",
		"DTSTAMP:20300101T000000Z", "LAST-MODIFIED:20300101T000000Z", "DTSTART:20300310T130000Z", "DTEND:20300310T140000Z",
		"SUMMARY:Old", "X-OTHER;X-P=\"a:b\";Y=1:kept\\, as is", "CATEGORIES:A,B", "BEGIN:VALARM", "ACTION:DISPLAY",
		"TRIGGER:-PT15M", "DESCRIPTION:soon", "END:VALARM", "END:VEVENT", "END:VCALENDAR")
	allDay = lines("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VEVENT", "UID:u2", "DTSTAMP:20300101T000000Z",
		"DTSTART;VALUE=DATE:20300310", "DTEND;VALUE=DATE:20300312", "SUMMARY:Trip", "SEQUENCE:4", "END:VEVENT",
		"END:VCALENDAR")
	meeting = lines("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VEVENT", "UID:u3", "DTSTAMP:20300101T000000Z",
		"DTSTART:20300310T130000Z", "DURATION:PT1H", "SUMMARY:Meet", "ORGANIZER;CN=\"Ada, L\":mailto:Ada@example.test",
		"ATTENDEE;PARTSTAT=ACCEPTED;CN=Bob:mailto:bob@example.test",
		"ATTENDEE;PARTSTAT=DECLINED:mailto:eve@elsewhere.test", "END:VEVENT", "END:VCALENDAR")
	invitation = lines("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VEVENT", "UID:u4", "DTSTAMP:20300101T000000Z",
		"DTSTART:20300310T130000Z", "DTEND:20300310T140000Z", "SUMMARY:Come", "ORGANIZER:mailto:bob@example.test",
		"ATTENDEE;PARTSTAT=NEEDS-ACTION;RSVP=TRUE:mailto:ada@example.test",
		"ATTENDEE;PARTSTAT=ACCEPTED:mailto:cy@example.test", "END:VEVENT", "END:VCALENDAR")
	series = lines("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VTIMEZONE", "TZID:Europe/Berlin", "BEGIN:STANDARD",
		"DTSTART:19701025T030000", "RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU", "TZOFFSETFROM:+0200", "TZOFFSETTO:+0100",
		"END:STANDARD", "BEGIN:DAYLIGHT", "DTSTART:19700329T020000", "RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU",
		"TZOFFSETFROM:+0100", "TZOFFSETTO:+0200", "END:DAYLIGHT", "END:VTIMEZONE", "BEGIN:VEVENT", "UID:u5",
		"DTSTAMP:20300101T000000Z", "DTSTART;TZID=Europe/Berlin:20300304T090000", "DTEND;TZID=Europe/Berlin:20300304T100000",
		"RRULE:FREQ=WEEKLY;COUNT=20", "SUMMARY:Weekly", "END:VEVENT", "END:VCALENDAR")
	broken = lines("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VEVENT", "UID:u6", "DTSTAMP:20300101T000000Z",
		"DTSTART;VALUE=DATE:20300304", "DTEND;VALUE=DATE:20300305", "RRULE:FREQ=DAILY;COUNT=9", "SUMMARY:Daily",
		"EXDATE;VALUE=DATE:20300306", "END:VEVENT", "BEGIN:VEVENT", "UID:u6", "DTSTAMP:20300101T000000Z",
		"RECURRENCE-ID;VALUE=DATE:20300307", "DTSTART;VALUE=DATE:20300317", "DTEND;VALUE=DATE:20300318", "SUMMARY:Moved",
		"END:VEVENT", "END:VCALENDAR")
	card = lines("BEGIN:VCARD", "VERSION:3.0", "UID:c1", "N:Lovelace;Ada;;;", "FN:Ada Lovelace",
		"EMAIL;TYPE=WORK:ada@example.test", "item1.EMAIL;TYPE=HOME:old@example.test", "item1.X-ABLabel:Home\\, old",
		"TEL:+49 1", "NOTE:a\\;b", "REV:20200101T000000Z", "X-SOCIALPROFILE;TYPE=x:y", "END:VCARD")
)

type call struct {
	name   string
	method string
	args   map[string][]string
	base   []byte
	refuse wire.Code // what the renderer says; empty is success
}

func a(pairs ...string) map[string][]string {
	m := map[string][]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = append(m[pairs[i]], pairs[i+1])
	}
	return m
}

func cases() []call {
	long := strings.Repeat("ä, long; line\\ with\n", 5)
	return []call{
		{"utc", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-10T13:00:00Z", "end",
			"2030-03-10T15:00:00+01:00"), nil, ""},
		{"zone", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-10T13:00:00", "end",
			"2030-03-10T15:00:00", "tz", "Europe/Berlin"), nil, ""},
		{"zone over DST", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-30T13:00:00", "end",
			"2030-11-10T15:00:00", "tz", "America/Los_Angeles"), nil, ""},
		{"zone without DST", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-30T13:00:00", "end",
			"2030-03-30T15:00:00", "tz", "Asia/Seoul"), nil, ""},
		{"zone UTC", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-30T13:00:00", "end",
			"2030-03-30T15:00:00", "tz", "UTC"), nil, ""},
		{"skipped hour", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-31T02:30:00", "end",
			"2030-03-31T04:00:00", "tz", "Europe/Berlin"), nil, wire.CodeBadArgument},
		{"instant of a zone", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-31T02:30:00Z", "end",
			"2030-03-31T04:00:00Z", "tz", "Europe/Berlin"), nil, ""},
		{"day", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-10", "end", "2030-03-10"), nil, ""},
		{"day and time", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-10", "end",
			"2030-03-10T10:00:00Z"), nil, wire.CodeBadArgument},
		{"guests", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-10T13:00:00Z", "end",
			"2030-03-10T14:00:00Z", "attendee", "bob@example.test", "attendee", "eve@elsewhere.test", "notify", "external",
			"location", "Room; 1, \\2", "description", long), nil, ""},
		{"guests and no choice", "event-create", a("calendar", "/a/c/", "title", "T", "start", "2030-03-10T13:00:00Z", "end",
			"2030-03-10T14:00:00Z", "attendee", "bob@example.test"), nil, wire.CodeBadArgument},

		{"title", "event-update", a("event", "/e", "title", "New, with; all\\ of it"), single, ""},
		{"no field", "event-update", a("event", "/e"), single, wire.CodeBadArgument},
		{"scope of a single one", "event-update", a("event", "/e", "title", "x", "scope", "one", "instance",
			"2030-03-10T13:00:00Z"), single, wire.CodeBadArgument},
		{"title of days", "event-update", a("event", "/e", "title", "x"), allDay, ""},
		{"empty title", "event-update", a("event", "/e", "title", "", "location", "here"), allDay, ""},
		{"longer", "event-update", a("event", "/e", "end", "2030-03-15"), allDay, ""},
		{"shorter than it begins", "event-update", a("event", "/e", "end", "2030-03-05"), allDay, wire.CodeBadArgument},
		{"day to time", "event-update", a("event", "/e", "start", "2030-03-10T10:00:00", "end", "2030-03-10T11:00:00",
			"tz", "Europe/Berlin"), allDay, ""},
		{"first guest", "event-update", a("event", "/e", "attendee", "bob@example.test", "notify", "none"), single, ""},
		{"more guests", "event-update", a("event", "/e", "attendee", "cy@example.test", "attendee", "bob@example.test",
			"remove-attendee", "eve@elsewhere.test", "notify", "all"), meeting, ""},
		{"remove nobody", "event-update", a("event", "/e", "remove-attendee", "zoe@example.test", "notify", "all"), meeting,
			wire.CodeBadArgument},
		{"guests not told", "event-update", a("event", "/e", "title", "x"), meeting, wire.CodeBadArgument},
		{"end instead of duration", "event-update", a("event", "/e", "end", "2030-03-10T16:00:00Z", "notify", "external"),
			meeting, ""},
		{"another's", "event-update", a("event", "/e", "title", "mine"), invitation, ""},
		{"another's guests", "event-update", a("event", "/e", "attendee", "x@example.test", "notify", "all"), invitation,
			wire.CodeBadArgument},
		{"series without scope", "event-update", a("event", "/e", "title", "x"), series, wire.CodeBadArgument},
		{"series", "event-update", a("event", "/e", "title", "x", "scope", "all"), series, ""},
		{"move a series", "event-update", a("event", "/e", "start", "2030-03-04T11:00:00", "end", "2030-03-04T12:00:00",
			"tz", "Europe/Berlin", "scope", "all"), series, ""},
		{"move a series elsewhere", "event-update", a("event", "/e", "start", "2030-03-04T11:00:00", "end",
			"2030-03-04T12:00:00", "tz", "America/New_York", "scope", "all"), series, ""},
		{"move a series in UTC", "event-update", a("event", "/e", "start", "2030-03-04T11:00:00Z", "scope", "all"), series,
			wire.CodeBadArgument},
		{"one before DST", "event-update", a("event", "/e", "title", "x", "scope", "one", "instance",
			"2030-03-25T08:00:00Z"), series, ""},
		{"one after DST", "event-update", a("event", "/e", "title", "x", "scope", "one", "instance",
			"2030-04-01T07:00:00Z"), series, ""},
		{"one that is not", "event-update", a("event", "/e", "title", "x", "scope", "one", "instance",
			"2030-04-01T08:00:00Z"), series, wire.CodeBadArgument},
		{"move one", "event-update", a("event", "/e", "start", "2030-04-02T07:00:00Z", "end", "2030-04-02T08:00:00Z",
			"scope", "one", "instance", "2030-04-01T07:00:00Z"), series, ""},
		{"following", "event-update", a("event", "/e", "title", "y", "scope", "following", "instance",
			"2030-04-01T09:00:00+02:00"), series, ""},
		{"series with exceptions", "event-update", a("event", "/e", "title", "y", "scope", "all"), broken, ""},
		{"move a series with exceptions", "event-update", a("event", "/e", "start", "2030-03-05", "scope", "all"), broken,
			wire.CodeBadArgument},
		{"an exception", "event-update", a("event", "/e", "title", "y", "scope", "one", "instance", "2030-03-07"), broken,
			""},
		{"a day of many", "event-update", a("event", "/e", "title", "y", "scope", "one", "instance", "2030-03-08"), broken,
			""},
		{"a day taken out", "event-update", a("event", "/e", "title", "y", "scope", "one", "instance", "2030-03-06"), broken,
			wire.CodeBadArgument},

		{"accept", "respond", a("event", "/e", "answer", "accepted", "notify", "all"), invitation, ""},
		{"decline quietly", "respond", a("event", "/e", "answer", "declined", "notify", "none"), invitation, ""},
		{"not invited", "respond", a("event", "/e", "answer", "declined", "notify", "all"), single, wire.CodeBadArgument},

		{"delete", "event-delete", a("event", "/e"), single, ""},
		{"delete a meeting", "event-delete", a("event", "/e", "notify", "all"), meeting, ""},
		{"delete a meeting, unsaid", "event-delete", a("event", "/e"), meeting, wire.CodeBadArgument},
		{"delete a meeting quietly", "event-delete", a("event", "/e", "notify", "none"), meeting, wire.CodeBadArgument},
		{"delete an invitation quietly", "event-delete", a("event", "/e", "notify", "none"), invitation, ""},
		{"delete a series, unsaid", "event-delete", a("event", "/e"), series, wire.CodeBadArgument},
		{"delete a series", "event-delete", a("event", "/e", "scope", "all"), series, ""},
		{"delete one", "event-delete", a("event", "/e", "scope", "one", "instance", "2030-04-01T07:00:00Z"), series, ""},
		{"delete following", "event-delete", a("event", "/e", "scope", "following", "instance", "2030-04-01T07:00:00Z"),
			series, ""},
		{"delete from the first on", "event-delete", a("event", "/e", "scope", "following", "instance",
			"2030-03-04T08:00:00Z"), series, wire.CodeBadArgument},
		{"delete an exception", "event-delete", a("event", "/e", "scope", "one", "instance", "2030-03-07"), broken, ""},
		{"delete days that follow", "event-delete", a("event", "/e", "scope", "following", "instance", "2030-03-05"), broken,
			""},

		{"new contact", "contact-put", a("book", "/a/b/", "name", "Zoë, Müller", "email", "z@example.test",
			"phone", "+49 2"), nil, ""},
		{"new contact, no name", "contact-put", a("book", "/a/b/", "email", "z@example.test"), nil, wire.CodeBadArgument},
		{"rename", "contact-put", a("contact", "/a/b/x.vcf", "name", "Ada King; née Byron"), card, ""},
		{"addresses", "contact-put", a("contact", "/a/b/x.vcf", "email", "old@example.test", "email", "new@example.test"),
			card, ""},
		{"phone", "contact-put", a("contact", "/a/b/x.vcf", "phone", "+49 (30) 1,2"), card, ""},
		{"delete a contact", "contact-delete", a("contact", "/a/b/x.vcf"), card, ""},
	}
}

// desc is sealed once: its digest is in every frame.
func connector(t testing.TB) *workers.Connector {
	t.Helper()
	c := dav.Connector()
	if _, err := c.Describe.Seal(); err != nil {
		t.Fatal(err)
	}
	return c
}

func frame(c *workers.Connector, k call) wire.Frame {
	f := wire.Frame{Connector: "dav", Description: c.Describe.Digest(), Method: k.method}
	names := make([]string, 0, len(k.args))
	for n := range k.args {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		f.Args = append(f.Args, wire.Arg{Name: n, Values: k.args[n]})
	}
	return f
}

func render(t testing.TB, c *workers.Connector, k call) (*describe.Method, describe.Values, []byte, error) {
	t.Helper()
	f := frame(c, k)
	m, _ := c.Describe.Method(k.method)
	v, err := m.Decode(&f)
	if err != nil {
		t.Fatalf("%s: %v", k.name, err)
	}
	trial := &workers.Trial{Connector: c}
	resp, err := trial.Prepare(&wire.PrepareReq{Frame: f, Mark: mark, Unix: unix, Base: k.base, Owner: owner})
	if err != nil {
		return m, v, nil, err
	}
	return m, v, resp.Body, nil
}

func verify(m *describe.Method, v describe.Values, base, body []byte) error {
	return prepared.Verify(m.Prepare.Kind, m, v, mark, unix, owner, base, body)
}

func code(err error) wire.Code {
	var w *wire.Error
	if errors.As(err, &w) {
		return w.Code
	}
	return ""
}

func TestWhatAWorkerRendersIsTaken(t *testing.T) {
	c := connector(t)
	for _, k := range cases() {
		t.Run(k.method+"/"+k.name, func(t *testing.T) {
			m, v, body, err := render(t, c, k)
			if code(err) != k.refuse || err != nil && k.refuse == "" {
				t.Fatalf("render: %v, want %q", err, k.refuse)
			}
			if err != nil {
				// sentinel's reader must not take the unchanged base for it either
				if err := verify(m, v, k.base, k.base); err == nil {
					t.Fatal("the reader takes a body where the renderer refuses")
				}
				return
			}
			if err := verify(m, v, k.base, body); err != nil {
				t.Fatalf("%v\n%s", err, body)
			}
			_, _, again, err := render(t, c, k)
			if err != nil || !bytes.Equal(again, body) {
				t.Fatal("a second rendering differs")
			}
		})
	}
}

// A worker that an attacker has taken over alters an honest rendering. Each alteration is refused; the control is the
// test above, where the same bodies unaltered are taken.
func TestWhatAWorkerAltersIsRefused(t *testing.T) {
	c := connector(t)
	extra := []string{"ATTENDEE:mailto:eve@evil.test",
		"ATTENDEE;PARTSTAT=NEEDS-ACTION;RSVP=TRUE;SCHEDULE-AGENT=SERVER:mailto:eve@evil.test",
		"ATTACH:https://evil.test/x", "URL:https://evil.test/", "X-ALT-DESC;FMTTYPE=text/html:<b>x</b>",
		"DESCRIPTION:come to https://evil.test/", "COMMENT:x", "ORGANIZER:mailto:eve@evil.test", "RRULE:FREQ=DAILY",
		"RDATE:20310101T000000Z", "CONFERENCE;VALUE=URI:https://evil.test/", "DTSTART:20310101T000000Z", "SUMMARY:x",
		"EMAIL:eve@evil.test", "PHOTO;VALUE=uri:https://evil.test/", "KEY:x", "METHOD:REQUEST", "TRANSP:TRANSPARENT",
		"BEGIN:VALARM\r\nACTION:EMAIL\r\nATTENDEE:mailto:eve@evil.test\r\nTRIGGER:PT0S\r\nEND:VALARM",
		"UID:other", "CLASS:PUBLIC", "\u200bSUMMARY:x", "summary:x"}
	for _, k := range cases() {
		if k.refuse != "" {
			continue
		}
		m, v, body, err := render(t, c, k)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(what string, b []byte) {
			t.Helper()
			if err := verify(m, v, k.base, b); err == nil {
				t.Fatalf("%s %s: taken with %s:\n%s", k.method, k.name, what, b)
			}
		}
		if len(body) == 0 {
			refused("a body", single)
			continue
		}
		rows := bytes.SplitAfter(body, []byte("\r\n"))
		rows = rows[:len(rows)-1]
		step := 1 + len(rows)/50 // of a long time zone, some lines
		for i := 0; i < len(rows); i += step {
			cut := slices.Concat(rows[:i], rows[i+1:])
			refused("line cut: "+string(rows[i]), bytes.Join(cut, nil))
			twice := slices.Concat(rows[:i+1], rows[i:])
			refused("line twice: "+string(rows[i]), bytes.Join(twice, nil))
			if i > 0 {
				for _, x := range extra {
					more := slices.Concat(rows[:i], [][]byte{[]byte(x + "\r\n")}, rows[i:])
					refused("more: "+x, bytes.Join(more, nil))
				}
			}
			for _, at := range []int{0, len(rows[i]) / 2, len(rows[i]) - 3} {
				b := bytes.Clone(bytes.Join(rows, nil))
				pos := len(bytes.Join(rows[:i], nil)) + at
				if b[pos] == 'X' {
					continue
				}
				b[pos] = 'X'
				refused("a byte altered", b)
			}
			loose := bytes.Replace(rows[i], []byte("\r\n"), []byte("\n"), 1)
			refused("LF only", bytes.Join(slices.Concat(rows[:i], [][]byte{loose}, rows[i+1:]), nil))
			refused("an empty line", bytes.Join(slices.Concat(rows[:i], [][]byte{[]byte("\r\n")}, rows[i:]), nil))
		}
		refused("a second object", slices.Concat(body, body))
		refused("something before", append([]byte("\ufeff"), body...))
		refused("no end", body[:len(body)-2])
		if k.base != nil {
			refused("nothing changed", k.base)
		}
	}
}

// Another argument gives another body: no two calls may send the same bytes by mistake.
func TestABodyIsForItsArgumentsOnly(t *testing.T) {
	c := connector(t)
	all := cases()
	for i, k := range all {
		if k.refuse != "" {
			continue
		}
		_, _, body, err := render(t, c, k)
		if err != nil || len(body) == 0 {
			continue
		}
		for j, other := range all {
			if i == j || other.refuse != "" {
				continue
			}
			m, v, _, _ := render(t, c, other)
			if verify(m, v, other.base, body) == nil {
				t.Errorf("%s %q takes the body of %s %q", other.method, other.name, k.method, k.name)
			}
		}
		m, v, _, _ := render(t, c, k)
		for what, err := range map[string]error{
			"mark": prepared.Verify(m.Prepare.Kind, m, v, "zbcdefghijklmnopqrstuvwxyz", unix, owner, k.base, body),
			"time": prepared.Verify(m.Prepare.Kind, m, v, mark, unix+1, owner, k.base, body),
		} {
			made := k.method == "event-create" || k.method == "contact-put" && k.base == nil
			if err == nil && (what == "mark" && made || what == "time" && k.method != "contact-put") {
				t.Errorf("%s %s: taken with another %s", k.method, k.name, what)
			}
		}
	}
}
