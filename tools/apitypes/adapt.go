package main

// adapted returns a node in a form that the generator supports.
func (o *options) adapted(node any) any {
	switch v := node.(type) {
	case []any:
		for i, item := range v {
			v[i] = o.adapted(item)
		}
	case map[string]any:
		v = o.simplified(v)
		for key, item := range v {
			v[key] = o.adapted(item)
		}
		return v
	}
	return node
}

// merge combines several schemas into one that has the members of all. Required members stay required only if a value must match all of
// the schemas.
func (o *options) merge(v map[string]any, choice string, of []any) {
	members, required := map[string]any{}, []any{}
	for _, one := range of {
		required = append(required, o.gather(members, one)...)
	}
	own, _ := v["properties"].(map[string]any)
	if choice == "allOf" && len(members) == 0 {
		return
	}
	delete(v, choice)
	if own == nil && len(members) > 0 {
		v["type"], v["properties"] = "object", members
		if choice == "allOf" {
			v["required"] = required
		}
	}
}

// gather adds the members of a schema that are missing, and returns the required ones.
func (o *options) gather(members map[string]any, schema any) (required []any) {
	v, _ := schema.(map[string]any)
	if name, ok := reference(v); ok {
		required = o.gather(members, o.schemas[name])
	}
	all, _ := v["allOf"].([]any)
	for _, part := range all {
		required = append(required, o.gather(members, part)...)
	}
	properties, _ := v["properties"].(map[string]any)
	for name, member := range properties {
		if members[name] == nil {
			members[name] = member
		}
	}
	own, _ := v["required"].([]any)
	return append(required, own...)
}

// simplified returns a schema in a form that the generator supports. An enumeration becomes a value of its type. A reference to a schema
// without a Go type is replaced with that schema. For a client, the zero value stands for null where possible.
func (o *options) simplified(v map[string]any) map[string]any {
	orNull := false
	delete(v, "enum")
	delete(v, "const")
	if of, ok := v["oneOf"].([]any); ok && len(of) == 2 {
		other, _ := of[1].(map[string]any)
		first, _ := of[0].(map[string]any)
		if name, ok := reference(first); ok && other["type"] == "null" {
			delete(v, "oneOf")
			if v["$ref"] = first["$ref"]; o.isInlined(name) {
				orNull = true
			} else {
				v["x-go-type"], v["x-go-type-skip-optional-pointer"] = "*"+name, true
			}
		}
	}
	choices := []string{"oneOf", "anyOf"}
	if o.Plain {
		if v["additionalProperties"] == true {
			delete(v, "additionalProperties") // ignored
		}
		if all, _ := v["allOf"].([]any); len(all) > 1 {
			choices = append(choices, "allOf")
		}
	}
	for _, choice := range choices {
		if of, ok := v[choice].([]any); ok {
			o.merge(v, choice, of)
		}
	}
	name, isReference := reference(v)
	if isReference && o.isInlined(name) {
		o.inline(v, name)
		isReference = false
	}
	kind, given := kindOf(v)
	switch orNull = orNull || given; {
	case isReference:
		if o.Plain && v["x-go-type"] == nil {
			v["x-go-type-skip-optional-pointer"] = false
		}
	case orNull && (kind == "object" && v["x-go-type"] == nil || !o.Plain):
		v["type"] = []any{kind, "null"}
	case orNull:
		v["type"] = kind
	}
	return v
}

// inline replaces a reference with the schema that it names.
func (o *options) inline(v map[string]any, name string) {
	schema := o.schemas[name].(map[string]any)
	delete(v, "$ref")
	if goType := o.Types[name]; goType != "" {
		if v["type"] = "object"; isOrNull(schema) {
			v["type"] = []any{"object", "null"}
		}
		v["x-go-type"] = goType
		return
	}
	for key, value := range schema {
		if v[key] == nil && key != "enum" && key != "const" {
			v[key] = value
		}
	}
}

func isOrNull(schema map[string]any) bool {
	_, orNull := kindOf(schema)
	return orNull
}
