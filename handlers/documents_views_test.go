package handlers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// members are those of an object, by name: whether it is always there.
type members map[string]bool

// membersOf gives the members that encoding/json writes for a struct.
func membersOf(of reflect.Type) members {
	m := members{}
	for i := range of.NumField() {
		field := of.Field(i)
		tag := field.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case field.Anonymous && tag == "":
			for inner, required := range membersOf(field.Type) {
				m[inner] = required
			}
		case field.IsExported() && name != "-" && name != "":
			m[name] = !strings.HasPrefix(options, "omit")
		}
	}
	return m
}

// documented gives the members of a schema, those of the schema that it
// extends included.
func documented(root tree, schema string) members {
	o := root.in("components", "schemas", schema)
	m := members{}
	parts, _ := o["allOf"].([]any)
	for _, part := range append([]any{map[string]any(o)}, parts...) {
		part := tree(part.(map[string]any))
		if ref, ok := part["$ref"].(string); ok {
			maps.Copy(m, documented(root, ref[strings.LastIndexByte(ref, '/')+1:]))
		}
		required := part.texts("required")
		for name := range part.in("properties") {
			m[name] = m[name] || slices.Contains(required, name)
		}
	}
	return m
}

// either joins the members of objects of which a view can be any.
func either(all ...members) members {
	m := members{}
	for _, one := range all {
		for name := range one {
			required := true
			for _, other := range all {
				required = required && other[name]
			}
			m[name] = required
		}
	}
	return m
}

// TestDocumentHasTheMembers: no member of an answer is missing from the
// document or extra in it, and what may be absent is not required.
func TestDocumentHasTheMembers(t *testing.T) {
	t.Parallel()
	root := treeOf(t, docs.OpenAPI)
	views := map[string]any{ // by the schemas one of which a value of the view has
		"Client": clientView{}, "Key": keyView{}, "Revoked": revokedView{}, "JobReceipt": receiptView{}, "JobChange": changeView{},
		"JobRetry": retryView{}, "Job": jobView{}, "JobMembers": jobMembers{}, "JobSummary BatchJob": summaryView{}, "SelfLink": selfView{},
		"RetryPolicy": policyView{}, "Definition": definitionView{}, "Waiting": waitingView{}, "Progress": progressView{},
		"AvailableResult ExpiredResult": resultView{}, "Checksum": checksumView{}, "JobLinks": linksView{},
		"JobPage BatchJobPage": listView[summaryView]{}, "EventPage": listView[eventView]{}, "AttemptPage": listView[attemptView]{},
		"PageInfo": pageView{}, "Report": reportView{}, "Attempt": attemptView{}, "AttemptLinks": attemptLinksView{}, "Event": eventView{},
		"Problem": problem{}, "Violation": job.Violation{}, "OutcomeDocument BatchOutcomeDocument": job.Document{}, "Scenario": job.Scenario{},
		"ItemOutcome": job.ItemOutcome{}, "BatchReceipt": batchReceiptView{}, "AcceptedItem RefusedItem": itemReceiptView{},
		"Refusal": refusalView{}, "Batch": batchView{}, "BatchCounts": countsView{}, "BatchOutcome": batchOutcomeView{},
		"FailedItem": itemFailureView{}, "BatchLinks": batchLinksView{}, "BulkReceipt": bulkReceiptView{}, "Schedule": scheduleView{},
		"ScheduleLinks": scheduleLinksView{}, "ScheduleError": job.ScheduleError{}, "SchedulePage": listView[*scheduleView]{},
		"BulkCount": bulkCountView{}, "Bulk": bulkView{}, "BulkLinks": bulkLinksView{}, "BulkItem": bulkItemView{},
		"BulkPage": listView[bulkView]{}, "BulkItemPage": listView[bulkItemView]{}, "Webhook": webhookView{}, "WebhookMembers": webhookView{},
		"IssuedWebhook": issuedWebhookView{}, "WebhookLinks": webhookLinksView{}, "WebhookPage": listView[webhookView]{},
		"MadeFixture": fixtureView{}, "FixturesReceipt": fixturesView{}, "ResetReceipt": resetView{}, "Fault": faultView{},
		"FaultMatch": testbed.Match{}, "FaultEffect": testbed.Effect{}, "FaultPage": listView[faultView]{}, "Clock": testbed.ClockState{},
		"Session": testbed.Session{}, "SessionPage": listView[testbed.Session]{}, "Verdict": testbed.Verdict{},
		"RuleResult": testbed.RuleResult{}, "Evidence": testbed.Evidence{}, "DisabledCause SendFailure": causeView{}, "Deleted": deletedView{},
		"Replay": replayView{}, "Delivery": deliveryView{}, "DeliveryMembers": deliveryView{}, "LoggedDelivery": loggedDeliveryView{},
		"DeliveryLinks": deliveryLinksView{}, "DeliveryPage": listView[deliveryView]{}, "DeliveryAttempt": tryView{},
		"ReceiverResponse": receivedView{}, "CanceledJobs": canceledView{}, "Health": healthView{}, "Readiness": Readiness{},
	}
	seen := map[string]bool{}
	for schemas, view := range views {
		var all []members
		for schema := range strings.FieldsSeq(schemas) {
			require.NotNil(t, root.in("components", "schemas", schema), schema)
			all = append(all, documented(root, schema))
			seen[schema] = true
		}
		shown := membersOf(reflect.TypeOf(view))
		if _, ok := view.(job.Document); ok {
			shown["instance"] = true // it may be left out, and never is
		}
		require.Equal(t, either(all...), shown, schemas)
	}
	// Those that are refinements of others, words, or requests.
	others := []string{
		"EmptyRequest", "KeyRequest", "RevokeRequest", "JobRequestMembers", "Emission", "BatchRequest", "WebhookRequest", "BulkRequest",
		"BulkFilter", "SessionRequest", "ClockMove", "FaultsRequest", "FaultRules", "FaultProfile", "FaultRule", "FixturesRequest", "Fixture",
		"WebhookPatch", "SinceRequest", "CustomParams", "Behavior", "PlannedFailure", "PlannedProblem", "PlannedResult", "PlannedEvent",
		"ScheduleRequest", "SchedulePatch", "Warning",
		"EmissionDocument", "BulkCompletedData", "WebhookDisabledData", "WebhookTestData", "CloudEvent", "KeyDirectory", "SigningKey",
	}
	for name, schema := range root.in("components", "schemas") {
		if tree(schema.(map[string]any)).in("properties") != nil {
			require.True(t, seen[name] || slices.Contains(others, name), "%s is the schema of nothing", name)
		}
	}
	require.Equal(t, documented(treeOf(t, docs.AsyncAPI), "ProgressFrame"), membersOf(reflect.TypeFor[progressFrame]()))
}

