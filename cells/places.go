// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/doorward/doorward/internal/wire"
)

// place is a folder of this machine that a cell writes in, and under which key its configuration has it.
type place struct{ path, key string }

func (c *config) places() []place {
	list := []place{{c.Root, "root"}}
	for _, p := range c.Projects {
		list = append(list, place{p, "projects"})
	}
	return list
}

// startable says why nothing is to be started in a cell, whose configuration is in dir.
func (c *config) startable(dir, name string) error {
	if err := c.armed(name); err != nil {
		return err
	}
	return c.apart(dir, name)
}

// apart says why the folders of a cell are not to be mounted: one is reached through a link, or lies in a folder that a
// cell writes in. Whoever writes in the outer one may put a link in the place of the inner, and the next start would
// mount what that leads to, the person's keys as well as another cell's tree. A cell with a configuration that cannot be read
// does not start, so its folders do not count.
func (c *config) apart(dir, name string) error {
	for _, p := range c.places() {
		switch real, err := filepath.EvalSymlinks(p.path); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			// Nspawn's to report: the daemon does not see all folders of this machine, and the unit looks again.
		case err != nil:
			return refusedPlace(name, p, "cannot be looked at: "+err.Error(), "name another, or mend it,")
		case real != p.path:
			return refusedPlace(name, p, "leads to "+real, "name that one")
		}
	}
	all, err := names(dir)
	if err != nil {
		return err
	}
	for _, other := range all {
		o, err := load(dir, other)
		if err != nil {
			continue
		}
		for _, p := range c.places() {
			for _, q := range o.places() {
				same := p.path == q.path
				switch {
				case same && p.key == "projects" && q.key == "projects": // two cells that work on one project
				case same && other == name && p.key == q.key: // itself
				case within(p.path, q.path) || within(q.path, p.path):
					return refusedPlace(name, p, fmt.Sprintf("and %s of cell %s lie in each other", q.path, other),
						"name folders that lie apart")
				}
			}
		}
	}
	return nil
}

func refusedPlace(cell string, p place, why, next string) error {
	return wire.Refuse(wire.CodeNotAllowed, fmt.Sprintf("cell %s is not started: its folder %s %s", cell, p.path, why),
		next+" at "+p.key+" in /etc/doorward/cells/"+cell+".toml")
}
