// SPDX-License-Identifier: Apache-2.0

// Package connectors holds the manifests of custom connectors that ship with Doorward. They grant nothing: a person issues a
// surrogate by one, into one cell, and is shown all of it first.
package connectors

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Names lists them, sorted.
func Names() []string {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic("connectors: " + err.Error()) // they are within the binary
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".toml"))
	}
	slices.Sort(out)
	return out
}

// Named is the text of one, for manifest.Parse. A name has no slash and no dot, so a path to a file is never one.
func Named(name string) (text []byte, ok bool) {
	if name == "" || strings.ContainsAny(name, "./\\") {
		return nil, false
	}
	b, err := files.ReadFile(name + ".toml")
	return b, err == nil
}
