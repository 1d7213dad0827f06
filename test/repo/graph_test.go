// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

func TestTheReadmeShowsTheTableOfWhoMayTalkToWhom(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	in := false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "## ") {
			in = line == "## Who may talk to whom"
		}
		if in && strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|---") && !strings.HasPrefix(line, "| from ") {
			rows = append(rows, line)
		}
	}
	var want []string
	for _, e := range wire.Graph() {
		want = append(want, "| "+e.From+" | "+e.To+" | `"+e.Socket+"` | "+strings.Join(e.Verbs, ", ")+" | "+strings.Join(e.Back, ", ")+" |")
	}
	if !slices.Equal(rows, want) {
		t.Errorf("README.md has\n%s\nthe code\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

// The verbs that the servers' tables in the code name, by the folder they are in. "worker" is in workers/, and what
// sentinel and authd are asked back is in the client's table (Pushed).
func TestTheServersTablesAreThatTable(t *testing.T) {
	folder := map[string]string{"sentinel": "sentinel", "authd": "authd", "worker": "workers", "egress": "sentinel/egress",
		"cells": "cells"}
	have := map[string]map[string]int{} // folder, verb, times On; Pushed under "back:"
	goFiles(t, func(dir, file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		for _, f := range folder {
			if dir != f && !(f != "sentinel" && strings.HasPrefix(dir, f+"/")) {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || path.Base(exprString(sel.X)) != "daemon" {
					return true
				}
				lit, ok := call.Args[0].(*ast.BasicLit)
				if !ok {
					return true
				}
				verb, _ := strconv.Unquote(lit.Value)
				switch sel.Sel.Name {
				case "Pushed":
					verb = "back:" + verb
				case "On":
				default:
					return true
				}
				if have[f] == nil {
					have[f] = map[string]int{}
				}
				have[f][verb]++
				return true
			})
		}
	})
	want := map[string]map[string]int{}
	add := func(f, verb string) {
		if want[f] == nil {
			want[f] = map[string]int{}
		}
		want[f][verb]++
	}
	for _, e := range wire.Graph() {
		for _, v := range e.Verbs {
			if !strings.HasPrefix(v, "HTTP/") {
				add(folder[e.To], v)
			}
		}
		for _, v := range e.Back {
			add(folder[e.From], "back:"+v)
		}
	}
	for _, f := range folder {
		for v, n := range want[f] {
			if have[f][v] != n {
				t.Errorf("%s: the table has %s %d times, the code %d", f, v, n, have[f][v])
			}
		}
		for v := range have[f] {
			if want[f][v] == 0 {
				t.Errorf("%s: the code serves %s, which is not in the table", f, v)
			}
		}
	}
}

func exprString(e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
