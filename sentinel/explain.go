// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// asker is the caller's side of what the policy sees.
type asker struct {
	cell, session string // the session as the policy names it, without its cell
	attended      bool
	by            string
	reads         ledger.ReadCount
	now           time.Time
}

// factsOf is what the policy sees of a call. Everything in it is computed here, from the kernel, the frame and the
// ledger.
func (s *Sentinel) factsOf(set *policy.Set, j *judged, from *asker) policy.Call {
	reach, sensitive := set.Reach(j.vendor, j.method, j.account.Name, j.values)
	recipients := s.recipients(j)
	if j.mayName() && len(recipients) > 0 && reach == describe.ReachNone {
		reach = j.method.Reach // the body names people though the arguments do not
		sensitive = j.method.SensitiveAt(reach)
	}
	return policy.Call{
		Connector: j.vendor, Method: j.method, Values: j.values, Account: j.account.Name,
		Reach: reach, Sensitive: sensitive, Cell: from.cell, Session: from.session, Attended: from.attended, By: from.by,
		Labels: s.labels(from.cell), Recipients: recipients, FirstTime: s.firstTime(recipients),
		Now: from.now, Reads: int64(from.reads.Count), ReadBytes: from.reads.Bytes,
	}
}

// explain is `policy explain`: what would become of a call, and why, without making it. What is not said of the caller
// is as it is now, and the lines say how that is.
func (s *Sentinel) explain(set *policy.Set, req *wire.PolicyReq) ([]string, error) {
	j := &judged{frame: *req.Frame}
	if err := s.named(j); err != nil {
		return nil, err
	}
	from, lines := s.suppose(req)
	var err error
	if j.values, err = j.method.Decode(&j.frame); err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "")
	}
	var first []string
	refused := func(err error) {
		var e *wire.Error
		if errors.As(err, &e) {
			first = append(first, fmt.Sprintf("as things stand it is refused before the policy is asked: %s: %s", e.Code, e.Reason))
		}
	}
	if from.cell != "" {
		refused(s.stopped(from.cell))
	}
	if j.account, err = s.account(j.vendor.Vendor, j.frame.Account); err != nil {
		refused(err)
		j.account.Name = j.frame.Account
	}
	decide := func(facts *policy.Call) policy.Decision {
		return set.Decide(facts, s.supposedGrants(from, facts))
	}
	if p := j.method.Prepare; p != nil && p.NeedsBase(j.values) {
		base := &judged{frame: baseFrame(j), account: j.account}
		if err := s.named(base); err != nil {
			return nil, err
		}
		if base.values, err = base.method.Decode(&base.frame); err != nil {
			return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "")
		}
		facts := s.factsOf(set, base, from)
		if d := decide(&facts); d.Verdict != policy.Allow {
			refused(baseRefused(base, &d))
		}
		lines = append(lines, "it builds on what "+p.Base+" reads, which is not read now: whom that names is reached too")
	}
	facts := s.factsOf(set, j, from)
	if len(facts.Recipients) > 0 {
		lines = append(lines, "it reaches "+strings.Join(facts.Recipients, ", "))
	}
	if len(facts.FirstTime) > 0 {
		lines = append(lines, "never written to before: "+strings.Join(facts.FirstTime, ", "))
	}
	out := append(first, set.Explain(&facts, s.supposedGrants(from, &facts))...)
	if p := j.method.Prepare; p != nil && p.NeedsBase(j.values) && facts.Reach == describe.ReachNone {
		named := facts
		named.Reach, named.Sensitive = j.method.Reach, j.method.SensitiveAt(j.method.Reach)
		if d := decide(&named); d.Verdict != decide(&facts).Verdict {
			lines = append(lines, "where that names people, the verdict is "+string(d.Verdict)+": "+d.Reason)
		}
	}
	return append(out, lines...), nil
}

// suppose is the caller of an explained call, and in words where each part of that comes from.
func (s *Sentinel) suppose(req *wire.PolicyReq) (*asker, []string) {
	from := &asker{cell: req.Cell, now: time.Now()}
	if req.Unix != 0 {
		from.now = time.Unix(req.Unix, 0)
	}
	var lines []string
	all := s.ledger.Sessions(req.Cell)
	other := func(x ledger.Session) bool { return x.Cell != all[0].Cell }
	if from.cell == "" && len(all) > 0 && !slices.ContainsFunc(all, other) {
		from.cell = all[0].Cell
		lines = append(lines, "cell "+from.cell+", the only one with a session (--cell names another)")
	}
	var session ledger.Session
	switch {
	case from.cell == "":
		lines = append(lines, "for no cell that there is, without labels and grants (--cell names one)")
	case req.Session != "":
		from.session = strings.TrimPrefix(req.Session, from.cell+"/")
		var known bool
		if session, known = s.ledger.Session(from.cell + "/" + from.session); !known {
			lines = append(lines, "session "+from.session+" of cell "+from.cell+", which is a new one")
		} else {
			lines = append(lines, "session "+from.session+" of cell "+from.cell)
		}
	case len(all) > 0:
		session = slices.MaxFunc(all, func(a, b ledger.Session) int {
			return cmp.Or(cmp.Compare(a.Began.Wall, b.Began.Wall), strings.Compare(a.ID, b.ID))
		})
		from.session = strings.TrimPrefix(session.ID, from.cell+"/")
		lines = append(lines, "session "+from.session+" of cell "+from.cell+", the newest that lives (--session names another)")
	default:
		lines = append(lines, "a new session of cell "+from.cell+", none lives (--session names one)")
	}
	if !session.Ended.IsZero() {
		lines = append(lines, "that session has ended, so every call in it is refused")
	}
	from.attended, from.by = session.Attended && s.allAttended(from.cell), orElse(req.By, session.Run)
	if req.Attended != nil {
		from.attended = *req.Attended
	}
	if req.Frame != nil {
		from.reads = s.ledger.Reads(from.cell+"/"+from.session, req.Frame.Connector)
	}
	if req.Reads != nil {
		from.reads.Count = int(*req.Reads)
	}
	if req.ReadBytes != nil {
		from.reads.Bytes = *req.ReadBytes
	}
	how := "unattended"
	if from.attended {
		how = "attended"
	}
	if from.by != "" {
		how += ", started by " + from.by
	}
	lines = append(lines, how+" (--attended, --unattended, --by suppose otherwise)")
	if req.Frame != nil {
		lines = append(lines, fmt.Sprintf("%d reads of %s so far in that session, %d bytes (--reads, --read-bytes)", from.reads.Count,
			req.Frame.Connector, from.reads.Bytes))
	}
	return from, append(lines, from.now.Format("Monday 2006-01-02 15:04")+" (--at)")
}

// supposedGrants are the grants of who is supposed to ask; nobody has none.
func (s *Sentinel) supposedGrants(from *asker, c *policy.Call) []wire.Grant {
	if from.cell == "" {
		return nil
	}
	return s.grants(from.cell, c.Connector.Vendor, c.Method.Name)
}
