// SPDX-License-Identifier: Apache-2.0

// Package authd is the daemon that keeps the credentials.
//
// It alone opens the sealed store. Workers get surrogates from it, egress gets a credential for one request at a time,
// persons put credentials in, and nothing takes one out again: no verb lists or answers a credential but resolve, which
// the egresses alone may ask, each under a live grant of sentinel's, and which sentinel is told of before they are answered.
// Grants live in memory and die with the link to sentinel, so an authd that lost its sentinel resolves nothing. An
// attacker who takes a worker over gets what was granted to that worker for the calls it was handed, as surrogates; one
// who takes egress over gets the credentials of the requests in flight; one who takes sentinel over can grant, on the
// addresses of accounts that are there, and still reads no credential.
//
// A cell is given custom surrogates, by sentinel, which has authd mint them: of an account that is for no worker, with the
// digest kept on the disk and the surrogate nowhere. Who steals one of a cell has nothing: it is worth something in a request
// of that cell's own network, which that cell's egress has allowed by sentinel and then resolves, each by itself.
package authd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/authd/grants"
	"github.com/doorward/doorward/authd/store"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// storeKey is the name of the credential that holds the store's root key.
const storeKey = "store-key"

// Authd is a running authd.
type Authd struct {
	log      *slog.Logger
	store    *store.Store
	table    *grants.Table
	outbox   grants.Outbox
	clock    func() (grants.Now, error)
	random   io.Reader
	instance string
	reports  *reports
	fatal    func(error) // ends the daemon: our own state is damaged

	// order is held for reading from the decision to release until sentinel's link has the message, and for writing
	// while grants end: the answer to a revoke stands on the link behind every release that came before it.
	order sync.RWMutex
	// push is held while the accounts are read and sent, so that what sentinel hears last is the newest. Before mu.
	push sync.Mutex

	mu   sync.Mutex // guards what follows
	link *link      // sentinel's; nil while there is none
}

// Run is the daemon: it opens the store in the state directory, unlocks it where the service manager gave the key, and
// serves its four sockets until ctx ends.
func Run(ctx context.Context, p *daemon.Process) error {
	daemon.OneThread()
	if p.Dirs.State == "" {
		return errors.New("start: no STATE_DIRECTORY; start authd by its unit")
	}
	s, err := store.Open(filepath.Join(p.Dirs.State, "store"))
	if err != nil {
		return err
	}
	defer s.Close()
	if err := unlockAtStart(s, p); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	a, err := New(s, p.Log, end)
	if err != nil {
		return err
	}
	servers, err := a.servers(p.Listener)
	if err != nil {
		return err
	}
	tasks := []func(context.Context) error{a.Sweep, a.Report}
	for _, server := range servers {
		tasks = append(tasks, server.Serve)
	}
	err = p.Run(ctx, tasks...)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// unlockAtStart opens the store with the key that the unit gives. Without one the store waits for a passphrase.
func unlockAtStart(s *store.Store, p *daemon.Process) error {
	key, err := p.Dirs.Credential(storeKey)
	switch {
	case errors.Is(err, os.ErrNotExist) && s.Source() == store.FromCredential:
		return fmt.Errorf("unlock store: its key is the credential %q, and the unit gave none", storeKey)
	case errors.Is(err, os.ErrNotExist):
		p.Log.Warn("locked until `doorward unlock`")
		return nil
	case err != nil:
		return err
	}
	defer key.Wipe()
	if err := s.UnlockCredential(key.Reveal()); err != nil {
		return err
	}
	p.Log.Info("store unlocked", "kept", string(s.Kept()), daemon.KeyCount, len(s.Accounts()))
	return nil
}

// New makes an authd on an open store. fatal is called with the first error that must end the daemon.
func New(s *store.Store, log *slog.Logger, fatal func(error)) (*Authd, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("name this instance: %w", err)
	}
	return &Authd{
		log: log, store: s, table: grants.New(), clock: clock, random: rand.Reader,
		instance: hex.EncodeToString(id[:]), reports: newReports(), fatal: fatal,
	}, nil
}

// clock reads both clocks. Round takes the monotonic reading off, so that the wall clock is compared as it is set.
func clock() (grants.Now, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return grants.Now{}, fmt.Errorf("read boot clock: %w", err)
	}
	return grants.Now{Wall: time.Now().Round(0), Boot: time.Duration(ts.Nano())}, nil
}

