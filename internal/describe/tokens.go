// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"slices"
	"strings"
)

// TokenPage is the vendor's page for a new credential, filled in for what methods need (their names; nil is all of
// them), with name as what the credential is called. left are the scopes that the page cannot be told, for the person
// to know. Where the vendor has no such page, or it takes no scopes, page is as the description has it.
//
// GitHub documents its page under "Pre-filling fine-grained personal access token details using URL parameters": one
// parameter a permission, in lower case with "_" for spaces, whose value is read, write or admin.
func (c *Connector) TokenPage(name string, methods []string) (page string, left []string) {
	levels := map[string]string{}
	var wanted []string
	for i := range c.Methods {
		if m := &c.Methods[i]; methods == nil || slices.Contains(methods, m.Name) {
			wanted = append(wanted, m.Scopes...)
		}
	}
	slices.Sort(wanted)
	var either [][]string
	for _, scope := range slices.Compact(wanted) {
		scope, aside, _ := strings.Cut(scope, " (")
		if aside = strings.TrimSuffix(aside, ")"); aside != "" {
			left = append(left, aside)
		}
		if choices := strings.Split(scope, " or "); len(choices) > 1 {
			either = append(either, choices)
		} else if !raise(levels, scope) {
			left = append(left, scope)
		}
	}
	for _, choices := range either { // a choice that is covered already adds nothing
		if !slices.ContainsFunc(choices, func(scope string) bool { return covered(levels, scope) }) &&
			!slices.ContainsFunc(choices, func(scope string) bool { return raise(levels, scope) }) {
			left = append(left, strings.Join(choices, " or "))
		}
	}
	var query []string
	for permission, level := range levels {
		query = append(query, permission+"="+level)
	}
	slices.Sort(query)
	page = strings.NewReplacer("{name}", queryEscape(name), "{scopes}", strings.Join(query, "&")).Replace(c.Tokens.NewURL)
	return page, left
}

// permission reads a scope of the form "Pull requests: write".
func permission(scope string) (name, level string, ok bool) {
	name, level, ok = strings.Cut(scope, ": ")
	if !ok || name == "" || name[0] < 'A' || name[0] > 'Z' || rank(level) < 1 {
		return "", "", false
	}
	name = strings.ReplaceAll(strings.ToLower(name), " ", "_")
	return name, level, strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// rank orders levels; one that is not known is -1 and covers nothing.
func rank(level string) int { return slices.Index([]string{"", "read", "write", "admin"}, level) }

func raise(levels map[string]string, scope string) bool {
	name, level, ok := permission(scope)
	if ok && rank(level) > rank(levels[name]) {
		levels[name] = level
	}
	return ok
}

func covered(levels map[string]string, scope string) bool {
	name, level, ok := permission(scope)
	return ok && rank(levels[name]) >= rank(level)
}

// queryEscape is net/url's QueryEscape, which the cell's command would have to link.
func queryEscape(s string) string {
	const hexes = "0123456789ABCDEF"
	var b []byte
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~", c) >= 0:
			b = append(b, c)
		case c == ' ':
			b = append(b, '+')
		default:
			b = append(b, '%', hexes[c>>4], hexes[c&15])
		}
	}
	return string(b)
}
