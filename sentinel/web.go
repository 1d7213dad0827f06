// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/passkey"
)

// How long what a browser is given holds.
const (
	viewFor  = 12 * time.Hour
	offerFor = 5 * time.Minute
	loginFor = 2 * time.Minute
)

// How many of it there are at a time.
const (
	maxViews  = 64
	maxOffers = 1024
	maxLogins = 1024
	maxWeb    = 8 // connections of approvals, which has two
)

// web is what sentinel keeps of browsers, in memory: a restart ends it. Who holds approvals sees all that goes by and can waste it;
// none of it decides anything without a passkey.
type web struct {
	card   *ecdsa.PrivateKey // signs answers
	public []byte            // its public half, an uncompressed point, which the enrolment's link carries to the browser
	login  []byte            // keys the MACs of login's nonces
	lost   []byte            // keys recovery codes

	older atomic.Pointer[string] // why approvers of an older record are still to be taken back; nil: none are

	keys  sync.Mutex // held from reading who may decide, or a passkey's counter, to writing it
	rules sync.Mutex // held from reading the policy to changing it

	editing sync.Mutex    // held while a change is prepared
	finding chan struct{} // the place of the one search that runs: it holds one of the few readers of the ledger

	mu      sync.Mutex          // guards what follows
	views   passing[string]     // sessions: the approver's name, by the cookie
	offers  passing[offer]      // by nonce
	drafts  passing[*draft]     // by nonce of the offer
	logins  passing[struct{}]   // nonces that have begun a session
	invited passing[invitation] // by id
}

// offer is a card that was shown to be decided on.
type offer struct {
	card  string // its call
	hash  []byte
	edits []byte // of a draft's: the approval of the card whose place it takes
}

// newWeb has the card key made from the seed of the checkpoint key. A key of its own in the ledger's directory would be in each copy
// of it, and who reads that could show altered cards; this one is where the checkpoint key is, in an encrypted credential that
// sentinel's unit alone gets, it is the same after the state was put back, so browsers go on knowing it, and nobody has to set it up.
func newWeb(seed []byte) (*web, error) {
	w := &web{login: make([]byte, 32), views: passing[string]{most: maxViews}, offers: passing[offer]{most: maxOffers},
		drafts: passing[*draft]{most: maxDrafts}, logins: passing[struct{}]{most: maxLogins},
		invited: passing[invitation]{most: maxInvited}, finding: make(chan struct{}, 1)}
	rand.Read(w.login)
	for i := 0; w.card == nil; i++ {
		raw, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("doorward card key v1 %d", i), 32)
		if err != nil {
			return nil, fmt.Errorf("derive the card key: %w", err)
		}
		w.card, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
		if err != nil && i == 8 { // one draw in 2^32 is no key of the curve
			return nil, fmt.Errorf("derive the card key: %w", err)
		}
	}
	var err error
	if w.lost, err = hkdf.Key(sha256.New, seed, nil, "doorward recovery key v1", 32); err != nil {
		return nil, fmt.Errorf("derive the recovery key: %w", err)
	}
	w.public, err = w.card.PublicKey.Bytes()
	return w, err
}

