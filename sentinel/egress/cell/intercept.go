// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

// shakeTime is how long a client may take for its part of the handshake with us, the server's among it.
const shakeTime = 30 * time.Second

// replay gives what was read of a connection before once more, and tells of each byte.
type replay struct {
	*net.TCPConn
	k *conn
}

func (r replay) Read(b []byte) (int, error) {
	if src := &r.k.src; len(src.b) > 0 {
		return copy(b, src.take(min(len(b), len(src.b)))), nil
	}
	if r.k.src.err != nil {
		return 0, r.k.src.err
	}
	n, err := r.TCPConn.Read(b)
	if n > 0 {
		r.k.touch()
	}
	return n, err
}

func (r replay) Write(b []byte) (int, error) {
	n, err := r.TCPConn.Write(b)
	if n > 0 {
		r.k.touch()
	}
	return n, err
}

// intercept answers a connection ourselves and judges each of its requests. It is true where the client goes on, in the clear,
// to what has to be decided anew.
func (k *conn) intercept(t target, a agreed, f front, resp *wire.ConnectResp) (again bool) {
	s := &session{k: k, to: a.to, resp: resp, clear: f.begins == wire.BeginsHTTP}
	sent := wire.SentReq{Conn: resp.ID, Host: a.to.host.String()}
	defer func() {
		k.uses(nil)
		sent.Out, sent.In, sent.Left = s.out.Load(), s.in.Load(), s.left.Load()
		sent.Complete = sent.Err == nil && !k.isCut()
		if k.isCut() {
			sent.Err = wire.Refuse(wire.CodeRevoked, "the connection was cut", "")
		}
		k.s.Report(sent)
	}()
	var err error
	if s.permits, err = permitted(resp); err != nil {
		sent.Err = wire.Refuse(wire.CodeInternal, "sentinel's answer cannot be used", "")
		k.refuse(a.to.String(), f, sent.Err)
		return false
	}
	if s.clear {
		x := h1{s: s, down: k.down, src: &k.src, from: t}
		return x.serve(a, f.http)
	}
	c := tls.Server(replay{k.down, k}, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		SessionTicketsDisabled: true, // over a machine's own lo a whole handshake costs less than keeping their state apart
		GetConfigForClient:     s.hello,
	})
	ctx, cancel := context.WithTimeout(k.ctx, shakeTime)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		if sent.Err = untrusted(a.to, err); sent.Err != nil {
			k.s.refused.add(a.to.String(), sent.Err)
		}
		k.s.warn("a client ended the handshake", "to", a.to.String(), daemon.KeyErr, err.Error())
		_ = k.down.Close()
		return false
	}
	cancel()
	if c.ConnectionState().NegotiatedProtocol == protocolH2 {
		s.serveH2(c)
		return false
	}
	x := h1{s: s, down: c, src: &source{c: c, sock: s.k.down}}
	_ = x.serve(agreed{to: a.to, begins: a.begins}, nil)
	_ = c.Close()
	return false
}

// untrusted is a client that does not take the certificate it was shown: it knows the server's own, or nobody gave it the cell's.
func untrusted(to target, err error) *wire.Error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" || !strings.Contains(op.Err.Error(), "certificate") {
		return nil
	}
	return wire.Refuse(wire.CodeVendorRefused,
		"the client refuses interception of "+to.host.String()+": it does not take a certificate of the cell's CA",
		"give the program the cell's CA; for one that takes the server's own certificate only the person has to let the site "+
			"through unread, without a surrogate")
}

// hello chooses how a client is answered: HTTP/2 only if the server speaks it. The server is connected to first where that is not
// known. Why that failed each request is told, in words: an alert would look as if the cell's CA were at fault.
func (s *session) hello(h *tls.ClientHelloInfo) (*tls.Config, error) {
	cert, err := s.k.s.CA.Leaf(s.to.host)
	if err != nil {
		s.k.s.warn("no certificate for the cell", daemon.KeyErr, err.Error())
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true, Certificates: []tls.Certificate{*cert}}
	offered := h.SupportedProtos
	if slices.Contains(offered, protocolH2) && s.speaksH2(h.Context(), slices.Contains(offered, protocolH1)) {
		cfg.NextProtos = []string{protocolH2}
	} else if slices.Contains(offered, protocolH1) || len(offered) == 0 {
		cfg.NextProtos = []string{protocolH1}
	} else {
		cfg.NextProtos = []string{protocolH1} // which is not among those offered: crypto/tls says so
	}
	return cfg, nil
}

// speaksH2 says whether the server does. Where that cannot be known, or the credential's own CA is needed for it, it does not;
// but to a client that knows nothing else the reason can be told in HTTP/2 alone.
func (s *session) speaksH2(ctx context.Context, elseH1 bool) bool {
	to := guard.Authority{Host: s.to.host, Port: s.to.port}
	if h2, known := s.k.s.servers.knows(to); known {
		return h2
	}
	server, err := s.k.s.server(poolKey{to: to}, s.permits, nil)
	if err == nil {
		var h2 bool
		if h2, err = s.k.s.servers.probe(ctx, server); err == nil {
			return h2
		}
	}
	if s.resp.Credential == nil { // else it may be the account that opens the way, and each request tries again
		s.k.s.warn("a server was not reached", daemon.KeyErr, err.Error())
		s.broken = notReached(to, err)
	}
	return !elseH1
}
