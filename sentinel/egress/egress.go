// SPDX-License-Identifier: Apache-2.0

// Package egress is the one process that reaches out. It holds no policy and keeps no credential: for each request of a
// worker it asks authd what the grant allows and what stands for the surrogate, and tells sentinel what became of it.
// When either is away, nothing leaves. What an attacker who takes it over gains is the credentials of the requests that
// pass through meanwhile; the packages below keep others from getting at them by way of it.
//
// Later, not here yet: a cell's own traffic, authd's splice for OAuth, and notices.
package egress

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"
	"runtime/debug"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/proxy"
)

// Run is the daemon.
func Run(ctx context.Context, p *daemon.Process) error {
	debug.SetGCPercent(200) // the heap is small and mostly short-lived
	workers, err := p.Listener("egress-worker")
	if err != nil {
		return err
	}
	sentinel, err := p.Listener("egress-sentinel")
	if err != nil {
		return err
	}
	authd := &proxy.Resolver{Path: wire.PathAuthdEgress}
	record := &daemon.Client{Path: wire.PathSentinelEgress, Name: "sentinel", Log: p.Log}
	instance := make([]byte, 8)
	_, _ = rand.Read(instance)
	reports := proxy.NewReporter(record, p.Log, hex.EncodeToString(instance))
	s := &proxy.Server{
		Listener: workers,
		Resolve:  authd.Resolve,
		Report:   reports.Report,
		Full:     reports.Full,
		Dialer:   &guard.Dialer{Resolver: &net.Resolver{PreferGo: true}},
		Log:      p.Log,
	}
	control := &daemon.Server{Name: "egress-sentinel", Listener: sentinel, Log: p.Log, Verbs: []daemon.Verb{
		daemon.On("cut", peer.Daemon("sentinel"), s.Cut),
	}}
	return p.Run(ctx, s.Serve, control.Serve, record.Run, reports.Run)
}
