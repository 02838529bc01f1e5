package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestSubmit(t *testing.T) {
	w := newWorld(t)
	receipt := w.submit(w.Service, func(r *job.Request) {
		r.AutoRetry, r.Callback, r.CorrelationID, r.TraceParent = true, "https://example.com", "c", "tp"
		r.Params = []byte(`{"a": 1}`)
	})
	require.Equal(t, job.Queued, receipt.State)
	require.False(t, receipt.Replayed)
	j := w.stored(receipt.JobID)
	require.Equal(t, []any{apptest.ClientA, job.Execute, job.SuccessFast, 4, true, "https://example.com", "c", "en", "request-1"},
		[]any{j.ClientID, j.Type, j.WorkKind, j.MaxAttempts, j.AutoRetry, j.Callback, j.CorrelationID, j.Language, j.RequestID})
	require.JSONEq(t, `{"a": 1}`, string(j.Params))
	require.Equal(t, []job.Task{{JobID: receipt.JobID, Attempt: 1, TraceParent: "tp", ClientID: apptest.ClientA, WorkKind: job.SuccessFast}},
		w.Queue.Sent())
	require.Equal(t, []job.Notification{apptest.Event(job.Task{JobID: receipt.JobID})}, w.Queue.Notifications())
	require.Equal(t, []job.ID{receipt.JobID}, w.Queue.Delivered(), "it has a callback")
	require.Equal(t, []float64{1, 1}, []float64{w.Sum("jobs_submitted_total"), w.Sum("jobs_queued_total")})
	w.Logged(job.Task{JobID: receipt.JobID}, "submit", "", "CREATED")
	w.Logged(job.Task{JobID: receipt.JobID}, "submit", "CREATED", "QUEUED")
	w.submit(w.Service)
	require.Empty(t, w.Queue.Delivered())
}

// Promise: contract 6a
func TestSubmitDrawsAKind(t *testing.T) {
	w := newWorld(t)
	j := w.stored(w.submit(w.Service, ofKind("")).JobID)
	require.True(t, j.WorkKind.Valid())
	require.Equal(t, j.WorkKind, j.Definition.WorkKind)
}

// Promise: contract 14a
func TestSubmitReturnsAllViolations(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		change func(*job.Request)
		code   job.Code
		want   []string
	}{
		{func(r *job.Request) {
			flawed("/retry", false)(r)
			r.Type, r.WorkKind, r.Emit, r.Callback = job.Execute, job.PayloadInvalid, &job.Emission{Name: "x"}, "http://localhost/"
		}, job.CodeValidationFailed, []string{"/retry", "/work_kind", "/execution_at", "/event", "/callback"}},
		{func(r *job.Request) {
			flawed("/colour", true)(r)
			r.WorkKind = job.PayloadInvalid
		}, job.CodeMalformed, []string{"/colour", "/work_kind", "/execution_at"}},
	} {
		refusal := w.refused(w.Service, deferred(-time.Hour), withKey("k"), c.change)
		require.Equal(t, c.code, refusal.Code)
		require.ElementsMatch(t, c.want, pointers(refusal.Violations))
	}
	w.nothingDone()
}

// Promise: contract 10
func TestSubmitRefusesThePast(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond)
	w := newWorld(t, func(c *Config) { c.Clock, c.MaxAhead = func() time.Time { return now }, 24*time.Hour })
	at := func(d time.Duration) func(*job.Request) {
		return func(r *job.Request) {
			when := now.Add(d)
			r.Type, r.ExecutionAt = job.Deferred, &when
		}
	}
	for _, late := range []time.Duration{-time.Second - time.Microsecond, -time.Hour} {
		require.Equal(t, []string{"/execution_at"}, pointers(w.refused(w.Service, at(late), withKey("k")).Violations))
	}
	wrong := w.refused(w.Service, at(24*time.Hour+time.Second))
	require.Equal(t, []string{"/execution_at"}, pointers(wrong.Violations))
	require.Contains(t, wrong.Violations[0].Detail, "too far in the future")
	w.nothingDone()
	w.submit(w.Service, at(24*time.Hour))
	for _, given := range []time.Duration{-time.Second, 0} {
		receipt := w.submit(w.Service, at(given))
		require.True(t, now.Add(given).Equal(*w.stored(receipt.JobID).ExecutionAt), "execution_at is unchanged")
	}
	require.Len(t, w.Queue.Sent(), 3, "tasks are enqueued on acceptance")
}

// The store guarantees one job per key. This test checks that a repetition gets the first response.
func TestSubmissionsReplay(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(c *Config) { c.Clock = func() time.Time { return now } })
	w.limit(w.Service, oneClient(3, 3))
	r, batch := newRequest(deferred(time.Hour), withKey("k")), newBatchRequest(newRequest(), newRequest(deferred(time.Hour)))
	batch.IdempotencyKey = "batch"
	first := apptest.Must(w.Submit(t.Context(), r))(t)
	w.enqueued(first.JobID)
	firstBatch := w.submitBatch(w.Service, batch)
	sent := len(w.Queue.Sent())
	w.Queue.Notifications()
	for _, step := range []struct {
		what   string
		change func()
	}{
		{"the server is full", func() { w.limit(w.Service, oneClient(0, 0)) }},
		{"an operator stopped submissions", func() { w.pauses = job.Pauses{{Scope: job.PauseAll, Mode: job.ModeDrain}} }},
		{"the time has passed", func() { now = now.Add(2 * time.Hour) }},
		{"without obstacles", func() { now, w.pauses = now.Add(-2*time.Hour), nil; w.limit(w.Service, oneClient(10, 10)) }},
	} {
		step.change()
		again := apptest.Must(w.Submit(t.Context(), r))(t)
		require.Equal(t, []any{first.JobID, first.State, true}, []any{again.JobID, again.State, again.Replayed}, step.what)
		againBatch, replayed, err := w.SubmitBatch(t.Context(), batch)
		require.NoError(t, err, step.what)
		require.True(t, replayed, step.what)
		require.Equal(t, firstBatch.Items[0].JobID, againBatch.Items[0].JobID, step.what)
	}
	require.Zero(t, w.Admission.Capacity.lease.used, "a replay reserves no room")
	require.Equal(t, 8.0, w.Metric(w.World.Metrics.IdempotencyHits))

	other, otherBatch := r, batch
	other.Hash, otherBatch.Hash = [32]byte{2}, [32]byte{2}
	for _, limit := range []int{100, 0} {
		w.limit(w.Service, oneClient(limit, limit))
		require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(second(w.Submit(t.Context(), other))))
		_, _, err := w.SubmitBatch(t.Context(), otherBatch)
		require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(err))
	}
	now = now.Add(2 * time.Hour)
	for malformed, code := range map[bool]job.Code{true: job.CodeMalformed, false: job.CodeValidationFailed} {
		flawed("/colour", malformed)(&r)
		var refusal *job.Error
		require.ErrorAs(t, second(w.Submit(t.Context(), r)), &refusal, "a repetition may be late, but not invalid")
		require.Equal(t, code, refusal.Code)
		require.Len(t, refusal.Violations, 2, "includes the time")
	}
	require.Len(t, w.Queue.Sent(), sent)
	require.Empty(t, w.Queue.Notifications())
	w.Service.Store.Close()
	_, _, err := w.SubmitBatch(t.Context(), batch)
	require.GreaterOrEqual(t, job.CodeOf(err).Spec().Status, 500, "storage could not look up the key")
}

func TestSubmitReportsStorageErrors(t *testing.T) {
	w := newWorld(t)
	w.submit(w.Service)
	w.Queue.Notifications()
	w.Service.Store.Close()
	for _, err := range []*job.Error{w.refused(w.Service), w.refused(w.Service, deferred(-time.Hour), withKey("k"))} {
		require.GreaterOrEqual(t, err.Code.Spec().Status, 500, "storage could not look up the key")
	}
	require.Len(t, w.Queue.Sent(), 1)
	require.Empty(t, w.Queue.Notifications())
}

