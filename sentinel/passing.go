// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"crypto/sha256"

	"github.com/doorward/doorward/sentinel/ledger"
)

// passing keeps values for a time, in memory, by the SHA-256 of who asks for them: a secret itself is not kept. At most `most` are
// kept; the one that ends first gives way to a new one. The zero value but for most is empty.
type passing[V any] struct {
	most int
	all  map[[sha256.Size]byte]passed[V]
}

type passed[V any] struct {
	value V
	until ledger.Moment
}

// put keeps v until a time.
func (p *passing[V]) put(now ledger.Moment, key []byte, v V, until ledger.Moment) {
	p.sweep(now)
	if p.all == nil {
		p.all = map[[sha256.Size]byte]passed[V]{}
	}
	for len(p.all) > 0 && len(p.all) >= p.most {
		var first [sha256.Size]byte
		end := ledger.Moment{}
		for k, e := range p.all {
			if end.IsZero() || e.until.Wall < end.Wall {
				first, end = k, e.until
			}
		}
		delete(p.all, first)
	}
	p.all[sha256.Sum256(key)] = passed[V]{v, until}
}

// get finds what is kept and not over.
func (p *passing[V]) get(now ledger.Moment, key []byte) (v passed[V], ok bool) {
	e, ok := p.all[sha256.Sum256(key)]
	if !ok || now.Reached(e.until) {
		return v, false
	}
	return e, true
}

// take is get that leaves nothing behind.
func (p *passing[V]) take(now ledger.Moment, key []byte) (v passed[V], ok bool) {
	v, ok = p.get(now, key)
	delete(p.all, sha256.Sum256(key))
	return v, ok
}

// drop ends those that f names.
func (p *passing[V]) drop(f func(V) bool) {
	for k, e := range p.all {
		if f(e.value) {
			delete(p.all, k)
		}
	}
}

// sweep ends those whose time is over.
func (p *passing[V]) sweep(now ledger.Moment) {
	for k, e := range p.all {
		if now.Reached(e.until) {
			delete(p.all, k)
		}
	}
}
