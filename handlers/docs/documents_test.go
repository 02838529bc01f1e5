package docs_test

import (
	"bytes"
	"encoding/json"
	"html"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
)

type tree map[string]any

var (
	openAPI  = sync.OnceValue(func() tree { return treeOf(docs.OpenAPI) })
	asyncAPI = sync.OnceValue(func() tree { return treeOf(docs.AsyncAPI) })
)

func treeOf(text []byte) tree {
	var root map[string]any
	if err := yaml.Unmarshal(text, &root); err != nil {
		panic(err)
	}
	return root
}

func (o tree) in(names ...string) tree {
	for _, name := range names {
		members, _ := o[name].(map[string]any)
		if members == nil {
			members, _ = o[name].(tree)
		}
		o = members
	}
	return o
}

func (o tree) names() []string { return slices.Sorted(maps.Keys(o)) }

func (o tree) texts(name string) []string {
	list, _ := o[name].([]any)
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i], _ = v.(string)
	}
	return texts
}

func (o tree) follow(root tree) tree {
	for ref, ok := o["$ref"].(string); ok; ref, ok = o["$ref"].(string) {
		o = root.in(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return o
}

func each(value any, at string, visit func(at string, o tree)) {
	switch v := value.(type) {
	case tree:
		each(map[string]any(v), at, visit)
	case map[string]any:
		visit(at, v)
		for name, member := range v {
			each(member, at+"/"+name, visit)
		}
	case []any:
		for _, entry := range v {
			each(entry, at+"/*", visit)
		}
	}
}

// An example has a nil schema if its value is arbitrary bytes.
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

func TestExamplesAreRight(t *testing.T) {
	t.Parallel()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	draft, err := compiler.Compile("../../job/testdata/async-job-problem-details.schema.json")
	require.NoError(t, err)
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
	check(openAPI(), samples(t))
	require.Greater(t, len(ofOpenAPI), 70)
	require.Greater(t, len(ofAsyncAPI), 15)
	require.Greater(t, documents, 4)
}

func samples(t *testing.T) (all []example) {
	t.Helper()
	pages := docs.ProblemPages("https://forgerun.example")
	for _, slug := range docs.ProblemTypes() {
		found := regexp.MustCompile(`(?s)<pre tabindex="0">(.*?)</pre>`).FindSubmatch(pages[slug])
		require.NotNil(t, found, slug)
		text := html.UnescapeString(string(found[1]))
		head, body, answered := strings.Cut(text, "\n\n")
		schema := "Problem"
		switch {
		case answered:
			require.True(t, strings.HasPrefix(head, "HTTP/1.1 "), slug)
		case strings.HasPrefix(slug, "batch-"):
			schema, body = "BatchFailureDocument", text
		default:
			schema, body = "FailureDocument", text
		}
		var document map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &document), text)
		require.Equal(t, "https://forgerun.example/problems/"+slug, document["type"])
		all = append(all, example{slug, map[string]any{"$ref": "#/components/schemas/" + schema}, document})
	}
	require.Len(t, all, len(job.Codes)+len(job.Reasons)+2, "each problem type has one page")
	return all
}

// compileInto compiles the schemas inside a copy of the document, so that their $refs resolve. The large document is parsed only once.
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

func plainOf(t testing.TB, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return plain
}

// TestDocumentIsStrict checks that each object says whether it allows unknown members, by additionalProperties or propertyNames. Schemas
// in allOf, and schemas with names that end in Members, are exempt.
func TestDocumentIsStrict(t *testing.T) {
	t.Parallel()
	schemas := openAPI().in("components", "schemas")
	each(schemas, "", func(at string, o tree) {
		if o["type"] != "object" || strings.HasSuffix(at, "Members") || strings.HasSuffix(at, "/allOf/*") {
			return
		}
		if rules, _ := o["allOf"].([]any); slices.ContainsFunc(rules, namesMembers) {
			return
		}
		_, closed := o["additionalProperties"]
		require.True(t, closed, at)
	})
	for name, schema := range schemas {
		parts, _ := schema.(map[string]any)["allOf"].([]any)
		for _, part := range parts {
			if base, _ := part.(map[string]any)["$ref"].(string); strings.HasSuffix(base, "Members") {
				require.Equal(t, false, schemas.in(name)["unevaluatedProperties"], name)
			}
		}
	}
}

// namesMembers reports whether a conditional rule lists the allowed members. Schemas with such a rule omit additionalProperties, which
// would add an index signature to generated TypeScript types.
func namesMembers(rule any) bool {
	o, _ := rule.(map[string]any)
	return o["then"] != nil && tree(o).in("then", "propertyNames") != nil
}
