// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// request answers the egress of a cell: may a program of that cell send this request, on a connection that is intercepted? Which
// cell it is the kernel says, and the connection must be one that was allowed to it, for that name and port. A request is
// answered at once, like a connection.
//
// An attacker in the cell chooses everything in it. One in the cell's egress can say of its own cell's requests what it likes,
// and have sent what sentinel would allow that cell; the credential it gets when a request was allowed within the last seconds.
func (s *Sentinel) request(ctx context.Context, c *daemon.Call, req *wire.RequestReq) (*wire.RequestResp, error) {
	w := &wanted{cell: c.Peer.Of, program: short(req.Task.Program), pid: req.Task.PID}
	resp, err := s.judgeRequest(ctx, w, req)
	if err == nil {
		return resp, nil
	}
	e := asError(s.log, err)
	r := ledger.Refusal{By: "sentinel", Cell: w.cell, Reason: string(e.Code), Next: e.Next}
	host, what := orElse(w.target.Host(), short(req.Name)), clip(req.Method+" "+req.Path, 120)
	detail := fmt.Sprintf("%s, port %d: %s", what, req.Port, clip(e.Reason, 200))
	if s.conns.mayName(w.cell, fmt.Sprint(host, " ", req.Port, " ", e.Code, " ", what)) &&
		s.mayRecord(netAllowance(w.cell), connectCost+recorded(detail)) {
		r.Host, r.Call, r.Detail = host, w.card, detail
		r.More = connectDetails{Program: w.program, PID: w.pid}
	}
	if err := s.ledger.Refused(ctx, r); err != nil {
		return nil, s.ledgerError(err)
	}
	return nil, e
}

// asking is a request that has been read and classified.
type asking struct {
	wanted
	req    *wire.RequestReq
	issue  *issued // nil: no surrogate was issued for that host
	facts  policy.Request
	manner string // of what it is, for the record
}

// judgeRequest is request without the record of what is refused.
func (s *Sentinel) judgeRequest(ctx context.Context, w *wanted, req *wire.RequestReq) (*wire.RequestResp, error) {
	if err := s.stopped(w.cell); err != nil {
		return nil, err
	}
	var err error
	if w.target, err = policy.ParseTarget(req.Name, "", req.Port); err != nil {
		return nil, wire.Refuse(wire.CodeBadTarget, err.Error(), "use the name as it is in the DNS")
	}
	conn, ok := s.conns.of(w.cell, req.Conn)
	if !ok || conn.target != w.target || !conn.intercepted {
		return nil, wire.Refuse(wire.CodeBadGrant, "a request on a connection that was not allowed for "+w.target.String(), "connect again")
	}
	attended, err := s.openerOf(w, &req.Task)
	if err != nil {
		return nil, err
	}
	a := &asking{req: req, issue: s.issuedFor(w.cell, w.target)}
	if conn.issue != a.issue.id() {
		return nil, wire.Refuse(wire.CodeRevoked, "what was issued for "+w.target.String()+" has changed since it was connected to",
			"connect again")
	}
	w.labels = s.labels(w.cell)
	if err := s.classify(a, w); err != nil {
		return nil, err
	}
	f := &a.facts
	f.Cell, f.Session, f.Attended, f.By = w.cell, strings.TrimPrefix(w.session.ID, w.cell+"/"), attended, w.session.Run
	f.Labels, f.Now = w.labels, time.Now()
	set := s.policy.Load()
	call := set.RequestCall(f)
	d := set.Decide(call, s.grants(w.cell, call.Connector.Vendor, call.Method.Name))
	a.wanted = *w
	switch d.Verdict {
	case policy.Allow:
		return s.letRequest(ctx, a, &d)
	case policy.Ask:
		err := s.askRequest(ctx, a, set, call, &d)
		w.card = a.card
		return nil, err
	default:
		return nil, wire.Refuse(d.Code, a.manner+" is not allowed: "+d.Reason, d.Next)
	}
}

