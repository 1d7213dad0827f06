// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/doorward/doorward/authd/guarded"
	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
)

// MinPassphrase is the shortest passphrase that a new store takes, in bytes.
const MinPassphrase = 8

// Store is an open store. Its methods may run side by side.
type Store struct {
	folder *folder
	random io.Reader

	change sync.Mutex // held by whoever changes the folder; guards index. Before mu.
	index  index

	mu         sync.RWMutex // guards what follows; who holds change may read without it
	header     *Header      // nil: there is no store yet
	sealer     *sealer      // nil: locked
	accounts   map[string]*entry
	checkpoint checkpoint
	minted     minted
}

// entry is an account with where it is kept.
type entry struct {
	*Account
	id      recordID
	written uint64 // generation of its record
}

func (e *entry) path() string { return accountsName + "/" + hex.EncodeToString(e.id[:]) }

func (e *entry) head() recordHead {
	return recordHead{purpose: purposeAccount, id: e.id, generation: e.written}
}

// index says what the folder must hold.
type index struct {
	Last    int64             `json:"last"`            // login generation given
	Records map[string]uint64 `json:"records"`         // generation of each account's record, by its file's name
	Minted  uint64            `json:"minted,omitzero"` // generation of the record of surrogates; 0: there is none
	written uint64
}

// copy returns the index as it is written next.
func (x index) copy() index {
	x.Records = maps.Clone(x.Records)
	x.written++
	return x
}

// with returns a copy in which a record has a generation, or is gone where that is 0.
func (x index) with(id recordID, generation uint64, last int64) index {
	next := x.copy()
	next.Last = max(x.Last, last)
	if name := hex.EncodeToString(id[:]); generation == 0 {
		delete(next.Records, name)
	} else {
		next.Records[name] = generation
	}
	return next
}

type checkpoint struct {
	Note    []byte `json:"note"`
	Size    int64  `json:"size"` // of the tree
	written uint64
}

// Open locks the folder dir, makes it where it is missing, and reads how its key is had. The store is then locked:
// one of the Unlock methods opens it. Only one process has a store open.
func Open(dir string) (*Store, error) { return open(dir, rand.Reader) }

func open(dir string, random io.Reader) (*Store, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{folder: f, random: random, accounts: map[string]*entry{}}
	err = s.readHeader()
	if err == nil { // of a store that is refused everything stays as it is
		err = discard(dir + nextSuffix)
	}
	if err != nil {
		f.close()
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return s, nil
}

func (s *Store) readHeader() error {
	b, err := s.folder.read(headerName)
	if errors.Is(err, fs.ErrNotExist) {
		// The header is the last thing that making a store writes. Records without one are another matter.
		names, err := s.folder.names(accountsName)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return fmt.Errorf("%w: it has records and no header.json: restore that file", ErrCorrupt)
		}
		return nil
	}
	if err != nil {
		return err
	}
	h, err := parseHeader(b)
	if err != nil {
		return err
	}
	if again, _, err := h.encode(); err != nil || string(again) != string(b) {
		return fmt.Errorf("%w: header.json is not as it was written", ErrCorrupt)
	}
	s.header = &h
	return nil
}

// Source says how the store's key is had: FromCredential, FromPassphrase, or "" where there is no store yet.
func (s *Store) Source() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.header == nil {
		return ""
	}
	return s.header.Key
}

// Locked says whether no key has been given yet.
func (s *Store) Locked() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sealer == nil
}

// Kept says how well this machine keeps the root key in memory; "" while locked.
func (s *Store) Kept() guarded.Kind {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.sealer == nil {
		return ""
	}
	return s.sealer.root.Kind()
}

// UnlockCredential opens the store, or makes it, with a root key of RootSize bytes, which it overwrites.
func (s *Store) UnlockCredential(root []byte) error {
	defer clear(root)
	if len(root) != RootSize {
		return fmt.Errorf("unlock store: the store key has %d bytes, needs %d: make one with `systemd-creds encrypt`",
			len(root), RootSize)
	}
	return s.unlock(FromCredential, func(Header) []byte { return root })
}

// UnlockPassphrase opens the store, or makes it, with a passphrase, which it overwrites.
func (s *Store) UnlockPassphrase(passphrase []byte) error {
	defer clear(passphrase)
	if s.Source() == "" && len(passphrase) < MinPassphrase {
		return credentialRefusal(fmt.Sprintf("a new store's passphrase needs %d bytes at least", MinPassphrase),
			"choose a longer one")
	}
	if len(passphrase) > MaxSecret {
		return credentialRefusal(fmt.Sprintf("the passphrase is longer than %d bytes", MaxSecret), "choose a shorter one")
	}
	return s.unlock(FromPassphrase, func(h Header) []byte { return h.Argon2id.root(passphrase) })
}

