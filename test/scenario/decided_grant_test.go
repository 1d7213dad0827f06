// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// A yes with a grant is on record with its call or not at all, wherever sentinel or approvals is killed on the way: what was signed is
// sent, and the kill comes at a moment of chance.
func TestAGrantAndItsCallAreOne(t *testing.T) {
	const rounds = 16
	r := newRig(t, world.Options{Page: true})
	c := r.client()
	both, neither := 0, 0
	for i := range rounds {
		d := &deciding{r, c, []string{"sentinel", "approvals"}[i%2]}
		id, title := "", fmt.Sprintf("granted %d", i)
		d.eventually("a call waits", func() bool {
			id = d.tryPark(title)
			return id != ""
		})
		d.show(id)
		var o struct {
			Card struct {
				Grantable json.RawMessage
			}
		}
		if err := c.ask("show", map[string]string{"call": id}, &o); err != nil || len(o.Card.Grantable) == 0 {
			t.Fatalf("%s, %v", o.Card.Grantable, err)
		}
		offer := d.show(id)
		signed, over := c.signsGrant(&offer, o.Card.Grantable), make(chan struct{})
		sent := *c
		go func() {
			defer close(over)
			_, _ = sent.decide(signed) // whatever it is told
		}()
		time.Sleep(time.Duration(rand.IntN(6000)) * time.Microsecond)
		d.crash()
		<-over
		state := d.show(id).Card.State
		grants := 0
		d.eventually("the grants are listed", func() bool {
			var list struct {
				Grants []struct {
					Limits []struct {
						Field  string
						Values []string
					}
				}
			}
			if err := c.ask("grants", struct{}{}, &list); err != nil {
				return false
			}
			grants = 0
			for _, g := range list.Grants {
				for _, l := range g.Limits {
					if l.Field == "title" && len(l.Values) == 1 && l.Values[0] == title {
						grants++
					}
				}
			}
			return true
		})
		switch {
		case state == "parked" && grants == 0:
			neither++
		case state != "parked" && grants == 1:
			both++
			if state := d.ended(id); (state == wire.StateDone) != (d.made(title) == 1) && state != wire.StateUnknown || d.made(title) > 1 {
				t.Errorf("%s killed: it is %s, and the vendor did it %d times", d.victim, state, d.made(title))
			}
		default:
			t.Errorf("%s killed: the call is %s, and there are %d grants of it", d.victim, state, grants)
		}
	}
	t.Logf("both %d times, neither %d times", both, neither)
}
