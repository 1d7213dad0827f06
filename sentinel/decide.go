// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
	"github.com/doorward/doorward/sentinel/prepared"
)

// Times that silence and surrogates last.
const (
	readExpiry        = time.Hour      // a parked read
	writeExpiry       = 24 * time.Hour // a parked write
	destructiveExpiry = time.Hour
	runFor            = 10 * time.Minute // a grant at authd, from allow to its end
	sessionFor        = 12 * time.Hour
)

// How long a decision waits for a worker, which may hang: together less than the command waits for the decision.
var (
	baseFor    = time.Minute      // the read that a body builds on
	prepareFor = 30 * time.Second // the body
)

// judged is a call that has been read, understood and decided on, before anything is recorded of it.
type judged struct {
	caller   peer.Identity
	vendor   *describe.Connector
	method   *describe.Method
	frame    wire.Frame
	values   describe.Values
	files    []*os.File
	account  wire.Account
	mark     string
	etag     string
	base     []byte // what a prepared body builds on
	body     []byte // prepared; nil where the call has none
	media    string
	bodied   bool // the worker prepared it, so sentinel executes it
	entries  []wire.Entry
	facts    policy.Call
	decision policy.Decision
	counted  bool            // it is one of Sentinel.judging
	was      describe.Values // of the call that a person changed into this one; nil for a cell's own
	silent   bool            // a settlement's own read: its answer does not reach the cell, so its labels do not either
}

// decide answers the cell: may this call run? Deny and ask are durable before their answer, so is an allowed write; an
// allowed read commits while it runs.
func (s *Sentinel) decide(ctx context.Context, c *daemon.Call, req *wire.DecideReq) (*wire.DecideResp, error) {
	j, err := s.judge(ctx, c.Peer, &req.Frame, c.Files)
	defer s.judgedRead(j)
	if err != nil {
		return s.refuse(ctx, c.Peer, &req.Frame, err)
	}
	switch j.decision.Verdict {
	case policy.Allow:
		return s.allow(ctx, j)
	case policy.Ask:
		resp, err := s.park(ctx, j, "")
		if code := codeOf(err); err != nil && (code == wire.CodeTooMany || code == wire.CodeTooLarge) {
			return s.refuse(ctx, c.Peer, &req.Frame, err) // this answer too is on the record
		}
		return resp, err
	default:
		return s.refuse(ctx, c.Peer, &req.Frame, wire.Refuse(j.decision.Code, j.decision.Reason, j.decision.Next))
	}
}

// refuse records a refusal and answers it. A call that could not even be read is recorded with what is known of it.
func (s *Sentinel) refuse(ctx context.Context, who peer.Identity, f *wire.Frame, err error) (*wire.DecideResp, error) {
	e := asError(s.log, err)
	frame := ledger.Frame{ID: ledger.NewID(), Cell: who.Name, Session: sessionID(who), Connector: short(f.Connector),
		Account: short(f.Account), Method: short(f.Method), Class: "?", Decision: "deny", Reason: string(e.Code),
		Next: e.Next, Canonical: json.RawMessage("null"), Policy: clip(e.Reason, 400)}
	if !s.mayRecord(who.Name, refusalCost) { // equal ones are then counted, not listed
		r := ledger.Refusal{By: "sentinel", Cell: who.Name, Reason: string(e.Code), Next: e.Next}
		if v, ok := s.vendors[f.Connector]; ok {
			r.Host = f.Connector
			if _, ok := v.Method(f.Method); ok {
				r.Detail = f.Method
			}
		}
		if err := s.ledger.Refused(ctx, r); err != nil {
			return nil, s.ledgerError(err)
		}
		return &wire.DecideResp{Verdict: wire.Deny, Err: e}, nil
	}
	if d, derr := wire.FrameDigest(f); derr == nil {
		frame.Hash = hex.EncodeToString(d[:])
	}
	if _, err := s.ledger.Refuse(ctx, ledger.Call{Frame: frame}, actor(who)); err != nil {
		return nil, s.ledgerError(err)
	}
	return &wire.DecideResp{Verdict: wire.Deny, Call: frame.ID, Err: e}, nil
}

// judge reads a frame as its description says and evaluates the policy. It has no effect but, for a prepared body that
// builds on what the vendor holds, the read of that, judged and recorded as the caller's own.
func (s *Sentinel) judge(ctx context.Context, who peer.Identity, f *wire.Frame, files []*os.File) (*judged, error) {
	if err := s.running(who); err != nil {
		return nil, err
	}
	j, err := s.understand(ctx, who, f, files)
	if err == nil {
		err = s.evaluate(j)
	}
	return j, err
}

