// SPDX-License-Identifier: Apache-2.0

// Package approvals carries what a person's browser asks to sentinel and the answer back, unread, and decides nothing. It keeps no state
// but what each browser's cookie is, and that in the browser. Only the page's own origin is answered, so a foreign site that a person
// visits cannot ask in the person's name; whoever asks without a session gets as far as a passkey's challenge.
//
// It reads what strangers send, so count on it being taken over. Then it sees what the sessions that pass through it may see, can
// withhold and delay, and can narrow: deny, revoke and stop as far as a session may. It cannot approve: what runs is what a passkey
// signed, and the script computes what that is. It cannot say anything either: sentinel signs what it answers, over the question too,
// and the script takes nothing that it has not signed.
package approvals

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// Bounds. Sentinel runs 64 handlers of one connection at once, so what waits for events has a connection of its own.
const (
	maxBody     = 1 << 20          // bytes of a request
	smallBody   = 16 << 10         // bytes, up to which a request is read before it takes a place
	maxLarge    = 4                // larger ones that are read at once
	maxAsked    = 32               // requests in work at once
	maxStrange  = maxAsked / 2     // of these, on connections of which no session is known
	maxStreams  = 32               // that wait for events at once
	askTimeout  = 25 * time.Second // for sentinel
	turnTimeout = 5 * time.Second  // for a place
	pollTimeout = time.Minute      // for events
	sendTimeout = 10 * time.Second // for a browser to take some events
	streamEnds  = time.Hour        // after which a browser connects again
	maxCookie   = 12 * time.Hour   // a session's longest
	preflight   = 2 * time.Hour    // that a browser may remember what it may ask; browsers have less of their own
)

// memoryGoal, in bytes, is below MemoryMax= of the unit: with all connections in use the collector works, and the kernel does not.
const memoryGoal = 384 << 20

// Headers of a request's nonce and of an answer's signature, in base64.
const (
	nonceHeader     = "Doorward-Nonce"
	signatureHeader = "Doorward-Signature"
)

// sessionSize is that of a session in bytes.
const sessionSize = 32

// Run is the daemon.
func Run(ctx context.Context, p *daemon.Process) error {
	if len(p.Args) > 0 {
		return fmt.Errorf("read the arguments %q: want none", p.Args)
	}
	place, err := approver.Load(p.Dirs.Config)
	if err != nil {
		return err
	}
	ln, err := p.Listener("approvals-page")
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(memoryGoal)
	sentinel := &daemon.Client{Path: wire.PathSentinelWeb, Name: "sentinel", Log: p.Log}
	events := &daemon.Client{Path: wire.PathSentinelWeb, Name: "sentinel", Log: p.Log}
	browsers := front.NewBounded(NewCarried(ln, p.Log), front.Conns, front.OfAddress)
	s := &front.Server{Listener: browsers, Handler: New(place, sentinel, events, p.Log), Log: p.Log}
	return p.Run(ctx, s.Serve, sentinel.Run, events.Run)
}

// Server is the handler.
type Server struct {
	host, origin string // of this API, and of the page
	cookie       string // name
	secure       bool
	sentinel     *daemon.Client
	events       *daemon.Client // for what waits
	log          *slog.Logger

	asked, strange, large, streams chan struct{} // places
	foreign                        atomic.Int64  // when one was last told of, seconds
}

// New makes the handler for a place.
func New(place *approver.Place, sentinel, events *daemon.Client, log *slog.Logger) *Server {
	s := &Server{host: place.APIHost(), origin: place.PageOrigin(), cookie: "doorward", secure: place.Certificate != "",
		sentinel: sentinel, events: events, log: log,
		asked: make(chan struct{}, maxAsked), strange: make(chan struct{}, maxStrange),
		large: make(chan struct{}, maxLarge), streams: make(chan struct{}, maxStreams)}
	if s.secure { // browsers hold a cookie of such a name to Secure, Path=/ and this host alone
		s.cookie = "__Host-doorward"
	}
	return s
}

