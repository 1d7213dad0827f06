// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// maxBriefs bounds what is kept of cards that were listed, in bytes of their JSON.
const maxBriefs = 4 << 20

// waitlist keeps what lists of what waits are made of: with thousands that wait, sorting and counting them and reading the cards of
// a page takes several times what all else of a first view does. What is kept is what the ledger has, until something of that changes;
// nothing is decided on it. After a start it is empty.
type waitlist struct {
	mu      sync.Mutex // guards what follows
	version uint64     // of the ledger's
	parked  []ledger.Waiting
	alike   []int // of each of parked, how many others are like it
	briefs  map[string]briefed
	size    int // bytes of briefs
}

type briefed struct {
	card wire.Card // which nobody changes
	size int       // bytes of its JSON
}

// list returns what is parked, oldest first, and how many are like each. Both are shared, and stay as they are.
func (w *waitlist) list(l *ledger.Ledger) ([]ledger.Waiting, []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting, version := l.WaitingAfter(w.version)
	if version == w.version {
		return w.parked, w.alike
	}
	waiting = slices.DeleteFunc(waiting, func(c ledger.Waiting) bool { return c.State != ledger.Parked })
	shapes, of := map[shape]int{}, make([]shape, len(waiting))
	kept, size := map[string]briefed{}, 0
	for i := range waiting {
		of[i] = shapeOf(&waiting[i])
		shapes[of[i]]++
		if b, ok := w.briefs[waiting[i].ID]; ok {
			kept[waiting[i].ID] = b
			size += b.size
		}
	}
	alike := make([]int, len(waiting))
	for i := range of {
		alike[i] = shapes[of[i]] - 1
	}
	w.version, w.parked, w.alike, w.briefs, w.size = version, waiting, alike, kept, size
	return waiting, alike
}

// shape is what alike calls have in common.
type shape struct{ cell, connector, method, account string }

func shapeOf(w *ledger.Waiting) shape {
	if w.Connector == self && asksFirst(w.Method) { // by program, which stands last
		return shape{w.Cell, self, w.Method, w.Dedup[strings.LastIndexByte(w.Dedup, '/')+1:]}
	}
	return shape{w.Cell, w.Connector, w.Method, w.Account}
}

// briefOf is the card of a parked call as a list shows it; its size is 0 where the call waits no longer. A card never changes while its
// call is parked: it is of the call's fixed part.
func (s *Sentinel) briefOf(ctx context.Context, id string) (briefed, error) {
	w := &s.waitlist
	w.mu.Lock()
	b, ok := w.briefs[id]
	w.mu.Unlock()
	if ok {
		return b, nil
	}
	c, err := s.ledger.Call(ctx, id)
	if err != nil {
		return b, s.ledgerError(err)
	}
	if c.State != ledger.Parked {
		return b, nil // decided meanwhile
	}
	if b.card, err = cardOf(&c); err != nil {
		return b, err
	}
	brief(&b.card)
	text, err := writeJSON(&b.card)
	if err != nil {
		return b, err
	}
	b.size = len(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.briefs[id]; ok {
		w.size -= old.size
	}
	if w.size+b.size > maxBriefs {
		clear(w.briefs)
		w.size = 0
	}
	w.briefs[id] = b
	w.size += b.size
	return b, nil
}