// judgeSilent is judge for a read that no cell asked for: a settlement's, or a test of an account. It needs no session
// that lives, and what the policy asks about goes; what it denies does not, nor what a cell may not that is stopped.
func (s *Sentinel) judgeSilent(ctx context.Context, who peer.Identity, f *wire.Frame) (*judged, error) {
	if err := s.stopped(who.Name); err != nil {
		return nil, err
	}
	j, err := s.understand(ctx, who, f, nil)
	if err != nil {
		return nil, err
	}
	j.silent = true
	if err := s.evaluate(j); err != nil {
		return nil, err
	}
	if j.decision.Verdict == policy.Deny {
		return nil, wire.Refuse(j.decision.Code, j.decision.Reason, j.decision.Next)
	}
	j.decision.Grant = ""
	return j, nil
}

// understand is judge without the policy.
func (s *Sentinel) understand(ctx context.Context, who peer.Identity, f *wire.Frame, files []*os.File) (*judged, error) {
	j := &judged{caller: who, frame: *f, files: files, mark: newMark()}
	if err := s.read(ctx, j); err != nil {
		return nil, err
	}
	return j, nil
}

// read fills j by its frame.
func (s *Sentinel) read(ctx context.Context, j *judged) error {
	if err := s.named(j); err != nil {
		return err
	}
	f, vendor := &j.frame, j.vendor
	if s.policy.Load().Off(vendor.Vendor, f.Method) {
		return unknownMethod(j)
	}
	var err error
	if j.values, err = j.method.Decode(f); err != nil {
		return wire.Refuse(wire.CodeBadArgument, err.Error(), "connector describe "+vendor.Vendor+" "+f.Method)
	}
	done := s.turn(j.caller.Name)
	err = checkFiles(f, j.files)
	done()
	if err != nil {
		return wire.Refuse(wire.CodeBadArgument, err.Error(), "")
	}
	if j.account, err = s.account(vendor.Vendor, f.Account); err != nil {
		return err
	}
	if p := j.method.Prepare; p != nil {
		if p.NeedsBase(j.values) {
			if err := s.readBase(ctx, j); err != nil {
				return err
			}
		}
		if err := s.prepare(ctx, j); err != nil {
			return err
		}
	}
	call := &describe.Call{Values: j.values, Files: f.Files, Base: j.account.Base, Also: j.account.Also, Mark: j.mark,
		ETag: j.etag, Prepared: wire.Sum(j.body)}
	if j.entries, err = j.method.Fill(call); err != nil {
		return wire.Refuse(wire.CodeBadArgument, err.Error(), "")
	}
	return nil
}

// named finds the connector and the method that a frame names.
func (s *Sentinel) named(j *judged) error {
	vendor, ok := s.vendors[j.frame.Connector]
	if !ok {
		return wire.Refuse(wire.CodeUnknownConnector, "no connector "+quote(j.frame.Connector), "connector list shows them")
	}
	j.vendor = vendor
	if j.frame.Description != vendor.Digest() {
		return wire.Refuse(wire.CodeWrongDescription, "the command read another version of the description",
			"run it again; if that does not help, the cell sees an old installation")
	}
	if j.method, ok = vendor.Method(j.frame.Method); !ok {
		return unknownMethod(j)
	}
	return nil
}

// unknownMethod is the answer for a method that there is not, and for one that is off: the two cannot be told apart.
func unknownMethod(j *judged) error {
	return wire.Refuse(wire.CodeUnknownMethod, "no method "+quote(j.frame.Method)+" of "+j.vendor.Vendor,
		"connector list "+j.vendor.Vendor+" shows them")
}

// evaluate asks the policy.
func (s *Sentinel) evaluate(j *judged) error {
	set := s.policy.Load()
	session, attended, err := s.session(j.caller)
	if err != nil {
		return s.ledgerError(err)
	}
	reads := s.judgingRead(j)
	j.facts = s.factsOf(set, j, &asker{cell: j.caller.Name, session: sessionName(j.caller), attended: attended,
		by: session.Run, reads: reads, now: time.Now()})
	j.decision = set.Decide(&j.facts, s.grants(j.caller.Name, j.vendor.Vendor, j.method.Name))
	return nil
}

// judgingRead is what the caller has read, with the reads that are judged beside this one: two at once must not both be
// the last that goes unasked. Until judgedRead this one counts for the others.
func (s *Sentinel) judgingRead(j *judged) ledger.ReadCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := [2]string{sessionID(j.caller), j.vendor.Vendor}
	reads := s.ledger.Reads(of[0], of[1])
	reads.Count += s.judging[of]
	if j.method.Class == describe.Read && !j.silent && !j.counted {
		j.counted = true
		s.judging[of]++
	}
	return reads
}

