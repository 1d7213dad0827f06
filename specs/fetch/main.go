// SPDX-License-Identifier: Apache-2.0

// Command fetch fills specs/vendor-descriptions with the vendors' published descriptions that tests hold worker
// requests against. It takes them from ../shared/specs, else from the published package by the npm client, and believes
// neither: the cut it writes must have the digest below, or nothing is written. Without either source it says so and
// ends well; the tests that need a description then skip with a message of their own.
//
// Into specs/tools it takes what tests of the page run in a browser, from its package, in the same way.
//
// An attacker who could choose the description could make a test accept a request the vendor would read otherwise;
// hence the pinned digest.
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
		fmt.Fprintln(os.Stderr, "specs:", err)
		os.Exit(1)
	}
}
