// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// UnitState is one unit in a report.
type UnitState struct {
	Name, State string
	Restarts    int
}

// States are all units that were looked at, by name.
func (m *Machine) States() []UnitState {
	var out []UnitState
	for _, name := range slices.Sorted(maps.Keys(m.units)) {
		u := m.units[name]
		n, _ := strconv.Atoi(u["NRestarts"])
		out = append(out, UnitState{name, state(u), n})
	}
	return out
}

// Journal is the newest lines of Doorward's units, as JSON, or nothing where they cannot be read.
func Journal(n int) []byte {
	out, err := run("journalctl", "--no-pager", "--quiet", "--output=json", "--lines="+strconv.Itoa(n), "--unit=doorward*")
	if err != nil {
		return nil
	}
	return []byte(out)
}

// People are the users of this machine who are persons, by passwd(5).
func People() []string {
	b, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		f := strings.Split(line, ":")
		if len(f) < 5 {
			continue
		}
		if uid, err := strconv.Atoi(f[2]); err == nil && uid >= 1000 && uid < 60000 {
			out = append(out, f[0])
		}
	}
	return out
}
