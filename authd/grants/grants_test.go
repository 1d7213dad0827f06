// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/doorward/doorward/authd/store"
	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
)

const token = "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"

var start = Now{time.Unix(1_796_000_000, 0), 5 * time.Hour}

func at(d time.Duration) Now { return Now{start.Wall.Add(d), start.Boot + d} }

func account() *store.Account {
	return &store.Account{
		Settings: store.Settings{
			Name: "work", Vendor: "github", Workers: []string{"github"}, Generation: 3,
			Base:      wire.Base{Scheme: "https", Host: "api.github.com", Port: 443},
			Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "},
			CA:        "ca", Permit: []string{"10.0.0.1:443"}, Owner: "octocat",
		},
		Digest: wire.Digest{1}, Shape: surrogate.ShapeOf([]byte(token)),
	}
}

const (
	withCredential = iota
	withoutCredential
)

func request() wire.GrantReq {
	return wire.GrantReq{
		Grant: "grant-0123456789", Call: "call-1", Worker: "github", Cell: "work", Session: "run-1",
		Frame: wire.Digest{9}, Account: "work", Generation: 3, Digest: wire.Digest{1}, Mark: "mark",
		Unix: start.Wall.Add(5 * time.Minute).Unix(),
		Entries: []wire.Entry{
			{Name: "call", Scheme: "https", Host: "api.github.com", Port: 443, Method: "GET", Path: "/user",
				Uses: 2, Credential: true},
			{Name: "log", Scheme: "https", Host: "logs.example.org", Port: 443, Method: "GET", Follow: "call", Uses: 1},
		},
	}
}

func borrowing() wire.BorrowReq {
	return wire.BorrowReq{Grant: "grant-0123456789", Cell: "work", Session: "run-1", Frame: wire.Digest{9}}
}

func why(err error) string {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Why
	}
	return fmt.Sprint(err)
}

// variant is one value of one dimension of the tables below: the honest one has no refusals.
type variant[T any] struct {
	name    string
	value   T
	refused []string // one of these is the reason where nothing else is wrong
}

func TestAdd(t *testing.T) {
	tests := []struct {
		name   string
		change func(*wire.GrantReq, *store.Account)
		want   string
	}{
		{"well", func(*wire.GrantReq, *store.Account) {}, ""},
		{"sentinel executes", func(r *wire.GrantReq, _ *store.Account) { r.Cell, r.Session = "", "" }, ""},
		{"short name", func(r *wire.GrantReq, _ *store.Account) { r.Grant = "g" }, WhyMalformed},
		{"no call", func(r *wire.GrantReq, _ *store.Account) { r.Call = "" }, WhyMalformed},
		{"no worker", func(r *wire.GrantReq, _ *store.Account) { r.Worker = "" }, WhyMalformed},
		{"no session", func(r *wire.GrantReq, _ *store.Account) { r.Session = "" }, WhyMalformed},
		{"no cell", func(r *wire.GrantReq, _ *store.Account) { r.Cell = "" }, WhyMalformed},
		{"ended", func(r *wire.GrantReq, _ *store.Account) { r.Unix = start.Wall.Unix() }, WhyMalformed},
		{"too long", func(r *wire.GrantReq, _ *store.Account) { r.Unix += 3600 }, WhyMalformed},
		{"no entries", func(r *wire.GrantReq, _ *store.Account) { r.Entries = nil }, WhyMalformed},
		{"many entries", func(r *wire.GrantReq, _ *store.Account) {
			r.Entries = slices.Repeat(r.Entries, MaxEntries)
		}, WhyMalformed},
		{"no uses", func(r *wire.GrantReq, _ *store.Account) { r.Entries[1].Uses = 0 }, WhyMalformed},
		{"negative uses", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Uses = -1 }, WhyMalformed},
		{"many uses", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Uses = MaxUses + 1 }, WhyMalformed},
		{"another account", func(r *wire.GrantReq, _ *store.Account) { r.Account = "home" }, WhyNoAccount},
		{"undecided account", func(_ *wire.GrantReq, a *store.Account) { a.Digest = wire.Digest{2} }, WhyUndecided},
		{"a login since", func(_ *wire.GrantReq, a *store.Account) { a.Generation++ }, WhyUndecided},
		{"worker not listed", func(_ *wire.GrantReq, a *store.Account) { a.Workers = []string{"dav"} }, WhyNotListed},
		{"worker like one listed", func(r *wire.GrantReq, _ *store.Account) { r.Worker = "githu" }, WhyNotListed},
		{"credential to another host", func(r *wire.GrantReq, _ *store.Account) {
			r.Entries[1].Credential = true
		}, WhyElsewhere},
		{"credential in clear", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Scheme = "http" }, WhyElsewhere},
		{"credential to a second host", func(r *wire.GrantReq, _ *store.Account) {
			r.Entries[0].Also = []string{"logs.example.org:443"}
		}, WhyElsewhere},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table, r, a := New(), request(), account()
			test.change(&r, a)
			err := table.Add(start, r, a)
			if (test.want == "" && err != nil) || (test.want != "" && why(err) != test.want) {
				t.Fatalf("%v, want %q", err, test.want)
			}
			if err != nil && len(table.grants) != 0 {
				t.Error("kept although refused")
			}
		})
	}
	t.Run("no account", func(t *testing.T) {
		if err := New().Add(start, request(), nil); why(err) != WhyNoAccount {
			t.Error(err)
		}
	})
	t.Run("a name twice", func(t *testing.T) {
		table := New()
		if err := table.Add(start, request(), account()); err != nil {
			t.Fatal(err)
		}
		if err := table.Add(start, request(), account()); why(err) != WhyTaken {
			t.Error(err)
		}
	})
	t.Run("too many", func(t *testing.T) {
		table := New()
		for i := range MaxGrants + 1 {
			r := request()
			r.Grant = fmt.Sprintf("grant-%012d", i)
			err := table.Add(start, r, account())
			if (err != nil) != (i == MaxGrants) {
				t.Fatal(i, err)
			}
		}
		r := request()
		if err := table.Add(at(BorrowWithin), r, account()); err != nil || len(table.grants) != 1 {
			t.Errorf("those that ran out still take room: %v, %d live", err, len(table.grants))
		}
	})
}