func (s *Store) unlock(source string, root func(Header) []byte) error {
	s.change.Lock()
	defer s.change.Unlock()
	if !s.Locked() {
		return nil
	}
	h, fresh := s.header, s.header == nil
	if fresh {
		made, err := newHeader(source, s.random)
		if err != nil {
			return err
		}
		h = &made
	}
	if h.Key != source {
		return fmt.Errorf("%w: its key comes from a %s, not a %s", ErrWrongKey, h.Key, source)
	}
	encoded, salt, err := h.encode()
	if err != nil {
		return err
	}
	sealer := &sealer{root: guarded.New(root(*h)), salt: salt, random: s.random, version: uint16(h.Version)}
	loaded := &Store{folder: s.folder, random: s.random, header: h, sealer: sealer, accounts: map[string]*entry{}}
	switch {
	case fresh:
		err = loaded.make(encoded)
	case h.Version < newest():
		err = loaded.migrate()
	default:
		err = loaded.load()
	}
	if err != nil {
		sealer.root.Wipe()
		loaded.wipe()
		return fmt.Errorf("unlock store: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folder, s.header, s.sealer, s.accounts = loaded.folder, loaded.header, loaded.sealer, loaded.accounts
	s.index, s.checkpoint, s.minted = loaded.index, loaded.checkpoint, loaded.minted
	return nil
}

// make writes an empty store, its header last: without one there is no store.
func (s *Store) make(header []byte) error {
	if err := s.put(checkName, recordHead{purpose: purposeCheck, generation: 1}, struct{}{}); err != nil {
		return err
	}
	if err := s.putIndex(index{Records: map[string]uint64{}, written: 1}); err != nil {
		return err
	}
	return s.folder.write(headerName, header)
}

// load reads all that the folder holds.
func (s *Store) load() error {
	var nothing struct{}
	_, err := s.get(checkName, recordHead{purpose: purposeCheck}, &nothing)
	if errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w: give the key it was made with, or restore header.json", ErrWrongKey)
	}
	if err != nil {
		return err
	}
	if s.index.written, err = s.get(indexName, recordHead{purpose: purposeIndex}, &s.index); err != nil {
		return err
	}
	if s.index.Last < 0 || s.index.Records == nil {
		return fmt.Errorf("%w: %s is out of bounds", ErrCorrupt, indexName)
	}
	s.checkpoint.written, err = s.get(checkpointName, recordHead{purpose: purposeCheckpoint}, &s.checkpoint)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.loadAccounts(); err != nil {
		return err
	}
	return s.loadMinted()
}

// loadAccounts reads the accounts, holds them to the index, and finishes what a crash left unfinished.
func (s *Store) loadAccounts() error {
	names, err := s.folder.names(accountsName)
	if err != nil {
		return err
	}
	now := s.index
	for _, name := range names {
		indexed, known := s.index.Records[name]
		e, err := s.readAccount(name)
		if err != nil {
			return err
		}
		if !known { // it is ours, and was never confirmed or is removed
			e.Secret.Wipe()
			if err := s.folder.remove(e.path()); err != nil {
				return err
			}
			continue
		}
		if s.accounts[e.Name] != nil {
			e.Secret.Wipe()
			return fmt.Errorf("%w: two accounts of one name", ErrCorrupt)
		}
		s.accounts[e.Name] = e
		switch e.written {
		case indexed:
		case indexed + 1:
			now = now.with(e.id, e.written, e.Generation)
		default:
			return fmt.Errorf("%w: %s/%s is of another time than the index: an older file was put back",
				ErrCorrupt, accountsName, name)
		}
	}
	if len(s.accounts) != len(s.index.Records) {
		return fmt.Errorf("%w: an account's file is missing below %s", ErrCorrupt, accountsName)
	}
	for _, e := range s.accounts {
		if e.Generation < 1 || e.Generation > now.Last {
			return fmt.Errorf("%w: a login generation is out of bounds", ErrCorrupt)
		}
	}
	if now.written != s.index.written {
		return s.putIndex(now)
	}
	return nil
}

func (s *Store) readAccount(name string) (*entry, error) {
	e := &entry{}
	if n, err := hex.Decode(e.id[:], []byte(name)); err != nil || n != len(e.id) {
		return nil, fmt.Errorf("%w: %s/%s is not of authd's making", ErrCorrupt, accountsName, name)
	}
	var r record
	defer func() { clear(r.Secret) }()
	var err error
	path := accountsName + "/" + name
	if e.written, err = s.get(path, recordHead{purpose: purposeAccount, id: e.id}, &r); err != nil {
		return nil, err
	}
	if e.Account, err = newAccount(r.Settings, r.Secret); err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrCorrupt, path, err)
	}
	return e, nil
}

