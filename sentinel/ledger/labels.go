// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"slices"
)

const (
	kindLabel   = "label"
	kindSession = "session"
	kindSetting = "setting"
)

// maxCauses is how many causes a label keeps; the record has all.
const maxCauses = 8

// Cause is why a cell has a label.
type Cause struct {
	Call      string `json:"call,omitzero"`
	Connector string `json:"connector,omitzero"`
	Method    string `json:"method,omitzero"`
	At        Moment `json:"at"`
}

// Label is one label of a cell.
type Label struct {
	Cell   string  `json:"cell"`
	Name   string  `json:"name"`
	Causes []Cause `json:"causes"`
}

type labelDetails struct {
	Label     string `json:"label"`
	Connector string `json:"connector,omitzero"`
	Method    string `json:"method,omitzero"`
}

// label puts labels on a cell. A cause of a kind that the label has already, or one too many, changes nothing.
func (t *txn) label(cell string, names []string, why Cause, actor string) error {
	why.At = t.now
	for _, name := range names {
		lb := Label{Cell: cell, Name: name}
		if _, err := t.get(kindLabel, cell+"/"+name, &lb); err != nil {
			return err
		}
		if len(lb.Causes) >= maxCauses || slices.ContainsFunc(lb.Causes, func(c Cause) bool {
			return c.Connector == why.Connector && c.Method == why.Method
		}) {
			continue
		}
		lb.Causes = append(lb.Causes, why)
		if err := t.put(kindLabel, cell+"/"+name, lb); err != nil {
			return err
		}
		t.later(func() { t.l.view.setLabel(lb) })
		if err := t.emit(Event{Type: EvLabel, Actor: actor, Cell: cell, Call: why.Call, Subject: name,
			Details: labelDetails{name, why.Connector, why.Method}}); err != nil {
			return err
		}
	}
	return nil
}

// AddLabels puts labels on a cell, durable when it returns.
func (l *Ledger) AddLabels(ctx context.Context, cell string, names []string, why Cause, actor string) error {
	return l.do(ctx, func(t *txn) error { return t.label(cell, names, why, actor) })
}

// ClearLabels takes labels off a cell: a widening, decided by a person. No names means all. It returns what it took
// off.
func (l *Ledger) ClearLabels(ctx context.Context, cell string, names []string, by string,
	details any) ([]string, error) {
	var out []string
	err := l.do(ctx, func(t *txn) error {
		have, err := t.ids("SELECT key FROM state WHERE kind = 'label' AND substr(key, 1, length(?1)) = ?1", cell+"/")
		if err != nil {
			return err
		}
		out = nil
		for _, key := range have {
			name := key[len(cell)+1:]
			if len(names) > 0 && !slices.Contains(names, name) {
				continue
			}
			if err := t.del(kindLabel, key); err != nil {
				return err
			}
			t.later(func() { t.l.view.clearLabel(cell, name) })
			out = append(out, name)
		}
		if len(out) == 0 {
			return nil
		}
		return t.emit(Event{Type: EvClear, Actor: by, Cell: cell, Details: details})
	})
	return out, err
}

// Session is one start of a cell, or one run in it.
type Session struct {
	ID       string `json:"id"`
	Cell     string `json:"cell"`
	Attended bool   `json:"attended"`
	By       string `json:"by"`           // the person's or the unit's name
	Run      string `json:"run,omitzero"` // what started an unattended one
	Began    Moment `json:"began"`
	Until    Moment `json:"until,omitzero"`
	Ended    Moment `json:"ended,omitzero"`
	Why      string `json:"why,omitzero"` // why it ended
}

// BeginSession records a session. One that is there and has not ended is left as it is and returned.
func (l *Ledger) BeginSession(ctx context.Context, s Session, actor string) (Session, error) {
	out := s
	err := l.do(ctx, func(t *txn) error {
		var have Session
		ok, err := t.get(kindSession, s.ID, &have)
		if err != nil {
			return err
		}
		if ok && have.Ended.IsZero() && have.Cell == s.Cell {
			out = have
			return nil
		}
		if ok {
			return fmt.Errorf("session %s is one of cell %s already; a session's name is used once", clip(s.ID), have.Cell)
		}
		out = s
		out.Began = t.now
		if out.Until.IsZero() {
			out.Until = t.now.Add(sessionLimit)
		}
		if err := t.put(kindSession, s.ID, out); err != nil {
			return err
		}
		t.later(func() { l.view.setSession(out) })
		return t.emit(Event{Type: EvSession, Actor: actor, Cell: s.Cell, Session: s.ID, Details: sessionDetails{
			What: "began", Attended: s.Attended, By: s.By, Run: s.Run}})
	})
	return out, err
}

type sessionDetails struct {
	What     string `json:"what"`
	Attended bool   `json:"attended"`
	By       string `json:"by,omitzero"`
	Run      string `json:"run,omitzero"`
	Why      string `json:"why,omitzero"`
}

// EndSession ends a session and with it its grants, which it returns.
func (l *Ledger) EndSession(ctx context.Context, id, why, actor string) ([]Grant, error) {
	var out []Grant
	err := l.do(ctx, func(t *txn) error {
		out = nil
		var s Session
		ok, err := t.get(kindSession, id, &s)
		if err != nil {
			return err
		}
		if !ok || !s.Ended.IsZero() {
			return fmt.Errorf("session %s: %w", clip(id), ErrNotFound)
		}
		s.Ended, s.Why = t.now, clip(why)
		if err := t.put(kindSession, id, s); err != nil {
			return err
		}
		t.later(func() { l.view.endSession(s) })
		if err := t.emit(Event{Type: EvSession, Actor: actor, Cell: s.Cell, Session: id, Details: sessionDetails{
			What: "ended", Attended: s.Attended, Why: s.Why}}); err != nil {
			return err
		}
		all, err := t.grants()
		if err != nil {
			return err
		}
		for _, g := range all {
			if g.Kind != KindSession || g.Session != id || g.State != GrantLive {
				continue
			}
			if g, err = t.endGrant(g.ID, GrantExpired, sentinel, "its session ended"); err != nil {
				return err
			}
			out = append(out, g)
		}
		return nil
	})
	return out, err
}

// Setting is something that was decided and holds until it is decided anew: a policy set's digest, an account as a
// person agreed to it, an approver.
type Setting struct {
	Key   string `json:"key"`
	Value []byte `json:"value"` // at most MaxSetting bytes; the owner's form
	By    string `json:"by"`
	At    Moment `json:"at"`
}

// MaxSetting is the most that a setting's value may have, in bytes.
const MaxSetting = 256 << 10

type settingDetails struct {
	Digest string `json:"digest,omitzero"` // SHA-256 of the value, hex
	Gone   bool   `json:"gone,omitzero"`
	More   any    `json:"more,omitzero"`
}

// PutSetting records a setting; a nil value takes it away. Details say what changed.
func (l *Ledger) PutSetting(ctx context.Context, key string, value []byte, by string, details any) error {
	if len(value) > MaxSetting || len(key) > maxName/2 {
		return fmt.Errorf("setting %s: %w: at most %d bytes fit", clip(key), ErrTooLarge, MaxSetting)
	}
	return l.do(ctx, func(t *txn) error {
		s := Setting{Key: key, Value: value, By: by, At: t.now}
		d := settingDetails{Gone: value == nil, More: details}
		if value != nil {
			d.Digest = hexSum(value)
		}
		if err := t.put(kindSetting, key, s); err != nil {
			return err
		}
		t.later(func() { l.view.setSetting(s) })
		return t.emit(Event{Type: EvSetting, Actor: by, Subject: key, Details: d})
	})
}
