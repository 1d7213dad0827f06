// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
)

// Bounds of what is kept of custom surrogates. A cell asks for values as often as it likes; what it asks for takes the place of
// its own.
const (
	MaxMinted      = 4096 // values in all
	MaxMintedIssue = 256  // values of one issue
	MaxIssues      = 1024
	maxIssueName   = 64 // bytes
)

// Issue is what custom surrogates are minted under, and what they stand for. All of it must be the same when one is presented.
type Issue struct {
	ID         string      `json:"issue"` // as sentinel names it
	Cell       string      `json:"cell"`
	Account    string      `json:"account"`
	Generation int64       `json:"generation"` // of the account's login
	Digest     wire.Digest `json:"digest"`     // of the account as it was decided
}

// issued is an issue with what is kept of its values: no value itself.
type issued struct {
	Issue
	Values []value `json:"values"` // oldest first
}

// value is one surrogate.
type value struct {
	SHA256 surrogate.Digest `json:"sha256"`
	Until  int64            `json:"until,omitzero"` // seconds; 0: as long as the issue
}

func (v *value) live(now time.Time) bool { return v.Until == 0 || now.Unix() < v.Until }

// minted is the plaintext of the record of surrogates.
type minted struct {
	Issues []*issued `json:"issues"`
}

// validate reports the first thing about an issue that cannot be stored.
func (i *Issue) validate() error {
	switch {
	case len(i.ID) > maxIssueName || !isToken(i.ID):
		return settingRefusal("the issue's name is not of 1 to 64 of a token's characters", "")
	case !isName(i.Cell, false) || !isName(i.Account, true):
		return settingRefusal("the issue names no cell or no account", "")
	}
	return nil
}

// check holds a record that was read to its bounds.
func (m *minted) check() error {
	seen, n := map[string]bool{}, 0
	for _, i := range m.Issues {
		if i == nil || i.validate() != nil || seen[i.ID] || len(i.Values) == 0 || len(i.Values) > MaxMintedIssue {
			return fmt.Errorf("%w: an issue of %s is out of bounds", ErrCorrupt, mintedName)
		}
		seen[i.ID] = true
		n += len(i.Values)
	}
	if n > MaxMinted || len(m.Issues) > MaxIssues {
		return fmt.Errorf("%w: %s holds too much", ErrCorrupt, mintedName)
	}
	return nil
}

// keepOnly forgets the values that keep does not want, and the issues that then have none. It says whether there were any.
func (m *minted) keepOnly(keep func(*issued, *value) bool) bool {
	dropped := false
	for _, i := range m.Issues {
		n := len(i.Values)
		i.Values = slices.DeleteFunc(i.Values, func(v value) bool { return !keep(i, &v) })
		dropped = dropped || len(i.Values) != n
	}
	m.Issues = slices.DeleteFunc(m.Issues, func(i *issued) bool { return len(i.Values) == 0 })
	return dropped
}

// add puts a value in and makes room for it. What is full loses its oldest; where all is full, the issue that has most does, so
// that who asks without end takes the place of nobody else.
func (m *minted) add(is Issue, v value, now time.Time) error {
	if err := is.validate(); err != nil {
		return err
	}
	m.keepOnly(func(_ *issued, v *value) bool { return v.live(now) })
	at := slices.IndexFunc(m.Issues, func(i *issued) bool { return i.ID == is.ID })
	switch {
	case at < 0 && len(m.Issues) >= MaxIssues:
		return wire.Refuse(wire.CodeTooMany, fmt.Sprintf("there are %d issues of surrogates", MaxIssues), "revoke some first")
	case at < 0:
		at = len(m.Issues)
		m.Issues = append(m.Issues, &issued{Issue: is})
	case m.Issues[at].Issue != is:
		return settingRefusal("there are surrogates of that issue for another cell or account", "revoke it first")
	}
	into := m.Issues[at]
	n, most := 0, into
	for _, i := range m.Issues {
		n += len(i.Values)
		if len(i.Values) > len(most.Values) {
			most = i
		}
	}
	switch {
	case len(into.Values) >= MaxMintedIssue:
		into.Values = into.Values[1:]
	case n >= MaxMinted: // so that one has several
		most.Values = most.Values[1:]
	}
	into.Values = append(into.Values, v)
	return nil
}