// classify finds the route that a request is on. What the routes of a surrogate do not name is refused; of a site that is read
// everything that is not known to be a read is a change.
func (s *Sentinel) classify(a *asking, w *wanted) error {
	req := a.req
	a.manner = fmt.Sprintf("%s %s%s", short(req.Method), w.target, clip(req.Path, 200))
	m := manifest.Sites(w.target.Name, w.target.Port)
	f := policy.Request{Target: w.target, Clear: req.Clear, Method: req.Method, Path: req.Path, Query: req.Query,
		Upgrade: req.Upgrade, Does: req.Does}
	switch {
	case a.issue != nil:
		m = a.issue.manifest
		f.Surrogate, f.Setting = a.issue.Name, m.Setting
		if req.Clear {
			return wire.Refuse(wire.CodeBadTarget, "nothing is sent to "+w.target.String()+" in the clear, where a credential goes",
				"use https")
		}
		if !req.Surrogate {
			return wire.Refuse(wire.CodeBadSurrogate, "no surrogate on this request", "connector surrogate "+a.issue.Name)
		}
		if _, err := s.usable(a.issue); err != nil {
			return err
		}
	case req.Surrogate:
		return wire.Refuse(wire.CodeBadSurrogate, "a surrogate for "+w.target.String()+", where none was issued", "")
	}
	route, err := m.Match(req)
	switch {
	case err != nil:
		return wire.Refuse(wire.CodeUsage, a.manner+": "+clip(err.Error(), 200), "send it in one plain form")
	case route == nil:
		return wire.Refuse(wire.CodeNotAllowed, a.manner+" is on no route of the manifest of "+f.Surrogate,
			"do something else; a person can issue it with another manifest")
	}
	if req.Model != nil {
		f.Model = req.Model.Model
	}
	if route.Model {
		if err := m.CheckModel(req.Model); err != nil {
			return err
		}
	}
	f.Route, f.Class, f.Reach = route.Name, route.Class, route.Reach
	a.facts = f
	return nil
}

