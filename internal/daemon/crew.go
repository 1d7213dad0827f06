// SPDX-License-Identifier: Apache-2.0

package daemon

// crew runs functions on goroutines that are kept for the next ones: a new goroutine has a small stack, and growing it by
// copying, several times on the way into a handler, cost a tenth of a worker's time.
type crew struct {
	work  chan func()
	spare chan struct{} // one for each that waits for work
}

// maxSpare bounds the goroutines that are kept.
const maxSpare = 16

func newCrew() *crew {
	return &crew{work: make(chan func()), spare: make(chan struct{}, maxSpare)}
}

// everyone is one crew for the whole process.
var everyone = newCrew()

// run runs f beside the caller.
func (c *crew) run(f func()) {
	select {
	case c.work <- f:
	default:
		go c.serve(f)
	}
}

func (c *crew) serve(f func()) {
	for {
		f()
		f = nil // what it holds is not kept
		select {
		case c.spare <- struct{}{}:
		default:
			return
		}
		f = <-c.work
		<-c.spare
	}
}
