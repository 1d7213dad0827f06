// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Bounds of rest.
const (
	restLook  = time.Second
	restBytes = 1 << 20 // of garbage in that time; below it little happens
)

// rest gives memory back to the machine each time that it gets quiet, until ctx ends: what the busiest moment took would else stay, of
// each cell's egress, also where a thousand connections only wait.
func rest(ctx context.Context, look time.Duration) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	allocs := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	busy, before := false, uint64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		metrics.Read(allocs)
		now := allocs[0].Value.Uint64()
		switch quiet := now-before < restBytes; {
		case !quiet:
			busy = true
		case busy:
			debug.FreeOSMemory()
			busy = false
		}
		before = now
	}
}
