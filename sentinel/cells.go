// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// cellSession is the cells' daemon's word that a session begins or is over. A session that somebody attends is one that
// it told of before anything ran in it. In a cell that the switch has stopped none begins.
func (s *Sentinel) cellSession(ctx context.Context, c *daemon.Call, req *wire.CellSessionReq) (*wire.Empty, error) {
	who := peer.Identity{Kind: peer.Cell, Name: req.Cell, Session: req.Session, Start: req.Start}
	if id, err := peer.Parse("/doorward.slice/doorward-cells.slice/doorward-cell@" + req.Cell + ".service/" + req.Session); err != nil ||
		id.Name != req.Cell || id.Session != req.Session || req.Start == 0 {
		return nil, wire.Refuse(wire.CodeBadArgument, "that is no session of a cell", "")
	}
	ctx = context.WithoutCancel(ctx)
	if req.Ended {
		gone, err := s.ledger.EndSession(ctx, sessionID(who), "it is over", "cells")
		s.cutEnded(gone)
		if err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return nil, s.ledgerError(err)
		}
		return &wire.Empty{}, nil
	}
	if err := s.stopped(req.Cell); err != nil {
		return nil, wire.Refuse(wire.CodeStopped, "a person has stopped cell "+req.Cell, "doorward stop --resume "+req.Cell)
	}
	now := s.ledger.Now()
	begun := ledger.Session{ID: sessionID(who), Cell: req.Cell, Attended: req.Attended, Began: now, Until: now.Add(sessionFor)}
	if req.Attended {
		begun.By = short(req.By)
	} else {
		begun.Run = short(req.By)
	}
	if _, err := s.ledger.BeginSession(ctx, begun, "cells"); err != nil {
		return nil, s.ledgerError(err)
	}
	return &wire.Empty{}, nil
}

// freezeCells has a cell frozen, or all, and says how it went.
func (s *Sentinel) freezeCells(ctx context.Context, cell string) []string {
	var done wire.FreezeResp
	err := inTimeOf(ctx, func(ctx context.Context) error {
		return s.freezer.Call(ctx, "freeze", &wire.FreezeReq{Cell: cell}, &done)
	})
	if err != nil {
		return []string{"the cell is not frozen, and what runs in it goes on without Doorward: " + err.Error()}
	}
	var lines []string
	for _, f := range done.Failed {
		lines = append(lines, "not frozen: cell "+f)
	}
	switch {
	case len(done.Cells) > 0:
		lines = append(lines, "frozen: "+strings.Join(done.Cells, ", "))
	case len(lines) == 0 && cell == "":
		lines = append(lines, "nothing to freeze: no cell runs")
	case len(lines) == 0:
		lines = append(lines, "nothing to freeze: cell "+cell+" does not run")
	}
	return lines
}

// halts are the cells that the switch has stopped, by name; all is whether it is off for every cell.
func (s *Sentinel) halts() (cells []string, all bool) {
	for _, v := range s.ledger.Settings(stopKey("")) {
		if len(v.Value) > 0 {
			cells = append(cells, strings.TrimPrefix(v.Key, stopKey("")))
		}
	}
	if halted := s.halted.Load(); halted != nil {
		for key := range *halted {
			cells = append(cells, strings.TrimPrefix(key, stopKey("")))
		}
	}
	all = slices.Contains(cells, "")
	return slices.DeleteFunc(cells, func(c string) bool { return c == "" }), all
}

// thawCells lets go on what the switch no longer stops. What the other setting still stops stays frozen.
func (s *Sentinel) thawCells(ctx context.Context, cell string) {
	keep, all := s.halts()
	if all || cell != "" && slices.Contains(keep, cell) {
		return
	}
	err := inTimeOf(ctx, func(ctx context.Context) error {
		return s.freezer.Call(ctx, "thaw", &wire.FreezeReq{Cell: cell, Keep: keep}, &wire.FreezeResp{})
	})
	if err != nil {
		s.log.Error("a cell may still be frozen", "cell", orElse(cell, "all"), "err", err.Error())
	}
}

// freezeStopped brings cells up to date: frozen is what the switch has stopped, whatever happened while cells was away.
func (s *Sentinel) freezeStopped(ctx context.Context, l *daemon.Link) error {
	stopped, all := s.halts()
	if all {
		stopped = []string{""}
	}
	for _, cell := range stopped {
		if err := l.Call(ctx, "freeze", &wire.FreezeReq{Cell: cell}, &wire.FreezeResp{}); err != nil {
			return err
		}
	}
	if all {
		return nil
	}
	return l.Call(ctx, "thaw", &wire.FreezeReq{Keep: stopped}, &wire.FreezeResp{})
}
