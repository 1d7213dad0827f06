// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

// Bounds of a GraphQL document.
const (
	maxDocument = 1 << 20 // bytes
	maxTokens   = 50_000
)

// graphqlKeys are what a request by the specification of GraphQL over HTTP has. Other ones (id, documentId, hash) have servers
// run a document that they hold already, and may come before query.
var graphqlKeys = []string{"query", "variables", "operationName", "extensions"}

// graphql reads a body: one request or a batch.
func graphql(body []byte) []string {
	var does []string
	if !each(body, func(d *jsontext.Decoder) bool {
		op := graphqlOne(d)
		does = append(does, "graphql "+op)
		return op != ""
	}) {
		return unreadable()
	}
	return does
}

// graphqlOne reads one request: the kind of the operation that runs, or "".
func graphqlOne(d *jsontext.Decoder) string {
	document, name := "", ""
	ok := object(d, graphqlKeys, func(key string) (ok bool) {
		switch key {
		case "query":
			document, ok = text(d, false)
			return ok
		case "operationName":
			name, ok = text(d, true)
			return ok
		case "variables":
			return skip(d)
		case "extensions":
			if d.PeekKind() != '{' {
				t, err := d.ReadToken()
				return err == nil && t.Kind() == 'n'
			}
			return object(d, []string{"persistedQuery"}, func(key string) bool { return key != "persistedQuery" && skip(d) })
		}
		return false
	})
	if !ok {
		return ""
	}
	return operation(document, name)
}

// ReadQuery reads GraphQL by the query of a GET.
func ReadQuery(query string) []string {
	got := map[string]string{}
	for _, pair := range strings.Split(query, "&") {
		k, v, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(k)
		if err != nil {
			return unreadable()
		}
		value, err := url.QueryUnescape(v)
		if err != nil || strings.Contains(pair, ";") {
			return unreadable() // some servers part parameters there
		}
		bare, _, _ := strings.Cut(strings.ToLower(name), "[") // query[]=… and Query=… are query to some
		for _, key := range append(stored(), graphqlKeys...) {
			if bare != strings.ToLower(key) {
				continue
			}
			if _, twice := got[key]; twice || name != key || slices.Contains(stored(), key) {
				return unreadable()
			}
			got[key] = value
		}
	}
	if strings.Contains(got["extensions"], "ersisted") {
		return unreadable()
	}
	op := operation(got["query"], got["operationName"])
	if op == "" {
		return unreadable()
	}
	return []string{"graphql " + op}
}

// stored are parameters that name a document which the server holds.
func stored() []string {
	return []string{"id", "queryId", "query_id", "documentId", "document_id", "doc_id", "hash", "sha256Hash"}
}

// graphqlIn says that the query of a POST has what servers may take instead of its body.
func graphqlIn(query string) bool {
	for _, pair := range strings.Split(query, "&") {
		k, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(k)
		if err != nil {
			return true
		}
		bare, _, _ := strings.Cut(strings.ToLower(name), "[")
		for _, key := range append(stored(), graphqlKeys...) {
			if bare == strings.ToLower(key) {
				return true
			}
		}
	}
	return false
}

// operation is the kind of the operation of a document that runs under that name, or "". Of a document with several one is
// picked by name only.
func operation(document, name string) string {
	if len(document) > maxDocument || !plainDocument(document) {
		return ""
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: document}, maxTokens)
	if err != nil || doc == nil || len(doc.Operations) == 0 {
		return ""
	}
	var run *ast.OperationDefinition
	for i, op := range doc.Operations {
		if len(doc.Operations) > 1 && op.Name == "" {
			return "" // one without a name stands alone
		}
		for _, o := range doc.Operations[:i] {
			if o.Name == op.Name {
				return ""
			}
		}
		if op.Name == name || name == "" && len(doc.Operations) == 1 {
			run = op
		}
	}
	if run == nil {
		return ""
	}
	switch run.Operation {
	case ast.Query, ast.Mutation, ast.Subscription:
		return string(run.Operation)
	}
	return ""
}

// plainDocument refuses what lexers of GraphQL read differently, by which code for one is a comment or string for another:
// line ends other than LF and CRLF, four quotes in a row, marks of byte order, and control bytes.
func plainDocument(s string) bool {
	if !utf8.ValidString(s) || strings.Contains(s, `""""`) || strings.Contains(strings.ReplaceAll(s, "\r\n", "\n"), "\r") {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		switch r {
		case '\t', '\n', '\r':
			return false
		case 0x7f, 0x85, 0x2028, 0x2029, 0xfeff:
			return true
		}
		return r < ' '
	})
}
