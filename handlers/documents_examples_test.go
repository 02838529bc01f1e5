package handlers

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/docs"
)

// TestExamplesAreRight: every example is as its schema says, and those of
// outcome documents are as the draft says too.
func TestExamplesAreRight(t *testing.T) {
	t.Parallel()
	draft := draftSchema(t)
	checked, documents := 0, 0
	check := func(text []byte, at string, schema any, value any) {
		if checked++; schema == nil {
			return // bytes of any kind
		}
		whole := treeOf(t, text)
		whole["example"] = schema
		wrapped, err := json.Marshal(whole)
		require.NoError(t, err)
		require.NoError(t, compileAt(t, wrapped, "/example").Validate(plainOf(t, value)), at)
		if members, _ := value.(map[string]any); members["jobStatus"] != nil && members["emitted"] == nil {
			require.NoError(t, draft.Validate(plainOf(t, value)), at)
			documents++
		}
	}
	for _, section := range []string{"paths", "webhooks", "components"} {
		each(treeOf(t, docs.OpenAPI).in(section), "", func(at string, o tree) {
			for name, example := range o.in("examples") {
				check(docs.OpenAPI, at+"/"+name, o["schema"], example.(map[string]any)["value"])
			}
		})
	}
	for name, message := range treeOf(t, docs.AsyncAPI).in("components", "messages") {
		examples, _ := message.(map[string]any)["examples"].([]any)
		for _, example := range examples {
			check(docs.AsyncAPI, name, message.(map[string]any)["payload"], example.(map[string]any)["payload"])
		}
	}
	require.Greater(t, checked, 10)
	require.Greater(t, documents, 4)
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
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
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
