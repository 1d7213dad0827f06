// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

func httpFront(t testing.TB, head string) front {
	t.Helper()
	f, _, err := classify([]byte(strings.ReplaceAll(head, "\n", "\r\n")), true)
	if err != nil || f.begins != wire.BeginsHTTP {
		t.Fatalf("%q: %+v, %v", head, f, err)
	}
	return f
}

func at(t testing.TB, authority string) target {
	t.Helper()
	if authority == "" {
		return target{port: 3128}
	}
	a, err := guard.ParseAuthority(authority, 0)
	if err != nil {
		t.Fatal(err)
	}
	return target{a.Host, a.Port}
}

func tlsFront(name string) front {
	return front{begins: wire.BeginsTLS, hello: hello{Name: name}}
}

// EG-04, EG-05, EG-07, EG-08: what a connection says it is for is what its address stands for, or it goes nowhere.
func TestEG07_AllNamesAgree(t *testing.T) {
	const get = "GET / HTTP/1.1\nHost: "
	h := func(head string) front { return httpFront(t, head+"\n\n") }
	for _, c := range []struct {
		what string
		to   string // the address stands for; empty is the gate
		f    front
		want string // where it goes; empty: refused
	}{
		{"SNI", "vendor-a.test:443", tlsFront("vendor-a.test"), "vendor-a.test:443"},
		{"SNI in capitals", "vendor-a.test:443", tlsFront("VENDOR-a.test"), "vendor-a.test:443"},
		{"no SNI", "vendor-a.test:443", tlsFront(""), "vendor-a.test:443"},
		{"another SNI", "vendor-a.test:443", tlsFront("evil.test"), ""},
		{"SNI below", "vendor-a.test:443", tlsFront("x.vendor-a.test"), ""},
		{"SNI above", "x.vendor-a.test:443", tlsFront("vendor-a.test"), ""},
		{"a look-alike in front", "vendor-a.test:443", tlsFront("notvendor-a.test"), ""},
		{"a look-alike behind", "vendor-a.test:443", tlsFront("vendor-a.test.evil.test"), ""},
		{"SNI with a final dot", "vendor-a.test:443", tlsFront("vendor-a.test."), "vendor-a.test:443"},
		{"SNI with two", "vendor-a.test:443", tlsFront("vendor-a.test.."), ""},
		{"SNI with a port", "vendor-a.test:443", tlsFront("vendor-a.test:443"), ""},
		{"SNI with a NUL", "vendor-a.test:443", tlsFront("vendor-a.test\x00.evil.test"), ""},
		{"SNI with a percent sign", "vendor-a.test:443", tlsFront("vendor%2da.test"), ""},
		{"SNI above ASCII", "vendor-a.test:443", tlsFront("vendör-a.test"), ""},
		{"SNI that is an address", "vendor-a.test:443", tlsFront("93.184.215.14"), ""},
		{"an address and no SNI", "93.184.215.14:443", tlsFront(""), "93.184.215.14:443"},
		{"EG-08 an address and SNI", "93.184.215.14:443", tlsFront("vendor-a.test"), ""},
		{"TLS to the gate", "", tlsFront("vendor-a.test"), ""},
		{"other to the gate", "", front{begins: wire.BeginsOther}, ""},
		{"other", "vendor-a.test:22", front{begins: wire.BeginsOther}, "vendor-a.test:22"},

		{"Host", "vendor-a.test:80", h(get + "vendor-a.test"), "vendor-a.test:80"},
		{"Host in capitals", "vendor-a.test:80", h(get + "Vendor-A.Test"), "vendor-a.test:80"},
		{"Host with a final dot", "vendor-a.test:80", h(get + "vendor-a.test."), "vendor-a.test:80"},
		{"Host with two", "vendor-a.test:80", h(get + "vendor-a.test.."), ""},
		{"Host with its port", "vendor-a.test:80", h(get + "vendor-a.test:80"), "vendor-a.test:80"},
		{"Host with another port", "vendor-a.test:80", h(get + "vendor-a.test:8080"), ""},
		{"Host with an odd port", "vendor-a.test:80", h(get + "vendor-a.test:080"), ""},
		{"another Host", "vendor-a.test:80", h(get + "evil.test"), ""},
		{"user info", "vendor-a.test:80", h(get + "vendor-a.test@evil.test"), ""},
		{"user info the other way", "vendor-a.test:80", h(get + "evil.test@vendor-a.test"), ""},
		{"a backslash", "vendor-a.test:80", h(get + `vendor-a.test\.evil.test`), ""},
		{"a list of hosts", "vendor-a.test:80", h(get + "vendor-a.test, evil.test"), ""},
		{"brackets", "vendor-a.test:80", h(get + "[vendor-a.test]"), ""},
		{"no Host in 1.0", "vendor-a.test:80", h("GET / HTTP/1.0"), "vendor-a.test:80"},
		{"an address and Host", "93.184.215.14:80", h(get + "93.184.215.14"), "93.184.215.14:80"},
		{"an address and a name", "93.184.215.14:80", h(get + "vendor-a.test"), ""},
		{"an address and another", "93.184.215.14:80", h(get + "93.184.215.15"), ""},
		{"IPv6", "[2606:4700::1]:8080", h(get + "[2606:4700:0::1]:8080"), "[2606:4700::1]:8080"},
		{"OPTIONS *", "vendor-a.test:80", h("OPTIONS * HTTP/1.1\nHost: vendor-a.test"), "vendor-a.test:80"},
		{"no path", "vendor-a.test:80", h("GET a HTTP/1.1\nHost: vendor-a.test"), ""},
		{"absolute", "vendor-a.test:80", h("GET http://vendor-a.test/ HTTP/1.1\nHost: vendor-a.test"), "vendor-a.test:80"},
		{"absolute and another Host", "vendor-a.test:80", h("GET http://vendor-a.test/ HTTP/1.1\nHost: evil.test"), ""},
		{"another absolute", "vendor-a.test:80", h("GET http://evil.test/ HTTP/1.1\nHost: vendor-a.test"), ""},
		{"absolute, another port", "vendor-a.test:8080", h("GET http://vendor-a.test/ HTTP/1.1\nHost: vendor-a.test"), ""},
		{"CONNECT elsewhere", "vendor-a.test:443", h("CONNECT vendor-a.test:443 HTTP/1.1\nHost: vendor-a.test:443"), ""},

		{"by proxy", "", h("GET http://vendor-a.test/a HTTP/1.1\nHost: vendor-a.test"), "vendor-a.test:80"},
		{"by proxy, port", "", h("GET http://vendor-a.test:81/a HTTP/1.1\nHost: vendor-a.test:81"), "vendor-a.test:81"},
		{"by proxy, another Host", "", h("GET http://vendor-a.test/a HTTP/1.1\nHost: evil.test"), ""},
		{"by proxy, https", "", h("GET https://vendor-a.test/a HTTP/1.1\nHost: vendor-a.test"), ""},
		{"by proxy, user info", "", h("GET http://vendor-a.test@evil.test/ HTTP/1.1\nHost: evil.test"), ""},
		{"by proxy, a query for a path", "", h("GET http://vendor-a.test?x HTTP/1.1\nHost: vendor-a.test"), ""},
		{"by proxy, a fragment", "", h("GET http://evil.test#@vendor-a.test/ HTTP/1.1\nHost: evil.test"), ""},
		{"by proxy, a backslash", "", h(`GET http:/\evil.test HTTP/1.1` + "\nHost: evil.test"), ""},
		{"by proxy, an address of the pool", "", h("GET http://198.18.0.5/ HTTP/1.1\nHost: 198.18.0.5"), ""},
		{"by proxy, loopback", "", h("GET http://127.0.0.1/ HTTP/1.1\nHost: 127.0.0.1"), ""},
		{"CONNECT", "", h("CONNECT vendor-a.test:443 HTTP/1.1\nHost: vendor-a.test:443"), "vendor-a.test:443"},
		{"CONNECT without port", "", h("CONNECT vendor-a.test HTTP/1.1\nHost: vendor-a.test"), ""},
		{"CONNECT and another Host", "", h("CONNECT vendor-a.test:443 HTTP/1.1\nHost: evil.test"), ""},
		{"CONNECT with a body", "", h("CONNECT vendor-a.test:443 HTTP/1.1\nHost: vendor-a.test:443\nContent-Length: 5"), ""},
		{"CONNECT to the pool", "", h("CONNECT [fd00:d00d::9]:443 HTTP/1.1\nHost: x"), ""},
		{"the gate's list", "", h(get + "198.18.0.1"), "198.18.0.1"},
	} {
		a, refusal := agree(at(t, c.to), c.f)
		switch {
		case refusal != nil && c.want != "":
			t.Errorf("%s: %v", c.what, refusal)
		case refusal == nil && c.want == "":
			t.Errorf("%s: goes to %s", c.what, a.to)
		case refusal == nil && a.to.String() != c.want:
			t.Errorf("%s: goes to %s, want %s", c.what, a.to, c.want)
		case refusal != nil && refusal.Reason == "":
			t.Errorf("%s: no reason", c.what)
		}
	}
}

