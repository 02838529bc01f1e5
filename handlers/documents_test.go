package handlers

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
)

// tree is an object of a document.
type tree map[string]any

// openAPI and asyncAPI read a document, once.
var (
	openAPI  = sync.OnceValue(func() tree { return treeOf(docs.OpenAPI) })
	asyncAPI = sync.OnceValue(func() tree { return treeOf(docs.AsyncAPI()) })
)

func treeOf(text []byte) tree {
	var root map[string]any
	if err := yaml.Unmarshal(text, &root); err != nil {
		panic(err)
	}
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

// TestSchemasSuitGenerators: references lead to something, and what may be shared is used. Programs that make types of
// schemas ignore members beside a $ref, cannot follow one into the middle of a schema, cannot read booleans as schemas, and take an
// object of which nothing is said for one without members.
func TestSchemasSuitGenerators(t *testing.T) {
	t.Parallel()
	for name, root := range map[string]tree{"openapi": openAPI(), "asyncapi": asyncAPI()} {
		used := map[string]bool{}
		each(root, "", func(at string, o tree) {
			if ref, ok := o["$ref"].(string); ok {
				used[ref] = true
				require.NotNil(t, o.follow(root), "%s: %s at %s", name, ref, at)
				require.Len(t, o, 1, "%s: say it with allOf: %s", name, at)
				require.False(t, strings.Contains(ref, "/schemas/") && strings.Count(ref, "/") != 3, "%s: %s at %s", name, ref, at)
			}
			for member, schema := range o.in("properties") { // write {} or {not: {}} instead
				require.NotContains(t, []any{true, false}, schema, "%s: the schema of %s at %s is a boolean", name, member, at)
			}
			if (o["type"] == "object" || slices.Contains(o.texts("type"), "object")) && o["properties"] == nil {
				require.Contains(t, o, "additionalProperties", "%s: %s", name, at)
			}
		})
		for _, kind := range []string{"parameters", "requestBodies", "headers", "responses", "messages", "messageTraits"} {
			for _, component := range root.in("components", kind).names() {
				require.True(t, used["#/components/"+kind+"/"+component], "%s: %s %s is not used", name, kind, component)
			}
		}
	}
}

// TestTextsOfDocumentsAreWhole: within braces a text without quotes ends at its first comma, and what follows is a member
// without a value. A " #" ends any text without quotes: it is then not a sentence.
func TestTextsOfDocumentsAreWhole(t *testing.T) {
	t.Parallel()
	for name, root := range map[string]tree{"openapi": openAPI(), "asyncapi": asyncAPI()} {
		sentences := 0
		each(root, "", func(at string, o tree) {
			if strings.Contains(at, "/example") {
				return
			}
			for member, value := range o {
				require.NotNil(t, value, "%s: %s/%s has no value", name, at, member)
				if said, ok := value.(string); ok && (member == "description" || strings.HasSuffix(at, "/x-enumDescriptions")) {
					require.Regexp(t, `[.!?]\s*$`, said, "%s: %s: not a whole sentence", name, at)
					sentences++
				}
			}
		})
		require.Greater(t, sentences, 50, name)
	}
}

var fiberParameter = regexp.MustCompile(`:(\w+)`)

// TestDocumentHasTheRoutes: no route, query parameter or security rule is
// missing or extra.
func TestDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	root := openAPI()
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
	for _, rt := range newWorld(t).server.Routes {
		path := fiberParameter.ReplaceAllString(rt.Path, "{$1}")
		if short := strings.TrimSuffix(path, "/"); root.in("paths", short)["x-also-at"] == path {
			continue
		}
		served = append(served, rt.Method+" "+path)
		item := root.in("paths", path)
		operation := item.in(strings.ToLower(rt.Method))
		requireOperation(t, root, rt, item, operation)
		id, _ := operation["operationId"].(string)
		require.False(t, id == "" || ids[id], "%s needs an operationId of its own", path)
		require.Equal(t, id, docs.Operations()[rt.Method+" "+path], "so that a rule of the test bed can name it")
		ids[id] = true
	}
	require.ElementsMatch(t, served, documented)
}

// always are the problems that a request can have once its route is known.
var always = map[httpkit.Access][]string{
	httpkit.Public:        nil,
	httpkit.Registration:  {"400", "401", "403", "406", "429", "500", "503", "504"},
	httpkit.Account:       {"400", "401", "403", "406", "429", "500", "503", "504"},
	httpkit.ClientKey:     {"400", "401", "403", "406", "429", "500", "503", "504"},
	httpkit.ExpiredKey:    {"400", "401", "403", "406", "429", "500", "503", "504"},
	httpkit.OperatorToken: {"400", "401", "403", "406", "500", "503", "504"},
}

