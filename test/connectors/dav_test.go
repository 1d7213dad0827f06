// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/radicale"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/workers/dav"
)

const password = "a real passw0rd, for tests"

func startDAV(t *testing.T) (*radicale.Server, *Bench) {
	t.Helper()
	v := radicale.Start(t, radicale.Options{User: "ada", Password: password})
	place := wire.Placement{Kind: "basic", User: "ada"}
	return v, Start(t, Options{Connector: dav.Connector(), Base: v.Base(), CA: v.CAPEM(), Placement: place,
		Secret: password, Owner: "ada@example.test",
		Scrub: []string{password, base64.StdEncoding.EncodeToString([]byte("ada:" + password))}})
}

// ical is an object of these lines.
func ical(lines ...string) []byte {
	return []byte("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//Other//EN\r\n" + strings.Join(lines, "\r\n") +
		"\r\nEND:VCALENDAR\r\n")
}

func vevent(uid string, lines ...string) string {
	return "BEGIN:VEVENT\r\nUID:" + uid + "\r\nDTSTAMP:20300101T000000Z\r\n" + strings.Join(lines, "\r\n") +
		"\r\nEND:VEVENT"
}

const berlin = "BEGIN:VTIMEZONE\r\nTZID:Europe/Berlin\r\nBEGIN:STANDARD\r\nDTSTART:19701025T030000\r\n" +
	"RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU\r\nTZOFFSETFROM:+0200\r\nTZOFFSETTO:+0100\r\nTZNAME:CET\r\nEND:STANDARD\r\n" +
	"BEGIN:DAYLIGHT\r\nDTSTART:19700329T020000\r\nRRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU\r\nTZOFFSETFROM:+0100\r\n" +
	"TZOFFSETTO:+0200\r\nTZNAME:CEST\r\nEND:DAYLIGHT\r\nEND:VTIMEZONE"

func items(t *testing.T, o *Outcome) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, x := range o.JSON(t)["items"].([]any) {
		out = append(out, x.(map[string]any))
	}
	return out
}

// said is the text of a field that others may have written.
func said(x map[string]any, field string) string {
	m, _ := x[field].(map[string]any)
	s, _ := m["text"].(string)
	return s
}

