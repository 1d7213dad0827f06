// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// extras are operations that no method sends and that attack tests try to: each must be known to the stand-in, so that
// what refuses it is Doorward and not a missing description.
var extras = []string{
	"GET /user",
	"GET /rate_limit",
	"DELETE /repos/{owner}/{repo}",
	"PATCH /repos/{owner}/{repo}",
	"DELETE /repos/{owner}/{repo}/contents/{path}",
	"GET /repos/{owner}/{repo}/pulls",
	"POST /repos/{owner}/{repo}/hooks",
	"PUT /repos/{owner}/{repo}/collaborators/{username}",
}

// operations lists "VERB path" of every github row of the table of methods, and the extras.
func operations(table []byte) (map[string]bool, error) {
	want := map[string]bool{}
	for _, line := range strings.Split(string(table), "\n") {
		cells := strings.Split(line, "\t")
		if cells[0] != "github" {
			continue
		}
		if len(cells) < 6 {
			return nil, fmt.Errorf("table of methods: a row of %d columns: %q", len(cells), line)
		}
		want[cells[4]+" "+cells[5]] = true
	}
	if len(want) == 0 {
		return nil, errors.New("table of methods: no row of github")
	}
	for _, extra := range extras {
		want[extra] = true
	}
	return want, nil
}

// cut keeps the wanted operations and everything they refer to, without examples and vendor extensions, in a form that
// does not depend on which edition of the description it started from.
func cut(whole []byte, want map[string]bool) ([]byte, error) {
	var doc map[string]any
	decoder := json.NewDecoder(bytes.NewReader(whole))
	decoder.UseNumber()
	if err := decoder.Decode(&doc); err != nil {
		return nil, fmt.Errorf("decode the description: %w", err)
	}
	paths, _ := doc["paths"].(map[string]any)
	kept := map[string]any{}
	found := 0
	for path, item := range paths {
		verbs, _ := item.(map[string]any)
		left := map[string]any{}
		for verb, operation := range verbs {
			if want[strings.ToUpper(verb)+" "+path] {
				left[verb] = plain(operation, false)
				found++
			}
		}
		if len(left) > 0 {
			kept[path] = left
		}
	}
	if found != len(want) {
		return nil, fmt.Errorf("found %d of %d operations", found, len(want))
	}
	components := map[string]any{}
	all, _ := doc["components"].(map[string]any)
	if err := follow(kept, all, components); err != nil {
		return nil, err
	}
	small := map[string]any{
		"openapi":    doc["openapi"],
		"info":       map[string]any{"title": "GitHub v3 REST API, cut", "version": "1"},
		"servers":    []any{map[string]any{"url": "https://api.github.com"}},
		"paths":      kept,
		"components": components,
	}
	out, err := json.Marshal(small)
	return append(out, '\n'), err
}

// plain copies a description without examples, documentation links and extensions. named says that the keys of v are
// names of properties, not keywords.
func plain(v any, named bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			drop := key == "example" || key == "examples" || key == "externalDocs" || strings.HasPrefix(key, "x-")
			if drop && !named {
				continue
			}
			out[key] = plain(value, !named && (key == "properties" || key == "headers"))
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, value := range v {
			out = append(out, plain(value, false))
		}
		return out
	}
	return v
}

// follow copies to kept every component that v refers to, and what those refer to.
func follow(v any, all, kept map[string]any) error {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			parts := strings.Split(ref, "/")
			if len(parts) != 4 || parts[0] != "#" || parts[1] != "components" {
				return fmt.Errorf("reference %q is not to a component", ref)
			}
			kind, name := parts[2], parts[3]
			group, _ := all[kind].(map[string]any)
			target, ok := group[name]
			if !ok {
				return fmt.Errorf("reference %q leads nowhere", ref)
			}
			into, _ := kept[kind].(map[string]any)
			if into == nil {
				into = map[string]any{}
				kept[kind] = into
			}
			if _, done := into[name]; done {
				return nil
			}
			into[name] = plain(target, false)
			return follow(into[name], all, kept)
		}
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			if err := follow(v[key], all, kept); err != nil {
				return err
			}
		}
	case []any:
		for _, value := range v {
			if err := follow(value, all, kept); err != nil {
				return err
			}
		}
	}
	return nil
}
