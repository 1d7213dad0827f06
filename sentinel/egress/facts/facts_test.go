// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/wire"
)

const unread = wire.Unreadable

// bodies are what is sent as GraphQL by POST, and what it does: the kinds of the operations, or unread.
var graphqlBodies = []struct{ body, want string }{
	{`{"query":"{viewer{login}}"}`, "query"},
	{`{"query":"query{viewer{login}}","variables":{"a":1,"query":"mutation{x}"}}`, "query"},
	{`{"query":"query Q($a:Int=1){a(b:$a)@include(if:true){c}}","operationName":"Q","variables":null,"extensions":null}`, "query"},
	{`{"query":"fragment f on Issue{id} query IssueList{repository{...f}}"}`, "query"}, // as gh writes it
	{`{"query":"{a}","extensions":{"clientLibrary":{"name":"x"}}}`, "query"},
	{`{"query":"mutation{a}"}`, "mutation"},
	{`{"query":"subscription{a}"}`, "subscription"},
	// EG-14: what comes before the operation, and names that look like one.
	{`{"query":"# query\nmutation{a}"}`, "mutation"},
	{`{"query":" ,,\t\n mutation M{a}"}`, "mutation"},
	{`{"query":"# {\r\nmutation{a}"}`, "mutation"},
	{`{"query":"query mutation{a}"}`, "query"},
	{`{"query":"mutation query{a}"}`, "mutation"},
	{`{"query":"{mutation}"}`, "query"},
	{`{"query":"{mutation:query}"}`, "query"},
	{`{"query":"mutation{query:a}"}`, "mutation"},
	{`{"query":"{a(b:\"mutation{x}\")}"}`, "query"},
	{`{"query":"{a(b:\"\"\"\nmutation{x}\n\"\"\")}"}`, "query"},
	{`{"query":"\u006dutation{a}"}`, "mutation"},
	{`{"qu\u0065ry":"mutation{a}"}`, "mutation"},
	{`{"query":"fragment mutation on query{a} {...mutation}"}`, "query"},
	{`{"query":"fragment f on M{a} mutation{...f}"}`, "mutation"},
	// The operation that runs is the one that is named.
	{`{"query":"query A{a} mutation B{b}","operationName":"A"}`, "query"},
	{`{"query":"query A{a} mutation B{b}","operationName":"B"}`, "mutation"},
	{`{"operationName":"B","query":"query A{a} mutation B{b}"}`, "mutation"},
	{`{"query":"query A{a} mutation B{b}"}`, unread},
	{`{"query":"query A{a} mutation B{b}","operationName":""}`, unread},
	{`{"query":"query A{a} mutation B{b}","operationName":"C"}`, unread},
	{`{"query":"query A{a} mutation A{b}","operationName":"A"}`, unread},
	{`{"query":"{a} mutation B{b}","operationName":"B"}`, unread},
	{`{"query":"query A{a}","operationName":"B"}`, unread},
	{`{"query":"query A{a}","operationName":3}`, unread},
	// Batches.
	{`[{"query":"{a}"}]`, "query"},
	{`[{"query":"{a}"},{"query":"mutation{b}"}]`, "query,mutation"},
	{`[{"query":"{a}"},{"query":"{"}]`, unread},
	{`[]`, unread},
	{`[[{"query":"{a}"}]]`, unread},
	{`[{"query":"{a}"},3]`, unread},
	{"[" + strings.TrimSuffix(strings.Repeat(`{"query":"{a}"},`, maxBatch), ",") + "]", strings.TrimSuffix(strings.Repeat("query,", maxBatch), ",")},
	{"[" + strings.TrimSuffix(strings.Repeat(`{"query":"{a}"},`, maxBatch+1), ",") + "]", unread},
	// A key twice, or nearly: which counts is not known.
	{`{"query":"{a}","query":"mutation{b}"}`, unread},
	{`{"query":"{a}","Query":"mutation{b}"}`, unread},
	{`{"query":"{a}","QUERY":"mutation{b}"}`, unread},
	{`{"query":"{a}","qu\u0065ry":"mutation{b}"}`, unread},
	{`{"query":"query A{a} mutation B{b}","operationName":"A","OperationName":"B"}`, unread},
	{`{"query":"{a}","variables":{"a":1,"a":2}}`, unread},
	// Documents that the server holds.
	{`{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"00"}}}`, unread},
	{`{"query":"{a}","extensions":{"persistedQuery":{"version":1,"sha256Hash":"00"}}}`, unread},
	{`{"query":"{a}","extensions":{"PersistedQuery":{}}}`, unread},
	{`{"query":"{a}","id":"1"}`, unread},
	{`{"query":"{a}","documentId":"1"}`, unread},
	{`{"query":null}`, unread},
	{`{}`, unread},
	// What lexers read differently.
	{`{"query":"{a} # \r mutation{b}"}`, unread},
	{`{"query":"{a} # \u2028 mutation{b}"}`, unread},
	{`{"query":"{a} # \u0085 mutation{b}"}`, unread},
	{`{"query":"\ufeff{a}"}`, unread},
	{`{"query":"{a(b:\"\"\" \"\"\"\" # \") } mutation M{x} # \"\n)}"}`, unread},
	{`{"query":"{a}\u0000"}`, unread},
	{`{"query":"{a(b:\"\ud800\")}"}`, unread},
	// What is no GraphQL, or no JSON.
	{`{"query":"{"}`, unread},
	{`{"query":""}`, unread},
	{`{"query":"fragment f on A{a}"}`, unread},
	{`{"query":"type A{a:Int}"}`, unread},
	{`{"query":"Mutation{a}"}`, unread},
	{`{"query":["{a}"]}`, unread},
	{`{"query":"{a}"} {"query":"mutation{b}"}`, unread},
	{`{"query":"{a}",}`, unread},
	{`{'query':'{a}'}`, unread},
	{`{"query":"{a}"/**/}`, unread},
	{"\ufeff" + `{"query":"{a}"}`, unread},
	{"{\"query\":\"{a \xff}\"}", unread},
	{`"{a}"`, unread},
	{`{a}`, unread},
	{``, unread},
	{`{"query":"` + strings.Repeat("{a", 2000) + strings.Repeat("}", 2000) + `"}`, unread},
	{`{"query":"{` + strings.Repeat("a ", maxTokens+1) + `}"}`, unread},
	{`{"query":"{a}` + strings.Repeat(" ", maxDocument) + `"}`, unread},
}

