package handlers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

// openBatch has a running job and a refused item.
func openBatch(context.Context, job.ID, job.ID) (*job.Batch, error) {
	return &job.Batch{
		ID: batchID, ClientID: clientA, CreatedAt: now, Language: "de",
		Items: []job.BatchItem{
			{ItemID: "0", JobID: jobID, State: job.Queued},
			{ItemID: "b", Refusal: &job.Refusal{
				Code: job.CodeValidationFailed, Detail: "The item has invalid values.",
				Violations: []job.Violation{{Pointer: "/jobs/1/type", Detail: "No."}},
			}},
		},
		Counts: map[job.State]int{job.Running: 1},
	}, nil
}

// failedBatch is openBatch, ended with a failure.
func failedBatch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	b, err := openBatch(ctx, client, id)
	b.Counts, b.CorrelationID = map[job.State]int{job.Failed: 1}, "corr-1"
	b.Outcome = &job.BatchOutcome{
		Status: job.StatusFailed, CompletedAt: *at(9), Failed: 2,
		Failures: []job.ItemFailure{
			{ItemID: "0", JobID: jobID, Status: job.StatusTimedOut, Reason: job.TimedOut, Detail: "In English.", Retryable: true,
				Stage: job.StageProcessing},
			{ItemID: "b", Status: job.StatusFailed, Detail: "The item has invalid values.", Stage: job.StageValidation},
		},
	}
	return b, err
}

const batchSelf = "/v1/batches/01890000-0000-7000-8000-0000000000ba"

func TestSubmitBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var got job.BatchRequest
	w.batches.submit = func(_ context.Context, r job.BatchRequest) (*job.Batch, bool, error) {
		got = r
		b, err := openBatch(context.Background(), clientA, batchID)
		return b, r.IdempotencyKey == "again", err
	}
	a := w.send("POST", "/v1/jobs/batch",
		`{"jobs":[{"type":"EXECUTE","correlation_id":"own"},{"item_id":"b","type":"NOPE"}],"idempotency_key":"k"}`,
		"Accept-Language", "de", "Prefer", "respond-async, wait=5")
	require.Equal(t, 202, a.StatusCode)
	require.JSONEq(t, `{"batch_id": "01890000-0000-7000-8000-0000000000ba", "created_at": "2030-01-31T12:00:00.123456Z", "jobs": [
		{"item_id": "0", "job_id": "01890000-0000-7000-8000-000000000001", "state": "QUEUED"},
		{"item_id": "b", "failure": {"type": "https://forgerun.example/problems/validation-failed", "title": "Validation failed", "status": 400,
			"detail": "The item has invalid values.", "instance": "`+batchSelf+`#/jobs/1",
			"code": "RFA_JOB_VALIDATION_FAILED", "violations": [{"pointer": "/jobs/1/type",
				"detail": "No."}],
			"retryable": false, "processingStage": "validation"}}
	]}`, a.text)
	require.Equal(t, "en", a.Header.Get("Content-Language"), "of the refusal")
	require.Equal(t, batchSelf, a.Header.Get("Location"))
	require.Equal(t, "<"+batchSelf+`>; rel="status"`, a.Header.Get("Link"))
	require.Equal(t, "respond-async", a.Header.Get("Preference-Applied"), "a batch is not waited for")
	require.Empty(t, a.Header.Get("Idempotency-Replayed"))
	require.Contains(t, w.log.String(), `"batch_id":"`+batchID.String()+`"`)

	require.Equal(t, clientA, got.ClientID)
	require.Equal(t, "k", got.IdempotencyKey)
	require.NotZero(t, got.Hash)
	require.Equal(t, "de", got.Language)
	require.Empty(t, got.CorrelationID)
	require.Equal(t, now, got.ReceivedAt)
	require.Equal(t, a.Header.Get("X-Request-Id"), got.RequestID)
	require.Len(t, got.Items, 2)
	for _, item := range got.Items {
		require.Equal(t, got.ClientID, item.Request.ClientID)
		require.Equal(t, got.RequestID, item.Request.RequestID)
		require.Equal(t, now, item.Request.ReceivedAt)
		require.Equal(t, "de", item.Request.Language)
	}
	require.Equal(t, "own", got.Items[0].Request.CorrelationID)
	require.Equal(t, []job.Violation{{Pointer: "/type", Detail: got.Items[1].Request.Violations[0].Detail}}, got.Items[1].Request.Violations)

	a = w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE","correlation_id":"own"}]}`, "Idempotency-Key", "again", "Traceparent",
		traceparent)
	require.Equal(t, "true", a.Header.Get("Idempotency-Replayed"))
	require.Equal(t, traceparent[3:35], got.CorrelationID)
	require.Equal(t, traceparent[3:35], got.Items[0].Request.CorrelationID, "headers win")
	require.Equal(t, traceparent, got.Items[0].Request.TraceParent)

	w.batches.submit = func(context.Context, job.BatchRequest) (*job.Batch, bool, error) {
		return nil, false, job.Errorf(job.CodeQueueFull, "Full.")
	}
	w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"}]}`).requireProblem(t, job.CodeQueueFull)
}

func TestGetOpenBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("GET", batchSelf, "").requireProblem(t, job.CodeBatchNotFound)
	w.batches.batch = openBatch
	for _, a := range []*answer{w.send("GET", batchSelf, ""), w.send("POST", batchSelf+"/cancel", "")} {
		require.Equal(t, 200, a.StatusCode)
		require.Equal(t, "1", a.Header.Get("Retry-After"))
		require.Equal(t, "Accept", a.Header.Get("Vary"))
		require.Empty(t, a.Header.Get("Content-Language"))
		require.Equal(t, "<"+batchSelf+`/jobs>; rel="https://forgerun.example/rels/batch-jobs"`, a.Header.Get("Link"))
		require.JSONEq(t,
			`{"batch_id": "01890000-0000-7000-8000-0000000000ba", "status": "PROCESSING", "created_at": "2030-01-31T12:00:00.123456Z",
			"completed_at": null, "total": 2, "outcome": null, "correlation_id": null,
			"counts": {"created": 0, "queued": 0, "assigned": 0, "running": 1, "succeeded": 0, "failed": 0, "canceled": 0, "refused": 1},
			"links": {"self": "`+batchSelf+`", "jobs": "`+batchSelf+`/jobs", "cancel": "`+batchSelf+`/cancel"}}`, a.text)
	}
	w.send("POST", batchSelf+"/cancel", `{"x":1}`).requireProblem(t, job.CodeMalformed)
}

func TestGetCompletedBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.batches.batch = failedBatch
	a := w.send("GET", batchSelf, "")
	require.Empty(t, a.Header.Get("Retry-After"))
	require.Equal(t, "de", a.Header.Get("Content-Language"))
	require.JSONEq(t, `{"batch_id": "01890000-0000-7000-8000-0000000000ba", "status": "FAILED", "created_at": "2030-01-31T12:00:00.123456Z",
		"completed_at": "2030-01-31T12:00:09.123456Z", "total": 2, "correlation_id": "corr-1",
		"counts": {"created": 0, "queued": 0, "assigned": 0, "running": 0, "succeeded": 0, "failed": 1, "canceled": 0, "refused": 1},
		"outcome": {"status": "FAILED", "succeeded": 0, "failed": 2, "canceled": 0, "failed_items": [
			{"item_id": "0", "job_id": "01890000-0000-7000-8000-000000000001", "status": "TIMED_OUT", "retryable": true,
				"processing_stage": "processing",
				"detail": "Der Job lief länger, als die Grenze der Laufzeit erlaubt."},
			{"item_id": "b", "job_id": null, "status": "FAILED", "retryable": false, "processing_stage": "validation",
				"detail": "Der Eintrag wurde bei der Einreichung abgelehnt."}
		]},
		"links": {"self": "`+batchSelf+`", "jobs": "`+batchSelf+`/jobs"}}`, a.text)

	d := w.send("GET", batchSelf, "", "Accept", "application/problem+json")
	require.Equal(t, "application/problem+json", d.Header.Get("Content-Type"))
	require.Equal(t, "de", d.Header.Get("Content-Language"))
	require.NotEqual(t, a.Header.Get("ETag"), d.Header.Get("ETag"))
	for _, part := range []string{
		`"type":"https://forgerun.example/problems/batch-failed"`, `"status":500`, `"jobStatus":"FAILED"`, `"instance":"` + batchSelf + `"`,
		`"itemId":"0"`, `"processingStage":"validation"`,
	} {
		require.Contains(t, d.text, part)
	}
	require.NotContains(t, d.text, "batch_id", "never both spellings in one object")

	w.batches.batch = openBatch
	d = w.send("GET", batchSelf, "", "Accept", "application/problem+json")
	require.Equal(t, "application/json", d.Header.Get("Content-Type"))
	require.Contains(t, d.text, `"jobStatus":"PROCESSING"`)
}

func TestBatchTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.madeUp = true
	seen := map[string]bool{}
	for i, change := range []func(*job.Batch){
		func(*job.Batch) {},
		func(b *job.Batch) { b.Counts = map[job.State]int{job.Queued: 1} },
		func(b *job.Batch) { b.Counts = map[job.State]int{job.Queued: 11} },
		func(b *job.Batch) { b.Counts = map[job.State]int{job.Queued: 1, job.Created: 1} },
		func(b *job.Batch) { b.Counts = map[job.State]int{job.Failed: 1} },
		func(b *job.Batch) {
			b.Counts = map[job.State]int{job.Failed: 1}
			b.Outcome = &job.BatchOutcome{Status: job.StatusProcessing}
		},
	} {
		w.batches.batch = func(ctx context.Context, client, id job.ID) (*job.Batch, error) {
			b, err := openBatch(ctx, client, id)
			change(b)
			return b, err
		}
		for _, accept := range []string{"application/json", "application/problem+json"} {
			tag := w.send("GET", batchSelf, "", "Accept", accept).Header.Get("ETag")
			require.Regexp(t, `^W/"[0-9A-Za-z._-]+"$`, tag)
			require.False(t, seen[tag], i)
			seen[tag] = true
			a := w.send("GET", batchSelf, "", "Accept", accept, "If-None-Match", tag)
			require.Equal(t, 304, a.StatusCode)
			require.Empty(t, a.text)
		}
	}
}

// items writes a body with one item and some more.
func items(more ...string) string {
	return `{"jobs":[` + strings.Join(append([]string{`{"type":"EXECUTE"}`}, more...), ",") + `]}`
}

// TestDecodeBatchRefusesAll has bodies of which nothing is accepted.
func TestDecodeBatchRefusesAll(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		code       job.Code
		at         []string
	}{
		{"blank", ` `, job.CodeMalformed, []string{""}},
		{"array", `[{"type":"EXECUTE"}]`, job.CodeMalformed, []string{""}},
		{"empty", `{}`, job.CodeMalformed, []string{"/jobs"}},
		{"null jobs", `{"jobs":null}`, job.CodeMalformed, []string{"/jobs"}},
		{"object jobs", `{"jobs":{"0":{"type":"EXECUTE"}}}`, job.CodeMalformed, []string{"/jobs"}},
		{"no jobs", `{"jobs":[]}`, job.CodeMalformed, []string{"/jobs"}},
		{"no jobs, unknown member", `{"x":1,"jobs":[]}`, job.CodeMalformed, []string{"/x", "/jobs"}},
		{"jobs twice", `{"jobs":[{"type":"EXECUTE"}],"jobs":[]}`, job.CodeMalformed, []string{"/jobs"}},
		{"unknown member", `{"jobs":[{"type":"EXECUTE"}],"correlation_id":"x"}`, job.CodeMalformed, []string{"/correlation_id"}},
		{"half", `{"jobs":[{"type":"EXECUTE"},`, job.CodeMalformed, []string{""}},
		{"half item", `{"jobs":[{"type":"EXEC`, job.CodeMalformed, []string{""}},
		{"trailing comma", `{"jobs":[{"type":"EXECUTE"},]}`, job.CodeMalformed, []string{"/jobs"}},
		{"something follows", items() + `{}`, job.CodeMalformed, []string{""}},
		{"null item", items(`null`), job.CodeMalformed, []string{"/jobs/1"}},
		{"items that are none", items(`1`, `"x"`, `[]`, `{"type":"EXECUTE"}`, `[{"type":"EXECUTE"}]`, `true`), job.CodeMalformed,
			[]string{"/jobs/1", "/jobs/2", "/jobs/3", "/jobs/5", "/jobs/6"}},
		{"duplicate name in an item", items(`{"type":"EXECUTE","type":"EXECUTE"}`), job.CodeMalformed, []string{"/jobs/1/type"}},
		{"deep item", items(`{"params":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat(`}`, 71)), job.CodeMalformed,
			[]string{"/jobs/1/params" + strings.Repeat("/a", 61)}},
		{"invalid UTF-8", items("{\"type\":\"\xff\"}"), job.CodeMalformed, []string{"/jobs/1/type"}},
		{"number key", `{"jobs":[{"type":"EXECUTE"}],"idempotency_key":1}`, job.CodeMalformed, []string{"/idempotency_key"}},
		{"empty key", `{"jobs":[{"type":"EXECUTE"}],"idempotency_key":""}`, job.CodeValidationFailed, []string{"/idempotency_key"}},
		{"equal ids", items(`{"type":"EXECUTE","item_id":"a"}`, `{"type":"EXECUTE","item_id":"a"}`, `{"type":"EXECUTE","item_id":"\u0061"}`),
			job.CodeMalformed,
			[]string{"/jobs/2/item_id", "/jobs/3/item_id"}},
		{"id of an index before", items(`{"type":"EXECUTE","item_id":"0"}`), job.CodeMalformed, []string{"/jobs/1/item_id"}},
		{"id of an index after", `{"jobs":[{"type":"EXECUTE","item_id":"1"},{"type":"EXECUTE"}]}`, job.CodeMalformed, []string{"/jobs/1"}},
		{"equal ids of refused items", items(`{"item_id":"a"}`, `{"item_id":"a"}`), job.CodeMalformed, []string{"/jobs/2/item_id"}},
		{"too many", items(repeated(`{"type":"EXECUTE"}`, 1000)...), job.CodeMalformed, []string{"/jobs"}},
		{"too many, and broken after it", items(repeated(`{"type":"EXECUTE"}`, 1000)...) + "x", job.CodeMalformed, []string{"/jobs"}},
	}
	w := newWorld(t)
	for _, test := range tests {
		w.batches.submit = func(context.Context, job.BatchRequest) (*job.Batch, bool, error) {
			t.Error(test.name, "reached the use case")
			return nil, false, nil
		}
		p := w.send("POST", "/v1/jobs/batch", test.body).requireProblem(t, test.code)
		var at []string
		for _, v := range p.Violations {
			at = append(at, v.Pointer)
			require.NotEmpty(t, v.Detail)
		}
		require.Equal(t, test.at, at, test.name)
	}
	p := w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"}],"idempotency_key":"a"}`, "Idempotency-Key", "b").requireProblem(t,
		job.CodeValidationFailed)
	require.Equal(t, "/idempotency_key", p.Violations[0].Pointer)
}

