// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"database/sql"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// querier is a connection or a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row
}

func publicKey(k ed25519.PrivateKey) ed25519.PublicKey {
	pub, _ := k.Public().(ed25519.PublicKey)
	return pub
}

// hashReader reads the tree's stored hashes from the events' rows.
func hashReader(ctx context.Context, db querier) tlog.HashReaderFunc {
	return func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, ix := range indexes {
			n, level := place(ix)
			var flat []byte
			if err := db.QueryRowContext(ctx, "SELECT hashes FROM events WHERE n = ?", n).Scan(&flat); err != nil {
				return nil, fmt.Errorf("read the hash of entry %d: %w", n, err)
			}
			if len(flat) < (level+1)*tlog.HashSize {
				return nil, fmt.Errorf("%w: entry %d lacks a hash of level %d", ErrCorrupt, n, level)
			}
			copy(out[i][:], flat[level*tlog.HashSize:])
		}
		return out, nil
	}
}

// rootAt returns the tree's hash when it had size entries.
func rootAt(ctx context.Context, db querier, size int64) (tlog.Hash, error) {
	if size == 0 {
		return tlog.Hash{}, nil
	}
	h, err := tlog.TreeHash(size, hashReader(ctx, db))
	if err != nil {
		return tlog.Hash{}, fmt.Errorf("compute the tree of %d entries: %w", size, err)
	}
	return h, nil
}

// loadHead reads the right edge of the tree and the last entry's code.
func loadHead(ctx context.Context, db querier) (frontier, []byte, error) {
	var f frontier
	var size, count int64
	const q = "SELECT coalesce(max(n) + 1, 0), count(*) FROM events"
	if err := db.QueryRowContext(ctx, q).Scan(&size, &count); err != nil {
		return f, nil, fmt.Errorf("read the head of the record: %w", err)
	}
	if size != count {
		return f, nil, fmt.Errorf("%w: the last entry is %d but there are %d; run `doorward audit verify` on a copy",
			ErrCorrupt, size-1, count)
	}
	f.size = size
	read := hashReader(ctx, db)
	for k := range f.peaks {
		if size>>k&1 == 0 {
			continue
		}
		hs, err := read([]int64{tlog.StoredHashIndex(k, size>>k-1)})
		if err != nil {
			return f, nil, err
		}
		f.peaks[k] = hs[0]
	}
	var mac []byte
	if size > 0 {
		if err := db.QueryRowContext(ctx, "SELECT mac FROM events WHERE n = ?", size-1).Scan(&mac); err != nil {
			return f, nil, fmt.Errorf("read the last entry: %w", err)
		}
	}
	return f, mac, nil
}

// tailEntries is how many entries are checked at each start; `audit verify` checks all.
const tailEntries = 4096

// checkTail checks the newest entries and the newest checkpoint: a damaged or rewritten end would otherwise be signed
// with the next one.
func (l *Ledger) checkTail(ctx context.Context) error {
	from := max(0, l.head.size-tailEntries)
	var before []byte
	if from > 0 {
		if err := l.conn.QueryRowContext(ctx, "SELECT mac FROM events WHERE n = ?", from-1).Scan(&before); err != nil {
			return fmt.Errorf("read entry %d: %w", from-1, err)
		}
	}
	rows, err := l.conn.QueryContext(ctx, "SELECT n, line, hashes, mac FROM events WHERE n >= ? ORDER BY n", from)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		var line, hashes, mac []byte
		if err := rows.Scan(&n, &line, &hashes, &mac); err != nil {
			return err
		}
		leaf := tlog.RecordHash(line)
		before = l.codes.code(before, n, leaf)
		if len(hashes) < tlog.HashSize || tlog.Hash(hashes[:tlog.HashSize]) != leaf || !hmac.Equal(mac, before) {
			return fmt.Errorf("%w: entry %d was changed, or the checkpoint key was; run `doorward audit verify` on a copy",
				ErrCorrupt, n)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var size int64
	var msg []byte
	err = l.conn.QueryRowContext(ctx, "SELECT size, note FROM checkpoints ORDER BY size DESC LIMIT 1").Scan(&size, &msg)
	if isNoRows(err) {
		return nil
	}
	if err != nil {
		return err
	}
	cp, err := VerifyCheckpoint(msg, Origin, publicKey(l.key))
	if err != nil {
		return fmt.Errorf("%w: its newest checkpoint: %w", ErrCorrupt, err)
	}
	if cp.Size > l.head.size {
		return fmt.Errorf("%w: its newest checkpoint covers %d entries, there are %d", ErrCorrupt, cp.Size, l.head.size)
	}
	root, err := rootAt(ctx, l.conn, cp.Size)
	if err != nil {
		return err
	}
	if root != cp.Root {
		return fmt.Errorf("%w: its first %d entries are not those of its newest checkpoint", ErrCorrupt, cp.Size)
	}
	l.signed = cp.Size
	return nil
}

// idAt is the smallest id of that time.
func idAt(at time.Time) string {
	ms := max(0, at.UnixMilli())
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	// 130 bits hold 128, two zero bits first; the time is the first 48 of the 128.
	var out [26]byte
	for i := range out {
		out[i] = '0'
	}
	acc := uint64(ms)
	for i := range 10 { // 50 bits: two zero ones and the time
		out[i] = alphabet[acc>>(45-5*i)&31]
	}
	return string(out[:])
}
