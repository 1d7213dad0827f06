// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Shown is a command that the documents show.
type Shown struct {
	Where string   // file and line
	Args  []string // behind the command's name
	Whole bool     // in a code block, so it is to run as it stands; else a name of it in a sentence, with placeholders
}

var span = regexp.MustCompile("`([^`\n]+)`")

// Documents finds what the documents below root show of a command.
func Documents(t testing.TB, root, command string) []Shown {
	t.Helper()
	var out []Shown
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/decisions/*.md", "cli/guide/*.md", "package/docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, document(f, string(b), command)...)
		}
	}
	return out
}

func document(file, text, command string) []Shown {
	var out []Shown
	take := func(n int, line string, whole bool) {
		args := words(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
		if len(args) > 0 && args[0] == command {
			out = append(out, Shown{fmt.Sprintf("%s:%d", file, n), args[1:], whole})
		}
	}
	fenced, paragraph := false, true
	for n, line := range strings.Split(text, "\n") {
		n++
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    ") && paragraph:
			take(n, line, true)
			continue
		default:
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				take(n, m[1], false)
			}
		}
		paragraph = line == "" // an indented line is code behind an empty one, and behind more of it
	}
	return out
}

// words are the words of a line as a shell takes them, up to what is none of the command's: a comment, a pipe, a file.
func words(line string) []string {
	var out []string
	var word strings.Builder
	begun, quote := false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			begun, quote = true, r
		case r == ' ':
			if begun || word.Len() > 0 {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		case word.Len() == 0 && !begun && strings.ContainsRune("#|<>&;", r):
			return out
		default:
			word.WriteRune(r)
		}
	}
	if begun || word.Len() > 0 {
		out = append(out, word.String())
	}
	return out
}

// Placeholder says whether a word of a sentence stands for another: ID, [CELL], FILE....
func Placeholder(word string) bool {
	return word == strings.ToUpper(word) && strings.Trim(word, "[].…|") != ""
}
