// SPDX-License-Identifier: Apache-2.0

package daemon

import "runtime"

// OneThread has the process run one thread of Go at a time. A daemon that only passes things on does short pieces of
// work between waits; with more threads each piece wakes another that finds nothing to do, which costs more than the
// work; docs/performance.md has the one comparison. It is not for one that waits for a disk.
func OneThread() { runtime.GOMAXPROCS(1) }
