// SPDX-License-Identifier: Apache-2.0

// Package cells starts, stops, freezes and enters cells: it alone does, as root with few capabilities. It listens to
// persons and sentinel, and reads nothing of a stranger but what the kernel says of a cell's processes.
//
// A run is a command that a person starts in a cell. It gets a cgroup of its own in the cell's unit, beside what is
// delegated to the cell, so no process of the cell gets into or out of it, and callers in it are known as that run; a
// terminal of the cell's own; and nothing else of this machine. Sentinel knows of it before it begins, and when its
// cgroup is empty that it is over. It ends with the connection of who started it.
//
// What a cell can do here: make its own runs fail. Its files are opened through a descriptor of its root, and never a
// path of it on this machine; its processes are held by pidfd. A cell that is frozen stays so whatever it does, and
// freezing looks at no file of the cell and waits for none.
package cells

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cells/trust"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

const (
	pageSize  = 64              // cells in one answer
	freezeFor = 2 * time.Second // sentinel waits 3 s for all
	maxUnsaid = 1024            // ends of sessions that sentinel was not told of
)

// Cells is the running daemon.
type Cells struct {
	log      *slog.Logger
	kernel   *peer.Kernel
	config   string // folder of the cells' files
	sentinel *daemon.Client

	mu     sync.Mutex // guards what follows
	runs   map[string]*run
	busy   map[string]chan struct{} // by cell: who freezes it or starts something in it
	unsaid []wire.CellSessionReq
}

