// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/caldav"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/workers/dav"
)

// CI-05: whole days stay the days they are: stored as dates, the end exclusive, shown inclusive, not moved by an edit
// of something else, and the same wherever the machine stands.
func TestCase_CI05_AllDayEventsStayOnTheirDays(t *testing.T) {
	v, b := startDAV(t)
	here := time.Local
	t.Cleanup(func() { time.Local = here })
	for _, zone := range []string{"Asia/Seoul", "America/Los_Angeles", "UTC"} {
		var err error
		if time.Local, err = time.LoadLocation(zone); err != nil {
			t.Fatal(err)
		}
		for _, days := range [][2]string{{"2030-03-10", "2030-03-10"}, {"2030-03-30", "2030-03-31"},
			{"2028-02-29", "2028-02-29"}} {
			args := Args{"calendar": one(v.Calendar()), "title": one("Days"), "start": one(days[0]), "end": one(days[1])}
			if zone != "UTC" {
				args["tz"] = one(zone)
			}
			made := b.Write("event-create", args)
			if made.Err != nil {
				t.Fatal(made.Err)
			}
			path := made.Output.Object
			for _, edited := range []bool{false, true} {
				if edited {
					if o := b.Write("event-update", Args{"event": one(path), "title": one("Other")}); o.Err != nil {
						t.Fatal(o.Err)
					}
				}
				stored, _ := v.Object(path)
				last, _ := time.Parse(time.DateOnly, days[1])
				for _, want := range []string{"DTSTART;VALUE=DATE:" + strings.ReplaceAll(days[0], "-", ""),
					"DTEND;VALUE=DATE:" + last.AddDate(0, 0, 1).Format("20060102")} {
					if !strings.Contains(string(stored), want+"\r\n") {
						t.Errorf("%s %v, edited %v: stored without %s:\n%s", zone, days, edited, want, stored)
					}
				}
				o := b.Call("event-get", Args{"event": one(path)})
				if got := o.JSON(t); got["start"] != days[0] || got["end"] != days[1] || got["all_day"] != true {
					t.Errorf("%s %v, edited %v: shown as %s", zone, days, edited, o.Output.JSON)
				}
			}
			o := b.Call("events", Args{"calendar": one(v.Calendar()), "from": one(days[0] + "T00:00:00Z"),
				"to": one(days[1] + "T23:59:59Z")})
			if got := items(t, o); len(got) != 1 || got[0]["start"] != days[0] || got[0]["end"] != days[1] {
				t.Errorf("%s %v: listed as %s", zone, days, o.Output.JSON)
			}
			if o := b.Write("event-delete", Args{"event": one(path)}); o.Err != nil {
				t.Fatal(o.Err)
			}
		}
	}
}