// judgedRead: the read has begun, or was not let through. j may be nil.
func (s *Sentinel) judgedRead(j *judged) {
	if j == nil || !j.counted {
		return
	}
	j.counted = false
	s.mu.Lock()
	defer s.mu.Unlock()
	of := [2]string{sessionID(j.caller), j.vendor.Vendor}
	if s.judging[of]--; s.judging[of] == 0 {
		delete(s.judging, of)
	}
}

// mayName says whether the call's body, rather than its arguments, may say whom it reaches.
func (j *judged) mayName() bool { return j.method.Prepare != nil && j.method.Class != describe.Read }

// record is the ledger's row of a judged call.
func (s *Sentinel) record(j *judged) (ledger.Call, error) {
	now := s.ledger.Now()
	canonical := j.method.Canonical(j.vendor, j.account.Name, j.account.Generation, j.values)
	sum := wire.Sum(canonical)
	o := j.order()
	bound, err := wire.Marshal(&o.Bound)
	if err != nil {
		return ledger.Call{}, err
	}
	envelope := wire.Sum(bound)
	expiry := writeExpiry
	switch j.method.Class {
	case describe.Read:
		expiry = readExpiry
	case describe.Destructive:
		expiry = destructiveExpiry
	}
	data, err := json.Marshal(bound)
	if err != nil {
		return ledger.Call{}, err
	}
	f := ledger.Frame{
		ID: ledger.NewID(), Cell: j.caller.Name, Session: sessionID(j.caller), Attended: j.facts.Attended, Run: j.facts.By,
		Connector: j.vendor.Vendor, Account: j.account.Name, Login: uint64(j.account.Generation), Method: j.method.Name,
		Meaning: s.meaning(j.vendor.Vendor, j.method.Name), Class: j.method.Class, Reach: j.facts.Reach,
		Sensitive: j.facts.Sensitive, Canonical: canonical, Hash: hex.EncodeToString(sum[:]),
		Envelope: hex.EncodeToString(envelope[:]), Mark: j.mark,
		Labels: j.method.Labels, Data: data, Under: j.decision.Grant, Decision: string(j.decision.Verdict),
		Policy: first(j.decision.Policies), Reason: string(j.decision.Code), Next: j.decision.Next,
		Created: now, Deadline: now.Add(expiry),
	}
	if j.silent {
		f.Labels = nil
	}
	if j.method.Class != describe.Read {
		f.Dedup = j.caller.Name + "/" + f.Hash
		for _, file := range j.frame.Files { // names are not canonical, but they may stand in what is sent
			f.Dedup += "/" + file.Name
		}
	}
	approval := approvalHash(sum, envelope, string(j.decision.Verdict), j.mark)
	f.Approval = hex.EncodeToString(approval[:])
	return ledger.Call{Frame: f}, nil
}

// allow lets a call run. Reads and writes without a prepared body go back to the cell, which calls the worker itself
// with the grant; a prepared one sentinel executes.
func (s *Sentinel) allow(ctx context.Context, j *judged) (*wire.DecideResp, error) {
	c, err := s.record(j)
	if err != nil {
		return nil, err
	}
	c.Pass = s.newPass()
	resp := &wire.DecideResp{Verdict: wire.Allow, Call: c.ID, Grant: c.Pass, Account: j.account.Name}
	read := j.method.Class == describe.Read
	var ticket *ledger.Ticket
	if read {
		c.Data = nil // it is never read back
		ticket, err = s.startRead(ctx, c, j)
		switch {
		case errors.Is(err, ledger.ErrSpent):
			return s.parkSpent(ctx, j)
		case err != nil:
			return nil, s.ledgerError(err)
		}
	} else {
		if !s.mayRecord(c.Cell, joinCost) {
			return nil, wire.Refuse(wire.CodeTooMany, "this cell has had too much recorded lately",
				"wait some minutes; do not repeat a call that runs already")
		}
		c.Inbox = j.bodied
		var joined bool
		got, joined, err := s.ledger.Begin(ctx, c, actor(j.caller))
		switch {
		case errors.Is(err, ledger.ErrMayRun): // an equal one may have run: a person looks first
			return s.park(ctx, j, "an equal call may have run already; look before repeating it")
		case errors.Is(err, ledger.ErrSpent):
			return s.parkSpent(ctx, j)
		case err != nil:
			return nil, s.ledgerError(err)
		case joined:
			return s.joined(got), nil
		}
		c = got
	}
	l := s.enliven(c, j.method, ticket)
	if j.bodied {
		resp.Verdict, resp.Grant = wire.Run, ""
		o := j.order()
		o.files = dup(j.files)
		go s.execute(context.WithoutCancel(ctx), l, o)
		return resp, nil
	}
	g, err := j.order().grant(&c, j.caller.Name, j.caller.Session)
	if err == nil {
		err = s.give(ctx, l, g)
	}
	if err != nil {
		s.end(context.WithoutCancel(ctx), l, notRun(codeOf(err), "no grant was given: "+reasonOf(err)))
		return &wire.DecideResp{Verdict: wire.Deny, Call: c.ID, Err: asError(s.log, err)}, nil
	}
	return resp, nil
}

