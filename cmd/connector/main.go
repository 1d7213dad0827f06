// SPDX-License-Identifier: Apache-2.0

// It lives for milliseconds and does one thing at a time, so the runtime need not read the CPU limits of its cgroup, which
// would be a tenth of its start.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command connector is what an agent runs in its cell, see package cli.
package main

import (
	"os"

	"github.com/doorward/doorward/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
