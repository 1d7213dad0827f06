// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/notices"
	"github.com/doorward/doorward/sentinel/passkey/softkey"
)

// recoverable has root make a recovery code, and reads it as the page does.
func (s *Sentinel) recoverable(t *testing.T, name string) []byte {
	t.Helper()
	r, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "recovery", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	code, err := approver.ParseRecovery(r.Code)
	if err != nil || r.Link != here.Origin+"/#"+s.keyPart() {
		t.Fatalf("%s, %s, %v", r.Code, r.Link, err)
	}
	return code
}

// recovers registers a new passkey by a code.
func (s *Sentinel) recovers(t *testing.T, code []byte) (*browser, error) {
	t.Helper()
	b := &browser{t: t, s: s, key: softkey.New(), card: s.web.public}
	id := approver.RecoveryID(code)
	o, err := s.enrol(t, wire.EnrolReq{ID: id})
	if err != nil {
		return nil, err
	}
	c := b.key.Register(here, o.Challenge, o.User)
	_, err = s.enrol(t, wire.EnrolReq{ID: id, Credential: c, MAC: approver.EnrolMAC(code, c)})
	return b, err
}

// A code makes a passkey in the place of another, once, in the same role; the other decides no more, with what was open of it.
func TestARecoveryCodeReplacesAPasskey(t *testing.T) {
	for _, viewer := range []bool{false, true} {
		t.Run(role(viewer), func(t *testing.T) {
			s := newWard(t)
			bob := s.signedIn(t, "bob")
			lost := s.signedIn(t, "ann", map[bool][]bool{true: {true}}[viewer]...)
			code := s.recoverable(t, "ann")
			id := s.asks(t, "work")
			shown := lost.show(id)
			open := bob.show(id)
			o, err := s.enrol(t, wire.EnrolReq{ID: approver.RecoveryID(code)})
			if err != nil || len(o.Exclude) != 1 || !bytes.Equal(o.Exclude[0], bob.key.ID) || o.Name != "ann" {
				t.Fatalf("%+v, %v", o, err)
			}
			next, err := s.recovers(t, code)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := next.login(); err != nil || r.Name != "ann" {
				t.Fatalf("%+v, %v", r, err)
			}
			if _, only, ok := s.sessionOf(next.session); !ok || only != viewer {
				t.Errorf("a viewer %t, want %t", only, viewer)
			}
			if _, err := lost.login(); codeOf(err) != wire.CodeNotAllowed {
				t.Errorf("the lost one signs in: %v", err)
			}
			if _, err := lost.decide(lost.approving(&shown)); codeOf(err) != wire.CodeNoSession {
				t.Errorf("the lost one, in its session: %v", err)
			}
			if r, err := bob.decide(bob.approving(&open)); codeOf(err) != wire.CodeExpired {
				t.Errorf("on an open offer: %+v, %v", r, err)
			}
			stolen := *lost
			stolen.session = bob.session
			if _, err := stolen.yes(id); codeOf(err) != wire.CodeNotAllowed {
				t.Errorf("the lost one, in another's session: %v", err)
			}
			if _, err := s.recovers(t, code); codeOf(err) != wire.CodeNotFound {
				t.Errorf("used twice: %v", err)
			}
			decides := next
			if viewer {
				decides = bob
			}
			if r, err := decides.yes(id); !done(r, err) {
				t.Errorf("control: %+v, %v", r, err)
			}

			text := s.details(t, ledger.EvSetting)
			for _, want := range []string{"a recovery code was made for it", "its recovery code was used", credentialSum(lost.key.ID), `"actor":"passkey:ann"`} {
				if !strings.Contains(text, want) {
					t.Errorf("the record has no %s", want)
				}
			}
			all, err := s.ledger.Entries(t.Context(), ledger.Query{})
			if err != nil {
				t.Fatal(err)
			}
			var told []string
			for i := range all {
				for _, secret := range []string{hex.EncodeToString(code), base64.RawURLEncoding.EncodeToString(code), base64.StdEncoding.EncodeToString(code),
					approver.RecoveryText(code), approver.RecoveryID(code)} {
					if bytes.Contains(all[i].Line(), []byte(secret)) {
						t.Errorf("the code is in %s", all[i].Line())
					}
				}
				if e, err := s.toTell(t.Context(), &all[i]); err == nil && e != nil && e.State == notices.ApproverAdded {
					told = append(told, e.Title)
				}
			}
			if want := "[approver bob " + role(viewer) + " ann " + role(viewer) + " ann, by a recovery code]"; fmt.Sprint(told) != want {
				t.Errorf("told is %s, want %s", told, want)
			}
		})
	}
}

