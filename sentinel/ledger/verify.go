// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// Finding is one thing that is wrong with a ledger.
type Finding struct {
	Entry int64  `json:"entry"`        // the first entry that it can be about
	Last  int64  `json:"last"`         // the last one; equal to Entry when that is certain
	Row   string `json:"row,omitzero"` // the state row, table/key, if it is about one
	What  string `json:"what"`         // in words
}

// String says it for a person.
func (f Finding) String() string {
	where := fmt.Sprintf("entry %d", f.Entry)
	if f.Last != f.Entry {
		where = fmt.Sprintf("entry %d (or one up to %d)", f.Entry, f.Last)
	}
	if f.Row != "" {
		where += ", row " + f.Row
	}
	return where + ": " + f.What
}

// Report is the outcome of a verification. Without findings the record is whole, as far as what it was held against
// goes: without a checkpoint from elsewhere, an older copy cannot be told from the newest.
type Report struct {
	Size     int64     `json:"size"` // entries read
	Root     string    `json:"root"` // their tree's hash, base64
	Rows     int64     `json:"rows"` // state rows compared
	Signed   int64     `json:"signed"`
	Kept     []int64   `json:"kept"` // sizes of the checkpoints from elsewhere
	Coded    bool      `json:"coded"`
	Findings []Finding `json:"findings,omitzero"`
}

// maxFindings bounds a report.
const maxFindings = 100

// First returns the finding about the first wrong entry; false if there is none. A range that a checkpoint gives is
// narrowed to a certain entry within it; wrong state rows come after wrong entries.
func (r *Report) First() (Finding, bool) {
	if len(r.Findings) == 0 {
		return Finding{}, false
	}
	first := slices.MinFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(len(a.Row), len(b.Row)), cmp.Compare(a.Entry, b.Entry), cmp.Compare(a.Last, b.Last))
	})
	if first.Row != "" {
		first = slices.MinFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Entry, b.Entry) })
	}
	within := first
	for _, f := range r.Findings {
		if f.Row == "" && f.Entry >= first.Entry && f.Last <= first.Last && f.Last-f.Entry < within.Last-within.Entry {
			within = f
		}
	}
	return within, true
}

// Verify reads the whole record, as it is durable now, and holds it against itself, its signatures, and the checkpoints
// in file, which may be nil. Writers are not held up. The error is only about reading; what is wrong is in the report.
func (l *Ledger) Verify(ctx context.Context, file []byte) (*Report, error) {
	tx, err := l.reads().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, l.say(fmt.Errorf("verify the ledger: %w", err))
	}
	defer func() { _ = tx.Rollback() }() // it only read
	v := verifier{db: tx, key: publicKey(l.key), mac: l.mac}
	return v.run(ctx, file)
}

// VerifyFile verifies a ledger that is not open, or a copy of one, with the public key of its checkpoints; where that
// is nil no signature is checked, and file must be nil too. With the private key, which may be nil, it also checks
// each entry's code. It changes nothing: where a -wal file lies beside it, both are copied to a private folder first.
func VerifyFile(ctx context.Context, path string, pub ed25519.PublicKey, priv ed25519.PrivateKey,
	file []byte) (*Report, error) {
	if pub == nil && (file != nil || priv != nil) {
		return nil, fmt.Errorf("verify %s: a checkpoint can only be held to the public key of its "+
			"ledger; give that too", path)
	}
	if st, err := os.Stat(path + "-wal"); err == nil && st.Size() > 0 {
		dir, err := os.MkdirTemp("", "doorward-verify-")
		if err != nil {
			return nil, fmt.Errorf("verify %s: %w", path, err)
		}
		defer os.RemoveAll(dir)
		to := filepath.Join(dir, dbName)
		if err := errors.Join(copyFile(path, to), copyFile(path+"-wal", to+"-wal")); err != nil {
			return nil, fmt.Errorf("verify %s: %w", path, err)
		}
		path = to
	} else if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("verify a ledger: %w", err)
	}
	q := url.Values{"mode": {"ro"}}
	if _, err := os.Stat(path + "-wal"); err != nil {
		q.Set("immutable", "1")
	} else {
		q.Set("mode", "rw")
	}
	q.Add("_pragma", "trusted_schema(0)")
	q.Add("_pragma", "query_only(1)")
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", path, err)
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", path, err)
	}
	defer func() { _ = tx.Rollback() }() // it only read
	var app, version int
	err = errors.Join(tx.QueryRowContext(ctx, "PRAGMA application_id").Scan(&app),
		tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version))
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w: %w", path, ErrCorrupt, err)
	}
	if app != applicationID {
		return nil, fmt.Errorf("verify %s: %w: it is not a ledger", path, ErrCorrupt)
	}
	if version > len(migrations) {
		return nil, fmt.Errorf("verify %s: %w: version %d", path, ErrNewer, version)
	}
	v := verifier{db: tx, key: pub}
	if priv != nil {
		if v.mac, err = macKey(priv); err != nil {
			return nil, err
		}
	}
	return v.run(ctx, file)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

