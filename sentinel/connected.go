// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// anyEgress passes the egress of workers and that of each cell.
func anyEgress(id peer.Identity) bool { return peer.Daemon("egress")(id) || peer.CellEgress(id) }

// sentVerb takes egress's word of a request, or that of a cell's egress of a connection.
func (s *Sentinel) sentVerb(ctx context.Context, c *daemon.Call, req *wire.SentReq) (*wire.Empty, error) {
	if c.Peer.Of != "" {
		durable, err := s.connSent(c.Peer.Of, req)
		if err != nil {
			return nil, err
		}
		c.Later(durable)
		return &wire.Empty{}, nil
	}
	if req.Conn != "" {
		return nil, wire.Refuse(wire.CodeBadArgument, "a report of a connection, which a cell's egress makes", "")
	}
	return s.sentReport(ctx, c, req)
}

// maxConnID bounds what a report may name as its decision.
const maxConnID = 64

// told is a line of the record that adds up what was told, and is not there yet.
type told struct {
	ledger.Event
	done chan struct{} // closed when err says whether it is durable
	err  error
}

// toldKey is what the reports of one line have in common: who told them, and of which decision, or issue.
type toldKey struct{ actor, cell, of string }

// sentSum is of the connections, or requests, of one decision.
type sentSum struct {
	Host        string `json:"host,omitzero"`
	Connections int    `json:"connections"`
	Out         int64  `json:"out"` // bytes to the server
	In          int64  `json:"in"`
	Err         string `json:"err,omitzero"` // of the last that has one
}

// releaseSum is of the requests that a credential went into under one issue.
type releaseSum struct {
	Account  string `json:"account"`
	Releases int    `json:"releases"`
}

// connSent adds a report of a connection to the others of its decision and returns what waits until they are durable: egress
// repeats it until then. What is told of an id that nobody gave is in the record of that cell, and in no other.
func (s *Sentinel) connSent(cell string, req *wire.SentReq) (durable func(context.Context) error, err error) {
	if req.Grant != "" || req.Conn == "" && req.Err == nil || len(req.Conn) > maxConnID {
		return nil, wire.Refuse(wire.CodeBadArgument, "a report of no connection", "")
	}
	if req.Conn == "" { // refused by egress itself, before sentinel was asked
		return func(ctx context.Context) error { return s.connRefused(ctx, cell, req) }, nil
	}
	k, id := toldKey{"egress", cell, req.Conn}, fmt.Sprintf("%s/%d", short(req.Instance), req.Seq)
	sum := func(t *told, fresh bool) {
		if fresh {
			t.Type, t.Subject, t.Details = ledger.EvSent, short(req.Host), &sentSum{Host: short(req.Host)}
		}
		sum := t.Details.(*sentSum)
		sum.Connections++
		sum.Out, sum.In = sum.Out+max(0, req.Out), sum.In+max(0, req.In)
		if req.Err != nil {
			sum.Err = short(string(req.Err.Code))
		}
	}
	if !refusedThere(req) || s.conns.toldBefore(k, id) {
		return s.add(k, id, sum), nil
	}
	return func(ctx context.Context) error { // what cannot be recorded is not counted either: it is told again
		if err := s.connRefused(ctx, cell, req); err != nil {
			return err
		}
		return s.add(k, id, sum)(ctx)
	}, nil
}

// refusedThere says whether a report is of something that egress refused by itself, under a decision of sentinel's: no mishap of
// what was on its way, and nothing that was taken back, of which the record says who did.
func refusedThere(req *wire.SentReq) bool {
	switch e := req.Err; {
	case e == nil, e.Code == wire.CodeRevoked:
		return false
	case req.Left:
		return e.Code != wire.CodeVendorDown && e.Code != wire.CodeUsage
	}
	return true
}

// issueReleased is connSent of authd's word that a credential went into a cell's own request.
func (s *Sentinel) issueReleased(req *wire.ReleasedReq) (durable func(context.Context) error) {
	s.mu.Lock()
	instance := s.instance
	s.mu.Unlock()
	return s.add(toldKey{"authd", req.Cell, req.Call}, fmt.Sprintf("%s/%d", instance, req.Seq), func(t *told, fresh bool) {
		if fresh {
			t.Type, t.Subject, t.Details = ledger.EvReleased, req.Account, &releaseSum{Account: req.Account}
		}
		t.Details.(*releaseSum).Releases++
	})
}

