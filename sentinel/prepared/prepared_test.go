// SPDX-License-Identifier: Apache-2.0

package prepared

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

const (
	mark  = "abcdefghijklmnopqrstuvwxyz"
	unix  = 1_900_000_000
	now   = "20300317T174640Z"
	owner = "ada@example.test"
)

func text(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n" }

func values(pairs ...string) describe.Values {
	v := describe.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v[pairs[i]] = append(v[pairs[i]], pairs[i+1])
	}
	return v
}

func codeOf(err error) wire.Code {
	var w *wire.Error
	if errors.As(err, &w) {
		return w.Code
	}
	if err != nil {
		return "no refusal"
	}
	return ""
}

// written is a call with the body that an honest worker writes, by hand.
type written struct {
	name, method, kind string
	v                  describe.Values
	base, body         string
	lies               [][2]string // replacements of the body that make it say something else
}

var made = text("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Doorward//dav//EN", "BEGIN:VEVENT", "UID:"+mark,
	"DTSTAMP:"+now, "DTSTART:20300310T130000Z", "DTEND:20300310T140000Z", "SUMMARY:Plan\\, B\\; x\\\\y", "LOCATION:Room",
	"DESCRIPTION:one\\ntwo", "ORGANIZER:mailto:ada@example.test",
	"ATTENDEE;PARTSTAT=NEEDS-ACTION;RSVP=TRUE;SCHEDULE-AGENT=SERVER:mailto:bo", " b@elsewhere.test",
	"ATTENDEE;PARTSTAT=NEEDS-ACTION;RSVP=TRUE;SCHEDULE-AGENT=NONE:mailto:cy@", " example.test",
	"SEQUENCE:0", "END:VEVENT", "END:VCALENDAR")

var held = text("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Other//EN", "CALSCALE:GREGORIAN", "BEGIN:VEVENT", "UID:u",
	"DTSTAMP:20300101T000000Z", "DTSTART:20300310T130000Z", "DTEND:20300310T140000Z", "SUMMARY;LANGUAGE=en:Old",
	"ORGANIZER:mailto:bob@example.test", "ATTENDEE;CN=Ada;PARTSTAT=NEEDS-ACTION:mailto:ada@example.test",
	"ATTENDEE;PARTSTAT=DECLINED:mailto:cy@example.test", "X-KEEP;A=\"b:c\":d", "BEGIN:VALARM", "ACTION:DISPLAY",
	"TRIGGER:-PT5M", "END:VALARM", "END:VEVENT", "END:VCALENDAR")

