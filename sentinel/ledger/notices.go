// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
)

// kindNotice are rows of what people are still to be told, by an id of the owner's, in the owner's form.
const kindNotice = "notice"

// EvNotice: what is to be told has changed, or something was told.
const EvNotice = "notice"

// MaxNotice is the most that a row of a notice may have, in bytes.
const MaxNotice = 64 << 10

// PutNotices writes rows, and takes those away that are nil, all or none. Details say what it was for.
func (l *Ledger) PutNotices(ctx context.Context, rows map[string][]byte, details any) error {
	for id, b := range rows {
		if len(b) > MaxNotice || len(id) > maxName/2 {
			return fmt.Errorf("notice %s: %w: at most %d bytes fit", clip(id), ErrTooLarge, MaxNotice)
		}
	}
	return l.do(ctx, func(t *txn) error {
		for id, b := range rows {
			var err error
			if b == nil {
				err = t.del(kindNotice, id)
			} else {
				err = t.put(kindNotice, id, json.RawMessage(b))
			}
			if err != nil {
				return err
			}
		}
		return t.emit(Event{Type: EvNotice, Actor: sentinel, Details: details})
	})
}

// Notices are the rows as they were written last.
func (l *Ledger) Notices(ctx context.Context) (map[string][]byte, error) {
	rows, err := l.reads().QueryContext(ctx, "SELECT key, body FROM state WHERE kind = ?", kindNotice)
	if err != nil {
		return nil, l.say(fmt.Errorf("read the notices: %w", err))
	}
	defer rows.Close()
	out := map[string][]byte{}
	for rows.Next() {
		var id string
		var b []byte
		if err := rows.Scan(&id, &b); err != nil {
			return nil, l.say(fmt.Errorf("read the notices: %w", err))
		}
		out[id] = b
	}
	return out, l.say(rows.Err())
}

// Size is the number of entries.
func (l *Ledger) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}
