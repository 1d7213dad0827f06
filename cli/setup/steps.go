// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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
	s.asked++
	return s.Unlock(fd)
}

func (s *setup) accountStep() step {
	a := s.j.Config.Account
	says := "add account " + a.Name + " of " + a.Connector
	if a.Base != "" {
		says += " at " + a.Base
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
			s.asked += 2
			return s.AddAccount(a, fd)
		}}
}

// agentSteps take one agent into the cell: first what it runs by, then what it is, last what starts it.
func (s *setup) agentSteps(f Found) ([]step, error) {
	var list []step
	cell := s.j.Config.Cell
	if len(f.UnitFiles) > 0 {
		list = append(list, s.unitStep(f))
	}
	for _, cmd := range f.Commands {
		files, outside := program(s.person.home, cmd)
		if outside != "" {
			s.Note(cmd + " leads to " + outside + ", which the cell does not see: install " + f.Title + " in the cell")
		}
		for _, rel := range files {
			// One below a setting goes with it; one that an earlier run replaced it has copied before.
			if f.inSettings(rel) || s.ours(filepath.Join(s.person.home, rel), f.Name) {
				continue
			}
			list = append(list, s.copyStep(f, rel, cell, rel == files[0] || filepath.Base(rel) == "node"))
		}
	}
	for _, rel := range f.Settings {
		list = append(list, s.moveStep(f, rel, cell))
	}
	for _, cmd := range f.Commands {
		if rel, ok := below(s.person.home, cmd); ok && f.inSettings(rel) {
			list = append(list, s.linkStep(f, rel, cell))
		}
	}
	if len(f.UnitFiles) > 0 {
		list = append(list, s.dir(s.aside(), 0o700))
	}
	for _, rel := range f.UnitFiles {
		list = append(list, s.asideStep(f, rel))
	}
	for _, cmd := range f.Commands {
		list = append(list, s.commandStep(f, cmd))
	}
	return list, nil
}

// inSettings says whether a path of the home lies below one of an agent's settings.
func (f *Found) inSettings(rel string) bool {
	return slices.ContainsFunc(f.Settings, func(setting string) bool {
		_, ok := below(setting, rel)
		return ok
	})
}

// within calls do with the person's home and the tree of the cell, which is stopped, and with whom the person is there.
func (s *setup) within(ctx context.Context, do func(home, tree *os.Root, me owner) error) error {
	if err := s.still(ctx); err != nil {
		return err
	}
	home, tree, err := s.homes()
	if err != nil {
		return err
	}
	defer home.Close()
	defer tree.Close()
	me, err := s.shifted()
	if err != nil {
		return err
	}
	return do(home, tree, me)
}

func (s *setup) copyStep(f Found, rel, cell string, link bool) step {
	r := Record{Op: opCopy, Path: rel, To: cell, Name: f.Name}
	return step{says: "copy " + f.Title + "'s program ~/" + rel + " into the cell", record: r, there: s.done(r),
		do: func(ctx context.Context, _ *Record) error {
			return s.within(ctx, func(home, tree *os.Root, me owner) error {
				dst := s.inTree(rel)
				if err := errors.Join(removeAll(tree, dst), parents(tree, dst, me)); err != nil {
					return err
				}
				if _, err := copyAll(home, rel, tree, dst, me, s.person.uid); err != nil || !link {
					return err
				}
				return s.linkCommand(tree, rel, me)
			})
		}}
}

// linkStep has the cell find a command that is there with an agent's settings.
func (s *setup) linkStep(f Found, rel, cell string) step {
	r := Record{Op: opLink, Path: rel, To: cell, Name: f.Name}
	return step{says: "have the cell find ~/" + rel, record: r, there: s.done(r),
		do: func(ctx context.Context, _ *Record) error {
			return s.within(ctx, func(_, tree *os.Root, me owner) error { return s.linkCommand(tree, rel, me) })
		}}
}

// linkCommand makes an agent's command one that a run in the cell finds by its name: ~/.local/bin is in its PATH.
func (s *setup) linkCommand(tree *os.Root, rel string, me owner) error {
	link := s.inTree(".local/bin/" + filepath.Base(rel))
	if err := parents(tree, link, me); err != nil {
		return err
	}
	d, name, err := walk(tree, link)
	if err != nil {
		return err
	}
	defer d.Close()
	if there, err := d.has(name); err != nil || there { // the command itself is there
		return err
	}
	return d.wrong("link", name, errors.Join(unix.Symlinkat(filepath.Join(s.person.home, rel), d.at(), name),
		unix.Fchownat(d.at(), name, me.UID, me.GID, unix.AT_SYMLINK_NOFOLLOW)))
}

// shifted is the person in the cell, as this machine sees the files.
func (s *setup) shifted() (owner, error) {
	base, err := shift(s.tree(s.j.Config.Cell))
	me := s.person.inCell()
	return owner{base + me.UID, base + me.GID}, err
}

