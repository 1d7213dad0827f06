// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

// maxMissed bounds the cuts that a connection remembers while it is decided; at the bound it is cut itself.
const maxMissed = 64

// conn is one connection of the cell.
type conn struct {
	s      *Server
	ctx    context.Context // ends with it
	cancel context.CancelFunc
	down   *net.TCPConn
	task   wire.Task    // who opened it
	src    source       // reads down, until its bytes go on untouched
	waits  atomic.Bool  // for the answer to an intercepted request of HTTP/1
	gone   atomic.Bool  // its client was seen to be while it waited
	last   atomic.Int64 // when a byte came last, either way; nanoseconds since 1970

	mu      sync.Mutex   // guards what follows
	up      *net.TCPConn // nil while there is none
	off     bool         // was cut
	decided bool         // by sentinel; ids are then of the decision and its grant
	ids     [2]string
	missed  []string // ids that were cut before
	// Of its requests, where it is intercepted.
	asking int            // being decided
	live   map[string]int // ids by which requests go on, and of how many
}

func (k *conn) touch()                           { k.last.Store(time.Now().UnixNano()) }
func (k *conn) idle(now time.Time) time.Duration { return now.Sub(time.Unix(0, k.last.Load())) }

// cut ends it from outside: whatever waits in it fails.
func (k *conn) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.off = true
	k.cancel()
	reset(k.down)
	reset(k.up)
}

// leave ends it where its client has gone.
func (k *conn) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone.Store(true)
	reset(k.down)
	reset(k.up)
}

// uses gives it the connection to a server, or with nil takes it back. It is false where it was cut.
func (k *conn) uses(up *net.TCPConn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.up = up
	return !k.off
}

// under says by which decision it goes on. It is false where that has been cut meanwhile.
func (k *conn) under(ids ...string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.decided = true
	copy(k.ids[:], ids)
	for _, id := range k.missed {
		k.off = k.off || slices.Contains(ids, id)
	}
	k.missed = nil
	return !k.off
}

// has says whether it goes on by that decision or grant. Where sentinel's answer is still on its way, the id is kept for it.
func (k *conn) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if (!k.decided || k.asking > 0) && len(k.missed) < maxMissed {
		k.missed = append(k.missed, id)
	}
	return k.decided && slices.Contains(k.ids[:], id) || k.live[id] > 0 || len(k.missed) == maxMissed
}

// asks is before sentinel is asked for one of its requests, goes after: by what ids that goes on, none where it does not. It is
// false where one of them, or the connection, has been cut meanwhile. ended takes the ids back.
func (k *conn) asks() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asking++
}

func (k *conn) goes(ids []string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.live == nil {
		k.live = map[string]int{}
	}
	ok := !k.off
	for _, id := range ids {
		k.live[id]++
		ok = ok && !slices.Contains(k.missed, id)
	}
	if k.asking--; k.asking == 0 {
		k.missed = nil
	}
	return ok
}

func (k *conn) ended(ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if k.live[id]--; k.live[id] <= 0 {
			delete(k.live, id)
		}
	}
}

// undecided is before sentinel is asked again.
func (k *conn) undecided() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.decided, k.ids = false, [2]string{}
}

func (k *conn) isCut() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.off
}

