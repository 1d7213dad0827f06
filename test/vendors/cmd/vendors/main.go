// SPDX-License-Identifier: Apache-2.0

// Command vendors runs one stand-in for a vendor as a process of its own, for the demo and for tests that kill
// daemons, and speaks to the control socket of one. It is never installed.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop() // not deferred: os.Exit skips defers
	if err != nil {
		fmt.Fprintln(os.Stderr, "vendors:", err)
		os.Exit(1)
	}
}