// CI-06: who is told of a change is chosen by name, guests keep their answers, and of a series it is said which
// occurrences are meant.
func TestCase_CI06_InvitationsChangeAsTheCallSays(t *testing.T) {
	v, b := startDAV(t)
	at := v.Calendar() + "meet.ics"
	reset := func() {
		t.Helper()
		if err := v.Put(at, ical(berlin, vevent("meet", "DTSTART;TZID=Europe/Berlin:20300304T090000",
			"DTEND;TZID=Europe/Berlin:20300304T100000", "RRULE:FREQ=WEEKLY;COUNT=10", "SUMMARY:Meet",
			"ORGANIZER:mailto:ada@example.test", "ATTENDEE;PARTSTAT=ACCEPTED;CN=Bob:mailto:bob@example.test",
			"ATTENDEE;PARTSTAT=DECLINED:mailto:eve@elsewhere.test"))); err != nil {
			t.Fatal(err)
		}
	}
	reset()
	fails := func(method string, args Args, flag string) {
		t.Helper()
		args["event"] = one(at)
		o := b.TryWrite(method, args, nil)
		if o.Code() != wire.CodeBadArgument || !strings.Contains(o.Err.Error(), flag) {
			t.Errorf("%s %v: %v, want a word on %s", method, args, o.Err, flag)
		}
		if n := len(v.Rec.Find("PUT", at)) + len(v.Rec.Find("DELETE", at)); n > 0 {
			t.Errorf("%s %v: something was sent", method, args)
		}
	}
	v.Rec.Reset()
	fails("event-update", Args{"title": one("x"), "notify": one("all")}, "--scope")
	fails("event-update", Args{"title": one("x"), "scope": one("one"), "notify": one("all")}, "--instance")
	fails("event-update", Args{"title": one("x"), "scope": one("all")}, "--notify")
	fails("event-update", Args{"attendee": one("cy@example.test"), "scope": one("all")}, "--notify")
	fails("event-delete", Args{"notify": one("all")}, "--scope")
	fails("event-delete", Args{"scope": one("all")}, "--notify")
	fails("event-delete", Args{"scope": one("all"), "notify": one("none")}, "--notify")

	stored := func(want ...string) {
		t.Helper()
		body, _ := v.Object(at)
		text := unfolded(body)
		for _, w := range want {
			missing := true
			for _, line := range strings.Split(text, "\r\n") {
				all := true
				for _, part := range strings.Split(w, "…") {
					all = all && strings.Contains(line, part)
				}
				missing = missing && !all
			}
			if missing {
				t.Errorf("there is no line %q in\n%s", w, text)
			}
		}
	}
	change := func(method string, args Args) {
		t.Helper()
		args["event"] = one(at)
		if o := b.Write(method, args); o.Err != nil {
			t.Fatalf("%s %v: %v", method, args, o.Err)
		}
	}
	change("event-update", Args{"attendee": one("cy@example.test"), "scope": one("all"), "notify": one("external")})
	stored("ATTENDEE…PARTSTAT=ACCEPTED…SCHEDULE-AGENT=NONE…mailto:bob@example.test", "ATTENDEE…CN=Bob",
		"ATTENDEE…PARTSTAT=DECLINED…SCHEDULE-AGENT=SERVER…mailto:eve@elsewhere.test",
		"ATTENDEE…PARTSTAT=NEEDS-ACTION…SCHEDULE-AGENT=NONE…mailto:cy@example.test", "SEQUENCE:1")
	change("event-update", Args{"title": one("New"), "scope": one("all"), "notify": one("all")})
	stored("SUMMARY:New", "ATTENDEE…PARTSTAT=ACCEPTED…SCHEDULE-AGENT=SERVER…mailto:bob@example.test", "SEQUENCE:2")
	change("event-update", Args{"start": one("2030-03-12T15:00:00"), "end": one("2030-03-12T16:00:00"),
		"tz": one("Europe/Berlin"), "scope": one("one"), "instance": one("2030-03-11T08:00:00Z"), "notify": one("none")})
	stored("RECURRENCE-ID;TZID=Europe/Berlin:20300311T090000", "DTSTART;TZID=Europe/Berlin:20300312T150000",
		"ATTENDEE…PARTSTAT=DECLINED…SCHEDULE-AGENT=NONE…mailto:eve@elsewhere.test")
	change("event-update", Args{"title": one("Late"), "scope": one("following"), "instance": one("2030-04-08T07:00:00Z"),
		"notify": one("none")})
	change("event-delete", Args{"scope": one("following"), "instance": one("2030-04-22T07:00:00Z"), "notify": one("none")})

	o := b.Call("events", Args{"calendar": one(v.Calendar()), "from": one("2030-03-01T00:00:00Z"),
		"to": one("2030-07-01T00:00:00Z")})
	var got []string
	for _, x := range items(t, o) {
		got = append(got, x["start"].(string)+" "+said(x, "title"))
	}
	if want := []string{"2030-03-04T09:00:00+01:00 New", "2030-03-12T15:00:00+01:00 New", "2030-03-18T09:00:00+01:00 New",
		"2030-03-25T09:00:00+01:00 New", "2030-04-01T09:00:00+02:00 New", "2030-04-08T09:00:00+02:00 Late",
		"2030-04-15T09:00:00+02:00 Late"}; !slices.Equal(got, want) {
		t.Errorf("the series is %v\nwant %v", got, want)
	}
	change("event-delete", Args{"scope": one("all"), "notify": one("all")})
}

