// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
)

// arg declares an argument in short form: "name:type", then r (required), a role after "=", a count after "*".
func arg(spec string) describe.Arg {
	name, rest, _ := strings.Cut(spec, ":")
	a := describe.Arg{Name: name, Label: strings.ToUpper(name[:1]) + name[1:], Help: name}
	f := strings.Fields(rest)
	a.Type = f[0]
	for _, x := range f[1:] {
		switch {
		case x == "r":
			a.Required = true
		case strings.HasPrefix(x, "="):
			a.Role = x[1:]
		case strings.HasPrefix(x, "*"):
			fmt.Sscan(x[1:], &a.Repeat)
		case strings.HasPrefix(x, "d"):
			a.Default = x[1:]
		}
	}
	if a.Type == describe.TypeEnum {
		a.Enum = []string{"accepted", "declined", "tentative"}
	}
	return a
}

func method(name, class, reach string, args ...string) describe.Method {
	m := describe.Method{Name: name, Summary: name, Class: class, Reach: reach,
		Entries: []describe.Entry{{Name: "one", Method: "GET", Path: "/x"}}}
	for _, a := range args {
		grant := strings.HasPrefix(a, "+")
		m.Args = append(m.Args, arg(strings.TrimPrefix(a, "+")))
		if grant {
			m.Grant = append(m.Grant, m.Args[len(m.Args)-1].Name)
		}
	}
	return m
}

func with(m describe.Method, change func(*describe.Method)) describe.Method {
	change(&m)
	return m
}

// testDescs are a calendar and a code host, like the real ones, and a bank, which the real ones have not.
func testDescs(t testing.TB) []*describe.Connector {
	t.Helper()
	dav := &describe.Connector{Vendor: "dav", Title: "Calendar", Check: "calendars", Methods: []describe.Method{
		method("calendars", "read", "none"),
		method("contact-delete", "destructive", "none", "+contact:href r =destination"),
		method("contact-put", "write", "none", "+book:href =destination", "name:string r", "email:email *5"),
		with(method("event-create", "write", "people", "+calendar:href r =destination", "title:string r",
			"+attendee:email *50 =recipient", "description:text"), func(m *describe.Method) {
			m.Lower = []describe.Lower{{To: "none", Empty: []string{"attendee"}, Private: "calendar"}}
		}),
		method("event-delete", "destructive", "people", "+event:href r =destination"),
		method("events", "read", "none", "+calendar:href r", "max:int d100"),
		method("respond", "write", "people", "+event:href r =destination", "+answer:enum r"),
	}}
	github := &describe.Connector{Vendor: "github", Title: "GitHub", Check: "repos", Methods: []describe.Method{
		method("code-search", "read", "none", "query:string r"),
		method("comment", "write", "space", "+repo:repo r =destination", "+number:int r", "body:text r"),
		method("gist-create", "write", "public", "file:file r", "public:bool dfalse"),
		method("issue-create", "write", "space", "+repo:repo r =destination", "title:string r", "+label:string *10",
			"+assignee:name *10 =recipient", "body:text"),
		method("issues", "read", "none", "+repo:repo r", "state:string"),
		method("pull-merge", "destructive", "space", "+repo:repo r =destination", "number:int r"),
		method("repo-create", "write", "none", "name:name r", "private:bool dtrue"),
		method("repos", "read", "none"),
		with(method("workflow-run", "write", "none", "+repo:repo r =destination", "+workflow:name r"),
			func(m *describe.Method) { m.Always = true }),
	}}
	bank := &describe.Connector{Vendor: "bank", Title: "Bank", Check: "balance", Methods: []describe.Method{
		method("balance", "read", "none"),
		with(method("pay", "write", "people", "+to:name r =recipient", "+amount:int r =amount", "+note:string"),
			func(m *describe.Method) { m.Always = true }),
	}}
	out := []*describe.Connector{bank, dav, github}
	for _, c := range out {
		if _, err := c.Seal(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
