// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// UndoOptions are of one undoing.
type UndoOptions struct {
	Yes bool
	// Stopped leaves the agents without their start, as uninstall is asked to; their settings go back all the same.
	Stopped bool
	// Purge takes also what uninstall keeps: accounts, keys, record and the cells' trees.
	Purge bool
}

// undoing is one run of it.
type undoing struct {
	*setup
	UndoOptions
	keepHomes bool // what agents made in their homes is put beside, not removed
	failed    bool
}

// Undo takes back all that setup has done, the last first.
func Undo(ctx context.Context, c Calls, o UndoOptions) error {
	s, again, err := start(c, Options{})
	if err != nil {
		return err
	}
	return s.undo(ctx, again, o)
}

func (s *setup) undo(ctx context.Context, again bool, o UndoOptions) error {
	if !again {
		s.Say("nothing is set up by doorward setup")
		return nil
	}
	o.Purge = true
	u := &undoing{setup: s, UndoOptions: o, keepHomes: true}
	ok, err := u.sure("All that `doorward setup` did is taken back, and accounts and record that are kept here go with it.")
	if err != nil || !ok {
		return err
	}
	u.sayAccounts()
	u.saySettings()
	if err := u.all(ctx); err != nil {
		return err
	}
	s.Say("it is undone")
	return nil
}

// Uninstall takes Doorward out of use: cells end, units stop and start no more, agents get back what was theirs. It keeps
// the data unless it is to purge, and leaves the package, whose program this is, to apt.
func Uninstall(ctx context.Context, c Calls, o UndoOptions) error {
	s, again, err := start(c, Options{})
	if err != nil {
		return err
	}
	return s.uninstall(ctx, again, o)
}

func (s *setup) uninstall(ctx context.Context, again bool, o UndoOptions) error {
	u := &undoing{setup: s, UndoOptions: o}
	what := "Cells end, and Doorward stops. Accounts, record and the cells' trees are kept."
	if o.Purge {
		what = "Cells end, Doorward stops, and accounts, record and the cells' trees are removed with all in them."
	}
	if ok, err := u.sure(what); err != nil || !ok {
		return err
	}
	u.sayAccounts()
	if again {
		u.saySettings()
		if err := u.all(ctx); err != nil {
			return err
		}
	}
	if err := u.disableAll(ctx); err != nil { // also what somebody enabled by hand
		return err
	}
	if o.Purge {
		if err := u.purge(); err != nil {
			return err
		}
		s.Say("Doorward is out of use. The package goes with: apt purge doorward")
		return nil
	}
	s.Say("Doorward is out of use; its data is in %s and %s. The package goes with: apt remove doorward", s.state, s.etc)
	return nil
}

func (u *undoing) sure(what string) (bool, error) {
	u.Say("%s", what)
	if u.Yes {
		return true, nil
	}
	if !u.Terminal {
		return false, wire.Refuse(wire.CodeUsage, "no terminal to ask at", "run it at a terminal, or with --yes")
	}
	ok, err := u.setup.Yes("Do this?")
	if err == nil && !ok {
		u.Note("nothing was done")
	}
	return ok, err
}

// sayAccounts says which credentials still work at their vendors, whatever is removed here.
func (u *undoing) sayAccounts() {
	all, err := u.Accounts()
	if err != nil {
		if _, there := os.Stat(u.stores()[0]); there == nil {
			u.Note("which accounts are kept here is not known now (" + err.Error() + "); credentials work at their vendors " +
				"until you revoke them there")
		}
		return
	}
	for _, line := range accountLines(all) {
		u.Note(line + ": its credential still works there until you revoke it there")
	}
}

// saySettings warns of what comes back from an agent that may have been talked into something.
func (u *undoing) saySettings() {
	for _, f := range u.j.Found {
		if len(f.Settings) > 0 {
			u.Note(f.Title + "'s settings come back as they are in the cell, with every hook and server that the agent may have " +
				"put there: look through them before you start it outside")
		}
	}
}

// keeps says whether a record is of what uninstall keeps.
func (u *undoing) keeps(r *Record) bool {
	if u.Purge {
		return false
	}
	switch r.Op {
	case opDir, opFile, opState, opTree, opCopy, opAccount:
		return true
	}
	return false
}

