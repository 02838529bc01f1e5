package worker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/rescue"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

type site struct {
	*apptest.World
	store   *repo.Store
	leases  *jobs.Leases
	rescuer *rescue.Rescuer
	worker  *Worker
	runner  runnerFunc
}

func newSite(t *testing.T, limit time.Duration, change ...func(*repo.Config)) *site {
	t.Parallel()
	s := &site{World: apptest.NewWorld(t), store: repotest.OpenURL(t, repotest.URL(t), change...)}
	s.leases = s.store.NewLeases()
	t.Cleanup(s.leases.Close)
	completer := batches.NewCompleter(s.store, s.Queue, s.Metrics, s.Logger)
	s.rescuer = &rescue.Rescuer{
		Store: s.store, Queue: s.Queue, Completer: completer, Backoff: apptest.Backoff, Metrics: s.Metrics, Log: s.Logger,
	}
	s.worker = New(Config{
		Name: "test", Concurrency: 4, Lease: time.Hour, Heartbeat: time.Hour, Limit: limit, Backoff: apptest.Backoff,
	}, Deps{
		Store: struct {
			*repo.Store
			*jobs.Leases
		}{s.store, s.leases},
		Queue: s.Queue, Completer: completer, GiveBack: s.rescuer.GiveBack, Metrics: s.Metrics, Log: s.Logger,
		Runner: runnerFunc(func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
			return s.runner(ctx, d, attempt)
		}),
	})
	_, err := s.worker.register(t.Context())
	require.NoError(t, err)
	return s
}

func (s *site) add(change ...func(*job.Job)) job.Task {
	s.T.Helper()
	j := job.Job{
		ID: app.NewID(), ClientID: apptest.ClientA, Type: job.Execute, WorkKind: job.SuccessFast, MaxAttempts: 4, Language: "en",
		RequestID: "request-1", Definition: apptest.DefinitionOf(job.SuccessFast),
	}
	for _, f := range change {
		f(&j)
	}
	_, err := s.store.InsertJob(s.T.Context(), job.Submission{Job: j, RequestHash: sha256.Sum256(j.ID[:])})
	require.NoError(s.T, err)
	return job.Task{JobID: j.ID, Attempt: 1}
}

func (s *site) run(t job.Task) *job.Job {
	s.T.Helper()
	require.NoError(s.T, trouble(s.worker.Handle(s.T.Context(), t)))
	return s.job(t)
}

func (s *site) job(t job.Task) *job.Job {
	s.T.Helper()
	return apptest.Must(s.store.Job(s.T.Context(), apptest.ClientA, t.JobID))(s.T)
}

func failing(reason job.Reason) runnerFunc {
	return fixed(nil, errors.Join(errors.New("x"), workFailure{Reason: reason}))
}

func retried(j *job.Job) { j.AutoRetry = true }

func TestExecuteSucceeds(t *testing.T) {
	s := newSite(t, time.Hour)
	s.runner = func(_ context.Context, d job.Definition, _ int) (*job.Result, error) {
		return goodResult(d), nil
	}
	task := s.add(func(j *job.Job) {
		j.Type, j.CorrelationID = job.EmitEvent, "order-7"
		j.Definition.Emit = &job.Emission{Name: "order.shipped", Data: json.RawMessage(`{"n":1}`)}
	})
	require.Equal(t, job.Succeeded, s.run(task).State)
	result := apptest.Must(s.store.Result(t.Context(), apptest.ClientA, task.JobID))(t)
	require.Equal(t, goodResult(*apptest.DefinitionOf(job.SuccessFast)).Body, result.Body)
	log := apptest.Must(s.store.Events(t.Context(), apptest.ClientA, task.JobID, 0, 100))(t)
	var names []string
	for _, e := range log.Events {
		names = append(names, e.Name)
	}
	require.Contains(t, names, "event.emitted", "the client's event")
	require.Equal(t, "order-7", s.Logged(task, "finish", "RUNNING", "SUCCEEDED")["correlation_id"])
}

