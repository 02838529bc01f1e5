package handlers

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/docs"
)

// example is one of a document with its schema, nil for bytes of any kind.
type example struct {
	at            string
	schema, value any
}

func examplesOf(openAPI, asyncAPI tree) (ofOpenAPI, ofAsyncAPI []example) {
	for _, section := range []string{"paths", "webhooks", "components"} {
		each(openAPI.in(section), section, func(at string, o tree) {
			for name, e := range o.in("examples") {
				ofOpenAPI = append(ofOpenAPI, example{at + "/" + name, o["schema"], e.(map[string]any)["value"]})
			}
		})
	}
	for name, m := range asyncAPI.in("components", "messages") {
		message := m.(map[string]any)
		examples, _ := message["examples"].([]any)
		for _, e := range examples {
			ofAsyncAPI = append(ofAsyncAPI, example{name, message["payload"], e.(map[string]any)["payload"]})
		}
	}
	return ofOpenAPI, ofAsyncAPI
}

// TestExamplesAreRight: every example is as its schema says, and those of
// outcome documents are as the draft says too.
func TestExamplesAreRight(t *testing.T) {
	t.Parallel()
	draft := draftSchema(t)
	openAPI, asyncAPI := treeOf(t, docs.OpenAPI), treeOf(t, docs.AsyncAPI)
	documents := 0
	check := func(root tree, examples []example) {
		schemas := compileInto(t, root, examples)
		for i, e := range examples {
			if e.schema == nil {
				continue
			}
			value := plainOf(t, e.value)
			require.NoError(t, schemas(i).Validate(value), e.at)
			if members, _ := e.value.(map[string]any); members["jobStatus"] != nil && members["emitted"] == nil {
				require.NoError(t, draft.Validate(value), e.at)
				documents++
			}
		}
	}
	ofOpenAPI, ofAsyncAPI := examplesOf(openAPI, asyncAPI)
	check(openAPI, ofOpenAPI)
	check(asyncAPI, ofAsyncAPI)
	require.Greater(t, len(ofOpenAPI), 70)
	require.Greater(t, len(ofAsyncAPI), 15)
	require.Greater(t, documents, 4)
}

// compileInto gives the schemas of examples, compiled within the document where
// their $ref lead to. The document is read once: it is large.
func compileInto(t *testing.T, root tree, examples []example) func(i int) *jsonschema.Schema {
	t.Helper()
	schemas := make([]any, len(examples))
	for i, e := range examples {
		schemas[i] = e.schema
	}
	const home = "https://handlers.test/document"
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	whole := maps.Clone(root)
	whole["schemas-of-examples"] = schemas
	require.NoError(t, compiler.AddResource(home, plainOf(t, whole)))
	return func(i int) *jsonschema.Schema {
		schema, err := compiler.Compile(home + "#/schemas-of-examples/" + strconv.Itoa(i))
		require.NoError(t, err)
		return schema
	}
}

// contentOf gives what a body or an answer of the document can be, by media
// type.
func contentOf(root, o tree, names ...string) tree {
	return o.in(names...).follow(root).in("content")
}

// TestEveryOperationHasExamples: of what is sent, of every good answer, and of
// every message.
func TestEveryOperationHasExamples(t *testing.T) {
	t.Parallel()
	root := treeOf(t, docs.OpenAPI)
	requireExamples := func(at string, content tree) {
		for media := range content {
			require.NotEmpty(t, content.in(media, "examples"), "%s: %s has no example", at, media)
		}
	}
	operations := 0
	for path := range root.in("paths") {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			operation := root.in("paths", path, strings.ToLower(method))
			if operation == nil {
				continue
			}
			operations++
			at := method + " " + path
			requireExamples(at, contentOf(root, operation, "requestBody"))
			for status := range operation.in("responses") {
				if strings.HasPrefix(status, "2") {
					requireExamples(at+": "+status, contentOf(root, operation, "responses", status))
				}
			}
		}
	}
	require.Equal(t, len(newWorld(t).server.routes())-1, operations, "/problems/ is described at /problems")
	for name := range root.in("webhooks") {
		requireExamples(name, contentOf(root, root, "webhooks", name, "post", "requestBody"))
	}
	for name, message := range treeOf(t, docs.AsyncAPI).in("components", "messages") {
		require.NotEmpty(t, message.(map[string]any)["examples"], name)
	}
}
