package handlers

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/site"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/job/view"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
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

// TestDocumentHasTheMembers: no member of an answer is missing from the document or extra in it, and what may be absent is not required.
// Most answers are of types that are made of the document; these are not.
// Promise: draft 10.1
func TestDocumentHasTheMembers(t *testing.T) {
	t.Parallel()
	root := openAPI()
	for schema, shape := range map[string]any{
		"JobReceipt": view.Receipt{}, "JobChange": view.Change{}, "JobRetry": view.Retried{}, "Problem": problem.Document{},
		"Violation": job.Violation{}, "Scenario": job.Scenario{}, "ItemOutcome": job.ItemOutcome{}, "BulkReceipt": view.BulkReceipt{},
		"ScheduleError": job.ScheduleError{}, "BulkReason": job.BulkReason{}, "BulkItem": view.BulkItem{}, "DisabledCause": view.Cause{},
		"JobPage": query.List[api.JobSummary]{}, "PageInfo": query.Info{}, "Fault": fault.View{}, "FaultMatch": fault.Match{},
		"FaultEffect": fault.Effect{}, "FaultCount": fault.Count{}, "Clock": testbed.ClockState{}, "Session": verdict.Session{},
		"Verdict": verdict.Verdict{}, "RuleResult": verdict.Result{}, "RuleFix": verdict.Fix{}, "VerdictGuess": verdict.Guess{},
		"Evidence": verdict.Evidence{}, "Moment": verdict.Moment{}, "JournalEntry": verdict.Entry{}, "Readiness": site.Readiness{},
	} {
		require.Equal(t, documented(root, schema), membersOf(reflect.TypeOf(shape)), schema)
	}
}

// TestDocumentIsStrict: every object of the document says that it has no other
// members, or by propertyNames which others it may have; those aside whose
// members are the client's own or the event's.
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

// namesMembers tells whether a conditional rule lists the members. Generators
// make of it a type without an index signature, unlike additionalProperties.
func namesMembers(rule any) bool {
	o, _ := rule.(map[string]any)
	return o["then"] != nil && tree(o).in("then", "propertyNames") != nil
}

// TestDocumentHasTheRequests: who sends a member that is not known gets those that the document has.
func TestDocumentHasTheRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.TestBed = true }).full()
	root := openAPI()
	allowed := regexp.MustCompile(`The object may have (.*)\.$`)
	const custom = `{"type":"EXECUTE","work_kind":"CUSTOM","params":{"behavior":`
	for _, test := range []struct{ schema, method, path, body string }{ // with #: what is not known
		{"JobRequest", httpkit.Post, "/v1/jobs", `{#}`}, {"Emission", httpkit.Post, "/v1/jobs", `{"event":{#}}`},
		{"Behavior", httpkit.Post, "/v1/jobs", custom + `{#}}}`}, {"PlannedFailure", httpkit.Post, "/v1/jobs", custom + `{"failures":[{#}]}}}`},
		{"PlannedResult", httpkit.Post, "/v1/jobs", custom + `{"result":{#}}}}`},
		{"PlannedEvent", httpkit.Post, "/v1/jobs", custom + `{"emit":[{#}]}}}`},
		{"BatchRequest", httpkit.Post, "/v1/jobs/batch", `{#}`}, {"KeyRequest", httpkit.Post, clientPath("/keys"), `{#}`},
		{"RevokeRequest", httpkit.Post, clientPath("/keys/revoke"), `{#}`}, {"BulkRequest", httpkit.Post, "/v1/bulk", `{#}`},
		{"BulkFilter", httpkit.Post, "/v1/bulk", `{"filter":{#}}`}, {"ScheduleRequest", httpkit.Post, "/v1/schedules", `{#}`},
		{"SchedulePatch", "PATCH", "/v1/schedules/" + scheduleID.String(), `{#}`},
		{"WebhookRequest", httpkit.Post, "/v1/webhooks", `{#}`}, {"WebhookPatch", "PATCH", webhookSelf, `{#}`},
		{"SinceRequest", httpkit.Post, webhookSelf + "/replay", `{#}`}, {"SinceRequest", httpkit.Post, webhookSelf + "/redeliver", `{#}`},
		{"FaultProfile", "PUT", faultsPath, `{#}`}, {"FaultRule", "PUT", faultsPath, `[{#}]`},
		{"FaultMatch", "PUT", faultsPath, `[{"match":{#}}]`}, {"FaultEffect", "PUT", faultsPath, `[{"effect":{#}}]`},
		{"SessionRequest", httpkit.Post, "/v1/testbed/sessions", `{#}`}, {"ClockMove", httpkit.Post, "/v1/testbed/clock", `{#}`},
		{"FixturesRequest", httpkit.Post, "/v1/testbed/fixtures", `{#}`}, {"Fixture", httpkit.Post, "/v1/testbed/fixtures", `{"jobs":[{#}]}`},
	} {
		a := w.send(test.method, test.path, strings.Replace(test.body, "#", `"#":0`, 1))
		i := slices.IndexFunc(a.problem(t).Violations, func(v job.Violation) bool { return strings.HasSuffix(v.Pointer, "/#") })
		require.GreaterOrEqual(t, i, 0, a.text)
		listed := allowed.FindStringSubmatch(a.problem(t).Violations[i].Detail)
		require.NotNil(t, listed, a.text)
		require.ElementsMatch(t, strings.Split(listed[1], ", "), slices.Collect(maps.Keys(documented(root, test.schema))), test.schema)
	}
	ofProblem := []string{"type", "title", "status", "detail", "code", "retryable", "retryAfter", "stage"}
	require.ElementsMatch(t, ofProblem, slices.Collect(maps.Keys(documented(root, "PlannedProblem"))))
	item := documented(root, "JobRequest")
	delete(item, "idempotency_key")
	require.Equal(t, item, documented(root, "ScheduledJob"))
	item["item_id"] = false
	require.Equal(t, item, documented(root, "BatchItemRequest"))
	require.Empty(t, documented(root, "EmptyRequest"))
}

