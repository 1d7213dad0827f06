// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// Custom surrogates: a person issues one into a cell, by a manifest that says to which hosts its account's credential may go,
// where it stands and which requests there are. A value of it the cell asks for itself, and gets another one each time; authd
// keeps what they are, sentinel never. Issuing is a widening, taking back is not.

const (
	surrogateKey    = "surrogate/"     // then CELL/NAME: what is issued, JSON of issue; empty once it is taken back
	surrogateEndKey = "surrogate-end/" // then an issue: authd was not told yet that it ended
	customVendor    = "custom"
)

// issue is what a person issued, as the record keeps it.
type issue struct {
	ID         string `json:"id"`
	Name       string `json:"name"` // of the surrogate and its account
	Cell       string `json:"cell"`
	Generation int64  `json:"generation"` // of the account, as it was decided
	Digest     string `json:"digest"`     // likewise, hex
	Manifest   []byte `json:"manifest"`
	Until      int64  `json:"until,omitzero"` // seconds; 0: until it is taken back
	Made       int64  `json:"made"`
	By         string `json:"by"`
}

// issued is an issue with its manifest read. It does not change.
type issued struct {
	issue
	manifest *manifest.Manifest
}

// id is empty of none.
func (is *issued) id() string {
	if is == nil {
		return ""
	}
	return is.ID
}

func (is *issued) over(now time.Time) bool { return is.Until != 0 && now.Unix() >= is.Until }

// loadSurrogates reads back what is issued. An issue that cannot be read is issued no more: it is said in the log, and nothing
// goes under it.
func (s *Sentinel) loadSurrogates() {
	all := map[string]*issued{}
	for _, v := range s.ledger.Settings(surrogateKey) {
		if len(v.Value) == 0 {
			continue
		}
		is := new(issued)
		err := json.Unmarshal(v.Value, &is.issue)
		if err == nil {
			is.manifest, err = manifest.Parse(is.Manifest)
		}
		if err == nil && v.Key != surrogateKey+is.Cell+"/"+is.Name {
			err = fmt.Errorf("it names another cell or surrogate")
		}
		if err != nil {
			s.log.Error("a surrogate that was issued cannot be read back, and is not used", "key", v.Key, "err", err.Error())
			continue
		}
		all[is.Cell+"/"+is.Name] = is
	}
	s.issues.Store(&all)
}

func (s *Sentinel) allIssued() map[string]*issued {
	if p := s.issues.Load(); p != nil {
		return *p
	}
	return nil
}

// issueNamed is what is issued into a cell under a name, or nil.
func (s *Sentinel) issueNamed(cell, name string) *issued {
	if is := s.allIssued()[cell+"/"+name]; is != nil && !is.over(time.Now()) {
		return is
	}
	return nil
}

// issuedFor is what is issued into a cell for a host and port, or nil. There is at most one.
func (s *Sentinel) issuedFor(cell string, t policy.Target) *issued {
	if t.Name == "" {
		return nil
	}
	for _, is := range s.allIssued() {
		if is.Cell == cell && !is.over(time.Now()) && is.manifest.Covers(t.Name, t.Port) {
			return is
		}
	}
	return nil
}

// sameAccount says why an account is not the one that a manifest is about, or "".
func sameAccount(a *wire.Account, m *manifest.Manifest) string {
	place := a.Placement
	if m.Placement.User == "" { // then the person chose it with the account
		place.User = ""
	}
	also, want := slices.Sorted(slices.Values(a.Also)), slices.Sorted(slices.Values(m.Also()))
	switch {
	case a.Vendor != customVendor:
		return "it is of " + a.Vendor
	case place != m.Placement:
		return "its credential stands in another place than the manifest says"
	case a.Base != m.Base() || !slices.Equal(also, want):
		return "it is for other hosts than the manifest"
	}
	return ""
}

