// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"slices"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/passkey"
)

// recovery makes a recovery code for an approver, in the place of an older one, or takes the one there is back. It is answered once:
// the record has its nonce, which without the seed makes no code.
func (s *Sentinel) recovery(ctx context.Context, name string, revoke bool, by string) (*wire.ApproversResp, error) {
	place, _, err := s.place()
	if err != nil && !revoke {
		return nil, err
	}
	s.web.keys.Lock()
	defer s.web.keys.Unlock()
	all, err := s.approverRows()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(r approverRow) bool { return r.Name == name })
	if i < 0 {
		return nil, wire.Refuse(wire.CodeNotFound, "no approver "+quote(name)+": a recovery code is for one who has a passkey",
			"doorward approver list shows them")
	}
	row, old := &all[i], all[i].Recovery
	row.Recovery, row.RecoveryAt = nil, 0
	if revoke {
		if old == nil {
			return nil, wire.Refuse(wire.CodeNotFound, name+" has no recovery code", "doorward approver list shows who has one")
		}
		return new(wire.ApproversResp), s.putApprover(ctx, row, by, map[string]string{"why": "its recovery code was taken back"})
	}
	row.Recovery, row.RecoveryAt = make([]byte, 32), s.ledger.Now().Time().Unix()
	rand.Read(row.Recovery)
	why := "a recovery code was made for it"
	if old != nil {
		why += "; the older one does not count any more"
	}
	if err := s.putApprover(ctx, row, by, map[string]string{"why": why}); err != nil {
		return nil, err
	}
	return &wire.ApproversResp{Code: approver.RecoveryText(approver.RecoveryCode(s.web.lost, row.Recovery, name)),
		Link: place.PageOrigin() + "/#" + s.keyPart(), Key: s.web.public}, nil
}

// recover registers a passkey by a recovery code, in two steps as by an invitation, in the place of the one that the approver had. A
// code of 136 bits is not found by trying, so what does not fit is refused and no more; each is on record.
// Precondition: s.web.keys is held.
func (s *Sentinel) recover(ctx context.Context, place *approver.Place, at passkey.Place, q *wire.EnrolReq) (*wire.EnrolResp, error) {
	all, err := s.approverRows()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(r approverRow) bool {
		id := approver.RecoveryID(approver.RecoveryCode(s.web.lost, r.Recovery, r.Name))
		return len(r.Recovery) > 0 && hmac.Equal([]byte(id), []byte(q.ID))
	})
	if i < 0 {
		s.refused("sentinel", "approvals", "enrol", wire.CodeNotFound, "a recovery code that nobody has")
		return nil, wire.Refuse(wire.CodeNotFound, "this recovery code does not count: it was used, taken back, or a newer one was made",
			"have root make another: sudo doorward approver recovery NAME")
	}
	row := all[i]
	challenge := approver.RecoveryChallenge(s.web.lost, row.Recovery, row.Name)
	user := approver.RecoveryUser(s.web.lost, row.Recovery, row.Name)
	if len(q.Credential) == 0 {
		r := &wire.EnrolResp{Challenge: challenge, RP: place.Host, User: user, Name: row.Name}
		for j := range all { // the one that ends may be on this device
			if j != i {
				r.Exclude = append(r.Exclude, all[j].Credential)
			}
		}
		return r, nil
	}
	if !hmac.Equal(approver.EnrolMAC(approver.RecoveryCode(s.web.lost, row.Recovery, row.Name), q.Credential), q.MAC) {
		s.refused("sentinel", "approvals", "enrol", wire.CodeNotAllowed, "a registration that the recovery code does not cover")
		return nil, wire.Refuse(wire.CodeNotAllowed, "what arrived is not what a browser with the recovery code sent",
			"type the code again; if it stays so, approvals may be taken over")
	}
	key, err := passkey.Register(at, challenge, user, q.Credential)
	if err != nil {
		return nil, s.unsigned("enrol", err)
	}
	for j := range all {
		if bytes.Equal(all[j].Credential, key.ID) {
			return nil, wire.Refuse(wire.CodeConflict, "this passkey is approver "+all[j].Name+" already", "take another one")
		}
	}
	before := credentialSum(row.Credential)
	row.User, row.Credential, row.Public, row.Count = key.User, key.ID, key.Public, key.Count
	row.Made, row.Recovery, row.RecoveryAt = s.ledger.Now().Time().Unix(), nil, 0
	err = s.putApprover(context.WithoutCancel(ctx), &row, actor(byPasskey(row.Name)), map[string]string{"role": role(row.Viewer),
		"why": "its recovery code was used", "recovery": "used", "replaced": before, "credential": credentialSum(key.ID),
		"public": base64.RawStdEncoding.EncodeToString(key.Public), "offers": offersVoid})
	if err != nil {
		return nil, err
	}
	s.web.end(row.Name)
	return &wire.EnrolResp{Done: true, Name: row.Name}, nil
}
