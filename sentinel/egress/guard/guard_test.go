// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// scripted answers lookups in order, the last one for ever, and counts them.
type scripted struct {
	mu      sync.Mutex
	answers map[string][][]netip.Addr
	asked   []string
}

func (s *scripted) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, host)
	list := s.answers[host]
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(list) > 1 {
		s.answers[host] = list[1:]
	}
	return list[0], nil
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func just(a netip.AddrPort) []netip.AddrPort { return []netip.AddrPort{a} }

func noOwn() ([]netip.Addr, error) { return nil, nil }

// listen opens a loopback listener that counts the connections it gets.
func listen(t *testing.T, addr string) (netip.AddrPort, *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("loopback skipped: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var n atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			_ = c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort(), &n
}

func TestEveryRangeAndSpelling(t *testing.T) {
	var none []netip.AddrPort
	for _, c := range []struct {
		addr   string
		public bool
		permit bool // a permit for exactly this address opens it
	}{
		{"93.184.215.14", true, true},
		{"1.1.1.1", true, true},
		{"223.255.255.255", true, true},
		{"2606:4700::1111", true, true},
		{"2a00:1450:4001::200e", true, true},
		{"64:ff9b::5db8:d70e", true, true},   // NAT64 of a public address
		{"::ffff:93.184.215.14", true, true}, // mapped public

		{"0.0.0.0", false, false}, {"0.1.2.3", false, false},
		{"10.0.0.1", false, true}, {"10.255.255.255", false, true},
		{"100.64.0.1", false, true}, {"100.127.255.255", false, true}, {"100.100.100.200", false, false},
		{"100.63.255.255", true, true}, {"100.128.0.0", true, true},
		{"127.0.0.1", false, true}, {"127.0.0.2", false, true}, {"127.255.255.255", false, true},
		{"168.63.129.16", false, false}, {"168.63.129.17", true, true},
		{"169.254.0.1", false, false}, {"169.254.169.254", false, false}, {"169.254.170.2", false, false},
		{"172.16.0.1", false, true}, {"172.31.255.255", false, true},
		{"172.15.255.255", true, true}, {"172.32.0.0", true, true},
		{"192.0.0.1", false, false}, {"192.0.0.192", false, false}, {"192.0.0.9", false, false},
		{"192.0.1.1", true, true}, {"192.0.2.1", false, false},
		{"192.31.196.1", false, false}, {"192.52.193.1", false, false}, {"192.88.99.1", false, false},
		{"192.168.0.1", false, true}, {"192.175.48.1", false, false},
		{"198.18.0.1", false, false}, {"198.19.255.255", false, false}, {"198.51.100.7", false, false},
		{"203.0.113.1", false, false}, {"224.0.0.1", false, false}, {"239.255.255.250", false, false},
		{"240.0.0.1", false, false}, {"255.255.255.255", false, false},

		{"::", false, false}, {"::1", false, true},
		{"::127.0.0.1", false, false}, {"::8.8.8.8", false, false},
		{"::ffff:127.0.0.1", false, true}, {"::ffff:7f00:1", false, true},
		{"::ffff:169.254.169.254", false, false}, {"::ffff:a9fe:a9fe", false, false},
		{"::ffff:10.0.0.1", false, true}, {"::ffff:0:a9fe:a9fe", false, false}, {"::ffff:0:5db8:d70e", false, false},
		{"64:ff9b::a9fe:a9fe", false, false}, {"64:ff9b::7f00:1", false, true}, {"64:ff9b::a00:1", false, true},
		{"64:ff9b:1::1", false, false}, {"64:ff9b:1:ffff::5db8:d70e", false, false}, {"64:ff9b:2::1", false, false},
		{"64:ff9b::1:5db8:d70e", false, false},
		{"100::1", false, false}, {"100:0:0:1::1", false, false},
		{"2001::1", false, false}, {"2001:0:4136:e378:8000:63bf:3fff:fdd2", false, false},
		{"2001:1::1", false, false}, {"2001:2::1", false, false}, {"2001:3::1", false, false},
		{"2001:4:112::1", false, false}, {"2001:10::1", false, false}, {"2001:20::1", false, false},
		{"2001:30::1", false, false}, {"2001:1ff:ffff::1", false, false}, {"2001:200::1", true, true},
		{"2001:db8::1", false, false},
		{"2002:a9fe:a9fe::1", false, false}, {"2002:7f00:1::", false, false}, {"2002:5db8:d70e::1", false, false},
		{"2620:4f:8000::1", false, false}, {"3fff::1", false, false}, {"3fff:fff::1", false, false},
		{"5f00::1", false, false}, {"4000::1", false, false}, {"1::1", false, false}, {"8000::1", false, false},
		{"fc00::1", false, true}, {"fd12:3456::1", false, true}, {"fd00:ec2::254", false, false},
		{"fd20:ce::254", false, false}, {"fd00:c1::a9fe:a9fe", false, false}, {"fd00:42::42", false, false},
		{"fe80::1", false, false}, {"fe80::1%eth0", false, false}, {"febf::1", false, false},
		{"fec0::1", false, false}, {"feff::1", false, false},
		{"ff02::1", false, false}, {"ff0e::1", false, false},
		{"2a00:1450::5efe:7f00:1", false, false}, {"2a00:1450::200:5efe:a00:1", false, false},
		{"2606:4700::1%eth0", false, false},
	} {
		a := netip.AddrPortFrom(netip.MustParseAddr(c.addr), 443)
		if err := Check(a, none, nil); (err == nil) != c.public || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want public %v", c.addr, err, c.public)
		}
		if err := Check(a, just(a), nil); (err == nil) != c.permit {
			t.Errorf("%s permitted: %v, want %v", c.addr, err, c.permit)
		}
		if c.public {
			if err := Check(a, none, addrs(Unwrap(a.Addr()).String())); !errors.Is(err, ErrRefused) {
				t.Errorf("%s as our own address: %v, want refusal", c.addr, err)
			}
		}
		if u := Unwrap(a.Addr()); Unwrap(u) != u {
			t.Errorf("%s: Unwrap is not idempotent", c.addr)
		}
	}
	if err := Check(netip.AddrPort{}, none, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("zero address: %v", err)
	}
}

