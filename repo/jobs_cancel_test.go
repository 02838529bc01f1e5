package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// at brings a new job to a state by the store's own steps.
func (f *fixture) at(s job.State) job.ID {
	switch s {
	case job.Created:
		return f.submit(deferred(time.Hour))
	case job.Queued:
		return f.submit()
	case job.Assigned:
		return f.assigned(f.submit(), 1).JobID
	case job.Running:
		return f.run().JobID
	case job.Succeeded:
		l := f.run()
		f.finish(success(l))
		return l.JobID
	case job.Failed:
		l := f.run()
		f.finish(failure(l, job.FailedOnce))
		return l.JobID
	default:
		id := f.submit()
		f.cancel(id)
		return id
	}
}

func TestCancelFromEachState(t *testing.T) {
	f := setup(t)
	for _, from := range []job.State{job.Created, job.Queued, job.Assigned, job.Running} {
		id, batch := f.at(from), newID()
		f.exec(`UPDATE jobs SET batch_id = $2, correlation_id = 'c-1' WHERE job_id = $1`, id.String(), batch.String())
		started := f.job(id).StartedAt
		change, before := must2(f.store.Cancel(f.ctx(), f.client, id))(t)

		j := f.job(id)
		require.Equal(t, job.Change{JobID: id, State: job.Canceled, Attempt: 1, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt, Changed: true}, change,
			from)
		require.Equal(t, &job.Job{
			ID: id, ClientID: f.client, State: from, WorkKind: job.SuccessFast, RequestID: "r-1", Definition: f.submission().Job.Definition,
			BatchID: batch, CorrelationID: "c-1", StartedAt: started,
		}, before, "what it was")
		require.Equal(t, job.Canceled, j.State)
		require.Equal(t, job.OutcomeCanceled, j.Outcome)
		require.Equal(t, started, j.StartedAt)
		require.True(t, one[bool](f, `SELECT worker_id IS NULL FROM jobs WHERE job_id = $1`, id.String()))

		log := f.log(id)
		last := log[len(log)-1]
		require.Equal(t, []string{job.EventCanceled, string(from), "CANCELED"}, []string{last.Name, last.Prev, last.Next})
		require.Equal(t, j.EventSeq, last.Seq)

		r := f.report(id, 0)
		require.Equal(t, job.Attempt{Number: 1, State: job.Canceled, Outcome: job.OutcomeCanceled, StartedAt: started,
			FinishedAt: j.FinishedAt}, r.Attempt)
		require.Len(t, r.Events, len(log))
		if started == nil {
			require.Zero(t, r.Duration)
		} else {
			require.InDelta(t, j.FinishedAt.Sub(*started).Seconds(), r.Duration.Seconds(), 0.0006)
		}
	}
}

func TestCancelOfAFinalJobChangesNothing(t *testing.T) {
	f := setup(t)
	for _, from := range []job.State{job.Succeeded, job.Failed, job.Canceled} {
		id := f.at(from)
		all, j := f.all(id), f.job(id)
		change, before := must2(f.store.Cancel(f.ctx(), f.client, id))(t)
		require.Nil(t, before)
		require.Equal(t, job.Change{JobID: id, State: from, Attempt: 1, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt}, change)
		require.Equal(t, all, f.all(id))
	}
}

func TestCancelsOfOneFlush(t *testing.T) {
	f := setup(t, patient)
	ids := []job.ID{f.submit(func(s *job.Submission) { s.Job.ClientID = newID() }), f.run().JobID, f.at(job.Succeeded)}
	changes, errs := make([]job.Change, len(ids)), make([]error, len(ids))
	f.together("cancel", func() { _, _, _ = f.store.Cancel(f.ctx(), f.client, newID()) }, len(ids), func(i int) {
		changes[i], _, errs[i] = f.store.Cancel(f.ctx(), f.client, ids[i])
	})
	require.Equal(t, job.CodeJobNotFound, job.CodeOf(errs[0]))
	require.True(t, errs[1] == nil && changes[1].Changed && changes[1].JobID == ids[1])
	require.True(t, errs[2] == nil && !changes[2].Changed && changes[2].State == job.Succeeded)
}

func TestRetryQueuesTheNextAttempt(t *testing.T) {
	f := setup(t)
	id := f.at(job.Failed)
	f.exec(`UPDATE jobs SET dispatch = 3, dispatch_epoch = 1 WHERE job_id = $1`, id.String())
	failed := f.job(id)
	change := must(f.store.Retry(f.ctx(), f.client, id, 1, time.Minute, ""))(t)

	j := f.job(id)
	require.Equal(t, job.Change{JobID: id, State: job.Queued, Attempt: 2, UpdatedAt: j.UpdatedAt, RunAt: j.UpdatedAt.Add(time.Minute),
		Changed: true}, change)
	require.Equal(t, job.Queued, j.State)
	require.Equal(t, 2, j.Attempt)
	require.Equal(t, change.RunAt, j.RunAt)
	require.Empty(t, j.Outcome)
	require.Nil(t, j.Failure)
	require.Nil(t, j.StartedAt)
	require.Nil(t, j.FinishedAt)
	require.True(t, one[bool](f, `SELECT dispatch = 0 AND dispatch_epoch IS NULL AND queued_at = updated_at FROM jobs WHERE job_id = $1`,
		id.String()))

	log := f.log(id)
	last := log[len(log)-1]
	require.Equal(t, []string{job.EventRetried, "FAILED", "QUEUED"}, []string{last.Name, last.Prev, last.Next})
	require.Equal(t, 2, last.Attempt)
	r := f.report(id, 0)
	require.Equal(t, failed.CurrentAttempt(), r.Attempt, "the failed attempt does not change")
	require.Len(t, r.Events, len(log)-1)
}

func TestRetryGuards(t *testing.T) {
	f := setup(t)
	exhausted := f.run(attempts(1))
	f.finish(failure(exhausted, job.FailedOnce))
	hopeless := f.run()
	f.finish(failure(hopeless, job.FailedImmediately))
	tests := map[string]struct {
		id      job.ID
		attempt int
	}{
		"used up":         {exhausted.JobID, 1},
		"not retryable":   {hopeless.JobID, 1},
		"earlier attempt": {f.at(job.Failed), 0},
		"later attempt":   {f.at(job.Failed), 2},
	}
	for _, s := range job.States {
		if s != job.Failed {
			tests[string(s)] = struct {
				id      job.ID
				attempt int
			}{f.at(s), 1}
		}
	}
	for name, test := range tests {
		all, j := f.all(test.id), f.job(test.id)
		change, err := f.store.Retry(f.ctx(), f.client, test.id, test.attempt, 0, "")
		require.NoError(t, err, name)
		require.Equal(t, job.Change{JobID: test.id, State: j.State, Attempt: j.Attempt, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt}, change, name)
		require.Equal(t, all, f.all(test.id), name)
	}
}

func TestEveryAttemptHasItsReport(t *testing.T) {
	f := setup(t)
	id := f.submit(attempts(3))
	for n := 1; n <= 3; n++ {
		l := f.claim(id, n)
		f.finish(failure(l, job.FailedAgain))
		require.Equal(t, n < 3, must(f.store.Retry(f.ctx(), f.client, id, n, 0, ""))(t).Changed)
	}
	seen := 0
	for n := 1; n <= 3; n++ {
		r := f.report(id, n)
		require.Equal(t, n, r.Number)
		require.Equal(t, job.EventFailed, r.Events[len(r.Events)-1].Name)
		require.Equal(t, n, r.Events[len(r.Events)-1].Attempt)
		require.Greater(t, len(r.Events), seen)
		seen = len(r.Events)
	}
}
