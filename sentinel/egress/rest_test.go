// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

var garbage []byte

// What a busy moment took goes back when it is over. Control: without rest it stays.
func TestMemoryGoesBackAtRest(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10_000))
	const took = 128 << 20
	held := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapSys - m.HeapReleased)
	}
	busy := func() {
		for range took / (1 << 20) {
			garbage = make([]byte, 1<<20)
		}
		garbage = nil
	}
	busy()
	time.Sleep(100 * time.Millisecond)
	if n := held(); n < took {
		t.Fatalf("control: %d MiB are held", n>>20)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- rest(ctx, 20*time.Millisecond) }()
	busy()
	for end := time.Now().Add(time.Minute); held() > took/2 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := held(); n > took/2 {
		t.Errorf("%d MiB are held", n>>20)
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}
