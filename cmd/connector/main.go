// SPDX-License-Identifier: Apache-2.0

// Command connector is what an agent runs in its cell, see package cli.
package main

import (
	"os"

	"github.com/doorward/doorward/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
