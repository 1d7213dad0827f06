// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"crypto/cipher"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/notices"
)

// cursorRow is the row that says up to which entry the book has taken the record. It changes in one transaction with the book's rows, so
// a restart goes on there: no state of a card is overlooked, and none is taken twice.
const cursorRow = "cursor"

// teller tells people what happened.
type teller struct {
	seal cipher.AEAD       // of channels' rows
	push *ecdsa.PrivateKey // signs for push services
	wake chan struct{}     // something was sent, or is to be

	mu     sync.Mutex // guards what follows
	book   *notices.Book
	cursor int64           // the first entry that the book has not taken
	busy   map[string]bool // targets to which something is under way
}

func newTeller(seed []byte) (*teller, error) {
	t := &teller{wake: make(chan struct{}, 1), busy: map[string]bool{}}
	var err error
	t.seal, t.push, err = sealing(seed)
	return t, err
}

// loadNotices reads the outbox. A row of it that cannot be read stops the daemon: it is our own state.
func (s *Sentinel) loadNotices(ctx context.Context) error {
	rows, err := s.ledger.Notices(ctx)
	if err != nil {
		return err
	}
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	s.outbox.cursor = s.ledger.Size()
	if b, ok := rows[cursorRow]; ok {
		var kept int64
		if err := json.Unmarshal(b, &kept); err != nil {
			return fmt.Errorf("read the notices' place in the record back: %w", err)
		}
		s.outbox.cursor = min(kept, s.outbox.cursor)
		delete(rows, cursorRow)
	}
	s.outbox.book, err = notices.Load(rows, newMark)
	return err
}

func (t *teller) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// tellPeople is the task that takes what happened from the record and sends what is due.
func (s *Sentinel) tellPeople(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s.tellOnce(ctx)
		s.mu.Lock()
		news := s.eventNews
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		case <-s.outbox.wake:
		case <-tick.C:
			continue
		}
		select { // what comes at once is looked at together
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *Sentinel) tellOnce(ctx context.Context) {
	channels, browsers := s.channels(), s.browsers()
	to := targets(channels, browsers)
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	if len(to) == 0 {
		s.outbox.cursor = s.ledger.Size()
	} else if err := s.takeNews(ctx); err != nil {
		if ctx.Err() == nil {
			s.log.Error("people are not told what happens", "err", err.Error())
		}
		return
	}
	now := s.ledger.Now()
	s.outbox.book.Sweep(now, to)
	if !s.keepBook(ctx, nil) {
		return // what is not durable is not sent: after a restart it would have another name
	}
	for _, next := range s.outbox.book.Due(now, to) {
		if s.outbox.busy[next.To] {
			continue
		}
		req, err := s.notice(now, channels, browsers, &next)
		if err != nil {
			s.log.Error("a notice cannot be written", "to", next.To, "err", err.Error())
			s.outbox.book.Sent(now, next, false, false, 0)
			continue
		}
		s.outbox.busy[next.To] = true
		go s.send(ctx, next, req)
	}
}

// keepBook writes what changed. Precondition: s.outbox.mu is held.
func (s *Sentinel) keepBook(ctx context.Context, details any) bool {
	rows, err := s.outbox.book.Rows()
	if err == nil && len(rows) > 0 {
		if rows[cursorRow], err = json.Marshal(s.outbox.cursor); err == nil {
			err = s.ledger.PutNotices(context.WithoutCancel(ctx), rows, details)
		}
	}
	if err != nil {
		if !errors.Is(err, ledger.ErrClosed) {
			s.cannotRecord(err)
		}
		return false
	}
	s.outbox.book.Kept()
	return true
}

// beginTelling has the outbox begin here: who is told from now on is not told what was before.
func (s *Sentinel) beginTelling(ctx context.Context) error {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	if len(targets(s.channels(), s.browsers())) == 0 {
		s.outbox.cursor = s.ledger.Size()
	}
	b, err := json.Marshal(s.outbox.cursor)
	if err != nil {
		return err
	}
	return s.ledgerError(s.ledger.PutNotices(ctx, map[string][]byte{cursorRow: b}, nil))
}

// send posts a notice and keeps what came of it.
func (s *Sentinel) send(ctx context.Context, next notices.Sending, req *wire.NotifyReq) {
	status, wait, err := s.post(ctx, req)
	told, again := whatCame(status, err)
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	defer s.outbox.poke()
	delete(s.outbox.busy, next.To)
	if ctx.Err() != nil {
		return
	}
	over := s.outbox.book.Sent(s.ledger.Now(), next, told, again, wait)
	details := map[string]any{"id": next.ID(), "to": next.To, "told": told, "status": status}
	if over && !told {
		s.log.Warn("a notice did not arrive", "to", next.To, "status", status, "err", fmt.Sprint(err))
	}
	s.keepBook(ctx, details)
	if id, ok := strings.CutPrefix(next.To, pushTarget); ok && (status == 404 || status == 410) { // RFC 8030, 7.3: it is gone
		why := map[string]string{"why": "its push service says that it is gone"}
		if err := s.ledger.PutSetting(context.WithoutCancel(ctx), browserKey+id, nil, "sentinel", why); err != nil {
			s.cannotRecord(err)
		}
	}
}

// post has egress send it once.
func (s *Sentinel) post(ctx context.Context, req *wire.NotifyReq) (status int, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r := new(wire.NotifyResp)
	if err := s.egress.Call(ctx, "notify", req, r); err != nil {
		return 0, 0, err
	}
	return r.Status, time.Duration(r.Retry) * time.Second, nil
}

