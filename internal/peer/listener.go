// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net"
	"sync/atomic"
)

// Conn is a connection whose caller is proved.
type Conn struct {
	*net.UnixConn
	Peer Identity
}

// Listener accepts connections and gives out only those whose caller it could prove. It is safe for concurrent use.
type Listener struct {
	ln      *net.UnixListener
	who     Identifier
	refuse  func(error) // told of each refusal; may be nil
	refused atomic.Uint64
}

// NewListener wraps ln. refused, which may be nil, is told why a connection was closed; it must not block.
func NewListener(ln *net.UnixListener, who Identifier, refused func(error)) *Listener {
	return &Listener{ln: ln, who: who, refuse: refused}
}

// Accept waits for the next proved caller. A caller that cannot be proved is closed and counted, and Accept goes on. It
// returns the listener's own errors only.
func (l *Listener) Accept() (*Conn, error) {
	for {
		c, err := l.ln.AcceptUnix()
		if err != nil {
			return nil, err
		}
		id, err := l.who.Identify(c)
		if err == nil {
			return &Conn{UnixConn: c, Peer: id}, nil
		}
		_ = c.Close()
		l.refused.Add(1)
		if l.refuse != nil {
			l.refuse(err)
		}
	}
}

// Refused counts the connections that were closed because their caller could not be proved.
func (l *Listener) Refused() uint64 { return l.refused.Load() }

// Close stops accepting. The socket's file stays: it is not ours.
func (l *Listener) Close() error { return l.ln.Close() }

// Addr is the address that is listened on.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }
