package client_test

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

// Each call is one request of the API.
func TestRoutes(t *testing.T) {
	t.Parallel()
	from := time.Date(2030, 1, 31, 12, 0, 0, 500, time.UTC)
	no := false
	ctx := t.Context()
	type call func(c *client.Client) error
	for want, test := range map[string]struct {
		body, query string
		call        call
	}{
		"POST /v1/jobs/j/cancel": {call: func(c *client.Client) error { return second(c.Cancel(ctx, "j")) }},
		"POST /v1/jobs/j/retry":  {call: func(c *client.Client) error { return second(c.Retry(ctx, "j")) }},
		"GET /v1/events":         {call: func(c *client.Client) error { return drain(c.Events(ctx)) }},
		"DELETE /v1/jobs/j":      {call: func(c *client.Client) error { return c.Delete(ctx, "j") }},
		"GET /v1/jobs/j/report": {query: "attempt=2",
			call: func(c *client.Client) error { return second(c.Report(ctx, "j", 2)) }},
		"GET /v1/jobs/j/attempts":   {call: func(c *client.Client) error { return second(c.Attempts(ctx, "j")) }},
		"GET /v1/jobs/j/attempts/3": {call: func(c *client.Client) error { return second(c.Attempt(ctx, "j", 3)) }},
		"GET /v1/jobs/j/events":     {call: func(c *client.Client) error { return drain(c.JobEvents(ctx, "j")) }},
		"GET /v1/batches/b":         {call: func(c *client.Client) error { return second(c.Batch(ctx, "b")) }},
		"POST /v1/batches/b/cancel": {call: func(c *client.Client) error { return second(c.CancelBatch(ctx, "b")) }},
		"GET /v1/batches/b/jobs":    {call: func(c *client.Client) error { return drain(c.BatchJobs(ctx, "b")) }},
		"GET /v1/bulk":              {call: func(c *client.Client) error { return drain(c.Bulks(ctx)) }},
		"GET /v1/bulk/u":            {call: func(c *client.Client) error { return second(c.Bulk(ctx, "u")) }},
		"POST /v1/schedules": {body: `{"interval":"1m","job":{"type":"EXECUTE"}}`, call: func(c *client.Client) error {
			return second(c.CreateSchedule(ctx, client.ScheduleRequest{Interval: "1m", Job: client.JobRequest{Type: "EXECUTE"}}))
		}},
		"GET /v1/schedules":   {call: func(c *client.Client) error { return drain(c.Schedules(ctx)) }},
		"GET /v1/schedules/s": {call: func(c *client.Client) error { return second(c.Schedule(ctx, "s")) }},
		"PATCH /v1/schedules/s": {body: `{"cron":null}`, call: func(c *client.Client) error {
			return second(c.UpdateSchedule(ctx, "s", map[string]any{"cron": nil}))
		}},
		"DELETE /v1/schedules/s":       {call: func(c *client.Client) error { return c.DeleteSchedule(ctx, "s") }},
		"POST /v1/schedules/s/pause":   {call: func(c *client.Client) error { return second(c.PauseSchedule(ctx, "s")) }},
		"POST /v1/schedules/s/resume":  {call: func(c *client.Client) error { return second(c.ResumeSchedule(ctx, "s")) }},
		"POST /v1/schedules/s/trigger": {call: func(c *client.Client) error { return second(c.TriggerSchedule(ctx, "s")) }},
		"POST /v1/bulk/u/abort":        {call: func(c *client.Client) error { return second(c.AbortBulk(ctx, "u")) }},
		"GET /v1/bulk/u/items": {query: "result=FAILED",
			call: func(c *client.Client) error { return drain(c.BulkItems(ctx, "u", "FAILED")) }},
		"POST /v1/bulk": {body: `{"action":"retry","filter":{"state":"FAILED"},"rate":7}`, call: func(c *client.Client) error {
			return second(c.StartBulk(ctx, client.BulkRequest{Action: client.BulkRetry, Filter: client.BulkFilter{State: "FAILED"}, Rate: 7}))
		}},
		"GET /v1/webhooks":                           {call: func(c *client.Client) error { return second(c.Webhooks(ctx)) }},
		"GET /v1/webhooks/w":                         {call: func(c *client.Client) error { return second(c.Webhook(ctx, "w")) }},
		"DELETE /v1/webhooks/w":                      {call: func(c *client.Client) error { return c.DeleteWebhook(ctx, "w") }},
		"POST /v1/webhooks/w/rotate-secret":          {call: func(c *client.Client) error { return second(c.RotateSecret(ctx, "w")) }},
		"POST /v1/webhooks/w/test":                   {call: func(c *client.Client) error { return second(c.TestWebhook(ctx, "w")) }},
		"GET /v1/webhooks/w/deliveries/d":            {call: func(c *client.Client) error { return second(c.Delivery(ctx, "w", "d")) }},
		"POST /v1/webhooks/w/deliveries/d/redeliver": {call: func(c *client.Client) error { return second(c.Redeliver(ctx, "w", "d")) }},
		"GET /v1/jobs/j/deliveries/d": {call: func(c *client.Client) error {
			return second(c.JobDelivery(ctx, "j", "d"))
		}},
		"POST /v1/jobs/j/deliveries/d/redeliver": {call: func(c *client.Client) error {
			return second(c.RedeliverJob(ctx, "j", "d"))
		}},
		"POST /v1/clients":              {call: func(c *client.Client) error { return second(c.CreateClient(ctx)) }},
		"POST /v1/clients/c/keys/renew": {call: func(c *client.Client) error { return second(c.RenewKey(ctx, "c")) }},
		"GET /healthz":                  {call: func(c *client.Client) error { return c.Health(ctx) }},
		"GET /readyz":                   {call: func(c *client.Client) error { return second(c.Ready(ctx)) }},
		"GET /.well-known/http-message-signatures-directory": {call: func(c *client.Client) error { return second(c.SigningKeys(ctx)) }},
		"POST /v1/clients/c/keys": {body: `{"rotate":true}`, call: func(c *client.Client) error {
			return second(c.CreateKey(ctx, "c", true))
		}},
		"POST /v1/clients/c/keys/revoke": {body: `{"key_id":"k"}`, call: func(c *client.Client) error {
			return c.RevokeKey(ctx, "c", "k")
		}},
		"POST /v1/jobs/batch": {body: `{"jobs":[{"item_id":"a","type":"EXECUTE","auto_retry":true},{"type":"EMIT_EVENT","event":{"name":"n",
			"data":{"x":1}}}]}`,
			call: func(c *client.Client) error {
				_, err := c.SubmitBatch(ctx, []client.JobRequest{{ItemID: "a", Type: "EXECUTE", AutoRetry: true},
					{Type: "EMIT_EVENT", Event: &client.Emission{Name: "n", Data: []byte(`{"x":1}`)}}})
				return err
			}},
		"POST /v1/webhooks": {body: `{"url":"https://x","events":["*"],"content_mode":"structured"}`, call: func(c *client.Client) error {
			return second(c.CreateWebhook(ctx, client.WebhookRequest{URL: "https://x", Events: []string{"*"}, ContentMode: "structured"}))
		}},
		"PATCH /v1/webhooks/w": {body: `{"enabled":false}`, call: func(c *client.Client) error {
			return second(c.UpdateWebhook(ctx, "w", client.WebhookPatch{Enabled: &no}))
		}},
		"POST /v1/webhooks/w/redeliver": {body: `{"since":"2030-01-31T12:00:00.0000005Z"}`, call: func(c *client.Client) error {
			return second(c.RedeliverSince(ctx, "w", from, ""))
		}},
		"POST /v1/webhooks/w/replay": {body: `{"since":"2030-01-31T12:00:00.0000005Z","cursor":"next"}`, call: func(c *client.Client) error {
			return second(c.Replay(ctx, "w", from.In(time.FixedZone("", 3600)), "next"))
		}},
		"GET /v1/jobs": {query: "batch_id=b&correlation_id=c&created_after=2030-01-31T12%3A00%3A00.0000005Z&limit=7" +
			"&state=FAILED&type=EXECUTE&work_kind=SUCCESS_FAST",
			call: func(c *client.Client) error {
				return drain(c.Jobs(ctx, client.JobFilter{State: "FAILED", Type: "EXECUTE", WorkKind: "SUCCESS_FAST", BatchID: "b",
					CorrelationID: "c", CreatedAfter: from, PageSize: 7}))
			}},
		"GET /v1/webhooks/w/deliveries": {query: "event_name=job.failed&state=PENDING", call: func(c *client.Client) error {
			return drain(c.Deliveries(ctx, "w", client.DeliveryFilter{State: "PENDING", EventName: "job.failed"}))
		}},
		"GET /v1/jobs/j/deliveries": {query: "created_before=2030-01-31T12%3A00%3A00.0000005Z", call: func(c *client.Client) error {
			return drain(c.JobDeliveries(ctx, "j", client.DeliveryFilter{CreatedBefore: from}))
		}},
	} {
		s := serve(t, anything)
		require.NoError(t, test.call(s.c), want)
		got := s.requests()[0]
		require.Equal(t, want, got.method+" "+got.path)
		require.Equal(t, test.query, got.query, want)
		if test.body == "" {
			require.Empty(t, got.body, want)
			require.Empty(t, got.header.Get("Content-Type"), want)
		} else {
			require.JSONEq(t, test.body, got.body, want)
			require.Equal(t, jsonType, got.header.Get("Content-Type"), want)
		}
	}
}

