// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

func isNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// Query chooses entries of the record; empty fields match all.
type Query struct {
	From   int64    // first entry
	To     int64    // one past the last; 0 means the end
	Types  []string // any of these
	Call   string
	About  string // id of a call or grant, or a host: the event's call or subject
	Newest bool   // newest first
	Limit  int    // 0 means no limit
}

// Entries returns entries of the record. Limit it: they are all held in memory.
func (l *Ledger) Entries(ctx context.Context, q Query) ([]Entry, error) {
	var out []Entry
	err := each(ctx, l.reads(), q, func(e Entry) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, l.say(err)
	}
	return out, nil
}

// pageSize is how many entries are read at a time: a slow reader must not keep the -wal file from being copied back.
const pageSize = 512

// each calls fn for each entry that q chooses.
func each(ctx context.Context, db *sql.DB, q Query, fn func(Entry) error) error {
	for given := 0; ; {
		es, err := page(ctx, db, q)
		if err != nil {
			return err
		}
		for _, e := range es {
			if err := fn(e); err != nil {
				return err
			}
			if given++; q.Limit > 0 && given >= q.Limit {
				return nil
			}
		}
		if len(es) < pageSize {
			return nil
		}
		last := es[len(es)-1].N
		if q.Newest && last <= q.From {
			return nil
		}
		if q.Newest {
			q.To = last
		} else {
			q.From = last + 1
		}
	}
}

// page reads the first pageSize entries that q chooses.
func page(ctx context.Context, db *sql.DB, q Query) ([]Entry, error) {
	text, args := q.sql()
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	defer rows.Close()
	var out []Entry
	for rows.Next() {
		var n int64
		var line []byte
		if err := rows.Scan(&n, &line); err != nil {
			return nil, fmt.Errorf("read the record: %w", err)
		}
		e, err := parse(n, line)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	return out, nil
}

// sql returns the query of one page of q.
func (q Query) sql() (string, []any) {
	text := "SELECT n, line FROM events WHERE n >= ?"
	args := []any{q.From}
	add := func(cond string, vs ...any) {
		text += " AND " + cond
		args = append(args, vs...)
	}
	if q.To > 0 {
		add("n < ?", q.To)
	}
	if q.Call != "" {
		add("call = ? AND call <> ''", q.Call)
	}
	if q.About != "" {
		add("((call = ? AND call <> '') OR (subject = ? AND subject <> ''))", q.About, q.About)
	}
	if len(q.Types) > 0 {
		cond, vs := "type IN (?", []any{q.Types[0]}
		for _, t := range q.Types[1:] {
			cond, vs = cond+", ?", append(vs, t)
		}
		add(cond+")", vs...)
	}
	text += " ORDER BY n"
	if q.Newest {
		text += " DESC"
	}
	n := pageSize
	if q.Limit > 0 {
		n = min(n, q.Limit)
	}
	text += fmt.Sprintf(" LIMIT %d", n)
	return text, args
}

// Follow calls fn for each entry that q chooses, then for each new one, until ctx ends or fn fails. q.To, q.Newest and
// q.Limit are ignored. The end of ctx is no error.
func (l *Ledger) Follow(ctx context.Context, q Query, fn func(Entry) error) error {
	q.To, q.Newest, q.Limit = 0, false, 0
	for {
		l.mu.Lock()
		size, grown := l.size, l.grown
		l.mu.Unlock()
		if size > q.From {
			q.To = size
			if err := each(ctx, l.reads(), q, fn); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return l.say(err)
			}
			q.From, q.To = size, 0
		}
		select {
		case <-grown:
		case <-l.stopped:
			return ErrClosed
		case <-ctx.Done():
			return nil
		}
	}
}

// Why returns the last refusals, newest first: of the call or host that about names, or of all if it is "".
func (l *Ledger) Why(ctx context.Context, about string, limit int) ([]Entry, error) {
	return l.Entries(ctx, Query{Types: []string{EvDeny, EvRefused, EvExpire, EvRevoke, EvAlarm}, About: about,
		Newest: true, Limit: limit})
}