// serve is its whole life.
func (k *conn) serve() {
	defer k.s.over(k)
	defer k.down.Close()
	local, ok := k.down.LocalAddr().(*net.TCPAddr)
	if !ok {
		return
	}
	if local.Port == 53 {
		k.s.serveDNS(k.down)
		return
	}
	k.src.used = k.touch
	var err error
	if k.task, err = k.s.Opener(k.down); err != nil { // now: others' connections may push it out of the kernel's table
		k.s.warn("nobody knows who opened a connection", daemon.KeyErr, err.Error())
	}
	t, refusal := targetOf(local.AddrPort(), k.s.Names.Name)
	to := t.String()
	if refusal != nil {
		to = netip.AddrPortFrom(local.AddrPort().Addr().Unmap(), uint16(local.Port)).String()
	}
	for wait := false; ; {
		f, err := k.src.front(wait)
		if err != nil {
			k.unread(to, err)
			return
		}
		var a agreed
		if refusal == nil {
			a, refusal = agree(t, f)
		}
		switch {
		case refusal != nil:
			k.s.refusedHere(to, refusal)
			k.refuse(to, f, refusal)
			return
		case a.page:
			finish(k.down, httpAnswer(200, k.s.refused.newest(), "", f.http.Method == "HEAD"))
			return
		case a.connect:
			k.src.take(f.http.size)
			if _, err := k.down.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
				return
			}
			t, to = a.to, a.to.String()
			continue
		}
		if !k.reach(t, a, f) {
			return
		}
		wait = true
	}
}

// reach has the connection decided, dials, and carries. It is true where the client goes on with a request that has to be
// decided anew.
func (k *conn) reach(t target, a agreed, f front) (again bool) {
	req := a.req()
	req.Task = k.task
	k.undecided()
	resp, refusal := k.ask(req)
	if refusal != nil {
		k.refuse(a.to.String(), f, refusal)
		return false
	}
	sent := wire.SentReq{Conn: resp.ID, Host: a.to.host.String()}
	site := a.to.String()
	k.s.Names.Allow(resp.Budget)
	if e := k.s.budget.open(site, resp.Budget); e != nil {
		sent.Err = e
		k.s.Report(sent)
		k.refuse(site, f, e)
		return false
	}
	defer k.s.budget.close(site)
	if resp.How == wire.HowIntercept {
		return k.intercept(t, a, f, resp)
	}
	if f.http != nil {
		sent.Method = f.http.Method
	}
	up, refusal := k.dial(a.to, resp)
	if refusal != nil {
		sent.Err = refusal
		k.s.Report(sent)
		k.refuse(a.to.String(), f, refusal)
		return false
	}
	c := carriage{k: k, up: up, site: site}
	var err error
	if f.http != nil {
		again, err = c.requests(t, a, f.http)
	} else {
		err = c.splice()
	}
	k.uses(nil)
	sent.Out, sent.In = c.out.Load(), c.in.Load()
	sent.Left, sent.Complete = sent.Out > 0, err == nil
	if err != nil {
		c.abort(up)
	}
	switch {
	case k.isCut():
		sent.Err = wire.Refuse(wire.CodeRevoked, "the connection was cut", "")
	case c.spent.Load() != nil:
		sent.Err = c.spent.Load()
	case c.broken:
		sent.Err = wire.Refuse(wire.CodeVendorDown, "the connection ended before its end", "")
	}
	k.s.Report(sent)
	_ = up.Close()
	return again && err == nil
}

// ask asks sentinel. Whatever is no clear yes to what can be done here is a refusal.
func (k *conn) ask(req *wire.ConnectReq) (*wire.ConnectResp, *wire.Error) {
	if k.s.Full() {
		return nil, wire.Refuse(wire.CodeUnavailable, "sentinel is behind with what it was told", "try again")
	}
	ctx, cancel := context.WithTimeout(k.ctx, askTime)
	defer cancel()
	resp, err := k.s.Ask(ctx, req)
	var refusal *wire.Error
	switch {
	case errors.As(err, &refusal):
		return nil, refusal
	case err != nil:
		k.s.warn("sentinel was asked and did not answer", daemon.KeyErr, err.Error())
		return nil, wire.Refuse(wire.CodeUnavailable, "sentinel gave no answer", "try again")
	case resp == nil || resp.ID == "":
		return nil, wire.Refuse(wire.CodeInternal, "sentinel's answer cannot be used", "")
	case resp.How == wire.HowIntercept && (!k.s.Facts.whole() || k.s.Request == nil || k.s.Resolve == nil || k.s.CA == nil ||
		req.Begins == wire.BeginsOther):
		e := wire.Refuse(wire.CodeNotAllowed, "this site's requests have to be read, and these cannot be", "use https")
		k.s.Report(wire.SentReq{Conn: resp.ID, Host: req.Name + req.Addr, Err: e})
		return nil, e
	case resp.How != wire.HowSplice && resp.How != wire.HowIntercept:
		e := wire.Refuse(wire.CodeInternal, "sentinel's answer cannot be used", "")
		k.s.Report(wire.SentReq{Conn: resp.ID, Host: req.Name + req.Addr, Err: e})
		return nil, e
	case !k.under(resp.ID, resp.Under):
		e := wire.Refuse(wire.CodeRevoked, "the connection was cut", "")
		k.s.Report(wire.SentReq{Conn: resp.ID, Host: req.Name + req.Addr, Err: e})
		return nil, e
	}
	return resp, nil
}

