// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// What a caller is told of each state, and the exit code that comes of it.
func TestStateError(t *testing.T) {
	for _, c := range []struct {
		state  ledger.State
		why    string
		out    string
		notRun bool
		code   wire.Code
		exit   int
		says   string
	}{
		{state: ledger.Parked, code: wire.CodeNeedsApproval, exit: wire.ExitWaiting, says: "waits for a person"},
		{state: ledger.Approved, code: wire.CodeNeedsApproval, exit: wire.ExitWaiting, says: "runs"},
		{state: ledger.Executing, code: wire.CodeNeedsApproval, exit: wire.ExitWaiting, says: "runs"},
		{state: ledger.Denied, code: wire.CodeDenied, exit: wire.ExitDenied, says: "a person said no"},
		{state: ledger.Denied, why: "not today", code: wire.CodeDenied, exit: wire.ExitDenied, says: "not today"},
		{state: ledger.Expired, code: wire.CodeExpired, exit: wire.ExitExpired, says: "nobody decided in time"},
		{state: ledger.Revoked, code: wire.CodeRevoked, exit: wire.ExitExpired, says: "did not run"},
		{state: ledger.Unknown, code: wire.CodeUnknown, exit: wire.ExitVendor, says: "may have run"},
		{state: ledger.Failed, out: string(wire.CodeVendorRefused), why: "422", code: wire.CodeVendorRefused, exit: wire.ExitVendor,
			says: "422"},
		{state: ledger.Failed, out: string(wire.CodeUnavailable), why: "egress is down", notRun: true, code: wire.CodeUnavailable,
			exit: wire.ExitFailure, says: "egress is down; it did not run"},
		{state: ledger.Failed, code: wire.CodeInternal, exit: wire.ExitFailure, says: "failed"},
	} {
		k := &ledger.Call{Frame: ledger.Frame{ID: "theid"},
			Progress: ledger.Progress{State: c.state, Why: c.why, Outcome: c.out, NotRun: c.notRun}}
		e := stateError(k)
		if e == nil || e.Code != c.code || e.Code.Exit() != c.exit || !strings.Contains(e.Reason, c.says) {
			t.Errorf("%s: %+v, want %s", c.state, e, c.code)
		}
		if c.exit == wire.ExitWaiting && !strings.Contains(e.Next, "connector result theid") {
			t.Errorf("%s: it does not say how to collect it: %q", c.state, e.Next)
		}
	}
	if e := stateError(&ledger.Call{Progress: ledger.Progress{State: ledger.Done}}); e != nil {
		t.Errorf("done is %v", e)
	}
	for _, s := range ledger.States() {
		if e := stateError(&ledger.Call{Progress: ledger.Progress{State: s}}); (e == nil) != (s == ledger.Done || s == ledger.None) {
			t.Errorf("%s has no words", s)
		}
	}
}

// An approval is over all of it: another call, other requests, another decision or mark is another hash.
func TestApprovalHash(t *testing.T) {
	call, bound := wire.Sum([]byte("call")), wire.Sum([]byte("bound"))
	h := approvalHash(call, bound, "ask", "mark")
	for name, other := range map[string]wire.Digest{
		"call":              approvalHash(bound, bound, "ask", "mark"),
		"requests":          approvalHash(call, call, "ask", "mark"),
		"decision":          approvalHash(call, bound, "allow", "mark"),
		"mark":              approvalHash(call, bound, "ask", "mar"),
		"no requests":       approvalHash(call, wire.Digest{}, "ask", "mark"),
		"a moved border":    approvalHash(call, bound, "as", "kmark"),
		"a border in there": approvalHash(call, bound, "ask\x00m", "ark"),
	} {
		if other == h {
			t.Errorf("another %s has the same hash", name)
		}
	}
	if again := approvalHash(call, bound, "ask", "mark"); again != h {
		t.Error("it is not the same twice")
	}
}

func TestMarksAndPasses(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		m := newMark()
		if len(m) != 26 || strings.Trim(m, "abcdefghijklmnopqrstuvwxyz234567") != "" || seen[m] {
			t.Fatalf("mark %q", m)
		}
		seen[m] = true
	}
	one, other := passEnd("instance one"), passEnd("instance two")
	if len(one) != 6 || one == other || one != passEnd("instance one") || strings.Trim(one, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		t.Errorf("%q, %q", one, other)
	}
	s := &Sentinel{instance: "instance one"}
	if p := s.newPass(); !strings.HasSuffix(p, one) || strings.HasSuffix(p, other) || len(p) != 32 {
		t.Errorf("pass %q", p)
	}
}

func TestNotRun(t *testing.T) {
	o := notRun(wire.CodeExpired, "why")
	if o.State != ledger.Failed || !o.NotRun || o.Code != string(wire.CodeExpired) || o.Why != "why" {
		t.Errorf("%+v", o)
	}
}