func does(kind string, ops string) []string {
	if ops == unread {
		return []string{unread}
	}
	var out []string
	for _, op := range strings.Split(ops, ",") {
		out = append(out, kind+" "+op)
	}
	return out
}

func TestCase_EG14_GraphQLByPOST(t *testing.T) {
	for _, c := range graphqlBodies {
		got, model := Read(wire.ReadGraphQL, "application/json", []byte(c.body))
		if want := does("graphql", c.want); !slices.Equal(got, want) || model != nil {
			t.Errorf("%.120s is %.120q, want %.120q", c.body, got, want)
		}
	}
	body := []byte(`{"query":"{a}"}`)
	for media, ok := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "Application/JSON;charset=\"UTF-8\"": true,
		"application/json; charset=utf-16": false, "application/json; charset=utf-8; x=y": false, "application/graphql": false,
		"application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": false, "text/plain": false, "": false,
		"application/json, text/plain": false,
	} {
		got, _ := Read(wire.ReadGraphQL, media, body)
		if readable := !slices.Equal(got, unreadable()); readable != ok {
			t.Errorf("as %q it is %q", media, got)
		}
	}
	if got, _ := Read(wire.ReadGraphQL, "application/json", append(body, make([]byte, wire.MaxRead)...)); !slices.Equal(got, unreadable()) {
		t.Errorf("a body that is too long is %q", got)
	}
	if got, _ := Read("other", "application/json", body); !slices.Equal(got, unreadable()) {
		t.Errorf("read as what is not known it is %q", got)
	}
}

