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
	"slices"
	"sync"
	"time"
)

// askDetails are the details of the first event of a call.
type askDetails struct {
	Connector string `json:"connector"`
	Account   string `json:"account,omitzero"`
	Login     uint64 `json:"login,omitzero"`
	Method    string `json:"method"`
	Class     string `json:"class"`
	Reach     string `json:"reach,omitzero"`
	Sensitive bool   `json:"sensitive,omitzero"`
	Attended  bool   `json:"attended,omitzero"`
	Run       string `json:"run,omitzero"`
	Hash      string `json:"hash"`
	Envelope  string `json:"envelope,omitzero"`
	Approval  string `json:"approval,omitzero"`
	Decision  string `json:"decision"`
	Policy    string `json:"policy,omitzero"`
	Reason    string `json:"reason,omitzero"`
	Next      string `json:"next,omitzero"`
	Under     string `json:"under,omitzero"`
	Pass      string `json:"pass,omitzero"`
	After     string `json:"after,omitzero"`
	Deadline  string `json:"deadline,omitzero"`
}

func (c *Call) ask() askDetails {
	d := askDetails{
		Connector: c.Connector, Account: c.Account, Login: c.Login, Method: c.Method, Class: c.Class, Reach: c.Reach,
		Sensitive: c.Sensitive, Attended: c.Attended, Run: c.Run, Hash: c.Hash, Envelope: c.Envelope,
		Approval: c.Approval, Decision: c.Decision, Policy: c.Policy, Reason: c.Reason, Next: c.Next, Under: c.Under,
		Pass: c.Pass, After: c.After,
	}
	if !c.Deadline.IsZero() {
		d.Deadline = c.Deadline.Time().Format(time.RFC3339)
	}
	return d
}

// moveDetails are the details of a change of state.
type moveDetails struct {
	From     State  `json:"from"`
	To       State  `json:"to"`
	Hash     string `json:"hash,omitzero"` // what was approved
	Scope    string `json:"scope,omitzero"`
	Pass     string `json:"pass,omitzero"`
	Code     string `json:"code,omitzero"`
	Why      string `json:"why,omitzero"`
	NotRun   bool   `json:"not_run,omitzero"`
	Object   string `json:"object,omitzero"`
	Status   int    `json:"status,omitzero"`
	Out      int64  `json:"out,omitzero"`
	In       int64  `json:"in,omitzero"`
	Releases int    `json:"releases,omitzero"`
	More     any    `json:"more,omitzero"`
}

