// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/passkey"
)

const (
	approverKey  = "approver/" // settings: an approverRow, by name
	maxApprovers = 16
	maxInvited   = 8
	inviteFor    = 15 * time.Minute
)

// approverRow is an approver as the ledger keeps it: a passkey that may decide.
type approverRow struct {
	Name       string `json:"name"`
	User       []byte `json:"user"` // handle
	Credential []byte `json:"credential"`
	Public     []byte `json:"public"` // COSE_Key
	Count      uint32 `json:"count"`
	Made       int64  `json:"made"` // seconds
	By         string `json:"by"`   // who invited it
	Viewer     bool   `json:"viewer,omitempty"`

	// Recovery is the nonce of a recovery code, which is made of it and of sentinel's seed: the row alone lets nobody in. In this row
	// it ends with what it is for, and is used in the same write that puts the new passkey in.
	Recovery   []byte `json:"recovery,omitempty"`
	RecoveryAt int64  `json:"recovery_at,omitempty"` // seconds
}

func (r *approverRow) key() *passkey.Key {
	return &passkey.Key{ID: r.Credential, User: r.User, Public: r.Public, Count: r.Count}
}

// invitation lets whoever has its code register one passkey under its name. The code goes to the admin's terminal, and from there in
// the fragment of a link, which browsers send to nobody; it is never written down.
type invitation struct {
	name, by        string
	viewer          bool
	code            []byte
	challenge, user []byte
}

// approverRows are all approvers, by name.
func (s *Sentinel) approverRows() ([]approverRow, error) {
	if err := s.takeBackOlder(s.lifetime); err != nil {
		return nil, err
	}
	var out []approverRow
	for _, v := range s.ledger.Settings(approverKey) {
		if len(v.Value) == 0 {
			continue // removed
		}
		var r approverRow
		err := json.Unmarshal(v.Value, &r)
		if err == nil && approverKey+r.Name != v.Key {
			err = fmt.Errorf("it is of %s", quote(r.Name))
		}
		if err != nil { // our own row is not what we wrote
			return nil, fmt.Errorf("read %s back: %w; no passkey counts until it is removed: doorward approver remove", v.Key, err)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b approverRow) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// credentials are the ids of the passkeys that may decide or, with viewers, sign in.
func (s *Sentinel) credentials(viewers bool) ([][]byte, error) {
	all, err := s.approverRows()
	var out [][]byte
	for _, r := range all {
		if viewers || !r.Viewer {
			out = append(out, r.Credential)
		}
	}
	return out, err
}

func (s *Sentinel) putApprover(ctx context.Context, r *approverRow, by string, details map[string]string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.ledgerError(s.ledger.PutSetting(ctx, approverKey+r.Name, b, by, details))
}

func role(viewer bool) string {
	if viewer {
		return "viewer"
	}
	return "approver"
}

const offersVoid = "who may decide has changed: offers that were open are void"

// approvers lists who may decide with a passkey, and lets root change that. Others could give themselves the power that they lack.
func (s *Sentinel) approvers(ctx context.Context, c *daemon.Call, req *wire.ApproversReq) (*wire.ApproversResp, error) {
	switch req.Op {
	case "list":
		return s.listApprovers()
	case "link": // which gives nobody anything: the key is what anybody may know
		place, _, err := s.place()
		if err != nil {
			return nil, err
		}
		return &wire.ApproversResp{Link: place.PageOrigin() + "/#" + s.keyPart()}, nil
	}
	if req.Op != "add" && req.Op != "remove" && req.Op != "recovery" {
		return nil, wire.Refuse(wire.CodeUsage, "approvers: no operation "+quote(req.Op), "")
	}
	if !c.Peer.Admin {
		return nil, wire.Refuse(wire.CodeNotAllowed, "only root changes who may approve", "sudo doorward approver "+req.Op+" NAME")
	}
	if err := wire.ApproverName(req.Name); err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "")
	}
	switch req.Op {
	case "add":
		return s.invite(ctx, req.Name, req.Viewer, actor(c.Peer))
	case "recovery":
		return s.recovery(ctx, req.Name, req.Revoke, actor(c.Peer))
	}
	if err := s.removeApprover(ctx, req.Name, actor(c.Peer), "root removed it"); err != nil {
		return nil, err
	}
	return s.listApprovers()
}

