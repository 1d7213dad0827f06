// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// Bounds of the resolver.
const (
	answerTTL    = 1                // seconds: an address outlives it, but a client that keeps answers must ask again
	maxQuestion  = 4096             // bytes; one question of 255 bytes and its options are far below
	maxAnswer    = 512              // bytes; every answer of ours is shorter, so none is ever truncated
	dnsTCPIdle   = 10 * time.Second // without a question on a connection
	ednsUDPBytes = 1232             // what we say that we take by UDP
)

// lookup gives the addresses that stand for a name.
type lookup func(guard.Host) (v4, v6 netip.Addr, err error)

// answer makes the answer to one DNS message (RFC 1035), or nil where there is none to give: to what is an answer itself,
// or too short to have an id. Nothing is ever asked of anybody else, so a name carries nothing out.
//
// A and AAAA get the addresses that stand for the name. All other types, and all that is no host name, get an empty answer
// and never "no such name", which resolvers would keep for all types. Among them are HTTPS and SVCB (RFC 9460): without
// them a client speaks neither QUIC nor Encrypted ClientHello.
func answer(msg []byte, of lookup) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response || len(msg) > maxQuestion {
		return nil
	}
	out := dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired,
		RecursionAvailable: true, CheckingDisabled: h.CheckingDisabled}
	if h.OpCode != 0 {
		out.RCode = dnsmessage.RCodeNotImplemented
		return build(out, nil, false, nil)
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 || h.Truncated {
		out.RCode = dnsmessage.RCodeFormatError
		return build(out, nil, false, nil)
	}
	q := questions[0]
	edns, err := hasOPT(&p)
	if err != nil {
		out.RCode = dnsmessage.RCodeFormatError
		return build(out, &q, false, nil)
	}
	name, err := guard.ParseHost(q.Name.String())
	if q.Class != dnsmessage.ClassINET || (q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeAAAA) || err != nil ||
		name.Addr().IsValid() {
		return build(out, &q, edns, nil)
	}
	var v4, v6 netip.Addr
	if s := name.String(); s == "localhost" || strings.HasSuffix(s, ".localhost") { // RFC 6761 6.3
		v4, v6 = netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	} else if v4, v6, err = of(name); err != nil {
		out.RCode = dnsmessage.RCodeServerFailure
		return build(out, &q, edns, nil)
	}
	var body dnsmessage.ResourceBody
	if q.Type == dnsmessage.TypeA {
		body = &dnsmessage.AResource{A: v4.As4()}
	} else {
		body = &dnsmessage.AAAAResource{AAAA: v6.As16()}
	}
	return build(out, &q, edns, body)
}

// hasOPT says whether the question speaks EDNS (RFC 6891). Records that no question has are an error.
func hasOPT(p *dnsmessage.Parser) (bool, error) {
	if err := p.SkipAllAnswers(); err != nil {
		return false, err
	}
	if err := p.SkipAllAuthorities(); err != nil {
		return false, err
	}
	edns := false
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return edns, nil
		}
		if err != nil {
			return false, err
		}
		edns = edns || h.Type == dnsmessage.TypeOPT
		if err := p.SkipAdditional(); err != nil {
			return false, err
		}
	}
}

// build writes an answer; nil where it cannot be written, which is a name that the library reads and does not write.
func build(h dnsmessage.Header, q *dnsmessage.Question, edns bool, body dnsmessage.ResourceBody) []byte {
	m := dnsmessage.Message{Header: h}
	if q != nil {
		m.Questions = []dnsmessage.Question{*q}
	}
	if body != nil {
		m.Answers = []dnsmessage.Resource{{Body: body,
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: answerTTL}}}
	}
	if edns {
		var rh dnsmessage.ResourceHeader
		if rh.SetEDNS0(ednsUDPBytes, dnsmessage.RCodeSuccess, false) == nil {
			m.Additionals = []dnsmessage.Resource{{Header: rh, Body: &dnsmessage.OPTResource{}}}
		}
	}
	b, err := m.AppendPack(make([]byte, 0, maxAnswer))
	if err != nil {
		return nil
	}
	return b
}

// serveUDP answers what comes on the cell's socket until ctx ends; it is a task for Process.Run. The socket is bound to
// every address, and a client takes only what comes from the address it asked: so the kernel's word on that address
// (IPV6_PKTINFO, ipv6(7); for IPv4 it is a mapped one) goes back with the answer. For IPv6 a local route does not make an
// address one that may be sent from; IPV6_FREEBIND does (ip(7), Linux 4.15).
func (s *Server) serveUDP(ctx context.Context) error {
	raw, err := s.DNS.SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1))
		})
		err = errors.Join(err, cerr)
	}
	if err != nil {
		return fmt.Errorf("have the kernel say which address a DNS question is for: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.DNS.Close() })
	defer stop()
	buf, oob := make([]byte, maxQuestion+1), make([]byte, 128)
	for {
		n, on, flags, from, err := s.DNS.ReadMsgUDPAddrPort(buf, oob)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("read DNS questions: %w", err)
		case err != nil: // such as an ICMP answer to an earlier answer
			time.Sleep(time.Millisecond)
			continue
		case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
			continue
		}
		if out := answer(buf[:n], s.addrOf); out != nil {
			_, _, _ = s.DNS.WriteMsgUDPAddrPort(out, oob[:on], from)
		}
	}
}

// serveDNS answers questions on a connection that the cell opened to port 53 of any address (RFC 7766).
func (s *Server) serveDNS(c net.Conn) {
	buf := make([]byte, maxQuestion)
	for {
		_ = c.SetDeadline(time.Now().Add(dnsTCPIdle))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > len(buf) {
			return
		}
		if _, err := io.ReadFull(c, buf[:n]); err != nil {
			return
		}
		out := answer(buf[:n], s.addrOf)
		if out == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}

// addrOf is the lookup of this cell. Who asks for names without end may be trying to say something by them.
func (s *Server) addrOf(name guard.Host) (v4, v6 netip.Addr, err error) {
	if v4, v6, err = s.Names.Of(name); err != nil {
		s.warn("a name gets no address", daemon.KeyErr, err.Error())
		s.refusedHere(name.String(), wire.Refuse(wire.CodeTooMany, err.Error(), ""))
	}
	return v4, v6, err
}
