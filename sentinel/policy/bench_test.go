// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// fleet is n connectors of 20 methods, and a person's file with two rules of their own for each.
func fleet(tb testing.TB, n, own int) *Set {
	tb.Helper()
	var descs []*describe.Connector
	var toml, cedar strings.Builder
	for i := range n {
		c := &describe.Connector{Vendor: fmt.Sprintf("vendor%02d", i), Title: "Vendor", Check: "read-00"}
		for j := range 10 {
			c.Methods = append(c.Methods, method(fmt.Sprintf("read-%02d", j), "read", "none", "+repo:repo r", "max:int d10"))
		}
		for j := range 10 {
			c.Methods = append(c.Methods, method(fmt.Sprintf("write-%02d", j), "write", "people", "+repo:repo r =destination",
				"title:string r", "+to:email *10 =recipient", "body:text"))
		}
		if _, err := c.Seal(); err != nil {
			tb.Fatal(err)
		}
		descs = append(descs, c)
		fmt.Fprintf(&toml, "[connector.%s]\nsetting = \"ask-before-changes\"\n[connector.%s.method]\nread-01 = \"ask\"\n"+
			"write-01 = \"off\"\nwrite-02 = \"ask\"\n", c.Vendor, c.Vendor)
		for k := range own {
			fmt.Fprintf(&cedar, "@decision(\"ask\") forbid (principal, action in Action::%q, resource)\n"+
				"when { context.hour < %d && context.arguments.repo like \"acme/*\" } unless { context.approved };\n", c.Vendor, k)
		}
	}
	s, err := Compile(Files{PolicyFile: []byte("organisation = [\"example.org\"]\n" + toml.String()),
		"own.cedar": []byte(cedar.String())}, descs)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// BenchmarkDecide200 is the row `decide`: more than 200 policies of 20 connectors, the call an ask, so the engine
// runs twice. BenchmarkDecide10 is its denominator: the policies of one connector, about 10.
func BenchmarkDecide200(b *testing.B) { benchDecide(b, fleet(b, 20, 4), 200) }

func BenchmarkDecide10(b *testing.B) { benchDecide(b, fleet(b, 1, 2), 10) }

func benchDecide(b *testing.B, s *Set, least int) {
	if len(s.rules) < least {
		b.Fatalf("%d policies, want %d", len(s.rules), least)
	}
	c := callOf(b, s, "vendor00", "write-02",
		values("repo=acme/site title=x to=ada@example.org to=bob@example.net body=x"))
	if d := s.Decide(c, nil); d.Verdict != Ask {
		b.Fatalf("%+v", d)
	}
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		s.Decide(c, nil)
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op") // on a busy machine, the one to read
	b.ReportMetric(float64(len(s.rules)), "policies")
}

// cpu is what the process has used so far, in nanoseconds.
func cpu(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkDecideRead is the common call: a read that goes.
func BenchmarkDecideRead(b *testing.B) {
	s := fleet(b, 20, 4)
	c := callOf(b, s, "vendor07", "read-05", values("repo=acme/site"))
	if d := s.Decide(c, nil); d.Verdict != Allow {
		b.Fatalf("%+v", d)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Decide(c, nil)
	}
}

func BenchmarkCompile200(b *testing.B) {
	s := fleet(b, 20, 4)
	for b.Loop() {
		if _, err := Compile(s.files, s.descs); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkConnect is the decision on a connection that a set allows.
func BenchmarkConnect(b *testing.B) {
	s := mustSet(b, someSites)
	x := target(b, "deb.debian.org:443")
	for b.Loop() {
		c := s.ConnectCall(&Connect{Target: x, Begins: wire.BeginsTLS, Cell: "dev", Session: "run-1", Now: testNow})
		if d := s.Decide(c, nil); d.Verdict != Allow {
			b.Fatalf("%+v", d)
		}
	}
}
