// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/manifest"
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
	detail := fmt.Sprintf("port %d: %s", req.Port, clip(e.Reason, 200))
	if s.conns.mayName(w.cell, fmt.Sprint(host, " ", req.Port, " ", e.Code)) &&
		s.mayRecord(netAllowance(w.cell), connectCost+recorded(detail)) {
		r.Host, r.Call, r.Detail = host, w.card, detail // others are counted by their reason, whatever they went to
		r.More = connectDetails{Program: w.program, PID: w.pid, Begins: short(w.begins)}
	}
	if err := s.ledger.Refused(ctx, r); err != nil {
		return nil, s.ledgerError(err)
	}
	return nil, e
}

// connectCost is about what one line of the record about connections takes, in bytes, without what a request says.
const connectCost = 512

// cost is about what a line with these takes.
func (d *connectDetails) cost() int {
	return connectCost + recorded(d.Path) + recorded(d.Query) + recorded(d.Does)
}

// recorded is how many bytes of the record a text takes: a byte that is escaped there takes six.
func recorded(s string) int {
	b, err := json.Marshal(s)
	if err != nil {
		return 6 * len(s)
	}
	return len(b)
}

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
	labels  []string // of the cell when it was decided
	issue   string   // of the surrogate that was issued for the target; empty: none
	card    string   // that was put up for it
}

// outdated says whether the cell has come to carry a label since it was decided.
func (w *wanted) outdated(s *Sentinel) bool {
	return slices.ContainsFunc(s.labels(w.cell), func(l string) bool { return !slices.Contains(w.labels, l) })
}

