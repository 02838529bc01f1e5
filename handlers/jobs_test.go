package handlers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func at(seconds int) *time.Time {
	t := now.Add(time.Duration(seconds) * time.Second)
	return &t
}

var definition = job.Definition{
	WorkKind: job.SuccessFast, DurationMS: 1000, PayloadSize: 4096, ExpectedOutcome: "SUCCEEDED", Seed: 42,
}

func finishedJob(context.Context, job.ID, job.ID) (*job.Job, error) {
	return &job.Job{
		ID: jobID, ClientID: clientA, Type: job.Execute, WorkKind: job.SuccessFast, Definition: &definition,
		Params: []byte(`{"a": "<&>"}`), State: job.Succeeded, Outcome: job.OutcomeSuccess, Attempt: 1, MaxAttempts: 4, EventSeq: 5,
		CreatedAt: now, UpdatedAt: *at(2), RunAt: now, StartedAt: at(1), FinishedAt: at(2),
		Result: &job.ResultInfo{MediaType: "text/plain", Size: 4096, SHA256: [32]byte{1, 0xab}, ExpiresAt: *at(3600)},
	}, nil
}

func failedJob(context.Context, job.ID, job.ID) (*job.Job, error) {
	return &job.Job{
		ID: jobID, ClientID: clientA, Type: job.Deferred, WorkKind: job.RetryOnFail,
		State: job.Failed, Outcome: job.OutcomeFailed, Attempt: 2, MaxAttempts: 4, AutoRetry: true, EventSeq: 9,
		CreatedAt: now, UpdatedAt: *at(4), ExecutionAt: at(1), RunAt: *at(1), StartedAt: at(2), FinishedAt: at(4),
		Failure:  job.NewFailure(job.FailedOnce, 2, job.Backoff{Base: time.Second, Max: time.Minute}),
		Callback: "https://example.com/cb", CorrelationID: "corr-1", Language: "de",
	}, nil
}

func finishedReport(context.Context, job.ID, job.ID, int) (*job.Report, error) {
	return &job.Report{
		Origin:  job.Origin{JobID: jobID, CreatedAt: now},
		Attempt: job.Attempt{Number: 1, State: job.Succeeded, Outcome: job.OutcomeSuccess, StartedAt: at(1), FinishedAt: at(2)},
		Events: []job.Event{
			{ID: clientB, JobID: jobID, Seq: 1, Name: job.EventCreated, Next: job.Created, Attempt: 1, At: now,
				Data: []byte(`{"work_kind":"SUCCESS_FAST"}`)},
			{ID: clientB, JobID: jobID, Seq: 2, Name: job.EventQueued, Prev: job.Created, Next: job.Queued, Attempt: 1, At: now, Data: []byte(`{}`)},
			{ID: clientB, JobID: jobID, Seq: 3, Name: job.EventEmitted, Attempt: 1, At: now, Data: []byte(`{"name":"a"}`)},
		},
		Duration: 1234 * time.Millisecond,
	}, nil
}

func failedReport(context.Context, job.ID, job.ID, int) (*job.Report, error) {
	j, _ := failedJob(context.Background(), job.ID{}, job.ID{})
	return &job.Report{Origin: j.Origin(), Attempt: j.CurrentAttempt(), Duration: 2 * time.Second}, nil
}

func finishedAttempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) {
	j, err := finishedJob(ctx, client, id)
	return j.Origin(), []job.Attempt{j.CurrentAttempt()}, err
}

// failedAttempts are a canceled, a failed and a running one.
func failedAttempts(context.Context, job.ID, job.ID) (job.Origin, []job.Attempt, error) {
	j, _ := failedJob(context.Background(), job.ID{}, job.ID{})
	return j.Origin(), []job.Attempt{
		{Number: 1, State: job.Canceled, Outcome: job.OutcomeCanceled, FinishedAt: at(1)},
		j.CurrentAttempt(),
		{Number: 3, State: job.Running, StartedAt: at(6)},
	}, nil
}

const jobSelf = "/v1/jobs/01890000-0000-7000-8000-000000000001"