type verifier struct {
	db   *sql.Tx
	key  ed25519.PublicKey
	mac  []byte // nil: entries' codes are not checked
	rep  Report
	tree frontier
	rows map[rowKey]rowSum
	good int64 // the largest size at which a signed root was right
}

type rowKey [16]byte // of table/key, SHA-256 cut

type rowSum struct {
	n    int64
	sum  [16]byte // cut
	gone bool
}

func keyOf(row string) rowKey {
	sum := sha256.Sum256([]byte(row))
	return rowKey(sum[:16])
}

func (v *verifier) find(f Finding) {
	if len(v.rep.Findings) < maxFindings {
		v.rep.Findings = append(v.rep.Findings, f)
	}
}

func (v *verifier) at(n int64, what string) { v.find(Finding{Entry: n, Last: n, What: what}) }

func (v *verifier) run(ctx context.Context, file []byte) (*Report, error) {
	v.rep.Coded = v.mac != nil
	v.rows = map[rowKey]rowSum{}
	var outside []kept
	if file != nil {
		var err error
		if outside, err = parseCheckpoints(file, Origin, v.key); err != nil {
			return nil, err
		}
		slices.SortStableFunc(outside, func(a, b kept) int { return cmp.Compare(a.Size, b.Size) })
		for _, k := range outside {
			v.rep.Kept = append(v.rep.Kept, k.Size)
		}
	}
	inside, err := v.signed(ctx)
	if err != nil {
		return nil, err
	}
	if err := v.entries(ctx, inside, outside); err != nil {
		return nil, err
	}
	v.rep.Size, v.rep.Root = v.tree.size, v.tree.root().String()
	for _, k := range outside {
		if k.Size > v.tree.size {
			v.find(Finding{Entry: v.tree.size, Last: v.tree.size, What: fmt.Sprintf("it and what follows are missing: a "+
				"checkpoint from elsewhere covers %d entries; the end was cut, or an older copy put back", k.Size)})
			break
		}
	}
	for _, k := range inside {
		if k.Size > v.tree.size {
			v.at(v.tree.size, fmt.Sprintf("it and what follows are missing: a checkpoint in the ledger covers %d entries",
				k.Size))
			break
		}
	}
	if err := v.states(ctx); err != nil {
		return nil, err
	}
	return &v.rep, nil
}

