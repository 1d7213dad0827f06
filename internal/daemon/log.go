// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
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

// newLog writes JSON lines; levels below info are for a debugger. For the journal each begins with its priority
// (sd-daemon(3)), which `journalctl -p` chooses by.
func newLog(w io.Writer, name string, forJournal bool) *slog.Logger {
	if !forJournal {
		return slog.New(slog.NewJSONHandler(w, nil)).With(KeyDaemon, name)
	}
	p := &priority{w: w}
	return slog.New(prioritized{slog.NewJSONHandler(p, nil), p}).With(KeyDaemon, name)
}

// toJournal says whether standard error goes to the journal, by $JOURNAL_STREAM (systemd.exec(5)).
func toJournal() bool {
	yes, err := journal.StderrIsJournalStream()
	return err == nil && yes && os.Getenv("JOURNAL_STREAM") != ""
}

// priority writes lines, each behind the same prefix.
type priority struct {
	w      io.Writer
	mu     sync.Mutex // held for one record: its level is that of its line
	prefix string
}

func (p *priority) Write(line []byte) (int, error) {
	if _, err := p.w.Write(append([]byte(p.prefix), line...)); err != nil { // in one piece, or lines of others stand between
		return 0, err
	}
	return len(line), nil
}

type prioritized struct {
	slog.Handler
	p *priority
}

func (h prioritized) Handle(ctx context.Context, r slog.Record) error {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	switch {
	case r.Level >= slog.LevelError:
		h.p.prefix = "<3>"
	case r.Level >= slog.LevelWarn:
		h.p.prefix = "<4>"
	default:
		h.p.prefix = "<6>"
	}
	return h.Handler.Handle(ctx, r)
}

func (h prioritized) WithAttrs(attrs []slog.Attr) slog.Handler {
	return prioritized{h.Handler.WithAttrs(attrs), h.p}
}

func (h prioritized) WithGroup(name string) slog.Handler {
	return prioritized{h.Handler.WithGroup(name), h.p}
}
