// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Line is one setting of policy.toml: of a connector, of a method with Method too, or of a site. Value "" takes it away. The site
// OtherSites is what no line names.
type Line struct {
	Connector, Method string
	Site              string
	Value             string
}

// OtherSites stands in place of a site.
const OtherSites = "*"

// ErrByHand is of a file in which a line stands so that only a person should change it.
var ErrByHand = errors.New("it is written in a way that only an editor should change; edit policy.toml on the machine")

// path is where the line stands; empty of what is none.
func (l *Line) path() []string {
	switch {
	case l.Site == OtherSites && l.Connector == "" && l.Method == "":
		return []string{"other-sites"}
	case l.Site != "" && l.Connector == "" && l.Method == "":
		return []string{"site", l.Site, "setting"}
	case l.Site == "" && l.Connector != "" && l.Method == "":
		return []string{"connector", l.Connector, "setting"}
	case l.Site == "" && l.Connector != "":
		return []string{"connector", l.Connector, "method", l.Method}
	}
	return nil
}

// Edit changes lines of a policy.toml and leaves every other byte as it is, comments among them. The result is read again, and
// returned only if it says what it said before but for these lines. It need not be a valid policy: Compile says.
func Edit(text []byte, lines ...Line) ([]byte, error) {
	for i := range lines {
		next, err := edit(text, &lines[i])
		if err != nil {
			return nil, err
		}
		text = next
	}
	return text, nil
}

func edit(text []byte, l *Line) ([]byte, error) {
	path := l.path()
	if path == nil {
		return nil, fmt.Errorf("a setting is of a connector, with or without a method, or of a site")
	}
	before, err := readTOML(PolicyFile, text)
	if err != nil {
		return nil, err
	}
	said := flat(before)
	if l.Site != "" && path[0] == "site" { // it is known by what it names, in whatever case
		want, err := parsePattern(l.Site)
		if err != nil {
			return nil, err
		}
		path[1] = want.String()
		for _, it := range before {
			if len(it.path) > 1 && it.path[0].text == "site" {
				if p, err := parsePattern(it.path[1].text); err == nil && p == want {
					path[1] = it.path[1].text
				}
			}
		}
	}
	out := replaced(text, path, l.Value)
	after, err := readTOML(PolicyFile, out)
	if err != nil {
		return nil, ErrByHand
	}
	if delete(said, joined(path)); l.Value != "" {
		said[joined(path)] = fmt.Sprintf("%d %q", unstable.String, l.Value)
	}
	if !maps.Equal(said, flat(after)) {
		return nil, ErrByHand
	}
	return out, nil
}

// replaced is the text with the line as it shall be. It goes by where things stand and may be wrong about it: edit looks.
func replaced(text []byte, path []string, value string) []byte {
	quoted := []byte(strconv.Quote(value)) // a setting's or a site's, so printable ASCII, which TOML writes the same
	bom := len(text) - len(bytes.TrimPrefix(text, []byte("\ufeff")))
	var p unstable.Parser
	p.Reset(text[bom:])
	var table []string
	heads := map[string]int{} // tables, by where the line of their head ends
	for p.NextExpression() {
		e := p.Expression()
		var keys []string
		at := -1
		for it := e.Key(); it.Next(); {
			keys = append(keys, string(it.Node().Data))
			if at < 0 {
				at = bom + int(it.Node().Raw.Offset)
			}
		}
		if at < 0 {
			continue
		}
		if e.Kind == unstable.Table {
			table = keys
			heads[joined(table)] = lineEnd(text, at)
			continue
		}
		if e.Kind != unstable.KeyValue || !slices.Equal(append(slices.Clone(table), keys...), path) {
			continue
		}
		raw := e.Value().Raw
		from := bom + int(raw.Offset)
		if value != "" {
			return slices.Concat(text[:from], quoted, text[from+int(raw.Length):])
		}
		start, end := lineStart(text, at), lineEnd(text, from)
		if head, ok := heads[joined(table)]; ok && len(table) > 0 && bytes.TrimSpace(text[head:start]) == nil && alone(text[end:]) {
			start = lineStart(text, head-1) // the table has nothing else
		}
		return slices.Concat(text[:start], text[end:])
	}
	if value == "" {
		return text
	}
	line := slices.Concat([]byte(key(path[len(path)-1])+" = "), quoted, []byte("\n"))
	if len(path) == 1 { // before any table
		return slices.Concat(text[:bom], line, text[bom:])
	}
	if end, ok := heads[joined(path[:len(path)-1])]; ok {
		if !bytes.HasSuffix(text[:end], []byte("\n")) {
			line = append([]byte("\n"), line...)
		}
		return slices.Concat(text[:end], line, text[end:])
	}
	var head []string
	for _, k := range path[:len(path)-1] {
		head = append(head, key(k))
	}
	gap := ""
	if len(bytes.TrimSpace(text)) > 0 {
		gap = strings.Repeat("\n", 2-min(1, bytes.Count(text[len(text)-1:], []byte("\n"))))
	}
	return slices.Concat(text, []byte(gap+"["+strings.Join(head, ".")+"]\n"), line)
}

// alone says whether a table ends where rest begins.
func alone(rest []byte) bool {
	rest = bytes.TrimSpace(rest)
	return len(rest) == 0 || rest[0] == '['
}

func lineStart(text []byte, at int) int { return bytes.LastIndexByte(text[:at], '\n') + 1 }

// lineEnd is behind the line feed of the line that at is in.
func lineEnd(text []byte, at int) int {
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}

// key writes a key of TOML.
func key(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" {
		return s
	}
	return strconv.Quote(s)
}

func joined(path []string) string { return strings.Join(path, "\x00") }

// flat is what a file says: values by their path.
func flat(items []item) map[string]string {
	out := map[string]string{}
	for _, it := range items {
		if it.val == nil {
			continue
		}
		path := make([]string, len(it.path))
		for i := range it.path {
			path[i] = it.path[i].text
		}
		out[joined(path)] = it.val.flat()
	}
	return out
}

func (v *value) flat() string {
	switch v.kind {
	case unstable.String:
		return fmt.Sprintf("%d %q", v.kind, v.text)
	case unstable.Array:
		var all []string
		for i := range v.list {
			all = append(all, v.list[i].flat())
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	return fmt.Sprintf("%d %d %t", v.kind, v.num, v.yes)
}
