// SPDX-License-Identifier: Apache-2.0

// Package sentinel decides. Every semantic call of a cell comes here first; what the policy allows is granted to one
// worker for one frame, what it asks about waits for a person, and everything is in the ledger before it is answered.
//
// It believes the kernel about who calls, the installed descriptions about what a method means, and nobody else: not
// the worker that renders a body, not the command that parsed the arguments. An attacker in a cell can have calls
// refused or parked; one in a worker can spoil the answers of that worker's own calls. Neither can make something run
// that was not decided here. When the ledger cannot be written, or authd's link is down, the answer is no.
package sentinel

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
	"github.com/doorward/doorward/sentinel/spool"
)

// Sentinel is the running daemon.
type Sentinel struct {
	log      *slog.Logger
	ledger   *ledger.Ledger
	spool    *spool.Spool
	vendors  map[string]*describe.Connector
	sorted   []*describe.Connector
	policy   atomic.Pointer[policy.Set]
	config   string // folder of limits.toml, and of policy/
	authd    *daemon.Client
	egress   *daemon.Client
	freezer  *daemon.Client  // cells
	lifetime context.Context // of the daemon: work that outlives its asker
	told     func()          // ends starting
	starting context.Context // ends with the first accounts, or startFor after the start; nil is ended

	conns      *connections
	health     health
	complained atomic.Int64 // when the log last said that the record cannot be written, seconds
	unasked    atomic.Bool  // an account or a grant found no room to be put up for decision

	means     sync.Map                 // *describe.Method: its meaning, hex
	undecided atomic.Pointer[[]string] // methods that ask since they have changed, "vendor method"; nil: none

	web    *web    // what browsers have
	outbox *teller // what people are told

	waitlist waitlist

	issues  atomic.Pointer[map[string]*issued] // custom surrogates by "cell/name", see surrogates.go
	issuing sync.Mutex                         // held while one is issued or taken back
	passes  passes

	halted atomic.Pointer[map[string]string] // stops that are not on record yet: by whom, by key of the setting; or nil

	mu        sync.Mutex // guards what follows
	instance  string     // of authd; empty while its link is down
	locked    bool
	accounts  map[string]wire.Account
	live      map[string]*live          // by grant
	executing map[string]bool           // calls that sentinel itself runs and whose answer is to come
	news      map[string]*waiting       // by call
	workers   map[string]*daemon.Client // by vendor
	egresses  map[string]*daemon.Client // by cell
	cells     map[string]*allowance     // by cell
	tainted   map[string]bool           // cells that were cut when they first counted as having read what others wrote
	mints     map[string]bucket         // what a cell may have minted, by cell
	used      map[string]int64          // when an issue was last used, seconds
	judging   map[[2]string]int         // reads that are judged and have not begun, by session and connector
	eventNews chan struct{}             // closed and replaced when a call has changed
	orphans   []ledger.Call             // executing when sentinel started; settled when authd has told what it released
}

