// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Record adds an event that changes no state, durable when it returns.
func (l *Ledger) Record(ctx context.Context, ev Event) error { return l.Append(ctx, ev).Wait(ctx) }

// RecordUnder is Record of something that a grant lets through, one use of which it takes in the same transaction. ErrSpent:
// there is none, or the grant does not live. With no grant it is Record.
func (l *Ledger) RecordUnder(ctx context.Context, ev Event, grant string) error {
	if grant == "" {
		return l.Record(ctx, ev)
	}
	return l.do(ctx, func(t *txn) error {
		if err := t.useGrant(grant); err != nil {
			return err
		}
		return t.emit(ev)
	})
}

// Append is Record without the wait.
func (l *Ledger) Append(ctx context.Context, ev Event) *Ticket {
	details, err := encodeDetails(ev.Details)
	if err != nil {
		return failed(err)
	}
	ev = ev.bounded()
	line := ev.encode(l.now(), details, nil)
	return l.submit(ctx, &op{size: len(line) + 64, apply: func(t *txn) error {
		t.add(ev, line)
		return nil
	}})
}

// Refusal is something that was refused before there was a call: a caller without identity, a request that no grant
// covers. A stranger can cause any number of them, so equal ones are counted, not listed.
type Refusal struct {
	By     string `json:"by"`     // who refused: "egress", "peer", "authd"
	Cell   string `json:"cell"`   // whose caller, if known
	Host   string `json:"host"`   // or what else was asked for
	Reason string `json:"reason"` // reason code
	Next   string `json:"next"`   // the remedy, in words
	Call   string `json:"call"`   // the call that it was under, if any
	Detail string `json:"detail"` // what exactly was off; refusals that differ in it are not equal
	More   any    `json:"more,omitzero"`
}

// refusals adds equal refusals up.
type refusals struct {
	mu    sync.Mutex // guards what follows
	open  map[refusalKey]*refusalSum
	timer *time.Timer
}

type refusalKey struct{ by, cell, host, reason, call, detail string }

type refusalSum struct {
	first Refusal
	more  int // beyond the one that was recorded at once
}

// Bounds of the sums of refusals.
const (
	refusalWindow = 10 * time.Second
	maxRefusals   = 256 // different ones in a window; what is beyond is counted by who refused and why
)

type refusalDetails struct {
	Reason string `json:"reason"`
	Next   string `json:"next,omitzero"`
	Detail string `json:"detail,omitzero"`
	Times  int    `json:"times,omitzero"` // how many more there were, when it is a sum
	More   any    `json:"more,omitzero"`
}

// Refused records a refusal: the first of its kind at once (durable when it returns), equal ones within 10 s as one
// sum.
func (l *Ledger) Refused(ctx context.Context, r Refusal) error {
	k := refusalKey{clip(r.By), clip(r.Cell), clip(r.Host), clip(r.Reason), clip(r.Call), clip(r.Detail)}
	s := &l.refused
	s.mu.Lock()
	if s.open == nil {
		s.open = map[refusalKey]*refusalSum{}
	}
	sum, again := s.open[k]
	if !again && len(s.open) >= maxRefusals {
		k = refusalKey{by: k.by, reason: k.reason}
		r = Refusal{By: r.By, Reason: r.Reason, Next: "too many different ones to list"}
		sum, again = s.open[k]
	}
	if again {
		sum.more++
		s.mu.Unlock()
		return nil
	}
	s.open[k] = &refusalSum{first: r}
	if s.timer == nil {
		s.timer = time.AfterFunc(refusalWindow, l.flushRefusals)
	}
	s.mu.Unlock()
	return l.Record(ctx, r.event(0))
}

func (r Refusal) event(times int) Event {
	return Event{Type: EvRefused, Actor: r.By, Cell: r.Cell, Call: r.Call, Subject: r.Host,
		Details: refusalDetails{Reason: r.Reason, Next: r.Next, Detail: clip(r.Detail), Times: times, More: r.More}}
}

