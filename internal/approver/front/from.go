// SPDX-License-Identifier: Apache-2.0

package front

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// FromSize is the length in bytes of what stands before a connection that page carries.
const FromSize = 1 + 16 + 2

// fromVersion is the first byte. History: 1, 2026-12-01.
const fromVersion = 1

// AppendFrom appends who connected to page: a version, the address as IPv6 (an IPv4 one is mapped) without its zone, and the port,
// big-endian. An address that is none of IP is all zeros.
func AppendFrom(b []byte, a net.Addr) []byte {
	at, _ := netip.ParseAddrPort(a.String())
	addr := [16]byte{}
	if at.IsValid() {
		addr = at.Addr().As16()
	}
	b = append(b, fromVersion)
	b = append(b, addr[:]...)
	return binary.BigEndian.AppendUint16(b, at.Port())
}

// ParseFrom reads FromSize bytes that AppendFrom made.
func ParseFrom(b []byte) (netip.AddrPort, error) {
	if len(b) != FromSize || b[0] != fromVersion {
		return netip.AddrPort{}, fmt.Errorf("read who connected to page: %x is not version %d; restart both daemons", b, fromVersion)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[1:17])).Unmap(), binary.BigEndian.Uint16(b[17:])), nil
}
