// SPDX-License-Identifier: Apache-2.0

package ledger

import "errors"

// What a caller can tell apart. Each is wrapped with what happened and what to do next.
var (
	ErrFull     = errors.New("the ledger has no space left")
	ErrReadOnly = errors.New("the ledger is on a read-only file system")
	ErrGone     = errors.New("the ledger's file was deleted or replaced")
	ErrBroken   = errors.New("the ledger stopped after a failed write")
	ErrBusy     = errors.New("the ledger is held by another process")
	ErrUnsafe   = errors.New("the ledger's folder is open to others")
	ErrCorrupt  = errors.New("the ledger is damaged")
	ErrNewer    = errors.New("the ledger was written by a newer version")
	ErrClosed   = errors.New("the ledger is closed")
	ErrNotFound = errors.New("no such entry")
	ErrExpired  = errors.New("it expired")
	ErrChanged  = errors.New("what was approved is not what waits")
	ErrTooMany  = errors.New("too many calls wait already")
	ErrSpent    = errors.New("the grant has no use left")
	ErrEqual    = errors.New("an equal call waits, runs, or may have run")
	ErrMayRun   = errors.New("an equal call may have run already")
	ErrTooLarge = errors.New("too large for the ledger")
)
