// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Bounds of one group commit.
const (
	maxBatch      = 256
	maxBatchBytes = 1 << 20
	walPages      = 1280     // the -wal file is copied back when it holds that many
	walKept       = 10 << 20 // bytes of the -wal file that are there from the start
)

// op is one change that waits for the writer.
type op struct {
	apply func(*txn) error // a refusal is returned before anything is written; may run twice
	after func(error)      // runs in the writer after the commit, before done; may be nil
	size  int              // about how many bytes it writes
	err   error
	done  chan struct{}
}

// Ticket is a change on its way to the disk.
type Ticket struct {
	o     *op
	queue func() // puts o into the queue, once; nil where it is there
}

// Go lets the change begin, where that was put off. Wait does so too.
func (t *Ticket) Go() {
	if t.queue != nil {
		t.queue()
	}
}

// Wait returns when the change is durable, or why it is not. When ctx ends first the change may still come.
func (t *Ticket) Wait(ctx context.Context) error {
	t.Go()
	select {
	case <-t.o.done:
		return t.o.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the ledger: %w", ctx.Err())
	}
}

// failed returns a ticket that is done already.
func failed(err error) *Ticket {
	o := &op{err: err, done: make(chan struct{})}
	close(o.done)
	return &Ticket{o: o}
}

// submit queues a change. Changes of one goroutine commit in their order.
func (l *Ledger) submit(ctx context.Context, o *op) *Ticket {
	if o.done == nil {
		o.done = make(chan struct{})
	}
	l.sending.RLock()
	defer l.sending.RUnlock()
	if l.closed {
		return l.drop(o, ErrClosed)
	}
	select {
	case l.ops <- o:
		return &Ticket{o: o}
	case <-ctx.Done():
		return l.drop(o, fmt.Errorf("queue for the ledger: %w", ctx.Err()))
	}
}

func (l *Ledger) drop(o *op, err error) *Ticket {
	o.finish(err)
	return &Ticket{o: o}
}

func (o *op) finish(err error) {
	o.err = err
	if o.after != nil {
		o.after(err)
	}
	close(o.done)
}

// do queues a change and waits for it.
func (l *Ledger) do(ctx context.Context, apply func(*txn) error) error {
	return l.submit(ctx, &op{apply: apply}).Wait(ctx)
}

// write is the one writer: it takes what waits, commits it as one transaction and answers. Nobody is made to wait for
// more to come.
func (l *Ledger) write() {
	defer close(l.stopped)
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	batch := make([]*op, 0, maxBatch)
	for {
		select {
		case o, ok := <-l.ops:
			if !ok {
				l.signNow()
				return
			}
			batch = l.gather(append(batch[:0], o))
			l.run(batch)
		case <-tick.C:
			l.signNow()
		}
	}
}

// gather adds to a batch what waits already. It lets the goroutines that the last batch woke run once, so that they
// do not have to wait for the batch after; it waits for nobody.
func (l *Ledger) gather(batch []*op) []*op {
	size := batch[0].size
	yielded := false
	for len(batch) < maxBatch && size < maxBatchBytes {
		select {
		case o, ok := <-l.ops:
			if !ok {
				return batch
			}
			batch = append(batch, o)
			size += o.size
			yielded = false
		default:
			if yielded {
				return batch
			}
			yielded = true
			runtime.Gosched()
		}
	}
	return batch
}

// run commits a batch, and when the store refuses it for the fault of one change, the changes one by one.
func (l *Ledger) run(batch []*op) {
	if err := l.ready(); err != nil {
		for _, o := range batch {
			o.finish(err)
		}
		return
	}
	errs, err := l.commit(batch)
	if err != nil && len(batch) > 1 && !stops(err) {
		for _, o := range batch {
			l.run([]*op{o})
		}
		return
	}
	if err != nil {
		err = l.fail(err)
	}
	for i, o := range batch {
		if err != nil {
			o.finish(err)
		} else {
			o.finish(errs[i])
		}
	}
	if l.batches++; err == nil && l.batches%16 == 0 {
		l.tidy()
	}
}

