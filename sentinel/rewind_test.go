// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// newerCheckpoint is one of n more entries than a new ledger has, signed with the same key: that of the ledger that was
// there before an older copy was put back.
func newerCheckpoint(t *testing.T, n int) []byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "other")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, _, err := ledger.Open(t.Context(), ledger.Options{Dir: dir, Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)),
		Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var last *ledger.Ticket
	for range n {
		last = l.Append(t.Context(), ledger.Event{Type: "test"})
	}
	if err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	note, err := l.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return note
}

// An older ledger is put right once for each checkpoint, however often authd comes back with it, and also after a
// restart; what may have run is looked up then, not at the next start.
func TestAnOlderLedgerIsPutRightOnce(t *testing.T) {
	after := lookAfter
	lookAfter = 10 * time.Millisecond
	t.Cleanup(func() { lookAfter = after })
	s := newSentinel(t)
	d := demo()
	d.Methods[0].Settle = &describe.Settle{Method: "items"}
	if _, err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	s.vendors["demo"], s.sorted = d, []*describe.Connector{d}
	s.usePolicy(t, "", "")
	mark := newMark()
	s.worksLike(t, 200, `{"items":["`+mark+`"]}`)
	s.authd = peerThat(t, func(m *wire.Msg) any {
		if m.Verb == "revoke" {
			return &wire.RevokeResp{}
		}
		return &wire.Empty{}
	})

	bound, err := wire.Marshal(&Bound{Frame: *s.call("create", to("bob@example.net")...)})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(bound)
	if err != nil {
		t.Fatal(err)
	}
	ran := ledger.Call{Frame: ledger.Frame{ID: ledger.NewID(), Cell: "work", Connector: "demo", Account: "home", Method: "create",
		Class: describe.Write, Mark: mark, Data: data, Created: s.ledger.Now()}}
	ran.Pass = s.newPass()
	if _, _, err := s.ledger.Begin(t.Context(), ran, "cell:work"); err != nil {
		t.Fatal(err)
	}
	g, err := s.ledger.AddGrant(t.Context(), ledger.Grant{Cell: "work", Connector: "demo", Kind: ledger.KindStanding}, "person:1000")
	if err != nil {
		t.Fatal(err)
	}
	comes := func(checkpoint []byte) {
		t.Helper()
		s.authdGone()
		accounts := []wire.Account{s.accounts["home"]}
		if _, err := s.accountsPushed(t.Context(), new(daemon.Call), &wire.AccountsReq{Instance: "a run", Accounts: accounts,
			Checkpoint: checkpoint}); err != nil {
			t.Fatal(err)
		}
	}
	state := func() string {
		t.Helper()
		return s.ledger.Grants(ledger.GrantFilter{ID: g.ID})[0].State
	}
	rewound := func() int {
		t.Helper()
		all, err := s.ledger.Entries(t.Context(), ledger.Query{Types: []string{ledger.EvRewound}})
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}

	older := newerCheckpoint(t, 500)
	comes(older)
	if state() != ledger.GrantUnconfirmed || rewound() != 1 {
		t.Fatalf("the grant is %s, put right %d times", state(), rewound())
	}
	for range 500 { // settled at once: its mark is there
		c, err := s.ledger.Call(t.Context(), ran.ID)
		if err != nil {
			t.Fatal(err)
		}
		if c.State == ledger.Done {
			break
		}
		if c.State != ledger.Unknown {
			t.Fatalf("what ran is %s", c.State)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if c, err := s.ledger.Call(t.Context(), ran.ID); err != nil || c.State != ledger.Done {
		t.Errorf("what ran is %s, %v", c.State, err)
	}

	if _, err := s.ledger.ConfirmGrant(t.Context(), g.ID, "person:1000"); err != nil {
		t.Fatal(err)
	}
	comes(older)
	if state() != ledger.GrantLive || rewound() != 1 {
		t.Errorf("authd came back: the grant is %s, put right %d times", state(), rewound())
	}
	comes(newerCheckpoint(t, 600)) // the control: another checkpoint, which nobody has dealt with
	if state() != ledger.GrantUnconfirmed || rewound() != 2 {
		t.Errorf("another checkpoint: the grant is %s, put right %d times", state(), rewound())
	}
}
