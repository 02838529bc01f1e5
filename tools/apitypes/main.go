// Command apitypes writes Go types for the schemas of an OpenAPI document, and client methods for its operations. The argument is a
// configuration file for oapi-codegen with additional members (see options).
package main

import (
	"encoding/json"
	"errors"
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

// File paths in options are relative to the configuration's folder.
type options struct {
	codegen.Configuration `yaml:",inline"`

	Document string   `yaml:"document"`
	Output   string   `yaml:"output"`
	Only     []string `yaml:"only"` // schemas to generate, together with the schemas that they refer to
	// Plain generates types for a client, with few pointers: the zero value stands for null.
	Plain bool `yaml:"plain"`
	// Types maps a schema, such as State, or a member, such as Job.params, to its Go type. "-" omits a member.
	Types map[string]string `yaml:"types"`
	// Rename maps a schema to a name in Go, if the schema's name does not fit. References use the new name too.
	Rename map[string]string `yaml:"rename"`
	// Embed maps a Go field, such as Meta or "Job *Job", to the structs that get this field as their first one. An embedded schema is
	// removed from the struct's allOf, so that its members do not appear twice.
	Embed map[string][]string `yaml:"embed"`
	// Constants maps an enumeration to a prefix. Each value of the enumeration becomes a constant with this prefix.
	Constants map[string]string `yaml:"constants"`
	// Lists maps an enumeration, which must be in Constants, to the name of a struct type. The generated list has one struct for each value,
	// with the value's meaning.
	Lists map[string]string `yaml:"lists"`

	// Methods are the client's methods, by name. They are written to MethodsOutput.
	Methods       map[string]method `yaml:"methods"`
	MethodsOutput string            `yaml:"methods-output"`

	// Requests describe JSON files with schemas of request bodies. If Requests is set, apitypes writes only these files.
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
	var o options
	if err := errors.Join(os.Chdir(filepath.Dir(config)), read(filepath.Base(config), &o)); err != nil {
		return err
	}
	for _, q := range o.Requests {
		if err := q.write(); err != nil {
			return err
		}
	}
	if o.Requests != nil {
		return nil
	}
	document, err := o.load()
	if err != nil {
		return err
	}
	code, err := codegen.Generate(document, o.Configuration.UpdateDefaults())
	if err != nil {
		return err
	}
	_, code, _ = strings.Cut(code, "\n//\n") // removes the generated package comment, because another file has one
	code = strings.Replace(code, "\npackage ", "\n\npackage ", 1)
	for _, embedded := range slices.Sorted(maps.Keys(o.Embed)) {
		for _, name := range o.Embed[embedded] {
			begin, tag := "type "+name+" struct {\n", " `json:\"-\"`"
			if o.schemas[embedded] != nil {
				tag = ""
			}
			code = strings.Replace(code, begin, begin+"\t"+embedded+tag+"\n\n", 1)
		}
	}
	formatted, err := format.Source([]byte(code + o.enumerations()))
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.Output, formatted, 0o644); err != nil || o.Methods == nil {
		return err
	}
	methods, err := o.methods()
	if err != nil {
		return err
	}
	return os.WriteFile(o.MethodsOutput, methods, 0o644)
}

func read(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}

// load reads the schemas of the document and adapts them to the options. The result has no paths, since oapi-codegen generates only
// types.
func (o *options) load() (*openapi3.T, error) {
	var root yaml.Node
	if err := read(o.Document, &root); err != nil {
		return nil, err
	}
	keepOrder(&root, false, 0)
	var document map[string]any
	if err := root.Decode(&document); err != nil {
		return nil, err
	}
	components := object(document["components"])
	o.schemas, o.parameters, o.paths = object(components["schemas"]), object(components["parameters"]), object(document["paths"])
	each(o.schemas, func(v map[string]any) {
		if name, ok := reference(v); ok && o.Rename[name] != "" {
			v["$ref"] = schemaPrefix + o.Rename[name]
		}
	})
	for old, name := range o.Rename {
		o.schemas[name] = o.schemas[old]
		delete(o.schemas, old)
	}
	for embedded, names := range o.Embed {
		for _, name := range names {
			schema := object(o.schemas[name])
			schema["allOf"] = slices.DeleteFunc(list(schema["allOf"]), func(part any) bool {
				of, _ := reference(object(part))
				return of == embedded
			})
		}
	}
	for name, goType := range o.Types {
		if of, member, ok := strings.Cut(name, "."); ok {
			o.setType(o.schemas[of], member, goType)
		}
	}
	wanted := map[string]any{}
	for name, schema := range o.schemas {
		if !o.isInlined(name) {
			each(schema, o.simplify)
		}
	}
	for _, name := range o.Only {
		o.add(wanted, name)
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

// Members beside an allOf must follow the members from the allOf. So keepOrder adds `composed` to the x-order of members beside an allOf.
const composed = 1_000_000

// keepOrder makes the generator keep the order in which a document names the members of its schemas.
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

func each(node any, do func(v map[string]any)) {
	for _, item := range list(node) {
		each(item, do)
	}
	if v := object(node); v != nil {
		do(v)
		for _, item := range v {
			each(item, do)
		}
	}
}

// setType sets the Go type of a member, or deletes the member if goType is "-". It also looks into the parts of an allOf.
func (o *options) setType(schema any, member, goType string) {
	v := object(schema)
	properties := object(v["properties"])
	switch {
	case properties[member] == nil:
	case goType == "-":
		delete(properties, member)
	default:
		was := object(properties[member])
		properties[member] = map[string]any{
			"x-go-type": goType, "x-go-type-skip-optional-pointer": true, "type": "object",
			"x-order": was["x-order"], "description": was["description"],
		}
	}
	for _, part := range list(v["allOf"]) {
		o.setType(part, member, goType)
	}
}

// isInlined reports whether no Go type is generated for a schema.
func (o *options) isInlined(name string) bool {
	kind, _ := kindOf(object(o.schemas[name]))
	return o.Types[name] != "" || kind != nil && kind != "object"
}

func kindOf(schema map[string]any) (kind any, orNull bool) {
	if types := list(schema["type"]); len(types) == 2 && types[1] == "null" {
		return types[0], true
	}
	return schema["type"], false
}

func (o *options) add(wanted map[string]any, name string) {
	if wanted[name] != nil {
		return
	}
	wanted[name] = o.schemas[name]
	each(wanted[name], func(v map[string]any) {
		if name, ok := reference(v); ok {
			o.add(wanted, name)
		}
	})
}

const schemaPrefix = "#/components/schemas/"

func reference(v map[string]any) (name string, ok bool) {
	ref, _ := v["$ref"].(string)
	return strings.CutPrefix(ref, schemaPrefix)
}