func TestPermitOpensExactlyOneAddressAndPort(t *testing.T) {
	permit := netip.MustParseAddrPort("192.168.7.5:5232")
	other := netip.MustParseAddrPort("10.0.0.1:443")
	for addr, want := range map[string]bool{
		"192.168.7.5:5232":              true,
		"[::ffff:192.168.7.5]:5232":     true, // the same address, written longer
		"192.168.7.5:443":               false,
		"192.168.7.5:22":                false,
		"192.168.7.6:5232":              false,
		"127.0.0.1:5232":                false,
		"[64:ff9b::c0a8:705]:5232":      false, // the same number behind somebody's NAT64
		"[2002:c0a8:705::1]:5232":       false,
		"[::192.168.7.5]:5232":          false,
		"169.254.169.254:5232":          false,
		"[fd00:ec2::254]:5232":          false,
		"[::ffff:169.254.169.254]:5232": false,
	} {
		err := Check(netip.MustParseAddrPort(addr), []netip.AddrPort{other, permit}, nil)
		if (err == nil) != want {
			t.Errorf("%s: %v, want allowed %v", addr, err, want)
		}
	}
	own := addrs("192.168.7.5")
	if err := Check(permit, just(permit), own); err != nil {
		t.Errorf("a server of the operator's on this very machine: %v", err)
	}
}