// usable is the account of an issue, if it is still what a person decided.
func (s *Sentinel) usable(is *issued) (wire.Account, error) {
	a, err := s.account(customVendor, is.Name)
	if err != nil {
		return wire.Account{}, err
	}
	why := sameAccount(&a, is.manifest)
	if why == "" && (a.Generation != is.Generation || hex.EncodeToString(a.Digest[:]) != is.Digest) {
		why = "it has changed since"
	}
	if why != "" {
		next := "the person runs: doorward surrogate revoke " + is.Name + " --cell " + is.Cell + ", and adds it again"
		if is.ID == "" { // it is not issued yet
			next = "deny it, and add it again"
		}
		return wire.Account{}, wire.Refuse(wire.CodeNotConnected,
			"the account "+is.Name+" is not what the surrogate was issued of: "+why, next)
	}
	return a, nil
}

// personSurrogate is verb surrogate of a person: add, which is a widening, check before it, list or revoke.
func (s *Sentinel) personSurrogate(ctx context.Context, c *daemon.Call, req *wire.PersonSurrogateReq) (*wire.PersonSurrogateResp, error) {
	by := actor(c.Peer)
	switch req.Op {
	case "add":
		id, err := s.addSurrogate(ctx, req, by)
		return &wire.PersonSurrogateResp{Widening: id}, err
	case "check":
		m, err := manifest.ForIssue(req.Manifest)
		if err != nil {
			return nil, unread(err)
		}
		return &wire.PersonSurrogateResp{}, s.free(&issued{issue{Name: req.Name, Cell: req.Cell, Until: req.Until}, m})
	case "list":
		return s.listSurrogates(req.Name)
	case "revoke":
		lines, err := s.revokeSurrogates(context.WithoutCancel(ctx), by, "a person revoked it", func(is *issued) bool {
			return is.Name == req.Name && (req.Cell == "" || is.Cell == req.Cell)
		})
		if err == nil && len(lines) == 0 {
			err = wire.Refuse(wire.CodeNotFound, "no surrogate "+quote(req.Name)+" is issued there", "doorward surrogate list shows them")
		}
		return &wire.PersonSurrogateResp{Lines: lines}, err
	}
	return nil, wire.Refuse(wire.CodeUsage, "surrogate: no operation "+quote(req.Op), "")
}

func (s *Sentinel) listSurrogates(after string) (*wire.PersonSurrogateResp, error) {
	all := s.allIssued()
	var list []wire.IssuedCustom
	s.mu.Lock()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		is := all[key]
		x := wire.IssuedCustom{Issue: is.ID, Name: is.Name, Cell: is.Cell, Made: is.Made, Until: is.Until, By: is.By,
			LastUse: s.used[is.ID]}
		for _, h := range is.manifest.Hosts {
			x.Hosts = append(x.Hosts, h.String())
		}
		list = append(list, x)
	}
	s.mu.Unlock()
	r := new(wire.PersonSurrogateResp)
	var err error
	r.Issued, r.Next, err = page(list, after, func(x *wire.IssuedCustom) string { return x.Cell + "/" + x.Name })
	return r, err
}

// addSurrogate puts a surrogate up for decision.
func (s *Sentinel) addSurrogate(ctx context.Context, req *wire.PersonSurrogateReq, by string) (string, error) {
	m, err := manifest.ForIssue(req.Manifest)
	if err != nil {
		return "", unread(err)
	}
	is := &issued{issue{Name: req.Name, Cell: req.Cell, Manifest: req.Manifest, Until: req.Until, By: by}, m}
	if err := s.mayIssue(is, false); err != nil {
		return "", err
	}
	a := s.accountNamed(req.Name)
	if !s.decided(&a) { // a card that was denied, or is over, is put up again: without it nothing comes of this one
		if _, err := s.askAccount(a); err != nil {
			return "", err
		}
	}
	is.Generation, is.Digest = a.Generation, hex.EncodeToString(a.Digest[:])
	value, err := json.Marshal(&is.issue)
	if err != nil {
		return "", err
	}
	lines := []string{"programs of cell " + is.Cell + " may use the credential " + is.Name + ", which they do not see"}
	shown := *m
	shown.Placement = a.Placement // the same, but for a user that the person named
	lines = append(lines, shown.Lines()...)
	if len(s.ledger.Sessions(is.Cell)) == 0 {
		lines = append(lines, "no program ran in a cell of that name when this was asked")
	}
	if is.Until == 0 {
		lines = append(lines, "until it is revoked")
	} else {
		lines = append(lines, "until "+time.Unix(is.Until, 0).UTC().Format("2006-01-02 15:04 UTC"))
	}
	set := s.policy.Load()
	for _, h := range m.Hosts {
		if t := (policy.Target{Name: h.Name, Port: h.Port}); !h.Below && set.Decide(set.ConnectCall(&policy.Connect{Target: t,
			Begins: wire.BeginsTLS, Cell: is.Cell, Now: time.Now(), Surrogate: is.Name}), nil).Verdict != policy.Allow {
			lines = append(lines, "by the policy as it is connections to "+t.String()+" do not go")
		}
	}
	return s.widen(ctx, widening{Kind: widenSurrogate, About: is.Cell + "/" + is.Name, Lines: lines, Value: value},
		"a surrogate of "+is.Name+" for cell "+is.Cell, by)
}

