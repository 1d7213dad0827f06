// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNamesAndLinksOfOthersNeverStandUnquoted(t *testing.T) {
	for in, want := range map[string]string{
		"ada": "ada", "dependabot[bot]": "dependabot[bot]", "m_corp": "m_corp", "": "", "a b": "", "a\nb": "",
		"<ada>": "", "ada[bot]x": "", strings.Repeat("a", 65): "", "zoë": "",
	} {
		if got := (&user{Login: in}).login(); got != want {
			t.Errorf("login %q became %q", in, got)
		}
	}
	for in, want := range map[string]bool{
		"o/r": true, "o/r/x": false, "o": false, "/r": false, "o/": false, "o/..": false, "o/r?x": false, "o/r .": false,
	} {
		if isRepo(in) != want {
			t.Errorf("repository %q: %v", in, !want)
		}
	}
	for in, want := range map[string]bool{
		"https://github.com/o/r/issues/1":            true,
		"https://gist.github.com/1":                  true,
		"http://github.com/o/r":                      false,
		"https://github.com.evil.test/":              false,
		"https://evilgithub.com/":                    false,
		"https://u@github.com/":                      false,
		"https://github.com/ now do as I say":        false,
		"javascript:alert(1)":                        false,
		"https://github.com/\n":                      false,
		"https://github.com/" + string(rune(0x202e)): false,
	} {
		got := link(in, "api.github.com")
		if (got != "") != want || strings.ContainsFunc(got, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("link %q became %q", in, got)
		}
	}
}

func TestTextsOfOthersNameSourceAndAuthor(t *testing.T) {
	var in issueIn
	if err := json.Unmarshal([]byte(`{"number":7,"state":"open","title":"t","body":"do this","comments":0,
		"user":{"login":"mallory"},"author_association":"NONE","labels":[{"name":"bug"},"plain"]}`), &in); err != nil {
		t.Fatal(err)
	}
	out, err := in.out("o/r", shownShort)
	if err != nil {
		t.Fatal(err)
	}
	if out.Body == nil || !out.Body.Untrusted || out.Body.Author != "mallory" || out.Body.Source != "github issue o/r#7" {
		t.Errorf("body: %+v", out.Body)
	}
	if out.Labels == nil || out.Labels.Text != "bug, plain" || out.Association != "NONE" {
		t.Errorf("labels: %+v, %q", out.Labels, out.Association)
	}
}

func TestAnswersUnlikeTheDescriptionAreRefused(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"number":0,"state":"open"}`, `{"number":1,"state":"ajar"}`, `{"number":1,"state":"open","comments":-1}`,
	} {
		var in issueIn
		if err := json.Unmarshal([]byte(text), &in); err != nil {
			t.Fatal(err)
		}
		if out, err := in.out("o/r", 10); err == nil || out != nil {
			t.Errorf("%s was taken: %+v", text, out)
		}
	}
	if _, err := (&repoIn{FullName: "o/r"}).out(); err == nil {
		t.Error("a repository that does not say whether it is private was taken")
	}
}

func TestOnlyALinkToTheNextPageIsAPage(t *testing.T) {
	for in, want := range map[string]bool{
		`<https://api.github.com/x?page=2>; rel="next", <https://api.github.com/x?page=9>; rel="last"`: true,
		`<https://api.github.com/x?page=1>; rel="prev"`:                                                false,
		``:                                      false,
		`<https://evil.test/rel="next">`:        false,
		`<x>; title="rel=\"next\""; rel="last"`: false,
	} {
		if hasNext(in) != want {
			t.Errorf("%s: %v", in, !want)
		}
	}
}

func TestRefusalsArePassedOnBoundedAndPrintable(t *testing.T) {
	for in, want := range map[string]string{
		`{"message":"Not Found","documentation_url":"x"}`:                                   "Not Found",
		`{"message":"No","errors":[{"resource":"Issue","field":"title","code":"missing"}]}`: "No; Issue title missing",
		`{"message":"a\u001b[31m\nb\u202e c"}`:                                              "a [31m b c",
		`<html>`:                                                                            "",
		`{"errors":["x"]}`:                                                                  "",
	} {
		if got := parseMessage([]byte(in)); got != want {
			t.Errorf("%s became %q, want %q", in, got, want)
		}
	}
	long := parseMessage([]byte(`{"message":"` + strings.Repeat("é", 4000) + `"}`))
	if len(long) > maxMessage || !utf8.ValidString(long) {
		t.Errorf("%d bytes", len(long))
	}
}

func TestTheEndOfALogIsKeptAtLinesAndCharacters(t *testing.T) {
	for _, one := range []struct {
		in   string
		n    int
		want string
		more bool
	}{
		{"", 5, "", false},
		{"a\nb\nc\n", 2, "b\nc\n", true},
		{"a\nb\nc", 2, "b\nc", true},
		{"a\nb\nc\n", 3, "a\nb\nc\n", false},
		{"\n\n\n", 1, "\n", true},
		{"one", 9, "one", false},
	} {
		got, more, err := tail(strings.NewReader(one.in), one.n)
		if err != nil || string(got) != one.want || more != one.more {
			t.Errorf("last %d of %q: %q, %v, %v", one.n, one.in, got, more, err)
		}
	}
	got, more, err := tail(strings.NewReader(strings.Repeat("é", 2*maxTail)), 1)
	if err != nil || !more || len(got) > maxTail || !utf8.Valid(got) {
		t.Errorf("one line without end: %d bytes, %v, %v", len(got), more, err)
	}
}

func TestNoCharacterIsSplit(t *testing.T) {
	text := []byte("aé€😀")
	for i := range len(text) + 1 {
		got := whole(bytes.Clone(text[:i]))
		if !utf8.Valid(got) || i-len(got) > 3 {
			t.Errorf("%d bytes became %q", i, got)
		}
	}
	if got := whole([]byte{0xff, 0x80, 0x80, 0x80, 0x80}); len(got) != 5 {
		t.Errorf("bytes that are no text became %d", len(got))
	}
}
