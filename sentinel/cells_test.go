// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

func cellsDaemon() *daemon.Call {
	return &daemon.Call{Peer: peer.Identity{Kind: peer.Unit, Unit: "doorward-cells.service", Name: "cells"}}
}

// A session that cells told of is attended as it said, by nobody once another of its cell is not, and over when it is.
func TestSessionsAsCellsTells(t *testing.T) {
	s := newSentinel(t)
	told := func(r wire.CellSessionReq) error {
		_, err := s.cellSession(t.Context(), cellsDaemon(), &r)
		return err
	}
	who := func(name, session string, start uint64) peer.Identity {
		return peer.Identity{Kind: peer.Cell, Name: name, Session: session, Start: start, Unit: "doorward-cell@" + name + ".service"}
	}
	attended := func(id peer.Identity) bool {
		t.Helper()
		_, yes, err := s.session(id)
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	run := wire.CellSessionReq{Cell: "work", Session: "run-a", Start: 7, Attended: true, By: "user-1000"}
	if err := told(run); err != nil {
		t.Fatal(err)
	}
	if err := told(run); err != nil {
		t.Errorf("told twice: %v", err)
	}
	if !attended(who("work", "run-a", 7)) {
		t.Error("the run is not attended")
	}
	for what, id := range map[string]peer.Identity{"another cell's run": who("work2", "run-a", 7), "the payload of another": who("home", "payload", 9)} {
		if attended(id) {
			t.Errorf("%s is attended", what)
		}
	}
	// A run of that name that is another start is another session, and takes attendance from its neighbour.
	if attended(who("work", "run-a", 8)) || attended(who("work", "run-a", 7)) {
		t.Error("it is attended beside one that is not")
	}
	for _, start := range []uint64{8, 7, 7} {
		if err := told(wire.CellSessionReq{Cell: "work", Session: "run-a", Start: start, Ended: true}); err != nil {
			t.Error(err)
		}
	}
	if err := s.running(who("work", "run-a", 7)); codeOf(err) != wire.CodeExpired {
		t.Errorf("a call after the end: %v", err)
	}
	for _, r := range []wire.CellSessionReq{{Cell: "work", Session: "run-b"}, {Cell: "work", Session: "x", Start: 1},
		{Cell: "../work", Session: "run-b", Start: 1}, {Cell: "work", Session: "run-b/x", Start: 1}, {Session: "run-b", Start: 1}} {
		if err := told(r); codeOf(err) != wire.CodeBadArgument {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work"}); err != nil {
		t.Fatal(err)
	}
	if err := told(wire.CellSessionReq{Cell: "work", Session: "run-c", Start: 11}); codeOf(err) != wire.CodeStopped {
		t.Errorf("one begins in a stopped cell: %v", err)
	}
	if err := told(wire.CellSessionReq{Cell: "work2", Session: "run-c", Start: 12}); err != nil {
		t.Errorf("control: %v", err)
	}
}

// Without cells the switch does the rest, and says what it could not do.
func TestTheSwitchSaysThatItDidNotFreeze(t *testing.T) {
	s := newSentinel(t)
	r, err := s.stop(t.Context(), ada(), &wire.StopReq{Cell: "work"})
	if err != nil || !slices.ContainsFunc(r.Lines, func(l string) bool { return strings.Contains(l, "not frozen") }) {
		t.Errorf("%v %v", r, err)
	}
	cells, all := s.halts()
	if all || !slices.Equal(cells, []string{"work"}) {
		t.Errorf("stopped: %q, all: %v", cells, all)
	}
}
