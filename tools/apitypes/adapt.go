package main

// merge replaces allOf, anyOf or oneOf with one object that has the members of all parts. With anyOf or oneOf all members are optional,
// because a value needs to match only one part. If the schema has properties of its own, merge only removes the parts.
func (o *options) merge(v map[string]any, choice string, of []any) {
	members, required := map[string]any{}, []any{}
	for _, one := range of {
		required = append(required, o.gather(members, one)...)
	}
	own := object(v["properties"])
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

// gather adds the members of a schema to `members`, but replaces no existing member. It returns the names of the required members.
func (o *options) gather(members map[string]any, schema any) (required []any) {
	v := object(schema)
	if name, ok := reference(v); ok {
		required = o.gather(members, o.schemas[name])
	}
	for _, part := range list(v["allOf"]) {
		required = append(required, o.gather(members, part)...)
	}
	for name, member := range object(v["properties"]) {
		if members[name] == nil {
			members[name] = member
		}
	}
	return append(required, list(v["required"])...)
}

// simplify changes a schema to a form that the generator supports. It drops enum and const, and keeps the type. A reference to a schema
// without a Go type is replaced with the content of the schema. With Plain, nullable members are not pointers: the zero value stands for
// null.
func (o *options) simplify(v map[string]any) {
	orNull := false
	delete(v, "enum")
	delete(v, "const")
	if of := list(v["oneOf"]); len(of) == 2 {
		first := object(of[0])
		if name, ok := reference(first); ok && object(of[1])["type"] == "null" {
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
			delete(v, "additionalProperties") // a client ignores unknown members
		}
		if len(list(v["allOf"])) > 1 {
			choices = append(choices, "allOf")
		}
	}
	for _, choice := range choices {
		if of := list(v[choice]); of != nil {
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
}

func (o *options) inline(v map[string]any, name string) {
	schema := object(o.schemas[name])
	delete(v, "$ref")
	if goType := o.Types[name]; goType != "" {
		v["type"] = "object"
		if _, orNull := kindOf(schema); orNull {
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
