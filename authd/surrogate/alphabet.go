// SPDX-License-Identifier: Apache-2.0

package surrogate

import (
	"fmt"
	"io"
	"math"
	"math/bits"
)

// An alphabet is a class of characters that a vendor's format check may hold a token to.
type alphabet struct {
	name   string
	chars  string
	marker string // begins every surrogate of this alphabet, after its prefix
}

const (
	digits = "0123456789"
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// Eight characters mark a surrogate. In the smallest alphabet a true token begins with them once in 10^8; it would
// be refused at import, not confused. The digits are the word on a telephone's keys.
var (
	decimal   = alphabet{"decimal", digits, "36679273"}
	hexLower  = alphabet{"hex", digits + "abcdef", "d00dda2d"}
	hexUpper  = alphabet{"HEX", digits + "ABCDEF", "D00DDA2D"}
	base36    = alphabet{"base36", digits + lower, "doorward"}
	base36Up  = alphabet{"BASE36", digits + upper, "DOORWARD"}
	base62    = alphabet{"base62", digits + upper + lower, "DoorWard"}
	base64URL = alphabet{"base64url", digits + upper + lower + "-_", "Door-Wrd"}
	base64Std = alphabet{"base64", digits + upper + lower + "+/", "Door/Wrd"}
	// Anything else, passwords above all. The filler stays within what no header, query or form has to escape.
	other = alphabet{"other", digits + upper + lower + "-_", "D-o-o-rW"}
)

// alphabets is ordered from the narrowest to the widest; the first that holds a value is its class.
var alphabets = [...]*alphabet{
	&decimal, &hexLower, &hexUpper, &base36, &base36Up, &base62, &base64URL, &base64Std, &other,
}

// alphabetOf returns the narrowest class that holds value. Padding at the end of base64 is not part of the class.
func alphabetOf(value []byte) *alphabet {
	for len(value) > 0 && value[len(value)-1] == '=' {
		value = value[:len(value)-1]
	}
	if len(value) == 0 {
		return &other
	}
	for _, a := range alphabets {
		if a.holds(value) {
			return a
		}
	}
	return &other
}

func (a *alphabet) holds(value []byte) bool {
	for _, c := range value {
		if !a.has(c) {
			return false
		}
	}
	return true
}

func (a *alphabet) has(c byte) bool {
	for i := range len(a.chars) {
		if a.chars[i] == c {
			return true
		}
	}
	return false
}

// randomLeast is how many characters hold MinBits.
func (a *alphabet) randomLeast() int {
	return int(math.Ceil(MinBits / math.Log2(float64(len(a.chars)))))
}

// least is the length of the shortest surrogate, without prefix and checksum.
func (a *alphabet) least() int { return len(a.marker) + a.randomLeast() }

// fill sets every byte of out to a character drawn evenly: random bytes are masked to the next power of two and
// those beyond the alphabet are thrown away.
func (a *alphabet) fill(out []byte, random io.Reader) error {
	mask := byte(1<<bits.Len(uint(len(a.chars)-1)) - 1)
	var pool [64]byte
	left := 0
	for i := 0; i < len(out); {
		if left == 0 {
			if _, err := io.ReadFull(random, pool[:]); err != nil {
				return fmt.Errorf("read random bytes: %w", err)
			}
			left = len(pool)
		}
		left--
		if c := pool[left] & mask; int(c) < len(a.chars) {
			out[i] = a.chars[c]
			i++
		}
	}
	clear(pool[:])
	return nil
}
