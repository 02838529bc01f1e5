package repo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit(func(s *job.Submission) { s.Job.CorrelationID, s.Job.Language = "c", "de" })
	origin := f.job(id).Origin()
	require.Equal(t, []string{"c", "de"}, []string{origin.CorrelationID, origin.Language})
	requireAttempts := func(want ...job.Attempt) {
		t.Helper()
		gotOrigin, got, err := f.store.Attempts(f.ctx(), f.client, id)
		require.NoError(t, err)
		require.Equal(t, origin, gotOrigin)
		require.Equal(t, want, got)
	}
	current := func() job.Attempt { return f.job(id).CurrentAttempt() }

	requireAttempts(current())
	l := f.claim(id, 1)
	requireAttempts(current())
	f.finish(failure(l, job.FailedOnce))
	first := current()
	require.NotNil(t, first.Failure)
	requireAttempts(first)
	_, err := f.store.Retry(f.ctx(), f.client, id, 1, 0, "")
	require.NoError(t, err)
	requireAttempts(first, job.Attempt{Number: 2, State: job.Queued})
	f.finish(success(f.claim(id, 2)))
	requireAttempts(first, current())

	_, _, unknown := f.store.Attempts(f.ctx(), f.client, newID())
	require.Equal(t, job.CodeJobNotFound, job.CodeOf(unknown))
	_, _, err = f.store.Attempts(f.ctx(), newID(), id)
	require.Equal(t, unknown, err)
	require.NoError(t, f.store.Delete(f.ctx(), f.client, id))
	_, _, err = f.store.Attempts(f.ctx(), f.client, id)
	require.Equal(t, job.CodeJobGone, job.CodeOf(err))
}

func TestAttemptThatWasCanceledBeforeItRan(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Canceled)
	_, got, err := f.store.Attempts(f.ctx(), f.client, id)
	require.NoError(t, err)
	require.Equal(t, []job.Attempt{f.job(id).CurrentAttempt()}, got)
	require.Nil(t, got[0].StartedAt)
	require.Equal(t, job.OutcomeCanceled, got[0].Outcome)
}