func TestCase_EG01_WrappedPrivateAddresses(t *testing.T) {
	forms := []string{
		"::ffff:169.254.169.254", "::ffff:7f00:1", "::127.0.0.1", "64:ff9b::a9fe:a9fe",
		"2002:a9fe:a9fe::1", "fec0::1", "100.64.0.1", "64:ff9b:1::a9fe:a9fe", "2001::1", "ff02::1", "fd00::1",
	}
	dns := &scripted{answers: map[string][][]netip.Addr{}}
	for i, f := range forms {
		dns.answers[string(rune('a'+i))+".test."] = [][]netip.Addr{addrs(f)}
	}
	dns.answers["zone.test."] = [][]netip.Addr{{netip.MustParseAddr("fe80::1%eth0")}}
	dns.answers["mixed.test."] = [][]netip.Addr{addrs("93.184.215.14", "127.0.0.1")}
	d := Dialer{Resolver: dns, Own: noOwn}
	refused := func(host string) {
		t.Helper()
		to, err := ParseAuthority(host, 443)
		if err != nil {
			return // refused already as written
		}
		conn, err := d.Dial(t.Context(), to, nil)
		if conn != nil || !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, %v, want refusal", host, conn, err)
		}
	}
	for i, f := range forms {
		refused("[" + f + "]")
		refused(string(rune('a'+i)) + ".test")
	}
	refused("[fe80::1%25eth0]")
	refused("[fe80::1%eth0]")
	refused("zone.test")
	refused("mixed.test")
	if want := len(forms) + 2; len(dns.asked) != want {
		t.Errorf("%d lookups, want %d: an address must not be looked up", len(dns.asked), want)
	}

	// Control: without the guard the wrapped loopback address connects.
	at, hits := listen(t, "127.0.0.1:0")
	conn, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr("::ffff:127.0.0.1"), at.Port()).String())
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	_ = conn.Close()
	_, err = d.Dial(t.Context(), Authority{Host{addr: netip.MustParseAddr("::ffff:127.0.0.1")}, at.Port()}, nil)
	if !errors.Is(err, ErrRefused) {
		t.Errorf("guarded: %v", err)
	}
	if n := hits.Load(); n > 1 {
		t.Errorf("%d connections, want the control's only", n)
	}
}

func TestCase_EG02_RebindingBetweenCheckAndDial(t *testing.T) {
	up, hitsUp := listen(t, "127.0.0.2:0")
	evil := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), up.Port())
	dns := &scripted{answers: map[string][][]netip.Addr{"rb.test.": {{up.Addr()}, {evil.Addr()}}}}
	d := Dialer{Resolver: dns, Own: noOwn}
	rb := Authority{Host{name: "rb.test"}, up.Port()}
	conn, err := d.Dial(t.Context(), rb, just(up))
	if err != nil {
		t.Fatal(err)
	}
	if got := conn.RemoteAddr().String(); got != up.String() {
		t.Errorf("dialled %s, judged %s", got, up)
	}
	_ = conn.Close()
	if len(dns.asked) != 1 {
		t.Errorf("%d lookups for one dial", len(dns.asked))
	}
	// The next dial sees the rebound answer and judges that one.
	if conn, err = d.Dial(t.Context(), rb, just(up)); conn != nil || !errors.Is(err, ErrRefused) {
		t.Errorf("rebound: %v, %v", conn, err)
	}
	_ = hitsUp

	// A refused connection is not retried by name: the list of the one lookup is all there is.
	dead := netip.MustParseAddrPort("127.0.0.3:1")
	dns = &scripted{answers: map[string][][]netip.Addr{"rb.test.": {{dead.Addr()}, {evil.Addr()}}}}
	d.Resolver = dns
	if conn, err = d.Dial(t.Context(), Authority{rb.Host, 1}, just(dead)); conn != nil || err == nil {
		t.Errorf("dead server: %v, %v", conn, err)
	}
	if len(dns.asked) != 1 {
		t.Errorf("%d lookups after a refused connection", len(dns.asked))
	}

	// The hook refuses whatever was not judged, even when the judging was skipped.
	for _, c := range []struct{ network, address string }{
		{"tcp4", evil.String()}, {"tcp4", "169.254.169.254:80"}, {"udp4", up.String()}, {"tcp4", "nonsense"},
	} {
		if err := control(c.network, c.address, up, just(up), nil); !errors.Is(err, ErrRefused) {
			t.Errorf("hook with %v: %v", c, err)
		}
	}
	if err := control("tcp4", up.String(), up, just(up), nil); err != nil {
		t.Errorf("hook with the judged address: %v", err)
	}
	// One that would be let through by itself is refused too where another was judged.
	public, judged := netip.MustParseAddrPort("93.184.215.14:443"), netip.MustParseAddrPort("93.184.215.15:443")
	if err := control("tcp4", public.String(), judged, nil, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("hook with a public address that was not judged: %v", err)
	}
	if err := control("tcp4", public.String(), public, nil, nil); err != nil {
		t.Errorf("hook with a public address that was judged: %v", err)
	}
	meta := netip.MustParseAddrPort("169.254.169.254:80")
	if err := control("tcp4", meta.String(), meta, just(meta), nil); !errors.Is(err, ErrRefused) {
		t.Errorf("hook with metadata: %v", err)
	}
}

