// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// paths are what clients write, and the one form of it; empty: refused.
var paths = []struct{ raw, want string }{
	{"/", "/"},
	{"/a", "/a"},
	{"/a/", "/a/"},
	{"/a/b", "/a/b"},
	{"/a/b/c/d/e/f/g", "/a/b/c/d/e/f/g"},
	{"/A/b", "/A/b"},
	{"/a.b", "/a.b"},
	{"/.well-known/x", "/.well-known/x"},
	{"/...", "/..."},
	{"/.../a", "/.../a"},
	{"/a..b", "/a..b"},
	{"/..a", "/..a"},
	{"/a..", "/a.."},
	{"/.a", "/.a"},
	{"/a.", "/a."},
	{"/~user", "/~user"},
	{"/-_.~", "/-_.~"},
	{"/a!$&'()*+,=:@", "/a!$&'()*+,=:@"},
	{"/models/gemini-2.5-pro:generateContent", "/models/gemini-2.5-pro:generateContent"},
	{"/github.com/!azure/x/@v/list", "/github.com/!azure/x/@v/list"},
	{"/@me/guilds", "/@me/guilds"},
	{"/pool/g++_1.0_amd64.deb", "/pool/g++_1.0_amd64.deb"},
	// Percent-encoding has one form.
	{"/%61", "/a"},
	{"/%41", "/A"},
	{"/%7E", "/~"},
	{"/%7e", "/~"},
	{"/%2D", "/-"},
	{"/%5F", "/_"},
	{"/%5f", "/_"},
	{"/%30", "/0"},
	{"/a%2Eb", "/a.b"},
	{"/a%2eb", "/a.b"},
	{"/%2Ewell-known", "/.well-known"},
	{"/%20", "/%20"},
	{"/a%20b", "/a%20b"},
	{"/%3f", "/%3F"},
	{"/%3F", "/%3F"},
	{"/%23", "/%23"},
	{"/%3a", "/%3A"},
	{"/a%3Ab", "/a%3Ab"},
	{"/%40a", "/%40a"},
	{"/%2b", "/%2B"},
	{"/%21", "/%21"},
	{"/%26", "/%26"},
	{"/%3D", "/%3D"},
	{"/%22", "/%22"},
	{"/%3C", "/%3C"},
	{"/%7B", "/%7B"},
	{"/%7bsurrogate%7d", "/%7Bsurrogate%7D"},
	{"/%7C", "/%7C"},
	{"/%5E", "/%5E"},
	{"/%60", "/%60"},
	{"/%25", "/%25"},
	{"/100%25", "/100%25"},
	{"/%25zz", "/%25zz"},
	{"/%252", "/%252"},
	{"/[id]", "/%5Bid%5D"},
	{"/a|b", "/a%7Cb"},
	{"/%5Bid%5D", "/%5Bid%5D"},
	// Letters outside of ASCII, encoded, as IRIs become (RFC 3987).
	{"/b%C3%BCcher", "/b%C3%BCcher"},
	{"/b%c3%bccher", "/b%C3%BCcher"},
	{"/%E2%82%AC", "/%E2%82%AC"},
	{"/%F0%9F%98%80", "/%F0%9F%98%80"},
	{"/%EF%BC%8F", "/%EF%BC%8F"}, // a fullwidth slash is a letter like others
	{"/%E2%80%AE", "/%E2%80%AE"},
	{"/xn--bcher-kva", "/xn--bcher-kva"},
	// npm's scoped names.
	{"/@babel%2fcore", "/@babel%2Fcore"},
	{"/@babel%2Fcore", "/@babel%2Fcore"},
	{"/%40babel%2Fcore", "/%40babel%2Fcore"},
	{"/-/package/@a%2Fb/dist-tags", "/-/package/@a%2Fb/dist-tags"},
	{"/@a%2Fb/c", "/@a%2Fb/c"},
	{"/@a%2fb%2fc", ""},
	{"/@%2fb", ""},
	{"/@a%2f", ""},
	{"/@a%2f..", ""},
	{"/@a%2f.", ""},
	{"/@a%2f.b", ""},
	{"/@.%2fb", ""},
	{"/@..%2fb", ""},
	{"/x@a%2fb", ""},
	{"/@a%5cb", ""},
	// Slashes and backslashes.
	{"/a%2Fb", ""},
	{"/a%2fb", ""},
	{"/%2F", ""},
	{"/%2f%2f", ""},
	{"/..%2F", ""},
	{"//", ""},
	{"//a", ""},
	{"/a//b", ""},
	{"/a//", ""},
	{"/a///b", ""},
	{"/\\", ""},
	{"/a\\b", ""},
	{"/a/..\\b", ""},
	{"/%5C", ""},
	{"/a%5cb", ""},
	{"\\a", ""},
	// Dot segments in every spelling.
	{"/.", ""},
	{"/..", ""},
	{"/./", ""},
	{"/../", ""},
	{"/a/.", ""},
	{"/a/..", ""},
	{"/a/./b", ""},
	{"/a/../b", ""},
	{"/%2e", ""},
	{"/%2E", ""},
	{"/%2e%2e", ""},
	{"/%2E%2E/a", ""},
	{"/.%2e/a", ""},
	{"/%2e./a", ""},
	{"/a/%2e%2E", ""},
	// Semicolons, controls, broken and double encodings.
	{"/a;b", ""},
	{"/;", ""},
	{"/..;/a", ""},
	{"/a;v=1/b", ""},
	{"/a%3Bb", ""},
	{"/a%3bb", ""},
	{"/%00", ""},
	{"/a\x00b", ""},
	{"/a%00.png", ""},
	{"/%0a", ""},
	{"/%0D%0A", ""},
	{"/a\tb", ""},
	{"/a\r\nb", ""},
	{"/%09", ""},
	{"/%1f", ""},
	{"/%7F", ""},
	{"/a\x7f", ""},
	{"/a b", ""},
	{"/%", ""},
	{"/%2", ""},
	{"/%zz", ""},
	{"/%g0", ""},
	{"/a%", ""},
	{"/%%32%65", ""},
	{"/%u002e", ""},
	{"/%252e", ""},
	{"/%252e%252e", ""},
	{"/%252F", ""},
	{"/%25%32%66", ""},
	{"/%255c", ""},
	{"/%2561", ""},
	{"/bücher", ""},
	{"/\xff", ""},
	{"/%FF", ""},
	{"/%C0%AF", ""}, // an overlong slash
	{"/%C0%AE%C0%AE", ""},
	{"/%E0%80%AF", ""},
	{"/%ED%A0%80", ""}, // half of a surrogate pair
	{"/%C3", ""},
	{"/%C3/%BC", ""},
	{"/a#b", ""},
	{"/a?b", ""},
	{"/\"", ""},
	{"/<a>", ""},
	{"/{a}", ""},
	{"/{surrogate}", ""}, // what stands for a surrogate no client can write
	{"/a^b", ""},
	{"/`", ""},
	// What is no path.
	{"", ""},
	{"*", ""},
	{"a", ""},
	{"a/b", ""},
	{"?a", ""},
	{"http://vendor-a.test/a", ""},
	{"vendor-a.test:443", ""},
	{" /a", ""},
	{"/" + strings.Repeat("a", MaxPath), ""},
	{strings.Repeat("/a", maxParts+1), ""},
	{"/" + strings.Repeat("|", MaxPath/3+1), ""}, // short enough as it was written, not in its one form
	{"/" + strings.Repeat("|", MaxPath/3), "/" + strings.Repeat("%7C", MaxPath/3)},
}

