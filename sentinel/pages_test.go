// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// fits holds an answer to what a frame can carry.
func fits(t *testing.T, answer any) {
	t.Helper()
	b, err := wire.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > wire.MaxFrame-maxSlack {
		t.Errorf("an answer of %d bytes, which no frame can carry", len(b))
	}
}

// However much waits, every card comes once, oldest first, in answers that fit.
func TestPendingComesInPages(t *testing.T) {
	s := newSentinel(t)
	var want []string
	for i := range 210 { // of several cells: one has 50 at most
		c := ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Cell: fmt.Sprintf("c%d", i%5), Connector: "demo", Method: "create",
			Class: "write"}}
		k := wire.Card{ID: c.ID, Title: "t"}
		for range 20 {
			k.Fields = append(k.Fields, wire.Field{Label: "l", Values: slices.Repeat([]string{strings.Repeat("v", briefText)}, 6)})
		}
		var err error
		if c.Card, err = json.Marshal(&k); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.ledger.Park(t.Context(), c, "cell"); err != nil {
			t.Fatal(err)
		}
		want = append(want, c.ID)
	}
	slices.Sort(want)
	var got []string
	pages := 0
	for after := ""; ; pages++ {
		r, err := s.pending(t.Context(), ada(), &wire.ListFrom{After: after})
		if err != nil {
			t.Fatal(err)
		}
		fits(t, r)
		for _, k := range r.Cards {
			got = append(got, k.ID)
			if k.Alike != 41 || len(k.Fields) != 20 {
				t.Fatalf("%d alike, %d fields", k.Alike, len(k.Fields))
			}
		}
		if after = r.Next; after == "" {
			break
		}
	}
	if !slices.Equal(got, want) || pages < 2 {
		t.Errorf("%d cards in %d pages, want %d", len(got), pages+1, len(want))
	}
}

func TestGrantsComeInPages(t *testing.T) {
	s := newSentinel(t)
	const n = 150
	limits, err := json.Marshal(keptLimits{Sentence: strings.Repeat("s", 10<<10)})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := s.ledger.AddGrant(t.Context(), ledger.Grant{Cell: "work", Connector: "demo", Method: "create",
			Kind: ledger.KindStanding, Limits: limits}, "person:1000"); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for after := ""; ; {
		r, err := s.grantsVerb(t.Context(), ada(), &wire.ListFrom{After: after})
		if err != nil {
			t.Fatal(err)
		}
		fits(t, r)
		for _, g := range r.Grants {
			seen[g.ID] = true
		}
		if after = r.Next; after == "" {
			break
		}
	}
	if len(seen) != n {
		t.Errorf("%d grants, want %d", len(seen), n)
	}
}

// Long entries are paged; the newest, which list is about, are not what is lost.
func TestAuditComesInPages(t *testing.T) {
	s := newSentinel(t)
	const n = 40
	long := slices.Repeat([]string{strings.Repeat("d", 1000)}, 50)
	for i := range n {
		if err := s.ledger.Record(t.Context(), ledger.Event{Type: "test", Actor: "a", Call: "c1", Subject: fmt.Sprint(i),
			Details: long}); err != nil {
			t.Fatal(err)
		}
	}
	for _, op := range []string{"list", "show", "export"} {
		var subjects []string
		req := &wire.AuditReq{Op: op, ID: "c1"}
		for {
			r, err := s.audit(t.Context(), ada(), req)
			if err != nil {
				t.Fatal(err)
			}
			fits(t, r)
			for _, l := range r.Lines {
				var e struct{ Subject string }
				if err := json.Unmarshal(l, &e); err != nil {
					t.Fatal(err)
				}
				subjects = append(subjects, e.Subject)
			}
			if !r.More {
				break
			}
			req = &wire.AuditReq{Op: map[string]string{"list": "export", "show": "show", "export": "export"}[op], ID: "c1", After: r.Last}
		}
		if len(subjects) != n || subjects[n-1] != fmt.Sprint(n-1) {
			t.Errorf("%s: %d entries, the last %s", op, len(subjects), subjects[len(subjects)-1])
		}
	}
	for range 25 {
		if err := s.ledger.Record(t.Context(), ledger.Event{Type: ledger.EvDeny, Actor: "a", Details: long}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.why(t.Context(), ada(), &wire.WhyReq{})
	if err != nil || len(r.Lines) == 0 || !r.More {
		t.Fatalf("%d lines, more %v, %v", len(r.Lines), r.More, err)
	}
	fits(t, r)
}

func TestFaultsOfAPolicyFit(t *testing.T) {
	s := newSentinel(t)
	line := "forbid (principal, action == Action::\"demo.itemz\", resource);\n"
	req := &wire.PolicyReq{Op: "check"}
	for i := range 4 {
		req.Files = append(req.Files, wire.PolicyFile{Name: fmt.Sprintf("own%d.cedar", i), Body: []byte(strings.Repeat(line, 990))})
	}
	r, err := s.policyVerb(t.Context(), ada(), req)
	if err != nil || len(r.Problems) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	fits(t, r)
	if last := r.Problems[len(r.Problems)-1]; !strings.Contains(last, "more, see: doorward policy check") {
		t.Error(last)
	}
}

// A policy that could not be kept is refused before anybody approves it.
func TestAPolicyTooLargeToKeepIsRefused(t *testing.T) {
	s := newSentinel(t)
	req := &wire.PolicyReq{Op: "load"}
	for i := range 4 {
		req.Files = append(req.Files, wire.PolicyFile{Name: fmt.Sprintf("own%d.cedar", i), Body: []byte(strings.Repeat("// x\n", 10_000))})
	}
	if _, err := s.policyVerb(t.Context(), ada(), req); codeOf(err) != wire.CodeTooLarge {
		t.Error(err)
	}
	req.Files = req.Files[:1] // the control
	if _, err := s.policyVerb(t.Context(), ada(), req); err != nil {
		t.Error(err)
	}
}

func TestPagesOfLines(t *testing.T) {
	var all []string
	for i := range 20_000 {
		all = append(all, fmt.Sprint(i, strings.Repeat("x", 100)))
	}
	var got []string
	for first := 0; ; {
		lines, next := pageLines(all, first)
		fits(t, lines)
		got = append(got, lines...)
		if first = next; next == 0 {
			break
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("%d lines of %d", len(got), len(all))
	}
	for _, first := range []int{-1, 0, len(all), len(all) + 7} {
		if lines, next := pageLines(all, first); first > 0 && (len(lines) > 0 || next != 0) {
			t.Errorf("from %d: %d lines", first, len(lines))
		}
	}
}
