// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/head"
)

func request(target string, fields ...string) *head.Request {
	r := &head.Request{Method: "GET"}
	r.Path, r.Query, r.HasQuery = strings.Cut(target, "?")
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Fields = append(r.Fields, head.Field{Name: name, Value: value})
	}
	return r
}

func show(r *head.Request) string {
	s := r.Path
	if r.HasQuery {
		s += "?" + r.Query
	}
	for _, f := range r.Fields {
		s += "\n" + f.Name + ": " + f.Value
	}
	return s
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

const (
	sur  = "ghp_SURROGATE000000000000"
	real = "ghp_REAL-and-longer-than-the-surrogate"
)

var (
	bearer  = wire.Placement{Kind: Header, Name: "Authorization", Prefix: "Bearer "}
	private = wire.Placement{Kind: Header, Name: "private-token"}
	basic   = wire.Placement{Kind: Basic, User: "ada"}
	asUser  = wire.Placement{Kind: Basic}
	query   = wire.Placement{Kind: Query, Name: "key"}
	path    = wire.Placement{Kind: Path, Prefix: "bot"}
)

func TestSwapInExactlyTheDeclaredPlace(t *testing.T) {
	for _, c := range []struct {
		name string
		p    wire.Placement
		r    *head.Request
		left string // after Find
		out  string // after Put
	}{
		{"bearer", bearer, request("/a", "Accept: x", "Authorization: Bearer "+sur), "/a\nAccept: x",
			"/a\nAccept: x\nAuthorization: Bearer " + real},
		{"token", wire.Placement{Kind: Header, Name: "Authorization", Prefix: "token "},
			request("/", "Authorization: token "+sur), "/", "/\nAuthorization: token " + real},
		{"own header", private, request("/", "Private-Token: "+sur), "/", "/\nPrivate-Token: " + real},
		{"cookie", wire.Placement{Kind: Header, Name: "Cookie", Prefix: "session="}, request("/", "Cookie: session="+sur),
			"/",
			"/\nCookie: session=" + real},
		{"basic password", basic, request("/", "Authorization: Basic "+b64("ada:"+sur)), "/",
			"/\nAuthorization: Basic " + b64("ada:"+real)},
		{"basic user", asUser, request("/", "Authorization: basic "+b64(sur+":")), "/",
			"/\nAuthorization: Basic " + b64(real+":")},
		{"query", query, request("/a?x=1&key=" + sur + "&y=2"), "/a?x=1&y=2", "/a?x=1&y=2&key=" + real},
		{"query alone", query, request("/a?key=" + sur), "/a", "/a?key=" + real},
		{"path", path, request("/bot" + sur + "/send"), "/bot{credential}/send", "/bot" + real + "/send"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := Find(c.r, c.p, sur); err != nil {
				t.Fatal(err)
			}
			if got := show(c.r); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
			if err := Put(c.r, c.p, real); err != nil {
				t.Fatal(err)
			}
			if got := show(c.r); got != c.out {
				t.Errorf("out %q, want %q", got, c.out)
			}
		})
	}
}

func TestSurrogateAnywhereElseIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		p wire.Placement
		r *head.Request
	}{
		"absent":            {bearer, request("/")},
		"other":             {bearer, request("/", "Authorization: Bearer ghp_other")},
		"other scheme":      {bearer, request("/", "Authorization: token "+sur)},
		"lower-case scheme": {bearer, request("/", "Authorization: bearer "+sur)},
		"with more":         {bearer, request("/", "Authorization: Bearer "+sur+", x")},
		"twice":             {bearer, request("/", "Authorization: Bearer "+sur, "Authorization: Bearer "+sur)},
		"also elsewhere":    {bearer, request("/", "Authorization: Bearer "+sur, "X-Trace: "+sur)},
		"also in the query": {bearer, request("/?a="+sur, "Authorization: Bearer "+sur)},
		"also in the path":  {bearer, request("/"+sur, "Authorization: Bearer "+sur)},
		"header for basic":  {basic, request("/", "Authorization: Bearer "+sur)},
		"basic unpadded":    {asUser, request("/", "Authorization: Basic "+strings.TrimRight(b64(sur+":"), "="))},
		"basic other user":  {basic, request("/", "Authorization: Basic "+b64("bob:"+sur))},
		"basic as user":     {basic, request("/", "Authorization: Basic "+b64(sur+":"))},
		"basic url alphabet": {basic, request("/", "Authorization: Basic "+strings.ReplaceAll(b64("ada:"+sur), "/",
			"_")+"-")},
		"basic two blanks":    {basic, request("/", "Authorization: Basic  "+b64("ada:"+sur))},
		"query in other name": {query, request("/?k=" + sur)},
		"query twice":         {query, request("/?key=" + sur + "&key=" + sur)},
		"query name escaped":  {query, request("/?ke%79=" + sur)},
		"path as part":        {path, request("/bot" + sur + "x/send")},
		"path without prefix": {path, request("/" + sur + "/send")},
		"path twice":          {path, request("/bot" + sur + "/bot" + sur)},
		"websocket key": {wire.Placement{Kind: Header, Name: "Sec-WebSocket-Key"}, request("/",
			"Sec-Websocket-Key: "+sur)},
		"conditional":          {wire.Placement{Kind: Header, Name: "If-None-Match"}, request("/", "If-None-Match: "+sur)},
		"unknown kind of body": {wire.Placement{Kind: "body"}, request("/")},
		"prefix of surrogate":  {bearer, request("/", "Authorization: Bearer "+sur[:len(sur)-1])},
	} {
		if err := Find(c.r, c.p, sur); !errors.Is(err, ErrSurrogate) {
			t.Errorf("%s: %v, want refusal", name, err)
		} else if strings.Contains(err.Error(), sur) {
			t.Errorf("%s: the error quotes the surrogate", name)
		}
	}
	if err := Find(request("/", "Authorization: Bearer "), bearer, ""); !errors.Is(err, ErrSurrogate) {
		t.Errorf("empty surrogate: %v", err)
	}
}

