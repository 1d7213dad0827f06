// SPDX-License-Identifier: Apache-2.0

// Command cellnet makes the network of a cell and the walls in the kernel around it, and ends; package cellnet says what that
// is. Systemd runs it, once for all cells and once for each; `cellnet counts` shows root what the walls have refused.
package main

import (
	"os"

	"github.com/doorward/doorward/cellnet"
)

func main() { os.Exit(cellnet.Main(os.Args[1:], os.Stdout, os.Stderr)) }
