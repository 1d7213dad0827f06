// SPDX-License-Identifier: Apache-2.0

// Command cells starts, stops, freezes and enters cells; package cells says what it does. `cells nspawn CELL` is what a
// cell's unit runs, and `cells check` reads every configuration and says what is wrong.
package main

import (
	"os"

	"github.com/doorward/doorward/cells"
	"github.com/doorward/doorward/internal/daemon"
)

func main() {
	if len(os.Args) > 1 {
		os.Exit(cells.Main(os.Args[1:], os.Stderr))
	}
	daemon.Main("cells", cells.Run)
}
