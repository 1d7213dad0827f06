// SPDX-License-Identifier: Apache-2.0

// Command authd keeps the credentials; package authd says what it does.
package main

import (
	"github.com/doorward/doorward/authd"
	"github.com/doorward/doorward/internal/daemon"
)

func main() { daemon.Main("authd", authd.Run) }