func (s *Sentinel) accountNamed(name string) wire.Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accounts[name]
}

// unread refuses a manifest that cannot be read.
func unread(err error) error {
	return wire.Refuse(wire.CodeBadArgument, "the manifest: "+clip(err.Error(), 400),
		"mend it there: doorward surrogate check FILE; then add it again")
}

// free says why a name, a cell or hosts cannot be issued, whatever the account is: it needs none yet.
func (s *Sentinel) free(is *issued) error {
	bad := func(reason, next string) error { return wire.Refuse(wire.CodeBadArgument, reason, next) }
	_, vendor := s.vendors[is.Name]
	switch {
	case !policy.SurrogateNameOK(is.Name) || len(is.Name) > 32 || strings.HasSuffix(is.Name, "-") || vendor ||
		slices.Contains([]string{siteConnector, self, customVendor}, is.Name):
		return bad("no surrogate can be called "+quote(is.Name), "1 to 32 of a-z, 0-9 and inner -, and no connector's name")
	case is.Cell == "" || len(is.Cell) > 32 || strings.Trim(is.Cell, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
		return bad("no cell can be called "+quote(is.Cell), "doorward cell list shows them")
	case is.over(time.Now()):
		return bad("its end is over already", "")
	}
	for _, other := range s.allIssued() {
		switch {
		case other.Cell != is.Cell || other.over(time.Now()):
		case other.Name == is.Name:
			return wire.Refuse(wire.CodeConflict, "cell "+is.Cell+" has the surrogate "+is.Name+" already",
				"doorward surrogate revoke "+is.Name+" --cell "+is.Cell+", then add it")
		default:
			for _, h := range is.manifest.Hosts {
				if slices.ContainsFunc(other.manifest.Hosts, func(o manifest.Host) bool { return overlap(o, h) }) {
					return wire.Refuse(wire.CodeConflict, "cell "+is.Cell+" has a surrogate for "+h.String()+" already, "+other.Name+
						": which of two is meant no request could say", "revoke that first, or use another cell")
				}
			}
		}
	}
	return nil
}

// mayIssue says why something cannot be issued. decided says whether its account must be decided by now.
func (s *Sentinel) mayIssue(is *issued, decided bool) error {
	if err := s.free(is); err != nil {
		return err
	}
	a := s.accountNamed(is.Name)
	if a.Name == "" {
		return wire.Refuse(wire.CodeNotConfigured, "no account "+quote(is.Name), "doorward surrogate add adds it")
	}
	if why := sameAccount(&a, is.manifest); why != "" {
		return wire.Refuse(wire.CodeBadArgument, "the account "+is.Name+" is not that of the manifest: "+why, "choose another name")
	}
	if decided {
		_, err := s.usable(is)
		return err
	}
	return nil
}

// overlap says whether a name and port could be met by both.
func overlap(a, b manifest.Host) bool {
	below := func(name, of string) bool { return strings.HasSuffix(name, "."+of) }
	switch {
	case a.Port != b.Port:
		return false
	case a.Below && b.Below:
		return a.Name == b.Name || below(a.Name, b.Name) || below(b.Name, a.Name)
	case a.Below:
		return below(b.Name, a.Name)
	case b.Below:
		return below(a.Name, b.Name)
	default:
		return a.Name == b.Name
	}
}

// toIssue reads back what a widening is to issue.
func toIssue(value []byte) (*issued, error) {
	is := new(issued)
	err := json.Unmarshal(value, &is.issue)
	if err == nil {
		is.manifest, err = manifest.Parse(is.Manifest)
	}
	if err != nil {
		return nil, fmt.Errorf("read what is to be issued back: %w", err)
	}
	return is, nil
}

// mayApprove says why nothing would come of the card of a surrogate, were it approved now.
func (s *Sentinel) mayApprove(c *ledger.Call) error {
	var w widening
	if err := json.Unmarshal(c.Canonical, &w); err != nil {
		return fmt.Errorf("read widening %s back: %w", c.ID, err)
	}
	is, err := toIssue(w.Value)
	if err != nil {
		return err
	}
	return s.mayIssue(is, true)
}

// issueSurrogate is what an approved widening does.
func (s *Sentinel) issueSurrogate(ctx context.Context, value []byte, by string, details any) error {
	is, err := toIssue(value)
	if err != nil {
		return err
	}
	if err := s.keepIssue(ctx, is, by, details); err != nil {
		return err
	}
	// What the cell has open to those hosts is carried unread, or was decided by other rules.
	_ = s.cutHosts(ctx, is)
	return nil
}

func (s *Sentinel) keepIssue(ctx context.Context, is *issued, by string, details any) error {
	s.issuing.Lock()
	defer s.issuing.Unlock()
	if err := s.mayIssue(is, true); err != nil {
		return err
	}
	is.ID, is.Made, is.By = ledger.NewID(), time.Now().Unix(), by
	kept, err := json.Marshal(&is.issue)
	if err != nil {
		return err
	}
	if err := s.ledger.PutSetting(ctx, surrogateKey+is.Cell+"/"+is.Name, kept, by, details); err != nil {
		return err
	}
	s.loadSurrogates()
	return nil
}

// maxCuts is how many connections of a cell are ended one by one. Where there are more, all of the cell's are: it has as many as it
// likes, and who ends them waits.
const maxCuts = 32

// cutHosts ends the connections of a cell to the hosts of an issue. It goes no further where egress does not answer.
func (s *Sentinel) cutHosts(ctx context.Context, is *issued) error {
	ids := s.conns.to(is.Cell, func(t policy.Target) bool { return t.Name != "" && is.manifest.Covers(t.Name, t.Port) })
	what := make([]wire.GrantRef, 0, maxCuts)
	for _, id := range ids {
		what = append(what, wire.GrantRef{Grant: id})
	}
	if len(ids) > maxCuts {
		what = []wire.GrantRef{{Cell: is.Cell}}
	}
	for _, w := range what {
		if _, err := s.cutCell(ctx, is.Cell, w); err != nil {
			s.log.Warn("connections outlive what was issued for their hosts", "surrogate", is.Name, "cell", is.Cell, "err", err.Error())
			return err
		}
	}
	return nil
}

// cutIssue ends what a cell has open under an issue, and to its hosts.
func (s *Sentinel) cutIssue(ctx context.Context, is *issued) error {
	_, err := s.cutCell(ctx, is.Cell, wire.GrantRef{Grant: is.ID})
	return errors.Join(err, s.cutHosts(ctx, is))
}

// cutAccount ends what is open with the credential of an account, and says of which cells that failed.
func (s *Sentinel) cutAccount(ctx context.Context, account string) []string {
	var out []string
	for _, is := range s.allIssued() {
		if is.Name != account {
			continue
		}
		if err := s.cutIssue(ctx, is); err != nil {
			out = append(out, "the connections of cell "+is.Cell+" with the surrogate "+is.Name+" could not be ended: "+err.Error())
		}
	}
	return out
}

// revokeSurrogates takes back what which picks, and says what was done. What authd is not told now it is told when it is there
// again; until then nothing is allowed under it anyway.
func (s *Sentinel) revokeSurrogates(ctx context.Context, by, why string, which func(*issued) bool) ([]string, error) {
	return s.takeBack(ctx, by, why, true, which)
}

// takeBack is revokeSurrogates; without tell nobody is told now. Nobody is waited for while others' surrogates cannot change.
func (s *Sentinel) takeBack(ctx context.Context, by, why string, tell bool, which func(*issued) bool) ([]string, error) {
	lines, ended, err := s.endWhich(ctx, by, why, which)
	for _, is := range ended {
		if !tell {
			break
		}
		if err := inTimeOf(ctx, func(ctx context.Context) error { return s.endIssue(ctx, is.ID) }); err != nil {
			lines = append(lines, "authd did not answer, and is told when it is there; nothing is allowed with it meanwhile: "+
				err.Error())
		}
		if err := s.cutIssue(ctx, is); err != nil {
			lines = append(lines, "the connections of cell "+is.Cell+" to its hosts could not be ended: "+err.Error())
		}
	}
	return lines, err
}

// endWhich writes off what which picks.
func (s *Sentinel) endWhich(ctx context.Context, by, why string, which func(*issued) bool) (lines []string, ended []*issued, err error) {
	s.issuing.Lock()
	defer s.issuing.Unlock()
	all := s.allIssued()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		is := all[key]
		if !which(is) {
			continue
		}
		details := map[string]string{"why": why, "issue": is.ID}
		if err := s.ledger.PutSetting(ctx, surrogateEndKey+is.ID, []byte(is.Cell), by, details); err != nil {
			return lines, ended, s.ledgerError(err)
		}
		if err := s.ledger.PutSetting(ctx, surrogateKey+key, nil, by, details); err != nil {
			return lines, ended, s.ledgerError(err)
		}
		s.loadSurrogates()
		ended = append(ended, is)
		lines = append(lines, "surrogate "+is.Name+" of cell "+is.Cell+" is revoked")
		gone, err := s.ledger.RevokeGrants(ctx, ledger.GrantFilter{Cell: is.Cell, Connector: is.Name}, by, why)
		if err != nil {
			return lines, ended, s.ledgerError(err)
		}
		for _, g := range gone {
			lines = append(lines, "grant "+g.ID+" of "+g.Connector+" "+g.Method+" is revoked")
		}
	}
	return lines, ended, nil
}

