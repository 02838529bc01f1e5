// Package docs has the OpenAPI and AsyncAPI documents, and HTML pages about the API, problem types and link relations.
package docs

import (
	_ "embed" // the documents
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

//go:generate go run -C ../../tools ./bundle ../handlers/docs/source/api ../handlers/docs/openapi.yaml
//go:generate go run -C ../../tools ./bundle ../handlers/docs/source/events ../handlers/docs/asyncapi.yaml
//go:generate go run -C ../../tools ./bundle ../handlers/docs/source/operator ../handlers/operator/openapi.yaml

// The documents of the API are built from the files in the folder `source`. Tests compare the documents with routes, views and responses.
var (
	//go:embed openapi.yaml
	OpenAPI []byte
	//go:embed asyncapi.yaml
	AsyncAPI []byte // AsyncAPI document of the event streams
)

// AsJSON converts a YAML document to JSON and keeps the order of its members. It panics on invalid YAML; tests convert each embedded
// document.
func AsJSON(text []byte) []byte {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		panic(err)
	}
	out := jsontext.Value(appendJSON(nil, root.Content[0]))
	if err := out.Indent(jsontext.WithIndent("  ")); err != nil {
		panic(err)
	}
	return append(out, '\n')
}

func appendJSON(out []byte, n *yaml.Node) []byte {
	const object = "{}"
	around := "[]"
	switch n.Kind {
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!int", "!!float", "!!bool", "!!null":
			return append(out, n.Value...)
		}
		out, _ = jsontext.AppendQuote(out, n.Value) // fails only for invalid UTF-8, which YAML does not allow
		return out
	case yaml.MappingNode:
		around = object
	}
	out = append(out, around[0])
	for i, part := range n.Content {
		switch {
		case i > 0 && around == object && i%2 == 1:
			out = append(out, ':')
		case i > 0:
			out = append(out, ',')
		}
		if around == object && i%2 == 0 {
			out, _ = jsontext.AppendQuote(out, part.Value) // a name is a string, even one that YAML reads as a number
			continue
		}
		out = appendJSON(out, part)
	}
	return append(out, around[1])
}

// Operations returns the operationId of each operation by its method and path, as in "GET /v1/jobs/{id}".
var Operations = sync.OnceValue(func() map[string]string {
	var document struct{ Paths map[string]map[string]any }
	if err := yaml.Unmarshal(OpenAPI, &document); err != nil {
		panic(err)
	}
	all := map[string]string{}
	for path, item := range document.Paths {
		for method, of := range item {
			operation, _ := of.(map[string]any) // the parameters of a path are a list, not a map
			if id, ok := operation["operationId"].(string); ok {
				all[strings.ToUpper(method)+" "+path] = id
			}
		}
	}
	return all
})