func TestSessionNames(t *testing.T) {
	a := peer.Identity{Kind: peer.Cell, Name: "work", Session: "payload", Start: 12345}
	b, c := a, a
	b.Start++
	c.Name = "home"
	if sessionName(a) == sessionName(b) || sessionID(a) == sessionID(c) || sessionID(a) != "work/"+sessionName(a) {
		t.Errorf("%s %s %s", sessionID(a), sessionID(b), sessionID(c))
	}
	// The kernel counts anew at each boot.
	real := boot
	boot = func() string { return "-another" }
	if again := sessionName(a); again == a.Session+".9ix"+real() || !strings.HasPrefix(again, a.Session+".9ix-") {
		t.Errorf("in another boot it is %s", again)
	}
	boot = real
	// A settlement names the session again from the record, and must mean the same one.
	again := peer.Identity{Kind: peer.Cell, Name: a.Name, Session: sessionName(a)}
	if sessionID(again) != sessionID(a) {
		t.Errorf("%s is read back as %s", sessionID(a), sessionID(again))
	}
}

func TestWhatIsNamedIsBounded(t *testing.T) {
	for _, s := range []string{"", "x", strings.Repeat("é", 100), strings.Repeat("x", 1<<20), "\xff\xfe", strings.Repeat("\xe2\x82", 50)} {
		got := short(s)
		if len(got) > 64*3 || !utf8.ValidString(got) {
			t.Errorf("short(%.20q) is %q", s, got)
		}
		if q := quote(s); strings.ContainsAny(q, "\n\x1b") {
			t.Errorf("quote(%.20q) is %s", s, q)
		}
		if got := clip(s, 10); len(got) > 10+len("…") || !utf8.ValidString(got) && utf8.ValidString(s) {
			t.Errorf("clip(%.20q) is %q", s, got)
		}
	}
}

// Nothing but a refusal of ours reaches a peer in its own words.
func TestErrorsThatPeersAreTold(t *testing.T) {
	inner := wire.Refuse(wire.CodeConflict, "said", "")
	if e := asError(discard(), fmt.Errorf("read /var/lib/secret: %w", inner)); e != inner {
		t.Errorf("%v", e)
	}
	e := asError(discard(), errors.New("open /var/lib/doorward/ledger: permission denied"))
	if e.Code != wire.CodeInternal || strings.Contains(e.Error(), "/var/lib") {
		t.Errorf("an internal error is told: %v", e)
	}
	if codeOf(fmt.Errorf("x: %w", inner)) != wire.CodeConflict || codeOf(errors.New("x")) != wire.CodeInternal {
		t.Error("codeOf")
	}
	if errorCode(nil) != "" || errorCode(inner) != "conflict" {
		t.Error("errorCode")
	}
	s := &Sentinel{log: discard()}
	if s.ledgerError(nil) != nil {
		t.Error("no error is one")
	}
	for _, c := range []struct {
		err  error
		want wire.Code
	}{
		{&ledger.StateError{ID: "x", Have: ledger.Denied, Want: ledger.Approved}, wire.CodeDenied},
		{&ledger.StateError{ID: "x", Have: ledger.Expired, Want: ledger.Approved}, wire.CodeExpired},
		{&ledger.StateError{ID: "x", Have: ledger.Revoked, Want: ledger.Approved}, wire.CodeRevoked},
		{&ledger.StateError{ID: "x", Have: ledger.Done, Want: ledger.Approved}, wire.CodeConflict},
		{&ledger.StateError{ID: "x", Have: ledger.Executing, Want: ledger.Approved}, wire.CodeConflict},
		{&ledger.StateError{ID: "x", Want: ledger.Approved}, wire.CodeNotFound},
		{fmt.Errorf("x: %w", ledger.ErrExpired), wire.CodeExpired},
		{fmt.Errorf("x: %w", ledger.ErrChanged), wire.CodeConflict},
		{fmt.Errorf("x: %w", ledger.ErrTooMany), wire.CodeTooMany},
		{fmt.Errorf("x: %w", ledger.ErrFull), wire.CodeFull},
		{errors.New("disk on fire"), wire.CodeUnavailable},
	} {
		if got := codeOf(s.ledgerError(c.err)); got != c.want {
			t.Errorf("%v is told as %s, want %s", c.err, got, c.want)
		}
	}
}

