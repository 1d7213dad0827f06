// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-json-experiment/json/jsontext"
)

// A checker holds requests and answers to GitHub's description.
type checker struct{ doc *openapi3.T }

func newChecker(path string) (*checker, error) {
	doc, err := openapi3.NewLoader().LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("load GitHub's description: %w", err)
	}
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			if operation.RequestBody == nil {
				continue
			}
			for _, media := range operation.RequestBody.Value.Content {
				closeObjects(media.Schema, map[*openapi3.Schema]bool{})
			}
		}
	}
	return &checker{doc: doc}, nil
}

// closeObjects makes every object of a body's schema refuse fields that it does not list.
func closeObjects(ref *openapi3.SchemaRef, seen map[*openapi3.Schema]bool) {
	if ref == nil || ref.Value == nil || seen[ref.Value] {
		return
	}
	schema := ref.Value
	seen[schema] = true
	if len(schema.Properties) > 0 && schema.AdditionalProperties.Has == nil &&
		schema.AdditionalProperties.Schema == nil {
		no := false
		schema.AdditionalProperties.Has = &no
	}
	for _, property := range schema.Properties {
		closeObjects(property, seen)
	}
	closeObjects(schema.Items, seen)
	closeObjects(schema.AdditionalProperties.Schema, seen)
	for _, list := range []openapi3.SchemaRefs{schema.OneOf, schema.AnyOf, schema.AllOf} {
		for _, one := range list {
			closeObjects(one, seen)
		}
	}
}

func (c *checker) route(m match) (*routers.Route, bool) {
	item := c.doc.Paths.Value(m.route.path)
	if item == nil {
		return nil, false
	}
	operation := item.GetOperation(m.route.verb)
	if operation == nil {
		return nil, false
	}
	return &routers.Route{
		Spec: c.doc, Server: c.doc.Servers[0], Path: m.route.path, PathItem: item, Method: m.route.verb,
		Operation: operation,
	}, true
}

// headers a client of GitHub may send. Whatever else arrives is a violation: it would tell GitHub something that no
// call said, or (a method override) make the request mean another.
var allowedHeaders = []string{
	"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "If-None-Match", "User-Agent",
	"X-Github-Api-Version",
}

// accepts are the media types that GitHub documents for the operations in use.
var accepts = []string{
	"application/vnd.github+json", "application/vnd.github.raw+json", "application/vnd.github.object+json",
	"application/vnd.github.diff", "application/vnd.github.text-match+json", "application/json",
}

// request returns what a request has against the description.
func (c *checker) request(r *http.Request, m match, body []byte) []string {
	var out []string
	complain := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	for name, values := range r.Header {
		if !slices.Contains(allowedHeaders, name) {
			complain("header %s is not one that GitHub reads", name)
		}
		if len(values) != 1 {
			complain("header %s came %d times", name, len(values))
		}
	}
	if r.UserAgent() == "" {
		complain("header User-Agent is required")
	}
	if accept := r.Header.Get("Accept"); !slices.Contains(accepts, accept) {
		complain("Accept %q is not a documented media type", accept)
	}
	if version := r.Header.Get("X-Github-Api-Version"); version != "2022-11-28" && version != "2026-03-10" {
		complain("X-GitHub-Api-Version %q is no version", version)
	}
	route, ok := c.route(m)
	if !ok {
		complain("operation %s %s is not described", m.route.verb, m.route.path)
		return out
	}
	out = append(out, queryFaults(r, route.Operation, route.PathItem)...)
	out = append(out, bodyFaults(r, route.Operation, body)...)

	// The filter consumes a body; it gets its own copy.
	copied := r.Clone(context.Background())
	copied.Body = io.NopCloser(bytes.NewReader(body))
	err := openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
		Request: copied, PathParams: m.params, QueryParams: r.URL.Query(), Route: route,
		Options: &openapi3filter.Options{
			MultiError: true, SkipSettingDefaults: true, RejectWhenRequestBodyNotSpecified: len(body) > 0,
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		},
	})
	if err != nil {
		complain("%s", oneLine(err))
	}
	return out
}

func queryFaults(r *http.Request, operation *openapi3.Operation, item *openapi3.PathItem) []string {
	var out []string
	known := map[string]bool{}
	for _, list := range []openapi3.Parameters{item.Parameters, operation.Parameters} {
		for _, parameter := range list {
			if parameter.Value.In == openapi3.ParameterInQuery {
				known[parameter.Value.Name] = true
			}
		}
	}
	for name, values := range r.URL.Query() {
		if !known[name] {
			out = append(out, fmt.Sprintf("query parameter %q is not described", name))
		}
		if len(values) != 1 {
			out = append(out, fmt.Sprintf("query parameter %q came %d times", name, len(values)))
		}
		if name == "per_page" {
			if n, err := strconv.Atoi(values[0]); err != nil || n < 1 || n > 100 {
				out = append(out, fmt.Sprintf("per_page %q is not between 1 and 100", values[0]))
			}
		}
	}
	return out
}

func bodyFaults(r *http.Request, operation *openapi3.Operation, body []byte) []string {
	if len(body) == 0 {
		return nil
	}
	if operation.RequestBody == nil {
		return []string{"a body came that is not described"}
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return []string{fmt.Sprintf("Content-Type %q is not application/json", r.Header.Get("Content-Type"))}
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return []string{fmt.Sprintf("charset %q of a JSON body", charset)}
	}
	if !jsontext.Value(body).IsValid() { // also refuses a name that comes twice
		return []string{"the body is not one valid JSON value with each name once"}
	}
	return nil
}

// answer returns what an answer has against the description.
func (c *checker) answer(r *http.Request, m match, status int, header http.Header, body []byte) error {
	route, ok := c.route(m)
	if !ok {
		return errors.New("operation is not described")
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: r, PathParams: m.params, QueryParams: r.URL.Query(), Route: route,
		},
		Status: status, Header: header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
}

// oneLine keeps the first lines of an error, without the schema that the library prints after them.
func oneLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\nSchema:")
	return strings.Join(strings.Fields(text), " ")
}
