// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// realDescs are the descriptions that the build made.
func realDescs(t *testing.T) []*describe.Connector {
	t.Helper()
	dir := filepath.Join("..", "..", "build", "share", "doorward")
	var out []*describe.Connector
	for _, vendor := range []string{"dav", "github"} {
		c, err := describe.Load(dir, vendor)
		if os.IsNotExist(err) {
			t.Skip("real descriptions skipped: make build has not made them")
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// realValues are required arguments and defaults of a method.
func realValues(m *describe.Method) describe.Values {
	v := describe.Values{}
	for i := range m.Args {
		a := &m.Args[i]
		if a.Default != "" {
			v[a.Name] = []string{a.Default}
		}
		if !a.Required {
			continue
		}
		x := "x"
		switch a.Type {
		case describe.TypeInt:
			x = "7"
		case describe.TypeBool:
			x = "true"
		case describe.TypeEnum:
			x = a.Enum[0]
		case describe.TypeRepo:
			x = "acme/site"
		case describe.TypeHref, describe.TypeFolder:
			x = "/ada/team/"
		case describe.TypeEmail:
			x = "bob@example.org"
		case describe.TypeHex, describe.TypeFile:
			x = strings.Repeat("a", 40)
		case describe.TypeTime:
			x = "2030-03-11T14:00:00Z"
		case describe.TypeDate, describe.TypeWhen:
			x = "2030-03-11"
		}
		v[a.Name] = []string{x}
	}
	return v
}

// TestRealMethods: under the widest settings, each real method goes, asks, and can be granted as its class and reach
// say; and its prefilled grant covers the call and no other repository, event or contact.
func TestRealMethods(t *testing.T) {
	descs := realDescs(t)
	s, err := Compile(Files{PolicyFile: []byte("[connector.github]\nsetting = \"dont-ask\"\n[connector.dav]\n" +
		"setting = \"dont-ask\"\n")}, descs, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Check() {
		t.Log(p)
	}
	for _, c := range descs {
		for i := range c.Methods {
			m := &c.Methods[i]
			call := callOf(t, s, c.Vendor, m.Name, realValues(m))
			d := s.Decide(call, nil)
			want := Allow
			if call.Sensitive {
				want = Ask
			}
			if d.Verdict != want {
				t.Errorf("%s %s: %s, want %s: %+v", c.Vendor, m.Name, d.Verdict, want, d)
			}
			if full := verdictInFull(t, s, call); full != d.Verdict {
				t.Errorf("%s %s: sliced %s, in full %s", c.Vendor, m.Name, d.Verdict, full)
			}
			g, ok := s.Prefill(call)
			t.Logf("%-8s %-16s sensitive %-5t %s: grantable %t: %s", c.Vendor, m.Name, call.Sensitive, d.Verdict, ok, g.Sentence)
			if !ok {
				if _, err := s.Validate(g, call.Sensitive, testNow); err == nil {
					t.Errorf("%s %s: it cannot be granted, and is", c.Vendor, m.Name)
				} else if base := m.Prepare != nil && m.Prepare.Base != ""; base != strings.Contains(err.Error(), "changes what others wrote") {
					t.Errorf("%s %s: %v", c.Vendor, m.Name, err)
				}
				continue
			}
			kept, err := s.Validate(g, call.Sensitive, testNow)
			if err != nil {
				t.Errorf("%s %s: %v", c.Vendor, m.Name, err)
				continue
			}
			if covers, why := s.Covers(&kept, call); !covers {
				t.Errorf("%s %s: %s", c.Vendor, m.Name, why)
			}
			if len(m.Grant) != len(m.Args) {
				t.Errorf("%s %s: a grant of it cannot speak of each argument: %v", c.Vendor, m.Name, m.Grant)
			}
			for _, l := range kept.Limits {
				field := l.Field
				if l.Any && !call.Sensitive {
					continue
				}
				other := *call
				other.Values = describe.Values{}
				for k, x := range call.Values {
					other.Values[k] = x
				}
				other.Values[field] = []string{"99999"}
				if covers, _ := s.Covers(&kept, &other); covers {
					t.Errorf("%s %s: covers another %s", c.Vendor, m.Name, field)
				}
			}
		}
	}
}

// TestAGrantOfAReadIsForAPlace: what a person lets be read without asking is one calendar, event, issue or file; where many reads
// ask, one calendar or repository.
func TestAGrantOfAReadIsForAPlace(t *testing.T) {
	s, err := Compile(Files{PolicyFile: []byte("[connector.github]\nsetting = \"ask-every-time\"\n[connector.dav]\n" +
		"setting = \"ask-every-time\"\n")}, realDescs(t), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	week := " from=2030-03-10T00:00:00Z to=2030-03-17T00:00:00Z"
	for _, x := range []struct {
		granted, call string
		many, covered bool
	}{
		{"dav events calendar=/ada/team/" + week, "calendar=/ada/team/ from=2031-01-01T00:00:00Z to=2031-02-01T00:00:00Z", false, true},
		{"dav events calendar=/ada/team/" + week, "calendar=/ada/diary/" + week, false, false},
		{"dav free-busy calendar=/ada/team/" + week, "calendar=/ada/diary/" + week, false, false},
		{"dav event-get event=/ada/team/a.ics", "event=/ada/diary/b.ics", false, false},
		{"dav contacts book=/ada/people/ query=bob", "book=/ada/people/ query=eve", false, true},
		{"dav contacts book=/ada/people/", "book=/ada/work/", false, false},
		{"dav events calendar=/ada/team/" + week, "calendar=/ada/diary/" + week, true, false},
		{"github file-get repo=ada/site path=a", "repo=ada/site path=b", false, false},
		{"github file-get repo=ada/site path=a", "repo=ada/site path=b", true, true},
		{"github file-get repo=ada/site path=a", "repo=ada/notes path=a", true, false},
		{"github issue-get repo=ada/site number=1", "repo=ada/site number=2", false, false},
		{"github issue-get repo=ada/site number=1", "repo=ada/site number=2", true, true},
		{"github issues repo=ada/site page=1", "repo=ada/site page=2", false, true},
		{"github issues repo=ada/site", "repo=ada/notes", false, false},
	} {
		vendor, rest, _ := strings.Cut(x.granted, " ")
		method, args, _ := strings.Cut(rest, " ")
		first, second := callOf(t, s, vendor, method, values(args)), callOf(t, s, vendor, method, values(x.call))
		if x.many {
			first.Reads, second.Reads = 200, 201
		}
		g, ok := s.Prefill(first)
		if !ok {
			t.Fatalf("%s: no grant is offered", x.granted)
		}
		g.ID = "g1"
		kept, err := s.Validate(g, false, testNow)
		if err != nil {
			t.Fatal(err)
		}
		kept.ID = "g1"
		if d := s.Decide(second, []wire.Grant{kept}); (d.Verdict == Allow) != x.covered {
			t.Errorf("%s, then %s, many %t: %s: %+v", x.granted, x.call, x.many, d.Verdict, d.Misses)
		}
	}
}