// commit runs the batch in one transaction. It returns each change's own refusal, or why nothing was committed.
func (l *Ledger) commit(batch []*op) (refused []error, err error) {
	ctx := context.Background() // a commit is never cut short
	if err := l.stmts.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return nil, storeError{fmt.Errorf("begin: %w", err)}
	}
	defer func() {
		if err != nil {
			_ = l.stmts.exec(ctx, "ROLLBACK") // SQLite may have done it already
		}
	}()
	t := &txn{l: l, ctx: ctx, now: l.now(), next: l.head.size}
	refused = make([]error, len(batch))
	for i, o := range batch {
		t.writes, t.touched = nil, false
		r := o.apply(t)
		var se storeError
		switch {
		case errors.As(r, &se):
			return nil, r
		case r != nil && t.touched:
			return nil, storeError{fmt.Errorf("refused after a write: %w", r)}
		case len(t.writes) > 0:
			return nil, storeError{errors.New("a row was written without an event")}
		}
		refused[i] = r
	}
	if len(t.rows) == 0 {
		return refused, l.stmts.exec(ctx, "ROLLBACK")
	}
	head, mac, err := t.seal(l.head, l.lastMAC)
	if err != nil {
		return nil, err
	}
	var msg []byte
	if head.size-l.signed >= 1024 || time.Since(l.signedAt) >= l.every {
		if msg, err = t.sign(head); err != nil {
			return nil, err
		}
	}
	if err := l.stmts.exec(ctx, "COMMIT"); err != nil {
		return nil, storeError{fmt.Errorf("commit: %w", err)}
	}
	if err := l.settled(ctx); err != nil {
		return nil, err
	}
	l.head, l.lastMAC = head, mac
	l.publish()
	if msg != nil {
		l.signed, l.signedAt = head.size, time.Now()
		l.offer(msg)
	}
	for _, fn := range t.after {
		fn()
	}
	return refused, nil
}

// publish makes the new head known and wakes who follows.
func (l *Ledger) publish() {
	root := l.head.root()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size, l.root = l.head.size, root
	close(l.grown)
	l.grown = make(chan struct{})
}

// offer hands a checkpoint to the goroutine that tells it, replacing one that was not taken yet.
func (l *Ledger) offer(msg []byte) {
	for {
		select {
		case l.notes <- msg:
			return
		default:
		}
		select {
		case <-l.notes:
		default:
		}
	}
}

// signNow commits a checkpoint over what has none yet.
func (l *Ledger) signNow() {
	if l.head.size == l.signed || l.ready() != nil {
		return
	}
	ctx := context.Background()
	err := func() error {
		if err := l.stmts.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
			return err
		}
		t := &txn{l: l, ctx: ctx}
		msg, err := t.sign(l.head)
		if err == nil {
			err = l.stmts.exec(ctx, "COMMIT")
		}
		if err != nil {
			_ = l.stmts.exec(ctx, "ROLLBACK")
			return err
		}
		l.signed, l.signedAt = l.head.size, time.Now()
		l.offer(msg)
		return nil
	}()
	if err != nil {
		l.log.Warn("a checkpoint could not be kept", "err", err)
	}
}

// tidy copies the -wal file back when it has grown.
func (l *Ledger) tidy() {
	l.keepWAL()
	var busy, pages, moved int
	row := l.conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(NOOP)")
	if err := row.Scan(&busy, &pages, &moved); err != nil || pages-moved < walPages {
		return
	}
	row = l.conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)")
	if err := row.Scan(&busy, &pages, &moved); err != nil {
		l.log.Warn("the ledger's -wal file could not be copied back", "err", err)
	}
}

// storeError marks what the store did, as against a refusal.
type storeError struct{ err error }

func (e storeError) Error() string { return e.err.Error() }
func (e storeError) Unwrap() error { return e.err }

// txn is one transaction as a change sees it.
type txn struct {
	l       *Ledger
	ctx     context.Context
	now     Moment
	next    int64 // the number of the next event
	rows    []eventRow
	writes  []Write // rows written since the last event
	touched bool    // this change wrote something
	after   []func()
}

