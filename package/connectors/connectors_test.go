// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/wire"
)

func shipped(t *testing.T, name string) *manifest.Manifest {
	t.Helper()
	b, ok := Named(name)
	if !ok {
		t.Fatalf("there is no manifest %s", name)
	}
	m, err := manifest.Parse(b)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

func TestTheShippedManifestsParse(t *testing.T) {
	want := []string{"anthropic", "discord", "github", "github-git", "google-ai", "npm", "openai", "openrouter", "pypi"}
	if got := Names(); !slices.Equal(got, want) {
		t.Fatalf("shipped are %q, want %q", got, want)
	}
	hosts := map[string]string{}
	for _, name := range want {
		m := shipped(t, name)
		for _, h := range m.Hosts {
			if other := hosts[h.String()]; other != "" {
				t.Errorf("%s and %s are both of %s: a cell could have only one of them", name, other, h)
			}
			hosts[h.String()] = name
		}
		if last := m.Lines()[len(m.Lines())-1]; last != "all else is refused" {
			t.Errorf("%s ends in %q", name, last)
		}
		if m.Model != nil && len(m.Model.ServerTools) != 0 {
			t.Errorf("%s lets the provider run %q itself", name, m.Model.ServerTools)
		}
	}
	for _, name := range []string{"", "none", "discord.toml", "../connectors/discord", "/etc/passwd", "."} {
		if _, ok := Named(name); ok {
			t.Errorf("%q is one", name)
		}
	}
}

// operation is one of a vendor's description.
type operation struct{ method, path, id string }

// described reads the operations of an OpenAPI description beside the repository or where `make specs` puts it.
func described(t *testing.T, file string) (out []operation) {
	t.Helper()
	var b []byte
	for _, dir := range []string{"../../specs/vendor-descriptions", "../../../shared/specs"} {
		var err error
		if b, err = os.ReadFile(filepath.Join(dir, file)); err == nil {
			break
		}
	}
	if b == nil {
		t.Skipf("vendor-description ground skipped: %s is absent", file)
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for path, ops := range doc.Paths {
		for method, raw := range ops {
			if !slices.Contains([]string{"get", "put", "post", "patch", "delete", "head", "options"}, method) {
				continue
			}
			var op struct {
				ID string `json:"operationId"`
			}
			if err := json.Unmarshal(raw, &op); err != nil {
				t.Fatal(err)
			}
			out = append(out, operation{strings.ToUpper(method), path, op.ID})
		}
	}
	return out
}

// filled puts a value where a description's path has a parameter.
func filled(path string) string {
	var b strings.Builder
	for path != "" {
		before, rest, hole := strings.Cut(path, "{")
		b.WriteString(before)
		if !hole {
			break
		}
		_, path, _ = strings.Cut(rest, "}")
		b.WriteString("1180000000000000001")
	}
	return b.String()
}

func classOf(t *testing.T, m *manifest.Manifest, method, path string) string {
	t.Helper()
	r, err := m.Match(&wire.RequestReq{Name: m.Hosts[0].Name, Port: m.Hosts[0].Port, Method: method, Path: path})
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if r == nil {
		return ""
	}
	return r.Class
}

// Every operation of Discord's description is what the scenario of a bot has it: reads of channels and messages pass, writes
// of its own messages ask, and nothing else is declared.
func TestDiscordByItsDescription(t *testing.T) {
	ops := described(t, "discord.openapi.json")
	want := map[string]string{
		"get_my_user": "read", "list_my_guilds": "read", "list_guild_channels": "read", "get_channel": "read", "list_messages": "read",
		"get_message": "read", "create_message": "write", "update_message": "write", "delete_message": "destructive",
	}
	m := shipped(t, "discord")
	found := 0
	for _, op := range ops {
		// `pins` and its like are literal words where the bot's manifest has a message's number: Discord reads
		// /messages/pins as its list of pins, which is a read too.
		expect := want[op.id]
		if op.id == "list_pins" {
			expect = "read"
		}
		if expect != "" {
			found++
		}
		if got := classOf(t, m, op.method, "/api/v10"+filled(op.path)); got != expect {
			t.Errorf("%s: %s %s is %q, want %q", op.id, op.method, op.path, got, expect)
		}
		if got := classOf(t, m, op.method, "/api/v9"+filled(op.path)); got != "" {
			t.Errorf("%s of another version is %q", op.id, got)
		}
	}
	if len(ops) != 27 || found != len(want)+1 {
		t.Errorf("%d operations, %d of them expected ones", len(ops), found)
	}
}

// The rows of the table of methods have at GitHub's interface the class that the connector's have; what is no row there and no
// read is refused.
func TestGitHubByTheTableOfMethods(t *testing.T) {
	f, err := os.Open("../../specs/methods.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.LazyQuotes, r.FieldsPerRecord = '\t', true, -1
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	m := shipped(t, "github")
	known := map[string]bool{}
	n := 0
	for _, row := range rows {
		if row[0] != "github" {
			continue
		}
		n++
		method, path := row[4], strings.Replace(row[5], "/git/refs/{ref}", "/git/refs/heads/{ref}", 1)
		if got := classOf(t, m, method, filled(path)); got != row[2] {
			t.Errorf("%s: %s %s is %q, want %q", row[1], method, path, got, row[2])
		}
		known[method+" "+row[5]] = true
	}
	if n != 27 {
		t.Errorf("%d rows of GitHub", n)
	}
	for _, op := range described(t, "github.openapi.json") {
		if op.method == "GET" || known[op.method+" "+op.path] {
			continue
		}
		if got := classOf(t, m, op.method, filled(op.path)); got != "" {
			t.Errorf("%s: %s %s is %q, and is declared nowhere", op.id, op.method, op.path, got)
		}
	}
}

// gh's lists are POSTs that read, and its changes are POSTs to the same path.
func TestGhByGraphQL(t *testing.T) {
	m := shipped(t, "github")
	for does, want := range map[string]string{"graphql query": "read", "graphql mutation": "destructive", "graphql subscription": "",
		wire.Unreadable: "", "": ""} {
		q := &wire.RequestReq{Name: "api.github.com", Port: 443, Method: "POST", Path: "/graphql"}
		if does != "" {
			q.Does = []string{does}
		}
		r, err := m.Match(q)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if r != nil {
			got = r.Class
		}
		if got != want {
			t.Errorf("%q is %q, want %q", does, got, want)
		}
	}
}

func TestRegistriesPublishByAsking(t *testing.T) {
	npm, pypi := shipped(t, "npm"), shipped(t, "pypi")
	for _, c := range []struct {
		m                  *manifest.Manifest
		method, path, want string
	}{
		{npm, "GET", "/left-pad", "read"},
		{npm, "GET", "/@babel%2Fcore", "read"},
		{npm, "GET", "/@babel/core/-/core-7.0.0.tgz", "read"},
		{npm, "POST", "/-/npm/v1/security/advisories/bulk", "read"},
		{npm, "PUT", "/left-pad", "write"},
		{npm, "PUT", "/@babel%2Fcore", "write"},
		{npm, "PUT", "/-/package/left-pad/dist-tags/latest", "write"},
		{npm, "DELETE", "/left-pad/-rev/1-a", ""},
		{npm, "POST", "/-/v1/login", ""},
		{npm, "PUT", "/-/user/org.couchdb.user:a", ""},
		{pypi, "POST", "/legacy/", "destructive"},
		{pypi, "POST", "/legacy", ""},
		{pypi, "GET", "/legacy/", ""},
	} {
		if got := classOf(t, c.m, c.method, c.path); got != c.want {
			t.Errorf("%s %s is %q, want %q", c.method, c.path, got, c.want)
		}
	}
}

// EG-15: Google takes a key of its parameter key= before the one of the header, and what is asked with it is the key owner's to read.
func TestEG15NoOtherKeyAtGoogle(t *testing.T) {
	m := shipped(t, "google-ai")
	for _, c := range []struct{ path, query, want string }{
		{"gemini-2.5-pro:generateContent", "", "generate"},
		{"gemini-2.5-pro:streamGenerateContent", "", "generate-stream"},
		{"gemini-2.5-pro:streamGenerateContent", "alt=sse", "generate-events"},
		{"gemini-2.5-pro:generateContent", "key=evil", ""},
		{"gemini-2.5-pro:countTokens", "key=evil", ""},
		{"gemini-2.5-pro:streamGenerateContent", "alt=sse&key=evil", ""},
		{"gemini-2.5-pro:streamGenerateContent", "alt=sse&%6Bey=evil", ""},
		{"gemini-2.5-pro:streamGenerateContent", "alt=sse&$key=evil", ""},
	} {
		r, err := m.Match(&wire.RequestReq{Name: m.Hosts[0].Name, Port: 443, Method: "POST", Path: "/v1beta/models/" + c.path, Query: c.query,
			Model: &wire.ModelUse{Model: "gemini-2.5-pro"}})
		got := ""
		if err == nil && r != nil {
			got = r.Name
		}
		if got != c.want {
			t.Errorf("%s?%s is %q (%v), want %q", c.path, c.query, got, err, c.want)
		}
	}
}
