package handlers

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
)

// scalars calls visit with every value of a document that has no parts: the
// value, the names that lead to it, and what it stands in.
func scalars(in *yaml.Node, names []string, visit func(value, in *yaml.Node, names []string)) {
	for i, value := range in.Content {
		inner := names
		if in.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			inner = append(slices.Clone(names), in.Content[i-1].Value)
		}
		if value.Kind == yaml.ScalarNode {
			visit(value, in, inner)
		}
		scalars(value, inner, visit)
	}
}

// TestNoTextOfTheDocumentsBrokeAtAComma: within braces and brackets a text
// without quotes ends at its first comma, and what follows is a member without a
// value, or an entry of its own. A " #" ends any text without quotes: it is then
// not a sentence.
func TestNoTextOfTheDocumentsBrokeAtAComma(t *testing.T) {
	t.Parallel()
	for name, text := range map[string][]byte{"openapi": docs.OpenAPI, "asyncapi": docs.AsyncAPI} {
		var root yaml.Node
		require.NoError(t, yaml.Unmarshal(text, &root))
		sentences := 0
		scalars(root.Content[0], nil, func(value, in *yaml.Node, names []string) {
			last := names[len(names)-1]
			quoted := value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
			require.True(t, quoted || value.Value != "", "%s, line %d: %q has no value", name, value.Line, last)
			if in.Kind == yaml.SequenceNode && in.Style&yaml.FlowStyle != 0 && !quoted {
				require.NotContains(t, value.Value, " ", "%s, line %d: quote it", name, value.Line)
			}
			example := slices.ContainsFunc(names, func(n string) bool { return n == "value" || n == "examples" || n == "example" })
			if last == "description" && !example || slices.Contains(names, "x-enumDescriptions") {
				require.Regexp(t, `[.!?]\s*$`, value.Value, "%s, line %d: not a whole sentence", name, value.Line)
				sentences++
			}
		})
		require.Greater(t, sentences, 50, name)
	}
}

// TestSchemasSuitGenerators: programs that make types of schemas ignore members
// beside a $ref, cannot follow one into the middle of a schema, and take an
// object of which nothing is said for one without members.
func TestSchemasSuitGenerators(t *testing.T) {
	t.Parallel()
	for name, text := range map[string][]byte{"openapi": docs.OpenAPI, "asyncapi": docs.AsyncAPI} {
		each(treeOf(t, text), "", func(at string, o tree) {
			if ref, ok := o["$ref"].(string); ok {
				require.Len(t, o, 1, "%s: say it with allOf: %s", name, at)
				require.False(t, strings.Contains(ref, "/schemas/") && strings.Count(ref, "/") != 3, "%s: %s at %s", name, ref, at)
			}
			kinds := append(o.texts("type"), "")
			if kind, ok := o["type"].(string); ok {
				kinds[0] = kind
			}
			if slices.Contains(kinds, "object") && o["properties"] == nil {
				require.Contains(t, o, "additionalProperties", "%s: %s", name, at)
			}
		})
	}
}

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

