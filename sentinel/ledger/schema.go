// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"fmt"
)

// applicationID marks the file as a ledger (sqlite.org/fileformat2.html, application id): "DWLG".
const applicationID = 0x44574c47

// migrations lead from one version of the store to the next; each runs whole or not at all. A released one is never
// edited.
var migrations = []string{
	// 1: the record, the calls, and everything else that has a state.
	`
CREATE TABLE events (
	n       INTEGER PRIMARY KEY,
	line    BLOB NOT NULL,
	hashes  BLOB NOT NULL,
	mac     BLOB NOT NULL,
	type    TEXT NOT NULL,
	cell    TEXT NOT NULL,
	call    TEXT NOT NULL,
	subject TEXT NOT NULL
) STRICT;
CREATE INDEX events_call ON events (call, n) WHERE call <> '';
CREATE INDEX events_subject ON events (subject, n) WHERE subject <> '';

CREATE TABLE checkpoints (
	size INTEGER PRIMARY KEY,
	note BLOB NOT NULL
) STRICT;

CREATE TABLE frames (
	id   TEXT PRIMARY KEY,
	n    INTEGER NOT NULL,
	body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE calls (
	id     TEXT PRIMARY KEY,
	n      INTEGER NOT NULL,
	cell   TEXT NOT NULL,
	state  TEXT NOT NULL,
	dedup  TEXT NOT NULL,
	pass   TEXT NOT NULL,
	fresh  INTEGER NOT NULL,
	body   BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_live ON calls (state, cell) WHERE state IN ('parked', 'approved', 'executing');
CREATE INDEX calls_fresh ON calls (cell, id) WHERE fresh = 1;
CREATE INDEX calls_dedup ON calls (dedup, id) WHERE dedup <> '';
CREATE INDEX calls_pass ON calls (pass) WHERE pass <> '';

CREATE TABLE state (
	kind TEXT NOT NULL,
	key  TEXT NOT NULL,
	n    INTEGER NOT NULL,
	body BLOB NOT NULL,
	PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
`,
}

// migrate brings the store to this program's version, one transaction a step. A store of a newer program is refused: an
// older one cannot know what it must not touch.
func migrate(ctx context.Context, c *sql.Conn) (fresh bool, err error) {
	var have, app int
	if err := c.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return false, fmt.Errorf("read the ledger's version: %w", err)
	}
	if err := c.QueryRowContext(ctx, "PRAGMA application_id").Scan(&app); err != nil {
		return false, fmt.Errorf("read the ledger's kind: %w", err)
	}
	if have > 0 && app != applicationID {
		return false, fmt.Errorf("%w: the file is not a ledger (application id %#x)", ErrCorrupt, app)
	}
	if have > len(migrations) {
		return false, fmt.Errorf("%w: it has version %d, this program knows %d; install the newer program again, or "+
			"restore the copy made before it", ErrNewer, have, len(migrations))
	}
	for v := have; v < len(migrations); v++ {
		tx, err := c.BeginTx(ctx, nil)
		if err != nil {
			return false, fmt.Errorf("begin migration %d: %w", v+1, err)
		}
		script := migrations[v] + fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, v+1)
		if _, err := tx.ExecContext(ctx, script); err != nil {
			_ = tx.Rollback() // the first error tells
			return false, fmt.Errorf("migration %d: %w", v+1, err)
		}
		if err := tx.Commit(); err != nil {
			return false, fmt.Errorf("commit migration %d: %w", v+1, err)
		}
	}
	return have == 0, nil
}
