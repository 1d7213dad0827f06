// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"errors"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// A call that waited at the socket while sentinel was away is not told that authd is down before authd could say anything.
func TestACallAtTheStartWaitsForAccounts(t *testing.T) {
	s := &Sentinel{}
	var told context.CancelFunc
	s.starting, told = context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.account("dav", "diary")
		got <- err
	}()
	s.mu.Lock()
	s.instance, s.locked = "a", true
	s.mu.Unlock()
	told()
	var e *wire.Error
	if err := <-got; !errors.As(err, &e) || e.Code != wire.CodeLocked {
		t.Errorf("not what authd told: %v", err)
	}
	s.instance = "" // control: later on a link that is down is said at once
	if _, err := s.account("dav", "diary"); !errors.As(err, &e) || e.Code != wire.CodeUnavailable {
		t.Errorf("without authd: %v", err)
	}
}
