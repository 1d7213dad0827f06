// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// A call that waited at the socket while sentinel was away is not told that authd is down before authd could say anything.
func TestACallAtTheStartWaitsForAccounts(t *testing.T) {
	s := &Sentinel{accounts: map[string]wire.Account{}}
	var told context.CancelFunc
	s.starting, told = context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.account("dav", "diary")
		got <- err
	}()
	s.mu.Lock()
	s.instance, s.accounts["diary"] = "a", wire.Account{Name: "diary", Vendor: "dav"}
	s.mu.Unlock()
	told()
	if err := <-got; err != nil {
		t.Error(err)
	}
	// Control: once it has begun, a link that is down is said at once.
	s.instance = ""
	if _, err := s.account("dav", "diary"); err == nil {
		t.Error("without authd there is an account")
	}
}
