// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/test/vendors/discord"
	"github.com/doorward/doorward/test/world"
)

// loops are programs of the cell that send requests without end: reads of channels that are each another, a write that nobody
// approved, and a read with a key of an attacker's own. Each says what it got in a file.
func (r *botRig) loops(sur string) {
	r.t.Helper()
	if err := os.WriteFile(r.path("surrogate"), []byte(sur), 0o644); err != nil {
		r.t.Fatal(err)
	}
	const curl = "/usr/bin/curl --disable --silent --max-time 5 --output /dev/null "
	for _, script := range []string{
		"i=0; while :; do i=$((i+1)); " + curl + `--header "Authorization: Bot $(cat ` + r.path("surrogate") + `)" ` + api + "/channels/77$i; done",
		"while :; do " + curl + `--header "Authorization: Bot $(cat ` + r.path("surrogate") + `)" --header 'Content-Type: application/json' --data '{"content":"x"}' ` +
			messages + "; " + curl + `--header "Authorization: Bot attackers.own.key" ` + api + "/users/@me; sleep 0.2; done",
	} {
		p, err := r.work.Actor().Start(world.Cmd{UID: 1000, Args: []string{"/bin/sh", "-c", script}})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { p.Kill(); _, _ = p.Wait() })
	}
}

// TestKilledUnderLoadOfInterceptedRequests is must-hold 8 of requests: sentinel, the cell's egress, authd and what makes the cell's
// walls are killed and started while programs of the cell send requests. While one is away nothing goes; then the same surrogate
// works again, and names keep their addresses. In the end each request that Discord saw carried the real credential and stands on
// the record, and none came that asks or is not allowed. Control: with sentinel's yes to a write it comes.
func TestKilledUnderLoadOfInterceptedRequests(t *testing.T) {
	r := newBotRig(t)
	r.issue("work", "discord")
	sur := r.surrogate(r.work, "discord")
	address := func() string {
		t.Helper()
		res, err := r.work.Actor().Run(r.ctx(), "/usr/bin/getent", "ahostsv4", "discord.com")
		if err != nil || res.Code != 0 {
			t.Fatalf("%v, %v", err, res)
		}
		return strings.Fields(res.Stdout)[0]
	}
	was := address()
	r.loops(sur)
	goesOn := func(behind string) {
		t.Helper()
		n := r.count()
		r.eventually("requests go on behind "+behind, func() bool { return r.count() > n+2 })
		if now := address(); now != was {
			t.Errorf("behind %s discord.com is %s, and was %s", behind, now, was)
		}
	}
	goesOn("the start")
	for _, name := range []string{"sentinel", "egress@work", "authd", "authd", "egress@work", "sentinel"} {
		r.Daemon(name).Kill()
		time.Sleep(300 * time.Millisecond) // what had its credential by then may arrive
		n := r.count()
		time.Sleep(time.Second)
		if r.count() != n {
			t.Errorf("without %s %d requests went", name, r.count()-n)
		}
		if err := r.Daemon(name).Start(); err != nil {
			t.Fatal(err)
		}
		goesOn("a kill of " + name)
	}
	for _, after := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		if err := r.Walls("work", after); err != nil {
			t.Fatal(err)
		}
		if err := r.Walls("work", 0); err != nil {
			t.Fatal(err)
		}
		goesOn(fmt.Sprintf("a kill of cellnet after %v", after))
	}
	// All at once.
	for _, name := range []string{"authd", "egress@work", "sentinel"} {
		r.Daemon(name).Kill()
	}
	for _, name := range []string{"authd", "sentinel", "egress@work"} {
		if err := r.Daemon(name).Start(); err != nil {
			t.Fatal(err)
		}
	}
	goesOn("a kill of all")

	decided := map[string]bool{}
	for _, e := range r.events(0) {
		var x struct {
			Type    string
			Details struct{ Method, Path, Surrogate string }
		}
		if err := json.Unmarshal([]byte(e.Raw), &x); err != nil {
			t.Fatal(err)
		}
		if x.Type == "request" && x.Details.Surrogate == "discord" {
			decided[x.Details.Method+" "+x.Details.Path] = true
		}
	}
	all := r.came(0)
	r.real(all, sur)
	for _, q := range all {
		if q.Method != "GET" || !strings.HasPrefix(q.Path, discord.API+"/channels/77") {
			t.Errorf("%s %s came", q.Method, q.Path)
		}
		if !decided[q.Method+" "+q.Path] {
			t.Errorf("%s %s came, and no decision is on the record", q.Method, q.Path)
		}
	}
	t.Logf("%d requests came", len(all))

	for _, card := range r.waitPending(1) {
		if strings.HasPrefix(card.Title, "POST ") {
			r.doorward(0, "approve", card.ID, "--yes")
		}
	}
	r.eventually("control: a write comes once it is approved", func() bool { return r.discord.Rec.Handled("POST", discord.API) == 1 })
}