// webVerbs is the table of approvals' socket. Of what it serves for a session alone, nothing widens: revoke, stop and the end of a
// session only narrow, and what would widen (stop's Resume, settings, taint) puts up a card, as it does for a person at a terminal.
func (s *Sentinel) webVerbs() []daemon.Verb {
	approvals := peer.Daemon("approvals")
	return []daemon.Verb{
		daemon.On("login", approvals, open(s, s.webLogin)),
		daemon.On("logout", approvals, open(s, s.webLogout)),
		daemon.On("enrol", approvals, open(s, s.webEnrol)),
		daemon.On("pending", approvals, viewed(s, s.pending)),
		daemon.On("show", approvals, viewed(s, s.webShow)),
		daemon.On("body", approvals, viewed(s, s.webBody)),
		daemon.On("edit", approvals, viewed(s, s.webEdit)),
		daemon.On("decide", approvals, viewed(s, s.webDecide)),
		daemon.On("grants", approvals, viewed(s, s.grantsVerb)),
		daemon.On("revoke", approvals, viewed(s, s.revoke)),
		daemon.On("stop", approvals, viewed(s, s.stop)),
		daemon.On("session", approvals, viewed(s, s.sessionVerb)),
		daemon.On("history", approvals, viewed(s, s.webHistory)),
		daemon.On("events", approvals, viewed(s, s.watchEvents)),
		daemon.On("push", approvals, viewed(s, s.webPush)),
		daemon.On("seen", approvals, viewed(s, s.webSeen)),
		daemon.On("accounts", approvals, viewed(s, s.webAccounts)),
		daemon.On("settings", approvals, viewed(s, s.webSettings)),
		daemon.On("labels", approvals, viewed(s, s.webLabels)),
		daemon.On("taint", approvals, viewed(s, s.taint)),
		daemon.On("find", approvals, viewed(s, s.webFind)),
	}
}

// sessionOf is whose session it is, and whether that is a viewer. It ends with its approver, also where that one is removed while it
// begins.
func (s *Sentinel) sessionOf(session []byte) (name string, viewer, ok bool) {
	s.web.mu.Lock()
	v, ok := s.web.views.get(s.ledger.Now(), session)
	s.web.mu.Unlock()
	if !ok {
		return "", false, false
	}
	row, ok := s.approverNamed(v.value)
	return v.value, row.Viewer, ok
}

// approverNamed is one approver. One that cannot be read is none.
func (s *Sentinel) approverNamed(name string) (row approverRow, ok bool) {
	kept, ok := s.ledger.Setting(approverKey + name)
	if !ok || json.Unmarshal(kept.Value, &row) != nil {
		return approverRow{}, false
	}
	return row, row.Name == name
}

// forViewers are the verbs of who may only see; of those that also do something, what is a look. A verb that is not here is for
// approvers.
var forViewers = map[string]func(q any) bool{
	"pending": look, "show": look, "body": look, "history": look, "find": look, "grants": look, "accounts": look, "labels": look,
	"events": look, "push": look, // of push it is a device of one's own
	"session":  func(q any) bool { s, ok := q.(*wire.SessionReq); return ok && s.End == "" },
	"settings": func(q any) bool { s, ok := q.(*wire.SettingsReq); return ok && len(s.Lines) == 0 },
}

func look(any) bool { return true }

// end takes back all that an approver of that name has, and every offer: who may decide on it was another then.
func (w *web) end(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.views.drop(func(of string) bool { return of == name })
	w.invited.drop(func(v invitation) bool { return v.name == name })
	w.offers.drop(func(offer) bool { return true })
	w.drafts.drop(func(*draft) bool { return true })
}

// place is where passkeys count, as root set it up. It is read each time: it is seldom asked for, and a restart would end sessions.
func (s *Sentinel) place() (*approver.Place, passkey.Place, error) {
	p, err := approver.Load(s.config)
	switch {
	case errors.Is(err, approver.ErrNone):
		return nil, passkey.Place{}, wire.Refuse(wire.CodeNotConfigured, "no place for approvals is set up",
			"root does it by: sudo doorward approver setup")
	case err != nil:
		s.log.Error("no passkey counts", "err", err.Error())
		return nil, passkey.Place{}, wire.Refuse(wire.CodeNotConfigured, approver.File+" cannot be read",
			"the reason is in sentinel's log")
	}
	return p, passkey.Place{Origin: p.PageOrigin(), RP: p.Host}, nil
}