// A change is held to the version that was read: another program's change in between is not overwritten.
func TestAChangeInBetweenIsAConflict(t *testing.T) {
	v, b := startDAV(t)
	at := v.Calendar() + "e.ics"
	event := func(title string) []byte {
		return ical(vevent("e", "DTSTART:20300310T100000Z", "DTEND:20300310T110000Z", "SUMMARY:"+title))
	}
	for method, args := range map[string]Args{"event-update": {"title": one("mine")}, "event-delete": {}} {
		args["event"] = one(at)
		if err := v.Put(at, event("old")); err != nil {
			t.Fatal(err)
		}
		o := b.TryWrite(method, args, func() {
			if err := v.Put(at, event("theirs")); err != nil {
				t.Fatal(err)
			}
		})
		if o.Code() != wire.CodeConflict || o.Finish.Outcome != wire.OutcomeFailed {
			t.Errorf("%s: %v, finished as %s", method, o.Err, o.Finish.Outcome)
		}
		if body, _ := v.Object(at); !bytes.Contains(body, []byte("theirs")) {
			t.Errorf("%s overwrote another's change:\n%s", method, body)
		}
	}
}

// AP-05 for an event: a lost answer leads to no second request, and the mark shows whether it was made.
func TestALostAnswerToACreationIsSettledByItsMark(t *testing.T) {
	for name, c := range map[string]struct {
		fault standin.Fault
		made  bool
	}{
		"dropped before": {standin.Fault{Drop: standin.DropBefore}, false},
		"dropped after":  {standin.Fault{Drop: standin.DropAfter}, true},
		"502 after":      {standin.Fault{Act: true, Status: 502}, true},
		"502 before":     {standin.Fault{Status: 502}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, b := startDAV(t)
			c.fault.Method = "PUT"
			v.Faults.Add(c.fault)
			o := b.TryWrite("event-create", Args{"calendar": one(v.Calendar()), "title": one("T"),
				"start": one("2030-03-10"), "end": one("2030-03-10")}, nil)
			if o.Code() != wire.CodeUnknown || o.Finish.Outcome != wire.OutcomeUnknown {
				t.Fatalf("%v, finished as %s", o.Err, o.Finish.Outcome)
			}
			if n := len(v.Rec.Find("PUT", "/")); n != 1 {
				t.Errorf("%d requests were sent", n)
			}
			v.Faults.Clear()
			look := b.Raw("event-get", Args{"event": one(v.Calendar() + o.Mark + ".ics")})
			found := look.Err == nil && bytes.Contains(look.Output.JSON, []byte(o.Mark))
			if found != c.made {
				t.Errorf("the mark is found: %v, %v", found, look.Err)
			}
		})
	}
}

