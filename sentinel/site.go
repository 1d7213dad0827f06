// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

const siteConnector = policy.SiteConnector

// siteMeaning stands where a method's meaning does in grants of sites: what one allows does not change with an upgrade.
const siteMeaning = "site 1"

// deniedFor is how long a site is not asked about again for a cell, after a person said no.
const deniedFor = 24 * time.Hour

const deniedPrefix = "site-denied/" // settings: the card that was denied

// deniedKey names a person's no. A site's name may be longer than a setting's.
func deniedKey(cell, site string) string {
	sum := wire.Sum([]byte(site))
	return deniedPrefix + cell + "/" + hex.EncodeToString(sum[:16])
}

// question is what a person has to decide first: of its kind there is one card at a time for a cell and key.
type question struct {
	kind  string // widenSite or widenRequest
	about string // the site
	key   string // names it in a person's no
	same  string // names it among the cards of the cell: all that an approval would be of
	says  string // in words
	card  func() (*ledger.Call, error)
}

// askSite refuses a connection that a person has to allow first, and puts one card up for its cell and site.
func (s *Sentinel) askSite(ctx context.Context, w *wanted, set *policy.Set, call *policy.Call, d *policy.Decision) error {
	return s.askFirst(ctx, w, &question{kind: widenSite, about: call.Account, key: call.Account, same: call.Account, says: call.Account,
		card: func() (*ledger.Call, error) { return s.siteCard(w, set, call, d) }}, d)
}

// askFirst refuses what a person has to allow first, and puts one card up for it. Where one waits already, or a person said no
// lately, there is no other.
func (s *Sentinel) askFirst(ctx context.Context, w *wanted, q *question, d *policy.Decision) error {
	defer s.turn(w.cell)() // two at once must not both find none
	if v, ok := s.ledger.Setting(deniedKey(w.cell, q.key)); ok && len(v.Value) > 0 && !s.ledger.Now().Reached(v.At.Add(deniedFor)) {
		return wire.Refuse(wire.CodeDenied, "a person said no to "+q.says, "do not try again; tell the person what you need instead")
	}
	waits := func(id string) error {
		w.card = id
		return wire.Refuse(d.Code, q.says+" asks first: "+d.Reason,
			"a person decides: doorward approve "+id+"; it is not kept, so send the same again then")
	}
	for _, x := range s.ledger.Waiting() {
		if x.Connector != self || x.Method != q.kind || x.Cell != w.cell || x.State != ledger.Parked ||
			!strings.HasPrefix(x.Dedup, cardKey(q.kind, w.cell, q.same)) {
			continue
		}
		if x.Session == "" || s.lives(x.Session) {
			return waits(x.ID)
		}
		got, err := s.ledger.Revoke(ctx, x.ID, "sentinel", string(wire.CodeRevoked), "the session that asked is over")
		if err != nil {
			return s.ledgerError(err)
		}
		s.changed(got)
	}
	c, err := q.card()
	if err != nil {
		return err
	}
	c.Dedup = cardKey(q.kind, w.cell, q.same) + w.session.ID + "/" + w.program
	if !s.mayRecord(netAllowance(w.cell), len(c.Card)+refusalCost) {
		return wire.Refuse(wire.CodeTooMany, "this cell has put up too much for decision lately", "wait some minutes")
	}
	if err := s.roomFor(c); err != nil {
		return err
	}
	got, _, err := s.ledger.Park(ctx, *c, "cell:"+w.cell)
	if err != nil {
		return s.ledgerError(err)
	}
	s.changed(got)
	return waits(got.ID)
}

// cardKey is how the Dedup of a card of a question begins. What the cell chose of it is no longer than a digest.
func cardKey(kind, cell, key string) string {
	sum := wire.Sum([]byte(key))
	return strings.Join([]string{self, kind, cell, hex.EncodeToString(sum[:]), ""}, "/")
}

func (s *Sentinel) lives(session string) bool {
	x, ok := s.ledger.Session(session)
	return ok && x.Ended.IsZero() && !s.ledger.Now().Reached(x.Until)
}

// openCard is the row and the card of a question, without what is particular to it. What is approved is the sentence of the grant.
func (s *Sentinel) openCard(w *wanted, kind string, call *policy.Call, d *policy.Decision, g wire.Grant) (*ledger.Call, *wire.Card, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // RFC 8785 escapes no more than it must
	if err := enc.Encode(widening{About: call.Account, Kind: kind, Lines: []string{g.Sentence}}); err != nil {
		return nil, nil, err
	}
	canonical := bytes.TrimRight(text.Bytes(), "\n")
	sum, mark := wire.Sum(canonical), newMark()
	approval := approvalHash(sum, wire.Digest{}, "ask", mark)
	now := s.ledger.Now()
	c := &ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Cell: w.cell, Session: w.session.ID, Attended: call.Attended,
		Run: w.session.Run, Connector: self, Method: kind, Class: "write", Reach: "none", Account: call.Account,
		Canonical: canonical, Hash: hex.EncodeToString(sum[:]), Approval: hex.EncodeToString(approval[:]), Mark: mark, Decision: "ask",
		Policy: first(d.Policies), Reason: string(d.Code), Created: now, Deadline: now.Add(writeExpiry)}}
	card := &wire.Card{ID: c.ID, Kind: "widening", State: wire.StateParked, Method: kind, Cell: w.cell, Session: call.Session,
		Attended: call.Attended, Labels: s.causes(w.cell), Reason: d.Reason, Policies: d.Policies, Grantable: &g, Hash: approval[:],
		Made: now.Time().Unix(), Expires: c.Deadline.Time().Unix(),
		Facts: []string{"approved without --grant: " + g.Sentence}}
	if strings.Contains("."+w.target.Name, ".xn--") {
		card.Facts = append(card.Facts, "its name is in letters other than a-z and may look like another")
	}
	if g.Tainted {
		card.Facts = append(card.Facts, "the cell has read what others wrote, so they may have worded what is sent there")
	}
	return c, card, nil
}