func TestCase_EG14_GraphQLByGET(t *testing.T) {
	esc := url.QueryEscape
	for query, want := range map[string]string{
		"query=" + esc("{a}"):               "query",
		"query={a}":                         "query",
		"a=b&query=" + esc("mutation{a}"):   "mutation",
		"query=" + esc("#x\nmutation M{a}"): "mutation",
		"qu%65ry=" + esc("mutation{a}"):     "mutation",
		"query=" + esc("query A{a} mutation B{b}") + "&operationName=B": "mutation",
		"query=" + esc("query A{a} mutation B{b}") + "&operationName=A": "query",
		"query=" + esc("query A{a} mutation B{b}"):                      unread,
		"query={a}&query=" + esc("mutation{b}"):                         unread,
		"query={a}&Query=" + esc("mutation{b}"):                         unread,
		"query={a}&query[]=" + esc("mutation{b}"):                       unread,
		"query={a};query=" + esc("mutation{b}"):                         unread,
		"extensions=" + esc(`{"persistedQuery":{"sha256Hash":"00"}}`):   unread,
		"query={a}&extensions=" + esc(`{"persistedQuery":{}}`):          unread,
		"query={a}&documentId=1":                                        unread,
		"query={a}&variables=" + esc(`{"query":"mutation{b}"}`):         "query",
		"query=%zz": unread,
		"query=%ff": unread,
		"":          unread,
		"query":     unread,
	} {
		if got := ReadQuery(query); !slices.Equal(got, does("graphql", want)) {
			t.Errorf("%s is %q, want %q", query, got, want)
		}
	}
}

// A request as a whole: another method, a query that says otherwise than the body.
func TestCase_EG14_GraphQLAsAWhole(t *testing.T) {
	q := Asked{Method: "POST", Path: "/graphql", Media: "application/json", Body: []byte(`{"query":"{a}"}`)}
	for _, c := range []struct {
		edit func(*Asked)
		want string
	}{
		{func(*Asked) {}, "query"},
		{func(q *Asked) { q.Query = "trace=1" }, "query"},
		{func(q *Asked) { q.Query = "query=mutation{b}" }, unread},
		{func(q *Asked) { q.Query = "operationName=B" }, unread},
		{func(q *Asked) { q.Query = "QUERY=mutation{b}" }, unread},
		{func(q *Asked) { q.Query = "query[]=mutation{b}" }, unread},
		{func(q *Asked) { q.Query = "%zz" }, unread},
		{func(q *Asked) { q.Query = "id=7" }, unread},
		{func(q *Asked) { q.Method = "GET" }, unread}, // with a body
		{func(q *Asked) { q.Method, q.Body, q.Query = "GET", nil, "query={a}" }, "query"},
		{func(q *Asked) { q.Method, q.Body, q.Query = "HEAD", nil, "query=mutation{a}" }, "mutation"},
		{func(q *Asked) { q.Method = "PUT" }, unread},
		{func(q *Asked) { q.Method = "post" }, unread},
	} {
		q := q
		c.edit(&q)
		if got, _ := Of(wire.ReadGraphQL, &q); !slices.Equal(got, does("graphql", c.want)) {
			t.Errorf("%s ?%s is %q, want %q", q.Method, q.Query, got, c.want)
		}
	}
}

