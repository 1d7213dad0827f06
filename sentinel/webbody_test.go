// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"crypto/sha256"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// sends gives demo a method that takes two files.
func (s *Sentinel) sends(t *testing.T) {
	t.Helper()
	d := demo()
	d.Methods = append(d.Methods, describe.Method{Name: "send", Summary: "send files", Class: describe.Write, Reach: describe.ReachPeople,
		Entries: []describe.Entry{{Name: "it", Method: "GET", Path: "{base}/it", Credential: true}}, Args: []describe.Arg{
			{Name: "file", Label: "File", Help: "at most 64 MiB", Type: describe.TypeFile, Required: true, Repeat: 2}}})
	if _, err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	s.vendors["demo"], s.sorted = d, []*describe.Connector{d}
	s.usePolicy(t, "", "")
}

// asksWith has a cell put up a call with files.
func (s *Sentinel) asksWith(t *testing.T, method string, args []wire.Arg, bodies ...[]byte) string {
	t.Helper()
	f := s.call(method, args...)
	var files []*os.File
	for i, b := range bodies {
		m, err := sealed(b)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, m)
		f.Files = append(f.Files, wire.File{Arg: "file", Name: string(rune('a'+i)) + ".bin", Size: int64(len(b)), SHA256: wire.Sum(b)})
	}
	r, err := s.decide(t.Context(), &daemon.Call{Peer: cell("work", "s1"), Files: files}, &wire.DecideReq{Frame: *f})
	closeAll(files)
	if err != nil || r.Verdict != wire.Parked {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.Call
}

func (b *browser) part(call string, sum []byte, from int64) ([]byte, error) {
	b.t.Helper()
	r, err := answerTo(b, "body", b.s.webBody, wire.BodyReq{Call: call, SHA256: sum, From: from})
	if err != nil {
		return nil, err
	}
	return r.Data, nil
}

