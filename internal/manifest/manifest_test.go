// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

const bot = `about = "a bot"
hosts = ["vendor-a.test", "*.cdn.vendor-a.test:8443"]
[placement]
kind = "header"
name = "Authorization"
prefix = "Bot "
[[route]]
name = "channel"
methods = ["GET"]
path = "/api/channels/{channel}"
class = "read"
[[route]]
name = "any"
methods = ["GET", "POST"]
path = "/api/files/**"
class = "write"
[[route]]
name = "query"
methods = ["GET", "POST"]
path = "/graphql"
graphql = "query"
class = "read"
[[route]]
name = "mutation"
methods = ["POST"]
path = "/graphql"
graphql = "mutation"
class = "write"
[[route]]
name = "rpc"
methods = ["POST"]
path = "/rpc"
jsonrpc = ["tools/list", "ping"]
class = "read"
[[route]]
name = "feed"
methods = ["GET"]
path = "/gateway"
websocket = true
class = "write"
[[route]]
name = "ask"
methods = ["POST"]
path = "/ask/{model}:run"
model = true
class = "read"
[[route]]
name = "ask-other"
methods = ["POST"]
path = "/ask/{model}:tune"
class = "destructive"
[[route]]
name = "list"
methods = ["GET"]
path = "/list"
query = {state = "open"}
class = "read"
[[route]]
name = "list-only"
methods = ["GET"]
path = "/only"
query = {state = "open"}
query-only = true
class = "read"
[[route]]
name = "list-danger"
methods = ["GET"]
path = "/list"
query = {state = "purge"}
class = "destructive"
[[route]]
name = "git-fetch"
methods = ["GET", "POST"]
path = "/git/**"
git = "fetch"
class = "read"
[[route]]
name = "git-push"
methods = ["POST"]
path = "/git/**"
git = "push"
class = "write"
[[route]]
name = "git-delete"
methods = ["POST"]
path = "/git/**"
git = "delete"
class = "destructive"
[model]
models = ["a-*", "b"]
max-tokens = 100
server-tools = ["web_search_20250305"]
refusal = "anthropic"
`

