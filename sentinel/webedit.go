// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

const (
	maxDrafts   = 16        // at a time; each may have a prepared body of a frame's size
	maxEditText = 256 << 10 // bytes of a file's new text
)

// draft is a call that a person made of another, which still waits. It is in memory alone, and nothing is done with it until a passkey
// has signed it: then it takes the other's place.
type draft struct {
	old   string // the call whose place it takes
	hash  []byte // its approval
	call  ledger.Call
	made  *judged // without files, which are read anew
	files []wire.EditFile
}

// webEdit says what can be changed of a call that waits, or what would become of it. A session is enough for that: whoever has one can
// have a worker render and the policy asked, and learns nothing of the vendor but what the call builds on already.
func (s *Sentinel) webEdit(ctx context.Context, c *daemon.Call, req *wire.EditReq) (*wire.EditResp, error) {
	call, err := s.ledger.Call(ctx, req.Call)
	if err != nil {
		return nil, s.ledgerError(err)
	}
	m, err := s.editable(&call)
	if err != nil {
		return nil, err
	}
	if len(req.Hash) == 0 {
		return s.editForm(&call, m)
	}
	hash, _ := hex.DecodeString(call.Approval) // record made it
	if !bytes.Equal(hash, req.Hash) {
		return nil, wire.Refuse(wire.CodeConflict, "the call is another than the one that was shown", "look at it again")
	}
	if !s.web.editing.TryLock() {
		return nil, wire.Refuse(wire.CodeTooMany, "another change is being prepared", "try again in a moment")
	}
	defer s.web.editing.Unlock()
	d := &draft{old: call.ID, hash: hash, files: req.Files}
	o, err := s.editOrder(&call, req.Args, req.Files)
	if err != nil {
		return nil, err
	}
	defer closeAll(o.files)
	if d.made, err = s.judgeEdit(ctx, &call, m, o); err != nil {
		return nil, err
	}
	if d.call, err = s.record(d.made); err != nil {
		return nil, err
	}
	if d.call.Hash == call.Hash {
		return nil, wire.Refuse(wire.CodeBadArgument, "nothing is changed", "")
	}
	d.call.Under = ""
	card := s.card(d.made, &d.call)
	card.Grantable = nil // what would be allowed ahead is no longer what the cell asked
	if d.call.Card, err = cardFits(card); err != nil {
		return nil, err
	}
	d.made.files = nil
	made, err := s.offerEdit(card, d)
	if err != nil {
		return nil, err
	}
	return &wire.EditResp{Offer: made}, nil
}

// editable is the method of a call of which arguments can be changed.
func (s *Sentinel) editable(c *ledger.Call) (*describe.Method, error) {
	if c.State != ledger.Parked {
		return nil, wire.Refuse(wire.CodeConflict, "the call is "+string(c.State)+", and cannot be changed any more", "")
	}
	vendor, ok := s.vendors[c.Connector]
	if c.Connector == self || !ok {
		return nil, wire.Refuse(wire.CodeNotAllowed, "only calls of connectors can be changed", "deny it, and ask for what you want")
	}
	m, ok := vendor.Method(c.Method)
	if !ok || c.Meaning == "" || c.Meaning != s.meaning(c.Connector, c.Method) {
		return nil, wire.Refuse(wire.CodeWrongDescription, "the method has changed since it was asked", "deny it; the cell asks again")
	}
	if _, known := s.ledger.Session(c.Session); !known {
		return nil, wire.Refuse(wire.CodeExpired, "the session that asked is not known any more", "deny it; the cell asks again")
	}
	return m, nil
}

// fixed says whether the method's argument of that name says what the call builds on.
func fixed(m *describe.Method, name string) bool {
	return m.Prepare != nil && slices.ContainsFunc(m.Prepare.Args, func(p describe.Pair) bool { return p.To == name })
}

