// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
	"github.com/doorward/doorward/sentinel/spool"
)

// Widenings: what may happen grows. Each is shown, hashed and decided like a call, in the same table and by the same
// states; its connector is "doorward" and its method one of these.
const (
	widenAccount   = "account"   // an account becomes usable, or is at another place
	widenPolicy    = "policy"    // a policy set that allows more
	widenResume    = "resume"    // the switch goes on again
	widenClear     = "clear"     // labels are taken from a cell
	widenSite      = "site"      // programs of a cell may connect to a site: the grant that is approved with it
	widenRequest   = "request"   // they may send a request: likewise
	widenSurrogate = "surrogate" // they may use a credential that they do not hold
	widenConfirm   = "confirm"   // a grant from before the ledger was put back
)

const self = "doorward"

// maxWidenings is how many of one kind wait at a time.
const maxWidenings = 50

// widening is what a widening is over. It is the canonical form too: its fields stand in their order.
type widening struct {
	About  string   `json:"about"`           // account, cell or grant
	Digest string   `json:"digest,omitzero"` // of what is decided, hex
	From   string   `json:"from,omitzero"`   // of what it was compared with, hex
	Kind   string   `json:"kind"`
	Lines  []string `json:"lines"` // in words
	Value  []byte   `json:"value,omitzero"`
}

// widen parks a widening, or finds the equal one that waits already. It returns its id. Another one about the same thing
// that still waits is taken back: what it compared with, or was asked about, is no longer so.
func (s *Sentinel) widen(ctx context.Context, w widening, title, by string) (string, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // RFC 8785 escapes no more than it must
	if err := enc.Encode(w); err != nil {
		return "", err
	}
	canonical := bytes.TrimRight(text.Bytes(), "\n")
	sum := wire.Sum(canonical)
	mark := newMark()
	approval := approvalHash(sum, wire.Digest{}, "ask", mark)
	now := s.ledger.Now()
	c := ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Connector: self, Method: w.Kind, Class: "write", Reach: "none",
		Account: w.About, Canonical: canonical, Hash: hex.EncodeToString(sum[:]), Dedup: self + "/" + hex.EncodeToString(sum[:]),
		Approval: hex.EncodeToString(approval[:]), Mark: mark, Decision: "ask", Reason: "it widens what may happen",
		Created: now, Deadline: now.Add(writeExpiry)}}
	card := wire.Card{ID: c.ID, Kind: "widening", State: wire.StateParked, Title: title, Method: w.Kind, Hash: approval[:],
		Made: now.Time().Unix(), Expires: c.Deadline.Time().Unix(),
		Fields: []wire.Field{{Label: w.Kind, Values: []string{w.About}, Main: true}}}
	card.Facts = w.Lines
	var err error
	if c.Card, err = cardFits(&card); err != nil {
		return "", wire.Refuse(wire.CodeTooLarge, "what it changes is too much to be shown to a person at once",
			"change a part of it first")
	}
	if err := s.roomToWiden(ctx, &c); err != nil {
		return "", err
	}
	got, _, err := s.ledger.Park(ctx, c, by)
	if err != nil {
		return "", s.ledgerError(err)
	}
	s.changed(got)
	return got.ID, nil
}

// roomToWiden makes room for a widening among those of its kind: no kind takes the room of another. What authd or the
// record brings up is refused where there is none, and comes again when one of its kind is approved. What a person asks
// for always finds room, or who can fill a list could keep a cell stopped: there the oldest is taken back.
func (s *Sentinel) roomToWiden(ctx context.Context, c *ledger.Call) error {
	var kind, gone []ledger.Waiting
	for _, w := range s.ledger.Waiting() {
		switch {
		case w.Connector != self || w.Method != c.Method || w.State != ledger.Parked:
		case w.Dedup == c.Dedup:
			return nil // it is joined
		case w.Account == c.Account:
			gone = append(gone, w)
		default:
			kind = append(kind, w)
		}
	}
	if over := len(kind) + 1 - maxWidenings; over > 0 {
		if c.Method == widenAccount || c.Method == widenConfirm {
			s.unasked.Store(true)
			return wire.Refuse(wire.CodeTooMany, fmt.Sprintf("%d cards of this kind wait already", len(kind)),
				"decide some: doorward pending")
		}
		gone = append(gone, kind[:over]...)
	}
	for _, w := range gone {
		got, err := s.ledger.Revoke(ctx, w.ID, "sentinel", string(wire.CodeRevoked), "a newer one took its place")
		if errors.Is(err, ledger.ErrState) {
			continue // somebody was faster
		}
		if err != nil {
			return s.ledgerError(err)
		}
		s.changed(got)
	}
	return nil
}

