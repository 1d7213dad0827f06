// SPDX-License-Identifier: Apache-2.0

package github

import (
	"maps"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
)

// object is a JSON object of an answer.
type object = map[string]any

// shape lays what the stand-in knows over a value that has every field the description requires of that answer, so a
// client meets the many fields of the real one. Without a description it is what the stand-in knows.
func (s *Server) shape(m match, status int, known any) any {
	if s.check == nil {
		return known
	}
	route, ok := s.check.route(m)
	if !ok {
		return known
	}
	response := route.Operation.Responses.Status(status)
	if response == nil || response.Value == nil {
		return known
	}
	media := response.Value.Content.Get("application/json")
	if media == nil {
		return known
	}
	schema := media.Schema
	if list, isList := known.([]any); isList {
		schema = choose(schema, "array")
		if schema == nil || schema.Value.Items == nil {
			return known
		}
		out := make([]any, 0, len(list))
		for _, one := range list {
			out = append(out, overlay(fill(schema.Value.Items, 0), one, schema.Value.Items))
		}
		return out
	}
	schema = choose(schema, "object")
	if schema == nil {
		return known
	}
	return overlay(fill(schema, 0), known, schema)
}

// choose finds the alternative of a schema with that type; for objects the first with required fields.
func choose(ref *openapi3.SchemaRef, kind string) *openapi3.SchemaRef {
	if ref == nil || ref.Value == nil {
		return nil
	}
	if ref.Value.Type != nil && ref.Value.Type.Is(kind) || kind == "object" && len(ref.Value.Properties) > 0 {
		return ref
	}
	for _, list := range []openapi3.SchemaRefs{ref.Value.OneOf, ref.Value.AnyOf, ref.Value.AllOf} {
		for _, one := range list {
			if found := choose(one, kind); found != nil {
				return found
			}
		}
	}
	return nil
}

// overlay puts known over filled; lists of known objects are filled in turn.
func overlay(filled, known any, ref *openapi3.SchemaRef) any {
	over, ok := known.(object)
	if !ok {
		return known
	}
	out, ok := filled.(object)
	if !ok {
		out = object{}
	}
	out = maps.Clone(out)
	properties := propertiesOf(ref)
	for name, value := range over {
		schema := properties[name]
		switch value := value.(type) {
		case object:
			var base any
			if schema = choose(schema, "object"); schema != nil {
				base = fill(schema, 0)
			}
			out[name] = overlay(base, value, schema)
		case []any:
			schema = choose(schema, "array")
			list := make([]any, 0, len(value))
			for _, one := range value {
				var base any
				var items *openapi3.SchemaRef
				if schema != nil {
					if items = choose(schema.Value.Items, "object"); items != nil {
						base = fill(items, 0)
					}
				}
				list = append(list, overlay(base, one, items))
			}
			out[name] = list
		default:
			out[name] = value
		}
	}
	return out
}

func propertiesOf(ref *openapi3.SchemaRef) openapi3.Schemas {
	if ref == nil || ref.Value == nil {
		return nil
	}
	out := maps.Clone(ref.Value.Properties)
	for _, list := range []openapi3.SchemaRefs{ref.Value.AllOf, ref.Value.AnyOf, ref.Value.OneOf} {
		for _, one := range list {
			for name, schema := range propertiesOf(one) {
				if out == nil {
					out = openapi3.Schemas{}
				}
				if _, have := out[name]; !have {
					out[name] = schema
				}
			}
		}
	}
	return out
}

// fill makes the smallest value of a schema.
func fill(ref *openapi3.SchemaRef, depth int) any {
	if ref == nil || ref.Value == nil || depth > 12 {
		return nil
	}
	schema := ref.Value
	switch {
	case schema.Nullable && depth > 0:
		return nil
	case len(schema.Enum) > 0:
		return schema.Enum[0]
	case len(schema.AllOf) > 0:
		out := object{}
		for _, one := range schema.AllOf {
			if part, ok := fill(one, depth+1).(object); ok {
				maps.Copy(out, part)
			}
		}
		return out
	case len(schema.OneOf) > 0:
		return fill(schema.OneOf[0], depth+1)
	case len(schema.AnyOf) > 0 && len(schema.Properties) == 0:
		return fill(schema.AnyOf[0], depth+1)
	}
	switch {
	case schema.Type == nil || schema.Type.Is("object"):
		out := object{}
		for _, name := range slices.Sorted(slices.Values(schema.Required)) {
			out[name] = fill(schema.Properties[name], depth+1)
		}
		return out
	case schema.Type.Is("array"):
		return []any{}
	case schema.Type.Is("integer"), schema.Type.Is("number"):
		if schema.Min != nil {
			return *schema.Min
		}
		return 0
	case schema.Type.Is("boolean"):
		return false
	}
	switch schema.Format {
	case "date-time":
		return "2026-01-02T03:04:05Z"
	case "date":
		return "2026-01-02"
	case "uri":
		return "https://api.github.com/"
	case "email":
		return "nobody@example.test"
	case "uuid":
		return "00000000-0000-4000-8000-000000000000"
	}
	return "x"
}
