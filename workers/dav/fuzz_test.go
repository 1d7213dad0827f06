// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"bytes"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

var calendarSeeds = []string{
	"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTART:20300101T000000Z\r\nRRULE:FREQ=DAILY\r\n" +
		"END:VEVENT\r\nEND:VCALENDAR\r\n",
	"BEGIN:VCALENDAR\nBEGIN:VTIMEZONE\nTZID:x\nBEGIN:STANDARD\nDTSTART:19701025T030000\nRRULE:FREQ=YEARLY;BYMONTH=10;" +
		"BYDAY=-1SU\nTZOFFSETFROM:+0200\nTZOFFSETTO:+0100\nEND:STANDARD\nEND:VTIMEZONE\nBEGIN:VEVENT\nUID:1\n" +
		"DTSTART;TZID=x:20300304T090000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=20\nEXDATE;TZID=x:20300311T090000\n" +
		"RDATE;VALUE=PERIOD:20300401T000000Z/PT1H\nATTENDEE;CN=\"a:b\":mailto:a@b.test\nEND:VEVENT\nBEGIN:VEVENT\nUID:1\n" +
		"RECURRENCE-ID;RANGE=THISANDFUTURE;TZID=x:20300318T090000\nDTSTART;TZID=x:20300319T090000\nEND:VEVENT\n" +
		"END:VCALENDAR\n",
	"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20300101\nRRULE:FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30\n" +
		"SUMMARY;X=1:a\\nb\\\\\n c\nEND:VEVENT\nEND:VCALENDAR\n",
	"BEGIN:VCALENDAR\nX;A=b\n",
	"BEGIN:VCALENDAR\nBEGIN:VEVENT\nRRULE:FREQ=SECONDLY;BYEASTER=9999\nEND:VEVENT\nEND:VCALENDAR",
}

// FuzzCalendar reads, expands and shows any bytes within bounds, and whatever can be edited line by line comes out as
// it went in.
func FuzzCalendar(f *testing.F) {
	for _, s := range calendarSeeds {
		f.Add([]byte(s))
	}
	from := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := readSeries(b); err == nil {
			list, _ := s.expand(from, from.AddDate(0, 2, 0), 500)
			if len(list) > 500 {
				t.Fatalf("%d instances", len(list))
			}
			for i := range list {
				list[i].show("/x.ics", "", 100)
			}
			s.show("/x.ics", "")
		}
		top, err := readLines(b)
		if err != nil {
			if top != nil {
				t.Fatal("a value with an error")
			}
			return
		}
		once := top.bytes()
		again, err := readLines(once)
		if err != nil || !bytes.Equal(again.bytes(), once) {
			t.Fatalf("written and read again it differs: %v\n%q\n%q", err, once, again.bytes())
		}
		for line := range bytes.Lines(once) {
			if len(line) > foldAt+2 || !bytes.HasSuffix(line, []byte("\r\n")) {
				t.Fatalf("line %q", line)
			}
		}
	})
}

func FuzzCard(f *testing.F) {
	f.Add([]byte("BEGIN:VCARD\r\nVERSION:3.0\r\nFN:A\\, b\r\nN:b;A;;;\r\n" +
		"item1.EMAIL;TYPE=x:a@b.test\r\nTEL:tel:+1\r\nEND:VCARD\r\n"))
	f.Add([]byte("BEGIN:VCARD\nPHOTO;ENCODING=b:AAAA\n AAAA\nNOTE;X=\"\\q\":y\nEND:VCARD\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		card, err := readCard(b)
		if err != nil {
			if card != nil {
				t.Fatal("a value with an error")
			}
			return
		}
		showCard(card, "/x.vcf", "")
	})
}

func FuzzMultistatus(f *testing.F) {
	f.Add([]byte(`<?xml version="1.0"?><d:multistatus xmlns:d="DAV:"><d:response><d:href>/a/</d:href>` +
		`<d:propstat><d:prop>` +
		`<d:getetag>"1"</d:getetag><d:resourcetype><d:collection/></d:resourcetype></d:prop><d:status>HTTP/1.1 200 OK` +
		`</d:status></d:propstat></d:response><d:sync-token>x</d:sync-token></d:multistatus>`))
	f.Add([]byte(`<!DOCTYPE x [<!ENTITY a "aa">]><multistatus xmlns="DAV:">&a;</multistatus>`))
	f.Add([]byte(`<multistatus xmlns="DAV:"><response><href>//evil.test/</href></response></multistatus>`))
	base := wire.Base{Scheme: "https", Host: "dav.test", Port: 443}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(bytes.NewReader(b))
		if err != nil {
			if m != nil {
				t.Fatal("a value with an error")
			}
			return
		}
		for i := range m.Responses {
			p, err := local(base, m.Responses[i].Href)
			if err == nil && (p == "" || p[0] != '/' || len(p) > 1 && p[1] == '/') {
				t.Fatalf("%q became %q", m.Responses[i].Href, p)
			}
			m.Responses[i].props()
		}
	})
}
