// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// A taken-over worker renders more than the call says. Nobody is asked about it, nothing is sent, and it is on the
// record. The control is a title that makes the same worker render honestly: that one parks.
func TestARenderingThatSaysMoreIsRefusedBeforeTheDecision(t *testing.T) {
	dir := readable(t)
	worker, err := world.BuildTest("./test/attacks/renderer", dir)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, world.Options{Binary: map[string]string{"worker-dav": worker}})
	found := answer(t, r.connector(r.work, 0, "dav", "calendars", "--json"))
	calendar := found["calendars"].([]any)[0].(map[string]any)["calendar"].(string)
	create := func(title string) world.Result {
		t.Helper()
		res, err := r.work.Actor().Connector(r.ctx(), "dav", "event-create", "--calendar", calendar, "--title", title,
			"--start", "2030-03-10T13:00:00Z", "--end", "2030-03-10T14:00:00Z", "--location", "Room", "--wait", "0s", "--json")
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for _, lie := range []string{"guest", "link", "alarm", "time", "place", "second"} {
		res := create(lie)
		if res.Code == 0 || res.Code == wire.ExitWaiting || refusal(t, res).Code != wire.CodeBadPreparedBody {
			t.Errorf("%s: %v", lie, res)
		}
	}
	if n := len(r.pending()); n != 0 {
		t.Errorf("%d cards wait", n)
	}
	if n := r.dav.Rec.Handled("PUT", "/"); n != 0 {
		t.Errorf("%d events were written", n)
	}
	var log wire.AuditResp
	if err := r.ada.Ask(r.ctx(), wire.PathApprove, "audit", &wire.AuditReq{Op: "list", Limit: 200}, &log); err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for _, line := range log.Lines {
		recorded += strings.Count(string(line), string(wire.CodeBadPreparedBody))
	}
	if recorded < 6 {
		t.Errorf("%d of 6 refusals are on the record", recorded)
	}
	if res := create("nothing"); res.Code != wire.ExitWaiting { // the control
		t.Errorf("an honest rendering: %v", res)
	}
	card := r.waitPending(1)[0]
	r.decide(card, true)
	if res, err := r.work.Actor().Connector(r.ctx(), "wait", card.ID, "--json"); err != nil || res.Code != 0 ||
		r.dav.Rec.Handled("PUT", "/") != 1 {
		t.Errorf("an honest rendering, approved: %v %v", res, err)
	}
}