// contentOf gives what a body or an answer of the document can be, by media type.
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
	for path, item := range root.in("paths") {
		for method := range item.(map[string]any) {
			operation := root.in("paths", path, method)
			if operation.in("responses") == nil {
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

// delivered is a delivery in binary mode, with changes: name, value, ...; "-"
// takes a header away.
func delivered(event string, changes ...string) http.Header {
	h := http.Header{}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "ForgeRun/1", "ce-specversion": "1.0", "ce-id": eventID.String(), "ce-type": event,
		"ce-source": publicURL + "/v1", "ce-subject": "jobs/" + jobID.String(), "ce-time": "2030-01-31T12:00:00.123456Z",
		"webhook-id": deliveryID.String(), "webhook-timestamp": "1896091200", "webhook-signature": "v1,AAAA v1,BBBB=",
		"Content-Digest":  "sha-256=:" + strings.Repeat("A", 43) + "=:",
		"Signature-Input": `sig1=("@method" "@target-uri");created=1;keyid="x"`, "Signature": "sig1=:AAAA=:",
	} {
		h.Set(name, value)
	}
	if strings.HasPrefix(event, "job.") || event == job.EventEmitted {
		h.Set("ce-sequence", "5")
		h.Set("ce-sequencetype", "Integer")
		h.Set("ce-workkind", "SUCCESS_FAST")
	}
	for i := 0; i < len(changes); i += 2 {
		if h.Del(changes[i]); changes[i+1] != "-" {
			h.Set(changes[i], changes[i+1])
		}
	}
	return h
}

// TestDeliveriesAreDescribed holds what receivers get against the document.
func TestDeliveriesAreDescribed(t *testing.T) {
	t.Parallel()
	document := apitest.New(t, docs.OpenAPI)
	bodyOf := func(v any) []byte {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return text
	}
	links := job.Links{PublicURL: publicURL}
	origin, attempts, err := finishedAttempts(t.Context(), clientA, jobID)
	require.NoError(t, err)
	ended := bodyOf(links.Document(origin, attempts[0]))
	batch, err := failedBatch(t.Context(), clientA, batchID)
	require.NoError(t, err)
	structured := func(event string, data []byte) []byte {
		return []byte(`{"specversion":"1.0","id":"` + eventID.String() + `","type":"` + event + `","source":"` + publicURL +
			`/v1","subject":"jobs/` + jobID.String() + `","time":"2030-01-31T12:00:00Z","sequence":"5","sequencetype":"Integer",` +
			`"workkind":"SUCCESS_FAST","datacontenttype":"application/json","data":` + string(data) + `}`)
	}
	inBody := []string{"Content-Type", "application/cloudevents+json"}
	for _, name := range []string{"specversion", "id", "type", "source", "subject", "time", "sequence", "sequencetype", "workkind"} {
		inBody = append(inBody, "ce-"+name, "-")
	}
	of := func(changes ...string) http.Header { return delivered(job.EventSucceeded, changes...) }
	problem := []string{"Content-Type", "application/problem+json", "Content-Language", "en"}
	for _, test := range []struct {
		header http.Header
		body   []byte
		wrong  string // part of what is said; "" for nothing
	}{
		{of(), ended, ""}, {of("webhook-signature", "-"), ended, ""},
		{delivered(job.EventBatchCompleted, problem...), bodyOf(links.BatchDocument(batch)), ""},
		{delivered(job.EventWebhookTest), []byte(`{"webhookId":"` + webhookID.String() + `"}`), ""},
		{delivered("", inBody...), structured(job.EventSucceeded, ended), ""},
		{delivered(job.EventEmitted), []byte(`{"instance":"/v1/jobs/x/attempts/1","jobId":"` + jobID.String() +
			`","jobStatus":"PROCESSING","submittedAt":"2030-01-31T12:00:00.123456Z","attempt":1,` +
			`"scenario":{"workKind":"SUCCESS_FAST"},"emitted":{"name":"a","data":[1]}}`), ""},
		{delivered("job.progress"), ended, "job.progress"}, {of("Content-Digest", "-"), ended, "Content-Digest is missing"},
		{of("ce-sequence", "-"), ended, "Ce-Sequence is missing"}, {of("Content-Language", "de"), ended, "Content-Language"},
		{of("webhook-id", "1"), ended, "uuid"}, {of("X-Own", "1"), ended, "X-Own is not documented"}, {of(), ended[:9], "not JSON"},
		{delivered(job.EventBatchCompleted, "Content-Type", "text/json"), ended, "not JSON"},
		{delivered(job.EventWebhookTest), ended, "webhookId"},
		{of("Content-Type", "application/cloudevents+json"), structured(job.EventSucceeded, ended), "structured mode"},
		{delivered("", inBody...), []byte(`{"type":"job.failed"}`), "specversion"},
	} {
		err := document.VerifyDelivery(test.header, test.body)
		if test.wrong == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, test.wrong)
	}
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
