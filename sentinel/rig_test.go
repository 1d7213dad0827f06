// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
	"github.com/doorward/doorward/sentinel/spool"
)

// ada is the person.
func ada() *daemon.Call {
	return &daemon.Call{Peer: peer.Identity{Kind: peer.Person, UID: 1000, Name: "ada"}}
}

// cell is a caller in a cell.
func cell(name, session string) peer.Identity {
	return peer.Identity{Kind: peer.Cell, Name: name, Session: session, Unit: "cron.service"}
}

// newSentinel is one with a ledger and a spool of its own, the connector demo and its account home, and with no other
// daemon anywhere.
func newSentinel(t testing.TB) *Sentinel {
	t.Helper()
	dir := t.TempDir()
	s := &Sentinel{log: discard(), config: dir, lifetime: t.Context(), vendors: map[string]*describe.Connector{},
		accounts: map[string]wire.Account{}, live: map[string]*live{}, cells: map[string]*allowance{},
		executing: map[string]bool{}, news: map[string]*waiting{}, workers: map[string]*daemon.Client{},
		egresses: map[string]*daemon.Client{}, conns: newConnections(), judging: map[[2]string]int{}, tainted: map[string]bool{}, mints: map[string]bucket{},
		used: map[string]int64{}, eventNews: make(chan struct{}), instance: "a run of authd"}
	s.authd = &daemon.Client{Path: filepath.Join(dir, "authd"), Name: "authd", Log: s.log}
	s.egress = &daemon.Client{Path: filepath.Join(dir, "egress"), Name: "egress", Log: s.log}
	s.freezer = &daemon.Client{Path: filepath.Join(dir, "cells"), Name: "cells", Log: s.log}
	for _, sub := range []string{"ledger", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	l, _, err := ledger.Open(t.Context(), ledger.Options{Dir: filepath.Join(dir, "ledger"), Key: key, Log: s.log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s.ledger = l
	if s.web, err = newWeb(key.Seed()); err != nil {
		t.Fatal(err)
	}
	if s.outbox, err = newTeller(key.Seed()); err != nil {
		t.Fatal(err)
	}
	if err := s.loadNotices(t.Context()); err != nil {
		t.Fatal(err)
	}
	sealing, err := spool.DeriveKey(key.Seed())
	if err != nil {
		t.Fatal(err)
	}
	if s.spool, err = spool.Open(filepath.Join(dir, "spool"), sealing, s.log); err != nil {
		t.Fatal(err)
	}
	d := demo()
	if _, err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	s.vendors[d.Vendor], s.sorted = d, []*describe.Connector{d}
	s.usePolicy(t, "", "")
	s.addAccount(t, "home")
	return s
}

func (s *Sentinel) usePolicy(t testing.TB, toml, cedar string) {
	t.Helper()
	set, err := policy.Compile(policy.Files{policy.PolicyFile: []byte(toml), "own.cedar": []byte(cedar)}, s.sorted)
	if err != nil {
		t.Fatal(err)
	}
	s.policy.Store(set)
}

func (s *Sentinel) addAccount(t testing.TB, name string) {
	t.Helper()
	a := wire.Account{Name: name, Vendor: "demo", Generation: 1, Owner: "ada@example.org",
		Base: wire.Base{Scheme: "https", Host: "api.example.org", Port: 443}}
	s.accounts[name] = a
	if err := s.ledger.PutSetting(t.Context(), "account/"+name, []byte(accountValue(&a)), "person:1000", nil); err != nil {
		t.Fatal(err)
	}
}

func demo() *describe.Connector {
	entry := []describe.Entry{{Name: "it", Method: "GET", Path: "{base}/it", Credential: true}}
	return &describe.Connector{Vendor: "demo", Title: "Demo", Base: "https://api.example.org", Check: "items",
		Tokens: describe.Tokens{Kinds: []string{"token"}, Placement: wire.Placement{Kind: "header", Name: "Authorization"}},
		Methods: []describe.Method{
			{Name: "create", Summary: "make a thing", Class: describe.Write, Reach: describe.ReachPeople, Entries: entry,
				Grant: []string{"to"},
				Args: []describe.Arg{
					{Name: "title", Label: "Title", Help: "one line", Type: describe.TypeString, Required: true},
					{Name: "to", Label: "To", Help: "an address", Type: describe.TypeEmail, Repeat: 3, Role: "recipient"},
				}},
			{Name: "items", Summary: "list things", Class: describe.Read, Reach: describe.ReachNone, Entries: entry},
		}}
}

// call is a frame of demo.
func (s *Sentinel) call(method string, args ...wire.Arg) *wire.Frame {
	return &wire.Frame{Connector: "demo", Description: s.vendors["demo"].Digest(), Method: method, Args: args}
}
