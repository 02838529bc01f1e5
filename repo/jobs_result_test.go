package repo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestResult(t *testing.T) {
	t.Parallel()
	f := setup(t)
	l := f.run()
	end := success(l)
	f.finish(end)
	got, err := f.store.Result(f.ctx(), f.client, l.JobID)
	require.NoError(t, err)
	require.Equal(t, &job.StoredResult{Result: *end.Result, ExpiresAt: f.job(l.JobID).Result.ExpiresAt}, got)

	unknown := func() error { _, err := f.store.Result(f.ctx(), f.client, newID()); return err }()
	require.Equal(t, job.CodeJobNotFound, job.CodeOf(unknown))
	_, err = f.store.Result(f.ctx(), newID(), l.JobID)
	require.Equal(t, unknown, err, "nothing tells a foreign job from one that never existed")

	require.NoError(t, f.store.Delete(f.ctx(), f.client, l.JobID))
	_, err = f.store.Result(f.ctx(), f.client, l.JobID)
	require.Equal(t, job.CodeJobGone, job.CodeOf(err))
}

func TestResultThatDoesNotExist(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for s, want := range map[job.State]job.Code{
		job.Created: job.CodeJobNotFinished, job.Queued: job.CodeJobNotFinished, job.Running: job.CodeJobNotFinished,
		job.Failed: job.CodeResultNotFound, job.Canceled: job.CodeResultNotFound,
	} {
		_, err := f.store.Result(f.ctx(), f.client, f.at(s))
		require.Equal(t, want, job.CodeOf(err), s)
		require.ErrorContains(t, err, "no result")
		require.ErrorContains(t, err, string(s))
	}
	without := f.at(job.Succeeded)
	f.exec(`DELETE FROM results WHERE job_id = $1`, without.String())
	_, err := f.store.Result(f.ctx(), f.client, without)
	require.Equal(t, job.CodeResultNotFound, job.CodeOf(err))
}

func TestResultExpires(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Succeeded)
	f.exec(`UPDATE results SET expires_at = clock_timestamp()`)
	expired := f.job(id).Result.ExpiresAt
	requireGone := func() {
		_, err := f.store.Result(f.ctx(), f.client, id)
		require.Equal(t, job.CodeResultGone, job.CodeOf(err))
		var gone *job.Error
		require.ErrorAs(t, err, &gone)
		require.Equal(t, expired, *gone.ExpiredAt)
	}
	requireGone() // the body is still there
	f.clean(10)
	require.True(t, one[bool](f, `SELECT body IS NULL FROM results`))
	requireGone()
}

func TestEmptyResult(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Succeeded)
	f.exec(`UPDATE results SET body = '', size = 0`)
	got, err := f.store.Result(f.ctx(), f.client, id)
	require.NoError(t, err)
	require.Empty(t, got.Body)
}