type eventRow struct {
	line                     []byte
	leaf                     tlog.Hash
	typ, cell, call, subject string
}

// wrote notes a row for the event to come.
func (t *txn) wrote(row string, body []byte) {
	t.touched = true
	w := Write{Row: row}
	if body != nil {
		sum := sha256.Sum256(body)
		w.Sum = hex.EncodeToString(sum[:])
	}
	t.writes = append(t.writes, w)
}

// emit adds an event that owns every row written since the one before.
func (t *txn) emit(ev Event) error {
	details, err := encodeDetails(ev.Details)
	if err != nil {
		return storeError{err}
	}
	ev = ev.bounded()
	t.add(ev, ev.encode(t.now, details, t.writes))
	t.writes = nil
	return nil
}

func (t *txn) add(ev Event, line []byte) {
	t.touched = true
	t.rows = append(t.rows, eventRow{line: line, leaf: tlog.RecordHash(line), typ: ev.Type, cell: ev.Cell,
		call: ev.Call, subject: ev.Subject})
	t.next++
}

// clip bounds what goes into an error or a reason.
func clip(s string) string {
	if len(s) > maxName {
		s = s[:maxName]
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// later runs fn in the writer once the transaction is durable.
func (t *txn) later(fn func()) { t.after = append(t.after, fn) }

// seal hashes the events and writes them.
func (t *txn) seal(h frontier, mac []byte) (frontier, []byte, error) {
	rows := t.rows
	args := make([]any, 0, insertSizes[0]*8)
	for len(rows) > 0 {
		i := slices.IndexFunc(insertSizes[:], func(n int) bool { return n <= len(rows) })
		n := insertSizes[i]
		args = args[:0]
		for _, r := range rows[:n] {
			num := h.size
			hashes := h.add(r.leaf)
			flat := make([]byte, 0, len(hashes)*tlog.HashSize)
			for i := range hashes {
				flat = append(flat, hashes[i][:]...)
			}
			mac = t.l.codes.code(mac, num, r.leaf)
			args = append(args, num, r.line, flat, mac, r.typ, r.cell, r.call, r.subject)
		}
		if _, err := t.l.stmts.insert[i].ExecContext(t.ctx, args...); err != nil {
			return h, nil, storeError{fmt.Errorf("write %d events: %w", n, err)}
		}
		rows = rows[n:]
	}
	return h, mac, nil
}

// sign keeps a checkpoint over head.
func (t *txn) sign(head frontier) ([]byte, error) {
	msg, err := Checkpoint{Origin: Origin, Size: head.size, Root: head.root()}.sign(t.l.signer)
	if err != nil {
		return nil, storeError{err}
	}
	if _, err := t.l.stmts.putCheckpoint.ExecContext(t.ctx, head.size, msg); err != nil {
		return nil, storeError{fmt.Errorf("keep a checkpoint: %w", err)}
	}
	return msg, nil
}

// put writes a row of the state table.
func (t *txn) put(kind, key string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return storeError{fmt.Errorf("encode %s %s: %w", kind, key, err)}
	}
	if _, err := t.l.stmts.putState.ExecContext(t.ctx, kind, key, t.next, body); err != nil {
		return storeError{fmt.Errorf("write %s %s: %w", kind, key, err)}
	}
	t.wrote(kind+"/"+key, body)
	return nil
}

// get reads a row of the state table; false if there is none.
func (t *txn) get(kind, key string, v any) (bool, error) {
	var body []byte
	err := t.l.stmts.getState.QueryRowContext(t.ctx, kind, key).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return false, storeError{fmt.Errorf("read %s %s: %w", kind, key, err)}
	}
	return true, nil
}

// del removes a row of the state table.
func (t *txn) del(kind, key string) error {
	if _, err := t.l.stmts.delState.ExecContext(t.ctx, kind, key); err != nil {
		return storeError{fmt.Errorf("delete %s %s: %w", kind, key, err)}
	}
	t.wrote(kind+"/"+key, nil)
	return nil
}

