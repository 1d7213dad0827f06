// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

const openapiFile = "../docs/openapi.json"

// handlers are the functions behind the verbs of the page's API: their types are what the description of it is made of. One that is
// registered and missing here fails.
func handlers(s *Sentinel) []any {
	return []any{s.webLogin, s.webLogout, s.webEnrol, s.pending, s.webShow, s.webBody, s.webEdit, s.webDecide, s.grantsVerb, s.revoke, s.stop,
		s.sessionVerb, s.webHistory, s.watchEvents, s.webPush, s.webSeen, s.webAccounts, s.webSettings, s.webLabels, s.taint, s.webFind}
}

// docs/openapi.json says of the page's API what the code does: its verbs, and what each is asked and answers, field by field. Made
// anew by: go test ./sentinel -run TestTheDescriptionOfTheAPI -update.
func TestTheDescriptionOfTheAPI(t *testing.T) {
	s := new(Sentinel)
	byName := map[string]reflect.Type{}
	for _, h := range handlers(s) {
		name := strings.TrimSuffix(runtime.FuncForPC(reflect.ValueOf(h).Pointer()).Name(), "-fm")
		byName[name[strings.LastIndexByte(name, '.')+1:]] = reflect.TypeOf(h)
	}
	source, err := os.ReadFile("web.go")
	if err != nil {
		t.Fatal(err)
	}
	d := newDescription(t)
	found := regexp.MustCompile(`daemon\.On\("(\w+)", approvals, (\w+)\(s, s\.(\w+)\)\)`).FindAllStringSubmatch(string(source), -1)
	if len(found) == 0 || len(found) != len(s.webVerbs()) {
		t.Fatalf("%d verbs are read in web.go, there are %d", len(found), len(s.webVerbs()))
	}
	for _, m := range found {
		verb, wrapped, handler := m[1], m[2], byName[m[3]]
		if handler == nil {
			t.Errorf("%s is served by %s, which is not among the handlers here", verb, m[3])
			continue
		}
		d.verb(verb, wrapped == "open", handler.In(handler.NumIn()-1).Elem(), handler.Out(0).Elem())
	}
	got := d.text(t)
	if *update {
		if err := os.WriteFile(openapiFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(openapiFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the code does; make it anew: go test ./sentinel -run TestTheDescriptionOfTheAPI -update", openapiFile)
	}
}

type object = map[string]any

// description is an OpenAPI 3.1 document in the making. What it says in words are the comments of package wire.
type description struct {
	t       *testing.T
	words   map[string]string   // by type, and by type and field with a dot between
	values  map[string][]string // of the named kinds of strings
	paths   object
	schemas object
}

func newDescription(t *testing.T) *description {
	d := &description{t: t, words: map[string]string{}, values: map[string][]string{}, paths: object{}, schemas: object{}}
	files, err := filepath.Glob("../internal/wire/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			if g, ok := decl.(*ast.GenDecl); ok {
				d.read(g)
			}
		}
	}
	return d
}

func (d *description) read(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			d.words[s.Name.Name] = said(s.Doc)
			if d.words[s.Name.Name] == "" && len(g.Specs) == 1 {
				d.words[s.Name.Name] = said(g.Doc)
			}
			if st, ok := s.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, n := range f.Names {
						d.words[s.Name.Name+"."+n.Name] = strings.TrimSpace(said(f.Doc) + " " + said(f.Comment))
					}
				}
			}
		case *ast.ValueSpec:
			if kind, ok := s.Type.(*ast.Ident); ok && len(s.Values) == 1 {
				if v, ok := s.Values[0].(*ast.BasicLit); ok && v.Kind == token.STRING {
					d.values[kind.Name] = append(d.values[kind.Name], strings.Trim(v.Value, `"`))
				}
			}
		}
	}
}

func said(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// schema is that of a type. JSON is that of go-json-experiment: bytes and digests are base64.
func (d *description) schema(typ reflect.Type) object {
	switch typ.Kind() {
	case reflect.Pointer:
		return d.schema(typ.Elem())
	case reflect.String:
		if v := d.values[typ.Name()]; typ.PkgPath() != "" && len(v) > 0 {
			return object{"type": "string", "enum": v}
		}
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Slice, reflect.Array:
		if typ.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": d.schema(typ.Elem())}
	case reflect.Struct:
		d.define(typ)
		return object{"$ref": "#/components/schemas/" + typ.Name()}
	}
	d.t.Fatalf("there is no schema for a %s", typ)
	return nil
}

func (d *description) define(typ reflect.Type) {
	if d.schemas[typ.Name()] != nil {
		return
	}
	properties, required := object{}, []string{}
	o := object{"type": "object", "properties": properties}
	d.schemas[typ.Name()] = o
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" {
			d.t.Errorf("%s.%s has no name in JSON", typ.Name(), f.Name)
		}
		s := d.schema(f.Type)
		if w := d.words[typ.Name()+"."+f.Name]; w != "" {
			s["description"] = w
		}
		properties[name] = s
		if !strings.Contains(rest, "omitempty") {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		o["required"] = required
	}
	if w := d.words[typ.Name()]; w != "" {
		o["description"] = w
	}
}