// enter records a new call in its first state.
func (t *txn) enter(c *Call, to State, typ, actor string) error {
	if !May(None, to) {
		return fmt.Errorf("a call cannot begin as %q", to)
	}
	if c.ID == "" {
		return errors.New("a call without an id")
	}
	if c.Created.IsZero() {
		c.Created = t.now
	}
	c.State, c.Changed, c.By = to, t.now, actor
	if to == Executing {
		c.Executing = t.now
	}
	frame, err := json.Marshal(c.Frame)
	if err != nil {
		return fmt.Errorf("encode a call: %w", err)
	}
	if len(frame) > MaxFrame {
		return fmt.Errorf("%w: the call has %d bytes, at most %d fit", ErrTooLarge, len(frame), MaxFrame)
	}
	if _, err := t.l.stmts.putFrame.ExecContext(t.ctx, c.ID, t.next, frame); err != nil {
		return storeError{fmt.Errorf("write call %s: %w", c.ID, err)}
	}
	t.wrote("frames/"+c.ID, frame)
	if err := t.putCall(c, hexSum(frame)); err != nil {
		return err
	}
	ev := Event{Type: typ, Actor: actor, Cell: c.Cell, Session: c.Session, Call: c.ID, Details: c.ask()}
	if to == Denied {
		ev.Subject = c.Connector // what `why` looks for
	}
	if waits(to) {
		kept := *c
		t.later(func() { t.l.view.waiting(&kept) })
	}
	return t.emit(ev)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (t *txn) putCall(c *Call, frame string) error {
	b := callBody{ID: c.ID, Cell: c.Cell, Dedup: c.Dedup, Class: c.Class, Under: c.Under, Frame: frame,
		Progress: c.Progress}
	body, err := json.Marshal(b)
	if err != nil {
		return storeError{fmt.Errorf("encode call %s: %w", c.ID, err)}
	}
	c.N = t.next
	if _, err := t.l.stmts.putCall.ExecContext(t.ctx, c.ID, t.next, c.Cell, string(c.State), c.Dedup, c.Pass, b.fresh(),
		body); err != nil {
		return storeError{fmt.Errorf("write call %s: %w", c.ID, err)}
	}
	t.wrote("calls/"+c.ID, body)
	return nil
}

// fresh says whether the call shows in its cell's inbox.
func (b *callBody) fresh() int {
	if b.Inbox && b.Collected.IsZero() {
		return 1
	}
	return 0
}

// call reads a call; a StateError says that there is none.
func (t *txn) call(id string, want State) (c Call, frame string, err error) {
	var n int64
	var body, fixed []byte
	err = t.l.stmts.getCall.QueryRowContext(t.ctx, id).Scan(&n, &body)
	if errors.Is(err, sql.ErrNoRows) {
		return Call{}, "", &StateError{ID: clip(id), Want: want}
	}
	if err == nil {
		err = t.l.stmts.getFrame.QueryRowContext(t.ctx, id).Scan(&fixed)
	}
	if err != nil {
		return Call{}, "", storeError{fmt.Errorf("read call %s: %w", id, err)}
	}
	c, frame, err = decodeCall(n, body, fixed)
	if err != nil {
		return Call{}, "", storeError{err}
	}
	return c, frame, nil
}

func decodeCall(n int64, body, fixed []byte) (Call, string, error) {
	var b callBody
	c := Call{N: n}
	if err := json.Unmarshal(body, &b); err != nil {
		return Call{}, "", fmt.Errorf("%w: a call's row: %w", ErrCorrupt, err)
	}
	if err := json.Unmarshal(fixed, &c.Frame); err != nil {
		return Call{}, "", fmt.Errorf("%w: a call's frame: %w", ErrCorrupt, err)
	}
	if b.ID != c.ID || b.Frame != hexSum(fixed) {
		return Call{}, "", fmt.Errorf("%w: the row of call %s does not fit its frame", ErrCorrupt, c.ID)
	}
	c.Progress = b.Progress
	return c, b.Frame, nil
}

// move takes a call from the state it has to another, if the machine allows it, as one event.
func (t *txn) move(id string, to State, typ, actor string, change func(*Call, *moveDetails) error) (Call, error) {
	c, frame, err := t.call(id, to)
	if err != nil {
		return Call{}, err
	}
	if !May(c.State, to) {
		return c, &StateError{ID: id, Have: c.State, Want: to, By: c.By, At: c.Changed}
	}
	d := moveDetails{From: c.State, To: to}
	if change != nil {
		if err := change(&c, &d); err != nil {
			return c, err
		}
	}
	c.State, c.Changed, c.By = to, t.now, actor
	if err := t.putCall(&c, frame); err != nil {
		return c, err
	}
	if waits(d.From) { // what waited runs now, or has ended, or is approved
		kept := c
		t.later(func() { t.l.view.waiting(&kept) })
	}
	d.Pass, d.Object, d.Status, d.Out, d.In, d.Releases = c.Pass, c.Object, c.Status, c.Out, c.In, len(c.Releases)
	return c, t.emit(Event{Type: typ, Actor: actor, Cell: c.Cell, Session: c.Session, Call: id, Details: d})
}

// Refuse records a call that policy denied. Durable when it returns.
func (l *Ledger) Refuse(ctx context.Context, c Call, actor string) (Call, error) {
	c.Progress = Progress{Outcome: c.Reason, NotRun: true}
	err := l.do(ctx, func(t *txn) error { return t.enter(&c, Denied, EvDeny, actor) })
	return c, err
}

// Park records a call that waits for a person. An equal one that is on its way is joined instead: then joined is true
// and the call is that one. Where an equal one may have run, After names it. ErrTooMany: the cell has MaxParked
// waiting; what is of no cell is not counted.
func (l *Ledger) Park(ctx context.Context, c Call, actor string) (got Call, joined bool, err error) {
	err = l.do(ctx, func(t *txn) error {
		got, joined = c, false
		other, state, err := t.equal(&c)
		if err != nil {
			return err
		}
		if state.Live() {
			joined = true
			got, err = t.join(other, actor)
			return err
		}
		got.After = other
		if c.Cell != "" { // a widening is of none; sentinel bounds those
			var n int
			if err := t.l.stmts.countParked.QueryRowContext(t.ctx, c.Cell).Scan(&n); err != nil {
				return storeError{fmt.Errorf("count what waits: %w", err)}
			}
			if n >= MaxParked {
				return fmt.Errorf("%w: %d of cell %s; answer or cancel some", ErrTooMany, n, c.Cell)
			}
		}
		got.Progress = Progress{Inbox: true}
		return t.enter(&got, Parked, EvPark, actor)
	})
	return got, joined, err
}

// Begin records an allowed write as executing, durable before anything leaves. Like Park it joins an equal one that
// is on its way; where an equal one may have run already it returns ErrMayRun and the caller must park it. c.Under's
// use is reserved in the same transaction: ErrSpent if there is none. c.Pass is authd's grant; c.Inbox keeps the call
// in the cell's inbox until its result is collected.
func (l *Ledger) Begin(ctx context.Context, c Call, actor string) (got Call, joined bool, err error) {
	c.Progress = Progress{Pass: c.Pass, Inbox: c.Inbox}
	err = l.do(ctx, func(t *txn) error {
		got, joined = c, false
		other, state, err := t.equal(&c)
		if err != nil {
			return err
		}
		if state.Live() {
			joined = true
			got, err = t.join(other, actor)
			return err
		}
		if state == Unknown {
			return fmt.Errorf("%w: call %s", ErrMayRun, other)
		}
		return t.begin(&got, actor)
	})
	return got, joined, err
}

// Start is Begin for a read. It returns at once and joins nothing: the labels of the answer are on the cell, and the
// read counts, from now on. The record begins with the ticket's Go, and is durable when its Wait returns, before the
// result may be released. The ticket must be waited for.
func (l *Ledger) Start(ctx context.Context, c Call, actor string) *Ticket {
	c.Progress = Progress{Pass: c.Pass, Inbox: c.Inbox}
	l.view.reading(&c, 1)
	got := c
	o := &op{
		size: len(c.Canonical) + len(c.Card) + 1024,
		done: make(chan struct{}),
		apply: func(t *txn) error {
			got = c
			return t.begin(&got, actor)
		},
		after: func(err error) {
			l.view.started(&c)
			if err != nil {
				l.view.reading(&c, -1)
			}
		},
	}
	return &Ticket{o: o, queue: sync.OnceFunc(func() { l.submit(ctx, o) })}
}

// begin takes the grant's use, sets the labels and enters the call.
func (t *txn) begin(c *Call, actor string) error {
	if c.Under != "" {
		if err := t.useGrant(c.Under); err != nil {
			return err
		}
	}
	if err := t.enter(c, Executing, EvStart, actor); err != nil {
		return err
	}
	return t.label(c.Cell, c.Labels, Cause{Call: c.ID, Connector: c.Connector, Method: c.Method}, sentinel)
}

// equal finds an equal call that is on its way, or else one that may have run.
func (t *txn) equal(c *Call) (id string, s State, err error) {
	if c.Dedup == "" {
		return "", None, nil
	}
	err = t.l.stmts.byDedup.QueryRowContext(t.ctx, c.Dedup).Scan(&id, &s)
	if errors.Is(err, sql.ErrNoRows) {
		return "", None, nil
	}
	if err != nil {
		return "", None, storeError{fmt.Errorf("look for an equal call: %w", err)}
	}
	return id, s, nil
}

func (t *txn) join(id, actor string) (Call, error) {
	c, _, err := t.call(id, None)
	if err != nil {
		return Call{}, err
	}
	return c, t.emit(Event{Type: EvJoin, Actor: actor, Cell: c.Cell, Session: c.Session, Call: id})
}

// Approval is a person's yes.
type Approval struct {
	ID      string
	By      string // "person:UID" or "passkey:NAME"
	Hash    string // what the yes is over; must be the call's
	Scope   string // once, session, until, standing
	Grant   *Grant // what the yes grants beyond this call; nil for once
	Details any    // how it was given, for the record
}

// Approve takes a parked call to approved. Of two at once one wins; the other gets a StateError that names it. After
// its deadline the call becomes expired, and ErrExpired says so. ErrChanged: the yes was over something else.
func (l *Ledger) Approve(ctx context.Context, a Approval) (Call, error) {
	var c Call
	var late bool
	err := l.do(ctx, func(t *txn) (err error) {
		late = false
		c, _, err = t.call(a.ID, Approved)
		if err != nil {
			return err
		}
		if c.State == Parked && t.now.Reached(c.Deadline) {
			late = true
			c, err = t.expire(a.ID)
			return err
		}
		c, err = t.approve(&a)
		if err == nil && a.Grant != nil {
			g := *a.Grant
			g.Call = a.ID
			_, err = t.addGrant(g, a.By)
		}
		return err
	})
	if err == nil && late {
		return c, fmt.Errorf("call %s: %w at %s", a.ID, ErrExpired, c.Deadline.Time().Format(time.RFC3339))
	}
	return c, err
}

func (t *txn) approve(a *Approval) (Call, error) {
	return t.move(a.ID, Approved, EvApprove, a.By, func(c *Call, d *moveDetails) error {
		if a.Hash != c.Approval || a.Hash == "" {
			return fmt.Errorf("%w: the approval is over %.16s, call %s is %.16s; look at it again", ErrChanged, a.Hash, a.ID, c.Approval)
		}
		c.Approver, c.Scope = a.By, a.Scope
		d.Hash, d.Scope, d.More = a.Hash, a.Scope, a.Details
		return nil
	})
}

func (t *txn) expire(id string) (Call, error) {
	return t.move(id, Expired, EvExpire, sentinel, func(c *Call, d *moveDetails) error {
		c.Outcome, c.NotRun = "expired", true
		d.Code, d.NotRun = c.Outcome, true
		return nil
	})
}

// Execute takes an approved call to executing under authd's grant pass. After its deadline the call becomes expired.
func (l *Ledger) Execute(ctx context.Context, id, pass string) (Call, error) {
	var c Call
	var late bool
	err := l.do(ctx, func(t *txn) (err error) {
		late = false
		c, _, err = t.call(id, Executing)
		if err != nil {
			return err
		}
		if c.State == Approved && t.now.Reached(c.Deadline) {
			late = true
			c, err = t.expire(id)
			return err
		}
		c, err = t.move(id, Executing, EvExecute, sentinel, func(c *Call, _ *moveDetails) error {
			c.Pass, c.Executing = pass, t.now
			return nil
		})
		if err != nil {
			return err
		}
		return t.label(c.Cell, c.Labels, Cause{Call: c.ID, Connector: c.Connector, Method: c.Method}, sentinel)
	})
	if err == nil && late {
		return c, fmt.Errorf("call %s: %w before it ran", id, ErrExpired)
	}
	return c, err
}

// Finish ends an executing call, or one that could not be started (approved to failed). Settle decides an unknown one.
func (l *Ledger) Finish(ctx context.Context, id string, o Outcome, actor string) (Call, error) {
	return l.end(ctx, id, o, actor, EvFinish)
}

// Settle decides an unknown call: by its mark at the vendor, a late finish or a late report of egress.
func (l *Ledger) Settle(ctx context.Context, id string, o Outcome, actor string) (Call, error) {
	return l.end(ctx, id, o, actor, EvSettle)
}

func (l *Ledger) end(ctx context.Context, id string, o Outcome, actor, typ string) (Call, error) {
	var c Call
	if o.State != Done && o.State != Failed && o.State != Unknown {
		return c, fmt.Errorf("end call %s: %q is not an end", id, o.State)
	}
	if o.NotRun && o.State != Failed {
		return c, fmt.Errorf("end call %s: only a failed call has surely not run", id)
	}
	err := l.do(ctx, func(t *txn) (err error) {
		c, err = t.move(id, o.State, typ, actor, func(c *Call, d *moveDetails) error {
			if (typ == EvSettle) != (c.State == Unknown) {
				return &StateError{ID: id, Have: c.State, Want: o.State, By: c.By, At: c.Changed}
			}
			events, err := c.told(o.Told)
			if err != nil {
				return err
			}
			if o.NotRun && len(c.Releases) > 0 {
				return fmt.Errorf("end call %s: the credential was released %d times, so it may have run", id, len(c.Releases))
			}
			if err := t.emitTold(c, events); err != nil {
				return err
			}
			c.Outcome, c.Why, c.NotRun = o.Code, clip(o.Why), o.NotRun
			if o.Object != "" {
				c.Object = clip(o.Object)
			}
			if o.Result != "" {
				c.Result = o.Result
			}
			if o.Status != 0 {
				c.Status = o.Status
			}
			c.In = max(c.In, o.In)
			d.Code, d.Why, d.NotRun = c.Outcome, c.Why, c.NotRun
			return nil
		})
		if err != nil {
			return err
		}
		if o.NotRun && c.Under != "" {
			return t.giveBack(c.Under, id)
		}
		return nil
	})
	return c, err
}

const classRead = "read"

// Deny is a person's no to a parked call.
func (l *Ledger) Deny(ctx context.Context, id, by, why string) (Call, error) {
	var c Call
	err := l.do(ctx, func(t *txn) (err error) {
		c, err = t.stop(id, Denied, EvDeny, by, "denied", why)
		return err
	})
	return c, err
}

// Revoke takes back a parked or approved call: the cell cancelled it, or a person stopped it. Code says which.
func (l *Ledger) Revoke(ctx context.Context, id, by, code, why string) (Call, error) {
	var c Call
	err := l.do(ctx, func(t *txn) (err error) {
		c, err = t.stop(id, Revoked, EvRevoke, by, code, why)
		return err
	})
	return c, err
}

func (t *txn) stop(id string, to State, typ, by, code, why string) (Call, error) {
	return t.move(id, to, typ, by, func(c *Call, d *moveDetails) error {
		c.Outcome, c.Why, c.NotRun = code, clip(why), true
		d.Code, d.Why, d.NotRun = code, c.Why, true
		return nil
	})
}

// DropParked revokes every parked and approved call of a cell, or of all cells if cell is "", as the switch does. It
// returns them, and what was executing then and so may have run.
func (l *Ledger) DropParked(ctx context.Context, cell, by, code, why string) (dropped, executing []Call, err error) {
	err = l.do(ctx, func(t *txn) error {
		dropped, executing = nil, nil
		ids, err := t.ids("SELECT id FROM calls WHERE "+isLive+" AND (?1 = '' OR cell = ?1)", cell)
		if err != nil {
			return err
		}
		for _, id := range ids {
			c, _, err := t.call(id, Revoked)
			if err != nil {
				return err
			}
			if c.State == Executing {
				executing = append(executing, c)
				continue
			}
			if c, err = t.stop(id, Revoked, EvRevoke, by, code, why); err != nil {
				return err
			}
			dropped = append(dropped, c)
		}
		return nil
	})
	return dropped, executing, err
}

func (t *txn) ids(q string, args ...any) ([]string, error) {
	rows, err := t.l.conn.QueryContext(t.ctx, q, args...)
	if err != nil {
		return nil, storeError{err}
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, storeError{err}
		}
		out = append(out, id)
	}
	if err := rows.Err(); err != nil {
		return nil, storeError{err}
	}
	return out, nil
}

