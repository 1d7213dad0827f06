// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nextOnes are migrations that only these tests have: each takes a while, so that it can be interrupted, and leaves something
// to count.
var nextOnes = []string{
	`CREATE TABLE second (n INTEGER PRIMARY KEY, t TEXT NOT NULL) STRICT;
WITH RECURSIVE c(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < 30000) INSERT INTO second SELECT n, hex(n) FROM c;`,
	`CREATE TABLE third (n INTEGER PRIMARY KEY) STRICT;
INSERT INTO third SELECT n FROM second WHERE n > 10000; DELETE FROM second WHERE n > 10000;`,
}

// withNext has this program know versions that there are not yet.
func withNext(n int) { migrations = append(migrations[:1:1], nextOnes[:n]...) }

// childMigrate opens the ledger as a program of the newest version, and goes on migrating copies of it until it is killed.
func childMigrate(dir string) error {
	withNext(2)
	fmt.Println("begin")
	l, _, err := Open(context.Background(), Options{Dir: dir, Key: testKey, Log: quiet()})
	if err != nil {
		return err
	}
	fmt.Println("done")
	return l.Close()
}

// stored is what stands in the file, read without this package: its version, and the rows of the migrations' tables.
func stored(t *testing.T, dir string) (version, second, third int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		t.Fatal(err)
	}
	count := func(table string) int {
		n := -1
		if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil && !strings.Contains(err.Error(), "no such table") {
			t.Fatal(err)
		}
		return n
	}
	return version, count("second"), count("third")
}

// A migration that is killed has been made whole or not at all, step by step, and the next start goes on from there. What
// was in the store of the first version is there in each.
func TestAMigrationIsWholeOrNotThere(t *testing.T) {
	old := newDir(t)
	l, _ := openAt(t, old)
	if err := l.PutSetting(t.Context(), "kept", []byte("value"), "person:1000", nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[int][2]int{1: {-1, -1}, 2: {30000, -1}, 3: {10000, 20000}}
	seen, whole := map[int]int{}, time.Duration(0) // how long a migration takes on this machine, as it is now
	for round := 0; round < 60 && (round < 12 || len(seen) < 3); round++ {
		dir := filepath.Join(t.TempDir(), "ledger")
		if err := os.CopyFS(dir, os.DirFS(old)); err != nil {
			t.Fatal(err)
		}
		mend(t, dir)
		c := startChild(t, "migrate", dir, nil)
		c.line(t)
		if whole > 0 {
			time.Sleep(rand.N(3 * whole / 2))
			c.kill()
		}
		if whole == 0 {
			begun := time.Now()
			if said := c.line(t); said != "done" {
				t.Fatal(said)
			}
			whole = time.Since(begun)
			c.kill()
		}
		version, second, third := stored(t, dir)
		if got := [2]int{second, third}; got != want[version] {
			t.Errorf("killed at version %d, and it has %v, want %v", version, got, want[version])
		}
		seen[version]++
		c = startChild(t, "migrate", dir, nil)
		c.line(t)
		if said := c.line(t); said != "done" {
			t.Fatalf("after a kill at version %d: %s", version, said)
		}
		c.kill()
		if version, second, third = stored(t, dir); version != 3 || second != 10000 || third != 20000 {
			t.Errorf("in the end it is version %d with %d and %d", version, second, third)
		}
		if round == 0 {
			after(t, dir)
		}
	}
	t.Logf("killed at versions: %v", seen)
	if seen[1] == 0 || seen[3] == 0 {
		t.Errorf("the kills came at %v only: they show nothing", seen)
	}
}

// after opens a migrated ledger as a program of its version, and as the one before, which refuses it.
func after(t *testing.T, dir string) {
	t.Helper()
	defer func() { migrations = migrations[:1:1] }()
	withNext(2)
	l, _ := openAt(t, dir)
	if v, ok := l.Setting("kept"); !ok || string(v.Value) != "value" {
		t.Errorf("the setting is %q", v.Value)
	}
	if r, err := l.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	} else if f, bad := r.First(); bad {
		t.Error(f)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	withNext(1)
	before := contents(t, dir)
	_, _, err := Open(t.Context(), Options{Dir: dir, Key: testKey, Log: quiet()})
	if !errors.Is(err, ErrNewer) {
		t.Fatalf("a program of version 2 opens a store of version 3: %v", err)
	}
	for _, words := range []string{"version 3", "knows 2", "install the newer program again"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("it does not say %q: %v", words, err)
		}
	}
	if contents(t, dir) != before {
		t.Error("it has changed the store that it refuses")
	}
	if version, second, third := stored(t, dir); version != 3 || second != 10000 || third != 20000 {
		t.Errorf("it is version %d with %d and %d", version, second, third)
	}
}

// contents are the bytes of the ledger's file.
func contents(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// mend gives copied files the modes that a ledger's have.
func mend(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Chmod(filepath.Join(dir, f.Name()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
