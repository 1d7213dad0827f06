// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// holds checks what must be true of every set, however it was written.
func holds(t *testing.T, s *Set) {
	t.Helper()
	if w := Widens(s, s); len(w) != 0 {
		t.Fatalf("it widens itself: %q", w)
	}
	for _, d := range s.descs {
		for i := range d.Methods {
			m := &d.Methods[i]
			for _, l := range [][]string{nil, {wire.LabelUntrusted}} {
				c := callOf(t, s, d.Vendor, m.Name, values("repo=a/b name=x number=1 body=x title=x calendar=/ada/diary/ "+
					"event=/a/x.ics contact=/a/x.vcf answer=accepted query=x file=00 workflow=x to=eve amount=5"))
				c.Labels = l
				got := s.Decide(c, nil)
				if got.Verdict == Allow && (c.sensitive() || l != nil && m.Class != describe.Read) {
					t.Fatalf("%s %s %v goes unasked: %+v", d.Vendor, m.Name, l, got)
				}
				if s.Off(d.Vendor, m.Name) && got.Verdict != Deny {
					t.Fatalf("%s %s is off and not denied: %+v", d.Vendor, m.Name, got)
				}
				if full := verdictInFull(t, s, c); full != got.Verdict {
					t.Fatalf("%s %s: sliced %s, in full %s", d.Vendor, m.Name, got.Verdict, full)
				}
				s.Explain(c, nil)
			}
		}
		s.List(d.Vendor, Call{Cell: "dev", Account: "home", Now: testNow}, nil)
	}
	for _, site := range []string{"example.org:443", "www.example.org:80", "deb.debian.org:443", "192.0.2.7:443", "other.example:22"} {
		x := target(t, site)
		for _, l := range [][]string{nil, {wire.LabelUntrusted}} {
			d := s.Decide(s.ConnectCall(&Connect{Target: x, Begins: wire.BeginsTLS, Cell: "dev", Labels: l, Now: testNow}), nil)
			if d.Verdict == Allow && !s.Reads(x) && (l != nil || s.siteLevel(x).level != allow) {
				t.Fatalf("%s %v goes unasked: %+v", site, l, d)
			}
			for _, name := range []string{"", "chat"} {
				for _, class := range []string{describe.Read, describe.Write, describe.Destructive} {
					r := &Request{Target: x, Surrogate: name, Route: "send", Class: class, Reach: describe.ReachNone, Method: "POST", Path: "/",
						Cell: "dev", Labels: l, Now: testNow}
					d := s.Decide(s.RequestCall(r), nil)
					if d.Verdict == Allow && (class == describe.Destructive || l != nil && class != describe.Read) {
						t.Fatalf("%s %s %s %v goes unasked: %+v", site, name, class, l, d)
					}
					if name != "" && s.SurrogateOff(name, "send") && d.Verdict != Deny {
						t.Fatalf("%s of %s is off and not denied: %+v", class, name, d)
					}
				}
			}
			if s.siteLevel(x).level == off && x.Name != "" && d.Verdict != Deny {
				t.Fatalf("%s is off and not denied: %+v", site, d)
			}
		}
	}
	s.Check()
	s.Idle(nil)
	s.Idle(Issued{"chat": {"send"}})
}

func FuzzSettings(f *testing.F) {
	for _, seed := range []string{"", dontAsk, methods, everyTime, someSites, string(DefaultPolicy()), string(DefaultLimits()),
		"[surrogate.chat]\nsetting = \"dont-ask\"\n[surrogate.chat.route]\nsend = \"allow\"\nlook = \"off\"\n",
		"[surrogate.chat.route]\nsend = \"off\"\n", readSite + "[budget]\nrequests = 60\n[site.\"read.example\".budget]\nbytes-out = 5\n",
		"connector.github.method = {issues=\"ask\", repos='off'}", "organisation=[\"a.org\"]\nbulk-reads=0x10",
		"\"connector\".'github'.\"s\\u0065tting\" = \"\"\"dont-ask\"\"\""} {
		f.Add(seed, "")
		f.Add(dontAsk, seed)
	}
	descs := testDescs(f)
	f.Fuzz(func(t *testing.T, policy, limits string) {
		s, err := Compile(Files{PolicyFile: []byte(policy)}, descs, []byte(limits))
		if err != nil {
			if s != nil {
				t.Fatal("a set with an error")
			}
			return
		}
		holds(t, s)
		open, err := Compile(Files{PolicyFile: []byte(policy)}, descs)
		if err != nil {
			t.Fatalf("valid under limits and not without: %v", err)
		}
		for vendor, ms := range s.levels {
			for m, l := range ms {
				if l.level > open.levels[vendor][m].level {
					t.Fatalf("limits widen %s %s", vendor, m)
				}
			}
		}
	})
}