// Run is the daemon's run, see daemon.Main.
func Run(ctx context.Context, p *daemon.Process) error {
	if p.Dirs.Config == "" {
		return errors.New("start: no configuration directory; the unit gives one")
	}
	unix.Umask(0o022) // what runs in a cell has it from here
	c := &Cells{log: p.Log, kernel: p.Kernel, config: filepath.Join(p.Dirs.Config, "cells"), runs: map[string]*run{},
		busy: map[string]chan struct{}{}}
	c.sentinel = &daemon.Client{Path: wire.PathSentinelCells, Name: "sentinel", Log: p.Log, OnConnect: c.catchUp}
	if err := c.sweep(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	tables := map[string][]daemon.Verb{
		"cells-person": {
			daemon.On("list", peer.Persons, c.list),
			daemon.On("start", peer.Persons, c.startCell),
			daemon.On("stop", peer.Persons, c.stopCell),
			daemon.On("freeze", peer.Persons, c.freezePerson),
			daemon.On("run", peer.Persons, c.runVerb),
		},
		"cells-sentinel": {
			daemon.On("freeze", peer.Daemon("sentinel"), c.freeze),
			daemon.On("thaw", peer.Daemon("sentinel"), c.thaw),
		},
	}
	tasks := []func(context.Context) error{c.sentinel.Run, c.endRuns}
	for name, verbs := range tables {
		ln, err := p.Listener(name)
		if err != nil {
			return err
		}
		tasks = append(tasks, (&daemon.Server{Name: name, Listener: ln, Log: p.Log, Verbs: verbs}).Serve)
	}
	return p.Run(ctx, tasks...)
}

// fault is what a person cannot mend: they get the code, the log has the detail.
func (c *Cells) fault(what string, err error) error {
	var refused *wire.Error
	if errors.As(err, &refused) {
		return refused
	}
	c.log.Error("a request failed", "what", what, "err", err.Error())
	return wire.Refuse(wire.CodeInternal, what+": "+err.Error(), "journalctl -u doorward-cells")
}

func notRunning(cell string) error {
	return wire.Refuse(wire.CodeUnavailable, "cell "+cell+" does not run", "doorward cell start "+cell)
}

func frozen(cell string, by []string) error {
	if slices.Contains(by, byCanary) {
		return wire.Refuse(wire.CodeStopped, "cell "+cell+" is frozen: the walls around its network did not hold",
			"sudo doorward doctor; doorward cell stop "+cell+"; doorward cell start "+cell)
	}
	if slices.Contains(by, byStop) {
		return wire.Refuse(wire.CodeStopped, "cell "+cell+" is frozen: a person has stopped it", "doorward stop --resume "+cell)
	}
	return wire.Refuse(wire.CodeStopped, "cell "+cell+" is frozen", "doorward cell thaw "+cell)
}

// open opens the cgroup of a cell that runs.
func (c *Cells) open(cell string) (group, error) {
	if !isCell(cell) {
		return group{}, wire.Refuse(wire.CodeBadArgument, fmt.Sprintf("%.40q is no name of a cell", cell), "doorward cell list")
	}
	g, err := open(c.kernel, cell)
	if errors.Is(err, fs.ErrNotExist) {
		return group{}, notRunning(cell)
	}
	if err != nil {
		return group{}, c.fault("cell "+cell, err)
	}
	return g, nil
}

// lock waits until nobody else freezes a cell or starts something in it.
func (c *Cells) lock(cell string, limit time.Duration) (unlock func(), ok bool) {
	c.mu.Lock()
	ch := c.busy[cell]
	if ch == nil {
		ch = make(chan struct{}, 1)
		c.busy[cell] = ch
	}
	c.mu.Unlock()
	select {
	case ch <- struct{}{}:
		return func() { <-ch }, true
	case <-time.After(limit):
		return nil, false
	}
}

// list lists the cells that are configured or run.
func (c *Cells) list(_ context.Context, _ *daemon.Call, req *wire.ListFrom) (*wire.CellsResp, error) {
	all, err := names(c.config)
	if err != nil {
		return nil, c.fault("the configurations", err)
	}
	live, err := running(c.kernel)
	if err != nil {
		return nil, c.fault("the cells", err)
	}
	all = append(all, live...)
	slices.Sort(all)
	r := new(wire.CellsResp)
	for _, name := range slices.Compact(all) {
		if name <= req.After {
			continue
		}
		if len(r.Cells) == pageSize {
			r.Next = r.Cells[pageSize-1].Name
			break
		}
		r.Cells = append(r.Cells, c.state(name))
	}
	return r, nil
}

func (c *Cells) state(name string) wire.CellState {
	s := wire.CellState{Name: name, State: wire.CellStopped}
	conf, err := load(c.config, name)
	if err == nil {
		s.Root, s.User, s.Command, s.Projects = conf.Root, conf.User, conf.Command, conf.Projects
		s.Memory, s.Tasks = conf.memory, conf.Limits.Tasks
		err = conf.startable(c.config, name)
		if root, bad := trust.Root(egressState + name); bad == nil {
			s.Fingerprint = trust.Fingerprint(root)
		}
	}
	if err != nil {
		var refused *wire.Error
		if s.Problem = err.Error(); errors.As(err, &refused) {
			s.Problem = refused.Reason
		}
	}
	g, err := open(c.kernel, name)
	if err != nil {
		return s
	}
	defer g.Close()
	if up, err := g.event("populated 1"); err != nil || !up {
		return s
	}
	s.State, s.FrozenBy = wire.CellRunning, g.frozenBy()
	if still, _ := g.event("frozen 1"); still {
		s.State = wire.CellFrozen
	}
	s.Sessions, _ = g.sessions(name)
	return s
}

func (c *Cells) startCell(ctx context.Context, call *daemon.Call, req *wire.CellReq) (*wire.Empty, error) {
	conf, err := load(c.config, req.Cell)
	if err != nil {
		return nil, err
	}
	if err := conf.startable(c.config, req.Cell); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	if err := systemctl(ctx, "start", unitName(req.Cell)); err != nil {
		return nil, err
	}
	c.log.Info("a cell is started", "cell", req.Cell, "by", call.Peer.String())
	if g, err := open(c.kernel, req.Cell); err == nil {
		defer g.Close()
		if len(conf.Command) > 0 {
			err := c.tellPayload(ctx, g, req.Cell)
			var refused *wire.Error
			switch {
			case errors.As(err, &refused) && refused.Code == wire.CodeStopped: // the switch holds, and says who may end it
				if bad := c.freezeOne(ctx, req.Cell, byStop); bad != nil {
					c.log.Error("a cell that the switch has stopped is not frozen", "cell", req.Cell, "err", bad.Error())
				}
				return nil, refused
			case err != nil: // it will see it begin with its first call
				c.log.Warn("sentinel was not told of a cell's start", "cell", req.Cell, "err", err.Error())
			}
		}
	}
	return &wire.Empty{}, nil
}

// tellPayload tells sentinel of what the cell's own start runs, which nobody attends.
func (c *Cells) tellPayload(ctx context.Context, g group, cell string) error {
	s, err := payload(g, cell)
	if err != nil {
		return c.fault("the cell's own session", err)
	}
	return c.sentinel.Call(ctx, "session", &s, &wire.Empty{})
}

func payload(g group, cell string) (wire.CellSessionReq, error) {
	s := wire.CellSessionReq{Cell: cell, Session: "payload", By: unitName(cell)}
	p, err := g.child(s.Session)
	if err != nil {
		return s, err
	}
	defer p.Close()
	s.Start, err = p.id()
	return s, err
}

func (c *Cells) stopCell(ctx context.Context, call *daemon.Call, req *wire.CellReq) (*wire.Empty, error) {
	g, err := c.open(req.Cell)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	ctx = context.WithoutCancel(ctx)
	own, ownErr := payload(g, req.Cell)
	if err := managed(); err != nil {
		return nil, err
	}
	if len(g.frozenBy()) > 0 { // it would not hear that it is to end, and must not go on for that
		if err := g.write("cgroup.kill", "1"); err != nil {
			return nil, c.fault("cell "+req.Cell, err)
		}
	}
	if err := systemctl(ctx, "stop", unitName(req.Cell)); err != nil {
		return nil, err
	}
	if ownErr == nil {
		c.ended(own)
	}
	c.log.Info("a cell is stopped", "cell", req.Cell, "by", call.Peer.String())
	return &wire.Empty{}, nil
}

// freezePerson is a person's freeze and thaw of one cell.
func (c *Cells) freezePerson(_ context.Context, call *daemon.Call, req *wire.FreezeReq) (*wire.FreezeResp, error) {
	g, err := c.open(req.Cell)
	if err != nil {
		return nil, err
	}
	g.Close()
	if req.Thaw {
		c.log.Info("a cell is thawed", "cell", req.Cell, "by", call.Peer.String())
		return c.thawAs(req, byPerson)
	}
	c.log.Info("a cell is frozen", "cell", req.Cell, "by", call.Peer.String())
	return c.freezeAs(req, byPerson)
}

func (c *Cells) freeze(_ context.Context, _ *daemon.Call, req *wire.FreezeReq) (*wire.FreezeResp, error) {
	return c.freezeAs(req, byStop)
}

func (c *Cells) thaw(_ context.Context, _ *daemon.Call, req *wire.FreezeReq) (*wire.FreezeResp, error) {
	return c.thawAs(req, byStop)
}

// which are the cells of a request that run.
func (c *Cells) which(req *wire.FreezeReq) ([]string, error) {
	live, err := running(c.kernel)
	if err != nil {
		return nil, c.fault("the cells", err)
	}
	return slices.DeleteFunc(live, func(name string) bool {
		return req.Cell != "" && name != req.Cell || slices.Contains(req.Keep, name)
	}), nil
}

func (c *Cells) freezeAs(req *wire.FreezeReq, by string) (*wire.FreezeResp, error) {
	live, err := c.which(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), freezeFor)
	defer cancel()
	r := new(wire.FreezeResp)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, name := range live {
		all.Go(func() { // one that does not stand still keeps no other from it
			err := c.freezeOne(ctx, name, by)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				r.Cells = append(r.Cells, name)
			case !errors.Is(err, fs.ErrNotExist): // it ended
				c.log.Error("a cell is not frozen", "cell", name, "err", err.Error())
				r.Failed = append(r.Failed, name+": "+err.Error())
			}
		})
	}
	all.Wait()
	slices.Sort(r.Cells)
	return r, nil
}

