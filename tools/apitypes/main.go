// Command apitypes writes the Go types of an OpenAPI document's schemas, by oapi-codegen, and methods that send its operations. Its
// argument is a configuration of oapi-codegen with a few members more: see options.
package main

import (
	"encoding/json"
	"go/format"
	"log"
	"maps"
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
	// Types are Go types for schemas, such as State, and for members of them, such as Job.params; "-" leaves a member out.
	Types map[string]string `yaml:"types"`
	// Rename has the Go names of schemas whose own name does not fit: what refers to a schema with that name gets the renamed one.
	Rename map[string]string `yaml:"rename"`
	// Embed has the fields that structs have besides the members of their schemas, such as Meta: the names of the structs.
	Embed map[string][]string `yaml:"embed"`
	// Constants are the enumerations whose values become constants, with what the names of these begin with.
	Constants map[string]string `yaml:"constants"`
	// Lists are the enumerations whose values become a list of Go structs, each with a value and what it stands for, by the struct's name.
	Lists map[string]string `yaml:"lists"`

	// Methods are those of the client, by name. They go to MethodsOutput.
	Methods       map[string]method `yaml:"methods"`
	MethodsOutput string            `yaml:"methods-output"`

	// Requests are the files of the schemas of request bodies. With them, nothing else is made.
	Requests []requests `yaml:"requests"`

	schemas, paths, parameters map[string]any
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
	for _, q := range o.Requests {
		if err := q.write(filepath.Dir(config)); err != nil {
			return err
		}
	}
	if o.Requests != nil {
		return nil
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
	for _, embedded := range slices.Sorted(maps.Keys(o.Embed)) {
		for _, name := range o.Embed[embedded] {
			begin := "type " + name + " struct {\n"
			code = strings.Replace(code, begin, begin+"\t"+embedded+" `json:\"-\"`\n\n", 1)
		}
	}
	formatted, err := format.Source([]byte(code + o.enumerations()))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(config), o.Output), formatted, 0o644); err != nil || o.Methods == nil {
		return err
	}
	methods, err := o.methods(o.paths)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(config), o.MethodsOutput), methods, 0o644)
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
	keepOrder(&root, false, 0)
	var document map[string]any
	if err := root.Decode(&document); err != nil {
		return nil, err
	}
	o.schemas, _ = document["components"].(map[string]any)["schemas"].(map[string]any)
	o.parameters, _ = document["components"].(map[string]any)["parameters"].(map[string]any)
	o.paths, _ = document["paths"].(map[string]any)
	o.rename(o.schemas)
	for old, name := range o.Rename {
		o.schemas[name] = o.schemas[old]
		delete(o.schemas, old)
	}
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

// composed is how much later the members come that a schema adds to those of the schemas that it is composed of.
const composed = 1_000_000

// keepOrder has the generator keep the order in which a document names the members of its schemas; after is added to their lines.
func keepOrder(node *yaml.Node, members bool, after int) {
	for i := 0; node.Kind == yaml.MappingNode && i < len(node.Content); i += 2 {
		if node.Content[i].Value == "allOf" {
			after = composed
		}
	}
	for i, child := range node.Content {
		isValue := node.Kind == yaml.MappingNode && i%2 == 1
		if members && isValue && child.Kind == yaml.MappingNode {
			child.Content = append(child.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "x-order"},
				&yaml.Node{Kind: yaml.ScalarNode, Value: strconv.Itoa(child.Line + after)})
		}
		keepOrder(child, isValue && node.Content[i-1].Value == "properties", after)
	}
}

// rename has references name the schemas as Go does.
func (o *options) rename(node any) {
	switch v := node.(type) {
	case []any:
		for _, item := range v {
			o.rename(item)
		}
	case map[string]any:
		if name, ok := reference(v); ok && o.Rename[name] != "" {
			v["$ref"] = schemaPrefix + o.Rename[name]
		}
		for _, item := range v {
			o.rename(item)
		}
	}
}

// setType sets the Go type of a member of a schema, or of a schema that it is composed of.
func (o *options) setType(schema any, member, goType string) {
	v, _ := schema.(map[string]any)
	properties, _ := v["properties"].(map[string]any)
	switch {
	case properties[member] == nil:
	case goType == "-":
		delete(properties, member)
	default:
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

const schemaPrefix = "#/components/schemas/"

func reference(v map[string]any) (name string, ok bool) {
	ref, _ := v["$ref"].(string)
	return strings.CutPrefix(ref, schemaPrefix)
}
