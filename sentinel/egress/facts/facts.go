// SPDX-License-Identifier: Apache-2.0

// Package facts reads what a request of a cell does, where method and path do not say it: GraphQL, JSON-RPC, git, and what is
// asked of a model's provider. It decides nothing; sentinel matches what it says to routes (package manifest).
//
// The cell writes the bytes, and wants them read here as one thing and by the server as another. So what two readers are known
// to take differently (a key twice, or in another case; a string that ends in four quotes; a second place for the same thing)
// is wire.Unreadable, as is all that is not understood.
package facts

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/wire"
)

// Bounds of what is read.
const (
	maxBatch = 100 // operations of one body
	maxDepth = 64  // nesting of what is looked into
	maxName  = 256 // bytes of an operation's name
)

func unreadable() []string { return []string{wire.Unreadable} }

// Path is the one form of a request's path, as manifest.Path has it.
func Path(raw string) (canonical string, err error) { return manifest.Path(raw) }

// Override says that a request with a header of that name may have another method in some servers. It must not leave.
func Override(header string) bool { return manifest.Override(header) }

// Asked is a request whose body was read whole.
type Asked struct {
	Method string
	Path   string // canonical
	Query  string // as written
	Media  string // its Content-Type, as written
	Body   []byte // at most wire.MaxRead bytes, without Content-Encoding
}

// Of reads what a request does as the kind that wire.Reading.As names. A request that does not come in the kind's way is
// wire.Unreadable.
func Of(as string, q *Asked) (does []string, model *wire.ModelUse) {
	if len(q.Body) > wire.MaxRead {
		return unreadable(), nil
	}
	switch {
	case as == wire.ReadGraphQL && (q.Method == http.MethodGet || q.Method == http.MethodHead):
		if len(q.Body) > 0 {
			return unreadable(), nil
		}
		return ReadQuery(q.Query), nil
	case q.Method != http.MethodPost || as == wire.ReadGraphQL && graphqlIn(q.Query):
		return unreadable(), nil
	}
	does, model = Read(as, q.Media, q.Body)
	if as == wire.ReadModel && model != nil && !modelOfPath(q.Path, model) {
		return unreadable(), nil
	}
	return does, model
}

// Read reads a body alone. Where more of the request is at hand, Of is to be asked: a query may say otherwise than the body,
// and Google's models stand in the path.
func Read(as, media string, body []byte) (does []string, model *wire.ModelUse) {
	if len(body) > wire.MaxRead || !isJSON(media) {
		return unreadable(), nil
	}
	switch as {
	case wire.ReadGraphQL:
		return graphql(body), nil
	case wire.ReadJSONRPC:
		return jsonrpc(body), nil
	case wire.ReadModel:
		if u := readModel(body); u != nil {
			return nil, u
		}
	}
	return unreadable(), nil
}

// isJSON: application/json, in UTF-8, and nothing else about it.
func isJSON(media string) bool {
	kind, param, has := strings.Cut(media, ";")
	if has {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if !strings.EqualFold(name, "charset") || !strings.EqualFold(strings.Trim(value, `"`), "utf-8") {
			return false
		}
	}
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}

// decoder reads JSON strictly: UTF-8, no name twice in any object, no lone half of a surrogate pair.
func decoder(b []byte) *jsontext.Decoder { return jsontext.NewDecoder(bytes.NewBuffer(b)) }

// whole says that nothing follows.
func whole(d *jsontext.Decoder) bool {
	_, err := d.ReadToken()
	return err == io.EOF
}

// each hands f every object of a body that is one object, or a list of at most maxBatch. f reads the object to its end.
func each(body []byte, f func(*jsontext.Decoder) bool) bool {
	d := decoder(body)
	switch d.PeekKind() {
	case '{':
		return f(d) && whole(d)
	case '[':
		if _, err := d.ReadToken(); err != nil {
			return false
		}
		n := 0
		for d.PeekKind() == '{' {
			if n++; n > maxBatch || !f(d) {
				return false
			}
		}
		t, err := d.ReadToken()
		return err == nil && t.Kind() == ']' && n > 0 && whole(d)
	}
	return false
}

// object reads one object, handing value each name; value reads what belongs to it. Names that are one of known in another
// case of letters end it: Go's own decoder, and others', take them for that.
func object(d *jsontext.Decoder, known []string, value func(name string) bool) bool {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return false
	}
	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return false
		}
		name := t.String()
		for _, k := range known {
			if k != name && strings.EqualFold(k, name) {
				return false
			}
		}
		if !value(name) {
			return false
		}
	}
	_, err := d.ReadToken()
	return err == nil
}

// list reads one array, of which value reads each element.
func list(d *jsontext.Decoder, value func() bool) bool {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return false
	}
	for d.PeekKind() != ']' {
		if d.PeekKind() == 0 || !value() {
			return false
		}
	}
	_, err := d.ReadToken()
	return err == nil
}

// text reads a string; null is "", and not ok without orNull.
func text(d *jsontext.Decoder, orNull bool) (s string, ok bool) {
	t, err := d.ReadToken()
	switch {
	case err != nil:
		return "", false
	case t.Kind() == '"':
		return t.String(), true
	}
	return "", orNull && t.Kind() == 'n'
}

func skip(d *jsontext.Decoder) bool { return d.SkipValue() == nil }
