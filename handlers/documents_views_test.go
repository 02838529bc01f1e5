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
	tests := []struct {
		view    any
		schemas []string // one of which a value of the view has
	}{
		{clientView{}, []string{"Client"}},
		{keyView{}, []string{"Key"}},
		{revokedView{}, []string{"Revoked"}},
		{receiptView{}, []string{"JobReceipt"}},
		{changeView{}, []string{"JobChange"}},
		{retryView{}, []string{"JobRetry"}},
		{jobView{}, []string{"Job"}},
		{jobMembers{}, []string{"JobMembers"}},
		{summaryView{}, []string{"JobSummary", "BatchJob"}},
		{selfView{}, []string{"SelfLink"}},
		{policyView{}, []string{"RetryPolicy"}},
		{definitionView{}, []string{"Definition"}},
		{waitingView{}, []string{"Waiting"}},
		{progressView{}, []string{"Progress"}},
		{resultView{}, []string{"AvailableResult", "ExpiredResult"}},
		{checksumView{}, []string{"Checksum"}},
		{linksView{}, []string{"JobLinks"}},
		{listView[summaryView]{}, []string{"JobPage", "BatchJobPage"}},
		{listView[eventView]{}, []string{"EventPage"}},
		{listView[attemptView]{}, []string{"AttemptPage"}},
		{pageView{}, []string{"PageInfo"}},
		{reportView{}, []string{"Report"}},
		{attemptView{}, []string{"Attempt"}},
		{attemptLinksView{}, []string{"AttemptLinks"}},
		{eventView{}, []string{"Event"}},
		{problem{}, []string{"Problem"}},
		{job.Violation{}, []string{"Violation"}},
		{job.Document{}, []string{"OutcomeDocument", "BatchOutcomeDocument"}},
		{job.Scenario{}, []string{"Scenario"}},
		{job.ItemOutcome{}, []string{"ItemOutcome"}},
		{batchReceiptView{}, []string{"BatchReceipt"}},
		{itemReceiptView{}, []string{"AcceptedItem", "RefusedItem"}},
		{refusalView{}, []string{"Refusal"}},
		{batchView{}, []string{"Batch"}},
		{countsView{}, []string{"BatchCounts"}},
		{batchOutcomeView{}, []string{"BatchOutcome"}},
		{itemFailureView{}, []string{"FailedItem"}},
		{batchLinksView{}, []string{"BatchLinks"}},
		{bulkReceiptView{}, []string{"BulkReceipt"}},
		{scheduleView{}, []string{"Schedule"}},
		{scheduleLinksView{}, []string{"ScheduleLinks"}},
		{job.ScheduleError{}, []string{"ScheduleError"}},
		{listView[*scheduleView]{}, []string{"SchedulePage"}},
		{bulkCountView{}, []string{"BulkCount"}},
		{bulkView{}, []string{"Bulk"}},
		{bulkLinksView{}, []string{"BulkLinks"}},
		{bulkItemView{}, []string{"BulkItem"}},
		{listView[bulkView]{}, []string{"BulkPage"}},
		{listView[bulkItemView]{}, []string{"BulkItemPage"}},
		{webhookView{}, []string{"Webhook"}},
		{webhookView{}, []string{"WebhookMembers"}},
		{issuedWebhookView{}, []string{"IssuedWebhook"}},
		{webhookLinksView{}, []string{"WebhookLinks"}},
		{listView[webhookView]{}, []string{"WebhookPage"}},
		{fixtureView{}, []string{"MadeFixture"}},
		{fixturesView{}, []string{"FixturesReceipt"}},
		{resetView{}, []string{"ResetReceipt"}},
		{faultView{}, []string{"Fault"}},
		{testbed.Match{}, []string{"FaultMatch"}},
		{testbed.Effect{}, []string{"FaultEffect"}},
		{listView[faultView]{}, []string{"FaultPage"}},
		{testbed.ClockState{}, []string{"Clock"}},
		{testbed.Session{}, []string{"Session"}},
		{listView[testbed.Session]{}, []string{"SessionPage"}},
		{testbed.Verdict{}, []string{"Verdict"}},
		{testbed.RuleResult{}, []string{"RuleResult"}},
		{testbed.Evidence{}, []string{"Evidence"}},
		{causeView{}, []string{"DisabledCause", "SendFailure"}},
		{deletedView{}, []string{"Deleted"}},
		{replayView{}, []string{"Replay"}},
		{deliveryView{}, []string{"Delivery"}},
		{deliveryView{}, []string{"DeliveryMembers"}},
		{loggedDeliveryView{}, []string{"LoggedDelivery"}},
		{deliveryLinksView{}, []string{"DeliveryLinks"}},
		{listView[deliveryView]{}, []string{"DeliveryPage"}},
		{tryView{}, []string{"DeliveryAttempt"}},
		{receivedView{}, []string{"ReceiverResponse"}},
		{canceledView{}, []string{"CanceledJobs"}},
		{healthView{}, []string{"Health"}},
		{Readiness{}, []string{"Readiness"}},
	}
	seen := map[string]bool{}
	for _, test := range tests {
		var all []members
		for _, schema := range test.schemas {
			require.NotNil(t, root.in("components", "schemas", schema), schema)
			all = append(all, documented(root, schema))
			seen[schema] = true
		}
		shown := membersOf(reflect.TypeOf(test.view))
		if _, ok := test.view.(job.Document); ok {
			shown["instance"] = true // it may be left out, and never is
		}
		require.Equal(t, either(all...), shown, "%v", test.schemas)
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
	known := append(namesInCode(t, "decode/job.go", "members"), "idempotency_key")
	scheduleMembers := []string{"name", "cron", "time_zone", "interval", "jitter", "start_at", "end_at", "overlap", "catch_up",
		"catch_up_max", "job"}
	tests := map[string][]string{
		"JobRequest":       known,
		"Emission":         namesInCode(t, "decode/job.go", "readEvent"),
		"BatchRequest":     append(namesInCode(t, "decode/batch.go", "members"), "idempotency_key"),
		"BatchItemRequest": without(append(namesInCode(t, "decode/batch.go", "item"), known...), "idempotency_key"),
		"KeyRequest":       namesInCode(t, "decode/client.go", "CreateKey"),
		"RevokeRequest":    namesInCode(t, "decode/client.go", "RevokeKey"),
		"BulkRequest":      namesInCode(t, "decode/bulk.go", "Bulk"),
		"BulkFilter":       namesInCode(t, "decode/bulk.go", "bulkFilter"),
		"ScheduleRequest":  append(scheduleMembers, "paused"),
		"SchedulePatch":    scheduleMembers,
		"ScheduledJob":     without(known, "idempotency_key"),
		"FaultProfile":     namesInCode(t, "decode/testbed.go", "FaultRules"),
		"SessionRequest":   namesInCode(t, "decode/session.go", "Session"),
		"ClockMove":        namesInCode(t, "decode/clock.go", "ClockMove"),
		"FaultRule":        namesInCode(t, "decode/testbed.go", "faultRule"),
		"FixturesRequest":  namesInCode(t, "decode/fixtures.go", "Fixtures"),
		"Fixture":          namesInCode(t, "decode/fixtures.go", "fixture"),
		"FaultMatch":       namesInCode(t, "decode/testbed.go", "faultMatch"),
		"FaultEffect":      namesInCode(t, "decode/testbed.go", "effectMembers"),
		"WebhookRequest":   append(namesInCode(t, "decode/webhook.go", "Webhook"), "idempotency_key"),
		"WebhookPatch":     namesInCode(t, "decode/webhook.go", "WebhookPatch"),
		"SinceRequest":     namesInCode(t, "decode/webhook.go", "Since"),
		"EmptyRequest":     nil,
		"Behavior":         namesInCode(t, "decode/behavior.go", "read"),
		"PlannedFailure":   namesInCode(t, "decode/behavior.go", "readFailure"),
		"PlannedProblem":   namesInCode(t, "decode/behavior.go", "readProblem"),
		"PlannedResult":    namesInCode(t, "decode/behavior.go", "readResult"),
		"PlannedEvent":     namesInCode(t, "decode/behavior.go", "readEvent"),
	}
	for schema, names := range tests {
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
