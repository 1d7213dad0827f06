// SPDX-License-Identifier: Apache-2.0

// Command page serves the static files of the page on which a person decides.
package main

import (
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/page"
)

func main() { daemon.Main("page", page.Run) }
