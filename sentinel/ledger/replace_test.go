// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"testing"
)

// A call takes another's place whole, or nothing of it happens.
func TestReplace(t *testing.T) {
	ctx := context.Background()
	ask := func(c Call) Call {
		c.Approval = "hash of " + c.Hash
		return c
	}
	for _, x := range []struct {
		name string
		want error
		// before does what came between; hash is what the person saw of the old one.
		before func(t *testing.T, l *Ledger, old Call) (hash string)
	}{
		{"control", nil, func(_ *testing.T, _ *Ledger, old Call) string { return old.Approval }},
		{"it is another", ErrChanged, func(*testing.T, *Ledger, Call) string { return "another" }},
		{"no hash", ErrChanged, func(*testing.T, *Ledger, Call) string { return "" }},
		{"denied", ErrState, func(t *testing.T, l *Ledger, old Call) string {
			if _, err := l.Deny(ctx, old.ID, "person:1", ""); err != nil {
				t.Fatal(err)
			}
			return old.Approval
		}},
		{"approved", ErrState, func(t *testing.T, l *Ledger, old Call) string {
			if _, err := l.Approve(ctx, Approval{ID: old.ID, By: "person:1", Hash: old.Approval, Scope: KindOnce}); err != nil {
				t.Fatal(err)
			}
			return old.Approval
		}},
		{"its like waits", ErrEqual, func(t *testing.T, l *Ledger, old Call) string {
			if _, _, err := l.Park(ctx, ask(write("a", "new")), "cell:a"); err != nil {
				t.Fatal(err)
			}
			return old.Approval
		}},
		{"its like may have run", ErrEqual, func(t *testing.T, l *Ledger, old Call) string {
			c := write("a", "new")
			c.Pass = "p"
			if _, _, err := l.Begin(ctx, c, "cell:a"); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Finish(ctx, c.ID, Outcome{State: Unknown}, "sentinel"); err != nil {
				t.Fatal(err)
			}
			return old.Approval
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			l, _ := tester(t)
			old, _, err := l.Park(ctx, ask(write("a", "old")), "cell:a")
			if err != nil {
				t.Fatal(err)
			}
			hash := x.before(t, l, old)
			c := ask(write("a", "new"))
			was, got, err := l.Replace(ctx, old.ID, hash, c, Approval{ID: c.ID, By: "passkey:ada", Hash: c.Approval, Scope: KindOnce})
			if !errors.Is(err, x.want) {
				t.Fatal(err)
			}
			now, err := l.Call(ctx, old.ID)
			if err != nil {
				t.Fatal(err)
			}
			if x.want == nil {
				if was.State != Revoked || now.Successor != c.ID || !now.NotRun || got.State != Approved || got.Approver != "passkey:ada" || !got.Inbox {
					t.Errorf("%+v %+v", now, got)
				}
				if w := l.Waiting(); len(w) != 1 || w[0].ID != c.ID {
					t.Errorf("%+v waits", w)
				}
				return
			}
			if now.State == Revoked || now.Successor != "" {
				t.Errorf("the old one is %s", now.State)
			}
			if _, err := l.Call(ctx, c.ID); !errors.Is(err, ErrNotFound) {
				t.Errorf("the new one is on record: %v", err)
			}
		})
	}
	t.Run("a yes to something else", func(t *testing.T) {
		l, _ := tester(t)
		old, _, err := l.Park(ctx, ask(write("a", "old")), "cell:a")
		if err != nil {
			t.Fatal(err)
		}
		c := ask(write("a", "new"))
		if _, _, err := l.Replace(ctx, old.ID, old.Approval, c, Approval{ID: c.ID, By: "passkey:ada", Hash: old.Approval, Scope: KindOnce}); !errors.Is(err, ErrChanged) {
			t.Fatal(err)
		}
		if now, err := l.Call(ctx, old.ID); err != nil || now.State != Parked { // what had been done of it is undone
			t.Errorf("%s, %v", now.State, err)
		}
	})
}
