package jobs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestCancel(t *testing.T) {
	w := newWorld(t)
	queued, running := w.submit(w.Service, calling("https://receiver.example")).JobID, w.submit(w.Service).JobID
	w.run(running, 1)
	w.Queue.Notifications()
	w.Queue.Delivered()
	for i, id := range []job.ID{queued, running} {
		for _, changed := range []bool{true, false} { // a repetition changes nothing
			change := apptest.Must(w.Cancel(t.Context(), apptest.ClientA, id))(t)
			require.Equal(t, []any{changed, job.Canceled}, []any{change.Changed, change.State})
		}
		task := job.Task{JobID: id, Attempt: 1}
		require.Equal(t, []job.Notification{apptest.End(task)}, w.Queue.Notifications())
		w.Logged(task, "cancel", []string{"QUEUED", "RUNNING"}[i], "CANCELED")
		require.Equal(t, float64(i+1), w.Metric(w.World.Metrics.Canceled.WithLabelValues("SUCCESS_FAST")))
		n, _ := w.Executions(job.Canceled)
		require.EqualValues(t, i, n, "only a running job has an execution time")
	}
	require.Equal(t, []job.ID{running}, w.Queue.Signals, "the worker gets a signal")
	require.Equal(t, []job.ID{queued}, w.Queue.Delivered(), "it has a callback")
}

func TestRetry(t *testing.T) {
	w := newWorld(t)
	id := w.failed(w.Service, calling("https://receiver.example"))
	w.Queue.Notifications()
	w.Queue.Delivered()
	sent := len(w.Queue.Sent())
	change := apptest.Must(w.Retry(t.Context(), apptest.ClientA, id))(t)
	require.Equal(t, []any{true, job.Queued, 2}, []any{change.Changed, change.State, change.Attempt})
	j := w.stored(id)
	require.LessOrEqual(t, change.RunAt.Sub(j.UpdatedAt), apptest.Backoff.Ceiling(1))
	tasks := []job.Task{{JobID: id, Attempt: 2, RunAt: change.RunAt, ClientID: apptest.ClientA, WorkKind: job.SuccessFast,
		Reason: job.DependencyFailed}}
	require.Equal(t, tasks, w.Queue.Sent()[sent:])
	require.Equal(t, []job.Notification{apptest.Event(tasks[0])}, w.Queue.Notifications())
	require.Equal(t, []job.ID{id}, w.Queue.Delivered(), "it has a callback")
	require.Equal(t, 1.0, w.Metric(w.World.Metrics.Retried.WithLabelValues("client")))
	w.Logged(tasks[0], "retry", "FAILED", "QUEUED")

	change = apptest.Must(w.Retry(t.Context(), apptest.ClientA, id))(t)
	require.Equal(t, []any{false, job.Queued, 2}, []any{change.Changed, change.State, change.Attempt}, "it is queued already")
	require.Len(t, w.Queue.Sent(), sent+1)
	require.Empty(t, w.Queue.Notifications())

	// A retry counts against the limits.
	failed := w.failed(w.Service)
	w.limit(w.Service, oneClient(1, 1))
	require.Equal(t, job.CodeQueueFull, job.CodeOf(second(w.Retry(t.Context(), apptest.ClientA, failed))))
	w.Service.Admission = nil
	now := apptest.Must(w.RetryNow(t.Context(), apptest.ClientA, failed))(t)
	require.False(t, now.RunAt.After(now.UpdatedAt), "without the backoff")
}

// Promise: contract 11
func TestRetryThatIsRefused(t *testing.T) {
	w := newWorld(t)
	last := w.failed(w.Service, func(r *job.Request) { r.Retry = &job.RetryPolicy{MaxAttempts: 1} })
	lasting := w.submit(w.Service).JobID
	w.fail(lasting, 1, job.FailedImmediately)
	sent := len(w.Queue.Sent())
	w.Queue.Notifications()
	for id, want := range map[job.ID][]string{
		last: {"attempt", "ATTEMPTS_EXHAUSTED"}, lasting: {"not retryable", "NOT_RETRYABLE"},
	} {
		_, err := w.Retry(t.Context(), apptest.ClientA, id)
		refusal, _ := errors.AsType[*job.Error](err)
		require.NotNil(t, refusal)
		require.Equal(t, []any{job.CodeConflict, job.Failed, want[1]}, []any{refusal.Code, refusal.State, refusal.Reason})
		require.ErrorContains(t, err, want[0])
	}
	require.Len(t, w.Queue.Sent(), sent)
	require.Empty(t, w.Queue.Notifications())
	require.Zero(t, w.Sum("job_retries_total"))
	for _, id := range []job.ID{last, lasting} {
		require.True(t, apptest.Must(w.RetryAnyway(t.Context(), apptest.ClientA, id))(t).Changed, "operators can retry it")
	}
}