func TestCase_EG03_MetadataByLesserKnownNames(t *testing.T) {
	dns := &scripted{answers: map[string][][]netip.Addr{
		"metadata.google.internal.": {addrs("169.254.169.254")},
		"allowed.test.":             {addrs("fd00:ec2::254")},
	}}
	d := Dialer{Resolver: dns, Own: noOwn}
	for _, host := range []string{
		"[fd00:ec2::254]", "169.254.170.2", "169.254.169.254", "100.100.100.200", "metadata.google.internal.",
		"192.0.0.192", "168.63.129.16", "allowed.test", "[fd20:ce::254]", "2852039166", "0xa9fea9fe", "169.254.43518",
		"0251.0376.0251.0376", "169.254.169.254.",
	} {
		to, err := ParseAuthority(host, 80)
		if err != nil {
			if !errors.Is(err, ErrHost) {
				t.Errorf("%s: %v", host, err)
			}
			continue
		}
		// Not even a permit for that very address opens it.
		for _, permit := range []string{"169.254.169.254:80", "[fd00:ec2::254]:80", "192.0.0.192:80", "100.100.100.200:80",
			"169.254.170.2:80", "168.63.129.16:80", "[fd20:ce::254]:80"} {
			conn, err := d.Dial(t.Context(), to, just(netip.MustParseAddrPort(permit)))
			if conn != nil || !errors.Is(err, ErrRefused) {
				t.Errorf("%s with permit %s: %v, %v", host, permit, conn, err)
			}
		}
	}
}

func TestCase_EG04_OneFormForOneHost(t *testing.T) {
	for in, want := range map[string]string{
		"bad.test": "bad.test:443", "BAD.test": "bad.test:443", "bad.test.": "bad.test:443",
		"bad.test:443": "bad.test:443", "Bad.Test.:443": "bad.test:443", "bad.test:8443": "bad.test:8443",
		"[::1]": "[::1]:443", "[0:0:0:0:0:0:0:1]:443": "[::1]:443", "[::FFFF:1.2.3.4]": "1.2.3.4:443",
		"1.2.3.4": "1.2.3.4:443", "xn--bcher-kva.test": "xn--bcher-kva.test:443", "a_b.test": "a_b.test:443",
	} {
		a, err := ParseAuthority(in, 443)
		if err != nil || a.String() != want {
			t.Errorf("%q: %q, %v, want %q", in, a, err, want)
			continue
		}
		again, err := ParseAuthority(a.Header(), 443)
		if err != nil || again != a {
			t.Errorf("%q: header form %q reads back as %q, %v", in, a.Header(), again, err)
		}
	}
	for _, in := range []string{
		"", ".", "..", "bad.test..", "bad..test", ".bad.test", "bad.test:", "bad.test:0", "bad.test:00443", "bad.test:+443",
		"bad.test:65536", "bad.test:99999", "bad.test:443:443", "bad.test:x", "user@bad.test", "bad test", "bad\ttest",
		"bad.test\n", "bad.test\x00", "b\u00e4d.test", "bad\u3002test", "-bad.test", "bad-.test", "1.2.3", "1.2.3.4.5",
		"127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.01", "1.2.3.4.", "bad.0x", "bad.123",
		"[::1", "::1]", "[bad.test]", "[1.2.3.4]", "::1:443:x", "[::1%eth0]", "[::1%25eth0]", "[]", "[::1]x", "%62ad.test",
		strings.Repeat("a", 64) + ".test", strings.Repeat("a.", 127) + "test", "*.test", "bad.test/", "bad\\.test",
	} {
		if a, err := ParseAuthority(in, 443); err == nil || !errors.Is(err, ErrHost) || a != (Authority{}) {
			t.Errorf("%q: read as %q, %v, want refusal", in, a, err)
		}
	}
}

