// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/doorward/doorward/internal/wire"
)

// openFolders are the tops of this machine below which a project may lie; what is not here belongs to the system.
var openFolders = []string{"home", "root", "srv", "opt", "mnt", "media", "data", "work", "workspace", "projects", "tmp",
	"var/www"}

// project holds a folder to what a cell may be given: the agent can write all of it, and what it writes there is read by
// the person's own programs outside. It returns the folder's real path.
func project(path, home string, uid int) (string, error) {
	bad := func(why, next string) (string, error) {
		return "", wire.Refuse(wire.CodeBadArgument, "project folder "+path+": "+why, next)
	}
	const other = "name the folder of one project"
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		return bad("no absolute path", "write it from /, or from ~/")
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return bad("it cannot be opened: "+err.Error(), "make it first")
	}
	st, err := os.Stat(real)
	switch {
	case err != nil:
		return bad(err.Error(), other)
	case !st.IsDir():
		return bad("no folder", other)
	case strings.Contains(real, ":") || strconv.Quote(real) != `"`+real+`"` || len(real) >= 4096:
		return bad("its name has a colon or a character that would have to be quoted", "rename it")
	case real == "/":
		return bad("that is the whole machine", other)
	case real == home:
		return bad("that is your whole home, with your keys and what your shell runs at login", other)
	}
	if _, ok := below(real, home); ok {
		return bad("your home lies in it", other)
	}
	if rel, ok := below(home, real); ok {
		if first, _, _ := strings.Cut(rel, "/"); strings.HasPrefix(first, ".") {
			return bad("~/"+first+" holds settings or keys; what an agent writes there runs as you, outside of the cell", other)
		}
		if first, _, _ := strings.Cut(rel, "/"); first == "bin" {
			return bad("~/bin holds programs that run as you, outside of the cell", other)
		}
	} else if !open(real) {
		return bad("it belongs to the system", "put the project below your home or /srv")
	}
	owner, ok := st.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) != uid {
		return bad("it is not yours: in the cell the agent would act as its owner", "chown it, or name a folder of your own")
	}
	return real, nil
}

// harmless refuses a project folder with what starts an agent in it, or above it: the agent would write what the person
// runs outside.
func (s *setup) harmless(real string) error {
	var starts []string
	add := func(path string) {
		starts = append(starts, path)
		if real, err := filepath.EvalSymlinks(path); err == nil {
			starts = append(starts, real)
		}
	}
	for _, place := range append([]string{"go/bin"}, programPlaces...) {
		add(filepath.Join(s.person.home, place))
	}
	if prefix := npmPrefix(s.person.home); prefix != "" {
		add(filepath.Join(s.person.home, prefix))
	}
	for _, f := range s.j.Found {
		inHome := slices.Clone(f.Settings)
		for _, cmd := range f.Commands {
			add(cmd)
			files, _ := program(s.person.home, cmd)
			inHome = append(inHome, files...)
		}
		for _, rel := range inHome {
			add(filepath.Join(s.person.home, rel))
		}
	}
	for _, p := range starts {
		_, in := below(p, real)
		_, above := below(real, p)
		if in || above || p == real {
			return wire.Refuse(wire.CodeBadArgument, "project folder "+real+": "+p+" holds programs that run as you, outside of the cell",
				"name the folder of one project, apart from it")
		}
	}
	return nil
}

// open says whether a folder lies below one of openFolders, and is none of them.
func open(path string) bool {
	for _, top := range openFolders {
		if _, ok := below("/"+top, path); ok {
			return true
		}
	}
	return false
}
