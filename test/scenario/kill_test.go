// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// settleIn is how long a step is given to be reached. A step that is not reached in time means another kill, never a
// wrong verdict: the daemon that is stopped holds the call back for certain.
const settleIn = 250 * time.Millisecond

// A step is a place in a write's way at which it is held while a daemon is killed.
type step struct {
	name string
	// before the release of the credential for certain, so that the call can not have run
	before bool
	// hold stops what must not go on; reach is called when the write is on its way, and returns when it is there
	hold  []string
	reach func(h *held)
}

// held is a write on its way.
type held struct {
	*rig
	worker string
	rec    *standin.Recorder
	faults *standin.Faults
	seen   int // requests before
}

// steps are the steps of an executing write, in order. `worker` stands for the vendor's.
var steps = []step{
	{name: "asked for a grant", before: true, hold: []string{"authd"}, reach: nil},
	{name: "granted, the worker has not read", before: true, hold: []string{"worker"}, reach: nil},
	{name: "borrowing", before: true, hold: []string{"worker"}, reach: func(h *held) {
		h.stop("authd")
		h.cont(h.worker)
	}},
	{name: "borrowed, egress has not read", before: true, hold: []string{"egress"}, reach: nil},
	// The question lies at authd, which answers it when it goes on, also to an egress that has gone meanwhile.
	{name: "resolving", hold: []string{"egress"}, reach: func(h *held) {
		h.stop("authd")
		h.cont("egress")
	}},
	{name: "at the vendor, which has not acted", reach: func(h *held) { h.arrived() }},
	{name: "acted on, egress has not read", reach: func(h *held) {
		h.arrived()
		h.stop("egress")
		h.acted()
	}},
	{name: "answered, the worker has not read", reach: func(h *held) {
		h.arrived()
		h.stop(h.worker)
		h.acted()
	}},
	{name: "finishing", reach: func(h *held) {
		h.arrived()
		h.stop("sentinel")
		h.acted()
	}},
}

func (h *held) daemon(name string) *world.Daemon {
	if name == "worker" {
		name = h.worker
	}
	return h.Daemon(name)
}

func (h *held) stop(name string) {
	if err := h.daemon(name).Freeze(); err != nil {
		h.t.Error(err)
	}
}

func (h *held) cont(name string) {
	if err := h.daemon(name).Thaw(); err != nil {
		h.t.Error(err)
	}
}

// within waits for something that need not come about.
func within(d time.Duration, ok func() bool) {
	for end := time.Now().Add(d); !ok() && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
}

func (h *held) writesSeen(handled bool) int {
	n := 0
	for _, q := range h.rec.All() {
		if (q.Method == "POST" || q.Method == "PUT") && (!handled || q.Handled) {
			n++
		}
	}
	return n
}

func (h *held) arrived() { within(3*time.Second, func() bool { return h.writesSeen(false) > h.seen }) }
func (h *held) acted() {
	within(3*time.Second, func() bool { return h.writesSeen(true) > h.seen })
	time.Sleep(settleIn)
}

// at brings a write to a step, kills one daemon there, and brings everything up again. start sets the write going and
// returns when it has ended as far as its caller is concerned.
func (r *rig) at(s step, vendor, victim string, start func()) {
	r.t.Helper()
	h := &held{rig: r, worker: "worker-" + vendor, rec: r.github.Rec, faults: r.github.Faults}
	method := "POST"
	if vendor == "dav" {
		h.rec, h.faults, method = r.dav.Rec, r.dav.Faults, "PUT"
	}
	h.seen = h.writesSeen(false)
	h.faults.Add(standin.Fault{Method: method, Times: 1, DelayMS: 600})
	for _, name := range s.hold {
		h.stop(name)
	}
	done := make(chan struct{})
	go func() { defer close(done); start() }()
	time.Sleep(settleIn)
	if s.reach != nil {
		s.reach(h)
		if s.before {
			time.Sleep(settleIn)
		}
	}
	h.daemon(victim).Kill()
	for _, d := range r.Daemons() {
		h.cont(d.Name)
	}
	if err := h.daemon(victim).Start(); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		r.t.Fatalf("%s, %s killed: the caller still waits", s.name, victim)
	}
	h.faults.Clear()
}

var victims = []string{"authd", "sentinel", "egress", "worker"}

// kill -9 of each daemon at each step of an allowed write: what the record says in the end is what the vendor saw.
func TestKillAtEachStepOfAnAllowedWrite(t *testing.T) {
	r := newRig(t, world.Options{})
	r.allow(r.work, "github", "issue-create", "--repo", "ada/notes", "--title", "first", "--body", "b")
	n := 0
	for _, s := range steps {
		for _, victim := range victims {
			from := r.end()
			n++
			title := fmt.Sprintf("allowed %d", n)
			var res world.Result
			r.at(s, "github", victim, func() {
				res, _ = r.work.Actor().Connector(r.ctx(), "github", "issue-create", "--repo", "ada/notes", "--title", title,
					"--body", "b", "--json")
			})
			r.bounded(from, s, victim, res)
		}
	}
	r.settle(0)
	t.Logf("in the end: %v", r.hold(0))
}

// bounded says what may have become of a write whose step is known for certain.
func (r *rig) bounded(from int64, s step, victim string, res world.Result) {
	r.t.Helper()
	r.t.Logf("%s, %s killed: the command ended so: %v", s.name, victim, res)
	r.quiet(from)
	for id, h := range r.writes(from) {
		if s.before && h.unknown {
			r.t.Errorf("%s, %s killed: call %s was unknown though nothing had been released\n%v", s.name, victim, id, res)
			for _, e := range h.events {
				r.t.Log(e.Raw)
			}
		}
	}
}

