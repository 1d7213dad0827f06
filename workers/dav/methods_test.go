// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// rows are the rows of specs/methods.tsv for a vendor, by method.
func rows(t *testing.T, vendor string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../specs/methods.tsv")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if c := strings.Split(line, "\t"); c[0] == vendor {
			out[c[1]] = c
		}
	}
	return out
}

// Columns of the table.
const (
	colClass = iota + 2
	colReach
	colVerb
	colPath
	colBase
	colPermission
	colArguments
	colLimits
	colWritten
)

// further are the arguments that the table does not list, and why they are there.
var further = map[string]string{
	"max":      "a list is bounded",
	"scope":    "CI-06: which occurrences of a series",
	"instance": "CI-06: which occurrence",
	"notify":   "CI-06: whether the server may tell others",
	"book":     "contact-put: where a new contact goes",
	"contact":  "contact-put: which contact is changed",
	// event-update: the table says `changed fields`.
	"title": "", "start": "", "end": "", "tz": "", "attendee": "", "remove-attendee": "", "location": "",
	"description": "",
}

func TestEveryRowAndColumnOfTheTableIsDeclared(t *testing.T) {
	c := Connector().Describe
	if _, err := c.Seal(); err != nil {
		t.Fatal(err)
	}
	table := rows(t, "dav")
	if len(table) != 12 || len(c.Methods) != len(table) {
		t.Fatalf("%d rows, %d methods", len(table), len(c.Methods))
	}
	google := rows(t, "gcalendar")["event-create"]
	argument := regexp.MustCompile(`--([a-z-]+)(=[a-z|]+)?(\.\.\.)?`)
	for name, r := range table {
		m, ok := c.Method(name)
		if !ok {
			t.Errorf("%s is not declared", name)
			continue
		}
		fail := func(column string, got, want any) {
			t.Helper()
			t.Errorf("%s: %s is %v, the table says %v", name, column, got, want)
		}
		if m.Class != r[colClass] {
			fail("class", m.Class, r[colClass])
		}
		if m.Reach != r[colReach] {
			fail("reach", m.Reach, r[colReach])
		}
		if !slices.Equal(m.Scopes, []string{r[colPermission]}) {
			fail("permission", m.Scopes, r[colPermission])
		}
		if r[colBase] != "https://(account)" || c.Base != "" {
			fail("base", c.Base, r[colBase])
		}
		for _, e := range m.Entries {
			want := r[colVerb]
			if name == "event-delete" && strings.HasPrefix(e.Name, "put-") {
				want = "PUT" // some occurrences of a series: the series goes on without them
			}
			if e.Method != want {
				fail("verb of "+e.Name, e.Method, want)
			}
			if e.Host != "" || !e.Credential {
				fail("host", e.Host, "the account's")
			}
			if strings.HasSuffix(r[colPath], "/{collection}/{uid}.ics") && !slices.Contains([]string{"{event}",
				"{calendar}{mark}.ics"}, e.Path) {
				fail("path", e.Path, r[colPath])
			}
			if strings.HasSuffix(r[colPath], "/{collection}/{uid}.vcf") && !slices.Contains([]string{"{contact}",
				"{book}{mark}.vcf"}, e.Path) {
				fail("path", e.Path, r[colPath])
			}
		}
		arguments := r[colArguments]
		if arguments == "as gcalendar event-create" {
			arguments = strings.Replace(google[colArguments], " --meet", "", 1) // a DAV server has no meeting rooms of its own
		}
		listed := map[string]bool{}
		for _, a := range argument.FindAllStringSubmatch(arguments, -1) {
			listed[a[1]] = true
			d, ok := m.Arg(a[1])
			if !ok {
				fail("arguments", "without --"+a[1], arguments)
				continue
			}
			if (d.Repeat > 1) != (a[3] != "") {
				fail("--"+a[1], d.Repeat, a[0])
			}
			if a[2] != "" && !slices.Equal(d.Enum, strings.Split(a[2][1:], "|")) {
				fail("--"+a[1], d.Enum, a[2])
			}
		}
		for _, a := range m.Args {
			if _, why := further[a.Name]; !listed[a.Name] && !why {
				fail("arguments", "--"+a.Name+" more", arguments)
			}
		}
		others := r[colWritten] != "none" && m.Class == describe.Read
		if slices.Contains(m.Labels, wire.LabelUntrusted) != others {
			fail("labels", m.Labels, r[colWritten])
		}
		limits(t, m, r[colLimits])
	}
}

// limits holds the declaration to the words of the column on limits and idempotency.
func limits(t *testing.T, m *describe.Method, words string) {
	t.Helper()
	header := func(name string) bool {
		return slices.ContainsFunc(m.Entries, func(e describe.Entry) bool {
			return slices.ContainsFunc(e.Header, func(h describe.Match) bool {
				return h.Name == name && (name != "If-Match" || h.Bind.ETag)
			})
		})
	}
	for word, holds := range map[string]func() bool{
		"If-None-Match":       func() bool { return header("If-None-Match") && m.Once != "" && m.Settle != nil },
		"If-Match":            func() bool { return header("If-Match") && m.Prepare.Base == "event-get" },
		"SCHEDULE-AGENT=NONE": func() bool { _, ok := m.Arg("notify"); return ok },
		"bound the range":     func() bool { return m.Entries[0].MaxIn > 0 },
		"compute from events": func() bool { return m.Entries[0].Body.XML == eventsQuery },
		"limit element":       func() bool { return strings.Contains(m.Entries[0].Body.XML, "<A:nresults>{max}") },
		"Schedule-Reply":      func() bool { return header("Schedule-Reply") },
		"well-known":          func() bool { return m.Entries[1].Path == "/.well-known/caldav" },
		"keep unknown":        func() bool { return m.Prepare != nil && m.Prepare.Base != "" },
	} {
		if strings.Contains(words, word) && !holds() {
			t.Errorf("%s: the table says %q, the declaration does not", m.Name, word)
		}
	}
	if m.Class != describe.Read && m.Once == "" && (m.Settle != nil || m.Prepare == nil) {
		t.Errorf("%s: a write that is not create-once is held to what was read", m.Name)
	}
}

// Two builds describe the same.
func TestTheDescriptionIsReproducible(t *testing.T) {
	first, err := Connector().Describe.Seal()
	if err != nil {
		t.Fatal(err)
	}
	second, err := Connector().Describe.Seal()
	if err != nil || string(first) != string(second) {
		t.Fatal("two descriptions differ")
	}
	if _, err := describe.Parse(first); err != nil {
		t.Fatal(err)
	}
}
