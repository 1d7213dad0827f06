// SPDX-License-Identifier: Apache-2.0

package swap

import "io"

// Stream scrubs what is written to it and passes it on at once: it holds back only what may be the beginning of a form,
// at most the longest form in its longest spelling. Close writes what is held.
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

// Write scrubs p. Where nothing is held and nothing found, dst is given p itself.
func (x *Stream) Write(p []byte) (int, error) {
	if len(x.held) == 0 {
		rest, err := x.scan(p, false)
		x.held = append(x.held, rest...)
		return len(p), err
	}
	x.held = append(x.held, p...)
	rest, err := x.scan(x.held, false)
	n := copy(x.held, rest)
	x.held = x.held[:n]
	return len(p), err
}

// Close passes on what is held; nothing may be written after.
func (x *Stream) Close() error {
	_, err := x.scan(x.held, true)
	x.held = nil
	return err
}

// scan passes on what it can of d and returns what must be held.
func (x *Stream) scan(d []byte, eof bool) ([]byte, error) {
	from := 0
	for {
		f := x.s.find(d, from, eof)
		if f.at > from {
			if _, err := x.dst.Write(d[from:f.at]); err != nil {
				return nil, err
			}
		}
		if f.hold {
			return d[f.at:], nil
		}
		if f.at == len(d) {
			return nil, nil
		}
		if _, err := x.dst.Write(x.replacement); err != nil {
			return nil, err
		}
		x.Hits++
		from = f.end
	}
}
