// SPDX-License-Identifier: Apache-2.0

// Command sentinel decides every call by the person's policy and keeps the record.
package main

import (
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/sentinel"
)

func main() { daemon.Main("sentinel", sentinel.Run) }
