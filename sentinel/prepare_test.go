// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// pipe is a transport without descriptors.
type pipe struct{ net.Conn }

func (p pipe) ReadMsg(b []byte) (int, []int, error) { n, err := p.Read(b); return n, nil, err }
func (p pipe) WriteMsg(b []byte, _ []int) error     { _, err := p.Write(b); return err }
func (pipe) CloseFD(int)                            {}

// peerThat is a daemon at the far end of a socket: it greets, and answers each verb as answer says; nil is never.
func peerThat(t *testing.T, answer func(m *wire.Msg) any) *daemon.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				conn := wire.NewConn(pipe{c})
				if conn.Greet() != nil || conn.Meet() != nil {
					return
				}
				for {
					m, _, err := conn.Read()
					if err != nil {
						return
					}
					if a := answer(m); a != nil {
						body, _ := wire.Marshal(a)
						_ = conn.Write(&wire.Msg{ID: m.ID, Body: body})
					}
				}
			}()
		}
	}()
	c := &daemon.Client{Path: path, Name: "peer", Log: discard()}
	t.Cleanup(c.Close)
	return c
}

// A worker that hangs does not hold a decision up for ever, and leaves nothing behind.
func TestADecisionDoesNotWaitForAWorkerThatHangs(t *testing.T) {
	waits := [2]time.Duration{baseFor, prepareFor}
	baseFor, prepareFor = 100*time.Millisecond, 100*time.Millisecond
	t.Cleanup(func() { baseFor, prepareFor = waits[0], waits[1] })
	for _, base := range []string{"", "items"} {
		s := newSentinel(t)
		d := demo()
		d.Methods = append(d.Methods, describe.Method{Name: "update", Summary: "change a thing", Class: describe.Write,
			Reach: describe.ReachPeople, Prepare: &describe.Prepare{Kind: "icalendar", Base: base},
			Entries: []describe.Entry{{Name: "it", Method: "PUT", Path: "{base}/it", Credential: true,
				Body: &describe.Body{Media: "text/calendar", Prepared: true}}}})
		if _, err := d.Seal(); err != nil {
			t.Fatal(err)
		}
		s.vendors["demo"], s.sorted = d, []*describe.Connector{d}
		s.usePolicy(t, unasked, "")
		asked := make(chan string, 8)
		s.workers["demo"] = peerThat(t, func(m *wire.Msg) any { asked <- m.Verb; return nil })
		s.authd = peerThat(t, func(m *wire.Msg) any {
			if m.Verb == "revoke" {
				return &wire.RevokeResp{}
			}
			return &wire.Empty{}
		})
		began := time.Now()
		r, err := s.decide(t.Context(), &daemon.Call{Peer: cell("work", "s1")}, &wire.DecideReq{Frame: *s.call("update")})
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != wire.Deny || r.Err.Code != wire.CodeUnavailable || !strings.Contains(r.Err.Reason, "in time") ||
			!strings.Contains(r.Err.Next, "try again later") {
			t.Errorf("base %q: %+v", base, r)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("base %q: it took %s", base, took)
		}
		if verb := <-asked; verb != map[string]string{"": "prepare", "items": "execute"}[base] {
			t.Errorf("base %q: the worker was asked to %s", base, verb)
		}
		if w := s.ledger.Waiting(); len(w) != 0 {
			t.Errorf("base %q: it left %+v", base, w)
		}
		if c, err := s.ledger.Call(t.Context(), r.Call); err != nil || c.State != ledger.Denied {
			t.Errorf("base %q: the record has %s, %v", base, c.State, err)
		}
		s.mu.Lock()
		if len(s.live) != 0 {
			t.Errorf("base %q: %d calls still live", base, len(s.live))
		}
		s.mu.Unlock()
	}
}
