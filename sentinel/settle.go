// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// A look for the mark of an unknown call. The first waits for a request that may still be on its way at the vendor;
// only two looks without it say that it did not run.
var lookAfter = 5 * time.Second

const (
	looks     = 2
	lookTries = 20 // looks that fail are repeated, each later than the one before
)

// newPass makes the id of a grant at authd. Its end names the run of authd that it is given to, so that after a restart
// of sentinel it is known whether that run still is the one that would know of releases.
func (s *Sentinel) newPass() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return newMark() + passEnd(s.instance)
}

func passEnd(instance string) string {
	d := wire.Sum([]byte(instance))
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	out := make([]byte, 6)
	for i := range out {
		out[i] = letters[d[i]&31]
	}
	return string(out)
}

// endOrphan ends a call that was executing when sentinel ended. It is never run again. authd has repeated what it
// released and sentinel had not acknowledged, if it is the same run of authd; then no release means that nothing left.
func (s *Sentinel) endOrphan(ctx context.Context, id, instance string) {
	c, err := s.ledger.Call(ctx, id)
	if err != nil || c.State != ledger.Executing {
		return
	}
	var o ledger.Outcome
	switch {
	case c.Class == describe.Read:
		o = ledger.Outcome{State: ledger.Failed, Code: string(wire.CodeUnavailable), Why: "sentinel restarted meanwhile"}
	case len(c.Releases) == 0 && strings.HasSuffix(c.Pass, passEnd(instance)):
		o = notRun(wire.CodeUnavailable, "sentinel restarted before anything was sent")
	case len(c.Releases) == 0:
		o = ledger.Outcome{State: ledger.Unknown, Code: string(wire.CodeUnknown), Why: "sentinel and authd restarted while it ran"}
	default:
		if o = s.witnessed(ctx, &c); o.State == ledger.Unknown {
			o.Why = "sentinel restarted while it ran"
		}
	}
	if c, err = s.ledger.Finish(ctx, id, o, "sentinel"); err != nil {
		s.log.Error("the end of a call is not recorded", "call", id, "err", err.Error())
		return
	}
	s.changed(c)
	if c.State == ledger.Unknown {
		go s.settle(ctx, c)
	}
}

// witnessed is witness for a call of which only the record is left.
func (s *Sentinel) witnessed(ctx context.Context, c *ledger.Call) ledger.Outcome {
	entries, err := s.ledger.Entries(ctx, ledger.Query{Call: c.ID, Types: []string{ledger.EvSent}})
	if err != nil {
		return ledger.Outcome{State: ledger.Unknown, Code: string(wire.CodeUnknown)}
	}
	var sent []wire.SentReq
	reports := map[string]bool{}
	for _, e := range entries {
		var d ledger.Sent
		if err := json.Unmarshal(e.Details, &d); err != nil {
			return ledger.Outcome{State: ledger.Unknown, Code: string(wire.CodeUnknown)}
		}
		if reports[d.Report] {
			continue // told twice, around a restart
		}
		reports[d.Report] = true
		sent = append(sent, wire.SentReq{Method: d.Method, Status: d.Status, Left: true})
	}
	return witness(len(c.Releases), sent)
}

// settled decides an unknown call.
func (s *Sentinel) settled(ctx context.Context, c ledger.Call, o ledger.Outcome) {
	c, err := s.ledger.Settle(ctx, c.ID, o, "sentinel")
	if err != nil {
		if !errors.Is(err, ledger.ErrState) {
			s.log.Error("a call is not settled", "call", c.ID, "err", err.Error())
		}
		return
	}
	s.changed(c)
	s.remember(&c)
}

// settle looks up the mark of an unknown call at the vendor, where the method says how. The call itself is never sent
// again.
func (s *Sentinel) settle(ctx context.Context, c ledger.Call) {
	vendor, ok := s.vendors[c.Connector]
	if !ok {
		return
	}
	m, ok := vendor.Method(c.Method)
	if !ok || m.Settle == nil {
		return
	}
	missing := 0
	for try := range lookTries {
		select {
		case <-s.lifetime.Done():
			return
		case <-time.After(lookAfter * time.Duration(1+try)):
		}
		if now, err := s.ledger.Call(ctx, c.ID); err != nil || now.State != ledger.Unknown {
			return
		}
		found, err := s.look(ctx, vendor, m, &c)
		switch {
		case err != nil:
			s.log.Info("looking up a call failed", "call", c.ID, "err", err.Error())
		case found:
			s.settled(ctx, c, ledger.Outcome{State: ledger.Done, Why: "its mark is at the vendor"})
			return
		default:
			if missing++; missing >= looks {
				s.settled(ctx, c, ledger.Outcome{State: ledger.Failed, Code: string(wire.CodeVendorDown),
					Why: "its mark is not at the vendor, so it did not run"})
				return
			}
		}
	}
}

// errUnseen: a worker that was taken over could say that a write did not run which did, and have it repeated.
var errUnseen = errors.New("the worker says something that the vendor did not answer")

// answered says whether egress saw the vendor answer with one of these statuses.
func (l *live) answered(ctx context.Context, status ...int) bool {
	_, sent := l.settled(ctx)
	return slices.ContainsFunc(sent, func(r wire.SentReq) bool { return slices.Contains(status, r.Status) })
}

// borne is the report of egress that bears out a raw answer: the vendor answered 200 with that very body.
func (l *live) borne(ctx context.Context, body []byte) (wire.SentReq, bool) {
	_, sent := l.settled(ctx)
	sum := wire.Sum(body)
	for _, r := range sent {
		if r.Status == 200 && r.Complete && r.Body == sum {
			return r, true
		}
	}
	return wire.SentReq{}, false
}

// look reads what the method names and says whether the mark is in it.
func (s *Sentinel) look(ctx context.Context, vendor *describe.Connector, m *describe.Method, c *ledger.Call) (bool, error) {
	o, err := s.recallBound(c)
	if err != nil {
		return false, err
	}
	values, err := m.Decode(&o.Frame)
	if err != nil {
		return false, err
	}
	acc, err := s.account(c.Connector, c.Account)
	if err != nil {
		return false, err
	}
	args, err := m.SettleArgs(&describe.Call{Values: values, Files: o.Frame.Files, Base: acc.Base, Mark: c.Mark,
		Unix: c.Created.Time().Unix()})
	if err != nil {
		return false, err
	}
	f := wire.Frame{Connector: vendor.Vendor, Description: vendor.Digest(), Account: c.Account, Method: m.Settle.Method, Args: args}
	who := peer.Identity{Kind: peer.Cell, Name: c.Cell, Session: strings.TrimPrefix(c.Session, c.Cell+"/")}
	j, err := s.judgeSilent(ctx, who, &f)
	if err != nil {
		return false, err
	}
	out, l, err := s.runRead(ctx, j, true)
	switch code := codeOf(err); {
	case err == nil:
		if _, ok := l.borne(ctx, out.JSON); !ok {
			return false, errUnseen
		}
	case code == wire.CodeVendorRefused && strings.HasSuffix(err.Error(), "(HTTP 404)"):
		if !l.answered(ctx, 404, 410) {
			return false, errUnseen
		}
		return false, nil // the very object is not there
	default:
		return false, err
	}
	found := strings.Contains(string(out.JSON), c.Mark)
	if !found && out.Next != "" {
		return false, errors.New("the list is longer than one answer, so absence proves nothing")
	}
	return found, nil
}