// add adds a report to its line, unless that line has it: id is who tells it's own number of it. It returns what waits until the line
// is durable.
func (s *Sentinel) add(k toldKey, id string, sum func(t *told, fresh bool)) (durable func(context.Context) error) {
	t := s.conns.tell(k, id, func(t *told) { time.AfterFunc(reportsWait, func() { s.writeTold(k, t) }) }, sum)
	return func(ctx context.Context) error {
		select {
		case <-t.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		return s.ledgerError(t.err)
	}
}

// connRefused puts on record what a cell's egress refused by itself: equal ones as a sum.
func (s *Sentinel) connRefused(ctx context.Context, cell string, req *wire.SentReq) error {
	r := ledger.Refusal{By: "egress", Cell: cell, Reason: string(req.Err.Code), Next: clip(req.Err.Next, 200)}
	host, detail := short(req.Host), clip(req.Err.Reason, 200)
	if req.Method != "" {
		detail = short(req.Method) + ": " + detail
	}
	first, ok := s.conns.firstOf(cell, strings.Join([]string{host, r.Reason, detail}, " "), req.Conn)
	if ok && s.mayRecord(netAllowance(cell), connectCost+recorded(detail)+recorded(r.Next)) {
		r.Call, r.Host, r.Detail = first, host, detail
	}
	return s.ledgerError(s.ledger.Refused(ctx, r))
}

// maxBefore is how many reports are remembered in case they are repeated, twice.
const maxBefore = 4096

// holding is the line that has a report, which may not be durable yet; nil: none, or it could not be written, so that the report
// counts as not told. Precondition: c.mu is held.
func (c *connections) holding(k toldKey, id string) *told {
	t := c.before[reportID(k, id)]
	if t == nil {
		t = c.last[reportID(k, id)]
	}
	if t == nil {
		return nil
	}
	select {
	case <-t.done:
		if t.err != nil {
			return nil
		}
	default:
	}
	return t
}

func reportID(k toldKey, id string) string { return k.actor + "/" + k.cell + "/" + id }

func (c *connections) toldBefore(k toldKey, id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holding(k, id) != nil
}

// tell adds a report up and returns its line, which is the one of before where it was told before. begin is called for the first of
// a line.
func (c *connections) tell(k toldKey, id string, begin func(*told), sum func(t *told, fresh bool)) *told {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.holding(k, id); t != nil {
		return t
	}
	t := c.told[k]
	fresh := t == nil
	if fresh {
		t = &told{Event: ledger.Event{Actor: k.actor, Cell: k.cell, Call: k.of}, done: make(chan struct{})}
		c.told[k] = t
		begin(t)
	}
	if len(c.before) >= maxBefore {
		c.before, c.last = map[string]*told{}, c.before
	}
	c.before[reportID(k, id)] = t
	sum(t, fresh)
	return t
}

func (s *Sentinel) writeTold(k toldKey, t *told) {
	s.conns.mu.Lock()
	delete(s.conns.told, k) // from here on nothing is added to t
	s.conns.mu.Unlock()
	s.spend(netAllowance(k.cell), connectCost)
	t.err = s.ledger.Record(context.WithoutCancel(s.lifetime), t.Event)
	close(t.done)
}

// cellEgress is the link to the egress of a cell. It is made when something of the cell is to be cut.
func (s *Sentinel) cellEgress(cell string) *daemon.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.egresses[cell]
	if c == nil {
		c = &daemon.Client{Path: wire.PathEgressCell(cell), Name: "egress@" + cell, Log: s.log}
		s.egresses[cell] = c
	}
	return c
}

// cutCell has the egress of a cell end connections: those under a grant or a decision, or all. there is false where the cell
// has no egress, so no way out.
func (s *Sentinel) cutCell(ctx context.Context, cell string, what wire.GrantRef) (there bool, err error) {
	err = inTimeOf(ctx, func(ctx context.Context) error {
		return s.cellEgress(cell).Call(ctx, "cut", &what, &wire.Empty{})
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOENT) {
		return false, nil
	}
	return true, err
}

// cutSites ends what goes under grants of sites that have ended, and says of which that failed.
func (s *Sentinel) cutSites(ctx context.Context, gone []ledger.Grant) []string {
	var out []string
	for _, g := range gone {
		if s.vendors[g.Connector] != nil { // what a call does, its own grant ends
			continue
		}
		if _, err := s.cutCell(ctx, g.Cell, wire.GrantRef{Grant: g.ID}); err != nil {
			out = append(out, "connections of cell "+g.Cell+" to "+g.Account+" could not be ended: "+err.Error())
			s.log.Warn("connections outlive their grant", "grant", g.ID, "cell", g.Cell, "err", err.Error())
		}
	}
	return out
}

// cutEnded is cutSites for who does not wait: a grant that ended by itself.
func (s *Sentinel) cutEnded(gone []ledger.Grant) {
	if len(gone) > 0 {
		go s.cutSites(s.lifetime, gone)
	}
}

// cutCells ends every connection of a cell, or of all that have a session, and says how that went.
func (s *Sentinel) cutCells(ctx context.Context, cell string) []string {
	cells := map[string]bool{}
	if cell != "" {
		cells[cell] = true
	}
	for _, x := range s.ledger.Sessions(cell) {
		cells[x.Cell] = true
	}
	names := slices.Sorted(maps.Keys(cells))
	said := make([]string, len(names))
	var told sync.WaitGroup
	for i, name := range names { // at once: one that hangs must not keep the others from being told
		told.Go(func() {
			switch there, err := s.cutCell(ctx, name, wire.GrantRef{Cell: name}); {
			case err != nil:
				said[i] = "the egress of cell " + name + " did not answer; connections that are open may go on: " + err.Error()
			case there:
				said[i] = "the connections of cell " + name + " are cut"
			}
		})
	}
	told.Wait()
	return slices.DeleteFunc(said, func(s string) bool { return s == "" })
}