// parkSpent has a call wait whose grant's last use went to another call meanwhile.
func (s *Sentinel) parkSpent(ctx context.Context, j *judged) (*wire.DecideResp, error) {
	j.decision = policy.Decision{Verdict: policy.Ask, Code: wire.CodeNeedsApproval, Reason: whySpent}
	return s.park(ctx, j, "")
}

const whySpent = "the grant that covered it is used up"

// startRead begins an allowed read, whose ticket puts it on the record. That begins when the credential is released, so
// that it is done while the vendor is asked, and the answer waits for it; but while the record fails, nothing leaves
// before this very read is on it, and neither where it takes one of a grant's uses (ledger.ErrSpent: there is none).
func (s *Sentinel) startRead(ctx context.Context, c ledger.Call, j *judged) (*ledger.Ticket, error) {
	ctx = context.WithoutCancel(ctx) // who hangs up leaves no call behind that began and has no end
	ticket := s.ledger.Start(ctx, c, actor(j.caller))
	s.judgedRead(j)
	_, err := s.ledger.Health()
	counted := c.Under != "" && slices.ContainsFunc(s.ledger.Grants(ledger.GrantFilter{ID: c.Under}),
		func(g ledger.Grant) bool { return g.Uses > 0 })
	if err != nil || counted {
		if err := ticket.Wait(ctx); err != nil {
			return nil, err
		}
	}
	return ticket, nil
}

// joined answers for a call that is on its way already.
func (s *Sentinel) joined(c ledger.Call) *wire.DecideResp {
	r := &wire.DecideResp{Verdict: wire.Run, Call: c.ID, Account: c.Account, Joined: true}
	if c.State == ledger.Parked || c.State == ledger.Approved {
		r.Verdict = wire.Parked
		r.Err = wire.Refuse(wire.CodeNeedsApproval, "the same call waits for a person's decision already",
			"do not repeat it; collect it with: connector result "+c.ID)
	}
	return r
}

// park has a call wait for a person. Nothing has been written at the vendor.
func (s *Sentinel) park(ctx context.Context, j *judged, why string) (*wire.DecideResp, error) {
	if why != "" {
		j.decision.Verdict, j.decision.Reason, j.decision.Code = policy.Ask, why, wire.CodeNeedsApproval
		j.decision.Grant = ""
	}
	c, err := s.record(j)
	if err != nil {
		return nil, err
	}
	c.Under = ""
	card := s.card(j, &c)
	if c.Card, err = cardFits(card); err != nil {
		return nil, err
	}
	if !s.mayRecord(c.Cell, len(c.Card)+len(c.Data)+len(c.Canonical)+refusalCost) {
		return nil, wire.Refuse(wire.CodeTooMany, "this cell has put up too much for decision lately",
			"wait some minutes; ask for less, and do not repeat what was taken back")
	}
	if err := s.roomFor(&c); err != nil {
		return nil, err
	}
	if err := s.keep(ctx, &c, j); err != nil {
		return nil, err
	}
	got, joined, err := s.ledger.Park(ctx, c, actor(j.caller))
	if err != nil {
		s.forget(c.Spool)
		return nil, s.ledgerError(err)
	}
	if joined {
		s.forget(c.Spool)
		return s.joined(got), nil
	}
	s.changed(got)
	code := j.decision.Code
	if code == "" {
		code = wire.CodeNeedsApproval
	}
	return &wire.DecideResp{Verdict: wire.Parked, Call: got.ID, Account: got.Account, Err: wire.Refuse(code,
		j.decision.Reason, "a person decides; do not repeat the call; collect it with: connector result "+got.ID)}, nil
}

// roomFor refuses what would wait where limits.toml lets fewer wait than the ledger does.
func (s *Sentinel) roomFor(c *ledger.Call) error {
	most := s.policy.Load().Limits().Pending
	if most >= ledger.MaxParked {
		return nil
	}
	var n int64
	for _, w := range s.ledger.Waiting() {
		if w.Cell != c.Cell || w.State != ledger.Parked {
			continue
		}
		if c.Dedup != "" && w.Dedup == c.Dedup {
			return nil // it is joined
		}
		n++
	}
	if n >= most {
		return wire.Refuse(wire.CodeTooMany, fmt.Sprintf("%d calls of this cell wait already", n),
			"collect or cancel some, see: connector inbox")
	}
	return nil
}

