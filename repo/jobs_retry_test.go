package repo_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestRetryQueuesTheNextAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Failed)
	f.exec(`UPDATE jobs SET dispatch = 3, dispatch_epoch = 1 WHERE job_id = $1`, id.String())
	failed := f.job(id)
	change, err := f.store.Retry(f.ctx(), f.client, id, 1, time.Minute, "")
	require.NoError(t, err)

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
	r, err := f.store.Report(f.ctx(), f.client, id, 0)
	require.NoError(t, err)
	require.Equal(t, failed.CurrentAttempt(), r.Attempt, "the failed attempt does not change")
	require.Len(t, r.Events, len(log)-1)
}

func TestRetryGuards(t *testing.T) {
	t.Parallel()
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

	id := f.at(job.Failed)
	all := f.all(id)
	for _, test := range []struct{ client, id job.ID }{{newID(), id}, {job.ID{}, id}, {f.client, newID()}} {
		_, err := f.store.Retry(f.ctx(), test.client, test.id, 1, 0, "")
		require.Equal(t, job.CodeJobNotFound, job.CodeOf(err))
	}
	require.Equal(t, all, f.all(id))
}

func TestConcurrentRetriesMakeOneAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Failed)
	var mu sync.Mutex
	changed := 0
	inParallel(20, func(int) {
		c, err := f.store.Retry(f.ctx(), f.client, id, 1, time.Second, "")
		mu.Lock()
		defer mu.Unlock()
		if err != nil || c.Attempt != 2 || c.State != job.Queued {
			t.Errorf("%+v %v", c, err)
		}
		if c.Changed {
			changed++
		}
	})
	require.Equal(t, 1, changed)
	require.Len(t, f.log(id), 6)
}

func TestEveryAttemptHasItsReport(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit(attempts(3))
	for n := 1; n <= 3; n++ {
		l := f.claim(id, n)
		f.finish(failure(l, job.FailedAgain))
		change, err := f.store.Retry(f.ctx(), f.client, id, n, 0, "")
		require.NoError(t, err)
		require.Equal(t, n < 3, change.Changed)
	}
	seen := 0
	for n := 1; n <= 3; n++ {
		r, err := f.store.Report(f.ctx(), f.client, id, n)
		require.NoError(t, err)
		require.Equal(t, n, r.Number)
		require.Equal(t, job.EventFailed, r.Events[len(r.Events)-1].Name)
		require.Equal(t, n, r.Events[len(r.Events)-1].Attempt)
		require.Greater(t, len(r.Events), seen)
		seen = len(r.Events)
	}
}
