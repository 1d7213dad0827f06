// SPDX-License-Identifier: Apache-2.0

// Command egress is the one daemon of Doorward that reaches out to the network; see package sentinel/egress for what an
// attacker could do with it.
package main

import (
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/sentinel/egress"
)

func main() { daemon.Main("egress", egress.Run) }
