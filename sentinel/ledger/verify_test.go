// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// fill makes a ledger with some of everything and n entries more. It returns the ids of a call and a grant.
func fill(t *testing.T, l *Ledger, n int) (call, grant string) {
	t.Helper()
	ctx := t.Context()
	g, err := l.AddGrant(ctx, Grant{Cell: "a", Connector: "github", Method: "issue-create", Kind: KindStanding},
		"person:1")
	if err != nil {
		t.Fatal(err)
	}
	c := write("a", fmt.Sprint("filled at ", time.Now().UnixNano()))
	c.Under = g.ID
	if _, _, err := l.Begin(ctx, c, "cell:a"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(ctx, c.ID, Outcome{State: Done}, "worker:github"); err != nil {
		t.Fatal(err)
	}
	if err := l.AddLabels(ctx, "a", []string{"private"}, Cause{Method: "issues"}, "sentinel"); err != nil {
		t.Fatal(err)
	}
	more(t, l, n)
	return c.ID, g.ID
}

func more(t *testing.T, l *Ledger, n int) {
	t.Helper()
	var last *Ticket
	for i := range n {
		last = l.Append(t.Context(), Event{Type: "test", Actor: "sentinel", Details: map[string]int{"i": i}})
	}
	if err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// raw opens a ledger's file as an attacker does.
func raw(t *testing.T, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func must(t *testing.T, db *sql.DB, q string, args ...any) {
	t.Helper()
	if _, err := db.Exec(q, args...); err != nil {
		t.Fatal(q, err)
	}
}

// recompute makes everything in the file fit its lines again: hashes, codes and the ledger's own checkpoints, with key.
func recompute(t *testing.T, db *sql.DB, key ed25519.PrivateKey) {
	t.Helper()
	mk, err := macKey(key)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := newSigner(Origin, key)
	if err != nil {
		t.Fatal(err)
	}
	var f frontier
	var mac []byte
	codes := newCoder(mk)
	rows, err := db.Query("SELECT line FROM events ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]byte
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, b)
	}
	rows.Close()
	sizes := map[int64]bool{}
	rows, err = db.Query("SELECT size FROM checkpoints")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		sizes[n] = true
	}
	rows.Close()
	must(t, db, "BEGIN")
	for n, line := range lines {
		leaf := tlog.RecordHash(line)
		var flat []byte
		for _, h := range f.add(leaf) {
			flat = append(flat, h[:]...)
		}
		mac = codes.code(mac, int64(n), leaf)
		must(t, db, "UPDATE events SET hashes = ?, mac = ? WHERE n = ?", flat, mac, n)
		if sizes[f.size] {
			msg, err := Checkpoint{Origin, f.size, f.root()}.sign(signer)
			if err != nil {
				t.Fatal(err)
			}
			must(t, db, "UPDATE checkpoints SET note = ? WHERE size = ?", msg, f.size)
		}
	}
	must(t, db, "COMMIT")
}

func rewrite(t *testing.T, db *sql.DB, n int64) {
	t.Helper()
	must(t, db, "UPDATE events SET line = "+
		"CAST(replace(CAST(line AS TEXT), '\"details\":', '\"details\": ') AS BLOB) WHERE n = ?", n)
	var line []byte
	err := db.QueryRow("SELECT line FROM events WHERE n = ?", n).Scan(&line)
	if err != nil || !bytes.Contains(line, []byte(`: {`)) {
		t.Fatal("nothing was rewritten", err)
	}
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := newDir(t)
	es, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// check verifies the file in dir. Key: whether the verifier has the private key.
func check(t *testing.T, dir string, key bool, file []byte) *Report {
	t.Helper()
	var priv ed25519.PrivateKey
	if key {
		priv = testKey
	}
	r, err := VerifyFile(t.Context(), filepath.Join(dir, dbName), publicKey(testKey), priv, file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func clean(t *testing.T, what string, r *Report) {
	t.Helper()
	if f, bad := r.First(); bad {
		t.Errorf("%s: found %s", what, f)
	}
}

func found(t *testing.T, what string, r *Report, entry int64) {
	t.Helper()
	f, bad := r.First()
	if !bad || f.Entry != entry || f.Last != entry {
		t.Errorf("%s: want exactly entry %d, found %v of %v", what, entry, f, r.Findings)
	}
}

func checkpointFile(t *testing.T, l *Ledger) []byte {
	t.Helper()
	b, err := l.CheckpointFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Each attack has its control: without the checkpoint that was taken away, one who has the key succeeds.
func TestTamperingWithTheKeyIsFoundByACheckpoint(t *testing.T) {
	dir := newDir(t)
	l, _ := openAt(t, dir)
	fill(t, l, 40)
	closeNow(t, l)
	yesterday := copyDir(t, dir)
	l, _ = openAt(t, dir)
	old, _ := l.Head()
	old-- // the entry that this start wrote is today's
	more(t, l, 40)
	file := checkpointFile(t, l)
	size, _ := l.Head()
	closeNow(t, l)

	clean(t, "untouched", check(t, dir, true, file))
	clean(t, "untouched, without the key", check(t, dir, false, file))
	r, err := VerifyFile(t.Context(), filepath.Join(dir, dbName), nil, nil, nil)
	if err != nil || len(r.Findings) > 0 || r.Signed != 0 {
		t.Error("without any key:", r, err)
	}
	if _, err := VerifyFile(t.Context(), filepath.Join(dir, dbName), nil, nil, file); err == nil {
		t.Error("a checkpoint was held to no key")
	}

	t.Run("the last entries cut", func(t *testing.T) {
		d := copyDir(t, dir)
		db := raw(t, d)
		must(t, db, "DELETE FROM events WHERE n >= ?", size-7)
		must(t, db, "DELETE FROM checkpoints WHERE size > ?", size-7)
		db.Close()
		clean(t, "control", check(t, d, true, nil))
		found(t, "cut", check(t, d, true, file), size-7)
	})
	t.Run("an entry rewritten and everything recomputed", func(t *testing.T) {
		for _, n := range []int64{0, 1, 7, 33, size - 1} {
			d := copyDir(t, dir)
			db := raw(t, d)
			rewrite(t, db, n)
			recompute(t, db, testKey)
			db.Close()
			clean(t, "control", check(t, d, true, nil))
			found(t, "rewritten", check(t, d, true, file), n)
			found(t, "rewritten, without the key", check(t, d, false, file), n)
		}
	})
	t.Run("yesterday's file restored", func(t *testing.T) {
		clean(t, "control", check(t, yesterday, true, nil))
		found(t, "restored", check(t, yesterday, true, file), old)
	})
	t.Run("two copies run", func(t *testing.T) {
		other, _ := openAt(t, yesterday)
		more(t, other, 100)
		theirs := checkpointFile(t, other)
		if err := other.Against(t.Context(), noteOf(file)); !errors.Is(err, ErrOlder) {
			t.Error("the other copy's newest checkpoint fits:", err)
		}
		if err := other.Against(t.Context(), noteOf(theirs)); err != nil {
			t.Error("control:", err)
		}
		r, err := other.Verify(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		found(t, "two copies", r, old)
		if r, err = other.Verify(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		clean(t, "control", r)
		found(t, "two copies, the other way", check(t, dir, true, theirs), old)
	})
}

// noteOf is the note at the start of a checkpoint file.
func noteOf(file []byte) []byte {
	i := bytes.Index(file, []byte("locator "))
	return file[:i]
}

func TestTamperingWithoutTheKeyIsFoundInTheFileItself(t *testing.T) {
	dir := newDir(t)
	l, _ := openAt(t, dir)
	call, grant := fill(t, l, 60)
	size, _ := l.Head()
	closeNow(t, l)
	stranger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	clean(t, "control", check(t, dir, true, nil))

	d := copyDir(t, dir)
	db := raw(t, d)
	rewrite(t, db, 17)
	recompute(t, db, stranger)
	db.Close()
	r := check(t, d, true, nil)
	if len(r.Findings) == 0 {
		t.Error("a rewritten entry under another key's codes was not found")
	}

	for name, a := range map[string]struct {
		q     string
		entry int64  // -1: any
		row   string // the row that must be named
	}{
		"a line changed": {"UPDATE events SET line = CAST(replace(line, 'test', 'tesT') AS BLOB) " +
			"WHERE n = 20", 20, ""},
		"an entry deleted": {"DELETE FROM events WHERE n = 20", 20, ""},
		"a hash changed":   {"UPDATE events SET hashes = zeroblob(length(hashes)) WHERE n = 21", 21, ""},
		"a column changed": {"UPDATE events SET cell = 'b' WHERE n = 22", 22, ""},
		"a call's state": {"UPDATE calls SET body = " +
			"CAST(replace(CAST(body AS TEXT), 'done', 'parked') AS BLOB)", -1, "calls/" + call},
		"a call's state column": {"UPDATE calls SET state = 'parked'", -1, "calls/" + call},
		"a call into the inbox": {"UPDATE calls SET fresh = 1", -1, "calls/" + call},
		"a call deleted":        {"DELETE FROM calls", -1, "calls/" + call},
		"a call's arguments": {"UPDATE frames SET body = " +
			"CAST(replace(CAST(body AS TEXT), 'filled', 'fillet') AS BLOB)", -1, "frames/" + call},
		"a grant widened": {"UPDATE state SET body = " +
			"CAST(replace(CAST(body AS TEXT), 'issue-create', 'repo-delete') AS BLOB) " +
			"WHERE kind = 'grant'", -1, "grant/" + grant},
		"a grant made up": {"INSERT INTO state " +
			"SELECT kind, 'x' || key, n, body FROM state WHERE kind = 'grant'", -1, "grant/x" + grant},
		"a label cleared":            {"DELETE FROM state WHERE kind = 'label'", -1, "label/a/private"},
		"an own checkpoint unsigned": {"UPDATE checkpoints SET note = x'00'", -1, ""},
	} {
		d := copyDir(t, dir)
		db := raw(t, d)
		must(t, db, a.q)
		db.Close()
		f, bad := check(t, d, false, nil).First()
		if !bad || (a.entry >= 0 && f.Entry != a.entry) || f.Row != a.row {
			t.Errorf("%s: found %v", name, f)
		}
	}
	// With the key, whoever rewrote and recomputed without it is named to the entry.
	d = copyDir(t, dir)
	db = raw(t, d)
	var macs [][]byte
	for n := range size {
		var m []byte
		if err := db.QueryRow("SELECT mac FROM events WHERE n = ?", n).Scan(&m); err != nil {
			t.Fatal(err)
		}
		macs = append(macs, m)
	}
	rewrite(t, db, 31)
	recompute(t, db, stranger)
	for n, m := range macs {
		must(t, db, "UPDATE events SET mac = ? WHERE n = ?", m, n)
	}
	db.Close()
	found(t, "rewritten without the key", check(t, d, true, nil), 31)
	if _, _, err := Open(t.Context(), Options{Dir: d, Key: testKey, Log: quiet()}); !errors.Is(err, ErrCorrupt) {
		t.Error("a rewritten ledger was opened and would be signed:", err)
	}
}

func TestALongLocatorNamesABlock(t *testing.T) {
	dir := newDir(t)
	l, _ := openAt(t, dir)
	more(t, l, 9000)
	file := checkpointFile(t, l)
	if len(file) > 512<<10 {
		t.Error("the file is large:", len(file))
	}
	closeNow(t, l)
	db := raw(t, dir)
	rewrite(t, db, 4321)
	recompute(t, db, testKey)
	db.Close()
	f, bad := check(t, dir, true, file).First()
	if !bad || f.Entry > 4321 || f.Last < 4321 || f.Last-f.Entry > 3 {
		t.Error("found", f)
	}
}

func TestProofs(t *testing.T) {
	ctx := context.Background()
	l, _ := openAt(t, newDir(t))
	var roots []tlog.Hash
	for i := range 70 {
		size, root := l.Head()
		if size != int64(len(roots)+1) {
			t.Fatal("size", size, i)
		}
		roots = append(roots, root)
		if got, err := rootAt(ctx, l.reads(), size); err != nil || got != root {
			t.Fatal("the frontier's root differs from the tree's:", err)
		}
		more(t, l, 1)
	}
	es, err := l.Entries(ctx, Query{})
	if err != nil {
		t.Fatal(err)
	}
	last := int64(len(roots))
	for n := range last {
		p, err := tlog.ProveRecord(last, n, hashReader(ctx, l.reads()))
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckRecord(p, last, roots[last-1], n, tlog.RecordHash(es[n].line)); err != nil {
			t.Fatal(n, err)
		}
		g, err := tlog.ProveTree(last, n+1, hashReader(ctx, l.reads()))
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckTree(g, last, roots[last-1], n+1, roots[n]); err != nil {
			t.Fatal(n, err)
		}
	}
}

func TestExportedLinesHashToTheCheckpoint(t *testing.T) {
	ctx := context.Background()
	l, _ := openAt(t, newDir(t))
	fill(t, l, 20)
	es, err := l.Entries(ctx, Query{})
	if err != nil {
		t.Fatal(err)
	}
	var f frontier
	for i := range es {
		line := es[i].Line()
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		prefix := fmt.Sprintf(`{"n":%d,`, e.N)
		if e.N != f.size || !strings.HasPrefix(string(line), prefix) {
			t.Fatalf("%.60s", line)
		}
		f.add(tlog.RecordHash([]byte("{" + strings.TrimSuffix(string(line[len(prefix):]), "\n"))))
	}
	msg, err := l.Checkpoint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cp, err := VerifyCheckpoint(msg, Origin, publicKey(testKey))
	if err != nil || cp.Size != f.size || cp.Root != f.root() {
		t.Fatal(cp, err)
	}
}

func FuzzCheckpoints(f *testing.F) {
	signer, err := newSigner(Origin, testKey)
	if err != nil {
		f.Fatal(err)
	}
	msg, err := Checkpoint{Origin, 3, tlog.Hash{1}}.sign(signer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(msg)
	f.Add(append(bytes.Clone(msg), "locator 0 3\n"...))
	f.Add([]byte("locator 0 0\n"))
	f.Add([]byte("a\n\n\u2014 b c\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := parseCheckpoints(in, Origin, publicKey(testKey))
		if err != nil && out != nil {
			t.Fatal("a value with an error")
		}
	})
}
