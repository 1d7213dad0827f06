// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps what sentinel decided: the calls and their states, the grants, labels, sessions and settings,
// and the record of every event, which the agent cannot write, shorten or rewrite unnoticed.
//
// It is one SQLite file with one writer, which puts whatever waits into one transaction and answers when that is on
// the disk. Each transaction holds the state rows, the events that changed them, and the Merkle log's hashes of those
// events (RFC 6962); each event names the SHA-256 of every row it wrote, so a state row that no event wrote is found.
//
// An attacker who can write the file but has no key breaks the chain of codes, and the first entry that was touched is
// named. One who has the key too, or puts back yesterday's file, or runs two copies, is found by a checkpoint that was
// taken away before: authd keeps the newest, and a person may keep more. One who can only make the disk full, take the
// lock or delete a file stops the writes, loudly; nothing that was acknowledged is lost, and nothing runs unrecorded.
//
// While it cannot write, the rule for a vendor's reads is that of writes: no record, no release, so they are refused
// too. Queries of the ledger itself go on.
package ledger

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
)

// Origin is the first line of every checkpoint.
const Origin = "doorward/ledger"

// Files of a ledger in its folder.
const (
	dbName      = "ledger.db"
	walName     = "ledger.db-wal"
	lockName    = "lock"
	markName    = "mark"
	reserveName = "reserve"
	rescueName  = "ledger-rescued.db" // written when the file was deleted while open
)

// Options say where a ledger is and who is told what.
type Options struct {
	Dir string             // its folder, mode 0700, this user's
	Key ed25519.PrivateKey // signs checkpoints
	Log *slog.Logger

	// OnCheckpoint is called with each checkpoint that is signed on the way, from one goroutine of its own: it may take
	// its time, it then gets the newest only. Nil for none.
	OnCheckpoint func(note []byte)
	// CheckpointEvery is the longest time between a change and the checkpoint that covers it; 0 means 5 s.
	CheckpointEvery time.Duration
	// Reserve is the space kept back for the alarm, in bytes; 0 means 256 KiB.
	Reserve int64
	// Now is the clock; nil means the kernel's.
	Now func() Moment
}

// Recovery is what Open found.
type Recovery struct {
	Fresh     bool   // there was no ledger before
	Clean     bool   // it was closed in order
	Suspect   string // in words, why it may be older than what was acknowledged; "" if nothing says so
	Size      int64  // entries before this start
	Executing []Call // were under way: settle them, never run them again
}

// Ledger is an open ledger. Its methods may be called from any goroutine.
type Ledger struct {
	dir     string
	log     *slog.Logger
	now     func() Moment
	key     ed25519.PrivateKey
	mac     []byte
	signer  note.Signer
	every   time.Duration
	reserve int64

	lock  *os.File
	db    *sql.DB                // the writer's
	conn  *sql.Conn              // its only connection
	pool  atomic.Pointer[sql.DB] // the readers'; replaced when the ledger is opened anew under them
	shm   *os.File               // the -shm file, to ask who holds its locks; closed only after SQLite has let go of it
	stmts stmts
	files openFiles

	ops     chan *op
	sending sync.RWMutex // held shared while sending to ops; guards closed
	closed  bool
	stopped chan struct{} // closed when the writer has ended
	notes   chan []byte   // newest checkpoint for OnCheckpoint
	noted   chan struct{} // closed when that goroutine has ended

	// The writer's own; nobody else touches them.
	head     frontier
	lastMAC  []byte
	codes    coder
	signed   int64     // size of the newest checkpoint in the store
	signedAt time.Time // when that was made
	batches  int
	unsaid   *opened // the open event that could not be written yet, and the mark with it

	view    view
	refused refusals

	mu     sync.Mutex // guards what follows
	size   int64
	root   tlog.Hash
	health error
	since  Moment
	grown  chan struct{} // closed and replaced at each commit
}