// ServeHTTP answers what the page may ask: POST of a verb, GET of events, and a browser's question whether it may (OPTIONS).
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	front.Safe(h, "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Origin")
	if r.Host != s.host { // a name that somebody else made point here
		s.stranger(r, "asked as another host")
		h.Set("Connection", "close")
		refuse(w, http.StatusMisdirectedRequest, wire.Refuse(wire.CodeNotAllowed, "this is not "+quote(r.Host), "ask "+s.host))
		return
	}
	if o := r.Header.Values("Origin"); len(o) != 1 || o[0] != s.origin {
		s.stranger(r, "asked from another origin")
		h.Set("Connection", "close")
		refuse(w, http.StatusForbidden, wire.Refuse(wire.CodeNotAllowed, "only the page at "+s.origin+" may ask", "open the page"))
		return
	}
	h.Set("Access-Control-Allow-Origin", s.origin)
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Set("Access-Control-Expose-Headers", signatureHeader)

	path, query, _ := strings.Cut(r.RequestURI, "?")
	name := strings.TrimPrefix(path, "/v1/")
	allow := http.MethodPost
	if path == "/v1/events" {
		allow = http.MethodGet
	} else if path == name || query != "" || !known(name) {
		refuse(w, http.StatusNotFound, wire.Refuse(wire.CodeUsage, "there is no "+quote(path), "docs/protocol.md lists what there is"))
		return
	}
	switch {
	case r.Method == http.MethodOptions:
		h.Set("Access-Control-Allow-Methods", allow)
		h.Set("Access-Control-Allow-Headers", "Content-Type, "+nonceHeader)
		h.Set("Access-Control-Max-Age", strconv.Itoa(int(preflight/time.Second)))
		w.WriteHeader(http.StatusNoContent)
	case r.Method != allow:
		h.Set("Allow", allow+", OPTIONS")
		refuse(w, http.StatusMethodNotAllowed, wire.Refuse(wire.CodeUsage, path+" takes "+allow+" only", ""))
	case name == "events":
		s.stream(w, r, query)
	default:
		s.ask(w, r, name)
	}
}