func drain[T any](list iter.Seq2[T, error]) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestLists(t *testing.T) {
	t.Parallel()
	s := serve(t,
		ok(`{"data":[{"job_id":"1"},{"job_id":"2"}],"page":{"limit":2,"next_cursor":"a"}}`),
		ok(`{"data":[],"page":{"limit":2,"next_cursor":"b"}}`), // empty, but not the end
		ok(`{"data":[{"job_id":"3","outcome":null,"batch_id":null}],"page":{"limit":2,"next_cursor":null}}`))
	var ids []string
	list := s.c.Jobs(t.Context(), client.JobFilter{State: "FAILED"})
	for job, err := range list {
		require.NoError(t, err)
		ids = append(ids, job.JobID)
	}
	require.Equal(t, []string{"1", "2", "3"}, ids)
	var queries []string
	for _, r := range s.requests() {
		queries = append(queries, r.query)
	}
	require.Equal(t, []string{"state=FAILED", "cursor=a&state=FAILED", "cursor=b&state=FAILED"}, queries)
	require.NoError(t, drain(list), "it can be read again, from its beginning")
	require.Equal(t, "state=FAILED", s.requests()[3].query)

	s = serve(t, ok(`{"data":[{"job_id":"1"}],"page":{"next_cursor":"a"}}`))
	for _, err := range s.c.Jobs(t.Context(), client.JobFilter{}) {
		require.NoError(t, err)
		break
	}
	require.Len(t, s.requests(), 1)
	require.ErrorContains(t, drain(s.c.Jobs(t.Context(), client.JobFilter{})), "next_cursor", "a list that would never end")

	s = serve(t, ok(`{"data":[{"job_id":"1"}],"page":{"next_cursor":"a"}}`), problem(400, "RFA_REQUEST_MALFORMED"))
	var p *client.Problem
	require.ErrorAs(t, drain(s.c.Jobs(t.Context(), client.JobFilter{})), &p)
}

func TestJobAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t, ok(`{"job_id":"j","state":"FAILED","outcome":"FAILED","started_at":null,"params":null,"waiting":null,
		"failure":{"jobStatus":"TIMED_OUT","retryable":true,"retryAfter":2},"result":null,"links":{"retry":"/r"}}`).
		with("ETag", `W/"5"`).with("Retry-After", "2").with("X-Request-Id", "r"), reply{status: 304},
		ok(`{"status":"degraded","checks":{"redis":"down"}}`),
		reply{status: 503, kind: jsonType, body: `{"status":"unavailable","checks":{"postgres":"down"}}`})
	j := must(s.c.Job(t.Context(), "j"))(t)
	require.True(t, j.Final())
	require.Nil(t, j.Params)
	require.True(t, j.StartedAt.IsZero())
	require.Equal(t, `W/"5"`, j.ETag)
	require.Equal(t, 2*time.Second, j.RetryAfter)
	require.Equal(t, "r", j.RequestID)
	require.Equal(t, s.clock.Now(), j.Failure.ReceivedAt)
	require.Equal(t, "/r", j.Links["retry"])
	none, err := s.c.Job(t.Context(), "j", client.IfNoneMatch(j.ETag))
	require.ErrorIs(t, err, client.ErrNotModified)
	require.Nil(t, none)
	ready := must(s.c.Ready(t.Context()))(t)
	require.Equal(t, "degraded", ready.Status)
	ready, err = s.c.Ready(t.Context())
	require.NoError(t, err, "a service that cannot work is an answer")
	require.Equal(t, client.Readiness{Status: "unavailable", Checks: map[string]string{"postgres": "down"}}, *ready)
}

func TestBatchReceipt(t *testing.T) {
	t.Parallel()
	s := serve(t, reply{status: 202, kind: jsonType, body: `{"batch_id":"b","jobs":[{"item_id":"a","job_id":"1","state":"QUEUED"},
		{"item_id":"1","failure":{"title":"T","status":400,"code":"RFA_JOB_VALIDATION_FAILED",
			"violations":[{"pointer":"/jobs/1/type","detail":"no"}],"retryable":false,"processingStage":"validation"}}]}`},
		ok(`{"batch_id":"b","status":"PROCESSING"}`), ok(`{"batch_id":"b","status":"COMPLETED_WITH_ERRORS",
			"outcome":{"failed_items":[{"item_id":"1","job_id":null}]}}`))
	receipt := must(s.c.SubmitBatch(t.Context(), make([]client.JobRequest, 2)))(t)
	require.Equal(t, 202, receipt.Status)
	require.Nil(t, receipt.Jobs[0].Failure)
	require.Equal(t, "/jobs/1/type", receipt.Jobs[1].Failure.Violations[0].Pointer)
	require.NotEmpty(t, s.requests()[0].header.Get("Idempotency-Key"))
	for _, final := range []bool{false, true} {
		batch := must(s.c.Batch(t.Context(), "b"))(t)
		require.Equal(t, final, batch.Final())
	}
}