func requireOperation(t *testing.T, root tree, rt httpkit.Route, item, operation tree) {
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
	require.ElementsMatch(t, query.Names(rt.Query), queried, rt.Path)
	var segments []string
	for _, found := range fiberParameter.FindAllStringSubmatch(rt.Path, -1) {
		segments = append(segments, found[1])
	}
	require.ElementsMatch(t, segments, path, rt.Path)

	security, ok := operation["security"].([]any)
	switch rt.Access {
	case httpkit.Public:
		require.True(t, ok && len(security) == 0, rt.Path)
	case httpkit.Registration:
		require.Len(t, security, 2, rt.Path)
	case httpkit.Account, httpkit.ClientKey, httpkit.ExpiredKey, httpkit.OperatorToken:
		require.False(t, ok, rt.Path)
	}
	require.Subset(t, operation.in("responses").names(), append([]string{strconv.Itoa(rt.Success)}, always[rt.Access]...), rt.Path)
	if rt.Method != http.MethodGet {
		require.Contains(t, operation.in("responses").names(), "412", rt.Path)
	}
	if rt.Method == http.MethodPost || rt.Method == http.MethodPatch {
		require.NotNil(t, operation.in("requestBody"), rt.Path)
		require.Subset(t, operation.in("responses").names(), []string{"413", "415"}, rt.Path)
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
	type word struct{ value, meaning string }
	described := map[string][]word{}
	say := func(name, value, meaning string) { described[name] = append(described[name], word{value, meaning}) }
	for _, e := range job.SendErrors {
		say("SendError", string(e), e.Text())
	}
	for _, r := range []job.DisabledReason{job.DisabledByOwner, job.DisabledGone, job.DisabledFailing} {
		say("DisabledReason", string(r), r.Text())
	}
	for _, c := range job.Codes {
		say("Code", string(c.Code), c.Title+".")
	}
	for _, r := range job.Reasons {
		say("FailureReason", string(r.Reason), r.Detail)
	}
	for _, s := range job.Stages {
		say("Stage", string(s.Stage), s.About)
	}
	want := map[string][]string{
		"State": texts(job.States...), "JobType": texts(job.Types...), "WorkKind": texts(job.AllKinds()...),
		"Outcome": texts(job.OutcomeSuccess, job.OutcomeFailed, job.OutcomeCanceled),
		"JobStatus": texts(job.StatusAccepted, job.StatusProcessing, job.StatusCompleted, job.StatusFailed, job.StatusCancelled,
			job.StatusTimedOut, job.StatusCompletedWithErrors),
		"FailureCode": texts(job.FailureCodes()...), "BulkAction": texts(job.BulkActions...), "BulkResult": texts(job.BulkResults...),
		"BulkState": texts(job.BulkPending, job.BulkRunning, job.BulkDone, job.BulkAborted),
		"WaitingReason": texts(job.WaitingScheduled, job.WaitingBackoff, job.WaitingPaused, job.WaitingClientLimit, job.WaitingNoWorkers,
			job.WaitingQueue),
		"EventName": eventNames, "Subscription": append([]string{"*", "job.*"}, job.SubscribableEvents...),
		"ContentMode": texts(job.ContentBinary, job.ContentStructured), "DeliveryState": texts(job.DeliveryStates...),
	}
	schemas := openAPI().in("components", "schemas")
	for name, words := range described {
		for _, w := range words {
			want[name] = append(want[name], w.value)
			require.Equal(t, w.meaning, schemas.in(name, "x-enumDescriptions")[w.value], w.value)
		}
	}
	for name, values := range want {
		require.Equal(t, values, schemas.in(name).texts("enum"), name)
	}
	each(schemas, "", func(at string, o tree) {
		if meanings := o.in("x-enumDescriptions"); meanings != nil {
			require.ElementsMatch(t, o.texts("enum"), meanings.names(), at)
		}
	})
	require.Equal(t, job.Languages, openAPI().in("components", "headers", "Content-Language", "schema").texts("enum"))
}

// eventNames are all events that can be sent.
var eventNames = []string{
	job.EventCreated, job.EventQueued, job.EventAssigned, job.EventRunning, job.EventSucceeded, job.EventFailed,
	job.EventCanceled, job.EventRetried, job.EventLeaseExpired, job.EventRetriesExhausted, job.EventEmitted,
	job.EventBatchCompleted, job.EventBulkCompleted, job.EventWebhookDisabled, job.EventWebhookTest,
}

func TestStreamsAreDocumented(t *testing.T) {
	t.Parallel()
	root := asyncAPI()
	var frames []string
	for _, name := range eventNames {
		frames = append(frames, stream.EventName(name))
	}
	frames = append(frames, stream.ProgressEvent, stream.PositionEvent)
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
	require.ElementsMatch(t, without(frames, stream.PositionEvent, "batch-completed", "bulk-completed", "webhook-disabled", "webhook-test"),
		root.in("channels", "jobEvents", "messages").names())
	require.ElementsMatch(t, without(frames, stream.ProgressEvent), root.in("channels", "clientEvents", "messages").names())

	for _, name := range []string{"jobEvents", "clientEvents"} {
		address, _ := root.in("channels", name)["address"].(string)
		require.NotNil(t, openAPI().in("paths", address, "get"), address)
	}
}