// What a server answers is not believed beyond what an answer needs.
func TestAHostileDAVServerGainsNothing(t *testing.T) {
	v, b := startDAV(t)
	multi := func(inner string) string {
		return `<?xml version="1.0"?><d:multistatus xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:caldav">` + inner +
			`</d:multistatus>`
	}
	found := func(href, props string) string {
		return `<d:response><d:href>` + href + `</d:href><d:propstat><d:prop>` + props +
			`</d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response>`
	}
	event := func(rule string) string {
		return found("/ada/personal/x.ics", "<d:getetag>&quot;1&quot;</d:getetag><c:calendar-data>BEGIN:VCALENDAR\n"+
			"BEGIN:VEVENT\nUID:1\nDTSTART:20300101T000000Z\n"+rule+"\nEND:VEVENT\nEND:VCALENDAR\n</c:calendar-data>")
	}
	deep := strings.Repeat("<a>", 5000) + strings.Repeat("</a>", 5000)
	range1 := Args{"calendar": one(v.Calendar()), "from": one("2030-01-01T00:00:00Z"), "to": one("2030-02-01T00:00:00Z")}
	for _, c := range []struct {
		name, method string
		args         Args
		body         string
		code         wire.Code
	}{
		{"control", "events", range1, multi(event("RRULE:FREQ=DAILY")), ""},
		{"DTD", "events", range1, `<!DOCTYPE x [<!ENTITY a "aa">]>` + multi(""), wire.CodeVendorDown},
		{"external entity", "events", range1, `<!DOCTYPE x SYSTEM "file:///etc/passwd">` + multi(""), wire.CodeVendorDown},
		{"entity", "events", range1, multi(found("/a", "<d:getetag>&a;</d:getetag>")), wire.CodeVendorDown},
		{"deep", "events", range1, multi(deep), wire.CodeTooLarge},
		{"wide", "events", range1, multi(strings.Repeat("<d:a/>", 250_000)), wire.CodeTooLarge},
		{"cut", "events", range1, multi("")[:80], wire.CodeVendorDown},
		{"twice", "events", range1, multi("") + multi(""), wire.CodeVendorDown},
		{"other charset", "events", range1, `<?xml version="1.0" encoding="utf-7"?>` + multi("")[21:], wire.CodeVendorDown},
		{"foreign href", "events", range1, multi(strings.Replace(event(""), "/ada/personal", "https://evil.test/a", 1)),
			wire.CodeVendorRefused},
		{"href upwards", "events", range1, multi(strings.Replace(event(""), "/ada/personal", "/ada/../eve", 1)),
			wire.CodeVendorRefused},
		{"href with two readings", "events", range1, multi(strings.Replace(event(""), "/personal/", "/personal%2F", 1)),
			wire.CodeVendorRefused},
		{"principal elsewhere", "calendars", Args{}, multi(found("/",
			"<d:current-user-principal><d:href>//evil.test/p</d:href></d:current-user-principal>")), wire.CodeVendorRefused},
		{"every second", "events", range1, multi(event("RRULE:FREQ=SECONDLY")), ""},
		{"a rule that never fits", "events", range1, multi(event("RRULE:FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30")), ""},
		{"a rule that crashes", "events", range1, multi(event("RRULE:FREQ=YEARLY;BYWEEKNO=53;BYDAY=99MO;BYEASTER=9999")), ""},
		{"text that crashes", "events", range1, multi(event("X;A=b")), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v.Faults.Clear()
			v.Faults.Add(standin.Fault{Times: 1, Status: 207, Body: c.body,
				Header: map[string]string{"Content-Type": "application/xml"}})
			if o := b.Try(c.method, c.args); o.Code() != c.code {
				t.Errorf("%v, want %q", o.Err, c.code)
			} else if o.Err == nil && len(o.Output.JSON) > 200_000 {
				t.Errorf("an answer of %d bytes", len(o.Output.JSON))
			}
		})
	}
	v.Faults.Clear()
	for _, r := range v.Rec.All() {
		if r.Credential == "real" && !strings.HasPrefix(r.Host, "127.0.0.1:") {
			t.Errorf("the credential went to %s", r.Host)
		}
	}
	// A redirect is not followed with or without the credential.
	v.Faults.Add(standin.Fault{Method: "REPORT", Times: 1, Status: 307,
		Header: map[string]string{"Location": v.Base() + "/elsewhere/"}})
	if o := b.Try("events", range1); o.Code() != wire.CodeVendorRefused || len(v.Rec.Find("REPORT", "/elsewhere/")) > 0 {
		t.Errorf("a redirected report: %v", o.Err)
	}
	// A server that quotes the credential does not get it into the answer.
	quoting := vevent("x", "DTSTART:20300101T000000Z", "SUMMARY:{credential}")
	v.Faults.Add(standin.Fault{Method: "GET", Times: 1, Status: 200, Chunk: 3,
		Header: map[string]string{"Content-Type": "text/calendar"}, Body: string(ical(quoting))})
	if o := b.Call("event-get", Args{"event": one("/ada/personal/x.ics")}); o.Err != nil ||
		bytes.Contains(o.Output.JSON, []byte(password)) {
		t.Errorf("the credential came back: %v", o.Err)
	}
}

