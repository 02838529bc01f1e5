package repo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestDeleteRemovesAFinalJobWithAllThatBelongsToIt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	other := f.at(job.Succeeded)
	kept := f.all(other)
	for _, s := range []job.State{job.Succeeded, job.Failed, job.Canceled} {
		id := f.at(s)
		require.NoError(t, f.store.Delete(f.ctx(), f.client, id))
		for _, table := range []string{"jobs", "events", "reports", "results"} {
			require.Zero(t, one[int](f, `SELECT count(*)::int FROM `+table+` WHERE job_id = $1`, id.String()), table)
		}
		_, err := f.store.Job(f.ctx(), f.client, id)
		require.Equal(t, job.CodeJobGone, job.CodeOf(err))
		var gone *job.Error
		require.ErrorAs(t, err, &gone)
		require.WithinDuration(t, time.Now(), *gone.ExpiredAt, time.Minute)

		require.NoError(t, f.store.Delete(f.ctx(), f.client, id), "again")
		require.Equal(t, *gone.ExpiredAt, one[time.Time](f, `SELECT expired_at FROM tombstones WHERE job_id = $1`, id.String()))
	}
	require.Equal(t, kept, f.all(other))
	f.checkInvariants()
}

func TestDeleteRefusesJobsThatAreNotFinal(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, s := range []job.State{job.Created, job.Queued, job.Assigned, job.Running} {
		id := f.at(s)
		before := f.all(id)
		err := f.store.Delete(f.ctx(), f.client, id)
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
		require.ErrorContains(t, err, "is "+string(s)+";")
		require.Equal(t, before, f.all(id))
	}
}

func TestDeleteBelongsToTheClient(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id, buried := f.at(job.Succeeded), f.at(job.Succeeded)
	require.NoError(t, f.store.Delete(f.ctx(), f.client, buried))
	before := f.all(id)
	unknown := f.store.Delete(f.ctx(), f.client, newID())
	require.Equal(t, job.CodeJobNotFound, job.CodeOf(unknown))
	for _, id := range []job.ID{id, buried} {
		require.Equal(t, unknown, f.store.Delete(f.ctx(), newID(), id))
	}
	require.Equal(t, before, f.all(id))
}

func TestDeleteByTenAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Succeeded)
	errs := make([]error, 10)
	inParallel(len(errs), func(i int) { errs[i] = f.store.Delete(f.ctx(), f.client, id) })
	require.NoError(t, errors.Join(errs...))
	require.Zero(t, f.count("jobs")+f.count("events")+f.count("results"))
	require.Equal(t, 1, f.count("tombstones"))
}

func TestDeleteAgainstRetries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const n = 40
	ids := make([]job.ID, n)
	for i := range ids {
		ids[i] = f.at(job.Failed)
	}
	inParallel(2*n, func(i int) {
		id := ids[i/2]
		if i%2 == 0 {
			if err := f.store.Delete(context.Background(), f.client, id); err != nil && job.CodeOf(err) != job.CodeConflict {
				t.Error(err)
			}
			return
		}
		if _, err := f.store.Retry(context.Background(), f.client, id, 1, 0, ""); err != nil && job.CodeOf(err) != job.CodeJobGone {
			t.Error(err)
		}
	})
	require.Equal(t, n, f.count("jobs")+f.count("tombstones"))
	require.Equal(t, f.count("jobs"), one[int](f, `SELECT count(*)::int FROM jobs WHERE state = 'QUEUED'`))
	f.checkInvariants()
}

// While the delete waits for the row, the job is retried and ends again. What
// that wrote is not in the snapshot of the delete that waited.
func TestDeleteOfAJobThatEndedAnewMeanwhile(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	id := f.at(job.Failed)
	tx, err := f.db.Begin(f.ctx())
	require.NoError(t, err)
	_, err = tx.Exec(f.ctx(), `UPDATE jobs SET event_seq = event_seq + 1 WHERE job_id = $1`, id.String())
	require.NoError(t, err)
	_, err = tx.Exec(f.ctx(), `INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT job_id, client_id, event_seq, gen_random_uuid(), 'x', 1, now(), '{}' FROM jobs`)
	require.NoError(t, err)
	deleted := make(chan error)
	go func() { deleted <- f.store.Delete(f.ctx(), f.client, id) }()
	f.awaitBlocked(1)
	require.NoError(t, tx.Commit(f.ctx()))
	require.NoError(t, <-deleted)
	require.Zero(t, f.count("jobs")+f.count("events"))
}
