// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/head"
)

// parse reads a head written with \n line ends; a Host is added where there is none.
func parse(t testing.TB, raw string) *head.Request {
	t.Helper()
	line, fields, _ := strings.Cut(raw, "\n")
	if !strings.Contains(fields, "Host:") {
		fields = "Host: api.test\n" + fields
	}
	raw = line + " HTTP/1.1\n" + strings.TrimSuffix(fields, "\n") + "\n\n"
	r, err := head.Parse(strings.ReplaceAll(raw, "\n", "\r\n"))
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return r
}

func entry(change func(*wire.Entry)) *wire.Entry {
	e := &wire.Entry{Scheme: "https", Host: "api.test", Port: 443, Method: "GET", Path: "/repos/o/r/issues",
		Credential: true}
	if change != nil {
		change(e)
	}
	return e
}

func TestHeadHoldsARequestToItsEntry(t *testing.T) {
	plain := entry(nil)
	listed := entry(func(e *wire.Entry) {
		e.Query = []wire.Match{{Name: "state", Values: []string{"open"}}, {Name: "labels", Values: []string{"a b", "c"}},
			{Name: "page", Any: true, Optional: true}}
		e.Header = []wire.Match{{Name: "x-github-api-version", Values: []string{"2022-11-28"}}, {Name: "If-Match", Any: true,
			Optional: true}, {Name: "Accept", Values: []string{"application/json"}, Optional: true}}
	})
	const version = "X-GitHub-Api-Version: 2022-11-28\n"
	const good = "GET /repos/o/r/issues?state=open&labels=a+b&labels=c\n" + version
	open := entry(func(e *wire.Entry) { e.Path, e.AnyPath = "/dav/ada", true })
	folder := entry(func(e *wire.Entry) { e.Path, e.AnyPath = "/dav/ada/", true })
	encoded := entry(func(e *wire.Entry) { e.Path = "/c/a%20b%252Fc%40" })
	local := entry(func(e *wire.Entry) { e.Scheme, e.Host, e.Port = "http", "127.0.0.1", 5232 })
	mark := entry(func(e *wire.Entry) { e.Path = "/bot{credential}/send" })
	for _, c := range []struct {
		name string
		e    *wire.Entry
		raw  string
		want error  // nil is allowed
		left string // target afterwards, where it is looked at
	}{
		{"as listed", plain, "GET /repos/o/r/issues", nil, "/repos/o/r/issues"},
		{"neutral headers", plain,
			"GET /repos/o/r/issues\nAccept: */*\nAccept-Encoding: gzip\nAccept-Language: de\nUser-Agent: x", nil, ""},
		{"authority spelled otherwise", plain, "GET /repos/o/r/issues\nHost: API.test.:443", nil, ""},
		{"other method", plain, "POST /repos/o/r/issues", ErrOutside, ""},
		{"HEAD is not GET", plain, "HEAD /repos/o/r/issues", ErrOutside, ""},
		{"other repository", plain, "GET /repos/o/other/issues", ErrOutside, ""},
		{"longer path", plain, "GET /repos/o/r/issues/1", ErrOutside, ""},
		{"trailing slash", plain, "GET /repos/o/r/issues/", ErrOutside, ""},
		{"other host", plain, "GET /repos/o/r/issues\nHost: evil.test", ErrAuthority, ""},
		{"other port", plain, "GET /repos/o/r/issues\nHost: api.test:8443", ErrAuthority, ""},
		{"userinfo", plain, "GET /repos/o/r/issues\nHost: a@api.test", ErrAuthority, ""},
		{"host as suffix", plain, "GET /repos/o/r/issues\nHost: notapi.test", ErrAuthority, ""},
		{"query where none is listed", plain, "GET /repos/o/r/issues?state=all", ErrOutside, ""},
		{"empty query", plain, "GET /repos/o/r/issues?", ErrOutside, ""},
		{"header that is not listed", plain, "GET /repos/o/r/issues\nX-Other: 1", ErrOutside, ""},
		{"credential of one's own", plain, "GET /repos/o/r/issues\nAuthorization: Bearer mine", ErrOutside, ""},
		{"override", plain, "GET /repos/o/r/issues\nX-HTTP-Method-Override: DELETE", ErrOutside, ""},
		{"override, other spelling", plain, "GET /repos/o/r/issues\nx-method-override: DELETE", ErrOutside, ""},
		{"override in the query", plain, "GET /repos/o/r/issues?_method=DELETE", ErrOutside, ""},
		{"rewrite", plain, "GET /repos/o/r/issues\nX-Original-URL: /admin", ErrOutside, ""},
		{"upgrade", plain, "GET /repos/o/r/issues\nUpgrade: h2c", ErrOutside, ""},
		{"range", plain, "GET /repos/o/r/issues\nRange: bytes=0-1", ErrOutside, ""},
		{"cookie", plain, "GET /repos/o/r/issues\nCookie: a=b", ErrOutside, ""},
		{"expect", plain, "GET /repos/o/r/issues\nExpect: 100-continue", ErrOutside, ""},
		{"long neutral header", plain, "GET /repos/o/r/issues\nAccept: " + strings.Repeat("a", maxOpen+1), ErrOutside, ""},

		{"all values", listed, good, nil, "/repos/o/r/issues?state=open&labels=a%20b&labels=c"},
		{"another order of names", listed, "GET /repos/o/r/issues?labels=a%20b&state=open&labels=c\n" + version, nil, ""},
		{"cursor", listed, "GET /repos/o/r/issues?state=open&labels=a+b&labels=c&page=x%2Fy\n" + version, nil,
			"/repos/o/r/issues?state=open&labels=a%20b&labels=c&page=x%2Fy"},
		{"cursor twice", listed, "GET /repos/o/r/issues?state=open&labels=a+b&labels=c&page=1&page=2\n" + version,
			ErrOutside, ""},
		{"other value", listed, "GET /repos/o/r/issues?state=all&labels=a+b&labels=c\n" + version, ErrOutside, ""},
		{"value twice", listed, "GET /repos/o/r/issues?state=open&state=open&labels=a+b&labels=c\n" + version, ErrOutside,
			""},
		{"other order of values", listed, "GET /repos/o/r/issues?state=open&labels=c&labels=a+b\n" + version, ErrOutside, ""},
		{"parameter missing", listed, "GET /repos/o/r/issues?state=open\n" + version, ErrOutside, ""},
		{"parameter more", listed, "GET /repos/o/r/issues?state=open&labels=a+b&labels=c&x=1\n" + version, ErrOutside, ""},
		{"semicolon", listed, "GET /repos/o/r/issues?state=open;x=1&labels=a+b&labels=c\n" + version, ErrOutside, ""},
		{"no value", listed, "GET /repos/o/r/issues?state&labels=a+b&labels=c\n" + version, ErrOutside, ""},
		{"empty name", listed, "GET /repos/o/r/issues?state=open&=1&labels=a+b&labels=c\n" + version, ErrOutside, ""},
		{"broken percent", listed, "GET /repos/o/r/issues?state=open%&labels=a+b&labels=c\n" + version, ErrOutside, ""},
		{"header missing", listed, "GET /repos/o/r/issues?state=open&labels=a+b&labels=c", ErrOutside, ""},
		{"header with other value", listed,
			"GET /repos/o/r/issues?state=open&labels=a+b&labels=c\nX-GitHub-Api-Version: 1", ErrOutside, ""},
		{"header twice", listed, good + version, ErrOutside, ""},
		{"open header", listed, good + "If-Match: \"abc\"", nil, ""},
		{"open header twice", listed, good + "If-Match: \"abc\"\nIf-Match: \"d\"", ErrOutside, ""},
		{"listed neutral header", listed, good + "Accept: application/json", nil, ""},
		{"listed neutral header, other value", listed, good + "Accept: text/html", ErrOutside, ""},

		{"below an open path", open, "GET /dav/ada/cal/x.ics", nil, ""},
		{"the open path itself", open, "GET /dav/ada", nil, ""},
		{"beside an open path", open, "GET /dav/adam/x.ics", ErrOutside, ""},
		{"folder", folder, "GET /dav/ada/cal/", nil, ""},
		{"folder without its slash", folder, "GET /dav/ada", ErrOutside, ""},
		{"up", open, "GET /dav/ada/../bob", ErrOutside, ""},
		{"up at the end", open, "GET /dav/ada/..", ErrOutside, ""},
		{"dot", open, "GET /dav/ada/./x", ErrOutside, ""},
		{"encoded dots", open, "GET /dav/ada/%2E%2E/bob", ErrOutside, ""},
		{"encoded dots, lower case", open, "GET /dav/ada/%2e%2e/bob", ErrOutside, ""},
		{"encoded slash", open, "GET /dav/ada/..%2Fbob", ErrOutside, ""},
		{"encoded backslash", open, "GET /dav/ada/x%5Cy", ErrOutside, ""},
		{"encoded NUL", open, "GET /dav/ada/x%00", ErrOutside, ""},
		{"encoded letter", open, "GET /dav/ada/%41", ErrOutside, ""},
		{"lower-case hex", open, "GET /dav/ada/%c3%a4", ErrOutside, ""},
		{"upper-case hex", open, "GET /dav/ada/%C3%A4", nil, ""},
		{"encoded twice", open, "GET /dav/ada/%252e%252e", ErrOutside, ""},
		{"double slash", open, "GET /dav/ada//x", ErrOutside, ""},
		{"semicolon in path", open, "GET /dav/ada/x;y", ErrOutside, ""},
		{"encoded semicolon", open, "GET /dav/ada/x%3By", nil, ""},
		{"backslash", open, "GET /dav/ada/..\\bob", ErrOutside, ""},
		{"double slash in front", plain, "GET //evil.test/repos/o/r/issues", ErrOutside, ""},
		{"exact path with escapes", encoded, "GET /c/a%20b%252Fc%40", nil, ""},
		{"exact path decoded once", encoded, "GET /c/a%20b%2Fc%40", ErrOutside, ""},
		{"exact path, other escape of the same", encoded, "GET /c/a%20b%252Fc@", ErrOutside, ""},

		{"plain http", local, "GET /repos/o/r/issues\nHost: 127.0.0.1:5232", nil, ""},
		{"plain http without port", local, "GET /repos/o/r/issues\nHost: 127.0.0.1", ErrAuthority, ""},
		{"credential in the path", mark, "GET /bot{credential}/send", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, c.raw)
			err := Head(c.e, r, nil)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Fatalf("%v, want %v", err, c.want)
			}
			got := r.Path
			if r.HasQuery {
				got += "?" + r.Query
			}
			if c.left != "" && got != c.left {
				t.Errorf("goes out as %s, want %s", got, c.left)
			}
			if _, ok := r.Get("User-Agent"); ok && err == nil {
				t.Error("the worker's User-Agent goes out")
			}
		})
	}
	for name, e := range map[string]*wire.Entry{
		"never header listed": entry(func(e *wire.Entry) {
			e.Header = []wire.Match{{Name: "x-http-method-override",
				Any: true}}
		}),
		"header listed twice": entry(func(e *wire.Entry) {
			e.Header = []wire.Match{{Name: "A", Optional: true},
				{Name: "a", Optional: true}}
		}),
		"query listed twice": entry(func(e *wire.Entry) {
			e.Query = []wire.Match{{Name: "a", Optional: true},
				{Name: "a", Optional: true}}
		}),
		"no path":               entry(func(e *wire.Entry) { e.Path = "" }),
		"open without a path":   entry(func(e *wire.Entry) { e.Path, e.AnyPath = "", true }),
		"ftp":                   entry(func(e *wire.Entry) { e.Scheme = "ftp" }),
		"no host":               entry(func(e *wire.Entry) { e.Host = "" }),
		"no port":               entry(func(e *wire.Entry) { e.Port = 0 }),
		"follow without answer": entry(func(e *wire.Entry) { e.Follow = "log" }),
	} {
		if err := Head(e, parse(t, "GET /repos/o/r/issues"), nil); err == nil {
			t.Errorf("entry with %s: allowed", name)
		}
	}
}

