// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// switchFor is how long the switch waits for one daemon: one that hangs must not keep the others from being told.
var switchFor = 3 * time.Second

// stop is the switch, in the order of design section 7. Turning it on again is a widening. Nothing that fails on the way
// keeps the rest from being done: a full disk least of all.
func (s *Sentinel) stop(ctx context.Context, c *daemon.Call, req *wire.StopReq) (*wire.Report, error) {
	if req.Cell != "" {
		if err := wire.CellName(req.Cell); err != nil { // it would stand in a title, and in what people are told, as if it were ours
			return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "doorward cell list")
		}
	}
	by := actor(c.Peer)
	what := orElse(req.Cell, "all cells")
	r := new(wire.Report)
	if req.Resume {
		id, err := s.widen(ctx, widening{Kind: widenResume, About: req.Cell, Lines: []string{what + " may ask again"}},
			"start "+what+" again", by)
		if err != nil {
			return nil, err
		}
		r.Widening = id
		return r, nil
	}
	ctx = context.WithoutCancel(ctx) // a person who hangs up does not stop a stop
	err := s.ledger.PutSetting(ctx, stopKey(req.Cell), []byte(by), by, nil)
	if err != nil {
		s.halt(stopKey(req.Cell), by)
	}
	r.Lines = append(r.Lines, "no new grants for "+what)
	if err != nil {
		r.Lines = append(r.Lines, "the stop is not on record yet and would not outlast a restart of sentinel: "+
			s.ledgerError(err).Error())
	}
	ref := wire.GrantRef{Cell: req.Cell, All: req.Cell == ""}
	var ended wire.RevokeResp
	if err := inTimeOf(ctx, func(ctx context.Context) error { return s.authd.Call(ctx, "revoke", &ref, &ended) }); err != nil {
		r.Lines = append(r.Lines, "authd did not answer; it voids every grant when its link is down: "+err.Error())
	} else {
		r.Lines = append(r.Lines, fmt.Sprintf("authd voided %d live grants", len(ended.Grants)))
	}
	s.passes.forget(req.Cell)
	s.mu.Lock()
	var running []*live
	for _, l := range s.live {
		if req.Cell == "" || l.call.Cell == req.Cell {
			running = append(running, l)
		}
	}
	s.mu.Unlock()
	if err := inTimeOf(ctx, func(ctx context.Context) error { return s.cut(ctx, ref) }); err != nil {
		r.Lines = append(r.Lines, "egress did not answer; nothing leaves while it is down: "+err.Error())
	} else {
		r.Lines = append(r.Lines, "egress cut the live traffic")
	}
	r.Lines = append(r.Lines, s.cutCells(ctx, req.Cell)...)
	s.endAll(ctx, running, wire.CodeStopped, whyStopped) // those that sentinel executes carry no cell at authd and egress
	n, executing, err := s.dropAll(ctx, req.Cell, by)
	if err != nil {
		r.Lines = append(r.Lines, "what waits is not dropped yet, and does not run: "+s.ledgerError(err).Error())
	} else {
		r.Lines = append(r.Lines, fmt.Sprintf("parked calls dropped: %d", n))
	}
	if req.Cell == "" { // the cards of accounts went with them, and are asked again
		s.askAccounts()
	}
	for _, l := range running {
		r.MayHaveRun = append(r.MayHaveRun, s.mayHaveRun(ctx, l)...)
	}
	for _, e := range executing {
		if !slices.ContainsFunc(running, func(l *live) bool { return l.call.ID == e.ID }) {
			r.MayHaveRun = append(r.MayHaveRun, fmt.Sprintf("%s %s %s was running", e.ID, e.Connector, e.Method))
		}
	}
	r.MayHaveRun = few(r.MayHaveRun, "doorward audit list")
	r.Lines = append(r.Lines, s.freezeCells(ctx, req.Cell)...)
	return r, nil
}

const whyStopped = "a person stopped the cell"

// dropAll takes back what waits of a cell, or of all. It says how much that was, and what was executing then.
func (s *Sentinel) dropAll(ctx context.Context, cell, by string) (n int, executing []ledger.Call, err error) {
	dropped, executing, err := s.ledger.DropParked(ctx, cell, by, string(wire.CodeStopped), whyStopped)
	for _, d := range dropped {
		s.forget(d.Spool)
		s.changed(d)
	}
	return len(dropped), executing, err
}

func inTimeOf(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, switchFor)
	defer cancel()
	return f(ctx)
}

// endAll ends calls that run: each is voided and cut before any is waited for. It says what could not be done.
func (s *Sentinel) endAll(ctx context.Context, all []*live, code wire.Code, why string) []string {
	trouble := make([][]string, len(all))
	var told sync.WaitGroup
	for i, l := range all {
		told.Go(func() {
			void := func(ctx context.Context) error { return s.voidGrant(ctx, l.call.Pass) }
			if err := inTimeOf(ctx, void); err != nil {
				trouble[i] = append(trouble[i], "authd did not void the grant of call "+l.call.ID+": "+err.Error())
			}
			cut := func(ctx context.Context) error { return s.cut(ctx, wire.GrantRef{Grant: l.call.Pass}) }
			if err := inTimeOf(ctx, cut); err != nil {
				trouble[i] = append(trouble[i], "call "+l.call.ID+" could not be cut on the wire: "+err.Error())
			}
		})
	}
	told.Wait()
	for _, l := range all {
		go s.abandon(ctx, l, code, why)
	}
	var out []string
	for _, t := range trouble {
		out = append(out, t...)
	}
	tick := time.NewTicker(5 * time.Millisecond) // the worker's word, or who waits for it, may end one too
	defer tick.Stop()
	runs := func(l *live) bool { return s.liveOf(l.call.Pass) != nil }
	for end := time.Now().Add(joinFor + switchFor); slices.ContainsFunc(all, runs); {
		if <-tick.C; time.Now().After(end) {
			return append(out, "not all of them have ended yet; the record will say how")
		}
	}
	return out
}

// stopped refuses where a person has turned the switch off.
func (s *Sentinel) stopped(cell string) error {
	halted := s.halted.Load()
	for _, key := range []string{stopKey(""), stopKey(cell)} {
		v, ok := s.ledger.Setting(key)
		if off := ok && len(v.Value) > 0; off || halted != nil && (*halted)[key] != "" {
			return wire.Refuse(wire.CodeStopped, "a person has stopped this cell", "only a person can start it again")
		}
	}
	return nil
}

// halt turns the switch off where the record cannot say so; recordHalts makes up for it.
func (s *Sentinel) halt(key, by string) {
	s.changeHalts(func(m map[string]string) { m[key] = by })
}

func (s *Sentinel) unhalt(key string) {
	s.changeHalts(func(m map[string]string) { delete(m, key) })
}

func (s *Sentinel) changeHalts(change func(map[string]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[string]string{}
	if have := s.halted.Load(); have != nil {
		next = maps.Clone(*have)
	}
	if change(next); len(next) == 0 {
		s.halted.Store(nil)
		return
	}
	s.halted.Store(&next)
}

// recordHalts puts on record which cells were stopped while it could not be written.
func (s *Sentinel) recordHalts(ctx context.Context) {
	halted := s.halted.Load()
	if halted == nil {
		return
	}
	for key, by := range *halted {
		if s.ledger.PutSetting(ctx, key, []byte(by), by, nil) != nil {
			return // the ledger says in the log what ails it
		}
		if _, _, err := s.dropAll(ctx, strings.TrimPrefix(key, stopKey("")), by); err != nil {
			return
		}
		s.unhalt(key)
	}
}