// letRequest puts an allowed request on the record and answers it. Alike ones share the line and the id, but for those that
// take a use of a grant. With a surrogate, authd has a grant with a use for it.
func (s *Sentinel) letRequest(ctx context.Context, a *asking, d *policy.Decision) (*wire.RequestResp, error) {
	w, f := &a.wanted, &a.facts
	asked := append([]string{f.Method, f.Path, f.Query, f.Route, f.Class, f.Model}, f.Does...)
	like := likeness{cell: w.cell, session: w.session.ID, target: w.target, issue: a.issue.id(), program: w.program,
		policy: first(d.Policies), grant: d.Grant,
		request: sha256.Sum256([]byte(strings.Join(asked, "\n")))}
	var g *alike
	mine := true
	if d.Grant != "" { // each takes a use of its own
		g = s.conns.alone(like)
	} else {
		g, mine = s.conns.join(like)
	}
	if mine {
		s.wrote(g, s.writeRequest(context.WithoutCancel(ctx), g, a, d))
	}
	select {
	case <-g.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if g.err != nil {
		return nil, g.err
	}
	// Who takes something back writes that first, and then cuts what goes under it.
	if err := s.stopped(w.cell); err != nil {
		return nil, err
	}
	if s.grantEnded(d.Grant) {
		return nil, wire.Refuse(wire.CodeRevoked, "the grant of it was taken back", "ask again")
	}
	if w.outdated(s) {
		return nil, wire.Refuse(wire.CodeRevoked, "the cell has read what others wrote since this was decided",
			"try again; it is decided anew")
	}
	resp := &wire.RequestResp{ID: g.id}
	if a.issue != nil {
		resp.Under = append(resp.Under, a.issue.ID)
		var err error
		if resp.Grant, err = s.grantRequest(ctx, a, d.Grant != ""); err != nil {
			return nil, err
		}
	}
	if d.Grant != "" {
		resp.Under = append(resp.Under, d.Grant)
	}
	return resp, nil
}

// grantEnded says whether a grant, where there is one, was taken back or is over; one whose last use this was is not.
func (s *Sentinel) grantEnded(id string) bool {
	return id != "" && !slices.ContainsFunc(s.ledger.Grants(ledger.GrantFilter{ID: id}), func(g ledger.Grant) bool {
		return g.State == ledger.GrantLive || g.State == ledger.GrantSpent
	})
}

// requestFor is how long a grant for requests lives at authd, which wants an end; it wants them resolved much sooner
// (grants.BorrowWithin).
const requestFor = 2 * time.Minute

// grantRequest takes a use of a grant at authd for one request with a surrogate, and returns the grant's name.
func (s *Sentinel) grantRequest(ctx context.Context, a *asking, alone bool) (string, error) {
	grant, err := s.passTo(ctx, a.issue, a.target, alone)
	if err != nil {
		return "", err
	}
	// Who revokes the surrogate ends what authd has of it; what came to authd after that is ended here.
	err = s.stopped(a.cell)
	if now := s.issuedFor(a.cell, a.target); now.id() != a.issue.ID {
		err = wire.Refuse(wire.CodeRevoked, "the surrogate was taken back", "")
	}
	if err != nil {
		if err := s.voidGrant(context.WithoutCancel(ctx), grant); err != nil {
			s.log.Warn("a grant could not be voided", "surrogate", a.issue.Name, "err", err.Error())
		}
		s.passes.forget(a.cell)
		return "", err
	}
	s.useIssue(a.issue.ID)
	return grant, nil
}

func (s *Sentinel) writeRequest(ctx context.Context, g *alike, a *asking, d *policy.Decision) error {
	f := &a.facts
	details := connectDetails{Port: a.target.Port, Program: a.program, PID: a.pid, Policy: first(d.Policies), Grant: d.Grant,
		Method: short(f.Method), Path: clip(f.Path, 400), Query: clip(f.Query, 400), Route: f.Route, Class: f.Class,
		Does: clip(strings.Join(f.Does, ", "), 200), Model: short(f.Model)}
	if a.issue != nil {
		details.Surrogate, details.Issue = a.issue.Name, a.issue.ID
	}
	return s.writeAlike(ctx, g, &a.wanted, ledger.EvRequest, details)
}

// askRequest refuses a request that a person has to allow first, and puts one card up for its cell, route and path.
func (s *Sentinel) askRequest(ctx context.Context, a *asking, set *policy.Set, call *policy.Call, d *policy.Decision) error {
	g := set.PrefillRequest(call)
	q := &question{kind: widenRequest, about: call.Account, key: requestKey(&g), same: requestKey(&g, policy.LimitQuery), says: a.manner,
		card: func() (*ledger.Call, error) { return s.requestCard(a, call, d, g) }}
	return s.askFirst(ctx, &a.wanted, q, d)
}

// requestKey names a request: a route, method and path at one site, what it does there, and those limits. Without the query a
// person's no is about every query: a cell words that as it likes, and would ask for ever.
func requestKey(g *wire.Grant, besides ...string) string {
	parts := []string{"request", g.Connector, g.Method, g.Account}
	for _, l := range g.Limits {
		switch {
		case slices.Contains(besides, l.Field), l.Field == policy.LimitMethod, l.Field == policy.LimitPath, l.Field == policy.LimitDoes,
			l.Field == policy.LimitModel:
			parts = append(parts, l.Field, strings.Join(l.Values, " "))
		}
	}
	return strings.Join(parts, "\n")
}

// requestCard is the row and the card of a request that is asked about.
func (s *Sentinel) requestCard(a *asking, call *policy.Call, d *policy.Decision, g wire.Grant) (*ledger.Call, error) {
	f := &a.facts
	c, card, err := s.openCard(&a.wanted, widenRequest, call, d, g)
	if err != nil {
		return nil, err
	}
	sensitive := call.Method.SensitiveAt(call.Method.Reach)
	c.Class, c.Reach, c.Sensitive = f.Class, f.Reach, sensitive
	if f.Class == describe.Destructive {
		c.Deadline = c.Created.Add(destructiveExpiry)
		card.Expires = c.Deadline.Time().Unix()
	}
	title := f.Method + " " + strings.TrimSuffix(call.Account, ":443") + f.Path
	card.Title, card.Class, card.Reach, card.Sensitive = clip(title, 300), f.Class, f.Reach, sensitive
	field := func(label string, main bool, values ...string) {
		if values = slices.DeleteFunc(values, func(v string) bool { return v == "" }); len(values) > 0 {
			card.Fields = append(card.Fields, wire.Field{Label: label, Values: values, Main: main})
		}
	}
	card.Fields = nil
	field("Site", true, call.Account)
	field("Method", true, f.Method)
	field("Path", true, f.Path)
	field("Query", true, f.Query)
	field("It does", true, f.Does...)
	field("Model", false, f.Model)
	field("Surrogate", false, f.Surrogate)
	field("Route", false, fmt.Sprintf("%s, a %s that reaches %s", f.Route, f.Class, f.Reach))
	field("Program, as the cell calls it", false, a.program)
	if len(f.Does) == 0 {
		card.Facts = append(card.Facts, "what is sent is not read by anybody")
	} else {
		card.Facts = append(card.Facts, "of what is sent only that is read which stands above as what it does")
	}
	if f.Upgrade {
		card.Facts = append(card.Facts, "it opens a WebSocket: what goes over it then is not decided on")
	}
	c.Card, err = cardFits(card)
	return c, err
}

// approvedRequest is the grant that a person's yes to a request makes: the one of the card, or that with other times.
func (s *Sentinel) approvedRequest(call *ledger.Call, want *wire.Grant) (*ledger.Grant, error) {
	own, g, err := s.wantedGrant(call, want)
	if err != nil {
		return nil, err
	}
	if g, err = s.policy.Load().ValidateRequest(g, own, call.Sensitive, time.Now()); err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "doorward show "+call.ID)
	}
	meaning := s.requestMeaning(g.Cell, g.Connector)
	if meaning == "" {
		return nil, wire.Refuse(wire.CodeRevoked, "the surrogate "+g.Connector+" is issued into cell "+g.Cell+" no more", "deny it")
	}
	return asKept(&g, 0, meaning, call.Sensitive, s.ledger.Now())
}

