// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/notices"
)

func wallsUnit() *daemon.Call {
	return &daemon.Call{Peer: peer.Identity{Kind: peer.Unit, Unit: "doorward-walls.service", Name: "walls"}}
}

// What the walls refused is on the record with its cell and how often, and that they did not hold is an alarm, which `why` shows.
func TestWhatTheWallsSayIsOnTheRecord(t *testing.T) {
	s := newSentinel(t)
	_, err := s.canary(t.Context(), wallsUnit(), &wire.CanaryReq{Failed: "UDP got through", Unlisted: 3, Refused: []wire.WallRefusal{
		{Cell: "work", Why: "udp", Family: 2, Type: 2, Proto: 17, Port: 443, Count: 7}, {Why: "socket", Family: 16, Type: 3, Count: 1},
		{Worker: "dav", Why: "worker-socket", Family: 2, Type: 1, Proto: 6, Count: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	alarms, refused := s.lines(t, ledger.EvAlarm), s.lines(t, ledger.EvRefused)
	if len(alarms) != 1 || !strings.Contains(alarms[0], `"reason":"UDP got through"`) || !strings.Contains(alarms[0], `"actor":"cellnet"`) {
		t.Errorf("%q", alarms)
	}
	want := [][]string{
		{`"cell":"work"`, `"reason":"udp"`, `"detail":"IPv4 to port 443"`, `"times":6`, `"family":2`, `"type":2`, `"port":443`},
		{`"reason":"socket"`, `"detail":"address family 16"`},
		{`"subject":"worker:dav"`, `"reason":"worker-socket"`, `"detail":"IPv4"`},
		{`"reason":"unlisted"`, `"times":3`},
	}
	if len(refused) != len(want) {
		t.Fatalf("%q", refused)
	}
	for i, words := range want {
		for _, w := range append(words, `"actor":"kernel"`) {
			if !strings.Contains(refused[i], w) {
				t.Errorf("%s is not in %s", w, refused[i])
			}
		}
	}
	if seen, err := s.ledger.Why(t.Context(), "", 10); err != nil || len(seen) != 5 {
		t.Errorf("%d, %v", len(seen), err)
	}
}

// That the walls did not hold is told by every channel at once, each time by itself, with what got through; what the walls refused, and
// another alarm, is not.
func TestAWallThatFailedIsTold(t *testing.T) {
	s := newSentinel(t)
	late := hookAt("https://pager.example.org/in")
	late.Channel.After = 3600
	if _, err := s.noticesVerb(t.Context(), root(), late); err != nil {
		t.Fatal(err)
	}
	for _, failed := range []string{"UDP got through", "", "UDP got through"} {
		req := &wire.CanaryReq{Failed: failed, Refused: []wire.WallRefusal{{Cell: "work", Why: "udp", Count: 1}}}
		if _, err := s.canary(t.Context(), wallsUnit(), req); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ledger.Record(t.Context(), ledger.Event{Type: ledger.EvAlarm, Actor: "sentinel"}); err != nil {
		t.Fatal(err)
	}
	all := s.dueNow(t)
	if len(all) != 2 || all[0].State != notices.WallFailed || all[0].Title != "UDP got through" || all[0].ID == all[1].ID || all[1].Count != 1 {
		t.Errorf("%+v", all)
	}
}

// A cell cannot fill the record by what the kernel refuses it: beyond its allowance it is a sum. Another cell's are listed still.
func TestTheWallsRefusalsAreBounded(t *testing.T) {
	s := newSentinel(t)
	s.spend(netAllowance("work"), recordBurst)
	_, err := s.canary(t.Context(), wallsUnit(), &wire.CanaryReq{Refused: []wire.WallRefusal{
		{Cell: "work", Why: "udp", Count: 900}, {Cell: "play", Why: "udp", Count: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	have := strings.Join(s.lines(t, ledger.EvRefused), "")
	if strings.Contains(have, `"cell":"work"`) || !strings.Contains(have, `"cell":"play"`) || !strings.Contains(have, `"times":900`) {
		t.Error(have)
	}
	for name, bad := range map[string]wire.CanaryReq{
		"no cell":   {Refused: []wire.WallRefusal{{Cell: "../x", Why: "udp", Count: 1}}},
		"no worker": {Refused: []wire.WallRefusal{{Worker: "../x", Why: "udp", Count: 1}}},
		"none":      {Refused: []wire.WallRefusal{{Cell: "work", Why: "udp"}}},
		"too many":  {Refused: make([]wire.WallRefusal, wire.MaxWallRefusals+1)},
		"too long":  {Failed: strings.Repeat("x", wire.MaxWallReason+1)},
	} {
		if _, err := s.canary(t.Context(), wallsUnit(), &bad); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
