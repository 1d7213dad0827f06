// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// opName is what a record's undoing goes by.
type opName string

const (
	opDir     opName = "dir"     // Path made; removed if empty
	opFile    opName = "file"    // Path written
	opState   opName = "state"   // the daemons' own folders come to be
	opMember  opName = "member"  // Name put into Group
	opTree    opName = "tree"    // Path made, with all in it
	opCopy    opName = "copy"    // Path of the home copied into the tree of To
	opMove    opName = "move"    // Path of the home moved into the tree of To
	opLink    opName = "link"    // a link to Path of the home in the tree of To, by which it is found there
	opAside   opName = "aside"   // Path of the home moved where root alone reaches it
	opUnit    opName = "unit"    // user units of Name stopped; Units are those that ran
	opCommand opName = "command" // Path, which started agent Name, renamed to To and replaced
	opEnable  opName = "enable"  // Units enabled
	opStart   opName = "start"   // all of Doorward started
	opAccount opName = "account" // account Name added
	opSites   opName = "sites"   // line To written into the policy of Path; Sum is of the file, where setup made it
)

// group is that of persons who decide.
const group = "doorward"

// steps are what there is to do, in order. Each is done on what those before it have made.
func (s *setup) steps() ([]step, error) {
	c := &s.j.Config
	list := []step{s.dir(s.creds, 0o700)}
	if c.Key == "machine" {
		list = append(list, s.keyStep("store-key", "make the key of the accounts, sealed by this machine"))
	}
	list = append(list, s.keyStep("checkpoint-key", "make the key that signs the record, sealed by this machine"),
		s.stateStep(), s.memberStep(), s.dir(filepath.Join(s.state, "cells"), 0o755), s.treeStep())
	for _, f := range s.j.Found {
		some, err := s.agentSteps(f)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	list = append(list, s.dir(filepath.Join(s.etc, "cells"), 0o755), s.configStep(), s.enableStep(), s.startStep())
	if len(c.Sites) > 0 {
		list = append(list, s.dir(filepath.Dir(s.policy()), 0o755), s.sitesStep())
	}
	if c.Account != nil {
		list = append(list, s.accountStep())
	}
	return list, nil
}

func (s *setup) memberStep() step {
	return step{says: "put " + s.person.name + " into group " + group + ", who decide",
		record: Record{Op: opMember, Name: s.person.name, Group: group},
		there:  func() (bool, error) { return isMember(s.hosts, s.person.name, group), nil },
		do: func(ctx context.Context, _ *Record) error {
			_, err := s.run(ctx, nil, "gpasswd", "--add", s.person.name, group)
			return err
		}}
}

func (s *setup) dir(path string, mode os.FileMode) step {
	return step{says: "make " + path, record: Record{Op: opDir, Path: path}, there: s.isThere(path),
		do: func(context.Context, *Record) error { return os.Mkdir(path, mode) }}
}

// keyStep draws a key that only its unit gets. It is never on the disk but sealed.
func (s *setup) keyStep(name, says string) step {
	path := s.key(name)
	return step{says: says, record: Record{Op: opFile, Path: path}, there: s.isThere(path),
		do: func(ctx context.Context, _ *Record) error {
			key := make([]byte, 32)
			_, _ = rand.Read(key)
			defer clear(key)
			fresh := path + ".new"
			if err := os.RemoveAll(fresh); err != nil {
				return err
			}
			if _, err := s.run(ctx, key, "systemd-creds", "encrypt", "--name="+name, "-", fresh); err != nil {
				return err
			}
			return errors.Join(os.Rename(fresh, path), syncDir(s.creds))
		}}
}

// stateStep notes that the daemons' stores are of this setup's keys: without those nobody can read them.
func (s *setup) stateStep() step {
	return step{says: "keep accounts and record in " + s.state, record: Record{Op: opState},
		there: func() (bool, error) {
			ok, _ := s.done(Record{Op: opState})()
			for _, dir := range s.stores() {
				if _, err := os.Lstat(dir); err == nil {
					ok = true
				}
			}
			return ok, nil
		},
		do: func(context.Context, *Record) error { return nil }}
}

func (s *setup) treeStep() step {
	c := &s.j.Config
	path := s.tree(c.Cell)
	from := "its own but for /usr, which is this machine's"
	if c.Tree == "mmdebstrap" {
		from = "by mmdebstrap"
	}
	return step{says: "make the root tree of cell " + c.Cell + " at " + path + ", " + from,
		record: Record{Op: opTree, Path: path, Name: c.Cell},
		there:  func() (bool, error) { return s.own(Record{Op: opTree, Path: path, Name: c.Cell}) },
		do: func(ctx context.Context, _ *Record) error {
			fresh := path + ".new"
			if err := os.RemoveAll(fresh); err != nil {
				return err
			}
			var err error
			if c.Tree == "mmdebstrap" {
				err = debootstrap(ctx, s.run, fresh, c.Cell, s.person)
			} else {
				_, err = makeTree(fresh, s.hosts, c.Cell, s.person)
			}
			if err != nil {
				return err
			}
			return errors.Join(os.Rename(fresh, path), syncDir(filepath.Dir(path)))
		}}
}

// own says whether a path of a cell is there by setup's own record. One that is there otherwise is the admin's, for a cell
// of which setup knows nothing: its agent would get the person's files, and undoing would remove what was there before.
func (s *setup) own(r Record) (bool, error) {
	there, err := s.isThere(r.Path)()
	if err == nil && there && s.j.find(&r) == nil {
		return false, wire.Refuse(wire.CodeConflict, r.Path+" is there already, and setup has not made it",
			"choose another name with cell = in a configuration, or move it away")
	}
	return there, err
}

// configStep writes the cell's file, and the folders of its tree on which the projects are put.
func (s *setup) configStep() step {
	c := &s.j.Config
	path, text := s.cell(c.Cell), cellFile(c, s.person, s.tree(c.Cell))
	says := "write " + path + "; it sees no project folder"
	if len(c.Projects) > 0 {
		says = "write " + path + "; the cell may read and write " + strings.Join(c.Projects, ", ")
	}
	return step{says: says, record: Record{Op: opFile, Path: path},
		there: func() (bool, error) {
			if there, err := s.own(Record{Op: opFile, Path: path}); err != nil || !there {
				return false, err
			}
			old, err := os.ReadFile(path)
			return bytes.Equal(old, text), err
		},
		do: func(ctx context.Context, _ *Record) error {
			if err := s.still(ctx); err != nil {
				return err
			}
			return errors.Join(mountPoints(s.tree(c.Cell), c.Projects, s.person), writeDurably(path, text, 0o644))
		}}
}

// units are those that the machine is to start by itself.
func (s *setup) units() []string {
	c := &s.j.Config
	list := []string{"doorward.target", "doorward-cell@" + c.Cell + ".service"}
	workers := c.Workers
	if c.Account != nil {
		workers = append(workers[:len(workers):len(workers)], c.Account.Connector)
	}
	slices.Sort(workers)
	for _, w := range slices.Compact(workers) {
		list = append(list, "doorward-worker@"+w+".service")
	}
	return list
}

func (s *setup) enableStep() step {
	units := s.units()
	return step{says: "enable " + strings.Join(units, ", "), record: Record{Op: opEnable, Units: units},
		there: func() (bool, error) {
			r := s.j.find(&Record{Op: opEnable})
			return r != nil && r.Done && slices.Equal(r.Units, units), nil
		},
		do: func(ctx context.Context, r *Record) error {
			for _, u := range units { // what an earlier run has enabled stays in the record
				if !slices.Contains(r.Units, u) {
					r.Units = append(r.Units, u)
				}
			}
			if err := s.j.save(); err != nil {
				return err
			}
			_, err := s.run(ctx, nil, "systemctl", append([]string{"enable"}, units...)...)
			return err
		}}
}

func (s *setup) startStep() step {
	c := &s.j.Config
	return step{says: "start Doorward and cell " + c.Cell, record: Record{Op: opStart, Name: c.Cell},
		there: func() (bool, error) { return false, nil }, // what was started may have been stopped since
		do: func(ctx context.Context, _ *Record) error {
			units := []string{"start", "doorward.target"}
			for _, u := range s.units() {
				if w, ok := strings.CutPrefix(u, "doorward-worker@"); ok {
					w = strings.TrimSuffix(w, ".service")
					units = append(units, "doorward-worker@"+w+".socket", "doorward-cell-worker@"+w+".socket", u)
				}
			}
			if _, err := s.run(ctx, nil, "systemctl", units...); err != nil {
				return err
			}
			if c.Key == "passphrase" {
				if err := s.unlock(); err != nil {
					return err
				}
			}
			// A configuration that changed is a cell's at its next start.
			return s.StartCell(c.Cell)
		}}
}

// unlock gives authd its passphrase, if it waits for one.
func (s *setup) unlock() error {
	_, err := s.Accounts()
	var refused *wire.Error
	if !errors.As(err, &refused) || refused.Code != wire.CodeLocked {
		return err
	}
	fd := -1
	if file := s.j.Config.PassphraseFile; file != "" {
		if fd, err = openSecret(file); err != nil {
			return err
		}
	}
	return s.Unlock(fd)
}

func (s *setup) accountStep() step {
	a := s.j.Config.Account
	says := "add account " + a.Name + " of " + a.Connector
	if a.Base != "" {
		says += " at " + a.Base
	}
	if a.User != "" {
		says += " as " + a.User
	}
	return step{says: says + ", and have its use decided", record: Record{Op: opAccount, Name: a.Name},
		there: s.done(Record{Op: opAccount, Name: a.Name}),
		do: func(context.Context, *Record) error {
			all, err := s.Accounts()
			if err != nil {
				return err
			}
			if slices.ContainsFunc(all, func(x wire.Account) bool { return x.Name == a.Name && x.Vendor == a.Connector }) {
				return s.Decide(a.Name, a.Approve)
			}
			fd := -1
			switch {
			case a.SecretFile != "":
				if fd, err = openSecret(a.SecretFile); err != nil {
					return err
				}
			case a.SecretFD > 0:
				fd = a.SecretFD
			case !s.Terminal:
				return wire.Refuse(wire.CodeUsage, "no terminal to ask for the secret of account "+a.Name+" at",
					"name a file of mode 600 with secret_file, or a descriptor with secret_fd")
			}
			return s.AddAccount(a, fd)
		}}
}