// Expire ends every parked or approved call whose deadline has come, and every grant. It returns those calls. While
// nothing is due it reads no file: it is asked every second.
func (l *Ledger) Expire(ctx context.Context) (calls []Call, grants []Grant, err error) {
	now := l.now()
	due := l.view.due(now)
	over := slices.DeleteFunc(l.Grants(GrantFilter{Live: true}), func(g Grant) bool { return !now.Reached(g.Until) })
	if len(due) == 0 && len(over) == 0 {
		return nil, nil, nil
	}
	err = l.do(ctx, func(t *txn) error {
		calls, grants = nil, nil
		for _, id := range due {
			c, err := t.expire(id)
			var se *StateError
			if errors.As(err, &se) {
				continue // somebody was faster
			}
			if err != nil {
				return err
			}
			calls = append(calls, c)
		}
		for _, o := range over {
			g, err := t.endGrant(o.ID, GrantExpired, sentinel, "its time is over")
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			grants = append(grants, g)
		}
		return nil
	})
	return calls, grants, err
}

// Collect notes that the cell has taken the result: the call leaves its inbox. Labels must be on the cell before.
func (l *Ledger) Collect(ctx context.Context, id, cell string) (Call, error) {
	var c Call
	err := l.do(ctx, func(t *txn) error {
		var frame string
		var err error
		c, frame, err = t.call(id, None)
		if err != nil {
			return err
		}
		if c.Cell != cell {
			return &StateError{ID: id} // another cell's call does not exist for this one
		}
		if !c.State.Final() && c.State != Unknown {
			return &StateError{ID: id, Have: c.State, Want: c.State, By: c.By, At: c.Changed}
		}
		if !c.Collected.IsZero() {
			return nil
		}
		c.Collected = t.now
		why := Cause{Call: c.ID, Connector: c.Connector, Method: c.Method}
		if err := t.label(c.Cell, c.Labels, why, sentinel); err != nil {
			return err
		}
		if err := t.putCall(&c, frame); err != nil {
			return err
		}
		return t.emit(Event{Type: EvCollect, Actor: "cell:" + cell, Cell: cell, Session: c.Session, Call: id})
	})
	return c, err
}

