package handlers

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
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
	ofOpenAPI, ofAsyncAPI := examplesOf(openAPI(), asyncAPI())
	check(openAPI(), ofOpenAPI)
	check(asyncAPI(), ofAsyncAPI)
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

// TestEveryContentHasExamples: of what is sent, of every good answer, and of every message.
func TestEveryContentHasExamples(t *testing.T) {
	t.Parallel()
	failures := regexp.MustCompile(`/responses/[45]`)
	each(openAPI(), "", func(at string, o tree) {
		if strings.Contains(at, "/example") || failures.MatchString(at) {
			return
		}
		for media := range o.in("content") {
			if media != "application/problem+json" {
				require.NotEmpty(t, o.in("content", media, "examples"), "%s: %s has no example", at, media)
			}
		}
	})
	for name, message := range asyncAPI().in("components", "messages") {
		require.NotEmpty(t, message.(map[string]any)["examples"], name)
	}
}

// TestWhatReceiversGetIsDocumented: all events that webhooks can ask for are in
// both documents, with the same headers and bodies.
func TestWhatReceiversGetIsDocumented(t *testing.T) {
	t.Parallel()
	root, async := openAPI(), asyncAPI()
	var types, messages []string
	headers := map[string]bool{"content-type": false}
	for name, item := range root.in("webhooks") {
		message := "delivered-" + strings.ToLower(regexp.MustCompile(`[A-Z]`).ReplaceAllString(name, "-$0"))
		messages = append(messages, message)
		operation := tree(item.(map[string]any)).in("post")
		parameters, _ := operation["parameters"].([]any)
		for _, p := range parameters {
			parameter := tree(p.(map[string]any)).follow(root)
			name, _ := parameter["name"].(string)
			require.Equal(t, "header", parameter["in"])
			headers[strings.ToLower(name)] = parameter["required"] == true
			if name == "ce-type" {
				types = append(types, parameter.in("schema").texts("enum")...)
			}
		}
		require.Equal(t, []string{"2XX", "410", "default"}, operation.in("responses").names(), name)
		content := operation.in("requestBody", "content")
		require.NotNil(t, content.in("application/cloudevents+json"), name)
		require.Equal(t, content.in("application/json", "schema"), async.in("components", "messages", message, "payload"), name)
	}
	require.ElementsMatch(t, job.SubscribableEvents, types)
	require.ElementsMatch(t, messages, async.in("channels", "deliveries", "messages").names())
	trait := async.in("components", "messageTraits", "delivered", "headers")
	for name, required := range headers {
		require.Equal(t, required || name == "content-type", slices.Contains(trait.texts("required"), name), name)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(headers)), trait.in("properties").names())
	require.Equal(t, []string{"outcome"}, async.in("channels", "outcomes", "messages").names())
}

// plainOf gives a value of a document as a JSON decoder would.
func plainOf(t testing.TB, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return plain
}

// draftSchema is the JSON Schema of the draft (its section 8).
func draftSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile("testdata/async-job-problem-details.schema.json")
	require.NoError(t, err)
	return schema
}