// all undoes every record, the last first. What does not work stays on record, and does not keep the others from being
// undone, unless they are undone in vain: nothing moves out of a tree that is in use.
func (u *undoing) all(ctx context.Context) error {
	for i := len(u.j.Records) - 1; i >= 0; i-- {
		r := u.j.Records[i]
		if u.keeps(r) {
			continue
		}
		if err := u.one(ctx, r); err != nil {
			u.failed = true
			u.Note(string(r.Op) + " " + r.Path + r.Name + ": " + err.Error())
			if r.Op == opStart || r.Op == opMove || r.Op == opAside {
				return errStopped
			}
			continue
		}
		u.j.Records = slices.Delete(u.j.Records, i, i+1)
		if err := u.j.save(); err != nil {
			return err
		}
	}
	if u.failed {
		return errStopped
	}
	if len(u.j.Records) == 0 {
		return u.forget()
	}
	return nil
}

// forget removes the journal, and the folder of it if it was all there was.
func (u *undoing) forget() error {
	if err := os.Remove(u.journal()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(u.aside()); err != nil { // folders only, by now, and what was to stay stopped
		return err
	}
	_ = os.Remove(u.state) // others may have files in it
	return nil
}

// one undoes one record. It may not have happened, or only in part, or be undone already.
func (u *undoing) one(ctx context.Context, r *Record) error {
	switch r.Op {
	case opDir:
		err := os.Remove(r.Path)
		if _, there := os.Stat(r.Path); there == nil { // others have files in it by now
			return nil
		}
		return gone(err)
	case opFile:
		return errors.Join(gone(os.Remove(r.Path)), os.RemoveAll(r.Path+".new"))
	case opState:
		for _, dir := range u.stores() {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		return nil
	case opMember:
		if !isMember(u.hosts, r.Name, r.Group) {
			return nil
		}
		_, err := u.run(ctx, nil, "gpasswd", "--delete", r.Name, r.Group)
		return err
	case opTree:
		return u.undoTree(r)
	case opCopy:
		return u.undoCopy(r)
	case opMove:
		return u.undoMove(r)
	case opAside:
		return u.undoAside(r)
	case opUnit:
		return u.undoUnit(ctx, r)
	case opCommand:
		return u.undoCommand(r)
	case opEnable:
		_, err := u.run(ctx, nil, "systemctl", append([]string{"disable"}, r.Units...)...)
		return err
	case opStart:
		return u.stop(ctx)
	case opAccount:
		return u.undoAccount(r)
	}
	return fmt.Errorf("what %q is, this doorward does not know", r.Op)
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// stop stops cells, then sockets, then all else, as the package's removal does: a daemon that still dials another would
// have systemd start that one again, which cancels the stop of its sockets.
func (u *undoing) stop(ctx context.Context) error {
	for _, what := range [][]string{{"stop", "doorward-cell@*.service"}, {"stop", "doorward-*.socket"}, {"stop", "doorward.target"},
		{"stop", "doorward-*.service"}, {"stop", "doorward*.slice"}} {
		if _, err := u.run(ctx, nil, "systemctl", what...); err != nil {
			return err
		}
	}
	_, _ = u.run(ctx, nil, "systemctl", "revert", "doorward-cell@"+u.j.Config.Cell+".service") // its limits of this boot
	_, _ = u.run(ctx, nil, "systemctl", "reset-failed", "doorward*")                           // fails where there is none
	return nil
}

// disableAll has no unit of Doorward start by itself, whoever enabled it.
func (u *undoing) disableAll(ctx context.Context) error {
	if err := u.stop(ctx); err != nil {
		return err
	}
	said, err := u.run(ctx, nil, "systemctl", "list-unit-files", "--plain", "--no-legend", "--state=enabled", "doorward*")
	if err != nil && said != "" {
		return err
	}
	var units []string
	for line := range strings.Lines(said) {
		if f := strings.Fields(line); len(f) > 0 {
			units = append(units, f[0])
		}
	}
	if len(units) == 0 {
		return nil
	}
	_, err = u.run(ctx, nil, "systemctl", append([]string{"disable"}, units...)...)
	return err
}

// undoAccount removes an account. Where authd cannot be asked its store goes a few records on, with its key.
func (u *undoing) undoAccount(r *Record) error {
	if err := u.RemoveAccount(r.Name); err != nil {
		var refused *wire.Error
		if errors.As(err, &refused) && (refused.Code == wire.CodeNotFound || u.j.find(&Record{Op: opState}) != nil) {
			return nil
		}
		return err
	}
	return nil
}

// undoTree removes a cell's tree. What the agent made in its home is the person's work, so it is put beside first.
func (u *undoing) undoTree(r *Record) error {
	if err := os.RemoveAll(r.Path + ".new"); err != nil {
		return err
	}
	tree, err := os.OpenRoot(r.Path)
	if err != nil {
		return gone(err)
	}
	defer tree.Close()
	if u.keepHomes && u.used(tree, u.inTree(".")) {
		kept := filepath.Join(u.person.home, "doorward-"+r.Name+"-"+time.Now().UTC().Format("20060102-150405"))
		home, err := os.OpenRoot(u.person.home)
		if err != nil {
			return err
		}
		defer home.Close()
		rel, _ := below(u.person.home, kept)
		own := func(string) owner { return u.person.owner() }
		if _, err := copyAll(tree, u.inTree("."), home, rel, own); err != nil {
			return err
		}
		u.Note("what was in the cell's home is kept in " + kept)
	}
	return os.RemoveAll(r.Path)
}

// used says whether a cell's home has files that setup has not put there: what it did is undone by now.
func (u *undoing) used(tree *os.Root, rel string) bool {
	names, err := list(tree, rel)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		p := filepath.Join(rel, name)
		st, err := tree.Lstat(p)
		return err == nil && (!st.IsDir() || u.used(tree, p))
	})
}

// undoCopy takes an agent's program out of a tree, and the link by which it was found.
func (u *undoing) undoCopy(r *Record) error {
	tree, err := os.OpenRoot(u.tree(r.To))
	if err != nil {
		return gone(err)
	}
	defer tree.Close()
	link := u.inTree(".local/bin/" + filepath.Base(r.Path))
	if to, err := tree.Readlink(link); err == nil && to == filepath.Join(u.person.home, r.Path) {
		if err := tree.Remove(link); err != nil {
			return err
		}
	}
	return errors.Join(tree.RemoveAll(u.inTree(r.Path)), tree.RemoveAll(u.inTree(r.Path)+coming))
}

func (u *undoing) undoMove(r *Record) error {
	home, tree, err := u.homes()
	if err != nil {
		return err
	}
	defer home.Close()
	defer tree.Close()
	own := func(rel string) owner {
		if o, ok := r.Owners[rel]; ok {
			return o
		}
		return u.person.owner()
	}
	aside, err := moveBack(home, r.Path, tree, u.inTree(r.Path), u.person.owner(), own)
	u.sayAside(r, aside)
	return err
}

func (u *undoing) sayAside(r *Record, aside string) {
	if aside != "" {
		u.Note("~/" + r.Path + " was made anew since; it is kept as ~/" + aside)
	}
}

func (u *undoing) undoAside(r *Record) error {
	// What starts a service stays away where the agent is to stay stopped; its file is only a file.
	if u.Stopped && strings.Contains(r.Path, ".wants/") {
		return nil
	}
	home, kept, err := u.homeAnd(u.aside())
	if err != nil {
		return gone(err)
	}
	defer home.Close()
	defer kept.Close()
	me := u.person.owner()
	aside, err := moveBack(home, r.Path, kept, r.Path, me, func(string) owner { return me })
	u.sayAside(r, aside)
	return err
}

func (u *undoing) undoUnit(ctx context.Context, r *Record) error {
	if len(r.Units) == 0 {
		return nil
	}
	if u.Stopped {
		u.Note("not started again: " + strings.Join(r.Units, ", "))
		return nil
	}
	if _, err := u.userctl(ctx, "daemon-reload"); err != nil {
		u.Note("start it yourself: systemctl --user daemon-reload; systemctl --user start " + strings.Join(r.Units, " "))
		return nil
	}
	_, err := u.userctl(ctx, append([]string{"start"}, r.Units...)...)
	return err
}

func (u *undoing) undoCommand(r *Record) error {
	in, rel, own, err := u.place(r.Path)
	if err != nil {
		return gone(err)
	}
	defer in.Close()
	if err := in.RemoveAll(rel + coming); err != nil {
		return err
	}
	switch {
	case !exists(in, rel+before): // never replaced, or back already, or its installer has removed it
		if isWrapper(r.Path) && !u.Stopped {
			return in.Remove(rel)
		}
		return nil
	case exists(in, rel) && !isWrapper(r.Path): // its installer has put a new one there
		u.Note(r.Path + " is a new one; the former is removed")
		return in.Remove(rel + before)
	case u.Stopped:
		return put(in, rel, stopped(r.Name, r.Path), own)
	}
	return in.Rename(rel+before, rel)
}

// purge removes what the daemons and the admin have made.
func (u *undoing) purge() error {
	for _, path := range []string{u.state, filepath.Join(u.etc, "cells"), u.key("store-key"), u.key("checkpoint-key")} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
