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
	case job.Failed:
		return f.failed(job.FailedOnce)
	}
	id := f.submit()
	f.end(id, s, "")
	return id
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
		require.Equal(t, []any{job.Canceled, job.OutcomeCanceled, started}, []any{j.State, j.Outcome, j.StartedAt})
		require.True(t, one[bool](f, `SELECT worker_id IS NULL FROM jobs WHERE job_id = $1`, id.String()))

		log := f.log(id)
		last := log[len(log)-1]
		require.Equal(t, []any{job.EventCanceled, string(from), "CANCELED", j.EventSeq}, []any{last.Name, last.Prev, last.Next, last.Seq})

		r := f.report(id, 0)
		require.Equal(t, job.Attempt{Number: 1, State: job.Canceled, Outcome: job.OutcomeCanceled, StartedAt: started,
			FinishedAt: j.FinishedAt}, r.Attempt)
		require.Len(t, r.Events, len(log))
		ran := 0.0
		if started != nil {
			ran = j.FinishedAt.Sub(*started).Seconds()
		}
		require.InDelta(t, ran, r.Duration.Seconds(), 0.0006)
	}
}

func TestCancelOfAFinalJobChangesNothing(t *testing.T) {
	f := setup(t)
	for _, from := range []job.State{job.Succeeded, job.Failed, job.Canceled} {
		id := f.at(from)
		f.requireUnchanged(string(from), id, func() job.Change {
			change, before := must2(f.store.Cancel(f.ctx(), f.client, id))(t)
			require.Nil(t, before)
			return change
		})
	}
}

// requireUnchanged checks that a request changes nothing of a job, and is told so.
func (f *fixture) requireUnchanged(name string, id job.ID, ask func() job.Change) {
	all, j := f.all(id), f.job(id)
	require.Equal(f.t, job.Change{JobID: id, State: j.State, Attempt: j.Attempt, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt}, ask(), name)
	require.Equal(f.t, all, f.all(id), name)
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
	f.requireRetried(id, time.Minute)
	j := f.job(id)
	require.Equal(t, job.Change{JobID: id, State: job.Queued, Attempt: 2, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt, Changed: true}, change)

	log := f.log(id)
	last := log[len(log)-1]
	require.Equal(t, []any{job.EventRetried, "FAILED", "QUEUED", 2}, []any{last.Name, last.Prev, last.Next, last.Attempt})
	r := f.report(id, 0)
	require.Equal(t, failed.CurrentAttempt(), r.Attempt, "the failed attempt does not change")
	require.Len(t, r.Events, len(log)-1)
}

func TestRetryGuards(t *testing.T) {
	f := setup(t)
	type request struct {
		id      job.ID
		attempt int
	}
	tests := map[string]request{
		"used up":         {f.failed(job.FailedOnce, attempts(1)), 1},
		"not retryable":   {f.failed(job.FailedImmediately), 1},
		"earlier attempt": {f.at(job.Failed), 0},
		"later attempt":   {f.at(job.Failed), 2},
	}
	for _, s := range job.States {
		if s != job.Failed {
			tests[string(s)] = request{f.at(s), 1}
		}
	}
	for name, test := range tests {
		f.requireUnchanged(name, test.id, func() job.Change { return f.retry(test.id, test.attempt) })
	}
}
