package docs

import (
	"encoding/json"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// docSchema is a named schema of the document.
type docSchema struct {
	Name, About, Limits string

	Extends docType // has all members of this one as well
	Type    docType // of what has no members
	Members []docMember
	Values  []docValue
}

// docValue is one of an enumeration's values.
type docValue struct{ Value, About string }

// docType is the name of a type in words, some of them links to schemas.
type docType []docWord

type docWord struct{ Text, Schema string }

func (d docsReader) schemas() []docSchema {
	var schemas []docSchema
	for name, schema := range d.root.get("components").get("schemas").members() {
		s := docSchema{Name: name, About: schema.text("description"), Limits: limitsOf(schema)}
		required := schema.get("required").values()
		for member, of := range schema.get("properties").members() {
			s.Members = append(s.Members, d.member(member, of, slices.Contains(required, member)))
		}
		if schema.text("$ref") != "" {
			s.Extends = d.typeOf(schema)
		}
		if len(s.Members) == 0 {
			s.Type = d.typeOf(schema)
		}
		about := schema.get("x-enumDescriptions")
		for _, value := range schema.get("enum").values() {
			s.Values = append(s.Values, docValue{value, about.text(value)})
		}
		schemas = append(schemas, s)
	}
	return schemas
}

func (d docsReader) member(name string, schema docNode, required bool) docMember {
	m := docMember{Name: name, Required: required, Type: d.typeOf(schema), Limits: limitsOf(schema), About: schema.text("description")}
	// One member's schema may point to another's.
	if ref := schema.text("$ref"); strings.Contains(ref, "/properties/") {
		m = d.member(name, d.follow(schema), required)
	}
	return m
}

// typeOf names the type of a schema.
func (d docsReader) typeOf(schema docNode) docType {
	if schema.IsZero() {
		return nil
	}
	ref, kind := schema.text("$ref"), schema.get("type")
	switch {
	case ref != "":
		return docType{{lastPart(ref), lastPart(ref)}}
	case !schema.get("oneOf").IsZero():
		return d.oneOf(schema.get("oneOf"))
	case !schema.get("const").IsZero():
		return docType{{Text: schema.get("const").pretty("")}}
	case kind.Value == "array":
		return append(docType{{Text: "array of "}}, d.typeOf(schema.get("items"))...)
	case kind.IsZero() && !schema.get("enum").IsZero():
		return docType{{Text: "string"}}
	case kind.IsZero():
		return docType{{Text: "any"}}
	case kind.Kind == yaml.SequenceNode:
		return docType{{Text: strings.Join(kind.values(), " or ")}}
	}
	return docType{{Text: kind.Value}}
}

func (d docsReader) oneOf(schemas docNode) docType {
	var words docType
	for i, schema := range schemas.Content {
		if i > 0 {
			words = append(words, docWord{Text: " or "})
		}
		words = append(words, d.typeOf(docNode{schema})...)
	}
	return words
}

// limitsOf says what else a schema asks for, in words.
func limitsOf(schema docNode) string {
	var limits []string
	add := func(words ...string) { limits = append(limits, strings.Join(words, "")) }
	if format := schema.text("format"); format != "" {
		add(format)
	}
	for _, unit := range []struct{ least, most, name string }{
		{"minimum", "maximum", ""}, {"minLength", "maxLength", " characters"}, {"minItems", "maxItems", " entries"},
	} {
		switch least, most := schema.text(unit.least), schema.text(unit.most); {
		case least != "" && most != "":
			add(least, " to ", most, unit.name)
		case least != "" && (unit.name == "" || least != "1"):
			add("at least ", least, unit.name)
		case most != "":
			add("at most ", most, unit.name)
		}
	}
	if otherwise := schema.text("default"); otherwise != "" {
		add("default ", otherwise)
	}
	if values := schema.get("enum").values(); len(values) > 0 && schema.get("x-enumDescriptions").IsZero() {
		add(strings.Join(values, ", "))
	}
	return strings.Join(limits, "; ")
}

// docNode is a value of the document; IsZero says that it is not there.
type docNode struct{ *yaml.Node }

// members gives the members of an object in their order.
func (n docNode) members() iter.Seq2[string, docNode] {
	return func(yield func(string, docNode) bool) {
		if n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, docNode{n.Content[i+1]}) {
				return
			}
		}
	}
}

func (n docNode) get(name string) docNode {
	for member, value := range n.members() {
		if member == name {
			return value
		}
	}
	return docNode{new(yaml.Node)}
}

// text gives a member that is a plain value, "" if there is none.
func (n docNode) text(name string) string { return n.get(name).Value }

// values gives the entries of an array of plain values.
func (n docNode) values() []string {
	values := make([]string, len(n.Content))
	for i, entry := range n.Content {
		values[i] = entry.Value
	}
	return values
}

// prettyWidth is how long a line of pretty JSON may be if it can be shorter.
const prettyWidth = 88

// pretty writes a value as JSON for people, its members in the document's
// order. The indent is that of the line it begins on.
func (n docNode) pretty(indent string) string {
	var parts []string
	inner := indent + "  "
	left, right := "[", "]"
	switch n.Kind {
	case yaml.ScalarNode:
		return n.scalar()
	case yaml.MappingNode:
		left, right = "{ ", " }"
		for name, value := range n.members() {
			parts = append(parts, strconv.Quote(name)+": "+value.pretty(inner))
		}
	default:
		for _, entry := range n.Content {
			parts = append(parts, docNode{entry}.pretty(inner))
		}
	}
	line := left + strings.Join(parts, ", ") + right
	if len(indent)+len(line) <= prettyWidth && !strings.Contains(line, "\n") {
		return line
	}
	return strings.TrimSpace(left) + "\n" + inner + strings.Join(parts, ",\n"+inner) + "\n" + indent + strings.TrimSpace(right)
}

func (n docNode) scalar() string {
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

// docSpan is a piece of a description.
type docSpan struct {
	Text       string
	Code, Bold bool
}

var spanForm = regexp.MustCompile("`[^`]+`|\\*\\*[^*]+\\*\\*")

// paragraphs reads a description: paragraphs are divided by empty lines, and
// have `code` and **bold** text.
func paragraphs(description string) [][]docSpan {
	var all [][]docSpan
	for paragraph := range strings.SplitSeq(strings.TrimSpace(description), "\n\n") {
		var spans []docSpan
		at := 0
		for _, found := range spanForm.FindAllStringIndex(paragraph, -1) {
			special := paragraph[found[0]:found[1]]
			spans = append(spans, docSpan{Text: paragraph[at:found[0]]},
				docSpan{Text: strings.Trim(special, "`*"), Code: special[0] == '`', Bold: special[0] == '*'})
			at = found[1]
		}
		all = append(all, append(spans, docSpan{Text: paragraph[at:]}))
	}
	return all
}
