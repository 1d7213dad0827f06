// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/wire"
)

func sample() *Connector {
	return &Connector{Vendor: "demo", Title: "Demo", Base: "https://api.demo.test", Check: "list",
		Tokens: Tokens{Kinds: []string{"token"}, Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "}},
		Methods: []Method{
			{Name: "create", Summary: "make a thing", Class: Write, Reach: ReachPublic, Lower: []Lower{{To: ReachNone, Empty: []string{"to"}, Private: "repo"}},
				Args: []Arg{
					{Name: "repo", Label: "repository", Help: "owner/name", Type: TypeRepo, Required: true, Role: "destination"},
					{Name: "title", Label: "title", Help: "one line", Type: TypeString, Required: true, Min: 1, Max: 256},
					{Name: "body", Label: "text", Help: "text", Type: TypeText},
					{Name: "to", Label: "to", Help: "addresses", Type: TypeEmail, Repeat: 10, Role: "recipient"},
					{Name: "count", Label: "count", Help: "1 to 9", Type: TypeInt, Min: 1, Max: 9, Default: "2"},
					{Name: "draft", Label: "draft", Help: "true or false", Type: TypeBool},
					{Name: "at", Label: "when", Help: "time", Type: TypeTime},
					{Name: "file", Label: "file", Help: "a file", Type: TypeFile, Max: 100},
				},
				Grant: []string{"repo", "to"},
				Entries: []Entry{
					{Name: "post", Method: "POST", Path: "{base}/repos/{repo}/things", Credential: true,
						Query:  []Match{{"at", Bind{Tmpl: "{at:ical}"}}},
						Header: []Match{{"Accept", Bind{Const: "application/json"}}},
						Body: &Body{Media: "application/json", JSON: []Leaf{{"/title", Bind{Arg: "title"}},
							{"/body", Bind{Arg: "body", Format: "marked"}}, {"/to", Bind{Arg: "to", As: "list"}},
							{"/count", Bind{Arg: "count", As: "int"}}, {"/draft", Bind{Arg: "draft", As: "bool"}}}}},
					{Name: "log", Method: "GET", Follow: "post", Host: "*.logs.test", When: &Cond{Arg: "draft", Is: "true"}},
				}},
			{Name: "list", Summary: "list things", Class: Read, Reach: ReachNone, Labels: []string{wire.LabelPrivate},
				Args:    []Arg{{Name: "path", Label: "path", Help: "a path", Type: TypePath}},
				Entries: []Entry{{Name: "get", Method: "GET", Path: "{base}/things", Credential: true}}},
		}}
}

func TestADescriptionIsItsBytes(t *testing.T) {
	a, err := sample().Seal()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := sample().Seal()
	if !bytes.Equal(a, b) {
		t.Fatal("equal declarations give unequal bytes")
	}
	c, err := Parse(a)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Seal()
	if err != nil || !bytes.Equal(a, again) {
		t.Fatalf("what was read does not give its bytes again: %v", err)
	}
	if c.Digest() != wire.Sum(a) {
		t.Error("the digest is not that of the bytes")
	}
}

func TestADescriptionThatContradictsItselfIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Connector){
		"a vendor name with a slash":         func(c *Connector) { c.Vendor = "a/b" },
		"methods out of order":               func(c *Connector) { c.Methods[0].Name = "zzz" },
		"a class that is none":               func(c *Connector) { c.Methods[0].Class = "harmless" },
		"a reach that is none":               func(c *Connector) { c.Methods[0].Reach = "" },
		"a grant field that is no argument":  func(c *Connector) { c.Methods[0].Grant = []string{"nope"} },
		"a path with an unknown placeholder": func(c *Connector) { c.Methods[1].Entries[0].Path = "/{nope}" },
		"a path with an open brace":          func(c *Connector) { c.Methods[1].Entries[0].Path = "/{base" },
		"a path that is a URL":               func(c *Connector) { c.Methods[1].Entries[0].Path = "https://evil.test/" },
		"a credential to another host":       func(c *Connector) { c.Methods[0].Entries[1].Credential = true },
		"a follow of nothing":                func(c *Connector) { c.Methods[0].Entries[1].Follow = "nope" },
		"a method that is no HTTP method":    func(c *Connector) { c.Methods[1].Entries[0].Method = "get" },
		"an argument twice":                  func(c *Connector) { c.Methods[0].Args[1].Name = "repo" },
		"an enum without values":             func(c *Connector) { c.Methods[0].Args[0].Type = TypeEnum },
		"a default out of bounds":            func(c *Connector) { c.Methods[0].Args[4].Default = "10" },
		"a lower to nothing":                 func(c *Connector) { c.Methods[0].Lower[0].To = "nobody" },
		"a check that writes":                func(c *Connector) { c.Check = "create" },
		"a label that is none":               func(c *Connector) { c.Methods[1].Labels = []string{"harmless"} },
		"no entries":                         func(c *Connector) { c.Methods[1].Entries = nil },
		"a prepared body nobody prepares": func(c *Connector) {
			c.Methods[0].Entries[0].Body = &Body{Media: "text/plain", Prepared: true}
		},
		"a settlement by a write": func(c *Connector) { c.Methods[0].Settle = &Settle{Method: "create"} },
	} {
		t.Run(name, func(t *testing.T) {
			c := sample()
			spoil(c)
			if _, err := c.Seal(); !errors.Is(err, ErrDescription) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func frame(args ...string) *wire.Frame {
	f := &wire.Frame{Connector: "demo", Method: "create"}
	for _, a := range args {
		name, v, _ := strings.Cut(a, "=")
		f.Args = append(f.Args, wire.Arg{Name: name, Values: strings.Split(v, "|")})
	}
	return f
}

func TestDecodeTakesOneFormOfEachValue(t *testing.T) {
	m, _ := sample().Method("create")
	v, err := m.Decode(frame("at=2030-03-10T14:00:00+01:00", "body=a\nb", "draft=true", "repo=o/r", "title=T", "to=a@example.test|b@example.test"))
	if err != nil {
		t.Fatal(err)
	}
	want := Values{"at": {"2030-03-10T14:00:00+01:00"}, "body": {"a\nb"}, "draft": {"true"}, "repo": {"o/r"}, "title": {"T"},
		"to": {"a@example.test", "b@example.test"}, "count": {"2"}}
	if d := cmp.Diff(want, v); d != "" {
		t.Fatal(d)
	}
	for name, f := range map[string]*wire.Frame{
		"an argument is missing":            frame("repo=o/r"),
		"an unknown argument":               frame("nope=1", "repo=o/r", "title=T"),
		"out of order":                      frame("title=T", "repo=o/r"),
		"an argument twice":                 frame("repo=o/r", "repo=o/r", "title=T"),
		"two values where one goes":         frame("repo=o/r|o/s", "title=T"),
		"a repository with three parts":     frame("repo=o/r/s", "title=T"),
		"a repository that climbs":          frame("repo=../r", "title=T"),
		"a repository with an escape":       frame("repo=o/r%2f", "title=T"),
		"a title of two lines":              frame("repo=o/r", "title=a\nb"),
		"a title with an escape character":  frame("repo=o/r", "title=a\x1b[2K"),
		"a title with a line separator":     frame("repo=o/r", "title=a\u2028b"),
		"a title that is no UTF-8":          frame("repo=o/r", "title=\xff"),
		"an empty title":                    frame("repo=o/r", "title="),
		"a text with NUL":                   frame("body=a\x00b", "repo=o/r", "title=T"),
		"a number with a plus":              frame("count=+3", "repo=o/r", "title=T"),
		"a number out of bounds":            frame("count=10", "repo=o/r", "title=T"),
		"a bool in capitals":                frame("draft=True", "repo=o/r", "title=T"),
		"a time without zone":               frame("at=2030-03-10T14:00:00", "repo=o/r", "title=T"),
		"an address with a line break":      frame("repo=o/r", "title=T", "to=a@example.test\r\nBcc: e"),
		"an address with a display name":    frame("repo=o/r", "title=T", "to=A <a@example.test>"),
		"a domain in capitals":              frame("repo=o/r", "title=T", "to=a@EXAMPLE.test"),
		"an address with two ats":           frame("repo=o/r", "title=T", "to=a@b@example.test"),
		"a file as text":                    frame("file=abc", "repo=o/r", "title=T"),
		"no values":                         {Args: []wire.Arg{{Name: "repo", Values: []string{}}}},
		"a file for what is none":           {Files: []wire.File{{Arg: "title"}}},
		"a file over its limit":             {Files: []wire.File{{Arg: "file", Size: 101}}},
		"a file of negative size":           {Files: []wire.File{{Arg: "file", Size: -1}}},
		"a file whose name breaks the line": {Files: []wire.File{{Arg: "file", Name: "a\nb"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var e *ArgError
			if got, err := m.Decode(f); !errors.As(err, &e) || got != nil {
				t.Fatalf("got %v, %v", got, err)
			}
		})
	}
}

func TestPathsHaveOneReading(t *testing.T) {
	path, href := &Arg{Name: "p", Type: TypePath}, &Arg{Name: "p", Type: TypeHref}
	for _, bad := range []string{"", "/a", "a//b", "a/../b", "..", ".", "a/.", `a\b`, "a%2fb", "a;b", "a?b", "a#b", "a/", "a\x00"} {
		if c, err := path.Canon(bad); err == nil {
			t.Errorf("path %q is taken as %q", bad, c)
		}
	}
	for _, bad := range []string{"", "a", "//host/x", "/a//b", "/../x", "/a/..", "https://h/x", `/\h`, "/a%2e", "/a b\n"} {
		if c, err := href.Canon(bad); err == nil {
			t.Errorf("href %q is taken as %q", bad, c)
		}
	}
	for _, good := range []string{"/", "/a/", "/ada lovelace/work/ä.ics"} {
		if c, err := href.Canon(good); err != nil || c != good {
			t.Errorf("href %q: %q, %v", good, c, err)
		}
	}
}

func TestFillPutsValuesWhereTheyBelongAndNowhereElse(t *testing.T) {
	m, _ := sample().Method("create")
	c := &Call{Base: wire.Base{Scheme: "https", Host: "api.demo.test", Port: 443, Path: "/v3"}, Mark: "markmark",
		Values: Values{"repo": {"o/r"}, "title": {`q" \ </title>`}, "count": {"2"}, "at": {"2030-03-10T14:00:00+01:00"}}}
	got, err := m.Fill(c)
	if err != nil {
		t.Fatal(err)
	}
	want := []wire.Entry{{Name: "post", Scheme: "https", Host: "api.demo.test", Port: 443, Method: "POST",
		Path: "/v3/repos/o/r/things", Uses: 1, Credential: true,
		Query:  []wire.Match{{Name: "at", Values: []string{"20300310T130000Z"}}},
		Header: []wire.Match{{Name: "Accept", Values: []string{"application/json"}}},
		Body: wire.Body{Media: "application/json", JSON: []wire.Leaf{
			{Pointer: "/title", Value: []byte(`"q\" \\ </title>"`)},
			{Pointer: "/body", Value: []byte(`"\n\n<!-- doorward:markmark -->"`)},
			{Pointer: "/count", Value: []byte("2")}}}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	c.Values["draft"] = []string{"true"}
	if got, err = m.Fill(c); err != nil || len(got) != 2 || got[1].Host != "*.logs.test" || got[1].Follow != "post" {
		t.Fatalf("the conditional entry: %v, %v", got, err)
	}
}

func TestXMLValuesStayText(t *testing.T) {
	m, _ := sample().Method("create")
	got, err := m.XML("<t>{title}</t>", &Call{Values: Values{"title": {"</t><evil a='1'>&\r"}}})
	if want := "<t>&lt;/t&gt;&lt;evil a=&apos;1&apos;&gt;&amp;&#13;</t>"; err != nil || got != want {
		t.Fatalf("got %q, %v", got, err)
	}
}

// The strings are those of RFC 8785, sections 3.2.2.2 and 3.2.3, and of its appendix; the order is by UTF-16 code units,
// which for the ASCII names that arguments have is byte order.
func TestCanonicalIsRFC8785(t *testing.T) {
	if got := string(AppendString(nil, "\u20ac$\u000f\nA'B\"\\\\\"/")); got != `"€$\u000f\nA'B\"\\\\\"/"` {
		t.Errorf("string: %s", got)
	}
	c := sample()
	if _, err := c.Seal(); err != nil {
		t.Fatal(err)
	}
	m, _ := c.Method("create")
	d := c.Digest()
	got := m.Canonical(c, "work", 7, Values{"title": {"T"}, "repo": {"o/r"}, "count": {"2"}, "draft": {"true"}, "to": {"a@x.test"}})
	if !json.Valid(got) {
		t.Fatalf("no JSON: %s", got)
	}
	const hexes = "0123456789abcdef"
	hex := ""
	for _, b := range d {
		hex += string(hexes[b>>4]) + string(hexes[b&15])
	}
	want := `{"account":"work","arguments":{"count":2,"draft":true,"repo":"o/r","title":"T","to":["a@x.test"]},"connector":"demo",` +
		`"description":"` + hex + `","generation":7,"method":"create"}`
	if string(got) != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestReachIsTheWorstUnlessFactsLowerIt(t *testing.T) {
	m, _ := sample().Method("create")
	private := func(s string) bool { return s == "o/mine" }
	for name, c := range map[string]struct {
		v    Values
		want string
	}{
		"nothing known":                {Values{}, ReachPublic},
		"a public repository":          {Values{"repo": {"o/r"}}, ReachPublic},
		"a private one":                {Values{"repo": {"o/mine"}}, ReachNone},
		"a private one with addresses": {Values{"repo": {"o/mine"}, "to": {"a@x.test"}}, ReachPublic},
	} {
		if got := m.ReachOf(c.v, private); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if !m.SensitiveAt(ReachPublic) || m.SensitiveAt(ReachNone) {
		t.Error("sensitive is not what it should be")
	}
}

// FuzzParse: a description that is taken gives its own bytes again, and its methods do not panic.
func FuzzParse(f *testing.F) {
	b, err := sample().Seal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err != nil {
			if c != nil {
				t.Fatal("a value came with an error")
			}
			return
		}
		for i := range c.Methods {
			m := &c.Methods[i]
			v, err := m.Decode(&wire.Frame{})
			if err != nil {
				continue
			}
			_, _ = m.Fill(&Call{Values: v, Mark: "m", ETag: `"e"`})
			m.ReachOf(v, func(string) bool { return false })
			if c := m.Canonical(c, "a", 1, v); !json.Valid(c) {
				t.Fatalf("canonical form is no JSON: %s", c)
			}
		}
	})
}

// FuzzCanon: what canon takes it takes again unchanged.
func FuzzCanon(f *testing.F) {
	for _, s := range []string{"2030-03-10T14:00:00Z", "a@b.test", "o/r", "/a/b/", "true", "12", "Europe/Berlin"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, typ := range types {
			a := &Arg{Name: "a", Type: typ, Enum: []string{"x"}}
			c, err := a.Canon(s)
			if err != nil {
				if c != "" {
					t.Fatal("a value came with an error")
				}
				continue
			}
			if again, err := a.Canon(c); err != nil || again != c {
				t.Fatalf("%s: %q becomes %q, then %q, %v", typ, s, c, again, err)
			}
			if strings.ContainsAny(c, "\r\n") && typ != TypeText {
				t.Fatalf("%s: %q has a line break", typ, c)
			}
		}
	})
}

// A change is held to the one version that was read. The ETag is what the worker said of it.
func TestAChangeIsHeldToOneVersion(t *testing.T) {
	m := &Method{Name: "m", Entries: []Entry{{Name: "e", Method: "PUT", Path: "/x",
		Header: []Match{{Name: "If-Match", Bind: Bind{ETag: true}}}}}}
	for tag, ok := range map[string]bool{`"e"`: true, `W/"e"`: true, `""`: true, "": false, "*": false, `"`: false, "e": false,
		`"a", "b"`: false, `"a"*`: false, "\"a\r\nX: y\"": false} {
		got, err := m.Fill(&Call{ETag: tag})
		if (err == nil) != ok {
			t.Errorf("%q: %v, %v", tag, got, err)
		}
	}
}
