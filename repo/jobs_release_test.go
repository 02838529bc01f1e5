package repo_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestReleaseGivesClaimedJobsBack(t *testing.T) {
	t.Parallel()
	f := setup(t)
	now, later := f.assigned(f.submit(), 1), f.assigned(f.submit(), 1)
	f.exec(`UPDATE jobs SET dispatch_epoch = 1, dispatch = 4`)
	running := f.run()
	others := map[string]job.Lease{"running": running, "unknown": {JobID: newID(), Attempt: 1, Fence: 1}}
	for name, l := range stale(t, f, func() job.Lease { return f.assigned(f.submit(), 1) }) {
		others[name] = l
	}
	before := map[string]string{}
	leases, waits := []job.Lease{now, later}, []time.Duration{0, time.Minute}
	for name, l := range others {
		leases, waits = append(leases, l), append(waits, 0)
		before[name] = f.all(l.JobID)
	}

	tasks, err := f.store.Release(f.ctx(), leases, waits)
	require.NoError(t, err)
	want := []job.Task{f.taskOf(now.JobID), f.taskOf(later.JobID)}
	want[0].Dispatch, want[1].Dispatch = 5, 5
	require.ElementsMatch(t, want, tasks)
	for name, l := range others {
		require.Equal(t, before[name], f.all(l.JobID), name)
	}
	for i, l := range leases[:2] {
		j := f.job(l.JobID)
		require.Equal(t, job.Queued, j.State)
		require.Equal(t, j.UpdatedAt.Add(waits[i]), j.RunAt)
		require.True(t, one[bool](f, `SELECT worker_id IS NULL AND assigned_at IS NULL AND dispatch_epoch IS NULL AND lease_expiries = 1
			AND fence = 1
			FROM jobs WHERE job_id = $1`, l.JobID.String()))
		last := f.log(l.JobID)[3]
		require.Equal(t, []string{job.EventLeaseExpired, "ASSIGNED", "QUEUED"}, []string{last.Name, last.Prev, last.Next})
		_, err := f.store.Finish(f.ctx(), success(l))
		require.ErrorIs(t, err, job.ErrStale)
	}
	again := f.assigned(now.JobID, 1)
	require.EqualValues(t, 2, again.Fence)
	tasks, err = f.store.Release(f.ctx(), []job.Lease{now}, []time.Duration{0})
	require.NoError(t, err)
	require.Empty(t, tasks, "the job has another holder")
}

func TestReleaseOfNothing(t *testing.T) {
	t.Parallel()
	tasks, err := setup(t).store.Release(t.Context(), nil, nil)
	require.NoError(t, err)
	require.Empty(t, tasks)
}

func TestQueueDueTakesTheEarliestInBatches(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := make([]job.ID, 5)
	for i := range ids {
		ids[i] = f.submit(deferred(time.Hour))
		f.exec(`UPDATE jobs SET execution_at = now() - $2 * interval '1 minute', run_at = now() WHERE job_id = $1`, ids[i].String(), i)
	}
	future, canceled := f.submit(deferred(time.Hour)), f.submit(deferred(-time.Hour))
	_, _, err := f.store.Cancel(f.ctx(), f.client, canceled)
	require.NoError(t, err)
	unchanged := f.all(future) + f.all(canceled)

	for _, step := range []struct{ moved, left int }{{2, 3}, {2, 1}, {1, 0}, {0, 0}} {
		n, err := countDue(f.store, f.ctx(), 2)
		require.NoError(t, err)
		require.Equal(t, step.moved, n)
		for i, id := range ids {
			want := job.Queued
			if i < step.left {
				want = job.Created
			}
			require.Equal(t, want, f.state(id), "job %d with %d left", i, step.left)
		}
	}
	require.Equal(t, unchanged, f.all(future)+f.all(canceled))
	for _, id := range ids {
		require.Equal(t, []string{job.EventCreated, job.EventQueued}, f.names(id))
		require.Equal(t, 2, f.job(id).EventSeq)
		require.Zero(t, one[int](f, `SELECT dispatch FROM jobs WHERE job_id = $1`, id.String()))
	}
}