func TestFollowOnlyTheVeryLocation(t *testing.T) {
	loc := func(s string) *guard.URL {
		u, err := guard.ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		return &u
	}
	blob := entry(func(e *wire.Entry) { e.Follow, e.Host, e.Credential, e.Path = "log", "*.blob.test", false, "" })
	own := entry(func(e *wire.Entry) { e.Follow, e.Path = "log", "" })
	also := entry(func(e *wire.Entry) { e.Follow, e.Credential, e.Also = "log", false, []string{"127.0.0.1:7443"} })
	for _, c := range []struct {
		name string
		e    *wire.Entry
		loc  *guard.URL
		raw  string
		want error
	}{
		{"the very one", blob, loc("https://x.blob.test/a%2fb?sig=1;2"), "GET /a%2fb?sig=1;2\nHost: x.blob.test", nil},
		{"other query", blob, loc("https://x.blob.test/a?sig=1"), "GET /a?sig=2\nHost: x.blob.test", ErrOutside},
		{"no query", blob, loc("https://x.blob.test/a?sig=1"), "GET /a\nHost: x.blob.test", ErrOutside},
		{"other path", blob, loc("https://x.blob.test/a"), "GET /b\nHost: x.blob.test", ErrOutside},
		{"other host", blob, loc("https://x.blob.test/a"), "GET /a\nHost: y.blob.test", ErrAuthority},
		{"apex", blob, loc("https://blob.test/a"), "GET /a\nHost: blob.test", ErrOutside},
		{"look-alike", blob, loc("https://xblob.test/a"), "GET /a\nHost: xblob.test", ErrOutside},
		{"suffix", blob, loc("https://x.blob.test.evil.test/a"), "GET /a\nHost: x.blob.test.evil.test", ErrOutside},
		{"other port", blob, loc("https://x.blob.test:8443/a"), "GET /a\nHost: x.blob.test:8443", ErrOutside},
		{"evil", blob, loc("https://evil.test/a"), "GET /a\nHost: evil.test", ErrOutside},
		{"own host with credential", own, loc("https://api.test/b"), "GET /b", nil},
		{"own host, other port, with credential", own, loc("https://api.test:8443/b"), "GET /b\nHost: api.test:8443",
			ErrOutside},
		{"other host with credential", own, loc("https://evil.test/b"), "GET /b\nHost: evil.test", ErrOutside},
		{"second host of a self-hosted account", also, loc("https://127.0.0.1:7443/b"), "GET /b\nHost: 127.0.0.1:7443", nil},
		{"other method", blob, loc("https://x.blob.test/a"), "POST /a\nHost: x.blob.test", ErrOutside},
		{"header", blob, loc("https://x.blob.test/a"), "GET /a\nHost: x.blob.test\nAuthorization: Bearer x", ErrOutside},
		{"location without a follow entry", entry(nil), loc("https://api.test/b"), "GET /b", ErrOutside},
	} {
		if err := Head(c.e, parse(t, c.raw), c.loc); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	wild := entry(func(e *wire.Entry) { e.Follow, e.Host, e.Also = "log", "*.api.test", []string{"evil.test:443"} })
	for _, u := range []string{"https://x.api.test/", "https://evil.test/"} {
		if MayFollow(wild, loc(u)) {
			t.Errorf("the credential may be carried to %s", u)
		}
	}
}

func jcs(s string) []byte { return []byte(s) }

func TestJSONBodyHasExactlyTheListedLeaves(t *testing.T) {
	file := []byte("all of it\x00\xff")
	leaves := []wire.Leaf{
		{Pointer: "/title", Value: jcs(`"a \"b\" <ü>"`)}, {Pointer: "/draft", Value: jcs(`false`)}, {Pointer: "/n",
			Value: jcs(`12`)},
		{Pointer: "/labels", Value: jcs(`["x","y"]`)}, {Pointer: "/who/na~1me", Value: jcs(`null`)},
		{Pointer: "/content", Base64: &wire.FileBody{SHA256: sha256.Sum256(file), Size: int64(len(file))}},
	}
	b64 := base64.StdEncoding.EncodeToString(file)
	body := func(from, to string) string {
		s := `{"title":"a \"b\" <ü>","draft":false,"n":12,"labels":["x","y"],"who":{"na/me":null},"content":"` + b64 + `"}`
		out := strings.Replace(s, from, to, 1)
		if from != "" && out == s {
			t.Fatalf("%q does not occur", from)
		}
		return out
	}
	for name, c := range map[string]struct {
		data string
		ok   bool
	}{
		"as listed":     {body("", ""), true},
		"blanks":        {body(`"draft":false`, "\n \"draft\" : false "), true},
		"other escapes": {body(`<ü>`, `\u003c\u00fc\u003E`), true},
		"other order": {`{"content":"` + b64 + `","who":{"na/me":null},"labels":["x","y"],"n":12,"draft":false,` +
			`"title":"a \"b\" <ü>"}`, true},
		"other title":          {body(`a \"b`, `b \"b`), false},
		"field more":           {body(`"draft"`, `"body":"x","draft"`), false},
		"field missing":        {body(`"n":12,`, ``), false},
		"field twice":          {body(`"n":12`, `"n":12,"n":12`), false},
		"field twice, escaped": {body(`"n":12`, `"n":12,"\u006e":13`), false},
		"number as text":       {body(`12`, `"12"`), false},
		"number otherwise":     {body(`12`, `12.0`), false},
		"number by exponent":   {body(`12`, `1.2e1`), false},
		"array longer":         {body(`"y"]`, `"y","z"]`), false},
		"array order":          {body(`["x","y"]`, `["y","x"]`), false},
		"nested more":          {body(`{"na/me":null}`, `{"na/me":null,"x":1}`), false},
		"nested empty":         {body(`"draft"`, `"e":{},"draft"`), false},
		"null for object":      {body(`{"na/me":null}`, `null`), false},
		"other file":           {body(b64, base64.StdEncoding.EncodeToString([]byte("all of it\x00\xfe"))), false},
		"file with line break": {body(b64, b64[:4]+`\n`+b64[4:]), false},
		"file unpadded":        {body(b64, strings.TrimRight(b64, "=")), false},
		"array":                {`[` + body("", "") + `]`, false},
		"two values":           {body("", "") + `{}`, false},
		"text after":           {body("", "") + `x`, false},
		"cut":                  {body("", "")[:20], false},
		"empty":                {``, false},
		"not UTF-8":            {body(`ü`, "\xfc"), false},
		"NUL":                  {body(`"n"`, "\x00\"n\""), false},
		"deep":                 {strings.Repeat(`{"a":`, 40) + `1` + strings.Repeat(`}`, 40), false},
	} {
		err := Check(&wire.Body{JSON: leaves}, []byte(c.data))
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrOutside) {
			t.Errorf("%s: %v, want allowed %v", name, err, c.ok)
		}
	}
	if err := Check(&wire.Body{Media: mediaJSON}, []byte(" {} ")); err != nil {
		t.Errorf("empty object: %v", err)
	}
	if err := Check(&wire.Body{Media: mediaJSON}, []byte(`{"a":1}`)); err == nil {
		t.Error("empty object with a field: allowed")
	}
	big := []wire.Leaf{{Pointer: "/n", Value: jcs("9007199254740992")}}
	if err := Check(&wire.Body{JSON: big}, []byte(`{"n":9007199254740993}`)); err == nil {
		t.Error("a number that differs beyond a double: allowed")
	}
	list := []wire.Leaf{{Pointer: "/n", Value: jcs("[9007199254740992]")}}
	if err := Check(&wire.Body{JSON: list}, []byte(`{"n":[9007199254740993]}`)); err == nil {
		t.Error("a number in a list that differs beyond a double: allowed")
	}
}

