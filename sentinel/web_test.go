// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/passkey"
	"github.com/doorward/doorward/sentinel/passkey/softkey"
	"github.com/doorward/doorward/sentinel/policy"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

// here is where the page of these tests is.
var here = passkey.Place{Origin: "http://localhost:8440", RP: "localhost"}

// root is the admin, approvals the daemon that carries what browsers say.
func root() *daemon.Call {
	return &daemon.Call{Peer: peer.Identity{Kind: peer.Person, Admin: true}}
}

func approvals() *daemon.Call {
	return &daemon.Call{Peer: peer.Identity{Kind: peer.Unit, Unit: "doorward-approvals.service", Name: "approvals"}}
}

// newWard is a sentinel with a page.
func newWard(t *testing.T) *Sentinel {
	t.Helper()
	s := newSentinel(t)
	if err := os.WriteFile(filepath.Join(s.config, approver.File), []byte(`host = "localhost"`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// browser is the page with somebody before it, who has a passkey.
type browser struct {
	t       *testing.T
	s       *Sentinel
	key     *softkey.Key
	card    []byte // public card key, as the link had it
	session []byte
}

// invited is what the link of an invitation has in its fragment.
func (s *Sentinel) invited(t *testing.T, name string, viewer ...bool) (id string, code, card []byte) {
	t.Helper()
	r, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "add", Name: name, Viewer: len(viewer) > 0})
	if err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(r.Link)
	if err != nil || !strings.HasPrefix(r.Link, here.Origin+"/#") {
		t.Fatalf("%s, %v", r.Link, err)
	}
	q, err := url.ParseQuery(link.Fragment)
	if err != nil {
		t.Fatal(err)
	}
	text := func(key string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(q.Get(key))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return q.Get("enrol"), text("code"), text("key")
}

func (s *Sentinel) enrol(t *testing.T, q wire.EnrolReq) (*wire.EnrolResp, error) {
	t.Helper()
	return s.webEnrol(t.Context(), nil, &q)
}

// enrolled is the browser of a new approver, who has not signed in.
func (s *Sentinel) enrolled(t *testing.T, name string, viewer ...bool) *browser {
	t.Helper()
	b := &browser{t: t, s: s, key: softkey.New()}
	id, code, card := s.invited(t, name, viewer...)
	b.card = card
	o, err := s.enrol(t, wire.EnrolReq{ID: id})
	if err != nil || o.Name != name || o.RP != here.RP || len(o.Challenge) != 32 || len(o.User) != 32 {
		t.Fatalf("%+v, %v", o, err)
	}
	c := b.key.Register(here, o.Challenge, o.User)
	r, err := s.enrol(t, wire.EnrolReq{ID: id, Credential: c, MAC: approver.EnrolMAC(code, c)})
	if err != nil || !r.Done {
		t.Fatalf("%+v, %v", r, err)
	}
	return b
}

// signedIn is an approver who has.
func (s *Sentinel) signedIn(t *testing.T, name string, viewer ...bool) *browser {
	t.Helper()
	b := s.enrolled(t, name, viewer...)
	if r, err := b.login(); err != nil || r.Name != name || len(r.Session) != 32 {
		t.Fatalf("%+v, %v", r, err)
	}
	return b
}

func (s *Sentinel) login(t *testing.T, session []byte, q wire.LoginReq) (*wire.LoginResp, error) {
	t.Helper()
	return s.webLogin(t.Context(), session, &q)
}

func (b *browser) login(lies ...softkey.Lie) (*wire.LoginResp, error) {
	b.t.Helper()
	o, err := b.s.login(b.t, nil, wire.LoginReq{})
	if err != nil {
		b.t.Fatal(err)
	}
	challenge := wire.LoginChallenge(o.Nonce)
	if o.RP != here.RP {
		b.t.Fatalf("%+v", o)
	}
	r, err := b.s.login(b.t, nil, wire.LoginReq{Nonce: o.Nonce, Assertion: b.key.Assert(here, challenge[:], lies...)})
	if err == nil {
		b.session = r.Session
	}
	return r, err
}

// answerTo puts a question as the page's script does, and takes an answer only where the key of the link has signed it.
func answerTo[Req, Resp any](b *browser, verb string, h func(context.Context, *daemon.Call, *Req) (*Resp, error), q Req) (*Resp, error) {
	b.t.Helper()
	text, err := json.Marshal(q)
	if err != nil {
		b.t.Fatal(err)
	}
	req := &wire.WebReq{Session: b.session, Nonce: random32(), Body: text}
	c := approvals()
	c.Verb = verb
	resp, err := viewed(b.s, h)(b.t.Context(), c, req)
	if err != nil {
		b.t.Fatal(err)
	}
	if !b.genuine(verb, req, resp) {
		b.t.Fatalf("the answer to %s is not signed", verb)
	}
	if resp.Code != "" {
		e := new(wire.Error)
		if err := json.Unmarshal(resp.Body, e); err != nil || e.Code != resp.Code {
			b.t.Fatalf("%s, %v", resp.Body, err)
		}
		return nil, e
	}
	v := new(Resp)
	if err := json.Unmarshal(resp.Body, v); err != nil {
		b.t.Fatal(err)
	}
	return v, nil
}

func random32() []byte {
	b := make([]byte, 32)
	rand.Read(b)
	return b
}

func (b *browser) genuine(verb string, req *wire.WebReq, resp *wire.WebResp) bool {
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), b.card)
	if err != nil || len(resp.Signature) != 64 {
		b.t.Fatal(err, len(resp.Signature))
	}
	digest := sha256.Sum256(wire.Answered(verb, req, resp))
	return ecdsa.Verify(key, digest[:], new(big.Int).SetBytes(resp.Signature[:32]), new(big.Int).SetBytes(resp.Signature[32:]))
}

// show is a card as the script takes it.
func (b *browser) show(id string) wire.Offer {
	b.t.Helper()
	o, err := answerTo(b, "show", b.s.webShow, wire.CallRef{Call: id})
	if err != nil {
		b.t.Fatal(err)
	}
	return *o
}

// with is the browser with another session.
func (b *browser) with(session []byte) *browser {
	other := *b
	other.session = session
	return &other
}

// item is what the script makes of an offer, and a decision on it.
func (b *browser) item(o *wire.Offer, d wire.Decision) wire.WebDecision {
	b.t.Helper()
	d.Hash = o.Card.Hash
	text, err := json.Marshal(d)
	if err != nil {
		b.t.Fatal(err)
	}
	return wire.WebDecision{ID: o.Card.ID, Nonce: o.Nonce, Decision: text}
}

// signs makes a request over items, of offers that end then.
func (b *browser) signs(items []wire.WebDecision, expires []int64, lies ...softkey.Lie) *wire.WebDecideReq {
	challenge := wire.Challenge(items, expires)
	return &wire.WebDecideReq{Items: items, Assertion: b.key.Assert(here, challenge[:], lies...)}
}

func (b *browser) decide(req *wire.WebDecideReq) (*wire.WebDecided, error) {
	b.t.Helper()
	return answerTo(b, "decide", b.s.webDecide, *req)
}

// yes approves a card as it is shown now.
func (b *browser) yes(id string) (*wire.WebDecided, error) {
	b.t.Helper()
	o := b.show(id)
	return b.decide(b.signs([]wire.WebDecision{b.item(&o, wire.Decision{Approve: true})}, []int64{o.Expires}))
}

func done(r *wire.WebDecided, err error) bool {
	return err == nil && len(r.Outcomes) == 1 && r.Outcomes[0].Err == nil && r.Outcomes[0].State == wire.StateDone
}