func calls() []written {
	retitled := strings.NewReplacer("DTSTAMP:20300101T000000Z", "DTSTAMP:"+now, "SUMMARY;LANGUAGE=en:Old",
		"SUMMARY:New\r\nSEQUENCE:1").Replace(held)
	answered := strings.NewReplacer("DTSTAMP:20300101T000000Z", "DTSTAMP:"+now, "CN=Ada;PARTSTAT=NEEDS-ACTION",
		"CN=Ada;PARTSTAT=DECLINED", "ORGANIZER:", "ORGANIZER;SCHEDULE-AGENT=SERVER:").Replace(held)
	more := [][2]string{ // what an attacker would add
		{"END:VEVENT", "ATTENDEE:mailto:eve@evil.test\r\nEND:VEVENT"},
		{"END:VEVENT", "ATTACH:https://evil.test/\r\nEND:VEVENT"},
		{"END:VEVENT", "URL:https://evil.test/\r\nEND:VEVENT"},
		{"END:VEVENT", "X-ALT-DESC;FMTTYPE=text/html:<a href=x>\r\nEND:VEVENT"},
		{"END:VEVENT", "BEGIN:VALARM\r\nACTION:EMAIL\r\nATTENDEE:mailto:eve@evil.test\r\nTRIGGER:PT0S\r\nEND:VALARM\r\n" +
			"END:VEVENT"},
		{"END:VEVENT", "RRULE:FREQ=DAILY\r\nEND:VEVENT"},
		{"END:VEVENT", "RELATED-TO:x\r\nEND:VEVENT"},
		{"END:VEVENT", "END:VEVENT\r\nBEGIN:VEVENT\r\nUID:2\r\nEND:VEVENT"},
		{"END:VEVENT", "END:VEVENT\r\nBEGIN:VTODO\r\nUID:2\r\nEND:VTODO"},
		{"END:VEVENT", "END:VEVENT\r\nBEGIN:VTIMEZONE\r\nTZID:Europe/Berlin\r\nEND:VTIMEZONE"},
		{"BEGIN:VEVENT", "METHOD:REQUEST\r\nBEGIN:VEVENT"},
		{"BEGIN:VEVENT", "X-WR-CALNAME:x\r\nBEGIN:VEVENT"},
		{"DTSTART:20300310T130000Z", "DTSTART:20300310T120000Z"},
		{"DTSTART:20300310T130000Z", "DTSTART;TZID=Europe/Berlin:20300310T140000"},
		{"DTSTART:20300310T130000Z", "DTSTART:20300310T130000Z\r\nDTSTART:20300310T130000Z"},
		{"DTSTART:20300310T130000Z", "DTSTART:20300310T130000"},
		{"DTEND:20300310T140000Z", "DURATION:PT1H"},
		{"DTSTAMP:" + now, "DTSTAMP:20300317T174641Z"},
		{"UID:", "UID:x"},
		{"SUMMARY", "summary"},
		{"SUMMARY", "SUMMA\r\n RY;X=1"},
		{"SUMMARY", "SUMMARY;ALTREP=\"https://evil.test/\""},
		{"SUMMARY", "COMMENT"},
		{"mailto:cy@\r\n example", "mailto:cy@\r\nexample"},
		{"END:VCALENDAR\r\n", "END:VCALENDAR\r\nBEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"},
		{"END:VCALENDAR\r\n", "END:VCALENDAR"},
		{"END:VCALENDAR\r\n", "END:VCALENDAR\r\n \r\n"},
		{"BEGIN:VCALENDAR\r\n", "BEGIN:VCALENDAR\n"},
		{"BEGIN:VCALENDAR\r\n", "\ufeffBEGIN:VCALENDAR\r\n"},
		{"BEGIN:VEVENT", "\r\nBEGIN:VEVENT"},
		{"BEGIN:VEVENT", "BEGIN;X=1:VEVENT"},
		{"BEGIN:VEVENT", "BEGIN:vevent"},
	}
	return []written{
		{"new", "event-create", Calendar, values("calendar", "/c/", "title", `Plan, B; x\y`, "start", "2030-03-10T13:00:00Z",
			"end", "2030-03-10T14:00:00Z", "location", "Room", "description", "one\r\ntwo", "attendee", "bob@elsewhere.test",
			"attendee", "cy@example.test", "notify", "external"), "", made, append([][2]string{
			{"SCHEDULE-AGENT=NONE", "SCHEDULE-AGENT=SERVER"}, {"SCHEDULE-AGENT=SERVER", "SCHEDULE-AGENT=CLIENT"},
			{"RSVP=TRUE;SCHEDULE-AGENT=NONE:mailto:cy@", "RSVP=TRUE:mailto:cy@"},
			{"NEEDS-ACTION", "ACCEPTED"}, {"ORGANIZER:mailto:ada", "ORGANIZER:mailto:eve"},
			{"ORGANIZER:", "ORGANIZER;SENT-BY=\"mailto:eve@evil.test\":"}, {"LOCATION:Room", "LOCATION:Roоm"},
			{"one\\ntwo", "one\\n\\ntwo"}, {"one\\ntwo", "one\u200b\\ntwo"}, {"one\\ntwo", "one\\Ntwo"},
			{"Plan\\, B", "Plan, B"}, {"PRODID:-//Doorward//dav//EN", "PRODID:https://evil.test/"}, {"SEQUENCE:0", "SEQUENCE:9"},
			{"VERSION:2.0", "VERSION:1.0"}, {"LOCATION:Room\r\n", ""},
			{"mailto:bo\r\n b@", "mailto:bo\r\n\tb@"}, {"mailto:bo\r\n b@", "mailto:bo\r\n b@evil.test\r\n b@"},
		}, more...)},
		{"title", "event-update", Calendar, values("event", "/e", "title", "New"), held, retitled, append([][2]string{
			{"SUMMARY:New", "SUMMARY;LANGUAGE=en:New"}, {"SUMMARY:New", "SUMMARY:Old"}, {"X-KEEP;A=\"b:c\":d\r\n", ""},
			{"X-KEEP;A=\"b:c\":d", "X-KEEP:d"}, {"PARTSTAT=DECLINED", "PARTSTAT=ACCEPTED"}, {"SEQUENCE:1", "SEQUENCE:2"},
			{"PARTSTAT=DECLINED", "PARTSTAT=DECLINED;SCHEDULE-AGENT=NONE"}, {"TRIGGER:-PT5M", "TRIGGER:-PT6M"},
			{"ACTION:DISPLAY", "ACTION:AUDIO"}, {"CALSCALE:GREGORIAN\r\n", ""},
			{"ATTENDEE;PARTSTAT=DECLINED:mailto:cy@example.test\r\n", ""},
		}, more...)},
		{"decline", "respond", Calendar, values("event", "/e", "answer", "declined", "notify", "all"), held, answered,
			append([][2]string{
				{"CN=Ada;PARTSTAT=DECLINED", "CN=Ada;PARTSTAT=ACCEPTED"}, {"SUMMARY;LANGUAGE=en:Old", "SUMMARY;LANGUAGE=en:No"},
				{"DECLINED:mailto:cy", "ACCEPTED:mailto:cy"}, {"SCHEDULE-AGENT=SERVER", "SCHEDULE-AGENT=NONE"},
				{"ORGANIZER;SCHEDULE-AGENT=SERVER:mailto:bob", "ORGANIZER;SCHEDULE-AGENT=SERVER:mailto:eve"},
			}, more...)},
		{"contact", "contact-put", Card, values("book", "/b/", "name", "Zoë; M", "email", "z@example.test", "phone",
			"+49,1"), "",
			text("BEGIN:VCARD", "VERSION:3.0", "PRODID:-//Doorward//dav//EN", "UID:"+mark, "FN:Zoë\\; M", "N:Zoë\\; M;;;;",
				"EMAIL:z@example.test", "TEL:+49\\,1", "REV:"+now, "END:VCARD"), [][2]string{
				{"EMAIL:z@", "EMAIL:y@"}, {"EMAIL", "item1.EMAIL"}, {"END:VCARD", "EMAIL:eve@evil.test\r\nEND:VCARD"},
				{"END:VCARD", "URL:https://evil.test/\r\nEND:VCARD"},
				{"END:VCARD", "PHOTO;VALUE=uri:https://evil.test/\r\nEND:VCARD"},
				{"END:VCARD", "END:VCARD\r\nBEGIN:VCARD\r\nEND:VCARD"}, {"END:VCARD", "BEGIN:VCARD\r\nEND:VCARD\r\nEND:VCARD"},
				{"FN:Zoë", "FN:Zoe"}, {"TEL:+49\\,1", "TEL:+49,1"}, {"UID:", "UID:x"}, {"REV:" + now + "\r\n", ""},
				{"N:Zoë\\; M;;;;", "N:M;Zoë;;;"}, {"VERSION:3.0", "VERSION:4.0"}}},
	}
}

