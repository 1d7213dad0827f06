// SPDX-License-Identifier: Apache-2.0

// Package browser tries the page in Debian's Chromium: the static files as page serves them, asking approvals as it is, with a
// passkey that the browser plays. What stands in for sentinel here signs cards and looks at what a passkey was asked to sign; it
// verifies no signature of a passkey and decides nothing. So these are tests of the page's scripts and of what lies between.
package browser

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/approvals"
	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/page"
	"github.com/doorward/doorward/test/chromium"
	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// browser is the one of all tests; each has a window of its own.
var browser *chromium.Browser

func TestMain(m *testing.M) {
	b, end, err := chromium.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	browser = b
	code := m.Run()
	end()
	os.Exit(code)
}

// rig is a place with its page and its approvals.
type rig struct {
	*standIn
	place *approver.Place
}

// between stands in front of page and of approvals, as a test that looks or takes away a wall wants it.
type between struct {
	page, api func(http.Handler) http.Handler
}

func newRig(t *testing.T, in ...between) *rig {
	t.Helper()
	return newRigAt(t, "localhost", in...)
}

func newRigAt(t *testing.T, host string, in ...between) *rig {
	t.Helper()
	if browser == nil {
		t.Skip(chromium.Missing)
	}
	listen := func() (net.Listener, uint16) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln, uint16(ln.Addr().(*net.TCPAddr).Port)
	}
	pages, pagePort := listen()
	api, apiPort := listen()
	place := &approver.Place{Host: host, Page: pagePort, API: apiPort}
	files, err := page.New(place)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s := newStandIn(t, place)
	server := &daemon.Server{Name: "sentinel-web", Log: log, Listener: peer.NewListener(ln, peertest.Daemon("approvals"), nil), Verbs: s.verbs()}
	one, two := &daemon.Client{Path: path, Name: "sentinel", Log: log}, &daemon.Client{Path: path, Name: "sentinel", Log: log}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var onPage, onAPI http.Handler = files, approvals.New(place, one, two, log)
	for _, b := range in {
		onPage, onAPI = b.page(onPage), b.api(onAPI)
	}
	forPage := &front.Server{Listener: front.NewBounded(pages, front.Conns, front.OfAddress), Handler: onPage, Log: log}
	pipe := filepath.Join(t.TempDir(), "s")
	carried, err := net.ListenUnix("unix", &net.UnixAddr{Name: pipe, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	forAPI := &page.Pipe{Listener: front.NewBounded(api, front.Conns, front.OfAddress), Path: pipe, Log: log}
	behind := &front.Server{Listener: approvals.NewCarried(peer.NewListener(carried, peertest.Daemon("page"), nil), log),
		Handler: onAPI, Log: log}
	for _, serve := range []func(context.Context) error{server.Serve, forPage.Serve, forAPI.Serve, behind.Serve} {
		all.Go(func() {
			if err := serve(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		one.Close()
		two.Close()
		all.Wait()
	})
	return &rig{s, place}
}

// tab is one window of the browser, in the words of these tests.
type tab struct{ *chromium.Window }

// open opens a window, so many CSS pixels large, at a fragment of the page.
func (r *rig) open(t *testing.T, width, height int64, fragment string) *tab {
	t.Helper()
	return &tab{browser.Open(t, width, height, r.place.PageOrigin()+"/"+fragment)}
}

// press presses what has the text. On a phone the names of most views stand behind another button.
func (b *tab) press(text string) {
	b.T.Helper()
	b.Eval(fmt.Sprintf(`[...document.querySelectorAll("#rest > *")].some((e) => e.textContent.trim() === %q && !e.checkVisibility() && !document.getElementById("nav").hidden)
		&& document.getElementById("more").click()`, text), nil)
	b.Press(text)
}

// standIn answers in sentinel's place.
type standIn struct {
	t     *testing.T
	place *approver.Place
	key   *ecdsa.PrivateKey
	code  []byte // of the invitation, which is id
	id    string

	mu         sync.Mutex // guards what follows
	cards      []wire.Card
	viewer     bool                                  // who is signed in may only see
	in         bool                                  // who asks now is signed in
	alter      func(verb string, resp *wire.WebResp) // what a taken-over approvals does to an answer
	spoil      func(answer any)                      // what sentinel itself has to say, if set
	credential [][]byte
	offers     map[string]int64 // nonce, end
	session    []byte
	nonce      []byte
	decided    []wire.Decision
	asked      []string // verbs, and what of them
	views      viewData
	life       time.Duration
	made       map[string]*wire.Card    // what became of calls that were changed
	makes      func(*wire.Offer)        // what sentinel is made to offer for a change
	edits      *wire.Edits              // of what is shown as a card
	content    map[wire.Digest][]byte   // of bodies, which an attack may change
	stall      map[string]chan struct{} // by verb: holds its next answer until it is closed
	broken     bool                     // nobody hears of events
	news       chan struct{}
	events     []wire.Event
	told       *wire.WebPushReq // the browser that is told
}

func newStandIn(t *testing.T, place *approver.Place) *standIn {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &standIn{t: t, place: place, key: key, code: random(), id: "inv", offers: map[string]int64{}, life: 5 * time.Minute, news: make(chan struct{}),
		views: someViews("")}
}

func random() []byte {
	b := make([]byte, 32)
	rand.Read(b)
	return b
}

// public is the card key.
func (s *standIn) public() []byte {
	public, err := s.key.PublicKey.Bytes()
	if err != nil {
		s.t.Fatal(err)
	}
	return public
}

// keyText is the card key as the browser keeps it.
func (s *standIn) keyText() string { return base64.RawURLEncoding.EncodeToString(s.public()) }

// link is what an enrolment begins with.
func (s *standIn) link() string {
	return "#enrol=inv&code=" + base64.RawURLEncoding.EncodeToString(s.code) + "&key=" + s.keyText()
}

// respond is an answer as sentinel signs it.
func respond(key *ecdsa.PrivateKey, verb string, req *wire.WebReq, v any, err error) (*wire.WebResp, error) {
	resp := new(wire.WebResp)
	if e := (*wire.Error)(nil); errors.As(err, &e) {
		resp.Code, v = e.Code, e
	} else if err != nil {
		return nil, err
	}
	if resp.Body, err = jsonv2.Marshal(v, jsonv1.OmitEmptyWithLegacySemantics(true)); err != nil {
		return nil, err
	}
	if l, ok := v.(*wire.LoginResp); ok {
		resp.Session, resp.Until = l.Session, l.Until
	}
	sum := sha256.Sum256(wire.Answered(verb, req, resp))
	a, b, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return nil, err
	}
	resp.Signature = make([]byte, 64)
	a.FillBytes(resp.Signature[:32])
	b.FillBytes(resp.Signature[32:])
	return resp, nil
}

func (s *standIn) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

var notSignedIn = wire.Refuse(wire.CodeNoSession, "not signed in", "")

func answer[Req, Resp any](s *standIn, name string, f func(*Req) (*Resp, error)) daemon.Verb {
	return daemon.On(name, peer.Daemon("approvals"), func(_ context.Context, _ *daemon.Call, req *wire.WebReq) (*wire.WebResp, error) {
		s.mu.Lock()
		if stall := s.stall[name]; stall != nil { // as who holds approvals can have it
			delete(s.stall, name)
			s.mu.Unlock()
			<-stall
			s.mu.Lock()
		}
		defer s.mu.Unlock()
		resp, err := respond(s.key, name, req, nil, notSignedIn)
		s.in = s.session != nil && string(req.Session) == string(s.session)
		if name == "login" || name == "enrol" || s.in {
			s.asked = append(s.asked, name+" "+string(req.Body))
			q := new(Req)
			if err := json.Unmarshal(req.Body, q); err != nil {
				return nil, err
			}
			v, e := f(q)
			if s.spoil != nil && e == nil {
				s.spoil(v)
			}
			resp, err = respond(s.key, name, req, v, e)
		}
		if err == nil && s.alter != nil {
			s.alter(name, resp)
		}
		return resp, err
	})
}

// clientData is what a browser says that a passkey signed (WebAuthn Level 3, 5.8.1).
type clientData struct{ Type, Challenge, Origin string }

// look reads a credential's JSON as toJSON() of a browser writes it.
func look(text []byte) (c clientData, id, authenticator []byte, err error) {
	var p struct {
		ID, RawID, Type         string
		ClientExtensionResults  struct{}
		AuthenticatorAttachment string
		Response                struct {
			ClientDataJSON, AuthenticatorData, Signature, UserHandle, AttestationObject string
			Transports                                                                  []string
		}
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return c, nil, nil, err
	}
	part := func(s string) []byte {
		b, e := base64.RawURLEncoding.Strict().DecodeString(s)
		err = errors.Join(err, e)
		return b
	}
	if p.ID != p.RawID || p.Type != "public-key" {
		err = fmt.Errorf("id %q, rawId %q, type %q", p.ID, p.RawID, p.Type)
	}
	id, authenticator = part(p.RawID), part(p.Response.AuthenticatorData)
	return c, id, authenticator, errors.Join(err, json.Unmarshal(part(p.Response.ClientDataJSON), &c))
}

// signedOver holds an assertion to a challenge, the page and a verified user. The signature itself is sentinel's to verify.
func (s *standIn) signedOver(assertion, challenge []byte) error {
	c, id, auth, err := look(assertion)
	switch {
	case err != nil:
	case c.Type != "webauthn.get" || c.Origin != s.place.PageOrigin() || c.Challenge != base64.RawURLEncoding.EncodeToString(challenge):
		err = fmt.Errorf("signed %+v, want the challenge %x", c, challenge)
	case len(auth) < 37 || auth[32]&5 != 5: // present and verified
		err = fmt.Errorf("authenticator data %x", auth)
	case !slices.ContainsFunc(s.credential, func(k []byte) bool { return string(k) == string(id) }):
		err = errors.New("by another passkey")
	}
	if err != nil {
		return wire.Refuse(wire.CodeNotAllowed, err.Error(), "")
	}
	return nil
}

func (s *standIn) verbs() []daemon.Verb {
	return append(s.viewVerbs(), []daemon.Verb{
		answer(s, "login", func(q *wire.LoginReq) (*wire.LoginResp, error) {
			if len(q.Assertion) == 0 {
				s.nonce = random()
				r := &wire.LoginResp{Nonce: s.nonce, RP: s.place.Host}
				if s.in {
					r.Name, r.Viewer = "ada", s.viewer
				}
				return r, nil
			}
			c := wire.LoginChallenge(s.nonce)
			if err := s.signedOver(q.Assertion, c[:]); err != nil {
				return nil, err
			}
			s.session = random()
			return &wire.LoginResp{Session: s.session, Until: time.Now().Add(time.Hour).Unix(), Name: "ada", Viewer: s.viewer}, nil
		}),
		answer(s, "enrol", func(q *wire.EnrolReq) (*wire.EnrolResp, error) {
			if q.ID != s.id {
				return nil, wire.Refuse(wire.CodeNotFound, "no such invitation", "")
			}
			if len(q.Credential) == 0 {
				s.nonce = random()
				return &wire.EnrolResp{Challenge: s.nonce, RP: s.place.Host, User: random(), Name: "ada", Exclude: s.credential}, nil
			}
			c, id, _, err := look(q.Credential)
			if err != nil || c.Type != "webauthn.create" || c.Origin != s.place.PageOrigin() ||
				c.Challenge != base64.RawURLEncoding.EncodeToString(s.nonce) {
				return nil, wire.Refuse(wire.CodeNotAllowed, fmt.Sprintf("%+v %v", c, err), "")
			}
			if string(q.MAC) != string(approver.EnrolMAC(s.code, q.Credential)) {
				return nil, wire.Refuse(wire.CodeNotAllowed, "the code does not cover it", "")
			}
			s.credential = append(s.credential, id)
			return &wire.EnrolResp{Done: true, Name: "ada"}, nil
		}),
		answer(s, "logout", func(*wire.Empty) (*wire.Empty, error) {
			s.session = nil
			return new(wire.Empty), nil
		}),
		answer(s, "push", s.push),
		answer(s, "seen", func(*wire.CallRef) (*wire.Empty, error) { return new(wire.Empty), nil }),
		answer(s, "pending", func(q *wire.ListFrom) (*wire.PendingResp, error) {
			r := new(wire.PendingResp)
			for _, c := range s.cards {
				if c.State != wire.StateParked {
					continue
				}
				c.Bodies = nil
				r.Total++
				r.Newest = max(r.Newest, c.ID)
				switch {
				case c.ID <= q.After:
				case q.Limit > 0 && len(r.Cards) == q.Limit:
					r.Next = r.Cards[q.Limit-1].ID
				default:
					r.Cards = append(r.Cards, c)
				}
			}
			return r, nil
		}),
		answer(s, "show", func(q *wire.CallRef) (*wire.Offer, error) {
			c := s.find(q.Call)
			if c == nil {
				return nil, wire.Refuse(wire.CodeNotFound, "no such call", "")
			}
			o := &wire.Offer{Card: *c, RP: s.place.Host, Viewer: s.viewer, Edits: s.edits}
			if c.State == wire.StateParked && !s.viewer {
				o.Nonce, o.Expires, o.Allow = random(), time.Now().Add(s.life).Unix(), s.credential
				s.offers[string(o.Nonce)] = o.Expires
			}
			return o, nil
		}),
		s.bodyVerb(), s.editVerb(),
		answer(s, "decide", func(q *wire.WebDecideReq) (*wire.WebDecided, error) {
			r := new(wire.WebDecided)
			var ends []int64
			for _, i := range q.Items {
				end, ok := s.offers[string(i.Nonce)]
				if delete(s.offers, string(i.Nonce)); !ok {
					return nil, wire.Refuse(wire.CodeExpired, "it counts once", "")
				}
				ends = append(ends, end)
			}
			c := wire.Challenge(q.Items, ends)
			if err := s.signedOver(q.Assertion, c[:]); err != nil {
				return nil, err
			}
			for _, i := range q.Items {
				var d wire.Decision
				if err := json.Unmarshal(i.Decision, &d); err != nil {
					return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "")
				}
				k := s.find(i.ID)
				if k == nil || string(k.Hash) != string(d.Hash) {
					return nil, wire.Refuse(wire.CodeConflict, "another card", "")
				}
				if k.State != wire.StateParked {
					r.Outcomes = append(r.Outcomes, wire.WebOutcome{Err: wire.Refuse(wire.CodeConflict, "it was decided already", "")})
					continue
				}
				s.decided = append(s.decided, d)
				k.State = map[bool]wire.State{true: wire.StateApproved, false: wire.StateDenied}[d.Approve]
				o := wire.WebOutcome{State: k.State}
				if d.Grant != nil {
					o.Grant = "g1"
				}
				r.Outcomes = append(r.Outcomes, o)
			}
			return r, nil
		}),
		answer(s, "grants", func(*wire.ListFrom) (*wire.GrantsResp, error) { return &wire.GrantsResp{Grants: s.views.grants}, nil }),
		answer(s, "revoke", func(q *wire.PersonRevokeReq) (*wire.Report, error) {
			return &wire.Report{Lines: []string{"grant " + q.Grant + q.Account + " is revoked"}}, nil
		}),
		answer(s, "stop", func(q *wire.StopReq) (*wire.Report, error) {
			if q.Resume {
				return &wire.Report{Widening: "w1"}, nil
			}
			return &wire.Report{Lines: []string{"no new grants for " + q.Cell}, MayHaveRun: []string{"c9"}}, nil
		}),
		answer(s, "session", func(*wire.SessionReq) (*wire.SessionResp, error) {
			return &wire.SessionResp{Sessions: []wire.Session{{Cell: "work", Name: "work/run-1", Attended: true, By: "ada", Began: time.Now().Unix()}}}, nil
		}),
		answer(s, "history", func(*wire.AuditReq) (*wire.AuditResp, error) {
			return &wire.AuditResp{Lines: [][]byte{[]byte(`{"n":1,"time":"2026-12-01T10:00:00Z","type":"approve","actor":"passkey:ada","call":"c1","details":{"x":"<b>"}}`)}}, nil
		}),
		daemon.On("events", peer.Daemon("approvals"), func(ctx context.Context, _ *daemon.Call, req *wire.WebReq) (*wire.WebResp, error) {
			var q wire.WatchReq
			if err := json.Unmarshal(req.Body, &q); err != nil {
				return nil, err
			}
			says := func(r *wire.WatchResp) (*wire.WebResp, error) { return respond(s.key, "events", req, r, nil) }
			s.mu.Lock()
			stall, broken := s.stall["events"], s.broken
			delete(s.stall, "events")
			s.mu.Unlock()
			if stall != nil {
				<-stall
			}
			if broken {
				return nil, wire.Refuse(wire.CodeUnavailable, "the stand-in is broken", "")
			}
			for {
				s.mu.Lock()
				news, all, in := s.news, s.events, string(req.Session) == string(s.session)
				s.mu.Unlock()
				last := int64(len(all))
				switch {
				case !in:
					return nil, notSignedIn
				case q.After < 0:
					return says(&wire.WatchResp{Last: last})
				case q.After < last:
					return says(&wire.WatchResp{Events: all[q.After:], Last: last})
				}
				select {
				case <-news:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}),
	}...)
}

func (s *standIn) find(id string) *wire.Card {
	for i := range s.cards {
		if s.cards[i].ID == id {
			return &s.cards[i]
		}
	}
	return s.made[id] // nil: there is none
}

// tell is an event that browsers hear of.
func (s *standIn) tell(e wire.Event) {
	s.with(func() {
		s.events = append(s.events, e)
		close(s.news)
		s.news = make(chan struct{})
	})
}