// asks puts up a widening about a cell.
func (s *Sentinel) asks(t *testing.T, cell string) string {
	t.Helper()
	r, err := s.taint(t.Context(), ada(), &wire.TaintReq{Cell: cell, Clear: true})
	if err != nil {
		t.Fatal(err)
	}
	return r.Widening
}

func (s *Sentinel) stateOf(t *testing.T, id string) ledger.State {
	t.Helper()
	c, err := s.ledger.Call(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c.State
}

// soon has an authd, and nobody waits long for the other daemons, which are not there.
func (s *Sentinel) soon(t *testing.T) {
	t.Helper()
	long := switchFor
	switchFor = 200 * time.Millisecond
	t.Cleanup(func() { switchFor = long })
	s.authd = peerThat(t, func(m *wire.Msg) any {
		if m.Verb == "revoke" {
			return &wire.RevokeResp{}
		}
		return &wire.Empty{}
	})
}

// details are those of the entries of a type, as text.
func (s *Sentinel) details(t *testing.T, typ string) string {
	t.Helper()
	all, err := s.ledger.Entries(t.Context(), ledger.Query{Types: []string{typ}})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, e := range all {
		out.Write(e.Line())
	}
	return out.String()
}

// An approver enrols, signs in, sees a call, and decides; the record has by which passkey, and what anybody needs to verify it.
func TestAPasskeyDecides(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	id := s.asks(t, "work")

	list, err := answerTo(b, "pending", s.pending, wire.ListFrom{})
	if err != nil || len(list.Cards) != 1 || list.Cards[0].ID != id {
		t.Fatalf("%+v, %v", list, err)
	}
	o := b.show(id)
	if o.RP != here.RP || len(o.Allow) != 1 || !bytes.Equal(o.Allow[0], b.key.ID) || o.Expires > time.Now().Add(offerFor).Unix() {
		t.Errorf("%+v", o)
	}
	item := b.item(&o, wire.Decision{Approve: true})
	req := b.signs([]wire.WebDecision{item}, []int64{o.Expires})
	if r, err := b.decide(req); !done(r, err) {
		t.Fatalf("%+v, %v", r, err)
	}
	c, err := s.ledger.Call(t.Context(), id)
	if err != nil || c.State != ledger.Done || c.Approver != "passkey:ada" {
		t.Errorf("%s by %s, %v", c.State, c.Approver, err)
	}

	// From the record alone: the challenge of the assertion, and the key that was enrolled.
	var entry struct {
		Actor   string `json:"actor"`
		Details struct {
			More map[string]string `json:"more"`
		} `json:"details"`
	}
	if err := json.Unmarshal([]byte(s.details(t, ledger.EvApprove)), &entry); err != nil {
		t.Fatal(err)
	}
	more := entry.Details.More
	if entry.Actor != "passkey:ada" || more["credential"] != credentialSum(b.key.ID) || more["decision"] != string(item.Decision) ||
		more["assertion"] != string(req.Assertion) {
		t.Errorf("%+v", entry)
	}
	signed, err := base64.RawStdEncoding.DecodeString(more["signed"])
	if err != nil {
		t.Fatal(err)
	}
	challenge := sha256.Sum256(append([]byte("doorward challenge 1\x00"), signed...))
	rows, err := s.approverRows()
	if err != nil || !strings.Contains(s.details(t, ledger.EvSetting), base64.RawStdEncoding.EncodeToString(rows[0].Public)) {
		t.Fatalf("the record has no public key; %v", err)
	}
	again, err := passkey.Parse([]byte(more["assertion"]))
	if err != nil {
		t.Fatal(err)
	}
	k := rows[0].key()
	k.Count = 0
	if _, err := again.Verify(k, here, challenge[:]); err != nil {
		t.Errorf("the record does not verify: %v", err)
	}

	// What is decided is shown, and there is nothing to decide.
	if o := b.show(id); len(o.Nonce) != 0 || len(o.Allow) != 0 || o.Card.State != wire.StateDone {
		t.Errorf("%+v", o)
	}
}

// A call of a cell, once and with a grant, and a no that ends the session.
func TestAPasskeyGrantsAndStops(t *testing.T) {
	s := newWard(t)
	s.soon(t)
	s.worksLike(t, 200, "[]")
	b := s.signedIn(t, "ada")
	ask := func(title string) string {
		t.Helper()
		r, err := s.decide(t.Context(), &daemon.Call{Peer: cell("work", "s1")}, &wire.DecideReq{Frame: *s.call("create",
			wire.Arg{Name: "title", Values: []string{title}}, wire.Arg{Name: "to", Values: []string{"bob@example.org"}})})
		if err != nil || r.Verdict != wire.Parked {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Call
	}
	o, second := b.show(ask("one")), ask("two")
	g := o.Card.Grantable
	if g == nil {
		t.Fatal("no grant is offered")
	}
	g.Kind, g.Until = ledger.KindUntil, time.Now().Add(time.Hour).Unix()
	r, err := b.decide(b.signs([]wire.WebDecision{b.item(&o, wire.Decision{Approve: true, Grant: g})}, []int64{o.Expires}))
	if err != nil || r.Outcomes[0].Err != nil || r.Outcomes[0].Grant == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	s.settledOf(t, o.Card.ID)
	grants, err := answerTo(b, "grants", s.grantsVerb, wire.ListFrom{})
	if err != nil || len(grants.Grants) != 1 || grants.Grants[0].By != "passkey:ada" {
		t.Fatalf("%+v, %v", grants, err)
	}
	if text := s.details(t, ledger.EvApprove); !strings.Contains(text, `"grant":`) || !strings.Contains(text, `"assertion":`) {
		t.Errorf("%s", text)
	}
	o = b.show(second)
	r, err = b.decide(b.signs([]wire.WebDecision{b.item(&o, wire.Decision{Stop: true, Why: "not that"})}, []int64{o.Expires}))
	if err != nil || r.Outcomes[0].State != wire.StateDenied {
		t.Fatalf("%+v, %v", r, err)
	}
	if live := slices.DeleteFunc(s.ledger.Sessions("work"), func(x ledger.Session) bool { return !x.Ended.IsZero() }); len(live) != 0 {
		t.Errorf("%d sessions live", len(live))
	}
	if text := s.details(t, ledger.EvDeny); !strings.Contains(text, "passkey:ada") || !strings.Contains(text, "not that") {
		t.Errorf("%s", text)
	}
}

// Whoever has taken approvals over can bring sentinel anything but what a passkey signed. Each attack is followed by its control: the
// same, on a new offer, as it should be.
func TestWhatNoPasskeySignedIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		want wire.Code
		// does makes the request from a card that is shown, o, beside another, p; once is true where it is sent before, and taken.
		does func(b *browser, o, p *wire.Offer) *wire.WebDecideReq
		once bool
	}{
		{"replayed", wire.CodeExpired, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			return b.approving(o)
		}, true},
		{"the nonce twice in one", wire.CodeExpired, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			i := b.item(o, wire.Decision{Approve: true})
			return b.signs([]wire.WebDecision{i, i}, []int64{o.Expires, o.Expires})
		}, false},
		{"shows A, and signs B", wire.CodeConflict, func(b *browser, o, p *wire.Offer) *wire.WebDecideReq {
			i := b.item(p, wire.Decision{Approve: true})
			i.Nonce = o.Nonce
			return b.signs([]wire.WebDecision{i}, []int64{o.Expires})
		}, false},
		{"signs the hash of B for A", wire.CodeConflict, func(b *browser, o, p *wire.Offer) *wire.WebDecideReq {
			i := b.item(p, wire.Decision{Approve: true})
			i.Nonce, i.ID = o.Nonce, o.Card.ID
			return b.signs([]wire.WebDecision{i}, []int64{o.Expires})
		}, false},
		{"a no to A, sent as one to B", wire.CodeConflict, func(b *browser, o, p *wire.Offer) *wire.WebDecideReq {
			r := b.signs([]wire.WebDecision{b.item(o, wire.Decision{})}, []int64{o.Expires})
			r.Items[0].ID = p.Card.ID // which the challenge does not cover
			return r
		}, false},
		{"signed for A, sent for B", wire.CodeNotAllowed, func(b *browser, o, p *wire.Offer) *wire.WebDecideReq {
			r := b.approving(o)
			r.Items = []wire.WebDecision{b.item(p, wire.Decision{Approve: true})}
			return r
		}, false},
		{"a no that is made a yes", wire.CodeNotAllowed, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			r := b.signs([]wire.WebDecision{b.item(o, wire.Decision{})}, []int64{o.Expires})
			r.Items[0].Decision = bytes.Replace(r.Items[0].Decision, []byte("false"), []byte("true"), 1)
			return r
		}, false},
		{"one of two is left out", wire.CodeNotAllowed, func(b *browser, o, p *wire.Offer) *wire.WebDecideReq {
			r := b.signs([]wire.WebDecision{b.item(o, wire.Decision{Approve: true}), b.item(p, wire.Decision{})}, []int64{o.Expires, p.Expires})
			r.Items = r.Items[:1]
			return r
		}, false},
		{"a longer offer", wire.CodeNotAllowed, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			return b.signs([]wire.WebDecision{b.item(o, wire.Decision{Approve: true})}, []int64{o.Expires + 3600})
		}, false},
		{"an offer that is over", wire.CodeExpired, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			key := sha256.Sum256(o.Nonce)
			kept := b.s.web.offers.all[key]
			kept.until = b.s.ledger.Now()
			b.s.web.offers.all[key] = kept
			return b.approving(o)
		}, false},
		{"a nonce of nobody's", wire.CodeExpired, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			o.Nonce = bytes.Repeat([]byte{1}, 32)
			return b.approving(o)
		}, false},
		{"another origin", wire.CodeNotAllowed, lied(func(m *softkey.Making) { m.Origin = "https://evil.example" }), false},
		{"the origin of approvals", wire.CodeNotAllowed, lied(func(m *softkey.Making) { m.Origin = "http://localhost:8441" }), false},
		{"another RP", wire.CodeNotAllowed, lied(func(m *softkey.Making) { m.RP = "evil.example" }), false},
		{"nobody verified", wire.CodeNotAllowed, lied(func(m *softkey.Making) { m.Flags &^= 4 }), false},
		{"a counter set back", wire.CodeNotAllowed, lied(func(m *softkey.Making) { m.Count = 1 }), false},
		{"a forged signature", wire.CodeNotAllowed, lied(func(m *softkey.Making) { m.Forge = true }), false},
		{"the registration's kind", wire.CodeNotAllowed, lied(func(m *softkey.Making) { m.Type = "webauthn.create" }), false},
		{"a passkey of nobody's", wire.CodeNotAllowed, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			other := *b
			other.key = softkey.New()
			other.key.User = b.key.User
			return other.approving(o)
		}, false},
		{"another passkey under the same id", wire.CodeNotAllowed, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			other := *b
			other.key = softkey.New()
			other.key.ID, other.key.User, other.key.Count = b.key.ID, b.key.User, 100
			return other.approving(o)
		}, false},
		{"a session alone", wire.CodeNotAllowed, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			return &wire.WebDecideReq{Items: []wire.WebDecision{b.item(o, wire.Decision{Approve: true})}}
		}, false},
		{"a login's assertion", wire.CodeNotAllowed, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
			challenge := wire.LoginChallenge(o.Nonce)
			return &wire.WebDecideReq{Items: []wire.WebDecision{b.item(o, wire.Decision{Approve: true})}, Assertion: b.key.Assert(here, challenge[:])}
		}, false},
		{"a key twice", wire.CodeBadArgument, written(`{"hash":HASH,"approve":false,"approve":true}`), false},
		{"a key that there is not", wire.CodeBadArgument, written(`{"hash":HASH,"approve":true,"also":"b"}`), false},
		{"a key in another spelling", wire.CodeBadArgument, written(`{"hash":HASH,"Approve":true}`), false},
		{"more behind it", wire.CodeBadArgument, written(`{"hash":HASH,"approve":true}{}`), false},
		{"no hash", wire.CodeConflict, written(`{"approve":true}`), false},
		{"yes and no", wire.CodeBadArgument, written(`{"hash":HASH,"approve":true,"stop":true}`), false},
		{"no, with a grant", wire.CodeBadArgument, written(`{"hash":HASH,"approve":false,"grant":{"connector":"demo","method":"create",` +
			`"account":"home","cell":"work","kind":"once"}}`), false},
		{"nothing at all", wire.CodeTooMany, func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq { return b.signs(nil, nil) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newWard(t)
			b := s.signedIn(t, "ada")
			one, two := s.asks(t, "one"), s.asks(t, "two")
			o, p := b.show(one), b.show(two)
			req := c.does(b, &o, &p)
			if c.once {
				if r, err := b.decide(req); !done(r, err) {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			if r, err := b.decide(req); r != nil || codeOf(err) != c.want {
				t.Errorf("%+v, %v; want %s", r, err, c.want)
			}
			if !c.once && s.stateOf(t, one) != ledger.Parked || s.stateOf(t, two) != ledger.Parked {
				t.Fatalf("they are %s and %s", s.stateOf(t, one), s.stateOf(t, two))
			}
			if !c.once && c.want != wire.CodeTooMany {
				// The nonce is used up, whatever came of it: what is right now is too late.
				again := o
				if again.Nonce = req.Items[0].Nonce; req.Items[0].ID == two {
					again.Card = p.Card
				}
				if r, err := b.decide(b.approving(&again)); codeOf(err) != wire.CodeExpired {
					t.Errorf("the nonce counts again: %+v, %v", r, err)
				}
			}
			control := one
			if c.once {
				control = two
			}
			if r, err := b.yes(control); !done(r, err) {
				t.Errorf("control: %+v, %v", r, err)
			}
		})
	}
}