var accounts = []variant[func(*store.Account) *store.Account]{
	{"as decided", func(a *store.Account) *store.Account { return a }, nil},
	{"removed", func(*store.Account) *store.Account { return nil }, []string{WhyNoAccount}},
	{"another", func(a *store.Account) *store.Account { a.Name = "home"; return a }, []string{WhyNoAccount}},
	{"changed", func(a *store.Account) *store.Account { a.Digest[0]++; return a }, []string{WhyUndecided}},
	{"a new login", func(a *store.Account) *store.Account { a.Generation++; return a }, []string{WhyUndecided}},
	{"taken off the list", func(a *store.Account) *store.Account { a.Workers = nil; return a }, []string{WhyNotListed}},
}

// Every combination of what a borrow says, when, and in which state of the grant. Exactly one combination borrows.
func TestBorrowExhaustively(t *testing.T) {
	workers := []variant[string]{
		{"its worker", "github", nil}, {"another worker", "dav", []string{WhyOtherWorker}},
		{"a worker of a longer name", "github2", []string{WhyOtherWorker}},
		{"nobody", "", []string{WhyOtherWorker}},
	}
	cells := []variant[string]{
		{"its cell", "work", nil}, {"another cell", "play", []string{WhyOtherCaller}},
		{"no cell", "", []string{WhyOtherCaller}},
	}
	sessions := []variant[string]{
		{"its session", "run-1", nil}, {"another session", "run-2", []string{WhyOtherCaller}},
		{"no session", "", []string{WhyOtherCaller}},
	}
	frames := []variant[wire.Digest]{
		{"its frame", wire.Digest{9}, nil}, {"another frame", wire.Digest{8}, []string{WhyOtherFrame}},
		{"no frame", wire.Digest{}, []string{WhyOtherFrame}},
	}
	times := []variant[Now]{
		{"at once", start, nil},
		{"in time", at(BorrowWithin - 1), nil},
		{"late", at(BorrowWithin), []string{WhyLate}},
		{"late by the wall", Now{at(BorrowWithin).Wall, start.Boot}, []string{WhyLate}},
		{"late by the boot clock, the wall set back", Now{start.Wall.Add(-time.Hour), at(BorrowWithin).Boot},
			[]string{WhyLate}},
		{"ended", at(5 * time.Minute), []string{WhyExpired}},
		{"ended by the wall", Now{at(5 * time.Minute).Wall, start.Boot}, []string{WhyExpired}},
	}
	states := []variant[func(*Table)]{
		{"granted", func(*Table) {}, nil},
		{"borrowed", func(table *Table) {
			if _, err := table.Borrow(start, "github", borrowing(), account(), rand.Reader); err != nil {
				panic(err)
			}
		}, []string{WhyBorrowed}},
		{"revoked", func(table *Table) { table.Revoke(wire.GrantRef{Grant: "grant-0123456789"}) }, []string{WhyNoGrant}},
		{"voided", func(table *Table) { table.Void() }, []string{WhyNoGrant}},
	}
	done, refused := 0, 0
	for _, state := range states {
		for _, worker := range workers {
			for _, cell := range cells {
				for _, session := range sessions {
					for _, frame := range frames {
						for _, when := range times {
							for _, of := range accounts {
								wrong := slices.Concat(state.refused, worker.refused, cell.refused, session.refused,
									frame.refused, when.refused, of.refused)
								table := New()
								if err := table.Add(start, request(), account()); err != nil {
									t.Fatal(err)
								}
								state.value(table)
								req := wire.BorrowReq{
									Grant: "grant-0123456789", Cell: cell.value, Session: session.value, Frame: frame.value,
								}
								resp, err := table.Borrow(when.value, worker.value, req, of.value(account()), rand.Reader)
								name := fmt.Sprintf("%s, %s, %s, %s, %s, %s, account %s", state.name, worker.name,
									cell.name,
									session.name, frame.name, when.name, of.name)
								if len(wrong) == 0 {
									done++
									minted := surrogate.Marked([]byte(resp.Surrogate))
									if err != nil || !minted || resp.Mark != "mark" {
										t.Fatalf("%s: %v", name, err)
									}
									continue
								}
								refused++
								if err == nil || resp != (wire.BorrowResp{}) {
									t.Fatalf("%s: borrowed", name)
								}
								if !slices.Contains(wrong, why(err)) {
									t.Fatalf("%s: refused because %q, want one of %q", name, why(err), wrong)
								}
								// A stranger's attempt takes nothing from the honest worker.
								if len(state.refused) == 0 && len(when.refused) == 0 {
									_, err := table.Borrow(when.value, "github", borrowing(), account(), rand.Reader)
									if err != nil {
										t.Fatalf("%s: afterwards the honest one is refused: %v", name, err)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if done != 2 || refused == 0 { // at once, and in time
		t.Errorf("%d borrowed, %d refused", done, refused)
	}
	t.Logf("%d combinations refused", refused)
}

// A grant for sentinel's own execution is no cell's, and the other way round.
func TestSentinelsGrantIsNoCells(t *testing.T) {
	table, r := New(), request()
	r.Cell, r.Session = "", ""
	if err := table.Add(start, r, account()); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Borrow(start, "github", borrowing(), account(), rand.Reader); why(err) != WhyOtherCaller {
		t.Errorf("a cell's call borrowed sentinel's grant: %v", err)
	}
	b := borrowing()
	b.Cell, b.Session = "", ""
	if _, err := table.Borrow(start, "github", b, account(), rand.Reader); err != nil {
		t.Error(err)
	}
}

func TestResolveExhaustively(t *testing.T) {
	other := New()
	r := request()
	if err := other.Add(start, r, account()); err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Borrow(start, "github", borrowing(), account(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const own = "(own)"
	workers := []variant[string]{
		{"its worker", "github", nil}, {"another worker", "dav", []string{WhyOtherWorker}},
		{"nobody", "", []string{WhyOtherWorker}},
	}
	surrogates := []struct {
		name, value    string
		refusedWith    string // where the entry takes the credential
		refusedWithout string
	}{
		{"its surrogate", own, "", WhyNoCredential},
		{"none", "", WhySurrogate, ""},
		{"another grant's", foreign.Surrogate, WhySurrogate, WhyNoCredential},
		{"the credential itself", token, WhySurrogate, WhyNoCredential},
	}
	entries := []variant[int]{
		{"with", withCredential, nil}, {"without", withoutCredential, nil},
		{"none", 2, []string{WhyNoEntry}}, {"negative", -1, []string{WhyNoEntry}},
	}
	times := []variant[Now]{
		{"at once", start, nil}, {"after the borrowing time", at(time.Minute), nil},
		{"ended", at(5 * time.Minute), []string{WhyExpired}},
		{"ended by the boot clock", Now{start.Wall, at(5 * time.Minute).Boot}, []string{WhyExpired}},
		{"ended by the wall", Now{at(5 * time.Minute).Wall, start.Boot}, []string{WhyExpired}},
	}
	states := []variant[string]{
		{"borrowed", "borrowed", nil}, {"granted", "granted", []string{WhyNotBorrowed}},
		{"revoked", "revoked", []string{WhyNoGrant}},
		{"used up", "used", []string{WhyUsedUp}},
	}
	resolved := 0
	for _, state := range states {
		for _, worker := range workers {
			for _, sur := range surrogates {
				for _, entry := range entries {
					for _, when := range times {
						for _, of := range accounts {
							table := New()
							if err := table.Add(start, request(), account()); err != nil {
								t.Fatal(err)
							}
							var resp wire.BorrowResp
							if state.value != "granted" {
								resp, err = table.Borrow(start, "github", borrowing(), account(), rand.Reader)
								if err != nil {
									t.Fatal(err)
								}
							}
							ask := wire.ResolveReq{
								Grant: "grant-0123456789", Worker: worker.value, Entry: entry.value, Surrogate: sur.value,
							}
							if sur.value == own {
								ask.Surrogate = resp.Surrogate
							}
							switch state.value {
							case "revoked":
								table.Revoke(wire.GrantRef{All: true})
							case "used":
								for _, use := range []wire.ResolveReq{
									{Grant: ask.Grant, Worker: "github", Surrogate: resp.Surrogate},
									{Grant: ask.Grant, Worker: "github", Surrogate: resp.Surrogate},
									{Grant: ask.Grant, Worker: "github", Entry: withoutCredential},
								} {
									if _, _, err := table.Resolve(start, use, account()); err != nil {
										t.Fatal(err)
									}
								}
							}
							wrong := slices.Concat(state.refused, worker.refused, entry.refused, when.refused, of.refused)
							switch {
							case entry.value == withCredential && sur.refusedWith != "":
								wrong = append(wrong, sur.refusedWith)
							case entry.value == withoutCredential && sur.refusedWithout != "":
								wrong = append(wrong, sur.refusedWithout)
							}
							got, wants, err := table.Resolve(when.value, ask, of.value(account()))
							name := fmt.Sprintf("%s, %s, surrogate: %s, entry: %s, %s, account %s", state.name, worker.name,
								sur.name,
								entry.name, when.name, of.name)
							if len(wrong) > 0 {
								if err == nil || wants || got.Call != "" {
									t.Fatalf("%s: resolved", name)
								}
								if !slices.Contains(wrong, why(err)) {
									t.Fatalf("%s: refused because %q, want one of %q", name, why(err), wrong)
								}
								continue
							}
							resolved++
							if err != nil || wants != (entry.value == withCredential) || got.Call != "call-1" ||
								got.Cell != "work" ||
								got.Entry.Name != request().Entries[entry.value].Name || got.Generation != 3 ||
								got.Secret != "" ||
								string(got.CA) != "ca" || !slices.Equal(got.Permit, []string{"10.0.0.1:443"}) {
								t.Fatalf("%s: %+v, %v", name, got.Entry, err)
							}
						}
					}
				}
			}
		}
	}
	if resolved != 4 { // two entries, two times
		t.Errorf("%d resolved", resolved)
	}
}

func TestUsesAreCountedPerEntry(t *testing.T) {
	table := New()
	if err := table.Add(start, request(), account()); err != nil {
		t.Fatal(err)
	}
	resp, err := table.Borrow(start, "github", borrowing(), account(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ask := wire.ResolveReq{Grant: "grant-0123456789", Worker: "github", Surrogate: resp.Surrogate}
	for i, want := range []string{"<nil>", "<nil>", WhyUsedUp, WhyUsedUp} {
		if _, _, err := table.Resolve(start, ask, account()); why(err) != want {
			t.Errorf("use %d: %v, want %s", i, err, want)
		}
	}
	ask.Entry, ask.Surrogate = withoutCredential, ""
	if _, _, err := table.Resolve(start, ask, account()); err != nil {
		t.Error(err)
	}
	// Refusals do not count.
	table = New()
	if err := table.Add(start, request(), account()); err != nil {
		t.Fatal(err)
	}
	if resp, err = table.Borrow(start, "github", borrowing(), account(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		wrong := wire.ResolveReq{Grant: "grant-0123456789", Worker: "github", Surrogate: "x"}
		_, _, _ = table.Resolve(start, wrong, account())
	}
	ask = wire.ResolveReq{Grant: "grant-0123456789", Worker: "github", Surrogate: resp.Surrogate}
	if _, _, err := table.Resolve(start, ask, account()); err != nil {
		t.Error(err)
	}
}

func TestRevoke(t *testing.T) {
	fill := func() *Table {
		table := New()
		for i, cell := range []string{"work", "work", "play", ""} {
			r := request()
			r.Grant = fmt.Sprintf("grant-%012d", i)
			if r.Cell = cell; cell == "" {
				r.Session = ""
			}
			if err := table.Add(start, r, account()); err != nil {
				t.Fatal(err)
			}
		}
		return table
	}
	for name, test := range map[string]struct {
		ref  wire.GrantRef
		want int
	}{
		"nothing":         {wire.GrantRef{}, 0},
		"one":             {wire.GrantRef{Grant: "grant-000000000001"}, 1},
		"one not there":   {wire.GrantRef{Grant: "grant-00000000000"}, 0},
		"a cell":          {wire.GrantRef{Cell: "work"}, 2},
		"another cell":    {wire.GrantRef{Cell: "wor"}, 0},
		"an account":      {wire.GrantRef{Account: "work"}, 4},
		"another account": {wire.GrantRef{Account: "home"}, 0},
		"all":             {wire.GrantRef{All: true}, 4},
	} {
		table := fill()
		if got := table.Revoke(test.ref); len(got) != test.want || len(table.grants) != 4-test.want || !slices.IsSorted(got) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if table := fill(); len(table.Void()) != 4 || len(table.grants) != 0 {
		t.Error("void left something")
	}
}

func TestExpire(t *testing.T) {
	for name, test := range map[string]struct {
		borrowed bool
		now      Now
		want     int
	}{
		"fresh":                         {false, at(time.Second), 0},
		"not borrowed in time":          {false, at(BorrowWithin), 1},
		"borrowed":                      {true, at(BorrowWithin), 0},
		"run out":                       {true, at(5 * time.Minute), 1},
		"run out on the wall only":      {true, Now{at(5 * time.Minute).Wall, start.Boot}, 1},
		"run out on the boot clock":     {true, Now{start.Wall.Add(-time.Hour), at(5 * time.Minute).Boot}, 1},
		"the wall set back, still live": {true, Now{start.Wall.Add(-time.Hour), start.Boot}, 0},
	} {
		table := New()
		if err := table.Add(start, request(), account()); err != nil {
			t.Fatal(err)
		}
		if test.borrowed {
			if _, err := table.Borrow(start, "github", borrowing(), account(), rand.Reader); err != nil {
				t.Fatal(err)
			}
		}
		if got := table.Expire(test.now); len(got) != test.want {
			t.Errorf("%s: ended %q", name, got)
		}
	}
}

func TestNoRandomNoBorrow(t *testing.T) {
	table := New()
	if err := table.Add(start, request(), account()); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Borrow(start, "github", borrowing(), account(), failing{}); err == nil {
		t.Fatal("borrowed without random bytes")
	}
	if _, err := table.Borrow(start, "github", borrowing(), account(), rand.Reader); err != nil {
		t.Fatal(err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestOutbox(t *testing.T) {
	var box Outbox
	for i := range 3 {
		r, err := box.Put(start, wire.ReleasedReq{Grant: "g", Entry: i})
		if err != nil || r.Seq != uint64(i+1) || r.Entry != i {
			t.Fatal(r, err)
		}
	}
	box.Acknowledge(2)
	box.Acknowledge(2)
	box.Acknowledge(99)
	if w := box.Waiting(); len(w) != 2 || w[0].Seq != 1 || w[1].Seq != 3 {
		t.Fatal(w)
	}
	box.Acknowledge(1)
	box.Acknowledge(3)
	if len(box.Waiting()) != 0 {
		t.Fatal("not empty")
	}
	for i := range MaxWaiting + 1 {
		if _, err := box.Put(start, wire.ReleasedReq{Grant: "g", Entry: 0}); (err != nil) != (i == MaxWaiting) {
			t.Fatal(i, err)
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	table, r := New(), request()
	r.Entries[0].Uses = MaxUses
	a := account()
	grant := func(i int) string {
		r.Grant = fmt.Sprintf("grant-%012d", i)
		if err := table.Add(start, r, a); err != nil {
			b.Fatal(err)
		}
		req := borrowing()
		req.Grant = r.Grant
		resp, err := table.Borrow(start, "github", req, a, rand.Reader)
		if err != nil {
			b.Fatal(err)
		}
		return resp.Surrogate
	}
	sur := grant(0)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n++; n%MaxUses == 0 {
			sur = grant(n / MaxUses)
		}
		ask := wire.ResolveReq{Grant: r.Grant, Worker: "github", Surrogate: sur}
		if _, _, err := table.Resolve(start, ask, a); err != nil {
			b.Fatal(err)
		}
	}
}
