// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// Main is the whole of a worker's main. With the argument `describe` it prints the connector's description, which the
// build keeps; without one it serves until it is told to end. It does not return.
func Main(c *Connector) {
	if len(os.Args) == 2 && os.Args[1] == "describe" {
		if err := printDescription(c); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	daemon.Main("worker-"+c.Describe.Vendor, func(ctx context.Context, p *daemon.Process) error {
		daemon.OneThread()
		return run(ctx, p, c)
	})
}

func printDescription(c *Connector) error {
	b, err := c.verify()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(b)
	return err
}

func run(ctx context.Context, p *daemon.Process, c *Connector) error {
	if len(p.Args) > 0 {
		return fmt.Errorf("arguments %q: a worker takes none but describe", p.Args)
	}
	if _, err := c.verify(); err != nil {
		return err
	}
	w := newWorker(c, p.Log,
		&daemon.Client{Path: wire.PathAuthdWorker, Name: "authd", Log: p.Log},
		&daemon.Client{Path: wire.PathSentinelWorker, Name: "sentinel", Log: p.Log},
		wire.PathEgressWorker)
	cells, err := p.Listener("cell-" + c.Describe.Vendor)
	if err != nil {
		return err
	}
	sentinel, err := p.Listener("worker-sentinel")
	if err != nil {
		return err
	}
	fromCells := &daemon.Server{Name: "cell-" + c.Describe.Vendor, Listener: cells, Log: p.Log, Verbs: w.cellVerbs()}
	fromSentinel := &daemon.Server{Name: "worker-sentinel", Listener: sentinel, Log: p.Log, Verbs: w.sentinelVerbs()}
	return p.Run(ctx, fromCells.Serve, fromSentinel.Serve)
}

func newWorker(c *Connector, log *slog.Logger, authd, sentinel asker, egress string) *worker {
	return &worker{c: c, log: log, authd: authd, sentinel: sentinel, egress: &client{path: egress},
		slots: make(chan struct{}, concurrent), large: make(chan struct{}, largeAnswers), own: map[string]chan struct{}{}}
}

// cellVerbs is the table of the socket that cells see.
func (w *worker) cellVerbs() []daemon.Verb {
	return []daemon.Verb{
		daemon.On("call", peer.Cells, func(ctx context.Context, c *daemon.Call, req *wire.CallReq) (*wire.Output, error) {
			return released(c)(w.call(ctx, c.Peer, req, c.Files))
		}),
	}
}

// sentinelVerbs is the table of the socket that sentinel asks on.
func (w *worker) sentinelVerbs() []daemon.Verb {
	who := peer.Daemon("sentinel")
	return []daemon.Verb{
		daemon.On("prepare", who, func(_ context.Context, _ *daemon.Call, req *wire.PrepareReq) (*wire.PrepareResp, error) {
			return w.prepare(req)
		}),
		daemon.On("execute", who, func(ctx context.Context, c *daemon.Call, req *wire.CallReq) (*wire.Output, error) {
			return released(c)(w.execute(ctx, req, c.Files))
		}),
		daemon.On("check", who, func(ctx context.Context, c *daemon.Call, req *wire.CallReq) (*wire.Output, error) {
			return released(c)(w.check(ctx, req, c.Files))
		}),
	}
}

// released lets an answer go with the file that it may have.
func released(c *daemon.Call) func(*result, error) (*wire.Output, error) {
	return func(r *result, err error) (*wire.Output, error) {
		if err != nil {
			return nil, err
		}
		if r.file != nil {
			c.Attach(r.file)
		}
		return r.out, nil
	}
}