// approving is a yes to a card.
func (b *browser) approving(o *wire.Offer, lies ...softkey.Lie) *wire.WebDecideReq {
	return b.signs([]wire.WebDecision{b.item(o, wire.Decision{Approve: true})}, []int64{o.Expires}, lies...)
}

func lied(lie softkey.Lie) func(*browser, *wire.Offer, *wire.Offer) *wire.WebDecideReq {
	return func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq { return b.approving(o, lie) }
}

// written signs a decision's text as it is.
func written(text string) func(*browser, *wire.Offer, *wire.Offer) *wire.WebDecideReq {
	return func(b *browser, o, _ *wire.Offer) *wire.WebDecideReq {
		hash, err := json.Marshal(o.Card.Hash)
		if err != nil {
			b.t.Fatal(err)
		}
		i := wire.WebDecision{ID: o.Card.ID, Nonce: o.Nonce, Decision: []byte(strings.Replace(text, "HASH", string(hash), 1))}
		return b.signs([]wire.WebDecision{i}, []int64{o.Expires})
	}
}

// Whoever has a copy of a passkey is found out by the counter, and so is its owner: neither passes then.
func TestAClonedPasskey(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	thief := *b
	thief.key = b.key.Clone()
	if r, err := b.yes(s.asks(t, "one")); !done(r, err) {
		t.Fatalf("control: %+v, %v", r, err)
	}
	if _, err := thief.yes(s.asks(t, "two")); codeOf(err) != wire.CodeNotAllowed || !strings.Contains(err.Error(), "counter") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(s.details(t, ledger.EvRefused), "counter") {
		t.Error("it is not on record")
	}
	// The counter is the record's: it outlives this process.
	rows, err := s.approverRows()
	if err != nil || rows[0].Count != b.key.Count {
		t.Errorf("%+v, %v", rows, err)
	}
}

