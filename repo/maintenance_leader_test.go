package repo_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (f *fixture) lead(holder job.ID) bool {
	f.t.Helper()
	ok, err := f.store.Lead(f.ctx(), holder, time.Hour, 0)
	require.NoError(f.t, err)
	return ok
}

func TestLeadHasOneHolder(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a, b := newID(), newID()
	require.True(t, f.lead(a))
	require.False(t, f.lead(b))
	require.True(t, f.lead(a), "it keeps the lease")

	require.NoError(t, f.store.Resign(f.ctx(), b), "who does not lead resigns nothing")
	require.False(t, f.lead(b))
	f.exec(`UPDATE maintenance_state SET leader_expires_at = clock_timestamp()`)
	require.True(t, f.lead(b), "the lease had run out")
	require.False(t, f.lead(a))
	require.NoError(t, f.store.Resign(f.ctx(), a))
	require.False(t, f.lead(a))
	require.NoError(t, f.store.Resign(f.ctx(), b))
	require.True(t, f.lead(a), "at once after the resignation")
}

// Whoever holds a lease of no time keeps it, until somebody takes it.
func TestAnOpenLeaseIsTaken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	lead := func(holder job.ID, lease, vacant time.Duration) bool {
		ok, err := f.store.Lead(f.ctx(), holder, lease, vacant)
		require.NoError(t, err)
		return ok
	}
	a, b := newID(), newID()
	require.True(t, lead(a, 0, time.Hour), "nobody has ever led")
	require.False(t, lead(b, 0, time.Hour), "it has not been vacant for so long")
	require.True(t, lead(a, 0, time.Hour))
	require.True(t, lead(b, time.Minute, 0))
	require.False(t, lead(a, 0, 0))
}

func TestLeadIsForItsTime(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, err := f.store.Lead(f.ctx(), newID(), 90*time.Second, 0)
	require.NoError(t, err)
	require.InDelta(t, 90, one[float64](f, `SELECT extract(epoch FROM leader_expires_at - clock_timestamp())::float8
		FROM maintenance_state`), 30)
}

func TestConcurrentCandidatesHaveOneLeader(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url)}
	var leaders atomic.Int32
	inParallel(20, func(i int) {
		ok, err := stores[i%2].Lead(f.ctx(), newID(), time.Hour, 0)
		if err != nil {
			t.Error(err)
		}
		if ok {
			leaders.Add(1)
		}
	})
	require.EqualValues(t, 1, leaders.Load())
}

func TestEpochIsRaisedOnlyFromTheCurrentOne(t *testing.T) {
	t.Parallel()
	f := setup(t)
	epoch, run, err := f.store.Epoch(f.ctx())
	require.NoError(t, err)
	require.EqualValues(t, 1, epoch)
	require.Empty(t, run)

	inParallel(10, func(int) {
		if err := f.store.RaiseEpoch(f.ctx(), 1, "run-a"); err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, f.store.RaiseEpoch(f.ctx(), 7, "run-b"), "that is not the current one")
	epoch, run, err = f.store.Epoch(f.ctx())
	require.NoError(t, err)
	require.EqualValues(t, 2, epoch)
	require.Equal(t, "run-a", run)
}

func TestLoadCountsWhatIsNotFinal(t *testing.T) {
	t.Parallel()
	f := setup(t)
	load := func(limit int) job.Load {
		l, err := f.store.Load(f.ctx(), limit)
		require.NoError(t, err)
		return l
	}
	require.Equal(t, job.Load{}, load(100))
	for _, s := range job.States {
		f.force(s)
	}
	f.force(job.Queued)
	require.Equal(t, job.Load{Active: 5, Queued: 2}, load(100))
	require.Equal(t, job.Load{Active: 5, Queued: 2}, load(3))
	for range 20 {
		f.force(job.Queued)
		f.force(job.Running)
	}
	bounded := load(4)
	require.Greater(t, bounded.Active, 4, "at least one above the limit")
	require.LessOrEqual(t, bounded.Active, 2*(4+1), "no row beyond the limit of each kind is read")
}

func TestLoadByClient(t *testing.T) {
	t.Parallel()
	f := setup(t)
	load := func(few int) map[job.ID]job.Load {
		l, err := f.store.LoadByClient(f.ctx(), 100, few)
		require.NoError(t, err)
		return l
	}
	require.Empty(t, load(0))
	for _, s := range job.States {
		f.force(s)
	}
	other := newID()
	f.exec(`UPDATE jobs SET client_id = $1 WHERE state IN ('QUEUED', 'CREATED', 'SUCCEEDED')`, other.String())
	f.force(job.Queued)
	require.Equal(t, map[job.ID]job.Load{f.client: {Active: 3, Queued: 1}, other: {Active: 2, Queued: 1}}, load(0))
	require.Equal(t, map[job.ID]job.Load{f.client: {Active: 3, Queued: 1}}, load(2))
}

func TestLiveWorkers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.newWorker()
	f.expireWorker(f.newWorker())
	require.NoError(t, f.leases().Retire(f.ctx(), f.newWorker()))
	n, err := f.store.LiveWorkers(f.ctx())
	require.NoError(t, err)
	require.Equal(t, 2, n)
}