// newAccount checks settings and credential and takes the credential over.
func newAccount(set Settings, secret []byte) (*Account, error) {
	if len(set.Workers) == 0 {
		set.Workers = nil // as it comes from the wire and from the disk: the digest knows the two apart
	}
	if err := set.validate(); err != nil {
		return nil, err
	}
	if err := validateSecret(secret, &set.Placement); err != nil {
		return nil, err
	}
	digest, err := set.decided()
	if err != nil {
		return nil, err
	}
	return &Account{set, digest, surrogate.ShapeOf(secret), guarded.New(secret)}, nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// get opens one record into value and returns the record's generation.
func (s *Store) get(name string, h recordHead, value any) (uint64, error) {
	b, err := s.folder.read(name)
	if err != nil {
		if isMissing(err) && h.purpose != purposeCheckpoint && h.purpose != purposeMinted {
			return 0, fmt.Errorf("%w: %s is missing", ErrCorrupt, name)
		}
		return 0, err
	}
	plain, generation, err := s.sealer.open(b, h)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	defer clear(plain)
	if err := json.Unmarshal(plain, value, json.RejectUnknownMembers(true)); err != nil {
		// The error of the decoder can quote what it read.
		return 0, fmt.Errorf("%w: %s opens, but is not of this version's form", ErrCorrupt, name)
	}
	return generation, nil
}

// put seals value and writes it durably.
func (s *Store) put(name string, h recordHead, value any) error {
	plain, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("write %s: it cannot be encoded", name)
	}
	defer clear(plain)
	b, err := s.sealer.seal(h, plain)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return s.folder.write(name, b)
}

// Account returns the account of a name.
func (s *Store) Account(name string) (*Account, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.accounts[name]
	if !ok {
		return nil, false
	}
	return e.Account, true
}

// Accounts returns all accounts by name.
func (s *Store) Accounts() []*Account {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*Account, 0, len(s.accounts))
	for _, e := range s.accounts {
		all = append(all, e.Account)
	}
	slices.SortFunc(all, func(a, b *Account) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Add puts an account into the store, durably, and takes its credential over. Name, times and generation of set are
// the store's to fill in but for the name.
func (s *Store) Add(set Settings, secret []byte, now time.Time) error {
	defer clear(secret)
	s.change.Lock()
	defer s.change.Unlock()
	if s.Locked() {
		return ErrLocked
	}
	if _, exists := s.Account(set.Name); exists {
		return settingRefusal("there is an account of that name", "choose another name, or change that one with --replace")
	}
	if len(s.accounts) >= MaxAccounts {
		return wire.Refuse(wire.CodeTooMany, fmt.Sprintf("there are %d accounts", MaxAccounts), "remove one first")
	}
	e := &entry{}
	if _, err := io.ReadFull(s.random, e.id[:]); err != nil {
		return fmt.Errorf("add account: draw record id: %w", err)
	}
	set.Created = now.Unix()
	return s.keep(e, set, secret, true, now)
}

// Replace changes an account of the same name, durably. An empty secret keeps the credential, which is refused where
// it would then go to another place: whoever may change an address must not thereby have the credential sent there.
func (s *Store) Replace(set Settings, secret []byte, now time.Time) error {
	defer clear(secret)
	s.change.Lock()
	defer s.change.Unlock()
	old, err := s.entry(set.Name)
	if err != nil {
		return err
	}
	fresh := len(secret) > 0
	if !fresh {
		if set.Vendor != old.Vendor || set.Base != old.Base || set.CA != old.CA || set.Placement != old.Placement ||
			!slices.Equal(set.Permit, old.Permit) {
			return credentialRefusal("where or how the credential goes would change, and it was not given again",
				"give the credential with the change")
		}
		secret = old.Secret.AppendTo(nil)
		defer clear(secret)
	}
	set.Created, set.Generation = old.Created, old.Generation
	return s.keep(&entry{id: old.id, written: old.written}, set, secret, fresh, now)
}

// Rename gives an account another name, durably.
func (s *Store) Rename(from, to string, now time.Time) error {
	s.change.Lock()
	defer s.change.Unlock()
	old, err := s.entry(from)
	if err != nil {
		return err
	}
	if from == to {
		return nil
	}
	if _, exists := s.Account(to); exists {
		return settingRefusal("there is an account of the new name", "choose another name")
	}
	set := old.Settings
	set.Name = to
	secret := old.Secret.AppendTo(nil)
	defer clear(secret)
	return s.keep(&entry{id: old.id, written: old.written}, set, secret, false, now)
}

// Remove deletes an account, durably.
func (s *Store) Remove(name string) error {
	s.change.Lock()
	defer s.change.Unlock()
	old, err := s.entry(name)
	if err != nil {
		return err
	}
	if err := s.putIndex(s.index.with(old.id, 0, 0)); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.accounts, name)
	old.Secret.Wipe()
	dropped := s.forgetUnfit()
	s.mu.Unlock()
	if dropped {
		_ = s.saveMinted() // else the next start forgets them: no login has that generation again
	}
	return s.folder.remove(old.path()) // else the next start does
}

