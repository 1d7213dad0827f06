// SPDX-License-Identifier: Apache-2.0

package caldav

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-ical"
	"github.com/emersion/go-webdav"
	webcal "github.com/emersion/go-webdav/caldav"
	"github.com/emersion/go-webdav/carddav"
)

func start(t *testing.T) (*Server, webdav.HTTPClient) {
	t.Helper()
	s := Start(t, Options{Password: "secret"})
	return s, webdav.HTTPClientWithBasicAuth(s.Client(), "ada", "secret")
}

// An independent client finds its way and reads what is there.
func TestAnIndependentClientFindsAndReads(t *testing.T) {
	s, h := start(t)
	ctx := t.Context()
	client, err := webcal.NewClient(h, s.Base())
	if err != nil {
		t.Fatal(err)
	}
	principal, err := client.FindCurrentUserPrincipal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	home, err := client.FindCalendarHomeSet(ctx, principal)
	if err != nil {
		t.Fatal(err)
	}
	calendars, err := client.FindCalendars(ctx, home)
	if err != nil || len(calendars) != 1 || calendars[0].Name != "Personal" || calendars[0].Path != s.Calendar() {
		t.Fatalf("calendars: %+v, %v", calendars, err)
	}
	query := func(from, to string) []webcal.CalendarObject {
		t.Helper()
		a, b := parseTime(t, from), parseTime(t, to)
		found, err := client.QueryCalendar(ctx, s.Calendar(), &webcal.CalendarQuery{
			CompRequest: webcal.CalendarCompRequest{Name: "VCALENDAR", AllProps: true, AllComps: true},
			CompFilter: webcal.CompFilter{Name: "VCALENDAR", Comps: []webcal.CompFilter{
				{Name: "VEVENT", Start: a, End: b},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if n := len(query("2030-11-05T00:00:00Z", "2030-11-06T00:00:00Z")); n != 3 {
		t.Errorf("5 November has %d events, want dentist, stand-up, invitation", n)
	}
	if n := len(query("2030-11-06T00:00:00Z", "2030-11-07T00:00:00Z")); n != 0 {
		t.Errorf("6 November, which the stand-up leaves out, has %d events", n)
	}
	if n := len(query("2030-12-26T23:00:00Z", "2030-12-27T00:00:00Z")); n != 1 {
		t.Errorf("the last hour of the holiday has %d events", n)
	}
	if n := len(query("2030-12-27T00:00:00Z", "2030-12-28T00:00:00Z")); n != 0 {
		t.Errorf("the day after the holiday has %d events", n)
	}
	event := ical.NewEvent()
	event.Props.SetText(ical.PropUID, "new@example.test")
	event.Props.SetDateTime(ical.PropDateTimeStamp, time.Now())
	event.Props.SetDateTime(ical.PropDateTimeStart, parseTime(t, "2030-11-06T10:00:00Z"))
	cal := ical.NewCalendar()
	cal.Props.SetText(ical.PropVersion, "2.0")
	cal.Props.SetText(ical.PropProductID, "-//example//test//EN")
	cal.Children = append(cal.Children, event.Component)
	if _, err := client.PutCalendarObject(ctx, s.Calendar()+"new.ics", cal); err != nil {
		t.Fatal(err)
	}
	if n := len(query("2030-11-06T00:00:00Z", "2030-11-07T00:00:00Z")); n != 1 {
		t.Errorf("6 November has %d events after one was put there", n)
	}

	cards, err := carddav.NewClient(h, s.Base())
	if err != nil {
		t.Fatal(err)
	}
	sync, err := cards.SyncCollection(ctx, s.Book(), &carddav.SyncQuery{})
	if err != nil || len(sync.Updated) != 1 {
		t.Fatalf("first synchronization: %+v, %v", sync, err)
	}
	if err := cards.RemoveAll(ctx, s.Book()+"bob.vcf"); err != nil {
		t.Fatal(err)
	}
	sync, err = cards.SyncCollection(ctx, s.Book(), &carddav.SyncQuery{SyncToken: sync.SyncToken})
	if err != nil || len(sync.Updated) != 0 || len(sync.Deleted) != 1 {
		t.Fatalf("second synchronization: %+v, %v", sync, err)
	}
}

func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func send(t *testing.T, s *Server, method, path, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, s.Base()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("ada", "secret")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := s.Client()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

func event(uid, rest string) string {
	return "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//example//test//EN\r\nBEGIN:VEVENT\r\nUID:" + uid +
		"\r\nDTSTAMP:20261101T000000Z\r\nDTSTART:20310101T100000Z\r\n" + rest + "END:VEVENT\r\nEND:VCALENDAR\r\n"
}

func TestWritesKeepTheirPreconditions(t *testing.T) {
	s, _ := start(t)
	path := s.Calendar() + "x.ics"
	const kind = "text/calendar; charset=utf-8"
	put := func(body string, header ...string) (int, string, http.Header) {
		return send(t, s, "PUT", path, body, append([]string{"Content-Type", kind}, header...)...)
	}
	status, _, header := put(event("x@example.test", ""), "If-None-Match", "*")
	etag := header.Get("ETag")
	if status != 201 || etag == "" {
		t.Fatalf("create: %d %q", status, etag)
	}
	if status, _, _ = put(event("x@example.test", ""), "If-None-Match", "*"); status != 412 {
		t.Errorf("create again: %d", status)
	}
	if status, _, _ = put(event("x@example.test", "SUMMARY:a\r\n"), "If-Match", `"other"`); status != 412 {
		t.Errorf("with another ETag: %d", status)
	}
	if status, _, _ = put(event("x@example.test", "SUMMARY:a\r\n"), "If-Match", etag); status != 204 {
		t.Errorf("with its ETag: %d", status)
	}
	status, text, _ := send(t, s, "PUT", s.Calendar()+"y.ics", event("x@example.test", ""), "Content-Type", kind)
	if status != 403 || !strings.Contains(text, "no-uid-conflict") {
		t.Errorf("the same UID elsewhere: %d %s", status, text)
	}
	if status, _, _ = put("BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"); status != 403 {
		t.Errorf("no component: %d", status)
	}
	if status, _, _ = send(t, s, "DELETE", path, "", "If-Match", etag); status != 412 {
		t.Errorf("delete with an old ETag: %d", status)
	}
	if got := s.Rec.Handled("PUT", path); got != 2 {
		t.Errorf("%d writes handled, want 2", got)
	}
}

func TestStaleSyncTokensAreRefused(t *testing.T) {
	s, _ := start(t)
	const body = `<sync-collection xmlns="DAV:"><sync-token>%</sync-token><sync-level>1</sync-level>` +
		`<prop><getetag/></prop></sync-collection>`
	status, text, _ := send(t, s, "REPORT", s.Calendar(), strings.ReplaceAll(body, "%", ""), "Depth", "0")
	_, rest, found := strings.Cut(text, "<D:sync-token>")
	token, _, _ := strings.Cut(rest, "<")
	if status != 207 || !found || strings.Count(text, "<D:response>") != 4 {
		t.Fatalf("first: %d %s", status, text)
	}
	status, text, _ = send(t, s, "REPORT", s.Calendar(), strings.ReplaceAll(body, "%", token), "Depth", "0")
	if status != 207 || strings.Contains(text, "<D:response>") {
		t.Errorf("nothing changed: %d %s", status, text)
	}
	s.ForgetSync()
	status, text, _ = send(t, s, "REPORT", s.Calendar(), strings.ReplaceAll(body, "%", token), "Depth", "0")
	if status != 403 || !strings.Contains(text, "valid-sync-token") {
		t.Errorf("stale token: %d %s", status, text)
	}
}

func TestExpansionAndFreeBusyAgree(t *testing.T) {
	s, _ := start(t)
	const within = `start="20301104T000000Z" end="20301109T000000Z"`
	status, text, _ := send(t, s, "REPORT", s.Calendar(), `<C:calendar-query xmlns:C="urn:ietf:params:xml:ns:caldav"
		xmlns="DAV:"><prop><C:calendar-data><C:expand `+within+`/></C:calendar-data></prop><C:filter>
		<C:comp-filter name="VCALENDAR"><C:comp-filter name="VEVENT"><C:time-range `+within+`/></C:comp-filter>
		</C:comp-filter></C:filter></C:calendar-query>`, "Depth", "1")
	if status != 207 || strings.Count(text, "UID:standup@example.test") != 4 || strings.Contains(text, "RRULE") {
		t.Errorf("expansion: %d %s", status, text)
	}
	status, text, _ = send(t, s, "REPORT", s.Calendar(), `<C:free-busy-query xmlns:C="urn:ietf:params:xml:ns:caldav">`+
		`<C:time-range `+within+`/></C:free-busy-query>`, "Depth", "1")
	if status != 200 || strings.Count(text, "FREEBUSY:") != 6 {
		t.Errorf("free-busy: %d %s", status, text)
	}
	if _, err := ical.NewDecoder(bytes.NewReader([]byte(text))).Decode(); err != nil {
		t.Error(err)
	}
}

func TestSchedulingNotesWhoWouldBeMailed(t *testing.T) {
	s, _ := start(t)
	path := s.Calendar() + "m.ics"
	put := func(rest string) {
		t.Helper()
		status, text, _ := send(t, s, "PUT", path, event("m@example.test", "ORGANIZER:mailto:ada@example.test\r\n"+rest),
			"Content-Type", "text/calendar")
		if status/100 != 2 {
			t.Fatalf("%d %s", status, text)
		}
	}
	put("ATTENDEE:mailto:bob@example.test\r\nATTENDEE;SCHEDULE-AGENT=NONE:mailto:eve@example.test\r\n")
	put("")
	got := s.View().Mails
	if len(got) != 2 || got[0] != (Mail{"REQUEST", "bob@example.test", "m@example.test"}) || got[1].Method != "CANCEL" {
		t.Errorf("mails: %+v", got)
	}
}
