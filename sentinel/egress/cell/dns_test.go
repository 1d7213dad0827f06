// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/doorward/doorward/sentinel/egress/guard"
	"golang.org/x/net/dns/dnsmessage"
)

// question is a DNS message that asks; change may alter it.
func question(t testing.TB, name string, kind dnsmessage.Type, change ...func(*dnsmessage.Message)) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(name)
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}}}
	for _, f := range change {
		f(&m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fixed gives each name the same addresses, and says which it was asked for.
func fixed(asked *[]string) lookup {
	return func(h guard.Host) (netip.Addr, netip.Addr, error) {
		*asked = append(*asked, h.String())
		if h.String() == "full.test" {
			return netip.Addr{}, netip.Addr{}, errTooManyNames
		}
		return netip.MustParseAddr("198.18.0.7"), netip.MustParseAddr("fd00:d00d::7"), nil
	}
}

func TestEG10_QuestionsAreAnsweredFromHere(t *testing.T) {
	type kind = dnsmessage.Type
	edns := func(m *dnsmessage.Message) {
		var h dnsmessage.ResourceHeader
		_ = h.SetEDNS0(4096, 0, true)
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	for _, c := range []struct {
		what, name string
		kind       kind
		change     func(*dnsmessage.Message)
		code       dnsmessage.RCode
		answer     string // empty: none
		asked      string
	}{
		{"A", "vendor-a.test.", dnsmessage.TypeA, nil, 0, "198.18.0.7", "vendor-a.test"},
		{"AAAA", "vendor-a.test.", dnsmessage.TypeAAAA, nil, 0, "fd00:d00d::7", "vendor-a.test"},
		{"EDNS", "vendor-a.test.", dnsmessage.TypeA, edns, 0, "198.18.0.7", "vendor-a.test"},
		{"case", "VenDor-A.tEst.", dnsmessage.TypeA, nil, 0, "198.18.0.7", "vendor-a.test"},
		{"an underscore", "_a.b_.test.", dnsmessage.TypeA, nil, 0, "198.18.0.7", "_a.b_.test"},
		{"one label", "printer.", dnsmessage.TypeA, nil, 0, "198.18.0.7", "printer"},
		{"data in a name", strings.Repeat("4a6f", 15) + ".evil.test.", dnsmessage.TypeA, nil, 0, "198.18.0.7",
			strings.Repeat("4a6f", 15) + ".evil.test"},
		{"localhost", "localhost.", dnsmessage.TypeA, nil, 0, "127.0.0.1", ""},
		{"below localhost", "app.localhost.", dnsmessage.TypeAAAA, nil, 0, "::1", ""},
		{"TXT", "4a6f.evil.test.", dnsmessage.TypeTXT, nil, 0, "", ""},
		{"NULL", "4a6f.evil.test.", 10, nil, 0, "", ""},
		{"MX", "evil.test.", dnsmessage.TypeMX, nil, 0, "", ""},
		{"NS", "evil.test.", dnsmessage.TypeNS, nil, 0, "", ""},
		{"SOA", "evil.test.", dnsmessage.TypeSOA, nil, 0, "", ""},
		{"SRV", "_x._tcp.evil.test.", dnsmessage.TypeSRV, nil, 0, "", ""},
		{"HTTPS", "vendor-a.test.", 65, nil, 0, "", ""},
		{"SVCB", "vendor-a.test.", 64, nil, 0, "", ""},
		{"ANY", "vendor-a.test.", dnsmessage.TypeALL, nil, 0, "", ""},
		{"AXFR", "vendor-a.test.", dnsmessage.TypeAXFR, nil, 0, "", ""},
		{"PTR", "7.0.18.198.in-addr.arpa.", dnsmessage.TypePTR, nil, 0, "", ""},
		{"another class", "vendor-a.test.", dnsmessage.TypeA,
			func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }, 0, "", ""},
		{"the root", ".", dnsmessage.TypeA, nil, 0, "", ""},
		{"an address", "127.0.0.1.", dnsmessage.TypeA, nil, 0, "", ""},
		{"a number that somebody reads as an address", "0x7f.1.", dnsmessage.TypeA, nil, 0, "", ""},
		{"a blank", "a b.test.", dnsmessage.TypeA, nil, 0, "", ""},
		{"a NUL", "a\x00.vendor-a.test.", dnsmessage.TypeA, nil, 0, "", ""},
		{"bytes above ASCII", "v\xc3\xa9ndor.test.", dnsmessage.TypeA, nil, 0, "", ""},
		{"a percent sign", "a%2e.test.", dnsmessage.TypeA, nil, 0, "", ""},
		{"a hyphen first", "-a.test.", dnsmessage.TypeA, nil, 0, "", ""},
		{"no room", "full.test.", dnsmessage.TypeA, nil, dnsmessage.RCodeServerFailure, "", "full.test"},
		{"two questions", "vendor-a.test.", dnsmessage.TypeA,
			func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }, dnsmessage.RCodeFormatError, "", ""},
		{"no question", "vendor-a.test.", dnsmessage.TypeA,
			func(m *dnsmessage.Message) { m.Questions = nil }, dnsmessage.RCodeFormatError, "", ""},
		{"an update", "vendor-a.test.", dnsmessage.TypeA,
			func(m *dnsmessage.Message) { m.OpCode = 5 }, dnsmessage.RCodeNotImplemented, "", ""},
	} {
		var asked []string
		change := c.change
		if change == nil {
			change = func(*dnsmessage.Message) {}
		}
		msg := question(t, c.name, c.kind, change)
		var m dnsmessage.Message
		if err := m.Unpack(answer(msg, fixed(&asked))); err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		got := ""
		for _, a := range m.Answers {
			switch b := a.Body.(type) {
			case *dnsmessage.AResource:
				got += netip.AddrFrom4(b.A).String()
			case *dnsmessage.AAAAResource:
				got += netip.AddrFrom16(b.AAAA).String()
			}
			if a.Header.TTL != answerTTL || a.Header.Name.String() != c.name {
				t.Errorf("%s: %v", c.what, a.Header)
			}
		}
		if m.RCode != c.code || got != c.answer || strings.Join(asked, " ") != c.asked || !m.Response || m.ID != 7 ||
			!m.RecursionDesired || len(m.Authorities) > 0 {
			t.Errorf("%s: %v, asked for %q", c.what, m, asked)
		}
		if withEDNS := c.what == "EDNS"; (len(m.Additionals) == 1) != withEDNS {
			t.Errorf("%s: additional %v", c.what, m.Additionals)
		}
		if m.RCode == dnsmessage.RCodeNameError {
			t.Errorf("%s: says that there is no such name", c.what)
		}
	}
}

func TestNoAnswerToAnAnswer(t *testing.T) {
	var asked []string
	for _, msg := range [][]byte{nil, {1}, make([]byte, 11), question(t, "a.test.", dnsmessage.TypeA,
		func(m *dnsmessage.Message) { m.Response = true }), make([]byte, maxQuestion+1)} {
		if out := answer(msg, fixed(&asked)); out != nil {
			t.Errorf("%x is answered with %x", msg, out)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(question(f, "vendor-a.test.", dnsmessage.TypeA))
	f.Add(question(f, "a\x00b.test.", dnsmessage.TypeAAAA))
	f.Add([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}) // a name that points to itself
	f.Fuzz(func(t *testing.T, msg []byte) {
		var asked []string
		out := answer(msg, fixed(&asked))
		if out == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(out); err != nil || !m.Response || len(out) > maxAnswer || out[0] != msg[0] || out[1] != msg[1] {
			t.Errorf("%x is answered with %x: %v", msg, out, err)
		}
		if m.RCode == dnsmessage.RCodeNameError || len(m.Answers) > 1 || len(asked) > 1 {
			t.Errorf("%x is answered with %v", msg, m)
		}
		for _, name := range asked {
			if h, err := guard.ParseHost(name); err != nil || h.String() != name || h.Addr().IsValid() {
				t.Errorf("asked for %q", name)
			}
		}
	})
}