// servers are authd's sockets with their verb tables. listener gives the socket of a FileDescriptorName.
func (a *Authd) servers(listener func(string) (*peer.Listener, error)) ([]*daemon.Server, error) {
	sentinel, workers := peer.Daemon("sentinel"), peer.Daemon("egress")
	egress := func(id peer.Identity) bool { return workers(id) || peer.CellEgress(id) }
	tables := []*daemon.Server{
		{Name: "authd-sentinel", OnLink: a.adopt, Verbs: []daemon.Verb{
			daemon.On("grant", sentinel, a.grant).InOrder(),
			daemon.On("revoke", sentinel, a.revoke).InOrder(),
			daemon.On("mint", sentinel, a.mint).InOrder(),
			daemon.On("checkpoint", sentinel, a.checkpoint),
		}},
		{Name: "authd-worker", Verbs: []daemon.Verb{
			daemon.On("borrow", peer.Workers, a.borrow).InOrder(),
		}},
		{Name: "authd-egress", Verbs: []daemon.Verb{
			daemon.On("resolve", egress, a.resolve).InOrder(),
		}},
		{Name: "authd-admin", Verbs: []daemon.Verb{
			daemon.On("unlock", peer.Persons, a.unlock),
			daemon.On("add", peer.Persons, a.add),
			daemon.On("list", peer.Persons, a.list),
			daemon.On("rename", peer.Persons, a.rename),
			daemon.On("remove", peer.Persons, a.remove),
		}},
	}
	for _, server := range tables {
		l, err := listener(server.Name)
		if err != nil {
			return nil, err
		}
		server.Listener, server.Log, server.OnFault = l, a.log, a.fault
	}
	return tables, nil
}

// Sweep is a task: it ends grants that have run out. Each is checked at its use too; this keeps the table small.
func (a *Authd) Sweep(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := a.clock()
		if err != nil {
			return err
		}
		if ended := a.table.Expire(now); len(ended) > 0 {
			a.log.Info("grants ran out", daemon.KeyCount, len(ended))
		}
	}
}

// Report is a task: it carries refusals to sentinel.
func (a *Authd) Report(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.reports.some:
			a.report(ctx)
		}
	}
}

// account looks an account up; nil where there is none of that name.
func (a *Authd) account(name string) *store.Account {
	account, ok := a.store.Account(name)
	if !ok {
		return nil
	}
	return account
}

// refused logs a refusal, has it recorded by sentinel, and returns what the caller is told.
func (a *Authd) refused(c *daemon.Call, grant string, err error) error {
	told, why := a.told(c, err)
	if a.reports.loud(time.Now()) {
		a.log.Warn("refused", daemon.KeyVerb, c.Verb, daemon.KeyPeer, c.Peer.String(), daemon.KeyGrant, quoted(grant),
			daemon.KeyVerdict, string(told.Code), daemon.KeyReason, why)
	}
	grant = quoted(grant)
	a.reports.put(wire.RefusedReq{Verb: c.Verb, Peer: c.Peer.String(), Grant: grant, Code: told.Code, Detail: why})
	return told
}

// quoted is a name that a peer gave, fit for a log and a record.
func quoted(name string) string {
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' {
			return strconv.QuoteToASCII(name[:min(len(name), 64)])
		}
	}
	return name[:min(len(name), 64)]
}

// told is what the caller may know of an error, and what the record gets.
func (a *Authd) told(c *daemon.Call, err error) (*wire.Error, string) {
	var refusal *grants.Refusal
	var told *wire.Error
	switch {
	case errors.As(err, &refusal):
		return refusal.Told, refusal.Why
	case errors.As(err, &told):
		return told, told.Reason
	case errors.Is(err, store.ErrLocked):
		return locked(), "the store is locked"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		a.log.Error("disk full", daemon.KeyVerb, c.Verb, daemon.KeyErr, err.Error())
		return wire.Refuse(wire.CodeFull, "authd's disk is full; nothing was changed",
			"make room, then try again"), "disk full"
	}
	a.log.Error("failed", daemon.KeyVerb, c.Verb, daemon.KeyErr, err.Error())
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNewer) {
		a.fatal(err)
	}
	return wire.Refuse(wire.CodeInternal, "authd failed", "see the journal of doorward-authd"), "a fault of authd"
}

func locked() *wire.Error {
	return wire.Refuse(wire.CodeLocked, "authd waits for its passphrase", "have a person run `doorward unlock`")
}

// fault records a connection that was ended for what its peer did.
func (a *Authd) fault(f daemon.Fault) {
	a.reports.put(wire.RefusedReq{
		Verb: f.Verb, Peer: f.Peer.String(), Code: wire.CodeNotAllowed, Detail: "connection ended: " + f.Kind.String(),
	})
}

// freeMemory gives back what deriving a key took.
func freeMemory() { debug.FreeOSMemory() }