// Of two browsers that decide at once one wins, and the other is told who.
func TestTwoDecideAtOnce(t *testing.T) {
	s := newWard(t)
	one, two := s.signedIn(t, "ada"), s.signedIn(t, "bob")
	for range 8 {
		id := s.asks(t, "work")
		var reqs []*wire.WebDecideReq
		both := []*browser{one, two}
		for _, b := range both {
			o := b.show(id)
			reqs = append(reqs, b.approving(&o))
		}
		got := make([]wire.WebOutcome, 2)
		var wg sync.WaitGroup
		for i, b := range both {
			wg.Go(func() {
				r, err := b.decide(reqs[i])
				if err != nil || len(r.Outcomes) != 1 {
					t.Errorf("%+v, %v", r, err)
					return
				}
				got[i] = r.Outcomes[0]
			})
		}
		wg.Wait()
		c, err := s.ledger.Call(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		won := map[string]int{"passkey:ada": 0, "passkey:bob": 1}[c.Approver]
		if got[won].Err != nil || got[won].State != wire.StateDone {
			t.Errorf("%+v", got)
		}
		if e := got[1-won].Err; e == nil || !strings.Contains(e.Reason, "approved already, by "+c.Approver) {
			t.Errorf("the other is told %v", e)
		}
	}
}

// Several at once are each decided by themselves.
func TestSeveralAtOnce(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	ids := []string{s.asks(t, "one"), s.asks(t, "two"), s.asks(t, "three")}
	var items []wire.WebDecision
	var expires []int64
	for i, id := range ids {
		o := b.show(id)
		items, expires = append(items, b.item(&o, wire.Decision{Approve: i < 2})), append(expires, o.Expires)
	}
	if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: ids[0]}); err != nil { // somebody says no meanwhile
		t.Fatal(err)
	}
	r, err := b.decide(b.signs(items, expires))
	if err != nil || len(r.Outcomes) != 3 || r.Outcomes[0].Err == nil || r.Outcomes[1].State != wire.StateDone || r.Outcomes[2].State != wire.StateDenied {
		t.Errorf("%+v, %v", r, err)
	}
}

// limits.toml's line about the terminal is about the terminal.
func TestThePasskeyDecidesWhereTheTerminalDoesNot(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	set, err := policy.Compile(policy.Files{}, s.sorted, []byte("terminal-approvals = false\n"))
	if err != nil {
		t.Fatal(err)
	}
	s.policy.Store(set)
	id := s.asks(t, "work")
	o := b.show(id)
	if _, err := s.decideCard(t.Context(), ada(), &wire.DecideCardReq{ID: id, Hash: o.Card.Hash, Approve: true}); codeOf(err) != wire.CodeNotAllowed {
		t.Errorf("at the terminal: %v", err)
	}
	if r, err := b.yes(id); !done(r, err) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A removed approver has no session, no offer and no passkey; who stays has to look again.
func TestARemovedApprover(t *testing.T) {
	s := newWard(t)
	ann, bob := s.signedIn(t, "ann"), s.signedIn(t, "bob")
	id := s.asks(t, "work")
	of, open := ann.show(id), bob.show(id)
	late := ann.approving(&of)
	if _, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "remove", Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.decide(late); codeOf(err) != wire.CodeNoSession {
		t.Errorf("with her session: %v", err)
	}
	if _, err := ann.login(); codeOf(err) != wire.CodeNotAllowed {
		t.Errorf("she signs in: %v", err)
	}
	if r, err := bob.decide(bob.approving(&open)); codeOf(err) != wire.CodeExpired {
		t.Errorf("on an open offer: %+v, %v", r, err)
	}
	if text := s.details(t, ledger.EvSetting); !strings.Contains(text, "offers that were open are void") || !strings.Contains(text, "root removed it") {
		t.Errorf("the record: %s", text)
	}
	stolen := *ann // her passkey, in a session of another's
	stolen.session = bob.session
	if _, err := stolen.yes(id); codeOf(err) != wire.CodeNotAllowed {
		t.Errorf("with her passkey: %v", err)
	}
	if r, err := bob.yes(id); !done(r, err) {
		t.Errorf("control: %+v, %v", r, err)
	}
	if _, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "remove", Name: "ann"}); codeOf(err) != wire.CodeNotFound {
		t.Errorf("removed twice: %v", err)
	}
	s.enrolled(t, "ann") // another of that name
	if _, _, ok := s.sessionOf(ann.session); ok {
		t.Error("the session of the one before lives again")
	}
}

// Root takes an approver away while a decision of hers runs, which is between her signature and the writing of it: what is not written
// then is not decided. Control: the same, without the removal.
func TestAnApproverIsRemovedInTheMiddleOfADecision(t *testing.T) {
	for _, removed := range []bool{true, false} {
		s := newWard(t)
		s.soon(t)
		b := s.signedIn(t, "ann")
		if _, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "one"}); err != nil {
			t.Fatal(err)
		}
		r, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "one", Resume: true})
		if err != nil {
			t.Fatal(err)
		}
		yes, no := s.asks(t, "two"), s.asks(t, "three")
		var once sync.Once
		s.freezer = peerThat(t, func(*wire.Msg) any { // letting the first go on asks cells
			once.Do(func() {
				if !removed {
					return
				}
				if _, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "remove", Name: "ann"}); err != nil {
					t.Error(err)
				}
			})
			return &wire.Empty{}
		})
		var items []wire.WebDecision
		var expires []int64
		for id, d := range map[string]wire.Decision{r.Widening: {Approve: true}, yes: {Approve: true}, no: {}} {
			o := b.show(id)
			at := len(items)
			if id == r.Widening {
				at = 0
			}
			items, expires = slices.Insert(items, at, b.item(&o, d)), slices.Insert(expires, at, o.Expires)
		}
		got, err := b.decide(b.signs(items, expires))
		if err != nil || got.Outcomes[0].State != wire.StateDone {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, o := range got.Outcomes[1:] {
			if (o.Err != nil && o.Err.Code == wire.CodeNotAllowed) != removed {
				t.Errorf("removed %t: %+v", removed, o)
			}
		}
		if waits := s.stateOf(t, yes) == ledger.Parked && s.stateOf(t, no) == ledger.Parked; waits != removed {
			t.Errorf("removed %t: they are %s and %s", removed, s.stateOf(t, yes), s.stateOf(t, no))
		}
	}
}