// signed reads the ledger's own checkpoints.
func (v *verifier) signed(ctx context.Context) ([]kept, error) {
	rows, err := v.db.QueryContext(ctx, "SELECT size, note FROM checkpoints ORDER BY size")
	if err != nil {
		return nil, fmt.Errorf("read the checkpoints: %w", err)
	}
	defer rows.Close()
	var out []kept
	for rows.Next() {
		var size int64
		var msg []byte
		if err := rows.Scan(&size, &msg); err != nil {
			return nil, fmt.Errorf("read the checkpoints: %w", err)
		}
		if v.key == nil {
			continue
		}
		cp, err := VerifyCheckpoint(msg, Origin, v.key)
		if err != nil || cp.Size != size {
			v.find(Finding{Entry: 0, Last: max(0, size-1), What: fmt.Sprintf("the ledger's own checkpoint of %d entries is "+
				"not signed by this key", size)})
			continue
		}
		out = append(out, kept{Checkpoint: cp, level: -1})
	}
	v.rep.Signed = int64(len(out))
	return out, rows.Err()
}

// entries reads the record from its beginning.
func (v *verifier) entries(ctx context.Context, inside, outside []kept) error {
	rows, err := v.db.QueryContext(ctx, "SELECT n, line, hashes, mac, type, cell, call, subject FROM events ORDER BY n")
	if err != nil {
		return fmt.Errorf("read the record: %w", err)
	}
	defer rows.Close()
	marks := slices.Concat(outside, inside)
	slices.SortStableFunc(marks, func(a, b kept) int { return cmp.Compare(a.Size, b.Size) })
	var before []byte
	coded, treeOK, differs := v.mac != nil, true, false
	codes := newCoder(v.mac)
	located := make([]bool, len(outside))
	for rows.Next() {
		var n int64
		var line, hashes, mac []byte
		var typ, cell, call, subject string
		if err := rows.Scan(&n, &line, &hashes, &mac, &typ, &cell, &call, &subject); err != nil {
			return fmt.Errorf("read the record: %w", err)
		}
		if n != v.tree.size {
			v.at(v.tree.size, fmt.Sprintf("it is missing: entry %d follows entry %d", n, v.tree.size-1))
			return nil // no place in the tree is known from here on
		}
		e, err := parse(n, line)
		switch {
		case err != nil:
			v.at(n, "it cannot be read")
		case e.Type != typ || e.Cell != cell || e.Call != call || e.Subject != subject:
			v.at(n, "its columns are not those of its line")
		}
		leaf := tlog.RecordHash(line)
		done := v.tree.add(leaf)
		if treeOK && !sameHashes(done, hashes) {
			treeOK = false
			v.at(n, "its hash is not the one that was written with it")
		}
		if coded {
			if before = codes.code(before, n, leaf); !hmac.Equal(before, mac) {
				coded = false
				v.at(n, "it was rewritten: its code does not fit")
			}
		}
		for _, w := range e.Writes {
			v.write(n, w)
		}
		for i, k := range outside {
			if located[i] || k.level < 0 || k.level >= len(done) || (n+1)>>k.level > int64(len(k.blocks)) {
				continue
			}
			if k.blocks[(n+1)>>k.level-1] != done[k.level] {
				located[i] = true
				v.find(Finding{Entry: n + 1 - 1<<k.level, Last: n, What: fmt.Sprintf("it is not the entry that the checkpoint "+
					"of %d entries from elsewhere was made over", k.Size)})
			}
		}
		for len(marks) > 0 && marks[0].Size <= v.tree.size {
			k := marks[0]
			marks = marks[1:]
			switch {
			case k.Size < v.tree.size:
			case k.Root == v.tree.root():
				v.good = k.Size
			case !differs:
				differs = true
				v.find(Finding{Entry: v.good, Last: k.Size - 1, What: fmt.Sprintf("the first %d entries are not those that a "+
					"signed checkpoint was made over", k.Size)})
			}
		}
	}
	return rows.Err()
}

func sameHashes(want []tlog.Hash, have []byte) bool {
	if len(have) != len(want)*tlog.HashSize {
		return false
	}
	for i := range want {
		if !bytes.Equal(want[i][:], have[i*tlog.HashSize:][:tlog.HashSize]) {
			return false
		}
	}
	return true
}

