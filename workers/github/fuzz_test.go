// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/doorward/doorward/workers"
)

// answers are GitHub's, as small as they come and as an attacker would have them.
var answers = []string{
	`{"full_name":"o/r","private":true,"open_issues_count":1,"topics":["a"],"default_branch":"main"}`,
	`[{"full_name":"o/r","private":false,"open_issues_count":0}]`,
	`[{"number":1,"state":"open","title":"t","body":"b","user":{"login":"m"},"labels":["x",{"name":"y"}],"comments":2}]`,
	`{"total_count":1,"incomplete_results":true,"items":[{"number":1,"state":"closed","repository_url":"/repos/o/r"}]}`,
	`[{"id":1,"body":"b","user":null,"author_association":"NONE"}]`,
	`{"number":3,"state":"open","head":{"ref":"h","sha":"0123456789012345678901234567890123456789"},"base":{"ref":"b"}}`,
	`[{"filename":"f","status":"added","additions":1,"deletions":0,"patch":"@@"}]`,
	`{"sha":"x","tree":[{"path":"p","type":"blob","sha":"s","size":1}],"truncated":true}`,
	`{"total_count":1,"items":[{"path":"p","repository":{"full_name":"o/r"}}]}`,
	`{"total_count":1,"workflow_runs":[{"id":1,"name":"n","head_branch":"b","status":"completed"}]}`,
	`[{"id":"1","repository":{"full_name":"o/r"},"subject":{"title":"t","url":"https://a/1"}}]`,
	`{"message":"no","errors":[{"field":"f"}]}`,
	`[{"number":1e3,"state":"open"}]`, "[{\"number\":1,\"state\":\"open\",\"title\":\"\xff\"}]", `null`, `[null]`, `[[[[`,
}

// FuzzAnswers holds what leaves a parser of GitHub's answers to its promises: nothing with an error, no more items and
// bytes than were asked for, and no text of others but as a Text.
func FuzzAnswers(f *testing.F) {
	for _, seed := range answers {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 3
		parse(t, in, limit, (*repoIn).out)
		parse(t, in, limit, func(i *issueIn) (*issueOut, error) { return i.out("o/r", 50) })
		parse(t, in, limit, func(i *issueIn) (*issueOut, error) { return i.out("", 50) })
		parse(t, in, limit, func(i *commentIn) (*commentOut, error) { return i.out("s") })
		parse(t, in, limit, func(i *pullIn) (*pullOut, error) { return i.out("o/r", 50) })
		parse(t, in, limit, func(i *fileIn) (*fileOut, error) { return i.out("s") })
		parse(t, in, limit, func(i *entryIn) (*entryOut, error) { return i.out("s") })
		parse(t, in, limit, (*codeIn).out)
		parse(t, in, limit, func(i *runIn) (*runOut, error) { return i.out("o/r") })
		parse(t, in, limit, (*noticeIn).out)
		said := parseMessage(in)
		if len(said) > maxMessage || !utf8.ValidString(said) || strings.ContainsAny(said, "\n\x1b") {
			t.Fatalf("message %q", said)
		}
		if url := link(string(in), "api.github.com"); url != "" && !strings.HasPrefix(url, "https://") {
			t.Fatalf("link %q", url)
		}
		hasNext(string(in))
	})
}

func parse[In, Out any](t *testing.T, in []byte, limit int, turn func(*In) (*Out, error)) {
	t.Helper()
	var lists [4][]In
	_ = json.Unmarshal(in, &lists[0])
	var one In
	if json.Unmarshal(in, &one) == nil {
		lists[1] = []In{one}
	}
	var found foundIn[In]
	if json.Unmarshal(in, &found) == nil {
		lists[2] = found.Items
	}
	for _, list := range lists {
		out, err := each(list, limit, turn)
		if err != nil {
			if out != nil {
				t.Fatal("value returned with error")
			}
			continue
		}
		if len(out) > limit {
			t.Fatalf("%d items", len(out))
		}
		text, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		var back any
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		quoted(t, back, "")
	}
}

// quoted fails on a string that is neither part of a Text nor made of the letters that GitHub's own words have.
func quoted(t *testing.T, v any, name string) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		if v["untrusted"] == true {
			if text, _ := v["text"].(string); len(text) > shownBody {
				t.Fatalf("%s: text of %d bytes", name, len(text))
			}
			return
		}
		for key, value := range v {
			quoted(t, value, key)
		}
	case []any:
		for _, value := range v {
			quoted(t, value, name)
		}
	case string:
		plain := func(r rune) bool {
			return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_./:[]", r)
		}
		if len(v) > 201 || strings.ContainsFunc(v, func(r rune) bool { return !plain(r) }) {
			t.Fatalf("%s: %q stands unquoted", name, v)
		}
	}
}

func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nb\n"), 1)
	f.Add([]byte("\n\n\n"), 2)
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		if n < 1 {
			return
		}
		got, more, err := tail(bytes.NewReader(in), n)
		if err != nil || !bytes.HasSuffix(in, got) || more != (len(got) < len(in)) {
			t.Fatalf("last %d of %q: %q, %v, %v", n, in, got, more, err)
		}
		if lines := bytes.Count(bytes.TrimSuffix(got, []byte("\n")), []byte("\n")) + 1; len(got) > 0 && lines > n {
			t.Fatalf("%d lines, want %d", lines, n)
		}
		if cut := whole(bytes.Clone(in)); !bytes.HasPrefix(in, cut) || len(in)-len(cut) > 3 {
			t.Fatalf("%q became %q", in, cut)
		}
		if cut := workers.Cut(string(in), 20); !utf8.ValidString(cut) {
			t.Fatalf("%q became %q", in, cut)
		}
	})
}
