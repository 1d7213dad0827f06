// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Resolver is the one lookup that a dial makes; *net.Resolver is one, tests script others.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer dials under the guard. All fields are set before the first dial.
type Dialer struct {
	Resolver Resolver
	// Own lists the machine's own addresses at the time of the dial; an error refuses. Nil means OwnAddrs.
	Own func() ([]netip.Addr, error)
	// Timeout bounds one connection attempt; 0 means 10 s.
	Timeout time.Duration
}

// maxAddrs is how many answers of one lookup are tried.
const maxAddrs = 8

// stagger is the wait before the next address is tried beside the last one (RFC 8305 advises 250 ms).
const stagger = 250 * time.Millisecond

// OwnAddrs asks the kernel for every address of this machine.
func OwnAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list own addresses: %w", err)
	}
	own := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP); ok {
			own = append(own, ip.Unmap())
		}
	}
	return own, nil
}

// Dial resolves to.Host once (not at all when it is an address), judges every answer, and connects to one of the
// addresses it judged. One bad answer refuses the whole name: a name that mixes public and private addresses is either
// a rebinding attack or a mistake. permits are as in Check.
func (d *Dialer) Dial(ctx context.Context, to Authority, permits []netip.AddrPort) (net.Conn, error) {
	addrs, err := d.resolve(ctx, to.Host)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", to, err)
	}
	own, err := d.own()
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", to, err)
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap() // not Unwrap: behind NAT64 there is no other way than the NAT64 address
		if err := Check(netip.AddrPortFrom(a, to.Port), permits, own); err != nil {
			return nil, fmt.Errorf("dial %s: %w", to, err)
		}
	}
	if len(addrs) > maxAddrs {
		addrs = addrs[:maxAddrs]
	}
	return d.race(ctx, to, addrs, permits)
}

func (d *Dialer) own() ([]netip.Addr, error) {
	if d.Own != nil {
		return d.Own()
	}
	return OwnAddrs()
}

func (d *Dialer) resolve(ctx context.Context, h Host) ([]netip.Addr, error) {
	if h.IsZero() {
		return nil, fmt.Errorf("no host: %w", ErrHost)
	}
	if h.addr.IsValid() {
		return []netip.Addr{h.addr}, nil
	}
	// The trailing dot keeps search domains of the resolver's configuration out of it.
	addrs, err := d.Resolver.LookupNetIP(ctx, "ip", h.name+".")
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	if len(addrs) == 0 {
		return nil, errors.New("look up: the name has no address")
	}
	return append([]netip.Addr(nil), addrs...), nil
}

type attempt struct {
	conn net.Conn
	err  error
}

// race connects to the addresses in order, each a little after the one before or as soon as that failed; the first
// connection wins and the others are closed.
func (d *Dialer) race(ctx context.Context, to Authority, addrs []netip.Addr, permits []netip.AddrPort) (net.Conn,
	error) {
	if len(addrs) == 1 {
		return d.connect(ctx, netip.AddrPortFrom(addrs[0], to.Port), permits)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan attempt) // unbuffered: a late winner sees ctx done and closes its connection
	start := func(a netip.Addr) {
		conn, err := d.connect(ctx, netip.AddrPortFrom(a, to.Port), permits)
		select {
		case results <- attempt{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
	var errs []error
	next, running := 0, 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dial %s: %w", to, ctx.Err())
		case <-timer.C:
			if next < len(addrs) {
				go start(addrs[next])
				next, running = next+1, running+1
				timer.Reset(stagger)
			}
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			errs, running = append(errs, r.err), running-1
			if next < len(addrs) {
				timer.Reset(0)
			} else if running == 0 {
				return nil, errors.Join(errs...)
			}
		}
	}
}

// connect dials one judged address. The control hook runs between socket() and connect() and judges what the kernel is
// about to be given, so that no path, present or future, connects elsewhere.
func (d *Dialer) connect(ctx context.Context, to netip.AddrPort, permits []netip.AddrPort) (net.Conn, error) {
	timeout := d.Timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	nd := net.Dialer{
		Timeout: timeout,
		Control: func(network, address string, _ syscall.RawConn) error {
			own, err := d.own()
			if err != nil {
				return err
			}
			return control(network, address, to, permits, own)
		},
	}
	nd.SetMultipathTCP(false)
	conn, err := nd.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// control is the decision of the hook.
func control(network, address string, want netip.AddrPort, permits []netip.AddrPort, own []netip.Addr) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("connect by %s: %w", network, ErrRefused)
	}
	got, err := netip.ParseAddrPort(address)
	if err != nil || got != want {
		return fmt.Errorf("connect to %s where %s was judged: %w", address, want, ErrRefused)
	}
	return Check(got, permits, own)
}
