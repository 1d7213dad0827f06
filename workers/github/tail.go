// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"errors"
	"io"
)

// maxTail bounds what is kept of a log, in bytes. A log may be one line without end.
const maxTail = 8 << 20

// tail returns the last n lines of r, at most maxTail bytes of them, and whether there was more before. It holds at
// most twice maxTail in memory.
func tail(r io.Reader, n int) (kept []byte, more bool, err error) {
	piece := make([]byte, 64<<10)
	for {
		got, err := r.Read(piece)
		kept = append(kept, piece[:got]...)
		if len(kept) > 2*maxTail {
			kept = append(kept[:0], kept[len(kept)-maxTail:]...)
			more = true
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	if len(kept) > maxTail {
		kept, more = kept[len(kept)-maxTail:], true
	}
	if more { // begin at a line, or at least at a character
		if i := bytes.IndexByte(kept, '\n'); i >= 0 && i < len(kept)-1 {
			kept = kept[i+1:]
		}
		for len(kept) > 0 && kept[0]&0xc0 == 0x80 {
			kept = kept[1:]
		}
	}
	end := len(kept)
	if end > 0 && kept[end-1] == '\n' {
		end--
	}
	for i := end - 1; i >= 0; i-- {
		if kept[i] != '\n' {
			continue
		}
		if n--; n == 0 {
			return kept[i+1:], true, nil
		}
	}
	return kept, more, nil
}
