// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Problem is one fault of a policy file.
type Problem struct {
	File      string
	Line, Col int // from 1; 0 where the fault is of the file as a whole
	Text      string
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Col, p.Text)
}

// place is where something stands in a file.
type place struct {
	file      string
	line, col int
}

func (p place) problem(format string, a ...any) error {
	return &Problem{p.file, p.line, p.col, fmt.Sprintf(format, a...)}
}

// word is a piece of a key with its place.
type word struct {
	place
	text string
}

// value is a TOML value of the kinds that policy files use.
type value struct {
	place
	kind unstable.Kind
	text string  // String
	num  int64   // Integer
	yes  bool    // Bool
	list []value // Array
}

// item is one key of a file: its whole path, and its value; a table's header has none.
type item struct {
	path []word
	val  *value
}

const (
	maxFile  = 64 << 10 // bytes of one policy file
	maxDepth = 64       // brackets open at once
)

// shallow refuses text that would drive a recursive parser deep. It counts brackets in strings and comments too, so
// it may refuse what would be harmless, never the reverse.
func shallow(file string, b []byte) error {
	if len(b) > maxFile {
		return &Problem{File: file, Text: fmt.Sprintf("%d bytes, at most %d", len(b), maxFile)}
	}
	depth, line := 0, 1
	for _, c := range b {
		switch c {
		case '\n':
			line++
		case '(', '[', '{':
			if depth++; depth > maxDepth {
				return &Problem{file, line, 1, fmt.Sprintf("more than %d open brackets", maxDepth)}
			}
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
	}
	return nil
}

// readTOML lists the keys of a file in their order. It returns none with an error.
func readTOML(file string, b []byte) ([]item, error) {
	if err := shallow(file, b); err != nil {
		return nil, err
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some editors begin a file with it
	// The decoder finds what the parser alone does not: keys that stand twice, tables that are redefined.
	var whole map[string]any
	if err := toml.Unmarshal(b, &whole); err != nil {
		var d *toml.DecodeError
		if errors.As(err, &d) {
			line, col := d.Position()
			return nil, &Problem{file, line, col, strings.TrimPrefix(d.Error(), "toml: ")}
		}
		return nil, &Problem{File: file, Text: err.Error()}
	}
	r := reader{file: file}
	r.p.Reset(b)
	for r.p.NextExpression() {
		e := r.p.Expression()
		switch e.Kind {
		case unstable.Table:
			r.table = r.words(e.Key())
			r.items = append(r.items, item{path: r.table})
		case unstable.KeyValue:
			if err := r.keyValue(r.table, e); err != nil {
				return nil, err
			}
		case unstable.ArrayTable:
			w := r.words(e.Key())
			return nil, w[0].problem("[[%s]]: write one [%s]", w[0].text, w[0].text)
		}
	}
	if err := r.p.Error(); err != nil {
		return nil, &Problem{File: file, Text: err.Error()}
	}
	return r.items, nil
}

type reader struct {
	p     unstable.Parser
	file  string
	table []word
	items []item
}

func (r *reader) at(n *unstable.Node) place {
	s := r.p.Shape(n.Raw).Start
	return place{r.file, s.Line, s.Column}
}

func (r *reader) words(it unstable.Iterator) []word {
	var out []word
	for it.Next() {
		out = append(out, word{r.at(it.Node()), string(it.Node().Data)})
	}
	return out
}

func (r *reader) keyValue(table []word, e *unstable.Node) error {
	path := append(append([]word{}, table...), r.words(e.Key())...)
	if v := e.Value(); v.Kind == unstable.InlineTable {
		r.items = append(r.items, item{path: path})
		for it := v.Children(); it.Next(); {
			if err := r.keyValue(path, it.Node()); err != nil {
				return err
			}
		}
		return nil
	}
	v, err := r.value(path[len(path)-1].place, e.Value())
	if err != nil {
		return err
	}
	r.items = append(r.items, item{path, v})
	return nil
}

func (r *reader) value(at place, n *unstable.Node) (*value, error) {
	if n.Raw.Length > 0 {
		at = r.at(n)
	}
	v := &value{place: at, kind: n.Kind}
	switch n.Kind {
	case unstable.String:
		v.text = string(n.Data)
	case unstable.Bool:
		v.yes = string(n.Data) == "true"
	case unstable.Integer:
		var err error
		if v.num, err = strconv.ParseInt(strings.ReplaceAll(string(n.Data), "_", ""), 0, 64); err != nil {
			return nil, at.problem("%q is no whole number", n.Data)
		}
	case unstable.Array:
		for it := n.Children(); it.Next(); {
			e, err := r.value(at, it.Node())
			if err != nil {
				return nil, err
			}
			v.list = append(v.list, *e)
		}
	default:
		return nil, at.problem("a %s has no place here", strings.ToLower(n.Kind.String()))
	}
	return v, nil
}

// The kinds below say what was wanted when the value is of another.

func (v *value) wantText() (string, error) {
	if v == nil || v.kind != unstable.String {
		return "", v.wrong("text in quotes")
	}
	return v.text, nil
}

func (v *value) wantBool() (bool, error) {
	if v == nil || v.kind != unstable.Bool {
		return false, v.wrong("true or false")
	}
	return v.yes, nil
}

// wantNumber takes a whole number from 0 to most.
func (v *value) wantNumber(most int64) (int64, error) {
	if v == nil || v.kind != unstable.Integer || v.num < 0 || v.num > most {
		return 0, v.wrong(fmt.Sprintf("a whole number from 0 to %d", most))
	}
	return v.num, nil
}

// eachText hands fn the texts of a list of text, with their places.
func (v *value) eachText(fn func(word) error) error {
	if v == nil || v.kind != unstable.Array {
		return v.wrong("a list of text, as [\"a\", \"b\"]")
	}
	for i := range v.list {
		s, err := v.list[i].wantText()
		if err == nil {
			err = fn(word{v.list[i].place, s})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *value) wrong(want string) error {
	if v == nil {
		return errors.New("wants " + want) // the caller knows the place
	}
	return v.problem("wants %s", want)
}