func (v *verifier) write(n int64, w Write) {
	s := rowSum{n: n, gone: w.Sum == ""}
	if !s.gone {
		raw, err := hex.DecodeString(w.Sum)
		if err != nil || len(raw) != sha256.Size {
			v.at(n, "it names no digest for row "+clip(w.Row))
			return
		}
		copy(s.sum[:], raw)
	}
	v.rows[keyOf(w.Row)] = s
}

// row compares a state row with the event that wrote it last.
func (v *verifier) row(name string, n int64, body []byte, columns bool) {
	v.rep.Rows++
	k := keyOf(name)
	s, ok := v.rows[k]
	sum := sha256.Sum256(body)
	switch {
	case !ok:
		v.find(Finding{Entry: v.tree.size, Last: v.tree.size, Row: name, What: "no entry ever wrote this row"})
	case s.gone:
		v.find(Finding{Entry: s.n, Last: s.n, Row: name, What: "the entry deleted this row, and it is there"})
	case !bytes.Equal(sum[:16], s.sum[:]):
		v.find(Finding{Entry: s.n, Last: s.n, Row: name, What: "the row is not what the entry wrote"})
	case n != s.n || !columns:
		v.find(Finding{Entry: s.n, Last: s.n, Row: name, What: "the row's columns are not those of its body"})
	}
	delete(v.rows, k)
}

// states reads every state row.
func (v *verifier) states(ctx context.Context) error {
	err := v.each(ctx, "SELECT 'frames/' || id, n, body, id, '', '', '', 0 FROM frames", func(r stateRow) bool {
		var f Frame
		return json.Unmarshal(r.body, &f) == nil && f.ID == r.a
	})
	if err != nil {
		return err
	}
	err = v.each(ctx, "SELECT 'calls/' || id, n, body, cell, state, dedup, pass, fresh FROM calls", func(r stateRow) bool {
		var b callBody
		return json.Unmarshal(r.body, &b) == nil && "calls/"+b.ID == r.name && b.Cell == r.a && string(b.State) == r.b &&
			b.Dedup == r.c && b.Pass == r.d && b.fresh() == r.fresh
	})
	if err != nil {
		return err
	}
	err = v.each(ctx, "SELECT kind || '/' || key, n, body, '', '', '', '', 0 FROM state", func(stateRow) bool {
		return true // it has no columns but its key
	})
	if err != nil {
		return err
	}
	// What is left was written and never deleted by an event, and has no row. The map keeps no names: the entry has them.
	var lost []int64
	for _, s := range v.rows {
		if !s.gone {
			lost = append(lost, s.n)
		}
	}
	slices.Sort(lost)
	for _, n := range slices.Compact(lost) {
		v.find(Finding{Entry: n, Last: n, Row: v.lostRow(ctx, n), What: "a row that the entry wrote is missing"})
	}
	return nil
}

// lostRow names the rows of entry n that have no row.
func (v *verifier) lostRow(ctx context.Context, n int64) string {
	var line []byte
	if v.db.QueryRowContext(ctx, "SELECT line FROM events WHERE n = ?", n).Scan(&line) != nil {
		return "?"
	}
	e, err := parse(n, line)
	if err != nil {
		return "?"
	}
	var names []string
	for _, w := range e.Writes {
		if s, ok := v.rows[keyOf(w.Row)]; ok && s.n == n && !s.gone {
			names = append(names, w.Row)
		}
	}
	return strings.Join(names, " ")
}

type stateRow struct {
	name       string
	body       []byte
	a, b, c, d string
	fresh      int
}

func (v *verifier) each(ctx context.Context, q string, columns func(stateRow) bool) error {
	rows, err := v.db.QueryContext(ctx, q)
	if err != nil {
		return fmt.Errorf("read the states: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		var r stateRow
		if err := rows.Scan(&r.name, &n, &r.body, &r.a, &r.b, &r.c, &r.d, &r.fresh); err != nil {
			return fmt.Errorf("read the states: %w", err)
		}
		v.row(r.name, n, r.body, columns(r))
	}
	return rows.Err()
}
