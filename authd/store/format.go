// SPDX-License-Identifier: Apache-2.0

// Package store is authd's sealed store: one file per credential, AES-256-GCM under a key from the root key.
//
// A thief of the disk learns how many accounts there are and about how large each is; without the root key, nothing
// else. Who can write to the folder cannot make a record, change one, or pass one off as another: each is sealed with
// its purpose, its id, the store's version and its generation. Nor can they put an older file of a record back, or take
// one away: the index has the generation of each. What a store cannot notice by itself is that the whole folder is an
// older one. Nothing partial comes out of this package: a folder with a single wrong byte does not open.
//
// # Format
//
// The folder holds
//
//	lock           empty; locked (flock) by the one authd that has the store open
//	header.json    how the root key is had; see Header
//	check          a record of purpose 1: proves the root key before anything else is opened
//	index          a record of purpose 2: the id and generation of each account's record and the generation of that of
//	               surrogates, and the last login generation given, so that none is given twice
//	checkpoint     a record of purpose 3: sentinel's newest checkpoint (absent until there is one)
//	minted         a record of purpose 5: what is kept of custom surrogates (absent until there is one); see below
//	accounts/ID    a record of purpose 4: one account with its credential; ID is 32 hex digits
//
// and, after a crash, names that end in ".new", which are deleted. Any other name is refused. An account's record is
// written before the index and deleted after it. So after a crash a record can be one generation ahead of the index,
// which then follows it, or not be in the index at all, and is then deleted: it was never confirmed, or was removed.
//
// A record is
//
//	offset  size  what
//	     0     8  "doorward"
//	     8     2  version of the format, big-endian: 2; that of header.json
//	    10     2  purpose, big-endian
//	    12    16  record id: for accounts the file's name; zero for the others
//	    28     8  generation, big-endian: how often this record was written
//	    36    12  nonce, random
//	    48     n  AES-256-GCM ciphertext and its tag of 16 bytes
//
// with offsets 0 to 36 as associated data. The key is HKDF-SHA256 (RFC 5869) with the root key as secret, the SHA-256
// of header.json as salt, and as info "doorward store record", purpose (2 bytes, big-endian) and record id (16
// bytes). So a changed header, like a wrong root key, opens nothing. The plaintext is JSON, filled with spaces to the
// next multiple of 512 bytes. testdata has vectors of both versions that another implementation made.
package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/doorward/doorward/authd/guarded"
)

// Version is the version of the format. A store of a later one is refused: what it holds could mean less than it says. One
// of an earlier is migrated when it is unlocked, see migrate.go.
const Version = 2

const (
	magic     = "doorward"
	headSize  = 36
	nonceSize = 12
	tagSize   = 16
	fillTo    = 512
	// maxRecord bounds what is read of a record's file, in bytes.
	maxRecord = 1 << 20
	// RootSize is the size of a root key in bytes.
	RootSize = 32
)

type purpose uint16

const (
	purposeCheck      purpose = 1
	purposeIndex      purpose = 2
	purposeCheckpoint purpose = 3
	purposeAccount    purpose = 4
	purposeMinted     purpose = 5
)

// Errors of this package; what is wrong with what someone gave comes as a wire.Error instead.
var (
	// ErrCorrupt: bytes in the folder are not what authd wrote. The daemon stops.
	ErrCorrupt = errors.New("the store is damaged")
	// ErrNewer: the folder was written by a later version.
	ErrNewer = errors.New("the store was written by a newer doorward")
	// ErrWrongKey: the root key or passphrase is not this store's, or its header was changed.
	ErrWrongKey = errors.New("this key does not open the store")
	// ErrInUse: another authd has the store open.
	ErrInUse = errors.New("another authd has this store open")
	// ErrLocked: no key has been given yet.
	ErrLocked = errors.New("the store is locked")
)

type recordID [16]byte

// recordHead is the clear part of a record, and its associated data.
type recordHead struct {
	purpose    purpose
	id         recordID
	generation uint64
}

func (h recordHead) append(b []byte, version uint16) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, version)
	b = binary.BigEndian.AppendUint16(b, uint16(h.purpose))
	b = append(b, h.id[:]...)
	return binary.BigEndian.AppendUint64(b, h.generation)
}

// parseHead reads the clear part of a record of a version. It proves nothing: open does.
func parseHead(b []byte, version uint16) (recordHead, error) {
	if len(b) < headSize+nonceSize+tagSize || string(b[:8]) != magic {
		return recordHead{}, fmt.Errorf("%w: not a record", ErrCorrupt)
	}
	if v := binary.BigEndian.Uint16(b[8:]); int(v) > newest() {
		return recordHead{}, newer(int(v))
	} else if v != version {
		return recordHead{}, fmt.Errorf("%w: a record of version %d in a store of version %d", ErrCorrupt, v, version)
	}
	return recordHead{
		purpose:    purpose(binary.BigEndian.Uint16(b[10:])),
		id:         recordID(b[12:28]),
		generation: binary.BigEndian.Uint64(b[28:]),
	}, nil
}

// sealer makes and opens records of one store.
type sealer struct {
	root    *guarded.Value
	salt    [sha256.Size]byte // of header.json
	random  io.Reader
	version uint16
}

// aead returns the cipher of one record. Its key is in ordinary memory until the record is done.
func (s *sealer) aead(h recordHead) (cipher.AEAD, error) {
	info := binary.BigEndian.AppendUint16([]byte("doorward store record"), uint16(h.purpose))
	info = append(info, h.id[:]...)
	var key []byte
	var err error
	s.root.Use(func(root []byte) {
		key, err = hkdf.Key(sha256.New, root, s.salt[:], string(info), 32)
	})
	if err != nil {
		return nil, fmt.Errorf("derive record key: %w", err)
	}
	defer clear(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("record cipher: %w", err)
	}
	return cipher.NewGCM(block)
}

// seal returns a record of plain, which stays the caller's.
func (s *sealer) seal(h recordHead, plain []byte) ([]byte, error) {
	aead, err := s.aead(h)
	if err != nil {
		return nil, err
	}
	filled := make([]byte, (len(plain)+fillTo)/fillTo*fillTo)
	defer clear(filled)
	for i := copy(filled, plain); i < len(filled); i++ {
		filled[i] = ' '
	}
	out := h.append(make([]byte, 0, headSize+nonceSize+len(filled)+tagSize), s.version)
	out = out[:headSize+nonceSize]
	if _, err := io.ReadFull(s.random, out[headSize:]); err != nil {
		return nil, fmt.Errorf("draw nonce: %w", err)
	}
	return aead.Seal(out, out[headSize:], filled, out[:headSize]), nil
}

// open returns the plaintext of a record, which must be the one that want says but for its generation.
func (s *sealer) open(b []byte, want recordHead) ([]byte, uint64, error) {
	h, err := parseHead(b, s.version)
	if err != nil {
		return nil, 0, err
	}
	if h.purpose != want.purpose || h.id != want.id {
		return nil, 0, fmt.Errorf("%w: it is another record (purpose %d, id %x)", ErrCorrupt, h.purpose, h.id)
	}
	aead, err := s.aead(h)
	if err != nil {
		return nil, 0, err
	}
	plain, err := aead.Open(nil, b[headSize:headSize+nonceSize], b[headSize+nonceSize:], b[:headSize])
	if err != nil {
		return nil, 0, fmt.Errorf("%w: a record does not open", ErrCorrupt)
	}
	return plain, h.generation, nil
}