func FuzzCedar(f *testing.F) {
	for _, seed := range []string{night, secret, partial, "permit (principal, action, resource);",
		`forbid (principal == Cell::"dev", action in [Action::"dav", Action::"github.issues"], resource is Account
in Connector::"dav")
when { context.recipients.containsAny(["a@x.org"]) || context.time > datetime("2030-01-01") }
unless { context.attended };`,
		`@decision("ask") @id("x") forbid (principal, action, resource) when { if context["private"] then true else
context.arguments has repo && context.arguments.repo like "a*" } unless { context.approved };`,
		`permit (principal, action, resource) when { context has approved };`} {
		f.Add(seed)
	}
	descs := testDescs(f)[1:]
	for _, c := range descs { // few methods, so that a round is short
		c.Methods = slices.DeleteFunc(c.Methods, func(m describe.Method) bool {
			return !slices.Contains([]string{"repos", "repo-create", "comment", "issues", "event-create"}, m.Name)
		})
	}
	bare, err := Compile(Files{PolicyFile: []byte(dontAsk)}, descs)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Compile(Files{PolicyFile: []byte(dontAsk), "own.cedar": []byte(text)}, descs)
		if err != nil {
			if s != nil {
				t.Fatal("a set with an error")
			}
			return
		}
		holds(t, s)
		// Whatever a person's rules are, they let nothing go that would not go without them.
		for _, m := range []string{"repos", "repo-create", "comment"} {
			c := callOf(t, s, "github", m, values("repo=a/b name=x number=1 body=x"))
			if with, without := s.Decide(c, nil).Verdict, bare.Decide(c, nil).Verdict; with == Allow && without != Allow {
				t.Fatalf("%s: %s with own rules, %s without", m, with, without)
			}
		}
	})
}

// FuzzGrant: a grant in any form covers only what it names, within the ceilings, and what Validate returns is a grant
// that it takes again.
func FuzzGrant(f *testing.F) {
	add := func(g wire.Grant, c wire.Frame) {
		gb, err := wire.Marshal(&g)
		if err != nil {
			f.Fatal(err)
		}
		cb, err := wire.Marshal(&c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(gb, cb, false, false)
		f.Add(gb, cb, true, true)
	}
	frame := func(method string, args ...wire.Arg) wire.Frame {
		return wire.Frame{Connector: "github", Method: method, Args: args}
	}
	repo := wire.Arg{Name: "repo", Values: []string{"a/b"}}
	add(grantFor("github comment", "repo=a/b", "number=3"), frame("comment", wire.Arg{Name: "body", Values: []string{"x"}},
		wire.Arg{Name: "number", Values: []string{"3"}}, repo))
	g := grantFor("github repo-create")
	g.Kind, g.Until, g.Tainted = Standing, testNow.Unix()+60, true
	add(g, frame("repo-create", wire.Arg{Name: "name", Values: []string{"x"}}))
	add(grantFor("github issues", "repo=a/b,c/d"), frame("issues", repo))
	add(grantFor("github comment", "repo=a/b", "number*"), frame("comment", wire.Arg{Name: "body", Values: []string{"x"}},
		wire.Arg{Name: "number", Values: []string{"3"}}, repo))
	s, err := Compile(Files{PolicyFile: []byte(dontAsk)}, testDescs(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, gb, fb []byte, tainted, bulk bool) {
		var g wire.Grant
		var frame wire.Frame
		if wire.Unmarshal(gb, &g) != nil || wire.Unmarshal(fb, &frame) != nil {
			return
		}
		d := (&form{descs: s.descs}).connector(frame.Connector)
		if d == nil {
			return
		}
		m, ok := d.Method(frame.Method)
		if !ok {
			return
		}
		v, err := m.Decode(&frame)
		if err != nil {
			return
		}
		c := callOf(t, s, d.Vendor, m.Name, v)
		if tainted {
			c.Labels = []string{wire.LabelUntrusted}
		}
		if bulk {
			c.Reads = 1 << 30
		}
		Sentence(&g, m)
		if kept, err := s.Validate(g, c.Sensitive, testNow); err == nil {
			again, err := s.Validate(kept, c.Sensitive, testNow)
			if err != nil || again.Sentence != kept.Sentence {
				t.Fatalf("kept %+v and then %v", kept, err)
			}
		}
		if ok, _ := s.Covers(&g, c); !ok {
			return
		}
		age := testNow.Unix() - g.Made
		switch {
		case g.Connector != d.Vendor || g.Method != m.Name || g.Account != c.Account || g.Cell != c.Cell:
			t.Fatalf("another's: %+v", g)
		case g.Revoked != 0 || g.Count > 0 && g.Used >= g.Count || age < 0:
			t.Fatalf("spent: %+v", g)
		case c.Sensitive && (tainted || g.Kind == Standing || len(g.Limits) == 0):
			t.Fatalf("sensitive: %+v", g)
		case tainted && !g.Tainted, bulk && m.Class == describe.Read && g.Count == 0:
			t.Fatalf("not for that: %+v", g)
		case g.Kind == Session && (g.Session != c.Session || age >= 12*hour):
			t.Fatalf("session: %+v", g)
		case (g.Kind == Until || g.Kind == Standing) && (g.Until <= testNow.Unix() || g.Until-g.Made > 90*24*hour):
			t.Fatalf("time: %+v", g)
		case !slices.Contains([]string{Once, Session, Until, Standing}, g.Kind):
			t.Fatalf("kind: %+v", g)
		}
		for _, name := range m.Grant {
			i := slices.IndexFunc(g.Limits, func(l wire.Limit) bool { return l.Field == name })
			if a, _ := m.Arg(name); c.Sensitive && (i < 0 || g.Limits[i].Any && (mustLimit(a) || g.Kind == Until && !isTime(a))) {
				t.Fatalf("sensitive, with %s open: %+v", name, g)
			}
		}
		for _, l := range g.Limits {
			a, _ := m.Arg(l.Field)
			for _, x := range v[l.Field] {
				if l.Max == 0 && !l.Any && !slices.ContainsFunc(l.Values, func(y string) bool { return equalFold(x, y) || limitValue(a, x) == y }) {
					t.Fatalf("%s %q is outside %+v", l.Field, x, l)
				}
			}
		}
		late := *c
		late.Now = testNow.Add(91 * 24 * time.Hour)
		if ok, _ := s.Covers(&g, &late); ok {
			t.Fatalf("covers after 91 days: %+v", g)
		}
	})
}
