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

	"golang.org/x/sys/unix"

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
	left      bool // something of a tree could not be moved back, so the tree stays
	failed    []string
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
	if err := errors.Join(u.accounts(), u.stop(ctx)); err != nil {
		return err
	}
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
	}
	if err := errors.Join(u.accounts(), u.stop(ctx)); err != nil {
		return err
	}
	if err := u.disableAll(ctx); err != nil { // also what somebody enabled by hand
		return err
	}
	var err error
	if again {
		err = u.all(ctx)
	}
	if o.Purge {
		err = errors.Join(err, u.purge())
	}
	if err != nil {
		return err
	}
	if o.Purge {
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

// accountLines are accounts for a person to see.
func accountLines(all []wire.Account) []string {
	var out []string
	for _, a := range all {
		out = append(out, fmt.Sprintf("account %s of %s at %s", a.Name, a.Vendor, a.Base.Host))
	}
	slices.Sort(out)
	return out
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
	case opDir, opFile, opState, opTree, opCopy, opAccount, opSites:
		return true
	}
	return false
}

// all undoes every record, the last first. What the agent has no hand in goes before what lies in its tree: whatever is
// there, the person is no member any more, keys and stores are gone. What does not work stays on record, and keeps nothing
// else from being undone.
func (u *undoing) all(ctx context.Context) error {
	for _, now := range []bool{false, true} {
		for i := len(u.j.Records) - 1; i >= 0; i-- {
			r := u.j.Records[i]
			if u.keeps(r) || last(r.Op) != now {
				continue
			}
			if err := u.one(ctx, r); errors.Is(err, errKept) {
				continue
			} else if err != nil {
				u.fail(r, err)
				continue
			}
			if u.Stopped && u.back(r) {
				r.Done = false
			} else {
				u.j.Records = slices.Delete(u.j.Records, i, i+1)
			}
			if err := u.j.save(); err != nil {
				return err
			}
		}
	}
	if len(u.failed) > 0 {
		return wire.Refuse(wire.CodeUnavailable, "all is undone but this: "+strings.Join(u.failed, "; "),
			"what is said above; then the same command again")
	}
	if len(u.j.Records) == 0 {
		return u.forget()
	}
	return nil
}

// last says whether what is undone lies in a tree or waits for what does: a service starts with its settings in place.
func last(op opName) bool {
	switch op {
	case opDir, opTree, opCopy, opLink, opMove, opAside, opUnit, opCommand:
		return true
	}
	return false
}

// back says whether a record is of what an agent that is left stopped gets back later.
func (u *undoing) back(r *Record) bool {
	switch r.Op {
	case opCommand, opUnit:
		return true
	case opAside:
		return isStart(r.Path)
	case opDir:
		return r.Path == u.aside()
	}
	return false
}

// fail says what was not undone, and what to do about it.
func (u *undoing) fail(r *Record, err error) {
	what := string(r.Op)
	for _, s := range []string{r.Path, r.Name} {
		if s != "" {
			what += " " + s
		}
	}
	u.failed = append(u.failed, what)
	u.Note(what + ": " + err.Error())
	var refused *wire.Error
	if errors.As(err, &refused) && refused.Next != "" {
		u.Note("  next: " + refused.Next)
	}
	if r.Op == opMove {
		u.left = true
		tree := u.tree(r.To)
		u.Note("  it is left in " + tree + "; take from there what you want, then: rm -rf --one-file-system " + tree)
	}
}

