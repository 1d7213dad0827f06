// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"strings"
	"testing"
)

// TestNoQueryReadsWholeTables holds the queries of every call to the indexes: a partial index is passed over in silence
// when its condition is not in the query, and the ledger would get slower with each call.
func TestNoQueryReadsWholeTables(t *testing.T) {
	l, _ := openAt(t, newDir(t))
	queries := map[string][]any{}
	for _, f := range []Filter{{States: []State{Parked}}, {States: []State{Approved, Executing}, Cell: "a"},
		{Inbox: true, Cell: "a"},
		{Cell: "a", Inbox: true, Limit: 5, Before: "x"}} {
		q, args, err := f.sql()
		if err != nil {
			t.Fatal(err)
		}
		queries[q] = args
	}
	for _, p := range l.stmts.hot() {
		queries[p.q] = make([]any, strings.Count(p.q, "?"))
	}
	for _, q := range []Query{{Call: "c"}, {About: "a"},
		{About: "a", Types: []string{EvDeny, EvRefused}, Newest: true, Limit: 3}} {
		text, args := q.sql()
		queries[text] = args
	}
	for q, args := range queries {
		rows, err := l.reads().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+q, args...)
		if err != nil {
			t.Fatal(q, err)
		}
		for rows.Next() {
			var id, parent, x int
			var what string
			if err := rows.Scan(&id, &parent, &x, &what); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(what, "SCAN") || strings.Contains(what, "INTEGER PRIMARY KEY (rowid>") {
				t.Errorf("%s\n\t%s", q, what)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		rows.Close()
	}
}
