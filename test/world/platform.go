// SPDX-License-Identifier: Apache-2.0

package world

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// platform is what a world stands on: who starts its daemons and cells, and where their things are. There are two: host,
// where this process does as systemd would, and machine, where systemd does. All else is the same on both.
type platform interface {
	// lay makes what the daemons find: directories, keys, configuration and sockets. It fills in the world's Prefix and
	// its daemons' units.
	lay(w *World, o Options) error
	// close ends everything that runs and takes away what lay made, but for the world's own directory.
	close(w *World) error
	dirs() dirs
	// persons is the group of those who may use doorward.
	persons() (gid int, err error)
	// startCell starts a cell and returns its first process. Where that starts commands for the payload itself, their
	// spawner comes along.
	startCell(c *Cell) (first int, payload *net1, err error)
	stopCell(c *Cell) error
}

// dirs are where things are kept.
type dirs struct {
	state  string // with a folder for each daemon that has state
	config string
	more   []string // besides the world's own directory
}

// unit is one daemon on a platform.
type unit interface {
	// start starts it, calls began when there is a process, and returns when that is ready, or has ended.
	start(ahead time.Duration, began func(*process)) error
	log() string
	// user is whom it runs as; where that is drawn for each start, it has to run.
	user() (uid, gid int, groups []uint32, err error)
}

// key is 32 bytes: those that are given, or random ones.
func key(given []byte) string {
	if given == nil {
		given = make([]byte, 32)
		_, _ = rand.Read(given)
	}
	return string(given)
}

// tree lays out files; the first error stays.
type tree struct{ err error }

func (t *tree) dir(path string, mode os.FileMode, owner int) {
	if t.err == nil {
		t.err = errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode), os.Chown(path, owner, owner))
	}
}

func (t *tree) file(path, content string, mode os.FileMode, owner int) {
	if t.err == nil {
		t.err = errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode), os.Chown(path, owner, owner))
	}
}

// given lays out the configuration and the state that a world is to begin with.
func (t *tree) given(w *World, o Options, owner func(daemon string) int) {
	t.dir(w.Config(), 0o755, 0)
	for name, content := range o.Config {
		path := filepath.Join(w.Config(), name)
		t.dir(filepath.Dir(path), 0o755, 0)
		t.file(path, content, 0o644, 0)
	}
	for path, content := range o.State {
		name, rest, _ := strings.Cut(path, "/")
		var parents []string
		for parent := filepath.Dir(rest); parent != "."; parent = filepath.Dir(parent) {
			parents = append(parents, parent)
		}
		for _, parent := range slices.Backward(parents) {
			t.dir(filepath.Join(w.State(name), parent), 0o700, owner(name))
		}
		t.file(filepath.Join(w.State(name), rest), content, 0o600, owner(name))
	}
}
