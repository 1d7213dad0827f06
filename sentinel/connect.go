// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// connect answers the egress of a cell: may a program of that cell open this connection? Which cell it is the kernel says;
// the name is what the cell asked the resolver for, and egress has held it to what the connection begins with. A
// connection is answered at once: what asks is refused, and goes once a person has approved the site.
//
// An attacker in the cell can have connections refused, and put up as many cards as a cell may have. It chooses the
// program's name, which is shown and decides nothing.
func (s *Sentinel) connect(ctx context.Context, c *daemon.Call, req *wire.ConnectReq) (*wire.ConnectResp, error) {
	w := &wanted{cell: c.Peer.Of, program: short(req.Task.Program), pid: req.Task.PID, begins: req.Begins}
	resp, err := s.judgeConnect(ctx, w, req)
	if err == nil {
		return resp, nil
	}
	e := asError(s.log, err)
	r := ledger.Refusal{By: "sentinel", Cell: w.cell, Reason: string(e.Code), Next: e.Next}
	host := orElse(w.target.Host(), short(orElse(req.Name, req.Addr)))
	if s.conns.mayName(w.cell, fmt.Sprint(host, " ", req.Port, " ", e.Code)) && s.mayRecord(netAllowance(w.cell), connectCost) {
		r.Host, r.Call = host, w.card // others are counted by their reason, whatever they went to
		r.Detail = fmt.Sprintf("port %d: %s", req.Port, clip(e.Reason, 200))
		r.More = connectDetails{Program: w.program, PID: w.pid, Begins: short(w.begins)}
	}
	if err := s.ledger.Refused(ctx, r); err != nil {
		return nil, s.ledgerError(err)
	}
	return nil, e
}

// connectCost is about what one line of the record about connections takes, in bytes.
const connectCost = 512

// netAllowance names what a cell's connections may cost. It is another one than its calls have: a program that tries a
// refused site for ever must not leave the cell without a record for those.
func netAllowance(cell string) string { return cell + "/net" }

// wanted is a connection that is asked about.
type wanted struct {
	cell    string
	session ledger.Session // zero where it is not known which
	target  policy.Target
	begins  string
	program string
	pid     uint32
	card    string // that was put up for it
}

type connectDetails struct {
	Port    uint16 `json:"port,omitzero"`
	Begins  string `json:"begins,omitzero"`
	How     string `json:"how,omitzero"`
	Program string `json:"program,omitzero"` // what the cell calls it
	PID     uint32 `json:"pid,omitzero"`
	Policy  string `json:"policy,omitzero"`
	Grant   string `json:"grant,omitzero"`
	Times   int    `json:"times,omitzero"` // how many more there were, when it is a sum
}

// judgeConnect is connect without the record of what is refused.
func (s *Sentinel) judgeConnect(ctx context.Context, w *wanted, req *wire.ConnectReq) (*wire.ConnectResp, error) {
	if err := s.stopped(w.cell); err != nil {
		return nil, err
	}
	var err error
	if w.target, err = policy.ParseTarget(req.Name, req.Addr, req.Port); err != nil {
		return nil, wire.Refuse(wire.CodeBadTarget, err.Error(), "use the name as it is in the DNS")
	}
	switch req.Begins {
	case wire.BeginsTLS, wire.BeginsHTTP, wire.BeginsOther:
	default:
		return nil, wire.Refuse(wire.CodeBadArgument, "a connection that begins with "+quote(req.Begins), "")
	}
	attended, err := s.openerOf(w, &req.Task)
	if err != nil {
		return nil, err
	}
	set := s.policy.Load()
	call := set.ConnectCall(&policy.Connect{Target: w.target, Begins: w.begins, Cell: w.cell,
		Session: strings.TrimPrefix(w.session.ID, w.cell+"/"), Attended: attended, By: w.session.Run,
		Labels: s.labels(w.cell), Now: time.Now()})
	d := set.Decide(call, s.grants(w.cell, policy.SiteConnector, policy.SiteMethod))
	switch d.Verdict {
	case policy.Allow:
		return s.letConnect(ctx, w, set.Permits(call), &d)
	case policy.Ask:
		return nil, s.askSite(ctx, w, set, call, &d)
	default:
		return nil, wire.Refuse(d.Code, w.target.String()+" is not allowed: "+d.Reason, d.Next)
	}
}

// openerOf finds the session that opened a connection, by the cgroup that the kernel's hooks wrote down: the last part of a
// session's name is its cgroup's id, and the hooks write down the session's for whoever is below it. Where it is none of the
// cell's, the session is not known, and whoever is in the cell counts. In a cell without a session nothing may run.
func (s *Sentinel) openerOf(w *wanted, t *wire.Task) (attended bool, err error) {
	ended := wire.Refuse(wire.CodeExpired, "no session of this cell lives; one lasts 12 hours", "start the cell or the run again")
	mark := "." + strconv.FormatUint(t.Cgroup, 36) + boot()
	alive := false
	for _, x := range s.ledger.Sessions(w.cell) {
		if s.ledger.Now().Reached(x.Until) {
			continue
		}
		alive = true
		if t.Cgroup != 0 && strings.HasSuffix(x.ID, mark) {
			w.session = x
		}
	}
	if !alive {
		return false, ended
	}
	return s.allAttended(w.cell), nil
}