func (s *Sentinel) editForm(c *ledger.Call, m *describe.Method) (*wire.EditResp, error) {
	o, err := s.recallBound(c)
	if err != nil {
		return nil, err
	}
	v, err := m.Decode(&o.Frame)
	if err != nil {
		return nil, err
	}
	r := new(wire.EditResp)
	for i := range m.Args {
		a := &m.Args[i]
		if a.Type == describe.TypeFile {
			continue
		}
		r.Form = append(r.Form, wire.EditField{Name: a.Name, Label: a.Label, Help: a.Help, Type: a.Type, Enum: a.Enum, Required: a.Required,
			Repeat: a.Repeat, Fixed: fixed(m, a.Name), Values: v[a.Name]})
	}
	for i, file := range o.Frame.Files {
		a, _ := m.Arg(file.Arg)
		r.Form = append(r.Form, wire.EditField{Name: a.Name, Label: a.Label, Help: file.Name, Type: a.Type, File: i,
			SHA256: bytes.Clone(file.SHA256[:]), Fixed: file.Size > maxEditText})
	}
	return r, nil
}

// editOrder is the order of a call with other arguments and files. Its connector, method, account and cell stay.
func (s *Sentinel) editOrder(c *ledger.Call, args []wire.EditValue, files []wire.EditFile) (*order, error) {
	o, err := s.recall(c)
	if err != nil {
		return nil, err
	}
	o.Frame.Account, o.Frame.Description, o.Frame.Args = c.Account, s.vendors[c.Connector].Digest(), nil
	for _, a := range args {
		o.Frame.Args = append(o.Frame.Args, wire.Arg{Name: a.Name, Values: a.Values})
	}
	slices.SortFunc(o.Frame.Args, func(a, b wire.Arg) int { return strings.Compare(a.Name, b.Name) })
	for i, f := range files {
		if f.File < 0 || f.File >= len(o.files) || len(f.Text) > maxEditText || i > 0 && f.File <= files[i-1].File {
			closeAll(o.files)
			return nil, wire.Refuse(wire.CodeBadArgument, fmt.Sprintf("a new text of %d bytes, at most %d, for file %d of %d",
				len(f.Text), maxEditText, f.File, len(o.files)), "name each file once, in order, from 0")
		}
		m, err := sealed([]byte(f.Text))
		if err != nil {
			closeAll(o.files)
			return nil, err
		}
		closeAll(o.files[f.File : f.File+1])
		o.files[f.File] = m
		o.Frame.Files[f.File].Size, o.Frame.Files[f.File].SHA256 = int64(len(f.Text)), wire.Sum([]byte(f.Text))
	}
	return o, nil
}

// judgeEdit decodes, prepares and judges it as if the cell had asked so, then and there where it asked. What the policy denies, a
// person cannot make of it either; all else asks.
func (s *Sentinel) judgeEdit(ctx context.Context, c *ledger.Call, m *describe.Method, o *order) (*judged, error) {
	if err := s.stopped(c.Cell); err != nil {
		return nil, err
	}
	was, err := s.recallBound(c)
	if err != nil {
		return nil, err
	}
	j := &judged{caller: peer.Identity{Kind: peer.Cell, Name: c.Cell, Session: strings.TrimPrefix(c.Session, c.Cell+"/")}, frame: o.Frame,
		files: o.files, mark: newMark()}
	if j.was, err = m.Decode(&was.Frame); err != nil {
		return nil, err
	}
	if err := s.read(ctx, j); err != nil {
		return nil, err
	}
	set := s.policy.Load()
	j.facts = s.factsOf(set, j, &asker{cell: c.Cell, session: j.caller.Session, attended: c.Attended, by: c.Run,
		reads: s.ledger.Reads(c.Session, c.Connector), now: time.Now()})
	d := set.Decide(&j.facts, nil)
	if d.Verdict == policy.Deny {
		return nil, wire.Refuse(d.Code, "so changed it is not allowed: "+d.Reason, d.Next)
	}
	j.decision = policy.Decision{Verdict: policy.Ask, Code: wire.CodeNeedsApproval, Reason: "you changed it", Policies: d.Policies}
	return j, nil
}

// sameBase refuses an edit that would have something else read than what the call built on: the card would show it to whoever has a
// session.
func (j *judged) sameBase() error {
	p := j.method.Prepare
	other := func(a describe.Pair) bool { return !slices.Equal(j.was[a.To], j.values[a.To]) }
	if !p.NeedsBase(j.was) || slices.ContainsFunc(p.Args, other) {
		return wire.Refuse(wire.CodeBadArgument, "what the call builds on stays as it is", "deny it, and have the agent ask for the other")
	}
	return nil
}

