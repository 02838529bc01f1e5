package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

type requests struct {
	Document string   `yaml:"document"`
	Output   string   `yaml:"output"`
	Schemas  []string `yaml:"schemas"`
	// Changes replace keywords of schemas, such as WorkKind, and of their members, such as Job.params. null removes a keyword.
	Changes map[string]map[string]any `yaml:"changes"`
}

// write writes the schemas as JSON, with all references resolved. The types of a nullable schema include null.
func (q *requests) write() error {
	var root struct {
		Components struct{ Schemas map[string]any }
	}
	if err := read(q.Document, &root); err != nil {
		return err
	}
	all := root.Components.Schemas
	q.change(all)
	for _, schema := range all {
		combine(all, schema)
	}
	q.change(all) // combine() added members, which need the changes too
	slices.Sort(q.Schemas)
	lines := make([]string, len(q.Schemas))
	for i, name := range q.Schemas {
		schema, err := plain(all, all[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		line, err := json.Marshal(schema)
		if err != nil {
			return err
		}
		lines[i] = fmt.Sprintf("%q: %s", name, line)
	}
	return os.WriteFile(q.Output, []byte("{\n"+strings.Join(lines, ",\n")+"\n}\n"), 0o644)
}

func (q *requests) change(all map[string]any) {
	for at, keywords := range q.Changes {
		properties, name := all, at
		if of, member, ok := strings.Cut(at, "."); ok {
			properties, name = object(object(all[of])["properties"]), member
		}
		if properties == nil {
			continue
		}
		schema := maps.Clone(object(properties[name])) // a copy, since another schema may share the member
		if schema == nil {
			schema = map[string]any{}
		}
		maps.Copy(schema, keywords)
		maps.DeleteFunc(schema, func(_ string, v any) bool { return v == nil })
		properties[name] = schema
	}
}

// combine makes one object schema from the parts of a composed schema, so that errors name the member that is wrong.
func combine(all map[string]any, schema any) {
	of, keyword := object(schema), "allOf"
	if of["unevaluatedProperties"] != false {
		keyword = "oneOf"
		isOther := func(part any) bool { return object(part)["type"] != "object" }
		if parts := list(of[keyword]); len(parts) == 0 || slices.ContainsFunc(parts, isOther) {
			return
		}
	}
	properties, required := map[string]any{}, []any{}
	for _, part := range list(of[keyword]) {
		of := object(part)
		if name, ok := reference(of); ok {
			of = object(all[name])
		}
		for name, property := range object(of["properties"]) {
			if value := object(property)["const"]; value != nil { // the enum collects the constants of all alternatives
				property = map[string]any{"type": "string", "enum": append(list(object(properties[name])["enum"]), value)}
			}
			properties[name] = property
		}
		if keyword == "allOf" {
			required = append(required, list(of["required"])...)
		}
	}
	if keyword == "oneOf" { // a client may send null for members of other alternatives
		for name, property := range properties {
			properties[name] = map[string]any{"oneOf": []any{property, map[string]any{"type": "null"}}}
		}
	}
	delete(of, keyword)
	maps.Copy(of, map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

var kept = []string{
	"type", "required", "additionalProperties", "minProperties", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum",
	"exclusiveMinimum", "pattern", "format", "x-note", "x-refusal", "x-raw", "x-malformed", "x-minimum", "x-maximum", "x-step", "x-names",
}

func plain(all map[string]any, schema any) (out map[string]any, err error) {
	of, out := object(schema), map[string]any{}
	if name, ok := reference(of); ok {
		return plain(all, all[name])
	}
	orNull := false
	for _, keyword := range []string{"allOf", "oneOf", "anyOf"} {
		given := list(of[keyword])
		parts := slices.DeleteFunc(slices.Clone(given), func(part any) bool { return object(part)["type"] == "null" })
		orNull = orNull || len(parts) < len(given)
		switch {
		case len(parts) > 1:
			return nil, fmt.Errorf("%s has %d schemas; change it to one", keyword, len(parts))
		case len(parts) == 1:
			if out, err = plain(all, parts[0]); err != nil {
				return nil, err
			}
		}
	}
	for _, keyword := range kept {
		if value := of[keyword]; value != nil {
			out[keyword] = value
		}
	}
	if name, ok := out["type"].(string); ok {
		out["type"] = []any{name}
	}
	if types := list(out["type"]); orNull && !slices.Contains(types, any("null")) {
		out["type"] = append(slices.Clone(types), "null")
	}
	if values := list(of["enum"]); values != nil {
		out["enum"] = slices.DeleteFunc(slices.Clone(values), func(v any) bool { return v == nil })
	}
	if items := of["items"]; items != nil {
		if out["items"], err = plain(all, items); err != nil {
			return nil, err
		}
	}
	if properties := object(of["properties"]); properties != nil {
		members := map[string]any{}
		for name, member := range properties {
			if members[name], err = plain(all, member); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		out["properties"] = members
	}
	return out, nil
}

func object(of any) map[string]any {
	o, _ := of.(map[string]any)
	return o
}

func list(of any) []any {
	l, _ := of.([]any)
	return l
}
