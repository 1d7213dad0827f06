// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// final are the states that a call does not leave; `unknown` may be settled later, to what the vendor saw.
var final = []wire.State{wire.StateDone, wire.StateFailed, wire.StateUnknown, wire.StateDenied, wire.StateExpired,
	wire.StateRevoked}

// stateOf is what sentinel says has become of a call.
func stateOf(t *testing.T, id string) (wire.State, error) {
	t.Helper()
	r := person(t, "", "show", id, "--json")
	var card struct{ State wire.State }
	if err := json.Unmarshal([]byte(r.stdout), &card); err != nil || r.code != 0 {
		return "", fmt.Errorf("doorward show: %w: %v", err, r)
	}
	return card.State, nil
}

// titled counts the issues of that title that the vendor's recorder saw asked for.
func titled(title string) (n int) {
	for _, q := range gh.Rec.Find("POST", "/repos/") {
		if strings.Contains(string(q.Body), `"`+title+`"`) {
			n++
		}
	}
	return n
}

// park makes a write that waits, whatever else waits already.
func park(t *testing.T, title string) string {
	t.Helper()
	r := connector(t, "github", "issue-create", "--repo", "ada/site", "--title", title, "--wait", "0s", "--json")
	want(t, r, 4, "a write")
	return parkedAs(t, r)
}

// parkedAs is the id in what is said of a call that waits.
func parkedAs(t *testing.T, r result) string {
	t.Helper()
	var s struct{ Call string }
	for line := range strings.Lines(r.stderr) {
		if json.Unmarshal([]byte(line), &s) == nil && s.Call != "" {
			return s.Call
		}
	}
	t.Fatalf("no id in %v", r)
	return ""
}

// load is calls in flight: reads, and writes that are approved and waited for.
type load struct {
	ids    map[string]string // id of a write → its title
	reads  []result
	waits  map[string]result
	errs   []error // of entering the cell
	mu     sync.Mutex
	wg     sync.WaitGroup
	before int // requests that the vendors had seen
}

func begun(t *testing.T, name string) *load {
	t.Helper()
	l := &load{ids: map[string]string{}, waits: map[string]result{}}
	for i := range 3 {
		title := fmt.Sprintf("%s %d", name, i)
		l.ids[park(t, title)] = title
	}
	l.before = len(gh.Rec.All()) + len(dav.Rec.All())
	for i := range 6 {
		args := []string{"dav", "calendars"}
		if i%2 == 0 {
			args = []string{"github", "issues", "--repo", "ada/site"}
		}
		l.wg.Go(func() {
			r, err := entered("work", 1000, "run-1", append([]string{"/usr/bin/connector"}, args...)...)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.reads, l.errs = append(l.reads, r), append(l.errs, err)
		})
	}
	for id := range l.ids {
		l.wg.Go(func() { _ = person(t, "", "approve", id, "--yes") }) // one that is not heard is repeated
		l.wg.Go(func() {
			r, err := entered("work", 1000, "run-1", "/usr/bin/connector", "wait", id, "--wait", "2m")
			l.mu.Lock()
			defer l.mu.Unlock()
			l.waits[id], l.errs = r, append(l.errs, err)
		})
	}
	return l
}

