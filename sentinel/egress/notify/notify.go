// SPDX-License-Identifier: Apache-2.0

// Package notify posts notices to where people are told: a push service, an ntfy server, a webhook. Where that is was said by root, or
// by a browser that an approver signed in with, so every dial goes through package guard: who can choose the address must not reach
// this machine, its neighbours or a cloud's metadata by it. What the server answers beside its status is of no use to anybody, and is
// not read.
package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

const (
	within   = 20 * time.Second // look-up, connection, handshake and the answer's head together
	most     = 8                // at a time
	maxHead  = 16 << 10         // bytes of an answer's head
	maxRetry = 3600             // seconds
)

// Sender is the verb notify. Dialer is set before the first notice.
type Sender struct {
	Dialer *guard.Dialer

	sending chan struct{} // a place for each that is under way
}

// New makes a Sender.
func New(d *guard.Dialer) *Sender { return &Sender{Dialer: d, sending: make(chan struct{}, most)} }

// Notify posts one notice, once. An error says that there was no answer; whether the server has the notice is then not known.
func (s *Sender) Notify(ctx context.Context, _ *daemon.Call, req *wire.NotifyReq) (*wire.NotifyResp, error) {
	select {
	case s.sending <- struct{}{}:
		defer func() { <-s.sending }()
	default:
		return nil, wire.Refuse(wire.CodeTooMany, "too many notices at once", "try again later")
	}
	r, err := s.post(ctx, req)
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, guard.ErrRefused), errors.Is(err, guard.ErrHost), errors.Is(err, errNotice):
		return nil, wire.Refuse(wire.CodeNotAllowed, err.Error(), "if the server is your own, add the channel again with --permit IP:PORT")
	}
	return nil, wire.Refuse(wire.CodeUnavailable, err.Error(), "")
}

// errNotice marks a request that is no notice.
var errNotice = errors.New("no notice")

func (s *Sender) post(ctx context.Context, req *wire.NotifyReq) (*wire.NotifyResp, error) {
	to, err := guard.ParseURL(req.URL)
	if err != nil {
		return nil, err
	}
	if len(req.Body) > wire.MaxNotice {
		return nil, fmt.Errorf("post to %s: a body of %d bytes, at most %d: %w", to.Authority, len(req.Body), wire.MaxNotice, errNotice)
	}
	head, err := header(req.Header)
	if err != nil {
		return nil, fmt.Errorf("post to %s: %w", to.Authority, err)
	}
	permits, err := permits(req.Permit)
	if err != nil {
		return nil, fmt.Errorf("post to %s: %w", to.Authority, err)
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: to.Host.String()}
	if len(req.CA) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(req.CA) {
			return nil, fmt.Errorf("post to %s: no certificate in the channel's CA: %w", to.Authority, errNotice)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.Dialer.Dial(ctx, to.Authority, permits)
		},
		TLSClientConfig: trust, ForceAttemptHTTP2: true, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHead,
	}
	defer t.CloseIdleConnections()
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(req.Body))
	if err != nil {
		return nil, fmt.Errorf("post to %s: %w: %w", to.Authority, err, errNotice)
	}
	hr.Header = head
	hr.GetBody = nil // a request is never repeated by itself
	resp, err := t.RoundTrip(hr)
	if err != nil {
		return nil, fmt.Errorf("post to %s: %w", to.Authority, err)
	}
	_ = resp.Body.Close()
	return &wire.NotifyResp{Status: resp.StatusCode, Retry: retry(resp.Header.Get("Retry-After"))}, nil
}

// header takes the headers of a notice, and none that say how a message is framed, or to whom it goes.
func header(list []wire.NoticeHeader) (http.Header, error) {
	h := http.Header{"User-Agent": {"doorward"}}
	for _, f := range list {
		name := strings.ToLower(f.Name)
		if !slices.Contains(wire.NoticeHeaders(), name) || h.Get(name) != "" {
			return nil, fmt.Errorf("header %.40q: %w", f.Name, errNotice)
		}
		if len(f.Value) > 4096 || strings.ContainsFunc(f.Value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, fmt.Errorf("the value of header %s: %w", name, errNotice) // not the value: it may be a token
		}
		h.Set(name, f.Value)
	}
	return h, nil
}

func permits(list []string) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, s := range list {
		p, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, fmt.Errorf("permit %.60q: %w", s, errNotice)
		}
		out = append(out, p)
	}
	return out, nil
}

// retry reads Retry-After where it is a number of seconds (RFC 9110, 10.2.3).
func retry(s string) int64 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0
	}
	return min(int64(n), maxRetry)
}
