// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/wire"
)

// MaxWaiting is how many releases may wait for sentinel's acknowledgement. Beyond it nothing is released: a release
// that sentinel does not hear of is a request that no record has. So many fit into a socket's buffers, both ways: a link
// that is told of all of them never waits for itself.
const MaxWaiting = 1024

// Outbox numbers releases and keeps each until sentinel has acknowledged it. Its methods may run side by side.
type Outbox struct {
	mu      sync.Mutex // guards what follows
	last    uint64
	waiting []wire.ReleasedReq // by rising number
}

// Put numbers and dates one release and keeps it. It fails where too many wait.
func (o *Outbox) Put(now Now, r wire.ReleasedReq) (wire.ReleasedReq, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) >= MaxWaiting {
		return wire.ReleasedReq{}, refuse(wire.CodeUnavailable, WhyUnheard, "sentinel does not record what is released",
			"wait until it does")
	}
	o.last++
	r.Seq, r.Unix = o.last, now.Wall.Unix()
	o.waiting = append(o.waiting, r)
	return r, nil
}

// Acknowledge forgets one release. A number that is not waiting changes nothing.
func (o *Outbox) Acknowledge(seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i, found := slices.BinarySearchFunc(o.waiting, seq, func(r wire.ReleasedReq, seq uint64) int {
		switch {
		case r.Seq < seq:
			return -1
		case r.Seq > seq:
			return 1
		}
		return 0
	})
	if found {
		o.waiting = slices.Delete(o.waiting, i, i+1)
	}
}

// Waiting returns what is to be repeated on a new link, oldest first.
func (o *Outbox) Waiting() []wire.ReleasedReq {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.waiting)
}
