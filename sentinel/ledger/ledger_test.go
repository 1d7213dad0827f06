// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"
)

var testKey = ed25519.NewKeyFromSeed(make([]byte, 32))

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// newDir makes a folder for a ledger, private as systemd's StateDirectoryMode=0700 makes it.
func newDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openAt(t testing.TB, dir string) (*Ledger, *Recovery) {
	t.Helper()
	l, rec, err := Open(t.Context(), Options{Dir: dir, Key: testKey, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return l, rec
}

func closeNow(t testing.TB, l *Ledger) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func write(cell, title string) Call {
	canon, _ := json.Marshal(map[string]string{"title": title})
	return Call{Frame: Frame{
		ID: NewID(), Cell: cell, Session: "s1", Connector: "github", Account: "me", Login: 1, Method: "issue-create",
		Class: "write", Reach: "space", Sensitive: true, Canonical: canon, Hash: hexSum(canon), Dedup: cell + hexSum(canon),
		Approval: hexSum(append([]byte("approval"), canon...)), Decision: "ask", Policy: "default",
	}}
}

func read(cell string) Call {
	c := write(cell, "r")
	c.Class, c.Method, c.Reach, c.Sensitive, c.Dedup, c.Decision = "read", "issues", "none", false, "", "allow"
	c.Labels = []string{"untrusted"}
	return c
}

func TestACallGoesItsWay(t *testing.T) {
	ctx := context.Background()
	dir := newDir(t)
	l, rec := openAt(t, dir)
	if !rec.Fresh || !rec.Clean || rec.Suspect != "" {
		t.Fatalf("recovery of a new ledger: %+v", rec)
	}
	c := write("alpha", "one")
	c.Deadline = l.now().Add(time.Hour)
	got, joined, err := l.Park(ctx, c, "cell:alpha")
	if err != nil || joined {
		t.Fatal(joined, err)
	}
	again := write("alpha", "one")
	same, joined, err := l.Park(ctx, again, "cell:alpha")
	if err != nil || !joined || same.ID != got.ID {
		t.Fatal("an equal call did not join:", same.ID, joined, err)
	}
	if _, err := l.Approve(ctx, Approval{ID: c.ID, By: "person:1000", Hash: "other"}); !errors.Is(err, ErrChanged) {
		t.Fatal("approved another hash:", err)
	}
	if _, err := l.Approve(ctx, Approval{ID: c.ID, By: "person:1000", Hash: c.Approval, Scope: "once"}); err != nil {
		t.Fatal(err)
	}
	var se *StateError
	if _, err := l.Approve(ctx, Approval{ID: c.ID, By: "person:1001", Hash: c.Approval}); !errors.As(err, &se) ||
		se.Have != Approved || se.By != "person:1000" {
		t.Fatal("a second approval:", err)
	}
	if _, err := l.Execute(ctx, c.ID, "pass1"); err != nil {
		t.Fatal(err)
	}
	for want := range 2 {
		before, _ := l.Head()
		_, err := l.Tell(ctx, "pass1", Told{Release: &Release{Pass: "pass1", Seq: 1}})
		if after, _ := l.Head(); err != nil || (after > before) != (want == 0) {
			t.Fatal(after, before, err)
		}
	}
	if _, err := l.Tell(ctx, "pass1", Told{Sent: &Sent{Pass: "pass1", Host: "api.github.com", Status: 201, Out: 10, In: 20}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(ctx, c.ID, Outcome{State: Done, Object: "issue/1", Result: "ref"}, "worker:github"); err != nil {
		t.Fatal(err)
	}
	in, err := l.Calls(ctx, Filter{Cell: "alpha", Inbox: true})
	if err != nil || len(in) != 1 {
		t.Fatal(in, err)
	}
	if _, err := l.Collect(ctx, c.ID, "beta"); !errors.Is(err, ErrNotFound) {
		t.Fatal("another cell collected:", err)
	}
	if _, err := l.Collect(ctx, c.ID, "alpha"); err != nil {
		t.Fatal(err)
	}
	if in, _ = l.Calls(ctx, Filter{Cell: "alpha", Inbox: true}); len(in) != 0 {
		t.Fatal("still in the inbox")
	}
	hist, err := l.Entries(ctx, Query{Call: c.ID})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, e := range hist {
		types = append(types, e.Type)
	}
	if s := fmt.Sprint(types); s != "[park join approve execute released sent finish collect]" {
		t.Fatal(s)
	}
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		if st, err := e.Info(); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Error("others can read", e.Name(), st.Mode(), err)
		}
	}
	closeNow(t, l)
	l, rec = openAt(t, dir)
	if !rec.Clean || rec.Suspect != "" || len(rec.Executing) != 0 {
		t.Fatalf("%+v", rec)
	}
	c2, err := l.Call(ctx, c.ID)
	if err != nil || c2.State != Done || c2.Object != "issue/1" || c2.Status != 201 {
		t.Fatalf("%+v %v", c2, err)
	}
}

func TestGrantsCountAndGiveBack(t *testing.T) {
	ctx := context.Background()
	l, _ := openAt(t, newDir(t))
	g, err := l.AddGrant(ctx, Grant{Cell: "a", Connector: "github", Method: "issue-create", Kind: KindUntil, Uses: 1,
		Until: l.now().Add(time.Hour)}, "person:1")
	if err != nil {
		t.Fatal(err)
	}
	c := write("a", "x")
	c.Under, c.Pass = g.ID, "p"
	if _, _, err := l.Begin(ctx, c, "cell:a"); err != nil {
		t.Fatal(err)
	}
	d := write("a", "y")
	d.Under = g.ID
	if _, _, err := l.Begin(ctx, d, "cell:a"); !errors.Is(err, ErrSpent) {
		t.Fatal("used twice:", err)
	}
	if _, err := l.Finish(ctx, c.ID, Outcome{State: Failed, NotRun: true, Code: "unavailable"}, "sentinel"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Begin(ctx, d, "cell:a"); err != nil {
		t.Fatal("the use was not given back:", err)
	}
	if gs := l.Grants(GrantFilter{Cell: "a"}); len(gs) != 1 || gs[0].Used != 1 || gs[0].State != GrantSpent {
		t.Fatalf("%+v", gs)
	}
}

func TestReadsLabelAndCount(t *testing.T) {
	ctx := context.Background()
	dir := newDir(t)
	l, _ := openAt(t, dir)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			c := read("a")
			c.Pass = c.ID
			tk := l.Start(ctx, c, "cell:a")
			if len(l.Labels("a")) != 1 {
				t.Error("the label is not on the cell yet")
			}
			tk.Go()
			if _, err := l.Tell(ctx, c.ID, Told{Sent: &Sent{Pass: c.ID, Status: 200, In: 7}}); err != nil {
				t.Error(err)
			}
			if _, err := l.Finish(ctx, c.ID, Outcome{State: Done}, "worker:github"); err != nil {
				t.Error(err)
			}
			if err := tk.Wait(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := l.Reads("s1", "github"); n != (ReadCount{50, 350}) {
		t.Fatal(n)
	}
	closeNow(t, l)
	l, _ = openAt(t, dir)
	if n := l.Reads("s1", "github"); n != (ReadCount{50, 350}) {
		t.Fatal("after a restart:", n)
	}
	if lb := l.Labels("a"); len(lb) != 1 || lb[0].Causes[0].Method != "issues" {
		t.Fatal(lb)
	}
}
