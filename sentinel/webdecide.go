// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// Bounds of what is decided at once.
const (
	maxItems    = 50
	maxDecision = 64 << 10 // bytes of one decision's text
	maxEvidence = 4 << 10  // bytes of an assertion that the record keeps
)

// webDecide decides on cards that were shown, with one assertion over all of them. The challenge is made anew from what arrived and
// from what sentinel kept of each offer, so nothing of it is taken from the browser's word, or from that of who carries it: another
// card, another text or another end is another challenge, which no passkey has signed. Each offer counts once, whatever becomes of it.
func (s *Sentinel) webDecide(ctx context.Context, c *daemon.Call, req *wire.WebDecideReq) (*wire.WebDecided, error) {
	if n := len(req.Items); n == 0 || n > maxItems {
		return nil, wire.Refuse(wire.CodeTooMany, fmt.Sprintf("%d decisions at once; 1 to %d can be taken", n, maxItems), "")
	}
	offers, drafts, ok := s.web.takeOffers(s.ledger.Now(), req.Items)
	if !ok {
		s.refused("sentinel", "approvals", "decide", wire.CodeExpired, "an offer that is over, was used, or was taken back")
		return nil, wire.Refuse(wire.CodeExpired, "what was shown may not be decided on any more; it holds 5 minutes, and counts once",
			"look at the cards again, and decide then")
	}
	_, at, err := s.place()
	if err != nil {
		return nil, err
	}
	decisions, expires := make([]*wire.Decision, len(offers)), make([]int64, len(offers))
	for i := range offers {
		expires[i] = offers[i].until.Time().Unix()
		if decisions[i], err = readDecision(&req.Items[i], &offers[i].value); err != nil {
			s.refused("sentinel", "approvals", "decide", codeOf(err), "a decision that is not about what was shown")
			return nil, err
		}
	}
	challenge := wire.Challenge(req.Items, expires)
	who, err := s.signer(ctx, "decide", at, challenge[:], req.Assertion)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // who hangs up does not stop it halfway
	c.Peer = byPasskey(who.Name)
	signed, r := wire.Signed(req.Items, expires), new(wire.WebDecided)
	for i, d := range decisions {
		proof := evidence(who, &req.Items[i], signed, req.Assertion)
		card := &wire.DecideCardReq{ID: req.Items[i].ID, Hash: d.Hash, Approve: d.Approve, Grant: d.Grant, Why: d.Why, Stop: d.Stop}
		var got *wire.DecideCardResp
		if offers[i].value.edits == nil {
			got, err = s.decideAs(ctx, c, card, proof)
		} else {
			got, err = s.decideEdit(ctx, c, drafts[i], d, proof)
		}
		if err != nil {
			r.Outcomes = append(r.Outcomes, wire.WebOutcome{Err: asError(s.log, err)})
			continue
		}
		r.Outcomes = append(r.Outcomes, wire.WebOutcome{State: got.State, Grant: got.Grant, Err: got.Err})
	}
	return r, nil
}

// whileApprover does f while who signed is an approver, by the passkey that signed, which stands in the evidence: between a signature
// and the decision that it is for, root may have taken that one away. Without evidence it is a person at a terminal.
func (s *Sentinel) whileApprover(who peer.Identity, evidence map[string]string, f func() error) error {
	if evidence == nil {
		return f()
	}
	s.web.keys.Lock()
	defer s.web.keys.Unlock()
	all, err := s.approverRows()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(r approverRow) bool {
		return r.Name == who.Name && !r.Viewer && credentialSum(r.Credential) == evidence["credential"]
	}) {
		return wire.Refuse(wire.CodeNotAllowed, who.Name+" may not approve any more", "somebody else has to decide")
	}
	return f()
}

// takeOffers takes the offer of each item, with its draft where it has one, and all of them also where one is not there.
func (w *web) takeOffers(now ledger.Moment, items []wire.WebDecision) (out []passed[offer], drafts []*draft, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ok = true
	for i := range items {
		o, found := w.offers.take(now, items[i].Nonce)
		d, _ := w.drafts.take(now, items[i].Nonce)
		out, drafts, ok = append(out, o), append(drafts, d.value), ok && found
	}
	return out, drafts, ok
}

// readDecision reads a decision's text and holds it to the card that was shown. No key may be unknown, or stand twice: two readers
// would read two decisions.
func readDecision(item *wire.WebDecision, shown *offer) (*wire.Decision, error) {
	if len(item.Decision) > maxDecision {
		return nil, wire.Refuse(wire.CodeTooLarge, fmt.Sprintf("a decision of %d bytes, at most %d", len(item.Decision), maxDecision), "")
	}
	d := new(wire.Decision)
	if err := json.Unmarshal(item.Decision, d, json.RejectUnknownMembers(true)); err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, "a decision's text is not of its form", "load the page again")
	}
	switch {
	case item.ID != shown.card || len(d.Hash) == 0 || !bytes.Equal(d.Hash, shown.hash):
		return nil, wire.Refuse(wire.CodeConflict, "a decision is about another card than the one that was shown",
			"look at the cards again")
	case !bytes.Equal(d.Edits, shown.edits):
		return nil, wire.Refuse(wire.CodeConflict, "a decision says of a change that it is none, or of another", "look at the cards again")
	case d.Approve && d.Stop, !d.Approve && d.Grant != nil:
		return nil, wire.Refuse(wire.CodeBadArgument, "a decision says yes and no at once", "load the page again")
	}
	return d, nil
}

// evidence is what the record keeps of a yes: with the passkey's public half, which stands where it was enrolled, anybody can
// verify it again. SHA-256 over the challenge's tag and signed is the challenge of the assertion.
func evidence(who *approverRow, item *wire.WebDecision, signed, assertion []byte) map[string]string {
	e := map[string]string{"credential": credentialSum(who.Credential), "decision": string(item.Decision),
		"signed": base64.RawStdEncoding.EncodeToString(signed)}
	if len(assertion) <= maxEvidence {
		e["assertion"] = string(assertion)
	}
	return e
}

// credentialSum names a passkey in the record.
func credentialSum(id []byte) string {
	sum := sha256.Sum256(id)
	return hex.EncodeToString(sum[:])
}