// entry returns an account of an open store with where it is kept. Preconditions: s.change is held.
func (s *Store) entry(name string) (*entry, error) {
	if s.Locked() {
		return nil, ErrLocked
	}
	e, ok := s.accounts[name]
	if !ok {
		return nil, wire.Refuse(wire.CodeNotFound, "there is no account of that name", "see `doorward account list`")
	}
	return e, nil
}

// keep seals e with new settings and credential, writes it, and only then shows it. Preconditions: s.change is held;
// secret is a copy, which keep overwrites.
func (s *Store) keep(e *entry, set Settings, secret []byte, login bool, now time.Time) error {
	set.Changed = now.Unix()
	kept := slices.Clone(secret)
	defer clear(kept)
	if login {
		set.Generation = s.index.Last + 1
	}
	account, err := newAccount(set, secret)
	if err != nil {
		return err
	}
	old := s.byID(e.id)
	e.Account, e.written = account, e.written+1
	err = s.put(e.path(), e.head(), record{set, kept})
	if err == nil {
		err = s.putIndex(s.index.with(e.id, e.written, set.Generation))
	}
	if err != nil {
		account.Secret.Wipe()
		if undo := s.undo(e, old); undo != nil {
			return fmt.Errorf("%w: a change was half written (%v) and cannot be undone: %w", ErrCorrupt, err, undo)
		}
		return fmt.Errorf("keep account: %w", err)
	}
	s.mu.Lock()
	if old != nil {
		delete(s.accounts, old.Name)
		old.Secret.Wipe()
	}
	s.accounts[set.Name] = e
	dropped := s.forgetUnfit()
	s.mu.Unlock()
	if dropped {
		_ = s.saveMinted() // else the next start forgets them
	}
	return nil
}

// byID returns the account of a record; nil where it is new. Preconditions: s.change is held.
func (s *Store) byID(id recordID) *entry {
	for _, e := range s.accounts {
		if e.id == id {
			return e
		}
	}
	return nil
}

// undo puts the record of old back into the place of e's, or removes that where there is no old one.
func (s *Store) undo(e, old *entry) error {
	if old == nil {
		err := s.folder.remove(e.path())
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	secret := old.Secret.AppendTo(nil)
	defer clear(secret)
	return s.put(old.path(), old.head(), record{old.Settings, secret})
}

// putIndex writes the index and, once it is durable, makes it the store's. Preconditions: s.change is held.
func (s *Store) putIndex(next index) error {
	if err := s.put(indexName, recordHead{purpose: purposeIndex, generation: next.written}, next); err != nil {
		return err
	}
	s.index = next
	return nil
}

// Checkpoint is sentinel's newest checkpoint and the size of its tree; nil where there is none.
func (s *Store) Checkpoint() ([]byte, int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.checkpoint.Note), s.checkpoint.Size
}

// MaxCheckpoint bounds a checkpoint's note, in bytes.
const MaxCheckpoint = 16 << 10

// KeepCheckpoint keeps a newer checkpoint, durably. One of a smaller tree than the one kept is refused, and so is
// another of the same size: a ledger grows.
func (s *Store) KeepCheckpoint(note []byte, size int64) error {
	s.change.Lock()
	defer s.change.Unlock()
	if s.Locked() {
		return ErrLocked
	}
	have := s.checkpoint
	switch {
	case len(note) == 0 || len(note) > MaxCheckpoint || size < 0:
		return settingRefusal("the checkpoint is empty or too large", "")
	case size == have.Size && string(note) == string(have.Note):
		return nil
	case size < have.Size || size == have.Size && len(have.Note) > 0:
		return settingRefusal(fmt.Sprintf("the checkpoint is of %d entries, one of %d is known", size, have.Size),
			"the ledger is older than its last checkpoint, or was rewritten: see `doorward audit verify`")
	}
	next := checkpoint{slices.Clone(note), size, have.written + 1}
	err := s.put(checkpointName, recordHead{purpose: purposeCheckpoint, generation: next.written}, next)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoint = next
	return nil
}

// Close overwrites every secret and lets the folder go.
func (s *Store) Close() {
	s.change.Lock()
	defer s.change.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	if s.sealer != nil {
		s.sealer.root.Wipe()
		s.sealer = nil
	}
	s.folder.close()
}

func (s *Store) wipe() {
	for _, e := range s.accounts {
		e.Secret.Wipe()
	}
	s.accounts = map[string]*entry{}
}
