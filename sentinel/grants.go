// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// grants are a cell's live grants of a connector, and of one method where it is named, as the policy reads them. One that was
// given for a method as it is no more covers nothing, also where its end could not be written yet.
func (s *Sentinel) grants(cell, vendor, method string) []wire.Grant {
	var out []wire.Grant
	for _, g := range s.ledger.Grants(ledger.GrantFilter{Cell: cell, Connector: vendor, Method: method, Live: true}) {
		if g.Meaning != s.grantMeaning(&g) {
			continue
		}
		out = append(out, s.asGrant(&g))
	}
	return out
}

// asGrant is a ledger's grant for others. A session grant names the session as the policy does, without its cell.
func (s *Sentinel) asGrant(g *ledger.Grant) wire.Grant {
	w := wire.Grant{ID: g.ID, Connector: g.Connector, Method: g.Method, Account: g.Account, Cell: g.Cell,
		Session: strings.TrimPrefix(g.Session, g.Cell+"/"), Kind: g.Kind, Count: int64(g.Uses), Used: int64(g.Used),
		Tainted: g.Tainted, Made: g.Created.Time().Unix(), By: g.By}
	if !g.Until.IsZero() {
		w.Until = g.Until.Time().Unix()
	}
	if !g.LastUse.IsZero() {
		w.LastUse = g.LastUse.Time().Unix()
	}
	if g.State != ledger.GrantLive {
		w.Revoked = g.Ended.Time().Unix()
	}
	var kept keptLimits
	if err := json.Unmarshal(g.Limits, &kept); err != nil {
		// Our own row is not what we wrote: a grant whose limits cannot be read covers nothing.
		s.log.Error("a grant's limits cannot be read", "grant", g.ID, "err", err.Error())
		w.Kind = ""
	}
	w.Limits, w.Sentence = kept.Limits, kept.Sentence
	return w
}

type keptLimits struct {
	Limits   []wire.Limit `json:"limits"`
	Sentence string       `json:"sentence"`
}

// asKept is a validated grant for the ledger, of a method that means what is given.
func asKept(g *wire.Grant, login uint64, meaning string, sensitive bool, now ledger.Moment) (*ledger.Grant, error) {
	limits, err := json.Marshal(keptLimits{g.Limits, g.Sentence})
	if err != nil {
		return nil, err
	}
	k := &ledger.Grant{ID: ledger.NewID(), Cell: g.Cell, Connector: g.Connector, Method: g.Method, Account: g.Account,
		Login: login, Meaning: meaning, Kind: g.Kind, Limits: limits, Tainted: g.Tainted, Sensitive: sensitive, Uses: int(g.Count)}
	if g.Session != "" {
		k.Session = g.Cell + "/" + g.Session
	}
	if g.Until != 0 {
		k.Until = now.At(time.Unix(g.Until, 0))
	}
	return k, nil
}

// labels of a cell, design section 9.
func (s *Sentinel) labels(cell string) []string {
	var out []string
	for _, l := range s.ledger.Labels(cell) {
		out = append(out, l.Name)
	}
	return out
}

// firstTime are those of the recipients that no call which was done has reached before.
func (s *Sentinel) firstTime(recipients []string) []string {
	return slices.DeleteFunc(slices.Clone(recipients), func(r string) bool {
		_, known := s.ledger.Setting("wrote/" + r)
		return known
	})
}

// remember keeps whom a write that was done has reached.
func (s *Sentinel) remember(c *ledger.Call) {
	if c.State != ledger.Done || c.Class == describe.Read {
		return
	}
	o, err := s.recallBound(c)
	if err == nil {
		for _, r := range s.firstTime(o.Recipients) {
			err = errors.Join(err, s.ledger.PutSetting(s.lifetime, "wrote/"+r, []byte(c.ID), "sentinel", nil))
		}
	}
	if err != nil {
		s.log.Warn("whom a call reached is not remembered", "call", c.ID, "err", err.Error())
	}
}
