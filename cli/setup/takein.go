// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bytes"
	"context"
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
	return step{says: "copy " + f.Title + "'s program ~/" + rel + " into the cell", record: r,
		there: func() (bool, error) {
			if done, err := s.done(r)(); err != nil || done {
				return done, err
			}
			return false, s.inHome(func(home *os.Root) error {
				d, name, err := walk(home, rel)
				if err != nil {
					return err
				}
				defer d.Close()
				c := copier{only: s.person.uid, public: true}
				return c.count(d, name, 0)
			})
		},
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
	return false, s.inHome(func(home *os.Root) error {
		return errors.Join(movable(home, r.Path, s.person.uid), s.unmounted(filepath.Join(s.person.home, r.Path)))
	})
}

func (s *setup) inHome(do func(home *os.Root) error) error {
	home, err := os.OpenRoot(s.person.home)
	if err != nil {
		return err
	}
	defer home.Close()
	return do(home)
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
		there: func() (bool, error) {
			in, rel, _, err := s.place(cmd)
			if err != nil {
				return false, err
			}
			defer in.Close()
			d, _, err := walk(in, rel) // a folder that is a link is refused before anything is done
			if err != nil {
				return false, gone(err)
			}
			return s.ours(cmd, f.Name), d.Close()
		},
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
