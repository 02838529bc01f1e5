package repo_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func TestStart(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit()
	c, _, err := f.store.Claim(f.ctx(), f.worker, id, 1)
	require.NoError(t, err)
	at, err := f.store.Start(f.ctx(), c.Lease)
	require.NoError(t, err)
	require.True(t, at.After(c.Job.UpdatedAt), "a time of its own")
	j := f.job(id)
	require.Equal(t, job.Running, j.State)
	require.Equal(t, at, *j.StartedAt)
	require.Equal(t, at, j.UpdatedAt)
	require.Equal(t, c.Job.UpdatedAt, one[time.Time](f, `SELECT assigned_at FROM jobs WHERE job_id = $1`, id.String()))
	log := f.log(id)
	require.Len(t, log, 4)
	require.Empty(t, cmp.Diff(event{4, job.EventRunning, "ASSIGNED", "RUNNING", 1, at, log[2].Data}, log[3]))

	before := f.all(id)
	again, err := f.store.Start(f.ctx(), c.Lease)
	require.NoError(t, err, "its answer may have been lost")
	require.Equal(t, at, again)
	require.Equal(t, before, f.all(id), "nothing happens twice")
	f.checkInvariants()
}

func TestStartIsFenced(t *testing.T) {
	t.Parallel()
	f := setup(t)
	assigned := func() job.Lease { return f.assigned(f.submit(), 1) }
	leases := stale(t, f, assigned)
	by := func(worker job.ID) job.Lease {
		c, _, err := f.store.Claim(f.ctx(), worker, f.submit(), 1)
		require.NoError(t, err)
		return c.Lease
	}
	expired, dead, retired := f.newWorker(), f.newWorker(), f.newWorker()
	leases["its worker's lease has ended"], leases["its worker is dead"], leases["its worker has retired"] = by(expired), by(dead), by(retired)
	f.expireWorker(expired)
	f.exec(`UPDATE workers SET state = 'DEAD' WHERE worker_id = $1`, dead.String())
	require.NoError(t, f.leases().Retire(f.ctx(), retired))

	released, reclaimed := assigned(), assigned()
	_, err := f.store.Release(f.ctx(), []job.Lease{released, reclaimed}, []time.Duration{0, 0})
	require.NoError(t, err)
	f.claim(reclaimed.JobID, 1)
	leases["given back"], leases["another claim runs"] = released, reclaimed
	leases["never claimed"] = job.Lease{JobID: f.submit(), Attempt: 1}
	ended := f.run()
	f.finish(success(ended))
	leases["ended"] = ended
	for name, l := range leases {
		before := f.all(l.JobID)
		_, err := f.store.Start(f.ctx(), l)
		require.ErrorIs(t, err, job.ErrStale, name)
		require.Equal(t, before, f.all(l.JobID), name)
	}
	require.Zero(t, f.storageErrors())
	f.checkInvariants()
}

// A start changes no column that an index names, as a key or in its condition,
// so the new version of the row stays on its page and no index is touched.
func TestStartUpdatesInPlace(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, column := range []string{"state", "started_at", "updated_at", "event_seq", "event_tx"} {
		require.Empty(t, one[[]string](f, `SELECT coalesce(array_agg(pg_get_indexdef(indexrelid)), '{}') FROM pg_index
			WHERE indrelid = 'jobs'::regclass AND pg_get_indexdef(indexrelid) ~ ('\m' || $1 || '\M')`, column), column)
	}

	const n = 20
	var leases []job.Lease
	for range n {
		leases = append(leases, f.assigned(f.submit(), 1))
	}
	f.exec(`VACUUM jobs`) // as autovacuum does: it makes room on the pages
	tx, err := f.db.Begin(f.ctx())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(f.ctx())) }()
	_, err = tx.Exec(f.ctx(), repo.Statements["step"], f.stepArguments(job.Running, leases...)...)
	require.NoError(t, err)
	var updated, inPlace int
	require.NoError(t, tx.QueryRow(f.ctx(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'jobs'`).
		Scan(&updated, &inPlace))
	require.Equal(t, []int{n, n}, []int{updated, inPlace})
}