// Run is the daemon's run, see daemon.Main.
func Run(ctx context.Context, p *daemon.Process) error {
	if p.Dirs.State == "" || p.Dirs.Config == "" {
		return errors.New("start: no state or configuration directory; the unit gives both")
	}
	seed, err := p.Dirs.Credential("checkpoint-key")
	if err != nil {
		return fmt.Errorf("start: read the checkpoint key: %w; the unit loads it", err)
	}
	if len(seed.Reveal()) != ed25519.SeedSize {
		return fmt.Errorf("start: the checkpoint key has %d bytes, want %d", len(seed.Reveal()), ed25519.SeedSize)
	}
	key := ed25519.NewKeyFromSeed(seed.Reveal())
	s := &Sentinel{log: p.Log, config: p.Dirs.Config, lifetime: ctx,
		vendors: map[string]*describe.Connector{}, accounts: map[string]wire.Account{}, live: map[string]*live{},
		cells: map[string]*allowance{}, executing: map[string]bool{}, news: map[string]*waiting{}, workers: map[string]*daemon.Client{},
		egresses: map[string]*daemon.Client{}, conns: newConnections(), judging: map[[2]string]int{},
		tainted: map[string]bool{}, mints: map[string]bucket{}, used: map[string]int64{}, eventNews: make(chan struct{})}
	var started context.CancelFunc
	s.starting, started = context.WithTimeout(ctx, startFor)
	defer started()
	s.told = started
	s.authd = &daemon.Client{Path: wire.PathAuthdSentinel, Name: "authd", Log: p.Log, Pushed: []daemon.Verb{
		daemon.Pushed("accounts", s.accountsPushed).InOrder(),
		daemon.Pushed("released", s.released).InOrder(),
		daemon.Pushed("refused", s.authdRefused),
	}, OnDisconnect: s.authdGone}
	s.egress = &daemon.Client{Path: wire.PathEgressSentinel, Name: "egress", Log: p.Log}
	s.freezer = &daemon.Client{Path: wire.PathCellsSentinel, Name: "cells", Log: p.Log, OnConnect: s.freezeStopped}
	if err := s.loadDescriptions(); err != nil {
		return err
	}
	dir := filepath.Join(p.Dirs.State, "ledger")
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("start: %w", err)
	}
	l, found, err := ledger.Open(ctx, ledger.Options{Dir: dir, Key: key, Log: p.Log,
		OnCheckpoint: s.giveCheckpoint})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer l.Close()
	s.ledger = l
	if s.web, err = newWeb(seed.Reveal()); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if s.outbox, err = newTeller(seed.Reveal()); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	s.loadSurrogates()
	s.rememberTainted()
	s.orphans = found.Executing
	if found.Suspect != "" {
		p.Log.Error("the record may be older than what was acknowledged; approved calls are void", "reason", found.Suspect)
		if _, _, err := l.Rewind(ctx, found.Suspect, nil); err != nil {
			return fmt.Errorf("start: %w", err)
		}
		s.voidSurrogates(ctx, found.Suspect)
		s.voidApprovers(ctx, found.Suspect)
		s.voidNotices(ctx, found.Suspect)
	}
	sealing, err := spool.DeriveKey(seed.Reveal())
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if s.spool, err = spool.Open(filepath.Join(p.Dirs.State, "spool"), sealing, p.Log); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := s.compareMeanings(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := s.loadPolicy(ctx); err != nil {
		return err
	}
	if err := s.resume(ctx); err != nil {
		return err
	}
	if err := s.loadNotices(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	servers, err := s.servers(p)
	if err != nil {
		return err
	}
	tasks := []func(context.Context) error{s.authd.Run, s.egress.Run, s.freezer.Run, s.expire, s.tellPeople}
	for _, srv := range servers {
		tasks = append(tasks, srv.Serve)
	}
	return p.Run(ctx, tasks...)
}

// servers are the sockets with their tables, as wire.Graph has them.
func (s *Sentinel) servers(p *daemon.Process) ([]*daemon.Server, error) {
	tables := map[string][]daemon.Verb{
		"cell-sentinel": {
			daemon.On("decide", peer.Cells, s.decide),
			daemon.On("wait", peer.Cells, s.wait),
			daemon.On("result", peer.Cells, s.resultVerb),
			daemon.On("cancel", peer.Cells, s.cancel),
			daemon.On("inbox", peer.Cells, s.inbox),
			daemon.On("list", peer.Cells, s.list),
			daemon.On("surrogate", peer.Cells, s.surrogate),
		},
		"sentinel-worker": {daemon.On("finish", peer.Workers, s.finish)},
		"sentinel-egress": {
			daemon.On("sent", anyEgress, s.sentVerb).InOrder(),
			daemon.On("connect", peer.CellEgress, s.connect),
			daemon.On("request", peer.CellEgress, s.request),
		},
		"sentinel-cells": {
			daemon.On("session", peer.Daemon("cells"), s.cellSession),
			daemon.On("canary", peer.Daemon("walls"), s.canary),
		},
		"approve": {
			daemon.On("pending", peer.Persons, s.pending),
			daemon.On("show", peer.Persons, s.show),
			daemon.On("decide", peer.Persons, s.decideCard),
			daemon.On("watch", peer.Persons, s.watchEvents),
			daemon.On("grants", peer.Persons, s.grantsVerb),
			daemon.On("revoke", peer.Persons, s.revoke),
			daemon.On("stop", peer.Persons, s.stop),
			daemon.On("policy", peer.Persons, s.policyVerb),
			daemon.On("session", peer.Persons, s.sessionVerb),
			daemon.On("check", peer.Persons, s.check),
			daemon.On("audit", peer.Persons, s.audit),
			daemon.On("why", peer.Persons, s.why),
			daemon.On("taint", peer.Persons, s.taint),
			daemon.On("surrogate", peer.Persons, s.personSurrogate),
			daemon.On("approvers", peer.Persons, s.approvers),
			daemon.On("notices", peer.Persons, s.noticesVerb),
		},
		"sentinel-web": s.webVerbs(),
	}
	var out []*daemon.Server
	for name, verbs := range tables {
		ln, err := p.Listener(name)
		if err != nil {
			return nil, err
		}
		server := &daemon.Server{Name: name, Listener: ln, Log: p.Log, Verbs: verbs, OnFault: func(f daemon.Fault) {
			go s.refused("sentinel", f.Peer.String(), f.Verb, wire.CodeNotAllowed, f.Kind.String())
		}}
		if name == "sentinel-web" {
			server.PerPeer = maxWeb
		}
		out = append(out, server)
	}
	return out, nil
}

// loadDescriptions reads every installed description. A wrong one stops the daemon: it is our own state.
func (s *Sentinel) loadDescriptions() error {
	dir, err := describe.Dir()
	if err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the descriptions: %w", err)
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), describe.Ext)
		if !ok {
			continue
		}
		c, err := describe.Load(dir, name)
		if err != nil {
			return fmt.Errorf("read the description of %s: %w; reinstall doorward", name, err)
		}
		s.vendors[name] = c
		s.sorted = append(s.sorted, c)
	}
	return nil
}

