// SPDX-License-Identifier: Apache-2.0

// Package front is how page and approvals stand before strangers: HTTP/1.1 and 2, and bounds on everything that a stranger could
// hold on to. Whoever reaches a port may be anybody; what an attacker can do here is read what is the same for all, and, by
// connecting hundreds of times a second, keep others of the same network address from being answered.
package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds.
const (
	maxStreams    = 8 // of one HTTP/2 connection, at once
	maxHeader     = 16 << 10
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second // head and body
	writeTimeout  = time.Minute      // from the request's head to the answer's end
	idleTimeout   = 2 * time.Minute
	pingAfter     = 30 * time.Second // of silence on HTTP/2: a phone that went away says nothing
	lastWords     = 3 * time.Second  // for what is being answered when the daemon stops
)

// Server serves a handler to whoever connects.
type Server struct {
	Listener net.Listener
	TLS      *tls.Config // nil without TLS, or where somebody else ended it; HTTP/2 is then known by how it begins
	Handler  http.Handler
	Log      *slog.Logger
}

// Serve accepts until ctx ends, and with it the contexts of its handlers. It is a task for daemon.Process.Run.
func (s *Server) Serve(ctx context.Context) error {
	srv := &http.Server{
		Handler:                      s.Handler,
		ReadHeaderTimeout:            headerTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(faults{s.Log}, "", 0),
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnContext:                  func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter},
		Protocols:                    new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	serve := func() error { return srv.Serve(s.Listener) }
	if s.TLS != nil {
		srv.Protocols.SetHTTP2(true)
		srv.TLSConfig = s.TLS
		serve = func() error { return srv.ServeTLS(s.Listener, "", "") }
	} else {
		srv.Protocols.SetUnencryptedHTTP2(true)
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		if srv.Shutdown(last) != nil {
			_ = srv.Close()
		}
	})
	defer stop()
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		_ = srv.Close()
		return fmt.Errorf("serve %s: %w", s.Listener.Addr(), err)
	}
	<-over // nothing else ends it in that way
	return nil
}

// Safe sets what every answer has, with the policy of its content.
func Safe(h http.Header, policy string) {
	for k, v := range map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		h.Set(k, v)
	}
}

// faults passes on what of net/http's log is ours to repair. The rest, such as each failed handshake, strangers cause at will.
type faults struct{ log *slog.Logger }

func (f faults) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http: panic")) || bytes.HasPrefix(line, []byte("http: Accept error")) {
		f.log.Error("net/http complains", "err", string(line))
	}
	return len(line), nil
}
