// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint says how many entries the record had and what their tree's hash was. Signed, it is a note in the form of
// C2SP tlog-checkpoint: three lines (origin, size, root) and a signature.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
}

// ErrCheckpoint is returned for a checkpoint that this ledger's key did not sign or that cannot be read.
var ErrCheckpoint = errors.New("not a checkpoint of this ledger")

func (c Checkpoint) text() string {
	return c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + c.Root.String() + "\n"
}

// sign returns the signed note.
func (c Checkpoint) sign(s note.Signer) ([]byte, error) {
	out, err := note.Sign(&note.Note{Text: c.text()}, s)
	if err != nil {
		return nil, fmt.Errorf("sign a checkpoint: %w", err)
	}
	return out, nil
}

// VerifyCheckpoint returns what a signed checkpoint says, if key signed it for origin. It is a pure function.
func VerifyCheckpoint(msg []byte, origin string, key ed25519.PublicKey) (Checkpoint, error) {
	vkey, err := note.NewEd25519VerifierKey(origin, key)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("use the checkpoint key: %w", err)
	}
	v, err := note.NewVerifier(vkey)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("use the checkpoint key: %w", err)
	}
	n, err := note.Open(msg, note.VerifierList(v))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	lines := strings.Split(n.Text, "\n")
	if len(lines) != 4 || lines[0] != origin || lines[3] != "" {
		return Checkpoint{}, fmt.Errorf("%w: want origin %q, size and root", ErrCheckpoint, origin)
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return Checkpoint{}, fmt.Errorf("%w: its size is no number", ErrCheckpoint)
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil || root.String() != lines[2] {
		return Checkpoint{}, fmt.Errorf("%w: its root is no hash", ErrCheckpoint)
	}
	return Checkpoint{Origin: lines[0], Size: size, Root: root}, nil
}

// newSigner makes the note signer of an Ed25519 key.
func newSigner(origin string, key ed25519.PrivateKey) (note.Signer, error) {
	pub, ok := key.Public().(ed25519.PublicKey)
	if !ok || len(key) != ed25519.PrivateKeySize {
		return nil, errors.New("use the checkpoint key: not an Ed25519 key of 64 bytes")
	}
	vkey, err := note.NewEd25519VerifierKey(origin, pub)
	if err != nil {
		return nil, fmt.Errorf("use the checkpoint key: %w", err)
	}
	id := strings.Split(vkey, "+")[1]
	seed := append([]byte{1}, key.Seed()...) // 1 is the note format's number for Ed25519
	s, err := note.NewSigner("PRIVATE+KEY+" + origin + "+" + id + "+" + base64.StdEncoding.EncodeToString(seed))
	if err != nil {
		return nil, fmt.Errorf("use the checkpoint key: %w", err)
	}
	return s, nil
}

// macKey derives the key of the entries' codes from the checkpoint key.
func macKey(key ed25519.PrivateKey) ([]byte, error) {
	k, err := hkdf.Key(sha256.New, key.Seed(), nil, "doorward ledger entry code v1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive the key of the entries' codes: %w", err)
	}
	return k, nil
}

// macSize is the length of an entry's code: HMAC-SHA-256 cut to 128 bits.
const macSize = 16

// coder makes the entries' codes. It is not for two goroutines at once.
type coder struct{ h hash.Hash }

func newCoder(key []byte) coder { return coder{hmac.New(sha256.New, key)} }

// code is that of entry n. It chains: without the key nobody can rewrite one entry and recompute what follows, and
// with it the first entry that was rewritten is named, which one root hash cannot do.
func (c coder) code(before []byte, n int64, leaf tlog.Hash) []byte {
	var num [8]byte
	binary.BigEndian.PutUint64(num[:], uint64(n))
	c.h.Reset()
	c.h.Write(before)
	c.h.Write(num[:])
	c.h.Write(leaf[:])
	return c.h.Sum(nil)[:macSize]
}