func TestJSONTextOfAFile(t *testing.T) {
	file := []byte("line 1\nline \"2\" \u00fc\t</b>\n")
	leaves := []wire.Leaf{{Pointer: "/body", Text: &wire.FileBody{SHA256: sha256.Sum256(file), Size: int64(len(file))}}}
	for body, ok := range map[string]bool{
		`{"body":"line 1\nline \"2\" ü\t</b>\n"}`:                   true,
		`{"body":"line 1\u000aline \u00222\u0022 \u00fc\t<\/b>\n"}`: true,
		`{"body":"line 1\nline \"2\" ü\t</b>"}`:                     false,
		`{"body":"line 1\nline \"3\" ü\t</b>\n"}`:                   false,
		`{"body":["line 1\nline \"2\" ü\t</b>\n"]}`:                 false,
		`{"body":null}`: false,
		`{}`:            false,
	} {
		if err := Check(&wire.Body{JSON: leaves}, []byte(body)); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed %v", body, err, ok)
		}
	}
	both := []wire.Leaf{{Pointer: "/body", Text: leaves[0].Text, Base64: leaves[0].Text}}
	if err := Check(&wire.Body{JSON: both}, []byte(`{"body":"x"}`)); err == nil {
		t.Error("bound in two ways: allowed")
	}
	r := parse(t, "POST /\nContent-Type: application/json\nContent-Length: 3000000")
	leaves[0].Text = &wire.FileBody{Size: 1 << 20}
	if kind, _, err := Plan(&wire.Body{Media: mediaJSON, JSON: leaves}, r); kind != Whole || err != nil {
		t.Errorf("%v, %v", kind, err)
	}
}