func (s *Sentinel) listApprovers() (*wire.ApproversResp, error) {
	all, err := s.approverRows()
	if err != nil {
		return nil, err
	}
	r := &wire.ApproversResp{Key: s.web.public}
	for i := range all {
		r.Approvers = append(r.Approvers, wire.Approver{Name: all[i].Name, Viewer: all[i].Viewer, Made: all[i].Made, By: all[i].By,
			Recovery: all[i].RecoveryAt})
	}
	s.web.mu.Lock()
	defer s.web.mu.Unlock()
	s.web.invited.sweep(s.ledger.Now())
	for _, v := range s.web.invited.all {
		r.Approvers = append(r.Approvers, wire.Approver{Name: v.value.name, Viewer: v.value.viewer, By: v.value.by,
			Invited: v.until.Time().Unix()})
	}
	slices.SortFunc(r.Approvers, func(a, b wire.Approver) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// invite makes an invitation, and takes an older one of that name back.
func (s *Sentinel) invite(ctx context.Context, name string, viewer bool, by string) (*wire.ApproversResp, error) {
	place, _, err := s.place()
	if err != nil {
		return nil, err
	}
	s.web.keys.Lock()
	defer s.web.keys.Unlock()
	if err := s.mayJoin(name, nil); err != nil {
		return nil, err
	}
	s.web.end(name) // an older invitation; nobody of that name has a session
	now := s.ledger.Now()
	s.web.mu.Lock()
	s.web.invited.sweep(now)
	full := len(s.web.invited.all) >= maxInvited
	s.web.mu.Unlock()
	if full {
		return nil, wire.Refuse(wire.CodeTooMany, fmt.Sprintf("%d invitations are open already", maxInvited),
			"wait until they are over, or take one back: sudo doorward approver remove NAME")
	}
	if err := s.ledger.Record(ctx, ledger.Event{Type: "approver-invited", Actor: by, Subject: approverKey + name,
		Details: map[string]string{"role": role(viewer), "offers": offersVoid}}); err != nil {
		return nil, s.ledgerError(err)
	}
	id, until := newMark(), now.Add(inviteFor)
	v := invitation{name: name, by: by, viewer: viewer, code: make([]byte, 32), challenge: make([]byte, 32), user: make([]byte, 32)}
	for _, b := range [][]byte{v.code, v.challenge, v.user} {
		rand.Read(b)
	}
	s.web.mu.Lock()
	s.web.invited.put(now, []byte(id), v, until)
	s.web.mu.Unlock()
	text := base64.RawURLEncoding.EncodeToString
	return &wire.ApproversResp{Until: until.Time().Unix(),
		Link: place.PageOrigin() + "/#enrol=" + id + "&code=" + text(v.code) + "&" + s.keyPart()}, nil
}

// keyPart is of a link's fragment: the card key, which the browser takes from there and from nowhere else.
func (s *Sentinel) keyPart() string {
	return "key=" + base64.RawURLEncoding.EncodeToString(s.web.public)
}

// mayJoin says whether there is room for an approver of that name, and for a passkey with that id.
func (s *Sentinel) mayJoin(name string, credential []byte) error {
	all, err := s.approverRows()
	if err != nil {
		return err
	}
	for i := range all {
		switch {
		case all[i].Name == name:
			return wire.Refuse(wire.CodeConflict, "there is an approver "+name+" already",
				"choose another name; or remove that one first: sudo doorward approver remove "+name)
		case bytes.Equal(all[i].Credential, credential):
			return wire.Refuse(wire.CodeConflict, "this passkey is approver "+all[i].Name+" already", "take another one")
		}
	}
	if len(all) >= maxApprovers {
		return wire.Refuse(wire.CodeTooMany, fmt.Sprintf("%d approvers are the most", maxApprovers),
			"remove one: sudo doorward approver remove NAME")
	}
	return nil
}

// webEnrol registers a passkey for an invitation, in two steps. No parser sees what the code's MAC does not cover: who carries it, or
// guesses the id of an invitation, can put no key of its own in.
func (s *Sentinel) webEnrol(ctx context.Context, _ []byte, q *wire.EnrolReq) (*wire.EnrolResp, error) {
	place, at, err := s.place()
	if err != nil {
		return nil, err
	}
	s.web.keys.Lock()
	defer s.web.keys.Unlock()
	if strings.HasPrefix(q.ID, approver.RecoveryPrefix) {
		return s.recover(ctx, place, at, q)
	}
	s.web.mu.Lock()
	found, ok := s.web.invited.get(s.ledger.Now(), []byte(q.ID))
	s.web.mu.Unlock()
	if !ok {
		return nil, wire.Refuse(wire.CodeNotFound, "this invitation was used, taken back, or is over; it holds 15 minutes",
			"have root make another: sudo doorward approver add NAME")
	}
	v := found.value
	if len(q.Credential) == 0 {
		r := &wire.EnrolResp{Challenge: v.challenge, RP: place.Host, User: v.user, Name: v.name}
		r.Exclude, err = s.credentials(true)
		return r, err
	}
	if !hmac.Equal(approver.EnrolMAC(v.code, q.Credential), q.MAC) {
		s.refused("sentinel", "approvals", "enrol", wire.CodeNotAllowed, "a registration that the invitation's code does not cover")
		return nil, wire.Refuse(wire.CodeNotAllowed, "what arrived is not what a browser with the invitation's code sent",
			"open the whole link again; if it stays so, approvals may be taken over")
	}
	key, err := passkey.Register(at, v.challenge, v.user, q.Credential)
	if err != nil {
		return nil, s.unsigned("enrol", err)
	}
	if err := s.mayJoin(v.name, key.ID); err != nil {
		return nil, err
	}
	row := &approverRow{Name: v.name, User: key.User, Credential: key.ID, Public: key.Public, Count: key.Count,
		Made: s.ledger.Now().Time().Unix(), By: v.by, Viewer: v.viewer}
	err = s.putApprover(context.WithoutCancel(ctx), row, v.by, map[string]string{"role": role(v.viewer),
		"credential": credentialSum(key.ID), "public": base64.RawStdEncoding.EncodeToString(key.Public), "offers": offersVoid})
	if err != nil {
		return nil, err
	}
	s.web.end(v.name) // and with it the invitation
	return &wire.EnrolResp{Done: true, Name: v.name}, nil
}

// removeApprover takes an approver away, with what is open of it.
func (s *Sentinel) removeApprover(ctx context.Context, name, by, why string) error {
	s.web.keys.Lock()
	defer s.web.keys.Unlock()
	now := s.ledger.Now()
	s.web.mu.Lock()
	s.web.invited.sweep(now)
	known := false
	for _, v := range s.web.invited.all {
		known = known || v.value.name == name
	}
	s.web.mu.Unlock()
	if v, ok := s.ledger.Setting(approverKey + name); !known && (!ok || len(v.Value) == 0) {
		return wire.Refuse(wire.CodeNotFound, "no approver "+quote(name), "doorward approver list shows them")
	}
	row, _ := s.approverNamed(name) // one that cannot be read counts as an approver
	s.web.end(name)
	return s.ledgerError(s.ledger.PutSetting(ctx, approverKey+name, nil, by, map[string]string{"why": why, "role": role(row.Viewer),
		"offers": offersVoid}))
}

// voidApprovers takes all of them back: an older record may have one that was removed since, or an older counter of one. Until that is
// on record none counts.
func (s *Sentinel) voidApprovers(ctx context.Context, why string) {
	s.web.older.Store(&why)
	if err := s.takeBackOlder(ctx); err != nil {
		s.log.Error("approvers of an older record are not taken back; none counts", "err", err.Error())
	}
}

// takeBackOlder does what voidApprovers could not do yet. It goes by the keys: a row need not be one that can be read.
func (s *Sentinel) takeBackOlder(ctx context.Context) error {
	why := s.web.older.Load()
	if why == nil {
		return nil
	}
	for _, v := range s.ledger.Settings(approverKey) {
		name := strings.TrimPrefix(v.Key, approverKey)
		if len(v.Value) == 0 {
			continue
		}
		s.web.end(name)
		if err := s.ledger.PutSetting(ctx, v.Key, nil, "sentinel", map[string]string{"why": *why, "offers": offersVoid}); err != nil {
			return fmt.Errorf("take approver %s of an older record back: %w", quote(name), err)
		}
		s.log.Warn("an approver is taken back; enrol again", "name", name, "why", *why)
	}
	s.web.older.CompareAndSwap(why, nil)
	return nil
}
