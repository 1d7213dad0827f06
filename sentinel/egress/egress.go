// SPDX-License-Identifier: Apache-2.0

// Package egress is the one program that reaches out. It holds no policy and keeps no credential. As the daemon of workers
// it asks authd for each request what the grant allows and what stands for the surrogate, and tells sentinel what became of
// it. As `egress CELL` it is the way out of that cell: it asks sentinel for each connection, and where requests are read for
// each of them, and authd for what stands for a surrogate. When those are away, nothing leaves. What an attacker who takes it
// over gains is the credentials of the requests that pass through meanwhile, or one cell's traffic and a network; the packages
// below keep others from getting at them by way of it.
// What is to be told to a person it posts for sentinel, see package notify.
//
// Later, not here yet: authd's splice for OAuth.
package egress

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"runtime/debug"

	"github.com/doorward/doorward/cellnet/listener"
	"github.com/doorward/doorward/cellnet/openers"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/cell"
	"github.com/doorward/doorward/sentinel/egress/facts"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/mint"
	"github.com/doorward/doorward/sentinel/egress/notify"
	"github.com/doorward/doorward/sentinel/egress/proxy"
	"golang.org/x/sys/unix"
)

// Run is the daemon: of workers, or with the name of a cell behind the program's, of that cell.
func Run(ctx context.Context, p *daemon.Process) error {
	debug.SetGCPercent(200) // the heap is small and mostly short-lived
	record := &daemon.Client{Path: wire.PathSentinelEgress, Name: "sentinel", Log: p.Log}
	instance := make([]byte, 8)
	_, _ = rand.Read(instance)
	reports := proxy.NewReporter(record, p.Log, hex.EncodeToString(instance))
	dialer := &guard.Dialer{Resolver: &net.Resolver{PreferGo: true}}
	switch len(p.Args) {
	case 0:
		return ofWorkers(ctx, p, record, reports, dialer)
	case 1:
		return ofCell(ctx, p, p.Args[0], record, reports, dialer)
	}
	return fmt.Errorf("read the arguments %q: want none, or the name of a cell", p.Args)
}

func ofWorkers(ctx context.Context, p *daemon.Process, record *daemon.Client, reports *proxy.Reporter, dialer *guard.Dialer) error {
	workers, err := p.Listener("egress-worker")
	if err != nil {
		return err
	}
	sentinel, err := p.Listener("egress-sentinel")
	if err != nil {
		return err
	}
	authd := &proxy.Resolver{Path: wire.PathAuthdEgress}
	s := &proxy.Server{
		Listener: workers,
		Resolve:  authd.Resolve,
		Report:   reports.Report,
		Full:     reports.Full,
		Dialer:   dialer,
		Log:      p.Log,
	}
	control := &daemon.Server{Name: "egress-sentinel", Listener: sentinel, Log: p.Log, Verbs: []daemon.Verb{
		daemon.On("cut", peer.Daemon("sentinel"), s.Cut),
		daemon.On("notify", peer.Daemon("sentinel"), notify.New(dialer).Notify),
	}}
	return p.Run(ctx, s.Serve, control.Serve, record.Run, reports.Run, quiet)
}

func quiet(ctx context.Context) error { return rest(ctx, restLook) }

// memoryGoal, in bytes, is below MemoryMax= of the unit: a cell that uses all of its connections at once has the collector
// work, and does not have the kernel end its egress.
const memoryGoal = 384 << 20

// ofCell takes the cell's connections: what arrives before its listener is in the kernel's map is refused there.
func ofCell(ctx context.Context, p *daemon.Process, name string, record *daemon.Client, reports *proxy.Reporter,
	dialer *guard.Dialer) error {
	if err := wire.CellName(name); err != nil {
		return err
	}
	debug.SetMemoryLimit(memoryGoal)
	tcp, err := p.TCPListener("cell-tcp")
	if err != nil {
		return err
	}
	dns, err := p.UDPConn("cell-dns")
	if err != nil {
		return err
	}
	sentinel, err := p.Listener("egress-cell")
	if err != nil {
		return err
	}
	network, err := networkOf(tcp)
	if err != nil {
		return err
	}
	names, err := cell.OpenNames(p.Dirs.State, network, p.Log)
	if err != nil {
		return err
	}
	defer names.Close()
	opened, err := openers.Open(wire.BPFDir + name + "/openers")
	if err != nil {
		return err
	}
	defer opened.Close()
	ca, err := mint.Open(p.Dirs.State)
	if err != nil {
		return err
	}
	authd := &proxy.Resolver{Path: wire.PathAuthdEgress}
	s := &cell.Server{
		Cell:     name,
		Listener: tcp,
		DNS:      dns,
		Names:    names,
		Ask: func(ctx context.Context, req *wire.ConnectReq) (*wire.ConnectResp, error) {
			resp := new(wire.ConnectResp)
			return resp, record.Call(ctx, "connect", req, resp)
		},
		Request: func(ctx context.Context, req *wire.RequestReq) (*wire.RequestResp, error) {
			resp := new(wire.RequestResp)
			return resp, record.Call(ctx, "request", req, resp)
		},
		Resolve: authd.Resolve,
		Facts:   read,
		CA:      ca,
		Opener:  opened.Of,
		Report:  reports.Report,
		Full:    reports.Full,
		Dialer:  dialer,
		Log:     p.Log,
	}
	control := &daemon.Server{Name: "egress-cell", Listener: sentinel, Log: p.Log, Verbs: []daemon.Verb{
		daemon.On("cut", peer.Daemon("sentinel"), s.Cut),
	}}
	if err := listener.Put(wire.BPFDir+name+"/listener", tcp); err != nil {
		return err
	}
	return p.Run(ctx, s.Serve, control.Serve, record.Run, reports.Run, quiet)
}

// read is what requests are read by.
var read = &cell.Facts{
	Path:  facts.Path,
	Match: manifest.MatchPath,
	Read: func(as, method, path, query, media string, body []byte) ([]string, *wire.ModelUse) {
		return facts.Of(as, &facts.Asked{Method: method, Path: path, Query: query, Media: media, Body: body})
	},
	Git:      facts.Git,
	Override: facts.Override,
	Shape:    facts.Refusal,
}

// networkOf is the cookie of the network namespace that a listener is in.
func networkOf(ln *net.TCPListener) (cookie uint64, err error) {
	raw, err := ln.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("ask for the cell's network: %w", err)
	}
	cerr := raw.Control(func(fd uintptr) {
		cookie, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	})
	if err = errors.Join(err, cerr); err != nil {
		return 0, fmt.Errorf("ask for the cell's network: %w", err)
	}
	return cookie, nil
}
