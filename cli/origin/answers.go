// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// answerWithin bounds one question to a port, in which its daemon may have to start.
const answerWithin = 30 * time.Second

// Answers asks both ports what a browser asks first. It returns what a browser may not like.
func (s *Setup) Answers(c Calls) (notes []string, err error) {
	at := s.Listen
	if at.IsUnspecified() {
		at = loopback
	}
	for _, ask := range []struct {
		port           uint16
		of, head, want string
	}{
		{s.Page, "page", "GET / HTTP/1.1\r\nHost: " + s.PageHost(), "200"},
		// Nobody is signed in.
		{s.API, "approvals", "GET /v1/events HTTP/1.1\r\nHost: " + s.APIHost() + "\r\nOrigin: " + s.PageOrigin(), "401"},
	} {
		addr := netip.AddrPortFrom(at, ask.port).String()
		status, unknown, err := s.status(c, addr, ask.head)
		if err == nil && status != ask.want {
			err = fmt.Errorf("status %s, want %s", status, ask.want)
		}
		if err != nil {
			return nil, wire.Refuse(wire.CodeUnavailable, fmt.Sprintf("%s does not answer on %s: %v", ask.of, addr, err),
				next)
		}
		if unknown != nil && len(notes) == 0 {
			notes = append(notes, fmt.Sprintf("this machine does not trust the certificate (%v); in a browser that does not either there "+
				"are no passkeys", unknown))
		}
	}
	return notes, nil
}

// status is that of one answer. unknown is why the certificate proves nothing here, where it does not.
func (s *Setup) status(c Calls, addr, head string) (status string, unknown, err error) {
	conn, err := c.Dial("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return "", nil, err
	}
	if s.Certificate != "" {
		if conn, unknown, err = s.secure(conn); err != nil {
			return "", nil, err
		}
	}
	if _, err := io.WriteString(conn, head+"\r\nConnection: close\r\n\r\n"); err != nil {
		return "", nil, err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, 4096)).ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	f := strings.Fields(line)
	if len(f) < 2 || !strings.HasPrefix(f[0], "HTTP/1.") {
		return "", nil, errors.New("what answers is not HTTP")
	}
	return f[1], unknown, nil
}

// secure begins TLS. That the certificate is for the host was checked before; whether its issuer is known here is only told.
func (s *Setup) secure(conn net.Conn) (net.Conn, error, error) {
	var unknown error
	t := tls.Client(conn, &tls.Config{ServerName: s.Host, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			o := x509.VerifyOptions{DNSName: s.Host, Intermediates: x509.NewCertPool()}
			for _, more := range cs.PeerCertificates[1:] {
				o.Intermediates.AddCert(more)
			}
			_, unknown = cs.PeerCertificates[0].Verify(o)
			return nil
		}})
	err := t.Handshake() // within the connection's deadline
	return t, unknown, err
}
