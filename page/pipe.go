// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
)

// Bounds on waiting. How long a request may take, and a browser be silent, is approvals' to say: it ends the connection, and with it
// this half.
const (
	handshakeTimeout = 10 * time.Second
	dialTimeout      = 5 * time.Second
	sendTimeout      = time.Minute     // for either end to take pieceSize bytes
	lingers          = time.Second / 4 // for a browser to take the end of an answer while it still sends
	pieceSize        = 16 << 10
)

// Bounds on connections, above those of approvals: it knows who has a session, and so which of them gives way to another.
const (
	pipes          = 2 * front.Conns
	pipesOfAddress = 4 * front.OfAddress
)

// Pipe carries the connections of the API's port to approvals: it ends TLS, says who connected, and passes bytes on without reading
// them. approvals has neither the key nor the port, so one that is taken over can be no other origin, and no page.
type Pipe struct {
	Listener net.Listener
	TLS      *tls.Config // nil without TLS
	Path     string      // of the socket on which approvals accepts
	Log      *slog.Logger
}

// Serve accepts until ctx ends, which ends every connection. It is a task for daemon.Process.Run.
func (p *Pipe) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.Listener.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			var ne net.Error
			if errors.As(err, &ne) && !errors.Is(err, net.ErrClosed) { // out of descriptors: connections that end give some back
				p.Log.Error("cannot accept", daemon.KeyErr, err.Error())
				time.Sleep(50 * time.Millisecond)
				continue
			}
			return fmt.Errorf("accept for approvals: %w", err)
		}
		all.Go(func() {
			defer c.Close()
			if err := p.carry(ctx, c); err != nil && ctx.Err() == nil {
				p.Log.Error("cannot carry to approvals", daemon.KeyErr, err.Error())
			}
		})
	}
}

// half is a connection of which one direction can end.
type half interface {
	net.Conn
	CloseWrite() error
}

// carry carries one connection to its end. What a stranger can cause is no error.
func (p *Pipe) carry(ctx context.Context, c net.Conn) error {
	browser, ok := c.(half)
	if !ok {
		return fmt.Errorf("%T has no halves", c)
	}
	from := c.RemoteAddr()
	if p.TLS != nil {
		t := tls.Server(c, p.TLS)
		shake, cancel := context.WithTimeout(ctx, handshakeTimeout)
		err := t.HandshakeContext(shake)
		cancel()
		if err != nil {
			return nil
		}
		browser = encrypted{t, browser}
	}
	front.Keep(c) // from here on approvals says how long it stays
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	to, err := new(net.Dialer).DialContext(dial, "unix", p.Path)
	if err != nil {
		return err
	}
	defer to.Close()
	approvals := to.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { _, _ = c.Close(), to.Close() })
	defer stop()
	if _, err := to.Write(front.AppendFrom(nil, from)); err != nil {
		return err
	}
	var up sync.WaitGroup
	up.Go(func() {
		if forward(approvals, browser) != nil {
			_ = to.Close()
		}
		_, _ = io.Copy(io.Discard, browser) // or what it sends would reset the connection before it has read the answer
	})
	if forward(browser, approvals) != nil {
		_ = c.Close()
	}
	_ = browser.SetReadDeadline(time.Now().Add(lingers))
	up.Wait()
	return nil
}

// forward passes on what comes until its end, and then ends that direction.
func forward(to, from half) error {
	b := make([]byte, pieceSize)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if err := to.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
				return err
			}
			if _, err := to.Write(b[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return to.CloseWrite()
		}
		if err != nil {
			return err
		}
	}
}

// encrypted ends both TLS and TCP in one direction.
type encrypted struct {
	*tls.Conn
	under half
}

func (e encrypted) CloseWrite() error { return errors.Join(e.Conn.CloseWrite(), e.under.CloseWrite()) }
