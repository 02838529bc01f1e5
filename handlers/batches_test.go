package handlers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

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
	w.batches.submit = func(ctx context.Context, r job.BatchRequest) (*job.Batch, bool, error) {
		b, err := openBatch(ctx, clientA, batchID)
		return b, r.IdempotencyKey == "again", err
	}
	a := w.send("POST", "/v1/jobs/batch",
		`{"jobs":[{"type":"EXECUTE","correlation_id":"own"},{"item_id":"b","type":"NOPE"}],"idempotency_key":"k"}`,
		"Accept-Language", "de", "Prefer", "respond-async, wait=5")
	require.Equal(t, 202, a.StatusCode)
	require.JSONEq(t, `{"batch_id": "01890000-0000-7000-8000-0000000000ba", "created_at": "2030-01-31T12:00:00.123456Z", "jobs": [
		{"item_id": "0", "job_id": "01890000-0000-7000-8000-000000000001", "state": "QUEUED"},
		{"item_id": "b", "failure": {"type": "https://forgerun.example/problems/validation-failed", "title": "Validation failed", "status": 400,
			"detail": "The item has invalid values.", "instance": "`+batchSelf+`#/jobs/1", "code": "RFA_JOB_VALIDATION_FAILED",
			"violations": [{"pointer": "/jobs/1/type", "detail": "No."}], "retryable": false, "processingStage": "validation"}}
	]}`, a.text)
	for name, value := range map[string]string{
		"Content-Language": "en", "Location": batchSelf, "Link": "<" + batchSelf + `>; rel="status"`,
		"Preference-Applied": "respond-async", "Idempotency-Replayed": "", // a batch is not waited for
	} {
		require.Equal(t, value, a.Header.Get(name), name)
	}
	require.Contains(t, w.log.String(), `"batch_id":"`+batchID.String()+`"`)

	got := w.batches.got
	require.Equal(t, "k", got.IdempotencyKey)
	require.NotZero(t, got.Hash)
	require.Empty(t, got.CorrelationID)
	of := []any{clientA, a.Header.Get("X-Request-Id"), now, "de"}
	require.Equal(t, of, []any{got.ClientID, got.RequestID, got.ReceivedAt, got.Language})
	require.Len(t, got.Items, 2)
	for _, item := range got.Items {
		require.Equal(t, of, []any{item.Request.ClientID, item.Request.RequestID, item.Request.ReceivedAt, item.Request.Language})
	}
	require.Equal(t, "own", got.Items[0].Request.CorrelationID)
	require.Equal(t, "/type", got.Items[1].Request.Violations[0].Pointer)

	a = w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE","correlation_id":"own"}]}`, "Idempotency-Key", "again", "Traceparent",
		traceparent)
	require.Equal(t, "true", a.Header.Get("Idempotency-Replayed"))
	got = w.batches.got
	require.Equal(t, []string{clientTrace, clientTrace, traceparent}, // headers win
		[]string{got.CorrelationID, got.Items[0].Request.CorrelationID, got.Items[0].Request.TraceParent})

	w.batches.submit = func(context.Context, job.BatchRequest) (*job.Batch, bool, error) {
		return nil, false, job.Errorf(job.CodeQueueFull, "Full.")
	}
	w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"}]}`).requireProblem(t, job.CodeQueueFull)
}

// aBatchIs is what every answer has of a batch of these tests.
const aBatchIs = `"batch_id": "01890000-0000-7000-8000-0000000000ba", "created_at": "2030-01-31T12:00:00.123456Z", "total": 2, `

func TestGetOpenBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.batches.batch = openBatch
	for _, a := range []*answer{w.send("GET", batchSelf, ""), w.send("POST", batchSelf+"/cancel", "")} {
		require.Equal(t, 200, a.StatusCode)
		require.Equal(t, "1", a.Header.Get("Retry-After"))
		require.Equal(t, "Accept", a.Header.Get("Vary"))
		require.Empty(t, a.Header.Get("Content-Language"))
		require.Equal(t, "<"+batchSelf+`/jobs>; rel="https://forgerun.example/rels/batch-jobs"`, a.Header.Get("Link"))
		require.JSONEq(t, `{`+aBatchIs+`"status": "PROCESSING", "completed_at": null, "outcome": null, "correlation_id": null,
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
	require.JSONEq(t, `{`+aBatchIs+`"status": "FAILED", "completed_at": "2030-01-31T12:00:09.123456Z", "correlation_id": "corr-1",
		"counts": {"created": 0, "queued": 0, "assigned": 0, "running": 0, "succeeded": 0, "failed": 1, "canceled": 0, "refused": 1},
		"outcome": {"status": "FAILED", "succeeded": 0, "failed": 2, "canceled": 0, "failed_items": [
			{"item_id": "0", "job_id": "01890000-0000-7000-8000-000000000001", "status": "TIMED_OUT", "retryable": true,
				"processing_stage": "processing", "detail": "Der Job lief länger, als die Grenze der Laufzeit erlaubt."},
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

func TestItemsOfABatchCountForTheRateLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *Config, d *Deps) { d.Limiter = fakeLimiter{answer: allowed, maxItems: 2} })
	require.Equal(t, 202, w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"},{"type":"NOPE"}]}`).StatusCode)
	w.batches.got = job.BatchRequest{}
	a := w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"},{"type":"EXECUTE"},{"type":"EXECUTE"}]}`)
	a.requireProblem(t, job.CodeRateLimited)
	require.Equal(t, "90", a.Header.Get("Retry-After"))
	require.Empty(t, w.batches.got.Items)

	w.jobs.deliveries = 2
	w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE"},{"type":"EXECUTE"}]}`).requireProblem(t, job.CodeRateLimited)
	require.Equal(t, 202, w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`).StatusCode)
	w.jobs.deliveries = 3
	a = w.send("POST", "/v1/jobs", `{"type":"EXECUTE"}`)
	a.requireProblem(t, job.CodeRateLimited)
	require.Contains(t, a.text, "this one as 3")
}
