package api_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
)

func TestDescriptionsConformToSchema(t *testing.T) {
	t.Parallel()
	c := jsonschema.NewCompiler()
	schema, err := c.Compile("schema.json")
	require.NoError(t, err)
	files, err := filepath.Glob("apis/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, len(api.Names()))
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var v map[string]any
		require.NoError(t, yaml.Unmarshal(text, &v))
		if errors, ok := v["errors"].(map[any]any); ok { // JSON requires string keys
			v["errors"] = map[string]any{"0": errors[0]}
		}
		require.NoError(t, schema.Validate(v), file)
	}
}

// The message about a mistake in a description lists the valid values.
func TestWrongDescriptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"submit: [/v1/orders]": "a method and a path", "job: {id: [id]}": "JSON Pointer", "rules: [politeness]": "idempotency-key",
		"submits: []": "submits", "repeatable: [read]": "submit or retry",
	} {
		_, err := api.Parse([]byte(text))
		require.ErrorContains(t, err, want)
	}
	_, err := api.Load("acme")
	require.ErrorContains(t, err, "stripe")
}

// An OpenAPI document defines submissions, reads and streams; a description takes precedence.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	a, err := api.Parse(nil)
	require.NoError(t, err)
	require.NoError(t, a.AddOpenAPI([]byte(`
openapi: 3.1.0
servers: [{url: "https://api.example.com/v2"}]
paths:
  /orders:
    post: {parameters: [{name: X-Idempotency-Token, in: header}], responses: {"202": {description: yes}}}
    get: {responses: {"200": {content: {application/json: {}}}}}
  /orders/{order}: {get: {responses: {"200": {description: one}}}}
  /orders/{order}/events: {get: {responses: {"200": {content: {text/event-stream: {}}}}}}
  /reports: {post: {callbacks: {done: {}}, responses: {"200": {description: yes}}}}
  /users/{user}: {get: {responses: {"200": {description: one}}}}
`)))
	for request, want := range map[string]verdict.Role{
		"POST /v2/orders": verdict.Submit, "GET /v2/orders/7": verdict.Read, "GET /v2/orders/7/events": verdict.Stream,
		"POST /v2/reports": verdict.Submit, "GET /v2/users/7": "", "GET /v2/orders": "",
	} {
		method, path, _ := strings.Cut(request, " ")
		role, id, _ := a.Match(httptest.NewRequest(method, path, nil))
		require.Equal(t, want, role, request)
		require.Equal(t, want == verdict.Read, id == "7", request)
	}
	require.Contains(t, a.Key, "header:X-Idempotency-Token")
	require.Error(t, a.AddOpenAPI([]byte(`swagger: "2.0"`)))
}