// Recurrence as RFC 5545 has it, over both changes of the clocks.
func TestRecurringEventsAreExpanded(t *testing.T) {
	v, b := startDAV(t)
	own := strings.Replace(berlin, "TZID:Europe/Berlin", "TZID:Own Zone", 1)
	for i, c := range []struct {
		lines    []string
		from, to string
		want     []string
	}{
		{[]string{"DTSTART;TZID=Europe/Berlin:20300329T013000", "DURATION:PT30M", "RRULE:FREQ=DAILY;COUNT=4"}, "2030-03-28",
			"2030-04-05", []string{"2030-03-29T01:30:00+01:00", "2030-03-30T01:30:00+01:00", "2030-03-31T01:30:00+01:00",
				"2030-04-01T01:30:00+02:00"}},
		{[]string{"DTSTART;TZID=Own Zone:20301026T090000", "DURATION:PT30M", "RRULE:FREQ=DAILY;UNTIL=20301028T080000Z"},
			"2030-10-20", "2030-11-05", []string{"2030-10-26T09:00:00+02:00", "2030-10-27T09:00:00+01:00",
				"2030-10-28T09:00:00+01:00"}},
		{[]string{"DTSTART;VALUE=DATE:20300131", "RRULE:FREQ=MONTHLY;BYMONTHDAY=-1;COUNT=3"}, "2030-01-01", "2030-12-01",
			[]string{"2030-01-31", "2030-02-28", "2030-03-31"}},
		{[]string{"DTSTART:20300101T100000Z", "RRULE:FREQ=WEEKLY;COUNT=3", "EXDATE:20300108T100000Z",
			"RDATE:20300120T100000Z,20300121T100000Z"}, "2030-01-01", "2030-02-01", []string{"2030-01-01T10:00:00Z",
			"2030-01-15T10:00:00Z", "2030-01-20T10:00:00Z", "2030-01-21T10:00:00Z"}},
		{[]string{"DTSTART:20300101T100000", "DTEND:20300101T110000"}, "2030-01-01", "2030-01-02",
			[]string{"2030-01-01T10:00:00"}},
		{[]string{"DTSTART:20300101T230000Z", "DTEND:20300102T010000Z"}, "2030-01-02", "2030-01-03",
			[]string{"2030-01-01T23:00:00Z"}},
		{[]string{"DTSTART:20300102T000000Z", "DTEND:20300102T010000Z"}, "2030-01-01", "2030-01-02", nil},
	} {
		path := fmt.Sprintf("%sr%d.ics", v.Calendar(), i)
		zones := berlin + "\r\n" + own
		if err := v.Put(path, ical(zones, vevent(fmt.Sprint("r", i), append(c.lines, "SUMMARY:x")...))); err != nil {
			t.Fatal(err)
		}
		o := b.Call("events", Args{"calendar": one(v.Calendar()), "from": one(c.from + "T00:00:00Z"),
			"to": one(c.to + "T00:00:00Z")})
		var got []string
		for _, x := range items(t, o) {
			got = append(got, x["start"].(string))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v\n got %v\nwant %v", c.lines, got, c.want)
		}
		if err := v.Put(path, ical(vevent(fmt.Sprint("r", i), "DTSTART:19700101T000000Z", "SUMMARY:gone"))); err != nil {
			t.Fatal(err)
		}
	}
}

// The embedded server of the demo answers the same.
func TestTheEmbeddedServerAnswersToo(t *testing.T) {
	v := caldav.Start(t, caldav.Options{User: "ada", Password: password})
	b := Start(t, Options{Connector: dav.Connector(), Base: v.Base(), CA: v.CAPEM(),
		Placement: wire.Placement{Kind: "basic", User: "ada"}, Secret: password, Owner: "ada@example.test"})
	o := b.Try("calendars", Args{})
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	cal := o.JSON(t)["calendars"].([]any)[0].(map[string]any)["calendar"].(string)
	made := b.Write("event-create", Args{"calendar": one(cal), "title": one("T"), "start": one("2030-05-01"),
		"end": one("2030-05-01")})
	if made.Err != nil {
		t.Fatal(made.Err)
	}
	at := one(made.Output.Object)
	if o := b.Write("event-update", Args{"event": at, "title": one("U")}); o.Err != nil {
		t.Fatal(o.Err)
	}
	o = b.Call("events", Args{"calendar": one(cal), "from": one("2030-05-01T00:00:00Z"),
		"to": one("2030-05-02T00:00:00Z")})
	if got := items(t, o); len(got) != 1 || said(got[0], "title") != "U" {
		t.Errorf("events: %s", o.Output.JSON)
	}
	if o := b.Write("event-delete", Args{"event": at}); o.Err != nil {
		t.Fatal(o.Err)
	}
}
