package handlers

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
)

// tree is an object of a document.
type tree map[string]any

func treeOf(t testing.TB, text []byte) tree {
	t.Helper()
	var root map[string]any
	require.NoError(t, yaml.Unmarshal(text, &root))
	return root
}

// in gives the object that member names lead to; nil if there is none.
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

// follow gives what a $ref leads to, or o itself.
func (o tree) follow(root tree) tree {
	for ref, ok := o["$ref"].(string); ok; ref, ok = o["$ref"].(string) {
		o = root.in(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return o
}

// each calls visit with every object below a value, and where it is.
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

func TestOpenAPIDocumentIsValid(t *testing.T) {
	t.Parallel()
	document, err := libopenapi.NewDocument(docs.OpenAPI)
	require.NoError(t, err)
	_, err = document.BuildV3Model()
	require.NoError(t, err)
	v, problems := validator.NewValidator(document)
	require.Empty(t, problems)
	ok, found := v.ValidateDocument()
	require.True(t, ok, found)
}

func TestReferencesOfDocumentsResolve(t *testing.T) {
	t.Parallel()
	for name, text := range map[string][]byte{"openapi": docs.OpenAPI, "asyncapi": docs.AsyncAPI} {
		root := treeOf(t, text)
		used := map[string]bool{}
		each(root, "", func(at string, o tree) {
			if ref, ok := o["$ref"].(string); ok {
				used[ref] = true
				require.NotNil(t, o.follow(root), "%s: %s at %s", name, ref, at)
			}
		})
		for _, kind := range []string{"parameters", "requestBodies", "headers", "responses", "messages", "messageTraits"} {
			for _, component := range root.in("components", kind).names() {
				require.True(t, used["#/components/"+kind+"/"+component], "%s: %s %s is used nowhere", name, kind, component)
			}
		}
	}
}

var fiberParameter = regexp.MustCompile(`:(\w+)`)

// TestDocumentHasTheRoutes: no route, query parameter or security rule is
// missing or extra.
func TestDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	root := treeOf(t, docs.OpenAPI)
	var documented []string
	for path, item := range root.in("paths") {
		for method := range tree(item.(map[string]any)) {
			if method == "parameters" || method == "x-also-at" {
				continue
			}
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	var served []string
	ids := map[string]bool{}
	for _, rt := range newWorld(t).server.routes() {
		path := fiberParameter.ReplaceAllString(rt.path, "{$1}")
		if short := strings.TrimSuffix(path, "/"); root.in("paths", short)["x-also-at"] == path {
			continue
		}
		served = append(served, rt.method+" "+path)
		item := root.in("paths", path)
		operation := item.in(strings.ToLower(rt.method))
		requireOperation(t, root, rt, item, operation)
		id, _ := operation["operationId"].(string)
		require.False(t, id == "" || ids[id], "%s needs an operationId of its own", path)
		require.Equal(t, id, rt.operation(), "so that a rule of the test bed can name it")
		ids[id] = true
	}
	require.ElementsMatch(t, served, documented)
}

// always are the problems that a request can have once its route is known.
var always = map[access][]string{
	public:       nil,
	registration: {"400", "401", "403", "406", "429", "500", "503", "504"},
	account:      {"400", "401", "403", "406", "429", "500", "503", "504"},
	client:       {"400", "401", "403", "406", "429", "500", "503", "504"},
	operator:     {"400", "401", "403", "406", "500", "503", "504"},
}

func requireOperation(t *testing.T, root tree, rt route, item, operation tree) {
	t.Helper()
	var queried, path []string
	parameters, _ := item["parameters"].([]any)
	own, _ := operation["parameters"].([]any)
	for _, p := range slices.Concat(parameters, own) {
		parameter := tree(p.(map[string]any)).follow(root)
		switch name, _ := parameter["name"].(string); parameter["in"] {
		case "query":
			queried = append(queried, name)
		case "path":
			path = append(path, name)
			require.Equal(t, true, parameter["required"])
		}
	}
	require.ElementsMatch(t, query.Names(rt.query), queried, rt.path)
	var segments []string
	for _, found := range fiberParameter.FindAllStringSubmatch(rt.path, -1) {
		segments = append(segments, found[1])
	}
	require.ElementsMatch(t, segments, path, rt.path)

	security, ok := operation["security"].([]any)
	switch rt.access {
	case public:
		require.True(t, ok && len(security) == 0, rt.path)
	case registration:
		require.Len(t, security, 2, rt.path)
	case account, client, operator:
		require.False(t, ok, rt.path)
	}
	require.Subset(t, operation.in("responses").names(), append([]string{strconv.Itoa(rt.success)}, always[rt.access]...), rt.path)
	if rt.method == http.MethodPost || rt.method == http.MethodPatch {
		require.NotNil(t, operation.in("requestBody"), rt.path)
		require.Subset(t, operation.in("responses").names(), []string{"413", "415"}, rt.path)
	}
}

func texts[T ~string](values ...T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

func TestDocumentHasTheVocabulary(t *testing.T) {
	t.Parallel()
	about := map[string]map[string]string{"Stage": {}, "FailureReason": {}, "Code": {}, "SendError": {}, "DisabledReason": {}}
	disabled := []job.DisabledReason{job.DisabledByOwner, job.DisabledGone, job.DisabledFailing}
	for _, e := range job.SendErrors {
		about["SendError"][string(e)] = e.Text()
	}
	for _, r := range disabled {
		about["DisabledReason"][string(r)] = r.Text()
	}
	var codes, reasons, stages []string
	for _, c := range job.Codes {
		codes = append(codes, string(c.Code))
		about["Code"][string(c.Code)] = c.Title + "."
	}
	for _, r := range job.Reasons {
		reasons = append(reasons, string(r.Reason))
		about["FailureReason"][string(r.Reason)] = r.Detail
	}
	for _, s := range job.Stages {
		stages = append(stages, string(s.Stage))
		about["Stage"][string(s.Stage)] = s.About
	}
	want := map[string][]string{
		"Code": codes, "FailureReason": reasons, "Stage": stages,
		"State": texts(job.States...), "JobType": texts(job.Types...), "WorkKind": texts(job.AllKinds()...),
		"Outcome": texts(job.OutcomeSuccess, job.OutcomeFailed, job.OutcomeCanceled),
		"JobStatus": texts(job.StatusAccepted, job.StatusProcessing, job.StatusCompleted, job.StatusFailed, job.StatusCancelled,
			job.StatusTimedOut, job.StatusCompletedWithErrors),
		"BulkAction": texts(job.BulkActions...), "BulkResult": texts(job.BulkResults...),
		"BulkState": texts(job.BulkPending, job.BulkRunning, job.BulkDone, job.BulkAborted),
		"WaitingReason": texts(job.WaitingScheduled, job.WaitingBackoff, job.WaitingPaused, job.WaitingClientLimit, job.WaitingNoWorkers,
			job.WaitingQueue),
		"EventName": eventNames, "Subscription": append([]string{"*", "job.*"}, job.SubscribableEvents...),
		"ContentMode": texts(job.ContentBinary, job.ContentStructured), "DeliveryState": texts(deliveryStates...),
		"SendError": texts(job.SendErrors...), "DisabledReason": texts(disabled...),
	}
	schemas := treeOf(t, docs.OpenAPI).in("components", "schemas")
	for name, values := range want {
		require.Equal(t, values, schemas.in(name).texts("enum"), name)
	}
	each(schemas, "", func(at string, o tree) {
		if meanings := o.in("x-enumDescriptions"); meanings != nil {
			require.ElementsMatch(t, o.texts("enum"), meanings.names(), at)
		}
	})
	for name, meanings := range about {
		for value, meaning := range meanings {
			require.Equal(t, meaning, schemas.in(name, "x-enumDescriptions")[value], value)
		}
	}
	require.Equal(t, job.Languages, treeOf(t, docs.OpenAPI).in("components", "headers", "Content-Language", "schema").texts("enum"))
}

// eventNames are all events that can be told.
var eventNames = []string{
	job.EventCreated, job.EventQueued, job.EventAssigned, job.EventRunning, job.EventSucceeded, job.EventFailed,
	job.EventCanceled, job.EventRetried, job.EventLeaseExpired, job.EventRetriesExhausted, job.EventEmitted,
	job.EventBatchCompleted, job.EventBulkCompleted, job.EventWebhookDisabled, job.EventWebhookTest,
}

func TestStreamsAreDocumented(t *testing.T) {
	t.Parallel()
	root := treeOf(t, docs.AsyncAPI)
	var frames []string
	for _, name := range eventNames {
		frames = append(frames, stream.EventName(name))
	}
	frames = append(frames, stream.ProgressEvent)
	var messages []string
	for _, name := range root.in("components", "messages").names() {
		if name != "outcome" && !strings.HasPrefix(name, "delivered-") {
			messages = append(messages, name)
		}
	}
	require.ElementsMatch(t, frames, messages)
	for name, message := range root.in("components", "messages") {
		require.Equal(t, name, message.(map[string]any)["name"])
	}
	require.ElementsMatch(t, without(frames, "batch-completed", "bulk-completed", "webhook-disabled", "webhook-test"),
		root.in("channels", "jobEvents", "messages").names())
	require.ElementsMatch(t, without(frames, stream.ProgressEvent), root.in("channels", "clientEvents", "messages").names())

	for _, name := range []string{"jobEvents", "clientEvents"} {
		address, _ := root.in("channels", name)["address"].(string)
		require.NotNil(t, treeOf(t, docs.OpenAPI).in("paths", address, "get"), address)
	}
	shared := treeOf(t, docs.OpenAPI).in("components", "schemas")
	for name, schema := range root.in("components", "schemas") {
		if name != "ProgressFrame" {
			require.Equal(t, shared[name], schema, "%s is not as in openapi.yaml", name)
		}
	}
}

// TestWhatReceiversGetIsDocumented: all events that webhooks can ask for are in
// both documents, with the same headers and bodies.
func TestWhatReceiversGetIsDocumented(t *testing.T) {
	t.Parallel()
	root, async := treeOf(t, docs.OpenAPI), treeOf(t, docs.AsyncAPI)
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