// offerEdit offers a draft's card with what it takes the place of, and keeps the draft for as long as the offer holds.
func (s *Sentinel) offerEdit(card *wire.Card, d *draft) (*wire.Offer, error) {
	place, _, err := s.place()
	if err != nil {
		return nil, err
	}
	now := s.ledger.Now()
	o := &wire.Offer{Card: *card, RP: place.Host, Edits: &wire.Edits{Call: d.old, Hash: d.hash}}
	until, err := s.decidable(now, o)
	if err != nil {
		return nil, err
	}
	s.web.mu.Lock()
	defer s.web.mu.Unlock()
	s.web.offers.put(now, o.Nonce, offer{card: d.call.ID, hash: card.Hash, edits: d.hash}, until)
	s.web.drafts.put(now, o.Nonce, d, until)
	return o, nil
}

// draftOf is the draft that became a call of that id, if it still may be approved.
func (s *Sentinel) draftOf(id string) *draft {
	s.web.mu.Lock()
	defer s.web.mu.Unlock()
	now := s.ledger.Now()
	for _, d := range s.web.drafts.all {
		if d.value.call.ID == id && !now.Reached(d.until) {
			return d.value
		}
	}
	return nil
}

// content is what of a draft is not the old call's, by its digest.
func (d *draft) content(sum []byte) ([]byte, bool) {
	all := [][]byte{d.made.body, d.made.base}
	for _, f := range d.files {
		all = append(all, []byte(f.Text))
	}
	for _, b := range all {
		if its := wire.Sum(b); len(b) > 0 && bytes.Equal(its[:], sum) {
			return b, true
		}
	}
	return nil, false
}

// decideEdit has a draft take the place of the call that it was made of, and run. A yes is all that there is to it: a draft that
// nobody wants is forgotten.
func (s *Sentinel) decideEdit(ctx context.Context, c *daemon.Call, d *draft, say *wire.Decision, evidence map[string]string,
) (*wire.DecideCardResp, error) {
	if d == nil {
		return nil, wire.Refuse(wire.CodeExpired, "the change is not kept any more", "change the call again")
	}
	if !say.Approve || say.Grant != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, "a change can be approved once, or left", "")
	}
	old, err := s.ledger.Call(ctx, d.old)
	if err != nil {
		return nil, s.ledgerError(err)
	}
	call := d.call
	if err := s.keepEdit(ctx, &old, &call, d); err != nil { // it may just have been decided: then Replace says so
		if now, nerr := s.ledger.Call(ctx, d.old); nerr != nil || now.State == ledger.Parked {
			return nil, err
		}
	}
	by := actor(c.Peer)
	var was, got ledger.Call
	err = s.whileApprover(c.Peer, evidence, func() (err error) {
		was, got, err = s.ledger.Replace(ctx, d.old, hex.EncodeToString(d.hash), call, ledger.Approval{ID: call.ID, By: by,
			Hash: hex.EncodeToString(say.Hash), Scope: ledger.KindOnce, Details: evidence})
		return err
	})
	if err != nil {
		s.forget(call.Spool)
		if errors.Is(err, ledger.ErrEqual) {
			return nil, wire.Refuse(wire.CodeConflict, "an equal call waits, runs, or may have run: this would be it once more",
				"look at it first, among what waits and in the record")
		}
		return nil, s.lateError(ctx, d.old, err)
	}
	s.forget(was.Spool)
	s.changed(was)
	s.changed(got)
	go s.run(s.lifetime, got)
	return &wire.DecideCardResp{State: wire.StateApproved}, nil
}

// keepEdit puts into the spool what a draft runs with: its own body, and the files of the old call with the new texts among them.
func (s *Sentinel) keepEdit(ctx context.Context, old, c *ledger.Call, d *draft) error {
	args := make([]wire.EditValue, len(d.made.frame.Args))
	for i, a := range d.made.frame.Args {
		args[i] = wire.EditValue{Name: a.Name, Values: a.Values}
	}
	o, err := s.editOrder(old, args, d.files)
	if err != nil {
		return err
	}
	defer closeAll(o.files)
	j := *d.made
	j.files = o.files
	return s.keep(ctx, c, &j)
}
