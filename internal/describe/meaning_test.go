// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"reflect"
	"testing"
)

func described() *Method {
	return &Method{Name: "create", Summary: "make a thing", Class: Write, Reach: ReachPeople,
		Lower: []Lower{{To: ReachNone, Empty: []string{"to"}}}, Grant: []string{"to"},
		Args: []Arg{{Name: "title", Label: "Title", Help: "one line", Type: TypeString, Max: 100},
			{Name: "to", Label: "To", Help: "an address", Type: TypeEmail, Repeat: 3, Role: "recipient"}},
		Entries: []Entry{{Name: "it", Method: "POST", Path: "{base}/it", Uses: 2, Credential: true, MaxIn: 1 << 20,
			Query: []Match{{"to", Bind{Arg: "to"}}}, Body: &Body{Media: "application/json", JSON: []Leaf{{"/title", Bind{Arg: "title"}}}}}},
		Prepare: &Prepare{Kind: "icalendar"}, Labels: []string{"private"}, Scopes: []string{"issues"}, Once: "an id",
		Settle: &Settle{Method: "items"}}
}

// What counts as a change of a method, and what is only said otherwise.
func TestWhatAMethodMeans(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Method)
		counts bool
	}{
		{"nothing", func(*Method) {}, false},
		{"its summary", func(m *Method) { m.Summary = "makes a thing" }, false},
		{"an argument's label", func(m *Method) { m.Args[0].Label = "Heading" }, false},
		{"an argument's help", func(m *Method) { m.Args[0].Help = "a line" }, false},
		{"the order of arguments", func(m *Method) { m.Args[0], m.Args[1] = m.Args[1], m.Args[0] }, false},
		{"the vendor's permissions", func(m *Method) { m.Scopes = nil }, false},
		{"what makes it once", func(m *Method) { m.Once = "" }, false},

		{"its answer's labels", func(m *Method) { m.Labels = nil }, true},
		{"how it is settled", func(m *Method) { m.Settle = nil }, true},
		{"its name", func(m *Method) { m.Name = "make" }, true},
		{"its class", func(m *Method) { m.Class = Read }, true},
		{"its reach", func(m *Method) { m.Reach = ReachSpace }, true},
		{"what lowers its reach", func(m *Method) { m.Lower[0].Empty = nil }, true},
		{"that it always is sensitive", func(m *Method) { m.Always = true }, true},
		{"a grant field less", func(m *Method) { m.Grant = nil }, true},
		{"another grant field", func(m *Method) { m.Grant[0] = "title" }, true},
		{"a request more", func(m *Method) { m.Entries = append(m.Entries, m.Entries[0]) }, true},
		{"a request's method", func(m *Method) { m.Entries[0].Method = "PUT" }, true},
		{"a request's host", func(m *Method) { m.Entries[0].Host = "x.example.test" }, true},
		{"a request's path", func(m *Method) { m.Entries[0].Path = "{base}/them" }, true},
		{"a bound parameter", func(m *Method) { m.Entries[0].Query = nil }, true},
		{"a bound field", func(m *Method) { m.Entries[0].Body.JSON[0].Pointer = "/name" }, true},
		{"how often", func(m *Method) { m.Entries[0].Uses = 3 }, true},
		{"how large", func(m *Method) { m.Entries[0].MaxIn++ }, true},
		{"the credential", func(m *Method) { m.Entries[0].Credential = false }, true},
		{"who reads its body back", func(m *Method) { m.Prepare.Kind = "vcard" }, true},
		{"an argument more", func(m *Method) { m.Args = append(m.Args, Arg{Name: "cc", Type: TypeEmail}) }, true},
		{"an argument's type", func(m *Method) { m.Args[1].Type = TypeString }, true},
		{"an argument's bound", func(m *Method) { m.Args[0].Max = 101 }, true},
		{"an argument's role", func(m *Method) { m.Args[1].Role = "" }, true},
		{"an argument's default", func(m *Method) { m.Args[0].Default = "x" }, true},
	} {
		m := described()
		c.change(m)
		if changed := m.Meaning() != described().Meaning(); changed != c.counts {
			t.Errorf("%s: changed is %t, want %t", c.what, changed, c.counts)
		}
	}
	m := described()
	if m.Meaning(); !reflect.DeepEqual(m, described()) {
		t.Error("asking for its meaning has changed the method")
	}
}

// A field that is added later counts, unless somebody decides otherwise in Meaning: each one is emptied, and only those
// that are known not to count may make no difference.
func TestEveryFieldOfAMethodCountsOrIsNamed(t *testing.T) {
	silent := map[string]bool{"Summary": true, "Scopes": true, "Once": true}
	for i := range reflect.TypeFor[Method]().NumField() {
		name := reflect.TypeFor[Method]().Field(i).Name
		m := described()
		f := reflect.ValueOf(m).Elem().Field(i)
		if f.Kind() == reflect.Bool {
			f.SetBool(!f.Bool())
		} else if f.IsZero() {
			t.Errorf("%s: the method of this test has none", name)
		} else {
			f.SetZero()
		}
		if changed := m.Meaning() != described().Meaning(); changed == silent[name] {
			t.Errorf("%s: changed is %t", name, changed)
		}
	}
}