func (s *setup) moveStep(f Found, rel, cell string) step {
	r := Record{Op: opMove, Path: rel, To: cell, Name: f.Name}
	return step{says: "move " + f.Title + "'s ~/" + rel + " into the cell", record: r,
		there: func() (bool, error) { return s.moved(r) },
		do: func(ctx context.Context, _ *Record) error {
			if err := s.idle(f); err != nil {
				return err
			}
			return s.within(ctx, func(home, tree *os.Root, me owner) error {
				skipped, err := moveAll(home, rel, tree, s.inTree(rel), me, me, s.person.uid)
				for _, x := range skipped {
					s.Note(x + " is neither file, folder nor link: it is gone, and its program makes it anew")
				}
				return err
			})
		}}
}

// asideStep puts a unit file where the agent cannot change it: the person's own service manager runs what is in it, outside
// of the cell, once it is back.
func (s *setup) asideStep(f Found, rel string) step {
	r := Record{Op: opAside, Path: rel, Name: f.Name}
	return step{says: "put " + f.Title + "'s ~/" + rel + " aside, in " + s.aside(), record: r, there: s.done(r),
		do: func(ctx context.Context, _ *Record) error {
			home, aside, err := s.homeAnd(s.aside())
			if err != nil {
				return err
			}
			defer home.Close()
			defer aside.Close()
			if _, err = moveAll(home, rel, aside, rel, owner{}, owner{}, s.person.uid); err != nil {
				return err
			}
			// The manager has the unit in its memory, and would start it again by that.
			if _, err := s.userctl(ctx, "daemon-reload"); err != nil && s.managed() {
				return err
			}
			return s.halted(ctx, f.Units)
		}}
}

// moved says whether a move is done, and refuses one onto something that setup has not put there.
func (s *setup) moved(r Record) (bool, error) {
	if o := s.j.find(&r); o != nil {
		return o.Done, nil
	}
	home, err := os.OpenRoot(s.person.home)
	if err != nil {
		return false, err
	}
	defer home.Close()
	return false, errors.Join(movable(home, r.Path, s.person.uid), s.unmounted(filepath.Join(s.person.home, r.Path)))
}

// movable refuses a setting that is not as it seems, before anything is done: one that is a link would leave outside what it
// leads to, and the names of a move stand beside it only where one was begun.
func movable(home *os.Root, rel string, uid int) error {
	d, name, err := walk(home, rel)
	if err != nil {
		return err
	}
	defer d.Close()
	st, err := d.lstat(name)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		to, _ := home.Readlink(rel)
		return wire.Refuse(wire.CodeNotAllowed, "~/"+rel+" is a link to "+to+", which would stay outside of the cell",
			"put in its place what it leads to")
	}
	if there, err := d.has(name + going); err != nil || there {
		return errors.Join(err, wire.Refuse(wire.CodeUnavailable, "~/"+rel+going+" is there, and setup has not made it",
			"look what it is, and rename it"))
	}
	c := copier{only: uid}
	return c.count(d, name, 0)
}

// unitStep stops the user units of an agent. Their files are put aside, so nothing starts them again.
func (s *setup) unitStep(f Found) step {
	r := Record{Op: opUnit, Name: f.Name, Path: s.person.name}
	return step{says: "stop " + f.Title + "'s own service, " + strings.Join(f.Units, ", "), record: r, there: s.done(r),
		do: func(ctx context.Context, r *Record) error {
			if !s.managed() {
				return nil
			}
			for _, u := range f.Units {
				state, err := s.unitState(ctx, u)
				if err != nil {
					return err
				}
				if !isHalted(state) && !slices.Contains(r.Units, u) { // else an earlier run has stopped it
					r.Units = append(r.Units, u)
				}
			}
			if err := s.j.save(); err != nil || len(f.Units) == 0 {
				return err
			}
			// One that waits to be started again is not active, and runs in a moment.
			if _, err := s.userctl(ctx, append([]string{"stop"}, f.Units...)...); err != nil {
				return err
			}
			return s.halted(ctx, f.Units)
		}}
}

// managed says whether the person has a service manager. Where one runs it must be asked: what it runs is the agent.
func (s *setup) managed() bool {
	_, err := os.Lstat(filepath.Join(s.runtimes, strconv.Itoa(s.person.uid)))
	return !errors.Is(err, fs.ErrNotExist)
}

func (s *setup) unitState(ctx context.Context, unit string) (string, error) {
	said, err := s.userctl(ctx, "show", "--property=ActiveState", "--value", unit)
	if err != nil {
		return "", wire.Refuse(wire.CodeUnavailable, "ask "+s.person.name+"'s service manager for "+unit+": "+err.Error(),
			"as "+s.person.name+": systemctl --user stop "+unit+"; or end "+s.person.name+"'s sessions; then doorward setup")
	}
	return strings.TrimSpace(said), nil
}

func isHalted(state string) bool { return state == "inactive" || state == "failed" }

// halted refuses while a unit of the person's is not stopped for good.
func (s *setup) halted(ctx context.Context, units []string) error {
	if !s.managed() {
		return nil
	}
	for _, u := range units {
		state, err := s.unitState(ctx, u)
		if err != nil {
			return err
		}
		if !isHalted(state) {
			return wire.Refuse(wire.CodeUnavailable, u+" of "+s.person.name+" is still "+state,
				"as "+s.person.name+": systemctl --user stop "+u+"; then doorward setup goes on")
		}
	}
	return nil
}