func parse(t testing.TB, s string) *Manifest {
	t.Helper()
	m, err := Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// req is `METHOD PATH?QUERY`, to the first host of bot.
func req(line string, does ...string) *wire.RequestReq {
	method, target, _ := strings.Cut(line, " ")
	path, query, _ := strings.Cut(target, "?")
	return &wire.RequestReq{Name: "vendor-a.test", Port: 443, Method: method, Path: path, Query: query, Does: does}
}

func named(r *Route, err error) string {
	switch {
	case err != nil:
		return "ambiguous"
	case r == nil:
		return "nothing"
	}
	return r.Name + " " + r.Class
}

func TestMatch(t *testing.T) {
	m := parse(t, bot)
	with := func(q *wire.RequestReq, f func(*wire.RequestReq)) *wire.RequestReq { f(q); return q }
	for _, c := range []struct {
		q    *wire.RequestReq
		want string
	}{
		{req("GET /api/channels/7"), "channel read"},
		{req("GET /api/channels/7?limit=3"), "channel read"},
		{req("HEAD /api/channels/7"), "nothing"},
		{req("get /api/channels/7"), "nothing"},
		{req("GET /api/channels/7/"), "nothing"},
		{req("GET /api/channels/"), "nothing"},
		{req("GET /api/channels"), "nothing"},
		{req("GET /api/Channels/7"), "nothing"},
		{req("GET /api/channels/7/messages"), "nothing"},
		{req("GET /api/files"), "nothing"},
		{req("GET /api/files/a"), "any write"},
		{req("GET /api/files/a/b/"), "any write"},
		{req("GET /"), "nothing"},
		// What servers read in two ways never gets to a route.
		{req("GET /api/channels/../x"), "ambiguous"},
		{req("GET /api//channels/7"), "ambiguous"},
		{req("GET /api/channels/7;x"), "ambiguous"},
		{req("GET /api/channels/%2e%2e"), "ambiguous"},
		{req("GET /api/channels/7%2Fmessages"), "ambiguous"},
		{req("GET /api/channels/%61"), "ambiguous"}, // not in its one form: it must have come past Path
		{req("GET api"), "ambiguous"},
		{req("GET /api/channels/7?a=%zz"), "ambiguous"},
		{req("GET /api/channels/7?a b"), "ambiguous"},
		{req("GET /api/channels/7?_method=DELETE"), "ambiguous"},
		{req("GET /api/channels/7?%5fmethod=DELETE"), "ambiguous"},
		{req("GET /api/channels/7?X-HTTP-Method-Override=DELETE"), "ambiguous"},
		{req("GET /api/channels/7?a=1&.method=DELETE"), "ambiguous"},
		{req("GET /api/channels/7?+_method%5B%5D=DELETE"), "ambiguous"},
		// Two readings that are left must both be allowed: one server takes @a%2Fb for a name, another for a path.
		{req("GET /api/channels/@me%2Fsecret"), "nothing"},
		{req("GET /api/files/@a%2Fb"), "any write"},
		// A colon that is percent-encoded is one to some servers: the worse reading counts.
		{req("POST /ask/x:tune"), "ask-other destructive"},
		{req("POST /ask/x%3Atune"), "nothing"},
		// GraphQL and JSON-RPC: each operation must be named.
		{req("POST /graphql", "graphql query"), "query read"},
		{req("GET /graphql", "graphql query"), "query read"},
		{req("POST /graphql", "graphql query", "graphql query"), "query read"},
		{req("POST /graphql", "graphql mutation"), "mutation write"},
		{req("GET /graphql", "graphql mutation"), "nothing"},
		{req("POST /graphql", "graphql query", "graphql mutation"), "mutation write"},
		{req("POST /graphql", "graphql query", "graphql subscription"), "nothing"},
		{req("POST /graphql", wire.Unreadable), "nothing"},
		{req("POST /graphql", "graphql query", wire.Unreadable), "nothing"},
		{req("POST /graphql"), "nothing"},
		{req("POST /graphql", ""), "nothing"},
		{req("POST /graphql", "graphql querying"), "nothing"},
		{req("POST /rpc", "jsonrpc tools/list"), "rpc read"},
		{req("POST /rpc", "jsonrpc tools/list", "jsonrpc ping"), "rpc read"},
		{req("POST /rpc", "jsonrpc tools/call"), "nothing"},
		{req("POST /rpc", "jsonrpc tools/list", "jsonrpc tools/call"), "nothing"},
		{req("POST /rpc", "graphql query"), "nothing"},
		{req("GET /api/channels/7", wire.Unreadable), "nothing"},
		{req("GET /api/channels/7", "graphql query"), "nothing"}, // an operation that no route names
		// A WebSocket is one, and nothing else is.
		{with(req("GET /gateway"), func(q *wire.RequestReq) { q.Upgrade = true }), "feed write"},
		{req("GET /gateway"), "nothing"},
		{with(req("GET /api/channels/7"), func(q *wire.RequestReq) { q.Upgrade = true }), "nothing"},
		// Models.
		{with(req("POST /ask/x:run"), func(q *wire.RequestReq) { q.Model = &wire.ModelUse{Model: "a"} }), "ask read"},
		{req("POST /ask/x:run"), "nothing"},
		{req("POST /ask/x:run", wire.Unreadable), "nothing"},
		// Queries.
		{req("GET /list?state=open"), "list read"},
		{req("GET /list?state=open&page=2"), "list read"},
		{req("GET /list?page=2&st%61te=open"), "list read"},
		{req("GET /list"), "nothing"},
		{req("GET /list?state=closed"), "nothing"},
		{req("GET /list?state=purge"), "list-danger destructive"},
		{req("GET /list?state=open&state=purge"), "ambiguous"},
		{req("GET /list?state=open&State=purge"), "ambiguous"},
		{req("GET /list?state=open&state[]=purge"), "ambiguous"},
		{req("GET /list?state=open;state=purge"), "ambiguous"},
		{req("GET /only?state=open"), "list-only read"},
		{req("GET /only?state=open&page=2"), "nothing"},
		{req("GET /only?state=open&x={surrogate}"), "nothing"},
		// git.
		{req("GET /git/r/info/refs?service=git-upload-pack", "git fetch"), "git-fetch read"},
		{req("POST /git/r/git-receive-pack", "git push update refs/heads/main"), "git-push write"},
		{req("POST /git/r/git-receive-pack", "git push create refs/heads/a", "git push delete refs/heads/b"), "git-delete destructive"},
		{req("POST /git/r/git-receive-pack", "git push update refs/heads/a", `git push option "ci.skip"`), "git-push write"},
		{req("POST /git/r/git-receive-pack", "git push delete refs/heads/a", `git push option "ci.skip"`), "git-delete destructive"},
		{req("POST /git/r/git-receive-pack", `git push option "ci.skip"`), "nothing"},
		{req("POST /git/r/git-receive-pack", "git fetch", `git push option "ci.skip"`), "nothing"},
		{req("POST /git/r/git-receive-pack", "git push"), "nothing"},
		{req("GET /git/r/HEAD"), "nothing"},
		// Where: EG-05, EG-13.
		{with(req("GET /api/channels/7"), func(q *wire.RequestReq) { q.Port = 25 }), "nothing"},
		{with(req("GET /api/channels/7"), func(q *wire.RequestReq) { q.Port = 8443 }), "nothing"},
		{with(req("GET /api/channels/7"), func(q *wire.RequestReq) { q.Name = "x.cdn.vendor-a.test"; q.Port = 8443 }), "channel read"},
		{with(req("GET /api/channels/7"), func(q *wire.RequestReq) { q.Name = "notvendor-a.test" }), "nothing"},
		{with(req("GET /api/channels/7"), func(q *wire.RequestReq) { q.Name = "" }), "nothing"},
		{with(req("GET /api/channels/7"), func(q *wire.RequestReq) { q.Clear = true }), "nothing"},
	} {
		if got := named(m.Match(c.q)); got != c.want {
			t.Errorf("%s %s?%s %q on %s:%d is %s, want %s", c.q.Method, c.q.Path, c.q.Query, c.q.Does, c.q.Name, c.q.Port, got, c.want)
		}
	}
}

// A read by GET is none where its query is a mutation, also at a path that nobody called GraphQL.
func TestCase_EG14_AMutationByGETIsNoRead(t *testing.T) {
	m := parse(t, strings.Replace(bot, `path = "/api/channels/{channel}"`, `path = "/api/**"`, 1))
	site := Sites("vendor-a.test", 443)
	for query, read := range map[string]bool{
		"query=%7Bviewer%7Bid%7D%7D":         true,
		"query=cats":                         true,
		"query=mutation":                     true, // a search for the word
		"query=mutation%7Bdrop%7D":           false,
		"query=mutation{drop}":               false,
		"Query=mutation{drop}":               false,
		"a=1&query=%23x%0Amutation+M%7Bd%7D": false,
		"query=subscription%7Bd%7D":          false,
	} {
		want, wantSite := "nothing", Change+" write"
		if read {
			want, wantSite = "channel read", "read read"
		}
		if got := named(m.Match(req("GET /api/x?" + query))); got != want {
			t.Errorf("%s is %s, want %s", query, got, want)
		}
		if got := named(site.Match(req("GET /x?" + query))); got != wantSite {
			t.Errorf("at a site %s is %s, want %s", query, got, wantSite)
		}
	}
	for _, h := range []string{"X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X_HTTP_Method_Override", "x.http.method",
		"X-Original-URL", "x_rewrite_url", "X-Forwarded-Host", "_method", ".method", " _method", "[method", "_method[]", "_METHOD[0]"} {
		if !Override(h) {
			t.Errorf("%s passes", h)
		}
	}
	if Override("X-Request-Id") {
		t.Error("control: any header is an override")
	}
}

// EG-14: beside a wide route for reads, a narrow one of a worse class counts however its path is written: many servers know no case
// in paths, and drop a last slash. It opens nothing: what the wide one does not name is on no route. Controls: the path as the manifest
// has it, and another one.
func TestCase_EG14_AWorseRouteInOtherLetters(t *testing.T) {
	m, err := Parse([]byte(`
about = "an interface that changes by GET"
hosts = ["vendor-a.test"]
[placement]
kind = "header"
name = "Authorization"
[[route]]
name = "look"
methods = ["GET"]
path = "/api/**"
class = "read"
[[route]]
name = "drop"
methods = ["GET"]
path = "/api/Items/{item}/delete"
class = "destructive"
[[route]]
name = "other"
methods = ["GET"]
path = "/Other/{item}"
class = "write"
`))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/api/Items/7/delete": "drop", "/api/items/7/DELETE": "drop", "/api/Items/7/delete/": "drop",
		"/api/ITEMS/7/Delete/": "drop", "/api/items/7/deleted": "look", "/api/items/7": "look", "/Other/7": "other", "/other/7": "",
		"/Other/7/": ""} {
		r, err := m.Match(&wire.RequestReq{Name: "vendor-a.test", Port: 443, Method: "GET", Path: path})
		got := ""
		if err == nil && r != nil {
			got = r.Name
		}
		if got != want {
			t.Errorf("%s is on %q (%v), want %q", path, got, err, want)
		}
	}
}