func (c *Cells) freezeOne(ctx context.Context, name, by string) error {
	// Whoever starts something has a moment to finish; freezing does not wait for longer.
	if unlock, ok := c.lock(name, freezeFor/2); ok {
		defer unlock()
	}
	g, err := open(c.kernel, name)
	if err != nil {
		return err
	}
	defer g.Close()
	return g.freeze(ctx, by)
}

func (c *Cells) thawAs(req *wire.FreezeReq, by string) (*wire.FreezeResp, error) {
	live, err := c.which(req)
	if err != nil {
		return nil, err
	}
	r := new(wire.FreezeResp)
	for _, name := range live {
		g, err := open(c.kernel, name)
		if err != nil {
			continue // it ended
		}
		left := g.frozenBy()
		if by == byPerson && (slices.Contains(left, byStop) || slices.Contains(left, byCanary)) {
			g.Close()
			return nil, frozen(name, left)
		}
		if len(left) > 0 || by == byPerson {
			if err := g.thaw(by); err != nil {
				r.Failed = append(r.Failed, name+": "+err.Error())
			} else if len(g.frozenBy()) == 0 {
				r.Cells = append(r.Cells, name)
			}
		}
		g.Close()
	}
	return r, nil
}

// ended tells sentinel that a session is over, now or when it is there again.
func (c *Cells) ended(s wire.CellSessionReq) {
	s.Ended = true
	ctx, cancel := context.WithTimeout(context.Background(), endFor)
	defer cancel()
	if err := c.sentinel.Call(ctx, "session", &s, &wire.Empty{}); err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unsaid) < maxUnsaid { // sentinel ends a session by itself after 12 hours
		c.unsaid = append(c.unsaid, s)
	}
}

