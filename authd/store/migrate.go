// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A step leads what a record holds, its JSON, from one version of the format to the next. The result may be plain itself.
type step func(p purpose, plain []byte) ([]byte, error)

// steps lead from version 1 on: steps[i] from version i+1 to i+2. One that was released is never changed.
// TestAStoreIsMigratedWholeOrNot has some of its own.
var steps = []step{second}

// second leads to version 2, which has more kinds of records and accounts; those of version 1 are as they were. A program of
// version 1 does not know that an account can be for no worker.
func second(_ purpose, plain []byte) ([]byte, error) { return plain, nil }

// newest is the version that this program writes, and the newest it knows.
func newest() int { return 1 + len(steps) }

func newer(version int) error {
	return fmt.Errorf("%w: it has version %d, this program knows %d; install the newer program again, or restore a copy of the "+
		"folder that this one wrote", ErrNewer, version, newest())
}

// nextSuffix is behind the name of a folder that is to take a store's place. Before the two have changed places it is
// unfinished, and afterwards it is the old one; so whenever one is found it is deleted.
const nextSuffix = ".next"

// killedAt is where a test ends the process; its argument counts what has been done.
var killedAt = func(int) {}

// migrate makes the store anew in its newest version and loads that. It is written whole beside the old one, opened as any
// store is, and then the two folders change places in one step of the file system: a crash leaves the old one or the new.
func (s *Store) migrate() error {
	dir, next := s.folder.path, s.folder.path+nextSuffix
	if err := discard(next); err != nil {
		return fmt.Errorf("migrate it: %w", err)
	}
	to, err := s.writeNext(next)
	if err != nil {
		return fmt.Errorf("migrate it from version %d: %w; nothing has changed", s.header.Version, err)
	}
	killedAt(0)
	if err := unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE); err != nil {
		to.folder.close()
		to.wipe()
		return fmt.Errorf("migrate it: put the new one in its place: %w; nothing has changed", err)
	}
	killedAt(-1)
	old := s.folder
	to.folder.path = dir
	s.folder, s.header, s.sealer, s.accounts = to.folder, to.header, to.sealer, to.accounts
	s.index, s.checkpoint, s.minted = to.index, to.checkpoint, to.minted
	old.close()
	if err := syncFolder(filepath.Dir(dir)); err != nil { // the old one stays too, until it is known which of them does
		return fmt.Errorf("it is migrated, and whether that outlives a power cut is not certain: %w; restart doorward-authd.service", err)
	}
	_ = discard(next) // it is sealed like the new one, and the next start tries again
	return nil
}

// writeNext writes the store in its newest version into a folder of its own, and loads it from there.
func (s *Store) writeNext(dir string) (*Store, error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	h := *s.header
	h.Version = newest()
	to := &Store{folder: f, random: s.random, header: &h, accounts: map[string]*entry{}}
	encoded, salt, err := h.encode()
	if err == nil {
		to.sealer = &sealer{root: s.sealer.root, salt: salt, random: s.random, version: uint16(h.Version)}
		err = s.reseal(to.sealer, f)
	}
	if err == nil {
		err = f.write(headerName, encoded)
	}
	if err == nil {
		err = to.load()
	}
	if err != nil {
		f.close()
		to.wipe()
		return nil, err
	}
	return to, nil
}

// reseal opens each record, leads it on, and seals it as the newest version, its generation kept.
func (s *Store) reseal(to *sealer, f *folder) error {
	names := []string{checkName, indexName, checkpointName, mintedName} // the check first: it tells a wrong key
	heads := []recordHead{{purpose: purposeCheck}, {purpose: purposeIndex}, {purpose: purposeCheckpoint}, {purpose: purposeMinted}}
	accounts, err := s.folder.names(accountsName)
	if err != nil {
		return err
	}
	for _, name := range accounts {
		h := recordHead{purpose: purposeAccount}
		if n, err := hex.Decode(h.id[:], []byte(name)); err != nil || n != len(h.id) {
			return fmt.Errorf("%w: %s/%s is not of authd's making", ErrCorrupt, accountsName, name)
		}
		names, heads = append(names, accountsName+"/"+name), append(heads, h)
	}
	for i, name := range names {
		b, err := s.folder.read(name)
		if errors.Is(err, fs.ErrNotExist) && (name == checkpointName || name == mintedName) { // load holds it to the index
			continue
		}
		if err == nil {
			b, err = s.resealed(to, heads[i], b)
		}
		if err == nil {
			err = f.write(name, b)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		killedAt(i + 1)
	}
	return nil
}

func (s *Store) resealed(to *sealer, h recordHead, b []byte) ([]byte, error) {
	plain, generation, err := s.sealer.open(b, h)
	if errors.Is(err, ErrCorrupt) && h.purpose == purposeCheck {
		return nil, fmt.Errorf("%w: give the key it was made with, or restore header.json", ErrWrongKey)
	}
	if err != nil {
		return nil, err
	}
	defer func() { clear(plain) }()
	for _, step := range steps[s.header.Version-1:] {
		led, err := step(h.purpose, plain)
		if err != nil {
			return nil, err
		}
		if len(led) == 0 || len(plain) == 0 || &led[0] != &plain[0] {
			clear(plain)
		}
		plain = led
	}
	h.generation = generation
	return to.seal(h, plain)
}

// discard deletes a folder that is no store, or none any more.
func discard(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear %s: %w", dir, err)
	}
	return nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
