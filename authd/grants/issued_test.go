// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/doorward/doorward/authd/store"
	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
)

func customAccount() *store.Account {
	return &store.Account{
		Settings: store.Settings{
			Name: "bot", Vendor: store.Custom, Generation: 3, Also: []string{"*.discord.com:443"},
			Base:      wire.Base{Scheme: "https", Host: "discord.com", Port: 443},
			Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bot "},
			CA:        "ca", Permit: []string{"10.0.0.1:443"},
		},
		Digest: wire.Digest{1}, Shape: surrogate.ShapeOf([]byte(token)),
	}
}

func issuedRequest() wire.GrantReq {
	return wire.GrantReq{
		Grant: "grant-0123456789", Call: "request-1", Issue: "issue-1", Cell: "work", Account: "bot", Generation: 3,
		Digest: wire.Digest{1}, Unix: start.Wall.Add(5 * time.Minute).Unix(),
		Entries: []wire.Entry{{Name: "request", Scheme: "https", Host: "discord.com", Port: 443, Method: "GET",
			Path: "/api/v10/users/@me", Uses: 1, Credential: true}},
	}
}

func TestAddOfAnIssue(t *testing.T) {
	tests := []struct {
		name   string
		change func(*wire.GrantReq, *store.Account)
		want   string
	}{
		{"well", func(*wire.GrantReq, *store.Account) {}, ""},
		{"with its session", func(r *wire.GrantReq, _ *store.Account) { r.Session = "run-1" }, ""},
		{"to a host below", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Host = "gateway.discord.com" }, ""},
		{"a worker too", func(r *wire.GrantReq, _ *store.Account) { r.Worker = "custom" }, WhyMalformed},
		{"no cell", func(r *wire.GrantReq, _ *store.Account) { r.Cell = "" }, WhyMalformed},
		{"two entries", func(r *wire.GrantReq, _ *store.Account) { r.Entries = slices.Repeat(r.Entries, 2) }, WhyMalformed},
		{"no entry", func(r *wire.GrantReq, _ *store.Account) { r.Entries = nil }, WhyMalformed},
		{"many uses", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Uses = wire.MaxIssuedUses }, ""},
		{"too many uses", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Uses = wire.MaxIssuedUses + 1 }, WhyMalformed},
		{"no use", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Uses = 0 }, WhyMalformed},
		{"without the credential", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Credential = false }, WhyMalformed},
		{"too long", func(r *wire.GrantReq, _ *store.Account) { r.Unix += 3600 }, WhyMalformed},
		{"to another host", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Host = "evil.test" }, WhyElsewhere},
		{"to another port", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Port = 8443 }, WhyElsewhere},
		{"in clear", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Scheme = "http" }, WhyElsewhere},
		{"to where it is redirected", func(r *wire.GrantReq, _ *store.Account) { r.Entries[0].Follow = "x" }, WhyElsewhere},
		{"another account", func(r *wire.GrantReq, _ *store.Account) { r.Account = "work" }, WhyNoAccount},
		{"undecided account", func(_ *wire.GrantReq, a *store.Account) { a.Digest = wire.Digest{2} }, WhyUndecided},
		{"a login since", func(_ *wire.GrantReq, a *store.Account) { a.Generation++ }, WhyUndecided},
		{"a worker's account", func(_ *wire.GrantReq, a *store.Account) { a.Vendor, a.Workers = "github", []string{"github"} }, WhyNotCustom},
		{"for a worker, of a custom account", func(r *wire.GrantReq, _ *store.Account) { r.Issue, r.Worker, r.Session = "", "github", "run-1" },
			WhyNotListed},
		{"for a worker that was listed", func(r *wire.GrantReq, a *store.Account) {
			r.Issue, r.Worker, r.Session, a.Workers = "", "github", "run-1", []string{"github"}
		}, WhyNotListed},
		{"for nobody", func(r *wire.GrantReq, _ *store.Account) { r.Issue = "" }, WhyMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table, r, a := New(), issuedRequest(), customAccount()
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
}

