// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// wallActor is whose word it is that the walls did not hold.
const wallActor = "cellnet"

// canary takes cellnet's word of the walls in the kernel: what they have refused, and that they did not hold, for which it has
// frozen the cells already. Neither changes what sentinel decides.
//
// An attacker in a cell can have refusals told of, so each cell has the allowance for them that its connections have; it chooses
// ports and numbers, and no text.
func (s *Sentinel) canary(ctx context.Context, _ *daemon.Call, req *wire.CanaryReq) (*wire.Empty, error) {
	if len(req.Refused) > wire.MaxWallRefusals || len(req.Failed) > wire.MaxWallReason {
		return nil, wire.Refuse(wire.CodeTooMany, "more than is told of at once", "")
	}
	for _, r := range req.Refused {
		if r.Cell != "" && wire.CellName(r.Cell) != nil || r.Worker != "" && wire.CellName(r.Worker) != nil || r.Count == 0 {
			return nil, wire.Refuse(wire.CodeBadArgument, "that is no refusal", "")
		}
	}
	if req.Failed != "" {
		ev := ledger.Event{Type: ledger.EvAlarm, Actor: wallActor, Details: wallDetails{Reason: clip(req.Failed, wire.MaxWallReason),
			Next: "journalctl -u doorward-canary; a cell goes on when it is stopped and started again"}}
		if err := s.ledger.Record(ctx, ev); err != nil {
			return nil, s.ledgerError(err)
		}
	}
	unlisted := req.Unlisted
	for _, r := range req.Refused {
		if !s.mayRecord(netAllowance(cmp.Or(r.Cell, "worker:"+r.Worker)), connectCost) {
			unlisted += r.Count
			continue
		}
		if err := s.ledger.Record(ctx, wallEvent(&r)); err != nil {
			return nil, s.ledgerError(err)
		}
	}
	if unlisted > 0 {
		ev := ledger.Event{Type: ledger.EvRefused, Actor: "kernel", Details: wallDetails{Reason: "unlisted", Times: unlisted}}
		if err := s.ledger.Record(ctx, ev); err != nil {
			return nil, s.ledgerError(err)
		}
	}
	return &wire.Empty{}, nil
}

// wallDetails are those of other refusals, and what the kernel knows of a socket.
type wallDetails struct {
	Reason string `json:"reason"`
	Next   string `json:"next,omitzero"`
	Detail string `json:"detail,omitzero"`
	Times  uint64 `json:"times,omitzero"` // how many more there were
	Family uint16 `json:"family,omitzero"`
	Type   uint16 `json:"type,omitzero"`
	Proto  uint32 `json:"proto,omitzero"`
	Port   uint16 `json:"port,omitzero"`
}

func wallEvent(r *wire.WallRefusal) ledger.Event {
	d := wallDetails{Reason: short(r.Why), Times: r.Count - 1, Family: r.Family, Type: r.Type, Proto: r.Proto, Port: r.Port}
	switch r.Family {
	case 0:
	case 2, 10:
		d.Detail = map[uint16]string{2: "IPv4", 10: "IPv6"}[r.Family]
		if r.Port != 0 {
			d.Detail += " to port " + strconv.Itoa(int(r.Port))
		}
	default:
		d.Detail = fmt.Sprintf("address family %d", r.Family)
	}
	ev := ledger.Event{Type: ledger.EvRefused, Actor: "kernel", Cell: r.Cell, Details: d}
	if r.Worker != "" { // which has no use of a network: somebody has taken it over
		ev.Subject = "worker:" + r.Worker
	}
	return ev
}