func TestEachLieOfARendererIsFound(t *testing.T) {
	for _, c := range calls() {
		m := &describe.Method{Name: c.method}
		verify := func(body string) error {
			return Verify(c.kind, m, c.v, mark, unix, owner, []byte(c.base), []byte(body))
		}
		if err := verify(c.body); err != nil { // the control
			t.Fatalf("%s: an honest body is refused: %v", c.name, err)
		}
		for _, lie := range c.lies {
			body := strings.Replace(c.body, lie[0], lie[1], 1)
			if body == c.body {
				continue // this body does not have what the lie is about
			}
			if err := verify(body); codeOf(err) != wire.CodeBadPreparedBody {
				t.Errorf("%s: %q in place of %q: %v", c.name, lie[1], lie[0], err)
			}
		}
	}
}

// Each argument alone decides about its property: the same body under another value of it is refused.
func TestEachArgumentCounts(t *testing.T) {
	for _, c := range calls() {
		m := &describe.Method{Name: c.method}
		for name := range c.v {
			if slices.Contains([]string{"calendar", "event", "book"}, name) {
				continue // stands in the request's path, not in its body
			}
			v := describe.Values{}
			for k, x := range c.v {
				v[k] = x
			}
			delete(v, name)
			if err := Verify(c.kind, m, v, mark, unix, owner, []byte(c.base), []byte(c.body)); err == nil {
				t.Errorf("%s: taken without --%s", c.name, name)
			}
		}
		for what, err := range map[string]error{
			"owner": Verify(c.kind, m, c.v, mark, unix, "eve@evil.test", []byte(c.base), []byte(c.body)),
			"kind":  Verify("mime", m, c.v, mark, unix, owner, []byte(c.base), []byte(c.body)),
			"base":  Verify(c.kind, m, c.v, mark, unix, owner, []byte(made), []byte(c.body)),
			"time":  Verify(c.kind, m, c.v, mark, unix-1, owner, []byte(c.base), []byte(c.body)),
		} {
			if err == nil && !(what == "owner" && (c.kind == Card || c.method == "event-update")) {
				t.Errorf("%s: taken with another %s", c.name, what)
			}
		}
	}
}