// letConnect puts an allowed connection on the record and answers it. Alike ones share the line, and the id.
func (s *Sentinel) letConnect(ctx context.Context, w *wanted, permit []string, d *policy.Decision) (*wire.ConnectResp, error) {
	alike := likeness{w.cell, w.session.ID, w.target, w.begins, w.program, first(d.Policies), d.Grant}
	g, mine := s.conns.join(alike)
	if mine {
		g.written(s.writeConnect(context.WithoutCancel(ctx), g, w, d))
		time.AfterFunc(alikeFor, func() { s.endAlike(g) })
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
	if d.Grant != "" && len(s.ledger.Grants(ledger.GrantFilter{ID: d.Grant, Live: true})) == 0 {
		return nil, wire.Refuse(wire.CodeRevoked, "the grant of "+w.target.String()+" was taken back", "ask again")
	}
	return &wire.ConnectResp{ID: g.id, How: wire.HowSplice, Under: d.Grant, Permit: permit}, nil
}

func (s *Sentinel) writeConnect(ctx context.Context, g *alike, w *wanted, d *policy.Decision) error {
	if !s.mayRecord(netAllowance(w.cell), connectCost) {
		return wire.Refuse(wire.CodeTooMany, "programs of this cell have opened too many different connections lately",
			"wait some minutes")
	}
	g.event = ledger.Event{Type: ledger.EvConnect, Actor: "cell:" + w.cell, Cell: w.cell, Session: w.session.ID, Call: g.id,
		Subject: w.target.Host()}
	g.details = connectDetails{Port: w.target.Port, Begins: w.begins, How: wire.HowSplice, Program: w.program, PID: w.pid,
		Policy: first(d.Policies), Grant: d.Grant}
	g.event.Details = g.details
	err := s.ledger.RecordUnder(ctx, g.event, d.Grant)
	if errors.Is(err, ledger.ErrSpent) {
		return wire.Refuse(wire.CodeRevoked, "the grant of "+w.target.String()+" has ended", "try again; it asks then")
	}
	return s.ledgerError(err)
}

// alikeFor is how long alike connections are added up to one line of the record.
const alikeFor = 10 * time.Second

// likeness is what connections of one line have in common.
type likeness struct {
	cell, session   string
	target          policy.Target
	begins, program string
	policy, grant   string
}

// alike are allowed connections of one line.
type alike struct {
	id      string
	of      likeness
	done    chan struct{} // closed when err says whether the line is durable
	err     error
	event   ledger.Event
	details connectDetails
	more    int // beyond the first; guarded by connections.mu
}

func (g *alike) written(err error) {
	g.err = err
	close(g.done)
}

// connections are the lines that are open, and what egress has told and is not durable yet.
type connections struct {
	mu     sync.Mutex // guards what follows
	open   map[likeness]*alike
	told   map[toldKey]*told
	named  map[string]map[string]bool // by cell: what was refused to it since, and is listed
	since  time.Time
	before map[string]bool // reports that are counted already, by egress's number: of this window and the last
	last   map[string]bool
}

func newConnections() *connections {
	return &connections{open: map[likeness]*alike{}, told: map[toldKey]*told{}, before: map[string]bool{}}
}

// maxNamed is how many different refusals of one cell are listed in the time of one line: the record's sums have room for
// 256 of all cells and daemons together (package ledger), of which no cell may take all.
const maxNamed = 64

// mayName says whether a refusal is listed by what it was about.
func (c *connections) mayName(cell, what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.since) > alikeFor {
		c.named, c.since = map[string]map[string]bool{}, now
	}
	of := c.named[cell]
	if of == nil {
		of = map[string]bool{}
		c.named[cell] = of
	}
	if !of[what] && len(of) >= maxNamed {
		return false
	}
	of[what] = true
	return true
}

// join returns the line that a connection belongs to; mine says that the caller has to write it.
func (c *connections) join(of likeness) (g *alike, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g = c.open[of]; g != nil {
		g.more++
		return g, false
	}
	g = &alike{id: ledger.NewID(), of: of, done: make(chan struct{})}
	c.open[of] = g
	return g, true
}

// endAlike writes how many more there were. A line that could not be written counts nothing: its connections were refused.
func (s *Sentinel) endAlike(g *alike) {
	s.conns.mu.Lock()
	delete(s.conns.open, g.of)
	more := g.more
	s.conns.mu.Unlock()
	if more == 0 || g.err != nil {
		return
	}
	s.spend(netAllowance(g.of.cell), connectCost)
	g.details.Times = more
	g.event.Details = g.details
	s.ledger.Append(s.lifetime, g.event)
}