// flushRefusals records the sums and begins a new window.
func (l *Ledger) flushRefusals() {
	s := &l.refused
	s.mu.Lock()
	sums := s.open
	s.open, s.timer = nil, nil
	s.mu.Unlock()
	for _, sum := range sums {
		if sum.more > 0 {
			l.Append(context.Background(), sum.first.event(sum.more))
		}
	}
}

// Rewind is for a ledger that is older than a checkpoint that somebody else kept: approved calls are void, executing
// ones unknown, standing grants need confirming. It returns what it changed. The checkpoint, which may be nil, is
// remembered with it: see Rewound.
func (l *Ledger) Rewind(ctx context.Context, why string, checkpoint []byte) (calls []Call, grants []Grant, err error) {
	err = l.do(ctx, func(t *txn) error {
		calls, grants = nil, nil
		if checkpoint != nil {
			s := Setting{Key: rewoundKey, Value: []byte(hexSum(checkpoint)), By: sentinel, At: t.now}
			if err := t.put(kindSetting, s.Key, s); err != nil {
				return err
			}
			t.later(func() { l.view.setSetting(s) })
		}
		if err := t.emit(Event{Type: EvRewound, Actor: sentinel, Details: alarmDetails{Reason: clip(why)}}); err != nil {
			return err
		}
		ids, err := t.ids("SELECT id FROM calls WHERE " + isLive + " AND state IN ('approved', 'executing')")
		if err != nil {
			return err
		}
		for _, id := range ids {
			c, _, err := t.call(id, Unknown)
			if err != nil {
				return err
			}
			if c.State == Approved {
				c, err = t.stop(id, Revoked, EvRevoke, sentinel, "rewound", why)
			} else {
				c, err = t.move(id, Unknown, EvFinish, sentinel, func(c *Call, d *moveDetails) error {
					c.Outcome, c.Why = "rewound", clip(why)
					d.Code, d.Why = c.Outcome, c.Why
					return nil
				})
			}
			if err != nil {
				return err
			}
			calls = append(calls, c)
		}
		all, err := t.grants()
		if err != nil {
			return err
		}
		for _, g := range all {
			if g.State != GrantLive || (g.Kind != KindStanding && g.Kind != KindUntil) {
				continue
			}
			if g, err = t.endGrant(g.ID, GrantUnconfirmed, sentinel, why); err != nil {
				return err
			}
			grants = append(grants, g)
		}
		return nil
	})
	return calls, grants, err
}

// rewoundKey is the setting that names the checkpoint of the last Rewind.
const rewoundKey = "rewound"

// Rewound says whether the last Rewind was for this very checkpoint. Who keeps it gives it again and again until the
// record has outgrown it, and what a person has confirmed since holds.
func (l *Ledger) Rewound(checkpoint []byte) bool {
	s, ok := l.Setting(rewoundKey)
	return ok && string(s.Value) == hexSum(checkpoint)
}

// ErrOlder is returned by Against: the ledger is not the one that the checkpoint was taken from, or an older copy of
// it.
var ErrOlder = errors.New("the ledger is older than its checkpoint, or another one")

// Against compares the open ledger with a checkpoint that somebody else kept, as authd does. ErrOlder: call Rewind.
func (l *Ledger) Against(ctx context.Context, msg []byte) error {
	cp, err := VerifyCheckpoint(msg, Origin, publicKey(l.key))
	if err != nil {
		return err
	}
	size, _ := l.Head()
	if cp.Size > size {
		return fmt.Errorf("%w: the checkpoint covers %d entries, the ledger has %d", ErrOlder, cp.Size, size)
	}
	root, err := rootAt(ctx, l.reads(), cp.Size)
	if err != nil {
		return err
	}
	if root != cp.Root {
		return fmt.Errorf("%w: within its first %d entries it differs", ErrOlder, cp.Size)
	}
	return nil
}

// Filter chooses calls; empty fields match all.
type Filter struct {
	Cell   string
	States []State
	Before string // only ids below this one: the next page
	// Peek is asked first, with the id and the bytes of the rows: JSON, in which what is text stands as encoding/json writes it. What it
	// does not want is not decoded; its error ends the reading.
	Peek  func(id string, rows ...[]byte) (bool, error)
	Since time.Time // only calls that were made then or later, by their ids; zero: all
	Until time.Time // and before then
	Limit int       // 0 means no limit
	Inbox bool      // only what the cell has not collected
}

