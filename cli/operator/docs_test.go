// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/cli/clitest"
)

// Every command that the documents show is one that there is, with flags that it has.
func TestCommandsOfTheDocuments(t *testing.T) {
	all := clitest.Documents(t, "../..", "doorward")
	if len(all) < 10 {
		t.Fatalf("only %d commands are found", len(all))
	}
	for _, shown := range all {
		if len(shown.Args) == 0 {
			continue
		}
		var args []string
		for _, w := range shown.Args {
			if !shown.Whole {
				w = strings.Trim(w, "[]…") // what may be left out
			}
			args = append(args, w)
		}
		a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr}
		c, rest, err := a.root().Find(args)
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if words := c.Flags().Args(); err == nil && (shown.Whole || c.HasSubCommands() && len(words) > 0) {
			err = c.ValidateArgs(words)
			if err == nil && c.HasSubCommands() && len(words) > 0 {
				err = noCommand(c, words[0])
			}
		}
		if err != nil {
			t.Errorf("%s: doorward %s: %v", shown.Where, strings.Join(shown.Args, " "), err)
		}
	}
}

// Every command that a message tells a person to give is one that there is.
func TestCommandsOfMessages(t *testing.T) {
	told := regexp.MustCompile("(?:^|[:;,(] |`|run |again: )doorward ([a-z-]+)(?: ([a-z-]+))?")
	root := (&app{in: os.Stdin, out: os.Stdout, err: os.Stderr}).root()
	n := 0
	check := func(path, text string) {
		for _, m := range told.FindAllStringSubmatch(text, -1) {
			c, _, err := root.Find(m[1:2])
			none := err != nil || c == root
			if none && (strings.HasPrefix(m[0], "doorward") || m[1] == "and") { // a sentence about it
				continue
			}
			n++
			if !none && c.HasSubCommands() && m[2] != "" {
				group := c
				c, _, err = group.Find(m[2:])
				none = err != nil || c == group
			}
			if none {
				t.Errorf("%s: %q tells of a command that there is not", path, text)
			}
		}
	}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && (d.Name() == "build" || d.Name() == "test") {
				return fs.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if lit, ok := node.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					check(path, text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 50 {
		t.Errorf("only %d commands are found", n)
	}
}
