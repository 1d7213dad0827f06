// SPDX-License-Identifier: Apache-2.0

package swap

import "io"

// Stream scrubs what is written to it and passes it on. How much it passes on at once depends on the bytes alone and
// never on the credential: who writes into what a vendor stores, and sees where an answer breaks, could else try one
// beginning of the credential after the other. So it holds back the last bytes that could be of any form, whether they
// are or not: all after the last control byte, which is part of none, and at most as many as the longest form in its
// longest spelling has. An event ends with a line feed, and so never waits. Close writes what is held.
type Stream struct {
	// Hits is how many forms were replaced so far.
	Hits int

	s           *Scrubber
	dst         io.Writer
	replacement []byte
	held        []byte
}

// NewStream scrubs into dst, putting replacement where a form was.
func NewStream(dst io.Writer, s *Scrubber, replacement string) *Stream {
	return &Stream{s: s, dst: dst, replacement: []byte(replacement)}
}

// Write scrubs p.
func (x *Stream) Write(p []byte) (int, error) {
	d := p
	if len(x.held) > 0 {
		x.held = append(x.held, p...)
		d = x.held
	}
	from, err := x.scan(d, x.border(d), false)
	x.held = append(x.held[:0], d[from:]...)
	return len(p), err
}

// Flush passes on what is held, where something ends: a form that goes on behind it is not found. Whether it is called must not
// depend on what is held, which is why it does not look whether that could go on.
func (x *Stream) Flush() error {
	_, err := x.scan(x.held, len(x.held), true)
	x.held = x.held[:0]
	return err
}

// Close is Flush; nothing may be written after.
func (x *Stream) Close() error {
	err := x.Flush()
	x.held = nil
	return err
}

// border is how much of d may be passed on while more may follow.
func (x *Stream) border(d []byte) int {
	least := max(0, len(d)-x.s.longest)
	for i := len(d); i > least; i-- {
		if d[i-1] < ' ' {
			return i
		}
	}
	return least
}

// scan passes on d up to border, and forms that are whole beyond it, and returns where what must be held begins.
func (x *Stream) scan(d []byte, border int, eof bool) (from int, err error) {
	for {
		f := x.s.find(d, from, eof)
		whole := f.at < f.end && !f.hold
		to := f.at
		if !whole {
			to = min(to, max(border, from))
		}
		if to > from {
			if _, err := x.dst.Write(d[from:to]); err != nil {
				return to, err
			}
			from = to
		}
		if !whole {
			return from, nil
		}
		if _, err := x.dst.Write(x.replacement); err != nil {
			return from, err
		}
		x.Hits++
		from = f.end
	}
}
