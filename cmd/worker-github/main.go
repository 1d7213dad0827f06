// SPDX-License-Identifier: Apache-2.0

// Command worker-github is GitHub's worker.
package main

import (
	"github.com/doorward/doorward/workers"
	"github.com/doorward/doorward/workers/github"
)

func main() { workers.Main(github.Connector()) }