// What a card cuts is read whole, in parts, and is what the card has the digest of. Nothing else can be asked for.
func TestABodyIsReadInParts(t *testing.T) {
	s := newWard(t)
	s.sends(t)
	b := s.signedIn(t, "ada")
	long := bytes.Repeat([]byte("ten bytes\n"), 150_000)
	odd := bytes.Repeat([]byte{0xff}, 100)
	id := s.asksWith(t, "send", nil, long, odd)
	other := s.asksWith(t, "send", nil, []byte("another call's"))
	o := b.show(id)
	if len(o.Card.Bodies) != 2 || !o.Card.Bodies[0].Cut || o.Card.Bodies[0].Binary || !o.Card.Bodies[1].Binary {
		t.Fatalf("%+v", o.Card.Bodies)
	}
	for i, want := range [][]byte{long, odd} {
		sum := o.Card.Bodies[i].SHA256
		var got []byte
		for int64(len(got)) < o.Card.Bodies[i].Size {
			p, err := b.part(id, sum[:], int64(len(got)))
			if err != nil || len(p) == 0 || len(p) > maxPart {
				t.Fatalf("%d bytes from %d: %v", len(p), len(got), err)
			}
			got = append(got, p...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("body %d is another", i)
		}
		if p, err := b.part(id, sum[:], int64(len(want))); err != nil || len(p) != 0 {
			t.Errorf("at its end: %d bytes, %v", len(p), err)
		}
	}
	sum := sha256.Sum256(long)
	its := sha256.Sum256([]byte("another call's"))
	for _, c := range []struct {
		name string
		call string
		sum  []byte
		from int64
		want wire.Code
	}{
		{"another call's", id, its[:], 0, wire.CodeNotFound},
		{"this one's, of another call", other, sum[:], 0, wire.CodeNotFound},
		{"no digest", id, nil, 0, wire.CodeNotFound},
		{"half a digest", id, sum[:16], 0, wire.CodeNotFound},
		{"before its begin", id, sum[:], -1, wire.CodeBadArgument},
		{"behind its end", id, sum[:], int64(len(long)) + 1, wire.CodeBadArgument},
		{"of no call", "nobody's", sum[:], 0, wire.CodeNotFound},
	} {
		if p, err := b.part(c.call, c.sum, c.from); codeOf(err) != c.want || p != nil {
			t.Errorf("%s: %d bytes, %v", c.name, len(p), err)
		}
	}
	if p, err := b.part(other, its[:], 0); err != nil || string(p) != "another call's" { // the control
		t.Errorf("%q, %v", p, err)
	}
	b.session = nil
	if _, err := b.part(id, sum[:], 0); codeOf(err) != wire.CodeNoSession {
		t.Errorf("without a session: %v", err)
	}
}

// What was decided, and what a deletion takes away.
func TestABodyIsKeptWhileItsCallWaits(t *testing.T) {
	s := newWard(t)
	s.sends(t)
	b := s.signedIn(t, "ada")
	id := s.asksWith(t, "send", nil, []byte("x"))
	sum := wire.Sum([]byte("x"))
	if _, err := b.part(id, sum[:], 0); err != nil {
		t.Fatal(err)
	}
	o := b.show(id)
	if _, err := b.decide(b.signs([]wire.WebDecision{b.item(&o, wire.Decision{})}, []int64{o.Expires})); err != nil {
		t.Fatal(err)
	}
	if _, err := b.part(id, sum[:], 0); codeOf(err) != wire.CodeConflict {
		t.Errorf("of a call that was denied: %v", err)
	}

	// What goes at the server is kept beside what the worker gets, and does not reach it.
	base := []byte(strings.Repeat("BEGIN:VCALENDAR\r\n", 10_000))
	m, _ := s.vendors["demo"].Method("create")
	j := &judged{caller: cell("work", "s1"), vendor: s.vendors["demo"], method: m, frame: *s.call("create"), base: base, bodied: true, mark: newMark(),
		account: s.accounts["home"]}
	if err := s.evaluate(j); err != nil {
		t.Fatal(err)
	}
	c, err := s.record(j)
	if err != nil {
		t.Fatal(err)
	}
	card := s.card(j, &c)
	if c.Card, err = cardFits(card); err != nil {
		t.Fatal(err)
	}
	if len(card.Bodies) != 1 || !card.Bodies[0].Cut {
		t.Fatalf("%+v", card.Bodies)
	}
	if err := s.keep(t.Context(), &c, j); err != nil {
		t.Fatal(err)
	}
	if c, _, err = s.ledger.Park(t.Context(), c, "test"); err != nil {
		t.Fatal(err)
	}
	kept := card.Bodies[0].SHA256
	if p, err := b.part(c.ID, kept[:], 0); err != nil || !bytes.Equal(p, base) {
		t.Errorf("%d bytes, %v", len(p), err)
	}
	if got, err := s.recall(&c); err != nil || len(got.body) != 0 || len(got.files) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A grant is made of a card that offers one, by a person at a terminal and by a passkey alike.
func TestACardWithoutAGrantMakesNone(t *testing.T) {
	s := newWard(t)
	s.soon(t)
	s.worksLike(t, 200, "[]")
	b := s.signedIn(t, "ada")
	for _, grantable := range []bool{false, true} {
		id := s.asksWith(t, "create", []wire.Arg{{Name: "title", Values: []string{map[bool]string{true: "t", false: "u"}[grantable]}},
			{Name: "to", Values: []string{"bob@example.org"}}})
		c, err := s.ledger.Call(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		k, err := cardOf(&c)
		if err != nil {
			t.Fatal(err)
		}
		g := k.Grantable
		g.Kind, g.Until = "until", time.Now().Add(time.Hour).Unix()
		if !grantable {
			k.Grantable = nil
			c.ID, c.Dedup, c.Card = ledger.NewID(), "", nil
			k.ID = c.ID
			if c.Card, err = cardFits(&k); err != nil {
				t.Fatal(err)
			}
			if c, _, err = s.ledger.Park(t.Context(), c, "test"); err != nil {
				t.Fatal(err)
			}
		}
		o := b.show(c.ID)
		if (o.Card.Grantable != nil) != grantable {
			t.Fatalf("%+v", o.Card.Grantable)
		}
		r, err := b.decide(b.signs([]wire.WebDecision{b.item(&o, wire.Decision{Approve: true, Grant: g})}, []int64{o.Expires}))
		if err != nil || (r.Outcomes[0].Err == nil) != grantable || !grantable && r.Outcomes[0].Err.Code != wire.CodeNotAllowed {
			t.Errorf("grantable %t: %+v, %v", grantable, r, err)
		}
		_, err = s.decideAs(t.Context(), ada(), &wire.DecideCardReq{ID: c.ID, Hash: o.Card.Hash, Approve: true, Grant: g}, nil)
		if !grantable && codeOf(err) != wire.CodeNotAllowed {
			t.Errorf("at a terminal: %v", err)
		}
		if n := len(s.ledger.Grants(ledger.GrantFilter{})); n != map[bool]int{true: 1}[grantable] {
			t.Errorf("grantable %t: %d grants", grantable, n)
		}
	}
}
