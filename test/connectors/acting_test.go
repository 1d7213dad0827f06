// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"fmt"
	"slices"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/workers"
	"github.com/doorward/doorward/workers/dav"
	"github.com/doorward/doorward/workers/github"
)

// acting says whether sentinel takes a request of this method for one that may change something.
func acting(method string) bool {
	return !slices.Contains([]string{"GET", "PROPFIND", "REPORT"}, method)
}

// together says whether one call may select both entries.
func together(a, b *describe.Cond) bool {
	if a == nil || b == nil || a.Arg != b.Arg {
		return true
	}
	switch {
	case a.Is != "" && b.Is != "":
		return a.Is == b.Is
	case a.Is != "" || b.Is != "": // a value is there; "not Has" wants none
		return a.Has || b.Has
	}
	return a.Has == b.Has
}

// badActs are the ways in which a method may act more than once in one call, or act though it is a read.
func badActs(m *describe.Method) []string {
	var out []string
	for i := range m.Entries {
		a := &m.Entries[i]
		if !acting(a.Method) {
			continue
		}
		if m.Class == describe.Read {
			out = append(out, fmt.Sprintf("a read has the entry %s: %s", a.Name, a.Method))
		}
		if a.Uses > 1 {
			out = append(out, fmt.Sprintf("%s may be sent %d times", a.Name, a.Uses))
		}
		for j := range m.Entries[:i] {
			if b := &m.Entries[j]; acting(b.Method) && together(a.When, b.When) {
				out = append(out, fmt.Sprintf("%s and %s may both be sent", b.Name, a.Name))
			}
		}
	}
	return out
}

// When sentinel joins a worker's word with what egress saw, one request that the vendor took means that the call was
// done. That holds only where a call has one request that acts: with two, a worker that was taken over could send the
// first, leave the second, and have it called done. A method that needs two must be named here with the reason why
// sentinel's answer is right all the same. There is none.
func TestACallHasOneRequestThatActs(t *testing.T) {
	for _, c := range []*workers.Connector{dav.Connector(), github.Connector()} {
		for i := range c.Describe.Methods {
			m := &c.Describe.Methods[i]
			for _, bad := range badActs(m) {
				t.Errorf("%s %s: %s", c.Describe.Vendor, m.Name, bad)
			}
			if m.Class != describe.Read && !slices.ContainsFunc(m.Entries, func(e describe.Entry) bool { return acting(e.Method) }) {
				t.Errorf("%s %s: a %s that sends nothing but reads would always count as failed", c.Describe.Vendor, m.Name, m.Class)
			}
		}
	}
	// Control: what the descriptions must not say is found.
	is := func(value string) *describe.Cond { return &describe.Cond{Arg: "x", Is: value} }
	for _, x := range []struct {
		says    string
		class   string
		entries []describe.Entry
		bad     bool
	}{
		{"two writes", describe.Write, []describe.Entry{{Method: "PUT"}, {Method: "DELETE"}}, true},
		{"one that may be sent twice", describe.Write, []describe.Entry{{Method: "POST", Uses: 2}}, true},
		{"two by different arguments", describe.Write, []describe.Entry{{Method: "PUT", When: is("a")},
			{Method: "PUT", When: &describe.Cond{Arg: "y"}}}, true},
		{"by the same value", describe.Write, []describe.Entry{{Method: "PUT", When: is("a")}, {Method: "PUT", When: is("a")}}, true},
		{"by a value, and by any", describe.Write, []describe.Entry{{Method: "PUT", When: is("a")},
			{Method: "PUT", When: &describe.Cond{Arg: "x", Has: true}}}, true},
		{"a read that posts", describe.Read, []describe.Entry{{Method: "POST"}}, true},
		{"by two values", describe.Write, []describe.Entry{{Method: "PUT", When: is("a")}, {Method: "PUT", When: is("b")}}, false},
		{"by a value, or none", describe.Write, []describe.Entry{{Method: "PUT", When: is("a")},
			{Method: "PUT", When: &describe.Cond{Arg: "x"}}}, false},
		{"reads beside one write", describe.Write, []describe.Entry{{Method: "REPORT", Uses: 9}, {Method: "PUT"}, {Method: "GET"}}, false},
	} {
		if bad := badActs(&describe.Method{Class: x.class, Entries: x.entries}); (len(bad) > 0) != x.bad {
			t.Errorf("control: %s: %v", x.says, bad)
		}
	}
}