func TestGrantsThereAndBack(t *testing.T) {
	now := ledger.Moment{Wall: time.Now().UnixMicro(), Boot: 5, BootID: "b"}
	g := wire.Grant{Connector: "github", Method: "issue-create", Account: "code", Cell: "work", Session: "payload.abc", Kind: "session",
		Limits: []wire.Limit{{Field: "repo", Values: []string{"ada/site"}}, {Field: "n", Max: 3}}, Count: 4, Tainted: true,
		Sentence: "may do it"}
	k, err := asKept(&g, 7, "a meaning", true, now)
	if err != nil {
		t.Fatal(err)
	}
	if k.Login != 7 || k.Meaning != "a meaning" || !k.Sensitive || k.Session != "work/payload.abc" || !k.Until.IsZero() {
		t.Errorf("%+v", k)
	}
	k.State, k.Created, k.By, k.Used = ledger.GrantLive, now, "person:1000", 2
	s := &Sentinel{log: discard()}
	got := s.asGrant(k)
	g.ID, g.Made, g.By, g.Used = k.ID, now.Time().Unix(), "person:1000", 2
	if !reflect.DeepEqual(got, g) {
		t.Errorf("there was\n%+v\nand back came\n%+v", g, got)
	}
	g.Kind, g.Until = "until", time.Now().Add(time.Hour).Unix()
	if k, err = asKept(&g, 7, "a meaning", true, now); err != nil || k.Until.Time().Unix() != g.Until || k.Until.Boot <= now.Boot {
		t.Errorf("an end on both clocks: %+v, %v", k, err)
	}
	k.State, k.Ended = ledger.GrantRevoked, now
	if got := s.asGrant(k); got.Revoked == 0 {
		t.Error("a revoked grant is not")
	}
	for _, limits := range []string{"", "{", "[]", `{"limits":3}`} {
		k.Limits = json.RawMessage(limits)
		if got := s.asGrant(k); got.Kind != "" { // package policy covers nothing by it
			t.Errorf("a grant whose limits are %q is of kind %q", limits, got.Kind)
		}
	}
}

func TestWhatACardShowsOfABody(t *testing.T) {
	if got := shown("n", "text/plain", []byte("hello"), maxShown); got.Text != "hello" || got.Cut || got.Size != 5 ||
		got.SHA256 != wire.Sum([]byte("hello")) {
		t.Errorf("%+v", got)
	}
	long := bytes.Repeat([]byte("é"), maxShown)
	if got := shown("n", "", long[1:], maxShown); got.Size != int64(len(long))-1 || !got.Cut {
		t.Errorf("what is no text: %+v", got.Size)
	}
	got := shown("n", "", append([]byte("x"), long...), maxShown)
	if !got.Cut || !utf8.ValidString(got.Text) || len(got.Text) > maxShown || len(got.Text) < maxShown-utf8.UTFMax {
		t.Errorf("cut at %d, valid %v", len(got.Text), utf8.ValidString(got.Text))
	}
	if got := shown("n", "", []byte{0xff, 0xfe}, maxShown); !got.Cut || !strings.Contains(got.Text, "no text") {
		t.Errorf("bytes: %+v", got)
	}
}

func TestTheBoundOfACallThereAndBack(t *testing.T) {
	b := Bound{Frame: wire.Frame{Connector: "github", Method: "issue-create", Args: []wire.Arg{{Name: "repo", Values: []string{"a/b"}}}},
		Entries: []wire.Entry{{Name: "send"}}, ETag: `"e"`, Account: wire.Sum([]byte("a")), Prepared: true, Recipients: []string{"x@y.z"}}
	raw, err := wire.Marshal(&b)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	s := &Sentinel{log: discard()}
	o, err := s.recallBound(&ledger.Call{Frame: ledger.Frame{ID: "x", Data: data}})
	if err != nil || !reflect.DeepEqual(o.Bound, b) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{"", "null", `""`, `"aGVsbG8="`, "{}", `"` + strings.Repeat("A", 8) + `"`} {
		if o, err := s.recallBound(&ledger.Call{Frame: ledger.Frame{ID: "x", Data: json.RawMessage(bad)}}); err == nil {
			t.Errorf("%q is read back as %+v", bad, o.Bound)
		}
	}
}

func TestAccountsAreDecidedAsTheyAre(t *testing.T) {
	a := wire.Account{Name: "code", Digest: wire.Sum([]byte("x")), Generation: 3}
	b, c := a, a
	b.Generation++
	c.Digest = wire.Sum([]byte("y"))
	if accountValue(&a) == accountValue(&b) || accountValue(&a) == accountValue(&c) {
		t.Error("another login or place is the same decision")
	}
	if accountValue(&a) != hex.EncodeToString(a.Digest[:])+"/3" {
		t.Error(accountValue(&a))
	}
}

func TestProblemsAreTakenApart(t *testing.T) {
	one, two, three := errors.New("one"), errors.New("two"), errors.New("three")
	got := problems(errors.Join(one, errors.Join(two, three)))
	if !reflect.DeepEqual(got, []string{"one", "two", "three"}) {
		t.Errorf("%q", got)
	}
}

func TestPolicyFilesThereAndBack(t *testing.T) {
	files := asFiles([]wire.PolicyFile{{Name: "policy.toml", Body: []byte("x")}, {Name: "a.cedar", Body: []byte("y")}})
	list := asList(files)
	if len(list) != 2 || list[0].Name != "a.cedar" || string(list[1].Body) != "x" {
		t.Errorf("%+v", list)
	}
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	back, err := policyFiles(b)
	if err != nil || !reflect.DeepEqual(back, files) {
		t.Errorf("%v, %v", back, err)
	}
	if _, err := policyFiles([]byte("{")); err == nil {
		t.Error("half a row is read")
	}
}