// EG-05: names match on the borders of labels only; below one, at any depth.
func TestCase_EG05_HostsMatchOnLabels(t *testing.T) {
	m := &Manifest{Hosts: []Host{{Name: "vendor-a.test", Port: 443}, {Name: "vendor-b.test", Below: true, Port: 443}}}
	for host, want := range map[string]bool{
		"vendor-a.test": true, "notvendor-a.test": false, "vendor-a.test.evil.test": false, "vendor-a-test.evil.test": false,
		"a.vendor-a.test": false, "a.vendor-b.test": true, "a.b.vendor-b.test": true, "vendor-b.test": false, ".vendor-b.test": false,
		"notvendor-b.test": false, "a.vendor-b.test.evil.test": false, "VENDOR-A.test": false, "vendor-a.test.": false, "": false,
	} {
		if got := m.Covers(host, 443); got != want {
			t.Errorf("%q: %v", host, got)
		}
		if m.Covers(host, 25) || m.Covers(host, 80) || m.Covers(host, 8443) {
			t.Errorf("%q at a port that nobody named", host)
		}
	}
}

// EG-13: a rule is about TLS at 443 unless it names another port; that what is spoken there is HTTP, egress holds it to.
func TestCase_EG13_ARuleIsAboutOnePort(t *testing.T) {
	m := parse(t, bot)
	for _, c := range []struct {
		host string
		port uint16
		want bool
	}{
		{"vendor-a.test", 443, true}, {"vendor-a.test", 25, false}, {"vendor-a.test", 22, false}, {"vendor-a.test", 80, false},
		{"vendor-a.test", 0, false}, {"vendor-a.test", 8443, false}, {"x.cdn.vendor-a.test", 8443, true}, {"x.cdn.vendor-a.test", 443, false},
	} {
		q := req("GET /api/channels/7")
		q.Name, q.Port = c.host, c.port
		if got := named(m.Match(q)) == "channel read"; got != c.want || m.Covers(c.host, c.port) != c.want {
			t.Errorf("%s:%d: %v", c.host, c.port, got)
		}
	}
}