// worker is the link to a vendor's worker. It is made at the first call, which starts the worker.
func (s *Sentinel) worker(vendor string) *daemon.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.workers[vendor]
	if c == nil {
		c = &daemon.Client{Path: wire.PathWorkerSentinel(vendor), Name: "worker-" + vendor, Log: s.log}
		s.workers[vendor] = c
	}
	return c
}

// running refuses what the switch has stopped and what outlived its session.
func (s *Sentinel) running(who peer.Identity) error {
	if err := s.stopped(who.Name); err != nil {
		return err
	}
	sess, _, err := s.session(who)
	if err != nil {
		return s.ledgerError(err)
	}
	if !sess.Ended.IsZero() || s.ledger.Now().Reached(sess.Until) {
		return wire.Refuse(wire.CodeExpired, "the session has ended; it lasts 12 hours", "start the cell or the run again")
	}
	return nil
}

// session is the caller's. One that cells did not tell of begins when it is first seen, and nobody attends it.
func (s *Sentinel) session(who peer.Identity) (_ ledger.Session, attended bool, _ error) {
	id := sessionID(who)
	sess, ok := s.ledger.Session(id)
	if !ok {
		now := s.ledger.Now()
		var err error
		sess, err = s.ledger.BeginSession(s.lifetime, ledger.Session{ID: id, Cell: who.Name, Run: who.Unit, Began: now,
			Until: now.Add(sessionFor)}, actor(who))
		if err != nil {
			return ledger.Session{}, false, err
		}
	}
	return sess, sess.Attended && s.allAttended(who.Name), nil
}

// allAttended says whether every session of a cell that lives is attended: its processes can act for each other.
func (s *Sentinel) allAttended(cell string) bool {
	return !slices.ContainsFunc(s.ledger.Sessions(cell), func(x ledger.Session) bool { return !x.Attended })
}

// expire ends what nobody decided in time.
func (s *Sentinel) expire(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	sweep := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s.recordHalts(ctx)
		calls, grants, err := s.ledger.Expire(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Error("what is due does not expire", "err", err.Error())
		}
		for _, c := range calls {
			s.forget(c.Spool)
			s.changed(c)
		}
		s.cutEnded(grants)
		s.endOver(ctx)
		if time.Since(sweep) > 10*time.Minute {
			sweep = time.Now()
			if _, err := s.spool.Sweep(sweep, nil); err != nil {
				s.log.Warn("the spool is not swept", "err", err.Error())
			}
			s.endSessions(ctx)
		}
	}
}

// endSessions ends those whose 12 hours are over, and their grants with them.
func (s *Sentinel) endSessions(ctx context.Context) {
	now := s.ledger.Now()
	for _, x := range s.ledger.Sessions("") {
		if !now.Reached(x.Until) {
			continue
		}
		gone, err := s.ledger.EndSession(ctx, x.ID, "its time is over", "sentinel")
		if err != nil {
			s.log.Warn("a session does not end", "session", x.ID, "err", err.Error())
		}
		s.cutEnded(gone)
	}
}
