// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"sync"
	"time"
)

// What a cell may have written into the record by calls that do not run: refused ones, and ones that are put up for
// decision and taken back again. Without a bound, a cell that asks in a loop fills the disk, and with it stops everything.
const (
	recordBurst = 64 << 20 // bytes
	recordRate  = 16 << 10 // bytes a second
	refusalCost = 4 << 10  // bytes of a refused call, about
	joinCost    = 1 << 10  // bytes of an allowed write that joins an equal one
)

// allowance is what a cell may still cost.
type allowance struct {
	turn sync.Mutex // held while something costly is done for the cell: it takes one processor's part, not all of them

	mu   sync.Mutex // guards what follows
	left int64
	at   time.Time
}

func (s *Sentinel) allowance(cell string) *allowance {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.cells[cell]
	if a == nil {
		a = &allowance{left: recordBurst, at: time.Now()}
		s.cells[cell] = a
	}
	return a
}

// turn waits until nothing else that is costly is done for the cell.
func (s *Sentinel) turn(cell string) (done func()) {
	a := s.allowance(cell)
	a.turn.Lock()
	return a.turn.Unlock
}

// mayRecord takes n bytes of what the cell may have written, and says whether they were there.
func (s *Sentinel) mayRecord(cell string, n int) bool {
	a := s.allowance(cell)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.take(time.Now(), int64(n))
}

// spend takes n bytes that are written whether they were there or not: what comes next is refused until they are.
func (s *Sentinel) spend(cell string, n int) {
	a := s.allowance(cell)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.take(time.Now(), 0)
	a.left -= int64(n)
}

// take: precondition: a.mu is held.
func (a *allowance) take(now time.Time, n int64) bool {
	if passed := now.Sub(a.at); passed > 0 {
		a.left = min(recordBurst, a.left+int64(passed.Seconds()*recordRate))
		a.at = now
	}
	if n > a.left {
		return false
	}
	a.left -= n
	return true
}
