// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"log/slog"
)

// Names of log fields. Messages are constant, what varies stands in a field of one of these names, and no field holds
// what a cell, worker or vendor wrote unless it is quoted and short.
const (
	KeyDaemon  = "daemon"
	KeyPeer    = "peer"    // as package peer named it
	KeyCell    = "cell"    // its name
	KeySession = "session" // in a cell
	KeyVendor  = "vendor"  // of a worker or account
	KeyAccount = "account" // its name
	KeyVerb    = "verb"    // of a message
	KeyOp      = "op"      // method of a connector
	KeyCall    = "call"    // its id
	KeyGrant   = "grant"   // its id
	KeyVerdict = "verdict" // of a decision
	KeyReason  = "reason"  // of a refusal or decision
	KeySocket  = "socket"  // FileDescriptorName or path
	KeyCount   = "count"
	KeyErr     = "err"
)

// newLog writes JSON lines, which the journal keeps apart; levels below info are for a debugger.
func newLog(w io.Writer, name string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, nil)).With(KeyDaemon, name)
}