func repeated(s string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = s
	}
	return list
}

// TestDecodeBatchRefusesItems has items that are refused alone.
func TestDecodeBatchRefusesItems(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, item string
		malformed  bool
		at         []string // pointers, from the item
	}{
		{"good", `{"type":"EXECUTE","idempotency_key":null,"item_id":null}`, false, nil},
		{"empty", `{}`, true, []string{"/type"}},
		{"unknown member", `{"type":"EXECUTE","x":{"y":1}}`, true, []string{"/x"}},
		{"wrong types", `{"type":1,"work_kind":2,"params":[],"auto_retry":"x","item_id":5}`, true,
			[]string{"/type", "/work_kind", "/params", "/auto_retry", "/item_id"}},
		{"key of its own", `{"type":"EXECUTE","idempotency_key":"k"}`, true, []string{"/idempotency_key"}},
		{"key of another type", `{"type":"EXECUTE","idempotency_key":{"a":1}}`, true, []string{"/idempotency_key"}},
		{"nameless event", `{"type":"EMIT_EVENT","event":{}}`, true, []string{"/event/name"}},
		{"NUL", `{"type":"EXECUTE","params":{"a":"\u0000"}}`, true, []string{"/params/a"}},
		{"NUL in a name", `{"type":"EXECUTE","a\u0000":1}`, true, []string{""}},
		{"form and values", `{"type":"NOPE","x":1,"callback":"ftp://a"}`, true, []string{"/x", "/type", "/callback"}},
		{"wrong values", `{"type":"NOPE","work_kind":"NOPE","callback":"x","event":{"name":""},"correlation_id":"ä","item_id":"a b"}`, false,
			[]string{"/type", "/work_kind", "/callback", "/event/name", "/correlation_id", "/item_id"}},
		{"empty item id", `{"type":"EXECUTE","item_id":""}`, false, []string{"/item_id"}},
		{"long item id", `{"type":"EXECUTE","item_id":"` + strings.Repeat("x", 129) + `"}`, false, []string{"/item_id"}},
		{"large params", `{"type":"EXECUTE","params":{"a":"` + strings.Repeat("x", testPayload) + `"}}`, false, []string{"/params"}},
		{"combinations are not decided here", `{"type":"EXECUTE","event":{"name":"a"}}`, false, nil},
	}
	for _, test := range tests {
		req, err := decode.Batch([]byte(items(test.item, `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`)), "",
			decode.Limits{MaxPayload: testPayload})
		require.NoError(t, err, test.name)
		require.Len(t, req.Items, 3)
		for _, i := range []int{0, 2} {
			require.Empty(t, req.Items[i].Request.Violations, test.name)
		}
		require.Equal(t, job.SuccessFast, req.Items[2].Request.WorkKind)
		item := req.Items[1]
		require.Equal(t, "1", item.ItemID)
		var at []string
		for _, v := range item.Request.Violations {
			at = append(at, v.Pointer)
			require.NotEmpty(t, v.Detail)
		}
		require.Equal(t, test.malformed, item.Request.Malformed, test.name)
		require.Equal(t, test.at, at, test.name)
	}
}