func TestCase_SW02_ControlBytesAndQuotesInTheCredential(t *testing.T) {
	for name, secret := range map[string]string{
		"CR LF": "a\"b&c=d%\r\nX-Evil: 1", "LF": "abcd\nefgh", "NUL": "abcd\x00efgh", "tab": "abcd\tefgh",
		"DEL":       "abcd\x7fefgh",
		"too short": "abc", "too long": strings.Repeat("x", MaxSecret+1), "leading blank": " abcdef",
		"not UTF-8": "abcd\xffefgh",
	} {
		for _, p := range []wire.Placement{bearer, private, basic, asUser, query, path} {
			err := CheckPlace(p, secret)
			if !errors.Is(err, ErrPlace) {
				t.Errorf("%s in %s: %v, want refusal", name, p.Kind, err)
			} else if strings.Contains(err.Error(), secret) {
				t.Errorf("%s in %s: the error quotes the credential", name, p.Kind)
			}
			r := request("/")
			if err := Put(r, p, secret); err == nil || show(r) != "/" {
				t.Errorf("%s in %s: put anyway: %q", name, p.Kind, show(r))
			}
		}
	}
	// Without control bytes it stays one value in every place.
	const secret = `a"b&c=d%#/?;+ e`
	for _, c := range []struct {
		p    wire.Placement
		r    *head.Request
		want string
	}{
		{bearer, request("/"), "/\nAuthorization: Bearer " + secret},
		{basic, request("/"), "/\nAuthorization: Basic " + b64("ada:"+secret)},
		{query, request("/?x=1"), "/?x=1&key=a%22b%26c%3Dd%25%23%2F%3F%3B%2B%20e"},
		{path, request("/bot{credential}/x"), "/bota%22b%26c%3Dd%25%23%2F%3F%3B%2B%20e/x"},
	} {
		if err := Put(c.r, c.p, secret); err != nil || show(c.r) != c.want {
			t.Errorf("%s: %q, %v, want %q", c.p.Kind, show(c.r), err, c.want)
		}
	}
	for name, p := range map[string]wire.Placement{
		"negotiation": {Kind: Header, Name: "Accept-Language"}, "conditional": {Kind: Header, Name: "if-match"},
		"upgrade": {Kind: Header, Name: "sec-websocket-protocol"}, "host": {Kind: Header, Name: "Host"},
		"no name": {Kind: Header}, "bad name": {Kind: Header, Name: "a b"}, "prefix with CR": {Kind: Header, Name: "X",
			Prefix: "\r"},
		"user with colon": {Kind: Basic, User: "a:b"}, "no parameter": {Kind: Query}, "prefix with slash": {Kind: Path,
			Prefix: "a/"},
		"no kind": {},
	} {
		if err := CheckPlace(p, real); !errors.Is(err, ErrPlace) {
			t.Errorf("%s: %v, want refusal", name, err)
		}
	}
}

func TestCase_SW08_SurrogateShapedLikeTheVendorsToken(t *testing.T) {
	// Shape says nothing here: a surrogate is swapped because authd resolved it, never because of how it looks.
	for _, s := range []string{"xoxb-0000-surrogate", "ghp_0000000000000000000000000000000000ab", "sk-ant-surrogate"} {
		r := request("/", "Authorization: Bearer "+s)
		if err := Find(r, bearer, s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		r = request("/", "Authorization: Bearer "+strings.ToUpper(s))
		if err := Find(r, bearer, s); !errors.Is(err, ErrSurrogate) {
			t.Errorf("%s in another case: %v", s, err)
		}
	}
	// A token in a form body is no place that is declared today: it stays as it is and is worth nothing.
	if err := CheckPlace(wire.Placement{Kind: "form", Name: "token"}, real); !errors.Is(err, ErrPlace) {
		t.Errorf("form field: %v", err)
	}
}

func FuzzFind(f *testing.F) {
	f.Add("/a?key="+sur, "Authorization", "Bearer "+sur)
	f.Add("/bot"+sur+"/x", "Authorization", "Basic "+b64("ada:"+sur))
	f.Fuzz(func(t *testing.T, target, name, value string) {
		if !head.IsToken(name) || !head.IsValue(value) || !strings.HasPrefix(target, "/") {
			return
		}
		for _, p := range []wire.Placement{bearer, basic, asUser, query, path} {
			r := request(target)
			r.Fields = []head.Field{{Name: head.Canonical(name), Value: value}}
			if Find(r, p, sur) != nil {
				continue
			}
			left := show(r)
			if err := Put(r, p, real); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(show(r), real) + strings.Count(show(r), b64("ada:"+real)) + strings.Count(show(r),
				b64(real+":")); n != 1 {
				t.Fatalf("%s: %q: credential %d times", p.Kind, show(r), n)
			}
			if strings.Contains(left, sur) {
				t.Fatalf("%s: surrogate left in %q", p.Kind, left)
			}
		}
	})
}
