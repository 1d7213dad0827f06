// SPDX-License-Identifier: Apache-2.0

// Command load is a worker for the benchmarks: one method that sends many requests to egress under one grant, over
// several connections, and answers how long they took. It is built like any worker; only its description, which no
// installation has, lets a call be so long.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

func main() { workers.Main(connector()) }

func connector() *workers.Connector {
	entry := describe.Entry{Name: "get", Method: "GET", Path: "{base}/load", Credential: true, Uses: 4000} // what sentinel keeps of one call has its bound
	number := func(name string, most int64) describe.Arg {
		return describe.Arg{Name: name, Label: name, Help: "how many", Type: describe.TypeInt, Required: true, Min: 1, Max: most}
	}
	return &workers.Connector{
		Describe: &describe.Connector{Vendor: "load", Title: "load", Check: "ping",
			Tokens: describe.Tokens{Kinds: []string{"token"}, Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "}},
			Methods: []describe.Method{
				{Name: "ping", Summary: "one request", Class: describe.Read, Reach: describe.ReachNone,
					Entries: []describe.Entry{{Name: "get", Method: "GET", Path: "{base}/load", Credential: true}}},
				{Name: "run", Summary: "many requests", Class: describe.Read, Reach: describe.ReachNone,
					Args: []describe.Arg{number("conns", 64), number("requests", 4000)}, Entries: []describe.Entry{entry}},
			}},
		Handlers: map[string]workers.Handler{"ping": ping, "run": run},
	}
}

func ping(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return many(ctx, c, 1, 1)
}

func run(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	return many(ctx, c, int(c.Values.Int("conns")), int(c.Values.Int("requests")))
}

// many answers {"ns": [per request, per connection in turn], "wall": ns}.
func many(ctx context.Context, c *workers.Call, conns, requests int) (*workers.Answer, error) {
	each := requests / conns
	took := make([][]int64, conns)
	errs := make([]error, conns)
	var wg sync.WaitGroup
	start := time.Now()
	for k := range conns {
		wg.Go(func() {
			for range each {
				began := time.Now()
				r, err := c.Do(ctx, "get")
				if err == nil {
					_, err = r.Bytes()
				}
				if err == nil && r.Status != 200 {
					err = fmt.Errorf("status %d", r.Status)
				}
				if err != nil {
					errs[k] = err
					return
				}
				took[k] = append(took[k], time.Since(began).Nanoseconds())
			}
		})
	}
	wg.Wait()
	wall := time.Since(start).Nanoseconds()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	var all []int64
	for _, t := range took {
		all = append(all, t...)
	}
	if len(all) > 4000 {
		all = all[len(all)-4000:]
	}
	return &workers.Answer{Value: map[string]any{"wall": wall, "ns": all}}, nil
}
