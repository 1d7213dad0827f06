// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
)

const fromTimeout = 5 * time.Second // for page to say who connected, which it does at once

// Carried listens for browsers as page carries them. Page alone is taken, by the kernel's word, so its word counts for the address:
// whoever else could write one would have the bounds of any address, or use up another's.
type Carried struct {
	ln      *peer.Listener
	log     *slog.Logger
	refused atomic.Int64 // when one was last told of, seconds
}

// NewCarried makes the listener.
func NewCarried(ln *peer.Listener, log *slog.Logger) *Carried { return &Carried{ln: ln, log: log} }

// Accept waits for the next browser. Whoever is not page, or breaks off, is closed; only the listener's own errors are returned.
func (l *Carried) Accept() (net.Conn, error) {
	for {
		c, err := l.ln.Accept()
		if err != nil {
			return nil, err
		}
		who, err := carriedBy(c)
		if err == nil {
			return &browser{c.UnixConn, who}, nil
		}
		_ = c.Close()
		if now, last := time.Now().Unix(), l.refused.Load(); now-last >= 10 && l.refused.CompareAndSwap(last, now) {
			l.log.Warn("refused a connection", daemon.KeyReason, err.Error())
		}
	}
}

func carriedBy(c *peer.Conn) (net.Addr, error) {
	if !peer.Daemon("page")(c.Peer) {
		return nil, fmt.Errorf("%s is not page", c.Peer)
	}
	if err := c.SetReadDeadline(time.Now().Add(fromTimeout)); err != nil {
		return nil, err
	}
	b := make([]byte, front.FromSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, fmt.Errorf("read who connected to page: %w", err)
	}
	at, err := front.ParseFrom(b)
	if err != nil {
		return nil, err
	}
	return net.TCPAddrFromAddrPort(at), c.SetReadDeadline(time.Time{})
}

// Close stops accepting.
func (l *Carried) Close() error { return l.ln.Close() }

// Addr is that of the socket.
func (l *Carried) Addr() net.Addr { return l.ln.Addr() }

// browser is a connection whose other end is the browser's.
type browser struct {
	*net.UnixConn
	who net.Addr
}

func (b *browser) RemoteAddr() net.Addr { return b.who }