func TestPathHasOneForm(t *testing.T) {
	if len(paths) < 120 {
		t.Fatalf("only %d cases", len(paths))
	}
	for _, c := range paths {
		got, err := Path(c.raw)
		switch {
		case c.want == "" && (err == nil || got != "" || !errors.Is(err, ErrPath)):
			t.Errorf("%.80q is %q, %v", c.raw, got, err)
		case c.want != "" && (err != nil || got != c.want):
			t.Errorf("%.80q is %q, %v, want %q", c.raw, got, err, c.want)
		}
	}
	long := "/" + strings.Repeat("a", MaxPath-1)
	if got, err := Path(long); got != long {
		t.Errorf("the longest path: %v", err)
	}
}

func TestMatchPath(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"/", "/", true},
		{"/", "/a", false},
		{"/a", "/a", true},
		{"/a", "/A", false},
		{"/a", "/a/", false},
		{"/a/", "/a/", true},
		{"/a/", "/a", false},
		{"/a", "/ab", false},
		{"/a/{x}", "/a/b", true},
		{"/a/{x}", "/a/", false},
		{"/a/{x}", "/a", false},
		{"/a/{x}", "/a/b/c", false},
		{"/a/{x}/c", "/a/b/c", true},
		{"/{x}/{y}", "/a/b", true},
		{"/{x}", "/%20", true},
		{"/{x}:run", "/a:run", true},
		{"/{x}:run", "/:run", false},
		{"/{x}:run", "/a:run:run", true},
		{"/{x}:run", "/a:runs", false},
		{"/{x}:run", "/a%3Arun", true}, // to some servers
		{"/v{x}/a", "/v10/a", true},
		{"/v{x}/a", "/v/a", false},
		{"/**", "/", true},
		{"/**", "/a/b/c", true},
		{"/a/**", "/a/", true},
		{"/a/**", "/a/b", true},
		{"/a/**", "/a", false},
		{"/a/**", "/ab", false},
		{"/{x}/**", "/a/b/c", true},
		{"/{x}/**", "/a", false},
		{"/{x}", "/@a%2Fb", true},
		{"/{x}/{y}", "/@a%2Fb", true}, // to some servers
		{"/{x}", "/@a/b", false},
		{"", "/", false},
		{"/", "", false},
		{"/a", "a", false},
	} {
		if got := MatchPath(c.pattern, c.path); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.path, got)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, c := range paths {
		f.Add(c.raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := Path(raw)
		if err != nil {
			if p != "" {
				t.Fatalf("%q with an error", p)
			}
			return
		}
		if again, err := Path(p); err != nil || again != p {
			t.Fatalf("%q becomes %q and then %q, %v", raw, p, again, err)
		}
		if canonical(p) != nil || strings.ContainsAny(p, ";\\{}?# \x00") || strings.Contains(p, "//") || len(p) > MaxPath {
			t.Fatalf("%q becomes %q", raw, p)
		}
		rs := readings(p)
		if rs[0] != p || len(rs) > 4 {
			t.Fatalf("%q is read as %q", p, rs)
		}
		for _, r := range rs {
			for _, s := range strings.Split(r, "/") {
				if s == "." || s == ".." {
					t.Fatalf("%q is read as %q", p, r)
				}
			}
			if !fits("/**", r) {
				t.Fatalf("%q does not match /**", r)
			}
		}
		if !MatchPath(p, p) && !strings.Contains(p, "**") {
			t.Fatalf("%q does not match itself", p)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(bot))
	for _, s := range []string{"", "about = 1", "[[route]]", "route.x = 1", "[model]\nmodels = [\"*\"]", "placement = {kind = \"path\"}",
		"about = \"a\"\nhosts = [\"a.test\"]\nplacement = {kind = \"query\", name = \"k\"}\n[[route]]\nname = \"a\"\nmethods = " +
			"[\"GET\"]\npath = \"/\"\nclass = \"read\"\n[route.query]\na = \"b\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			var p *Problem
			if m != nil || !errors.As(err, &p) {
				t.Fatalf("a manifest with an error: %v", err)
			}
			return
		}
		if len(m.Routes) == 0 || len(m.Routes) > MaxRoutes || len(m.Hosts) == 0 || len(m.Lines()) < len(m.Routes) || m.Digest() == (wire.Digest{}) {
			t.Fatalf("%+v", m)
		}
		m.Notes()
		m.Reads()
		m.Also()
		for _, r := range m.Routes {
			if !contains(classes, r.Class) || !contains(reaches, r.Reach) ||
				r.Class == Read && (slices.Contains(r.Methods, "DELETE") || r.GraphQL == "mutation" || r.Git == "push" || r.WebSocket) {
				t.Fatalf("%+v", r)
			}
		}
		holds(t, m, "GET", "/", "", "", false)
	})
}

