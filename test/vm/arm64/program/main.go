// SPDX-License-Identifier: Apache-2.0

// Command program does what a daemon has Go's runtime do: it raises its limit of files, grows its heap and gives it back,
// has threads, sleeps, and executes a helper.
package main

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		return
	}
	grow()
	var threads sync.WaitGroup
	for range 8 {
		threads.Go(func() { runtime.LockOSThread(); time.Sleep(time.Millisecond) })
	}
	threads.Wait()
	runtime.GC()
	time.Sleep(10 * time.Millisecond)
	if err := exec.Command(os.Args[0], "helper").Run(); err != nil {
		os.Exit(1)
	}
}

func grow() {
	var kept [][]byte
	for range 64 {
		b := make([]byte, 4<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
	runtime.KeepAlive(kept)
}