// EG-06: what two parsers of addresses read differently is no host of a manifest, and no path of a request.
func TestCase_EG06_OneReadingOfAnAddress(t *testing.T) {
	for _, s := range []string{"vendor-a.test@evil.test", "evil.test#@vendor-a.test", "127.0.0.1:9\\@198.51.100.7", "evil.test\\.vendor-a.test",
		"ven\tdor-a.test", "vendor-a.test/", "vendor-a.test?x", "//vendor-a.test", "vendor-a.test:443@evil.test", "vendor-a.test%2eevil.test"} {
		if h, why := parseHost(s); why == "" {
			t.Errorf("%q is taken for %s", s, h)
		}
	}
	m := Sites("vendor-a.test", 443)
	for _, p := range []string{"//evil.test/", "/\\evil.test", "http://evil.test/", "/a\tb", "/a#b", "/a?b", "@evil.test/", "/a@evil.test"} {
		got := named(m.Match(&wire.RequestReq{Name: "vendor-a.test", Port: 443, Method: "GET", Path: p}))
		if want := map[bool]string{true: "read read", false: "ambiguous"}[p == "/a@evil.test"]; got != want {
			t.Errorf("%q is %s, want %s", p, got, want)
		}
	}
}

func TestHosts(t *testing.T) {
	for s, want := range map[string]string{
		"example.org": "example.org:443", "*.example.org": "*.example.org:443", "example.org:8443": "example.org:8443",
		"xn--bcher-kva.example": "xn--bcher-kva.example:443",
		"Example.ORG":           "example.org:443", "*.Example.org:8443": "*.example.org:8443", "example.or\u212a": "",
		"*": "", "*.org": "", "org": "", "localhost": "", "a*.example.org": "", "*example.org": "", "*.*.example.org": "",
		"a.*.org": "", "example.org.": "", ".example.org": "", "a..org": "", "-a.org": "", "a-.org": "", "": "",
		"bücher.example": "", "127.0.0.1": "", "1.2": "", "a.0x7f": "", "[::1]": "", "::1": "", "example.org:0": "", "example.org:": "",
		"example.org:65536": "", "example.org:0443": "", "example.org:+443": "", "https://example.org": "", "example.org/x": "",
		"a@example.org": "", "exam ple.org": "", "example.org\x00": "", "a_b.example.org": "", strings.Repeat("a", 64) + ".org": "",
		strings.Repeat("a.", 130) + "org": "",
	} {
		h, why := parseHost(s)
		switch {
		case want == "" && why == "":
			t.Errorf("%q is taken for %s", s, h)
		case want != "" && (why != "" || h.String() != want):
			t.Errorf("%q is %s (%s), want %s", s, h, why, want)
		}
	}
}