// Every method runs against the real server within what it declares, and uses all of it.
func TestEveryDAVMethodUsesItsWholeEnvelopeAndNoMore(t *testing.T) {
	v, b := startDAV(t)
	cal, book := v.Calendar(), v.Book()
	ran := map[string]bool{}
	used := map[string]bool{}
	note := func(method string, o *Outcome) *Outcome {
		t.Helper()
		ran[method] = true
		if o.Err != nil {
			t.Fatalf("%s: %v", method, o.Err)
		}
		if o.Finish.Outcome != wire.OutcomeDone {
			t.Errorf("%s: finished as %s", method, o.Finish.Outcome)
		}
		for i, e := range o.Entries {
			used[method+" "+e.Name] = used[method+" "+e.Name] || o.Used[i] > 0
		}
		for _, s := range o.Sent {
			if s.Err != nil {
				t.Errorf("%s: egress reports %v", method, s.Err)
			}
		}
		return o
	}
	o := note("calendars", b.Try("calendars", Args{}))
	if got := o.JSON(t); len(got["calendars"].([]any)) != 1 || len(got["books"].([]any)) != 1 {
		t.Errorf("calendars: %s", o.Output.JSON)
	}
	// A server that tells nothing at its root is asked at its well-known address.
	v.Faults.Add(standin.Fault{Method: "PROPFIND", Path: "/", Times: 1, Status: 404})
	v.Faults.Add(standin.Fault{Method: "PROPFIND", Path: "/.well-known/caldav", Times: 1, Status: 301,
		Header: map[string]string{"Location": "/"}})
	note("calendars", b.Try("calendars", Args{}))
	v.Faults.Clear()

	made := note("event-create", b.Write("event-create", Args{"calendar": one(cal), "title": one("T"),
		"start": one("2030-03-10T13:00:00"), "end": one("2030-03-10T14:00:00"), "tz": one("Europe/Berlin"),
		"attendee": one("bob@example.test"), "notify": one("none"), "description": one("a, b; c\\ d\ne")}))
	path := made.Output.Object
	if path != cal+made.Mark+".ics" {
		t.Errorf("object %s", path)
	}
	o = note("events", b.Call("events", Args{"calendar": one(cal), "from": one("2030-03-10T00:00:00Z"),
		"to": one("2030-03-11T00:00:00Z")}))
	if got := items(t, o); len(got) != 1 || got[0]["event"] != path || got[0]["start"] != "2030-03-10T13:00:00+01:00" ||
		got[0]["tz"] != "Europe/Berlin" || said(got[0], "title") != "T" || said(got[0], "description") != "a, b; c\\ d\ne" {
		t.Errorf("events: %s", o.Output.JSON)
	}
	if !slices.Equal(o.Output.Labels, []string{wire.LabelUntrusted, wire.LabelPrivate}) {
		t.Errorf("labels %v", o.Output.Labels)
	}
	note("event-get", b.Call("event-get", Args{"event": one(path)}))
	o = note("free-busy", b.Call("free-busy", Args{"calendar": one(cal), "from": one("2030-03-10T00:00:00Z"),
		"to": one("2030-03-11T00:00:00Z")}))
	if string(o.Output.JSON) != `{"busy":[{"start":"2030-03-10T12:00:00Z","end":"2030-03-10T13:00:00Z"}]}` {
		t.Errorf("free-busy: %s", o.Output.JSON)
	}
	o = note("changes", b.Call("changes", Args{"calendar": one(cal)}))
	if got := items(t, o); len(got) != 1 || o.Output.Next == "" {
		t.Errorf("changes: %s, next %q", o.Output.JSON, o.Output.Next)
	}
	since := o.Output.Next
	note("event-update", b.Write("event-update", Args{"event": one(path), "title": one("T2"), "notify": one("none")}))
	o = note("changes", b.Call("changes", Args{"calendar": one(cal), "since": one(since)}))
	if got := items(t, o); len(got) != 1 || got[0]["event"] != path {
		t.Errorf("changes since: %s", o.Output.JSON)
	}
	if o := b.Try("changes", Args{"calendar": one(cal), "since": one("http://radicale.org/ns/sync/nonsense")}); o.Code() !=
		wire.CodeConflict && o.Code() != wire.CodeVendorRefused {
		t.Errorf("a stale token: %v %s", o.Err, o.Code())
	}

	if err := v.Put(cal+"invited.ics", ical(vevent("invited", "DTSTART:20300312T100000Z", "DTEND:20300312T110000Z",
		"SUMMARY:Come", "ORGANIZER:mailto:bob@example.test", "ATTENDEE;PARTSTAT=NEEDS-ACTION:mailto:ada@example.test",
		"ATTENDEE;PARTSTAT=ACCEPTED;X-OTHER=1:mailto:cy@example.test"))); err != nil {
		t.Fatal(err)
	}
	note("respond", b.Write("respond", Args{"event": one(cal + "invited.ics"), "answer": one("accepted")}))
	body, _ := v.Object(cal + "invited.ics")
	for _, want := range []string{"PARTSTAT=ACCEPTED:mailto:ada@", "X-OTHER=1", "SUMMARY:Come"} {
		if !strings.Contains(unfolded(body), want) {
			t.Errorf("after respond there is no %q:\n%s", want, body)
		}
	}
	note("event-delete", b.Write("event-delete", Args{"event": one(cal + "invited.ics"), "notify": one("all")}))
	if _, there := v.Object(cal + "invited.ics"); there {
		t.Error("the event was not deleted")
	}
	if err := v.Put(cal+"series.ics", ical(berlin, vevent("series", "DTSTART;TZID=Europe/Berlin:20300304T090000",
		"DURATION:PT1H", "RRULE:FREQ=WEEKLY;COUNT=10", "SUMMARY:Weekly"))); err != nil {
		t.Fatal(err)
	}
	at := cal + "series.ics"
	note("event-delete", b.Write("event-delete", Args{"event": one(at), "scope": one("one"),
		"instance": one("2030-04-01T07:00:00Z")}))
	note("event-delete", b.Write("event-delete", Args{"event": one(at), "scope": one("following"),
		"instance": one("2030-04-15T07:00:00Z")}))
	o = b.Call("events", Args{"calendar": one(cal), "from": one("2030-03-04T00:00:00Z"),
		"to": one("2030-06-01T00:00:00Z")})
	var starts []string
	for _, x := range items(t, o) {
		if x["event"] == at {
			starts = append(starts, x["start"].(string))
		}
	}
	if want := []string{"2030-03-04T09:00:00+01:00", "2030-03-11T09:00:00+01:00", "2030-03-18T09:00:00+01:00",
		"2030-03-25T09:00:00+01:00", "2030-04-08T09:00:00+02:00"}; !slices.Equal(starts, want) {
		t.Errorf("the series has %v, want %v", starts, want)
	}
	note("event-delete", b.Write("event-delete", Args{"event": one(at), "scope": one("all")}))

	made = note("contact-put", b.Write("contact-put", Args{"book": one(book), "name": one("Zoë, Müller"),
		"email": one("z@example.test", "z2@example.test"), "phone": one("+49 1")}))
	who := made.Output.Object
	o = note("contacts", b.Call("contacts", Args{"book": one(book), "query": one("müller")}))
	if got := items(t, o); len(got) != 1 || got[0]["contact"] != who || said(got[0], "name") != "Zoë, Müller" {
		t.Errorf("contacts: %s", o.Output.JSON)
	}
	note("contact-put", b.Write("contact-put", Args{"contact": one(who), "email": one("new@example.test")}))
	o = note("contacts", b.Call("contacts", Args{"book": one(book)}))
	if got := items(t, o); len(got) != 1 || got[0]["email"].([]any)[0] != "new@example.test" {
		t.Errorf("contacts: %s", o.Output.JSON)
	}
	note("contact-delete", b.Write("contact-delete", Args{"contact": one(who)}))
	if _, there := v.Object(who); there {
		t.Error("the contact was not deleted")
	}

	for _, m := range dav.Connector().Describe.Methods {
		if !ran[m.Name] {
			t.Errorf("%s was not run", m.Name)
		}
		for _, e := range m.Entries {
			if !used[m.Name+" "+e.Name] {
				t.Errorf("%s: entry %s was never used", m.Name, e.Name)
			}
		}
	}
	for _, r := range v.Rec.All() {
		if r.Credential != "real" || strings.Contains(string(r.Body)+r.Target, "surrogate") {
			t.Errorf("%s %s came with credential %s", r.Method, r.Target, r.Credential)
		}
	}
}

func unfolded(b []byte) string { return strings.ReplaceAll(string(b), "\r\n ", "") }