// An id reveals its creation time. It must not help to guess other ids (async-problem-details, section 9.3).
// Promise: contract 5, 3.2
// Promise: draft 9.3
func TestIDsCannotBeGuessed(t *testing.T) {
	t.Parallel()
	const ids = 10_000
	random, ones := map[[8]byte]bool{}, [64]int{}
	for range ids {
		id := app.NewID()
		require.Equal(t, byte(7), id[6]>>4, "the version")
		tail := [8]byte(id[8:])
		require.False(t, random[tail], "the random part repeats")
		random[tail] = true
		for bit := range ones {
			ones[bit] += int(tail[bit/8]>>(7-bit%8)) & 1
		}
	}
	for bit, n := range ones[2:] { // bits 0 and 1 are the fixed UUID variant
		require.InDelta(t, ids/2, n, ids/10, "bit %d is not random", bit+2)
	}
}

// Promise: contract 11
func TestMaxAttemptsHasALimit(t *testing.T) {
	w := newWorld(t)
	asks := func(n int) func(*job.Request) {
		return func(r *job.Request) { r.Retry = &job.RetryPolicy{MaxAttempts: n} }
	}
	for _, n := range []int{5, 100} {
		wrong := w.refused(w.Service, asks(n))
		require.Equal(t, job.CodeValidationFailed, wrong.Code)
		require.Equal(t, []string{"/retry/max_attempts"}, pointers(wrong.Violations))
		require.Contains(t, wrong.Violations[0].Detail, "at most 4 attempts")
	}
	w.nothingDone()
	require.Equal(t, 4, w.stored(w.submit(w.Service, asks(4)).JobID).MaxAttempts)
	require.Equal(t, 1, w.stored(w.submit(w.Service, asks(1)).JobID).MaxAttempts)

	r := newRequest(asks(9))
	violations, err := w.CheckScheduled(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []string{"/retry/max_attempts"}, pointers(violations))
	run, err := w.PrepareRun(t.Context(), app.NewID(), r, nil)
	require.NoError(t, err, "the limit was lowered after the schedule was stored")
	w.FinishRuns(t.Context(), []Run{run}, false, nil)
	require.Equal(t, 4, run.Job.MaxAttempts)
	require.Equal(t, 9, r.Retry.MaxAttempts, "the stored request is unchanged")
}

func TestCallbacksNeedAProvenOrigin(t *testing.T) {
	w := newWorld(t)
	w.Admission.ProvenCallbacks = true
	now := time.Now()
	for i, url := range []string{"https://Receiver.example/in", "http://other.example:8080/"} {
		apptest.Must(w.store.InsertWebhook(t.Context(), job.Webhook{
			ID: app.NewID(), ClientID: apptest.ClientA, URL: url, Events: []string{"*"}, ContentMode: "binary", ProvenAt: &now,
			Secrets: []job.SealedSecret{{Sealed: []byte{byte(i)}}},
		}))(t)
	}
	for _, url := range []string{
		"https://receiver.example/done?x=1", "https://receiver.example:443/", "HTTPS://RECEIVER.example/", "http://other.example:8080/x",
	} {
		w.submit(w.Service, calling(url))
	}
	for _, url := range []string{
		"http://receiver.example/", "https://receiver.example:8443/", "https://sub.receiver.example/", "https://receiver.example.evil.example/",
		"http://other.example/", "https://b.example/",
	} {
		invalid := w.refused(w.Service, calling(url))
		require.Equal(t, []string{"/callback"}, pointers(invalid.Violations), url)
		require.Contains(t, invalid.Violations[0].Detail, "Register a webhook there first")
	}
	b, _, err := w.SubmitBatch(t.Context(), newBatchRequest(
		newRequest(calling("https://receiver.example/")), newRequest(calling("https://b.example/"))))
	require.NoError(t, err)
	require.Nil(t, b.Items[0].Refusal)
	require.Equal(t, "/jobs/1/callback", b.Items[1].Refusal.Violations[0].Pointer)

	// A repetition gets the first response, even if the webhook is gone.
	w.Admission.ProvenCallbacks = false
	first := w.submit(w.Service, calling("https://gone.example/"), withKey("k"))
	w.Admission.ProvenCallbacks = true
	require.Equal(t, first.JobID, w.submit(w.Service, calling("https://gone.example/"), withKey("k")).JobID)
	both := w.refused(w.Service, calling("https://gone.example/"), withKey("another"), deferred(-time.Hour))
	require.ElementsMatch(t, []string{"/execution_at", "/callback"}, pointers(both.Violations), "one response with all violations")
}
