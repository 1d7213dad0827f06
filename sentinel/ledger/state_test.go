// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// machine is the whole machine of design section 6, written down a second time.
const machine = `
          parked approved executing done failed unknown denied expired revoked
none      x      .        x         .    .      .       x      .       .
parked    .      x        .         .    .      .       x      x       x
approved  .      .        x         .    x      .       .      x       x
executing .      .        .         x    x      x       .      .       .
done      .      .        .         .    .      .       .      .       .
failed    .      .        .         .    .      .       .      .       .
unknown   .      .        .         x    x      .       .      .       .
denied    .      .        .         .    .      .       .      .       .
expired   .      .        .         .    .      .       .      .       .
revoked   .      .        .         .    .      .       .      .       .
`

func table(t *testing.T) map[[2]State]bool {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(machine), "\n")
	heads := strings.Fields(lines[0])
	out := map[[2]State]bool{}
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		from := State(strings.Replace(f[0], "none", "", 1))
		for i, x := range f[1:] {
			out[[2]State{from, State(heads[i])}] = x == "x"
		}
	}
	if len(out) != len(States())*(len(States())-1) {
		t.Fatal("the table is not whole:", len(out))
	}
	return out
}

func TestEveryTransition(t *testing.T) {
	for k, want := range table(t) {
		if May(k[0], k[1]) != want {
			t.Errorf("%q to %q: %v, want %v", k[0], k[1], !want, want)
		}
	}
	for _, s := range States() {
		if May(s, None) {
			t.Errorf("%q can become nothing", s)
		}
		if s.Final() && len(next[s]) > 0 {
			t.Errorf("%q is final and goes on", s)
		}
	}
}

