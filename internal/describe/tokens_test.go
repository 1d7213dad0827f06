// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"slices"
	"testing"
)

func TestTokenPage(t *testing.T) {
	const page = "https://github.com/settings/personal-access-tokens/new?name={name}&{scopes}"
	c := &Connector{Tokens: Tokens{NewURL: page}, Methods: []Method{
		{Name: "repos", Scopes: []string{"Metadata: read"}},
		{Name: "issues", Scopes: []string{"Issues: read"}},
		{Name: "issue-create", Scopes: []string{"Issues: write"}},
		{Name: "comment", Scopes: []string{"Issues: write or Pull requests: write"}},
		{Name: "review", Scopes: []string{"Pull requests: write"}},
		{Name: "file-put", Scopes: []string{"Contents: write (Workflows: write for workflow files)"}},
		{Name: "notifications", Scopes: []string{"classic token: notifications"}},
		{Name: "free"},
	}}
	for _, test := range []struct {
		name    string
		methods []string
		want    string
		left    []string
	}{
		{"none", []string{}, "", nil},
		{"one", []string{"repos"}, "metadata=read", nil},
		{"the greater level", []string{"issues", "issue-create"}, "issues=write", nil},
		{"a choice alone", []string{"comment"}, "issues=write", nil},
		{"a choice that is covered", []string{"comment", "review"}, "pull_requests=write", nil},
		{"a choice that a lesser level does not cover", []string{"comment", "issues"}, "issues=write", nil},
		{"a remark", []string{"file-put"}, "contents=write", []string{"Workflows: write for workflow files"}},
		{"what the page cannot be told", []string{"notifications", "free"}, "", []string{"classic token: notifications"}},
		{"all", nil, "contents=write&issues=write&metadata=read&pull_requests=write",
			[]string{"Workflows: write for workflow files", "classic token: notifications"}},
		{"no such method", []string{"issue-creat"}, "", nil},
	} {
		got, left := c.TokenPage("Doorward & me", test.methods)
		want := "https://github.com/settings/personal-access-tokens/new?name=Doorward+%26+me&" + test.want
		if got != want || !slices.Equal(left, test.left) {
			t.Errorf("%s: %s, left %q; want %s, %q", test.name, got, left, want, test.left)
		}
	}
	c.Tokens.NewURL = "https://example.org/tokens"
	if got, _ := c.TokenPage("x", nil); got != "https://example.org/tokens" {
		t.Error(got)
	}
}
