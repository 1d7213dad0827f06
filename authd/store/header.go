// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"golang.org/x/crypto/argon2"
)

// How a store's root key is had.
const (
	FromCredential = "credential" // 32 bytes that the service manager hands over
	FromPassphrase = "passphrase" // argon2id of what a person types
)

// Header is header.json. It is in clear; a change to it makes the root key another.
type Header struct {
	Version int    `json:"version"`
	Store   string `json:"store"` // 32 random hex digits: two stores of one key share no record key
	Key     string `json:"key"`   // FromCredential or FromPassphrase
	// Argon2id is set with FromPassphrase.
	Argon2id *Argon2id `json:"argon2id,omitempty"`
}

// Argon2id are the parameters of RFC 9106.
type Argon2id struct {
	Time      uint32 `json:"time"`       // passes
	MemoryKiB uint32 `json:"memory_kib"` // KiB
	Threads   uint8  `json:"threads"`
	Salt      string `json:"salt"` // 32 hex digits
}

// What RFC 9106 section 4 recommends where memory is scarce.
const (
	argonTime      = 3
	argonMemoryKiB = 64 << 10
	argonThreads   = 4
)

// Bounds of what a header may ask for, so that a changed one cannot have all of the machine's memory.
const (
	maxArgonTime      = 64
	maxArgonMemoryKiB = 1 << 20
)

func newHeader(key string, random io.Reader) (Header, error) {
	var drawn [32]byte
	if _, err := io.ReadFull(random, drawn[:]); err != nil {
		return Header{}, fmt.Errorf("make store header: %w", err)
	}
	h := Header{Version: newest(), Store: hex.EncodeToString(drawn[:16]), Key: key}
	if key == FromPassphrase {
		h.Argon2id = &Argon2id{argonTime, argonMemoryKiB, argonThreads, hex.EncodeToString(drawn[16:])}
	}
	return h, nil
}

// parseHeader reads header.json, and returns nothing unless all of it is understood.
func parseHeader(b []byte) (Header, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return Header{}, fmt.Errorf("%w: header.json: %v", ErrCorrupt, err)
	}
	if version.Version > newest() {
		return Header{}, newer(version.Version)
	}
	var h Header
	if err := json.Unmarshal(b, &h, json.RejectUnknownMembers(true)); err != nil {
		return Header{}, fmt.Errorf("%w: header.json: %v", ErrCorrupt, err)
	}
	if h.Version < 1 || !isHex(h.Store) {
		return Header{}, fmt.Errorf("%w: header.json: wrong version or store id", ErrCorrupt)
	}
	switch a := h.Argon2id; {
	case h.Key == FromCredential && a == nil:
	case h.Key == FromPassphrase && a != nil && a.valid():
	default:
		return Header{}, fmt.Errorf("%w: header.json: the key's source or its parameters are out of bounds", ErrCorrupt)
	}
	return h, nil
}

func (a *Argon2id) valid() bool {
	return a.Time >= 1 && a.Time <= maxArgonTime && a.Threads >= 1 && isHex(a.Salt) &&
		a.MemoryKiB >= 8*uint32(a.Threads) && a.MemoryKiB <= maxArgonMemoryKiB
}

// root derives the root key of a passphrase. It takes a large part of a second, and as much memory as it says.
func (a *Argon2id) root(passphrase []byte) []byte {
	salt, _ := hex.DecodeString(a.Salt) // valid has seen it
	return argon2.IDKey(passphrase, salt, a.Time, a.MemoryKiB, a.Threads, RootSize)
}

func (h Header) encode() ([]byte, [sha256.Size]byte, error) {
	b, err := json.Marshal(h, json.Deterministic(true))
	if err != nil {
		return nil, [sha256.Size]byte{}, fmt.Errorf("make store header: %w", err)
	}
	b = append(b, '\n')
	return b, sha256.Sum256(b), nil
}

// isHex says whether s is 32 lower-case hex digits.
func isHex(s string) bool {
	if len(s) != 32 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