// voidSurrogates takes all of them back: an older record may have some that a person took back since. authd is told when its
// accounts were taken up.
func (s *Sentinel) voidSurrogates(ctx context.Context, why string) {
	lines, err := s.takeBack(ctx, "sentinel", why, false, func(*issued) bool { return true })
	if err != nil {
		s.log.Error("surrogates of an older record are not taken back; none is used", "err", err.Error())
		s.issues.Store(nil)
	}
	for _, l := range lines {
		s.log.Warn(l, "why", why)
	}
}

// endIssue has authd forget all that was minted under an issue.
func (s *Sentinel) endIssue(ctx context.Context, id string) error {
	if err := s.authd.Call(ctx, "revoke", &wire.GrantRef{Grant: id}, new(wire.RevokeResp)); err != nil {
		return err
	}
	return s.ledger.PutSetting(context.WithoutCancel(ctx), surrogateEndKey+id, nil, "sentinel", nil)
}

// endIssues tells authd of the issues that ended while it was away.
func (s *Sentinel) endIssues(ctx context.Context) {
	for _, v := range s.ledger.Settings(surrogateEndKey) {
		if len(v.Value) == 0 {
			continue
		}
		if err := s.endIssue(ctx, strings.TrimPrefix(v.Key, surrogateEndKey)); err != nil {
			s.log.Warn("authd keeps what was minted under an issue that ended", "issue", v.Key, "err", err.Error())
		}
	}
}