// A viewer sees, and does nothing: neither by a session, nor by the passkey in another's.
func TestAViewer(t *testing.T) {
	s := newWard(t)
	s.soon(t)
	ada, eve := s.signedIn(t, "ada"), s.signedIn(t, "eve", true)
	id := s.asks(t, "work")
	for b, want := range map[*browser]wire.LoginResp{ada: {Name: "ada"}, eve: {Name: "eve", Viewer: true}, ada.with(nil): {}} {
		if r, err := s.login(t, b.session, wire.LoginReq{}); err != nil || r.Name != want.Name || r.Viewer != want.Viewer {
			t.Errorf("who is there is %+v, %v", r, err)
		}
	}
	o := eve.show(id)
	if o.Card.ID != id || !o.Viewer || len(o.Nonce) != 0 || len(o.Allow) != 0 {
		t.Errorf("%+v", o)
	}
	if l, err := answerTo(eve, "pending", s.pending, wire.ListFrom{}); err != nil || len(l.Cards) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := answerTo(eve, "session", s.sessionVerb, wire.SessionReq{}); err != nil {
		t.Error(err)
	}
	o = ada.show(id)
	if o.Viewer || len(o.Allow) != 1 || !bytes.Equal(o.Allow[0], ada.key.ID) {
		t.Errorf("the offer is for %d", len(o.Allow))
	}
	refused := func(what string, err error) {
		t.Helper()
		if codeOf(err) != wire.CodeNotAllowed {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := eve.decide(eve.approving(&o))
	refused("with her session and passkey", err)
	_, err = eve.decide(ada.approving(&o))
	refused("an approver's assertion in her session", err)
	_, err = eve.with(ada.session).decide(eve.approving(&o))
	refused("her passkey in an approver's session", err)
	_, err = answerTo(eve, "stop", s.stop, wire.StopReq{Cell: "work"})
	refused("stop", err)
	_, err = answerTo(eve, "revoke", s.revoke, wire.PersonRevokeReq{Cell: "work"})
	refused("revoke", err)
	_, err = answerTo(eve, "session", s.sessionVerb, wire.SessionReq{End: "work/s"})
	refused("end a session", err)
	_, err = answerTo(eve, "settings", s.webSettings, wire.SettingsReq{Lines: []wire.SettingLine{{Connector: "demo", Value: "dont-ask"}}})
	refused("a setting", err)
	if _, err := answerTo(eve, "settings", s.webSettings, wire.SettingsReq{}); err != nil {
		t.Errorf("settings: %v", err)
	}
	_, err = answerTo(eve, "seen", s.webSeen, wire.CallRef{Call: id})
	refused("keep others from being told", err)
	_, err = answerTo(eve, "taint", s.taint, wire.TaintReq{Cell: "work", Clear: true})
	refused("clear a label", err)
	_, err = answerTo(eve, "a verb of later", s.pending, wire.ListFrom{})
	refused("what nobody said that a viewer may", err)
	if s.stateOf(t, id) != ledger.Parked {
		t.Fatalf("it is %s", s.stateOf(t, id))
	}
	if r, err := ada.yes(id); !done(r, err) {
		t.Errorf("control: %+v, %v", r, err)
	}
	if _, err := answerTo(ada, "stop", s.stop, wire.StopReq{Cell: "work"}); err != nil {
		t.Errorf("control: %v", err)
	}
	r, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "list"})
	if err != nil || len(r.Approvers) != 2 || r.Approvers[0].Viewer || !r.Approvers[1].Viewer {
		t.Errorf("%+v, %v", r, err)
	}
	if text := s.details(t, ledger.EvSetting); !strings.Contains(text, `"role":"viewer"`) {
		t.Errorf("the record: %s", text)
	}
}

// A new approver voids what was open, too.
func TestANewApproverVoidsOffers(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	id := s.asks(t, "work")
	o := b.show(id)
	s.enrolled(t, "bob")
	if r, err := b.decide(b.approving(&o)); codeOf(err) != wire.CodeExpired {
		t.Errorf("%+v, %v", r, err)
	}
	if o := b.show(id); len(o.Allow) != 2 {
		t.Errorf("%d may decide", len(o.Allow))
	}
	if r, err := b.yes(id); !done(r, err) {
		t.Errorf("control: %+v, %v", r, err)
	}
}