// askAccount has a person decide an account as authd now has it. It returns the card's id.
func (s *Sentinel) askAccount(a wire.Account) (string, error) {
	lines := []string{"lives at " + baseURL(a.Base)}
	title := "let calls use the " + a.Vendor + " account " + a.Name
	switch {
	case a.Vendor == customVendor:
		title = "let surrogates be issued of the account " + a.Name
		lines = append(lines, "is for programs of cells, each after a card of its own; no worker uses it",
			"stands in a request in "+manifest.Place(a.Placement))
	case a.Placement.User != "":
		lines = append(lines, fmt.Sprintf("is of user %q there", a.Placement.User))
		fallthrough
	default:
		lines = append(lines, "may be used by the worker of "+orElse(strings.Join(a.Workers, ", "), "no connector"))
	}
	if len(a.Permit) > 0 {
		lines = append(lines, fmt.Sprint("is reached at ", a.Permit, ", addresses that are not public"))
	}
	if len(a.Also) > 0 {
		lines = append(lines, fmt.Sprint("may be sent on to ", a.Also))
	}
	if a.PrivateCA {
		lines = append(lines, "is proved by a certificate authority of its own")
	}
	if len(a.Scopes) > 0 {
		lines = append(lines, fmt.Sprint("has the permissions ", a.Scopes))
	}
	if _, known := s.ledger.Setting("account/" + a.Name); known {
		lines = append(lines, "was decided before, with another place, user list or secret")
	}
	return s.widen(s.lifetime, widening{Kind: widenAccount, About: a.Name, Digest: accountValue(&a), Lines: lines}, title, "authd")
}

func baseURL(b wire.Base) string {
	return fmt.Sprintf("%s://%s:%d%s", b.Scheme, b.Host, b.Port, b.Path)
}

// apply does what an approved widening says.
func (s *Sentinel) apply(ctx context.Context, c ledger.Call, by string) error {
	var w widening
	if err := json.Unmarshal(c.Canonical, &w); err != nil {
		return fmt.Errorf("read widening %s back: %w", c.ID, err)
	}
	details := map[string]string{"widening": c.ID}
	switch w.Kind {
	case widenAccount: // it may be another login by now, which no grant was made for
		for _, g := range s.ledger.Grants(ledger.GrantFilter{Account: w.About, Live: true}) {
			if !strings.HasSuffix(w.Digest, "/"+strconv.FormatUint(g.Login, 10)) {
				if _, err := s.ledger.RevokeGrants(ctx, ledger.GrantFilter{ID: g.ID}, by, "the account has another login now"); err != nil {
					return err
				}
			}
		}
		if v, _ := s.ledger.Setting(accountDeniedKey + w.About); len(v.Value) > 0 {
			if err := s.ledger.PutSetting(ctx, v.Key, nil, by, details); err != nil {
				return err
			}
		}
		return s.ledger.PutSetting(ctx, "account/"+w.About, []byte(w.Digest), by, details)
	case widenPolicy: // Lines are the difference that was shown, and hold only from there
		if w.From != s.comparedWith() {
			return wire.Refuse(wire.CodeConflict, "another policy or other methods were taken up since this one was compared with them",
				"doorward policy load")
		}
		return s.adopt(ctx, w.Value, by, details)
	case widenResume:
		if err := s.ledger.PutSetting(ctx, stopKey(w.About), nil, by, details); err != nil {
			return err
		}
		s.unhalt(stopKey(w.About))
		s.thawCells(ctx, w.About)
		return nil
	case widenClear:
		return s.clearLabels(ctx, w.About, by, details)
	case widenSite, widenRequest:
		return nil // the grant came with the approval
	case widenSurrogate:
		return s.issueSurrogate(ctx, w.Value, by, details)
	case widenConfirm:
		_, err := s.ledger.ConfirmGrant(ctx, w.About, by)
		return err
	}
	return fmt.Errorf("widening %s: no kind %q", c.ID, w.Kind)
}

// clearLabels takes a cell's labels away, but for those of reads whose answer is still on its way to it.
func (s *Sentinel) clearLabels(ctx context.Context, cell, by string, details any) error {
	if _, err := s.ledger.ClearLabels(ctx, cell, []string{wire.LabelUntrusted, wire.LabelPrivate}, by, details); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.tainted, cell) // the next that it reads ends what it opens from here on
	var running []ledger.Call
	for _, l := range s.live {
		if l.call.Cell == cell && len(l.call.Labels) > 0 {
			running = append(running, l.call)
		}
	}
	s.mu.Unlock()
	for _, c := range running {
		if err := s.ledger.AddLabels(ctx, cell, c.Labels, ledger.Cause{Call: c.ID, Connector: c.Connector, Method: c.Method},
			"sentinel"); err != nil {
			return err
		}
	}
	return nil
}