func TestPlan(t *testing.T) {
	digest := wire.Body{Media: "text/calendar", SHA256: wire.Sum([]byte("x"))}
	js := wire.Body{Media: mediaJSON, JSON: []wire.Leaf{{Pointer: "/a", Value: jcs("1")}}}
	file := wire.Body{Media: "application/octet-stream", File: &wire.FileBody{Size: 3}}
	for name, c := range map[string]struct {
		b    wire.Body
		raw  string
		kind Kind
		ok   bool
	}{
		"none":               {wire.Body{}, "POST /", None, true},
		"none, said":         {wire.Body{}, "POST /\nContent-Length: 0", None, true},
		"none, but one":      {wire.Body{}, "POST /\nContent-Length: 1", None, false},
		"none, but chunked":  {wire.Body{}, "POST /\nTransfer-Encoding: chunked", None, false},
		"none, but a type":   {wire.Body{}, "POST /\nContent-Type: text/plain", None, false},
		"digest":             {digest, "PUT /\nContent-Type: Text/Calendar; charset=UTF-8\nContent-Length: 1", Whole, true},
		"digest, chunked":    {digest, "PUT /\nContent-Type: text/calendar\nTransfer-Encoding: chunked", Whole, true},
		"digest, other type": {digest, "PUT /\nContent-Type: text/vcard\nContent-Length: 1", None, false},
		"digest, no type":    {digest, "PUT /\nContent-Length: 1", None, false},
		"other charset":      {digest, "PUT /\nContent-Type: text/calendar; charset=utf-7\nContent-Length: 1", None, false},
		"other parameter": {digest, "PUT /\nContent-Type: text/calendar; method=REQUEST\nContent-Length: 1", None,
			false},
		"two parameters": {digest,
			"PUT /\nContent-Type: text/calendar; charset=utf-8; method=REQUEST\nContent-Length: 1", None, false},
		"json":                 {js, "POST /\nContent-Type: application/json\nContent-Length: 7", Whole, true},
		"json too long":        {js, "POST /\nContent-Type: application/json\nContent-Length: 99999999", None, false},
		"file":                 {file, "PUT /\nContent-Type: application/octet-stream\nContent-Length: 3", File, true},
		"file of another size": {file, "PUT /\nContent-Type: application/octet-stream\nContent-Length: 4", None, false},
		"file chunked": {file, "PUT /\nContent-Type: application/octet-stream\nTransfer-Encoding: chunked", None,
			false},
		"two bindings": {wire.Body{Media: mediaJSON, SHA256: digest.SHA256, File: file.File},
			"PUT /\nContent-Type: application/json\nContent-Length: 3", None, false},
	} {
		kind, _, err := Plan(&c.b, parse(t, c.raw))
		if kind != c.kind || (err == nil) != c.ok {
			t.Errorf("%s: %v, %v", name, kind, err)
		}
	}
}