// whatCame says what an answer to a notice means. What only time can mend is tried again.
func whatCame(status int, err error) (told, again bool) {
	switch {
	case err != nil:
		return false, codeOf(err) != wire.CodeNotAllowed
	case status >= 200 && status < 300:
		return true, false
	}
	return false, status == 408 || status == 429 || status >= 500
}

// takeNews has the book take what the record has beyond the cursor. Precondition: s.outbox.mu is held.
func (s *Sentinel) takeNews(ctx context.Context) error {
	size := s.ledger.Size()
	for s.outbox.cursor < size {
		entries, err := s.ledger.Entries(ctx, ledger.Query{From: s.outbox.cursor, To: size, Limit: 256,
			Types: append(callEntries(), ledger.EvSetting, ledger.EvAlarm)})
		if err != nil {
			return err
		}
		for i := range entries {
			e, err := s.toTell(ctx, &entries[i])
			if err != nil {
				return err
			}
			if e != nil {
				s.outbox.book.Take(s.ledger.Now(), e)
			}
			s.outbox.cursor = entries[i].N + 1
		}
		if len(entries) < 256 {
			s.outbox.cursor = size
		}
	}
	return nil
}

// toTell makes an event of an entry, nil of one that nobody is told of: people are told of what asked them, not of what policy decided.
// Precondition: s.outbox.mu is held.
func (s *Sentinel) toTell(ctx context.Context, e *ledger.Entry) (*notices.Event, error) {
	var d struct {
		From, To, Object string
		Reason           string
		Gone             bool
		More             map[string]any
	}
	if len(e.Details) > 0 {
		_ = json.Unmarshal(e.Details, &d) // of other forms, and cut ones, nothing is needed
	}
	out := &notices.Event{N: e.N, Call: e.Call, State: d.To, Object: d.Object,
		Person: strings.HasPrefix(e.Actor, "person:") || strings.HasPrefix(e.Actor, "passkey:")}
	switch {
	case e.Type == ledger.EvSetting:
		name, ok := strings.CutPrefix(e.Subject, approverKey)
		_, joined := d.More["credential"]
		switch {
		case ok && joined:
			out.State = notices.ApproverAdded
		case ok && d.Gone:
			out.State = notices.ApproverRemoved
		default:
			return nil, nil
		}
		out.Title, out.Person = fmt.Sprint(d.More["role"], " ", name), false
		if _, recovered := d.More["recovery"]; recovered {
			out.Title += ", by a recovery code"
		}
		return out, nil
	case e.Type == ledger.EvAlarm:
		if e.Actor != wallActor {
			return nil, nil
		}
		out.State, out.Title = notices.WallFailed, d.Reason
		return out, nil
	case e.Type == ledger.EvPark:
		out.State = string(ledger.Parked)
	case d.From == "":
		return nil, nil // decided by policy
	case s.outbox.book.Of(e.Call) && d.Object == "":
		return out, nil
	case s.outbox.book.Of(e.Call):
		c, err := s.ledger.Call(ctx, e.Call)
		if err != nil {
			return nil, err
		}
		out.MadeAt = s.madeAt(&c)
		return out, nil
	case e.Type == ledger.EvFinish || e.Type == ledger.EvExecute:
		return nil, nil // of what nobody was asked about
	}
	c, err := s.ledger.Call(ctx, e.Call)
	if err != nil {
		return nil, err
	}
	if c.Decision != "ask" {
		return nil, nil
	}
	out.Cell, out.Connector, out.Method = c.Cell, c.Connector, c.Method
	if c.Connector == self { // the title of its card has an address, of which a cell chose each byte
		out.Title = widenings[c.Method]
		return out, nil
	}
	var card struct{ Title string }
	if err := json.Unmarshal(c.Card, &card); err == nil {
		out.Title = card.Title
	}
	return out, nil
}

// seen says that a person has looked at a card, or wants to hear no more of it.
func (s *Sentinel) seen(ctx context.Context, call string) {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	if s.outbox.book.Seen(call) {
		s.keepBook(ctx, map[string]string{"seen": call})
	}
}

// webSeen is a person's word that it needs no further notice of a card.
func (s *Sentinel) webSeen(ctx context.Context, _ *daemon.Call, req *wire.CallRef) (*wire.Empty, error) {
	s.seen(ctx, req.Call)
	return &wire.Empty{}, nil
}

// testNotice sends a notice to a channel, or to one browser, at once, and says what was answered.
func (s *Sentinel) testNotice(ctx context.Context, name string) (*wire.NoticesResp, error) {
	channels, browsers := s.channels(), s.browsers()
	if i := slices.IndexFunc(browsers, func(b subscription) bool { return b.ID == name }); i >= 0 {
		name = pushTarget + name
	}
	if !slices.ContainsFunc(targets(channels, browsers), func(t notices.Target) bool { return t.Name == name }) {
		return nil, wire.Refuse(wire.CodeNotFound, "no channel or browser "+quote(name), "doorward notice list shows them")
	}
	now := s.ledger.Now()
	req, err := s.notice(now, channels, browsers, &notices.Sending{To: name, Thread: &notices.Thread{ID: newMark()},
		Item: &notices.Item{State: notices.Test, Count: 1}})
	if err != nil {
		return nil, err
	}
	status, _, err := s.post(ctx, req)
	if err != nil {
		return nil, err
	}
	return &wire.NoticesResp{Status: status}, nil
}

// widenings say what a card of sentinel's own is about. Who receives a notice, an ntfy server too, is nobody whom a cell may write to.
var widenings = map[string]string{widenAccount: "let an account be used", widenPolicy: "a policy that allows more",
	widenResume: "start again what is stopped", widenClear: "clear a cell's labels", widenSite: "connect to a site",
	widenRequest: "send a request to a site", widenSurrogate: "a surrogate for a cell",
	widenConfirm: "keep a grant from before the record was put back"}
