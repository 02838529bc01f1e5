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

const failureDocument = `{
	"type": "https://forgerun.example/problems/failed-once", "title": "Job fehlgeschlagen, ein neuer Versuch hilft", "status": 504,
	"detail": "Eine vorübergehende Störung hat diesen Versuch beendet.", "code": "RFA_DEPENDENCY_TIMEOUT",
	"instance": "` + jobSelf + `/attempts/2", "jobId": "01890000-0000-7000-8000-000000000001", "jobStatus": "FAILED", "attempt": 2,
	"submittedAt": "2030-01-31T12:00:00.123456Z", "completedAt": "2030-01-31T12:00:04.123456Z",
	"retryable": true, "retryAfter": 2, "processingStage": "processing", "correlationId": "corr-1",
	"scenario": {"workKind": "RETRY_ON_FAIL"}, "language": "de"}`

// jobLinks are the links that every job has.
const jobLinks = `"self": "` + jobSelf + `", "events": "` + jobSelf + `/events", "attempts": "` + jobSelf + `/attempts",
	"deliveries": "` + jobSelf + `/deliveries"`

// Promise: contract 14h
// Promise: patterns Job Resource Model
// Promise: patterns Results
func TestGetSucceededJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.job = finishedJob
	a := w.send("GET", jobSelf, "")
	require.Equal(t, 200, a.StatusCode)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "ETag": `W/"5"`, "Retry-After": "", "Vary": "Accept",
		"Content-Language": "", "Link": "<" + jobSelf + `/result>; rel="https://forgerun.example/rels/job-result"`,
	} {
		require.Equal(t, value, a.Header.Get(name), name)
	}
	require.Contains(t, a.text, `"<&>"`, "params are as they were sent")
	require.JSONEq(t, `{
		"job_id": "01890000-0000-7000-8000-000000000001", "type": "EXECUTE", "work_kind": "SUCCESS_FAST",
		"state": "SUCCEEDED", "outcome": "SUCCESS", "created_at": "2030-01-31T12:00:00.123456Z", "execution_at": null,
		"updated_at": "2030-01-31T12:00:02.123456Z", "started_at": "2030-01-31T12:00:01.123456Z",
		"finished_at": "2030-01-31T12:00:02.123456Z", "canceled_at": null, "estimated_completion": null, "expires_at": null,
		"attempt": 1, "attempts": 1, "max_attempts": 4, "can_retry": false, "auto_retry": false, "batch_id": null,
		"callback": null, "correlation_id": null, "params": {"a": "<&>"},
		"definition": {"work_kind": "SUCCESS_FAST", "duration_ms": 1000, "should_fail": false, "payload_size": 4096,
			"expected_outcome": "SUCCEEDED"},
		"result": {"state": "AVAILABLE", "media_type": "text/plain", "size_bytes": 4096, "expires_at": "2030-01-31T13:00:00.123456Z",
			"checksum": {"algorithm": "sha256", "value": "01ab000000000000000000000000000000000000000000000000000000000000"},
			"download_url": "`+jobSelf+`/result"},
		"links": {`+jobLinks+`, "report": "`+jobSelf+`/report", "result": "`+jobSelf+`/result"}
	}`, a.text)
	for tag, status := range map[string]int{
		`W/"5"`: 304, `"5"`: 304, `*`: 304, `"1", W/"5"`: 304, `W/"5" , "x"`: 304,
		`W/"4"`: 200, `5`: 200, `"55"`: 200, ``: 200, `w/"5"`: 200,
	} {
		a := w.send("GET", jobSelf, "", "If-None-Match", tag)
		require.Equal(t, status, a.StatusCode, tag)
		require.Equal(t, `W/"5"`, a.Header.Get("ETag"))
		require.Equal(t, status == 304, a.text == "")
	}
}

