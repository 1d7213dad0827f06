// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// painter writes a JSON value as indented text that an agent and a person can read. Text of others is marked, and a
// value of several lines stands behind "| ", so that no value can look like what the command itself says.
type painter struct {
	b    []byte
	most int  // stop some time after that many bytes
	safe bool // make hidden characters visible: a terminal reads it
}

// pretty prints v. size is that of the whole answer.
func (a *app) pretty(v *value, size int64, to *sink) *wire.Error {
	p := painter{most: textCap, safe: terminal(1)}
	if to.path == "-" {
		p.most = int(^uint(0) >> 1)
	}
	p.top(v)
	if to.path == "-" {
		return a.print(p.b)
	}
	return a.capped(p.b, size)
}

func (p *painter) full() bool { return len(p.b) > p.most }

func (p *painter) top(v *value) {
	switch {
	case v.kind == '{' && !authored(v):
		if len(v.vals) == 0 {
			p.b = append(p.b, "done\n"...)
		}
		p.members(v, 0)
	case v.kind == '[':
		p.items(v, 0)
	default:
		p.field("", v, 0)
	}
}

// authored says whether v is a text of others: {"text", "untrusted", "source", "author"}.
func authored(v *value) bool {
	u := v.member("untrusted")
	return u != nil && u.kind == 't' && v.member("text") != nil
}

func (p *painter) members(v *value, depth int) {
	for i, k := range v.keys {
		if p.full() {
			return
		}
		p.indent(depth)
		p.field(k, v.vals[i], depth)
	}
}

func (p *painter) items(v *value, depth int) {
	for _, m := range v.vals {
		if p.full() {
			return
		}
		p.indent(depth)
		p.b = append(p.b, "- "...)
		if m.kind == '{' && !authored(m) && len(m.vals) > 0 {
			p.field(m.keys[0], m.vals[0], depth+1)
			p.members(&value{kind: '{', keys: m.keys[1:], vals: m.vals[1:]}, depth+1)
			continue
		}
		p.field("", m, depth+1)
	}
}

func (p *painter) indent(depth int) {
	for range depth {
		p.b = append(p.b, "  "...)
	}
}

// field writes "key: value" and a line feed; the cursor is behind the indentation.
func (p *painter) field(key string, v *value, depth int) {
	p.b = append(p.b, oneLine(key)...)
	mark := ""
	if v.kind == '{' && authored(v) {
		mark = "untrusted"
		if s := v.str("author"); s != "" {
			mark += ", by " + inBrackets(s)
		}
		if s := v.str("source"); s != "" {
			mark += ", " + inBrackets(s)
		}
		p.b = append(p.b, " ["...)
		p.b = append(p.b, mark...)
		p.b = append(p.b, ']')
		v = v.member("text")
	}
	if key != "" || mark != "" {
		p.b = append(p.b, ':')
	}
	switch {
	case v.kind == '{' && len(v.vals) > 0:
		p.b = append(p.b, '\n')
		p.members(v, depth+1)
	case v.kind == '[' && len(v.vals) > 0:
		p.b = append(p.b, '\n')
		p.items(v, depth+1)
	case v.kind == '"':
		p.str(text(v.raw), key != "" || mark != "", depth)
	case v.kind == '{' || v.kind == '[':
		p.b = append(p.b, " none\n"...)
	default:
		if key != "" || mark != "" {
			p.b = append(p.b, ' ')
		}
		p.b = append(append(p.b, v.raw...), '\n')
	}
}

func (p *painter) str(s string, after bool, depth int) {
	if !strings.ContainsAny(s, "\n\r\u0085\u2028\u2029\v\f") {
		if after && s != "" {
			p.b = append(p.b, ' ')
		}
		p.text(s)
		p.b = append(p.b, '\n')
		return
	}
	if after {
		p.b = append(p.b, '\n')
	} else {
		p.b = append(p.b, "|\n"...)
	}
	for rest, more := s, true; more && !p.full(); {
		var l string
		l, rest, more = strings.Cut(rest, "\n")
		if !more && l == "" {
			break
		}
		p.indent(depth + 1)
		p.b = append(p.b, "| "...)
		p.text(strings.TrimSuffix(l, "\r"))
		p.b = append(p.b, '\n')
	}
}

// text writes one line. Characters that end a line for some readers are escaped on a pipe too.
func (p *painter) text(s string) {
	if p.safe || strings.ContainsAny(s, "\r\u0085\u2028\u2029\v\f") {
		p.b = visible(p.b, s)
		return
	}
	p.b = append(p.b, s...)
}

// inBrackets is s as it stands between [ and ]: short, on one line, and without the brackets themselves.
func inBrackets(s string) string {
	if len(s) > 80 {
		s = string(cut([]byte(s), 80)) + "..."
	}
	return oneLine(strings.NewReplacer("[", "(", "]", ")").Replace(s))
}