// ask answers one POST.
func (s *Server) ask(w http.ResponseWriter, r *http.Request, name string) {
	if t := r.Header.Values("Content-Type"); len(t) != 1 || t[0] != "application/json" {
		// A form of another site can send other types without a question before.
		refuse(w, http.StatusUnsupportedMediaType, wire.Refuse(wire.CodeUsage, "the body has to be application/json", ""))
		return
	}
	if r.Header.Get("Content-Encoding") != "" {
		refuse(w, http.StatusUnsupportedMediaType, wire.Refuse(wire.CodeUsage, "the body must not be compressed", ""))
		return
	}
	nonce, err := base64.StdEncoding.Strict().DecodeString(r.Header.Get(nonceHeader))
	if err != nil || len(nonce) != wire.WebNonce || len(r.Header.Values(nonceHeader)) != 1 {
		refuse(w, http.StatusBadRequest, wire.Refuse(wire.CodeUsage, nonceHeader+" has to be 32 bytes in base64",
			"docs/protocol.md says what they are for"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	session, open := s.session(r), slices.Contains(strangers, name)
	if name == "logout" {
		s.setSession(w, nil, 0) // whatever sentinel says
	}
	if session == nil && !open { // before a byte of the body is waited for
		refuse(w, http.StatusUnauthorized, signIn)
		return
	}
	body, e := s.body(ctx, w, r, session)
	if e != nil {
		refuse(w, status(e.Code), e)
		return
	}
	leave, ok := s.turn(ctx)
	if !ok {
		refuse(w, http.StatusTooManyRequests, busy)
		return
	}
	defer leave()
	var resp wire.WebResp
	if err := s.sentinel.Call(ctx, name, &wire.WebReq{Session: session, Nonce: nonce, Body: body}, &resp); err != nil {
		s.fail(w, name, err)
		return
	}
	if resp.Code == "" && !open || len(resp.Session) > 0 {
		front.Keep(front.Conn(ctx))
	}
	if len(resp.Session) > 0 {
		if len(resp.Session) != sessionSize {
			s.fail(w, name, fmt.Errorf("sentinel's session has %d bytes", len(resp.Session)))
			return
		}
		s.setSession(w, resp.Session, time.Until(time.Unix(resp.Until, 0)))
	}
	w.Header().Set(signatureHeader, base64.StdEncoding.EncodeToString(resp.Signature))
	code := http.StatusOK
	if resp.Code != "" {
		code = status(resp.Code)
	}
	answer(w, code, resp.Body)
}

// body reads a request. Who sends one slowly holds up nobody: a small one needs no place until it is whole, and for the few large
// ones there are few places, which only other large ones of somebody with a session want.
func (s *Server) body(ctx context.Context, w http.ResponseWriter, r *http.Request, session []byte) ([]byte, *wire.Error) {
	most := int64(smallBody)
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		if e := s.knows(ctx, session); e != nil {
			return nil, e
		}
		if !take(ctx, s.large, turnTimeout) {
			return nil, busy
		}
		defer func() { <-s.large }()
		most = maxBody
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, wire.Refuse(wire.CodeTooLarge, fmt.Sprintf("a request has at most %d bytes", maxBody), "decide fewer at once")
	case err != nil:
		return nil, wire.Refuse(wire.CodeUsage, "the body did not come whole", "try again")
	}
	return b, nil
}

var (
	signIn = wire.Refuse(wire.CodeNoSession, "nobody is signed in here", "sign in with your passkey")
	busy   = wire.Refuse(wire.CodeTooMany, "too much is asked at once", "try again in a moment")
	failed = wire.Refuse(wire.CodeInternal, "Doorward failed at this", "the journal says more: journalctl -u doorward-approvals")
)

// take takes a place, waiting for it at most so long.
func take(ctx context.Context, places chan struct{}, wait time.Duration) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case places <- struct{}{}:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// session is what the cookie has, nil where there is none or more than one.
func (s *Server) session(r *http.Request) []byte {
	c := r.CookiesNamed(s.cookie)
	if len(c) != 1 {
		return nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(c[0].Value)
	if err != nil || len(b) != sessionSize {
		return nil
	}
	return b
}

// setSession sets the cookie for so long, or without a session takes it away.
func (s *Server) setSession(w http.ResponseWriter, session []byte, lasts time.Duration) {
	c := &http.Cookie{Name: s.cookie, Path: "/", Secure: s.secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Value: base64.RawURLEncoding.EncodeToString(session), MaxAge: int(min(lasts, maxCookie) / time.Second)}
	if c.MaxAge <= 0 {
		c.Value, c.MaxAge = "", -1
	}
	http.SetCookie(w, c)
}

// fail answers where sentinel did not. Whatever is no refusal is logged, and the browser is told that it went wrong.
func (s *Server) fail(w http.ResponseWriter, name string, err error) {
	var e *wire.Error
	switch {
	case errors.As(err, &e):
	case errors.Is(err, wire.ErrTooLarge):
		e = wire.Refuse(wire.CodeTooLarge, "that is more than can be decided at once", "decide fewer at once")
	default:
		s.log.Error("a request failed", daemon.KeyVerb, name, daemon.KeyErr, err.Error())
		e = failed
	}
	refuse(w, status(e.Code), e)
}

// stranger says that somebody asked who is not the page: a site that the person has open, or a program that found the port.
func (s *Server) stranger(r *http.Request, why string) {
	now := time.Now().Unix()
	last := s.foreign.Load()
	if now-last < 10 || !s.foreign.CompareAndSwap(last, now) {
		return
	}
	s.log.Warn("refused a request", daemon.KeyReason, why, "host", quote(r.Host), "origin", quote(r.Header.Get("Origin")),
		"from", r.RemoteAddr)
}

// quote is a stranger's word, short and with nothing in it that could pass for ours.
func quote(s string) string {
	if len(s) > 64 {
		s = s[:64]
	}
	return strconv.QuoteToASCII(s)
}