// webLogin begins a session, in two steps.
func (s *Sentinel) webLogin(ctx context.Context, current []byte, req *wire.LoginReq) (*wire.LoginResp, error) {
	place, at, err := s.place()
	if err != nil {
		return nil, err
	}
	now := s.ledger.Now()
	if len(req.Assertion) == 0 {
		r := &wire.LoginResp{Nonce: s.web.newLogin(now), RP: place.Host}
		if name, only, ok := s.sessionOf(current); ok { // to strangers it would say who is here
			r.Name, r.Viewer = name, only
			r.Allow, err = s.credentials(true)
		}
		return r, err
	}
	if !s.web.isLogin(now, req.Nonce) {
		return nil, wire.Refuse(wire.CodeExpired, "signing in took too long", "sign in again")
	}
	challenge := wire.LoginChallenge(req.Nonce)
	who, err := s.signer(ctx, "login", at, challenge[:], req.Assertion)
	if err != nil {
		return nil, err
	}
	session, until := make([]byte, 32), now.Add(viewFor)
	rand.Read(session)
	s.web.keys.Lock()
	defer s.web.keys.Unlock()
	// Since it signed, another passkey may have taken its place, which ended the sessions of that name.
	if row, ok := s.approverNamed(who.Name); !ok || !bytes.Equal(row.Credential, who.Credential) {
		return nil, s.unsigned("login", passkey.ErrKey)
	}
	if !s.web.begin(now, req.Nonce, session, who.Name, until) {
		s.refused("sentinel", "approvals", "login", wire.CodeExpired, "an assertion came twice")
		return nil, wire.Refuse(wire.CodeExpired, "a session was begun with this already", "sign in again")
	}
	return &wire.LoginResp{Session: session, Until: until.Time().Unix(), Name: who.Name, Viewer: who.Viewer}, nil
}

// newLogin makes a nonce of 32 bytes that says itself until when it holds, on the clock that nobody sets, and that sentinel made it.
// Nothing is kept of it until a passkey has signed it: strangers may ask for as many as they like, and would push others' out.
func (w *web) newLogin(now ledger.Moment) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 32), uint64(now.Add(loginFor).Boot))
	var some [8]byte
	rand.Read(some[:])
	b = append(b, some[:]...)
	return append(b, w.loginMAC(b)...)
}

func (w *web) loginMAC(b []byte) []byte {
	m := hmac.New(sha256.New, w.login)
	m.Write(b)
	return m.Sum(nil)[:16]
}

func (w *web) isLogin(now ledger.Moment, nonce []byte) bool {
	return len(nonce) == 32 && hmac.Equal(nonce[16:], w.loginMAC(nonce[:16])) &&
		now.Boot < int64(binary.BigEndian.Uint64(nonce))
}

// begin keeps a session, of which it keeps a digest only. It refuses a second one with the same nonce.
func (w *web) begin(now ledger.Moment, nonce, session []byte, name string, until ledger.Moment) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, used := w.logins.get(now, nonce); used {
		return false
	}
	w.logins.put(now, nonce, struct{}{}, now.Add(loginFor))
	w.views.put(now, session, name, until)
	return true
}

// signer is the approver who made an assertion over the challenge. Its counter is on record before anything is done with that.
func (s *Sentinel) signer(ctx context.Context, verb string, at passkey.Place, challenge, assertion []byte) (*approverRow, error) {
	a, err := passkey.Parse(assertion)
	if err != nil {
		return nil, s.unsigned(verb, err)
	}
	s.web.keys.Lock()
	defer s.web.keys.Unlock()
	all, err := s.approverRows()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(r approverRow) bool { return bytes.Equal(r.Credential, a.Credential()) })
	if i < 0 {
		return nil, s.unsigned(verb, passkey.ErrKey)
	}
	who := &all[i]
	if who.Viewer && verb != "login" {
		return nil, s.unsigned(verb, errors.New("it is a viewer's, who decides nothing"))
	}
	n, err := a.Verify(who.key(), at, challenge)
	if err != nil {
		return nil, s.unsigned(verb, err)
	}
	if n == who.Count {
		return who, nil
	}
	who.Count = n
	if err := s.putApprover(ctx, who, actor(byPasskey(who.Name)), map[string]string{"why": "its passkey's counter grew"}); err != nil {
		return nil, err
	}
	return who, nil
}

