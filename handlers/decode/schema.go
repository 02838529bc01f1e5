package decode

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/forgerun/forgerun/handlers/docs"
)

// Schemas are the schemas of an OpenAPI document, which bodies must satisfy.
type Schemas struct {
	load     func() *Schemas // itself, after it has read the document
	all      map[string]any  // by name
	compiled sync.Map        // *jsonschema.Schema by name
	mu       sync.Mutex      // guards compiler
	compiler *jsonschema.Compiler
}

// public are the schemas of the client API.
var public = NewSchemas(func() []byte { return docs.OpenAPI })

const schemasAt = "file:///openapi.json#/components/schemas/"

// NewSchemas returns the schemas of a document, which is read when a schema is needed first. Documents that are not valid
// panic then: they are embedded.
func NewSchemas(document func() []byte) *Schemas {
	s := &Schemas{}
	s.load = sync.OnceValue(func() *Schemas {
		s.parse(docs.AsJSON(document()))
		return s
	})
	return s
}

func (s *Schemas) parse(document []byte) {
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		panic(err)
	}
	s.all, _ = get(get(root, "components"), "schemas").(map[string]any)
	s.compiler = jsonschema.NewCompiler()
	for _, schema := range s.all {
		s.combine(schema)
	}
	s.amend()
	for name, schema := range s.all {
		s.all[name] = s.simplify(schema)
	}
	s.compiler.AssertFormat()
	s.compiler.UseRegexpEngine(compilePattern)
	for name, check := range formats {
		s.compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(v any) error {
			if text, ok := v.(string); !ok || check(text) == "" {
				return nil
			}
			return errors.New(check(v.(string)))
		}})
	}
	at, _, _ := strings.Cut(schemasAt, "#")
	if err := s.compiler.AddResource(at, root); err != nil {
		panic(err)
	}
}

// get returns a member of a JSON object, nil if there is none.
func get(of any, name string) any {
	object, _ := of.(map[string]any)
	return object[name]
}

// schema returns a compiled schema.
func (s *Schemas) schema(name string) *jsonschema.Schema {
	if c, ok := s.compiled.Load(name); ok {
		return c.(*jsonschema.Schema)
	}
	s.load()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.compiler.MustCompile(schemasAt + name)
	s.compiled.Store(name, c)
	return c
}

// combine makes one object schema of the parts of a composed one, as the generator of types does. Validation is faster then,
// and its findings say which member is wrong and not which part.
func (s *Schemas) combine(schema any) {
	of, ok := schema.(map[string]any)
	keyword := "allOf"
	if !ok || of["unevaluatedProperties"] != false {
		if keyword = "oneOf"; !ok || !isObjects(of[keyword]) {
			return
		}
	}
	properties, required := map[string]any{}, []any{}
	for _, part := range of[keyword].([]any) {
		if ref, ok := get(part, "$ref").(string); ok {
			part = s.referred(ref)
		}
		for name, property := range get(part, "properties").(map[string]any) {
			if value := get(property, "const"); value != nil { // the members' owner tells which belong together
				values, _ := get(properties[name], "enum").([]any)
				property = map[string]any{"type": "string", "enum": append(values, value)}
			}
			properties[name] = property
		}
		if more, ok := get(part, "required").([]any); ok && keyword == "allOf" {
			required = append(required, more...)
		}
	}
	if keyword == "oneOf" { // null stands for a member of another form
		for name, property := range properties {
			properties[name] = map[string]any{"oneOf": []any{property, map[string]any{"type": "null"}}}
		}
	}
	delete(of, keyword)
	delete(of, "unevaluatedProperties")
	maps.Copy(of, map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

// isObjects reports whether all alternatives are objects.
func isObjects(alternatives any) bool {
	all, ok := alternatives.([]any)
	return ok && !slices.ContainsFunc(all, func(of any) bool { return get(of, "type") != "object" })
}

// amend changes what only Go can check, or checks otherwise.
func (s *Schemas) amend() {
	for at, change := range amended {
		name, member, ok := strings.Cut(at, ".")
		properties, _ := get(s.all[name], "properties").(map[string]any)
		if !ok {
			properties, member = s.all, name
		}
		if s.all[name] == nil {
			continue // it is in the other document
		}
		of, _ := properties[member].(map[string]any)
		of = maps.Clone(of)
		if of == nil {
			of = map[string]any{}
		}
		maps.Copy(of, change)
		maps.DeleteFunc(of, func(_ string, value any) bool { return value == nil })
		properties[member] = of
	}
}

// simplify puts the schemas of texts in the place of references to them, with null as one of their types: the fewer schemas a
// value has, the faster it is validated. A format says all that a text must satisfy.
func (s *Schemas) simplify(schema any) any {
	switch of := schema.(type) {
	case []any:
		of = slices.Clone(of) // combined schemas share parts
		for i, part := range of {
			of[i] = s.simplify(part)
		}
		return of
	case map[string]any:
		if ref, ok := of["$ref"].(string); ok {
			if target := s.referred(ref); strings.Contains(fmt.Sprint(target["type"]), "string") {
				return s.simplify(target)
			}
			return of
		}
		of = maps.Clone(of)
		for name, part := range of {
			if name != "enum" {
				of[name] = s.simplify(part)
			}
		}
		for _, keyword := range []string{"allOf", "oneOf", "anyOf"} {
			of = alternatives(of, keyword)
		}
		if name, ok := of["format"].(string); ok && formats[name] != nil {
			for _, keyword := range []string{"pattern", "minLength", "maxLength"} {
				delete(of, keyword)
			}
		}
		return of
	}
	return schema
}

// alternatives puts the only alternative to null in the place of both.
func alternatives(of map[string]any, keyword string) map[string]any {
	all, _ := of[keyword].([]any)
	parts := slices.DeleteFunc(slices.Clone(all), isNull)
	isNullable := len(parts) < len(all)
	if !isNullable && (keyword != "allOf" || len(parts) != 1) {
		return of
	}
	delete(of, keyword)
	if len(parts) > 1 || get(parts[0], "$ref") != nil {
		if isNullable {
			keyword, parts = "anyOf", append(parts, map[string]any{"type": "null"})
		}
		of[keyword] = parts
		return of
	}
	one := parts[0].(map[string]any)
	if single, ok := one["type"].(string); ok && isNullable {
		one["type"] = []any{single, "null"}
		if values, ok := one["enum"].([]any); ok {
			one["enum"] = append(slices.Clone(values), nil)
		}
	}
	maps.Copy(one, of)
	return one
}

// referred returns the schema of a reference.
func (s *Schemas) referred(ref string) map[string]any {
	of, _ := s.all[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
	return of
}

func isNull(schema any) bool { return get(schema, "type") == "null" }
