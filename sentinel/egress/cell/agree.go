// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

// target is where a connection goes: by the address that it was opened to, or by CONNECT.
type target struct {
	host guard.Host // a name, or an address that stands for none; zero for the gate itself
	port uint16
}

func (t target) gate() bool { return t.host.IsZero() }

// targetOf is where a connection goes that was opened to an address.
func targetOf(to netip.AddrPort, name func(netip.Addr) (string, bool)) (target, *wire.Error) {
	a := to.Addr().Unmap()
	switch {
	case a == Gate4 || a == Gate6:
		return target{port: to.Port()}, nil
	case a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "":
		return target{}, wire.Refuse(wire.CodeBadTarget, a.String()+" is no address of another machine", "")
	}
	s := a.String()
	if InPool(a) {
		var ok bool
		if s, ok = name(a); !ok {
			return target{}, wire.Refuse(wire.CodeBadTarget, a.String()+" stands for no name", "look the name up again")
		}
	}
	h, err := guard.ParseHost(s)
	if err != nil {
		return target{}, wire.Refuse(wire.CodeBadTarget, "the name cannot be read", "")
	}
	return target{h, to.Port()}, nil
}

// agreed is what is to become of a connection whose names agree.
type agreed struct {
	to     target
	begins string
	// Of HTTP only.
	page    bool   // it asks the gate itself
	connect bool   // it asks for a tunnel
	rewrite string // the target to write in place of one that is for a proxy
}

// req is what sentinel is asked.
func (a agreed) req() *wire.ConnectReq {
	r := &wire.ConnectReq{Port: a.to.port, Begins: a.begins}
	if a.to.host.Addr().IsValid() {
		r.Addr = a.to.host.String()
	} else {
		r.Name = a.to.host.String()
	}
	return r
}

const nextAsk = "connect to the name that you mean, by its own address"

// agree holds the names that a connection says against each other: the name that its address stands for, the server name
// of TLS, Host, the authority of a target in absolute form. All that are there must be the same, or what was decided for
// one would be used for another (domain fronting). To an address that stands for no name no name may be said: a client that
// has an address from elsewhere, such as a hosts file of its own, would have a name decided and an address reached, or the
// other way round.
func agree(t target, f front) (agreed, *wire.Error) {
	switch f.begins {
	case wire.BeginsTLS:
		if t.gate() {
			return agreed{}, gateOnly()
		}
		if f.hello.Name != "" {
			h, err := guard.ParseHost(f.hello.Name)
			if e := same(t, "the server name of TLS", guard.Authority{Host: h, Port: t.port}, err); e != nil {
				return agreed{}, e
			}
		}
	case wire.BeginsHTTP:
		return agreeHTTP(t, f.http)
	default:
		if t.gate() {
			return agreed{}, gateOnly()
		}
	}
	return agreed{to: t, begins: f.begins}, nil
}

func agreeHTTP(t target, h *httpHead) (agreed, *wire.Error) {
	a := agreed{to: t, begins: wire.BeginsHTTP}
	scheme, rest, absolute := strings.Cut(h.Target, "://")
	switch {
	case h.Method == "CONNECT":
		if !t.gate() {
			return agreed{}, wire.Refuse(wire.CodeBadTarget, "a proxy elsewhere is not reached by CONNECT", nextProxy)
		}
		to, err := guard.ParseAuthority(h.Target, 0)
		if err != nil {
			return agreed{}, wire.Refuse(wire.CodeBadTarget, "CONNECT to what is no host and port", "")
		}
		a.to, a.connect = target{to.Host, to.Port}, true
		if h.Length != 0 {
			return agreed{}, wire.Refuse(wire.CodeUsage, "CONNECT with a body", "")
		}
		if e := toOutside(a.to); e != nil {
			return agreed{}, e
		}
	case strings.HasPrefix(h.Target, "/") || h.Target == "*" && h.Method == "OPTIONS":
		if t.gate() {
			a.page = true
			return a, nil
		}
	case absolute:
		authority, path, _ := strings.Cut(rest, "/")
		to, err := guard.ParseAuthority(authority, 80)
		if !strings.EqualFold(scheme, "http") || err != nil || strings.ContainsAny(authority, "?#") || strings.Contains(path, "#") {
			return agreed{}, wire.Refuse(wire.CodeBadTarget, "the target is no http://HOST/ that can be read in one way only", "")
		}
		if t.gate() {
			a.to, a.rewrite = target{to.Host, to.Port}, "/"+path
			if e := toOutside(a.to); e != nil {
				return agreed{}, e
			}
		} else if e := same(t, "the target", to, nil); e != nil {
			return agreed{}, e
		}
	default:
		return agreed{}, wire.Refuse(wire.CodeUsage, "the target is neither a path nor http://HOST/", "")
	}
	if h.Host != "" {
		said, err := guard.ParseAuthority(h.Host, a.to.port) // without a port some mean the connection's
		if e := same(a.to, "Host", said, err); e != nil {
			return agreed{}, e
		}
	}
	return a, nil
}

// same holds what a client said, if that could be read, against where the connection goes.
func same(t target, what string, said guard.Authority, err error) *wire.Error {
	switch {
	case err != nil:
		return wire.Refuse(wire.CodeBadTarget, what+" is no host that can be read in one way only", nextAsk)
	case said.Host != t.host && t.host.Addr().IsValid():
		return wire.Refuse(wire.CodeBadTarget,
			fmt.Sprintf("the connection was opened to the address %s, and %s is %s", t.host, what, said.Host), nextAsk)
	case said.Host != t.host:
		return wire.Refuse(wire.CodeBadTarget,
			fmt.Sprintf("the connection was opened to %s, and %s is %s", t.host, what, said.Host), nextAsk)
	case said.Port != t.port:
		return wire.Refuse(wire.CodeBadTarget,
			fmt.Sprintf("the connection was opened to port %d, and %s says %d", t.port, what, said.Port), nextAsk)
	}
	return nil
}

// toOutside refuses what a proxy's client may not name.
func toOutside(t target) *wire.Error {
	if a := t.host.Addr(); a.IsValid() && (InPool(a) || a.IsLoopback() || a.IsUnspecified() || a.IsMulticast()) {
		return wire.Refuse(wire.CodeBadTarget, a.String()+" is no address of another machine", "name the host")
	}
	return nil
}

const nextProxy = "connect without a proxy, or name http://198.18.0.1:3128 as the proxy"

func gateOnly() *wire.Error {
	return wire.Refuse(wire.CodeBadTarget, "198.18.0.1 is the gate, and speaks HTTP in the clear", nextProxy)
}
