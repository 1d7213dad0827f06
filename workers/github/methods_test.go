// SPDX-License-Identifier: Apache-2.0

package github

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// row is a row of specs/methods.tsv.
type row struct{ method, class, reach, verb, path, base, permission, arguments, limits, written string }

func table(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile("../../specs/methods.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var out []row
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		c := strings.Split(line, "\t")
		if c[0] == "github" {
			out = append(out, row{c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9], c[10]})
		}
	}
	return out
}

// renamed are the path parameters of GitHub's description whose arguments have another name.
var renamed = map[string]string{
	"{owner}/{repo}": "{repo}", "{issue_number}": "{number}", "{pull_number}": "{number}", "{tree_sha}": "{ref}",
	"{job_id}": "{job}", "{workflow_id}": "{workflow}",
}

// further are the arguments that the table does not list, and why they are there.
var further = map[string]string{
	"max":  "page length of a list",
	"page": "page of a list",
	"sha":  "review: pins the commit that was reviewed",
}

func TestEveryRowAndColumnOfTheTableIsDeclared(t *testing.T) {
	c := Connector().Describe
	if _, err := c.Seal(); err != nil {
		t.Fatal(err)
	}
	rows := table(t)
	if len(rows) != 27 || len(c.Methods) != len(rows) {
		t.Fatalf("%d rows, %d methods", len(rows), len(c.Methods))
	}
	argument := regexp.MustCompile(`--([a-z-]+)(=[a-z|-]+)?(\.\.\.)?`)
	for _, r := range rows {
		m, ok := c.Method(r.method)
		if !ok {
			t.Errorf("%s is not declared", r.method)
			continue
		}
		fail := func(column string, got, want any) {
			t.Errorf("%s: %s is %v, the table says %v", r.method, column, got, want)
		}
		if m.Class != r.class {
			fail("class", m.Class, r.class)
		}
		// The table's reach is that of a private repository or a private thing; the worst case is declared.
		private := describe.Values{"repo": {"o/r"}, "private": {"true"}}
		if got := m.ReachOf(private, func(string) bool { return true }); got != r.reach {
			fail("reach", got, r.reach)
		}
		worst := describe.Values{"repo": {"o/r"}, "private": {"false"}}
		if got := m.ReachOf(worst, func(string) bool { return false }); m.Class != describe.Read && got != "public" {
			fail("worst reach", got, "public")
		}
		e := m.Entries[0]
		path := r.path
		for from, to := range renamed {
			path = strings.ReplaceAll(path, from, to)
		}
		if r.method == "branch-delete" {
			path = strings.Replace(path, "{ref}", "heads/{name}", 1)
		}
		if e.Method != r.verb || e.Path != "{base}"+path || !e.Credential {
			fail("request", e.Method+" "+e.Path, r.verb+" "+path)
		}
		if c.Base != r.base {
			fail("base", c.Base, r.base)
		}
		if !slices.Equal(m.Scopes, []string{r.permission}) {
			fail("permission", m.Scopes, r.permission)
		}
		listed := map[string]bool{}
		for _, found := range argument.FindAllStringSubmatch(r.arguments, -1) {
			name, enum, many := found[1], found[2], found[3] != ""
			listed[name] = true
			a, ok := m.Arg(name)
			if !ok {
				fail("argument --"+name, "absent", "there")
				continue
			}
			if many != (a.Repeat > 1) && !(r.method == "issues" && name == "label") {
				fail("--"+name+" several times", a.Repeat, many)
			}
			if enum != "" && strings.Join(a.Enum, "|") != enum[1:] {
				fail("values of --"+name, a.Enum, enum)
			}
		}
		for _, a := range m.Args {
			if !listed[a.Name] && further[a.Name] == "" {
				fail("argument --"+a.Name, "there", "absent")
			}
		}
		want := []string(nil)
		if m.Class == describe.Read {
			want = []string{wire.LabelPrivate, wire.LabelUntrusted}
		}
		if (r.written != "none") != slices.Contains(m.Labels, wire.LabelUntrusted) || !slices.Equal(m.Labels, want) {
			fail("labels", m.Labels, r.written)
		}
	}
}

func TestWhatTheTableSaysOfIdempotencyIsDeclared(t *testing.T) {
	c := Connector().Describe
	for _, r := range table(t) {
		m, _ := c.Method(r.method)
		once := m.Class != describe.Read && (strings.Contains(r.limits, "422 ") || strings.Contains(r.limits, "409") ||
			strings.Contains(r.limits, "422/404"))
		if once && m.Once == "" {
			t.Errorf("%s: nothing makes it create-once, the table says %q", r.method, r.limits)
		}
		marked := strings.Contains(r.limits, "hidden marker") || strings.Contains(r.limits, "as issue-create")
		if marked != (m.Settle != nil) && r.method != "pull-create" {
			t.Errorf("%s: settled by %v, the table says %q", r.method, m.Settle, r.limits)
		}
	}
}

func TestWhatRunsCodeOrSpeaksForThePersonIsSensitive(t *testing.T) {
	c := Connector().Describe
	for i := range c.Methods {
		m := &c.Methods[i]
		wantAlways := slices.Contains([]string{"file-put", "workflow-run", "review"}, m.Name)
		if m.Always != wantAlways {
			t.Errorf("%s: always sensitive is %v", m.Name, m.Always)
		}
		if m.Class != describe.Read && m.Name != "repo-create" && !m.SensitiveAt(describe.ReachSpace) {
			t.Errorf("%s: not sensitive in a private repository", m.Name)
		}
		for j := range m.Entries {
			e := &m.Entries[j]
			if e.AnyPath || (e.Host != "" && e.Credential) {
				t.Errorf("%s: entry %s is open", m.Name, e.Name)
			}
		}
	}
}

func TestAMarkStandsWhereItIsLookedFor(t *testing.T) {
	c := Connector().Describe
	for _, name := range []string{"issue-create", "comment", "pull-create"} {
		m, _ := c.Method(name)
		call := &describe.Call{
			Values: describe.Values{
				"repo": {"o/r"}, "number": {"7"}, "title": {"T"}, "body": {"B"}, "head": {"h"}, "base": {"b"}, "draft": {"true"},
			},
			Base: wire.Base{Scheme: "https", Host: "api.github.com", Port: 443}, Mark: "m4rk", Unix: 1_000_000,
		}
		entries, err := m.Fill(call)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, l := range entries[0].Body.JSON {
			found = found || l.Pointer == "/body" && string(l.Value) == `"B\n\n<!-- doorward:m4rk -->"`
		}
		if !found {
			t.Errorf("%s: no mark in %v", name, entries[0].Body.JSON)
		}
		reader, _ := c.Method(m.Settle.Method)
		if reader == nil || reader.Class != describe.Read {
			t.Errorf("%s: settled by %s", name, m.Settle.Method)
		}
	}
}