// Promise: patterns Job Resource Model
func TestGetFailedJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.job = failedJob
	a := w.send("GET", jobSelf, "")
	require.Equal(t, "2", a.Header.Get("Retry-After"), "as retryAfter")
	require.Equal(t, "de", a.Header.Get("Content-Language"))
	require.Empty(t, a.Header.Get("Link"))
	require.JSONEq(t, `{
		"job_id": "01890000-0000-7000-8000-000000000001", "type": "DEFERRED", "work_kind": "RETRY_ON_FAIL",
		"state": "FAILED", "outcome": "FAILED", "created_at": "2030-01-31T12:00:00.123456Z", "execution_at": "2030-01-31T12:00:01.123456Z",
		"updated_at": "2030-01-31T12:00:04.123456Z", "started_at": "2030-01-31T12:00:02.123456Z",
		"finished_at": "2030-01-31T12:00:04.123456Z", "canceled_at": null, "estimated_completion": null, "expires_at": null,
		"attempt": 2, "attempts": 2, "max_attempts": 4, "can_retry": true, "auto_retry": true, "batch_id": null,
		"callback": "https://example.com/cb", "correlation_id": "corr-1", "params": null, "definition": null,
		"failure": `+failureDocument+`,
		"links": {`+jobLinks+`, "retry": "`+jobSelf+`/retry", "report": "`+jobSelf+`/report"}
	}`, a.text)
}

// Promise: contract 8b
func TestGetJobInEveryState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, state := range job.States {
		w.jobs.job = func(ctx context.Context, client, id job.ID) (*job.Job, error) {
			j, err := failedJob(ctx, client, id)
			j.State, j.Outcome, j.Attempt = state, job.OutcomeOf(state), 1
			if state != job.Failed {
				j.Failure = nil
			}
			return j, err
		}
		a := w.send("GET", jobSelf, "")
		var v struct {
			Outcome    *string            `json:"outcome"`
			CanceledAt *string            `json:"canceled_at"`
			Failure    map[string]any     `json:"failure"`
			Links      map[string]*string `json:"links"`
		}
		a.json(t, &v)
		final, failed := state.Final(), state == job.Failed
		require.Equal(t, []bool{final, state == job.Canceled, failed, !final, final, failed, !final || failed}, []bool{v.Outcome != nil,
			v.CanceledAt != nil, v.Failure != nil, v.Links["cancel"] != nil, v.Links["report"] != nil, v.Links["retry"] != nil,
			a.Header.Get("Retry-After") != ""}, state)
	}
}

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
func TestCancelAndRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.change = func(_ context.Context, client, id job.ID) (job.Change, error) {
		require.Equal(t, []job.ID{clientA, jobID}, []job.ID{client, id})
		return job.Change{JobID: id, State: job.Queued, Attempt: 3, UpdatedAt: now, Changed: true}, nil
	}
	for path, more := range map[string]string{jobSelf + "/cancel": "", jobSelf + "/retry": `, "attempt": 3`} {
		for _, body := range []string{"", "{}", " { } \n"} {
			a := w.send("POST", path, body)
			require.Equal(t, 200, a.StatusCode)
			require.JSONEq(t, `{"job_id": "01890000-0000-7000-8000-000000000001", "state": "QUEUED",
				"updated_at": "2030-01-31T12:00:00.123456Z", "changed": true`+more+`}`, a.text)
		}
		for _, body := range []string{`{"a":1}`, `[]`, `null`, `1`, `{`, `{}{}`, ` `, "\x00"} {
			w.send("POST", path, body).requireProblem(t, job.CodeMalformed)
		}
	}
}

// Promise: draft 3.6, 3.7, 6.7
func TestReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.job, w.jobs.report = finishedJob, finishedReport
	a := w.send("GET", jobSelf+"/report", "")
	require.Equal(t, 200, a.StatusCode)
	event := func(seq, name, states, data string) string {
		return `{"event_id": "00000000-0000-4000-8000-00000000000b", "seq": ` + seq + `, "job_id": "01890000-0000-7000-8000-000000000001",
			"event_name": "` + name + `", ` + states + `, "attempt": 1, "timestamp": "2030-01-31T12:00:00.123456Z", "data": ` + data + `}`
	}
	require.JSONEq(t, `{
		"job_id": "01890000-0000-7000-8000-000000000001", "attempt": 1, "outcome": "SUCCESS",
		"started_at": "2030-01-31T12:00:01.123456Z", "finished_at": "2030-01-31T12:00:02.123456Z", "duration_ms": 1234,
		"events": [`+event("1", "job.created", `"prev_state": null, "next_state": "CREATED"`, `{"work_kind": "SUCCESS_FAST"}`)+`,
			`+event("2", "job.queued", `"prev_state": "CREATED", "next_state": "QUEUED"`, `{}`)+`,
			`+event("3", "event.emitted", `"prev_state": null, "next_state": null`, `{"name": "a"}`)+`]}`, a.text)

	w.jobs.job, w.jobs.report = failedJob, failedReport
	a = w.send("GET", jobSelf+"/report", "")
	require.JSONEq(t, `{
		"job_id": "01890000-0000-7000-8000-000000000001", "attempt": 2, "outcome": "FAILED", "events": [],
		"started_at": "2030-01-31T12:00:02.123456Z", "finished_at": "2030-01-31T12:00:04.123456Z", "duration_ms": 2000,
		"failure": `+failureDocument+`}`, a.text)
	require.Equal(t, "2", a.Header.Get("Retry-After"), "as its retryAfter")
	require.Equal(t, "de", a.Header.Get("Content-Language"))
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
}