// Mint keeps the digest of a new surrogate until a time in seconds, 0 being as long as its issue, and forgets those that are over.
// It is there at once, so that what ends the issue from now on ends it too; but nobody may be given the surrogate before save has
// returned without an error, which it does once the digest is durable.
func (s *Store) Mint(is Issue, digest surrogate.Digest, until int64, now time.Time) (save func() error, err error) {
	v := value{digest, until}
	if !v.live(now) {
		return nil, settingRefusal("the surrogate would be over already", "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealer == nil {
		return nil, ErrLocked
	}
	e := s.accounts[is.Account]
	if e == nil || !e.issues(&is) {
		return nil, wire.Refuse(wire.CodeNotConnected, "the account is not the one that was decided on",
			"have a person decide on it: see `doorward pending`")
	}
	if err := s.minted.add(is, v, now); err != nil {
		return nil, err
	}
	return func() error {
		err := s.SaveMinted()
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.minted.keepOnly(func(_ *issued, v *value) bool { return v.SHA256 != digest })
		}
		return err
	}, nil
}

// issues says whether an issue's surrogates stand for this account as it is.
func (a *Account) issues(is *Issue) bool {
	return a.Vendor == Custom && a.Name == is.Account && a.Generation == is.Generation && a.Digest == is.Digest
}

// Minted says whether a surrogate with this digest was minted under the very issue, and is not over. The time that it takes tells
// nothing of the digests.
func (s *Store) Minted(is *Issue, digest surrogate.Digest, now time.Time) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := false
	for _, i := range s.minted.Issues {
		if i.Issue != *is {
			continue
		}
		for j := range i.Values {
			same := i.Values[j].SHA256.Equal(digest)
			found = found || same && i.Values[j].live(now)
		}
	}
	return found
}

// EndIssue forgets an issue's surrogates at once, and says whether there were any; SaveMinted makes that durable.
func (s *Store) EndIssue(id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealer == nil {
		return false, ErrLocked
	}
	if !slices.ContainsFunc(s.minted.Issues, func(i *issued) bool { return i.ID == id }) { // each call that ends is asked about
		return false, nil
	}
	return s.minted.keepOnly(func(i *issued, _ *value) bool { return i.ID != id }), nil
}

// SaveMinted makes durable what is kept of surrogates.
func (s *Store) SaveMinted() error {
	s.change.Lock()
	defer s.change.Unlock()
	return s.saveMinted()
}

// saveMinted is SaveMinted. Preconditions: s.change is held. After an error in the index the file may be ahead of it by one, with
// digests of surrogates that nobody has, or without such as are over: a start then takes it as it is.
func (s *Store) saveMinted() error {
	if s.Locked() {
		return ErrLocked
	}
	s.mu.RLock()
	now := minted{make([]*issued, len(s.minted.Issues))}
	for i, is := range s.minted.Issues {
		now.Issues[i] = &issued{is.Issue, slices.Clone(is.Values)}
	}
	s.mu.RUnlock()
	next := s.index.copy()
	next.Minted++
	if err := s.put(mintedName, recordHead{purpose: purposeMinted, generation: next.Minted}, now); err != nil {
		return err
	}
	return s.putIndex(next)
}

// forgetUnfit forgets the surrogates of accounts that are not what they were, or not there. Preconditions: s.mu is held.
func (s *Store) forgetUnfit() bool {
	return s.minted.keepOnly(func(i *issued, _ *value) bool {
		e := s.accounts[i.Account]
		return e != nil && e.issues(&i.Issue)
	})
}

// loadMinted reads what is kept of surrogates, and holds it to the index and to the accounts, which are read.
func (s *Store) loadMinted() error {
	var m minted
	written, err := s.get(mintedName, recordHead{purpose: purposeMinted}, &m)
	switch {
	case isMissing(err) && s.index.Minted == 0:
		return nil
	case isMissing(err):
		return fmt.Errorf("%w: %s is missing", ErrCorrupt, mintedName)
	case err != nil:
		return err
	case written != s.index.Minted && written != s.index.Minted+1:
		return fmt.Errorf("%w: %s is of another time than the index: an older file was put back", ErrCorrupt, mintedName)
	}
	if err := m.check(); err != nil {
		return err
	}
	s.minted = m
	s.forgetUnfit() // of an account that was removed just before a crash
	if written == s.index.Minted {
		return nil
	}
	next := s.index.copy()
	next.Minted = written
	return s.putIndex(next)
}
