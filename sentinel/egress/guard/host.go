// SPDX-License-Identifier: Apache-2.0

// Package guard stands before every outbound dial of egress. Whoever can choose a name, a redirect or a DNS answer
// would otherwise use egress, the only process with a network, to reach the machine itself, its neighbours or a
// cloud's metadata service (SSRF, DNS rebinding). So a name is brought into one form, resolved once, every answer is
// judged after unwrapping its disguises, and the very address that was judged is dialled and judged again at connect.
// Names are never trusted.
package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrHost is wrapped by every refusal of a host, port or URL as written.
var ErrHost = errors.New("host not acceptable")

// Host is a DNS name or an address in the one form that rules, SNI, Host header, DNS and the pool compare: lower case,
// no trailing dot, addresses as netip prints them, IPv4-mapped ones as IPv4. The zero value is no host.
type Host struct {
	name string
	addr netip.Addr
}

// String is the canonical text, IPv6 without brackets.
func (h Host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// Addr is the address, if the host is one; else the zero Addr.
func (h Host) Addr() netip.Addr { return h.addr }

// IsZero says that h is no host.
func (h Host) IsZero() bool { return h.name == "" && !h.addr.IsValid() }

// ParseHost reads a host without port. Names are ASCII (an internationalised name must be in its xn-- form), at most
// 253 bytes, labels 1 to 63 of letters, digits, '-' and '_'. One trailing dot is dropped, two are refused. IPv6 may
// stand in brackets; zones are refused. A name whose last label is a number is an address that somebody else would
// read differently (127.1, 0x7f.1, 2130706433): refused unless it is a dotted quad without leading zeros.
func ParseHost(s string) (Host, error) {
	bad := func(why string) (Host, error) {
		return Host{}, fmt.Errorf("read host %.80q: %s: %w", s, why, ErrHost)
	}
	if strings.HasPrefix(s, "[") || strings.Contains(s, ":") {
		t := s
		if strings.HasPrefix(s, "[") {
			if !strings.HasSuffix(s, "]") {
				return bad("bracket not closed")
			}
			if t = s[1 : len(s)-1]; !strings.Contains(t, ":") {
				return bad("brackets around what is not IPv6")
			}
		}
		a, err := netip.ParseAddr(t)
		if err != nil {
			return bad("not an address")
		}
		if a.Zone() != "" {
			return bad("zone")
		}
		return Host{addr: a.Unmap()}, nil
	}
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > 253 {
		return bad("must have 1 to 253 bytes")
	}
	var b strings.Builder
	b.Grow(len(name))
	start := 0
	for i := 0; i <= len(name); i++ {
		if i == len(name) || name[i] == '.' {
			if n := i - start; n < 1 || n > 63 {
				return bad("each label must have 1 to 63 bytes")
			}
			if name[start] == '-' || name[i-1] == '-' {
				return bad("label begins or ends with '-'")
			}
			start = i + 1
			if i < len(name) {
				b.WriteByte('.')
			}
			continue
		}
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return bad("only ASCII letters, digits, '-', '_' and '.'; write other names in their xn-- form")
		}
		b.WriteByte(c)
	}
	name = b.String()
	last := name[strings.LastIndexByte(name, '.')+1:]
	if isNumber(last) {
		a, err := netip.ParseAddr(name)
		if err != nil || strings.HasSuffix(s, ".") {
			return bad("a number that is not a plain dotted address")
		}
		return Host{addr: a}, nil
	}
	return Host{name: name}, nil
}

// isNumber follows the WHATWG rule for "ends in a number": all digits, or 0x and hex digits.
func isNumber(label string) bool {
	digits := "0123456789"
	if strings.HasPrefix(label, "0x") {
		label, digits = label[2:], "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}

// Authority is a host with its port, the unit a credential is bound to.
type Authority struct {
	Host Host
	Port uint16
}

// String is host:port, IPv6 in brackets.
func (a Authority) String() string {
	if a.Host.addr.Is6() {
		return fmt.Sprintf("[%s]:%d", a.Host, a.Port)
	}
	return fmt.Sprintf("%s:%d", a.Host, a.Port)
}

// Header is the text of a Host or :authority header for https: the port is left out when it is 443.
func (a Authority) Header() string {
	switch s := a.Host.String(); {
	case a.Port != 443:
		return a.String()
	case a.Host.addr.Is6():
		return "[" + s + "]"
	default:
		return s
	}
}

// ParseAuthority reads host or host:port; without a port it is def. Userinfo is refused, as is port 0, a port with a
// sign or leading zero, and an empty one.
func ParseAuthority(s string, def uint16) (Authority, error) {
	host, port := s, ""
	hasPort := false
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port, hasPort = s[:i], s[i+1:], true
		if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
			return Authority{}, fmt.Errorf("read authority %.80q: IPv6 needs brackets here: %w", s, ErrHost)
		}
	}
	h, err := ParseHost(host)
	if err != nil {
		return Authority{}, err
	}
	n := uint32(def)
	if hasPort {
		if n, err = parsePort(port); err != nil {
			return Authority{}, err
		}
	}
	if n == 0 {
		return Authority{}, fmt.Errorf("read authority %.80q: port 0: %w", s, ErrHost)
	}
	return Authority{Host: h, Port: uint16(n)}, nil
}

func parsePort(s string) (uint32, error) {
	var n uint32
	if len(s) < 1 || len(s) > 5 || s[0] == '0' {
		return 0, fmt.Errorf("read port %.10q: must be 1 to 65535: %w", s, ErrHost)
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("read port %.10q: must be 1 to 65535: %w", s, ErrHost)
		}
		n = n*10 + uint32(s[i]-'0')
	}
	if n > 65535 {
		return 0, fmt.Errorf("read port %.10q: must be 1 to 65535: %w", s, ErrHost)
	}
	return n, nil
}