// sql returns the query of f.
func (f Filter) sql() (string, []any, error) {
	q := "SELECT c.id, c.n, c.body, f.body FROM calls c JOIN frames f USING (id) WHERE 1 = 1"
	var args []any
	if f.Cell != "" {
		q += " AND c.cell = ?"
		args = append(args, f.Cell)
	}
	if len(f.States) > 0 {
		if !slices.ContainsFunc(f.States, func(s State) bool { return !s.Live() }) {
			q += " AND c." + isLive
		}
		q += " AND c.state IN ("
		for i, s := range f.States {
			if i > 0 {
				q += ", "
			}
			q += "'" + string(s) + "'"
			if !slices.Contains(States(), s) {
				return "", nil, fmt.Errorf("list calls: no state %q", clip(string(s)))
			}
		}
		q += ")"
	}
	if f.Inbox {
		q += " AND c.fresh = 1"
	}
	if f.Before != "" {
		q += " AND c.id < ?"
		args = append(args, f.Before)
	}
	if !f.Since.IsZero() {
		q += " AND c.id >= ?"
		args = append(args, idAt(f.Since))
	}
	if !f.Until.IsZero() {
		q += " AND c.id < ?"
		args = append(args, idAt(f.Until))
	}
	q += " ORDER BY c.id DESC"
	if f.Limit > 0 {
		q += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	return q, args, nil
}

// Calls returns the calls that f chooses, newest first.
func (l *Ledger) Calls(ctx context.Context, f Filter) ([]Call, error) {
	var out []Call
	err := l.EachCall(ctx, f, func(c *Call) error {
		out = append(out, *c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// EachCall calls fn for each call that f chooses, newest first, until fn or Peek fails; that error it returns as it is.
func (l *Ledger) EachCall(ctx context.Context, f Filter, fn func(*Call) error) error {
	q, args, err := f.sql()
	if err != nil {
		return err
	}
	rows, err := l.reads().QueryContext(ctx, q, args...)
	if err != nil {
		return l.say(fmt.Errorf("list calls: %w", err))
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		var id string
		var body, fixed []byte
		if err := rows.Scan(&id, &n, &body, &fixed); err != nil {
			return fmt.Errorf("list calls: %w", err)
		}
		if f.Peek != nil {
			if wanted, err := f.Peek(id, body, fixed); err != nil {
				return err
			} else if !wanted {
				continue
			}
		}
		c, _, err := decodeCall(n, body, fixed)
		if err != nil {
			return err
		}
		if err := fn(&c); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Call returns one call as it is durable now, or ErrNotFound.
func (l *Ledger) Call(ctx context.Context, id string) (Call, error) {
	var n int64
	var body, fixed []byte
	const q = "SELECT c.n, c.body, f.body FROM calls c JOIN frames f USING (id) WHERE c.id = ?"
	err := l.reads().QueryRowContext(ctx, q, id).
		Scan(&n, &body, &fixed)
	if isNoRows(err) {
		return Call{}, fmt.Errorf("call %s: %w", clip(id), ErrNotFound)
	}
	if err != nil {
		return Call{}, l.say(fmt.Errorf("read call %s: %w", clip(id), err))
	}
	c, _, err := decodeCall(n, body, fixed)
	return c, err
}

// CallOf returns the call that runs under authd's grant pass, or ErrNotFound.
func (l *Ledger) CallOf(ctx context.Context, pass string) (Call, error) {
	var id string
	err := l.reads().QueryRowContext(ctx, "SELECT id FROM calls WHERE pass = ? AND pass <> ''", pass).Scan(&id)
	if isNoRows(err) {
		return Call{}, fmt.Errorf("the call of grant %s: %w", clip(pass), ErrNotFound)
	}
	if err != nil {
		return Call{}, l.say(fmt.Errorf("look for the call of grant %s: %w", clip(pass), err))
	}
	return l.Call(ctx, id)
}