// statuses are HTTP's of the codes; package approvals holds itself to them.
var statuses = map[string][]wire.Code{
	"400": {wire.CodeUsage, wire.CodeBadArgument, wire.CodeWrongDescription, wire.CodeAmbiguousAccount, wire.CodeUnknownConnector,
		wire.CodeUnknownMethod},
	"401": {wire.CodeNoSession},
	"403": {wire.CodeNotAllowed, wire.CodeDenied, wire.CodeStopped},
	"404": {wire.CodeNotFound},
	"409": {wire.CodeConflict, wire.CodeExpired, wire.CodeRevoked, wire.CodeUnknown},
	"413": {wire.CodeTooLarge},
	"429": {wire.CodeTooMany, wire.CodeRateLimited},
	"503": {wire.CodeUnavailable, wire.CodeLocked, wire.CodeFull},
}

// summaries say of each verb what it is for.
var summaries = map[string]string{
	"login": "A session: the first step gives a nonce, the second takes an assertion over it.", "logout": "Ends the session.",
	"enrol":   "A passkey by an invitation: the first step gives a challenge, the second takes the credential.",
	"pending": "What waits for a decision, oldest first.", "show": "One card, and of one that waits the offer to decide on.",
	"body": "A piece of a body of a card.", "edit": "A call, changed before it is approved: first its form, then the offer of what became of it.",
	"decide": "Decides cards by one assertion over all of them.", "grants": "What is allowed ahead.",
	"revoke": "Takes back one thing with what waits or runs by it: a grant, an account's use, a session, or what a cell was allowed.",
	"stop":   "Stops a cell, or all; with resume asks for a card to let it go on.", "session": "Sessions that run; ends one.",
	"history": "The record, entry by entry.", "push": "Has this browser told, or not any more.", "seen": "Of this card no further channel is told that it waits.",
	"accounts": "Accounts and their health.", "settings": "Rules and sites; what narrows is in force at once, what widens becomes a card.",
	"labels": "What each cell has read.", "taint": "What a cell has read; with clear asks for a card to let it count as nothing.", "find": "Searches calls, newest first.",
}

func (d *description) verb(name string, open bool, req, resp reflect.Type) {
	answers := object{"500": object{"$ref": "#/components/responses/Refused"}}
	for status := range statuses {
		answers[status] = object{"$ref": "#/components/responses/Refused"}
	}
	op := object{"operationId": name, "responses": answers}
	if open {
		op["security"] = []object{}
	}
	if name == "events" {
		op["summary"] = "Changes, as server-sent events without a signature: a reason to ask, nothing to show."
		op["parameters"] = []object{{"name": "after", "in": "query", "schema": object{"type": "integer", "format": "int64", "minimum": -1},
			"description": "the last event that is known; -1 begins with what comes next"}}
		answers["200"] = object{"description": "each data is one message, its id the number to go on from",
			"content": object{"text/event-stream": object{"schema": d.schema(resp)}}}
		d.paths["/v1/"+name] = object{"get": op}
		return
	}
	if op["summary"] = summaries[name]; op["summary"] == "" {
		d.t.Errorf("nothing says what %s is for", name)
	}
	op["parameters"] = []object{{"$ref": "#/components/parameters/Nonce"}}
	op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": d.schema(req)}}}
	answers["200"] = object{"description": "the answer, signed", "headers": object{"Doorward-Signature": object{"$ref": "#/components/headers/Signature"}},
		"content": object{"application/json": object{"schema": d.schema(resp)}}}
	d.paths["/v1/"+name] = object{"post": op}
}

func (d *description) text(t *testing.T) []byte {
	t.Helper()
	refused, decision := d.schema(reflect.TypeFor[wire.Error]()), d.schema(reflect.TypeFor[wire.Decision]())
	_ = decision // is named by its text alone
	codes := object{}
	for status, list := range statuses {
		slices.Sort(list)
		codes[status] = list
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{"title": "Doorward: the page's API", "version": "1", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "What a person decides by. docs/protocol.md says who may ask, what is signed over which bytes, and has test vectors. " +
				"Requests are refused that name a field which is not here, or one twice. Times are seconds."},
		"servers":  []object{{"url": "https://{host}:{api}", "variables": object{"host": object{"default": "localhost"}, "api": object{"default": "8441"}}}},
		"security": []object{{"session": []string{}}},
		"paths":    d.paths,
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{"session": object{"type": "apiKey", "in": "cookie", "name": "__Host-doorward",
				"description": "Set by login; doorward without TLS. It shows and narrows, and decides nothing. Origin has to be the page's, too."}},
			"parameters": object{"Nonce": object{"name": "Doorward-Nonce", "in": "header", "required": true,
				"schema":      object{"type": "string", "contentEncoding": "base64"},
				"description": "32 random bytes of this request alone; the answer's signature is over them"}},
			"headers": object{"Signature": object{"schema": object{"type": "string", "contentEncoding": "base64"}, "required": true,
				"description": "ECDSA on P-256 with SHA-256 by the card key, r and s: 64 bytes. An answer that it does not cover is nobody's."}},
			"responses": object{"Refused": object{"description": "a refusal; one without a signature is not sentinel's, and only its status is to be gone by",
				"headers": object{"Doorward-Signature": object{"schema": object{"type": "string", "contentEncoding": "base64"}}},
				"content": object{"application/json": object{"schema": refused}}}},
		},
		"x-codes": codes,
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(doc); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