// Promise: contract 14e
func TestExecuteFails(t *testing.T) {
	s := newSite(t, time.Hour)
	good := goodResult(*apptest.DefinitionOf(job.SuccessFast))
	altered := func(f func(*job.Result)) runnerFunc {
		r := *good
		f(&r)
		return fixed(&r, nil)
	}
	for name, test := range map[string]struct {
		runner runnerFunc
		want   job.Reason
	}{
		"planned by the catalogue": {failing(job.FailedAgain), job.FailedAgain},
		"panic": {func(context.Context, job.Definition, int) (*job.Result, error) { panic("boom") },
			job.WorkPanicked},
		"unexpected error":                 {fixed(nil, errors.New("no space left on device")), job.WorkPanicked},
		"definition refused by the runner": {fixed(nil, job.ErrBadDefinition), job.DefinitionInvalid},
		"no result":                        {fixed(nil, nil), job.OutputInvalid},
		"result without media type":        {altered(func(r *job.Result) { r.MediaType = "" }), job.OutputInvalid},
		"short result": {altered(func(r *job.Result) { r.Body = r.Body[1:]; r.SHA256 = sha256.Sum256(r.Body) }),
			job.OutputInvalid},
		"result with a wrong digest":             {altered(func(r *job.Result) { r.SHA256[0]++ }), job.OutputInvalid},
		"result that cannot be stored":           {altered(func(r *job.Result) { r.MediaType = "a\x00b" }), job.OutputInvalid},
		"planned by the behavior in the request": {failing(job.CustomFailed), job.CustomFailed},
	} {
		s.runner = test.runner
		task := s.add()
		var failed *job.TaskFailed
		require.ErrorAs(t, s.worker.Handle(t.Context(), task), &failed, name)
		want := job.NewFailure(test.want, 1, apptest.Backoff)
		j := s.job(task)
		require.Equal(t, job.Failed, j.State, name)
		require.Equal(t, []any{want.Code, want.Reason, want.Detail}, []any{j.Failure.Code, j.Failure.Reason, j.Failure.Detail}, name)
		require.Equal(t, string(want.Code)+": "+want.Detail, failed.Text, "the task's error is the stored failure")
		line := s.Logged(task, "finish", "RUNNING", "FAILED")
		require.Equal(t, []any{string(want.Code), want.Detail}, []any{line["error_code"], line["error_message"]}, name)
	}
	require.Equal(t, 10.0, s.Sum("jobs_failed_total"))
	require.Zero(t, s.Sum("jobs_succeeded_total")+s.Sum("job_retries_total"))
}

func TestDamagedDefinitionsAreUnusable(t *testing.T) {
	t.Parallel()
	d := apptest.DefinitionOf(job.SuccessFast)
	require.NoError(t, usable(d, job.Execute))
	require.ErrorIs(t, usable(d, job.EmitEvent), job.ErrBadDefinition)
	require.ErrorIs(t, usable(nil, job.Execute), job.ErrBadDefinition)
	d.PayloadSize = 0
	require.Error(t, usable(d, job.Execute))
}

// Promise: contract 14e
func TestTheTimeLimitIsHard(t *testing.T) {
	s := newSite(t, 20*time.Millisecond)
	for _, result := range []*job.Result{nil, goodResult(*apptest.DefinitionOf(job.SuccessFast))} {
		s.runner = func(ctx context.Context, _ job.Definition, _ int) (*job.Result, error) {
			<-ctx.Done()
			if result == nil {
				return nil, context.Cause(ctx)
			}
			return result, nil
		}
		require.Equal(t, job.TimedOut, s.run(s.add()).Failure.Reason, "a result after the limit is dropped")
	}
}