// TestDocumentIsStrict: every object of the document says that it has no other
// members, or by propertyNames which others it may have; those aside whose
// members are the client's own or the event's.
func TestDocumentIsStrict(t *testing.T) {
	t.Parallel()
	schemas := treeOf(t, docs.OpenAPI).in("components", "schemas")
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

// namesMembers tells whether a conditional rule lists the members. Generators
// make of it a type without an index signature, unlike additionalProperties.
func namesMembers(rule any) bool {
	o, _ := rule.(map[string]any)
	return o["then"] != nil && tree(o).in("then", "propertyNames") != nil
}

// TestDocumentHasTheRequests: the members that decoders know are those of the
// document.
func TestDocumentHasTheRequests(t *testing.T) {
	t.Parallel()
	root := treeOf(t, docs.OpenAPI)
	scheduled := []string{"name", "cron", "time_zone", "interval", "jitter", "start_at", "end_at", "overlap", "catch_up",
		"catch_up_max", "job"}
	for schema, where := range map[string]string{ // files and functions, and more names (+)
		"JobRequest": "job members +idempotency_key", "Emission": "job readEvent", "BatchRequest": "batch members +idempotency_key",
		"BatchItemRequest": "batch item job members", "ScheduledJob": "job members", "KeyRequest": "client CreateKey",
		"RevokeRequest": "client RevokeKey", "BulkRequest": "bulk Bulk", "BulkFilter": "bulk bulkFilter",
		"ScheduleRequest": "+paused +" + strings.Join(scheduled, " +"), "SchedulePatch": "+" + strings.Join(scheduled, " +"),
		"FaultProfile": "testbed FaultRules", "SessionRequest": "session Session",
		"ClockMove": "clock ClockMove", "FaultRule": "testbed faultRule",
		"FixturesRequest": "fixtures Fixtures", "Fixture": "fixtures fixture", "FaultMatch": "testbed faultMatch",
		"FaultEffect": "testbed effectMembers", "WebhookRequest": "webhook Webhook +idempotency_key", "WebhookPatch": "webhook WebhookPatch",
		"SinceRequest": "webhook Since", "EmptyRequest": "", "Behavior": "behavior read", "PlannedFailure": "behavior readFailure",
		"PlannedProblem": "behavior readProblem", "PlannedResult": "behavior readResult", "PlannedEvent": "behavior readEvent",
	} {
		var names []string
		words := strings.Fields(where)
		for i := 0; i < len(words); i++ {
			if name, ok := strings.CutPrefix(words[i], "+"); ok {
				names = append(names, name)
				continue
			}
			names = append(names, namesInCode(t, "decode/"+words[i]+".go", words[i+1])...)
			i++
		}
		if schema == "BatchItemRequest" || schema == "ScheduledJob" {
			names = without(names, "idempotency_key")
		}
		slices.Sort(names)
		require.ElementsMatch(t, slices.Compact(names), slices.Collect(maps.Keys(documented(root, schema))), schema)
	}
}

func without(list []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(some, s) })
}

// namesInCode gives the names of the members that a function reads.
func namesInCode(t testing.TB, file, function string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	var names []string
	note := func(e ast.Expr) {
		if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if name, _ := strconv.Unquote(literal.Value); name != "" {
				names = append(names, name)
			}
		}
	}
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if field, ok := n.(*ast.KeyValueExpr); ok && field.Key.(*ast.Ident).Name == "name" {
				note(field.Value)
			}
			return true
		})
	}
	require.NotEmpty(t, names, function)
	return names
}