func without(list []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(some, s) })
}

// finer are the values of which a sentence of the document says more than their schemas can.
var finer = regexp.MustCompile(`/(cron|time_zone|interval|jitter|media_type|operation|cursor|advance|for|delay|refuse)$|^cursor$|` +
	`/result/body$|` + // its bytes count
	`^/jobs/0/(progress|problem|result)$|/effect/(status|reset|to_other_host)$`) // not with each other member

// TestRequestsAreAsDocumented sends values at the edges of what the document allows for each parameter and member: what it allows
// is not refused, and what it does not is, with its place.
func TestRequestsAreAsDocumented(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.TestBed = true }).full()
	ids := func(operation, parameter string) string {
		switch {
		case parameter == "n":
			return "1"
		case parameter == "slug":
			return "conflict"
		case parameter == "name":
			return "job-result"
		case parameter == "id" && strings.Contains(operation, "Schedule"):
			return scheduleID.String()
		}
		return jobID.String()
	}
	const anyParams = "{type: object, additionalProperties: true}, " // but those of CUSTOM
	document := strings.Replace(string(docs.OpenAPI), anyParams, "", 1)
	requests := apitest.Requests(t, []byte(document), true, ids)
	require.Greater(t, len(requests), 3000)
	for _, r := range requests {
		if strings.Contains(r.At, "/params") {
			r.Body = strings.Replace(r.Body, `"params":`, `"work_kind":"CUSTOM","params":`, 1)
		}
		headers := []string{"Content-Type", r.Media}
		for name, values := range r.Header {
			headers = append(headers, name, values[0])
		}
		a := w.send(r.Method, r.Path, r.Body, headers...)
		// Here everything has the id that is asked for, and an item of a batch is refused in the answer.
		item := r.Operation == "submitBatch" && strings.HasPrefix(r.At, "/jobs/0")
		if r.Allowed = r.Allowed || r.In == "path" || item; item && a.StatusCode < 500 {
			continue
		}
		assert.Empty(t, r.Problem(a.StatusCode, a.text, func(r *apitest.Request) bool { return finer.MatchString(r.At) }))
	}
}