// Promise: patterns Retry API
func TestAutomaticRetry(t *testing.T) {
	s := newSite(t, time.Hour)
	s.runner = failing(job.DependencyFailed)
	task := s.add(retried)
	j := s.run(task)
	require.Equal(t, []any{job.Queued, 2}, []any{j.State, j.Attempt})
	require.LessOrEqual(t, j.RunAt.Sub(j.UpdatedAt), apptest.Backoff.Ceiling(1))
	require.Equal(t, []job.Notification{apptest.Event(task), apptest.Event(task), apptest.End(task)}, s.Queue.Notifications(),
		"the retry is of the same commit")
	next := s.Queue.Sent()[0]
	require.Equal(t, []any{task.JobID, 2, job.DependencyFailed, apptest.ClientA, job.SuccessFast},
		[]any{next.JobID, next.Attempt, next.Reason, next.ClientID, next.WorkKind})
	require.Equal(t, 2.0, s.Logged(task, "auto_retry", "FAILED", "QUEUED")["attempt"])
	require.ErrorIs(t, s.worker.Handle(t.Context(), task), job.ErrTaskStale)
	counted := func() []float64 {
		n, _ := s.Executions(job.Failed)
		return []float64{float64(n), s.Sum("jobs_failed_total"), s.Sum("job_retries_total"), s.Sum("jobs_queued_total"),
			s.Sum("job_retry_outcomes_total")}
	}
	require.Equal(t, []float64{1, 1, 1, 1, 0}, counted())

	require.Equal(t, job.Failed, s.run(s.add(retried, func(j *job.Job) { j.MaxAttempts = 1 })).State, "no retry after the last attempt")
	s.runner = failing(job.FailedImmediately)
	require.Equal(t, job.Failed, s.run(s.add(retried)).State, "no retry of a permanent failure")
	require.Len(t, s.Queue.Sent(), 1)
	require.Equal(t, []float64{3, 3, 1, 1, 0}, counted())
}

func TestPlannedFailureIsWritten(t *testing.T) {
	s := newSite(t, time.Hour)
	s.runner = failing(job.CustomFailed)
	d := job.DefineCustom(job.Execute, &job.Behavior{Failures: []job.PlannedFailure{{Attempts: []int{1},
		Problem: job.PlannedProblem{Detail: "planned", RetryAfter: 7}}}}, time.Now(), nil)
	j := s.run(s.add(retried, func(j *job.Job) { j.WorkKind, j.Definition = job.Custom, &d }))
	require.Equal(t, 7*time.Second, j.RunAt.Sub(j.UpdatedAt))
	line := s.Log.Lines(t, map[string]any{"action": "finish"})[0]
	require.Equal(t, "planned", line["error_message"])
}

func TestGiveBack(t *testing.T) {
	s := newSite(t, time.Hour)
	var held []job.ClaimID
	hold := func(running bool, change ...func(*job.Job)) job.Task {
		task := s.add(change...)
		c, _, err := s.store.Claim(t.Context(), s.worker.id, task.JobID, 1)
		require.NoError(t, err)
		if held = append(held, c.ClaimID); running {
			_, err = s.store.Start(t.Context(), c.ClaimID)
			require.NoError(t, err)
		}
		return task
	}
	once := func(j *job.Job) { j.MaxAttempts = 1 }
	assigned, running, last, again := hold(false), hold(true), hold(true, retried, once), hold(true, retried)
	jobs := apptest.Must(s.leases.Held(t.Context(), s.worker.id, held))(t)
	for range 2 { // the second call changes nothing
		require.NoError(t, s.rescuer.GiveBack(t.Context(), jobs))
	}
	for task, want := range map[job.Task][]any{
		assigned: {job.Queued, 1}, running: {job.Failed, 1}, last: {job.Failed, 1}, again: {job.Queued, 2},
	} {
		j := s.job(task)
		require.Equal(t, want, []any{j.State, j.Attempt})
		require.Equal(t, want[0] == job.Failed, j.Failure != nil && j.Failure.Reason == job.WorkerLost)
	}
	require.Len(t, s.Queue.Sent(), 2)
	require.ElementsMatch(t, []job.Notification{apptest.Event(assigned), apptest.End(running), apptest.End(last), apptest.End(again)},
		s.Queue.Notifications())
	require.ElementsMatch(t, []job.ID{assigned.JobID, running.JobID, last.JobID, again.JobID}, s.Queue.Delivered(), "callbacks are delivered")
	require.Equal(t, []float64{1, 3}, []float64{s.Metric(s.Metrics.Repaired.WithLabelValues("rescuer_requeued")),
		s.Metric(s.Metrics.Repaired.WithLabelValues("rescuer_failed"))})
	for action, n := range map[string]int{"requeue": 1, "fail": 3, "auto_retry": 1} {
		require.Len(t, s.Log.Lines(t, map[string]any{"msg": "job transition", "action": action}), n)
	}
	s.store.Close()
	require.Error(t, s.rescuer.GiveBack(t.Context(), jobs))
}
