// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxNest is how deep a JSON answer may nest.
const maxNest = 64

// value is one JSON value. Strings and scalars keep their text as it came.
type value struct {
	kind byte   // one of { [ " 0 t f n
	raw  []byte // the text; nil where a member was added
	keys []string
	vals []*value // of an object, in the order of keys, or of an array
}

// parse reads b, one JSON value of RFC 8259 and nothing else, in UTF-8. Keys that stand twice are refused: two readers
// could read two things.
func parse(b []byte) (*value, bool) {
	if !utf8.Valid(b) {
		return nil, false
	}
	p := reader{b: b}
	v := p.value(0)
	p.space()
	if v == nil || p.i != len(b) {
		return nil, false
	}
	return v, true
}

type reader struct {
	b []byte
	i int
}

func (p *reader) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

// next says whether c stands here, and goes past it.
func (p *reader) next(c byte) bool {
	p.space()
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

// value reads one value, or returns nil.
func (p *reader) value(depth int) *value {
	p.space()
	if p.i == len(p.b) || depth > maxNest {
		return nil
	}
	start := p.i
	v := &value{kind: p.b[p.i]}
	ok := false
	switch v.kind {
	case '{':
		ok = p.object(v, depth)
	case '[':
		ok = p.array(v, depth)
	case '"':
		_, ok = p.str()
	case 't':
		ok = p.word("true")
	case 'f':
		ok = p.word("false")
	case 'n':
		ok = p.word("null")
	default:
		v.kind = '0'
		ok = p.number()
	}
	if !ok {
		return nil
	}
	v.raw = p.b[start:p.i]
	return v
}

func (p *reader) word(w string) bool {
	if !strings.HasPrefix(string(p.b[p.i:min(len(p.b), p.i+len(w))]), w) {
		return false
	}
	p.i += len(w)
	return true
}

func (p *reader) digits() bool {
	from := p.i
	for p.i < len(p.b) && p.b[p.i] >= '0' && p.b[p.i] <= '9' {
		p.i++
	}
	return p.i > from
}

func (p *reader) number() bool {
	at := func(cs string) bool {
		if p.i < len(p.b) && strings.IndexByte(cs, p.b[p.i]) >= 0 {
			p.i++
			return true
		}
		return false
	}
	at("-")
	if at("0") {
		// no digit may follow
	} else if !p.digits() {
		return false
	}
	if at(".") && !p.digits() {
		return false
	}
	if at("eE") {
		at("+-")
		return p.digits()
	}
	return true
}

// str goes past a string and returns its raw text with the quotes.
func (p *reader) str() ([]byte, bool) {
	from := p.i
	p.i++
	for p.i < len(p.b) {
		switch c := p.b[p.i]; {
		case c == '"':
			p.i++
			return p.b[from:p.i], true
		case c < 0x20:
			return nil, false
		case c == '\\':
			p.i++
			if p.i == len(p.b) {
				return nil, false
			}
			switch e := p.b[p.i]; {
			case e == 'u':
				if p.i+4 >= len(p.b) {
					return nil, false
				}
				if _, err := strconv.ParseUint(string(p.b[p.i+1:p.i+5]), 16, 16); err != nil {
					return nil, false
				}
				p.i += 5
			case strings.IndexByte(`"\/bfnrt`, e) >= 0:
				p.i++
			default:
				return nil, false
			}
		default:
			p.i++
		}
	}
	return nil, false
}

func (p *reader) object(v *value, depth int) bool {
	p.i++
	if p.next('}') {
		return true
	}
	var seen map[string]bool
	for {
		p.space()
		if p.i == len(p.b) || p.b[p.i] != '"' {
			return false
		}
		raw, ok := p.str()
		if !ok || !p.next(':') {
			return false
		}
		k := text(raw)
		if len(v.keys) < 8 {
			if v.member(k) != nil {
				return false
			}
		} else {
			if seen == nil {
				seen = make(map[string]bool)
				for _, k := range v.keys {
					seen[k] = true
				}
			}
			if seen[k] {
				return false
			}
			seen[k] = true
		}
		m := p.value(depth + 1)
		if m == nil {
			return false
		}
		v.keys, v.vals = append(v.keys, k), append(v.vals, m)
		if p.next('}') {
			return true
		}
		if !p.next(',') {
			return false
		}
	}
}

func (p *reader) array(v *value, depth int) bool {
	p.i++
	if p.next(']') {
		return true
	}
	for {
		m := p.value(depth + 1)
		if m == nil {
			return false
		}
		v.vals = append(v.vals, m)
		if p.next(']') {
			return true
		}
		if !p.next(',') {
			return false
		}
	}
}

// text is what a valid JSON string says. Lone surrogates become U+FFFD.
func text(raw []byte) string {
	raw = raw[1 : len(raw)-1]
	at := bytes.IndexByte(raw, '\\')
	if at < 0 {
		return string(raw)
	}
	b := append(make([]byte, 0, len(raw)), raw[:at]...)
	for i := at; i < len(raw); {
		if raw[i] != '\\' {
			b = append(b, raw[i])
			i++
			continue
		}
		switch c := raw[i+1]; c {
		case 'u':
			r := unit(raw[i+2:])
			i += 6
			if r >= 0xd800 && r < 0xdc00 && len(raw)-i >= 6 && raw[i] == '\\' && raw[i+1] == 'u' {
				if lo := unit(raw[i+2:]); lo >= 0xdc00 && lo < 0xe000 {
					r = 0x10000 + (r-0xd800)<<10 + lo - 0xdc00
					i += 6
				}
			}
			b = utf8.AppendRune(b, r) // a lone surrogate is appended as U+FFFD
			continue
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		default:
			b = append(b, c)
		}
		i += 2
	}
	return string(b)
}

func unit(hex []byte) rune {
	n, _ := strconv.ParseUint(string(hex[:4]), 16, 16) // str has checked it
	return rune(n)
}

// member is the value of key k, or nil.
func (v *value) member(k string) *value {
	if v == nil || v.kind != '{' {
		return nil
	}
	for i := range v.keys {
		if v.keys[i] == k {
			return v.vals[i]
		}
	}
	return nil
}

// str is the text of the string member k, or "".
func (v *value) str(k string) string {
	if m := v.member(k); m != nil && m.kind == '"' {
		return text(m.raw)
	}
	return ""
}

// put adds a string member to an object that has none of that name; an empty one is not added.
func (v *value) put(k, s string) {
	if s == "" || v.kind != '{' || v.member(k) != nil {
		return
	}
	v.keys, v.vals = append(v.keys, k), append(v.vals, &value{kind: '"', raw: jsonString(nil, s, false)})
	v.raw = nil
}

// append appends v as JSON.
func (v *value) append(b []byte) []byte {
	if v.raw != nil {
		return append(b, v.raw...)
	}
	b = append(b, v.kind)
	for i, m := range v.vals {
		if i > 0 {
			b = append(b, ',')
		}
		if v.kind == '{' {
			b = append(jsonString(b, v.keys[i], false), ':')
		}
		b = m.append(b)
	}
	if v.kind == '{' {
		return append(b, '}')
	}
	return append(b, ']')
}

// choice is v with only the fields and as many items as were asked for. Where v has items, fields are theirs.
func choice(v *value, o *options) *value {
	list := v
	if v.kind == '{' {
		if list = v.member("items"); list == nil || list.kind != '[' {
			if len(o.fields) == 0 {
				return v
			}
			return pick(v, o.fields)
		}
	}
	if list.kind != '[' {
		return v
	}
	out := &value{kind: '['}
	for i, m := range list.vals {
		if o.limit > 0 && i == o.limit {
			break
		}
		if len(o.fields) > 0 {
			m = pick(m, o.fields)
		}
		out.vals = append(out.vals, m)
	}
	if v.kind == '[' {
		return out
	}
	whole := &value{kind: '{'}
	for i, k := range v.keys {
		m := v.vals[i]
		if k == "items" {
			m = out
		} else if len(o.fields) > 0 {
			continue
		}
		whole.keys, whole.vals = append(whole.keys, k), append(whole.vals, m)
	}
	return whole
}

// pick is v with the dotted fields only, in their order; a list on the way is gone through. An absent field is absent.
func pick(v *value, fields []string) *value {
	out := &value{kind: '{'}
	for _, f := range fields {
		if m := reach(v, f); m != nil {
			out.keys, out.vals = append(out.keys, f), append(out.vals, m)
		}
	}
	return out
}

func reach(v *value, path string) *value {
	if v.kind == '[' {
		out := &value{kind: '['}
		for _, m := range v.vals {
			if r := reach(m, path); r != nil {
				out.vals = append(out.vals, r)
			}
		}
		return out
	}
	if m := v.member(path); m != nil {
		return m
	}
	head, tail, more := strings.Cut(path, ".")
	m := v.member(head)
	if m == nil || !more {
		return m
	}
	return reach(m, tail)
}