// What approvals sees go by is the code's id and a registration that the code covers. Neither makes another.
func TestWhoCarriesARecoveryCannotEnrol(t *testing.T) {
	s := newWard(t)
	before := s.signedIn(t, "ann")
	code := s.recoverable(t, "ann")
	id := approver.RecoveryID(code)
	o, err := s.enrol(t, wire.EnrolReq{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := softkey.New(), softkey.New()
	c, other := mine.Register(here, o.Challenge, o.User), theirs.Register(here, o.Challenge, o.User)
	mac := approver.EnrolMAC(code, c)
	again := *before.key
	for name, a := range map[string]struct {
		req  wire.EnrolReq
		want wire.Code
	}{
		"no MAC":              {wire.EnrolReq{ID: id, Credential: other}, wire.CodeNotAllowed},
		"the MAC of another":  {wire.EnrolReq{ID: id, Credential: other, MAC: mac}, wire.CodeNotAllowed},
		"a MAC under the id":  {wire.EnrolReq{ID: id, Credential: other, MAC: approver.EnrolMAC([]byte(id), other)}, wire.CodeNotAllowed},
		"cut short":           {wire.EnrolReq{ID: id, Credential: c, MAC: mac[:16]}, wire.CodeNotAllowed},
		"garbled":             {wire.EnrolReq{ID: id, Credential: []byte("{}"), MAC: mac}, wire.CodeNotAllowed},
		"an id cut short":     {wire.EnrolReq{ID: id[:len(id)-1]}, wire.CodeNotFound},
		"the prefix alone":    {wire.EnrolReq{ID: approver.RecoveryPrefix}, wire.CodeNotFound},
		"a code of nobody's":  {wire.EnrolReq{ID: approver.RecoveryID(random32()[:approver.RecoverySize])}, wire.CodeNotFound},
		"the id without name": {wire.EnrolReq{ID: strings.TrimPrefix(id, approver.RecoveryPrefix)}, wire.CodeNotFound},
		"a passkey there is":  {wire.EnrolReq{ID: id, Credential: again.Register(here, o.Challenge, o.User)}, wire.CodeNotAllowed},
	} {
		if r, err := s.enrol(t, a.req); r != nil || codeOf(err) != a.want {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	c2 := again.Register(here, o.Challenge, o.User)
	if _, err := s.enrol(t, wire.EnrolReq{ID: id, Credential: c2, MAC: approver.EnrolMAC(code, c2)}); codeOf(err) != wire.CodeConflict {
		t.Errorf("the passkey that is lost: %v", err)
	}
	if _, err := before.login(); err != nil {
		t.Fatalf("the passkey does not count any more: %v", err)
	}
	if text := s.details(t, ledger.EvRefused); !strings.Contains(text, "a recovery code that nobody has") ||
		!strings.Contains(text, "a registration that the recovery code does not cover") {
		t.Errorf("the record: %s", text)
	}
	// The control: who has the code can.
	if _, err := s.enrol(t, wire.EnrolReq{ID: id, Credential: other, MAC: approver.EnrolMAC(code, other)}); err != nil {
		t.Errorf("control: %v", err)
	}
}

// A code ends when it is taken back, when a newer one is made, with its approver, and with an older record.
func TestWhatEndsARecoveryCode(t *testing.T) {
	asks := func(q wire.ApproversReq) func(*testing.T, *Sentinel) {
		return func(t *testing.T, s *Sentinel) {
			if _, err := s.approvers(t.Context(), root(), &q); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		do   func(*testing.T, *Sentinel)
		ends bool
	}{
		"control: nothing":          {func(*testing.T, *Sentinel) {}, false},
		"control: of another's":     {asks(wire.ApproversReq{Op: "recovery", Name: "bob", Revoke: true}), false},
		"control: nothing put back": {func(t *testing.T, s *Sentinel) { s.compare(t.Context(), nil) }, false},
		"taken back":                {asks(wire.ApproversReq{Op: "recovery", Name: "ann", Revoke: true}), true},
		"a newer one":               {asks(wire.ApproversReq{Op: "recovery", Name: "ann"}), true},
		"the approver is removed":   {asks(wire.ApproversReq{Op: "remove", Name: "ann"}), true},
		"an older record":           {func(t *testing.T, s *Sentinel) { s.compare(t.Context(), newerCheckpoint(t, 500)) }, true},
		"removed, and another comes": {func(t *testing.T, s *Sentinel) {
			asks(wire.ApproversReq{Op: "remove", Name: "ann"})(t, s)
			s.enrolled(t, "ann")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWard(t)
			ann := s.enrolled(t, "ann")
			s.enrolled(t, "bob")
			code := s.recoverable(t, "ann")
			s.recoverable(t, "bob")
			if _, err := ann.login(); err != nil { // its counter, which grows, is of the same row
				t.Fatal(err)
			}
			c.do(t, s)
			if _, err := s.recovers(t, code); (codeOf(err) == wire.CodeNotFound) != c.ends || !c.ends && err != nil {
				t.Errorf("%v", err)
			}
		})
	}
}

// Only root has one made, for who is there; anybody sees who has one.
func TestOnlyRootMakesRecoveryCodes(t *testing.T) {
	s := newWard(t)
	s.enrolled(t, "ann")
	for _, revoke := range []bool{false, true} {
		if _, err := s.approvers(t.Context(), ada(), &wire.ApproversReq{Op: "recovery", Name: "ann", Revoke: revoke}); codeOf(err) != wire.CodeNotAllowed {
			t.Errorf("%v", err)
		}
		if _, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "recovery", Name: "eve", Revoke: revoke}); codeOf(err) != wire.CodeNotFound {
			t.Errorf("of nobody: %v", err)
		}
	}
	if _, err := s.approvers(t.Context(), root(), &wire.ApproversReq{Op: "recovery", Name: "ann", Revoke: true}); codeOf(err) != wire.CodeNotFound {
		t.Errorf("there is none: %v", err)
	}
	has := func() bool {
		r, err := s.approvers(t.Context(), ada(), &wire.ApproversReq{Op: "list"})
		if err != nil || len(r.Approvers) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Approvers[0].Recovery > 0
	}
	if has() {
		t.Error("one is listed")
	}
	code := s.recoverable(t, "ann")
	if !has() {
		t.Error("none is listed")
	}
	if _, err := s.recovers(t, code); err != nil || has() {
		t.Errorf("used: %v", err)
	}
}

// Of many who use a code at once one has it; and a session that the lost passkey begins meanwhile does not outlive it.
func TestARecoveryCodeIsUsedOnce(t *testing.T) {
	s := newWard(t)
	for range 20 {
		lost := s.enrolled(t, "ann")
		code := s.recoverable(t, "ann")
		var all sync.WaitGroup
		var mu sync.Mutex
		n := 0
		for range 4 {
			all.Go(func() {
				if _, err := s.recovers(t, code); err == nil {
					mu.Lock()
					n++
					mu.Unlock()
				} else if codeOf(err) != wire.CodeNotFound {
					t.Error(err)
				}
			})
			all.Go(func() { _, _ = lost.with(nil).login() })
		}
		all.Wait()
		if n != 1 {
			t.Fatalf("used %d times", n)
		}
		s.web.mu.Lock()
		views := len(s.web.views.all)
		s.web.mu.Unlock()
		if views != 0 {
			t.Fatalf("%d sessions of the lost passkey live", views)
		}
		if err := s.removeApprover(t.Context(), "ann", "person:0", "the next round"); err != nil {
			t.Fatal(err)
		}
	}
}
