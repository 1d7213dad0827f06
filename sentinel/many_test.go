// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// What a page has to bear: as many calls that wait as a hundred cells may have, and years of past ones.
const (
	manyPending = 100 * ledger.MaxParked
	manyPast    = 100_000
)

// crowd fills the ledger with calls that wait and past ones, by the ledger's own functions.
func (s *Sentinel) crowd(t testing.TB, pending, past int) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(256) // which the ledger writes together
	now := s.ledger.Now()
	for i := range past + pending {
		g.Go(func() error {
			id, cell := ledger.NewID(), fmt.Sprintf("c%d", i%(manyPending/ledger.MaxParked))
			card, err := json.Marshal(&wire.Card{ID: id, Kind: "call", State: wire.StateParked, Title: "make a thing", Connector: "demo",
				Method: "create", Account: "home", Class: "write", Reach: "people", Cell: cell, Session: "payload",
				Fields:  []wire.Field{{Label: "To", Values: []string{fmt.Sprintf("p%d@example.org", i)}, Main: true}, {Label: "Title", Values: []string{"It stalls"}}},
				Bodies:  []wire.Shown{{Name: "what is sent", Media: "text/plain", Size: 2048, Text: strings.Repeat("line\n", 400)}},
				Expires: now.Add(24 * time.Hour).Time().Unix()})
			if err != nil {
				return err
			}
			c := ledger.Call{Frame: ledger.Frame{ID: id, Cell: cell, Session: "payload", Connector: "demo", Account: "home", Method: "create",
				Class: "write", Reach: "people", Canonical: []byte("{}"), Hash: id, Decision: "ask", Created: now, Deadline: now.Add(24 * time.Hour)}}
			if i < past {
				c.Decision = "deny"
				_, err = s.ledger.Refuse(t.Context(), c, "cell:"+cell)
				return err
			}
			c.Card = card
			_, _, err = s.ledger.Park(t.Context(), c, "cell:"+cell)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// Thousands that wait and a long past are listed whole and in order, page by page, and a page is as long as it was asked to be.
func TestManyCallsAreListed(t *testing.T) {
	past := manyPast
	if testing.Short() {
		past /= 100
	}
	s := newSentinel(t)
	s.crowd(t, manyPending, past)
	for _, limit := range []int{0, 50} {
		var ids []string
		for req := (&wire.ListFrom{Limit: limit}); ; {
			r, err := s.pending(t.Context(), ada(), req)
			if err != nil {
				t.Fatal(err)
			}
			if limit > 0 && len(r.Cards) > limit {
				t.Fatalf("a page has %d cards, at most %d were asked for", len(r.Cards), limit)
			}
			for i := range r.Cards {
				ids = append(ids, r.Cards[i].ID)
				if n := r.Cards[i].Alike; n != ledger.MaxParked-1 {
					t.Fatalf("%d are like one of %d", n, ledger.MaxParked)
				}
			}
			if req.After = r.Next; r.Next == "" {
				break
			}
		}
		if len(ids) != manyPending || !slices.IsSorted(ids) || len(slices.Compact(ids)) != manyPending {
			t.Errorf("pages of %d: %d cards of %d, sorted %v", limit, len(ids), manyPending, slices.IsSorted(ids))
		}
	}
	last, n := int64(0), 0
	for more := true; more; {
		r, err := s.webHistory(t.Context(), ada(), &wire.AuditReq{Op: "export", After: last})
		if err != nil {
			t.Fatal(err)
		}
		last, more = r.Last, r.More
		for _, l := range r.Lines {
			if strings.Contains(string(l), `"type":"deny"`) {
				n++
			}
		}
	}
	if n != past {
		t.Errorf("the record shows %d of %d past calls", n, past)
	}
}

// What is kept of a list is what the ledger has: a call that was decided is gone from it, and is no longer counted as alike; a card
// that is kept is the one that would be read; and what is kept has a bound.
func TestAListIsKeptWhileItHolds(t *testing.T) {
	s := newSentinel(t)
	s.crowd(t, 5, 0) // of five cells
	list := func() *wire.PendingResp {
		t.Helper()
		r, err := s.pending(t.Context(), ada(), &wire.ListFrom{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	read := list()
	kept := list()
	if diff := cmp.Diff(read, kept); diff != "" || len(s.waitlist.briefs) != 5 {
		t.Errorf("%d are kept:\n%s", len(s.waitlist.briefs), diff)
	}
	if _, err := s.ledger.Deny(t.Context(), read.Cards[4].ID, "person:1000", ""); err != nil {
		t.Fatal(err)
	}
	if r := list(); len(r.Cards) != 4 || r.Total != 4 || r.Newest != read.Cards[3].ID || len(s.waitlist.briefs) != 4 {
		t.Errorf("%d cards, %d in all up to %s, %d are kept", len(r.Cards), r.Total, r.Newest, len(s.waitlist.briefs))
	}
	s.crowd(t, 5, 0) // like those
	r := list()
	if n := r.Cards[0].Alike; len(r.Cards) != 9 || n != 1 {
		t.Errorf("%d cards, %d like the first", len(r.Cards), n)
	}
	s.waitlist.size = maxBriefs
	clear(s.waitlist.briefs)
	if again := list(); cmp.Diff(r, again) != "" || s.waitlist.size > maxBriefs || len(s.waitlist.briefs) != 9 {
		t.Errorf("where no room is left: %d cards, %d bytes are kept of %d", len(again.Cards), s.waitlist.size, len(s.waitlist.briefs))
	}
}

// BenchmarkFirstPage is what a browser asks for its first view, what waits and the newest of the record, with the crowd in the ledger
// and with nothing in it, in rounds that alternate.
func BenchmarkFirstPage(b *testing.B) {
	empty, full := newSentinel(b), newSentinel(b)
	full.crowd(b, manyPending, manyPast)
	first := func(s *Sentinel) float64 {
		began := time.Now()
		for range 20 {
			if _, err := s.pending(b.Context(), ada(), &wire.ListFrom{Limit: 50}); err != nil {
				b.Fatal(err)
			}
			if _, err := s.webHistory(b.Context(), ada(), &wire.AuditReq{Op: "list", Limit: 100}); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(began).Seconds() / 20
	}
	var with, without []float64
	for b.Loop() {
		with, without = append(with, first(full)), append(without, first(empty))
	}
	slices.Sort(with)
	slices.Sort(without)
	b.ReportMetric(with[len(with)/2]*1e6, "µs")
	b.ReportMetric(with[len(with)/2]/without[len(without)/2], "ratio")
}
