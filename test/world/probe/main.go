// SPDX-License-Identifier: Apache-2.0

// Command probe stands in the units of a world in the world's own tests: it serves the sockets that its arguments name,
// says on each who calls, and as a client asks who it is.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

type who struct {
	Who string `msgpack:"w"`
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "ask" {
		for _, path := range os.Args[2:] {
			fmt.Println(path, ask(path))
		}
		return
	}
	daemon.Main("probe", serve)
}

func ask(path string) string {
	if strings.HasPrefix(path, "tcp:") {
		c, err := net.DialTimeout("tcp", path[len("tcp:"):], 5*time.Second)
		if err != nil {
			return err.Error()
		}
		c.Close()
		return "connected"
	}
	c, err := wire.Dial(path, 10*time.Second)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	var w who
	if _, err := c.Call("who", &wire.Empty{}, &w); err != nil {
		return err.Error()
	}
	return w.Who
}

func serve(ctx context.Context, p *daemon.Process) error {
	var tasks []func(context.Context) error
	for _, name := range p.Args {
		ln, err := p.Listener(name)
		if err != nil {
			return err
		}
		anybody := func(peer.Identity) bool { return true }
		srv := &daemon.Server{Name: name, Listener: ln, Log: p.Log, Verbs: []daemon.Verb{
			daemon.On("who", anybody, func(_ context.Context, c *daemon.Call, _ *wire.Empty) (*who, error) {
				return &who{c.Peer.String()}, nil
			}),
		}}
		tasks = append(tasks, srv.Serve)
	}
	entries, err := os.ReadDir("/run/doorward")
	p.Log.Info("sees", "run", fmt.Sprint(entries), "err", fmt.Sprint(err), "uid", os.Getuid())
	return p.Run(ctx, tasks...)
}