// From bytes to a route: the same attack passes where the manifest's operation is taken away, which is the control.
func TestCase_EG14_AReadOnlyRoute(t *testing.T) {
	const text = "about = \"read only\"\nhosts = [\"vendor-a.test\"]\nplacement = {kind = \"query\", name = \"key\"}\n[[route]]\n" +
		"name = \"query\"\nmethods = [\"POST\"]\npath = \"/graphql\"\ngraphql = \"query\"\nclass = \"read\"\n"
	parse := func(s string) *manifest.Manifest {
		m, err := manifest.Parse([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	held, open := parse(text), parse(strings.Replace(text, "graphql = \"query\"\n", "", 1))
	for _, c := range graphqlBodies {
		q := &wire.RequestReq{Name: "vendor-a.test", Port: 443, Method: "POST", Path: "/graphql"}
		q.Does, _ = Read(wire.ReadGraphQL, "application/json", []byte(c.body))
		r, err := held.Match(q)
		if reads := strings.Trim(c.want, "query,") == ""; err != nil || reads != (r != nil) {
			t.Errorf("%.100s matches %+v, %v", c.body, r, err)
		}
		q.Does = nil
		if r, err := open.Match(q); err != nil || r == nil || r.Class != manifest.Read {
			t.Errorf("control: without its operation it is %+v, %v", r, err)
		}
	}
}

var rpcBodies = []struct{ body, want string }{
	{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "tools/list"},
	{`{"jsonrpc":"2.0","method":"notifications/initialized","params":{"method":"tools/call"}}`, "notifications/initialized"},
	{`{"id":"a","params":[1],"method":"tools\/call","jsonrpc":"2.0"}`, "tools/call"},
	{`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]`, "a,b"},
	{`{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":"tools/list","Method":"tools/call"}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":"tools/list","m\u0065thod":"tools/call"}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":"tools/list","x":1}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":"tools list"}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":"tools/list\n"}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":"t\u00f6\u00f6ls"}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":""}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":null}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":["tools/list"]}`, unread},
	{`{"jsonrpc":"2.0","id":1,"result":{}}`, unread},
	{`{"jsonrpc":"1.0","id":1,"method":"a"}`, unread},
	{`{"jsonrpc":2.0,"id":1,"method":"a"}`, unread},
	{`{"id":1,"method":"a"}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":"a"}{"jsonrpc":"2.0","id":1,"method":"b"}`, unread},
	{`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("a", maxName+1) + `"}`, unread},
	{`[]`, unread},
	{`[1]`, unread},
	{``, unread},
	{`null`, unread},
}

func TestCase_EG14_JSONRPC(t *testing.T) {
	for _, c := range rpcBodies {
		got, model := Read(wire.ReadJSONRPC, "application/json", []byte(c.body))
		if want := does("jsonrpc", c.want); !slices.Equal(got, want) || model != nil {
			t.Errorf("%.120s is %q, want %q", c.body, got, want)
		}
	}
	if got, _ := Of(wire.ReadJSONRPC, &Asked{Method: "GET", Media: "application/json", Body: []byte(rpcBodies[0].body)}); !slices.Equal(got, unreadable()) {
		t.Errorf("by GET it is %q", got)
	}
}

// models are requests to providers: model, tokens, tools; unread: none.
var models = []struct{ path, body, want string }{
	// Anthropic.
	{"/v1/messages", `{"model":"claude-x","max_tokens":1024,"messages":[{"role":"user","content":"hi"}]}`, "claude-x 1024"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":[{"name":"a","description":"d","input_schema":{"type":"object"},"cache_control":{}}]}`,
		"claude-x 1"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":[{"type":"custom","name":"a"},{"type":"bash_20250124","name":"bash"},` +
		`{"type":"text_editor_20250728"},{"type":"computer_20250124"},{"type":"memory_20250818"}]}`, "claude-x 1"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"x",` +
		`"type":"web_fetch_20250910"},{"type":"code_execution_20250825"}]}`,
		"claude-x 1 code_execution_20250825 web_fetch_20250910 web_search_20250305"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"mcp_servers":[{"type":"url","url":"https://evil.test"}]}`, "claude-x 1 mcp_servers"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"mcp_servers":[ ],"container":null}`, "claude-x 1"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"container":{"skills":[]}}`, "claude-x 1 container"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":[{"type":"bash_2025012","name":"x"},{"type":"Custom"}]}`, "claude-x 1 Custom bash_2025012"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":[{"name":"x","brand_new":{}}]}`, "claude-x 1 brand_new"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"brand_new":{"url":"x"}}`, "claude-x 1 brand_new"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"stream":true,"temperature":1,"thinking":{"type":"enabled"},"metadata":{"user_id":"x"}}`,
		"claude-x 1"},
	{"/v1/messages/count_tokens", `{"model":"claude-x","messages":[]}`, "claude-x 1"},
	// What the provider would fetch by its address.
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url",` +
		`"url":"https://evil.test/?secret"}}]}]}`, "claude-x 1 url"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"source":` +
		`{"url":"https://evil.test/","type":"url"},"type":"document"}]}]}]}`, "claude-x 1 url"},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"system":[{"type":"text","text":"https://evil.test"}],"messages":[{"content":[` +
		`{"type":"tool_use","name":"fetch","input":{"type":"url","url":"https://evil.test"}},{"type":"image","source":{"type":"base64","data":"AA=="}},` +
		`{"type":"web_search_result","url":"https://a.test"}]}]}`, "claude-x 1"},
	// OpenAI.
	{"/v1/chat/completions", `{"model":"gpt-x","messages":[],"max_completion_tokens":10,"n":3}`, "gpt-x 30"},
	{"/v1/chat/completions", `{"model":"gpt-x","max_tokens":10,"max_completion_tokens":20}`, "gpt-x 20"},
	{"/v1/chat/completions", `{"model":"gpt-x","tools":[{"type":"function","function":{"name":"googleSearch"}}],"response_format":{}}`, "gpt-x 0"},
	{"/v1/chat/completions", `{"model":"gpt-x","web_search_options":{"search_context_size":"low"}}`, "gpt-x 0 web_search"},
	{"/v1/chat/completions", `{"model":"gpt-x","messages":[{"content":[{"type":"image_url","image_url":{"url":"https://evil.test/?x"}}]}]}`, "gpt-x 0 image_url"},
	{"/v1/chat/completions", `{"model":"gpt-x","messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`, "gpt-x 0"},
	{"/v1/responses", `{"model":"gpt-x","input":"hi","instructions":"be","max_output_tokens":7,"reasoning":{},"text":{},"include":[]}`, "gpt-x 7"},
	{"/v1/responses", `{"model":"gpt-x","input":[{"type":"input_image","image_url":"https://evil.test/?x"},{"type":"input_file","file_url":"http://e.test"}]}`,
		"gpt-x 0 file_url image_url"},
	{"/v1/responses", `{"model":"gpt-x","tools":[{"type":"web_search"},{"type":"web_search_preview"},{"type":"file_search"},` +
		`{"type":"code_interpreter","container":{"type":"auto"}},{"type":"mcp","server_url":"https://evil.test"},{"type":"image_generation"},` +
		`{"type":"function","name":"a","parameters":{}},{"type":"custom"},{"type":"local_shell"},{"type":"apply_patch"},{"type":"computer_use_preview"}]}`,
		"gpt-x 0 code_interpreter file_search image_generation mcp web_search web_search_preview"},
	{"/v1/responses", `{"model":"gpt-x","tools":[{"type":"shell"}]}`, "gpt-x 0 shell"}, // may be one of the provider's
	{"/v1/responses", `{"model":"gpt-x","prompt":{"id":"pmpt_1"}}`, "gpt-x 0 prompt"},
	{"/v1/completions", `{"model":"gpt-x","prompt":"hi","best_of":2,"max_tokens":4}`, "gpt-x 8"},
	// Google.
	{"/v1beta/models/gemini-x:generateContent", `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":9,"candidateCount":2}}`,
		"gemini-x 18"},
	{"/v1beta/models/gemini-x:streamGenerateContent", `{"generation_config":{"max_output_tokens":"9","responseSchema":{"type":"X"}}}`, "gemini-x 9"},
	{"/v1beta/models/gemini-x:generateContent", `{"model":"models/gemini-x","tools":[{"functionDeclarations":[{"name":"googleSearch"}]}]}`, "gemini-x 0"},
	{"/v1beta/models/gemini-x:generateContent", `{"model":"models/gemini-y"}`, unread},
	{"/v1beta/models/gemini-x:generateContent", `{"tools":[{"googleSearch":{}},{"urlContext":{}},{"code_execution":{}},{"function_declarations":[],"googleMaps":{}}]}`,
		"gemini-x 0 code_execution googleMaps googleSearch urlContext"},
	{"/v1beta/models/gemini-x:generateContent", `{"tools":[{"type":"function","googleSearch":{}}]}`, "gemini-x 0 googleSearch"},
	{"/v1beta/models/gemini-x:generateContent", `{"cachedContent":"cachedContents/1"}`, "gemini-x 0 cachedContent"},
	{"/v1beta/models/gemini-x:generateContent", `{"contents":[{"parts":[{"fileData":{"fileUri":"https://evil.test/"}}]}]}`, "gemini-x 0 fileData"},
	{"/v1beta/models/gemini-x:generateContent", `{"contents":[{"parts":[{"file_data":{"file_uri":"` + ownFiles + `abc"}},` +
		`{"functionCall":{"name":"f","args":{"type":"url","url":"x"}}}]}]}`, "gemini-x 0"},
	{"/v1beta/models/gemini-x:generateContent", `{"contents":[{"parts":[{"fileData":{"fileUri":"` + ownFiles + `../../x"}}]}]}`, "gemini-x 0 fileData"},
	{"/v1beta/models/gemini-x:countTokens", `{"contents":[]}`, "gemini-x 1"},
	{"/v1beta/models/gemini-x%3AgenerateContent", `{"contents":[]}`, unread},
	// OpenRouter.
	{"/api/v1/chat/completions", `{"model":"openai/gpt-x:online","messages":[]}`, "openai/gpt-x:online 0 :online"},
	{"/api/v1/chat/completions", `{"model":"openai/gpt-x","plugins":[{"id":"web"},{"id":"file-parser"}],"provider":{"order":["a"]}}`,
		"openai/gpt-x 0 plugin:file-parser plugin:web"},
	{"/api/v1/chat/completions", `{"model":"openai/gpt-x","models":["evil/x"],"preset":"mine"}`, "openai/gpt-x 0 models preset"},
	{"/api/v1/chat/completions", `{"model":"@preset/mine"}`, "@preset/mine 0 preset"},
	{"/api/v1/chat/completions", `{"model":"openai/gpt-x","tools":[{"type":"openrouter:web_search"}]}`, "openai/gpt-x 0 openrouter:web_search"},
	{"/api/v1/chat/completions", `{"model":"openai/gpt-x","messages":[{"content":[{"type":"file","file":{"filename":"a.pdf","file_data":"https://evil.test/?x"}}]}]}`,
		"openai/gpt-x 0 file_data"},
	{"/api/v1/chat/completions", `{"model":"openai/gpt-x","messages":[{"content":[{"type":"file","file":{"file_data":" DATA:application/pdf;base64,JVBE"}}]}]}`,
		"openai/gpt-x 0"},
	{"/v1/chat/completions", `{"model":"gpt-x","messages":[{"content":[{"type":"file","file":{"file_data":"JVBERi0xLjQK"}}]}]}`, "gpt-x 0"},
	// Models that search by themselves.
	{"/v1/chat/completions", `{"model":"gpt-4o-search-preview","messages":[]}`, "gpt-4o-search-preview 0 web_search"},
	{"/v1/chat/completions", `{"model":"gpt-5-search-api"}`, "gpt-5-search-api 0 web_search"},
	{"/v1/responses", `{"model":"o3-deep-research"}`, "o3-deep-research 0 web_search"},
	{"/api/v1/chat/completions", `{"model":"openai/gpt-4o-mini-search-preview"}`, "openai/gpt-4o-mini-search-preview 0 web_search"},
	{"/api/v1/chat/completions", `{"model":"perplexity/sonar"}`, "perplexity/sonar 0 web_search"},
	// What cannot be read.
	{"/v1/messages", `{"model":"claude-x","model":"other"}`, unread},
	{"/v1/messages", `{"model":"claude-x","Model":"other"}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"Tools":[{"type":"web_search_20250305"}]}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":[{"name":"x","type":"custom","Type":"web_search_20250305"}]}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":[{"type":"custom","type":"web_search_20250305"}]}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":{"type":"custom"}}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":["web_search"]}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1,"tools":[{"type":7}]}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1e9}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":1.5}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":-1}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":99999999999999999999}`, unread},
	{"/v1/messages", `{"model":"claude-x","max_tokens":"0x10"}`, unread},
	{"/v1/chat/completions", `{"model":"gpt-x","max_tokens":9223372036854775807,"n":2}`, unread},
	{"/v1/chat/completions", `{"model":"gpt-x","n":100000}`, unread},
	{"/v1beta/models/gemini-x:generateContent", `{"generationConfig":{"maxOutputTokens":1},"generation_config":{"maxOutputTokens":9}}`, unread},
	{"/v1beta/models/gemini-x:generateContent", `{"generationConfig":{"maxOutputTokens":1,"max_output_tokens":9}}`, unread},
	{"/v1/messages", `{"max_tokens":1}`, unread},
	{"/v1/messages", `{"model":null}`, unread},
	{"/v1/messages", `{"model":["claude-x"]}`, unread},
	{"/v1/messages", `[{"model":"claude-x"}]`, unread},
	{"/v1/messages", `{"model":"claude-x"}{}`, unread},
	{"/v1/messages", `{"model":"claude-x","messages":` + strings.Repeat("[", maxDepth+3) + strings.Repeat("]", maxDepth+3) + `}`, unread},
	{"/v1/messages", ``, unread},
}

