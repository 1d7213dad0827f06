// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// client is one whom root has invited.
func (r *rig) client() *client {
	r.t.Helper()
	res, err := r.Person(0).Doorward(r.ctx(), "", "approver", "add", "ada")
	if err != nil || res.Code != 0 {
		r.t.Fatalf("%v %v", res, err)
	}
	c, err := enrolled(strings.TrimSpace(res.Stdout), r.Place.APIOrigin(), r.Place.PageOrigin())
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// TestAClientOfTheAPI lists, shows, verifies and decides by what is documented.
func TestAClientOfTheAPI(t *testing.T) {
	r := newRig(t, world.Options{Page: true})
	c := r.client()
	card := r.park(r.work, issue("ada/site", "It stalls")...)
	var list struct{ Cards []struct{ ID, Title string } }
	if err := c.ask("pending", struct{}{}, &list); err != nil || len(list.Cards) != 1 || list.Cards[0].ID != card.ID {
		t.Fatalf("pending: %+v, %v", list, err)
	}
	o, err := c.show(card.ID)
	if err != nil || o.Card.State != "parked" {
		t.Fatalf("show: %+v, %v", o, err)
	}
	signed := c.signs(&o, true)
	if state, err := c.decide(signed); err != nil || state != "approved" {
		t.Errorf("decide: %s, %v", state, err)
	}
	if s := r.ended(card.ID); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
	r.sum("an issue", r.issues(), 1)
	var no *refusedAs
	if _, err := c.decide(signed); !errors.As(err, &no) || no.Code != "expired" {
		t.Errorf("the same again: %v", err)
	}
	other := *c
	another, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other.card = &another.PublicKey
	if _, err := other.show(card.ID); !errors.Is(err, errSignature) {
		t.Errorf("control: by another card key: %v", err)
	}
}
