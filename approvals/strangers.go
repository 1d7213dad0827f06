// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"context"
	"errors"

	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// turn takes a place for a request whose body is whole. Those of connections on which nobody has shown a session share half of the
// places: however many strangers ask, and however slowly they are answered, who is signed in is.
func (s *Server) turn(ctx context.Context) (leave func(), ok bool) {
	if front.Kept(front.Conn(ctx)) {
		return func() { <-s.asked }, take(ctx, s.asked, turnTimeout)
	}
	if !take(ctx, s.strange, turnTimeout) {
		return nil, false
	}
	if !take(ctx, s.asked, turnTimeout) {
		<-s.strange
		return nil, false
	}
	return func() { <-s.asked; <-s.strange }, true
}

// knows refuses a session that sentinel does not know, before a place is given to what somebody may hold for long, a large body or events.
// A cookie of the right form anybody can write.
func (s *Server) knows(ctx context.Context, session []byte) *wire.Error {
	if session == nil {
		return signIn
	}
	if front.Kept(front.Conn(ctx)) {
		return nil
	}
	leave, ok := s.turn(ctx)
	if !ok {
		return busy
	}
	defer leave()
	_, _, err := s.poll(ctx, session, -1) // which waits for nothing
	var e *wire.Error
	switch {
	case err == nil:
		front.Keep(front.Conn(ctx))
		return nil
	case errors.As(err, &e):
		return e
	}
	s.log.Error("a session could not be looked up", daemon.KeyErr, err.Error())
	return failed
}