// run takes an approved call on: a widening is applied, a call executed. What runs is read back from the ledger and the
// spool, never from the approval. The error says why nothing came of it.
func (s *Sentinel) run(ctx context.Context, c ledger.Call) error {
	fail := func(err error) error {
		s.log.Warn("an approved call does not run", "call", c.ID, "err", err.Error())
		got, ferr := s.ledger.Finish(ctx, c.ID, notRun(codeOf(err), reasonOf(err)), "sentinel")
		if ferr != nil {
			s.log.Error("the end of a call is not recorded", "call", c.ID, "err", ferr.Error())
			return err
		}
		s.forget(c.Spool)
		s.changed(got)
		return err
	}
	if c.Connector == self {
		got, err := s.ledger.Execute(ctx, c.ID, newMark())
		if err == nil {
			err = s.apply(ctx, got, c.Approver)
		}
		if err != nil {
			return fail(err)
		}
		if got, err = s.ledger.Finish(ctx, c.ID, ledger.Outcome{State: ledger.Done}, "sentinel"); err != nil {
			s.log.Error("the end of a widening is not recorded", "call", c.ID, "err", err.Error())
			return nil // it is in force
		}
		s.changed(got)
		if s.unasked.Swap(false) {
			s.askAccounts()
			s.askUnconfirmed(ctx)
		}
		return nil
	}
	o, err := s.recall(&c)
	if err != nil {
		return fail(err)
	}
	acc, err := s.account(c.Connector, c.Account)
	if err == nil && (acc.Digest != o.Account || acc.Generation != int64(c.Login)) {
		err = wire.Refuse(wire.CodeRevoked, "the account has changed since it was approved", "ask again")
	}
	vendor := s.vendors[c.Connector]
	if err == nil {
		err = s.carryOver(&c, vendor, &o.Frame)
	}
	if err == nil {
		err = s.stopped(c.Cell)
	}
	if err == nil {
		err = s.stillMay(&c, vendor, o)
	}
	if err != nil {
		closeAll(o.files)
		return fail(err)
	}
	got, err := s.ledger.Execute(ctx, c.ID, s.newPass())
	if err != nil {
		closeAll(o.files)
		s.log.Warn("an approved call does not run", "call", c.ID, "err", err.Error())
		if got, err := s.ledger.Call(ctx, c.ID); err == nil {
			s.changed(got)
		}
		return err
	}
	s.changed(got)
	m, _ := vendor.Method(c.Method)
	s.execute(ctx, s.enliven(got, m, nil), o)
	s.forget(c.Spool)
	return nil
}

// stillMay asks the policy again before an approved call runs: an approval turns ask into allow, never deny.
func (s *Sentinel) stillMay(c *ledger.Call, vendor *describe.Connector, o *order) error {
	m, ok := vendor.Method(c.Method)
	if !ok {
		return wire.Refuse(wire.CodeUnknownMethod, "the method is gone", "")
	}
	v, err := m.Decode(&o.Frame)
	if err != nil {
		return err
	}
	reads := s.ledger.Reads(c.Session, c.Connector)
	d := s.policy.Load().Decide(&policy.Call{Connector: vendor, Method: m, Values: v, Account: c.Account, Reach: c.Reach,
		Sensitive: c.Sensitive, Cell: c.Cell, Session: strings.TrimPrefix(c.Session, c.Cell+"/"), Attended: c.Attended,
		By: c.Run, Labels: s.labels(c.Cell), Recipients: o.Recipients, FirstTime: s.firstTime(o.Recipients),
		Now: time.Now(), Reads: int64(reads.Count), ReadBytes: reads.Bytes}, nil)
	if d.Verdict == policy.Deny {
		return wire.Refuse(d.Code, d.Reason+"; the policy has changed since it was asked", d.Next)
	}
	return nil
}

// resume takes up what a restart interrupted: approved calls are executed, unknown ones looked up, parked ones wait on.
func (s *Sentinel) resume(ctx context.Context) error {
	approved, err := s.ledger.Calls(ctx, ledger.Filter{States: []ledger.State{ledger.Approved}})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	unknown, err := s.ledger.Calls(ctx, ledger.Filter{States: []ledger.State{ledger.Unknown}, Limit: 100})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	go s.whenReady(ctx, func() {
		for _, c := range approved {
			go s.run(ctx, c)
		}
		for _, c := range unknown {
			go s.settle(ctx, c)
		}
	})
	// Each file asks for its own call: however many calls there are, none that waits loses what it is to send.
	if _, err := s.spool.Sweep(time.Now(), func(ref string, m spool.Meta) bool {
		c, err := s.ledger.Call(ctx, m.Call)
		if err != nil {
			return !errors.Is(err, ledger.ErrNotFound)
		}
		on := c.State.Live() || c.State == ledger.Unknown || c.State == ledger.Done
		return on && (ref == c.Result || slices.Contains(c.Spool, ref))
	}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return nil
}

// whenReady waits until authd is there and unlocked.
func (s *Sentinel) whenReady(ctx context.Context, f func()) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		ready := s.instance != "" && !s.locked
		s.mu.Unlock()
		if ready {
			f()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
