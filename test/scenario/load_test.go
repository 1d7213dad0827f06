// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/world"
)

// loadFor is how long the load lasts: 60 s, or DOORWARD_LOAD.
func loadFor(t *testing.T) time.Duration {
	if s := os.Getenv("DOORWARD_LOAD"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if testing.Short() {
		return 5 * time.Second
	}
	return time.Minute
}

// 100 commands at a time, from two cells, to both vendors: every one ends well. A load four times as long leaves no more
// descriptors and goroutines behind in any daemon than a short one: what stays are pools.
func TestLoadOfAHundredCommands(t *testing.T) {
	r := newRig(t, world.Options{})
	// So many reads would be asked about as bulk reads.
	r.doorward(0, "policy", "load", "--yes", r.policyFile("bulk-reads = 1000000\nbulk-bytes = 1000000000\n"))
	d := loadFor(t)
	r.load(d / 4)
	descriptors, goroutines := r.holds()
	if n := r.load(d); n < 5*slack {
		t.Errorf("only %d commands ran, too few to show a leak", n)
	}
	descriptorsAfter, goroutinesAfter := r.holds()
	t.Logf("descriptors %v, then %v; goroutines %v, then %v", descriptors, descriptorsAfter, goroutines, goroutinesAfter)
	for _, d := range r.Daemons() {
		if descriptorsAfter[d.Name] > descriptors[d.Name]+slack {
			t.Errorf("%s: %d descriptors, then %d", d.Name, descriptors[d.Name], descriptorsAfter[d.Name])
		}
		if goroutinesAfter[d.Name] > goroutines[d.Name]+slack {
			t.Errorf("%s: %d goroutines, then %d", d.Name, goroutines[d.Name], goroutinesAfter[d.Name])
		}
	}
}

// width is how many commands run at a time.
const width = 100

// slack is by how much the pools may differ between two loads of one width: each command may be the one that needed a
// connection more. The second load runs thousands, so a leak of one in many commands is more than that.
const slack = width

// load runs that many commands at a time for so long.
func (r *rig) load(d time.Duration) (total int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.(*testing.T).Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex // guards what follows
	done, bad := map[string]int{}, map[string]int{}
	for i := range width {
		cell, args := r.work, []string{"dav", "calendars", "--json"}
		if i%2 == 1 {
			cell = r.home
		}
		if i/2%2 == 1 {
			args = []string{"github", "repo-get", "--repo", "ada/site", "--json"}
		}
		name := cell.Name + " " + args[0]
		wg.Go(func() {
			for ctx.Err() == nil {
				res, err := cell.Actor().Connector(context.Background(), args...)
				mu.Lock()
				if err == nil && res.Code == 0 {
					done[name]++
				} else {
					bad[fmt.Sprintf("%s: %v %v", name, res, err)]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	r.t.Logf("done: %v", done)
	for what, n := range bad {
		r.t.Errorf("%d times: %s", n, what)
	}
	for _, name := range []string{"work dav", "work github", "home dav", "home github"} {
		if done[name] == 0 {
			r.t.Errorf("nothing was done of %s", name)
		}
		total += done[name]
	}
	return total
}

// holds is how many descriptors and goroutines each daemon has when the load has been over for a moment. To count the
// goroutines each daemon has to die with a dump of them, and is started again.
func (r *rig) holds() (descriptors, goroutines map[string]int) {
	r.t.Helper()
	time.Sleep(2 * time.Second)
	descriptors = map[string]int{}
	for _, d := range r.Daemons() {
		if d.PID() == 0 {
			r.t.Fatalf("%s ended: %v", d.Name, d.Err())
		}
		descriptors[d.Name] = r.descriptors(d)
	}
	return descriptors, r.goroutines()
}

func (r *rig) descriptors(d *world.Daemon) int {
	r.t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID()))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(fds)
}

// goroutines has each daemon die with a dump of its goroutines, counts them and starts it again.
func (r *rig) goroutines() map[string]int {
	r.t.Helper()
	out := map[string]int{}
	for _, d := range r.Daemons() {
		old := len(d.Log())
		done := d.Done()
		if err := d.Signal(syscall.SIGQUIT); err != nil {
			r.t.Fatal(err)
		}
		<-done
		out[d.Name] = strings.Count(d.Log()[old:], "\ngoroutine ")
		if out[d.Name] == 0 {
			r.t.Errorf("%s left no dump", d.Name)
		}
		if err := d.Start(); err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}
