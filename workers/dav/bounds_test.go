// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// A zone's changes after its list of them ends (2037), leap years included, are found and end.
func TestZonesAreWrittenFarAheadAndEnd(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Seoul",
		"Africa/Casablanca", "Asia/Kathmandu"} {
		start, err := whenOf("start", "2036-06-01T12:00:00", zone)
		if err != nil {
			t.Fatal(err)
		}
		z := start.vtimezone(start, seriesYears)
		n := strings.Count(string(z.bytes()), "\r\n")
		if n > 200 {
			t.Errorf("%s: %d lines", zone, n)
		}
		if zone == "Europe/Berlin" && strings.Count(string(z.bytes()), "RDATE")+2 != 2*seriesYears+1 {
			t.Errorf("%s:\n%s", zone, z.bytes())
		}
	}
}

// Rules that ask for too much are refused, or end.
func TestRulesAreExpandedWithinBounds(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for rule, want := range map[string]int{
		"FREQ=DAILY": 31, "FREQ=SECONDLY": -1, "FREQ=MINUTELY": -1, "FREQ=HOURLY": 744, "FREQ=HOURLY;BYMONTH=2": -1,
		"FREQ=DAILY;BYMONTHDAY=31": -1, "FREQ=DAILY;BYDAY=MO": 4, "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30": 0,
		"FREQ=YEARLY;BYEASTER=9999": -1, "FREQ=DAILY;COUNT=-1": -1, "FREQ=DAILY;INTERVAL=99999": -1,
		"FREQ=DAILY;BYHOUR=1,2;BYMINUTE=1,2;BYSECOND=1,2": -1, "": -1, "FREQ=DAILY;X=1": -1,
		"FREQ=YEARLY;BYMONTHDAY=" + strings.Repeat("1,", 600) + "1": -1,
	} {
		got, err := occurrences(rule, start, start.AddDate(0, 1, 0), false, 10_000)
		if errors.Is(err, errRule) != (want < 0) || want >= 0 && len(got) != want {
			t.Errorf("%.40s: %d, %v, want %d", rule, len(got), err, want)
		}
	}
	if got, err := occurrences("FREQ=DAILY", start.AddDate(-300, 0, 0), start, false, 10); err == nil {
		t.Errorf("since 1730: %d", len(got))
	}
}

func TestOnlyPathsOfTheAccountsServerAreTaken(t *testing.T) {
	base := wire.Base{Scheme: "https", Host: "dav.example.test", Port: 8443}
	for href, want := range map[string]string{
		"/a/b/": "/a/b/", " /a ": "/a", "https://dav.example.test:8443/a": "/a",
		"https://DAV.example.test:8443/a%20b": "/a b", "/": "/", "/%C3%A4.ics": "/ä.ics",
		"": "", "a": "", "//evil.test/a": "", "https://evil.test:8443/a": "",
		"https://dav.example.test/a": "", "http://dav.example.test:8443/a": "", "https://u@dav.example.test:8443/a": "",
		"/a?x": "", "/a#x": "", "/a/../b": "", "/a%2Fb": "", "/a%2fb": "", "/a//b": "", "/a;b": "", `/a\b`: "",
		"/a%0d%0ab": "",
		"/a%25b":    "", "mailto:a": "", "javascript:x": "",
	} {
		got, err := local(base, href)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q %v, want %q", href, got, err, want)
		}
	}
}