func TestResultIsVerified(t *testing.T) {
	t.Parallel()
	const body = "the result"
	sum, long := sha256.Sum256([]byte(body)), sha512.Sum512([]byte(body))
	right := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	right512 := "sha-512=:" + base64.StdEncoding.EncodeToString(long[:]) + ":"
	wrong := "sha-256=:" + base64.StdEncoding.EncodeToString(make([]byte, 32)) + ":"
	r := reply{status: 200, kind: "text/plain", body: body}
	checksum := func(value string) reply {
		return job("SUCCEEDED", `,"result":{"state":"AVAILABLE","checksum":{"algorithm":"sha256","value":"`+value+`"}}`)
	}
	for name, test := range map[string]struct {
		answer, job reply
		good        bool
	}{
		"Repr-Digest":          {r.with("Repr-Digest", right), reply{}, true},
		"Content-Digest":       {r.with("Content-Digest", right), reply{}, true},
		"sha-512":              {r.with("Repr-Digest", right512), reply{}, true},
		"both":                 {r.with("Repr-Digest", right+", "+right512).with("Content-Digest", right), reply{}, true},
		"a wrong one":          {r.with("Repr-Digest", wrong), checksum(hex.EncodeToString(sum[:])), false},
		"one of two is wrong":  {r.with("Repr-Digest", right).with("Content-Digest", wrong), reply{}, false},
		"an unreadable one":    {r.with("Repr-Digest", "sha-256="), checksum(hex.EncodeToString(sum[:])), false},
		"of an unknown kind":   {r.with("Repr-Digest", "md5=:AAAA:"), checksum(hex.EncodeToString(sum[:])), true},
		"the job's checksum":   {r, checksum(hex.EncodeToString(sum[:])), true},
		"a wrong checksum":     {r, checksum(hex.EncodeToString(make([]byte, 32))), false},
		"nothing to verify":    {r, job("SUCCEEDED", ""), false},
		"a part of the result": {reply{status: 206, kind: "text/plain", body: body}.with("Repr-Digest", right), reply{}, false},
		"an expired result":    {problem(410, "RFA_RESULT_GONE"), reply{}, false},
	} {
		s := serve(t, test.answer, test.job)
		result, err := s.c.Result(t.Context(), "j1")
		if !test.good {
			require.Error(t, err, name)
			require.Nil(t, result, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, body, string(result.Data), name)
		require.Equal(t, "text/plain", result.ContentType)
		require.Equal(t, "identity", s.requests()[0].header.Get("Accept-Encoding"))
	}
}

func TestWhatIsNotFinished(t *testing.T) {
	t.Parallel()
	for _, read := range []func(s *service) error{
		func(s *service) error {
			return second(s.c.Report(t.Context(), "j", 0, client.PreferWait(10*time.Second)))
		},
		func(s *service) error { return second(s.c.Result(t.Context(), "j", client.PreferWait(10*time.Second))) },
	} {
		s := serve(t, problem(404, "RFA_JOB_NOT_FINISHED").with("Retry-After", "7"))
		err := read(s)
		var p *client.Problem
		require.ErrorAs(t, err, &p)
		require.Equal(t, "RFA_JOB_NOT_FINISHED", p.Code)
		require.Equal(t, 7*time.Second, p.RetryAfter)
		require.Len(t, s.requests(), 1, "when to ask again is the caller's decision")
		require.Equal(t, "wait=10", s.requests()[0].header.Get("Prefer"))
	}
}

// What a test says counts even where it is a zero value.
func TestCustomParams(t *testing.T) {
	t.Parallel()
	seed, no, body := int64(0), false, ""
	for want, b := range map[string]client.Behavior{
		`{}`: {},
		`{"behavior":{"seed":0,"failures":[{"attempts":[1],"after":"0s","problem":{"retryable":false}},{"attempts":[2],"problem":{"item":1}}],
			"result":{"body":""}}}`: {
			Seed: &seed, Result: &client.PlannedResult{Body: &body}, Failures: []client.PlannedFailure{
				{Attempts: []int{1}, After: "0s", Problem: client.PlannedProblem{Retryable: &no}},
				{Attempts: []int{2}, Problem: map[string]any{"item": 1}}},
		},
	} {
		got := must(json.Marshal(client.CustomParams{Behavior: b}))(t)
		require.JSONEq(t, want, string(got))
	}
}