// endOver takes back what is over.
func (s *Sentinel) endOver(ctx context.Context) {
	now := time.Now()
	over := func(is *issued) bool { return is.over(now) }
	for _, is := range s.allIssued() {
		if over(is) {
			if _, err := s.revokeSurrogates(ctx, "sentinel", "its time is over", over); err != nil {
				s.log.Warn("a surrogate that is over is not taken back", "err", err.Error())
			}
			return
		}
	}
}

func (s *Sentinel) useIssue(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[id] = time.Now().Unix()
}

// Bounds of minting: values of one cell at once, and how long until another.
const (
	mintBurst = 20
	mintEvery = 10 * time.Second
)

// surrogate is verb surrogate of a cell: a fresh value of what was issued into it. It is on the record, without the value.
func (s *Sentinel) surrogate(ctx context.Context, c *daemon.Call, req *wire.SurrogateReq) (*wire.SurrogateResp, error) {
	if req.Name == "" {
		return s.issuedHere(c.Peer.Name), nil
	}
	resp, err := s.mint(ctx, c, req)
	if err == nil {
		return resp, nil
	}
	e := asError(s.log, err)
	r := ledger.Refusal{By: "sentinel", Cell: c.Peer.Name, Reason: string(e.Code), Next: e.Next}
	if s.conns.mayName(c.Peer.Name, "surrogate "+short(req.Name)+" "+r.Reason) && s.mayRecord(c.Peer.Name, refusalCost) {
		r.Host, r.Detail = short(req.Name), "surrogate: "+clip(e.Reason, 200)
	}
	if err := s.ledger.Refused(ctx, r); err != nil {
		return nil, s.ledgerError(err)
	}
	return nil, e
}