// session makes the agent's session a new one: reads are counted over one, and ask beyond 200.
func session(t *testing.T) {
	t.Helper()
	eventually(t, "the session's cgroup is empty", func() error {
		if err := os.Remove(cellUnit + "/run-1"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
}

// told says whether a command that did not end well says in which way.
func told(r result) bool {
	return r.code == 0 || r.code >= 1 && r.code <= 8 && strings.Contains(r.stderr, "connector: ")
}

// Each unit is killed, and restarted, under calls. Each call ends in one of its states, its caller is told which, none
// runs twice by the vendor's own record; what waits in a socket is served, and no connection of the cell is left.
func TestFullUnitsKilledUnderLoad(t *testing.T) {
	ready(t)
	const cell = "doorward-cell@work.service"
	n := 0
	for _, unit := range append(slices.Clone(services), cell) {
		for _, how := range [][]string{{"kill", "-s", "KILL"}, {"restart"}} {
			n++
			t.Run(unit+" "+how[0], func(t *testing.T) {
				session(t)
				l := begun(t, fmt.Sprintf("Killed %d", n))
				for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && len(gh.Rec.All())+len(dav.Rec.All()) == l.before; {
					time.Sleep(20 * time.Millisecond)
				}
				must(t, "systemctl", append(how, unit)...)
				l.wg.Wait()
				if unit == cell {
					_, _ = run("systemctl", "stop", cell) // after a kill it is failed, and goes on with the next start
					must(t, "systemctl", "start", cell)
				}
				// What a person runs in a cell ends with the daemon of cells, and so with either.
				l.ended(t, unit == cell || unit == "doorward-cells.service")
				eventually(t, "a read of dav", func() error { return readsOf(t, "dav") })
				eventually(t, "a read of github", func() error { return readsOf(t, "github") })
				eventually(t, "no connection of the cell is left", nothingOpen)
			})
		}
	}
}

// ended holds a load to its end. The callers of a cell that was killed have gone with it.
func (l *load) ended(t *testing.T, callersGone bool) {
	t.Helper()
	counts := map[wire.State]int{}
	for id, title := range l.ids {
		var state wire.State
		eventually(t, "the call has ended", func() error {
			var err error
			if state, err = stateOf(t, id); err != nil {
				return err
			}
			if state == wire.StateParked {
				if r := person(t, "", "approve", id, "--yes"); r.code != 0 {
					return fmt.Errorf("approve: %v", r)
				}
			}
			if !slices.Contains(final, state) {
				return errors.New(string(state))
			}
			return nil
		})
		counts[state]++
		most, least := 1, 0
		switch state {
		case wire.StateDone:
			least = 1
		case wire.StateFailed, wire.StateDenied, wire.StateExpired, wire.StateRevoked:
			most = 0
		}
		if n := titled(title); n < least || n > most {
			t.Errorf("%s is %s, and the vendor saw it %d times", title, state, n)
		}
		eventually(t, "the cell is told", func() error {
			if r := connector(t, "result", id); (r.code == 0) != (state == wire.StateDone) || !told(r) {
				return fmt.Errorf("%s is %s, and the cell is told %v", title, state, r)
			}
			return nil
		})
	}
	t.Logf("writes: %v", counts)
	if callersGone {
		return
	}
	if err := errors.Join(l.errs...); err != nil {
		t.Error(err)
	}
	codes := map[int]int{}
	for _, r := range l.reads {
		codes[r.code]++
		if !told(r) {
			t.Errorf("a read ended without words: %v", r)
		}
	}
	for id, r := range l.waits {
		if !told(r) {
			t.Errorf("who waits for %s is not told: %v", id, r)
		}
	}
	t.Logf("reads ended with %v", codes)
}

// nothingOpen says whether a connection stands on a socket of the cell. It is found at the end that was accepted, which
// has the socket's path.
func nothingOpen() error {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return err
	}
	const connected = "03"
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 8 && f[5] == connected && strings.HasPrefix(f[7], wire.CellDir) {
			return fmt.Errorf("a connection: %s", line)
		}
	}
	return nil
}

// All units are restarted at once, again and again, and each time calls pass soon after.
func TestFullAllUnitsRestartedAgainAndAgain(t *testing.T) {
	ready(t)
	for i := range 25 {
		session(t)
		begin := time.Now()
		how := "restart"
		if i%5 == 4 {
			how = "kill -s KILL"
		}
		must(t, "systemctl", append(strings.Fields(how), services...)...)
		for _, vendor := range []string{"dav", "github"} {
			eventually(t, fmt.Sprintf("round %d, %s: a read of %s", i, how, vendor), func() error { return readsOf(t, vendor) })
		}
		t.Logf("round %d, %s: reads pass after %.1f s", i, how, time.Since(begin).Seconds())
	}
}
