// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// What nobody else may be at while root works in it: a cell's tree, an agent's files.

// alive are the units of cells that have processes. The kernel says so, and not a unit's state or the journal: a cell may
// have been started by hand, or by its enablement after a crash.
func (p places) alive() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(p.cgroups, "doorward.slice/doorward-cells.slice/doorward-cell@*.service/cgroup.events"))
	if err != nil {
		return nil, err
	}
	var units []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) { // it ended meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(append([]byte("\n"), b...), []byte("\npopulated 0\n")) {
			units = append(units, filepath.Base(filepath.Dir(f)))
		}
	}
	return units, nil
}

// ended refuses while any cell lives: its root may swap each file under the hands of this machine's.
func (p places) ended() error {
	units, err := p.alive()
	if err != nil {
		return wire.Refuse(wire.CodeUnavailable, "see whether cells have ended: "+err.Error(), "look at "+p.cgroups)
	}
	if len(units) > 0 {
		return wire.Refuse(wire.CodeUnavailable, "still running: "+strings.Join(units, ", "),
			"systemctl stop "+strings.Join(units, " ")+"; then the same command again")
	}
	return nil
}

// killed has the kernel end what a stop left of cells, and refuses what even that leaves.
func (p places) killed() error {
	for range 20 {
		units, err := p.alive()
		if err != nil || len(units) == 0 {
			break
		}
		for _, u := range units {
			_ = os.WriteFile(filepath.Join(p.cgroups, "doorward.slice/doorward-cells.slice", u, "cgroup.kill"), []byte("1"), 0o200)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return p.ended()
}

// still stops the cell, if it lives, so that its tree may be worked in.
func (s *setup) still(ctx context.Context) error {
	units, err := s.alive()
	if err != nil {
		return err
	}
	unit := "doorward-cell@" + s.j.Config.Cell + ".service"
	for _, u := range units {
		if u != unit {
			continue
		}
		s.Note("cell " + s.j.Config.Cell + " is stopped meanwhile: nothing is done in a tree that is in use")
		if _, err := s.run(ctx, nil, "systemctl", "stop", unit); err != nil {
			return err
		}
		if units, err = s.alive(); err != nil {
			return err
		}
	}
	for _, u := range units {
		if u == unit {
			return wire.Refuse(wire.CodeUnavailable, unit+" does not end", "systemctl kill --signal=KILL "+unit+", then doorward setup")
		}
	}
	return nil
}

// idle refuses while the person runs an agent outside: it would write on into files that are moved away, and act outside
// for as long as it lives. It sees processes of what was found; what starts an agent later (cron, an editor) it does not.
func (s *setup) idle(f Found) error {
	var of []string
	for _, rel := range f.Settings {
		of = append(of, filepath.Join(s.person.home, rel))
	}
	for _, cmd := range f.Commands {
		of = append(of, cmd)
		files, outside := program(s.person.home, cmd)
		for _, rel := range files {
			if filepath.Base(rel) != "node" { // which others run by too
				of = append(of, filepath.Join(s.person.home, rel))
			}
		}
		if real, err := filepath.EvalSymlinks(cmd); err == nil {
			of = append(of, real)
		}
		if outside != "" {
			of = append(of, outside)
		}
	}
	pids, err := running(s.proc, s.person.uid, of)
	if err != nil {
		return wire.Refuse(wire.CodeUnavailable, "see whether "+f.Title+" runs: "+err.Error(), "look at "+s.proc)
	}
	if len(pids) > 0 {
		return wire.Refuse(wire.CodeUnavailable, f.Title+" runs outside of the cell, as process "+strings.Join(pids, ", "),
			"end it first, then doorward setup goes on")
	}
	return nil
}

// running are a user's processes that run by one of some paths, or hold one open. Of a command line the first two words
// count, for an interpreter and what it runs.
func running(proc string, uid int, paths []string) ([]string, error) {
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	is := func(p string) bool {
		for _, of := range paths {
			if _, ok := below(of, p); p == of || ok {
				return true
			}
		}
		return false
	}
	var pids []string
	for _, d := range dirs {
		st, err := d.Info()
		if _, no := strconv.Atoi(d.Name()); no != nil || err != nil { // gone meanwhile
			continue
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != uid || d.Name() == strconv.Itoa(os.Getpid()) {
			continue
		}
		dir := filepath.Join(proc, d.Name())
		links, _ := filepath.Glob(filepath.Join(dir, "fd/*"))
		found := false
		for _, l := range append(links, filepath.Join(dir, "exe"), filepath.Join(dir, "cwd")) {
			to, err := os.Readlink(l)
			found = found || err == nil && is(to)
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		for i, word := range strings.Split(string(line), "\x00") {
			found = found || i < 2 && is(word)
		}
		if found {
			pids = append(pids, d.Name())
		}
	}
	return pids, nil
}

// unmounted refuses where something is mounted on a folder or below it: removing would go on into that, whatever file
// system it is of.
func (p places) unmounted(dir string) error {
	f, err := os.Open(filepath.Join(p.proc, "self/mountinfo"))
	if err != nil {
		return wire.Refuse(wire.CodeUnavailable, "see what is mounted below "+dir+": "+err.Error(), "look at "+p.proc)
	}
	defer f.Close()
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	octal := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		at := octal.Replace(fields[4])
		if _, ok := below(dir, at); ok || at == dir {
			return wire.Refuse(wire.CodeUnavailable, dir+" is not removed: "+at+" is mounted there",
				"umount "+at+"; then the same command again")
		}
	}
	return lines.Err()
}

// remove removes a folder with all in it, if nothing is mounted there.
func (p places) remove(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := p.unmounted(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return wire.Refuse(wire.CodeInternal, fmt.Sprintf("remove %s: %v", dir, err), "rm -rf --one-file-system "+dir)
	}
	return nil
}

// Outside says what of the agents that were taken into the cell is outside of it again: a command that an update has put back,
// settings that were made anew. None where nothing is set up.
func Outside() (again []string, set bool, err error) {
	s, set, err := start(Calls{}, Options{})
	if err != nil || !set {
		return nil, set, err
	}
	again, err = s.outside()
	return again, true, err
}

func (s *setup) outside() ([]string, error) {
	home, err := os.OpenRoot(s.person.home)
	if err != nil {
		return nil, err
	}
	defer home.Close()
	var again []string
	for _, r := range s.j.Records {
		switch {
		case r.Op == opCommand && r.Done && !s.ours(r.Path, r.Name):
			again = append(again, r.Path)
		case (r.Op == opMove || r.Op == opAside) && r.Done:
			// A folder above a command of setup's is there for that.
			mine := slices.ContainsFunc(s.j.Records, func(c *Record) bool {
				_, in := below(filepath.Join(s.person.home, r.Path), c.Path)
				return c.Op == opCommand && in
			})
			if there, err := exists(home, r.Path); err != nil {
				return nil, err
			} else if there && !mine {
				again = append(again, filepath.Join(s.person.home, r.Path))
			}
		}
	}
	return again, nil
}
