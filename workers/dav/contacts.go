// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/emersion/go-vcard"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/workers"
)

const (
	maxValues = 20 // of one kind in one contact
	noteBytes = 2 << 10
)

// contact is a card as answers show it.
type contact struct {
	Contact  string          `json:"contact"`
	ETag     string          `json:"etag,omitempty"`
	Name     *workers.Text   `json:"name,omitempty"`
	Org      *workers.Text   `json:"organization,omitempty"`
	Title    *workers.Text   `json:"title,omitempty"`
	Email    []string        `json:"email,omitempty"`
	Other    []*workers.Text `json:"other_email,omitempty"` // what stands as an address and is none
	Phone    []*workers.Text `json:"phone,omitempty"`
	Birthday *workers.Text   `json:"birthday,omitempty"`
	Note     *workers.Text   `json:"note,omitempty"`
	Photo    bool            `json:"has_photo,omitempty"`
}

// readCard reads one vCard (RFC 6350).
func readCard(b []byte) (vcard.Card, error) {
	return decoded(b, func(r io.Reader) (vcard.Card, error) { return vcard.NewDecoder(r).Decode() })
}

func showCard(card vcard.Card, path, tag string) contact {
	source := "contact " + path
	of := func(s string, limit int) *workers.Text { // the library leaves this one escape
		return workers.Untrusted(strings.ReplaceAll(s, `\;`, ";"), source, "", limit)
	}
	c := contact{Contact: path, ETag: tag, Name: of(card.Value(vcard.FieldFormattedName), titleBytes),
		Org:      of(card.Value(vcard.FieldOrganization), titleBytes),
		Title:    of(card.Value(vcard.FieldTitle), titleBytes),
		Birthday: of(card.Value(vcard.FieldBirthday), 40), Note: of(card.Value(vcard.FieldNote), noteBytes),
		Photo: len(card[vcard.FieldPhoto]) > 0}
	a := describe.Arg{Name: "x", Type: describe.TypeEmail}
	for n, f := range card[vcard.FieldEmail] {
		if n == maxValues {
			break
		}
		if s, err := a.Canon(strings.TrimSpace(f.Value)); err == nil {
			c.Email = append(c.Email, s)
		} else if t := of(f.Value, nameOfPerson); t != nil {
			c.Other = append(c.Other, t)
		}
	}
	for n, f := range card[vcard.FieldTelephone] {
		if t := of(strings.TrimPrefix(f.Value, "tel:"), nameOfPerson); t != nil && n < maxValues {
			c.Phone = append(c.Phone, t)
		}
	}
	return c
}

func contacts(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	entry := "all"
	if c.Has("search") {
		entry = "search"
	}
	m, err := found(c.Do(ctx, entry))
	if err != nil {
		return nil, err
	}
	items := []contact{}
	var notes []string
	unread := 0
	for i := range m.Responses {
		r := &m.Responses[i]
		path, err := local(c.Base, r.Href)
		if err != nil {
			return nil, foreign()
		}
		if code(r.Status) == http.StatusInsufficientStorage { // RFC 6352 section 8.6.2
			notes = append(notes, "the server cut the list; name a --query")
			continue
		}
		p := r.props()
		if p == nil || p.Card == "" {
			continue
		}
		card, err := readCard([]byte(p.Card))
		if err != nil {
			unread++
			continue
		}
		items = append(items, showCard(card, path, etag(p.ETag)))
	}
	if unread > 0 {
		notes = append(notes, "a contact cannot be read and is left out")
	}
	items, cut := workers.Cap(items, int(c.Values.Int("max")), "raise --max or name a --query")
	if cut != "" {
		notes = append(notes, cut)
	}
	return &workers.Answer{Value: map[string]any{"items": items}, Truncated: strings.Join(notes, "; ")}, nil
}
