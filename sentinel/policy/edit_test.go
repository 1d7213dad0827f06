// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"strings"
	"testing"
)

func sub(s, old, new string) string { return strings.Replace(s, old, new, 1) }

func TestALineIsChangedAndNothingElse(t *testing.T) {
	const file = `# mine
organisation = ["example.org"]
other-sites = 'ask' # so far

[site."*.Example.org"]
setting = "ask"

[connector.github] # the code
setting = "dont-ask"   # for now

[connector.github.method]
"issue-create" = "ask"
gist-create = """off"""
`
	for _, c := range []struct {
		name, from string
		line       Line
		want       string
	}{
		{"a connector", file, Line{Connector: "github", Value: "ask-every-time"}, sub(file, `setting = "dont-ask"  `, `setting = "ask-every-time"  `)},
		{"a method, by a quoted key", file, Line{Connector: "github", Method: "issue-create", Value: "off"},
			sub(file, `"issue-create" = "ask"`, `"issue-create" = "off"`)},
		{"a value of several lines' kind", file, Line{Connector: "github", Method: "gist-create", Value: "ask"}, sub(file, `"""off"""`, `"ask"`)},
		{"a method that no line is of", file, Line{Connector: "github", Method: "repo-get", Value: "ask"},
			sub(file, "[connector.github.method]\n", "[connector.github.method]\nrepo-get = \"ask\"\n")},
		{"a connector that no table is of", file, Line{Connector: "dav", Value: "dont-ask"}, file + "\n[connector.dav]\nsetting = \"dont-ask\"\n"},
		{"a site in another case", file, Line{Site: "*.EXAMPLE.org", Value: "off"}, sub(file, "setting = \"ask\"", "setting = \"off\"")},
		{"a new site", file, Line{Site: "example.net:8443", Value: "read"}, file + "\n[site.\"example.net:8443\"]\nsetting = \"read\"\n"},
		{"other sites", file, Line{Site: OtherSites, Value: "off"}, sub(file, `'ask' #`, `"off" #`)},
		{"other sites, where nothing is said", "[site.\"a.example\"]\nsetting = \"off\"\n", Line{Site: OtherSites, Value: "off"},
			"other-sites = \"off\"\n[site.\"a.example\"]\nsetting = \"off\"\n"},
		{"a line away", file, Line{Connector: "github", Method: "gist-create"}, sub(file, "gist-create = \"\"\"off\"\"\"\n", "")},
		{"a table away with its only line", file, Line{Site: "*.example.org"}, sub(file, "[site.\"*.Example.org\"]\nsetting = \"ask\"\n", "")},
		{"what is not there", file, Line{Connector: "dav", Method: "event-get"}, file},
		{"an empty file", "", Line{Connector: "dav", Value: "dont-ask"}, "[connector.dav]\nsetting = \"dont-ask\"\n"},
		{"a file without a line's end", `organisation = ["example.org"]`, Line{Connector: "dav", Value: "dont-ask"},
			"organisation = [\"example.org\"]\n\n[connector.dav]\nsetting = \"dont-ask\"\n"},
		{"behind a byte order mark", "\ufeff[connector.dav]\nsetting = \"dont-ask\"\n", Line{Connector: "dav", Value: "ask-every-time"},
			"\ufeff[connector.dav]\nsetting = \"ask-every-time\"\n"},
		{"a head without its line's end", "[connector.dav]", Line{Connector: "dav", Value: "dont-ask"}, "[connector.dav]\nsetting = \"dont-ask\"\n"},
		{"dotted keys", "connector.dav.setting = \"ask-every-time\"\n", Line{Connector: "dav", Value: "dont-ask"},
			"connector.dav.setting = \"dont-ask\"\n"},
		{"below a table that dots made", "[connector]\ndav.setting = \"dont-ask\"\n", Line{Connector: "dav", Method: "x", Value: "off"},
			"[connector]\ndav.setting = \"dont-ask\"\n\n[connector.dav.method]\nx = \"off\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Edit([]byte(c.from), c.line)
			if err != nil || string(got) != c.want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, c.want)
			}
		})
	}
	if got, err := Edit([]byte(file), Line{Connector: "dav", Value: "dont-ask"}, Line{Connector: "dav"}); err != nil || string(got) != file+"\n" {
		t.Errorf("there and back: %v\n%q", err, got)
	}
}

// What cannot be changed without touching something else is left to the person, and nothing comes back.
func TestALineThatOnlyAnEditorShouldChange(t *testing.T) {
	for name, c := range map[string]struct {
		from string
		line Line
		want error
	}{
		"an inline table":            {`connector = { dav = { setting = "ask-every-time" } }`, Line{Connector: "dav", Value: "dont-ask"}, ErrByHand},
		"an inline table, more":      {`connector = { dav = { setting = "ask-every-time" } }`, Line{Connector: "github", Value: "dont-ask"}, ErrByHand},
		"a faulty file":              {"[connector", Line{Connector: "dav", Value: "dont-ask"}, nil},
		"nothing named":              {"", Line{Value: "off"}, nil},
		"a method of no connector":   {"", Line{Method: "x", Value: "off"}, nil},
		"a site and a connector":     {"", Line{Site: "a.example", Connector: "dav", Value: "off"}, nil},
		"a site that is none":        {"", Line{Site: "a b", Value: "off"}, nil},
		"a site that breaks its key": {"", Line{Site: "a\"]\nx = \"b", Value: "off"}, nil},
	} {
		got, err := Edit([]byte(c.from), c.line)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}

// Whatever the file and the line: it is changed as that says, and can be changed back; or nothing comes of it.
func FuzzEdit(f *testing.F) {
	f.Add("[connector.dav]\nsetting = \"dont-ask\"\n", "dav", "", "", "off")
	f.Add("other-sites = \"ask\"", "", "", OtherSites, "off")
	f.Add("site.\"a.example\".setting = \"ask\"\r\n", "", "", "a.example", "")
	f.Add("connector = {dav = {method = {x = \"ask\"}}}", "dav", "x", "", "off")
	f.Fuzz(func(t *testing.T, text, connector, method, site, value string) {
		line := Line{connector, method, site, value}
		got, err := Edit([]byte(text), line)
		if err != nil {
			if got != nil {
				t.Fatalf("%q with %v", got, err)
			}
			return
		}
		items, err := readTOML(PolicyFile, got)
		if err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		again, err := Edit(got, line)
		if err != nil || string(again) != string(got) {
			t.Fatalf("%q, again %q, %v", got, again, err)
		}
		if value != "" && len(flat(items)) == 0 {
			t.Fatalf("%q says nothing", got)
		}
	})
}
