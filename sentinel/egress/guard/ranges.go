// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// ErrRefused is wrapped by every refusal of an address, so that a caller can tell "must not" from "could not".
var ErrRefused = errors.New("address refused")

// special is a block that is never dialled by itself. never: no permit opens it either.
type special struct {
	prefix netip.Prefix
	what   string
	never  bool
}

// special4 is the IANA IPv4 Special-Purpose Address Registry, plus multicast and the metadata addresses that lie in
// ordinary space. Registered blocks that count as globally reachable (AS112, AMT, the 192.0.0.0/24 exceptions) are
// listed too: no vendor lives there.
var special4 = []special{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network", true},
	{netip.MustParsePrefix("10.0.0.0/8"), "private use", false},
	{netip.MustParsePrefix("100.100.100.200/32"), "cloud metadata", true},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier NAT", false},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback", false},
	{netip.MustParsePrefix("168.63.129.16/32"), "cloud metadata", true},
	{netip.MustParsePrefix("169.254.0.0/16"), "link local and cloud metadata", true},
	{netip.MustParsePrefix("172.16.0.0/12"), "private use", false},
	{netip.MustParsePrefix("192.0.0.0/24"), "IETF protocol assignments and cloud metadata", true},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation", true},
	{netip.MustParsePrefix("192.31.196.0/24"), "AS112", true},
	{netip.MustParsePrefix("192.52.193.0/24"), "AMT", true},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay anycast", true},
	{netip.MustParsePrefix("192.168.0.0/16"), "private use", false},
	{netip.MustParsePrefix("192.175.48.0/24"), "AS112", true},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking and Doorward's own names", true},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation", true},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation", true},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast", true},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved and broadcast", true},
}

// special6 names what is refused in IPv6. Outside 2000::/3 everything is refused whether it is named here or not;
// the names only make the message better. Source: IANA IPv6 Special-Purpose Address Registry, RFC 3879 (site-local),
// RFC 4291 2.5.5.1 (v4-compatible), RFC 8215 (local-use NAT64), RFC 7526 (6to4), and the clouds' manuals.
var special6 = []special{
	{netip.MustParsePrefix("::/128"), "unspecified", true},
	{netip.MustParsePrefix("::1/128"), "loopback", false},
	{netip.MustParsePrefix("::/96"), "IPv4-compatible", true},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4-translated", true},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local-use NAT64", true},
	{netip.MustParsePrefix("100::/64"), "discard only", true},
	{netip.MustParsePrefix("100:0:0:1::/64"), "dummy prefix", true},
	{netip.MustParsePrefix("2001::/32"), "Teredo", true},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation", true},
	{netip.MustParsePrefix("2001::/23"), "IETF protocol assignments", true},
	{netip.MustParsePrefix("2002::/16"), "6to4", true},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "AS112", true},
	{netip.MustParsePrefix("3fff::/20"), "documentation", true},
	{netip.MustParsePrefix("5f00::/16"), "segment routing", true},
	{netip.MustParsePrefix("fd00:ec2::/32"), "cloud metadata", true},
	{netip.MustParsePrefix("fd20:ce::/32"), "cloud metadata", true},
	{netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), "cloud metadata", true},
	{netip.MustParsePrefix("fd00:42::42/128"), "cloud metadata", true},
	{netip.MustParsePrefix("fc00::/7"), "unique local", false},
	{netip.MustParsePrefix("fe80::/10"), "link local", true},
	{netip.MustParsePrefix("fec0::/10"), "site local", true},
	{netip.MustParsePrefix("ff00::/8"), "multicast", true},
}

var (
	global6 = netip.MustParsePrefix("2000::/3")
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
)

// Unwrap gives the address that a packet would really reach: IPv4-mapped and well-known NAT64 addresses (RFC 6052)
// become the IPv4 address they carry. It is idempotent. Other addresses are returned as they are, zone included.
func Unwrap(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is6() && nat64.Contains(a.WithZone("")) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:16]))
	}
	return a
}

// verdict is what the registries say of one unwrapped address.
type verdict int

const (
	global verdict = iota // an ordinary public address
	local                 // only a permit opens it
	never                 // nothing opens it
)

// judge decides on one address by the registries alone.
func judge(a netip.Addr) (verdict, string) {
	if !a.IsValid() {
		return never, "no address"
	}
	if a.Zone() != "" {
		return never, "address with a zone"
	}
	a = Unwrap(a)
	table := special6
	if a.Is4() {
		table = special4
	}
	for _, s := range table {
		if !s.prefix.Contains(a) {
			continue
		}
		if s.never {
			return never, s.what
		}
		return local, s.what
	}
	if a.Is6() {
		if !global6.Contains(a) {
			return never, "not global unicast"
		}
		// ISATAP (RFC 5214 6.1) wraps an IPv4 address in the interface identifier.
		if b := a.As16(); b[8]&^0x03 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
			return never, "ISATAP"
		}
	}
	return global, ""
}

// Check decides whether addr:port may be dialled. permits are what the operator opened for this account: each opens
// exactly that address and port, and only if the address is public, private, loopback, ULA or carrier NAT; metadata,
// link-local, multicast, documentation and reserved addresses stay refused. own are the machine's own addresses:
// refused unless permitted. The error wraps ErrRefused.
func Check(addr netip.AddrPort, permits []netip.AddrPort, own []netip.Addr) error {
	if addr.Port() == 0 {
		return fmt.Errorf("check address %s: port 0: %w", addr, ErrRefused)
	}
	a := Unwrap(addr.Addr())
	v, what := judge(addr.Addr())
	permitted := slices.ContainsFunc(permits, func(p netip.AddrPort) bool {
		return p.IsValid() && p.Port() == addr.Port() && p.Addr().Unmap() == addr.Addr().Unmap()
	})
	switch {
	case v == never:
		return fmt.Errorf("check address %s: %s, which nothing opens: %w", addr, what, ErrRefused)
	case permitted:
		return nil
	case v == local:
		return fmt.Errorf("check address %s: %s; permit exactly this address and port in the account if the server "+
			"is your own: %w", addr, what, ErrRefused)
	}
	for _, o := range own {
		if Unwrap(o.WithZone("")) == a {
			return fmt.Errorf("check address %s: it is this machine's own: %w", addr, ErrRefused)
		}
	}
	return nil
}
