package docs

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// node is a value of the document, read as YAML to keep the order of members: a
// model of OpenAPI would be a large dependency of the program, for no less code.
// What is missing is a node without content.
type node struct {
	*yaml.Node
	Key  string // its name in the object that has it
	root *yaml.Node
}

// Exists reports whether the value is there.
func (n node) Exists() bool { return !n.IsZero() }

// Members gives the members of an object in their order.
func (n node) Members() []node {
	var members []node
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		members = append(members, node{n.Content[i+1], n.Content[i].Value, n.root})
	}
	return members
}

// Get gives a member of an object.
func (n node) Get(name string) node {
	for _, m := range n.Members() {
		if m.Key == name {
			return m
		}
	}
	return node{new(yaml.Node), name, n.root}
}

// Text gives a member that is a plain value, "" if there is none.
func (n node) Text(name string) string { return n.Get(name).Value }

// Entries gives the entries of an array.
func (n node) Entries() []node {
	entries := make([]node, len(n.Content))
	for i, entry := range n.Content {
		entries[i] = node{entry, "", n.root}
	}
	return entries
}

// values gives the entries of an array of plain values.
func (n node) values() []string {
	values := make([]string, len(n.Content))
	for i, entry := range n.Content {
		values[i] = entry.Value
	}
	return values
}

// Ref gives the last part of a $ref, "" if there is none. A schema that extends
// another one, or says more of it, has its $ref in an allOf.
func (n node) Ref() string {
	for _, part := range n.Get("allOf").Entries() {
		if ref := part.Ref(); ref != "" {
			return ref
		}
	}
	ref := n.Text("$ref")
	return ref[strings.LastIndexByte(ref, '/')+1:]
}

// Follow gives what a $ref leads to, or the node itself.
func (n node) Follow() node {
	for ref := n.Text("$ref"); ref != ""; ref = n.Text("$ref") {
		n = node{n.root, n.Key, n.root}
		for token := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			n = n.Get(token)
		}
	}
	return n
}

// member is a parameter, a header, or a member of an object. What the script needs of a parameter has a name in JSON.
type member struct {
	Name     string   `json:"name"`
	In       string   `json:"in"`
	Required bool     `json:"required,omitempty"`
	Example  string   `json:"example,omitempty"`
	Values   []string `json:"values,omitempty"` // of a parameter that is one of them

	Anchor string `json:"-"`
	About  string `json:"-"`
	Limits string `json:"-"`
	Type   []word `json:"-"`
}

// word is a part of a type's name; some are links to schemas.
type word struct{ Text, Schema string }

// member shows a schema as that of a member.
func (n node) member(name string, required bool) member {
	return member{Name: name, Required: required, Type: n.Type(), Limits: n.Limits(), About: n.Text("description")}
}

// Properties gives the members that a schema has, without those of the schema
// that it extends.
func (n node) Properties() []member {
	var members []member
	for _, part := range append([]node{n}, n.Get("allOf").Entries()...) {
		required := part.Get("required").values()
		for _, m := range part.Get("properties").Members() {
			members = append(members, m.member(m.Key, slices.Contains(required, m.Key)))
		}
	}
	return members
}

// Type names the type of a schema in words.
func (n node) Type() []word {
	ref, kind, choice := n.Ref(), n.Get("type"), n.Get("oneOf")
	switch {
	case n.IsZero():
		return nil
	case ref != "":
		return []word{{ref, ref}}
	case choice.Exists():
		var words []word
		for i, schema := range choice.Entries() {
			if i > 0 {
				words = append(words, word{Text: " or "})
			}
			words = append(words, schema.Type()...)
		}
		return words
	case n.Get("const").Exists():
		return []word{{Text: n.Get("const").pretty("")}}
	case kind.Value == "array":
		return append([]word{{Text: "array of "}}, n.Get("items").Type()...)
	case kind.IsZero() && n.Get("enum").Exists():
		return []word{{Text: "string"}}
	case kind.IsZero():
		return []word{{Text: "any"}}
	case kind.Kind == yaml.SequenceNode:
		return []word{{Text: strings.Join(kind.values(), " or ")}}
	}
	return []word{{Text: kind.Value}}
}

// Limits says what else a schema asks for, in words.
func (n node) Limits() string {
	var limits []string
	add := func(words ...string) { limits = append(limits, strings.Join(words, "")) }
	if format := n.Text("format"); format != "" {
		add(format)
	}
	for _, unit := range []struct{ least, most, name string }{
		{"minimum", "maximum", ""}, {"minLength", "maxLength", " characters"}, {"minItems", "maxItems", " entries"},
	} {
		switch least, most := n.Text(unit.least), n.Text(unit.most); {
		case least != "" && most != "":
			add(least, " to ", most, unit.name)
		case least != "" && (unit.name == "" || least != "1"):
			add("at least ", least, unit.name)
		case most != "":
			add("at most ", most, unit.name)
		}
	}
	if otherwise := n.Text("default"); otherwise != "" {
		add("default ", otherwise)
	}
	if values := n.Get("enum").values(); len(values) > 0 && n.Get("x-enumDescriptions").IsZero() {
		add(strings.Join(values, ", "))
	}
	return strings.Join(limits, "; ")
}

// Example gives the text of an example of a media type: JSON, or as it is sent.
func (n node) Example(media string) string {
	if media != "application/json" && !strings.HasSuffix(media, "+json") {
		return n.Text("value")
	}
	return n.Get("value").pretty("")
}

// prettyWidth is how long a line of pretty JSON may be if it can be shorter.
const prettyWidth = 88

// pretty writes a value as JSON for people, its members in the document's
// order. The indent is that of the line it begins on.
func (n node) pretty(indent string) string {
	var parts []string
	inner := indent + "  "
	left, right := "[", "]"
	switch n.Kind {
	case yaml.ScalarNode:
		return n.scalar()
	case yaml.MappingNode:
		left, right = "{ ", " }"
		for _, m := range n.Members() {
			parts = append(parts, strconv.Quote(m.Key)+": "+m.pretty(inner))
		}
	default:
		for _, entry := range n.Entries() {
			parts = append(parts, entry.pretty(inner))
		}
	}
	line := left + strings.Join(parts, ", ") + right
	if len(indent)+len(line) <= prettyWidth && !strings.Contains(line, "\n") {
		return line
	}
	return strings.TrimSpace(left) + "\n" + inner + strings.Join(parts, ",\n"+inner) + "\n" + indent + strings.TrimSpace(right)
}

// line writes a value as JSON on one line.
func (n node) line() string {
	var out bytes.Buffer
	_ = json.Compact(&out, []byte(n.pretty(""))) // which is JSON
	return out.String()
}

func (n node) scalar() string {
	switch n.ShortTag() {
	case "!!int", "!!float", "!!bool", "!!null":
		return n.Value
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(n.Value) // a string
	return strings.TrimSpace(text.String())
}