// Promise: draft 6.1, 10.3
func TestAttemptDocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.jobs.attempts = failedAttempts
	a := w.send("GET", jobSelf+"/attempts/2", "", "Accept", "application/json")
	require.Equal(t, 200, a.StatusCode)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	require.JSONEq(t, failureDocument, a.text)
	require.Equal(t, "2", a.Header.Get("Retry-After"), "as retryAfter")
	require.Equal(t, "de", a.Header.Get("Content-Language"))

	a = w.send("GET", jobSelf+"/attempts/3", "", "Accept", "application/problem+json")
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.JSONEq(t, `{
		"instance": "`+jobSelf+`/attempts/3", "jobId": "01890000-0000-7000-8000-000000000001",
		"jobStatus": "PROCESSING", "submittedAt": "2030-01-31T12:00:00.123456Z", "correlationId": "corr-1", "attempt": 3,
		"scenario": {"workKind": "RETRY_ON_FAIL"}}`, a.text)
	w.send("GET", jobSelf+"/attempts/4", "").requireProblem(t, job.CodeJobNotFound)

	w.jobs.attempts = finishedAttempts
	a = w.send("GET", jobSelf+"/attempts/1", "")
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.Empty(t, a.Header.Get("Retry-After"))
	require.JSONEq(t, `{
		"instance": "`+jobSelf+`/attempts/1", "jobId": "01890000-0000-7000-8000-000000000001",
		"jobStatus": "COMPLETED", "submittedAt": "2030-01-31T12:00:00.123456Z", "completedAt": "2030-01-31T12:00:02.123456Z", "attempt": 1,
		"scenario": {"workKind": "SUCCESS_FAST", "durationMs": 1000, "expectedOutcome": "SUCCEEDED"}}`, a.text)
}

func TestClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("POST", "/v1/clients", "", "Authorization", "-")
	require.Equal(t, 201, a.StatusCode)
	require.JSONEq(t, `{"client_id": "00000000-0000-4000-8000-00000000000a"}`, a.text)
	require.True(t, w.clients.caller.Anonymous())

	const key = `"key_id": "abc", "scope": "all", "created_at": "2030-01-31T12:00:00.123456Z", "expires_at": "2030-01-31T13:00:00.123456Z"}`
	keys := "/v1/clients/" + clientB.String() + "/keys"
	for body, rotate := range map[string]bool{"": false, "{}": false, `{"rotate":true}`: true, `{"rotate":null}`: false} {
		a = w.send("POST", keys, body)
		require.Equal(t, 201, a.StatusCode)
		require.JSONEq(t, `{"api_key": "frk_secret", `+key, a.text)
		require.Equal(t, rotate, w.clients.rotate)
		require.Equal(t, []job.ID{clientA, clientB}, []job.ID{w.clients.caller.ClientID, w.clients.client})
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	}
	a = w.send("POST", keys+"/renew", "{}")
	require.Equal(t, 200, a.StatusCode)
	require.JSONEq(t, `{"api_key": null, `+key, a.text)

	a = w.send("POST", keys+"/revoke", `{"key_id":"a\u0062c"}`, "Authorization", "Bearer "+adminKey)
	require.Equal(t, 200, a.StatusCode)
	require.JSONEq(t, `{"revoked": true}`, a.text)
	require.Equal(t, "abc", w.clients.keyID)
	require.True(t, w.clients.caller.Admin)

	w.clients.err = job.Errorf(job.CodeForbidden, "Open registration is off.")
	for path, body := range map[string]string{"/v1/clients": "", keys: "", keys + "/renew": "", keys + "/revoke": `{"key_id":"abc"}`} {
		w.send("POST", path, body).requireProblem(t, job.CodeForbidden)
	}
}
