// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// Bounds of a configuration.
const (
	maxConfig   = 64 << 10 // bytes
	maxProjects = 64
	maxTasks    = 1 << 22 // the kernel's bound on processes
)

// config is /etc/doorward/cells/NAME.toml, which root writes. Every key may be absent, and so may the file.
type config struct {
	Root     string   `toml:"root"`     // the cell's tree
	Usr      string   `toml:"usr"`      // "host", this machine's, or "own": the tree has one
	Command  []string `toml:"command"`  // what its start runs; empty is nothing
	User     string   `toml:"user"`     // of runs, by the tree's own /etc/passwd
	Projects []string `toml:"projects"` // folders of this machine that the cell sees at the same place
	Limits   struct {
		Memory string `toml:"memory"` // bytes, with K, M, G or T for powers of 1024
		Tasks  int64  `toml:"tasks"`
	} `toml:"limits"`

	memory int64 // Limits.Memory in bytes; 0 is none
	exists bool
}

// isCell says whether a name may be a cell's, as package peer has it.
func isCell(name string) bool {
	id, err := peer.Parse(unitPath(name) + "/payload")
	return err == nil && id.Kind == peer.Cell && id.Name == name
}

// load reads the configuration of a cell. What is wrong is an error that names file, line and key.
func load(dir, name string) (*config, error) {
	if !isCell(name) {
		return nil, wire.Refuse(wire.CodeBadArgument, fmt.Sprintf("%.40q is no name of a cell: 1 to 32 of a-z and 0-9", name),
			"doorward cell list")
	}
	file := filepath.Join(dir, name+".toml")
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return parse(file, name, nil)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, err
	}
	c, err := parse(file, name, b)
	if err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "correct "+file)
	}
	c.exists = true
	return c, nil
}

func parse(file, name string, b []byte) (*config, error) {
	if len(b) > maxConfig {
		return nil, fmt.Errorf("%s: more than %d bytes", file, maxConfig)
	}
	c := &config{Root: "/var/lib/doorward/cells/" + name, Usr: "host", User: "root"}
	d := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields()
	var strict *toml.StrictMissingError
	var where *toml.DecodeError
	switch err := d.Decode(c); {
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		line, col := strict.Errors[0].Position()
		return nil, fmt.Errorf("%s:%d:%d: there is no key %q", file, line, col, strings.Join(strict.Errors[0].Key(), "."))
	case errors.As(err, &where):
		line, col := where.Position()
		return nil, fmt.Errorf("%s:%d:%d: %s", file, line, col, strings.TrimPrefix(where.Error(), "toml: "))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	wrong := func(key, why string) (*config, error) { return nil, fmt.Errorf("%s: %s: %s", file, key, why) }
	if !isPlace(c.Root) {
		return wrong("root", "want an absolute path of a folder, without \"..\" and colons, other than /")
	}
	if c.Usr != "host" && c.Usr != "own" {
		return wrong("usr", "want \"host\" or \"own\"")
	}
	if len(c.Command) > wire.MaxRunArgs || len(c.Command) > 0 && c.Command[0] == "" || slices.ContainsFunc(c.Command, noWord) {
		return wrong("command", "want a list of words, the first a program")
	}
	if c.User == "" || len(c.User) > 32 || strings.ContainsFunc(c.User, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) || c.User[0] == '-' || c.User[0] >= '0' && c.User[0] <= '9' { // a number would be another name of somebody
		return wrong("user", "want the name of a user of the cell")
	}
	if len(c.Projects) > maxProjects {
		return wrong("projects", fmt.Sprintf("more than %d", maxProjects))
	}
	for _, p := range c.Projects {
		if !isPlace(p) {
			return wrong("projects", fmt.Sprintf("%q: want absolute paths of folders, without \"..\" and colons", p))
		}
	}
	if c.Limits.Tasks < 0 || c.Limits.Tasks > maxTasks {
		return wrong("limits.tasks", fmt.Sprintf("want a number of processes up to %d", maxTasks))
	}
	var ok bool
	if c.memory, ok = size(c.Limits.Memory); !ok {
		return wrong("limits.memory", "want bytes, as \"4G\" or \"512M\"")
	}
	return c, nil
}

// isPlace says whether a path goes into nspawn's options as itself: a colon would begin a second one.
func isPlace(p string) bool {
	return filepath.IsAbs(p) && filepath.Clean(p) == p && p != "/" && len(p) < 4096 && !strings.ContainsAny(p, ":\\\x00\n")
}

// workDirs are the folders where a run may start, the best first: where its person is, if the cell sees that.
func (c *config) workDirs(here, home string) []string {
	list := append(slices.Clone(c.Projects), home)
	if isPlace(here) && slices.ContainsFunc(c.Projects, func(p string) bool { return within(here, p) }) {
		return slices.Insert(list, 0, here)
	}
	return list
}

// within says whether path is dir or below it; both are clean.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func noWord(s string) bool { return strings.Contains(s, "\x00") }

func size(s string) (int64, bool) {
	if s == "" {
		return 0, true
	}
	shift := 0
	if i := strings.IndexByte("KMGT", s[len(s)-1]); i >= 0 {
		s, shift = s[:len(s)-1], 10*(i+1)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n << shift, err == nil && n > 0 && n <= math.MaxInt64>>shift
}

// names are the cells that have a configuration, sorted.
func names(dir string) ([]string, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".toml"); ok && isCell(name) {
			out = append(out, name)
		}
	}
	return out, nil
}
