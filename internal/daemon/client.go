// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// Bounds of reconnecting.
const (
	backoffFirst = 20 * time.Millisecond
	backoffLast  = 2 * time.Second
	lazyTimeout  = 10 * time.Second // for a server that its socket starts to be there
)

// meetTimeout is how long a connection waits for a process to be there before it is made anew: one that the kernel took,
// and nobody ever accepts, would be waited for without end. Only tests set it.
var meetTimeout = lazyTimeout

// Client keeps one pipelined connection to a server, and makes it anew when it ends. Requests share it and are never
// repeated. The zero value with Path and Log set is ready; it is safe for concurrent use.
type Client struct {
	Path string // of the socket
	Name string // of the server, for messages; empty is Path
	Log  *slog.Logger
	// Pushed are the verbs that the server may ask on this connection.
	Pushed []Verb
	// Concurrent is how many handlers of pushed verbs run at once; 0 is 64.
	Concurrent int
	// OnConnect, which may be nil, is the first to ask on a new connection; until it returns, calls find none. An
	// error ends the connection. Its context ends after 10 seconds.
	OnConnect func(context.Context, *Link) error
	// OnDisconnect, which may be nil, is told that the connection is over, after every OnConnect that succeeded.
	OnDisconnect func()

	mu      sync.Mutex // guards what follows
	link    *Link      // nil while there is none
	running bool       // Run keeps the connection
	dialing chan struct{}
	lazy    chan struct{} // closed when a connection that a call made is over and OnDisconnect has returned
}

// Run keeps the connection until ctx ends: it is a task for Process.Run. While it has none, calls fail at once with
// CodeUnavailable. Without Run the first call connects, and waits for a server that its socket starts.
func (c *Client) Run(ctx context.Context) error {
	c.mu.Lock()
	c.running = true
	c.mu.Unlock()
	c.takeOver(ctx)
	wait := backoffFirst
	lost := false // said so already
	for ctx.Err() == nil {
		l, over, err := c.connect(ctx)
		if err == nil {
			c.set(l)
			if lost {
				c.Log.Info("connected again", KeySocket, c.Path)
			}
			wait, lost = backoffFirst, false
			<-over
			c.set(nil)
			if c.OnDisconnect != nil {
				c.OnDisconnect()
			}
			continue
		}
		if !lost && ctx.Err() == nil {
			c.Log.Warn("no connection", KeySocket, c.Path, KeyErr, err.Error())
			lost = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, backoffLast)
	}
	return nil
}

// takeOver waits until the connection is over that a call made before Run, or ends it with ctx. A second one beside it
// would be a second client to the server, and one of the two be turned away for as long as the other lives.
func (c *Client) takeOver(ctx context.Context) {
	c.mu.Lock()
	dialing := c.dialing
	c.mu.Unlock()
	if dialing != nil {
		<-dialing
	}
	c.mu.Lock()
	l, lazy := c.link, c.lazy
	c.mu.Unlock()
	if l != nil {
		defer context.AfterFunc(ctx, l.Close)()
	}
	if lazy != nil {
		<-lazy
	}
}

func (c *Client) set(l *Link) {
	c.mu.Lock()
	c.link = l
	c.mu.Unlock()
}

// connect dials, waits for a process to be there, and starts the link. over is closed when it has ended.
func (c *Client) connect(ctx context.Context) (*Link, <-chan struct{}, error) {
	verbs, err := table(c.Pushed, true)
	if err != nil {
		return nil, nil, err
	}
	uc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.Path, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	concurrent := c.Concurrent
	if concurrent == 0 {
		concurrent = 64
	}
	l := newLink(uc, c.name(), c.Log, verbs, concurrent)
	l.fault = func(f Fault) {
		c.Log.Error("a server spoke nonsense", KeySocket, c.Path, KeyReason, f.Kind.String(), KeyErr, f.Err.Error())
	}
	stop := context.AfterFunc(ctx, func() { _ = uc.Close() })
	late := time.AfterFunc(meetTimeout, func() { _ = uc.Close() })
	err = l.conn.Greet()
	if err == nil {
		err = l.conn.Meet()
	}
	inTime := late.Stop()
	if !stop() || !inTime || err != nil {
		_ = l.conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if !inTime {
			err = fmt.Errorf("nobody took the connection for %s", meetTimeout)
		}
		return nil, nil, fmt.Errorf("meet the server: %w", err)
	}
	serveCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if c.isRunning() {
		serveCtx, cancel = context.WithCancel(ctx)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer cancel()
		if err := l.serve(serveCtx); err != nil {
			c.Log.Warn("a connection ended", KeySocket, c.Path, KeyReason, err.Error())
		}
	}()
	if c.OnConnect != nil {
		first, cancel := context.WithTimeout(ctx, lazyTimeout)
		err := c.OnConnect(first, l)
		cancel()
		if err != nil {
			l.Close()
			<-over
			return nil, nil, fmt.Errorf("first words: %w", err)
		}
	}
	return l, over, nil
}

func (c *Client) isRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

func (c *Client) name() string {
	if c.Name != "" {
		return c.Name
	}
	return c.Path
}

// Link returns the live connection, or an error with CodeUnavailable. Without Run it makes one.
func (c *Client) Link(ctx context.Context) (*Link, error) {
	for {
		c.mu.Lock()
		if l := c.link; l != nil && !l.isOver() {
			c.mu.Unlock()
			return l, nil
		}
		if c.running {
			c.mu.Unlock()
			return nil, unavailable(c.name())
		}
		if other := c.dialing; other != nil { // one dials for all
			c.mu.Unlock()
			select {
			case <-other:
				continue
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", unavailable(c.name()), context.Cause(ctx))
			}
		}
		mine := make(chan struct{})
		c.dialing = mine
		c.mu.Unlock()

		dial, cancel := context.WithTimeout(ctx, lazyTimeout)
		l, over, err := c.connect(dial)
		cancel()
		lazy := make(chan struct{})
		c.mu.Lock()
		c.dialing, c.link = nil, l
		if err == nil {
			c.lazy = lazy
		}
		c.mu.Unlock()
		close(mine)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", unavailable(c.name()), err)
		}
		go func() {
			defer close(lazy)
			<-over
			c.mu.Lock()
			if c.link == l {
				c.link = nil
			}
			c.mu.Unlock()
			if c.OnDisconnect != nil {
				c.OnDisconnect()
			}
		}()
		return l, nil
	}
}

// Call asks the server and decodes its answer into resp; see Link.Call. A request is sent once or not at all.
func (c *Client) Call(ctx context.Context, verb string, req, resp any) error {
	l, err := c.Link(ctx)
	if err != nil {
		return err
	}
	return l.Call(ctx, verb, req, resp)
}

// Exchange is Call with descriptors; see Link.Exchange.
func (c *Client) Exchange(ctx context.Context, verb string, req, resp any, files ...*os.File) ([]*os.File, error) {
	l, err := c.Link(ctx)
	if err != nil {
		return nil, err
	}
	return l.Exchange(ctx, verb, req, resp, files...)
}

// Close ends a connection that calls made, without Run.
func (c *Client) Close() {
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil {
		l.Close()
		<-l.Done()
	}
}