func TestCase_EG06_OneParserForAddresses(t *testing.T) {
	for _, in := range []string{
		`http://127.0.0.1:9\@198.51.100.7/`, "https://vendor-a.test@evil.test/", "https://evil.test#@vendor-a.test/",
		`https:/\evil.test`, "https://ven\tdor-a.test", "https:///evil.test", "https:evil.test", "//evil.test/", "/x", "",
		"http://vendor-a.test/", "ftp://vendor-a.test/", "https://vendor-a.test:x/", "https://u:p@vendor-a.test/",
		`https://vendor-a.test\.evil.test/`, "https://vendor-a.test/a b", "https://vendor-a.test/\r\nX: 1",
		"https://vendor-a.test/%zz", "https://vendor-a.test/%", "https://vendor-a.test/#f", "https://vendor-a.test/\u00e4",
		"https://vendor-a.test/a\\b", " https://vendor-a.test/", "https://vendor-a.test/<x>", "https://?x", "https://",
		"https://vendor-a.test/" + strings.Repeat("a", MaxURL),
	} {
		if u, err := ParseURL(in); err == nil || u != (URL{}) {
			t.Errorf("%q: read as %q, want refusal", in, u)
		}
	}
	for in, want := range map[string]string{
		"https://vendor-a.test":           "https://vendor-a.test/",
		"HTTPS://Vendor-A.test.:443/a%2f": "https://vendor-a.test/a%2f",
		"https://vendor-a.test:8443?q=/":  "https://vendor-a.test:8443/?q=/",
		"https://[::1]:8443/a?b?c":        "https://[::1]:8443/a?b?c",
		"https://vendor-a.test/a?":        "https://vendor-a.test/a?",
		"https://vendor-a.test/@x:y":      "https://vendor-a.test/@x:y",
	} {
		u, err := ParseURL(in)
		if err != nil || u.String() != want {
			t.Errorf("%q: %q, %v, want %q", in, u, err, want)
		}
	}
}

func TestOwnAddresses(t *testing.T) {
	own, err := OwnAddrs()
	if err != nil || len(own) == 0 {
		t.Fatalf("own addresses: %v, %v", own, err)
	}
	d := Dialer{Own: func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }}
	to := Authority{Host{addr: netip.MustParseAddr("93.184.215.14")}, 443}
	if conn, err := d.Dial(t.Context(), to, nil); conn != nil || err == nil {
		t.Errorf("dial without knowing the own addresses: %v, %v", conn, err)
	}
}

func TestRaceTakesTheAddressThatAnswers(t *testing.T) {
	up, _ := listen(t, "127.0.0.1:0")
	// 127.0.0.9 has no listener on that port and fails at once; the other is taken.
	d := Dialer{Own: noOwn}
	list := addrs("127.0.0.9", "127.0.0.1")
	permitAll := Authority{Host{name: "x.test"}, up.Port()}
	// Only one address can be permitted, so the first fails in the hook: also a failure that must not end the race.
	conn, err := d.race(t.Context(), permitAll, list, just(up))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if conn.RemoteAddr().String() != up.String() {
		t.Errorf("connected to %s", conn.RemoteAddr())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := d.race(ctx, permitAll, list, just(up)); conn != nil || err == nil {
		t.Errorf("after cancel: %v, %v", conn, err)
	}
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{
		"vendor-a.test", "A.test.:443", "[::ffff:7f00:1]:1", "127.1", "0x7f.1", "https://a.test/%2f?x#y", "a..b", "::1",
		"[fe80::1%25eth0]", "xn--a.test", "1.2.3.4", "user@host", "https://a.test:1\\@b.test/", "https://[::1]/",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := ParseAuthority(s, 443); err != nil {
			if a != (Authority{}) {
				t.Fatal("value returned with error")
			}
		} else {
			for _, form := range []string{a.String(), a.Header()} {
				b, err := ParseAuthority(form, 443)
				if err != nil || b != a {
					t.Fatalf("%q: not canonical: %q reads as %q, %v", s, form, b, err)
				}
			}
			if host, _, err := net.SplitHostPort(a.String()); err != nil || host != a.Host.String() {
				t.Fatalf("%q: the standard library reads %q: %q, %v", s, a, host, err)
			}
			if !a.Host.Addr().IsValid() && net.ParseIP(a.Host.String()) != nil {
				t.Fatalf("%q: a name that reads as an address", s)
			}
		}
		if u, err := ParseURL(s); err != nil {
			if u != (URL{}) {
				t.Fatal("value returned with error")
			}
		} else if again, err := ParseURL(u.String()); err != nil || again != u {
			t.Fatalf("%q: not canonical: %q reads as %q, %v", s, u, again, err)
		}
	})
}
