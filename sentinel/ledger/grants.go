// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
)

// Kinds of a grant: how long it lasts.
const (
	KindOnce     = "once"     // one use
	KindSession  = "session"  // until its session ends
	KindUntil    = "until"    // until a time
	KindStanding = "standing" // until a time far off, or revoked
)

// States of a grant.
const (
	GrantLive        = "live"
	GrantSpent       = "spent"
	GrantExpired     = "expired"
	GrantRevoked     = "revoked"
	GrantUnconfirmed = "unconfirmed" // the ledger was older than its checkpoint: a person must confirm it
)

// Grant is what a person allowed beyond one call. What its limits mean is the policy's business.
type Grant struct {
	ID        string          `json:"id"`
	Cell      string          `json:"cell"`
	Session   string          `json:"session,omitzero"` // of a session grant
	Connector string          `json:"connector"`
	Method    string          `json:"method"`
	Account   string          `json:"account,omitzero"`
	Login     uint64          `json:"login,omitzero"`
	Kind      string          `json:"kind"`
	Limits    json.RawMessage `json:"limits,omitzero"`  // on the grant fields
	Tainted   bool            `json:"tainted,omitzero"` // also after the cell has read what others wrote
	Sensitive bool            `json:"sensitive,omitzero"`
	Uses      int             `json:"uses,omitzero"` // how often; 0 means as often as it lasts
	Used      int             `json:"used"`
	Created   Moment          `json:"created"`
	By        string          `json:"by"`               // who gave it
	Call      string          `json:"call,omitzero"`    // at which call's card
	Meaning   string          `json:"meaning,omitzero"` // of the method as it was then, hex (describe.Method.Meaning)
	Until     Moment          `json:"until,omitzero"`
	LastUse   Moment          `json:"last_use,omitzero"`
	State     string          `json:"state"`
	Ended     Moment          `json:"ended,omitzero"`
	EndedBy   string          `json:"ended_by,omitzero"`
}

const kindGrant = "grant"

type grantDetails struct {
	Connector string          `json:"connector"`
	Method    string          `json:"method"`
	Account   string          `json:"account,omitzero"`
	Kind      string          `json:"kind"`
	Limits    json.RawMessage `json:"limits,omitzero"`
	Tainted   bool            `json:"tainted,omitzero"`
	Uses      int             `json:"uses,omitzero"`
	Until     string          `json:"until,omitzero"`
	State     string          `json:"state"`
	Why       string          `json:"why,omitzero"`
}

func (t *txn) putGrant(g Grant) error {
	if err := t.put(kindGrant, g.ID, g); err != nil {
		return err
	}
	t.later(func() { t.l.view.setGrant(g) })
	return nil
}

func (t *txn) grantEvent(g Grant, typ, actor, why string) error {
	d := grantDetails{Connector: g.Connector, Method: g.Method, Account: g.Account, Kind: g.Kind, Limits: g.Limits,
		Tainted: g.Tainted, Uses: g.Uses, State: g.State, Why: clip(why)}
	if !g.Until.IsZero() {
		d.Until = g.Until.Time().Format("2006-01-02T15:04:05Z")
	}
	return t.emit(Event{Type: typ, Actor: actor, Cell: g.Cell, Session: g.Session, Call: g.Call,
		Subject: g.ID, Details: d})
}

func (t *txn) addGrant(g Grant, by string) (Grant, error) {
	if g.ID == "" {
		g.ID = NewID()
	}
	switch g.Kind {
	case KindOnce:
		g.Uses = 1
	case KindSession, KindUntil, KindStanding:
	default:
		return Grant{}, fmt.Errorf("a grant of kind %q", clip(g.Kind))
	}
	g.Created, g.By, g.State = t.now, by, GrantLive
	if err := t.putGrant(g); err != nil {
		return Grant{}, err
	}
	return g, t.grantEvent(g, EvGrant, by, "")
}

// AddGrant records a grant that a person gave outside of a call's card.
func (l *Ledger) AddGrant(ctx context.Context, g Grant, by string) (Grant, error) {
	var out Grant
	err := l.do(ctx, func(t *txn) (err error) {
		out, err = t.addGrant(g, by)
		return err
	})
	return out, err
}

// useGrant takes one use; the event of the call that uses it owns the row.
func (t *txn) useGrant(id string) error {
	var g Grant
	ok, err := t.get(kindGrant, id, &g)
	if err != nil {
		return err
	}
	if !ok || g.State != GrantLive || t.now.Reached(g.Until) || (g.Uses > 0 && g.Used >= g.Uses) {
		return fmt.Errorf("%w: grant %s", ErrSpent, clip(id))
	}
	g.Used++
	g.LastUse = t.now
	if g.Uses > 0 && g.Used >= g.Uses {
		g.State, g.Ended = GrantSpent, t.now
	}
	return t.putGrant(g)
}

