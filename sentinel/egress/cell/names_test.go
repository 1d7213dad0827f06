// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/sentinel/egress/guard"
)

var quiet = slog.New(slog.DiscardHandler)

func openNames(t testing.TB, dir string) *Names {
	t.Helper()
	n, err := OpenNames(dir, 7, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func host(t testing.TB, s string) guard.Host {
	t.Helper()
	h, err := guard.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestEachNameKeepsItsOwnAddressesOverRestarts(t *testing.T) {
	dir := t.TempDir()
	n := openNames(t, dir)
	seen, given := map[netip.Addr]string{}, map[string][2]netip.Addr{}
	for i := range namesAMinute {
		name := fmt.Sprintf("n%d.test", i)
		v4, v6, err := n.Of(host(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []netip.Addr{v4, v6} {
			if seen[a] != "" || !InPool(a) || a == Gate4 || a == Gate6 {
				t.Errorf("%s gets %s, which %q has", name, a, seen[a])
			}
			seen[a] = name
		}
		given[name] = [2]netip.Addr{v4, v6}
	}
	if v4, v6 := given["n0.test"][0], given["n0.test"][1]; v4.String() != "198.18.0.2" || v6.String() != "fd00:d00d::2" {
		t.Errorf("the first has %s, %s", v4, v6)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = openNames(t, dir)
	for a, name := range seen {
		if got, ok := n.Name(a); !ok || got != name {
			t.Errorf("after a restart %s is %q, was %q", a, got, name)
		}
	}
	for name, a := range given {
		if v4, v6, err := n.Of(host(t, name)); err != nil || a != [2]netip.Addr{v4, v6} {
			t.Errorf("after a restart %s has %s, %s, %v, had %v", name, v4, v6, err, a)
		}
	}
	for _, a := range []string{"198.18.0.0", "198.18.0.1", "198.18.99.1", "198.20.0.2", "fd00:d00d::1", "fd00:d00d::1:0:2",
		"fd00:d00d::1:2:3", "fd00:d00d:0:1::2", "93.184.215.14"} {
		if name, ok := n.Name(netip.MustParseAddr(a)); ok {
			t.Errorf("%s is %q", a, name)
		}
	}
}

func TestTheWholePoolIsReadBack(t *testing.T) {
	for _, i := range []uint32{0, 1, firstName, 255, 256, 65535, 65536, firstName + maxNames - 1} {
		for _, pool := range []netip.Prefix{pool4, pool6} {
			a := nth(pool, i)
			if got, ok := number(a); !pool.Contains(a) || !ok || got != i {
				t.Errorf("%d is %s is %d", i, a, got)
			}
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	n := openNames(t, t.TempDir())
	var refused int
	for i := range 2 * namesAMinute {
		if _, _, err := n.Of(host(t, fmt.Sprintf("x%d.test", i))); errors.Is(err, errTooFast) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 || len(n.list) > namesAMinute+20 {
		t.Errorf("%d names at once, %d refused", len(n.list), refused)
	}
	if _, _, err := n.Of(host(t, "x0.test")); err != nil {
		t.Errorf("an old name: %v", err)
	}
	n.allow = bucket{most: 1 << 30, every: time.Nanosecond}
	long := strings.Repeat(strings.Repeat("a", 60)+".", 3) + "test" // until their bytes are used up
	var err error
	for i := 0; err == nil && i <= maxNames; i++ {
		_, _, err = n.Of(host(t, fmt.Sprintf("y%d.%s", i, long)))
	}
	if !errors.Is(err, errTooManyNames) || n.bytes > maxNameBytes || len(n.list) > maxNames {
		t.Errorf("%d names of %d bytes: %v", len(n.list), n.bytes, err)
	}
	info, err := n.file.f.Stat()
	if err != nil || info.Size() > int64(maxNamesFile) || info.Size() != n.file.size {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	if _, _, err := n.Of(guard.Host{}); err == nil {
		t.Error("no name has an address")
	}
	if _, _, err := n.Of(host(t, "192.0.2.1")); err == nil {
		t.Error("an address has an address")
	}
}

func TestTheBucketFillsAgain(t *testing.T) {
	b := bucket{most: 2, every: time.Second}
	at := time.Unix(1000, 0)
	for i, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {0, true}, {0, false}, {999 * time.Millisecond, false}, {time.Millisecond, true}, {0, false},
		{time.Hour, true}, {0, true}, {0, false}, {-time.Hour, false}} {
		at = at.Add(step.after)
		if got := b.take(at); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

func TestATableOfAnotherNetworkIsDropped(t *testing.T) {
	dir := t.TempDir()
	n := openNames(t, dir)
	first, _, err := n.Of(host(t, "a.test"))
	if err != nil {
		t.Fatal(err)
	}
	_ = n.Close()
	if n, err = OpenNames(dir, 8, quiet); err != nil {
		t.Fatal(err)
	}
	if name, ok := n.Name(first); ok {
		t.Errorf("%s is still %s", first, name)
	}
	if a, _, err := n.Of(host(t, "b.test")); err != nil || a != first {
		t.Errorf("the first name of a new network has %s, %v", a, err)
	}
	_ = n.Close()
	if n, err = OpenNames(dir, 8, quiet); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if name, ok := n.Name(first); !ok || name != "b.test" {
		t.Errorf("after a restart %s is %q", first, name)
	}
}

func TestOneEgressHasTheTable(t *testing.T) {
	dir := t.TempDir()
	openNames(t, dir)
	if _, err := OpenNames(dir, 7, quiet); err == nil {
		t.Error("opened twice")
	}
	if _, err := OpenNames("", 7, quiet); err == nil {
		t.Error("opened nowhere")
	}
}

var testHead = namesHeadOf(7)

func line(name string) string { return nameSum(name) + " " + name + "\n" }

func TestTheTablesFileIsReadStrictly(t *testing.T) {
	a, b := line("a.test"), line("b.test")
	for _, c := range []struct {
		what, file string
		want       []string
		good       int // -1: an error
	}{
		{"nothing", "", nil, 0},
		{"a part of the first line", testHead[:7], nil, 0},
		{"no names", testHead, nil, len(testHead)},
		{"two", testHead + a + b, []string{"a.test", "b.test"}, len(testHead + a + b)},
		{"torn", testHead + a + b[:len(b)-3], []string{"a.test"}, len(testHead + a)},
		{"torn before its line feed", testHead + a + b[:len(b)-1], []string{"a.test"}, len(testHead + a)},
		{"zeros, as a loss of power leaves them", testHead + a + strings.Repeat("\x00", 100), []string{"a.test"}, len(testHead + a)},
		{"a wrong line before a right one", testHead + "x\n" + a, nil, -1},
		{"a changed name", testHead + strings.Replace(a, "a.test", "c.test", 1) + b, nil, -1},
		{"the same twice", testHead + a + a, nil, -1},
		{"another version", strings.Replace(testHead, "1", "2", 1) + a, nil, -1},
		{"no network", "doorward names 1\n" + a, nil, -1},
		{"a network in capitals", "doorward names 1 00000000000000AF\n" + a, nil, -1},
		{"a first line cut off in its network", testHead[:20], nil, 0},
		{"no version", a, nil, -1},
		{"not canonical", testHead + line("A.test") + a, nil, -1},
		{"a final dot", testHead + line("a.test.") + a, nil, -1},
		{"an address", testHead + line("127.0.0.1") + a, nil, -1},
		{"too long", strings.Repeat("x", maxNamesFile+1), nil, -1},
	} {
		network, list, good, err := parseNames([]byte(c.file))
		if want := uint64(7); good > 0 && network != want || good <= 0 && network != 0 {
			t.Errorf("%s: network %d", c.what, network)
		}
		if (err != nil) != (c.good < 0) || err == nil && (good != c.good || !slices.Equal(list, c.want)) || err != nil && list != nil {
			t.Errorf("%s: %q, %d, %v", c.what, list, good, err)
		}
	}
}

func TestATornTailIsDroppedAndWrittenOver(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "names")
	if err := os.WriteFile(path, []byte(testHead+line("a.test")+"0123"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := openNames(t, dir)
	if _, _, err := n.Of(host(t, "b.test")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != testHead+line("a.test")+line("b.test") {
		t.Errorf("%q, %v", b, err)
	}
	_ = n.Close()
	if err := os.WriteFile(path, []byte("something else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNames(dir, 7, quiet); !errors.Is(err, errNamesFile) {
		t.Errorf("a foreign file: %v", err)
	}
}

func FuzzNamesFile(f *testing.F) {
	f.Add([]byte(testHead + line("a.test") + line("b-_.test")))
	f.Add([]byte(testHead + line("a.test") + "0123"))
	f.Add([]byte("doorward"))
	f.Fuzz(func(t *testing.T, b []byte) {
		network, list, good, err := parseNames(b)
		if err != nil {
			if list != nil || good != 0 || network != 0 {
				t.Errorf("an error with a list")
			}
			return
		}
		want := ""
		if good > 0 {
			want = namesHeadOf(network)
		}
		for _, name := range list {
			want += line(name)
		}
		if want != string(b[:good]) {
			t.Errorf("%q read, %q written", b[:good], want)
		}
	})
}