// unsigned puts on record that an assertion or a registration does not hold, and says so.
func (s *Sentinel) unsigned(verb string, err error) error {
	s.refused("sentinel", "approvals", verb, wire.CodeNotAllowed, err.Error())
	next := "try again, on the page that the invitation led to"
	if errors.Is(err, passkey.ErrCloned) {
		next = "if it stays so, somebody may have copied the passkey: sudo doorward approver remove NAME"
	}
	return wire.Refuse(wire.CodeNotAllowed, "what the passkey answered does not count: "+err.Error(), next)
}

// webLogout ends a session here, so that who has kept its cookie has nothing.
func (s *Sentinel) webLogout(_ context.Context, session []byte, _ *wire.Empty) (*wire.Empty, error) {
	s.web.mu.Lock()
	defer s.web.mu.Unlock()
	s.web.views.take(s.ledger.Now(), session)
	return new(wire.Empty), nil
}

// webShow is one card in full. With one that waits comes what it is decided with.
func (s *Sentinel) webShow(ctx context.Context, c *daemon.Call, req *wire.CallRef) (*wire.Offer, error) {
	place, _, err := s.place()
	if err != nil {
		return nil, err
	}
	call, err := s.ledger.Call(ctx, req.Call)
	if err != nil {
		return nil, s.ledgerError(err)
	}
	o := &wire.Offer{RP: place.Host}
	if o.Card, err = cardOf(&call); err != nil {
		return nil, err
	}
	o.Card.Became = s.became(&call)
	row, ok := s.approverNamed(c.Peer.Name)
	if o.Viewer = !ok || row.Viewer; !o.Viewer { // a viewer's look must not keep from those who decide that it waits
		s.seen(ctx, call.ID)
	}
	if o.Viewer || call.State != ledger.Parked {
		return o, fitAnswer(o)
	}
	now := s.ledger.Now()
	until, err := s.decidable(now, o)
	if err != nil {
		return nil, err
	}
	s.web.mu.Lock()
	defer s.web.mu.Unlock()
	s.web.offers.put(now, o.Nonce, offer{card: call.ID, hash: o.Card.Hash}, until)
	return o, nil
}

// decidable gives an offer what it is decided with, and says until when that holds.
func (s *Sentinel) decidable(now ledger.Moment, o *wire.Offer) (until ledger.Moment, err error) {
	until = now.Add(offerFor)
	o.Nonce, o.Expires = make([]byte, 32), until.Time().Unix()
	rand.Read(o.Nonce)
	if o.Allow, err = s.credentials(false); err != nil {
		return until, err
	}
	return until, fitAnswer(o)
}

// fitAnswer cuts an offer so that it fits into an answer. In JSON it may be longer than the card's own frame was, where much of it is
// escaped: then bodies are shown less of, and say so.
func fitAnswer(o *wire.Offer) error {
	for {
		b, err := writeJSON(o)
		if err != nil {
			return fmt.Errorf("encode card %s: %w", o.Card.ID, err)
		}
		if len(b) <= maxAnswer {
			return nil
		}
		var longest *wire.Shown
		for i := range o.Card.Bodies {
			if w := &o.Card.Bodies[i]; longest == nil || len(w.Text) > len(longest.Text) {
				longest = w
			}
		}
		switch {
		case longest != nil && len(longest.Text) > 1024:
			cut := len(longest.Text) / 2
			for !utf8.RuneStart(longest.Text[cut]) {
				cut--
			}
			longest.Text, longest.Cut = longest.Text[:cut], true
		case o.Card.Grantable != nil:
			o.Card.Grantable = nil
		default:
			return wire.Refuse(wire.CodeTooLarge, "the card is too large for a browser",
				"decide it at a terminal: doorward show "+o.Card.ID)
		}
	}
}

// webHistory reads the record: its newest entries, those of one call, and page by page.
func (s *Sentinel) webHistory(ctx context.Context, c *daemon.Call, req *wire.AuditReq) (*wire.AuditResp, error) {
	switch req.Op {
	case "list", "show", "export":
		return s.audit(ctx, c, req)
	}
	return nil, wire.Refuse(wire.CodeUsage, "history: no operation "+quote(req.Op), "")
}