// baseFrame is the read of what a call's body builds on.
func baseFrame(j *judged) wire.Frame {
	p := j.method.Prepare
	f := wire.Frame{Connector: j.frame.Connector, Description: j.frame.Description, Account: j.account.Name, Method: p.Base}
	for _, pair := range p.Args {
		if v := j.values[pair.To]; len(v) > 0 {
			f.Args = append(f.Args, wire.Arg{Name: pair.From, Values: v})
		}
	}
	slices.SortFunc(f.Args, func(a, b wire.Arg) int { return strings.Compare(a.Name, b.Name) })
	return f
}

func baseRefused(base *judged, d *policy.Decision) error {
	name := base.frame.Method
	return wire.Refuse(wire.CodeNotAllowed, "the call builds on "+name+", which the policy does not allow unasked: "+d.Reason,
		"ask for connector "+base.frame.Connector+" "+name+" first")
}

// readBase has the vendor's copy read that a prepared body builds on. The read is the caller's own: it is judged,
// recorded and labelled like one that the cell asked for. For what a person changed it is done once more: the cell has had that read.
func (s *Sentinel) readBase(ctx context.Context, j *judged) error {
	f := baseFrame(j)
	var read *judged
	var err error
	if j.was == nil {
		read, err = s.judge(ctx, j.caller, &f, nil)
	} else if err = j.sameBase(); err == nil {
		read, err = s.judgeSilent(ctx, j.caller, &f)
	}
	defer s.judgedRead(read)
	if err != nil {
		return fmt.Errorf("read what the call builds on: %w", err)
	}
	if read.decision.Verdict != policy.Allow {
		return baseRefused(read, &read.decision)
	}
	within, cancel := context.WithTimeout(ctx, baseFor)
	defer cancel()
	out, l, err := s.runRead(within, read, true)
	if err != nil {
		return inTime(within, err, "read what the call builds on", j)
	}
	seen, ok := l.borne(within, out.JSON)
	if !ok {
		return wire.Refuse(wire.CodeBadPreparedBody, "what the worker says stands at the server is not what the server answered",
			"report it: a worker that does so is broken or taken over")
	}
	j.base, j.etag = out.JSON, seen.ETag
	return nil
}

// inTime is err, or where a worker let the time within pass, what the caller is told then.
func inTime(within context.Context, err error, what string, j *judged) error {
	if !errors.Is(within.Err(), context.DeadlineExceeded) {
		return err
	}
	return wire.Refuse(wire.CodeUnavailable, "the worker of "+j.vendor.Vendor+" did not "+what+" in time; nothing was written, "+
		"and nothing waits", "try again later; if it stays so, tell the person: doorward doctor")
}

// prepare has the worker render the body and reads it back. The worker's rendering is not believed.
func (s *Sentinel) prepare(ctx context.Context, j *judged) error {
	now := time.Now().Unix()
	req := &wire.PrepareReq{Frame: j.frame, Mark: j.mark, Unix: now, Base: j.base, Owner: j.account.Owner}
	var resp wire.PrepareResp
	within, cancel := context.WithTimeout(ctx, prepareFor)
	defer cancel()
	got, err := s.worker(j.vendor.Vendor).Exchange(within, "prepare", req, &resp, j.files...)
	closeAll(got)
	if err != nil {
		return inTime(within, fmt.Errorf("prepare the body: %w", err), "prepare the body", j)
	}
	err = prepared.Verify(j.method.Prepare.Kind, j.method, j.values, j.mark, now, j.account.Owner, j.base, resp.Body)
	if err != nil {
		return wire.Refuse(wire.CodeBadPreparedBody, err.Error(), "report it: the worker rendered other than the arguments say")
	}
	j.body, j.media, j.bodied = resp.Body, resp.Media, true
	return nil
}

// recipients are the addresses the call reaches: what its arguments name and what its body holds.
func (s *Sentinel) recipients(j *judged) []string {
	var out []string
	for i := range j.method.Args {
		if a := &j.method.Args[i]; a.Role == "recipient" {
			out = append(out, j.values[a.Name]...)
		}
	}
	if j.bodied {
		for _, b := range [][]byte{j.base, j.body} {
			out = append(out, prepared.Recipients(b)...)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(a string) bool { return a == j.account.Owner })
}
