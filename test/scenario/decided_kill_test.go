// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// deciding is a decision on its way, at a client of the page's API.
type deciding struct {
	*rig
	c      *client
	victim string
}

// crash kills the victim and starts it again.
func (d *deciding) crash() {
	d.t.Helper()
	d.Daemon(d.victim).Kill()
	if err := d.Daemon(d.victim).Start(); err != nil {
		d.t.Fatal(err)
	}
}

// back waits until the client is answered again. It signs in where its session went with sentinel.
func (d *deciding) back() {
	d.t.Helper()
	var last error
	d.eventually("the client is answered", func() bool {
		var no *refusedAs
		if last = d.c.ask("pending", struct{}{}, nil); errors.As(last, &no) && no.Status == 401 {
			last = d.c.login()
		}
		return last == nil
	})
}

// show waits until the card is shown.
func (d *deciding) show(id string) (o offered) {
	d.t.Helper()
	d.back()
	d.eventually("the card is shown", func() bool {
		var err error
		o, err = d.c.show(id)
		return err == nil
	})
	return o
}

// moments are those of a decision at which a daemon is killed. Each gets a card that waits, and leaves it as it may be then.
var moments = []struct {
	name string
	run  func(d *deciding, id string)
}{
	{"shown", func(d *deciding, id string) {
		d.show(id)
		d.crash()
	}},
	{"signed and not sent", func(d *deciding, id string) {
		o := d.show(id)
		signed := d.c.signs(&o, true)
		d.crash()
		d.back()
		state, err := d.c.decide(signed)
		var no *refusedAs
		if lost := errors.As(err, &no) && no.Code == string(wire.CodeExpired); state != "approved" && !(lost && d.victim == "sentinel") &&
			!(errors.As(err, &no) && no.Status == 503) {
			d.t.Errorf("sent after it was killed: %s, %v", state, err)
		}
	}},
	{"sent and not answered", func(d *deciding, id string) {
		o := d.show(id)
		signed, over := d.c.signs(&o, true), make(chan struct{})
		sent := *d.c
		go func() {
			defer close(over)
			_, _ = sent.decide(signed) // whatever it is told: the truth is what show says
		}()
		time.Sleep(time.Duration(len(id)*int(id[len(id)-1])%40) * time.Millisecond) // somewhere on the way; the id's end is random
		d.crash()
		<-over
	}},
	{"approved and not executing", func(d *deciding, id string) {
		held := "authd" // who has to grant before anything runs
		if d.victim == held {
			held = "worker-github"
		}
		if err := d.Daemon(held).Freeze(); err != nil {
			d.t.Fatal(err)
		}
		o := d.show(id)
		if state, err := d.c.decide(d.c.signs(&o, true)); err != nil || state == "parked" {
			d.t.Errorf("decided: %s, %v", state, err)
		}
		d.crash()
		if err := d.Daemon(held).Thaw(); err != nil {
			d.t.Fatal(err)
		}
	}},
	{"executing", func(d *deciding, id string) {
		d.github.Faults.Add(standin.Fault{Method: "POST", Times: 1, DelayMS: 600})
		before := d.writes()
		o := d.show(id)
		if state, err := d.c.decide(d.c.signs(&o, true)); err != nil || state == "parked" {
			d.t.Errorf("decided: %s, %v", state, err)
		}
		d.eventually("the request is at the vendor", func() bool { return d.writes() > before })
		d.crash()
	}},
	{"done and not told", func(d *deciding, id string) {
		o := d.show(id)
		if state, err := d.c.decide(d.c.signs(&o, true)); err != nil || state == "parked" {
			d.t.Errorf("decided: %s, %v", state, err)
		}
		d.ended(id)
		d.crash()
	}},
}

// writes are the requests that have come to the vendor, answered or not.
func (d *deciding) writes() int {
	n := 0
	for _, q := range d.github.Rec.All() {
		if q.Method == "POST" {
			n++
		}
	}
	return n
}

// made counts the issues of that title that the vendor made. One that is unknown may be made later, while others run.
func (d *deciding) made(title string) int {
	n := 0
	for _, q := range d.github.Rec.All() {
		if q.Method == "POST" && q.Handled && bytes.Contains(q.Body, []byte(fmt.Sprintf("%q", title))) {
			n++
		}
	}
	return n
}

// Whatever is killed, at whichever moment of a decision: the call that was approved runs once or not at all, what is said of it is
// so, and the client comes to know it by asking. One that still waits can be decided again.
func TestEverythingRestartsInADecision(t *testing.T) {
	victims := []string{"sentinel", "approvals", "page", "authd", "egress", "worker-github"}
	r := newRig(t, world.Options{Page: true})
	c := r.client()
	for _, victim := range victims {
		t.Run(victim, func(t *testing.T) {
			d := &deciding{r.with(t), c, victim}
			for i, m := range moments {
				title, id := fmt.Sprintf("%s %d", victim, i), ""
				d.eventually("a call waits", func() bool { // also while what was killed comes back
					id = d.tryPark(title)
					return id != ""
				})
				m.run(d, id)
				o := d.show(id)
				if o.Card.State == "parked" { // not lost: it is decided again
					if i > 2 {
						t.Errorf("%s: it was approved, and waits again", m.name)
					}
					d.eventually("it is decided again", func() bool {
						o := d.show(id)
						if o.Card.State != "parked" {
							return true
						}
						_, err := d.c.decide(d.c.signs(&o, true))
						return err == nil
					})
				}
				state := d.ended(id)
				n := d.made(title)
				switch {
				case state == wire.StateDone && n == 1, state == wire.StateUnknown && n <= 1:
				case slices.Contains([]wire.State{wire.StateFailed, wire.StateRevoked, wire.StateExpired}, state) && n == 0:
				default:
					t.Errorf("%s: it is %s, and the vendor did it %d times", m.name, state, n)
				}
				if told := d.show(id).Card.State; told != string(state) {
					t.Errorf("%s: the client is told %s, it is %s", m.name, told, state)
				}
				t.Logf("%s: %s, %d", m.name, state, n)
			}
		})
	}
}

// tryPark has the cell make a call that waits, and returns its id, empty where that did not work.
func (d *deciding) tryPark(title string) string {
	d.t.Helper()
	res, err := d.work.Actor().Connector(d.ctx(), append(issue("ada/site", title), "--json", "--wait", "0s")...)
	if err != nil || res.Code != wire.ExitWaiting {
		return ""
	}
	return callOf(d.t, res)
}
