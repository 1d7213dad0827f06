// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// auditPage is how many entries one answer of audit holds at most; what follows is asked for with After.
const auditPage = 500

var errEnough = errors.New("a page is full")

// audit reads the record. It changes nothing, so a full disk does not stop it.
func (s *Sentinel) audit(ctx context.Context, _ *daemon.Call, req *wire.AuditReq) (*wire.AuditResp, error) {
	limit := req.Limit
	if limit <= 0 || limit > auditPage {
		limit = auditPage
	}
	r := &wire.AuditResp{Last: req.After}
	size := 0
	add := func(e ledger.Entry) error {
		line := bytes.TrimRight(e.Line(), "\n")
		if size += len(line); len(r.Lines) >= limit || size > pageBytes && len(r.Lines) > 0 {
			return errEnough
		}
		r.Lines, r.Last = append(r.Lines, line), e.N+1
		return nil
	}
	all := func(entries []ledger.Entry, err error) (*wire.AuditResp, error) {
		for _, e := range entries {
			if err == nil {
				err = add(e)
			}
		}
		if r.More = errors.Is(err, errEnough); err != nil && !r.More {
			return nil, s.ledgerError(err)
		}
		return r, nil
	}
	switch req.Op {
	case "list": // the newest, oldest of them first
		entries, err := s.ledger.Entries(ctx, ledger.Query{From: req.After, About: req.ID, Newest: true, Limit: limit})
		slices.Reverse(entries)
		return all(entries, err)
	case "export":
		return all(s.ledger.Entries(ctx, ledger.Query{From: req.After, Limit: limit + 1, About: req.ID}))
	case "show":
		return all(s.ledger.Entries(ctx, ledger.Query{From: req.After, Limit: limit + 1, Call: req.ID}))
	case "follow":
		ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
		defer cancel()
		err := s.ledger.Follow(ctx, ledger.Query{From: req.After, About: req.ID}, func(e ledger.Entry) error {
			if err := add(e); err != nil {
				return err
			}
			if size, _ := s.ledger.Head(); e.N+1 >= size {
				return errEnough // hand over what there is
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, s.ledgerError(err)
		}
		return r, nil
	case "checkpoint":
		file, err := s.ledger.CheckpointFile(ctx)
		if err != nil {
			return nil, s.ledgerError(err)
		}
		r.Lines = [][]byte{file}
		return r, nil
	case "verify":
		report, err := s.ledger.Verify(ctx, req.Checkpoint)
		if err != nil {
			return nil, s.ledgerError(err)
		}
		line, err := json.Marshal(report)
		if err != nil {
			return nil, err
		}
		r.Lines = [][]byte{line}
		if f, bad := report.First(); bad {
			r.Err = wire.Refuse(wire.CodeInternal, "the record is not whole: "+f.String(),
				"keep the machine as it is and compare with the last checkpoint that left it")
		}
		return r, nil
	default:
		return nil, wire.Refuse(wire.CodeUsage, "audit: no operation "+quote(req.Op), "")
	}
}

// why explains the last refusals, newest first: of a call, a host, or at all. Lines are JSON. Where those of long
// arguments do not fit, More says so.
func (s *Sentinel) why(ctx context.Context, _ *daemon.Call, req *wire.WhyReq) (*wire.AuditResp, error) {
	entries, err := s.ledger.Why(ctx, req.About, 20)
	if err != nil {
		return nil, s.ledgerError(err)
	}
	r := new(wire.AuditResp)
	size := 0
	for _, e := range entries {
		line := bytes.TrimRight(e.Line(), "\n")
		if size += len(line); size > pageBytes && len(r.Lines) > 0 {
			r.More = true
			break
		}
		r.Lines, r.Last = append(r.Lines, line), e.N
	}
	return r, nil
}