// quiet waits until no write is approved or executing.
func (r *rig) quiet(from int64) {
	r.t.Helper()
	r.none(from, "no write is on its way", wire.StateApproved, wire.StateExecuting)
}

// kill -9 of each daemon while a write is parked, and at each step from its approval on. The body is a prepared one.
func TestKillAtEachStepOfAParkedWrite(t *testing.T) {
	r := newRig(t, world.Options{})
	create := func(title string) []string {
		return []string{"dav", "event-create", "--calendar", r.dav.Calendar(), "--title", title, "--start",
			"2030-03-10T10:00:00", "--end", "2030-03-10T11:00:00", "--tz", "Europe/Berlin", "--json", "--wait", "0s"}
	}
	n := 0
	park := func() wire.Card {
		n++
		res := r.connector(r.work, 4, create(fmt.Sprintf("parked %d", n))...)
		return r.card(callOf(t, res))
	}
	for _, victim := range victims {
		// Being asked: the worker renders, or authd is to be asked.
		for _, held := range []string{"worker-dav", "authd"} {
			from := r.end()
			n++
			title := fmt.Sprintf("asking %d", n)
			r.at(step{name: "asked, " + held + " stopped", before: true, hold: []string{held}}, "dav", victim, func() {
				_, _ = r.work.Actor().Connector(r.ctx(), create(title)...)
			})
			for id, h := range r.writes(from) {
				if h.state != wire.StateParked && h.state != wire.StateDenied {
					t.Errorf("asking, %s killed: call %s is %s", victim, id, h.state)
				}
			}
		}
		// Parked: the call waits over the restart and then runs once.
		card := park()
		name := victim
		if name == "worker" {
			name = "worker-dav"
		}
		r.Daemon(name).Kill()
		if err := r.Daemon(name).Start(); err != nil {
			t.Fatal(err)
		}
		r.eventually("the card can be decided", func() bool {
			_, err := r.tryDecide(card, true)
			return err == nil
		})
		r.quiet(0)
		if got := r.card(card.ID).State; got != wire.StateDone && victim == "sentinel" {
			t.Errorf("parked, %s killed, approved: %s", victim, got)
		}
	}
	for _, s := range steps {
		for _, victim := range victims {
			card := park()
			from := r.end()
			r.at(s, "dav", victim, func() { _, _ = r.tryDecide(card, true) })
			r.bounded(from, s, victim, world.Result{})
		}
	}
	r.settle(0)
	t.Logf("in the end: %v", r.hold(0))
	// What is done can still be collected, by the cell that asked and once the labels are on.
	for id, h := range r.writes(0) {
		if h.state == wire.StateDone {
			r.connector(r.work, 0, "result", id, "--json")
		}
	}
}

// kills is how often a daemon is killed at random: 200 times, or what DOORWARD_KILLS says.
func kills(t *testing.T) int {
	if s := os.Getenv("DOORWARD_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if testing.Short() {
		return 20
	}
	return 200
}

// kill -9 of daemons at random, under load of both kinds of write at both vendors.
func TestKillAtRandom(t *testing.T) {
	r := newRig(t, world.Options{})
	// Many repositories: a mark is looked up in one answer of the vendor's list, and absence from a longer one proves
	// nothing.
	var repos []string
	for i := range 40 {
		name := fmt.Sprintf("r%d", i)
		r.github.State.AddRepo("ada", name, true)
		repos = append(repos, "ada/"+name)
	}
	r.allowWider(r.work, repos[1:], "github", "issue-create", "--repo", repos[0], "--title", "first", "--body", "b")
	var stop atomic.Bool
	var wg sync.WaitGroup
	var ended [9]atomic.Int64
	count := func(res world.Result, err error) {
		if err == nil && res.Code < len(ended) {
			ended[res.Code].Add(1)
		}
	}
	for i := range 2 {
		wg.Go(func() { // allowed
			for n := 0; !stop.Load(); n++ {
				count(r.work.Actor().Connector(r.ctx(), "github", "issue-create", "--repo", repos[(2*n+i)%len(repos)],
					"--title", fmt.Sprintf("random %d-%d", i, n), "--body", "b", "--json"))
			}
		})
	}
	wg.Go(func() { // parked
		for n := 0; !stop.Load(); n++ {
			count(r.home.Actor().Connector(r.ctx(), "dav", "event-create", "--calendar", r.dav.Calendar(), "--title",
				fmt.Sprintf("random %d", n), "--start", "2030-03-10T10:00:00", "--end", "2030-03-10T11:00:00", "--tz",
				"Europe/Berlin", "--json", "--wait", "0s"))
			var cards wire.PendingResp
			if r.ada.Ask(r.ctx(), wire.PathApprove, "pending", &wire.Empty{}, &cards) != nil {
				continue
			}
			for _, card := range cards.Cards {
				_, _ = r.tryDecide(card, true)
			}
		}
	})
	names := []string{"authd", "sentinel", "egress", "worker-dav", "worker-github"}
	for range kills(t) {
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		d := r.Daemon(names[rand.IntN(len(names))])
		d.Kill()
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	r.quiet(0)
	r.settle(0)
	var codes []string
	for code := range ended {
		codes = append(codes, fmt.Sprintf("%d: %d", code, ended[code].Load()))
	}
	t.Logf("the command ended with %s; in the end: %v", strings.Join(codes, ", "), r.hold(0))
}
