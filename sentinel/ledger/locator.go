// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// A root hash says that something in the record changed, not what. So the checkpoint that a person takes away carries
// a locator: the hashes of all subtrees of one level, as many as make the file small. Hashed together they give the
// signed root, so the locator needs no signature; compared one by one they name the first block that differs, and up
// to maxLocator entries that is the very entry.
//
// The form, after the note:
//
//	locator LEVEL COUNT
//	COUNT lines, the hash of entries [i<<LEVEL, (i+1)<<LEVEL) in base64
//	one line more for each bit of the size below LEVEL, highest first: the subtrees of the rest

const (
	maxLocator        = 4096
	maxCheckpointFile = 64 << 20 // bytes of a file of checkpoints
	maxCheckpoints    = 4096     // in one file
)

// kept is a checkpoint that was taken away, with its locator if it has one.
type kept struct {
	Checkpoint
	level  int // of the locator; -1 for none
	blocks []tlog.Hash
}

// CheckpointFile returns a signed checkpoint over everything that is durable now, with a locator: what `doorward audit
// checkpoint` gives a person to keep elsewhere. Several, one after the other, are a file of checkpoints too.
func (l *Ledger) CheckpointFile(ctx context.Context) ([]byte, error) {
	size, root := l.Head()
	out, err := Checkpoint{Origin: Origin, Size: size, Root: root}.sign(l.signer)
	if err != nil {
		return nil, err
	}
	level := 0
	for size>>level > maxLocator {
		level++
	}
	var want []int64
	for i := range size >> level {
		want = append(want, tlog.StoredHashIndex(level, i))
	}
	for k := level - 1; k >= 0; k-- {
		if size>>k&1 == 1 {
			want = append(want, tlog.StoredHashIndex(k, size>>k-1))
		}
	}
	hashes, err := hashReader(ctx, l.reads())(want)
	if err != nil {
		return nil, l.say(fmt.Errorf("make a checkpoint's locator: %w", err))
	}
	out = fmt.Appendf(out, "locator %d %d\n", level, size>>level)
	for _, h := range hashes {
		out = append(out, h.String()...)
		out = append(out, '\n')
	}
	return out, nil
}

// parseCheckpoints reads a file of checkpoints: one or more notes that key signed, each with or without a locator.
func parseCheckpoints(file []byte, origin string, key ed25519.PublicKey) ([]kept, error) {
	if len(file) > maxCheckpointFile {
		return nil, fmt.Errorf("%w: the file has %d bytes, at most %d are read", ErrCheckpoint, len(file), maxCheckpointFile)
	}
	var out []kept
	for len(file) > 0 {
		if len(out) == maxCheckpoints {
			return nil, fmt.Errorf("%w: more than %d in the file", ErrCheckpoint, maxCheckpoints)
		}
		text := bytes.Index(file, []byte("\n\n"))
		if text < 0 {
			return nil, fmt.Errorf("%w: checkpoint %d has no signature", ErrCheckpoint, len(out)+1)
		}
		end := text + 2
		for bytes.HasPrefix(file[end:], []byte("\u2014 ")) {
			n := bytes.IndexByte(file[end:], '\n')
			if n < 0 {
				return nil, fmt.Errorf("%w: checkpoint %d is cut", ErrCheckpoint, len(out)+1)
			}
			end += n + 1
		}
		cp, err := VerifyCheckpoint(file[:end], origin, key)
		if err != nil {
			return nil, fmt.Errorf("checkpoint %d of the file: %w", len(out)+1, err)
		}
		k := kept{Checkpoint: cp, level: -1}
		file = file[end:]
		if bytes.HasPrefix(file, []byte("locator ")) {
			if file, err = k.parseLocator(file); err != nil {
				return nil, fmt.Errorf("checkpoint %d of the file: %w", len(out)+1, err)
			}
		}
		out = append(out, k)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: the file is empty", ErrCheckpoint)
	}
	return out, nil
}

// parseLocator reads the locator at the start of b and holds it to the signed root. It returns what follows.
func (k *kept) parseLocator(b []byte) ([]byte, error) {
	line, b, ok := bytes.Cut(b, []byte("\n"))
	f := strings.Split(string(line), " ")
	if !ok || len(f) != 3 {
		return nil, fmt.Errorf("%w: its locator cannot be read", ErrCheckpoint)
	}
	level, err1 := strconv.Atoi(f[1])
	count, err2 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil || level < 0 || level > 62 || count != k.Size>>level || count > maxLocator {
		return nil, fmt.Errorf("%w: its locator does not fit its size", ErrCheckpoint)
	}
	next := func() (tlog.Hash, error) {
		line, rest, ok := bytes.Cut(b, []byte("\n"))
		h, err := tlog.ParseHash(string(line))
		if !ok || err != nil || h.String() != string(line) {
			return h, fmt.Errorf("%w: its locator is cut", ErrCheckpoint)
		}
		b = rest
		return h, nil
	}
	var tree, whole frontier
	for range count {
		h, err := next()
		if err != nil {
			return nil, err
		}
		k.blocks = append(k.blocks, h)
		tree.add(h)
	}
	whole.size = k.Size
	for bit := range 63 - level {
		whole.peaks[level+bit] = tree.peaks[bit]
	}
	for bit := level - 1; bit >= 0; bit-- {
		if k.Size>>bit&1 == 1 {
			h, err := next()
			if err != nil {
				return nil, err
			}
			whole.peaks[bit] = h
		}
	}
	if whole.root() != k.Root {
		return nil, fmt.Errorf("%w: its locator does not hash to its root", ErrCheckpoint)
	}
	k.level = level
	return b, nil
}
