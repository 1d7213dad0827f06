// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

func request(method string, status int) wire.SentReq {
	return wire.SentReq{Method: method, Status: status, Left: true}
}

// gone is a request that left and was never answered; kept is one that was refused before its first byte.
func gone(method string) wire.SentReq {
	return wire.SentReq{Method: method, Left: true, Err: wire.Refuse(wire.CodeUnknown, "no answer", "")}
}

func kept(method string) wire.SentReq {
	return wire.SentReq{Method: method, Err: wire.Refuse(wire.CodeNotAllowed, "not in the envelope", "")}
}

func TestWhatTheRequestsProve(t *testing.T) {
	for _, c := range []struct {
		name     string
		released int
		sent     []wire.SentReq
		want     ledger.State
		notRun   bool
		says     string
	}{
		{name: "nothing was released", want: ledger.Failed, notRun: true},
		{name: "released, and egress says nothing", released: 1, want: ledger.Unknown},
		{name: "fewer reports than releases", released: 2, sent: []wire.SentReq{request("POST", 201)}, want: ledger.Unknown},
		{name: "taken", released: 1, sent: []wire.SentReq{request("POST", 201)}, want: ledger.Done},
		{name: "nothing to say", released: 1, sent: []wire.SentReq{request("DELETE", 204)}, want: ledger.Done},
		{name: "sent on", released: 1, sent: []wire.SentReq{request("POST", 303)}, want: ledger.Done},
		{name: "refused", released: 1, sent: []wire.SentReq{request("POST", 422)}, want: ledger.Failed, says: "422"},
		{name: "an ETag that is another", released: 1, sent: []wire.SentReq{request("PUT", 412)}, want: ledger.Failed, says: "412"},
		{name: "too many", released: 1, sent: []wire.SentReq{request("POST", 429)}, want: ledger.Failed},
		{name: "it failed there", released: 1, sent: []wire.SentReq{request("POST", 500)}, want: ledger.Unknown},
		{name: "a gateway", released: 1, sent: []wire.SentReq{request("POST", 502)}, want: ledger.Unknown},
		{name: "no answer", released: 1, sent: []wire.SentReq{gone("POST")}, want: ledger.Unknown},
		{name: "an interim answer", released: 1, sent: []wire.SentReq{request("POST", 100)}, want: ledger.Unknown},
		{name: "refused by egress", released: 1, sent: []wire.SentReq{kept("POST")}, want: ledger.Failed, says: "nothing left"},
		{name: "only a read left", released: 1, sent: []wire.SentReq{request("GET", 200)}, want: ledger.Failed, says: "only reads"},
		{name: "only a lost read left", released: 1, sent: []wire.SentReq{gone("PROPFIND")}, want: ledger.Failed, says: "only reads"},
		{name: "a read, then the write", released: 2, sent: []wire.SentReq{request("GET", 200), request("PUT", 200)}, want: ledger.Done},
		{name: "the write, and a read that failed", released: 2, sent: []wire.SentReq{request("PUT", 200), request("REPORT", 500)},
			want: ledger.Done},
		{name: "a read, then no answer", released: 2, sent: []wire.SentReq{request("GET", 200), gone("PUT")}, want: ledger.Unknown},
		{name: "the write, then what egress refused", released: 2, sent: []wire.SentReq{request("PUT", 200), kept("PUT")},
			want: ledger.Done},
		{name: "a part, then refused", released: 2, sent: []wire.SentReq{request("POST", 201), request("PATCH", 404)},
			want: ledger.Unknown, says: "a part"},
		{name: "refused, then a part", released: 2, sent: []wire.SentReq{request("POST", 404), request("PATCH", 200)},
			want: ledger.Unknown, says: "a part"},
		{name: "a part, then no answer", released: 2, sent: []wire.SentReq{request("POST", 201), gone("PATCH")},
			want: ledger.Unknown},
	} {
		o := witness(c.released, c.sent)
		if o.State != c.want || o.NotRun != c.notRun || !strings.Contains(o.Why, c.says) {
			t.Errorf("%s: %+v, want %s", c.name, o, c.want)
		}
		if (o.State == ledger.Done) != (o.Code == "") {
			t.Errorf("%s: %s has the code %q", c.name, o.State, o.Code)
		}
		if o.NotRun && c.released > 0 {
			t.Errorf("%s: it surely did not run, though the credential was released", c.name)
		}
	}
}