// holds checks what must be true of any request at any manifest.
func holds(t *testing.T, m *Manifest, method, path, query, does string, upgrade bool) {
	q := &wire.RequestReq{Name: m.Hosts[0].Name, Port: m.Hosts[0].Port, Method: method, Path: path, Query: query, Upgrade: upgrade}
	if does != "" {
		q.Does = strings.Split(does, "\n")
	}
	r, err := m.Match(q)
	if err != nil && r != nil {
		t.Fatalf("%+v with %v", r, err)
	}
	if r == nil {
		return
	}
	if canonical(path) != nil || !m.rest && (!slices.Contains(r.Methods, method) || !MatchPath(r.Path, path) || r.WebSocket != upgrade ||
		slices.Contains(q.Does, wire.Unreadable)) {
		t.Fatalf("%+v is %+v", q, r)
	}
	if r.Class == Read && (upgrade || method == "PUT" || method == "DELETE" || slices.Contains(q.Does, wire.Unreadable) ||
		slices.Contains(q.Does, "graphql mutation")) {
		t.Fatalf("%+v is a read by %+v", q, r)
	}
	// Another one's request is none.
	q.Name = "not" + q.Name
	if r, err := m.Match(q); r != nil || err != nil {
		t.Fatalf("%+v is %+v, %v", q, r, err)
	}
}

func FuzzMatch(f *testing.F) {
	add := func(line, does string, upgrade bool) {
		q := req(line)
		f.Add(q.Method, q.Path, q.Query, does, upgrade)
	}
	add("GET /api/channels/7", "", false)
	add("POST /graphql", "graphql query\ngraphql mutation", false)
	add("GET /list?state=open&state[]=x", "", false)
	add("GET /api/files/@a%2Fb", "", false)
	add("GET /gateway", "", true)
	add("POST /git/x/git-receive-pack", "git push delete refs/heads/a", false)
	add("POST /rpc", "jsonrpc tools/list", false)
	add("GET /x?query=mutation%7Ba%7D", wire.Unreadable, false)
	m := parse(f, bot)
	sites := []*Manifest{m, Sites("vendor-a.test", 443), Sites("api.github.com", 443), Sites("registry.npmjs.org", 443)}
	f.Fuzz(func(t *testing.T, method, path, query, does string, upgrade bool) {
		for _, m := range sites {
			holds(t, m, method, path, query, does, upgrade)
		}
	})
}