type connectDetails struct {
	Port    uint16 `json:"port,omitzero"`
	Begins  string `json:"begins,omitzero"`
	How     string `json:"how,omitzero"`
	Program string `json:"program,omitzero"` // what the cell calls it
	PID     uint32 `json:"pid,omitzero"`
	Policy  string `json:"policy,omitzero"`
	Grant   string `json:"grant,omitzero"`
	// Of a request.
	Method    string `json:"method,omitzero"`
	Path      string `json:"path,omitzero"`
	Query     string `json:"query,omitzero"`
	Route     string `json:"route,omitzero"`
	Class     string `json:"class,omitzero"`
	Does      string `json:"does,omitzero"`
	Model     string `json:"model,omitzero"`
	Surrogate string `json:"surrogate,omitzero"`
	Issue     string `json:"issue,omitzero"` // also of a connection
	Times     int    `json:"times,omitzero"` // how many more there were, when it is a sum
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
	w.labels = s.labels(w.cell)
	is := s.issuedFor(w.cell, w.target)
	of := &policy.Connect{Target: w.target, Begins: w.begins, Cell: w.cell,
		Session: strings.TrimPrefix(w.session.ID, w.cell+"/"), Attended: attended, By: w.session.Run,
		Labels: w.labels, Now: time.Now()}
	if is != nil {
		of.Surrogate = is.Name
	}
	call := set.ConnectCall(of)
	if call.Intercepts() && w.begins == wire.BeginsOther {
		return nil, wire.Refuse(wire.CodeBadTarget, "requests to "+w.target.String()+" are read, and this begins with neither TLS nor HTTP",
			"use https")
	}
	d := set.Decide(call, s.grants(w.cell, policy.SiteConnector, policy.SiteMethod))
	switch d.Verdict {
	case policy.Allow:
		return s.letConnect(ctx, w, &d, s.connectResp(w, is, set, call, &d))
	case policy.Ask:
		if is := s.issuedElsewhere(w.cell, w.target); is != nil && w.begins == wire.BeginsHTTP {
			return nil, wire.Refuse(wire.CodeBadTarget, "programs of this cell speak to "+w.target.Name+
				" over TLS, with the surrogate "+is.Name+": nothing is sent there in the clear", "use https")
		}
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

// connectResp is what egress is told of a connection that is allowed, but for the id.
func (s *Sentinel) connectResp(w *wanted, is *issued, set *policy.Set, call *policy.Call, d *policy.Decision) *wire.ConnectResp {
	r := &wire.ConnectResp{How: wire.HowSplice, Under: d.Grant, Permit: set.Permits(call), Budget: set.Budget(w.target)}
	if !call.Intercepts() {
		return r
	}
	r.How = wire.HowIntercept
	if is == nil {
		r.Read = manifest.Sites(w.target.Name, w.target.Port).Reads()
		return r
	}
	w.issue, r.Surrogate = is.ID, is.Name
	r.Read = is.manifest.Reads()
	if is.manifest.Model != nil {
		r.Shape = is.manifest.Model.Refusal
	}
	if w.begins == wire.BeginsTLS { // in the clear there is none
		place := s.placeOf(is)
		r.Credential = &place
	}
	return r
}

// letConnect puts an allowed connection on the record and answers it. Alike ones share the line, and the id.
func (s *Sentinel) letConnect(ctx context.Context, w *wanted, d *policy.Decision, resp *wire.ConnectResp) (*wire.ConnectResp, error) {
	alike := likeness{cell: w.cell, session: w.session.ID, target: w.target, begins: w.begins, program: w.program,
		policy: first(d.Policies), grant: d.Grant, how: resp.How, issue: w.issue}
	g, mine := s.conns.join(alike)
	if mine {
		s.wrote(g, s.writeAlike(context.WithoutCancel(ctx), g, w, ledger.EvConnect, connectDetails{Port: w.target.Port, Begins: w.begins,
			How: resp.How, Program: w.program, PID: w.pid, Policy: first(d.Policies), Grant: d.Grant, Issue: w.issue}))
	}
	select {
	case <-g.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if g.err != nil {
		return nil, g.err
	}
	// Who changes something writes that first, and then cuts what is known to go under it: so this is known before it is looked at
	// what was written.
	s.conns.gave(w.cell, g.id, given{target: w.target, intercepted: resp.How == wire.HowIntercept, issue: w.issue})
	if err := s.stopped(w.cell); err != nil {
		return nil, err
	}
	if is := s.issuedFor(w.cell, w.target); is.id() != w.issue {
		return nil, wire.Refuse(wire.CodeRevoked, "what is issued for "+w.target.String()+" has changed", "connect again")
	}
	if d.Grant != "" && len(s.ledger.Grants(ledger.GrantFilter{ID: d.Grant, Live: true})) == 0 {
		return nil, wire.Refuse(wire.CodeRevoked, "the grant of "+w.target.String()+" was taken back", "ask again")
	}
	if w.outdated(s) {
		return nil, wire.Refuse(wire.CodeRevoked, "the cell has read what others wrote since this was decided",
			"try again; it is decided anew")
	}
	resp.ID = g.id
	return resp, nil
}

func (s *Sentinel) writeAlike(ctx context.Context, g *alike, w *wanted, typ string, details connectDetails) error {
	if !s.mayRecord(netAllowance(w.cell), details.cost()) {
		return wire.Refuse(wire.CodeTooMany, "programs of this cell have opened or sent too much that is different lately",
			"wait some minutes")
	}
	g.event = ledger.Event{Type: typ, Actor: "cell:" + w.cell, Cell: w.cell, Session: w.session.ID, Call: g.id,
		Subject: w.target.Host()}
	g.details = details
	g.event.Details = g.details
	err := s.ledger.RecordUnder(ctx, g.event, details.Grant)
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
	how, issue      string
	request         [sha256.Size]byte // of requests: what is asked for, which may be long
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

// wrote says whether the line of g is written. One that is not is nobody else's: who comes next tries again.
func (s *Sentinel) wrote(g *alike, err error) {
	g.err = err
	close(g.done)
	if err != nil {
		s.endAlike(g)
	} else {
		time.AfterFunc(alikeFor, func() { s.endAlike(g) })
	}
}

// connections are the lines that are open, and what egress has told and is not durable yet.
type connections struct {
	mu     sync.Mutex // guards what follows
	open   map[likeness]*alike
	told   map[toldKey]*told
	named  map[string]map[string]string // by cell: what was refused to it since, and is listed, with the decision it was first of
	since  time.Time
	given  map[string]map[string]*given // by cell and id: connections that were allowed
	before map[string]*told             // reports that were told already, with their lines: of this window and the last
	last   map[string]*told
}

func newConnections() *connections {
	return &connections{open: map[likeness]*alike{}, told: map[toldKey]*told{}, given: map[string]map[string]*given{},
		before: map[string]*told{}}
}

// maxNamed is how many different refusals of one cell are listed in the time of one line: the record's sums have room for
// 256 of all cells and daemons together (package ledger), of which no cell may take all.
const maxNamed = 64

// mayName says whether a refusal is listed by what it was about.
func (c *connections) mayName(cell, what string) bool {
	_, ok := c.firstOf(cell, what, "")
	return ok
}

// firstOf is mayName for a refusal under a decision: equal ones are listed under the first one's, or a program that connects again
// and again takes all the names of its cell.
func (c *connections) firstOf(cell, what, decision string) (first string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.since) > alikeFor {
		c.named, c.since = map[string]map[string]string{}, now
	}
	of := c.named[cell]
	if of == nil {
		of = map[string]string{}
		c.named[cell] = of
	}
	first, known := of[what]
	if !known && len(of) >= maxNamed {
		return "", false
	}
	if !known {
		first = decision
		of[what] = first
	}
	return first, true
}

// given is a connection that was allowed, or several alike.
type given struct {
	target      policy.Target
	intercepted bool
	issue       string
	at          time.Time // of its last use
}

// maxGiven is how many decisions about connections are remembered of one cell; the one that was used longest ago is forgotten
// first, and its requests are refused then: the program connects again.
const maxGiven = 4096

func (c *connections) gave(cell, id string, g given) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.given[cell]
	if of == nil {
		of = map[string]*given{}
		c.given[cell] = of
	}
	if len(of) >= maxGiven && of[id] == nil {
		oldest := ""
		for k, x := range of {
			if oldest == "" || x.at.Before(of[oldest].at) {
				oldest = k
			}
		}
		delete(of, oldest)
	}
	g.at = time.Now()
	of[id] = &g
}

// of is a connection that was allowed to a cell.
func (c *connections) of(cell, id string) (given, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.given[cell][id]
	if g == nil {
		return given{}, false
	}
	g.at = time.Now()
	return *g, true
}

// to takes out the connections of a cell to what which picks, and returns their ids.
func (c *connections) to(cell string, which func(policy.Target) bool) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for id, g := range c.given[cell] {
		if which(g.target) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// alone is join of what shares its line with nothing.
func (c *connections) alone(of likeness) *alike {
	return &alike{id: ledger.NewID(), of: of, done: make(chan struct{})}
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
	if s.conns.open[g.of] == g {
		delete(s.conns.open, g.of)
	}
	more := g.more
	s.conns.mu.Unlock()
	if more == 0 || g.err != nil {
		return
	}
	s.spend(netAllowance(g.of.cell), g.details.cost())
	g.details.Times = more
	g.event.Details = g.details
	s.ledger.Append(s.lifetime, g.event)
}
