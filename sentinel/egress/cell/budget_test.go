// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

func TestMeter(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		limit int64
		uses  []time.Duration // when
		n     int64
		want  string // y or n for each
	}{
		"no limit":            {0, []time.Duration{0, 0, 0}, 1, "yyy"},
		"so many at once":     {2, []time.Duration{0, 0, 0}, 1, "yyn"},
		"one comes back":      {2, []time.Duration{0, 0, 29 * time.Second, 31 * time.Second, 31 * time.Second}, 1, "yynyn"},
		"all come back":       {2, []time.Duration{0, 0, time.Minute, time.Minute, time.Minute}, 1, "yyyyn"},
		"the last goes over":  {100, []time.Duration{0, 0, time.Minute, 61 * time.Second}, 150, "ynyn"},
		"a clock is set back": {1, []time.Duration{0, -time.Hour, -time.Hour + 61*time.Second}, 1, "yny"},
	} {
		var m meter
		got := ""
		for _, at := range c.uses {
			if _, ok := m.take(start.Add(at), c.n, c.limit, time.Minute); ok {
				got += "y"
			} else {
				got += "n"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestBudgets(t *testing.T) {
	now := time.Unix(1000, 0)
	fresh := func() *budgets { return &budgets{now: func() time.Time { return now }} }
	given := func(site, cell wire.Spend) *wire.Budget { return &wire.Budget{Site: site, Cell: cell} }
	refused := func(t *testing.T, e *wire.Error, words ...string) {
		t.Helper()
		if e == nil || e.Code != wire.CodeTooMany {
			t.Fatalf("not refused: %v", e)
		}
		for _, w := range words {
			if !strings.Contains(e.Reason+" "+e.Next, w) {
				t.Errorf("%v does not say %q", e, w)
			}
		}
	}
	t.Run("connections of a site", func(t *testing.T) {
		b := fresh()
		g := given(wire.Spend{Conns: 1}, wire.Spend{})
		if e := b.open("a", g); e != nil {
			t.Fatal(e)
		}
		refused(t, b.open("a", g), "a has its 1 connections")
		if e := b.open("b", g); e != nil {
			t.Errorf("another site's: %v", e)
		}
		b.close("a")
		if e := b.open("a", g); e != nil {
			t.Errorf("after one ended: %v", e)
		}
	})
	t.Run("connections of the cell", func(t *testing.T) {
		b := fresh()
		g := given(wire.Spend{}, wire.Spend{Conns: 2})
		for _, s := range []string{"a", "b"} {
			if e := b.open(s, g); e != nil {
				t.Fatal(e)
			}
		}
		refused(t, b.open("c", g), "this cell")
	})
	t.Run("requests", func(t *testing.T) {
		b := fresh()
		_ = b.open("a", given(wire.Spend{Requests: 3}, wire.Spend{Requests: 4}))
		for range 3 {
			if e := b.request("a"); e != nil {
				t.Fatal(e)
			}
		}
		refused(t, b.request("a"), "a has used its 3 requests", "in 20s")
		_ = b.open("b", given(wire.Spend{Requests: 3}, wire.Spend{Requests: 4}))
		if e := b.request("b"); e != nil {
			t.Fatal(e)
		}
		refused(t, b.request("b"), "this cell", "in 15s")
		now = now.Add(20 * time.Second)
		if e := b.request("a"); e != nil {
			t.Errorf("after the time it said: %v", e)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		b := fresh()
		_ = b.open("a", given(wire.Spend{Out: 1000}, wire.Spend{}))
		if e := b.send("a", 1500); e != nil {
			t.Fatal(e)
		}
		refused(t, b.send("a", 1), "bytes of an hour", "in 30m")
		now = now.Add(31 * time.Minute)
		if e := b.send("a", 1); e != nil {
			t.Errorf("after the time it said: %v", e)
		}
	})
	t.Run("a budget that is taken away", func(t *testing.T) {
		b := fresh()
		_ = b.open("a", given(wire.Spend{Conns: 1}, wire.Spend{}))
		if e := b.open("a", nil); e != nil {
			t.Error(e)
		}
	})
	t.Run("many sites", func(t *testing.T) {
		b := fresh()
		for i := range maxSpending + 100 {
			s := fmt.Sprint("s", i)
			_ = b.open(s, nil)
			b.close(s)
			now = now.Add(2 * time.Hour)
		}
		if len(b.sites) > maxSpending {
			t.Errorf("%d sites are counted", len(b.sites))
		}
	})
}