func TestStreamHoldsTheLastBlockBack(t *testing.T) {
	for _, n := range []int{0, 1, 2, 99, 100, 101, 150, 199, 200, 201, 1000, 1001} {
		data := bytes.Repeat([]byte("x"), n)
		f := &wire.FileBody{SHA256: sha256.Sum256(data), Size: int64(n)}
		var out bytes.Buffer
		if sent, err := Stream(&out, bytes.NewReader(data), f, make([]byte, 100)); err != nil || sent != int64(n) ||
			out.Len() != n {
			t.Errorf("%d bytes: sent %d, %v", n, sent, err)
		}
		if n == 0 {
			continue
		}
		data[n/3]++
		out.Reset()
		sent, err := Stream(&out, bytes.NewReader(data), f, make([]byte, 100))
		if !errors.Is(err, ErrOutside) || sent >= int64(n) || out.Len() >= n {
			t.Errorf("%d bytes, other content: sent %d, %v", n, sent, err)
		}
		out.Reset()
		if sent, err := Stream(&out, bytes.NewReader(data[1:]), f, make([]byte, 100)); !errors.Is(err,
			io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || sent >= int64(n) {
			t.Errorf("%d bytes, cut: sent %d, %v", n, sent, err)
		}
	}
}

// FuzzEnvelope: what is allowed is what the entry lists, read anew from what would go out.
func FuzzEnvelope(f *testing.F) {
	f.Add("GET /repos/o/r/issues?state=open&page=2 HTTP/1.1\r\nHost: api.test\r\nX-V: 1\r\n\r\n", []byte(`{"a":"x"}`))
	f.Add("GET /repos/o/r/issues/..%2f HTTP/1.1\r\nHost: api.test\r\nX-Http-Method: 1\r\n\r\n", []byte(`{"a":"x","a":1}`))
	f.Add("GET /repos/o/r/issues/a%20b?page=%C3%A4 HTTP/1.1\r\nHost: API.test.\r\nAccept: b\r\n\r\n",
		[]byte(`{"\u0061":"\u0078"}`))
	e := entry(func(e *wire.Entry) {
		e.AnyPath = true
		e.Query = []wire.Match{{Name: "state", Values: []string{"open"}, Optional: true}, {Name: "page", Any: true,
			Optional: true}}
		e.Header = []wire.Match{{Name: "X-V", Values: []string{"1"}, Optional: true}}
	})
	leaves := []wire.Leaf{{Pointer: "/a", Value: jcs(`"x"`)}}
	f.Fuzz(func(t *testing.T, raw string, body []byte) {
		if err := Check(&wire.Body{JSON: leaves}, body); err == nil {
			s := strings.Map(func(r rune) rune {
				if strings.ContainsRune(" \t\r\n", r) {
					return -1
				}
				return r
			}, string(body))
			if len(s) < len(`{"a":"x"}`) || len(s) > len(`{"\u0061":"\u0078"}`) || s[0] != '{' || strings.Count(s, ":") != 1 {
				t.Fatalf("body %q: allowed", body)
			}
		}
		r, err := head.Read(bufio.NewReaderSize(strings.NewReader(raw), head.MaxBytes))
		if err != nil || Head(e, r, nil) != nil {
			return
		}
		if r.Method != "GET" || r.Path != e.Path && !strings.HasPrefix(r.Path, e.Path+"/") {
			t.Fatalf("%q: %s %s", raw, r.Method, r.Path)
		}
		for _, bad := range []string{"//", "/../", "/./", ";", "\\", "%2F", "%2f", "%2E", "%2e", "%5C", "%00"} {
			if strings.Contains(r.Path+"/", bad) && !strings.HasSuffix(r.Path, "/") {
				t.Fatalf("%q: path %s has %s", raw, r.Path, bad)
			}
		}
		for _, g := range r.Fields {
			if g.Name != "X-V" && g.Name != "Content-Type" && !strings.HasPrefix(g.Name, "Accept") {
				t.Fatalf("%q: header %s", raw, g.Name)
			}
		}
		again := *r
		again.Host = "api.test"
		if err := Head(e, &again, nil); err != nil || again.Query != r.Query {
			t.Fatalf("%q: judged once, then otherwise: %v, %q, %q", raw, err, r.Query, again.Query)
		}
	})
}