// Every combination of who asks, with what, when, and in which state of grant, account and surrogates. Few resolve.
func TestResolveIssuedExhaustively(t *testing.T) {
	value, err := surrogate.ShapeOf([]byte(token)).Mint(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	another, err := surrogate.ShapeOf([]byte(token)).Mint(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cells := []variant[string]{
		{"its cell", "work", nil}, {"another cell", "play", []string{WhyOtherCell}},
		{"a cell of a longer name", "work2", []string{WhyOtherCell}}, {"no cell", "", []string{WhyOtherCell}},
	}
	workers := []variant[string]{{"no worker", "", nil}, {"a worker", "github", []string{WhyOtherCell}}}
	surrogates := []variant[string]{
		{"one that was minted", string(value), nil}, {"another", string(another), []string{WhyNotMinted}},
		{"none", "", []string{WhyNotMinted}}, {"the credential itself", token, []string{WhyNotMinted}},
	}
	entries := []variant[int]{{"first", 0, nil}, {"second", 1, []string{WhyNoEntry}}, {"negative", -1, []string{WhyNoEntry}}}
	times := []variant[Now]{
		{"at once", start, nil}, {"in time", at(BorrowWithin - 1), nil}, {"late", at(BorrowWithin), []string{WhyLate}},
		{"late by the wall", Now{at(BorrowWithin).Wall, start.Boot}, []string{WhyLate}},
		{"late by the boot clock", Now{start.Wall.Add(-time.Hour), at(BorrowWithin).Boot}, []string{WhyLate}},
		{"ended", at(5 * time.Minute), []string{WhyExpired}},
	}
	of := []variant[func(*store.Account) *store.Account]{
		{"as decided", func(a *store.Account) *store.Account { return a }, nil},
		{"removed", func(*store.Account) *store.Account { return nil }, []string{WhyNoAccount}},
		{"another", func(a *store.Account) *store.Account { a.Name = "home"; return a }, []string{WhyNoAccount}},
		{"changed", func(a *store.Account) *store.Account { a.Digest[0]++; return a }, []string{WhyUndecided}},
		{"a new login", func(a *store.Account) *store.Account { a.Generation++; return a }, []string{WhyUndecided}},
		{"a worker's now", func(a *store.Account) *store.Account { a.Vendor = "github"; return a }, []string{WhyNotCustom}},
	}
	issues := []variant[string]{{"its issue", "issue-1", nil}, {"revoked, or another", "issue-2", []string{WhyNotMinted}}}
	states := []variant[func(*Table, func() error)]{
		{"granted", func(*Table, func() error) {}, nil},
		{"resolved", func(_ *Table, use func() error) {
			if err := use(); err != nil {
				panic(err)
			}
		}, []string{WhyNoGrant}},
		{"revoked", func(table *Table, _ func() error) { table.Revoke(wire.GrantRef{Grant: "grant-0123456789"}) }, []string{WhyNoGrant}},
		{"its issue revoked", func(table *Table, _ func() error) { table.Revoke(wire.GrantRef{Grant: "issue-1"}) }, []string{WhyNoGrant}},
		{"its cell's revoked", func(table *Table, _ func() error) { table.Revoke(wire.GrantRef{Cell: "work"}) }, []string{WhyNoGrant}},
		{"its account's revoked", func(table *Table, _ func() error) { table.Revoke(wire.GrantRef{Account: "bot"}) }, []string{WhyNoGrant}},
		{"voided", func(table *Table, _ func() error) { table.Void() }, []string{WhyNoGrant}},
		{"others revoked", func(table *Table, _ func() error) {
			table.Revoke(wire.GrantRef{Grant: "issue-2"})
			table.Revoke(wire.GrantRef{Cell: "play"})
		}, nil},
	}
	done, refused := 0, 0
	for _, state := range states {
		for _, cell := range cells {
			for _, worker := range workers {
				for _, sur := range surrogates {
					for _, entry := range entries {
						for _, when := range times {
							for _, acc := range of {
								for _, issue := range issues {
									wrong := slices.Concat(state.refused, cell.refused, worker.refused, sur.refused, entry.refused,
										when.refused, acc.refused, issue.refused)
									table := New()
									if err := table.Add(start, issuedRequest(), customAccount()); err != nil {
										t.Fatal(err)
									}
									minted := func(is *store.Issue, d surrogate.Digest) bool {
										return *is == store.Issue{ID: issue.value, Cell: "work", Account: "bot", Generation: 3, Digest: wire.Digest{1}} &&
											d == surrogate.DigestOf(value)
									}
									state.value(table, func() error {
										own := func(*store.Issue, surrogate.Digest) bool { return true }
										_, err := table.ResolveIssued(start, "work", wire.ResolveReq{Grant: "grant-0123456789", Surrogate: string(value)},
											customAccount(), own)
										return err
									})
									ask := wire.ResolveReq{Grant: "grant-0123456789", Surrogate: sur.value, Worker: worker.value, Entry: entry.value}
									got, err := table.ResolveIssued(when.value, cell.value, ask, acc.value(customAccount()), minted)
									name := fmt.Sprintf("%s, %s, %s, surrogate: %s, entry: %s, %s, account %s, %s", state.name, cell.name,
										worker.name, sur.name, entry.name, when.name, acc.name, issue.name)
									if len(wrong) > 0 {
										refused++
										if err == nil || got.Call != "" || !slices.Contains(wrong, why(err)) {
											t.Fatalf("%s: %v, want one of %q", name, err, wrong)
										}
										continue
									}
									done++
									if err != nil || got.Call != "request-1" || got.Cell != "work" || got.Account != "bot" || got.Generation != 3 ||
										got.Secret != "" || got.Placement.Prefix != "Bot " || got.Entry.Host != "discord.com" || string(got.CA) != "ca" {
										t.Fatalf("%s: %+v, %v", name, got, err)
									}
									if _, err := table.ResolveIssued(start, "work", ask, customAccount(), minted); why(err) != WhyNoGrant {
										t.Fatalf("%s: a second time: %v", name, err)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if done != 4 { // two states, two times
		t.Errorf("%d resolved", done)
	}
	t.Logf("%d combinations refused", refused)
}

// A grant of an issue is resolved as often as it has uses. A guess at a surrogate takes one too: the request that it came with is
// over.
func TestIssuedUses(t *testing.T) {
	value, err := surrogate.ShapeOf([]byte(token)).Mint(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	table, r := New(), issuedRequest()
	r.Entries[0].Uses = 3
	if err := table.Add(start, r, customAccount()); err != nil {
		t.Fatal(err)
	}
	ask := wire.ResolveReq{Grant: r.Grant, Surrogate: string(value)}
	for i, known := range []bool{true, false, true} {
		_, err := table.ResolveIssued(start, "work", ask, customAccount(), func(*store.Issue, surrogate.Digest) bool { return known })
		if known != (err == nil) || !known && why(err) != WhyNotMinted {
			t.Errorf("use %d: %v", i, err)
		}
	}
	if _, err := table.ResolveIssued(start, "work", ask, customAccount(), func(*store.Issue, surrogate.Digest) bool { return true }); why(err) != WhyNoGrant {
		t.Errorf("one use more: %v", err)
	}
	if table.ofAll != 0 || len(table.grants) != 0 {
		t.Errorf("kept: %v", table.grants)
	}
}

// The two kinds of grants and the two kinds of egress: each way that is not its own is refused, and takes nothing away.
func TestAnEgressResolvesItsKindOnly(t *testing.T) {
	yes := func(*store.Issue, surrogate.Digest) bool { return true }
	value, err := surrogate.ShapeOf([]byte(token)).Mint(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	table := New()
	if err := table.Add(start, issuedRequest(), customAccount()); err != nil {
		t.Fatal(err)
	}
	ask := wire.ResolveReq{Grant: "grant-0123456789", Surrogate: string(value)}
	for _, worker := range []string{"", "custom", "github", "work"} {
		ask.Worker = worker
		if _, _, err := table.Resolve(start, ask, customAccount()); why(err) != WhyOtherWorker {
			t.Errorf("egress of workers, as %q: %v", worker, err)
		}
		b := wire.BorrowReq{Grant: ask.Grant, Cell: "work"}
		if _, err := table.Borrow(start, worker, b, customAccount(), rand.Reader); why(err) != WhyOtherWorker {
			t.Errorf("borrowed as %q: %v", worker, err)
		}
	}
	ask.Worker = ""
	if _, err := table.ResolveIssued(start, "work", ask, customAccount(), yes); err != nil {
		t.Errorf("control: %v", err)
	}

	table = New()
	if err := table.Add(start, request(), account()); err != nil {
		t.Fatal(err)
	}
	lent, err := table.Borrow(start, "github", borrowing(), account(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ask = wire.ResolveReq{Grant: "grant-0123456789", Surrogate: lent.Surrogate}
	for _, worker := range []string{"", "github"} {
		ask.Worker = worker
		if _, err := table.ResolveIssued(start, "work", ask, account(), yes); why(err) != WhyOtherCell {
			t.Errorf("a cell's egress, with a worker's grant, as %q: %v", worker, err)
		}
	}
	if _, _, err := table.Resolve(start, ask, account()); err != nil {
		t.Errorf("control: %v", err)
	}
}

// A cell has as many requests allowed as it likes, and sends with them what only looks like a surrogate, or goes away. It must take
// neither another cell's grants nor a worker's. Control: without the bounds of issues the table is full then.
func TestACellFillsItsOwnShareOfTheTable(t *testing.T) {
	no := func(*store.Issue, surrogate.Digest) bool { return false }
	value, err := surrogate.ShapeOf([]byte(token)).Mint(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := func(cell string, n int) wire.GrantReq {
		r := issuedRequest()
		r.Cell, r.Grant = cell, fmt.Sprintf("grant-of-%s-%08d", cell, n)
		return r
	}
	table := New()
	for n := range MaxGrants { // each answered: it is over, whatever the answer
		r := of("work", n)
		if err := table.Add(start, r, customAccount()); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		ask := wire.ResolveReq{Grant: r.Grant, Surrogate: string(value)}
		if _, err := table.ResolveIssued(start, "work", ask, customAccount(), no); why(err) != WhyNotMinted {
			t.Fatalf("%d: %v", n, err)
		}
		if _, err := table.ResolveIssued(start, "work", ask, customAccount(), func(*store.Issue, surrogate.Digest) bool { return true }); why(err) != WhyNoGrant {
			t.Fatalf("a second guess: %v", err)
		}
	}
	kept := 0
	for n := range MaxGrants { // never asked for
		if err := table.Add(start, of("work", n), customAccount()); err == nil {
			kept++
		} else if why(err) != WhyFull {
			t.Fatal(err)
		}
	}
	if kept != MaxOfCell {
		t.Errorf("one cell has %d", kept)
	}
	if err := table.Add(start, of("play", 0), customAccount()); err != nil {
		t.Errorf("another cell: %v", err)
	}
	for c := range MaxGrants / MaxOfCell {
		for n := range MaxOfCell {
			_ = table.Add(start, of(fmt.Sprint("cell", c), n), customAccount())
		}
	}
	if len(table.grants) != MaxIssued {
		t.Errorf("all cells have %d", len(table.grants))
	}
	if err := table.Add(start, request(), account()); err != nil {
		t.Errorf("a worker: %v", err)
	}
	table.Expire(at(BorrowWithin))
	if err := table.Add(start, of("work", 0), customAccount()); err != nil || table.ofAll != 1 || len(table.issued) != 1 {
		t.Errorf("afterwards: %v, %d of %v", err, table.ofAll, table.issued)
	}

	open := New()
	for n := range MaxGrants {
		r := of("work", n)
		open.grants[r.Grant] = &grant{GrantReq: r, end: at(time.Hour), due: at(time.Hour)}
	}
	if err := open.Add(start, request(), account()); why(err) != WhyFull {
		t.Errorf("control: a worker beside %d grants of one cell: %v", len(open.grants), err)
	}
}
