// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// code returns SQLite's extended result code, or 0.
func code(err error) int {
	var se *sqlite.Error
	if errors.As(err, &se) {
		return se.Code()
	}
	return 0
}

// say turns what SQLite answered into what a person can act on.
func (l *Ledger) say(err error) error {
	for _, known := range []error{ErrFull, ErrReadOnly, ErrGone, ErrBroken, ErrBusy, ErrUnsafe, ErrCorrupt, ErrNewer} {
		if errors.Is(err, known) {
			return err
		}
	}
	c := code(err)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), c&0xff == sqlite3.SQLITE_FULL,
		c == sqlite3.SQLITE_IOERR_SHMSIZE, c&0xff == sqlite3.SQLITE_IOERR && l.free() < 64<<10:
		return fmt.Errorf("%w: nothing is let through until %s has room (%w)", ErrFull, l.dir, err)
	case errors.Is(err, unix.EROFS), c&0xff == sqlite3.SQLITE_READONLY, l.readOnly():
		return fmt.Errorf("%w: nothing is let through until %s can be written again (%w)", ErrReadOnly, l.dir, err)
	case c&0xff == sqlite3.SQLITE_BUSY, c&0xff == sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: %s for longer than %s (%w)", ErrBusy, l.holder(), busyLimit, err)
	case c&0xff == sqlite3.SQLITE_CORRUPT, c&0xff == sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: restore a copy, and keep this file for the person (%w)", ErrCorrupt, err)
	}
	return err
}

// stops says whether an error is the store's as a whole: trying the batch's changes one by one would not help.
func stops(err error) bool {
	if errors.Is(err, ErrGone) || errors.Is(err, ErrBroken) {
		return true
	}
	switch code(err) & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CORRUPT,
		sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM:
		return true
	}
	return false
}

// fail decides what a failed commit means for the ones to come, and says it.
func (l *Ledger) fail(err error) error {
	said := l.say(err)
	switch {
	case errors.Is(said, ErrFull), errors.Is(said, ErrReadOnly):
		if _, _, was := l.state(); was == nil {
			l.setHealth(said)
			l.alarm(said)
		}
	case errors.Is(said, ErrBusy):
		// It may be over with the next call.
	case errors.Is(said, ErrGone), errors.Is(said, ErrCorrupt), errors.Is(said, ErrBroken):
		l.setHealth(said)
	case code(err)&0xff == sqlite3.SQLITE_IOERR:
		// After a failed sync nobody knows what is on the disk, and a second one would lie (fsync(2), since Linux 4.13).
		said = fmt.Errorf("%w: %w; restart sentinel once the disk is well", ErrBroken, err)
		l.setHealth(said)
	}
	l.log.Error("the ledger refused a write", "err", said)
	return said
}

func (l *Ledger) setHealth(err error) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.health, l.since = err, now
}

// alarm writes one event into the space that was kept back. That it may fail is why the log says it too.
func (l *Ledger) alarm(why error) {
	if !l.giveReserve() {
		return
	}
	o := &op{apply: func(t *txn) error {
		return t.emit(Event{Type: EvAlarm, Actor: sentinel, Details: alarmDetails{Reason: clip(why.Error())}})
	}}
	if _, err := l.commit([]*op{o}); err != nil {
		l.log.Error("the alarm could not be recorded", "err", err)
	}
}

type alarmDetails struct {
	Reason string `json:"reason"`
}

// probeEvery is how often a ledger that ran out of space looks again.
const probeEvery = 200 * time.Millisecond

// ready returns why nothing can be written now. A ledger that was full comes back once its reserve fits again.
func (l *Ledger) ready() error {
	since, health := l.Health()
	if health == nil {
		return nil
	}
	if !errors.Is(health, ErrFull) && !errors.Is(health, ErrReadOnly) {
		return health
	}
	if l.now().Time().Sub(since.Time()).Abs() < probeEvery || l.readOnly() || l.free() < 2*l.reserve {
		return health
	}
	if err := l.keepReserve(); err != nil {
		return health
	}
	if l.unsaid != nil {
		if err := l.writeMark(mark{}); err != nil {
			return health
		}
	}
	l.setHealth(nil)
	o := &op{apply: func(t *txn) error {
		if l.unsaid != nil {
			if err := t.emit(l.unsaid.event()); err != nil {
				return err
			}
		}
		return t.emit(Event{Type: EvAlarm, Actor: sentinel, Details: alarmDetails{Reason: "the ledger has room again"}})
	}}
	if _, err := l.commit([]*op{o}); err != nil {
		l.setHealth(health)
		return health
	}
	l.unsaid = nil
	l.log.Info("the ledger can be written again")
	return nil
}

// free returns the bytes that this user may still write; 0 if nobody knows.
func (l *Ledger) free() int64 {
	var st unix.Statfs_t
	if unix.Statfs(l.dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * st.Bsize
}

func (l *Ledger) readOnly() bool {
	var st unix.Statfs_t
	return unix.Statfs(l.dir, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// settled makes sure, after a commit and before its answer, that the files it went to are the ones with the names:
// else it went to a deleted one and would be lost at exit.
func (l *Ledger) settled(ctx context.Context) error {
	now, err := l.look()
	if err == nil && l.files == (openFiles{}) {
		l.files = now // the first commit made the -wal
		return nil
	}
	if err == nil && now == l.files {
		return nil
	}
	if now.db != l.files.db {
		return l.rescue(ctx, dbName+" is not the file that is open")
	}
	// Only the -wal went. Its contents are still open: copy them into the main file, sync that, and begin a new one.
	var busy, pages, moved int
	err = l.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved)
	if err != nil || busy != 0 {
		return l.rescue(ctx, walName+" was deleted")
	}
	if err := l.reconnect(ctx); err != nil {
		return fmt.Errorf("%w: %s was deleted; its contents are saved, but opening again failed: %w", ErrBroken, walName, err)
	}
	l.log.Error("the ledger's -wal file was deleted; its contents were saved", "file", walName)
	return nil
}

// rescue saves what the open files have, which is lost with this process, under another name.
func (l *Ledger) rescue(ctx context.Context, what string) error {
	saved := "what was acknowledged is saved as " + rescueName + ": stop sentinel, verify that and put it in place"
	to := filepath.Join(l.dir, rescueName)
	_ = private(to) // what fails here fails in the next line
	if _, err := l.conn.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		saved = "and it could not be saved: " + err.Error()
	}
	return fmt.Errorf("%w: %s; %s", ErrGone, what, saved)
}

// reconnect closes every connection and opens them anew.
func (l *Ledger) reconnect(ctx context.Context) error {
	if err := l.disconnect(); err != nil {
		return err
	}
	l.files = openFiles{}
	if err := l.connect(ctx); err != nil {
		return err
	}
	return l.prepare(ctx)
}

// holder names the process that has SQLite's write lock: byte 120 of the -shm file (sqlite.org/walformat.html, section
// 2.3.1), a POSIX lock, so the kernel says whose it is (fcntl(2), F_GETLK).
func (l *Ledger) holder() string {
	if l.shm == nil {
		return culprit(0)
	}
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 120, Len: 1}
	if err := unix.FcntlFlock(l.shm.Fd(), unix.F_GETLK, &lk); err != nil || lk.Type == unix.F_UNLCK {
		return culprit(0)
	}
	return culprit(int(lk.Pid))
}
