// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"slices"

	"github.com/doorward/doorward/internal/wire"
)

// cutTainted ends the connections that a cell opened before it counted as having read what others wrote: they were decided for
// a caller that had not, and may carry anything. It is called when the label stands and before the answer that brings it is let
// out. Where egress does not do it in time, the answer is not let out, and the next one tries again.
//
// Without it an agent opens a connection to every site that it may, reads a stranger's issue, and sends what that says.
func (s *Sentinel) cutTainted(ctx context.Context, cell string) error {
	untrusted := slices.Contains(s.labels(cell), wire.LabelUntrusted)
	s.mu.Lock()
	done := s.tainted[cell]
	if !untrusted {
		delete(s.tainted, cell)
	}
	s.mu.Unlock()
	if cell == "" || !untrusted || done {
		return nil
	}
	if _, err := s.cutCell(context.WithoutCancel(ctx), cell, wire.GrantRef{Cell: cell}); err != nil {
		s.log.Warn("connections outlive that their cell has read nothing of others", "cell", cell, "err", err.Error())
		return wire.Refuse(wire.CodeUnavailable, "the connections that the cell had open could not be ended, and its reading would "+
			"change what they may carry", "try again later")
	}
	s.mu.Lock()
	s.tainted[cell] = true
	s.mu.Unlock()
	return nil
}

// rememberTainted takes the cells that are labelled when sentinel starts for ones that were cut then.
func (s *Sentinel) rememberTainted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cell := range s.ledger.Labelled(wire.LabelUntrusted) {
		s.tainted[cell] = true
	}
}