// dial connects to what was allowed, under the guard.
func (k *conn) dial(t target, resp *wire.ConnectResp) (*net.TCPConn, *wire.Error) {
	permits, err := permitted(resp)
	if err != nil {
		return nil, wire.Refuse(wire.CodeInternal, "sentinel's answer cannot be used", "")
	}
	c, err := k.s.Dialer.Dial(k.ctx, guard.Authority{Host: t.host, Port: t.port}, permits)
	if err != nil {
		k.s.warn("a server was not reached", daemon.KeyErr, err.Error())
		var unknown *net.DNSError
		switch {
		case errors.Is(err, guard.ErrRefused):
			return nil, wire.Refuse(wire.CodeNotAllowed, t.host.String()+" has an address that must not be reached from here",
				"the person permits a server on a private network with its address: doorward surrogate add "+
					"--permit IP:PORT, or permit of the site in policy.toml")
		case errors.As(err, &unknown) && unknown.IsNotFound:
			return nil, wire.Refuse(wire.CodeVendorDown, "there is no host "+t.host.String(), "")
		}
		return nil, wire.Refuse(wire.CodeVendorDown, t.String()+" cannot be reached", "try again later")
	}
	up, ok := c.(*net.TCPConn)
	if !ok || !k.uses(up) {
		_ = c.Close()
		return nil, wire.Refuse(wire.CodeRevoked, "the connection was cut", "")
	}
	return up, nil
}

// permitted are the addresses that are not public and yet may be dialled for this connection.
func permitted(resp *wire.ConnectResp) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, s := range resp.Permit {
		p, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, fmt.Errorf("read what is permitted: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// refuse ends the connection with the reason.
func (k *conn) refuse(to string, f front, e *wire.Error) {
	k.s.refused.add(to, e)
	k.s.warn("refused a connection", "to", to, daemon.KeyReason, e.Error())
	method := ""
	if f.http != nil {
		method = f.http.Method
	}
	say(k.down, f.begins, method, e)
}

// unread ends a connection of which it never became clear what it is.
func (k *conn) unread(to string, err error) {
	if errors.Is(err, io.EOF) || k.isCut() {
		return
	}
	begins, e := "", wire.Refuse(wire.CodeUsage, err.Error(), "")
	switch {
	case errors.Is(err, errHello):
		begins = wire.BeginsTLS
	case errors.Is(err, errHTTP):
		begins = wire.BeginsHTTP
	case errors.Is(err, errTooLarge):
		e.Code = wire.CodeTooLarge
	case errors.Is(err, errSilent):
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.Reason = "the connection ended in its beginning"
	default: // the client is gone
		return
	}
	if begins == "" && isTLS(k.src.b) {
		begins = wire.BeginsTLS
	} else if begins == "" && isHTTP(k.src.b) == httpYes {
		begins = wire.BeginsHTTP
	}
	k.s.refusedHere(to, e)
	k.refuse(to, front{begins: begins}, e)
}

func (t target) String() string {
	if t.gate() {
		return "198.18.0.1"
	}
	return guard.Authority{Host: t.host, Port: t.port}.String()
}
