// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"

	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/test/ground"
)

// Found is where a value stands that nobody of a cell should have.
type Found struct {
	Processes leaks.Report // of the cell, all of them: memory, environment, arguments, open files
	Files     leaks.Report
	Logs      []leaks.Finding // of all daemons
}

// All is every place.
func (f *Found) All() []leaks.Finding {
	return append(append(append([]leaks.Finding(nil), f.Processes.Findings...), f.Files.Findings...), f.Logs...)
}

// Search looks for a value, in its usual forms, in all that runs in a cell, in the logs of all daemons, and in those files and
// folders. A cell in which nothing runs is an error: nothing would be found there.
func (w *World) Search(c *Cell, value []byte, paths ...string) (*Found, error) {
	look, err := leaks.New(leaks.Secret{Name: "the value", Value: value})
	if err != nil {
		return nil, err
	}
	pids, err := leaks.Pids(ground.Cgroup + c.Cgroup(""))
	if err != nil {
		return nil, err
	}
	if len(pids) < 3 { // its supervisor and its first process there are always
		return nil, fmt.Errorf("search cell %s: nothing runs in it", c.Name)
	}
	f := &Found{Processes: look.Processes(pids...), Files: look.Files(paths...)}
	for name, log := range w.Logs() {
		f.Logs = append(f.Logs, look.Bytes("log of "+name, []byte(log))...)
	}
	return f, nil
}
