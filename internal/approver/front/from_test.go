// SPDX-License-Identifier: Apache-2.0

package front

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
)

func TestWhoConnected(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:443": "192.0.2.1:443", "[2001:db8::1]:65535": "[2001:db8::1]:65535", "[::ffff:192.0.2.1]:1": "192.0.2.1:1",
		"[fe80::1%eth0]:1": "[fe80::1]:1",
	} {
		a := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))
		b := AppendFrom(nil, a)
		if got, err := ParseFrom(b); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if got, err := ParseFrom(AppendFrom(nil, &net.UnixAddr{Name: "x"})); err != nil || !got.Addr().IsUnspecified() {
		t.Errorf("no address: %v, %v", got, err)
	}
}

func FuzzParseFrom(f *testing.F) {
	f.Add(AppendFrom(nil, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}))
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		at, err := ParseFrom(b)
		if err != nil {
			if at.IsValid() {
				t.Fatal("an address with an error")
			}
			return
		}
		if again := AppendFrom(nil, net.TCPAddrFromAddrPort(at)); !bytes.Equal(again, b) {
			t.Fatalf("%x is read, and %x written", b, again)
		}
	})
}