func TestWhatAnAddressIs(t *testing.T) {
	names := map[string]string{"198.18.0.2": "vendor-a.test", "fd00:d00d::2": "vendor-a.test"}
	lookup := func(a netip.Addr) (string, bool) { s, ok := names[a.String()]; return s, ok }
	for addr, want := range map[string]string{
		"198.18.0.2:443": "vendor-a.test:443", "[::ffff:198.18.0.2]:443": "vendor-a.test:443", "[fd00:d00d::2]:80": "vendor-a.test:80",
		"198.18.0.1:3128": "198.18.0.1", "[::ffff:198.18.0.1]:80": "198.18.0.1", "[fd00:d00d::1]:80": "198.18.0.1",
		"198.18.0.3:443": "", "198.19.255.255:443": "", "[fd00:d00d::3]:443": "", "127.0.0.1:15001": "", "[::1]:15001": "",
		"[::ffff:127.0.0.1]:80": "", "0.0.0.0:80": "", "[::]:80": "", "224.0.0.1:80": "", "[ff02::1]:80": "", "[fe80::1%1]:80": "",
		"93.184.215.14:443": "93.184.215.14:443", "169.254.169.254:80": "169.254.169.254:80", "[2606:4700::1]:443": "[2606:4700::1]:443",
	} {
		to, refusal := targetOf(netip.MustParseAddrPort(addr), lookup)
		if (refusal == nil) != (want != "") || refusal == nil && to.String() != want {
			t.Errorf("%s: %s, %v", addr, to, refusal)
		}
	}
}

func TestWhatSentinelIsAsked(t *testing.T) {
	for to, want := range map[string]wire.ConnectReq{
		"vendor-a.test:443": {Name: "vendor-a.test", Port: 443, Begins: wire.BeginsTLS},
		"93.184.215.14:443": {Addr: "93.184.215.14", Port: 443, Begins: wire.BeginsTLS},
	} {
		if got := (agreed{to: at(t, to), begins: wire.BeginsTLS}).req(); *got != want {
			t.Errorf("%s: %+v", to, got)
		}
	}
}
