// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocs: docs/policy.md names every fact with its type, and its examples are valid.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	all := append(facts(), requestFacts()...)
	for _, f := range all {
		typ := strings.NewReplacer("Set<", "Set of ", ">", "").Replace(f.typ)
		if !strings.Contains(doc, "| `"+f.name+"` | "+typ+" |") {
			t.Errorf("no fact %s of type %s", f.name, typ)
		}
	}
	if got := strings.Count(doc, "` | String |") + strings.Count(doc, "` | Bool |") + strings.Count(doc, "` | Long |") +
		strings.Count(doc, "` | Set of String |") + strings.Count(doc, "` | datetime |"); got != len(all)+1 {
		t.Errorf("%d facts in the table, there are %d and approved", got, len(all))
	}
	toml, cedar := fenced(doc, "toml"), fenced(doc, "cedar")
	if len(toml) != 2 || len(cedar) != 1 {
		t.Fatalf("%d and %d examples", len(toml), len(cedar))
	}
	if _, err := compileTest(t, toml[0], LimitsFile, toml[1], "own.cedar", cedar[0]); err != nil {
		t.Error(err)
	}
	// What the installed files show as comments is valid too.
	uncomment := func(b []byte, prefix string) string {
		var out []string
		for _, l := range strings.Split(string(b), "\n") {
			if s, ok := strings.CutPrefix(l, prefix); ok && (strings.Contains(s, "=") || strings.HasPrefix(s, "[")) {
				out = append(out, s)
			}
		}
		return strings.Join(out, "\n")
	}
	var top, tables []string // in policy.toml, examples of top-level keys stand below those of tables
	for _, l := range strings.Split(uncomment(DefaultPolicy(), "#   "), "\n") {
		if len(tables) > 0 && !strings.HasPrefix(l, "organisation") && !strings.HasPrefix(l, "bulk") &&
			!strings.HasPrefix(l, "sites") && !strings.HasPrefix(l, "other-sites") || strings.HasPrefix(l,
			"[") {
			tables = append(tables, l)
		} else {
			top = append(top, l)
		}
	}
	if _, err := compileTest(t, strings.Join(append(top, tables...), "\n"), LimitsFile,
		uncomment(DefaultLimits(), "#")); err != nil {
		t.Error(err)
	}
}

// TestTheManualPage: doorward-policy(5) has every key of both files and no other, and its examples are valid.
func TestTheManualPage(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "package", "docs", "doorward-policy.5.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	parts := map[string]string{}
	for _, s := range strings.Split(page, "\n## ")[1:] {
		title, body, _ := strings.Cut(s, "\n")
		parts[title] = body
	}
	terms := regexp.MustCompile("(?m)^- ((?:`[^`]*`(?:, )?)+):")
	for title, top := range map[string]map[string]func(word, *value) error{
		"POLICY.TOML": new(settings).form(nil).top, "LIMITS.TOML": noLimits().form(nil).top} {
		said := map[string]bool{}
		for _, m := range terms.FindAllStringSubmatch(parts[title], -1) {
			for _, key := range strings.Split(m[1], ", ") {
				if key = strings.Trim(key, "`"); !strings.HasPrefix(key, "[") {
					said[key] = true
				}
			}
		}
		for key := range top {
			if !said[key] {
				t.Errorf("%s does not name %s", title, key)
			}
			delete(said, key)
		}
		for key := range said {
			t.Errorf("%s names %s, which is no key", title, key)
		}
		for _, table := range []string{"[connector.github]", "[connector.github.method]", "[site.\"example.org\"]", "[site.\"example.org\".budget]", "[budget]",
			"[surrogate.chat]", "[surrogate.chat.route]"} {
			if !strings.Contains(parts[title], table) {
				t.Errorf("%s has no %s", title, table)
			}
		}
	}
	for _, word := range []string{AskEveryTime, AskBeforeChanges, DontAsk, off.String(), ask.String(), read.String(), allow.String(), "[connector.github.private]"} {
		if !strings.Contains(parts["POLICY.TOML"], "`"+word+"`") {
			t.Errorf("the page does not name %s", word)
		}
	}
	var examples []string
	for i, s := range strings.Split(page, "```\n") {
		if i%2 == 1 {
			examples = append(examples, s)
		}
	}
	if len(examples) != 2 {
		t.Fatalf("%d examples", len(examples))
	}
	if _, err := compileTest(t, examples[0], "own.cedar", examples[1]); err != nil {
		t.Error(err)
	}
}

// fenced are the code blocks of a language.
func fenced(doc, lang string) []string {
	var out []string
	for _, s := range strings.Split(doc, "```"+lang+"\n")[1:] {
		body, _, _ := strings.Cut(s, "```")
		out = append(out, body)
	}
	return out
}