func TestCase_EG15_WhatIsAskedOfAModel(t *testing.T) {
	for _, c := range models {
		does, u := Of(wire.ReadModel, &Asked{Method: "POST", Path: c.path, Media: "application/json", Body: []byte(c.body)})
		got := unread
		if u != nil {
			got = strings.Join(append([]string{u.Model, fmt.Sprint(u.Most)}, u.Tools...), " ")
		}
		if (u == nil) != slices.Equal(does, unreadable()) || u != nil && does != nil {
			t.Errorf("%s: does %q with %+v", c.body, does, u)
		}
		if got != c.want {
			t.Errorf("%s %s is %q, want %q", c.path, c.body, got, c.want)
		}
	}
}

func TestToolsAreBounded(t *testing.T) {
	// Many tools must not make a message that cannot be sent.
	var b strings.Builder
	b.WriteString(`{"model":"x","tools":[`)
	for i := range 4 * maxTools {
		fmt.Fprintf(&b, `{"type":"t%d"},`, i)
	}
	body := strings.TrimSuffix(b.String(), ",") + "]}"
	if got, u := Read(wire.ReadModel, "application/json", []byte(body)); u != nil || !slices.Equal(got, unreadable()) {
		t.Errorf("%d tools are read", len(u.Tools))
	}
}

