// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const childWriters = 8

type childDetails struct {
	Run    string `json:"run"`
	Writer int    `json:"writer"`
	I      int    `json:"i"`
}

// childWrite opens the ledger and writes until it is killed, saying each number once it is acknowledged.
func childWrite(dir string) error {
	ctx := context.Background()
	l, rec, err := Open(ctx, Options{Dir: dir, Key: testKey, Log: quiet(), CheckpointEvery: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	run := NewID()
	fmt.Printf("open %d %s %q\n", rec.Size, run, rec.Suspect)
	var wg sync.WaitGroup
	for w := range childWriters {
		wg.Go(func() {
			for i := 0; ; i++ {
				err := l.Record(ctx, Event{Type: "test", Actor: "sentinel", Details: childDetails{run, w, i}})
				if err != nil {
					fmt.Println("error", err)
					return
				}
				_, _ = os.Stdout.WriteString(fmt.Sprintf("ack %d %d\n", w, i)) // one write, so whole or not at all
			}
		})
	}
	wg.Wait()
	return nil
}

// TestAD03_KilledInAWriteLoop kills a writing process 200 times. Nothing that it acknowledged may be missing, and
// what is there must verify.
func TestAD03_KilledInAWriteLoop(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	dir := newDir(t)
	acked := map[string]int{} // run/writer: how many
	total := 0
	for range rounds {
		c := startChild(t, "write", dir, nil)
		var run, suspect string
		var size int
		if _, err := fmt.Sscanf(c.line(t), "open %d %s %q", &size, &run, &suspect); err != nil || suspect != "" {
			t.Fatal("open after a kill:", err, suspect)
		}
		if size < total {
			t.Fatalf("%d entries were acknowledged, %d are there", total, size)
		}
		c.line(t)
		time.AfterFunc(time.Duration(rand.IntN(20_000))*time.Microsecond, func() { _ = c.Process.Kill() })
		for c.out.Scan() {
			f := strings.Fields(c.out.Text())
			if len(f) != 3 || f[0] != "ack" {
				t.Fatal(c.out.Text())
			}
			i, err := strconv.Atoi(f[2])
			if err != nil {
				t.Fatal(err)
			}
			acked[run+"/"+f[1]] = i + 1
			total++
		}
		c.kill()
	}
	l, rec := openAt(t, dir)
	if rec.Clean || rec.Suspect != "" {
		t.Fatalf("%+v", rec)
	}
	es, err := l.Entries(t.Context(), Query{Types: []string{"test"}})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for _, e := range es {
		var d childDetails
		if err := json.Unmarshal(e.Details, &d); err != nil {
			t.Fatal(err)
		}
		k := fmt.Sprintf("%s/%d", d.Run, d.Writer)
		if have[k] != d.I {
			t.Fatalf("%s: number %d follows number %d", k, d.I, have[k]-1)
		}
		have[k]++
	}
	for k, n := range acked {
		if have[k] < n {
			t.Errorf("%s: %d acknowledged, %d there", k, n, have[k])
		}
	}
	r, err := l.Verify(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	clean(t, "after 200 kills", r)
	if total < rounds {
		t.Fatal("hardly anything was written:", total)
	}
}

// childHold begins a write transaction in the ledger's file and stops in it.
func childHold(dir string) error {
	db, err := sql.Open("sqlite", pathOf(dir))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if _, err := db.Exec("UPDATE events SET cell = 'x' WHERE n = 0"); err != nil {
		return err
	}
	fmt.Println("held")
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(time.Hour) // kill may return before the stop comes; the test ends this process
	return db.Close()
}

// TestAD03_AStoppedProcessHoldsTheLock must be refused in bounded time, with the culprit's name; when that is gone the
// writes go on.
func TestAD03_AStoppedProcessHoldsTheLock(t *testing.T) {
	dir := newDir(t)
	l, _ := openAt(t, dir)
	more(t, l, 1) // the control: nobody holds it
	c := startChild(t, "hold", dir, nil)
	if got := c.line(t); got != "held" {
		t.Fatal(got)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*busyLimit)
	defer stop()
	err := l.Record(ctx, Event{Type: "test"})
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), strconv.Itoa(c.Process.Pid)) ||
		!strings.Contains(err.Error(), "stopped") {
		t.Error("the culprit is not named:", err)
	}
	if _, err := l.Entries(ctx, Query{}); err != nil {
		t.Error("queries do not work:", err)
	}
	c.kill()
	more(t, l, 1)
	r, err := l.Verify(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	clean(t, "after the stopped process was killed", r)
}

// childOpen tries to open the ledger and says what happened.
func childOpen(dir string) error {
	l, _, err := Open(context.Background(), Options{Dir: dir, Key: testKey, Log: quiet()})
	if err != nil {
		return err
	}
	fmt.Println("opened")
	return l.Close()
}

// TestAD03_ASecondDaemonIsRefused, and the first is named.
func TestAD03_ASecondDaemonIsRefused(t *testing.T) {
	dir := newDir(t)
	l, _ := openAt(t, dir)
	c := startChild(t, "open", dir, nil)
	if got := c.line(t); !strings.Contains(got, ErrBusy.Error()) || !strings.Contains(got, strconv.Itoa(os.Getpid())) {
		t.Error(got)
	}
	if _, _, err := Open(t.Context(), Options{Dir: dir, Key: testKey, Log: quiet()}); !errors.Is(err, ErrBusy) {
		t.Error("a second one in the same process:", err)
	}
	more(t, l, 1)
	closeNow(t, l)
	if got := startChild(t, "open", dir, nil).line(t); got != "opened" {
		t.Error("control: once the first is gone:", got)
	}
}

// TestAD03_AFileSystemWithoutLocks is refused, with words that say so, and what is there stays as it is.
func TestAD03_AFileSystemWithoutLocks(t *testing.T) {
	for _, kind := range []string{"whole", "parts"} {
		dir := filepath.Join(newDir(t), kind)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l, _ := openAt(t, dir)
		more(t, l, 1)
		closeNow(t, l)
		if got := startChild(t, "locks", dir, nil).line(t); got == "opened" || !strings.Contains(got, "lock") {
			t.Errorf("%s: %s", kind, got)
		}
		if got := startChild(t, "open", dir, nil).line(t); got != "opened" {
			t.Errorf("%s, control: with locks: %s", kind, got)
		}
	}
}

// TestAD03_TheWALIsDeleted while the ledger is open: its contents are saved before anything more is acknowledged.
// After a crash: that is known at the next start.
func TestAD03_TheWALIsDeleted(t *testing.T) {
	t.Run("while it runs", func(t *testing.T) {
		dir := newDir(t)
		l, _ := openAt(t, dir)
		more(t, l, 50)
		wal := filepath.Join(dir, walName)
		if err := os.Remove(wal); err != nil {
			t.Fatal(err)
		}
		more(t, l, 50)
		if _, err := os.Stat(wal); err != nil {
			t.Error("it went on writing into a deleted file:", err)
		}
		more(t, l, 50)
		d := copyDir(t, dir) // as a kill -9 would leave it
		r := check(t, d, true, checkpointFile(t, l))
		clean(t, "after a crash", r)
		if r.Size != 151 {
			t.Error("entries:", r.Size)
		}
	})
	t.Run("after a crash", func(t *testing.T) {
		dir := newDir(t)
		c := startChild(t, "write", dir, nil)
		for range 20 {
			c.line(t)
		}
		c.kill()
		control := copyDir(t, dir)
		if err := os.Remove(filepath.Join(dir, walName)); err != nil {
			t.Fatal(err)
		}
		if _, rec := openAt(t, dir); !strings.Contains(rec.Suspect, walName) {
			t.Errorf("nothing was said: %+v", rec)
		}
		if _, rec := openAt(t, control); rec.Suspect != "" || rec.Size < 19 {
			t.Errorf("control: %+v", rec)
		}
	})
}

// TestAD01_TheFileIsDeleted while it is open: nothing more is acknowledged into it.
func TestAD01_TheFileIsDeleted(t *testing.T) {
	dir := newDir(t)
	l, _, err := Open(t.Context(), Options{Dir: dir, Key: testKey, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	more(t, l, 5)
	if err := os.Remove(pathOf(dir)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Record(t.Context(), Event{Type: "test"}); !errors.Is(err, ErrGone) {
			t.Fatal("acknowledged into a deleted file:", err)
		}
	}
	if es, err := l.Entries(t.Context(), Query{}); err != nil || len(es) < 6 {
		t.Error("queries do not work:", len(es), err)
	}
	if _, err := l.Health(); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	_ = l.Close() // there is nothing to close in order
	if _, _, err := Open(t.Context(), Options{Dir: dir, Key: testKey, Log: quiet()}); !errors.Is(err, ErrGone) {
		t.Error("a new record was begun in silence:", err)
	}
	if err := os.Rename(filepath.Join(dir, rescueName), pathOf(dir)); err != nil {
		t.Fatal(err)
	}
	l, _ = openAt(t, dir)
	if es, err := l.Entries(t.Context(), Query{Types: []string{"test"}}); err != nil || len(es) < 5 {
		t.Error("what was acknowledged is not in the saved file:", len(es), err)
	}
}

// TestAD01_OthersCanWriteTheFolder is refused at start.
func TestAD01_OthersCanWriteTheFolder(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"the folder": func(dir string) error { return os.Chmod(dir, 0o777) },
		"the file":   func(dir string) error { return os.Chmod(pathOf(dir), 0o666) },
		"a link": func(dir string) error {
			return errors.Join(os.Rename(pathOf(dir), dir+".db"), os.Symlink(dir+".db", pathOf(dir)))
		},
	} {
		dir := newDir(t)
		l, _ := openAt(t, dir)
		closeNow(t, l)
		l, _ = openAt(t, dir) // the control
		closeNow(t, l)
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(t.Context(), Options{Dir: dir, Key: testKey, Log: quiet()}); !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// childSmall runs in a mount namespace of its own, on a file system of 1 MB.
func childSmall(dir string) error {
	ctx := context.Background()
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700")); err != nil {
		return err
	}
	opts := Options{Dir: dir, Key: testKey, Log: quiet(), Reserve: 128 << 10}
	l, _, err := Open(ctx, opts)
	if err != nil {
		return err
	}
	acked := 0
	for ; ; acked++ {
		err = l.Record(ctx, Event{Type: "test", Details: map[string]string{"fill": strings.Repeat("x", 1000)}})
		if err != nil || acked > 10_000 {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		return fmt.Errorf("after %d entries on a full disk: %w", acked, err)
	}
	if acked < 100 {
		return fmt.Errorf("full after %d entries", acked)
	}
	c := write("a", "on a full disk")
	if _, _, err := l.Begin(ctx, c, "cell:a"); !errors.Is(err, ErrFull) {
		return fmt.Errorf("a write was let through: %w", err)
	}
	if err := l.Start(ctx, read("a"), "cell:a").Wait(ctx); !errors.Is(err, ErrFull) {
		return fmt.Errorf("a read was let through: %w", err)
	}
	if _, err := l.Health(); !errors.Is(err, ErrFull) {
		return fmt.Errorf("it does not say why: %w", err)
	}
	es, err := l.Entries(ctx, Query{Types: []string{EvAlarm}})
	if err != nil || len(es) != 1 || !strings.Contains(string(es[0].Details), "no space") {
		return fmt.Errorf("the alarm is not on the record: %v %w", es, err)
	}
	if es, err = l.Entries(ctx, Query{Types: []string{"test"}}); err != nil || len(es) != acked {
		return fmt.Errorf("%d acknowledged, %d there: %w", acked, len(es), err)
	}
	// A start on a full disk: it says so, and queries work.
	_ = l.Close() // it could not write its end
	if l, _, err = Open(ctx, opts); err != nil {
		return fmt.Errorf("a start on a full disk: %w", err)
	}
	if err := l.Record(ctx, Event{Type: "test"}); !errors.Is(err, ErrFull) {
		return fmt.Errorf("a start on a full disk, a write: %w", err)
	}
	if es, err = l.Entries(ctx, Query{Types: []string{"test"}}); err != nil || len(es) != acked {
		return fmt.Errorf("a start on a full disk: %d acknowledged, %d there: %w", acked, len(es), err)
	}
	// Room again: more is let in by itself.
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=8m,mode=0700"); err != nil {
		return err
	}
	time.Sleep(2 * probeEvery)
	if err := l.Record(ctx, Event{Type: "test"}); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	if es, err = l.Entries(ctx, Query{Types: []string{EvOpen}}); err != nil || len(es) != 2 {
		return fmt.Errorf("the second start is not on the record: %v %w", es, err)
	}
	rep, err := l.Verify(ctx, nil)
	if err != nil || len(rep.Findings) > 0 {
		return fmt.Errorf("it does not verify: %v %w", rep, err)
	}
	if err := l.Close(); err != nil {
		return err
	}
	// Read-only.
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return err
	}
	if _, _, err := Open(ctx, opts); !errors.Is(err, ErrReadOnly) {
		return fmt.Errorf("on a read-only file system: %w", err)
	}
	r, err := VerifyFile(ctx, pathOf(dir), publicKey(testKey), nil, nil)
	if err != nil || len(r.Findings) > 0 {
		return fmt.Errorf("verify on a read-only file system: %v %w", r, err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, ""); err != nil {
		return err
	}
	if l, _, err = Open(ctx, opts); err != nil {
		return fmt.Errorf("writable again: %w", err)
	}
	fmt.Println("ok", acked)
	return l.Close()
}

// TestAD01_FullAndReadOnly: on a file system of 1 MB that is full nothing is let through, it says so, the alarm is on
// the record, nothing that was acknowledged is lost.
func TestAD01_FullAndReadOnly(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	c := startChild(t, "small", dir, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS})
	if got := c.line(t); !strings.HasPrefix(got, "ok ") {
		t.Error(got)
	}
}