func TestEveryFaultSaysWhere(t *testing.T) {
	edit := func(old, with string) string { return strings.Replace(bot, old, with, 1) }
	for _, c := range []struct{ text, want string }{
		{"", `manifest: about says`},
		{"about = 3", "manifest:1:9: "},
		{"about = \"x\nhosts", "manifest:1:"},
		{edit("[\"vendor-a.test\"", "[\"https://vendor-a.test\""), `"https://vendor-a.test" is more than a host: leave scheme, user and path out`},
		{"hosts = \"vendor-a.test\"", `manifest:1:9: hosts wants a list of text, as ["a", "b"]`},
		{"hosts = [1]", "manifest:1:1: hosts wants a list of text"},
		{"hosts = 2030-03-10", "manifest:1:9: hosts wants a list of text"},
		{"about = 3", "manifest:1:9: about wants text in quotes"},
		{"[about]", "manifest:1:2: about wants text in quotes"},
		{"placement = \"header\"", "manifest:1:13: placement wants a table"},
		{"[[placement]]", "manifest:1:3: [[placement]]: write one [placement]"},
		{"[[route]]\n[[route.query]]\na = \"b\"", "manifest:2:3: [[route.query]]: write one [route.query]"},
		{"[[route]]\nquery = \"a=b\"", "manifest:2:9: query wants a table"},
		{"[[route]]\nquery = {a = 1}", "manifest:2:14: a wants text in quotes"},
		{"[[route]]\nmethods = [[\"GET\"]]", ": methods wants a list of text"},
		{"[[route]]\nmodel = \"x\"", "manifest:2:9: model wants true or false"},
		{"[model]\nmax-tokens = 3.0", "manifest:2:14: max-tokens wants a whole number"},
		{"route = {name = \"a\"}", "manifest:1:1: write each route as [[route]]"},
		{edit("[placement]\nkind = \"header\"\nname = \"Authorization\"\nprefix = \"Bot \"\n", ""), "[placement] says by kind where the credential stands"},
		{edit("/api/channels/{channel}", "/api/x?state=open"), "a query does not stand in path but in query"},
		{edit("about =", "abuot ="), `manifest:1:1: there is no key "abuot" here; did you mean "about"?`},
		{edit("prefix =", "prefx ="), `manifest:6:1: there is no key "prefx" here; did you mean "prefix"?`},
		{edit("prefix =", "Prefix ="), `manifest:6:1: there is no key "Prefix" here; did you mean "prefix"?`},
		{edit("class = \"read\"", "clas = \"read\""), `manifest:11:1: there is no key "clas" here; did you mean "class"?`},
		{edit("class = \"read\"", "class = \"raed\""), `manifest:11:1: route channel: no class "raed"; did you mean "read"?`},
		{edit("class = \"read\"\n", ""), `manifest:7:3: route channel: no class ""`},
		{edit("[[route]]", "[[routes]]"), `manifest:7:3: there is no key "routes" here; did you mean "route"?`},
		{edit("[placement]", "[placement.x]"), `manifest:3:2: there is no key "x" here`},
		{edit("kind = \"header\"", "kind = \"headr\""), `did you mean "header"?`},
		{edit("name = \"Authorization\"", "name = \"A B\""), "manifest:3:2: name is that of the header"},
		{edit("\"GET\"]", "\"get\"]"), `manifest:9:1: route channel: no method "get"; did you mean "GET"?`},
		{edit("\"GET\"]", "\"CONNECT\"]"), `no method "CONNECT"`},
		{edit("/api/channels/{channel}", "/api/../{channel}"), "manifest:10:1: route channel: path"},
		{edit("/api/channels/{channel}", "/api/{a}{b}"), "a segment has one {x} at most"},
		{edit("/api/channels/{channel}", "/api/{surrogate}"), "{surrogate} stands in the path where the placement is path"},
		{edit("/api/channels/{channel}", "/api/*"), "a * stands for nothing"},
		{edit("/api/channels/{channel}", "/**/x"), "a * stands for nothing"},
		{edit("/api/channels/{channel}", "/a%2Fb"), "an encoded slash"},
		{edit("/api/channels/{channel}", "/@a%2Fb"), "canonical"},
		{edit("/api/channels/{channel}", "/%61"), "which would be /a"},
		{edit("/api/channels/{channel}", "api"), "it does not begin with /"},
		{edit("name = \"any\"", "name = \"channel\""), `a second route "channel"`},
		{edit("name = \"any\"", "name = \"An y\""), "a route has a name"},
		{edit("\"vendor-a.test\"", "\"*.vendor-a.test\""), "stands first"},
		{edit("\"vendor-a.test\"", "\"*.test\""), "not a whole name"},
		{edit("\"vendor-a.test\"", "\"192.0.2.1\""), "is an address"},
		{edit("graphql = \"query\"", "graphql = \"querry\""), `did you mean "query"?`},
		{edit("graphql = \"mutation\"\nclass = \"write\"", "graphql = \"mutation\"\nclass = \"read\""), "a mutation is no read"},
		{edit("git = \"push\"\nclass = \"write\"", "git = \"push\"\nclass = \"read\""), "git's push is no read"},
		{edit("git = \"delete\"\nclass = \"destructive\"", "git = \"delete\"\nclass = \"write\""), "deleting a ref is destructive"},
		{edit("websocket = true\nclass = \"write\"", "websocket = true\nclass = \"read\""), "is no read"},
		{edit("websocket = true", "websocket = true\nmodel = true"), "only one of"},
		{edit("jsonrpc = [", "git = \"fetch\"\njsonrpc = ["), "only one of"},
		{edit("methods = [\"GET\"]\npath = \"/gateway\"", "methods = [\"POST\"]\npath = \"/gateway\""), "POST is no method that websocket comes by"},
		{edit("[model]", "[modl]"), `did you mean "model"?`},
		{strings.Split(bot, "[model]")[0], "there is no [model]"},
		{edit("\"a-*\"", "\"a*b\""), "a * stands at the end"},
		{edit("refusal = \"anthropic\"", "refusal = \"antropic\""), `did you mean "anthropic"?`},
		{edit("max-tokens = 100", "max-tokens = -1"), "max-tokens is a number"},
		{edit("query = {state = \"open\"}", "query = {State = \"open\", state = \"x\"}"), "are one to some servers"},
		{edit("about =", "setting = \"dont-aks\"\nabout ="), `did you mean "dont-ask"?`},
		{edit("a bot", "a\u202ebot"), "about says"},
		{"route = [{name = \"a\"}]\n" + bot, "manifest:"},
		{bot + "about = \"twice\"\n", "manifest:"},
		{strings.Repeat("[", 40), "open brackets"},
		{strings.Repeat("#", MaxBytes+1), "at most 65536"},
		{"\xff", "not UTF-8"},
		{strings.Split(bot, "[[route]]")[0] + routes(MaxRoutes+1), "1 to 256 routes"},
		{strings.Split(bot, "[[route]]")[0], "1 to 256 routes"},
	} {
		m, err := Parse([]byte(c.text))
		var p *Problem
		if err == nil || m != nil || !errors.As(err, &p) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
	if m := parse(t, strings.Split(bot, "[[route]]")[0]+routes(MaxRoutes)); len(m.Routes) != MaxRoutes {
		t.Errorf("%d routes", len(m.Routes))
	}
}

// TestKindsOfKeys: of each key that there is a value of every other kind is refused by its name, and never by Go's.
func TestKindsOfKeys(t *testing.T) {
	values := map[string]string{"String": `"a"`, "Array": `["a"]`, "Bool": "true", "Integer": "1", "InlineTable": "{}", "Float": "1.5", "LocalDate": "2030-03-10"}
	for table, list := range keys {
		for _, key := range list {
			path := strings.TrimPrefix(table+"."+key, ".")
			want, ok := kindOf[path]
			for kind, value := range values {
				if kind == want.String() || !ok && kind == "String" {
					continue
				}
				text := key + " = " + value
				if table != "" {
					text = map[bool]string{true: "[[route]]\n", false: "[" + table + "]\n"}[table == "route"] + text
				}
				m, err := Parse([]byte(text))
				if m != nil || err == nil || !strings.Contains(err.Error(), key+" wants ") && !strings.Contains(err.Error(), "write each route as [[route]]") {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
	}
}

// TestBeginsWithAMark: a byte order mark is passed over.
func TestBeginsWithAMark(t *testing.T) {
	if parse(t, "\ufeff"+bot).Digest() != parse(t, bot).Digest() {
		t.Error("a byte order mark counts")
	}
}

// TestWhatLoadedGoesOnLoading: forms of one route that are not documented, and were always taken.
func TestWhatLoadedGoesOnLoading(t *testing.T) {
	const head = "about = \"a\"\nhosts = [\"a.test\"]\nplacement = {kind = \"query\", name = \"k\"}\n"
	parse(t, head+"[route]\nname = \"a\"\nmethods = [\"GET\"]\npath = \"/\"\nclass = \"read\"\n[route.query]\na = \"b\"\n")
	parse(t, head+"route.name = \"a\"\nroute.methods = [\"GET\"]\nroute.path = \"/\"\nroute.class = \"read\"\nroute.query.a = \"b\"\n")
}

// TestNotes: what is likely not meant is said, and loads.
func TestNotes(t *testing.T) {
	edit := func(old, with string) []string { return parse(t, strings.Replace(bot, old, with, 1)).Notes() }
	for _, c := range []struct{ old, with, want string }{
		{"", "", ""},
		{`prefix = "Bot "`, `prefix = "Bot"`, `prefix = "Bot" has no space at its end, so the credential follows the word at once; write "Bot " if one is between them`},
		{`prefix = "Bot "`, `prefix = "v1="`, ""},
		{"prefix = \"Bot \"\n", "", ""},
		{"/api/channels/{channel}", "/api/channels/:channel", "route channel: the segment :channel of its path is taken as it stands; write {x} for any one segment"},
		{"/api/channels/{channel}", "/api/channels/{channel}:run", ""},
	} {
		if got := strings.Join(edit(c.old, c.with), "\n"); got != c.want {
			t.Errorf("%q: %q, want %q", c.with, got, c.want)
		}
	}
}

// TestForIssue: what is issued goes on loading, and what authd or egress would refuse is not issued.
func TestForIssue(t *testing.T) {
	for _, name := range []string{"Host", "cookie", "Content-Type", "content-length", "X-Forwarded-For", "TE", "Accept", "X-Host", "X-Original-Key"} {
		text := []byte(strings.Replace(bot, "Authorization", name, 1))
		parse(t, string(text))
		m, err := ForIssue(text)
		var p *Problem
		if m != nil || !errors.As(err, &p) || !strings.Contains(p.In("bot.toml"), "bot.toml: the header "+name+" is no place for a credential") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "PRIVATE-TOKEN", "Cookies"} {
		if _, err := ForIssue([]byte(strings.Replace(bot, "Authorization", name, 1))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if m, err := ForIssue([]byte("about")); m != nil || err == nil {
		t.Errorf("%v, %v", m, err)
	}
}

func routes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[route]]\nname = \"r%d\"\nmethods = [\"GET\"]\npath = \"/%d\"\nclass = \"read\"\n", i, i)
	}
	return b.String()
}

func TestPlacementInThePath(t *testing.T) {
	text := `about = "a bot"
hosts = ["api.vendor-a.test"]
placement = {kind = "path", prefix = "bot"}
[[route]]
name = "updates"
methods = ["GET"]
path = "/bot{surrogate}/getUpdates"
class = "read"
`
	m := parse(t, text)
	q := func(path string) *wire.RequestReq {
		return &wire.RequestReq{Name: "api.vendor-a.test", Port: 443, Method: "GET", Path: path}
	}
	for path, want := range map[string]string{
		"/bot{surrogate}/getUpdates":               "updates read",
		"/bot{surrogate}/sendMessage":              "nothing",
		"/botx/getUpdates":                         "nothing",
		"/{surrogate}/getUpdates":                  "nothing",
		"/bot{surrogate}{surrogate}/getUpdates":    "ambiguous",
		"/bot{surrogate}/{surrogate}":              "ambiguous",
		"/bot{surrogate}/../bot{surrogate}/delete": "ambiguous",
	} {
		if got := named(m.Match(q(path))); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	for _, p := range []string{"/getUpdates", "/x{surrogate}/getUpdates", "/bot{surrogate}/{surrogate}", "/a/bot{surrogate}x"} {
		if _, err := Parse([]byte(strings.Replace(text, "/bot{surrogate}/getUpdates", p, 1))); err == nil {
			t.Errorf("%s parses", p)
		}
	}
	// What stands for the surrogate is matched by nothing else.
	if MatchPath("/{x}/getUpdates", "/bot{surrogate}/getUpdates") {
		t.Error("a hole takes the surrogate's segment")
	}
}

func TestSites(t *testing.T) {
	for _, c := range []struct {
		host string
		q    *wire.RequestReq
		want string
	}{
		{"vendor-a.test", req("GET /a/b?c"), "read read"},
		{"vendor-a.test", req("HEAD /"), "read read"},
		{"vendor-a.test", req("OPTIONS /"), "read read"},
		{"vendor-a.test", req("POST /"), "change write"},
		{"vendor-a.test", req("PUT /"), "change write"},
		{"vendor-a.test", req("PROPFIND /"), "change write"},
		{"vendor-a.test", req("get /"), "change write"},
		{"vendor-a.test", req("DELETE /"), "change destructive"},
		{"vendor-a.test", req("GET /", wire.Unreadable), "change write"}, // a GET with a body
		{"vendor-a.test", &wire.RequestReq{Name: "vendor-a.test", Port: 443, Method: "GET", Path: "/", Upgrade: true}, "change write"},
		{"vendor-a.test", req("GET /r/info/refs?service=git-upload-pack", "git fetch"), "read read"},
		{"vendor-a.test", req("POST /r/git-upload-pack", "git fetch"), "git-fetch read"},
		{"vendor-a.test", req("POST /r/git-upload-pack"), "change write"},
		{"vendor-a.test", req("POST /r/git-receive-pack", "git push update refs/heads/x"), "git-push write"},
		{"vendor-a.test", req("POST /r/git-receive-pack", "git push update refs/heads/x", `git push option "ci.skip"`), "git-push write"},
		{"vendor-a.test", req("POST /r/git-receive-pack", "git push update refs/heads/x", "git push delete refs/heads/y"), "git-delete destructive"},
		{"vendor-a.test", req("POST /-/npm/v1/security/advisories/bulk"), "change write"},
		{"registry.npmjs.org", req("POST /-/npm/v1/security/advisories/bulk"), "npm-audit read"},
		{"registry.npmjs.org", req("POST /-/npm/v1/security/audits/quick"), "npm-audit read"},
		{"registry.npmjs.org", req("GET /@a%2Fb"), "read read"},
		{"registry.npmjs.org", req("PUT /@a%2Fb"), "change write"},
		{"api.github.com", req("POST /graphql", "graphql query"), "graphql-query read"},
		{"api.github.com", req("POST /graphql", "graphql mutation"), "change write"},
		{"api.github.com", req("POST /graphql", "graphql query", "graphql mutation"), "change write"},
		{"api.github.com", req("POST /graphql"), "change write"},
		{"vendor-a.test", req("POST /graphql", "graphql query"), "change write"},
		{"vendor-a.test", req("GET /a/../b"), "ambiguous"},
		{"vendor-a.test", req("GET /?_method=DELETE"), "ambiguous"},
	} {
		c.q.Name = c.host
		if got := named(Sites(c.host, 443).Match(c.q)); got != c.want {
			t.Errorf("%s: %s %s %q is %s, want %s", c.host, c.q.Method, c.q.Path, c.q.Does, got, c.want)
		}
	}
	other := req("GET /")
	other.Name = "vendor-b.test"
	if got := named(Sites("vendor-a.test", 443).Match(other)); got != "nothing" {
		t.Errorf("another host is %s", got)
	}
	clear := req("GET /")
	clear.Clear, clear.Port = true, 80
	if got := named(Sites("vendor-a.test", 80).Match(clear)); got != "read read" {
		t.Errorf("in the clear it is %s", got)
	}
}

// EG-15 on its manifest side: the provider's own tools, another model, and answers without a bound are refused.
func TestCase_EG15_WhatTheProviderWouldRunItself(t *testing.T) {
	m := parse(t, bot)
	for _, c := range []struct {
		use  *wire.ModelUse
		want string // in the reason; empty: it may
	}{
		{&wire.ModelUse{Model: "a-1", Most: 100}, ""},
		{&wire.ModelUse{Model: "b", Most: 1}, ""},
		{&wire.ModelUse{Model: "a-1", Most: 1, Tools: []string{"web_search_20250305"}}, ""},
		{&wire.ModelUse{Model: "a-1", Most: 101}, "more than 100"},
		{&wire.ModelUse{Model: "a-1"}, "does not say how many"},
		{&wire.ModelUse{Model: "A-1", Most: 1}, "not among"},
		{&wire.ModelUse{Model: "bb", Most: 1}, "not among"},
		{&wire.ModelUse{Most: 1}, "not among"},
		{&wire.ModelUse{Model: "a-1", Most: 1, Tools: []string{"web_search_20250305", "web_fetch_20250910"}}, "web_fetch_20250910"},
		{&wire.ModelUse{Model: "a-1", Most: 1, Tools: []string{"mcp_servers"}}, "mcp_servers"},
		{nil, "could not be read"},
	} {
		err := m.CheckModel(c.use)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Reason, c.want) || err.Next == "") {
			t.Errorf("%+v: %v, want %q", c.use, err, c.want)
		}
	}
	if err := parse(t, strings.Replace(bot, "max-tokens = 100", "", 1)).CheckModel(&wire.ModelUse{Model: "b"}); err != nil {
		t.Errorf("without a bound: %v", err)
	}
	none := &Manifest{}
	if none.CheckModel(&wire.ModelUse{Model: "b"}) == nil {
		t.Error("a manifest without models lets one be asked")
	}
}

func TestReadsAndLines(t *testing.T) {
	m := parse(t, bot)
	var got []string
	for _, r := range m.Reads() {
		got = append(got, strings.Join(r.Methods, "/")+" "+r.Path+" "+r.As)
	}
	want := []string{"GET/POST /graphql graphql", "POST /graphql graphql", "POST /rpc jsonrpc", "POST /ask/{model}:run model"}
	if !slices.Equal(got, want) {
		t.Errorf("reads %q, want %q", got, want)
	}
	lines := strings.Join(m.Lines(), "\n")
	for _, want := range []string{
		"for: a bot\nthe credential goes to: vendor-a.test, *.cdn.vendor-a.test:8443 (every name below it)",
		"it stands in: the header Authorization, behind \"Bot \"", "setting: ask-before-changes", "models: a-*, b",
		"tokens of an answer: at most 100", "tools that the provider runs itself: web_search_20250305",
		"\nread: channel: GET /api/channels/{channel}\n", "\nwrite, seen by anybody: any: GET/POST /api/files/**\n",
		"destructive, seen by anybody: git-delete: POST /git/**, git delete", "read: list: GET /list?state=open",
		"read: rpc: POST /rpc, JSON-RPC tools/list, ping", "read: list-only: GET /only?state=open, no other parameter",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("the lines do not have %q:\n%s", want, lines)
		}
	}
	if !strings.HasSuffix(lines, "\nall else is refused") || strings.Index(lines, "destructive") > strings.Index(lines, "\nread:") {
		t.Errorf("lines:\n%s", lines)
	}
	if b := m.Base(); b.Host != "vendor-a.test" || b.Port != 443 || b.Scheme != "https" {
		t.Errorf("base %+v", b)
	}
	hosts, place, err := Account([]byte(bot))
	if err != nil || !slices.Equal(hosts, []string{"vendor-a.test:443", "*.cdn.vendor-a.test:8443"}) || place != m.Placement {
		t.Errorf("account %q, %+v, %v", hosts, place, err)
	}
	if hosts, _, err := Account([]byte("x")); err == nil || hosts != nil {
		t.Errorf("an account with an error: %q, %v", hosts, err)
	}
	if a := m.Also(); !slices.Equal(a, []string{"*.cdn.vendor-a.test:8443"}) {
		t.Errorf("also %q", a)
	}
}