// siteRequests stands where a method's meaning does in grants of requests to sites that are read.
const siteRequests = "request 1"

// requestMeaning is what requests under that name are decided by in a cell: the routes of sites, or what was issued. A surrogate
// that is issued anew inherits no grant.
func (s *Sentinel) requestMeaning(cell, connector string) string {
	if connector == siteConnector {
		return siteRequests
	}
	if is := s.issueNamed(cell, connector); is != nil {
		return "issue " + is.ID
	}
	return ""
}

// explainRequest is `policy explain request`: what would become of one, without making it. What its body would say is not known.
func (s *Sentinel) explainRequest(set *policy.Set, req *wire.PolicyReq) ([]string, error) {
	q := req.Request
	t, err := policy.ParseTarget(q.Name, "", q.Port)
	if err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "write it as https://example.org/path")
	}
	from, lines := s.suppose(req)
	is := s.issuedFor(from.cell, t)
	a := &asking{req: &wire.RequestReq{Name: q.Name, Port: q.Port, Clear: q.Clear, Method: q.Method, Path: q.Path, Query: q.Query,
		Surrogate: is != nil}, issue: is}
	if is == nil && !set.Reads(t) {
		return nil, wire.Refuse(wire.CodeNotFound, "requests to "+t.String()+
			" are not seen: its connections are carried unread, or refused", "doorward policy explain site "+t.String())
	}
	if err := s.classify(a, &wanted{cell: from.cell, target: t}); err != nil {
		e := asError(s.log, err)
		return append([]string{fmt.Sprintf("%s: is denied before the policy is asked: %s: %s", a.manner, e.Code, e.Reason)}, lines...), nil
	}
	f := &a.facts
	f.Cell, f.Session, f.Attended, f.By, f.Labels, f.Now = from.cell, from.session, from.attended, from.by, s.labels(from.cell), from.now
	call := set.RequestCall(f)
	return append(set.Explain(call, s.supposedGrants(from, call)), lines...), nil
}