// insertSizes are how many events one statement takes, largest first.
var insertSizes = [...]int{32, 8, 2, 1}

// stmts are the writer's prepared statements.
type stmts struct {
	conn          *sql.Conn
	plain         map[string]*sql.Stmt // BEGIN IMMEDIATE, COMMIT, ROLLBACK
	insert        [len(insertSizes)]*sql.Stmt
	putCheckpoint *sql.Stmt
	putState      *sql.Stmt
	getState      *sql.Stmt
	delState      *sql.Stmt
	putFrame      *sql.Stmt
	getFrame      *sql.Stmt
	putCall       *sql.Stmt
	getCall       *sql.Stmt
	byDedup       *sql.Stmt
	byPass        *sql.Stmt
	countParked   *sql.Stmt
	all           []*sql.Stmt
}

func (s *stmts) exec(ctx context.Context, word string) error {
	_, err := s.plain[word].ExecContext(ctx)
	return err
}

func (s *stmts) close() {
	for _, st := range s.all {
		st.Close()
	}
}

// isLive is word for word the condition of the index calls_live: SQLite uses a partial index only where it sees that.
const isLive = "state IN ('parked', 'approved', 'executing')"

func (l *Ledger) prepare(ctx context.Context) error {
	s := &l.stmts
	s.conn = l.conn
	s.plain = map[string]*sql.Stmt{"BEGIN IMMEDIATE": nil, "COMMIT": nil, "ROLLBACK": nil}
	one := func(q string) (*sql.Stmt, error) {
		st, err := l.conn.PrepareContext(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("prepare %q: %w", q, err)
		}
		s.all = append(s.all, st)
		return st, nil
	}
	for word := range s.plain {
		st, err := one(word)
		if err != nil {
			return err
		}
		s.plain[word] = st
	}
	const insert = "INSERT INTO events (n, line, hashes, mac, type, cell, call, subject) VALUES "
	const values = "(?, ?, ?, ?, ?, ?, ?, ?)"
	for i, n := range insertSizes {
		st, err := one(insert + values + strings.Repeat(", "+values, n-1))
		if err != nil {
			return err
		}
		s.insert[i] = st
	}
	for _, p := range s.hot() {
		st, err := one(p.q)
		if err != nil {
			return err
		}
		*p.to = st
	}
	return nil
}

// prepared is a statement and what it says.
type prepared struct {
	to **sql.Stmt
	q  string
}

// hot are the statements of every change.
func (s *stmts) hot() []prepared {
	return []prepared{
		{&s.putCheckpoint, "INSERT OR REPLACE INTO checkpoints (size, note) VALUES (?, ?)"},
		{&s.putState, "INSERT OR REPLACE INTO state (kind, key, n, body) VALUES (?, ?, ?, ?)"},
		{&s.getState, "SELECT body FROM state WHERE kind = ? AND key = ?"},
		{&s.delState, "DELETE FROM state WHERE kind = ? AND key = ?"},
		{&s.putFrame, "INSERT INTO frames (id, n, body) VALUES (?, ?, ?)"},
		{&s.getFrame, "SELECT body FROM frames WHERE id = ?"},
		{&s.putCall, "INSERT INTO calls (id, n, cell, state, dedup, pass, fresh, body) " +
			"VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) " +
			"DO UPDATE SET n = excluded.n, state = excluded.state, pass = excluded.pass, " +
			"fresh = excluded.fresh, body = excluded.body"},
		{&s.getCall, "SELECT n, body FROM calls WHERE id = ?"},
		{&s.byDedup, "SELECT id, state FROM calls WHERE dedup = ? AND dedup <> '' " +
			"AND state IN ('parked', 'approved', 'executing', 'unknown') " +
			"ORDER BY state = 'unknown', id DESC LIMIT 1"},
		{&s.byPass, "SELECT id FROM calls WHERE pass = ? AND pass <> ''"},
		{&s.countParked, "SELECT count(*) FROM calls WHERE " + isLive + " AND state = 'parked' AND cell = ?"},
	}
}