// siteCard is the row and the card of a site that is asked about.
func (s *Sentinel) siteCard(w *wanted, set *policy.Set, call *policy.Call, d *policy.Decision) (*ledger.Call, error) {
	c, card, err := s.openCard(w, widenSite, call, d, set.PrefillSite(call))
	if err != nil {
		return nil, err
	}
	card.Title = "connect to " + call.Account
	card.Fields = []wire.Field{{Label: "Site", Values: []string{call.Account}, Main: true}}
	if w.program != "" {
		card.Fields = append(card.Fields, wire.Field{Label: "Program, as the cell calls it", Values: []string{w.program}})
	}
	if !call.Intercepts() {
		card.Facts = append(card.Facts, "what is sent there is not read by anybody: it may be whatever the cell knows")
	}
	if w.begins != wire.BeginsTLS {
		card.Facts = append(card.Facts, "it is not encrypted by TLS: who carries it can read and change it")
	}
	c.Card, err = cardFits(card)
	return c, err
}

// wantedGrant is the grant of a card, and the one that a person asks for in its place; for a session it is that of the card.
func (s *Sentinel) wantedGrant(call *ledger.Call, want *wire.Grant) (own, g wire.Grant, err error) {
	k, err := cardOf(call)
	if err != nil {
		return own, g, err
	}
	if k.Grantable == nil {
		return own, g, wire.Refuse(wire.CodeInternal, "the card names no grant", "deny it; the cell asks again")
	}
	own = *k.Grantable
	if g = own; want != nil {
		g = *want
	}
	switch {
	case g.Connector != own.Connector || g.Method != own.Method || g.Account != own.Account || g.Cell != own.Cell:
		err = wire.Refuse(wire.CodeBadArgument, "the grant is for another cell or site than the card", "")
	case g.Kind == policy.Session && (g.Session != own.Session || !s.lives(g.Cell+"/"+g.Session)):
		err = wire.Refuse(wire.CodeExpired, "the session that asked is over or not known",
			"approve it for a time: doorward approve "+call.ID+" --grant until=12h")
	}
	return own, g, err
}

// approvedSite is the grant that a person's yes to a site makes: the one of the card, or the one that they asked for.
func (s *Sentinel) approvedSite(call *ledger.Call, want *wire.Grant) (*ledger.Grant, error) {
	_, g, err := s.wantedGrant(call, want)
	if err != nil {
		return nil, err
	}
	if g, err = s.policy.Load().ValidateSite(g, time.Now()); err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "doorward show "+call.ID)
	}
	return asKept(&g, 0, siteMeaning, false, s.ledger.Now())
}

// asksFirst says whether a widening is one that a cell's own program brought up.
func asksFirst(kind string) bool { return kind == widenSite || kind == widenRequest }

// keepNo remembers a person's no: a site, or a request, is not asked about again for a while, and an account is said to be denied.
func (s *Sentinel) keepNo(ctx context.Context, c *ledger.Call, by string) error {
	if c.Connector == self && c.Method == widenAccount {
		var w widening
		if err := json.Unmarshal(c.Canonical, &w); err != nil {
			return fmt.Errorf("read widening %s back: %w", c.ID, err)
		}
		return s.ledger.PutSetting(ctx, accountDeniedKey+w.About, []byte(w.Digest), by, nil)
	}
	if c.Connector != self || !asksFirst(c.Method) {
		return nil
	}
	key := c.Account
	if c.Method == widenRequest {
		k, err := cardOf(c)
		if err != nil || k.Grantable == nil {
			return err
		}
		key = requestKey(k.Grantable)
	}
	return s.ledger.PutSetting(ctx, deniedKey(c.Cell, key), []byte(c.ID), by, map[string]string{"site": clip(key, 400)})
}

// explainSite is `policy explain site`: what would become of a connection, and why, without making it.
func (s *Sentinel) explainSite(set *policy.Set, req *wire.PolicyReq) ([]string, error) {
	t, err := policy.ParseSite(req.Site)
	if err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "write it as example.org or example.org:8443")
	}
	from, lines := s.suppose(req)
	con := &policy.Connect{Target: t, Begins: wire.BeginsTLS, Cell: from.cell, Session: from.session,
		Attended: from.attended, By: from.by, Labels: s.labels(from.cell), Now: from.now}
	if is := s.issuedFor(from.cell, t); is != nil {
		con.Surrogate = is.Name
	}
	call := set.ConnectCall(con)
	out := set.Explain(call, s.supposedGrants(from, call))
	if from.cell != "" {
		if err := s.stopped(from.cell); err != nil {
			out = append([]string{"as things stand it is refused before the policy is asked: a person has stopped the cell"}, out...)
		}
	}
	return append(out, lines...), nil
}
