// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"maps"
	"slices"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/policy"
)

// What a cell is told of the surrogates that were issued into it, without a value of one.

// maxIssuedHere is how many are listed, so that one answer holds them: each has 16 hosts at most.
const maxIssuedHere = 100

// issuedHere lists them.
func (s *Sentinel) issuedHere(cell string) *wire.SurrogateResp {
	all := s.allIssued()
	r := new(wire.SurrogateResp)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		is := all[key]
		if is.Cell != cell || is.over(time.Now()) || len(r.Issued) == maxIssuedHere {
			continue
		}
		place := s.placeOf(is)
		x := wire.IssuedHere{Name: is.Name, Place: place.Words(), Unix: is.Until}
		for _, h := range is.manifest.Hosts {
			x.Hosts = append(x.Hosts, h.String())
		}
		if _, err := s.usable(is); err != nil {
			x.Err = asError(s.log, err)
		}
		r.Issued = append(r.Issued, x)
	}
	return r
}

// placeOf is where an issue's surrogate stands.
func (s *Sentinel) placeOf(is *issued) wire.Placement {
	if p := s.accountNamed(is.Name).Placement; p != (wire.Placement{}) {
		return p
	}
	return is.manifest.Placement
}

// issuedElsewhere is what is issued into a cell for a host at another port than t's, or nil.
func (s *Sentinel) issuedElsewhere(cell string, t policy.Target) *issued {
	for _, is := range s.allIssued() {
		if is.Cell != cell || is.over(time.Now()) {
			continue
		}
		for _, h := range is.manifest.Hosts {
			if h.Port != t.Port && is.manifest.Covers(t.Name, h.Port) {
				return is
			}
		}
	}
	return nil
}