// Who has no session sees nothing, and what a session alone may do narrows.
func TestASession(t *testing.T) {
	s := newWard(t)
	s.soon(t)
	b := s.signedIn(t, "ada")
	id := s.asks(t, "work")
	stop := func(session []byte, q wire.StopReq) (*wire.Report, error) {
		return answerTo(b.with(session), "stop", s.stop, q)
	}
	for name, session := range map[string][]byte{"none": nil, "a guess": bytes.Repeat([]byte{1}, 32), "its digest": digestOf(b.session)} {
		if _, err := answerTo(b.with(session), "pending", s.pending, wire.ListFrom{}); codeOf(err) != wire.CodeNoSession {
			t.Errorf("%s: pending: %v", name, err)
		}
		if _, err := stop(session, wire.StopReq{Cell: "work"}); codeOf(err) != wire.CodeNoSession {
			t.Errorf("%s: stop: %v", name, err)
		}
	}
	if r, err := stop(b.session, wire.StopReq{Cell: "work", Resume: true}); err != nil || s.stateOf(t, r.Widening) != ledger.Parked {
		t.Errorf("resume is no card: %+v, %v", r, err)
	}
	if s.stateOf(t, id) != ledger.Parked {
		t.Error("it decided")
	}
	if _, err := stop(b.session, wire.StopReq{Cell: "work"}); err != nil || s.stopped("work") == nil {
		t.Errorf("%v", err)
	}
	if !strings.Contains(s.details(t, ledger.EvSetting), `"actor":"passkey:ada","subject":"stopped/work"`) {
		t.Errorf("the record: %s", s.details(t, ledger.EvSetting))
	}
	h, err := answerTo(b, "history", s.webHistory, wire.AuditReq{Op: "list"})
	if err != nil || len(h.Lines) == 0 {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := answerTo(b, "history", s.webHistory, wire.AuditReq{Op: "follow"}); codeOf(err) != wire.CodeUsage {
		t.Errorf("%v", err)
	}
	e, err := answerTo(b, "events", s.watchEvents, wire.WatchReq{})
	if err != nil || len(e.Events) == 0 {
		t.Errorf("%+v, %v", e, err)
	}

	// It ends by itself, and nothing of it is kept that would be one.
	for k, v := range s.web.views.all {
		if bytes.Equal(k[:], b.session) {
			t.Error("the session itself is kept")
		}
		if left := v.until.Time().Sub(time.Now()); left > viewFor || left < viewFor-time.Minute {
			t.Errorf("it holds %s", left)
		}
		v.until = s.ledger.Now()
		s.web.views.all[k] = v
	}
	if _, err := stop(b.session, wire.StopReq{Cell: "work"}); codeOf(err) != wire.CodeNoSession {
		t.Errorf("it does not end: %v", err)
	}
}

func digestOf(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}

// Signing in takes a passkey, each time anew.
func TestSigningIn(t *testing.T) {
	s := newWard(t)
	b := s.enrolled(t, "ada")
	for name, lie := range map[string]softkey.Lie{
		"another origin":    func(m *softkey.Making) { m.Origin = "http://localhost:8441" },
		"nobody verified":   func(m *softkey.Making) { m.Flags &^= 4 },
		"another challenge": func(m *softkey.Making) { m.Challenge = bytes.Repeat([]byte{1}, 32) },
		"a counter":         func(m *softkey.Making) { m.Count = 1 },
	} {
		if r, err := b.login(lie); r != nil || codeOf(err) != wire.CodeNotAllowed {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	ask := func() []byte {
		t.Helper()
		o, err := s.login(t, nil, wire.LoginReq{})
		if err != nil || len(o.Allow) != 0 {
			t.Fatalf("a stranger is told %+v, %v", o, err)
		}
		return o.Nonce
	}
	sign := func(nonce []byte) wire.LoginReq {
		challenge := wire.LoginChallenge(nonce)
		return wire.LoginReq{Nonce: nonce, Assertion: b.key.Assert(here, challenge[:])}
	}
	over := s.web.newLogin(s.ledger.Now().Add(-loginFor))
	changed := ask()
	changed[0] ^= 1
	for name, nonce := range map[string][]byte{"of nobody's": bytes.Repeat([]byte{1}, 32), "over": over, "made to last": changed, "short": ask()[:16]} {
		if r, err := s.login(t, nil, sign(nonce)); r != nil || codeOf(err) != wire.CodeExpired {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	b.key.Still, b.key.Count = true, 0 // so that the counter is not what tells a repetition
	if err := s.web.forget(s, "ada"); err != nil {
		t.Fatal(err)
	}
	q := sign(ask())
	for range 2 * maxLogins { // strangers ask without end
		ask()
	}
	first, err := s.login(t, nil, q)
	if err != nil || first.Until < time.Now().Add(viewFor-time.Minute).Unix() {
		t.Fatalf("control: %+v, %v", first, err)
	}
	if r, err := s.login(t, nil, q); r != nil || codeOf(err) != wire.CodeExpired {
		t.Errorf("replayed: %+v, %v", r, err)
	}
	if o, err := s.login(t, first.Session, wire.LoginReq{}); err != nil || len(o.Allow) != 1 {
		t.Errorf("who is signed in is told %+v, %v", o, err)
	}
}

// forget has the record take an approver's passkey for one that does not count.
func (w *web) forget(s *Sentinel, name string) error {
	rows, err := s.approverRows()
	if err != nil {
		return err
	}
	for i := range rows {
		if rows[i].Name == name {
			rows[i].Count = 0
			return s.putApprover(s.lifetime, &rows[i], "test", nil)
		}
	}
	return nil
}

// Of sessions there is a bound: the oldest goes.
func TestSessionsAreBounded(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	oldest := b.session
	for range maxViews {
		if _, err := b.login(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.web.views.all); n != maxViews {
		t.Errorf("%d sessions", n)
	}
	if _, _, ok := s.sessionOf(oldest); ok {
		t.Error("the oldest lives")
	}
	if _, _, ok := s.sessionOf(b.session); !ok {
		t.Error("control: the newest does not")
	}
}

// A registration without the code's MAC is another's, whatever it says; and an invitation is for one passkey.
func TestEnrolling(t *testing.T) {
	s := newWard(t)
	id, code, _ := s.invited(t, "ada")
	o, err := s.enrol(t, wire.EnrolReq{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := softkey.New(), softkey.New()
	c, other := mine.Register(here, o.Challenge, o.User), theirs.Register(here, o.Challenge, o.User)
	mac := approver.EnrolMAC(code, c)
	wrong := func(lie softkey.Lie) wire.EnrolReq {
		c := softkey.New().Register(here, o.Challenge, o.User, lie)
		return wire.EnrolReq{ID: id, Credential: c, MAC: approver.EnrolMAC(code, c)}
	}
	for name, a := range map[string]struct {
		req  wire.EnrolReq
		want wire.Code
	}{
		"no MAC":             {wire.EnrolReq{ID: id, Credential: c}, wire.CodeNotAllowed},
		"a MAC of zeros":     {wire.EnrolReq{ID: id, Credential: c, MAC: make([]byte, 32)}, wire.CodeNotAllowed},
		"cut short":          {wire.EnrolReq{ID: id, Credential: c, MAC: mac[:16]}, wire.CodeNotAllowed},
		"the MAC of another": {wire.EnrolReq{ID: id, Credential: other, MAC: mac}, wire.CodeNotAllowed},
		"without the code":   {wire.EnrolReq{ID: id, Credential: other, MAC: approver.EnrolMAC(nil, other)}, wire.CodeNotAllowed},
		"an id of nobody's":  {wire.EnrolReq{ID: newMark(), Credential: c, MAC: mac}, wire.CodeNotFound},
		"no id":              {wire.EnrolReq{Credential: c, MAC: mac}, wire.CodeNotFound},
		"another origin":     {wrong(func(m *softkey.Making) { m.Origin = "http://localhost:8441" }), wire.CodeNotAllowed},
		"another RP":         {wrong(func(m *softkey.Making) { m.RP = "evil.example" }), wire.CodeNotAllowed},
		"nobody verified":    {wrong(func(m *softkey.Making) { m.Flags &^= 4 }), wire.CodeNotAllowed},
		"another challenge":  {wrong(func(m *softkey.Making) { m.Challenge = bytes.Repeat([]byte{1}, 32) }), wire.CodeNotAllowed},
		"no registration":    {wire.EnrolReq{ID: id, Credential: []byte("{}"), MAC: approver.EnrolMAC(code, []byte("{}"))}, wire.CodeNotAllowed},
	} {
		if r, err := s.enrol(t, a.req); r != nil || codeOf(err) != a.want {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if rows, err := s.approverRows(); err != nil || len(rows) != 0 {
		t.Fatalf("%+v, %v", rows, err)
	}
	if r, err := s.enrol(t, wire.EnrolReq{ID: id, Credential: c, MAC: mac}); err != nil || !r.Done || r.Name != "ada" {
		t.Fatalf("control: %+v, %v", r, err)
	}
	if r, err := s.enrol(t, wire.EnrolReq{ID: id, Credential: other, MAC: approver.EnrolMAC(code, other)}); r != nil || codeOf(err) != wire.CodeNotFound {
		t.Errorf("used twice: %+v, %v", r, err)
	}
	again, second, _ := s.invited(t, "bob") // the same passkey under a second name would be one approver that looks like two
	if o, err = s.enrol(t, wire.EnrolReq{ID: again}); err != nil || len(o.Exclude) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	c = mine.Register(here, o.Challenge, o.User)
	if _, err := s.enrol(t, wire.EnrolReq{ID: again, Credential: c, MAC: approver.EnrolMAC(second, c)}); codeOf(err) != wire.CodeConflict {
		t.Errorf("%v", err)
	}
	key := sha256.Sum256([]byte(again))
	late := s.web.invited.all[key]
	late.until = s.ledger.Now()
	s.web.invited.all[key] = late
	if _, err := s.enrol(t, wire.EnrolReq{ID: again}); codeOf(err) != wire.CodeNotFound {
		t.Errorf("it is over: %v", err)
	}

	// The code is nowhere in the record.
	all, err := s.ledger.Entries(t.Context(), ledger.Query{})
	if err != nil || len(all) < 5 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	for _, e := range all {
		for _, code := range [][]byte{code, second} {
			for _, text := range []string{hex.EncodeToString(code), base64.RawURLEncoding.EncodeToString(code), base64.StdEncoding.EncodeToString(code)} {
				if bytes.Contains(e.Line(), []byte(text)) {
					t.Errorf("the code is in %s", e.Line())
				}
			}
		}
	}
}

// Only root says who may approve: a person who could would give herself what a program of hers then has.
func TestOnlyRootChangesApprovers(t *testing.T) {
	s := newWard(t)
	s.enrolled(t, "bob")
	for _, q := range []wire.ApproversReq{{Op: "add", Name: "ada"}, {Op: "remove", Name: "bob"}} {
		if _, err := s.approvers(t.Context(), ada(), &q); codeOf(err) != wire.CodeNotAllowed {
			t.Errorf("%s: %v", q.Op, err)
		}
	}
	// The card key is no secret: any person may have it printed, and it lets nobody in.
	key := "#key=" + base64.RawURLEncoding.EncodeToString(s.web.public)
	if r, err := s.approvers(t.Context(), ada(), &wire.ApproversReq{Op: "link"}); err != nil || r.Link != here.Origin+"/"+key {
		t.Errorf("%+v, %v", r, err)
	}
	r, err := s.approvers(t.Context(), ada(), &wire.ApproversReq{Op: "list"})
	if err != nil || len(r.Approvers) != 1 || r.Approvers[0].Name != "bob" || r.Approvers[0].By != "person:0" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, q := range []wire.ApproversReq{{Op: "add", Name: "A/b"}, {Op: "add"}, {Op: "add", Name: "bob"}, {Op: "empty", Name: "bob"}} {
		if _, err := s.approvers(t.Context(), root(), &q); err == nil {
			t.Errorf("%+v is taken", q)
		}
	}
	for i := range maxInvited {
		s.invited(t, "x"+string(rune('a'+i)))
	}
	s.invited(t, "xa") // in the place of the other
	if _, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "add", Name: "more"}); codeOf(err) != wire.CodeTooMany {
		t.Errorf("%v", err)
	}
	if r, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "remove", Name: "xa"}); err != nil || len(r.Approvers) != maxInvited {
		t.Errorf("%+v, %v", r, err)
	}
	if err := os.Remove(filepath.Join(s.config, approver.File)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "add", Name: "eve"}); codeOf(err) != wire.CodeNotConfigured {
		t.Errorf("without a place: %v", err)
	}
}

// An older record may have an approver who was removed since: it has none.
func TestAnOlderRecordHasNoApprovers(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	s.compare(t.Context(), nil)
	if _, _, ok := s.sessionOf(b.session); !ok {
		t.Error("control: nothing was put back, and the session ended")
	}
	// A row that cannot be read keeps no other from being taken back.
	if err := s.ledger.PutSetting(t.Context(), approverKey+"aaa", []byte("garbled"), "sentinel", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.approverRows(); err == nil {
		t.Error("control: it can be read")
	}
	s.compare(t.Context(), newerCheckpoint(t, 500))
	if rows, err := s.approverRows(); err != nil || len(rows) != 0 {
		t.Errorf("%+v, %v", rows, err)
	}
	if _, _, ok := s.sessionOf(b.session); ok {
		t.Error("the session lives")
	}
	if _, err := b.login(); codeOf(err) != wire.CodeNotAllowed {
		t.Errorf("%v", err)
	}
}

// An answer that was altered is none, and neither is one to another question; the key that says so stays the same.
func TestAnAnswerIsSigned(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	id := s.asks(t, "work")
	ask := func(verb string, h webHandler, session []byte, text string) (*wire.WebReq, *wire.WebResp) {
		t.Helper()
		c := approvals()
		c.Verb = verb
		q := &wire.WebReq{Session: session, Nonce: random32(), Body: []byte(text)}
		r, err := h(t.Context(), c, q)
		if err != nil || !b.genuine(verb, q, r) {
			t.Fatalf("control: %s: %v", verb, err)
		}
		return q, r
	}
	show, q := viewed(s, s.webShow), `{"call":"`+id+`"}`
	req, resp := ask("show", show, b.session, q)
	for name, change := range map[string]func(*wire.WebReq, *wire.WebResp){
		"a byte of the answer":  func(_ *wire.WebReq, r *wire.WebResp) { r.Body[len(r.Body)/2] ^= 1 },
		"a byte more":           func(_ *wire.WebReq, r *wire.WebResp) { r.Body = append(r.Body, ' ') },
		"a refusal of it":       func(_ *wire.WebReq, r *wire.WebResp) { r.Code = wire.CodeNotFound },
		"the answer to another": func(q *wire.WebReq, _ *wire.WebResp) { q.Body = bytes.Replace(q.Body, []byte(id), []byte("c1"), 1) },
		"an earlier answer":     func(q *wire.WebReq, _ *wire.WebResp) { q.Nonce = random32() },
		"a nonce that goes on":  func(q *wire.WebReq, _ *wire.WebResp) { q.Nonce = append(q.Nonce, 0) },
	} {
		x, y := *req, *resp
		x.Body, y.Body = bytes.Clone(x.Body), bytes.Clone(y.Body)
		if change(&x, &y); b.genuine("show", &x, &y) {
			t.Errorf("%s: it is taken", name)
		}
	}
	if b.genuine("pending", req, resp) || b.genuine("sho", req, resp) {
		t.Error("it is taken for the answer to another verb")
	}

	// A refusal is signed as well, also of who has no session; what says so cannot be made up.
	for _, c := range []struct {
		verb    string
		h       webHandler
		session []byte
		text    string
		want    wire.Code
	}{
		{"show", show, b.session, `{"call":"none"}`, wire.CodeNotFound},
		{"show", show, b.session, `{"call":1}`, wire.CodeUsage},
		{"show", show, nil, q, wire.CodeNoSession},
		{"show", show, random32(), `no JSON`, wire.CodeNoSession}, // nothing of it is read
		{"stop", viewed(s, s.stop), nil, `{}`, wire.CodeNoSession},
		{"enrol", open(s, s.webEnrol), nil, `{"id":"none"}`, wire.CodeNotFound},
		{"enrol", open(s, s.webEnrol), nil, `{"id":"` + strings.Repeat("x", maxStranger) + `"}`, wire.CodeTooLarge},
		{"login", open(s, s.webLogin), nil, `{"nonce":"AA==","assertion":"e30="}`, wire.CodeExpired},
	} {
		q, r := ask(c.verb, c.h, c.session, c.text)
		var e wire.Error
		if err := json.Unmarshal(r.Body, &e); err != nil || r.Code != c.want || e.Code != c.want || e.Reason == "" {
			t.Errorf("%s %.40s: %s %s, %v", c.verb, c.text, r.Code, r.Body, err)
		}
		if r.Code = ""; b.genuine(c.verb, q, r) {
			t.Errorf("%s: a refusal is taken for an answer", c.verb)
		}
	}
	c := approvals()
	c.Verb = "show"
	if r, err := show(t.Context(), c, &wire.WebReq{Session: b.session, Nonce: random32()[:31], Body: []byte(q)}); r != nil || codeOf(err) != wire.CodeUsage {
		t.Errorf("a short nonce: %+v, %v", r, err)
	}

	same, err := newWeb(make([]byte, 32))
	if err != nil || !bytes.Equal(same.public, b.card) || len(b.card) != 65 || b.card[0] != 4 {
		t.Errorf("after a restart the key is another; %v", err)
	}
	if other, err := newWeb(bytes.Repeat([]byte{1}, 32)); err != nil || bytes.Equal(other.public, b.card) {
		t.Errorf("another seed has the same key; %v", err)
	}
}

// What is too long for a frame is refused in words, and what is no UTF-8 spoils no answer.
func TestAnAnswerFitsAndIsText(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	say := func(text string) (*wire.Report, error) {
		return answerTo(b, "stop", func(context.Context, *daemon.Call, *wire.StopReq) (*wire.Report, error) {
			return &wire.Report{Lines: []string{text}}, nil
		}, wire.StopReq{})
	}
	if r, err := say("a\xffb"); err != nil || r.Lines[0] != "a\uFFFDb" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := say(strings.Repeat("\x01", maxAnswer/6)); codeOf(err) != wire.CodeTooLarge {
		t.Errorf("%v", err)
	}
	if _, err := say(strings.Repeat("a", maxAnswer-20)); err != nil {
		t.Errorf("control: %v", err)
	}
}

// Who signs out is out, also for whoever kept the cookie.
func TestSigningOut(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	first := b.session
	if _, err := b.login(); err != nil {
		t.Fatal(err)
	}
	for _, session := range [][]byte{first, first, nil, random32()} { // of who has none nothing ends
		if _, err := s.webLogout(t.Context(), session, new(wire.Empty)); err != nil {
			t.Error(err)
		}
	}
	if _, err := answerTo(b.with(first), "pending", s.pending, wire.ListFrom{}); codeOf(err) != wire.CodeNoSession {
		t.Errorf("%v", err)
	}
	if _, err := answerTo(b, "pending", s.pending, wire.ListFrom{}); err != nil {
		t.Errorf("control: her other session: %v", err)
	}
}

// A card whose text is much longer as JSON is shown less of, and says so; it fits into a frame all the same.
func TestALongCardFits(t *testing.T) {
	o := wire.Offer{Card: wire.Card{ID: "c1", Bodies: []wire.Shown{{Name: "a", Text: strings.Repeat("\x01", maxShown)},
		{Name: "b", Text: strings.Repeat("é", 64)}, {Name: "c", Text: strings.Repeat("\x02é", maxShown/3)}}}}
	if err := fitAnswer(&o); err != nil {
		t.Fatal(err)
	}
	if b, err := writeJSON(&o); err != nil || len(b) > maxAnswer {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if k := o.Card.Bodies; !k[0].Cut && !k[2].Cut || k[1].Cut || k[1].Text != strings.Repeat("é", 64) || !utf8.ValidString(k[2].Text) {
		t.Errorf("%v, %v, %v", k[0].Cut, k[1].Cut, k[2].Cut)
	}
	o = wire.Offer{Card: wire.Card{ID: "c2", Facts: []string{strings.Repeat("\x01", wire.MaxFrame)}}}
	if err := fitAnswer(&o); codeOf(err) != wire.CodeTooLarge {
		t.Errorf("%v", err)
	}
}

// On the socket approvals is served, and nobody else is: not a person, not another daemon, nor a cell.
func TestOnlyApprovalsAsks(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	id := s.asks(t, "work")
	serve := func(who peertest.As) *daemon.Client {
		t.Helper()
		path := filepath.Join(t.TempDir(), "s")
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		srv := &daemon.Server{Name: "sentinel-web", Listener: peer.NewListener(ln, who, func(error) {}), Log: discard(), Verbs: s.webVerbs()}
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- srv.Serve(ctx) }()
		c := &daemon.Client{Path: path, Name: "sentinel", Log: discard()}
		t.Cleanup(func() {
			c.Close()
			stop()
			if err := <-over; err != nil {
				t.Error(err)
			}
		})
		return c
	}
	for name, who := range map[string]peertest.As{"a person": peertest.Person(1000), "root": peertest.Person(0), "page": peertest.Daemon("page"),
		"egress": peertest.Daemon("egress"), "a worker": peertest.Worker("approvals"), "a cell": peertest.Cell("approvals", "payload")} {
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		if err := serve(who).Call(ctx, "login", &wire.WebReq{Nonce: random32(), Body: []byte("{}")}, new(wire.WebResp)); err == nil {
			t.Errorf("%s is answered", name)
		}
		stop()
	}
	c := serve(peertest.Daemon("approvals"))
	ask := func(verb string, q any) []byte {
		t.Helper()
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		req, resp := &wire.WebReq{Session: b.session, Nonce: random32(), Body: text}, new(wire.WebResp)
		if err := c.Call(t.Context(), verb, req, resp); err != nil || resp.Code != "" || !b.genuine(verb, req, resp) {
			t.Errorf("%s: %s, %v", verb, resp.Body, err)
		}
		return resp.Body
	}
	ask("login", wire.LoginReq{})
	ask("pending", wire.ListFrom{})
	ask("grants", wire.ListFrom{})
	ask("session", wire.SessionReq{})
	ask("history", wire.AuditReq{Op: "show", ID: id})
	ask("events", wire.WatchReq{})
	var o wire.Offer
	if err := json.Unmarshal(ask("show", wire.CallRef{Call: id}), &o); err != nil {
		t.Fatal(err)
	}
	var r wire.WebDecided
	if err := json.Unmarshal(ask("decide", *b.approving(&o)), &r); err != nil || !done(&r, nil) {
		t.Errorf("%+v, %v", r, err)
	}
	ask("logout", wire.Empty{})
	if _, _, ok := s.sessionOf(b.session); ok {
		t.Error("the session lives on")
	}
}

// FuzzReadJSON: what is taken means one thing, and what is not leaves nothing behind.
func FuzzReadJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"items":[{"id":"c","nonce":"AQ==","decision":"e30="}],"assertion":"e30="}`, `{"call":"c"}`, ` {"call":"c"}`,
		`{"op":"list","after":1}`, `{"items":null}`, `{"a":1,"a":2}`, "{\"call\":\"\xff\"}", `{"id":"x","credential":"e30=","mac":"AQ=="}`, `null`,
		`{"Call":"c"}`, `{"call":"c"}{}`, `{"call":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		readTwice[wire.WebDecideReq](t, b)
		readTwice[wire.LoginReq](t, b)
		readTwice[wire.EnrolReq](t, b)
		readTwice[wire.CallRef](t, b)
		readTwice[wire.AuditReq](t, b)
		readTwice[wire.PersonRevokeReq](t, b)
	})
}

func readTwice[T any](t *testing.T, b []byte) {
	var v, w, none T
	if err := readJSON("it", b, &v); err != nil {
		if codeOf(err) != wire.CodeUsage {
			t.Fatal(err)
		}
		if diff := cmp.Diff(none, v); diff != "" {
			t.Fatalf("%s leaves %s", b, diff)
		}
		return
	}
	out, err := writeJSON(&v)
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if err := readJSON("it", out, &w); err != nil {
		t.Fatalf("%s became %s: %v", b, out, err)
	}
	if x, _ := writeJSON(&w); !bytes.Equal(x, out) {
		t.Fatalf("%s became %s, then %s", b, out, x)
	}
}

// What a browser asks is read strictly: two readers would else read two questions.
func TestWhatIsNoRequestIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"nothing": "", "null": "null", "a list": "[]", "text": `"x"`, "a key that is unknown": `{"call":"c","x":1}`, "a key twice": `{"call":"c","call":"d"}`,
		"a key in capitals": `{"Call":"c"}`, "more behind it": `{"call":"c"}{}`, "a number": `{"call":1}`, "no UTF-8": "{\"call\":\"\xff\"}",
		"half of a pair": `{"call":"\ud800"}`, "a comment": `{"call":"c"/**/}`, "cut": `{"call":"c"`,
	} {
		var q wire.CallRef
		if err := readJSON("show", []byte(body), &q); codeOf(err) != wire.CodeUsage || q != (wire.CallRef{}) {
			t.Errorf("%s: %+v, %v", name, q, err)
		}
	}
	var q wire.CallRef
	if err := readJSON("show", []byte(" {\"call\":\"c\"}\n"), &q); err != nil || q.Call != "c" {
		t.Errorf("control: %+v, %v", q, err)
	}
}

// FuzzDecision: an error comes without a decision, and a decision is about the card that was shown.
func FuzzDecision(f *testing.F) {
	shown := &offer{card: "c1", hash: bytes.Repeat([]byte{1}, 32)}
	f.Add([]byte(`{"hash":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=","approve":true}`))
	f.Add([]byte(`{"hash":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=","approve":true,"grant":{"connector":"demo","limits":[{"field":"to","values":["a"]}]}}`))
	f.Add([]byte(`{"hash":null,"approve":true,"approve":false}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := readDecision(&wire.WebDecision{ID: "c1", Decision: text}, shown)
		switch {
		case err != nil && d != nil:
			t.Fatal("a decision came with an error")
		case err == nil && (!bytes.Equal(d.Hash, shown.hash) || d.Approve && d.Stop || !d.Approve && d.Grant != nil):
			t.Fatalf("%s is taken", text)
		}
	})
}
