// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// A login is unwell from a vendor's 401 to a request with the credential until the vendor takes it again.
func TestHealthIsWhatTheVendorLastSaidOfTheLogin(t *testing.T) {
	s := &Sentinel{vendors: map[string]*describe.Connector{"v": {Vendor: "v", Methods: []describe.Method{{Name: "m",
		Entries: []describe.Entry{{Name: "api", Credential: true}, {Name: "logs"}}}}}}}
	call := func(login uint64) *ledger.Call {
		return &ledger.Call{Frame: ledger.Frame{Connector: "v", Method: "m", Login: login}}
	}
	at := func(login int64) wire.Code { return s.healthOf(&wire.Account{Generation: login}) }
	for _, x := range []struct {
		says   string
		entry  string
		status int
		unwell bool
	}{
		{"nothing yet", "api", 200, false},
		{"401 of a host that never saw the credential", "logs", 401, false},
		{"401 of no entry", "other", 401, false},
		{"forbidden, which is about the path", "api", 403, false},
		{"no answer", "api", 0, false},
		{"401", "api", 401, true},
		{"a second host is well", "logs", 200, true},
		{"it failed", "api", 500, true},
		{"not found says nothing of the login", "api", 404, true},
		{"taken again", "api", 204, false},
		{"401 again", "api", 401, true},
		{"sent on", "api", 304, false},
		{"401 at last", "api", 401, true},
	} {
		s.heed(call(7), &wire.SentReq{Entry: x.entry, Status: x.status, Left: true})
		if got := at(7) != ""; got != x.unwell {
			t.Errorf("%s: unwell is %v", x.says, got)
		}
	}
	if at(7) != wire.CodeReconnectRequired || at(7).Exit() != wire.ExitAccount {
		t.Errorf("it is %q", at(7))
	}
	// A new credential is another login. A late word of the old one does not touch it, and neither heals the other.
	if at(8) != "" {
		t.Errorf("the new login is %q", at(8))
	}
	s.heed(call(8), &wire.SentReq{Entry: "api", Status: 200, Left: true})
	if at(7) == "" {
		t.Error("another login's success healed it")
	}
	if got := s.healthOf(&wire.Account{Generation: 8, Health: wire.CodeMissingScope}); got != wire.CodeMissingScope {
		t.Errorf("authd's own word is %q", got)
	}
}