// What the server holds may be odd, but not so that two readers would read it differently.
func TestABaseWithTwoReadingsIsRefused(t *testing.T) {
	m := &describe.Method{Name: "event-update"}
	v := values("event", "/e", "title", "New")
	for name, base := range map[string]string{
		"two events":      strings.Replace(held, "END:VEVENT", "END:VEVENT\r\nBEGIN:VEVENT\r\nUID:x\r\nEND:VEVENT", 1),
		"two starts":      strings.Replace(held, "DTSTART", "DTSTART:20310101T000000Z\r\nDTSTART", 1),
		"two organizers":  strings.Replace(held, "ORGANIZER", "ORGANIZER:mailto:ada@example.test\r\nORGANIZER", 1),
		"parameter twice": strings.Replace(held, "CN=Ada", "CN=Ada;CN=Eve", 1),
		"control":         strings.Replace(held, "X-KEEP", "X-KEEP;B=\x00", 1),
		"bare CR":         strings.Replace(held, "Old", "O\rld", 1),
		"line separator":  strings.Replace(held, "Old", "O\u2028ld", 1),
		"not UTF-8":       strings.Replace(held, "Old", "O\xffld", 1),
		"quote":           strings.Replace(held, "Ada;", "\"Ada;", 1),
		"no event":        text("BEGIN:VCALENDAR", "END:VCALENDAR"),
		"a card":          text("BEGIN:VCARD", "END:VCARD"),
		"deep":            strings.Repeat("BEGIN:A\r\n", 9) + strings.Repeat("END:A\r\n", 9),
		"sequence":        strings.Replace(held, "UID:u", "UID:u\r\nSEQUENCE:x", 1),
		"":                "",
	} {
		if err := Verify(Calendar, m, v, mark, unix, owner, []byte(base), []byte(base)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// An object of very many parts is compared in time that grows with their number only.
func TestManyPartsAreComparedQuickly(t *testing.T) {
	m := &describe.Method{Name: "event-update"}
	alarms := strings.Repeat("BEGIN:VALARM\r\nACTION:DISPLAY\r\nTRIGGER:-PT5M\r\nEND:VALARM\r\n", 4500)
	base := strings.Replace(held, "BEGIN:VALARM", alarms+"BEGIN:VALARM", 1)
	body := strings.Replace(calls()[1].body, "BEGIN:VALARM", alarms+"BEGIN:VALARM", 1)
	v := values("event", "/e", "title", "New")
	if err := Verify(Calendar, m, v, mark, unix, owner, []byte(base), []byte(body)); err != nil {
		t.Fatal(err)
	}
	body = strings.Replace(body, "-PT5M", "-PT6M", 1)
	if err := Verify(Calendar, m, v, mark, unix, owner, []byte(base), []byte(body)); codeOf(err) !=
		wire.CodeBadPreparedBody {
		t.Fatal(err)
	}
}

func TestFactsOfAnObject(t *testing.T) {
	f, err := Look([]byte(held))
	if err != nil || f.Title != "Old" || f.Recurs || f.Organizer != "bob@example.test" ||
		!slices.Equal(f.People, []string{"ada@example.test", "bob@example.test", "cy@example.test"}) {
		t.Errorf("%+v %v", f, err)
	}
	if got := Recipients([]byte(made)); !slices.Equal(got, []string{"ada@example.test", "bob@elsewhere.test",
		"cy@example.test"}) {
		t.Errorf("%v", got)
	}
	if Recipients([]byte("x")) != nil {
		t.Error("facts of nothing")
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range calls() {
		f.Add([]byte(c.body))
		f.Add([]byte(c.base))
	}
	f.Add([]byte("BEGIN:VCALENDAR\r\nA;B=\"c\",d:e\r\n f\r\nEND:VCALENDAR\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, strict := range []bool{true, false} {
			c, err := read(b, strict)
			if err != nil {
				if c != nil {
					t.Fatal("a value with an error")
				}
				continue
			}
			if err := equal(c, c.clone()); err != nil {
				t.Fatalf("it differs from itself: %v", err)
			}
			_, _ = Look(b)
			if strict {
				if loose, err := read(b, false); err != nil || equal(c, loose) != nil {
					t.Fatal("the two ways of reading differ on a strict text")
				}
			}
		}
	})
}

// FuzzVerify holds every body that is taken to the one set of lines that the call may send.
func FuzzVerify(f *testing.F) {
	all := calls()
	for i, c := range all {
		f.Add(i, []byte(c.body))
	}
	f.Fuzz(func(t *testing.T, n int, body []byte) {
		if n < 0 || n >= len(all) {
			return
		}
		c := all[n]
		if Verify(c.kind, &describe.Method{Name: c.method}, c.v, mark, unix, owner, []byte(c.base), body) != nil {
			return
		}
		if got, want := flat(string(body)), flat(c.body); !slices.Equal(got, want) {
			t.Fatalf("taken:\n%q\nwant %q", got, want)
		}
	})
}

// flat is a body's lines, unfolded, parameters and lines in a fixed order.
func flat(s string) []string {
	lines := strings.Split(strings.ReplaceAll(s, "\r\n ", ""), "\r\n")
	for i, l := range lines {
		head, value, _ := strings.Cut(l, ":")
		if strings.Contains(head, `"`) {
			continue
		}
		parts := strings.Split(head, ";")
		slices.Sort(parts[1:])
		lines[i] = strings.Join(parts, ";") + ":" + value
	}
	slices.Sort(lines)
	return lines
}

// A server answers for a whole calendar as for one event. What is changed or deleted must be one.
func TestAWholeCalendarIsNoEvent(t *testing.T) {
	event := func(kind, uid, more string) string {
		return "BEGIN:" + kind + "\r\nUID:" + uid + "\r\nDTSTART:20300310T100000Z\r\n" + more + "END:" + kind + "\r\n"
	}
	one, part := event("VEVENT", "a", ""), "RECURRENCE-ID:20300311T100000Z\r\n"
	for _, c := range []struct {
		what string
		ok   bool
	}{
		{one, true},
		{one + event("VEVENT", "a", part), true},
		{one + event("VTIMEZONE", "", ""), true},
		{one + event("VEVENT", "b", part), false},
		{one + event("VEVENT", "b", ""), false},
		{one + event("VTODO", "a", ""), false},
		{event("VJOURNAL", "b", "") + one, false},
	} {
		_, err := eventsOf([]byte("BEGIN:VCALENDAR\r\nVERSION:2.0\r\n" + c.what + "END:VCALENDAR\r\n"))
		if (err == nil) != c.ok {
			t.Errorf("%v\n%s", err, c.what)
		}
	}
}
