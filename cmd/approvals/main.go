// SPDX-License-Identifier: Apache-2.0

// Command approvals carries JSON between a person's browser and sentinel.
package main

import (
	"github.com/doorward/doorward/approvals"
	"github.com/doorward/doorward/internal/daemon"
)

func main() { daemon.Main("approvals", approvals.Run) }
