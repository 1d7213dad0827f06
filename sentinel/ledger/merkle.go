// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// frontier is the right edge of the Merkle tree of RFC 6962: the roots of the whole subtrees that make up the first
// size entries, by level. It is a value: a batch that is rolled back drops its copy.
type frontier struct {
	size  int64
	peaks [64]tlog.Hash // peaks[k] stands if bit k of size is set
}

// add appends a leaf and returns the hashes that the leaf completes, its own first: level k at index k.
func (f *frontier) add(leaf tlog.Hash) []tlog.Hash {
	k := bits.TrailingZeros64(^uint64(f.size))
	out := make([]tlog.Hash, 1, k+1)
	out[0] = leaf
	for i := range k {
		leaf = tlog.NodeHash(f.peaks[i], leaf)
		out = append(out, leaf)
	}
	f.peaks[k] = leaf
	f.size++
	return out
}

// root returns the tree's hash; of the empty tree it is zero.
func (f *frontier) root() tlog.Hash {
	var h tlog.Hash
	first := true
	for k := range f.peaks {
		switch {
		case f.size>>k&1 == 0:
		case first:
			h, first = f.peaks[k], false
		default:
			h = tlog.NodeHash(f.peaks[k], h)
		}
	}
	return h
}

// place returns the entry whose row keeps the stored hash with tlog's index, and the level at which it keeps it.
func place(index int64) (n int64, level int) {
	level, i := tlog.SplitStoredHashIndex(index)
	return (i+1)<<level - 1, level
}