// giveBack returns a use of a call that surely did not run.
func (t *txn) giveBack(id, call string) error {
	var g Grant
	ok, err := t.get(kindGrant, id, &g)
	if err != nil || !ok || g.Used == 0 {
		return err
	}
	g.Used--
	if g.State == GrantSpent {
		g.State, g.Ended = GrantLive, Moment{}
	}
	if err := t.putGrant(g); err != nil {
		return err
	}
	return t.emit(Event{Type: EvGrant, Actor: sentinel, Cell: g.Cell, Session: g.Session, Call: call, Subject: g.ID,
		Details: grantDetails{Connector: g.Connector, Method: g.Method, Kind: g.Kind, State: g.State,
			Why: "a use was given back: the call did not run"}})
}

func (t *txn) endGrant(id, state, by, why string) (Grant, error) {
	var g Grant
	ok, err := t.get(kindGrant, id, &g)
	if err != nil {
		return Grant{}, err
	}
	if !ok || (g.State != GrantLive && g.State != GrantUnconfirmed) {
		return g, fmt.Errorf("grant %s: %w", clip(id), ErrNotFound)
	}
	g.State, g.Ended, g.EndedBy = state, t.now, by
	if err := t.putGrant(g); err != nil {
		return Grant{}, err
	}
	return g, t.grantEvent(g, EvGrantEnd, by, why)
}

// RevokeGrants ends the live grants that f names, and those that wait to be confirmed, and returns them.
func (l *Ledger) RevokeGrants(ctx context.Context, f GrantFilter, by, why string) ([]Grant, error) {
	f.Live = true
	var out []Grant
	err := l.do(ctx, func(t *txn) error {
		out = nil
		all, err := t.grants()
		if err != nil {
			return err
		}
		for _, g := range all {
			if !f.match(g) && !(g.State == GrantUnconfirmed && f.matchState(g)) {
				continue
			}
			g, err := t.endGrant(g.ID, GrantRevoked, by, why)
			if err != nil {
				return err
			}
			out = append(out, g)
		}
		return nil
	})
	return out, err
}

// ConfirmGrant makes an unconfirmed grant live again: a widening that a person decided.
func (l *Ledger) ConfirmGrant(ctx context.Context, id, by string) (Grant, error) {
	var g Grant
	err := l.do(ctx, func(t *txn) error {
		ok, err := t.get(kindGrant, id, &g)
		if err != nil {
			return err
		}
		if !ok || g.State != GrantUnconfirmed {
			return fmt.Errorf("grant %s: %w", clip(id), ErrNotFound)
		}
		g.State = GrantLive
		if err := t.putGrant(g); err != nil {
			return err
		}
		return t.grantEvent(g, EvGrant, by, "confirmed")
	})
	return g, err
}

// grants reads every grant as this transaction sees it.
func (t *txn) grants() ([]Grant, error) {
	rows, err := t.l.conn.QueryContext(t.ctx, "SELECT body FROM state WHERE kind = ?", kindGrant)
	if err != nil {
		return nil, storeError{err}
	}
	defer rows.Close()
	var out []Grant
	for rows.Next() {
		var body []byte
		var g Grant
		if err := rows.Scan(&body); err != nil {
			return nil, storeError{err}
		}
		if err := json.Unmarshal(body, &g); err != nil {
			return nil, storeError{fmt.Errorf("%w: a grant: %w", ErrCorrupt, err)}
		}
		out = append(out, g)
	}
	if err := rows.Err(); err != nil {
		return nil, storeError{err}
	}
	return out, nil
}

// GrantFilter chooses grants; empty fields match all.
type GrantFilter struct {
	ID, Cell, Session, Connector, Method, Account string
	Live                                          bool // only live ones
}

func (f GrantFilter) match(g Grant) bool { return (!f.Live || g.State == GrantLive) && f.matchState(g) }

func (f GrantFilter) matchState(g Grant) bool {
	return (f.ID == "" || f.ID == g.ID) && (f.Cell == "" || f.Cell == g.Cell) &&
		(f.Session == "" || f.Session == g.Session) && (f.Connector == "" || f.Connector == g.Connector) &&
		(f.Method == "" || f.Method == g.Method) && (f.Account == "" || f.Account == g.Account)
}