// Open opens or makes the ledger in o.Dir and takes its lock. The errors it returns say what to do: ErrBusy names the
// process that holds it, ErrUnsafe, ErrNewer, ErrCorrupt, ErrGone, ErrReadOnly and ErrFull are told apart.
func Open(ctx context.Context, o Options) (*Ledger, *Recovery, error) {
	l := &Ledger{
		dir: o.Dir, log: o.Log, now: o.Now, key: o.Key, every: o.CheckpointEvery, reserve: o.Reserve,
		ops: make(chan *op, 1024), stopped: make(chan struct{}), noted: make(chan struct{}),
		notes: make(chan []byte, 1), grown: make(chan struct{}),
	}
	if l.every == 0 {
		l.every = 5 * time.Second
	}
	if l.reserve == 0 {
		l.reserve = 256 << 10
	}
	var err error
	if l.now == nil {
		if l.now, err = bootClock(); err != nil {
			return nil, nil, err
		}
	}
	if l.signer, err = newSigner(Origin, o.Key); err != nil {
		return nil, nil, err
	}
	if l.mac, err = macKey(o.Key); err != nil {
		return nil, nil, err
	}
	l.codes = newCoder(l.mac)
	rec, err := l.open(ctx)
	if err != nil {
		l.release()
		return nil, nil, l.say(fmt.Errorf("open the ledger in %s: %w", o.Dir, err))
	}
	first := opened{BootID: l.now().BootID, Fresh: rec.Fresh, Clean: rec.Clean, Suspect: rec.Suspect, PID: os.Getpid()}
	if _, full := l.Health(); full != nil {
		l.unsaid = &first // the writer has not begun
		l.log.Error("the ledger was opened and cannot be written", "err", full)
	}
	go l.write()
	go l.tell(o.OnCheckpoint)
	if l.unsaid != nil {
		return l, rec, nil
	}
	if err := l.Record(ctx, first.event()); err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, rec, nil
}

func (o opened) event() Event { return Event{Type: EvOpen, Actor: sentinel, Details: o} }

// sentinel is the actor of what the ledger does by itself.
const sentinel = "sentinel"

// opened are the details of an open event.
type opened struct {
	BootID  string `json:"boot_id"`
	Fresh   bool   `json:"fresh,omitzero"`
	Clean   bool   `json:"clean"`
	Suspect string `json:"suspect,omitzero"`
	PID     int    `json:"pid"`
}

func (l *Ledger) open(ctx context.Context) (*Recovery, error) {
	if err := checkDir(l.dir); err != nil {
		return nil, err
	}
	var err error
	if l.lock, err = takeLock(filepath.Join(l.dir, lockName)); err != nil {
		return nil, err
	}
	rec := &Recovery{}
	m, err := l.readMark()
	if err != nil {
		return nil, err
	}
	if rec.Suspect, err = l.missing(m); err != nil {
		return nil, err
	}
	rec.Clean = m.clean
	full := l.keepReserve()
	if full != nil && !errors.Is(full, unix.ENOSPC) && !errors.Is(full, unix.EDQUOT) {
		return nil, full
	}
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	if rec.Fresh, err = migrate(ctx, l.conn); err != nil {
		return nil, err
	}
	if rec.Fresh {
		rec.Clean = true
	}
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	rec.Size = l.head.size
	if why := m.disagrees(&l.head); why != "" && rec.Suspect == "" {
		rec.Suspect = why
	}
	if rec.Executing, err = l.Calls(ctx, Filter{States: []State{Executing}}); err != nil {
		return nil, err
	}
	// The tables are in the main file before the mark says that a missing -wal would be a loss.
	_, err = l.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	if err != nil && !rec.Fresh && errors.Is(l.say(err), ErrFull) {
		full, err = err, nil
	}
	if err != nil {
		return nil, err
	}
	if err := l.prepare(ctx); err != nil {
		return nil, err
	}
	if full != nil { // queries work; the writer begins once there is room
		l.health, l.since = l.say(full), l.now()
		return rec, nil
	}
	return rec, l.writeMark(mark{})
}