func TestRefusalHasTheProvidersShape(t *testing.T) {
	e := wire.Refuse(wire.CodeNotAllowed, "the model is not among those", "ask for another")
	for kind, want := range map[string]string{
		"anthropic": `{"error":{"message":"the model is not among those; ask for another (not_allowed, by Doorward)","type":"permission_error"},"type":"error"}`,
		"openai":    `{"error":{"code":"not_allowed","message":"the model is not among those; ask for another (not_allowed, by Doorward)","param":null,"type":"invalid_request_error"}}`,
		"google":    `{"error":{"code":403,"message":"the model is not among those; ask for another (not_allowed, by Doorward)","status":"PERMISSION_DENIED"}}`,
		"":          `{"code":"not_allowed","reason":"the model is not among those","next":"ask for another"}`,
		"other":     `{"code":"not_allowed","reason":"the model is not among those","next":"ask for another"}`,
	} {
		media, body := Refusal(kind, 403, e)
		if media != "application/json" || strings.TrimSpace(string(body)) != want || !json.Valid(body) {
			t.Errorf("%q: %s\n%s, want\n%s", kind, media, body, want)
		}
	}
	for _, status := range []int{400, 401, 403, 421, 429, 431, 500, 502, 503} {
		_, a := Refusal("anthropic", status, e)
		_, g := Refusal("google", status, e)
		if strings.Contains(string(a), `"type":""`) || strings.Contains(string(g), `"status":""`) || !strings.Contains(string(g), fmt.Sprint(`"code":`, status)) {
			t.Errorf("%d has no name at a provider: %s %s", status, a, g)
		}
	}
}