// forget removes the journal, and the folder of it if it was all there was.
func (u *undoing) forget() error {
	if err := errors.Join(gone(os.Remove(halfWritten(u.journal()))), gone(os.Remove(u.journal()))); err != nil {
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
	case opSites:
		return errors.Join(u.unsite(r), gone(os.Remove(halfWritten(r.Path))))
	case opFile:
		return errors.Join(gone(os.Remove(r.Path)), gone(os.Remove(halfWritten(r.Path))), os.RemoveAll(r.Path+".new"))
	case opState:
		for _, dir := range u.kept() {
			if err := u.remove(dir); err != nil {
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
	case opLink:
		return u.undoLink(r)
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
	case opStart: // all was stopped first
		return nil
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

// stop stops cells, then timers and sockets, then all else, as the package's removal does: a timer that comes due, or a daemon that
// still dials another, would have systemd start that one again, which cancels the stop of its sockets. It stops them whatever the
// journal says, and goes by the kernel's word: with a cell that lives nothing of a tree is touched. The walls go last, when nothing
// is left for them to hold.
func (u *undoing) stop(ctx context.Context) error {
	for _, what := range [][]string{{"stop", "doorward-cell@*.service"}, {"stop", "doorward-*.timer"}, {"stop", "doorward-*.socket"},
		{"stop", "doorward.target"}, {"stop", "doorward-*.service"}, {"stop", "doorward*.slice"}} {
		if _, err := u.run(ctx, nil, "systemctl", what...); err != nil {
			return err
		}
	}
	_, _ = u.run(ctx, nil, "systemctl", "revert", "doorward-cell@"+u.j.Config.Cell+".service") // its limits of this boot
	_, _ = u.run(ctx, nil, "systemctl", "reset-failed", "doorward*")                           // fails where there is none
	if err := u.killed(); err != nil {
		return err
	}
	return u.unwall()
}

// unwall lets go of the walls, which the kernel then forgets.
func (u *undoing) unwall() error {
	for _, at := range u.walls {
		var err error
		for err == nil { // once is not enough where two runs mounted one over the other
			err = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // nothing is mounted there any more
			err = nil
		}
		if err == nil && filepath.Base(filepath.Dir(at)) == "netns" { // a file that was made to mount a network on
			err = gone(os.Remove(at))
		}
		if err != nil {
			return wire.Refuse(wire.CodeUnavailable, fmt.Sprintf("let go of %s: %v", at, err),
				"umount -l "+at+"; then the same command again")
		}
	}
	return nil
}

// disableAll has no unit of Doorward start by itself, whoever enabled it.
func (u *undoing) disableAll(ctx context.Context) error {
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

// accounts removes what setup has added of them, as long as authd runs. It keeps nothing else from being undone: where the
// store is of this setup it goes as a whole, and else all tries once more and says what is left.
func (u *undoing) accounts() error {
	u.j.Records = slices.DeleteFunc(u.j.Records, func(r *Record) bool {
		return r.Op == opAccount && !u.keeps(r) && u.undoAccount(r) == nil
	})
	if len(u.j.Records) == 0 {
		return nil
	}
	return u.j.save()
}

// undoAccount removes an account. Where authd cannot be asked its store goes a few records on, with its key.
func (u *undoing) undoAccount(r *Record) error {
	err := u.RemoveAccount(r.Name)
	var refused *wire.Error
	if err == nil || errors.As(err, &refused) && refused.Code == wire.CodeNotFound || u.j.find(&Record{Op: opState}) != nil {
		return nil
	}
	if _, err := os.Lstat(u.stores()[0]); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return wire.Refuse(wire.CodeUnavailable, "account "+r.Name+" is there still: "+err.Error(),
		"systemctl start doorward.target; doorward account remove "+r.Name+"; then the same command again")
}

// undoTree removes a cell's tree. What the agent made in its home is the person's work, so it is put beside first. What
// cannot be looked at counts as such work: then the tree stays.
func (u *undoing) undoTree(r *Record) error {
	if u.left {
		return wire.Refuse(wire.CodeUnavailable, "it may have what was not moved back, and is kept",
			"take from "+r.Path+" what you want, then: rm -rf --one-file-system "+r.Path)
	}
	if err := errors.Join(u.ended(), u.remove(r.Path+".new")); err != nil {
		return err
	}
	tree, err := os.OpenRoot(r.Path)
	if err != nil {
		return gone(err)
	}
	defer tree.Close()
	if u.keepHomes {
		if err := u.keepHome(tree, r.Name); err != nil {
			return wire.Refuse(wire.CodeUnavailable, "the cell's home cannot be kept, so the tree is: "+err.Error(),
				"take from "+r.Path+" what you want, then: rm -rf --one-file-system "+r.Path)
		}
	}
	return u.remove(r.Path)
}

// keepHome copies what is in the home of a tree into the person's.
func (u *undoing) keepHome(tree *os.Root, cell string) error {
	d, name, err := walk(tree, u.inTree("."))
	if err != nil {
		return err
	}
	defer d.Close()
	// A home that is a link, or not there, was moved elsewhere in the tree, with the work in it.
	if st, err := d.lstat(name); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.Join(d.wrong("list", name, errors.New("no folder")), err)
	}
	if used, err := isUsed(d, name); err != nil || !used {
		return err
	}
	home, err := os.OpenRoot(u.person.home)
	if err != nil {
		return err
	}
	defer home.Close()
	kept := "doorward-" + cell + "-" + time.Now().UTC().Format("20060102-150405")
	if _, err := copyAll(tree, u.inTree("."), home, kept, u.person.owner(), anyone); err != nil {
		return err
	}
	u.Note("what was in the cell's home is kept in " + filepath.Join(u.person.home, kept))
	return nil
}

// isUsed says whether a folder has files in it or below it: what setup has put there is gone by now.
func isUsed(d folder, name string) (bool, error) {
	sub, err := d.sub(name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer sub.Close()
	names, err := sub.Readdirnames(-1)
	for _, n := range names {
		if used, err := isUsed(sub, n); err != nil || used {
			return used, err
		}
	}
	return false, err
}

// inTreeOf calls do with the tree of a record's cell, if it is there, and nobody in it, and nothing mounted on what is to be
// removed from it.
func (u *undoing) inTreeOf(r *Record, do func(tree *os.Root) error) error {
	if err := errors.Join(u.ended(), u.unmounted(filepath.Join(u.tree(r.To), u.inTree(r.Path)))); err != nil {
		return err
	}
	tree, err := os.OpenRoot(u.tree(r.To))
	if err != nil {
		return gone(err)
	}
	defer tree.Close()
	return do(tree)
}

// undoCopy takes an agent's program out of a tree, and the link by which it was found.
func (u *undoing) undoCopy(r *Record) error {
	return u.inTreeOf(r, func(tree *os.Root) error {
		return errors.Join(u.unlink(tree, r.Path), removeAll(tree, u.inTree(r.Path)), removeAll(tree, u.inTree(r.Path)+coming))
	})
}

func (u *undoing) undoLink(r *Record) error {
	return u.inTreeOf(r, func(tree *os.Root) error { return u.unlink(tree, r.Path) })
}

func (u *undoing) unlink(tree *os.Root, rel string) error {
	d, name, err := walk(tree, u.inTree(".local/bin/"+filepath.Base(rel)))
	if err != nil {
		return gone(err)
	}
	defer d.Close()
	want := filepath.Join(u.person.home, rel)
	b := make([]byte, len(want)+1)
	if n, err := unix.Readlinkat(d.at(), name, b); err != nil || string(b[:n]) != want {
		return nil
	}
	return d.wrong("remove", name, unix.Unlinkat(d.at(), name, 0))
}

func (u *undoing) undoMove(r *Record) error {
	return u.inTreeOf(r, func(tree *os.Root) error {
		home, err := os.OpenRoot(u.person.home)
		if err != nil {
			return err
		}
		defer home.Close()
		if r.Done {
			if err := u.lookFor(home, tree, r); err != nil {
				return err
			}
		}
		aside, err := moveBack(home, r.Path, tree, u.inTree(r.Path), u.person.owner())
		u.sayAside(r, aside)
		return err
	})
}

// lookFor looks for what was moved. Without the cell's home it was taken elsewhere in the tree; without it alone, it may
// have been, and the tree stays.
func (u *undoing) lookFor(home, tree *os.Root, r *Record) error {
	in := u.inTree(".")
	there, err := exists(tree, in)
	if err == nil && !there {
		err = fmt.Errorf("%s is not there any more", filepath.Join(u.tree(r.To), in))
	}
	if err != nil {
		return err
	}
	for _, at := range []struct {
		root *os.Root
		path string
	}{{tree, u.inTree(r.Path)}, {tree, u.inTree(r.Path) + going}, {home, r.Path}, {home, r.Path + going}} {
		if there, err := exists(at.root, at.path); err != nil || there {
			return err
		}
	}
	err = fmt.Errorf("~/%s is not in the cell any more, where setup put it", r.Path)
	if !u.Purge {
		u.Note(err.Error())
		return errKept
	}
	return err
}

// errKept is of a record that stays, with the tree that it is of, and is no failure.
var errKept = errors.New("kept")

func (u *undoing) sayAside(r *Record, aside string) {
	if aside != "" {
		u.Note("~/" + r.Path + " was made anew since; it is kept as ~/" + aside)
	}
}

func (u *undoing) undoAside(r *Record) error {
	// What starts a service stays away where the agent is to stay stopped; its file is only a file.
	if u.Stopped && isStart(r.Path) {
		if u.Purge {
			u.Note("it does not start by itself any more: systemctl --user enable " + filepath.Base(r.Path))
		}
		return nil
	}
	home, kept, err := u.homeAnd(u.aside())
	if err != nil {
		return gone(err)
	}
	defer home.Close()
	defer kept.Close()
	aside, err := moveBack(home, r.Path, kept, r.Path, u.person.owner())
	u.sayAside(r, aside)
	return err
}

// isStart says whether a unit file is the link by which the unit starts by itself.
func isStart(path string) bool { return strings.Contains(path, ".wants/") }

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
	d, name, err := walk(in, rel)
	if err != nil {
		return gone(err)
	}
	defer d.Close()
	is, err1 := d.has(name)
	was, err2 := d.has(name + before)
	if err := errors.Join(err1, err2, gone(d.wrong("remove", name+coming, unix.Unlinkat(d.at(), name+coming, 0)))); err != nil {
		return err
	}
	ours := u.ours(r.Path, r.Name) || u.isStopped(r.Path, r.Name)
	switch {
	case !was && ours && u.inSettings(r, rel): // the former comes back with them
		return errors.Join(d.wrong("remove", name, unix.Unlinkat(d.at(), name, 0)), u.prune(in, rel))
	case !was: // never replaced, or back already, or its installer has removed it
		if ours && !u.Stopped {
			return d.wrong("remove", name, unix.Unlinkat(d.at(), name, 0))
		}
		return nil
	case is && !ours: // its installer has put a new one there
		u.Note(r.Path + " is a new one; the former is removed")
		return d.wrong("remove", name+before, unix.Unlinkat(d.at(), name+before, 0))
	case u.Stopped:
		return put(in, rel, stopped(r.Name, r.Path), own)
	}
	return d.wrong("rename", name+before, unix.Renameat(d.at(), name+before, d.at(), name))
}

func (u *undoing) inSettings(r *Record, rel string) bool {
	return slices.ContainsFunc(u.j.Found, func(f Found) bool { return f.Name == r.Name && f.inSettings(rel) })
}

// prune removes the folders above a path, as long as they are empty: they were made for it alone.
func (u *undoing) prune(in *os.Root, rel string) error {
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		d, name, err := walk(in, dir)
		if err != nil {
			return gone(err)
		}
		err = unix.Unlinkat(d.at(), name, unix.AT_REMOVEDIR)
		_ = d.Close()
		if err != nil {
			return nil
		}
	}
	return nil
}

// purge removes what the daemons and the admin have made. A tree with what could not be given back stays, and the journal,
// which knows of it.
func (u *undoing) purge() error {
	paths := append(u.kept(), filepath.Join(u.etc, "cells"), u.key("store-key"), u.key("checkpoint-key"))
	if len(u.failed) == 0 {
		paths = append(paths, u.state)
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, u.remove(path))
	}
	return errors.Join(errs...)
}
