// Package docs holds the OpenAPI and AsyncAPI documents, and the pages to which
// documents, problems and links point.
package docs

import (
	_ "embed" // the documents
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// The descriptions of the API, written by hand. Tests hold them against the
// routes, the views and every answer.
var (
	//go:embed openapi.yaml
	OpenAPI []byte
	//go:embed asyncapi.yaml
	asyncAPI []byte
)

// AsJSON gives a document as JSON, its members in the same order.
func AsJSON(text []byte) []byte { return []byte(read(text).pretty("") + "\n") }

// read cannot fail: the documents are the program's own, and tests read them.
func read(text []byte) node {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		panic(err)
	}
	return node{Node: root.Content[0], root: root.Content[0]}
}

// Operations gives the operationId of each operation by its method and path, as in "GET /v1/jobs/{id}".
var Operations = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, item := range read(OpenAPI).Get("paths").Members() {
		for _, o := range item.Members() {
			if id := o.Text("operationId"); id != "" {
				all[strings.ToUpper(o.Key)+" "+item.Key] = id
			}
		}
	}
	return all
})
