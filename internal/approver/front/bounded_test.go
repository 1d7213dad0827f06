// SPDX-License-Identifier: Apache-2.0

package front

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Somebody has all connections of an address, silent or slow, as a stranger on a tunnel's end can: a new one is answered, and it is one
// of the strangers' that ends for it. Control: connections that are kept do not give way, and then the new one is refused.
func TestOneAddressDoesNotTakeAllConnections(t *testing.T) {
	addr := run(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keep" {
			Keep(Conn(r.Context()))
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	ask := func(c net.Conn, path string) error {
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost:8440\r\n\r\n"); err != nil {
			return err
		}
		for end := ""; end != "\r\n\r\n"; {
			b := make([]byte, 1)
			if _, err := io.ReadFull(c, b); err != nil {
				return err
			}
			if end += string(b); len(end) > 4 {
				end = end[1:]
			}
		}
		return nil
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	var strangers []net.Conn
	for i := range OfAddress {
		c := dial()
		switch i % 3 {
		case 0: // silent
		case 1:
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nX: ") // and never the rest
		case 2:
			if err := ask(c, "/"); err != nil { // idle
				t.Fatal(err)
			}
		}
		strangers = append(strangers, c)
	}
	person := dial()
	if err := ask(person, "/keep"); err != nil {
		t.Fatalf("one more is not answered: %v", err)
	}
	if _, err := strangers[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest did not give way")
	}
	for range 3 * OfAddress {
		dial()
	}
	if err := ask(dial(), "/"); err != nil {
		t.Errorf("behind still more: %v", err)
	}
	if err := ask(person, "/"); err != nil {
		t.Errorf("who is known gave way: %v", err)
	}
	kept := []net.Conn{person}
	for range OfAddress - 1 {
		c := dial()
		if err := ask(c, "/keep"); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, c)
	}
	if ask(dial(), "/") == nil {
		t.Error("control: where all are known one more is answered")
	}
	kept[1].Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if ask(dial(), "/") == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the place of one that ended is not given back")
		}
	}
}

func TestWhichConnectionGivesWay(t *testing.T) {
	b := NewBounded(nil, 4, 2)
	of := map[string]*conn{}
	for _, c := range []struct {
		name, addr string
		keep       bool
		refused    bool
		old        string
	}{
		{"a1", "192.0.2.1", true, false, ""},
		{"b1", "192.0.2.2", false, false, ""},
		{"a2", "192.0.2.1", false, false, ""},
		{"a3", "192.0.2.1", false, false, "a2"}, // the oldest of its own address that is not kept
		{"c1", "192.0.2.3", true, false, ""},
		{"d1", "192.0.2.4", true, false, "b1"}, // the oldest of all
		{"a4", "192.0.2.1", true, false, "a3"},
		{"e1", "192.0.2.5", false, true, ""}, // all are kept
		{"a5", "192.0.2.1", false, true, ""},
	} {
		n := &conn{of: b, who: Network(&net.TCPAddr{IP: net.ParseIP(c.addr)})}
		of[c.name] = n
		old, ok := b.admit(n)
		if old != of[c.old] || ok == c.refused {
			t.Errorf("%s: %v gave way, in: %t", c.name, old, ok)
		}
		if c.keep {
			Keep(n)
		}
	}
	if len(b.all) != 4 || !slices.Contains(b.all, of["a1"]) || Kept(of["a5"]) || !Kept(of["a4"]) {
		t.Errorf("%d are left", len(b.all))
	}
}

func TestWhatIsOneAddress(t *testing.T) {
	at := func(s string) netip.Prefix { return Network(&net.TCPAddr{IP: net.ParseIP(s), Port: 1}) }
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"2001:db8::1", "2001:db8::ffff:2", true}, {"2001:db8::1", "2001:db8:0:1::1", false}, {"::ffff:192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false}, {"127.0.0.1", "::1", false},
	} {
		if got := at(c.a) == at(c.b); got != c.same {
			t.Errorf("%s and %s are one: %t", c.a, c.b, got)
		}
	}
}
