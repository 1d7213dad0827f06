// SPDX-License-Identifier: Apache-2.0

// Worker-dav is the worker of CalDAV and CardDAV servers.
package main

import (
	"github.com/doorward/doorward/workers"
	"github.com/doorward/doorward/workers/dav"
)

func main() { workers.Main(dav.Connector()) }