// tester opens a ledger with a clock that the test turns.
func tester(t *testing.T) (*Ledger, *atomic.Int64) {
	t.Helper()
	var ahead atomic.Int64
	clock, err := bootClock()
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := Open(t.Context(), Options{Dir: newDir(t), Key: testKey, Log: quiet(), Now: func() Moment {
		return clock().Add(time.Duration(ahead.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, &ahead
}

// bring makes a call and takes it to a state.
func bring(t *testing.T, l *Ledger, s State) Call {
	t.Helper()
	ctx := context.Background()
	c := write("a", NewID())
	c.Pass = c.ID
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal("bring a call to", s, err)
		}
	}
	if s == None {
		return c
	}
	if s == Denied {
		_, err := l.Refuse(ctx, c, "cell:a")
		ok(err)
		return c
	}
	_, _, err := l.Park(ctx, c, "cell:a")
	ok(err)
	switch s {
	case Expired:
		_, err = l.Revoke(ctx, c.ID, "x", "x", "")
		// An expired one needs a deadline: made below.
	case Revoked:
		_, err = l.Revoke(ctx, c.ID, "cell:a", "cancelled", "")
	case Approved, Executing, Done, Failed, Unknown:
		_, err = l.Approve(ctx, Approval{ID: c.ID, By: "person:1", Hash: c.Approval})
	}
	ok(err)
	if s == Expired {
		e := write("a", NewID())
		e.Deadline = l.Now().Add(-time.Second)
		_, _, err := l.Park(ctx, e, "cell:a")
		ok(err)
		_, _, err = l.Expire(ctx)
		ok(err)
		return e
	}
	if s == Executing || s == Done || s == Failed || s == Unknown {
		_, err = l.Execute(ctx, c.ID, c.ID)
		ok(err)
	}
	if s == Done || s == Failed || s == Unknown {
		_, err = l.Finish(ctx, c.ID, Outcome{State: s}, "w")
		ok(err)
	}
	return c
}

// TestEveryVerbInEveryState tries each verb on a call in each state: it does what the machine allows, or changes
// nothing and says what the call is.
func TestEveryVerbInEveryState(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	allowed := table(t)
	verbs := map[string]struct {
		to  State
		do  func(c Call) error
		not []State // where the machine would allow it and another verb is for that
	}{
		"approve": {Approved, func(c Call) error {
			_, err := l.Approve(ctx, Approval{ID: c.ID, By: "person:2", Hash: c.Approval})
			return err
		}, nil},
		"deny":    {Denied, func(c Call) error { _, err := l.Deny(ctx, c.ID, "person:2", ""); return err }, nil},
		"revoke":  {Revoked, func(c Call) error { _, err := l.Revoke(ctx, c.ID, "person:2", "stop", ""); return err }, nil},
		"execute": {Executing, func(c Call) error { _, err := l.Execute(ctx, c.ID, "p"+c.ID); return err }, nil},
		"finish as done": {Done, func(c Call) error {
			_, err := l.Finish(ctx, c.ID, Outcome{State: Done}, "w")
			return err
		}, []State{Unknown}},
		"finish as failed": {Failed, func(c Call) error {
			_, err := l.Finish(ctx, c.ID, Outcome{State: Failed}, "w")
			return err
		}, []State{Unknown}},
		"finish as unknown": {Unknown, func(c Call) error {
			_, err := l.Finish(ctx, c.ID, Outcome{State: Unknown}, "w")
			return err
		}, nil},
		"settle as done": {Done, func(c Call) error {
			_, err := l.Settle(ctx, c.ID, Outcome{State: Done}, "w")
			return err
		}, []State{Executing}},
		"settle as failed": {Failed, func(c Call) error {
			_, err := l.Settle(ctx, c.ID, Outcome{State: Failed}, "w")
			return err
		}, []State{Executing, Approved}},
	}
	for name, v := range verbs {
		for _, from := range States() {
			c := bring(t, l, from)
			err := v.do(c)
			want := from != None && allowed[[2]State{from, v.to}] && !slices.Contains(v.not, from)
			after := State(None)
			if got, e := l.Call(ctx, c.ID); e == nil {
				after = got.State
			} else if !errors.Is(e, ErrNotFound) {
				t.Fatal(e)
			}
			var se *StateError
			switch {
			case want && (err != nil || after != v.to):
				t.Errorf("%s a %q call: %v, it is %q", name, from, err, after)
			case !want && (!errors.As(err, &se) || se.Have != from || after != from):
				t.Errorf("%s a %q call: %v, it is %q", name, from, err, after)
			}
		}
	}
	r, err := l.Verify(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	clean(t, "after all that", r)
}

func TestTwoApprovalsOneWins(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	for range 20 {
		c := bring(t, l, Parked)
		var wg sync.WaitGroup
		var won atomic.Int32
		var winner atomic.Value
		errs := make([]error, 12)
		for i := range errs {
			wg.Go(func() {
				by := fmt.Sprint("person:", i)
				var err error
				switch i % 3 {
				case 0:
					_, err = l.Deny(ctx, c.ID, by, "")
				default:
					_, err = l.Approve(ctx, Approval{ID: c.ID, By: by, Hash: c.Approval})
				}
				if err == nil {
					won.Add(1)
					winner.Store(by)
				}
				errs[i] = err
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatal("winners:", won.Load())
		}
		for _, err := range errs {
			var se *StateError
			if err != nil && (!errors.As(err, &se) || se.By != winner.Load() || (se.Have != Approved && se.Have != Denied)) {
				t.Fatal("a loser was told:", err)
			}
		}
	}
}

func TestIdenticalCallsAtOnce(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	for name, enter := range map[string]func(c Call) (Call, bool, error){
		"parked": func(c Call) (Call, bool, error) { return l.Park(ctx, c, "cell:a") },
		"begun":  func(c Call) (Call, bool, error) { return l.Begin(ctx, c, "cell:a") },
	} {
		var wg sync.WaitGroup
		var first atomic.Int32
		ids := make([]string, 40)
		for i := range ids {
			wg.Go(func() {
				c, joined, err := enter(write("a", name))
				if err != nil {
					t.Error(err)
				}
				if !joined {
					first.Add(1)
				}
				ids[i] = c.ID
			})
		}
		wg.Wait()
		if first.Load() != 1 || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 1 {
			t.Errorf("%s: %d calls of %v", name, first.Load(), ids)
		}
		other, joined, err := enter(write("b", name))
		if err != nil || joined || other.ID == ids[0] {
			t.Error("another cell's call joined:", err)
		}
	}
}

func TestAfterAnUnknownOneItAsks(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	c := write("a", "t")
	c.Pass = "p"
	if _, _, err := l.Begin(ctx, c, "cell:a"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(ctx, c.ID, Outcome{State: Unknown}, "sentinel"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Begin(ctx, write("a", "t"), "cell:a"); !errors.Is(err, ErrMayRun) {
		t.Fatal("it ran again:", err)
	}
	p, joined, err := l.Park(ctx, write("a", "t"), "cell:a")
	if err != nil || joined || p.After != c.ID {
		t.Fatal(p.After, joined, err)
	}
	if _, err := l.Deny(ctx, p.ID, "person:1", ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Begin(ctx, write("a", "t"), "cell:a"); !errors.Is(err, ErrMayRun) {
		t.Fatal("after a denial it ran again:", err)
	}
	if _, err := l.Settle(ctx, c.ID, Outcome{State: Failed}, "egress"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Begin(ctx, write("a", "t"), "cell:a"); err != nil {
		t.Fatal("once it is settled:", err)
	}
}

func TestDeadlinesOnBothClocks(t *testing.T) {
	now := Moment{Wall: 1_000_000_000, Boot: 1_000_000_000_000, BootID: "b"}
	end := now.Add(time.Hour)
	for name, c := range map[string]struct {
		at   Moment
		want bool
	}{
		"before":                         {now.Add(59 * time.Minute), false},
		"at it":                          {now.Add(time.Hour), true},
		"the wall clock set back":        {Moment{now.Wall - 1e12, now.Boot + 2*time.Hour.Nanoseconds(), "b"}, true},
		"the wall clock set forward":     {Moment{now.Wall + 1e12, now.Boot, "b"}, true},
		"after a reboot, before":         {Moment{now.Wall + 1, now.Boot + 2*time.Hour.Nanoseconds(), "c"}, false},
		"after a reboot, past":           {Moment{end.Wall, 5, "c"}, true},
		"the boot clock cannot be read":  {Moment{now.Wall + 1, 0, ""}, false},
		"and the wall clock has reached": {Moment{end.Wall, 0, ""}, true},
	} {
		if got := c.at.Reached(end); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if now.Reached(Moment{}) {
		t.Error("no deadline was reached")
	}
	if got := now.At(now.Time().Add(time.Minute)); got != now.Add(time.Minute) {
		t.Error(got)
	}
}

func TestLateApprovalAndLateExecution(t *testing.T) {
	ctx := context.Background()
	l, ahead := tester(t)
	park := func() Call {
		c := write("a", NewID())
		c.Deadline = l.Now().Add(time.Hour)
		if _, _, err := l.Park(ctx, c, "cell:a"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	yes := func(c Call) error {
		_, err := l.Approve(ctx, Approval{ID: c.ID, By: "person:1", Hash: c.Approval})
		return err
	}
	late, approved, swept := park(), park(), park()
	if err := yes(approved); err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(2 * time.Hour))
	if err := yes(late); !errors.Is(err, ErrExpired) {
		t.Error("approved late:", err)
	}
	var se *StateError
	if err := yes(late); !errors.As(err, &se) || se.Have != Expired {
		t.Error("approved after expiry:", err)
	}
	if _, err := l.Execute(ctx, approved.ID, "p"); !errors.Is(err, ErrExpired) {
		t.Error("executed late:", err)
	}
	got, _, err := l.Expire(ctx)
	if err != nil || len(got) != 1 || got[0].ID != swept.ID || got[0].State != Expired {
		t.Error(got, err)
	}
}

// What waits is known without a look into the file, also after a restart: the look for what is due comes every second,
// and a card may have half a megabyte.
func TestExpireReadsNoCards(t *testing.T) {
	ctx := context.Background()
	dir := newDir(t)
	l, _ := openAt(t, dir)
	due := write("a", "due")
	due.Deadline = l.now().Add(-time.Second)
	later, gone := write("a", "later"), write("b", "gone")
	later.Deadline, gone.Deadline = l.now().Add(time.Hour), l.now().Add(-time.Second)
	for _, c := range []Call{due, later, gone} {
		if _, _, err := l.Park(ctx, c, "cell:a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Revoke(ctx, gone.ID, "cell:b", "revoked", ""); err != nil {
		t.Fatal(err)
	}
	closeNow(t, l)
	l, _ = openAt(t, dir)
	if w := l.Waiting(); len(w) != 2 || w[0].ID == gone.ID || w[1].ID == gone.ID || w[1].Method != "issue-create" {
		t.Fatalf("%+v", w)
	}
	if err := l.reads().Close(); err != nil {
		t.Fatal(err)
	}
	if got, _, err := l.Expire(ctx); err != nil || len(got) != 1 || got[0].ID != due.ID {
		t.Error(got, err)
	}
	if got, _, err := l.Expire(ctx); err != nil || len(got) != 0 {
		t.Error("expired twice:", got, err)
	}
	if w := l.Waiting(); len(w) != 1 || w[0].ID != later.ID {
		t.Errorf("%+v", w)
	}
}

func TestAtMostFiftyWaitPerCell(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	for i := range MaxParked {
		if _, _, err := l.Park(ctx, write("a", fmt.Sprint(i)), "cell:a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := l.Park(ctx, write("a", "one more"), "cell:a"); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
	if _, joined, err := l.Park(ctx, write("a", "7"), "cell:a"); err != nil || !joined {
		t.Error("an equal one must still join:", err)
	}
	if _, _, err := l.Park(ctx, write("b", "one more"), "cell:b"); err != nil {
		t.Error("another cell must not feel it:", err)
	}
	dropped, _, err := l.DropParked(ctx, "a", "person:1", "stopped", "")
	if err != nil || len(dropped) != MaxParked {
		t.Error(len(dropped), err)
	}
}

func TestAReleasedCallHasNotSurelyNotRun(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	c := bring(t, l, Executing)
	if _, err := l.Tell(ctx, c.ID, Told{Release: &Release{Pass: c.ID, Seq: 3}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(ctx, c.ID, Outcome{State: Failed, NotRun: true}, "sentinel"); err == nil {
		t.Fatal("the credential was out, and the call surely did not run")
	}
	if got, _ := l.Call(ctx, c.ID); got.State != Executing {
		t.Fatal(got.State)
	}
	if _, err := l.Tell(ctx, "nobody's", Told{Release: &Release{Pass: "nobody's", Seq: 1, Call: "lost", Cell: "alpha"}}); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	es, err := l.Entries(ctx, Query{Types: []string{EvReleased}})
	if err != nil || len(es) != 2 || es[1].Call != "lost" || es[1].Cell != "alpha" {
		t.Fatal("a release that no call has is not on the record:", len(es), err)
	}
}

func TestAReportToldTwiceCountsOnce(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	c := read("a")
	c.Pass = c.ID
	if err := l.Start(ctx, c, "cell:a").Wait(ctx); err != nil {
		t.Fatal(err)
	}
	for _, report := range []string{"e1/1", "e1/1", "e1/2", "e2/1", "e1/1"} {
		if _, err := l.Tell(ctx, c.ID, Told{Sent: &Sent{Pass: c.ID, Status: 200, In: 10, Report: report}}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := l.Call(ctx, c.ID)
	if err != nil || got.In != 30 || l.Reads("s1", "github") != (ReadCount{1, 30}) {
		t.Fatal(got.In, l.Reads("s1", "github"), err)
	}
}

func TestAResultAfterTheEnd(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	c := bring(t, l, Executing)
	if err := l.SetResult(ctx, c.ID, "ref"); !errors.Is(err, ErrState) {
		t.Fatal("a result before the end:", err)
	}
	if _, err := l.Finish(ctx, c.ID, Outcome{State: Done}, "worker:github"); err != nil {
		t.Fatal(err)
	}
	if err := l.SetResult(ctx, c.ID, "ref"); err != nil {
		t.Fatal(err)
	}
	in, err := l.Calls(ctx, Filter{Cell: "a", Inbox: true})
	if err != nil || len(in) != 1 || in[0].Result != "ref" {
		t.Fatal(in, err)
	}
	if err := l.SetResult(ctx, "nobody", "ref"); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
}

func TestRewindVoidsWhatWasApproved(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	parked, approved, executing := bring(t, l, Parked), bring(t, l, Approved), bring(t, l, Executing)
	g, err := l.AddGrant(ctx, Grant{Cell: "a", Kind: KindStanding}, "person:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Rewind(ctx, "test", nil); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]State{parked.ID: Parked, approved.ID: Revoked, executing.ID: Unknown} {
		if c, err := l.Call(ctx, id); err != nil || c.State != want {
			t.Error(want, c.State, err)
		}
	}
	if gs := l.Grants(GrantFilter{Live: true}); len(gs) != 0 {
		t.Error("a standing grant lives on:", gs)
	}
	u := write("a", "u")
	u.Under = g.ID
	if _, _, err := l.Begin(ctx, u, "cell:a"); !errors.Is(err, ErrSpent) {
		t.Error("an unconfirmed grant was used:", err)
	}
	if _, err := l.ConfirmGrant(ctx, g.ID, "person:1"); err != nil {
		t.Error(err)
	}
	if _, _, err := l.Begin(ctx, u, "cell:a"); err != nil {
		t.Error("a confirmed grant:", err)
	}
}

// For which checkpoint the ledger was put right lasts over a restart, and is part of the record.
func TestRewindRemembersItsCheckpoint(t *testing.T) {
	ctx := context.Background()
	dir := newDir(t)
	l, _ := openAt(t, dir)
	if l.Rewound([]byte("one")) || l.Rewound(nil) {
		t.Error("before there was any")
	}
	if _, _, err := l.Rewind(ctx, "test", []byte("one")); err != nil {
		t.Fatal(err)
	}
	closeNow(t, l)
	l, _ = openAt(t, dir)
	if !l.Rewound([]byte("one")) || l.Rewound([]byte("two")) || l.Rewound(nil) {
		t.Error("after a restart")
	}
	if r, err := l.Verify(ctx, nil); err != nil || len(r.Findings) != 0 {
		t.Error(r, err)
	}
	if _, _, err := l.Rewind(ctx, "test", nil); err != nil || !l.Rewound([]byte("one")) {
		t.Error("one without a checkpoint forgets nothing:", err)
	}
}

func TestSessionsEndTheirGrants(t *testing.T) {
	ctx := context.Background()
	l, _ := tester(t)
	s := Session{ID: "s1", Cell: "a", Attended: true, By: "person:1"}
	if _, err := l.BeginSession(ctx, s, "person:1"); err != nil {
		t.Fatal(err)
	}
	for _, g := range []Grant{{Cell: "a", Session: "s1", Kind: KindSession}, {Cell: "a", Session: "s2", Kind: KindSession},
		{Cell: "a", Kind: KindStanding}} {
		if _, err := l.AddGrant(ctx, g, "person:1"); err != nil {
			t.Fatal(err)
		}
	}
	ended, err := l.EndSession(ctx, "s1", "exit", "sentinel")
	if err != nil || len(ended) != 1 || len(l.Grants(GrantFilter{Live: true})) != 2 || len(l.Sessions("a")) != 0 {
		t.Fatal(ended, err)
	}
	if _, err := l.BeginSession(ctx, Session{ID: "s1", Cell: "a"}, "sentinel"); err == nil {
		t.Fatal("a session's name was used twice")
	}
	if gs, err := l.RevokeGrants(ctx, GrantFilter{Cell: "a"}, "person:1", "enough"); err != nil || len(gs) != 2 {
		t.Fatal(gs, err)
	}
}

func TestSettingsAndLabelsLastOverARestart(t *testing.T) {
	ctx := context.Background()
	dir := newDir(t)
	l, _ := openAt(t, dir)
	if err := l.PutSetting(ctx, "policy", []byte("digest"), "person:1", nil); err != nil {
		t.Fatal(err)
	}
	if err := l.AddLabels(ctx, "a", []string{"untrusted", "private"}, Cause{Method: "m"}, "sentinel"); err != nil {
		t.Fatal(err)
	}
	if out, err := l.ClearLabels(ctx, "a", []string{"private"}, "person:1", nil); err != nil || len(out) != 1 {
		t.Fatal(out, err)
	}
	closeNow(t, l)
	l, _ = openAt(t, dir)
	if s, ok := l.Setting("policy"); !ok || string(s.Value) != "digest" || s.By != "person:1" {
		t.Error(s)
	}
	if lb := l.Labels("a"); len(lb) != 1 || lb[0].Name != "untrusted" {
		t.Error(lb)
	}
	if out, err := l.ClearLabels(ctx, "a", nil, "person:1", nil); err != nil || len(out) != 1 || len(l.Labels("a")) != 0 {
		t.Error(out, err)
	}
}