// Everything that a manifest says counts in its digest, and nothing else.
func TestDigest(t *testing.T) {
	m := parse(t, bot)
	if other := parse(t, "# a comment\n"+strings.ReplaceAll(bot, " = ", "   =   ")); other.Digest() != m.Digest() {
		t.Error("comments and blanks count")
	}
	seen := map[wire.Digest]string{m.Digest(): "as it was"}
	var change func(v reflect.Value, at string)
	try := func(v reflect.Value, at string, to reflect.Value) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(to)
		d := m.Digest()
		if was := seen[d]; was != "" {
			t.Errorf("%s does not count: the digest is that of %s", at, was)
		}
		seen[d] = at
		v.Set(old)
	}
	change = func(v reflect.Value, at string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					change(v.Field(i), at+"."+v.Type().Field(i).Name)
				}
			}
		case reflect.Pointer:
			change(v.Elem(), at)
		case reflect.Slice:
			if v.Len() > 0 {
				change(v.Index(0), at+"[0]")
			}
		case reflect.String:
			try(v, at, reflect.ValueOf(v.String()+"~"))
		case reflect.Bool:
			try(v, at, reflect.ValueOf(!v.Bool()))
		case reflect.Int64:
			try(v, at, reflect.ValueOf(v.Int()+1))
		case reflect.Uint16:
			try(v, at, reflect.ValueOf(uint16(v.Uint()+1)))
		case reflect.Map:
			try(v, at, reflect.ValueOf(map[string]string{"~": at}))
		default:
			t.Fatalf("%s is a %s", at, v.Kind())
		}
	}
	change(reflect.ValueOf(m), "manifest")
	if len(seen) < 25 {
		t.Errorf("only %d changes were tried", len(seen))
	}
}