// Release is one release of a credential, as authd reports it.
type Release struct {
	Pass    string `json:"pass"` // authd's grant
	Seq     int64  `json:"seq"`  // authd's number of it
	Entry   string `json:"entry,omitzero"`
	Call    string `json:"call,omitzero"`
	Cell    string `json:"cell,omitzero"`
	Worker  string `json:"worker,omitzero"`
	Account string `json:"account,omitzero"`
}

// Sent is one request that left, as egress reports it.
type Sent struct {
	Pass   string `json:"pass"`
	Host   string `json:"host"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Status int    `json:"status"` // 0: no answer came
	Out    int64  `json:"out"`
	In     int64  `json:"in"`
	Err    string `json:"err,omitzero"`
	Report string `json:"report,omitzero"` // egress's number of it; one that stands twice was told twice
}

// Told is what authd or egress said of a call: one of the two is set.
type Told struct {
	Release *Release
	Sent    *Sent
}

// maxTold bounds what one call's row keeps of each kind; an envelope allows far fewer.
const maxTold = 4096

// Tell records what was said of the call of one grant, in one transaction, and adds it up in the call. What was told
// before changes nothing. What no call has is recorded too, and ErrNotFound returned.
func (l *Ledger) Tell(ctx context.Context, pass string, list ...Told) (Call, error) {
	var c Call
	var orphan bool
	err := l.do(ctx, func(t *txn) error {
		got, frame, err := t.byPass(pass)
		if orphan = errors.Is(err, ErrNotFound); err != nil && !orphan {
			return err
		}
		c = got
		events, err := c.told(list)
		if err != nil || len(events) == 0 {
			return err
		}
		if !orphan {
			if err := t.putCall(&c, frame); err != nil {
				return err
			}
		}
		return t.emitTold(&c, events)
	})
	if err == nil && orphan {
		err = fmt.Errorf("a report of grant %q: %w", clip(pass), ErrNotFound)
	}
	return c, err
}

// told adds up in c what of a list is new, and returns the events of that.
func (c *Call) told(list []Told) ([]Event, error) {
	n := c.Progress
	n.Releases, n.Reports = slices.Clone(n.Releases), slices.Clone(n.Reports)
	var events []Event
	for _, r := range list {
		ev := Event{Cell: c.Cell, Session: c.Session, Call: c.ID}
		switch {
		case r.Release != nil:
			i, have := slices.BinarySearch(n.Releases, r.Release.Seq)
			if have {
				continue
			}
			n.Releases = slices.Insert(n.Releases, i, r.Release.Seq)
			ev.Type, ev.Actor, ev.Details = EvReleased, "authd", r.Release
			if c.ID == "" { // the record never got the call, or was put back
				ev.Call, ev.Cell = r.Release.Call, r.Release.Cell
			}
		case r.Sent != nil:
			if r.Sent.Report != "" {
				id := hexSum([]byte(r.Sent.Report))[:16]
				if slices.Contains(n.Reports, id) {
					continue
				}
				n.Reports = append(n.Reports, id)
			}
			n.Out, n.In = n.Out+r.Sent.Out, n.In+r.Sent.In
			if r.Sent.Status != 0 {
				n.Status = r.Sent.Status
			}
			ev.Type, ev.Actor, ev.Details = EvSent, "egress", r.Sent
		default:
			return nil, errors.New("a report of nothing")
		}
		events = append(events, ev)
	}
	if len(n.Releases) > maxTold || len(n.Reports) > maxTold {
		return nil, fmt.Errorf("%w: call %s has %d releases and %d reports", ErrTooMany, c.ID, len(c.Releases), len(c.Reports))
	}
	c.Progress = n
	return events, nil
}

// emitTold emits what told returned.
func (t *txn) emitTold(c *Call, events []Event) error {
	var read int64
	for _, ev := range events {
		if err := t.emit(ev); err != nil {
			return err
		}
		if s, ok := ev.Details.(*Sent); ok {
			read += s.In
		}
	}
	if c.Class == classRead && read > 0 {
		of := *c
		t.later(func() { t.l.view.read(&of, 0, read) })
	}
	return nil
}

func (t *txn) byPass(pass string) (Call, string, error) {
	var id string
	err := t.l.stmts.byPass.QueryRowContext(t.ctx, pass).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) || pass == "" {
		return Call{}, "", &StateError{ID: clip(pass)}
	}
	if err != nil {
		return Call{}, "", storeError{fmt.Errorf("look for a grant's call: %w", err)}
	}
	return t.call(id, None)
}