// connect opens the writer's connection and the readers'.
func (l *Ledger) connect(ctx context.Context) error {
	// fdatasync keeps data and size, which is all that a commit needs; OFD locks survive any close of the file elsewhere
	// in this process. Both are process-wide settings of the library; where one is missing the default is right too.
	_, _ = sqlite.Fdatasync(true)
	_, _ = sqlite.OFDLocking(true)
	path := filepath.Join(l.dir, dbName)
	if err := private(path); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(path, "rwc", "synchronous(FULL)", "wal_autocheckpoint(0)", "cache_size(-8192)"))
	if err != nil {
		return err
	}
	l.db = db
	l.db.SetMaxOpenConns(1)
	if l.conn, err = l.db.Conn(ctx); err != nil {
		return err
	}
	var mode, ok string
	if err := l.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%w: the file system cannot do write-ahead logging (journal mode %q)", ErrUnsafe, mode)
	}
	if err := l.conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&ok); err != nil {
		return err
	}
	if ok != "ok" {
		return fmt.Errorf("%w: %s; restore a copy, and keep this file for the person", ErrCorrupt, ok)
	}
	if l.shm, err = os.OpenFile(path+"-shm", os.O_RDWR, 0); err != nil {
		return err
	}
	reads, err := sql.Open("sqlite", dsn(path, "rw", "query_only(1)"))
	if err != nil {
		return err
	}
	reads.SetMaxOpenConns(4)
	reads.SetMaxIdleConns(4)
	l.pool.Store(reads)
	return nil
}

// reads is the readers' pool.
func (l *Ledger) reads() *sql.DB { return l.pool.Load() }

// disconnect closes every connection and then, not before, the -shm file: closing that drops the process's locks on it.
func (l *Ledger) disconnect() error {
	l.stmts.close()
	l.stmts = stmts{}
	var errs []error
	if p := l.pool.Load(); p != nil {
		errs = append(errs, p.Close())
	}
	if l.conn != nil {
		errs = append(errs, l.conn.Close())
	}
	if l.db != nil {
		errs = append(errs, l.db.Close())
	}
	if l.shm != nil {
		errs = append(errs, l.shm.Close())
	}
	l.conn, l.db, l.shm = nil, nil, nil
	return errors.Join(errs...)
}

// busyLimit is how long the writer waits for a lock that somebody else holds.
const busyLimit = 2 * time.Second

func dsn(path, mode string, pragmas ...string) string {
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busyLimit.Milliseconds()))
	q.Add("_pragma", "trusted_schema(0)")
	q.Add("_pragma", "cell_size_check(1)")
	for _, p := range pragmas {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// Close ends the writer after what waits, signs a last checkpoint and lets go of the lock.
func (l *Ledger) Close() error {
	l.flushRefusals()
	l.sending.Lock()
	was := l.closed
	l.closed = true
	l.sending.Unlock()
	if was {
		return ErrClosed
	}
	close(l.ops)
	<-l.stopped
	close(l.notes)
	<-l.noted
	ctx := context.Background() // closing is not to be cut short
	_, _, health := l.state()
	if health == nil {
		if _, err := l.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			health = fmt.Errorf("close the ledger: %w", err)
		}
	}
	err := l.disconnect()
	if health == nil && err == nil {
		err = l.writeMark(mark{clean: true, size: l.head.size, root: l.head.root().String()})
	}
	l.lock.Close()
	return err
}

// release undoes a failed open.
func (l *Ledger) release() {
	_ = l.disconnect() // the error that is being returned tells more
	if l.lock != nil {
		l.lock.Close()
	}
}

// load reads the head of the tree and everything that is kept in memory.
func (l *Ledger) load(ctx context.Context) error {
	h, mac, err := loadHead(ctx, l.conn)
	if err != nil {
		return err
	}
	l.head, l.lastMAC = h, mac
	l.size, l.root = h.size, h.root()
	l.signedAt = time.Now()
	if err := l.checkTail(ctx); err != nil {
		return err
	}
	return l.loadView(ctx)
}

// Health tells since when and why writes are refused; nil if they are not.
func (l *Ledger) Health() (since Moment, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, l.health
}

// Now reads the ledger's clock.
func (l *Ledger) Now() Moment { return l.now() }

// Head returns the number of entries and the tree's hash, as far as they are durable.
func (l *Ledger) Head() (size int64, root tlog.Hash) {
	size, root, _ = l.state()
	return size, root
}

func (l *Ledger) state() (int64, tlog.Hash, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, l.root, l.health
}

// Checkpoint returns a signed checkpoint over everything that is durable now.
func (l *Ledger) Checkpoint(context.Context) ([]byte, error) {
	size, root := l.Head()
	return Checkpoint{Origin: Origin, Size: size, Root: root}.sign(l.signer)
}

// tell hands checkpoints to fn until the channel closes.
func (l *Ledger) tell(fn func([]byte)) {
	defer close(l.noted)
	for n := range l.notes {
		if fn != nil {
			fn(n)
		}
	}
}