func (s *Sentinel) mint(ctx context.Context, c *daemon.Call, req *wire.SurrogateReq) (*wire.SurrogateResp, error) {
	cell := c.Peer.Name
	if err := s.running(c.Peer); err != nil {
		return nil, err
	}
	is := s.issueNamed(cell, req.Name)
	if is == nil && s.waitsFor(widenSurrogate, cell+"/"+req.Name) != "" {
		return nil, wire.Refuse(wire.CodeNeedsApproval, "the surrogate "+quote(req.Name)+" waits for a person's decision",
			"the person runs: doorward pending; ask for it again once it is approved")
	}
	if is == nil {
		return nil, wire.Refuse(wire.CodeNotFound, "no surrogate "+quote(req.Name)+" is issued into this cell",
			"the person runs: doorward surrogate add NAME --cell "+cell+" --manifest FILE")
	}
	a, err := s.usable(is)
	if err != nil {
		return nil, err
	}
	if !s.mayMint(cell, time.Now()) {
		return nil, wire.Refuse(wire.CodeTooMany, "this cell has asked for many surrogates lately",
			"use the one that it has, or wait a minute")
	}
	ev := ledger.Event{Type: ledger.EvMint, Actor: actor(c.Peer), Cell: cell, Session: sessionID(c.Peer), Subject: is.Name,
		Details: map[string]string{"issue": is.ID}}
	if err := s.ledger.Record(ctx, ev); err != nil {
		return nil, s.ledgerError(err)
	}
	var got wire.MintResp
	err = s.authd.Call(ctx, "mint", &wire.MintReq{Issue: is.ID, Cell: cell, Account: a.Name, Generation: a.Generation, Digest: a.Digest,
		Unix: is.Until}, &got)
	if err != nil {
		return nil, err
	}
	// Who takes it back writes that first: what was minted since is ended here.
	if now := s.issueNamed(cell, req.Name); now.id() != is.ID {
		if err := s.endIssue(context.WithoutCancel(ctx), is.ID); err != nil {
			s.log.Warn("authd keeps what was minted under an issue that ended", "issue", is.ID, "err", err.Error())
		}
		return nil, wire.Refuse(wire.CodeRevoked, "the surrogate was taken back", "")
	}
	if err := s.stopped(cell); err != nil {
		return nil, err
	}
	return &wire.SurrogateResp{Value: got.Value, Unix: is.Until}, nil
}

// mayMint says whether a cell may have another value now.
func (s *Sentinel) mayMint(cell string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.mints[cell]
	if b.at.IsZero() {
		b = bucket{mintBurst, now}
	}
	if n := int(now.Sub(b.at) / mintEvery); n > 0 {
		b.left, b.at = min(mintBurst, b.left+n), b.at.Add(time.Duration(n)*mintEvery)
	}
	ok := b.left > 0
	if ok {
		b.left--
	}
	s.mints[cell] = b
	return ok
}

// bucket is what is left at a time.
type bucket struct {
	left int
	at   time.Time
}

// intercepted says for a person what of a cell's connections egress ends itself: lines "HOST:PORT why".
func (s *Sentinel) intercepted(cell string) []string {
	var out []string
	for _, is := range s.allIssued() {
		if is.Cell != cell || is.over(time.Now()) {
			continue
		}
		for _, h := range is.manifest.Hosts {
			out = append(out, h.String()+" surrogate "+is.Name)
		}
	}
	for _, x := range s.policy.Load().ReadHosts() {
		out = append(out, x[0]+" "+x[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}