func TestDecodeBatchItemIDs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 128)
	req, err := decode.Batch([]byte(items(`{"type":"EXECUTE","item_id":"`+long+`"}`, `{"item_id":"A.b-c_2","type":"EXECUTE"}`,
		`{"type":"EXECUTE"}`)), "", decode.Limits{MaxPayload: testPayload})
	require.NoError(t, err)
	var ids []string
	for _, item := range req.Items {
		ids = append(ids, item.ItemID)
	}
	require.Equal(t, []string{"0", long, "A.b-c_2", "3"}, ids)
	req, err = decode.Batch([]byte(items(repeated(`{"type":"EXECUTE"}`, 999)...)), "", decode.Limits{MaxPayload: testPayload})
	require.NoError(t, err)
	require.Len(t, req.Items, job.MaxBatchItems)
	require.Equal(t, "999", req.Items[999].ItemID)
}

func TestDecodeBatchBoundsItsComplaints(t *testing.T) {
	t.Parallel()
	var item strings.Builder
	item.WriteString(`{"type":"EXECUTE"`)
	for i := range 60 {
		fmt.Fprintf(&item, `,"%d":0`, i)
	}
	item.WriteString("}")
	req, err := decode.Batch([]byte(items(repeated(item.String(), 500)...)), "", decode.Limits{MaxPayload: testPayload})
	require.NoError(t, err)
	total := 0
	for _, item := range req.Items {
		total += len(item.Request.Violations)
	}
	require.Equal(t, job.MaxViolations, total, "of all items together")
	require.True(t, req.Items[1].Request.Malformed)
	require.Len(t, req.Items[1].Request.Violations, 60)
	require.Equal(t, 500*60-job.MaxViolations, req.Unlisted)
}

func TestBatchHashIsCanonical(t *testing.T) {
	t.Parallel()
	hash := func(body, key string) [32]byte {
		req, err := decode.Batch([]byte(body), key, decode.Limits{MaxPayload: testPayload})
		require.NoError(t, err)
		return req.Hash
	}
	base := hash(`{"jobs":[{"type":"EXECUTE","item_id":"a"},{"x":1}],"idempotency_key":"k"}`, "")
	require.NotZero(t, base)
	require.Equal(t, base, hash(` { "j\u006fbs" : [ {"item_id":"\u0061", "type":"EXECUTE"},{"x":1} ] } `, "k"))
	require.NotEqual(t, base, hash(`{"jobs":[{"type":"EXECUTE","item_id":"b"},{"x":1}]}`, "k"))
	require.NotEqual(t, base, hash(`{"jobs":[{"x":1},{"type":"EXECUTE","item_id":"a"}]}`, "k"), "order counts")
	require.NotEqual(t, base, hash(`{"jobs":[{"type":"EXECUTE","item_id":"a"},{"x":2}]}`, "k"), "refused items count")
	require.Zero(t, hash(items(), ""), "no key, no hash")
}

func TestItemsOfABatchCountForTheRateLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *Config, d *Deps) {
		d.Limiter = fakeLimiter{answer: job.Allowance{OK: true, Policy: "minute", Limit: 2, Remaining: 1}, maxItems: 2}
	})
	accepted := 0
	w.batches.submit = func(context.Context, job.BatchRequest) (*job.Batch, bool, error) {
		accepted++
		b, err := openBatch(context.Background(), clientA, batchID)
		return b, false, err
	}
	require.Equal(t, 202, w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"},{"type":"NOPE"}]}`).StatusCode)
	a := w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"},{"type":"EXECUTE"},{"type":"EXECUTE"}]}`)
	a.requireProblem(t, job.CodeRateLimited)
	require.Equal(t, "90", a.Header.Get("Retry-After"))
	require.Equal(t, 1, accepted)
}