// The worker's word counts only as far as egress bears it out.
func TestTheWorkersWordIsHeldToWhatLeft(t *testing.T) {
	refusal := wire.Refuse(wire.CodeRateLimited, "later", "")
	for _, c := range []struct {
		claims string
		err    *wire.Error
		sent   []wire.SentReq
		want   ledger.State
		code   wire.Code
	}{
		{claims: wire.OutcomeDone, sent: []wire.SentReq{request("POST", 201)}, want: ledger.Done},
		{claims: wire.OutcomeFailed, sent: []wire.SentReq{request("POST", 201)}, want: ledger.Unknown, code: wire.CodeUnknown},
		{claims: wire.OutcomeUnknown, sent: []wire.SentReq{request("POST", 201)}, want: ledger.Unknown, code: wire.CodeUnknown},
		{claims: wire.OutcomeDone, sent: []wire.SentReq{request("POST", 422)}, want: ledger.Unknown, code: wire.CodeUnknown},
		{claims: wire.OutcomeFailed, err: refusal, sent: []wire.SentReq{request("POST", 429)}, want: ledger.Failed,
			code: wire.CodeRateLimited},
		{claims: wire.OutcomeFailed, sent: []wire.SentReq{request("POST", 422)}, want: ledger.Failed, code: wire.CodeVendorRefused},
		{claims: wire.OutcomeDone, sent: []wire.SentReq{gone("POST")}, want: ledger.Unknown, code: wire.CodeUnknown},
		{claims: wire.OutcomeFailed, err: refusal, sent: []wire.SentReq{gone("POST")}, want: ledger.Unknown, code: wire.CodeUnknown},
		{claims: wire.OutcomeDone, sent: nil, want: ledger.Unknown, code: wire.CodeUnknown}, // it sent nothing and says it is done
		{claims: wire.OutcomeFailed, sent: nil, want: ledger.Failed, code: wire.CodeUnavailable},
	} {
		l := testLive()
		for i := range c.sent {
			l.released[uint64(i)] = true
		}
		l.sent = c.sent
		o := l.outcome(t.Context(), &wire.FinishReq{Outcome: c.claims, Err: c.err, Object: "o", Bytes: 7})
		if o.State != c.want || o.Code != string(c.code) || o.Object != "o" {
			t.Errorf("the worker says %s (%v), left has %v: %+v, want %s %s", c.claims, c.err, c.sent, o, c.want, c.code)
		}
	}
}

func testLive() *live {
	return &live{method: &describe.Method{Class: describe.Write}, released: map[uint64]bool{}, news: make(chan struct{})}
}

// The end of a write waits for egress's report of each release, and no longer than it has to.
func TestTheEndWaitsForReports(t *testing.T) {
	l := testLive()
	l.released[1] = true
	got := make(chan int, 1)
	go func() {
		_, sent := l.settled(t.Context())
		got <- len(sent)
	}()
	l.tell(func() { l.released[1] = true }) // told again: authd repeats what was not acknowledged
	select {
	case <-got:
		t.Fatal("it did not wait")
	default:
	}
	l.tell(func() { l.sent = append(l.sent, request("POST", 201)) })
	if n := <-got; n != 1 {
		t.Errorf("%d reports", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.tell(func() { l.released[2] = true })
	if released, sent := l.settled(ctx); released != 2 || len(sent) != 1 {
		t.Errorf("cancelled: %d releases, %d reports", released, len(sent))
	}
}

func TestOneEndsACall(t *testing.T) {
	l := testLive()
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if l.claim() {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d ended it", won.Load())
	}
}

func TestReadOutcome(t *testing.T) {
	if o := readOutcome(&wire.FinishReq{Outcome: wire.OutcomeDone, Bytes: 9}); o.State != ledger.Done || o.In != 9 || o.Code != "" {
		t.Errorf("%+v", o)
	}
	o := readOutcome(&wire.FinishReq{Outcome: wire.OutcomeFailed, Err: wire.Refuse(wire.CodeVendorRefused, "no", "")})
	if o.State != ledger.Failed || o.Code != string(wire.CodeVendorRefused) || o.Why != "no" {
		t.Errorf("%+v", o)
	}
	if o := readOutcome(&wire.FinishReq{Outcome: "?"}); o.State != ledger.Failed || o.Code == "" || o.Why == "" {
		t.Errorf("without a reason: %+v", o)
	}
}