// Promise: patterns Polling
func TestRetryAfterOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, test := range []struct {
		state job.State
		runIn time.Duration
		want  string
	}{
		{job.Queued, -time.Hour, "1"}, {job.Queued, 0, "1"}, {job.Queued, 1500 * time.Millisecond, "2"}, {job.Created, 10 * time.Second, "10"},
		{job.Created, time.Hour, "60"}, {job.Assigned, time.Hour, "1"}, {job.Running, -time.Hour, "1"},
	} {
		w.jobs.job = func(ctx context.Context, client, id job.ID) (*job.Job, error) {
			j, err := finishedJob(ctx, client, id)
			j.State, j.Outcome, j.RunAt = test.state, "", now.Add(test.runIn)
			return j, err
		}
		require.Equal(t, test.want, w.send("GET", jobSelf, "").Header.Get("Retry-After"), test)
	}
}

// Promise: contract 8b
// Promise: patterns Retry API
func TestChangesOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked []job.ID
	var err error
	w.jobs.change = func(_ context.Context, client, id job.ID) (job.Change, error) {
		asked = []job.ID{client, id}
		return job.Change{JobID: id, State: job.Queued, Attempt: 3, UpdatedAt: now, Changed: true}, err
	}
	w.jobs.remove = func(_ context.Context, client, id job.ID) (struct{}, error) {
		asked = []job.ID{client, id}
		return struct{}{}, err
	}
	for _, change := range []struct {
		method, path, answer string
		status               int
	}{
		{"POST", jobSelf + "/cancel", `"changed":true}`, 200}, {"POST", jobSelf + "/retry", `"changed":true,"attempt":3}`, 200},
		{"DELETE", jobSelf, "", 204},
	} {
		for _, body := range []string{"", "{}", " { } \n"} {
			asked, err = nil, nil
			a := w.send(change.method, change.path, body)
			require.Equal(t, change.status, a.StatusCode)
			require.Contains(t, a.text, change.answer)
			require.Equal(t, []job.ID{clientA, jobID}, asked)
		}
		for _, body := range []string{`{"a":1}`, `[]`, `null`, `{`, `{}{}`, ` `, "\x00"} {
			w.send(change.method, change.path, body).requireProblem(t, job.CodeMalformed)
		}
		err = job.Errorf(job.CodeConflict, "The job cannot be changed.")
		w.send(change.method, change.path, "").requireProblem(t, job.CodeConflict)
	}
}

// Promise: draft 3.6, 3.7, 6.7
func TestReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.job = failedJob
	var asked int
	w.jobs.report = func(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error) {
		asked = attempt
		r, err := failedReport(ctx, client, id, attempt)
		r.Failure = job.NewFailure(job.FailedImmediately, 2, job.Backoff{})
		return r, err
	}
	for query, want := range map[string]int{"": 0, "?attempt=1": 1, "?attempt=999999999": 999999999} {
		require.Empty(t, w.send("GET", jobSelf+"/report"+query, "").Header.Get("Retry-After"), "it is not retryable")
		require.Equal(t, want, asked)
	}
	for _, n := range []string{"0", "-1", "+1", "01", "1.0", "x", "1x", "1e1", "9999999999", "%31%00", "٣"} {
		w.send("GET", jobSelf+"/report?attempt="+n, "").requireProblem(t, job.CodeMalformed)
		w.send("GET", jobSelf+"/attempts/"+n, "").requireProblem(t, job.CodeRequestNotFound)
	}
	w.jobs.attempts = failedAttempts
	w.send("GET", jobSelf+"/attempts/4", "").requireProblem(t, job.CodeJobNotFound)
}

func TestClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, 201, w.send("POST", "/v1/clients", "", "Authorization", "-").StatusCode)
	require.True(t, w.clients.caller.Anonymous())
	keys := "/v1/clients/" + clientB.String() + "/keys"
	for body, rotate := range map[string]bool{"": false, "{}": false, `{"rotate":true}`: true, `{"rotate":null}`: false} {
		a := w.send("POST", keys, body)
		require.Equal(t, 201, a.StatusCode)
		require.Equal(t, rotate, w.clients.rotate)
		require.Equal(t, []job.ID{clientA, clientB}, []job.ID{w.clients.caller.ClientID, w.clients.client})
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	}
	require.Equal(t, 200, w.send("POST", keys+"/revoke", `{"key_id":"a\u0062c"}`, "Authorization", "Bearer "+adminKey).StatusCode)
	require.Equal(t, "abc", w.clients.keyID)
	require.True(t, w.clients.caller.Admin)
	w.clients.err = job.Errorf(job.CodeForbidden, "Open registration is off.")
	for path, body := range map[string]string{"/v1/clients": "", keys: "", keys + "/renew": "", keys + "/revoke": `{"key_id":"abc"}`} {
		w.send("POST", path, body).requireProblem(t, job.CodeForbidden)
	}
}

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
	require.Equal(t, "respond-async", a.Header.Get("Preference-Applied"), "a batch is not waited for")
	require.Empty(t, a.Header.Get("Idempotency-Replayed"))
	require.Contains(t, w.log.String(), `"batch_id":"`+batchID.String()+`"`)
	got := w.batches.got
	require.NotZero(t, got.Hash)
	of := []any{clientA, a.Header.Get("X-Request-Id"), now, "de"}
	require.Equal(t, append([]any{"k", ""}, of...),
		[]any{got.IdempotencyKey, got.CorrelationID, got.ClientID, got.RequestID, got.ReceivedAt, got.Language})
	require.Len(t, got.Items, 2)
	for _, item := range got.Items {
		require.Equal(t, of, []any{item.Request.ClientID, item.Request.RequestID, item.Request.ReceivedAt, item.Request.Language})
	}
	require.Equal(t, []string{"own", "/type"}, []string{got.Items[0].Request.CorrelationID, got.Items[1].Request.Violations[0].Pointer})

	a = w.send("POST", "/v1/jobs/batch", `{"jobs":[{"type":"EXECUTE","correlation_id":"own"}]}`, "Idempotency-Key", "again", "Traceparent",
		traceparent)
	require.Equal(t, "true", a.Header.Get("Idempotency-Replayed"))
	got = w.batches.got
	require.Equal(t, []string{clientTrace, clientTrace, traceparent}, // headers win
		[]string{got.CorrelationID, got.Items[0].Request.CorrelationID, got.Items[0].Request.TraceParent})
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

// A key that is revoked while its client waits does not read any more. What was
// accepted before is acknowledged all the same.
func TestKeyIsCheckedAfterAWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	statefulJob(w, job.Running)
	meanwhile := func(do func()) {
		w.clients.change(func() { w.clients.gone = nil })
		w.jobs.await = func(ctx context.Context, _ func(*job.Job) bool) (*job.Job, error) {
			do()
			return finishedJob(ctx, clientA, jobID)
		}
	}
	meanwhile(func() { w.clients.revoke(goodKey) })
	w.send("GET", jobSelf, "", "Prefer", "wait=5").requireProblem(t, job.CodeKeyDisabled)
	meanwhile(func() { w.clients.revoke(goodKey) })
	a := w.submit("", "Prefer", "wait=5")
	require.Equal(t, 202, a.StatusCode)
	require.Contains(t, a.text, `"state":"QUEUED"`)
	waits := 0
	w.clients.change(func() { w.clients.gone = nil })
	w.jobs.await = func(ctx context.Context, _ func(*job.Job) bool) (*job.Job, error) {
		if waits++; waits == 2 {
			w.clients.revoke(goodKey)
		}
		w.clients.tell() // at first of a renewal
		<-ctx.Done()
		return finishedJob(context.Background(), clientA, jobID)
	}
	w.send("GET", jobSelf, "", "Prefer", "wait=60").requireProblem(t, job.CodeKeyDisabled)
	require.Equal(t, 2, waits, "a key that is still good goes on waiting, one that is not ends the wait at once")
	meanwhile(func() { w.clients.change(func() { w.clients.down = job.Errorf(job.CodeStorageUnavailable, "away") }) })
	require.Equal(t, 200, w.send("GET", jobSelf, "", "Prefer", "wait=5").StatusCode, "nothing is known against it")
}