// catchUp tells sentinel of the ends that it missed.
func (c *Cells) catchUp(ctx context.Context, l *daemon.Link) error {
	c.mu.Lock()
	unsaid := c.unsaid
	c.unsaid = nil
	c.mu.Unlock()
	for i, s := range unsaid {
		var refused *wire.Error
		if err := l.Call(ctx, "session", &s, &wire.Empty{}); err != nil && !errors.As(err, &refused) {
			c.mu.Lock()
			c.unsaid = append(unsaid[i:len(unsaid):len(unsaid)], c.unsaid...)
			c.mu.Unlock()
			return err
		}
	}
	return nil
}

// sweep ends the runs that an earlier daemon left behind: who started them is gone.
func (c *Cells) sweep(ctx context.Context) error {
	live, err := running(c.kernel)
	if err != nil {
		return err
	}
	for _, cell := range live {
		g, err := open(c.kernel, cell)
		if err != nil {
			continue
		}
		all, err := g.sessions(cell)
		if err != nil {
			c.log.Error("the runs of a cell", "cell", cell, "err", err.Error())
		}
		for _, name := range all {
			if !strings.HasPrefix(name, "run-") {
				continue
			}
			if err := c.sweepOne(ctx, g, cell, name); err != nil {
				c.log.Error("a run that was left behind does not end", "cell", cell, "session", name, "err", err.Error())
			}
		}
		g.Close()
	}
	return nil
}

func (c *Cells) sweepOne(ctx context.Context, g group, cell, name string) error {
	r, err := g.child(name)
	if err != nil {
		return err
	}
	defer r.Close()
	id, err := r.id()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, endFor)
	defer cancel()
	if err := r.end(ctx); err != nil {
		return err
	}
	c.unsaid = append(c.unsaid, wire.CellSessionReq{Cell: cell, Session: name, Start: id, Ended: true})
	return g.remove(name)
}

// endRuns ends every run with the daemon.
func (c *Cells) endRuns(ctx context.Context) error {
	<-ctx.Done()
	c.mu.Lock()
	var all []*run
	for _, r := range c.runs {
		all = append(all, r)
	}
	c.mu.Unlock()
	for _, r := range all {
		r.kill()
	}
	late := time.After(endFor)
	for _, r := range all {
		select {
		case <-r.done:
		case <-late:
			return nil // the next start ends them
		}
	}
	return nil
}
