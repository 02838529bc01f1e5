// Command apitypes writes the Go types of an OpenAPI document's schemas, by oapi-codegen. Its argument is a configuration of oapi-codegen
// with a few members more: see options.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	"go.yaml.in/yaml/v3"
)

// options say what becomes of a document. Files are seen from the folder of the configuration.
type options struct {
	codegen.Configuration `yaml:",inline"`

	Document string   `yaml:"document"`
	Output   string   `yaml:"output"`
	Only     []string `yaml:"only"` // schemas that are wanted, with those that they refer to; none: all
	// Plain makes the types of a client: where it can be, null is the zero value.
	Plain bool `yaml:"plain"`
	// Types are Go types for schemas, such as State, and for members of them, such as Job.params.
	Types map[string]string `yaml:"types"`
	// Embed is what structs have besides the members of their schemas, by name.
	Embed map[string][]string `yaml:"embed"`

	schemas map[string]any
}

func main() {
	log.SetFlags(0)
	if err := generate(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func generate(config string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var o options
	if err := yaml.Unmarshal(text, &o); err != nil {
		return err
	}
	document, err := o.load(filepath.Join(filepath.Dir(config), o.Document))
	if err != nil {
		return err
	}
	code, err := codegen.Generate(document, o.Configuration.UpdateDefaults())
	if err != nil {
		return err
	}
	_, code, _ = strings.Cut(code, "\n//\n") // the package has a comment of its own
	code = strings.Replace(code, "\npackage ", "\n\npackage ", 1)
	for embedded, structs := range o.Embed {
		for _, name := range structs {
			begin := "type " + name + " struct {\n"
			code = strings.Replace(code, begin, begin+"\t"+embedded+" `json:\"-\"`\n\n", 1)
		}
	}
	return os.WriteFile(filepath.Join(filepath.Dir(config), o.Output), []byte(code), 0o644)
}

// load reads the schemas of a document. Paths are left out, since only types are wanted.
func (o *options) load(file string) (*openapi3.T, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	keepOrder(&root, false)
	var document map[string]any
	if err := root.Decode(&document); err != nil {
		return nil, err
	}
	o.schemas, _ = document["components"].(map[string]any)["schemas"].(map[string]any)
	for name, goType := range o.Types {
		if of, member, ok := strings.Cut(name, "."); ok {
			o.setType(o.schemas[of], member, goType)
		}
	}
	wanted := map[string]any{}
	for name, schema := range o.schemas {
		if o.isInlined(name) {
			continue
		}
		o.schemas[name] = o.adapted(schema)
		if o.Only == nil || slices.Contains(o.Only, name) {
			wanted[name] = o.schemas[name]
		}
	}
	for o.addReferences(wanted, wanted) {
	}
	plain, err := json.Marshal(map[string]any{
		"openapi": document["openapi"], "info": document["info"], "paths": map[string]any{},
		"components": map[string]any{"schemas": wanted},
	})
	if err != nil {
		return nil, err
	}
	return openapi3.NewLoader().LoadFromData(plain)
}

// keepOrder has the generator keep the order in which a document names the members of its schemas.
func keepOrder(node *yaml.Node, members bool) {
	for i, child := range node.Content {
		isValue := node.Kind == yaml.MappingNode && i%2 == 1
		if members && isValue && child.Kind == yaml.MappingNode {
			child.Content = append(child.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "x-order"},
				&yaml.Node{Kind: yaml.ScalarNode, Value: strconv.Itoa(child.Line)})
		}
		keepOrder(child, isValue && node.Content[i-1].Value == "properties")
	}
}

// setType gives a member of a schema, or of one that it is composed of, a Go type.
func (o *options) setType(schema any, member, goType string) {
	v, _ := schema.(map[string]any)
	if properties, ok := v["properties"].(map[string]any); ok && properties[member] != nil {
		was, _ := properties[member].(map[string]any)
		properties[member] = map[string]any{
			"x-go-type": goType, "x-go-type-skip-optional-pointer": true, "type": "object",
			"x-order": was["x-order"], "description": was["description"],
		}
	}
	all, _ := v["allOf"].([]any)
	for _, part := range all {
		o.setType(part, member, goType)
	}
}

// isInlined reports whether a schema gets no Go type of its own: it stands for one that there is, or for a text, a number or the like.
func (o *options) isInlined(name string) bool {
	schema, _ := o.schemas[name].(map[string]any)
	kind, _ := kindOf(schema)
	return o.Types[name] != "" || kind != nil && kind != "object"
}

// kindOf returns the type that a schema names, and reports whether null may stand for it.
func kindOf(schema map[string]any) (kind any, orNull bool) {
	if types, ok := schema["type"].([]any); ok && len(types) == 2 && types[1] == "null" {
		return types[0], true
	}
	return schema["type"], false
}

// addReferences adds the schemas that a node refers to. It reports whether there were any.
func (o *options) addReferences(wanted map[string]any, node any) (added bool) {
	switch v := node.(type) {
	case []any:
		for _, item := range v {
			added = o.addReferences(wanted, item) || added
		}
	case map[string]any:
		if name, ok := reference(v); ok && wanted[name] == nil {
			wanted[name], added = o.schemas[name], true
		}
		for _, item := range v {
			added = o.addReferences(wanted, item) || added
		}
	}
	return added
}

func reference(v map[string]any) (name string, ok bool) {
	ref, _ := v["$ref"].(string)
	return strings.CutPrefix(ref, "#/components/schemas/")
}

// adapted returns a node as the generator can express it.
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

// merge makes one schema of several that a value may have: with the members of all, none of them required.
func (o *options) merge(v map[string]any, choice string, of []any) {
	members := map[string]any{}
	for _, one := range of {
		o.gather(members, one)
	}
	delete(v, choice)
	own, _ := v["properties"].(map[string]any)
	if own == nil && len(members) > 0 {
		v["type"], v["properties"] = "object", members
	}
}

// gather adds the members of a schema that are not there yet.
func (o *options) gather(members map[string]any, schema any) {
	v, _ := schema.(map[string]any)
	if name, ok := reference(v); ok {
		o.gather(members, o.schemas[name])
	}
	all, _ := v["allOf"].([]any)
	for _, part := range all {
		o.gather(members, part)
	}
	properties, _ := v["properties"].(map[string]any)
	for name, member := range properties {
		if members[name] == nil {
			members[name] = member
		}
	}
}

// simplified returns a schema as the generator can express it: what an enumeration has is of its type, what it refers to and has no type
// of its own is there in place of the reference, and for a client a zero value stands for null where one will do.
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
	for _, choice := range []string{"oneOf", "anyOf"} {
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

// inline puts a schema in place of a reference to it.
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
