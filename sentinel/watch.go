// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"encoding/json"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// maxEvents is how many events one answer has at most.
const maxEvents = 500

// watchEvents answers with the states that calls came to behind an entry of the record, at once or within a minute. An event's number is
// that of its entry: whoever watches goes on over a restart, and has each once.
func (s *Sentinel) watchEvents(ctx context.Context, _ *daemon.Call, req *wire.WatchReq) (*wire.WatchResp, error) {
	timeout := time.NewTimer(50 * time.Second)
	defer timeout.Stop()
	for after := req.After; ; {
		s.mu.Lock()
		news := s.eventNews
		s.mu.Unlock()
		last := s.ledger.Size() - 1
		if after < 0 || after > last { // what comes next; or an older record was put back
			return &wire.WatchResp{Last: last}, nil
		}
		events, upTo, err := s.eventsOf(ctx, after+1, last+1)
		if err != nil {
			return nil, s.ledgerError(err)
		}
		if after = upTo; len(events) > 0 {
			return &wire.WatchResp{Events: events, Last: after}, nil
		}
		select {
		case <-news:
		case <-timeout.C:
			return &wire.WatchResp{Last: after}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// callEntries are the kinds of entries by which a call came to another state.
func callEntries() []string {
	return []string{ledger.EvPark, ledger.EvApprove, ledger.EvExecute, ledger.EvFinish, ledger.EvSettle, ledger.EvDeny, ledger.EvExpire,
		ledger.EvRevoke}
}

// eventsOf are the events of the entries from one up to before another, and the last entry that was looked at.
func (s *Sentinel) eventsOf(ctx context.Context, from, to int64) (out []wire.Event, last int64, err error) {
	last = to - 1
	if from >= to {
		return nil, last, nil
	}
	entries, err := s.ledger.Entries(ctx, ledger.Query{From: from, To: to, Limit: maxEvents, Types: callEntries()})
	if err != nil {
		return nil, last, err
	}
	if len(entries) == maxEvents {
		last = entries[maxEvents-1].N
	}
	for i := range entries {
		e := &entries[i]
		var d struct{ From, To, Object string }
		if len(e.Details) > 0 {
			_ = json.Unmarshal(e.Details, &d) // of one that was cut nothing is known but that it was
		}
		switch {
		case e.Type == ledger.EvPark:
			d.To = string(ledger.Parked)
		case d.From == "":
			continue // refused by policy, at once: whoever asked was told
		}
		c, err := s.ledger.Call(ctx, e.Call)
		if err != nil {
			return nil, last, err
		}
		at, err := time.Parse(time.RFC3339Nano, e.Time)
		if err != nil {
			return nil, last, err
		}
		out = append(out, wire.Event{N: e.N, ID: e.Call, State: wire.State(d.To), Unix: at.Unix(), Summary: c.Connector + " " + c.Method,
			Cell: c.Cell, Object: d.Object})
	}
	return out, last, nil
}
