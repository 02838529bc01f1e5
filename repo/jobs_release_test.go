package repo_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestReleaseGivesClaimedJobsBack(t *testing.T) {
	f := setup(t)
	now, later := f.assigned(f.submit(), 1), f.assigned(f.submit(), 1)
	f.exec(`UPDATE jobs SET dispatch_epoch = 1, dispatch = 4`)
	running := f.run()
	others := map[string]job.Lease{"running": running, "unknown": {JobID: newID(), Attempt: 1, Fence: 1}}
	for name, l := range stale(f, func() job.Lease { return f.assigned(f.submit(), 1) }) {
		others[name] = l
	}
	before := map[string]string{}
	leases, waits := []job.Lease{now, later}, []time.Duration{0, time.Minute}
	for name, l := range others {
		leases, waits = append(leases, l), append(waits, 0)
		before[name] = f.all(l.JobID)
	}

	tasks := must(f.store.Release(f.ctx(), leases, waits))(t)
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
	require.EqualValues(t, 2, f.assigned(now.JobID, 1).Fence)
	require.Empty(t, f.release(now), "the job has another holder")
}

func TestQueueDueTakesTheEarliestInBatches(t *testing.T) {
	f := setup(t)
	ids := make([]job.ID, 5)
	for i := range ids {
		ids[i] = f.submit(deferred(time.Hour))
		f.exec(`UPDATE jobs SET execution_at = now() - $2 * interval '1 minute', run_at = now() WHERE job_id = $1`, ids[i].String(), i)
	}
	future, canceled := f.submit(deferred(time.Hour)), f.submit(deferred(-time.Hour))
	f.cancel(canceled)
	unchanged := f.all(future) + f.all(canceled)

	for _, step := range []struct{ moved, left int }{{2, 3}, {2, 1}, {1, 0}, {0, 0}} {
		n := len(f.queueDue(2))
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
	f := setup(t)
	const jobs = 20
	for i := range jobs {
		f.submit(deferred(time.Duration(i) * 10 * time.Millisecond))
	}
	queued := 0
	testkit.Eventually(t, "it comes about", func() bool {
		n := len(f.queueDue(100))
		queued += n
		return queued == jobs
	})
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM jobs j JOIN events e USING (job_id)
		WHERE e.event_name = 'job.queued' AND (e.occurred_at < j.execution_at OR j.queued_at < j.execution_at)`))
}

func TestConcurrentSchedulersQueueEachJobOnce(t *testing.T) {
	f := setup(t)
	stores := f.twoStores()
	const jobs = 200
	for _, err := range f.insertAll(f.ctx(), f.submissions(jobs, deferred(-time.Second)))() {
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
	f := setup(t)
	id := f.submit(deferred(-time.Second))
	f.exec(`UPDATE jobs SET callback = 'https://example.com', correlation_id = 'c-1' WHERE job_id = $1`, id.String())
	due := f.queueDue(10)
	require.Len(t, due, 1)
	want := f.job(id)
	told := job.Definition{WorkKind: want.WorkKind, DurationMS: want.Definition.DurationMS, ExpectedOutcome: want.Definition.ExpectedOutcome}
	require.Equal(t, job.Job{
		ID: id, ClientID: f.client, RequestID: want.RequestID, CorrelationID: "c-1", Callback: "https://example.com",
		WorkKind: want.WorkKind, Definition: &told, ExecutionAt: want.ExecutionAt, UpdatedAt: want.UpdatedAt,
	}, due[0])

	// Neighbours share what is told of them only where it is equal, and nothing is told of a damaged definition.
	durations := map[job.ID]int64{}
	for i, definition := range []string{`'{"duration_ms": 1}'`, `'{"duration_ms": 1}'`, `'{"duration_ms": 2}'`, `'{}'`, `'[]'`, `NULL`,
		`'{"duration_ms": "1"}'`, `'{"duration_ms": 1}'`} {
		id := f.submit(deferred(time.Duration(i-20) * time.Second))
		f.exec(`UPDATE jobs SET definition = `+definition+` WHERE job_id = $1`, id.String())
		durations[id] = []int64{1, 1, 2, -1, -1, -1, -1, 1}[i]
	}
	due = f.queueDue(10)
	got := map[job.ID]int64{}
	for _, j := range due {
		got[j.ID] = -1
		if j.Definition != nil {
			got[j.ID] = j.Definition.DurationMS
		}
	}
	require.Equal(t, durations, got)
}

func holding(most int) func(*repo.Config) { return func(c *repo.Config) { c.ClientMaxHeld = most } }

// taskIDs gives the ids of the jobs that tasks are about.
func taskIDs(tasks []job.Task) (ids []job.ID) {
	for _, t := range tasks {
		ids = append(ids, t.JobID)
	}
	return ids
}

func (f *fixture) resume(most int) []job.ID {
	tasks := must(f.store.ResumeThrottled(f.ctx(), most, 1000, 1000))(f.t)
	return taskIDs(tasks)
}

// claimMany claims jobs at once, through several stores, and gives those that were claimed, in their order.
func (f *fixture) claimMany(stores []*repo.Store, ids []job.ID) (claimed []job.Lease) {
	claims, refusals := make([]*job.Claim, len(ids)), make([]job.NotClaimed, len(ids))
	errs := make([]error, len(ids))
	var claiming sync.WaitGroup
	for i, id := range ids {
		claiming.Go(func() { claims[i], refusals[i], errs[i] = stores[i%len(stores)].Claim(f.ctx(), f.worker, id, 1) })
	}
	claiming.Wait()
	for i := range ids {
		require.NoError(f.t, errs[i])
		if claims[i] != nil {
			claimed = append(claimed, claims[i].Lease)
		} else {
			require.Equal(f.t, job.NotClaimed{Throttled: true}, refusals[i])
		}
	}
	return claimed
}

// TestWorkersHoldNoMoreJobsOfAClient than they may, whichever processes claim them at the same moment.
func TestWorkersHoldNoMoreJobsOfAClient(t *testing.T) {
	const most = 3
	f := setup(t, holding(most))
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url, holding(most)), repotest.OpenURL(t, f.url, holding(most))}
	var ids []job.ID
	for range 30 {
		ids = append(ids, f.submit())
	}
	foreign := f.submit(func(s *job.Submission) { s.Job.ClientID = newID() })
	left, resumed := len(ids), []job.ID(nil)
	claimed := f.claimMany(stores, ids)
	f.assigned(foreign, 1) // others have places of their own
	require.Empty(t, f.resume(most))
	for rounds := 0; left > 0; rounds++ {
		require.Less(t, rounds, 30)
		require.Len(t, claimed, min(most, left))
		require.Equal(t, len(claimed), one[int](f, `SELECT count(*)::int FROM jobs
			WHERE worker_id IS NOT NULL AND client_id = $1`, f.client.String()))
		for _, lease := range claimed {
			f.start(lease)
			resumed = append(resumed, taskIDs(f.finish(success(lease)).Resumed)...)
		}
		left -= len(claimed)
		claimed, resumed = f.claimMany(stores, resumed), nil
	}
	f.checkInvariants()
}

// TestThrottledJobsComeInTheirOrder: what is younger waits behind them.
func TestThrottledJobsComeInTheirOrder(t *testing.T) {
	f := setup(t, holding(1))
	first, second, third := f.submit(), f.submit(), f.submit()
	lease := f.assigned(first, 1)
	before := f.job(second)
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{third, second}))
	throttled := f.job(second)
	require.Equal(t, job.ThrottledUntil, throttled.RunAt)
	require.Equal(t, job.WaitingClientLimit, throttled.WaitingFor(time.Now(), 1))
	require.Equal(t, before.EventSeq, throttled.EventSeq, "no event: it is QUEUED as before")
	require.Empty(t, f.resume(1))
	f.start(lease)
	require.Equal(t, []job.ID{second}, taskIDs(f.finish(success(lease)).Resumed))

	fourth := f.submit()
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{fourth}), "there is a place, but it is not its")
	require.Equal(t, before.RunAt, f.job(second).RunAt)
	require.Empty(t, f.resume(1), "the place is taken by one that waits for a worker")
	require.Len(t, f.claimMany([]*repo.Store{f.store}, []job.ID{second}), 1)

	require.Equal(t, []job.ID{third, fourth}, f.resume(math.MaxInt32), "without a limit all go on")
	f.checkInvariants()
}

// TestCreatedJobsAreNotThrottled: one whose time has come while it is CREATED is asked for again, once it is QUEUED.
func TestCreatedJobsAreNotThrottled(t *testing.T) {
	f := setup(t, holding(1))
	f.assigned(f.submit(), 1)
	id := f.submit(deferred(time.Hour))
	f.makeDue(id)
	before := f.all(id)
	_, not := f.tryClaim(id, 1)
	require.Equal(t, job.NotClaimed{StillWaiting: true, Wait: time.Second}, not)
	require.Equal(t, before, f.all(id))
	f.queueDue(10)
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{id}))
	require.Equal(t, job.WaitingClientLimit, f.job(id).WaitingFor(time.Now(), 1))
}

// TestThrottledJobsAreCanceled, and leave their place in the order. A cancel makes room too.
func TestThrottledJobsAreCanceled(t *testing.T) {
	f := setup(t, holding(1))
	first, second, third := f.submit(), f.submit(), f.submit()
	f.assigned(first, 1)
	require.Empty(t, f.claimMany([]*repo.Store{f.store}, []job.ID{second, third}))
	for _, id := range []job.ID{second, first} {
		f.cancel(id)
	}
	require.Equal(t, []job.ID{third}, f.resume(1))
	f.checkInvariants()
}
