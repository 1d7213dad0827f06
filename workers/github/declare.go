// SPDX-License-Identifier: Apache-2.0

package github

import (
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Bounds, in bytes where nothing else is said.
const (
	maxTitle     = 256      // characters of a title, GitHub's own
	maxBody      = 65_000   // of a body: GitHub takes 65,536 characters, and the mark stands behind it
	maxFilePut   = 10 << 20 // of a file that is written
	maxGistFile  = 1 << 20  // of one file of a gist
	maxGistFiles = 10       // files of a gist
	maxRaw       = 64 << 20 // of a file, diff or log that is read
	maxJSON      = 16 << 20 // of an answer in JSON
	maxPage      = 100      // items of a page, GitHub's own
	maxPages     = 1000     // highest page that can be asked for
	maxInputs    = 25       // inputs of a workflow, GitHub's own
)

// methods returns the declarations, sorted by name.
func methods() []describe.Method {
	out := slices.Concat(readMethods(), writeMethods())
	slices.SortFunc(out, func(a, b describe.Method) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// answered are the labels of every answer that shows what is at GitHub.
func answered() []string { return []string{wire.LabelPrivate, wire.LabelUntrusted} }

// version is the header that every request to the API carries.
func version() []describe.Match {
	return []describe.Match{constant("X-GitHub-Api-Version", apiVersion)}
}

func constant(name, value string) describe.Match {
	return describe.Match{Name: name, Bind: describe.Bind{Const: value}}
}

// from binds a query parameter to an argument.
func from(name, arg string) describe.Match {
	return describe.Match{Name: name, Bind: describe.Bind{Arg: arg}}
}

// paged are the query parameters of a page.
func paged() []describe.Match { return []describe.Match{from("per_page", "max"), from("page", "page")} }

// get is the one entry of a read.
func get(path string, query ...describe.Match) describe.Entry {
	return describe.Entry{
		Name: "get", Method: "GET", Path: "{base}" + path, Query: query, Header: version(), Credential: true, MaxIn: maxJSON,
	}
}

// send is the one entry of a write with a JSON body.
func send(verb, path string, leaves ...describe.Leaf) describe.Entry {
	return describe.Entry{
		Name: "send", Method: verb, Path: "{base}" + path, Header: version(), Credential: true, MaxIn: maxJSON,
		Body: &describe.Body{Media: "application/json", JSON: leaves},
	}
}

// leaf binds a field of the body to an argument.
func leaf(pointer, arg, as string) describe.Leaf {
	return describe.Leaf{Pointer: pointer, Bind: describe.Bind{Arg: arg, As: as}}
}

// marked binds a field to an argument with the call's mark appended.
func marked(pointer, arg string) describe.Leaf {
	return describe.Leaf{Pointer: pointer, Bind: describe.Bind{Arg: arg, Format: "marked"}}
}

func number(name, label, help string) describe.Arg {
	return describe.Arg{
		Name: name, Label: label, Help: help, Type: describe.TypeInt, Required: true, Min: 1, Max: 1 << 52,
	}
}

func argRepo() describe.Arg {
	return describe.Arg{
		Name: "repo", Label: "Repository", Help: "repository as owner/name", Type: describe.TypeRepo, Required: true,
		Role: "destination",
	}
}

func argMax(what string) describe.Arg {
	return describe.Arg{
		Name: "max", Label: "At most", Help: what + " to answer at most, 1 to 100", Type: describe.TypeInt, Min: 1,
		Max: maxPage, Default: "30",
	}
}

func argPage() describe.Arg {
	return describe.Arg{
		Name: "page", Label: "Page", Help: "page of the list, 1 to 1000, as an earlier answer gave it as next",
		Type: describe.TypeInt, Min: 1, Max: maxPages, Default: "1",
	}
}

func argSince(what string) describe.Arg {
	return describe.Arg{
		Name: "since", Label: "Since", Help: what + " changed at this time or later, as 2030-03-10T14:00:00Z",
		Type: describe.TypeTime,
	}
}

func argTitle(what string) describe.Arg {
	return describe.Arg{
		Name: "title", Label: "Title", Help: "title of " + what + ", one line, 1 to 256 bytes", Type: describe.TypeString,
		Min: 1, Max: maxTitle, Role: "content",
	}
}

func argBody(name, label, what string) describe.Arg {
	return describe.Arg{
		Name: name, Label: label, Help: what + " in Markdown, at most 65,000 bytes", Type: describe.TypeText, Max: maxBody,
		Role: "content",
	}
}

func argLabel(help string) describe.Arg {
	return describe.Arg{
		Name: "label", Label: "Label", Help: help, Type: describe.TypeString, Min: 1, Max: 50, Repeat: 20,
	}
}

func argBranch(name, label, help string) describe.Arg {
	return describe.Arg{Name: name, Label: label, Help: help, Type: describe.TypePath}
}

func required(a describe.Arg) describe.Arg {
	a.Required = true
	return a
}

func asDestination(a describe.Arg) describe.Arg {
	a.Role = "destination"
	return a
}