func TestQueueDueIsNeverEarly(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const jobs = 20
	for i := range jobs {
		f.submit(deferred(time.Duration(i) * 10 * time.Millisecond))
	}
	queued := 0
	require.Eventually(t, func() bool {
		n, err := countDue(f.store, f.ctx(), 100)
		require.NoError(t, err)
		queued += n
		return queued == jobs
	}, patience, tick)
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM jobs j JOIN events e USING (job_id)
		WHERE e.event_name = 'job.queued' AND (e.occurred_at < j.execution_at OR j.queued_at < j.execution_at)`))
}

func TestQueueDueSkipsALockedJob(t *testing.T) {
	t.Parallel()
	f := setup(t)
	locked, free := f.submit(deferred(-time.Minute)), f.submit(deferred(-time.Second))
	unlock := f.lockRow(locked.String())
	n, err := countDue(f.store, f.ctx(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, job.Queued, f.state(free))
	require.Equal(t, job.Created, f.state(locked))
	unlock()
	n, err = countDue(f.store, f.ctx(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestConcurrentSchedulersQueueEachJobOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url)}
	const jobs = 200
	wait := f.insertAll(f.ctx(), f.submissions(jobs, deferred(-time.Second)))
	for _, err := range wait() {
		require.NoError(t, err)
	}
	counts, errs := make([]int, 8), make([]error, 8)
	inParallel(len(counts), func(i int) {
		for n := 1; n > 0 && errs[i] == nil; counts[i] += n {
			n, errs[i] = countDue(stores[i%2], f.ctx(), 17)
		}
	})
	total := 0
	for i, n := range counts {
		require.NoError(t, errs[i])
		total += n
	}
	rest, err := countDue(f.store, f.ctx(), jobs) // what the others had locked at each one's last look
	require.NoError(t, err)
	require.Equal(t, jobs, total+rest)
	require.Equal(t, 2*jobs, one[int](f, `SELECT count(*)::int FROM events`))
	require.Equal(t, jobs, one[int](f, `SELECT count(*)::int FROM jobs WHERE state = 'QUEUED'`))
}

func countDue(s *repo.Store, ctx context.Context, limit int) (int, error) { //nolint:revive // reads like the call that it wraps
	due, err := s.QueueDue(ctx, limit)
	return len(due), err
}

func TestQueueDueTellsWhatItMoved(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit(deferred(-time.Second))
	f.exec(`UPDATE jobs SET callback = 'https://example.com', correlation_id = 'c-1' WHERE job_id = $1`, id.String())
	due, err := f.store.QueueDue(f.ctx(), 10)
	require.NoError(t, err)
	require.Len(t, due, 1)
	want := f.job(id)
	told := job.Definition{WorkKind: want.WorkKind, DurationMS: want.Definition.DurationMS, ExpectedOutcome: want.Definition.ExpectedOutcome}
	require.Equal(t, job.Job{
		ID: id, ClientID: f.client, RequestID: want.RequestID, CorrelationID: "c-1", Callback: "https://example.com",
		WorkKind: want.WorkKind, Definition: &told, ExecutionAt: want.ExecutionAt, UpdatedAt: want.UpdatedAt,
	}, due[0])
}

// Neighbours share what is told of them only where it is equal, and nothing is told of a damaged definition.
func TestQueueDueTellsOfEachJobsOwnDefinition(t *testing.T) {
	t.Parallel()
	f := setup(t)
	want := map[job.ID]int64{}
	for i, definition := range []string{`'{"duration_ms": 1}'`, `'{"duration_ms": 1}'`, `'{"duration_ms": 2}'`, `'{}'`, `'[]'`, `NULL`,
		`'{"duration_ms": "1"}'`, `'{"duration_ms": 1}'`} {
		id := f.submit(deferred(time.Duration(i-20) * time.Second))
		f.exec(`UPDATE jobs SET definition = `+definition+` WHERE job_id = $1`, id.String())
		want[id] = []int64{1, 1, 2, -1, -1, -1, -1, 1}[i]
	}
	due, err := f.store.QueueDue(f.ctx(), 10)
	require.NoError(t, err)
	got := map[job.ID]int64{}
	for _, j := range due {
		got[j.ID] = -1
		if j.Definition != nil {
			got[j.ID] = j.Definition.DurationMS
		}
	}
	require.Equal(t, want, got)
}

func TestClaimTellsWhereTheJobCameFrom(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for id, wasCreated := range map[job.ID]bool{f.submit(deferred(-time.Second)): true, f.submit(): false} {
		claim, _, err := f.store.Claim(f.ctx(), f.worker, id, 1)
		require.NoError(t, err)
		require.Equal(t, wasCreated, claim.WasCreated)
	}
	claim, not, err := f.store.Claim(f.ctx(), f.worker, job.ID{0xff}, 1)
	require.NoError(t, err)
	require.Nil(t, claim)
	require.Equal(t, job.NotClaimed{Unknown: true}, not)
}
