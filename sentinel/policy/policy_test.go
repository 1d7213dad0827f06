// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	"github.com/doorward/doorward/internal/describe"
)

var testNow = time.Date(2030, 3, 11, 14, 0, 0, 0, time.UTC)

// callOf makes a call of "vendor method"; values as "name=value".
func callOf(t testing.TB, s *Set, vendor, name string, v describe.Values) *Call {
	t.Helper()
	c := (&form{descs: s.descs}).connector(vendor)
	m, ok := c.Method(name)
	if !ok {
		t.Fatalf("no method %s %s", vendor, name)
	}
	if v == nil {
		v = describe.Values{}
	}
	for i := range m.Args {
		if a := &m.Args[i]; a.Default != "" && v[a.Name] == nil {
			v[a.Name] = []string{a.Default}
		}
	}
	call := &Call{Connector: c, Method: m, Values: v, Account: "home", Cell: "dev", Session: "run-1", Attended: true,
		Now: testNow}
	call.Reach, call.Sensitive = s.Reach(c, m, call.Account, v)
	return call
}

func mustSet(t testing.TB, toml string, more ...string) *Set {
	t.Helper()
	f := Files{PolicyFile: []byte(toml)}
	for i := 0; i+1 < len(more); i += 2 {
		f[more[i]] = []byte(more[i+1])
	}
	s, err := Compile(f, testDescs(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFirst(t *testing.T) {
	s, err := Default(testDescs(t), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		vendor, method string
		v              describe.Values
		want           Verdict
	}{
		{"github", "repos", nil, Allow},
		{"github", "issue-create", describe.Values{"repo": {"a/b"}, "title": {"T"}}, Ask},
		{"github", "repo-create", describe.Values{"name": {"x"}}, Ask},
	} {
		d := s.Decide(callOf(t, s, x.vendor, x.method, x.v), nil)
		t.Logf("%+v", d)
		if d.Verdict != x.want {
			t.Errorf("%s %s: %s, want %s", x.vendor, x.method, d.Verdict, x.want)
		}
	}
	t.Log("\n" + s.Cedar()[:0])
}

func BenchmarkFirst(b *testing.B) {
	s, _ := Default(testDescs(b))
	c := callOf(b, s, "github", "issue-create", describe.Values{"repo": {"a/b"}, "title": {"T"}})
	b.ReportAllocs()
	for b.Loop() {
		s.Decide(c, nil)
	}
}