// userctl asks the person's own service manager, where one runs.
func (s *setup) userctl(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, nil, "systemctl", append([]string{"--user", "--machine=" + s.person.name + "@.host"}, args...)...)
}

// Before is what a command is called beside the one that replaces it.
const before = ".before-doorward"

// mark is in every command that setup puts in the place of an agent's.
const mark = "# Made by `doorward setup`: "

// ours says whether a command is what setup has put there, to the byte: a mark anybody could put into theirs.
func (s *setup) ours(cmd, agent string) bool {
	text, err := s.command(cmd)
	if err != nil {
		return false
	}
	r := s.j.find(&Record{Op: opCommand, Path: cmd, Name: agent})
	return r != nil && r.Sum == sum(text) || bytes.Equal(text, wrapper(s.j.Config.Cell, agent, cmd, s.person))
}

func (s *setup) isStopped(cmd, agent string) bool {
	text, err := s.command(cmd)
	return err == nil && bytes.Equal(text, stopped(agent, cmd))
}

// command reads a command as far as one of setup's own goes.
func (s *setup) command(cmd string) ([]byte, error) {
	in, rel, _, err := s.place(cmd)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	f, err := openRegular(in, rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

func sum(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// wrapper is the command that stands where an agent's stood. In the cell, which sees the machine's /usr, and for other
// users it is what it was.
func wrapper(cell, agent, path string, p person) []byte {
	return fmt.Appendf(nil, `#!/bin/sh
%shere %s starts in cell %s. "doorward uninstall" gives the former start back.
if [ -d %s ] || [ "$(id -u)" != %d ]; then exec %s "$@"; fi
exec doorward run %[3]s -- %[2]s "$@"
`, mark, agent, cell, wire.CellRun, p.uid, shellQuote(path+before))
}

// stopped is the command that stands there after an uninstall that leaves the agent stopped.
func stopped(agent, path string) []byte {
	how := agent + " was left stopped when Doorward was removed; to start it again: mv " + path + before + " " + path
	return fmt.Appendf(nil, "#!/bin/sh\n%s%s was left stopped when Doorward went.\necho %s >&2\nexit 1\n", mark, agent, shellQuote(how))
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (s *setup) commandStep(f Found, cmd string) step {
	r := Record{Op: opCommand, Path: cmd, To: cmd + before, Name: f.Name}
	return step{says: "have " + cmd + " start " + f.Title + " in the cell", record: r,
		there: func() (bool, error) { return s.ours(cmd, f.Name), nil },
		do: func(_ context.Context, r *Record) error {
			in, rel, own, err := s.place(cmd)
			if err != nil {
				return err
			}
			defer in.Close()
			if !f.inSettings(rel) {
				if err := s.giveWay(in, rel, cmd, r); err != nil {
					return err
				}
			} else if err := parents(in, rel, own); err != nil { // the former went with the settings
				return err
			}
			text := wrapper(s.j.Config.Cell, f.Name, cmd, s.person)
			r.Sum = sum(text)
			if err := s.j.save(); err != nil {
				return err
			}
			return put(in, rel, text, own)
		}}
}

// giveWay renames what starts an agent. What an update has put there since an earlier run is its start now.
func (s *setup) giveWay(in *os.Root, rel, cmd string, r *Record) error {
	d, name, err := walk(in, rel)
	if err != nil {
		return err
	}
	defer d.Close()
	is, err1 := d.has(name)
	was, err2 := d.has(name + before)
	switch err := errors.Join(err1, err2); {
	case err != nil:
		return err
	case !was:
		return d.rename(name, d, name+before)
	case !is || s.isStopped(cmd, r.Name):
		return nil
	case r.Sum == "":
		return wire.Refuse(wire.CodeUnavailable, cmd+before+" is there already", "look what it is, and rename it")
	}
	return d.wrong("rename", name, unix.Renameat(d.at(), name, d.at(), name+before))
}

// place opens the folder of a command, through the home where it is in that. own is whose the command is.
func (s *setup) place(cmd string) (in *os.Root, rel string, own owner, err error) {
	if rel, ok := below(s.person.home, cmd); ok {
		in, err = os.OpenRoot(s.person.home)
		return in, rel, s.person.owner(), err
	}
	in, err = os.OpenRoot(filepath.Dir(cmd))
	return in, filepath.Base(cmd), owner{}, err
}

// put writes a program as a whole.
func put(in *os.Root, rel string, text []byte, own owner) error {
	d, name, err := walk(in, rel)
	if err != nil {
		return err
	}
	defer d.Close()
	fresh := name + coming
	if err := unix.Unlinkat(d.at(), fresh, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.wrong("remove", fresh, err)
	}
	f, err := d.open(fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chown(own.UID, own.GID), f.Chmod(0o755), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", rel, err)
	}
	return d.wrong("rename", fresh, unix.Renameat(d.at(), fresh, d.at(), name))
}
